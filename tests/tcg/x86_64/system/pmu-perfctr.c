/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Performance counters as perfctr's low-level driver uses them (its document
 * low-level-x86.txt): a-mode counters accumulate differences, i-mode counters
 * start at a negative value and interrupt when it becomes 0, programs read
 * their counters with RDPMC, and all of this belongs to a task.
 *
 * Of the processors in that document there are P6, K7 and K8 here, with their
 * successors, and the generic x86 that has a TSC only.
 */

#include "pmu-driver.h"

#define MAX_COUNTERS    4
#define P6_RESERVED     0x00280000u     /* evntsel bits 21 and 19 */

/* The registers */
static const struct Processor {
    const char *name;
    uint32_t evntsel, perfctr;          /* MSRs of counter 0 */
    int counters;
    bool own_enable;                    /* each evntsel has bit 22 */
    bool masks;                         /* an interrupt masks LVTPC: not P6's */
    uint8_t insns, branches;            /* events */
} processors[] = {
    { "P6", MSR_EVTSEL(0), MSR_PMC(0), 2, false, false, 0xc0, 0xc4 },
    /* And Core Duo, of which the driver makes the same */
    { "Pentium M", MSR_EVTSEL(0), MSR_PMC(0), 2, false, true, 0xc0, 0xc4 },
    /* What software for P6 finds after RESET */
    { "architectural", MSR_EVTSEL(0), MSR_PMC(0), 2, true, true, 0xc0, 0xc4 },
    { "K7", MSR_K7_EVTSEL(0), MSR_K7_PERFCTR(0), 4, true, false, 0xc0,
      0xc2 },
    { "generic" },
};
enum { P6, PENTIUM_M, ARCHITECTURAL, K7, GENERIC };
static const struct Processor *cpu;
static int width;                       /* of its counters */

typedef struct Control {
    bool tsc_on;
    int nractrs, nrictrs;               /* i-mode ones come last */
    int pmc_map[MAX_COUNTERS];
    uint32_t evntsel[MAX_COUNTERS];
    int32_t ireset[MAX_COUNTERS];
} Control;

typedef struct State {
    Control control;
    uint32_t id;                        /* of the control data */
    Sum tsc, pmc[MAX_COUNTERS];
} State;

/* Of the processor: what its registers have */
static struct {
    uint32_t id;
    uint32_t evntsel[MAX_COUNTERS];
} cache;
static unsigned msr_writes;

typedef struct Task {
    Regs regs;
    State state;
    unsigned interrupts;
} Task;

static void write_evntsel(int i, uint32_t val)
{
    if (cache.evntsel[i] != val) {
        cache.evntsel[i] = val;
        wrmsr(cpu->evntsel + i, val);
        msr_writes++;
    }
}

static void write_perfctr(int i, int32_t val)
{
    wrmsr(cpu->perfctr + i, (int64_t)val);
    msr_writes++;
}

static int nr_counters(const State *s)
{
    return s->control.nractrs + s->control.nrictrs;
}

static bool check_evntsel(const Control *c, int n)
{
    uint32_t evntsel = c->evntsel[n];
    bool interrupts = n >= c->nractrs;
    bool enable = cpu->own_enable || c->pmc_map[n] == 0;

    return !(evntsel & P6_RESERVED) && !!(evntsel & EVTSEL_EN) == enable &&
           !!(evntsel & EVTSEL_INT) == interrupts &&
           (!interrupts || c->ireset[n] < 0);
}

/* The caller has changed the control data; whether they are valid. */
static bool update_control(State *s)
{
    static uint32_t last_id;
    const Control *c = &s->control;
    uint32_t used = 0;

    s->id = 0;
    if (nr_counters(s) > cpu->counters) {
        return false;
    }
    for (int n = 0; n < nr_counters(s); n++) {
        if (c->pmc_map[n] >= cpu->counters || (used >> c->pmc_map[n] & 1) ||
            !check_evntsel(c, n)) {
            return false;
        }
        used |= 1u << c->pmc_map[n];
        s->pmc[n].start = n >= c->nractrs ? c->ireset[n] : 0;
        s->pmc[n].sum = 0;
    }
    if (used && !cpu->own_enable && !(used & 1)) {
        return false;                   /* EVNTSEL0 has the enable bit. */
    }
    s->tsc.sum = 0;
    s->id = ++last_id;
    return true;
}

static void write_control(const State *s)
{
    if (cache.id == s->id) {
        return;
    }
    for (int n = 0; n < nr_counters(s); n++) {
        write_evntsel(s->control.pmc_map[n], s->control.evntsel[n]);
    }
    cache.id = s->id;
}

static void suspend(State *s)
{
    if (s->control.tsc_on) {
        accumulate(&s->tsc, rdtsc());
    }
    for (int n = 0; n < nr_counters(s); n++) {
        accumulate(&s->pmc[n], rdpmc(s->control.pmc_map[n]));
    }
    /* An interrupt must not come in another task. */
    for (int n = s->control.nractrs; n < nr_counters(s); n++) {
        write_evntsel(s->control.pmc_map[n], 0);
        cache.id = 0;
    }
}

static void resume(State *s)
{
    for (int n = s->control.nractrs; n < nr_counters(s); n++) {
        int i = s->control.pmc_map[n];

        write_evntsel(i, 0);
        write_perfctr(i, s->pmc[n].start);
    }
    write_control(s);
    s->tsc.start = rdtsc();
    for (int n = 0; n < s->control.nractrs; n++) {
        s->pmc[n].start = rdpmc(s->control.pmc_map[n]);
    }
}

/* After suspend(): the counters that have overflowed start again. */
static unsigned identify_overflow(State *s)
{
    unsigned mask = 0;

    for (int n = s->control.nractrs; n < nr_counters(s); n++) {
        mask |= restarts(&s->pmc[n], s->control.ireset[n]) << n;
    }
    return mask;
}

/* The task runs until it is interrupted, or ends; returns the vector. */
static unsigned run_task(Task *t)
{
    unsigned vector;

    regs = t->regs;
    resume(&t->state);
    vector = run();
    t->regs = regs;
    suspend(&t->state);
    if (interrupted(vector)) {
        if (cpu->masks) {
            APIC(APIC_LVTPC) = LOCAL_PERFCTR_VECTOR;
        }
        t->interrupts++;
    }
    return vector;
}

static uint32_t enable(int pmc)
{
    return cpu->own_enable || pmc == 0 ? EVTSEL_EN : 0;
}

/* Counters 0 and 1, at CPL 3 */
static Control a_mode(void)
{
    return (Control) {
        .tsc_on = true, .nractrs = 2, .pmc_map = { 0, 1 },
        .evntsel = { cpu->insns | EVTSEL_USR | enable(0),
                     cpu->branches | EVTSEL_USR | enable(1) },
    };
}

/* The first is an a-mode one; the second interrupts. */
static Control i_mode(uint8_t event, int32_t ireset)
{
    Control c = a_mode();

    c.nractrs = c.nrictrs = 1;
    c.evntsel[1] = event | EVTSEL_USR | EVTSEL_INT | enable(1);
    c.ireset[1] = ireset;
    return c;
}

static void test_control(void)
{
    State s = { .control = a_mode() };
    bool ok = update_control(&s);

    report(ok, "%s: control data of two a-mode counters are valid", cpu->name);
    s.control.evntsel[0] |= EVTSEL_INT;
    ok = !update_control(&s);
    s.control = a_mode();
    s.control.evntsel[1] ^= EVTSEL_EN;
    ok &= !update_control(&s);
    s.control = i_mode(cpu->insns, 1);
    ok &= !update_control(&s);
    s.control = a_mode();
    s.control.pmc_map[1] = 0;
    ok &= !update_control(&s);
    report(ok, "%s: control data that its registers do not allow are not",
           cpu->name);
}

/* Two tasks take turns. */
static void test_a_mode(void)
{
    static Task a, b;
    unsigned first, again;

    a.state.control = a_mode();
    b.state.control = a_mode();
    /* The other way round */
    b.state.control.evntsel[0] = cpu->branches | EVTSEL_USR | enable(0);
    b.state.control.evntsel[1] = cpu->insns | EVTSEL_USR | enable(1);
    update_control(&a.state);
    update_control(&b.state);
    start_program(&a.regs, program, 300);
    start_program(&b.regs, other, 500);
    take_turns(run_task, &a, &b);
    report(a.state.pmc[0].sum == PROGRAM_INSNS(300) &&
           a.state.pmc[1].sum == PROGRAM_BRANCHES(300),
           "%s: a-mode counters of a task sum up what it does", cpu->name);
    report(b.state.pmc[0].sum == OTHER_BRANCHES(500) &&
           b.state.pmc[1].sum == OTHER_INSNS(500),
           "%s: those of the other task, too", cpu->name);
    report(a.state.tsc.sum && b.state.tsc.sum, "%s: and the TSC", cpu->name);

    start_program(&a.regs, program, 3);
    msr_writes = 0;
    run_task(&a);
    first = msr_writes;
    run_task(&a);
    again = msr_writes - first;
    report(first == 2 && again == 0,
           "%s: registers that have their values already are not written",
           cpu->name);
}

static void test_rdpmc(void)
{
    static Task t;

    t.state.control = a_mode();
    update_control(&t.state);
    start_program(&t.regs, reader, 0);
    report(run_task(&t) == EXIT && (uint32_t)t.regs.rax == 103,
           "%s: a program counts 103 instructions with RDPMC", cpu->name);
}

/* Every @period events, wherever the task has been suspended in between */
static void test_i_mode(const char *name, uint8_t event, int period,
                        uint64_t total)
{
    static Task t, between;
    bool ok = true;
    unsigned vector;
    uint64_t insns = PROGRAM_INSNS(300);

    t.state.control = i_mode(event, -period);
    between.state.control = a_mode();
    update_control(&t.state);
    update_control(&between.state);
    t.interrupts = 0;
    start_program(&t.regs, program, 300);
    do {
        unsigned before = t.interrupts;
        unsigned mask;

        vector = run_task(&t);
        mask = identify_overflow(&t.state);
        ok &= mask == (t.interrupts != before ? 2 : 0) &&
              t.state.pmc[1].sum / period == t.interrupts;
        if (t.interrupts & 1) {
            start_program(&between.regs, program, 2);
            ok &= run_task(&between) == YIELD;
        }
    } while (vector != EXIT);
    report(ok && t.interrupts == total / period &&
           t.state.pmc[1].sum == total && t.state.pmc[0].sum == insns,
           "%s: i-mode counter, each %d %s: %d interrupts", cpu->name, period,
           name, (int)(total / period));
}

/* Negative start values: it overflows when the sign changes. */
static void test_start_values(void)
{
    static Task t;
    bool ok = true;

    for (int32_t left = 1; left < 1000; left += 37) {
        t.state.control = i_mode(cpu->insns, -left);
        update_control(&t.state);
        start_program(&t.regs, nops, 0);
        ok &= run_task(&t) == LOCAL_PERFCTR_VECTOR &&
              t.regs.rip == (uintptr_t)nops + left &&
              t.state.pmc[1].start == 0 && t.state.pmc[1].sum == left;
    }
    report(ok, "%s: a counter that starts at -n interrupts behind "
           "instruction n", cpu->name);
    t.state.control = i_mode(cpu->insns, -0x7fffffff);
    update_control(&t.state);
    start_program(&t.regs, nops, 0);
    report(run_task(&t) == EXIT && t.state.pmc[1].sum == 1001 &&
           rdmsr(cpu->perfctr + 1) >> 31 == (1ull << (width - 31)) - 1,
           "%s: negative values are extended to a counter's width", cpu->name);
}

static void test_deactivated(void)
{
    static Task t;

    APIC(APIC_LVTPC) = LVT_MASKED | LOCAL_PERFCTR_VECTOR;
    t.state.control = i_mode(cpu->insns, -100);
    update_control(&t.state);
    start_program(&t.regs, nops, 0);
    report(run_task(&t) == EXIT && t.state.pmc[1].sum == 1001,
           "%s: with LVTPC masked it counts, and does not interrupt",
           cpu->name);
    APIC(APIC_LVTPC) = LOCAL_PERFCTR_VECTOR;
}

static void test_tsc(void)
{
    static Task t;
    uint64_t before;

    t.state.control.tsc_on = true;
    report(update_control(&t.state), "%s: the TSC alone is valid", cpu->name);
    start_program(&t.regs, program, 100);
    while (run_task(&t) == YIELD) {
        /* go on */
    }
    before = t.state.tsc.sum;
    start_program(&t.regs, nops, 0);
    report(run_task(&t) == EXIT && before && t.state.tsc.sum > before,
           "%s: a task's TSC advances", cpu->name);
    t.state.control.nractrs = cpu->counters + 1;
    report(!update_control(&t.state), "%s: there are %d counters", cpu->name,
           cpu->counters);
}

static void find_processor(void)
{
    uint32_t vendor = cpuid_reg(0, 0, 1);

    if (vendor == 0x756e6547) {         /* "Genu" */
        bool has_leaf = cpuid_reg(0, 0, 0) >= 10 && cpuid_reg(10, 0, 0);
        uint32_t eax = cpuid_reg(1, 0, 0);
        unsigned model = (eax >> 4 & 15) | (eax >> 12 & 0xf0);

        cpu = &processors[model == 9 || model == 13 || model == 14 ?
                          PENTIUM_M : has_leaf ? ARCHITECTURAL : P6];
        width = has_leaf ? cpuid_reg(10, 0, 0) >> 16 & 0xff : 40;
    } else if (vendor == 0x68747541) {  /* "Auth" */
        cpu = &processors[K7];
        width = 48;
    } else {
        cpu = &processors[GENERIC];
    }
}

int main(void)
{
    kernel_init();
    find_processor();
    apic_init(LOCAL_PERFCTR_VECTOR);
    if (cpu->counters) {
        write_cr4(read_cr4() | CR4_PCE);
        for (int i = 0; i < cpu->counters; i++) {
            wrmsr(cpu->evntsel + i, 0);
        }
        test_control();
        test_a_mode();
        test_rdpmc();
        test_i_mode("instructions", cpu->insns, 17, PROGRAM_INSNS(300));
        test_i_mode("instructions", cpu->insns, 100, PROGRAM_INSNS(300));
        test_i_mode("branches", cpu->branches, 7, PROGRAM_BRANCHES(300));
        test_start_values();
        test_deactivated();
    }
    test_tsc();
    return report_summary();
}
