/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Performance counters older than P6's, as perfctr's low-level driver uses them
 * (its document low-level-x86.txt): P5 with and without MMX, and those of
 * Cyrix, WinChip and VIA C3.  They do not interrupt, so all are a-mode ones.
 */

#include "pmu-driver.h"

#define MSR_CESR        0x11
#define MSR_CTR(n)      (0x12 + (n))
#define CESR_CPL        0x00c0u
#define CESR_CPL3       0x0080u
#define CR4_TSD         (1ull << 2)
#define CPUID_TSC       (1u << 4)
#define CPUID_MMX       (1u << 23)

static const struct Processor {
    const char *name;
    uint32_t reserved;                  /* of an evntsel */
    int first;                          /* counter */
    int width;
    bool cpl;                           /* an evntsel has levels */
    uint16_t insns, other_insns;        /* events */
    uint16_t branches, cycles;          /* or 0 */
} processors[] = {
    { "P5", ~0x01ffu, 0, 40, true, 0x16, 0x16, 0x12, 0 },
    { "MII", ~0x05ffu, 0, 48, true, 0x16, 0x408, 0x12, 0 },
    { "WinChip C6", ~0x00ffu, 0, 40, false, 0x02, 0x02, 0, 0x00 },
    { "WinChip 2", ~0x00ffu, 0, 40, false, 0x16, 0x16, 0, 0x3f },
    { "C3", ~0x01ffu, 1, 32, false, 0xc0, 0x1c0, 0, 0x79 },
};
enum { P5, MII, C6, WINCHIP2, C3 };
static const struct Processor *cpu;
static bool has_rdpmc = true;

typedef struct Control {
    int nractrs;
    int pmc_map[2];
    uint32_t evntsel[2];
} Control;

typedef struct Task {
    Regs regs;
    Control control;
    uint32_t id;                        /* what is in the control register */
    Sum pmc[2];
} Task;

static uint32_t cached;
static unsigned msr_writes;

static uint32_t control_msr(void)
{
    return cpu == &processors[C3] ? MSR_EVTSEL(1) : MSR_CESR;
}

static uint32_t counter_msr(int i)
{
    return cpu == &processors[C3] ? MSR_PMC(i) : MSR_CTR(i);
}

static void clear_counters(void)
{
    if (cpu == &processors[C3]) {
        wrmsr(MSR_EVTSEL(1), 0x70079);
    } else {
        for (int i = 0; i < 3; i++) {
            wrmsr(MSR_CESR + i, 0);
        }
    }
    cached = ~0u;
}

static bool update_control(Task *t)
{
    uint32_t half[2] = { };

    if (t->control.nractrs > 2 - cpu->first) {
        return false;
    }
    for (int n = 0; n < t->control.nractrs; n++) {
        int pmc = t->control.pmc_map[n];
        uint32_t evntsel = t->control.evntsel[n];

        if (pmc < cpu->first || pmc > 1 || half[pmc] ||
            (evntsel & cpu->reserved) || (cpu->cpl && !(evntsel & CESR_CPL))) {
            return false;
        }
        half[pmc] = evntsel;
        t->pmc[n].sum = 0;
    }
    t->id = cpu->first ? half[1] : half[1] << 16 | half[0];
    return true;
}

static uint32_t read_counter(int i)
{
    return has_rdpmc ? rdpmc(i) : rdmsr(counter_msr(i));
}

static void resume(Task *t)
{
    if (cached != t->id) {
        cached = t->id;
        wrmsr(control_msr(), t->id);
        msr_writes++;
    }
    for (int n = 0; n < t->control.nractrs; n++) {
        t->pmc[n].start = read_counter(t->control.pmc_map[n]);
    }
}

static void suspend(Task *t)
{
    for (int n = 0; n < t->control.nractrs; n++) {
        accumulate(&t->pmc[n], read_counter(t->control.pmc_map[n]));
    }
}

static unsigned run_task(Task *t)
{
    unsigned vector;

    regs = t->regs;
    resume(t);
    vector = run();
    t->regs = regs;
    suspend(t);
    return vector;
}

/* Events of both counters, or the one that there is */
static Control a_mode(uint16_t event0, uint16_t event1)
{
    uint32_t cpl = cpu->cpl ? CESR_CPL3 : 0;
    Control c = {
        .nractrs = 2 - cpu->first,
        .pmc_map = { cpu->first, 1 },
        .evntsel = { event0 | cpl, event1 | cpl },
    };

    return c;
}

static void test_control(void)
{
    static Task t;
    bool ok;

    t.control = a_mode(cpu->insns, cpu->insns);
    ok = update_control(&t);
    t.control.evntsel[0] |= 1u << 15;
    ok &= !update_control(&t);
    t.control = a_mode(cpu->insns, cpu->insns);
    t.control.pmc_map[0] = 2;
    ok &= !update_control(&t);
    t.control.pmc_map[0] = cpu->first;
    t.control.nractrs = 3 - cpu->first;
    ok &= !update_control(&t);
    report(ok, "%s: control data that are valid, and others", cpu->name);
}

/* Two tasks take turns, where a counter knows CPL 3. */
static void test_tasks(void)
{
    static Task a, b;
    unsigned first, again;

    a.control = a_mode(cpu->other_insns, cpu->branches);
    b.control = a_mode(cpu->branches, cpu->insns);
    update_control(&a);
    update_control(&b);
    start_program(&a.regs, program, 300);
    start_program(&b.regs, other, 500);
    take_turns(run_task, &a, &b);
    report(a.pmc[0].sum == PROGRAM_INSNS(300) &&
           a.pmc[1].sum == PROGRAM_BRANCHES(300),
           "%s: counters of a task sum up what it does", cpu->name);
    report(b.pmc[0].sum == OTHER_BRANCHES(500) &&
           b.pmc[1].sum == OTHER_INSNS(500),
           "%s: those of the other task, too", cpu->name);
    start_program(&a.regs, program, 3);
    msr_writes = 0;
    run_task(&a);
    first = msr_writes;
    run_task(&a);
    again = msr_writes - first;
    report(first == 1 && again == 0,
           "%s: a register that has its value already is not written",
           cpu->name);
    wrmsr(MSR_CESR, 0);
    cached = 0;
    first = read_counter(0);
    run_function(3, nops);
    report(read_counter(0) == first, "%s: no level, and it has stopped",
           cpu->name);
}

/* Without levels: what the program itself reads of its own counter */
static void test_reader(int cpl)
{
    static Task t;
    bool ok = true;

    for (int i = cpu->first; i < 2; i++) {
        t.control = (Control) { .nractrs = 1, .pmc_map = { i } };
        for (int event = 0; event < 2; event++) {
            t.control.evntsel[0] = (event ? cpu->other_insns : cpu->insns) |
                                   (cpu->cpl ? CESR_CPL : 0);
            update_control(&t);
            resume(&t);
            set_up(cpl ? USER_CODE64 : CODE64, (uintptr_t)reader);
            regs.rcx = i;
            ok &= run() == EXIT && (uint32_t)regs.rax == 103;
        }
    }
    report(ok, "%s: 103 instructions at CPL %d by RDPMC", cpu->name, cpl);
    if (!cpu->cpl) {
        t.control.evntsel[0] = cpu->cycles;
        update_control(&t);
        resume(&t);
        set_up(cpl ? USER_CODE64 : CODE64, (uintptr_t)reader);
        regs.rcx = 1;
        report(run() == EXIT && (uint32_t)regs.rax == 103,
               "%s: and as many clocks", cpu->name);
    }
}

/* Past its width a counter goes on, and nothing else happens. */
static void test_width(void)
{
    static Task t;
    uint64_t last = (1ull << cpu->width) - 1;
    uint32_t msr = counter_msr(1);
    bool ok = true;

    t.control = (Control) { .nractrs = 1, .pmc_map = { 1 } };
    t.control.evntsel[0] = cpu->insns | (cpu->cpl ? CESR_CPL3 : 0);
    update_control(&t);
    resume(&t);
    wrmsr(msr, last - 50);
    start_program(&t.regs, program, 100);
    do {
        regs = t.regs;
        run();
        t.regs = regs;
        ok &= regs.vector == YIELD || regs.vector == EXIT;
    } while (regs.vector == YIELD);
    ok &= regs.vector == EXIT;
    if (cpu->cpl) {
        ok &= rdmsr(msr) == PROGRAM_INSNS(100) - 51;
        wrmsr(msr, ~0ull);
        ok &= rdmsr(msr) == last;
        wrmsr(msr, 0x1234567890abcdefull);
        ok &= rdmsr(msr) == (0x1234567890abcdefull & last);
    } else {
        ok &= rdmsr(msr) < 100000;
    }
    report(ok && APIC(APIC_LVTPC) == LOCAL_PERFCTR_VECTOR,
           "%s: %d bits, and no interrupt behind the last", cpu->name,
           cpu->width);
}

static bool faults(uint32_t msr)
{
    return at_cpl(0, rdmsr(msr)) == GP && at_cpl(0, wrmsr(msr, 0)) == GP;
}

static void test_absent(void)
{
    bool ok = faults(MSR_FIXED_CTR_CTRL) && faults(MSR_GLOBAL_CTRL) &&
              faults(MSR_FIXED_CTR(0)) && faults(MSR_PERF_CAPABILITIES) &&
              faults(MSR_PMC_FULL(0)) && faults(MSR_K7_EVTSEL(0)) &&
              faults(MSR_K7_PERFCTR(0)) && faults(MSR_EVTSEL(2)) &&
              faults(MSR_PMC(2));

    if (cpu == &processors[C3]) {
        ok &= at_cpl(0, wrmsr(MSR_EVTSEL(0), 0)) == GP &&
              at_cpl(0, wrmsr(MSR_PMC(0), 0)) == GP;
    } else {
        ok &= faults(MSR_EVTSEL(0)) && faults(MSR_PMC(0)) &&
              faults(MSR_EVTSEL(1)) && faults(MSR_PMC(1));
    }
    report(ok, "%s: MSRs of other processors are not there", cpu->name);
    ok = at_cpl(0, rdpmc(2)) == (has_rdpmc ? GP : UD) &&
         at_cpl(3, rdpmc(0x80000000)) == (has_rdpmc ? GP : UD) &&
         at_cpl(3, rdpmc(1)) == (has_rdpmc ? EXIT : UD);
    write_cr4(read_cr4() & ~CR4_PCE);
    ok &= at_cpl(3, rdpmc(1)) == (has_rdpmc ? GP : UD);
    write_cr4(read_cr4() | CR4_PCE);
    report(ok, "%s: RDPMC has 0 and 1, if at all", cpu->name);
}

static void test_tsc(void)
{
    const uint64_t mask = (1ull << 40) - 1;
    uint64_t before = rdtsc() & mask, rdpmc0 = rdpmc(0);
    uint64_t rdmsr0 = rdmsr(MSR_PMC(0)), after = rdtsc() & mask;

    report(before <= rdpmc0 && rdpmc0 <= rdmsr0 && rdmsr0 <= after,
           "%s: counter 0 is the TSC", cpu->name);
}

static const struct Processor *find_processor(void)
{
    uint32_t eax = cpuid_reg(1, 0, 0), edx = cpuid_reg(1, 0, 3);
    unsigned family = eax >> 8 & 15, model = eax >> 4 & 15;

    switch (cpuid_reg(0, 0, 1)) {
    case 0x756e6547:                    /* "Genu" */
        has_rdpmc = edx & CPUID_MMX;
        return family == 5 ? &processors[P5] : NULL;
    case 0x69727943:                    /* "Cyri" */
        return family == 6 ? &processors[MII] : NULL;
    case 0x746e6543:                    /* "Cent" */
        if (family == 5) {
            /* It has one that is made of these counters. */
            write_cr4(read_cr4() | CR4_TSD);
            return edx & CPUID_TSC ? NULL :
                   &processors[model == 4 ? C6 : WINCHIP2];
        }
        return family == 6 && model >= 6 && model <= 9 ? &processors[C3] :
               NULL;
    }
    return NULL;
}

int main(void)
{
    kernel_init();
    cpu = find_processor();
    report(cpu, "a processor");
    if (!cpu) {
        return report_summary();
    }
    apic_init(LOCAL_PERFCTR_VECTOR);
    write_cr4(read_cr4() | CR4_PCE);
    clear_counters();
    test_control();
    if (cpu->cpl) {
        test_tasks();
    }
    if (has_rdpmc) {
        test_reader(3);
        test_reader(0);
    }
    test_width();
    test_absent();
    if (cpu == &processors[C3]) {
        test_tsc();
    }
    return report_summary();
}
