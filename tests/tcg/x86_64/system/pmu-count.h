/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters: all that a PMU like Skylake's counts of some code. */
#ifndef TESTS_TCG_PMU_COUNT_H
#define TESTS_TCG_PMU_COUNT_H

#include "pmu-kernel.h"

/* Of Skylake; the last one is fixed counter 0. */
enum { BRANCHES, COND, NOT_TAKEN, FAR, INSNS, EVENTS };
static const uint16_t event_codes[] = { 0x00c4, 0x01c4, 0x10c4, 0x40c4 };

typedef struct Counts {
    uint64_t n[EVENTS];
} Counts;

/* In GLOBAL_CTRL */
#define ALL_COUNTERS    (GLOBAL_FIXED(0) | 15)

/* Have all count in @rows, EVTSEL_OS or EVTSEL_USR, when they are started. */
static inline void set_counters(uint32_t rows)
{
    wrmsr(MSR_GLOBAL_CTRL, 0);
    for (int i = 0; i < INSNS; i++) {
        wrmsr(MSR_EVTSEL(i), event_codes[i] | rows | EVTSEL_EN);
        wrmsr(MSR_PMC(i), 0);
    }
    wrmsr(MSR_FIXED_CTR_CTRL, rows & EVTSEL_OS ? FIXED_OS : FIXED_USR);
    wrmsr(MSR_FIXED_CTR(0), 0);
}

static inline void start_counting(uint32_t rows)
{
    set_counters(rows);
    wrmsr(MSR_GLOBAL_CTRL, ALL_COUNTERS);
}

static inline Counts stop_counting(void)
{
    Counts c;

    wrmsr(MSR_GLOBAL_CTRL, 0);
    for (int i = 0; i < INSNS; i++) {
        c.n[i] = rdmsr(MSR_PMC(i));
    }
    c.n[INSNS] = rdmsr(MSR_FIXED_CTR(0));
    return c;
}

/* Says what is wrong, if it is. */
static inline bool counts_are(const Counts *c, const Counts *want)
{
    static const char *const names[EVENTS] = {
        "branches", "conditional", "not taken", "far", "instructions"
    };
    bool ok = true;

    for (int i = 0; i < EVENTS; i++) {
        if (c->n[i] != want->n[i]) {
            test_printf("  %s: %ld for %ld\n", names[i], c->n[i], want->n[i]);
            ok = false;
        }
    }
    return ok;
}

#endif
