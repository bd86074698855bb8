/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What counts of task switches, and in virtual 8086 mode, as both exist without
 * long mode only: a JMP, CALL, INT or IRET that switches tasks is a far branch
 * of the old task, and what it switches to counts with its own privilege.
 *
 * Runs on a PMU like Skylake's.  The output is the same with -icount shift=0
 * and with one-insn-per-tb=on.
 */

#include "pmu-count.h"
#include "pmu-legacy.h"

enum { NMI = 2, NP = 11, SOFT = 33, ABSENT = 34 };

/* Selectors, of which some have another use in long mode */
enum { TASK_GATE = 0x38, OTHER_TSS = 0x40, ABSENT_TSS = 0x50 };

#define ACC_ABSENT_TSS  (ACC_TSS - 0x80)

#define V86_CODE        0x8000
#define WIDTH_MASK      ((1ull << 48) - 1)

static Tss other_tss;
static uint8_t other_stack[1024] __attribute__((aligned(16)));
uint32_t nmis;

LEGACY(nothing, "")
LEGACY(jump, "nop\n ljmp $0x40, $0\n nop")
LEGACY(call, "nop\n lcall $0x40, $0\n nop")
LEGACY(jump_gate, "nop\n ljmp $0x3b, $0\n nop")
LEGACY(call_gate, "nop\n lcall $0x3b, $0\n nop")
LEGACY(call_absent, "nop\n lcall $0x53, $0\n nop")
LEGACY(interrupt, "nop\n int $33\n nop")
LEGACY(interrupt_absent, "nop\n int $34\n nop")
LEGACY(undefined, "nop\n ud2\n nop")
LEGACY(enter_v86, "push $0\n push $0\n push $0\n push $0\n push $0\n"
       "push $0x7000\n push $0x23002\n push $0\n push $0x8000\n iret")

/* What else runs */
LEGACY(jump_back, "ljmp $0x68, $0")
LEGACY(go_back, "iret")
LEGACY(skip_ud2, "addl $2, main_tss + 32\n iret")
LEGACY(skip_error_2, "add $4, %esp\n addl $2, (%esp)\n iret")
LEGACY(count_nmi, "incl nmis\n iret")
LEGACY(skip_error_7, "add $4, %esp\n addl $7, (%esp)\n iret")

/* NOP, INT 33, NOP, INT EXIT of 16 bits */
static const uint8_t v86_code[] = { 0x90, 0xcd, SOFT, 0x90, 0xcd, EXIT };

typedef struct Case {
    const char *name;
    int cpl;
    void (*code)(void);
    void (*other)(void);        /* the task's, or a handler's */
    int vector;                 /* that has a handler or a task gate, or 0 */
    bool task;                  /* it is a task gate */
    int other_cpl;              /* of the task */
    /* What counts: instructions and far branches */
    int insns[2], far[2];       /* at CPL 3, at CPL 0 */
} Case;

static const Case cases[] = {
    { "JMP to a TSS and back", 0, jump, jump_back, .insns = { 0, 4 },
      .far = { 0, 2 } },
    { "CALL of a TSS, IRET", 0, call, go_back, .insns = { 0, 4 },
      .far = { 0, 2 } },
    { "CALL of a task of CPL 3, IRET", 0, call, go_back, .other_cpl = 3,
      .insns = { 1, 3 }, .far = { 1, 1 } },
    { "JMP to a task gate, JMP to a TSS", 0, jump_gate, jump_back,
      .insns = { 0, 4 }, .far = { 0, 2 } },
    { "JMP to a task gate, JMP to a TSS", 3, jump_gate, jump_back,
      .insns = { 3, 1 }, .far = { 1, 1 } },
    { "CALL of a task gate, IRET", 0, call_gate, go_back, .insns = { 0, 4 },
      .far = { 0, 2 } },
    { "CALL of a task gate, IRET", 3, call_gate, go_back, .insns = { 3, 1 },
      .far = { 1, 1 } },
    { "CALL of a task gate, task of CPL 3", 3, call_gate, go_back,
      .other_cpl = 3, .insns = { 4, 0 }, .far = { 2, 0 } },
    { "INT n through a task gate, IRET", 0, interrupt, go_back, SOFT, true,
      .insns = { 0, 4 }, .far = { 0, 2 } },
    { "INT n through a task gate, IRET", 3, interrupt, go_back, SOFT, true,
      .insns = { 3, 1 }, .far = { 1, 1 } },
    { "#UD through a task gate, IRET", 0, undefined, skip_ud2, UD, true,
      .insns = { 0, 4 }, .far = { 0, 1 } },
    { "#UD through a task gate, IRET", 3, undefined, skip_ud2, UD, true,
      .insns = { 2, 2 }, .far = { 0, 1 } },
    { "CALL of a TSS that is not present", 0, call_absent, skip_error_7, NP,
      .insns = { 0, 5 }, .far = { 0, 1 } },
    { "CALL of a TSS that is not present", 3, call_absent, skip_error_7, NP,
      .insns = { 2, 3 }, .far = { 0, 1 } },
    { "INT n to a TSS that is not present", 0, interrupt_absent, skip_error_2,
      NP, .insns = { 0, 5 }, .far = { 0, 1 } },
    { "INT n to a TSS that is not present", 3, interrupt_absent, skip_error_2,
      NP, .insns = { 2, 3 }, .far = { 0, 1 } },
    { "INT n, IRET", 0, interrupt, go_back, SOFT, .insns = { 0, 4 },
      .far = { 0, 2 } },
    { "INT n, IRET", 3, interrupt, go_back, SOFT, .insns = { 3, 1 },
      .far = { 1, 1 } },
    /* INT EXIT counts at CPL 3 here. */
    { "IRET to virtual 8086 mode, INT n there", 0, enter_v86, go_back, SOFT,
      .insns = { 4, 10 }, .far = { 2, 1 } },
};

static void prepare_case(const Case *c)
{
    bool user = c->other_cpl;

    legacy_init();
    other_tss = (Tss) {
        .esp0 = (uintptr_t)other_stack + sizeof(other_stack), .ss0 = DATA,
        .eip = (uintptr_t)c->other, .eflags = 2,
        .esp = (uintptr_t)other_stack + sizeof(other_stack) / 2,
        .cs = user ? USER_CODE32 : CODE32, .ss = user ? USER_DATA : DATA,
        .ds = USER_DATA, .es = USER_DATA,
    };
    set_segment(OTHER_TSS, (uintptr_t)&other_tss, sizeof(Tss) - 1, ACC_TSS, 0);
    set_segment(ABSENT_TSS, (uintptr_t)&other_tss, sizeof(Tss) - 1,
                ACC_ABSENT_TSS | ACC_USER, 0);
    gdt64_table[TASK_GATE / 8] = OTHER_TSS << 16 | TYPE_TASK_GATE;
    set_int_gate(NMI, (uintptr_t)count_nmi);
    set_task_gate(ABSENT, ABSENT_TSS);
    if (c->task) {
        set_task_gate(c->vector, OTHER_TSS);
    } else if (c->vector) {
        set_int_gate(c->vector, (uintptr_t)c->other);
    }
}

/* An instruction interrupts by an NMI: number @k, or none if that is 0. */
static bool measure(const Case *c, uint32_t rows, void (*code)(void), int k,
                    Counts *counts)
{
    prepare_case(c);
    legacy_vector = -1;
    nmis = 0;
    set_counters(rows);
    wrmsr(MSR_GLOBAL_STATUS_RESET, rdmsr(MSR_GLOBAL_STATUS));
    if (k) {
        APIC(APIC_LVTPC) = LVT_NMI;
        wrmsr(MSR_FIXED_CTR_CTRL, rdmsr(MSR_FIXED_CTR_CTRL) | FIXED_PMI);
        wrmsr(MSR_FIXED_CTR(0), -(uint64_t)k & WIDTH_MASK);
    }
    legacy_run((uintptr_t)code, c->cpl);
    *counts = stop_counting();
    load_tables();
    if (k) {
        counts->n[INSNS] = (counts->n[INSNS] + k) & WIDTH_MASK;
    }
    return legacy_vector == EXIT && nmis == (k > 0) &&
           rdmsr(MSR_GLOBAL_STATUS) == (k ? GLOBAL_FIXED(0) : 0);
}

static void test_case(const Case *c)
{
    static const uint32_t rows[] = { EVTSEL_USR, EVTSEL_OS };
    bool ok = true, unchanged = true;

    for (int r = 0; r < 2; r++) {
        Counts counts, all, overhead, want = { };

        ok &= measure(c, rows[r], nothing, 0, &overhead);
        if (!measure(c, rows[r], c->code, 0, &all)) {
            test_printf("  ended by vector %d\n", (int)legacy_vector);
            ok = false;
        }
        for (int n = 0; n < EVENTS; n++) {
            counts.n[n] = all.n[n] - overhead.n[n];
        }
        want.n[INSNS] = c->insns[r];
        want.n[FAR] = want.n[BRANCHES] = c->far[r];
        ok &= counts_are(&counts, &want);

        /* The NMI's handler has two instructions at CPL 0. */
        want = all;
        want.n[INSNS] += 2 * r;
        want.n[FAR] += r;
        want.n[BRANCHES] += r;
        for (uint64_t k = 1; k <= all.n[INSNS]; k++) {
            bool interrupted = measure(c, rows[r], c->code, k, &counts);

            if (!counts_are(&counts, &want) || !interrupted) {
                test_printf("  instruction %d at CPL %d, %d NMIs\n", (int)k,
                            r ? 0 : 3, (int)nmis);
                unchanged = false;
            }
        }
    }
    report(ok, "CPL %d: %s: %d instructions count at CPL 3, %d at CPL 0",
           c->cpl, c->name, c->insns[0], c->insns[1]);
    report(unchanged, "CPL %d: %s: the same if any of them interrupts", c->cpl,
           c->name);
}

int main(void)
{
    kernel_init();
    apic_init(LVT_MASKED);
    legacy_msr = MSR_GLOBAL_CTRL;
    legacy_on = ALL_COUNTERS;
    memcpy((void *)V86_CODE, v86_code, sizeof(v86_code));
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        test_case(&cases[i]);
    }
    return report_summary();
}
