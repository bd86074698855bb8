/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: TCG helpers. */

#include "qemu/osdep.h"
#include "retire.h"
#include "retire-mem.h"
#include "decode-retire.h"
#include "compat.h"
#include "exec/helper-proto.h"

/* The instruction at @ip is next, in a block that cannot ask first. */
void helper_retire_begin(CPUX86State *env, target_ulong ip)
{
    env->eip = ip;
    /* What was due in the block before comes first. */
    retire_cpu_settle(env);
    retire_cpu_begin(env);
}

static void add_accesses(CPUX86State *env, RetireStory *story, bool has)
{
    if (has) {
        story->access = retire_models(env)->accesses.access;
        story->nr_accesses = retire_models(env)->accesses.nr;
    }
}

#ifndef CONFIG_USER_ONLY
/*
 * The block behind a step is most often in the same page.  But the instruction
 * may have changed the mapping: if it is late, or a device has flushed the TLB.
 */
static void find_next(CPUX86State *env, uint64_t ip, uint32_t desc,
                      const TranslationBlock *tb)
{
    uint32_t cs_base = retire_cs_base(env);
    uint64_t next = retire_linear(env->eip, cs_base);

    if (retire_tb_step(tb->cs_base) && tb_page_addr1(tb) == -1 &&
        !((uint16_t)desc & ~RETIRE_ROW_BRANCH) &&
        !((next ^ retire_linear(ip, cs_base)) & TARGET_PAGE_MASK) &&
        retire_mem_entry(env, next, MMU_INST_FETCH,
                         cpu_mmu_index(env_cpu(env), true)) &&
        QTAILQ_EMPTY(&env_cpu(env)->breakpoints)) {
        retire_find_block(env, (tb_page_addr0(tb) & TARGET_PAGE_MASK) |
                               (next & ~TARGET_PAGE_MASK));
    }
}
#endif

/*
 * The instruction at @ip has retired, and EIP is that of the next one: a #PF
 * raised here is between the two.
 */
void helper_retire_observe(CPUX86State *env, target_ulong ip, uint32_t desc,
                           void *block)
{
    RetireStory story = {
        .ip = ip,
        .next = ip + (desc >> RETIRE_DESC_LENGTH_SHIFT),
        .target = env->eip,
        .row = desc & RETIRE_DESC_USR ? RETIRE_USR : RETIRE_OS,
        .branch = desc & RETIRE_ROW_BRANCH,
        .taken = desc & RETIRE_DESC_TAKEN,
        .is_far = desc & RETIRE_ROW_FAR,
        .entry = desc & RETIRE_ROW_ENTRY,
        .int1 = (uint16_t)desc == X86_RETIRE_INT1,
        .trap = (desc & RETIRE_DESC_TF) || env_cpu(env)->watchpoint_hit,
    };

    if (story.branch && retire_wants(env, RETIRE_WANT_PREDICT)) {
        uint64_t last = retire_models(env)->predictor.last;

        story.predicted = !(last & RETIRE_BRANCH_UNEXPECTED);
        story.mispredicted = last & RETIRE_BRANCH_MISPREDICTED;
    }
    /* The instruction may have changed what is wanted. */
    add_accesses(env, &story, desc & RETIRE_DESC_STORY);
    retire_cpu_observe(env, &story, desc >> RETIRE_DESC_OBSERVERS_SHIFT &
                       ((1 << RETIRE_MAX_OBSERVERS) - 1));
#ifndef CONFIG_USER_ONLY
    find_next(env, ip, desc, block);
#endif
}

/* The near branch at @from has been taken. */
void helper_retire_taken(CPUX86State *env, target_ulong from, target_ulong to)
{
    retire_models(env)->taken->taken(env, from, to);
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
        add_accesses(env, &story, retire_wants(env, RETIRE_WANT_STORY));
        retire_cpu_observe(env, &story, told);
        return;
    }
    if (retire_eligible(r, ip)) {
        r->budget += RETIRE_CHARGE(1, 0);
    }
    if (retire_wants(env, RETIRE_WANT_ACCESSES)) {
        /* The budget knows nothing of iterations. */
        retire_cpu_settle(env);
        retire_cpu_arm(env, &d);
    }
}
