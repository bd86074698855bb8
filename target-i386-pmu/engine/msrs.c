/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters: RDMSR, WRMSR and RDPMC. */

#include "pmu-internal.h"

/* RDPMC: ECX[31:16] of an architectural PMU */
#define RDPMC_FIXED         0x4000u
#define RDPMC_FAST          (1u << 31)  /* Pentium 4's: EDX is 0 */

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

static bool has_cesr(const PmuConfig *config)
{
    return config->flavour->has & (P5_LIKE | HAS_C6);
}

static uint64_t status_reset_mask(const PmuConfig *config)
{
    return pmu_status_mask(config) | STATUS_OVF_BUF | STATUS_COND_CHGD |
           (config->version >= 3 ? STATUS_UNCORE : 0);
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
        if (*reg == REG_OFFCORE && !pmu_offcore_masks(config)) {
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
        if ((msrs[i].vendor == PMU_VENDOR_AMD) != pmu_is_amd(config) ||
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
            return pmu_has_adaptive(config) ? PMU_MSR_OK : PMU_MSR_GP;
        case REG_LOAD_LATENCY:
            return pmu_has_load_latency(config) ? PMU_MSR_OK : PMU_MSR_GP;
        case REG_FRONTEND:
            return pmu_frontend_mask(config) ? PMU_MSR_OK : PMU_MSR_GP;
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
            return *index < pmu_offcore_masks(config) ? PMU_MSR_OK : PMU_MSR_GP;
        case REG_FIXED:
            return PMU_MSR_OK;
        default:
            return pmu_global_mask(config) ? PMU_MSR_OK : PMU_MSR_GP;
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

/* The word that is a register, or NULL if it is no word */
static uint64_t *word_of(PmuState *s, PmuReg reg, unsigned index)
{
    switch (reg) {
    case REG_EVTSEL:
        return &s->evtsel[index];
    case REG_PMC:
    case REG_PMC_FULL:
    case REG_CTR:
        return &s->value[index];
    case REG_FIXED:
        return &s->value[PMU_FIXED(index)];
    case REG_FIXED_CTRL:
        return &s->fixed_ctr_ctrl;
    case REG_STATUS:
        return &s->global_status;
    case REG_GLOBAL_CTRL:
        return &s->global_ctrl;
    case REG_PEBS_ENABLE:
        return &s->pebs_enable;
    case REG_PEBS_DATA_CFG:
        return &s->pebs_data_cfg;
    case REG_LOAD_LATENCY:
        return &s->load_latency;
    case REG_FRONTEND:
        return &s->frontend;
    case REG_OFFCORE:
        return &s->offcore[index];
    case REG_CLOCKS:
    case REG_CLOCKS_RO:
        return index ? &s->aperf : &s->mperf;
    default:
        return NULL;
    }
}

PmuAccess pmu_rdmsr(PmuState *s, const PmuConfig *config, uint32_t msr,
                    uint64_t *val)
{
    const uint64_t *word;
    unsigned index;
    PmuReg reg;
    PmuAccess access = find_msr(config, msr, &reg, &index);

    if (config->netburst) {
        PmuAccess own;

        pmu_apply(s, config);
        own = netburst_rdmsr(config->netburst,
                             pmu_netburst_has(config->flavour), msr, val);
        return own == PMU_MSR_OTHER ? access : own;
    }
    if (access != PMU_MSR_OK) {
        return access;
    }
    pmu_apply(s, config);
    word = word_of(s, reg, index);
    /* Of others, STATUS_RESET and STATUS_SET are 0. */
    *val = word ? *word :
           reg == REG_CESR ? s->evtsel[1] << 16 | s->evtsel[0] :
           reg == REG_INUSE ? in_use(s) :
           reg == REG_CAPS ? config->perf_capabilities : 0;
    if ((reg == REG_CLOCKS || reg == REG_CLOCKS_RO) && !s->clocks) {
        s->clocks = true;
        pmu_changed(s, config);
    }
    return PMU_MSR_OK;
}

/*
 * The bits of a register that must not be written as 1; AMD's and those that
 * are old ignore them.
 */
static uint64_t reserved(const PmuConfig *config, PmuReg reg)
{
    if (pmu_is_amd(config) || pmu_old_kind(config->flavour)) {
        return 0;
    }
    switch (reg) {
    case REG_EVTSEL:
        return ~pmu_evtsel_mask(config, 0);
    case REG_PMC_FULL:
        return ~config->value_mask;
    case REG_FIXED_CTRL:
        return ~pmu_fixed_ctrl_mask(config);
    case REG_GLOBAL_CTRL:
        return ~pmu_global_mask(config);
    case REG_PEBS_ENABLE:
        return ~pmu_pebs_enable_mask(config);
    case REG_PEBS_DATA_CFG:
        return ~DATA_CFG;
    case REG_LOAD_LATENCY:
        return ~(uint64_t)LATENCY_MASK;
    case REG_FRONTEND:
        return ~pmu_frontend_mask(config);
    case REG_STATUS_RESET:
        return ~status_reset_mask(config);
    case REG_STATUS_SET:
        return ~pmu_status_mask(config);
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
    pmu_set_slack(s, config);
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
        own = netburst_wrmsr(config->netburst,
                             pmu_netburst_has(config->flavour), msr, val);
        if (own == PMU_MSR_OK) {
            pmu_select_netburst(s, config);
            pmu_changed(s, config);
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
        s->evtsel[index] = val & pmu_evtsel_mask(config, index);
        pmu_select_event(s, config, index);
        break;
    case REG_CESR:
        for (unsigned n = 0; n < config->counters; n++) {
            s->evtsel[n] = val >> 16 * n & pmu_evtsel_mask(config, n);
            pmu_select_event(s, config, n);
        }
        break;
    case REG_PMC:
        if (!pmu_is_amd(config) && !(config->flavour->has & HAS_ZX)) {
            val = (int32_t)val;
        }
        /* fall through */
    case REG_PMC_FULL:
    case REG_CTR:
        return write_value(s, config, index, val);
    case REG_FIXED:
        return write_value(s, config, PMU_FIXED(index), val);
    case REG_PEBS_ENABLE:
    case REG_PEBS_DATA_CFG:
    case REG_LOAD_LATENCY:
    case REG_FIXED_CTRL:
        *word_of(s, reg, index) = val;
        break;
    case REG_FRONTEND:
        s->frontend = val;
        for (unsigned n = 0; n < config->counters; n++) {
            pmu_select_event(s, config, n);
        }
        break;
    case REG_GLOBAL_CTRL:
        s->global_ctrl = val & pmu_global_mask(config);
        break;
    case REG_STATUS_RESET:
        frozen = s->global_status & STATUS_CTR_FRZ;
        s->global_status &= ~val;
        if (!frozen) {
            return PMU_MSR_OK;
        }
        break;
    case REG_STATUS_SET:
        s->global_status |= val & pmu_status_mask(config);
        break;
    case REG_OFFCORE:
        s->offcore[index] = val;
        for (unsigned n = 0; n < config->counters; n++) {
            if (pmu_offcore_of(config, s->evtsel[n]) == index) {
                pmu_select_event(s, config, n);
            }
        }
        break;
    case REG_CLOCKS:
        *word_of(s, reg, index) = val;
        s->clocks = true;
        break;
    case REG_CLOCKS_RO:
        return PMU_MSR_OK;
    case REG_STATUS:
        if (pmu_is_amd(config)) {
            return PMU_MSR_OK;  /* ignored */
        }
        /* fall through */
    default:
        return PMU_MSR_GP;
    }
    pmu_changed(s, config);
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
