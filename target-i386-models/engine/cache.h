/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data caches that DCache Miss events (AMD 43724, §2.4) come from: L1D and
 * L2 of each processor, and an L3 for all of them, which takes what falls out
 * of an L2.  Lines have 64 bytes; reads and writes allocate them, and the least
 * recently used one of a set makes room.  Nothing here holds data: that a line
 * is modified makes no difference to where it is found, but is told to who gets
 * it from another processor.
 */
#ifndef RETIRE_CACHE_H
#define RETIRE_CACHE_H

#include "retire/engine/memory.h"

#define RETIRE_LINE_BITS   6
#define RETIRE_LINE_SIZE   (1u << RETIRE_LINE_BITS)

typedef enum RetireLevel {
    RETIRE_L1D, RETIRE_L2, RETIRE_L3, RETIRE_NR_LEVELS,
    RETIRE_L1I = RETIRE_NR_LEVELS, RETIRE_NR_GEOMETRIES     /* see tlb.h */
} RetireLevel;

typedef struct RetireGeometry {
    uint32_t size;          /* bytes; 0 if there is no such cache, L3 only */
    uint32_t assoc;         /* ways */
} RetireGeometry;

/* The sets of a cache, or of a TLB, one behind the other. */
typedef struct RetireWays {
    uint64_t *ways;
    uint64_t set_mask;
    uint32_t sets;          /* their number; 0 if set_mask selects one */
    uint32_t assoc;         /* 0 if there is no such cache */
} RetireWays;

/* False if memory is short; @nr ways, of which a set has @assoc, or none */
bool retire_ways_init(RetireWays *w, uint32_t nr, uint32_t assoc);

/* Which set it is that has what has this @number. */
static inline uint64_t retire_set_of(const RetireWays *w, uint64_t number)
{
    return w->sets ? number % w->sets : number & w->set_mask;
}

#define RETIRE_NR_SLOTS    64

/*
 * A short cut for translated code: an access within the line at @load or, if
 * it writes, @store changes nothing, because the line is the most recently
 * used one of its set already and, for @store, no other processor has it, nor
 * will be the first to hear that it is modified.
 *
 * These are linear, so whoever changes the mapping clears the filter.  Bits
 * 11:6, which linear and physical addresses share, select a slot; as slots are
 * as large as lines, these bits, left where they are, are its offset.
 */
typedef struct RetireSlot {
    uint64_t load, store;   /* addresses, or retire_no_line() */
    uint64_t unused[6];
} RetireSlot;

typedef struct RetireFilter {
    RetireSlot slot[RETIRE_NR_SLOTS];
    uint64_t mapping;       /* retire_cpu_use_caches(): it was valid for that */
} RetireFilter;

/*
 * What no access in the slot of @line matches: an address in another slot.  A
 * guest with 32-bit addresses has them all, and looks at the lower half alone.
 */
static inline uint64_t retire_no_line(uint64_t line)
{
    return ~(line % RETIRE_NR_SLOTS) * RETIRE_LINE_SIZE;
}

/* Forget the lines of @slots, a bit for each. */
void retire_filter_forget(RetireFilter *filter, uint64_t slots);

static inline void retire_filter_clear(RetireFilter *filter)
{
    retire_filter_forget(filter, UINT64_MAX);
}

/* Whether an access within the line at @addr changes nothing. */
static inline bool retire_filter_has(const RetireFilter *f, uint64_t addr,
                                     bool store)
{
    const RetireSlot *s = &f->slot[addr / RETIRE_LINE_SIZE % RETIRE_NR_SLOTS];

    return ((store ? s->store : s->load) ^ addr) < RETIRE_LINE_SIZE;
}

/* What all processors share */
typedef struct RetireUncore RetireUncore;

/* The caches of a processor */
typedef struct RetireCache {
    RetireWays l1, l2;
    bool is_plain;          /* for retire_cache_try_avx2() */
    bool lock;              /* because others may take lines away */
    bool modified;          /* as the last RETIRE_SOURCE_REMOTE had the line */
    RetireFilter *filter;
    RetireUncore *uncore;
    struct RetireCache *next;
} RetireCache;

/* Whether the number of sets is an integer, or there is no cache. */
bool retire_geometry_valid(const RetireGeometry *g);

/* Return NULL if memory is short.  @g has RETIRE_NR_LEVELS valid geometries. */
RetireUncore *retire_uncore_new(const RetireGeometry *g);
RetireCache *retire_cache_new(RetireUncore *uncore, const RetireGeometry *g,
                              RetireFilter *filter);
void retire_cache_free(RetireCache *c);
/* There is no RetireCache left. */
void retire_uncore_free(RetireUncore *uncore);

/*
 * Before there is a second RetireCache, and while nobody uses the first: until
 * then its processor takes no lock.
 */
void retire_uncore_share(RetireUncore *uncore);

/* Forget all lines of a processor and of L3. */
void retire_cache_flush(RetireCache *c);
/* Forget physical line @line, whoever has it. */
void retire_uncore_flush_line(RetireUncore *uncore, uint64_t line);

/* Access physical line @line, at linear address @addr; returns where it was. */
RetireSource retire_cache_access(RetireCache *c, uint64_t line, uint64_t addr,
                                 bool store);
/* The same if nobody else has to be asked; or else RETIRE_SOURCE_UNKNOWN. */
RetireSource retire_cache_try(RetireCache *c, uint64_t line, uint64_t addr,
                              bool store);
/* Only look where it is. */
RetireSource retire_cache_peek(RetireCache *c, uint64_t line);

/*
 * A way is a word: a physical line and flags.  The ways of a set are in the
 * order of their use, the most recent first, and empty ones (0) last.
 */
#define RETIRE_WAY_VALID   1u
#define RETIRE_WAY_OWNED   2u      /* no other processor has the line */
#define RETIRE_WAY_MODIFIED 4u     /* never, while there is only one */
#define RETIRE_WAY_SHIFT   3

/* The way of a line that no other processor has. */
static inline uint64_t retire_own_way(uint64_t line)
{
    return line << RETIRE_WAY_SHIFT | RETIRE_WAY_OWNED | RETIRE_WAY_VALID;
}

#ifdef RETIRE_WAYS_AVX2     /* an x86 host, says who includes this */
#include <immintrin.h>

/*
 * If one of @assoc ways is @word, make it the @first one.  Which of four it is
 * takes no branches, because the host could hardly predict those.
 */
static inline __attribute__((always_inline, target("avx2"))) bool
retire_ways_use_avx2(uint64_t *first, uint32_t assoc, __m256i word)
{
    /* By the bit of the way: which halves of the ways come where */
    static const uint8_t order[][8] = {
        [1 << 0] = { 0, 1, 2, 3, 4, 5, 6, 7 },
        [1 << 1] = { 2, 3, 0, 1, 4, 5, 6, 7 },
        [1 << 2] = { 4, 5, 0, 1, 2, 3, 6, 7 },
        [1 << 3] = { 6, 7, 0, 1, 2, 3, 4, 5 },
    };
    uint64_t *set = first - 4;
    __m256i ways, from;
    int bit;

    do {
        set += 4;
        ways = _mm256_loadu_si256((__m256i *)set);
        bit = _mm256_movemask_pd((__m256d)_mm256_cmpeq_epi64(ways, word));
    } while (!bit && set != first + assoc - 4);
    if (!bit) {
        return false;
    }
    from = _mm256_cvtepu8_epi32(_mm_loadu_si64(order[bit]));
    ways = _mm256_permutevar8x32_epi32(ways, from);
    _mm256_storeu_si256((__m256i *)set, ways);
    while (set != first) {
        /* The four before it are behind it now. */
        set -= 4;
        ways = _mm256_loadu_si256((__m256i *)set);
        _mm256_storeu_si256((__m256i *)(set + 1), ways);
        _mm_storeu_si64(set, _mm256_castsi256_si128(word));
    }
    return true;
}

/*
 * What retire_cache_try() does, if RetireCache.is_plain: without this, gzip
 * takes twice the time.
 */
static inline __attribute__((always_inline, target("avx2"))) RetireSource
retire_cache_try_avx2(RetireCache *c, RetireFilter *f, uint64_t line,
                      uint64_t addr)
{
    RetireSlot *slot = &f->slot[addr / RETIRE_LINE_SIZE % RETIRE_NR_SLOTS];
    uint64_t *l1 = c->l1.ways + (line & c->l1.set_mask) * c->l1.assoc, *l2;
    __m256i word = _mm256_set1_epi64x(retire_own_way(line)), ways;
    RetireSource source = RETIRE_SOURCE_L1;

    if (!(c->l1.assoc == 4 ? retire_ways_use_avx2(l1, 4, word) :
          retire_ways_use_avx2(l1, c->l1.assoc, word))) {
        l2 = c->l2.ways + (line & c->l2.set_mask) * c->l2.assoc;
        if (!retire_ways_use_avx2(l2, c->l2.assoc, word)) {
            return RETIRE_SOURCE_UNKNOWN;
        }
        source = RETIRE_SOURCE_L2;
        for (uint64_t *set = l1 + c->l1.assoc - 4; set != l1; set -= 4) {
            ways = _mm256_loadu_si256((__m256i *)(set - 1));
            _mm256_storeu_si256((__m256i *)set, ways);
        }
        ways = _mm256_permute4x64_epi64(_mm256_loadu_si256((__m256i *)l1),
                                        0x90);
        _mm256_storeu_si256((__m256i *)l1, _mm256_blend_epi32(ways, word, 3));
    }
    slot->load = slot->store = addr & -(uint64_t)RETIRE_LINE_SIZE;
    return source;
}
#endif

#endif
