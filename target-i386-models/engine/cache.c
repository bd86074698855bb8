/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Data caches: see cache.h. */

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "cache.h"

struct RetireUncore {
    bool lock;
    bool shared;            /* or else caches need no locks */
    RetireWays l3;
    RetireCache *caches;
};

/*
 * The uncore's lock protects everything, but for what a processor does to its
 * own caches in retire_cache_try(): that takes the processor's lock.  Who needs
 * both takes the uncore's first.  Waiting yields the host's CPU, because who
 * has the lock may have been preempted.
 */
static void lock(bool *flag)
{
    while (__atomic_test_and_set(flag, __ATOMIC_ACQUIRE)) {
        sched_yield();
    }
}

static void unlock(bool *flag)
{
    __atomic_clear(flag, __ATOMIC_RELEASE);
}

bool retire_geometry_valid(const RetireGeometry *g)
{
    uint64_t way = (uint64_t)g->assoc * RETIRE_LINE_SIZE;

    return g->size == 0 || (g->assoc && g->size % way == 0);
}

static size_t level_size(const RetireWays *l)
{
    return (l->set_mask + 1) * l->assoc * sizeof(*l->ways);
}

bool retire_ways_init(RetireWays *w, uint32_t nr, uint32_t assoc)
{
    uint32_t sets;

    *w = (RetireWays) { 0 };
    if (!nr) {
        return true;
    }
    sets = nr / assoc;
    w->assoc = assoc;
    w->set_mask = sets - 1;
    w->sets = sets & (sets - 1) ? sets : 0;
    w->ways = calloc(1, level_size(w));
    return w->ways;
}

static bool level_init(RetireWays *l, const RetireGeometry *g)
{
    return retire_ways_init(l, g->size / RETIRE_LINE_SIZE, g->assoc);
}

static uint64_t *set_of(const RetireWays *l, uint64_t line)
{
    return l->ways + retire_set_of(l, line) * l->assoc;
}

/* The way that has @line, or NULL. */
static uint64_t *level_find(const RetireWays *l, uint64_t line)
{
    uint64_t *set = l->assoc ? set_of(l, line) : NULL;

    for (uint32_t way = 0; way < l->assoc; way++) {
        if (!((set[way] ^ retire_own_way(line)) &
              ~(uint64_t)(RETIRE_WAY_OWNED | RETIRE_WAY_MODIFIED))) {
            return &set[way];
        }
    }
    return NULL;
}

/* Add a line that is not there; returns what makes room, or 0. */
static uint64_t level_insert(RetireWays *l, uint64_t word)
{
    uint64_t *set = set_of(l, word >> RETIRE_WAY_SHIFT);
    uint64_t victim = set[l->assoc - 1];

    memmove(set + 1, set, (l->assoc - 1) * sizeof(*set));
    set[0] = word;
    return victim;
}

/* What becomes of a line where another processor, or nobody, wants it */
typedef enum RetireSnoop {
    RETIRE_KEPT, RETIRE_SHARED, RETIRE_TAKEN
} RetireSnoop;

/* The way that has the line, or had, or 0 */
static uint64_t level_snoop(RetireWays *l, uint64_t line, RetireSnoop what)
{
    uint64_t *way = level_find(l, line), *last;
    uint64_t word = way ? *way : 0;

    if (!way) {
        return 0;
    }
    if (what == RETIRE_SHARED) {
        *way &= ~(uint64_t)(RETIRE_WAY_OWNED | RETIRE_WAY_MODIFIED);
    } else if (what == RETIRE_TAKEN) {
        last = set_of(l, line) + l->assoc - 1;
        memmove(way, way + 1, (last - way) * sizeof(*way));
        *last = 0;
    }
    return word;
}

/* Translated code reads slots while another processor takes lines away. */
static void set_slot(uint64_t *slot, uint64_t addr)
{
    __atomic_store_n(slot, addr, __ATOMIC_RELAXED);
}

static RetireSlot *slot_of(RetireFilter *f, uint64_t line)
{
    return &f->slot[line % RETIRE_NR_SLOTS];
}

static void forget_slot(RetireFilter *f, uint64_t line)
{
    set_slot(&slot_of(f, line)->load, retire_no_line(line));
    set_slot(&slot_of(f, line)->store, retire_no_line(line));
}

void retire_filter_forget(RetireFilter *filter, uint64_t slots)
{
    for (; slots; slots &= slots - 1) {
        forget_slot(filter, (uint64_t)__builtin_ctzll(slots));
    }
}

/* The line of @word has been used, and before that @last of its set. */
static void use_slot(RetireCache *c, uint64_t last, uint64_t word,
                     uint64_t addr)
{
    uint64_t line = word >> RETIRE_WAY_SHIFT;
    uint32_t silent = c->uncore->shared ? RETIRE_WAY_MODIFIED :
                                          RETIRE_WAY_OWNED;
    RetireSlot *slot = slot_of(c->filter, line);

    forget_slot(c->filter, last >> RETIRE_WAY_SHIFT);
    addr &= -(uint64_t)RETIRE_LINE_SIZE;
    set_slot(&slot->load, addr);
    set_slot(&slot->store, word & silent ? addr : retire_no_line(line));
}

/* All that level_snoop() says of the other processors' caches than @c. */
static uint64_t snoop(RetireUncore *u, const RetireCache *c, uint64_t line,
                      RetireSnoop what)
{
    uint64_t found = 0;

    for (RetireCache *o = u->caches; o; o = o->next) {
        if (o == c) {
            continue;
        }
        lock(&o->lock);
        found |= level_snoop(&o->l1, line, what);
        found |= level_snoop(&o->l2, line, what);
        if (what == RETIRE_SHARED) {
            set_slot(&slot_of(o->filter, line)->store, retire_no_line(line));
        } else if (what == RETIRE_TAKEN) {
            forget_slot(o->filter, line);
        }
        unlock(&o->lock);
    }
    return found;
}

RetireUncore *retire_uncore_new(const RetireGeometry *g)
{
    RetireUncore *u = calloc(1, sizeof(*u));

    if (u && !level_init(&u->l3, &g[RETIRE_L3])) {
        free(u);
        return NULL;
    }
    return u;
}

void retire_uncore_share(RetireUncore *uncore)
{
    if (uncore->shared) {
        return;
    }
    for (RetireCache *c = uncore->caches; c; c = c->next) {
        c->is_plain = false;
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
    if (!level_init(&c->l1, &g[RETIRE_L1D]) ||
        !level_init(&c->l2, &g[RETIRE_L2])) {
        free(c->l1.ways);
        free(c);
        return NULL;
    }
    c->filter = filter;
    c->uncore = uncore;
    c->is_plain = !uncore->shared && c->l1.assoc % 4 == 0 && !c->l1.sets &&
                  c->l1.set_mask >= RETIRE_NR_SLOTS - 1 &&
                  c->l2.assoc % 4 == 0 && !c->l2.sets;
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
    free(c->l1.ways);
    free(c->l2.ways);
    free(c);
}

void retire_cache_flush(RetireCache *c)
{
    RetireWays *level[] = { &c->l1, &c->l2, &c->uncore->l3 };

    for (int i = 0; i < RETIRE_NR_LEVELS; i++) {
        uint64_t *old, *empty = calloc(1, level_size(level[i]));

        /* Others wait, but not until @old is empty if there is memory. */
        lock(&c->uncore->lock);
        old = level[i]->ways;
        if (empty) {
            level[i]->ways = empty;
        } else {
            memset(old, 0, level_size(level[i]));
        }
        unlock(&c->uncore->lock);
        free(empty ? old : NULL);
    }
    retire_filter_clear(c->filter);
}

void retire_uncore_flush_line(RetireUncore *uncore, uint64_t line)
{
    lock(&uncore->lock);
    snoop(uncore, NULL, line, RETIRE_TAKEN);
    level_snoop(&uncore->l3, line, RETIRE_TAKEN);
    unlock(&uncore->lock);
}

/*
 * Make the way of @line the first one, if it is there and nobody else has to be
 * asked.  Returns it, or 0.
 */
static uint64_t level_use(RetireWays *l, uint64_t line, bool store)
{
    uint64_t *set = set_of(l, line), *way = level_find(l, line);
    uint64_t word = way ? *way : 0;

    if (!way || (store && !(word & RETIRE_WAY_OWNED))) {
        return 0;
    }
    for (; way > set; way--) {
        *way = way[-1];
    }
    *set = word;
    return word;
}

RetireSource retire_cache_try(RetireCache *c, uint64_t line, uint64_t addr,
                              bool store)
{
    RetireSource source = RETIRE_SOURCE_L1;
    bool shared = c->uncore->shared;
    uint64_t *first = set_of(&c->l1, line), *l2, last, word;

    if (shared) {
        lock(&c->lock);
    }
    last = *first;
    word = level_use(&c->l1, line, store);
    if (!word) {
        source = RETIRE_SOURCE_L2;
        word = level_use(&c->l2, line, store);
        if (word) {
            level_insert(&c->l1, word);
        }
    }
    if (word && store && shared && !(word & RETIRE_WAY_MODIFIED)) {
        word = *first |= RETIRE_WAY_MODIFIED;
        l2 = level_find(&c->l2, line);
        if (l2) {
            *l2 |= RETIRE_WAY_MODIFIED;
        }
    }
    if (word) {
        use_slot(c, last, word, addr);
    }
    if (shared) {
        unlock(&c->lock);
    }
    return word ? source : RETIRE_SOURCE_UNKNOWN;
}

RetireSource retire_cache_access(RetireCache *c, uint64_t line, uint64_t addr,
                                 bool store)
{
    RetireSource source = retire_cache_try(c, line, addr, store);
    RetireUncore *u = c->uncore;
    uint64_t word = retire_own_way(line), victim, remote;
    bool l1 = false, l2 = false, l3 = false;

    if (source != RETIRE_SOURCE_UNKNOWN) {
        return source;
    }
    lock(&u->lock);
    if (store && u->shared) {       /* or else it would have been found */
        l1 = level_snoop(&c->l1, line, RETIRE_TAKEN);
        l2 = level_snoop(&c->l2, line, RETIRE_TAKEN);
    }
    remote = snoop(u, c, line, store ? RETIRE_TAKEN : RETIRE_SHARED);
    if (remote && !store) {
        word &= ~(uint64_t)RETIRE_WAY_OWNED;
    } else {
        word |= store && u->shared ? RETIRE_WAY_MODIFIED : 0;
        l3 = level_snoop(&u->l3, line, RETIRE_TAKEN);
    }
    c->modified = remote & RETIRE_WAY_MODIFIED;
    use_slot(c, *set_of(&c->l1, line), word, addr);
    level_insert(&c->l1, word);
    victim = level_insert(&c->l2, word);
    if (victim && u->l3.assoc) {
        /* L3 does not keep what it gives to an owner. */
        if (!(victim & RETIRE_WAY_OWNED)) {
            level_snoop(&u->l3, victim >> RETIRE_WAY_SHIFT, RETIRE_TAKEN);
        }
        level_insert(&u->l3, victim);
    }
    unlock(&u->lock);
    return l1 ? RETIRE_SOURCE_L1 : l2 ? RETIRE_SOURCE_L2 :
           remote ? RETIRE_SOURCE_REMOTE :
           l3 ? RETIRE_SOURCE_L3 : RETIRE_SOURCE_DRAM;
}

RetireSource retire_cache_peek(RetireCache *c, uint64_t line)
{
    RetireUncore *u = c->uncore;
    RetireSource source;

    lock(&u->lock);
    source = level_find(&c->l1, line) ? RETIRE_SOURCE_L1 :
             level_find(&c->l2, line) ? RETIRE_SOURCE_L2 :
             snoop(u, c, line, RETIRE_KEPT) ? RETIRE_SOURCE_REMOTE :
             level_find(&u->l3, line) ? RETIRE_SOURCE_L3 : RETIRE_SOURCE_DRAM;
    unlock(&u->lock);
    return source;
}
