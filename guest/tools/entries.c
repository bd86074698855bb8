/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The records of a profile, counted by what they have in common.
 */
#include <stdlib.h>
#include "profile.h"
#include "terminal.h"

Place entry_from(const Profile *p, const Entry *e)
{
    Place place = { .space = owner_of(p, e)->space, .ip = e->ip };

    place_object(p, &place);
    place.function = function_at(p, e->from);
    return place;
}

static bool has_line(const Entry *e)
{
    return e->event == LWP_DME && e->flags & LWP_MISS_DAV;
}

static bool has_address(const Entry *e)
{
    return e->event == LWP_BRE || has_line(e);
}

Place entry_to(const Profile *p, const Entry *e)
{
    Place place = { .space = owner_of(p, e)->space, .ip = e->data };

    if (!has_address(e)) {
        return entry_from(p, e);
    }
    place_object(p, &place);
    place.function = function_at(p, e->to);
    return place;
}

/* While its table has an index: number of its Latency, or the only one. */
static uint32_t *latency_number(Entry *e)
{
    return &e->to;
}

/* More records. */
static void add_count(Profile *p, Entry *e, uint32_t count, Latency latency)
{
    uint32_t *number = latency_number(e);
    Latency *l;

    if (e->event == LWP_DME && e->count + count == 1) {
        *number = latency.sum;
    } else if (e->event == LWP_DME) {
        if (e->count <= 1) {
            p->latencies = grow(p->latencies, p->nr_latencies, sizeof(*l));
            p->latencies[p->nr_latencies] =
                e->count ? (Latency) { *number, *number, *number } : latency;
            *number = p->nr_latencies++;
        }
        l = &p->latencies[*number];
        l->sum += e->count ? latency.sum : 0;
        l->min = latency.min < l->min ? latency.min : l->min;
        l->max = latency.max > l->max ? latency.max : l->max;
    }
    e->count += count;
}

/* The number of the place's function. */
static uint32_t number_of(Profile *p, const Place *place)
{
    Function *f = (Function *)place->function;

    if (!f->number) {
        p->functions = grow(p->functions, p->nr_functions,
                            sizeof(*p->functions));
        p->functions[p->nr_functions++] = f;
        f->number = p->nr_functions;
    }
    return f->number - 1;
}

/* What makes a record one of an entry; the rest of the key is there. */
static void set_key(Entry *key, const LwpRecord *r)
{
    key->event = r->event;
    key->core = r->core;
    key->ip = r->ip;
    key->data = key->data1 = key->flags = 0;
    switch (r->event) {
    case LWP_VAL:
    case LWP_INS:
        key->data = r->data2;
        key->data1 = r->data1;
        key->flags = r->flags;
        break;
    case LWP_BRE:
        key->data = r->data2;
        key->flags = r->flags & (LWP_BRANCH_FUS | LWP_BRANCH_PRV |
                                 LWP_BRANCH_PRD | LWP_BRANCH_TKN);
        break;
    case LWP_DME:
        key->flags = r->flags & (LWP_MISS_DAV | 7u << 13);
        key->data = r->flags & LWP_MISS_DAV ? r->data2 & ~63ull : 0;
        break;
    }
}

enum { AHEAD = 16 };        /* records whose entries are fetched at once */

static void add_records(Profile *p, const ProfileOptions *options,
                        const DataThread *head, size_t size)
{
    const LwpRecord *r = (const LwpRecord *)(head + 1);
    const LwpRecord *end = r + (size - sizeof(*head)) / sizeof(*r);
    Owner owner = {
        profile_space(p, head->pid),
        profile_thread(p, head->pid, head->tid) - (Thread *)p->threads.items,
    };
    uint32_t number = (Owner *)table_get(&p->owners, &owner) -
                      (Owner *)p->owners.items;
    uint32_t hash[AHEAD], latency[AHEAD];
    Entry key[AHEAD];

    while (r < end) {
        int n = 0;

        for (; r < end && n < AHEAD; r++) {
            if (event_wanted(options, r->event)) {
                key[n] = (Entry) { .owner = number };
                set_key(&key[n], r);
                hash[n] = table_hash(&key[n], p->entries.key_size);
                table_prefetch(&p->entries, hash[n]);
                latency[n++] = r->data1;
            }
        }
        for (int i = 0; i < n; i++) {
            add_count(p, table_get_hashed(&p->entries, &key[i], hash[i]), 1,
                      (Latency) { latency[i], latency[i], latency[i] });
        }
    }
}

static void line_key(const Profile *p, const Entry *e, uint64_t *key)
{
    key[0] = space_of(p, e)->pid;
    key[1] = e->data;
}

static void count_sharer(Profile *p, const Entry *e)
{
    uint32_t thread = owner_of(p, e)->thread;
    uint64_t key[3];
    Line *line;
    Pair *pair;

    line_key(p, e, key);
    key[2] = thread;
    line = table_get(&p->lines, key);
    if (!line->threads) {
        line->threads = 1;
        line->first = thread;
    } else if (line->first != thread) {
        pair = table_get(&p->pairs, key);
        line->threads += !pair->seen;
        pair->seen = 1;
    }
}

/* Those of N entries whose line has records of several threads are told so. */
static void mark_shared(Profile *p, const TableSlot *slots, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        count_sharer(p, table_at(&p->entries, slots[i].item));
    }
    for (size_t i = 0; i < n; i++) {
        Entry *e = table_at(&p->entries, slots[i].item);
        uint64_t key[2];

        line_key(p, e, key);
        if (((const Line *)table_find(&p->lines, key))->threads > 1) {
            e->flags |= ENTRY_SHARED;
        }
    }
}

/* Of millions of lines, few are shared: look at those of the same hash. */
static void count_sharers(Profile *p)
{
    TableSlot *slots = zeroed(p->entries.count, sizeof(*slots));
    size_t n = 0, next;

    for (size_t i = 0; i < p->entries.count; i++) {
        const Entry *e = table_at(&p->entries, i);
        uint64_t key[2];

        if (has_line(e)) {
            line_key(p, e, key);
            slots[n++] = (TableSlot) { table_hash(key, sizeof(key)), i };
        }
    }
    slots = sort_by_hash(slots, n);
    p->alone = zeroed(p->entries.count, 1);
    for (size_t i = 0; i < n; i = next) {
        const Entry *e = table_at(&p->entries, slots[i].item);
        bool several = false;

        for (next = i + 1; next < n && slots[next].hash == slots[i].hash;
             next++) {
            several |= thread_of(p, e) !=
                       thread_of(p, table_at(&p->entries, slots[next].item));
        }
        p->alone[slots[i].item] = next == i + 1;
        if (several) {
            mark_shared(p, slots + i, next - i);
        }
    }
    free(slots);
}

unsigned profile_sharers(const Profile *p, const Entry *e)
{
    uint64_t key[2];

    if (!(e->flags & ENTRY_SHARED)) {
        return has_line(e);
    }
    line_key(p, e, key);
    return ((const Line *)table_find(&p->lines, key))->threads;
}

/* Most tables are made of the parts, as these are few. */
static void find_functions(Profile *p)
{
    for (size_t i = 0; i < p->entries.count; i++) {
        Entry *e = table_at(&p->entries, i);
        uint32_t space = owner_of(p, e)->space;
        Place place = profile_place(p, space, e->ip);
        Entry key;

        if (e->event == LWP_DME) {
            e->data1 = *latency_number(e);
        }
        e->from = e->to = number_of(p, &place);
        if (has_address(e)) {
            place = profile_place(p, space, e->data);
            e->to = number_of(p, &place);
        }
        if (e->event == LWP_BRE && place.function->size &&
            place.address == place.function->start) {
            e->flags |= ENTRY_START;
        }
        key = (Entry) {
            .ip = e->from, .data = e->to, .owner = e->owner,
            .flags = e->flags, .event = e->event, .core = e->core,
        };
        add_count(p, table_get(&p->parts, &key), e->count,
                  e->event == LWP_DME ? latency_of(p, e) : (Latency) { 0 });
    }
    table_close(&p->parts);
    for (size_t i = 0; i < p->parts.count; i++) {
        Entry *part = table_at(&p->parts, i);

        part->data1 = *latency_number(part);
        part->from = part->ip;
        part->to = part->data;
    }
}

bool profile_load(Profile *p, const ProfileOptions *options)
{
    const void *chunk;
    uint32_t type;
    size_t size;

    if (!profile_open(p, options)) {
        return false;
    }
    while ((chunk = profile_next(p, &type, &size))) {
        if (type == DATA_RECORDS && size >= sizeof(DataThread) &&
            time_wanted(p, options)) {
            add_records(p, options, chunk, size);
            if (p->chunk % 64 == 0) {
                terminal_progress(data_part(p->reader));
            }
        }
    }
    table_close(&p->entries);
    if (p->records[LWP_DME]) {
        count_sharers(p);
    }
    find_functions(p);
    terminal_progress(1);
    return true;
}
