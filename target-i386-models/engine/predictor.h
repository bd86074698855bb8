/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A branch predictor.  Translated code asks it at each branch and has it learn,
 * whether anybody looks at that branch or not, so whoever counts and whoever
 * records branches see the same predictions.
 *
 * A conditional branch is expected to do what it mostly did of late when its
 * own last two outcomes were the same; for each pair of outcomes that is a
 * counter of two bits, as textbooks have it.  There are a table of the last
 * targets of indirect branches and a return stack; direct branches are always
 * predicted.  Addresses are known to translated code by their offset in the
 * page only, so nothing else of them selects an entry.
 */
#ifndef RETIRE_PREDICTOR_H
#define RETIRE_PREDICTOR_H

#include "retire/engine/retire.h"

#define RETIRE_NR_CONDS     4096    /* conditional branches */
#define RETIRE_NR_TARGETS   512
#define RETIRE_NR_RETURNS   32

/* In RetirePredictor.last: nothing was expected. */
#define RETIRE_BRANCH_UNEXPECTED    (1ull << 48)

/*
 * A state of a conditional branch: its last two outcomes and four counters.  By
 * whether the branch is taken, what state comes next, and RETIRE_BRANCH_ONE and
 * perhaps RETIRE_BRANCH_MISPREDICTED.  All states are constant, and the same
 * for all branches of all processors; so to learn is to follow a pointer.
 */
typedef struct RetireCond {
    const struct RetireCond *next[2];
    uint64_t count[2];
} RetireCond;

typedef struct RetirePredictor {
    /*
     * How the branch was predicted that helper_retire_observe() is called for,
     * as it is added to RetireState.branches[].
     */
    uint64_t last;
    uint8_t top;            /* offset of the first free return, modulo 256 */
    uint64_t returns[RETIRE_NR_RETURNS];
    /* By effective address, modulo their number */
    const RetireCond *cond[RETIRE_NR_CONDS];
    uint64_t targets[RETIRE_NR_TARGETS];
} RetirePredictor;

/* No branch has ever been taken. */
void retire_predictor_init(RetirePredictor *p);

#endif
