/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: TCG helpers and the engine's way to memory. */

#include "qemu/osdep.h"
#include "lwp.h"
#include "retire/retire-mem.h"
#include "exec/helper-proto.h"
#ifndef CONFIG_USER_ONLY
#include "hw/i386/apic.h"
#endif
#include "tcg/helper-tcg.h"
#include "tcg/access.h"
#include "trace.h"

typedef struct GuestMem {
    LwpMem parent;
    RetireMem mem;
} GuestMem;

static const RetireMem *retire_mem_of(LwpMem *mem)
{
    return &container_of(mem, GuestMem, parent)->mem;
}

static void guest_probe(LwpMem *mem, uint64_t addr, uint32_t len)
{
    const RetireMem *m = retire_mem_of(mem);

    if (trace_event_get_state_backends(TRACE_LWP_FAULT) &&
        (retire_mem_flags(m, addr, len, true) & TLB_INVALID_MASK)) {
        trace_lwp_fault(env_cpu(m->env)->cpu_index, addr, len);
    }
    retire_mem_probe(m, addr, len);
}

static bool guest_writable(LwpMem *mem, uint64_t addr, uint32_t len)
{
    return retire_mem_writable(retire_mem_of(mem), addr, len);
}

static uint32_t guest_ld32(LwpMem *mem, uint64_t addr)
{
    const RetireMem *m = retire_mem_of(mem);

    return cpu_ldl_le_mmuidx_ra(m->env, addr, m->mmu_idx, m->ra);
}

static uint64_t guest_ld64(LwpMem *mem, uint64_t addr)
{
    const RetireMem *m = retire_mem_of(mem);

    return cpu_ldq_le_mmuidx_ra(m->env, addr, m->mmu_idx, m->ra);
}

static void guest_st32(LwpMem *mem, uint64_t addr, uint32_t val)
{
    const RetireMem *m = retire_mem_of(mem);

    /* A record is stored before the head, on any host: see cpu_req_mo(). */
    cpu_stl_le_mmuidx_ra(m->env, addr, val, m->mmu_idx, m->ra);
}

static void guest_st64(LwpMem *mem, uint64_t addr, uint64_t val)
{
    const RetireMem *m = retire_mem_of(mem);

    cpu_stq_le_mmuidx_ra(m->env, addr, val, m->mmu_idx, m->ra);
}

static void guest_st_record(LwpMem *mem, uint64_t addr, const LwpRecord *record)
{
    for (int i = 0; i < ARRAY_SIZE(record->q); i++) {
        guest_st64(mem, addr + 8 * i, record->q[i]);
    }
}

#ifndef CONFIG_USER_ONLY
static void deliver_interrupt(CPUState *cs, run_on_cpu_data vector)
{
    apic_deliver_fixed(X86_CPU(cs)->apic_state, vector.host_int);
}
#endif

static void guest_report(LwpMem *mem, uint64_t addr, const LwpRecord *record,
                         bool missed, uint8_t vector)
{
    CPUState *cs = env_cpu(retire_mem_of(mem)->env);
    uint8_t event = record->q[0];

    if (missed) {
        trace_lwp_missed(cs->cpu_index, event, record->q[1]);
    } else {
        trace_lwp_store(cs->cpu_index, event, record->q[1], addr);
    }
#ifndef CONFIG_USER_ONLY
    if (vector) {
        run_on_cpu_data data = RUN_ON_CPU_HOST_INT(vector);

        trace_lwp_interrupt(cs->cpu_index, vector);
        retire_deliver(cs, deliver_interrupt, data);
    }
#endif
}

static const LwpMemOps guest_mem_ops = {
    .probe = guest_probe,
    .writable = guest_writable,
    .ld32 = guest_ld32,
    .ld64 = guest_ld64,
    .st32 = guest_st32,
    .st64 = guest_st64,
    .st_record = guest_st_record,
    .report = guest_report,
};

static inline GuestMem guest_mem(CPUX86State *env, uintptr_t ra)
{
    return (GuestMem) {
        .parent.ops = &guest_mem_ops,
        .parent.config = &env->lwp_config,
        .parent.reports = trace_event_get_state_backends(TRACE_LWP_STORE) ||
                          trace_event_get_state_backends(TRACE_LWP_MISSED) ||
                          trace_event_get_state_backends(TRACE_LWP_FAULT),
        /*
         * LWP keeps linear addresses, which compatibility mode does not
         * truncate, and checks them as the program could (§5.1).
         */
        .mem = { env, env->hflags & HF_LMA_MASK ? MMU_USER64_IDX :
                                                  MMU_USER32_IDX, ra },
    };
}

/*
 * For a store that is the next access: let it write to the host's memory, up to
 * clear_helper_retaddr().  A #PF that is traced is guest_probe()'s.
 */
static inline void guest_begin(GuestMem *mem)
{
    const RetireMem *m = &mem->mem;
    const LwpState *s = &m->env->lwp;
    uint64_t slot = s->base + s->head;

    /* Fields have to be atomic. */
    if (!((s->cbaddr | slot) & 7) && !mem->parent.reports) {
        mem->parent.host.cb = retire_mem_host(m, s->cbaddr, LWP_CB_SIZE_MAX);
        if (mem->parent.host.cb) {
            mem->parent.host.slot = retire_mem_host(m, slot, LWP_RECORD_SIZE);
        }
        set_helper_retaddr(m->ra);
    }
}

static LwpSegment data_segment(CPUX86State *env)
{
    const SegmentCache *ds = &env->segs[R_DS];
    const uint32_t need = DESC_P_MASK | DESC_S_MASK | DESC_W_MASK;
    LwpSegment seg = { .base = ds->base, .first = 1, .last = 0 };

    if (env->hflags & HF_CS64_MASK) {
        seg.va_bits = env->cr[4] & CR4_LA57_MASK ? 57 : 48;
    } else if ((ds->flags & (need | DESC_CS_MASK)) == need) {
        if (ds->flags & DESC_E_MASK) {
            seg.first = (uint64_t)ds->limit + 1;
            seg.last = ds->flags & DESC_B_MASK ? UINT32_MAX : UINT16_MAX;
        } else {
            seg.first = 0;
            seg.last = ds->limit;
        }
    }
    return seg;
}

static void check_available(CPUX86State *env, uintptr_t ra)
{
    if (!(env->xcr0 & XSTATE_LWP_MASK)) {
        raise_exception_ra(env, EXCP06_ILLOP, ra);
    }
}

void helper_llwpcb(CPUX86State *env, target_ulong ea)
{
    uintptr_t ra = GETPC();
    GuestMem mem = guest_mem(env, ra);
    LwpSegment ds = data_segment(env);
    uint64_t old = env->lwp.cbaddr;
    bool valid;

    check_available(env, ra);
    retire_cpu_settle(env);
    /* The new LWPCB may fault when the old one has been done with (§5.1). */
    lwp_llwpcb(&env->lwp, &mem.parent, &ds, 0);
    lwp_cpu_trace(env, old);
    cpu_sync_retire(env);
    valid = lwp_llwpcb(&env->lwp, &mem.parent, &ds, ea);
    lwp_cpu_trace(env, 0);
    cpu_sync_retire(env);
    if (!valid) {
        raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
    }
}

target_ulong helper_slwpcb(CPUX86State *env)
{
    uintptr_t ra = GETPC();
    GuestMem mem = guest_mem(env, ra);
    LwpSegment ds = data_segment(env);
    target_ulong ea;

    check_available(env, ra);
    retire_cpu_settle(env);
    ea = lwp_slwpcb(&env->lwp, &mem.parent, &ds);
    cpu_sync_retire(env);
    return ea;
}

/*
 * Common part of LWPVAL and LWPINS.  The second operand is @src, or memory
 * at linear address @src if @desc has LWP_DESC_MEM: only an instruction that
 * stores a record reads it (§5.3).
 */
static bool insert(CPUX86State *env, unsigned event, target_ulong data2,
                   target_ulong src, uint32_t desc, target_ulong ip,
                   uintptr_t ra)
{
    GuestMem mem = guest_mem(env, ra);
    uint32_t data1 = src;
    bool full;

    if (desc & LWP_DESC_MEM) {
        /* The operand may be a device: read it when nothing else can fail. */
        lwp_probe_store(&env->lwp, &mem.parent);
        retire_access(env, src, 4, MMU_DATA_LOAD, ra);
        data1 = cpu_ldl_le_data_ra(env, src, ra);
    }
    guest_begin(&mem);
    full = lwp_insert(&env->lwp, &mem.parent, event, desc, data1, ip, data2);
    clear_helper_retaddr();
    return full;
}

void helper_lwpval(CPUX86State *env, target_ulong data2, target_ulong src,
                   uint32_t desc, target_ulong ip)
{
    uintptr_t ra = GETPC();
    GuestMem mem = guest_mem(env, ra);

    check_available(env, ra);
    if (lwp_val_due(&env->lwp, &mem.parent, ip)) {
        insert(env, LWP_EVENT_VAL, data2, src, desc, ip, ra);
    }
}

target_ulong helper_lwpins(CPUX86State *env, target_ulong data2,
                           target_ulong src, uint32_t desc, target_ulong ip)
{
    uintptr_t ra = GETPC();

    check_available(env, ra);
    return lwp_enabled(&env->lwp) &&
           insert(env, LWP_EVENT_INS, data2, src, desc, ip, ra);
}

/* Whether the CPU is where LWP counts (§2.2, §8.2.4). */
static bool in_user_mode(CPUX86State *env)
{
    return (env->hflags & (HF_CPL_MASK | HF_SMM_MASK)) == 3;
}

/* Whether LWP is told of what retires. */
static bool is_told(CPUX86State *env)
{
    return lwp_enabled(&env->lwp) && in_user_mode(env) && lwp_wants(&env->lwp);
}

static RetireWants lwp_retire_wants(CPUX86State *env, RetireRow row)
{
    LwpState *s = &env->lwp;
    RetireWants wants = is_told(env) ? lwp_wants(s) : 0;

    if (wants & RETIRE_WANT_RANGE) {
        env->retire.ip_first = s->ip_first;
        env->retire.ip_span = s->ip_span;
    }
    return wants;
}

static void lwp_retire_distance(CPUX86State *env, RetireRow row,
                                RetireDistance *d)
{
    lwp_distance(&env->lwp, d);
}

static void lwp_retire_count(CPUX86State *env, RetireRow row,
                             const RetireTotals *n)
{
    lwp_count(&env->lwp, &env->lwp_config, n);
}

static void lwp_retire_begin(CPUX86State *env)
{
    GuestMem mem = guest_mem(env, RETIRE_BOUNDARY_RA);

    if (lwp_stores_first(&env->lwp)) {
        guest_begin(&mem);
    }
    lwp_boundary(&env->lwp, &mem.parent, env->eip);
    clear_helper_retaddr();
}

static bool lwp_retire_observe(CPUX86State *env, const RetireStory *story)
{
    LwpState *s = &env->lwp;
    RetireWants wants = lwp_wants(s);

    /* A call gate, or a task, may have left user mode (§2.2). */
    if (story->entry || !in_user_mode(env)) {
        return true;
    }
    if (s->started) {
        s->started = false;
        return true;
    }
    if (!story->part) {
        lwp_retire(s, &env->lwp_config, story);
    }
    /*
     * Debug traps come before a fault of the next instruction; and what has
     * faulted is tried again in front of an instruction.
     */
    if (s->npending && !story->trap && !s->deferred) {
        lwp_retire_begin(env);
    }
    return lwp_wants(s) != wants;
}

static bool lwp_retire_miss_due(CPUX86State *env, uint32_t charged,
                                const RetireMiss *miss)
{
    return lwp_wants_loads(&env->lwp) &&
           lwp_miss_due(&env->lwp, &env->lwp_config, charged, miss);
}

static void lwp_retire_miss(CPUX86State *env, const RetireMiss *miss)
{
    if (lwp_wants_loads(&env->lwp)) {
        lwp_miss(&env->lwp, &env->lwp_config, miss);
    }
}

const RetireObserver lwp_observer = {
    .wants = lwp_retire_wants,
    .distance = lwp_retire_distance,
    .count = lwp_retire_count,
    .observe = lwp_retire_observe,
    .begin = lwp_retire_begin,
    .miss_due = lwp_retire_miss_due,
    .miss = lwp_retire_miss,
};

void lwp_cpu_xsave(X86Access *ac, target_ulong ptr)
{
    uint8_t image[LWP_XSAVE_SIZE];

    retire_cpu_settle(ac->env);
    lwp_xsave(&ac->env->lwp, image);
    for (int i = 0; i < sizeof(image); i += 8) {
        access_stq(ac, ptr + i, ldq_le_p(image + i));
    }
}

void lwp_cpu_xrstor(X86Access *ac, target_ulong ptr, bool init)
{
    CPUX86State *env = ac->env;
    LwpSegment ds = data_segment(env);
    uint64_t old = env->lwp.cbaddr;
    bool told = is_told(env);
    uint8_t image[LWP_XSAVE_SIZE];

    for (int i = 0; i < sizeof(image) && !init; i += 8) {
        stq_le_p(image + i, access_ldq(ac, ptr + i));
    }
    retire_cpu_settle(env);
    lwp_xrstor(&env->lwp, &env->lwp_config, init ? NULL : image,
               env->hflags & HF_CPL_MASK ? &ds : NULL);
    lwp_cpu_trace(env, old);
    cpu_sync_retire(env);
    /* Only from one session to another would it be told of this. */
    env->lwp.started = told && is_told(env);
}

#ifndef CONFIG_USER_ONLY
static void check_msrs(CPUX86State *env, uintptr_t ra)
{
    if (!(env->features[FEAT_8000_0001_ECX] & CPUID_EXT3_LWP)) {
        raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
    }
}

uint64_t lwp_cpu_rdmsr(CPUX86State *env, uint32_t msr, uintptr_t ra)
{
    check_msrs(env, ra);
    return msr == MSR_LWP_CFG ? env->lwp.cfg : env->lwp.cbaddr;
}

void lwp_cpu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val, uintptr_t ra)
{
    uint64_t old = env->lwp.cbaddr;
    bool valid;

    check_msrs(env, ra);
    retire_cpu_settle(env);
    if (msr == MSR_LWP_CFG) {
        valid = lwp_write_cfg(&env->lwp, &env->lwp_config, val);
    } else {
        valid = lwp_write_cbaddr(&env->lwp, val);
        if (valid) {
            lwp_cpu_trace(env, old);
        }
    }
    if (!valid) {
        raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
    }
}
#endif
