/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What kvm-unit-tests' x86/pmu.c checks, and in its order: counts of a loop on
 * each counter, RDPMC, overflows, and writes to counters.  Its limits are for
 * hardware; where exact numbers are due, they are checked here.
 *
 * For Intel's architectural counters and AMD's.  Reference cycles are compared
 * with the TSC, so this needs -icount shift=0.
 */

#include "pmu-kernel.h"

enum { VECTOR = 0xee };

#define N               100000          /* times round the loop */
#define INSNS           (10 * N + 17)   /* from WRMSR to WRMSR */
#define BRANCHES        (N + 2)
#define DATA_ADDR       ((void *)0x1000000ul)   /* N lines of a cache */

#define ALL_CPL         (EVTSEL_OS | EVTSEL_USR)
#define RDPMC_FIXED     0x40000000u
#define MSR_APIC_BASE   0x1b
#define APIC_BASE_EXTD  (1u << 10)
#define MSR_X2APIC      0x800
#define CPUID_X2APIC    (1u << 21)
#define CPUID_RTM       (1u << 11)

/* The counters, as CPUID says */
static struct {
    const char *name;
    bool intel;
    int gp, fixed;
    uint64_t mask, fixed_mask;          /* of a counter's bits */
    uint32_t evtsel, pmc, stride;       /* MSRs */
    uint32_t ctrl, status, reset;       /* 0 if there are none */
    bool full;                          /* PMC is written in full width */
    bool x2apic;
} pmu;

typedef struct Event {
    const char *name;
    uint16_t code;
    uint64_t min, max;
} Event;

static Event events[] = {
    { "core cycles", 0x003c, N, 50 * N },
    { "instructions", 0x00c0, 10 * N, 10 * N + N / 5 },
    { "reference cycles", 0x013c, N, 30 * N },
    { "references of the last level cache", 0x4f2e, 1, 5 * N / 2 },
    /* All that is worked on stays there; pmu-mem knows how many there are. */
    { "misses of the last level cache", 0x412e, 0, N },
    { "branches", 0x00c4, N, N + N / 10 },
    { "mispredicted branches", 0x00c5, 0, N / 10 },
}, amd_events[] = {
    { "core cycles", 0x0076, N, 50 * N },
    { "instructions", 0x00c0, 10 * N, 10 * N + N / 5 },
    { "branches", 0x00c2, N, N + N / 10 },
    { "mispredicted branches", 0x00c3, 0, N / 10 },
}, fixed_events[] = {
    { "instructions", 0, 10 * N, 10 * N + N / 5 },
    { "core cycles", 0, N, 30 * N },
    { "reference cycles", 0, N / 10, 30 * N },
};
enum { REF_CYCLES = 2 };                /* in events[] */
static Event *table = events, *insns, *branches;
static int table_size = ARRAY_SIZE(events);

/* One that is going to run, or has */
typedef struct Counter {
    int index;                          /* its bit of GLOBAL_CTRL */
    const Event *event;
    uint64_t value;
} Counter;

#define FIXED(i)        (32 + (i))

/* Event @i of the table is counted (CPUID.0AH:EBX). */
static bool available(int i)
{
    return !pmu.intel || !(cpuid_reg(10, 0, 1) >> i & 1);
}

static uint32_t counter_msr(int index)
{
    return index >= FIXED(0) ? MSR_FIXED_CTR(index - FIXED(0)) :
           pmu.pmc + index * pmu.stride;
}

/*
 * N times ten instructions, one of them LOOP, and seventeen others with two
 * branches, of which one is the WRMSR that starts counters, or a NOP.
 */
#define WORK(name, insn) \
    static void __attribute__((naked, noinline)) \
    name(uint32_t msr, uint64_t counters, void *data) \
    { \
        asm("mov %rdx, %r8\n mov %edi, %ecx\n mov %edi, %r9d\n" \
            "mov %esi, %eax\n mov %rsi, %rdx\n shr $32, %rdx\n" \
            insn "\n" \
            "mov %r8, %r10\n mov $100000, %ecx\n clflush (%r8)\n mfence\n" \
            "1: mov (%r8), %eax\n add $64, %r8\n" \
            "nop\n nop\n nop\n nop\n nop\n nop\n nop\n loop 1b\n" \
            "mov $1, %eax\n xor %edx, %edx\n mov $0x49, %ecx\n nop\n" \
            "call 2f\n 2: pop %rax\n add $3f - 2b, %rax\n jmp *%rax\n nop\n" \
            "3: nop\n" \
            "mov %r9d, %ecx\n xor %eax, %eax\n xor %edx, %edx\n" \
            insn "\n" \
            "ret"); \
    }

WORK(work_nop, "nop")
WORK(work_wrmsr, "wrmsr")

static void work(uint64_t counters)
{
    if (pmu.ctrl) {
        work_wrmsr(pmu.ctrl, counters, DATA_ADDR);
    } else {
        work_nop(0, counters, DATA_ADDR);
    }
}

static void apic_write(uint32_t reg, uint32_t val)
{
    if (pmu.x2apic) {
        wrmsr(MSR_X2APIC + reg / 16, val);
    } else {
        APIC(reg) = val;
    }
}

static void set_fixed(int i, uint64_t bits)
{
    wrmsr(MSR_FIXED_CTR_CTRL,
          (rdmsr(MSR_FIXED_CTR_CTRL) & ~(15ull << 4 * i)) | bits << 4 * i);
}

/* With GLOBAL_CTRL, it does not run yet. */
static void enable(const Counter *c, uint64_t value, uint32_t flags)
{
    wrmsr(counter_msr(c->index), value);
    if (c->index >= FIXED(0)) {
        set_fixed(c->index - FIXED(0), FIXED_OS | FIXED_USR |
                  (flags & EVTSEL_INT ? FIXED_PMI : 0));
    } else {
        wrmsr(pmu.evtsel + c->index * pmu.stride,
              c->event->code | ALL_CPL | EVTSEL_EN | flags);
    }
    apic_write(APIC_LVTPC, VECTOR);
}

static void disable(Counter *c)
{
    if (c->index >= FIXED(0)) {
        set_fixed(c->index - FIXED(0), 0);
    } else {
        wrmsr(pmu.evtsel + c->index * pmu.stride, c->event->code | ALL_CPL);
    }
    c->value = rdmsr(counter_msr(c->index));
}

static void set_ctrl(uint64_t counters)
{
    if (pmu.ctrl) {
        wrmsr(pmu.ctrl, counters);
    }
}

static void reset_status(void)
{
    if (pmu.status) {
        wrmsr(pmu.reset, rdmsr(pmu.status));
    }
}

static void measure(Counter *c, int n, uint64_t value, uint32_t flags)
{
    uint64_t counters = 0;

    for (int i = 0; i < n; i++) {
        enable(&c[i], value, flags);
        counters |= 1ull << c[i].index;
    }
    work(counters);
    for (int i = 0; i < n; i++) {
        disable(&c[i]);
    }
}

static bool in_range(const Counter *c)
{
    bool ok = c->value >= c->event->min && c->value <= c->event->max;

    if (!ok) {
        test_printf("  %s: %ld for %ld to %ld\n", c->event->name, c->value,
                    c->event->min, c->event->max);
    }
    return ok;
}

/* Instructions that need not be counted by whom the name says */
static void __attribute__((naked, noinline))
emulated(uint32_t msr, uint64_t counters)
{
    asm("mov %rbx, %r8\n mov %edi, %ecx\n mov %esi, %eax\n xor %edx, %edx\n"
        "wrmsr\n"
        "mov %ecx, %edi\n mov $0, %eax\n cmp $0, %eax\n"
        "jne 1f\n jne 1f\n jne 1f\n jne 1f\n jne 1f\n"
        ".rept 5\n mov $10, %eax\n cpuid\n .endr\n"
        "1: mov %edi, %ecx\n xor %eax, %eax\n xor %edx, %edx\n"
        "wrmsr\n"
        "mov %r8, %rbx\n ret");
}

static void test_emulated(void)
{
    Counter c[] = { { 0, branches }, { 1, insns } };

    if (!pmu.ctrl) {
        return;
    }
    reset_status();
    enable(&c[0], -5 & pmu.mask, 0);
    enable(&c[1], -22 & pmu.mask, 0);
    emulated(pmu.ctrl, 3);
    disable(&c[0]);
    disable(&c[1]);
    report(c[0].value == 0 && c[1].value == 0,
           "%s: 22 instructions with CPUID, 5 of them branches, are counted",
           pmu.name);
    report(rdmsr(pmu.status) == 3,
           "%s: both counters have overflowed", pmu.name);
}

static void test_counters(void)
{
    for (int i = 0; i < table_size; i++) {
        bool ok = true;

        if (!available(i)) {
            test_printf("%s: %s are not available\n", pmu.name, table[i].name);
            continue;
        }
        for (int n = 0; n < pmu.gp; n++) {
            Counter c = { n, &table[i] };

            measure(&c, 1, 0, 0);
            ok &= in_range(&c);
        }
        report(ok, "%s: each counter counts %s", pmu.name, table[i].name);
    }
    for (int i = 0; i < pmu.fixed; i++) {
        Counter c = { FIXED(i), &fixed_events[i] };

        measure(&c, 1, 0, 0);
        report(in_range(&c), "%s: fixed counter %d counts %s", pmu.name, i,
               fixed_events[i].name);
    }
}

static bool rdpmc_is(uint32_t index, uint64_t val)
{
    uint64_t got = ~val;

    return at_cpl(0, got = rdpmc(index)) == EXIT && got == val;
}

/* Bit 31 asks processors that know it for the lower half. */
static bool fast_rdpmc_is(uint32_t index, uint32_t val)
{
    uint64_t got = 0;
    unsigned vector = at_cpl(0, got = rdpmc(index | 0x80000000));

    return vector == GP || (vector == EXIT && got == val);
}

static void test_rdpmc(void)
{
    const uint64_t val = 0xff0123456789;
    uint64_t written = pmu.intel && !pmu.full ? (int32_t)val : val;
    bool ok = true, fast = true;

    for (int i = 0; i < pmu.gp; i++) {
        wrmsr(counter_msr(i), val);
        ok &= rdpmc_is(i, written & pmu.mask);
        fast &= fast_rdpmc_is(i, val);
    }
    report(ok, "%s: RDPMC reads what has been written to counters", pmu.name);
    report(fast, "%s: RDPMC with bit 31 is #GP, or reads 32 bits", pmu.name);
    ok = fast = true;
    for (int i = 0; i < pmu.fixed; i++) {
        wrmsr(counter_msr(FIXED(i)), val & pmu.fixed_mask);
        ok &= rdpmc_is(RDPMC_FIXED | i, val & pmu.fixed_mask);
        fast &= fast_rdpmc_is(RDPMC_FIXED | i, val);
    }
    if (pmu.fixed) {
        report(ok, "%s: RDPMC reads fixed counters", pmu.name);
        report(fast, "%s: RDPMC of fixed ones with bit 31 is #GP, or 32 bits",
               pmu.name);
    }
}

static void test_all_counters(void)
{
    Counter c[11];
    int n = 0;
    bool ok = true;

    for (int i = 0; n < pmu.gp; i++) {
        if (available(i % table_size)) {
            c[n] = (Counter) { n, &table[i % table_size] };
            n++;
        }
    }
    for (int i = 0; i < pmu.fixed; i++) {
        c[n++] = (Counter) { FIXED(i), &fixed_events[i] };
    }
    measure(c, n, 0, 0);
    for (int i = 0; i < n; i++) {
        ok &= in_range(&c[i]);
    }
    report(ok, "%s: all %d counters count at the same time", pmu.name, n);
}

CODE(wait, "sti\n mov $1000, %ecx\n 1: pause\n loop 1b\n cli")

static bool is_interrupted(void)
{
    bool ok;

    set_up(CODE64, (uintptr_t)wait);
    ok = run() == VECTOR;
    if (ok) {
        apic_write(APIC_LVTPC, VECTOR);
        apic_write(APIC_EOI, 0);
    }
    return ok;
}

/* @index overflows at the last instruction but one. */
static void test_overflow_of(int index, bool interrupts)
{
    bool fixed = index >= FIXED(0);
    Counter c = { index, insns };
    const char *kind = fixed ? "fixed counter" : "counter";
    int number = fixed ? index - FIXED(0) : index;
    uint64_t preset;

    reset_status();
    measure(&c, 1, 0, 0);
    preset = 1 - c.value;
    if (fixed || pmu.full) {
        preset &= fixed ? pmu.fixed_mask : pmu.mask;
    }
    measure(&c, 1, preset, interrupts ? EVTSEL_INT : 0);
    report(c.value == 1, "%s: %s %d ends behind its overflow, at 1", pmu.name,
           kind, number);
    report(is_interrupted() == interrupts,
           "%s: %s %d %s", pmu.name, kind, number,
           interrupts ? "interrupts" : "does not interrupt without INT");
    if (pmu.status) {
        uint64_t status = rdmsr(pmu.status);

        wrmsr(pmu.reset, status);
        report(status == 1ull << index && !rdmsr(pmu.status),
               "%s: the status of %s %d is set and can be reset", pmu.name,
               kind, number);
    }
}

static void test_overflow(void)
{
    for (int i = 0; i < pmu.gp; i++) {
        test_overflow_of(i, i & 1);
    }
    if (pmu.fixed) {
        test_overflow_of(FIXED(0), false);
        test_overflow_of(FIXED(0), true);
    }
}

static void test_cmask(void)
{
    Counter c = { 0, insns };

    measure(&c, 1, 0, EVTSEL_CMASK(2));
    report(c.value < insns->min,
           "%s: a counter mask of 2 counts less than one of 0", pmu.name);
}

static void test_running(void)
{
    Counter c = { 0, insns };

    enable(&c, 0, 0);
    set_ctrl(1);
    work_nop(0, 0, DATA_ADDR);
    wrmsr(counter_msr(0), 0);
    set_ctrl(0);
    disable(&c);
    report(c.value < 100, "%s: a counter that runs can be set to 0", pmu.name);
    reset_status();
    enable(&c, 0, 0);
    set_ctrl(1);
    wrmsr(counter_msr(0), -1ull & (pmu.full ? pmu.mask : -1ull));
    work_nop(0, 0, DATA_ADDR);
    set_ctrl(0);
    disable(&c);
    report(c.value >= 10 * N && c.value < insns->max + 100,
           "%s: a counter that runs can be set to -1", pmu.name);
    if (pmu.status) {
        report(rdmsr(pmu.status) == 1, "%s: and overflows at once", pmu.name);
        reset_status();
    }
}

/* Transactional cycles would be next. */
static void test_no_tsx(void)
{
    report(!(cpuid_reg(7, 0, 1) & CPUID_RTM),
           "%s: there are no transactions to count", pmu.name);
}

static void test_pmu(void)
{
    test_emulated();
    test_counters();
    test_rdpmc();
    test_all_counters();
    test_overflow();
    test_cmask();
    test_running();
    test_no_tsx();
}

/* Both addresses of a counter (SDM 18.2.5, full-width writes) */
static bool both_are(int i, uint64_t val)
{
    return rdmsr(MSR_PMC(i)) == val && rdmsr(MSR_PMC_FULL(i)) == val;
}

static void test_width(void)
{
    const uint64_t val = 0xffffff0123456789, val32 = (uint32_t)val;
    bool narrow = true, wide = true, gp = true;

    for (int i = 0; i < pmu.gp; i++) {
        wrmsr(MSR_PMC(i), val32);
        narrow &= both_are(i, val32);
        wrmsr(MSR_PMC(i), val & pmu.mask);
        narrow &= both_are(i, val32);
        wrmsr(MSR_PMC(i), val);
        narrow &= both_are(i, val32);
        wrmsr(MSR_PMC_FULL(i), val32);
        wide &= both_are(i, val32);
        wrmsr(MSR_PMC_FULL(i), val & pmu.mask);
        wide &= both_are(i, val & pmu.mask);
        gp &= at_cpl(0, wrmsr(MSR_PMC_FULL(i), val)) == GP &&
              both_are(i, val & pmu.mask);
    }
    report(narrow, "%s: IA32_PMCx takes 32 bits and ignores others", pmu.name);
    report(wide, "%s: IA32_A_PMCx takes all of a counter's bits", pmu.name);
    report(gp, "%s: a write of more bits to IA32_A_PMCx is #GP", pmu.name);
}

static uint64_t fenced_rdtsc(void)
{
    asm volatile("mfence");
    return rdtsc();
}

/* The TSC says how long a reference cycle is. */
static void calibrate(void)
{
    Counter c = { 0, &events[REF_CYCLES] };
    uint64_t t[4], clocks;

    t[0] = fenced_rdtsc();
    enable(&c, 0, 0);
    set_ctrl(1);
    t[1] = fenced_rdtsc();
    asm volatile("mov $10000000, %%ecx\n 1: loop 1b" : : : "ecx");
    t[2] = fenced_rdtsc();
    set_ctrl(0);
    disable(&c);
    t[3] = fenced_rdtsc();
    clocks = (t[2] - t[1] + t[3] - t[0]) / 2;
    report(c.value && clocks, "%s: reference cycles and the TSC advance",
           pmu.name);
    if (clocks) {
        events[REF_CYCLES].min = events[REF_CYCLES].min * c.value / clocks;
        events[REF_CYCLES].max = events[REF_CYCLES].max * c.value / clocks;
    }
}

static void find_intel(void)
{
    uint32_t eax = cpuid_reg(10, 0, 0), edx = cpuid_reg(10, 0, 3);

    pmu.name = "Intel";
    pmu.gp = eax >> 8 & 0xff;
    pmu.mask = (1ull << (eax >> 16 & 0xff)) - 1;
    pmu.evtsel = MSR_EVTSEL(0);
    pmu.pmc = MSR_PMC(0);
    pmu.stride = 1;
    if ((eax & 0xff) >= 2) {
        pmu.fixed = edx & 31;
        pmu.fixed_mask = (1ull << (edx >> 5 & 0xff)) - 1;
        pmu.ctrl = MSR_GLOBAL_CTRL;
        pmu.status = MSR_GLOBAL_STATUS;
        pmu.reset = MSR_GLOBAL_STATUS_RESET;
    }
    insns = &events[1];
    branches = &events[5];
}

static void find_k7(void)
{
    pmu.name = "AMD K7";
    pmu.gp = 4;
    pmu.evtsel = MSR_K7_EVTSEL(0);
    pmu.pmc = MSR_K7_PERFCTR(0);
    pmu.stride = 1;
}

static void find_amd(void)
{
    find_k7();
    pmu.mask = (1ull << 48) - 1;
    if (cpuid_reg(0x80000001, 0, 2) & CPUID_PERFCTR_CORE) {
        pmu.name = "AMD";
        pmu.gp = 6;
        pmu.evtsel = MSR_PERF_CTL(0);
        pmu.pmc = MSR_PERF_CTR(0);
        pmu.stride = 2;
        if (cpuid_reg(0x80000000, 0, 0) >= 0x80000022 &&
            (cpuid_reg(0x80000022, 0, 0) & 1)) {
            pmu.ctrl = MSR_AMD_CTL;
            pmu.status = MSR_AMD_STATUS;
            pmu.reset = MSR_AMD_STATUS_CLR;
            pmu.gp = cpuid_reg(0x80000022, 0, 1) & 15;
        }
    }
    table = amd_events;
    table_size = ARRAY_SIZE(amd_events);
    insns = &amd_events[1];
    branches = &amd_events[2];
    pmu.full = true;
}

int main(void)
{
    uint64_t val;

    kernel_init();
    apic_init(VECTOR);
    pmu.x2apic = cpuid_reg(1, 0, 2) & CPUID_X2APIC;
    if (pmu.x2apic) {
        wrmsr(MSR_APIC_BASE, rdmsr(MSR_APIC_BASE) | APIC_BASE_EXTD);
    }
    pmu.intel = cpuid_reg(0, 0, 1) == 0x756e6547;
    if (pmu.intel) {
        find_intel();
    } else {
        find_amd();
    }
    for (int i = 0; i < pmu.gp; i++) {
        wrmsr(pmu.evtsel + i * pmu.stride, 0);
    }
    set_ctrl(0);
    report(at_cpl(0, val = rdpmc(64)) == GP, "%s: RDPMC of counter 64 is #GP",
           pmu.name);
    if (pmu.intel) {
        calibrate();
    }
    if (pmu.ctrl) {
        insns->min = insns->max = INSNS;
        branches->min = branches->max = BRANCHES;
        fixed_events[0].min = fixed_events[0].max = INSNS;
    }
    test_pmu();
    if (pmu.intel && (cpuid_reg(1, 0, 2) & CPUID_PDCM) &&
        (rdmsr(MSR_PERF_CAPABILITIES) & CAP_FULL_WIDTH)) {
        pmu.name = "Intel, full width";
        pmu.pmc = MSR_PMC_FULL(0);
        pmu.full = true;
        test_pmu();
        test_width();
    }
    if (!pmu.intel && pmu.gp > 4) {
        find_k7();
        test_pmu();
    }
    return report_summary();
}
