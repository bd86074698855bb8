/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a file of "lwp record" says, with names: for report, annotate, script.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "profile.h"
#include "terminal.h"

bool event_wanted(const ProfileOptions *options, int event)
{
    return !options->events || options->events & event_bit(event);
}

double event_period(const Profile *p, int event)
{
    uint32_t interval, random;

    if (event < 1 || event > LWP_NR_EVENTS) {
        return 1;
    }
    /* Table 6-1: one record after interval + 1 events; low bits are random */
    interval = p->header.interval[event - 1];
    random = (1u << (p->header.random & 15)) - 1;
    return (interval & ~random) + random / 2.0 + 1;
}

const char *miss_source(unsigned flags)
{
    static const char * const sources[8] = {     /* Figure 2-5 */
        "L2/unknown", "L3", "remote", "DRAM", "reserved4", "reserved5",
        "reserved6", "other",
    };

    return sources[LWP_MISS_SOURCE(flags & 0xffff)];
}

static bool parse_events(ProfileOptions *options, const char *list)
{
    while (*list) {
        size_t length = strcspn(list, ",");
        int event = event_find(list, length);

        if (!event) {
            fprintf(stderr, "lwp: there is no event \"%.*s\"\n", (int)length,
                    list);
            return false;
        }
        options->events |= event_bit(event);
        list += length + (list[length] == ',');
    }
    return true;
}

int profile_getopt(int argc, char **argv, const char *shorts,
                   const struct option *longs, ProfileOptions *options,
                   const char *help)
{
    static const struct option common[] = {
        { "input", required_argument, NULL, 'i' },
        { "event", required_argument, NULL, 'e' },
        { "symfs", required_argument, NULL, OPTION_SYMFS },
        { "debug-dir", required_argument, NULL, OPTION_DEBUG_DIR },
        { "time", required_argument, NULL, OPTION_TIME },
        { "debuginfod", no_argument, NULL, OPTION_DEBUGINFOD },
        { "help", no_argument, NULL, 'h' },
    };
    struct option all[16] = { 0 };
    size_t n = sizeof(common) / sizeof(*common);
    char all_shorts[16], behind;
    int option;

    memcpy(all, common, sizeof(common));
    for (; longs->name; longs++) {
        all[n++] = *longs;
    }
    snprintf(all_shorts, sizeof(all_shorts), "i:e:h%s", shorts);
    for (;;) {
        option = getopt_long(argc, argv, all_shorts, all, NULL);
        switch (option) {
        case 'i':
            options->input = optarg;
            break;
        case 'e':
            if (!parse_events(options, optarg)) {
                return '?';
            }
            break;
        case OPTION_SYMFS:
            symbols_root = optarg;
            break;
        case OPTION_DEBUG_DIR:
            symbols_debug_dir = optarg;
            break;
        case OPTION_TIME:
            if (sscanf(optarg, "%lf-%lf%c", &options->from, &options->to,
                       &behind) != 2 || !(options->from >= 0) ||
                !(options->to > options->from)) {
                fprintf(stderr, "lwp: \"%s\" is not FROM-TO in seconds\n",
                        optarg);
                return '?';
            }
            break;
        case OPTION_DEBUGINFOD:
            symbols_debuginfod = true;
            break;
        case 'h':
            fputs(help, stdout);
            exit(0);
        case '?':
            fprintf(stderr, "See \"%s --help\".\n", argv[0]);
            return '?';
        default:
            return option;
        }
    }
}

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

/* What a process has mapped, as far as that has been read. */
typedef struct Snapshot {
    int32_t pid;            /* 0: none is being read */
    Map *maps;
    size_t nr_maps;
} Snapshot;

typedef struct PathId {
    uint64_t path;
    FileId id;
} PathId;

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

static void add_counts(Profile *p, const ProfileOptions *options,
                       uint32_t type, const void *chunk, size_t size)
{
    const DataThread *head = chunk;
    const DataLost *lost = chunk;
    const DataCounts *counts = chunk;
    const DataName *name = chunk;

    if (type == DATA_RECORDS && size >= sizeof(*head)) {
        const LwpRecord *r = (const LwpRecord *)(head + 1);

        profile_thread(p, head->pid, head->tid);
        for (; (const char *)(r + 1) <= (const char *)chunk + size &&
               time_wanted(p, options); r++) {
            p->records[r->event] += event_wanted(options, r->event);
        }
    } else if (type == DATA_LOST && size >= sizeof(*lost)) {
        profile_thread(p, lost->pid, lost->tid)->missed += lost->missed;
        p->missed += lost->missed;
    } else if (type == DATA_UNPROFILED && size >= sizeof(DataUnprofiled)) {
        p->unprofiled += ((const DataUnprofiled *)chunk)->threads;
    } else if (type == DATA_NAME && size >= sizeof(*name)) {
        Thread *t = profile_thread(p, name->pid, name->tid);

        memcpy(t->name, name->name, sizeof(name->name));
    } else if (type == DATA_COUNTS && size >= sizeof(*counts)) {
        Thread *t = profile_thread(p, counts->pid, counts->tid);

        for (int i = 0; i < LWP_NR_EVENTS; i++) {
            t->counts.records[i] += counts->records[i];
            t->counts.events[i] += counts->events[i];
        }
    }
}

bool profile_open(Profile *p, const ProfileOptions *options)
{
    const char *path = options->input ? options->input : DATA_DEFAULT;
    Snapshot snapshot = { 0 };
    const void *chunk;
    uint32_t type;
    size_t size;

    *p = (Profile) {
        .threads = TABLE(Thread, missed),
        .owners = { .item_size = sizeof(Owner), .key_size = sizeof(Owner) },
        .files = TABLE(PathId, id),
        .lines = TABLE(Line, threads),
        .pairs = TABLE(Pair, seen),
        .entries = TABLE(Entry, count),
        .parts = TABLE(Entry, count),
    };
    p->reader = data_open(path, &p->header);
    if (!p->reader) {
        return false;
    }
    while ((chunk = profile_next(p, &type, &size))) {
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

            if (d->what == SNAPSHOT_END && snapshot.pid == d->pid) {
                add_snapshot(p, &snapshot);
            } else if (d->what == SNAPSHOT_BEGIN) {
                free(snapshot.maps);
                snapshot = (Snapshot) { .pid = d->pid };
            }
        } else if (type == DATA_VDSO && size > sizeof(DataVdso)) {
            const DataVdso *d = chunk;

            if (d->size <= size - sizeof(*d)) {
                object_from_image(d->bits == 32 ? "[vdso32]" : "[vdso]",
                                  d->image, d->size);
            }
        } else if (type == DATA_MAP && size > sizeof(DataMap) &&
                   snapshot.pid &&
                   snapshot.pid == ((const DataMap *)chunk)->pid) {
            append_map(&snapshot.maps, &snapshot.nr_maps, new_map(p, chunk));
        } else if (type == DATA_MAP && size > sizeof(DataMap)) {
            add_map(p, chunk);
        } else {
            add_counts(p, options, type, chunk, size);
        }
    }
    free(snapshot.maps);
    if (data_damaged(p->reader)) {
        fprintf(stderr, "lwp: %s is cut off or damaged; this is what comes "
                "before\n", path);
    }
    for (size_t i = 0; i < p->nr_spaces; i++) {
        find_biases(&p->spaces[i]);
        p->spaces[i].name = keep_text(p->spaces[i].comm);
    }
    for (size_t i = 0; i < p->threads.count; i++) {
        Thread *t = table_at(&p->threads, i);

        t->kept = *t->name ? keep_text(t->name) : NULL;
    }
    data_close(p->reader);
    p->chunk = p->clock = 0;
    p->reader = data_open(path, &p->header);
    return p->reader;
}

const void *profile_next(Profile *p, uint32_t *type, size_t *size)
{
    const void *chunk = data_next(p->reader, type, size);

    p->chunk++;
    if (chunk && *type == DATA_TIME && *size >= sizeof(DataTime)) {
        p->clock = ((const DataTime *)chunk)->clock;
    }
    return chunk;
}

double profile_seconds(const Profile *p)
{
    return p->clock > p->header.clock ?
           (p->clock - p->header.clock) / 1e9 : 0;
}

bool time_wanted(const Profile *p, const ProfileOptions *options)
{
    double time = profile_seconds(p);

    return options->to == 0 || (time >= options->from && time < options->to);
}

void profile_missed(const Profile *p)
{
    if (p->missed) {
        fprintf(stderr, "lwp: %" PRIu64 " records were missed: a ring was "
                "full\n", p->missed);
    }
}

bool output_written(void)
{
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "lwp: cannot write: %s\n", strerror(errno));
        return false;
    }
    return true;
}

void profile_close(Profile *p)
{
    data_close(p->reader);
    for (size_t i = 0; i < p->nr_spaces; i++) {
        free(p->spaces[i].maps);
    }
    free(p->spaces);
    table_free(&p->threads);
    table_free(&p->owners);
    table_free(&p->files);
    table_free(&p->lines);
    table_free(&p->pairs);
    free(p->functions);
    free(p->latencies);
    free(p->alone);
    table_free(&p->entries);
    table_free(&p->parts);
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

Thread *profile_thread(Profile *p, int32_t pid, int32_t tid)
{
    const int32_t key[] = { pid, tid };

    return table_get(&p->threads, key);
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

/* What is at the place; its address there. */
static Object *locate(const Profile *p, Place *place)
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
    Object *o = locate(p, &place);

    place.function = object_function(o, place.address);
    return place;
}

Place entry_from(const Profile *p, const Entry *e)
{
    Place place = { .space = owner_of(p, e)->space, .ip = e->ip };

    locate(p, &place);
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
    locate(p, &place);
    place.function = function_at(p, e->to);
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
