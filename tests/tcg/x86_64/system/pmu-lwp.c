/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Programs that LWP counts use RDPMC while no counter runs: what RDPMC reports
 * to LWP is what has retired, also if it raises #GP itself or is followed by
 * another exception.
 */

#include "pmu-kernel.h"

enum { IRE = 2 };

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
    return report_summary();
}
