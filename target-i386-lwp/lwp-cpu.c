/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: CPU features, CPUID, MSRs and hidden flags. */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "lwp.h"

static bool lwp_supported(CPUX86State *env)
{
    return env->features[FEAT_8000_0001_ECX] & CPUID_EXT3_LWP;
}

bool lwp_cpu_expand_features(X86CPU *cpu)
{
    static const FeatureWord words[] = {
        FEAT_8000_001C_EDX, FEAT_8000_001C_ECX,
    };
    CPUX86State *env = &cpu->env;
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
    return true;
}

static bool check_range(const char *name, uint32_t val, uint32_t max,
                        Error **errp)
{
    if (val < 1 || val > max) {
        error_setg(errp, "Property '%s' must be between 1 and %" PRIu32
                   ", not %" PRIu32, name, max, val);
        return false;
    }
    return true;
}

bool lwp_cpu_realize(X86CPU *cpu, Error **errp)
{
    LwpConfig *config = &cpu->env.lwp_config;

    config->features = cpu->env.features[FEAT_8000_001C_EDX];
    config->caps = cpu->env.features[FEAT_8000_001C_ECX];
    return check_range("lwp-insn-clocks", config->insn_clocks,
                       LWP_INSN_CLOCKS_MAX, errp) &&
           check_range("lwp-refclk-ratio", config->refclk_ratio,
                       LWP_REFCLK_RATIO_MAX, errp);
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
    if (!lwp_supported(env)) {
        return false;
    }
    if (msr == MSR_LWP_CFG) {
        return lwp_write_cfg(&env->lwp, &env->lwp_config, val);
    }
    return lwp_write_cbaddr(&env->lwp, val);
}

void lwp_cpu_reset_user(CPUX86State *env)
{
    env->lwp.cfg = env->features[FEAT_8000_001C_EDX] & ~LWP_FLAG_INT;
}

void cpu_sync_lwp_hflags(CPUX86State *env)
{
    LwpMode mode = LWP_MODE_OFF;

    if (unlikely(lwp_enabled(&env->lwp))) {
        lwp_sync(&env->lwp, &env->lwp_config);
        if ((env->hflags & (HF_CPL_MASK | HF_SMM_MASK)) == 3) {
            mode = lwp_mode(&env->lwp);
        } else {
            env->lwp.ready = false;
        }
    }
    lwp_cpu_set_mode(env, mode);
}
