/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Precise event based sampling (SDM 18.4.4, 18.8.1.1, 18.9.4): records in the
 * buffer that the debug store area describes, with DTES64 only.
 */
#ifndef PEBS_H
#define PEBS_H

#include "perfmon/engine/ds.h"
#include "pmu.h"

/* The debug store area: PEBS's fields, and the reset value of each counter */
#define PEBS_BASE           0x20
#define PEBS_INDEX          0x28
#define PEBS_MAXIMUM        0x30
#define PEBS_THRESHOLD      0x38
#define PEBS_RESET          0x40
#define PEBS_RESET_FIXED    0x80

/* MSR_PEBS_DATA_CFG: the groups of an adaptive record, in this order */
#define PEBS_GROUP_MEMORY   (1u << 0)
#define PEBS_GROUP_GPRS     (1u << 1)
#define PEBS_GROUP_XMM      (1u << 2)
#define PEBS_GROUP_LBR      (1u << 3)
#define PEBS_LBR_ENTRIES(cfg)   (((uint32_t)(cfg) >> 24) + 1)

#define PEBS_NR_LBR         32  /* more entries are empty */
#define PEBS_RECORD_MAX     (32 + 32 + 144 + 256 + 256 * 24)

/* What is large is not to be cleared first (-ftrivial-auto-var-init). */
#define PEBS_HAS(attribute) __has_attribute(attribute)
#if PEBS_HAS(uninitialized)
#define PEBS_UNINITIALIZED __attribute__((uninitialized))
#else
#define PEBS_UNINITIALIZED
#endif

/* An access of an instruction */
typedef struct PebsAccess {
    uint64_t addr;
    PmuQuantity source;         /* PMU_LOAD_L1 to PMU_LOAD_OTHER */
    uint32_t latency;           /* if L1D has not all of it */
    bool load, store;           /* both: a load and a store of the same bytes */
    bool locked, split;
    bool stlb_miss;
} PebsAccess;

#define PEBS_ACCESSES       4

/* The processor behind the instruction that had the event */
typedef struct PebsSample {
    uint64_t ip;                /* where the instruction begins */
    uint64_t next;              /* RIP */
    uint64_t rflags;
    const uint64_t *gpr;        /* 16 of them, as instructions number them */
    uint64_t tsc;
    PebsAccess access[PEBS_ACCESSES];   /* the first ones, in its order */
    uint32_t nr_accesses;
    /* With pmu_pebs_groups() XMM, and LBR, the last record first: */
    uint64_t xmm[16][2];
    PerfmonBranch lbr[PEBS_NR_LBR];
} PebsSample;

/* What became of a record. */
typedef enum PebsResult {
    PEBS_STORED,
    PEBS_FULL,              /* dropped: the buffer has no room for it */
    PEBS_NO_AREA,           /* dropped: the debug store area, */
    PEBS_NO_BUFFER,         /* or the record's place is not writable memory */
} PebsResult;

/* Store the record of counter @n, which is due, and call pmu_pebs_done(). */
PebsResult pebs_store(PmuState *s, const PmuConfig *config, unsigned n,
                      uint64_t ds_area, const PebsSample *sample, DsHost *host,
                      void *opaque);

#endif
