/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Precise event based sampling under TCG: what a record has of the CPU. */

#include "qemu/osdep.h"
#include "qemu/log.h"
#include "pmu.h"
#include "perfmon/ds-mem.h"
#include "engine/pebs.h"
#include "tcg/helper-tcg.h"
#include "trace.h"

QEMU_BUILD_BUG_ON(PEBS_ACCESSES != RETIRE_STORY_ACCESSES);

static uint64_t get_tsc(CPUX86State *env)
{
    CPUState *cs = env_cpu(env);
    bool can_do_io = cs->neg.can_do_io;
    uint64_t tsc;

    /* With icount, this is behind the last instruction of a TB. */
    cs->neg.can_do_io = true;
    tsc = cpu_get_tsc(env) + env->tsc_offset;
    cs->neg.can_do_io = can_do_io;
    return tsc;
}

/* A RetireSource is a PmuQuantity, but for these two. */
static PmuQuantity source_of(const RetireAccess *a)
{
    return a->source == RETIRE_SOURCE_L1 ? PMU_LOAD_L1 :
           a->modified ? PMU_LOAD_MODIFIED :
           a->source == RETIRE_SOURCE_OTHER ? PMU_LOAD_OTHER :
           (PmuQuantity)(PMU_LOAD_L2 + a->source);
}

static void take_accesses(CPUX86State *env, const RetireStory *story,
                          PebsSample *sample)
{
    const uint32_t *latency = env_archcpu(env)->retire_config.latency;

    sample->nr_accesses = MIN(story->nr_accesses, PEBS_ACCESSES);
    for (int i = 0; i < sample->nr_accesses; i++) {
        const RetireAccess *a = &story->access[i];

        sample->access[i] = (PebsAccess) {
            .addr = a->addr,
            .source = source_of(a),
            .latency = a->load || a->source == RETIRE_SOURCE_L1 ? a->clocks :
                       latency[a->source],
            .load = a->load,
            .store = a->store,
            .locked = a->locked,
            .split = a->split,
            .stlb_miss = a->tlb == RETIRE_TLB_WALK,
        };
    }
}

static void take_sample(CPUX86State *env, const RetireStory *story,
                        PebsSample *sample)
{
    sample->ip = story->ip;
    sample->next = env->eip;
    sample->rflags = cpu_compute_eflags(env);
    sample->tsc = get_tsc(env);
    sample->nr_accesses = 0;
    if (story->nr_accesses) {
        take_accesses(env, story, sample);
    }
}

static void take_xmm(CPUX86State *env, PebsSample *sample)
{
    for (int i = 0; i < ARRAY_SIZE(sample->xmm); i++) {
        for (int j = 0; j < 2; j++) {
            sample->xmm[i][j] = i < CPU_NB_REGS ?
                                env->xmm_regs[i].ZMM_Q(j) : 0;
        }
    }
}

void pebs_cpu_tag(CPUX86State *env, const RetireStory *story)
{
    PmuState *s = &env_archcpu(env)->pmu;
    uint32_t latency = 0;

    if (pmu_tag_distance(s, story->row)) {
        pmu_tag_pass(s, story->row, !story->part);
        return;
    }
    for (int i = 0; i < MIN(story->nr_accesses, RETIRE_STORY_ACCESSES); i++) {
        if (story->access[i].load) {
            latency = story->access[i].clocks ?: PMU_L1_LATENCY;
            break;
        }
    }
    pmu_tag(s, story->row, latency);
}

void pebs_cpu_store(CPUX86State *env, const RetireStory *story, uint64_t due)
{
    X86CPU *cpu = env_archcpu(env);
    PmuState *s = &cpu->pmu;
    uint64_t groups = 0, own[16] PEBS_UNINITIALIZED;
    PebsSample sample PEBS_UNINITIALIZED;
    DsSpace space = ds_space(env);

    take_sample(env, story, &sample);
    for (int i = 0; i < ARRAY_SIZE(own); i++) {
        own[i] = i < CPU_NB_REGS ? env->regs[i] : 0;
    }
    sample.gpr = own;
    for (; due; due &= due - 1) {
        unsigned n = pmu_of_status_bit(due);
        uint64_t more = pmu_pebs_groups(s, &cpu->pmu_config, n) & ~groups;
        PebsResult result;

        if (more & PEBS_GROUP_XMM) {
            take_xmm(env, &sample);
        }
        if (more & PEBS_GROUP_LBR) {
            perfmon_last_branches(cpu, sample.lbr, PEBS_NR_LBR);
        }
        groups |= more;
        result = pebs_store(s, &cpu->pmu_config, n, cpu->perfmon.ds_area,
                            &sample, ds_host, &space);
        trace_x86_pmu_pebs(CPU(cpu)->cpu_index, n, sample.ip, result);
        if (result == PEBS_NO_AREA || result == PEBS_NO_BUFFER) {
            qemu_log_mask(LOG_GUEST_ERROR, "PEBS: the %s is not writable "
                          "memory (DS area at %016" PRIx64 ")\n",
                          result == PEBS_NO_AREA ? "DS area" : "buffer",
                          cpu->perfmon.ds_area);
        }
    }
}
