/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Instruction-Based Sampling under TCG: CPU features. */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "hw/i386/apic_internal.h"
#include "system/tcg.h"
#include "ibs.h"
#include "pmu/pmu.h"

#define FEATURES    (CPUID_EXT3_IBS | CPUID_EXT3_EXTAPIC)

static bool init_config(X86CPU *cpu, IbsConfig *config)
{
    PmuVendor vendor;
    unsigned family, model = pmu_cpu_model(cpu, &vendor, &family);

    return vendor == PMU_VENDOR_AMD && ibs_config_init(config, family, model);
}

uint64_t ibs_cpu_supported(X86CPU *cpu, FeatureWord w)
{
    IbsConfig config;

    if (!init_config(cpu, &config)) {
        return 0;
    }
    switch (w) {
    case FEAT_8000_0001_ECX:
        return FEATURES;
    case FEAT_8000_001B_EAX:
        return config.caps;
    default:
        return 0;
    }
}

void ibs_cpu_expand_features(X86CPU *cpu)
{
    CPUX86State *env = &cpu->env;
    uint64_t *ecx = &env->features[FEAT_8000_0001_ECX];
    uint64_t *caps = &env->features[FEAT_8000_001B_EAX];
    IbsConfig config;

    if (!init_config(cpu, &config)) {
        return;
    }
    *ecx |= FEATURES & ~env->user_features[FEAT_8000_0001_ECX];
    /* Or else feature_dependencies[] takes away what there may be of it. */
    if ((*ecx & FEATURES) == FEATURES) {
        *caps |= config.caps & ~env->user_features[FEAT_8000_001B_EAX];
        env->cpuid_min_xlevel = MAX(env->cpuid_min_xlevel, 0x8000001b);
    }
}

bool ibs_cpu_realize(X86CPU *cpu, Error **errp)
{
    CPUX86State *env = &cpu->env;
    uint64_t features = env->features[FEAT_8000_0001_ECX];
    IbsConfig *config = &cpu->ibs_config;
    static uint32_t common;
    static bool known;

    if (!init_config(cpu, config)) {
        return true;
    }
    config->caps = 0;
    if (features & CPUID_EXT3_IBS) {
        config->caps = env->features[FEAT_8000_001B_EAX];
        if (!(config->caps & IBS_CAP_FFV)) {
            /* Then software takes it that there are these. */
            config->caps = IBS_CAP_FETCH | IBS_CAP_OP;
        }
    }
    config->insn_clocks = cpu->retire_config.insn_clocks;
    config->random = cpu->ibs_random;
    if (known && config->caps != common) {
        error_setg(errp, "Features 'ibs' and 'ibs-*' must be the same for all "
                   "CPUs");
        return false;
    }
    known = true;
    common = config->caps;
    return true;
}

void ibs_cpu_reset(X86CPU *cpu)
{
    ibs_reset(&cpu->ibs);
}

void ibs_cpu_init(X86CPU *cpu)
{
    ibs_init(&cpu->ibs);
    if (tcg_enabled() && cpu->apic_state &&
        (cpu->env.features[FEAT_8000_0001_ECX] & CPUID_EXT3_EXTAPIC)) {
        APIC_COMMON(cpu->apic_state)->extended = cpu->ibs.extended;
    }
}
