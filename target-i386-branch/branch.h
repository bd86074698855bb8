/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Branch records under TCG: what the rest of target/i386 calls. */

#ifndef I386_BRANCH_H
#define I386_BRANCH_H

#include "cpu.h"

#ifndef CONFIG_USER_ONLY

/* What the CPU can have of feature word @w, beside what TCG has. */
uint64_t branch_cpu_supported(X86CPU *cpu, FeatureWord w);

/* Take over what the CPU model and the user have set. */
bool branch_cpu_realize(X86CPU *cpu, Error **errp);
void branch_cpu_unrealize(X86CPU *cpu);

/* INIT and RESET; the rest of RESET is a reset handler's. */
void branch_cpu_init(X86CPU *cpu);

/*
 * To be sent when there is anything, before "cpu/arch_lbr"; and before and
 * after the loading of a CPU's state.
 */
extern const VMStateDescription vmstate_branch;
void branch_cpu_pre_load(X86CPU *cpu);
bool branch_cpu_loaded(X86CPU *cpu);

#ifdef CONFIG_TCG
/*
 * RDMSR and WRMSR of an MSR that nobody else has, but performance counters; may
 * raise #GP.
 */
uint64_t branch_cpu_rdmsr(CPUX86State *env, uint32_t msr, uintptr_t ra);
void branch_cpu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val,
                      uintptr_t ra);

/* What retires shall be observed from now on if it has to be. */
void branch_cpu_sync(X86CPU *cpu);

/*
 * LBR virtualization: behind VMRUN's checks of its operand, when env->vm_vmcb
 * is set and before the guest's state is loaded; and when #VMEXIT has stored
 * it, unless VMRUN has @failed.
 */
void branch_cpu_vmrun(CPUX86State *env);
void branch_cpu_vmexit(CPUX86State *env, bool failed);

/*
 * A task switch is committed, by what is at EIP, or by an instruction at @ra:
 * until it is done, that is where faults come from, although they are the next
 * task's.
 */
void branch_cpu_task_commit(CPUX86State *env, uintptr_t ra);

/* One by an instruction is done; others are when they have been delivered. */
static inline void branch_cpu_task_done(CPUX86State *env)
{
    BranchSource *source = &env_archcpu(env)->branch_source;

    source->valid &= !source->is_insn;
}

/* SMI, before CS is loaded, and RSM, behind that; see branch_smi(). */
void branch_cpu_smi(CPUX86State *env, bool freeze);
void branch_cpu_rsm(CPUX86State *env);

/* Store what has been held because a record of PEBS might come before it. */
void branch_cpu_release(CPUX86State *env);

/* A PMI is going to be signalled, and what retired before has been recorded. */
void branch_cpu_pmi(CPUX86State *env);
#endif

#else

static inline bool branch_cpu_realize(X86CPU *cpu, Error **errp)
{
    return true;
}

static inline void branch_cpu_unrealize(X86CPU *cpu)
{
}

static inline void branch_cpu_task_commit(CPUX86State *env, uintptr_t ra)
{
}

static inline void branch_cpu_task_done(CPUX86State *env)
{
}

#endif

#endif
