/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * "lwp record": a command's records, in a file.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include "commands.h"
#include "recorder.h"

static void fill_header(Recorder *r)
{
    const LwpOptions *o = &r->config.options;
    size_t length = 0;

    r->header = (DataHeader) {
        .flags = o->events, .filters = o->filters, .random = o->random,
        .base_ip = o->base_ip, .limit_ip = o->limit_ip, .time = time(NULL),
        .ring = o->records, .clock = now_ns(),
        .cpus = sysconf(_SC_NPROCESSORS_ONLN), .tool = LWP_VERSION,
    };
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        r->header.interval[i] = o->period[i] - 1;
    }
    for (char **arg = r->command; *arg; arg++) {
        length += snprintf(r->header.command + length,
                           sizeof(r->header.command) - length, "%s%s",
                           length ? " " : "", *arg);
        if (length >= sizeof(r->header.command)) {
            break;
        }
    }
}

static void write_unprofiled(Recorder *r, unsigned threads, int error)
{
    DataUnprofiled chunk = { threads, error };

    if (threads) {
        data_write(r->writer, DATA_UNPROFILED, &chunk, sizeof(chunk), NULL, 0);
    }
}

static int record(Recorder *r)
{
    bool ran, written;

    if (!r->output) {
        r->output = DATA_DEFAULT;
    }
    fill_header(r);
    r->writer = data_create(r->output, &r->header);
    if (!r->writer) {
        return 1;
    }
    ran = run(r);
    for (int error = 0; error < 256; error++) {
        write_unprofiled(r, r->failed[error], error);
    }
    write_unprofiled(r, r->confined, 0);
    written = data_finish(r->writer, ran && r->nr_threads);
    if (!ran) {
        return r->status ? r->status : 1;
    }
    explain(r);
    if (!r->nr_threads) {
        return r->status ? r->status : 1;
    }
    if (written) {
        say(r, "wrote %s: %" PRIu64 " records (threads: %u, processes: %u)",
            r->output, r->records, r->nr_threads, r->nr_processes);
    }
    return r->status || written ? r->status : 1;
}

int cmd_record(int argc, char **argv)
{
    return with_recorder(argc, argv, false, record);
}
