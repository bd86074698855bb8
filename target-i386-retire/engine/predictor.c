/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Branch prediction: see predictor.h. */

#include <stddef.h>
#include "predictor.h"

#define LOW_BITS        0x5555555555555555ull   /* of each execution */
#define LONGEST         16      /* executions that are compared */
#define LONG            8       /* that many are no coincidence */
#define ENOUGH          3       /* cases that outweigh a shorter resemblance */

_Static_assert(sizeof(((RetirePredictor *)0)->returns) == 256,
               "RetirePredictor.top wraps by itself");

/*
 * What a branch with @history did where it had been executed as now, when the
 * one before it did @before: the more executions before that one are alike, the
 * better, if there are some such cases.
 */
static bool expect(uint64_t history, uint32_t before)
{
    uint64_t like = (before ? history >> 1 : ~history >> 1) & LOW_BITS;
    uint64_t best = like;
    int taken, cases;

    for (unsigned k = 1; like && k <= LONGEST; k++) {
        uint64_t one = history >> (RETIRE_HISTORY_BITS * (k - 1)) & 3;
        uint64_t differs = history >> RETIRE_HISTORY_BITS * k ^ one * LOW_BITS;

        like &= ~(differs | differs >> 1);
        /* The rest has been forgotten. */
        like &= ~0ull >> RETIRE_HISTORY_BITS * k;
        if (__builtin_popcountll(like) >= ENOUGH || (like && k >= LONG)) {
            best = like;
        }
    }
    if (!best) {
        best = LOW_BITS;
    }
    taken = __builtin_popcountll(best & history);
    cases = __builtin_popcountll(best);
    if (2 * taken == cases) {
        return history & best & -best;
    }
    return 2 * taken > cases;
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
        correct = expect(*history, p->before) == taken;
        *history = *history << RETIRE_HISTORY_BITS | p->before | taken;
        p->before = taken ? RETIRE_HISTORY_BEFORE : 0;
        return (RetirePrediction) { true, correct };
    case RETIRE_BRANCH_RET:
        p->top -= sizeof(p->returns[0]);
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
        p->top += sizeof(p->returns[0]);
    }
    return (RetirePrediction) { expected || expected == target,
                                expected == target };
}
