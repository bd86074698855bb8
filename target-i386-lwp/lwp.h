/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: what the rest of target/i386 calls. */

#ifndef I386_LWP_H
#define I386_LWP_H

#include "cpu.h"
#include "retire/retire.h"

/* In feature_word_info[]: CPUID Fn8000_001C ECX and EDX (§3.3) */
#define LWP_FEATURES_ECX {                                            \
    .type = CPUID_FEATURE_WORD,                                       \
    .feat_names = {                                                   \
        [5] = "lwp-data-address", [28] = "lwp-branch-prediction",     \
        [29] = "lwp-ip-filtering", [30] = "lwp-cache-levels",         \
        [31] = "lwp-cache-latency",                                   \
    },                                                                \
    .cpuid = { .eax = 0x8000001C, .reg = R_ECX, },                    \
    .tcg_features = LWP_CAPS,                                         \
}

#define LWP_FEATURES_EDX {                                            \
    .type = CPUID_FEATURE_WORD,                                       \
    .feat_names = {                                                   \
        [1] = "lwp-val", [2] = "lwp-ire", [3] = "lwp-bre",            \
        [4] = "lwp-dme", [5] = "lwp-cnh", [6] = "lwp-rnh",            \
        [31] = "lwp-int",                                             \
    },                                                                \
    .cpuid = { .eax = 0x8000001C, .reg = R_EDX, },                    \
    .tcg_features = LWP_FLAG_EVENTS | LWP_FLAG_INT,                   \
}

/* Properties "lwp-*" that are not those of the models */
void lwp_class_init(ObjectClass *oc);

/*
 * Fill in CPUID Fn8000_001C of a CPU that has LWP, and raise level and xlevel:
 * one whose model names none of its features gets all that the accelerator has,
 * except those that the user has set.  Returns CPUID_EXT3_LWP if it cannot have
 * it: this is not TCG, or level or xlevel hide leaves that LWP needs.
 */
uint64_t lwp_cpu_expand_features(X86CPU *cpu);

/*
 * Take over what the CPU model and the user have set.  Fails if features
 * contradict each other, need models that are not there, or differ from those
 * of another CPU.
 */
bool lwp_cpu_realize(X86CPU *cpu, Error **errp);

/* CPUID Fn8000_001C (§3.3); all zero on a CPU without LWP. */
void lwp_cpu_cpuid(CPUX86State *env, uint32_t *eax, uint32_t *ebx,
                   uint32_t *ecx, uint32_t *edx);

/* Trace that LWP may have been started, with LWP_CBADDR @old before. */
void lwp_cpu_trace(CPUX86State *env, uint64_t old);

/* Stop LWP and forget its state; LWP_CFG stays. */
void lwp_cpu_disable(CPUX86State *env);

/* A few lines of "info registers", while LWP is enabled. */
void lwp_cpu_dump(CPUX86State *env, FILE *f);

/*
 * What an operating system would have set up (§8.7.1), in user mode emulation:
 * all of LWP_CFG but the interrupt.
 */
void lwp_cpu_reset_user(CPUX86State *env);

/*
 * The state components in a signal frame.  A kernel would not have LWP there:
 * it profiles the handler too, and what it counts must survive sigreturn.
 */
static inline uint64_t lwp_sigframe_xfeatures(CPUX86State *env)
{
    return env->xcr0 & ~XSTATE_LWP_MASK;
}

/*
 * Operand descriptor of helper_lwpval() and helper_lwpins(): bits 15:0 are the
 * immediate, this one says that the second operand is in memory.
 */
#define LWP_DESC_MEM    (1u << 16)

#ifdef CONFIG_TCG
extern const RetireObserver lwp_observer;

/* RDMSR and WRMSR of the two LWP MSRs (§4.2, §4.3); may raise #GP. */
uint64_t lwp_cpu_rdmsr(CPUX86State *env, uint32_t msr, uintptr_t ra);
void lwp_cpu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val, uintptr_t ra);

/* XSAVE and XRSTOR (§7.4) of component 62, at @ptr; @init: it is not there. */
struct X86Access;
void lwp_cpu_xsave(struct X86Access *ac, target_ulong ptr);
void lwp_cpu_xrstor(struct X86Access *ac, target_ulong ptr, bool init);
#endif

#ifndef CONFIG_USER_ONLY
extern const VMStateDescription vmstate_lwp;
#endif

#endif
