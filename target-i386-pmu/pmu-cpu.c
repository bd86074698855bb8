/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters under TCG: CPU features and CPUID. */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "system/reset.h"
#include "system/tcg.h"
#include "hw/i386/apic_internal.h"
#include "pmu.h"
#include "engine/netburst.h"
#include "branch/branch.h"
#include "ibs/ibs.h"

static bool has_pmu(X86CPU *cpu)
{
    return tcg_enabled() && cpu->enable_pmu;
}

static PmuVendor vendor(CPUX86State *env)
{
    static const struct {
        const char *name;
        PmuVendor vendor;
    } vendors[] = {
        { CPUID_VENDOR_INTEL, PMU_VENDOR_INTEL },
        { CPUID_VENDOR_AMD, PMU_VENDOR_AMD },
        { CPUID_VENDOR_HYGON, PMU_VENDOR_AMD },
        { "CyrixInstead", PMU_VENDOR_CYRIX },
        { "CentaurHauls", PMU_VENDOR_CENTAUR },
        { "  Shanghai  ", PMU_VENDOR_SHANGHAI },
    };
    char name[CPUID_VENDOR_SZ + 1];

    x86_cpu_vendor_words2str(name, env->cpuid_vendor1, env->cpuid_vendor2,
                             env->cpuid_vendor3);
    for (int i = 0; i < ARRAY_SIZE(vendors); i++) {
        if (!strcmp(name, vendors[i].name)) {
            return vendors[i].vendor;
        }
    }
    return PMU_VENDOR_OTHER;
}

static unsigned family(CPUX86State *env)
{
    unsigned n = extract32(env->cpuid_version, 8, 4);

    return n < 0xf ? n : n + extract32(env->cpuid_version, 20, 8);
}

unsigned pmu_cpu_model(X86CPU *cpu, PmuVendor *v, unsigned *f)
{
    uint32_t version = cpu->env.cpuid_version;

    *v = vendor(&cpu->env);
    *f = family(&cpu->env);
    return extract32(version, 4, 4) | extract32(version, 16, 4) << 4;
}

static const PmuFlavour *flavour(X86CPU *cpu)
{
    PmuVendor v;
    unsigned f, m = pmu_cpu_model(cpu, &v, &f);

    return pmu_flavour(v, f, m);
}

/* PEBS is nothing without the debug store, and its records have 64 bits. */
static uint64_t capabilities(X86CPU *cpu, const PmuConfig *config, bool dtes64)
{
    uint64_t caps = config->perf_capabilities |
                    branch_cpu_supported(cpu, FEAT_PERF_CAPABILITIES);

    return cpu->pmu_pebs && dtes64 ? caps : caps & ~(uint64_t)PMU_CAP_PEBS;
}

static bool init_config(X86CPU *cpu, PmuConfig *config)
{
    const PmuFlavour *f = has_pmu(cpu) ? flavour(cpu) : NULL;

    *config = (PmuConfig) { };
    if (!f) {
        return false;
    }
    pmu_config_init(config, f);
    config->perf_capabilities =
        capabilities(cpu, config, branch_cpu_supported(cpu, FEAT_1_ECX) &
                     CPUID_EXT_DTES64);
    config->pdcm = config->perf_capabilities;
    return true;
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

uint64_t pmu_cpu_supported(X86CPU *cpu, FeatureWord w)
{
    PmuConfig config;
    uint64_t features;

    if (!init_config(cpu, &config)) {
        return 0;
    }
    features = branch_cpu_supported(cpu, w) | ibs_cpu_supported(cpu, w);
    switch (w) {
    case FEAT_6_ECX:
        features |= config.aperfmperf && has_leaf_6(cpu, &config) ?
                    CPUID_6_ECX_APERFMPERF : 0;
        break;
    case FEAT_1_ECX:
        features |= config.pdcm ? CPUID_EXT_PDCM : 0;
        break;
    case FEAT_PERF_CAPABILITIES:
        features |= config.perf_capabilities;
        break;
    case FEAT_8000_0001_ECX:
        features |= vendor(&cpu->env) == PMU_VENDOR_AMD ?
                    CPUID_EXT3_PERFCORE : 0;
        break;
    case FEAT_8000_0022_EAX:
        features |= vendor(&cpu->env) == PMU_VENDOR_AMD ?
                    CPUID_8000_0022_EAX_PERFMON_V2 : 0;
        break;
    default:
        break;
    }
    return features;
}

void pmu_cpu_expand_features(X86CPU *cpu)
{
    static const FeatureWord words[] = {
        FEAT_1_EDX, FEAT_1_ECX, FEAT_6_ECX, FEAT_7_0_EDX,
        FEAT_PERF_CAPABILITIES, FEAT_SVM,
    };
    CPUX86State *env = &cpu->env;
    PmuConfig config;
    uint64_t lbr_v2;

    if (!init_config(cpu, &config)) {
        return;
    }
    /* No model has these: they depend on the accelerator. */
    for (int i = 0; i < ARRAY_SIZE(words); i++) {
        env->features[words[i]] |= pmu_cpu_supported(cpu, words[i]) &
                                   ~env->user_features[words[i]];
    }
    if (!(env->features[FEAT_1_EDX] & CPUID_DTS)) {
        /* Who wants no 'ds' need not say so of what goes with it. */
        env->features[FEAT_1_ECX] &= env->user_features[FEAT_1_ECX] |
                                     ~(CPUID_EXT_DTES64 | CPUID_EXT_DSCPL);
    }
    if (config.version) {
        env->cpuid_min_level = MAX(env->cpuid_min_level, 0xa);
    }
    if (env->features[FEAT_7_0_EDX] & CPUID_7_0_EDX_ARCH_LBR) {
        env->cpuid_min_level = MAX(env->cpuid_min_level, 0x1c);
    }
    ibs_cpu_expand_features(cpu);
    lbr_v2 = CPUID_8000_0022_EAX_LBR_V2 &
             ~env->user_features[FEAT_8000_0022_EAX];
    env->features[FEAT_8000_0022_EAX] &= ~lbr_v2;
    if (env->features[FEAT_8000_0022_EAX] & CPUID_8000_0022_EAX_PERFMON_V2) {
        env->features[FEAT_8000_0022_EAX] |=
            pmu_cpu_supported(cpu, FEAT_8000_0022_EAX) & lbr_v2;
        env->cpuid_min_xlevel = MAX(env->cpuid_min_xlevel, 0x80000022);
    }
}

/* Guests take it that all CPUs have what the first one has. */
static bool same_for_all(const PmuConfig *config, Error **errp)
{
    static PmuConfig common;
    static bool known;

    if (known && (config->flavour != common.flavour ||
                  config->version != common.version ||
                  config->counters != common.counters ||
                  config->pdcm != common.pdcm ||
                  config->perfctr_core != common.perfctr_core ||
                  config->perfmon_v2 != common.perfmon_v2 ||
                  config->lbr_v2 != common.lbr_v2 ||
                  config->aperfmperf != common.aperfmperf ||
                  config->perf_capabilities != common.perf_capabilities)) {
        error_setg(errp, "Properties 'pmu' and 'pmu-*' and the features that "
                   "go with them must be the same for all CPUs");
        return false;
    }
    known = true;
    common = *config;
    return true;
}

static void pmu_reset_cpu(void *opaque)
{
    X86CPU *cpu = opaque;

    pmu_reset(cpu->pmu, &cpu->pmu_config);
    ibs_cpu_reset(cpu);
#ifdef CONFIG_TCG
    cpu_sync_retire(&cpu->env);
#endif
}

bool pmu_cpu_realize(X86CPU *cpu, Error **errp)
{
    CPUX86State *env = &cpu->env;
    PmuConfig *config = &cpu->pmu_config;
    PmuRange bad;

    if (tcg_enabled()) {
        /* What branch records and counters share is there without either. */
        cpu->pmu = g_new0(PmuState, 1);
    }
    if (!has_pmu(cpu)) {
        if (cpu->pmu_version || cpu->pmu_counters) {
            error_setg(errp, "Property '%s' needs 'pmu=on' and TCG",
                       cpu->pmu_version ? "pmu-version" : "pmu-counters");
            return false;
        }
        return !tcg_enabled() || same_for_all(config, errp);
    }
    if (!init_config(cpu, config)) {
        error_setg(errp, "Property 'pmu': there is no PMU for this vendor, "
                   "family and model");
        return false;
    }
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
    config->no_models = !retire_models_ops;
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
    config->perf_capabilities =
        capabilities(cpu, config, (env->features[FEAT_1_EDX] & CPUID_DTS) &&
                     (env->features[FEAT_1_ECX] & CPUID_EXT_DTES64));
    config->perf_capabilities &= env->features[FEAT_PERF_CAPABILITIES];
    env->features[FEAT_PERF_CAPABILITIES] = config->perf_capabilities;
    if (!same_for_all(config, errp) || !ibs_cpu_realize(cpu, errp)) {
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
#ifdef CONFIG_TCG
    cpu->retire_config.caches_of_cpuid = true;
    /* CPUID has K8's. */
    cpu->retire_config.family_15h = vendor(env) == PMU_VENDOR_AMD &&
                                    family(env) == 0x15;
    retire_add_observer(cpu, &pmu_observer, true);
#endif
    pmu_reset_cpu(cpu);
    /* INIT is a reset of the CPU, too, but keeps these. */
    qemu_register_reset(pmu_reset_cpu, cpu);
    return true;
}

bool cpu_asks_for_pmi(X86CPU *cpu)
{
    return has_pmu(cpu) && pmu_asks(&cpu->pmu_config);
}

void pmu_cpu_cpuid(X86CPU *cpu, uint32_t leaf, uint32_t *eax, uint32_t *ebx,
                   uint32_t *ecx, uint32_t *edx)
{
    uint32_t regs[4] = { };

    if (has_pmu(cpu)) {
        switch (leaf) {
        case 0xa:
            pmu_cpuid_0a(&cpu->pmu_config, regs);
            break;
        case 0x1c:
            branch_cpuid_1c(&cpu->branch_config, regs);
            break;
        default:
            pmu_cpuid_80000022(&cpu->pmu_config, regs);
            branch_cpuid_80000022(&cpu->branch_config, regs);
            break;
        }
    }
    *eax = regs[0];
    *ebx = regs[1];
    *ecx = regs[2];
    *edx = regs[3];
}

void pmu_cpu_unrealize(X86CPU *cpu)
{
    if (has_pmu(cpu)) {
        qemu_unregister_reset(pmu_reset_cpu, cpu);
        g_free(cpu->pmu_config.netburst);
        cpu->pmu_config.netburst = NULL;
    }
    g_clear_pointer(&cpu->pmu, g_free);
}
