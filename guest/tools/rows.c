/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counts of records that have something in common: all outputs are made of it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "report.h"

static uint64_t key_comm(const Profile *p, const Entry *e)
{
    return (uintptr_t)p->spaces[e->space].name;
}

static uint64_t key_pid(const Profile *p, const Entry *e)
{
    return p->spaces[e->space].pid;
}

static uint64_t key_tid(const Profile *p, const Entry *e)
{
    return ((const Thread *)table_at(&p->threads, e->thread))->tid;
}

static uint64_t key_thread(const Profile *p, const Entry *e)
{
    const Thread *t = table_at(&p->threads, e->thread);

    return (uintptr_t)(t->kept ? t->kept : p->spaces[e->space].name);
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
    } else if (entry_to(p, e).address == to->start) {
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
    { "comm", "Command", KEY_TEXT, key_comm, ~0u },
    { "pid", "Process", KEY_NUMBER, key_pid, ~0u },
    { "thread", "Name", KEY_TEXT, key_thread, ~0u },
    { "tid", "Thread", KEY_NUMBER, key_tid, ~0u },
    { "cpu", "CPU", KEY_NUMBER, key_cpu, ~0u },
    { "dso", "Object", KEY_PATH, key_dso, ~0u },
    { "symbol", "Function", KEY_FUNCTION, key_symbol, ~0u },
    { "addr", "Address", KEY_HEX, key_addr, ~0u },
    { "inlined", "Inlined", KEY_TEXT, key_inlined, ~0u },
    { "srcline", "Source", KEY_PATH, key_srcline, ~0u },
    { "dso_to", "To object", KEY_PATH, key_dso_to, BRANCHES },
    { "symbol_to", "To function", KEY_FUNCTION, key_symbol_to, BRANCHES },
    { "addr_to", "To address", KEY_HEX, key_addr_to, BRANCHES },
    { "kind", "Kind", KEY_TEXT, key_kind, BRANCHES },
    { "source", "Source", KEY_TEXT, key_source, MISSES },
    { "line", "Data line", KEY_HEX, key_line, MISSES },
    { "sharers", "Threads", KEY_NUMBER, key_sharers, MISSES },
    { "data", "Data", KEY_TEXT, key_data, MISSES },
    { "variable", "Variable", KEY_TEXT, key_variable, MISSES },
    { "data1", "Data1", KEY_HEX, key_data1, VALUES },
    { "data2", "Data2", KEY_HEX, key_line, VALUES },
    { "flags", "Flags", KEY_HEX, key_flags, VALUES },
    { "sym", "Function", KEY_FUNCTION, key_symbol, ~0u },    /* as in perf */
};

bool rows_keys(Rows *rows, const char *list)
{
    rows->nr_keys = 0;
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
    const char *text = (const char *)(uintptr_t)row->id[key], *slash;

    switch (rows->keys[key]->type) {
    case KEY_FUNCTION:
        return ((const Function *)text)->name;
    case KEY_PATH:
        slash = strrchr(text, '/');
        return slash ? slash + 1 : text;
    case KEY_TEXT:
        return text;
    case KEY_NUMBER:
        snprintf(buffer, ROW_TEXT, "%" PRId64, row->id[key]);
        return buffer;
    default:
        snprintf(buffer, ROW_TEXT, "0x%" PRIx64, row->id[key]);
        return buffer;
    }
}

/* The number that decides how rows are sorted by their keys 0..i. */
static uint64_t row_total(const Rows *rows, const Row *row, int i)
{
    return i < rows->nested ? row->total[i] : row->count;
}

static const Rows *sorting;     /* qsort() has no argument for it */

static int compare_rows(const void *a, const void *b)
{
    const Row *x = a, *y = b;

    for (int i = 0; i < sorting->nr_keys; i++) {
        uint64_t m = row_total(sorting, x, i), n = row_total(sorting, y, i);

        if (m != n) {
            return m > n ? -1 : 1;
        }
        if (x->id[i] != y->id[i]) {
            const char *s = (const char *)(uintptr_t)x->id[i];
            const char *t = (const char *)(uintptr_t)y->id[i];
            int order = 0;

            /* what pointers are differs from run to run */
            if (sorting->keys[i]->type == KEY_FUNCTION) {
                const Function *f = (const void *)s, *g = (const void *)t;

                order = strcmp(f->name, g->name);
                if (!order) {
                    order = strcmp(object_path(f->object),
                                   object_path(g->object));
                }
                if (!order) {
                    order = f->start < g->start ? -1 : 1;
                }
            } else if (sorting->keys[i]->type < KEY_FUNCTION) {
                order = strcmp(s, t);
            }
            return order ? order : x->id[i] < y->id[i] ? -1 : 1;
        }
    }
    return 0;
}

typedef struct Total {
    uint64_t id[MAX_KEYS];
    uint64_t count;
} Total;

void rows_fill(Rows *rows, const Profile *p, int event, int nested,
               bool (*filter)(const Profile *p, const Entry *e))
{
    uint64_t last_id[MAX_KEYS];
    size_t last = 0;

    rows->table = (Table)TABLE(Row, count);
    rows->total = 0;
    rows->nested = nested;
    for (size_t i = 0; i < p->entries.count; i++) {
        const Entry *e = table_at(&p->entries, i);
        uint64_t id[MAX_KEYS] = { 0 };
        Row *r;

        if (e->event != event || (filter && !filter(p, e))) {
            continue;
        }
        for (int k = 0; k < rows->nr_keys; k++) {
            id[k] = rows->keys[k]->id(p, e);
        }
        /* Neighbours often have the same. */
        if (!last || memcmp(last_id, id, sizeof(id))) {
            r = table_get(&rows->table, id);
            last = r - (Row *)rows->table.items + 1;
            memcpy(last_id, id, sizeof(id));
        }
        r = table_at(&rows->table, last - 1);
        if (event == LWP_DME) {
            const Latency *l = latency_of(p, e);

            if (!r->count || l->min < r->latency_min) {
                r->latency_min = l->min;
            }
            if (l->max > r->latency_max) {
                r->latency_max = l->max;
            }
            r->latency += l->sum;
        } else if (event == LWP_BRE) {
            r->taken += e->flags & LWP_BRANCH_TKN ? e->count : 0;
            if (e->flags & LWP_BRANCH_PRV) {
                r->known += e->count;
                r->predicted += e->flags & LWP_BRANCH_PRD ? e->count : 0;
            }
        }
        r->count += e->count;
        rows->total += e->count;
    }
    for (int k = 0; k < nested; k++) {
        Table totals = TABLE(Total, count);

        /* first add up, then look up */
        for (size_t i = 0; i < 2 * rows->table.count; i++) {
            Row *r = table_at(&rows->table, i % rows->table.count);
            uint64_t id[MAX_KEYS] = { 0 };
            Total *t;

            memcpy(id, r->id, (k + 1) * sizeof(*id));
            t = table_get(&totals, id);
            if (i < rows->table.count) {
                t->count += r->count;
            } else {
                r->total[k] = t->count;
            }
        }
        table_free(&totals);
    }
    if (rows->table.count) {
        sorting = rows;
        qsort(rows->table.items, rows->table.count, sizeof(Row), compare_rows);
    }
}
