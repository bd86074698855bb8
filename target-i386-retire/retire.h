/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: what the rest of target/i386 calls, and what a consumer is. */

#ifndef I386_RETIRE_H
#define I386_RETIRE_H

#include "cpu.h"
#include "exec/translation-block.h"
#include "tcg/debug-assert.h"
#include "tcg/mem-filter.h"

/*
 * Who wants to know what retires.  These run on the CPU's own thread; @env has
 * its state between two instructions, unless said otherwise.
 */
typedef struct RetireConsumer {
    /* What it wants to know where @env is; @loads: misses of L1D, too. */
    RetireMode (*mode)(CPUX86State *env, bool *loads);
    /* In how many instructions, at least; up to the longest fuse there is. */
    uint32_t (*distance)(CPUX86State *env);
    /* So many misses like any other, with L2 as their source, need no call. */
    uint32_t (*misses)(CPUX86State *env);
    /* @n has retired; perhaps in the middle of a block. */
    void (*count)(CPUX86State *env, const RetireCount *n);
    /* The same for misses alone, in the middle of a block. */
    void (*count_misses)(CPUX86State *env, uint32_t n);
    /* @n has retired, @block is next.  May raise an exception. */
    RetirePlan (*trip)(CPUX86State *env, const RetireBlock *block,
                       const RetireCount *n);
    /* Mode RETIRE_BOUNDARY: the instruction at @ip is next; as trip(). */
    void (*boundary)(CPUX86State *env, uint64_t ip, uintptr_t ra);
    /* @insn has retired.  With @trap a debug trap is going to be raised. */
    void (*retired)(CPUX86State *env, const RetireInsn *insn, bool trap);
    /*
     * In the middle of a block, when @ahead instructions have been counted that
     * have not been reported, or UINT32_MAX if the consumer has something
     * to find in that block: whether @miss, or the worst there is if that is
     * NULL, makes it necessary to run the instruction again with retired()
     * behind it.
     */
    bool (*miss_due)(CPUX86State *env, uint32_t ahead, const RetireMiss *miss);
    /*
     * A load misses; returns true if distance() may have changed, and sets
     * *@boundary if it wants boundary() to be called.
     */
    bool (*miss)(CPUX86State *env, const RetireMiss *miss, bool *boundary);
    /*
     * @n has retired, perhaps less than what trip() has let run: an exception
     * or interrupt is about to be delivered, or somebody looks.
     */
    void (*settle)(CPUX86State *env, const RetireCount *n);
    /* The CPU leaves its loop or its address space: memory may not be there. */
    void (*leave)(CPUX86State *env);
} RetireConsumer;

/* How much there is to count in a row; each includes the one before. */
typedef enum RetireDetail {
    RETIRE_NOTHING,
    RETIRE_NO_BRANCHES,     /* instructions */
    RETIRE_ALL_BRANCHES,    /* near ones are all RETIRE_JMP */
    RETIRE_EACH_CLASS,
    RETIRE_PREDICTIONS,
} RetireDetail;

/* The same for memory accesses. */
typedef enum RetireAccesses {
    RETIRE_NO_ACCESSES,
    RETIRE_ALL_ACCESSES,    /* up to RETIRE_LOCKED */
    RETIRE_EACH_SOURCE,
} RetireAccesses;

/*
 * Who counts by row; there may be one beside the consumer, which does not know.
 * These run on the CPU's own thread.
 */
typedef struct RetireCounters {
    RetireDetail (*wanted)(CPUX86State *env, RetireRow row,
                           RetireAccesses *accesses);
    /*
     * So many instructions may retire in @row before sync() has to be called
     * behind one of them; and so many branches, in *@branches.
     */
    uint32_t (*distance)(CPUX86State *env, RetireRow row, uint32_t *branches);
    /*
     * @insns have retired in @row, and @branches of each RetireClass; @memory,
     * which may be NULL, is what there was of each RetireMemory.  Of a REP,
     * that may come before its instruction.
     */
    void (*count)(CPUX86State *env, RetireRow row, uint32_t insns,
                  const uint64_t *branches, const uint64_t *memory);
    /* @env has its state between two instructions. */
    void (*sync)(CPUX86State *env);
} RetireCounters;

/*
 * The flags of translation blocks that hflags has no room for are in bits 63:32
 * of cs_base, see cpu_get_tb_cpu_state().  They follow from the rest of the
 * state and are not migrated.
 */
#define RETIRE_TB_MODE_SHIFT    32
#define RETIRE_TB_MODE_MASK     (7ull << RETIRE_TB_MODE_SHIFT)
#define RETIRE_TB_LOADS         (1ull << 35)    /* misses of L1D count */
#define RETIRE_TB_ROWS          (1ull << 36)    /* somebody counts by row */
#define RETIRE_TB_CLASSES       (1ull << 37)    /* and branches by class */
#define RETIRE_TB_TOLD          (1ull << 38)    /* and the consumer is told */
#define RETIRE_TB_PREDICTS      (1ull << 39)    /* and branches predicted */
#define RETIRE_TB_SUMS          (1ull << 40)    /* or their sum matters */
#define RETIRE_TB_ACCESSES      (1ull << 41)    /* so do memory accesses, */
#define RETIRE_TB_CACHES        (1ull << 42)    /* and where the lines are */
#define RETIRE_TB_LEARNS        (1ull << 43)    /* branches train a predictor */

static inline RetireMode retire_tb_mode(uint64_t flags)
{
    return (flags & RETIRE_TB_MODE_MASK) >> RETIRE_TB_MODE_SHIFT;
}

/* When a CPU is made: the properties of the models. */
void retire_cpu_init(X86CPU *cpu);

/*
 * Make @consumer, which may be NULL, the one to be told; @loads if it may ask
 * for misses.  Fails if a property of the models is out of range.
 */
bool retire_cpu_realize(X86CPU *cpu, const RetireConsumer *consumer, bool loads,
                        Error **errp);
void retire_cpu_unrealize(X86CPU *cpu);

/*
 * Have @counters count by row, after retire_cpu_realize().  The caches will be
 * those that CPUID shows, or of family 15h if that is called.
 */
void retire_cpu_realize_rows(X86CPU *cpu, const RetireCounters *counters);
void retire_cpu_family_15h(X86CPU *cpu);

/*
 * When all of the above is done and CPUID has its caches: choose their
 * geometry, and make sure that there can be some.
 */
bool retire_cpu_realize_caches(X86CPU *cpu, Error **errp);

/* The models of caches and branches start afresh. */
void retire_cpu_flush(X86CPU *cpu);

/* Whether a CPU of this machine has caches, or may have some later. */
bool retire_has_caches(void);
/* Its caches and L3 are empty; and a physical line is in no CPU's. */
void retire_cpu_flush_caches(X86CPU *cpu);
void retire_flush_line(uint64_t line);

/* Set the mode until the next cpu_sync_retire(). */
void retire_cpu_set_mode(CPUX86State *env, RetireMode mode, bool loads);

/* Report what has retired, from anywhere. */
void retire_cpu_count(CPUX86State *env);

/* Operand descriptor of helper_retire(). */
#define RETIRE_DESC_BRANCH      7u          /* RetireBranch */
#define RETIRE_DESC_TAKEN       (1u << 3)
#define RETIRE_DESC_TF          (1u << 4)   /* EFLAGS.TF, as in hflags */
#define RETIRE_DESC_USR         (1u << 5)   /* RETIRE_USR; retire_row() only */
#define RETIRE_DESC_TOLD        (1u << 6)   /* so is the consumer; the same */
#define RETIRE_DESC_LENGTH_SHIFT 8          /* of a branch, in bytes */

/* What helper_retire() and its like are called for; EIP is what runs next. */
static inline RetireInsn retire_insn(CPUX86State *env, uint64_t ip,
                                     uint32_t desc)
{
    return (RetireInsn) {
        .ip = ip,
        .next = ip + (desc >> RETIRE_DESC_LENGTH_SHIFT),
        .target = env->eip,
        .branch = desc & RETIRE_DESC_BRANCH,
        .taken = desc & RETIRE_DESC_TAKEN,
    };
}

/*
 * Operand descriptor of helper_retire_trip(): RETIRE_DESC_BRANCH, the number of
 * instructions that count from RETIRE_DESC_INSNS_SHIFT on, and these.
 */
#define RETIRE_DESC_DIVIDED     (1u << 3)   /* the range divides the block */
#define RETIRE_DESC_LATE        (1u << 4)   /* it ends with one counted late */
#define RETIRE_DESC_INSNS_SHIFT 8

/*
 * Descriptor of an access: TCG_MEM_FILTER_LIMIT has RETIRE_LINE_SIZE less its
 * size, and this.
 */
#define RETIRE_ACCESS_STORE     TCG_MEM_FILTER_STORE
#define RETIRE_ACCESS_LOAD      (1u << 9)
#define RETIRE_ACCESS_LATE      (1u << 10)  /* it may be counted late */
#define RETIRE_ACCESS_MMU_IDX_SHIFT 11      /* 5 bits */
#define RETIRE_ACCESS_OFFSET_SHIFT 16       /* if counted by row: its address */

static inline int retire_access_mmu_idx(uint32_t desc)
{
    return desc >> RETIRE_ACCESS_MMU_IDX_SHIFT & 31;
}

/* TCGMemFilter.miss: the filter does not know that it changes nothing. */
void retire_filter_miss(CPUX86State *env, uint64_t addr, uint32_t desc,
                        uintptr_t ra);

/* Report what has retired, where the consumer can access guest memory. */
void retire_cpu_settle(CPUX86State *env);

/* CR3 has changed in a mode where somebody counts. */
void retire_leave(CPUX86State *env);

/* An exception or interrupt is about to be delivered. */
static inline void retire_settle(CPUX86State *env)
{
    if (unlikely(env->retire_flags)) {
        retire_cpu_settle(env);
    }
}

#ifdef CONFIG_TCG
/*
 * Whether a block leaves for QEMU's main loop, as for an exit request, if the
 * fuse is too short for it: where nobody asks what in it is the last to count.
 */
static inline bool retire_tb_leaves(uint64_t flags, uint32_t cflags)
{
    return (flags & (RETIRE_TB_ROWS | RETIRE_TB_TOLD)) == RETIRE_TB_ROWS &&
           retire_tb_mode(flags) != RETIRE_STEP &&
           !(cflags & (CF_USE_ICOUNT | CF_SINGLE_STEP | CF_NOIRQ));
}

/*
 * Beside cc_op, each insn_start of a block that counts has what the block has
 * counted too much if this instruction does not retire: instructions and the
 * branch, and loads, stores and locked loads of RetireState.memory.  With
 * RETIRE_INSN_START_REPEATS, it is a REP that counts its own.
 */
#define RETIRE_INSN_START(insns, branch) ((insns) << 8 | (branch) << 24)
#define RETIRE_INSN_START_CC_OP(data) ((data) & 0xff)
#define RETIRE_INSN_START_INSNS(data) ((data) >> 8 & 0xffff)
#define RETIRE_INSN_START_BRANCH(data) ((data) >> 24 & 0xff)
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

static inline RetireRow retire_row(CPUX86State *env)
{
    return env->hflags & HF_CPL_MASK ? RETIRE_USR : RETIRE_OS;
}

/*
 * A block is left at the instruction whose insn_start has @data.  Harmless if
 * it is done again before another block runs.
 */
static inline void retire_restore_state(CPUX86State *env, uint64_t data)
{
    RetireState *r = &env->retire;

    if (unlikely(r->open.valid)) {
        retire_unnote(r, env->eip);
    }
    if (data >> 32) {
        retire_unretire_memory(r, retire_row(env),
                               retire_insn_start_to_memory(data),
                               data & RETIRE_INSN_START_REPEATS);
    }
    if (RETIRE_INSN_START_INSNS(data)) {
        retire_unretire(r, RETIRE_INSN_START_INSNS(data),
                        RETIRE_INSN_START_BRANCH(data), env->eip);
        tcg_debug_assert(r->armed - r->fuse >= 0);
    }
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
    if (unlikely(env->retire_flags &
                 (RETIRE_TB_LOADS | RETIRE_TB_ACCESSES))) {
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

/* The TLB has forgotten a page: what the filter knows may be elsewhere. */
static inline void retire_page_flushed(CPUX86State *env)
{
    env->retire_filter.mapping = 0;
}

/*
 * An instruction that began in @row has retired that translated code does not
 * count; @branch if it is a far one.
 */
void retire_cpu_one(CPUX86State *env, RetireRow row, bool branch);

static inline void retire_one(CPUX86State *env, RetireRow row, bool branch)
{
    if (unlikely(env_archcpu(env)->retire_counters)) {
        retire_cpu_one(env, row, branch);
    }
}

/*
 * A block of @insns instructions that is counted by row wants to run, and what
 * has retired has been reported.  If it may not run, of how many of them
 * helper_retire_row() has to be told of the last one; or else 0.
 */
uint32_t retire_rows_step(CPUX86State *env, uint32_t insns);

/*
 * A REP whose accesses are counted by row begins again: @alone after a single
 * iteration, which has been reported.
 */
void retire_rows_repeat(CPUX86State *env, bool alone);

/* TCGCPUOps.cpu_exec_exit, tb_left and exit_requested (10.0: CPUClass's) */
void retire_exec_exit(CPUX86State *env);
bool retire_tb_left(CPUState *cs, const TranslationBlock *tb);
void retire_exit_requested(CPUState *cs);
#endif

#endif
