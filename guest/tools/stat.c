/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * "lwp stat": how many events a command had.
 */
#include <errno.h>
#include <inttypes.h>
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

    fprintf(f, "{\"command\": [");
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
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        if (!shown(r, i + 1)) {
            continue;
        }
        fprintf(f, "%s\"%s\": {\"count\": %" PRIu64, more ? ", " : "",
                events[i + 1].long_name, r->counts[i]);
        if (instructions && i + 1 != LWP_IRE) {
            fprintf(f, ", \"per_1000_instructions\": %.6g",
                    1000 * ratio(r->counts[i], instructions));
        }
        if (r->branches && i + 1 == LWP_BRE) {
            fprintf(f, ", \"sampled\": %" PRIu64 ", \"mispredicted\": %"
                    PRIu64, r->branches, r->mispredicted);
        }
        fputc('}', f);
        more = true;
    }
    fprintf(f, "}}\n");
}

static void print_table(const Recorder *r, FILE *f)
{
    uint64_t instructions = r->counts[LWP_IRE - 1];

    fprintf(f, "\n Events of '");
    for (char **arg = r->command; *arg; arg++) {
        fprintf(f, "%s", arg == r->command ? "" : " ");
        put_text(f, *arg, TEXT_PLAIN);
    }
    fprintf(f, "' (threads: %u, processes: %u):\n\n", r->nr_threads,
            r->nr_processes);
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        if (!shown(r, i + 1)) {
            continue;
        }
        fprintf(f, "%'20" PRIu64 "      %-16s", r->counts[i],
                events[i + 1].long_name);
        if (instructions && i + 1 == LWP_IRE && r->counts[LWP_CNH - 1]) {
            fprintf(f, "  # %10.2f per cycle",
                    ratio(instructions, r->counts[LWP_CNH - 1]));
        } else if (instructions && i + 1 != LWP_IRE) {
            fprintf(f, "  # %10.2f per 1000 instructions",
                    1000 * ratio(r->counts[i], instructions));
        }
        if (r->branches && i + 1 == LWP_BRE) {
            fprintf(f, "\n%20s      %-16s  # %10.2f %% of branches, by a "
                    "sample of %" PRIu64, "", "branch-misses",
                    100 * ratio(r->mispredicted, r->branches), r->branches);
        }
        fputc('\n', f);
    }
    fprintf(f, "\n%20.6f seconds elapsed\n%20.6f seconds user\n"
            "%20.6f seconds system\n\n", r->seconds,
            seconds(r->usage.ru_utime), seconds(r->usage.ru_stime));
}

static int count(Recorder *r)
{
    FILE *f = r->output ? fopen(r->output, "we") : stderr;
    bool ok;

    if (!f) {
        say(r, "cannot write %s: %s", r->output, strerror(errno));
        return 1;
    }
    ok = run(r);
    if (ok) {
        explain(r);
        if (r->nr_threads) {
            (r->json ? print_json : print_table)(r, f);
        }
        ok = fflush(f) == 0 && !ferror(f);
        if (!ok) {
            say(r, "cannot write the counts: %s", strerror(errno));
        }
    }
    if (f != stderr) {
        fclose(f);
    }
    return r->status || ok ? r->status : 1;
}

int cmd_stat(int argc, char **argv)
{
    return with_recorder(argc, argv, true, count);
}
