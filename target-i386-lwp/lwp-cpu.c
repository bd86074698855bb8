/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: CPU features, CPUID, and what is shown of it. */

#include "qemu/osdep.h"
#include "qemu/qemu-print.h"
#include "qapi/error.h"
#include "system/tcg.h"
#include "lwp.h"
#include "trace.h"

static const RetireProperty properties[] = {
    RETIRE_PROPERTY("lwp-latency-max", env.lwp_config.latency_bits, 12,
                    LWP_LATENCY_BITS_MIN, LWP_LATENCY_BITS_MAX),
    RETIRE_PROPERTY("lwp-latency-rnd", env.lwp_config.latency_round, 4,
                    0, LWP_LATENCY_ROUND_MAX),
};

void lwp_class_init(ObjectClass *oc)
{
    retire_add_properties(oc, properties, ARRAY_SIZE(properties));
}

static bool lwp_supported(CPUX86State *env)
{
    return env->features[FEAT_8000_0001_ECX] & CPUID_EXT3_LWP;
}

static bool has_predictor(X86CPU *cpu)
{
    return retire_models_ops && retire_models_ops->predicts(cpu);
}

uint64_t lwp_cpu_expand_features(X86CPU *cpu)
{
    static const FeatureWord words[] = {
        FEAT_8000_001C_EDX, FEAT_8000_001C_ECX,
    };
    const uint32_t dme_caps = LWP_CAP_DATA_ADDRESS | LWP_CAP_CACHE_LEVELS |
                              LWP_CAP_CACHE_LATENCY;
    CPUX86State *env = &cpu->env;
    uint64_t *events = &env->features[FEAT_8000_001C_EDX];
    uint64_t *caps = &env->features[FEAT_8000_001C_ECX];
    bool named = false;

    if (!lwp_supported(env)) {
        return 0;
    }
    /* Some accelerators filter nothing of what they do not support. */
    if (!tcg_enabled() || env->cpuid_level < 0xd ||
        env->cpuid_xlevel < 0x8000001c) {
        for (int i = 0; i < ARRAY_SIZE(words); i++) {
            env->features[words[i]] = 0;
        }
        return CPUID_EXT3_LWP;
    }
    env->cpuid_min_level = MAX(env->cpuid_min_level, 0xd);
    env->cpuid_min_xlevel = MAX(env->cpuid_min_xlevel, 0x8000001c);
    for (int i = 0; i < ARRAY_SIZE(words); i++) {
        named |= env->features[words[i]] & ~env->user_features[words[i]];
    }
    for (int i = 0; i < ARRAY_SIZE(words) && !named; i++) {
        FeatureWord w = words[i];

        env->features[w] |= x86_cpu_get_supported_feature_word(cpu, w) &
                            ~env->user_features[w];
    }
    if (!(env->features[FEAT_1_EDX] & CPUID_APIC)) {
        *events &= ~LWP_FLAG_INT;
    }
    if (!retire_models_ops) {
        *events &= ~LWP_FLAG(LWP_EVENT_DME) |
                   env->user_features[FEAT_8000_001C_EDX];
    }
    /* What goes with an event comes and goes with it (Table 3-1). */
    if (!(*events & LWP_FLAG(LWP_EVENT_DME))) {
        *caps &= ~dme_caps;
    } else if (env->user_features[FEAT_8000_001C_EDX] &
               LWP_FLAG(LWP_EVENT_DME)) {
        *caps |= dme_caps & ~env->user_features[FEAT_8000_001C_ECX];
    }
    if (!(*events & LWP_FLAG(LWP_EVENT_BRE))) {
        *caps &= ~LWP_CAP_PREDICTION;
    }
    if (!has_predictor(cpu)) {
        *caps &= ~LWP_CAP_PREDICTION | env->user_features[FEAT_8000_001C_ECX];
    }
    return 0;
}

bool lwp_cpu_realize(X86CPU *cpu, Error **errp)
{
    LwpConfig *config = &cpu->env.lwp_config;
    bool loads;
    static void *common;

    config->features = cpu->env.features[FEAT_8000_001C_EDX];
    config->caps = cpu->env.features[FEAT_8000_001C_ECX];
    loads = config->features & LWP_FLAG(LWP_EVENT_DME);
    if (loads && !retire_models_ops) {
        error_setg(errp, "Feature 'lwp-dme' needs models of caches, which this "
                   "QEMU has been built without");
        return false;
    }
    if ((config->caps & LWP_CAP_PREDICTION) && !has_predictor(cpu)) {
        error_setg(errp, "Feature 'lwp-branch-prediction' needs a predictor, "
                   "'branch-predictor' is 'off'");
        return false;
    }
    if (loads &&
        !(config->caps & (LWP_CAP_CACHE_LEVELS | LWP_CAP_CACHE_LATENCY))) {
        error_setg(errp, "Feature 'lwp-dme' needs 'lwp-cache-levels' or "
                   "'lwp-cache-latency'");
        return false;
    }
#ifdef CONFIG_TCG
    if (lwp_supported(&cpu->env)) {
        retire_add_observer(cpu, &lwp_observer, loads);
    }
#endif
    config->model = cpu->retire_config;
    return retire_same_for_all(config, sizeof(*config), &common,
                               "LWP features, properties 'lwp-*' and those of "
                               "the models", errp);
}

void lwp_cpu_cpuid(CPUX86State *env, uint32_t *eax, uint32_t *ebx,
                   uint32_t *ecx, uint32_t *edx)
{
    uint32_t regs[4] = { };

    if (lwp_supported(env)) {
        lwp_cpuid(&env->lwp_config, env->lwp.cfg, env->xcr0 & XSTATE_LWP_MASK,
                  regs);
    }
    *eax = regs[0];
    *ebx = regs[1];
    *ecx = regs[2];
    *edx = regs[3];
}

void lwp_cpu_trace(CPUX86State *env, uint64_t old)
{
    const LwpState *s = &env->lwp;
    int index = env_cpu(env)->cpu_index;

    if (old) {
        trace_lwp_disable(index, old);
    }
    if (lwp_enabled(s)) {
        trace_lwp_enable(index, s->cbaddr, s->flags, s->base, s->size);
    }
}

void lwp_cpu_disable(CPUX86State *env)
{
    uint64_t old = env->lwp.cbaddr;

    lwp_disable(&env->lwp);
    lwp_cpu_trace(env, old);
}

void lwp_cpu_reset_user(CPUX86State *env)
{
    env->lwp.cfg = env->features[FEAT_8000_001C_EDX] & ~LWP_FLAG_INT;
}

void lwp_cpu_dump(CPUX86State *env, FILE *f)
{
    static const char *const names[LWP_NR_EVENTS] = {
        "VAL", "IRE", "BRE", "DME", "CNH", "RNH",
    };
    LwpState s = env->lwp;
    RetireState r = env->retire;
    RetireTotals n = retire_take(&r, retire_left(env));
    uint64_t branches[RETIRE_NR_CLASSES];
    bool told = false;

    if (!lwp_enabled(&s)) {
        return;
    }
#ifdef CONFIG_TCG
    /* The budget may be that of performance counters alone. */
    RETIRE_FOREACH_TOLD(env, o) {
        told |= *o == &lwp_observer;
    }
#endif
    if (told && env->retire.runs) {
        if (retire_wants(env, RETIRE_WANT_CLASSES)) {
            n.branches = retire_take_branches(&r, branches) ? branches : NULL;
        }
        lwp_count(&s, &env->lwp_config, &n);
    }
    qemu_fprintf(f, "LWP_CFG=%016" PRIx64 " LWP_CBADDR=%016" PRIx64 "\n"
                 "LWP ring=%016" PRIx64 "+%07x head=%07x filters=%08x"
                 " pending=%u\nLWP",
                 s.cfg, s.cbaddr, s.base, s.size, s.head, s.filters,
                 s.npending);
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        if (s.flags & LWP_FLAG(i + 1)) {
            qemu_fprintf(f, " %s=%d", names[i], s.counter[i]);
        }
    }
    qemu_fprintf(f, "\n");
}
