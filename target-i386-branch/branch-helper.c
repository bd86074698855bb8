/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Branch records under TCG: what is taken, and MSRs. */

#include "qemu/osdep.h"
#include "qemu/log.h"
#include "branch.h"
#include "engine/bts.h"
#include "perfmon/ds-mem.h"
#include "retire/compat.h"
#include "retire/retire.h"
#include "retire/retire-mem.h"
#include "tcg/helper-tcg.h"

#define SVM_LBR_CTL_ENABLE  (1u << 0)   /* in a VMCB (APM, appendix B) */

static RetireWants branch_cpu_wants(X86CPU *cpu, bool os)
{
    return branch_wants(&cpu->branch, &cpu->branch_config, os,
                        *cpu->perfmon.global_status & PMU_STATUS_LBR_FRZ);
}

static RetireWants branch_retire_wants(CPUX86State *env, RetireRow row)
{
    const RetireWants near = RETIRE_WANT_LBR | RETIRE_WANT_TAKEN;
    X86CPU *cpu = env_archcpu(env);
    RetireWants here = branch_cpu_wants(cpu, row == RETIRE_OS);
    RetireWants both = here | branch_cpu_wants(cpu, row != RETIRE_OS);

    /* The unit that takes the PMI has been added before: it is asked next. */
    cpu->perfmon.bts_interrupts = branch_bts_interrupts(&cpu->branch);
    /* Nothing predicts far branches. */
    here &= ~(BRANCH_WANT_FAR | RETIRE_WANT_LBR_CLOCK |
              (here & near ? 0 : RETIRE_WANT_PREDICT));
    /* It is where a branch goes that says whether it is recorded. */
    return both & (near | BRANCH_WANT_FAR) ?
           here | RETIRE_WANT_COUNT | (both & RETIRE_WANT_LBR_CLOCK) : here;
}

static void branch_retire_distance(CPUX86State *env, RetireRow row,
                                   RetireDistance *d)
{
}

static void branch_retire_count(CPUX86State *env, RetireRow row,
                                const RetireTotals *n)
{
}

static inline void *bts_quick(void *opaque, uint64_t addr, uint32_t len)
{
    DsSpace *space = opaque;

    if ((addr ^ (addr + len - 1)) & TARGET_PAGE_MASK) {
        return NULL;
    }
    return retire_mem_tlb(space->env, addr, space->mmu_idx);
}

static void stored(CPUX86State *env, BtsResult result)
{
    switch (result) {
    case BTS_PMI:
        *env_archcpu(env)->perfmon.pmi = true;
        break;
    case BTS_NO_AREA:
        qemu_log_mask(LOG_GUEST_ERROR, "BTS: the DS area at %016" PRIx64
                      " is not writable memory\n",
                      env_archcpu(env)->perfmon.ds_area);
        break;
    case BTS_NO_BUFFER:
        qemu_log_mask(LOG_GUEST_ERROR, "BTS: the buffer is not writable memory"
                      "\n");
        break;
    case BTS_STORED:
    case BTS_FULL:
        break;
    }
}

static void branch_release(CPUX86State *env)
{
    X86CPU *cpu = env_archcpu(env);
    BranchHeld *held = &cpu->branch_held;
    DsSpace space = ds_space(env);

    cpu->perfmon.held = false;
    stored(env, bts_record_any(&cpu->branch, &cpu->branch_config,
                               cpu->perfmon.ds_area, held->from, held->to,
                               held->predicted, ds_host, &space));
}

/*
 * A record has linear addresses; CS may have had another base.  If PMU is told
 * of the branch, too, it comes first (SDM 18.4.4).
 */
static void store(CPUX86State *env, uint64_t from, uint32_t cs_base,
                  uint64_t to, bool predicted, bool hold)
{
    X86CPU *cpu = env_archcpu(env);

    cpu->branch_cs_base = retire_cs_base(env);
    cpu->branch_held = (BranchHeld) {
        predicted, retire_linear(from, cs_base),
        retire_linear(to, cpu->branch_cs_base)
    };
    cpu->perfmon.held = true;
    if (!hold) {
        branch_release(env);
    }
}

static uint32_t branch_retire_taken(CPUX86State *env, uint64_t from,
                                    uint64_t to, bool mispredicted)
{
    X86CPU *cpu = env_archcpu(env);
    uint32_t cs_base = retire_cs_base(env);
    DsSpace space = ds_space(env);

    if (unlikely(cs_base | cpu->branch_cs_base | *cpu->perfmon.pebs_armed)) {
        store(env, from, cs_base, to, !mispredicted,
              perfmon_event(env, PERFMON_PEBS_NEAR + retire_row(env)));
    } else {
        BtsResult result = bts_record(&cpu->branch, &cpu->branch_config,
                                      cpu->perfmon.ds_area, from, to,
                                      !mispredicted, bts_quick, ds_host,
                                      &space);

        if (likely(result == BTS_STORED)) {
            return false;
        }
        stored(env, result);
    }
    return *cpu->perfmon.pmi;
}

/*
 * Here near branches do not come: that is why CS may be another one.  Nothing
 * predicts these.
 */
static void store_far(CPUX86State *env, uint64_t ip, bool hold)
{
    X86CPU *cpu = env_archcpu(env);

    if (branch_cpu_wants(cpu, retire_row(env) == RETIRE_OS) &
        RETIRE_WANT_TAKEN) {
        store(env, ip, cpu->branch_cs_base, env->eip, false, hold);
    } else {
        cpu->branch_cs_base = retire_cs_base(env);
    }
}

static void record(CPUX86State *env, RetireRow row, uint64_t ip,
                   unsigned class, bool hold)
{
    X86CPU *cpu = env_archcpu(env);
    BranchTaken branch = {
        .from = ip,
        .to = env->eip,
        .class = class,
        .from_os = row == RETIRE_OS,
        .to_os = retire_row(env) == RETIRE_OS,
    };

    branch_record(&cpu->branch, &cpu->branch_config, &cpu->branch_ring,
                  &branch, *cpu->perfmon.global_status & PMU_STATUS_LBR_FRZ,
                  retire_cpu_clock(env));
    store_far(env, ip, hold);
}

/* Near branches are recorded where they are translated. */
static bool branch_retire_observe(CPUX86State *env, const RetireStory *story)
{
    if (story->delivered) {
        env_archcpu(env)->branch_source.valid = false;
    }
    /* INT1 is a debug exception, which is going to be delivered. */
    if (story->is_far && !story->int1) {
        record(env, story->row, story->ip,
               story->delivered ? BRANCH_EVENT : BRANCH_FAR,
               perfmon_event(env, PERFMON_PEBS_NEAR + story->row));
    }
    return story->is_far;
}

static bool branch_retire_delivered(CPUX86State *env, RetireRow row,
                                    uint64_t ip, int vector)
{
    X86CPU *cpu = env_archcpu(env);
    PerfmonSource *source = &cpu->branch_source;
    bool changed = false;

    if (source->valid) {
        row = source->os ? RETIRE_OS : RETIRE_USR;
        ip = source->ip;
        source->valid = false;
    }
    if (vector == EXCP01_DB) {
        /* Registers have no record of it. */
        changed = branch_debug(&cpu->branch);
        store_far(env, ip, false);
    } else {
        record(env, row, ip, BRANCH_EVENT, false);
    }
    return changed || *cpu->perfmon.pmi;
}

static const RetireObserver branch_observer = {
    .wants = branch_retire_wants,
    .distance = branch_retire_distance,
    .count = branch_retire_count,
    .observe = branch_retire_observe,
    .taken = branch_retire_taken,
    .delivered = branch_retire_delivered,
};

void branch_cpu_add_observer(X86CPU *cpu)
{
    RetireWants wants = branch_cpu_wants(cpu, true) |
                        branch_cpu_wants(cpu, false);

    /* What is off shall cost nothing, and nearly always it is off for ever. */
    if (wants && !cpu->branch_observed) {
        cpu->branch_observed = true;
        retire_add_observer(cpu, &branch_observer, false);
    }
    cpu->branch_cs_base = retire_cs_base(&cpu->env);
}

void branch_cpu_task_commit(CPUX86State *env, uintptr_t ra)
{
    X86CPU *cpu = env_archcpu(env);

    if (cpu->branch_observed) {
        perfmon_set_source(env, &cpu->branch_source, ra);
    }
}

static bool lbr_is_virtual(CPUX86State *env)
{
    return (env->features[FEAT_SVM] & CPUID_SVM_LBRV) &&
           (x86_ldq_phys(env_cpu(env), env->vm_vmcb +
                         offsetof(struct vmcb, control.lbr_ctl)) &
            SVM_LBR_CTL_ENABLE);
}

/* The five registers, in a VMCB or what is like one */
QEMU_BUILD_BUG_ON(offsetof(struct vmcb, save.last_excp_to) + 8 -
                  offsetof(struct vmcb, save.dbgctl) != sizeof(BranchSvm));

static void svm_save(CPUX86State *env, uint64_t vmcb)
{
    X86CPU *cpu = env_archcpu(env);
    BranchSvm s;
    const uint64_t *word = &s.debugctl;

    branch_svm_save(&cpu->branch, &cpu->branch_config, &cpu->branch_ring, &s);
    s.debugctl |= *cpu->perfmon.debugctl;
    vmcb += offsetof(struct vmcb, save.dbgctl);
    for (int i = 0; i < sizeof(s); i += 8) {
        x86_stq_phys(env_cpu(env), vmcb + i, *word++);
    }
}

static void svm_load(CPUX86State *env, uint64_t vmcb)
{
    X86CPU *cpu = env_archcpu(env);
    BranchSvm s;
    uint64_t *word = &s.debugctl;

    vmcb += offsetof(struct vmcb, save.dbgctl);
    for (int i = 0; i < sizeof(s); i += 8) {
        *word++ = x86_ldq_phys(env_cpu(env), vmcb + i);
    }
    branch_svm_load(&cpu->branch, &cpu->branch_config, &cpu->branch_ring, &s);
    *cpu->perfmon.debugctl = s.debugctl & cpu->perfmon.debugctl_mask;
    cpu->branch_used = true;
    branch_cpu_add_observer(cpu);
}

bool branch_cpu_event(CPUX86State *env, PerfmonEvent event)
{
    X86CPU *cpu = env_archcpu(env);
    PerfmonSource *source = &cpu->branch_source;

    switch (event) {
    case PERFMON_RESET:
    case PERFMON_PRE_LOAD:
        source->valid = cpu->branch_used = false;
        if (cpu->branch_config.flavour) {
            cpu->branch_stream = (BranchStack) { };
            branch_reset(&cpu->branch, &cpu->branch_config, &cpu->branch_ring);
        }
        return event == PERFMON_RESET;
    case PERFMON_SMI:
        if (cpu->enable_pmu) {
            branch_smi(&cpu->branch,
                       *cpu->perfmon.debugctl & PMU_FREEZE_WHILE_SMM);
            cpu->branch_cs_base = env->smbase;
        }
        return false;
    case PERFMON_RSM:
        if (cpu->enable_pmu) {
            branch_rsm(&cpu->branch);
            cpu->branch_cs_base = retire_cs_base(env);
        }
        return false;
    /* The host save area is memory, so that a snapshot has the host's, too. */
    case PERFMON_VMRUN:
        if (!lbr_is_virtual(env)) {
            return false;
        }
        svm_save(env, env->vm_hsave);
        svm_load(env, env->vm_vmcb);
        return true;
    case PERFMON_VMEXIT:
    case PERFMON_VMRUN_FAILED:
        /* What has been intercepted is not delivered. */
        source->valid = false;
        if (!lbr_is_virtual(env)) {
            return false;
        }
        /* A VMRUN that fails leaves the guest's as they are. */
        if (event == PERFMON_VMEXIT) {
            svm_save(env, env->vm_vmcb);
        }
        svm_load(env, env->vm_hsave);
        return true;
    case PERFMON_TASK_DONE:
        source->valid &= !source->is_insn;
        return false;
    case PERFMON_PMI:
        branch_pmi(&cpu->branch, &cpu->branch_config,
                   *cpu->perfmon.debugctl & PMU_FREEZE_LBRS_ON_PMI);
        return false;
    case PERFMON_RELEASE:
        branch_release(env);
        return false;
    default:
        return false;
    }
}

PmuAccess branch_cpu_msr(CPUX86State *env, uint32_t msr, uint64_t *val,
                         bool write)
{
    X86CPU *cpu = env_archcpu(env);
    BranchConfig *config = &cpu->branch_config;
    uint64_t kept = 0;
    PmuAccess access;

    if (!config->flavour) {
        return PMU_MSR_OTHER;
    }
    if (!write) {
        return branch_rdmsr(&cpu->branch, config, &cpu->branch_ring, msr, val);
    }
    access = branch_wrmsr(&cpu->branch, config, &cpu->branch_ring, msr, *val);
    if (access == PMU_MSR_OK) {
        branch_rdmsr(&cpu->branch, config, &cpu->branch_ring, msr, &kept);
        cpu->branch_used |= kept != 0;
        branch_cpu_add_observer(cpu);
    }
    return access;
}
