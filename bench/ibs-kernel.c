// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ROUNDS times some 4,000 ops at CPL 0, where the one behind PERIOD others is
 * sampled, if there are so many; nobody hears of it.  FSIN, which nothing else
 * here executes, marks the ends of what is measured.
 */
#include "bench-kernel.h"

int main(void)
{
    kernel_init();
    stop_counters();
    apic_init(LVT_MASKED);
    for (int i = 0; i < 2; i++) {
        mark();
        for (int round = 0; round < ROUNDS; round++) {
            uint32_t n = 1328;

            wrmsr(MSR_IBS_OP_CTL, IBS_OP_EVERY(PERIOD));
            asm volatile("1: mov %1, %%eax\n dec %0\n jnz 1b"
                         : "+r" (n) : "m" (regs.rax) : "eax");
        }
    }
    mark();
    /* Whether the last round has had its sample */
    out8(0xe9, '0' + (rdmsr(MSR_IBS_OP_CTL) >> 18 & 1));
    return 0;
}
