/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data caches that DCache Miss events (AMD 43724, §2.4) come from: L1D and
 * L2 of each processor, and an L3 for all of them, which takes what falls out
 * of an L2.  Lines have 64 bytes; reads and writes allocate them, and the least
 * recently used one of a set makes room.  Nothing here holds data: whether a
 * line is dirty makes no difference to where it is found.
 */
#ifndef LWP_CACHE_H
#define LWP_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#define LWP_LINE_BITS   6
#define LWP_LINE_SIZE   (1u << LWP_LINE_BITS)

/* Where data came from: SRC of Figure 2-5, and two that are not in records. */
typedef enum LwpSource {
    LWP_SOURCE_L2 = 0,      /* "no valid status" */
    LWP_SOURCE_L3 = 1,
    LWP_SOURCE_REMOTE = 2,  /* another processor's cache */
    LWP_SOURCE_DRAM = 3,
    LWP_SOURCE_OTHER = 7,   /* not memory */
    LWP_NR_SOURCES,
    LWP_SOURCE_L1 = LWP_NR_SOURCES,     /* no miss */
    LWP_SOURCE_UNKNOWN,
} LwpSource;

typedef enum LwpLevel {
    LWP_L1D, LWP_L2, LWP_L3, LWP_NR_LEVELS
} LwpLevel;

typedef struct LwpGeometry {
    uint32_t size;          /* bytes; 0 if there is no such cache, L3 only */
    uint32_t assoc;         /* ways */
} LwpGeometry;

/*
 * A short cut for translated code: an access within the line at @load or, if
 * it writes, @store changes nothing, because that line is the most recently
 * used one of its set already and, for @store, no other processor has it.
 *
 * Slots are found by bits 11:6 of an address, linear or physical; the lines
 * in them are linear.  Whoever changes the mapping has to clear the filter.
 */
typedef struct LwpSlot {
    uint64_t load, store;   /* addresses */
    uint64_t unused[6];     /* LWP_LINE_SIZE each, which saves a shift */
} LwpSlot;

#define LWP_NR_SLOTS    64

typedef struct LwpFilter {
    LwpSlot slot[LWP_NR_SLOTS];
} LwpFilter;

void lwp_filter_clear(LwpFilter *filter);

/* What all processors share, and the caches of one. */
typedef struct LwpUncore LwpUncore;
typedef struct LwpCache LwpCache;

/* Whether the number of sets is a power of two, or there is no cache. */
bool lwp_geometry_valid(const LwpGeometry *g);

/* Return NULL if memory is short.  @g has LWP_NR_LEVELS valid geometries. */
LwpUncore *lwp_uncore_new(const LwpGeometry *g);
LwpCache *lwp_cache_new(LwpUncore *uncore, const LwpGeometry *g,
                        LwpFilter *filter);
void lwp_cache_free(LwpCache *c);
void lwp_uncore_free(LwpUncore *uncore);    /* when it has no caches any more */

/*
 * To be called before there is a second cache, and while nobody uses the first:
 * a processor that is alone takes no locks.
 */
void lwp_uncore_share(LwpUncore *uncore);

/* Forget all lines of a processor, and those of L3. */
void lwp_cache_flush(LwpCache *c);

/*
 * Access physical line @line, at linear address @addr, and return where it was.
 * lwp_cache_access() returns LWP_SOURCE_UNKNOWN, with nothing done, if others
 * have to be asked; then lwp_cache_fill() does.  lwp_cache_peek() only looks.
 */
LwpSource lwp_cache_access(LwpCache *c, uint64_t line, uint64_t addr,
                           bool store);
LwpSource lwp_cache_fill(LwpCache *c, uint64_t line, uint64_t addr, bool store);
LwpSource lwp_cache_peek(LwpCache *c, uint64_t line);

#endif
