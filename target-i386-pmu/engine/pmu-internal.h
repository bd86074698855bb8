/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters: what the files of the engine share. */
#ifndef PMU_INTERNAL_H
#define PMU_INTERNAL_H

#include "netburst.h"
#include "pmu-old.h"
#include "quantities.h"

/* IA32_PERFEVTSELn (SDM 18.2.1, 18.2.3) and PerfEvtSeln (APM 13.2.1) */
#define SEL_EVENT(sel)      ((uint8_t)(sel))
#define SEL_EVENT_HIGH(sel) ((uint32_t)((sel) >> 32) & 15)  /* AMD */
#define SEL_UMASK(sel)      ((uint8_t)((sel) >> 8))
#define SEL_USR             (1u << 16)
#define SEL_OS              (1u << 17)
#define SEL_EDGE            (1u << 18)
#define SEL_INT             (1u << 20)
#define SEL_ANY             (1u << 21)  /* no effect: one thread in a core */
#define SEL_EN              (1u << 22)
#define SEL_INV             (1u << 23)
#define SEL_CMASK(sel)      ((uint8_t)((sel) >> 24))
#define SEL_ADAPTIVE        (1ull << 34)
#define SEL_GUEST_HOST(sel) ((sel) >> 40 & 3)
#define SEL_GUEST_ONLY      1

/* IA32_FIXED_CTR_CTRL: four bits for each counter */
#define FIXED_OS            1u
#define FIXED_USR           2u
#define FIXED_ANY           4u
#define FIXED_PMI           8u
#define FIXED_FIELD(ctrl, i)    ((uint32_t)((ctrl) >> 4 * (i)) & 15)
#define FIXED_ADAPTIVE(i)   (1ull << (32 + 4 * (i)))

/* IA32_PERF_GLOBAL_STATUS, IA32_PERF_GLOBAL_INUSE */
#define STATUS_FIXED_SHIFT  32
#define STATUS_CTR_FRZ      (1ull << 59)
#define STATUS_ASCI         (1ull << 60)
#define STATUS_UNCORE       (1ull << 61)
#define STATUS_OVF_BUF      (1ull << 62)
#define STATUS_COND_CHGD    (1ull << 63)
#define INUSE_PMI           (1ull << 63)

/* MSR_PEBS_DATA_CFG */
#define DATA_CFG            0xff00000full

/* IA32_PEBS_ENABLE, behind the counters */
#define PEBS_LATENCY(n)     (1ull << (32 + (n)))
#define PEBS_STORES         (1ull << 63)

/* MSR_PEBS_LD_LAT_THRESHOLD */
#define LATENCY_MASK        0xffff

/* Which processors have an event; a flavour is one of these. */
enum {
    HAS_P6 = 1 << 0,
    HAS_ARCH = 1 << 1,      /* no events of its own that we know */
    HAS_CORE_DUO = 1 << 2,
    HAS_CORE2 = 1 << 3,
    HAS_NHM = 1 << 4,
    HAS_WSM = 1 << 5,
    HAS_SNB = 1 << 6,
    HAS_IVB = 1 << 7,
    HAS_HSW = 1 << 8,
    HAS_BDW = 1 << 9,
    HAS_SKL = 1 << 10,
    HAS_ICL = 1 << 11,
    HAS_GLC = 1 << 12,
    HAS_BNL = 1 << 13,
    HAS_SLM = 1 << 14,
    HAS_GLM = 1 << 15,
    HAS_TNT = 1 << 16,
    HAS_K7 = 1 << 17,
    HAS_15H = 1 << 18,
    HAS_ZEN1 = 1 << 19,
    HAS_ZEN2 = 1 << 20,
    HAS_ZEN4 = 1 << 21,
    HAS_HYGON = 1 << 22,    /* what Linux asks of it, besides Zen's */
    HAS_P5 = 1 << 23,
    HAS_6X86MX = 1 << 24,
    HAS_C6 = 1 << 25,
    HAS_WINCHIP2 = 1 << 26,
    HAS_C3 = 1 << 27,
    HAS_ZX = 1 << 28,
    HAS_P4 = 1 << 29,       /* its events are netburst.c's */
    HAS_CMT = 1 << 30,
};

#define HAS_KNL     (1u << 31)  /* what it has besides Silvermont's */
#define HAS_ZEN3    (1ull << 32)
#define HAS_ZEN5    (1ull << 33)

#define SINCE_ICL   (HAS_ICL | HAS_GLC)
#define SINCE_SKL   (HAS_SKL | SINCE_ICL)
#define SINCE_BDW   (HAS_BDW | SINCE_SKL)
#define SINCE_HSW   (HAS_HSW | SINCE_BDW)
#define SINCE_IVB   (HAS_IVB | SINCE_HSW)
#define SINCE_SNB   (HAS_SNB | SINCE_IVB)
#define SINCE_NHM   (NEHALEMS | SINCE_SNB)
#define NEHALEMS    (HAS_NHM | HAS_WSM)
#define BRIDGES     (HAS_SNB | HAS_IVB)
#define NHM_TO_SKL  (SINCE_NHM & ~SINCE_ICL)
#define HSW_TO_SKL  (SINCE_HSW & ~SINCE_ICL)
#define SLM_GLM     (HAS_SLM | HAS_GLM)
#define TNT_CMT     (HAS_TNT | HAS_CMT)
#define GLM_TO_CMT  (HAS_GLM | TNT_CMT)
#define LLC_IS_L2   (HAS_CORE_DUO | HAS_CORE2 | HAS_BNL | SLM_GLM)
#define ARCH        (HAS_ARCH | LLC_IS_L2 | TNT_CMT | SINCE_NHM | HAS_ZX)
#define OLD_AMD     (HAS_K7 | HAS_15H)
#define SINCE_ZEN4  (HAS_ZEN4 | HAS_ZEN5)
#define SINCE_ZEN3  (HAS_ZEN3 | SINCE_ZEN4)
#define SINCE_ZEN2  (HAS_ZEN2 | SINCE_ZEN3)
#define HAS_17H     (HAS_ZEN1 | SINCE_ZEN2)
#define AMD         (OLD_AMD | HAS_17H)
#define P5_AND_MX   (HAS_P5 | HAS_6X86MX)
#define P5_LIKE     (P5_AND_MX | HAS_WINCHIP2)

struct PmuFlavour {
    const char *name;
    uint64_t has;           /* HAS_* */
    uint8_t version;        /* the highest one; 0: not architectural */
    uint8_t counters;
    uint8_t width;          /* of a counter */
    uint16_t caps;          /* IA32_PERF_CAPABILITIES */
    uint8_t amd;            /* what AMD's CPUID shows */
};

#define CORE_EXT    1       /* PerfCtrExtCore */
#define V2          2       /* PerfMonV2 */

/* What a row has for a unit mask, besides bits of it */
#define NO_UMASK    0       /* the event has none, and ignores it */
#define CODE(umask) (0x100u | (umask))  /* it has to be this */
#define COUNTER(n)  (0x200u | (n))  /* none, and it is this counter's only */
#define MAX_ROWS    16      /* of an event on a processor */

/* For the tables only */
#define STALLED     (1ull << 63)     /* clocks in which no instruction ends */
#define EDGES       (1ull << 62)    /* beside what they begin: its clocks */
#define HITS        (1ull << 61)    /* of fetches or branches, less misses */
#define PAGE_HITS   (1ull << 60)    /* of fetches, less what ITLB gets */
#define NEVER       B(MISP_JMP)     /* what is known not to happen here */

/* Zen's odd counters have the upper 16 bits of the even ones before them. */
#define EVENT_MERGE         0xfff

/* FRONTEND_RETIRED, which MSR_PEBS_FRONTEND is for */
#define FRONTEND_EVENT      0xc6
#define FRONTEND_UMASK      0x01

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)       ((a) < (b) ? (a) : (b))

static inline uint64_t pmu_ones(unsigned n)
{
    return (1ull << n) - 1;
}

static inline bool pmu_is_amd(const PmuConfig *config)
{
    return config->flavour->has & AMD;
}

static inline PmuOld pmu_old_kind(const PmuFlavour *flavour)
{
    return flavour->has & HAS_P5 ? PMU_OLD_P5 :
           flavour->has & HAS_6X86MX ? PMU_OLD_6X86MX :
           flavour->has & (HAS_C6 | HAS_WINCHIP2) ? PMU_OLD_WINCHIP :
           flavour->has & HAS_C3 ? PMU_OLD_C3 : PMU_OLD_NONE;
}

/* What nobody can tell, because there are no models */
static inline uint64_t pmu_lacking(const PmuConfig *config)
{
    return config->no_models ?
           PMU_MEMORY | PMU_MISPREDICTED | B(TAGGED) | HITS : 0;
}

/* What selects the event of counter @n */
static inline uint64_t pmu_event_select(const PmuState *s,
                                        const PmuConfig *config, unsigned n)
{
    PmuOld old = pmu_old_kind(config->flavour);

    return old ? pmu_old_select(old, n, (uint32_t)s->evtsel[n]) : s->evtsel[n];
}

static inline uint32_t pmu_event_code(const PmuConfig *config, uint64_t sel)
{
    return SEL_EVENT(sel) |
           (pmu_is_amd(config) || pmu_old_kind(config->flavour) ?
            SEL_EVENT_HIGH(sel) << 8 : 0);
}

/* processors.c */
uint32_t pmu_netburst_has(const PmuFlavour *flavour);
bool pmu_has_adaptive(const PmuConfig *config);
uint64_t pmu_pebs_mask(const PmuConfig *config);
uint64_t pmu_frontend_mask(const PmuConfig *config);
uint64_t pmu_pebs_enable_mask(const PmuConfig *config);
uint64_t pmu_evtsel_mask(const PmuConfig *config, unsigned n);
uint64_t pmu_fixed_ctrl_mask(const PmuConfig *config);
bool pmu_has_global(const PmuConfig *config);
uint64_t pmu_global_mask(const PmuConfig *config);
uint64_t pmu_status_mask(const PmuConfig *config);
unsigned pmu_offcore_masks(const PmuConfig *config);
/* pebs-events.c */
bool pmu_is_precise(const PmuState *s, const PmuConfig *config, unsigned n);
bool pmu_is_sampled(const PmuState *s, const PmuConfig *config, unsigned n,
                    const PmuCounter *counter);
/* events.c */
unsigned pmu_offcore_of(const PmuConfig *config, uint64_t sel);
/*
 * What counter @n's event select asks for: the quantities in @add, 0 if it is
 * not known, less those in @less; and the bits of the unit mask that nobody
 * knows, if there are others that are.
 */
typedef struct PmuFound {
    uint64_t add, less;
    uint8_t unknown;
} PmuFound;

PmuFound pmu_find_event(const PmuState *s, const PmuConfig *config, unsigned n);
bool pmu_lacks_event(const PmuConfig *config, uint64_t sel);
void pmu_name_event(const PmuState *s, const PmuConfig *config, unsigned n,
                    char *name, size_t size);
void pmu_select_event(PmuState *s, const PmuConfig *config, unsigned n);
void pmu_select_netburst(PmuState *s, const PmuConfig *config);
/* counters.c */
extern const uint64_t pmu_fixed_event[PMU_MAX_FIXED];
bool pmu_enabled(const PmuState *s, const PmuConfig *config, unsigned n);
void pmu_get_bits(const PmuState *s, const PmuConfig *config, unsigned n,
                  bool *os, bool *usr, bool *interrupts);
void pmu_set_slack(PmuState *s, const PmuConfig *config);
void pmu_changed(PmuState *s, const PmuConfig *config);

#endif
