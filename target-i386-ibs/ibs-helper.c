/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Instruction-Based Sampling under TCG: what is sampled, and MSRs. */

#include "qemu/osdep.h"
#include "hw/i386/apic.h"
#include "ibs.h"
#include "retire/compat.h"
#include "retire/retire.h"
#include "retire/retire-mem.h"
#include "tcg/helper-tcg.h"
#include "tcg/tcg-cpu.h"
#include "trace.h"

static RetireWants ibs_retire_wants(CPUX86State *env, RetireRow row)
{
    X86CPU *cpu = env_archcpu(env);
    unsigned running = ibs_running(&cpu->ibs), enabled = ibs_enabled(&cpu->ibs);
    RetireWants wants = running ? RETIRE_WANT_COUNT : 0;

    if (running & IBS_OP) {
        wants |= RETIRE_WANT_STORY;
    }
    /* Between two samples, too, or else each would be the first access. */
    if ((enabled & IBS_OP) && cpu->ibs_caches) {
        wants |= RETIRE_WANT_COUNT | RETIRE_WANT_PREDICT |
                 RETIRE_WANT_SOURCES | RETIRE_WANT_TLB;
    }
    if ((enabled & IBS_FETCH) && cpu->ibs_caches) {
        wants |= RETIRE_WANT_COUNT | RETIRE_WANT_FETCHES;
    }
    return wants;
}

static void ibs_retire_distance(CPUX86State *env, RetireRow row,
                                RetireDistance *d)
{
    X86CPU *cpu = env_archcpu(env);

    /* A far branch, behind which this comes, is sampled when CS is another. */
    cpu->ibs_cs_base = retire_cs_base(env);
    d->insns = MIN(d->insns, ibs_distance(&cpu->ibs, &cpu->ibs_config));
}

static void ibs_retire_count(CPUX86State *env, RetireRow row,
                             const RetireTotals *n)
{
    X86CPU *cpu = env_archcpu(env);

    ibs_count(&cpu->ibs, &cpu->ibs_config, n->insns);
}

static void deliver(CPUState *cs, run_on_cpu_data entry)
{
    apic_deliver_extended(X86_CPU(cs)->apic_state, entry.host_int);
}

static void signal_sample(X86CPU *cpu)
{
    run_on_cpu_data entry = RUN_ON_CPU_HOST_INT(cpu->ibs_config.lvt);

    if (cpu->apic_state) {
        retire_deliver(CPU(cpu), deliver, entry);
    }
}

/* What is known of the fetch, if there was a model to go by */
static void find_fetch(CPUX86State *env, IbsInsn *insn)
{
    const RetireFetch *f = insn->story->fetch;

    if (f && env_archcpu(env)->ibs_caches && f->addr == insn->rip) {
        insn->fetch_missed = f->missed;
        insn->fetch_tlb = f->tlb;
    }
}

/* Where the code is now: RSM, or MOV to CR3, may have changed that. */
static void find_physical(CPUX86State *env, IbsInsn *insn)
{
    const CPUTLBEntryFull *full;
    int flags;
    int pl = insn->story->row == RETIRE_OS ? 0 : env->hflags & HF_CPL_MASK ?: 3;

    full = retire_mem_full(env, insn->rip, MMU_INST_FETCH,
                           x86_mmu_index_pl(env, pl), &flags);
    if (full) {
        insn->has_physical = true;
        insn->physical = full->phys_addr | (insn->rip & ~TARGET_PAGE_MASK);
        insn->lg_page = full->lg_page_size;
    }
}

static bool ibs_retire_observe(CPUX86State *env, const RetireStory *story)
{
    X86CPU *cpu = env_archcpu(env);
    IbsState *s = &cpu->ibs;
    uint32_t base = retire_cs_base(env);
    IbsInsn insn = {
        .story = story,
        .rip = retire_linear(story->ip,
                             story->is_far ? cpu->ibs_cs_base : base),
        .target = retire_linear(env->eip, base),
    };
    unsigned samples;

    if (story->part) {
        return false;
    }
    if ((ibs_due(s) & IBS_FETCH) && (story->ip || story->next)) {
        find_fetch(env, &insn);
        find_physical(env, &insn);
    }
    /* Of MWAIT and VMRUN, nobody tells where. */
    samples = ibs_retire(s, &cpu->ibs_config,
                         story->ip || story->next ? &insn : NULL);
    if (samples) {
        trace_ibs_sample(CPU(cpu)->cpu_index, samples, insn.rip,
                         s->reg[IBS_OP_DATA], s->reg[IBS_OP_DATA3]);
        signal_sample(cpu);
    }
    return samples;
}

static void ibs_retire_delivered(CPUX86State *env, RetireRow row, uint64_t ip,
                                 int vector)
{
    X86CPU *cpu = env_archcpu(env);

    cpu->ibs_cs_base = retire_cs_base(env);
    /*
     * What is behind an instruction, or between two, is not a fault: a record
     * of LWP, or what VMRUN injects, has no next EIP.
     */
    if (CPU(cpu)->exception_index == vector && vector < 32 &&
        vector != EXCP01_DB && vector != EXCP02_NMI &&
        env->exception_next_eip != -1) {
        ibs_squash(&cpu->ibs, &cpu->ibs_config);
    }
}

static const RetireObserver ibs_observer = {
    .wants = ibs_retire_wants,
    .distance = ibs_retire_distance,
    .count = ibs_retire_count,
    .observe = ibs_retire_observe,
    .delivered = ibs_retire_delivered,
};

void ibs_cpu_add_observer(X86CPU *cpu)
{
    /* What is off shall cost nothing, and nearly always it is off for ever. */
    if (ibs_enabled(&cpu->ibs) && !cpu->ibs_observed) {
        cpu->ibs_observed = true;
        retire_add_observer(cpu, &ibs_observer, false);
    }
}

static bool is_ours(X86CPU *cpu, uint32_t msr)
{
    return msr - IBS_MSR_FIRST < IBS_NR_REGISTERS &&
           cpu->ibs_config.insn_clocks;
}

bool ibs_cpu_rdmsr(CPUX86State *env, uint32_t msr, uint64_t *val,
                   uintptr_t ra)
{
    X86CPU *cpu = env_archcpu(env);

    if (!is_ours(cpu, msr)) {
        return false;
    }
    retire_cpu_settle(env);
    if (ibs_rdmsr(&cpu->ibs, &cpu->ibs_config, msr, val) == IBS_MSR_GP) {
        raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
    }
    return true;
}

bool ibs_cpu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val, uintptr_t ra)
{
    X86CPU *cpu = env_archcpu(env);
    bool observed;

    if (!is_ours(cpu, msr)) {
        return false;
    }
    observed = ibs_retire_wants(env, RETIRE_OS);
    retire_cpu_settle(env);
    if (ibs_wrmsr(&cpu->ibs, &cpu->ibs_config, msr, val) == IBS_MSR_GP) {
        raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
    }
    trace_ibs_wrmsr(CPU(cpu)->cpu_index, msr, val);
    if (!observed) {
        cpu->ibs.started = 0;
    }
    ibs_cpu_add_observer(cpu);
    cpu_sync_retire(env);
    return true;
}
