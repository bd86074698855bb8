/* SPDX-License-Identifier: GPL-2.0-or-later */
/* TLBs and the instruction cache: see tlb.h. */

#include <stdlib.h>
#include <string.h>
#include "tlb.h"

#define LG_4K           12
#define LG_2M           21
#define LG_1G           30

/*
 * What there is, by Intel's and AMD's optimization manuals, for pages of each
 * size: { entries, ways }.  Not modelled are first levels that only loads have,
 * and second levels that keep one size apart.
 */
static const RetireTlbConfig
    p6 = {
        { [RETIRE_DTLB] = { 64, 4 }, [RETIRE_DTLB_2M] = { 8, 4 },
          [RETIRE_ITLB] = { 32, 4 }, [RETIRE_ITLB_2M] = { 2, 2 } },
        .stlb_lg_max = 0,
    },
    pentium_m = {
        { [RETIRE_DTLB] = { 128, 4 }, [RETIRE_DTLB_2M] = { 8, 4 },
          [RETIRE_ITLB] = { 128, 4 }, [RETIRE_ITLB_2M] = { 2, 2 } },
        .stlb_lg_max = 0,
    },
    core2 = {
        { [RETIRE_DTLB] = { 16, 4 }, [RETIRE_DTLB_2M] = { 16, 4 },
          [RETIRE_ITLB] = { 128, 4 }, [RETIRE_ITLB_2M] = { 8, 4 },
          [RETIRE_STLB] = { 256, 4 } },
        .stlb_lg_max = LG_4K,
    },
    nehalem = {
        { [RETIRE_DTLB] = { 64, 4 }, [RETIRE_DTLB_2M] = { 32, 4 },
          [RETIRE_ITLB] = { 128, 4 }, [RETIRE_ITLB_2M] = { 7, 7 },
          [RETIRE_STLB] = { 512, 4 } },
        .stlb_lg_max = LG_4K, .stlb_code = true,
    },
    sandy_bridge = {
        { [RETIRE_DTLB] = { 64, 4 }, [RETIRE_DTLB_2M] = { 32, 4 },
          [RETIRE_DTLB_1G] = { 4, 4 },
          [RETIRE_ITLB] = { 128, 4 }, [RETIRE_ITLB_2M] = { 8, 8 },
          [RETIRE_STLB] = { 512, 4 } },
        .stlb_lg_max = LG_4K, .stlb_code = true,
    },
    haswell = {
        { [RETIRE_DTLB] = { 64, 4 }, [RETIRE_DTLB_2M] = { 32, 4 },
          [RETIRE_DTLB_1G] = { 4, 4 },
          [RETIRE_ITLB] = { 128, 4 }, [RETIRE_ITLB_2M] = { 8, 8 },
          [RETIRE_STLB] = { 1024, 8 } },
        .stlb_lg_max = LG_1G - 1, .stlb_code = true,
    },
    broadwell = {
        { [RETIRE_DTLB] = { 64, 4 }, [RETIRE_DTLB_2M] = { 32, 4 },
          [RETIRE_DTLB_1G] = { 4, 4 },
          [RETIRE_ITLB] = { 128, 4 }, [RETIRE_ITLB_2M] = { 8, 8 },
          [RETIRE_STLB] = { 1536, 6 } },
        .stlb_lg_max = LG_1G, .stlb_code = true,
    },
    skylake = {
        { [RETIRE_DTLB] = { 64, 4 }, [RETIRE_DTLB_2M] = { 32, 4 },
          [RETIRE_DTLB_1G] = { 4, 4 },
          [RETIRE_ITLB] = { 128, 8 }, [RETIRE_ITLB_2M] = { 8, 8 },
          [RETIRE_STLB] = { 1536, 12 } },
        .stlb_lg_max = LG_1G, .stlb_code = true,
    },
    ice_lake = {
        { [RETIRE_DTLB] = { 64, 4 }, [RETIRE_DTLB_2M] = { 32, 4 },
          [RETIRE_DTLB_1G] = { 8, 8 },
          [RETIRE_ITLB] = { 128, 8 }, [RETIRE_ITLB_2M] = { 16, 8 },
          [RETIRE_STLB] = { 2048, 16 } },
        .stlb_lg_max = LG_1G, .stlb_code = true,
    },
    golden_cove = {
        { [RETIRE_DTLB] = { 96, 6 }, [RETIRE_DTLB_2M] = { 32, 4 },
          [RETIRE_DTLB_1G] = { 8, 8 },
          [RETIRE_ITLB] = { 256, 8 }, [RETIRE_ITLB_2M] = { 32, 8 },
          [RETIRE_STLB] = { 2048, 16 } },
        .stlb_lg_max = LG_1G, .stlb_code = true,
    },
    bonnell = {
        { [RETIRE_DTLB] = { 16, 16 }, [RETIRE_DTLB_2M] = { 8, 4 },
          [RETIRE_ITLB] = { 32, 32 }, [RETIRE_STLB] = { 64, 4 } },
        .stlb_lg_max = LG_4K,
    },
    silvermont = {
        { [RETIRE_DTLB] = { 48, 48 }, [RETIRE_ITLB] = { 48, 48 },
          [RETIRE_STLB] = { 128, 4 } },
        .stlb_lg_max = LG_1G - 1,
    },
    goldmont = {
        { [RETIRE_DTLB] = { 32, 32 }, [RETIRE_ITLB] = { 48, 48 },
          [RETIRE_STLB] = { 512, 4 } },
        .stlb_lg_max = LG_4K, .stlb_code = true,
    },
    tremont = {
        { [RETIRE_DTLB] = { 32, 32 }, [RETIRE_ITLB] = { 48, 48 },
          [RETIRE_STLB] = { 1024, 4 } },
        .stlb_lg_max = LG_1G - 1, .stlb_code = true,
    },
    k8 = {
        { [RETIRE_DTLB] = { 32, 32 }, [RETIRE_DTLB_2M] = { 8, 8 },
          [RETIRE_ITLB] = { 32, 32 }, [RETIRE_ITLB_2M] = { 8, 8 },
          [RETIRE_STLB] = { 512, 4 }, [RETIRE_ISTLB] = { 512, 4 } },
        .stlb_lg_max = LG_4K,
    },
    family_10h = {
        { [RETIRE_DTLB] = { 48, 48 },
          [RETIRE_ITLB] = { 32, 32 }, [RETIRE_ITLB_2M] = { 16, 16 },
          [RETIRE_STLB] = { 512, 4 }, [RETIRE_ISTLB] = { 512, 4 } },
        .stlb_lg_max = LG_1G - 1,
    },
    family_15h = {
        { [RETIRE_DTLB] = { 64, 64 },
          [RETIRE_ITLB] = { 48, 48 }, [RETIRE_ITLB_2M] = { 24, 24 },
          [RETIRE_STLB] = { 1024, 8 }, [RETIRE_ISTLB] = { 512, 4 } },
        .stlb_lg_max = LG_1G,
    },
    zen = {
        { [RETIRE_DTLB] = { 64, 64 }, [RETIRE_ITLB] = { 64, 64 },
          [RETIRE_STLB] = { 1536, 12 }, [RETIRE_ISTLB] = { 512, 8 } },
        .stlb_lg_max = LG_1G - 1,
    },
    zen2 = {
        { [RETIRE_DTLB] = { 64, 64 }, [RETIRE_ITLB] = { 64, 64 },
          [RETIRE_STLB] = { 2048, 16 }, [RETIRE_ISTLB] = { 1024, 8 } },
        .stlb_lg_max = LG_1G - 1,
    },
    /* 72 entries of one set are more than can be marked. */
    zen4 = {
        { [RETIRE_DTLB] = { 72, 36 }, [RETIRE_ITLB] = { 64, 64 },
          [RETIRE_STLB] = { 3072, 24 }, [RETIRE_ISTLB] = { 512, 8 } },
        .stlb_lg_max = LG_1G - 1,
    };

/* The first row that fits counts, and of each vendor, the last one always. */
static const struct {
    bool intel;
    uint8_t first_family, last_family, first_model, last_model;
    const RetireTlbConfig *config;
} processors[] = {
    { true, 6, 6, 0x09, 0x09, &pentium_m },
    { true, 6, 6, 0x0d, 0x0e, &pentium_m },
    { true, 0, 6, 0x00, 0x0c, &p6 },
    { true, 6, 6, 0x0f, 0x0f, &core2 },
    { true, 6, 6, 0x16, 0x17, &core2 },
    { true, 6, 6, 0x1d, 0x1d, &core2 },
    { true, 6, 6, 0x1c, 0x1c, &bonnell },
    { true, 6, 6, 0x26, 0x27, &bonnell },
    { true, 6, 6, 0x35, 0x36, &bonnell },
    { true, 6, 6, 0x1a, 0x1f, &nehalem },
    { true, 6, 6, 0x25, 0x25, &nehalem },
    { true, 6, 6, 0x2c, 0x2c, &nehalem },
    { true, 6, 6, 0x2e, 0x2f, &nehalem },
    { true, 6, 6, 0x2a, 0x2d, &sandy_bridge },
    { true, 6, 6, 0x3a, 0x3a, &sandy_bridge },
    { true, 6, 6, 0x3e, 0x3e, &sandy_bridge },
    { true, 6, 6, 0x3c, 0x3c, &haswell },
    { true, 6, 6, 0x3f, 0x3f, &haswell },
    { true, 6, 6, 0x45, 0x46, &haswell },
    { true, 6, 6, 0x3d, 0x3d, &broadwell },
    { true, 6, 6, 0x47, 0x47, &broadwell },
    { true, 6, 6, 0x4f, 0x4f, &broadwell },
    { true, 6, 6, 0x56, 0x56, &broadwell },
    { true, 6, 6, 0x37, 0x37, &silvermont },
    { true, 6, 6, 0x4a, 0x4a, &silvermont },
    { true, 6, 6, 0x4c, 0x4d, &silvermont },
    { true, 6, 6, 0x5a, 0x5a, &silvermont },
    { true, 6, 6, 0x57, 0x57, &silvermont },
    { true, 6, 6, 0x85, 0x85, &silvermont },
    { true, 6, 6, 0x5c, 0x5c, &goldmont },
    { true, 6, 6, 0x5f, 0x5f, &goldmont },
    { true, 6, 6, 0x7a, 0x7a, &goldmont },
    { true, 6, 6, 0x86, 0x86, &tremont },
    { true, 6, 6, 0x96, 0x96, &tremont },
    { true, 6, 6, 0x9c, 0x9c, &tremont },
    { true, 6, 6, 0xaf, 0xaf, &tremont },
    { true, 6, 6, 0x6a, 0x6c, &ice_lake },
    { true, 6, 6, 0x7d, 0x7e, &ice_lake },
    { true, 6, 6, 0x8c, 0x8d, &ice_lake },
    { true, 6, 6, 0xa7, 0xa7, &ice_lake },
    { true, 6, 6, 0x8f, 0x8f, &golden_cove },
    { true, 6, 6, 0xcf, 0xcf, &golden_cove },
    { true, 6, 6, 0xad, 0xae, &golden_cove },
    { true, 0, 0xff, 0x00, 0xff, &skylake },
    { false, 0x00, 0x0f, 0x00, 0xff, &k8 },
    { false, 0x15, 0x15, 0x00, 0xff, &family_15h },
    { false, 0x10, 0x16, 0x00, 0xff, &family_10h },
    { false, 0x17, 0x17, 0x30, 0x4f, &zen2 },
    { false, 0x17, 0x17, 0x60, 0xff, &zen2 },
    { false, 0x17, 0x18, 0x00, 0xff, &zen },
    { false, 0x19, 0x19, 0x10, 0x1f, &zen4 },
    { false, 0x19, 0x19, 0x60, 0xaf, &zen4 },
    { false, 0x19, 0x19, 0x00, 0xff, &zen2 },
    { false, 0x00, 0xff, 0x00, 0xff, &zen4 },
};

const RetireTlbConfig *retire_tlb_config(bool intel, unsigned family,
                                         unsigned model)
{
    int i = 0;

    while (intel != processors[i].intel ||
           family < processors[i].first_family ||
           family > processors[i].last_family ||
           model < processors[i].first_model ||
           model > processors[i].last_model) {
        i++;
    }
    return processors[i].config;
}

bool retire_tlb_valid(RetireTlbKind kind, const RetireGeometry *g)
{
    if (!g->size) {
        return kind != RETIRE_DTLB && kind != RETIRE_ITLB;
    }
    return g->assoc && g->assoc <= RETIRE_TLB_ASSOC_MAX &&
           g->size % g->assoc == 0;
}

static bool array_init(RetireArray *a, uint32_t entries, uint32_t assoc)
{
    *a = (RetireArray) { 0 };
    if (!entries) {
        return true;
    }
    a->assoc = assoc;
    a->nr_sets = entries / assoc;
    a->set_mask = a->nr_sets - 1;
    a->modulus = a->nr_sets & (a->nr_sets - 1) ? a->nr_sets : 0;
    a->full = UINT64_MAX >> (64 - assoc);
    a->entries = calloc(entries, sizeof(*a->entries));
    a->sets = calloc(a->nr_sets, sizeof(*a->sets));
    return a->entries && a->sets;
}

/*
 * Use @entry, and mark it; a filter may have lines of it in @slots from now on.
 * Returns whether it was there.  What a filter may not have any more is added
 * to *@stale.
 */
static bool array_use(const RetireArray *a, RetireSet *set, uint64_t entry,
                      uint64_t slots, uint64_t *stale)
{
    uint64_t *entries = a->entries + (set - a->sets) * a->assoc, bit;
    uint32_t n = 0, empty = a->assoc;

    while (n < a->assoc && entries[n] != entry) {
        empty = entries[n] || empty < n ? empty : n;
        n++;
    }
    if (n == a->assoc) {
        n = empty < n ? empty :
            set->marked == a->full ? 0 :        /* there is only one */
            (uint32_t)__builtin_ctzll(~set->marked);
    }
    bit = 1ull << n;
    if (entries[n] != entry || !(set->marked & bit)) {
        set->marked |= bit;
        if (set->marked == a->full) {
            *stale |= set->slots;
            set->slots = 0;
            set->marked = bit;
        }
    }
    set->slots |= slots;
    if (entries[n] == entry) {
        return true;
    }
    entries[n] = entry;
    return false;
}

/* Which entries array_forget() looks for */
typedef struct Forget {
    bool page;              /* those of the page at @addr, or else all; */
    bool global;            /* or only those that are not global */
    uint64_t addr;
} Forget;

static void array_forget(RetireArray *a, const Forget *what)
{
    for (uint32_t i = 0; i < a->nr_sets * a->assoc; i++) {
        uint64_t entry = a->entries[i];

        if (entry &&
            (what->page ?
             !((entry ^ what->addr) >> (entry & RETIRE_ENTRY_LG_SIZE)) :
             what->global || !(entry & RETIRE_ENTRY_GLOBAL))) {
            a->entries[i] = 0;
            a->sets[i / a->assoc].marked &= ~(1ull << i % a->assoc);
        }
    }
}

static void forget(RetireTlb *t, const Forget *what)
{
    if (!t->used) {
        return;
    }
    for (int i = 0; i < RETIRE_NR_TLBS; i++) {
        array_forget(&t->array[i], what);
    }
    retire_filter_clear(t->filter);
    memset(t->fetched, 0xff, sizeof(t->fetched));
    memset(t->known, 0xff, sizeof(t->known));
    t->last = t->split = RETIRE_NO_FETCH;
    t->page_set = NULL;
}

bool retire_tlb_init(RetireTlb *t, const RetireTlbConfig *config,
                     const RetireGeometry *l1i, RetireFilter *filter)
{
    uint32_t lines = l1i->size / RETIRE_LINE_SIZE;
    bool ok;

    *t = (RetireTlb) {
        .used = true,
        .filter = filter,
        .stlb_lg_max = config->stlb_lg_max,
        .stlb_code = config->stlb_code,
    };
    ok = array_init(&t->l1i, lines, l1i->assoc);
    for (int i = 0; i < RETIRE_NR_TLBS; i++) {
        ok &= array_init(&t->array[i], config->tlb[i].size,
                         config->tlb[i].assoc);
    }
    if (!ok) {
        retire_tlb_free(t);
        return false;
    }
    for (int i = 0; i < 3; i++) {
        const RetireArray *a = &t->array[RETIRE_DTLB + i];

        t->dtlb[i] = !i || a->nr_sets ? a : t->dtlb[i - 1];
    }
    retire_tlb_reset(t);
    return true;
}

static void array_free(RetireArray *a)
{
    free(a->entries);
    free(a->sets);
    *a = (RetireArray) { 0 };
}

void retire_tlb_free(RetireTlb *t)
{
    for (int i = 0; i < RETIRE_NR_TLBS; i++) {
        array_free(&t->array[i]);
    }
    array_free(&t->l1i);
    t->used = false;
}

void retire_tlb_flush(RetireTlb *t, bool global)
{
    forget(t, &(Forget) { .global = global });
    t->used &= !global;
}

void retire_tlb_flush_page(RetireTlb *t, uint64_t addr)
{
    forget(t, &(Forget) { .page = true, .addr = addr });
}

void retire_tlb_reset(RetireTlb *t)
{
    static const Forget all = { .global = true };

    array_forget(&t->l1i, &all);
    t->used = true;
    retire_tlb_flush(t, true);
}

/* Use the page at @addr in @first, or else in @second. */
static RetireTlbResult use_page(RetireTlb *t, const RetireArray *first,
                                RetireTlbKind second, uint64_t addr,
                                RetirePage page, uint64_t slots,
                                uint64_t *stale, RetireSet **set)
{
    uint64_t number = addr >> page.lg_size, unused = 0;
    uint64_t entry = retire_tlb_entry(number, page);
    const RetireArray *l2 = &t->array[second];

    t->used = true;
    *set = retire_tlb_set(first, number);
    if (array_use(first, *set, entry, slots, stale)) {
        return RETIRE_TLB_L1;
    }
    if (!l2->nr_sets || page.lg_size > t->stlb_lg_max) {
        return RETIRE_TLB_WALK;
    }
    return array_use(l2, retire_tlb_set(l2, number), entry, 0, &unused) ?
           RETIRE_TLB_L2 : RETIRE_TLB_WALK;
}

static uint64_t slot_bit(uint64_t line)
{
    return 1ull << line % RETIRE_NR_SLOTS;
}

RetireTlbResult retire_tlb_data(RetireTlb *t, uint64_t addr, RetirePage page)
{
    const RetireArray *first = t->dtlb[(page.lg_size >= LG_2M) +
                                       (page.lg_size >= LG_1G)];
    uint64_t stale = 0;
    RetireSet *set;
    RetireTlbResult result =
        use_page(t, first, RETIRE_STLB, addr, page,
                 slot_bit(addr >> RETIRE_LINE_BITS), &stale, &set);

    retire_filter_forget(t->filter, stale);
    return result;
}

static void forget_fetched(RetireTlb *t, uint64_t slots)
{
    for (; slots; slots &= slots - 1) {
        int n = __builtin_ctzll(slots);

        t->fetched[n].line = t->known[n] = RETIRE_NO_FETCH;
    }
}

void retire_tlb_count_lines(RetireTlb *t, bool lines)
{
    if (t->lines == lines) {
        return;
    }
    t->lines = lines;
    t->last = t->split = RETIRE_NO_FETCH;
    for (int i = 0; i < RETIRE_NR_SLOTS; i++) {
        t->known[i] = lines ? RETIRE_NO_FETCH : t->fetched[i].line;
    }
}

bool retire_fetch_line(RetireTlb *t, uint64_t addr, uint64_t line)
{
    uint64_t stale = 0;
    bool hit;

    t->used = true;
    hit = array_use(&t->l1i, retire_tlb_set(&t->l1i, line),
                    line | RETIRE_ENTRY_LINE, slot_bit(line), &stale);
    forget_fetched(t, stale & ~slot_bit(line));
    t->fetched[line % RETIRE_NR_SLOTS] = (RetireFetched) { addr, line };
    if (retire_fetch_same_page(t, addr)) {
        t->page_set->slots |= slot_bit(line);
    }
    return hit;
}

RetireTlbResult retire_fetch_page(RetireTlb *t, uint64_t addr, uint64_t line,
                                  RetirePage page)
{
    bool large = page.lg_size >= LG_2M && t->array[RETIRE_ITLB_2M].nr_sets;
    bool shared = t->stlb_code && !t->array[RETIRE_ISTLB].nr_sets;
    uint64_t stale = 0, bit = slot_bit(line);
    RetireTlbResult result =
        use_page(t, &t->array[large ? RETIRE_ITLB_2M : RETIRE_ITLB],
                 shared ? RETIRE_STLB : RETIRE_ISTLB, addr, page, bit, &stale,
                 &t->page_set);

    t->page = page;
    t->page_addr = addr;
    forget_fetched(t, stale & ~bit);
    return result;
}
