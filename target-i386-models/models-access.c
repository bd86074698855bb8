/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Accesses to memory, on their way to the models of caches and TLBs.  An
 * access is its linear address and a descriptor (RETIRE_ACCESS_LOAD and so on).
 */

#include "qemu/osdep.h"
#include "host/cpuinfo.h"
#if defined(CPUINFO_AVX2) && defined(CONFIG_AVX2_OPT)
#define RETIRE_WAYS_AVX2
#endif
#include "models.h"
#include "retire/compat.h"
#include "retire/retire-mem.h"
#include "exec/helper-proto.h"
#ifdef CONFIG_USER_ONLY
#include "exec/page-protection.h"
#include "user/page-protection.h"
#endif
#include "accel/tcg/cpu-ops.h"
#include "accel/tcg/tb-context.h"
#include "tcg/insn-start-words.h"
#include "tcg/tcg.h"
#include "tcg/helper-tcg.h"

/* A line of an access */
typedef struct Line {
    uint64_t addr;          /* of the first byte, linear */
    uint64_t line;          /* physical */
    uint64_t code;          /* the same as L1I has it, which is of QEMU's RAM */
    bool memory;            /* or else a device */
    RetireSource source;
    bool modified;          /* RETIRE_SOURCE_REMOTE has written to it */
    RetirePage page;
    RetireTlbResult tlb;
} Line;

static unsigned access_size(uint32_t desc)
{
    return RETIRE_LINE_SIZE - (desc & RETIRE_ACCESS_LIMIT);
}

static int access_mmu_idx(uint32_t desc)
{
    return desc >> RETIRE_ACCESS_MMU_IDX_SHIFT & 31;
}

/*
 * Find the physical line of an address; false if the access will fault.  In
 * user mode emulation, find_lines() asks for the page, because that takes long.
 */
static inline bool physical_line(CPUX86State *env, Line *l,
                                 MMUAccessType type, int mmu_idx)
{
#ifdef CONFIG_USER_ONLY
    l->line = l->addr >> RETIRE_LINE_BITS;
    l->memory = true;
    l->page = (RetirePage) { TARGET_PAGE_BITS, false };
    return true;
#else
    int flags;
    const CPUTLBEntryFull *full = retire_mem_full(env, l->addr, type, mmu_idx,
                                                  &flags);

    if (!full) {
        return false;
    }
    l->line = (full->phys_addr | (l->addr & ~TARGET_PAGE_MASK)) >>
              RETIRE_LINE_BITS;
    l->code = (full->xlat_offset + l->addr) >> RETIRE_LINE_BITS;
    l->memory = !(flags & TLB_MMIO);
    l->page = (RetirePage) {
        full->lg_page_size, full->extra.x86.global
    };
    return true;
#endif
}

/*
 * Whether there is nothing else to be done for the page of a line, because DTLB
 * has it; or, without paging, there is none.
 */
static inline bool page_is_used(CPUX86State *env, const Line *l)
{
    RetireTlb *t = &retire_models(env)->tlb;

    return !t->data || !(env->cr[0] & CR0_PG_MASK) ||
           retire_tlb_try(t, l->addr, l->page);
}

static void use_page(CPUX86State *env, Line *l)
{
    if (!page_is_used(env, l)) {
        l->tlb = retire_tlb_data(&retire_models(env)->tlb, l->addr, l->page);
    }
}

/* It is empty if there has been a flush. */
static RetireCode *retire_code(CPUX86State *env)
{
    RetireCode *code = &retire_models(env)->code;
    unsigned flushes = qatomic_read(&tb_ctx.tb_flush_count);

    if (unlikely(code->flushes != flushes)) {
        *code = (RetireCode) { .flushes = flushes };
    }
    return code;
}

/* The effective address of the instruction, and what its insn_start has. */
static uint64_t retire_access_ip(CPUX86State *env, uintptr_t ra,
                                 uint64_t start[INSN_START_WORDS])
{
    uint64_t cs_base = retire_cs_base(env);
    RetireCode *code = retire_code(env);

    /* What helpers access for one instruction has the same. */
    if (code->ra == ra) {
        memcpy(start, code->start, sizeof(code->start));
    } else if (cpu_unwind_state_data(env_cpu(env), ra, start)) {
        memcpy(code->start, start, sizeof(code->start));
        code->ra = ra;
    }
    if (tcg_cflags_has(env_cpu(env), CF_PCREL)) {
        start[0] |= (env->eip + cs_base) & TARGET_PAGE_MASK;
    }
    return env->hflags & HF_CS64_MASK ? start[0] :
           (uint32_t)(start[0] - cs_base);
}

/* The lines of an access; 0 if it is not going to succeed. */
static int find_lines(CPUX86State *env, uint64_t addr, uint32_t desc,
                      Line lines[2])
{
    uint64_t last = addr + access_size(desc) - 1;
    int n = (addr ^ last) >> RETIRE_LINE_BITS ? 2 : 1;

    for (int i = 0; i < n; i++) {
        lines[i].addr = i ? last & -(uint64_t)RETIRE_LINE_SIZE : addr;
        lines[i].source = RETIRE_SOURCE_UNKNOWN;
        lines[i].modified = false;
        lines[i].tlb = RETIRE_TLB_L1;
        if (!physical_line(env, &lines[i], MMU_DATA_LOAD,
                           access_mmu_idx(desc))) {
            return 0;
        }
#ifdef CONFIG_USER_ONLY
        if (!guest_addr_valid_untagged(lines[i].addr) ||
            !(page_get_flags(lines[i].addr) & (PAGE_READ | PAGE_WRITE))) {
            return 0;
        }
#endif
        /*
         * io_recompile() is going to translate the instruction again, as the
         * last one of a TB, and then the access comes here a second time.
         */
        if (!lines[i].memory && !env_cpu(env)->neg.can_do_io) {
            return 0;
        }
    }
    return n;
}

static void retire_access_note(CPUX86State *env, uint32_t desc,
                               RetireMemory what)
{
    retire_note(&env->retire_memory, retire_cpu_clock(env), retire_row(env),
                desc >> RETIRE_ACCESS_OFFSET_SHIFT & ~TARGET_PAGE_MASK, what);
}

/* RETIRE_WANT_ACCESSES: count the @n lines of an access, and their pages. */
static void note_lines(CPUX86State *env, uint32_t desc, const Line *lines,
                       int n)
{
    /* For what stays where it is, even if the instruction does not retire */
    uint64_t *noted = env->retire_memory.noted[retire_row(env)];
    bool load = desc & RETIRE_ACCESS_LOAD, missed = false, walk = false;

    if (n == 2 && load) {
        retire_access_note(env, desc, RETIRE_SPLIT_LOADS);
    }
    if (n == 2 && (desc & RETIRE_ACCESS_STORE)) {
        retire_access_note(env, desc, RETIRE_SPLIT_STORES);
    }
    for (const Line *l = lines; l < lines + n; l++) {
        if (l->tlb != RETIRE_TLB_L1) {
            noted[(load ? RETIRE_TLB_LOAD_L2 : RETIRE_TLB_STORE_L2) +
                  l->tlb - RETIRE_TLB_L2]++;
            walk |= l->tlb == RETIRE_TLB_WALK;
        }
        if (l->source == RETIRE_SOURCE_L1) {
            continue;
        }
        if (l->source != RETIRE_SOURCE_OTHER) {
            noted[l->source == RETIRE_SOURCE_L2 ? RETIRE_FILL_L2 :
                                                  RETIRE_FILL_FAR]++;
            if (!missed) {
                retire_access_note(env, desc,
                                   (load ? RETIRE_LOAD_L2 : RETIRE_STORE_L2) +
                                   (l->modified ?
                                    RETIRE_LOAD_MODIFIED - RETIRE_LOAD_L2 :
                                    l->source));
            }
        } else if (!missed && load) {
            retire_access_note(env, desc, RETIRE_LOAD_OTHER);
        }
        missed = true;
    }
    if (walk) {
        retire_access_note(env, desc, load ? RETIRE_STLB_MISS_LOADS :
                                             RETIRE_STLB_MISS_STORES);
    }
}

/* Whether @miss makes it necessary, for any observer, to observe its load. */
static bool miss_due(CPUX86State *env, const RetireMiss *miss)
{
    uint32_t charged = retire_charged(&env->retire, retire_left(env));
    bool due = false;

    RETIRE_FOREACH_TOLD(env, o) {
        due |= (*o)->miss_due && (*o)->miss_due(env, charged, miss);
    }
    return due;
}

/*
 * Have the caches supply the @n lines of an access, or only @peek.  A load that
 * misses in both is one miss, at the lower address.
 */
static void find_sources(CPUX86State *env, uint32_t desc, Line *lines, int n,
                         bool peek, RetireMiss *miss)
{
    RetireCache *cache = retire_models(env)->cache;
    const uint32_t *latency = env_archcpu(env)->retire_config.latency;

    miss->clocks = 0;
    for (Line *l = lines; l < lines + n; l++) {
        l->source = !l->memory ? RETIRE_SOURCE_OTHER :
                    peek ? retire_cache_peek(cache, l->line) :
                    retire_cache_access(cache, l->line, l->addr,
                                        desc & RETIRE_ACCESS_STORE);
        if (!peek) {
            l->modified = l->source == RETIRE_SOURCE_REMOTE &&
                          cache->modified;
            use_page(env, l);
        }
        if ((desc & RETIRE_ACCESS_LOAD) && l->source != RETIRE_SOURCE_L1) {
            if (!miss->clocks) {
                miss->addr = l->addr;
                miss->source = l->source;
            }
            miss->clocks += latency[l->source];
        }
    }
}

/* Whether a store to a line will not fault, see RETIRE_WANT_CODE. */
static bool is_writable(CPUX86State *env, uint64_t addr, int mmu_idx)
{
#ifdef CONFIG_USER_ONLY
    g_assert_not_reached();
#else
    CPUState *cs = env_cpu(env);
    bool can_do_io = cs->neg.can_do_io, found;
    int error_code = env->error_code;

    if (retire_mem_entry(env, addr, MMU_DATA_STORE, mmu_idx)) {
        return true;
    }
    /*
     * As in retire_mem_full(), but without probe_access(), which would have
     * QEMU take the code of the page away now.
     */
    cs->neg.can_do_io = true;
    found = x86_cpu_tlb_fill(cs, addr, 1, MMU_DATA_STORE, mmu_idx, true, 0);
    cs->neg.can_do_io = can_do_io;
    env->error_code = error_code;
    return found;
#endif
}

/* RETIRE_WANT_CODE: count a store to lines of which L1I has one or both. */
static void note_code(CPUX86State *env, uint32_t desc, const Line *lines,
                      int n)
{
    RetireMemoryState *m = &env->retire_memory;
    bool code = false;

    for (const Line *l = lines; l < lines + n; l++) {
        if (l->memory && is_writable(env, l->addr, access_mmu_idx(desc))) {
            code |= retire_code_store(&retire_models(env)->tlb, l->code);
        }
    }
    /* What is executed again has been counted the first time. */
    if (code && !(m->open.n[RETIRE_CODE_STORES] &&
                  retire_is_left(m, retire_cpu_clock(env), env->eip))) {
        retire_access_note(env, desc, RETIRE_CODE_STORES);
    }
}

static void access_caches(CPUX86State *env, uint32_t desc, uintptr_t ra,
                          Line *lines, int n, RetireMiss *miss)
{
    uint64_t start[INSN_START_WORDS];
    bool due;

    retire_cpu_settle_misses(env);
    due = miss_due(env, NULL);
    if (due) {
        miss->ip = retire_access_ip(env, ra, start);
    }
    /*
     * If this miss makes an event due, its instruction has to be observed.  One
     * that has not been charged is observed anyway.
     */
    if (unlikely(due) && RETIRE_INSN_START_INSNS(start[1])) {
        find_sources(env, desc, lines, n, true, miss);
        if (miss->clocks && miss_due(env, miss)) {
            retire_restart(env, ra, CF_MEMI_ONLY);
        }
    }
    find_sources(env, desc, lines, n, false, miss);
    if (miss->clocks && !due &&
        ((desc & RETIRE_ACCESS_OBSERVED) ||
         env->retire.ip_span != UINT64_MAX)) {
        miss->ip = retire_access_ip(env, ra, start);
    }
    if (retire_wants(env, RETIRE_WANT_ACCESSES)) {
        note_lines(env, desc, lines, n);
    }
    if (retire_models(env)->tlb.code && (desc & RETIRE_ACCESS_STORE)) {
        note_code(env, desc, lines, n);
    }
}

static void add_to_story(CPUX86State *env, uint64_t addr, uint32_t desc,
                         const Line *lines, int n, uint32_t clocks)
{
    RetireAccesses *told = &retire_models(env)->accesses;
    const Line *l = &lines[lines->source == RETIRE_SOURCE_L1 ? n - 1 : 0];
    const Line *page = &lines[lines->tlb < lines[n - 1].tlb ? n - 1 : 0];
    uint32_t i = told->nr++;

    /* What is executed again has what it missed the first time. */
    if (i < RETIRE_STORY_ACCESSES &&
        !(i < env->retire_memory.left.nr_accesses &&
          told->access[i].addr == addr &&
          retire_is_left(&env->retire_memory, retire_cpu_clock(env),
                         env->eip))) {
        told->access[i] = (RetireAccess) {
            .addr = addr,
            .physical = lines->line << RETIRE_LINE_BITS |
                        (addr & (RETIRE_LINE_SIZE - 1)),
            .source = l->source,
            .modified = l->modified,
            .clocks = clocks,
            .size = access_size(desc),
            .load = desc & RETIRE_ACCESS_LOAD,
            .store = desc & RETIRE_ACCESS_STORE,
            .locked = desc & RETIRE_ACCESS_LOCKED,
            .split = n == 2,
            .tlb = page->tlb,
            .lg_page = page->page.lg_size,
        };
    }
}

/* Show an access to who wants it, for its @story or not. */
static void show_access(CPUX86State *env, uint64_t addr, uint32_t desc,
                        uintptr_t ra, bool story)
{
    bool caches = retire_wants(env, RETIRE_WANT_SOURCES);
    RetireMiss miss = { };
    Line lines[2];
    int n = caches || story ? find_lines(env, addr, desc, lines) : 0;

    if (n && caches) {
        access_caches(env, desc, ra, lines, n, &miss);
    }
    if (n && story) {
        add_to_story(env, addr, desc, lines, n, miss.clocks);
    }
    if (miss.clocks) {
        RETIRE_FOREACH_TOLD(env, o) {
            if ((*o)->miss) {
                (*o)->miss(env, &miss);
            }
        }
        /* The miss has shortened the distance. */
        retire_cpu_arm(env);
    }
}

/* Whether nobody need hear of a load that L2 has and L1D has not */
static inline bool may_miss(CPUX86State *env)
{
    return env->retire.misses > 0 &&
           retire_budget(env) >= env->retire.miss_charge;
}

/* An access within line @l, which is in L1D now, comes to an end. */
static inline void end_access(CPUX86State *env, uint32_t desc, const Line *l)
{
    if (l->source == RETIRE_SOURCE_L2 && (desc & RETIRE_ACCESS_LOAD)) {
        env->retire.misses--;
        if (env->retire.miss_charge) {
            retire_set_budget(env,
                              retire_budget(env) - env->retire.miss_charge);
        }
    }
    if ((l->source != RETIRE_SOURCE_L1 || l->tlb != RETIRE_TLB_L1) &&
        retire_wants(env, RETIRE_WANT_ACCESSES)) {
        note_lines(env, desc, l, 1);
    }
}

/* What nobody has to know of before it is counted: hits in L1D or L2 */
static void filter_miss(CPUX86State *env, uint64_t addr, uint32_t desc,
                        uintptr_t ra)
{
    RetireModels *models = retire_models(env);
    uint64_t left = RETIRE_LINE_SIZE - addr % RETIRE_LINE_SIZE;
    bool store = desc & RETIRE_ACCESS_STORE;
    Line line = { .addr = addr, .source = RETIRE_SOURCE_UNKNOWN };
    /* The filter has to know the first one of two lines. */
    bool quick = may_miss(env);

    if (left < access_size(desc)) {
        line.addr += left;
        quick &= (line.addr & ~TARGET_PAGE_MASK) &&
                 !retire_wants(env, RETIRE_WANT_ACCESSES) &&
                 retire_filter_has(&models->filter, addr, store);
    }
    if (quick && physical_line(env, &line, MMU_DATA_LOAD,
                               access_mmu_idx(desc)) && line.memory) {
        line.source = retire_cache_try(models->cache, line.line, line.addr,
                                       store);
    }
    if (line.source == RETIRE_SOURCE_UNKNOWN) {
        show_access(env, addr, desc, ra, false);
        return;
    }
    use_page(env, &line);
    end_access(env, desc, &line);
}

#ifdef RETIRE_WAYS_AVX2
/* The same where RetireCache.is_plain; DTLB is asked with @tlb. */
static inline __attribute__((always_inline, target("avx2"))) void
plain_miss_avx2(CPUX86State *env, uint64_t addr, uint32_t desc, uintptr_t ra,
                bool tlb)
{
    /* Not @line, which is in registers */
    static const Line l2 = { .source = RETIRE_SOURCE_L2 };
    RetireModels *models = retire_models(env);
    Line line = { .addr = addr };

    if (may_miss(env) &&
        addr % RETIRE_LINE_SIZE <= (desc & RETIRE_ACCESS_LIMIT) &&
        physical_line(env, &line, MMU_DATA_LOAD, access_mmu_idx(desc)) &&
        line.memory && (!tlb || page_is_used(env, &line))) {
        line.source = retire_cache_try_avx2(models->cache,
                                            &models->filter,
                                            line.line, addr);
        if (line.source == RETIRE_SOURCE_L2) {
            end_access(env, desc, &l2);
        } else if (unlikely(line.source != RETIRE_SOURCE_L1)) {
            show_access(env, addr, desc, ra, false);
        }
    } else {
        filter_miss(env, addr, desc, ra);
    }
}

/* Two functions, because only who asks DTLB shall pay for the registers. */
static void __attribute__((target("avx2")))
filter_miss_avx2(CPUX86State *env, uint64_t addr, uint32_t desc, uintptr_t ra)
{
    plain_miss_avx2(env, addr, desc, ra, false);
}

static void __attribute__((target("avx2")))
filter_miss_tlb_avx2(CPUX86State *env, uint64_t addr, uint32_t desc,
                     uintptr_t ra)
{
    plain_miss_avx2(env, addr, desc, ra, true);
}
#endif

void retire_filter_miss(CPUX86State *env, uint64_t addr, uint32_t desc,
                        uintptr_t ra)
{
    if (unlikely(retire_models(env)->tlb.code) &&
        (desc & RETIRE_ACCESS_STORE)) {
        show_access(env, addr, desc, ra, false);
        return;
    }
#ifdef RETIRE_WAYS_AVX2
    if (retire_models(env)->cache->is_plain && (cpuinfo & CPUINFO_AVX2)) {
        if (retire_models(env)->tlb.data) {
            filter_miss_tlb_avx2(env, addr, desc, ra);
        } else {
            filter_miss_avx2(env, addr, desc, ra);
        }
        return;
    }
#endif
    filter_miss(env, addr, desc, ra);
}

/* The same for TBs that test the filter themselves. */
void helper_retire_filter_miss(CPUX86State *env, uint64_t addr, uint32_t desc)
{
    retire_filter_miss(env, addr, desc, GETPC());
}

/* An access of an instruction that may be observed, for its story */
void helper_retire_story(CPUX86State *env, uint64_t addr, uint32_t desc)
{
    show_access(env, addr, desc, GETPC(), true);
}

/*
 * Code at linear address @addr is about to run, whose physical line, in bits
 * 63:1 of @desc, is not in RetireTlb.known; bit 0: it is the second one of that
 * instruction.
 */
void helper_retire_fetch(CPUX86State *env, target_ulong addr, uint64_t desc)
{
    RetireTlb *t = &retire_models(env)->tlb;
    RetireFetch *f = &retire_models(env)->fetch;
    uint64_t *n = env->retire_memory.noted[retire_row(env)];
    bool second = desc & 1;
    Line l = { .line = desc >> 1 };

    if (t->lines) {
        if (!retire_fetch_counts(t, addr, l.line, second)) {
            return;
        }
        n[RETIRE_FETCHES]++;
    }
    l.addr = second ? (addr | (RETIRE_LINE_SIZE - 1)) + 1 : addr;
    if (retire_fetch_known(t, l.addr, l.line)) {
        return;
    }
    if (f->addr != addr) {
        *f = (RetireFetch) { .addr = addr };
    }
    if (!retire_fetch_line(t, l.addr, l.line)) {
        n[RETIRE_FETCH_MISSES]++;
        f->missed = true;
    }
    if ((env->cr[0] & CR0_PG_MASK) && !retire_fetch_same_page(t, l.addr) &&
        physical_line(env, &l, MMU_INST_FETCH,
                      cpu_mmu_index(env_cpu(env), true))) {
        l.tlb = retire_fetch_page(t, l.addr, desc >> 1, l.page);
        if (l.tlb != RETIRE_TLB_L1) {
            n[RETIRE_TLB_FETCH_L2 + l.tlb - RETIRE_TLB_L2]++;
            f->tlb = MAX(f->tlb, l.tlb);
        }
    }
}

/* CLFLUSH, CLFLUSHOPT: what is not mapped is in no cache. */
void helper_retire_clflush(CPUX86State *env, target_ulong addr)
{
    Line l = { .addr = addr };

    if (physical_line(env, &l, MMU_DATA_LOAD,
                      cpu_mmu_index(env_cpu(env), false))) {
        retire_uncore_flush_line(retire_models(env)->cache->uncore, l.line);
    }
}

/* WBINVD, INVD.  WBNOINVD, which is WBINVD with @rep, keeps the lines. */
void helper_retire_wbinvd(CPUX86State *env, uint32_t rep)
{
    if (!rep || !(env->features[FEAT_8000_0008_EBX] &
                  CPUID_8000_0008_EBX_WBNOINVD)) {
        retire_cache_flush(retire_models(env)->cache);
    }
}

void retire_models_access(CPUX86State *env, vaddr addr, unsigned size,
                          MMUAccessType type, uintptr_t ra)
{
    bool store = type == MMU_DATA_STORE;
    bool accesses = retire_wants(env, RETIRE_WANT_ACCESSES);
    /* While more may retire unseen, nobody looks behind this one. */
    bool story = retire_wants(env, RETIRE_WANT_STORY) &&
                 !retire_budget(env);
    uint64_t start[INSN_START_WORDS];
    uint32_t desc;

    if (!accesses && !story &&
        (addr & (RETIRE_LINE_SIZE - 1)) + size <= RETIRE_LINE_SIZE &&
        retire_filter_has(&retire_models(env)->filter, addr, store)) {
        return;
    }
    desc = (retire_access_ip(env, ra, start) & ~TARGET_PAGE_MASK) <<
           RETIRE_ACCESS_OFFSET_SHIFT |
           cpu_mmu_index(env_cpu(env), false) << RETIRE_ACCESS_MMU_IDX_SHIFT |
           (store ? RETIRE_ACCESS_STORE : RETIRE_ACCESS_LOAD);
    if (!RETIRE_INSN_START_INSNS(start[1])) {
        desc |= RETIRE_ACCESS_OBSERVED;
    }
    /* FXRSTOR and its like count as a load for each line. */
    for (unsigned n; size; size -= n, addr += n) {
        n = size > 32 ? MIN(size, -(addr | -(uint64_t)RETIRE_LINE_SIZE)) : size;
        if (accesses) {
            retire_access_note(env, desc, store ? RETIRE_STORES : RETIRE_LOADS);
        }
        show_access(env, addr, desc | (RETIRE_LINE_SIZE - n), ra,
                    story && (desc & RETIRE_ACCESS_OBSERVED));
    }
}
