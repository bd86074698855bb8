/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: what the rest of target/i386 calls, and what an observer is. */

#ifndef I386_RETIRE_H
#define I386_RETIRE_H

#include "cpu.h"
#include "qemu/main-loop.h"
#include "exec/translation-block.h"
#include "tcg/debug-assert.h"
#include "compat.h"

/*
 * Who wants to know what retires: LWP, performance counters.  These run on the
 * CPU's own thread; all from taken() on may be NULL.
 */
typedef struct RetireObserver {
    /*
     * What it wants to know in @row, where @env is; with RETIRE_WANT_RANGE, it
     * also stores retire.ip_first and ip_span, which only one observer may.
     * Asked from the last added to the first.
     */
    RetireWants (*wants)(CPUX86State *env, RetireRow row);
    /*
     * How much may retire in @row before it has to look; only shrinks @d.  An
     * exception may be about to be delivered: it looks at no guest memory.
     */
    void (*distance)(CPUX86State *env, RetireRow row, RetireDistance *d);
    /*
     * @n has retired in @row; perhaps in the middle of a TB, and of a REP
     * perhaps before its instruction.
     */
    void (*count)(CPUX86State *env, RetireRow row, const RetireTotals *n);
    /*
     * The instruction of @story has retired, which no @n has in it, and @env
     * has the state between it and the next one; may raise an exception there.
     * Returns whether that may have changed what this observer wants.
     */
    bool (*observe)(CPUX86State *env, const RetireStory *story);
    /*
     * RETIRE_WANT_TAKEN: effective addresses; EIP need not be that of @to.
     * Returns whether all have to look(); if it is observed, they will.
     */
    uint32_t (*taken)(CPUX86State *env, uint64_t from, uint64_t to,
                      bool mispredicted);
    /*
     * An exception or interrupt @vector has been delivered, which came at
     * effective address @ip in @row.  EIP is that of the handler.  Returns
     * whether all have to look(), or this one wants something else.
     */
    bool (*delivered)(CPUX86State *env, RetireRow row, uint64_t ip, int vector);
    /*
     * All that has retired has been reported; what is wanted may change.
     * Behind taken(), EIP may be that of another instruction; raises no
     * exception.
     */
    void (*look)(CPUX86State *env);
    /* RetireDistance.pending: the instruction at EIP is next; the same. */
    void (*begin)(CPUX86State *env);
    /*
     * In the middle of a TB, when @charged instructions have been charged and
     * not reported: whether the load that has @miss, or any if that is NULL,
     * has to be executed again, observed.
     */
    bool (*miss_due)(CPUX86State *env, uint32_t charged,
                     const RetireMiss *miss);
    /* A load misses, and is not in RetireTotals.misses. */
    void (*miss)(CPUX86State *env, const RetireMiss *miss);
} RetireObserver;

/*
 * The flags of TBs that hflags has no room for are in bits 63:32 of cs_base,
 * see cpu_get_tb_cpu_state().  They follow from the rest of the state and are
 * not migrated.  Bits 63:59 are free.
 */
#define RETIRE_TB_WANTS_SHIFT       32
#define RETIRE_TB_OBSERVERS_SHIFT   53

static inline RetireWants retire_tb_wants(uint64_t flags)
{
    return flags >> RETIRE_TB_WANTS_SHIFT & RETIRE_WANT_OF_TBS;
}

/* A bit for each of X86CPU.retire_observer[], the last of which is bit 0 */
static inline unsigned retire_tb_observers(uint64_t flags)
{
    return flags >> RETIRE_TB_OBSERVERS_SHIFT & RETIRE_ALL_OBSERVERS;
}

/* Whether any of @wants, all of which are flags of TBs, is wanted */
static inline bool retire_wants(const CPUX86State *env, RetireWants wants)
{
    assert(!(wants & ~RETIRE_WANT_OF_TBS));
    return retire_tb_wants(env->retire_flags) & wants;
}

static inline RetireRow retire_row(CPUX86State *env)
{
    return env->hflags & HF_CPL_MASK ? RETIRE_USR : RETIRE_OS;
}

static inline RetireTold *retire_told(CPUX86State *env)
{
    return &env_archcpu(env)->retire_told;
}

#define RETIRE_FOREACH_TOLD(env, o) \
    for (const RetireObserver **(o) = retire_told(env)->observer; *(o); (o)++)

/*
 * Properties that are numbers, with their defaults, and the ranges of what else
 * they may be set to.  They are the class's, and have no default that would be
 * set by a visitor, because each thread of a program is a CPU.
 */
typedef struct RetireProperty {
    Property prop;
    uint32_t min, max;
} RetireProperty;

#define RETIRE_PROPERTY(name, field, value, min, max)                   \
    { DEFINE_PROP_UINT32(name, X86CPU, field, value), min, max }

/* Each CPU gets the defaults of those when it is made, and they are checked. */
void retire_add_properties(ObjectClass *oc, const RetireProperty *p, int n);

/* Any other property of the class: who makes the CPU sets its default. */
void retire_add_property(ObjectClass *oc, const Property *prop);

/*
 * Guests take it that all CPUs have what the first one has, and CPUs share
 * caches and TBs: false if @what, which is all of @config, is not the same.
 */
bool retire_same_for_all(const void *config, size_t size, void **common,
                         const char *what, Error **errp);

/* The account's own; realize() is to be called before observers are added. */
void retire_class_init(ObjectClass *oc);
void retire_cpu_init(X86CPU *cpu);
bool retire_cpu_realize(X86CPU *cpu, Error **errp);

/* That of retire-test.c, and its observer. */
void retire_test_class_init(ObjectClass *oc);
void retire_test_realize(X86CPU *cpu);

/*
 * Tell @observer what retires; it has to have caches if @caches.  Who may raise
 * an exception is to be added first.
 */
void retire_add_observer(X86CPU *cpu, const RetireObserver *observer,
                         bool caches);

/*
 * The models of caches, TLBs and branches: what the account has to tell them.
 * Without any, RETIRE_WANT_OF_MODELS is not heard.
 */
typedef struct RetireModelsOps {
    /* @cpu gets its first observer. */
    void (*add)(X86CPU *cpu);
    /* They start afresh. */
    void (*flush)(X86CPU *cpu);
    /* Whether branches are predicted */
    bool (*predicts)(X86CPU *cpu);
    /* Who wants what, or the mapping, may have changed. */
    void (*update)(CPUX86State *env, RetireWants wants);
    /* What has been counted in RetireState.row; from then on it has been. */
    void (*take)(CPUX86State *env, uint64_t n[RETIRE_NR_MEMORY]);
    /* The instruction at effective address @ip begins. */
    void (*begin)(CPUX86State *env, uint64_t ip);
    /*
     * A TB is left at the one at EIP, whose insn_start has @data.  @clock was
     * retire_cpu_clock() before what does not retire was given back.
     */
    void (*leave)(CPUX86State *env, uint64_t data, uint64_t clock);
    /*
     * A helper is about to access [@addr, @addr + @size) on behalf of the
     * current instruction, with the privilege of the program.  Does not return
     * if that has to be executed again.
     */
    void (*access)(CPUX86State *env, vaddr addr, unsigned size,
                   MMUAccessType type, uintptr_t ra);
    /* What they know of an instruction that is observed, see there for @desc */
    void (*tell)(CPUX86State *env, RetireStory *story, uint32_t desc);
    /* An exception or interrupt has been delivered, which came at @ip. */
    void (*delivered)(CPUX86State *env, uint64_t ip);
} RetireModelsOps;

extern const RetireModelsOps *retire_models_ops;    /* or NULL */

static inline void retire_cpu_flush(X86CPU *cpu)
{
    if (retire_models_ops) {
        retire_models_ops->flush(cpu);
    }
}

/* Report what has retired; or only RetireTotals.misses, in mid-TB. */
void retire_cpu_settle(CPUX86State *env);
void retire_cpu_settle_misses(CPUX86State *env);

/* Ask all who are told how far it is, and make that the budget. */
RetireDistance retire_cpu_arm(CPUX86State *env);

/* The instruction at EIP is next: RetireObserver.begin. */
void retire_cpu_begin(CPUX86State *env);

/* Let @n more instructions retire, or as many as icount has. */
void retire_set_budget(CPUX86State *env, int64_t n);

static inline uint16_t retire_budget(CPUX86State *env)
{
    return env_cpu(env)->neg.icount_decr.u16.low;
}

/*
 * What TBs take their instructions off: the budget and, with icount, the rest
 * of what icount has.
 */
static inline int64_t retire_left(CPUX86State *env)
{
    return retire_budget(env) + env_cpu(env)->icount_extra;
}

/* retire_clock() */
static inline uint64_t retire_cpu_clock(CPUX86State *env)
{
    return retire_clock(&env->retire, retire_left(env));
}

/* An exception or interrupt is about to be delivered. */
static inline void retire_settle(CPUX86State *env)
{
    if (unlikely(env->retire_flags)) {
        cpu_sync_retire(env);
    }
}

/*
 * cpu_exec() is entered, or left: outside, the budget is nobody's, and memory
 * may be mapped elsewhere.
 */
void retire_cpu_enter(CPUX86State *env);
void retire_cpu_exit(CPUX86State *env);

/* All has been reported; since then somebody else has written the budget. */
void retire_cpu_restart(CPUX86State *env);

#ifdef CONFIG_TCG
/* Operand descriptor of helper_retire_observe(): an X86Retire, and these. */
#define RETIRE_DESC_TAKEN       (1u << 16)
#define RETIRE_DESC_TF          (1u << 17)  /* EFLAGS.TF, as in hflags */
#define RETIRE_DESC_USR         (1u << 18)  /* RETIRE_USR */
#define RETIRE_DESC_STORY       (1u << 19)  /* its TB has its accesses */
#define RETIRE_DESC_OBSERVERS_SHIFT 20      /* retire_tb_observers() */
#define RETIRE_DESC_LENGTH_SHIFT    26      /* in bytes */

/* A member of TCGCPUOps: the budget has not as many as @tb has instructions. */
void retire_tb_expired(CPUState *cs, const TranslationBlock *tb);

/*
 * Leave a TB at the instruction that @ra belongs to, and execute that in a TB
 * of its own, observed: with CF_MEMI_ONLY in @cflags if plugins have seen it
 * begin.
 */
G_NORETURN void retire_restart(CPUX86State *env, uintptr_t ra, uint32_t cflags);

/*
 * Beside cc_op, each insn_start has what the TB has charged too much if this
 * instruction does not retire, and whether icount has one more than that,
 * because the TB has not charged its last instruction; bits 63:32 are the
 * models'.
 */
#define RETIRE_INSN_START(insns, last) ((insns) << 8 | (last) << 24)
#define RETIRE_INSN_START_CC_OP(data) ((data) & 0xff)
#define RETIRE_INSN_START_INSNS(data) ((data) >> 8 & 0xffff)
#define RETIRE_INSN_START_LAST(data) ((data) >> 24 & 1)
/* What makes an effective address of code a linear one, see there: */
static inline uint32_t retire_cs_base(CPUX86State *env)
{
    return env->hflags & HF_CS64_MASK ? 0 : env->segs[R_CS].base;
}

static inline uint64_t retire_linear(uint64_t ip, uint32_t cs_base)
{
    return cs_base ? (uint32_t)(ip + cs_base) : ip;
}

#ifndef CONFIG_USER_ONLY
/*
 * What has retired interrupts: have @func deliver it to @cs, whose thread this
 * is, with the BQL.
 */
static inline void retire_deliver(CPUState *cs, run_on_cpu_func func,
                                  run_on_cpu_data data)
{
    if (icount_enabled()) {
        /* This may be the middle of a TB; it is done behind it. */
        async_run_on_cpu(cs, func, data);
    } else {
        BQL_LOCK_GUARD();
        func(cs, data);
    }
}
#endif

/* A TB with @flags is left at the instruction whose insn_start has @data. */
static inline void retire_restore_state(CPUX86State *env, uint64_t flags,
                                        uint64_t data)
{
    RetireState *r = &env->retire;
    uint32_t insns = RETIRE_INSN_START_INSNS(data);
    uint64_t clock;

    if (!retire_tb_observers(flags)) {
        /* It has charged nothing, even if it has begun something. */
        r->armed = retire_left(env);
    } else if (icount_enabled()) {
        /* cpu_restore_state_from_tb() has given them back to the budget. */
        r->armed += insns + RETIRE_INSN_START_LAST(data);
    }
    clock = retire_cpu_clock(env);
    retire_give_back(r, insns, env->eip);
    tcg_debug_assert(!env->retire_flags || r->armed >= retire_left(env));
    if (retire_models_ops) {
        retire_models_ops->leave(env, data, clock);
    }
}

/* RetireModelsOps.access, if anybody wants to know of it; returns @addr. */
static inline vaddr retire_access(CPUX86State *env, vaddr addr, unsigned size,
                                  MMUAccessType type, uintptr_t ra)
{
    if (unlikely(retire_wants(env, RETIRE_WANT_ACCESSES |
                                   RETIRE_WANT_SOURCES | RETIRE_WANT_STORY))) {
        retire_models_ops->access(env, addr, size, type, ra);
    }
    return addr;
}

/* An instruction at CPL 0 has retired; no TB has charged it. */
void retire_one(CPUX86State *env);

/*
 * An exception or interrupt @vector has been delivered, which came at effective
 * address @ip in @row; or RETIRE_VECTOR_INT, and INT n, INT3 or INTO has
 * retired.
 */
#define RETIRE_VECTOR_INT   (-1)

void retire_delivered(CPUX86State *env, RetireRow row, uint64_t ip, int vector);
#endif

#endif
