/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: accesses to memory, on their way to the model of caches. */

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

/* A load, a store, or a load and a store of the same bytes. */
typedef struct Access {
    CPUX86State *env;
    uint64_t addr;          /* linear */
    unsigned size;          /* of one load or store */
    bool load, store;
    bool locked;
    bool late;              /* the instruction has not been charged */
    bool story;             /* it is observed, and somebody wants its story */
    uint16_t offset;        /* its address in the page, if counted */
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

/*
 * Whether the page of an address is there.  physical_line() does not ask in
 * user mode emulation, because looking for a page takes long; lines that some
 * cache has need not ask at all.
 */
static bool mapped(uint64_t addr)
{
#ifdef CONFIG_USER_ONLY
    return guest_addr_valid_untagged(addr) &&
           (page_get_flags(addr) & (PAGE_READ | PAGE_WRITE));
#else
    return true;
#endif
}

/* Whether the instruction has not been charged. */
static bool insn_late(CPUX86State *env, uintptr_t ra)
{
    uint64_t start[INSN_START_WORDS];

    cpu_unwind_state_data(env_cpu(env), ra, start);
    return !RETIRE_INSN_START_INSNS(start[1]);
}

/* The effective address of the instruction, and what its insn_start has. */
static uint64_t retire_access_ip(const Access *a,
                                 uint64_t start[INSN_START_WORDS])
{
    CPUX86State *env = a->env;
    /* In 64-bit mode, CS has no base, whatever its descriptor had. */
    uint64_t cs_base = env->hflags & HF_CS64_MASK ? 0 :
                       (uint32_t)env->segs[R_CS].base;

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
    CPUX86State *env = a->env;
    CPUState *cs = env_cpu(env);
    uint32_t cflags = tb_cflags(tcg_tb_lookup(a->ra));

    cpu_restore_state(cs, a->ra);
    retire_cpu_sync(env, 1);
    if (!cpu_in_exclusive_context(cs) && !cpu_loop_exit_requested(cs)) {
        /* CF_MEMI_ONLY, because plugins have seen the instruction begin. */
        cs->cflags_next_tb = (cflags & ~(CF_COUNT_MASK | CF_INVALID)) |
                             CF_MEMI_ONLY | CF_NOIRQ | 1;
    }
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
        /*
         * io_recompile() is going to translate the instruction again, as the
         * last one of a block, and then the access comes here a second time.
         */
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
    miss->clocks += env_archcpu(a->env)->retire_config.latency[source];
}

static void retire_access_note(const Access *a, RetireMemory what)
{
    retire_note(&a->env->retire, retire_row(a->env), a->offset, what);
}

/* RETIRE_WANT_ACCESSES: count where the @n lines of an access were. */
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
        retire_access_note(a, RETIRE_SPLIT_LOADS);
    }
    if (n == 2 && a->store) {
        retire_access_note(a, RETIRE_SPLIT_STORES);
    }
    for (int i = 0; i < n; i++) {
        if (source[i] == RETIRE_SOURCE_L1) {
            continue;
        }
        if (a->load && !missed) {
            retire_access_note(a, loads[source[i]]);
        }
        missed = true;
        /*
         * Not retire_note(), because L1D keeps the line even if the instruction
         * does not retire.
         */
        if (source[i] != RETIRE_SOURCE_OTHER) {
            RetireMemory fill = source[i] == RETIRE_SOURCE_L2 ?
                                RETIRE_FILL_L2 : RETIRE_FILL_FAR;

            a->env->retire.noted[retire_row(a->env)][fill]++;
        }
    }
}

/* Whether @miss makes it necessary, for any observer, to observe its load. */
static bool miss_due(CPUX86State *env, const RetireMiss *miss)
{
    uint32_t ahead = retire_ahead(&env->retire);
    bool due = false;

    RETIRE_FOREACH_TOLD(env, o) {
        due |= (*o)->miss_due && (*o)->miss_due(env, ahead, miss);
    }
    return due;
}

static void do_miss(CPUX86State *env, const RetireMiss *miss)
{
    RetireDistance d;

    RETIRE_FOREACH_TOLD(env, o) {
        if ((*o)->miss) {
            (*o)->miss(env, miss);
        }
    }
    /* The miss has shortened the distance. */
    retire_cpu_arm(env, &d);
}

static void add_to_story(const Access *a, const Line *lines, int n,
                         RetireSource source, uint32_t clocks)
{
    RetireAccesses *told = &retire_models(a->env)->accesses;

    if (told->nr++ < RETIRE_STORY_ACCESSES) {
        told->access[told->nr - 1] = (RetireAccess) {
            .addr = a->addr,
            .physical = lines->line << RETIRE_LINE_BITS |
                        (a->addr & (RETIRE_LINE_SIZE - 1)),
            .source = source,
            .clocks = clocks,
            .size = a->size,
            .load = a->load,
            .store = a->store,
            .locked = a->locked,
            .split = n == 2,
        };
    }
}

/*
 * Access the caches, for one load or store.  A load that misses in both of its
 * lines is one miss, at the lower address.
 */
static void access_caches(const Access *a)
{
    CPUX86State *env = a->env;
    RetireCache *cache = env_archcpu(env)->retire_cache;
    RetireMiss miss = { };
    RetireSource sources[2];
    uint64_t start[INSN_START_WORDS];
    Line lines[2];
    int n = find_lines(a, lines);
    bool due;

    retire_cpu_settle_misses(env);
    due = miss_due(env, NULL);
    if (due || a->late || env->retire.ip_span != UINT64_MAX) {
        miss.ip = retire_access_ip(a, start);
    }

    /*
     * If this miss makes an event due, its instruction has to be observed.  One
     * that is late is observed anyway.
     */
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
        if (expected.clocks && miss_due(env, &expected)) {
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
    if (retire_wants(env, RETIRE_WANT_ACCESSES)) {
        note_sources(a, sources, n);
    }
    if (a->story && n) {
        add_to_story(a, lines, n,
                     sources[sources[0] == RETIRE_SOURCE_L1 ? n - 1 : 0],
                     miss.clocks);
    }
    if (miss.clocks) {
        do_miss(env, &miss);
    }
}

static void show_access(const Access *a)
{
    Line lines[2];
    int n;

    if (retire_wants(a->env, RETIRE_WANT_SOURCES)) {
        access_caches(a);
    } else if (a->story) {
        n = find_lines(a, lines);
        if (n) {
            add_to_story(a, lines, n, RETIRE_SOURCE_UNKNOWN, 0);
        }
    }
}

#ifdef CONFIG_USER_ONLY
/*
 * With RetireFilter.has_ways: an access to two lines of a page, of which the
 * filter knows one.  Returns whether the access has been done, because
 * otherwise nothing has changed and access_caches() has to do it.
 */
static bool access_two_lines(CPUX86State *env, uint64_t addr, bool load)
{
    RetireFilter *f = &retire_models(env)->filter;
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
    if (load && source == RETIRE_SOURCE_L2) {
        retire_miss(&env->retire);
    }
    return source != RETIRE_SOURCE_UNKNOWN;
}
#endif

/* What translated code says of an access: show it to who wants it. */
static void access_desc(CPUX86State *env, uint64_t addr, uint32_t desc,
                        uintptr_t ra, bool story)
{
    show_access(&(Access) {
        .env = env,
        .addr = addr,
        .size = RETIRE_LINE_SIZE - (desc & TCG_MEM_FILTER_LIMIT),
        .load = desc & RETIRE_ACCESS_LOAD,
        .store = desc & RETIRE_ACCESS_STORE,
        .locked = desc & RETIRE_ACCESS_LOCKED,
        /* The flag is on all instructions of a step; the last one is late. */
        .late = (desc & RETIRE_ACCESS_LATE) && insn_late(env, ra),
        .story = story,
        .offset = desc >> RETIRE_ACCESS_OFFSET_SHIFT,
        .mmu_idx = retire_access_mmu_idx(desc),
        .ra = ra,
    });
}

/*
 * An access that filter_miss() could not do.  Not inline, because few accesses
 * come here, and all would have to save the registers that this needs.
 */
static void __attribute__((noinline))
access_unknown(CPUX86State *env, uint64_t addr, uint32_t desc, uintptr_t ra)
{
#ifdef CONFIG_USER_ONLY
    bool load = desc & RETIRE_ACCESS_LOAD;
    bool store = desc & RETIRE_ACCESS_STORE;
    RetireState *r = &env->retire;

    /* For most accesses this does what access_caches() does, but faster. */
    if (retire_may_miss(r) && !retire_models(env)->filter.has_ways &&
        (addr & (RETIRE_LINE_SIZE - 1)) <= (desc & TCG_MEM_FILTER_LIMIT)) {
        switch (retire_cache_access(env_archcpu(env)->retire_cache,
                                    addr >> RETIRE_LINE_BITS, addr, store)) {
        case RETIRE_SOURCE_L2:
            if (load) {
                retire_miss(r);
            }
            return;
        case RETIRE_SOURCE_L1:
            return;
        default:
            break;
        }
    }
    if (retire_may_miss(r) && retire_models(env)->filter.has_ways &&
        (addr & (RETIRE_LINE_SIZE - 1)) > (desc & TCG_MEM_FILTER_LIMIT) &&
        access_two_lines(env, addr, load)) {
        return;
    }
#endif
    access_desc(env, addr, desc, ra, false);
}

/* With RetireFilter.has_ways, an access that hits L1D or L2 ends here. */
static inline QEMU_ALWAYS_INLINE void
filter_miss(CPUX86State *env, uint64_t addr, uint32_t desc, uintptr_t ra,
            bool (*use)(uint64_t way[4], uint64_t word))
{
    RetireState *r = &env->retire;
    RetireFilter *f = &retire_models(env)->filter;
    bool load = desc & RETIRE_ACCESS_LOAD;
    Line line = { .addr = addr };

    if (f->has_ways && retire_may_miss(r) &&
        (addr & (RETIRE_LINE_SIZE - 1)) <= (desc & TCG_MEM_FILTER_LIMIT) &&
        physical_line(env, &line, retire_access_mmu_idx(desc)) && line.memory) {
        RetireSource source = retire_filter_access(f, line.line, addr, use);

        if (source == RETIRE_SOURCE_L1) {
            return;
        }
        if (source == RETIRE_SOURCE_L2) {
            if (load) {
                retire_miss(r);
            }
            if (retire_wants(env, RETIRE_WANT_ACCESSES)) {
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

/*
 * Two functions that are not inline, because retire_filter_miss(), which
 * chooses one of them, then has no registers to save.
 */
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

/* Calls retire_filter_miss(), for blocks that test the filter themselves. */
void helper_retire_filter_miss(CPUX86State *env, uint64_t addr, uint32_t desc)
{
    retire_filter_miss(env, addr, desc, GETPC());
}

/* An access of an instruction that may be observed, for its story */
void helper_retire_story(CPUX86State *env, uint64_t addr, uint32_t desc)
{
    access_desc(env, addr, desc, GETPC(), true);
}

/* CLFLUSH, CLFLUSHOPT: what is not mapped is in no cache. */
void helper_retire_clflush(CPUX86State *env, target_ulong addr)
{
    Line l = { .addr = addr };

    if (physical_line(env, &l, cpu_mmu_index(env_cpu(env), false))) {
        retire_flush_line(l.line);
    }
}

/* WBINVD, INVD.  WBNOINVD, which is WBINVD with @rep, keeps the lines. */
void helper_retire_wbinvd(CPUX86State *env, uint32_t rep)
{
    if (!rep || !(env->features[FEAT_8000_0008_EBX] &
                  CPUID_8000_0008_EBX_WBNOINVD)) {
        retire_cache_flush(env_archcpu(env)->retire_cache);
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
        &retire_models(env)->filter.slot[(addr >> RETIRE_LINE_BITS) %
                                         RETIRE_NR_SLOTS];
    uint64_t start[INSN_START_WORDS];
    bool accesses = retire_wants(env, RETIRE_WANT_ACCESSES);
    bool story = retire_wants(env, RETIRE_WANT_STORY);

    if (!accesses && !story && size <= RETIRE_LINE_SIZE &&
        ((a.load ? slot->load : slot->store) ^ addr) <=
        RETIRE_LINE_SIZE - size) {
        return;
    }
    a.offset = retire_access_ip(&a, start) & ~TARGET_PAGE_MASK;
    a.late = !RETIRE_INSN_START_INSNS(start[1]);
    a.story = story && a.late;
    a.mmu_idx = cpu_mmu_index(env_cpu(env), false);
    /* FXRSTOR and its like count as a load for each line. */
    do {
        a.size = size;
        if (size > 32) {
            a.size = MIN(size, -(a.addr | -(uint64_t)RETIRE_LINE_SIZE));
        }
        if (accesses) {
            retire_access_note(&a, a.load ? RETIRE_LOADS : RETIRE_STORES);
        }
        show_access(&a);
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
