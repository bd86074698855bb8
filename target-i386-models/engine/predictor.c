/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Branch prediction: see predictor.h. */

#include "predictor.h"

_Static_assert(sizeof(((RetirePredictor *)0)->returns) == 256,
               "RetirePredictor.top wraps by itself");

/* Bits 1:0 of an index are the last outcomes, above are the counters. */
static RetireCond states[1024];

static void set_state(unsigned state, bool taken)
{
    unsigned shift = 2 + 2 * (state & 3);
    unsigned n = state >> shift & 3;
    unsigned next = state & ~(3u << shift);
    bool correct = (n >= 2) == taken;

    n = taken ? (n < 3 ? n + 1 : 3) : (n ? n - 1 : 0);
    next = (next & ~3u) | n << shift | ((state << 1 | taken) & 3);
    states[state].next[taken] = &states[next];
    states[state].count[taken] = RETIRE_BRANCH_ONE +
        (correct ? 0 : RETIRE_BRANCH_MISPREDICTED);
}

static void __attribute__((constructor)) init_states(void)
{
    for (unsigned i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        set_state(i, false);
        set_state(i, true);
    }
}

void retire_predictor_init(RetirePredictor *p)
{
    /* What is new is expected to go on as it did last, but not for long. */
    const unsigned first = 1 << 2 | 2 << 4 | 1 << 6 | 2 << 8;

    *p = (RetirePredictor) { .top = 0 };
    for (unsigned i = 0; i < RETIRE_NR_CONDS; i++) {
        p->cond[i] = &states[first];
    }
}
