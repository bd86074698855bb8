/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: CPU features, CPUID, MSRs and hidden flags. */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qemu/error-report.h"
#include "qemu/qemu-print.h"
#include "qapi/error.h"
#include "exec/exec-all.h"
#ifndef CONFIG_USER_ONLY
#include "hw/boards.h"
#endif
#include "lwp.h"
#include "trace.h"

static bool lwp_supported(CPUX86State *env)
{
    return env->features[FEAT_8000_0001_ECX] & CPUID_EXT3_LWP;
}

static bool has_predictor(X86CPU *cpu)
{
    return g_strcmp0(cpu->lwp_branch_predictor, "off") != 0;
}

bool lwp_cpu_expand_features(X86CPU *cpu)
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
        return true;
    }
    if (env->cpuid_level < 0xd || env->cpuid_xlevel < 0x8000001c) {
        for (int i = 0; i < ARRAY_SIZE(words); i++) {
            env->features[words[i]] = 0;
        }
        return false;
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
    return true;
}

static bool check_ranges(const LwpConfig *config, Error **errp)
{
    const struct {
        const char *name;
        uint32_t val, min, max;
    } props[] = {
        { "lwp-insn-clocks", config->insn_clocks, 1, LWP_INSN_CLOCKS_MAX },
        { "lwp-refclk-ratio", config->refclk_ratio, 1, LWP_REFCLK_RATIO_MAX },
        { "lwp-latency-max", config->latency_bits,
          LWP_LATENCY_BITS_MIN, LWP_LATENCY_BITS_MAX },
        { "lwp-latency-rnd", config->latency_round, 0, LWP_LATENCY_ROUND_MAX },
        { "lwp-l1d-size", config->cache[LWP_L1D].size, 1 * KiB, 1 * MiB },
        { "lwp-l1d-assoc", config->cache[LWP_L1D].assoc, 1, LWP_ASSOC_MAX },
        { "lwp-l2-size", config->cache[LWP_L2].size, 1 * KiB, 64 * MiB },
        { "lwp-l2-assoc", config->cache[LWP_L2].assoc, 1, LWP_ASSOC_MAX },
        { "lwp-l3-size", config->cache[LWP_L3].size, 0, 1 * GiB },
        { "lwp-l3-assoc", config->cache[LWP_L3].assoc, 1, LWP_ASSOC_MAX },
        { "lwp-l2-latency", config->latency[LWP_SOURCE_L2],
          1, LWP_LATENCY_MAX },
        { "lwp-l3-latency", config->latency[LWP_SOURCE_L3],
          1, LWP_LATENCY_MAX },
        { "lwp-remote-latency", config->latency[LWP_SOURCE_REMOTE],
          1, LWP_LATENCY_MAX },
        { "lwp-dram-latency", config->latency[LWP_SOURCE_DRAM],
          1, LWP_LATENCY_MAX },
        { "lwp-other-latency", config->latency[LWP_SOURCE_OTHER],
          1, LWP_LATENCY_MAX },
    };
    static const char *const levels[LWP_NR_LEVELS] = { "l1d", "l2", "l3" };

    for (int i = 0; i < ARRAY_SIZE(props); i++) {
        if (props[i].val < props[i].min || props[i].val > props[i].max) {
            error_setg(errp, "Property '%s' must be between %" PRIu32 " and %"
                       PRIu32 ", not %" PRIu32, props[i].name, props[i].min,
                       props[i].max, props[i].val);
            return false;
        }
    }
    for (int i = 0; i < LWP_NR_LEVELS; i++) {
        if (!lwp_geometry_valid(&config->cache[i])) {
            error_setg(errp, "Properties 'lwp-%s-size' and 'lwp-%s-assoc': "
                       "%" PRIu32 " bytes in %" PRIu32 " ways of 64-byte lines "
                       "do not make a power of two of sets", levels[i],
                       levels[i], config->cache[i].size,
                       config->cache[i].assoc);
            return false;
        }
    }
    return true;
}

static LwpUncore *uncore;

/* Whether there is, or may be at any time, another CPU. */
static bool has_siblings(X86CPU *cpu)
{
#ifdef CONFIG_USER_ONLY
    /* The thread that creates another was the only one. */
    return first_cpu && first_cpu != CPU(cpu);
#else
    return current_machine->smp.max_cpus > 1;
#endif
}

static bool realize_uncore(X86CPU *cpu, Error **errp)
{
    const LwpConfig *config = &cpu->env.lwp_config;

    if (!(config->caps & (LWP_CAP_CACHE_LEVELS | LWP_CAP_CACHE_LATENCY))) {
        error_setg(errp, "Feature 'lwp-dme' needs 'lwp-cache-levels' or "
                   "'lwp-cache-latency'");
        return false;
    }
    if (!uncore) {
        uncore = lwp_uncore_new(config->cache);
    }
    if (!uncore) {
        error_setg(errp, "Not enough memory for 'lwp-l3-size'");
        return false;
    }
    if (has_siblings(cpu)) {
        lwp_uncore_share(uncore);
    }
    return true;
}

bool lwp_cpu_realize(X86CPU *cpu, Error **errp)
{
    LwpConfig *config = &cpu->env.lwp_config;
    /* CPUs share the uncore and translation blocks. */
    static LwpConfig common;
    static bool known;

    config->features = cpu->env.features[FEAT_8000_001C_EDX];
    config->caps = cpu->env.features[FEAT_8000_001C_ECX];
    if (!check_ranges(config, errp)) {
        return false;
    }
    if (cpu->lwp_branch_predictor &&
        strcmp(cpu->lwp_branch_predictor, "gshare") &&
        strcmp(cpu->lwp_branch_predictor, "off")) {
        error_setg(errp, "Property 'lwp-branch-predictor' must be 'gshare' or "
                   "'off', not '%s'", cpu->lwp_branch_predictor);
        return false;
    }
    config->latency_worst = 0;
    for (int i = 0; i < LWP_NR_SOURCES; i++) {
        config->latency_worst = MAX(config->latency_worst,
                                    2 * config->latency[i]);
    }
    if (known && memcmp(config, &common, sizeof(common))) {
        error_setg(errp, "LWP features and properties 'lwp-*' must be the same "
                   "for all CPUs");
        return false;
    }
    if ((config->caps & LWP_CAP_PREDICTION) && !has_predictor(cpu)) {
        error_setg(errp, "Feature 'lwp-branch-prediction' needs a predictor, "
                   "'lwp-branch-predictor' is 'off'");
        return false;
    }
    if ((config->features & LWP_FLAG(LWP_EVENT_DME)) &&
        !realize_uncore(cpu, errp)) {
        return false;
    }
    known = true;
    common = *config;
    return true;
}

void lwp_cpu_unrealize(X86CPU *cpu)
{
    if (cpu->lwp_cache) {
        lwp_cache_free(cpu->lwp_cache);
        cpu->lwp_cache = NULL;
    }
}

void lwp_cpu_flush(X86CPU *cpu)
{
    if (cpu->lwp_cache) {
        lwp_cache_flush(cpu->lwp_cache);
    }
    memset(&cpu->env.lwp_predictor, 0, sizeof(cpu->env.lwp_predictor));
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

bool lwp_cpu_rdmsr(CPUX86State *env, uint32_t msr, uint64_t *val)
{
    if (!lwp_supported(env)) {
        return false;
    }
    *val = msr == MSR_LWP_CFG ? env->lwp.cfg : env->lwp.cbaddr;
    return true;
}

bool lwp_cpu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val)
{
    uint64_t old = env->lwp.cbaddr;

    if (!lwp_supported(env)) {
        return false;
    }
    if (msr == MSR_LWP_CFG) {
        return lwp_write_cfg(&env->lwp, &env->lwp_config, val);
    }
    if (!lwp_write_cbaddr(&env->lwp, val)) {
        return false;
    }
    lwp_cpu_trace(env, old);
    return true;
}

void lwp_cpu_disable(CPUX86State *env)
{
    uint64_t old = env->lwp.cbaddr;

    lwp_disable(&env->lwp);
    lwp_cpu_trace(env, old);
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

void lwp_cpu_reset_user(CPUX86State *env)
{
    env->lwp.cfg = env->features[FEAT_8000_001C_EDX] & ~LWP_FLAG_INT;
}

void lwp_cpu_set_mode(CPUX86State *env, LwpMode mode)
{
    X86CPU *cpu = env_archcpu(env);
    uint32_t hflags = (uint32_t)mode << HF_LWP_SHIFT;

    if (mode != LWP_MODE_OFF && lwp_wants_loads(&env->lwp)) {
        hflags |= HF_LWP_DME_MASK;
        if (!cpu->lwp_cache) {
            cpu->lwp_cache = lwp_cache_new(uncore, env->lwp_config.cache,
                                           &env->lwp_filter);
            if (!cpu->lwp_cache) {
                error_report("Not enough memory for LWP's caches");
                abort();
            }
        }
        if (!(env->hflags & HF_LWP_DME_MASK)) {
            /* The kernel may have changed the mapping. */
            lwp_filter_clear(&env->lwp_filter);
        }
    }
    env->hflags = (env->hflags & ~(HF_LWP_MASK | HF_LWP_DME_MASK)) | hflags;
}

void lwp_cpu_dump(CPUX86State *env, FILE *f)
{
    static const char *const names[LWP_NR_EVENTS] = {
        "VAL", "IRE", "BRE", "DME", "CNH", "RNH",
    };
    LwpState s = env->lwp;

    if (!lwp_enabled(&s)) {
        return;
    }
    /* Not what is only going to be due; the CPU may be running. */
    s.ndue = 0;
    lwp_sync(&s, &env->lwp_config);
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

void cpu_sync_lwp_hflags(CPUX86State *env)
{
    LwpMode mode = LWP_MODE_OFF;

    if (unlikely(lwp_enabled(&env->lwp))) {
        lwp_sync(&env->lwp, &env->lwp_config);
        if ((env->hflags & (HF_CPL_MASK | HF_SMM_MASK)) == 3) {
            mode = lwp_mode(&env->lwp);
            /* A debug trap of this instruction must not wait (DR7). */
            if (cpu_loop_exit_requested(env_cpu(env))) {
                lwp_expire(&env->lwp, &env->lwp_config);
            }
        } else {
            env->lwp.ready = false;
        }
    }
    lwp_cpu_set_mode(env, mode);
}
