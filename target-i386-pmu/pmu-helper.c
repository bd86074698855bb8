/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters under TCG: what retires, the interrupt, and MSRs. */

#include "qemu/osdep.h"
#include "qemu/log.h"
#include "pmu.h"
#include "retire/compat.h"
#include "tcg/helper-tcg.h"
#include "trace.h"

/* A RetireClass is a PmuQuantity. */
QEMU_BUILD_BUG_ON(PMU_COND_TAKEN != (int)RETIRE_COND_TAKEN ||
                  PMU_RET != (int)RETIRE_RET || PMU_FAR != (int)RETIRE_FAR ||
                  PMU_INTERRUPTS != (int)RETIRE_NR_CLASSES);

/*
 * So is a RetireMemory behind PMU_LOAD_L1; but RETIRE_LOADS is all of
 * PMU_LOADS.
 */
QEMU_BUILD_BUG_ON(PMU_LOAD_OTHER != PMU_LOAD_L1 + (int)RETIRE_LOAD_OTHER ||
                  PMU_SPLIT_LOADS != PMU_LOAD_L1 + (int)RETIRE_SPLIT_LOADS ||
                  PMU_STORE_L2 != PMU_LOAD_L1 + (int)RETIRE_STORE_L2 ||
                  PMU_NR_COUNTED != PMU_LOAD_L1 + (int)RETIRE_NR_MEMORY);

static PmuState *pmu_state(CPUX86State *env)
{
    return &env_archcpu(env)->pmu;
}

static RetireWants pmu_retire_wants(CPUX86State *env, RetireRow row)
{
    const PerfmonState *shared = &env_archcpu(env)->perfmon;
    PmuState *s = pmu_state(env);

    pmu_set_svm(s, &env_archcpu(env)->pmu_config, env->efer & MSR_EFER_SVME,
                env->hflags & HF_GUEST_MASK);
    /* It may be a PMI of another unit that pmu_retire_sync() takes. */
    return pmu_wants(s, row) ?: shared->bts_interrupts ||
                                shared->pt_interrupts ? RETIRE_WANT_COUNT : 0;
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
            pmu_count(s, row, PMU_LOAD_L1 + i, count);
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
static void count_details(CPUX86State *env, RetireRow row,
                          const RetireTotals *n)
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

static void signal_pmi(CPUX86State *env)
{
    X86CPU *cpu = env_archcpu(env);

    trace_x86_pmu_pmi(CPU(cpu)->cpu_index, env->eip, cpu->pmu.global_status);
    perfmon_signal_pmi(env, pmu_masks_lvtpc(&cpu->pmu_config));
}

static void store_records(CPUX86State *env, const RetireStory *story)
{
    X86CPU *cpu = env_archcpu(env);
    uint64_t due = pmu_pebs_due(&cpu->pmu, &cpu->pmu_config);

    if (likely(due)) {
        /* Of MWAIT, VMRUN, WRMSR that starts counters, nobody tells where. */
        if (story && (story->ip || story->next)) {
            pebs_cpu_store(env, story, due);
        } else {
            pmu_pebs_forget(&cpu->pmu, &cpu->pmu_config);
        }
    }
    if (unlikely(cpu->perfmon.held)) {
        perfmon_event(env, PERFMON_RELEASE);
    }
}

/* Whether what is wanted may have changed */
static bool pmu_retire_sync(CPUX86State *env, const RetireStory *story)
{
    X86CPU *cpu = env_archcpu(env);
    bool pmi;

    if (unlikely(cpu->pmu.pebs_enable)) {
        store_records(env, story);
    }
    pmi = pmu_sync(&cpu->pmu, &cpu->pmu_config);
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

static void pmu_retire_look(CPUX86State *env)
{
    pmu_retire_sync(env, NULL);
}

const RetireObserver pmu_observer = {
    .wants = pmu_retire_wants,
    .distance = pmu_retire_distance,
    .count = pmu_retire_count,
    .observe = pmu_retire_observe,
    .look = pmu_retire_look,
};

/*
 * The instruction that has begun to count something here, where nothing has
 * @counted before, counts as those that follow it do.
 */
static bool count_from_here(CPUX86State *env, bool counted)
{
    if (counted || !pmu_wanted(pmu_state(env), RETIRE_OS)) {
        return false;
    }
    pmu_retire_observe(env, &(RetireStory) { .row = RETIRE_OS });
    return true;
}

/* VIA C3's counter 0 */
static uint64_t read_tsc(CPUX86State *env)
{
    return extract64(cpu_get_tsc(env) + env->tsc_offset, 0, PMU_TSC_WIDTH);
}

static PmuAccess read_msr(CPUX86State *env, uint32_t msr, uint64_t *val)
{
    X86CPU *cpu = env_archcpu(env);
    bool counted = pmu_wanted(&cpu->pmu, RETIRE_OS);
    PmuAccess access = pmu_rdmsr(&cpu->pmu, &cpu->pmu_config, msr, val);

    if (msr == MSR_P6_PERFCTR0 && pmu_has_tsc(&cpu->pmu_config)) {
        *val = read_tsc(env);
    }
    return count_from_here(env, counted) ? PMU_MSR_SYNC : access;
}

static PmuAccess write_msr(CPUX86State *env, uint32_t msr, uint64_t val)
{
    X86CPU *cpu = env_archcpu(env);
    PmuState *s = &cpu->pmu;
    bool counted = pmu_wanted(s, RETIRE_OS), asked = pmu_asks(&cpu->pmu_config);
    PmuAccess access;
    uint32_t event;

    access = pmu_wrmsr(s, &cpu->pmu_config, msr, val);
    if (access != PMU_MSR_OK) {
        return access;
    }
    trace_x86_pmu_wrmsr(CPU(cpu)->cpu_index, msr, val);
    if (!asked && pmu_asks(&cpu->pmu_config)) {
        signal_pmi(env);
    }
    while (pmu_take_unknown(s, &event)) {
        trace_x86_pmu_unknown_event(CPU(cpu)->cpu_index, event & 0xfff,
                                event >> 16);
        qemu_log_mask(LOG_UNIMP | LOG_GUEST_ERROR, "PMU: event %03x, unit mask "
                      "%02x is not counted\n", event & 0xfff, event >> 16);
    }
    count_from_here(env, counted);
    return PMU_MSR_OK;
}

PmuAccess pmu_cpu_msr(CPUX86State *env, uint32_t msr, uint64_t *val,
                      bool write)
{
    return !env_archcpu(env)->pmu_config.flavour ? PMU_MSR_OTHER :
           write ? write_msr(env, msr, *val) : read_msr(env, msr, val);
}

PmuAccess pmu_cpu_rdpmc(CPUX86State *env, uint64_t *val)
{
    X86CPU *cpu = env_archcpu(env);

    if (!cpu->pmu_config.flavour) {
        return PMU_MSR_OTHER;
    }
    if (!pmu_rdpmc(&cpu->pmu, &cpu->pmu_config, env->regs[R_ECX], val)) {
        return PMU_MSR_GP;
    }
    if (!env->regs[R_ECX] && pmu_has_tsc(&cpu->pmu_config)) {
        *val = read_tsc(env);
    }
    return PMU_MSR_OK;
}

bool pmu_cpu_event(CPUX86State *env, PerfmonEvent event)
{
    X86CPU *cpu = env_archcpu(env);
    PmuState *s = &cpu->pmu;
    RetireRow row = retire_row(env);

    if (!cpu->pmu_config.flavour) {
        return false;
    }
    switch (event) {
    case PERFMON_RESET:
        pmu_reset(s, &cpu->pmu_config);
        return true;
    case PERFMON_PRE_LOAD:
        pmu_cpu_pre_load(cpu);
        return false;
    case PERFMON_UNREALIZE:
        g_clear_pointer(&cpu->pmu_config.netburst, g_free);
        return false;
    case PERFMON_SMI:
        pmu_smi(s, &cpu->pmu_config);
        return false;
    case PERFMON_RSM:
        pmu_rsm(s, &cpu->pmu_config);
        return false;
    case PERFMON_INTERRUPT:
        if (!(pmu_wanted(s, row) & PMU_BIT(PMU_INTERRUPTS))) {
            return false;
        }
        pmu_count(s, row, PMU_INTERRUPTS, 1);
        pmu_retire_sync(env, NULL);
        return true;
    case PERFMON_ASKS:
        return pmu_asks(&cpu->pmu_config);
    case PERFMON_PEBS_NEAR:
    case PERFMON_PEBS_NEAR_USR:
        return pmu_pebs_near(s, event - PERFMON_PEBS_NEAR);
    default:
        return false;
    }
}
