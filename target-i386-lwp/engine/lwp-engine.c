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
    CB_THRESHOLD = 32,
    CB_FILTERS = 36,
    CB_BASE_IP = 40,
    CB_LIMIT_IP = 48,
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
#define PAGE_SIZE       4096
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

#define RECORD_PRV      (1u << 29)      /* Figure 2-4 */
#define RECORD_PRD      (1u << 30)
#define RECORD_TKN      (1u << 31)
#define RECORD_DAV      (1u << 28)      /* Figure 2-5 */
#define RECORD_SRC_SHIFT        29
#define RECORD_LATENCY_SHIFT    32

#define CFG_COREID(cfg) ((uint8_t)((cfg) >> 32))
#define CFG_VECTOR(cfg) ((uint8_t)((cfg) >> 40))
#define CFG_FIELDS      0xffff00000000ull       /* COREID and VECTOR */

#define NOINLINE        __attribute__((noinline))
#define FLATTEN         __attribute__((flatten))
#define MIN(a, b)       ((a) < (b) ? (a) : (b))
#define MAX(a, b)       ((a) > (b) ? (a) : (b))

/* The bit of Filters that suppresses each kind of branches. */
static const uint32_t class_filter[RETIRE_FAR] = {
    [RETIRE_COND_TAKEN] = FILTER_NCB,
    [RETIRE_COND_NOT_TAKEN] = FILTER_NCB,
    [RETIRE_JMP] = FILTER_NRB,
    [RETIRE_JMP_IND] = FILTER_NAB,
    [RETIRE_CALL] = FILTER_NRB,
    [RETIRE_CALL_IND] = FILTER_NAB,
    [RETIRE_RET] = FILTER_NRB,
};

/* The bit that selects each source of data, if there is one. */
static const uint32_t source_filter[RETIRE_NR_SOURCES] = {
    [RETIRE_SOURCE_L3] = FILTER_NBC,
    [RETIRE_SOURCE_REMOTE] = FILTER_RDC,
    [RETIRE_SOURCE_DRAM] = FILTER_RAM,
    [RETIRE_SOURCE_OTHER] = FILTER_OTH,
};

static unsigned max_event(uint32_t features)
{
    unsigned n = LWP_NR_EVENTS;

    while (n && !(features & LWP_FLAG(n))) {
        n--;
    }
    return n;
}

/* LwpCbSize in bytes. */
static uint32_t cb_size(const LwpConfig *config)
{
    return CB_EVENTS + 8 * max_event(config->features);
}

void lwp_cpuid(const LwpConfig *config, uint64_t cfg, bool avail,
               uint32_t regs[4])
{
    unsigned events = max_event(config->features);

    regs[0] = avail ? (uint32_t)cfg | LWP_AVAIL : 0;
    regs[1] = (uint32_t)CB_EVENTS << 24 | events << 16 |
              LWP_RECORD_SIZE << 8 | cb_size(config) / 8;
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
static NOINLINE void st32_release(LwpMem *mem, uint64_t addr, uint32_t val)
{
    atomic_thread_fence(memory_order_release);
    st32(mem, addr, val);
}

static inline void cb_publish_head(const Place *p, uint32_t val)
{
    if (!p->host.cb) {
        st32_release(p->mem, p->cb + CB_HEAD, val);
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

static int32_t sext26(uint32_t val)
{
    return (int32_t)((val & COUNTER_MASK) ^ (1u << 25)) - (1 << 25);
}

/*
 * The minimum interval (§5.1 step 7) is 0 for every event: an emulated
 * processor makes progress however often it stores.
 */
static inline int32_t ld_interval(const Place *p, unsigned event)
{
    int32_t interval = sext26(cb_ld32(p, CB_INTERVAL(event)));

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

static inline bool enabled(const LwpState *s, unsigned event)
{
    return s->flags & LWP_FLAG(event);
}

static bool wants_clocks(const LwpState *s)
{
    return s->flags & (LWP_FLAG(LWP_EVENT_CNH) | LWP_FLAG(LWP_EVENT_RNH));
}

/* The counter may go on below zero while a record waits (§1.1 step 2). */
static void count_event(LwpState *s, unsigned event, uint64_t n)
{
    int64_t left = s->counter[event - 1] - (int64_t)n;

    s->counter[event - 1] = (int32_t)MAX(left, COUNTER_MIN);
}

static void count_clocks(LwpState *s, const LwpConfig *config, uint64_t clocks)
{
    if (enabled(s, LWP_EVENT_CNH)) {
        count_event(s, LWP_EVENT_CNH, clocks);
    }
    if (enabled(s, LWP_EVENT_RNH)) {
        uint64_t ref = clocks * config->model.refclk_ratio + s->ref_fraction;

        count_event(s, LWP_EVENT_RNH, ref / RETIRE_REFCLK_UNIT);
        s->ref_fraction = (uint32_t)(ref % RETIRE_REFCLK_UNIT);
    }
}

/* §1.1 step 1, for instructions of which @branches are branches that count. */
static void count(LwpState *s, const LwpConfig *config, uint32_t insns,
                  uint32_t branches)
{
    if (enabled(s, LWP_EVENT_IRE)) {
        count_event(s, LWP_EVENT_IRE, insns);
    }
    if (enabled(s, LWP_EVENT_BRE)) {
        count_event(s, LWP_EVENT_BRE, branches);
    }
    if (wants_clocks(s)) {
        count_clocks(s, config, (uint64_t)insns * config->model.insn_clocks);
    }
}

/* An event has one record at most; the next is gathered when that is stored. */
static void gather(LwpState *s, unsigned event, uint64_t flags, uint64_t ip,
                   uint64_t data)
{
    LwpRecord *r = &s->pending[s->npending];

    for (unsigned i = 0; i < s->npending; i++) {
        if ((s->pending[i].q[0] & 0xff) == event) {
            return;
        }
    }
    /* It is only full of records that software made up. */
    if (s->npending < LWP_NR_EVENTS) {
        r->q[0] = event | CFG_COREID(s->cfg) << 8 | flags;
        r->q[1] = ip;
        r->q[2] = data;
        r->q[3] = 0;
        s->npending++;
    }
}

/*
 * How many instructions may retire before one of them causes event @t, if its
 * counter is @left.
 */
static inline uint64_t distance_of(const LwpState *s, const LwpTimed *t,
                                   int64_t left)
{
    if (left < 0) {
        return 0;
    }
    left = (left + 1) * t->unit - 1;
    if (t->event == LWP_EVENT_RNH) {
        left -= s->ref_fraction;
    }
    return left / t->rate;
}

/* The same for the nearest of all but BRE. */
static inline uint32_t distance(const LwpState *s)
{
    uint64_t d = RETIRE_BUDGET_MAX;

    for (unsigned i = 0; i < s->nr_timed; i++) {
        const LwpTimed *t = &s->timed[i];

        d = MIN(d, distance_of(s, t, s->counter[t->event - 1]));
    }
    return (uint32_t)d;
}

void lwp_distance(const LwpState *s, RetireDistance *d)
{
    uint32_t insns = s->only ? (uint32_t)MAX(s->counter[s->only - 1], 0) :
                     distance(s);

    d->insns = MIN(d->insns, insns);
    if (s->by_class) {
        uint32_t left = (uint32_t)MAX(s->counter[LWP_EVENT_BRE - 1], 0);

        d->branches = MIN(d->branches, left);
    }
    if (lwp_wants_loads(s)) {
        int32_t left = s->all_misses ? s->counter[LWP_EVENT_DME - 1] : 0;

        d->misses = MIN(d->misses, (uint32_t)MAX(left, 0));
        d->clocks |= wants_clocks(s);
    }
    d->pending |= lwp_busy(s);
}

/* What follows from the enabled events and the filters. */
static RetireWants select_wants(const LwpState *s)
{
    const uint32_t retirement = LWP_FLAG(LWP_EVENT_IRE) |
        LWP_FLAG(LWP_EVENT_BRE) | LWP_FLAG(LWP_EVENT_DME) |
        LWP_FLAG(LWP_EVENT_CNH) | LWP_FLAG(LWP_EVENT_RNH);
    RetireWants wants = RETIRE_WANT_COUNT;

    if (!(s->flags & retirement)) {
        return 0;
    }
    wants |= s->predicts ? RETIRE_WANT_PREDICT : 0;
    wants |= s->by_class ? RETIRE_WANT_CLASSES : 0;
    wants |= s->one_by_one ? RETIRE_WANT_BRANCHES : 0;
    wants |= lwp_wants_loads(s) ? RETIRE_WANT_SOURCES : 0;
    if (s->ip_filter == LWP_IP_NONE && wants == RETIRE_WANT_COUNT) {
        return 0;
    }
    return wants | (s->ip_filter == LWP_IP_ALL ? 0 : RETIRE_WANT_RANGE);
}

/* After a change of the enabled events or the filters. */
static void select_events(LwpState *s, const LwpConfig *config)
{
    s->predicts = enabled(s, LWP_EVENT_BRE) &&
                  (config->caps & LWP_CAP_PREDICTION);
    s->by_prediction = s->predicts && (s->filters & (FILTER_NMB | FILTER_NPB));
    /* Branches are counted where a TB ends, whether it is in the range. */
    s->one_by_one = s->by_prediction || (enabled(s, LWP_EVENT_BRE) &&
                                         s->ip_filter != LWP_IP_ALL);
    s->by_class = enabled(s, LWP_EVENT_BRE) && !s->one_by_one;
    s->all_misses = s->ip_filter == LWP_IP_ALL &&
                    !(s->filters & (FILTER_LATENCY | FILTER_CLF));
    s->nr_timed = 0;
    for (unsigned n = LWP_EVENT_IRE; n <= LWP_EVENT_RNH; n++) {
        LwpTimed *t = &s->timed[s->nr_timed];

        if (enabled(s, n) && n != LWP_EVENT_BRE && n != LWP_EVENT_DME) {
            t->event = (uint8_t)n;
            t->unit = n == LWP_EVENT_RNH ? RETIRE_REFCLK_UNIT : 1;
            t->rate = n == LWP_EVENT_IRE ? 1 : config->model.insn_clocks;
            if (n == LWP_EVENT_RNH) {
                t->rate *= config->model.refclk_ratio;
            }
            s->nr_timed++;
        }
    }
    s->wants = select_wants(s);
    s->only = 0;
    if (s->nr_timed == 1 && s->timed[0].rate == s->timed[0].unit &&
        !enabled(s, LWP_EVENT_BRE)) {
        s->only = s->timed[0].event;
    }
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
    select_events(s, config);
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
    mem->ops->probe(mem, s->cbaddr, cb_size(mem->config));
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
 * Store, report and reset (§1.1 steps 3 to 5) for @record at @p.  A negative
 * @left is the counter of the record's event with this occurrence counted, to
 * be reset from there.  Returns true if the ring was full.
 *
 * All memory is written before the state changes, the record before the head
 * pointer, and what must not happen twice (MissedEvents) last.
 */
static inline bool store_at(const Place *p, LwpState *s,
                            const LwpRecord *record, int32_t left)
{
    unsigned event = record->q[0] & 0xff;
    uint32_t next = s->head + LWP_RECORD_SIZE;
    uint32_t mask = 0;
    uint64_t prng = s->prng;
    int32_t reset;
    uint8_t vector = 0;
    bool full;

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

    /* Nothing is stored unless all is writable. */
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

/* The same without a host address. */
static NOINLINE bool store_slowly(const Place *p, LwpState *s,
                                  const LwpRecord *record, int32_t left)
{
    lwp_probe_store(s, p->mem);
    return store_at(p, s, record, left);
}

/* One function takes a third less than ten. */
static FLATTEN bool store_record(LwpState *s, LwpMem *mem,
                                const LwpRecord *record, int32_t left)
{
    uint64_t cb = s->cbaddr, slot = s->base + s->head;
    LwpHost host = mem->host;

    if (host.cb && host.slot) {
        mem->host.cb = NULL;
        return store_at(&(Place) { mem, cb, slot, host }, s, record, left);
    }
    return store_slowly(&(Place) { .mem = mem, .cb = cb, .slot = slot }, s,
                        record, left);
}

static void store_next(LwpState *s, LwpMem *mem)
{
    unsigned event = s->pending[0].q[0] & 0xff;
    int32_t left = 0;

    if (event <= LWP_NR_EVENTS && enabled(s, event)) {
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
static bool init_ip_filter(LwpState *s, const LwpConfig *config)
{
    all_eligible(s);
    if ((s->filters & FILTER_IPF) && (config->caps & LWP_CAP_IP_FILTER)) {
        s->ip_filter = LWP_IP_UNKNOWN;
        return true;
    }
    return false;
}

/* The rest of lwp_count(). */
static NOINLINE void count_others(LwpState *s, const LwpConfig *config,
                                  const RetireTotals *n)
{
    uint64_t branches = 0;

    for (int i = 0; n->branches && i < RETIRE_FAR; i++) {
        branches += s->filters & class_filter[i] ? 0 : n->branches[i];
    }
    if (!s->only) {
        count(s, config, n->insns, (uint32_t)branches);
    }
    /* If only somebody else wants loads, others of their misses pass, too. */
    if (n->misses && lwp_wants_loads(s)) {
        count_event(s, LWP_EVENT_DME, n->misses);
        count_clocks(s, config, (uint64_t)n->misses *
                                config->model.latency[RETIRE_SOURCE_L2]);
    }
}

FLATTEN void lwp_count(LwpState *s, const LwpConfig *config,
                       const RetireTotals *n)
{
    if (s->only) {
        count_event(s, s->only, n->insns);
    }
    if (!s->only || n->misses) {
        count_others(s, config, n);
    }
}

/*
 * Whether a record could be stored now, which it is then.  The ring comes
 * first, so that looking dirties no page that keeps nothing.
 */
static bool ready(const LwpState *s, LwpMem *mem)
{
    return mem->ops->writable(mem, s->base + s->head, LWP_RECORD_SIZE) &&
           mem->ops->writable(mem, s->cbaddr, cb_size(mem->config));
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

/* The flags of a branch's record (Figure 2-4). */
static uint32_t branch_flags(const LwpState *s, const RetireStory *story)
{
    uint32_t flags = story->taken ? RECORD_TKN : 0;

    if (s->predicts && story->predicted) {
        flags |= RECORD_PRV | (story->mispredicted ? 0 : RECORD_PRD);
    }
    return flags;
}

/* Whether Filters lets a branch count that has these flags (Table 6-2). */
static bool prediction_counts(const LwpState *s, uint32_t flags)
{
    const uint32_t both = FILTER_NMB | FILTER_NPB;

    if (!s->by_prediction) {
        return true;
    }
    if (!(flags & RECORD_PRV)) {
        return (s->filters & both) != both;
    }
    return !(s->filters & (flags & RECORD_PRD ? FILTER_NPB : FILTER_NMB));
}

void lwp_retire(LwpState *s, const LwpConfig *config, const RetireStory *story)
{
    bool unit = false;
    uint32_t flags = 0;

    if (!lwp_eligible(s, story->ip)) {
        return;
    }
    if (s->only) {
        count_event(s, s->only, 1);
        if (s->counter[s->only - 1] < 0 && !s->deferred) {
            gather(s, s->only, 0, story->ip, 0);
        }
        return;
    }
    if (story->branch && enabled(s, LWP_EVENT_BRE)) {
        flags = branch_flags(s, story);
        unit = !(s->filters & class_filter[retire_class(story->branch,
                                                        story->taken)]) &&
               prediction_counts(s, flags);
    }
    count(s, config, 1, unit);
    for (unsigned n = LWP_EVENT_IRE; n <= LWP_NR_EVENTS; n++) {
        /* After a fault, events take a later instruction (§1.1 step 2). */
        if (!enabled(s, n) || s->counter[n - 1] >= 0 || s->deferred) {
            continue;
        }
        if (n == LWP_EVENT_BRE) {
            if (unit) {
                gather(s, n, flags, story->ip, story->target);
            }
        } else if (n != LWP_EVENT_DME) {
            gather(s, n, 0, story->ip, 0);
        }
    }
}

/* What a counter shows (§2.4.1); MinLatency has the same maximum. */
static uint32_t recorded_latency(const LwpConfig *config, uint32_t clocks)
{
    uint32_t unit = 1u << config->latency_round;
    uint32_t max = (1u << config->latency_bits) - unit;

    return MIN(clocks & -unit, max);
}

/* Whether Filters lets a miss count (Table 6-2). */
static bool miss_counts(const LwpState *s, const LwpConfig *config,
                        RetireSource source)
{
    uint32_t min = 16 * (s->filters & FILTER_LATENCY);

    if ((config->caps & LWP_CAP_CACHE_LATENCY) &&
        recorded_latency(config, config->model.latency[source]) <
        recorded_latency(config, min)) {
        return false;
    }
    return !(s->filters & FILTER_CLF) || (s->filters & source_filter[source]) ||
           !(config->caps & LWP_CAP_CACHE_LEVELS);
}

/* Whether they make an event fall due among @insns instructions. */
static bool clocks_due(const LwpState *s, const LwpConfig *config,
                       uint32_t clocks, uint32_t insns)
{
    int64_t all = clocks + (int64_t)insns * config->model.insn_clocks;

    if (enabled(s, LWP_EVENT_CNH) && all > s->counter[LWP_EVENT_CNH - 1]) {
        return true;
    }
    return enabled(s, LWP_EVENT_RNH) &&
           all * config->model.refclk_ratio + s->ref_fraction >=
           (s->counter[LWP_EVENT_RNH - 1] + (int64_t)1) * RETIRE_REFCLK_UNIT;
}

/* The same for what has been charged before. */
static bool clocks_due_charged(const LwpState *s, const LwpConfig *config,
                               uint32_t clocks, uint32_t charged)
{
    return wants_clocks(s) && clocks_due(s, config, clocks, charged);
}

bool lwp_miss_due(const LwpState *s, const LwpConfig *config, uint32_t charged,
                  const RetireMiss *miss)
{
    bool next = s->counter[LWP_EVENT_DME - 1] <= 0;

    if (!miss) {
        return next ||
               clocks_due_charged(s, config, config->model.latency_worst,
                                  charged);
    }
    return lwp_eligible(s, miss->ip) &&
           ((next && miss_counts(s, config, miss->source)) ||
            clocks_due_charged(s, config, miss->clocks, charged));
}

void lwp_miss(LwpState *s, const LwpConfig *config, const RetireMiss *miss)
{
    if (!lwp_eligible(s, miss->ip)) {
        return;
    }
    if (miss_counts(s, config, miss->source)) {
        count_event(s, LWP_EVENT_DME, 1);
        if (s->counter[LWP_EVENT_DME - 1] < 0 && !s->deferred) {
            bool dav = config->caps & LWP_CAP_DATA_ADDRESS;
            uint64_t latency = recorded_latency(config,
                                        config->model.latency[miss->source]);

            gather(s, LWP_EVENT_DME,
                   (uint32_t)miss->source << RECORD_SRC_SHIFT |
                   (dav ? RECORD_DAV : 0) | latency << RECORD_LATENCY_SHIFT,
                   miss->ip, dav ? miss->addr : 0);
        }
    }
    count_clocks(s, config, miss->clocks);
}

FLATTEN bool lwp_boundary(LwpState *s, LwpMem *mem, uint64_t ip)
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
        select_events(s, mem->config);
    }
    store_pending(s, mem);
    return true;
}

/* §5.2: the part of the state that the LWPCB shows. */
static void flush(LwpState *s, LwpMem *mem)
{
    uint64_t cb = s->cbaddr;

    mem->ops->probe(mem, cb, cb_size(mem->config));
    store_pending(s, mem);
    for (unsigned n = 1; n <= LWP_NR_EVENTS; n++) {
        if (enabled(s, n)) {
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

/* A head that breaks the rules is repaired: 0 if it is above @max. */
static uint32_t repair_head(uint32_t head, uint32_t max)
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

    if (!segment_holds(ds, ea, cb_size(mem->config))) {
        return false;
    }
    cb = to_linear(ds, ea);
    if (cb == 0) {
        return true;    /* LWP_CBADDR = 0 means disabled (§4.3) */
    }
    mem->ops->probe(mem, cb, cb_size(mem->config));

    size = ld32(mem, cb + CB_SIZE) & SIZE_MASK & -LWP_RECORD_SIZE;
    base = mem->ops->ld64(mem, cb + CB_BASE);
    if (size < MIN_RING || !segment_holds(ds, base, size)) {
        return false;
    }

    flags = ld32(mem, cb + CB_FLAGS) & (uint32_t)s->cfg;
    st32(mem, cb + CB_FLAGS, flags);
    for (unsigned n = 1; n <= LWP_NR_EVENTS; n++) {
        if (flags & LWP_FLAG(n)) {
            const Place p = { .mem = mem, .cb = cb };
            int32_t count = sext26(cb_ld32(&p, CB_COUNTER(n)));

            cb_st32(&p, CB_INTERVAL(n), ld_interval(&p, n));
            new.counter[n - 1] = count < 0 ? 0 : count;
        }
    }

    new.base = to_linear(ds, base);
    new.size = size;
    /* Table 6-1 */
    new.head = repair_head(ld32(mem, cb + CB_HEAD), size - 1);
    new.filters = ld32(mem, cb + CB_FILTERS);
    new.flags = flags & LWP_FLAG_EVENTS;
    new.cbaddr = cb;
    if (init_ip_filter(&new, mem->config)) {
        load_ip_filter(&new, mem);
    }
    select_events(&new, mem->config);
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

bool lwp_val_due(LwpState *s, LwpMem *mem, uint64_t ip)
{
    int32_t *left = &s->counter[LWP_EVENT_VAL - 1];

    if (!enabled(s, LWP_EVENT_VAL)) {
        return false;
    }
    if (s->ip_filter == LWP_IP_UNKNOWN) {
        load_ip_filter(s, mem);
        select_events(s, mem->config);
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
        if (enabled(s, n)) {
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
        if (!segment_holds(ds, to_effective(ds, cb), cb_size(config)) ||
            !segment_holds(ds, to_effective(ds, base), size)) {
            return;
        }
    }

    s->cbaddr = cb;
    s->base = base;
    s->size = size;
    /* §7.4 step 1 */
    s->head = repair_head(get32(image + XS_HEAD), size - LWP_RECORD_SIZE);
    s->filters = get32(image + XS_FILTERS);
    s->flags = get32(image + XS_FLAGS) & LWP_FLAG_EVENTS & (uint32_t)s->cfg;
    for (unsigned n = 1; n <= LWP_NR_EVENTS; n++) {
        if (enabled(s, n)) {
            const uint8_t *p = image + XS_COUNTER + 4 * (n - 1);

            s->counter[n - 1] = sext26(get32(p));
        }
    }
    if (image[XS_RECORD]) {
        for (unsigned i = 0; i < LWP_RECORD_SIZE / 8; i++) {
            s->pending[0].q[i] = get(image + XS_RECORD + 8 * i, 8);
        }
        s->npending = 1;
    }
    init_ip_filter(s, config);
    select_events(s, config);
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
    select_events(s, config);
    return true;
}
