/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A branch predictor, for whoever wants to know how a branch was predicted.  A
 * conditional branch is expected to do what it did when things were like now:
 * each has a history of its own, of what it did itself and what the
 * conditional branch before it did.  There are a table of the last targets of
 * indirect branches and a return stack; direct branches are always predicted.
 *
 * To learn costs an address nothing but a shift; the work is done when somebody
 * asks.  Addresses are known to translated code by their offset in the page
 * only, so nothing else of them selects an entry.
 */
#ifndef RETIRE_PREDICTOR_H
#define RETIRE_PREDICTOR_H

#include <stdbool.h>
#include <stdint.h>

/* What a branch is, for filters and for its prediction. */
typedef enum RetireBranch {
    RETIRE_BRANCH_NONE,     /* not a branch, or one that is never counted */
    RETIRE_BRANCH_COND,     /* Jcc, J(E/R)CXZ, LOOPcc */
    RETIRE_BRANCH_JMP,      /* relative */
    RETIRE_BRANCH_CALL,     /* relative */
    RETIRE_BRANCH_RET,
    RETIRE_BRANCH_JMP_ABS,  /* through register or memory */
    RETIRE_BRANCH_CALL_ABS, /* through register or memory */
    RETIRE_NR_BRANCHES
} RetireBranch;

#define RETIRE_NR_HISTORIES 2048
#define RETIRE_NR_TARGETS   512
#define RETIRE_NR_RETURNS   32
#define RETIRE_NR_KNOWN     256

/*
 * A history has two bits for each of the last 32 executions, the last one
 * lowest: bit 0 whether the branch was taken, bit 1 whether the conditional
 * branch before it was.
 */
#define RETIRE_HISTORY_TAKEN    1u
#define RETIRE_HISTORY_BEFORE   2u
#define RETIRE_HISTORY_BITS     2
#define RETIRE_HISTORY_LENGTH   32

/* All zero: no branch has ever been taken. */
typedef struct RetirePredictor {
    uint8_t before;         /* RETIRE_HISTORY_BEFORE if the last was taken */
    uint8_t top;            /* offset of the first free return, modulo 256 */
    uint64_t returns[RETIRE_NR_RETURNS];
    uint64_t targets[RETIRE_NR_TARGETS];
    uint64_t history[RETIRE_NR_HISTORIES];
    /* What some histories let expect, by what the branch before did. */
    struct {
        uint64_t history[RETIRE_NR_KNOWN];
        bool taken[RETIRE_NR_KNOWN];
    } known[2];
} RetirePredictor;

static inline uint32_t retire_history_index(uint64_t ip)
{
    return (ip >> 1) % RETIRE_NR_HISTORIES;
}

static inline uint32_t retire_target_index(uint64_t ip)
{
    return ip % RETIRE_NR_TARGETS;
}

/*
 * Another one, for who counts all that are predicted wrongly: translated code
 * asks it at each branch.  A conditional branch is expected to do what it
 * mostly did of late when its own last two outcomes were the same; for each
 * pair of outcomes that is a counter of two bits, as textbooks have it.
 * Targets are expected as above.
 */
#define RETIRE_NR_STATES    1024    /* two outcomes, four counters */

/*
 * What RetireCounting.next[] has is added to RetireState.branches[]: a branch,
 * if it was predicted wrongly that, too, and the offset of the state that comes
 * next, of which the sum is of no use.
 */
#define RETIRE_BRANCH_ONE           (1ull << 28)
#define RETIRE_BRANCH_MISPREDICTED  (1ull << 46)

typedef struct RetireCounting {
    uint8_t top;            /* as RetirePredictor's */
    uint16_t state[RETIRE_NR_HISTORIES];    /* an offset in each of next[] */
    uint64_t next[2][RETIRE_NR_STATES];     /* by whether the branch is taken */
    uint64_t returns[RETIRE_NR_RETURNS];
    uint64_t targets[RETIRE_NR_TARGETS];
} RetireCounting;

/* No branch has ever been taken. */
void retire_counting_init(RetireCounting *p);

typedef struct RetirePrediction {
    bool valid;             /* false if there was nothing to go by */
    bool correct;
} RetirePrediction;

/*
 * Predict the branch at @ip, of which @next is the address behind it, and then
 * learn what it did.
 */
RetirePrediction retire_predict(RetirePredictor *p, RetireBranch branch,
                                uint64_t ip, uint64_t next, bool taken,
                                uint64_t target);

#endif
