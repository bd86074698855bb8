/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: what counts, and when a record is due. */

#include "lwp-internal.h"

#define RECORD_PRV      (1u << 29)      /* Figure 2-4 */
#define RECORD_PRD      (1u << 30)
#define RECORD_TKN      (1u << 31)
#define RECORD_DAV      (1u << 28)      /* Figure 2-5 */
#define RECORD_SRC_SHIFT        29
#define RECORD_LATENCY_SHIFT    32

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
    if (lwp_event_enabled(s, LWP_EVENT_CNH)) {
        count_event(s, LWP_EVENT_CNH, clocks);
    }
    if (lwp_event_enabled(s, LWP_EVENT_RNH)) {
        uint64_t ref = clocks * config->model.refclk_ratio + s->ref_fraction;

        count_event(s, LWP_EVENT_RNH, ref / RETIRE_REFCLK_UNIT);
        s->ref_fraction = (uint32_t)(ref % RETIRE_REFCLK_UNIT);
    }
}

/* §1.1 step 1, for instructions of which @branches are branches that count. */
static void count(LwpState *s, const LwpConfig *config, uint32_t insns,
                  uint32_t branches)
{
    if (lwp_event_enabled(s, LWP_EVENT_IRE)) {
        count_event(s, LWP_EVENT_IRE, insns);
    }
    if (lwp_event_enabled(s, LWP_EVENT_BRE)) {
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
void lwp_select_events(LwpState *s, const LwpConfig *config)
{
    s->predicts = lwp_event_enabled(s, LWP_EVENT_BRE) &&
                  (config->caps & LWP_CAP_PREDICTION);
    s->by_prediction = s->predicts && (s->filters & (FILTER_NMB | FILTER_NPB));
    /* Branches are counted where a TB ends, whether it is in the range. */
    s->one_by_one = s->by_prediction || (lwp_event_enabled(s, LWP_EVENT_BRE) &&
                                         s->ip_filter != LWP_IP_ALL);
    s->by_class = lwp_event_enabled(s, LWP_EVENT_BRE) && !s->one_by_one;
    s->all_misses = s->ip_filter == LWP_IP_ALL &&
                    !(s->filters & (FILTER_LATENCY | FILTER_CLF));
    s->nr_timed = 0;
    for (unsigned n = LWP_EVENT_IRE; n <= LWP_EVENT_RNH; n++) {
        LwpTimed *t = &s->timed[s->nr_timed];

        if (lwp_event_enabled(s, n) && n != LWP_EVENT_BRE &&
            n != LWP_EVENT_DME) {
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
        !lwp_event_enabled(s, LWP_EVENT_BRE)) {
        s->only = s->timed[0].event;
    }
}

void lwp_count(LwpState *s, const LwpConfig *config, const RetireTotals *n)
{
    uint64_t branches = 0;

    if (s->only) {
        count_event(s, s->only, n->insns);
    } else {
        for (int i = 0; n->branches && i < RETIRE_FAR; i++) {
            branches += s->filters & class_filter[i] ? 0 : n->branches[i];
        }
        count(s, config, n->insns, (uint32_t)branches);
    }
    /* If only somebody else wants loads, others of their misses pass, too. */
    if (n->misses && lwp_wants_loads(s)) {
        count_event(s, LWP_EVENT_DME, n->misses);
        count_clocks(s, config, (uint64_t)n->misses *
                                config->model.latency[RETIRE_SOURCE_L2]);
    }
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
    if (story->branch && lwp_event_enabled(s, LWP_EVENT_BRE)) {
        flags = branch_flags(s, story);
        unit = !(s->filters & class_filter[retire_class(story->branch,
                                                        story->taken)]) &&
               prediction_counts(s, flags);
    }
    count(s, config, 1, unit);
    for (unsigned n = LWP_EVENT_IRE; n <= LWP_NR_EVENTS; n++) {
        /* After a fault, events take a later instruction (§1.1 step 2). */
        if (!lwp_event_enabled(s, n) || s->counter[n - 1] >= 0 || s->deferred) {
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

    if (lwp_event_enabled(s, LWP_EVENT_CNH) &&
        all > s->counter[LWP_EVENT_CNH - 1]) {
        return true;
    }
    return lwp_event_enabled(s, LWP_EVENT_RNH) &&
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
