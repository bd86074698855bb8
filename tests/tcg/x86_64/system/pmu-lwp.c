/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LWP and counters at once.  Programs that LWP counts use RDPMC while no
 * counter runs: what RDPMC reports to LWP is what has retired, also if it
 * raises #GP itself or is followed by another exception.  And both agree on
 * which branches are mispredicted, because there is one predictor.
 */

#include "pmu-kernel.h"

enum { IRE = 2, BRE = 3 };

#define RING_SIZE       (2 * PAGE)
#define MISPREDICTED    0x00c5
#define PRD             0x4000

CODE(code_rdpmc_bad, "nop\n nop\n nop\n rdpmc\n nop\n nop")
CODE(code_ud, "nop\n nop\n nop\n ud2\n nop\n nop")
CODE(code_rdpmc, "nop\n nop\n rdpmc\n nop\n nop\n ud2\n nop\n nop")
CODE(code_nop, "nop\n nop\n nop\n nop\n nop\n ud2\n nop\n nop")

/* What LWP has counted when @code has ended in @vector */
static int counted(void (*code)(void), uint32_t ecx, unsigned vector)
{
    const int interval = 100000;

    prepare(1u << IRE);
    cb->event[IRE - 1].interval = cb->event[IRE - 1].counter = interval;
    at_cpl(3, llwpcb(user_cb));
    for (int i = 0; i < 5; i++) {
        set_up(USER_CODE64, (uintptr_t)code);
        regs.rcx = ecx;
        if (run() != vector) {
            return -1;
        }
    }
    slwpcb();
    return interval - cb->event[IRE - 1].counter;
}

/*
 * 30 rounds of up to seven branches of all kinds: three by pseudo-random bits,
 * two of which are conditional, and the other one is an indirect jump.
 */
CODE(code_branches,
     "llwpcb %rax\n mov $30, %ecx\n"
     "1: imul $1664525, %ebx\n add $1013904223, %ebx\n js 2f\n nop\n"
     "2: bt $30, %ebx\n jnc 3f\n call 7f\n"
     "3: mov %ebx, %eax\n shr $28, %eax\n and $2, %eax\n"
     "lea 4f(%rip), %rdx\n add %rax, %rdx\n jmp *%rdx\n"
     "4: xchg %ax, %ax\n"
     "5: lea 7f(%rip), %rdx\n test $15, %cl\n jnz 6f\n call *%rdx\n"
     "6: dec %ecx\n jnz 1b\n jmp 8f\n"
     "7: ret\n 8:")

/* Run that; returns how many of its branches a counter says are mispredicted */
static unsigned mispredicted(uint32_t filters, int interval)
{
    static uint32_t seed = 1;

    prepare(1u << BRE);
    cb->size = RING_SIZE;
    cb->filters = filters;
    cb->event[BRE - 1].interval = cb->event[BRE - 1].counter = interval;
    wrmsr(MSR_EVTSEL(0), MISPREDICTED | EVTSEL_USR | EVTSEL_EN);
    wrmsr(MSR_PMC(0), 0);
    wrmsr(MSR_GLOBAL_CTRL, 1);
    set_up(USER_CODE64, (uintptr_t)code_branches);
    regs.rax = (uintptr_t)user_cb;
    regs.rbx = seed;
    run();
    seed = regs.rbx;
    wrmsr(MSR_GLOBAL_CTRL, 0);
    slwpcb();
    return rdmsr(MSR_PMC(0));
}

static void test_predictions(void)
{
    const int interval = 100000;

    for (int run = 0; run < 4; run++) {
        unsigned counted = mispredicted(0, 0), wrong = 0, n;

        n = cb->head / sizeof(LwpRecord);
        for (unsigned i = 0; i < n; i++) {
            wrong += !(ring[i].flags & PRD);
        }
        report(n > 120 && !cb->missed && wrong && wrong == counted,
               "of %u branches, LWP sees %u mispredicted, a counter %u", n,
               wrong, counted);

        counted = mispredicted(FILTER_NPB, 0);
        n = cb->head / sizeof(LwpRecord);
        report(n && n == counted,
               "that are mispredicted: LWP records %u, a counter has %u", n,
               counted);

        counted = mispredicted(FILTER_NPB, interval);
        n = interval - cb->event[BRE - 1].counter;
        report(n && n == counted,
               "that are mispredicted: LWP counts %u, a counter %u", n,
               counted);
    }
}

int main(void)
{
    int bad, ud, good, nop;

    kernel_init();
    lwp_make_available();
    wrmsr(MSR_GLOBAL_CTRL, 0);
    write_cr4(read_cr4() | CR4_PCE);
    bad = counted(code_rdpmc_bad, -1, GP);
    ud = counted(code_ud, 0, UD);
    report(bad > 0 && bad == ud, "RDPMC that is #GP: LWP counts %d, as %d",
           bad, ud);
    good = counted(code_rdpmc, 0, UD);
    nop = counted(code_nop, 0, UD);
    report(good > 0 && good == nop, "RDPMC before #UD: LWP counts %d, as %d",
           good, nop);
    test_predictions();
    return report_summary();
}
