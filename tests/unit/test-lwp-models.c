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
        { 0x80000000, 1, true }, { 0xffffffc0, 0x3ffffff, true },
        { 16384, 0, false }, { 16384, 3, false },       /* 85 1/3 sets */
        { 12288, 4, false }, { 24576, 1, false },       /* 48, 384 sets */
        { 32, 1, false }, { 96, 1, false }, { 16384 + 32, 4, false },
        { 16384, 512, false },                          /* half a set */
        { 64, 0x4000001, false },                       /* 64 * assoc wraps */
        { 0x80000000, 0x80000000, false },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        LwpGeometry g = { t[i].size, t[i].assoc };

        g_assert_true(lwp_geometry_valid(&g) == t[i].valid);
    }
}

static void test_no_memory(void)
{
    static const LwpGeometry g[LWP_NR_LEVELS] = {
        { 1024, 4 }, { 1024, 4 }, { 1024, 4 }
    };
    LwpFilter filter;
    LwpUncore *u;
    LwpCache *c;

    for (int n = 0; n < 2; n++) {
        calloc_fails_in = n;
        g_assert_null(lwp_uncore_new(g));
    }
    calloc_fails_in = -1;
    u = lwp_uncore_new(g);
    g_assert_nonnull(u);
    for (int n = 0; n < 3; n++) {
        calloc_fails_in = n;
        g_assert_null(lwp_cache_new(u, g, &filter));
    }
    calloc_fails_in = -1;
    c = lwp_cache_new(u, g, &filter);
    g_assert_nonnull(c);
    lwp_cache_free(c);
    lwp_uncore_free(u);
}

/* Some processors, as translated code and its helper use them. */
typedef struct System {
    LwpUncore *uncore;
    LwpCache *cache[CPUS];
    LwpFilter filter[CPUS];
} System;

static void system_add(System *s, const LwpGeometry *g, int cpu)
{
    memset(&s->filter[cpu], g_test_rand_int(), sizeof(s->filter[cpu]));
    if (cpu) {
        lwp_uncore_share(s->uncore);
    }
    s->cache[cpu] = lwp_cache_new(s->uncore, g, &s->filter[cpu]);
    g_assert_nonnull(s->cache[cpu]);
}

static void system_init(System *s, const LwpGeometry *g, int cpus)
{
    memset(s, 0, sizeof(*s));
    s->uncore = lwp_uncore_new(g);
    g_assert_nonnull(s->uncore);
    for (int i = 0; i < cpus; i++) {
        system_add(s, g, i);
    }
}

static void system_free(System *s)
{
    for (int i = 0; i < CPUS; i++) {
        if (s->cache[i]) {
            lwp_cache_free(s->cache[i]);
        }
    }
    lwp_uncore_free(s->uncore);
}

static LwpSource do_access(LwpCache *c, uint64_t line, uint64_t addr,
                           bool store)
{
    LwpSource source = lwp_cache_access(c, line, addr, store);

    if (source == LWP_SOURCE_UNKNOWN) {
        source = lwp_cache_fill(c, line, addr, store);
    }
    return source;
}

/* Where linear and physical addresses are the same. */
static LwpSource run(System *s, int cpu, uint64_t line, bool store)
{
    return do_access(s->cache[cpu], line, line * LWP_LINE_SIZE, store);
}

/* What translated code looks at: whether it need not call the model. */
static bool matches(const LwpFilter *f, uint64_t addr, bool store)
{
    const LwpSlot *slot = &f->slot[addr / LWP_LINE_SIZE % LWP_NR_SLOTS];
    uint64_t val = __atomic_load_n(store ? &slot->store : &slot->load,
                                   __ATOMIC_RELAXED);

    return (val ^ addr) < LWP_LINE_SIZE;
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

static void ref_level_init(RefLevel *l, const LwpGeometry *g)
{
    l->assoc = g->size ? g->assoc : 0;
    l->sets = g->size ? g->size / LWP_LINE_SIZE / g->assoc : 1;
    l->ways = g_new0(RefWay, l->sets * l->assoc);
}

static void ref_level_clear(RefLevel *l)
{
    for (uint32_t i = 0; i < l->sets * l->assoc; i++) {
        l->ways[i].used = 0;
    }
}

static void ref_init(Ref *r, const LwpGeometry *g, int cpus)
{
    *r = (Ref) { .cpus = cpus, .owner = g_hash_table_new_full(g_int64_hash,
                                            g_int64_equal, g_free, NULL) };
    for (int i = 0; i < cpus; i++) {
        ref_level_init(&r->l1[i], &g[LWP_L1D]);
        ref_level_init(&r->l2[i], &g[LWP_L2]);
    }
    ref_level_init(&r->l3, &g[LWP_L3]);
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

static LwpSource ref_peek(const Ref *r, int cpu, uint64_t line)
{
    return ref_find(&r->l1[cpu], line) ? LWP_SOURCE_L1 :
           ref_find(&r->l2[cpu], line) ? LWP_SOURCE_L2 :
           ref_others_have(r, cpu, line) ? LWP_SOURCE_REMOTE :
           ref_find(&r->l3, line) ? LWP_SOURCE_L3 : LWP_SOURCE_DRAM;
}

static LwpSource ref_access(Ref *r, int cpu, uint64_t line, bool store)
{
    LwpSource source = ref_peek(r, cpu, line);
    uint64_t victim;

    if ((source == LWP_SOURCE_L1 || source == LWP_SOURCE_L2) &&
        (!store || ref_owner(r, line) == cpu)) {
        if (source == LWP_SOURCE_L2) {
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
        uint64_t addr = pages[p].linear + n * LWP_LINE_SIZE;
        uint64_t line = pages[p].physical / LWP_LINE_SIZE + n;

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
        lwp_filter_clear(&s->filter[i]);
    }
}

/*
 * Three of the same: the plain model, one that is always called, and one that
 * is called if the filter does not match.
 */
static void compare_caches(const LwpGeometry *g, int cpus)
{
    static System always, filtered;
    uint64_t recent[CPUS][8] = { };
    int pool = g_test_rand_int_range(2, PAGES * LWP_NR_SLOTS);
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
        LwpSource want;
        unsigned n;

        if (g_test_rand_bit()) {
            *k = g_test_rand_int_range(0, pool);
        }
        n = *k / PAGES;
        line = pages[*k % PAGES].physical / LWP_LINE_SIZE + n;
        addr = pages[*k % PAGES].linear + n * LWP_LINE_SIZE +
               g_test_rand_int_range(0, LWP_LINE_SIZE);

        if (g_test_rand_bit()) {
            want = ref_peek(&r, cpu, line);
            g_assert_cmpint(lwp_cache_peek(always.cache[cpu], line), ==, want);
            g_assert_cmpint(lwp_cache_peek(filtered.cache[cpu], line), ==,
                            want);
        }
        want = ref_access(&r, cpu, line, store);
        g_assert_cmpint(do_access(always.cache[cpu], line, addr, store), ==,
                        want);
        if (matches(&filtered.filter[cpu], addr, store)) {
            g_assert_cmpint(want, ==, LWP_SOURCE_L1);
            filter_hits++;
        } else {
            g_assert_cmpint(do_access(filtered.cache[cpu], line, addr, store),
                            ==, want);
        }
        g_assert_true(matches(&filtered.filter[cpu], addr, store));
        for (int c = 0; c < cpus; c++) {
            check_slot(&r, &filtered, c,
                       i % 64 ? n : g_test_rand_int_range(0, LWP_NR_SLOTS));
        }

        switch (g_test_rand_int_range(0, 2000)) {
        case 0:
            lwp_cache_flush(always.cache[cpu]);
            lwp_cache_flush(filtered.cache[cpu]);
            ref_level_clear(&r.l3);
            ref_level_clear(&r.l1[cpu]);
            ref_level_clear(&r.l2[cpu]);
            break;
        case 1:
            lwp_cache_free(always.cache[cpu]);
            lwp_cache_free(filtered.cache[cpu]);
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
    static const LwpGeometry g[][LWP_NR_LEVELS] = {
        { { 16384, 4 }, { 2 << 20, 16 }, { 8 << 20, 64 } },
        { { 1024, 4 }, { 4096, 16 }, { 8192, 64 } },
        { { 1024, 1 }, { 2048, 1 }, { 4096, 1 } },      /* direct-mapped */
        { { 1024, 16 }, { 2048, 32 }, { 4096, 64 } },   /* one set */
        { { 8192, 1 }, { 16384, 16 }, { 0, 1 } },       /* 128 sets, no L3 */
        { { 32768, 2 }, { 32768, 4 }, { 65536, 8 } },   /* 256 sets */
        { { 1536, 3 }, { 1280, 5 }, { 1792, 7 } },      /* L1 is more than L2 */
        { { 1024, 4 }, { 1024, 4 }, { 0, 0 } },
        { { 64, 1 }, { 64, 1 }, { 64, 1 } },
    };

    for (int i = 0; i < G_N_ELEMENTS(g); i++) {
        for (int cpus = 1; cpus <= CPUS; cpus++) {
            compare_caches(g[i], cpus);
        }
    }
}

/* L1 has 2 lines, L2 and L3 have 4. */
static const LwpGeometry tiny[LWP_NR_LEVELS] = {
    { 128, 2 }, { 256, 4 }, { 256, 4 }
};

/* A victim L3: it has what L2 had to give up, until it is wanted again. */
static void test_levels(void)
{
    static const struct {
        uint64_t line;
        LwpSource source;
    } t[] = {
        { 1, LWP_SOURCE_DRAM }, { 1, LWP_SOURCE_L1 },
        { 2, LWP_SOURCE_DRAM }, { 1, LWP_SOURCE_L1 },
        { 3, LWP_SOURCE_DRAM },                         /* L1 loses 2 */
        { 1, LWP_SOURCE_L1 }, { 2, LWP_SOURCE_L2 },     /* L1 loses 3 */
        { 4, LWP_SOURCE_DRAM },
        { 5, LWP_SOURCE_DRAM },     /* L2 loses 1, not the 2 used since */
        { 2, LWP_SOURCE_L2 },
        { 1, LWP_SOURCE_L3 },                           /* L2 loses 3 */
        { 3, LWP_SOURCE_L3 },                           /* L2 loses 4 */
        { 6, LWP_SOURCE_DRAM }, { 7, LWP_SOURCE_DRAM }, /* 5, 2 */
        { 8, LWP_SOURCE_DRAM },                         /* 1 */
        { 9, LWP_SOURCE_DRAM },     /* L2 loses 3; L3, which is full, 4 */
        { 4, LWP_SOURCE_DRAM },                         /* 6; L3 loses 5 */
        { 2, LWP_SOURCE_L3 },
    };
    System s;

    system_init(&s, tiny, 1);
    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        g_assert_cmpint(lwp_cache_peek(s.cache[0], t[i].line), ==,
                        t[i].source);
        g_assert_cmpint(run(&s, 0, t[i].line, i & 1), ==, t[i].source);
    }
    system_free(&s);
}

static void test_remote(void)
{
    const uint64_t x = 77, addr = x * LWP_LINE_SIZE;
    System s;

    system_init(&s, tiny, 3);
    g_assert_cmpint(run(&s, 0, x, false), ==, LWP_SOURCE_DRAM);
    g_assert_true(matches(&s.filter[0], addr, true));   /* nobody else has it */
    g_assert_cmpint(run(&s, 0, x, true), ==, LWP_SOURCE_L1);

    /* Others may read it as well; then a store is everybody's business. */
    g_assert_cmpint(lwp_cache_peek(s.cache[1], x), ==, LWP_SOURCE_REMOTE);
    g_assert_cmpint(run(&s, 1, x, false), ==, LWP_SOURCE_REMOTE);
    for (int i = 0; i < 2; i++) {
        g_assert_true(matches(&s.filter[i], addr, false));
        g_assert_false(matches(&s.filter[i], addr, true));
        g_assert_cmpint(run(&s, i, x, false), ==, LWP_SOURCE_L1);
    }
    g_assert_cmpint(lwp_cache_access(s.cache[1], x, addr, true), ==,
                    LWP_SOURCE_UNKNOWN);
    g_assert_true(matches(&s.filter[0], addr, false));  /* nothing done yet */
    g_assert_cmpint(lwp_cache_fill(s.cache[1], x, addr, true), ==,
                    LWP_SOURCE_L1);
    g_assert_true(matches(&s.filter[1], addr, true));
    g_assert_false(matches(&s.filter[0], addr, false));
    g_assert_false(matches(&s.filter[0], addr, true));
    g_assert_cmpint(lwp_cache_peek(s.cache[0], x), ==, LWP_SOURCE_REMOTE);

    /* A store takes it from wherever it is, even from several. */
    g_assert_cmpint(run(&s, 0, x, false), ==, LWP_SOURCE_REMOTE);
    g_assert_cmpint(run(&s, 2, x, true), ==, LWP_SOURCE_REMOTE);
    g_assert_cmpint(run(&s, 1, x, true), ==, LWP_SOURCE_REMOTE);
    g_assert_cmpint(run(&s, 0, x, false), ==, LWP_SOURCE_REMOTE);

    /* Only in L2 of that processor: remote all the same. */
    run(&s, 1, x + 1, false);
    run(&s, 1, x + 2, false);
    g_assert_cmpint(lwp_cache_peek(s.cache[1], x), ==, LWP_SOURCE_L2);
    g_assert_cmpint(run(&s, 2, x, true), ==, LWP_SOURCE_REMOTE);
    g_assert_cmpint(lwp_cache_peek(s.cache[1], x), ==, LWP_SOURCE_REMOTE);

    /* A processor beats L3, and L3 is for all. */
    run(&s, 0, x, false);
    for (int i = 1; i <= 4; i++) {
        run(&s, 2, x + 10 + i, false);
    }
    g_assert_cmpint(run(&s, 1, x, false), ==, LWP_SOURCE_REMOTE);
    lwp_cache_free(s.cache[0]);
    lwp_cache_free(s.cache[1]);
    s.cache[0] = s.cache[1] = NULL;
    g_assert_cmpint(lwp_cache_peek(s.cache[2], x), ==, LWP_SOURCE_L3);
    system_add(&s, tiny, 0);
    g_assert_cmpint(run(&s, 0, x, false), ==, LWP_SOURCE_L3);
    g_assert_cmpint(run(&s, 2, x, false), ==, LWP_SOURCE_REMOTE);
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
    lwp_cache_flush(s.cache[0]);
    for (int i = 1; i <= 5; i++) {
        g_assert_false(matches(&s.filter[0], i * LWP_LINE_SIZE, false));
        g_assert_cmpint(lwp_cache_peek(s.cache[0], i), ==, LWP_SOURCE_DRAM);
        g_assert_cmpint(lwp_cache_peek(s.cache[1], i), ==, LWP_SOURCE_DRAM);
    }
    g_assert_true(matches(&s.filter[1], 6 * LWP_LINE_SIZE, true));
    g_assert_cmpint(run(&s, 1, 6, true), ==, LWP_SOURCE_L1);
    g_assert_cmpint(run(&s, 0, 6, false), ==, LWP_SOURCE_REMOTE);
    system_free(&s);
}

/* What the first processor has done alone, the second one sees. */
static void test_second(void)
{
    System s;

    system_init(&s, tiny, 1);
    g_assert_cmpint(run(&s, 0, 1, true), ==, LWP_SOURCE_DRAM);
    system_add(&s, tiny, 1);
    g_assert_cmpint(lwp_cache_peek(s.cache[1], 1), ==, LWP_SOURCE_REMOTE);
    g_assert_cmpint(run(&s, 1, 1, true), ==, LWP_SOURCE_REMOTE);
    g_assert_cmpint(run(&s, 0, 1, false), ==, LWP_SOURCE_REMOTE);
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
    LwpFilter *filter = &stress.filter[w->cpu];
    LwpCache **c = &stress.cache[w->cpu];
    int64_t end = g_get_monotonic_time() + STRESS_USECS;

    while (w->ops % 256 || g_get_monotonic_time() < end) {
        uint64_t line = worker_rand(w, STRESS_LINES);
        uint64_t addr = line * LWP_LINE_SIZE;
        bool store = worker_rand(w, 3) == 0;

        w->ops++;
        if (worker_rand(w, 8) == 0) {
            g_assert_cmpint(lwp_cache_peek(*c, line), <=, LWP_SOURCE_L1);
        }
        if (!matches(filter, addr, store)) {
            g_assert_cmpint(do_access(*c, line, addr, store), <=,
                            LWP_SOURCE_L1);
        }
        if (replace && worker_rand(w, 1000) == 0) {
            lwp_cache_flush(*c);
        }
        if (replace && w->cpu && worker_rand(w, 1000) == 0) {
            lwp_cache_free(*c);
            *c = lwp_cache_new(stress.uncore, tiny, filter);
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
        stress.cache[w->cpu] = lwp_cache_new(stress.uncore, tiny,
                                             &stress.filter[w->cpu]);
        g_assert_nonnull(stress.cache[w->cpu]);
    }
    worker_run(w, true);
    pthread_barrier_wait(&stress_barrier);
    lwp_cache_flush(stress.cache[w->cpu]);
    pthread_barrier_wait(&stress_barrier);
    worker_run(w, false);
    return NULL;
}

static void test_threads(void)
{
    Worker w[CPUS];

    system_init(&stress, tiny, 1);
    lwp_uncore_share(stress.uncore);
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
            LwpSource source = lwp_cache_peek(stress.cache[i], line);
            uint64_t addr = line * LWP_LINE_SIZE;

            have += source == LWP_SOURCE_L1 || source == LWP_SOURCE_L2;
            own += matches(&stress.filter[i], addr, true);
            if (matches(&stress.filter[i], addr, false)) {
                g_assert_cmpint(source, ==, LWP_SOURCE_L1);
            }
        }
        g_assert_true(own == 0 || have == 1);
        g_assert_cmpint(run(&stress, line % CPUS, line, true), <=,
                        LWP_SOURCE_L1);
        for (int i = 0; i < CPUS; i++) {
            g_assert_cmpint(lwp_cache_peek(stress.cache[i], line), ==,
                            i == line % CPUS ? LWP_SOURCE_L1 :
                            LWP_SOURCE_REMOTE);
        }
    }
    system_free(&stress);
}

static LwpPredictor predictor;

static LwpPrediction predict(LwpBranch branch, uint64_t ip, bool taken,
                             uint64_t target)
{
    return lwp_predict(&predictor, branch, ip, ip + 5, taken, target);
}

static void assert_prediction(LwpPrediction p, bool valid, bool correct)
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
        LwpPrediction p = predict(LWP_BRANCH_COND, ip, taken,
                                  taken ? ip - 100 : ip + 5);

        g_assert_true(p.valid);
        wrong += !p.correct;
    }
    return wrong;
}

static void test_predict_cold(void)
{
    memset(&predictor, 0, sizeof(predictor));
    assert_prediction(predict(LWP_BRANCH_COND, 1, false, 6), true, true);
    assert_prediction(predict(LWP_BRANCH_COND, 2, true, 100), true, false);
    assert_prediction(predict(LWP_BRANCH_JMP, 3, true, 100), true, true);
    assert_prediction(predict(LWP_BRANCH_RET, 4, true, 100), false, false);
    assert_prediction(predict(LWP_BRANCH_JMP_ABS, 5, true, 100), false, false);
    assert_prediction(predict(LWP_BRANCH_CALL_ABS, 6, true, 100), false,
                      false);
    assert_prediction(predict(LWP_BRANCH_CALL, 7, true, 100), true, true);
}

static void test_predict_cond(void)
{
    static const uint64_t ips[] = { 0, 0x401234, 0xffffffff80000fff };
    int wrong = 0;

    for (int k = 0; k < G_N_ELEMENTS(ips); k++) {
        uint64_t ip = ips[k];

        /* A counter is zero for each new history, and it takes two steps. */
        memset(&predictor, 0, sizeof(predictor));
        g_assert_cmpint(mispredicted(ip, INT_MAX, 0, LWP_HISTORY_BITS), ==,
                        LWP_HISTORY_BITS);
        g_assert_cmpint(mispredicted(ip, INT_MAX, 0, 2), ==, 2);
        g_assert_cmpint(mispredicted(ip, INT_MAX, 0, 1000), ==, 0);
        /* It is saturated: one exception does not make it forget. */
        g_assert_cmpint(mispredicted(ip, 1, 0, 1), ==, 1);
        g_assert_cmpint(mispredicted(ip, INT_MAX, 0, LWP_HISTORY_BITS), ==,
                        LWP_HISTORY_BITS);
        g_assert_cmpint(mispredicted(ip, INT_MAX, 0, 1000), ==, 0);
        memset(&predictor, 0, sizeof(predictor));
        g_assert_cmpint(mispredicted(ip, 1, 0, 1000), ==, 0);

        /* The history tells where in the loop it is, if that fits. */
        for (int period = 1; period <= LWP_HISTORY_BITS + 2; period++) {
            memset(&predictor, 0, sizeof(predictor));
            mispredicted(ip, period, 0, LWP_HISTORY_BITS + 3 * period);
            wrong = mispredicted(ip, period, LWP_HISTORY_BITS + 3 * period,
                                 100 * period);
            if (period <= LWP_HISTORY_BITS + 1) {
                g_assert_cmpint(wrong, ==, 0);
            } else {
                /* All taken: one more or the last one? */
                g_assert_cmpint(wrong, >=, 100);
                g_assert_cmpint(wrong, <=, 200);
            }
        }
    }

    wrong = 0;
    for (int i = 0; i < 20000; i++) {
        wrong += !predict(LWP_BRANCH_COND, 0x1234, g_test_rand_bit(),
                          7).correct;
    }
    g_assert_cmpint(wrong, >, 9500);
    g_assert_cmpint(wrong, <, 10500);
}

static void test_predict_indirect(void)
{
    static const LwpBranch branches[] = {
        LWP_BRANCH_JMP_ABS, LWP_BRANCH_CALL_ABS
    };

    for (int k = 0; k < G_N_ELEMENTS(branches); k++) {
        LwpBranch b = branches[k];

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
        assert_prediction(predict(b, 0x1000 + LWP_NR_TARGETS, true, 0x111),
                          true, true);
        for (int i = 1; i < LWP_NR_TARGETS; i++) {
            assert_prediction(predict(b, 0x1000 + i, true, 0x111), false,
                              false);
        }
    }
}

/* Calls @depth deep; returns how many returns are mispredicted. */
static int returns_mispredicted(int depth)
{
    uint64_t next[3 * LWP_NR_RETURNS];
    int wrong = 0;

    for (int i = 0; i < depth; i++) {
        LwpBranch b = i & 1 ? LWP_BRANCH_CALL : LWP_BRANCH_CALL_ABS;

        next[i] = 0x401000 + 32 * i;
        lwp_predict(&predictor, b, next[i] - 5, next[i], true, 0x402000);
    }
    while (depth--) {
        LwpPrediction p = predict(LWP_BRANCH_RET, 0x402000, true, next[depth]);

        g_assert_true(p.valid);
        wrong += !p.correct;
    }
    return wrong;
}

static void test_predict_return(void)
{
    memset(&predictor, 0, sizeof(predictor));
    for (int depth = 1; depth < 3 * LWP_NR_RETURNS; depth++) {
        g_assert_cmpint(returns_mispredicted(depth), ==,
                        MAX(0, depth - LWP_NR_RETURNS));
    }
    memset(&predictor, 0, sizeof(predictor));
    predict(LWP_BRANCH_CALL, 0x1000, true, 0x2000);
    assert_prediction(predict(LWP_BRANCH_RET, 0x2000, true, 0x1005), true,
                      true);
    assert_prediction(predict(LWP_BRANCH_RET, 0x3000, true, 0x1234), false,
                      false);
    /* One that does not go back to its call, as longjmp() and threads do. */
    predict(LWP_BRANCH_CALL, 0x1000, true, 0x2000);
    assert_prediction(predict(LWP_BRANCH_RET, 0x2000, true, 0x1006), true,
                      false);
    /* JMP leaves the stack alone. */
    predict(LWP_BRANCH_CALL, 0x1000, true, 0x2000);
    predict(LWP_BRANCH_JMP, 0x2000, true, 0x3000);
    predict(LWP_BRANCH_JMP_ABS, 0x3000, true, 0x4000);
    predict(LWP_BRANCH_COND, 0x4000, true, 0x5000);
    assert_prediction(predict(LWP_BRANCH_RET, 0x5000, true, 0x1005), true,
                      true);
}

/* The textbook's: numbers from 0 to 3, and the sum of what is known. */
typedef struct RefPredictor {
    int counter[1 << LWP_HISTORY_BITS];
    bool outcome[LWP_HISTORY_BITS];     /* the last one first */
    uint64_t target[LWP_NR_TARGETS];
    GArray *stack;
} RefPredictor;

static LwpPrediction ref_predict(RefPredictor *r, LwpBranch branch, uint64_t ip,
                                 bool taken, uint64_t target)
{
    LwpPrediction p = { true, true };
    uint64_t *last = &r->target[ip % LWP_NR_TARGETS], next = ip + 5;
    uint32_t index = ip % 4096 * 4;

    switch (branch) {
    case LWP_BRANCH_COND:
        for (int i = 0; i < LWP_HISTORY_BITS; i++) {
            index ^= r->outcome[i] << i;
        }
        p.correct = (r->counter[index] >= 2) == taken;
        r->counter[index] = CLAMP(r->counter[index] + (taken ? 1 : -1), 0, 3);
        memmove(&r->outcome[1], &r->outcome[0], LWP_HISTORY_BITS - 1);
        r->outcome[0] = taken;
        break;
    case LWP_BRANCH_JMP_ABS:
    case LWP_BRANCH_CALL_ABS:
        p = (LwpPrediction) { *last, *last == target };
        *last = target;
        break;
    case LWP_BRANCH_RET:
        p.correct = g_array_index(r->stack, uint64_t, r->stack->len - 1) ==
                    target;
        g_array_set_size(r->stack, r->stack->len - 1);
        break;
    default:
        break;
    }
    if (branch == LWP_BRANCH_CALL || branch == LWP_BRANCH_CALL_ABS) {
        g_array_append_val(r->stack, next);
    }
    return p;
}

/* Random code; that it lies elsewhere, by whole pages, makes no difference. */
static void test_predict_model(void)
{
    static RefPredictor r;
    static LwpPredictor moved;
    int correct[LWP_NR_BRANCHES] = { 0 };
    const uint64_t by = 0x7f0000003000;

    memset(&predictor, 0, sizeof(predictor));
    r.stack = g_array_new(false, false, sizeof(uint64_t));
    for (int i = 0; i < 100000; i++) {
        LwpBranch b = g_test_rand_int_range(1, LWP_NR_BRANCHES);
        uint64_t ip = 0x400000 + g_test_rand_int_range(0, 40) * 1021;
        bool taken = b != LWP_BRANCH_COND || g_test_rand_int_range(0, 8) >= 2;
        uint64_t target = 0x1000 + g_test_rand_int_range(0, 3);
        LwpPrediction p, want, other;

        if ((b == LWP_BRANCH_CALL || b == LWP_BRANCH_CALL_ABS) &&
            r.stack->len == LWP_NR_RETURNS) {
            continue;
        }
        if (b == LWP_BRANCH_RET) {
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
        other = lwp_predict(&moved, b, ip + by, ip + by + 5, taken,
                            target + (b == LWP_BRANCH_RET ? by : 0));
        assert_prediction(other, want.valid, want.correct);
        correct[b] += want.correct;
    }
    for (int b = 1; b < LWP_NR_BRANCHES; b++) {
        g_assert_cmpint(correct[b], >, 0);
    }
    g_array_free(r.stack, true);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cache/geometry", test_geometry);
    g_test_add_func("/cache/no-memory", test_no_memory);
    g_test_add_func("/cache/levels", test_levels);
    g_test_add_func("/cache/remote", test_remote);
    g_test_add_func("/cache/flush", test_flush);
    g_test_add_func("/cache/second", test_second);
    g_test_add_func("/cache/model", test_model);
    g_test_add_func("/cache/threads", test_threads);
    g_test_add_func("/predictor/cold", test_predict_cold);
    g_test_add_func("/predictor/conditional", test_predict_cond);
    g_test_add_func("/predictor/indirect", test_predict_indirect);
    g_test_add_func("/predictor/return", test_predict_return);
    g_test_add_func("/predictor/model", test_predict_model);
    return g_test_run();
}
