/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Counters of Pentium 4: see netburst.h. */

#include "netburst.h"
#include "quantities.h"

#define MSR_COUNTER     0x300u
#define MSR_CCCR        0x360u
#define MSR_ESCR        0x3a0u
#define MSR_PRECISE     0x3f0u

/* Counter configuration control registers */
#define CCCR_EXTENDED_CASCADE   (1u << 11)
#define CCCR_ENABLE             (1u << 12)
#define CCCR_SELECT(cccr)       ((cccr) >> 13 & 7)
#define CCCR_ONE_THREAD         (1u << 16)  /* one is active: there is one */
#define CCCR_COMPARE            (1u << 18)
#define CCCR_COMPLEMENT         (1u << 19)
#define CCCR_THRESHOLD(cccr)    ((cccr) >> 20 & 15)
#define CCCR_EDGE               (1u << 24)
#define CCCR_FORCE_OVF          (1u << 25)
#define CCCR_OVF_PMI            (1u << 26)  /* of thread 0 */
#define CCCR_CASCADE            (1u << 30)
#define CCCR_OVF                (1u << 31)
#define CCCR_MASK               0xcffff800u
#define THRESHOLD_MAX           15

/* Event selection control registers */
#define ESCR_USR                (1u << 2)   /* of thread 0 */
#define ESCR_OS                 (1u << 3)
#define ESCR_EVENT_MASK(escr)   ((escr) >> 9 & 0xffff)
#define ESCR_EVENT(escr)        ((escr) >> 25 & 63)
#define ESCR_MASK               0x7fffffffu

/* Replay tagging, in IA32_PEBS_ENABLE and PEBS_MATRIX_VERT */
#define REPLAY_L1_MISS          (1u << 0)
#define REPLAY_L2_MISS          (1u << 1)
#define REPLAY_DTLB_MISS        (1u << 2)
#define REPLAY_SPLIT            (1u << 10)
#define REPLAY_UOP_TAG          (1u << 24)
#define REPLAY_LOADS            (1u << 0)
#define REPLAY_STORES           (1u << 1)

/* ESCRs, by the lower byte of the first one of two */
enum {
    BSU = 0xa0, FSB = 0xa2, PMH = 0xac, ITLB = 0xb6, CRU0 = 0xb8, IQ = 0xba,
    RAT = 0xbc, SSU = 0xbe, TBPU = 0xc2, CRU2 = 0xcc,
};

#define REPLAY_EVENT            0x09
#define FRONT_END_EVENT         0x08
#define UOP_TYPE                0x02

#define TAKEN       (NEAR_TAKEN | B(FAR))

/*
 * Events (SDM 19.15), of which each bit of the mask adds something.  What is
 * known never to happen is 0.
 */
static const struct {
    uint8_t escr, event;
    uint16_t bits;
    const char *name;
    uint64_t add, sub;
} events[] = {
    { FSB, 0x13, 0x0001, "GLOBAL_POWER_EVENTS.RUNNING", B(CYCLES), 0 },
    { FSB, 0x17, 0x003f, "FSB_DATA_ACTIVITY", B(REF_CYCLES), 0 },
    { CRU0, 0x02, 0x0001, "INSTR_RETIRED.NBOGUSNTAG", B(INSNS), 0 },
    { CRU0, 0x02, 0x000e, "INSTR_RETIRED.NBOGUSTAG_OR_BOGUS", 0, 0 },
    { CRU0, 0x07, 0x0001, "INSTR_COMPLETED.NBOGUS", B(INSNS), 0 },
    { CRU0, 0x07, 0x0002, "INSTR_COMPLETED.BOGUS", 0, 0 },
    { CRU0, 0x01, 0x0001, "UOPS_RETIRED.NBOGUS", B(INSNS), 0 },
    { CRU0, 0x01, 0x0002, "UOPS_RETIRED.BOGUS", 0, 0 },
    { CRU0, 0x03, 0x0001, "MISPRED_BRANCH_RETIRED.NBOGUS",
      PMU_MISPREDICTED, 0 },
    { CRU2, 0x06, 0x0001, "BRANCH_RETIRED.MMNP",
      B(COND_NOT_TAKEN), B(MISP_COND_NOT_TAKEN) },
    { CRU2, 0x06, 0x0002, "BRANCH_RETIRED.MMNM", B(MISP_COND_NOT_TAKEN), 0 },
    { CRU2, 0x06, 0x0004, "BRANCH_RETIRED.MMTP", TAKEN, M_TAKEN },
    { CRU2, 0x06, 0x0008, "BRANCH_RETIRED.MMTM", M_TAKEN, 0 },
    { CRU2, 0x0c, 0x00ff, "EXECUTION_EVENT", 0, 0 },
    { CRU2, REPLAY_EVENT, 0x0002, "REPLAY_EVENT.BOGUS", 0, 0 },
    { CRU2, FRONT_END_EVENT, 0x0002, "FRONT_END_EVENT.BOGUS", 0, 0 },
    { TBPU, 0x04, 0x0002, "RETIRED_BRANCH_TYPE.CONDITIONAL", COND, 0 },
    { TBPU, 0x04, 0x0004, "RETIRED_BRANCH_TYPE.CALL", CALLS, 0 },
    { TBPU, 0x04, 0x0008, "RETIRED_BRANCH_TYPE.RETURN", B(RET), 0 },
    { TBPU, 0x04, 0x0010, "RETIRED_BRANCH_TYPE.INDIRECT",
      INDIRECT | B(RET), 0 },
    { TBPU, 0x05, 0x0002, "RETIRED_MISPRED_BRANCH_TYPE.CONDITIONAL",
      M_COND, 0 },
    { TBPU, 0x05, 0x0004, "RETIRED_MISPRED_BRANCH_TYPE.CALL",
      B(MISP_CALL_IND), 0 },
    { TBPU, 0x05, 0x0008, "RETIRED_MISPRED_BRANCH_TYPE.RETURN",
      B(MISP_RET), 0 },
    { TBPU, 0x05, 0x0010, "RETIRED_MISPRED_BRANCH_TYPE.INDIRECT",
      M_INDIRECT | B(MISP_RET), 0 },
    { BSU, 0x0c, 0x0007, "BSQ_CACHE_REFERENCE.RD_2NDL_HIT", B(LOAD_L2), 0 },
    { BSU, 0x0c, 0x0038, "BSQ_CACHE_REFERENCE.RD_3RDL_HIT", FROM_L3, 0 },
    { BSU, 0x0c, 0x0100, "BSQ_CACHE_REFERENCE.RD_2NDL_MISS", NOT_L2, 0 },
    { BSU, 0x0c, 0x0200, "BSQ_CACHE_REFERENCE.RD_3RDL_MISS", B(LOAD_DRAM), 0 },
    { BSU, 0x0c, 0x0400, "BSQ_CACHE_REFERENCE.WR_2NDL_MISS", 0, 0 },
    { PMH, 0x01, 0x0001, "PAGE_WALK_TYPE.DTMISS", LOAD_PAGES | STORE_PAGES, 0 },
    { PMH, 0x01, 0x0002, "PAGE_WALK_TYPE.ITMISS", CODE_PAGES, 0 },
    { ITLB, 0x18, 0x0002, "ITLB_REFERENCE.MISS", CODE_PAGES, 0 },
};

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))

/*
 * The lower byte of the ESCR that counter @n's CCCR selects (SDM table 18-54),
 * of which each is the first one of two: one for each pair of counters; or 0.
 * Linux' p4_event_bind_map[] agrees in 168 of 178 pairs of a counter and an
 * event; the others are events that count nothing here (B2B_CYCLES, BNR, SNOOP,
 * RESPONSE), and RETIRED_MISPRED_BRANCH_TYPE, of which it has one ESCR twice.
 */
static unsigned selected(const NetburstState *s, unsigned n)
{
    static const uint8_t escrs[4][8] = {
        { 0xb2, 0xb4, 0xaa, ITLB, PMH, 0xc8, FSB, BSU },
        { 0xc0, 0xc4, TBPU },
        { 0xa6, 0xa4, 0xae, 0xb0, 0, 0xa8 },
        { IQ, 0xca, RAT, SSU, CRU0, CRU2, 0xe0 },
    };
    unsigned pair = (n < 16 ? n : n - 3) / 2;
    unsigned escr = escrs[pair / 2][CCCR_SELECT(s->cccr[n])];

    return !escr || (escr == SSU && (pair & 1)) ? 0 : escr + (pair & 1);
}

static uint32_t escr_of(const NetburstState *s, unsigned n)
{
    unsigned escr = selected(s, n);

    return escr ? s->escr[escr - (MSR_ESCR & 0xff)] : 0;
}

/* Micro-operations that are tagged, and what these are about */
static uint64_t replayed(const NetburstState *s)
{
    uint32_t tags = s->precise[1];
    bool loads = s->precise[2] & REPLAY_LOADS;
    bool stores = s->precise[2] & REPLAY_STORES;

    if (!(tags & REPLAY_UOP_TAG)) {
        return 0;
    }
    return (loads && (tags & REPLAY_L1_MISS) ? NOT_L1 : 0) |
           (loads && (tags & REPLAY_L2_MISS) ? NOT_L2 : 0) |
           (loads && (tags & REPLAY_DTLB_MISS) ? LOAD_PAGES : 0) |
           (stores && (tags & REPLAY_DTLB_MISS) ? STORE_PAGES : 0) |
           (loads && (tags & REPLAY_SPLIT) ? B(SPLIT_LOADS) : 0) |
           (stores && (tags & REPLAY_SPLIT) ? B(SPLIT_STORES) : 0);
}

static uint64_t front_end(const NetburstState *s)
{
    uint64_t tagged = 0;

    for (unsigned i = RAT; i <= RAT + 1; i++) {
        uint32_t escr = s->escr[i - (MSR_ESCR & 0xff)];

        if (ESCR_EVENT(escr) == UOP_TYPE) {
            tagged |= ESCR_EVENT_MASK(escr) & 2 ? PMU_LOADS : 0;
            tagged |= ESCR_EVENT_MASK(escr) & 4 ? B(STORES) : 0;
        }
    }
    return tagged;
}

/*
 * No event happens more often in a clock than 15 times, so this is all clocks,
 * whatever the ESCR has (SDM, "Non-Sleep Clockticks"): even of none, as Linux
 * has it for cycles beside its watchdog.
 */
static bool is_always(uint32_t cccr)
{
    return (cccr & CCCR_COMPARE) && (cccr & CCCR_COMPLEMENT) &&
           CCCR_THRESHOLD(cccr) == THRESHOLD_MAX;
}

NetburstEvent netburst_event(const NetburstState *s, unsigned n)
{
    uint32_t cccr = s->cccr[n], escr = escr_of(s, n);
    unsigned pair = selected(s, n) & ~1u, event = ESCR_EVENT(escr);
    bool compare = cccr & CCCR_COMPARE;
    NetburstEvent e = {
        .cmask = compare ? CCCR_THRESHOLD(cccr) + 1 : 0,
        .inv = compare && (cccr & CCCR_COMPLEMENT),
        .edge = compare && (cccr & CCCR_EDGE),
        .any_edge = pair == FSB && event == 0x17,
        .code = event,
        .mask = ESCR_EVENT_MASK(escr),
    };

    for (unsigned i = 0; i < ARRAY_SIZE(events); i++) {
        if (events[i].escr == pair && events[i].event == event &&
            (events[i].bits & e.mask)) {
            e.known = true;
            e.name = events[i].name;
            e.add |= events[i].add;
            e.sub |= events[i].sub;
        }
    }
    if (pair == CRU2 && (e.mask & 1) &&
        (event == REPLAY_EVENT || event == FRONT_END_EVENT)) {
        e.known = true;
        e.name = event == REPLAY_EVENT ? "REPLAY_EVENT" : "FRONT_END_EVENT";
        e.add |= event == REPLAY_EVENT ? replayed(s) : front_end(s);
    }
    if (is_always(cccr)) {
        e.known = true;
        e.name = "clocks";
        e.add = B(CYCLES);
        e.sub = 0;
        e.cmask = 0;
        e.inv = false;
    }
    return e;
}

bool netburst_next_event(uint64_t lacking, unsigned *next, PmuEvent *event)
{
    while (*next < ARRAY_SIZE(events) &&
           (lacking & (events[*next].add | events[*next].sub))) {
        ++*next;
    }
    if (*next >= ARRAY_SIZE(events)) {
        return false;
    }
    *event = (PmuEvent) {
        .name = events[*next].name,
        .event = events[*next].event,
        .umask = events[*next].bits,
        .never = !events[*next].add,
    };
    ++*next;
    return true;
}

uint8_t netburst_rows(const NetburstState *s, unsigned n)
{
    uint32_t escr = escr_of(s, n);

    if (!(s->cccr[n] & CCCR_ENABLE) || !(s->cccr[n] & CCCR_ONE_THREAD)) {
        return 0;
    }
    if (is_always(s->cccr[n])) {
        escr = ESCR_OS | ESCR_USR;
    }
    return (uint8_t)(!!(escr & ESCR_OS) << RETIRE_OS |
                     !!(escr & ESCR_USR) << RETIRE_USR);
}

/*
 * Whether counter @n starts when counter @from overflows: that of the other
 * pair in its group, and in extended cascading the third ones of IQ's.
 */
static bool cascades(const NetburstState *s, unsigned from, unsigned n)
{
    static const uint8_t extended[NETBURST_COUNTERS] = {
        [12] = 16, [15] = 17, [16] = 17, [17] = 16,
    };

    return !(s->cccr[n] & CCCR_ENABLE) &&
           ((n < 16 && (s->cccr[n] & CCCR_CASCADE) && from == (n ^ 2)) ||
            ((s->cccr[n] & CCCR_EXTENDED_CASCADE) && extended[n] &&
             from == extended[n]));
}

bool netburst_waits(const NetburstState *s, unsigned n)
{
    bool waits = netburst_interrupts(s, n);

    for (unsigned i = 0; i < NETBURST_COUNTERS; i++) {
        waits |= cascades(s, n, i);
    }
    return waits;
}

bool netburst_forced(const NetburstState *s, unsigned n)
{
    return s->cccr[n] & CCCR_FORCE_OVF;
}

bool netburst_interrupts(const NetburstState *s, unsigned n)
{
    return s->cccr[n] & CCCR_OVF_PMI;
}

bool netburst_overflow(NetburstState *s, unsigned n)
{
    bool starts = false;

    s->cccr[n] |= CCCR_OVF;
    for (unsigned i = 0; i < NETBURST_COUNTERS; i++) {
        if (cascades(s, n, i)) {
            s->cccr[i] |= CCCR_ENABLE;
            starts = true;
        }
    }
    return starts;
}

bool netburst_asks(const NetburstState *s)
{
    const uint32_t asks = CCCR_OVF | CCCR_OVF_PMI;

    for (unsigned n = 0; n < NETBURST_COUNTERS; n++) {
        if ((s->cccr[n] & asks) == asks) {
            return true;
        }
    }
    return false;
}

static bool has_escr(uint32_t has, unsigned i)
{
    unsigned escr = (MSR_ESCR & 0xff) + i;

    return escr == IQ || escr == IQ + 1 ? has & NETBURST_IQ_ESCR :
           escr <= SSU || (escr >= 0xc0 && escr <= 0xc5) ||
           (escr >= 0xc8 && escr <= 0xcd) || escr >= 0xe0;
}

static uint32_t cccr_mask(uint32_t has)
{
    return CCCR_MASK & ~(has & NETBURST_EXTENDED ? 0 : CCCR_EXTENDED_CASCADE);
}

PmuAccess netburst_rdmsr(const NetburstState *s, uint32_t has, uint32_t msr,
                         uint64_t *val)
{
    if (msr - MSR_COUNTER < NETBURST_COUNTERS) {
        *val = s->value[msr - MSR_COUNTER];
    } else if (msr - MSR_CCCR < NETBURST_COUNTERS) {
        *val = s->cccr[msr - MSR_CCCR];
    } else if (msr - MSR_ESCR < NETBURST_ESCRS) {
        if (!has_escr(has, msr - MSR_ESCR)) {
            return PMU_MSR_GP;
        }
        *val = s->escr[msr - MSR_ESCR];
    } else if (msr - MSR_PRECISE < NETBURST_PRECISE) {
        *val = s->precise[msr - MSR_PRECISE];
    } else {
        return PMU_MSR_OTHER;
    }
    return PMU_MSR_OK;
}

PmuAccess netburst_wrmsr(NetburstState *s, uint32_t has, uint32_t msr,
                         uint64_t val)
{
    uint64_t old;
    PmuAccess access = netburst_rdmsr(s, has, msr, &old);

    if (access != PMU_MSR_OK) {
        return access;
    }
    /* Reserved bits are ignored, and the upper half where there is none. */
    if (msr - MSR_COUNTER < NETBURST_COUNTERS) {
        s->value[msr - MSR_COUNTER] = val & ((1ull << NETBURST_WIDTH) - 1);
    } else if (msr - MSR_CCCR < NETBURST_COUNTERS) {
        /* A write clears OVF, but does not set it. */
        s->cccr[msr - MSR_CCCR] = (uint32_t)val & cccr_mask(has) &
                                  ((uint32_t)old | ~CCCR_OVF);
    } else if (msr - MSR_ESCR < NETBURST_ESCRS) {
        s->escr[msr - MSR_ESCR] = (uint32_t)val & ESCR_MASK;
    } else {
        s->precise[msr - MSR_PRECISE] = (uint32_t)val;
    }
    return PMU_MSR_OK;
}

bool netburst_valid(const NetburstState *s, uint32_t has)
{
    uint64_t bad = 0;

    for (unsigned n = 0; n < NETBURST_COUNTERS; n++) {
        bad |= s->value[n] >> NETBURST_WIDTH;
        bad |= s->cccr[n] & ~cccr_mask(has);
    }
    for (unsigned i = 0; i < NETBURST_ESCRS; i++) {
        bad |= s->escr[i] & ~(has_escr(has, i) ? ESCR_MASK : 0);
    }
    return !bad;
}
