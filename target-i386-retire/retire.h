/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: what the rest of target/i386 calls, and what an observer is. */

#ifndef I386_RETIRE_H
#define I386_RETIRE_H

#include "cpu.h"
#include "exec/translation-block.h"
#include "tcg/debug-assert.h"
#include "compat.h"

/*
 * Who wants to know what retires: LWP, performance counters.  These run on the
 * CPU's own thread; all from taken() on may be NULL.
 */
typedef struct RetireObserver {
    /* What it wants to know in @row, where @env is. */
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
     * What has retired, with the branch, can be reported, unless @observed:
     * then it is going to be.
     */
    void (*taken)(CPUX86State *env, uint64_t from, uint64_t to,
                  bool mispredicted, bool observed);
    /*
     * An exception or interrupt @vector has been delivered, which came at
     * effective address @ip in @row.  EIP is that of the handler.
     */
    void (*delivered)(CPUX86State *env, RetireRow row, uint64_t ip, int vector);
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
 * not migrated.  Bits 63:56 are free.
 */
#define RETIRE_TB_WANTS_SHIFT       32
#define RETIRE_TB_OBSERVERS_SHIFT   51

static inline RetireWants retire_tb_wants(uint64_t flags)
{
    return flags >> RETIRE_TB_WANTS_SHIFT & RETIRE_WANT_OF_TBS;
}

/* A bit for each of X86CPU.retire_observer[], the last of which is bit 0 */
static inline unsigned retire_tb_observers(uint64_t flags)
{
    return flags >> RETIRE_TB_OBSERVERS_SHIFT & RETIRE_ALL_OBSERVERS;
}

static inline bool retire_wants(const CPUX86State *env, RetireWants wants)
{
    return retire_tb_wants(env->retire_flags) & wants;
}

static inline RetireRow retire_row(CPUX86State *env)
{
    return env->hflags & HF_CPL_MASK ? RETIRE_USR : RETIRE_OS;
}

/* NULL as long as the CPU has no observer */
static inline RetireModels *retire_models(CPUX86State *env)
{
    return env_archcpu(env)->retire_models;
}

#define RETIRE_FOREACH_TOLD(env, o) \
    for (const RetireObserver **(o) = retire_models(env)->told; *(o); (o)++)

/* A processor's TLB forgets its pages, or only those that are not @global. */
static inline void retire_tlb_flushed(CPUX86State *env, bool global)
{
    RetireModels *models = retire_models(env);

    if (unlikely(models && models->tlb.used)) {
        retire_tlb_flush(&models->tlb, global);
    }
}

/*
 * All of the TLB has been flushed, and this is not the end of an instruction,
 * behind which cpu_sync_retire() sees that.
 */
static inline void retire_mapping_changed(CPUX86State *env)
{
    RetireModels *models = retire_models(env);

    if (models && qemu_cpu_is_self(env_cpu(env))) {
        retire_filter_clear(&models->filter);
    }
}

/*
 * The properties of the models, and that of retire-test.c.  They are the
 * class's, and have no default that would be set by a visitor, because each
 * thread of a program is a CPU.
 */
void retire_class_init(ObjectClass *oc);
void retire_test_class_init(ObjectClass *oc);

/* Such a property: who makes the CPU sets its default. */
void retire_class_add_property(ObjectClass *oc, const Property *prop);

/* When a CPU is made: the defaults of the models' properties. */
void retire_cpu_init(X86CPU *cpu);

/* Check these properties; to be called before there are observers. */
bool retire_cpu_realize(X86CPU *cpu, Error **errp);
void retire_cpu_unrealize(X86CPU *cpu);

/*
 * Tell @observer what retires; it has to have caches if @caches.  Who may raise
 * an exception is to be added first.
 */
void retire_add_observer(X86CPU *cpu, const RetireObserver *observer,
                         bool caches);

/* When all observers are there, and CPUID has its caches: make the caches. */
bool retire_cpu_realize_caches(X86CPU *cpu, Error **errp);
void retire_test_realize(X86CPU *cpu);  /* and its observer, before that */

/* What all CPUs share; NULL if there are no caches. */
extern RetireUncore *retire_uncore;

/* The models of caches and branches start afresh. */
void retire_cpu_flush(X86CPU *cpu);

/* Report what has retired; or only RetireTotals.misses, in mid-TB. */
void retire_cpu_settle(CPUX86State *env);
void retire_cpu_settle_misses(CPUX86State *env);

/* Ask all who are told how far it is, and make that the budget. */
RetireDistance retire_cpu_arm(CPUX86State *env);

/* The instruction at EIP is next: RetireObserver.begin. */
void retire_cpu_begin(CPUX86State *env);

/*
 * Caches and TLBs are going to be asked, as far as @wants says; the mapping may
 * have changed.
 */
void retire_cpu_use_caches(CPUX86State *env, RetireWants wants);

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
#define RETIRE_DESC_LENGTH_SHIFT    25      /* in bytes */

/* A member of TCGCPUOps: the budget has not as many as @tb has instructions. */
void retire_tb_expired(CPUState *cs, const TranslationBlock *tb);

/*
 * Leave a TB at the instruction that @ra belongs to, and execute that in a TB
 * of its own, observed: with CF_MEMI_ONLY in @cflags if plugins have seen it
 * begin.
 */
G_NORETURN void retire_restart(CPUX86State *env, uintptr_t ra, uint32_t cflags);

/* It is empty if there has been a flush. */
RetireCode *retire_code(CPUX86State *env);

/*
 * Descriptor of an access: RETIRE_ACCESS_LIMIT has RETIRE_LINE_SIZE less its
 * size, and this.
 */
#define RETIRE_ACCESS_LIMIT     0x7fu
#define RETIRE_ACCESS_STORE     (1u << 7)
#define RETIRE_ACCESS_LOAD      (1u << 9)
#define RETIRE_ACCESS_OBSERVED  (1u << 10)  /* its instruction is */
#define RETIRE_ACCESS_MMU_IDX_SHIFT 11      /* 5 bits */
#define RETIRE_ACCESS_OFFSET_SHIFT 16       /* if counted: its address */
#define RETIRE_ACCESS_LOCKED    (1u << 28)  /* for its story */

/* Called if the filter does not know that an access changes nothing. */
void retire_filter_miss(CPUX86State *env, uint64_t addr, uint32_t desc,
                        uintptr_t ra);

/*
 * Beside cc_op, each insn_start has what the TB has charged too much if this
 * instruction does not retire; whether icount has one more than that, because
 * the TB has not charged its last instruction; and loads, stores and locked
 * loads, unless it is a REP that counts its own.
 */
#define RETIRE_INSN_START(insns, last) ((insns) << 8 | (last) << 24)
#define RETIRE_INSN_START_CC_OP(data) ((data) & 0xff)
#define RETIRE_INSN_START_INSNS(data) ((data) >> 8 & 0xffff)
#define RETIRE_INSN_START_LAST(data) ((data) >> 24 & 1)
#define RETIRE_INSN_START_REPEATS   (1ull << 63)

static inline uint64_t retire_insn_start_memory(uint64_t n)
{
    return (n & 0xfff) << 32 | (n >> 24 & 0xfff) << 44 | (n >> 48 & 0x7f) << 56;
}

static inline uint64_t retire_insn_start_to_memory(uint64_t data)
{
    return (data >> 32 & 0xfff) * RETIRE_MEMORY_LOAD +
           (data >> 44 & 0xfff) * RETIRE_MEMORY_STORE +
           (data >> 56 & 0x7f) * RETIRE_MEMORY_LOCKED;
}

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
void retire_deliver(CPUState *cs, run_on_cpu_func func, run_on_cpu_data data);
#endif

/* A TB with @flags is left at the instruction whose insn_start has @data. */
static inline void retire_restore_state(CPUX86State *env, uint64_t flags,
                                        uint64_t data)
{
    RetireState *r = &env->retire;
    uint32_t insns = RETIRE_INSN_START_INSNS(data);

    if (!retire_tb_observers(flags)) {
        /* It has charged nothing, even if it has begun something. */
        r->armed = retire_left(env);
    } else if (icount_enabled()) {
        /* cpu_restore_state_from_tb() has given them back to the budget. */
        r->armed += insns + RETIRE_INSN_START_LAST(data);
    }
    retire_unnote(&r->memory, retire_cpu_clock(env), env->eip);
    if (data >> 32) {
        retire_give_back_memory(&r->memory, retire_row(env),
                                retire_insn_start_to_memory(data),
                                data & RETIRE_INSN_START_REPEATS);
    }
    retire_give_back(r, insns, env->eip);
    tcg_debug_assert(!env->retire_flags || r->armed >= retire_left(env));
    retire_leave(&r->memory, retire_cpu_clock(env), env->eip,
                 retire_wants(env, RETIRE_WANT_STORY) && !insns ?
                 retire_models(env)->accesses.nr : 0);
}

/*
 * A helper is about to access [@addr, @addr + @size) on behalf of the current
 * instruction, with the privilege of the program.  Does not return if that has
 * to be executed again.
 */
void retire_cpu_access(CPUX86State *env, vaddr addr, unsigned size,
                       MMUAccessType type, uintptr_t ra);

static inline void retire_access(CPUX86State *env, vaddr addr, unsigned size,
                                 MMUAccessType type, uintptr_t ra)
{
    if (unlikely(retire_wants(env, RETIRE_WANT_ACCESSES |
                                   RETIRE_WANT_SOURCES | RETIRE_WANT_STORY))) {
        retire_cpu_access(env, addr, size, type, ra);
    }
}

/* That and the access, for what pops at the privilege of @mmu_idx */
uint16_t retire_lduw_mmuidx(CPUX86State *env, vaddr addr, int mmu_idx,
                            uintptr_t ra);
uint32_t retire_ldl_mmuidx(CPUX86State *env, vaddr addr, int mmu_idx,
                           uintptr_t ra);
uint64_t retire_ldq_mmuidx(CPUX86State *env, vaddr addr, int mmu_idx,
                           uintptr_t ra);

/* INVLPG: what the filter knows may be elsewhere. */
static inline void retire_page_flushed(CPUX86State *env, uint64_t addr)
{
    RetireModels *models = retire_models(env);

    if (models) {
        models->filter.mapping = 0;
        retire_tlb_flush_page(&models->tlb, addr);
    }
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
