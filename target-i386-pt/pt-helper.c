/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Intel Processor Trace under TCG: what retires, and the way to memory. */

#include "qemu/osdep.h"
#include "qemu/log.h"
#include "pt-cpu.h"
#include "exec/helper-proto.h"
#include "retire/compat.h"
#include "retire/retire.h"
#include "tcg/helper-tcg.h"

/* Where memory is, which a trace is written to as a device writes to it. */
static bool is_ram(X86CPU *cpu, hwaddr addr, hwaddr size, bool write)
{
    MemTxAttrs attrs = MEMTXATTRS_UNSPECIFIED;
    hwaddr xlat, len = size;
    MemoryRegion *mr = address_space_translate(CPU(cpu)->as, addr, &xlat, &len,
                                               write, attrs);

    return len == size && memory_access_is_direct(mr, write, attrs);
}

static bool host_read(void *opaque, uint64_t phys, uint64_t *val)
{
    X86CPU *cpu = opaque;

    RCU_READ_LOCK_GUARD();
    if (!is_ram(cpu, phys, sizeof(*val), false)) {
        return false;
    }
    *val = address_space_ldq_le(CPU(cpu)->as, phys, MEMTXATTRS_UNSPECIFIED,
                                NULL);
    return true;
}

static bool host_write(void *opaque, uint64_t phys, const uint8_t *from,
                       uint32_t n)
{
    X86CPU *cpu = opaque;

    RCU_READ_LOCK_GUARD();
    return is_ram(cpu, phys, n, true) &&
           address_space_write(CPU(cpu)->as, phys, MEMTXATTRS_UNSPECIFIED,
                               from, n) == MEMTX_OK;
}

static uint64_t host_tsc(void *opaque)
{
    X86CPU *cpu = opaque;

    return cpu_get_tsc(&cpu->env) + cpu->env.tsc_offset;
}

/* All that the engine has to know */
#define PT_OF(cpu) \
    PtHost host = { host_read, host_write, host_tsc, cpu }; \
    Pt pt = { &(cpu)->pt, &(cpu)->pt_pending, &(cpu)->pt_config, &host }

static PtPlace place(CPUX86State *env)
{
    return (PtPlace) {
        .ip = env->eip,
        .cr3 = env->cr[3],
        .os = retire_row(env) == RETIRE_OS,
        .smm = env->hflags & HF_SMM_MASK,
        .exec = env->hflags & HF_CS64_MASK ? 1 :
                env->hflags & HF_CS32_MASK ? 2 : 0,
    };
}

/* Behind each call of the engine: whether all have to look */
static bool settle(X86CPU *cpu)
{
    PtState *s = &cpu->pt;
    bool look = s->changed;

    if (s->status & PT_STATUS_ERROR & ~cpu->pt_status) {
        qemu_log_mask(LOG_GUEST_ERROR, "PT: output is not possible: "
                      "OUTPUT_BASE=%016" PRIx64 " MASK_PTRS=%016" PRIx64 "\n",
                      s->output_base, s->output_mask);
    }
    cpu->pt_status = s->status;
    s->changed = false;
    if (unlikely(s->pmi)) {
        s->pmi = false;
        *cpu->perfmon.global_status |= PMU_STATUS_TOPA_PMI;
        *cpu->perfmon.pmi = look = true;
    }
    return look;
}

/*
 * What an instruction has left to be done in front of the next one, at @ip: its
 * own helper does not know where that is.
 */
static bool catch_up(CPUX86State *env, uint64_t ip)
{
    X86CPU *cpu = env_archcpu(env);
    PT_OF(cpu);

    cpu->pt_next.ip = ip;
    if (cpu->pt_cr3) {
        cpu->pt_cr3 = false;
        pt_cr3(&pt, &cpu->pt_next);
    }
    pt_resume(&pt, &cpu->pt_next);
    return settle(cpu);
}

static bool is_behind(X86CPU *cpu)
{
    return cpu->pt_cr3 || cpu->pt.starting;
}

static RetireWants pt_retire_wants(CPUX86State *env, RetireRow row)
{
    X86CPU *cpu = env_archcpu(env);
    PtState *s = &cpu->pt;

    /* The unit that takes the PMI has been added before: it is asked next. */
    cpu->perfmon.pt_interrupts = pt_tells(s);
    return !pt_tells(s) ? 0 :
           pt_near_wanted(s) ? RETIRE_WANT_COUNT | RETIRE_WANT_PT |
                               RETIRE_WANT_PT_NEAR :
           pt_packets_wanted(s) ? RETIRE_WANT_COUNT | RETIRE_WANT_PT :
           RETIRE_WANT_COUNT;
}

static void pt_retire_distance(CPUX86State *env, RetireRow row,
                               RetireDistance *d)
{
    d->pending |= is_behind(env_archcpu(env));
}

static void pt_retire_count(CPUX86State *env, RetireRow row,
                            const RetireTotals *n)
{
}

static void pt_retire_begin(CPUX86State *env)
{
    if (is_behind(env_archcpu(env))) {
        catch_up(env, env->eip);
    }
}

/* Near branches are told where they are translated. */
static bool pt_retire_observe(CPUX86State *env, const RetireStory *story)
{
    X86CPU *cpu = env_archcpu(env);
    PtPlace to = place(env);
    PT_OF(cpu);

    if (!story->is_far) {
        return false;
    }
    if (story->int1) {
        /*
         * It is going to be a debug exception: a trap, but a trace has INT1's
         * own address, as it has INT n's.
         */
        cpu->pt_source = (PerfmonSource) { .valid = true, .ip = story->ip };
        return false;
    }
    if (story->delivered) {
        cpu->pt_source.valid = false;
        pt_event(&pt, story->ip, &to);
    } else {
        pt_far(&pt, &to);
    }
    return settle(cpu);
}

static bool pt_retire_delivered(CPUX86State *env, RetireRow row, uint64_t ip,
                                int vector)
{
    X86CPU *cpu = env_archcpu(env);
    PtPlace to = place(env);
    bool look = is_behind(cpu) && catch_up(env, ip);
    PT_OF(cpu);

    pt_event(&pt, cpu->pt_source.valid ? cpu->pt_source.ip : ip, &to);
    cpu->pt_source.valid = false;
    return settle(cpu) || look;
}

static const RetireObserver pt_observer = {
    .wants = pt_retire_wants,
    .distance = pt_retire_distance,
    .count = pt_retire_count,
    .observe = pt_retire_observe,
    .delivered = pt_retire_delivered,
    .begin = pt_retire_begin,
};

/* What retires shall be observed from the next sync on if it has to be. */
static void add_observer(X86CPU *cpu)
{
    /* What is off shall cost nothing, and nearly always it is off for ever. */
    if (pt_tells(&cpu->pt) && !cpu->pt_observed) {
        cpu->pt_observed = true;
        retire_add_observer(cpu, &pt_observer, false);
    }
}

void pt_cpu_loaded(X86CPU *cpu)
{
    PT_OF(cpu);

    pt_loaded(&pt);
    add_observer(cpu);
}

void pt_cpu_task_commit(CPUX86State *env, uintptr_t ra)
{
    X86CPU *cpu = env_archcpu(env);

    if (cpu->pt_observed) {
        perfmon_set_source(env, &cpu->pt_source, ra);
    }
}

void pt_cpu_write_cr3(CPUX86State *env)
{
    X86CPU *cpu = env_archcpu(env);

    if (unlikely(pt_tells(&cpu->pt))) {
        cpu->pt_cr3 = true;
        cpu->pt_next = place(env);
        /* This is the last one of its TB. */
        retire_set_budget(env, 0);
    }
}

PmuAccess pt_cpu_msr(CPUX86State *env, uint32_t msr, uint64_t *val,
                     bool write)
{
    X86CPU *cpu = env_archcpu(env);
    PmuAccess access;
    PT_OF(cpu);

    if (!cpu->pt_config.ecx) {
        return PMU_MSR_OTHER;
    }
    if (!write) {
        access = pt_rdmsr(&pt, msr, val);
    } else {
        access = pt_wrmsr(&pt, msr, *val, env->eip);
        if (access == PMU_MSR_OK) {
            cpu->pt_next = place(env);
            add_observer(cpu);
        }
    }
    settle(cpu);
    return access;
}

bool pt_cpu_event(CPUX86State *env, PerfmonEvent event)
{
    X86CPU *cpu = env_archcpu(env);
    PtPlace to = place(env);
    PT_OF(cpu);

    if (!cpu->pt_config.ecx) {
        return false;
    }
    switch (event) {
    case PERFMON_RESET:
    case PERFMON_PRE_LOAD:
        pt_reset(&pt, false);
        cpu->pt_cr3 = cpu->pt_source.valid = false;
        settle(cpu);
        return event == PERFMON_RESET;
    case PERFMON_INIT:
        /* As the CPU is realized, this is known behind its units. */
        cpu->pt_config.phys_bits = cpu->phys_bits;
        cpu->pt_cr3 = false;
        pt_far(&pt, &to);
        break;
    case PERFMON_SMI:
        if (is_behind(cpu)) {
            catch_up(env, env->eip);
        }
        pt_smi(&pt, env->eip);
        break;
    case PERFMON_RSM:
        pt_rsm(&pt);
        cpu->pt_next = to;
        break;
    case PERFMON_TASK_DONE:
        cpu->pt_source.valid &= !cpu->pt_source.is_insn;
        return false;
    default:
        return false;
    }
    return settle(cpu);
}

/*
 * Translated code: @last says that the branch is going to be observed, where
 * all look anyway.
 */
static void told(CPUX86State *env, uint32_t last)
{
    if (unlikely(settle(env_archcpu(env))) && !last) {
        helper_retire_look(env);
    }
}

void helper_pt_outcomes(CPUX86State *env, target_ulong next, uint32_t last)
{
    PT_OF(env_archcpu(env));

    pt_outcomes(&pt, next);
    told(env, last);
}

void helper_pt_indirect(CPUX86State *env, target_ulong to, uint32_t last)
{
    PT_OF(env_archcpu(env));

    pt_indirect(&pt, to);
    told(env, last);
}

void helper_pt_near(CPUX86State *env, target_ulong to, uint32_t branch,
                    uint32_t last)
{
    PT_OF(env_archcpu(env));

    pt_near(&pt, branch, to);
    told(env, last);
}
