/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: TCG helpers, where blocks end and begin. */

#include "qemu/osdep.h"
#include "retire.h"
#include "compat.h"
#include "exec/helper-proto.h"
#include "accel/tcg/cpu-ops.h"
#include "tcg/tcg.h"

/* Whether not all of block @tb at effective address @ip is in the range. */
static bool is_divided(const RetireState *r, const TranslationBlock *tb,
                       uint64_t ip)
{
    uint64_t offset = ip - r->ip_first;

    return offset > r->ip_span || r->ip_span - offset < tb->size - 1u;
}

static void begin(CPUX86State *env)
{
    unsigned told = retire_tb_observers(env->retire_flags);

    while (told) {
        const RetireObserver *o = retire_pop_observer(env, &told);

        if (o->begin) {
            o->begin(env);
        }
    }
}

/*
 * The instruction at effective address @ip is next, in a block that cannot ask
 * helper_retire_next().  Nothing of the block has been executed if this raises
 * an exception.
 */
void helper_retire_begin(CPUX86State *env, target_ulong ip)
{
    env->eip = ip;
    begin(env);
}

/* The effective address of block @tb, which is next. */
static uint64_t block_ip(CPUX86State *env, const TranslationBlock *tb)
{
    if (tb_cflags(tb) & CF_PCREL) {
        return env->eip;
    }
    return tb->flags & HF_CS64_MASK ? tb->pc :
           (uint32_t)(tb->pc - tb->cs_base);
}

/* The rest of helper_retire_next(), if nothing has been foreseen. */
static const void * __attribute__((noinline))
next_asked(CPUX86State *env, int32_t charge, TranslationBlock *tb,
           uint64_t lengths)
{
    RetireState *r = &env->retire;
    bool due = r->due;
    uint32_t step = 1;
    RetireDistance d;

    retire_cpu_settle(env);
    if (due) {
        begin(env);
    }
    if (cpu_loop_exit_requested(env_cpu(env))) {
        return tcg_code_gen_epilogue;
    }
    retire_cpu_arm(env, &d);
    if (d.now) {
        begin(env);
        retire_cpu_arm(env, &d);
        /* What is wanted may have become known; and the program goes on. */
        retire_cpu_sync(env, d.now);
        return helper_lookup_tb_ptr(env);
    }
    if (!retire_wants(env, RETIRE_WANT_RANGE) ||
        !is_divided(r, tb, env->eip)) {
        step = retire_next(r, &d, charge, env->eip, lengths);
        if (!step) {
            return tb->tc.ptr;
        }
    }
    env->retire_flags |= (uint64_t)step << RETIRE_TB_STEP_SHIFT;
    return helper_lookup_tb_ptr(env);
}

/*
 * Block @ptr is next, and the budget is exhausted; or the range divides it.
 * Returns what to execute: the block itself, one that is as long as how far it
 * is to something that has to be observed, or what leaves for QEMU's main loop.
 * @lengths is that of retire_tell_late(), and 0 if the block's last instruction
 * is observed.
 */
const void *helper_retire_next(CPUX86State *env, uint32_t desc, void *ptr,
                               uint64_t lengths)
{
    int32_t charge = desc & ~RETIRE_NEXT_CHARGED;
    RetireState *r = &env->retire;
    TranslationBlock *tb = ptr;

    env->eip = block_ip(env, tb);
    if (desc & RETIRE_NEXT_CHARGED) {
        r->budget += charge;
    }
    if (!cpu_loop_exit_requested(env_cpu(env)) &&
        retire_next_foreseen(r, charge, env->eip, lengths)) {
        return tb->tc.ptr;
    }
    return next_asked(env, charge, tb, lengths);
}

/*
 * The instruction at @ip has retired, everything but a trap for EFLAGS.TF is
 * done, and EIP is that of the next one: a #PF raised here is between the two.
 */
void helper_retire_observe(CPUX86State *env, target_ulong ip, uint32_t desc)
{
    RetireStory story = {
        .ip = ip,
        .next = ip + (desc >> RETIRE_DESC_LENGTH_SHIFT),
        .target = env->eip,
        .row = desc & RETIRE_DESC_USR ? RETIRE_USR : RETIRE_OS,
        .branch = desc & RETIRE_DESC_BRANCH,
        .taken = desc & RETIRE_DESC_TAKEN,
        .is_far = desc & RETIRE_DESC_FAR,
        .entry = desc & RETIRE_DESC_ENTRY,
        .trap = (desc & RETIRE_DESC_TF) || env_cpu(env)->watchpoint_hit,
    };

    if (story.branch && retire_wants(env, RETIRE_WANT_PREDICT)) {
        uint64_t last = retire_models(env)->predictor.last;

        story.predicted = !(last & RETIRE_BRANCH_UNEXPECTED);
        story.mispredicted = last & RETIRE_BRANCH_MISPREDICTED;
    }
    if (retire_wants(env, RETIRE_WANT_STORY)) {
        story.access = retire_models(env)->accesses.access;
        story.nr_accesses = retire_models(env)->accesses.nr;
    }
    retire_cpu_settle(env);
    retire_cpu_observe(env, &story, desc >> RETIRE_DESC_OBSERVERS_SHIFT & 0xff);
    cpu_sync_retire(env);
}

/*
 * A REP string instruction at @ip is left before it has finished, and begins
 * again; its block has @charged it, or it is observed.
 */
void helper_retire_repeat(CPUX86State *env, uint32_t charged, target_ulong ip)
{
    RetireState *r = &env->retire;
    RetireDistance d;

    if (!charged) {
        unsigned told = retire_tb_observers(env->retire_flags);
        RetireStory story = { .ip = ip, .row = r->row, .part = true };

        env->eip = ip;
        retire_cpu_settle(env);
        retire_cpu_observe(env, &story, told);
        cpu_sync_retire(env);
        return;
    }
    if (retire_eligible(r, ip)) {
        r->budget += RETIRE_CHARGE(1, 0);
    }
    if (retire_wants(env, RETIRE_WANT_ACCESSES)) {
        /* The budget knows nothing of iterations. */
        retire_cpu_settle_memory(env);
        retire_cpu_settle_misses(env);
        retire_cpu_arm(env, &d);
    }
}
