/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: control block, ring and instructions. */

#include <stdatomic.h>
#include <string.h>
#include "lwp-internal.h"

/* Byte offsets in the LWPCB (Table 6-1). */
enum {
    CB_FLAGS = 0,
    CB_SIZE = 4,
    CB_BASE = 8,
    CB_HEAD = 16,
    CB_MISSED = 24,
    CB_THRESHOLD = 32,
    CB_FILTERS = 36,
    CB_BASE_IP = 40,
    CB_LIMIT_IP = 48,
    CB_TAIL = 64,
    CB_EVENTS = 128,        /* LwpEventOffset */
};

#define CB_INTERVAL(event)  (CB_EVENTS + 8 * ((event) - 1))
#define CB_COUNTER(event)   (CB_INTERVAL(event) + 4)

static unsigned max_event(uint32_t features)
{
    unsigned n = LWP_NR_EVENTS;

    while (n && !(features & LWP_FLAG(n))) {
        n--;
    }
    return n;
}

/* LwpCbSize in bytes. */
uint32_t lwp_cb_size(const LwpConfig *config)
{
    return CB_EVENTS + 8 * max_event(config->features);
}

void lwp_cpuid(const LwpConfig *config, uint64_t cfg, bool avail,
               uint32_t regs[4])
{
    unsigned events = max_event(config->features);

    regs[0] = avail ? (uint32_t)cfg | LWP_AVAIL : 0;
    regs[1] = (uint32_t)CB_EVENTS << 24 | events << 16 |
              LWP_RECORD_SIZE << 8 | lwp_cb_size(config) / 8;
    regs[2] = config->caps | LWP_MIN_BUFFER << 16 | 1 /* LwpVersion */ << 9;
    if (config->features & LWP_FLAG(LWP_EVENT_DME)) {
        regs[2] |= config->latency_bits | config->latency_round << 6;
    }
    regs[3] = config->features | LWP_AVAIL;
}

static uint32_t ld32(LwpMem *mem, uint64_t addr)
{
    return mem->ops->ld32(mem, addr);
}

static void st32(LwpMem *mem, uint64_t addr, uint32_t val)
{
    mem->ops->st32(mem, addr, val);
}

/* Guest memory is little-endian; the host's may not be. */
#define HOST_IS_BE  (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
#define LE32(x)     (HOST_IS_BE ? __builtin_bswap32(x) : (x))
#define LE64(x)     (HOST_IS_BE ? __builtin_bswap64(x) : (x))

/* Where an LWPCB and a slot of its ring are, during a store. */
typedef struct Place {
    LwpMem *mem;
    uint64_t cb, slot;
    LwpHost host;           /* host.cb is NULL if mem->ops have to be used */
} Place;

static inline _Atomic uint32_t *cb_host32(const Place *p, uint32_t offset)
{
    return (void *)(p->host.cb + offset);
}

/* Fields of the LWPCB. */
static inline uint32_t cb_ld32(const Place *p, uint32_t offset)
{
    if (!p->host.cb) {
        return ld32(p->mem, p->cb + offset);
    }
    return LE32(atomic_load_explicit(cb_host32(p, offset),
                                     memory_order_relaxed));
}

static inline void cb_st32(const Place *p, uint32_t offset, uint32_t val)
{
    if (!p->host.cb) {
        st32(p->mem, p->cb + offset, val);
    } else {
        atomic_store_explicit(cb_host32(p, offset), LE32(val),
                              memory_order_relaxed);
    }
}

/* The head, behind the record that it makes visible to other processors. */
static inline void cb_publish_head(const Place *p, uint32_t val)
{
    if (!p->host.cb) {
        st32(p->mem, p->cb + CB_HEAD, val);
    } else {
        atomic_store_explicit(cb_host32(p, CB_HEAD), LE32(val),
                              memory_order_release);
    }
}

/* MissedEvents; nothing else of an LWPCB has 64 bits that change. */
static void cb_count_missed(const Place *p)
{
    uint64_t n;

    if (!p->host.cb) {
        n = p->mem->ops->ld64(p->mem, p->cb + CB_MISSED);
        p->mem->ops->st64(p->mem, p->cb + CB_MISSED, n + 1);
    } else {
        _Atomic uint64_t *host = (void *)(p->host.cb + CB_MISSED);

        n = LE64(atomic_load_explicit(host, memory_order_relaxed));
        atomic_store_explicit(host, LE64(n + 1), memory_order_relaxed);
    }
}

static inline void store_slot(const Place *p, const LwpRecord *record)
{
    _Atomic uint64_t *host = (void *)p->host.slot;

    if (!p->host.cb) {
        p->mem->ops->st_record(p->mem, p->slot, record);
        return;
    }
#pragma GCC unroll 4
    for (unsigned i = 0; i < LWP_RECORD_SIZE / 8; i++) {
        atomic_store_explicit(&host[i], LE64(record->q[i]),
                              memory_order_relaxed);
    }
}

int32_t lwp_sext26(uint32_t val)
{
    return (int32_t)((val & COUNTER_MASK) ^ (1u << 25)) - (1 << 25);
}

/*
 * The minimum interval (§5.1 step 7) is 0 for every event: an emulated
 * processor makes progress however often it stores.
 */
static inline int32_t ld_interval(const Place *p, unsigned event)
{
    int32_t interval = lwp_sext26(cb_ld32(p, CB_INTERVAL(event)));

    return interval < 0 ? 0 : interval;
}

/* The low bits of an interval that are random (Table 6-1). */
static inline uint32_t random_mask(const Place *p)
{
    return (1u << (cb_ld32(p, CB_SIZE) >> RANDOM_SHIFT)) - 1;
}

/* SplitMix64; any state, 0 included, is as good as another. */
static uint64_t prng_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

bool lwp_write_cfg(LwpState *s, const LwpConfig *config, uint64_t val)
{
    /* Bit 0 and bits 63:48 are ignored, as Family 15h did. */
    if ((uint32_t)val & ~(config->features | LWP_AVAIL)) {
        return false;
    }
    s->cfg = val & (CFG_FIELDS | config->features);
    /* What is withdrawn stops; what is granted waits for LLWPCB or XRSTOR. */
    s->flags &= (uint32_t)s->cfg;
    lwp_select_events(s, config);
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

void lwp_probe_store(const LwpState *s, LwpMem *mem)
{
    mem->ops->probe(mem, s->cbaddr, lwp_cb_size(mem->config));
    mem->ops->probe(mem, s->base + s->head, LWP_RECORD_SIZE);
}

/*
 * The vector to interrupt with when the head has become @head, or 0 (Table 6-1,
 * Threshold).  Flags, Threshold and tail are read each time (§8.3).
 */
static inline uint8_t interrupt_due(const LwpState *s, const Place *p,
                                    uint32_t head)
{
    uint32_t tail, used;

    if (!(s->cfg & LWP_FLAG_INT) ||
        !(cb_ld32(p, CB_FLAGS) & LWP_FLAG_INT)) {
        return 0;
    }
    tail = cb_ld32(p, CB_TAIL) % s->size;
    used = (head < tail ? s->size : 0) + head - tail;
    if (used < (cb_ld32(p, CB_THRESHOLD) & -LWP_RECORD_SIZE)) {
        return 0;
    }
    return CFG_VECTOR(s->cfg);
}

/*
 * Store, report and reset (§1.1 steps 3 to 5) for @record.  A negative
 * @left is the counter of the record's event with this occurrence counted, to
 * be reset from there.  Returns true if the ring was full.
 *
 * All memory is written before the state changes, the record before the head
 * pointer, and what must not happen twice (MissedEvents) last.
 */
static bool store_record(LwpState *s, LwpMem *mem, const LwpRecord *record,
                         int32_t left)
{
    const Place place = {
        mem, s->cbaddr, s->base + s->head,
        mem->host.slot ? mem->host : (LwpHost) { 0 },
    }, *p = &place;
    unsigned event = record->q[0] & 0xff;
    uint32_t next = s->head + LWP_RECORD_SIZE;
    uint32_t mask = 0;
    uint64_t prng = s->prng;
    int32_t reset = 0;
    uint8_t vector = 0;
    bool full;

    if (p->host.cb) {
        mem->host.cb = NULL;
    } else {
        lwp_probe_store(s, mem);
    }
    if (next == s->size) {
        next = 0;
    }
    full = next == cb_ld32(p, CB_TAIL);

    if (left < 0) {
        mask = random_mask(p);
        /* Overrun shortens the next period (§1.1 step 5). */
        reset = (ld_interval(p, event) & ~mask) + left + 1;
        if (mask) {
            reset += (int32_t)(prng_next(&prng) & mask);
        }
    }

    /*
     * Nothing is stored unless all is writable.  In user mode, that is not
     * known yet, and each store may fault and be repeated: the LWPCB gets what
     * it has already, so that the ring stays as it is if that is read-only.
     */
    cb_st32(p, CB_HEAD, s->head);
    store_slot(p, record);
    cb_publish_head(p, full ? s->head : next);
    if (full) {
        cb_count_missed(p);
    } else {
        vector = interrupt_due(s, p, next);
        s->head = next;
    }
    if (mask) {
        s->prng = prng;
    }
    if (left < 0) {
        s->counter[event - 1] = reset;
    }
    if (vector || p->mem->reports) {
        p->mem->ops->report(p->mem, p->slot, record, full, vector);
    }
    return full;
}

static void store_next(LwpState *s, LwpMem *mem)
{
    unsigned event = s->pending[0].q[0] & 0xff;
    int32_t left = 0;

    if (event <= LWP_NR_EVENTS && lwp_event_enabled(s, event)) {
        left = s->counter[event - 1];
    }
    store_record(s, mem, &s->pending[0], left);
    if (--s->npending) {
        memmove(&s->pending[0], &s->pending[1],
                s->npending * sizeof(s->pending[0]));
    }
}

static void store_pending(LwpState *s, LwpMem *mem)
{
    while (s->npending) {
        store_next(s, mem);
    }
    s->deferred = false;
}

static void all_eligible(LwpState *s)
{
    s->ip_filter = LWP_IP_ALL;
    s->ip_first = 0;
    s->ip_span = UINT64_MAX;
}

/* Table 6-2, IPF and IPI; the complement of a range is another one. */
static void load_ip_filter(LwpState *s, LwpMem *mem)
{
    bool invert = s->filters & FILTER_IPI;
    uint64_t base = mem->ops->ld64(mem, s->cbaddr + CB_BASE_IP);
    uint64_t limit = mem->ops->ld64(mem, s->cbaddr + CB_LIMIT_IP);

    /* Blocks that only look at the range shall find nothing there. */
    s->ip_first = NO_IP;
    s->ip_span = 0;
    if (base > limit && invert) {
        all_eligible(s);
    } else if (base > limit) {
        s->ip_filter = LWP_IP_NONE;
    } else if (!invert) {
        s->ip_filter = LWP_IP_RANGE;
        s->ip_first = base;
        s->ip_span = limit - base;
    } else if (limit - base == UINT64_MAX) {
        s->ip_filter = LWP_IP_NONE;
    } else {
        s->ip_filter = LWP_IP_RANGE;
        s->ip_first = limit + 1;
        s->ip_span = base - limit - 2;
    }
}

/* Whether load_ip_filter() has to be called. */
bool lwp_init_ip_filter(LwpState *s, const LwpConfig *config)
{
    all_eligible(s);
    if ((s->filters & FILTER_IPF) && (config->caps & LWP_CAP_IP_FILTER)) {
        s->ip_filter = LWP_IP_UNKNOWN;
        return true;
    }
    return false;
}

/*
 * Whether a record could be stored now, which it is then.  The ring comes
 * first, so that looking dirties no page that keeps nothing.
 */
static bool ready(const LwpState *s, LwpMem *mem)
{
    return mem->ops->writable(mem, s->base + s->head, LWP_RECORD_SIZE) &&
           mem->ops->writable(mem, s->cbaddr, lwp_cb_size(mem->config));
}

/*
 * What holds if an access behind the instruction in front of @ip does not
 * return: it is tried again there, and a handler is left alone.
 */
static inline void defer(LwpState *s, uint64_t ip)
{
    s->deferred = true;
    s->deferred_ip = ip;
    s->away = 0;
}

bool lwp_boundary(LwpState *s, LwpMem *mem, uint64_t ip)
{
    if (!lwp_busy(s)) {
        return true;
    }
    if (s->deferred && ip != s->deferred_ip) {
        if (++s->away < LWP_AWAY_MAX) {
            return false;
        }
        s->away = 0;
        if (!ready(s, mem)) {
            return false;
        }
    }
    defer(s, ip);
    if (s->ip_filter == LWP_IP_UNKNOWN) {
        load_ip_filter(s, mem);
        lwp_select_events(s, mem->config);
    }
    store_pending(s, mem);
    return true;
}

/* §5.2: the part of the state that the LWPCB shows. */
static void flush(LwpState *s, LwpMem *mem)
{
    uint64_t cb = s->cbaddr;

    mem->ops->probe(mem, cb, lwp_cb_size(mem->config));
    store_pending(s, mem);
    for (unsigned n = 1; n <= LWP_NR_EVENTS; n++) {
        if (lwp_event_enabled(s, n)) {
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
bool lwp_segment_holds(const LwpSegment *ds, uint64_t ea, uint32_t size)
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

uint64_t lwp_to_effective(const LwpSegment *ds, uint64_t linear)
{
    return ds->va_bits ? linear : (uint32_t)(linear - ds->base);
}

/* A head that breaks the rules is repaired: 0 if it is above @max. */
uint32_t lwp_repair_head(uint32_t head, uint32_t max)
{
    return head > max ? 0 : head & -LWP_RECORD_SIZE;
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

    if (!lwp_segment_holds(ds, ea, lwp_cb_size(mem->config))) {
        return false;
    }
    cb = to_linear(ds, ea);
    if (cb == 0) {
        return true;    /* LWP_CBADDR = 0 means disabled (§4.3) */
    }
    mem->ops->probe(mem, cb, lwp_cb_size(mem->config));

    size = ld32(mem, cb + CB_SIZE) & SIZE_MASK & -LWP_RECORD_SIZE;
    base = mem->ops->ld64(mem, cb + CB_BASE);
    if (size < MIN_RING || !lwp_segment_holds(ds, base, size)) {
        return false;
    }

    flags = ld32(mem, cb + CB_FLAGS) & (uint32_t)s->cfg;
    st32(mem, cb + CB_FLAGS, flags);
    for (unsigned n = 1; n <= LWP_NR_EVENTS; n++) {
        if (flags & LWP_FLAG(n)) {
            const Place p = { .mem = mem, .cb = cb };
            int32_t count = lwp_sext26(cb_ld32(&p, CB_COUNTER(n)));

            cb_st32(&p, CB_INTERVAL(n), ld_interval(&p, n));
            new.counter[n - 1] = count < 0 ? 0 : count;
        }
    }

    new.base = to_linear(ds, base);
    new.size = size;
    /* Table 6-1 */
    new.head = lwp_repair_head(ld32(mem, cb + CB_HEAD), size - 1);
    new.filters = ld32(mem, cb + CB_FILTERS);
    new.flags = flags & LWP_FLAG_EVENTS;
    new.cbaddr = cb;
    if (lwp_init_ip_filter(&new, mem->config)) {
        load_ip_filter(&new, mem);
    }
    lwp_select_events(&new, mem->config);
    *s = new;
    return true;
}

uint64_t lwp_slwpcb(LwpState *s, LwpMem *mem, const LwpSegment *ds)
{
    if (!lwp_enabled(s)) {
        return 0;
    }
    flush(s, mem);
    return lwp_to_effective(ds, s->cbaddr);
}

bool lwp_val_due(LwpState *s, LwpMem *mem, uint64_t ip)
{
    int32_t *left = &s->counter[LWP_EVENT_VAL - 1];

    if (!lwp_event_enabled(s, LWP_EVENT_VAL)) {
        return false;
    }
    if (s->ip_filter == LWP_IP_UNKNOWN) {
        load_ip_filter(s, mem);
        lwp_select_events(s, mem->config);
        s->deferred = s->npending;
    }
    if (!lwp_eligible(s, ip)) {
        return false;
    }
    if (*left > 0) {
        --*left;
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
    int32_t left = 0;

    if (event == LWP_EVENT_VAL) {
        left = s->counter[LWP_EVENT_VAL - 1] - 1;
    }
    return store_record(s, mem, &record, left);
}
