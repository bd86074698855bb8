/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What retires: the account that translated code keeps of it.  Nothing here
 * knows QEMU, nor who observes.
 */
#ifndef RETIRE_H
#define RETIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "cache.h"
#include "predictor.h"
#include "tlb.h"

/* Whose instructions they are. */
typedef enum RetireRow {
    RETIRE_OS,              /* CPL 0, real mode */
    RETIRE_USR,             /* CPL 1 to 3, virtual-8086 mode */
    RETIRE_NR_ROWS
} RetireRow;

/* What branches did; each is in one of the classes up to RETIRE_FAR. */
typedef enum RetireClass {
    RETIRE_NO_BRANCH = RETIRE_BRANCH_NONE,
    RETIRE_COND_TAKEN = RETIRE_BRANCH_COND,
    RETIRE_JMP_IND = RETIRE_BRANCH_JMP_ABS,
    RETIRE_JMP = RETIRE_BRANCH_JMP,
    RETIRE_CALL_IND = RETIRE_BRANCH_CALL_ABS,
    RETIRE_CALL = RETIRE_BRANCH_CALL,
    RETIRE_RET = RETIRE_BRANCH_RET,
    RETIRE_COND_NOT_TAKEN,
    RETIRE_FAR,             /* all that are not near, kernel entries included */
    RETIRE_MISPREDICTED = RETIRE_FAR,   /* so far behind a near one's class */
    RETIRE_NR_CLASSES = RETIRE_FAR + RETIRE_MISPREDICTED
} RetireClass;

/*
 * Memory accesses.  A read-modify-write is a load and a store; a load that
 * misses more than one line counts where the first of them was.
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
    RETIRE_LOAD_MODIFIED,   /* remote, too, but has been written to there */
    RETIRE_LOAD_OTHER,
    RETIRE_FILL_L2,         /* lines that L1D gets, from L2 */
    RETIRE_FILL_FAR,        /* and from behind it */
    RETIRE_STORE_L2,        /* stores, as loads, that are not loads, too */
    RETIRE_STORE_L3,
    RETIRE_STORE_REMOTE,
    RETIRE_STORE_DRAM,
    RETIRE_STORE_MODIFIED,
    RETIRE_TLB_LOAD_L2,     /* pages that DTLB gets for loads, from STLB, */
    RETIRE_TLB_LOAD_WALK,   /* and from nowhere; */
    RETIRE_TLB_STORE_L2,    /* for stores that are no loads */
    RETIRE_TLB_STORE_WALK,
    RETIRE_STLB_MISS_LOADS, /* loads that need a walk, for one page or two */
    RETIRE_STLB_MISS_STORES,
    RETIRE_FETCHES,         /* lines of code, see retire_fetch_counts() */
    RETIRE_FETCH_MISSES,    /* that L1I does not have */
    RETIRE_TLB_FETCH_L2,    /* pages that ITLB gets */
    RETIRE_TLB_FETCH_WALK,
    RETIRE_NR_MEMORY
} RetireMemory;

/* Floating point: on what an instruction operates */
typedef enum RetireFpWidth {
    RETIRE_FP_X87,
    RETIRE_FP_SS,           /* and behind each single its double precision: */
    RETIRE_FP_PS = RETIRE_FP_SS + 2,
    RETIRE_FP_MMX = RETIRE_FP_PS + 4,   /* with RETIRE_FP_NONE */
    RETIRE_FP_NR_WIDTHS
} RetireFpWidth;

#define RETIRE_FP_256       2           /* more than RETIRE_FP_PS has */

/* And what it does; with the former, an index of RetireModels.fp. */
typedef enum RetireFpKind {
    RETIRE_FP_ADD,
    RETIRE_FP_MUL,
    RETIRE_FP_DIV,          /* and square roots */
    RETIRE_FP_MAC,
    RETIRE_FP_OTHER,
    RETIRE_FP_DP,
    RETIRE_FP_INT,          /* integers are multiplied or divided */
    RETIRE_FP_NONE,         /* none of that, in these registers */
    RETIRE_FP_NR_KINDS
} RetireFpKind;

#define RETIRE_NR_FP        (RETIRE_FP_NR_WIDTHS * RETIRE_FP_NR_KINDS)

/*
 * The first three in one word, RetireState.memory, which does not overflow: no
 * budget lasts for more than 16000 instructions, of up to 128 accesses (ENTER).
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
    RetireGeometry cache[RETIRE_NR_GEOMETRIES];
    RetireTlbConfig tlb;
    bool has_caches;        /* somebody may want them, */
    bool caches_of_cpuid;   /* and they are those that CPUID shows, */
    bool family_15h;        /* but for those, of which it shows nothing */
} RetireConfig;

/* An access of an instruction that is observed */
typedef struct RetireAccess {
    uint64_t addr;          /* linear */
    uint64_t physical;
    RetireSource source;    /* of the first line that L1D has not */
    bool modified;          /* RETIRE_SOURCE_REMOTE has written to it */
    uint32_t clocks;        /* a load's latency, if L1D has not all of it */
    uint8_t size;
    bool load, store;       /* both: a load and a store of the same bytes */
    bool locked;            /* with LOCK, said or implied */
    bool split;             /* it straddles two lines */
    RetireTlbResult tlb;    /* RETIRE_WANT_TLB: the worse one of its pages' */
    uint8_t lg_page;        /* and the size of that, 2 to the power of this */
} RetireAccess;

#define RETIRE_STORY_ACCESSES   4

/* The first ones of the current instruction, and how many it makes */
typedef struct RetireAccesses {
    uint32_t nr;
    RetireAccess access[RETIRE_STORY_ACCESSES];
} RetireAccesses;

/* RETIRE_WANT_FETCHES: what an instruction that is observed was fetched from */
typedef struct RetireFetch {
    uint64_t addr;          /* linear, or RETIRE_NO_FETCH: nothing was missed */
    bool missed;            /* L1I had not all of it */
    RetireTlbResult tlb;    /* the worse one of its pages' */
} RetireFetch;

#define RETIRE_MAX_OBSERVERS    5
#define RETIRE_ALL_OBSERVERS    ((1u << RETIRE_MAX_OBSERVERS) - 1)
#define RETIRE_NR_BLOCKS        16384

/* What is known of translated code, which has been flushed @flushes times */
typedef struct RetireCode {
    unsigned flushes;
    /* A return address, and what its instruction's insn_start has */
    uintptr_t ra;
    uint64_t start[2];
    /* RETIRE_NR_BLOCKS, by physical address and step; or NULL */
    const struct TranslationBlock **block;
} RetireCode;

/*
 * What an observer wants.  All observers' wants together are flags of
 * translation blocks: RETIRE_TB_WANTS_SHIFT.
 */
typedef enum RetireWants {
    RETIRE_WANT_CLASSES = 1 << 0,   /* branches by class */
    RETIRE_WANT_PREDICT = 1 << 1,   /* and whether they were predicted */
    RETIRE_WANT_BRANCHES = 1 << 2,  /* each near branch is observed */
    RETIRE_WANT_ACCESSES = 1 << 3,  /* loads and stores are counted */
    RETIRE_WANT_SOURCES = 1 << 4,   /* they go through the caches */
    RETIRE_WANT_RANGE = 1 << 5,     /* only what ip_first, ip_span hold */
    RETIRE_WANT_COUNT = 1 << 6,     /* instructions, which all others imply */
    RETIRE_WANT_STORY = 1 << 7,     /* of what is observed, its accesses */
    /*
     * X86CPU.branch_ring has near branches that are taken, or, as a bit for
     * each RetireBranch, some of them.  Who wants them adds far branches,
     * interrupts and exceptions, of which it is told.
     */
    RETIRE_WANT_LBR = 0x3f << 8,
    RETIRE_WANT_LBR_STACK = 1 << 14,    /* a RET takes its CALL away */
    RETIRE_WANT_LBR_CLOCK = 1 << 15,    /* and when that was */
    RETIRE_WANT_BTF = 1 << 16,      /* EFLAGS.TF is for taken branches only */
    RETIRE_WANT_TAKEN = 1 << 17,    /* one observer is told of each of them */
    RETIRE_WANT_FETCHES = 1 << 18,  /* code goes through L1I and ITLB */
    RETIRE_WANT_FP = 1 << 19,       /* floating-point instructions, by kind */
    /* What blocks do not know of: */
    RETIRE_WANT_TLB = 1 << 20,      /* SOURCES: accesses go through DTLB */
    RETIRE_WANT_LINES = 1 << 21,    /* FETCHES: and are counted */
} RetireWants;

#define RETIRE_WANT_OF_BLOCKS   0xfffff

#define RETIRE_WANT_LBR_OF(branch) (1 << (7 + (branch)))

/* What translated code looks into */
typedef struct RetireModels {
    /* Who is told, and NULL; who has been added last is told first. */
    const struct RetireObserver *told[RETIRE_MAX_OBSERVERS + 1];
    const struct RetireObserver *taken;     /* who has RETIRE_WANT_TAKEN */
    RetireWants wants;      /* of all who are told */
    RetireFilter filter;
    RetirePredictor predictor;
    RetireAccesses accesses;
    RetireFetch fetch;
    uint64_t fp[RETIRE_NR_ROWS][RETIRE_NR_FP];  /* retired, not reported yet */
    RetireTlb tlb;
    RetireCode code;
} RetireModels;

#define RETIRE_REFCLK_UNIT      1000
#define RETIRE_INSN_CLOCKS_MAX  1000
#define RETIRE_REFCLK_RATIO_MAX 10000
#define RETIRE_LATENCY_MAX      1000000
#define RETIRE_ASSOC_MAX        128

/*
 * A block of @insns instructions takes RETIRE_CHARGE(insns, branch) off
 * RetireState.budget; @branch says whether it ends in a near branch.  The
 * budget is exhausted if it has not so much.
 */
#define RETIRE_CHARGE(insns, branch) ((int32_t)((insns) * 65536 + (branch)))
#define RETIRE_BUDGET_MAX   16000   /* instructions */
#define RETIRE_BLOCK_MAX    64      /* instructions */

/* All zero: nobody counts. */
typedef struct RetireState {
    /*
     * While nobody expects anything, blocks only decrement the budget: bits
     * 31:16 are how many more instructions nobody need hear of, bits 15:0 count
     * near branches.  What armed minus budget says has not been reported yet.
     */
    int32_t budget;
    int32_t armed;
    int32_t restored;       /* the budget when a block was left, see below */
    /* The same for loads that L1D does not have but L2 has: */
    int32_t misses, misses_armed;
    int32_t miss_charge;    /* each takes this off the budget, too */
    RetireRow row;          /* of what is taken off the budget */
    uint64_t clock;         /* see retire_clock() */
    /*
     * The first instruction that the budget has not is going to be observed;
     * or else observers have to be asked where it is exhausted.
     */
    bool foreseen;
    /* What counts is at ip_first to ip_first + ip_span, modulo 2^64. */
    uint64_t ip_first, ip_span;
    /*
     * Branches that have retired and have not been reported yet, each one a
     * RETIRE_BRANCH_ONE; the budget sees to it that they are not too many.
     */
    uint64_t branches[RETIRE_FAR];
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
        uint32_t used;      /* the budget, to tell it from another execution */
        uint16_t n[RETIRE_NR_MEMORY];
    } open;
    /*
     * The instruction that has been left last: if it is executed again, open.n
     * is what it finds no more, because it has missed it already.
     */
    struct {
        uint64_t ip, clock;     /* effective address, retire_clock() */
        uint8_t nr_accesses;    /* in RetireAccesses */
        bool missed;            /* open.n has something */
    } left;
} RetireState;

/* How much may retire before an observer has to look behind an instruction. */
typedef struct RetireDistance {
    uint32_t insns;         /* instructions, */
    uint32_t branches;      /* near branches of all classes, */
    uint32_t misses;        /* and loads that L2 has and L1D has not */
    bool clocks;            /* latencies of misses count as instructions do */
    bool now;               /* it has to look before the next instruction */
    bool certain;           /* @insns will be no more */
} RetireDistance;

/* Behind @insns instructions, one has to be looked behind. */
static inline void retire_look_behind(RetireDistance *d, uint32_t insns)
{
    d->insns = d->insns < insns ? d->insns : insns;
    d->certain |= insns < RETIRE_BUDGET_MAX;
}

/* What has retired since the last report, but for what is observed. */
typedef struct RetireTotals {
    uint32_t insns;
    uint32_t branches_any;  /* near ones that are not in @branches */
    uint32_t misses;        /* of RetireDistance.misses */
    const uint64_t *branches;   /* by RetireClass, or NULL */
    const uint64_t *memory;     /* by RetireMemory, or NULL */
    const uint64_t *fp;         /* by width and kind, or NULL */
} RetireTotals;

/* An instruction that has just retired; addresses are effective. */
typedef struct RetireStory {
    uint64_t ip;
    uint64_t next;          /* what follows it in memory */
    uint64_t target;        /* what runs next */
    RetireRow row;          /* where it began */
    RetireBranch branch;    /* what it is */
    bool taken;             /* if it is a branch */
    bool is_far;            /* a far branch */
    bool entry;             /* it enters the kernel */
    bool delivered;         /* INT n or the like: it is @is_far and @entry */
    bool int1;              /* so it is, but is going to be #DB */
    bool part;              /* only an iteration of a REP, not the last one */
    bool trap;              /* a debug trap is going to be raised behind it */
    bool predicted;         /* there was anything to go by, */
    bool mispredicted;      /* but it went elsewhere */
    /* The first RETIRE_STORY_ACCESSES; of a REP, of its last iteration. */
    const RetireAccess *access;
    uint32_t nr_accesses;
} RetireStory;

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

/* How many instructions have been charged and not reported. */
static inline uint32_t retire_ahead(const RetireState *r)
{
    return (uint32_t)(r->armed - r->budget) >> 16;
}

static inline RetireClass retire_class(RetireBranch branch, bool taken)
{
    return branch == RETIRE_BRANCH_COND && !taken ? RETIRE_COND_NOT_TAKEN :
           (RetireClass)branch;
}

/* All instructions that have retired while somebody counted, in bits 61:16. */
static inline uint64_t retire_clock(const RetireState *r)
{
    return r->clock - r->budget;
}

#define RETIRE_NEVER    INT32_MAX       /* no budget is that much */

/* What is to be reported of the budget; from then on it has been. */
static inline RetireTotals retire_take(RetireState *r)
{
    uint32_t used = r->armed - r->budget;
    RetireTotals n = {
        .insns = used >> 16,
        .branches_any = used & 0xffff,
        .misses = r->misses_armed - r->misses,
    };

    r->armed = r->budget;
    r->restored = RETIRE_NEVER;
    r->misses_armed = r->misses;
    return n;
}

/* The same of branches by class; whether there are any. */
static inline bool retire_take_branches(RetireState *r,
                                        uint64_t branches[RETIRE_NR_CLASSES])
{
    uint64_t any = 0;

    memset(branches, 0, RETIRE_NR_CLASSES * sizeof(*branches));
    for (int i = RETIRE_COND_TAKEN; i < RETIRE_FAR; i++) {
        uint64_t n = r->branches[i];

        any |= n;
        r->branches[i] = 0;
        branches[i] = n / RETIRE_BRANCH_ONE;
        branches[i + RETIRE_MISPREDICTED] = n % RETIRE_BRANCH_ONE;
    }
    return any;
}

/*
 * @run instructions, up to RETIRE_BUDGET_MAX, may retire before one of them
 * matters; a branch is an instruction, so that many branches, too.  What has
 * been charged so far stays charged.
 */
static inline void retire_arm(RetireState *r, int32_t run)
{
    int32_t more = RETIRE_CHARGE(run, 0xffff) - r->armed;

    r->armed += more;
    r->budget += more;
    r->clock += more;
    r->restored = RETIRE_NEVER;
}

/*
 * A block is left at effective address @ip: its last @insns instructions and
 * its @branch do not retire.  A block is not charged if it is not eligible, and
 * all or nothing of it is.  Done twice for one block, this has no effect:
 * another block would have been charged.  The budget does not get them back,
 * because a block that has no branch may have been given more than branches
 * leave to others.
 */
static inline void retire_unretire(RetireState *r, uint32_t insns, bool branch,
                                   uint64_t ip)
{
    if (r->budget != r->restored && retire_eligible(r, ip)) {
        r->armed -= RETIRE_CHARGE(insns, branch);
        r->clock -= RETIRE_CHARGE(insns, branch);
    }
    r->restored = r->budget;
    r->foreseen = false;
}

/* Shorten the budget by @charge, which nothing has retired for. */
static inline void retire_burn(RetireState *r, int32_t charge)
{
    if (r->restored == r->budget) {
        r->restored -= charge;
    }
    r->budget -= charge;
    r->armed -= charge;
    r->clock -= charge;
}

/* An access of the instruction at page offset @offset counts as @what. */
static inline void retire_note(RetireState *r, RetireRow row, uint32_t offset,
                               RetireMemory what)
{
    uint32_t used = r->armed - r->budget;

    if (!r->open.valid || r->open.offset != offset || r->open.used != used) {
        memset(&r->open, 0, sizeof(r->open));
        r->left.missed = false;
        r->open.valid = true;
        r->open.row = (uint8_t)row;
        r->open.offset = (uint16_t)offset;
        r->open.used = used;
    }
    r->open.n[what]++;
    r->noted[row][what]++;
}

/* Whether memory that has been accessed once is not counted as that again. */
static inline bool retire_missed_once(RetireMemory what)
{
    return (what >= RETIRE_LOAD_L2 && what < RETIRE_LOAD_OTHER) ||
           (what >= RETIRE_STORE_L2 && what <= RETIRE_STORE_MODIFIED) ||
           what == RETIRE_STLB_MISS_LOADS || what == RETIRE_STLB_MISS_STORES;
}

/*
 * The instruction at effective address @ip does not retire, nor what it has
 * noted.  To be called before retire_unretire(); twice is harmless.
 */
static inline void retire_unnote(RetireState *r, uint64_t ip)
{
    if (r->open.valid && r->open.offset == (ip & 0xfff) &&
        r->open.used == (uint32_t)(r->armed - r->budget)) {
        for (int i = 0; i < RETIRE_NR_MEMORY; i++) {
            r->noted[r->open.row][i] -= r->open.n[i];
            r->open.n[i] = retire_missed_once((RetireMemory)i) ?
                           r->open.n[i] : 0;
        }
        r->left.missed = true;
    } else if (r->left.ip != ip) {
        r->left.missed = false;
    }
    r->open.valid = false;
}

/* And behind retire_unretire(), with @nr_accesses in RetireAccesses. */
static inline void retire_leave(RetireState *r, uint64_t ip,
                                uint32_t nr_accesses)
{
    r->left.ip = ip;
    r->left.clock = retire_clock(r);
    r->left.nr_accesses = (uint8_t)nr_accesses;
}

/* Whether the instruction at effective address @ip is the one that was left. */
static inline bool retire_is_left(const RetireState *r, uint64_t ip)
{
    return r->left.ip == ip && r->left.clock == retire_clock(r);
}

/*
 * The instruction at effective address @ip begins.  If it has been left for
 * being executed again, and not for an exception, what it missed then counts.
 */
static inline void retire_again(RetireState *r, uint64_t ip)
{
    if (r->left.missed && retire_is_left(r, ip)) {
        for (int i = 0; i < RETIRE_NR_MEMORY; i++) {
            r->noted[r->open.row][i] += r->open.n[i];
        }
        r->open.valid = true;
        r->open.used = (uint32_t)(r->armed - r->budget);
    }
    r->left.missed = false;
}

/* The same for @n of a block's words or, with @repeats, a REP's iteration. */
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

/* Whether nobody need hear of a load that L2 has and L1D has not */
static inline bool retire_may_miss(const RetireState *r)
{
    return r->misses > 0 && r->budget >= r->miss_charge;
}

/* There is one. */
static inline void retire_miss(RetireState *r)
{
    r->misses--;
    retire_burn(r, r->miss_charge);
}

/* Nobody has said yet how far it is. */
#define RETIRE_DISTANCE_MAX ((RetireDistance) { \
    .insns = RETIRE_BUDGET_MAX, \
    .branches = UINT32_MAX, \
    .misses = INT32_MAX, \
})

/* How many instructions may retire, each of which may be a branch. */
static inline uint32_t retire_run(const RetireDistance *d)
{
    return d->insns < d->branches ? d->insns : d->branches;
}

/* Have the budget last as far as all observers have said. */
static inline void retire_arm_distance(RetireState *r,
                                       const RetireConfig *config,
                                       RetireDistance *d)
{
    uint32_t run = retire_run(d);

    retire_arm(r, d->now ? -1 : (int32_t)run);
    r->foreseen = d->branches >= run + RETIRE_BLOCK_MAX && !d->now &&
                  d->certain && !d->clocks;
    r->miss_charge = 0;
    if (d->clocks) {
        /* Latencies of misses count as instructions do: they are charged. */
        uint32_t clocks = config->latency[RETIRE_SOURCE_L2];
        uint32_t insns = (clocks + config->insn_clocks - 1) /
                         config->insn_clocks;

        /* Or else no budget is enough for a miss. */
        d->misses = insns < RETIRE_BUDGET_MAX ? d->misses : 0;
        r->miss_charge = RETIRE_CHARGE(insns % RETIRE_BUDGET_MAX, 0);
    }
    r->misses = r->misses_armed = (int32_t)d->misses;
}

/*
 * For a block that takes @charge and finds the budget exhausted: how many of
 * its instructions may run, the last one observed, or 0 if observers have to be
 * asked.
 */
static inline uint32_t retire_step_foreseen(const RetireState *r,
                                            int32_t charge)
{
    uint32_t left = (uint32_t)r->budget >> 16;

    return r->foreseen && r->budget >= 0 &&
           left < (uint32_t)charge >> 16 ? left + 1 : 0;
}

/*
 * Behind a step: how many instructions of what is next may be another step, if
 * the block has so many, or 0.  Where a branch is near, that is one too many
 * for a block without branches, which is no fault.
 */
static inline uint32_t retire_step_ahead(const RetireState *r)
{
    uint32_t left = (uint32_t)r->budget >> 16;

    return left < RETIRE_BLOCK_MAX ? left + 1 : 0;
}

/*
 * The same when it has been asked how far it is.  Returns 0 if the block may
 * run; or else how many of its instructions may, of which the last one is
 * observed.
 */
static inline uint32_t retire_next(RetireState *r, const RetireDistance *d,
                                   int32_t charge)
{
    uint32_t insns = (uint32_t)charge >> 16, run = retire_run(d);

    /* A branch is the last one of its block: none is before it. */
    if (insns <= d->insns && (d->branches || !(charge & 0xffff))) {
        if (insns > run) {
            retire_arm(r, (int32_t)insns);
        }
        return 0;
    }
    insns = insns <= d->insns ? insns : d->insns + 1;
    if (insns - 1 > run) {
        retire_arm(r, (int32_t)insns - 1);
    }
    return insns;
}

/* Have the next block find the budget exhausted. */
static inline void retire_expire(RetireState *r)
{
    int32_t left = r->budget & -(1 << 16);

    if (left >= 0) {
        retire_burn(r, left + (1 << 16));
    }
}

#endif
