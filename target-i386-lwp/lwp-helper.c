/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: TCG helpers and the engine's way to memory. */

#include "qemu/osdep.h"
#include "lwp.h"
#include "exec/exec-all.h"
#include "exec/cpu_ldst.h"
#include "exec/helper-proto.h"
#ifdef CONFIG_USER_ONLY
#include "user/page-protection.h"
#else
#include "hw/i386/apic.h"
#include "qemu/main-loop.h"
#endif
#include "accel/tcg/cpu-ops.h"
#include "system/cpu-timers.h"
#include "tcg/insn-start-words.h"
#include "tcg/tcg.h"
#include "tcg/helper-tcg.h"
#include "trace.h"

/* Guest memory that has been probed and that the host can reach directly. */
typedef struct GuestRange {
    uint64_t addr;
    uint32_t len;
    void *host;
} GuestRange;

typedef struct GuestMem {
    LwpMem parent;
    CPUX86State *env;
    int mmu_idx;
    uintptr_t ra;
    GuestRange cb, slot;    /* the last two probed: LWPCB and record */
} GuestMem;

/* The flags of all pages of a range; @host is that of the last one. */
static int probe_pages(GuestMem *m, uint64_t addr, uint32_t len, bool nonfault,
                       void **host)
{
    int flags = 0;

    while (len) {
        uint32_t n = MIN(len, -(addr | TARGET_PAGE_MASK));

        /* Not probe_write(): watchpoints are for what is really written. */
        flags |= probe_access_flags(m->env, addr, n, MMU_DATA_STORE,
                                    m->mmu_idx, nonfault, host, m->ra);
        addr += n;
        len -= n;
    }
    return flags;
}

static bool guest_writable(LwpMem *mem, uint64_t addr, uint32_t len)
{
    void *host;

    /* A watchpoint takes the CPU elsewhere, too. */
    return !(probe_pages(container_of(mem, GuestMem, parent), addr, len, true,
                         &host) & (TLB_INVALID_MASK | TLB_WATCHPOINT));
}

static void guest_probe(LwpMem *mem, uint64_t addr, uint32_t len)
{
    GuestMem *m = container_of(mem, GuestMem, parent);
    GuestRange range = { .addr = addr, .len = len };
    bool one_page = !((addr ^ (addr + len - 1)) & TARGET_PAGE_MASK);
    void *host;

    if (trace_event_get_state_backends(TRACE_LWP_FAULT) &&
        (probe_pages(m, addr, len, true, &host) & TLB_INVALID_MASK)) {
        trace_lwp_fault(env_cpu(m->env)->cpu_index, addr, len);
    }
#ifdef CONFIG_USER_ONLY
    /*
     * The host raises the fault, at the first store.  That is early enough
     * unless the range has two pages.
     */
    if (one_page && guest_range_valid_untagged(addr, len)) {
        range.host = g2h_untagged(addr);
    } else
#endif
    if (probe_pages(m, addr, len, false, &host) == 0 && one_page) {
        range.host = host;
    }
    m->cb = m->slot;
    m->slot = range;
}

/* NULL if the access has to take the long way, or would not be atomic. */
static inline void *range_host(const GuestRange *range, uint64_t addr,
                               uint32_t len)
{
    uint64_t offset = addr - range->addr;

    if (range->host && offset <= range->len - len && !(addr & (len - 1))) {
        return range->host + offset;
    }
    return NULL;
}

static uint32_t guest_ld32(LwpMem *mem, uint64_t addr)
{
    GuestMem *m = container_of(mem, GuestMem, parent);
    uint32_t *host = range_host(&m->cb, addr, 4);
    uint32_t val;

    if (!host) {
        return cpu_ldl_le_mmuidx_ra(m->env, addr, m->mmu_idx, m->ra);
    }
    set_helper_retaddr(m->ra);
    val = qatomic_read(host);
    clear_helper_retaddr();
    return le32_to_cpu(val);
}

static uint64_t guest_ld64(LwpMem *mem, uint64_t addr)
{
    GuestMem *m = container_of(mem, GuestMem, parent);

    return cpu_ldq_le_mmuidx_ra(m->env, addr, m->mmu_idx, m->ra);
}

static void guest_st32(LwpMem *mem, uint64_t addr, uint32_t val)
{
    GuestMem *m = container_of(mem, GuestMem, parent);
    uint32_t *host = range_host(&m->cb, addr, 4);

    if (!host) {
        cpu_stl_le_mmuidx_ra(m->env, addr, val, m->mmu_idx, m->ra);
        return;
    }
    set_helper_retaddr(m->ra);
    qatomic_set(host, cpu_to_le32(val));
    clear_helper_retaddr();
}

static void guest_st64(LwpMem *mem, uint64_t addr, uint64_t val)
{
    GuestMem *m = container_of(mem, GuestMem, parent);

    cpu_stq_le_mmuidx_ra(m->env, addr, val, m->mmu_idx, m->ra);
}

static void guest_st_record(LwpMem *mem, uint64_t addr, const LwpRecord *record)
{
    GuestMem *m = container_of(mem, GuestMem, parent);
    uint64_t *host = NULL;

    if (addr == m->slot.addr && !(addr & 7)) {
        host = m->slot.host;
    }
    if (host) {
        set_helper_retaddr(m->ra);
        for (int i = 0; i < ARRAY_SIZE(record->q); i++) {
            qatomic_set__nocheck(&host[i], cpu_to_le64(record->q[i]));
        }
        clear_helper_retaddr();
    } else {
        for (int i = 0; i < ARRAY_SIZE(record->q); i++) {
            guest_st64(mem, addr + 8 * i, record->q[i]);
        }
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
    CPUState *cs = env_cpu(container_of(mem, GuestMem, parent)->env);
    uint8_t event = record->q[0];

    if (missed) {
        trace_lwp_miss(cs->cpu_index, event, record->q[1]);
    } else {
        trace_lwp_store(cs->cpu_index, event, record->q[1], addr);
    }
#ifndef CONFIG_USER_ONLY
    if (vector) {
        run_on_cpu_data data = RUN_ON_CPU_HOST_INT(vector);

        trace_lwp_interrupt(cs->cpu_index, vector);
        if (icount_enabled()) {
            /* This may be the middle of a block; it is done behind it. */
            async_run_on_cpu(cs, deliver_interrupt, data);
        } else {
            BQL_LOCK_GUARD();
            deliver_interrupt(cs, data);
        }
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

static GuestMem guest_mem(CPUX86State *env, uintptr_t ra)
{
    return (GuestMem) {
        .parent.ops = &guest_mem_ops,
        .parent.config = &env->lwp_config,
        .env = env,
        /*
         * LWP keeps linear addresses, which compatibility mode does not
         * truncate, and checks them as the program could (§5.1).
         */
        .mmu_idx = env->hflags & HF_LMA_MASK ? MMU_USER64_IDX : MMU_USER32_IDX,
        .ra = ra,
    };
}

/*
 * A return address for faults between two instructions, when the state of the
 * CPU is complete and is not to be restored: it is generated code, or else a
 * host fault would be fatal, but no block has it.
 */
#define BOUNDARY_RA ((uintptr_t)tcg_code_gen_epilogue)

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
    /* The new LWPCB may fault when the old one has been done with (§5.1). */
    lwp_llwpcb(&env->lwp, &mem.parent, &ds, 0);
    lwp_cpu_trace(env, old);
    cpu_sync_lwp_hflags(env);
    valid = lwp_llwpcb(&env->lwp, &mem.parent, &ds, ea);
    lwp_cpu_trace(env, 0);
    cpu_sync_lwp_hflags(env);
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
    ea = lwp_slwpcb(&env->lwp, &mem.parent, &ds);
    cpu_sync_lwp_hflags(env);
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

    if (desc & LWP_DESC_MEM) {
        /* The operand may be a device: read it when nothing else can fail. */
        lwp_probe_store(&env->lwp, &mem.parent);
        lwp_access(env, src, 4, MMU_DATA_LOAD, ra);
        data1 = cpu_ldl_data_ra(env, src, ra);
    }
    return lwp_insert(&env->lwp, &mem.parent, event, desc, data1, ip, data2);
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

/* Runs in front of the first instruction of a block, whose address is @ip. */
void helper_lwp_boundary(CPUX86State *env, target_ulong ip)
{
    uintptr_t ra = GETPC();
    GuestMem mem = guest_mem(env, ra);

    if (lwp_boundary(&env->lwp, &mem.parent, ip)) {
        cpu_sync_lwp_hflags(env);
    }
}

/*
 * The fuse has tripped at the start of a block, or the IP filter divides the
 * block, which then has taken nothing off the fuse.  @ip and the lengths are
 * those of LwpBlock.  Returns if the block may run.  If not, leaves it for
 * another one that begins at the same instruction, and of which only the last
 * instruction may cause an event.
 */
void helper_lwp_trip(CPUX86State *env, uint32_t desc, target_ulong ip,
                     uint64_t len0, uint64_t len1, uint64_t len2, uint64_t len3)
{
    CPUState *cs = env_cpu(env);
    LwpState *s = &env->lwp;
    GuestMem mem = guest_mem(env, BOUNDARY_RA);
    const LwpBlock block = {
        .ip = ip,
        .lengths = { len0, len1, len2, len3 },
        .insns = desc >> LWP_DESC_INSNS_SHIFT,
        .branch = desc & LWP_DESC_BRANCH,
        /* With icount, a fault in lwp_trip() would have to undo more. */
        .late = (desc & LWP_DESC_LATE) || icount_enabled(),
    };
    uint32_t hflags = env->hflags;
    TranslationBlock *tb;

    env->eip = ip;
    if (s->ndue) {
        /* What holds if the store does not return. */
        lwp_cpu_set_mode(env, LWP_MODE_BOUNDARY);
    }
    if (desc & LWP_DESC_DIVIDED) {
        lwp_step(s, block.insns);
    } else if (lwp_trip(s, &mem.parent, &block)) {
        if (!cpu_loop_exit_requested(cs)) {
            /* The block may be chained to others of its kind only. */
            env->hflags = hflags;
            return;
        }
        /* A block that has a fuse has no other check, but for icount's. */
        lwp_unretire(s, block.insns, block.branch, ip);
    }

    tb = tcg_tb_lookup(GETPC());
    if (tb_cflags(tb) & CF_USE_ICOUNT) {
        cs->neg.icount_decr.u16.low += tb->icount;
    } else if (s->step && s->ip_filter == LWP_IP_ALL &&
               !cpu_in_exclusive_context(cs)) {
        /*
         * All the way to the event in one block, see lwp_init_disas(); if a
         * signal comes first, its handler has that block.
         */
        cs->cflags_next_tb = (tb_cflags(tb) & ~CF_COUNT_MASK) | s->step;
    }
    cpu_sync_lwp_hflags(env);
    cpu_loop_exit(cs);
}

/*
 * The instruction at @ip has retired, everything but a trap for EFLAGS.TF is
 * done, and EIP is that of the next one: a #PF raised here is between the two.
 */
void helper_lwp_retire(CPUX86State *env, target_ulong ip, uint32_t desc)
{
    LwpState *s = &env->lwp;

    if (s->started) {
        s->started = false;
        return;
    }
    if (lwp_tb_mode(env->hflags) == LWP_MODE_OFF) {
        return;     /* it has left CPL 3, or stopped LWP */
    }
    lwp_retire(s, &env->lwp_config, &env->lwp_predictor, &(LwpInsn) {
        .ip = ip,
        .next = ip + (desc >> LWP_DESC_LENGTH_SHIFT),
        .target = env->eip,
        .branch = desc & LWP_DESC_BRANCH,
        .taken = desc & LWP_DESC_TAKEN,
    });
    if (!s->npending && s->step) {
        return;
    }
    cpu_sync_lwp_hflags(env);
    /* Debug traps come before a fault of the next instruction. */
    if (s->npending && !(desc & LWP_DESC_TF) && !env_cpu(env)->watchpoint_hit) {
        GuestMem mem = guest_mem(env, BOUNDARY_RA);

        lwp_boundary(s, &mem.parent, env->eip);
        cpu_sync_lwp_hflags(env);
    }
}

/* A REP string instruction at @ip is left before it has finished. */
void helper_lwp_unretire(CPUX86State *env, uint32_t insns, target_ulong ip)
{
    lwp_unretire(&env->lwp, insns, LWP_BRANCH_NONE, ip);
}

/* A load, a store, or a load and a store of the same bytes. */
typedef struct Access {
    CPUX86State *env;
    uint64_t addr;          /* linear */
    unsigned size;          /* of one load or store */
    bool load, store;
    int mmu_idx;
    int index;              /* of the instruction in its block */
    uint64_t start[TARGET_INSN_START_WORDS];
    uintptr_t ra;
    bool in_helper;         /* @ra is that of a helper's call */
} Access;

/* A line of an access. */
typedef struct Line {
    uint64_t addr;          /* of the first byte, linear */
    uint64_t line;          /* physical */
    bool memory;            /* or else a device */
} Line;

/* Find the physical line of an address; false if the access will fault. */
static bool physical_line(const Access *a, Line *l)
{
#ifdef CONFIG_USER_ONLY
    l->line = l->addr >> LWP_LINE_BITS;
    l->memory = true;
    return true;
#else
    CPUTLBEntryFull *full;
    void *host;
    int flags = probe_access_full_mmu(a->env, l->addr, 1, MMU_DATA_LOAD,
                                      a->mmu_idx, &host, &full);

    if (flags & TLB_INVALID_MASK) {
        return false;
    }
    l->line = (full->phys_addr | (l->addr & ~TARGET_PAGE_MASK)) >>
              LWP_LINE_BITS;
    l->memory = !(flags & TLB_MMIO);
    return true;
#endif
}

/* In user mode emulation, that is only worth asking for lines that are new. */
static bool mapped(uint64_t addr)
{
#ifdef CONFIG_USER_ONLY
    return guest_addr_valid_untagged(addr) &&
           (page_get_flags(addr) & (PAGE_READ | PAGE_WRITE));
#else
    return true;
#endif
}

/* Whether the instruction has not been counted ahead, see LWP_INSN_START. */
static bool is_late(uint64_t data)
{
    return !(data >> 8);
}

/* The effective address of the instruction whose insn_start has @pc. */
static uint64_t insn_ip(CPUX86State *env, uint64_t pc)
{
    uint64_t cs_base = env->segs[R_CS].base;

    if (tcg_cflags_has(env_cpu(env), CF_PCREL)) {
        pc |= (env->eip + cs_base) & TARGET_PAGE_MASK;
    }
    return env->hflags & HF_CS64_MASK ? pc : (uint32_t)(pc - cs_base);
}

/* Execute the instruction again, in a block of its own. */
static G_NORETURN void restart(const Access *a)
{
    CPUState *cs = env_cpu(a->env);
    const TranslationBlock *tb = tcg_tb_lookup(a->ra);
    uint32_t cflags = tb_cflags(tb) & ~CF_COUNT_MASK;

    if (!a->in_helper) {
        if (tb_cflags(tb) & CF_USE_ICOUNT) {
            cs->neg.icount_decr.u16.low += tb->icount - a->index;
        }
        cs->cc->tcg_ops->restore_state_to_opc(cs, tb, a->start);
    } else {
        cpu_restore_state(cs, a->ra);
    }
    lwp_step(&a->env->lwp, 1);
    cpu_sync_lwp_hflags(a->env);
    if (!cpu_in_exclusive_context(cs)) {
        /* Plugins have been told of the instruction. */
        cs->cflags_next_tb = cflags | CF_MEMI_ONLY | CF_NOIRQ | 1;
    }
    cpu_loop_exit(cs);
}

/* The lines of an access; 0 if it is not going to succeed. */
static int find_lines(const Access *a, Line lines[2])
{
    uint64_t last = a->addr + a->size - 1;
    int n = (a->addr ^ last) >> LWP_LINE_BITS ? 2 : 1;

    lines[0].addr = a->addr;
    lines[1].addr = last & -(uint64_t)LWP_LINE_SIZE;
    for (int i = 0; i < n; i++) {
        if (!physical_line(a, &lines[i])) {
            return 0;
        }
        /* It is going to be translated again, and to come back. */
        if (!lines[i].memory && !env_cpu(a->env)->neg.can_do_io) {
            return 0;
        }
    }
    if (n == 2 && !(lines[1].addr & ~TARGET_PAGE_MASK) &&
        !(mapped(lines[0].addr) && mapped(lines[1].addr))) {
        return 0;
    }
    return n;
}

/* Take account of a line that misses. */
static void add_miss(const Access *a, LwpMiss *miss, const Line *line,
                     LwpSource source)
{
    if (!miss->clocks) {
        miss->addr = line->addr;
        miss->source = source;
    }
    miss->clocks += a->env->lwp_config.latency[source];
}

/*
 * Access the caches, for one load or store.  A load that misses counts once,
 * for the lowest address (§2.4).
 */
static void access_caches(const Access *a)
{
    CPUX86State *env = a->env;
    LwpCache *c = env_archcpu(env)->lwp_cache;
    LwpState *s = &env->lwp;
    LwpMiss miss = { .ip = insn_ip(env, a->start[0]) };
    Line lines[2];
    int n = find_lines(a, lines);

    /* Unless lwp_retire() is next anyway, an event wants the block to end. */
    if (a->load && !is_late(a->start[1]) &&
        unlikely(lwp_miss_due(s, &env->lwp_config, NULL))) {
        LwpMiss expected = miss;

        for (int i = 0; i < n; i++) {
            LwpSource source = LWP_SOURCE_OTHER;

            if (lines[i].memory) {
                source = lwp_cache_peek(c, lines[i].line);
            }
            if (source != LWP_SOURCE_L1) {
                add_miss(a, &expected, &lines[i], source);
            }
        }
        if (expected.clocks && lwp_miss_due(s, &env->lwp_config, &expected)) {
            restart(a);
        }
    }

    for (int i = 0; i < n; i++) {
        LwpSource source = LWP_SOURCE_OTHER;

        if (lines[i].memory) {
            source = lwp_cache_access(c, lines[i].line, lines[i].addr,
                                      a->store);
            if (source == LWP_SOURCE_UNKNOWN) {
                if (!mapped(lines[i].addr)) {
                    return;
                }
                source = lwp_cache_fill(c, lines[i].line, lines[i].addr,
                                        a->store);
            }
        }
        if (a->load && source != LWP_SOURCE_L1) {
            add_miss(a, &miss, &lines[i], source);
        }
    }
    if (miss.clocks) {
        lwp_miss(s, &env->lwp_config, &miss);
        if (s->npending && is_late(a->start[1])) {
            /* The next iteration of a REP is another boundary. */
            lwp_cpu_set_mode(env, LWP_MODE_BOUNDARY);
        }
    }
}

/* Called for an access that the filter does not know to change nothing. */
void helper_lwp_access(CPUX86State *env, uint64_t addr, uint32_t desc,
                       uint64_t start0, uint64_t start1)
{
#ifdef CONFIG_USER_ONLY
    LwpState *s = &env->lwp;
    int32_t *left = &s->counter[LWP_EVENT_DME - 1];

    /* The same as access_caches() for most of them, but faster. */
    if (s->all_misses && *left > 0 &&
        (addr & (LWP_LINE_SIZE - 1)) + (desc & LWP_DESC_SIZE) <=
        LWP_LINE_SIZE) {
        switch (lwp_cache_access(env_archcpu(env)->lwp_cache,
                                 addr >> LWP_LINE_BITS, addr,
                                 desc & LWP_DESC_STORE)) {
        case LWP_SOURCE_L2:
            *left -= !!(desc & LWP_DESC_LOAD);
            return;
        case LWP_SOURCE_L1:
            return;
        default:
            break;
        }
    }
#endif
    access_caches(&(Access) {
        .env = env,
        .addr = addr,
        .size = desc & LWP_DESC_SIZE,
        .load = desc & LWP_DESC_LOAD,
        .store = desc & LWP_DESC_STORE,
        .mmu_idx = (uint8_t)(desc >> LWP_DESC_MMU_IDX_SHIFT),
        .index = desc >> LWP_DESC_INDEX_SHIFT,
        .start = { start0, start1 },
        .ra = GETPC(),
    });
}

void lwp_cpu_access(CPUX86State *env, vaddr addr, unsigned size,
                    MMUAccessType type, uintptr_t ra)
{
    Access a = {
        .env = env,
        .addr = addr,
        .size = size,
        .load = type == MMU_DATA_LOAD,
        .store = type == MMU_DATA_STORE,
        .mmu_idx = cpu_mmu_index(env_cpu(env), false),
        .ra = ra,
        .in_helper = true,
    };
    const LwpSlot *slot =
        &env->lwp_filter.slot[(addr >> LWP_LINE_BITS) % LWP_NR_SLOTS];

    if (size <= LWP_LINE_SIZE &&
        ((a.load ? slot->load : slot->store) ^ addr) <= LWP_LINE_SIZE - size) {
        return;
    }
    cpu_unwind_state_data(env_cpu(env), ra, a.start);
    /* FXRSTOR and its like are many loads. */
    if (size > 32) {
        for (a.size = 0; size; size -= a.size, a.addr += a.size) {
            a.size = MIN(size, -(a.addr | -(uint64_t)LWP_LINE_SIZE));
            access_caches(&a);
        }
    } else {
        access_caches(&a);
    }
}

void lwp_cpu_settle(CPUX86State *env)
{
    GuestMem mem = guest_mem(env, BOUNDARY_RA);

    lwp_settle(&env->lwp, &mem.parent);
}

void lwp_cpu_xrstor(CPUX86State *env, const uint8_t *image)
{
    LwpSegment ds = data_segment(env);
    uint64_t old = env->lwp.cbaddr;

    lwp_xrstor(&env->lwp, &env->lwp_config, image,
               env->hflags & HF_CPL_MASK ? &ds : NULL);
    lwp_cpu_trace(env, old);
    env->lwp.started = lwp_tb_mode(env->hflags) != LWP_MODE_OFF;
    cpu_sync_lwp_hflags(env);
}
