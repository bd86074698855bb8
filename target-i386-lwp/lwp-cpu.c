/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: CPU features, CPUID, MSRs and hidden flags. */

#include "qemu/osdep.h"
#include "lwp.h"

static bool lwp_supported(CPUX86State *env)
{
    return env->features[FEAT_8000_0001_ECX] & CPUID_EXT3_LWP;
}

bool lwp_cpu_expand_features(X86CPU *cpu)
{
    CPUX86State *env = &cpu->env;
    const FeatureWord w = FEAT_8000_001C_EDX;

    if (!lwp_supported(env)) {
        return true;
    }
    if (env->cpuid_level < 0xd || env->cpuid_xlevel < 0x8000001c) {
        env->features[w] = 0;
        return false;
    }
    env->cpuid_min_level = MAX(env->cpuid_min_level, 0xd);
    env->cpuid_min_xlevel = MAX(env->cpuid_min_xlevel, 0x8000001c);
    if (!(env->features[w] & ~env->user_features[w])) {
        env->features[w] |= x86_cpu_get_supported_feature_word(cpu, w) &
                            ~env->user_features[w];
    }
    return true;
}

void lwp_cpu_cpuid(CPUX86State *env, uint32_t *eax, uint32_t *ebx,
                   uint32_t *ecx, uint32_t *edx)
{
    uint32_t regs[4] = { };

    if (lwp_supported(env)) {
        lwp_cpuid(env->features[FEAT_8000_001C_EDX], env->lwp.cfg,
                  env->xcr0 & XSTATE_LWP_MASK, regs);
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
        return lwp_write_cfg(&env->lwp, env->features[FEAT_8000_001C_EDX], val);
    }
    return lwp_write_cbaddr(&env->lwp, val);
}

void lwp_cpu_reset_user(CPUX86State *env)
{
    env->lwp.cfg = env->features[FEAT_8000_001C_EDX] & ~LWP_FLAG_INT;
}

void cpu_sync_lwp_hflags(CPUX86State *env)
{
    if ((env->hflags & HF_CPL_MASK) == 3 && lwp_pending(&env->lwp)) {
        env->hflags |= HF_LWP_PEND_MASK;
    } else {
        env->hflags &= ~HF_LWP_PEND_MASK;
    }
}
