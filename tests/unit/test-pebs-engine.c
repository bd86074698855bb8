/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Unit tests of PEBS: registers, when a record is due, and what is in it. */

#include "pebs.h"
#include "pmu-state.h"

#define PEBS_ENABLE     0x3f1
#define PEBS_DATA_CFG   0x3f2
#define LOAD_LATENCY    0x3f6
#define FRONTEND        0x3f7

#define CYCLES_PP       (RUN | 1u << 23 | 16u << 24)
#define ADAPTIVE        (1ull << 34)
#define OVF_BUF         (1ull << 62)

#define INSNS           0xc0
#define BRANCHES        0xc4
#define LATENCY_NHM     0x100b
#define LATENCY         0x1cd
#define LATENCY_CMT     0x5d0
#define STORE           0x2cd
#define STORES          (1ull << 63)

static bool is_gp(uint32_t msr, uint64_t val)
{
    return pmu_wrmsr(&pmu, &config, msr, val) == PMU_MSR_GP;
}

/* --- memory --------------------------------------------------------------- */

#define PAGES       8
#define BASE        0xffff888000000000ull
#define AREA        (BASE + 0x18)
#define BUFFER      (BASE + 4096)

static _Alignas(8) uint8_t memory[PAGES][4096];
static bool missing[PAGES];
/* Pages are nowhere near each other. */
static const unsigned place[PAGES] = { 3, 6, 0, 5, 1, 7, 2, 4 };

static void *host(void *opaque, uint64_t addr, uint32_t len)
{
    uint64_t page = (addr - BASE) / 4096;

    g_assert_cmpint(addr % 4096 + len, <=, 4096);
    return page < PAGES && !missing[page] ?
           &memory[place[page]][addr % 4096] : NULL;
}

static uint8_t *byte(uint64_t addr)
{
    return host(NULL, addr, 1);
}

static uint64_t get(uint64_t addr)
{
    uint64_t val = 0;

    for (int i = 0; i < 8; i++) {
        val |= (uint64_t)*byte(addr + i) << 8 * i;
    }
    return val;
}

static void put(uint64_t addr, uint64_t val)
{
    for (int i = 0; i < 8; i++) {
        *byte(addr + i) = (uint8_t)(val >> 8 * i);
    }
}

static void set_area(uint64_t base, uint64_t bytes, uint64_t threshold)
{
    memset(missing, 0, sizeof(missing));
    memset(memory, 0xaa, sizeof(memory));
    put(AREA + 0x20, base);
    put(AREA + 0x28, base);
    put(AREA + 0x30, base + bytes);
    put(AREA + 0x38, base + threshold);
    for (int n = 0; n < 11; n++) {
        put(AREA + 0x40 + 8 * n, -1000 - n);
    }
}

static uint64_t stored(void)
{
    return get(AREA + 0x28) - get(AREA + 0x20);
}

/* --- a program ------------------------------------------------------------ */

static uint64_t gpr[16];
static PebsSample sample = { .gpr = gpr };
static uint64_t records;        /* counters whose record has been stored */

/* An instruction that counts @n times for @q; whether there was a PMI. */
static bool insn_of(PmuQuantity q, unsigned n, bool known)
{
    uint64_t due;

    pmu_count(&pmu, RETIRE_USR, PMU_INSNS, 1);
    if (q != PMU_INSNS) {
        pmu_count(&pmu, RETIRE_USR, q, n);
    }
    due = pmu_pebs_due(&pmu, &config);
    if (due && !known) {
        pmu_pebs_forget(&pmu, &config);
        due = 0;
    }
    sample.ip++;
    records = 0;
    for (unsigned i = 0; i < PMU_NR_COUNTERS; i++) {
        if (due & pmu_status_bit(i)) {
            records |= pebs_store(&pmu, &config, i, AREA, &sample, host,
                                  NULL) == PEBS_STORED ? pmu_status_bit(i) : 0;
        }
    }
    return pmu_sync(&pmu, &config);
}

static bool insn(PmuQuantity q)
{
    return insn_of(q, 1, true);
}

/* Counter 0 is going to overflow behind @left events. */
static void start(uint64_t event, uint64_t left)
{
    wr(GLOBAL_CTRL, 0);
    wr(PERFEVTSEL(0), event | RUN);
    wr(PMC(0), -left);
    wr(PEBS_ENABLE, 1);
    wr(GLOBAL_CTRL, 1);
}

/* --- tests ---------------------------------------------------------------- */

static const struct {
    unsigned model, format, size;
    uint64_t enable;
    unsigned latency;           /* event of load latency, or 0, */
    unsigned counters;          /* and which may count it */
    unsigned stores;            /* the same of stores */
} parts[] = {
    { 0x17, 0, 144, 1, 0, 0, 0 },
    { 0x1c, 0, 144, 1, 0, 0, 0 },
    { 0x1a, 1, 176, 0xf0000000full, LATENCY_NHM, 0xf, 0 },
    { 0x2c, 1, 176, 0xf0000000full, LATENCY_NHM, 0xf, 0 },
    { 0x2a, 1, 176, STORES | 0xf0000000full, LATENCY, 8, 8 },
    { 0x3a, 1, 176, STORES | 0xf0000000full, LATENCY, 8, 8 },
    { 0x3c, 2, 192, 0xf0000000full, LATENCY, 0xf, 0 },
    { 0x3d, 2, 192, 0xf0000000full, LATENCY, 0xf, 0 },
    { 0x37, 2, 192, 1, 0, 0, 0 },
    { 0x5e, 3, 200, 0xf0000000full, LATENCY, 0xf, 0 },
    { 0x5c, 3, 200, 1, 0, 0, 0 },
    { 0x7a, 3, 200, 0x70000000full, 0, 0, 0 },
    { 0x6a, 4, 32, 0x7000000ffull, LATENCY, 0xff, 0 },
    { 0x8f, 4, 32, 0x7000000ffull, LATENCY, 0xfe, 1 },
    { 0x86, 4, 32, 0x70000000full, 0, 0, 0 },
    { 0xaf, 4, 32, 0x7000000ffull, LATENCY_CMT, 3, 0 },
    { 0x57, 2, 192, 1, 0, 0, 0 },
};

/* edk2's SkylakeMsr.h, and Linux' extra_regs[] */
static uint64_t frontend_of(unsigned model)
{
    switch (model) {
    case 0x5e:
    case 0x6a:
        return 0x7fff17;
    case 0x8f:
        return 0x7fff1f;
    default:
        return 0;
    }
}

static void test_registers(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(parts); i++) {
        bool adaptive = parts[i].format == 4;
        uint64_t val;

        be_intel(parts[i].model);
        g_assert_cmpint(PMU_CAP_PEBS_FORMAT(config.perf_capabilities), ==,
                        parts[i].format);
        for (int bit = 0; bit < 64; bit++) {
            val = 1ull << bit;
            g_assert_cmpint(is_gp(PEBS_ENABLE, val), ==,
                            !(parts[i].enable & val));
            g_assert_cmpint(is_gp(PEBS_DATA_CFG, val), ==,
                            !adaptive || !(val & 0xff00000f));
            g_assert_cmpint(is_gp(LOAD_LATENCY, val), ==,
                            !parts[i].latency || val > 0xffff);
            g_assert_cmpint(is_gp(FRONTEND, val), ==,
                            !(frontend_of(parts[i].model) & val));
            if (config.version >= 4 && (parts[i].enable & val)) {
                g_assert_cmphex(rd(GLOBAL_INUSE), ==, 1ull << 63);
            }
            g_assert_cmpint(is_gp(FIXED_CTR_CTRL, val & ~0xfffull), ==,
                            val > 0xfff && !(adaptive &&
                                             (val & 0x11100000000)));
        }
        g_assert_cmphex(rd(PEBS_ENABLE), ==,
                        1ull << (63 - __builtin_clzll(parts[i].enable)));
        g_assert_cmpint(is_gp(PERFEVTSEL(0), ADAPTIVE), ==, !adaptive);
        g_assert_cmpint(is_gp(STATUS_RESET, OVF_BUF), ==, false);
        if (parts[i].latency) {
            g_assert_cmphex(rd(LOAD_LATENCY), ==, 0x8000);
        }
        if (frontend_of(parts[i].model)) {
            g_assert_cmphex(rd(FRONTEND), ==, 1u << 22);
        } else {
            g_assert_true(is_gp(FRONTEND, 0));
        }

        config.perf_capabilities &= ~(uint64_t)PMU_CAP_PEBS;
        g_assert_true(is_gp(PEBS_ENABLE, 0) && is_gp(PEBS_DATA_CFG, 0) &&
                      is_gp(PERFEVTSEL(0), ADAPTIVE) &&
                      is_gp(LOAD_LATENCY, 0) && is_gp(FRONTEND, 0) &&
                      is_gp(FIXED_CTR_CTRL, FIXED_BIT(0)));
        g_assert_cmpint(pmu_rdmsr(&pmu, &config, PEBS_ENABLE, &val), ==,
                        PMU_MSR_GP);
        g_assert_cmphex(pmu_misc_enable(&config), ==, 0x1880);
    }
    be_intel(0x6a);
    config.pdcm = false;
    g_assert_true(is_gp(PEBS_ENABLE, 0));
    be_intel(0x0e);
    g_assert_true(is_gp(PEBS_ENABLE, 0));
    be_intel(0xdd);
    g_assert_true(is_gp(PEBS_ENABLE, 0));
}

static void set_sample(void)
{
    uint8_t *bytes = (uint8_t *)&sample;

    for (unsigned i = 0; i < sizeof(sample); i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    }
    for (unsigned n = 0; n < G_N_ELEMENTS(gpr); n++) {
        gpr[n] = n * 0x123456789abcdefull + 1;
    }
    sample.gpr = gpr;
    sample.nr_accesses = 0;
}

/* Register @n's place in records of formats 0 to 3: RAX, RBX, RCX, RDX, ... */
static unsigned fixed_place(unsigned n)
{
    static const unsigned places[] = { 2, 4, 5, 3, 9, 8, 6, 7 };

    return n < 8 ? places[n] : 2 + n;
}

static void test_fixed(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(parts); i++) {
        uint64_t other = 1ull << 61;

        if (parts[i].format > 3) {
            continue;
        }
        /* At all distances from a page's end */
        for (uint64_t at = BUFFER; at < BUFFER + 4096; at += 15) {
            be_intel(parts[i].model);
            set_area(at, 3 * parts[i].size, 400);
            set_sample();
            start(INSNS, 1);
            g_assert_false(insn(PMU_INSNS));
            g_assert_cmphex(rd(GLOBAL_STATUS), ==, 1);
            g_assert_cmphex(records, ==, 0);
            pmu.global_status |= other;
            g_assert_false(insn(PMU_INSNS));
            g_assert_cmphex(records, ==, 1);
            g_assert_cmpint(stored(), ==, parts[i].size);
            g_assert_cmphex(get(at), ==, sample.rflags);
            g_assert_cmphex(get(at + 8), ==, sample.next);
            for (unsigned n = 0; n < 16; n++) {
                g_assert_cmphex(get(at + 8 * fixed_place(n)), ==,
                                sample.gpr[n]);
            }
            if (parts[i].format >= 1) {
                g_assert_cmphex(get(at + 0x90), ==,
                                parts[i].format < 3 ? 1 | other : 1);
                g_assert_cmphex(get(at + 0x98) | get(at + 0xa0) |
                                get(at + 0xa8), ==, 0);
            }
            if (parts[i].format >= 2) {
                g_assert_cmphex(get(at + 0xb0), ==, sample.ip);
                g_assert_cmphex(get(at + 0xb8), ==, 0);
            }
            if (parts[i].format >= 3) {
                g_assert_cmphex(get(at + 0xc0), ==, sample.tsc);
            }
            g_assert_cmphex(*byte(at - 1), ==, 0xaa);
            g_assert_cmphex(*byte(at + parts[i].size), ==, 0xaa);
        }
    }
}

static void check_adaptive(uint64_t at, uint64_t cfg, uint64_t bit)
{
    uint64_t p = at + 32;

    g_assert_cmphex(get(at), ==, stored() << 48 | cfg);
    g_assert_cmphex(get(at + 8), ==, sample.ip);
    g_assert_cmphex(get(at + 16), ==, bit);
    g_assert_cmphex(get(at + 24), ==, sample.tsc);
    if (cfg & 1) {
        for (int i = 0; i < 4; i++, p += 8) {
            g_assert_cmphex(get(p), ==, 0);
        }
    }
    if (cfg & 2) {
        g_assert_cmphex(get(p), ==, sample.rflags);
        g_assert_cmphex(get(p + 8), ==, sample.next);
        p += 16;
        for (int i = 0; i < 16; i++, p += 8) {
            g_assert_cmphex(get(p), ==, sample.gpr[i]);
        }
    }
    if (cfg & 4) {
        for (int i = 0; i < 32; i++, p += 8) {
            g_assert_cmphex(get(p), ==, sample.xmm[i / 2][i % 2]);
        }
    }
    for (unsigned i = 0; (cfg & 8) && i <= cfg >> 24; i++, p += 24) {
        g_assert_cmphex(get(p), ==, i < 32 ? sample.lbr[i].from : 0);
        g_assert_cmphex(get(p + 8), ==, i < 32 ? sample.lbr[i].to : 0);
        g_assert_cmphex(get(p + 16), ==, i < 32 ? sample.lbr[i].info : 0);
    }
    g_assert_cmphex(p, ==, at + stored());
    g_assert_cmphex(*byte(at - 1), ==, 0xaa);
    g_assert_cmphex(*byte(p), ==, 0xaa);
}

static void test_adaptive(void)
{
    static const uint64_t entries[] = { 0, 31, 255 };

    for (uint64_t cfg = 0; cfg < 64; cfg++) {
        uint64_t data = (cfg & 15) | entries[cfg >> 4 & 1] << 24;

        data = cfg & 32 ? (cfg & 15) | entries[2] << 24 : data;
        for (uint64_t at = BUFFER; at < BUFFER + 4096; at += 255) {
            be_intel(0x6a);
            set_area(at, 3 * 4096, 3 * 4096);
            set_sample();
            wr(PEBS_DATA_CFG, data);
            start(INSNS | ADAPTIVE, 1);
            insn(PMU_INSNS);
            insn(PMU_INSNS);
            g_assert_cmphex(records, ==, 1);
            check_adaptive(at, data, 1);
            g_assert_cmphex(rd(PMC(0)), ==, ((1ull << 48) - 1) & -1000ull);

            /* What EVTSEL does not ask for; and a fixed counter */
            set_area(at, 4096, 4096);
            start(INSNS, 1);
            insn(PMU_INSNS);
            insn(PMU_INSNS);
            check_adaptive(at, 0, 1);
            wr(GLOBAL_CTRL, 0);
            for (int i = 0; i < 3; i++) {
                set_area(at, 3 * 4096, 4096);
                wr(FIXED_CTR_CTRL, 3 << 4 * i | FIXED_BIT(4 * i));
                wr(FIXED_CTR(i), -1);
                wr(PEBS_ENABLE, FIXED_BIT(i));
                wr(GLOBAL_CTRL, FIXED_BIT(i));
                insn(PMU_INSNS);
                insn(PMU_INSNS);
                g_assert_cmphex(records, ==, FIXED_BIT(i));
                check_adaptive(at, data, FIXED_BIT(i));
                g_assert_cmphex(rd(FIXED_CTR(i)), ==,
                                ((1ull << 48) - 1) & (-1008ull - i));
            }
        }
    }
    /* Without "baseline" there is the first group only. */
    be_intel(0x6a);
    config.perf_capabilities &= ~(uint64_t)PMU_CAP_PEBS_BASELINE;
    set_area(BUFFER, 4096, 4096);
    start(INSNS, 1);
    insn(PMU_INSNS);
    insn(PMU_INSNS);
    check_adaptive(BUFFER, 0, 1);
}

static void test_arming(void)
{
    for (unsigned left = 1; left < 20; left++) {
        be_intel(0x5e);
        set_area(BUFFER, 4000, 4000);
        start(BRANCHES, left);
        for (unsigned i = 1; i <= left; i++) {
            for (int n = 0; n < 3; n++) {
                g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_USR), <=,
                                left - i + 2);
                insn(PMU_INSNS);
            }
            g_assert_cmphex(rd(GLOBAL_STATUS) | records, ==, 0);
            g_assert_false(insn(PMU_JMP));
        }
        /* Armed */
        g_assert_cmphex(rd(GLOBAL_STATUS), ==, 1);
        g_assert_cmphex(pmu.pebs_armed, ==, 1);
        for (int n = 0; n < 3; n++) {
            uint32_t branches;

            pmu_distances(&pmu, &config, RETIRE_USR, &branches);
            g_assert_cmpint(branches, ==, 0);
            g_assert_false(insn(PMU_INSNS));
            g_assert_cmphex(records, ==, 0);
        }
        g_assert_false(insn(PMU_RET));
        g_assert_cmphex(records, ==, 1);
        g_assert_cmphex(rd(GLOBAL_STATUS), ==, 0);
        g_assert_cmphex(rd(PMC(0)), ==, ((1ull << 48) - 1) & -1000ull);
        g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_USR), ==, 1000);
        g_assert_false(insn(PMU_RET));
        g_assert_cmphex(records, ==, 0);
    }
    /* Clocks, as Linux asks for them */
    be_intel(0x3c);
    set_area(BUFFER, 4000, 4000);
    start(0x1c2 | CYCLES_PP, 2);
    insn(PMU_INSNS);
    insn(PMU_INSNS);
    g_assert_cmphex(records, ==, 0);
    insn(PMU_INSNS);
    g_assert_cmphex(records, ==, 1);
    /* An instruction that has the overflow and the event behind it */
    start(0x81d0, 3);
    insn_of(PMU_LOAD_L1, 2, true);
    g_assert_cmphex(records | pmu.pebs_armed, ==, 0);
    insn_of(PMU_LOAD_L1, 2, true);
    g_assert_cmphex(records, ==, 1);
    start(0x81d0, 3);
    insn_of(PMU_LOAD_L1, 3, true);
    g_assert_cmphex(records, ==, 0);
    insn(PMU_STORES);
    g_assert_cmphex(records, ==, 0);
    insn(PMU_LOAD_L1);
    g_assert_cmphex(records, ==, 1);
    /* One whose address nobody knows leaves it to the next. */
    start(INSNS, 1);
    insn(PMU_INSNS);
    insn_of(PMU_INSNS, 1, false);
    g_assert_cmphex(records, ==, 0);
    insn(PMU_INSNS);
    g_assert_cmphex(records, ==, 1);
    /* In the other row it does not count. */
    start(INSNS, 1);
    wr(PERFEVTSEL(0), INSNS | EN | OS);
    g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_OS), ==, 1);
    insn(PMU_INSNS);
    insn(PMU_INSNS);
    g_assert_cmphex(records | rd(GLOBAL_STATUS), ==, 0);
}

static void test_enable(void)
{
    be_intel(0x5e);
    set_area(BUFFER, 4000, 4000);
    /* EVTSEL.INT has no effect */
    start(INSNS | INT, 1);
    g_assert_false(insn(PMU_INSNS));
    wr(PEBS_ENABLE, 0);
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, 1);
    for (int i = 0; i < 5; i++) {
        g_assert_false(insn(PMU_INSNS));
        g_assert_cmphex(records, ==, 0);
    }
    /* It is still armed. */
    wr(PEBS_ENABLE, 1);
    insn(PMU_INSNS);
    g_assert_cmphex(records, ==, 1);
    /* Not when it has been written, or when all begins anew */
    start(INSNS, 1);
    insn(PMU_INSNS);
    wr(PMC(0), -5);
    insn(PMU_INSNS);
    g_assert_cmphex(records | pmu.pebs_armed, ==, 0);
    start(INSNS, 1);
    insn(PMU_INSNS);
    pmu_reset(&pmu, &config);
    g_assert_cmphex(pmu.pebs_armed | pmu.pebs_enable, ==, 0);
    /* Overflows without PEBS are as ever. */
    start(INSNS | INT, 2);
    insn(PMU_INSNS);
    wr(PEBS_ENABLE, 0);
    g_assert_true(insn(PMU_INSNS));
    g_assert_cmphex(records | pmu.pebs_armed, ==, 0);
    /* A status that software takes back is not what has it armed. */
    start(INSNS, 1);
    insn(PMU_INSNS);
    wr(STATUS_RESET, 1);
    insn(PMU_INSNS);
    g_assert_cmphex(records, ==, 1);
}

static void test_threshold(void)
{
    for (unsigned model = 0x3c; model <= 0x5e; model += 0x22) {
        for (uint64_t threshold = 0; threshold < 5; threshold++) {
            unsigned size = model == 0x5e ? 200 : 192;

            be_intel(model);
            pmu.debugctl = 1u << 12;
            set_area(BUFFER, 3 * size, threshold * size);
            put(AREA + 0x40, -1);
            start(INSNS, 1);
            for (uint64_t i = 1; i < 6; i++) {
                bool reached = MIN(i, 3) >= threshold;

                wr(PMC(0), -1);
                g_assert_false(insn(PMU_INSNS));
                g_assert_cmpint(insn(PMU_INSNS), ==, reached);
                g_assert_cmpint(stored(), ==, MIN(i, 3) * size);
                g_assert_cmphex(rd(GLOBAL_STATUS) & ~(1ull << 59), ==,
                                reached ? OVF_BUF : 0);
                g_assert_cmphex(rd(PMC(0)), ==, (1ull << 48) - 1);
                g_assert_cmpint(reached, ==, model == 0x5e ?
                                rd(GLOBAL_STATUS) >> 59 & 1 :
                                !rd(GLOBAL_CTRL));
                wr(STATUS_RESET, rd(GLOBAL_STATUS));
                wr(GLOBAL_CTRL, 1);
            }
        }
    }
}

/* Another processor reads records while they are stored. */
static void *read_records(void *opaque)
{
    uint64_t *index = (uint64_t *)byte(AREA + 0x28), ip = 0;

    for (uint64_t at = BUFFER; at + 200 <= BASE + sizeof(memory); at += 200) {
        while (GUINT64_FROM_LE(__atomic_load_n(index, __ATOMIC_ACQUIRE)) <=
               at) {
            g_thread_yield();
        }
        if (ip) {
            g_assert_cmphex(get(at + 0xb0), ==, ip + 2);
        }
        ip = get(at + 0xb0);
    }
    return NULL;
}

/* Who sees the index sees the record: by EventingIP, and with TSan. */
static void test_order(void)
{
    GThread *reader;

    be_intel(0x5e);
    set_area(BUFFER, sizeof(memory) - 4096, sizeof(memory));
    put(AREA + 0x40, -1);
    start(INSNS, 1);
    reader = g_thread_new("reader", read_records, NULL);
    for (unsigned n = 0; n < 2 * ((sizeof(memory) - 4096) / 200); n++) {
        insn(PMU_INSNS);
        g_assert_cmphex(records, ==, n & 1);
    }
    g_thread_join(reader);
}

static void test_dropped(void)
{
    static const struct {
        unsigned page;
        bool area;
    } pages[] = { { 0, true }, { 1, false }, { 2, false } };

    for (unsigned i = 0; i < G_N_ELEMENTS(pages); i++) {
        be_intel(0x3c);
        set_area(BUFFER + 4000, 4000, 0);
        start(INSNS, 1);
        insn(PMU_INSNS);
        missing[pages[i].page] = true;
        /* Only what could be read says that there is a PMI. */
        g_assert_cmpint(insn(PMU_INSNS), ==, !pages[i].area);
        g_assert_cmphex(records | pmu.pebs_armed, ==, 0);
        g_assert_cmphex(rd(GLOBAL_STATUS), ==, pages[i].area ? 0 : OVF_BUF);
        g_assert_cmphex(rd(PMC(0)), ==,
                        pages[i].area ? 1 : ((1ull << 48) - 1) & -1000ull);
        missing[pages[i].page] = false;
        g_assert_cmpint(stored(), ==, 0);
        for (unsigned j = 4000; j < 4500; j++) {
            g_assert_cmphex(*byte(BUFFER + j), ==, 0xaa);
        }
    }
    /* No room, at the end of memory, and behind the end */
    for (int i = 0; i < 4; i++) {
        static const uint64_t index[] = {
            4000 - 191, 4001, -2 - BUFFER, 0
        };

        be_intel(0x3c);
        set_area(BUFFER, 4000, 4000);
        put(AREA + 0x28, BUFFER + index[i]);
        put(AREA + 0x38, -1);
        start(INSNS, 1);
        insn(PMU_INSNS);
        g_assert_false(insn(PMU_INSNS));
        g_assert_cmphex(records, ==, index[i] ? 0 : 1);
    }
    /* A record over the area: what it says has been read before. */
    be_intel(0x3c);
    set_area(AREA, 4000, 192);
    start(INSNS, 1);
    insn(PMU_INSNS);
    g_assert_true(insn(PMU_INSNS));
    g_assert_cmphex(get(AREA + 0x28), ==, AREA + 192);
    g_assert_cmphex(rd(PMC(0)), ==, ((1ull << 48) - 1) & -1000ull);
}

static void test_several(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(parts); i++) {
        uint64_t counters;

        be_intel(parts[i].model);
        counters = parts[i].enable & ((1u << config.counters) - 1);
        set_area(BUFFER, 4000, 4000);
        for (unsigned n = 0; counters >> n; n++) {
            wr(PERFEVTSEL(n), INSNS | RUN);
            wr(PMC(n), -1);
        }
        wr(PEBS_ENABLE, counters);
        wr(GLOBAL_CTRL, counters);
        insn(PMU_INSNS);
        g_assert_cmphex(rd(GLOBAL_STATUS), ==, counters);
        insn(PMU_INSNS);
        g_assert_cmphex(records, ==, counters);
        g_assert_cmphex(rd(GLOBAL_STATUS), ==, 0);
        for (unsigned n = 0; counters >> n; n++) {
            uint64_t at = BUFFER + n * parts[i].size;

            g_assert_cmphex(rd(PMC(n)) << 24, ==, (-1000ull - n) << 24);
            if (parts[i].format) {
                g_assert_cmphex(get(at + (parts[i].format < 4 ? 0x90 : 16)),
                                ==, 1u << n);
            }
        }
    }
}

static void test_precise(void)
{
    static const struct {
        unsigned model;
        uint64_t event;
        PmuQuantity q;
        bool precise;
    } tests[] = {
        { 0x17, 0xc0, PMU_INSNS, true },
        { 0x17, 0xc0 | CYCLES_PP, PMU_INSNS, true },
        { 0x17, 0x3c, PMU_INSNS, false },
        { 0x17, 0xc4, PMU_JMP, false },
        { 0x17, 0xc5, PMU_MISP_RET, true },
        { 0x17, 0x4cb, PMU_LOAD_L3, true },
        { 0x1a, 0x1c0, PMU_INSNS, true },
        { 0x1a, 0x3c, PMU_INSNS, false },
        { 0x1a, 0x10b, PMU_LOAD_L1, true },
        { 0x1a, 0xc4, PMU_JMP, true },
        { 0x1a, 0xc5, PMU_MISP_CALL_IND, false },
        { 0x1a, 0x2c5, PMU_MISP_CALL_IND, true },
        { 0x2c, 0xc5, PMU_MISP_CALL_IND, true },
        { 0x1a, 0x1cb, PMU_LOAD_L1, true },
        { 0x2a, 0x3c, PMU_INSNS, true },
        { 0x5e, 0x81d0, PMU_LOAD_L1, true },
        { 0x5e, 0x1cb, PMU_INTERRUPTS, false },
        { 0x6a, 0x13c, PMU_INSNS, true },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        be_intel(tests[i].model);
        set_area(BUFFER, 4000, 4000);
        start(tests[i].event | INT, 1);
        g_assert_cmpint(insn(tests[i].q), ==, !tests[i].precise);
        g_assert_cmphex(rd(GLOBAL_STATUS), ==, 1);
        insn(tests[i].q);
        g_assert_cmphex(records, ==, tests[i].precise);
    }
}

static void test_load(void)
{
    PmuState saved;

    be_intel(0x6a);
    set_area(BUFFER, 4000, 4000);
    wr(PEBS_DATA_CFG, 2);
    start(INSNS | ADAPTIVE, 1);
    insn(PMU_INSNS);
    pmu_settle(&pmu, &config);
    saved = pmu;
    memset(&pmu.counter, 0, sizeof(pmu.counter));
    pmu.pebs_due = 1;
    g_assert_true(pmu_load_state(&pmu, &config));
    insn(PMU_INSNS);
    g_assert_cmphex(records, ==, 1);
    check_adaptive(BUFFER, 2, 1);

    for (unsigned i = 0; i < G_N_ELEMENTS(parts); i++) {
        be_intel(parts[i].model);
        pmu.global_status = OVF_BUF;
        pmu.pebs_enable = pmu.pebs_armed = parts[i].enable;
        /* Bits of load latency, and of stores, are not counters. */
        g_assert_cmpint(pmu_load_state(&pmu, &config), ==,
                        !parts[i].latency || parts[i].format == 4);
        pmu.pebs_armed &= parts[i].format < 4 && parts[i].latency ? 15 : -1;
        g_assert_true(pmu_load_state(&pmu, &config));
        pmu.pebs_armed = ~parts[i].enable & -~parts[i].enable;
        g_assert_false(pmu_load_state(&pmu, &config));
        pmu.pebs_armed = 0;
        pmu.pebs_enable = 1ull << 62;
        g_assert_false(pmu_load_state(&pmu, &config));
        pmu.pebs_enable = 0;
        pmu.pebs_data_cfg = 15;
        g_assert_cmpint(pmu_load_state(&pmu, &config), ==,
                        parts[i].format == 4);
        pmu.pebs_data_cfg = 16;
        g_assert_false(pmu_load_state(&pmu, &config));
    }
    be_intel(0x6a);
    pmu = saved;
    config.perf_capabilities &= ~(uint64_t)PMU_CAP_PEBS;
    g_assert_false(pmu_load_state(&pmu, &config));
}

/* --- data ----------------------------------------------------------------- */

/* Loads by their source, and how records of each generation have that */
static const struct {
    PmuQuantity source;
    uint64_t nehalem, sandy_bridge, skylake, crestmont;
} sources[] = {
    { PMU_LOAD_L1, 1, 1, 1, 1 },
    { PMU_LOAD_L2, 3, 3, 3, 3 },
    { PMU_LOAD_L3, 4, 4, 4, 4 },
    { PMU_LOAD_REMOTE, 5, 6, 6, 6 },
    { PMU_LOAD_MODIFIED, 6, 7, 7, 8 },
    { PMU_LOAD_DRAM, 0xc, 0xc, 0xa, 0xa },
    { PMU_LOAD_OTHER, 0xf, 0xf, 0xf, 0xf },
};

#define ADDRESS     0x1234567890ull

/*
 * An instruction has the accesses of set_accesses(), and is the event @q of
 * counter @n, which PEBS_ENABLE has as @enable, in a new buffer.
 */
static void record_with(unsigned n, uint64_t event, uint64_t enable,
                        PmuQuantity q)
{
    bool adaptive = config.perf_capabilities & PMU_CAP_PEBS_BASELINE;

    set_area(BUFFER, 4000, 4000);
    wr(GLOBAL_CTRL, 0);
    if (adaptive) {
        wr(PEBS_DATA_CFG, 1);
    }
    wr(PERFEVTSEL(n), event | RUN | (adaptive ? ADAPTIVE : 0));
    wr(PMC(n), -1);
    wr(PEBS_ENABLE, enable);
    wr(GLOBAL_CTRL, 1u << n);
    for (int i = 0; i < 2; i++) {
        if (q != PMU_INSNS) {
            pmu_count(&pmu, RETIRE_USR, q, 1);
        }
        if (pmu_tags(&pmu, RETIRE_USR)) {
            pmu.tag_left = 0;
            pmu_tag(&pmu, RETIRE_USR, 100);
        }
        insn(PMU_INSNS);
    }
}

static void record_of(unsigned n, uint64_t event, uint64_t enable)
{
    record_with(n, event, enable, sample.access[0].load ?
                                  sample.access[0].source : PMU_STORES);
}

static void set_accesses(unsigned bits, PmuQuantity source)
{
    memset(sample.access, 0, sizeof(sample.access));
    sample.access[0] = (PebsAccess) {
        .addr = ADDRESS,
        .source = source,
        .latency = source == PMU_LOAD_L1 ? 0 : 123,
        .load = !(bits & 4),
        .store = bits & 4,
        .locked = bits & 1,
        .stlb_miss = bits & 2,
    };
    sample.access[1] = (PebsAccess) {
        .addr = 1, .source = PMU_LOAD_L1, .load = true, .store = true
    };
    sample.nr_accesses = 2;
}

static void check_data(unsigned part, uint64_t addr, uint64_t source,
                       uint64_t latency)
{
    uint64_t at = BUFFER + (parts[part].format < 4 ? 0x98 : 32);

    g_assert_cmpint(stored(), ==, parts[part].format < 4 ? parts[part].size :
                                  64);
    g_assert_cmphex(get(at), ==, addr);
    g_assert_cmphex(get(at + 8), ==, source);
    g_assert_cmphex(get(at + 16), ==, latency);
}

/* As records have it: Golden Cove and Crestmont have two. */
static uint64_t latency_of(unsigned part, PmuQuantity source)
{
    uint64_t latency = source == PMU_LOAD_L1 ? 4 : 123;

    return parts[part].model == 0x8f || parts[part].model == 0xaf ?
           latency << 32 | latency : latency;
}

static void test_sources(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(parts); i++) {
        if (!parts[i].latency) {
            continue;
        }
        for (unsigned n = 0; n < G_N_ELEMENTS(sources) * 4; n++) {
            PmuQuantity source = sources[n / 4].source;
            bool crestmont = parts[i].latency == LATENCY_CMT;
            unsigned bits = n & 3;
            unsigned c = parts[i].model == 0x8f || crestmont ? 1 : 3;
            bool nehalem = parts[i].latency == LATENCY_NHM;
            uint64_t code = nehalem ? sources[n / 4].nehalem :
                            crestmont ? sources[n / 4].crestmont :
                            parts[i].format < 3 ? sources[n / 4].sandy_bridge :
                            sources[n / 4].skylake;
            uint64_t enable = 1u << c | (parts[i].format < 4 ?
                                         1ull << (32 + c) : 0);
            uint64_t hit = source == PMU_LOAD_L1;

            code |= nehalem ? 0 :
                    (bits & 2) << (crestmont ? 5 : 3) | (bits & 1) << 5;
            be_intel(parts[i].model);
            set_accesses(bits, source);
            record_of(c, parts[i].latency, enable);
            check_data(i, ADDRESS, code, latency_of(i, source));

            if (crestmont) {
                set_accesses(bits | 4, source);
                record_of(7, 0x6d0, 0x80);
                check_data(i, ADDRESS, code, latency_of(i, source));
                continue;
            }
            /* Another event of loads */
            if (!nehalem) {
                record_of(0, 0x81d0, 1);
                check_data(i, parts[i].format >= 2 ? ADDRESS : 0,
                           parts[i].format >= 2 ? code : 0, 0);
            }
            /* Stores */
            code = hit | (bits & 2) << 3 | (bits & 1) << 5;
            set_accesses(bits | 4, source);
            if (parts[i].stores) {
                unsigned s = parts[i].format < 4 ? 3 : 0;

                record_of(s, STORE, 1u << s | (s ? STORES : 0));
                check_data(i, ADDRESS, s ? code : (bits & 2) << 3 |
                           (bits & 1) << 5 | sources[n / 4].skylake,
                           s ? 0 : latency_of(i, source));
            }
            if (!nehalem) {
                record_of(0, 0x82d0, 1);
                check_data(i, parts[i].format >= 2 ? ADDRESS : 0,
                           parts[i].format >= 2 ? code : 0, 0);
                /* The store of the other access, whose line is there */
                sample.access[0].store = false;
                record_of(0, 0x82d0, 1);
                check_data(i, parts[i].format >= 2, parts[i].format >= 2, 0);
                sample.access[0].store = true;
            }
            /* No event of memory */
            record_of(0, INSNS, 1);
            check_data(i, 0, 0, 0);
        }
    }
}

/* The access is one that counts. */
static void test_matches(void)
{
    static const struct {
        unsigned event;
        PebsAccess a;
        PmuQuantity q;
    } tests[] = {
        { 0x8d1, { .source = PMU_LOAD_L2, .load = true }, PMU_LOAD_L2 },
        { 0x1d1, { .source = PMU_LOAD_L1, .load = true }, PMU_LOAD_L1 },
        { 0x4d2, { .source = PMU_LOAD_MODIFIED, .load = true },
          PMU_LOAD_MODIFIED },
        { 0x21d0, { .source = PMU_LOAD_L3, .load = true, .store = true,
                    .locked = true }, PMU_LOCKED },
        { 0x41d0, { .source = PMU_LOAD_L3, .load = true, .split = true },
          PMU_SPLIT_LOADS },
        { 0x42d0, { .source = PMU_LOAD_L3, .store = true, .split = true },
          PMU_SPLIT_STORES },
        { 0x11d0, { .source = PMU_LOAD_L3, .load = true, .stlb_miss = true },
          PMU_STLB_MISS_LOADS },
        { 0x12d0, { .source = PMU_LOAD_L3, .store = true, .stlb_miss = true },
          PMU_STLB_MISS_STORES },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        be_intel(0x5e);
        set_accesses(i == 1 ? 4 : 0, PMU_LOAD_L1);
        sample.access[1] = tests[i].a;
        sample.access[1].addr = 7;
        set_area(BUFFER, 4000, 4000);
        start(tests[i].event, 1);
        insn(tests[i].q);
        insn(tests[i].q);
        g_assert_cmpint(stored(), ==, 200);
        g_assert_cmphex(get(BUFFER + 0x98), ==, 7);
    }
}

/*
 * Intel's lists of events (tools/perf/pmu-events/arch/x86 in Linux 6.12) say of
 * which there is a data address; that of UOPS_RETIRED.ALL is SDM table 18-45's.
 * Atoms have nothing else of the access (SDM 18.7.1.1).
 */
static void test_listed(void)
{
    enum {
        SLM = 1, KNL = 2, GLM = 4, TNT = 8, CMT = 16, BRIDGE = 32, HSW = 64,
        SKL = 128, ICL = 256, GLC = 512,
        ATOMS = GLM | TNT, BIG = HSW | SKL | ICL | GLC,
    };
    static const unsigned models[] = {
        0x37, 0x57, 0x5f, 0x86, 0xaf, 0x3a, 0x3f, 0x55, 0x6a, 0x8f,
    };
    static const struct {
        unsigned event;
        PmuQuantity q;
        unsigned listed, not;
    } tests[] = {
        { 0x81d0, PMU_LOAD_L3, ATOMS | CMT | BIG, BRIDGE },
        { 0x82d0, PMU_STORES, ATOMS | CMT | BIG, BRIDGE },
        { 0x83d0, PMU_STORES, ATOMS | (BIG & ~HSW), 0 },
        { 0x21d0, PMU_LOCKED, ATOMS | CMT | BIG, BRIDGE },
        { 0x41d0, PMU_SPLIT_LOADS, ATOMS | CMT | BIG, BRIDGE },
        { 0x42d0, PMU_SPLIT_STORES, ATOMS | CMT | BIG, BRIDGE },
        { 0x43d0, PMU_SPLIT_LOADS, ATOMS | CMT, 0 },
        { 0x43d0, PMU_SPLIT_STORES, ATOMS | CMT, 0 },
        { 0x11d0, PMU_STLB_MISS_LOADS, ATOMS | BIG, BRIDGE },
        { 0x12d0, PMU_STLB_MISS_STORES, ATOMS | BIG, BRIDGE },
        { 0x13d0, PMU_STLB_MISS_STORES, ATOMS, 0 },
        { 0x01d1, PMU_LOAD_L1, ATOMS | BIG, CMT | BRIDGE },
        { 0x02d1, PMU_LOAD_L2, ATOMS | BIG, CMT | BRIDGE },
        { 0x04d1, PMU_LOAD_L3, TNT | BIG, BRIDGE },
        { 0x08d1, PMU_LOAD_L3, ATOMS | BIG, BRIDGE },
        { 0x10d1, PMU_LOAD_DRAM, ATOMS | BIG, BRIDGE },
        { 0x20d1, PMU_LOAD_MODIFIED, ATOMS, 0 },
        { 0x20d1, PMU_LOAD_DRAM, BIG, BRIDGE },
        { 0x80d1, PMU_LOAD_DRAM, ATOMS, CMT },
        { 0x1cd1, PMU_LOAD_L3, 0, CMT },
        { 0x40d1, PMU_LOAD_L2, 0, CMT },
        { 0x04d2, PMU_LOAD_MODIFIED, BIG, BRIDGE },
        { 0x01d3, PMU_LOAD_DRAM, BIG, CMT },
        { 0x06d0, PMU_STORES, CMT, 0 },
        { 0x0204, PMU_LOAD_L2, KNL, SLM },
        { 0x0404, PMU_LOAD_DRAM, KNL, SLM },
        { 0x0804, PMU_STLB_MISS_LOADS, KNL, SLM },
        { 0x2004, PMU_LOAD_MODIFIED, KNL, SLM },
        { 0x4004, PMU_LOAD_L1, 0, KNL | SLM },
        { 0x01c2, PMU_INSNS, HSW, BRIDGE | SKL },
        { 0x01c2 | 1u << 23 | 16u << 24, PMU_INSNS, 0, HSW },
        { 0x02c2, PMU_INSNS, 0, BIG },
        { 0x00c0, PMU_INSNS, 0, ATOMS | BIG | CMT | KNL | SLM },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(tests) * 16; i++) {
        PmuQuantity q = tests[i / 16].q;
        unsigned bit = 1u << i % 16 &
                       (tests[i / 16].listed | tests[i / 16].not);
        bool store = q == PMU_STORES || q == PMU_SPLIT_STORES ||
                     q == PMU_STLB_MISS_STORES;
        unsigned part = 0;

        if (!bit) {
            continue;
        }
        be_intel(models[i % 16]);
        while (parts[part].format !=
               PMU_CAP_PEBS_FORMAT(config.perf_capabilities)) {
            part++;
        }
        set_accesses(store ? 4 : 0, q >= PMU_LOAD_L1 && q <= PMU_LOAD_OTHER ?
                                    q : PMU_LOAD_L3);
        sample.access[0].locked = q == PMU_LOCKED;
        sample.access[0].split = q == PMU_SPLIT_LOADS || q == PMU_SPLIT_STORES;
        sample.access[0].stlb_miss = q == PMU_STLB_MISS_LOADS ||
                                     q == PMU_STLB_MISS_STORES;
        sample.access[1] = (PebsAccess) { .addr = 1 };
        record_with(0, tests[i / 16].event, 1, q);
        g_assert_cmpint(stored(), ==, parts[part].format < 4 ?
                                      parts[part].size : 64);
        part = parts[part].format < 4 ? 0x98 : 32;
        g_assert_cmphex(get(BUFFER + part), ==,
                        bit & tests[i / 16].listed ? ADDRESS : 0);
        if (bit & (SLM | KNL | ATOMS | CMT) && tests[i / 16].event != 0x6d0) {
            g_assert_cmphex(get(BUFFER + part + 8), ==, 0);
            g_assert_cmphex(get(BUFFER + part + 16), ==, 0);
        }
    }
}

/* Where it counts, and with which bits of PEBS_ENABLE */
static void test_latency_counters(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(parts); i++) {
        for (unsigned n = 0; parts[i].enable & 0xff & 1u << n; n++) {
            uint64_t both = parts[i].format < 4 ? 1ull << (32 + n) : 0;

            for (int bits = 0; bits < 4 && parts[i].latency; bits++) {
                uint64_t enable = (bits & 1 ? 1u << n : 0) |
                                  (bits & 2 ? both : 0);
                bool counts = (bits & 1) && (bits & 2 || !both) &&
                              parts[i].counters >> n & 1;

                be_intel(parts[i].model);
                set_accesses(0, PMU_LOAD_L2);
                record_of(n, parts[i].latency, enable);
                g_assert_cmpint(pmu_tags(&pmu, RETIRE_USR), ==, counts);
                g_assert_cmpint(stored() != 0, ==, counts);
            }
            for (int bits = 0; bits < 4 && parts[i].stores; bits++) {
                uint64_t all = parts[i].format < 4 ? STORES : 0;
                uint64_t enable = (bits & 1 ? 1u << n : 0) |
                                  (bits & 2 ? all : 0);
                bool counts = (bits & 1) && (bits & 2 || !all) &&
                              parts[i].stores >> n & 1;

                be_intel(parts[i].model);
                set_accesses(4, PMU_LOAD_L2);
                record_of(n, STORE, enable);
                g_assert_cmpint(stored() != 0, ==, counts);
            }
        }
    }
    /* Bits of load latency are not those of fixed counters. */
    be_intel(0x5e);
    set_area(BUFFER, 4000, 4000);
    wr(FIXED_CTR_CTRL, 3);
    wr(FIXED_CTR(0), -1);
    wr(PEBS_ENABLE, FIXED_BIT(0));
    wr(GLOBAL_CTRL, FIXED_BIT(0));
    insn(PMU_INSNS);
    insn(PMU_INSNS);
    g_assert_cmphex(records, ==, 0);
    g_assert_cmphex(rd(FIXED_CTR(0)), ==, 1);
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, FIXED_BIT(0));
    /* CMASK is undefined: it does not count. */
    be_intel(0x5e);
    set_accesses(0, PMU_LOAD_L2);
    record_of(0, LATENCY | 1u << 24, 1ull << 32 | 1);
    g_assert_false(pmu_tags(&pmu, RETIRE_USR));
}

static void test_tags(void)
{
    uint32_t gaps[200], shortest = UINT32_MAX, longest = 0;

    for (int again = 0; again < 2; again++) {
        be_intel(0x5e);
        set_area(BUFFER, 4000, 4000);
        wr(LOAD_LATENCY, 30);
        g_assert_cmpint(pmu_tag_distance(&pmu, RETIRE_USR), ==, UINT32_MAX);
        start(LATENCY, 1000);
        wr(PEBS_ENABLE, 1ull << 32 | 1);
        g_assert_cmpint(pmu_tag_distance(&pmu, RETIRE_USR), ==, 0);
        for (unsigned i = 0; i < G_N_ELEMENTS(gaps); i++) {
            uint64_t before = rd(PMC(0));
            uint32_t latency = i % 3 ? 30 + i % 2 : 0;

            g_assert_cmpint(pmu_tag_distance(&pmu, RETIRE_USR), ==, 0);
            pmu_tag(&pmu, RETIRE_USR, latency);
            g_assert_cmpint(rd(PMC(0)) - before, ==, latency > 30);
            if (again) {
                g_assert_cmpint(pmu_tag_distance(&pmu, RETIRE_USR), ==,
                                gaps[i]);
            }
            gaps[i] = pmu_tag_distance(&pmu, RETIRE_USR);
            shortest = MIN(shortest, gaps[i]);
            longest = MAX(longest, gaps[i]);
            pmu_tag_pass(&pmu, RETIRE_OS, 1);
            g_assert_cmpint(pmu_tag_distance(&pmu, RETIRE_USR), ==,
                                gaps[i] - 1);
            /* Not while nobody wants tags */
            wr(GLOBAL_CTRL, 0);
            pmu_tag_pass(&pmu, RETIRE_USR, 100);
            wr(GLOBAL_CTRL, 1);
            pmu_tag_pass(&pmu, RETIRE_USR, gaps[i] - 1);
        }
    }
    g_assert_cmpint(shortest, >=, PMU_TAG_GAP_MIN);
    g_assert_cmpint(longest, <=, PMU_TAG_GAP_MAX);
    g_assert_cmpint(longest - shortest, >, 1800);
    /* What a stream must not have */
    be_intel(0x5e);
    g_assert_true(pmu_load_state(&pmu, &config));
    pmu.tag_left = PMU_TAG_GAP_MAX + 1;
    g_assert_false(pmu_load_state(&pmu, &config));
    be_intel(0x17);
    pmu.load_latency = 3;
    g_assert_false(pmu_load_state(&pmu, &config));
    be_intel(0x3c);
    pmu.frontend = 1;
    g_assert_false(pmu_load_state(&pmu, &config));
}

int main(int argc, char *argv[])
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/pebs/registers", test_registers);
    g_test_add_func("/pebs/fixed", test_fixed);
    g_test_add_func("/pebs/adaptive", test_adaptive);
    g_test_add_func("/pebs/arming", test_arming);
    g_test_add_func("/pebs/enable", test_enable);
    g_test_add_func("/pebs/threshold", test_threshold);
    g_test_add_func("/pebs/dropped", test_dropped);
    g_test_add_func("/pebs/several", test_several);
    g_test_add_func("/pebs/precise", test_precise);
    g_test_add_func("/pebs/load", test_load);
    g_test_add_func("/pebs/sources", test_sources);
    g_test_add_func("/pebs/order", test_order);
    g_test_add_func("/pebs/matches", test_matches);
    g_test_add_func("/pebs/listed", test_listed);
    g_test_add_func("/pebs/latency", test_latency_counters);
    g_test_add_func("/pebs/tags", test_tags);
    return g_test_run();
}
