/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: the observers, the account for them, and TCG helpers. */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "retire.h"
#include "decode-retire.h"
#include "compat.h"
#ifdef CONFIG_TCG
#include "exec/helper-proto.h"
#include "accel/tcg/cpu-ops.h"
#include "tcg/tcg.h"
#endif

/*
 * Each thread of a program has a copy of env, and a reset clears it, so what is
 * large is elsewhere in X86CPU: retire and lwp add 2 KiB at most.
 */
QEMU_BUILD_BUG_ON(offsetof(CPUX86State, end_init_save) -
                  offsetof(CPUX86State, retire) > 2 * KiB);

const RetireModelsOps *retire_models_ops;

void retire_add_observer(X86CPU *cpu, const RetireObserver *observer,
                         bool caches)
{
    int n = 0;

    if (!cpu->retire_observer[0] && retire_models_ops) {
        retire_models_ops->add(cpu);
    }
    while (cpu->retire_observer[n]) {
        n++;
    }
    assert(n < RETIRE_MAX_OBSERVERS);
    cpu->retire_observer[n] = observer;
    cpu->retire_config.has_caches |= caches;
    if (observer->taken) {
        assert(!cpu->retire_told.taken);
        cpu->retire_told.taken = observer;
    }
}

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
static void settle_details(CPUX86State *env, RetireTotals *n)
{
    RetireState *r = &env->retire;
    uint64_t branches[RETIRE_NR_CLASSES], memory[RETIRE_NR_MEMORY];

    if (retire_wants(env, RETIRE_WANT_CLASSES)) {
        n->branches = retire_take_branches(r, branches) ? branches : NULL;
    }
    if (retire_wants(env, RETIRE_WANT_ACCESSES)) {
        retire_models_ops->take(env, memory);
        n->memory = memory;
    }
    if (retire_wants(env, RETIRE_WANT_FP)) {
        n->fp = retire_told(env)->fp[r->row];
    }
    report(env, n);
    if (n->fp) {
        memset(retire_told(env)->fp, 0, sizeof(retire_told(env)->fp));
    }
}

void retire_cpu_settle(CPUX86State *env)
{
    RetireState *r = &env->retire;
    RetireTotals n;

    if (!env->retire_flags || !r->runs) {
        /* What icount has charged meanwhile is nobody's. */
        r->armed = retire_left(env);
        return;
    }
    n = retire_take(r, retire_left(env));
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

void retire_set_budget(CPUX86State *env, int64_t n)
{
    CPUState *cs = env_cpu(env);

    if (icount_enabled()) {
        /* Who has them is not counted, but how many there are together is. */
        int64_t left = retire_left(env);

        n = MIN(n, left);
        cs->icount_extra = left - n;
    } else {
        env->retire.armed += n - retire_budget(env);
    }
    cs->neg.icount_decr.u16.low = n;
}

/*
 * A TB that takes its length off the budget may undo an exit request of another
 * thread or a signal, which has set exit_request before: request it again.
 */
static void repeat_exit_request(CPUState *cs)
{
    if (unlikely(qatomic_read(&cs->exit_request))) {
        qatomic_set(&cs->neg.icount_decr.u16.high, -1);
    }
}

/*
 * The budget for @run instructions.  An exit request that has been undone is
 * seen where the budget ends: interrupts would gather at the instruction before
 * an event, and perf loses a sample if the counter is taken away there.  So the
 * last part of a long run has a budget of its own.
 */
static int64_t first_part(int64_t run)
{
    return run < 8192 ? run : run - 16;
}

RetireDistance retire_cpu_arm(CPUX86State *env)
{
    RetireDistance d = RETIRE_DISTANCE_MAX;
    RetireState *r = &env->retire;

    RETIRE_FOREACH_TOLD(env, o) {
        (*o)->distance(env, r->row, &d);
    }
    if (retire_told(env)->ranges_differ) {
        d.insns = 0;
    }
    if (r->runs) {
        int64_t charged = retire_charged(r, retire_left(env));

        retire_set_budget(env, MAX(first_part(retire_run(&d)) - charged, 0));
        retire_arm_misses(r, &env_archcpu(env)->retire_config, &d);
        repeat_exit_request(env_cpu(env));
    }
    return d;
}

/* Who is told, what is wanted, and what TBs are to know of that */
static void ask_wants(CPUX86State *env)
{
    X86CPU *cpu = env_archcpu(env);
    RetireState *r = &env->retire;
    RetireTold *told = retire_told(env);
    RetireWants wants = 0, common = RETIRE_WANT_RANGE;
    const RetireObserver **last = told->observer;
    uint64_t observers = 0;

    r->row = retire_row(env);
    for (int i = 0; i < RETIRE_MAX_OBSERVERS; i++) {
        const RetireObserver *o = retire_observer(cpu, i);
        RetireWants w = o ? o->wants(env, r->row) : 0;

        if (w) {
            *last++ = o;
            observers |= 1u << i;
            wants |= w;
            common &= w;
        }
    }
    *last = NULL;
    if (!retire_models_ops) {
        wants &= ~RETIRE_WANT_OF_MODELS;
    }
    told->wants = wants;
    /* That some have no range is rare: each instruction is observed instead. */
    told->ranges_differ = wants & ~common & RETIRE_WANT_RANGE;
    if (told->ranges_differ) {
        wants &= ~RETIRE_WANT_RANGE;
    }
    if (!(wants & RETIRE_WANT_RANGE)) {
        r->ip_first = 0;
        r->ip_span = UINT64_MAX;
    }
    env->retire_flags = (uint64_t)(wants & RETIRE_WANT_OF_TBS) <<
                        RETIRE_TB_WANTS_SHIFT |
                        observers << RETIRE_TB_OBSERVERS_SHIFT;
}

/* When that is known, and nothing is to be reported */
static void go_on(CPUX86State *env)
{
    RetireWants wants = retire_told(env)->wants;

    if (env->retire_flags) {
        retire_cpu_arm(env);
    } else if (env->retire.runs) {
        /*
         * TBs that do not count may follow without an end.  The last one that
         * did has stored icount_decr: that is before the load of exit_request,
         * because tcg_kick_vcpu_thread() stores them in the other order.
         */
        smp_mb();
        repeat_exit_request(env_cpu(env));
    }
    if (wants & (RETIRE_WANT_SOURCES | RETIRE_WANT_FETCHES)) {
        retire_models_ops->update(env, wants);
    }
}

void cpu_sync_retire(CPUX86State *env)
{
    if (unlikely(env_archcpu(env)->retire_observer[0])) {
        retire_cpu_settle(env);
        ask_wants(env);
        go_on(env);
    }
}

void retire_cpu_restart(CPUX86State *env)
{
    env->retire.armed = retire_left(env);
    cpu_sync_retire(env);
}

#ifdef CONFIG_TCG
/*
 * An observer that stores a record may hit a watchpoint, which has the next
 * instruction executed in a TB that takes it off the budget without a look.
 */
static void allow_one(CPUX86State *env)
{
    retire_set_budget(env, MAX(retire_budget(env), 1));
}

/*
 * Report, tell all observers in @told, a bit for each, @story, and sync; with
 * @ask, the instruction itself may have changed what somebody wants.
 */
static void observe(CPUX86State *env, const RetireStory *story, unsigned told,
                    bool ask)
{
    X86CPU *cpu = env_archcpu(env);
    RetireState *r = &env->retire;

    r->clock += story->part ? 0 : 1;
    retire_cpu_settle(env);
    allow_one(env);
    for (; told; told &= told - 1) {
        const RetireObserver *o = retire_observer(cpu, ctz32(told));

        if (o) {
            ask |= o->observe(env, story);
        }
    }
    if (ask || r->row != retire_row(env)) {
        ask_wants(env);
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

void helper_retire_look(CPUX86State *env)
{
    retire_cpu_settle(env);
    for (int i = 0; i < RETIRE_MAX_OBSERVERS; i++) {
        const RetireObserver *o = retire_observer(env_archcpu(env), i);

        if (o && o->look) {
            o->look(env);
        }
    }
    cpu_sync_retire(env);
    /* Or else what is not wanted any more would be in TBs that follow. */
    retire_set_budget(env, 0);
}

void retire_delivered(CPUX86State *env, RetireRow row, uint64_t ip, int vector)
{
    X86CPU *cpu = env_archcpu(env);
    bool look = false;

    if (retire_models_ops) {
        retire_models_ops->delivered(env, ip);
    }
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
            look |= o->delivered(env, row, ip, vector);
        }
    }
    if (unlikely(look)) {
        helper_retire_look(env);
    }
}

void retire_cpu_enter(CPUX86State *env)
{
    env->retire.runs = true;
    env->retire.armed = retire_left(env);
    retire_settle(env);
}

void retire_cpu_exit(CPUX86State *env)
{
    CPUState *cs = env_cpu(env);

    retire_settle(env);
    env->retire.runs = false;
    /* A step is asked for again; gdb may want another one before. */
    if (env->retire_flags && !(cs->cflags_next_tb & CF_NOIRQ)) {
        cs->cflags_next_tb = -1;
    }
}

void retire_cpu_begin(CPUX86State *env)
{
    uint16_t budget = retire_budget(env);

    allow_one(env);
    RETIRE_FOREACH_TOLD(env, o) {
        if ((*o)->begin) {
            (*o)->begin(env);
        }
    }
    retire_set_budget(env, budget);
}

void retire_tb_expired(CPUState *cs, const TranslationBlock *tb)
{
    CPUX86State *env = cpu_env(cs);
    RetireDistance d;
    uint32_t insns;

    /* With icount, all TBs count, and there need not be any observer. */
    if (!env->retire_flags) {
        return;
    }
    retire_cpu_settle(env);
    d = retire_cpu_arm(env);
    if (d.pending) {
        retire_cpu_begin(env);
        /* What is wanted may have become known, and another TB may be next. */
        cpu_sync_retire(env);
        d = retire_cpu_arm(env);
        if (!d.pending) {
            return;
        }
    }
    /*
     * If the step is lost, the budget is one too long for what is next; but
     * then cpu_exec() has been left, or an interrupt delivered, and it is armed
     * anew.
     */
    insns = retire_step(&d, tb->icount);
    retire_set_budget(env, MAX(insns ?: tb->icount, retire_budget(env)));
    if (insns && retire_budget(env)) {
        cs->cflags_next_tb =
            (tb_cflags(tb) & ~(CF_COUNT_MASK | CF_INVALID)) |
            MIN(insns, retire_budget(env));
    }
}

G_NORETURN void retire_restart(CPUX86State *env, uintptr_t ra, uint32_t cflags)
{
    CPUState *cs = env_cpu(env);

    cflags |= tb_cflags(tcg_tb_lookup(ra)) & ~(CF_COUNT_MASK | CF_INVALID);
    cpu_restore_state(cs, ra);
    if (!cpu_in_exclusive_context(cs)) {
        cs->cflags_next_tb = cflags | CF_NOIRQ | 1;
    }
    cpu_loop_exit(cs);
}

/* The range has a part of the TB that begins here. */
G_NORETURN void helper_retire_divided(CPUX86State *env)
{
    retire_restart(env, GETPC(), 0);
}

/* The instruction at @ip is next, in a TB that is executed in any case. */
void helper_retire_begin(CPUX86State *env, target_ulong ip)
{
    env->eip = ip;
    if (retire_models_ops) {
        retire_models_ops->begin(env, ip);
    }
    retire_cpu_begin(env);
}

/*
 * The instruction at @ip has retired, and EIP is that of the next one: a #PF
 * raised here is between the two.
 */
void helper_retire_observe(CPUX86State *env, target_ulong ip, uint32_t desc)
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

    if (retire_models_ops) {
        retire_models_ops->tell(env, &story, desc);
    }
    observe(env, &story,
            desc >> RETIRE_DESC_OBSERVERS_SHIFT & RETIRE_ALL_OBSERVERS,
            (uint16_t)desc & ~RETIRE_ROW_BRANCH);
}

/*
 * The near branch at @from has been taken; @what is RETIRE_BRANCH_ONE,
 * with RETIRE_BRANCH_MISPREDICTED if it was.  Returns whether all have to look.
 */
uint32_t helper_retire_taken(CPUX86State *env, target_ulong from,
                             target_ulong to, uint64_t what)
{
    return retire_told(env)->taken->taken(env, from, to,
                                          what & RETIRE_BRANCH_MISPREDICTED);
}

/*
 * A REP string instruction at @ip is left before it has finished, and begins
 * again; its TB has @charged it, or it is observed.
 */
void helper_retire_repeat(CPUX86State *env, uint32_t charged, target_ulong ip)
{
    RetireState *r = &env->retire;

    if (!charged) {
        unsigned told = retire_tb_observers(env->retire_flags);
        RetireStory story = { .ip = ip, .row = r->row, .part = true };

        if (retire_wants(env, RETIRE_WANT_STORY)) {
            retire_models_ops->tell(env, &story, RETIRE_DESC_STORY);
        }
        env->eip = ip;
        observe(env, &story, told, true);
        return;
    }
    retire_give_back(r, 1, ip);
    if (retire_wants(env, RETIRE_WANT_ACCESSES)) {
        /* The budget knows nothing of iterations. */
        retire_cpu_settle(env);
        retire_cpu_arm(env);
    }
    /* Without this, that would take 65535 times as long as the others do. */
    repeat_exit_request(env_cpu(env));
}
#endif
