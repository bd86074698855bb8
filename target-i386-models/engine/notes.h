/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Accesses to memory that have been counted and not reported yet, and those of
 * the current instruction, which may not retire.  A @clock is retire_clock():
 * with the instruction's address it tells one execution from another.
 */
#ifndef RETIRE_NOTES_H
#define RETIRE_NOTES_H

#include "retire/engine/retire.h"

/*
 * Loads, stores and locked loads in one word, RetireMemoryState.words.  It does
 * not overflow: no budget lasts for more than 65000 instructions, of up to 128
 * accesses (ENTER).
 */
#define RETIRE_MEMORY_LOAD      1ull
#define RETIRE_MEMORY_STORE     (1ull << 24)
#define RETIRE_MEMORY_LOCKED    (1ull << 48)

/* An access straddles two lines, which both may be new, 32 times in a REP. */
#define RETIRE_REP_MAX          31      /* one less than iterations */

/* The first ones of the current instruction, and how many it makes */
typedef struct RetireAccesses {
    uint32_t nr;
    RetireAccess access[RETIRE_STORY_ACCESSES];
} RetireAccesses;

typedef struct RetireMemoryState {
    /* What TBs count, see RETIRE_MEMORY_LOAD; */
    uint64_t words[RETIRE_NR_ROWS];
    uint64_t word_before;   /* that of a REP's row, before its iteration */
    /* and what helpers do, who also look into the caches; */
    uint64_t noted[RETIRE_NR_ROWS][RETIRE_NR_MEMORY];
    /* of which so many belong to the instruction that is being executed. */
    struct {
        bool valid;
        uint8_t row;
        uint16_t offset;    /* its effective address in the page */
        uint64_t clock;
        uint16_t n[RETIRE_NR_MEMORY];
    } open;
    /*
     * The instruction that has been left last: if it is executed again, open.n
     * is what it finds no more, because it has missed it already.
     */
    struct {
        uint64_t ip, clock;     /* effective address */
        uint8_t nr_accesses;    /* in RetireAccesses */
        bool missed;            /* open.n has something */
    } left;
} RetireMemoryState;

/* An access of the instruction at page offset @offset counts as @what. */
static inline void retire_note(RetireMemoryState *m, uint64_t clock,
                               RetireRow row, uint32_t offset,
                               RetireMemory what)
{
    if (!m->open.valid || m->open.offset != offset || m->open.clock != clock) {
        memset(&m->open, 0, sizeof(m->open));
        m->left.missed = false;
        m->open.valid = true;
        m->open.row = (uint8_t)row;
        m->open.offset = (uint16_t)offset;
        m->open.clock = clock;
    }
    m->open.n[what]++;
    m->noted[row][what]++;
}

/* Whether memory that has been accessed once is not counted as that again. */
static inline bool retire_missed_once(RetireMemory what)
{
    return (what >= RETIRE_LOAD_L2 && what < RETIRE_LOAD_OTHER) ||
           (what >= RETIRE_STORE_L2 && what <= RETIRE_STORE_MODIFIED) ||
           what == RETIRE_STLB_MISS_LOADS || what == RETIRE_STLB_MISS_STORES ||
           what == RETIRE_CODE_STORES;
}

/*
 * The instruction at effective address @ip does not retire, nor what it has
 * noted.  To be called before retire_give_back(), with the clock of before.
 */
static inline void retire_unnote(RetireMemoryState *m, uint64_t clock,
                                 uint64_t ip)
{
    if (m->open.valid && m->open.offset == (ip & 0xfff) &&
        m->open.clock == clock) {
        for (int i = 0; i < RETIRE_NR_MEMORY; i++) {
            m->noted[m->open.row][i] -= m->open.n[i];
            m->open.n[i] = retire_missed_once((RetireMemory)i) ?
                           m->open.n[i] : 0;
        }
        m->left.missed = true;
    } else if (m->left.ip != ip) {
        m->left.missed = false;
    }
    m->open.valid = false;
}

/* The instruction at @ip has been left, with @nr_accesses in RetireAccesses. */
static inline void retire_leave(RetireMemoryState *m, uint64_t clock,
                                uint64_t ip, uint32_t nr_accesses)
{
    m->left.ip = ip;
    m->left.clock = clock;
    m->left.nr_accesses = (uint8_t)nr_accesses;
}

/* Whether the instruction at effective address @ip is the one that was left. */
static inline bool retire_is_left(const RetireMemoryState *m, uint64_t clock,
                                  uint64_t ip)
{
    return m->left.ip == ip && m->left.clock == clock;
}

/*
 * The instruction at effective address @ip begins.  If it has been left for
 * being executed again, and not for an exception, what it missed then counts.
 */
static inline void retire_again(RetireMemoryState *m, uint64_t clock,
                                uint64_t ip)
{
    if (m->left.missed && retire_is_left(m, clock, ip)) {
        for (int i = 0; i < RETIRE_NR_MEMORY; i++) {
            m->noted[m->open.row][i] += m->open.n[i];
        }
        m->open.valid = true;
        m->open.clock = clock;
    }
    m->left.missed = false;
}

/*
 * A TB is left: @n of its words do not retire or, with @repeats, the iteration
 * of its REP.
 */
static inline void retire_give_back_memory(RetireMemoryState *m, RetireRow row,
                                           uint64_t n, bool repeats)
{
    if (repeats) {
        m->words[row] = m->word_before;
    } else {
        m->words[row] -= n;
    }
}

/* What is to be reported of @row; from then on it has been. */
static inline void retire_take_memory(RetireMemoryState *m, RetireRow row,
                                      uint64_t n[RETIRE_NR_MEMORY])
{
    uint64_t words = m->words[row];

    memcpy(n, m->noted[row], sizeof(m->noted[row]));
    n[RETIRE_LOADS] += words % RETIRE_MEMORY_STORE;
    n[RETIRE_STORES] += words % RETIRE_MEMORY_LOCKED / RETIRE_MEMORY_STORE;
    n[RETIRE_LOCKED] += words / RETIRE_MEMORY_LOCKED;
    memset(m->noted[row], 0, sizeof(m->noted[row]));
    m->words[row] = 0;
    m->open.valid = false;
}

#endif
