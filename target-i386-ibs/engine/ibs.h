/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD's Instruction-Based Sampling: registers, and what a sample has in them.
 * An op is an instruction that retires, and so is a fetch.  Nothing here knows
 * QEMU.
 *
 * Names of registers and fields are those of AMD's BIOS and Kernel Developer's
 * Guides, and Processor Programming References; the capability word is CPUID
 * Fn8000_001B_EAX.
 */
#ifndef IBS_H
#define IBS_H

#include <stdbool.h>
#include <stdint.h>
#include "perfmon/engine/perfmon.h"
#include "retire/engine/retire.h"

#define IBS_CAP_FFV             (1u << 0)
#define IBS_CAP_FETCH           (1u << 1)
#define IBS_CAP_OP              (1u << 2)
#define IBS_CAP_RD_WR_OP_CNT    (1u << 3)
#define IBS_CAP_OP_CNT          (1u << 4)
#define IBS_CAP_BRN_TRGT        (1u << 5)
#define IBS_CAP_OP_CNT_EXT      (1u << 6)
#define IBS_CAP_RIP_INVALID     (1u << 7)
#define IBS_CAP_OP_BRN_FUSE     (1u << 8)
#define IBS_CAP_FETCH_CTL_EXTD  (1u << 9)
#define IBS_CAP_OP_DATA4        (1u << 10)
#define IBS_CAP_ZEN4            (1u << 11)
/* What is about samples of ops */
#define IBS_CAPS_OF_OP                                                  \
    (IBS_CAP_RD_WR_OP_CNT | IBS_CAP_OP_CNT | IBS_CAP_BRN_TRGT |         \
     IBS_CAP_OP_CNT_EXT | IBS_CAP_RIP_INVALID | IBS_CAP_OP_BRN_FUSE |   \
     IBS_CAP_OP_DATA4)

#define IBS_MSR_FIRST           0xc0011030u

/* What MSRs there may be from IBS_MSR_FIRST on. */
typedef enum IbsRegister {
    IBS_FETCH_CTL, IBS_FETCH_LIN_AD, IBS_FETCH_PHYS_AD,
    IBS_OP_CTL, IBS_OP_RIP, IBS_OP_DATA, IBS_OP_DATA2, IBS_OP_DATA3,
    IBS_DC_LIN_AD, IBS_DC_PHYS_AD,
    IBS_CONTROL,
    IBS_BR_TARGET, IBS_FETCH_CTL_EXT, IBS_OP_DATA4,
    IBS_NR_REGISTERS
} IbsRegister;

/* IBS_FETCH_CTL: the counter and its end are bits 19:4 of what is counted. */
#define IBS_FETCH_CNT_SHIFT     16
#define IBS_FETCH_EN            (1ull << 48)
#define IBS_FETCH_VAL           (1ull << 49)
#define IBS_FETCH_COMP          (1ull << 50)
#define IBS_FETCH_IC_MISS       (1ull << 51)
#define IBS_FETCH_PHYS_VALID    (1ull << 52)
#define IBS_FETCH_PAGE_SHIFT    53
#define IBS_FETCH_L1TLB_MISS    (1ull << 55)
#define IBS_FETCH_L2TLB_MISS    (1ull << 56)
#define IBS_FETCH_RAND_EN       (1ull << 57)
#define IBS_FETCH_L2_MISS       (1ull << 58)
#define IBS_FETCH_L3_MISS_ONLY  (1ull << 59)
#define IBS_FETCH_OC_MISS       (1ull << 60)
#define IBS_FETCH_L3_MISS       (1ull << 61)

/* IBS_OP_CTL: bits 15:0 are 19:4 of the end; of these seven, 26:20. */
#define IBS_OP_L3_MISS_ONLY     (1ull << 16)
#define IBS_OP_EN               (1ull << 17)
#define IBS_OP_VAL              (1ull << 18)
#define IBS_OP_CNT_CTL          (1ull << 19)
#define IBS_OP_MAX_EXT          0x7f00000ull
#define IBS_OP_CNT_SHIFT        32

#define IBS_DATA_COMP_TO_RET    1ull
#define IBS_DATA_TAG_SHIFT      16
#define IBS_DATA_MISP_RETURN    (1ull << 33)
#define IBS_DATA_RETURN         (1ull << 34)
#define IBS_DATA_TAKEN          (1ull << 35)
#define IBS_DATA_MISPREDICTED   (1ull << 36)
#define IBS_DATA_BRANCH         (1ull << 37)

#define IBS_DATA2_CACHE_HIT_ST  (1ull << 5)

#define IBS_DATA3_LOAD          (1ull << 0)
#define IBS_DATA3_STORE         (1ull << 1)
#define IBS_DATA3_L1TLB_MISS    (1ull << 2)
#define IBS_DATA3_L2TLB_MISS    (1ull << 3)
#define IBS_DATA3_L1TLB_2M      (1ull << 4)
#define IBS_DATA3_L1TLB_1G      (1ull << 5)
#define IBS_DATA3_L2TLB_2M      (1ull << 6)
#define IBS_DATA3_DC_MISS       (1ull << 7)
#define IBS_DATA3_MISALIGNED    (1ull << 8)
#define IBS_DATA3_UC            (1ull << 14)
#define IBS_DATA3_LOCKED        (1ull << 15)
#define IBS_DATA3_LIN_VALID     (1ull << 17)
#define IBS_DATA3_PHYS_VALID    (1ull << 18)
#define IBS_DATA3_L2TLB_1G      (1ull << 19)
#define IBS_DATA3_L2_MISS       (1ull << 20)
#define IBS_DATA3_WIDTH_SHIFT   22
#define IBS_DATA3_LATENCY_SHIFT 32

/* What follows from family and model alone */
typedef enum IbsLayout {
    IBS_HAS_L2_MISS = 1 << 0,       /* and the width, in IBS_OP_DATA3 */
    IBS_HAS_MISP_RETURN = 1 << 1,
    IBS_HAS_CACHE_HIT_ST = 1 << 2,
    IBS_HAS_FETCH_L2_MISS = 1 << 3,
    IBS_HAS_16K_PAGES = 1 << 4,     /* a code of their own */
    IBS_HAS_LOCAL_L3 = 1 << 5,      /* apart from other caches of the node */
} IbsLayout;

typedef struct IbsConfig {
    uint32_t caps;          /* the capability word; 0: each register is #GP */
    uint32_t layout;
    /* Clocks that an instruction takes; 0: the MSRs are somebody else's. */
    uint32_t insn_clocks;
    uint32_t lvt;           /* number of the entry of the extended LVT */
    bool random;            /* or random bits are 0 */
} IbsConfig;

typedef struct IbsState {
    uint64_t reg[IBS_NR_REGISTERS];     /* but for the counters */
    uint32_t fetch_count, op_count;
    uint32_t random;
    /* What runs from a WRMSR's count on, whose retirement is before that. */
    uint32_t started;
} IbsState;

/* What samples have of an instruction, addresses being linear. */
typedef struct IbsInsn {
    const RetireStory *story;
    uint64_t rip, target;
    bool has_physical;
    uint64_t physical;      /* of the instruction, */
    uint8_t lg_page;        /* in a page of that size, 2 to the power of this */
    bool fetch_missed;      /* L1I has not had all of it, */
    RetireTlbResult fetch_tlb;  /* and that is what ITLB has had. */
} IbsInsn;

/* Samples that are due, and what is enabled */
#define IBS_FETCH   1u
#define IBS_OP      2u

/* The configuration of AMD's processor; false: it has no IBS. */
bool ibs_config_init(IbsConfig *config, unsigned family, unsigned model);

void ibs_reset(IbsState *s);
void ibs_init(IbsState *s);

PmuAccess ibs_rdmsr(const IbsState *s, const IbsConfig *config, uint32_t msr,
                       uint64_t *val);
PmuAccess ibs_wrmsr(IbsState *s, const IbsConfig *config, uint32_t msr,
                       uint64_t val);

/*
 * What counts, and what is enabled, with a sample to be read or not.  A WRMSR
 * that ibs_retire() is not called for clears IbsState.started.
 */
unsigned ibs_running(const IbsState *s);
unsigned ibs_enabled(const IbsState *s);

/* How many instructions may retire in front of one that has a sample. */
uint32_t ibs_distance(const IbsState *s, const IbsConfig *config);

/* What samples the next instruction that retires has. */
unsigned ibs_due(const IbsState *s);

/* @n instructions have retired in front of that. */
void ibs_count(IbsState *s, const IbsConfig *config, uint32_t n);

/*
 * Or one has, which has the samples that are due, unless @insn is NULL: then
 * nobody knows which it is, and they remain due.  Returns which samples there
 * are now, for each of which an interrupt is to be signalled.
 */
unsigned ibs_retire(IbsState *s, const IbsConfig *config, const IbsInsn *insn);

/* The next op faults instead. */
void ibs_squash(IbsState *s, const IbsConfig *config);

/* What has come from elsewhere; false: no processor has such registers. */
bool ibs_state_valid(const IbsState *s, const IbsConfig *config);

#endif
