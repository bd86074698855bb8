/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counters of processors older than P6, or made in their way: what selects an
 * event there is shown as a PERFEVTSEL of an AMD's, which has a high part of
 * the event code as well.
 */
#ifndef PMU_OLD_H
#define PMU_OLD_H

#include <stdint.h>

typedef enum PmuOld {
    PMU_OLD_NONE,
    /* Both counters are controlled by halves of CESR. */
    PMU_OLD_P5,
    PMU_OLD_6X86MX,
    PMU_OLD_WINCHIP,
    /* Counter 0 is the TSC, and only 1 has a control register. */
    PMU_OLD_C3,
} PmuOld;

/* What RESET leaves in C3's */
#define PMU_OLD_C3_RESET    0x00070079

/* The bits that the control of counter @n keeps; all others are ignored. */
uint32_t pmu_old_mask(PmuOld old, unsigned n);

/* The event select that stands for @control of counter @n. */
uint64_t pmu_old_select(PmuOld old, unsigned n, uint32_t control);

#endif
