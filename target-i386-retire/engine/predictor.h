/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A branch predictor, for PRV and PRD of Branches Retired events (AMD 43724,
 * §2.3): gshare for conditional branches, a table of the last targets for
 * indirect ones, a return stack.  Direct branches are always predicted.
 *
 * Addresses are known to translated code by their offset in the page only, so
 * nothing else of them selects an entry.
 */
#ifndef LWP_PREDICTOR_H
#define LWP_PREDICTOR_H

#include <stdbool.h>
#include <stdint.h>

/* What a branch is, for the filters of Table 6-2 and for its prediction. */
typedef enum LwpBranch {
    LWP_BRANCH_NONE,        /* not a branch, or one that is never counted */
    LWP_BRANCH_COND,        /* Jcc, J(E/R)CXZ, LOOPcc: NCB */
    LWP_BRANCH_JMP,         /* relative: NRB */
    LWP_BRANCH_CALL,        /* relative: NRB */
    LWP_BRANCH_RET,         /* NRB */
    LWP_BRANCH_JMP_ABS,     /* through register or memory: NAB */
    LWP_BRANCH_CALL_ABS,    /* through register or memory: NAB */
    LWP_NR_BRANCHES
} LwpBranch;

#define LWP_HISTORY_BITS    14
#define LWP_NR_TARGETS      512
#define LWP_NR_RETURNS      32

/* All zero: nothing known. */
typedef struct LwpPredictor {
    uint32_t history;       /* of conditional branches, the last one in bit 0 */
    uint32_t top;           /* of the return stack, modulo LWP_NR_RETURNS */
    uint64_t returns[LWP_NR_RETURNS];
    uint64_t targets[LWP_NR_TARGETS];
    /* 2-bit counters in unary, so that a shift counts: 0, 1, 3, 7. */
    uint8_t counters[1 << LWP_HISTORY_BITS];
} LwpPredictor;

#define LWP_COUNTER_MAX     7u
#define LWP_COUNTER_TAKEN   2u      /* set if the prediction is "taken" */

/* What the branch at effective address @ip XORs to the history. */
static inline uint32_t lwp_history_key(uint64_t ip)
{
    return (ip << (LWP_HISTORY_BITS - 12)) & ((1u << LWP_HISTORY_BITS) - 1);
}

static inline uint32_t lwp_target_index(uint64_t ip)
{
    return ip % LWP_NR_TARGETS;
}

typedef struct LwpPrediction {
    bool valid;             /* PRV; false if there was nothing to go by */
    bool correct;           /* PRD */
} LwpPrediction;

/*
 * Predict the branch at @ip, of which @next is the address behind it, and then
 * learn what it did.
 */
LwpPrediction lwp_predict(LwpPredictor *p, LwpBranch branch, uint64_t ip,
                          uint64_t next, bool taken, uint64_t target);

#endif
