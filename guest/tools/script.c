/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lwp script: a profile's records as text; or for perf(1), or pprof.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "commands.h"
#include "pprof.h"
#include "report.h"
#include "terminal.h"

enum {
    OPTION_PERF_DATA = OPTION_OWN,
    OPTION_PPROF,
};

static const char help[] =
    "Usage: lwp script [OPTION]...\n"
    "Show the records of a profile, one on each line.\n\n"
    PROFILE_HELP
    "  -a, --all              also show programs, mappings, ends and counts\n"
    "      --perf-data FILE   write them to FILE, which perf report reads\n"
    "      --pprof FILE       the same for go tool pprof\n"
    "  -b, --branch-stack     with it, branches also as perf's branch stack\n";

static void put_place(Profile *p, uint32_t space, uint64_t ip,
                      TextStyle style)
{
    const Place place = profile_place(p, space, ip);
    const char *path = object_path(place.function->object);
    const char *base = strrchr(path, '/');
    uint64_t offset = place.address - place.function->start;

    printf("%" PRIx64 " ", ip);
    put_text(stdout, place.function->name, style);
    if (!place.function->size) {
        if (*path == '/') {
            printf("+0x%" PRIx64, place.address);
        }
    } else {
        if (offset) {
            printf("+0x%" PRIx64, offset);
        }
        printf(" (");
        put_text(stdout, base ? base + 1 : path, style);
        printf(")");
    }
}

/* All that Figures 2-2 to 2-8 define for a record. */
static void put_record(Profile *p, const DataThread *t, uint32_t space,
                       const LwpRecord *r, TextStyle style)
{
    put_text(stdout, p->spaces[space].comm, style);
    printf(" %d/%d [%03u] ", t->pid, t->tid, r->core);
    if (p->clock) {
        printf("%.3f ", profile_seconds(p));
    }
    printf("%s: ", event_name(r->event));
    put_place(p, space, r->ip, style);
    switch (r->event) {
    case LWP_VAL:
    case LWP_INS:
        printf(" flags 0x%04x data1 0x%08x data2 0x%016" PRIx64, r->flags,
               r->data1, r->data2);
        break;
    case LWP_BRE:
        printf(" => ");
        put_place(p, space, r->data2, style);
        printf(" %s %s%s", r->flags & LWP_BRANCH_TKN ? "taken" : "not-taken",
               !(r->flags & LWP_BRANCH_PRV) ? "prediction-unknown" :
               r->flags & LWP_BRANCH_PRD ? "predicted" : "mispredicted",
               r->flags & LWP_BRANCH_FUS ? " fused" : "");
        break;
    case LWP_DME:
        printf(" latency %u source %s", r->data1, miss_source(r->flags));
        if (r->flags & LWP_MISS_DAV) {
            printf(" data ");
            put_place(p, space, r->data2, style);
        }
        break;
    case LWP_IRE:
    case LWP_CNH:
    case LWP_RNH:
        break;
    default:
        printf(" flags 0x%04x data1 0x%08x data2 0x%016" PRIx64
               " reserved 0x%016" PRIx64, r->flags, r->data1, r->data2,
               r->reserved);
    }
    printf("\n");
}

static void put_other(uint32_t type, const void *chunk, size_t size,
                      TextStyle style)
{
    char comm[17] = "";
    const DataProcess *process = chunk;
    const DataCounts *counts = chunk;
    const DataThread *end = chunk;
    const DataMap *map = chunk;
    const DataFile *file = chunk;
    const DataSnapshot *snapshot = chunk;
    const DataName *name = chunk;
    const DataUnprofiled *unprofiled = chunk;

    if (type == DATA_PROCESS && size >= sizeof(*process)) {
        printf("# program: %d, parent %d, %u bits: ", process->pid,
               process->ppid, process->bits);
        memcpy(comm, process->comm, sizeof(process->comm));
        put_text(stdout, comm, style);
        printf("\n");
    } else if (type == DATA_MAP && size > sizeof(*map)) {
        printf("# map: %d, %" PRIx64 "-%" PRIx64 " %c%c%c %" PRIx64 " ",
               map->pid, map->start, map->end,
               map->prot & PROT_READ ? 'r' : '-',
               map->prot & PROT_WRITE ? 'w' : '-',
               map->prot & PROT_EXEC ? 'x' : '-', map->offset);
        put_text(stdout, map->path, style);
        printf("\n");
    } else if (type == DATA_FILE && size > sizeof(*file)) {
        printf("# file: ");
        put_text(stdout, file->path, style);
        if (file->id.size != UINT64_MAX) {
            printf(", %" PRIu64 " bytes", file->id.size);
        }
        for (size_t i = 0; i < file->id.build_id_size &&
                           i < sizeof(file->id.build_id); i++) {
            printf("%s%02x", i ? "" : ", build ID ", file->id.build_id[i]);
        }
        printf("\n");
    } else if (type == DATA_SNAPSHOT && size >= sizeof(*snapshot)) {
        printf("# snapshot: %d %s\n", snapshot->pid,
               snapshot->what == SNAPSHOT_BEGIN ? "begins" : "ends");
    } else if (type == DATA_UNPROFILED && size >= sizeof(*unprofiled)) {
        printf("# not profiled: %u threads: %s\n", unprofiled->threads,
               unprofiled->error ? lwp_strerror(unprofiled->error)
                                 : "their program has confined itself");
    } else if (type == DATA_NAME && size >= sizeof(*name)) {
        char text[17] = "";

        memcpy(text, name->name, sizeof(name->name));
        printf("# name: %d/%d, ", name->pid, name->tid);
        put_text(stdout, text, style);
        printf("\n");
    } else if (type == DATA_END && size >= sizeof(*end)) {
        printf("# end: %d/%d\n", end->pid, end->tid);
    } else if (type == DATA_COUNTS && size >= sizeof(*counts)) {
        printf("# counts: %d/%d", counts->pid, counts->tid);
        for (int i = 0; i < LWP_NR_EVENTS; i++) {
            if (counts->events[i]) {
                printf(" %s %" PRIu64 " (%" PRIu64 " records)",
                       event_name(i + 1), counts->events[i],
                       counts->records[i]);
            }
        }
        printf("\n");
    }
}

/*
 * perf.data: a header, the attributes of the events, the data, which are
 * records as perf_event_open(2) has them, and sections that describe it.
 */
typedef struct Section {
    uint64_t offset, size;
} Section;

typedef struct PerfHeader {
    char magic[8];
    uint64_t size, attr_size;
    Section attrs, data, event_types;
    uint64_t features[4];
} PerfHeader;

enum {
    PERF_BUILD_ID = 2,
    PERF_ARCH = 6,          /* numbers of features */
    PERF_COMMAND = 11,
    PERF_EVENT_DESC = 12,
    PERF_BRANCH_STACK = 15,
};

/* In the misc of a build ID: its size is behind it. */
#define BUILD_ID_SIZE   (1 << 15)
#define ATTR_SIZE   PERF_ATTR_SIZE_VER5     /* that old ones know as well */

typedef struct PerfFile {
    FILE *file;
    bool branch_stack;
    uint64_t time;          /* ns; of each record, more than before */
    uint32_t *shown;        /* by thread: space + 1 that perf knows of it */
    struct perf_event_attr attr[256];
} PerfFile;

typedef struct Buffer {
    size_t size;
    char data[1 << 16];     /* a perf record's size has 16 bits */
} Buffer;

static void add(Buffer *b, const void *data, size_t size)
{
    if (b->size + size <= sizeof(b->data)) {
        memcpy(b->data + b->size, data, size);
    }
    b->size += size;
}

static void add64(Buffer *b, uint64_t value)
{
    add(b, &value, sizeof(value));
}

static void add32(Buffer *b, uint32_t value)
{
    add(b, &value, sizeof(value));
}

/* A string and zeros up to the next multiple of ALIGN. */
static void add_text(Buffer *b, const char *text, size_t align)
{
    size_t length = strlen(text) + 1;
    char zero[64] = { 0 };

    add(b, text, length);
    add(b, zero, -length & (align - 1));
}

static void put_perf(PerfFile *f, uint32_t type, uint16_t misc, Buffer *b)
{
    struct perf_event_header head = { type, misc, sizeof(head) + b->size };

    /* What is longer, a path, is left out. */
    if (sizeof(head) + b->size < sizeof(b->data)) {
        fwrite(&head, sizeof(head), 1, f->file);
        fwrite(b->data, 1, b->size, f->file);
    }
}

/* What sample_id_all appends to records that are no samples. */
static void add_id(PerfFile *f, Buffer *b, int32_t pid, int32_t tid)
{
    add32(b, pid);
    add32(b, tid);
    add64(b, ++f->time);
    add64(b, 0);            /* CPU */
    add64(b, 0);            /* of no event in particular */
}

/* Before a thread's first sample: its name; before a space's, what is where. */
static void put_space(PerfFile *f, const Profile *p, const Thread *t,
                      uint32_t space)
{
    const Space *s = &p->spaces[space];
    Buffer b;

    b.size = 0;
    add32(&b, t->pid);
    add32(&b, t->tid);
    add_text(&b, s->comm, 8);
    add_id(f, &b, t->pid, t->tid);
    put_perf(f, PERF_RECORD_COMM, 0, &b);
    for (size_t i = 0; i < p->threads.count; i++) {
        const Thread *other = table_at(&p->threads, i);

        if (other->pid == t->pid && f->shown[i] == space + 1) {
            return;
        }
    }
    for (size_t i = 0; i < s->nr_maps; i++) {
        const Map *m = &s->maps[i];
        const char *path = object_path(m->object);

        if (m->bss || (*path != '/' && !(m->prot & PROT_EXEC))) {
            continue;
        }
        b.size = 0;
        add32(&b, t->pid);
        add32(&b, t->pid);
        add64(&b, m->start);
        add64(&b, m->end - m->start);
        add64(&b, m->offset);
        add64(&b, 0);       /* device */
        add64(&b, 0);       /* inode */
        add64(&b, 0);       /* and its generation */
        add32(&b, m->prot);
        add32(&b, MAP_PRIVATE);
        add_text(&b, strcmp(path, "[anon]") ? path : "//anon", 8);
        add_id(f, &b, t->pid, t->pid);
        put_perf(f, PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER |
                 (m->prot & PROT_EXEC ? 0 : PERF_RECORD_MISC_MMAP_DATA), &b);
    }
}

static uint64_t data_source(unsigned flags)
{
    static const uint64_t levels[8] = {
        [0] = PERF_MEM_S(LVL, NA),
        [1] = PERF_MEM_S(LVL, HIT) | PERF_MEM_S(LVL, L3),
        [2] = PERF_MEM_S(LVL, HIT) | PERF_MEM_S(LVL, REM_CCE1),
        [3] = PERF_MEM_S(LVL, HIT) | PERF_MEM_S(LVL, LOC_RAM),
        [7] = PERF_MEM_S(LVL, HIT) | PERF_MEM_S(LVL, IO),
    };

    return PERF_MEM_S(OP, LOAD) | PERF_MEM_S(SNOOP, NA) |
           PERF_MEM_S(LOCK, NA) | PERF_MEM_S(TLB, NA) |
           levels[LWP_MISS_SOURCE(flags)];
}

static void put_sample(PerfFile *f, const Profile *p, const DataThread *t,
                       const LwpRecord *r)
{
    const struct perf_event_attr *attr = &f->attr[r->event];
    bool has_address = r->event != LWP_DME || r->flags & LWP_MISS_DAV;
    Buffer b;

    b.size = 0;
    add64(&b, r->event);    /* the event's ID */
    add64(&b, r->ip);
    add32(&b, t->pid);
    add32(&b, t->tid);
    add64(&b, ++f->time);
    add64(&b, has_address ? r->data2 : 0);
    add64(&b, r->core);
    add64(&b, event_period(p, r->event));
    if (attr->sample_type & PERF_SAMPLE_BRANCH_STACK) {
        struct perf_branch_entry branch = {
            .from = r->ip, .to = r->data2,
            .mispred = r->flags & LWP_BRANCH_PRV &&
                       !(r->flags & LWP_BRANCH_PRD),
            .predicted = r->flags & LWP_BRANCH_PRV &&
                         r->flags & LWP_BRANCH_PRD,
        };
        bool taken = r->flags & LWP_BRANCH_TKN;

        add64(&b, taken);
        add(&b, &branch, taken ? sizeof(branch) : 0);
    }
    if (r->event == LWP_DME) {
        add64(&b, r->data1);
        add64(&b, data_source(r->flags));
    }
    put_perf(f, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, &b);
}

/* The events that the profile can have; perf's own kinds where there are. */
static void init_attrs(PerfFile *f, const Profile *p)
{
    static const struct {
        uint32_t type;
        uint64_t config;
    } kinds[256] = {
        [LWP_VAL] = { PERF_TYPE_RAW, LWP_VAL },
        [LWP_IRE] = { PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS },
        [LWP_BRE] = { PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS },
        [LWP_DME] = { PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES },
        [LWP_CNH] = { PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES },
        [LWP_RNH] = { PERF_TYPE_HARDWARE, PERF_COUNT_HW_REF_CPU_CYCLES },
        [LWP_INS] = { PERF_TYPE_RAW, LWP_INS },
    };

    for (int event = 1; event < 256; event++) {
        if (!p->records[event]) {
            continue;
        }
        f->attr[event] = (struct perf_event_attr) {
            .type = kinds[event].config ? kinds[event].type : PERF_TYPE_RAW,
            .size = ATTR_SIZE,
            .config = kinds[event].type == PERF_TYPE_RAW ? (uint64_t)event
                                                         : kinds[event].config,
            .sample_period = event_period(p, event),
            .sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP |
                           PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
                           PERF_SAMPLE_ADDR | PERF_SAMPLE_CPU |
                           PERF_SAMPLE_PERIOD,
            .exclude_kernel = 1, .exclude_hv = 1, .mmap = 1, .mmap2 = 1,
            .mmap_data = 1, .comm = 1, .sample_id_all = 1, .precise_ip = 3,
        };
        if (event == LWP_DME) {
            f->attr[event].sample_type |= PERF_SAMPLE_WEIGHT |
                                          PERF_SAMPLE_DATA_SRC;
        } else if (event == LWP_BRE && f->branch_stack) {
            f->attr[event].sample_type |= PERF_SAMPLE_BRANCH_STACK;
            f->attr[event].branch_sample_type = PERF_SAMPLE_BRANCH_USER |
                                                PERF_SAMPLE_BRANCH_ANY;
        }
    }
}

/* A feature's string: its size, then the string. */
static void add_string(Buffer *b, const char *text)
{
    add32(b, (strlen(text) + 64) & ~63);
    add_text(b, text, 64);
}

/* At the place where it will be, though sizes are known at the end. */
static void put_perf_header(PerfFile *f, Section data, int nr_events)
{
    PerfHeader header = {
        .magic = "PERFILE2", .size = sizeof(header),
        .attr_size = ATTR_SIZE + sizeof(Section),
        .attrs = { sizeof(header) + nr_events * sizeof(uint64_t),
                   nr_events * (ATTR_SIZE + sizeof(Section)) },
        .data = data,
        .features = { 1u << PERF_BUILD_ID | 1u << PERF_ARCH |
                      1u << PERF_COMMAND | 1u << PERF_EVENT_DESC |
                      (f->branch_stack ? 1u << PERF_BRANCH_STACK : 0) },
    };
    int n = 0;

    fwrite(&header, sizeof(header), 1, f->file);
    for (uint64_t event = 1; event < 256; event++) {
        if (f->attr[event].size) {
            fwrite(&event, sizeof(event), 1, f->file);
        }
    }
    for (int event = 1; event < 256; event++) {
        if (f->attr[event].size) {
            Section id = { sizeof(header) + n++ * sizeof(uint64_t),
                           sizeof(uint64_t) };

            fwrite(&f->attr[event], ATTR_SIZE, 1, f->file);
            fwrite(&id, sizeof(id), 1, f->file);
        }
    }
}

/* Which files were mapped, as perf's own records have it. */
static void put_build_ids(PerfFile *f, const Profile *p)
{
    Table seen = { .item_size = 8, .key_size = 8 };

    for (size_t i = 0; i < p->nr_spaces; i++) {
        for (size_t k = 0; k < p->spaces[i].nr_maps; k++) {
            const Object *o = p->spaces[i].maps[k].object;
            const FileId *id = object_id(o);
            const uint64_t key = (uintptr_t)o;
            struct perf_event_header head = { 0 };
            uint8_t build_id[24] = { 0 };
            Buffer b;

            if (!id->build_id_size || id->build_id_size > 20 ||
                table_find(&seen, &key)) {
                continue;
            }
            table_get(&seen, &key);
            memcpy(build_id, id->build_id, id->build_id_size);
            build_id[20] = id->build_id_size;
            b.size = 0;
            add32(&b, -1);  /* of any process */
            add(&b, build_id, sizeof(build_id));
            add_text(&b, object_path(o), 64);
            head.misc = PERF_RECORD_MISC_USER | BUILD_ID_SIZE;
            head.size = sizeof(head) + b.size;
            fwrite(&head, sizeof(head), 1, f->file);
            fwrite(b.data, 1, b.size, f->file);
        }
    }
    table_free(&seen);
}

static void put_features(PerfFile *f, const Profile *p, int nr_events)
{
    int n = f->branch_stack ? 5 : 4;
    Section s[5] = { 0 };
    uint64_t table = ftell(f->file);
    Buffer b;

    fwrite(s, sizeof(*s), n, f->file);
    for (int i = 0; i < n; i++) {
        b.size = 0;
        s[i].offset = ftell(f->file);
        switch (i) {
        case 0:
            put_build_ids(f, p);
            break;
        case 1:
            add_string(&b, "x86_64");
            break;
        case 2:
            add32(&b, 1);
            add_string(&b, p->header.command);
            break;
        case 3:
            add32(&b, nr_events);
            add32(&b, ATTR_SIZE);
            for (uint64_t event = 1; event < 256; event++) {
                if (f->attr[event].size) {
                    add(&b, &f->attr[event], ATTR_SIZE);
                    add32(&b, 1);
                    add_string(&b, event_name(event));
                    add64(&b, event);
                }
            }
            break;
        }
        fwrite(b.data, 1, b.size, f->file);
        s[i].size = ftell(f->file) - s[i].offset;
    }
    fseek(f->file, table, SEEK_SET);
    fwrite(s, sizeof(*s), n, f->file);
}

static void put_perf_data(PerfFile *f, Profile *p,
                          const ProfileOptions *options)
{
    Section data = { 0 };
    int nr_events = 0;
    const void *chunk;
    uint32_t type;
    size_t size;

    init_attrs(f, p);
    for (int event = 1; event < 256; event++) {
        nr_events += !!f->attr[event].size;
    }
    put_perf_header(f, data, nr_events);
    data.offset = ftell(f->file);
    while ((chunk = profile_next(p, &type, &size))) {
        const DataThread *head = chunk;
        const LwpRecord *r = (const LwpRecord *)(head + 1);
        uint32_t space, *shown;
        const Thread *t;

        if (type != DATA_RECORDS || size < sizeof(*head) ||
            !time_wanted(p, options)) {
            continue;
        }
        if (p->clock > f->time) {
            f->time = p->clock;
        }
        t = profile_thread(p, head->pid, head->tid);
        space = profile_space(p, head->pid);
        shown = &f->shown[t - (Thread *)p->threads.items];
        if (*shown != space + 1) {
            put_space(f, p, t, space);
            *shown = space + 1;
        }
        for (; (const char *)(r + 1) <= (const char *)chunk + size; r++) {
            if (f->attr[r->event].size) {
                put_sample(f, p, head, r);
            }
        }
    }
    data.size = ftell(f->file) - data.offset;
    put_features(f, p, nr_events);
    rewind(f->file);
    put_perf_header(f, data, nr_events);
}

static bool write_perf_data(Profile *p, const ProfileOptions *options,
                            const char *path, bool branch_stack)
{
    PerfFile *f = calloc(1, sizeof(*f));
    uint32_t *shown = calloc(p->threads.count + 1, sizeof(*shown));
    bool ok = f && shown;

    if (!ok) {
        fprintf(stderr, "lwp: out of memory\n");
        goto out;
    }
    f->file = fopen(path, "we");
    if (f->file) {
        f->branch_stack = branch_stack && p->records[LWP_BRE];
        f->shown = shown;
        put_perf_data(f, p, options);
        ok = !ferror(f->file);
        ok = !fclose(f->file) && ok;
    } else {
        ok = false;
    }
    if (!ok) {
        fprintf(stderr, "lwp: cannot write %s: %s\n", path, strerror(errno));
    }
out:
    free(shown);
    free(f);
    return ok;
}

bool script_put(Profile *p, const ProfileOptions *options, bool all,
                TextStyle style)
{
    const void *chunk;
    uint32_t type;
    size_t size;

    while ((chunk = profile_next(p, &type, &size))) {
        const DataThread *head = chunk;
        const DataLost *lost = chunk;

        if (type == DATA_RECORDS && size >= sizeof(*head)) {
            const LwpRecord *r = (const LwpRecord *)(head + 1);
            uint32_t space = profile_space(p, head->pid);

            for (; (const char *)(r + 1) <= (const char *)chunk + size &&
                   time_wanted(p, options); r++) {
                if (event_wanted(options, r->event)) {
                    put_record(p, head, space, r, style);
                }
            }
        } else if (type == DATA_LOST && size >= sizeof(*lost)) {
            printf("# missed: %d/%d, %" PRIu64 " records\n", lost->pid,
                   lost->tid, lost->missed);
        } else if (all) {
            put_other(type, chunk, size, style);
        }
    }
    return output_written();
}

int cmd_script(int argc, char **argv)
{
    static const struct option longs[] = {
        { "all", no_argument, NULL, 'a' },
        { "perf-data", required_argument, NULL, OPTION_PERF_DATA },
        { "pprof", required_argument, NULL, OPTION_PPROF },
        { "branch-stack", no_argument, NULL, 'b' },
        { 0 },
    };
    bool all = false, branch_stack = false, ok;
    ProfileOptions options = { 0 };
    const char *perf_data = NULL, *pprof = NULL;
    int option;
    Profile p;

    argv[0] = "lwp script";
    while ((option = profile_getopt(argc, argv, "ab", longs, &options,
                                    help)) != -1) {
        if (option == 'a') {
            all = true;
        } else if (option == 'b') {
            branch_stack = true;
        } else if (option == OPTION_PERF_DATA) {
            perf_data = optarg;
        } else if (option == OPTION_PPROF) {
            pprof = optarg;
        } else {
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "lwp script: what is \"%s\"? See --help.\n",
                argv[optind]);
        return 2;
    }
    if (pprof ? !profile_load(&p, &options) : !profile_open(&p, &options)) {
        return 1;
    }
    if (pprof) {
        profile_missed(&p);
        errno = 0;
        ok = pprof_write(pprof, &p);
        if (!ok) {
            fprintf(stderr, "lwp: cannot write %s: %s\n", pprof,
                    strerror(errno));
        }
    } else if (perf_data) {
        profile_missed(&p);
        ok = write_perf_data(&p, &options, perf_data, branch_stack);
    } else {
        terminal_init();
        ok = script_put(&p, &options, all, TEXT_PLAIN);
    }
    profile_close(&p);
    return !ok;
}
