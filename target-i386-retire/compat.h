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
/* Where cpu_loop_exit() and cpu_restore_state() are */
#if QEMU_VERSION_MAJOR == 10
#include "exec/cpu-common.h"
#elif __has_include("accel/tcg/cpu-loop.h")
#include "accel/tcg/cpu-loop.h"
#endif
#endif
#ifndef CONFIG_USER_ONLY
#include "qapi/qapi-commands-misc-i386.h"
#endif

#endif

#if QEMU_VERSION_MAJOR == 10
#include "hw/qdev-properties.h"
#ifndef CONFIG_USER_ONLY
#include "hw/boards.h"
#endif
#else
#include "hw/core/qdev-properties.h"
#ifndef CONFIG_USER_ONLY
#include "hw/core/boards.h"
#endif
#endif

/*
 * What CPUID shows of L1D, L2 and L3: @seen by a guest of this vendor and
 * level, and what is in leaf 4 or 8000_001D.
 */
#if QEMU_VERSION_MAJOR == 10 && QEMU_VERSION_MINOR == 0

static inline void retire_get_cpuid_caches(CPUX86State *env,
                                           CPUCacheInfo **seen,
                                           CPUCacheInfo **shown)
{
    const CPUCaches *last = IS_INTEL_CPU(env) ? &env->cache_info_cpuid4 :
                            &env->cache_info_amd;
    const CPUCaches *first = IS_INTEL_CPU(env) && env->cpuid_level < 4 ?
                             &env->cache_info_cpuid2 : last;

    seen[RETIRE_L1D] = first->l1d_cache;
    seen[RETIRE_L2] = first->l2_cache;
    seen[RETIRE_L3] = first->l3_cache;
    shown[RETIRE_L1D] = last->l1d_cache;
    shown[RETIRE_L2] = last->l2_cache;
    shown[RETIRE_L3] = last->l3_cache;
}

static inline void retire_set_cpuid_caches(CPUX86State *env,
                                           CPUCacheInfo *info)
{
    CPUCaches *const all[] = {
        &env->cache_info_cpuid2, &env->cache_info_cpuid4, &env->cache_info_amd,
    };

    for (int i = 0; i < ARRAY_SIZE(all); i++) {
        all[i]->l1d_cache = &info[RETIRE_L1D];
        all[i]->l2_cache = &info[RETIRE_L2];
        all[i]->l3_cache = &info[RETIRE_L3];
    }
}

#else

static inline void retire_get_cpuid_caches(CPUX86State *env,
                                           CPUCacheInfo **seen,
                                           CPUCacheInfo **shown)
{
    seen[RETIRE_L1D] = shown[RETIRE_L1D] = env->cache_info.l1d_cache;
    seen[RETIRE_L2] = shown[RETIRE_L2] = env->cache_info.l2_cache;
    seen[RETIRE_L3] = shown[RETIRE_L3] = env->cache_info.l3_cache;
}

static inline void retire_set_cpuid_caches(CPUX86State *env,
                                           CPUCacheInfo *info)
{
    env->cache_info.l1d_cache = &info[RETIRE_L1D];
    env->cache_info.l2_cache = &info[RETIRE_L2];
    env->cache_info.l3_cache = &info[RETIRE_L3];
    env->enable_legacy_cpuid2_cache = false;
    env->enable_legacy_vendor_cache = false;
}

#endif

#endif
