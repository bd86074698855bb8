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

#define LWP_RECORD_SIZE 32              /* LwpEventSize, bytes */
#define LWP_MIN_BUFFER  1               /* LwpMinBufferSize, 32 records each */
#define LWP_XSAVE_SIZE  128             /* §3.2, bytes */

/* An event record as it stands in the ring (Figure 2-1), host byte order. */
typedef struct LwpRecord {
    uint64_t q[LWP_RECORD_SIZE / 8];
} LwpRecord;

/* All zero is the reset state: LWP disabled, no feature available. */
typedef struct LwpState {
    uint64_t cfg;           /* LWP_CFG MSR (§4.2) */
    uint64_t cbaddr;        /* LWP_CBADDR MSR (§4.3); 0 while disabled */
    uint64_t base;          /* linear address of the ring */
    uint64_t prng;          /* source of the Random bits (Table 6-1) */
    uint64_t pending_ip;    /* see lwp_store_pending() */
    LwpRecord pending;      /* SavedEventRecord; none if its EventId is 0 */
    int32_t counter[LWP_NR_EVENTS];     /* by EventId - 1; 26 bits, signed */
    uint32_t size;          /* of the ring, bytes; whole records */
    uint32_t head;          /* BufferHeadOffset, bytes; whole records */
    uint32_t flags;         /* enabled events, a subset of cfg's */
    uint32_t filters;       /* LWPCB.Filters as loaded */
    bool pending_deferred;
} LwpState;

typedef struct LwpMem LwpMem;

/*
 * Guest memory, always with user privilege (§5.1) and little-endian.  Any of
 * these may raise the guest's #PF instead of returning, and the instruction is
 * then restarted.  So the engine changes an LwpState only when no further
 * access can fail, but for two steps: LLWPCB has done with the old LWPCB
 * before it looks at the new one (§5.1 step 2), and lwp_store_pending() notes
 * where it tried.
 */
typedef struct LwpMemOps {
    /* Raise the fault that a read or write of [addr, addr + len) would. */
    void (*probe)(LwpMem *mem, uint64_t addr, uint32_t len);
    uint32_t (*ld32)(LwpMem *mem, uint64_t addr);
    uint64_t (*ld64)(LwpMem *mem, uint64_t addr);
    void (*st32)(LwpMem *mem, uint64_t addr, uint32_t val);
    void (*st64)(LwpMem *mem, uint64_t addr, uint64_t val);
} LwpMemOps;

struct LwpMem {
    const LwpMemOps *ops;
    uint32_t features;      /* CPUID Fn8000_001C EDX of this CPU */
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

static inline bool lwp_pending(const LwpState *s)
{
    return (s->pending.q[0] & 0xff) != 0;
}

/*
 * CPUID Fn8000_001C (§3.3).  @features is EDX, @avail is XCR0[62]; @regs
 * receives EAX, EBX, ECX and EDX.
 */
void lwp_cpuid(uint32_t features, uint64_t cfg, bool avail, uint32_t regs[4]);

/*
 * WRMSR to LWP_CFG (§4.2) and to LWP_CBADDR (§4.3).  Return false, with
 * nothing changed, where the instruction has to raise #GP.
 */
bool lwp_write_cfg(LwpState *s, uint32_t features, uint64_t val);
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
 * Count step of LWPVAL (§5.3).  Returns true if this instruction has to store
 * a record; only then has the counter been left for lwp_insert() to change.
 */
bool lwp_val_due(LwpState *s);

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

/*
 * Store the pending record, if any, before the instruction at effective
 * address @ip runs at CPL 3 (§7.4 step 3).  If that faults, the next attempt
 * is made when the program resumes at @ip; code that runs elsewhere in the
 * meantime, such as a signal handler, is left alone.  Returns false if the
 * record stays pending for that reason.
 */
bool lwp_store_pending(LwpState *s, LwpMem *mem, uint64_t ip);

/* XSAVE of component 62 (§7.3); LWP must be enabled. */
void lwp_xsave(const LwpState *s, uint8_t image[LWP_XSAVE_SIZE]);

/*
 * XRSTOR of component 62 (§7.4); a NULL @image stands for XSTATE_BV[62] = 0.
 * @ds is NULL at CPL 0, where the pointers in the image are trusted.
 */
void lwp_xrstor(LwpState *s, uint32_t features,
                const uint8_t image[LWP_XSAVE_SIZE], const LwpSegment *ds);

/*
 * Whether a state from outside is one that this engine could have reached on
 * a CPU with @features as CPUID Fn8000_001C EDX, and with XCR0[62] = @avail.
 */
bool lwp_state_valid(const LwpState *s, uint32_t features, bool avail);

#endif
