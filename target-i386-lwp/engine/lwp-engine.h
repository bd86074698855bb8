/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling, version 1: the architecture's state machine.
 *
 * Section numbers (§) and table numbers refer to AMD publication 43724,
 * revision 3.08.  Nothing here knows QEMU: guest memory is reached through
 * LwpMemOps only, so that the unit tests can drive every rule.
 */
#ifndef LWP_ENGINE_H
#define LWP_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include "retire/engine/retire.h"

/* EventId values (Table 2-1). */
enum {
    LWP_EVENT_VAL = 1,
    LWP_EVENT_IRE,
    LWP_EVENT_BRE,
    LWP_EVENT_DME,
    LWP_EVENT_CNH,
    LWP_EVENT_RNH,
    LWP_EVENT_INS = 255,
};

#define LWP_NR_EVENTS   LWP_EVENT_RNH   /* events that have a counter */

/*
 * One layout serves CPUID Fn8000_001C EAX and EDX (Table 3-1), the low half
 * of LWP_CFG (§4.2), LWPCB.Flags (Figure 6-2) and the Flags of the XSAVE
 * image (Table 7-1): bit n is the event with EventId n.
 */
#define LWP_AVAIL       (1u << 0)
#define LWP_FLAG(event) (1u << (event))
#define LWP_FLAG_INT    (1u << 31)
#define LWP_FLAG_EVENTS ((2u << LWP_NR_EVENTS) - 2)
/* What processors of Family 15h have. */
#define LWP_FLAGS_15H   (LWP_FLAG(LWP_EVENT_VAL) | LWP_FLAG(LWP_EVENT_IRE) | \
                         LWP_FLAG(LWP_EVENT_BRE) | LWP_FLAG_INT)

/* CPUID Fn8000_001C ECX (Table 3-1): what an operating system cannot mask. */
#define LWP_CAP_DATA_ADDRESS    (1u << 5)
#define LWP_CAP_PREDICTION      (1u << 28)
#define LWP_CAP_IP_FILTER       (1u << 29)
#define LWP_CAP_CACHE_LEVELS    (1u << 30)
#define LWP_CAP_CACHE_LATENCY   (1u << 31)
#define LWP_CAPS                (LWP_CAP_DATA_ADDRESS | LWP_CAP_PREDICTION | \
                                 LWP_CAP_IP_FILTER | LWP_CAP_CACHE_LEVELS | \
                                 LWP_CAP_CACHE_LATENCY)

#define LWP_RECORD_SIZE 32              /* LwpEventSize, bytes */
#define LWP_MIN_BUFFER  1               /* LwpMinBufferSize, 32 records each */
#define LWP_XSAVE_SIZE  128             /* §3.2, bytes */

/* An event record as it stands in the ring (Figure 2-1), host byte order. */
typedef struct LwpRecord {
    uint64_t q[LWP_RECORD_SIZE / 8];
} LwpRecord;

/* What this processor is; it does not change once the CPU exists. */
typedef struct LwpConfig {
    uint32_t features;      /* CPUID Fn8000_001C EDX */
    uint32_t caps;          /* the LWP_CAP_* bits of CPUID Fn8000_001C ECX */
    uint32_t latency_bits;  /* LwpLatencyMax */
    uint32_t latency_round; /* LwpLatencyRnd */
    RetireConfig model;
} LwpConfig;

#define LWP_LATENCY_BITS_MIN    10
#define LWP_LATENCY_BITS_MAX    31
#define LWP_LATENCY_ROUND_MAX   4

/* Which instructions are eligible (Table 6-2, IPF and IPI). */
typedef enum LwpIpFilter {
    LWP_IP_ALL,
    LWP_IP_NONE,
    LWP_IP_RANGE,           /* ip - ip_first <= ip_span, modulo 2^64 */
    LWP_IP_UNKNOWN,         /* none until BaseIP and LimitIP have been read */
} LwpIpFilter;

/* An enabled event that instructions cause, whatever they are. */
typedef struct LwpTimed {
    uint8_t event;
    uint32_t unit;          /* an instruction takes @rate @unit-ths */
    uint64_t rate;          /* off the counter */
} LwpTimed;

/* All zero is the reset state: LWP disabled, no feature available. */
typedef struct LwpState {
    uint64_t cfg;           /* LWP_CFG MSR (§4.2) */
    uint64_t cbaddr;        /* LWP_CBADDR MSR (§4.3); 0 while disabled */
    uint64_t base;          /* linear address of the ring */
    uint64_t prng;          /* source of the Random bits (Table 6-1) */
    uint64_t ip_first;      /* eligible instructions, see LwpIpFilter */
    uint64_t ip_span;
    uint64_t deferred_ip;   /* see lwp_boundary() */
    LwpRecord pending[LWP_NR_EVENTS];   /* gathered, not stored yet */
    int32_t counter[LWP_NR_EVENTS];     /* by EventId - 1; 26 bits, signed */
    uint32_t size;          /* of the ring, bytes; whole records */
    uint32_t head;          /* BufferHeadOffset, bytes; whole records */
    uint32_t flags;         /* enabled events, a subset of cfg's */
    uint32_t filters;       /* LWPCB.Filters as loaded */
    uint32_t ref_fraction;  /* of a reference clock, in LWP_REFCLK_UNITs */
    uint32_t npending;      /* the first is XSAVE's SavedEventRecord */
    uint8_t ip_filter;      /* LwpIpFilter */
    bool deferred;

    uint32_t away;          /* see lwp_boundary() */

    /* The rest follows from the above and from what has retired since. */
    LwpTimed timed[3];
    uint32_t nr_timed;
    /*
     * timed[0].event, if there is no other, nor BRE, and each instruction takes
     * 1 off its counter; else 0.
     */
    uint8_t only;
    bool started;           /* by XRSTOR, in it: this does not count itself */
    bool predicts;          /* branches are shown to the predictor */
    bool by_prediction;     /* and only that tells which of them count, */
    bool one_by_one;        /* or where they are: each is observed, */
    bool by_class;          /* or else they are counted by what they are */
    bool all_misses;        /* every miss counts */
    RetireWants wants;      /* see lwp_wants() */
} LwpState;

typedef struct LwpMem LwpMem;

/* Where the host has the LWPCB and the next slot of the ring, if not NULL. */
typedef struct LwpHost {
    uint8_t *cb, *slot;
} LwpHost;

#define LWP_CB_SIZE_MAX (128 + 8 * LWP_NR_EVENTS)

/*
 * Guest memory, always with user privilege (§5.1) and little-endian.  Any of
 * these may raise the guest's #PF instead of returning, and the instruction is
 * then restarted.  So the engine changes an LwpState only when no further
 * access can fail, but for two steps: LLWPCB has done with the old LWPCB
 * before it looks at the new one (§5.1 step 2), and lwp_boundary() notes
 * where it tried.
 */
typedef struct LwpMemOps {
    /*
     * Raise the #PF that a read or write of [addr, addr + len) would, unless
     * the first access does that early enough.
     */
    void (*probe)(LwpMem *mem, uint64_t addr, uint32_t len);
    /* Whether it would not. */
    bool (*writable)(LwpMem *mem, uint64_t addr, uint32_t len);
    uint32_t (*ld32)(LwpMem *mem, uint64_t addr);
    uint64_t (*ld64)(LwpMem *mem, uint64_t addr);
    /* To other processors, what was stored before it comes first. */
    void (*st32)(LwpMem *mem, uint64_t addr, uint32_t val);
    void (*st64)(LwpMem *mem, uint64_t addr, uint64_t val);
    void (*st_record)(LwpMem *mem, uint64_t addr, const LwpRecord *record);
    /*
     * Nothing can fail any more: @record is in the ring at @addr, or has been
     * missed there.  Interrupt with @vector, if that is not 0 (§8.5).  Called
     * if it is not, or if mem->reports.
     */
    void (*report)(LwpMem *mem, uint64_t addr, const LwpRecord *record,
                   bool missed, uint8_t vector);
} LwpMemOps;

struct LwpMem {
    const LwpMemOps *ops;
    const LwpConfig *config;
    LwpHost host;           /* for one record, if that is the first access */
    bool reports;
};

/* What the data segment lets a program reach. */
typedef struct LwpSegment {
    uint64_t base;          /* not used in 64-bit mode */
    uint64_t first, last;   /* writable offsets; first > last if none are */
    unsigned va_bits;       /* 64-bit mode: width of a linear address; else 0 */
} LwpSegment;

static inline bool lwp_enabled(const LwpState *s)
{
    return s->cbaddr != 0;
}

/* Whether lwp_boundary() has something to do. */
static inline bool lwp_busy(const LwpState *s)
{
    return s->npending || s->ip_filter == LWP_IP_UNKNOWN;
}

/* Whether storing a record is the first thing that lwp_boundary() does. */
static inline bool lwp_stores_first(const LwpState *s)
{
    return s->npending && !s->deferred && s->ip_filter != LWP_IP_UNKNOWN;
}

/* Whether DCache misses count (§2.4). */
static inline bool lwp_wants_loads(const LwpState *s)
{
    return s->flags & LWP_FLAG(LWP_EVENT_DME);
}

/* Whether the IP filter lets the instruction at effective address @ip count. */
static inline bool lwp_eligible(const LwpState *s, uint64_t ip)
{
    return s->ip_filter == LWP_IP_ALL ||
           (s->ip_filter == LWP_IP_RANGE && ip - s->ip_first <= s->ip_span);
}

/*
 * CPUID Fn8000_001C (§3.3).  @avail is XCR0[62]; @regs receives EAX, EBX, ECX
 * and EDX.
 */
void lwp_cpuid(const LwpConfig *config, uint64_t cfg, bool avail,
               uint32_t regs[4]);

/*
 * WRMSR to LWP_CFG (§4.2) and to LWP_CBADDR (§4.3).  Return false, with
 * nothing changed, where the instruction has to raise #GP.
 */
bool lwp_write_cfg(LwpState *s, const LwpConfig *config, uint64_t val);
bool lwp_write_cbaddr(LwpState *s, uint64_t val);

/*
 * Stop LWP and forget its internal state (§4.3, §7.5).  LWP_CFG stays, and so
 * does the generator of Random bits: it never tells anything of memory.
 */
void lwp_disable(LwpState *s);

/*
 * LLWPCB (§5.1) from step 2 on; @ea is the effective address of the new LWPCB,
 * already truncated to the operand size.  Returns false for #GP, with LWP
 * disabled.  Raises #PF with LWP as it was, if it was flushing, or disabled.
 */
bool lwp_llwpcb(LwpState *s, LwpMem *mem, const LwpSegment *ds, uint64_t ea);

/*
 * SLWPCB (§5.2).  Returns the LWPCB's effective address, 0 if LWP is disabled.
 * Raises #PF with nothing but, perhaps, a pending record stored.
 */
uint64_t lwp_slwpcb(LwpState *s, LwpMem *mem, const LwpSegment *ds);

/*
 * Count step of LWPVAL (§5.3) at effective address @ip.  Returns true if it
 * has to store a record; only then has the counter been left for lwp_insert()
 * to change.  Raises #PF if the IP filter has to be read first.
 */
bool lwp_val_due(LwpState *s, LwpMem *mem, uint64_t ip);

/*
 * Raise the #PF that storing the next record would, if any; LWP must be
 * enabled.  For a caller that must not do something twice before it stores.
 */
void lwp_probe_store(const LwpState *s, LwpMem *mem);

/*
 * Store step of LWPVAL (@event is LWP_EVENT_VAL) and LWPINS (LWP_EVENT_INS,
 * §5.4); LWP must be enabled.  @flags is the low half of the immediate, @ip
 * the effective address of the instruction, without CS base; @data2 is zero-
 * extended.  Returns true if the ring was full.  Raises #PF before anything
 * is counted.
 */
bool lwp_insert(LwpState *s, LwpMem *mem, unsigned event, uint16_t flags,
                uint32_t data1, uint64_t ip, uint64_t data2);

/* What LWP wants to know of the program while it runs at CPL 3. */
static inline RetireWants lwp_wants(const LwpState *s)
{
    /* No block is to be left out while the range is not known. */
    return lwp_busy(s) ? (s->wants & ~RETIRE_WANT_RANGE) | RETIRE_WANT_COUNT :
           s->wants;
}

/*
 * How much may retire before an instruction or a miss causes an event; only
 * shrinks @d.
 */
void lwp_distance(const LwpState *s, RetireDistance *d);

/* Count (§1.1 step 1) what retired, of which nothing causes an event. */
void lwp_count(LwpState *s, const LwpConfig *config, const RetireTotals *n);

/* Count and gather (§1.1 steps 1 and 2) for an instruction. */
void lwp_retire(LwpState *s, const LwpConfig *config, const RetireStory *story);

/*
 * For code of which @charged instructions have been charged: whether @miss
 * (§2.4) makes an event fall due, at the instruction itself or at one behind
 * it that has been charged.  The instruction then has to be run with
 * lwp_retire() behind it.  A NULL @miss stands for the worst that can happen.
 */
bool lwp_miss_due(const LwpState *s, const LwpConfig *config, uint32_t charged,
                  const RetireMiss *miss);

/* Count and gather (§1.1 steps 1 and 2) for a load that misses. */
void lwp_miss(LwpState *s, const LwpConfig *config, const RetireMiss *miss);

/*
 * Store gathered records, and read what XRSTOR could not restore (§8.2.5),
 * before the instruction at effective address @ip runs at CPL 3.  If that
 * faults, the next attempt is made when the program resumes at @ip; code that
 * runs elsewhere in the meantime, such as a signal handler, is left alone.  If
 * it does not come back (siglongjmp()), the store is made as soon as it is
 * found not to fault, which is looked at after every LWP_AWAY_MAX boundaries.
 * Returns false if there is still work for that reason.
 */
#define LWP_AWAY_MAX    65536

bool lwp_boundary(LwpState *s, LwpMem *mem, uint64_t ip);

/* XSAVE of component 62 (§7.3); LWP must be enabled. */
void lwp_xsave(const LwpState *s, uint8_t image[LWP_XSAVE_SIZE]);

/*
 * XRSTOR of component 62 (§7.4); a NULL @image stands for XSTATE_BV[62] = 0.
 * @ds is NULL at CPL 0, where the pointers in the image are trusted.
 */
void lwp_xrstor(LwpState *s, const LwpConfig *config,
                const uint8_t image[LWP_XSAVE_SIZE], const LwpSegment *ds);

/*
 * Take over a state from outside, of which the fields down to @away have
 * been set.  Returns false if this engine could not have reached it on this
 * CPU with XCR0[62] = @avail.
 */
bool lwp_load_state(LwpState *s, const LwpConfig *config, bool avail);

#endif
