/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters under TCG: what the rest of target/i386 calls. */

#ifndef I386_PMU_H
#define I386_PMU_H

#include "cpu.h"
#include "retire/retire.h"

#ifndef CONFIG_USER_ONLY

/* The model number of CPUID, its vendor and family */
unsigned pmu_cpu_model(X86CPU *cpu, PmuVendor *vendor, unsigned *family);

/* What "pmu=on" lets the CPU have of feature word @w, beside what TCG has. */
uint64_t pmu_cpu_supported(X86CPU *cpu, FeatureWord w);

/*
 * With "pmu=on" and TCG, give the CPU the CPUID bits and leaves that its PMU
 * has, except those that the user has set.
 */
void pmu_cpu_expand_features(X86CPU *cpu);

/*
 * Take over what the CPU model and the user have set.  Fails if a property
 * pmu-* is out of range or there is no PMU for this vendor and family.
 */
bool pmu_cpu_realize(X86CPU *cpu, Error **errp);
void pmu_cpu_unrealize(X86CPU *cpu);

/* CPUID.0AH and CPUID Fn8000_0022; all zero without a PMU. */
void pmu_cpu_cpuid(X86CPU *cpu, uint32_t leaf, uint32_t *eax, uint32_t *ebx,
                   uint32_t *ecx, uint32_t *edx);

/*
 * A CPU that has counters always sends them, in @vmstate_pmu.  Around the
 * loading of a CPU's state: the latter returns false if they have not come.
 */
extern const VMStateDescription vmstate_pmu;
int pmu_cpu_pre_load(void *opaque);
bool pmu_cpu_loaded(X86CPU *cpu);

#ifdef CONFIG_TCG
extern const RetireObserver pmu_observer;

/*
 * RDMSR and WRMSR of an MSR that nobody else has, and what of MSR
 * IA32_MISC_ENABLE is the PMU's.  The former two may raise #GP; what is not the
 * PMU's is 0, and not written.
 */
uint64_t pmu_cpu_rdmsr(CPUX86State *env, uint32_t msr, uintptr_t ra);
void pmu_cpu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val, uintptr_t ra);
uint64_t pmu_cpu_misc_enable(CPUX86State *env, uint64_t val);

/* PmuState.pmi is set, what has retired can be reported, and nobody is told. */
void pmu_cpu_bts(CPUX86State *env);

/* With pmu_tags(), the instruction of @story has retired: tag its load. */
void pebs_cpu_tag(CPUX86State *env, const RetireStory *story);

/* Store the records that pmu_pebs_due() has, of the instruction of @story. */
void pebs_cpu_store(CPUX86State *env, const RetireStory *story, uint64_t due);

/* SMI, when what has retired before has been settled, and RSM. */
void pmu_cpu_smi(CPUX86State *env);
void pmu_cpu_rsm(CPUX86State *env);

/*
 * RDPMC at a privilege that it is allowed at; may raise #GP, and only then exit
 * to a hypervisor.  False without a PMU.
 */
bool pmu_cpu_rdpmc(CPUX86State *env, uintptr_t ra);

/*
 * What the registers are at this moment, without changing anything; on the
 * CPU's own thread, outside its loop, where all has been reported.  @config is
 * the CPU's, but with a copy of what else belongs to the registers.
 */
void pmu_cpu_peek(CPUX86State *env, PmuState *s, const PmuConfig *config);

/* An external interrupt is about to be delivered, and all is settled. */
void pmu_cpu_interrupt(CPUX86State *env);
#endif

#else

static inline uint64_t pmu_cpu_supported(X86CPU *cpu, FeatureWord w)
{
    return 0;
}

static inline void pmu_cpu_expand_features(X86CPU *cpu)
{
}

static inline bool pmu_cpu_realize(X86CPU *cpu, Error **errp)
{
    return true;
}

static inline void pmu_cpu_unrealize(X86CPU *cpu)
{
}

static inline void pmu_cpu_cpuid(X86CPU *cpu, uint32_t leaf, uint32_t *eax,
                                 uint32_t *ebx, uint32_t *ecx, uint32_t *edx)
{
    *eax = *ebx = *ecx = *edx = 0;
}

static inline bool pmu_cpu_rdpmc(CPUX86State *env, uintptr_t ra)
{
    return false;
}

#endif

#endif
