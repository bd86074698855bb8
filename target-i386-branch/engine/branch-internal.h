/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Last branch records: what the files of the engine share. */
#ifndef BRANCH_INTERNAL_H
#define BRANCH_INTERNAL_H

#include "branch.h"

/* MSR_LBR_SELECT (SDM 17.7.2, 17.9): what is left out; and a mode */
#define SELECT_OS           (1u << 0)
#define SELECT_USR          (1u << 1)
#define SELECT_ALL          0x1ffu
#define SELECT_CALL_STACK   (1u << 9)

/* IA32_LBR_CTL: what is not */
#define CTL_ENABLE          (1u << 0)
#define CTL_OS              (1u << 1)
#define CTL_USR             (1u << 2)
#define CTL_CALL_STACK      (1u << 3)
#define CTL_ALL             0x7f000fu

#define CFG_LBRV2EN         (1u << 6)   /* DBG_EXTN_CFG */

/* IA32_PERF_CAPABILITIES[5:0], and what has no such register */
typedef enum Format {
    FORMAT_32,              /* FROM and TO in one register, or plain */
    FORMAT_LIP,
    FORMAT_EIP,
    FORMAT_FLAGS,
    FORMAT_TSX,
    FORMAT_INFO,
    FORMAT_TIME,
    FORMAT_INFO2,           /* FORMAT_INFO, without transactions */
    FORMAT_ARCH = 0x3f,
    FORMAT_V2,              /* AMD's */
} Format;

/* Which MSRs there are; a flavour is some of these. */
enum {
    HAS_PAIR = 1 << 0,      /* last branch and exception, of P6 and AMD's */
    HAS_PACKED = 1 << 1,    /* of Pentium M */
    HAS_LOW = 1 << 2,       /* at 40H and 60H */
    HAS_HIGH = 1 << 3,      /* at 680H and 6C0H */
    HAS_INFO = 1 << 4,
    HAS_SELECT = 1 << 5,
    HAS_LER = 1 << 6,
    HAS_ARCH = 1 << 7,
    HAS_V2 = 1 << 8,
    HAS_LER_TO = 1 << 9,    /* HAS_LER, the other way round */
    HAS_ALWAYS = 1 << 10,
    /* These are not MSRs. */
    HAS_CALL_STACK = 1 << 11,
    HAS_AMD = 1 << 12,
    HAS_NOTHING = 1 << 13,  /* but single step on branches */
    HAS_PREDICTED = 1 << 14,    /* in BTS's records */
    HAS_TR_OFF = 1 << 15,   /* FREEZE_LBRS_ON_PMI clears TR, too */
    HAS_SAYS_LIP = 1 << 16, /* FORMAT_LIP is what it says it has */
};

#define RECORDS     (HAS_PAIR | HAS_PACKED | HAS_LOW | HAS_HIGH | HAS_INFO | \
                     HAS_SELECT | HAS_LER | HAS_LER_TO | HAS_ARCH)
#define HAS_TOS     (HAS_PACKED | HAS_LOW | HAS_HIGH)

struct BranchFlavour {
    const char *name;
    uint32_t has;           /* HAS_* */
    uint8_t depth;
    Format format;
    uint16_t debugctl;      /* bits that need no CPUID bit, but for LBR, BTF */
};

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)       ((a) < (b) ? (a) : (b))

static inline bool branch_is_amd(const BranchConfig *config)
{
    return config->flavour->has & HAS_AMD;
}

static inline bool branch_is_arch(const BranchConfig *config)
{
    return config->flavour->has & HAS_ARCH;
}

/* What exists of the flavour's. */
static inline uint32_t branch_has(const BranchConfig *config)
{
    uint32_t absent = (config->lbr ? 0 : RECORDS) |
                      (config->lbr_v2 ? 0 : HAS_V2);

    return (config->flavour->has & ~absent) | HAS_ALWAYS;
}

/* processors.c */
bool branch_depth_exists(uint64_t depth);
/* branch.c */
PerfmonBranch branch_last(const BranchConfig *config, const BranchRing *ring);

#endif
