/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: TCG helpers and the engine's way to memory. */

#include "qemu/osdep.h"
#include "lwp.h"
#include "exec/exec-all.h"
#include "exec/cpu_ldst.h"
#include "exec/helper-proto.h"
#include "tcg/helper-tcg.h"

typedef struct GuestMem {
    LwpMem parent;
    CPUX86State *env;
    int mmu_idx;
    uintptr_t ra;
} GuestMem;

static void guest_probe(LwpMem *mem, uint64_t addr, uint32_t len)
{
    GuestMem *m = container_of(mem, GuestMem, parent);

    while (len) {
        uint32_t n = MIN(len, -(addr | TARGET_PAGE_MASK));
        void *host;

        /* Not probe_write(): watchpoints are for what is really written. */
        probe_access_flags(m->env, addr, n, MMU_DATA_STORE, m->mmu_idx, false,
                           &host, m->ra);
        addr += n;
        len -= n;
    }
}

static uint32_t guest_ld32(LwpMem *mem, uint64_t addr)
{
    GuestMem *m = container_of(mem, GuestMem, parent);

    return cpu_ldl_le_mmuidx_ra(m->env, addr, m->mmu_idx, m->ra);
}

static uint64_t guest_ld64(LwpMem *mem, uint64_t addr)
{
    GuestMem *m = container_of(mem, GuestMem, parent);

    return cpu_ldq_le_mmuidx_ra(m->env, addr, m->mmu_idx, m->ra);
}

static void guest_st32(LwpMem *mem, uint64_t addr, uint32_t val)
{
    GuestMem *m = container_of(mem, GuestMem, parent);

    cpu_stl_le_mmuidx_ra(m->env, addr, val, m->mmu_idx, m->ra);
}

static void guest_st64(LwpMem *mem, uint64_t addr, uint64_t val)
{
    GuestMem *m = container_of(mem, GuestMem, parent);

    cpu_stq_le_mmuidx_ra(m->env, addr, val, m->mmu_idx, m->ra);
}

static const LwpMemOps guest_mem_ops = {
    .probe = guest_probe,
    .ld32 = guest_ld32,
    .ld64 = guest_ld64,
    .st32 = guest_st32,
    .st64 = guest_st64,
};

static GuestMem guest_mem(CPUX86State *env, uintptr_t ra)
{
    return (GuestMem) {
        .parent.ops = &guest_mem_ops,
        .parent.features = env->features[FEAT_8000_001C_EDX],
        .env = env,
        /*
         * LWP keeps linear addresses, which compatibility mode does not
         * truncate, and checks them as the program could (§5.1).
         */
        .mmu_idx = env->hflags & HF_LMA_MASK ? MMU_USER64_IDX : MMU_USER32_IDX,
        .ra = ra,
    };
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

    check_available(env, ra);
    if (!lwp_llwpcb(&env->lwp, &mem.parent, &ds, ea)) {
        raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
    }
}

target_ulong helper_slwpcb(CPUX86State *env)
{
    uintptr_t ra = GETPC();
    GuestMem mem = guest_mem(env, ra);
    LwpSegment ds = data_segment(env);

    check_available(env, ra);
    return lwp_slwpcb(&env->lwp, &mem.parent, &ds);
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

    if (desc & LWP_DESC_MEM) {
        /* The operand may be a device: read it when nothing else can fail. */
        lwp_probe_store(&env->lwp, &mem.parent);
        data1 = cpu_ldl_data_ra(env, src, ra);
    }
    return lwp_insert(&env->lwp, &mem.parent, event, desc, data1, ip, data2);
}

void helper_lwpval(CPUX86State *env, target_ulong data2, target_ulong src,
                   uint32_t desc, target_ulong ip)
{
    uintptr_t ra = GETPC();

    check_available(env, ra);
    if (lwp_val_due(&env->lwp)) {
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

/* Runs in front of the first instruction of a block, whose address is @ip. */
void helper_lwp_pending(CPUX86State *env, target_ulong ip)
{
    uintptr_t ra = GETPC();
    GuestMem mem = guest_mem(env, ra);

    if (lwp_store_pending(&env->lwp, &mem.parent, ip)) {
        /* Blocks that begin here do not call this helper any more. */
        cpu_sync_lwp_hflags(env);
        cpu_loop_exit_restore(env_cpu(env), ra);
    }
}

void lwp_cpu_xrstor(CPUX86State *env, const uint8_t *image)
{
    LwpSegment ds = data_segment(env);

    lwp_xrstor(&env->lwp, env->features[FEAT_8000_001C_EDX], image,
               env->hflags & HF_CPL_MASK ? &ds : NULL);
    cpu_sync_lwp_hflags(env);
}
