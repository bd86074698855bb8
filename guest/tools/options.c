/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The command lines of "lwp record" and "lwp stat".
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "events.h"
#include "recorder.h"

enum {
    PAGE = 4096,
    PAGES = 128,            /* of a ring, if not chosen */
    TICK_PERIOD = 10007,    /* what counts in between are exact to */
};

static bool parse_number(const char *text, uint64_t *value, const char **end)
{
    int64_t number;
    int length;

    if (sscanf(text, "%" SCNi64 "%n", &number, &length) != 1 || number < 0) {
        return false;
    }
    *value = number;
    *end = text + length;
    return true;
}

static bool parse_period(const char *text, uint32_t *period)
{
    const char *end;
    uint64_t value;

    if (!parse_number(text, &value, &end) || *end || value < 1 ||
        value > LWP_MAX_PERIOD) {
        return false;
    }
    *period = value;
    return true;
}

/* "ire,bre=1009": names, and periods of their own. */
static bool parse_events(Recorder *r, char *list, uint32_t *own)
{
    r->config.options.events = 0;
    for (char *name; (name = strsep(&list, ",")); ) {
        char *value = strchr(name, '=');
        int event;

        if (value) {
            *value++ = 0;
        }
        event = event_find(name, strlen(name));
        if (!event) {
            say(r, "there is no event \"%s\"", name);
            return false;
        }
        if (event > LWP_NR_EVENTS) {
            say(r, "\"%s\" is recorded in any case, and has no counter",
                name);
            return false;
        }
        if (value && r->stat) {
            say(r, "\"%s=%s\": periods are for lwp record", name, value);
            return false;
        }
        if (value && !parse_period(value, &own[event - 1])) {
            say(r, "the period \"%s\" is not 1 to %u", value, LWP_MAX_PERIOD);
            return false;
        }
        r->config.options.events |= LWP_FLAG(event);
    }
    r->asked = r->config.options.events;
    return true;
}

/* Names of Figure 6-3, "latency=CYCLES", "ip=FIRST-LAST" and "!ip=...". */
static bool parse_filter(const Recorder *r, LwpOptions *o, const char *name)
{
    static const struct {
        const char *name;
        uint32_t bits;
    } names[] = {
        { "nbc", LWP_FILTER_CLF | LWP_FILTER_NBC },
        { "rdc", LWP_FILTER_CLF | LWP_FILTER_RDC },
        { "ram", LWP_FILTER_CLF | LWP_FILTER_RAM },
        { "oth", LWP_FILTER_CLF | LWP_FILTER_OTH },
        { "nmb", LWP_FILTER_NMB },
        { "npb", LWP_FILTER_NPB },
        { "nab", LWP_FILTER_NAB },
        { "ncb", LWP_FILTER_NCB },
        { "nrb", LWP_FILTER_NRB },
    };
    bool invert = *name == '!';
    const char *end;
    uint64_t value;

    if (!strncmp(name + invert, "ip=", 3)) {
        if (!parse_number(name + invert + 3, &o->base_ip, &end) ||
            *end != '-' || !parse_number(end + 1, &o->limit_ip, &end) ||
            *end || o->base_ip > o->limit_ip) {
            say(r, "the filter \"%s\" has no addresses FIRST-LAST", name);
            return false;
        }
        o->filters |= LWP_FILTER_IPF | (invert ? LWP_FILTER_IPI : 0);
        return true;
    }
    if (!strncmp(name, "latency=", 8)) {
        if (!parse_number(name + 8, &value, &end) || *end || value < 16 ||
            value / 16 > LWP_FILTER_LATENCY) {
            say(r, "the filter \"%s\" is not for 16 to %u cycles", name,
                16 * LWP_FILTER_LATENCY);
            return false;
        }
        if (value % 16) {
            say(r, "\"%s\" becomes latency=%u: the CPU compares with "
                "multiples of 16", name, (unsigned)value & ~15u);
        }
        o->filters &= ~LWP_FILTER_LATENCY;
        o->filters |= value / 16;
        return true;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!strcmp(name, names[i].name)) {
            o->filters |= names[i].bits;
            return true;
        }
    }
    say(r, "there is no filter \"%s\"; see lwp record --help", name);
    return false;
}

static bool parse_filters(const Recorder *r, LwpOptions *o, char *list)
{
    for (char *name; (name = strsep(&list, ",")); ) {
        if (!parse_filter(r, o, name)) {
            return false;
        }
    }
    return true;
}

/* A number of this range, in the units of WHAT. */
static bool parse_range(const Recorder *r, const char *text, uint64_t low,
                        uint64_t high, const char *what, uint64_t *value)
{
    const char *end;

    if (!parse_number(text, value, &end) || *end || *value < low ||
        *value > high) {
        say(r, "\"%s\" is not %" PRIu64 " to %" PRIu64 " %s", text, low, high,
            what);
        return false;
    }
    return true;
}

static void record_usage(FILE *f)
{
    fprintf(f, "usage: lwp record [OPTION...] [--] COMMAND [ARGUMENT...]\n\n"
"Run a command and write the profile of all its threads and children.\n\n"
"  -e, --event LIST    events, by commas, each with a period if wanted:\n"
"                      ire,bre=1009; those that are available of\n");
    for (int i = 1; i <= LWP_NR_EVENTS; i++) {
        fprintf(f, "                        %s  %-13s  one record for %u\n",
                events[i].name, events[i].long_name, events[i].period);
    }
    fprintf(f,
"                      (ire if not given)\n"
"  -c, --count N       one record for N events: 1 to %u\n"
"  -r, --random BITS   let so many low bits of the period vary: 0 to 15\n"
"  -f, --filter LIST   count only some: no branches that are predicted (npb),\n"
"                      mispredicted (nmb), conditional (ncb), indirect (nab)\n"
"                      or other (nrb); misses served by a northbridge cache\n"
"                      (nbc), remote cache (rdc), memory (ram), other (oth);\n"
"                      misses of latency=CYCLES or more; instructions in\n"
"                      ip=FIRST-LAST or outside of it, !ip=FIRST-LAST\n"
"  -m, --mmap-pages N  4 KiB pages of each thread's ring (%u)\n"
"  -o, --output FILE   instead of %s\n"
"  -v, --verbose       tell of each thread\n"
"  -h, --help          this text\n", LWP_MAX_PERIOD, PAGES,
            DATA_DEFAULT);
}

static void stat_usage(FILE *f)
{
    fprintf(f, "usage: lwp stat [OPTION...] [--] COMMAND [ARGUMENT...]\n\n"
"Run a command and count the events of all its threads and children.\n\n"
"  -e, --event LIST    events, by commas; those that are available of\n"
"                      val,ire,bre,dme,cnh,rnh (all if not given)\n"
"  -f, --filter LIST   count only some: see lwp record --help\n"
"  -m, --mmap-pages N  4 KiB pages of each thread's ring (%u)\n"
"  -r, --repeat N      run it N times: mean and deviation\n"
"  -I, --interval-print MS\n"
"                      also what was counted in each MS milliseconds\n"
"  -j, --json          as one JSON object\n"
"  -x, --field-separator TEXT\n"
"                      as lines for programs, with TEXT between fields\n"
"  -o, --output FILE   instead of standard error\n"
"  -v, --verbose       tell of each thread\n"
"  -h, --help          this text\n", PAGES);
}

/* -1: go on; otherwise the program's exit status. */
int parse_options(Recorder *r, int argc, char **argv)
{
    static const struct option long_options[] = {
        { "event", required_argument, NULL, 'e' },
        { "count", required_argument, NULL, 'c' },
        { "repeat", required_argument, NULL, 'R' },
        { "interval-print", required_argument, NULL, 'I' },
        { "field-separator", required_argument, NULL, 'x' },
        { "random", required_argument, NULL, 'r' },
        { "filter", required_argument, NULL, 'f' },
        { "mmap-pages", required_argument, NULL, 'm' },
        { "output", required_argument, NULL, 'o' },
        { "json", no_argument, NULL, 'j' },
        { "verbose", no_argument, NULL, 'v' },
        { "help", no_argument, NULL, 'h' },
        { }
    };
    LwpOptions *o = &r->config.options;
    uint32_t own[LWP_NR_EVENTS] = { 0 };
    uint32_t all = 0;
    uint64_t number;
    int c;

    o->events = r->stat ? LWP_FLAG(LWP_NR_EVENTS + 1) - LWP_FLAG(LWP_VAL) :
                LWP_FLAG(LWP_IRE);
    o->records = PAGES * (PAGE / sizeof(LwpRecord));
    while ((c = getopt_long(argc, argv, r->stat ? "+e:r:I:x:f:m:o:jvh" :
                            "+e:c:r:f:m:o:vh", long_options, NULL)) != -1) {
        /* A long name may be of the other command. */
        if (r->stat ? c == 'c' : c == 'j' || c == 'I' || c == 'x' || c == 'R') {
            say(r, "-%c is not an option of this command", c == 'R' ? 'r' : c);
            return 2;
        }
        if (r->stat && c == 'r') {
            c = 'R';
        }
        switch (c) {
        case 'e':
            if (!parse_events(r, optarg, own)) {
                return 2;
            }
            break;
        case 'c':
            if (!parse_period(optarg, &all)) {
                say(r, "the period \"%s\" is not 1 to %u", optarg,
                    LWP_MAX_PERIOD);
                return 2;
            }
            break;
        case 'r':
            if (!parse_range(r, optarg, 0, 15, "bits", &number)) {
                return 2;
            }
            o->random = number;
            break;
        case 'R':
            if (!parse_range(r, optarg, 1, 1000000, "runs", &number)) {
                return 2;
            }
            r->repeat = number;
            break;
        case 'I':
            if (!parse_range(r, optarg, 10, 1000000000, "milliseconds",
                             &number)) {
                return 2;
            }
            r->tick_ms = number;
            break;
        case 'x':
            r->separator = optarg;
            break;
        case 'f':
            if (!parse_filters(r, o, optarg)) {
                return 2;
            }
            break;
        case 'm':
            /* BufferSize has 28 bits. */
            if (!parse_range(r, optarg, 1, (1u << 28) / PAGE - 1, "pages",
                             &number)) {
                return 2;
            }
            o->records = number * (PAGE / sizeof(LwpRecord));
            break;
        case 'o':
            r->output = optarg;
            break;
        case 'j':
            r->json = true;
            break;
        case 'v':
            r->verbose++;
            break;
        case 'h':
            (r->stat ? stat_usage : record_usage)(stdout);
            return 0;
        default:
            return 2;
        }
    }
    if (r->tick_ms && (r->repeat > 1 || r->json)) {
        say(r, "-I is not for -r and -j");
        return 2;
    }
    if (r->json && (r->repeat > 1 || r->separator)) {
        say(r, "-j is not for -r and -x");
        return 2;
    }
    if (optind == argc) {
        (r->stat ? stat_usage : record_usage)(stderr);
        return 2;
    }
    r->command = argv + optind;
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        const Event *e = &events[i + 1];

        o->period[i] = r->stat && r->tick_ms ? TICK_PERIOD :
                       r->stat ? e->stat_period : own[i] ? own[i] :
                       all ? all : e->period;
    }
    o->threshold = o->records / 2;
    return -1;
}
