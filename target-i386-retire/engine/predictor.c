/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Branch prediction: see predictor.h. */

#include <stddef.h>
#include "predictor.h"

#define LOW_BITS        0x5555555555555555ull   /* of each execution */
#define LONGEST         16      /* executions that are compared */
#define LONG            11      /* that many are no coincidence */
#define ENOUGH          3       /* cases that outweigh a longer resemblance */
#define SURE            6       /* cases that outweigh that, if they agree */

_Static_assert(sizeof(((RetirePredictor *)0)->returns) == 256,
               "RetirePredictor.top wraps by itself");

/* Whether at least @n bits of @x are 1; @n is small, and never 0. */
static inline bool at_least(uint64_t x, unsigned n)
{
    while (--n) {
        x &= x - 1;
    }
    return x;
}

/*
 * What a branch with @history does next, when the one before it did @before:
 * what it always did then; or where its own last outcomes were the same, as
 * many of them as there are some such cases; or, if they differ, what it mostly
 * did when the one before it did that.  In a draw the latest case decides.
 */
static bool expect(uint64_t history, uint32_t before)
{
    uint64_t own = history & LOW_BITS;
    uint64_t then = (before ? history >> 1 : ~history >> 1) & LOW_BITS;
    uint64_t like = LOW_BITS, best = LOW_BITS;
    int cases;

    if (at_least(then, SURE) && (!(own & then) || !(~own & then))) {
        return own & then;
    }
    for (unsigned k = 1; like && k <= LONGEST; k++) {
        uint64_t one = own >> RETIRE_HISTORY_BITS * (k - 1) & 1;

        like &= ~(own >> RETIRE_HISTORY_BITS * k ^ one * LOW_BITS);
        /* The rest has been forgotten. */
        like &= ~0ull >> RETIRE_HISTORY_BITS * k;
        if (at_least(like, ENOUGH) || (like && k >= LONG)) {
            best = like;
        }
    }
    if (!(own & best) || !(~own & best)) {
        return own & best;
    }
    if (!then) {
        then = LOW_BITS;
    }
    cases = __builtin_popcountll(then);
    if (2 * __builtin_popcountll(own & then) == cases) {
        return own & then & -then;
    }
    return 2 * __builtin_popcountll(own & then) > cases;
}

/* The same, but most of what is asked for has been asked for lately. */
static bool expect_known(RetirePredictor *p, uint64_t history)
{
    unsigned i = (uint8_t)(history * 0x9e3779b97f4a7c15 >> 56);
    bool before = p->before;

    if (p->known[before].history[i] != history) {
        p->known[before].history[i] = history;
        p->known[before].taken[i] = expect(history, before);
    }
    return p->known[before].taken[i];
}

_Static_assert(RETIRE_NR_KNOWN == 1 << 8, "expect_known() takes 8 bits");

/* Bits 1:0 of a state are the last outcomes, above are the counters. */
static uint64_t next_state(unsigned state, bool taken)
{
    unsigned shift = 2 + 2 * (state & 3);
    unsigned n = state >> shift & 3;
    bool correct = (n >= 2) == taken;

    state &= ~(3u << shift);
    n = taken ? (n < 3 ? n + 1 : 3) : (n ? n - 1 : 0);
    state = (state & ~3u) | n << shift | ((state << 1 | taken) & 3);
    return state * sizeof(uint64_t) + RETIRE_BRANCH_ONE +
           (correct ? 0 : RETIRE_BRANCH_MISPREDICTED);
}

void retire_counting_init(RetireCounting *p)
{
    /* What is new is expected to go on as it did last, but not for long. */
    const unsigned first = (1 << 2 | 2 << 4 | 1 << 6 | 2 << 8) *
                           sizeof(uint64_t);

    *p = (RetireCounting) { .top = 0 };
    for (unsigned i = 0; i < RETIRE_NR_STATES; i++) {
        p->next[0][i] = next_state(i, false);
        p->next[1][i] = next_state(i, true);
    }
    for (unsigned i = 0; i < RETIRE_NR_HISTORIES; i++) {
        p->state[i] = (uint16_t)first;
    }
}

/* translate-retire.c.inc learns the same inline, where nobody asks. */
RetirePrediction retire_predict(RetirePredictor *p, RetireBranch branch,
                                uint64_t ip, uint64_t next, bool taken,
                                uint64_t target)
{
    uint64_t *history = &p->history[retire_history_index(ip)];
    uint64_t expected;
    bool correct;

    switch (branch) {
    case RETIRE_BRANCH_COND:
        correct = expect_known(p, *history) == taken;
        *history = *history << RETIRE_HISTORY_BITS | p->before | taken;
        p->before = taken ? RETIRE_HISTORY_BEFORE : 0;
        return (RetirePrediction) { true, correct };
    case RETIRE_BRANCH_RET:
        p->top = (uint8_t)(p->top - sizeof(p->returns[0]));
        expected = p->returns[p->top / sizeof(p->returns[0])];
        break;
    case RETIRE_BRANCH_JMP_ABS:
    case RETIRE_BRANCH_CALL_ABS:
        expected = p->targets[retire_target_index(ip)];
        p->targets[retire_target_index(ip)] = target;
        break;
    default:
        expected = target;
    }
    if (branch == RETIRE_BRANCH_CALL || branch == RETIRE_BRANCH_CALL_ABS) {
        p->returns[p->top / sizeof(p->returns[0])] = next;
        p->top = (uint8_t)(p->top + sizeof(p->returns[0]));
    }
    return (RetirePrediction) { expected || expected == target,
                                expected == target };
}
