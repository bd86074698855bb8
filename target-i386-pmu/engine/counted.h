/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters: what is counted. */
#ifndef PMU_COUNTED_H
#define PMU_COUNTED_H

#include "retire/engine/retire.h"

/*
 * What is counted.  An event is a set of these, so each has to be counted once
 * only: a taken conditional branch that was mispredicted is one instruction,
 * one PMU_COND_TAKEN and one PMU_MISP_COND_TAKEN.
 *
 * An instruction counts at most once for each of them, up to PMU_TAGGED, and
 * PMU_INTERRUPTS alone count without one.  Of memory accesses, it counts for an
 * event PMU_MEMORY_MAX times at most, a string instruction in parts: what its
 * iterations count for may be reported before it retires.
 */
typedef enum PmuQuantity {
    PMU_INSNS,              /* instructions retired */
    PMU_COND_TAKEN,         /* Jcc, J(E/R)CXZ, LOOPcc */
    PMU_JMP_IND,            /* near, through register or memory */
    PMU_JMP,                /* near, relative */
    PMU_CALL_IND,
    PMU_CALL,
    PMU_RET,                /* near */
    PMU_COND_NOT_TAKEN,
    PMU_FAR,                /* far JMP, CALL, RET; IRET, INT, SYSCALL, ... */
    PMU_MISP_COND_TAKEN,    /* mispredicted, by what the branch really did */
    PMU_MISP_JMP_IND,
    PMU_MISP_JMP,           /* there are none: all targets are known */
    PMU_MISP_CALL_IND,
    PMU_MISP_CALL,          /* nor of these */
    PMU_MISP_RET,
    PMU_MISP_COND_NOT_TAKEN,
    PMU_INTERRUPTS,         /* hardware interrupts taken */
    PMU_TAGGED,             /* loads that pmu_tag() counts */
    PMU_LOAD_L1,            /* loads, by the place where they find the line */
    PMU_LOAD_L2,
    PMU_LOAD_L3,
    PMU_LOAD_REMOTE,        /* another processor's cache */
    PMU_LOAD_DRAM,
    PMU_LOAD_MODIFIED,      /* another processor's, which has written to it */
    PMU_LOAD_OTHER,         /* not memory */
    PMU_STORES,
    PMU_LOCKED,             /* of the loads, those with LOCK */
    PMU_SPLIT_LOADS,        /* those that straddle two lines */
    PMU_SPLIT_STORES,
    PMU_FILL_L2,            /* lines that L1D gets for loads and stores */
    PMU_FILL_FAR,           /* the same from behind L2 */
    PMU_STORE_L2,           /* of the stores, those that L1D does not have, */
    PMU_STORE_L3,           /* as loads are; what loads, too, is only a load */
    PMU_STORE_REMOTE,
    PMU_STORE_DRAM,
    PMU_STORE_MODIFIED,
    PMU_TLB_LOAD_L2,        /* pages that DTLB gets for loads, from STLB, */
    PMU_TLB_LOAD_WALK,      /* and by a walk of page tables, */
    PMU_TLB_STORE_L2,       /* for stores that are no loads, */
    PMU_TLB_STORE_WALK,
    PMU_STLB_MISS_LOADS,    /* the instructions' loads that need walks, */
    PMU_STLB_MISS_STORES,   /* and such stores */
    PMU_FETCHES,            /* lines of code, one behind the other */
    PMU_FETCH_MISSES,       /* those of them that L1I does not have */
    PMU_TLB_FETCH_L2,       /* pages that ITLB gets */
    PMU_TLB_FETCH_WALK,
    PMU_CODE_STORES,        /* stores to lines that L1I has */
    PMU_NR_COUNTED,         /* those above are reported by pmu_count() */
    /* The clocks follow from PMU_INSNS, see PmuConfig. */
    PMU_CYCLES = PMU_NR_COUNTED,
    PMU_REF_CYCLES,
    PMU_FLOATING,           /* as pmu_count_fp() has it */
    PMU_NR_QUANTITIES
} PmuQuantity;

#define PMU_FP_MAX          16  /* counts of an instruction */

#define PMU_BIT(quantity)   (1ull << (quantity))

/* Quantities that somebody has to predict branches for. */
#define PMU_MISPREDICTED    ((PMU_BIT(PMU_INTERRUPTS) - \
                              PMU_BIT(PMU_MISP_COND_TAKEN)) & \
                             ~(PMU_BIT(PMU_MISP_JMP) | PMU_BIT(PMU_MISP_CALL)))

/* Loads of any kind, and all quantities of memory accesses. */
#define PMU_LOADS           (PMU_BIT(PMU_STORES) - PMU_BIT(PMU_LOAD_L1))
#define PMU_MEMORY          (PMU_BIT(PMU_NR_COUNTED) - PMU_BIT(PMU_LOAD_L1))
#define PMU_TLB             (PMU_BIT(PMU_FETCHES) - PMU_BIT(PMU_TLB_LOAD_L2))
#define PMU_FETCHED         (2 * PMU_BIT(PMU_TLB_FETCH_WALK) - \
                             PMU_BIT(PMU_FETCHES))
#define PMU_MEMORY_MAX      128

#endif
