/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: TCG helpers. */

#include "qemu/osdep.h"
#include "host/cpuinfo.h"
#ifdef CPUINFO_AVX2
#define RETIRE_WAYS_AVX2
#endif
#include "retire.h"
#include "compat.h"
#include "exec/helper-proto.h"
#ifdef CONFIG_USER_ONLY
#include "user/page-protection.h"
#endif
#include "accel/tcg/cpu-ops.h"
#include "tcg/insn-start-words.h"
#include "tcg/tcg.h"
#include "tcg/helper-tcg.h"

static const RetireConsumer *consumer(CPUX86State *env)
{
    return env_archcpu(env)->retire_consumer;
}

/*
 * Have the next block made of @insns instructions, if nothing is against it;
 * @tb is the current one, which another thread may have invalidated.
 */
static void choose_next_tb(CPUState *cs, const TranslationBlock *tb,
                           uint32_t insns, uint32_t cflags)
{
    uint32_t current = tb_cflags(tb) & ~(CF_COUNT_MASK | CF_INVALID |
                                         CF_NOIRQ | CF_MEMI_ONLY);

    if (!cpu_in_exclusive_context(cs) && !cpu_loop_exit_requested(cs)) {
        if (current & CF_SINGLE_STEP) {
            insns = 1;
        }
        cs->cflags_next_tb = current | cflags | insns;
    }
}

/* Runs in front of the first instruction of a block, whose address is @ip. */
void helper_retire_boundary(CPUX86State *env, target_ulong ip)
{
    consumer(env)->boundary(env, ip, GETPC());
}

/*
 * @block is next, and has not been taken off the fuse if that would not be
 * right (RETIRE_DESC_DIVIDED).  Returns if it may run.  If not, leaves it for
 * another one that begins at the same instruction, and of which only the last
 * instruction may matter.
 */
static inline QEMU_ALWAYS_INLINE
void trip(CPUX86State *env, const RetireBlock *block, uint32_t desc,
          uintptr_t ra)
{
    CPUState *cs = env_cpu(env);
    RetireState *r = &env->retire;
    uint64_t flags = env->retire_flags;
    RetirePlan plan = { .insns = block->insns };
    TranslationBlock *tb;

    env->eip = block->ip;
    if (!(desc & RETIRE_DESC_DIVIDED)) {
        const RetireConsumer *c = consumer(env);
        RetireCount n;

        retire_give_back(r, block->insns, block->branch);
        n = retire_take(r);
        /* What holds if this does not return. */
        env->retire_flags = (flags & ~RETIRE_TB_MODE_MASK) |
                            (uint64_t)RETIRE_BOUNDARY << RETIRE_TB_MODE_SHIFT;
        plan = c->trip(env, block, &n);
        if (plan.action != RETIRE_PLAN_STEP) {
            if (likely(!cpu_loop_exit_requested(cs))) {
                retire_run(r, plan.insns, block);
                if (flags & RETIRE_TB_LOADS) {
                    r->misses = r->misses_armed = c->misses(env);
                }
                if (plan.action == RETIRE_PLAN_DUE) {
                    r->block = *block;
                    retire_set_due(r);
                }
                r->foreseen = plan.foreseen;
                /* The block may be chained to others of its kind only. */
                env->retire_flags = flags;
                return;
            }
            plan.insns = 0;
        }
    }

    r->step = plan.insns;
    tb = tcg_tb_lookup(ra);
    if (tb_cflags(tb) & CF_USE_ICOUNT) {
        cs->neg.icount_decr.u16.low += tb->icount;
    } else if (r->step && r->ip_span == UINT64_MAX) {
        /*
         * All the way to the event in one block, see retire_init_disas(); if a
         * signal comes first, its handler has that block.
         */
        choose_next_tb(cs, tb, r->step, 0);
    }
    cpu_sync_retire(env);
    cpu_loop_exit(cs);
}

static inline void set_block(RetireBlock *block, uint32_t desc, uint64_t ip,
                             uint64_t len0)
{
    block->ip = ip;
    block->lengths[0] = len0;
    block->insns = desc >> RETIRE_DESC_INSNS_SHIFT;
    block->branch = desc & RETIRE_DESC_BRANCH;
    block->late = desc & RETIRE_DESC_LATE;
}

static void __attribute__((noinline))
trip_short(CPUX86State *env, uint32_t desc, uint64_t ip, uint64_t len0,
           uintptr_t ra)
{
    RetireBlock block;

    set_block(&block, desc, ip, len0);
    trip(env, &block, desc, ra);
}

/* Whether the next block that trips may run. */
static inline bool foreseen(CPUX86State *env, uint32_t desc)
{
    return env->retire.foreseen &&
           !(desc & (RETIRE_DESC_LATE | RETIRE_DESC_DIVIDED)) &&
           likely(!cpu_loop_exit_requested(env_cpu(env)));
}

/*
 * The fuse has tripped at the start of a block of up to 16 instructions, or it
 * is not to be taken off; @ip and @len0 are those of RetireBlock.
 */
void helper_retire_trip(CPUX86State *env, uint32_t desc, target_ulong ip,
                        uint64_t len0)
{
    if (foreseen(env, desc)) {
        set_block(&env->retire.block, desc, ip, len0);
        retire_set_due(&env->retire);
    } else {
        trip_short(env, desc, ip, len0, GETPC());
    }
}

/* The same for any block. */
void helper_retire_trip_long(CPUX86State *env, uint32_t desc, target_ulong ip,
                             uint64_t len0, uint64_t len1, uint64_t len2,
                             uint64_t len3)
{
    RetireBlock block;

    set_block(&block, desc, ip, len0);
    block.lengths[1] = len1;
    block.lengths[2] = len2;
    block.lengths[3] = len3;
    if (foreseen(env, desc)) {
        env->retire.block = block;
        retire_set_due(&env->retire);
    } else {
        trip(env, &block, desc, GETPC());
    }
}

/*
 * The instruction at @ip has retired, everything but a trap for EFLAGS.TF is
 * done, and EIP is that of the next one: a #PF raised here is between the two.
 */
void helper_retire(CPUX86State *env, target_ulong ip, uint32_t desc)
{
    RetireState *r = &env->retire;

    if (env->retire_flags) {
        RetireInsn insn = retire_insn(env, ip, desc);

        r->step -= MIN(r->step, retire_ahead(r) + 1);
        retire_cpu_settle(env);
        consumer(env)->retired(env, &insn, (desc & RETIRE_DESC_TF) ||
                                           env_cpu(env)->watchpoint_hit);
        if (!r->step ||
            retire_tb_mode(env->retire_flags) == RETIRE_BOUNDARY) {
            cpu_sync_retire(env);
        }
    }
}

/*
 * A REP string instruction at @ip is left before it has finished, and begins
 * again; @insns of its block have been counted too much.
 */
void helper_retire_repeat(CPUX86State *env, uint32_t insns, target_ulong ip)
{
    RetireState *r = &env->retire;

    if (insns) {
        if (retire_eligible(r, ip)) {
            retire_give_back(r, insns, RETIRE_BRANCH_NONE);
        }
        if (env->retire_flags & RETIRE_TB_ACCESSES) {
            retire_rows_repeat(env, false);
        }
    } else if (r->step) {
        r->step -= MIN(r->step, retire_ahead(r));
        retire_cpu_settle(env);
        if (env->retire_flags & RETIRE_TB_ACCESSES) {
            retire_rows_repeat(env, true);
        }
        if (consumer(env)->distance(env)) {
            /* An iteration has been run alone; go on with blocks. */
            r->step = 0;
        }
        cpu_sync_retire(env);
    } else if (env->retire_flags & RETIRE_TB_ACCESSES) {
        retire_cpu_count(env);
        retire_rows_repeat(env, true);
        cpu_sync_retire(env);
    }
}

/* A load, a store, or a load and a store of the same bytes. */
typedef struct Access {
    CPUX86State *env;
    uint64_t addr;          /* linear */
    unsigned size;          /* of one load or store */
    bool load, store;
    bool late;              /* the instruction has not been counted ahead */
    uint16_t offset;        /* its address in the page, if counted by row */
    int mmu_idx;
    uintptr_t ra;
} Access;

/* A line of an access. */
typedef struct Line {
    uint64_t addr;          /* of the first byte, linear */
    uint64_t line;          /* physical */
    bool memory;            /* or else a device */
} Line;

/* Find the physical line of an address; false if the access will fault. */
static inline bool physical_line(CPUX86State *env, Line *l, int mmu_idx)
{
#ifdef CONFIG_USER_ONLY
    l->line = l->addr >> RETIRE_LINE_BITS;
    l->memory = true;
    return true;
#else
    CPUTLBEntryFull *full;
    void *host;
    /* Looking for a page must not change what an exception reports. */
    int error_code = env->error_code;
    int flags = probe_access_full_mmu(env, l->addr, 1, MMU_DATA_LOAD,
                                      mmu_idx, &host, &full);

    env->error_code = error_code;
    if (flags & TLB_INVALID_MASK) {
        return false;
    }
    l->line = (full->phys_addr | (l->addr & ~TARGET_PAGE_MASK)) >>
              RETIRE_LINE_BITS;
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

/* Whether the instruction has not been counted ahead. */
static bool insn_late(CPUX86State *env, uintptr_t ra)
{
    uint64_t start[INSN_START_WORDS];

    cpu_unwind_state_data(env_cpu(env), ra, start);
    return !RETIRE_INSN_START_INSNS(start[1]);
}

/* The effective address of the instruction, and what its insn_start has. */
static uint64_t insn_start(const Access *a, uint64_t start[INSN_START_WORDS])
{
    CPUX86State *env = a->env;
    uint64_t cs_base = env->segs[R_CS].base;

    cpu_unwind_state_data(env_cpu(env), a->ra, start);
    if (tcg_cflags_has(env_cpu(env), CF_PCREL)) {
        start[0] |= (env->eip + cs_base) & TARGET_PAGE_MASK;
    }
    return env->hflags & HF_CS64_MASK ? start[0] :
           (uint32_t)(start[0] - cs_base);
}

/* Execute the instruction again, in a block of its own. */
static G_NORETURN void restart(const Access *a)
{
    CPUState *cs = env_cpu(a->env);

    cpu_restore_state(cs, a->ra);
    retire_cpu_settle(a->env);
    a->env->retire.step = 1;
    cpu_sync_retire(a->env);
    /* Plugins have been told of the instruction. */
    choose_next_tb(cs, tcg_tb_lookup(a->ra), 1, CF_MEMI_ONLY | CF_NOIRQ);
    cpu_loop_exit(cs);
}

/* The lines of an access; 0 if it is not going to succeed. */
static int find_lines(const Access *a, Line lines[2])
{
    uint64_t last = a->addr + a->size - 1;
    int n = (a->addr ^ last) >> RETIRE_LINE_BITS ? 2 : 1;

    lines[0].addr = a->addr;
    lines[1].addr = last & -(uint64_t)RETIRE_LINE_SIZE;
    for (int i = 0; i < n; i++) {
        if (!physical_line(a->env, &lines[i], a->mmu_idx)) {
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
static void add_miss(const Access *a, RetireMiss *miss, const Line *line,
                     RetireSource source)
{
    if (!miss->clocks) {
        miss->addr = line->addr;
        miss->source = source;
    }
    miss->clocks += a->env->retire_config.latency[source];
}

static void note(const Access *a, RetireMemory what)
{
    retire_note(&a->env->retire, retire_row(a->env), a->offset, what);
}

/* For who counts by row: what has become of an access to @n lines. */
static void note_sources(const Access *a, const RetireSource *source, int n)
{
    static const RetireMemory loads[] = {
        [RETIRE_SOURCE_L2] = RETIRE_LOAD_L2,
        [RETIRE_SOURCE_L3] = RETIRE_LOAD_L3,
        [RETIRE_SOURCE_REMOTE] = RETIRE_LOAD_REMOTE,
        [RETIRE_SOURCE_DRAM] = RETIRE_LOAD_DRAM,
        [RETIRE_SOURCE_OTHER] = RETIRE_LOAD_OTHER,
    };
    bool missed = false;

    if (n == 2 && a->load) {
        note(a, RETIRE_SPLIT_LOADS);
    }
    if (n == 2 && a->store) {
        note(a, RETIRE_SPLIT_STORES);
    }
    for (int i = 0; i < n; i++) {
        if (source[i] == RETIRE_SOURCE_L1) {
            continue;
        }
        if (a->load && !missed) {
            note(a, loads[source[i]]);
        }
        missed = true;
        /* L1D has the line, whether the instruction retires or not. */
        if (source[i] != RETIRE_SOURCE_OTHER) {
            RetireMemory fill = source[i] == RETIRE_SOURCE_L2 ?
                                RETIRE_FILL_L2 : RETIRE_FILL_FAR;

            a->env->retire.noted[retire_row(a->env)][fill]++;
        }
    }
}

static void do_miss(const Access *a, RetireMiss *miss)
{
    CPUX86State *env = a->env;
    const RetireConsumer *c = consumer(env);
    RetireState *r = &env->retire;
    bool boundary = false;

    if (c->miss(env, miss, &boundary)) {
        /* The fuse is shorter now; what has been counted ahead stays so. */
        retire_arm(r, c->distance(env));
    }
    if (boundary && a->late) {
        /* The next iteration of a REP is another boundary. */
        retire_cpu_set_mode(env, RETIRE_BOUNDARY, true);
    }
    r->misses = r->misses_armed = c->misses(env);
}

/*
 * Access the caches, for one load or store.  A load that misses counts once,
 * for the lowest address.
 */
static void access_caches(const Access *a)
{
    CPUX86State *env = a->env;
    const RetireConsumer *c = consumer(env);
    RetireCache *cache = env_archcpu(env)->retire_cache;
    RetireState *r = &env->retire;
    uint32_t ahead = r->due ? UINT32_MAX : retire_ahead(r);
    bool told = env->retire_flags & RETIRE_TB_LOADS;
    RetireMiss miss = { };
    RetireSource sources[2];
    uint64_t start[INSN_START_WORDS];
    Line lines[2];
    int n = find_lines(a, lines);
    bool due;

    if (r->misses != r->misses_armed) {
        c->count_misses(env, r->misses_armed - r->misses);
        r->misses_armed = r->misses;
    }
    due = told && c->miss_due(env, ahead, NULL);
    if (told && (due || a->late || r->ip_span != UINT64_MAX)) {
        miss.ip = insn_start(a, start);
    }

    /* Unless retired() is next anyway, an event wants the block to end. */
    if (unlikely(due) && a->load && !a->late) {
        RetireMiss expected = miss;

        for (int i = 0; i < n; i++) {
            RetireSource source = RETIRE_SOURCE_OTHER;

            if (lines[i].memory) {
                source = retire_cache_peek(cache, lines[i].line);
            }
            if (source != RETIRE_SOURCE_L1) {
                add_miss(a, &expected, &lines[i], source);
            }
        }
        if (expected.clocks && c->miss_due(env, ahead, &expected)) {
            restart(a);
        }
    }

    for (int i = 0; i < n; i++) {
        RetireSource source = RETIRE_SOURCE_OTHER;

        if (lines[i].memory) {
            source = retire_cache_access(cache, lines[i].line, lines[i].addr,
                                         a->store);
            if (source == RETIRE_SOURCE_UNKNOWN) {
                if (!mapped(lines[i].addr)) {
                    return;
                }
                source = retire_cache_fill(cache, lines[i].line, lines[i].addr,
                                           a->store);
            }
        }
        sources[i] = source;
        if (a->load && source != RETIRE_SOURCE_L1) {
            add_miss(a, &miss, &lines[i], source);
        }
    }
    if (env->retire_flags & RETIRE_TB_CACHES) {
        note_sources(a, sources, n);
    }
    if (told && miss.clocks) {
        do_miss(a, &miss);
    }
}

#ifdef CONFIG_USER_ONLY
/*
 * For one who is alone: an access to two lines of a page, of which translated
 * code would find one.  Returns whether it is done.
 */
static bool access_two_lines(CPUX86State *env, uint64_t addr, bool load)
{
    RetireFilter *f = &env->retire_filter;
    uint64_t last = addr | (RETIRE_LINE_SIZE - 1), next = last + 1;
    RetireSource source;

    if (!(next & ~TARGET_PAGE_MASK)) {
        return false;
    }
    if (retire_filter_has(f, addr)) {
        source = retire_filter_has(f, next) ? RETIRE_SOURCE_L1 :
                 retire_filter_access(f, next >> RETIRE_LINE_BITS, next,
                                      retire_ways_use);
    } else if (retire_filter_has(f, next)) {
        source = retire_filter_access(f, addr >> RETIRE_LINE_BITS, addr,
                                      retire_ways_use);
    } else {
        return false;
    }
    env->retire.misses -= load && source == RETIRE_SOURCE_L2;
    return source != RETIRE_SOURCE_UNKNOWN;
}
#endif

/* Not inline: few accesses come here, and all would save registers. */
static void __attribute__((noinline))
access_unknown(CPUX86State *env, uint64_t addr, uint32_t desc, uintptr_t ra)
{
    bool load = desc & RETIRE_ACCESS_LOAD;
    bool store = desc & RETIRE_ACCESS_STORE;

#ifdef CONFIG_USER_ONLY
    RetireState *r = &env->retire;

    /* The same as access_caches() for most of them, but faster. */
    if (r->misses > 0 && !env->retire_filter.has_ways &&
        (addr & (RETIRE_LINE_SIZE - 1)) <= (desc & TCG_MEM_FILTER_LIMIT)) {
        switch (retire_cache_access(env_archcpu(env)->retire_cache,
                                    addr >> RETIRE_LINE_BITS, addr, store)) {
        case RETIRE_SOURCE_L2:
            r->misses -= load;
            return;
        case RETIRE_SOURCE_L1:
            return;
        default:
            break;
        }
    }
    if (r->misses > 0 && env->retire_filter.has_ways &&
        (addr & (RETIRE_LINE_SIZE - 1)) > (desc & TCG_MEM_FILTER_LIMIT) &&
        access_two_lines(env, addr, load)) {
        return;
    }
#endif
    access_caches(&(Access) {
        .env = env,
        .addr = addr,
        .size = RETIRE_LINE_SIZE - (desc & TCG_MEM_FILTER_LIMIT),
        .load = load,
        .store = store,
        /* In a step of several instructions, only the last one is. */
        .late = (desc & RETIRE_ACCESS_LATE) && insn_late(env, ra),
        .offset = desc >> RETIRE_ACCESS_OFFSET_SHIFT,
        .mmu_idx = retire_access_mmu_idx(desc),
        .ra = ra,
    });
}

/* The same for one who is alone, even faster */
static inline QEMU_ALWAYS_INLINE void
filter_miss(CPUX86State *env, uint64_t addr, uint32_t desc, uintptr_t ra,
            bool (*use)(uint64_t way[4], uint64_t word))
{
    RetireState *r = &env->retire;
    RetireFilter *f = &env->retire_filter;
    bool load = desc & RETIRE_ACCESS_LOAD;
    Line line = { .addr = addr };

    if (f->has_ways &&
        (r->misses > 0 || !(env->retire_flags & RETIRE_TB_LOADS)) &&
        (addr & (RETIRE_LINE_SIZE - 1)) <= (desc & TCG_MEM_FILTER_LIMIT) &&
        physical_line(env, &line, retire_access_mmu_idx(desc)) && line.memory) {
        RetireSource source = retire_filter_access(f, line.line, addr, use);

        if (source == RETIRE_SOURCE_L1) {
            return;
        }
        if (source == RETIRE_SOURCE_L2) {
            r->misses -= load && (env->retire_flags & RETIRE_TB_LOADS);
            if (env->retire_flags & RETIRE_TB_CACHES) {
                note_sources(&(Access) {
                    .env = env,
                    .load = load,
                    .store = desc & RETIRE_ACCESS_STORE,
                    .offset = desc >> RETIRE_ACCESS_OFFSET_SHIFT,
                }, &source, 1);
            }
            return;
        }
    }
    access_unknown(env, addr, desc, ra);
}

/* Two functions, so that choosing one of them saves no registers. */
static void __attribute__((noinline))
filter_miss_plain(CPUX86State *env, uint64_t addr, uint32_t desc, uintptr_t ra)
{
    filter_miss(env, addr, desc, ra, retire_ways_use);
}

#ifdef RETIRE_WAYS_AVX2
static void __attribute__((target("avx2")))
filter_miss_avx2(CPUX86State *env, uint64_t addr, uint32_t desc, uintptr_t ra)
{
    filter_miss(env, addr, desc, ra, retire_ways_use_avx2);
}
#endif

void retire_filter_miss(CPUX86State *env, uint64_t addr, uint32_t desc,
                        uintptr_t ra)
{
#ifdef RETIRE_WAYS_AVX2
    if (cpuinfo & CPUINFO_AVX2) {
        filter_miss_avx2(env, addr, desc, ra);
        return;
    }
#endif
    filter_miss_plain(env, addr, desc, ra);
}

/* The same where the backend has no such test. */
void helper_retire_filter_miss(CPUX86State *env, uint64_t addr, uint32_t desc)
{
    retire_filter_miss(env, addr, desc, GETPC());
}

/* CLFLUSH, CLFLUSHOPT: what is not mapped is in no cache. */
void helper_retire_clflush(CPUX86State *env, target_ulong addr)
{
    Line l = { .addr = addr };

    if (physical_line(env, &l, cpu_mmu_index(env_cpu(env), false))) {
        retire_flush_line(l.line);
    }
}

/* WBINVD, INVD; WBNOINVD, which is a WBINVD with a prefix, keeps the lines. */
void helper_retire_wbinvd(CPUX86State *env, uint32_t rep)
{
    if (!rep || !(env->features[FEAT_8000_0008_EBX] &
                  CPUID_8000_0008_EBX_WBNOINVD)) {
        retire_cpu_flush_caches(env_archcpu(env));
    }
}

void retire_cpu_access(CPUX86State *env, vaddr addr, unsigned size,
                       MMUAccessType type, uintptr_t ra)
{
    Access a = {
        .env = env,
        .addr = addr,
        .size = size,
        .load = type == MMU_DATA_LOAD,
        .store = type == MMU_DATA_STORE,
        .ra = ra,
    };
    const RetireSlot *slot =
        &env->retire_filter.slot[(addr >> RETIRE_LINE_BITS) % RETIRE_NR_SLOTS];
    uint64_t start[INSN_START_WORDS];
    bool caches = env->retire_flags & (RETIRE_TB_LOADS | RETIRE_TB_CACHES);
    bool accesses = env->retire_flags & RETIRE_TB_ACCESSES;

    if (!accesses && size <= RETIRE_LINE_SIZE &&
        ((a.load ? slot->load : slot->store) ^ addr) <=
        RETIRE_LINE_SIZE - size) {
        return;
    }
    a.offset = insn_start(&a, start) & ~TARGET_PAGE_MASK;
    a.late = !RETIRE_INSN_START_INSNS(start[1]);
    a.mmu_idx = cpu_mmu_index(env_cpu(env), false);
    /* FXRSTOR and its like are many loads. */
    do {
        a.size = size;
        if (size > 32) {
            a.size = MIN(size, -(a.addr | -(uint64_t)RETIRE_LINE_SIZE));
        }
        if (accesses) {
            note(&a, a.load ? RETIRE_LOADS : RETIRE_STORES);
        }
        if (caches) {
            access_caches(&a);
        }
        size -= a.size;
        a.addr += a.size;
    } while (size);
}

uint16_t retire_lduw_mmuidx(CPUX86State *env, vaddr addr, int mmu_idx,
                            uintptr_t ra)
{
    retire_access(env, addr, 2, MMU_DATA_LOAD, ra);
    return cpu_lduw_le_mmuidx_ra(env, addr, mmu_idx, ra);
}

uint32_t retire_ldl_mmuidx(CPUX86State *env, vaddr addr, int mmu_idx,
                           uintptr_t ra)
{
    retire_access(env, addr, 4, MMU_DATA_LOAD, ra);
    return cpu_ldl_le_mmuidx_ra(env, addr, mmu_idx, ra);
}

uint64_t retire_ldq_mmuidx(CPUX86State *env, vaddr addr, int mmu_idx,
                           uintptr_t ra)
{
    retire_access(env, addr, 8, MMU_DATA_LOAD, ra);
    return cpu_ldq_le_mmuidx_ra(env, addr, mmu_idx, ra);
}

void retire_cpu_settle(CPUX86State *env)
{
    RetireCount n = retire_take(&env->retire);
    int error_code = env->error_code;

    consumer(env)->settle(env, &n);
    /* It belongs to the exception that is going to be delivered. */
    env->error_code = error_code;
}

void retire_leave(CPUX86State *env)
{
    if (env->retire_flags) {
        env->retire.foreseen = false;
        consumer(env)->leave(env);
    }
}

void retire_exec_exit(CPUX86State *env)
{
    CPUState *cs = env_cpu(env);

#ifndef CONFIG_USER_ONLY
    /* In user mode emulation, memory can be accessed inside the loop only. */
    retire_settle(env);
#endif
    retire_leave(env);
    /* What trip() has planned is not for whoever enters the loop next. */
    if (!(cs->cflags_next_tb & CF_NOIRQ)) {
        cs->cflags_next_tb = -1;
    }
}

#ifndef CONFIG_USER_ONLY
bool retire_tb_left(CPUState *cs, const TranslationBlock *tb)
{
    CPUX86State *env = cpu_env(cs);
    RetireState *r = &env->retire;

    if (!retire_tb_leaves(tb->cs_base, tb_cflags(tb)) ||
        cpu_loop_exit_requested(cs)) {
        return false;
    }
    cpu_sync_retire(env);
    r->step = retire_rows_step(env, tb->icount);
    if (r->step) {
        choose_next_tb(cs, tb, r->step, 0);
        cpu_sync_retire(env);
    } else if (r->fuse < RETIRE_FUSE(tb->icount, 0)) {
        /* A branch that matters may be the last one of this block. */
        retire_arm(r, tb->icount);
    }
    return true;
}

void retire_exit_requested(CPUState *cs)
{
    CPUX86State *env = cpu_env(cs);

    /*
     * Blocks that have a fuse may have no other check.  If another thread asks,
     * it is soon enough when the fuse trips by itself.
     */
    if (env->retire_flags && qemu_cpu_is_self(cs)) {
        retire_expire(&env->retire);
    }
}
#endif
