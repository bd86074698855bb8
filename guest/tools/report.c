/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lwp report: what a profile shows, as tables, JSON, folded lines or pictures.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "commands.h"
#include "names.h"
#include "report.h"
#include "terminal.h"

enum {
    OPTION_STDIO = OPTION_OWN,
    OPTION_JSON,
    OPTION_FOLDED,
    OPTION_SVG,
    OPTION_HTML,
    OPTION_LIMIT,
    OPTION_FULL_NAMES,
};

static const char help[] =
    "Usage: lwp report [OPTION]...\n"
    "Show what \"lwp record\" has recorded.\n\n"
    PROFILE_HELP
    "  -s, --sort KEYS        count by these instead, for example dso,symbol:\n"
    "                         comm,pid,tid,thread,cpu,dso,symbol,addr,srcline,inlined;\n"
    "                         bre: dso_to,symbol_to,addr_to,kind;\n"
    "                         dme: source,line,data,variable,sharers;\n"
    "                         val, ins: data1,data2,flags\n"
    "  -n, --top N            rows of each table (20)\n"
    "      --percent-limit P  all rows that have so much instead\n"
    "      --full-names       names whole, neither shortened nor cut\n"
    "      --stdio            tables (the default)\n"
    "      --json             everything, for programs\n"
    "      --folded           process;object;function and the number of "
    "records,\n"
    "                         for flame graph scripts\n"
    "      --svg[=FILE]       a picture\n"
    "      --html[=FILE]      a timeline of threads and a flame graph, for "
    "browsers\n";

static bool is_edge(const Profile *p, const Entry *e)
{
    (void)p;
    return e->flags & LWP_BRANCH_TKN &&
           (e->from != e->to || e->flags & ENTRY_START);
}

static bool is_known(const Profile *p, const Entry *e)
{
    (void)p;
    return e->flags & LWP_MISS_DAV;
}

static bool is_shared(const Profile *p, const Entry *e)
{
    (void)p;
    return e->flags & ENTRY_SHARED;
}

static bool is_inlined(const Profile *p, const Entry *e)
{
    Place place;

    if (!function_has_inlined((Function *)function_at(p, e->from))) {
        return false;
    }
    place = entry_from(p, e);
    return *place_inlined(&place);
}

#define ALL     (~0u)
#define VALUES  (LWP_FLAG(LWP_VAL) | LWP_FLAG_INT)

/* The tables of an event.  bit 31 of events is LWP_INS. */
typedef struct View {
    const char *name, *title;
    uint32_t events;
    const char *keys;
    const char *inner;      /* and more, of what rows consist of; or "" */
    bool (*filter)(const Profile *p, const Entry *e);
    bool boring;            /* if there is but one row */
} View;

#define LINE    "pid,line,data,sharers"

static const View views[] = {
    { "functions", "functions", ALL, "dso,symbol", "", NULL, false },
    { "inlined", "functions inside of others, the innermost first", ALL,
      "inlined,dso,symbol", "", is_inlined, false },
    { "edges", "branches from one function to another",
      LWP_FLAG(LWP_BRE), "kind,symbol,dso,symbol_to,dso_to", "", is_edge,
      false },
    { "branches", "branch instructions", LWP_FLAG(LWP_BRE),
      "dso,symbol,addr,srcline", "", NULL, false },
    { "sources", "where the data came from", LWP_FLAG(LWP_DME), "source", "",
      NULL, false },
    { "variables", "data", LWP_FLAG(LWP_DME), "variable", "", NULL, false },
    { "lines", "64-byte lines of data, and what loaded from them",
      LWP_FLAG(LWP_DME), LINE, LINE ",dso,symbol,addr,srcline", is_known,
      false },
    { "shared", "lines that several threads loaded from, and where",
      LWP_FLAG(LWP_DME), LINE, LINE ",tid,symbol,addr,srcline", is_shared,
      false },
    { "values", "values", VALUES, "flags,data1,data2,dso,symbol", "", NULL,
      false },
    { "processes", "processes", ALL, "pid,comm", "", NULL, true },
    { "threads", "threads", ALL, "pid,tid,thread,comm", "", NULL, true },
    { "cpus", "CPUs", ALL, "cpu", "", NULL, true },
};

static bool view_is_for(const View *view, int event)
{
    return view->events & (event_bit(event) ? event_bit(event) : 1);
}

static double quotient(uint64_t a, uint64_t b)
{
    return b ? (double)a / b : 0;
}

/* Per cent of the table's records. */
static double share(const Rows *rows, const Row *r)
{
    return 100 * quotient(r->count, rows->total);
}

static void put_numbers(const Rows *rows, int event, const Row *r)
{
    printf(" %s%6.2f%%%s %9" PRIu64, terminal_colour(share(rows, r)),
           share(rows, r), terminal_plain(), r->count);
    if (event == LWP_BRE) {
        printf("  %6.2f%%", 100 * quotient(r->taken, r->count));
        if (r->known) {
            printf("    %6.2f%%", 100 * quotient(r->predicted, r->known));
        } else {
            printf("    %7s", "-");
        }
    } else if (event == LWP_DME) {
        printf("  %7.1f  %7u", quotient(r->latency, r->count), r->latency_max);
    }
}

/* A line number stays when its file is cut.  The last column is not padded. */
static void put_column(const char *text, size_t width, bool last)
{
    const char *colon = strrchr(text, ':');
    size_t line = colon ? strlen(colon) : 0, n, room;
    char *file;

    printf("  ");
    room = terminal_width ? width : 0;
    if (line > 1 && strspn(colon + 1, "0123456789") == line - 1 &&
        line < room && text_columns(text) > room) {
        file = strndup(text, colon - text);
        n = put_text_cut(stdout, file ? file : "", TEXT_PLAIN, room - line);
        n += printf("%s", colon);
        free(file);
    } else {
        n = put_text_cut(stdout, text, TEXT_PLAIN, room);
    }
    if (!last && n < width) {
        printf("%*s", (int)(width - n), "");
    }
}

static void put_keys(const Rows *rows, const Row *r, int from, int to,
                     const size_t *width)
{
    char buffer[ROW_TEXT];

    for (int k = from; k < to; k++) {
        put_column(row_name(rows, r, k, buffer), width[k], k + 1 == to);
    }
    printf("\n");
}

enum {
    WIDE = 60,              /* what longer names need is not kept free */
    NARROW = 6,             /* columns that a cut name keeps */
};

/* Columns from the FIRST on have to fit into the terminal: names give way. */
static void fit(const Rows *rows, int first, size_t numbers, size_t *width)
{
    size_t sum = numbers;
    int widest = first;

    for (int k = first; k < rows->nr_keys; k++) {
        if (!terminal_width && width[k] > WIDE) {
            width[k] = WIDE;
        }
        sum += width[k] + 2;
    }
    while (terminal_width && sum > terminal_width && widest >= 0) {
        widest = -1;
        for (int k = first; k < rows->nr_keys; k++) {
            if (rows->keys[k]->type < KEY_NUMBER && width[k] > NARROW &&
                (widest < 0 || width[k] > width[widest])) {
                widest = k;
            }
        }
        if (widest >= 0) {
            width[widest]--;
            sum--;
        }
    }
}

/* Columns from the FIRST on have to fit behind so many others. */
static void find_widths(const Rows *rows, int first, size_t numbers,
                        size_t *width)
{
    char buffer[ROW_TEXT];

    for (int k = first; k < rows->nr_keys; k++) {
        width[k] = strlen(rows->keys[k]->title);
        for (size_t i = 0; i < rows->count; i++) {
            size_t length = text_columns(row_name(rows, &rows->rows[i], k,
                                                  buffer));

            width[k] = length > width[k] ? length : width[k];
        }
    }
    fit(rows, first, numbers, width);
}

/* INNER, if there are any, are what the rows consist of. */
static void put_table(int event, const Rows *rows, const Rows *inner,
                      const char *title, double limit, size_t top)
{
    /* What put_numbers() needs. */
    const size_t numbers = event == LWP_BRE ? 38 : event == LWP_DME ? 36 : 18;
    size_t width[MAX_KEYS], next = 0;
    uint64_t shown = 0;

    printf("\n# %s: %s", event_name(event), title);
    if (!rows->count) {
        printf(": each of the %zu rows has less than %.10g%%\n", rows->all,
               limit);
        return;
    }
    find_widths(rows, 0, numbers, width);
    if (inner) {
        find_widths(inner, rows->nr_keys, numbers + 4, width);
    }
    printf("\n#\n# %5s%% %9s", "", "Records");
    printf("%s", event == LWP_BRE ? "    Taken  Predicted" :
           event == LWP_DME ? "  Latency  Maximum" : "");
    for (int k = 0; k < rows->nr_keys; k++) {
        put_column(rows->keys[k]->title, width[k], k + 1 == rows->nr_keys);
    }
    printf("\n#\n");
    for (size_t i = 0; i < rows->count; i++) {
        const Row *r = &rows->rows[i];

        shown += r->count;
        put_numbers(rows, event, r);
        put_keys(rows, r, 0, rows->nr_keys, width);
        for (size_t n = 0; inner && next < inner->count &&
                           inner->rows[next].group == i + 1; next++, n++) {
            r = &inner->rows[next];
            if (share(inner, r) >= limit && n < top) {
                put_numbers(inner, event, r);
                printf("    ");
                put_keys(inner, r, rows->nr_keys, inner->nr_keys, width);
            }
        }
    }
    if (rows->all > rows->count) {
        printf("# and %zu more, with %.2f%% in all\n", rows->all - rows->count,
               100 * quotient(rows->total - shown, rows->total));
    }
}

static void count_sums(const Profile *p, int event, uint64_t *records,
                       uint64_t *counted)
{
    *records = *counted = 0;
    for (size_t i = 0; event <= LWP_NR_EVENTS && i < p->threads.count; i++) {
        const Thread *t = table_at(&p->threads, i);

        *records += t->counts.records[event - 1];
        *counted += t->counts.events[event - 1];
    }
}

static void put_header(const Profile *p)
{
    const DataHeader *h = &p->header;
    time_t when = p->header.time;
    size_t programs = 0;
    char text[64];
    struct tm tm;

    printf("# command: ");
    put_text(stdout, p->header.command, TEXT_PLAIN);
    if (localtime_r(&when, &tm) &&
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %z", &tm)) {
        printf("\n# recorded: %s\n", text);
    }
    if (h->version) {
        printf("# with lwp ");
        put_text(stdout, h->tool, TEXT_PLAIN);
        printf(", CPUs: %u, ring of a thread: %u records, until %.3f s after "
               "the start\n", h->cpus, h->ring, profile_seconds(p));
    }
    for (size_t i = 0; i < p->nr_spaces; i++) {
        programs += !p->spaces[i].again;
    }
    printf("# programs: %zu, threads: %zu\n", programs, p->threads.count);
    if (p->header.filters) {
        printf("# filters: 0x%08x", p->header.filters);
        if (p->header.filters >> 31) {
            printf(", IP %s 0x%" PRIx64 "..0x%" PRIx64,
                   p->header.filters >> 30 & 1 ? "not in" : "in",
                   p->header.base_ip, p->header.limit_ip);
        }
        printf("\n");
    }
    for (int event = 1; event < 256; event++) {
        uint64_t records, counted;

        if (!p->records[event]) {
            continue;
        }
        printf("# %s: %" PRIu64 " records of %s", event_name(event),
               p->records[event], event_title(event));
        if (event <= LWP_NR_EVENTS) {
            printf(", one for every %.10g", event_period(p, event));
            count_sums(p, event, &records, &counted);
            /* Not if the recorder was killed before all threads ended. */
            if (counted && records == p->records[event]) {
                printf("; %" PRIu64 " were counted", counted);
            } else {
                printf("; about %.0f",
                       p->records[event] * event_period(p, event));
            }
        }
        printf("\n");
    }
    if (p->unprofiled) {
        printf("#\n# WARNING: %" PRIu64 " threads were not profiled; lwp "
               "script -a tells why.\n", p->unprofiled);
    }
    if (p->missed) {
        uint64_t stored = 0;

        for (int event = 1; event < 256; event++) {
            stored += p->records[event];
        }
        printf("#\n# WARNING: %" PRIu64 " records were missed (%.2f%%), as "
               "the ring was full.\n# Shares are those of what was stored.\n",
               p->missed, 100 * quotient(p->missed, p->missed + stored));
    }
}

static void put_json_text(const char *name, const char *text)
{
    printf("\"%s\": \"", name);
    put_text(stdout, text, TEXT_JSON);
    printf("\"");
}

static void put_json_row(const Profile *p, int event, const Rows *rows,
                         const Row *r, int from, int to)
{
    char buffer[ROW_TEXT];

    printf("{ ");
    for (int k = from; k < to; k++) {
        const Key *key = rows->keys[k];

        if (key->type == KEY_NUMBER) {
            printf("\"%s\": %" PRId64, key->name, row_id(rows, r, k));
        } else if (key->type == KEY_PATH) {
            put_json_text(key->name, (char *)(uintptr_t)row_id(rows, r, k));
        } else {
            put_json_text(key->name, row_text(rows, r, k, buffer));
        }
        printf(", ");
    }
    printf("\"records\": %" PRIu64 ", \"share\": %.4f, \"events\": %.0f",
           r->count, share(rows, r),
           r->count * event_period(p, event));
    if (event == LWP_BRE) {
        printf(", \"taken\": %" PRIu64 ", \"predictions\": %" PRIu64
               ", \"predicted\": %" PRIu64, r->taken, r->known, r->predicted);
    } else if (event == LWP_DME) {
        printf(", \"latency\": %.4f, \"latency_min\": %u, \"latency_max\": %u",
               quotient(r->latency, r->count), r->latency_min, r->latency_max);
    }
}

static void put_json_rows(const Profile *p, int event, const Rows *rows,
                          const Rows *inner, const char *name)
{
    size_t next = 0;

    printf(",\n      \"%s\": [", name);
    for (size_t i = 0; i < rows->count; i++) {
        printf("%s\n        ", i ? "," : "");
        put_json_row(p, event, rows, &rows->rows[i], 0, rows->nr_keys);
        if (inner) {
            printf(", \"instructions\": [");
            for (const char *comma = ""; next < inner->count &&
                 inner->rows[next].group == i + 1; next++, comma = ",") {
                printf("%s\n          ", comma);
                put_json_row(p, event, inner, &inner->rows[next],
                             rows->nr_keys, inner->nr_keys);
                printf(" }");
            }
            printf(" ]");
        }
        printf(" }");
    }
    printf(" ]");
}

static void put_json_header(const Profile *p)
{
    const DataHeader *h = &p->header;
    const char *separator = "";

    printf("{\n  \"format\": \"lwp report\",\n  \"version\": 1,\n  ");
    put_json_text("command", h->command);
    printf(",\n  \"lwp\": \"");
    put_text(stdout, h->tool, TEXT_JSON);
    printf("\",\n  \"cpus\": %u,\n  \"ring\": %u,\n  \"seconds\": %.6f",
           h->cpus, h->ring, profile_seconds(p));
    printf(",\n  \"time\": %" PRIu64 ",\n  \"cpuid\": [\"0x%08x\", "
           "\"0x%08x\", \"0x%08x\", \"0x%08x\"],\n  \"flags\": \"0x%08x\",\n"
           "  \"filters\": \"0x%08x\",\n  \"random\": %u,\n"
           "  \"base_ip\": \"0x%" PRIx64 "\",\n  \"limit_ip\": \"0x%" PRIx64
           "\",\n  \"missed\": %" PRIu64 ",\n  \"unprofiled\": %" PRIu64
           ",\n  \"programs\": [",
           h->time, h->cpuid[0], h->cpuid[1], h->cpuid[2], h->cpuid[3],
           h->flags, h->filters, h->random, h->base_ip, h->limit_ip,
           p->missed, p->unprofiled);
    for (size_t i = 0; i < p->nr_spaces; i++) {
        const Space *s = &p->spaces[i];

        if (!s->again) {
            printf("%s\n    { \"pid\": %d, \"ppid\": %d, \"bits\": %u, ",
                   separator, s->pid, s->ppid, s->bits);
            put_json_text("comm", s->comm);
            printf(" }");
            separator = ",";
        }
    }
    printf(" ],\n  \"threads\": [");
    for (size_t i = 0; i < p->threads.count; i++) {
        const Thread *t = table_at(&p->threads, i);

        printf("%s\n    { \"pid\": %d, \"tid\": %d, ", i ? "," : "", t->pid,
               t->tid);
        put_json_text("name", t->name);
        printf(", \"missed\": %" PRIu64, t->missed);
        for (int e = 1; e <= LWP_NR_EVENTS; e++) {
            if (t->counts.events[e - 1]) {
                printf(", \"%s\": %" PRIu64, event_name(e),
                       t->counts.events[e - 1]);
            }
        }
        printf(" }");
    }
    printf(" ],\n  \"events\": [");
}

/* All tables of an event, or that of --sort. */
static void put_event(const Profile *p, int event, const char *sort, bool json,
                      double limit, size_t top)
{
    const View sorted = { "rows", sort, ALL, sort, "", NULL, false };

    for (size_t v = 0; v < sizeof(views) / sizeof(*views); v++) {
        const View *view = sort ? &sorted : &views[v];
        Rows rows, inner;

        if ((sort && v) || !view_is_for(view, event)) {
            continue;
        }
        rows_keys(&rows, view->keys);
        if (!rows_are_for(&rows, event)) {
            continue;
        }
        rows_fill(&rows, p, event, view->filter, limit, top);
        rows_keys(&inner, view->inner);
        if (inner.nr_keys) {
            rows_fill_inner(&inner, &rows, event, view->filter);
        }
        if (json) {
            put_json_rows(p, event, &rows, inner.nr_keys ? &inner : NULL,
                          view->name);
        } else if (rows.all > view->boring) {
            put_table(event, &rows, inner.nr_keys ? &inner : NULL, view->title,
                      limit, top);
        }
        rows_free(&inner);
        rows_free(&rows);
    }
}

static void put_json(const Profile *p, const char *sort, double limit)
{
    const char *separator = "";

    put_json_header(p);
    for (int event = 1; event < 256; event++) {
        uint64_t records, counted;

        if (!p->records[event]) {
            continue;
        }
        printf("%s\n    { \"event\": \"%s\", \"id\": %d, \"records\": %" PRIu64,
               separator, event_name(event), event, p->records[event]);
        separator = ",";
        if (event <= LWP_NR_EVENTS) {
            count_sums(p, event, &records, &counted);
            printf(", \"interval\": %u, \"period\": %.1f, \"counted\": %"
                   PRIu64 ", \"counted_records\": %" PRIu64,
                   p->header.interval[event - 1], event_period(p, event),
                   counted, records);
        }
        put_event(p, event, sort, true, limit, SIZE_MAX);
        printf(" }");
    }
    printf(" ]\n}\n");
}

/* Of one event, as the records of several do not add up to anything. */
static void put_folded(const Profile *p)
{
    static const uint8_t order[] = {
        LWP_IRE, LWP_CNH, LWP_RNH, LWP_BRE, LWP_DME, LWP_VAL, LWP_INS,
    };
    int event = 0, others = 0;
    Rows rows;

    for (size_t i = 0; i < sizeof(order); i++) {
        if (p->records[order[i]]) {
            others += !!event;
            event = event ? event : order[i];
        }
    }
    if (!event) {
        return;
    }
    if (others) {
        fprintf(stderr, "lwp: this is %s; use -e for others\n",
                event_name(event));
    }
    rows_keys(&rows, "comm,dso,symbol");
    rows_fill(&rows, p, event, NULL, 0, SIZE_MAX);
    for (size_t i = 0; i < rows.count; i++) {
        const Row *r = &rows.rows[i];
        char buffer[ROW_TEXT];

        for (int k = 0; k < 3; k++) {
            put_text(stdout, row_text(&rows, r, k, buffer), TEXT_FOLDED);
            printf("%s", k < 2 ? ";" : "");
        }
        printf(" %" PRIu64 "\n", r->count);
    }
    rows_free(&rows);
}

static bool put_svg(const Profile *p, const char *path)
{
    FILE *f = path ? fopen(path, "we") : stdout;

    if (!f) {
        fprintf(stderr, "lwp: cannot write %s: %s\n", path, strerror(errno));
        return false;
    }
    svg_write(f, p);
    if (path && fclose(f)) {
        fprintf(stderr, "lwp: cannot write %s: %s\n", path, strerror(errno));
        return false;
    }
    return true;
}

static bool put_html(const ProfileOptions *options, const char *path)
{
    Profile p;
    bool ok;

    if (!profile_open(&p, options)) {
        return false;
    }
    ok = html_put(&p, options, path) && output_written();
    profile_close(&p);
    return ok;
}

int cmd_report(int argc, char **argv)
{
    static const struct option longs[] = {
        { "sort", required_argument, NULL, 's' },
        { "top", required_argument, NULL, 'n' },
        { "percent-limit", required_argument, NULL, OPTION_LIMIT },
        { "full-names", no_argument, NULL, OPTION_FULL_NAMES },
        { "stdio", no_argument, NULL, OPTION_STDIO },
        { "json", no_argument, NULL, OPTION_JSON },
        { "folded", no_argument, NULL, OPTION_FOLDED },
        { "svg", optional_argument, NULL, OPTION_SVG },
        { "html", optional_argument, NULL, OPTION_HTML },
        { 0 },
    };
    const char *sort = NULL, *picture = NULL;
    ProfileOptions options = { 0 };
    int option, mode = OPTION_STDIO, sortable = 0, others = 0;
    size_t top = 20;
    double limit = -1;
    bool ok = true;
    Profile p;
    Rows rows;
    char *end, behind;

    argv[0] = "lwp report";
    while ((option = profile_getopt(argc, argv, "s:n:", longs, &options,
                                    help)) != -1) {
        switch (option) {
        case 's':
            sort = optarg;
            if (!rows_keys(&rows, sort)) {
                return 2;
            }
            break;
        case 'n':
            if (sscanf(optarg, "%zu%c", &top, &behind) != 1 || !top ||
                *optarg == '-') {
                fprintf(stderr, "lwp: %s is no number of rows\n", optarg);
                return 2;
            }
            break;
        case OPTION_LIMIT:
            limit = strtod(optarg, &end);
            if (end == optarg || *end || !(limit >= 0 && limit <= 100)) {
                fprintf(stderr, "lwp: %s is no percentage\n", optarg);
                return 2;
            }
            top = SIZE_MAX;
            break;
        case OPTION_FULL_NAMES:
            names_full = true;
            break;
        case OPTION_SVG:
        case OPTION_HTML:
            picture = optarg;
            /* fallthrough */
        case OPTION_STDIO:
        case OPTION_JSON:
        case OPTION_FOLDED:
            mode = option;
            break;
        default:
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "lwp report: what is \"%s\"? See --help.\n",
                argv[optind]);
        return 2;
    }
    if (mode == OPTION_HTML) {
        return !put_html(&options, picture);
    }
    if (!profile_load(&p, &options)) {
        return 1;
    }
    if (mode == OPTION_STDIO) {
        terminal_init();
    }
    for (int event = 1; sort && event < 256; event++) {
        if (p.records[event]) {
            sortable += rows_are_for(&rows, event);
            others++;
        }
    }
    if (sort && others && !sortable) {
        fprintf(stderr, "lwp: no event of the profile has all of %s\n", sort);
        ok = false;
    }
    if (mode == OPTION_JSON) {
        put_json(&p, sort, limit < 0 ? 0 : limit);
    } else if (mode == OPTION_FOLDED) {
        profile_missed(&p);
        put_folded(&p);
    } else if (mode == OPTION_SVG) {
        ok = put_svg(&p, picture);
    } else {
        put_header(&p);
        for (int event = 1; event < 256; event++) {
            if (p.records[event]) {
                put_event(&p, event, sort, false, limit < 0 ? 0 : limit, top);
            }
        }
    }
    if (mode != OPTION_JSON && !p.entries.count) {
        fprintf(stderr, "lwp: there are no records; a program that is shorter "
                "than a period wants a shorter one: lwp record -c 1000\n");
    }
    ok = output_written() && ok;
    profile_close(&p);
    return !ok;
}
