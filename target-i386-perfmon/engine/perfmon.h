/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the units that monitor performance share: counters, branch records and
 * Instruction-Based Sampling.  Nothing here knows QEMU.
 */
#ifndef PERFMON_ENGINE_H
#define PERFMON_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum PmuVendor {
    PMU_VENDOR_OTHER,       /* no PMU */
    PMU_VENDOR_INTEL,
    PMU_VENDOR_AMD,         /* and Hygon */
    PMU_VENDOR_CYRIX,
    PMU_VENDOR_CENTAUR,     /* and Zhaoxin */
    PMU_VENDOR_SHANGHAI,    /* Zhaoxin */
} PmuVendor;

/* What RDMSR and WRMSR come to */
typedef enum PmuAccess {
    PMU_MSR_OTHER,
    PMU_MSR_OK,
    PMU_MSR_GP,
} PmuAccess;

/* No engine's: RDMSR has begun to count. */
#define PMU_MSR_SYNC                ((PmuAccess)3)

/* IA32_PERF_CAPABILITIES: all about PEBS, which needs the debug store */
#define PMU_CAP_PEBS                0x4fc0u

/* IA32_MISC_ENABLE: the branch trace store is unavailable. */
#define PMU_MISC_NO_BTS             (1u << 11)

/* Bits of IA32_PERF_GLOBAL_STATUS that are other units', too */
#define PMU_STATUS_TOPA_PMI         (1ull << 55)
#define PMU_STATUS_LBR_FRZ          (1ull << 58)

/* Bits of IA32_DEBUGCTL (SDM 17.4.1), AMD's DbgCtl, that nobody has alone */
#define PMU_FREEZE_LBRS_ON_PMI      (1u << 11)
#define PMU_FREEZE_PERFMON_ON_PMI   (1u << 12)
#define PMU_FREEZE_WHILE_SMM        (1u << 14)

/* A last branch, as the registers FROM, TO and INFO show it */
typedef struct PerfmonBranch {
    uint64_t from, to, info;
} PerfmonBranch;

/* Where an exception comes from, if that is not where it is said to be */
typedef struct PerfmonSource {
    bool valid;
    bool is_insn;           /* an instruction, not an event */
    bool os;                /* at CPL 0 */
    uint64_t ip;
} PerfmonSource;

/*
 * What one unit has, and others look at or set.  A pointer is to that unit's
 * own state, so that it is in one place only; to @zero or @nothing, if the
 * processor has no such unit.
 */
typedef struct PerfmonState {
    uint64_t *debugctl;             /* PMU_FREEZE_* */
    uint64_t *global_status;        /* PMU_STATUS_* */
    const uint64_t *pebs_armed;     /* not 0: a record may be next */
    bool *pmi;                      /* one is to come */
    uint64_t zero;
    bool nothing;
    /* @pmi may be set, though no counter runs: */
    bool bts_interrupts, pt_interrupts;
    bool held;              /* a record of BTS waits for those of PEBS */
    uint8_t version;        /* CPUID.0AH:EAX[7:0] */
    uint8_t va_bits;        /* of a linear address: 32, 48, 57 */
    uint64_t ds_area;       /* IA32_DS_AREA (SDM 17.4.9) */
    uint64_t debugctl_mask; /* the bits that *@debugctl can have */
    uint64_t capabilities;  /* IA32_PERF_CAPABILITIES of all units */
} PerfmonState;

#endif
