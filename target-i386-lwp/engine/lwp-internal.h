/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: what the files of the engine share. */
#ifndef LWP_INTERNAL_H
#define LWP_INTERNAL_H

#include "lwp-engine.h"

#define SIZE_MASK       0x0fffffffu     /* BufferSize; Random is above it */
#define RANDOM_SHIFT    28
#define COUNTER_MASK    0x03ffffffu
#define COUNTER_MIN     (-(1 << 25))
#define COUNTER_MAX     ((1 << 25) - 1)
#define NO_IP           (1ull << 63)    /* not canonical */
#define MIN_RING        (32u * LWP_MIN_BUFFER * LWP_RECORD_SIZE)

#define FILTER_LATENCY  0xffu           /* MinLatency, in units of 16 clocks */
#define FILTER_CLF      (1u << 8)
#define FILTER_NBC      (1u << 9)
#define FILTER_RDC      (1u << 10)
#define FILTER_RAM      (1u << 11)
#define FILTER_OTH      (1u << 12)
#define FILTER_NMB      (1u << 25)
#define FILTER_NPB      (1u << 26)
#define FILTER_NAB      (1u << 27)
#define FILTER_NCB      (1u << 28)
#define FILTER_NRB      (1u << 29)
#define FILTER_IPI      (1u << 30)
#define FILTER_IPF      (1u << 31)

#define CFG_COREID(cfg) ((uint8_t)((cfg) >> 32))
#define CFG_VECTOR(cfg) ((uint8_t)((cfg) >> 40))
#define CFG_FIELDS      0xffff00000000ull       /* COREID and VECTOR */

#define MIN(a, b)       ((a) < (b) ? (a) : (b))
#define MAX(a, b)       ((a) > (b) ? (a) : (b))

static inline bool lwp_event_enabled(const LwpState *s, unsigned event)
{
    return s->flags & LWP_FLAG(event);
}

/* lwp-events.c */
void lwp_select_events(LwpState *s, const LwpConfig *config);
/* lwp-engine.c */
uint32_t lwp_cb_size(const LwpConfig *config);
int32_t lwp_sext26(uint32_t val);
bool lwp_init_ip_filter(LwpState *s, const LwpConfig *config);
bool lwp_segment_holds(const LwpSegment *ds, uint64_t ea, uint32_t size);
uint64_t lwp_to_effective(const LwpSegment *ds, uint64_t linear);
uint32_t lwp_repair_head(uint32_t head, uint32_t max);

#endif
