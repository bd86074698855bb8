/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where QEMU has what the glue uses: what differs between the releases that
 * there are patches for, and nothing else.
 */

#ifndef I386_RETIRE_COMPAT_H
#define I386_RETIRE_COMPAT_H

#if QEMU_VERSION_MAJOR == 10 && QEMU_VERSION_MINOR == 0

#include "exec/exec-all.h"
#include "system/cpu-timers.h"
#ifdef CONFIG_TCG
#include "exec/cpu_ldst.h"
#endif
#ifndef CONFIG_USER_ONLY
#include "qapi/qapi-commands-misc-target.h"
#endif
#define INSN_START_WORDS TARGET_INSN_START_WORDS

#else

#include "exec/icount.h"
#include "exec/target_page.h"
#include "exec/tlb-flags.h"
#ifdef CONFIG_TCG
#include "accel/tcg/cpu-ldst.h"
#include "accel/tcg/helper-retaddr.h"
#include "accel/tcg/probe.h"
#include "exec/cpu-common.h"
#endif
#ifndef CONFIG_USER_ONLY
#include "qapi/qapi-commands-misc-i386.h"
#endif

#endif

static inline CPUCacheInfo **retire_level(CPUCaches *c, RetireLevel level)
{
    return level == RETIRE_L1D ? &c->l1d_cache :
           level == RETIRE_L2 ? &c->l2_cache : &c->l3_cache;
}

/*
 * The cache of @level that CPUID shows a guest of this vendor and cpuid_level,
 * and have all of CPUID show @info.
 */
#if QEMU_VERSION_MAJOR == 10 && QEMU_VERSION_MINOR == 0

static inline CPUCacheInfo *retire_get_cpuid_cache(CPUX86State *env,
                                                   RetireLevel level)
{
    return *retire_level(!IS_INTEL_CPU(env) ? &env->cache_info_amd :
                         env->cpuid_level < 4 ? &env->cache_info_cpuid2 :
                         &env->cache_info_cpuid4, level);
}

static inline void retire_set_cpuid_cache(CPUX86State *env, RetireLevel level,
                                          CPUCacheInfo *info)
{
    *retire_level(&env->cache_info_cpuid2, level) = info;
    *retire_level(&env->cache_info_cpuid4, level) = info;
    *retire_level(&env->cache_info_amd, level) = info;
}

#else

static inline CPUCacheInfo *retire_get_cpuid_cache(CPUX86State *env,
                                                   RetireLevel level)
{
    return *retire_level(&env->cache_info, level);
}

static inline void retire_set_cpuid_cache(CPUX86State *env, RetireLevel level,
                                          CPUCacheInfo *info)
{
    *retire_level(&env->cache_info, level) = info;
    env->enable_legacy_cpuid2_cache = false;
    env->enable_legacy_vendor_cache = false;
}

#endif

#endif
