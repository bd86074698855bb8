/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Unit tests of the caches and of the branch predictor, against models that
 * are as plain as can be.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <glib.h>
#include "retire/engine/cache.h"
#include "retire/engine/predictor.h"
#include "retire/engine/retire.h"

#define CPUS        4
#define NOWHERE     UINT64_MAX

/* The linker has the engine call this one. */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static int calloc_fails_in = -1;    /* calls until one fails; none if < 0 */

void *__wrap_calloc(size_t n, size_t size)
{
    if (calloc_fails_in >= 0 && calloc_fails_in-- == 0) {
        return NULL;
    }
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

/* What has been found comes first, and nothing else moves. */
static void check_ways(bool (*use)(uint64_t way[4], uint64_t word))
{
    for (int i = 0; i < 10000; i++) {
        uint64_t way[4] = { 0 }, before[4], word;
        int used = g_test_rand_int_range(0, 5);
        int found = g_test_rand_int_range(0, 5);

        for (int n = 0; n < used; n++) {
            /* Different ones, in one half of them or the other */
            way[n] = retire_own_way(n + 1) +
                     ((uint64_t)g_test_rand_int() << 32);
        }
        word = found < used ? way[found] :
               retire_own_way(5) + (way[0] & ~(uint64_t)UINT32_MAX);
        memcpy(before, way, sizeof(way));
        g_assert_true(use(way, word) == (found < used));
        if (found < used) {
            memmove(before + 1, before, found * sizeof(word));
            before[0] = word;
        }
        g_assert_cmpmem(way, sizeof(way), before, sizeof(before));
    }
}

static void test_ways(void)
{
    check_ways(retire_ways_use);
}

static void test_ways_avx2(void)
{
#ifdef RETIRE_WAYS_AVX2
    if (__builtin_cpu_supports("avx2")) {
        check_ways(retire_ways_use_avx2);
        return;
    }
#endif
    g_test_skip("this host has no AVX2");
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

static RetireSource do_access(RetireCache *c, uint64_t line, uint64_t addr,
                           bool store)
{
    RetireSource source = retire_cache_access(c, line, addr, store);

    if (source == RETIRE_SOURCE_UNKNOWN) {
        source = retire_cache_fill(c, line, addr, store);
    }
    return source;
}

/* The same with short cuts. */
static RetireSource quick_access(System *s, int cpu, uint64_t line,
                                 uint64_t addr, bool store)
{
    if (s->filter[cpu].has_ways) {
        RetireSource source = retire_filter_access(&s->filter[cpu], line, addr,
                                                   retire_ways_use);

        if (source != RETIRE_SOURCE_UNKNOWN) {
            return source;
        }
    }
    return do_access(s->cache[cpu], line, addr, store);
}

/* Where linear and physical addresses are the same. */
static RetireSource run(System *s, int cpu, uint64_t line, bool store)
{
    return do_access(s->cache[cpu], line, line * RETIRE_LINE_SIZE, store);
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
    GHashTable *owner;      /* CPU + 1; no other one has the line */
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
    *r = (Ref) { .cpus = cpus, .owner = g_hash_table_new_full(g_int64_hash,
                                            g_int64_equal, g_free, NULL) };
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
        return source;
    }

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
        bool store = g_test_rand_int_range(0, 3) == 0;
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
        want = ref_access(&r, cpu, line, store);
        g_assert_cmpint(do_access(always.cache[cpu], line, addr, store), ==,
                        want);
        if (matches(&filtered.filter[cpu], addr, store)) {
            g_assert_cmpint(want, ==, RETIRE_SOURCE_L1);
            filter_hits++;
        } else {
            g_assert_cmpint(quick_access(&filtered, cpu, line, addr, store), ==,
                            want);
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
    g_assert_true(matches(&s.filter[0], addr, true));   /* nobody else has it */
    g_assert_cmpint(run(&s, 0, x, true), ==, RETIRE_SOURCE_L1);

    /* Others may read it as well; then a store is everybody's business. */
    g_assert_cmpint(retire_cache_peek(s.cache[1], x), ==, RETIRE_SOURCE_REMOTE);
    g_assert_cmpint(run(&s, 1, x, false), ==, RETIRE_SOURCE_REMOTE);
    for (int i = 0; i < 2; i++) {
        g_assert_true(matches(&s.filter[i], addr, false));
        g_assert_false(matches(&s.filter[i], addr, true));
        g_assert_cmpint(run(&s, i, x, false), ==, RETIRE_SOURCE_L1);
    }
    g_assert_cmpint(retire_cache_access(s.cache[1], x, addr, true), ==,
                    RETIRE_SOURCE_UNKNOWN);
    g_assert_true(matches(&s.filter[0], addr, false));  /* nothing done yet */
    g_assert_cmpint(retire_cache_fill(s.cache[1], x, addr, true), ==,
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
        for (int i = 1; i <= 5; i++) {
            run(&s, 0, i, false);
        }
        g_assert_cmpint(retire_cache_peek(s.cache[0], 1), ==, RETIRE_SOURCE_L3);
        retire_uncore_flush(s.uncore);
        g_assert_cmpint(retire_cache_peek(s.cache[0], 1), ==,
                        RETIRE_SOURCE_DRAM);
        g_assert_cmpint(retire_cache_peek(s.cache[0], 5), ==, RETIRE_SOURCE_L1);
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
            g_assert_cmpint(do_access(*c, line, addr, store), <=,
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

static RetirePredictor predictor;

static RetirePrediction predict(RetireBranch branch, uint64_t ip, bool taken,
                                uint64_t target)
{
    return retire_predict(&predictor, branch, ip, ip + 5, taken, target);
}

static void assert_prediction(RetirePrediction p, bool valid, bool correct)
{
    g_assert_true(p.valid == valid);
    g_assert_true(p.correct == correct);
}

/* How many of @n executions of a loop's branch are mispredicted. */
static int mispredicted(uint64_t ip, int period, int first, int n)
{
    int wrong = 0;

    for (int i = first; i < first + n; i++) {
        bool taken = i % period != period - 1;
        RetirePrediction p = predict(RETIRE_BRANCH_COND, ip, taken,
                                     taken ? ip - 100 : ip + 5);

        g_assert_true(p.valid);
        wrong += !p.correct;
    }
    return wrong;
}

static void test_predict_cold(void)
{
    memset(&predictor, 0, sizeof(predictor));
    assert_prediction(predict(RETIRE_BRANCH_COND, 1, false, 6), true, true);
    assert_prediction(predict(RETIRE_BRANCH_COND, 2, true, 100), true, false);
    assert_prediction(predict(RETIRE_BRANCH_JMP, 3, true, 100), true, true);
    assert_prediction(predict(RETIRE_BRANCH_RET, 4, true, 100), false, false);
    assert_prediction(predict(RETIRE_BRANCH_JMP_ABS, 5, true, 100), false,
                      false);
    assert_prediction(predict(RETIRE_BRANCH_CALL_ABS, 6, true, 100), false,
                      false);
    assert_prediction(predict(RETIRE_BRANCH_CALL, 7, true, 100), true, true);
}

/* How many of @n branches are mispredicted, of 10 of which @taken are taken. */
static int random_mispredicted(uint64_t ip, int taken, int n)
{
    int wrong = 0;

    for (int i = 0; i < n; i++) {
        wrong += !predict(RETIRE_BRANCH_COND, ip,
                          g_test_rand_int_range(0, 10) < taken, 7).correct;
    }
    return wrong;
}

/*
 * Loops whose branch has none before it, or one that is always or never taken,
 * or one of another loop; if it ends often, it might explain too much.
 */
static void check_loops(uint64_t ip)
{
    static const int others[] = { 0, 1, INT_MAX, 7, 8, 9, 11, 13, 14, 16 };
    const int known = RETIRE_HISTORY_LENGTH + 2;

    for (int k = 0; k < G_N_ELEMENTS(others); k++) {
        int other = others[k];

        for (int period = 1; period <= 50; period++) {
            int wrong[2] = { 0 }, other_wrong = 0;

            memset(&predictor, 0, sizeof(predictor));
            for (int i = 0; i < known + 100 * period; i++) {
                if (other) {
                    int n = mispredicted(ip ^ 512, other, i, 1);

                    other_wrong += i >= known ? n : 0;
                }
                wrong[i >= known] += mispredicted(ip, period, i, 1);
            }
            g_assert_true(period == 1 || wrong[0]);
            if (period <= RETIRE_HISTORY_LENGTH / 2) {
                g_assert_cmpint(wrong[1], ==, 0);
            } else if (!other || other == 1 || other == INT_MAX) {
                /* Its end has been forgotten, or is one case of two. */
                g_assert_cmpint(wrong[1], ==, 100);
            }
            if (period >= 7) {
                g_assert_cmpint(other_wrong, ==, 0);
            }
        }
    }
}

/* A branch that repeats the one before it, or does the opposite. */
static void check_correlated(uint64_t ip)
{
    for (int opposite = 0; opposite < 2; opposite++) {
        int wrong[2] = { 0 };

        memset(&predictor, 0, sizeof(predictor));
        for (int i = 0; i < 2000; i++) {
            /* Both happen often enough to be trusted: 6 times of 32. */
            bool taken = i % 5 < 2 ? i % 5 : g_test_rand_bit();
            RetirePrediction p[2] = {
                predict(RETIRE_BRANCH_COND, ip ^ 512, taken, 7),
                predict(RETIRE_BRANCH_COND, ip, taken ^ opposite, 7),
            };

            for (int k = 0; i >= RETIRE_HISTORY_LENGTH && k < 2; k++) {
                wrong[k] += !p[k].correct;
            }
        }
        g_assert_cmpint(wrong[0], >, 500);
        g_assert_cmpint(wrong[1], ==, 0);
    }
}

static void test_predict_cond(void)
{
    static const uint64_t ips[] = { 0, 0x401234, 0xffffffff80000fff };
    int wrong;

    for (int k = 0; k < G_N_ELEMENTS(ips); k++) {
        uint64_t ip = ips[k];

        /* Unknown, and then unknown behind a branch that was taken. */
        memset(&predictor, 0, sizeof(predictor));
        g_assert_cmpint(mispredicted(ip, INT_MAX, 0, 2), ==, 2);
        g_assert_cmpint(mispredicted(ip, INT_MAX, 0, 1000), ==, 0);
        /* One exception does not make it forget. */
        g_assert_cmpint(mispredicted(ip, 1, 0, 1), ==, 1);
        g_assert_cmpint(mispredicted(ip, INT_MAX, 0, 1000), ==, 0);
        /* The history of the other slots is their own. */
        g_assert_cmpint(mispredicted(ip ^ 2, 1, 0, 1000), ==, 0);
        g_assert_cmpint(mispredicted(ip ^ 2048, 1, 0, 1000), ==, 0);
        g_assert_cmpint(mispredicted(ip ^ 1, INT_MAX, 0, 1000), ==, 0);
        g_assert_cmpint(mispredicted(ip ^ 4096, INT_MAX, 0, 1000), ==, 0);

        /* Never, and every other time. */
        memset(&predictor, 0, sizeof(predictor));
        g_assert_cmpint(mispredicted(ip, 1, 0, 1000), ==, 0);
        mispredicted(ip, 2, 0, RETIRE_HISTORY_LENGTH);
        g_assert_cmpint(mispredicted(ip, 2, 0, 1000), ==, 0);

        check_loops(ip);
        check_correlated(ip);

        memset(&predictor, 0, sizeof(predictor));
        wrong = random_mispredicted(ip, 5, 20000);
        g_test_message("of 20000, 50 %% taken: %d", wrong);
        g_assert_cmpint(wrong, >, 9500);
        g_assert_cmpint(wrong, <, 10500);
        for (int taken = 1; taken < 10; taken += 8) {
            memset(&predictor, 0, sizeof(predictor));
            wrong = random_mispredicted(ip, taken, 20000);
            g_test_message("of 20000, %d0 %% taken: %d", taken, wrong);
            /* About 12.5 %; nobody can do better than 10 %. */
            g_assert_cmpint(wrong, >, 1800);
            g_assert_cmpint(wrong, <, 3000);
        }
    }
}

/* Translated code shifts bits in by itself, and relies on their order. */
static void test_predict_layout(void)
{
    const uint64_t *h = &predictor.history[0x234 / 2];

    memset(&predictor, 0, sizeof(predictor));
    predict(RETIRE_BRANCH_COND, 0x401234, true, 7);
    g_assert_cmphex(*h, ==, 1);
    g_assert_cmphex(predictor.before, ==, 2);
    predict(RETIRE_BRANCH_COND, 0x401235, true, 7);
    g_assert_cmphex(*h, ==, 7);
    predict(RETIRE_BRANCH_COND, 0x401000, false, 7);
    g_assert_cmphex(predictor.before, ==, 0);
    predict(RETIRE_BRANCH_COND, 0x401234, true, 7);
    g_assert_cmphex(*h, ==, 0x1d);
    predict(RETIRE_BRANCH_JMP, 0x401234, true, 7);
    predict(RETIRE_BRANCH_COND, 0x401234, false, 7);
    g_assert_cmphex(*h, ==, 0x76);
    g_assert_cmphex(predictor.history[0], ==, 2);
    for (int i = 1; i < 32; i++) {
        predict(RETIRE_BRANCH_COND, 0x401234, false, 7);
    }
    g_assert_cmphex(*h, ==, 0x8000000000000000);
}

static void test_predict_indirect(void)
{
    static const RetireBranch branches[] = {
        RETIRE_BRANCH_JMP_ABS, RETIRE_BRANCH_CALL_ABS
    };

    for (int k = 0; k < G_N_ELEMENTS(branches); k++) {
        RetireBranch b = branches[k];

        memset(&predictor, 0, sizeof(predictor));
        assert_prediction(predict(b, 0x1000, true, 0x111), false, false);
        for (int i = 0; i < 100; i++) {
            assert_prediction(predict(b, 0x1000, true, 0x111), true, true);
        }
        for (int i = 0; i < 100; i++) {
            assert_prediction(predict(b, 0x1000, true, i & 1 ? 0x111 : 0x222),
                              true, false);
        }
        /* There is no tag, so another branch may have left its target. */
        assert_prediction(predict(b, 0x1000 + RETIRE_NR_TARGETS, true, 0x111),
                          true, true);
        for (int i = 1; i < RETIRE_NR_TARGETS; i++) {
            assert_prediction(predict(b, 0x1000 + i, true, 0x111), false,
                              false);
        }
    }
}

/* Calls @depth deep; returns how many returns are mispredicted. */
static int returns_mispredicted(int depth)
{
    uint64_t next[3 * RETIRE_NR_RETURNS];
    int wrong = 0;

    for (int i = 0; i < depth; i++) {
        RetireBranch b = i & 1 ? RETIRE_BRANCH_CALL : RETIRE_BRANCH_CALL_ABS;

        next[i] = 0x401000 + 32 * i;
        retire_predict(&predictor, b, next[i] - 5, next[i], true, 0x402000);
    }
    while (depth--) {
        RetirePrediction p = predict(RETIRE_BRANCH_RET, 0x402000, true,
                                     next[depth]);

        g_assert_true(p.valid);
        wrong += !p.correct;
    }
    return wrong;
}

static void test_predict_return(void)
{
    memset(&predictor, 0, sizeof(predictor));
    for (int depth = 1; depth < 3 * RETIRE_NR_RETURNS; depth++) {
        g_assert_cmpint(returns_mispredicted(depth), ==,
                        MAX(0, depth - RETIRE_NR_RETURNS));
    }
    memset(&predictor, 0, sizeof(predictor));
    predict(RETIRE_BRANCH_CALL, 0x1000, true, 0x2000);
    assert_prediction(predict(RETIRE_BRANCH_RET, 0x2000, true, 0x1005), true,
                      true);
    assert_prediction(predict(RETIRE_BRANCH_RET, 0x3000, true, 0x1234), false,
                      false);
    /* One that does not go back to its call, as longjmp() and threads do. */
    predict(RETIRE_BRANCH_CALL, 0x1000, true, 0x2000);
    assert_prediction(predict(RETIRE_BRANCH_RET, 0x2000, true, 0x1006), true,
                      false);
    /* JMP leaves the stack alone. */
    predict(RETIRE_BRANCH_CALL, 0x1000, true, 0x2000);
    predict(RETIRE_BRANCH_JMP, 0x2000, true, 0x3000);
    predict(RETIRE_BRANCH_JMP_ABS, 0x3000, true, 0x4000);
    predict(RETIRE_BRANCH_COND, 0x4000, true, 0x5000);
    assert_prediction(predict(RETIRE_BRANCH_RET, 0x5000, true, 0x1005), true,
                      true);
}

/* An execution: what the branch did, and the conditional one before it. */
typedef struct RefExecution {
    bool taken, before;
} RefExecution;

typedef struct RefPredictor {
    RefExecution history[2048][32];     /* the last one first */
    bool before;
    /* How often what decided; @by_own by how many outcomes were alike. */
    int by_before, by_own[17], majority, no_before, draw;
    uint64_t target[RETIRE_NR_TARGETS];
    GArray *stack;
} RefPredictor;

/* Whether the @n outcomes before execution @i were those of the last @n ones */
static bool ref_alike(const RefExecution *h, int i, int n)
{
    for (int k = 0; k < n; k++) {
        if (i + 1 + k >= 32 || h[i + 1 + k].taken != h[k].taken) {
            return false;
        }
    }
    return true;
}

/*
 * What was always done, in six cases or more, when the branch before did what
 * it has just done.  Or what was always done when as many outcomes as possible
 * were the same, up to 16, in three cases; or in one, if they are 11 or more.
 * Or what was mostly done when the branch before did that, or ever if it never
 * did; the latest case decides if it is a draw.
 */
static bool ref_expect(RefPredictor *r, const RefExecution *h)
{
    int cases[2] = { 0 };       /* not taken, taken */
    int own[2], all[2] = { 0 };
    bool latest = h[0].taken;

    for (int i = 31; i >= 0; i--) {
        all[h[i].taken]++;
        if (h[i].before == r->before) {
            latest = h[i].taken;
            cases[latest]++;
        }
    }
    if (cases[0] + cases[1] >= 6 && (!cases[0] || !cases[1])) {
        r->by_before++;
        return cases[1];
    }
    for (int n = 16; n >= 0; n--) {
        own[0] = own[1] = 0;
        for (int i = 0; i < 32; i++) {
            if (ref_alike(h, i, n)) {
                own[h[i].taken]++;
            }
        }
        if (own[0] + own[1] >= (n >= 11 ? 1 : 3)) {
            if (!own[0] || !own[1]) {
                r->by_own[n]++;
                return own[1];
            }
            break;
        }
    }
    if (!cases[0] && !cases[1]) {
        r->no_before++;
        memcpy(cases, all, sizeof(cases));
        latest = h[0].taken;
    }
    if (cases[0] == cases[1]) {
        r->draw++;
        return latest;
    }
    r->majority++;
    return cases[1] > cases[0];
}

static RetirePrediction ref_predict(RefPredictor *r, RetireBranch branch,
                                    uint64_t ip, bool taken, uint64_t target)
{
    RetirePrediction p = { true, true };
    uint64_t *last = &r->target[ip % RETIRE_NR_TARGETS], next = ip + 5;
    RefExecution *h = r->history[ip % 4096 / 2];

    switch (branch) {
    case RETIRE_BRANCH_COND:
        p.correct = ref_expect(r, h) == taken;
        memmove(&h[1], &h[0], 31 * sizeof(h[0]));
        h[0] = (RefExecution) { taken, r->before };
        r->before = taken;
        break;
    case RETIRE_BRANCH_JMP_ABS:
    case RETIRE_BRANCH_CALL_ABS:
        p = (RetirePrediction) { *last, *last == target };
        *last = target;
        break;
    case RETIRE_BRANCH_RET:
        p.correct = g_array_index(r->stack, uint64_t, r->stack->len - 1) ==
                    target;
        g_array_set_size(r->stack, r->stack->len - 1);
        break;
    default:
        break;
    }
    if (branch == RETIRE_BRANCH_CALL || branch == RETIRE_BRANCH_CALL_ABS) {
        g_array_append_val(r->stack, next);
    }
    return p;
}

/* Random code; that it lies elsewhere, by whole pages, makes no difference. */
static void test_predict_model(void)
{
    static RefPredictor r;
    static RetirePredictor moved;
    int correct[RETIRE_NR_BRANCHES] = { 0 };
    const uint64_t by = 0x7f0000003000;

    memset(&predictor, 0, sizeof(predictor));
    r.stack = g_array_new(false, false, sizeof(uint64_t));
    for (int i = 0; i < 100000; i++) {
        RetireBranch b = g_test_rand_int_range(1, RETIRE_NR_BRANCHES);
        uint64_t ip = 0x400000 + g_test_rand_int_range(0, 40) * 1021;
        bool taken = b != RETIRE_BRANCH_COND ||
                     g_test_rand_int_range(0, 8) >= 2;
        uint64_t target = 0x1000 + g_test_rand_int_range(0, 3);
        RetirePrediction p, want, other;

        if ((b == RETIRE_BRANCH_CALL || b == RETIRE_BRANCH_CALL_ABS) &&
            r.stack->len == RETIRE_NR_RETURNS) {
            continue;
        }
        if (b == RETIRE_BRANCH_RET) {
            if (!r.stack->len) {
                continue;
            }
            if (g_test_rand_bit()) {
                target = g_array_index(r.stack, uint64_t, r.stack->len - 1);
            }
        }
        want = ref_predict(&r, b, ip, taken, target);
        p = predict(b, ip, taken, target);
        assert_prediction(p, want.valid, want.correct);
        other = retire_predict(&moved, b, ip + by, ip + by + 5, taken,
                               target + (b == RETIRE_BRANCH_RET ? by : 0));
        assert_prediction(other, want.valid, want.correct);
        correct[b] += want.correct;
    }
    for (int b = 1; b < RETIRE_NR_BRANCHES; b++) {
        g_assert_cmpint(correct[b], >, 0);
    }
    g_array_free(r.stack, true);
}

/* What a branch of the test does: as others did, or as if by chance. */
static bool behave(int kind, int count, bool before, bool own)
{
    switch (kind) {
    case 0:
        return g_test_rand_bit();
    case 1:
        return before ^ (g_test_rand_int_range(0, 16) == 0);
    case 2:
        return own ^ (g_test_rand_int_range(0, 16) == 0);
    default:
        return kind & 1 ? count % kind : !(count % kind);
    }
}

/* A few conditional branches that change their habits, in and out of order. */
static void test_predict_histories(void)
{
    static RefPredictor r;
    int kind[5] = { 0 }, count[5] = { 0 };
    bool own[5] = { false };

    memset(&predictor, 0, sizeof(predictor));
    for (int i = 0; i < 240000; i++) {
        int k = i / 2000 % 2 ? g_test_rand_int_range(0, 5) : i % 5;
        /* Two and two share their history; it is a new one at times. */
        uint64_t ip = 0x400ffd + k + i / 1000 * 8;
        RetirePrediction want;

        if (g_test_rand_int_range(0, 100) == 0) {
            kind[k] = g_test_rand_int_range(0, 20);
        }
        own[k] = behave(kind[k], count[k]++, r.before, own[k]);
        want = ref_predict(&r, RETIRE_BRANCH_COND, ip, own[k], 7);
        assert_prediction(predict(RETIRE_BRANCH_COND, ip, own[k], 7),
                          want.valid, want.correct);
    }
    g_test_message("before %d, majority %d, no such before %d, draw %d",
                   r.by_before, r.majority, r.no_before, r.draw);
    g_assert_cmpint(r.by_before, >, 0);
    g_assert_cmpint(r.majority, >, 0);
    g_assert_cmpint(r.no_before, >, 0);
    g_assert_cmpint(r.draw, >, 0);
    /* If it did the same 32 times, more than 0 outcomes are alike. */
    g_assert_cmpint(r.by_own[0], ==, 0);
    for (int n = 1; n < G_N_ELEMENTS(r.by_own); n++) {
        g_test_message("%d alike decided %d times", n, r.by_own[n]);
        g_assert_cmpint(r.by_own[n], >, 0);
    }
}

/* What translated code does with a conditional branch; 1 if mispredicted. */
static int counting_step(RetireCounting *p, unsigned branch, bool taken)
{
    uint64_t word = p->next[taken][p->state[branch] / sizeof(p->next[0][0])];

    p->state[branch] = word;
    g_assert_cmpuint(word % RETIRE_BRANCH_MISPREDICTED / RETIRE_BRANCH_ONE, ==,
                     1);
    return word / RETIRE_BRANCH_MISPREDICTED;
}

/* The same as its description has it, told apart by the last two outcomes. */
static void test_counting_model(void)
{
    g_autofree RetireCounting *p = g_new(RetireCounting, 1);
    int counter[2][2][2] = { { { 1, 2 }, { 1, 2 } }, { { 1, 2 }, { 1, 2 } } };
    bool last[2][2] = { };

    retire_counting_init(p);
    for (int i = 0; i < 100000; i++) {
        int branch = g_test_rand_int_range(0, 2);
        int odds = i / 1000 % 11;
        bool taken = g_test_rand_int_range(0, 10) < odds;
        int *n = &counter[branch][last[branch][1]][last[branch][0]];

        g_assert_cmpint(counting_step(p, branch, taken), ==,
                        (*n >= 2) != taken);
        *n = CLAMP(*n + (taken ? 1 : -1), 0, 3);
        last[branch][1] = last[branch][0];
        last[branch][0] = taken;
    }
}

/* Mispredictions of @n executions after @n, of which each @period-th is not */
static int counting_loop(int period, int n)
{
    g_autofree RetireCounting *p = g_new(RetireCounting, 1);
    int wrong = 0;

    retire_counting_init(p);
    for (int i = 0; i < 2 * n; i++) {
        int mispredicted = counting_step(p, 0, i % period != period - 1);

        wrong += i < n ? 0 : mispredicted;
    }
    return wrong;
}

static void test_counting_loops(void)
{
    g_assert_cmpint(counting_loop(1, 1000), ==, 0);
    g_assert_cmpint(counting_loop(2, 1000), ==, 0);
    g_assert_cmpint(counting_loop(3, 999), ==, 0);
    for (int period = 4; period < 40; period++) {
        g_assert_cmpint(counting_loop(period, period * 10), ==, 10);
    }
}

/*
 * The account of memory accesses: what a block takes when it starts, and what
 * helpers note, until the instruction is one that does not retire.
 */
static void test_memory_account(void)
{
    const uint64_t block = 5 * RETIRE_MEMORY_LOAD + 3 * RETIRE_MEMORY_STORE +
                           RETIRE_MEMORY_LOCKED;
    const uint64_t rest = 2 * RETIRE_MEMORY_LOAD + 3 * RETIRE_MEMORY_STORE;
    uint64_t n[RETIRE_NR_MEMORY];
    RetireState r = { 0 };

    retire_arm(&r, 1000);
    for (int i = 0; i < 3; i++) {
        r.fuse -= RETIRE_FUSE(4, 0);
        r.memory[RETIRE_USR] += block;
    }
    /* An instruction notes something, then another one does and is left. */
    retire_note(&r, RETIRE_USR, 0x123, RETIRE_LOAD_L2);
    retire_note(&r, RETIRE_USR, 0x123, RETIRE_FILL_L2);
    retire_note(&r, RETIRE_USR, 0x128, RETIRE_LOAD_DRAM);
    retire_note(&r, RETIRE_USR, 0x128, RETIRE_LOAD_DRAM);
    for (int twice = 0; twice < 2; twice++) {
        retire_unnote(&r, 0x7128);
        retire_unretire_memory(&r, RETIRE_USR, rest, false);
    }
    retire_take_memory(&r, RETIRE_OS, n);
    for (int i = 0; i < RETIRE_NR_MEMORY; i++) {
        g_assert_cmpint(n[i], ==, 0);
    }
    retire_take_memory(&r, RETIRE_USR, n);
    g_assert_cmpint(n[RETIRE_LOADS], ==, 13);
    g_assert_cmpint(n[RETIRE_STORES], ==, 6);
    g_assert_cmpint(n[RETIRE_LOCKED], ==, 3);
    g_assert_cmpint(n[RETIRE_LOAD_L2], ==, 1);
    g_assert_cmpint(n[RETIRE_FILL_L2], ==, 1);
    g_assert_cmpint(n[RETIRE_LOAD_DRAM], ==, 0);

    /* The same words again after a report: they are another block's. */
    r.memory[RETIRE_USR] += block;
    retire_unretire_memory(&r, RETIRE_USR, rest, false);
    retire_take_memory(&r, RETIRE_USR, n);
    g_assert_cmpint(n[RETIRE_LOADS], ==, 3);
    r.memory[RETIRE_USR] += block;
    retire_unretire_memory(&r, RETIRE_USR, rest, false);
    retire_take_memory(&r, RETIRE_USR, n);
    g_assert_cmpint(n[RETIRE_LOADS], ==, 3);
    g_assert_cmpint(n[RETIRE_STORES], ==, 0);

    /* Another instruction, another execution: neither takes it back. */
    retire_note(&r, RETIRE_OS, 0x20, RETIRE_SPLIT_LOADS);
    retire_unnote(&r, 0x21);
    retire_note(&r, RETIRE_OS, 0x20, RETIRE_SPLIT_LOADS);
    r.fuse -= RETIRE_FUSE(1, 0);
    retire_unnote(&r, 0x20);
    retire_take_memory(&r, RETIRE_OS, n);
    g_assert_cmpint(n[RETIRE_SPLIT_LOADS], ==, 2);

    /* A REP's iteration goes back to where it began. */
    r.memory[RETIRE_OS] = block;
    r.memory_before = block;
    r.memory[RETIRE_OS] += RETIRE_MEMORY_LOAD;
    retire_unretire_memory(&r, RETIRE_OS, rest, true);
    retire_unretire_memory(&r, RETIRE_OS, rest, true);
    retire_take_memory(&r, RETIRE_OS, n);
    g_assert_cmpint(n[RETIRE_LOADS], ==, 5);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cache/geometry", test_geometry);
    g_test_add_func("/cache/ways", test_ways);
    g_test_add_func("/cache/ways-avx2", test_ways_avx2);
    g_test_add_func("/cache/no-memory", test_no_memory);
    g_test_add_func("/cache/levels", test_levels);
    g_test_add_func("/cache/remote", test_remote);
    g_test_add_func("/cache/flush", test_flush);
    g_test_add_func("/cache/flush-line", test_flush_line);
    g_test_add_func("/cache/second", test_second);
    g_test_add_func("/cache/model", test_model);
    g_test_add_func("/cache/threads", test_threads);
    g_test_add_func("/memory/account", test_memory_account);
    g_test_add_func("/predictor/cold", test_predict_cold);
    g_test_add_func("/predictor/conditional", test_predict_cond);
    g_test_add_func("/predictor/layout", test_predict_layout);
    g_test_add_func("/predictor/indirect", test_predict_indirect);
    g_test_add_func("/predictor/return", test_predict_return);
    g_test_add_func("/predictor/model", test_predict_model);
    g_test_add_func("/predictor/histories", test_predict_histories);
    g_test_add_func("/predictor/counting/model", test_counting_model);
    g_test_add_func("/predictor/counting/loops", test_counting_loops);
    return g_test_run();
}
