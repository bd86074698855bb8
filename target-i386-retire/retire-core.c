/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: the account, the way to the observers, and TCG helpers. */

#include "qemu/osdep.h"
#include "qemu/log.h"
#include "qemu/main-loop.h"
#include "retire.h"
#include "decode-retire.h"
#include "compat.h"
#ifdef CONFIG_TCG
#include "retire-mem.h"
#include "exec/helper-proto.h"
#include "accel/tcg/cpu-ops.h"
#include "accel/tcg/internal-common.h"
#include "accel/tcg/tb-context.h"
#include "accel/tcg/tb-hash.h"
#include "tcg/tcg.h"
#endif

/* Who is told @i-th, or NULL: who has been added last is told first. */
static inline const RetireObserver *retire_observer(X86CPU *cpu, unsigned i)
{
    return cpu->retire_observer[RETIRE_MAX_OBSERVERS - 1 - i];
}

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

RetireDistance retire_cpu_arm(CPUX86State *env)
{
    RetireDistance d = RETIRE_DISTANCE_MAX;
    RetireState *r = &env->retire;

    RETIRE_FOREACH_TOLD(env, o) {
        (*o)->distance(env, r->row, &d);
    }
    retire_arm_distance(r, &env_archcpu(env)->retire_config, &d);
#ifdef CONFIG_TCG
    /* Arming has undone what retire_exit_requested() did. */
    if (cpu_loop_exit_requested(env_cpu(env))) {
        retire_expire(r);
    }
#endif
    return d;
}

/* Who is told, what is wanted, and what blocks are to know of that */
static void ask_wants(CPUX86State *env, unsigned step)
{
    X86CPU *cpu = env_archcpu(env);
    RetireState *r = &env->retire;
    RetireModels *models = retire_models(env);
    RetireWants wants = 0, common = RETIRE_WANT_RANGE;
    const RetireObserver **last = models->told;
    uint64_t told = 0;

    r->row = retire_row(env);
    for (int i = 0; i < RETIRE_MAX_OBSERVERS; i++) {
        const RetireObserver *o = retire_observer(cpu, i);
        RetireWants w = o ? o->wants(env, r->row) : 0;

        if (w) {
            *last++ = o;
            told |= 1u << i;
            wants |= w;
            common &= w;
        }
    }
    *last = NULL;
    models->wants = wants;
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
    }
}

/* When that is known, and nothing is to be reported */
static void go_on(CPUX86State *env)
{
    RetireWants wants = retire_models(env)->wants;

    if (wants) {
        retire_cpu_arm(env);
    }
    if (wants & (RETIRE_WANT_SOURCES | RETIRE_WANT_FETCHES)) {
        retire_cpu_use_caches(env, wants);
    }
}

void retire_cpu_sync(CPUX86State *env, unsigned step)
{
    retire_cpu_settle(env);
    ask_wants(env, step);
    go_on(env);
}

void cpu_sync_retire(CPUX86State *env)
{
    if (unlikely(env_archcpu(env)->retire_observer[0])) {
        retire_cpu_sync(env, 0);
    }
}

#ifdef CONFIG_TCG
/*
 * Report, tell all observers in @told, a bit for each, @story, and sync; with
 * @ask, the instruction itself may have changed what somebody wants.
 */
static void observe(CPUX86State *env, const RetireStory *story, unsigned told,
                    bool ask)
{
    X86CPU *cpu = env_archcpu(env);
    RetireState *r = &env->retire;

    r->clock += story->part ? 0 : RETIRE_CHARGE(1, 0);
    retire_cpu_settle(env);
    for (; told; told &= told - 1) {
        const RetireObserver *o = retire_observer(cpu, ctz32(told));

        if (o) {
            ask |= o->observe(env, story);
        }
    }
    if (ask || r->row != retire_row(env) ||
        (retire_models(env)->wants & RETIRE_WANT_RANGE)) {
        ask_wants(env, 0);
    } else {
        env->retire_flags &= (1ull << RETIRE_TB_STEP_SHIFT) - 1;
    }
    go_on(env);
}

void retire_one(CPUX86State *env)
{
    RetireStory story = { .row = RETIRE_OS, .entry = true };

    if (env_archcpu(env)->retire_observer[0]) {
        observe(env, &story, RETIRE_ALL_OBSERVERS, true);
    }
}

void retire_delivered(CPUX86State *env, RetireRow row, uint64_t ip, int vector)
{
    X86CPU *cpu = env_archcpu(env);

    /* A handler may be where what has faulted was. */
    env->retire.left.ip = ~ip;
    if (vector == RETIRE_VECTOR_INT && cpu->retire_observer[0]) {
        RetireStory story = {
            .ip = ip, .row = row, .is_far = true, .entry = true,
            .delivered = true,
        };

        observe(env, &story, RETIRE_ALL_OBSERVERS, true);
        return;
    }
    for (int i = 0; i < RETIRE_MAX_OBSERVERS; i++) {
        const RetireObserver *o = retire_observer(cpu, i);

        if (o && o->delivered) {
            o->delivered(env, row, ip, vector);
        }
    }
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

/*
 * Blocks that are found by their physical addresses: QEMU's jump cache has room
 * for one at each pc, which is most often the whole block.
 */
static inline unsigned block_index(uint64_t phys, unsigned step)
{
    uint32_t key = phys * RETIRE_BLOCK_MAX + step;

    return key * 0x9e3779b1u / (UINT32_MAX / RETIRE_NR_BLOCKS + 1);
}

/* The one at @phys, if it is still what would be found; or NULL. */
static inline const TranslationBlock *
known_block(CPUX86State *env, uint64_t phys, vaddr pc, uint64_t cs_base,
            uint32_t flags, uint32_t cflags)
{
    const RetireCode *code = &retire_models(env)->code;
    const TranslationBlock *tb;

    if (code->flushes != qatomic_read(&tb_ctx.tb_flush_count) || !code->block ||
        qemu_loglevel_mask(CPU_LOG_TB_CPU | CPU_LOG_EXEC)) {
        return NULL;
    }
    tb = code->block[block_index(phys, retire_tb_step(cs_base))];
    return tb && tb_page_addr0(tb) == phys && tb_page_addr1(tb) == -1 &&
           (tb->pc == pc || (cflags & CF_PCREL)) &&
           tb->cs_base == cs_base && tb->flags == flags &&
           tb_cflags(tb) == cflags ? tb : NULL;
}

static __attribute__((noinline)) const void *
look_up_block(CPUX86State *env, uint64_t phys)
{
    RetireCode *code = retire_code(env);
    unsigned index = block_index(phys, retire_tb_step(env->retire_flags));
    const void *ptr = helper_lookup_tb_ptr(env);
    unsigned hash = tb_jmp_cache_hash_func(retire_linear(env->eip,
                                                         retire_cs_base(env)));

    /* It does without, if memory is what a program in user mode leaves. */
    if (!code->block) {
        code->block = g_try_new0(const TranslationBlock *, RETIRE_NR_BLOCKS);
    }
    /* Code in a device, which has no such address, is translated each time. */
    if (code->block && phys != -1) {
        code->block[index] =
            qatomic_read(&env_cpu(env)->tb_jmp_cache->array[hash].tb);
    }
    return ptr;
}

/* The first @step instructions of @tb, which is what is next */
static const void *step_block(CPUX86State *env, const TranslationBlock *tb,
                              uint32_t step)
{
    uint64_t phys = tb_page_addr0(tb);
    const TranslationBlock *known;

    env->retire_flags |= (uint64_t)step << RETIRE_TB_STEP_SHIFT;
    known = known_block(env, phys, tb->pc,
                        (uint32_t)tb->cs_base | env->retire_flags, tb->flags,
                        tb_cflags(tb));
    return likely(known) ? known->tc.ptr : look_up_block(env, phys);
}

/* What is behind step @tb: another one of @step instructions, if it is known */
static inline __attribute__((always_inline)) const void *
next_known(CPUX86State *env, const TranslationBlock *tb, uint32_t step)
{
    const TranslationBlock *known;
    uint64_t cs_base, phys;
    uint32_t flags;
    vaddr pc;

    retire_get_tb_state(env, &pc, &cs_base, &flags);
    if (!retire_mem_code(env, pc, tb->ask_data, &phys) ||
        !QTAILQ_EMPTY(&env_cpu(env)->breakpoints)) {
        return helper_lookup_tb_ptr(env);
    }
    if (step && !retire_tb_step(cs_base) &&
        !retire_wants(env, RETIRE_WANT_RANGE)) {
        uint64_t bits = (uint64_t)step << RETIRE_TB_STEP_SHIFT;

        /* It is known only if the whole block has as many. */
        known = known_block(env, phys, pc, cs_base | bits, flags,
                            tb_cflags(tb));
        if (known) {
            env->retire_flags |= bits;
            return known->tc.ptr;
        }
    }
    known = known_block(env, phys, pc, cs_base, flags, tb_cflags(tb));
    return likely(known) ? known->tc.ptr : look_up_block(env, phys);
}

static __attribute__((noinline)) const void *
next_step(CPUX86State *env, const TranslationBlock *tb, uint32_t step)
{
    return next_known(env, tb, step);
}

/* Most often, the next record is far. */
static __attribute__((noinline)) const void *
next_block(CPUX86State *env, const TranslationBlock *tb)
{
    uint32_t step = retire_step_ahead(&env->retire);

    return unlikely(step) ? next_step(env, tb, step) : next_known(env, tb, 0);
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
    uint32_t step = 1;
    RetireDistance d;

    retire_cpu_settle(env);
    d = retire_cpu_arm(env);
    if (r->budget >= charge && !retire_wants(env, RETIRE_WANT_RANGE)) {
        return tb->tc.ptr;
    }
    if (cpu_loop_exit_requested(env_cpu(env))) {
        return tcg_code_gen_epilogue;
    }
    if (d.now) {
        retire_cpu_begin(env);
        d = retire_cpu_arm(env);
        /* What is wanted may have become known; and the program goes on. */
        retire_cpu_sync(env, d.now);
        return helper_lookup_tb_ptr(env);
    }
    if (!retire_wants(env, RETIRE_WANT_RANGE) ||
        !is_divided(r, tb, env->eip)) {
        step = retire_next(r, &d, charge);
        if (!step) {
            return tb->tc.ptr;
        }
    }
    return step_block(env, tb, step);
}

/*
 * The budget is exhausted, or the range divides @tb.  What runs is the block
 * itself, one that is as long as how far it is to something that has to be
 * observed, or what leaves for QEMU's main loop.
 */
static __attribute__((noinline)) const void *
first_block(CPUState *cs, const TranslationBlock *tb)
{
    CPUX86State *env = cpu_env(cs);
    RetireState *r = &env->retire;
    int32_t charge = tb->ask_data;
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
        step = retire_step_foreseen(r, charge);
        if (step && !retire_wants(env, RETIRE_WANT_RANGE)) {
            return step_block(env, tb, step);
        }
    }
    return ask_observers(env, tb, charge);
}

/* TCGCPUOps.tb_ask: @tb asks before it begins; or it is a step, behind it. */
const void *retire_tb_ask(CPUState *cs, const TranslationBlock *tb)
{
    return retire_tb_step(tb->cs_base) ? next_block(cpu_env(cs), tb) :
           first_block(cs, tb);
}

/* The instruction at @ip is next, in a block that cannot ask first. */
void helper_retire_begin(CPUX86State *env, target_ulong ip)
{
    env->eip = ip;
    retire_again(&env->retire, ip);
    retire_cpu_begin(env);
}

/*
 * The instruction at @ip has retired, and EIP is that of the next one: a #PF
 * raised here is between the two.
 */
__attribute__((flatten))
void helper_retire_observe(CPUX86State *env, target_ulong ip, uint32_t desc)
{
    const RetireAccesses *accesses = &retire_models(env)->accesses;
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
        .access = accesses->access,
        .nr_accesses = desc & RETIRE_DESC_STORY ? accesses->nr : 0,
    };

    if (story.branch && retire_wants(env, RETIRE_WANT_PREDICT)) {
        uint64_t last = retire_models(env)->predictor.last;

        story.predicted = !(last & RETIRE_BRANCH_UNEXPECTED);
        story.mispredicted = last & RETIRE_BRANCH_MISPREDICTED;
    }
    observe(env, &story,
            desc >> RETIRE_DESC_OBSERVERS_SHIFT & RETIRE_ALL_OBSERVERS,
            (uint16_t)desc & ~RETIRE_ROW_BRANCH);
}

/* The near branch at @from has been taken; @what is as for branch_push(). */
void helper_retire_taken(CPUX86State *env, target_ulong from, target_ulong to,
                         uint64_t what, uint32_t observed)
{
    retire_models(env)->taken->taken(env, from, to,
                                     what & RETIRE_BRANCH_MISPREDICTED,
                                     observed);
}

/*
 * A REP string instruction at @ip is left before it has finished, and begins
 * again; its block has @charged it, or it is observed.
 */
void helper_retire_repeat(CPUX86State *env, uint32_t charged, target_ulong ip)
{
    RetireState *r = &env->retire;

    if (!charged) {
        unsigned told = retire_tb_observers(env->retire_flags);
        const RetireAccesses *accesses = &retire_models(env)->accesses;
        RetireStory story = {
            .ip = ip, .row = r->row, .part = true,
            .access = accesses->access,
            .nr_accesses = retire_wants(env, RETIRE_WANT_STORY) ?
                           accesses->nr : 0,
        };

        env->eip = ip;
        observe(env, &story, told, true);
        return;
    }
    if (retire_eligible(r, ip)) {
        r->budget += RETIRE_CHARGE(1, 0);
    }
    if (retire_wants(env, RETIRE_WANT_ACCESSES)) {
        /* The budget knows nothing of iterations. */
        retire_cpu_settle(env);
        retire_cpu_arm(env);
    }
}
#endif
