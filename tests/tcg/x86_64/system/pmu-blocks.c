/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counters that overflow all the time, or, with EVENT 0, the same instructions
 * without: what a plugin is told of blocks must not depend on that.
 */

#include "pmu-kernel.h"

#ifndef EVENT
#define EVENT           0xc0            /* instructions */
#endif

int main(void)
{
    kernel_init();
    apic_init(LVT_MASKED);
    wrmsr(MSR_EVTSEL(0), EVENT ? EVENT | EVTSEL_OS | EVTSEL_INT | EVTSEL_EN :
                         0);
    for (int n = 0; n < 1000; n++) {
        wrmsr(MSR_GLOBAL_CTRL, 0);
        wrmsr(MSR_PMC(0), -(n % 100 + 1));
        wrmsr(MSR_GLOBAL_CTRL, 1);
        for (int i = 0; i < 20; i++) {
            asm volatile("nop\n nop\n test $3, %0\n jz 1f\n nop\n 1: nop"
                         : : "r" (i) : "cc");
        }
    }
    wrmsr(MSR_GLOBAL_CTRL, 0);
    report(rdmsr(MSR_GLOBAL_STATUS) == !!EVENT, "overflows");
    return report_summary();
}
