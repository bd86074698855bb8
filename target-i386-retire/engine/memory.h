/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What retires: what an observer is told of accesses to memory, if there are
 * models of caches and TLBs (../models/).
 */
#ifndef RETIRE_MEMORY_H
#define RETIRE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* Where data came from: SRC of LWP's Figure 2-5, and two that it has not */
typedef enum RetireSource {
    RETIRE_SOURCE_L2 = 0,      /* "no valid status" */
    RETIRE_SOURCE_L3 = 1,
    RETIRE_SOURCE_REMOTE = 2,  /* another processor's cache */
    RETIRE_SOURCE_DRAM = 3,
    RETIRE_SOURCE_OTHER = 7,   /* not memory */
    RETIRE_NR_SOURCES,
    RETIRE_SOURCE_L1 = RETIRE_NR_SOURCES,     /* no miss */
    RETIRE_SOURCE_UNKNOWN,
} RetireSource;

typedef enum RetireTlbResult {
    RETIRE_TLB_L1,
    RETIRE_TLB_L2,          /* the second level has it, and now the first */
    RETIRE_TLB_WALK,        /* nobody has had it */
} RetireTlbResult;

/*
 * Memory accesses.  A read-modify-write is a load and a store; a load that
 * misses more than one line counts where the first of them was.
 */
typedef enum RetireMemory {
    RETIRE_LOADS,
    RETIRE_LOAD_L2,         /* loads that L1D does not have, by source */
    RETIRE_LOAD_L3,
    RETIRE_LOAD_REMOTE,
    RETIRE_LOAD_DRAM,
    RETIRE_LOAD_MODIFIED,   /* remote, too, but has been written to there */
    RETIRE_LOAD_OTHER,
    RETIRE_STORES,
    RETIRE_LOCKED,          /* loads with LOCK, said or implied */
    RETIRE_SPLIT_LOADS,     /* they straddle two lines */
    RETIRE_SPLIT_STORES,
    RETIRE_FILL_L2,         /* lines that L1D gets, from L2 */
    RETIRE_FILL_FAR,        /* and from behind it */
    RETIRE_STORE_L2,        /* stores, as loads, that are not loads, too */
    RETIRE_STORE_L3,
    RETIRE_STORE_REMOTE,
    RETIRE_STORE_DRAM,
    RETIRE_STORE_MODIFIED,
    RETIRE_TLB_LOAD_L2,     /* pages that DTLB gets for loads, from STLB, */
    RETIRE_TLB_LOAD_WALK,   /* and from nowhere; */
    RETIRE_TLB_STORE_L2,    /* for stores that are no loads */
    RETIRE_TLB_STORE_WALK,
    RETIRE_STLB_MISS_LOADS, /* loads that need a walk, for one page or two */
    RETIRE_STLB_MISS_STORES,
    RETIRE_FETCHES,         /* lines of code, see RetireTlb.lines */
    RETIRE_FETCH_MISSES,    /* that L1I does not have */
    RETIRE_TLB_FETCH_L2,    /* pages that ITLB gets */
    RETIRE_TLB_FETCH_WALK,
    RETIRE_CODE_STORES,     /* stores to lines that L1I has */
    RETIRE_NR_MEMORY
} RetireMemory;

/* An access of an instruction that is observed */
typedef struct RetireAccess {
    uint64_t addr;          /* linear */
    uint64_t physical;
    RetireSource source;    /* of the first line that L1D has not */
    bool modified;          /* RETIRE_SOURCE_REMOTE has written to it */
    uint32_t clocks;        /* a load's latency, if L1D has not all of it */
    uint8_t size;
    bool load, store;       /* both: a load and a store of the same bytes */
    bool locked;            /* with LOCK, said or implied */
    bool split;             /* it straddles two lines */
    RetireTlbResult tlb;    /* RETIRE_WANT_TLB: the worse one of its pages' */
    uint8_t lg_page;        /* and the size of that, 2 to the power of this */
} RetireAccess;

#define RETIRE_STORY_ACCESSES   4

/* RETIRE_WANT_FETCHES: what an instruction that is observed was fetched from */
typedef struct RetireFetch {
    uint64_t addr;          /* linear, or RETIRE_NO_FETCH: nothing was missed */
    bool missed;            /* L1I had not all of it */
    RetireTlbResult tlb;    /* the worse one of its pages' */
} RetireFetch;

#endif
