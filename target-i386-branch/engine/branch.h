/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Last branch records of x86 processors, and what else IA32_DEBUGCTL controls:
 * single step on branches and, in bts.h, the branch trace store.  Nothing here
 * knows QEMU, nor how it is found out which branches are taken.
 *
 * "SDM" is Intel's Software Developer's Manual, Volume 3B, with the section
 * numbers of the edition that has chapter 17 "Debug, branch profile, TSC";
 * "APM" is AMD's Architecture Programmer's Manual, Volume 2, section 13.1.1.
 *
 * Not there: transactions, what Pentium 4 had, and AMD's branch sampling (BRS).
 */
#ifndef BRANCH_H
#define BRANCH_H

#include "perfmon/engine/perfmon.h"
#include "retire/engine/retire.h"

#define BRANCH_NR   32      /* places in a ring */

/*
 * What is in a ring beside near branches, which are a RetireBranch: that less
 * one is their type in architectural records.  RETIRE_BRANCH_NONE: nothing is
 * recorded here, and it reads 0.
 */
enum {
    BRANCH_FAR = RETIRE_NR_BRANCHES,    /* far JMP, CALL, RET, IRET, ... */
    BRANCH_EVENT,           /* INT n and the like, interrupts, exceptions */
    BRANCH_WRITTEN,         /* not a branch: WRMSR was here, see BranchRing */
};

/*
 * The last branches that were taken.  Translated code writes here what it
 * records; branch_push() and branch_pop() say in C what it has to do.  All
 * parts use the ring as a whole: what is no longer in a stack of less depth is
 * only not shown.
 *
 * The clock is counted by whoever records: instructions that have retired.  It
 * never runs backwards, and must not reach 2^62.
 */
typedef struct BranchRing {
    uint8_t top;            /* offset of the next place, modulo 256 */
    uint8_t span;           /* that of the stack's depth, modulo 256 */
    uint64_t last;          /* clock of the last record, or BRANCH_NO_CLOCK */
    /* Effective addresses: of the branch's first byte, and where it goes. */
    uint64_t from[BRANCH_NR], to[BRANCH_NR];
    uint64_t cycles[BRANCH_NR];     /* the clock, less @last before that */
    uint64_t what[BRANCH_NR];       /* bit 0: it was mispredicted */
    /*
     * What it is.  The others do not matter where this is
     * RETIRE_BRANCH_NONE; where it is BRANCH_WRITTEN, @from, @to and @cycles
     * are the registers FROM, TO and INFO, as RDMSR is to show them.
     */
    uint64_t class[BRANCH_NR];
} BranchRing;

#define BRANCH_NO_CLOCK     (1ull << 63)

/* Record a branch.  @cycles and @what need not be written if nobody wants. */
static inline void branch_push(BranchRing *ring, uint64_t from, uint64_t to,
                               uint64_t clock, uint64_t what, uint64_t class)
{
    unsigned i = ring->top / 8;

    ring->from[i] = from;
    ring->to[i] = to;
    ring->cycles[i] = clock - ring->last;
    ring->last = clock;
    ring->what[i] = what;
    ring->class[i] = class;
    ring->top += 8;
}

/*
 * A near return in call-stack mode.  What it leaves is empty, or software would
 * read on behind the end.  In a stack of less depth than the ring's that is not
 * the place of the record that goes, but what has come into sight again.
 */
static inline void branch_pop(BranchRing *ring)
{
    ring->top -= 8;
    ring->class[(uint8_t)(ring->top - ring->span) / 8] = RETIRE_BRANCH_NONE;
}

/* A row of the table of processors; what is in it is the engine's. */
typedef struct BranchFlavour BranchFlavour;

/*
 * What this processor has; does not change once the CPU exists.
 *
 *  1. branch_config_init() with what branch_flavour() finds;
 *  2. @lbr and @lbr_v2 may be cleared, and @ds, @dtes64 and @ds_cpl may be set:
 *     it is what CPUID shows that exists;
 *  3. the rest is set.
 */
typedef struct BranchConfig {
    const BranchFlavour *flavour;
    bool pmu;               /* there is one; or it is debug features only */
    bool btf;               /* single step on branches */
    bool lbr;               /* CPUID 7.EDX[19], if records are architectural */
    bool lbr_v2;            /* CPUID 8000_0022 EAX[1] */
    bool ds;                /* CPUID.1:EDX[21] */
    bool dtes64;            /* CPUID.1:ECX[2] */
    bool ds_cpl;            /* CPUID.1:ECX[4] */
    bool bts_predicted;     /* there is such a bit in its records */
    uint8_t pmu_version;    /* PmuConfig.version */
    uint32_t insn_clocks;   /* that an instruction takes; 1 by default */
    uint64_t debugctl_other;    /* bits of 1D9H that are somebody else's */
} BranchConfig;

/* What the user does not want; for branch_config_init(). */
#define BRANCH_WITHOUT_PMU      (1u << 0)
#define BRANCH_WITHOUT_LBR      (1u << 1)
#define BRANCH_WITHOUT_LBR_V2   (1u << 2)
#define BRANCH_WITHOUT_BTF      (1u << 3)

/* Bits of IA32_DEBUGCTL (SDM 17.4.1) and DbgCtl (APM) that are kept here. */
#define BRANCH_DEBUGCTL_LBR     (1u << 0)
#define BRANCH_DEBUGCTL_BTF     (1u << 1)
#define BRANCH_DEBUGCTL_PINS    (15u << 2)      /* no effect */
#define BRANCH_DEBUGCTL_TR      (1u << 6)
#define BRANCH_DEBUGCTL_BTS     (1u << 7)
#define BRANCH_DEBUGCTL_BTINT   (1u << 8)
#define BRANCH_DEBUGCTL_BTS_OFF_OS      (1u << 9)
#define BRANCH_DEBUGCTL_BTS_OFF_USR     (1u << 10)
#define BRANCH_DEBUGCTL_UNCORE  (1u << 13)      /* no effect */

/*
 * The registers, but for the records.  Fields that this processor does not have
 * are 0.  To be migrated as it is, with a BranchStack.
 */
typedef struct BranchState {
    uint64_t debugctl;          /* BRANCH_DEBUGCTL_* */
    uint64_t select;            /* MSR_LBR_SELECT, AMD's LBR_SELECT */
    uint64_t lbr_ctl;           /* IA32_LBR_CTL */
    uint64_t lbr_depth;         /* IA32_LBR_DEPTH */
    uint64_t dbg_extn_cfg;      /* AMD's DBG_EXTN_CFG */
    /* The last branch before an exception or interrupt */
    uint64_t ler_from, ler_to, ler_info;
    /* Saved at an SMI, for RSM; the first one with FREEZE_WHILE_SMM. */
    uint64_t smm_debugctl, smm_lbr_ctl;
    bool smm_frozen;            /* in SMM, with FREEZE_WHILE_SMM */
} BranchState;

/*
 * The processor; NULL if it has not even single step on branches.  @family and
 * @model are those of CPUID.1:EAX with the extended fields added.
 */
const BranchFlavour *branch_flavour(PmuVendor vendor, unsigned family,
                                    unsigned model);

/* What to call it, for people: "Skylake". */
const char *branch_flavour_name(const BranchFlavour *flavour);

/*
 * All that @flavour has, but for what is in @without, a set of
 * BRANCH_WITHOUT_*.  Without a PMU that is single step on branches, and the
 * last branch and exception of P6 and AMD's.
 */
void branch_config_init(BranchConfig *config, const BranchFlavour *flavour,
                        uint32_t without);

/* IA32_PERF_CAPABILITIES[5:0], the format of records. */
uint64_t branch_perf_capabilities(const BranchConfig *config);

/*
 * CPUID.1CH (all 0 if there are no architectural records), and what to set in
 * CPUID 8000_0022.  @regs has EAX, EBX, ECX and EDX.
 */
void branch_cpuid_1c(const BranchConfig *config, uint32_t regs[4]);
void branch_cpuid_80000022(const BranchConfig *config, uint32_t regs[4]);

/* RESET; INIT keeps all of it. */
void branch_reset(BranchState *s, const BranchConfig *config,
                  BranchRing *ring);

/*
 * The MSRs.  RDMSR sets *@val only if it returns PMU_MSR_OK.  With
 * PMU_MSR_GP nothing has changed.  PMU_MSR_OTHER: it belongs to somebody
 * else.
 *
 * IA32_DEBUGCTL is not only ours: RDMSR has our bits, to which the caller adds
 * those of others; and a WRMSR which is PMU_MSR_OK has none that is nobody's
 * and has to be refused, so the others may take from it what is theirs.
 *
 * Behind a WRMSR, branch_wants() is to be asked again.
 */
PmuAccess branch_rdmsr(const BranchState *s, const BranchConfig *config,
                          const BranchRing *ring, uint32_t msr, uint64_t *val);
PmuAccess branch_wrmsr(BranchState *s, const BranchConfig *config,
                          BranchRing *ring, uint32_t msr, uint64_t val);

/*
 * What an observer has to want for branches that go to CPL 0 (real mode, SMM),
 * if @os, or to CPL 1 to 3 (v8086 mode); and BRANCH_WANT_FAR, if far branches
 * and events are to be recorded.  With RETIRE_WANT_LBR_STACK, a near CALL,
 * unless it is to the next instruction, is branch_push(), and a RET is
 * branch_pop(), if they are to be recorded; others are not.  @frozen is
 * LBR_FRZ, bit 58 of IA32_PERF_GLOBAL_STATUS, or AMD's PerfCntrGlobalStatus;
 * false if there is no such bit.
 */
#define BRANCH_WANT_FAR         (1 << 30)   /* RETIRE_WANT_* has no such bit */
#define BRANCH_WANT_RECORDS     (RETIRE_WANT_LBR | BRANCH_WANT_FAR)
#define BRANCH_WANT(class)      ((unsigned)(class) < BRANCH_FAR ? \
                                 RETIRE_WANT_LBR_OF(class) : BRANCH_WANT_FAR)

RetireWants branch_wants(const BranchState *s, const BranchConfig *config,
                         bool os, bool frozen);

/* A branch that was taken, or an event that was delivered. */
typedef struct BranchTaken {
    uint64_t from, to;
    unsigned class;         /* RETIRE_BRANCH_COND to BRANCH_EVENT */
    bool mispredicted;
    bool from_os, to_os;    /* its CPL was, is 0 */
} BranchTaken;

/*
 * Record it, if that is wanted.  An event's @from is the return address; or the
 * address of the instruction, if it is INT n or the like.  A debug exception is
 * none.  In call-stack mode, a CALL to the next instruction must not come here.
 */
void branch_record(BranchState *s, const BranchConfig *config,
                   BranchRing *ring, const BranchTaken *branch, bool frozen,
                   uint64_t clock);

/* A branch of which PEBS may have a record, which comes before that of BTS */
typedef struct BranchHeld {
    bool predicted;
    uint64_t from, to;
} BranchHeld;

/* Whether BTS is on, with interrupts */
static inline bool branch_bts_interrupts(const BranchState *s)
{
    const uint64_t all = BRANCH_DEBUGCTL_TR | BRANCH_DEBUGCTL_BTS |
                         BRANCH_DEBUGCTL_BTINT;

    return (s->debugctl & all) == all;
}

/*
 * A debug exception is going to be delivered: nothing is recorded any more (SDM
 * 17.4.1, and 7.1.4.4 of ISE, the Instruction Set Extensions reference, of what
 * is architectural).  Returns whether something was.
 */
bool branch_debug(BranchState *s);

/*
 * A PMI is going to be signalled, with IA32_DEBUGCTL.FREEZE_LBRS_ON_PMI if
 * @freeze, when what retired before it has been recorded.  Where there is
 * LBR_FRZ, that is what freezes, and this does nothing.
 */
void branch_pmi(BranchState *s, const BranchConfig *config, bool freeze);

/*
 * SMI and RSM, with IA32_DEBUGCTL.FREEZE_WHILE_SMM if @freeze; architectural
 * records stop without it, too (ISE 7.1.4.4).
 */
void branch_smi(BranchState *s, bool freeze);
void branch_rsm(BranchState *s);

/*
 * SVM's LBR virtualization (CPUID 8000_000A EDX[1]).  If the VMCB has it on,
 * VMRUN is branch_svm_save() of the host's and branch_svm_load() of the VMCB's,
 * and #VMEXIT the same the other way round.  As for @debugctl, bits of others
 * are the caller's.  Of what was mispredicted, where records tell that, bit 63
 * of @br_from is not what it is in the address.
 */
typedef struct BranchSvm {
    uint64_t debugctl, br_from, br_to, last_excp_from, last_excp_to;
} BranchSvm;

/* Whether there is something for it to virtualize. */
bool branch_has_lbrv(const BranchConfig *config);

void branch_svm_save(const BranchState *s, const BranchConfig *config,
                     const BranchRing *ring, BranchSvm *save);
void branch_svm_load(BranchState *s, const BranchConfig *config,
                     BranchRing *ring, const BranchSvm *save);

/*
 * The @n-th last record; false if the stack is not that deep.  All 0: empty.
 * For people, and for who stores records elsewhere.
 */
bool branch_entry(const BranchState *s, const BranchConfig *config,
                  const BranchRing *ring, unsigned n, PerfmonBranch *entry);

/*
 * The ring, as it is migrated: nothing in it depends on how it is recorded.  In
 * a stream of all zeroes nothing has been.
 */
typedef struct BranchStack {
    uint64_t tos;           /* 0 where there is no such register */
    uint64_t age;           /* of the last record, by the clock, plus 1; or 0 */
    PerfmonBranch entry[BRANCH_NR];   /* the last one first */
} BranchStack;

void branch_stack_save(const BranchState *s, const BranchConfig *config,
                       const BranchRing *ring, uint64_t clock,
                       BranchStack *stack);

/* Whether this processor could not have reached what comes from outside. */
bool branch_state_bad(const BranchState *s, const BranchConfig *config,
                      const BranchStack *stack);

/* Take over what is not bad. */
void branch_stack_load(const BranchState *s, const BranchConfig *config,
                       BranchRing *ring, uint64_t clock,
                       const BranchStack *stack);

#endif
