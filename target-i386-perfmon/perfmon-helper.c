/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance monitoring under TCG: MSRs, events of the CPU, the interrupt. */

#include "qemu/osdep.h"
#include "hw/i386/apic.h"
#include "perfmon.h"
#include "retire/compat.h"
#include "tcg/helper-tcg.h"
#include "tcg/insn-start-words.h"

#define DEBUGCTL_LBR        (1u << 0)
#define DEBUGCTL_BTF        (1u << 1)
#define MSR_IA32_DS_AREA    0x600

static PmuAccess access_ds_area(CPUX86State *env, uint64_t *val, bool write)
{
    X86CPU *cpu = env_archcpu(env);

    if (!(env->features[FEAT_1_EDX] & CPUID_DTS)) {
        return cpu->enable_pmu ? PMU_MSR_GP : PMU_MSR_OTHER;
    }
    if (!write) {
        *val = cpu->perfmon.ds_area;
    } else if (perfmon_ds_valid(cpu, *val)) {
        cpu->perfmon.ds_area = *val;
    } else {
        return PMU_MSR_GP;
    }
    return PMU_MSR_OK;
}

/* What has retired counts before; what is nobody's alone is not looked at. */
static PmuAccess access_msr(CPUX86State *env, uint32_t msr, uint64_t *val,
                            bool write)
{
    PmuAccess access = PMU_MSR_OTHER;

    if (msr == MSR_IA32_DS_AREA) {
        return access_ds_area(env, val, write);
    }
    if (env_archcpu(env)->enable_pmu) {
        retire_cpu_settle(env);
    }
    PERFMON_FOREACH(u, msr) {
        access = access ?: (*u)->msr(env, msr, val, write);
    }
    return access;
}

uint64_t perfmon_cpu_rdmsr(CPUX86State *env, uint32_t msr, uintptr_t ra)
{
    uint64_t val = 0;
    PmuAccess access = access_msr(env, msr, &val, false);

    if (access == PMU_MSR_GP) {
        raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
    }
    if (access == PMU_MSR_SYNC) {
        cpu_sync_retire(env);
    }
    return msr == MSR_IA32_DEBUGCTL ?
           val | *env_archcpu(env)->perfmon.debugctl : val;
}

/*
 * Of bits that are a unit's alone, @access says what it has found.  LBR and
 * BTF, which all processors have, are ignored where no unit has them.
 */
static PmuAccess write_debugctl(PerfmonState *s, PmuAccess access,
                                uint64_t val)
{
    if (access == PMU_MSR_OTHER && s->debugctl_mask) {
        access = val & ~(s->debugctl_mask | DEBUGCTL_LBR | DEBUGCTL_BTF) ?
                 PMU_MSR_GP : PMU_MSR_OK;
    }
    if (access == PMU_MSR_OK) {
        *s->debugctl = val & s->debugctl_mask;
    }
    return access;
}

void perfmon_cpu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val,
                       uintptr_t ra)
{
    PmuAccess access = access_msr(env, msr, &val, true);

    if (msr == MSR_IA32_DEBUGCTL) {
        access = write_debugctl(&env_archcpu(env)->perfmon, access, val);
    }
    if (access == PMU_MSR_GP) {
        raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
    }
    if (access != PMU_MSR_OTHER) {
        cpu_sync_retire(env);
    }
}

uint64_t perfmon_cpu_misc_enable(CPUX86State *env, uint64_t val)
{
    X86CPU *cpu = env_archcpu(env);

    PERFMON_FOREACH(u, misc_enable) {
        val = cpu->enable_pmu ? (*u)->misc_enable(cpu, val) : val;
    }
    return val;
}

bool perfmon_cpu_rdpmc(CPUX86State *env, uintptr_t ra)
{
    PmuAccess access = PMU_MSR_OTHER;
    uint64_t val;

    retire_cpu_settle(env);
    PERFMON_FOREACH(u, rdpmc) {
        access = access ?: (*u)->rdpmc(env, &val);
    }
    if (access == PMU_MSR_OTHER) {
        return false;
    }
    if (access == PMU_MSR_GP) {
        raise_exception_ra(env, EXCP0D_GPF, ra);
    }
    cpu_svm_check_intercept_param(env, SVM_EXIT_RDPMC, 0, ra);
    env->regs[R_EAX] = (uint32_t)val;
    env->regs[R_EDX] = val >> 32;
    return true;
}

/* EIP of the instruction that has called a helper; not in 64-bit mode */
static uint32_t ip_of_caller(CPUX86State *env, uintptr_t ra)
{
    CPUState *cs = env_cpu(env);
    uint64_t data[INSN_START_WORDS];
    uint32_t cs_base = env->segs[R_CS].base;

    if (!cpu_unwind_state_data(cs, ra, data)) {
        return env->eip;
    }
    /* See x86_restore_state_to_opc(). */
    if (tcg_cflags_has(cs, CF_PCREL)) {
        data[0] |= (env->eip + cs_base) & TARGET_PAGE_MASK;
    }
    return data[0] - cs_base;
}

void perfmon_set_source(CPUX86State *env, PerfmonSource *source, uintptr_t ra)
{
    /* It may be how a fault behind another one is delivered. */
    if (!source->valid) {
        source->ip = ra ? ip_of_caller(env, ra) : env->eip;
        source->os = retire_row(env) == RETIRE_OS;
        source->valid = true;
    }
    source->is_insn = ra;
}

void perfmon_cpu_task_commit(CPUX86State *env, uintptr_t ra)
{
    PERFMON_FOREACH(u, task_commit) {
        (*u)->task_commit(env, ra);
    }
}

static void deliver_pmi(CPUState *cs, run_on_cpu_data masks)
{
    apic_deliver_pmi(X86_CPU(cs)->apic_state, masks.host_int);
}

void perfmon_signal_pmi(CPUX86State *env, bool masks)
{
    perfmon_event(env, PERFMON_PMI);
    if (env_archcpu(env)->apic_state) {
        retire_deliver(env_cpu(env), deliver_pmi, RUN_ON_CPU_HOST_INT(masks));
    }
}

void perfmon_last_branches(X86CPU *cpu, PerfmonBranch *last, unsigned n)
{
    memset(last, 0, n * sizeof(*last));
    PERFMON_FOREACH(u, last_branches) {
        (*u)->last_branches(cpu, last, n);
    }
}
