/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzz target: any sequence of operations on any PMU.  It is done on two of
 * them, of which one looks for overflows only where it has to and the other one
 * after each instruction: they must always be the same.  The latter must count
 * and overflow as a model does that knows of the registers only what the
 * manuals say.  Each state must be one that migration would accept.
 *
 * With clang this is a libFuzzer target; otherwise main() makes the inputs.
 */

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "input.h"
#include "netburst.h"
#include "pmu.h"

#define REGISTERS   offsetof(PmuState, svme)

static PmuConfig config;
static bool amd, one_enable;    /* AMD's; EVTSEL0 enables all */
static bool old;                /* no PERFEVTSELs: the model knows no event */
static unsigned width;          /* of a counter */
static PmuState lazy, eager;
static uint32_t ref_fraction[RETIRE_NR_ROWS];
static uint64_t due;            /* the eager one has these records now */
static uint8_t storing;         /* what becomes of records */

static void same(uint64_t a, uint64_t b, const char *what)
{
    if (a != b) {
        fail(what);
    }
}

static const struct {
    PmuVendor vendor;
    unsigned family, model;
} cpus[] = {
    { PMU_VENDOR_INTEL, 6, 6 }, { PMU_VENDOR_INTEL, 6, 0x0e },
    { PMU_VENDOR_INTEL, 6, 0x17 }, { PMU_VENDOR_INTEL, 6, 0x3a },
    { PMU_VENDOR_INTEL, 6, 0x5e }, { PMU_VENDOR_INTEL, 6, 0x6a },
    { PMU_VENDOR_AMD, 15, 0x6b }, { PMU_VENDOR_AMD, 0x15, 2 },
    { PMU_VENDOR_AMD, 0x19, 0x11 }, { PMU_VENDOR_INTEL, 6, 0x8f },
    { PMU_VENDOR_INTEL, 6, 0x1c }, { PMU_VENDOR_INTEL, 6, 0x37 },
    { PMU_VENDOR_AMD, 0x17, 0x31 }, { PMU_VENDOR_INTEL, 5, 4 },
    { PMU_VENDOR_CYRIX, 6, 0 }, { PMU_VENDOR_CENTAUR, 5, 4 },
    { PMU_VENDOR_CENTAUR, 6, 7 }, { PMU_VENDOR_CENTAUR, 7, 0x3b },
    { PMU_VENDOR_INTEL, 15, 1 }, { PMU_VENDOR_INTEL, 15, 6 },
};

static const uint32_t msrs[] = {
    0x186, 0x187, 0x188, 0x189, 0x18d, 0xc1, 0xc2, 0xc3, 0xc8, 0x4c1, 0x4c2,
    0x309, 0x30a, 0x30b, 0x30c, 0x38d, 0x38e, 0x38f, 0x390, 0x391, 0x392,
    0x1d9, 0x345, 0x3f7, 0x600, 0xc0000300, 0xc0000301, 0xc0000302,
    0xc0010000, 0xc0010001, 0xc0010004, 0xc0010005, 0xc0010200, 0xc0010201,
    0xc0010208, 0xc0010209, 0xc0000303, 0x1a6, 0x1a7, 0xe7, 0xe8,
    0x11, 0x12, 0x13, 0x3f1, 0x3f2, 0x3f6,
};

#define MERGE       0xf000000ffull

/* Events of some PMU */
static const uint16_t events[] = {
    0x00c0, 0x003c, 0x013c, 0x00c4, 0x01c4, 0x20c4, 0x00c5, 0x01cb, 0x0076,
    0x00c2, 0x0079, 0x00cf, 0x412e, 0x00d0, 0x00a2, 0x04d2, 0x01b7, 0x01bb,
    0x012a, 0x00c1, 0x0010, 0x0f10, 0xf110, 0x0f03, 0xff03, 0x0702, 0x3fc7,
    0x0111, 0x0fca, 0x010c, 0x0305, 0x0e08, 0x0185, 0x0283,
    0x01cd, 0x100b, 0x02cd, 0x81d0,
};

/* Store what is due, as far as the engine is concerned; returns that. */
static uint64_t records(PmuState *s)
{
    uint64_t bits = pmu_pebs_due(s, &config);
    uint64_t reset = -(uint64_t)(storing >> 3);

    if (bits && !(storing & 1)) {
        pmu_pebs_forget(s, &config);
        bits = 0;
    }
    for (unsigned n = 0; n < PMU_NR_COUNTERS; n++) {
        if (bits & pmu_status_bit(n)) {
            pmu_pebs_done(s, &config, n, storing & 2 ? &reset : NULL,
                          storing & 4);
        }
    }
    return bits;
}

static void write_msr(uint8_t select, uint64_t val)
{
    uint32_t msr = msrs[select % (sizeof(msrs) / sizeof(msrs[0]))];
    PmuState before = lazy;
    PmuAccess access;
    uint64_t a = 0, b = 0;

    pmu_settle(&before, &config);
    access = pmu_wrmsr(&lazy, &config, msr, val);
    same(access, pmu_wrmsr(&eager, &config, msr, val), "WRMSR");
    pmu_sync(&lazy, &config);
    if (access != PMU_MSR_OK) {
        PmuState after = lazy;

        pmu_settle(&after, &config);
        if (memcmp(&before, &after, REGISTERS)) {
            fail("a WRMSR that failed");
        }
    }
    same(pmu_rdmsr(&lazy, &config, msr, &a),
         pmu_rdmsr(&eager, &config, msr, &b), "RDMSR");
    same(a, b, "what RDMSR shows");
}

/*
 * The model: how often each counter counts for one instruction, or interrupt,
 * of @row; a clock at a time, of which the last one has the event.
 */
typedef struct Happened {
    uint64_t quantities;    /* PMU_BIT()s */
    unsigned clocks, refclks;
} Happened;

#define BRANCHES    (PMU_BIT(PMU_FAR + 1) - PMU_BIT(PMU_COND_TAKEN))
#define ANY_CLOCK   PMU_BIT(PMU_CYCLES)
#define REF_CLOCK   PMU_BIT(PMU_REF_CYCLES)

/* The architectural events (SDM 18.2.1.2), and those of all AMD processors. */
static bool model_event(uint64_t sel, uint64_t *quantities)
{
    static const struct {
        uint16_t intel, amd;
        uint64_t quantities;
    } events[] = {
        { 0x003c, 0x76, ANY_CLOCK }, { 0x013c, 0xffff, REF_CLOCK },
        { 0x00c0, 0xc0, PMU_BIT(PMU_INSNS) }, { 0x00c4, 0xc2, BRANCHES },
        { 0x00c5, 0xc3, PMU_MISPREDICTED },
    };

    for (unsigned i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        if (amd ? (sel & 0xf000000ffull) == events[i].amd :
            (sel & 0xffff) == events[i].intel) {
            *quantities = events[i].quantities;
            return true;
        }
    }
    return false;
}

/* How many counts counter @n takes; -1 if the model does not know its event. */
static int model_counts(const PmuState *s, unsigned n, RetireRow row,
                        const Happened *h)
{
    bool global = config.version >= 2 || config.perfmon_v2;
    bool fixed = n >= PMU_MAX_GP;
    unsigned bit = fixed ? 32 + n - PMU_MAX_GP : n, cmask, times = 0;
    uint64_t sel;
    uint64_t quantities;
    unsigned mode;

    if (fixed ? n - PMU_MAX_GP >= config.fixed : n >= config.counters) {
        return 0;
    }
    /* Zen's odd counters can be the upper bits of those before them. */
    if (amd && !fixed && (n | 1) < config.counters &&
        (s->evtsel[n | 1] & MERGE) == MERGE) {
        return -1;
    }
    if (old) {
        return -1;
    }
    if ((global && !(s->global_ctrl >> bit & 1)) ||
        s->global_status >> 59 & 1) {
        return 0;
    }
    if (fixed) {
        static const uint64_t of_fixed[] = {
            PMU_BIT(PMU_INSNS), ANY_CLOCK, REF_CLOCK,
        };

        if (!(s->fixed_ctr_ctrl >> 4 * (n - PMU_MAX_GP) & (1u << row))) {
            return 0;
        }
        quantities = of_fixed[n - PMU_MAX_GP];
        sel = 0;
    } else {
        bool p6 = config.version == 0 && !amd;

        sel = s->evtsel[n];
        mode = sel >> 40 & 3;       /* HG_ONLY; reserved but on AMD */
        if (!(s->evtsel[one_enable ? 0 : n] >> 22 & 1) ||
            !(sel >> (row == RETIRE_OS ? 17 : 16) & 1) ||
            (mode && (!s->svme || !(mode >> !s->guest & 1)))) {
            return 0;
        }
        if (sel >> 18 & 1 || !model_event(sel, &quantities) ||
            (p6 && quantities & (ANY_CLOCK | REF_CLOCK))) {
            return -1;
        }
    }
    cmask = sel >> 24 & 255;
    if (quantities == REF_CLOCK) {
        return cmask ? -1 : (int)h->refclks;
    }
    for (unsigned clock = 0; clock < h->clocks; clock++) {
        unsigned events = quantities == ANY_CLOCK ||
            (clock == h->clocks - 1 && h->quantities & quantities);

        times += !cmask ? events : (events >= cmask) != (sel >> 23 & 1);
    }
    return times;
}

/* Do @h to @s and to the model; returns whether there is a PMI. */
static bool model_settle(PmuState *s, RetireRow row, const Happened *h)
{
    PmuState before = *s;
    uint64_t overflows = 0, unknown = 0;
    bool pmi = false, pmi_unknown = false, got;

    due = 0;
    for (PmuQuantity q = 0; q < PMU_NR_COUNTED; q++) {
        if (h->quantities >> q & 1) {
            pmu_count(s, row, q, 1);
        }
    }
    if (before.pebs_enable) {
        due = records(s);
        return pmu_settle(s, &config);
    }
    got = pmu_settle(s, &config);
    for (unsigned n = 0; n < PMU_NR_COUNTERS; n++) {
        bool fixed = n >= PMU_MAX_GP;
        unsigned bit = fixed ? 32 + n - PMU_MAX_GP : n;
        int counts = model_counts(&before, n, row, h);
        bool interrupts = fixed ?
            before.fixed_ctr_ctrl >> 4 * (n - PMU_MAX_GP) >> 3 & 1 :
            before.evtsel[n] >> 20 & 1;
        uint64_t val = before.value[n] + counts;

        if (counts < 0) {
            unknown |= 1ull << bit;
            pmi_unknown |= interrupts;
            continue;
        }
        if (val >> width) {
            overflows |= 1ull << bit;
            pmi |= interrupts;
            val &= (1ull << width) - 1;
        }
        same(s->value[n], val, "a counter");
    }
    if (config.version >= 2 || config.perfmon_v2) {
        const uint64_t counters = 7ull << 32 | 0xff;

        same((s->global_status ^ (before.global_status | overflows)) &
             counters & ~unknown, 0, "an overflow bit");
    }
    if (!pmi_unknown) {
        same(got, pmi, "a PMI");
    }
    return got;
}

/* Count for both; returns whether there is a PMI. */
static bool count(RetireRow row, uint64_t quantities)
{
    Happened h = { .quantities = quantities };

    if (quantities & PMU_BIT(PMU_INSNS)) {
        h.clocks = config.insn_clocks;
        ref_fraction[row] += h.clocks * config.refclk_ratio;
        h.refclks = ref_fraction[row] / PMU_REFCLK_UNIT;
        ref_fraction[row] %= PMU_REFCLK_UNIT;
    }
    for (PmuQuantity q = 0; q < PMU_NR_COUNTED; q++) {
        if (quantities >> q & 1) {
            pmu_count(&lazy, row, q, 1);
        }
    }
    return model_settle(&eager, row, &h);
}

/* The lazy one has the records and the @pmi of the eager one. */
static void sync_lazy(bool pmi, const char *what)
{
    if (lazy.pebs_enable) {
        same(records(&lazy), due, "records");
    }
    same(pmu_sync(&lazy, &config), pmi, what);
}

/* So many instructions of a kind, as far as nothing can happen in between. */
static void run(RetireRow row, PmuQuantity kind, uint32_t n, uint8_t how)
{
    static const PmuQuantity mispredicted[PMU_NR_COUNTED] = {
        [PMU_MISP_COND_TAKEN] = PMU_COND_TAKEN,
        [PMU_MISP_COND_NOT_TAKEN] = PMU_COND_NOT_TAKEN,
        [PMU_MISP_JMP_IND] = PMU_JMP_IND,
        [PMU_MISP_JMP] = PMU_JMP,
        [PMU_MISP_CALL_IND] = PMU_CALL_IND,
        [PMU_MISP_CALL] = PMU_CALL,
        [PMU_MISP_RET] = PMU_RET,
    };
    uint64_t quantities = PMU_BIT(PMU_INSNS) | PMU_BIT(mispredicted[kind]) |
                          (kind == PMU_INTERRUPTS ? 0 : PMU_BIT(kind));
    uint32_t distance, branches;
    bool pmi = false;

    if (how & 1) {
        distance = pmu_distances(&lazy, &config, row, &branches);
        if (kind != PMU_INSNS && branches < distance) {
            distance = branches;
        }
    } else {
        distance = pmu_distance(&lazy, &config, row);
    }
    n = (n < distance ? n : distance) + (how >> 1 & 1);
    due = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (pmi || due) {
            fail("an overflow within the distance");
        }
        pmi = count(row, quantities);
    }
    sync_lazy(pmi, "PMI");
}

static void interrupt(RetireRow row)
{
    bool pmi = count(row, PMU_BIT(PMU_INTERRUPTS));

    sync_lazy(pmi, "PMI of an interrupt");
}

/* An instruction of one kind of them, which the model does not know */
static void floating(RetireRow row, uint8_t kind)
{
    uint64_t n[RETIRE_NR_FP] = { 0 };
    bool pmi;

    n[kind % RETIRE_NR_FP] = 1;
    pmu_count_fp(&lazy, &config, row, n);
    pmu_count_fp(&eager, &config, row, n);
    pmi = count(row, PMU_BIT(PMU_INSNS));
    sync_lazy(pmi, "PMI of a floating-point instruction");
}

static void check(void)
{
    PmuState copy = lazy;

    if (pmu_settle(&copy, &config)) {
        fail("a PMI that has been missed");
    }
    if (memcmp(&copy, &eager, REGISTERS)) {
        fail("two states that differ");
    }
    if (!pmu_load_state(&copy, &config)) {
        fail("a state that migration refuses");
    }
    for (int row = 0; row < RETIRE_NR_ROWS; row++) {
        same(pmu_wanted(&copy, row), pmu_wanted(&lazy, row), "wanted");
    }
}

/* Whatever a stream may have in it */
static void load_state(void)
{
    PmuState copy = eager;
    size_t at = take(1) * 8 % (REGISTERS / 8 * 8);
    uint64_t val = take(8);

    memcpy((uint8_t *)&copy + at, &val, 8);
    /* No stream has anything else for a bool. */
    *(uint8_t *)&copy.smm_frozen &= 1;
    *(uint8_t *)&copy.clocks &= 1;
    if (pmu_load_state(&copy, &config)) {
        lazy = eager = copy;
        memcpy(ref_fraction, copy.ref_fraction, sizeof(ref_fraction));
    }
}

/* What people are told of the counters */
static void check_settings(void)
{
    unsigned next = eager.value[0] % 1024, next_linux = next % 128;
    PmuSetting setting;
    PmuEvent event;
    uint64_t select;

    pmu_next_event(&config, &next, &event);
    pmu_next_linux_event(&config, &next_linux, &select);

    for (unsigned n = 0; n < PMU_NR_COUNTERS; n++) {
        bool there = pmu_setting(&eager, &config, n, &setting);

        same(there, n < PMU_MAX_GP ?
                    n < config.counters && (n || !pmu_has_tsc(&config)) :
                    n - PMU_MAX_GP < config.fixed, "a counter's existence");
        if (eager.counter[n].rows &&
            !(there && setting.enabled &&
              setting.os == (eager.counter[n].rows >> RETIRE_OS & 1) &&
              setting.usr == (eager.counter[n].rows >> RETIRE_USR & 1))) {
            fail("a counter that runs is not enabled");
        }
    }
}

static void check_cpuid(void)
{
    uint32_t regs[4];

    pmu_cpuid_0a(&config, regs);
    same(regs[0] & 255, config.version, "the version");
    same(regs[0] >> 8 & 255, config.version ? config.counters : 0,
         "the number of counters");
    same(regs[3] & 31, config.fixed, "the number of fixed counters");
    pmu_cpuid_80000022(&config, regs);
    same(regs[1], config.perfmon_v2 ? config.counters : 0,
         "the number of counters of PerfMonV2");
    same(pmu_misc_enable(&config) != 0, pmu_masks_lvtpc(&config),
         "IA32_MISC_ENABLE");
}

static void environment(uint8_t how)
{
    switch (how & 3) {
    case 0:
        pmu_set_svm(&lazy, &config, how & 4, how & 8);
        pmu_set_svm(&eager, &config, how & 4, how & 8);
        break;
    case 1:
        pmu_smi(&lazy, &config);
        pmu_smi(&eager, &config);
        break;
    case 2:
        pmu_rsm(&lazy, &config);
        pmu_rsm(&eager, &config);
        break;
    case 3:
        pmu_reset(&lazy, &config);
        pmu_reset(&eager, &config);
        memset(ref_fraction, 0, sizeof(ref_fraction));
        break;
    }
}

static void step(uint8_t op, uint8_t how)
{
    RetireRow row = how >> 7;
    uint64_t a = 0, b = 0;
    uint32_t ecx, unknown[2];

    switch (op % 16) {
    case 0:
        write_msr(how, take(8));
        break;
    case 1:
    case 2:
        /* An event, enabled, on one of the first counters */
        a = events[take(1) % (sizeof(events) / sizeof(events[0]))];
        b = take(2);
        write_msr(how & 3, a | 3u << 16 | 1u << 22 | (b & 0x3f9fu) << 16);
        write_msr(28 + (how & 1),
                  a | 3u << 16 | 1u << 22 | (b & 0x3f9fu) << 16);
        break;
    case 3:
        /* Near an overflow */
        write_msr(5 + (how & 3), -take(1));
        write_msr(11 + (how & 1), -take(1));
        write_msr(30 + (how & 1), -take(1));
        break;
    case 4:
        write_msr(15, take(2));         /* FIXED_CTR_CTRL */
        write_msr(17, 0x70000000full);  /* GLOBAL_CTRL */
        write_msr(26, 0x3f);
        write_msr(18, ~0ull >> 6);      /* STATUS_RESET */
        break;
    case 5:
    case 6:
        run(row, (how >> 2) % PMU_NR_COUNTED, take(1) % 64, how);
        break;
    case 7:
        interrupt(row);
        break;
    case 8:
        ecx = take(1) | take(1) << 24;
        if (how & 1) {
            ecx = 0x40000000 | (ecx & 3);
        }
        same(pmu_rdpmc(&lazy, &config, ecx, &a),
             pmu_rdpmc(&eager, &config, ecx, &b), "RDPMC");
        same(a, b, "what RDPMC shows");
        break;
    case 9:
        environment(how);
        break;
    case 10:
        load_state();
        break;
    case 11:
        check_settings();
        break;
    case 12:
        same(pmu_take_unknown(&lazy, &unknown[0]),
             pmu_take_unknown(&eager, &unknown[1]), "an unknown event");
        same(unknown[0], unknown[1], "what event it is");
        break;
    case 13:
        /* A mask of offcore responses */
        a = 1 | take(2) << 8;
        write_msr(37 + (how & 1), a | take(2) << 24);
        break;
    case 14:
        floating(row, how);
        break;
    case 15:
        if (config.perf_capabilities & PMU_CAP_PEBS_TRAP) {
            storing = how;
            write_msr(44, take(1));         /* PEBS_ENABLE */
        } else {
            write_msr(29, MERGE | 1u << 22);
        }
        break;
    }
}

static bool is_one_of(const char *name, const char *a, const char *b,
                      const char *c)
{
    return !strcmp(name, a) || !strcmp(name, b) || !strcmp(name, c);
}

/* A processor, and what of it CPU properties may change */
static bool take_config(void)
{
    unsigned cpu = take(1) % (sizeof(cpus) / sizeof(cpus[0]) + 1);
    unsigned how = take(1);
    uint32_t version = 0, counters = 0;
    const PmuFlavour *flavour;
    const char *name;
    PmuVendor vendor;
    PmuRange bad;

    if (cpu < sizeof(cpus) / sizeof(cpus[0])) {
        vendor = cpus[cpu].vendor;
        flavour = pmu_flavour(vendor, cpus[cpu].family, cpus[cpu].model);
    } else {
        unsigned family;

        vendor = take(1) % (PMU_VENDOR_AMD + 1);
        family = take(1);

        flavour = pmu_flavour(vendor, family, take(1));
    }
    if (!flavour) {
        return false;
    }
    name = pmu_flavour_name(flavour);
    amd = vendor == PMU_VENDOR_AMD;
    old = !strcmp(name, "P5") ||
          (vendor > PMU_VENDOR_AMD && strcmp(name, "Zhaoxin"));
    one_enable = is_one_of(name, "P6", "Pentium M", "Core Duo");
    width = one_enable || is_one_of(name, "Core 2", "Bonnell", "Silvermont") ||
            !strcmp(name, "Knights Landing") ?
            40 : 48;
    pmu_config_init(&config, flavour);
    config.insn_clocks = 1 + how % 4;
    config.refclk_ratio = 1 + take(2) % 10000;
    config.pdcm &= !(how & 4);
    if (amd) {
        config.perfctr_core &= !(how & 8);
        config.perfmon_v2 &= !(how & 16);
        config.lbr_v2 = config.perfmon_v2 && (how & 64);
    }
    if (how & 32) {
        version = take(1);
        counters = take(1);
    }
    if (!pmu_configure(&config, version, counters, &bad)) {
        if (!bad.value || (bad.value >= bad.min && bad.value <= bad.max)) {
            fail("a value that is in range");
        }
        return false;
    }
    if (how & 64) {
        config.perf_capabilities = 0;
    }
    check_cpuid();
    return true;
}

/*
 * Pentium 4: the registers are not in PmuState, so the lazy and the eager one
 * have a PmuConfig each; the model does not know them.
 */
typedef struct P4 {
    PmuState state;
    PmuConfig config;
    NetburstState regs;
} P4;

static P4 p4[2];                /* the lazy one is first */

static void p4_write(uint32_t msr, uint64_t val)
{
    PmuAccess access = pmu_wrmsr(&p4[0].state, &p4[0].config, msr, val);
    uint64_t a = 0, b = 0;

    same(access, pmu_wrmsr(&p4[1].state, &p4[1].config, msr, val), "WRMSR");
    same(pmu_sync(&p4[0].state, &p4[0].config),
         pmu_settle(&p4[1].state, &p4[1].config), "PMI of WRMSR");
    same(pmu_rdmsr(&p4[0].state, &p4[0].config, msr, &a),
         pmu_rdmsr(&p4[1].state, &p4[1].config, msr, &b), "RDMSR");
    same(a, b, "what RDMSR shows");
}

static void p4_run(RetireRow row, PmuQuantity kind, uint32_t n)
{
    uint32_t distance = pmu_distance(&p4[0].state, &p4[0].config, row);
    bool pmi = false;

    n = n < distance ? n : distance + 1;
    for (uint32_t i = 0; i < n; i++) {
        if (pmi) {
            fail("an overflow within the distance");
        }
        for (int j = 0; j < 2; j++) {
            pmu_count(&p4[j].state, row, PMU_INSNS, 1);
            if (kind != PMU_INSNS && kind != PMU_INTERRUPTS) {
                pmu_count(&p4[j].state, row, kind, 1);
            }
        }
        pmi = pmu_settle(&p4[1].state, &p4[1].config);
    }
    same(pmu_sync(&p4[0].state, &p4[0].config), pmi, "PMI");
    same(pmu_asks(&p4[0].config), pmu_asks(&p4[1].config), "OVF");
}

static void p4_check(void)
{
    static P4 copy;

    copy = p4[0];
    copy.config.netburst = &copy.regs;
    if (pmu_settle(&copy.state, &copy.config)) {
        fail("a PMI that has been missed");
    }
    if (memcmp(&copy.regs, &p4[1].regs, offsetof(NetburstState, counter))) {
        fail("two states that differ");
    }
    if (!pmu_load_state(&copy.state, &copy.config)) {
        fail("a state that migration refuses");
    }
}

/* Whatever a stream may have in its registers */
static void p4_load(void)
{
    static P4 copy;
    size_t at = take(1) * 4 % offsetof(NetburstState, counter);
    uint32_t val = take(4);

    copy = p4[1];
    copy.config.netburst = &copy.regs;
    memcpy((uint8_t *)&copy.regs + at, &val, 4);
    if (pmu_load_state(&copy.state, &copy.config)) {
        p4[0] = p4[1] = copy;
    }
    p4[0].config.netburst = &p4[0].regs;
    p4[1].config.netburst = &p4[1].regs;
}

/* Events that have a name, in all registers that select one, for counter @n */
static void p4_select(uint8_t which, unsigned n, uint8_t escr)
{
    unsigned next = which % 64;
    PmuEvent event;

    if (!netburst_next_event(0, &next, &event)) {
        return;
    }
    for (uint32_t msr = 0x3a0; msr < 0x3e2; msr++) {
        p4_write(msr, (uint64_t)event.event << 25 | event.umask << 9 | 0xc);
    }
    p4_write(0x360 + n, (escr & 7) << 13 | 3u << 16 | 1u << 12);
    p4_write(0x300 + n, -take(1));
}

static void p4_step(uint8_t op, uint8_t how)
{
    uint32_t ecx = how | (uint32_t)how << 24;
    PmuSetting setting;
    uint64_t a = 0, b = 0;

    switch (op % 8) {
    case 0:
        p4_write(0x300 + take(1), take(8));
        break;
    case 1:
        /* Replay tags, and uops that have them */
        p4_write(0x3f1, (uint64_t)take(4) & 0x3000fff);
        p4_write(0x3f2, take(1) & 3);
        break;
    case 2:
        /* A counter that is enabled */
        p4_write(0x3a0 + take(1) % 66,
                 (uint64_t)take(1) << 25 | take(2) << 9 | 0xc);
        p4_write(0x360 + how % 18, take(4) | 3u << 16 | 1u << 12);
        p4_write(0x300 + how % 18, -take(1));
        break;
    case 3:
    case 4:
    case 5:
        p4_run(how >> 7, (how & 0x7f) % PMU_NR_COUNTED, take(1) % 64);
        break;
    case 6:
        same(pmu_rdpmc(&p4[0].state, &p4[0].config, ecx, &a),
             pmu_rdpmc(&p4[1].state, &p4[1].config, ecx, &b), "RDPMC");
        same(a, b, "what RDPMC shows");
        same(pmu_setting(&p4[1].state, &p4[1].config, how, &setting), how < 18,
             "a counter's existence");
        break;
    case 7:
        if (how & 0x80) {
            p4_select(take(1), how % 18, take(1));
        } else {
            p4_load();
        }
        break;
    }
}

static void p4_steps(void)
{
    for (int i = 0; i < 2; i++) {
        memset(&p4[i], 0, sizeof(p4[i]));
        p4[i].config = config;
        p4[i].config.netburst = &p4[i].regs;
        pmu_reset(&p4[i].state, &p4[i].config);
    }
    while (input < input_end) {
        uint8_t op = take(1);

        p4_step(op, take(1));
        p4_check();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input = data;
    input_end = data + size;
    memset(ref_fraction, 0, sizeof(ref_fraction));
    if (!take_config()) {
        return 0;
    }
    if (pmu_is_netburst(config.flavour)) {
        p4_steps();
        return 0;
    }
    memset(&lazy, 0, sizeof(lazy));
    pmu_reset(&lazy, &config);
    eager = lazy;
    while (input < input_end) {
        uint8_t op = take(1);

        step(op, take(1));
        check();
    }
    return 0;
}
