/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Data caches: see cache.h. */

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "cache.h"

/*
 * A processor's lock protects its own caches, from others that take lines away.
 * Whoever looks into the caches of others, or into L3, holds the uncore's lock;
 * it is taken before any processor's, because otherwise two processors could
 * wait for each other.
 */
struct RetireCache {
    atomic_flag lock;
    RetireWays l1, l2;
    RetireFilter *filter;
    RetireUncore *uncore;
    RetireCache *next;
    bool filled;            /* since it was flushed */
};

struct RetireUncore {
    atomic_flag lock;
    atomic_bool shared;     /* or else caches need no locks */
    RetireWays l3;
    uint64_t l3_flushes;    /* see l3_at() */
    RetireCache *caches;
};

/*
 * A processor's lock is held for one set of each of its levels, the uncore's
 * for one set of each cache there is.  Waiting yields the host's CPU, because
 * who has the lock may have been preempted.
 */
static void lock(atomic_flag *flag)
{
    while (atomic_flag_test_and_set_explicit(flag, memory_order_acquire)) {
        sched_yield();
    }
}

static void unlock(atomic_flag *flag)
{
    atomic_flag_clear_explicit(flag, memory_order_release);
}

/* Whether a processor has to lock its @c, because others may look into @c. */
static inline bool has_lock(const RetireCache *c)
{
    return atomic_load_explicit(&c->uncore->shared, memory_order_relaxed);
}

static inline void lock_own(RetireCache *c)
{
    if (has_lock(c)) {
        lock(&c->lock);
    }
}

static inline void unlock_own(RetireCache *c)
{
    if (has_lock(c)) {
        unlock(&c->lock);
    }
}

bool retire_geometry_valid(const RetireGeometry *g)
{
    uint64_t way = (uint64_t)g->assoc * RETIRE_LINE_SIZE;

    return g->size == 0 || (g->assoc && g->size % way == 0);
}

/* Sets have @spare words behind their ways. */
static bool level_init(RetireWays *l, const RetireGeometry *g, uint32_t spare)
{
    uint32_t sets;

    *l = (RetireWays) { 0 };
    if (g->size == 0) {
        return true;
    }
    sets = g->size / RETIRE_LINE_SIZE / g->assoc;
    l->assoc = g->assoc;
    l->stride = g->assoc + spare;
    l->set_mask = sets - 1;
    l->sets = sets & (sets - 1) ? sets : 0;
    l->ways = calloc(sets, l->stride * sizeof(*l->ways));
    return l->ways;
}

/* Make L1D, in the slots of the filter if its geometry is that of the slots. */
static bool l1_init(RetireCache *c, const RetireGeometry *g)
{
    RetireFilter *f = c->filter;

    *f = (RetireFilter) { 0 };
    f->in_slots = g->assoc == RETIRE_SLOT_WAYS &&
                  g->size == g->assoc * RETIRE_NR_SLOTS * RETIRE_LINE_SIZE;
    if (!f->in_slots) {
        return level_init(&c->l1, g, 0);
    }
    c->l1 = (RetireWays) {
        .ways = f->slot[0].way,
        .set_mask = RETIRE_NR_SLOTS - 1,
        .assoc = g->assoc,
        .stride = sizeof(RetireSlot) / sizeof(uint64_t),
    };
    return true;
}

static void set_ways(RetireCache *c)
{
    /*
     * retire_filter_access() updates one slot, so all lines of a set of L1D
     * have to belong to that slot: L1D needs a set for each slot at least.
     */
    c->filter->has_ways = c->l1.assoc >= RETIRE_SLOT_WAYS && !c->l1.sets &&
                          c->l1.set_mask >= RETIRE_NR_SLOTS - 1 &&
                          c->l2.assoc >= RETIRE_SLOT_WAYS && !c->l2.sets &&
                          !has_lock(c);
}

static void l1_free(RetireCache *c)
{
    if (!c->filter->in_slots) {
        free(c->l1.ways);
    }
}

static inline uint64_t *set_of(const RetireWays *l, uint64_t line)
{
    return l->ways + (l->sets ? line % l->sets : line & l->set_mask) *
                     l->stride;
}

static void level_flush(RetireCache *c, const RetireWays *l)
{
    for (uint64_t n = 0; n <= l->set_mask; n++) {
        lock_own(c);
        memset(set_of(l, n), 0, l->assoc * sizeof(*l->ways));
        unlock_own(c);
    }
}

/*
 * L3, where the set of @line is up to date.  Everybody would wait while L3 is
 * emptied, so a flush only increments l3_flushes; a set whose spare word is not
 * that number is emptied here, before it is used again.
 */
static RetireWays *l3_at(RetireUncore *u, uint64_t line)
{
    RetireWays *l3 = &u->l3;

    if (l3->assoc) {
        uint64_t *set = set_of(l3, line);

        if (set[l3->assoc] != u->l3_flushes) {
            memset(set, 0, l3->assoc * sizeof(*set));
            set[l3->assoc] = u->l3_flushes;
        }
    }
    return l3;
}

/* The number of the way that has @line, or @assoc. */
static inline uint32_t find_in(const uint64_t *set, uint64_t line,
                               uint32_t assoc)
{
    uint64_t word = line << RETIRE_WAY_SHIFT | RETIRE_WAY_VALID;
    uint32_t way;

#pragma GCC unroll 16
    for (way = 0; way < assoc; way++) {
        if ((set[way] & ~(uint64_t)RETIRE_WAY_OWNED) == word) {
            break;
        }
    }
    return way;
}

static inline uint32_t find(const RetireWays *l, const uint64_t *set,
                            uint64_t line)
{
    switch (l->assoc) {
    case 4:
        return find_in(set, line, 4);
    case 8:
        return find_in(set, line, 8);
    case 16:
        return find_in(set, line, 16);
    default:
        return find_in(set, line, l->assoc);
    }
}

/* The way that has @line, or NULL. */
static uint64_t *way_of(const RetireWays *l, uint64_t line)
{
    uint64_t *set;
    uint32_t way;

    if (!l->assoc) {
        return NULL;
    }
    set = set_of(l, line);
    way = find(l, set, line);
    return way < l->assoc ? &set[way] : NULL;
}

static bool retire_level_has(RetireWays *l, uint64_t line)
{
    return way_of(l, line);
}

static inline void move_to_front(uint64_t *set, uint32_t way, uint64_t word)
{
    for (; way > 0; way--) {
        set[way] = set[way - 1];
    }
    set[0] = word;
}

/* Add a line that is not there; returns what makes room. */
static uint64_t insert(RetireWays *l, uint64_t word)
{
    uint64_t *set = set_of(l, word >> RETIRE_WAY_SHIFT);
    uint64_t victim = set[l->assoc - 1];

    memmove(set + 1, set, (l->assoc - 1) * sizeof(*set));
    set[0] = word;
    return victim;
}

/* Make the line of @word the most recent one; returns what makes room, or 0. */
static uint64_t touch(RetireWays *l, uint64_t word)
{
    uint64_t line = word >> RETIRE_WAY_SHIFT;
    uint64_t *set = set_of(l, line);
    uint32_t way = find(l, set, line);

    if (way == l->assoc) {
        return insert(l, word);
    }
    move_to_front(set, way, word);
    return 0;
}

/* Remove @line; returns whether the line was there. */
static bool retire_level_take(RetireWays *l, uint64_t line)
{
    uint64_t *way = way_of(l, line), *last;

    if (!way) {
        return false;
    }
    last = set_of(l, line) + l->assoc - 1;
    memmove(way, way + 1, (last - way) * sizeof(*way));
    *last = 0;
    return true;
}

/* Another processor has @line, too; returns whether the line is here. */
static bool retire_level_share(RetireWays *l, uint64_t line)
{
    uint64_t *way = way_of(l, line);

    if (!way) {
        return false;
    }
    *way &= ~(uint64_t)RETIRE_WAY_OWNED;
    return true;
}

/* Translated code reads slots while another processor takes lines away. */
static inline void set_slot(uint64_t *slot, uint64_t addr)
{
    atomic_store_explicit((_Atomic uint64_t *)slot, addr, memory_order_relaxed);
}

/* An address that does not belong in slot @n, so that no access matches. */
static inline uint64_t no_line(uint64_t n)
{
    return n ? 0 : RETIRE_LINE_SIZE;
}

static void clear_slot(RetireFilter *f, uint64_t line, bool load)
{
    uint64_t n = line % RETIRE_NR_SLOTS;

    set_slot(&f->slot[n].store, no_line(n));
    if (load) {
        set_slot(&f->slot[n].load, no_line(n));
    }
}

void retire_filter_clear(RetireFilter *filter)
{
    for (uint64_t n = 0; n < RETIRE_NR_SLOTS; n++) {
        clear_slot(filter, n, true);
    }
}

RetireUncore *retire_uncore_new(const RetireGeometry *g)
{
    RetireUncore *u = calloc(1, sizeof(*u));

    if (u && !level_init(&u->l3, &g[RETIRE_L3], 1)) {
        free(u);
        return NULL;
    }
    return u;
}

void retire_uncore_share(RetireUncore *uncore)
{
    for (RetireCache *c = uncore->caches; c; c = c->next) {
        c->filter->has_ways = false;
    }
    uncore->shared = true;
}

void retire_uncore_free(RetireUncore *uncore)
{
    free(uncore->l3.ways);
    free(uncore);
}

RetireCache *retire_cache_new(RetireUncore *uncore, const RetireGeometry *g,
                        RetireFilter *filter)
{
    RetireCache *c = calloc(1, sizeof(*c));

    if (!c) {
        return NULL;
    }
    c->filter = filter;
    c->uncore = uncore;
    if (!l1_init(c, &g[RETIRE_L1D]) || !level_init(&c->l2, &g[RETIRE_L2], 0)) {
        l1_free(c);
        free(c);
        return NULL;
    }
    filter->l1 = c->l1;
    filter->l2 = c->l2;
    set_ways(c);
    retire_filter_clear(filter);
    lock(&uncore->lock);
    c->next = uncore->caches;
    uncore->caches = c;
    unlock(&uncore->lock);
    return c;
}

void retire_cache_free(RetireCache *c)
{
    RetireCache **p = &c->uncore->caches;

    lock(&c->uncore->lock);
    while (*p != c) {
        p = &(*p)->next;
    }
    *p = c->next;
    unlock(&c->uncore->lock);
    l1_free(c);
    free(c->l2.ways);
    free(c);
}

void retire_cache_flush(RetireCache *c)
{
    /*
     * Caches that have had no line since the last flush are not written to,
     * because the host need not have memory for them then.
     */
    if (c->filled) {
        level_flush(c, &c->l1);
        level_flush(c, &c->l2);
        retire_filter_clear(c->filter);
        c->filled = false;
    }
    lock(&c->uncore->lock);
    c->uncore->l3_flushes++;
    unlock(&c->uncore->lock);
}

void retire_uncore_flush_line(RetireUncore *uncore, uint64_t line)
{
    lock(&uncore->lock);
    for (RetireCache *c = uncore->caches; c; c = c->next) {
        lock(&c->lock);
        retire_level_take(&c->l1, line);
        retire_level_take(&c->l2, line);
        clear_slot(c->filter, line, true);
        unlock(&c->lock);
    }
    retire_level_take(l3_at(uncore, line), line);
    unlock(&uncore->lock);
}

/*
 * Make the line of @word the most recent one of its set in L1, where it is in
 * @way or, if that is the number of ways, nowhere, and of its slot in the
 * filter.
 */
static inline void retire_l1_use(RetireCache *c, uint64_t *set, uint32_t way,
                       uint64_t word, uint64_t addr)
{
    uint64_t line = word >> RETIRE_WAY_SHIFT, last = set[0] >> RETIRE_WAY_SHIFT;
    uint64_t n = line % RETIRE_NR_SLOTS;

    addr &= -(uint64_t)RETIRE_LINE_SIZE;
    if (last % RETIRE_NR_SLOTS != n) {
        clear_slot(c->filter, last, true);
    }
    set_slot(&c->filter->slot[n].load, addr);
    set_slot(&c->filter->slot[n].store,
             word & RETIRE_WAY_OWNED ? addr : no_line(n));
    move_to_front(set, way < c->l1.assoc ? way : way - 1, word);
}

bool retire_ways_use_more(const RetireWays *w, uint64_t *set, uint64_t word)
{
    for (uint32_t way = 4; way < w->assoc; way++) {
        if (set[way] == word) {
            move_to_front(set, way, word);
            return true;
        }
    }
    return false;
}

RetireSource retire_cache_access(RetireCache *c, uint64_t line, uint64_t addr,
                           bool store)
{
    uint64_t *set = set_of(&c->l1, line), *set2;
    RetireSource source = RETIRE_SOURCE_UNKNOWN;
    uint32_t way, way2;

    lock_own(c);
    way = find(&c->l1, set, line);
    if (way < c->l1.assoc) {
        if (!store || (set[way] & RETIRE_WAY_OWNED)) {
            retire_l1_use(c, set, way, set[way], addr);
            source = RETIRE_SOURCE_L1;
        }
    } else {
        set2 = set_of(&c->l2, line);
        way2 = find(&c->l2, set2, line);
        if (way2 < c->l2.assoc && (!store || (set2[way2] & RETIRE_WAY_OWNED))) {
            move_to_front(set2, way2, set2[way2]);
            retire_l1_use(c, set, way, set2[0], addr);
            source = RETIRE_SOURCE_L2;
        }
    }
    unlock_own(c);
    return source;
}

/*
 * Under the uncore's lock: do @op, which is retire_level_has(),
 * retire_level_share() or retire_level_take(), to the caches of all processors
 * but that of @c.  Returns whether one of them has had the line.
 */
static bool snoop(RetireCache *c, uint64_t line,
                  bool (*op)(RetireWays *l, uint64_t line))
{
    bool found = false;

    for (RetireCache *o = c->uncore->caches; o; o = o->next) {
        if (o == c) {
            continue;
        }
        lock(&o->lock);
        found |= op(&o->l1, line);
        found |= op(&o->l2, line);
        if (op != retire_level_has) {
            clear_slot(o->filter, line, op == retire_level_take);
        }
        unlock(&o->lock);
    }
    return found;
}

/*
 * A processor that is alone owns all lines: one that retire_cache_access() has
 * not found is in L3 or nowhere, and what falls out of L2 is not in L3, because
 * L3 does not keep what it gives to an owner.
 */
static RetireSource fill_alone(RetireCache *c, uint64_t line, uint64_t addr)
{
    RetireUncore *u = c->uncore;
    uint64_t word = retire_own_way(line), victim;
    bool l3 = retire_level_take(l3_at(u, line), line);

    victim = insert(&c->l2, word);
    retire_l1_use(c, set_of(&c->l1, line), c->l1.assoc, word, addr);
    if (victim && u->l3.assoc) {
        insert(l3_at(u, victim >> RETIRE_WAY_SHIFT), victim);
    }
    return l3 ? RETIRE_SOURCE_L3 : RETIRE_SOURCE_DRAM;
}

RetireSource retire_cache_fill(RetireCache *c, uint64_t line, uint64_t addr,
                               bool store)
{
    RetireUncore *u = c->uncore;
    uint64_t *set = set_of(&c->l1, line);
    uint64_t word = line << RETIRE_WAY_SHIFT | RETIRE_WAY_VALID, victim;
    uint32_t way;
    RetireSource source;
    bool remote, l3;

    c->filled = true;
    if (!has_lock(c)) {
        return fill_alone(c, line, addr);
    }
    lock(&u->lock);
    remote = snoop(c, line, store ? retire_level_take : retire_level_share);
    if (store || !remote) {
        word |= RETIRE_WAY_OWNED;
    }
    /*
     * L3 does not keep what it gives to an owner, nor what a store is about to
     * change.
     */
    l3 = (store || !remote) && retire_level_take(l3_at(u, line), line);

    lock_own(c);
    way = find(&c->l1, set, line);
    source = way < c->l1.assoc ? RETIRE_SOURCE_L1 :
             retire_level_has(&c->l2, line) ? RETIRE_SOURCE_L2 :
             remote ? RETIRE_SOURCE_REMOTE :
             l3 ? RETIRE_SOURCE_L3 : RETIRE_SOURCE_DRAM;
    victim = touch(&c->l2, word);
    retire_l1_use(c, set, way, word, addr);
    unlock_own(c);

    if (victim && u->l3.assoc) {
        touch(l3_at(u, victim >> RETIRE_WAY_SHIFT), victim);
    }
    unlock(&u->lock);
    return source;
}

RetireSource retire_cache_peek(RetireCache *c, uint64_t line)
{
    RetireUncore *u = c->uncore;
    RetireSource source;

    lock_own(c);
    source = retire_level_has(&c->l1, line) ? RETIRE_SOURCE_L1 :
             retire_level_has(&c->l2, line) ? RETIRE_SOURCE_L2 :
             RETIRE_SOURCE_DRAM;
    unlock_own(c);
    if (source != RETIRE_SOURCE_DRAM) {
        return source;
    }

    lock(&u->lock);
    if (snoop(c, line, retire_level_has)) {
        source = RETIRE_SOURCE_REMOTE;
    } else if (retire_level_has(l3_at(u, line), line)) {
        source = RETIRE_SOURCE_L3;
    }
    unlock(&u->lock);
    return source;
}
