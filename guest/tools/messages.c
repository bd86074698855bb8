/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What "lwp record" and "lwp stat" say to people, on standard error.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "events.h"
#include "recorder.h"

void say(const Recorder *r, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "lwp %s: ", r->name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

void explain(const Recorder *r)
{
    LwpInfo info = lwp_detect();
    bool nothing = !r->nr_threads;

    for (int error = 0; error < 256; error++) {
        if (r->failed[error]) {
            nothing = false;    /* this says why */
            say(r, "threads that were not profiled: %u: %s",
                r->failed[error], lwp_strerror(error));
        }
    }
    if (nothing && !info.available) {
        say(r, "nothing was profiled: %s; qemu-x86_64 -cpu max,+lwp emulates "
            "one that has it (if %s does: is the program there statically "
            "linked?)",
            lwp_strerror(info.supported ? ENOSYS : ENODEV), r->command[0]);
    } else if (nothing) {
        say(r, "nothing was profiled: is %s statically linked, set-user-ID, "
            "or does it clear its environment?", r->command[0]);
    }
    for (int i = 1; i <= LWP_NR_EVENTS && r->nr_threads; i++) {
        if (r->asked & ~r->enabled & LWP_FLAG(i)) {
            say(r, "the event %s (%s) is not available", events[i].name,
                events[i].long_name);
        }
    }
    if (r->confined) {
        say(r, "threads that were not profiled: %u: their program has confined "
            "itself (seccomp) before", r->confined);
    }
    if (r->late && r->writer) {
        say(r, "processes whose dynamic linker is not known: %u; libraries "
            "that they load late may have no names", r->late);
    }
    if (r->missed) {
        say(r, "%" PRIu64 " records were missed: a ring was full%s", r->missed,
            r->stat ? "; counts are too low" :
            "; longer periods (-c) or a larger ring (-m) help");
    }
    if (r->exhausted) {
        say(r, "the driver had no memory to save the state of %" PRIu64
            " threads, perhaps of these: they were not profiled any more",
            r->exhausted);
    }
    if (r->heals) {
        say(r, "LWP was found off %" PRIu64 " times, perhaps in these threads: "
            "counts may be too low", r->heals);
    }
    if (r->stat && r->unfinished) {
        say(r, "threads that were killed or still run: %u; of each, up to %u "
            "events of a kind are not counted", r->unfinished,
            events[LWP_IRE].stat_period);
    }
    if (r->signal) {
        say(r, "%s: %s", r->command[0], strsignal(r->signal));
    }
}
