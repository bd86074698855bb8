/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: see lwp-engine.h. */

#include <stdatomic.h>
#include <string.h>
#include "lwp-engine.h"

/* Byte offsets in the LWPCB (Table 6-1). */
enum {
    CB_FLAGS = 0,
    CB_SIZE = 4,
    CB_BASE = 8,
    CB_HEAD = 16,
    CB_MISSED = 24,
    CB_FILTERS = 36,
    CB_TAIL = 64,
    CB_EVENTS = 128,        /* LwpEventOffset */
};

#define CB_INTERVAL(event)  (CB_EVENTS + 8 * ((event) - 1))
#define CB_COUNTER(event)   (CB_INTERVAL(event) + 4)

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

#define SIZE_MASK       0x0fffffffu     /* BufferSize; Random is above it */
#define RANDOM_SHIFT    28
#define COUNTER_MASK    0x03ffffffu
#define COUNTER_MIN     (-(1 << 25))
#define COUNTER_MAX     ((1 << 25) - 1)
#define MIN_RING        (32u * LWP_MIN_BUFFER * LWP_RECORD_SIZE)

#define CFG_COREID(cfg) ((uint8_t)((cfg) >> 32))
#define CFG_FIELDS      0xffff00000000ull       /* COREID and VECTOR */

static unsigned max_event(uint32_t features)
{
    unsigned n = LWP_NR_EVENTS;

    while (n && !(features & LWP_FLAG(n))) {
        n--;
    }
    return n;
}

/* LwpCbSize in bytes. */
static uint32_t cb_size(uint32_t features)
{
    return CB_EVENTS + 8 * max_event(features);
}

void lwp_cpuid(uint32_t features, uint64_t cfg, bool avail, uint32_t regs[4])
{
    unsigned events = max_event(features);

    regs[0] = avail ? (uint32_t)cfg | LWP_AVAIL : 0;
    regs[1] = (uint32_t)CB_EVENTS << 24 | events << 16 |
              LWP_RECORD_SIZE << 8 | cb_size(features) / 8;
    regs[2] = LWP_MIN_BUFFER << 16 | 1 /* LwpVersion */ << 9;
    regs[3] = features | LWP_AVAIL;
}

bool lwp_write_cfg(LwpState *s, uint32_t features, uint64_t val)
{
    /* Bit 0 and bits 63:48 are ignored, as Family 15h did. */
    if ((uint32_t)val & ~(features | LWP_AVAIL)) {
        return false;
    }
    s->cfg = val & (CFG_FIELDS | features);
    /* What is withdrawn stops; what is granted waits for LLWPCB or XRSTOR. */
    s->flags &= s->cfg;
    return true;
}

bool lwp_write_cbaddr(LwpState *s, uint64_t val)
{
    if (val) {
        return false;
    }
    lwp_disable(s);
    return true;
}

void lwp_disable(LwpState *s)
{
    *s = (LwpState) { .cfg = s->cfg, .prng = s->prng };
}

static uint32_t ld32(LwpMem *mem, uint64_t addr)
{
    return mem->ops->ld32(mem, addr);
}

static void st32(LwpMem *mem, uint64_t addr, uint32_t val)
{
    mem->ops->st32(mem, addr, val);
}

static int32_t sext26(uint32_t val)
{
    return (int32_t)((val & COUNTER_MASK) ^ (1u << 25)) - (1 << 25);
}

/*
 * The minimum interval (§5.1 step 7) is 0 for every event: an emulated
 * processor makes progress however often it stores.
 */
static int32_t ld_interval(LwpMem *mem, uint64_t cbaddr, unsigned event)
{
    int32_t interval = sext26(ld32(mem, cbaddr + CB_INTERVAL(event)));

    return interval < 0 ? 0 : interval;
}

/* SplitMix64; any state, 0 included, is as good as another. */
static uint64_t prng_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void lwp_probe_store(const LwpState *s, LwpMem *mem)
{
    mem->ops->probe(mem, s->cbaddr, cb_size(mem->features));
    mem->ops->probe(mem, s->base + s->head, LWP_RECORD_SIZE);
}

/*
 * Store, report and reset (§1.1 steps 3 to 5) for @record.  A negative @count
 * is the counter of the record's event with this occurrence counted, to be
 * reset from there.  Returns true if the ring was full.
 *
 * All memory is written before the state changes, the record before the head
 * pointer, and what must not happen twice (MissedEvents) last.
 */
static bool store_record(LwpState *s, LwpMem *mem, const LwpRecord *record,
                         int32_t count)
{
    unsigned event = record->q[0] & 0xff;
    uint64_t cb = s->cbaddr, slot = s->base + s->head;
    uint32_t next = s->head + LWP_RECORD_SIZE;
    uint64_t prng = s->prng;
    int32_t reset = 0;
    bool full;

    lwp_probe_store(s, mem);

    if (next == s->size) {
        next = 0;
    }
    full = next == ld32(mem, cb + CB_TAIL);

    if (count < 0) {
        uint32_t mask = (1u << (ld32(mem, cb + CB_SIZE) >> RANDOM_SHIFT)) - 1;

        reset = ld_interval(mem, cb, event);
        if (mask) {
            reset = (reset & ~mask) | (prng_next(&prng) & mask);
        }
        /* Overrun shortens the next period (§1.1 step 5). */
        reset += count + 1;
    }

    for (unsigned i = 0; i < LWP_RECORD_SIZE / 8; i++) {
        mem->ops->st64(mem, slot + 8 * i, record->q[i]);
    }
    /* Consumers on other processors may not see the head before the record. */
    atomic_thread_fence(memory_order_release);
    st32(mem, cb + CB_HEAD, full ? s->head : next);
    if (full) {
        mem->ops->st64(mem, cb + CB_MISSED,
                       mem->ops->ld64(mem, cb + CB_MISSED) + 1);
    } else {
        s->head = next;
    }
    s->prng = prng;
    if (count < 0) {
        s->counter[event - 1] = reset;
    }
    return full;
}

static void store_pending(LwpState *s, LwpMem *mem)
{
    unsigned event = s->pending.q[0] & 0xff;
    int32_t count = 0;

    if (event <= LWP_NR_EVENTS && (s->flags & LWP_FLAG(event))) {
        count = s->counter[event - 1];
    }
    store_record(s, mem, &s->pending, count);
    memset(&s->pending, 0, sizeof(s->pending));
    s->pending_deferred = false;
}

bool lwp_store_pending(LwpState *s, LwpMem *mem, uint64_t ip)
{
    if (!lwp_pending(s)) {
        return true;
    }
    if (s->pending_deferred && ip != s->pending_ip) {
        return false;
    }
    /* This is what holds if the store does not return. */
    s->pending_deferred = true;
    s->pending_ip = ip;
    store_pending(s, mem);
    return true;
}

/* §5.2: the part of the state that the LWPCB shows. */
static void flush(LwpState *s, LwpMem *mem)
{
    uint64_t cb = s->cbaddr;

    mem->ops->probe(mem, cb, cb_size(mem->features));
    if (lwp_pending(s)) {
        store_pending(s, mem);
    }
    for (unsigned n = 1; n <= LWP_NR_EVENTS; n++) {
        if (s->flags & LWP_FLAG(n)) {
            st32(mem, cb + CB_COUNTER(n), s->counter[n - 1] & COUNTER_MASK);
        }
    }
    st32(mem, cb + CB_HEAD, s->head);
}

static bool canonical(uint64_t addr, unsigned va_bits)
{
    int64_t sign = (int64_t)addr >> (va_bits - 1);

    return sign == 0 || sign == -1;
}

/* "Store-type Segment_check" (§7.4): may a program write [ea, ea + size)? */
static bool segment_holds(const LwpSegment *ds, uint64_t ea, uint32_t size)
{
    uint64_t top = ea + size - 1;

    if (top < ea) {
        return false;
    }
    if (ds->va_bits) {
        return canonical(ea, ds->va_bits) && canonical(top, ds->va_bits);
    }
    return ea >= ds->first && top <= ds->last;
}

static uint64_t to_linear(const LwpSegment *ds, uint64_t ea)
{
    return ds->va_bits ? ea : (uint32_t)(ds->base + ea);
}

static uint64_t to_effective(const LwpSegment *ds, uint64_t linear)
{
    return ds->va_bits ? linear : (uint32_t)(linear - ds->base);
}

/* A head that breaks the rules of Table 6-1 is repaired (also §7.4 step 1). */
static uint32_t repair_head(uint32_t head, uint32_t size)
{
    if (head > size - LWP_RECORD_SIZE) {
        return 0;
    }
    return head & -LWP_RECORD_SIZE;
}

bool lwp_llwpcb(LwpState *s, LwpMem *mem, const LwpSegment *ds, uint64_t ea)
{
    LwpState new;
    uint64_t cb, base;
    uint32_t size, flags;

    if (lwp_enabled(s)) {
        flush(s, mem);
        lwp_disable(s);
    }
    if (ea == 0) {
        return true;
    }
    new = *s;

    if (!segment_holds(ds, ea, cb_size(mem->features))) {
        return false;
    }
    cb = to_linear(ds, ea);
    if (cb == 0) {
        return true;    /* LWP_CBADDR = 0 means disabled (§4.3) */
    }
    mem->ops->probe(mem, cb, cb_size(mem->features));

    size = ld32(mem, cb + CB_SIZE) & SIZE_MASK & -LWP_RECORD_SIZE;
    base = mem->ops->ld64(mem, cb + CB_BASE);
    if (size < MIN_RING || !segment_holds(ds, base, size)) {
        return false;
    }

    flags = ld32(mem, cb + CB_FLAGS) & s->cfg;
    st32(mem, cb + CB_FLAGS, flags);
    for (unsigned n = 1; n <= LWP_NR_EVENTS; n++) {
        if (flags & LWP_FLAG(n)) {
            int32_t count = sext26(ld32(mem, cb + CB_COUNTER(n)));

            st32(mem, cb + CB_INTERVAL(n), ld_interval(mem, cb, n));
            new.counter[n - 1] = count < 0 ? 0 : count;
        }
    }

    new.base = to_linear(ds, base);
    new.size = size;
    new.head = repair_head(ld32(mem, cb + CB_HEAD), size);
    new.filters = ld32(mem, cb + CB_FILTERS);
    new.flags = flags & LWP_FLAG_EVENTS;
    new.cbaddr = cb;
    *s = new;
    return true;
}

uint64_t lwp_slwpcb(LwpState *s, LwpMem *mem, const LwpSegment *ds)
{
    if (!lwp_enabled(s)) {
        return 0;
    }
    flush(s, mem);
    return to_effective(ds, s->cbaddr);
}

bool lwp_val_due(LwpState *s)
{
    int32_t *count = &s->counter[LWP_EVENT_VAL - 1];

    if (!(s->flags & LWP_FLAG(LWP_EVENT_VAL))) {
        return false;
    }
    if (*count > 0) {
        --*count;
        return false;
    }
    return true;
}

bool lwp_insert(LwpState *s, LwpMem *mem, unsigned event, uint16_t flags,
                uint32_t data1, uint64_t ip, uint64_t data2)
{
    LwpRecord record = {
        .q[0] = event | CFG_COREID(s->cfg) << 8 |
                (uint64_t)flags << 16 | (uint64_t)data1 << 32,
        .q[1] = ip,
        .q[2] = data2,
    };
    int32_t count = 0;

    if (event == LWP_EVENT_VAL) {
        count = s->counter[LWP_EVENT_VAL - 1] - 1;
    }
    return store_record(s, mem, &record, count);
}

static void put(uint8_t *p, uint64_t val, unsigned bytes)
{
    while (bytes--) {
        *p++ = val;
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

void lwp_xsave(const LwpState *s, uint8_t image[LWP_XSAVE_SIZE])
{
    memset(image, 0, LWP_XSAVE_SIZE);
    put(image + XS_CBADDR, s->cbaddr, 8);
    put(image + XS_FLAGS, s->flags, 4);
    put(image + XS_HEAD, s->head, 4);
    put(image + XS_BASE, s->base, 8);
    put(image + XS_SIZE, s->size, 4);
    put(image + XS_FILTERS, s->filters, 4);
    for (unsigned i = 0; i < LWP_RECORD_SIZE / 8; i++) {
        put(image + XS_RECORD + 8 * i, s->pending.q[i], 8);
    }
    for (unsigned n = 1; n <= LWP_NR_EVENTS; n++) {
        if (s->flags & LWP_FLAG(n)) {
            put(image + XS_COUNTER + 4 * (n - 1),
                s->counter[n - 1] & COUNTER_MASK, 4);
        }
    }
}

void lwp_xrstor(LwpState *s, uint32_t features,
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
    size = get(image + XS_SIZE, 4) & SIZE_MASK & -LWP_RECORD_SIZE;
    if (cb == 0 || size < MIN_RING) {
        return;
    }
    if (ds) {
        if (!ds->va_bits && (cb | base) >> 32) {
            return;     /* what Check() would truncate is not in reach */
        }
        if (!segment_holds(ds, to_effective(ds, cb), cb_size(features)) ||
            !segment_holds(ds, to_effective(ds, base), size)) {
            return;
        }
    }

    s->cbaddr = cb;
    s->base = base;
    s->size = size;
    s->head = repair_head(get(image + XS_HEAD, 4), size);
    s->filters = get(image + XS_FILTERS, 4);
    s->flags = get(image + XS_FLAGS, 4) & LWP_FLAG_EVENTS & s->cfg;
    for (unsigned n = 1; n <= LWP_NR_EVENTS; n++) {
        if (s->flags & LWP_FLAG(n)) {
            const uint8_t *p = image + XS_COUNTER + 4 * (n - 1);

            s->counter[n - 1] = sext26(get(p, 4));
        }
    }
    if (image[XS_RECORD]) {
        for (unsigned i = 0; i < LWP_RECORD_SIZE / 8; i++) {
            s->pending.q[i] = get(image + XS_RECORD + 8 * i, 8);
        }
    }
}

bool lwp_state_valid(const LwpState *s, uint32_t features, bool avail)
{
    if (s->cfg & ~(CFG_FIELDS | features)) {
        return false;
    }
    if (!lwp_enabled(s)) {
        return !s->flags && !lwp_pending(s);
    }
    for (unsigned n = 0; n < LWP_NR_EVENTS; n++) {
        if (s->counter[n] < COUNTER_MIN || s->counter[n] > COUNTER_MAX) {
            return false;
        }
    }
    return avail &&
           s->size >= MIN_RING && s->size <= SIZE_MASK &&
           s->size % LWP_RECORD_SIZE == 0 &&
           s->head < s->size && s->head % LWP_RECORD_SIZE == 0 &&
           !(s->flags & ~(s->cfg & LWP_FLAG_EVENTS));
}
