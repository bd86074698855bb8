/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The PMU of x86 processors: see pmu.h. */

#include <string.h>
#include "netburst.h"
#include "pmu.h"
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

#define SEL_INTEL           0xffdfffffull       /* but for ANY */
#define SEL_AMD             0x30fffd7ffffull

/* IA32_FIXED_CTR_CTRL: four bits for each counter */
#define FIXED_OS            1u
#define FIXED_USR           2u
#define FIXED_ANY           4u
#define FIXED_PMI           8u
#define FIXED_FIELD(ctrl, i)    ((uint32_t)((ctrl) >> 4 * (i)) & 15)
#define FIXED_ADAPTIVE(i)   (1ull << (32 + 4 * (i)))

/* IA32_PERF_GLOBAL_STATUS, IA32_PERF_GLOBAL_INUSE */
#define STATUS_FIXED_SHIFT  32
#define STATUS_TOPA_PMI     (1ull << 55)
#define STATUS_CTR_FRZ      (1ull << 59)
#define STATUS_ASCI         (1ull << 60)
#define STATUS_UNCORE       (1ull << 61)
#define STATUS_OVF_BUF      (1ull << 62)
#define STATUS_COND_CHGD    (1ull << 63)
#define INUSE_PMI           (1ull << 63)

/* IA32_MISC_ENABLE */
#define MISC_NO_PEBS        (1u << 12)

/* MSR_PEBS_DATA_CFG */
#define DATA_CFG            0xff00000full

/* IA32_PEBS_ENABLE, behind the counters */
#define PEBS_LATENCY(n)     (1ull << (32 + (n)))
#define PEBS_STORES         (1ull << 63)

/* MSR_PEBS_LD_LAT_THRESHOLD */
#define LATENCY_MASK        0xffff

/* CPUID.0AH */
#define LEAF_NO_SLOTS       0x80u   /* EBX: topdown slots */
#define LEAF_NO_ANY_THREAD  (1u << 15)  /* EDX */

/* RDPMC: ECX[31:16] of an architectural PMU */
#define RDPMC_FIXED         0x4000u
#define RDPMC_FAST          (1u << 31)  /* Pentium 4's: EDX is 0 */

/* Instructions; so few that no product overflows in add_clocks(). */
#define FAR_AWAY            (1ll << 39)

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
#define HAS_17H     (HAS_ZEN1 | HAS_ZEN2 | HAS_ZEN4)
#define AMD         (OLD_AMD | HAS_17H)
#define P5_AND_MX   (HAS_P5 | HAS_6X86MX)
#define P5_LIKE     (P5_AND_MX | HAS_WINCHIP2)

struct PmuFlavour {
    const char *name;
    uint32_t has;           /* HAS_* */
    uint8_t version;        /* the highest one; 0: not architectural */
    uint8_t counters;
    uint8_t width;          /* of a counter */
    uint16_t caps;          /* IA32_PERF_CAPABILITIES */
    uint8_t amd;            /* what AMD's CPUID shows */
};

#define CORE_EXT    1       /* PerfCtrExtCore */
#define V2          2       /* PerfMonV2 */
#define SMM_CAP     PMU_CAP_FREEZE_WHILE_SMM
#define BOTH_CAPS   (PMU_CAP_FREEZE_WHILE_SMM | PMU_CAP_FULL_WIDTH_WRITE)
/* From format 4 on they are adaptive. */
#define PEBS(n)     (PMU_CAP_PEBS_TRAP | PMU_CAP_PEBS_REGS | (n) << 8 | \
                     (n) / 4 * PMU_CAP_PEBS_BASELINE)

/*
 * Each column has two sources, the first of which is the vendor's manual (SDM
 * chapters 2 of volume 4, 18 and 19 of volume 3; AMD's guides and PPRs):
 *
 * version, counters, width, and of caps the format of PEBS and writes in full
 *    width: what Linux says of itself when it boots there ("Performance Events:
 *    PEBS fmt3+, Skylake events, ... full-width counters", and the next lines),
 *    in public logs of Core 2, Nehalem, Haswell, Skylake, Tiger Lake, Bonnell,
 *    Silvermont and Tremont.
 * counters: also libpfm4 (num_cntrs), and counter.json in Linux' lists of
 *    events for perf; the latter has 2 for Silvermont, the former 4.  Fixed
 *    ones are 3 in libpfm4, and 4 from Ice Lake on: slots, which are not here.
 * width: P6's 40 are in Linux' p6.c, AMD's 48 in its amd/core.c, and P4's 40 in
 *    its p4.c, with the number of counters.
 * amd: Linux' amd/core.c has 6 with PerfCtrExtCore, and libpfm4 has 4 up to
 *    family 14h and for 16h, 6 for 15h, 17h and 19h.
 *
 * One source only: the rows of P5, Cyrix, WinChip, C3 (their manuals) and of
 * Zhaoxin, as Linux reads CPUID; Core Duo's, Knights Landing's and Goldmont's
 * width, and the latter two's format (SDM); SMM_CAP (SDM 18.18.1); and all of
 * Crestmont's but its counters, as it has no chapter in the manual yet.
 */
static const PmuFlavour
    p5 = { "P5", HAS_P5, 0, 2, 40, 0, 0 },
    mx = { "6x86MX", HAS_6X86MX, 0, 2, 48, 0, 0 },
    c6 = { "WinChip C6", HAS_C6, 0, 2, 40, 0, 0 },
    winchip2 = { "WinChip 2", HAS_WINCHIP2, 0, 2, 40, 0, 0 },
    c3 = { "C3", HAS_C3, 0, 2, 32, 0, 0 },
    p4 = { "P4", HAS_P4, 0, 18, 40, 0, 0 },
    p4_model2 = { "P4", HAS_P4, 0, 18, 40, 0, 0 },
    p4_model3 = { "P4", HAS_P4, 0, 18, 40, 0, 0 },
    p6 = { "P6", HAS_P6, 0, 2, 40, 0, 0 },
    pentium_m = { "Pentium M", HAS_P6, 0, 2, 40, 0, 0 },
    generic = { "architectural", HAS_ARCH, 5, 4, 48, BOTH_CAPS, 0 },
    core_duo = { "Core Duo", HAS_CORE_DUO, 1, 2, 40, 0, 0 },
    core2 = { "Core 2", HAS_CORE2, 2, 2, 40, PEBS(0), 0 },
    nehalem = { "Nehalem", HAS_NHM, 3, 4, 48, SMM_CAP | PEBS(1), 0 },
    westmere = { "Westmere", HAS_WSM, 3, 4, 48, SMM_CAP | PEBS(1), 0 },
    sandy_bridge = { "Sandy Bridge", HAS_SNB, 3, 4, 48,
        BOTH_CAPS | PEBS(1), 0 },
    ivy_bridge = { "Ivy Bridge", HAS_IVB, 3, 4, 48, BOTH_CAPS | PEBS(1), 0 },
    haswell = { "Haswell", HAS_HSW, 3, 4, 48, BOTH_CAPS | PEBS(2), 0 },
    broadwell = { "Broadwell", HAS_BDW, 3, 4, 48, BOTH_CAPS | PEBS(2), 0 },
    skylake = { "Skylake", HAS_SKL, 4, 4, 48, BOTH_CAPS | PEBS(3), 0 },
    ice_lake = { "Ice Lake", HAS_ICL, 5, 8, 48, BOTH_CAPS | PEBS(4), 0 },
    golden_cove = { "Golden Cove", HAS_GLC, 5, 8, 48, BOTH_CAPS | PEBS(4), 0 },
    bonnell = { "Bonnell", HAS_BNL, 3, 2, 40, PEBS(0), 0 },
    silvermont = { "Silvermont", HAS_SLM, 3, 2, 40, BOTH_CAPS | PEBS(2), 0 },
    knights = { "Knights Landing", HAS_SLM | HAS_KNL, 3, 2, 40,
        BOTH_CAPS | PEBS(2), 0 },
    goldmont = { "Goldmont", HAS_GLM, 4, 4, 48, BOTH_CAPS | PEBS(3), 0 },
    goldmont_plus = { "Goldmont Plus", HAS_GLM, 4, 4, 48,
        BOTH_CAPS | PEBS(3), 0 },
    tremont = { "Tremont", HAS_TNT, 5, 4, 48, BOTH_CAPS | PEBS(4), 0 },
    crestmont = { "Crestmont", HAS_CMT, 5, 8, 48, BOTH_CAPS | PEBS(4), 0 },
    k7 = { "K7", HAS_K7, 0, 4, 48, 0, 0 },
    fam15h = { "Family 15h", HAS_15H, 0, 6, 48, 0, CORE_EXT },
    zen = { "Family 17h", HAS_ZEN1, 0, 6, 48, 0, CORE_EXT },
    zen2 = { "Family 17h", HAS_ZEN2, 0, 6, 48, 0, CORE_EXT },
    hygon = { "Family 18h", HAS_ZEN1 | HAS_HYGON, 0, 6, 48, 0, CORE_EXT },
    zen4 = { "PerfMonV2", HAS_ZEN4, 0, 6, 48, 0, CORE_EXT | V2 },
    zhaoxin = { "Zhaoxin", HAS_ZX, 2, 4, 48, 0, 0 };

/*
 * The first row that fits counts.  Intel's rows of family 6 are those of Linux'
 * intel_pmu_init() and p6_pmu_init(), and of libpfm4's lists of models, but for
 * 1FH, which libpfm4 alone has, and 16H, 4AH, 5AH, 9CH, ADH to AFH and CFH,
 * which Linux alone has, and 5DH, 66H, 75H, 8AH and 9DH, which are what their
 * cores are by Linux' intel-family.h.  Those of families 17h to 1Ah are Linux'
 * bsp_init_amd()'s and, up to 19h, libpfm4's; Zhaoxin's are Linux'
 * zhaoxin/core.c's.  One source only, a manual: family 5, Cyrix' and Centaur's
 * others, and models of P6 that are none of 1, 3, 5 to 8, 0AH and 0BH.
 */
static const struct {
    PmuVendor vendor;
    uint8_t first_family, last_family, first_model, last_model;
    const PmuFlavour *flavour;
} processors[] = {
    { PMU_VENDOR_INTEL, 5, 5, 0x00, 0xff, &p5 },
    { PMU_VENDOR_CYRIX, 6, 6, 0x00, 0xff, &mx },
    { PMU_VENDOR_CENTAUR, 5, 5, 0x04, 0x04, &c6 },
    { PMU_VENDOR_CENTAUR, 5, 5, 0x08, 0x09, &winchip2 },
    { PMU_VENDOR_CENTAUR, 6, 6, 0x06, 0x09, &c3 },
    { PMU_VENDOR_CENTAUR, 6, 6, 0x0f, 0x0f, &zhaoxin },     /* ZX-C */
    { PMU_VENDOR_CENTAUR, 6, 6, 0x19, 0x19, &zhaoxin },
    { PMU_VENDOR_CENTAUR, 7, 7, 0x00, 0xff, &zhaoxin },
    { PMU_VENDOR_SHANGHAI, 6, 6, 0x19, 0x19, &zhaoxin },
    { PMU_VENDOR_SHANGHAI, 7, 7, 0x00, 0xff, &zhaoxin },
    { PMU_VENDOR_INTEL, 6, 6, 0x09, 0x09, &pentium_m },
    { PMU_VENDOR_INTEL, 6, 6, 0x0d, 0x0d, &pentium_m },
    { PMU_VENDOR_INTEL, 6, 6, 0x00, 0x0c, &p6 },
    { PMU_VENDOR_INTEL, 6, 6, 0x0e, 0x0e, &core_duo },
    { PMU_VENDOR_INTEL, 6, 6, 0x0f, 0x0f, &core2 },
    { PMU_VENDOR_INTEL, 6, 6, 0x16, 0x17, &core2 },
    { PMU_VENDOR_INTEL, 6, 6, 0x1d, 0x1d, &core2 },
    { PMU_VENDOR_INTEL, 6, 6, 0x1a, 0x1a, &nehalem },
    { PMU_VENDOR_INTEL, 6, 6, 0x1e, 0x1f, &nehalem },
    { PMU_VENDOR_INTEL, 6, 6, 0x2e, 0x2e, &nehalem },
    { PMU_VENDOR_INTEL, 6, 6, 0x25, 0x25, &westmere },
    { PMU_VENDOR_INTEL, 6, 6, 0x2c, 0x2c, &westmere },
    { PMU_VENDOR_INTEL, 6, 6, 0x2f, 0x2f, &westmere },
    { PMU_VENDOR_INTEL, 6, 6, 0x2a, 0x2a, &sandy_bridge },
    { PMU_VENDOR_INTEL, 6, 6, 0x2d, 0x2d, &sandy_bridge },
    { PMU_VENDOR_INTEL, 6, 6, 0x3a, 0x3a, &ivy_bridge },
    { PMU_VENDOR_INTEL, 6, 6, 0x3e, 0x3e, &ivy_bridge },
    { PMU_VENDOR_INTEL, 6, 6, 0x3c, 0x3c, &haswell },
    { PMU_VENDOR_INTEL, 6, 6, 0x3f, 0x3f, &haswell },
    { PMU_VENDOR_INTEL, 6, 6, 0x45, 0x46, &haswell },
    { PMU_VENDOR_INTEL, 6, 6, 0x3d, 0x3d, &broadwell },
    { PMU_VENDOR_INTEL, 6, 6, 0x47, 0x47, &broadwell },
    { PMU_VENDOR_INTEL, 6, 6, 0x4f, 0x4f, &broadwell },
    { PMU_VENDOR_INTEL, 6, 6, 0x56, 0x56, &broadwell },
    { PMU_VENDOR_INTEL, 6, 6, 0x4e, 0x4e, &skylake },
    { PMU_VENDOR_INTEL, 6, 6, 0x5e, 0x5e, &skylake },
    { PMU_VENDOR_INTEL, 6, 6, 0x55, 0x55, &skylake },
    { PMU_VENDOR_INTEL, 6, 6, 0x8e, 0x8e, &skylake },       /* Kaby Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0x9e, 0x9e, &skylake },
    { PMU_VENDOR_INTEL, 6, 6, 0xa5, 0xa6, &skylake },       /* Comet Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0x66, 0x66, &skylake },       /* Cannon Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0x6a, 0x6a, &ice_lake },
    { PMU_VENDOR_INTEL, 6, 6, 0x6c, 0x6c, &ice_lake },
    { PMU_VENDOR_INTEL, 6, 6, 0x7d, 0x7e, &ice_lake },
    { PMU_VENDOR_INTEL, 6, 6, 0x9d, 0x9d, &ice_lake },
    { PMU_VENDOR_INTEL, 6, 6, 0x8c, 0x8d, &ice_lake },      /* Tiger Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0xa7, 0xa7, &ice_lake },      /* Rocket Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0x8f, 0x8f, &golden_cove },
    { PMU_VENDOR_INTEL, 6, 6, 0xcf, 0xcf, &golden_cove },
    { PMU_VENDOR_INTEL, 6, 6, 0xad, 0xae, &golden_cove },   /* Redwood Cove */
    { PMU_VENDOR_INTEL, 6, 6, 0x1c, 0x1c, &bonnell },
    { PMU_VENDOR_INTEL, 6, 6, 0x26, 0x27, &bonnell },
    { PMU_VENDOR_INTEL, 6, 6, 0x35, 0x36, &bonnell },
    { PMU_VENDOR_INTEL, 6, 6, 0x37, 0x37, &silvermont },
    { PMU_VENDOR_INTEL, 6, 6, 0x4a, 0x4a, &silvermont },
    { PMU_VENDOR_INTEL, 6, 6, 0x4c, 0x4d, &silvermont },
    { PMU_VENDOR_INTEL, 6, 6, 0x5a, 0x5a, &silvermont },
    { PMU_VENDOR_INTEL, 6, 6, 0x5d, 0x5d, &silvermont },
    { PMU_VENDOR_INTEL, 6, 6, 0x75, 0x75, &silvermont },    /* Airmont */
    { PMU_VENDOR_INTEL, 6, 6, 0x57, 0x57, &knights },
    { PMU_VENDOR_INTEL, 6, 6, 0x85, 0x85, &knights },       /* Knights Mill */
    { PMU_VENDOR_INTEL, 6, 6, 0x5c, 0x5c, &goldmont },
    { PMU_VENDOR_INTEL, 6, 6, 0x5f, 0x5f, &goldmont },
    { PMU_VENDOR_INTEL, 6, 6, 0x7a, 0x7a, &goldmont_plus },
    { PMU_VENDOR_INTEL, 6, 6, 0x86, 0x86, &tremont },
    { PMU_VENDOR_INTEL, 6, 6, 0x8a, 0x8a, &tremont },       /* Lakefield */
    { PMU_VENDOR_INTEL, 6, 6, 0x96, 0x96, &tremont },
    { PMU_VENDOR_INTEL, 6, 6, 0x9c, 0x9c, &tremont },
    { PMU_VENDOR_INTEL, 6, 6, 0xaf, 0xaf, &crestmont },
    /* What came later is architectural. */
    { PMU_VENDOR_INTEL, 6, 6, 0x10, 0xff, &generic },
    { PMU_VENDOR_INTEL, 15, 15, 0x00, 0x01, &p4 },
    { PMU_VENDOR_INTEL, 15, 15, 0x02, 0x02, &p4_model2 },
    { PMU_VENDOR_INTEL, 15, 15, 0x03, 0x06, &p4_model3 },
    { PMU_VENDOR_INTEL, 0x12, 0x13, 0x00, 0xff, &generic },
    { PMU_VENDOR_AMD, 0x06, 0x06, 0x00, 0xff, &k7 },
    { PMU_VENDOR_AMD, 0x0f, 0x12, 0x00, 0xff, &k7 },
    { PMU_VENDOR_AMD, 0x14, 0x14, 0x00, 0xff, &k7 },
    { PMU_VENDOR_AMD, 0x16, 0x16, 0x00, 0xff, &k7 },
    { PMU_VENDOR_AMD, 0x15, 0x15, 0x00, 0xff, &fam15h },
    { PMU_VENDOR_AMD, 0x17, 0x17, 0x30, 0x4f, &zen2 },
    { PMU_VENDOR_AMD, 0x17, 0x17, 0x60, 0xff, &zen2 },
    { PMU_VENDOR_AMD, 0x17, 0x17, 0x00, 0xff, &zen },
    { PMU_VENDOR_AMD, 0x18, 0x18, 0x00, 0xff, &hygon },
    { PMU_VENDOR_AMD, 0x19, 0x19, 0x10, 0x1f, &zen4 },
    { PMU_VENDOR_AMD, 0x19, 0x19, 0x60, 0xaf, &zen4 },
    { PMU_VENDOR_AMD, 0x19, 0x19, 0x00, 0xff, &zen2 },      /* Zen 3 */
    { PMU_VENDOR_AMD, 0x1a, 0x1a, 0x00, 0xff, &zen4 },      /* Zen 5 */
};

#define NO_UMASK    0x100   /* the event has none, and ignores it */
#define COUNTER(n)  (0x200 | (n))   /* so it has, and is this counter's only */

/* For the tables only */
#define STALLED     (1ull << 63)     /* clocks in which no instruction ends */
#define EDGES       (1ull << 62)    /* beside what they begin: its clocks */
#define NEVER       B(MISP_JMP)     /* what is known not to happen here */

/*
 * The events that are counted: the architectural ones (SDM 18.2.1.2), and those
 * of each processor (SDM chapter 19; AMD's BIOS and Kernel Developer's Guides
 * and Processor Programming References) that are about the same things.
 */
static const struct {
    uint16_t event, umask;
    uint32_t has;
    uint64_t quantities;
} events[] = {
    { 0x79, 0x00, HAS_P6, B(CYCLES) },
    { 0x3c, 0x00, ARCH, B(CYCLES) },
    { 0x3c, 0x01, ARCH, B(REF_CYCLES) },
    { 0x62, 0x00, HAS_P6, B(REF_CYCLES) },
    { 0xc0, 0x00, HAS_P6 | ARCH, B(INSNS) },
    { 0xc0, 0x01, SINCE_NHM, B(INSNS) },
    /* Micro-operations issued, executed, retired; and the clocks without */
    { 0x0e, 0x01, SINCE_NHM & ~HAS_GLC, B(INSNS) },
    { 0xae, 0x01, HAS_GLC, B(INSNS) },
    { 0xb1, 0x3f, NEHALEMS, B(INSNS) },
    { 0xb1, 0x01, SINCE_SNB, B(INSNS) },
    { 0xb1, 0x02, SINCE_SNB, B(INSNS) },
    { 0xc2, 0x00, HAS_P6, B(INSNS) },
    { 0xc2, 0x01, NHM_TO_SKL, B(INSNS) },
    { 0xc2, 0x02, SINCE_NHM, B(INSNS) },
    { 0xa2, 0x00, HAS_P6, STALLED },
    { 0xc4, 0x00, HAS_P6 | ARCH, BRANCHES },
    { 0xc4, 0x03, HAS_CORE2, B(COND_NOT_TAKEN) },
    { 0xc4, 0x0c, HAS_CORE2, BRANCHES & ~B(COND_NOT_TAKEN) },
    { 0xc4, 0x01, NHM_TO_SKL, COND },
    { 0xc4, 0x01, SINCE_ICL, B(COND_TAKEN) },
    { 0xc4, 0x02, SINCE_NHM, CALLS },
    { 0xc4, 0x04, NHM_TO_SKL | HAS_GLC, BRANCHES },
    { 0xc4, 0x08, SINCE_SNB, B(RET) },
    { 0xc4, 0x10, SINCE_SNB, B(COND_NOT_TAKEN) },
    { 0xc4, 0x11, SINCE_ICL, COND },
    { 0xc4, 0x20, SINCE_SNB, NEAR_TAKEN },
    { 0xc4, 0x40, SINCE_SNB, B(FAR) },
    { 0xc4, 0x80, SINCE_ICL, INDIRECT },
    { 0xc5, 0x00, HAS_P6 | ARCH, PMU_MISPREDICTED },
    { 0xc5, 0x01, NHM_TO_SKL, M_COND },
    { 0xc5, 0x01, SINCE_ICL, B(MISP_COND_TAKEN) },
    { 0xc5, 0x02, SINCE_NHM, B(MISP_CALL_IND) },
    { 0xc5, 0x04, NHM_TO_SKL | HAS_GLC, PMU_MISPREDICTED },
    { 0xc5, 0x08, SINCE_HSW, B(MISP_RET) },
    { 0xc5, 0x10, BRIDGES | SINCE_ICL, B(MISP_COND_NOT_TAKEN) },
    { 0xc5, 0x11, SINCE_ICL, M_COND },
    { 0xc5, 0x20, SINCE_SNB, M_TAKEN },
    { 0xc5, 0x80, SINCE_ICL, M_INDIRECT },
    { 0xe8, 0x03, NEHALEMS, PMU_MISPREDICTED },
    { 0xc8, 0x00, HAS_P6 | HAS_CORE2, B(INTERRUPTS) },
    { 0xc9, 0x00, HAS_P6, BRANCHES & ~B(COND_NOT_TAKEN) },
    { 0xca, 0x00, HAS_P6, M_TAKEN },
    { 0xcb, 0x01, SINCE_SKL, B(INTERRUPTS) },
    { 0x1d, 0x01, NEHALEMS, B(INTERRUPTS) },

    /* Of L2's requests, those of L1D */
    { 0x43, 0x00, HAS_P6, PMU_LOADS | B(STORES) },
    { 0x45, 0x00, HAS_P6, FILLS },
    { 0x24, 0x00, HAS_P6, B(FILL_FAR) },
    { 0x29, 0x0f, HAS_P6, NOT_L1 },
    { 0x29, 0x01, HAS_P6, NOT_L2 },
    { 0x2e, 0x0f, HAS_P6, FILLS },
    { 0x2e, 0x01, HAS_P6, B(FILL_FAR) },
    { 0x2e, 0x00, HAS_P6, NEVER },      /* of lines in no state */
    { 0x2a, 0x0f, HAS_P6, S_NOT_L1 },
    { 0x2a, 0x01, HAS_P6, S_NOT_L2 },
    { 0x25, 0x00, HAS_P6, S_NOT_L2 },
    { 0x2e, 0x4f, LLC_IS_L2, FILLS },
    { 0x2e, 0x41, LLC_IS_L2, B(FILL_FAR) },
    { 0x2e, 0x4f, ARCH & ~LLC_IS_L2, NOT_L2 },
    { 0x2e, 0x41, ARCH & ~LLC_IS_L2, B(LOAD_DRAM) },
    { 0x29, 0x4f, HAS_CORE2 | HAS_BNL, NOT_L1 },
    { 0x29, 0x41, HAS_CORE2 | HAS_BNL, NOT_L2 },
    { 0x29, 0x7f, HAS_CORE2 | HAS_BNL, NOT_L1 },
    { 0x2a, 0x4f, HAS_CORE2 | HAS_BNL, S_NOT_L1 },
    { 0x2a, 0x41, HAS_CORE2 | HAS_BNL, S_NOT_L2 },
    { 0x41, 0x01, HAS_CORE2, S_NOT_L1 },
    { 0x40, 0x0f, HAS_CORE2 | HAS_NHM, PMU_LOADS },
    { 0x40, 0x01, HAS_CORE2, NOT_L1 },
    { 0x41, 0x0f, HAS_CORE2 | HAS_NHM, B(STORES) },
    { 0x40, 0x21, HAS_BNL, PMU_LOADS },
    { 0x40, 0x22, HAS_BNL, B(STORES) },
    { 0x04, 0x01, HAS_SLM, NOT_L1 },
    { 0x04, 0x02, HAS_SLM, B(LOAD_L2) },
    { 0x04, 0x04, HAS_SLM, NOT_L2 },
    { 0x04, 0x20, HAS_SLM, B(LOAD_MODIFIED) },
    { 0x04, 0x40, HAS_SLM, PMU_LOADS },
    { 0x04, 0x80, HAS_SLM, B(STORES) },
    { 0x45, 0x0f, HAS_CORE2, FILLS },
    { 0xcb, 0x01, HAS_CORE2, NOT_L1 },
    { 0xcb, 0x04, HAS_CORE2, NOT_L2 },
    { 0x0b, 0x01, NEHALEMS, PMU_LOADS },
    { 0x0b, 0x02, NEHALEMS, B(STORES) },
    { 0xcb, 0x01, NEHALEMS, B(LOAD_L1) },
    { 0xcb, 0x02, NEHALEMS, B(LOAD_L2) },
    { 0xcb, 0x04, NEHALEMS, B(LOAD_L3) },
    { 0xcb, 0x08, NEHALEMS, FROM_REMOTE },
    { 0xcb, 0x10, NEHALEMS, B(LOAD_DRAM) },
    { 0x51, 0x01, SINCE_NHM, FILLS },
    { 0x51, 0x02, NEHALEMS, S_NOT_L1 },
    { 0x51, 0x08, BRIDGES, S_NOT_L1 },
    { 0x24, 0x01, NEHALEMS | BRIDGES, B(LOAD_L2) },
    { 0x24, 0x02, NEHALEMS, NOT_L2 },
    { 0x24, 0x03, NEHALEMS | BRIDGES, NOT_L1 },
    { 0x24, 0x04, NEHALEMS | BRIDGES, B(STORE_L2) },
    { 0x24, 0x08, NEHALEMS | BRIDGES, S_NOT_L2 },
    { 0x24, 0x0c, NEHALEMS | BRIDGES, S_NOT_L1 },
    { 0x27, 0x0f, NEHALEMS | BRIDGES, S_NOT_L1 },
    { 0x24, 0xc0, NEHALEMS | BRIDGES, NEVER },  /* prefetches */
    { 0x24, 0xaa, NEHALEMS, NOT_L2 | S_NOT_L2 },
    { 0x24, 0xff, NEHALEMS | SINCE_HSW, NOT_L1 | S_NOT_L1 },
    { 0x24, 0x21, SINCE_HSW, NOT_L2 },
    { 0x24, 0x22, SINCE_HSW, S_NOT_L2 },
    { 0x24, 0x27, SINCE_HSW, NOT_L2 | S_NOT_L2 },
    { 0x24, 0x3f, SINCE_HSW, NOT_L2 | S_NOT_L2 },
    { 0x24, 0xc1, SINCE_HSW, B(LOAD_L2) },
    { 0x24, 0xc2, SINCE_HSW, B(STORE_L2) },
    { 0x24, 0xe1, SINCE_HSW, NOT_L1 },
    { 0x24, 0xe2, SINCE_HSW, S_NOT_L1 },
    { 0x24, 0xe7, SINCE_HSW, NOT_L1 | S_NOT_L1 },
    { 0x24, 0xf8, SINCE_HSW, NEVER },
    { 0xf0, 0x01, HAS_HSW | HAS_BDW, NOT_L1 },
    { 0xf0, 0x02, HAS_HSW | HAS_BDW, S_NOT_L1 },
    { 0xb0, 0x01, SINCE_SNB & ~HAS_GLC, NOT_L2 },
    { 0xb0, 0x04, SINCE_SNB & ~HAS_GLC, S_NOT_L2 },
    { 0xb0, 0x08, SINCE_SNB & ~HAS_GLC, NOT_L2 },
    { 0x21, 0x01, HAS_GLC, NOT_L2 },
    { 0x21, 0x08, HAS_GLC, NOT_L2 },
    { 0xf1, 0x07, SINCE_NHM & ~SINCE_SKL, B(FILL_FAR) },
    { 0xf1, 0x1f, HAS_SKL | HAS_ICL, B(FILL_FAR) },
    { 0x25, 0x1f, HAS_GLC, B(FILL_FAR) },
    { 0xd0, 0x05, HAS_CMT, B(TAGGED) },
    { 0xd0, 0x06, HAS_CMT, B(STORES) },
    { 0xd0, 0x21, SINCE_SNB | GLM_TO_CMT, B(LOCKED) },
    { 0xd0, 0x41, SINCE_SNB | GLM_TO_CMT, B(SPLIT_LOADS) },
    { 0xd0, 0x42, SINCE_SNB | GLM_TO_CMT, B(SPLIT_STORES) },
    { 0xd0, 0x43, GLM_TO_CMT, B(SPLIT_LOADS) | B(SPLIT_STORES) },
    { 0xd0, 0x81, SINCE_SNB | GLM_TO_CMT, PMU_LOADS },
    { 0xd0, 0x82, SINCE_SNB | GLM_TO_CMT, B(STORES) },
    { 0xd0, 0x83, SINCE_SKL | HAS_GLM | HAS_TNT, PMU_LOADS | B(STORES) },
    { 0xd0, 0xf1, BRIDGES, PMU_LOADS },
    { 0xd0, 0xf2, BRIDGES, B(STORES) },
    { 0xd1, 0x01, SINCE_SNB | GLM_TO_CMT, B(LOAD_L1) },
    { 0xd1, 0x02, SINCE_SNB | GLM_TO_CMT, B(LOAD_L2) },
    { 0xd1, 0x04, SINCE_SNB | HAS_TNT, FROM_L3 },
    { 0xd1, 0x08, SINCE_SNB | HAS_GLM | HAS_TNT, NOT_L1 },
    { 0xd1, 0x10, SINCE_SNB | HAS_GLM | HAS_TNT, NOT_L2 },
    { 0xd1, 0x20, SINCE_SNB, B(LOAD_DRAM) },
    { 0xd1, 0x20, HAS_GLM | HAS_TNT, B(LOAD_MODIFIED) },
    { 0xd1, 0x80, HAS_GLM | HAS_TNT, B(LOAD_DRAM) },
    { 0xd1, 0x1c, HAS_CMT, FROM_L3 },
    { 0xd1, 0x40, HAS_CMT, NOT_L1 },
    { 0xd1, 0x80, HAS_CMT, NOT_L2 },
    { 0x0b, 0x10, NEHALEMS, B(TAGGED) },
    { 0xcd, 0x01, SINCE_SNB, B(TAGGED) },
    { 0xcd, 0x02, BRIDGES | HAS_GLC, B(STORES) },
    { 0x03, 0x82, HAS_GLC, NEVER },     /* nothing is forwarded */
    { 0xd2, 0x02, SINCE_SNB, B(LOAD_REMOTE) },
    { 0xd2, 0x04, SINCE_SNB, B(LOAD_MODIFIED) },
    { 0xd2, 0x08, SINCE_SNB, B(LOAD_L3) },
    { 0xd3, 0x01, SINCE_HSW | HAS_CMT, B(LOAD_DRAM) },

    /* TLBs and the instruction cache */
    { 0x08, 0x01, HAS_CORE2, DATA_WALKS },
    { 0x08, 0x02, HAS_CORE2, B(TLB_LOAD_WALK) },
    { 0x08, 0x04, HAS_CORE2, LOAD_PAGES },
    { 0x08, 0x08, HAS_CORE2, B(TLB_STORE_WALK) },
    { 0x0c, 0x01, HAS_CORE2, DATA_WALKS | B(TLB_FETCH_WALK) },
    { 0xcb, 0x10, HAS_CORE2, B(STLB_MISS_LOADS) },
    { 0x82, 0x12, HAS_CORE2, CODE_PAGES },
    { 0x08, 0x05, HAS_BNL, B(TLB_LOAD_WALK) },
    { 0x08, 0x06, HAS_BNL, B(TLB_STORE_WALK) },
    { 0x08, 0x07, HAS_BNL, DATA_WALKS },
    { 0x08, 0x09, HAS_BNL, LOAD_PAGES },
    { 0x08, 0x0a, HAS_BNL, STORE_PAGES },
    { 0x0c, 0x01, HAS_BNL, EDGES | DATA_WALKS },
    { 0x0c, 0x02, HAS_BNL, EDGES | B(TLB_FETCH_WALK) },
    { 0x0c, 0x03, HAS_BNL, EDGES | DATA_WALKS | B(TLB_FETCH_WALK) },
    { 0xcb, 0x04, HAS_BNL, B(STLB_MISS_LOADS) },
    { 0x82, 0x02, HAS_BNL, CODE_PAGES },
    { 0x82, 0x82, HAS_BNL, CODE_PAGES },
    { 0x04, 0x08, HAS_SLM, B(STLB_MISS_LOADS) },
    { 0x05, 0x01, HAS_SLM, EDGES | DATA_WALKS },
    { 0x05, 0x02, HAS_SLM, EDGES | B(TLB_FETCH_WALK) },
    { 0x05, 0x03, HAS_SLM, EDGES | DATA_WALKS | B(TLB_FETCH_WALK) },
    { 0x81, 0x04, GLM_TO_CMT, CODE_PAGES },
    { 0x08, 0x01, NHM_TO_SKL & ~HAS_IVB, B(TLB_LOAD_WALK) },
    { 0x08, 0x02, NEHALEMS | HAS_SNB, B(TLB_LOAD_WALK) },
    { 0x08, 0x81, HAS_IVB, B(TLB_LOAD_WALK) },
    { 0x08, 0x82, HAS_IVB, B(TLB_LOAD_WALK) },
    { 0x08, 0x0e, SINCE_HSW & ~HAS_GLC, B(TLB_LOAD_WALK) },
    { 0x08, 0x0e, TNT_CMT, B(TLB_LOAD_WALK) },
    { 0x12, 0x0e, HAS_GLC, B(TLB_LOAD_WALK) },
    { 0x08, 0x10, NEHALEMS | HAS_SNB, B(TLB_LOAD_L2) },
    { 0x5f, 0x04, BRIDGES, B(TLB_LOAD_L2) },
    { 0x08, 0x60, HAS_HSW | HAS_BDW, B(TLB_LOAD_L2) },
    { 0x08, 0x20, HAS_SKL | HAS_ICL | TNT_CMT, B(TLB_LOAD_L2) },
    { 0x12, 0x20, HAS_GLC, B(TLB_LOAD_L2) },
    { 0x49, 0x01, NEHALEMS, DATA_WALKS },
    { 0x49, 0x02, NEHALEMS, DATA_WALKS },
    { 0x49, 0x10, NEHALEMS, DATA_L2 },
    { 0x49, 0x01, NHM_TO_SKL & ~NEHALEMS, B(TLB_STORE_WALK) },
    { 0x49, 0x02, BRIDGES, B(TLB_STORE_WALK) },
    { 0x49, 0x0e, SINCE_HSW & ~HAS_GLC, B(TLB_STORE_WALK) },
    { 0x49, 0x0e, TNT_CMT, B(TLB_STORE_WALK) },
    { 0x13, 0x0e, HAS_GLC, B(TLB_STORE_WALK) },
    { 0x49, 0x10, BRIDGES, B(TLB_STORE_L2) },
    { 0x49, 0x60, HAS_HSW | HAS_BDW, B(TLB_STORE_L2) },
    { 0x49, 0x20, HAS_SKL | HAS_ICL | TNT_CMT, B(TLB_STORE_L2) },
    { 0x13, 0x20, HAS_GLC, B(TLB_STORE_L2) },
    { 0xcb, 0x80, NEHALEMS, B(STLB_MISS_LOADS) },
    { 0x0c, 0x01, NEHALEMS, B(STLB_MISS_STORES) },
    { 0xd0, 0x11, SINCE_SNB | GLM_TO_CMT, B(STLB_MISS_LOADS) },
    { 0xd0, 0x12, SINCE_SNB | GLM_TO_CMT, B(STLB_MISS_STORES) },
    { 0xd0, 0x13, GLM_TO_CMT, B(STLB_MISS_LOADS) | B(STLB_MISS_STORES) },
    { 0xc8, 0x20, NEHALEMS, B(TLB_FETCH_WALK) },
    { 0x85, 0x00, HAS_P6 | HAS_CORE_DUO, CODE_PAGES },
    { 0x85, 0x01, NHM_TO_SKL, B(TLB_FETCH_WALK) },
    { 0x85, 0x02, NEHALEMS | BRIDGES, B(TLB_FETCH_WALK) },
    { 0x85, 0x0e, SINCE_HSW & ~HAS_GLC, B(TLB_FETCH_WALK) },
    { 0x85, 0x0e, TNT_CMT, B(TLB_FETCH_WALK) },
    { 0x11, 0x0e, HAS_GLC, B(TLB_FETCH_WALK) },
    { 0x85, 0x10, BRIDGES, B(TLB_FETCH_L2) },
    { 0x85, 0x60, HAS_HSW | HAS_BDW, B(TLB_FETCH_L2) },
    { 0x85, 0x20, HAS_SKL | HAS_ICL | TNT_CMT, B(TLB_FETCH_L2) },
    { 0x11, 0x20, HAS_GLC, B(TLB_FETCH_L2) },
    { 0x80, 0x00, HAS_P6 | HAS_CORE_DUO | HAS_CORE2, B(FETCHES) },
    { 0x81, 0x00, HAS_P6 | HAS_CORE_DUO | HAS_CORE2, B(FETCH_MISSES) },
    { 0x28, 0x0f, HAS_P6, B(FETCH_MISSES) },
    { 0x28, 0x4f, HAS_CORE2 | HAS_BNL, B(FETCH_MISSES) },
    { 0x80, 0x02, HAS_BNL | SLM_GLM | TNT_CMT | NEHALEMS | BRIDGES | HAS_HSW |
                  HAS_BDW, B(FETCH_MISSES) },
    { 0x80, 0x03, HAS_BNL | SLM_GLM | TNT_CMT | NEHALEMS, B(FETCHES) },
    { 0x83, 0x02, HAS_SKL | HAS_ICL, B(FETCH_MISSES) },
    { 0x24, 0x30, NEHALEMS | BRIDGES, B(FETCH_MISSES) },
    { 0x24, 0xe4, SINCE_HSW, B(FETCH_MISSES) },

    /* Zhaoxin's, besides the architectural ones */
    { 0x82, 0x00, HAS_ZX, B(CYCLES) },
    { 0x83, 0x00, HAS_ZX, B(REF_CYCLES) },
    { 0x01, 0x01, HAS_ZX, B(INSNS) },       /* micro-operations */
    { 0x0f, 0x04, HAS_ZX, STALLED },
    { 0x00, 0x07, HAS_ZX, BRANCHES },       /* models up to 1BH */
    { 0x28, 0x00, HAS_ZX, BRANCHES },
    { 0x09, 0x07, HAS_ZX, PMU_MISPREDICTED },
    { 0x29, 0x00, HAS_ZX, PMU_MISPREDICTED },
    { 0x42, 0x00, HAS_ZX, PMU_LOADS },
    { 0x68, 0x05, HAS_ZX, PMU_LOADS },
    { 0x43, 0x00, HAS_ZX, B(STORES) },
    { 0x69, 0x06, HAS_ZX, B(STORES) },
    { 0x38, 0x05, HAS_ZX, NOT_L1 },
    { 0x4b, 0x05, HAS_ZX, NOT_L1 },
    { 0x62, 0x05, HAS_ZX, S_NOT_L1 },
    { 0x15, 0x05, HAS_ZX, FILLS },          /* its last level is L2 */
    { 0x1a, 0x05, HAS_ZX, B(FILL_FAR) },
    { 0x2c, 0x05, HAS_ZX, LOAD_PAGES },
    { 0x30, 0x05, HAS_ZX, STORE_PAGES },
    { 0x34, 0x05, HAS_ZX, CODE_PAGES },
    { 0x00, 0x03, HAS_ZX, B(FETCHES) },
    { 0x01, 0x03, HAS_ZX, B(FETCH_MISSES) },

    { 0x00, 0, P5_LIKE, PMU_LOADS },
    { 0x01, 0, P5_LIKE, B(STORES) },
    { 0x02, 0, P5_LIKE, LOAD_PAGES | STORE_PAGES },
    { 0x03, 0, P5_LIKE, NOT_L1 },
    { 0x04, 0, P5_LIKE, S_NOT_L1 },
    { 0x0b, 0, P5_AND_MX, B(SPLIT_LOADS) | B(SPLIT_STORES) },
    { 0x0c, 0, P5_AND_MX, B(FETCHES) },
    { 0x0d, 0, P5_LIKE, CODE_PAGES },
    { 0x0e, 0, P5_LIKE, B(FETCH_MISSES) },
    { 0x12, 0, P5_AND_MX, BRANCHES },
    { 0x14, 0, P5_AND_MX, BRANCHES & ~B(COND_NOT_TAKEN) },
    { 0x15, 0, P5_AND_MX, PMU_MISPREDICTED },
    { 0x16, 0, P5_LIKE, B(INSNS) },
    { 0x17, 0, P5_AND_MX, NEVER },          /* of these, in the other pipe */
    { 0x1c, 0, P5_AND_MX, B(LOCKED) },
    { 0x27, 0, P5_AND_MX, B(INTERRUPTS) },
    { 0x28, 0, P5_LIKE, PMU_LOADS | B(STORES) },
    { 0x29, 0, P5_AND_MX, NOT_L1 | S_NOT_L1 },
    { 0x30, COUNTER(0), HAS_P5, B(CYCLES) },
    { 0x32, COUNTER(1), P5_AND_MX, BRANCHES & ~B(COND_NOT_TAKEN) },
    { 0x35, COUNTER(0), HAS_P5, PMU_MISPREDICTED },
    { 0x37, COUNTER(0), P5_AND_MX, B(MISP_RET) },
    { 0x37, COUNTER(1), P5_AND_MX, B(RET) },
    { 0x39, COUNTER(0), P5_AND_MX, B(RET) },
    { 0x400, 0, HAS_6X86MX, DATA_WALKS | B(TLB_FETCH_WALK) },
    { 0x401, 0, HAS_6X86MX, LOAD_PAGES | STORE_PAGES },
    { 0x402, 0, HAS_6X86MX, CODE_PAGES },
    { 0x403, 0, HAS_6X86MX, LOAD_PAGES | STORE_PAGES | CODE_PAGES },
    { 0x408, 0, HAS_6X86MX, B(INSNS) },     /* decoded */
    { 0x00, 0, HAS_C6, B(CYCLES) },
    { 0x02, 0, HAS_C6, B(INSNS) },
    { 0x47, 0, HAS_C6, NOT_L1 },
    { 0x4a, 0, HAS_C6, S_NOT_L1 },
    { 0x3f, 0, HAS_WINCHIP2, B(CYCLES) },
    { 0x79, 0, HAS_C3, B(CYCLES) },
    { 0xc0, 0, HAS_C3, B(INSNS) },
    { 0x1c0, 0, HAS_C3, B(INSNS) },         /* of a string one, not its parts */

    { 0x76, NO_UMASK, AMD, B(CYCLES) },
    { 0x120, 0x01, HAS_ZEN4, B(REF_CYCLES) },
    { 0xc0, NO_UMASK, AMD, B(INSNS) },
    { 0xc1, NO_UMASK, AMD, B(INSNS) },  /* micro-operations */
    { 0xd0, NO_UMASK, OLD_AMD | HAS_HYGON, STALLED },
    { 0xd1, NO_UMASK, OLD_AMD, STALLED },
    { 0x87, 0x01, HAS_17H, STALLED },
    { 0x87, 0x02, HAS_17H, STALLED },
    { 0xa9, NO_UMASK, HAS_ZEN2 | HAS_ZEN4, STALLED },
    { 0xc2, NO_UMASK, AMD, BRANCHES },
    { 0xc3, NO_UMASK, AMD, PMU_MISPREDICTED },
    { 0xc4, NO_UMASK, AMD, BRANCHES & ~B(COND_NOT_TAKEN) },
    { 0xc5, NO_UMASK, AMD, M_TAKEN },
    { 0xc6, NO_UMASK, AMD, B(FAR) },
    { 0xc8, NO_UMASK, AMD, B(RET) },
    { 0xc9, NO_UMASK, AMD, B(MISP_RET) },
    { 0xca, NO_UMASK, AMD, M_INDIRECT },
    { 0xcf, NO_UMASK, OLD_AMD, B(INTERRUPTS) },
    { 0x2c, NO_UMASK, HAS_17H, B(INTERRUPTS) },
    { 0xd1, NO_UMASK, HAS_17H, COND },
    { 0xd2, NO_UMASK, HAS_17H, M_COND },

    { 0x40, NO_UMASK, AMD, PMU_LOADS | B(STORES) },
    { 0x41, NO_UMASK, OLD_AMD, FILLS },
    { 0x42, NO_UMASK, OLD_AMD, B(FILL_L2) },
    { 0x43, NO_UMASK, OLD_AMD, B(FILL_FAR) },
    /* Of L2's requests and misses, those of L1D */
    { 0x7d, 0x02, OLD_AMD, FILLS },
    { 0x7d, 0x03, OLD_AMD, FILLS },
    { 0x7d, 0x07, OLD_AMD | HAS_HYGON, FILLS },
    { 0x7e, 0x02, OLD_AMD, B(FILL_FAR) },
    { 0x7e, 0x03, OLD_AMD, B(FILL_FAR) },
    { 0x7e, 0x07, OLD_AMD | HAS_HYGON, B(FILL_FAR) },
    { 0x7f, 0x01, OLD_AMD, B(FILL_FAR) },
    { 0x24, 0x01, OLD_AMD, B(LOCKED) },
    /* Requests to memory: both, the local node's, others' */
    { 0xe9, 0xb8, OLD_AMD, B(LOAD_DRAM) },
    { 0xe9, 0xa8, OLD_AMD, B(LOAD_DRAM) },
    { 0xe9, 0x98, OLD_AMD, NEVER },
    { 0x29, 0x01, HAS_15H | HAS_17H, PMU_LOADS },
    { 0x29, 0x02, HAS_15H | HAS_17H, B(STORES) },
    { 0x29, 0x07, HAS_17H, PMU_LOADS | B(STORES) },
    { 0x41, 0x01, HAS_17H, NOT_L1 },
    { 0x60, 0x80, HAS_17H, NOT_L1 },
    { 0x60, 0x40, HAS_17H, S_NOT_L1 },
    { 0x60, 0xc8, HAS_17H, FILLS },
    { 0x60, 0xe8, HAS_17H, FILLS },
    { 0x60, 0xf9, HAS_17H, FILLS },
    { 0x60, 0xff, HAS_17H, FILLS },
    { 0x64, 0x08, HAS_17H, B(FILL_FAR) },
    { 0x64, 0x09, HAS_17H, B(FILL_FAR) },
    { 0x64, 0x10, HAS_17H, B(STORE_L2) },
    { 0x64, 0x40, HAS_17H, B(LOAD_L2) },
    { 0x64, 0x60, HAS_17H, B(LOAD_L2) },
    { 0x64, 0x70, HAS_17H, B(FILL_L2) },
    { 0x64, 0xf0, HAS_17H, B(FILL_L2) },
    { 0x64, 0xf6, HAS_17H, B(FILL_L2) },
    /* By source, of which no node has another one's */
    { 0x43, 0x01, HAS_17H, B(LOAD_L2) | B(STORE_L2) },
    { 0x43, 0x02, HAS_17H, FROM_L3 | S_FROM_L3 },
    { 0x43, 0x08, HAS_17H, B(LOAD_DRAM) | B(STORE_DRAM) },
    { 0x43, 0x50, HAS_17H, NEVER },
    { 0x45, 0x00, HAS_K7, DATA_L2 },
    { 0x45, 0x07, OLD_AMD, DATA_L2 },
    { 0x46, 0x00, HAS_K7, DATA_WALKS },
    { 0x46, 0x07, OLD_AMD, DATA_WALKS },
    { 0x46, 0x70, HAS_15H, B(TLB_FETCH_WALK) },
    { 0x46, 0x77, HAS_15H, DATA_WALKS | B(TLB_FETCH_WALK) },
    { 0x45, 0x0f, HAS_17H, DATA_L2 },
    { 0x45, 0xf0, HAS_17H, DATA_WALKS },
    { 0x45, 0xff, HAS_17H, LOAD_PAGES | STORE_PAGES },
    { 0x84, NO_UMASK, AMD, B(TLB_FETCH_L2) },
    { 0x85, 0x00, HAS_K7, B(TLB_FETCH_WALK) },
    { 0x85, 0x03, OLD_AMD, B(TLB_FETCH_WALK) },
    { 0x85, 0x07, HAS_15H | HAS_17H, B(TLB_FETCH_WALK) },
    { 0x85, 0x0f, HAS_17H, B(TLB_FETCH_WALK) },
    { 0x85, 0xff, HAS_17H, B(TLB_FETCH_WALK) },
    { 0x80, NO_UMASK, AMD, B(FETCHES) },
    { 0x81, NO_UMASK, AMD, B(FETCH_MISSES) },
    { 0x7d, 0x01, OLD_AMD, B(FETCH_MISSES) },
    { 0x60, 0x10, HAS_17H, B(FETCH_MISSES) },
    { 0x18e, 0x18, HAS_ZEN2 | HAS_ZEN4, B(FETCH_MISSES) },
    { 0x18e, 0x1f, HAS_ZEN2 | HAS_ZEN4, B(FETCHES) },
};

/*
 * Offcore responses, of which MSR_OFFCORE_RSP_n selects the request, who
 * supplied the data, and what other processors said when they were asked for
 * them; 0 stands for any answer.  Requests are what a program asks for: reads
 * of data, which loads are, and reads for ownership, as this table has loads
 * for stores.  All DRAM is local.
 */
/* As Linux' extra_regs[] and libpfm4 have it (Crestmont: Linux alone) */
static const struct {
    uint8_t event, umask;
    uint32_t has;
    uint8_t mask;           /* the number of its MSR */
} offcore_events[] = {
    { 0xb7, 0x01, (SINCE_NHM & ~HAS_GLC) | SLM_GLM | TNT_CMT, 0 },
    { 0xb7, 0x02, SLM_GLM | TNT_CMT, 1 },
    { 0xbb, 0x01, SINCE_NHM & ~(HAS_NHM | HAS_GLC), 1 },
    { 0x2a, 0x01, HAS_GLC, 0 },
    { 0x2b, 0x01, HAS_GLC, 1 },
};

#define OFFCORE_DATA_RD     (1ull << 0)
#define OFFCORE_RFO         (1ull << 1)
#define OFFCORE_ANY         (1ull << 16)
#define OFFCORE_L3          (7ull << 19)    /* E, S, F */
#define SNOOP_MISS          (7ull << 31)    /* or none, or none needed */
#define SNOOP_HIT           (3ull << 34)    /* with and without forwarding */
#define SNOOP_HITM          (1ull << 36)

static const struct {
    uint32_t has;
    uint64_t supplier, snoop;
    uint64_t quantities;
} offcore_responses[] = {
    { NEHALEMS, 1 << 8, 0, B(LOAD_L3) },
    { NEHALEMS, 1 << 9, 0, B(LOAD_REMOTE) },
    { NEHALEMS, 1 << 10, 0, B(LOAD_MODIFIED) },
    { NEHALEMS, 1 << 14, 0, B(LOAD_DRAM) },
    { SINCE_SNB | TNT_CMT, OFFCORE_ANY, 0, NOT_L2 },
    { SINCE_SNB | TNT_CMT, OFFCORE_L3, SNOOP_MISS, B(LOAD_L3) },
    { SINCE_SNB | TNT_CMT, OFFCORE_L3, SNOOP_HIT, B(LOAD_REMOTE) },
    { SINCE_SNB | TNT_CMT, OFFCORE_L3, SNOOP_HITM, B(LOAD_MODIFIED) },
    { BRIDGES | HAS_HSW, 1 << 22, SNOOP_MISS, B(LOAD_DRAM) },
    { SINCE_BDW | TNT_CMT, 1 << 26, SNOOP_MISS, B(LOAD_DRAM) },
    { SLM_GLM, OFFCORE_ANY, 0, NOT_L1 },
    { SLM_GLM, 1 << 18, 0, B(LOAD_L2) },
    { SLM_GLM, SNOOP_MISS, 0, B(LOAD_L3) | B(LOAD_DRAM) },
    { SLM_GLM, SNOOP_HIT, 0, B(LOAD_REMOTE) },
    { SLM_GLM, SNOOP_HITM, 0, B(LOAD_MODIFIED) },
};

/*
 * Events of floating-point instructions: an instruction counts if its unit mask
 * has a bit that is in @width and, where that matters, in @kind for it.  If
 * there are no unit masks (@umasks is 0), it has to be 0, and stands for all.
 */
typedef enum FpCounts {
    FP_ONCE,                /* of all kinds but PMU_FP_INT and PMU_FP_NONE, */
    FP_AND_INT,             /* with that, */
    FP_OPERATIONS,          /* or twice, if it does two */
    FP_KINDS,               /* of these kinds, once, */
    FP_ELEMENTS,            /* or each operation with each of its elements */
} FpCounts;

static const struct {
    uint8_t event;
    uint32_t has;
    uint8_t umasks;
    FpCounts counts;
    uint8_t width[PMU_FP_NR_WIDTHS], kind[PMU_FP_NR_KINDS];
} fp_events[] = {
    /* Operations executed; P6's have counter 0 only. */
    { 0x22, P5_AND_MX, 0, FP_ONCE, { 0xff }, { 0 } },
    { 0x10, HAS_P6, 0, FP_AND_INT, { 0xff }, { 0 } },
    { 0xc1, HAS_P6, 0, FP_ONCE, { 0xff }, { 0 } },
    { 0x10, HAS_CORE2, 0, FP_ONCE, { 1, 1, 1, 1, 1 }, { 0 } },
    { 0xca, HAS_CORE2, 0x0f, FP_ONCE, { 0, 2, 8, 1, 4 }, { 0 } },
    { 0x10, NEHALEMS, 0xf5, FP_AND_INT, { 1, 0x64, 0xa4, 0x54, 0x94 }, { 0 } },
    { 0x10, BRIDGES, 0xf1, FP_AND_INT, { 1, 0x20, 0x80, 0x40, 0x10 }, { 0 } },
    { 0x11, BRIDGES, 0x03, FP_ONCE, { 0, 0, 0, 0, 0, 1, 2 }, { 0 } },
    /* Of 512 bits there are none. */
    { 0xc7, SINCE_BDW, 0xff, FP_OPERATIONS, { 0, 2, 1, 8, 4, 0x20, 0x10 },
      { 0 } },
    /* Instructions of x87, MMX and SSE */
    { 0xcb, AMD, 0x07, FP_KINDS, { 1, 4, 4, 4, 4, 4, 4, 2 },
      { 7, 7, 7, 7, 7, 7, 0, 7 } },
    { 0x02, HAS_17H, 0x07, FP_KINDS, { 0xff }, { 1, 2, 4 } },
    { 0x03, HAS_15H | HAS_ZEN1, 0xff, FP_ELEMENTS,
      { 0, 0x0f, 0xf0, 0x0f, 0xf0, 0x0f, 0xf0 },
      { 0x11, 0x22, 0x44, 0x88, 0, 0x33 } },
    { 0x03, HAS_ZEN2 | HAS_ZEN4, 0xff, FP_ELEMENTS,
      { 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff },
      { 0x01, 0x02, 0x04, 0x08, 0, 0x03 } },
};

/*
 * The events that PEBS has on processors where not all are precise; on others,
 * the counter is as without it.  They are precise in Linux' pebs_constraints[]
 * and in libpfm4 (INTEL_X86_PEBS), Nehalem's and Westmere's in Intel's lists,
 * too; but 0BH without latency is Linux' no more.
 */
static const struct {
    uint16_t event, umask;
    uint32_t has;
} precise_events[] = {
    { 0xc0, 0x00, HAS_CORE2 },
    { 0xc5, 0x00, HAS_CORE2 },
    { 0xcb, NO_UMASK, HAS_CORE2 | NEHALEMS },
    { 0x0b, NO_UMASK, NEHALEMS },
    { 0x0c, 0x01, NEHALEMS },
    { 0xc0, NO_UMASK, NEHALEMS },
    { 0xc2, NO_UMASK, NEHALEMS },
    { 0xc4, NO_UMASK, NEHALEMS },
    { 0xc5, 0x02, HAS_NHM },
    { 0xc5, NO_UMASK, HAS_WSM },
    { 0xc8, 0x20, NEHALEMS },
};

/*
 * Load latency and stores that are sampled count with PEBS only, in some
 * counters, and where PEBS_ENABLE has another bit for them, with that.
 * Counters are those of Linux' pebs_constraints[] and of Intel's lists (Linux'
 * pmu-events), bits those of Linux' intel_pmu_pebs_enable() and of SDM
 * 18.8.1.2.  Intel's lists have counter 3 alone for 0BH, and for CDH up to
 * Broadwell, where SDM and Linux have all four of Nehalem's and Haswell's.
 */
static const struct {
    uint16_t event, umask;
    uint32_t has;
    uint8_t counters;
    uint64_t enable;            /* of counter 0; the others' are behind it, */
    bool enables_all;           /* or it is for all */
} sampled_events[] = {
    { 0x0b, 0x10, NEHALEMS, 0x0f, PEBS_LATENCY(0), false },
    { 0xcd, 0x01, BRIDGES, 0x08, PEBS_LATENCY(0), false },
    { 0xcd, 0x01, HSW_TO_SKL, 0x0f, PEBS_LATENCY(0), false },
    { 0xcd, 0x01, HAS_ICL, 0xff, 0, true },
    { 0xcd, 0x01, HAS_GLC, 0xfe, 0, true },
    { 0xcd, 0x02, BRIDGES, 0x08, PEBS_STORES, true },
    { 0xcd, 0x02, HAS_GLC, 0x01, 0, true },
    { 0xd0, 0x05, HAS_CMT, 0x03, 0, true },
};

/*
 * The events whose records have a data address (SDM 18.9.4.2 and 18.9.4.3,
 * 18.11.3, 18.7.1.1), and what else there is to it.  They have Data_LA in
 * Intel's lists (tools/perf/pmu-events/arch/x86 in Linux 6.12), and those of
 * Haswell and later, and Crestmont's D0/5 and D0/6, are Linux' in ds.c.  One
 * source only: C2/1 has SDM table 18-45 and Linux, no list; and of D0, D0/11 to
 * D0/13 and D0/83 are not in Crestmont's.
 */
static const struct {
    uint16_t event, umask;
    uint32_t has;
    PmuData data;
} data_events[] = {
    { 0x0b, 0x10, NEHALEMS, PMU_DATA_LATENCY },
    { 0xcd, 0x01, SINCE_SNB, PMU_DATA_LATENCY },
    { 0xcd, 0x02, BRIDGES, PMU_DATA_STORE },
    { 0xcd, 0x02, HAS_GLC, PMU_DATA_STORE_LATENCY },
    { 0xd0, 0x05, HAS_CMT, PMU_DATA_LATENCY },
    { 0xd0, 0x06, HAS_CMT, PMU_DATA_STORE_LATENCY },
    { 0xc2, 0x01, HAS_HSW | HAS_BDW, PMU_DATA_SOURCE },
    { 0xd0, NO_UMASK, SINCE_HSW, PMU_DATA_SOURCE },
    { 0xd1, NO_UMASK, SINCE_HSW, PMU_DATA_SOURCE },
    { 0xd2, NO_UMASK, SINCE_HSW, PMU_DATA_SOURCE },
    { 0xd3, NO_UMASK, SINCE_HSW, PMU_DATA_SOURCE },
    { 0xd0, NO_UMASK, GLM_TO_CMT, PMU_DATA_ADDRESS },
    { 0xd1, NO_UMASK, HAS_GLM | HAS_TNT, PMU_DATA_ADDRESS },
    { 0x04, 0x02, HAS_KNL, PMU_DATA_ADDRESS },
    { 0x04, 0x04, HAS_KNL, PMU_DATA_ADDRESS },
    { 0x04, 0x08, HAS_KNL, PMU_DATA_ADDRESS },
    { 0x04, 0x20, HAS_KNL, PMU_DATA_ADDRESS },
};

/* Zen's odd counters have the upper 16 bits of the even ones before them. */
#define EVENT_MERGE         0xfff

static const uint64_t fixed_event[PMU_MAX_FIXED] = {
    B(INSNS), B(CYCLES), B(REF_CYCLES),
};

static const struct {
    uint64_t quantities;
    const char *name;
} event_names[] = {
    { B(INSNS), "instructions" },
    { B(CYCLES), "core cycles" },
    { B(REF_CYCLES), "reference cycles" },
    { BRANCHES, "branches" },
    { COND, "conditional branches" },
    { B(COND_TAKEN), "conditional branches taken" },
    { B(COND_NOT_TAKEN), "branches not taken" },
    { BRANCHES & ~B(COND_NOT_TAKEN), "branches taken" },
    { NEAR_TAKEN, "near branches taken" },
    { CALLS, "near calls" },
    { B(RET), "near returns" },
    { INDIRECT, "indirect jumps and calls" },
    { B(FAR), "far transfers" },
    { PMU_MISPREDICTED, "mispredicted branches" },
    { M_COND, "mispredicted conditional branches" },
    { B(MISP_COND_TAKEN), "mispredicted conditional branches taken" },
    { B(MISP_COND_NOT_TAKEN), "mispredicted branches not taken" },
    { M_TAKEN, "mispredicted branches taken" },
    { B(MISP_CALL_IND), "mispredicted near calls" },
    { B(MISP_RET), "mispredicted near returns" },
    { M_INDIRECT, "mispredicted indirect jumps and calls" },
    { B(INTERRUPTS), "hardware interrupts" },
    { B(TAGGED), "tagged loads" },
    { PMU_LOADS, "loads" },
    { B(STORES), "stores" },
    { PMU_LOADS | B(STORES), "loads and stores" },
    { B(LOCKED), "locked loads" },
    { B(SPLIT_LOADS), "loads from two lines" },
    { B(SPLIT_STORES), "stores to two lines" },
    { B(LOAD_L1), "loads that hit L1D" },
    { B(LOAD_L2), "loads that hit L2" },
    { B(LOAD_L3), "loads that hit L3 alone" },
    { FROM_L3, "loads that hit L3" },
    { B(LOAD_REMOTE), "loads that hit other CPUs' unmodified lines" },
    { B(LOAD_MODIFIED), "loads that hit other CPUs' modified lines" },
    { FROM_REMOTE, "loads that hit other CPUs' caches" },
    { B(LOAD_DRAM), "loads that miss L3" },
    { NOT_L1, "loads that miss L1D" },
    { NOT_L2, "loads that miss L2" },
    { FILLS, "lines into L1D" },
    { B(FILL_L2), "lines into L1D from L2" },
    { B(FILL_FAR), "lines into L1D from behind L2" },
    { B(STORE_L2), "stores that hit L2" },
    { S_NOT_L1, "stores that miss L1D" },
    { S_NOT_L2, "stores that miss L2" },
    { B(STORE_DRAM), "stores that miss L3" },
    { NOT_L1 | S_NOT_L1, "accesses that miss L1D" },
    { NOT_L2 | S_NOT_L2, "accesses that miss L2" },
    { B(FLOATING), "floating-point operations" },
    { B(TLB_LOAD_L2), "pages of loads from STLB" },
    { B(TLB_LOAD_WALK), "page walks for loads" },
    { LOAD_PAGES, "pages of loads into DTLB" },
    { B(TLB_STORE_L2), "pages of stores from STLB" },
    { B(TLB_STORE_WALK), "page walks for stores" },
    { STORE_PAGES, "pages of stores into DTLB" },
    { DATA_L2, "pages of data from STLB" },
    { DATA_WALKS, "page walks for data" },
    { LOAD_PAGES | STORE_PAGES, "pages into DTLB" },
    { DATA_WALKS | B(TLB_FETCH_WALK), "page walks" },
    { B(STLB_MISS_LOADS), "loads that miss STLB" },
    { B(STLB_MISS_STORES), "stores that miss STLB" },
    { B(STLB_MISS_LOADS) | B(STLB_MISS_STORES), "accesses that miss STLB" },
    { B(TLB_FETCH_L2), "pages of code from STLB" },
    { B(TLB_FETCH_WALK), "page walks for code" },
    { CODE_PAGES, "pages into ITLB" },
    { LOAD_PAGES | STORE_PAGES | CODE_PAGES, "pages into TLBs" },
    { B(SPLIT_LOADS) | B(SPLIT_STORES), "accesses to two lines" },
    { B(FETCHES), "lines of code fetched" },
    { B(FETCH_MISSES), "lines of code that miss L1I" },
    { STALLED, "stalled cycles" },
    { NEVER, "what never happens here" },
};

typedef enum PmuReg {
    REG_ABSENT,             /* ours, but no processor here has it: #GP */
    REG_EVTSEL,
    REG_PMC,
    REG_PMC_FULL,           /* IA32_A_PMCn */
    REG_EVTSEL_PMC,         /* in turn */
    REG_FIXED,
    REG_FIXED_CTRL,
    REG_STATUS,
    REG_GLOBAL_CTRL,
    REG_STATUS_RESET,
    REG_STATUS_SET,
    REG_INUSE,
    REG_CAPS,
    REG_PEBS_ENABLE,
    REG_PEBS_DATA_CFG,
    REG_LOAD_LATENCY,
    REG_FRONTEND,
    REG_OFFCORE,
    REG_CLOCKS,             /* IA32_MPERF, IA32_APERF (SDM 14.2), all vendors */
    REG_CLOCKS_RO,          /* the same; what is written is ignored */
    REG_CESR,               /* P5's, who has no other */
    REG_CTR,
} PmuReg;

/*
 * Where an MSR is; one that is missing on a processor is PMU_MSR_GP there.  All
 * are in Linux' msr-index.h or in edk2's MdePkg/Include/Register/Intel, most in
 * both, but C000_00E7H and C000_00E8H, which are in AMD's PPRs only.
 */
static const struct {
    uint32_t first, last;
    PmuReg reg;
    PmuVendor vendor;
    uint8_t version;        /* from this one on */
} msrs[] = {
#define INTEL PMU_VENDOR_INTEL
    { 0x011, 0x011, REG_CESR, INTEL, 0 },
    { 0x012, 0x013, REG_CTR, INTEL, 0 },
    { 0x0c1, 0x0c8, REG_PMC, INTEL, 0 },
    { 0x0e7, 0x0e8, REG_CLOCKS, INTEL, 0 },
    { 0x186, 0x18d, REG_EVTSEL, INTEL, 0 },
    { 0x4c1, 0x4c8, REG_PMC_FULL, INTEL, 0 },
    { 0x1a6, 0x1a7, REG_OFFCORE, INTEL, 0 },
    { 0x309, 0x30b, REG_FIXED, INTEL, 2 },
    { 0x345, 0x345, REG_CAPS, INTEL, 0 },
    { 0x38d, 0x38d, REG_FIXED_CTRL, INTEL, 2 },
    { 0x38e, 0x38e, REG_STATUS, INTEL, 2 },
    { 0x38f, 0x38f, REG_GLOBAL_CTRL, INTEL, 2 },
    { 0x390, 0x390, REG_STATUS_RESET, INTEL, 2 },
    { 0x391, 0x391, REG_STATUS_SET, INTEL, 4 },
    { 0x392, 0x392, REG_INUSE, INTEL, 4 },
    { 0x30c, 0x30f, REG_ABSENT, INTEL, 0 },     /* IA32_FIXED_CTR3 */
    { 0x3f1, 0x3f1, REG_PEBS_ENABLE, INTEL, 0 },
    { 0x3f2, 0x3f2, REG_PEBS_DATA_CFG, INTEL, 0 },
    { 0x3f6, 0x3f6, REG_LOAD_LATENCY, INTEL, 0 },
    { 0x3f7, 0x3f7, REG_FRONTEND, INTEL, 0 },
#undef INTEL
    { 0xc00000e7, 0xc00000e8, REG_CLOCKS_RO, PMU_VENDOR_AMD, 0 },
    { 0xc0000300, 0xc0000300, REG_STATUS, PMU_VENDOR_AMD, 0 },
    { 0xc0000301, 0xc0000301, REG_GLOBAL_CTRL, PMU_VENDOR_AMD, 0 },
    { 0xc0000302, 0xc0000302, REG_STATUS_RESET, PMU_VENDOR_AMD, 0 },
    { 0xc0000303, 0xc0000303, REG_STATUS_SET, PMU_VENDOR_AMD, 0 },
    { 0xc0010000, 0xc0010003, REG_EVTSEL, PMU_VENDOR_AMD, 0 },
    { 0xc0010004, 0xc0010007, REG_PMC, PMU_VENDOR_AMD, 0 },
    { 0xc0010200, 0xc001020b, REG_EVTSEL_PMC, PMU_VENDOR_AMD, 0 },
};

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)       ((a) < (b) ? (a) : (b))

static uint64_t ones(unsigned n)
{
    return (1ull << n) - 1;
}

static bool is_amd(const PmuConfig *config)
{
    return config->flavour->has & AMD;
}

static PmuOld old_kind(const PmuFlavour *flavour)
{
    return flavour->has & HAS_P5 ? PMU_OLD_P5 :
           flavour->has & HAS_6X86MX ? PMU_OLD_6X86MX :
           flavour->has & (HAS_C6 | HAS_WINCHIP2) ? PMU_OLD_WINCHIP :
           flavour->has & HAS_C3 ? PMU_OLD_C3 : PMU_OLD_NONE;
}

static bool has_cesr(const PmuConfig *config)
{
    return config->flavour->has & (P5_LIKE | HAS_C6);
}

bool pmu_has_tsc(const PmuConfig *config)
{
    return config->flavour->has & HAS_C3;
}

bool pmu_is_netburst(const PmuFlavour *flavour)
{
    return flavour->has & HAS_P4;
}

bool pmu_asks(const PmuConfig *config)
{
    return config->netburst && netburst_asks(config->netburst);
}

static uint32_t netburst_has(const PmuFlavour *flavour)
{
    return (flavour != &p4_model3 ? NETBURST_IQ_ESCR : 0) |
           (flavour != &p4 ? NETBURST_EXTENDED : 0);
}

/* The counters, wherever they are */
static unsigned nr_counters(const PmuConfig *config)
{
    return config->netburst ? NETBURST_COUNTERS : PMU_NR_COUNTERS;
}

static PmuCounter *counter_of(PmuState *s, const PmuConfig *config, unsigned n)
{
    return config->netburst ? &config->netburst->counter[n] : &s->counter[n];
}

const PmuFlavour *pmu_flavour(PmuVendor vendor, unsigned family, unsigned model)
{
    for (unsigned i = 0; i < ARRAY_SIZE(processors); i++) {
        if (vendor == processors[i].vendor &&
            family >= processors[i].first_family &&
            family <= processors[i].last_family &&
            model >= processors[i].first_model &&
            model <= processors[i].last_model) {
            return processors[i].flavour;
        }
    }
    return NULL;
}

const char *pmu_flavour_name(const PmuFlavour *flavour)
{
    return flavour->name;
}

/*
 * Configuration and CPUID
 */

void pmu_config_init(PmuConfig *config, const PmuFlavour *flavour)
{
    PmuRange bad;

    *config = (PmuConfig) {
        .flavour = flavour,
        .value_mask = ones(flavour->width),
        .pdcm = flavour->caps,
        .perfctr_core = flavour->amd & CORE_EXT,
        .perfmon_v2 = flavour->amd & V2,
        .aperfmperf = !(flavour->has & (HAS_P6 | HAS_P4)) &&
                      !old_kind(flavour),
        .insn_clocks = 1,
        .refclk_ratio = PMU_REFCLK_UNIT,
    };
    pmu_configure(config, 0, 0, &bad);
}

static bool in_range(PmuRange *range, const char *property, uint32_t value,
                     uint32_t min, uint32_t max)
{
    *range = (PmuRange) { property, value, min, max };
    return !value || (value >= min && value <= max);
}

bool pmu_configure(PmuConfig *config, uint32_t version, uint32_t counters,
                   PmuRange *bad)
{
    const PmuFlavour *flavour = config->flavour;
    uint32_t standard = flavour->counters, max = standard;
    uint32_t min = flavour->version ? 2 : 4;

    if (is_amd(config)) {
        standard = max = config->perfctr_core ? 6 : 4;
    } else if (flavour->version) {
        max = PMU_MAX_GP;
    }
    if (!flavour->version && !config->perfmon_v2) {
        min = max;
    }
    if (!in_range(bad, "pmu-version", version, !!flavour->version,
                  flavour->version) ||
        !in_range(bad, "pmu-counters", counters, min, max)) {
        return false;
    }
    config->version = version ? (uint8_t)version : flavour->version;
    config->counters = (uint8_t)(counters ? counters : standard);
    config->fixed = config->version >= 2 ? PMU_MAX_FIXED : 0;
    config->perf_capabilities = flavour->caps;
    if (config->version < 2) {
        config->perf_capabilities &= ~(uint64_t)(PMU_CAP_FREEZE_WHILE_SMM |
                                                 PMU_CAP_PEBS);
    }
    return true;
}

void pmu_cpuid_0a(const PmuConfig *config, uint32_t regs[4])
{
    uint32_t width = config->flavour->width, version = config->version;

    memset(regs, 0, 4 * sizeof(regs[0]));
    if (version) {
        regs[0] = (version >= 5 ? 8u : 7u) << 24 | width << 16 |
                  (uint32_t)config->counters << 8 | version;
        regs[1] = version >= 5 ? LEAF_NO_SLOTS : 0;
    }
    if (version >= 2) {
        regs[3] = width << 5 | config->fixed;
    }
    if (version >= 5) {
        regs[2] = (uint32_t)ones(config->fixed);
        regs[3] |= LEAF_NO_ANY_THREAD;
    }
}

void pmu_cpuid_80000022(const PmuConfig *config, uint32_t regs[4])
{
    memset(regs, 0, 4 * sizeof(regs[0]));
    if (config->perfmon_v2) {
        regs[0] = 1;
        regs[1] = config->counters;
    }
}

/* From Pentium M on, Intel's have what Pentium 4 brought. */
static bool since_pentium_m(const PmuConfig *config)
{
    return !is_amd(config) && config->flavour != &p6 &&
           !old_kind(config->flavour);
}

uint64_t pmu_misc_enable(const PmuConfig *config)
{
    return since_pentium_m(config) ?
           PMU_MISC_ENABLE & ~(pmu_has_pebs(config) ? MISC_NO_PEBS : 0) : 0;
}

bool pmu_masks_lvtpc(const PmuConfig *config)
{
    return since_pentium_m(config);
}

/*
 * What the registers can hold
 */

bool pmu_has_pebs(const PmuConfig *config)
{
    return config->pdcm && (config->perf_capabilities & PMU_CAP_PEBS_TRAP) &&
           (config->perf_capabilities & PMU_CAP_PEBS_REGS);
}

static bool has_adaptive(const PmuConfig *config)
{
    return pmu_has_pebs(config) &&
           PMU_CAP_PEBS_FORMAT(config->perf_capabilities) >= 4 &&
           (config->perf_capabilities & PMU_CAP_PEBS_BASELINE);
}

/* The counters that PEBS is for: SDM, and Linux' pebs_constraints[] */
static uint64_t pebs_mask(const PmuConfig *config)
{
    uint32_t has = config->flavour->has;

    if (!pmu_has_pebs(config)) {
        return 0;
    }
    if ((has & (SINCE_ICL | TNT_CMT)) || config->flavour == &goldmont_plus) {
        return ones(config->counters) |
               ones(config->fixed) << STATUS_FIXED_SHIFT;
    }
    return has & SINCE_NHM ? ones(MIN(config->counters, 4)) : 1;
}

bool pmu_has_load_latency(const PmuConfig *config)
{
    return pmu_has_pebs(config) &&
           (config->flavour->has & (SINCE_NHM | HAS_CMT));
}

/*
 * MSR_PEBS_FRONTEND, which selects what FRONTEND_RETIRED (C6/1) counts, had
 * there been a front end: edk2's SkylakeMsr.h, and Linux' extra_regs[], which
 * is the only source of Golden Cove's bit 3.
 */
static uint64_t frontend_mask(const PmuConfig *config)
{
    uint32_t has = config->flavour->has;

    return !pmu_has_pebs(config) || !(has & SINCE_SKL) ? 0 :
           has & HAS_GLC ? 0x7fff1f : 0x7fff17;
}

/* IA32_PEBS_ENABLE: also edk2's headers, up to Goldmont Plus */
static uint64_t pebs_enable_mask(const PmuConfig *config)
{
    uint32_t has = config->flavour->has;
    uint64_t mask = pebs_mask(config);

    if (pmu_has_load_latency(config) && (has & NHM_TO_SKL)) {
        mask |= mask << 32 | (has & BRIDGES ? PEBS_STORES : 0);
    }
    return mask;
}

static bool has_any_thread(const PmuConfig *config)
{
    return config->version == 3 || config->version == 4;
}

static uint64_t evtsel_mask(const PmuConfig *config, unsigned n)
{
    if (is_amd(config)) {
        return SEL_AMD;
    }
    if (old_kind(config->flavour)) {
        return pmu_old_mask(old_kind(config->flavour), n);
    }
    return SEL_INTEL | (has_any_thread(config) ? SEL_ANY : 0) |
           (has_adaptive(config) ? SEL_ADAPTIVE : 0);
}

static uint64_t fixed_ctrl_mask(const PmuConfig *config)
{
    uint64_t field = FIXED_OS | FIXED_USR | FIXED_PMI |
                     (has_any_thread(config) ? FIXED_ANY : 0);

    field |= has_adaptive(config) ? FIXED_ADAPTIVE(0) : 0;
    return field * 0x111 & ones(4 * config->fixed) * (FIXED_ADAPTIVE(0) | 1);
}

static bool has_global(const PmuConfig *config)
{
    return config->version >= 2 || config->perfmon_v2;
}

/* Bits of GLOBAL_CTRL, and those of the counters in GLOBAL_STATUS. */
static uint64_t global_mask(const PmuConfig *config)
{
    return has_global(config) ?
           ones(config->counters) | ones(config->fixed) << STATUS_FIXED_SHIFT :
           0;
}

/* What STATUS_SET can set: also what other processors of version 4 have. */
static uint64_t status_mask(const PmuConfig *config)
{
    return global_mask(config) | (pmu_has_pebs(config) ? STATUS_OVF_BUF : 0) |
           (config->lbr_v2 ? PMU_STATUS_LBR_FRZ | STATUS_CTR_FRZ : 0) |
           (config->version >= 4 ? STATUS_TOPA_PMI | PMU_STATUS_LBR_FRZ |
                                   STATUS_CTR_FRZ | STATUS_ASCI |
                                   STATUS_UNCORE | STATUS_OVF_BUF : 0);
}

static uint64_t status_reset_mask(const PmuConfig *config)
{
    return status_mask(config) | STATUS_OVF_BUF | STATUS_COND_CHGD |
           (config->version >= 3 ? STATUS_UNCORE : 0);
}

uint64_t pmu_debugctl_mask(const PmuConfig *config)
{
    /* Not without IA32_PERF_CAPABILITIES (SDM vol. 4, table 2-2) */
    if ((config->version < 2 || !config->pdcm) && !config->lbr_v2) {
        return 0;
    }
    return PMU_FREEZE_LBRS_ON_PMI | PMU_FREEZE_PERFMON_ON_PMI |
           (config->perf_capabilities & PMU_CAP_FREEZE_WHILE_SMM ?
            PMU_FREEZE_WHILE_SMM : 0);
}

/*
 * Events
 */

/* How many masks of offcore responses there are */
static unsigned offcore_masks(const PmuConfig *config)
{
    uint32_t has = config->flavour->has;

    return has & HAS_NHM ? 1 :
           has & (SINCE_NHM | SLM_GLM | TNT_CMT) ? PMU_NR_OFFCORE : 0;
}

/* The number of the mask that @sel's event goes by, or PMU_NR_OFFCORE. */
static unsigned offcore_of(const PmuConfig *config, uint64_t sel)
{
    for (unsigned i = 0; i < ARRAY_SIZE(offcore_events); i++) {
        if (offcore_events[i].event == SEL_EVENT(sel) &&
            offcore_events[i].umask == SEL_UMASK(sel) &&
            (offcore_events[i].has & config->flavour->has)) {
            return offcore_events[i].mask;
        }
    }
    return PMU_NR_OFFCORE;
}

static uint64_t find_offcore(const PmuConfig *config, uint64_t mask)
{
    uint64_t quantities = 0, loads;

    if (!(mask & (OFFCORE_DATA_RD | OFFCORE_RFO))) {
        return 0;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(offcore_responses); i++) {
        if ((offcore_responses[i].has & config->flavour->has) &&
            (mask & offcore_responses[i].supplier) &&
            (!offcore_responses[i].snoop ||
             (mask & offcore_responses[i].snoop))) {
            quantities |= offcore_responses[i].quantities;
        }
    }
    loads = mask & OFFCORE_DATA_RD ? quantities : 0;
    quantities = mask & OFFCORE_RFO ? quantities : 0;
    loads |= quantities << (PMU_STORE_L2 - PMU_LOAD_L2);
    return loads ? loads : NEVER;
}

/* What selects the event of counter @n */
static uint64_t event_select(const PmuState *s, const PmuConfig *config,
                             unsigned n)
{
    PmuOld old = old_kind(config->flavour);

    return old ? pmu_old_select(old, n, (uint32_t)s->evtsel[n]) : s->evtsel[n];
}

static uint32_t event_code(const PmuConfig *config, uint64_t sel)
{
    return SEL_EVENT(sel) | (is_amd(config) || old_kind(config->flavour) ?
                             SEL_EVENT_HIGH(sel) << 8 : 0);
}

/* The number of counter @n's event in fp_events[], if it is one, or -1. */
static int find_fp(const PmuConfig *config, uint64_t sel, unsigned n)
{
    for (unsigned i = 0; i < ARRAY_SIZE(fp_events); i++) {
        uint8_t umasks = fp_events[i].umasks;

        if (fp_events[i].event == event_code(config, sel) &&
            (fp_events[i].has & config->flavour->has) &&
            (umasks ? SEL_UMASK(sel) && !(SEL_UMASK(sel) & ~umasks) :
             !SEL_UMASK(sel)) &&
            (!(config->flavour->has & HAS_P6) || !n)) {
            return (int)i;
        }
    }
    return -1;
}

/*
 * What an instruction @i of pmu_count_fp() adds to a counter with @sel.  It is
 * all in one clock, for which CMASK and edge detection count once at most.
 */
static uint32_t fp_weight(uint64_t sel, int event, unsigned i)
{
    static const uint8_t elements[] = { 1, 1, 1, 4, 2, 8, 4, 0 };
    unsigned width = i / PMU_FP_NR_KINDS, kind = i % PMU_FP_NR_KINDS;
    unsigned umask = fp_events[event].umasks ? SEL_UMASK(sel) : 0xff;
    uint32_t weight, cmask = SEL_CMASK(sel);
    FpCounts counts = fp_events[event].counts;

    umask &= fp_events[event].width[width];
    umask &= counts >= FP_KINDS ? fp_events[event].kind[kind] :
             kind == PMU_FP_NONE ||
             (kind == PMU_FP_INT && (width || counts != FP_AND_INT)) ? 0 : 0xff;
    if (counts == FP_ELEMENTS) {
        weight = (uint32_t)__builtin_popcount(umask) * elements[width] *
                 (kind == PMU_FP_MAC ? 2 : 1);
    } else {
        weight = !umask ? 0 : counts == FP_OPERATIONS &&
                 (kind == PMU_FP_MAC || kind == PMU_FP_DP) ? 2 : 1;
    }
    return cmask || (sel & SEL_EDGE) ? weight && weight >= cmask : weight;
}

/*
 * The quantities that counter @n's event select asks for; 0 if it is not
 * known.
 */
static uint64_t find_event(const PmuState *s, const PmuConfig *config,
                           unsigned n)
{
    uint64_t sel = event_select(s, config, n);
    uint32_t event = event_code(config, sel);
    unsigned offcore = offcore_of(config, sel);

    if (offcore < PMU_NR_OFFCORE) {
        return find_offcore(config, s->offcore[offcore]);
    }
    if (find_fp(config, sel, n) >= 0) {
        return B(FLOATING);
    }
    if (event == EVENT_MERGE && (config->flavour->has & HAS_17H) && n % 2) {
        return NEVER;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(events); i++) {
        if (events[i].event == event &&
            (events[i].has & config->flavour->has) &&
            (events[i].umask == NO_UMASK || events[i].umask == COUNTER(n) ||
             events[i].umask == SEL_UMASK(sel))) {
            return events[i].quantities;
        }
    }
    return 0;
}

/* Tell of an event that is not counted, but of each code once only. */
static void report_unknown(PmuState *s, const PmuConfig *config, uint64_t sel)
{
    uint64_t bit = 1ull << SEL_EVENT(sel) % 64;
    uint64_t *reported = &s->reported[SEL_EVENT(sel) / 64];

    if ((sel & SEL_EN) && !(*reported & bit)) {
        *reported |= bit;
        s->has_unknown = true;
        s->unknown = event_code(config, sel) | (uint32_t)SEL_UMASK(sel) << 16;
    }
}

/*
 * An event occurs at most once in a clock, in the last one of an instruction.
 * So CMASK 1 changes nothing, more than that never happens, and INV counts the
 * other clocks.  Edge counts where the condition begins to hold: never, for
 * what holds always; otherwise with each event, or behind it.
 */
static bool select_found(PmuCounter *counter, const PmuConfig *config,
                         uint64_t found, uint32_t cmask, bool inv, bool edge)
{
    uint64_t always = B(CYCLES) | (config->insn_clocks == 1 ? B(INSNS) : 0);

    inv &= cmask != 0;
    counter->add = counter->sub = 0;
    if (found & EDGES) {
        /* Nobody tells how many clocks a walk takes. */
        found = edge && !cmask ? found & ~EDGES : 0;
        edge = false;
    }
    if ((found & (PMU_MEMORY | B(TAGGED))) && (cmask || edge) &&
        !(inv && cmask > 1)) {
        found = 0;              /* nobody tells how many are in a clock */
    }
    if (!found) {
        return false;
    }
    if (found == NEVER) {
        return true;
    }
    if (found == B(FLOATING)) {
        counter->add = inv && !edge ? B(CYCLES) : found;
        counter->sub = inv && !edge ? found : 0;
        return true;
    }
    if (cmask > 1) {
        counter->add = inv && !edge ? B(CYCLES) : 0;
        return true;
    }
    if (found == STALLED) {
        found = B(INSNS);
        inv = !inv;
    }
    if ((cmask || edge) && (found & B(REF_CYCLES)) &&
        config->refclk_ratio >= PMU_REFCLK_UNIT) {
        found = B(CYCLES);      /* one, at least, in each clock */
    }
    if (edge) {
        counter->add = found & always ? 0 : found;
    } else if (inv) {
        counter->add = found & always ? 0 : B(CYCLES);
        /* Interrupts come between two clocks. */
        counter->sub = found & ~B(INTERRUPTS);
    } else {
        counter->add = found;
    }
    return true;
}

static void select_event(PmuState *s, const PmuConfig *config, unsigned n)
{
    uint64_t sel = event_select(s, config, n);

    if (!select_found(&s->counter[n], config, find_event(s, config, n),
                      SEL_CMASK(sel), sel & SEL_INV, sel & SEL_EDGE)) {
        report_unknown(s, config, sel);
    }
}

static void select_netburst(PmuState *s, const PmuConfig *config)
{
    for (unsigned n = 0; n < NETBURST_COUNTERS; n++) {
        NetburstState *nb = config->netburst;
        PmuCounter *counter = &nb->counter[n];
        NetburstEvent e = netburst_event(nb, n);
        uint64_t found = e.add ? e.add : e.known ? NEVER : 0;

        /* Nobody tells which clocks have the one, and not the other one. */
        found = e.sub && e.cmask ? 0 : found;
        e.edge &= !e.any_edge;
        if (select_found(counter, config, found, e.cmask, e.inv, e.edge)) {
            counter->sub |= e.sub;
        } else if (netburst_rows(nb, n)) {
            report_unknown(s, config,
                           SEL_EN | e.code | (e.mask & 0xff) << 8);
        }
    }
}

/*
 * Running
 */

static bool gp_runs(const PmuState *s, const PmuConfig *config, unsigned n)
{
    uint64_t sel = event_select(s, config, n);
    uint32_t guest_host = SEL_GUEST_HOST(sel);

    /* PERFEVTSEL1 has none; Core Duo's has no effect (erratum AE49). */
    if (config->flavour->has & (HAS_P6 | HAS_CORE_DUO)) {
        return s->evtsel[0] & SEL_EN;
    }
    if (guest_host) {
        /* Without SVME, a counter with one of these does not count. */
        return (sel & SEL_EN) && s->svme &&
               (guest_host & (s->guest ? SEL_GUEST_ONLY : ~SEL_GUEST_ONLY));
    }
    return sel & SEL_EN;
}

/* Whether all that enables counter @n does; its rows are another matter. */
static bool enabled(const PmuState *s, const PmuConfig *config, unsigned n)
{
    if ((global_mask(config) && !(s->global_ctrl & pmu_status_bit(n))) ||
        (s->global_status & STATUS_CTR_FRZ)) {
        return false;
    }
    return n < PMU_MAX_GP ? n < config->counters && gp_runs(s, config, n) :
           n - PMU_MAX_GP < config->fixed;
}

/* What the OS, USR and INT bits of counter @n say. */
static void get_bits(const PmuState *s, const PmuConfig *config, unsigned n,
                     bool *os, bool *usr, bool *interrupts)
{
    if (n < PMU_MAX_GP) {
        uint64_t sel = event_select(s, config, n);

        *os = sel & SEL_OS;
        *usr = sel & SEL_USR;
        *interrupts = sel & SEL_INT;
    } else {
        uint32_t field = FIXED_FIELD(s->fixed_ctr_ctrl, n - PMU_MAX_GP);

        *os = field & FIXED_OS;
        *usr = field & FIXED_USR;
        *interrupts = field & FIXED_PMI;
    }
}

static bool is_precise(const PmuState *s, const PmuConfig *config, unsigned n)
{
    if (!(config->flavour->has & (HAS_CORE2 | NEHALEMS))) {
        /* No instruction has an interrupt. */
        return s->counter[n].add != B(INTERRUPTS);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(precise_events); i++) {
        if (precise_events[i].event == SEL_EVENT(s->evtsel[n]) &&
            (precise_events[i].has & config->flavour->has) &&
            (precise_events[i].umask == NO_UMASK ||
             precise_events[i].umask == SEL_UMASK(s->evtsel[n]))) {
            return true;
        }
    }
    return false;
}

/* Whether @counter, of number @n, may count its event */
static bool is_sampled(const PmuState *s, const PmuConfig *config, unsigned n,
                       const PmuCounter *counter)
{
    uint64_t sel = n < PMU_MAX_GP ? s->evtsel[n] : 0;

    for (unsigned i = 0; i < ARRAY_SIZE(sampled_events); i++) {
        if (sampled_events[i].event == SEL_EVENT(sel) &&
            sampled_events[i].umask == SEL_UMASK(sel) &&
            (sampled_events[i].has & config->flavour->has)) {
            uint64_t bits = sampled_events[i].enable <<
                            (sampled_events[i].enables_all ? 0 : n);

            return counter->pebs && (sampled_events[i].counters >> n & 1) &&
                   !(bits & ~s->pebs_enable);
        }
    }
    return true;
}

static void set_rows(PmuState *s, const PmuConfig *config, unsigned n)
{
    PmuCounter *counter = counter_of(s, config, n);
    bool os, usr;

    if (config->netburst) {
        counter->rows = counter->add ? netburst_rows(config->netburst, n) : 0;
        counter->interrupts = netburst_waits(config->netburst, n);
        counter->pebs = false;
        return;
    }
    get_bits(s, config, n, &os, &usr, &counter->interrupts);
    if (n >= PMU_MAX_GP) {
        counter->add = fixed_event[n - PMU_MAX_GP];
    }
    counter->pebs = (s->pebs_enable & pebs_mask(config) & pmu_status_bit(n)) &&
                    is_precise(s, config, n);
    counter->interrupts |= counter->pebs;
    counter->rows = 0;
    if (enabled(s, config, n) && counter->add &&
        is_sampled(s, config, n, counter)) {
        counter->rows = (uint8_t)(os << PMU_OS | usr << PMU_USR);
    }
}

/*
 * How many instructions may retire, in whatever rows of those in which
 * @counter runs, before it can overflow, with the one behind @left counts.
 */
static inline int64_t distance(PmuState *s, const PmuConfig *config,
                               const PmuCounter *counter, unsigned n,
                               uint64_t left)
{
    uint64_t part;

    if (config->netburst && netburst_forced(config->netburst, n)) {
        left = 0;
    }
    if (!(counter->add & ~(B(INTERRUPTS) | B(TAGGED)))) {
        return FAR_AWAY;
    }
    if (counter->pebs && s->pebs_armed && (s->pebs_armed & pmu_status_bit(n))) {
        return 0;
    }
    /* Its event is of interest that is behind the overflow. */
    left += counter->pebs;
    if (!(counter->add & ~(B(INSNS) | BRANCHES))) {
        return left;
    }
    if (counter->add & B(CYCLES)) {
        return left / config->insn_clocks;
    }
    if (counter->add & PMU_MEMORY) {
        return left / PMU_MEMORY_MAX;
    }
    if (counter->add & B(FLOATING)) {
        return left / PMU_FP_MAX;
    }
    if (counter->add & B(REF_CYCLES)) {
        left = (left + 1) * PMU_REFCLK_UNIT - 1;
        part = 0;
        for (int r = 0; r < PMU_NR_ROWS; r++) {
            part += counter->rows >> r & 1 ? s->ref_fraction[r] : 0;
        }
        return left < part ? 0 :
               (left - part) / (config->insn_clocks * config->refclk_ratio);
    }
    return left;
}

static bool needs_classes(uint64_t quantities)
{
    return quantities & ((BRANCHES & ~B(FAR)) | PMU_MISPREDICTED);
}

static bool needs_caches(uint64_t quantities)
{
    uint64_t loads = quantities & PMU_LOADS;

    return (loads && loads != PMU_LOADS) ||
           (quantities & PMU_MEMORY & ~(PMU_LOADS | B(STORES) | B(LOCKED) |
                                        PMU_FETCHED));
}

PmuData pmu_pebs_data(const PmuState *s, const PmuConfig *config, unsigned n)
{
    uint64_t sel = n < PMU_MAX_GP ? s->evtsel[n] : 0;

    /* Inverted, it is about clocks. */
    if (!s->counter[n].pebs || (s->counter[n].add & B(CYCLES))) {
        return PMU_DATA_NONE;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(data_events); i++) {
        if (data_events[i].event == SEL_EVENT(sel) &&
            (data_events[i].umask == NO_UMASK ||
             data_events[i].umask == SEL_UMASK(sel)) &&
            (data_events[i].has & config->flavour->has)) {
            return data_events[i].data;
        }
    }
    return PMU_DATA_NONE;
}

PmuSources pmu_pebs_sources(const PmuConfig *config)
{
    uint32_t has = config->flavour->has;

    return has & NEHALEMS ? PMU_SOURCES_NHM :
           has & SINCE_SKL ? PMU_SOURCES_SKL :
           has & HAS_CMT ? PMU_SOURCES_CMT : PMU_SOURCES_SNB;
}

bool pmu_splits_latency(const PmuConfig *config)
{
    return config->flavour->has & (HAS_GLC | HAS_CMT);
}

/* The registers have changed; nothing is pending. */
static void update(PmuState *s, const PmuConfig *config)
{
    s->wanted[PMU_OS] = s->wanted[PMU_USR] = 0;
    s->classes[PMU_OS] = s->classes[PMU_USR] = false;
    s->caches[PMU_OS] = s->caches[PMU_USR] = false;
    s->fp[PMU_OS] = s->fp[PMU_USR] = false;
    s->tlb[PMU_OS] = s->tlb[PMU_USR] = false;
    s->fetches[PMU_OS] = s->fetches[PMU_USR] = false;
    s->data[PMU_OS] = s->data[PMU_USR] = false;
    s->tags[PMU_OS] = s->tags[PMU_USR] = false;
    s->memory_interrupts = false;
    if (s->clocks) {
        s->wanted[PMU_OS] = s->wanted[PMU_USR] = B(INSNS);
    }
    s->running = 0;
    for (unsigned n = 0; n < nr_counters(config); n++) {
        const PmuCounter *counter = counter_of(s, config, n);

        set_rows(s, config, n);
        s->running |= (uint32_t)!!counter->rows << n;
        for (int r = 0; r < PMU_NR_ROWS; r++) {
            if (counter->rows >> r & 1) {
                s->wanted[r] |= counter->add | counter->sub | B(INSNS);
                s->classes[r] |= needs_classes(counter->add | counter->sub);
                s->caches[r] |= needs_caches(counter->add);
                s->fp[r] |= (counter->add | counter->sub) & B(FLOATING);
                s->tlb[r] |= counter->add & PMU_TLB;
                s->fetches[r] |= counter->add & PMU_FETCHED;
                s->data[r] |= counter->pebs && pmu_pebs_data(s, config, n);
                s->tags[r] |= counter->add & B(TAGGED);
                s->memory_interrupts |= counter->interrupts &&
                                        (counter->add &
                                         (PMU_MEMORY | B(FLOATING)));
            }
        }
    }
    if (!(config->flavour->has & NEHALEMS)) {
        /* Their records have no bit for that. */
        s->tlb[PMU_OS] |= s->data[PMU_OS];
        s->tlb[PMU_USR] |= s->data[PMU_USR];
    }
    s->wanted[PMU_OS] &= PMU_BIT(PMU_NR_COUNTED) - 1;
    s->wanted[PMU_USR] &= PMU_BIT(PMU_NR_COUNTED) - 1;
}

static void set_slack(PmuState *s, const PmuConfig *config)
{
    NetburstState *nb = config->netburst;
    const PmuCounter *counters = nb ? nb->counter : s->counter;
    const uint64_t *values = nb ? nb->value : s->value;
    int64_t insns[PMU_NR_ROWS] = { FAR_AWAY, FAR_AWAY };
    int64_t branches[PMU_NR_ROWS] = { FAR_AWAY, FAR_AWAY };

    for (uint32_t left = s->running; left; left &= left - 1) {
        unsigned n = (unsigned)__builtin_ctz(left);
        const PmuCounter *counter = &counters[n];
        int64_t run;

        if (!counter->interrupts) {
            continue;
        }
        run = distance(s, config, counter, n, config->value_mask - values[n]);
        for (int r = 0; r < PMU_NR_ROWS; r++) {
            int64_t far = counter->rows >> r & 1 ? run : FAR_AWAY;

            if (counter->add & (B(INSNS) | B(CYCLES) | B(REF_CYCLES) |
                                B(FLOATING) | PMU_MEMORY)) {
                insns[r] = MIN(insns[r], far);
            } else {
                branches[r] = MIN(branches[r], far);
            }
        }
    }
    for (int r = 0; r < PMU_NR_ROWS; r++) {
        s->insns[r] = insns[r];
        s->branches[r] = branches[r];
        s->slack[r] = MIN(insns[r], branches[r]);
    }
}

/*
 * A PMI is going to be signalled (SDM 17.4.7).  AMD's has the same bits as
 * version 4 in the same places.
 */
static void freeze(PmuState *s, const PmuConfig *config)
{
    if (config->version >= 4 || config->lbr_v2) {
        s->global_status |=
            (s->debugctl & PMU_FREEZE_LBRS_ON_PMI ? PMU_STATUS_LBR_FRZ : 0) |
            (s->debugctl & PMU_FREEZE_PERFMON_ON_PMI ? STATUS_CTR_FRZ : 0);
    } else if (s->debugctl & PMU_FREEZE_PERFMON_ON_PMI) {
        s->global_ctrl = 0;
    }
}

void pmu_count_fp(PmuState *s, const PmuConfig *config, PmuRow row,
                  const uint64_t n[PMU_NR_FP])
{
    for (unsigned c = 0; c < MIN(config->counters, PMU_MAX_GP); c++) {
        uint64_t sel = event_select(s, config, c);
        int event = find_fp(config, sel, c);

        if (event < 0 || !(s->counter[c].rows >> row & 1)) {
            continue;
        }
        for (unsigned i = 0; i < PMU_NR_FP; i++) {
            s->fp_pending[c] +=
                n[i] ? n[i] * fp_weight(sel, event, i) : 0;
        }
        s->counted[row] |= B(FLOATING);
        if (s->memory_interrupts) {
            s->slack[PMU_OS] = s->slack[PMU_USR] = -1;
        }
    }
}

/* Whether the counter behind @n continues it. */
static bool is_merged(const PmuState *s, const PmuConfig *config, unsigned n)
{
    return (config->flavour->has & HAS_17H) && n % 2 == 0 &&
           n + 1 < config->counters && (s->evtsel[n + 1] & SEL_EN) &&
           event_code(config, s->evtsel[n + 1]) == EVENT_MERGE;
}

/*
 * PEBS is on for counter @n, whose value is going to be @value.  An instruction
 * may have more than one event: the overflow and the one behind it, too.
 */
static void find_pebs(PmuState *s, unsigned n, uint64_t bit, uint64_t value,
                      uint64_t mask)
{
    if (s->pebs_armed & bit) {
        s->pebs_due |= value != s->value[n] ? bit : 0;
    } else if (value > mask) {
        s->pebs_armed |= bit;
        s->pebs_due |= value & mask ? bit : 0;
    }
}

/* What is pending of @quantities in the rows of @counter */
static inline uint64_t pending_of(const PmuState *s, const PmuCounter *counter,
                                  uint64_t quantities)
{
    uint64_t sum = 0;

    for (int r = 0; r < PMU_NR_ROWS; r++) {
        uint64_t left = counter->rows >> r & 1 ? quantities & s->counted[r] : 0;

        for (; left; left &= left - 1) {
            sum += s->pending[r][__builtin_ctzll(left)];
        }
    }
    return sum;
}

/* Clocks of the instructions that are pending in row @r */
static inline void add_clocks(PmuState *s, const PmuConfig *config, int r)
{
    uint64_t clocks = s->pending[r][PMU_INSNS] * config->insn_clocks;
    uint64_t ref = s->ref_fraction[r] + clocks * config->refclk_ratio;

    s->pending[r][PMU_CYCLES] = clocks;
    s->pending[r][PMU_REF_CYCLES] = ref / PMU_REFCLK_UNIT;
    s->counted[r] |= B(CYCLES) | B(REF_CYCLES);
    s->ref_fraction[r] = (uint32_t)(ref % PMU_REFCLK_UNIT);
    if (s->clocks) {
        s->aperf += clocks;
        s->mperf += ref / PMU_REFCLK_UNIT;
    }
}

/* Counter @n's @value with its carry into the one that continues it */
static uint64_t carry(PmuState *s, unsigned n, uint64_t value, uint64_t mask)
{
    uint64_t upper = s->value[n + 1] + 1;

    s->value[n + 1] = upper & 0xffff;
    return upper >> 16 ? value : value & mask;
}

/* Pentium 4's counters; an overflow may start another one. */
static void count_netburst(PmuState *s, const PmuConfig *config)
{
    NetburstState *nb = config->netburst;
    bool starts = false;

    for (uint32_t left = s->running; left; left &= left - 1) {
        unsigned n = (unsigned)__builtin_ctz(left);
        const PmuCounter *counter = &nb->counter[n];
        uint64_t value = nb->value[n] + pending_of(s, counter, counter->add) -
                         pending_of(s, counter, counter->sub);

        if (value >> NETBURST_WIDTH ||
            (netburst_forced(nb, n) && value != nb->value[n])) {
            s->pmi |= netburst_interrupts(nb, n);
            starts |= netburst_overflow(nb, n);
        }
        nb->value[n] = value & ones(NETBURST_WIDTH);
    }
    if (starts) {
        update(s, config);
    }
}

static void count(PmuState *s, const PmuConfig *config)
{
    uint64_t mask = config->value_mask;

    for (uint32_t left = s->running; left; left &= left - 1) {
        unsigned n = (unsigned)__builtin_ctz(left);
        const PmuCounter *counter = &s->counter[n];
        uint64_t value = s->value[n] + pending_of(s, counter, counter->add);
        uint64_t bit = pmu_status_bit(n);

        if (counter->sub) {
            value -= pending_of(s, counter, counter->sub);
        }
        if (n < PMU_MAX_GP && s->fp_pending[n]) {
            value += counter->sub & B(FLOATING) ? -s->fp_pending[n] :
                     s->fp_pending[n];
            s->fp_pending[n] = 0;
        }
        if (value > mask && is_merged(s, config, n)) {
            value = carry(s, n, value, mask);
        }
        if (counter->pebs) {
            find_pebs(s, n, bit, value, mask);
        } else {
            s->pmi |= value > mask && counter->interrupts;
        }
        if (value > mask) {
            s->global_status |= has_global(config) ? bit : 0;
        }
        s->value[n] = value & mask;
    }
}

void pmu_add_pending(PmuState *s, const PmuConfig *config)
{
    for (int r = 0; r < PMU_NR_ROWS; r++) {
        if (s->counted[r] & B(INSNS)) {
            add_clocks(s, config, r);
        }
    }
    if (config->netburst) {
        count_netburst(s, config);
    } else {
        count(s, config);
    }
    for (int r = 0; r < PMU_NR_ROWS; r++) {
        if (!s->counted[r]) {
            continue;
        }
        /* Clocks are set anew. */
        for (uint64_t n = s->counted[r] & ~(B(CYCLES) | B(REF_CYCLES)); n;
             n &= n - 1) {
            s->pending[r][__builtin_ctzll(n)] = 0;
        }
        s->counted[r] = 0;
    }
    if (!s->pebs_due) {
        set_slack(s, config);
    }
}

/* Its instruction has retired: the same may not be so in pmu_apply(). */
static bool take_pmi(PmuState *s, const PmuConfig *config)
{
    if (!s->pmi) {
        return false;
    }
    s->pmi = false;
    if (s->debugctl & (PMU_FREEZE_LBRS_ON_PMI | PMU_FREEZE_PERFMON_ON_PMI)) {
        freeze(s, config);
        update(s, config);
        set_slack(s, config);
    }
    return true;
}

bool pmu_settle(PmuState *s, const PmuConfig *config)
{
    pmu_apply(s, config);
    return take_pmi(s, config);
}

void pmu_pebs_forget(PmuState *s, const PmuConfig *config)
{
    s->pebs_due = 0;
    set_slack(s, config);
}

__attribute__((flatten))
void pmu_pebs_done(PmuState *s, const PmuConfig *config, unsigned n,
                   const uint64_t *reset, bool threshold)
{
    uint64_t bit = pmu_status_bit(n);

    s->pebs_due &= ~bit;
    s->pebs_armed &= ~bit;
    s->global_status &= ~bit;
    if (reset) {
        s->value[n] = *reset & config->value_mask;
    }
    if (threshold) {
        s->global_status |= STATUS_OVF_BUF;
        s->pmi = true;
    }
    set_slack(s, config);
}

uint64_t pmu_others_status(const PmuState *s, const PmuConfig *config)
{
    return s->global_status & ~(s->pebs_enable & pebs_mask(config));
}

void pmu_tag(PmuState *s, PmuRow row, uint32_t latency)
{
    if (latency > s->load_latency) {
        pmu_count(s, row, PMU_TAGGED, 1);
    }
    /* A linear congruential generator, whose upper bits are good enough */
    s->tag_random = s->tag_random * 1664525 + 1013904223;
    s->tag_left = PMU_TAG_GAP_MIN + (s->tag_random >> 21);
}

uint64_t pmu_adaptive_groups(const PmuState *s, const PmuConfig *config,
                             unsigned n)
{
    bool adaptive = n < PMU_MAX_GP ? s->evtsel[n] & SEL_ADAPTIVE :
                    s->fixed_ctr_ctrl & FIXED_ADAPTIVE(n - PMU_MAX_GP);

    return adaptive && has_adaptive(config) ? s->pebs_data_cfg : 0;
}

bool pmu_take_unknown(PmuState *s, uint32_t *event)
{
    bool has_unknown = s->has_unknown;

    s->has_unknown = false;
    *event = s->unknown;
    return has_unknown;
}

bool pmu_setting(const PmuState *s, const PmuConfig *config, unsigned n,
                 PmuSetting *setting)
{
    bool fixed = n >= PMU_MAX_GP && !config->netburst;
    uint64_t quantities;

    if (fixed ? n - PMU_MAX_GP >= config->fixed :
        n >= config->counters || (!n && pmu_has_tsc(config))) {
        return false;
    }
    if (config->netburst) {
        uint8_t rows = netburst_rows(config->netburst, n);

        quantities = netburst_event(config->netburst, n).add;
        *setting = (PmuSetting) {
            .enabled = rows,
            .os = rows >> PMU_OS & 1,
            .usr = rows >> PMU_USR & 1,
            .interrupts = netburst_interrupts(config->netburst, n),
        };
    } else {
        quantities = fixed ? fixed_event[n - PMU_MAX_GP] :
                     find_event(s, config, n) & ~EDGES;
        *setting = (PmuSetting) { .enabled = enabled(s, config, n) };
        get_bits(s, config, n, &setting->os, &setting->usr,
                 &setting->interrupts);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(event_names); i++) {
        if (event_names[i].quantities == quantities) {
            setting->event = event_names[i].name;
        }
    }
    return true;
}

/*
 * Registers
 */

static void changed(PmuState *s, const PmuConfig *config)
{
    update(s, config);
    set_slack(s, config);
}

/* Some never stop, whatever their control says. */
static void reset_old(PmuState *s, const PmuConfig *config)
{
    if (old_kind(config->flavour) == PMU_OLD_C3) {
        s->evtsel[1] = PMU_OLD_C3_RESET;
    }
    for (unsigned n = 0; n < config->counters; n++) {
        select_event(s, config, n);
    }
}

void pmu_reset(PmuState *s, const PmuConfig *config)
{
    PmuState old = *s;

    *s = (PmuState) { .svme = old.svme, .guest = old.guest };
    memcpy(s->reported, old.reported, sizeof(s->reported));
    /* So that software for version 1 finds its counters running. */
    s->global_ctrl = global_mask(config) & ones(config->counters);
    if (old_kind(config->flavour)) {
        reset_old(s, config);
    }
    if (config->netburst) {
        *config->netburst = (NetburstState) { 0 };
    }
    changed(s, config);
}

/* Find @msr; *@index is that of the counter, where it is one's. */
static PmuAccess find_msr(const PmuConfig *config, uint32_t msr, PmuReg *reg,
                          unsigned *index)
{
    for (unsigned i = 0; i < ARRAY_SIZE(msrs); i++) {
        if (msr < msrs[i].first || msr > msrs[i].last) {
            continue;
        }
        *reg = msrs[i].reg;
        *index = msr - msrs[i].first;
        if (*reg == REG_OFFCORE && !offcore_masks(config)) {
            return PMU_MSR_OTHER;
        }
        if (*reg == REG_CLOCKS || *reg == REG_CLOCKS_RO) {
            return config->aperfmperf &&
                   (*reg == REG_CLOCKS || (config->flavour->has & HAS_17H)) ?
                   PMU_MSR_OK : PMU_MSR_OTHER;
        }
        if (*reg == REG_CESR || *reg == REG_CTR) {
            return has_cesr(config) ? PMU_MSR_OK : PMU_MSR_OTHER;
        }
        if ((msrs[i].vendor == PMU_VENDOR_AMD) != is_amd(config) ||
            has_cesr(config) || pmu_is_netburst(config->flavour) ||
            config->version < msrs[i].version) {
            return PMU_MSR_GP;
        }
        switch (*reg) {
        case REG_ABSENT:
            return PMU_MSR_GP;
        case REG_CAPS:
            return config->pdcm ? PMU_MSR_OK : PMU_MSR_GP;
        case REG_PEBS_ENABLE:
            return pmu_has_pebs(config) ? PMU_MSR_OK : PMU_MSR_GP;
        case REG_PEBS_DATA_CFG:
            return has_adaptive(config) ? PMU_MSR_OK : PMU_MSR_GP;
        case REG_LOAD_LATENCY:
            return pmu_has_load_latency(config) ? PMU_MSR_OK : PMU_MSR_GP;
        case REG_FRONTEND:
            return frontend_mask(config) ? PMU_MSR_OK : PMU_MSR_GP;
        case REG_EVTSEL_PMC:
            *reg = *index % 2 ? REG_PMC : REG_EVTSEL;
            *index /= 2;
            if (!config->perfctr_core) {
                return PMU_MSR_GP;
            }
            break;
        case REG_PMC_FULL:
            if (!(config->perf_capabilities & PMU_CAP_FULL_WIDTH_WRITE)) {
                return PMU_MSR_GP;
            }
            break;
        case REG_EVTSEL:
        case REG_PMC:
            break;
        case REG_OFFCORE:
            return *index < offcore_masks(config) ? PMU_MSR_OK : PMU_MSR_GP;
        case REG_FIXED:
            return PMU_MSR_OK;
        default:
            return global_mask(config) ? PMU_MSR_OK : PMU_MSR_GP;
        }
        return *index < config->counters ? PMU_MSR_OK : PMU_MSR_GP;
    }
    return PMU_MSR_OTHER;
}

/* IA32_PERF_GLOBAL_INUSE (SDM 18.2.4.3) */
static uint64_t in_use(const PmuState *s)
{
    uint64_t val = s->pebs_enable ? INUSE_PMI : 0;

    for (unsigned n = 0; n < PMU_MAX_GP; n++) {
        val |= (uint64_t)(SEL_EVENT(s->evtsel[n]) != 0) << n;
        val |= s->evtsel[n] & SEL_INT ? INUSE_PMI : 0;
    }
    for (unsigned i = 0; i < PMU_MAX_FIXED; i++) {
        uint32_t field = FIXED_FIELD(s->fixed_ctr_ctrl, i);

        val |= field & (FIXED_OS | FIXED_USR) ?
               1ull << (STATUS_FIXED_SHIFT + i) : 0;
        val |= field & FIXED_PMI ? INUSE_PMI : 0;
    }
    return val;
}

PmuAccess pmu_rdmsr(PmuState *s, const PmuConfig *config, uint32_t msr,
                    uint64_t *val)
{
    unsigned index;
    PmuReg reg;
    PmuAccess access = find_msr(config, msr, &reg, &index);

    if (config->netburst) {
        PmuAccess own;

        pmu_apply(s, config);
        own = netburst_rdmsr(config->netburst, netburst_has(config->flavour),
                             msr, val);
        return own == PMU_MSR_OTHER ? access : own;
    }
    if (access != PMU_MSR_OK) {
        return access;
    }
    pmu_apply(s, config);
    switch (reg) {
    case REG_EVTSEL:
        *val = s->evtsel[index];
        break;
    case REG_CESR:
        *val = s->evtsel[1] << 16 | s->evtsel[0];
        break;
    case REG_PMC:
    case REG_PMC_FULL:
    case REG_CTR:
        *val = s->value[index];
        break;
    case REG_FIXED:
        *val = s->value[PMU_FIXED(index)];
        break;
    case REG_FIXED_CTRL:
        *val = s->fixed_ctr_ctrl;
        break;
    case REG_STATUS:
        *val = s->global_status;
        break;
    case REG_GLOBAL_CTRL:
        *val = s->global_ctrl;
        break;
    case REG_INUSE:
        *val = in_use(s);
        break;
    case REG_CAPS:
        *val = config->perf_capabilities;
        break;
    case REG_PEBS_ENABLE:
        *val = s->pebs_enable;
        break;
    case REG_PEBS_DATA_CFG:
        *val = s->pebs_data_cfg;
        break;
    case REG_LOAD_LATENCY:
        *val = s->load_latency;
        break;
    case REG_FRONTEND:
        *val = s->frontend;
        break;
    case REG_OFFCORE:
        *val = s->offcore[index];
        break;
    case REG_CLOCKS:
    case REG_CLOCKS_RO:
        *val = index ? s->aperf : s->mperf;
        if (!s->clocks) {
            s->clocks = true;
            changed(s, config);
        }
        break;
    default:
        *val = 0;               /* STATUS_RESET, STATUS_SET */
        break;
    }
    return PMU_MSR_OK;
}

/*
 * The bits of a register that must not be written as 1; AMD's and those that
 * are old ignore them.
 */
static uint64_t reserved(const PmuConfig *config, PmuReg reg)
{
    if (is_amd(config) || old_kind(config->flavour)) {
        return 0;
    }
    switch (reg) {
    case REG_EVTSEL:
        return ~evtsel_mask(config, 0);
    case REG_PMC_FULL:
        return ~config->value_mask;
    case REG_FIXED_CTRL:
        return ~fixed_ctrl_mask(config);
    case REG_GLOBAL_CTRL:
        return ~global_mask(config);
    case REG_PEBS_ENABLE:
        return ~pebs_enable_mask(config);
    case REG_PEBS_DATA_CFG:
        return ~DATA_CFG;
    case REG_LOAD_LATENCY:
        return ~(uint64_t)LATENCY_MASK;
    case REG_FRONTEND:
        return ~frontend_mask(config);
    case REG_STATUS_RESET:
        return ~status_reset_mask(config);
    case REG_STATUS_SET:
        return ~status_mask(config);
    default:
        return 0;
    }
}

/* A counter begins anew; nothing else is wanted than before. */
static PmuAccess write_value(PmuState *s, const PmuConfig *config, unsigned n,
                             uint64_t val)
{
    s->value[n] = val & config->value_mask;
    s->pebs_armed &= ~pmu_status_bit(n);
    set_slack(s, config);
    return PMU_MSR_OK;
}

PmuAccess pmu_wrmsr(PmuState *s, const PmuConfig *config, uint32_t msr,
                    uint64_t val)
{
    unsigned index;
    PmuReg reg;
    PmuAccess access = find_msr(config, msr, &reg, &index);
    bool frozen;

    if (config->netburst) {
        PmuAccess own;

        pmu_apply(s, config);
        own = netburst_wrmsr(config->netburst, netburst_has(config->flavour),
                             msr, val);
        if (own == PMU_MSR_OK) {
            select_netburst(s, config);
            changed(s, config);
        }
        return own == PMU_MSR_OTHER ? access : own;
    }
    if (access != PMU_MSR_OK) {
        return access;
    }
    if ((val & reserved(config, reg)) || (!index && pmu_has_tsc(config))) {
        return PMU_MSR_GP;
    }
    pmu_apply(s, config);
    switch (reg) {
    case REG_EVTSEL:
        s->evtsel[index] = val & evtsel_mask(config, index);
        select_event(s, config, index);
        break;
    case REG_CESR:
        for (unsigned n = 0; n < config->counters; n++) {
            s->evtsel[n] = val >> 16 * n & evtsel_mask(config, n);
            select_event(s, config, n);
        }
        break;
    case REG_PMC:
        if (!is_amd(config) && !(config->flavour->has & HAS_ZX)) {
            val = (int32_t)val;
        }
        /* fall through */
    case REG_PMC_FULL:
    case REG_CTR:
        return write_value(s, config, index, val);
    case REG_FIXED:
        return write_value(s, config, PMU_FIXED(index), val);
    case REG_PEBS_ENABLE:
        s->pebs_enable = val;
        break;
    case REG_PEBS_DATA_CFG:
        s->pebs_data_cfg = val;
        break;
    case REG_LOAD_LATENCY:
        s->load_latency = val;
        break;
    case REG_FRONTEND:
        s->frontend = val;
        break;
    case REG_FIXED_CTRL:
        s->fixed_ctr_ctrl = val;
        break;
    case REG_GLOBAL_CTRL:
        s->global_ctrl = val & global_mask(config);
        break;
    case REG_STATUS_RESET:
        frozen = s->global_status & STATUS_CTR_FRZ;
        s->global_status &= ~val;
        if (!frozen) {
            return PMU_MSR_OK;
        }
        break;
    case REG_STATUS_SET:
        s->global_status |= val & status_mask(config);
        break;
    case REG_OFFCORE:
        s->offcore[index] = val;
        for (unsigned n = 0; n < config->counters; n++) {
            if (offcore_of(config, s->evtsel[n]) == index) {
                select_event(s, config, n);
            }
        }
        break;
    case REG_CLOCKS:
        *(index ? &s->aperf : &s->mperf) = val;
        s->clocks = true;
        break;
    case REG_CLOCKS_RO:
        return PMU_MSR_OK;
    case REG_STATUS:
        if (is_amd(config)) {
            return PMU_MSR_OK;  /* ignored */
        }
        /* fall through */
    default:
        return PMU_MSR_GP;
    }
    changed(s, config);
    return PMU_MSR_OK;
}

bool pmu_rdpmc(PmuState *s, const PmuConfig *config, uint32_t ecx,
               uint64_t *val)
{
    unsigned n = ecx;

    if (config->netburst) {
        n &= ~RDPMC_FAST;
        if (n >= NETBURST_COUNTERS) {
            return false;
        }
        pmu_apply(s, config);
        *val = ecx & RDPMC_FAST ? (uint32_t)config->netburst->value[n] :
               config->netburst->value[n];
        return true;
    }
    if (config->version >= 2 && ecx >> 16 == RDPMC_FIXED) {
        n = ecx & 0xffff;
        if (n >= config->fixed) {
            return false;
        }
        n = PMU_FIXED(n);
    } else if (n >= config->counters) {
        return false;
    }
    pmu_apply(s, config);
    *val = s->value[n];
    return true;
}

/*
 * The environment
 */

void pmu_smi(PmuState *s, const PmuConfig *config)
{
    if (!(s->debugctl & PMU_FREEZE_WHILE_SMM)) {
        return;
    }
    pmu_apply(s, config);
    s->smm_frozen = true;
    s->smm_debugctl = s->debugctl;
    s->smm_global_ctrl = s->global_ctrl;
    s->global_ctrl = 0;
    changed(s, config);
}

void pmu_rsm(PmuState *s, const PmuConfig *config)
{
    if (!s->smm_frozen) {
        return;
    }
    pmu_apply(s, config);
    s->smm_frozen = false;
    s->debugctl = s->smm_debugctl;
    s->global_ctrl = s->smm_global_ctrl;
    s->smm_debugctl = s->smm_global_ctrl = 0;
    changed(s, config);
}

void pmu_change_svm(PmuState *s, const PmuConfig *config, bool svme, bool guest)
{
    pmu_apply(s, config);
    s->svme = svme;
    s->guest = guest;
    changed(s, config);
}

bool pmu_load_state(PmuState *s, const PmuConfig *config)
{
    uint64_t bad = config->netburst &&
                   !netburst_valid(config->netburst,
                                   netburst_has(config->flavour));

    for (unsigned n = 0; n < PMU_MAX_GP; n++) {
        bool present = n < config->counters && !config->netburst;

        present &= n || !pmu_has_tsc(config);
        bad |= s->evtsel[n] & ~(present ? evtsel_mask(config, n) : 0);
        bad |= s->value[n] & ~(present ? config->value_mask : 0);
    }
    for (unsigned i = 0; i < PMU_MAX_FIXED; i++) {
        bad |= s->value[PMU_FIXED(i)] &
               ~(i < config->fixed ? config->value_mask : 0);
    }
    bad |= s->fixed_ctr_ctrl & ~fixed_ctrl_mask(config);
    bad |= s->global_ctrl & ~global_mask(config);
    bad |= s->global_status & ~status_mask(config);
    bad |= s->debugctl & ~pmu_debugctl_mask(config);
    if (s->smm_frozen) {
        bad |= s->smm_global_ctrl & ~global_mask(config);
        bad |= s->smm_debugctl & ~pmu_debugctl_mask(config);
        bad |= ~s->smm_debugctl & PMU_FREEZE_WHILE_SMM;
    } else {
        bad |= s->smm_global_ctrl | s->smm_debugctl;
    }
    for (unsigned i = offcore_masks(config); i < PMU_NR_OFFCORE; i++) {
        bad |= s->offcore[i];
    }
    bad |= s->pebs_armed & ~pebs_mask(config);
    bad |= s->pebs_enable & ~pebs_enable_mask(config);
    bad |= s->load_latency & ~(uint64_t)(pmu_has_load_latency(config) ?
                                         LATENCY_MASK : 0);
    bad |= s->frontend & ~frontend_mask(config);
    bad |= s->tag_left > PMU_TAG_GAP_MAX;
    bad |= s->pebs_data_cfg & ~(has_adaptive(config) ? DATA_CFG : 0);
    if (!config->aperfmperf || !s->clocks) {
        bad |= s->clocks | s->aperf | s->mperf;
    }
    for (int r = 0; r < PMU_NR_ROWS; r++) {
        bad |= s->ref_fraction[r] >= PMU_REFCLK_UNIT;
    }
    if (bad) {
        return false;
    }
    memset(s->counter, 0, sizeof(s->counter));
    memset(s->pending, 0, sizeof(s->pending));
    memset(s->fp_pending, 0, sizeof(s->fp_pending));
    memset(s->counted, 0, sizeof(s->counted));
    s->pmi = false;
    s->pebs_due = 0;
    for (unsigned n = 0; n < PMU_MAX_GP && !config->netburst; n++) {
        select_event(s, config, n);
    }
    if (config->netburst) {
        select_netburst(s, config);
    }
    changed(s, config);
    return true;
}
