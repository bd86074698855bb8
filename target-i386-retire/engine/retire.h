/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What retires: the account that translated code keeps of it, for somebody who
 * counts ("the consumer").  Nothing here knows who that is, nor QEMU.
 */
#ifndef RETIRE_H
#define RETIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "cache.h"
#include "predictor.h"

/* Whose instructions they are. */
typedef enum RetireRow {
    RETIRE_OS,              /* CPL 0, real mode */
    RETIRE_USR,             /* CPL 1 to 3, virtual-8086 mode */
    RETIRE_NR_ROWS
} RetireRow;

/* Branches, by what they do; each is in one of the classes up to RETIRE_FAR. */
typedef enum RetireClass {
    RETIRE_COND_TAKEN,      /* Jcc, JCXZ, LOOPcc */
    RETIRE_COND_NOT_TAKEN,
    RETIRE_JMP,             /* near, direct */
    RETIRE_JMP_IND,         /* near, through a register or memory */
    RETIRE_CALL,
    RETIRE_CALL_IND,
    RETIRE_RET,             /* near */
    RETIRE_FAR,             /* all others, kernel entries included */
    /* Those of the above that were predicted wrongly */
    RETIRE_MISP_COND_TAKEN,
    RETIRE_MISP_COND_NOT_TAKEN,
    RETIRE_MISP_JMP_IND,
    RETIRE_MISP_CALL_IND,
    RETIRE_MISP_RET,
    RETIRE_NR_CLASSES
} RetireClass;

/*
 * What becomes of memory accesses.  A read-modify-write is a load and a store,
 * and each iteration of a REP counts; a load that misses more than one line
 * counts where the first of them was.
 */
typedef enum RetireMemory {
    RETIRE_LOADS,
    RETIRE_STORES,
    RETIRE_LOCKED,          /* loads with LOCK, said or implied */
    RETIRE_SPLIT_LOADS,     /* they straddle two lines */
    RETIRE_SPLIT_STORES,
    RETIRE_LOAD_L2,         /* loads that L1D does not have, by source */
    RETIRE_LOAD_L3,
    RETIRE_LOAD_REMOTE,
    RETIRE_LOAD_DRAM,
    RETIRE_LOAD_OTHER,
    RETIRE_FILL_L2,         /* lines that L1D gets for loads and stores */
    RETIRE_FILL_FAR,        /* the same from behind L2 */
    RETIRE_NR_MEMORY
} RetireMemory;

/*
 * The first three are in one word, RetireState.memory.  A block adds all that
 * its instructions do when it starts, and whoever leaves it early gives back
 * what has not retired.  No fuse lasts for more than 16000 instructions of up
 * to 128 accesses each (ENTER has the most).
 */
#define RETIRE_MEMORY_LOAD      1ull
#define RETIRE_MEMORY_STORE     (1ull << 24)
#define RETIRE_MEMORY_LOCKED    (1ull << 48)
#define RETIRE_MEMORY_NEVER     UINT64_MAX      /* no word is that */

/* An access straddles two lines, which both may be new, 32 times in a REP. */
#define RETIRE_REP_MAX          31      /* one less than iterations */

/* What clocks and caches there are; the same for all processors. */
typedef struct RetireConfig {
    uint32_t insn_clocks;   /* CPU clocks that an instruction takes */
    uint32_t refclk_ratio;  /* reference clocks in RETIRE_REFCLK_UNIT of them */
    uint32_t latency[RETIRE_NR_SOURCES];    /* of a miss, CPU clocks */
    uint32_t latency_worst; /* of a load in two lines */
    RetireGeometry cache[RETIRE_NR_LEVELS];
    bool has_caches;        /* somebody may want them */
} RetireConfig;

#define RETIRE_REFCLK_UNIT      1000
#define RETIRE_INSN_CLOCKS_MAX  1000
#define RETIRE_REFCLK_RATIO_MAX 10000
#define RETIRE_LATENCY_MAX      1000000
#define RETIRE_ASSOC_MAX        128

/* How much a consumer wants to know of the instructions that a program runs. */
typedef enum RetireMode {
    RETIRE_OFF,             /* nothing */
    RETIRE_BOUNDARY,        /* to be asked before each, and as RETIRE_STEP */
    RETIRE_STEP,            /* to be told of each, see RetireState.step */
    RETIRE_INSNS,           /* whole blocks are counted, see RetireState.fuse */
    RETIRE_BRANCHES,        /* and the branches at their ends, all classes */
    RETIRE_CLASSES,         /* or those of the classes in branch_unit[] */
    RETIRE_RANGE,           /* and only what ip_first, ip_span hold */
    RETIRE_PREDICTED,       /* the same, but to be told of each branch */
} RetireMode;

/*
 * A block of @insns instructions takes RETIRE_FUSE(insns, branch) off
 * RetireState.fuse; @branch says whether it ends in a branch that counts.
 */
#define RETIRE_FUSE(insns, branch) ((int32_t)((insns) << 16 | (branch)))
#define RETIRE_FUSE_MAX     16000   /* instructions */
#define RETIRE_BLOCK_MAX    64      /* instructions */

/* A block of translated code. */
typedef struct RetireBlock {
    uint64_t ip;            /* effective address of its first instruction */
    uint64_t lengths[RETIRE_BLOCK_MAX / 16];    /* of all, 4 bits each */
    uint32_t insns;         /* that it takes off the fuse */
    RetireBranch branch;    /* that it ends in */
    bool late;              /* it goes on with something that may look at us */
} RetireBlock;

/* The sum of 16 numbers of 4 bits; it fits in 8. */
static inline uint32_t retire_sum_nibbles(uint64_t x)
{
    const uint64_t mask = 0x0f0f0f0f0f0f0f0full;

    x = (x & mask) + (x >> 4 & mask);
    return (uint32_t)(x * 0x0101010101010101ull >> 56);
}

/* The effective address of instruction @n, counted from 0, of @block. */
static inline uint64_t retire_block_ip(const RetireBlock *block, uint32_t n)
{
    const uint64_t *lengths = block->lengths;
    uint64_t ip = block->ip;

    for (; n >= 16; n -= 16) {
        ip += retire_sum_nibbles(*lengths++);
    }
    return ip + retire_sum_nibbles(*lengths & ((1ull << 4 * n) - 1));
}

/* All zero: nobody counts. */
typedef struct RetireState {
    /*
     * While the consumer expects nothing, blocks only decrement the fuse: bits
     * 31:16 are how many more instructions it need not hear of, bits 15:0 count
     * branches.  What armed minus fuse says has not been reported yet.
     */
    int32_t fuse;
    int32_t armed;
    int32_t restored;       /* the fuse when a block was left, see below */
    /* The same for loads that L1D does not have but L2 has. */
    int32_t misses, misses_armed;
    /*
     * If @due, the consumer is to look at this block when it has run; @before
     * had been taken off the fuse when it began.
     */
    RetireBlock block;
    uint32_t before;
    bool due;
    bool foreseen;          /* this is how the next block that trips may run */
    bool learns;            /* branches train the consumer's predictor */
    /* If not 0: of so many instructions, the consumer is told of each. */
    uint32_t step;
    uint32_t branch_unit[RETIRE_NR_BRANCHES];   /* 1 if they count, else 0 */
    /* What counts is at ip_first to ip_first + ip_span, modulo 2^64. */
    uint64_t ip_first, ip_span;
    /* The rest is for somebody who counts by row. */
    bool told;              /* the consumer is told of the current row, too */
    RetireRow row;          /* of what is taken off the fuse */
    uint64_t row_flags;     /* what retire_flags has for that reason */
    /*
     * Branches that have retired and have not been reported yet, each one a
     * RETIRE_BRANCH_ONE; the fuse sees to it that they are not too many.
     */
    uint64_t branches[RETIRE_NR_ROWS][RETIRE_FAR + 1];
    /* Memory accesses: those that blocks count, */
    uint64_t memory[RETIRE_NR_ROWS];
    uint64_t memory_before; /* that of a REP's row, before its iteration */
    uint64_t memory_restored;   /* as restored */
    /* and what helpers do, who also look into the caches; */
    uint64_t noted[RETIRE_NR_ROWS][RETIRE_NR_MEMORY];
    /* of which so many belong to the instruction that is being executed. */
    struct {
        bool valid;
        uint8_t row;
        uint16_t offset;    /* its effective address in the page */
        uint32_t used;      /* the fuse, to tell it from another execution */
        uint16_t n[RETIRE_NR_MEMORY];
    } open;
} RetireState;

/* What the consumer wants of a block that has tripped the fuse. */
enum {
    /* To be told of @insns instructions; or of boundaries, if 0. */
    RETIRE_PLAN_STEP,
    /* It may run, and so may @insns instructions, its own included. */
    RETIRE_PLAN_RUN,
    /* It may run, and is in the next report (RetireCount.due). */
    RETIRE_PLAN_DUE,
};

typedef struct RetirePlan {
    uint32_t insns;
    uint8_t action;         /* RETIRE_PLAN_* */
    /*
     * With RETIRE_PLAN_RUN: the next block that trips may run as with
     * RETIRE_PLAN_DUE, unless it is late.
     */
    bool foreseen;
} RetirePlan;

/* What has retired since the last report. */
typedef struct RetireCount {
    uint32_t insns, branches, misses;
    uint32_t of_due;        /* so many of the instructions, the last ones, */
    const RetireBlock *due; /* are of this block; or NULL */
} RetireCount;

/* An instruction that has just retired, with effective addresses. */
typedef struct RetireInsn {
    uint64_t ip;
    uint64_t next;          /* what follows it in memory */
    uint64_t target;        /* what runs next */
    RetireBranch branch;
    bool taken;             /* if it is a branch */
} RetireInsn;

/* A load that misses L1D. */
typedef struct RetireMiss {
    uint64_t ip;            /* effective address of the instruction */
    uint64_t addr;          /* linear address of the first byte that misses */
    RetireSource source;    /* of that */
    uint32_t clocks;        /* latency of all that misses */
} RetireMiss;

/* Whether what is at effective address @ip counts. */
static inline bool retire_eligible(const RetireState *r, uint64_t ip)
{
    return ip - r->ip_first <= r->ip_span;
}

/* How many instructions have been taken off the fuse, but not been reported. */
static inline uint32_t retire_ahead(const RetireState *r)
{
    return (uint32_t)(r->armed - r->fuse) >> 16;
}

#define RETIRE_NEVER    INT32_MAX       /* no fuse is that long */

/* What is to be reported; from then on it has been. */
static inline RetireCount retire_take(RetireState *r)
{
    uint32_t used = r->armed - r->fuse;
    RetireCount c = {
        .insns = used >> 16,
        .branches = used & 0xffff,
        .misses = r->misses_armed - r->misses,
    };

    if (r->due) {
        c.due = &r->block;
        c.of_due = c.insns - r->before;
        r->due = false;
    }
    r->foreseen = false;
    r->armed = r->fuse;
    r->restored = RETIRE_NEVER;
    r->misses_armed = r->misses;
    return c;
}

/*
 * @run instructions, up to RETIRE_FUSE_MAX, may retire before one of them
 * matters; a branch is an instruction, so that many branches, too.  What has
 * been taken off the fuse so far stays taken.
 */
static inline void retire_arm(RetireState *r, uint32_t run)
{
    int32_t used = r->armed - r->fuse;

    r->armed = RETIRE_FUSE(run, 0xffff);
    r->fuse = r->armed - used;
    r->restored = RETIRE_NEVER;
}

/* The consumer is to look at @block, which has taken what it takes. */
static inline void retire_set_due(RetireState *r)
{
    r->before = retire_ahead(r) - r->block.insns;
    r->due = true;
    r->foreseen = false;
}

/* A block of @insns instructions that ends in @branch begins. */
static inline void retire_begin(RetireState *r, uint32_t insns,
                                RetireBranch branch)
{
    r->fuse -= RETIRE_FUSE(insns, r->branch_unit[branch]);
}

/*
 * @block begins behind a report, and @run instructions, its own included, may
 * retire before one of them matters.
 */
static inline void retire_run(RetireState *r, uint32_t run,
                              const RetireBlock *block)
{
    r->armed = r->fuse = RETIRE_FUSE(run, 0xffff);
    r->restored = RETIRE_NEVER;
    retire_begin(r, block->insns, block->branch);
}

/* The last @insns instructions of a block and its branch do not retire. */
static inline void retire_give_back(RetireState *r, uint32_t insns,
                                    RetireBranch branch)
{
    r->fuse += RETIRE_FUSE(insns, r->branch_unit[branch]);
}

/*
 * The same for a block that is left at effective address @ip.  A block has
 * taken nothing if it is not eligible, and all or nothing of it is.  Done twice
 * for one block, this has no effect: another block would have taken something.
 */
static inline void retire_unretire(RetireState *r, uint32_t insns,
                                   RetireBranch branch, uint64_t ip)
{
    if (r->fuse != r->restored && retire_eligible(r, ip)) {
        retire_give_back(r, insns, branch);
    }
    r->restored = r->fuse;
}

/* An access of the instruction at page offset @offset counts as @what. */
static inline void retire_note(RetireState *r, RetireRow row, uint32_t offset,
                               RetireMemory what)
{
    uint32_t used = r->armed - r->fuse;

    if (!r->open.valid || r->open.offset != offset || r->open.used != used) {
        memset(&r->open, 0, sizeof(r->open));
        r->open.valid = true;
        r->open.row = (uint8_t)row;
        r->open.offset = (uint16_t)offset;
        r->open.used = used;
    }
    r->open.n[what]++;
    r->noted[row][what]++;
}

/*
 * The instruction at effective address @ip does not retire: what it has noted
 * never was.  To be called before retire_unretire(), and harmless if called
 * again.
 */
static inline void retire_unnote(RetireState *r, uint64_t ip)
{
    if (r->open.valid && r->open.offset == (ip & 0xfff) &&
        r->open.used == (uint32_t)(r->armed - r->fuse)) {
        for (int i = 0; i < RETIRE_NR_MEMORY; i++) {
            r->noted[r->open.row][i] -= r->open.n[i];
        }
    }
    r->open.valid = false;
}

/*
 * The same for what a block has counted when it started: @n of its words, or,
 * with @repeats, what the current iteration of a REP has.
 */
static inline void retire_unretire_memory(RetireState *r, RetireRow row,
                                          uint64_t n, bool repeats)
{
    if (repeats) {
        r->memory[row] = r->memory_before;
    } else if (r->memory[row] != r->memory_restored) {
        r->memory[row] -= n;
    }
    r->memory_restored = r->memory[row];
}

/* What is to be reported of @row; from then on it has been. */
static inline void retire_take_memory(RetireState *r, RetireRow row,
                                      uint64_t n[RETIRE_NR_MEMORY])
{
    memcpy(n, r->noted[row], sizeof(r->noted[row]));
    n[RETIRE_LOADS] += r->memory[row] % RETIRE_MEMORY_STORE;
    n[RETIRE_STORES] += r->memory[row] % RETIRE_MEMORY_LOCKED /
                        RETIRE_MEMORY_STORE;
    n[RETIRE_LOCKED] += r->memory[row] / RETIRE_MEMORY_LOCKED;
    memset(r->noted[row], 0, sizeof(r->noted[row]));
    r->memory[row] = 0;
    r->memory_restored = RETIRE_MEMORY_NEVER;
    r->open.valid = false;
}

/* Have the next block trip the fuse, if it has one. */
static inline void retire_expire(RetireState *r)
{
    int32_t left = r->fuse & -(1 << 16);

    if (left > 0) {
        if (r->restored == r->fuse) {
            r->restored -= left;
        }
        r->fuse -= left;
        r->armed -= left;
    }
}

#endif
