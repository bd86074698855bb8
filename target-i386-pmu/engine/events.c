/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters: which event one counts. */

#include <stdio.h>
#include <string.h>
#include "pmu-internal.h"
#include "event-tables.c.inc"

/* The number of the mask that @sel's event goes by, or PMU_NR_OFFCORE. */
unsigned pmu_offcore_of(const PmuConfig *config, uint64_t sel)
{
    for (unsigned i = 0; i < ARRAY_SIZE(offcore_events); i++) {
        if (offcore_events[i].event == SEL_EVENT(sel) &&
            offcore_events[i].umask == SEL_UMASK(sel) &&
            (offcore_events[i].has & config->flavour->has)) {
            return offcore_events[i].mask;
        }
    }
    return PMU_NR_OFFCORE;
}

static uint64_t find_offcore(const PmuConfig *config, uint64_t mask)
{
    uint64_t quantities = 0, loads;

    if (!(mask & (OFFCORE_DATA_RD | OFFCORE_RFO))) {
        return 0;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(offcore_responses); i++) {
        if ((offcore_responses[i].has & config->flavour->has) &&
            (mask & offcore_responses[i].supplier) &&
            (!offcore_responses[i].snoop ||
             (mask & offcore_responses[i].snoop))) {
            quantities |= offcore_responses[i].quantities;
        }
    }
    loads = mask & OFFCORE_DATA_RD ? quantities : 0;
    quantities = mask & OFFCORE_RFO ? quantities : 0;
    loads |= quantities << (PMU_STORE_L2 - PMU_LOAD_L2);
    return loads ? loads : NEVER;
}

/* Whether @sel counts what MSR_PEBS_FRONTEND says. */
static bool is_frontend(const PmuConfig *config, uint64_t sel)
{
    return pmu_frontend_mask(config) && SEL_EVENT(sel) == FRONTEND_EVENT &&
           SEL_UMASK(sel) == FRONTEND_UMASK;
}

static uint64_t find_frontend(uint64_t frontend)
{
    for (unsigned i = 0; i < ARRAY_SIZE(frontend_events); i++) {
        if (frontend_events[i].code == frontend) {
            return frontend_events[i].quantities;
        }
    }
    return 0;
}

/* The number of counter @n's event in fp_events[], if it is one, or -1. */
static int find_fp(const PmuConfig *config, uint64_t sel, unsigned n)
{
    for (unsigned i = 0; i < ARRAY_SIZE(fp_events); i++) {
        uint8_t umasks = fp_events[i].umasks;

        if (fp_events[i].event == pmu_event_code(config, sel) &&
            (fp_events[i].has & config->flavour->has) &&
            (umasks ? SEL_UMASK(sel) & umasks : !SEL_UMASK(sel)) &&
            (!(config->flavour->has & HAS_P6) || !n)) {
            return (int)i;
        }
    }
    return -1;
}

/*
 * What an instruction @i of pmu_count_fp() adds to a counter with @sel.  It is
 * all in one clock, for which CMASK and edge detection count once at most.
 */
static uint32_t fp_weight(uint64_t sel, int event, unsigned i)
{
    static const uint8_t elements[] = { 1, 1, 1, 4, 2, 8, 4, 0 };
    unsigned width = i / RETIRE_FP_NR_KINDS, kind = i % RETIRE_FP_NR_KINDS;
    unsigned umask = fp_events[event].umasks ? SEL_UMASK(sel) : 0xff;
    uint32_t weight, cmask = SEL_CMASK(sel);
    FpCounts counts = fp_events[event].counts;

    umask &= fp_events[event].width[width];
    umask &= counts >= FP_KINDS ? fp_events[event].kind[kind] :
             kind == RETIRE_FP_NONE ||
             (kind == RETIRE_FP_INT && (width || counts != FP_AND_INT)) ?
             0 : 0xff;
    if (counts == FP_ELEMENTS) {
        weight = (uint32_t)__builtin_popcount(umask) * elements[width] *
                 (kind == RETIRE_FP_MAC ? 2 : 1);
    } else {
        weight = !umask ? 0 : counts == FP_OPERATIONS &&
                 (kind == RETIRE_FP_MAC || kind == RETIRE_FP_DP) ? 2 : 1;
    }
    return cmask || (sel & SEL_EDGE) ? weight && weight >= cmask : weight;
}

/* The first row of event @code, or of one behind that */
static unsigned first_row(uint32_t code)
{
    unsigned first = 0, end = ARRAY_SIZE(events);

    while (first < end) {
        unsigned middle = (first + end) / 2;

        if (events[middle].event < code) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

/* Whether counter @n's @sel has what row @i of its event is for. */
static bool is_row_of(const PmuConfig *config, unsigned i, uint64_t sel,
                      unsigned n)
{
    unsigned umask = events[i].umask;

    if (!(events[i].has & config->flavour->has)) {
        return false;
    }
    if (umask >= COUNTER(0)) {
        return umask == COUNTER(n);
    }
    if (events[i].quantities == B(FLOATING) && find_fp(config, sel, n) < 0) {
        return false;           /* P6's have counter 0 only */
    }
    return umask >= CODE(0) ? umask == CODE(SEL_UMASK(sel)) :
           !(umask & ~(unsigned)SEL_UMASK(sel));
}

/* Whether row @i has all bits of row @j, and others. */
static bool replaces(unsigned i, unsigned j)
{
    return !(events[j].umask & ~(unsigned)events[i].umask) &&
           events[i].umask != events[j].umask;
}

/*
 * The rows that counter @n's @sel is for, but for those that others replace.
 * *@umask is the bits that they are for; without unit masks, all.
 */
static unsigned find_rows(const PmuConfig *config, uint64_t sel, unsigned n,
                          uint16_t rows[MAX_ROWS], unsigned *umask)
{
    uint32_t code = pmu_event_code(config, sel);
    uint16_t all[MAX_ROWS];
    unsigned found = 0, left = 0;

    *umask = 0;
    for (unsigned i = first_row(code);
         i < ARRAY_SIZE(events) && events[i].event == code; i++) {
        if (!is_row_of(config, i, sel, n)) {
            continue;
        }
        if (events[i].umask >= CODE(0) || events[i].umask == NO_UMASK) {
            rows[0] = (uint16_t)i;
            *umask = 0xff;
            return 1;
        }
        all[found++] = (uint16_t)i;
        *umask |= events[i].umask;
    }
    for (unsigned i = 0; i < found; i++) {
        bool replaced = false;

        for (unsigned j = 0; j < found; j++) {
            replaced |= replaces(all[j], all[i]);
        }
        rows[left] = all[i];
        left += !replaced;
    }
    return left;
}

/*
 * Some of @all loads, or stores, are in @found for more than one reason: where
 * they lie, or what they miss, which are @kinds.  If all count, each does once;
 * but of two kinds nobody knows how many are both.
 */
static uint64_t count_once(uint64_t found, uint64_t all, uint64_t kinds)
{
    kinds &= found;
    if ((found & all) == all) {
        return found & ~kinds;
    }
    return (kinds & (kinds - 1)) || (kinds && (found & all)) ? 0 : found;
}

PmuFound pmu_find_event(const PmuState *s, const PmuConfig *config, unsigned n)
{
    uint64_t sel = pmu_event_select(s, config, n), both;
    uint32_t code = pmu_event_code(config, sel);
    unsigned offcore = pmu_offcore_of(config, sel), umask;
    uint16_t rows[MAX_ROWS];
    PmuFound found = { 0 };

    if (offcore < PMU_NR_OFFCORE) {
        found.add = find_offcore(config, s->offcore[offcore]);
        return found;
    }
    if (code == EVENT_MERGE && (config->flavour->has & HAS_17H) && n % 2) {
        found.add = NEVER;
        return found;
    }
    if (is_frontend(config, sel)) {
        found.add = find_frontend(s->frontend);
        return found;
    }
    for (unsigned i = find_rows(config, sel, n, rows, &umask); i > 0; i--) {
        found.add |= events[rows[i - 1]].quantities;
    }
    if (found.add != NEVER) {
        found.add &= ~NEVER;
    }
    if (found.add & PAGE_HITS) {
        found.add &= ~PAGE_HITS;
        found.less = CODE_PAGES;
    }
    if (found.add & HITS) {
        /* A branch's misprediction is as many places behind it. */
        found.less = (found.add & B(FETCHES)) << 1 |
                     ((found.add & BRANCHES) <<
                      (PMU_MISP_COND_TAKEN - PMU_COND_TAKEN) &
                      PMU_MISPREDICTED);
        both = found.add & found.less;
        found.add &= ~(both | HITS);
        found.less &= ~both;
    }
    found.add = count_once(found.add, PMU_LOADS, B(LOCKED) | B(SPLIT_LOADS) |
                           B(STLB_MISS_LOADS));
    found.add = count_once(found.add, B(STORES),
                           B(SPLIT_STORES) | B(STLB_MISS_STORES));
    if (found.less && (SEL_CMASK(sel) || (sel & SEL_EDGE) ||
                       config->no_models)) {
        found.add = 0;          /* nobody tells in which clocks they are */
    }
    found.unknown = found.add ? (uint8_t)(SEL_UMASK(sel) & ~umask) : 0;
    return found;
}

/* Whether @sel does not count because there are no models. */
bool pmu_lacks_event(const PmuConfig *config, uint64_t sel)
{
    PmuState s = { .evtsel[0] = sel };
    PmuFound found = pmu_find_event(&s, config, 0);

    return config->no_models &&
           (!found.add || (found.add & pmu_lacking(config)));
}

/* Three tables, one behind the other, of which the last two need models */
bool pmu_next_event(const PmuConfig *config, unsigned *next, PmuEvent *event)
{
    const unsigned offcore = ARRAY_SIZE(events);
    const unsigned frontend = offcore + (unsigned)ARRAY_SIZE(offcore_events);
    const unsigned end = frontend + (unsigned)ARRAY_SIZE(frontend_events);
    uint64_t has = config->flavour->has;

    if (has & HAS_P4) {
        return netburst_next_event(pmu_lacking(config), next, event);
    }
    while (*next < end) {
        unsigned i = (*next)++;

        if (config->no_models && i >= offcore) {
            return false;
        }
        if (i < offcore && (events[i].has & has) &&
            !(events[i].quantities & pmu_lacking(config))) {
            unsigned umask = events[i].umask;

            *event = (PmuEvent) {
                .name = events[i].name,
                .event = events[i].event,
                .umask = umask >= COUNTER(0) ? 0 : umask & 0xff,
                .no_umask = umask == NO_UMASK || umask >= COUNTER(0),
                .whole_umask = umask >= CODE(0),
                .never = events[i].quantities == NEVER,
            };
            return true;
        }
        if (i >= offcore && i < frontend &&
            (offcore_events[i - offcore].has & has)) {
            *event = (PmuEvent) {
                .name = "OFFCORE_RESPONSE",
                .event = offcore_events[i - offcore].event,
                .umask = offcore_events[i - offcore].umask,
                .whole_umask = true,
            };
            return true;
        }
        if (i >= frontend && pmu_frontend_mask(config)) {
            *event = (PmuEvent) {
                .name = frontend_events[i - frontend].name,
                .event = FRONTEND_EVENT,
                .umask = FRONTEND_UMASK,
                .whole_umask = true,
                .frontend = frontend_events[i - frontend].code,
            };
            return true;
        }
    }
    return false;
}

/* The names of what counter @n counts, one behind the other; or "". */
void pmu_name_event(const PmuState *s, const PmuConfig *config, unsigned n,
                    char *name, size_t size)
{
    uint64_t sel = pmu_event_select(s, config, n);
    unsigned umask, number = 0;
    uint16_t rows[MAX_ROWS];
    const char *single = pmu_offcore_of(config, sel) < PMU_NR_OFFCORE ?
                         "OFFCORE_RESPONSE" :
                         is_frontend(config, sel) ? "FRONTEND_RETIRED" : NULL;

    name[0] = 0;
    if (!pmu_find_event(s, config, n).add) {
        return;
    }
    if (!single) {
        number = find_rows(config, sel, n, rows, &umask);
        single = number ? events[rows[0]].name : "MERGE";
    }
    snprintf(name, size, "%s", single);
    for (unsigned i = 1; i < number; i++) {
        size_t length = strlen(name);

        snprintf(name + length, size - length, ", %s", events[rows[i]].name);
    }
}

/*
 * Tell of an event that is not counted, or bits of its unit mask, but of each
 * code once only.  Of several that one write selects, the others are told of
 * when they are selected again.
 */
static void report_unknown(PmuState *s, const PmuConfig *config, uint64_t sel,
                           unsigned umask)
{
    uint32_t code = pmu_event_code(config, sel);
    uint64_t bit = 1ull << code % 64;
    uint64_t *reported = &s->reported[code / 64 % 64];

    if ((sel & SEL_EN) && !s->has_unknown && !(*reported & bit)) {
        *reported |= bit;
        s->has_unknown = true;
        s->unknown = code | umask << 16;
    }
}

/*
 * An event occurs at most once in a clock, in the last one of an instruction.
 * So CMASK 1 changes nothing, more than that never happens, and INV counts the
 * other clocks.  Edge counts where the condition begins to hold: never, for
 * what holds always; otherwise with each event, or behind it.
 */
static bool select_found(PmuCounter *counter, const PmuConfig *config,
                         uint64_t found, uint32_t cmask, bool inv, bool edge)
{
    uint64_t always = B(CYCLES) | (config->insn_clocks == 1 ? B(INSNS) : 0);

    inv &= cmask != 0;
    counter->add = counter->sub = 0;
    if (found & EDGES) {
        /* Nobody tells how many clocks a walk takes. */
        found = edge && !cmask ? found & ~EDGES : 0;
        edge = false;
    }
    if ((found & (PMU_MEMORY | B(TAGGED))) && (cmask || edge) &&
        !(inv && cmask > 1)) {
        found = 0;              /* nobody tells how many are in a clock */
    }
    if (found == NEVER) {
        return true;
    }
    if (found & pmu_lacking(config)) {
        found = 0;
    }
    if (!found) {
        return false;
    }
    if (found == B(FLOATING)) {
        counter->add = inv && !edge ? B(CYCLES) : found;
        counter->sub = inv && !edge ? found : 0;
        return true;
    }
    if (cmask > 1) {
        counter->add = inv && !edge ? B(CYCLES) : 0;
        return true;
    }
    if (found == STALLED) {
        found = B(INSNS);
        inv = !inv;
    }
    if ((cmask || edge) && (found & B(REF_CYCLES)) &&
        config->refclk_ratio >= PMU_REFCLK_UNIT) {
        found = B(CYCLES);      /* one, at least, in each clock */
    }
    if (edge) {
        counter->add = found & always ? 0 : found;
    } else if (inv) {
        counter->add = found & always ? 0 : B(CYCLES);
        /* Interrupts come between two clocks. */
        counter->sub = found & ~B(INTERRUPTS);
    } else {
        counter->add = found;
    }
    return true;
}

void pmu_select_event(PmuState *s, const PmuConfig *config, unsigned n)
{
    uint64_t sel = pmu_event_select(s, config, n);
    PmuFound found = pmu_find_event(s, config, n);

    if (!select_found(&s->counter[n], config, found.add, SEL_CMASK(sel),
                      sel & SEL_INV, sel & SEL_EDGE)) {
        report_unknown(s, config, sel, SEL_UMASK(sel));
        return;
    }
    s->counter[n].sub |= found.less;
    if (found.unknown) {
        report_unknown(s, config, sel, found.unknown);
    }
}

void pmu_select_netburst(PmuState *s, const PmuConfig *config)
{
    for (unsigned n = 0; n < NETBURST_COUNTERS; n++) {
        NetburstState *nb = config->netburst;
        PmuCounter *counter = &nb->counter[n];
        NetburstEvent e = netburst_event(nb, n);
        uint64_t found = e.add ? e.add : e.known ? NEVER : 0;

        /* Nobody tells which clocks have the one, and not the other one. */
        found = e.sub && e.cmask ? 0 : found;
        e.edge &= !e.any_edge;
        if (select_found(counter, config, found, e.cmask, e.inv, e.edge)) {
            counter->sub |= e.sub;
        } else if (netburst_rows(nb, n)) {
            report_unknown(s, config, SEL_EN | e.code, e.mask & 0xff);
        }
    }
}

void pmu_count_fp(PmuState *s, const PmuConfig *config, RetireRow row,
                  const uint64_t n[RETIRE_NR_FP])
{
    for (unsigned c = 0; c < MIN(config->counters, PMU_MAX_GP); c++) {
        uint64_t sel = pmu_event_select(s, config, c);
        int event = find_fp(config, sel, c);

        if (event < 0 || !(s->counter[c].rows >> row & 1)) {
            continue;
        }
        for (unsigned i = 0; i < RETIRE_NR_FP; i++) {
            s->fp_pending[c] +=
                n[i] ? n[i] * fp_weight(sel, event, i) : 0;
        }
        s->counted[row] |= B(FLOATING);
        if (s->memory_interrupts) {
            s->slack[RETIRE_OS] = s->slack[RETIRE_USR] = -1;
        }
    }
}

bool pmu_take_unknown(PmuState *s, uint32_t *event)
{
    bool has_unknown = s->has_unknown;

    s->has_unknown = false;
    *event = s->unknown;
    return has_unknown;
}
