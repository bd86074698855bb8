/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: the XSAVE image, and a state from outside. */

#include <string.h>
#include "lwp-internal.h"

/* Byte offsets in the XSAVE image (Table 7-1). */
enum {
    XS_CBADDR = 0,
    XS_FLAGS = 8,
    XS_HEAD = 12,
    XS_BASE = 16,
    XS_SIZE = 24,
    XS_FILTERS = 28,
    XS_RECORD = 32,
    XS_COUNTER = 64,
};

static void put(uint8_t *p, uint64_t val, unsigned bytes)
{
    while (bytes--) {
        *p++ = (uint8_t)val;
        val >>= 8;
    }
}

static uint64_t get(const uint8_t *p, unsigned bytes)
{
    uint64_t val = 0;

    while (bytes--) {
        val = val << 8 | p[bytes];
    }
    return val;
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)get(p, 4);
}

void lwp_xsave(const LwpState *s, uint8_t image[LWP_XSAVE_SIZE])
{
    memset(image, 0, LWP_XSAVE_SIZE);
    put(image + XS_CBADDR, s->cbaddr, 8);
    put(image + XS_FLAGS, s->flags, 4);
    put(image + XS_HEAD, s->head, 4);
    put(image + XS_BASE, s->base, 8);
    put(image + XS_SIZE, s->size, 4);
    put(image + XS_FILTERS, s->filters, 4);
    for (unsigned i = 0; s->npending && i < LWP_RECORD_SIZE / 8; i++) {
        put(image + XS_RECORD + 8 * i, s->pending[0].q[i], 8);
    }
    for (unsigned n = 1; n <= LWP_NR_EVENTS; n++) {
        if (lwp_event_enabled(s, n)) {
            put(image + XS_COUNTER + 4 * (n - 1),
                s->counter[n - 1] & COUNTER_MASK, 4);
        }
    }
}

void lwp_xrstor(LwpState *s, const LwpConfig *config,
                const uint8_t image[LWP_XSAVE_SIZE], const LwpSegment *ds)
{
    uint64_t cb, base;
    uint32_t size;

    lwp_disable(s);
    if (!image) {
        return;
    }

    cb = get(image + XS_CBADDR, 8);
    base = get(image + XS_BASE, 8);
    size = get32(image + XS_SIZE) & SIZE_MASK & -LWP_RECORD_SIZE;
    if (cb == 0 || size < MIN_RING) {
        return;
    }
    if (ds) {
        if (!ds->va_bits && (cb | base) >> 32) {
            return;     /* what Check() would truncate is not in reach */
        }
        if (!lwp_segment_holds(ds, lwp_to_effective(ds, cb),
                               lwp_cb_size(config)) ||
            !lwp_segment_holds(ds, lwp_to_effective(ds, base), size)) {
            return;
        }
    }

    s->cbaddr = cb;
    s->base = base;
    s->size = size;
    /* §7.4 step 1 */
    s->head = lwp_repair_head(get32(image + XS_HEAD), size - LWP_RECORD_SIZE);
    s->filters = get32(image + XS_FILTERS);
    s->flags = get32(image + XS_FLAGS) & LWP_FLAG_EVENTS & (uint32_t)s->cfg;
    for (unsigned n = 1; n <= LWP_NR_EVENTS; n++) {
        if (lwp_event_enabled(s, n)) {
            const uint8_t *p = image + XS_COUNTER + 4 * (n - 1);

            s->counter[n - 1] = lwp_sext26(get32(p));
        }
    }
    if (image[XS_RECORD]) {
        for (unsigned i = 0; i < LWP_RECORD_SIZE / 8; i++) {
            s->pending[0].q[i] = get(image + XS_RECORD + 8 * i, 8);
        }
        s->npending = 1;
    }
    lwp_init_ip_filter(s, config);
    lwp_select_events(s, config);
}

static bool state_valid(const LwpState *s, const LwpConfig *config, bool avail)
{
    if (s->cfg & ~(CFG_FIELDS | config->features)) {
        return false;
    }
    if (!lwp_enabled(s)) {
        return !s->flags && !lwp_busy(s);
    }
    for (unsigned n = 0; n < LWP_NR_EVENTS; n++) {
        if (s->counter[n] < COUNTER_MIN || s->counter[n] > COUNTER_MAX) {
            return false;
        }
    }
    if (s->npending > LWP_NR_EVENTS) {
        return false;
    }
    for (unsigned i = 0; i < s->npending; i++) {
        if (!(s->pending[i].q[0] & 0xff)) {
            return false;
        }
    }
    return avail &&
           s->size >= MIN_RING && s->size <= SIZE_MASK &&
           s->size % LWP_RECORD_SIZE == 0 &&
           s->head < s->size && s->head % LWP_RECORD_SIZE == 0 &&
           s->ref_fraction < RETIRE_REFCLK_UNIT &&
           s->ip_filter <= LWP_IP_UNKNOWN &&
           !(s->flags & ~(s->cfg & LWP_FLAG_EVENTS));
}

bool lwp_load_state(LwpState *s, const LwpConfig *config, bool avail)
{
    if (!state_valid(s, config, avail)) {
        return false;
    }
    if (!lwp_enabled(s)) {
        lwp_disable(s);     /* the rest must not get into what begins next */
    }
    lwp_select_events(s, config);
    return true;
}
