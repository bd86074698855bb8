/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: the account, and the way from there to the observers. */

#include "qemu/osdep.h"
#include "qemu/log.h"
#include "qemu/main-loop.h"
#include "retire.h"
#include "compat.h"
#ifdef CONFIG_TCG
#include "exec/helper-proto.h"
#include "accel/tcg/cpu-ops.h"
#include "accel/tcg/internal-common.h"
#include "accel/tcg/tb-context.h"
#include "accel/tcg/tb-hash.h"
#include "tcg/tcg.h"
#endif

/* Report @n; who is not told now has been told when it still was. */
static inline void report(CPUX86State *env, const RetireTotals *n)
{
    RETIRE_FOREACH_TOLD(env, o) {
        (*o)->count(env, env->retire.row, n);
    }
}

/* What is counted apart from the budget; most often nobody wants it. */
static void __attribute__((noinline)) settle_details(CPUX86State *env,
                                                     RetireTotals *n)
{
    RetireState *r = &env->retire;
    uint64_t branches[RETIRE_NR_CLASSES], memory[RETIRE_NR_MEMORY];

    if (retire_wants(env, RETIRE_WANT_CLASSES)) {
        n->branches_any = 0;
        n->branches = retire_take_branches(r, branches) ? branches : NULL;
    }
    if (retire_wants(env, RETIRE_WANT_ACCESSES)) {
        retire_take_memory(r, r->row, memory);
        n->memory = memory;
    }
    if (retire_wants(env, RETIRE_WANT_FP)) {
        n->fp = retire_models(env)->fp[r->row];
    }
    report(env, n);
    if (n->fp) {
        memset(retire_models(env)->fp, 0, sizeof(retire_models(env)->fp));
    }
}

void retire_cpu_settle(CPUX86State *env)
{
    RetireTotals n = retire_take(&env->retire);

    if (retire_wants(env, RETIRE_WANT_CLASSES | RETIRE_WANT_ACCESSES |
                          RETIRE_WANT_FP)) {
        settle_details(env, &n);
    } else if (n.insns || n.misses) {
        report(env, &n);
    }
}

void retire_cpu_settle_misses(CPUX86State *env)
{
    RetireState *r = &env->retire;
    RetireTotals n = { .misses = r->misses_armed - r->misses };

    if (n.misses) {
        r->misses_armed = r->misses;
        report(env, &n);
    }
}

void retire_cpu_arm(CPUX86State *env, RetireDistance *d)
{
    RetireState *r = &env->retire;

    *d = RETIRE_DISTANCE_MAX;
    RETIRE_FOREACH_TOLD(env, o) {
        (*o)->distance(env, r->row, d);
    }
    retire_arm_distance(r, &env_archcpu(env)->retire_config, d);
#ifdef CONFIG_TCG
    /* Arming has undone what retire_exit_requested() did. */
    if (cpu_loop_exit_requested(env_cpu(env))) {
        retire_expire(r);
    }
#endif
}

/* retire_cpu_sync(), if nothing is to be reported */
static void sync_settled(CPUX86State *env, unsigned step)
{
    X86CPU *cpu = env_archcpu(env);
    RetireState *r = &env->retire;
    RetireWants wants = 0, common = RETIRE_WANT_RANGE;
    const RetireObserver **last = retire_models(env)->told;
    uint64_t told = 0;
    RetireDistance d;

    r->row = env->hflags & HF_CPL_MASK ? RETIRE_USR : RETIRE_OS;
    for (int i = RETIRE_MAX_OBSERVERS; i-- > 0;) {
        const RetireObserver *o = cpu->retire_observer[i];
        RetireWants w = o ? o->wants(env, r->row) : 0;

        if (w) {
            *last++ = o;
            told |= 1u << i;
            wants |= w;
            common &= w;
        }
    }
    *last = NULL;
    if ((wants & ~common) & RETIRE_WANT_RANGE) {
        /* Only who is told of each instruction can tell.  This is rare. */
        wants &= ~RETIRE_WANT_RANGE;
        step = 1;
    }
    if (!(wants & RETIRE_WANT_RANGE)) {
        r->ip_first = 0;
        r->ip_span = UINT64_MAX;
    }
    env->retire_flags = (uint64_t)(wants & RETIRE_WANT_OF_BLOCKS) <<
                        RETIRE_TB_WANTS_SHIFT |
                        told << RETIRE_TB_OBSERVERS_SHIFT;
    if (told) {
        env->retire_flags |= (uint64_t)step << RETIRE_TB_STEP_SHIFT;
        retire_cpu_arm(env, &d);
    }
    if (wants & (RETIRE_WANT_SOURCES | RETIRE_WANT_FETCHES)) {
        retire_cpu_use_caches(env, wants);
    }
}

void retire_cpu_sync(CPUX86State *env, unsigned step)
{
    retire_cpu_settle(env);
    sync_settled(env, step);
}

void cpu_sync_retire(CPUX86State *env)
{
    if (unlikely(env_archcpu(env)->retire_observer[0])) {
        retire_cpu_sync(env, 0);
    }
}

#ifdef CONFIG_TCG
void retire_cpu_one(CPUX86State *env)
{
    RetireStory story = { .row = RETIRE_OS, .entry = true };

    retire_cpu_observe(env, &story, UINT_MAX);
}

void retire_cpu_delivered(CPUX86State *env, RetireRow row, uint64_t ip,
                          int vector)
{
    X86CPU *cpu = env_archcpu(env);

    if (vector == RETIRE_VECTOR_INT) {
        RetireStory story = {
            .ip = ip, .row = row, .is_far = true, .entry = true,
            .delivered = true,
        };

        retire_cpu_observe(env, &story, UINT_MAX);
        return;
    }
    for (int i = RETIRE_MAX_OBSERVERS; i-- > 0;) {
        const RetireObserver *o = cpu->retire_observer[i];

        if (o && o->delivered) {
            o->delivered(env, row, ip, vector);
        }
    }
}

void retire_cpu_observe(CPUX86State *env, const RetireStory *story,
                        unsigned told)
{
    X86CPU *cpu = env_archcpu(env);

    env->retire.clock += story->part ? 0 : RETIRE_CHARGE(1, 0);
    retire_cpu_settle(env);
    for (int i = RETIRE_MAX_OBSERVERS; i-- > 0;) {
        if (cpu->retire_observer[i] && (told >> i & 1)) {
            cpu->retire_observer[i]->observe(env, story);
        }
    }
    sync_settled(env, 0);
}

void retire_exec_exit(CPUX86State *env)
{
    retire_settle(env);
#ifndef CONFIG_USER_ONLY
    /* The TLB may be flushed before the loop goes on with the same flags. */
    if (retire_wants(env, RETIRE_WANT_SOURCES)) {
        retire_filter_clear(&retire_models(env)->filter);
    }
#endif
}

void retire_exit_requested(CPUState *cs)
{
    CPUX86State *env = cpu_env(cs);

    /*
     * Blocks that are charged may have no other check.  If another thread asks,
     * it is soon enough when the budget is exhausted.
     */
    if (env->retire_flags && qemu_cpu_is_self(cs)) {
        retire_expire(&env->retire);
    }
}

#ifndef CONFIG_USER_ONLY
void retire_deliver(CPUState *cs, run_on_cpu_func func, run_on_cpu_data data)
{
    if (icount_enabled()) {
        /* This may be the middle of a block; it is done behind it. */
        async_run_on_cpu(cs, func, data);
    } else {
        BQL_LOCK_GUARD();
        func(cs, data);
    }
}
#endif

void retire_cpu_begin(CPUX86State *env)
{
    RETIRE_FOREACH_TOLD(env, o) {
        if ((*o)->begin) {
            (*o)->begin(env);
        }
    }
}

void retire_code_free(RetireCode *code)
{
    g_free(code->block);
    *code = (RetireCode) { };
}

RetireCode *retire_code(CPUX86State *env)
{
    RetireCode *code = &retire_models(env)->code;
    unsigned flushes = qatomic_read(&tb_ctx.tb_flush_count);

    if (unlikely(code->flushes != flushes)) {
        retire_code_free(code);
        code->flushes = flushes;
    }
    return code;
}

#ifndef CONFIG_USER_ONLY
const void *retire_find_block(CPUX86State *env, tb_page_addr_t phys)
{
    CPUState *cs = env_cpu(env);
    CPUJumpCache *jc = cs->tb_jmp_cache;
    RetireCode *code = retire_code(env);
    const TranslationBlock **known, *tb;
    uint64_t cs_base;
    uint32_t flags, hash;
    const void *ptr;
    vaddr pc;

    retire_get_tb_state(env, &pc, &cs_base, &flags);
    hash = tb_jmp_cache_hash_func(pc);
    if (unlikely(!code->block)) {
        code->block = g_new0(const TranslationBlock *, RETIRE_NR_BLOCKS);
    }
    known = &code->block[(phys + retire_tb_step(cs_base) * 64) %
                         RETIRE_NR_BLOCKS];
    tb = *known;
    if (tb && tb_page_addr0(tb) == phys && tb_page_addr1(tb) == -1 &&
        (tb->pc == pc || (tb_cflags(tb) & CF_PCREL)) &&
        tb->cs_base == cs_base && tb->flags == flags &&
        tb_cflags(tb) == curr_cflags(cs)) {
        jc->array[hash].pc = pc;
        qatomic_set(&jc->array[hash].tb, (TranslationBlock *)tb);
        if (likely(QTAILQ_EMPTY(&cs->breakpoints) &&
                   !qemu_loglevel_mask(CPU_LOG_TB_CPU | CPU_LOG_EXEC))) {
            cs->neg.can_do_io = true;
            return tb->tc.ptr;
        }
    }
    ptr = helper_lookup_tb_ptr(env);
    *known = qatomic_read(&jc->array[hash].tb);
    return ptr;
}
#endif

static const void *step_block(CPUX86State *env, const TranslationBlock *tb,
                              uint32_t step)
{
    env->retire_flags |= (uint64_t)step << RETIRE_TB_STEP_SHIFT;
#ifdef CONFIG_USER_ONLY
    return helper_lookup_tb_ptr(env);
#else
    return retire_find_block(env, tb_page_addr0(tb));
#endif
}

/* Whether not all of block @tb at effective address @ip is in the range. */
static bool is_divided(const RetireState *r, const TranslationBlock *tb,
                       uint64_t ip)
{
    uint64_t offset = ip - r->ip_first;

    return offset > r->ip_span || r->ip_span - offset < tb->size - 1u;
}

/* The rest of retire_tb_ask(), if nothing has been foreseen. */
static __attribute__((noinline, flatten)) const void *
ask_observers(CPUX86State *env, const TranslationBlock *tb, int32_t charge)
{
    RetireState *r = &env->retire;
    bool due = r->due;
    uint32_t step = 1;
    RetireDistance d;

    retire_cpu_settle(env);
    if (due) {
        retire_cpu_begin(env);
    }
    retire_cpu_arm(env, &d);
    if (r->budget >= charge && !retire_wants(env, RETIRE_WANT_RANGE)) {
        return tb->tc.ptr;
    }
    if (cpu_loop_exit_requested(env_cpu(env))) {
        return tcg_code_gen_epilogue;
    }
    if (d.now) {
        retire_cpu_begin(env);
        retire_cpu_arm(env, &d);
        /* What is wanted may have become known; and the program goes on. */
        retire_cpu_sync(env, d.now);
        return helper_lookup_tb_ptr(env);
    }
    if (!retire_wants(env, RETIRE_WANT_RANGE) ||
        !is_divided(r, tb, env->eip)) {
        step = retire_next(r, &d, charge, env->eip,
                           retire_ask_lengths(tb->ask_data));
        if (!step) {
            return tb->tc.ptr;
        }
    }
    return step_block(env, tb, step);
}

/*
 * TCGCPUOps.tb_ask: the budget is exhausted, or the range divides @tb.  What
 * runs is the block itself, one that is as long as how far it is to something
 * that has to be observed, or what leaves for QEMU's main loop.
 */
const void *retire_tb_ask(CPUState *cs, const TranslationBlock *tb)
{
    CPUX86State *env = cpu_env(cs);
    RetireState *r = &env->retire;
    int32_t charge = retire_ask_charge(tb->ask_data);
    uint32_t cflags = tb_cflags(tb), step;

    /* See x86_cpu_synchronize_from_tb(). */
    if (!(cflags & CF_PCREL)) {
        env->eip = tb->flags & HF_CS64_MASK ? tb->pc :
                   (uint32_t)(tb->pc - tb->cs_base);
    }
    /* Others have only looked at the budget, see gen_retire_prologue(). */
    if (!(cflags & CF_USE_ICOUNT) &&
        !retire_wants(env, RETIRE_WANT_RANGE)) {
        r->budget += charge;
    }
    if (!cpu_loop_exit_requested(cs)) {
        if (retire_next_foreseen(r, charge, env->eip,
                                 retire_ask_lengths(tb->ask_data))) {
            return tb->tc.ptr;
        }
        step = retire_step_foreseen(r, charge);
        if (step && !retire_wants(env, RETIRE_WANT_RANGE)) {
            return step_block(env, tb, step);
        }
    }
    return ask_observers(env, tb, charge);
}
#endif
