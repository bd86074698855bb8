/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * DCache Miss events (§2.4) and the prediction of branches (§2.3), where
 * caches are physical, some memory is a device and a kernel is in between.
 *
 * The output is the same with -icount shift=0 and with one-insn-per-tb=on.
 */

/* What it expects of the predictor has been learnt from LWP alone. */
#define COUNT_NO_MISPREDICTIONS
#include "lwp-kernel.h"

enum { IRE = 2, BRE = 3, DME = 4, CNH = 5, RNH = 6 };

#define FLAG(event)     (1u << (event))
#define MANY            30000000        /* more than any test counts */

#define PRV             (1u << 13)      /* Figure 2-4; of LwpRecord.flags */
#define PRD             (1u << 14)
#define TKN             (1u << 15)
#define DAV             (1u << 12)      /* Figure 2-5 */
#define SRC(source)     ((source) << 13)


/* The caches of this CPU, which are the defaults */
#define LINE            64
#define L1_SETS         64
#define L1_WAYS         4
#define L2_WAYS         16
#define L3_WAYS         64
#define FAR             (128 * 1024)    /* between lines of the same set */

/* Sources of data (Figure 2-5), their latencies */
enum { L2 = 0, L3 = 1, DRAM = 3, OTHER = 7, HIT };
static const unsigned clocks[] = {
    [L2] = 20, [L3] = 60, [DRAM] = 200, [OTHER] = 400, [HIT] = 0
};

/* Code for CPL 3, as in lwp-retire.c */
#define CODE(name, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm(insns "\n int $32"); \
    }

#define AT(code, offset) ((uintptr_t)(code) + (offset))

static LwpRecord records[8192] __attribute__((aligned(PAGE)));
static XsaveArea area;
static uint32_t checksum;

/* What the records should be, and the counter of their event. */
static struct {
    LwpRecord record[8192];
    int n, left;
    unsigned clocks;            /* that all misses take */
} expected;

static void expect(int event, unsigned flags, uint32_t data1, uint64_t ip,
                   uint64_t data2)
{
    expected.record[expected.n++ % ARRAY_SIZE(expected.record)] = (LwpRecord) {
        .event = event, .flags = flags, .data1 = data1, .ip = ip,
        .data2 = data2,
    };
}

static void expect_nothing(void)
{
    expected.n = expected.clocks = 0;
}

/* All events are expected: leave those that a counter makes records. */
static void sample(int counter, int interval)
{
    int n = 0, next = counter;

    for (; next < expected.n; next += interval + 1) {
        expected.record[n++] = expected.record[next];
    }
    expected.left = next - expected.n;
    expected.n = n;
}

static void save(void)
{
    memset(&area, 0, sizeof(area));
    xsave(&area, LWP_XSTATE);
}

/* A counter in @area; it has 26 bits (Table 6-1). */
static int32_t left(int event)
{
    return (int32_t)((uint32_t)area.lwp.counter[event - 1] << 6) >> 6;
}

static int32_t counted(int event)
{
    save();
    return MANY - left(event);
}

static void add_to_checksum(uint32_t val)
{
    checksum = (checksum ^ val) * 16777619u;
}

/* IRE is there to disturb. */
static bool matches(const LwpRecord *r, int event)
{
    const LwpRecord *end;
    bool ok = true;
    int n = 0;

    if (cb->flags & FLAG(IRE)) {
        /* It may still be gathered only when the kernel is entered. */
        slwpcb();
    }
    save();
    for (end = r + area.lwp.head / 32; r < end; r++) {
        if (r->event != IRE) {
            ok = ok && n < expected.n && same(r, &expected.record[n], 32);
            n++;
        }
        add_to_checksum(r->event | r->flags << 16);
        add_to_checksum(r->data1);
        add_to_checksum(r->ip);
        add_to_checksum(r->data2);
    }
    add_to_checksum(left(event));
    return ok && n == expected.n && left(event) == expected.left &&
           !cb->missed;
}

/* Prepare @cb for @flags; @event has @interval, others count only. */
static void prepare_event(uint32_t flags, uint32_t filters, int event,
                          int interval)
{
    wrmsr(MSR_LWP_CBADDR, 0);
    for (int i = 0; i < WINDOW_PAGES; i++) {
        set_pte(i, PTE_ALL);
    }
    memset(records, 0, cb->head);
    lwp_init(cb, records, sizeof(records), flags);
    cb->filters = filters;
    for (int i = IRE; i <= RNH; i++) {
        cb->event[i - 1].interval = i == event ? interval : MANY;
        cb->event[i - 1].counter = cb->event[i - 1].interval;
    }
}

static void begin(uint32_t flags, uint32_t filters, int event, int interval)
{
    prepare_event(flags, filters, event, interval);
    llwpcb(user_cb);
}

/* Only one DCache miss is recorded: the next one, if @due. */
static void begin_once(uint32_t flags, bool due)
{
    prepare_event(flags, 0, DME, MANY);
    cb->event[DME - 1].counter = due ? 0 : MANY;
    llwpcb(user_cb);
}

static void enter(void (*code)(void), uint64_t rdi, uint64_t rsi, uint64_t rcx)
{
    set_up(USER_CODE64, (uintptr_t)code);
    regs.rdi = rdi;
    regs.rsi = rsi;
    regs.rcx = rcx;
}

/* Run to the end as a system would; the number of #PFs, -1 for others. */
static int run_mended(void)
{
    for (int n = 0; n < 100; n++) {
        switch (run()) {
        case PF:
            window_table[(fault_address - WINDOW) / PAGE] |= PTE_ALL;
            break;
        case EXIT:
            return n;
        default:
            return -1;
        }
    }
    return -1;
}

/* Memory that no program has accessed yet, in pages */
#define COLD            0x1000000ul
#define COLD_END        0x7000000ul

static uint64_t cold(uint64_t size)
{
    static uint64_t next = COLD;

    next += size;
    if (next > COLD_END) {
        ml_printf("FAIL: out of memory\n");
    }
    return next - size;
}

static void map_to(int page, uint64_t physical, unsigned bits)
{
    window_table[page] = physical | bits;
    asm volatile("invlpg %0" : : "m" (*(char *)(WINDOW + page * PAGE))
                 : "memory");
}

static uint64_t physical(uint64_t addr)
{
    if (addr - WINDOW < WINDOW_PAGES * PAGE) {
        return (window_table[(addr - WINDOW) / PAGE] & -PAGE) | addr % PAGE;
    }
    return addr;
}

/*
 * Where the caches should have a line, as long as nothing leaves L2: which
 * four lines of a set L1D has, the last one first, and what has been accessed.
 */
static struct {
    uint64_t l1[L1_SETS][L1_WAYS];
    uint8_t l2[(COLD_END - COLD) / LINE];
} model;

static int model_access(uint64_t addr)
{
    uint64_t line = physical(addr) / LINE;
    uint64_t *set = model.l1[line % L1_SETS];
    int way = 0, source = HIT;

    while (set[way] != line && ++way < L1_WAYS) {
        continue;
    }
    if (way == L1_WAYS) {
        uint8_t *l2 = &model.l2[line - COLD / LINE];

        source = *l2 ? L2 : DRAM;
        *l2 = 1;
        way--;
    }
    for (; way; way--) {
        set[way] = set[way - 1];
    }
    set[0] = line;
    return source;
}

static void expect_miss(int source, uint64_t ip, uint64_t addr)
{
    uint32_t ecx = cpuid_reg(0x8000001c, 0, 2);
    unsigned unit = 1u << (ecx >> 6 & 7);       /* LwpLatencyRnd */

    expect(DME, SRC(source) | DAV, clocks[source] & -unit, ip, addr);
    expected.clocks += clocks[source];
}

/* A misaligned load counts once, for the lowest address that missed (§2.4). */
static void model_load(uint64_t ip, uint64_t addr, unsigned size)
{
    uint64_t second = (addr + size - 1) & -LINE;
    int source = model_access(addr), source2 = HIT;

    if (second > addr) {
        source2 = model_access(second);
    }
    if (source != HIT) {
        expect_miss(source, ip, addr);
        expected.clocks += clocks[source2];
    } else if (source2 != HIT) {
        expect_miss(source2, ip, second);
    }
}

CODE(code_walk, "1: mov (%rdi), %eax\n add %rsi, %rdi\n dec %ecx\n jnz 1b")
static const uint8_t walk_insns[] = { 0, 2, 5, 7 };

static void model_walk(uint64_t addr, uint64_t stride, int n)
{
    for (; n; n--, addr += stride) {
        model_load((uintptr_t)code_walk, addr, 4);
    }
}

static bool walk(uint64_t addr, uint64_t stride, int n)
{
    enter(code_walk, addr, stride, n);
    return run() == EXIT;
}

static void test_walks(void)
{
    static const struct {
        uint16_t stride, n;
    } t[] = {
        { 1, 500 }, { 4, 500 }, { 24, 500 }, { 60, 400 }, { 63, 300 },
        { 64, 256 }, { 64, 257 }, { 64, 512 }, { 65, 512 }, { 128, 200 },
        { 256, 64 }, { 256, 65 }, { 4096, 4 }, { 4096, 5 }, { 4095, 9 },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        uint64_t addr = cold(t[i].n * t[i].stride / PAGE * PAGE + 2 * PAGE);
        bool ok = true;
        int n[3];

        for (int k = 0; k < 3; k++) {
            expect_nothing();
            model_walk(addr, t[i].stride, t[i].n);
            n[k] = expected.n;
            sample(0, 0);
            begin(FLAG(DME), 0, DME, 0);
            ok &= walk(addr, t[i].stride, t[i].n) && matches(records, DME);
        }
        report(ok, "%d loads, stride %d: %d, %d and %d misses", t[i].n,
               t[i].stride, n[0], n[1], n[2]);
    }
    for (int interval = 1; interval < 200; interval += 1 + interval / 4) {
        uint64_t addr = cold(12 * PAGE);
        bool ok = true;

        for (int k = 0; k < 4; k++) {
            expect_nothing();
            model_walk(addr, 24, 2000);
            sample(interval, interval);
            begin(FLAG(DME) | (k & 1) * FLAG(IRE), 0, DME, interval);
            cb->event[IRE - 1].interval = 10;
            ok &= walk(addr, 24, 2000) && matches(records, DME);
        }
        report(ok, "interval %d samples every miss number %d", interval,
               interval + 1);
    }
}

/* In one set of each cache, where @n lines are walked in a circle */
static uint64_t new_set(void)
{
    static uint64_t set;

    if (!set) {
        set = cold(100 * FAR);
    }
    set += LINE;
    return set;
}

static void test_levels(void)
{
    static const struct {
        const char *name;
        int n, source;
    } t[] = {
        { "L1D", L1_WAYS, HIT }, { "L2", L1_WAYS + 1, L2 },
        { "L2", L2_WAYS, L2 }, { "L3", L2_WAYS + 1, L3 },
        { "L3", L2_WAYS + L3_WAYS, L3 },
        { "DRAM", L2_WAYS + L3_WAYS + 1, DRAM },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        uint64_t addr = new_set();
        int source = DRAM;
        bool ok = true;

        for (int k = 0; k < 3; k++, source = t[i].source) {
            expect_nothing();
            for (int n = 0; n < t[i].n && source != HIT; n++) {
                expect_miss(source, (uintptr_t)code_walk, addr + n * FAR);
            }
            sample(0, 0);
            begin(FLAG(DME) | FLAG(CNH) | FLAG(RNH), 0, DME, 0);
            ok &= walk(addr, FAR, t[i].n) && matches(records, DME) &&
                  counted(CNH) == 4 * t[i].n + expected.clocks &&
                  counted(RNH) == 4 * t[i].n + expected.clocks;
        }
        report(ok, "%d lines of a set come from %s", t[i].n, t[i].name);
    }
}

/* Table 6-2: MinLatency and CLF */
static void test_filters(void)
{
    static const struct {
        const char *name;
        uint32_t filters;
        bool l2, l3, ram;
    } t[] = {
        { "CLF", FILTER_CLF, false, false, false },
        { "NBC", FILTER_CLF | FILTER_NBC, false, true, false },
        { "RDC", FILTER_CLF | FILTER_RDC, false, false, false },
        { "RAM", FILTER_CLF | FILTER_RAM, false, false, true },
        { "OTH", FILTER_CLF | FILTER_OTH, false, false, false },
        { "NBC, RAM", FILTER_CLF | FILTER_NBC | FILTER_RAM, false, true, true },
        { "NBC without CLF", FILTER_NBC, true, true, true },
        { "MinLatency 1", 1, true, true, true },
        { "MinLatency 2", 2, false, true, true },
        { "MinLatency 3", 3, false, true, true },
        { "MinLatency 4", 4, false, false, true },
        { "MinLatency 12", 12, false, false, true },
        { "MinLatency 13", 13, false, false, false },
        { "MinLatency 2 and RAM", FILTER_CLF | FILTER_RAM | 2,
          false, false, true },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        static const uint8_t lines[] = { 6, 17 };
        int total = 0;
        bool ok = true;

        for (int k = 0; k < ARRAY_SIZE(lines); k++) {
            uint64_t addr = new_set();
            int n = lines[k];

            begin(FLAG(DME) | FLAG(CNH), t[i].filters, DME, MANY);
            ok &= walk(addr, FAR, n) && counted(DME) == n * t[i].ram &&
                  walk(addr, FAR, n);
            total = n * (t[i].ram + (k ? t[i].l3 : t[i].l2));
            ok &= counted(DME) == total &&
                  counted(CNH) == n * (8 + 200 + (k ? 60 : 20));
        }
        report(ok, "%s selects%s%s%s", t[i].name, t[i].l2 ? " L2" : "",
               t[i].l3 ? " L3" : "", t[i].ram ? " DRAM" : "");
    }
}

/* IRETQ takes the base of a descriptor, but 64-bit mode has none. */
static void test_code_base(void)
{
    static const struct {
        const char *name;
        uint32_t filters;
        int n;
    } t[] = {
        { "no filter", 0, 64 }, { "IPF", FILTER_IPF, 64 },
        { "IPF, IPI", FILTER_IPF | FILTER_IPI, 0 },
    };

    set_segment(TEST_CODE, 0x12000, 0xfffff, ACC_CODE | ACC_USER,
                SEG_G | SEG_64);
    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        uint64_t addr = cold(PAGE);

        prepare_event(FLAG(DME), t[i].filters, DME, 0);
        cb->base_ip = cb->limit_ip = (uintptr_t)code_walk;
        llwpcb(user_cb);
        expect_nothing();
        model_walk(addr, LINE, 64);
        sample(0, 0);
        expected.n = expected.n == 64 ? t[i].n : -1;
        enter(code_walk, addr, LINE, 64);
        regs.cs = TEST_CODE;
        report(run() == EXIT && matches(records, DME),
               "64-bit code segment with a base, %s: %d misses", t[i].name,
               t[i].n);
    }
}

/* Loads of 8 bytes and stores of 4, anywhere in 128 KiB */
CODE(code_random,
     "1: imul $1664525, %eax\n add $1013904223, %eax\n mov %eax, %edx\n"
     "shr $15, %edx\n test $0x700, %eax\n jz 2f\n and %esi, %edx\n"
     "mov (%rdi, %rdx), %rbx\n jmp 3f\n"
     "2: mov %eax, (%rdi, %rdx)\n 3: dec %ecx\n jnz 1b\n jmp 4f\n"
     "nop\n 4:")

static void test_random(void)
{
    uint64_t base = cold(128 * 1024 + PAGE);
    uint64_t ip = 0;

    /* The load: 48 8b 1c 17 */
    for (const uint8_t *p = (uint8_t *)code_random; !ip; p++) {
        if (p[0] == 0x48 && p[1] == 0x8b) {
            ip = (uintptr_t)p;
        }
    }
    for (int i = 0; i < 24; i++) {
        uint32_t x = i * 77777;
        unsigned mask = i % 3 ? 0x7fff : 0x1ffff;
        int interval = i < 8 ? i : i * i;
        unsigned all;

        expect_nothing();
        for (int k = 0; k < 2000; k++) {
            uint32_t offset;

            x = x * 1664525 + 1013904223;
            offset = x >> 15;
            if (x & 0x700) {
                model_load(ip, base + (offset & mask), 8);
            } else {
                /* It allocates, but does not count. */
                model_access(base + offset);
                if (offset % LINE > LINE - 4) {
                    model_access(base + offset + 3);
                }
            }
        }
        all = expected.n;
        sample(interval, interval);
        begin(FLAG(DME) | (i & 1) * FLAG(IRE), 0, DME, interval);
        cb->event[IRE - 1].interval = cb->event[IRE - 1].counter = 29;
        enter(code_random, base, mask, 2000);
        regs.rax = i * 77777;
        report(run() == EXIT && matches(records, DME),
               "random loads and stores: %d misses, interval %d", all,
               interval);
    }
}

/* The latency of a load is clocks of the instruction, ahead of its own. */
static void test_clocks(void)
{
    static const uint16_t intervals[] = {
        3, 50, 198, 199, 200, 201, 202, 333, 1000, 5003
    };

    for (int event = CNH; event <= RNH; event++) {
        for (int i = 0; i < ARRAY_SIZE(intervals); i++) {
            uint64_t addr = cold(4 * PAGE);
            bool ok = true;

            for (int k = 0; k < 4; k++) {
                int interval = intervals[i], c = interval, total = 0;

                expect_nothing();
                for (int n = 0; n < 4 * 300; n++) {
                    unsigned before = expected.clocks, missed = expected.n;

                    if (n % 4 == 0) {
                        model_load((uintptr_t)code_walk, addr + n / 4 * 20, 4);
                    }
                    total += expected.n - missed;
                    expected.n = missed;
                    c -= 1 + expected.clocks - before;
                    if (c < 0) {
                        expect(event, 0, 0, AT(code_walk, walk_insns[n % 4]),
                               0);
                        c += interval + 1;
                    }
                }
                expected.left = c;
                begin(FLAG(DME) | FLAG(event), k & 2 ? FILTER_CLF : 0, event,
                      interval);
                ok &= walk(addr, 20, 300) && matches(records, event) &&
                      counted(DME) == (k & 2 ? 0 : total);
            }
            report(ok, "%s, interval %d: sampled with the latencies",
                   event == CNH ? "CNH" : "RNH", intervals[i]);
        }
    }
    begin(FLAG(CNH) | FLAG(RNH), 0, DME, 0);
    report(walk(cold(PAGE), 64, 64) && counted(CNH) == 256 &&
           counted(RNH) == 256, "without DME, a load is one clock");
}

static uint32_t pci_read(unsigned device, unsigned reg)
{
    uint32_t val;

    asm volatile("outl %0, %%dx" : : "a" (0x80000000u | device << 11 | reg),
                 "d" (0xcf8));
    asm volatile("inl %%dx, %0" : "=a" (val) : "d" (0xcfc));
    return val;
}

/*
 * Where memory reads get the next byte of the VGA palette, as port 0x3c9 does;
 * 0 if there is no such device.
 */
static uint64_t find_palette(void)
{
    for (int device = 0; device < 32; device++) {
        if (pci_read(device, 0) == 0x11111234) {
            return (pci_read(device, 0x18) & -16u) + 0x409;
        }
    }
    return 0;
}

static uint8_t palette_byte(int n)
{
    return n * 7 + n / 256 + 1;
}

CODE(code_mmio,
     "1: nop\n movzbl (%rsi), %eax\n mov %al, (%rdi)\n inc %rdi\n"
     "mov (%rdx), %ebx\n add $64, %rdx\n dec %ecx\n jnz 1b")
CODE(code_mmio_lwpins, "nop\n lwpins $0, (%rsi), %eax\n nop")
CODE(code_mmio_push, "nop\n pushw (%rsi)\n nop")
CODE(code_mmio_order,
     ".fill 130, 1, 0x90\n jmp 1f\n"
     "1: .fill 10, 1, 0x90\n movzbl (%rsi), %eax\n jmp 2f\n 2: nop")

static void rewind_palette(void)
{
    out8(0x3c7, 0);
}

static int palette_reads(void)
{
    uint8_t val;
    int n = 0;

    asm volatile("inb %%dx, %0" : "=a" (val) : "d" (0x3c9));
    while (n < 256 && palette_byte(n) != val) {
        n++;
    }
    return n;
}

static void test_mmio(void)
{
    static uint8_t got[256];
    static const struct {
        const char *name;
        uint32_t filters;
        bool other, ram;
    } t[] = {
        { "no filter", 0, true, true },
        { "CLF, OTH", FILTER_CLF | FILTER_OTH, true, false },
        { "CLF, RAM", FILTER_CLF | FILTER_RAM, false, true },
        { "MinLatency 25", 25, true, false },
        { "MinLatency 26", 26, false, false },
    };
    static const uint8_t intervals[] = { 0, 1, 2, 3, 5, 20, 77, 250 };
    uint64_t palette = find_palette(), addr;

    if (!palette) {
        ml_printf("SKIP: no VGA device\n");
        return;
    }
    out8(0x3c8, 0);
    for (int i = 0; i < 256 * 3; i++) {
        out8(0x3c9, palette_byte(i));
    }
    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        for (int k = 0; k < ARRAY_SIZE(intervals); k++) {
            uint64_t ram = cold(2 * PAGE);
            int n = 100;
            bool once = true, ok;

            expect_nothing();
            for (int j = 0; j < n; j++) {
                if (t[i].other) {
                    expect_miss(OTHER, AT(code_mmio, 1), palette);
                }
                if (t[i].ram) {
                    expect_miss(DRAM, AT(code_mmio, 9), ram + 64 * j);
                }
            }
            sample(intervals[k], intervals[k]);
            begin(FLAG(DME) | FLAG(CNH), t[i].filters, DME, intervals[k]);
            rewind_palette();
            enter(code_mmio, (uintptr_t)got, palette, n);
            regs.rdx = ram;
            memset(got, 0, sizeof(got));
            ok = run() == EXIT && matches(records, DME);
            for (int j = 0; j < n; j++) {
                once &= got[j] == palette_byte(j);
            }
            report(ok, "MMIO, interval %d, %s: records", intervals[k],
                   t[i].name);
            report(once && counted(CNH) == n * (8 + 400 + 200),
                   "each load has read once, with its latency");
        }
    }

    /* The same device elsewhere */
    map_to(5, palette & -PAGE, PTE_ALL);
    addr = WINDOW + 5 * PAGE + palette % PAGE;
    begin(FLAG(DME), FILTER_CLF | FILTER_OTH, DME, 0);
    map_to(5, palette & -PAGE, PTE_ALL);
    rewind_palette();
    expect_nothing();
    for (int i = 0; i < 20; i++) {
        expect_miss(OTHER, (uintptr_t)code_walk, addr);
    }
    sample(0, 0);
    report(walk(addr, 0, 20) && matches(records, DME) && palette_reads() == 20,
           "every load of a device misses");

    for (int due = 0; due < 2; due++) {
        expect_nothing();
        expect_miss(OTHER, AT(code_mmio_push, 1), palette);
        sample(due ? 0 : MANY, MANY);
        begin_once(FLAG(DME), due);
        rewind_palette();
        enter(code_mmio_push, 0, palette, 0);
        /* Its stack must not miss. */
        report(run() == EXIT && matches(records, DME) && palette_reads() == 1,
               "PUSH from a device, event due %d", due);

        begin(FLAG(DME), 0, DME, MANY);
        rewind_palette();
        enter(code_mmio_lwpins, 0, palette, 0);
        report(run() == EXIT && counted(DME) == 1 && palette_reads() == 1 &&
               records[0].event == LWP_INS &&
               (uint8_t)records[0].data1 == palette_byte(0),
               "LWPINS with an operand in a device");
    }
}

/*
 * What is due in a block may be told when all of it has run.  A load of a
 * device in its middle is executed again, alone: its record comes behind.
 */
static void test_mmio_order(void)
{
    uint64_t palette = find_palette();

    if (!palette) {
        return;
    }
    prepare_event(FLAG(IRE) | FLAG(DME), 0, DME, 0);
    cb->event[IRE - 1].interval = cb->event[IRE - 1].counter = 69;
    llwpcb(user_cb);
    enter(code_mmio_order, 0, palette, 0);
    report(run() == EXIT && slwpcb() && cb->head == 3 * 32 &&
           records[0].event == IRE &&
           records[0].ip == AT(code_mmio_order, 69) &&
           records[1].event == IRE &&
           records[1].ip == AT(code_mmio_order, 132 + 8) &&
           records[2].event == DME &&
           records[2].ip == AT(code_mmio_order, 142),
           "MMIO: records are in the order of instructions");
}

/* Caches go by physical addresses. */
static void test_physical(void)
{
    uint64_t a = cold(PAGE), b = cold(PAGE), cr3;
    uint64_t page5 = WINDOW + 5 * PAGE, page6 = WINDOW + 6 * PAGE;

    asm volatile("mov %%cr3, %0" : "=r" (cr3));
    for (int n = 0; n < 2; n++) {
        uint64_t first = n ? a : page5, second = n ? page5 : page6;
        bool ok;

        begin(FLAG(DME), 0, DME, 0);
        map_to(5, a, PTE_ALL);
        map_to(6, a, PTE_ALL);
        expect_nothing();
        model_walk(first, LINE, 64);
        sample(0, 0);
        ok = walk(first, LINE, 64) && matches(records, DME);
        report(ok && expected.n == 64 && walk(second, LINE, 64) &&
               walk(first, LINE, 64) && matches(records, DME),
               "%s: the same lines", n ? "small and large page" : "two pages");
        a = cold(PAGE);
    }

    /* Another page in the same place, and back; LWP goes on. */
    for (int n = 0; n < 2; n++) {
        bool ok = true;

        a = cold(PAGE);
        b = cold(PAGE);
        begin(FLAG(DME), 0, DME, 0);
        expect_nothing();
        for (int k = 0; k < 10; k++) {
            window_table[5] = (k & 1 ? b : a) | PTE_ALL;
            if (n) {
                asm volatile("mov %0, %%cr3" : : "r" (cr3) : "memory");
            } else {
                map_to(5, window_table[5] & -PAGE, PTE_ALL);
            }
            model_walk(page5 + k / 4 * LINE, 0, 3);
            ok &= walk(page5 + k / 4 * LINE, 0, 3);
        }
        sample(0, 0);
        report(ok && matches(records, DME) && expected.n == 6,
               "%s: a remapped page has lines of its own",
               n ? "CR3" : "INVLPG");
    }
}

CODE(code_iret, "nop\n iretq\n nop")
CODE(code_after, "nop")
CODE(code_far_ret, "nop\n lretq\n nop")
CODE(code_segments,
     "mov %ds, %eax\n mov %eax, %ds\n mov %eax, %es\n lsl %eax, %ebx\n"
     "lar %eax, %ebx\n verr %ax\n verw %ax")
CODE(code_load, "nop\n nop\n mov (%rdi), %eax\n nop\n nop")
static void load_of(uint64_t addr)
{
    enter(code_load, addr, 0, 0);
}

static void test_kernel(void)
{
    uint64_t a = cold(PAGE), cr3, *frame;
    uint64_t *table = &window_table[5];

    /* At CPL 0: neither events nor lines */
    begin(FLAG(DME), 0, DME, MANY);
    for (int i = 0; i < PAGE; i += LINE) {
        ++*(uint8_t *)(a + i);
    }
    report(counted(DME) == 0 && run_function(0, code_after) == EXIT &&
           (set_up(CODE64, (uintptr_t)code_walk), regs.rdi = a,
            regs.rsi = LINE, regs.rcx = 64, run()) == EXIT &&
           counted(DME) == 0, "CPL 0: nothing counts");
    report(walk(a, LINE, 64) && counted(DME) == 64,
           "CPL 0 has not filled the caches");
    /* But it may empty them. */
    for (int i = 0; i < 3 * LINE; i += LINE) {
        asm volatile("clflush (%0)" : : "r" (a + i) : "memory");
    }
    report(walk(a, LINE, 64) && counted(DME) == 67,
           "CLFLUSH at CPL 0 takes lines away");
    asm volatile("wbnoinvd" : : : "memory");
    report(walk(a, LINE, 64) && counted(DME) == 67, "WBNOINVD does not");
    asm volatile("wbinvd" : : : "memory");
    report(walk(a, LINE, 64) && counted(DME) == 131, "WBINVD takes all");
    asm volatile("invd" : : : "memory");
    report(walk(a, LINE, 64) && counted(DME) == 195, "so does INVD");

    /* A TLB miss, with page tables that no program has accessed */
    a = cold(PAGE);
    begin(FLAG(DME), 0, DME, MANY);
    map_to(5, a, PTE_ALL);
    load_of(WINDOW + 5 * PAGE);
    asm volatile("mov %%cr3, %0" : "=r" (cr3));
    report(run() == EXIT && counted(DME) == 1, "the load misses");
    asm volatile("mov %0, %%cr3" : : "r" (cr3) : "memory");
    *table &= ~0x60ul;          /* accessed, dirty */
    load_of(WINDOW + 5 * PAGE);
    report(run() == EXIT && counted(DME) == 1 && (*table & 0x20),
           "a TLB miss does not count");

    enter(code_segments, 0, 0, 0);
    report(run() == EXIT && counted(DME) == 1, "nor do descriptors");
    enter(code_after, 0, 0, 0);
    regs.rsp = 1;               /* not used: there is an IST */
    report(run() == EXIT && counted(DME) == 1,
           "nor does the delivery of interrupts");

    for (int n = 0; n < 3; n++) {
        /* n loads in the first line, the others in the second one */
        frame = (uint64_t *)(cold(PAGE) + 2 * LINE) - n;
        frame[0] = (uintptr_t)code_after;
        frame[1] = USER_CODE64;
        frame[2] = 2;
        frame[3] = (uintptr_t)user_stack + 8192;
        frame[4] = USER_DATA;
        begin_once(FLAG(DME) | FLAG(CNH), true);
        enter(code_iret, 0, 0, 0);
        regs.rsp = (uintptr_t)frame;
        expect_nothing();
        expect_miss(DRAM, AT(code_iret, 1), (uintptr_t)frame);
        sample(0, MANY);
        expected.left -= n > 0;
        report(run() == EXIT && regs.rip == AT(code_after, 3) &&
               matches(records, DME) &&
               counted(CNH) == 3 + 200 * (1 + (n > 0)),
               "IRET within CPL 3: %d misses", 1 + (n > 0));

        if (n == 2) {
            break;
        }
        frame = (uint64_t *)(cold(PAGE) + 2 * LINE) - n;
        frame[0] = (uintptr_t)code_after;
        frame[1] = USER_CODE64;
        begin_once(FLAG(DME), true);
        enter(code_far_ret, 0, 0, 0);
        regs.rsp = (uintptr_t)frame;
        expect_nothing();
        expect_miss(DRAM, AT(code_far_ret, 1), (uintptr_t)frame);
        sample(0, MANY);
        expected.left -= n > 0;
        report(run() == EXIT && regs.rip == AT(code_after, 3) &&
               matches(records, DME), "far RET within CPL 3: %d misses",
               1 + (n > 0));
    }
}

CODE(code_load8, "nop\n nop\n mov (%rdi), %rax\n nop\n nop")

/* Loads in two pages, which are not neighbours in memory */
static void test_crossing(void)
{
    static const char *const names[] = {
        "both pages", "its first page", "its second page", "neither page"
    };
    uint64_t addr = WINDOW + 6 * PAGE - 3;

    for (int due = 0; due < 2; due++) {
        for (int missing = 0; missing < 4; missing++) {
            uint64_t a = cold(PAGE), b = cold(3 * PAGE) + PAGE;
            uint64_t ip = AT(code_load8, 2);
            bool ok;

            expect_nothing();
            begin_once(FLAG(DME) | FLAG(CNH), due);
            map_to(5, a, missing & 1 ? 0 : PTE_ALL);
            map_to(6, b, missing & 2 ? 0 : PTE_ALL);
            model_load(ip, addr, 8);
            sample(due ? 0 : MANY, MANY);
            enter(code_load8, addr, 0, 0);
            if (missing) {
                ok = run() == PF && regs.rip == ip &&
                     fault_address == (missing & 1 ? addr : addr + 3) &&
                     counted(DME) == (due ? MANY : 0) && counted(CNH) == 2;
                report(ok, "load in two pages, %s mapped, event due %d: "
                       "#PF does not count",
                       missing == 3 ? "neither" : "one", due);
                window_table[5] |= PTE_ALL;
                if (missing == 3) {
                    ok = run() == PF && fault_address == addr + 3 &&
                         counted(DME) == (due ? MANY : 0);
                    report(ok, "the same for its second page");
                }
                window_table[6] |= PTE_ALL;
            }
            ok = run() == EXIT && matches(records, DME);
            report(ok && counted(CNH) == 5 + 400,
                   "load in two pages, %s missing, event due %d: one miss",
                   missing ? names[missing] : "none", due);
        }
    }
    /* One of them misses. */
    for (int n = 0; n < 2; n++) {
        uint64_t a = cold(PAGE), b = cold(3 * PAGE) + PAGE;

        begin(FLAG(DME), 0, DME, 0);
        map_to(5, a, PTE_ALL);
        map_to(6, b, PTE_ALL);
        expect_nothing();
        model_load(AT(code_load, 2), addr + (n ? 3 : -5), 4);
        model_load(AT(code_load8, 2), addr, 8);
        sample(0, 0);
        load_of(addr + (n ? 3 : -5));
        run();
        enter(code_load8, addr, 0, 0);
        report(run() == EXIT && matches(records, DME) && expected.n == 2 &&
               records[1].data2 == (n ? addr : addr + 3),
               "only its %s page misses", n ? "first" : "second");
    }
}

CODE(code_rep, "rep lodsb")

/* Faults of the program and of LWP, which come between instructions */
static void test_faults(void)
{
    for (int due = 0; due < 3; due++) {
        uint64_t addr = WINDOW + 5 * PAGE + 64;
        int interval = due ? due - 1 : MANY;

        begin(FLAG(DME) | FLAG(CNH), 0, DME, interval);
        map_to(5, cold(PAGE), 0);
        expect_nothing();
        model_load(AT(code_load, 2), addr, 4);
        sample(interval, interval);
        load_of(addr);
        report(run() == PF && regs.rip == AT(code_load, 2) &&
               fault_address == addr && (save(), left(DME)) == interval &&
               counted(CNH) == 2, "#PF of a load: it does not count");
        window_table[5] |= PTE_ALL;
        report(run() == EXIT && matches(records, DME) &&
               counted(CNH) == 5 + 200, "page mapped: it counts once");
    }

    /* §8.6: the ring is missing, then what the program accesses is, too. */
    for (int n = 0; n < 24; n++) {
        uint64_t addr = WINDOW + 5 * PAGE;
        int interval = n / 8, faults;
        void (*code)(void) = n & 1 ? code_rep : code_walk;
        bool boundary = true;

        prepare_event(FLAG(DME), 0, DME, interval);
        memset(ring, 0, 2 * PAGE);
        cb->base = RING_ADDR;
        cb->size = 2 * PAGE;
        llwpcb(user_cb);
        for (int page = 5; page < 8; page++) {
            map_to(page, cold(PAGE), n & 4 ? 0 : PTE_ALL);
        }
        expect_nothing();
        if (n & 1) {
            for (int i = 0; i < 3 * PAGE; i++) {
                model_load((uintptr_t)code, addr + i, 1);
            }
            enter(code, 0, addr, 3 * PAGE);
        } else {
            model_walk(addr, 36, 3 * PAGE / 36);
            enter(code, addr, 36, 3 * PAGE / 36);
        }
        sample(interval, interval);
        set_pte(0, 0);
        set_pte(1, 0);
        set_pte(2, n & 2 ? 0 : PTE_ALL);
        if (!(n & 4)) {
            /* Behind the load, or before the next iteration */
            boundary = run() == PF && regs.rip == AT(code, n & 1 ? 0 : 2) &&
                       regs.error == (PTE_U | PTE_W) &&
                       fault_address / PAGE ==
                       (n & 2 ? CB_ADDR : RING_ADDR) / PAGE;
        }
        faults = run_mended();
        report(boundary && faults > 0 && matches(ring, DME),
               "missing ring%s%s, interval %d, %s: the same records",
               n & 2 ? ", LWPCB" : "", n & 4 ? ", data" : "", interval,
               n & 1 ? "REP LODSB" : "a loop");
    }
}

/*
 * Branches of all kinds: patterns, random ones, two call sites in a recursion
 * that is deeper than the return stack, indirect ones with changing targets.
 */
CODE(code_branches,
     "1: imul $1664525, %eax\n add $1013904223, %eax\n"
     "test $3, %cl\n jnz 2f\n nop\n"
     "2: test $0x100000, %eax\n jz 3f\n nop\n"
     "3: test $0x600000, %eax\n jnz 4f\n call 8f\n"
     "4: mov %eax, %ebx\n shr $28, %ebx\n and %esi, %ebx\n"
     "lea 7f(%rip), %rdx\n lea (%rdx, %rbx, 4), %rdx\n jmp *%rdx\n"
     ".balign 4\n"
     "7: jmp 5f\n nop\n nop\n jmp 5f\n nop\n nop\n"
     "jmp 5f\n nop\n nop\n jmp 5f\n nop\n nop\n"
     "5: lea 8f(%rip), %rdx\n call *%rdx\n"
     "xor %ebx, %ebx\n test $15, %cl\n jnz 5f\n mov %ecx, %ebx\n"
     "5: call 9f\n"
     "dec %ecx\n jnz 1b\n jmp 6f\n"
     "8: ret\n"
     "9: test %ebx, %ebx\n jz 8b\n dec %ebx\n test $5, %bl\n jz 10f\n"
     "call 9b\n ret\n"
     "10: call 9b\n nop\n ret\n"
     "6: nop")

typedef enum Kind { NONE, COND, JUMP, CALL, INDIRECT, INDIRECT_CALL, RET } Kind;

static Kind decode(uint64_t ip, uint64_t *next)
{
    const uint8_t *code = (uint8_t *)ip;

    switch (code[0]) {
    case 0x70 ... 0x7f:
    case 0xe0 ... 0xe3:
        *next = ip + 2;
        return COND;
    case 0x0f:
        *next = ip + 6;
        return (code[1] & 0xf0) == 0x80 ? COND : NONE;
    case 0xeb:
        *next = ip + 2;
        return JUMP;
    case 0xe9:
        *next = ip + 5;
        return JUMP;
    case 0xe8:
        *next = ip + 5;
        return CALL;
    case 0xc3:
        return RET;
    case 0xff:
        *next = ip + 2;
        return code[1] == 0xd2 ? INDIRECT_CALL :
               code[1] == 0xe2 ? INDIRECT : NONE;
    default:
        return NONE;
    }
}

static struct {
    uint64_t ip, target;
} trace[6000];
static int trace_size;

/* What TF says has run: the branches and where they have gone. */
static void make_trace(void)
{
    uint64_t ip, next;

    wrmsr(MSR_LWP_CBADDR, 0);
    regs.rflags |= 1u << 8;
    trace_size = 0;
    do {
        ip = regs.rip;
        if (run() == 1 && decode(ip, &next) && trace_size < 6000) {
            trace[trace_size].ip = ip;
            trace[trace_size++].target = regs.rip;
        }
    } while (regs.vector == 1);
}

/*
 * For each conditional branch what it did the last two times, and what it did
 * mostly after each such pair: from 0, never taken, to 3.  What is new goes on
 * as it did last.  A table of targets, a return stack; all zero at reset.
 */
static struct {
    struct {
        bool known;
        unsigned past, mostly[4];
    } cond[4096];
    unsigned top;
    uint64_t targets[512], returns[32];
} learned;

/* Whether it is predicted what the branch at @ip does; that is learned. */
static bool guess_taken(uint64_t ip, bool taken)
{
    typeof(&learned.cond[0]) c = &learned.cond[ip % 4096];
    unsigned *n = &c->mostly[c->past];
    bool guess;

    if (!c->known) {
        c->known = true;
        c->mostly[0] = c->mostly[2] = 1;
        c->mostly[1] = c->mostly[3] = 2;
    }
    guess = *n > 1;
    if (taken && *n < 3) {
        ++*n;
    } else if (!taken && *n > 0) {
        --*n;
    }
    c->past = (c->past << 1 | taken) & 3;
    return guess == taken;
}

/* The flags of a branch's record, by what has been learned from others. */
static unsigned predict(uint64_t ip, uint64_t target)
{
    uint64_t next = 0, guess;
    Kind kind = decode(ip, &next);
    unsigned flags = TKN | PRV;

    switch (kind) {
    case COND:
        flags = target != next ? TKN | PRV : PRV;
        return flags | (guess_taken(ip, target != next) ? PRD : 0);
    case RET:
        guess = learned.returns[learned.top-- % 32];
        break;
    case INDIRECT:
    case INDIRECT_CALL:
        guess = learned.targets[ip % 512];
        learned.targets[ip % 512] = target;
        break;
    default:
        guess = target;
    }
    if (kind == CALL || kind == INDIRECT_CALL) {
        learned.returns[++learned.top % 32] = next;
    }
    if (!guess) {
        return TKN;
    }
    return flags | (guess == target ? PRD : 0);
}

static bool branch_counts(uint64_t ip, unsigned flags, uint32_t filters)
{
    static const uint32_t classes[] = {
        [COND] = FILTER_NCB, [JUMP] = FILTER_NRB, [CALL] = FILTER_NRB,
        [RET] = FILTER_NRB, [INDIRECT] = FILTER_NAB,
        [INDIRECT_CALL] = FILTER_NAB,
    };
    uint64_t next;

    if (filters & classes[decode(ip, &next)]) {
        return false;
    }
    if ((filters & FILTER_NMB) && (filters & FILTER_NPB)) {
        return false;           /* "no branches will be counted" */
    }
    return !(flags & PRV) ||
           !(filters & (flags & PRD ? FILTER_NPB : FILTER_NMB));
}

static void enter_branches(uint64_t code, unsigned seed)
{
    enter((void (*)(void))code, 0, seed & 3, 52 + seed % 8);
    regs.rax = seed;
}

/* Run under LWP what is in the trace; the number of branches that count */
static int predicted(uint64_t code, unsigned seed, uint32_t flags,
                     uint32_t filters, int interval, bool *ok)
{
    int n;

    expect_nothing();
    for (int i = 0; i < trace_size && (flags & FLAG(BRE)); i++) {
        uint64_t ip = trace[i].ip, target = trace[i].target;
        unsigned bits = predict(ip, target);

        if (branch_counts(ip, bits, filters) &&
            (!(filters & FILTER_IPF) ||
             (ip >= cb->base_ip && ip <= cb->limit_ip) ==
             !(filters & FILTER_IPI))) {
            expect(BRE, bits, 0, ip, target);
        }
    }
    n = expected.n;
    sample(interval, interval);
    llwpcb(user_cb);
    enter_branches(code, seed);
    *ok &= run() == EXIT;
    if (flags & FLAG(BRE)) {
        *ok &= matches(records, BRE);
    }
    return n;
}

static bool branches(unsigned seed, uint32_t flags, uint32_t filters,
                     int interval, int *n)
{
    bool ok = true;

    prepare_event(flags, filters, BRE, interval);
    cb->event[IRE - 1].interval = cb->event[IRE - 1].counter = 12;
    cb->base_ip = AT(code_branches, 30);
    cb->limit_ip = AT(code_branches, 90);
    *n = predicted((uintptr_t)code_branches, seed, flags, filters, interval,
                   &ok);
    return ok;
}

static void test_prediction(void)
{
    static const struct {
        const char *name;
        uint32_t flags, filters;
        int interval;
    } t[] = {
        { "all, nothing learned", FLAG(BRE), 0, 0 },
        { "all", FLAG(BRE), 0, 0 },
        { "NPB", FLAG(BRE), FILTER_NPB, 0 },
        { "NMB", FLAG(BRE), FILTER_NMB, 0 },
        { "NPB, NCB", FLAG(BRE), FILTER_NPB | FILTER_NCB, 0 },
        { "NMB, NRB", FLAG(BRE), FILTER_NMB | FILTER_NRB, 0 },
        { "NPB, NAB", FLAG(BRE), FILTER_NPB | FILTER_NAB, 0 },
        { "NCB", FLAG(BRE), FILTER_NCB, 0 },
        { "NRB, NAB", FLAG(BRE), FILTER_NRB | FILTER_NAB, 0 },
        { "IPF", FLAG(BRE), FILTER_IPF, 0 },
        { "IPF, IPI, NPB", FLAG(BRE), FILTER_IPF | FILTER_IPI | FILTER_NPB, 0 },
        { "with IRE", FLAG(BRE) | FLAG(IRE), 0, 0 },
        { "NPB, with IRE", FLAG(BRE) | FLAG(IRE), FILTER_NPB, 0 },
        { "NPB, with DME", FLAG(BRE) | FLAG(DME), FILTER_NPB, 3 },
        { "learned, not recorded", FLAG(BRE), 0, MANY },
        { "then all", FLAG(BRE), 0, 0 },
        { "IPF, learned", FLAG(BRE), FILTER_IPF, MANY },
        { "then all", FLAG(BRE), 0, 0 },
        { "NCB, learned", FLAG(BRE), FILTER_NCB, MANY },
        { "then all", FLAG(BRE), 0, 0 },
        { "BRE disabled, nothing learned", FLAG(IRE), 0, 0 },
        { "then all", FLAG(BRE), 0, 0 },
    };
    static const struct {
        const char *name;
        uint32_t filters;
    } none[] = {
        /* The first of these has branches of which nothing is known. */
        { "NMB, NPB", FILTER_NMB | FILTER_NPB },
        { "NAB, NCB, NRB", FILTER_NAB | FILTER_NCB | FILTER_NRB },
        { "BaseIP > LimitIP", FILTER_IPF },
    };
    int n, sum = 0;
    bool ok;

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        enter_branches((uintptr_t)code_branches, i);
        make_trace();
        ok = branches(i, t[i].flags, t[i].filters, t[i].interval, &n);
        report(ok && trace_size > 400, "prediction, %s: %d of %d branches",
               t[i].name, n, trace_size);
    }

    enter_branches((uintptr_t)code_branches, 3);
    make_trace();
    ok = true;
    for (int i = 0; i < 200; i += 1 + i / 8) {
        uint32_t filters = (i & 1 ? FILTER_NPB : 0) | (i & 2 ? FILTER_NCB : 0) |
                           (i & 4 ? FILTER_IPF : 0);

        ok &= branches(3, FLAG(BRE) | (i & 8 ? FLAG(IRE) : 0), filters, i, &n);
        sum += n;
    }
    report(ok, "prediction, intervals from 0 to 200: %d branches", sum);

    /* One page of code in two places: addresses differ, counters do not. */
    ok = true;
    for (int i = 0; i < 4; i++) {
        uint64_t code = WINDOW + (5 + i % 2) * PAGE + 0x340;

        prepare_event(FLAG(BRE), i < 2 ? 0 : FILTER_NPB, BRE, 0);
        map_to(6, (uintptr_t)window_ram[5], PTE_ALL);
        memcpy(window_ram[5] + 0x340, code_branches, 512);
        enter_branches(code, 5);
        make_trace();
        predicted(code, 5, FLAG(BRE), i < 2 ? 0 : FILTER_NPB, 0, &ok);
        report(ok && trace_size > 400 && expected.n,
               "prediction, the same code at 0x%lx", code);
    }

    prepare_event(FLAG(BRE), 0, BRE, 0);
    llwpcb(user_cb);
    set_up(CODE64, (uintptr_t)code_branches);
    regs.rcx = 60;
    report(run() == EXIT && (save(), area.lwp.head) == 0,
           "CPL 0: branches do not count");
    enter_branches((uintptr_t)code_branches, 6);
    make_trace();
    report(branches(6, FLAG(BRE), 0, 0, &n), "and nothing is learned");

    /* Filters decide what counts, not what is learned. */
    for (int i = 0; i < ARRAY_SIZE(none); i++) {
        uint64_t code = WINDOW + 5 * PAGE + 0x6c0;

        ok = true;
        prepare_event(FLAG(BRE), none[i].filters, BRE, 0);
        cb->base_ip = 1;
        memcpy(window_ram[5] + 0x6c0, code_branches, 512);
        enter_branches(code, 7 + i);
        make_trace();
        n = predicted(code, 7 + i, FLAG(BRE), none[i].filters, 0, &ok);
        report(ok && n == 0, "%s: no branch counts", none[i].name);

        enter_branches((uintptr_t)code_branches, 77 + i);
        make_trace();
        report(branches(77 + i, FLAG(BRE), 0, 0, &n),
               "but all are learned");
    }
}

int main(void)
{
    const uint32_t features = FLAG(BRE) | FLAG(DME) | FLAG(CNH) | FLAG(RNH);
    uint32_t ecx;

    kernel_init();
    lwp_make_available();
    if (was_reset()) {
        /* The caches are empty, as they were first. */
        test_walks();
        return report_summary();
    }
    ecx = cpuid_reg(0x8000001c, 0, 2);
    report((cpuid_reg(0x8000001c, 0, 0) & features) == features,
           "the events are available");
    report((ecx >> 28 & 0xd) == 0xd && (ecx & 1u << 5) &&
           (ecx & 31) >= 10, "addresses, levels, latencies, prediction");
    test_walks();
    test_levels();
    test_filters();
    test_code_base();
    test_random();
    test_clocks();
    test_mmio();
    test_mmio_order();
    test_physical();
    test_kernel();
    test_crossing();
    test_faults();
    test_prediction();
    report(checksum != 0, "checksum of all records: %x", checksum);
    reset_machine();
    return 1;
}
