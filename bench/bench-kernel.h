/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the kernels that are measured share. */

#ifndef BENCH_KERNEL_H
#define BENCH_KERNEL_H

#include "pmu-kernel.h"

/* IbsOpCtl: MaxCnt, enabled, by ops */
enum { MSR_IBS_OP_CTL = 0xc0011033 };
#define IBS_OP_EVERY(ops)   (((ops) >> 4 & 0xffff) | (ops) >> 20 << 20 | \
                             10 << 16)

/* FSIN, which nothing else here executes: an end of what is measured. */
static inline void mark(void)
{
    asm volatile("fldz\n fsin\n fstp %st(0)");
}

/* AMD's counters that count_all() has started */
static inline void stop_counters(void)
{
    for (int i = 0; i < 6; i++) {
        wrmsr(MSR_PERF_CTL(i), 0);
    }
}

#endif
