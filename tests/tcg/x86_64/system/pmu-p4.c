/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Performance counters of Pentium 4 as perfctr's low-level driver uses them
 * (its document low-level-x86.txt), and what else asks for their interrupts.
 */

#include "pmu-driver.h"

enum { COUNTERS = 18 };

#define MSR_COUNTER(n)      (0x300 + (n))
#define MSR_CCCR(n)         (0x360 + (n))
#define MSR_ESCR            0x3a0
#define MSR_PEBS_ENABLE     0x3f1
#define MSR_MATRIX_VERT     0x3f2
#define FAST_RDPMC          (1u << 31)

#define CCCR_RESERVED       0xb80007ffu
#define CCCR_ENABLE         (1u << 12)
#define CCCR_SELECT(n)      ((uint32_t)(n) << 13)
#define CCCR_THREAD         (3u << 16)
#define CCCR_COMPARE        (1u << 18)
#define CCCR_COMPLEMENT     (1u << 19)
#define CCCR_THRESHOLD(n)   ((uint32_t)(n) << 20)
#define CCCR_FORCE_OVF      (1u << 25)
#define CCCR_OVF_PMI        (1u << 26)
#define CCCR_CASCADE        (1u << 30)
#define CCCR_OVF            (1u << 31)
#define CCCR_RUN            (CCCR_ENABLE | CCCR_THREAD)

#define ESCR_USR            (1u << 2)
#define ESCR_OS             (1u << 3)
#define ESCR_EVENT(event, mask) ((uint32_t)(event) << 25 | (mask) << 9)

/* Events, and the ESCR SELECT of their registers */
#define INSTR_RETIRED       ESCR_EVENT(0x02, 1)
#define GLOBAL_POWER_EVENTS ESCR_EVENT(0x13, 1)
#define BRANCH_TYPE         ESCR_EVENT(0x04, 0x1e)
#define REPLAY_EVENT        ESCR_EVENT(0x09, 1)
enum { OF_FSB = 6, OF_CRU = 4, OF_CRU2 = 5, OF_TBPU = 2 };

typedef struct Control {
    int nractrs, nrictrs;               /* i-mode ones come last */
    uint32_t pmc_map[3];
    uint32_t evntsel[3], escr[3];
    int32_t ireset[3];
    uint32_t pebs_enable, pebs_matrix_vert;
} Control;

typedef struct Task {
    Regs regs;
    Control control;
    uint32_t escr_map[3];
    Sum pmc[3];
    unsigned interrupts;
} Task;

static unsigned family, model;

/* The ESCR that a counter's CCCR selects (SDM table 18-54), or 0 */
static uint32_t escr_addr(uint32_t pmc, uint32_t cccr)
{
    static const uint8_t map[4][8] = {
        { 0xb2, 0xb4, 0xaa, 0xb6, 0xac, 0xc8, 0xa2, 0xa0 },
        { 0xc0, 0xc4, 0xc2 },
        { 0xa6, 0xa4, 0xae, 0xb0, 0, 0xa8 },
        { 0xba, 0xca, 0xbc, 0xbe, 0xb8, 0xcc, 0xe0 },
    };
    unsigned pair = (pmc < 16 ? pmc : pmc - 3) / 2, select = cccr >> 13 & 7;

    return !map[pair / 2][select] || (pair == 7 && select == 3) ? 0 :
           0x300 + map[pair / 2][select] + (pair & 1);
}

static void clear_range(uint32_t msr, int n)
{
    for (int i = 0; i < n; i++) {
        wrmsr(msr + i, 0);
    }
}

static void clear_counters(void)
{
    if (model <= 2) {
        clear_range(0x3ba, 2);
    }
    clear_range(MSR_ESCR, 26);
    clear_range(0x3bc, 3);
    clear_range(0x3c0, 6);
    clear_range(0x3c8, 6);
    clear_range(0x3e0, 2);
    clear_range(MSR_PEBS_ENABLE, 2);
    clear_range(MSR_CCCR(0), COUNTERS);
    clear_range(MSR_COUNTER(0), COUNTERS);
}

static int nr_counters(const Task *t)
{
    return t->control.nractrs + t->control.nrictrs;
}

static uint32_t pmc_of(const Task *t, int n)
{
    return t->control.pmc_map[n] & ~FAST_RDPMC;
}

static bool update_control(Task *t)
{
    const Control *c = &t->control;
    uint32_t used = 0;

    t->interrupts = 0;
    for (int n = 0; n < nr_counters(t); n++) {
        uint32_t pmc = pmc_of(t, n), cccr = c->evntsel[n];

        if (pmc >= COUNTERS || (used >> pmc & 1) || (cccr & CCCR_RESERVED) ||
            (cccr & CCCR_THREAD) != CCCR_THREAD ||
            !(cccr & (CCCR_ENABLE | CCCR_CASCADE)) ||
            !!(cccr & CCCR_OVF_PMI) != (n >= c->nractrs) ||
            (n >= c->nractrs && c->ireset[n] >= 0) || (c->escr[n] & 3)) {
            return false;
        }
        used |= 1u << pmc;
        t->escr_map[n] = escr_addr(pmc, cccr);
        if (!t->escr_map[n] || (model > 2 && (t->escr_map[n] | 1) == 0x3bb)) {
            return false;
        }
        t->pmc[n].start = n >= c->nractrs ? c->ireset[n] : 0;
        t->pmc[n].sum = 0;
    }
    return true;
}

static void suspend(Task *t)
{
    for (int n = 0; n < nr_counters(t); n++) {
        if (n >= t->control.nractrs) {
            /* Which clears OVF as well */
            wrmsr(MSR_CCCR(pmc_of(t, n)), 0);
        }
        accumulate(&t->pmc[n], rdpmc(t->control.pmc_map[n]));
    }
}

static void resume(Task *t)
{
    const Control *c = &t->control;

    for (int n = c->nractrs; n < nr_counters(t); n++) {
        wrmsr(MSR_CCCR(pmc_of(t, n)), 0);
        wrmsr(MSR_COUNTER(pmc_of(t, n)), -1ull << 32 | t->pmc[n].start);
    }
    for (int n = 0; n < nr_counters(t); n++) {
        wrmsr(t->escr_map[n], c->escr[n]);
        wrmsr(MSR_CCCR(pmc_of(t, n)), c->evntsel[n]);
    }
    wrmsr(MSR_PEBS_ENABLE, c->pebs_enable);
    wrmsr(MSR_MATRIX_VERT, c->pebs_matrix_vert);
    for (int n = 0; n < c->nractrs; n++) {
        t->pmc[n].start = rdpmc(c->pmc_map[n]);
    }
}

static unsigned identify_overflow(Task *t)
{
    unsigned mask = 0;

    for (int n = t->control.nractrs; n < nr_counters(t); n++) {
        mask |= restarts(&t->pmc[n], t->control.ireset[n]) << n;
    }
    APIC(APIC_LVTPC) = LOCAL_PERFCTR_VECTOR;
    return mask;
}

static unsigned run_task(Task *t)
{
    unsigned vector;

    regs = t->regs;
    resume(t);
    vector = run();
    t->regs = regs;
    suspend(t);
    t->interrupts += interrupted(vector);
    return vector;
}

CODE(nothing, "")
/* Branches that have a type: direct JMP and INT have none. */
#define PROGRAM_TYPES(n)    (n)
#define OTHER_TYPES(n)      (3 * (n))

/* Instructions with IQ's first counter, and conditional branches */
static Control a_mode(void)
{
    return (Control) {
        .nractrs = 3,
        .pmc_map = { FAST_RDPMC | 12, FAST_RDPMC | 4, 0 },
        .evntsel = { CCCR_RUN | CCCR_SELECT(OF_CRU),
                     CCCR_RUN | CCCR_SELECT(OF_TBPU),
                     CCCR_RUN | CCCR_SELECT(OF_FSB) },
        .escr = { INSTR_RETIRED | ESCR_USR, BRANCH_TYPE | ESCR_USR,
                  GLOBAL_POWER_EVENTS | ESCR_USR },
    };
}

/* Instructions with the same counter, and an i-mode one */
static Control i_mode(uint32_t pmc, uint32_t escr_bits, int32_t ireset)
{
    Control c = a_mode();

    c.nractrs = c.nrictrs = 1;
    c.pmc_map[1] = FAST_RDPMC | pmc;
    c.evntsel[1] = CCCR_RUN | CCCR_SELECT(OF_CRU) | CCCR_OVF_PMI;
    c.escr[1] = INSTR_RETIRED | escr_bits;
    c.ireset[1] = ireset;
    return c;
}

static void test_control(void)
{
    Task t = { .control = a_mode() };
    bool ok = update_control(&t);

    report(ok, "control data of three a-mode counters are valid");
    t.control.evntsel[0] |= CCCR_OVF_PMI;
    ok = !update_control(&t);
    t.control = a_mode();
    t.control.evntsel[0] ^= CCCR_SELECT(7 ^ OF_CRU);
    ok &= !update_control(&t);
    t.control = a_mode();
    t.control.evntsel[0] = CCCR_RUN;            /* IQ_ESCR0 */
    ok &= update_control(&t) == (model <= 2);
    t.control = i_mode(14, ESCR_USR, 1);
    ok &= !update_control(&t);
    report(ok, "control data that its registers do not allow are not");
}

static void test_a_mode(void)
{
    static Task a, b;

    a.control = a_mode();
    b.control = a_mode();
    b.control.pmc_map[0] = 17;
    update_control(&a);
    report(update_control(&b), "counter 17 for counter 12");
    start_program(&a.regs, program, 300);
    start_program(&b.regs, other, 500);
    take_turns(run_task, &a, &b);
    report(a.pmc[0].sum == PROGRAM_INSNS(300) &&
           a.pmc[1].sum == PROGRAM_TYPES(300) &&
           a.pmc[2].sum == PROGRAM_INSNS(300),
           "a-mode counters of a task sum up what it does");
    report(b.pmc[0].sum == OTHER_INSNS(500) &&
           b.pmc[1].sum == OTHER_TYPES(500),
           "those of the other task, too");
    start_program(&a.regs, reader, FAST_RDPMC | 12);
    report(run_task(&a) == EXIT && (uint32_t)a.regs.rax == 103,
           "a program counts 103 instructions with RDPMC");
}

/* Every @period instructions, wherever the task has been suspended */
static void test_i_mode(int period)
{
    static Task t;
    bool ok = true;
    unsigned vector;

    t.control = i_mode(14, ESCR_USR, -period);
    update_control(&t);
    start_program(&t.regs, program, 300);
    do {
        unsigned before = t.interrupts, mask;

        vector = run_task(&t);
        mask = identify_overflow(&t);
        ok &= mask == (t.interrupts != before ? 2 : 0) &&
              t.pmc[1].sum / period == t.interrupts;
    } while (vector != EXIT);
    report(ok && t.interrupts == PROGRAM_INSNS(300) / period &&
           t.pmc[1].sum == PROGRAM_INSNS(300) &&
           t.pmc[0].sum == PROGRAM_INSNS(300),
           "i-mode counter, each %d instructions: %d interrupts", period,
           PROGRAM_INSNS(300) / period);
}

static void test_start_values(void)
{
    static Task t;
    bool ok = true;

    for (int32_t left = 1; left < 1000; left += 37) {
        t.control = i_mode(14, ESCR_USR, -left);
        update_control(&t);
        start_program(&t.regs, nops, 0);
        ok &= run_task(&t) == LOCAL_PERFCTR_VECTOR &&
              t.regs.rip == (uintptr_t)nops + left &&
              t.pmc[1].start == 0 && t.pmc[1].sum == left;
        identify_overflow(&t);
    }
    report(ok, "a counter that starts at -n interrupts behind instruction n");
    t.control = i_mode(14, ESCR_USR, -1);
    t.control.evntsel[1] |= CCCR_FORCE_OVF;
    update_control(&t);
    start_program(&t.regs, nops, 0);
    for (int i = 1; i <= 100; i++) {
        ok &= run_task(&t) == LOCAL_PERFCTR_VECTOR &&
              t.regs.rip == (uintptr_t)nops + i && identify_overflow(&t) == 2;
    }
    report(ok, "with FORCE_OVF, behind each one");
}

/* OVF asks again as soon as LVTPC is not masked. */
static void test_level(void)
{
    const uint32_t cccr = CCCR_RUN | CCCR_SELECT(OF_CRU) | CCCR_OVF_PMI;
    bool ok;

    wrmsr(MSR_CCCR(12), 0);
    wrmsr(0x3b8, INSTR_RETIRED | ESCR_USR);
    wrmsr(MSR_COUNTER(12), -10ull);
    wrmsr(MSR_CCCR(12), cccr);
    run_function(3, nops);
    ok = rdmsr(MSR_CCCR(12)) == (cccr | CCCR_OVF) &&
         APIC(APIC_LVTPC) == (LVT_MASKED | LOCAL_PERFCTR_VECTOR) &&
         pending_vector() == LOCAL_PERFCTR_VECTOR;
    APIC(APIC_EOI) = 0;
    ok &= pending_vector() == EXIT;
    report(ok, "an overflow sets OVF, and its interrupt masks LVTPC");
    for (int i = 0; i < 3; i++) {
        APIC(APIC_LVTPC) = LOCAL_PERFCTR_VECTOR;
        ok &= pending_vector() == LOCAL_PERFCTR_VECTOR;
        APIC(APIC_EOI) = 0;
        ok &= !!(APIC(APIC_LVTPC) & LVT_MASKED);
    }
    report(ok, "it comes again when LVTPC is unmasked with OVF set");
    wrmsr(MSR_CCCR(12), rdmsr(MSR_CCCR(12)) & ~(uint64_t)CCCR_OVF);
    APIC(APIC_LVTPC) = LOCAL_PERFCTR_VECTOR;
    report(pending_vector() == EXIT && APIC(APIC_LVTPC) == LOCAL_PERFCTR_VECTOR,
           "but not without");
    /* Without OVF_PMI, it is only the flag. */
    wrmsr(MSR_CCCR(12), cccr & ~CCCR_OVF_PMI);
    wrmsr(MSR_COUNTER(12), -10ull);
    run_function(3, nops);
    ok = pending_vector() == EXIT && (rdmsr(MSR_CCCR(12)) & CCCR_OVF);
    wrmsr(MSR_CCCR(12), rdmsr(MSR_CCCR(12)) | CCCR_OVF_PMI);
    ok &= pending_vector() == LOCAL_PERFCTR_VECTOR;
    APIC(APIC_EOI) = 0;
    wrmsr(MSR_CCCR(12), 0);
    APIC(APIC_LVTPC) = LOCAL_PERFCTR_VECTOR;
    report(ok && pending_vector() == EXIT, "OVF_PMI asks for what is there");
}

/* What @code counts for @escr beyond what running nothing does */
static uint64_t compared(uint32_t escr, uint32_t select, void (*code)(void))
{
    void (*const codes[])(void) = { nothing, code };
    uint64_t counts[2];

    for (int i = 0; i < 2; i++) {
        wrmsr(0x3b8, escr);
        wrmsr(MSR_COUNTER(12), 0);
        wrmsr(MSR_CCCR(12), CCCR_RUN | select | CCCR_COMPARE |
              CCCR_COMPLEMENT | CCCR_THRESHOLD(15));
        run_function(3, codes[i]);
        wrmsr(MSR_CCCR(12), 0);
        counts[i] = rdpmc(12);
    }
    return counts[1] - counts[0];
}

/*
 * The watchdog's: cycles with any event, at most 15 of them in one, which ESCRs
 * have no say in; that of Linux' alias of cycles is not there.
 */
static void test_compare(void)
{
    report(compared(ESCR_EVENT(0x3f, 0xffff) | ESCR_USR,
                    CCCR_SELECT(OF_CRU), nops) == 1000,
           "clocks with at most 15 of any event: all");
    report(compared(ESCR_EVENT(0x3f, 0xffff) | ESCR_OS, CCCR_SELECT(OF_CRU),
                    nops) == 1000 && compared(0, 0, nops) == 1000,
           "at all levels");
}

static void test_cascade(void)
{
    wrmsr(0x3b8, INSTR_RETIRED | ESCR_USR);
    wrmsr(0x3b9, INSTR_RETIRED | ESCR_USR);
    wrmsr(MSR_COUNTER(12), -100ull);
    wrmsr(MSR_COUNTER(14), 0);
    wrmsr(MSR_CCCR(14), CCCR_THREAD | CCCR_SELECT(OF_CRU) | CCCR_CASCADE);
    wrmsr(MSR_CCCR(12), CCCR_RUN | CCCR_SELECT(OF_CRU));
    run_function(3, nops);
    report(rdpmc(14) == 901 && rdpmc(12) == 901 &&
           (rdmsr(MSR_CCCR(14)) & CCCR_ENABLE),
           "a cascaded counter counts behind the overflow of the other one");
    wrmsr(MSR_CCCR(12), 0);
    wrmsr(MSR_CCCR(14), 0);
}

/* Loads that miss L1D, by replay tagging */
static void test_replay(void)
{
    static uint8_t memory[64 * 64] __attribute__((aligned(64)));
    uint64_t counts[2];

    void walk(void)
    {
        for (int i = 0; i < sizeof(memory); i += 64) {
            asm volatile("" : : "r" (memory[i]));
        }
    }

    wrmsr(MSR_PEBS_ENABLE, 1u << 24 | 1);
    wrmsr(MSR_MATRIX_VERT, 1);
    wrmsr(0x3cc, REPLAY_EVENT | ESCR_USR);
    wrmsr(MSR_COUNTER(13), 0);
    wrmsr(MSR_CCCR(13), CCCR_RUN | CCCR_SELECT(OF_CRU2));
    for (int i = 0; i < 2; i++) {
        run_function(3, walk);
        counts[i] = rdpmc(13);
    }
    wrmsr(MSR_CCCR(13), 0);
    report(counts[0] >= 64 && counts[0] < 100 && counts[1] == counts[0],
           "replayed loads are those that miss L1D");
}

static bool faults(uint32_t msr)
{
    return at_cpl(0, rdmsr(msr)) == GP && at_cpl(0, wrmsr(msr, 0)) == GP;
}

static void test_registers(void)
{
    bool ok = true;

    for (int n = 0; n < COUNTERS; n++) {
        wrmsr(MSR_COUNTER(n), -1ull);
        ok &= rdmsr(MSR_COUNTER(n)) == (1ull << 40) - 1 &&
              rdpmc(n) == (1ull << 40) - 1 &&
              rdpmc(FAST_RDPMC | n) == 0xffffffff;
    }
    report(ok, "18 counters of 40 bits");
    ok = at_cpl(3, rdpmc(COUNTERS)) == GP &&
         at_cpl(3, rdpmc(FAST_RDPMC | COUNTERS)) == GP &&
         at_cpl(3, rdpmc(FAST_RDPMC | 17)) == EXIT;
    report(ok, "RDPMC of a counter that is not there faults");
    ok = faults(MSR_PMC(0)) && faults(MSR_EVTSEL(0)) &&
         faults(MSR_GLOBAL_CTRL) && faults(MSR_FIXED_CTR_CTRL) &&
         faults(MSR_PERF_CAPABILITIES) && faults(MSR_K7_EVTSEL(0)) &&
         faults(0x3bf) && faults(0x3ba) == (model > 2);
    report(ok, "MSRs of other processors are not there");
    ok = (rdmsr(MSR_MISC_ENABLE) & 0x1880) == 0x1880;
    wrmsr(MSR_MISC_ENABLE, 0);
    ok &= (rdmsr(MSR_MISC_ENABLE) & 0x1880) == 0x1880;
    report(ok, "IA32_MISC_ENABLE has counters, and neither BTS nor PEBS");
    report(cpuid_reg(0, 0, 0) < 10 || !cpuid_reg(10, 0, 0),
           "there is no architectural performance monitoring");
    clear_counters();
}

int main(void)
{
    uint32_t eax;

    kernel_init();
    eax = cpuid_reg(1, 0, 0);
    family = eax >> 8 & 15;
    model = (eax >> 4 & 15) | (eax >> 12 & 0xf0);
    report(cpuid_reg(0, 0, 1) == 0x756e6547 && family == 15, "a Pentium 4");
    apic_init(LOCAL_PERFCTR_VECTOR);
    write_cr4(read_cr4() | CR4_PCE);
    clear_counters();
    test_registers();
    test_control();
    test_a_mode();
    test_i_mode(17);
    test_i_mode(100);
    test_start_values();
    clear_counters();
    test_level();
    test_compare();
    test_cascade();
    test_replay();
    return report_summary();
}
