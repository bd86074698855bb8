/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters: counting, and overflows. */

#include "pmu-internal.h"

/* Instructions; so few that no product overflows in add_clocks(). */
#define FAR_AWAY            (1ll << 39)

const uint64_t pmu_fixed_event[PMU_MAX_FIXED] = {
    B(INSNS), B(CYCLES), B(REF_CYCLES),
};

bool pmu_asks(const PmuConfig *config)
{
    return config->netburst && netburst_asks(config->netburst);
}

/* The counters, wherever they are */
static unsigned nr_counters(const PmuConfig *config)
{
    return config->netburst ? NETBURST_COUNTERS : PMU_NR_COUNTERS;
}

static PmuCounter *counter_of(PmuState *s, const PmuConfig *config, unsigned n)
{
    return config->netburst ? &config->netburst->counter[n] : &s->counter[n];
}

static bool gp_runs(const PmuState *s, const PmuConfig *config, unsigned n)
{
    uint64_t sel = pmu_event_select(s, config, n);
    uint32_t guest_host = SEL_GUEST_HOST(sel);

    /* PERFEVTSEL1 has none; Core Duo's has no effect (erratum AE49). */
    if (config->flavour->has & (HAS_P6 | HAS_CORE_DUO)) {
        return s->evtsel[0] & SEL_EN;
    }
    if (guest_host) {
        /* Without SVME, a counter with one of these does not count. */
        return (sel & SEL_EN) && s->svme &&
               (guest_host & (s->guest ? SEL_GUEST_ONLY : ~SEL_GUEST_ONLY));
    }
    return sel & SEL_EN;
}

/* Whether all that enables counter @n does; its rows are another matter. */
bool pmu_enabled(const PmuState *s, const PmuConfig *config, unsigned n)
{
    if ((pmu_global_mask(config) && !(s->global_ctrl & pmu_status_bit(n))) ||
        (s->global_status & STATUS_CTR_FRZ)) {
        return false;
    }
    return n < PMU_MAX_GP ? n < config->counters && gp_runs(s, config, n) :
           n - PMU_MAX_GP < config->fixed;
}

/* What the OS, USR and INT bits of counter @n say. */
void pmu_get_bits(const PmuState *s, const PmuConfig *config, unsigned n,
                  bool *os, bool *usr, bool *interrupts)
{
    if (n < PMU_MAX_GP) {
        uint64_t sel = pmu_event_select(s, config, n);

        *os = sel & SEL_OS;
        *usr = sel & SEL_USR;
        *interrupts = sel & SEL_INT;
    } else {
        uint32_t field = FIXED_FIELD(s->fixed_ctr_ctrl, n - PMU_MAX_GP);

        *os = field & FIXED_OS;
        *usr = field & FIXED_USR;
        *interrupts = field & FIXED_PMI;
    }
}

static void set_rows(PmuState *s, const PmuConfig *config, unsigned n)
{
    PmuCounter *counter = counter_of(s, config, n);
    bool os, usr;

    if (config->netburst) {
        counter->rows = counter->add ? netburst_rows(config->netburst, n) : 0;
        counter->interrupts = netburst_waits(config->netburst, n);
        counter->pebs = false;
        return;
    }
    pmu_get_bits(s, config, n, &os, &usr, &counter->interrupts);
    if (n >= PMU_MAX_GP) {
        counter->add = pmu_fixed_event[n - PMU_MAX_GP];
    }
    counter->pebs = (s->pebs_enable & pmu_pebs_mask(config) &
                     pmu_status_bit(n)) && pmu_is_precise(s, config, n);
    counter->interrupts |= counter->pebs;
    counter->rows = 0;
    if (pmu_enabled(s, config, n) && counter->add &&
        pmu_is_sampled(s, config, n, counter)) {
        counter->rows = (uint8_t)(os << RETIRE_OS | usr << RETIRE_USR);
    }
}

/*
 * How many instructions may retire, in whatever rows of those in which
 * @counter runs, before it can overflow, with the one behind @left counts.
 */
static inline int64_t distance(PmuState *s, const PmuConfig *config,
                               const PmuCounter *counter, unsigned n,
                               uint64_t left)
{
    uint64_t part;

    if (config->netburst && netburst_forced(config->netburst, n)) {
        left = 0;
    }
    if (!(counter->add & ~(B(INTERRUPTS) | B(TAGGED)))) {
        return FAR_AWAY;
    }
    if (counter->pebs && s->pebs_armed && (s->pebs_armed & pmu_status_bit(n))) {
        return 0;
    }
    /* Its event is of interest that is behind the overflow. */
    left += counter->pebs;
    if (!(counter->add & ~(B(INSNS) | BRANCHES))) {
        return left;
    }
    if (counter->add & B(CYCLES)) {
        return left / config->insn_clocks;
    }
    if (counter->add & PMU_MEMORY) {
        return left / PMU_MEMORY_MAX;
    }
    if (counter->add & B(FLOATING)) {
        return left / PMU_FP_MAX;
    }
    if (counter->add & B(REF_CYCLES)) {
        left = (left + 1) * PMU_REFCLK_UNIT - 1;
        part = 0;
        for (int r = 0; r < RETIRE_NR_ROWS; r++) {
            part += counter->rows >> r & 1 ? s->ref_fraction[r] : 0;
        }
        return left < part ? 0 :
               (left - part) / (config->insn_clocks * config->refclk_ratio);
    }
    return left;
}

/* What counter @n, which runs, needs to know. */
static RetireWants wants_of(const PmuState *s, const PmuConfig *config,
                            unsigned n, const PmuCounter *counter)
{
    uint64_t add = counter->add, all = add | counter->sub;
    uint64_t loads = add & PMU_LOADS;
    RetireWants wants = RETIRE_WANT_COUNT;

    wants |= all & BRANCHES & ~B(FAR) ? RETIRE_WANT_CLASSES : 0;
    wants |= all & PMU_MISPREDICTED ?
             RETIRE_WANT_CLASSES | RETIRE_WANT_PREDICT : 0;
    wants |= all & PMU_MEMORY ? RETIRE_WANT_ACCESSES : 0;
    wants |= all & B(FLOATING) ? RETIRE_WANT_FP : 0;
    /* What is more than how many loads, stores and locked loads there are */
    wants |= (loads && loads != PMU_LOADS) ||
             (add & PMU_MEMORY & ~(PMU_LOADS | B(STORES) | B(LOCKED) |
                                   PMU_FETCHED)) ? RETIRE_WANT_SOURCES : 0;
    wants |= add & PMU_TLB ? RETIRE_WANT_TLB : 0;
    wants |= add & PMU_FETCHED ? RETIRE_WANT_FETCHES : 0;
    wants |= add & (B(FETCHES) | B(CODE_STORES)) ? RETIRE_WANT_LINES : 0;
    wants |= add & B(CODE_STORES) ? RETIRE_WANT_FETCHES | RETIRE_WANT_CODE : 0;
    if (counter->pebs && pmu_pebs_data(s, config, n)) {
        wants |= RETIRE_WANT_SOURCES | RETIRE_WANT_STORY;
        /* Nehalem's records have no bit for what DTLB has. */
        wants |= config->flavour->has & NEHALEMS ? 0 : RETIRE_WANT_TLB;
    }
    return wants;
}

/* The registers have changed; nothing is pending. */
static void update(PmuState *s, const PmuConfig *config)
{
    for (int r = 0; r < RETIRE_NR_ROWS; r++) {
        s->wanted[r] = s->clocks ? B(INSNS) : 0;
        s->wants[r] = s->clocks ? RETIRE_WANT_COUNT : 0;
    }
    s->memory_interrupts = false;
    s->running = 0;
    for (unsigned n = 0; n < nr_counters(config); n++) {
        const PmuCounter *counter = counter_of(s, config, n);

        set_rows(s, config, n);
        s->running |= (uint32_t)!!counter->rows << n;
        for (int r = 0; r < RETIRE_NR_ROWS; r++) {
            if (counter->rows >> r & 1) {
                s->wanted[r] |= (counter->add | counter->sub | B(INSNS)) &
                                (PMU_BIT(PMU_NR_COUNTED) - 1);
                s->wants[r] |= wants_of(s, config, n, counter);
                s->memory_interrupts |= counter->interrupts &&
                                        (counter->add &
                                         (PMU_MEMORY | B(FLOATING)));
            }
        }
    }
}

void pmu_set_slack(PmuState *s, const PmuConfig *config)
{
    NetburstState *nb = config->netburst;
    const PmuCounter *counters = nb ? nb->counter : s->counter;
    const uint64_t *values = nb ? nb->value : s->value;
    int64_t insns[RETIRE_NR_ROWS] = { FAR_AWAY, FAR_AWAY };
    int64_t branches[RETIRE_NR_ROWS] = { FAR_AWAY, FAR_AWAY };

    for (uint32_t left = s->running; left; left &= left - 1) {
        unsigned n = (unsigned)__builtin_ctz(left);
        const PmuCounter *counter = &counters[n];
        int64_t run;

        if (!counter->interrupts) {
            continue;
        }
        run = distance(s, config, counter, n, config->value_mask - values[n]);
        for (int r = 0; r < RETIRE_NR_ROWS; r++) {
            int64_t far = counter->rows >> r & 1 ? run : FAR_AWAY;

            if (counter->add & (B(INSNS) | B(CYCLES) | B(REF_CYCLES) |
                                B(FLOATING) | PMU_MEMORY)) {
                insns[r] = MIN(insns[r], far);
            } else {
                branches[r] = MIN(branches[r], far);
            }
        }
    }
    for (int r = 0; r < RETIRE_NR_ROWS; r++) {
        s->insns[r] = insns[r];
        s->branches[r] = branches[r];
        s->slack[r] = MIN(insns[r], branches[r]);
    }
}

/*
 * A PMI is going to be signalled (SDM 17.4.7).  AMD's has the same bits as
 * version 4 in the same places.
 */
static void freeze(PmuState *s, const PmuConfig *config)
{
    if (config->version >= 4 || config->lbr_v2) {
        s->global_status |=
            (s->debugctl & PMU_FREEZE_LBRS_ON_PMI ? PMU_STATUS_LBR_FRZ : 0) |
            (s->debugctl & PMU_FREEZE_PERFMON_ON_PMI ? STATUS_CTR_FRZ : 0);
    } else if (s->debugctl & PMU_FREEZE_PERFMON_ON_PMI) {
        s->global_ctrl = 0;
    }
}

/* Whether the counter behind @n continues it. */
static bool is_merged(const PmuState *s, const PmuConfig *config, unsigned n)
{
    return (config->flavour->has & HAS_17H) && n % 2 == 0 &&
           n + 1 < config->counters && (s->evtsel[n + 1] & SEL_EN) &&
           pmu_event_code(config, s->evtsel[n + 1]) == EVENT_MERGE;
}

/*
 * PEBS is on for counter @n, whose value is going to be @value.  An instruction
 * may have more than one event: the overflow and the one behind it, too.
 */
static void find_pebs(PmuState *s, unsigned n, uint64_t bit, uint64_t value,
                      uint64_t mask)
{
    if (s->pebs_armed & bit) {
        s->pebs_due |= value != s->value[n] ? bit : 0;
    } else if (value > mask) {
        s->pebs_armed |= bit;
        s->pebs_due |= value & mask ? bit : 0;
    }
}

/* What is pending of @quantities in the rows of @counter */
static inline uint64_t pending_of(const PmuState *s, const PmuCounter *counter,
                                  uint64_t quantities)
{
    uint64_t sum = 0;

    for (int r = 0; r < RETIRE_NR_ROWS; r++) {
        uint64_t left = counter->rows >> r & 1 ? quantities & s->counted[r] : 0;

        for (; left; left &= left - 1) {
            sum += s->pending[r][__builtin_ctzll(left)];
        }
    }
    return sum;
}

/* Clocks of the instructions that are pending in row @r */
static inline void add_clocks(PmuState *s, const PmuConfig *config, int r)
{
    uint64_t clocks = s->pending[r][PMU_INSNS] * config->insn_clocks;
    uint64_t ref = s->ref_fraction[r] + clocks * config->refclk_ratio;

    s->pending[r][PMU_CYCLES] = clocks;
    s->pending[r][PMU_REF_CYCLES] = ref / PMU_REFCLK_UNIT;
    s->counted[r] |= B(CYCLES) | B(REF_CYCLES);
    s->ref_fraction[r] = (uint32_t)(ref % PMU_REFCLK_UNIT);
    if (s->clocks) {
        s->aperf += clocks;
        s->mperf += ref / PMU_REFCLK_UNIT;
    }
}

/* Counter @n's @value with its carry into the one that continues it */
static uint64_t carry(PmuState *s, unsigned n, uint64_t value, uint64_t mask)
{
    uint64_t upper = s->value[n + 1] + 1;

    s->value[n + 1] = upper & 0xffff;
    return upper >> 16 ? value : value & mask;
}

/* Pentium 4's counters; an overflow may start another one. */
static void count_netburst(PmuState *s, const PmuConfig *config)
{
    NetburstState *nb = config->netburst;
    bool starts = false;

    for (uint32_t left = s->running; left; left &= left - 1) {
        unsigned n = (unsigned)__builtin_ctz(left);
        const PmuCounter *counter = &nb->counter[n];
        uint64_t value = nb->value[n] + pending_of(s, counter, counter->add) -
                         pending_of(s, counter, counter->sub);

        if (value >> NETBURST_WIDTH ||
            (netburst_forced(nb, n) && value != nb->value[n])) {
            s->pmi |= netburst_interrupts(nb, n);
            starts |= netburst_overflow(nb, n);
        }
        nb->value[n] = value & pmu_ones(NETBURST_WIDTH);
    }
    if (starts) {
        update(s, config);
    }
}

static void count(PmuState *s, const PmuConfig *config)
{
    uint64_t mask = config->value_mask;

    for (uint32_t left = s->running; left; left &= left - 1) {
        unsigned n = (unsigned)__builtin_ctz(left);
        const PmuCounter *counter = &s->counter[n];
        uint64_t value = s->value[n] + pending_of(s, counter, counter->add);
        uint64_t bit = pmu_status_bit(n);

        if (counter->sub) {
            value -= pending_of(s, counter, counter->sub);
        }
        if (n < PMU_MAX_GP && s->fp_pending[n]) {
            value += counter->sub & B(FLOATING) ? -s->fp_pending[n] :
                     s->fp_pending[n];
            s->fp_pending[n] = 0;
        }
        if (value > mask && is_merged(s, config, n)) {
            value = carry(s, n, value, mask);
        }
        if (counter->pebs) {
            find_pebs(s, n, bit, value, mask);
        } else {
            s->pmi |= value > mask && counter->interrupts;
        }
        if (value > mask) {
            s->global_status |= pmu_has_global(config) ? bit : 0;
        }
        s->value[n] = value & mask;
    }
}

void pmu_add_pending(PmuState *s, const PmuConfig *config)
{
    for (int r = 0; r < RETIRE_NR_ROWS; r++) {
        if (s->counted[r] & B(INSNS)) {
            add_clocks(s, config, r);
        }
    }
    if (config->netburst) {
        count_netburst(s, config);
    } else {
        count(s, config);
    }
    for (int r = 0; r < RETIRE_NR_ROWS; r++) {
        if (!s->counted[r]) {
            continue;
        }
        /* Clocks are set anew. */
        for (uint64_t n = s->counted[r] & ~(B(CYCLES) | B(REF_CYCLES)); n;
             n &= n - 1) {
            s->pending[r][__builtin_ctzll(n)] = 0;
        }
        s->counted[r] = 0;
    }
    if (!s->pebs_due) {
        pmu_set_slack(s, config);
    }
}

/* Its instruction has retired: the same may not be so in pmu_apply(). */
static bool take_pmi(PmuState *s, const PmuConfig *config)
{
    if (!s->pmi) {
        return false;
    }
    s->pmi = false;
    if (s->debugctl & (PMU_FREEZE_LBRS_ON_PMI | PMU_FREEZE_PERFMON_ON_PMI)) {
        freeze(s, config);
        update(s, config);
        pmu_set_slack(s, config);
    }
    return true;
}

bool pmu_settle(PmuState *s, const PmuConfig *config)
{
    pmu_apply(s, config);
    return take_pmi(s, config);
}

void pmu_pebs_forget(PmuState *s, const PmuConfig *config)
{
    s->pebs_due = 0;
    pmu_set_slack(s, config);
}

void pmu_pebs_done(PmuState *s, const PmuConfig *config, unsigned n,
                   const uint64_t *reset, bool threshold)
{
    uint64_t bit = pmu_status_bit(n);

    s->pebs_due &= ~bit;
    s->pebs_armed &= ~bit;
    s->global_status &= ~bit;
    if (reset) {
        s->value[n] = *reset & config->value_mask;
    }
    if (threshold) {
        s->global_status |= STATUS_OVF_BUF;
        s->pmi = true;
    }
    pmu_set_slack(s, config);
}

void pmu_tag(PmuState *s, RetireRow row, uint32_t latency)
{
    if (latency > s->load_latency) {
        pmu_count(s, row, PMU_TAGGED, 1);
    }
    /* A linear congruential generator, whose upper bits are good enough */
    s->tag_random = s->tag_random * 1664525 + 1013904223;
    s->tag_left = PMU_TAG_GAP_MIN + (s->tag_random >> 21);
}

void pmu_changed(PmuState *s, const PmuConfig *config)
{
    update(s, config);
    pmu_set_slack(s, config);
}
