/* SPDX-License-Identifier: GPL-2.0-or-later */
/* TLBs and the instruction cache: see tlb.h. */

#include <stdlib.h>
#include <string.h>
#include "tlb.h"

#define LG_4K           12
#define LG_2M           21
#define LG_1G           30

/*
 * What there is, by Intel's and AMD's optimization manuals: entries and ways of
 * DTLB, DTLB_2M, DTLB_1G, ITLB, ITLB_2M, STLB and ISTLB, and the rest.  Not
 * modelled are first levels that only loads have, and second levels that keep
 * one size apart.
 */
static const RetireTlbConfig
    p6 = { { { 64, 4 }, { 8, 4 }, { 0 }, { 32, 4 }, { 2, 2 } }, 0, false },
    pentium_m = { { { 128, 4 }, { 8, 4 }, { 0 }, { 128, 4 }, { 2, 2 } },
                  0, false },
    core2 = { { { 16, 4 }, { 16, 4 }, { 0 }, { 128, 4 }, { 8, 4 },
                { 256, 4 } }, LG_4K, false },
    nehalem = { { { 64, 4 }, { 32, 4 }, { 0 }, { 128, 4 }, { 7, 7 },
                  { 512, 4 } }, LG_4K, true },
    sandy_bridge = { { { 64, 4 }, { 32, 4 }, { 4, 4 }, { 128, 4 }, { 8, 8 },
                       { 512, 4 } }, LG_4K, true },
    haswell = { { { 64, 4 }, { 32, 4 }, { 4, 4 }, { 128, 4 }, { 8, 8 },
                  { 1024, 8 } }, LG_1G - 1, true },
    broadwell = { { { 64, 4 }, { 32, 4 }, { 4, 4 }, { 128, 4 }, { 8, 8 },
                    { 1536, 6 } }, LG_1G, true },
    skylake = { { { 64, 4 }, { 32, 4 }, { 4, 4 }, { 128, 8 }, { 8, 8 },
                  { 1536, 12 } }, LG_1G, true },
    ice_lake = { { { 64, 4 }, { 32, 4 }, { 8, 8 }, { 128, 8 }, { 16, 8 },
                   { 2048, 16 } }, LG_1G, true },
    golden_cove = { { { 96, 6 }, { 32, 4 }, { 8, 8 }, { 256, 8 }, { 32, 8 },
                      { 2048, 16 } }, LG_1G, true },
    bonnell = { { { 16, 16 }, { 8, 4 }, { 0 }, { 32, 32 }, { 0 }, { 64, 4 } },
                LG_4K, false },
    silvermont = { { { 48, 48 }, { 0 }, { 0 }, { 48, 48 }, { 0 }, { 128, 4 } },
                   LG_1G - 1, false },
    goldmont = { { { 32, 32 }, { 0 }, { 0 }, { 48, 48 }, { 0 }, { 512, 4 } },
                 LG_4K, true },
    tremont = { { { 32, 32 }, { 0 }, { 0 }, { 48, 48 }, { 0 }, { 1024, 4 } },
                LG_1G - 1, true },
    k8 = { { { 32, 32 }, { 8, 8 }, { 0 }, { 32, 32 }, { 8, 8 },
             { 512, 4 }, { 512, 4 } }, LG_4K, false },
    family_10h = { { { 48, 48 }, { 0 }, { 0 }, { 32, 32 }, { 16, 16 },
                     { 512, 4 }, { 512, 4 } }, LG_1G - 1, false },
    family_15h = { { { 64, 64 }, { 0 }, { 0 }, { 48, 48 }, { 24, 24 },
                     { 1024, 8 }, { 512, 4 } }, LG_1G, false },
    zen = { { { 64, 64 }, { 0 }, { 0 }, { 64, 64 }, { 0 },
              { 1536, 12 }, { 512, 8 } }, LG_1G - 1, false },
    zen2 = { { { 64, 64 }, { 0 }, { 0 }, { 64, 64 }, { 0 },
               { 2048, 16 }, { 1024, 8 } }, LG_1G - 1, false },
    /* 72 entries of one set are more than can be marked. */
    zen4 = { { { 72, 36 }, { 0 }, { 0 }, { 64, 64 }, { 0 },
               { 3072, 24 }, { 512, 8 } }, LG_1G - 1, false };

/*
 * Intel's family 6, by model, as Linux' intel-family.h names their cores; what
 * is not here is as Skylake.
 */
static const RetireTlbConfig *const family_6[256] = {
    [0x00 ... 0x08] = &p6, [0x0a ... 0x0c] = &p6,
    [0x09] = &pentium_m, [0x0d ... 0x0e] = &pentium_m,
    [0x0f] = &core2, [0x16 ... 0x17] = &core2, [0x1d] = &core2,
    [0x1a ... 0x1b] = &nehalem, [0x1e ... 0x1f] = &nehalem, [0x25] = &nehalem,
    [0x2c] = &nehalem, [0x2e ... 0x2f] = &nehalem,
    [0x2a ... 0x2b] = &sandy_bridge, [0x2d] = &sandy_bridge,
    [0x3a] = &sandy_bridge, [0x3e] = &sandy_bridge,
    [0x3c] = &haswell, [0x3f] = &haswell, [0x45 ... 0x46] = &haswell,
    [0x3d] = &broadwell, [0x47] = &broadwell, [0x4f] = &broadwell,
    [0x56] = &broadwell,
    [0x6a ... 0x6c] = &ice_lake, [0x7d ... 0x7e] = &ice_lake,
    [0x8c ... 0x8d] = &ice_lake, [0x9d] = &ice_lake, [0xa7] = &ice_lake,
    [0x8f] = &golden_cove, [0xad ... 0xae] = &golden_cove,
    [0xcf] = &golden_cove,
    [0x1c] = &bonnell, [0x26 ... 0x27] = &bonnell, [0x35 ... 0x36] = &bonnell,
    [0x37] = &silvermont, [0x4a] = &silvermont, [0x4c ... 0x4d] = &silvermont,
    [0x57] = &silvermont, [0x5a] = &silvermont, [0x5d] = &silvermont,
    [0x75] = &silvermont, [0x85] = &silvermont,
    [0x5c] = &goldmont, [0x5f] = &goldmont, [0x7a] = &goldmont,
    [0x86] = &tremont, [0x8a] = &tremont, [0x96] = &tremont, [0x9c] = &tremont,
    [0xaf] = &tremont,
};

/* AMD's: the first row that fits counts; what is newer is as Zen 4. */
static const struct {
    uint8_t first_family, last_family, first_model, last_model;
    const RetireTlbConfig *config;
} amd[] = {
    { 0x00, 0x0f, 0x00, 0xff, &k8 },
    { 0x15, 0x15, 0x00, 0xff, &family_15h },
    { 0x10, 0x16, 0x00, 0xff, &family_10h },
    { 0x17, 0x17, 0x30, 0x4f, &zen2 },
    { 0x17, 0x17, 0x60, 0xff, &zen2 },
    { 0x17, 0x18, 0x00, 0xff, &zen },
    { 0x19, 0x19, 0x10, 0x1f, &zen4 },
    { 0x19, 0x19, 0x60, 0xaf, &zen4 },
    { 0x19, 0x19, 0x00, 0xff, &zen2 },
};

const RetireTlbConfig *retire_tlb_config(bool intel, unsigned family,
                                         unsigned model)
{
    if (intel) {
        return family < 6 ? &p6 :
               family == 6 && family_6[model] ? family_6[model] : &skylake;
    }
    for (unsigned i = 0; i < sizeof(amd) / sizeof(amd[0]); i++) {
        if (family >= amd[i].first_family && family <= amd[i].last_family &&
            model >= amd[i].first_model && model <= amd[i].last_model) {
            return amd[i].config;
        }
    }
    return &zen4;
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
    bool ok = retire_ways_init(&a->entries, entries, assoc);

    a->full = entries ? UINT64_MAX >> (64 - assoc) : 0;
    a->sets = entries ? calloc(entries / assoc, sizeof(*a->sets)) : NULL;
    return ok && (a->sets || !entries);
}

/*
 * Use @entry, and mark it; a filter may have lines of it in @slots from now on.
 * Returns whether it was there.  What a filter may not have any more is added
 * to *@stale.
 */
static bool array_use(const RetireArray *a, RetireSet *set, uint64_t entry,
                      uint64_t slots, uint64_t *stale)
{
    uint64_t *entries = retire_tlb_entries(a, set), bit;
    uint32_t n = 0, assoc = a->entries.assoc, empty = assoc;

    while (n < assoc && entries[n] != entry) {
        empty = entries[n] || empty < n ? empty : n;
        n++;
    }
    if (n == assoc) {
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
    uint32_t assoc = a->entries.assoc;

    for (uint32_t i = 0; i < (a->entries.set_mask + 1) * assoc; i++) {
        uint64_t entry = a->entries.ways[i];

        if (entry &&
            (what->page ?
             !((entry ^ what->addr) >> (entry & RETIRE_ENTRY_LG_SIZE)) :
             what->global || !(entry & RETIRE_ENTRY_GLOBAL))) {
            a->entries.ways[i] = 0;
            a->sets[i / assoc].marked &= ~(1ull << i % assoc);
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

        t->dtlb[i] = !i || a->sets ? a : t->dtlb[i - 1];
    }
    retire_tlb_reset(t);
    return true;
}

static void array_free(RetireArray *a)
{
    free(a->entries.ways);
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
    if (!l2->sets || page.lg_size > t->stlb_lg_max) {
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
    if (t->code) {
        retire_filter_forget(t->filter, slot_bit(line));
    }
    t->fetched[line % RETIRE_NR_SLOTS] = (RetireFetched) { addr, line };
    if (retire_fetch_same_page(t, addr)) {
        t->page_set->slots |= slot_bit(line);
    }
    return hit;
}

bool retire_code_store(RetireTlb *t, uint64_t line)
{
    RetireSet *set = retire_tlb_set(&t->l1i, line);
    uint64_t *entries = retire_tlb_entries(&t->l1i, set);

    for (uint32_t n = 0; n < t->l1i.entries.assoc; n++) {
        if (entries[n] == (line | RETIRE_ENTRY_LINE)) {
            if (line == t->last) {
                retire_filter_forget(t->filter, slot_bit(line));
            } else {
                entries[n] = 0;
                set->marked &= ~(1ull << n);
                forget_fetched(t, slot_bit(line));
            }
            return true;
        }
    }
    return false;
}

RetireTlbResult retire_fetch_page(RetireTlb *t, uint64_t addr, uint64_t line,
                                  RetirePage page)
{
    bool large = page.lg_size >= LG_2M && t->array[RETIRE_ITLB_2M].sets;
    bool shared = t->stlb_code && !t->array[RETIRE_ISTLB].sets;
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
