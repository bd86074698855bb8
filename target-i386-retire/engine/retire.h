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
#include "memory.h"

/* Whose instructions they are. */
typedef enum RetireRow {
    RETIRE_OS,              /* CPL 0, real mode */
    RETIRE_USR,             /* CPL 1 to 3, virtual-8086 mode */
    RETIRE_NR_ROWS
} RetireRow;

/* What a branch is, for filters and for its prediction */
typedef enum RetireBranch {
    RETIRE_BRANCH_NONE,     /* not a branch, or one that is never counted */
    RETIRE_BRANCH_COND,     /* Jcc, J(E/R)CXZ, LOOPcc */
    RETIRE_BRANCH_JMP_ABS,  /* through register or memory */
    RETIRE_BRANCH_JMP,      /* relative */
    RETIRE_BRANCH_CALL_ABS, /* through register or memory */
    RETIRE_BRANCH_CALL,     /* relative */
    RETIRE_BRANCH_RET,
    RETIRE_NR_BRANCHES
} RetireBranch;

/*
 * What is added to RetireState.branches[] for a branch, and more if it was
 * predicted wrongly: the budget sees to it that neither sum overflows.  The
 * latter is 1, because that is what a comparison of targets yields.
 */
#define RETIRE_BRANCH_ONE           (1ull << 24)
#define RETIRE_BRANCH_MISPREDICTED  1ull

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

/* Floating point: on what an instruction operates */
typedef enum RetireFpWidth {
    RETIRE_FP_X87,
    RETIRE_FP_SS,           /* behind each single its double precision */
    RETIRE_FP_SD,
    RETIRE_FP_PS,
    RETIRE_FP_PD,
    RETIRE_FP_PS256,
    RETIRE_FP_PD256,
    RETIRE_FP_MMX,          /* with RETIRE_FP_NONE */
    RETIRE_FP_NR_WIDTHS
} RetireFpWidth;

/* And what it does; with the former, an index of RetireTold.fp. */
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

#define RETIRE_FP(width, kind) ((width) * RETIRE_FP_NR_KINDS + (kind))
#define RETIRE_NR_FP        RETIRE_FP(RETIRE_FP_NR_WIDTHS, 0)

/* What clocks there are, and who asks for models; the same for all CPUs. */
typedef struct RetireConfig {
    uint32_t insn_clocks;   /* CPU clocks that an instruction takes */
    uint32_t refclk_ratio;  /* reference clocks in RETIRE_REFCLK_UNIT of them */
    uint32_t latency[RETIRE_NR_SOURCES];    /* of a miss, CPU clocks */
    uint32_t latency_worst; /* of a load in two lines */
    bool has_caches;        /* somebody may want their models, */
    bool caches_of_cpuid;   /* and they are those that CPUID shows, */
    bool family_15h;        /* but for those, of which it shows nothing */
    bool counted_models;    /* counters may ask the models */
} RetireConfig;

#define RETIRE_MAX_OBSERVERS    6
#define RETIRE_ALL_OBSERVERS    ((1u << RETIRE_MAX_OBSERVERS) - 1)

/*
 * What an observer wants.  All observers' wants together are flags of TBs:
 * RETIRE_TB_WANTS_SHIFT.
 */
typedef enum RetireWants {
    RETIRE_WANT_CLASSES = 1 << 0,   /* branches by class */
    RETIRE_WANT_PREDICT = 1 << 1,   /* and whether they were predicted */
    RETIRE_WANT_BRANCHES = 1 << 2,  /* each near branch is observed */
    RETIRE_WANT_ACCESSES = 1 << 3,  /* loads and stores are counted */
    RETIRE_WANT_SOURCES = 1 << 4,   /* they go through the caches */
    RETIRE_WANT_RANGE = 1 << 5,     /* only what ip_first, ip_span hold */
    RETIRE_WANT_STORY = 1 << 6,     /* of what is observed, its accesses */
    /*
     * For branch records: X86CPU.branch_ring has near branches that are
     * taken, or, as a bit for each RetireBranch, some of them.  Who wants them
     * adds far branches, interrupts and exceptions, of which it is told.
     */
    RETIRE_WANT_LBR = 0x3f << 7,
    RETIRE_WANT_LBR_STACK = 1 << 13,    /* a RET takes its CALL away */
    RETIRE_WANT_LBR_CLOCK = 1 << 14,    /* and when that was */
    RETIRE_WANT_BTF = 1 << 15,      /* EFLAGS.TF is for taken branches only */
    RETIRE_WANT_TAKEN = 1 << 16,    /* one observer is told of each of them */
    RETIRE_WANT_FETCHES = 1 << 17,  /* code goes through L1I and ITLB */
    RETIRE_WANT_FP = 1 << 18,       /* floating-point instructions, by kind */
    RETIRE_WANT_PT = 1 << 19,       /* where near branches go: pt_cond() ... */
    RETIRE_WANT_PT_NEAR = 1 << 20,  /* PT: all that are taken are pt_near() */
    /* What TBs do not know of: */
    RETIRE_WANT_COUNT = 1 << 21,    /* instructions, which all others imply */
    RETIRE_WANT_TLB = 1 << 22,      /* SOURCES: accesses go through DTLB */
    RETIRE_WANT_LINES = 1 << 23,    /* FETCHES: and are counted */
    RETIRE_WANT_CODE = 1 << 24,     /* SOURCES, LINES: and stores to code */
} RetireWants;

#define RETIRE_WANT_OF_TBS  0x1fffff

/* What nobody gets without models */
#define RETIRE_WANT_OF_MODELS (RETIRE_WANT_PREDICT | RETIRE_WANT_ACCESSES | \
                               RETIRE_WANT_SOURCES | RETIRE_WANT_STORY | \
                               RETIRE_WANT_FETCHES | RETIRE_WANT_TLB | \
                               RETIRE_WANT_LINES | RETIRE_WANT_CODE)

#define RETIRE_WANT_LBR_OF(branch) (1 << (6 + (branch)))

/* Who is told, and what translated code looks into for them */
typedef struct RetireTold {
    /* Ended by NULL; who has been added last is told first. */
    const struct RetireObserver *observer[RETIRE_MAX_OBSERVERS + 1];
    const struct RetireObserver *taken;     /* who has RETIRE_WANT_TAKEN */
    RetireWants wants;      /* of all of them */
    bool ranges_differ;     /* some have none: each instruction is observed */
    uint64_t fp[RETIRE_NR_ROWS][RETIRE_NR_FP];  /* retired, not reported yet */
} RetireTold;

#define RETIRE_REFCLK_UNIT      1000
#define RETIRE_INSN_CLOCKS_MAX  1000
#define RETIRE_REFCLK_RATIO_MAX 10000
#define RETIRE_LATENCY_MAX      1000000

/* Instructions; the budget has 16 bits, also when icount gives some back. */
#define RETIRE_BUDGET_MAX   65000
#define RETIRE_TB_MAX       64      /* instructions */

/*
 * All zero: nobody counts.  The budget, that is, how many more instructions may
 * retire before an observer has to look, is in CPUState.  @left is what is left
 * of it: see retire_left().
 */
typedef struct RetireState {
    /*
     * A TB takes its length off the budget when it begins.  What @armed less
     * @left says has been charged, and has not been reported yet.
     */
    int64_t armed;
    int64_t clock;          /* what has been, with what has been observed */
    bool runs;              /* the budget is this CPU's: it is in cpu_exec() */
    RetireRow row;          /* of what is charged */
    /* How many more loads may miss that L1D does not have but L2 has: */
    int32_t misses, misses_armed;
    int32_t miss_charge;    /* each takes this off the budget, too */
    /* What counts is at ip_first to ip_first + ip_span, modulo 2^64. */
    uint64_t ip_first, ip_span;
    /*
     * Branches that have retired and have not been reported yet, each one a
     * RETIRE_BRANCH_ONE; the budget sees to it that they are not too many.
     */
    uint64_t branches[RETIRE_FAR];
} RetireState;

/* How much may retire before an observer has to look behind an instruction. */
typedef struct RetireDistance {
    uint32_t insns;         /* instructions, */
    uint32_t branches;      /* near branches of all classes, */
    uint32_t misses;        /* and loads that L2 has and L1D has not */
    bool clocks;            /* latencies of misses count as instructions do */
    bool pending;           /* begin() is to come before the next instruction */
} RetireDistance;

/* What has retired since the last report, but for what is observed. */
typedef struct RetireTotals {
    uint32_t insns;
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
    const RetireFetch *fetch;   /* RETIRE_WANT_FETCHES, or NULL */
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
static inline uint32_t retire_charged(const RetireState *r, int64_t left)
{
    return (uint32_t)(r->armed - left);
}

static inline RetireClass retire_class(RetireBranch branch, bool taken)
{
    return branch == RETIRE_BRANCH_COND && !taken ? RETIRE_COND_NOT_TAKEN :
           (RetireClass)branch;
}

/* All instructions that have retired while somebody counted */
static inline uint64_t retire_clock(const RetireState *r, int64_t left)
{
    return r->clock + (r->armed - left);
}

/* What is to be reported of the budget; from then on it has been. */
static inline RetireTotals retire_take(RetireState *r, int64_t left)
{
    RetireTotals n = {
        .insns = retire_charged(r, left),
        .misses = r->misses_armed - r->misses,
    };

    r->clock += n.insns;
    r->armed = left;
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
 * A TB is left at effective address @ip: its last @insns instructions do not
 * retire.  If it is outside of the range, its charge has been taken back
 * before.  The budget does not get them back, because a TB may have been given
 * more than branches leave to others.
 */
static inline void retire_give_back(RetireState *r, uint32_t insns, uint64_t ip)
{
    if (retire_eligible(r, ip)) {
        r->armed -= insns;
    }
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
    return d->pending ? 0 : d->insns < d->branches ? d->insns : d->branches;
}

/* How many loads may miss, and what each takes off the budget */
static inline void retire_arm_misses(RetireState *r, const RetireConfig *config,
                                     RetireDistance *d)
{
    r->miss_charge = 0;
    if (d->clocks) {
        /* Latencies of misses count as instructions do: they are charged. */
        uint32_t clocks = config->latency[RETIRE_SOURCE_L2];
        uint32_t insns = (clocks + config->insn_clocks - 1) /
                         config->insn_clocks;

        /* Or else no budget is enough for a miss. */
        d->misses = insns < RETIRE_BUDGET_MAX ? d->misses : 0;
        r->miss_charge = (int32_t)(insns % RETIRE_BUDGET_MAX);
    }
    r->misses = r->misses_armed = (int32_t)d->misses;
}

/*
 * A TB of @insns instructions is next, of which only the last one may be a near
 * branch.  Returns 0 if all of it may run, or how many of them, the last of
 * which is to be observed.
 */
static inline uint32_t retire_step(const RetireDistance *d, uint32_t insns)
{
    if (d->pending) {
        return 1;
    }
    if (insns > d->insns) {
        return d->insns + 1;
    }
    return d->branches ? 0 : insns;
}

#endif
