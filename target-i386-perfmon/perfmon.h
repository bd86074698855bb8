/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Performance monitoring under TCG: what the rest of target/i386 calls, and
 * what a unit is: counters (pmu/), branch records (branch/), IBS (ibs/) or
 * Processor Trace (pt/).
 */

#ifndef I386_PERFMON_H
#define I386_PERFMON_H

#include "cpu.h"
#include "retire/retire.h"
#include "system/tcg.h"

#ifndef CONFIG_USER_ONLY
#include "migration/vmstate.h"

/* What happens to a CPU, and what units tell or ask others: perfmon_event() */
typedef enum PerfmonEvent {
    /* The first three clear IA32_DS_AREA. */
    PERFMON_RESET,          /* RESET alone, */
    PERFMON_INIT,           /* and RESET or INIT */
    PERFMON_PRE_LOAD,       /* the CPU's state is going to be loaded */
    PERFMON_UNREALIZE,
    PERFMON_SMI,            /* before CS is loaded, when all is settled */
    PERFMON_RSM,            /* behind that */
    /*
     * LBR virtualization: behind VMRUN's checks of its operand, when
     * env->vm_vmcb is set and before the guest's state is loaded; and when
     * #VMEXIT has stored it, unless VMRUN has failed.
     */
    PERFMON_VMRUN,
    PERFMON_VMEXIT,
    PERFMON_VMRUN_FAILED,
    PERFMON_INTERRUPT,      /* is about to be delivered, and all is settled */
    /* A task switch by an instruction is done; perfmon_cpu_task_commit() */
    PERFMON_TASK_DONE,
    PERFMON_ASKS,           /* is a PMI due as soon as LVTPC is not masked? */
    PERFMON_PMI,            /* a PMI is going to be signalled */
    PERFMON_PEBS_NEAR,      /* may what is next at CPL 0 have a record, */
    PERFMON_PEBS_NEAR_USR,  /* or at CPL 1 to 3, of PEBS? */
    PERFMON_RELEASE,        /* store what PerfmonState.held is about */
} PerfmonEvent;

/* All but @event may be NULL. */
typedef struct PerfmonUnit {
    /* With "pmu=on": false, if there is nothing for this processor, */
    bool (*exists)(X86CPU *cpu);
    /* or else what it can have of feature word @w, beside what TCG has. */
    uint64_t (*supported)(X86CPU *cpu, FeatureWord w);
    /* Raise CPUID's levels, and see to features that depend on others. */
    void (*expand_features)(X86CPU *cpu);
    /* With or without "pmu=on": take over what model and user have set. */
    bool (*realize)(X86CPU *cpu, Error **errp);
    void (*cpuid)(X86CPU *cpu, uint32_t leaf, uint32_t regs[4]);
    uint64_t (*misc_enable)(X86CPU *cpu, uint64_t val);
    /* The answer, or whether what is wanted may have changed */
    bool (*event)(CPUX86State *env, PerfmonEvent event);
    /*
     * RDMSR, or WRMSR if @write, and RDPMC.  Of IA32_DEBUGCTL, each takes its
     * bits; others may be wrong.
     */
    PmuAccess (*msr)(CPUX86State *env, uint32_t msr, uint64_t *val, bool write);
    PmuAccess (*rdpmc)(CPUX86State *env, uint64_t *val);
    void (*task_commit)(CPUX86State *env, uintptr_t ra);
    /* The last @n branches, as far as there are so many, the last one first */
    void (*last_branches)(X86CPU *cpu, PerfmonBranch *last, unsigned n);
    /* For people, on the CPU's own thread; the first unit ends "CPU #0: ". */
    void (*show)(X86CPU *cpu, GString *text);
    /* The events that there are, for people; on any thread */
    void (*events)(X86CPU *cpu, GString *text);
    /* The CPU's state has been loaded; false: it is not this CPU's. */
    bool (*loaded)(X86CPU *cpu);
} PerfmonUnit;

extern const PerfmonUnit pmu_unit, ibs_unit, branch_unit;
extern const VMStateDescription vmstate_pmu, vmstate_branch, vmstate_ibs;
/* A subsection of the former */
extern const VMStateDescription vmstate_perfmon_ds;

/* Before there are CPUs; who looks at what another one has realized is last. */
#ifdef CONFIG_TCG
void perfmon_add_unit(const PerfmonUnit *unit);
#else
#define perfmon_add_unit(unit)
#endif

#define PERFMON_MAX_UNITS   4

extern const PerfmonUnit *perfmon_units[PERFMON_MAX_UNITS + 1];

#define PERFMON_FOREACH(u, member) \
    for (const PerfmonUnit **(u) = perfmon_units; *(u); (u)++) \
        if ((*(u))->member)

static inline bool perfmon_has_pmu(X86CPU *cpu)
{
    return tcg_enabled() && cpu->enable_pmu;
}

/* The model number of CPUID, its vendor and family */
unsigned perfmon_cpu_model(X86CPU *cpu, PmuVendor *vendor, unsigned *family);

/* What "pmu=on" lets the CPU have of feature word @w, beside what TCG has. */
uint64_t perfmon_cpu_supported(X86CPU *cpu, FeatureWord w);

/* Of that, the debug store itself */
uint64_t perfmon_debug_store(X86CPU *cpu, FeatureWord w);

/*
 * With "pmu=on" and TCG, give the CPU the CPUID bits and leaves that its units
 * have, except those that the user has set.
 */
void perfmon_cpu_expand_features(X86CPU *cpu);

/* Whether IA32_DS_AREA may be @addr: a canonical address. */
bool perfmon_ds_valid(X86CPU *cpu, uint64_t addr);

/* Fails if a property is out of range, or needs another one. */
bool perfmon_cpu_realize(X86CPU *cpu, Error **errp);
void perfmon_cpu_unrealize(X86CPU *cpu);

/* A reset of the machine, not INIT, which keeps what units have. */
void perfmon_cpu_machine_reset(X86CPU *cpu);

/* CPUID.0AH and 1CH, and CPUID Fn8000_0022; all zero without a PMU. */
void perfmon_cpu_cpuid(X86CPU *cpu, uint32_t leaf, uint32_t *eax,
                       uint32_t *ebx, uint32_t *ecx, uint32_t *edx);

/* Around the loading of a CPU's state; false: it is not this CPU's. */
int perfmon_cpu_pre_load(void *opaque);
bool perfmon_cpu_loaded(X86CPU *cpu);

/* Tell, or ask, all units; perfmon_cpu_event() syncs if need be. */
bool perfmon_event(CPUX86State *env, PerfmonEvent event);
void perfmon_cpu_event(CPUX86State *env, PerfmonEvent event);

#ifdef CONFIG_TCG
#define MSR_IA32_DEBUGCTL   0x1d9

/*
 * RDMSR and WRMSR of an MSR that nobody else has, and what belongs here of MSR
 * IA32_MISC_ENABLE.  The former two may raise #GP; what is nobody's is 0, and
 * not written.
 */
uint64_t perfmon_cpu_rdmsr(CPUX86State *env, uint32_t msr, uintptr_t ra);
void perfmon_cpu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val,
                       uintptr_t ra);
uint64_t perfmon_cpu_misc_enable(CPUX86State *env, uint64_t val);

/*
 * RDPMC at a privilege that it is allowed at; may raise #GP, and only then exit
 * to a hypervisor.  False without a PMU.
 */
bool perfmon_cpu_rdpmc(CPUX86State *env, uintptr_t ra);

/*
 * A task switch is committed, by what is at EIP, or by an instruction at @ra:
 * until it is done, that is where faults come from, although they are the next
 * task's.
 */
void perfmon_cpu_task_commit(CPUX86State *env, uintptr_t ra);

/* For units: that place, for @source, by whoever is told of a task switch. */
void perfmon_set_source(CPUX86State *env, PerfmonSource *source, uintptr_t ra);

/*
 * For units: signal a PMI, whose delivery sets LVTPC's mask bit if it @masks;
 * and PerfmonUnit.last_branches, or zeroes.
 */
void perfmon_signal_pmi(CPUX86State *env, bool masks);
void perfmon_last_branches(X86CPU *cpu, PerfmonBranch *last, unsigned n);
#endif

#else

#define perfmon_add_unit(unit)
#define perfmon_cpu_supported(cpu, w)       0
#define perfmon_cpu_expand_features(cpu)
#define perfmon_cpu_realize(cpu, errp)      true
#define perfmon_cpu_unrealize(cpu)
#define perfmon_cpu_cpuid(cpu, leaf, eax, ebx, ecx, edx) \
    (*(eax) = *(ebx) = *(ecx) = *(edx) = 0)
#define perfmon_cpu_rdpmc(env, ra)          false
#define perfmon_cpu_task_commit(env, ra)
#define perfmon_cpu_event(env, event)

#endif

#endif
