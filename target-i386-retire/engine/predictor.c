/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Branch prediction: see lwp-predictor.h. */

#include "predictor.h"

/* translate-lwp.c.inc does the same inline, where nobody asks. */
LwpPrediction lwp_predict(LwpPredictor *p, LwpBranch branch, uint64_t ip,
                          uint64_t next, bool taken, uint64_t target)
{
    uint32_t key = p->history ^ lwp_history_key(ip);
    uint8_t *counter = &p->counters[key % (1u << LWP_HISTORY_BITS)];
    uint64_t expected;

    switch (branch) {
    case LWP_BRANCH_COND:
        expected = *counter & LWP_COUNTER_TAKEN;
        *counter = taken ? (*counter << 1 | 1) & LWP_COUNTER_MAX :
                   *counter >> 1;
        p->history = p->history << 1 | taken;
        return (LwpPrediction) { true, !expected == !taken };
    case LWP_BRANCH_RET:
        expected = p->returns[p->top % LWP_NR_RETURNS];
        p->top--;
        break;
    case LWP_BRANCH_JMP_ABS:
    case LWP_BRANCH_CALL_ABS:
        expected = p->targets[lwp_target_index(ip)];
        p->targets[lwp_target_index(ip)] = target;
        break;
    default:
        expected = target;
    }
    if (branch == LWP_BRANCH_CALL || branch == LWP_BRANCH_CALL_ABS) {
        p->top++;
        p->returns[p->top % LWP_NR_RETURNS] = next;
    }
    return (LwpPrediction) { expected || expected == target,
                             expected == target };
}
