/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The TLBs and the instruction cache of a processor.  A TLB has two levels; of
 * the first one, data and code have their own, and pages of 4 KiB, of 2 or 4
 * MiB and of 1 GiB may have theirs.  Nothing here holds a translation: who asks
 * knows it, and its page's size.
 *
 * An entry that is used is marked.  When all entries of a set are, all but that
 * one lose their marks; an empty entry makes room, or else the first one that
 * has no mark.  So another use of what is marked changes nothing, which is what
 * RetireFilter and RetireTlb.fetched need.
 */
#ifndef RETIRE_TLB_H
#define RETIRE_TLB_H

#include "cache.h"

typedef enum RetireTlbKind {
    RETIRE_DTLB,
    RETIRE_DTLB_2M,
    RETIRE_DTLB_1G,
    RETIRE_ITLB,
    RETIRE_ITLB_2M,
    RETIRE_STLB,            /* the second level of data, */
    RETIRE_ISTLB,           /* and of code, if it is another one */
    RETIRE_NR_TLBS
} RetireTlbKind;

#define RETIRE_ASSOC_MAX        128     /* of caches */
#define RETIRE_TLB_ASSOC_MAX    64
#define RETIRE_TLB_ENTRIES_MAX  65536

/*
 * Entries and ways: RetireGeometry.size counts entries here.  A page whose size
 * has none (0) is with those of the next smaller size.
 */
typedef struct RetireTlbConfig {
    RetireGeometry tlb[RETIRE_NR_TLBS];
    uint8_t stlb_lg_max;    /* larger pages have no second level */
    bool stlb_code;         /* RETIRE_STLB has code, if it has no other */
} RetireTlbConfig;

/* All that the models are made of; the same for all CPUs */
typedef struct RetireModelsConfig {
    RetireGeometry cache[RETIRE_NR_GEOMETRIES];
    RetireTlbConfig tlb;
} RetireModelsConfig;


/* What is known of a page */
typedef struct RetirePage {
    uint8_t lg_size;        /* the binary logarithm of its size, 12 to 30 */
    bool global;
} RetirePage;

/*
 * An entry of a TLB is the address of a page, with this in its lower bits; an
 * entry of L1I is a line with RETIRE_ENTRY_LINE.
 */
#define RETIRE_ENTRY_LG_SIZE    0x1full
#define RETIRE_ENTRY_GLOBAL     0x20ull
#define RETIRE_ENTRY_LINE       (1ull << 63)

static inline uint64_t retire_tlb_entry(uint64_t number, RetirePage page)
{
    return number << page.lg_size | page.lg_size |
           (page.global ? RETIRE_ENTRY_GLOBAL : 0);
}

typedef struct RetireSet {
    uint64_t marked;        /* a bit for each entry */
    uint64_t slots;         /* of a filter, that may have lines of these */
} RetireSet;

/* Sets of entries; one that is empty is 0. */
typedef struct RetireArray {
    RetireWays entries;
    RetireSet *sets;        /* NULL: there are none */
    uint64_t full;          /* RetireSet.marked, if all are */
} RetireArray;

/* What has been fetched, and what it belongs to is marked. */
typedef struct RetireFetched {
    uint64_t addr;          /* linear, of the line, */
    uint64_t line;          /* and this is the physical one. */
} RetireFetched;

#define RETIRE_NO_FETCH     UINT64_MAX

typedef struct RetireTlb {
    /*
     * For translated code: physical lines, by their bits 5:0, that may be
     * fetched without a word; those in @fetched or, with @lines, the @last one.
     */
    uint64_t known[RETIRE_NR_SLOTS];
    uint64_t last;          /* with @lines, or RETIRE_NO_FETCH */
    uint64_t split;         /* see retire_fetch_counts() */
    bool lines;             /* somebody counts the lines that are fetched */
    bool data;              /* somebody wants to know of loads and stores, */
    bool code;              /* or of stores to lines that L1I has */
    bool used;              /* there may be something to flush */
    bool stlb_code;
    uint8_t stlb_lg_max;
    RetirePage page;        /* that of the last fetch, */
    uint64_t page_addr;     /* at this address, if its set is not NULL */
    RetireSet *page_set;
    RetireFilter *filter;
    RetireArray array[RETIRE_NR_TLBS], l1i;
    /* Where pages of data are: of 4 KiB, 2 or 4 MiB, 1 GiB */
    const RetireArray *dtlb[3];
    RetireFetched fetched[RETIRE_NR_SLOTS];
} RetireTlb;

/* What a processor has; @intel or else AMD, with CPUID's family and model. */
const RetireTlbConfig *retire_tlb_config(bool intel, unsigned family,
                                         unsigned model);

/* Whether the number of sets is an integer, and @kind may be what it is. */
bool retire_tlb_valid(RetireTlbKind kind, const RetireGeometry *g);

/* False if memory is short.  @config and @l1i are valid, but for L1I's ways. */
bool retire_tlb_init(RetireTlb *t, const RetireTlbConfig *config,
                     const RetireGeometry *l1i, RetireFilter *filter);
void retire_tlb_free(RetireTlb *t);

/* Forget all entries, and lines of code. */
void retire_tlb_reset(RetireTlb *t);
/* Forget all entries, or only those of pages that are not global; */
void retire_tlb_flush(RetireTlb *t, bool global);
/* forget those of the page at linear address @addr. */
void retire_tlb_flush_page(RetireTlb *t, uint64_t addr);

/*
 * An access within a line at linear address @addr, of which the filter does not
 * know that it changes nothing.  The filter forgets what it may not know now.
 */
RetireTlbResult retire_tlb_data(RetireTlb *t, uint64_t addr, RetirePage page);

static inline RetireSet *retire_tlb_set(const RetireArray *a, uint64_t number)
{
    return &a->sets[retire_set_of(&a->entries, number)];
}

static inline uint64_t *retire_tlb_entries(const RetireArray *a,
                                           const RetireSet *set)
{
    return a->entries.ways + (set - a->sets) * a->entries.assoc;
}

/* The same if it changes nothing, as most often; or else false. */
static inline bool retire_tlb_try(RetireTlb *t, uint64_t addr, RetirePage page)
{
    const RetireArray *a = t->dtlb[(page.lg_size >= 21) + (page.lg_size >= 30)];
    uint64_t number = addr >> page.lg_size;
    uint64_t entry = retire_tlb_entry(number, page);
    RetireSet *set = retire_tlb_set(a, number);
    const uint64_t *entries = retire_tlb_entries(a, set);

    for (uint64_t left = set->marked; left; left &= left - 1) {
        if (entries[__builtin_ctzll(left)] == entry) {
            set->slots |= 1ull << addr / RETIRE_LINE_SIZE % RETIRE_NR_SLOTS;
            return true;
        }
    }
    return false;
}

/* Whether lines are counted from now on. */
void retire_tlb_count_lines(RetireTlb *t, bool lines);

/*
 * With RetireTlb.lines: code at @addr is fetched, in another line than that of
 * RetireTlb.known.  Returns false if it only goes on: it is an instruction in
 * two lines, the last one fetched is its @second one, and QEMU executes it
 * again, or another iteration of it.
 */
static inline bool retire_fetch_counts(RetireTlb *t, uint64_t addr,
                                       uint64_t line, bool second)
{
    if (line == t->last || (!second && addr == t->split)) {
        return false;
    }
    t->split = second ? addr : RETIRE_NO_FETCH;
    return true;
}

/* The line at @addr has been fetched; whether nothing else has to be done. */
static inline bool retire_fetch_known(RetireTlb *t, uint64_t addr,
                                      uint64_t line)
{
    const RetireFetched *f = &t->fetched[line % RETIRE_NR_SLOTS];

    if (t->lines) {
        t->known[t->last % RETIRE_NR_SLOTS] = RETIRE_NO_FETCH;
        t->last = line;
    }
    t->known[line % RETIRE_NR_SLOTS] = line;
    return f->line == line && (f->addr ^ addr) < RETIRE_LINE_SIZE;
}

/* Or else, whether its page is that of the last fetch; */
static inline bool retire_fetch_same_page(const RetireTlb *t, uint64_t addr)
{
    return t->page_set && !((t->page_addr ^ addr) >> t->page.lg_size);
}

/*
 * A store to @line, with RetireTlb.code: whether L1I has it.  Then L1I loses
 * it, unless it is the last one that has been fetched, which is fetched again
 * at once.  The filter has no store to lines that L1I has.
 */
bool retire_code_store(RetireTlb *t, uint64_t line);

/* L1I has the line: it has now; */
bool retire_fetch_line(RetireTlb *t, uint64_t addr, uint64_t line);
/* and if there is paging, and it is another one, the page is used. */
RetireTlbResult retire_fetch_page(RetireTlb *t, uint64_t addr, uint64_t line,
                                  RetirePage page);

#endif
