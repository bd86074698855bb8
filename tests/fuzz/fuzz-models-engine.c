/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzz target: any accesses of up to three processors to caches of any
 * geometry, and any branches, with memory that is short now and then.  The
 * caches must do as lists do that know only what cache.h says, and a short cut
 * must only be there for what would change nothing.  The predictor must do as
 * its textbook does.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "input.h"
#include "models/engine/cache.h"
#include "models/engine/predictor.h"

#define NR_CPUS     3
#define MAX_LINES   2048        /* of a cache */

/* A cache; the ways of a set are in the order of their use. */
typedef struct List {
    uint32_t sets, assoc;
    uint64_t line[MAX_LINES];   /* plus 1; 0: none */
    bool owned[MAX_LINES];
} List;

typedef struct Cpu {
    RetireCache *cache;         /* NULL: unplugged */
    RetireFilter filter;
    List l1, l2;
} Cpu;

static RetireGeometry geometry[RETIRE_NR_LEVELS];
static RetireUncore *uncore;
static Cpu cpus[NR_CPUS];
static List l3;
static unsigned calloc_fails_in;
static RetirePredictor predictor;
/* The textbook: two outcomes, four counters */
static struct {
    uint8_t outcomes, counter[4];
} book[RETIRE_NR_CONDS];

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    if (calloc_fails_in && --calloc_fails_in == 0) {
        return NULL;
    }
    return __real_calloc(n, size);
}

/*
 * The lists
 */

static void list_init(List *l, const RetireGeometry *g)
{
    *l = (List) { .assoc = g->assoc };
    l->sets = g->size ? g->size / RETIRE_LINE_SIZE / g->assoc : 0;
}

/* Where @line is, or would be the oldest one of its set plus 1 */
static uint32_t list_find(const List *l, uint64_t line, bool *found)
{
    uint32_t first = l->sets ? line % l->sets * l->assoc : 0;
    uint32_t i, n = l->sets ? l->assoc : 0;

    for (i = first; i < first + n && l->line[i] != line + 1; i++) {
        continue;
    }
    *found = i < first + n;
    return i;
}

static bool list_has(const List *l, uint64_t line)
{
    bool found;

    list_find(l, line, &found);
    return found;
}

static void list_remove(List *l, uint64_t line)
{
    bool found;
    uint32_t i = list_find(l, line, &found);

    if (found) {
        for (; (i + 1) % l->assoc; i++) {
            l->line[i] = l->line[i + 1];
            l->owned[i] = l->owned[i + 1];
        }
        l->line[i] = 0;
    }
}

/* Make it the first one; returns what falls out, plus 1. */
static uint64_t list_use(List *l, uint64_t line, bool owned)
{
    uint32_t last = (line % l->sets + 1) * l->assoc - 1;
    uint64_t victim;

    list_remove(l, line);
    victim = l->line[last];
    for (uint32_t i = last; i % l->assoc; i--) {
        l->line[i] = l->line[i - 1];
        l->owned[i] = l->owned[i - 1];
    }
    l->line[last + 1 - l->assoc] = line + 1;
    l->owned[last + 1 - l->assoc] = owned;
    return victim;
}

static bool list_owned(const List *l, uint64_t line)
{
    bool found;
    uint32_t i = list_find(l, line, &found);

    return found && l->owned[i];
}

static void list_share(List *l, uint64_t line)
{
    bool found;
    uint32_t i = list_find(l, line, &found);

    if (found) {
        l->owned[i] = false;
    }
}

static RetireSource where(const Cpu *c, uint64_t line)
{
    if (list_has(&c->l1, line)) {
        return RETIRE_SOURCE_L1;
    } else if (list_has(&c->l2, line)) {
        return RETIRE_SOURCE_L2;
    }
    for (int i = 0; i < NR_CPUS; i++) {
        if (&cpus[i] != c && cpus[i].cache &&
            (list_has(&cpus[i].l1, line) || list_has(&cpus[i].l2, line))) {
            return RETIRE_SOURCE_REMOTE;
        }
    }
    return list_has(&l3, line) ? RETIRE_SOURCE_L3 : RETIRE_SOURCE_DRAM;
}

static bool anywhere_else(const Cpu *c, uint64_t line)
{
    for (int i = 0; i < NR_CPUS; i++) {
        if (&cpus[i] != c && cpus[i].cache &&
            (list_has(&cpus[i].l1, line) || list_has(&cpus[i].l2, line))) {
            return true;
        }
    }
    return false;
}

/* Others are to be asked. */
static void list_fill(Cpu *c, uint64_t line, bool store)
{
    bool remote = anywhere_else(c, line);
    uint64_t victim;

    for (int i = 0; i < NR_CPUS; i++) {
        if (&cpus[i] == c || !cpus[i].cache) {
            continue;
        } else if (store) {
            list_remove(&cpus[i].l1, line);
            list_remove(&cpus[i].l2, line);
        } else {
            list_share(&cpus[i].l1, line);
            list_share(&cpus[i].l2, line);
        }
    }
    if (store || !remote) {
        list_remove(&l3, line);
    }
    victim = list_use(&c->l2, line, store || !remote);
    list_use(&c->l1, line, store || !remote);
    if (victim && l3.sets) {
        list_use(&l3, victim - 1, false);
    }
}

/*
 * What is done with the caches
 */

#ifdef RETIRE_WAYS_AVX2
static RetireSource __attribute__((target("avx2")))
try_avx2(Cpu *c, uint64_t line, uint64_t addr)
{
    return retire_cache_try_avx2(c->cache, &c->filter, line, addr);
}
#endif

/* With the short cut of one who is alone */
static RetireSource quick_access(Cpu *c, uint64_t line, uint64_t addr,
                                 bool store)
{
    RetireSource source = RETIRE_SOURCE_UNKNOWN;

#ifdef RETIRE_WAYS_AVX2
    if (c->cache->is_plain && __builtin_cpu_supports("avx2")) {
        source = try_avx2(c, line, addr);
    }
#endif
    return source != RETIRE_SOURCE_UNKNOWN ? source :
           retire_cache_try(c->cache, line, addr, store);
}

static void do_access(Cpu *c, uint64_t line, bool store)
{
    RetireSource expected = where(c, line), got;
    const List *l = expected == RETIRE_SOURCE_L1 ? &c->l1 : &c->l2;
    bool known = expected == RETIRE_SOURCE_L1 || expected == RETIRE_SOURCE_L2;
    /* In slot @line, so that linear and physical pages may differ */
    uint64_t addr = (line ^ 0xabc000) << RETIRE_LINE_BITS | 5;

    if (retire_cache_peek(c->cache, line) != expected) {
        fail("a line is not where it should be");
    }
    got = quick_access(c, line, addr, store);
    if (known && (!store || list_owned(l, line))) {
        bool owned = list_owned(l, line);

        if (expected == RETIRE_SOURCE_L2) {
            list_use(&c->l2, line, owned);
        }
        list_use(&c->l1, line, owned);
    } else {
        if (got != RETIRE_SOURCE_UNKNOWN) {
            fail("others have not been asked");
        }
        got = retire_cache_access(c->cache, line, addr, store);
        list_fill(c, line, store);
    }
    if (got != expected) {
        fail("a line came from somewhere else");
    }
}

static void do_flush(Cpu *c)
{
    retire_cache_flush(c->cache);
    list_init(&c->l1, &geometry[RETIRE_L1D]);
    list_init(&c->l2, &geometry[RETIRE_L2]);
    list_init(&l3, &geometry[RETIRE_L3]);
}

static void do_flush_line(uint64_t line)
{
    retire_uncore_flush_line(uncore, line);
    for (int i = 0; i < NR_CPUS; i++) {
        if (cpus[i].cache) {
            list_remove(&cpus[i].l1, line);
            list_remove(&cpus[i].l2, line);
        }
    }
    list_remove(&l3, line);
}

static void unplug(Cpu *c)
{
    retire_cache_free(c->cache);
    c->cache = NULL;
}

static void plug(Cpu *c)
{
    list_init(&c->l1, &geometry[RETIRE_L1D]);
    list_init(&c->l2, &geometry[RETIRE_L2]);
    if (c != cpus) {
        retire_uncore_share(uncore);
    }
    c->cache = retire_cache_new(uncore, geometry, &c->filter);
}

/* What takes the short cut must be the first one of its set, and owned. */
static void check_filter(const Cpu *c)
{
    for (uint64_t n = 0; n < RETIRE_NR_SLOTS; n++) {
        const RetireSlot *slot = &c->filter.slot[n];
        uint64_t line = (slot->load >> RETIRE_LINE_BITS) ^ 0xabc000;
        bool found;
        uint32_t i;

        if (slot->store != slot->load && slot->store != retire_no_line(n)) {
            fail("a short cut to another line");
        }
        if (slot->load == retire_no_line(n)) {
            continue;
        }
        i = list_find(&c->l1, line, &found);
        if (!found || i % c->l1.assoc || line % RETIRE_NR_SLOTS != n ||
            (slot->store == slot->load && !c->l1.owned[i])) {
            fail("a short cut to what is not the first line");
        }
    }
}

static void check_geometry(void)
{
    RetireGeometry g = { .size = take(4), .assoc = take(1) };
    uint64_t way = (uint64_t)g.assoc * RETIRE_LINE_SIZE;
    bool valid = !g.size || (way && g.size % way == 0);

    if (retire_geometry_valid(&g) != valid) {
        fail("a geometry");
    }
}

/*
 * Branches
 */

/* A conditional one; what others do is up to translated code. */
static void branch(uint64_t ip, bool taken)
{
    uint32_t n = ip % RETIRE_NR_CONDS;
    const RetireCond *cond = predictor.cond[n];
    bool expected;
    uint8_t *counter = &book[n].counter[book[n].outcomes];

    predictor.cond[n] = cond->next[taken];
    expected = *counter >= 2;
    *counter += taken ? *counter < 3 : -(*counter > 0);
    book[n].outcomes = (book[n].outcomes << 1 | taken) & 3;
    if (cond->count[taken] != RETIRE_BRANCH_ONE +
        (expected == taken ? 0 : RETIRE_BRANCH_MISPREDICTED)) {
        fail("a prediction that is not the textbook's");
    }
}

static void step(uint8_t op)
{
    Cpu *c = &cpus[op % NR_CPUS];
    uint64_t arg, ip;

    switch (op / NR_CPUS % 8) {
    case 0:
    case 1:
    case 2:
        /* A run of lines, as programs have it */
        arg = take(2);
        for (unsigned n = 0; c->cache && n <= arg >> 12; n++) {
            do_access(c, (arg & 0x7ff) + n, arg & 0x800);
            check_filter(c);
        }
        break;
    case 3:
        if (op >= 128) {
            do_flush_line(take(2) & 0x7ff);
        } else if (c->cache) {
            do_flush(c);
        }
        break;
    case 4:
        if (c->cache) {
            unplug(c);
        } else {
            calloc_fails_in = take(1) % 8;
            plug(c);
            calloc_fails_in = 0;
        }
        break;
    case 5:
        check_geometry();
        break;
    default:
        ip = take(1);
        arg = take(4);
        for (int i = 0; i < 32; i++) {
            branch(ip, arg >> i & 1);
        }
        break;
    }
    for (int i = 0; i < NR_CPUS; i++) {
        if (cpus[i].cache) {
            check_filter(&cpus[i]);
        }
    }
}

static void take_geometry(RetireGeometry *g, bool none)
{
    static const uint32_t assoc[] = { 1, 2, 3, 4, 8, 16 };
    uint32_t how = take(1);

    g->assoc = assoc[how % 6];
    g->size = none && how >= 192 ? 0 :
              (RETIRE_LINE_SIZE << how / 6 % 7) * g->assoc;
    if (how / 42 % 3 == 1) {
        g->size += g->size / 2 / g->assoc / RETIRE_LINE_SIZE *
                   g->assoc * RETIRE_LINE_SIZE;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t how;

    input = data;
    input_end = data + size;
    take_geometry(&geometry[RETIRE_L1D], false);
    take_geometry(&geometry[RETIRE_L2], false);
    take_geometry(&geometry[RETIRE_L3], true);
    how = take(1);
    calloc_fails_in = how % 8;
    uncore = retire_uncore_new(geometry);
    calloc_fails_in = 0;
    if (!uncore) {
        return 0;
    }
    list_init(&l3, &geometry[RETIRE_L3]);
    for (int i = 0; i < (how & 0x80 ? 1 : NR_CPUS); i++) {
        plug(&cpus[i]);
    }
    retire_predictor_init(&predictor);
    for (int i = 0; i < RETIRE_NR_CONDS; i++) {
        book[i].outcomes = 0;
        memcpy(book[i].counter, (uint8_t[]) { 1, 2, 1, 2 }, 4);
    }
    while (input < input_end) {
        step(take(1));
    }
    for (int i = 0; i < NR_CPUS; i++) {
        if (cpus[i].cache) {
            unplug(&cpus[i]);
        }
    }
    retire_uncore_free(uncore);
    return 0;
}
