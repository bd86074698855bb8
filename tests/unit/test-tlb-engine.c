/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Unit tests of TLBs and L1I, against models that are as plain as can be. */

#include <stdlib.h>
#include <string.h>
#include <glib.h>
#include "models/engine/tlb.h"

#define MAX_ENTRIES     64
#define KIB_4           ((RetirePage) { 12, false })
#define GLOBAL_4        ((RetirePage) { 12, true })
#define MIB_2           ((RetirePage) { 21, false })
#define MIB_4           ((RetirePage) { 22, false })
#define GIB_1           ((RetirePage) { 30, false })

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

/* Four entries for each size in L1, eight in the second levels */
static const RetireTlbConfig small = {
    { [RETIRE_DTLB] = { 4, 2 }, [RETIRE_DTLB_2M] = { 4, 4 },
      [RETIRE_DTLB_1G] = { 4, 4 },
      [RETIRE_ITLB] = { 4, 4 }, [RETIRE_ITLB_2M] = { 4, 4 },
      [RETIRE_STLB] = { 8, 8 }, [RETIRE_ISTLB] = { 8, 8 } },
    .stlb_lg_max = 29,
};
static const RetireGeometry small_l1i = { 1024, 2 };

static RetireFilter filter;

static void init(RetireTlb *t, const RetireTlbConfig *config)
{
    retire_filter_clear(&filter);
    g_assert_true(retire_tlb_init(t, config, &small_l1i, &filter));
}

static void test_valid(void)
{
    static const struct {
        RetireTlbKind kind;
        RetireGeometry g;
        bool valid;
    } t[] = {
        { RETIRE_DTLB, { 64, 4 }, true }, { RETIRE_DTLB, { 64, 64 }, true },
        { RETIRE_DTLB, { 72, 36 }, true }, { RETIRE_ITLB, { 7, 7 }, true },
        { RETIRE_DTLB, { 0, 4 }, false }, { RETIRE_ITLB, { 0, 0 }, false },
        { RETIRE_DTLB_2M, { 0, 0 }, true }, { RETIRE_STLB, { 0, 5 }, true },
        { RETIRE_STLB, { 64, 0 }, false }, { RETIRE_STLB, { 64, 3 }, false },
        { RETIRE_STLB, { 65, 65 }, false },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        g_assert_true(retire_tlb_valid(t[i].kind, &t[i].g) == t[i].valid);
    }
}

static void test_configs(void)
{
    static const struct {
        bool intel;
        unsigned family, model;
        uint32_t dtlb, stlb, itlb;
    } t[] = {
        { true, 5, 2, 64, 0, 32 }, { true, 5, 13, 64, 0, 32 },
        { true, 6, 3, 64, 0, 32 }, { false, 270, 0, 72, 3072, 64 },
        { true, 6, 0xd, 128, 0, 128 }, { true, 6, 0xf, 16, 256, 128 },
        { true, 6, 0x1a, 64, 512, 128 }, { true, 6, 0x3a, 64, 512, 128 },
        { true, 6, 0x3c, 64, 1024, 128 }, { true, 6, 0x3d, 64, 1536, 128 },
        { true, 6, 0x5e, 64, 1536, 128 }, { true, 6, 0x6a, 64, 2048, 128 },
        { true, 6, 0x8f, 96, 2048, 256 }, { true, 6, 0x1c, 16, 64, 32 },
        { true, 6, 0x5d, 48, 128, 48 }, { true, 6, 0x75, 48, 128, 48 },
        { true, 6, 0x8a, 32, 1024, 48 }, { true, 6, 0x9d, 64, 2048, 128 },
        { true, 6, 0xff, 64, 1536, 128 }, { true, 15, 6, 64, 1536, 128 },
        { false, 15, 0x41, 32, 512, 32 }, { false, 0x10, 2, 48, 512, 32 },
        { false, 0x15, 2, 64, 1024, 48 }, { false, 0x17, 1, 64, 1536, 64 },
        { false, 0x17, 0x31, 64, 2048, 64 }, { false, 0x19, 1, 64, 2048, 64 },
        { false, 0x19, 0x11, 72, 3072, 64 }, { false, 0x1a, 0, 72, 3072, 64 },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        const RetireTlbConfig *c = retire_tlb_config(t[i].intel, t[i].family,
                                                     t[i].model);

        g_assert_cmpuint(c->tlb[RETIRE_DTLB].size, ==, t[i].dtlb);
        g_assert_cmpuint(c->tlb[RETIRE_STLB].size, ==, t[i].stlb);
        g_assert_cmpuint(c->tlb[RETIRE_ITLB].size, ==, t[i].itlb);
    }
    for (int intel = 0; intel < 2; intel++) {
        for (int n = 0; n < 0x10f00; n++) {
            const RetireTlbConfig *c = retire_tlb_config(intel, n >> 8,
                                                         n & 0xff);

            for (int k = 0; k < RETIRE_NR_TLBS; k++) {
                g_assert_true(retire_tlb_valid(k, &c->tlb[k]));
            }
        }
    }
}

/* A line that has been written to is fetched again, but for the last one. */
static void test_code_store(void)
{
    RetireTlb t;

    g_assert_true(retire_tlb_init(&t, &small, &small_l1i, &filter));
    t.code = true;
    retire_tlb_count_lines(&t, true);
    g_assert_false(retire_code_store(&t, 5));
    for (uint64_t line = 5; line < 7; line++) {
        filter.slot[line].store = line * RETIRE_LINE_SIZE;
        g_assert_true(retire_fetch_counts(&t, line * RETIRE_LINE_SIZE, line,
                                          false));
        g_assert_false(retire_fetch_known(&t, line * RETIRE_LINE_SIZE, line));
        g_assert_false(retire_fetch_line(&t, line * RETIRE_LINE_SIZE, line));
        g_assert_false(retire_filter_has(&filter, line * RETIRE_LINE_SIZE,
                                         true));
    }
    g_assert_true(retire_code_store(&t, 5));
    g_assert_false(retire_code_store(&t, 5));
    for (int i = 0; i < 2; i++) {
        filter.slot[6].store = 6 * RETIRE_LINE_SIZE;
        g_assert_true(retire_code_store(&t, 6));
        g_assert_false(retire_filter_has(&filter, 6 * RETIRE_LINE_SIZE, true));
    }
    g_assert_true(retire_fetch_counts(&t, 5 * RETIRE_LINE_SIZE, 5, false));
    g_assert_false(retire_fetch_known(&t, 5 * RETIRE_LINE_SIZE, 5));
    g_assert_false(retire_fetch_line(&t, 5 * RETIRE_LINE_SIZE, 5));
    g_assert_true(retire_code_store(&t, 6));
    retire_tlb_free(&t);
}

static void test_no_memory(void)
{
    RetireTlb t;

    for (int n = 0; n < 2 * (RETIRE_NR_TLBS + 1); n++) {
        calloc_fails_in = n;
        g_assert_false(retire_tlb_init(&t, &small, &small_l1i, &filter));
    }
    calloc_fails_in = -1;
    init(&t, &small);
    retire_tlb_free(&t);
    /* Nothing is left that a flush could look at. */
    retire_tlb_flush(&t, true);
}

static RetireTlbResult data(RetireTlb *t, uint64_t page, RetirePage p)
{
    return retire_tlb_data(t, page << p.lg_size, p);
}

static RetireTlbResult code(RetireTlb *t, uint64_t page, RetirePage p)
{
    uint64_t addr = page << p.lg_size;

    return retire_fetch_page(t, addr, addr / RETIRE_LINE_SIZE, p);
}

/* @n pages fit into L1, and @second of them into the second level. */
static void check_capacity(RetireTlb *t, RetirePage p,
                           RetireTlbResult (*use)(RetireTlb *, uint64_t,
                                                  RetirePage),
                           uint64_t n, uint64_t second)
{
    uint64_t i;

    retire_tlb_flush(t, true);
    for (i = 0; i < n; i++) {
        g_assert_cmpint(use(t, i, p), ==, RETIRE_TLB_WALK);
    }
    for (i = 0; i < n; i++) {
        g_assert_cmpint(use(t, i, p), ==, RETIRE_TLB_L1);
    }
    for (; i < second; i++) {
        g_assert_cmpint(use(t, i, p), ==, RETIRE_TLB_WALK);
    }
    for (i = 0; i < second; i++) {
        g_assert_cmpint(use(t, i, p), <=, RETIRE_TLB_L2);
    }
}

static void test_capacity(void)
{
    RetireTlbConfig config = small;
    RetireTlb t;

    init(&t, &config);
    check_capacity(&t, KIB_4, data, 4, 8);
    check_capacity(&t, GLOBAL_4, data, 4, 8);
    check_capacity(&t, MIB_2, data, 4, 8);
    check_capacity(&t, MIB_4, data, 4, 8);
    check_capacity(&t, GIB_1, data, 4, 4);
    check_capacity(&t, KIB_4, code, 4, 8);
    check_capacity(&t, MIB_2, code, 4, 8);
    /* What does not fit into L1 is in the second level, but for 1 GiB. */
    check_capacity(&t, KIB_4, data, 4, 8);
    g_assert_cmpint(data(&t, 0, KIB_4), ==, RETIRE_TLB_L2);
    check_capacity(&t, GIB_1, data, 4, 4);
    g_assert_cmpint(data(&t, 4, GIB_1), ==, RETIRE_TLB_WALK);
    /* Code and data share nothing, */
    g_assert_cmpint(data(&t, 9, KIB_4), ==, RETIRE_TLB_WALK);
    g_assert_cmpint(code(&t, 9, KIB_4), ==, RETIRE_TLB_WALK);
    retire_tlb_free(&t);

    /* or a second level; */
    config.tlb[RETIRE_ISTLB].size = 0;
    config.stlb_code = true;
    init(&t, &config);
    g_assert_cmpint(data(&t, 9, KIB_4), ==, RETIRE_TLB_WALK);
    g_assert_cmpint(code(&t, 9, KIB_4), ==, RETIRE_TLB_L2);
    retire_tlb_free(&t);

    /* code has none; */
    config.stlb_code = false;
    init(&t, &config);
    g_assert_cmpint(data(&t, 9, KIB_4), ==, RETIRE_TLB_WALK);
    g_assert_cmpint(code(&t, 9, KIB_4), ==, RETIRE_TLB_WALK);
    g_assert_cmpint(code(&t, 9, KIB_4), ==, RETIRE_TLB_L1);
    retire_tlb_free(&t);

    /* sizes share entries. */
    config.tlb[RETIRE_DTLB] = (RetireGeometry) { 4, 4 };
    config.tlb[RETIRE_DTLB_1G].size = config.tlb[RETIRE_DTLB_2M].size = 0;
    config.tlb[RETIRE_ITLB_2M].size = 0;
    init(&t, &config);
    check_capacity(&t, GIB_1, data, 4, 4);
    g_assert_cmpint(data(&t, 0, KIB_4), ==, RETIRE_TLB_WALK);
    g_assert_cmpint(data(&t, 0, GIB_1), ==, RETIRE_TLB_WALK);
    g_assert_cmpint(data(&t, 3, GIB_1), ==, RETIRE_TLB_L1);
    retire_tlb_free(&t);
}

static void test_flush(void)
{
    static const RetirePage sizes[] = { KIB_4, MIB_2, MIB_4, GIB_1 };
    RetireTlb t;

    init(&t, &small);
    g_assert_false(t.used);
    for (int i = 0; i < G_N_ELEMENTS(sizes); i++) {
        RetirePage page = sizes[i], global = { page.lg_size, true };
        uint64_t inside = (5ull << page.lg_size) | 0xabc;

        retire_tlb_flush(&t, true);
        g_assert_false(t.used);
        data(&t, 5, page);
        g_assert_true(t.used);
        data(&t, 6, global);
        code(&t, 5, page);
        code(&t, 6, global);
        /* Global pages stay. */
        retire_tlb_flush(&t, false);
        g_assert_true(t.used);
        g_assert_cmpint(data(&t, 6, global), ==, RETIRE_TLB_L1);
        g_assert_cmpint(code(&t, 6, global), ==, RETIRE_TLB_L1);
        g_assert_cmpint(data(&t, 5, page), ==, RETIRE_TLB_WALK);
        g_assert_cmpint(code(&t, 5, page), ==, RETIRE_TLB_WALK);
        /* One page goes, by any address in it; */
        retire_tlb_flush_page(&t, inside);
        g_assert_cmpint(data(&t, 6, global), ==, RETIRE_TLB_L1);
        g_assert_cmpint(data(&t, 5, page), ==, RETIRE_TLB_WALK);
        g_assert_cmpint(code(&t, 6, global), ==, RETIRE_TLB_L1);
        g_assert_cmpint(code(&t, 5, page), ==, RETIRE_TLB_WALK);
        /* so do global ones; */
        retire_tlb_flush_page(&t, inside + (1ull << page.lg_size));
        g_assert_cmpint(data(&t, 6, global), ==, RETIRE_TLB_WALK);
        g_assert_cmpint(code(&t, 6, global), ==, RETIRE_TLB_WALK);
        g_assert_cmpint(data(&t, 5, page), ==, RETIRE_TLB_L1);
        /* all go, */
        retire_tlb_flush(&t, true);
        g_assert_cmpint(data(&t, 6, global), ==, RETIRE_TLB_WALK);
        /* and lines, too. */
        retire_fetch_line(&t, 0, 0);
        g_assert_true(retire_fetch_line(&t, 0, 0));
        retire_tlb_flush(&t, true);
        g_assert_true(retire_fetch_line(&t, 0, 0));
        retire_tlb_reset(&t);
        g_assert_false(retire_fetch_line(&t, 0, 0));
    }
    retire_tlb_free(&t);
}

/* What an INVLPG has left empty is used first. */
static void test_empty_first(void)
{
    RetireTlb t;

    init(&t, &small);
    for (uint64_t i = 0; i < 4; i++) {
        data(&t, i, MIB_2);
    }
    /* Now 3 alone is marked. */
    retire_tlb_flush_page(&t, 1ull << 21);
    data(&t, 4, MIB_2);
    g_assert_cmpint(data(&t, 0, MIB_2), ==, RETIRE_TLB_L1);
    g_assert_cmpint(data(&t, 2, MIB_2), ==, RETIRE_TLB_L1);
    retire_tlb_free(&t);
}

/*
 * A plain model of one array: for each set, its entries and their marks
 */
typedef struct Plain {
    uint32_t sets, assoc;
    uint64_t key[MAX_ENTRIES];      /* 0: empty */
    bool marked[MAX_ENTRIES];
} Plain;

static bool plain_use(Plain *p, uint64_t key)
{
    uint64_t *k = p->key + key % p->sets * p->assoc;
    bool *m = p->marked + key % p->sets * p->assoc, hit = true, others = true;
    uint32_t n = 0;

    while (n < p->assoc && k[n] != key) {
        n++;
    }
    if (n == p->assoc) {
        hit = false;
        n = 0;
        while (n < p->assoc && k[n]) {
            n++;
        }
        for (uint32_t i = 0; n == p->assoc && i < p->assoc; i++) {
            n = m[i] ? n : i;
        }
        n = n == p->assoc ? 0 : n;
    }
    k[n] = key;
    m[n] = true;
    for (uint32_t i = 0; i < p->assoc; i++) {
        others &= m[i];
    }
    for (uint32_t i = 0; others && i < p->assoc; i++) {
        m[i] = i == n;
    }
    return hit;
}

static void plain_forget(Plain *p, uint64_t key)
{
    for (uint32_t i = 0; i < p->sets * p->assoc; i++) {
        if (p->key[i] == key) {
            p->key[i] = 0;
            p->marked[i] = false;
        }
    }
}

static const RetireGeometry shapes[] = {
    { 1, 1 }, { 4, 1 }, { 2, 2 }, { 4, 2 }, { 16, 4 }, { 12, 4 }, { 9, 3 },
    { 64, 64 }, { 7, 7 },
};

static RetireTlbConfig of_shape(int i)
{
    return (RetireTlbConfig) {
        { [RETIRE_DTLB] = shapes[i], [RETIRE_ITLB] = shapes[i],
          [RETIRE_STLB] = shapes[(i + 3) % G_N_ELEMENTS(shapes)] },
        .stlb_lg_max = 12, .stlb_code = true,
    };
}

static void plain_init(Plain *p, const RetireGeometry *g)
{
    *p = (Plain) { .sets = g->size / g->assoc, .assoc = g->assoc };
}

/*
 * Accesses to pages 1 and up: the model is asked only where the filter does not
 * know, and yet finds what the plain one does, which sees each of them.
 */
static void test_data(void)
{
    for (int i = 0; i < G_N_ELEMENTS(shapes); i++) {
        RetireTlbConfig config = of_shape(i);
        uint64_t known = 0, pages = 2 * shapes[i].size + 2;
        Plain l1, l2;
        RetireTlb t;

        init(&t, &config);
        plain_init(&l1, &config.tlb[RETIRE_DTLB]);
        plain_init(&l2, &config.tlb[RETIRE_STLB]);
        for (int n = 0; n < 100000; n++) {
            bool local = n % 64 < 48;
            uint64_t page = g_test_rand_int_range(1, local ? 4 : pages);
            uint64_t addr = page << 12 | g_test_rand_int_range(0, 4) << 6;
            RetireSlot *s = &filter.slot[addr >> 6 & 63];
            RetireTlbResult right = plain_use(&l1, page) ? RETIRE_TLB_L1 :
                plain_use(&l2, page) ? RETIRE_TLB_L2 : RETIRE_TLB_WALK;

            if (retire_filter_has(&filter, addr, n % 2)) {
                g_assert_cmpint(right, ==, RETIRE_TLB_L1);
                known++;
            } else if (retire_tlb_try(&t, addr, KIB_4)) {
                g_assert_cmpint(right, ==, RETIRE_TLB_L1);
                s->load = s->store = addr;
            } else {
                g_assert_cmpint(retire_tlb_data(&t, addr, KIB_4), ==, right);
                s->load = s->store = addr;
            }
            if (n % 1000 == 999) {
                retire_tlb_flush_page(&t, addr);
                plain_forget(&l1, page);
                plain_forget(&l2, page);
            }
        }
        g_assert_cmpuint(known, >, 1000);
        retire_tlb_free(&t);
    }
}

/* The same of fetches, of lines that are elsewhere in physical memory */
static void test_fetches(void)
{
    for (int i = 0; i < G_N_ELEMENTS(shapes); i++) {
        RetireTlbConfig config = of_shape(i);
        uint64_t known = 0, pages = 2 * shapes[i].size + 2;
        RetireGeometry g = { shapes[(i + 1) % G_N_ELEMENTS(shapes)].size * 64,
                             shapes[(i + 1) % G_N_ELEMENTS(shapes)].assoc };
        Plain l1, l2, l1i;
        RetireTlb t;

        retire_filter_clear(&filter);
        g_assert_true(retire_tlb_init(&t, &config, &g, &filter));
        plain_init(&l1, &config.tlb[RETIRE_ITLB]);
        plain_init(&l2, &config.tlb[RETIRE_STLB]);
        l1i = (Plain) { .sets = g.size / 64 / g.assoc, .assoc = g.assoc };
        for (int n = 0; n < 100000; n++) {
            bool local = n % 64 < 48;
            uint64_t page = g_test_rand_int_range(1, local ? 4 : pages);
            uint64_t addr = page << 12 | g_test_rand_int_range(0, 4) << 6;
            uint64_t line = (addr >> 6) + 64 * (page % 3);
            bool hit = plain_use(&l1i, line);
            RetireTlbResult right = plain_use(&l1, page) ? RETIRE_TLB_L1 :
                plain_use(&l2, page) ? RETIRE_TLB_L2 : RETIRE_TLB_WALK;

            if (retire_fetch_known(&t, addr + n % 64, line)) {
                g_assert_true(hit && right == RETIRE_TLB_L1);
                known++;
            } else {
                g_assert_true(retire_fetch_line(&t, addr, line) == hit);
                if (retire_fetch_same_page(&t, addr)) {
                    g_assert_cmpint(right, ==, RETIRE_TLB_L1);
                } else {
                    g_assert_cmpint(retire_fetch_page(&t, addr, line, KIB_4),
                                    ==, right);
                }
            }
            g_assert_true(t.known[line % RETIRE_NR_SLOTS] == line);
            for (int k = 0; k < RETIRE_NR_SLOTS; k++) {
                g_assert_true(t.known[k] == t.fetched[k].line);
            }
            if (n % 1000 == 999) {
                retire_tlb_flush_page(&t, addr);
                plain_forget(&l1, page);
                plain_forget(&l2, page);
            }
        }
        g_assert_cmpuint(known, >, shapes[i].size > 2 && g.size > 128 ? 3000 :
                         300);
        retire_tlb_free(&t);
    }
}

/* What translated code sees */
static bool is_known(const RetireTlb *t, uint64_t line)
{
    return t->known[line % RETIRE_NR_SLOTS] == line;
}

/* Whether code at @addr counts as a line, physical and linear alike */
static bool counts(RetireTlb *t, uint64_t addr, bool second)
{
    uint64_t line = addr / RETIRE_LINE_SIZE + second;

    if (is_known(t, line) || !retire_fetch_counts(t, addr, line, second)) {
        return false;
    }
    if (!retire_fetch_known(t, line * RETIRE_LINE_SIZE, line)) {
        retire_fetch_line(t, line * RETIRE_LINE_SIZE, line);
    }
    return true;
}

static void test_lines(void)
{
    RetireTlb t;

    init(&t, &small);
    for (uint64_t line = 0; line < 8; line++) {
        g_assert_false(retire_fetch_known(&t, line * 64, line));
        retire_fetch_line(&t, line * 64, line);
    }
    for (uint64_t line = 0; line < 8; line++) {
        g_assert_true(is_known(&t, line));
    }
    /* If lines are counted, only the last one is known. */
    retire_tlb_count_lines(&t, true);
    g_assert_false(is_known(&t, 0));
    g_assert_true(counts(&t, 0, false));
    g_assert_false(counts(&t, 0, false));
    g_assert_true(counts(&t, 64, false));
    g_assert_true(counts(&t, 0, false));
    g_assert_false(counts(&t, 3, false));
    g_assert_true(!is_known(&t, 1) && is_known(&t, 0));
    /* An instruction in two lines goes back, and both have been there. */
    g_assert_false(counts(&t, 63, false));
    g_assert_true(counts(&t, 63, true));
    g_assert_false(counts(&t, 63, false));
    g_assert_false(counts(&t, 63, true));
    g_assert_false(counts(&t, 63, false));
    g_assert_true(counts(&t, 62, false));
    g_assert_true(counts(&t, 64, false));
    g_assert_true(counts(&t, 63, false));
    /* The others have not been forgotten. */
    retire_tlb_count_lines(&t, true);
    g_assert_false(is_known(&t, 5));
    retire_tlb_count_lines(&t, false);
    g_assert_true(is_known(&t, 5) && is_known(&t, 0));
    retire_tlb_flush(&t, true);
    g_assert_false(is_known(&t, 5) || is_known(&t, 0));
    retire_tlb_free(&t);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tlb/valid", test_valid);
    g_test_add_func("/tlb/configs", test_configs);
    g_test_add_func("/tlb/no-memory", test_no_memory);
    g_test_add_func("/tlb/capacity", test_capacity);
    g_test_add_func("/tlb/flush", test_flush);
    g_test_add_func("/tlb/empty-first", test_empty_first);
    g_test_add_func("/tlb/data", test_data);
    g_test_add_func("/tlb/fetches", test_fetches);
    g_test_add_func("/tlb/lines", test_lines);
    g_test_add_func("/tlb/code-store", test_code_store);
    return g_test_run();
}
