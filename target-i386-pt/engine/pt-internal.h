/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Intel Processor Trace: what the files of the engine share. */
#ifndef PT_INTERNAL_H
#define PT_INTERNAL_H

#include <string.h>
#include "perfmon/engine/ds.h"
#include "pt.h"

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)       ((a) < (b) ? (a) : (b))

/* pt.c: TraceEn is set, and cleared by an instruction or event at @from. */
void pt_start(const Pt *pt);
void pt_stop(const Pt *pt, uint64_t from);

/* pt-msrs.c */
bool pt_ctl_bad(const PtConfig *config, uint64_t ctl);

/* pt-output.c */
void pt_output_start(const Pt *pt);
bool pt_output_bad(const PtState *s, const PtConfig *config);
void pt_put_rest(const Pt *pt, const uint8_t *bytes, uint32_t n);
void pt_drain(const Pt *pt);
uint32_t pt_room(const PtState *s, const PtConfig *config);

/* The first @n of @packet; what is behind them does not matter. */
static inline void pt_put(const Pt *pt, const uint8_t packet[PT_PACKET],
                          uint32_t n)
{
    PtState *s = pt->state;

    if (n < s->room) {
        memcpy(s->stage + s->staged, packet, PT_PACKET);
        s->staged += n;
        s->room -= n;
        s->bytes += n;
    } else {
        pt_put_rest(pt, packet, n);
    }
}

static inline uint64_t pt_phys_mask(const PtConfig *config)
{
    return (1ull << config->phys_bits) - 1;
}

#endif
