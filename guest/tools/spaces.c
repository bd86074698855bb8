/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What processes have mapped, when, and so what is at an address.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "profile.h"

static Space *find_space(Profile *p, int32_t pid)
{
    for (size_t i = p->nr_spaces; i--; ) {
        if (p->spaces[i].pid == pid) {
            return &p->spaces[i];
        }
    }
    return NULL;
}

static Space *add_space(Profile *p, int32_t pid)
{
    Space *old = find_space(p, pid), *new;
    int older = old ? old - p->spaces : -1;

    p->spaces = grow(p->spaces, p->nr_spaces, sizeof(*p->spaces));
    new = &p->spaces[p->nr_spaces++];
    *new = (Space) {
        .pid = pid, .bits = 64, .comm = "?", .since = p->chunk, .older = older,
    };
    return new;
}

/* The same program, when something else has been mapped. */
static Space *add_again(Profile *p, int32_t pid)
{
    Space *new = add_space(p, pid), *old = &p->spaces[new->older];

    old->newer = new - p->spaces;
    *new = (Space) {
        .pid = pid, .ppid = old->ppid, .bits = old->bits,
        .since = new->since, .older = new->older, .again = true,
    };
    memcpy(new->comm, old->comm, sizeof(old->comm));
    return new;
}

static void append_map(Map **maps, size_t *n, Map map)
{
    *maps = grow(*maps, *n, sizeof(map));
    (*maps)[(*n)++] = map;
}

static bool is_file(const Map *m)
{
    return *object_path(m->object) == '/';
}

static bool same_file(const Map *a, const Map *b)
{
    return a->object == b->object &&
           a->start - a->offset == b->start - b->offset;
}

/* Which file the path is, as far as the profile was read; or NULL. */
static const FileId *file_id(const Profile *p, const char *path)
{
    uint64_t key = (uintptr_t)keep_text(path);
    const PathId *f = table_find(&p->files, &key);

    return f ? &f->id : NULL;
}

static Map new_map(const Profile *p, const DataMap *data)
{
    return (Map) {
        data->start, data->end, data->offset, data->prot,
        .object = object_get(*data->path ? data->path : "[anon]",
                             file_id(p, data->path)),
    };
}

/* Add a mapping, which may cover others wholly or in part. */
static void add_map(Profile *p, const DataMap *data)
{
    Map new = new_map(p, data);
    Space *s = find_space(p, data->pid);
    bool conflict = false;
    size_t i = 0, n;
    Map *maps;

    if (new.start >= new.end) {
        return;
    }
    if (!s) {
        s = add_space(p, data->pid);
    }
    for (size_t k = 0; k < s->nr_maps; k++) {
        const Map *m = &s->maps[k];

        conflict |= m->start < new.end && m->end > new.start &&
                    m->prot & PROT_EXEC && is_file(m) && !same_file(m, &new);
    }
    if (conflict) {
        Space *copy = add_again(p, data->pid);

        s = &p->spaces[copy->older];
        for (n = 0; n < s->nr_maps; n++) {
            append_map(&copy->maps, &copy->nr_maps, s->maps[n]);
        }
        s = copy;
    }
    /* What is left of the others: below, above; then keep the order. */
    maps = NULL;
    n = 0;
    for (size_t k = 0; k < s->nr_maps; k++) {
        Map m = s->maps[k], below = m, above = m;

        if (m.end > new.start && m.start < new.end) {
            below.end = new.start;
            above.start = new.end;
            above.offset += new.end - m.start;
        } else if (m.start < new.start) {
            above.end = above.start;
        } else {
            below.end = below.start;
        }
        if (below.start < below.end) {
            maps = grow(maps, n, sizeof(*maps));
            maps[n++] = below;
            i = n;
        }
        if (above.start < above.end) {
            maps = grow(maps, n, sizeof(*maps));
            maps[n++] = above;
        }
    }
    maps = grow(maps, n, sizeof(*maps));
    memmove(maps + i + 1, maps + i, (n - i) * sizeof(*maps));
    maps[i] = new;
    free(s->maps);
    s->maps = maps;
    s->nr_maps = n + 1;
}

static int compare_maps(const void *a, const void *b)
{
    const Map *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

/* Whether something else is now where OLD was, or, if it is a file, nothing. */
static bool is_replaced(const Map *old, const Snapshot *new)
{
    uint64_t at = old->start;

    for (size_t i = 0; i < new->nr_maps && at < old->end; i++) {
        const Map *m = &new->maps[i];

        if (m->end <= at) {
            continue;
        }
        if ((is_file(old) && (m->start > at || !same_file(old, m))) ||
            (m->start < old->end && is_file(m) && !same_file(old, m))) {
            return true;
        }
        at = m->end;
    }
    return is_file(old) && at < old->end;
}

/* What a process has mapped when that has been read is all that it has. */
static void add_snapshot(Profile *p, Snapshot *new)
{
    Space *s = find_space(p, new->pid);
    Map *maps = NULL;
    bool conflict = false;
    size_t n = 0;

    if (!s) {
        s = add_space(p, new->pid);
    }
    if (new->nr_maps) {
        qsort(new->maps, new->nr_maps, sizeof(*maps), compare_maps);
    }
    for (size_t i = 1; i < new->nr_maps; i++) {
        if (new->maps[i].start < new->maps[i - 1].end) {
            new->maps[i].start = new->maps[i - 1].end;
        }
        if (new->maps[i].end < new->maps[i].start) {
            new->maps[i].end = new->maps[i].start;
        }
    }
    for (size_t i = 0; i < s->nr_maps && !conflict; i++) {
        conflict = is_replaced(&s->maps[i], new);
    }
    if (conflict) {
        s = add_again(p, new->pid);
    }
    /* What else there was stays: records may be of it. */
    for (size_t i = 0, k = 0; i < s->nr_maps; i++) {
        Map m = s->maps[i];

        while (k < new->nr_maps && new->maps[k].end <= m.start) {
            k++;
        }
        for (size_t j = k; m.start < m.end; j++) {
            Map piece = m;

            if (j == new->nr_maps || new->maps[j].start >= m.end) {
                append_map(&maps, &n, m);
                break;
            }
            piece.end = new->maps[j].start;
            if (piece.start < piece.end) {
                append_map(&maps, &n, piece);
            }
            m.offset += new->maps[j].end - m.start;
            m.start = new->maps[j].end;
        }
    }
    for (size_t i = 0; i < new->nr_maps; i++) {
        if (new->maps[i].start < new->maps[i].end) {
            append_map(&maps, &n, new->maps[i]);
        }
    }
    if (n) {
        qsort(maps, n, sizeof(*maps), compare_maps);
    }
    free(s->maps);
    s->maps = maps;
    s->nr_maps = n;
    free(new->maps);
    *new = (Snapshot) { 0 };
}

/*
 * All of an object is mapped as one piece; what follows it without a name is
 * its .bss.  The first piece tells where, others may share pages of the file.
 */
static void find_biases(Space *s)
{
    for (size_t i = 0; i < s->nr_maps; i++) {
        Map *m = &s->maps[i], *last = i ? m - 1 : NULL;

        if (last && is_file(last) && last->end == m->start &&
            !strcmp(object_path(m->object), "[anon]") &&
            m->start - last->bias < object_end(last->object)) {
            m->bss = true;
            m->object = last->object;
            m->bias = last->bias;
        } else if (last && last->object == m->object && !last->bss &&
                   is_file(m) && m->offset >= last->offset) {
            m->bias = last->bias;
        } else if (is_file(m)) {
            m->bias = m->start - object_address(m->object, m->offset,
                                                m->prot & PROT_EXEC);
        } else if (!strcmp(object_path(m->object), "[vdso]")) {
            m->bias = m->start;
            m->object = object_get(s->bits == 32 ? "[vdso32]" : "[vdso]",
                                   NULL);
        } else {
            m->bias = 0;
        }
    }
}

bool space_chunk(Profile *p, uint32_t type, const void *chunk, size_t size)
{
    if (type == DATA_PROCESS && size >= sizeof(DataProcess)) {
        const DataProcess *d = chunk;
        Space *s = add_space(p, d->pid);

        s->ppid = d->ppid;
        s->bits = d->bits;
        memcpy(s->comm, d->comm, sizeof(d->comm));
    } else if (type == DATA_FILE && size > sizeof(DataFile)) {
        const DataFile *d = chunk;
        uint64_t path = (uintptr_t)keep_text(d->path);

        ((PathId *)table_get(&p->files, &path))->id = d->id;
    } else if (type == DATA_SNAPSHOT && size >= sizeof(DataSnapshot)) {
        const DataSnapshot *d = chunk;

        if (d->what == SNAPSHOT_END && p->snapshot.pid == d->pid) {
            add_snapshot(p, &p->snapshot);
        } else if (d->what == SNAPSHOT_BEGIN) {
            free(p->snapshot.maps);
            p->snapshot = (Snapshot) { .pid = d->pid };
        }
    } else if (type == DATA_VDSO && size > sizeof(DataVdso)) {
        const DataVdso *d = chunk;

        if (d->size <= size - sizeof(*d)) {
            object_from_image(d->bits == 32 ? "[vdso32]" : "[vdso]",
                              d->image, d->size);
        }
    } else if (type == DATA_MAP && size > sizeof(DataMap) &&
               p->snapshot.pid &&
               p->snapshot.pid == ((const DataMap *)chunk)->pid) {
        append_map(&p->snapshot.maps, &p->snapshot.nr_maps, new_map(p, chunk));
    } else if (type == DATA_MAP && size > sizeof(DataMap)) {
        add_map(p, chunk);
    } else {
        return false;
    }
    return true;
}

void spaces_complete(Profile *p)
{
    free(p->snapshot.maps);
    p->snapshot = (Snapshot) { 0 };
    for (size_t i = 0; i < p->nr_spaces; i++) {
        find_biases(&p->spaces[i]);
        p->spaces[i].name = keep_text(p->spaces[i].comm);
    }
}

uint32_t profile_space(Profile *p, int32_t pid)
{
    Space *s = find_space(p, pid);

    if (!s) {
        s = add_space(p, pid);
        s->name = keep_text(s->comm);
    }
    while (s->since > p->chunk && s->older >= 0) {
        s = &p->spaces[s->older];
    }
    return s - p->spaces;
}

/* What the process has compiled, if it told about it. */
static Object *jit_of(const Profile *p, Space *s)
{
    const char *dump = NULL;
    char name[64];

    if (s->jit_asked) {
        return s->jit;
    }

    sprintf(name, "/jit-%d.dump", s->pid);
    for (size_t i = 0; i < s->nr_maps && !dump; i++) {
        const char *path = object_path(s->maps[i].object);

        if (strlen(path) > strlen(name) &&
            !strcmp(path + strlen(path) - strlen(name), name)) {
            dump = path;
        }
    }
    s->jit_asked = true;
    s->jit = object_jit(s->pid, dump, p->header.time);
    return s->jit;
}

static const Map *find_map(const Space *s, uint64_t address)
{
    static size_t last[2];  /* often it is one of them again: code and data */
    size_t low = 0, high = s->nr_maps;

    for (int i = 0; i < 2; i++) {
        if (last[i] < high && s->maps[last[i]].start <= address &&
            address < s->maps[last[i]].end) {
            return &s->maps[last[i]];
        }
    }
    while (low < high) {
        size_t mid = (low + high) / 2;

        if (s->maps[mid].start <= address) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    if (!low || address >= s->maps[low - 1].end) {
        return NULL;
    }
    last[1] = last[0];
    last[0] = low - 1;
    return &s->maps[low - 1];
}

const Map *profile_map(const Profile *p, const Place *place)
{
    const Space *s = &p->spaces[place->space];
    const Map *m = find_map(s, place->ip);

    /* What was mapped since the last snapshot is in the next one. */
    while (!m && s->newer) {
        s = &p->spaces[s->newer];
        m = find_map(s, place->ip);
    }
    return m;
}

Object *place_object(const Profile *p, Place *place)
{
    const Map *m = profile_map(p, place);
    Object *o, *jit;

    place->address = place->ip;
    if (!m) {
        return object_get("[unknown]", NULL);
    }
    o = m->object;
    place->address = place->ip - m->bias;
    if (m->bss && place->address >= object_end(o)) {
        place->address = place->ip;         /* the heap is behind it */
        o = object_get("[anon]", NULL);
    }
    if (o != m->object || !is_file(m) || !object_end(o)) {
        jit = jit_of(p, &p->spaces[place->space]);
        if (jit && object_knows(jit, place->ip)) {
            place->address = place->ip;
            o = jit;
        }
    }
    return o;
}

Place profile_place(const Profile *p, uint32_t space, uint64_t address)
{
    Place place = { .space = space, .ip = address };
    Object *o = place_object(p, &place);

    place.function = object_function(o, place.address);
    return place;
}

/* What is shown of a place in the source, by pointer and number. */
typedef struct Text {
    uint64_t of, number;
    const char *text;
} Text;

const char *place_line(const Place *place)
{
    static Table lines = TABLE(Text, text);
    Object *o = (Object *)place->function->object;
    const char *file;
    uint64_t key[2];
    Text *item;
    char *text;
    int line;

    file = object_has_lines(o) ? object_line(o, place->address, &line) : NULL;
    if (!file) {
        return "?";
    }
    key[0] = (uintptr_t)file;
    key[1] = line;
    item = table_get(&lines, key);
    if (!item->text) {
        item->text = "?";
        if (asprintf(&text, "%s:%d", file, line) > 0) {
            item->text = keep_text(text);
            free(text);
        }
    }
    return item->text;
}

const char *place_inlined(const Place *place)
{
    static Table inlined = TABLE(Text, text);
    Object *o = (Object *)place->function->object;
    uint64_t key[2];
    Call calls[8];
    size_t size;
    Text *item;
    char *text;
    FILE *f;
    int n;

    n = object_has_lines(o) ? object_inlined(o, place->address, calls, 8) : 0;
    if (!n) {
        return "";
    }
    key[0] = (uintptr_t)o;
    key[1] = calls[0].number;
    item = table_get(&inlined, key);
    if (!item->text) {
        item->text = "";
        f = open_memstream(&text, &size);
        for (int i = 0; f && i < n; i++) {
            fprintf(f, "%s%s", i ? " < " : "", calls[i].name);
        }
        if (f && !fclose(f)) {
            item->text = keep_text(text);
            free(text);
        }
    }
    return item->text;
}
