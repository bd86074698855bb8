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
#define FUSE_MAX        8191            /* see LwpState.fuse */
#define FUSE_BRANCHES   0xffff          /* more than FUSE_MAX */
#define STEP_MAX        24              /* nearer events are not worth blocks */
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

#define MIN(a, b)       ((a) < (b) ? (a) : (b))
#define MAX(a, b)       ((a) > (b) ? (a) : (b))

/* The bit of Filters that suppresses each kind of branches. */
static const uint32_t branch_filter[LWP_NR_BRANCHES] = {
    [LWP_BRANCH_COND] = FILTER_NCB,
    [LWP_BRANCH_JMP] = FILTER_NRB,
    [LWP_BRANCH_CALL] = FILTER_NRB,
    [LWP_BRANCH_RET] = FILTER_NRB,
    [LWP_BRANCH_JMP_ABS] = FILTER_NAB,
    [LWP_BRANCH_CALL_ABS] = FILTER_NAB,
};

/* The bit that selects each source of data, if there is one. */
static const uint32_t source_filter[LWP_NR_SOURCES] = {
    [LWP_SOURCE_L3] = FILTER_NBC,
    [LWP_SOURCE_REMOTE] = FILTER_RDC,
    [LWP_SOURCE_DRAM] = FILTER_RAM,
    [LWP_SOURCE_OTHER] = FILTER_OTH,
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

/* The low bits of an interval that are random (Table 6-1). */
static uint32_t random_mask(LwpMem *mem, uint64_t cbaddr)
{
    return (1u << (ld32(mem, cbaddr + CB_SIZE) >> RANDOM_SHIFT)) - 1;
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

    s->counter[event - 1] = MAX(left, COUNTER_MIN);
}

static void count_clocks(LwpState *s, const LwpConfig *config, uint64_t clocks)
{
    if (enabled(s, LWP_EVENT_CNH)) {
        count_event(s, LWP_EVENT_CNH, clocks);
    }
    if (enabled(s, LWP_EVENT_RNH)) {
        uint64_t ref = clocks * config->refclk_ratio + s->ref_fraction;

        count_event(s, LWP_EVENT_RNH, ref / LWP_REFCLK_UNIT);
        s->ref_fraction = ref % LWP_REFCLK_UNIT;
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
    count_clocks(s, config, (uint64_t)insns * config->insn_clocks);
}

/* An event has one record at most; the next is gathered when that is stored. */
static void gather(LwpState *s, unsigned event, uint64_t flags, uint64_t ip,
                   uint64_t data)
{
    for (unsigned i = 0; i < s->npending; i++) {
        if ((s->pending[i].q[0] & 0xff) == event) {
            return;
        }
    }
    /* It is only full of records that software made up. */
    if (s->npending < LWP_NR_EVENTS) {
        s->pending[s->npending++] = (LwpRecord) {
            .q[0] = event | CFG_COREID(s->cfg) << 8 | flags,
            .q[1] = ip,
            .q[2] = data,
        };
    }
}

/* How many instructions have been taken off the fuse, but not off counters. */
static uint32_t ahead(const LwpState *s)
{
    return (uint32_t)(s->armed - s->fuse) >> 16;
}

void lwp_sync(LwpState *s, const LwpConfig *config)
{
    uint32_t used = s->armed - s->fuse;

    if (used) {
        s->armed = s->fuse;
        count(s, config, used >> 16, used & 0xffff);
    }
    for (unsigned i = 0; i < s->ndue; i++) {
        /* Unless the block was left before. */
        if (s->counter[s->due[i].event - 1] < 0) {
            gather(s, s->due[i].event, 0, s->due[i].ip, 0);
        }
    }
    s->ndue = 0;
}

/*
 * How many instructions may retire before one of them causes such an event, if
 * its counter is @left.
 */
static uint64_t distance_from(const LwpState *s, const LwpConfig *config,
                              unsigned event, int64_t left)
{
    if (left < 0) {
        return 0;
    }
    switch (event) {
    case LWP_EVENT_CNH:
        return left / config->insn_clocks;
    case LWP_EVENT_RNH:
        return ((left + 1) * LWP_REFCLK_UNIT - 1 - s->ref_fraction) /
               ((uint64_t)config->insn_clocks * config->refclk_ratio);
    default:
        return left;
    }
}

static uint64_t distance_of(const LwpState *s, const LwpConfig *config,
                            unsigned event)
{
    if (!enabled(s, event)) {
        return UINT64_MAX;
    }
    return distance_from(s, config, event, s->counter[event - 1]);
}

static uint32_t distance(const LwpState *s, const LwpConfig *config)
{
    uint64_t d = FUSE_MAX;

    d = MIN(d, distance_of(s, config, LWP_EVENT_IRE));
    d = MIN(d, distance_of(s, config, LWP_EVENT_CNH));
    d = MIN(d, distance_of(s, config, LWP_EVENT_RNH));
    return d;
}

/*
 * Set the fuse after a change of what it depends on; the counters must be up
 * to date.  A branch is an instruction, so there are at most as many branches
 * as instructions until it trips; @run may retire before one of them causes
 * another event.
 */
static void arm_for(LwpState *s, const LwpConfig *config, uint32_t run)
{
    if (!s->by_prediction) {
        run = MIN(run, distance_of(s, config, LWP_EVENT_BRE));
    }
    s->fuse = s->armed = LWP_FUSE(run, FUSE_BRANCHES);
}

static void arm(LwpState *s, const LwpConfig *config)
{
    arm_for(s, config, distance(s, config));
}

/* The same after a change of the enabled events or the filters. */
static void select_events(LwpState *s, const LwpConfig *config)
{
    for (unsigned i = 0; i < LWP_NR_BRANCHES; i++) {
        s->branch_unit[i] = enabled(s, LWP_EVENT_BRE) && branch_filter[i] &&
                            !(s->filters & branch_filter[i]);
    }
    s->predicts = enabled(s, LWP_EVENT_BRE) &&
                  (config->caps & LWP_CAP_PREDICTION);
    s->by_prediction = s->predicts && (s->filters & (FILTER_NMB | FILTER_NPB));
    s->all_misses = s->ip_filter == LWP_IP_ALL && !wants_clocks(s) &&
                    !(s->filters & (FILTER_LATENCY | FILTER_CLF));
    arm(s, config);
}

void lwp_expire(LwpState *s, const LwpConfig *config)
{
    lwp_sync(s, config);
    arm_for(s, config, 0);
}

bool lwp_write_cfg(LwpState *s, const LwpConfig *config, uint64_t val)
{
    /* Bit 0 and bits 63:48 are ignored, as Family 15h did. */
    if ((uint32_t)val & ~(config->features | LWP_AVAIL)) {
        return false;
    }
    lwp_sync(s, config);
    s->cfg = val & (CFG_FIELDS | config->features);
    /* What is withdrawn stops; what is granted waits for LLWPCB or XRSTOR. */
    s->flags &= s->cfg;
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
static uint8_t interrupt_due(const LwpState *s, LwpMem *mem, uint32_t head)
{
    uint64_t cb = s->cbaddr;
    uint32_t tail, used;

    if (!(s->cfg & LWP_FLAG_INT) ||
        !(ld32(mem, cb + CB_FLAGS) & LWP_FLAG_INT)) {
        return 0;
    }
    tail = ld32(mem, cb + CB_TAIL) % s->size;
    used = (head < tail ? s->size : 0) + head - tail;
    if (used < (ld32(mem, cb + CB_THRESHOLD) & -LWP_RECORD_SIZE)) {
        return 0;
    }
    return CFG_VECTOR(s->cfg);
}

/*
 * Store, report and reset (§1.1 steps 3 to 5) for @record.  A negative @left
 * is the counter of the record's event with this occurrence counted, to be
 * reset from there.  Returns true if the ring was full.
 *
 * All memory is written before the state changes, the record before the head
 * pointer, and what must not happen twice (MissedEvents) last.
 */
static bool store_record(LwpState *s, LwpMem *mem, const LwpRecord *record,
                         int32_t left)
{
    unsigned event = record->q[0] & 0xff;
    uint64_t cb = s->cbaddr, slot = s->base + s->head;
    uint32_t next = s->head + LWP_RECORD_SIZE;
    uint64_t prng = s->prng;
    int32_t reset = 0, floor = 0;
    uint8_t vector = 0;
    bool full;

    lwp_probe_store(s, mem);

    if (next == s->size) {
        next = 0;
    }
    full = next == ld32(mem, cb + CB_TAIL);

    if (left < 0) {
        uint32_t mask = random_mask(mem, cb);

        reset = ld_interval(mem, cb, event);
        floor = reset & ~mask;
        if (mask) {
            reset = floor | (prng_next(&prng) & mask);
        }
        /* Overrun shortens the next period (§1.1 step 5). */
        reset += left + 1;
    }

    /* Nothing is stored unless all is writable. */
    st32(mem, cb + CB_HEAD, s->head);
    mem->ops->st_record(mem, slot, record);
    /* Consumers on other processors may not see the head before the record. */
    atomic_thread_fence(memory_order_release);
    st32(mem, cb + CB_HEAD, full ? s->head : next);
    if (full) {
        mem->ops->st64(mem, cb + CB_MISSED,
                       mem->ops->ld64(mem, cb + CB_MISSED) + 1);
    } else {
        vector = interrupt_due(s, mem, next);
        s->head = next;
    }
    s->prng = prng;
    if (left < 0) {
        s->counter[event - 1] = reset;
        s->floor[event - 1] = floor;
    }
    /* Whoever takes a page away does so in between, or on another processor. */
    s->ready = (slot ^ (s->base + s->head + LWP_RECORD_SIZE - 1)) < 4096;
    mem->ops->report(mem, slot, record, full, vector);
    return full;
}

static void store_next(LwpState *s, LwpMem *mem)
{
    unsigned event = s->pending[0].q[0] & 0xff;
    int32_t left = 0;

    if (event <= LWP_NR_EVENTS && enabled(s, event)) {
        left = s->counter[event - 1];
    }
    store_record(s, mem, &s->pending[0], left);
    s->npending--;
    memmove(&s->pending[0], &s->pending[1],
            s->npending * sizeof(s->pending[0]));
}

static void store_pending(LwpState *s, LwpMem *mem)
{
    uint32_t near;

    lwp_sync(s, mem->config);
    while (s->npending) {
        store_next(s, mem);
    }
    s->deferred = false;
    near = distance(s, mem->config);
    s->step = near < STEP_MAX ? near + 1 : 0;
    arm_for(s, mem->config, near);
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

LwpMode lwp_mode(const LwpState *s)
{
    const uint32_t retirement = LWP_FLAG(LWP_EVENT_IRE) |
        LWP_FLAG(LWP_EVENT_BRE) | LWP_FLAG(LWP_EVENT_DME) |
        LWP_FLAG(LWP_EVENT_CNH) | LWP_FLAG(LWP_EVENT_RNH);
    unsigned kinds = 0;

    if (lwp_busy(s)) {
        return LWP_MODE_BOUNDARY;
    }
    if (!(s->flags & retirement) ||
        (s->ip_filter == LWP_IP_NONE && !s->predicts && !lwp_wants_loads(s))) {
        return LWP_MODE_OFF;
    }
    if (s->step) {
        return LWP_MODE_STEP;
    }
    if (s->by_prediction) {
        return LWP_MODE_PREDICTED;
    }
    if (s->ip_filter != LWP_IP_ALL) {
        return LWP_MODE_RANGE;
    }
    for (unsigned i = 0; i < LWP_NR_BRANCHES; i++) {
        kinds += s->branch_unit[i];
    }
    return kinds == 0 && !s->predicts ? LWP_MODE_INSNS :
           kinds == LWP_NR_BRANCHES - 1 ? LWP_MODE_BRANCHES :
           LWP_MODE_CLASSES;
}

/* What stays of an interval with its Random bits (Table 6-1). */
static int32_t interval_floor(const LwpState *s, LwpMem *mem, unsigned event)
{
    return ld_interval(mem, s->cbaddr, event) & ~random_mask(mem, s->cbaddr);
}

/* Whether the next record could be stored now. */
static bool ready(LwpState *s, LwpMem *mem)
{
    if (!s->ready) {
        s->ready = mem->ops->writable(mem, s->cbaddr, cb_size(mem->config)) &&
                   mem->ops->writable(mem, s->base + s->head, LWP_RECORD_SIZE);
    }
    return s->ready;
}

/*
 * Note the events that will fall due in @block, or return false if that cannot
 * be known or is too near to the next ones.
 */
static bool foresee(LwpState *s, LwpMem *mem, const LwpBlock *block)
{
    const LwpConfig *config = mem->config;
    static const unsigned events[] = {
        LWP_EVENT_IRE, LWP_EVENT_CNH, LWP_EVENT_RNH
    };

    for (unsigned i = 0; i < 3; i++) {
        uint64_t d = distance_of(s, config, events[i]);
        int32_t *floor = &s->floor[events[i] - 1];
        uint64_t ip = block->ip;
        unsigned k = s->ndue;

        if (d >= block->insns) {
            continue;
        }
        /* An overrun shortens the next period (§1.1 step 5). */
        if (s->counter[events[i] - 1] < 0) {
            return false;
        }
        if (!*floor) {
            *floor = interval_floor(s, mem, events[i]);
        }
        /* A second one in the same block would be missed. */
        if (distance_from(s, config, events[i], *floor) <= 2 * block->insns) {
            return false;
        }
        for (unsigned n = 0; n < d; n++) {
            ip += block->lengths[n / 16] >> (n % 16 * 4) & 15;
        }
        for (; k > 0 && s->due[k - 1].ip > ip; k--) {
            s->due[k] = s->due[k - 1];
        }
        s->due[k].ip = ip;
        s->due[k].event = events[i];
        s->ndue++;
    }
    return true;
}

bool lwp_trip(LwpState *s, LwpMem *mem, const LwpBlock *block)
{
    uint32_t unit = s->branch_unit[block->branch];
    int32_t units = LWP_FUSE(block->insns, unit);
    uint32_t near;

    s->fuse += units;
    lwp_sync(s, mem->config);
    if (!lwp_boundary(s, mem, block->ip)) {
        return false;
    }
    if (s->step) {
        return false;   /* the next one is near */
    }
    near = distance(s, mem->config);
    if (!unit || s->counter[LWP_EVENT_BRE - 1] > 0) {
        if (block->insns <= near) {
            /* The fuse may be negative now; then the next block trips again. */
            arm_for(s, mem->config, near);
            s->fuse -= units;
            return true;
        }
        /* Blocks that may not count anything do not trip. */
        if (!block->late && s->ip_filter == LWP_IP_ALL && !s->by_prediction &&
            ready(s, mem) && foresee(s, mem, block)) {
            arm_for(s, mem->config, 0);
            s->fuse -= units;
            return true;
        }
    }
    s->ndue = 0;
    s->step = MIN(block->insns, near + 1);
    return false;
}

void lwp_settle(LwpState *s, LwpMem *mem)
{
    lwp_sync(s, mem->config);
    while (s->npending) {
        s->ready = false;
        if (!ready(s, mem)) {
            break;
        }
        store_next(s, mem);
    }
}

void lwp_unretire(LwpState *s, uint32_t insns, LwpBranch branch, uint64_t ip)
{
    if (lwp_eligible(s, ip)) {
        s->fuse += LWP_FUSE(insns, s->branch_unit[branch]);
    }
}

/* The flags of a branch's record (Figure 2-4). */
static uint32_t branch_flags(const LwpState *s, LwpPredictor *predictor,
                             const LwpInsn *insn)
{
    uint32_t flags = insn->taken ? RECORD_TKN : 0;

    if (s->predicts) {
        LwpPrediction p = lwp_predict(predictor, insn->branch, insn->ip,
                                      insn->next, insn->taken, insn->target);

        if (p.valid) {
            flags |= RECORD_PRV | (p.correct ? RECORD_PRD : 0);
        }
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

void lwp_retire(LwpState *s, const LwpConfig *config, LwpPredictor *predictor,
                const LwpInsn *insn)
{
    uint32_t unit = s->branch_unit[insn->branch];
    uint32_t ran = ahead(s);
    uint32_t flags = 0;

    lwp_sync(s, config);
    s->step -= MIN(s->step, ran + 1);
    if (insn->branch && enabled(s, LWP_EVENT_BRE)) {
        flags = branch_flags(s, predictor, insn);
        unit = unit && prediction_counts(s, flags);
    }
    if (lwp_eligible(s, insn->ip)) {
        count(s, config, 1, unit);
        for (unsigned n = LWP_EVENT_IRE; n <= LWP_NR_EVENTS; n++) {
            /* After a fault, events take a later instruction (§1.1 step 2). */
            if (!enabled(s, n) || s->counter[n - 1] >= 0 || s->deferred) {
                continue;
            }
            if (n == LWP_EVENT_BRE) {
                if (unit) {
                    gather(s, n, flags, insn->ip, insn->target);
                }
            } else if (n != LWP_EVENT_DME) {
                gather(s, n, 0, insn->ip, 0);
            }
        }
    }
    if (!s->step && !s->npending) {
        arm(s, config);
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
                        LwpSource source)
{
    uint32_t min = 16 * (s->filters & FILTER_LATENCY);

    if ((config->caps & LWP_CAP_CACHE_LATENCY) &&
        recorded_latency(config, config->latency[source]) <
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
    int64_t all = clocks + (int64_t)insns * config->insn_clocks;

    if (enabled(s, LWP_EVENT_CNH) && all > s->counter[LWP_EVENT_CNH - 1]) {
        return true;
    }
    return enabled(s, LWP_EVENT_RNH) &&
           all * config->refclk_ratio + s->ref_fraction >=
           (s->counter[LWP_EVENT_RNH - 1] + (int64_t)1) * LWP_REFCLK_UNIT;
}

/* The same for what has been counted ahead. */
static bool clocks_due_ahead(const LwpState *s, const LwpConfig *config,
                             uint32_t clocks)
{
    return wants_clocks(s) &&
           (s->ndue || clocks_due(s, config, clocks, ahead(s)));
}

bool lwp_miss_due(const LwpState *s, const LwpConfig *config,
                  const LwpMiss *miss)
{
    bool next = s->counter[LWP_EVENT_DME - 1] <= 0;

    if (!miss) {
        return next || clocks_due_ahead(s, config, config->latency_worst);
    }
    return lwp_eligible(s, miss->ip) &&
           ((next && miss_counts(s, config, miss->source)) ||
            clocks_due_ahead(s, config, miss->clocks));
}

void lwp_miss(LwpState *s, const LwpConfig *config, const LwpMiss *miss)
{
    uint32_t used = s->armed - s->fuse;

    if (!lwp_eligible(s, miss->ip)) {
        return;
    }
    if (miss_counts(s, config, miss->source)) {
        count_event(s, LWP_EVENT_DME, 1);
        if (s->counter[LWP_EVENT_DME - 1] < 0 && !s->deferred) {
            bool dav = config->caps & LWP_CAP_DATA_ADDRESS;
            uint64_t latency = recorded_latency(config,
                                                config->latency[miss->source]);

            gather(s, LWP_EVENT_DME,
                   (uint32_t)miss->source << RECORD_SRC_SHIFT |
                   (dav ? RECORD_DAV : 0) | latency << RECORD_LATENCY_SHIFT,
                   miss->ip, dav ? miss->addr : 0);
        }
    }
    count_clocks(s, config, miss->clocks);
    if (s->npending || clocks_due(s, config, 0, FUSE_MAX + 1)) {
        /* The fuse is shorter now; what has been counted ahead stays so. */
        arm_for(s, config, s->npending ? 0 : distance(s, config));
        s->fuse -= used;
    }
}

bool lwp_boundary(LwpState *s, LwpMem *mem, uint64_t ip)
{
    if (!lwp_busy(s)) {
        return true;
    }
    if (s->deferred && ip != s->deferred_ip) {
        return false;
    }
    /* This is what holds if an access does not return. */
    s->deferred = true;
    s->deferred_ip = ip;
    if (s->ip_filter == LWP_IP_UNKNOWN) {
        load_ip_filter(s, mem);
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

void lwp_xsave(LwpState *s, const LwpConfig *config,
               uint8_t image[LWP_XSAVE_SIZE])
{
    lwp_sync(s, config);
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
    size = get(image + XS_SIZE, 4) & SIZE_MASK & -LWP_RECORD_SIZE;
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
    s->head = repair_head(get(image + XS_HEAD, 4), size);
    s->filters = get(image + XS_FILTERS, 4);
    s->flags = get(image + XS_FLAGS, 4) & LWP_FLAG_EVENTS & s->cfg;
    for (unsigned n = 1; n <= LWP_NR_EVENTS; n++) {
        if (enabled(s, n)) {
            const uint8_t *p = image + XS_COUNTER + 4 * (n - 1);

            s->counter[n - 1] = sext26(get(p, 4));
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
           s->ref_fraction < LWP_REFCLK_UNIT &&
           s->ip_filter <= LWP_IP_UNKNOWN &&
           !(s->flags & ~(s->cfg & LWP_FLAG_EVENTS));
}

bool lwp_load_state(LwpState *s, const LwpConfig *config, bool avail)
{
    if (!state_valid(s, config, avail)) {
        return false;
    }
    select_events(s, config);
    return true;
}
