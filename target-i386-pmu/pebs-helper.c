/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Precise event based sampling under TCG: what a record has of the CPU. */

#include "qemu/osdep.h"
#include "qemu/log.h"
#include "pmu.h"
#include "branch/branch.h"
#include "branch/ds-mem.h"
#include "engine/pebs.h"
#include "tcg/helper-tcg.h"
#include "trace.h"

static uint64_t get_tsc(CPUX86State *env)
{
    CPUState *cs = env_cpu(env);
    bool can_do_io = cs->neg.can_do_io;
    uint64_t tsc;

    /* With icount, this is behind the last instruction of a block. */
    cs->neg.can_do_io = true;
    tsc = cpu_get_tsc(env) + env->tsc_offset;
    cs->neg.can_do_io = can_do_io;
    return tsc;
}

static void take_sample(CPUX86State *env, const RetireStory *story,
                        PebsSample *sample)
{
    sample->ip = story->ip;
    sample->next = env->eip;
    sample->rflags = cpu_compute_eflags(env);
    sample->tsc = get_tsc(env);
    for (int i = 0; i < ARRAY_SIZE(sample->gpr); i++) {
        sample->gpr[i] = i < CPU_NB_REGS ? env->regs[i] : 0;
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

static void take_lbr(X86CPU *cpu, PebsSample *sample)
{
    for (int i = 0; i < PEBS_NR_LBR; i++) {
        BranchEntry e;

        if (!branch_entry(&cpu->branch, &cpu->branch_config, &cpu->branch_ring,
                          i, &e)) {
            e = (BranchEntry) { };
        }
        sample->lbr[i].from = e.from;
        sample->lbr[i].to = e.to;
        sample->lbr[i].info = e.info;
    }
}

void pebs_cpu_store(CPUX86State *env, const RetireStory *story)
{
    X86CPU *cpu = env_archcpu(env);
    PmuState *s = &cpu->pmu;
    /* Of MWAIT, VMRUN and WRMSR that starts counters, nobody tells where. */
    bool known = story && (story->ip || story->next);
    uint64_t due = pmu_pebs_due(s, &cpu->pmu_config, known);
    uint64_t groups = 0;
    PebsSample sample;
    DsSpace space;

    if (likely(!due)) {
        branch_cpu_release(env);
        return;
    }
    space = ds_space(env);
    take_sample(env, story, &sample);
    for (unsigned n = 0; n < PMU_NR_COUNTERS; n++) {
        uint64_t more = pmu_pebs_groups(s, &cpu->pmu_config, n) & ~groups;
        PebsResult result;

        if (!(due & pmu_status_bit(n))) {
            continue;
        }
        if (more & PEBS_GROUP_XMM) {
            take_xmm(env, &sample);
        }
        if (more & PEBS_GROUP_LBR) {
            take_lbr(cpu, &sample);
        }
        groups |= more;
        result = pebs_store(s, &cpu->pmu_config, n, cpu->branch.ds_area,
                            &sample, ds_host, &space);
        trace_pmu_pebs(CPU(cpu)->cpu_index, n, sample.ip, result);
        if (result == PEBS_NO_AREA || result == PEBS_NO_BUFFER) {
            qemu_log_mask(LOG_GUEST_ERROR, "PEBS: the %s is not writable "
                          "memory (DS area at %016" PRIx64 ")\n",
                          result == PEBS_NO_AREA ? "DS area" : "buffer",
                          cpu->branch.ds_area);
        }
    }
    branch_cpu_release(env);
}
