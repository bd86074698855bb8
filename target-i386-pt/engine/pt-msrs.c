/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Intel Processor Trace: what processors have, and their registers. */

#include "pt-internal.h"

/* SDM 3C, "Configuration Registers" */
#define MSR_OUTPUT_BASE     0x560
#define MSR_OUTPUT_MASK     0x561
#define MSR_CTL             0x570
#define MSR_STATUS          0x571
#define MSR_CR3_MATCH       0x572
#define MSR_ADDR0_A         0x580

#define OUTPUT_LOW          0x7fu       /* reserved in 560H, 1 in 561H */
#define CR3_LOW             0x1fu
#define RANGES_MASK         7u          /* CPUID.(14H,1):EAX */
#define RANGE_CFG_MAX       2u

/* Of family 6 */
struct PtFlavour {
    uint8_t model;
    uint32_t ebx, ecx;          /* CPUID.(14H,0) */
    uint32_t eax1, ebx1;        /* CPUID.(14H,1) */
    uint8_t cbr;
};

#define FILTERS     (PT_EBX_CR3_FILTER | PT_EBX_PSB_CYC | PT_EBX_IP_FILTER)
#define OUTPUTS     (PT_ECX_TOPA | PT_ECX_TOPA_MULTI | PT_ECX_SINGLE)

/*
 * What there is here of what CPUID of such a processor says: neither MTC nor
 * cycle thresholds, PTWRITE and so on.  Two ranges, and PSB every 2K to 64K, is
 * what all but Broadwell have.  The name is that of a dump of CPUID:
 * tests/cputestdata/x86_64-cpuid-NAME.xml of libvirt, or in
 * tests/intel/x86-64/ of libcpuid.
 *
 * Not there: Atoms, whose packets have linear addresses (ECX[31]), and hybrids,
 * which are in part Atoms.
 */
#define BROADWELL(model) { model, PT_EBX_CR3_FILTER, PT_ECX_TOPA, 0, 0, 23 }
#define SKYLAKE(model)   { model, FILTERS, OUTPUTS, 2, 0x3f0000, 36 }

static const PtFlavour pt_flavours[] = {
    BROADWELL(0x3d),    /* libvirt: Core-i7-5600U */
    BROADWELL(0x47),    /* libcpuid: haswell/intel-core-i7-5775c-cpu */
    BROADWELL(0x4f),    /* libvirt: Xeon-E5-2623-v4 */
    BROADWELL(0x56),    /* InstLatx64: GenuineIntel0050662_BroadwellDE */
    SKYLAKE(0x4e),      /* libcpuid: skylake/intel-core-i7-6500u-cpu */
    SKYLAKE(0x5e),      /* libvirt: Core-i5-6600 */
    SKYLAKE(0x55),      /* libvirt: Xeon-Gold-6148, Xeon-Platinum-8268 */
    SKYLAKE(0x8e),      /* libvirt: Core-i7-7600U, Core-i7-8550U */
    SKYLAKE(0x9e),      /* libvirt: Core-i7-7700, Core-i7-8700 */
    SKYLAKE(0xa5),      /* libcpuid: skylake/intel-core-i9-10900k-cpu */
    SKYLAKE(0xa6),      /* libcpuid: skylake/intel-core-i7-10710u-cpu */
    SKYLAKE(0x7e),      /* libcpuid: sunny-cove/intel-core-i3-1005g1-cpu */
    SKYLAKE(0x6a),      /* libvirt: Ice-Lake-Server */
    SKYLAKE(0x6c),      /* libcpuid: sunny-cove/intel-xeon-d-1718t-cpu */
    SKYLAKE(0x8c),      /* libcpuid: willow-cove/11th-gen-...-i7-1165g7 */
    SKYLAKE(0x8d),      /* libcpuid: willow-cove/11th-gen-...-i7-11800h */
    SKYLAKE(0xa7),      /* libcpuid: cypress-cove/11th-gen-...-i9-11900k */
    SKYLAKE(0x8f),      /* libcpuid: golden-cove/sapphire-rapids-ws-xeon-w7 */
    SKYLAKE(0xcf),      /* libcpuid: raptor-cove/emerald-rapids-sp-xeon-... */
};

/* What bits of IA32_RTIT_CTL need; others are always there, or never. */
static const struct {
    uint32_t ebx, ecx;
    uint64_t ctl;
} needs[] = {
    { 0, 0, PT_CTL_TRACE_EN | PT_CTL_OS | PT_CTL_USER | PT_CTL_TSC_EN |
            PT_CTL_DIS_RETC | PT_CTL_BRANCH_EN },
    { PT_EBX_CR3_FILTER, 0, PT_CTL_CR3_FILTER },
    { PT_EBX_PSB_CYC, 0, PT_CTL_CYC_EN | 15ull << PT_CTL_CYC_THRESH_SHIFT |
                         15ull << PT_CTL_PSB_FREQ_SHIFT },
    { 0, PT_ECX_TOPA, PT_CTL_TOPA },
};

static unsigned ranges(const PtConfig *config)
{
    return config->ebx & PT_EBX_IP_FILTER ? config->eax1 & RANGES_MASK : 0;
}

const PtFlavour *pt_flavour(PmuVendor vendor, unsigned family, unsigned model)
{
    for (unsigned i = 0; i < ARRAY_SIZE(pt_flavours); i++) {
        if (vendor == PMU_VENDOR_INTEL && family == 6 &&
            pt_flavours[i].model == model) {
            return &pt_flavours[i];
        }
    }
    return NULL;
}

void pt_config_init(PtConfig *config, const PtFlavour *flavour)
{
    *config = (PtConfig) {
        .ebx = flavour->ebx,
        .ecx = flavour->ecx,
        .eax1 = flavour->eax1,
        .ebx1 = flavour->ebx1,
        .cbr = flavour->cbr,
    };
    for (unsigned i = 0; i < ARRAY_SIZE(needs); i++) {
        if (!(needs[i].ebx & ~config->ebx) && !(needs[i].ecx & ~config->ecx)) {
            config->ctl_mask |= needs[i].ctl;
        }
    }
    config->ctl_mask |= ((1ull << 4 * ranges(config)) - 1) << PT_CTL_ADDR_SHIFT;
}

void pt_cpuid(const PtConfig *config, uint32_t subleaf, uint32_t regs[4])
{
    memset(regs, 0, 4 * sizeof(regs[0]));
    if (subleaf == 0) {
        regs[0] = config->eax1 != 0;    /* the last subleaf */
        regs[1] = config->ebx;
        regs[2] = config->ecx;
    } else if (subleaf == 1) {
        regs[0] = config->eax1;
        regs[1] = config->ebx1;
    }
}

/* A warm reset keeps all but TraceEn, where there are IP filters. */
void pt_reset(const Pt *pt, bool warm)
{
    PtState *s = pt->state;

    if (warm && (pt->config->ebx & PT_EBX_IP_FILTER)) {
        pt_drain(pt);
        s->ctl &= ~PT_CTL_TRACE_EN;
        s->starting = s->smm_trace_en = false;
        s->changed = true;
    } else {
        *s = (PtState) {
            .output_mask = OUTPUT_LOW, .mode = PT_MODE_NONE, .changed = true,
        };
    }
    pt_forget(pt->pending);
}

bool pt_ctl_bad(const PtConfig *config, uint64_t ctl)
{
    unsigned thresh = ctl >> PT_CTL_CYC_THRESH_SHIFT & 15;
    unsigned freq = ctl >> PT_CTL_PSB_FREQ_SHIFT & 15;
    bool bad = ctl & ~config->ctl_mask;

    if (config->ebx & PT_EBX_PSB_CYC) {
        bad |= thresh && !(config->ebx1 >> thresh & 1);
        bad |= !(config->ebx1 >> 16 >> freq & 1);
    }
    for (unsigned i = 0; i < ranges(config); i++) {
        bad |= (ctl >> (PT_CTL_ADDR_SHIFT + 4 * i) & 15) > RANGE_CFG_MAX;
    }
    return bad || ((ctl & PT_CTL_TRACE_EN) && !(ctl & PT_CTL_TOPA) &&
                   !(config->ecx & PT_ECX_SINGLE));
}

static bool canonical(const PtConfig *config, uint64_t addr)
{
    int64_t top = (int64_t)addr >> (config->va_bits - 1);

    return top == 0 || top == -1;
}

static bool value_bad(const PtConfig *config, uint32_t msr, uint64_t val)
{
    uint64_t status = PT_STATUS_FILTER_EN | PT_STATUS_CONTEXT_EN |
                      PT_STATUS_TRIGGER_EN | PT_STATUS_ERROR |
                      PT_STATUS_STOPPED;

    switch (msr) {
    case MSR_CTL:
        return pt_ctl_bad(config, val);
    case MSR_STATUS:
        if (config->ebx & PT_EBX_PSB_CYC) {
            status |= (uint64_t)PT_STATUS_BYTES_MAX << PT_STATUS_BYTES_SHIFT;
        }
        return val & ~status;
    case MSR_OUTPUT_BASE:
        return val & (OUTPUT_LOW | ~pt_phys_mask(config));
    case MSR_OUTPUT_MASK:
        return false;
    case MSR_CR3_MATCH:
        return val & CR3_LOW;
    default:
        return !canonical(config, val);
    }
}

/* Where a register is that there is, or is not. */
static PmuAccess find_msr(const Pt *pt, uint32_t msr, uint64_t **reg)
{
    const PtConfig *config = pt->config;
    PtState *s = pt->state;

    switch (msr) {
    case MSR_CTL:
        *reg = &s->ctl;
        return PMU_MSR_OK;
    case MSR_STATUS:
        *reg = &s->status;
        return PMU_MSR_OK;
    case MSR_OUTPUT_BASE:
        *reg = &s->output_base;
        return PMU_MSR_OK;
    case MSR_OUTPUT_MASK:
        *reg = &s->output_mask;
        return PMU_MSR_OK;
    case MSR_CR3_MATCH:
        *reg = &s->cr3_match;
        return config->ebx & PT_EBX_CR3_FILTER ? PMU_MSR_OK : PMU_MSR_GP;
    default:
        if (msr < MSR_ADDR0_A || msr >= MSR_ADDR0_A + 2 * PT_RANGES) {
            return PMU_MSR_OTHER;
        }
        msr -= MSR_ADDR0_A;
        *reg = &s->addr[msr];
        return msr < 2 * ranges(config) ? PMU_MSR_OK : PMU_MSR_GP;
    }
}

PmuAccess pt_rdmsr(const Pt *pt, uint32_t msr, uint64_t *val)
{
    PtState *s = pt->state;
    uint64_t *reg;
    PmuAccess access = find_msr(pt, msr, &reg);

    if (access != PMU_MSR_OK) {
        return access;
    }
    if (msr == MSR_OUTPUT_BASE || msr == MSR_OUTPUT_MASK || msr == MSR_STATUS) {
        pt_settle(pt);
    }
    *val = *reg;
    if (msr == MSR_STATUS && pt_tells(s)) {
        *val |= PT_STATUS_TRIGGER_EN |
                (s->context_en ? PT_STATUS_CONTEXT_EN : 0) |
                (s->filter_en ? PT_STATUS_FILTER_EN : 0);
    }
    if (msr == MSR_STATUS && (pt->config->ebx & PT_EBX_PSB_CYC)) {
        *val |= (uint64_t)MIN(s->bytes, PT_STATUS_BYTES_MAX) <<
                PT_STATUS_BYTES_SHIFT;
    }
    return PMU_MSR_OK;
}

PmuAccess pt_wrmsr(const Pt *pt, uint32_t msr, uint64_t val, uint64_t ip)
{
    PtState *s = pt->state;
    uint64_t *reg;
    PmuAccess access = find_msr(pt, msr, &reg);

    if (access != PMU_MSR_OK) {
        return access;
    }
    if (value_bad(pt->config, msr, val)) {
        return PMU_MSR_GP;
    }
    if (s->ctl & PT_CTL_TRACE_EN) {
        if (msr == MSR_CTL && val == s->ctl) {
            return PMU_MSR_OK;
        }
        if (msr != MSR_CTL || (val & PT_CTL_TRACE_EN)) {
            return PMU_MSR_GP;
        }
        pt_stop(pt, ip);
    }
    switch (msr) {
    case MSR_CTL:
        s->ctl = val;
        if (val & PT_CTL_TRACE_EN) {
            pt_start(pt);
        }
        break;
    case MSR_STATUS:
        s->status = val & (PT_STATUS_ERROR | PT_STATUS_STOPPED);
        s->bytes = (uint32_t)(val >> PT_STATUS_BYTES_SHIFT);
        break;
    case MSR_OUTPUT_MASK:
        s->output_mask = val | OUTPUT_LOW;
        break;
    default:
        *reg = val;
        break;
    }
    return PMU_MSR_OK;
}

/*
 * What WRMSR would refuse, or have changed; and what would lead out of an array
 * or a region.
 */
bool pt_state_bad(const PtState *s, const PtPending *p, const PtConfig *config)
{
    const uint64_t status = PT_STATUS_ERROR | PT_STATUS_STOPPED;
    bool bad = value_bad(config, MSR_CTL, s->ctl) ||
               value_bad(config, MSR_OUTPUT_BASE, s->output_base) ||
               value_bad(config, MSR_CR3_MATCH, s->cr3_match) ||
               (s->status & ~status) || (~s->output_mask & OUTPUT_LOW) ||
               (s->mode > 2 && s->mode != PT_MODE_NONE) || s->here.exec > 2 ||
               !p->tnt || p->tnt >> PT_FULL || p->top % 8 ||
               p->top >= sizeof(p->ret);

    for (unsigned i = 0; i < 2 * PT_RANGES; i++) {
        bad |= value_bad(config, MSR_ADDR0_A + i, s->addr[i]);
    }
    return bad || (pt_tells(s) ? pt_output_bad(s, config) ||
                                 s->staged > PT_STAGED ||
                                 pt_room(s, config) > PT_STAGED : s->staged);
}

void pt_loaded(const Pt *pt)
{
    pt->state->room = pt_room(pt->state, pt->config);
}
