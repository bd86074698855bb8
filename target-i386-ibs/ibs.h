/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Instruction-Based Sampling under TCG: what the rest of target/i386 calls. */

#ifndef I386_IBS_H
#define I386_IBS_H

#include "cpu.h"

#ifndef CONFIG_USER_ONLY

/* What the CPU can have of feature word @w: those of one with "pmu=on". */
uint64_t ibs_cpu_supported(X86CPU *cpu, FeatureWord w);

/* Give the CPU what its model has, except what the user has set. */
void ibs_cpu_expand_features(X86CPU *cpu);

/* Take over what the CPU model and the user have set. */
bool ibs_cpu_realize(X86CPU *cpu, Error **errp);

/* RESET; and INIT, or RESET, when the CPU has its APIC. */
void ibs_cpu_reset(X86CPU *cpu);
void ibs_cpu_init(X86CPU *cpu);

/* A part of vmstate_pmu */
extern const VMStateDescription vmstate_ibs;

#ifdef CONFIG_TCG
/* RDMSR and WRMSR, which may raise #GP; false: somebody else's. */
bool ibs_cpu_rdmsr(CPUX86State *env, uint32_t msr, uint64_t *val,
                   uintptr_t ra);
bool ibs_cpu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val, uintptr_t ra);

/* What retires shall be observed from now on if it has to be. */
void ibs_cpu_add_observer(X86CPU *cpu);
#endif

#endif

#endif
