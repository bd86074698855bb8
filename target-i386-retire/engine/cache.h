/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data caches that DCache Miss events (AMD 43724, §2.4) come from: L1D and
 * L2 of each processor, and an L3 for all of them, which takes what falls out
 * of an L2.  Lines have 64 bytes; reads and writes allocate them, and the least
 * recently used one of a set makes room.  Nothing here holds data: whether a
 * line is dirty makes no difference to where it is found.
 */
#ifndef RETIRE_CACHE_H
#define RETIRE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#define RETIRE_LINE_BITS   6
#define RETIRE_LINE_SIZE   (1u << RETIRE_LINE_BITS)

/* Where data came from: SRC of Figure 2-5, and two that are not in records. */
typedef enum RetireSource {
    RETIRE_SOURCE_L2 = 0,      /* "no valid status" */
    RETIRE_SOURCE_L3 = 1,
    RETIRE_SOURCE_REMOTE = 2,  /* another processor's cache */
    RETIRE_SOURCE_DRAM = 3,
    RETIRE_SOURCE_OTHER = 7,   /* not memory */
    RETIRE_NR_SOURCES,
    RETIRE_SOURCE_L1 = RETIRE_NR_SOURCES,     /* no miss */
    RETIRE_SOURCE_UNKNOWN,
} RetireSource;

typedef enum RetireLevel {
    RETIRE_L1D, RETIRE_L2, RETIRE_L3, RETIRE_NR_LEVELS
} RetireLevel;

typedef struct RetireGeometry {
    uint32_t size;          /* bytes; 0 if there is no such cache, L3 only */
    uint32_t assoc;         /* ways */
} RetireGeometry;

/* The sets of a cache. */
typedef struct RetireWays {
    uint64_t *ways;
    uint64_t set_mask;
    uint32_t sets;          /* their number; 0 if set_mask selects one */
    uint32_t assoc;         /* 0 if there is no such cache */
    uint32_t stride;        /* from set to set */
} RetireWays;

#define RETIRE_NR_SLOTS    64
#define RETIRE_SLOT_WAYS   4

/*
 * A short cut for translated code: an access within the line at @load or, if
 * it writes, @store changes nothing, because the line is the most recently
 * used one of its set already and, for @store, no other processor has it.
 *
 * Bits 11:6 of an address select a slot; they are the same in linear and
 * physical addresses, because pages have 4 KiB at least.  @load and @store are
 * linear, so whoever changes the mapping has to clear the filter.  An L1D of
 * four ways and as many sets as there are slots is kept in @way.
 */
typedef struct RetireSlot {
    uint64_t load, store;   /* addresses */
    uint64_t way[RETIRE_SLOT_WAYS];
    uint64_t unused[2];     /* a slot is as large as a line: see below */
} RetireSlot;

/*
 * Because slots are as large as lines, bits 11:6 of an address, left where they
 * are, are the offset of its slot.
 */
typedef struct RetireFilter {
    RetireSlot slot[RETIRE_NR_SLOTS];
    RetireWays l1, l2;
    uint64_t mapping;       /* retire_cpu_use_caches(): it was valid for that */
    bool in_slots;          /* the ways of @l1 are RetireSlot.way */
    bool has_ways;          /* retire_filter_access() may use @l1 and @l2 */
} RetireFilter;

void retire_filter_clear(RetireFilter *filter);

/* Whether a load within the line at @addr changes nothing. */
static inline bool retire_filter_has(const RetireFilter *f, uint64_t addr)
{
    uint64_t n = (addr >> RETIRE_LINE_BITS) % RETIRE_NR_SLOTS;

    return (f->slot[n].load ^ addr) < RETIRE_LINE_SIZE;
}

/* What all processors share, and the caches of one. */
typedef struct RetireUncore RetireUncore;
typedef struct RetireCache RetireCache;

/* Whether the number of sets is an integer, or there is no cache. */
bool retire_geometry_valid(const RetireGeometry *g);

/* Return NULL if memory is short.  @g has RETIRE_NR_LEVELS valid geometries. */
RetireUncore *retire_uncore_new(const RetireGeometry *g);
RetireCache *retire_cache_new(RetireUncore *uncore, const RetireGeometry *g,
                        RetireFilter *filter);
void retire_cache_free(RetireCache *c);
/* To be called when no RetireCache of @uncore is left. */
void retire_uncore_free(RetireUncore *uncore);

/*
 * To be called before there is a second RetireCache, and while nobody uses the
 * first, because until then its processor takes no locks.
 */
void retire_uncore_share(RetireUncore *uncore);

/* Forget all lines of a processor and of L3. */
void retire_cache_flush(RetireCache *c);
/* Forget physical line @line, whoever has it. */
void retire_uncore_flush_line(RetireUncore *uncore, uint64_t line);

/*
 * Access physical line @line, at linear address @addr, and return where it was.
 * retire_cache_access() returns RETIRE_SOURCE_UNKNOWN, with nothing done, if
 * others have to be asked; then retire_cache_fill() does.  retire_cache_peek()
 * only looks.
 */
RetireSource retire_cache_access(RetireCache *c, uint64_t line, uint64_t addr,
                           bool store);
RetireSource retire_cache_fill(RetireCache *c, uint64_t line, uint64_t addr,
                               bool store);
RetireSource retire_cache_peek(RetireCache *c, uint64_t line);

/*
 * A way is a word: a physical line and two flags.  The ways of a set are in the
 * order of their use, the most recent first, and empty ones (0) last.
 */
#define RETIRE_WAY_VALID   1u
#define RETIRE_WAY_OWNED   2u      /* no other processor has the line */
#define RETIRE_WAY_SHIFT   2

/* The way of a line that no other processor has. */
static inline uint64_t retire_own_way(uint64_t line)
{
    return line << RETIRE_WAY_SHIFT | RETIRE_WAY_OWNED | RETIRE_WAY_VALID;
}

/*
 * If one of four ways is @word, make that way the first one, and return true.
 * Which one of them it is takes no branches, because the host could hardly
 * predict those.
 */
static inline bool retire_ways_use(uint64_t way[4], uint64_t word)
{
    uint64_t over = way[0], moved[4];

#pragma GCC unroll 3
    for (int i = 1; i < 4; i++) {
        uint64_t next = way[i];
        uint64_t found = (over ^ next) & -(uint64_t)(over == word);

        moved[i] = over ^ found;
        over = next ^ found;
    }
    if (over != word) {
        return false;
    }
    way[0] = word;
    way[1] = moved[1];
    way[2] = moved[2];
    way[3] = moved[3];
    return true;
}

#ifdef RETIRE_WAYS_AVX2     /* an x86 host, says who includes this */
#include <immintrin.h>

/* What retire_ways_use() does, if the host has AVX2 */
static inline __attribute__((target("avx2"))) bool
retire_ways_use_avx2(uint64_t way[4], uint64_t word)
{
    /* By the bit of the way: which halves of the ways come where */
    static const uint8_t order[][8] = {
        [1 << 0] = { 0, 1, 2, 3, 4, 5, 6, 7 },
        [1 << 1] = { 2, 3, 0, 1, 4, 5, 6, 7 },
        [1 << 2] = { 4, 5, 0, 1, 2, 3, 6, 7 },
        [1 << 3] = { 6, 7, 0, 1, 2, 3, 4, 5 },
    };
    __m256i ways = _mm256_loadu_si256((const __m256i *)way);
    __m256i same = _mm256_cmpeq_epi64(ways, _mm256_set1_epi64x(word));
    int bit = _mm256_movemask_pd(_mm256_castsi256_pd(same));
    __m256i from;

    if (!bit) {
        return false;
    }
    from = _mm256_cvtepu8_epi32(_mm_loadu_si64(order[bit]));
    _mm256_storeu_si256((__m256i *)way,
                        _mm256_permutevar8x32_epi32(ways, from));
    return true;
}
#endif

/* What retire_ways_use() does, for the ways of a set behind the first four. */
bool retire_ways_use_more(const RetireWays *w, uint64_t *set, uint64_t word);

/* The set of @line, where their number is a power of two. */
static inline uint64_t *retire_ways_set(const RetireWays *w, uint64_t line)
{
    return w->ways + (line & w->set_mask) * w->stride;
}

/*
 * What retire_cache_access() does, if RetireFilter.has_ways.  This is faster,
 * because no lock is taken, and most accesses find their lines in the first
 * ways of L1D or L2.  @use is retire_ways_use() or retire_ways_use_avx2().
 */
static inline __attribute__((always_inline)) RetireSource
retire_filter_access(RetireFilter *f, uint64_t line, uint64_t addr,
                     bool (*use)(uint64_t way[4], uint64_t word))
{
    RetireSlot *slot = &f->slot[line % RETIRE_NR_SLOTS];
    uint64_t *set = f->in_slots ? slot->way : retire_ways_set(&f->l1, line);
    uint64_t word = retire_own_way(line);
    RetireSource source = RETIRE_SOURCE_L1;

    if (!use(set, word) &&
        (f->in_slots || !retire_ways_use_more(&f->l1, set, word))) {
        uint64_t *set2 = retire_ways_set(&f->l2, line);

        if (!use(set2, word) && !retire_ways_use_more(&f->l2, set2, word)) {
            return RETIRE_SOURCE_UNKNOWN;
        }
        for (uint32_t way = f->in_slots ? 3 : f->l1.assoc - 1; way; way--) {
            set[way] = set[way - 1];
        }
        set[0] = word;
        source = RETIRE_SOURCE_L2;
    }
    slot->load = slot->store = addr & -(uint64_t)RETIRE_LINE_SIZE;
    return source;
}

#endif
