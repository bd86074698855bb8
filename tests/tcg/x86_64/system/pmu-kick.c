/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Another processor interrupts one that counts, again and again: it hears of
 * that at once, though a TB that counts may undo the request to leave it.  In
 * these loops the budget of instructions is never used up, or only by and by.
 * And where the budget ends, interrupts gather; that is not at an overflow.
 */

#include "pmu-kick.h"

enum { PERIOD = 60000 };

CODE(loop_rdpmc, "xor %ecx, %ecx\n 1: rdpmc\n jmp 1b")
CODE(loop_jmp, "1: jmp 1b")
CODE(loop_rep, "1: mov $0x100000, %esi\n mov $0x100000, %ecx\n rep lodsb\n"
     "jmp 1b")

/* An overflow is no likelier place than another. */
static void test_overflow(void)
{
    int gathered = 0;

    wrmsr(MSR_EVTSEL(0), 0xc0 | EVTSEL_USR | EVTSEL_INT | EVTSEL_EN);
    for (int i = 0; i < KICKS; i++) {
        uint64_t past;

        wrmsr(MSR_PMC(0), -PERIOD);
        gathered += slowest_kick(loop_jmp, 1, NULL) == UINT64_MAX;
        past = rdmsr(MSR_PMC(0)) + 8;
        gathered += past << 16 >> 16 <= 16;
    }
    report(gathered < KICKS / 50, "%d of %d interrupts come where a counter "
           "overflows", gathered, KICKS);
}

int main(void)
{
    kernel_init();
    write_cr4(read_cr4() | CR4_PCE);
    apic_init(LVT_MASKED);
    start_ap64(1, ap_stack + sizeof(ap_stack));
    for (int on = 0; on < 2; on++) {
        wrmsr(MSR_EVTSEL(0), 0xc0 | EVTSEL_USR | EVTSEL_EN);
        wrmsr(MSR_GLOBAL_CTRL, on);
        test_kicks(on ? "JMP, counted" : "JMP", loop_jmp, NULL);
        test_kicks(on ? "RDPMC, counted" : "RDPMC", loop_rdpmc, NULL);
        test_kicks(on ? "REP, counted" : "REP", loop_rep, NULL);
    }
    test_overflow();
    return report_summary();
}
