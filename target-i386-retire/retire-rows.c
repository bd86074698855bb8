/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What retires: counting by row, beside a consumer that does not know of it.
 *
 * Instructions come off the same fuse for both.  Branches by class are added up
 * by the code of the blocks, where they have retired for certain.
 */

#include "qemu/osdep.h"
#include "retire.h"
#include "compat.h"
#include "exec/helper-proto.h"

static const RetireCounters *counters(CPUX86State *env)
{
    return env_archcpu(env)->retire_counters;
}

/* The consumer that is told of what is taken off the fuse, or NULL. */
static const RetireConsumer *told(CPUX86State *env)
{
    return env->retire.told ? env_archcpu(env)->retire_told : NULL;
}

/*
 * Report what @env has, and @insns instructions and @branches_any branches, of
 * which it does not matter what they are.
 */
static void report(CPUX86State *env, RetireRow row, uint32_t insns,
                   uint32_t branches_any)
{
    static const RetireClass mispredicted[] = {
        [RETIRE_COND_TAKEN] = RETIRE_MISP_COND_TAKEN,
        [RETIRE_COND_NOT_TAKEN] = RETIRE_MISP_COND_NOT_TAKEN,
        [RETIRE_JMP_IND] = RETIRE_MISP_JMP_IND,
        [RETIRE_CALL_IND] = RETIRE_MISP_CALL_IND,
        [RETIRE_RET] = RETIRE_MISP_RET,
    };
    uint64_t branches[RETIRE_NR_CLASSES] = { };
    uint64_t memory[RETIRE_NR_MEMORY];
    bool accesses = env->retire.row_flags & RETIRE_TB_ACCESSES;

    for (int i = 0; i < ARRAY_SIZE(env->retire.branches[row]); i++) {
        uint64_t n = env->retire.branches[row][i];

        if (!n) {
            continue;
        }
        env->retire.branches[row][i] = 0;
        branches[i] = n % RETIRE_BRANCH_MISPREDICTED / RETIRE_BRANCH_ONE;
        if (n >= RETIRE_BRANCH_MISPREDICTED) {
            branches[mispredicted[i]] = n / RETIRE_BRANCH_MISPREDICTED;
        }
    }
    branches[RETIRE_JMP] += branches_any;
    if (accesses) {
        retire_take_memory(&env->retire, row, memory);
    }
    counters(env)->count(env, row, insns, branches, accesses ? memory : NULL);
}

/* The same for what has been taken off the fuse. */
static void report_fuse(CPUX86State *env, const RetireCount *n)
{
    report(env, env->retire.row, n->insns, env->retire.told ? 0 : n->branches);
}

static RetireMode rows_mode(CPUX86State *env, bool *loads)
{
    RetireState *r = &env->retire;
    const RetireConsumer *c = env_archcpu(env)->retire_told;
    RetireMode mode = c ? c->mode(env, loads) : RETIRE_OFF;
    RetireAccesses accesses = RETIRE_NO_ACCESSES;
    RetireDetail detail;

    r->told = mode != RETIRE_OFF;
    r->row = retire_row(env);
    r->row_flags = 0;
    detail = counters(env)->wanted(env, r->row, &accesses);
    if (detail == RETIRE_NOTHING) {
        return mode;
    }
    r->row_flags = RETIRE_TB_ROWS;
    if (accesses != RETIRE_NO_ACCESSES) {
        r->row_flags |= RETIRE_TB_ACCESSES;
    }
    if (accesses == RETIRE_EACH_SOURCE) {
        r->row_flags |= RETIRE_TB_CACHES;
    }
    if (r->told) {
        r->row_flags |= RETIRE_TB_TOLD;
        if (detail == RETIRE_ALL_BRANCHES) {
            detail = RETIRE_EACH_CLASS;
        }
    } else {
        r->ip_first = 0;
        r->ip_span = UINT64_MAX;
        mode = RETIRE_INSNS;
    }
    switch (detail) {
    case RETIRE_PREDICTIONS:
        r->row_flags |= RETIRE_TB_PREDICTS;
        /* fall through */
    case RETIRE_EACH_CLASS:
        r->row_flags |= RETIRE_TB_CLASSES;
        break;
    case RETIRE_ALL_BRANCHES:
        r->row_flags |= RETIRE_TB_SUMS;
        mode = RETIRE_BRANCHES;
        for (int i = RETIRE_BRANCH_NONE + 1; i < RETIRE_NR_BRANCHES; i++) {
            r->branch_unit[i] = 1;
        }
        break;
    default:
        break;
    }
    switch (mode) {
    case RETIRE_INSNS:
        /* Nor are there any for helper_retire_trip(). */
        memset(r->branch_unit, 0, sizeof(r->branch_unit));
        return mode;
    case RETIRE_RANGE:
    case RETIRE_PREDICTED:
        /* Not all is taken off the fuse.  This is rare, and slow. */
        return RETIRE_STEP;
    default:
        return mode;
    }
}

static uint32_t rows_near(CPUX86State *env, uint32_t *branches)
{
    const RetireState *r = &env->retire;

    *branches = UINT32_MAX;
    return r->row_flags ? counters(env)->distance(env, r->row, branches) :
           UINT32_MAX;
}

static uint32_t rows_distance(CPUX86State *env)
{
    const RetireConsumer *c = told(env);
    uint32_t branches;
    uint32_t left = rows_near(env, &branches);

    left = MIN(left, branches);
    return MIN(left, c ? c->distance(env) : RETIRE_FUSE_MAX);
}

static uint32_t rows_misses(CPUX86State *env)
{
    const RetireConsumer *c = told(env);

    return c ? c->misses(env) : 0;
}

static void rows_count(CPUX86State *env, const RetireCount *n)
{
    const RetireConsumer *c = told(env);

    report_fuse(env, n);
    if (c) {
        c->count(env, n);
    }
}

static void rows_count_misses(CPUX86State *env, uint32_t n)
{
    told(env)->count_misses(env, n);
}

static RetirePlan rows_trip(CPUX86State *env, const RetireBlock *block,
                            const RetireCount *n)
{
    const RetireConsumer *c = told(env);
    RetirePlan plan = {
        .action = RETIRE_PLAN_RUN,
        .insns = RETIRE_FUSE_MAX,
    };
    uint32_t left, branches;

    report_fuse(env, n);
    if (c) {
        plan = c->trip(env, block, n);
    }
    left = rows_near(env, &branches);
    if (plan.action == RETIRE_PLAN_STEP) {
        plan.insns = MIN(plan.insns, left + 1ull);
    } else if (block->insns > left || (block->branch && !branches)) {
        if (plan.action == RETIRE_PLAN_DUE) {
            /* Of a step, only the last instruction may matter to anybody. */
            left = MIN(left, c->distance(env));
        }
        /* A branch is the last one of its block. */
        plan.action = RETIRE_PLAN_STEP;
        plan.insns = MIN(block->insns, left + 1ull);
    } else if (plan.action == RETIRE_PLAN_RUN) {
        /* The fuse may be negative now; then the next block trips again. */
        left = MIN(left, branches);
        plan.foreseen &= left >= plan.insns + RETIRE_BLOCK_MAX;
        plan.insns = MIN(plan.insns, left);
    }
    return plan;
}

static void rows_boundary(CPUX86State *env, uint64_t ip, uintptr_t ra)
{
    told(env)->boundary(env, ip, ra);
}

static void rows_retired(CPUX86State *env, const RetireInsn *insn, bool trap)
{
    const RetireConsumer *c = told(env);

    if (c) {
        c->retired(env, insn, trap);
    }
}

uint32_t retire_rows_step(CPUX86State *env, uint32_t insns)
{
    uint32_t branches;
    uint32_t left = rows_near(env, &branches);

    return insns > left || !branches ? MIN(insns, left + 1ull) : 0;
}

static bool rows_miss_due(CPUX86State *env, uint32_t ahead,
                          const RetireMiss *miss)
{
    return told(env)->miss_due(env, ahead, miss);
}

static bool rows_miss(CPUX86State *env, const RetireMiss *miss, bool *boundary)
{
    return told(env)->miss(env, miss, boundary);
}

static void rows_settle(CPUX86State *env, const RetireCount *n)
{
    const RetireConsumer *c = told(env);

    report_fuse(env, n);
    if (c) {
        c->settle(env, n);
    }
}

static void rows_leave(CPUX86State *env)
{
    const RetireConsumer *c = told(env);

    if (c) {
        c->leave(env);
    }
}

void retire_rows_repeat(CPUX86State *env, bool alone)
{
    if (alone) {
        counters(env)->sync(env);
    } else {
        /* The fuse knows nothing of iterations. */
        report(env, env->retire.row, 0, 0);
        env->retire.foreseen = false;
        retire_arm(&env->retire, rows_distance(env));
        if (cpu_loop_exit_requested(env_cpu(env))) {
            retire_expire(&env->retire);
        }
    }
}

static const RetireConsumer rows_consumer = {
    .mode = rows_mode,
    .distance = rows_distance,
    .misses = rows_misses,
    .count = rows_count,
    .count_misses = rows_count_misses,
    .trip = rows_trip,
    .boundary = rows_boundary,
    .retired = rows_retired,
    .miss_due = rows_miss_due,
    .miss = rows_miss,
    .settle = rows_settle,
    .leave = rows_leave,
};

void retire_cpu_realize_rows(X86CPU *cpu, const RetireCounters *counters)
{
    cpu->env.retire_config.has_caches = true;
    cpu->retire_counters = counters;
    cpu->retire_told = cpu->retire_consumer;
    cpu->retire_consumer = &rows_consumer;
}

void retire_cpu_one(CPUX86State *env, RetireRow row, bool branch)
{
    retire_cpu_count(env);
    env->retire.branches[row][RETIRE_FAR] += branch ? RETIRE_BRANCH_ONE : 0;
    report(env, row, 1, 0);
    counters(env)->sync(env);
    cpu_sync_retire(env);
}

/* As helper_retire(), for code that counts by row. */
void helper_retire_row(CPUX86State *env, target_ulong ip, uint32_t desc)
{
    RetireState *r = &env->retire;

    r->step -= MIN(r->step, retire_ahead(r) + 1);
    retire_cpu_settle(env);
    report(env, desc & RETIRE_DESC_USR ? RETIRE_USR : RETIRE_OS, 1, 0);
    counters(env)->sync(env);
    if (desc & RETIRE_DESC_TOLD) {
        RetireInsn insn = retire_insn(env, ip, desc);

        rows_retired(env, &insn, (desc & RETIRE_DESC_TF) ||
                                 env_cpu(env)->watchpoint_hit);
    }
    cpu_sync_retire(env);
}
