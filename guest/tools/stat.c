/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * "lwp stat": how many events a command had.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "commands.h"
#include "events.h"
#include "recorder.h"
#include "text.h"

static double ratio(uint64_t a, uint64_t b)
{
    return b ? (double)a / b : 0;
}

static double seconds(struct timeval t)
{
    return t.tv_sec + t.tv_usec / 1e6;
}

static bool shown(const Recorder *r, int event)
{
    /* Few programs have LWPVAL. */
    return r->enabled & LWP_FLAG(event) &&
           (event != LWP_VAL || r->asked || r->counts[LWP_VAL - 1]);
}

static void print_json(const Recorder *r, FILE *f)
{
    uint64_t instructions = r->counts[LWP_IRE - 1];
    bool more = false;

    fprintf(f, "{\"format\": \"lwp stat\", \"version\": 2, \"command\": [");
    for (char **arg = r->command; *arg; arg++) {
        fprintf(f, "%s\"", arg == r->command ? "" : ", ");
        put_text(f, *arg, TEXT_JSON);
        fputc('"', f);
    }
    fprintf(f, "], \"status\": %d, \"threads\": %u, \"processes\": %u, "
            "\"unfinished\": %u, \"missed\": %" PRIu64 ", \"elapsed\": %.6f, "
            "\"user\": %.6f, \"system\": %.6f, \"events\": {", r->status,
            r->nr_threads, r->nr_processes, r->unfinished, r->missed,
            r->seconds, seconds(r->usage.ru_utime),
            seconds(r->usage.ru_stime));
    for (int event = 1; event <= LWP_NR_EVENTS; event++) {
        uint64_t count = r->counts[event - 1];

        if (!shown(r, event)) {
            continue;
        }
        fprintf(f, "%s\"%s\": {\"count\": %" PRIu64, more ? ", " : "",
                event_name(event), count);
        if (instructions && event != LWP_IRE) {
            fprintf(f, ", \"per_1000_instructions\": %.6g",
                    1000 * ratio(count, instructions));
        }
        if (r->branches && event == LWP_BRE) {
            fprintf(f, ", \"sampled\": %" PRIu64 ", \"mispredicted\": %"
                    PRIu64, r->branches, r->mispredicted);
        }
        fputc('}', f);
        more = true;
    }
    fprintf(f, "}}\n");
}

/* A number with commas, as people read it. */
static void put_count(FILE *f, uint64_t count)
{
    char digits[24], text[32];
    int length = sprintf(digits, "%" PRIu64, count), n = 0;

    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) {
            text[n++] = ',';
        }
        text[n++] = digits[i];
    }
    fprintf(f, "%20.*s", n, text);
}

/* Of several runs. */
typedef struct Sums {
    unsigned runs;
    double sum[LWP_NR_EVENTS + 1], square[LWP_NR_EVENTS + 1]; /* [0]: seconds */
} Sums;

static void add_run(Sums *s, const Recorder *r)
{
    s->runs++;
    for (int i = 0; i <= LWP_NR_EVENTS; i++) {
        double value = i ? r->counts[i - 1] : r->seconds;

        s->sum[i] += value;
        s->square[i] += value * value;
    }
}

/* Standard deviation of the mean, in per cent of it. */
static double deviation(const Sums *s, int i)
{
    double mean = s->sum[i] / s->runs;
    double variance = s->runs > 1 ? (s->square[i] - s->runs * mean * mean) /
                                    (s->runs - 1) : 0;

    return mean > 0 && variance > 0 ?
           100 * sqrt(variance / s->runs) / mean : 0;
}

static void print_header(const Recorder *r, FILE *f, unsigned runs)
{
    fprintf(f, "\n Events of '");
    for (char **arg = r->command; *arg; arg++) {
        fprintf(f, "%s", arg == r->command ? "" : " ");
        put_text(f, *arg, TEXT_PLAIN);
    }
    fprintf(f, "' (threads: %u, processes: %u", r->nr_threads,
            r->nr_processes);
    if (runs > 1) {
        fprintf(f, ", the means of %u runs", runs);
    }
    fprintf(f, "):\n\n");
}

static void print_table(const Recorder *r, FILE *f, const Sums *s)
{
    double instructions = s->sum[LWP_IRE] / s->runs;

    print_header(r, f, s->runs);
    for (int event = 1; event <= LWP_NR_EVENTS; event++) {
        double count = s->sum[event] / s->runs;

        if (!shown(r, event)) {
            continue;
        }
        put_count(f, count + 0.5);
        fprintf(f, "  %s  %-16s", event_name(event), events[event].long_name);
        if (s->runs > 1) {
            fprintf(f, "  +- %5.2f%%", deviation(s, event));
        }
        if (instructions && event == LWP_IRE && s->sum[LWP_CNH]) {
            fprintf(f, "  # %10.2f per cycle",
                    s->sum[LWP_IRE] / s->sum[LWP_CNH]);
        } else if (instructions && event != LWP_IRE) {
            fprintf(f, "  # %10.2f per 1000 instructions",
                    1000 * count / instructions);
        }
        if (r->branches && event == LWP_BRE) {
            fprintf(f, "\n%20s       %-16s  # %10.2f %% of branches, by a "
                    "sample of %" PRIu64, "", "branch-misses",
                    100 * ratio(r->mispredicted, r->branches), r->branches);
        }
        fputc('\n', f);
    }
    fprintf(f, "\n%20.6f seconds elapsed", s->sum[0] / s->runs);
    if (s->runs > 1) {
        fprintf(f, "  +- %.2f%%", deviation(s, 0));
    }
    fprintf(f, "\n%20.6f seconds user\n%20.6f seconds system\n\n",
            seconds(r->usage.ru_utime), seconds(r->usage.ru_stime));
}

/* count, event, deviation if there are several runs. */
static void print_fields(const Recorder *r, FILE *f, const Sums *s)
{
    for (int event = 1; event <= LWP_NR_EVENTS; event++) {
        if (!shown(r, event)) {
            continue;
        }
        fprintf(f, "%.0f%s%s", s->sum[event] / s->runs, r->separator,
                event_name(event));
        if (s->runs > 1) {
            fprintf(f, "%s%.2f%%", r->separator, deviation(s, event));
        }
        fputc('\n', f);
    }
}

static FILE *output;            /* that tick() writes to */

/* What was counted since the last time. */
static void tick(Recorder *r)
{
    static uint64_t last[LWP_NR_EVENTS];
    double time = now() - r->start;

    for (int event = 1; event <= LWP_NR_EVENTS; event++) {
        uint64_t count = counted(r, event);
        uint64_t news = count > last[event - 1] ? count - last[event - 1] : 0;

        last[event - 1] = count;
        if (!shown(r, event)) {
            continue;
        }
        if (r->separator) {
            fprintf(output, "%.6f%s%" PRIu64 "%s%s\n", time, r->separator,
                    news, r->separator, event_name(event));
        } else {
            fprintf(output, "%12.6f ", time);
            put_count(output, news);
            fprintf(output, "  %s  %s\n", event_name(event),
                    events[event].long_name);
        }
    }
    fflush(output);
}

/* Run it so often; stop when it could not be run. */
static bool run_all(Recorder *r, Sums *s)
{
    unsigned runs = r->repeat ? r->repeat : 1;

    for (unsigned i = 0; i < runs; i++) {
        if (i) {
            prepare_again(r);
        }
        if (!run(r)) {
            return false;
        }
        explain(r);
        if (!r->nr_threads) {
            break;
        }
        add_run(s, r);
        if (r->signal) {
            break;
        }
    }
    return true;
}

static int count(Recorder *r)
{
    Sums sums = { 0 };
    bool ok;

    output = r->output ? fopen(r->output, "we") : stderr;
    if (!output) {
        say(r, "cannot write %s: %s", r->output, strerror(errno));
        return 1;
    }
    r->tick = tick;
    ok = run_all(r, &sums);
    if (ok) {
        if (r->nr_threads && r->json) {
            print_json(r, output);
        } else if (r->nr_threads) {
            if (r->tick_ms) {
                tick(r);
            }
            if (!r->separator) {
                print_table(r, output, &sums);
            } else if (!r->tick_ms) {
                print_fields(r, output, &sums);
            }
        }
        ok = fflush(output) == 0 && !ferror(output);
        if (!ok) {
            say(r, "cannot write the counts: %s", strerror(errno));
        }
        ok = ok && r->nr_threads;
    }
    if (output != stderr) {
        fclose(output);
    }
    return r->status || ok ? r->status : 1;
}

int cmd_stat(int argc, char **argv)
{
    return with_recorder(argc, argv, true, count);
}
