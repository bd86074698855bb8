/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters: what processors there are, and what they have. */

#include <string.h>
#include "perfmon/engine/processors.h"
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
static const PmuFlavour flavours[PERFMON_NR_CORES] = {
    [CORE_P5] = { "P5", HAS_P5, 0, 2, 40, 0, 0 },
    [CORE_6X86MX] = { "6x86MX", HAS_6X86MX, 0, 2, 48, 0, 0 },
    [CORE_C6] = { "WinChip C6", HAS_C6, 0, 2, 40, 0, 0 },
    [CORE_WINCHIP2] = { "WinChip 2", HAS_WINCHIP2, 0, 2, 40, 0, 0 },
    [CORE_C3] = { "C3", HAS_C3, 0, 2, 32, 0, 0 },
    [CORE_P4 ... CORE_P4_MODEL3] = { "P4", HAS_P4, 0, 18, 40, 0, 0 },
    [CORE_P6] = { "P6", HAS_P6, 0, 2, 40, 0, 0 },
    [CORE_PENTIUM_M] = { "Pentium M", HAS_P6, 0, 2, 40, 0, 0 },
    [CORE_GRT ... CORE_ARCH] = { "architectural", HAS_ARCH, 5, 4, 48,
        BOTH_CAPS, 0 },
    [CORE_CORE_DUO] = { "Core Duo", HAS_CORE_DUO, 1, 2, 40, 0, 0 },
    [CORE_CORE2] = { "Core 2", HAS_CORE2, 2, 2, 40, PEBS(0), 0 },
    [CORE_NHM] = { "Nehalem", HAS_NHM, 3, 4, 48, SMM_CAP | PEBS(1), 0 },
    [CORE_WSM] = { "Westmere", HAS_WSM, 3, 4, 48, SMM_CAP | PEBS(1), 0 },
    [CORE_SNB] = { "Sandy Bridge", HAS_SNB, 3, 4, 48, BOTH_CAPS | PEBS(1), 0 },
    [CORE_IVB] = { "Ivy Bridge", HAS_IVB, 3, 4, 48, BOTH_CAPS | PEBS(1), 0 },
    [CORE_HSW] = { "Haswell", HAS_HSW, 3, 4, 48, BOTH_CAPS | PEBS(2), 0 },
    [CORE_BDW] = { "Broadwell", HAS_BDW, 3, 4, 48, BOTH_CAPS | PEBS(2), 0 },
    [CORE_SKL] = { "Skylake", HAS_SKL, 4, 4, 48, BOTH_CAPS | PEBS(3), 0 },
    [CORE_ICL] = { "Ice Lake", HAS_ICL, 5, 8, 48, BOTH_CAPS | PEBS(4), 0 },
    [CORE_GLC] = { "Golden Cove", HAS_GLC, 5, 8, 48, BOTH_CAPS | PEBS(4), 0 },
    [CORE_BNL] = { "Bonnell", HAS_BNL, 3, 2, 40, PEBS(0), 0 },
    [CORE_SLM] = { "Silvermont", HAS_SLM, 3, 2, 40, BOTH_CAPS | PEBS(2), 0 },
    [CORE_KNL] = { "Knights Landing", HAS_SLM | HAS_KNL, 3, 2, 40,
        BOTH_CAPS | PEBS(2), 0 },
    [CORE_GLM] = { "Goldmont", HAS_GLM, 4, 4, 48, BOTH_CAPS | PEBS(3), 0 },
    [CORE_GLP] = { "Goldmont Plus", HAS_GLM, 4, 4, 48, BOTH_CAPS | PEBS(3), 0 },
    [CORE_TNT] = { "Tremont", HAS_TNT, 5, 4, 48, BOTH_CAPS | PEBS(4), 0 },
    [CORE_CMT] = { "Crestmont", HAS_CMT, 5, 8, 48, BOTH_CAPS | PEBS(4), 0 },
    [CORE_K7] = { "K7", HAS_K7, 0, 4, 48, 0, 0 },
    [CORE_15H] = { "Family 15h", HAS_15H, 0, 6, 48, 0, CORE_EXT },
    [CORE_ZEN1] = { "Family 17h", HAS_ZEN1, 0, 6, 48, 0, CORE_EXT },
    [CORE_ZEN2] = { "Family 17h", HAS_ZEN2, 0, 6, 48, 0, CORE_EXT },
    [CORE_ZEN3] = { "Family 17h", HAS_ZEN3, 0, 6, 48, 0, CORE_EXT },
    [CORE_HYGON] = { "Family 18h", HAS_ZEN1 | HAS_HYGON, 0, 6, 48, 0,
        CORE_EXT },
    [CORE_ZEN4] = { "PerfMonV2", HAS_ZEN4, 0, 6, 48, 0, CORE_EXT | V2 },
    [CORE_ZEN5] = { "PerfMonV2", HAS_ZEN5, 0, 6, 48, 0, CORE_EXT | V2 },
    [CORE_ZX] = { "Zhaoxin", HAS_ZX, 2, 4, 48, 0, 0 },
};

const PmuFlavour *pmu_flavour(PmuVendor vendor, unsigned family, unsigned model)
{
    const PmuFlavour *f = &flavours[perfmon_core(vendor, family, model)];

    return f->name ? f : NULL;
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
    return (flavour != &flavours[CORE_P4_MODEL3] ? NETBURST_IQ_ESCR : 0) |
           (flavour != &flavours[CORE_P4] ? NETBURST_EXTENDED : 0);
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
    return !pmu_is_amd(config) && config->flavour != &flavours[CORE_P6] &&
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
    if ((has & (SINCE_ICL | TNT_CMT)) ||
        config->flavour == &flavours[CORE_GLP]) {
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
           (config->version >= 4 ? PMU_STATUS_TOPA_PMI | PMU_STATUS_LBR_FRZ |
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
