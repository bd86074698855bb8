/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a file of "lwp record" says, with names: for report, annotate, script.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "profile.h"

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
        if (!space_chunk(p, type, chunk, size)) {
            add_counts(p, options, type, chunk, size);
        }
    }
    if (data_damaged(p->reader)) {
        fprintf(stderr, "lwp: %s is cut off or damaged; this is what comes "
                "before\n", path);
    }
    spaces_complete(p);
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

Thread *profile_thread(Profile *p, int32_t pid, int32_t tid)
{
    const int32_t key[] = { pid, tid };

    return table_get(&p->threads, key);
}
