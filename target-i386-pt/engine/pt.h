/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Intel Processor Trace: the registers, the packets, and their way to memory.
 * Nothing here knows QEMU, nor how it is found out what a processor executes.
 *
 * "SDM 3C" is Intel's Software Developer's Manual, Volume 3C, chapter "Intel
 * Processor Trace", with the topic there.
 *
 * Not there: TNT packets of 64 bits and deferred TIPs, which are optional; MTC,
 * TMA, PTWRITE, power events, event trace, fabric, VMX.  CYCEn may be set, and
 * there are no such packets.  Nothing is ever lost, so there is no OVF.
 */
#ifndef PT_H
#define PT_H

#include "perfmon/engine/perfmon.h"

/*
 * What translated code writes.  All else that is traced is told to one of the
 * functions below, in the order in which it retires; and each of them takes
 * from here what has been written before.
 */
#define PT_RETURNS      64

typedef struct PtPending {
    uint64_t tnt;           /* outcomes below a leading 1, the last in bit 0 */
    uint32_t top;           /* offset of the next place in @ret, in bytes */
    uint64_t ret[PT_RETURNS];
} PtPending;

#define PT_FULL         60  /* so many outcomes are as many as it holds */

/* Not canonical, so it is no return address, nor the IP of any packet. */
#define PT_NOWHERE      (1ull << 63)

/*
 * A conditional branch, taken or not, where pt_packets_wanted().  If it returns
 * true, pt_outcomes() is to be called before the next instruction.
 */
static inline bool pt_cond(PtPending *p, bool taken)
{
    p->tnt = p->tnt * 2 + taken;
    return p->tnt >> PT_FULL;
}

/*
 * A near CALL, unless it is a direct one to the next instruction, where
 * pt_returns_wanted().  @nlip is the address of the next instruction, as a
 * decoder has it: not cut to the operand size, though what is pushed may be.
 * This is before the function that the CALL itself is told to, if there is one.
 */
static inline void pt_push(PtPending *p, uint64_t nlip)
{
    p->ret[p->top / 8] = nlip;
    p->top = (p->top + 8) % sizeof(p->ret);
}

/*
 * A near RET, where pt_returns_wanted().  True: it goes where the decoder will
 * think so, and is pt_cond(p, true); false: it is pt_indirect().
 *
 * A RET may be compressed if it goes behind the CALL that belongs to it, which
 * has been seen since the last PSB (SDM 3C, "RET Compression").  The decoders
 * do not agree on a RET that is not compressed: perf takes an entry off for any
 * RET (intel_pt_walk_insn() in intel-pt-decoder.c), libipt only for one that is
 * compressed (pt_insn_proceed() in pt_insn_decoder.c, and
 * pt_blk_proceed_with_trace() in pt_block_decoder.c).  So behind such a RET all
 * that is older is in different places, and none of it may be used any more: it
 * empties the stack, by an entry that nothing is equal to just below the top,
 * which stays.  What is pushed since then is what both have on top.
 *
 * The same entry is left where a RET has matched, for when 64 have in turn.
 * libipt has 64 entries, and loses the oldest, as this does; perf has any
 * number.  perf empties its stack at PSB (intel_pt_psb() and others), libipt
 * only where it begins to decode; neither does at TIP.PGE, TIP.PGD or OVF.
 * This one is emptied at PSB, where both may begin; at TIP.PGE, because a
 * branch that leaves a filter is a CALL or RET to perf, but not to libipt; and
 * so when TraceEn is set, where the trace may go on in some other buffer.
 */
static inline bool pt_ret(PtPending *p, uint64_t to)
{
    uint32_t below = (p->top - 8) % sizeof(p->ret);
    bool match = p->ret[below / 8] == to;

    p->ret[below / 8] = PT_NOWHERE;
    if (match) {
        p->top = below;
    }
    return match;
}

/* A row of the table of processors; what is in it is the engine's. */
typedef struct PtFlavour PtFlavour;

/*
 * What this processor has; does not change once the CPU exists.
 * pt_config_init() sets all but the last two from what pt_flavour() finds.
 */
typedef struct PtConfig {
    uint32_t ebx, ecx;          /* CPUID.(14H,0) */
    uint32_t eax1, ebx1;        /* CPUID.(14H,1) */
    uint64_t ctl_mask;          /* bits of IA32_RTIT_CTL that there are */
    uint8_t cbr;                /* core:bus ratio, as in MSR CEH[15:8] */
    uint8_t phys_bits;          /* MAXPHYADDR; 52 at most */
    uint8_t va_bits;            /* of a linear address: 48, 57 */
} PtConfig;

/* Bits of CPUID.(14H,0):EBX and ECX */
#define PT_EBX_CR3_FILTER       (1u << 0)
#define PT_EBX_PSB_CYC          (1u << 1)
#define PT_EBX_IP_FILTER        (1u << 2)
#define PT_ECX_TOPA             (1u << 0)
#define PT_ECX_TOPA_MULTI       (1u << 1)
#define PT_ECX_SINGLE           (1u << 2)

/* IA32_RTIT_CTL */
#define PT_CTL_TRACE_EN         (1ull << 0)
#define PT_CTL_CYC_EN           (1ull << 1)
#define PT_CTL_OS               (1ull << 2)
#define PT_CTL_USER             (1ull << 3)
#define PT_CTL_CR3_FILTER       (1ull << 7)
#define PT_CTL_TOPA             (1ull << 8)
#define PT_CTL_TSC_EN           (1ull << 10)
#define PT_CTL_DIS_RETC         (1ull << 11)
#define PT_CTL_BRANCH_EN        (1ull << 13)
#define PT_CTL_CYC_THRESH_SHIFT 19
#define PT_CTL_PSB_FREQ_SHIFT   24
#define PT_CTL_ADDR_SHIFT       32
#define PT_CTL_ADDRS            (0xffffull << PT_CTL_ADDR_SHIFT)

/* IA32_RTIT_STATUS */
#define PT_STATUS_FILTER_EN     (1ull << 0)
#define PT_STATUS_CONTEXT_EN    (1ull << 1)
#define PT_STATUS_TRIGGER_EN    (1ull << 2)
#define PT_STATUS_ERROR         (1ull << 4)
#define PT_STATUS_STOPPED       (1ull << 5)
#define PT_STATUS_BYTES_SHIFT   32
#define PT_STATUS_BYTES_MAX     0x1ffffu

#define PT_RANGES       4
#define PT_STAGED       256
#define PT_PACKET       16
#define PT_MODE_NONE    0xff

/*
 * Where a processor is.  @ip is effective, as in packets, because CPUID.(14H,0)
 * ECX[31] is 0; it is what the ranges of filters are compared with, too.
 */
typedef struct PtPlace {
    uint64_t ip;
    uint64_t cr3;
    bool os;                    /* CPL 0, real mode; but not v8086 mode */
    bool smm;
    uint8_t exec;               /* 1: 64-bit code, 2: 32-bit, 0: 16-bit */
} PtPlace;

/*
 * The registers, and what is between the processor and memory.  To be migrated
 * as they are, together with a PtPending.
 */
typedef struct PtState {
    uint64_t ctl;
    uint64_t status;            /* PT_STATUS_ERROR, PT_STATUS_STOPPED */
    uint64_t output_base, output_mask;      /* 561H: but for what is staged */
    uint64_t cr3_match;
    uint64_t addr[2 * PT_RANGES];           /* A, B, A, B, ... */
    uint32_t bytes;             /* since the last PSB: STATUS[48:32] */

    bool starting;              /* TraceEn is set; pt_resume() is to come */
    bool context_en, filter_en; /* matter while TriggerEn is set */
    bool smm_trace_en;          /* for RSM */
    uint8_t mode;               /* MODE.Exec as last sent; or PT_MODE_NONE */
    uint64_t last_ip;
    PtPlace here;               /* @ip does not matter */

    uint64_t entry;             /* of ToPA: the region that is written */
    uint32_t staged;            /* bytes behind the offset, not in memory */
    uint32_t room;              /* for so many more; pt_loaded() */
    uint8_t stage[PT_STAGED + PT_PACKET];

    /* Set here, and cleared by whoever does what that asks for: */
    bool pmi;                   /* a region with INT is full */
    bool changed;               /* pt_*_wanted(), pt_tells() may have */
} PtState;

/* What the engine needs to know, and to do. */
typedef struct PtHost {
    /* An entry of ToPA, 8 bytes in physical memory; false if it is not that. */
    bool (*read)(void *opaque, uint64_t phys, uint64_t *val);
    /* To physical memory; false if that cannot be written. */
    bool (*write)(void *opaque, uint64_t phys, const uint8_t *from, uint32_t n);
    uint64_t (*tsc)(void *opaque);
    void *opaque;
} PtHost;

/* One logical processor's */
typedef struct Pt {
    PtState *state;
    PtPending *pending;
    const PtConfig *config;
    const PtHost *host;
} Pt;

/* TriggerEn: far transfers, events and MOV CR3 are to be told. */
static inline bool pt_tells(const PtState *s)
{
    return (s->ctl & PT_CTL_TRACE_EN) &&
           !(s->status & (PT_STATUS_ERROR | PT_STATUS_STOPPED));
}

/*
 * PacketEn && BranchEn: conditional branches are pt_cond(), near indirect ones
 * are pt_indirect(); but see pt_near_wanted().
 */
static inline bool pt_packets_wanted(const PtState *s)
{
    return pt_tells(s) && s->context_en && s->filter_en &&
           (s->ctl & PT_CTL_BRANCH_EN);
}

/* Near CALL and RET are pt_push() and pt_ret(), too. */
static inline bool pt_returns_wanted(const PtState *s)
{
    return pt_packets_wanted(s) && !(s->ctl & PT_CTL_DIS_RETC);
}

/*
 * There are ranges, or RETs are not compressed.  Near branches that are taken,
 * all of them, are pt_near(): and not pt_cond(), pt_ret() or pt_indirect(),
 * which it is itself.  What is left to translated code is pt_push(), and
 * pt_cond() for what is not taken; which may be done though packets are not
 * wanted.
 */
static inline bool pt_near_wanted(const PtState *s)
{
    return pt_tells(s) && s->context_en &&
           (s->ctl & (PT_CTL_ADDRS | PT_CTL_DIS_RETC));
}

/* No outcomes, and no return address; for a new processor and migration. */
void pt_forget(PtPending *p);

/*
 * The processor; NULL if it has no such unit.  @family and @model are those of
 * CPUID.1:EAX with the extended fields added.
 */
const PtFlavour *pt_flavour(PmuVendor vendor, unsigned family, unsigned model);

void pt_config_init(PtConfig *config, const PtFlavour *flavour);

/* CPUID.14H; @regs has EAX, EBX, ECX and EDX. */
void pt_cpuid(const PtConfig *config, uint32_t subleaf, uint32_t regs[4]);

/* Power-up, or RESET if @warm; INIT is pt_event(). */
void pt_reset(const Pt *pt, bool warm);

/*
 * The MSRs.  RDMSR sets *@val only if it returns PMU_MSR_OK.  With
 * PMU_MSR_GP nothing has changed.  PMU_MSR_OTHER: it belongs to somebody
 * else.  @ip is that of the WRMSR; when this has retired, pt_resume() is to
 * come, before any event.
 */
PmuAccess pt_rdmsr(const Pt *pt, uint32_t msr, uint64_t *val);
PmuAccess pt_wrmsr(const Pt *pt, uint32_t msr, uint64_t val, uint64_t ip);

/*
 * WRMSR or RSM has retired, which may have set TraceEn; @next is where it goes
 * on.  It does nothing if there is nothing to start.
 */
void pt_resume(const Pt *pt, const PtPlace *next);

/* MOV CR3 has retired, though it has not changed CR3. */
void pt_cr3(const Pt *pt, const PtPlace *next);

/* pt_cond() is true; @next is where the branch, or RET, goes. */
void pt_outcomes(const Pt *pt, uint64_t next);

/* A near indirect JMP or CALL, or a RET that is not compressed. */
void pt_indirect(const Pt *pt, uint64_t to);

/* A near branch that is taken, while pt_near_wanted(). */
typedef enum PtBranch {
    PT_DIRECT,              /* JMP, CALL */
    PT_COND,
    PT_INDIRECT,            /* JMP, CALL */
    PT_RET,
} PtBranch;

void pt_near(const Pt *pt, PtBranch branch, uint64_t to);

/*
 * A far transfer: far JMP, CALL and RET, IRET, SYSCALL and so on; also a task
 * switch by one of them.
 */
void pt_far(const Pt *pt, const PtPlace *to);

/*
 * An exception, interrupt, or INT n and the like is delivered.  @from is the
 * address of the first instruction that has not retired: of a fault's, of the
 * next one behind a trap or before an interrupt; but of INT n itself.
 */
void pt_event(const Pt *pt, uint64_t from, const PtPlace *to);

/*
 * SMI, which saves and clears TraceEn; @from is as for pt_event().  RSM is
 * pt_rsm(), and pt_resume() when it has retired.
 */
void pt_smi(const Pt *pt, uint64_t from);
void pt_rsm(const Pt *pt);

/*
 * All that has happened is in memory: before a PMI is delivered.
 */
void pt_settle(const Pt *pt);

/* Whether this processor could not have reached what comes from outside. */
bool pt_state_bad(const PtState *s, const PtPending *p, const PtConfig *config);

/* Take over what is not bad. */
void pt_loaded(const Pt *pt);

#endif
