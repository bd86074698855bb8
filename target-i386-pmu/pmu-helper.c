/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters under TCG: what retires, the interrupt, and MSRs. */

#include "qemu/osdep.h"
#include "qemu/log.h"
#include "qemu/main-loop.h"
#include "hw/i386/apic.h"
#include "pmu.h"
#include "retire/compat.h"
#include "tcg/helper-tcg.h"
#include "trace.h"

/* The two have the same order. */
QEMU_BUILD_BUG_ON(PMU_OS != (int)RETIRE_OS || PMU_USR != (int)RETIRE_USR);
QEMU_BUILD_BUG_ON(PMU_FAR - PMU_COND_TAKEN != (int)RETIRE_FAR);
QEMU_BUILD_BUG_ON(PMU_MISP_RET - PMU_COND_TAKEN != (int)RETIRE_MISP_RET);

/* What translated code tells apart, where PMU_LOADS are one (RETIRE_LOADS). */
static const PmuQuantity memory_quantities[] = {
    [RETIRE_LOADS] = PMU_LOAD_L1,
    [RETIRE_STORES] = PMU_STORES,
    [RETIRE_LOCKED] = PMU_LOCKED,
    [RETIRE_SPLIT_LOADS] = PMU_SPLIT_LOADS,
    [RETIRE_SPLIT_STORES] = PMU_SPLIT_STORES,
    [RETIRE_LOAD_L2] = PMU_LOAD_L2,
    [RETIRE_LOAD_L3] = PMU_LOAD_L3,
    [RETIRE_LOAD_REMOTE] = PMU_LOAD_REMOTE,
    [RETIRE_LOAD_DRAM] = PMU_LOAD_DRAM,
    [RETIRE_LOAD_OTHER] = PMU_LOAD_OTHER,
    [RETIRE_FILL_L2] = PMU_FILL_L2,
    [RETIRE_FILL_FAR] = PMU_FILL_FAR,
};

#define PMU_BRANCHES    (PMU_BIT(PMU_MISP_RET + 1) - PMU_BIT(PMU_COND_TAKEN))

static RetireDetail pmu_counters_wanted(CPUX86State *env, RetireRow row,
                                        RetireAccesses *accesses)
{
    PmuState *s = &env->pmu;
    const PmuConfig *config = &env_archcpu(env)->pmu_config;
    uint32_t wanted;

    pmu_set_svm(s, config, env->efer & MSR_EFER_SVME,
                env->hflags & HF_GUEST_MASK);
    wanted = pmu_wanted(s, (PmuRow)row);
    *accesses = pmu_wants_caches(s, (PmuRow)row) ? RETIRE_EACH_SOURCE :
                wanted & PMU_MEMORY ? RETIRE_ALL_ACCESSES : RETIRE_NO_ACCESSES;
    if (wanted & PMU_MISPREDICTED) {
        return RETIRE_PREDICTIONS;
    } else if (pmu_wants_classes(s, (PmuRow)row)) {
        return RETIRE_EACH_CLASS;
    } else if (wanted & PMU_BRANCHES) {
        return RETIRE_ALL_BRANCHES;
    }
    return wanted ? RETIRE_NO_BRANCHES : RETIRE_NOTHING;
}

static uint32_t pmu_counters_distance(CPUX86State *env, RetireRow row,
                                      uint32_t *branches)
{
    uint32_t due;

    return pmu_distances(&env->pmu, &env_archcpu(env)->pmu_config, (PmuRow)row,
                         branches, &due);
}

static void count_memory(PmuState *s, PmuRow row, const uint64_t *n)
{
    uint64_t missed = 0;

    for (int i = RETIRE_LOAD_L2; i <= RETIRE_LOAD_OTHER; i++) {
        missed += n[i];
    }
    for (int i = 0; i < RETIRE_NR_MEMORY; i++) {
        uint64_t count = i == RETIRE_LOADS ? n[i] - missed : n[i];

        if (count) {
            pmu_count(s, row, memory_quantities[i], count);
        }
    }
}

static void pmu_counters_count(CPUX86State *env, RetireRow row, uint32_t insns,
                               const uint64_t *branches,
                               const uint64_t *memory)
{
    PmuState *s = &env->pmu;

    if (insns) {
        pmu_count(s, (PmuRow)row, PMU_INSNS, insns);
    }
    if (pmu_wanted(s, (PmuRow)row) & PMU_BRANCHES) {
        for (int i = 0; i < RETIRE_NR_CLASSES; i++) {
            if (branches[i]) {
                pmu_count(s, (PmuRow)row, PMU_COND_TAKEN + i, branches[i]);
            }
        }
    }
    if (memory) {
        count_memory(s, (PmuRow)row, memory);
    }
}

void pmu_cpu_peek(CPUX86State *env, PmuState *s)
{
    *s = env->pmu;
    pmu_settle(s, &env_archcpu(env)->pmu_config);
}

static void deliver_pmi(CPUState *cs, run_on_cpu_data masks)
{
    apic_deliver_pmi(X86_CPU(cs)->apic_state, masks.host_int);
}

static void pmu_counters_sync(CPUX86State *env)
{
    X86CPU *cpu = env_archcpu(env);
    CPUState *cs = CPU(cpu);
    run_on_cpu_data masks;

    if (!pmu_sync(&env->pmu, &cpu->pmu_config)) {
        return;
    }
    trace_pmu_pmi(cs->cpu_index, env->eip, env->pmu.global_status);
    if (!cpu->apic_state) {
        return;
    }
    masks = RUN_ON_CPU_HOST_INT(pmu_masks_lvtpc(&cpu->pmu_config));
    if (icount_enabled()) {
        /* This may be the middle of a block; it is done behind it. */
        async_run_on_cpu(cs, deliver_pmi, masks);
    } else {
        BQL_LOCK_GUARD();
        deliver_pmi(cs, masks);
    }
}

const RetireCounters pmu_retire_counters = {
    .wanted = pmu_counters_wanted,
    .distance = pmu_counters_distance,
    .count = pmu_counters_count,
    .sync = pmu_counters_sync,
};

void pmu_cpu_interrupt(CPUX86State *env)
{
    if (pmu_wanted(&env->pmu, (PmuRow)retire_row(env)) &
        PMU_BIT(PMU_INTERRUPTS)) {
        pmu_count(&env->pmu, (PmuRow)retire_row(env), PMU_INTERRUPTS, 1);
        pmu_counters_sync(env);
        cpu_sync_retire(env);
    }
}

uint64_t pmu_cpu_rdmsr(CPUX86State *env, uint32_t msr, uintptr_t ra)
{
    X86CPU *cpu = env_archcpu(env);
    uint64_t val = 0;

    if (cpu->enable_pmu) {
        retire_cpu_count(env);
        if (pmu_rdmsr(&env->pmu, &cpu->pmu_config, msr, &val) == PMU_MSR_GP) {
            raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
        }
    }
    return val;
}

void pmu_cpu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val, uintptr_t ra)
{
    X86CPU *cpu = env_archcpu(env);
    PmuState *s = &env->pmu;
    bool counted = pmu_wanted(s, PMU_OS);
    uint32_t event;

    if (!cpu->enable_pmu) {
        return;
    }
    retire_cpu_count(env);
    switch (pmu_wrmsr(s, &cpu->pmu_config, msr, val)) {
    case PMU_MSR_GP:
        raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
    case PMU_MSR_OTHER:
        return;
    case PMU_MSR_OK:
        break;
    }
    trace_pmu_wrmsr(CPU(cpu)->cpu_index, msr, val);
    while (pmu_take_unknown(s, &event)) {
        trace_pmu_unknown_event(CPU(cpu)->cpu_index, event & 0xfff,
                                event >> 16);
        qemu_log_mask(LOG_UNIMP, "PMU: event %03x, unit mask %02x is not "
                      "implemented and counts 0\n", event & 0xfff,
                      event >> 16);
    }
    cpu_sync_retire(env);
    /* The instruction counts as those that follow it do. */
    if (!counted && pmu_wanted(s, PMU_OS)) {
        retire_cpu_one(env, RETIRE_OS, false);
    }
}

uint64_t pmu_cpu_misc_enable(CPUX86State *env, uint64_t val)
{
    X86CPU *cpu = env_archcpu(env);

    if (!cpu->enable_pmu) {
        return val;
    }
    return (val & ~(uint64_t)PMU_MISC_ENABLE) |
           pmu_misc_enable(&cpu->pmu_config);
}

bool pmu_cpu_rdpmc(CPUX86State *env, uintptr_t ra)
{
    X86CPU *cpu = env_archcpu(env);
    uint64_t val;

    if (!cpu->enable_pmu) {
        return false;
    }
    retire_cpu_count(env);
    if (!pmu_rdpmc(&env->pmu, &cpu->pmu_config, env->regs[R_ECX], &val)) {
        raise_exception_ra(env, EXCP0D_GPF, ra);
    }
    cpu_svm_check_intercept_param(env, SVM_EXIT_RDPMC, 0, ra);
    env->regs[R_EAX] = (uint32_t)val;
    env->regs[R_EDX] = val >> 32;
    return true;
}

void pmu_cpu_smi(CPUX86State *env)
{
    X86CPU *cpu = env_archcpu(env);

    if (cpu->enable_pmu) {
        pmu_smi(&env->pmu, &cpu->pmu_config);
    }
}

void pmu_cpu_rsm(CPUX86State *env)
{
    X86CPU *cpu = env_archcpu(env);

    if (cpu->enable_pmu) {
        retire_cpu_count(env);
        pmu_rsm(&env->pmu, &cpu->pmu_config);
    }
}
