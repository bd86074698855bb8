/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Unit tests of the caches and of the branch predictor, against models that
 * are as plain as can be.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <glib.h>
#include "models/engine/cache.h"
#include "models/engine/predictor.h"
#include "account.h"

#define CPUS        4
#define NOWHERE     UINT64_MAX

/* The linker has the engine call this one. */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static int calloc_fails_in = -1;    /* calls until one fails; none if < 0 */
static __thread size_t calloc_last_size;

void *__wrap_calloc(size_t n, size_t size)
{
    if (calloc_fails_in >= 0 && calloc_fails_in-- == 0) {
        return NULL;
    }
    calloc_last_size = n * size;
    return __real_calloc(n, size);
}

static void test_geometry(void)
{
    static const struct {
        uint32_t size, assoc;
        bool valid;
    } t[] = {
        { 0, 0, true }, { 0, 3, true },                 /* no cache */
        { 64, 1, true }, { 16384, 4, true }, { 16384, 256, true },
        { 12288, 3, true }, { 1u << 30, 128, true },
        { 12288, 4, true }, { 24576, 1, true },         /* 48, 384 sets */
        { 11 * 0x160000, 11, true }, { 0x12000000, 16, true },
        { 0x80000000, 1, true }, { 0xffffffc0, 0x3ffffff, true },
        { 16384, 0, false }, { 16384, 3, false },       /* 85 1/3 sets */
        { 32, 1, false }, { 96, 1, false }, { 16384 + 32, 4, false },
        { 16384, 512, false },                          /* half a set */
        { 64, 0x4000001, false },                       /* 64 * assoc wraps */
        { 0x80000000, 0x80000000, false },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        RetireGeometry g = { t[i].size, t[i].assoc };

        g_assert_true(retire_geometry_valid(&g) == t[i].valid);
    }
}

static void test_no_memory(void)
{
    static const RetireGeometry g[RETIRE_NR_LEVELS] = {
        { 1024, 4 }, { 1024, 4 }, { 1024, 4 }
    };
    RetireFilter filter;
    RetireUncore *u;
    RetireCache *c;

    for (int n = 0; n < 2; n++) {
        calloc_fails_in = n;
        g_assert_null(retire_uncore_new(g));
    }
    calloc_fails_in = -1;
    u = retire_uncore_new(g);
    g_assert_nonnull(u);
    for (int n = 0; n < 3; n++) {
        calloc_fails_in = n;
        g_assert_null(retire_cache_new(u, g, &filter));
    }
    calloc_fails_in = -1;
    c = retire_cache_new(u, g, &filter);
    g_assert_nonnull(c);
    retire_cache_free(c);
    retire_uncore_free(u);
}

/* Some processors, as translated code and its helper use them. */
typedef struct System {
    RetireUncore *uncore;
    RetireCache *cache[CPUS];
    RetireFilter filter[CPUS];
} System;

static void system_add(System *s, const RetireGeometry *g, int cpu)
{
    memset(&s->filter[cpu], g_test_rand_int(), sizeof(s->filter[cpu]));
    if (cpu) {
        retire_uncore_share(s->uncore);
    }
    s->cache[cpu] = retire_cache_new(s->uncore, g, &s->filter[cpu]);
    g_assert_nonnull(s->cache[cpu]);
}

static void system_init(System *s, const RetireGeometry *g, int cpus)
{
    memset(s, 0, sizeof(*s));
    s->uncore = retire_uncore_new(g);
    g_assert_nonnull(s->uncore);
    for (int i = 0; i < cpus; i++) {
        system_add(s, g, i);
    }
}

static void system_free(System *s)
{
    for (int i = 0; i < CPUS; i++) {
        if (s->cache[i]) {
            retire_cache_free(s->cache[i]);
        }
    }
    retire_uncore_free(s->uncore);
}

#ifdef RETIRE_WAYS_AVX2
static RetireSource __attribute__((target("avx2")))
try_avx2(RetireCache *c, RetireFilter *f, uint64_t line, uint64_t addr)
{
    return retire_cache_try_avx2(c, f, line, addr);
}
#endif

/* With the short cut of one who is alone */
static RetireSource quick_access(System *s, int cpu, uint64_t line,
                                 uint64_t addr, bool store)
{
    RetireCache *c = s->cache[cpu];
    RetireSource source = RETIRE_SOURCE_UNKNOWN;

#ifdef RETIRE_WAYS_AVX2
    if (c->is_plain && __builtin_cpu_supports("avx2")) {
        source = try_avx2(c, &s->filter[cpu], line, addr);
    }
#endif
    return source != RETIRE_SOURCE_UNKNOWN ? source :
           retire_cache_access(c, line, addr, store);
}

/* Where linear and physical addresses are the same. */
static RetireSource run(System *s, int cpu, uint64_t line, bool store)
{
    return retire_cache_access(s->cache[cpu], line, line * RETIRE_LINE_SIZE,
                               store);
}

/* What translated code looks at: whether it need not call the model. */
static bool matches(const RetireFilter *f, uint64_t addr, bool store)
{
    const RetireSlot *slot = &f->slot[addr / RETIRE_LINE_SIZE %
                                      RETIRE_NR_SLOTS];
    uint64_t val = __atomic_load_n(store ? &slot->store : &slot->load,
                                   __ATOMIC_RELAXED);

    return (val ^ addr) < RETIRE_LINE_SIZE;
}

/* Each way has the time of its last use; an empty one has been used at 0. */
typedef struct RefWay {
    uint64_t line, used;
} RefWay;

typedef struct RefLevel {
    RefWay *ways;
    uint32_t sets, assoc;
} RefLevel;

typedef struct Ref {
    RefLevel l1[CPUS], l2[CPUS], l3;
    GHashTable *owner;      /* CPU + 1; no other one has the line, */
    GHashTable *modified;   /* and it has written to these */
    uint64_t now;
    int cpus;
} Ref;

static void ref_level_init(RefLevel *l, const RetireGeometry *g)
{
    l->assoc = g->size ? g->assoc : 0;
    l->sets = g->size ? g->size / RETIRE_LINE_SIZE / g->assoc : 1;
    l->ways = g_new0(RefWay, l->sets * l->assoc);
}

static void ref_level_clear(RefLevel *l)
{
    for (uint32_t i = 0; i < l->sets * l->assoc; i++) {
        l->ways[i].used = 0;
    }
}

static void ref_init(Ref *r, const RetireGeometry *g, int cpus)
{
    *r = (Ref) {
        .cpus = cpus,
        .owner = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free,
                                       NULL),
        .modified = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free,
                                          NULL),
    };
    for (int i = 0; i < cpus; i++) {
        ref_level_init(&r->l1[i], &g[RETIRE_L1D]);
        ref_level_init(&r->l2[i], &g[RETIRE_L2]);
    }
    ref_level_init(&r->l3, &g[RETIRE_L3]);
}

static void ref_free(Ref *r)
{
    for (int i = 0; i < r->cpus; i++) {
        g_free(r->l1[i].ways);
        g_free(r->l2[i].ways);
    }
    g_free(r->l3.ways);
    g_hash_table_destroy(r->owner);
    g_hash_table_destroy(r->modified);
}

static int ref_owner(Ref *r, uint64_t line)
{
    return GPOINTER_TO_INT(g_hash_table_lookup(r->owner, &line)) - 1;
}

static void ref_set_owner(Ref *r, uint64_t line, int cpu)
{
    g_hash_table_insert(r->owner, g_memdup2(&line, sizeof(line)),
                        GINT_TO_POINTER(cpu + 1));
}

static bool ref_modified(Ref *r, uint64_t line)
{
    return g_hash_table_contains(r->modified, &line);
}

static void ref_set_modified(Ref *r, uint64_t line, bool modified)
{
    if (modified) {
        g_hash_table_add(r->modified, g_memdup2(&line, sizeof(line)));
    } else {
        g_hash_table_remove(r->modified, &line);
    }
}

static RefWay *ref_find(const RefLevel *l, uint64_t line)
{
    for (uint32_t i = 0; i < l->assoc; i++) {
        RefWay *way = &l->ways[line % l->sets * l->assoc + i];

        if (way->used && way->line == line) {
            return way;
        }
    }
    return NULL;
}

/* The way that was used first or, if @last, last. */
static RefWay *ref_extreme(const RefLevel *l, uint64_t line, bool last)
{
    RefWay *found = &l->ways[line % l->sets * l->assoc];

    for (uint32_t i = 1; i < l->assoc; i++) {
        RefWay *way = &l->ways[line % l->sets * l->assoc + i];

        if (last ? way->used > found->used : way->used < found->used) {
            found = way;
        }
    }
    return found;
}

/* Returns the line that was there before. */
static uint64_t ref_use(Ref *r, RefLevel *l, uint64_t line)
{
    RefWay *way = ref_find(l, line);
    uint64_t victim = NOWHERE;

    if (l->assoc == 0) {
        return NOWHERE;
    }
    if (!way) {
        way = ref_extreme(l, line, false);
        victim = way->used ? way->line : NOWHERE;
    }
    *way = (RefWay) { line, ++r->now };
    return victim;
}

static bool ref_drop(RefLevel *l, uint64_t line)
{
    RefWay *way = ref_find(l, line);

    if (way) {
        way->used = 0;
    }
    return way;
}

static bool ref_others_have(const Ref *r, int cpu, uint64_t line)
{
    for (int i = 0; i < r->cpus; i++) {
        if (i != cpu &&
            (ref_find(&r->l1[i], line) || ref_find(&r->l2[i], line))) {
            return true;
        }
    }
    return false;
}

static RetireSource ref_peek(const Ref *r, int cpu, uint64_t line)
{
    return ref_find(&r->l1[cpu], line) ? RETIRE_SOURCE_L1 :
           ref_find(&r->l2[cpu], line) ? RETIRE_SOURCE_L2 :
           ref_others_have(r, cpu, line) ? RETIRE_SOURCE_REMOTE :
           ref_find(&r->l3, line) ? RETIRE_SOURCE_L3 : RETIRE_SOURCE_DRAM;
}

static RetireSource ref_access(Ref *r, int cpu, uint64_t line, bool store)
{
    RetireSource source = ref_peek(r, cpu, line);
    uint64_t victim;

    if ((source == RETIRE_SOURCE_L1 || source == RETIRE_SOURCE_L2) &&
        (!store || ref_owner(r, line) == cpu)) {
        if (source == RETIRE_SOURCE_L2) {
            ref_use(r, &r->l2[cpu], line);
        }
        ref_use(r, &r->l1[cpu], line);
        ref_set_modified(r, line, store || ref_modified(r, line));
        return source;
    }

    ref_set_modified(r, line, store);
    if (!store && ref_others_have(r, cpu, line)) {
        ref_set_owner(r, line, -1);
    } else {
        ref_set_owner(r, line, cpu);
        ref_drop(&r->l3, line);
        for (int i = 0; store && i < r->cpus; i++) {
            if (i != cpu) {
                ref_drop(&r->l1[i], line);
                ref_drop(&r->l2[i], line);
            }
        }
    }
    ref_use(r, &r->l1[cpu], line);
    victim = ref_use(r, &r->l2[cpu], line);
    if (victim != NOWHERE) {
        ref_use(r, &r->l3, victim);
    }
    return source;
}

static void ref_flush_line(Ref *r, uint64_t line)
{
    for (int i = 0; i < r->cpus; i++) {
        ref_drop(&r->l1[i], line);
        ref_drop(&r->l2[i], line);
    }
    ref_drop(&r->l3, line);
}

/* Pages at odd places; several linear ones may be the same physical one. */
#define PAGES       24

typedef struct Page {
    uint64_t linear, physical;
} Page;

static Page pages[PAGES];

static void map_page(int n)
{
    static const uint64_t high[] = { 0, 1ull << 32, 0xfffff00000000 };

    pages[n].physical = high[n % 3] + g_test_rand_int_range(0, PAGES) * 4096;
    pages[n].linear = (n & 1 ? 0xffff800000000000 : 0) + n * 4096;
}

/* What the filter has changes nothing: it is used already, and owned. */
static void check_slot(Ref *r, const System *s, int cpu, unsigned n)
{
    for (int p = 0; p < PAGES; p++) {
        uint64_t addr = pages[p].linear + n * RETIRE_LINE_SIZE;
        uint64_t line = pages[p].physical / RETIRE_LINE_SIZE + n;

        if (matches(&s->filter[cpu], addr, false)) {
            RefWay *way = ref_extreme(&r->l1[cpu], line, true);

            g_assert_true(way->used && way->line == line);
        }
        if (matches(&s->filter[cpu], addr, true)) {
            g_assert_true(matches(&s->filter[cpu], addr, false));
            g_assert_cmpint(ref_owner(r, line), ==, cpu);
            g_assert_true(r->cpus == 1 || ref_modified(r, line));
        }
    }
}

static void clear_filters(System *s)
{
    for (int i = 0; i < CPUS; i++) {
        retire_filter_clear(&s->filter[i]);
    }
}

/*
 * Three of the same: the plain model, one that is always called, and one that
 * is called if the filter does not match.
 */
static void compare_caches(const RetireGeometry *g, int cpus)
{
    static System always, filtered;
    uint64_t recent[CPUS][8] = { };
    int pool = g_test_rand_int_range(2, PAGES * RETIRE_NR_SLOTS);
    int filter_hits = 0;
    Ref r;

    ref_init(&r, g, cpus);
    system_init(&always, g, cpus);
    system_init(&filtered, g, cpus);
    for (int i = 0; i < PAGES; i++) {
        map_page(i);
    }

    for (int i = 0; i < 12000; i++) {
        int cpu = g_test_rand_int_range(0, cpus);
        uint64_t *k = &recent[cpu][g_test_rand_int_range(0, 8)];
        bool store = g_test_rand_int_range(0, 3) == 0, modified;
        uint64_t line, addr;
        RetireSource want;
        unsigned n;

        if (g_test_rand_bit()) {
            *k = g_test_rand_int_range(0, pool);
        }
        n = *k / PAGES;
        line = pages[*k % PAGES].physical / RETIRE_LINE_SIZE + n;
        addr = pages[*k % PAGES].linear + n * RETIRE_LINE_SIZE +
               g_test_rand_int_range(0, RETIRE_LINE_SIZE);

        if (g_test_rand_bit()) {
            want = ref_peek(&r, cpu, line);
            g_assert_cmpint(retire_cache_peek(always.cache[cpu], line), ==,
                            want);
            g_assert_cmpint(retire_cache_peek(filtered.cache[cpu], line), ==,
                            want);
        }
        modified = ref_modified(&r, line);
        want = ref_access(&r, cpu, line, store);
        g_assert_cmpint(retire_cache_access(always.cache[cpu], line, addr,
                                            store), ==, want);
        if (matches(&filtered.filter[cpu], addr, store)) {
            g_assert_cmpint(want, ==, RETIRE_SOURCE_L1);
            filter_hits++;
        } else {
            g_assert_cmpint(quick_access(&filtered, cpu, line, addr, store), ==,
                            want);
        }
        if (want == RETIRE_SOURCE_REMOTE) {
            g_assert_true(always.cache[cpu]->modified == modified);
            g_assert_true(filtered.cache[cpu]->modified == modified);
        }
        g_assert_true(matches(&filtered.filter[cpu], addr, store));
        for (int c = 0; c < cpus; c++) {
            check_slot(&r, &filtered, c,
                       i % 64 ? n : g_test_rand_int_range(0, RETIRE_NR_SLOTS));
        }

        switch (g_test_rand_int_range(0, 2000)) {
        case 0:
            retire_cache_flush(always.cache[cpu]);
            retire_cache_flush(filtered.cache[cpu]);
            ref_level_clear(&r.l3);
            ref_level_clear(&r.l1[cpu]);
            ref_level_clear(&r.l2[cpu]);
            break;
        case 6 ... 200:
            retire_uncore_flush_line(always.uncore, line);
            retire_uncore_flush_line(filtered.uncore, line);
            ref_flush_line(&r, line);
            break;
        case 1:
            retire_cache_free(always.cache[cpu]);
            retire_cache_free(filtered.cache[cpu]);
            system_add(&always, g, cpu);
            system_add(&filtered, g, cpu);
            ref_level_clear(&r.l1[cpu]);
            ref_level_clear(&r.l2[cpu]);
            break;
        case 2 ... 5:
            map_page(g_test_rand_int_range(0, PAGES));
            clear_filters(&always);
            clear_filters(&filtered);
            break;
        }
    }
    g_assert_cmpint(filter_hits, >, 0);
    system_free(&always);
    system_free(&filtered);
    ref_free(&r);
}

static void test_model(void)
{
    static const RetireGeometry g[][RETIRE_NR_LEVELS] = {
        { { 16384, 4 }, { 2 << 20, 16 }, { 8 << 20, 64 } },
        { { 1024, 4 }, { 4096, 16 }, { 8192, 64 } },
        { { 1024, 1 }, { 2048, 1 }, { 4096, 1 } },      /* direct-mapped */
        { { 1024, 16 }, { 2048, 32 }, { 4096, 64 } },   /* one set */
        { { 8192, 1 }, { 16384, 16 }, { 0, 1 } },       /* 128 sets, no L3 */
        { { 32768, 2 }, { 32768, 4 }, { 65536, 8 } },   /* 256 sets */
        { { 1536, 3 }, { 1280, 5 }, { 1792, 7 } },      /* L1 is more than L2 */
        { { 1024, 4 }, { 1024, 4 }, { 0, 0 } },
        { { 64, 1 }, { 64, 1 }, { 64, 1 } },
        { { 32768, 8 }, { 65536, 4 }, { 45056, 11 } },  /* Skylake's shapes */
        { { 49152, 12 }, { 81920, 20 }, { 61440, 15 } },    /* Ice Lake's */
        { { 65536, 2 }, { 32768, 16 }, { 65536, 16 } }, /* K8's */
        { { 12288, 4 }, { 24576, 8 }, { 45056, 11 } },  /* 48, 48, 64 sets */
        { { 20480, 5 }, { 40960, 10 }, { 49152, 12 } },
    };

    for (int i = 0; i < G_N_ELEMENTS(g); i++) {
        for (int cpus = 1; cpus <= CPUS; cpus++) {
            compare_caches(g[i], cpus);
        }
    }
}

/* L1 has 2 lines, L2 and L3 have 4. */
static const RetireGeometry tiny[RETIRE_NR_LEVELS] = {
    { 128, 2 }, { 256, 4 }, { 256, 4 }
};

/* A victim L3: it has what L2 had to give up, until it is wanted again. */
static void test_levels(void)
{
    static const struct {
        uint64_t line;
        RetireSource source;
    } t[] = {
        { 1, RETIRE_SOURCE_DRAM }, { 1, RETIRE_SOURCE_L1 },
        { 2, RETIRE_SOURCE_DRAM }, { 1, RETIRE_SOURCE_L1 },
        { 3, RETIRE_SOURCE_DRAM },                         /* L1 loses 2 */
        { 1, RETIRE_SOURCE_L1 }, { 2, RETIRE_SOURCE_L2 },     /* L1 loses 3 */
        { 4, RETIRE_SOURCE_DRAM },
        { 5, RETIRE_SOURCE_DRAM },     /* L2 loses 1, not the 2 used since */
        { 2, RETIRE_SOURCE_L2 },
        { 1, RETIRE_SOURCE_L3 },                           /* L2 loses 3 */
        { 3, RETIRE_SOURCE_L3 },                           /* L2 loses 4 */
        { 6, RETIRE_SOURCE_DRAM }, { 7, RETIRE_SOURCE_DRAM }, /* 5, 2 */
        { 8, RETIRE_SOURCE_DRAM },                         /* 1 */
        { 9, RETIRE_SOURCE_DRAM },     /* L2 loses 3; L3, which is full, 4 */
        { 4, RETIRE_SOURCE_DRAM },                         /* 6; L3 loses 5 */
        { 2, RETIRE_SOURCE_L3 },
    };
    System s;

    system_init(&s, tiny, 1);
    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        g_assert_cmpint(retire_cache_peek(s.cache[0], t[i].line), ==,
                        t[i].source);
        g_assert_cmpint(run(&s, 0, t[i].line, i & 1), ==, t[i].source);
    }
    system_free(&s);
}

static void test_remote(void)
{
    const uint64_t x = 77, addr = x * RETIRE_LINE_SIZE;
    System s;

    system_init(&s, tiny, 3);
    g_assert_cmpint(run(&s, 0, x, false), ==, RETIRE_SOURCE_DRAM);
    g_assert_false(matches(&s.filter[0], addr, true));  /* not modified yet */
    g_assert_cmpint(run(&s, 0, x, true), ==, RETIRE_SOURCE_L1);
    g_assert_true(matches(&s.filter[0], addr, true));   /* nobody else has it */

    /* Others may read it as well; then a store is everybody's business. */
    g_assert_cmpint(retire_cache_peek(s.cache[1], x), ==, RETIRE_SOURCE_REMOTE);
    g_assert_cmpint(run(&s, 1, x, false), ==, RETIRE_SOURCE_REMOTE);
    g_assert_true(s.cache[1]->modified);
    g_assert_cmpint(run(&s, 2, x, false), ==, RETIRE_SOURCE_REMOTE);
    g_assert_false(s.cache[2]->modified);   /* memory has got it */
    for (int i = 0; i < 2; i++) {
        g_assert_true(matches(&s.filter[i], addr, false));
        g_assert_false(matches(&s.filter[i], addr, true));
        g_assert_cmpint(run(&s, i, x, false), ==, RETIRE_SOURCE_L1);
    }
    g_assert_cmpint(retire_cache_try(s.cache[1], x, addr, true), ==,
                    RETIRE_SOURCE_UNKNOWN);
    g_assert_true(matches(&s.filter[0], addr, false));  /* nothing done yet */
    g_assert_cmpint(retire_cache_access(s.cache[1], x, addr, true), ==,
                    RETIRE_SOURCE_L1);
    g_assert_true(matches(&s.filter[1], addr, true));
    g_assert_false(matches(&s.filter[0], addr, false));
    g_assert_false(matches(&s.filter[0], addr, true));
    g_assert_cmpint(retire_cache_peek(s.cache[0], x), ==, RETIRE_SOURCE_REMOTE);

    /* A store takes it from wherever it is, even from several. */
    g_assert_cmpint(run(&s, 0, x, false), ==, RETIRE_SOURCE_REMOTE);
    g_assert_cmpint(run(&s, 2, x, true), ==, RETIRE_SOURCE_REMOTE);
    g_assert_cmpint(run(&s, 1, x, true), ==, RETIRE_SOURCE_REMOTE);
    g_assert_cmpint(run(&s, 0, x, false), ==, RETIRE_SOURCE_REMOTE);

    /* Only in L2 of that processor: remote all the same. */
    run(&s, 1, x + 1, false);
    run(&s, 1, x + 2, false);
    g_assert_cmpint(retire_cache_peek(s.cache[1], x), ==, RETIRE_SOURCE_L2);
    g_assert_cmpint(run(&s, 2, x, true), ==, RETIRE_SOURCE_REMOTE);
    g_assert_cmpint(retire_cache_peek(s.cache[1], x), ==, RETIRE_SOURCE_REMOTE);

    /* A processor beats L3, and L3 is for all. */
    run(&s, 0, x, false);
    for (int i = 1; i <= 4; i++) {
        run(&s, 2, x + 10 + i, false);
    }
    g_assert_cmpint(run(&s, 1, x, false), ==, RETIRE_SOURCE_REMOTE);
    retire_cache_free(s.cache[0]);
    retire_cache_free(s.cache[1]);
    s.cache[0] = s.cache[1] = NULL;
    g_assert_cmpint(retire_cache_peek(s.cache[2], x), ==, RETIRE_SOURCE_L3);
    system_add(&s, tiny, 0);
    g_assert_cmpint(run(&s, 0, x, false), ==, RETIRE_SOURCE_L3);
    g_assert_cmpint(run(&s, 2, x, false), ==, RETIRE_SOURCE_REMOTE);
    system_free(&s);
}

/* All that one processor and L3 have; what others have stays. */
static void test_flush(void)
{
    System s;

    system_init(&s, tiny, 2);
    for (int i = 1; i <= 5; i++) {
        run(&s, 0, i, false);                           /* L3 gets 1 */
    }
    run(&s, 1, 6, true);
    retire_cache_flush(s.cache[0]);
    for (int i = 1; i <= 5; i++) {
        g_assert_false(matches(&s.filter[0], i * RETIRE_LINE_SIZE, false));
        g_assert_cmpint(retire_cache_peek(s.cache[0], i), ==,
                        RETIRE_SOURCE_DRAM);
        g_assert_cmpint(retire_cache_peek(s.cache[1], i), ==,
                        RETIRE_SOURCE_DRAM);
    }
    g_assert_true(matches(&s.filter[1], 6 * RETIRE_LINE_SIZE, true));
    g_assert_cmpint(run(&s, 1, 6, true), ==, RETIRE_SOURCE_L1);
    g_assert_cmpint(run(&s, 0, 6, false), ==, RETIRE_SOURCE_REMOTE);
    system_free(&s);
}

/*
 * Others wait for L3 while it is emptied, so it gets new memory, if there is
 * any, and its size makes no difference.
 */
static void test_flush_large(void)
{
    static const RetireGeometry g[RETIRE_NR_LEVELS] = {
        { 64, 1 }, { 64, 1 }, { 64 << 20, 16 }
    };
    const uint64_t lines = g[RETIRE_L3].size / RETIRE_LINE_SIZE;
    System s;

    system_init(&s, g, 1);
    for (int fails = -1; fails < RETIRE_NR_LEVELS; fails++) {
        for (uint64_t line = 0; line <= lines; line++) {
            g_assert_cmpint(run(&s, 0, line, false), ==, RETIRE_SOURCE_DRAM);
        }
        g_assert_cmpint(run(&s, 0, 0, false), ==, RETIRE_SOURCE_L3);
        calloc_last_size = 0;
        calloc_fails_in = fails;
        retire_cache_flush(s.cache[0]);
        calloc_fails_in = -1;
        if (fails < RETIRE_L3) {
            g_assert_cmpint(calloc_last_size, ==, lines * sizeof(uint64_t));
        }
        for (uint64_t line = 0; line <= lines; line++) {
            g_assert_cmpint(retire_cache_peek(s.cache[0], line), ==,
                            RETIRE_SOURCE_DRAM);
        }
    }
    system_free(&s);
}

/* A line goes wherever it is, L3 alone included, and no other one does. */
static void test_flush_line(void)
{
    System s;

    for (int cpus = 1; cpus <= 3; cpus++) {
        system_init(&s, tiny, cpus);
        for (int i = 1; i <= 5; i++) {
            run(&s, 0, i, false);                       /* L3 gets 1 */
        }
        for (int cpu = 1; cpu < cpus; cpu++) {
            run(&s, cpu, 3, false);
        }
        for (int i = 1; i <= 5; i += 2) {
            uint64_t addr = i * RETIRE_LINE_SIZE;

            g_assert_cmpint(retire_cache_peek(s.cache[0], i), !=,
                            RETIRE_SOURCE_DRAM);
            retire_uncore_flush_line(s.uncore, i);
            for (int cpu = 0; cpu < cpus; cpu++) {
                g_assert_false(matches(&s.filter[cpu], addr, false));
                g_assert_false(matches(&s.filter[cpu], addr, true));
                g_assert_cmpint(retire_cache_peek(s.cache[cpu], i), ==,
                                RETIRE_SOURCE_DRAM);
            }
        }
        g_assert_cmpint(retire_cache_peek(s.cache[0], 2), ==, RETIRE_SOURCE_L2);
        g_assert_cmpint(retire_cache_peek(s.cache[0], 4), ==, RETIRE_SOURCE_L1);
        g_assert_cmpint(run(&s, 0, 3, false), ==, RETIRE_SOURCE_DRAM);
        /* Without a processor */
        retire_cache_free(s.cache[0]);
        s.cache[0] = NULL;
        system_add(&s, tiny, 0);
        g_assert_cmpint(retire_cache_peek(s.cache[0], 2), ==,
                        RETIRE_SOURCE_DRAM);
        system_free(&s);
    }
}

/* What the first processor has done alone, the second one sees. */
static void test_second(void)
{
    System s;

    system_init(&s, tiny, 1);
    g_assert_cmpint(run(&s, 0, 1, true), ==, RETIRE_SOURCE_DRAM);
    system_add(&s, tiny, 1);
    g_assert_cmpint(retire_cache_peek(s.cache[1], 1), ==, RETIRE_SOURCE_REMOTE);
    g_assert_cmpint(run(&s, 1, 1, true), ==, RETIRE_SOURCE_REMOTE);
    g_assert_cmpint(run(&s, 0, 1, false), ==, RETIRE_SOURCE_REMOTE);
    system_free(&s);
}

/* Processors that run at the same time, on the same few lines. */
#define STRESS_LINES    96
#define STRESS_USECS    150000      /* of each phase */

static System stress;
static pthread_barrier_t stress_barrier;

typedef struct Worker {
    pthread_t thread;
    int cpu;
    uint64_t seed, ops;
} Worker;

static uint32_t worker_rand(Worker *w, uint32_t n)
{
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 7;
    w->seed ^= w->seed << 17;
    return (w->seed >> 32) % n;
}

static void worker_run(Worker *w, bool replace)
{
    RetireFilter *filter = &stress.filter[w->cpu];
    RetireCache **c = &stress.cache[w->cpu];
    int64_t end = g_get_monotonic_time() + STRESS_USECS;

    while (w->ops % 256 || g_get_monotonic_time() < end) {
        uint64_t line = worker_rand(w, STRESS_LINES);
        uint64_t addr = line * RETIRE_LINE_SIZE;
        bool store = worker_rand(w, 3) == 0;

        w->ops++;
        if (worker_rand(w, 8) == 0) {
            g_assert_cmpint(retire_cache_peek(*c, line), <=, RETIRE_SOURCE_L1);
        }
        if (!matches(filter, addr, store)) {
            g_assert_cmpint(retire_cache_access(*c, line, addr, store), <=,
                            RETIRE_SOURCE_L1);
        }
        if (worker_rand(w, 16) == 0) {
            retire_uncore_flush_line(stress.uncore, line);
        }
        if (replace && worker_rand(w, 1000) == 0) {
            retire_cache_flush(*c);
        }
        if (replace && w->cpu && worker_rand(w, 1000) == 0) {
            retire_cache_free(*c);
            *c = retire_cache_new(stress.uncore, tiny, filter);
            g_assert_nonnull(*c);
        }
    }
}

static void *worker_main(void *opaque)
{
    Worker *w = opaque;

    if (w->cpu) {
        /* A processor may be plugged while others run. */
        g_usleep(STRESS_USECS / 3);
        stress.cache[w->cpu] = retire_cache_new(stress.uncore, tiny,
                                             &stress.filter[w->cpu]);
        g_assert_nonnull(stress.cache[w->cpu]);
    }
    worker_run(w, true);
    pthread_barrier_wait(&stress_barrier);
    retire_cache_flush(stress.cache[w->cpu]);
    pthread_barrier_wait(&stress_barrier);
    worker_run(w, false);
    return NULL;
}

static void test_threads(void)
{
    Worker w[CPUS];

    system_init(&stress, tiny, 1);
    retire_uncore_share(stress.uncore);
    pthread_barrier_init(&stress_barrier, NULL, CPUS);
    for (int i = 0; i < CPUS; i++) {
        w[i] = (Worker) { .cpu = i, .seed = g_test_rand_int() | 1 };
        g_assert_cmpint(pthread_create(&w[i].thread, NULL, worker_main, &w[i]),
                        ==, 0);
    }
    for (int i = 0; i < CPUS; i++) {
        g_assert_cmpint(pthread_join(w[i].thread, NULL), ==, 0);
        g_assert_cmpuint(w[i].ops, >, 0);
    }
    pthread_barrier_destroy(&stress_barrier);

    /* What they leave: one owner at most, and filters that are true. */
    for (uint64_t line = 0; line < STRESS_LINES; line++) {
        int have = 0, own = 0;

        for (int i = 0; i < CPUS; i++) {
            RetireSource source = retire_cache_peek(stress.cache[i], line);
            uint64_t addr = line * RETIRE_LINE_SIZE;

            have += source == RETIRE_SOURCE_L1 || source == RETIRE_SOURCE_L2;
            own += matches(&stress.filter[i], addr, true);
            if (matches(&stress.filter[i], addr, false)) {
                g_assert_cmpint(source, ==, RETIRE_SOURCE_L1);
            }
        }
        g_assert_true(own == 0 || have == 1);
        g_assert_cmpint(run(&stress, line % CPUS, line, true), <=,
                        RETIRE_SOURCE_L1);
        for (int i = 0; i < CPUS; i++) {
            g_assert_cmpint(retire_cache_peek(stress.cache[i], line), ==,
                            i == line % CPUS ? RETIRE_SOURCE_L1 :
                            RETIRE_SOURCE_REMOTE);
        }
    }
    system_free(&stress);
}

/*
 * What translated code does with a conditional branch; 1 if mispredicted.  With
 * others it does all by itself, so guest programs test these.
 */
static int predict(RetirePredictor *p, uint64_t ip, bool taken)
{
    const RetireCond **cond = &p->cond[ip % RETIRE_NR_CONDS];
    uint64_t count = (*cond)->count[taken];

    *cond = (*cond)->next[taken];
    g_assert_cmpuint(count / RETIRE_BRANCH_ONE, ==, 1);
    return count % RETIRE_BRANCH_ONE;
}

/* The same as its description has it, told apart by the last two outcomes. */
static void test_predictor_model(void)
{
    g_autofree RetirePredictor *p = g_new(RetirePredictor, 1);
    /* Only the offset in the page matters, but all of it. */
    const uint64_t ip[2] = { 0x401ffe, 0xffffffff80000fff };
    int counter[2][2][2] = { { { 1, 2 }, { 1, 2 } }, { { 1, 2 }, { 1, 2 } } };
    bool last[2][2] = { };

    retire_predictor_init(p);
    for (int i = 0; i < 100000; i++) {
        int branch = g_test_rand_int_range(0, 2);
        int odds = i / 1000 % 11;
        bool taken = g_test_rand_int_range(0, 10) < odds;
        int *n = &counter[branch][last[branch][1]][last[branch][0]];

        g_assert_cmpint(predict(p, ip[branch] + i / 10 * 4096ull, taken), ==,
                        (*n >= 2) != taken);
        *n = CLAMP(*n + (taken ? 1 : -1), 0, 3);
        last[branch][1] = last[branch][0];
        last[branch][0] = taken;
    }
}

/* Mispredictions of @n executions after @n, of which each @period-th is not */
static int mispredicted_loop(int period, int n)
{
    g_autofree RetirePredictor *p = g_new(RetirePredictor, 1);
    int wrong = 0;

    retire_predictor_init(p);
    for (int i = 0; i < 2 * n; i++) {
        int mispredicted = predict(p, 0, i % period != period - 1);

        wrong += i < n ? 0 : mispredicted;
    }
    return wrong;
}

static void test_predictor_loops(void)
{
    g_assert_cmpint(mispredicted_loop(1, 1000), ==, 0);
    g_assert_cmpint(mispredicted_loop(2, 1000), ==, 0);
    g_assert_cmpint(mispredicted_loop(3, 999), ==, 0);
    for (int period = 4; period < 40; period++) {
        g_assert_cmpint(mispredicted_loop(period, period * 10), ==, 10);
    }
}

/* What is to be reported is all that has retired, and that once. */
static void test_take(void)
{
    for (int with_icount = 0; with_icount < 2; with_icount++) {
        RetireTotals n;

        account_reset(with_icount, 1000);
        account_set_budget(100);
        account.misses_armed = 7;
        account.misses = 4;
        g_assert_true(account_begin(&(AccountTB) { .n = 30 }));
        g_assert_true(account_begin(&(AccountTB) { .n = 10, .last = true }));
        g_assert_cmpuint(account_charged(), ==, 39);
        g_assert_cmpuint(account_clock(), ==, 39);
        n = retire_take(&account, account_left());
        g_assert_cmpuint(n.insns, ==, 39);
        g_assert_cmpuint(n.misses, ==, 3);
        g_assert_null(n.branches);
        g_assert_null(n.memory);
        g_assert_null(n.fp);
        for (int i = 0; i < 2; i++) {
            g_assert_cmpuint(account_charged(), ==, 0);
            g_assert_cmpuint(account_clock(), ==, 39);
            n = retire_take(&account, account_left());
            g_assert_cmpuint(n.insns, ==, 0);
            g_assert_cmpuint(n.misses, ==, 0);
        }
        /* Misses go on from there, and so does the budget. */
        account.misses--;
        g_assert_cmpint(budget, ==, 60);
        g_assert_true(account_begin(&(AccountTB) { .n = 60 }));
        g_assert_false(account_begin(&(AccountTB) { .n = 1 }));
        n = retire_take(&account, account_left());
        g_assert_cmpuint(n.insns, ==, 60);
        g_assert_cmpuint(n.misses, ==, 1);
        g_assert_cmpuint(account_clock(), ==, 99);
    }
}

/* Branches by class, those that were mispredicted apart */
static void test_take_branches(void)
{
    uint64_t n[RETIRE_NR_CLASSES];

    account_reset(false, 0);
    memset(n, 0x5a, sizeof(n));
    g_assert_false(retire_take_branches(&account, n));
    for (int c = 0; c < RETIRE_NR_CLASSES; c++) {
        g_assert_cmpuint(n[c], ==, 0);
    }
    for (int c = RETIRE_COND_TAKEN; c < RETIRE_FAR; c++) {
        bool taken = c != RETIRE_COND_NOT_TAKEN;

        for (int i = 0; i < 10 + c; i++) {
            account_branch(taken ? c : RETIRE_BRANCH_COND, taken, i < c);
        }
        if (c > RETIRE_COND_TAKEN) {
            continue;
        }
        /* One class is enough. */
        g_assert_true(retire_take_branches(&account, n));
        g_assert_cmpuint(n[c], ==, 10 + c);
        g_assert_cmpuint(n[RETIRE_MISPREDICTED + c], ==, c);
    }
    g_assert_true(retire_take_branches(&account, n));
    for (int c = RETIRE_COND_TAKEN + 1; c < RETIRE_FAR; c++) {
        bool direct = c == RETIRE_JMP || c == RETIRE_CALL;

        g_assert_cmpuint(n[c], ==, 10 + c);
        g_assert_cmpuint(n[RETIRE_MISPREDICTED + c], ==, direct ? 0 : c);
    }
    g_assert_cmpuint(n[RETIRE_COND_TAKEN], ==, 0);
    g_assert_cmpuint(n[RETIRE_FAR], ==, 0);
    g_assert_false(retire_take_branches(&account, n));
}

/* A TB that is left: what has retired is charged, in the range and outside. */
static void test_give_back(void)
{
    static const struct {
        AccountTB tb;
        uint32_t retired, charged;
    } t[] = {
        { { .n = 10 }, 0, 0 },
        { { .n = 10 }, 1, 1 },
        { { .n = 10 }, 9, 9 },
        { { .n = 1 }, 0, 0 },
        { { .n = 10, .last = true }, 0, 0 },
        { { .n = 10, .last = true }, 8, 8 },
        { { .n = 10, .last = true }, 9, 9 },
        { { .n = 1, .last = true }, 0, 0 },
        { { .n = 1, .last = true, .uncharged = true }, 0, 0 },
        { { .n = 10, .outside = true }, 0, 0 },
        { { .n = 10, .outside = true }, 4, 0 },
        { { .n = 10, .last = true, .outside = true }, 4, 0 },
        { { .n = 10, .last = true, .outside = true }, 9, 0 },
    };
    static const uint64_t firsts[] = { 0x1000, UINT64_MAX - 9, UINT64_MAX - 4 };

    for (int with_icount = 0; with_icount < 2; with_icount++) {
        for (int i = 0; i < G_N_ELEMENTS(t); i++) {
            const AccountTB *tb = &t[i].tb;
            uint64_t first = tb->outside ? 0xfff : 0x1000;
            int64_t left;

            account_reset(with_icount, 1000);
            account.ip_first = 0x1000;
            account.ip_span = 9;
            account_set_budget(100);
            g_assert_true(account_begin(&(AccountTB) { .n = 20 }));
            left = account_left();
            g_assert_true(account_begin(tb));
            account_leave(tb, t[i].retired,
                          tb->outside ? first : first + t[i].retired);
            g_assert_cmpuint(account_charged(), ==, 20 + t[i].charged);
            g_assert_cmpuint(account_clock(), ==, 20 + t[i].charged);
            if (icount) {
                /* Time is up to what has been executed, and nothing else. */
                g_assert_cmpint(account_left(), ==, left - t[i].retired);
            } else {
                g_assert_cmpint(budget, ==, 80 - (tb->uncharged ? 0 : tb->n));
            }
        }
    }

    /* The first and the last address of the range, also if it wraps */
    for (int i = 0; i < G_N_ELEMENTS(firsts); i++) {
        account_reset(false, 0);
        account.ip_first = firsts[i];
        account.ip_span = 9;
        account.armed = 100;
        retire_give_back(&account, 1, firsts[i] - 1);
        retire_give_back(&account, 1, firsts[i] + 10);
        g_assert_cmpint(account.armed, ==, 100);
        retire_give_back(&account, 3, firsts[i]);
        g_assert_cmpint(account.armed, ==, 97);
        retire_give_back(&account, 4, firsts[i] + 9);
        g_assert_cmpint(account.armed, ==, 93);
    }
}

/* How far TBs may run: each instruction may be a branch. */
static void test_run(void)
{
    static const struct {
        uint32_t insns, branches;
        bool pending;
        uint32_t run;
    } t[] = {
        { 5, 10, false, 5 }, { 10, 5, false, 5 }, { 5, 5, false, 5 },
        { 0, 5, false, 0 }, { 5, 0, false, 0 }, { 5, 10, true, 0 },
        { RETIRE_BUDGET_MAX, UINT32_MAX, false, RETIRE_BUDGET_MAX },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        RetireDistance d = RETIRE_DISTANCE_MAX;

        g_assert_cmpuint(retire_run(&d), ==, RETIRE_BUDGET_MAX);
        d.insns = t[i].insns;
        d.branches = t[i].branches;
        d.pending = t[i].pending;
        g_assert_cmpuint(retire_run(&d), ==, t[i].run);
    }
}

/* A TB that has been asked for: whether all of it may run, or what does. */
static void test_step(void)
{
    static const struct {
        uint32_t insns, branches, tb;
        bool pending;
        uint32_t step;
    } t[] = {
        { 10, 100, 9, false, 0 },
        { 10, 100, 10, false, 0 },      /* The eleventh one matters. */
        { 10, 100, 11, false, 11 },
        { 10, 100, 12, false, 11 },
        { 10, 100, 64, false, 11 },
        { 0, 100, 1, false, 1 },
        { 0, 100, 64, false, 1 },
        { 1, 100, 1, false, 0 },
        { 1, 100, 2, false, 2 },
        { 10, 1, 10, false, 0 },        /* It has one at most. */
        { 10, 1, 11, false, 11 },
        { 10, 0, 9, false, 9 },         /* That would be too many. */
        { 10, 0, 10, false, 10 },
        { 10, 0, 11, false, 11 },
        { 10, 0, 12, false, 11 },
        { 10, 0, 1, false, 1 },
        { 0, 0, 1, false, 1 },
        { 10, 100, 9, true, 1 },
        { 0, 0, 64, true, 1 },
        { 10, 0, 9, true, 1 },
    };

    for (int with_icount = 0; with_icount < 2; with_icount++) {
        for (int i = 0; i < G_N_ELEMENTS(t); i++) {
            const RetireConfig config = { .insn_clocks = 1 };
            RetireDistance d = RETIRE_DISTANCE_MAX;
            AccountTB tb = { .n = t[i].tb };

            d.insns = t[i].insns;
            d.branches = t[i].branches;
            d.pending = t[i].pending;
            g_assert_cmpuint(retire_step(&d, t[i].tb), ==, t[i].step);

            /* The budget then has what is next. */
            account_reset(with_icount, 1000);
            account_arm(&config, &d);
            g_assert_cmpint(budget, ==, retire_run(&d));
            g_assert_cmpuint(account_step(&d, t[i].tb), ==, t[i].step);
            if (t[i].step) {
                tb = (AccountTB) { .n = t[i].step, .last = true };
            }
            g_assert_true(account_begin(&tb));
            g_assert_cmpuint(account_charged(), ==, tb.n - tb.last);
            /* Nor is there more, but for what may be all branches. */
            g_assert_cmpint(budget, ==, t[i].step ? 0 :
                            MAX((int)(MIN(d.insns, d.branches) - tb.n), 0));
        }
    }
}

/* Where icount has less than a TB, that is what runs. */
static void test_step_icount(void)
{
    RetireDistance d = RETIRE_DISTANCE_MAX;

    account_reset(true, 5);
    d.insns = 100;
    g_assert_cmpuint(account_refill(10), ==, 5);
    g_assert_cmpuint(account_step(&d, 10), ==, 0);
    g_assert_cmpint(budget, ==, 5);
    d.insns = 2;
    g_assert_cmpuint(account_step(&d, 10), ==, 3);
    d.insns = 7;
    g_assert_cmpuint(account_step(&d, 10), ==, 5);
    g_assert_cmpint(account_left(), ==, 5);
    /* It has as many: nothing is left out. */
    g_assert_cmpuint(account_refill(5), ==, 0);
    /* And none at all: icount is to have the CPU. */
    g_assert_true(account_begin(&(AccountTB) { .n = 5 }));
    g_assert_cmpuint(account_refill(10), ==, 0);
    g_assert_cmpuint(account_step(&d, 10), ==, 0);
    g_assert_cmpint(budget, ==, 0);
}

/* How many loads may miss, and what each takes off the budget */
static void test_arm_misses(void)
{
    static const struct {
        uint32_t misses;
        bool clocks;
        uint32_t latency, insn_clocks;
        int32_t armed, charge;
    } t[] = {
        { INT32_MAX, false, 20, 1, INT32_MAX, 0 },
        { 7, false, 20, 1, 7, 0 },
        { 7, true, 20, 1, 7, 20 },
        { 7, true, 20, 3, 7, 7 },
        { 7, true, 21, 3, 7, 7 },
        { 7, true, 22, 3, 7, 8 },
        { 7, true, 1, 1000, 7, 1 },
        { 7, true, RETIRE_BUDGET_MAX - 1, 1, 7, RETIRE_BUDGET_MAX - 1 },
        { 7, true, RETIRE_BUDGET_MAX, 1, 0, 0 },
        { 7, true, RETIRE_LATENCY_MAX, 1, 0,
          RETIRE_LATENCY_MAX % RETIRE_BUDGET_MAX },
        { 0, true, 20, 1, 0, 20 },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        const RetireConfig config = {
            .insn_clocks = t[i].insn_clocks,
            .latency[RETIRE_SOURCE_L2] = t[i].latency,
        };
        RetireDistance d = RETIRE_DISTANCE_MAX;

        account_reset(false, 0);
        account.misses = 3;
        account.miss_charge = 12345;
        d.misses = t[i].misses;
        d.clocks = t[i].clocks;
        retire_arm_misses(&account, &config, &d);
        g_assert_cmpint(account.misses, ==, t[i].armed);
        g_assert_cmpint(account.misses_armed, ==, t[i].armed);
        g_assert_cmpint(account.miss_charge, ==, t[i].charge);
    }
}

/*
 * A miss shortens the budget and charges nothing; one that takes more than that
 * has is told.
 */
static void test_miss_charge(void)
{
    const RetireConfig config = {
        .insn_clocks = 3,
        .latency[RETIRE_SOURCE_L2] = 20,    /* 7 instructions */
        .latency[RETIRE_SOURCE_DRAM] = 20,
    };

    for (int with_icount = 0; with_icount < 2; with_icount++) {
        RetireDistance d = RETIRE_DISTANCE_MAX;
        int64_t left;

        account_reset(with_icount, 1000);
        d.insns = 25;
        d.misses = 3;
        d.clocks = true;
        account_arm(&config, &d);
        g_assert_true(account_begin(&(AccountTB) { .n = 10 }));
        left = account_left();
        g_assert_false(account_miss(&config, RETIRE_SOURCE_DRAM, 20));
        g_assert_false(account_miss(&config, RETIRE_SOURCE_L2, 40));
        for (int i = 1; i <= 2; i++) {
            g_assert_true(account_miss(&config, RETIRE_SOURCE_L2, 20));
            g_assert_cmpint(budget, ==, 15 - 7 * i);
            g_assert_cmpuint(account_charged(), ==, 10);
            g_assert_cmpuint(account_clock(), ==, 10);
            g_assert_true(!icount || account_left() == left);
        }
        /* The budget is not enough, nor has armed it again made it so. */
        g_assert_false(account_miss(&config, RETIRE_SOURCE_L2, 20));
        d.misses = account.misses;
        account_arm(&config, &d);
        g_assert_cmpint(budget, ==, 15);
        account_set_budget(6);
        g_assert_false(account_miss(&config, RETIRE_SOURCE_L2, 20));
        account_set_budget(7);
        g_assert_true(account_miss(&config, RETIRE_SOURCE_L2, 20));
        g_assert_cmpint(budget, ==, 0);
        /* That was the third one. */
        account_set_budget(7);
        g_assert_false(account_miss(&config, RETIRE_SOURCE_L2, 20));
        g_assert_cmpuint(retire_take(&account, account_left()).insns, ==, 10);
    }
}

/*
 * Whatever is done with the account, its clock says how many instructions have
 * retired; and the sum of all reports does.
 */
static void test_clock(void)
{
    const RetireConfig config = { .insn_clocks = 1 };

    for (int round = 0; round < 20; round++) {
        uint64_t retired = 0, reported = 0;

        account_reset(round & 1, INT32_MAX);
        for (int i = 0; i < 2000; i++) {
            RetireDistance d = RETIRE_DISTANCE_MAX;
            AccountTB tb = {
                .n = g_test_rand_int_range(1, RETIRE_TB_MAX + 1),
                .last = g_test_rand_bit(),
            };

            d.insns = g_test_rand_int_range(0, 300);
            d.branches = g_test_rand_int_range(0, 300);
            d.pending = g_test_rand_bit();
            switch (g_test_rand_int_range(0, 6)) {
            case 0:
                account_arm(&config, &d);
                break;
            case 1:
                account_step(&d, tb.n);
                break;
            case 2:
                account_set_budget(g_test_rand_int_range(0, 500));
                break;
            case 3:
                reported += retire_take(&account, account_left()).insns;
                break;
            case 4:
                if (account_begin(&tb)) {
                    retired += tb.n - tb.last;
                    if (tb.last) {
                        account.clock++;
                        retired++;
                        reported++;
                    }
                }
                break;
            case 5:
                if (account_begin(&tb)) {
                    uint32_t n = g_test_rand_int_range(0, tb.n);

                    account_leave(&tb, n, 0x1000);
                    retired += n;
                }
                break;
            }
            g_assert_cmpuint(account_clock(), ==, retired);
            g_assert_cmpuint(account_charged(), ==, retired - reported);
            g_assert_cmpint(account_left(), >=, 0);
        }
    }
}

/*
 * The account of memory accesses: what a TB takes when it starts, and what
 * helpers note, until the instruction is one that does not retire.
 */
static void test_memory_account(void)
{
    const uint64_t tb = 5 * RETIRE_MEMORY_LOAD + 3 * RETIRE_MEMORY_STORE +
                        RETIRE_MEMORY_LOCKED;
    const uint64_t rest = 2 * RETIRE_MEMORY_LOAD + 3 * RETIRE_MEMORY_STORE;
    uint64_t n[RETIRE_NR_MEMORY];
    uint64_t clock = 1000;
    RetireMemoryState m = { };

    for (int i = 0; i < 3; i++) {
        clock += 4;
        m.words[RETIRE_USR] += tb;
    }
    /* An instruction notes something, then another one does and is left. */
    retire_note(&m, clock, RETIRE_USR, 0x123, RETIRE_LOAD_L2);
    retire_note(&m, clock, RETIRE_USR, 0x123, RETIRE_FILL_L2);
    retire_note(&m, clock, RETIRE_USR, 0x128, RETIRE_LOAD_DRAM);
    retire_note(&m, clock, RETIRE_USR, 0x128, RETIRE_LOAD_DRAM);
    retire_unnote(&m, clock, 0x7128);
    /* What it has noted is taken back once. */
    retire_unnote(&m, clock, 0x7128);
    retire_give_back_memory(&m, RETIRE_USR, rest, false);
    retire_leave(&m, clock, 0x7128, 0);
    retire_take_memory(&m, RETIRE_OS, n);
    for (int i = 0; i < RETIRE_NR_MEMORY; i++) {
        g_assert_cmpint(n[i], ==, 0);
    }
    retire_take_memory(&m, RETIRE_USR, n);
    g_assert_cmpint(n[RETIRE_LOADS], ==, 13);
    g_assert_cmpint(n[RETIRE_STORES], ==, 6);
    g_assert_cmpint(n[RETIRE_LOCKED], ==, 3);
    g_assert_cmpint(n[RETIRE_LOAD_L2], ==, 1);
    g_assert_cmpint(n[RETIRE_FILL_L2], ==, 1);
    g_assert_cmpint(n[RETIRE_LOAD_DRAM], ==, 0);

    /* The same words again: they are another TB's. */
    for (int i = 0; i < 2; i++) {
        m.words[RETIRE_USR] += tb;
        retire_give_back_memory(&m, RETIRE_USR, rest, false);
    }
    retire_take_memory(&m, RETIRE_USR, n);
    g_assert_cmpint(n[RETIRE_LOADS], ==, 6);
    g_assert_cmpint(n[RETIRE_STORES], ==, 0);
    g_assert_cmpint(n[RETIRE_LOCKED], ==, 2);

    /* Another instruction, another execution: neither takes it back. */
    retire_note(&m, clock, RETIRE_OS, 0x20, RETIRE_SPLIT_LOADS);
    retire_unnote(&m, clock, 0x21);
    retire_note(&m, clock, RETIRE_OS, 0x20, RETIRE_SPLIT_LOADS);
    retire_unnote(&m, clock + 1, 0x20);
    retire_take_memory(&m, RETIRE_OS, n);
    g_assert_cmpint(n[RETIRE_SPLIT_LOADS], ==, 2);

    /* A REP's iteration goes back to where it began. */
    m.words[RETIRE_OS] = tb;
    m.word_before = tb;
    m.words[RETIRE_OS] += RETIRE_MEMORY_LOAD;
    retire_give_back_memory(&m, RETIRE_OS, rest, true);
    retire_give_back_memory(&m, RETIRE_OS, rest, true);
    retire_take_memory(&m, RETIRE_OS, n);
    g_assert_cmpint(n[RETIRE_LOADS], ==, 5);
}

/* An instruction that is left and executed again has missed once. */
static void test_executed_again(void)
{
    static const struct {
        const char *how;
        bool again;             /* it is what comes next */
        int left;               /* so often before it retires */
        unsigned loads, accesses, splits;
    } t[] = {
        { "once", true, 1, 1, 1, 1 },
        { "three times", true, 3, 1, 1, 1 },
        { "an exception", false, 1, 0, 0, 0 },
    };

    for (int i = 0; i < 2 * G_N_ELEMENTS(t); i++) {
        int k = i / 2;
        RetireState *r = &account;
        uint64_t n[RETIRE_NR_MEMORY];

        g_test_message("%s", t[k].how);
        account_reset(i & 1, 5000);
        account_set_budget(1000);
        for (int left = 0; left < t[k].left; left++) {
            /* The first time it is the last one of 4, and then on its own. */
            AccountTB tb = {
                .n = left ? 1 : 4, .last = left, .uncharged = left
            };

            g_assert_true(account_begin(&tb));
            retire_again(&account_memory, account_clock(), 0x5123);
            /* What is counted each time, and what is only missed once */
            retire_note(&account_memory, account_clock(), RETIRE_USR, 0x123,
                        RETIRE_LOADS);
            retire_note(&account_memory, account_clock(), RETIRE_USR, 0x123,
                        RETIRE_SPLIT_LOADS);
            if (!left) {
                retire_note(&account_memory, account_clock(), RETIRE_USR, 0x123,
                            RETIRE_LOAD_DRAM);
            }
            account_leave_noted(&tb, tb.n - 1, 0x5123, 2);
            g_assert_cmpuint(account_clock(), ==, 3);
            /* The CPU leaves its loop and enters it. */
            retire_take_memory(&account_memory, RETIRE_USR, n);
            g_assert_cmpint(n[RETIRE_LOADS], ==, 0);
            g_assert_cmpint(n[RETIRE_LOAD_DRAM], ==, 0);
            retire_take(r, account_left());
            account_restart(5000);
            account_set_budget(500);
        }
        g_assert_true(retire_is_left(&account_memory, account_clock(), 0x5123));
        g_assert_false(retire_is_left(&account_memory, account_clock(),
                                      0x5124));
        if (t[k].again) {
            retire_again(&account_memory, account_clock(), 0x5123);
            retire_note(&account_memory, account_clock(), RETIRE_USR, 0x123,
                        RETIRE_LOADS);
            retire_note(&account_memory, account_clock(), RETIRE_USR, 0x123,
                        RETIRE_SPLIT_LOADS);
        } else {
            /* Its handler has retired something when it comes again. */
            g_assert_true(account_begin(&(AccountTB) { .n = 1 }));
            g_assert_false(retire_is_left(&account_memory, account_clock(),
                                          0x5123));
            retire_again(&account_memory, account_clock(), 0x5123);
        }
        retire_take_memory(&account_memory, RETIRE_USR, n);
        g_assert_cmpint(n[RETIRE_LOADS], ==, t[k].accesses);
        g_assert_cmpint(n[RETIRE_SPLIT_LOADS], ==, t[k].splits);
        g_assert_cmpint(n[RETIRE_LOAD_DRAM], ==, t[k].loads);
        /* It is only once that it comes again. */
        retire_again(&account_memory, account_clock(), 0x5123);
        retire_take_memory(&account_memory, RETIRE_USR, n);
        g_assert_cmpint(n[RETIRE_LOAD_DRAM], ==, 0);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cache/geometry", test_geometry);
    g_test_add_func("/cache/no-memory", test_no_memory);
    g_test_add_func("/cache/levels", test_levels);
    g_test_add_func("/cache/remote", test_remote);
    g_test_add_func("/cache/flush", test_flush);
    g_test_add_func("/cache/flush-large", test_flush_large);
    g_test_add_func("/cache/flush-line", test_flush_line);
    g_test_add_func("/cache/second", test_second);
    g_test_add_func("/cache/model", test_model);
    g_test_add_func("/cache/threads", test_threads);
    g_test_add_func("/account/take", test_take);
    g_test_add_func("/account/take-branches", test_take_branches);
    g_test_add_func("/account/give-back", test_give_back);
    g_test_add_func("/account/run", test_run);
    g_test_add_func("/account/step", test_step);
    g_test_add_func("/account/step-icount", test_step_icount);
    g_test_add_func("/account/arm-misses", test_arm_misses);
    g_test_add_func("/account/miss-charge", test_miss_charge);
    g_test_add_func("/account/clock", test_clock);
    g_test_add_func("/memory/account", test_memory_account);
    g_test_add_func("/memory/again", test_executed_again);
    g_test_add_func("/predictor/model", test_predictor_model);
    g_test_add_func("/predictor/loops", test_predictor_loops);
    return g_test_run();
}
