/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The account of one CPU, and what the core and TBs do with it: what they are
 * in QEMU, retire-core.c, translate-retire.c.inc and accel/tcg, is said at each
 * function.  Who includes this has the observers.
 */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include "models/engine/notes.h"

static RetireState account;
static RetireMemoryState account_memory;     /* CPUX86State.retire_memory */
static uint16_t budget;         /* CPUState.neg.icount_decr.u16.low */
static int64_t extra;           /* CPUState.icount_extra */
static bool icount;

/* A TB: all of it is in the range, or nothing. */
typedef struct AccountTB {
    uint32_t n;                 /* instructions */
    bool last;                  /* the last one is observed, or raises */
    bool uncharged;             /* it runs whether it may or not */
    bool outside;               /* of the range */
} AccountTB;

/* retire_left() */
static inline int64_t account_left(void)
{
    return budget + extra;
}

static inline uint32_t account_charged(void)
{
    return retire_charged(&account, account_left());
}

static inline uint64_t account_clock(void)
{
    return retire_clock(&account, account_left());
}

/* retire_cpu_restart(), when all has been reported: icount has @n left. */
static inline void account_restart(int64_t n)
{
    budget = 0;
    extra = icount ? n : 0;
    account.armed = account_left();
}

static inline void account_reset(bool with_icount, int64_t n)
{
    memset(&account, 0, sizeof(account));
    memset(&account_memory, 0, sizeof(account_memory));
    account.ip_span = UINT64_MAX;
    icount = with_icount;
    account_restart(n);
}

/* retire_set_budget() */
static inline void account_set_budget(int64_t n)
{
    if (icount) {
        int64_t left = account_left();

        n = n < left ? n : left;
        extra = left - n;
    } else {
        account.armed += n - budget;
    }
    budget = (uint16_t)n;
}

/* allow_one() */
static inline void account_allow_one(void)
{
    account_set_budget(budget ? budget : 1);
}

/* retire_cpu_arm(), when all observers have said how far it is */
static inline void account_arm(const RetireConfig *config, RetireDistance *d)
{
    int64_t n = (int64_t)retire_run(d) - account_charged();

    account_set_budget(n > 0 ? n : 0);
    retire_arm_misses(&account, config, d);
}

/*
 * The end of retire_tb_expired(): how many of a TB's @n instructions are to be
 * in a TB, of which the last one is observed; or 0.
 */
static inline uint32_t account_step(const RetireDistance *d, uint32_t n)
{
    uint32_t insns = retire_step(d, n);
    uint32_t least = insns ? insns : n;

    account_set_budget(least > budget ? least : budget);
    return insns < budget ? insns : budget * !!insns;
}

/* cpu_loop_exec_tb() in front of that, with icount: what it asks for, or 0 */
static inline uint32_t account_refill(uint32_t n)
{
    int64_t left = account_left();

    if (!icount) {
        return 0;
    }
    budget = (uint16_t)(left < 0xffff ? left : 0xffff);
    extra = left - budget;
    return budget < n ? budget : 0;
}

/* gen_tb_start(), gen_retire_prologue(); false: there are not as many left. */
static inline bool account_begin(const AccountTB *tb)
{
    if (tb->uncharged && !icount) {
        return true;
    }
    if (budget < tb->n) {
        return false;
    }
    budget -= (uint16_t)tb->n;
    account.armed -= tb->last;
    account.armed -= tb->outside ? tb->n - tb->last : 0;
    return true;
}

/*
 * cpu_restore_state_from_tb(), retire_restore_state(): a TB that has begun is
 * left, at effective address @ip, when so many of its instructions have
 * @retired; the next one has done @nr_accesses for its story.
 */
static inline void account_leave_noted(const AccountTB *tb, uint32_t retired,
                                       uint64_t ip, uint32_t nr_accesses)
{
    bool charges = !tb->uncharged || icount;
    uint32_t n = charges ? tb->n - tb->last : 0;
    uint32_t insns = n > retired ? n - retired : 0;

    if (icount) {
        budget += (uint16_t)(tb->n - retired);
        account.armed += insns + (charges && tb->last);
    }
    retire_unnote(&account_memory, account_clock(), ip);
    retire_give_back(&account, insns, ip);
    retire_leave(&account_memory, account_clock(), ip, nr_accesses);
}

static inline void account_leave(const AccountTB *tb, uint32_t retired,
                                 uint64_t ip)
{
    account_leave_noted(tb, retired, ip, 0);
}

/* may_miss(), end_access(): whether a miss, which L2 answers, just counts */
static inline bool account_miss(const RetireConfig *config, RetireSource source,
                                uint32_t clocks)
{
    if (account.misses <= 0 || budget < account.miss_charge ||
        source != RETIRE_SOURCE_L2 ||
        clocks != config->latency[RETIRE_SOURCE_L2]) {
        return false;
    }
    account.misses--;
    account_set_budget(budget - account.miss_charge);
    return true;
}

/* gen_retire_branch_exit() of a near branch, the last one of its TB */
static inline void account_branch(RetireBranch branch, bool taken,
                                  bool mispredicted)
{
    RetireClass class = retire_class(branch, taken);
    /* Direct ones are always predicted. */
    bool wrong = mispredicted && class != RETIRE_JMP && class != RETIRE_CALL;

    account.branches[class] +=
        RETIRE_BRANCH_ONE + (wrong ? RETIRE_BRANCH_MISPREDICTED : 0);
}

#endif
