/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Branch records under TCG: which there are. */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "system/reset.h"
#include "system/tcg.h"
#include "branch.h"
#include "pmu/pmu.h"

QEMU_BUILD_BUG_ON(PMU_VENDOR_OTHER != (int)BRANCH_VENDOR_OTHER ||
                  PMU_VENDOR_INTEL != (int)BRANCH_VENDOR_INTEL ||
                  PMU_VENDOR_AMD != (int)BRANCH_VENDOR_AMD);

static bool init_config(X86CPU *cpu, BranchConfig *config)
{
    PmuVendor vendor;
    unsigned family, model = pmu_cpu_model(cpu, &vendor, &family);
    const BranchFlavour *f = branch_flavour((BranchVendor)vendor, family,
                                            model);
    uint32_t without = 0;

    *config = (BranchConfig) { };
    if (!tcg_enabled() || !f) {
        return false;
    }
    without |= cpu->enable_pmu ? 0 : BRANCH_WITHOUT_PMU;
    without |= cpu->branch_lbr ? 0 : BRANCH_WITHOUT_LBR;
    without |= cpu->branch_bts ? 0 : BRANCH_WITHOUT_BTS;
    branch_config_init(config, f, without);
    return true;
}

static bool is_architectural(const BranchConfig *config)
{
    uint32_t regs[4];

    branch_cpuid_1c(config, regs);
    return regs[0];
}

uint64_t branch_cpu_supported(X86CPU *cpu, FeatureWord w)
{
    BranchConfig config;

    if (!init_config(cpu, &config)) {
        return 0;
    }
    switch (w) {
    case FEAT_1_EDX:
        return config.ds ? CPUID_DTS : 0;
    case FEAT_1_ECX:
        return (config.dtes64 ? CPUID_EXT_DTES64 : 0) |
               (config.ds_cpl ? CPUID_EXT_DSCPL : 0);
    case FEAT_7_0_EDX:
        return is_architectural(&config) ? CPUID_7_0_EDX_ARCH_LBR : 0;
    case FEAT_PERF_CAPABILITIES:
        return branch_perf_capabilities(&config);
    case FEAT_SVM:
        return config.pmu && branch_has_lbrv(&config) ? CPUID_SVM_LBRV : 0;
    case FEAT_8000_0022_EAX:
        return config.lbr_v2 ? CPUID_8000_0022_EAX_LBR_V2 : 0;
    default:
        return 0;
    }
}

static void branch_reset_cpu(void *opaque)
{
    X86CPU *cpu = opaque;

    branch_reset(&cpu->branch, &cpu->branch_config, cpu->branch_ring);
    cpu->branch_source = (BranchSource) { };
    cpu->branch_used = false;
#ifdef CONFIG_TCG
    cpu_sync_retire(&cpu->env);
#endif
}

void branch_cpu_init(X86CPU *cpu)
{
    branch_init(&cpu->branch);
}

bool branch_cpu_realize(X86CPU *cpu, Error **errp)
{
    BranchConfig *config = &cpu->branch_config;
    CPUX86State *env = &cpu->env;

    if (tcg_enabled()) {
        cpu->branch_ring = g_new0(BranchRing, 1);
        cpu->branch_stream = g_new0(BranchStack, 1);
    }
    if (!init_config(cpu, config)) {
        return true;
    }
    config->ds = env->features[FEAT_1_EDX] & CPUID_DTS;
    config->dtes64 = env->features[FEAT_1_ECX] & CPUID_EXT_DTES64;
    config->ds_cpl = env->features[FEAT_1_ECX] & CPUID_EXT_DSCPL;
    config->lbr_v2 = env->features[FEAT_8000_0022_EAX] &
                     CPUID_8000_0022_EAX_LBR_V2;
    if (is_architectural(config)) {
        config->lbr = env->features[FEAT_7_0_EDX] & CPUID_7_0_EDX_ARCH_LBR;
    }
    if (cpu->enable_pmu && cpu->lbr_fmt != ~PERF_CAP_LBR_FMT &&
        cpu->lbr_fmt != branch_perf_capabilities(config)) {
        error_setg(errp, "Property 'lbr-fmt' must be 0x%" PRIx64
                   " for this CPU, not 0x%" PRIx64,
                   branch_perf_capabilities(config), cpu->lbr_fmt);
        return false;
    }
    if ((config->dtes64 || config->ds_cpl) && !config->ds) {
        error_setg(errp, "Feature '%s' needs 'ds'",
                   config->dtes64 ? "dtes64" : "ds-cpl");
        return false;
    }
    if (env->features[FEAT_7_0_ECX] & CPUID_7_0_ECX_LA57) {
        config->va_bits = 57;
    } else if (!(env->features[FEAT_8000_0001_EDX] & CPUID_EXT2_LM)) {
        config->va_bits = 32;
    }
    config->pmu_version = cpu->pmu_config.version;
    config->insn_clocks = cpu->retire_config.insn_clocks;
    if (cpu->enable_pmu) {
        config->debugctl_other = pmu_debugctl_mask(&cpu->pmu_config);
    }
    branch_reset_cpu(cpu);
    /* INIT is a reset of the CPU, too, but keeps these. */
    qemu_register_reset(branch_reset_cpu, cpu);
    return true;
}

void branch_cpu_unrealize(X86CPU *cpu)
{
    if (cpu->branch_config.flavour) {
        qemu_unregister_reset(branch_reset_cpu, cpu);
    }
    g_clear_pointer(&cpu->branch_ring, g_free);
    g_clear_pointer(&cpu->branch_stream, g_free);
}
