// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ROUNDS times some 4,000 ops at CPL 0, where the one behind PERIOD others is
 * sampled, if there are so many; nobody hears of it.  FSIN, which nothing else
 * here executes, marks the ends of what is measured.
 */
#include "pmu-kernel.h"

/* IbsOpCtl: MaxCnt, enabled, by ops */
enum { MSR_IBS_OP_CTL = 0xc0011033,
       IBS_OP = (PERIOD >> 4 & 0xffff) | PERIOD >> 20 << 20 | 10 << 16 };

static void mark(void)
{
    asm volatile("fldz\n fsin\n fstp %st(0)");
}

int main(void)
{
    kernel_init();
    for (int i = 0; i < 6; i++) {
        wrmsr(MSR_PERF_CTL(i), 0);      /* what count_all() has started */
    }
    apic_init(LVT_MASKED);
    for (int i = 0; i < 2; i++) {
        mark();
        for (int round = 0; round < ROUNDS; round++) {
            uint32_t n = 1328;

            wrmsr(MSR_IBS_OP_CTL, IBS_OP);
            asm volatile("1: mov %1, %%eax\n dec %0\n jnz 1b"
                         : "+r" (n) : "m" (regs.rax) : "eax");
        }
    }
    mark();
    /* Whether the last round has had its sample */
    out8(0xe9, '0' + (rdmsr(MSR_IBS_OP_CTL) >> 18 & 1));
    return 0;
}
