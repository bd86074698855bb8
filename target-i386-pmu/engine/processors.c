/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters: what processors there are, and what they have. */

#include <string.h>
#include "pmu-internal.h"

#define SEL_INTEL           0xffdfffffull       /* but for ANY */
#define SEL_AMD             0x30fffd7ffffull

/* IA32_MISC_ENABLE */
#define MISC_NO_PEBS        (1u << 12)

/* CPUID.0AH */
#define LEAF_NO_SLOTS       0x80u   /* EBX: topdown slots */
#define LEAF_NO_MODELS      0x58u   /* those of caches, branch misses */
#define LEAF_NO_ANY_THREAD  (1u << 15)  /* EDX */

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
    zen3 = { "Family 17h", HAS_ZEN3, 0, 6, 48, 0, CORE_EXT },
    hygon = { "Family 18h", HAS_ZEN1 | HAS_HYGON, 0, 6, 48, 0, CORE_EXT },
    zen4 = { "PerfMonV2", HAS_ZEN4, 0, 6, 48, 0, CORE_EXT | V2 },
    zen5 = { "PerfMonV2", HAS_ZEN5, 0, 6, 48, 0, CORE_EXT | V2 },
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
    { PMU_VENDOR_AMD, 0x19, 0x19, 0x00, 0xff, &zen3 },
    { PMU_VENDOR_AMD, 0x1a, 0x1a, 0x00, 0xff, &zen5 },
};

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

bool pmu_has_tsc(const PmuConfig *config)
{
    return config->flavour->has & HAS_C3;
}

bool pmu_is_netburst(const PmuFlavour *flavour)
{
    return flavour->has & HAS_P4;
}

uint32_t pmu_netburst_has(const PmuFlavour *flavour)
{
    return (flavour != &p4_model3 ? NETBURST_IQ_ESCR : 0) |
           (flavour != &p4 ? NETBURST_EXTENDED : 0);
}

void pmu_config_init(PmuConfig *config, const PmuFlavour *flavour)
{
    PmuRange bad;

    *config = (PmuConfig) {
        .flavour = flavour,
        .value_mask = pmu_ones(flavour->width),
        .pdcm = flavour->caps,
        .perfctr_core = flavour->amd & CORE_EXT,
        .perfmon_v2 = flavour->amd & V2,
        .aperfmperf = !(flavour->has & (HAS_P6 | HAS_P4)) &&
                      !pmu_old_kind(flavour),
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

    if (pmu_is_amd(config)) {
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
        regs[1] = (version >= 5 ? LEAF_NO_SLOTS : 0) |
                  (config->no_models ? LEAF_NO_MODELS : 0);
    }
    if (version >= 2) {
        regs[3] = width << 5 | config->fixed;
    }
    if (version >= 5) {
        regs[2] = (uint32_t)pmu_ones(config->fixed);
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
    return !pmu_is_amd(config) && config->flavour != &p6 &&
           !pmu_old_kind(config->flavour);
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

bool pmu_has_pebs(const PmuConfig *config)
{
    return config->pdcm && (config->perf_capabilities & PMU_CAP_PEBS_TRAP) &&
           (config->perf_capabilities & PMU_CAP_PEBS_REGS);
}

bool pmu_has_adaptive(const PmuConfig *config)
{
    return pmu_has_pebs(config) &&
           PMU_CAP_PEBS_FORMAT(config->perf_capabilities) >= 4 &&
           (config->perf_capabilities & PMU_CAP_PEBS_BASELINE);
}

/* The counters that PEBS is for: SDM, and Linux' pebs_constraints[] */
uint64_t pmu_pebs_mask(const PmuConfig *config)
{
    uint64_t has = config->flavour->has;

    if (!pmu_has_pebs(config)) {
        return 0;
    }
    if ((has & (SINCE_ICL | TNT_CMT)) || config->flavour == &goldmont_plus) {
        return pmu_ones(config->counters) |
               pmu_ones(config->fixed) << STATUS_FIXED_SHIFT;
    }
    return has & SINCE_NHM ? pmu_ones(MIN(config->counters, 4)) : 1;
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
uint64_t pmu_frontend_mask(const PmuConfig *config)
{
    uint64_t has = config->flavour->has;

    return !pmu_has_pebs(config) || !(has & SINCE_SKL) ? 0 :
           has & HAS_GLC ? 0x7fff1f : 0x7fff17;
}

/* IA32_PEBS_ENABLE: also edk2's headers, up to Goldmont Plus */
uint64_t pmu_pebs_enable_mask(const PmuConfig *config)
{
    uint64_t has = config->flavour->has;
    uint64_t mask = pmu_pebs_mask(config);

    if (pmu_has_load_latency(config) && (has & NHM_TO_SKL)) {
        mask |= mask << 32 | (has & BRIDGES ? PEBS_STORES : 0);
    }
    return mask;
}

static bool has_any_thread(const PmuConfig *config)
{
    return config->version == 3 || config->version == 4;
}

uint64_t pmu_evtsel_mask(const PmuConfig *config, unsigned n)
{
    if (pmu_is_amd(config)) {
        return SEL_AMD;
    }
    if (pmu_old_kind(config->flavour)) {
        return pmu_old_mask(pmu_old_kind(config->flavour), n);
    }
    return SEL_INTEL | (has_any_thread(config) ? SEL_ANY : 0) |
           (pmu_has_adaptive(config) ? SEL_ADAPTIVE : 0);
}

uint64_t pmu_fixed_ctrl_mask(const PmuConfig *config)
{
    uint64_t field = FIXED_OS | FIXED_USR | FIXED_PMI |
                     (has_any_thread(config) ? FIXED_ANY : 0);

    field |= pmu_has_adaptive(config) ? FIXED_ADAPTIVE(0) : 0;
    return field * 0x111 &
           pmu_ones(4 * config->fixed) * (FIXED_ADAPTIVE(0) | 1);
}

bool pmu_has_global(const PmuConfig *config)
{
    return config->version >= 2 || config->perfmon_v2;
}

/* Bits of GLOBAL_CTRL, and those of the counters in GLOBAL_STATUS. */
uint64_t pmu_global_mask(const PmuConfig *config)
{
    return pmu_has_global(config) ?
           pmu_ones(config->counters) |
           pmu_ones(config->fixed) << STATUS_FIXED_SHIFT : 0;
}

/* What STATUS_SET can set: also what other processors of version 4 have. */
uint64_t pmu_status_mask(const PmuConfig *config)
{
    return pmu_global_mask(config) |
           (pmu_has_pebs(config) ? STATUS_OVF_BUF : 0) |
           (config->lbr_v2 ? PMU_STATUS_LBR_FRZ | STATUS_CTR_FRZ : 0) |
           (config->version >= 4 ? STATUS_TOPA_PMI | PMU_STATUS_LBR_FRZ |
                                   STATUS_CTR_FRZ | STATUS_ASCI |
                                   STATUS_UNCORE | STATUS_OVF_BUF : 0);
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

/* How many masks of offcore responses there are */
unsigned pmu_offcore_masks(const PmuConfig *config)
{
    uint64_t has = config->flavour->has;

    return has & HAS_NHM ? 1 :
           has & (SINCE_NHM | SLM_GLM | TNT_CMT) ? PMU_NR_OFFCORE : 0;
}
