/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the events of LWP are called, in every command.
 */
#include <stdio.h>
#include <string.h>
#include "events.h"

/*
 * Periods are primes, so as not to keep step with a loop.  "lwp stat" hardly
 * needs records: the counters tell.  But what a thread that is killed has not
 * told is less than a period; and branches say in their records whether they
 * were predicted.
 */
const Event events[256] = {
    [LWP_VAL] = { "val", "values", "programmed value samples", 1009, 1 << 20 },
    [LWP_IRE] = { "ire", "instructions", "instructions retired", 100003,
                  1 << 20 },
    [LWP_BRE] = { "bre", "branches", "branches retired", 20011, 10007 },
    [LWP_DME] = { "dme", "dcache-misses", "data cache misses", 2003, 1 << 20 },
    [LWP_CNH] = { "cnh", "cycles", "CPU clocks not halted", 100003, 1 << 20 },
    [LWP_RNH] = { "rnh", "ref-cycles", "CPU reference clocks not halted",
                  100003, 1 << 20 },
    [LWP_INS] = { "ins", "inserted", "programmed events", 0, 0 },
};

const char *event_name(int event)
{
    static char other[16];

    if (events[event & 255].name) {
        return events[event & 255].name;
    }
    snprintf(other, sizeof(other), "event%d", event);
    return other;
}

const char *event_title(int event)
{
    const char *title = events[event & 255].title;

    return title ? title : "an unknown event";
}

int event_find(const char *name, size_t length)
{
    for (int i = 0; i < 256; i++) {
        const Event *e = &events[i];

        if (e->name && ((strlen(e->name) == length &&
                         !memcmp(e->name, name, length)) ||
                        (strlen(e->long_name) == length &&
                         !memcmp(e->long_name, name, length)))) {
            return i;
        }
    }
    return 0;
}
