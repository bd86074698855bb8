/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Instruction-Based Sampling under TCG: a unit of performance monitoring. */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qapi/error.h"
#include "hw/i386/apic.h"
#include "migration/vmstate.h"
#include "perfmon/perfmon.h"
#include "retire/compat.h"
#include "retire/retire-mem.h"
#include "tcg/helper-tcg.h"
#include "tcg/tcg-cpu.h"
#include "trace.h"

#define FEATURES    (CPUID_EXT3_IBS | CPUID_EXT3_EXTAPIC)

static bool init_config(X86CPU *cpu, IbsConfig *config)
{
    PmuVendor vendor;
    unsigned family, model = perfmon_cpu_model(cpu, &vendor, &family);

    return vendor == PMU_VENDOR_AMD && ibs_config_init(config, family, model);
}

static uint64_t ibs_supported(X86CPU *cpu, FeatureWord w)
{
    IbsConfig config;

    if (!init_config(cpu, &config)) {
        return 0;
    }
    switch (w) {
    case FEAT_8000_0001_ECX:
        return FEATURES;
    case FEAT_8000_001B_EAX:
        return config.caps;
    default:
        return 0;
    }
}

static void ibs_expand_features(X86CPU *cpu)
{
    CPUX86State *env = &cpu->env;
    uint64_t *ecx = &env->features[FEAT_8000_0001_ECX];
    uint64_t *caps = &env->features[FEAT_8000_001B_EAX];
    IbsConfig config;

    if (!init_config(cpu, &config)) {
        return;
    }
    *ecx |= FEATURES & ~env->user_features[FEAT_8000_0001_ECX];
    /* Or else feature_dependencies[] takes away what there may be of it. */
    if ((*ecx & FEATURES) == FEATURES) {
        *caps |= config.caps & ~env->user_features[FEAT_8000_001B_EAX];
        env->cpuid_min_xlevel = MAX(env->cpuid_min_xlevel, 0x8000001b);
    }
}

static bool ibs_realize(X86CPU *cpu, Error **errp)
{
    CPUX86State *env = &cpu->env;
    uint64_t features = env->features[FEAT_8000_0001_ECX];
    IbsConfig *config = &cpu->ibs_config;
    static void *common;

    if (!perfmon_has_pmu(cpu) || !init_config(cpu, config)) {
        return true;
    }
    config->caps = 0;
    if (features & CPUID_EXT3_IBS) {
        config->caps = env->features[FEAT_8000_001B_EAX];
        if (!(config->caps & IBS_CAP_FFV)) {
            /* Then software takes it that there are these. */
            config->caps = IBS_CAP_FETCH | IBS_CAP_OP;
        }
    }
    config->insn_clocks = cpu->retire_config.insn_clocks;
    config->random = cpu->ibs_random;
    return retire_same_for_all(&config->caps, sizeof(config->caps), &common,
                               "Features 'ibs' and 'ibs-*'", errp);
}

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

static bool ibs_retire_delivered(CPUX86State *env, RetireRow row, uint64_t ip,
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
    return false;
}

static const RetireObserver ibs_observer = {
    .wants = ibs_retire_wants,
    .distance = ibs_retire_distance,
    .count = ibs_retire_count,
    .observe = ibs_retire_observe,
    .delivered = ibs_retire_delivered,
};

static void add_observer(X86CPU *cpu)
{
    /* What is off shall cost nothing, and nearly always it is off for ever. */
    if (ibs_enabled(&cpu->ibs) && !cpu->ibs_observed) {
        cpu->ibs_observed = true;
        retire_add_observer(cpu, &ibs_observer, false);
    }
}

static PmuAccess ibs_msr(CPUX86State *env, uint32_t msr, uint64_t *val,
                         bool write)
{
    X86CPU *cpu = env_archcpu(env);
    bool observed;

    if (msr - IBS_MSR_FIRST >= IBS_NR_REGISTERS ||
        !cpu->ibs_config.insn_clocks) {
        return PMU_MSR_OTHER;
    }
    if (!write) {
        return ibs_rdmsr(&cpu->ibs, &cpu->ibs_config, msr, val);
    }
    observed = ibs_retire_wants(env, RETIRE_OS);
    if (ibs_wrmsr(&cpu->ibs, &cpu->ibs_config, msr, *val) == PMU_MSR_GP) {
        return PMU_MSR_GP;
    }
    trace_ibs_wrmsr(CPU(cpu)->cpu_index, msr, *val);
    if (!observed) {
        cpu->ibs.started = 0;
    }
    add_observer(cpu);
    return PMU_MSR_OK;
}

static bool ibs_event(CPUX86State *env, PerfmonEvent event)
{
    X86CPU *cpu = env_archcpu(env);

    switch (event) {
    case PERFMON_RESET:
        if (!cpu->enable_pmu) {
            return false;
        }
        /* fall through */
    case PERFMON_PRE_LOAD:
        ibs_reset(&cpu->ibs);
        return false;
    case PERFMON_INIT:
        ibs_init(&cpu->ibs);
        return false;
    case PERFMON_SMI:
        cpu->ibs_cs_base = env->smbase;
        return false;
    default:
        return false;
    }
}

/* What nobody has used is not sent. */
static bool ibs_needed(void *opaque)
{
    X86CPU *cpu = opaque;
    IbsState unused = { };

    ibs_reset(&unused);
    return cpu->ibs_config.caps &&
           memcmp(&cpu->ibs, &unused, sizeof(unused));
}

static int ibs_post_load(void *opaque, int version_id)
{
    X86CPU *cpu = opaque;

    if (!ibs_state_valid(&cpu->ibs, &cpu->ibs_config)) {
        error_report("CPU %d: inconsistent registers of IBS in the incoming "
                     "stream", CPU(cpu)->cpu_index);
        return -EINVAL;
    }
    add_observer(cpu);
    return 0;
}

const VMStateDescription vmstate_ibs = {
    .name = "cpu/ibs",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = ibs_needed,
    .post_load = ibs_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64_ARRAY(ibs.reg, X86CPU, IBS_NR_REGISTERS),
        VMSTATE_UINT32(ibs.fetch_count, X86CPU),
        VMSTATE_UINT32(ibs.op_count, X86CPU),
        VMSTATE_UINT32(ibs.random, X86CPU),
        VMSTATE_END_OF_LIST()
    }
};

static void ibs_show(X86CPU *cpu, GString *text)
{
    const IbsConfig *config = &cpu->ibs_config;
    uint64_t ctl;

    if (config->caps & IBS_CAP_FETCH) {
        ibs_rdmsr(&cpu->ibs, config, IBS_MSR_FIRST + IBS_FETCH_CTL, &ctl);
        g_string_append_printf(text, "  IBS fetch: CTL=%016" PRIx64 "\n", ctl);
    }
    if (config->caps & IBS_CAP_OP) {
        ibs_rdmsr(&cpu->ibs, config, IBS_MSR_FIRST + IBS_OP_CTL, &ctl);
        g_string_append_printf(text, "  IBS op: CTL=%016" PRIx64 " RIP=%016"
                               PRIx64 "\n", ctl, cpu->ibs.reg[IBS_OP_RIP]);
    }
}

const PerfmonUnit ibs_unit = {
    .supported = ibs_supported,
    .expand_features = ibs_expand_features,
    .realize = ibs_realize,
    .event = ibs_event,
    .msr = ibs_msr,
    .show = ibs_show,
};
