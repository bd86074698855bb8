/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the events of LWP are called, in every command.
 */
#ifndef LWP_EVENTS_H
#define LWP_EVENTS_H

#include <stddef.h>
#include "lwp.h"

typedef struct Event {
    const char *name;       /* as in Table 2-1 */
    const char *long_name;  /* what perf(1) calls it, or something like it */
    const char *title;
    uint32_t period;        /* of lwp record, if not chosen; 0: no counter */
    uint32_t stat_period;   /* of lwp stat */
} Event;

/* By EventId, 0 to 255; all of it is 0 for an unknown one. */
extern const Event events[256];

/* For every EventId; the name of an unknown one is valid until the next. */
const char *event_name(int event);
const char *event_title(int event);

/* The EventId that has this name or long name, of LENGTH bytes; 0: none. */
int event_find(const char *name, size_t length);

/* The same as a bit: bit 31 of a set of LWP_FLAG()s is LWP_INS. */
static inline uint32_t event_bit(int event)
{
    return event == LWP_INS ? LWP_FLAG_INT : event < 31 ? LWP_FLAG(event) : 0;
}

#endif
