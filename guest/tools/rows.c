/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counts of records that have something in common: all outputs are made of it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "names.h"
#include "report.h"

static uint64_t key_comm(const Profile *p, const Entry *e)
{
    return (uintptr_t)space_of(p, e)->name;
}

static uint64_t key_pid(const Profile *p, const Entry *e)
{
    return space_of(p, e)->pid;
}

static uint64_t key_tid(const Profile *p, const Entry *e)
{
    return thread_of(p, e)->tid;
}

static uint64_t key_thread(const Profile *p, const Entry *e)
{
    const Thread *t = thread_of(p, e);

    return (uintptr_t)(t->kept ? t->kept : space_of(p, e)->name);
}

static uint64_t key_cpu(const Profile *p, const Entry *e)
{
    (void)p;
    return e->core;
}

static uint64_t key_dso(const Profile *p, const Entry *e)
{
    return (uintptr_t)object_path(function_at(p, e->from)->object);
}

static uint64_t key_symbol(const Profile *p, const Entry *e)
{
    return (uintptr_t)function_at(p, e->from);
}

static uint64_t key_addr(const Profile *p, const Entry *e)
{
    return entry_from(p, e).address;
}

static uint64_t key_srcline(const Profile *p, const Entry *e)
{
    Place place = entry_from(p, e);

    return (uintptr_t)place_line(&place);
}

static uint64_t key_inlined(const Profile *p, const Entry *e)
{
    Place place = entry_from(p, e);

    return (uintptr_t)place_inlined(&place);
}

static uint64_t key_dso_to(const Profile *p, const Entry *e)
{
    return (uintptr_t)object_path(function_at(p, e->to)->object);
}

static uint64_t key_symbol_to(const Profile *p, const Entry *e)
{
    return (uintptr_t)function_at(p, e->to);
}

static uint64_t key_addr_to(const Profile *p, const Entry *e)
{
    return entry_to(p, e).address;
}

static uint64_t key_kind(const Profile *p, const Entry *e)
{
    static const char local[] = "local", jump[] = "jump", call[] = "call",
                      returns[] = "return";
    const Function *from = function_at(p, e->from);
    const Function *to = function_at(p, e->to);
    const char *kind = from == to ? local : returns;

    if (!(e->flags & LWP_BRANCH_TKN)) {
        kind = local;
    } else if (!to->size) {
        kind = from == to ? local : jump;
    } else if (e->flags & ENTRY_START) {
        kind = call;
    }
    return (uintptr_t)kind;
}

static uint64_t key_source(const Profile *p, const Entry *e)
{
    (void)p;
    return (uintptr_t)miss_source(e->flags);
}

static uint64_t key_line(const Profile *p, const Entry *e)
{
    (void)p;
    return e->data;
}

static uint64_t key_sharers(const Profile *p, const Entry *e)
{
    return profile_sharers(p, e);
}

static uint64_t key_data(const Profile *p, const Entry *e)
{
    const Place to = entry_to(p, e);
    const Function *f = to.function;
    const char *result = f->name;
    char *text;

    if (e->event == LWP_DME && !(e->flags & LWP_MISS_DAV)) {
        return (uintptr_t)keep_text("?");
    }
    /* a variable may start within the line */
    if (!f->size) {
        f = object_function((Object *)f->object, to.address | 63);
        result = f->size ? f->name : result;
    } else if (to.address > f->start &&
               asprintf(&text, "%s+0x%" PRIx64, f->name,
                        to.address - f->start) > 0) {
        result = keep_text(text);
        free(text);
    }
    return (uintptr_t)result;
}

/* Memory without a name is one thing. */
static uint64_t key_variable(const Profile *p, const Entry *e)
{
    const Function *f = function_at(p, e->to);
    const char *text;

    if (e->event == LWP_DME && !(e->flags & LWP_MISS_DAV)) {
        return (uintptr_t)keep_text("?");
    }
    if (!f->size) {
        text = strrchr(object_path(f->object), '/');
        return (uintptr_t)(text ? text + 1 : object_path(f->object));
    }
    return (uintptr_t)f->name;
}

static uint64_t key_data1(const Profile *p, const Entry *e)
{
    (void)p;
    return e->data1;
}

static uint64_t key_flags(const Profile *p, const Entry *e)
{
    (void)p;
    return e->flags;
}

enum {
    BRANCHES = LWP_FLAG(LWP_BRE),
    MISSES = LWP_FLAG(LWP_DME),
};
#define VALUES  (LWP_FLAG(LWP_VAL) | LWP_FLAG_INT)

static const Key keys[] = {
    { "comm", "Command", KEY_TEXT, key_comm, ~0u, false },
    { "pid", "Process", KEY_NUMBER, key_pid, ~0u, false },
    { "thread", "Name", KEY_TEXT, key_thread, ~0u, false },
    { "tid", "Thread", KEY_NUMBER, key_tid, ~0u, false },
    { "cpu", "CPU", KEY_NUMBER, key_cpu, ~0u, false },
    { "dso", "Object", KEY_PATH, key_dso, ~0u, false },
    { "symbol", "Function", KEY_FUNCTION, key_symbol, ~0u, false },
    { "addr", "Address", KEY_HEX, key_addr, ~0u, true },
    { "inlined", "Inlined", KEY_TEXT, key_inlined, ~0u, true },
    { "srcline", "Source", KEY_PATH, key_srcline, ~0u, true },
    { "dso_to", "To object", KEY_PATH, key_dso_to, BRANCHES, false },
    { "symbol_to", "To function", KEY_FUNCTION, key_symbol_to, BRANCHES,
      false },
    { "addr_to", "To address", KEY_HEX, key_addr_to, BRANCHES, true },
    { "kind", "Kind", KEY_TEXT, key_kind, BRANCHES, false },
    { "source", "Source", KEY_TEXT, key_source, MISSES, false },
    { "line", "Data line", KEY_HEX, key_line, MISSES, true },
    { "sharers", "Threads", KEY_NUMBER, key_sharers, MISSES, true },
    { "data", "Data", KEY_TEXT, key_data, MISSES, true },
    { "variable", "Variable", KEY_TEXT, key_variable, MISSES, false },
    { "data1", "Data1", KEY_HEX, key_data1, VALUES, true },
    { "data2", "Data2", KEY_HEX, key_line, VALUES, true },
    { "flags", "Flags", KEY_HEX, key_flags, VALUES, false },
    /* as in perf */
    { "sym", "Function", KEY_FUNCTION, key_symbol, ~0u, false },
};

bool rows_keys(Rows *rows, const char *list)
{
    *rows = (Rows) { 0 };
    while (*list) {
        size_t n = strcspn(list, ",");
        const Key *found = NULL;

        for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && !found; i++) {
            if (!strncmp(keys[i].name, list, n) && !keys[i].name[n]) {
                found = &keys[i];
            }
        }
        if (!found) {
            fprintf(stderr, "lwp: there is no sort key \"%.*s\"\n", (int)n,
                    list);
            return false;
        }
        if (rows->nr_keys == MAX_KEYS) {
            fprintf(stderr, "lwp: %d sort keys at most\n", MAX_KEYS);
            return false;
        }
        rows->keys[rows->nr_keys++] = found;
        list += n + (list[n] == ',');
    }
    return true;
}

bool rows_are_for(const Rows *rows, int event)
{
    for (int k = 0; k < rows->nr_keys; k++) {
        if (rows->keys[k]->events != ~0u &&
            !(rows->keys[k]->events & event_bit(event))) {
            return false;
        }
    }
    return true;
}

const char *row_text(const Rows *rows, const Row *row, int key, char *buffer)
{
    uint64_t id = row_id(rows, row, key);
    const char *text = (const char *)(uintptr_t)id, *slash;

    switch (rows->keys[key]->type) {
    case KEY_FUNCTION:
        return ((const Function *)text)->name;
    case KEY_PATH:
        slash = strrchr(text, '/');
        return slash ? slash + 1 : text;
    case KEY_TEXT:
        return text;
    case KEY_NUMBER:
        snprintf(buffer, ROW_TEXT, "%" PRId64, id);
        return buffer;
    default:
        snprintf(buffer, ROW_TEXT, "0x%" PRIx64, id);
        return buffer;
    }
}

const char *row_name(const Rows *rows, const Row *row, int key, char *buffer)
{
    const char *text = row_text(rows, row, key, buffer);

    return rows->keys[key]->type == KEY_FUNCTION ||
           rows->keys[key]->type == KEY_TEXT ? name_shown(text) : text;
}

/* Of a key; what pointers are differs from run to run. */
static int compare_ids(const Rows *rows, int k, uint64_t x, uint64_t y)
{
    const void *s = (const void *)(uintptr_t)x;
    const void *t = (const void *)(uintptr_t)y;
    int order = 0;

    if (x == y || rows->id[k] != rows->keys[k]->id) {
        return 0;
    }
    if (rows->keys[k]->type == KEY_FUNCTION) {
        const Function *f = s, *g = t;

        order = strcmp(f->name, g->name);
        if (!order) {
            order = strcmp(object_path(f->object), object_path(g->object));
        }
        if (!order) {
            order = f->start < g->start ? -1 : 1;
        }
    } else if (rows->keys[k]->type < KEY_FUNCTION) {
        order = strcmp(s, t);
    }
    return order ? order : x < y ? -1 : 1;
}

/* Most records first. */
static int compare_rows(const void *a, const void *b, void *opaque)
{
    const Row *x = a, *y = b;
    const Rows *rows = opaque;
    int order = 0;

    if (x->group != y->group) {
        return x->group < y->group ? -1 : 1;
    }
    if (x->count != y->count) {
        return x->count > y->count ? -1 : 1;
    }
    for (int k = 0; k < rows->nr_keys && !order; k++) {
        order = compare_ids(rows, k, x->id[k], y->id[k]);
    }
    return order ? order : x->entry < y->entry ? -1 : x->entry > y->entry;
}

static void sort(Rows *rows)
{
    if (rows->count) {
        qsort_r(rows->rows, rows->count, sizeof(Row), compare_rows, rows);
    }
}

/* What the other keys tell is not looked up for each record. */
static uint64_t key_told(const Profile *p, const Entry *e)
{
    (void)p;
    (void)e;
    return 0;
}

static uint64_t key_told_but_function(const Profile *p, const Entry *e)
{
    return e->flags & LWP_MISS_DAV ? key_symbol_to(p, e) : 0;
}

static bool has_key(const Rows *rows,
                    uint64_t (*id)(const Profile *p, const Entry *e))
{
    for (int k = 0; k < rows->nr_keys; k++) {
        if (rows->keys[k]->id == id) {
            return true;
        }
    }
    return false;
}

static void find_told(Rows *rows)
{
    bool code = has_key(rows, key_symbol) && has_key(rows, key_addr);
    bool data = has_key(rows, key_pid) && has_key(rows, key_line);

    for (int k = 0; k < rows->nr_keys; k++) {
        uint64_t (*id)(const Profile *p, const Entry *e) = rows->keys[k]->id;

        rows->id[k] =
            code && (id == key_srcline || id == key_inlined) ? key_told :
            data && id == key_sharers ? key_told :
            data && id == key_data ? key_told_but_function : id;
    }
}

uint64_t row_id(const Rows *rows, const Row *row, int key)
{
    return rows->id[key] == rows->keys[key]->id ? row->id[key] :
           rows->keys[key]->id(rows->profile,
                               table_at(rows->entries, row->entry));
}

/* Those of the keys from FROM to TO - 1. */
static void get_ids(const Rows *rows, const Entry *e, uint64_t *id, int from,
                    int to)
{
    for (int k = from; k < to; k++) {
        id[k] = rows->id[k](rows->profile, e);
    }
}

static void add_entry(const Rows *rows, Row *r, const Entry *e, uint32_t group)
{
    if (!r->count) {
        r->entry = e - (const Entry *)rows->entries->items;
        r->group = group;
    }
    if (e->event == LWP_DME) {
        Latency l = latency_of(rows->profile, e);

        if (!r->count || l.min < r->latency_min) {
            r->latency_min = l.min;
        }
        if (l.max > r->latency_max) {
            r->latency_max = l.max;
        }
        r->latency += l.sum;
    } else if (e->event == LWP_BRE) {
        r->taken += e->flags & LWP_BRANCH_TKN ? e->count : 0;
        if (e->flags & LWP_BRANCH_PRV) {
            r->known += e->count;
            r->predicted += e->flags & LWP_BRANCH_PRD ? e->count : 0;
        }
    }
    r->count += e->count;
}

/* Whether a row of so many records may be among the first TOP of all. */
static bool is_wanted(const Rows *rows, uint64_t count)
{
    return 100.0 * count >= rows->limit * rows->total &&
           !(rows->cut && count < rows->rows[rows->top - 1].count);
}

static void keep(Rows *rows, const Row *r)
{
    if (!is_wanted(rows, r->count) ||
        (rows->cut && compare_rows(r, &rows->rows[rows->top - 1], rows) > 0)) {
        return;
    }
    rows->rows = grow(rows->rows, rows->count, sizeof(*r));
    rows->rows[rows->count++] = *r;
    if (rows->top < SIZE_MAX / 2 && rows->count >= 2 * rows->top + 1000) {
        sort(rows);
        rows->count = rows->top;
        rows->cut = true;
    }
}

static void keep_all(Rows *rows, Table *t)
{
    rows->all += t->count;
    for (size_t i = 0; i < t->count; i++) {
        keep(rows, table_at(t, i));
    }
    table_free(t);
}

typedef struct Group {
    uint64_t id[MAX_KEYS];
    uint32_t number;        /* index of the row + 1 */
} Group;

/* 0: it is not there. */
static uint32_t group_of(const Table *groups, const uint64_t *id)
{
    const Group *g = table_find(groups, id);

    return g ? g->number : 0;
}

/* A row of but one entry; of many as good as the last, few come before it. */
static void keep_alone(Rows *rows, const Table *groups, const Entry *e)
{
    const Row *last = rows->cut ? &rows->rows[rows->top - 1] : NULL;
    Row r = { .count = 0 };
    int order = 0;

    if (!is_wanted(rows, e->count)) {
        return;
    }
    for (int k = 0; k < rows->nr_keys; k++) {
        get_ids(rows, e, r.id, k, k + 1);
        if (last && last->count == e->count && !order) {
            order = compare_ids(rows, k, r.id[k], last->id[k]);
            if (order > 0) {
                return;
            }
        }
    }
    add_entry(rows, &r, e, group_of(groups, r.id));
    keep(rows, &r);
}

enum { FEW = 1 << 12 };     /* rows that are counted at once */

/*
 * What is of none of the first rows, of SLOTS with the hash of its keys.  There
 * may be millions of rows, of which a few are wanted: those of one hash are
 * added up after the other; an entry that is a row of its own is only marked.
 */
static void fill_others(Rows *rows, const Table *groups,
                        const TableSlot *slots, size_t n, uint8_t *alone)
{
    const Table *entries = rows->entries;
    Table table = {
        .item_size = sizeof(Row), .key_size = rows->nr_keys * sizeof(uint64_t),
    };
    uint64_t id[MAX_KEYS];
    size_t next;

    for (size_t i = 0; i < n; i = next) {
        next = i + 1;
        while (next < n && slots[next].hash == slots[i].hash) {
            next++;
        }
        if (next == i + 1) {
            alone[slots[i].item] = 1;
            continue;
        }
        for (size_t k = i; k < next; k++) {
            const Entry *e = table_at(entries, slots[k].item);

            get_ids(rows, e, id, 0, rows->nr_keys);
            add_entry(rows, table_get(&table, id), e, group_of(groups, id));
        }
        if (table.count >= FEW) {
            keep_all(rows, &table);
        }
    }
    keep_all(rows, &table);
}

static void fill(Rows *rows, int event, const Rows *outer,
                 bool (*filter)(const Profile *p, const Entry *e))
{
    const Profile *p = rows->profile;
    size_t size = rows->nr_keys * sizeof(uint64_t);
    int nr_outer = outer ? outer->nr_keys : 0;
    Table table = { .item_size = sizeof(Row), .key_size = size };
    Table groups = {
        .item_size = sizeof(Group), .key_size = nr_outer * sizeof(uint64_t),
    };
    const bool lines = p->alone && has_key(rows, key_pid) &&
                       has_key(rows, key_line);
    size_t n, others = 0;
    TableSlot *slots = NULL;
    uint64_t id[MAX_KEYS];
    uint32_t group, hash;
    uint8_t *alone;
    Row *r;

    find_told(rows);
    rows->entries = &p->parts;
    for (int k = 0; k < rows->nr_keys; k++) {
        if (rows->keys[k]->place) {
            rows->entries = &p->entries;
        }
    }
    n = rows->entries->count;
    alone = zeroed(n, 1);
    for (size_t i = 0; outer && i < outer->count; i++) {
        ((Group *)table_get(&groups, outer->rows[i].id))->number = i + 1;
    }
    for (size_t i = 0; i < n; i++) {
        const Entry *e = table_at(rows->entries, i);

        if (e->event != event || (filter && !filter(p, e))) {
            continue;
        }
        get_ids(rows, e, id, 0, nr_outer);
        group = outer ? group_of(&groups, id) : 0;
        if (outer && !group) {
            continue;
        }
        rows->total += e->count;
        if (lines && p->alone[i]) {
            alone[i] = 1;
            continue;
        }
        get_ids(rows, e, id, nr_outer, rows->nr_keys);
        hash = table_hash(id, size);
        r = table.count < FEW ? table_get_hashed(&table, id, hash) :
                                table_find_hashed(&table, id, hash);
        if (r) {
            add_entry(rows, r, e, group);
        } else {
            slots = slots ? slots : zeroed(n, sizeof(*slots));
            slots[others++] = (TableSlot) { hash, i };
        }
    }
    keep_all(rows, &table);
    if (others) {
        slots = sort_by_hash(slots, others);
        fill_others(rows, &groups, slots, others, alone);
    }
    for (size_t i = 0; i < n; i++) {
        if (alone[i]) {
            rows->all++;
            keep_alone(rows, &groups, table_at(rows->entries, i));
        }
    }
    free(alone);
    free(slots);
    table_free(&groups);
    sort(rows);
    rows->count = rows->count < rows->top ? rows->count : rows->top;
}

void rows_fill(Rows *rows, const Profile *p, int event,
               bool (*filter)(const Profile *p, const Entry *e), double limit,
               size_t top)
{
    rows->profile = p;
    rows->limit = limit;
    rows->top = top;
    fill(rows, event, NULL, filter);
}

void rows_fill_inner(Rows *rows, const Rows *outer, int event,
                     bool (*filter)(const Profile *p, const Entry *e))
{
    rows->profile = outer->profile;
    rows->top = SIZE_MAX;
    fill(rows, event, outer, filter);
    rows->total = outer->total;
}

void rows_free(Rows *rows)
{
    free(rows->rows);
    rows->rows = NULL;
}
