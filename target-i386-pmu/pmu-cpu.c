/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters under TCG: CPU features and CPUID. */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "pmu.h"
#include "engine/netburst.h"

static const PmuFlavour *flavour(X86CPU *cpu)
{
    PmuVendor v;
    unsigned f, m = perfmon_cpu_model(cpu, &v, &f);

    return pmu_flavour(v, f, m);
}

static bool pmu_exists(X86CPU *cpu)
{
    return flavour(cpu);
}

static bool is_amd(X86CPU *cpu, unsigned *family)
{
    PmuVendor v;

    perfmon_cpu_model(cpu, &v, family);
    return v == PMU_VENDOR_AMD;
}

/* APERF and MPERF do not bring a leaf that the processor does not have. */
static bool has_leaf_6(X86CPU *cpu, const PmuConfig *config)
{
    CPUX86State *env = &cpu->env;

    if (env->cpuid_level != UINT32_MAX) {
        return env->cpuid_level >= 6;
    }
    /* Leaf 0AH, or ARAT, is going to raise the level. */
    return config->version || env->features[FEAT_6_EAX] ||
           env->cpuid_min_level >= 6;
}

static uint64_t pmu_supported(X86CPU *cpu, FeatureWord w)
{
    PmuConfig config;
    unsigned family;

    pmu_config_init(&config, flavour(cpu));
    switch (w) {
    case FEAT_6_ECX:
        return config.aperfmperf && has_leaf_6(cpu, &config) ?
               CPUID_6_ECX_APERFMPERF : 0;
    case FEAT_PERF_CAPABILITIES:
        return cpu->pmu_pebs ? config.perf_capabilities :
               config.perf_capabilities & ~(uint64_t)PMU_CAP_PEBS;
    case FEAT_8000_0001_ECX:
        return is_amd(cpu, &family) ? CPUID_EXT3_PERFCORE : 0;
    case FEAT_8000_0022_EAX:
        return is_amd(cpu, &family) ? CPUID_8000_0022_EAX_PERFMON_V2 : 0;
    default:
        return 0;
    }
}

static void pmu_expand_features(X86CPU *cpu)
{
    CPUX86State *env = &cpu->env;
    PmuConfig config;

    pmu_config_init(&config, flavour(cpu));
    if (config.version) {
        env->cpuid_min_level = MAX(env->cpuid_min_level, 0xa);
    }
    if (env->features[FEAT_8000_0022_EAX] & CPUID_8000_0022_EAX_PERFMON_V2) {
        env->cpuid_min_xlevel = MAX(env->cpuid_min_xlevel, 0x80000022);
    }
}

static bool same_for_all(const PmuConfig *config, Error **errp)
{
    static void *common;

    return retire_same_for_all(config, sizeof(*config), &common, "Properties "
                               "'pmu' and 'pmu-*' and the features that go "
                               "with them", errp);
}

static bool pmu_realize(X86CPU *cpu, Error **errp)
{
    CPUX86State *env = &cpu->env;
    PmuConfig *config = &cpu->pmu_config;
    PerfmonState *shared = &cpu->perfmon;
    unsigned family;
    PmuRange bad;

    if (!perfmon_has_pmu(cpu)) {
        return !tcg_enabled() || same_for_all(config, errp);
    }
    if (!flavour(cpu)) {
        error_setg(errp, "Property 'pmu': there is no PMU for this vendor, "
                   "family and model");
        return false;
    }
    pmu_config_init(config, flavour(cpu));
    config->pdcm = env->features[FEAT_1_ECX] & CPUID_EXT_PDCM;
    config->perfctr_core = env->features[FEAT_8000_0001_ECX] &
                           CPUID_EXT3_PERFCORE;
    config->perfmon_v2 = env->features[FEAT_8000_0022_EAX] &
                         CPUID_8000_0022_EAX_PERFMON_V2;
    if (config->perfmon_v2 && !config->perfctr_core) {
        error_setg(errp, "Feature 'perfmon-v2' needs 'perfctr-core'");
        return false;
    }
    config->lbr_v2 = env->features[FEAT_8000_0022_EAX] &
                     CPUID_8000_0022_EAX_LBR_V2;
    if (config->lbr_v2 && !config->perfmon_v2) {
        error_setg(errp, "Feature 'lbr-v2' needs 'perfmon-v2'");
        return false;
    }
    config->aperfmperf = env->features[FEAT_6_ECX] & CPUID_6_ECX_APERFMPERF;
    config->no_models = !cpu->retire_config.counted_models;
    config->insn_clocks = cpu->retire_config.insn_clocks;
    config->refclk_ratio = cpu->retire_config.refclk_ratio;
    if (!pmu_configure(config, cpu->pmu_version, cpu->pmu_counters, &bad)) {
        if (bad.max) {
            error_setg(errp, "Property '%s' must be between %" PRIu32 " and %"
                       PRIu32 " for this CPU, not %" PRIu32, bad.property,
                       bad.min, bad.max, bad.value);
        } else {
            error_setg(errp, "Property '%s': the PMU of this CPU has no choice "
                       "of it", bad.property);
        }
        return false;
    }
    if (!cpu->pmu_pebs || !(env->features[FEAT_1_EDX] & CPUID_DTS) ||
        !(env->features[FEAT_1_ECX] & CPUID_EXT_DTES64)) {
        config->perf_capabilities &= ~(uint64_t)PMU_CAP_PEBS;
    }
    config->perf_capabilities |= cpu->perfmon.capabilities & PERF_CAP_LBR_FMT;
    config->perf_capabilities &= env->features[FEAT_PERF_CAPABILITIES];
    env->features[FEAT_PERF_CAPABILITIES] = config->perf_capabilities;
    if (!same_for_all(config, errp)) {
        return false;
    }
    if (pmu_is_netburst(config->flavour)) {
        if (env->topo_info.threads_per_core > 1) {
            error_setg(errp, "Property 'pmu': threads of a core share these "
                       "counters, so there must be one, not %u",
                       env->topo_info.threads_per_core);
            return false;
        }
        config->netburst = g_new0(NetburstState, 1);
    }
    /* What others may look at, or set */
    shared->debugctl = &cpu->pmu.debugctl;
    shared->global_status = &cpu->pmu.global_status;
    shared->pebs_armed = &cpu->pmu.pebs_armed;
    shared->pmi = &cpu->pmu.pmi;
    shared->version = config->version;
    shared->debugctl_mask = pmu_debugctl_mask(config);
    cpu->retire_config.caches_of_cpuid = true;
    /* CPUID has K8's. */
    cpu->retire_config.family_15h = is_amd(cpu, &family) && family == 0x15;
    retire_add_observer(cpu, &pmu_observer, true);
    return true;
}

static void pmu_cpuid(X86CPU *cpu, uint32_t leaf, uint32_t regs[4])
{
    if (leaf == 0xa) {
        pmu_cpuid_0a(&cpu->pmu_config, regs);
    } else if (leaf == 0x80000022) {
        pmu_cpuid_80000022(&cpu->pmu_config, regs);
    }
}

static uint64_t misc_enable(X86CPU *cpu, uint64_t val)
{
    return (val & ~(uint64_t)PMU_MISC_ENABLE) |
           pmu_misc_enable(&cpu->pmu_config);
}

const PerfmonUnit pmu_unit = {
    .exists = pmu_exists,
    .supported = pmu_supported,
    .expand_features = pmu_expand_features,
    .realize = pmu_realize,
    .cpuid = pmu_cpuid,
    .misc_enable = misc_enable,
    .event = pmu_cpu_event,
    .msr = pmu_cpu_msr,
    .rdpmc = pmu_cpu_rdpmc,
    .show = pmu_cpu_show,
    .events = pmu_cpu_events,
    .loaded = pmu_cpu_loaded,
};
