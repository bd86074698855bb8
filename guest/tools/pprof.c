/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lwp script --pprof: a profile in the form that pprof reads (profile.proto of
 * github.com/google/pprof, compressed by gzip).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "pprof.h"

/* A message, or part of one, in the encoding of protocol buffers. */
typedef struct Message {
    uint8_t *data;
    size_t size, room;
} Message;

static void put(Message *m, const void *data, size_t size)
{
    while (m->size + size > m->room) {
        m->room = m->room ? 2 * m->room : 256;
        m->data = realloc(m->data, m->room);
        if (!m->data) {
            fprintf(stderr, "lwp: out of memory\n");
            exit(1);
        }
    }
    memcpy(m->data + m->size, data, size);
    m->size += size;
}

static void put_varint(Message *m, uint64_t value)
{
    uint8_t byte;

    do {
        byte = (value & 0x7f) | (value > 0x7f ? 0x80 : 0);
        put(m, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_number(Message *m, int field, uint64_t value)
{
    put_varint(m, field << 3);
    put_varint(m, value);
}

static void put_bytes(Message *m, int field, const void *data, size_t size)
{
    put_varint(m, field << 3 | 2);
    put_varint(m, size);
    put(m, data, size);
}

/* The part becomes a field, and is empty again. */
static void put_message(Message *m, int field, Message *part)
{
    put_bytes(m, field, part->data, part->size);
    part->size = 0;
}

/* Numbers of fields, by message. */
enum {
    PROFILE_SAMPLE_TYPE = 1, PROFILE_SAMPLE, PROFILE_MAPPING, PROFILE_LOCATION,
    PROFILE_FUNCTION, PROFILE_STRING, PROFILE_TIME = 9, PROFILE_DURATION,
    PROFILE_PERIOD_TYPE, PROFILE_PERIOD, PROFILE_COMMENT,
    VALUE_TYPE = 1, VALUE_UNIT,
    SAMPLE_LOCATION = 1, SAMPLE_VALUE, SAMPLE_LABEL,
    LABEL_KEY = 1, LABEL_TEXT, LABEL_NUMBER, LABEL_UNIT,
    MAPPING_ID = 1, MAPPING_START, MAPPING_LIMIT, MAPPING_OFFSET,
    MAPPING_FILE, MAPPING_BUILD_ID, MAPPING_HAS_FUNCTIONS, MAPPING_HAS_FILES,
    MAPPING_HAS_LINES, MAPPING_HAS_INLINED,
    LOCATION_ID = 1, LOCATION_MAPPING, LOCATION_ADDRESS, LOCATION_LINE,
    LINE_FUNCTION = 1, LINE_LINE,
    FUNCTION_ID = 1, FUNCTION_NAME, FUNCTION_LINKAGE, FUNCTION_FILE,
};

typedef struct Id {
    uint64_t key[3];
    uint64_t id;
} Id;

typedef struct Pprof {
    const Profile *profile;
    Message out, part, inner;
    Table strings, functions, mappings, locations;
} Pprof;

/* The same number, 1 or more, for the same key. */
static uint64_t id_of(Table *t, uint64_t a, uint64_t b, uint64_t c, bool *new)
{
    const uint64_t key[3] = { a, b, c };
    Id *item = table_get(t, key);

    *new = !item->id;
    if (*new) {
        item->id = t->count;
    }
    return item->id;
}

/* Index in the table of strings, of which the first is "". */
static uint64_t string(Pprof *w, const char *text)
{
    bool new;

    return *text ? id_of(&w->strings, (uintptr_t)keep_text(text), 0, 0, &new)
                 : 0;
}

static uint64_t function(Pprof *w, const char *name, const char *linkage,
                         const char *file)
{
    bool new;
    uint64_t id = id_of(&w->functions, (uintptr_t)keep_text(name),
                        (uintptr_t)keep_text(linkage),
                        (uintptr_t)keep_text(file), &new);
    Message m = { 0 };

    if (new) {
        put_number(&m, FUNCTION_ID, id);
        put_number(&m, FUNCTION_NAME, string(w, name));
        put_number(&m, FUNCTION_LINKAGE, string(w, linkage));
        put_number(&m, FUNCTION_FILE, string(w, file));
        put_message(&w->out, PROFILE_FUNCTION, &m);
        free(m.data);
    }
    return id;
}

static uint64_t mapping(Pprof *w, const Map *map, const Object *o)
{
    const FileId *file = object_id(o);
    char build_id[2 * sizeof(file->build_id) + 1] = "";
    Message m = { 0 };
    uint64_t id;
    bool new;

    id = id_of(&w->mappings, map->start, map->end, (uintptr_t)o, &new);
    if (new) {
        put_number(&m, MAPPING_ID, id);
        put_number(&m, MAPPING_START, map->start);
        put_number(&m, MAPPING_LIMIT, map->end);
        put_number(&m, MAPPING_OFFSET, map->offset);
        put_number(&m, MAPPING_FILE, string(w, object_path(o)));
        for (size_t i = 0; i < file->build_id_size; i++) {
            sprintf(build_id + 2 * i, "%02x", file->build_id[i]);
        }
        put_number(&m, MAPPING_BUILD_ID, string(w, build_id));
        /* Nothing is left to be looked up. */
        for (int i = MAPPING_HAS_FUNCTIONS; i <= MAPPING_HAS_INLINED; i++) {
            put_number(&m, i, 1);
        }
        put_message(&w->out, PROFILE_MAPPING, &m);
        free(m.data);
    }
    return id;
}

static uint64_t location(Pprof *w, const Entry *e)
{
    const Place place = entry_from(w->profile, e);
    const Function *f = place.function;
    const Map *map;
    Call calls[8];
    const char *file;
    Message m = { 0 }, line = { 0 };
    int number = 0, n;
    uint64_t id;
    bool new;

    id = id_of(&w->locations, place.space, place.ip, 0, &new);
    if (!new) {
        return id;
    }
    map = profile_map(w->profile, &place);
    put_number(&m, LOCATION_ID, id);
    if (map) {
        put_number(&m, LOCATION_MAPPING, mapping(w, map, f->object));
    }
    put_number(&m, LOCATION_ADDRESS, place.ip);
    file = object_line((Object *)f->object, place.address, &number);
    n = object_inlined((Object *)f->object, place.address, calls, 8);
    for (int i = 0; i <= n; i++) {
        const char *name = i < n ? calls[i].name : f->name;
        uint64_t what = function(w, name, i < n ? name : f->linkage,
                                 file ? file : "");

        put_number(&line, LINE_FUNCTION, what);
        put_number(&line, LINE_LINE, file ? number : 0);
        put_message(&m, LOCATION_LINE, &line);
        /* The next one is what this one has been put into, there. */
        file = i < n ? calls[i].file : NULL;
        number = i < n ? calls[i].line : 0;
    }
    put_message(&w->out, PROFILE_LOCATION, &m);
    free(m.data);
    free(line.data);
    return id;
}

static void put_label(Pprof *w, const char *key, const char *text,
                      uint64_t number, const char *unit)
{
    put_number(&w->inner, LABEL_KEY, string(w, key));
    if (text) {
        put_number(&w->inner, LABEL_TEXT, string(w, text));
    } else {
        put_number(&w->inner, LABEL_NUMBER, number);
        put_number(&w->inner, LABEL_UNIT, string(w, unit));
    }
    put_message(&w->part, SAMPLE_LABEL, &w->inner);
}

static void put_sample(Pprof *w, const Entry *e)
{
    const Profile *p = w->profile;
    const Thread *t = thread_of(p, e);
    uint64_t id = location(w, e);

    put_number(&w->part, SAMPLE_LOCATION, id);
    for (int event = 1; event < 256; event++) {
        if (p->records[event]) {
            put_number(&w->part, SAMPLE_VALUE, event == e->event ?
                       (uint64_t)(e->count * event_period(p, event) + 0.5) : 0);
        }
    }
    put_label(w, "pid", NULL, t->pid, "");
    put_label(w, "tid", NULL, t->tid, "");
    put_label(w, "thread", *t->name ? t->name : space_of(p, e)->comm, 0, NULL);
    put_label(w, "cpu", NULL, e->core, "");
    if (e->event == LWP_DME) {
        put_label(w, "source", miss_source(e->flags), 0, NULL);
        put_label(w, "latency", NULL, latency_of(p, e).sum / e->count,
                  "cycles");
        if (e->flags & LWP_MISS_DAV) {
            put_label(w, "data", NULL, e->data, "address");
            put_label(w, "variable", function_at(p, e->to)->name, 0,
                      NULL);
        }
    } else if (e->event == LWP_BRE) {
        put_label(w, "taken", e->flags & LWP_BRANCH_TKN ? "yes" : "no", 0,
                  NULL);
        put_label(w, "target", function_at(p, e->to)->name, 0, NULL);
    } else if (e->event == LWP_VAL || e->event == LWP_INS) {
        put_label(w, "data1", NULL, e->data1, "");
        put_label(w, "data2", NULL, e->data, "");
    }
    put_message(&w->out, PROFILE_SAMPLE, &w->part);
}

static void put_type(Pprof *w, int field, int event)
{
    put_number(&w->part, VALUE_TYPE, string(w, event_name(event)));
    put_number(&w->part, VALUE_UNIT, string(w, "count"));
    put_message(&w->out, field, &w->part);
}

bool pprof_write(const char *path, const Profile *p)
{
    Pprof w = {
        .profile = p, .strings = TABLE(Id, id), .functions = TABLE(Id, id),
        .mappings = TABLE(Id, id), .locations = TABLE(Id, id),
    };
    int first = 0;
    gzFile f;
    bool ok;

    for (int event = 1; event < 256; event++) {
        if (p->records[event]) {
            first = first ? first : event;
            put_type(&w, PROFILE_SAMPLE_TYPE, event);
        }
    }
    for (size_t i = 0; i < p->entries.count; i++) {
        put_sample(&w, table_at(&p->entries, i));
    }
    if (first) {
        put_type(&w, PROFILE_PERIOD_TYPE, first);
        put_number(&w.out, PROFILE_PERIOD, event_period(p, first));
    }
    put_number(&w.out, PROFILE_TIME, p->header.time * 1000000000);
    put_number(&w.out, PROFILE_DURATION, profile_seconds(p) * 1e9);
    put_number(&w.out, PROFILE_COMMENT, string(&w, p->header.command));
    put_bytes(&w.out, PROFILE_STRING, "", 0);
    for (size_t i = 0; i < w.strings.count; i++) {
        const Id *item = table_at(&w.strings, i);
        const char *text = (const char *)(uintptr_t)item->key[0];

        put_bytes(&w.out, PROFILE_STRING, text, strlen(text));
    }
    f = gzopen(path, "we");
    ok = f;
    for (size_t at = 0; ok && at < w.out.size; ) {
        size_t n = w.out.size - at < 1 << 20 ? w.out.size - at : 1 << 20;

        ok = gzwrite(f, w.out.data + at, n) == (int)n;
        at += n;
    }
    if (f && gzclose(f) != Z_OK) {
        ok = false;
    }
    free(w.out.data);
    free(w.part.data);
    free(w.inner.data);
    table_free(&w.strings);
    table_free(&w.functions);
    table_free(&w.mappings);
    table_free(&w.locations);
    return ok;
}
