/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters under TCG: what retires, the interrupt, and MSRs. */

#include "qemu/osdep.h"
#include "qemu/log.h"
#include "hw/i386/apic.h"
#include "pmu.h"
#include "branch/branch.h"
#include "ibs/ibs.h"
#include "retire/compat.h"
#include "tcg/helper-tcg.h"
#include "trace.h"

/* A RetireClass is a PmuQuantity. */
QEMU_BUILD_BUG_ON(PMU_COND_TAKEN != (int)RETIRE_COND_TAKEN ||
                  PMU_RET != (int)RETIRE_RET || PMU_FAR != (int)RETIRE_FAR ||
                  PMU_INTERRUPTS != (int)RETIRE_NR_CLASSES);

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
    [RETIRE_LOAD_MODIFIED] = PMU_LOAD_MODIFIED,
    [RETIRE_LOAD_OTHER] = PMU_LOAD_OTHER,
    [RETIRE_FILL_L2] = PMU_FILL_L2,
    [RETIRE_FILL_FAR] = PMU_FILL_FAR,
    [RETIRE_STORE_L2] = PMU_STORE_L2,
    [RETIRE_STORE_L3] = PMU_STORE_L3,
    [RETIRE_STORE_REMOTE] = PMU_STORE_REMOTE,
    [RETIRE_STORE_DRAM] = PMU_STORE_DRAM,
    [RETIRE_STORE_MODIFIED] = PMU_STORE_MODIFIED,
    [RETIRE_TLB_LOAD_L2] = PMU_TLB_LOAD_L2,
    [RETIRE_TLB_LOAD_WALK] = PMU_TLB_LOAD_WALK,
    [RETIRE_TLB_STORE_L2] = PMU_TLB_STORE_L2,
    [RETIRE_TLB_STORE_WALK] = PMU_TLB_STORE_WALK,
    [RETIRE_STLB_MISS_LOADS] = PMU_STLB_MISS_LOADS,
    [RETIRE_STLB_MISS_STORES] = PMU_STLB_MISS_STORES,
    [RETIRE_FETCHES] = PMU_FETCHES,
    [RETIRE_FETCH_MISSES] = PMU_FETCH_MISSES,
    [RETIRE_TLB_FETCH_L2] = PMU_TLB_FETCH_L2,
    [RETIRE_TLB_FETCH_WALK] = PMU_TLB_FETCH_WALK,
};

static PmuState *pmu_state(CPUX86State *env)
{
    return env_archcpu(env)->pmu;
}

static RetireWants pmu_retire_wants(CPUX86State *env, RetireRow row)
{
    PmuState *s = pmu_state(env);
    RetireWants wants = RETIRE_WANT_COUNT;
    uint64_t wanted;

    pmu_set_svm(s, &env_archcpu(env)->pmu_config, env->efer & MSR_EFER_SVME,
                env->hflags & HF_GUEST_MASK);
    wanted = pmu_wanted(s, row);
    if (!wanted) {
        /* It may be a PMI of BTS that pmu_retire_sync() takes. */
        return branch_bts_interrupts(&env_archcpu(env)->branch) ?
               RETIRE_WANT_COUNT : 0;
    }
    if (wanted & PMU_MISPREDICTED) {
        wants |= RETIRE_WANT_CLASSES | RETIRE_WANT_PREDICT;
    } else if (pmu_wants_classes(s, row)) {
        wants |= RETIRE_WANT_CLASSES;
    }
    if (wanted & PMU_MEMORY) {
        wants |= RETIRE_WANT_ACCESSES;
    }
    if (pmu_wants_caches(s, row)) {
        wants |= RETIRE_WANT_ACCESSES | RETIRE_WANT_SOURCES;
    }
    if (pmu_wants_data(s, row)) {
        wants |= RETIRE_WANT_SOURCES | RETIRE_WANT_STORY;
    }
    if (pmu_wants_fp(s, row)) {
        wants |= RETIRE_WANT_FP;
    }
    if (pmu_wants_tlb(s, row)) {
        wants |= RETIRE_WANT_TLB;
    }
    if (pmu_wants_fetches(s, row)) {
        wants |= RETIRE_WANT_FETCHES |
                 (wanted & PMU_BIT(PMU_FETCHES) ? RETIRE_WANT_LINES : 0);
    }
    return wants;
}

/*
 * Where a load is tagged comes at random, and there would be code for each
 * number of instructions of a TB; so there is for powers of 2.
 */
static uint32_t tag_distance(const PmuState *s, RetireRow row)
{
    uint32_t insns = pmu_tag_distance(s, row);

    return insns < RETIRE_TB_MAX ? pow2floor(insns + 1) - 1 : insns;
}

static void pmu_retire_distance(CPUX86State *env, RetireRow row,
                                RetireDistance *d)
{
    PmuState *s = pmu_state(env);
    uint32_t branches;
    uint32_t insns = pmu_distances(s, &env_archcpu(env)->pmu_config,
                                   row, &branches);

    d->insns = MIN(d->insns, insns);
    d->branches = MIN(d->branches, branches);
    if (unlikely(pmu_tags(s, row))) {
        d->insns = MIN(d->insns, tag_distance(s, row));
    }
}

static void count_memory(PmuState *s, RetireRow row, const uint64_t *n)
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

static void count_quantity(CPUX86State *env, RetireRow row, PmuQuantity q,
                           uint64_t n)
{
    if (n) {
        pmu_count(pmu_state(env), row, q, n);
    }
}

/* What is counted apart; most often nobody wants it. */
static void __attribute__((noinline))
count_details(CPUX86State *env, RetireRow row, const RetireTotals *n)
{
    for (int i = PMU_COND_TAKEN; n->branches && i < PMU_INTERRUPTS; i++) {
        count_quantity(env, row, i, n->branches[i]);
    }
    if (n->memory) {
        count_memory(pmu_state(env), row, n->memory);
    }
    if (n->fp) {
        pmu_count_fp(pmu_state(env), &env_archcpu(env)->pmu_config,
                     row, n->fp);
    }
}

static void pmu_retire_count(CPUX86State *env, RetireRow row,
                             const RetireTotals *n)
{
    PmuState *s = pmu_state(env);

    count_quantity(env, row, PMU_INSNS, n->insns);
    pmu_tag_pass(s, row, n->insns);
    if (n->branches || n->memory || n->fp) {
        count_details(env, row, n);
    }
}

void pmu_cpu_peek(CPUX86State *env, PmuState *s, const PmuConfig *config)
{
    *s = *pmu_state(env);
    pmu_settle(s, config);
}

static void deliver_pmi(CPUState *cs, run_on_cpu_data masks)
{
    apic_deliver_pmi(X86_CPU(cs)->apic_state, masks.host_int);
}

static void signal_pmi(CPUX86State *env)
{
    X86CPU *cpu = env_archcpu(env);
    CPUState *cs = CPU(cpu);
    run_on_cpu_data masks;

    trace_pmu_pmi(cs->cpu_index, env->eip, cpu->pmu->global_status);
    branch_cpu_pmi(env);
    if (!cpu->apic_state) {
        return;
    }
    masks = RUN_ON_CPU_HOST_INT(pmu_masks_lvtpc(&cpu->pmu_config));
    retire_deliver(cs, deliver_pmi, masks);
}

static void store_records(CPUX86State *env, const RetireStory *story)
{
    X86CPU *cpu = env_archcpu(env);
    uint64_t due = pmu_pebs_due(cpu->pmu, &cpu->pmu_config);

    if (likely(due)) {
        /* Of MWAIT, VMRUN, WRMSR that starts counters, nobody tells where. */
        if (story && (story->ip || story->next)) {
            pebs_cpu_store(env, story, due);
        } else {
            pmu_pebs_forget(cpu->pmu, &cpu->pmu_config);
        }
    }
    if (unlikely(cpu->branch_held.valid)) {
        branch_cpu_release(env);
    }
}

/* Whether what is wanted may have changed */
static bool pmu_retire_sync(CPUX86State *env, const RetireStory *story)
{
    X86CPU *cpu = env_archcpu(env);
    bool pmi;

    if (unlikely(cpu->pmu->pebs_enable)) {
        store_records(env, story);
    }
    pmi = pmu_sync(cpu->pmu, &cpu->pmu_config);
    if (pmi) {
        signal_pmi(env);
    }
    return pmi || cpu->pmu_config.netburst;
}

static bool pmu_retire_observe(CPUX86State *env, const RetireStory *story)
{
    RetireClass class = story->is_far ? RETIRE_FAR :
                        retire_class(story->branch, story->taken);

    if (!story->part) {
        count_quantity(env, story->row, PMU_INSNS, 1);
    }
    if (class != RETIRE_NO_BRANCH) {
        count_quantity(env, story->row, (PmuQuantity)class, 1);
        count_quantity(env, story->row,
                       (PmuQuantity)(class + RETIRE_MISPREDICTED),
                       story->mispredicted);
    }
    if (unlikely(pmu_tags(pmu_state(env), story->row))) {
        pebs_cpu_tag(env, story);
    }
    return pmu_retire_sync(env, story);
}

const RetireObserver pmu_observer = {
    .wants = pmu_retire_wants,
    .distance = pmu_retire_distance,
    .count = pmu_retire_count,
    .observe = pmu_retire_observe,
};

void pmu_cpu_bts(CPUX86State *env)
{
    retire_cpu_settle(env);
    pmu_retire_sync(env, NULL);
    cpu_sync_retire(env);
    /* Or else what is not wanted any more would be in TBs that follow. */
    retire_set_budget(env, 0);
}

void pmu_cpu_interrupt(CPUX86State *env)
{
    if (pmu_wanted(pmu_state(env), retire_row(env)) &
        PMU_BIT(PMU_INTERRUPTS)) {
        pmu_count(pmu_state(env), retire_row(env), PMU_INTERRUPTS, 1);
        pmu_retire_sync(env, NULL);
        cpu_sync_retire(env);
    }
}

/*
 * The instruction that has begun to count something here, where nothing has
 * @counted before, counts as those that follow it do.
 */
static void count_from_here(CPUX86State *env, bool counted)
{
    if (!counted && pmu_wanted(pmu_state(env), RETIRE_OS)) {
        pmu_retire_observe(env, &(RetireStory) { .row = RETIRE_OS });
        cpu_sync_retire(env);
    }
}

/* VIA C3's counter 0 */
static uint64_t read_tsc(CPUX86State *env)
{
    return extract64(cpu_get_tsc(env) + env->tsc_offset, 0, PMU_TSC_WIDTH);
}

uint64_t pmu_cpu_rdmsr(CPUX86State *env, uint32_t msr, uintptr_t ra)
{
    X86CPU *cpu = env_archcpu(env);
    bool counted = pmu_wanted(cpu->pmu, RETIRE_OS);
    uint64_t val = 0;

    if (cpu->enable_pmu && !ibs_cpu_rdmsr(env, msr, &val, ra)) {
        retire_cpu_settle(env);
        if (pmu_rdmsr(cpu->pmu, &cpu->pmu_config, msr, &val) == PMU_MSR_GP) {
            raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
        }
        if (msr == MSR_P6_PERFCTR0 && pmu_has_tsc(&cpu->pmu_config)) {
            val = read_tsc(env);
        }
        count_from_here(env, counted);
    }
    return val;
}

void pmu_cpu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val, uintptr_t ra)
{
    X86CPU *cpu = env_archcpu(env);
    PmuState *s = cpu->pmu;
    bool counted = pmu_wanted(s, RETIRE_OS), asked = pmu_asks(&cpu->pmu_config);
    uint32_t event;

    if (!cpu->enable_pmu || ibs_cpu_wrmsr(env, msr, val, ra)) {
        return;
    }
    retire_cpu_settle(env);
    switch (pmu_wrmsr(s, &cpu->pmu_config, msr, val)) {
    case PMU_MSR_GP:
        raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
    case PMU_MSR_OTHER:
        return;
    case PMU_MSR_OK:
        break;
    }
    trace_pmu_wrmsr(CPU(cpu)->cpu_index, msr, val);
    if (!asked && pmu_asks(&cpu->pmu_config)) {
        signal_pmi(env);
    }
    while (pmu_take_unknown(s, &event)) {
        trace_pmu_unknown_event(CPU(cpu)->cpu_index, event & 0xfff,
                                event >> 16);
        qemu_log_mask(LOG_UNIMP, "PMU: event %03x, unit mask %02x is not "
                      "implemented and counts 0\n", event & 0xfff,
                      event >> 16);
    }
    count_from_here(env, counted);
    cpu_sync_retire(env);
}

uint64_t pmu_cpu_misc_enable(CPUX86State *env, uint64_t val)
{
    X86CPU *cpu = env_archcpu(env);

    if (!cpu->enable_pmu) {
        return val;
    }
    val &= ~(uint64_t)PMU_MISC_ENABLE;
    return val | (pmu_misc_enable(&cpu->pmu_config) &
                  (cpu->branch_config.ds ? ~(uint64_t)PMU_MISC_NO_BTS :
                   UINT64_MAX));
}

bool pmu_cpu_rdpmc(CPUX86State *env, uintptr_t ra)
{
    X86CPU *cpu = env_archcpu(env);
    uint64_t val;

    if (!cpu->enable_pmu) {
        return false;
    }
    retire_cpu_settle(env);
    if (!pmu_rdpmc(cpu->pmu, &cpu->pmu_config, env->regs[R_ECX], &val)) {
        raise_exception_ra(env, EXCP0D_GPF, ra);
    }
    if (!env->regs[R_ECX] && pmu_has_tsc(&cpu->pmu_config)) {
        val = read_tsc(env);
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
        cpu->ibs_cs_base = env->smbase;
        branch_cpu_smi(env, cpu->pmu->debugctl & PMU_FREEZE_WHILE_SMM);
        pmu_smi(cpu->pmu, &cpu->pmu_config);
    }
}

void pmu_cpu_rsm(CPUX86State *env)
{
    X86CPU *cpu = env_archcpu(env);

    if (cpu->enable_pmu) {
        retire_cpu_settle(env);
        pmu_rsm(cpu->pmu, &cpu->pmu_config);
        branch_cpu_rsm(env);
    }
}
