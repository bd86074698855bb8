/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Accesses to memory at random, for a comparison with what the plugin libcache
 * counts: that has the same L1D, but counts from the first instruction of the
 * firmware on.  So the program is run with one round and with two.  A round
 * ends with a walk that leaves the same lines in L1D, in the same order; then
 * all that differs are the lines that the second one has had to fetch.
 *
 * All accesses are aligned: to the plugin one to two lines is one.
 */

#include "pmu-kernel.h"

#ifndef ROUNDS
#define ROUNDS          1
#endif

#define MEMORY          0x2000000
#define MASK            0xfff8          /* four times L1D */
#define L1D             0x4000
#define LINE            64

static uint64_t access(uint64_t x)
{
    uint64_t *p = (uint64_t *)(MEMORY + (x >> 8 & MASK));

    switch (x >> 28) {
    case 0 ... 6:
        asm volatile("mov %1, %0" : "=r" (x) : "m" (*p));
        break;
    case 7 ... 10:
        asm volatile("mov %1, %0" : "=m" (*p) : "r" (x));
        break;
    case 11:
        asm volatile("add %1, %0" : "+m" (*p) : "r" (x));
        break;
    case 12:
        asm volatile("lock xadd %1, %0" : "+m" (*p), "+r" (x));
        break;
    case 13:
        asm volatile("push %0\n pop %0" : "+m" (*p));
        break;
    case 14:
        asm volatile("rep stosq" : "+D" (p), "=c" (x) : "1" (9), "a" (x)
                     : "memory");
        break;
    case 15:
        asm volatile("push %%rsi\n lea 0x1000(%0), %%rsi\n rep movsb\n"
                     "pop %%rsi" : "+D" (p), "=c" (x) : "1" (20) : "memory");
        break;
    }
    return x;
}

int main(void)
{
    uint64_t x = 1, lines;

    kernel_init();
    wrmsr(MSR_PMC(0), 0);
    wrmsr(MSR_EVTSEL(0), 0x0151 | EVTSEL_OS | EVTSEL_EN);
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < 100000; i++) {
            x = (uint32_t)(x * 1664525 + 1013904223);
            access(x);
        }
        for (uintptr_t p = MEMORY; p < MEMORY + L1D; p += LINE) {
            asm volatile("cmpb $0, (%0)" : : "r" (p) : "memory", "cc");
        }
    }
    wrmsr(MSR_EVTSEL(0), 0);
    lines = rdmsr(MSR_PMC(0));
    report(lines > ROUNDS * 10000, "many accesses miss L1D");
    /* As many digits in both runs */
    test_printf("lines %ld\n", lines + 1000000000000);
    return report_summary();
}
