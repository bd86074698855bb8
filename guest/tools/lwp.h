/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * liblwp: AMD Lightweight Profiling of the calling thread.
 *
 * Section, table and figure numbers refer to AMD publication 43724, revision
 * 3.08.
 */
#ifndef LWP_H
#define LWP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* EventId values (Table 2-1). */
enum {
    LWP_VAL = 1,            /* Programmed Value Sample */
    LWP_IRE,                /* Instructions Retired */
    LWP_BRE,                /* Branches Retired */
    LWP_DME,                /* DCache Misses */
    LWP_CNH,                /* CPU Clocks not Halted */
    LWP_RNH,                /* CPU Reference Clocks not Halted */
    LWP_INS = 255,          /* Programmed Event */
};

#define LWP_NR_EVENTS       LWP_RNH     /* that have a counter */

/* Bits of LWPCB.Flags, LWP_CFG and CPUID Fn8000_001C EAX and EDX. */
#define LWP_FLAG_AVAIL      (1u << 0)
#define LWP_FLAG(event)     (1u << (event))
#define LWP_FLAG_INT        (1u << 31)

/* An event record (Figure 2-1). */
typedef struct LwpRecord {
    uint8_t event;          /* EventId */
    uint8_t core;           /* CoreId */
    uint16_t flags;
    uint32_t data1;
    uint64_t ip;            /* InstructionAddress */
    uint64_t data2;         /* branch target, data address or user data */
    uint64_t reserved;
} LwpRecord;

/* Bits of flags of an LWP_BRE record (Figure 2-4). */
#define LWP_BRANCH_PRV      (1u << 13)  /* PRD is valid */
#define LWP_BRANCH_PRD      (1u << 14)  /* was predicted */
#define LWP_BRANCH_TKN      (1u << 15)  /* was taken */

/* Those of an LWP_DME record, of which data1 is the latency (Figure 2-5). */
#define LWP_MISS_DAV        (1u << 12)  /* data2 is the data's address */
#define LWP_MISS_SOURCE(flags)  ((flags) >> 13)

/* Counter of an event in the LWPCB. */
typedef struct LwpEventCounter {
    int32_t interval;       /* 26 bits */
    int32_t counter;
} LwpEventCounter;

/* The control block (Table 6-1) of LWP version 1; events are at offset 128. */
typedef struct LwpCb {
    uint32_t flags;
    uint32_t size;          /* BufferSize; Random in bits 31:28 */
    uint64_t base;
    uint32_t head;
    uint32_t reserved1;
    uint64_t missed;
    uint32_t threshold;
    uint32_t filters;
    uint64_t base_ip;
    uint64_t limit_ip;
    uint64_t reserved2;
    uint32_t tail;
    uint32_t reserved3;
    uint64_t software[2];
    uint8_t reserved4[40];
    LwpEventCounter event[LWP_NR_EVENTS];   /* by EventId - 1 */
} LwpCb;

_Static_assert(sizeof(LwpRecord) == 32, "Figure 2-1");
_Static_assert(offsetof(LwpCb, tail) == 64, "Table 6-1");
_Static_assert(offsetof(LwpCb, event) == 128, "LwpEventOffset");

/* Bits of filters (Figure 6-3); bits 7:0 are the least latency / 16. */
#define LWP_FILTER_LATENCY  0xffu
#define LWP_FILTER_CLF      (1u << 8)   /* only misses served by one of: */
#define LWP_FILTER_NBC      (1u << 9)
#define LWP_FILTER_RDC      (1u << 10)
#define LWP_FILTER_RAM      (1u << 11)
#define LWP_FILTER_OTH      (1u << 12)
#define LWP_FILTER_NMB      (1u << 25)  /* no mispredicted branches */
#define LWP_FILTER_NPB      (1u << 26)  /* no predicted ones */
#define LWP_FILTER_NAB      (1u << 27)  /* no absolute (indirect) ones */
#define LWP_FILTER_NCB      (1u << 28)  /* no conditional ones */
#define LWP_FILTER_NRB      (1u << 29)  /* no unconditional relative ones */
#define LWP_FILTER_IPI      (1u << 30)  /* with IPF: outside instead */
#define LWP_FILTER_IPF      (1u << 31)  /* only base_ip..limit_ip */

/* One record is stored for this many events at most: the field has 26 bits. */
#define LWP_MAX_PERIOD      (1u << 25)

/* What CPUID says, decoded (Table 3-1). */
typedef struct LwpInfo {
    uint32_t eax, ebx, ecx, edx;    /* Fn8000_001C, 0 if there is no LWP */
    bool supported;         /* the CPU has LWP */
    bool available;         /* and the operating system lets programs use it */
    uint32_t events;        /* that are available: a set of LWP_FLAG() */
    unsigned version;
    unsigned cb_size;       /* of an LWPCB, bytes */
    unsigned event_offset;  /* in an LWPCB, bytes */
    unsigned record_size;   /* bytes */
    unsigned max_event;     /* greatest EventId, LWP_INS apart */
    unsigned min_records;   /* that a ring has to have room for */
} LwpInfo;

typedef struct LwpOptions {
    /* To be counted: LWP_FLAG()s; with LWP_FLAG_INT for interrupts. */
    uint32_t events;
    /* One record for so many events: 1..LWP_MAX_PERIOD, if counted. */
    uint32_t period[LWP_NR_EVENTS];     /* by EventId - 1 */
    /* That the ring has room for: 2..2^23 - 1, min_records at least. */
    uint32_t records;
    uint32_t threshold;     /* records in the ring that cause an interrupt */
    uint32_t filters;       /* a set of LWP_FILTER_* */
    uint32_t random;        /* low bits of the period that vary, 0..15 */
    uint64_t base_ip __attribute__((aligned(8)));   /* first address */
    uint64_t limit_ip;      /* last address */
} LwpOptions;

/* One thread's control block and ring.  Only that thread may enable it. */
typedef struct LwpSession LwpSession;

typedef void LwpCallback(const LwpRecord *record, void *opaque);

LwpInfo lwp_detect(void);

/* The bits of LWPCB.Filters that the CPU does not ignore (Table 3-1). */
uint32_t lwp_filters(const LwpInfo *info);

/*
 * lwp_open() makes a session for the calling thread.  It returns NULL and sets
 * errno, about which lwp_strerror() knows more than strerror(), to
 * ENODEV           if this CPU has no LWP,
 * ENOSYS           if the operating system has not made LWP available,
 * EPROTONOSUPPORT  if this version of LWP is unknown,
 * EOPNOTSUPP       if an event in options->events is not available,
 * ERANGE           if this CPU does not have a filter in options->filters,
 * EINVAL           if another option is out of range, or
 * ENOMEM.
 */
LwpSession *lwp_open(const LwpOptions *options);
const char *lwp_strerror(int error);

/*
 * Start, or go on.  False, with errno set to EBUSY, if something else in this
 * thread has enabled LWP, or to ENOSYS, if the operating system has taken LWP
 * away since.  Counters go on where lwp_disable() left them.
 */
bool lwp_enable(LwpSession *session);
void lwp_disable(LwpSession *session);

/*
 * Empty the ring: pass each record to the callback, the oldest first, and
 * return how many there were.  Any thread may do this, but one at a time; only
 * for the session's own thread is it sure that nothing waits in the CPU.  The
 * callback is profiled if LWP is enabled in the thread that calls.
 */
size_t lwp_drain(LwpSession *session, LwpCallback *callback, void *opaque);

/* Records that found the ring full since lwp_open(), and were not stored. */
uint64_t lwp_missed(const LwpSession *session);

/*
 * How many events there were since lwp_open(), sampled or not: exact if random
 * is 0 and no record was missed.  For the session's own thread.
 */
uint64_t lwp_count(LwpSession *session, int event);

/*
 * Stop profiling the calling thread, by whatever it is that has enabled LWP:
 * "lwp record", "lwp stat" or a session; and go on.  Both do nothing if there
 * is nothing to stop or to go on with.  Code in between is not counted.
 */
void lwp_pause(void);
void lwp_resume(void);

/* Disable it, if it is enabled, and free it.  NULL does nothing. */
void lwp_close(LwpSession *session);

#endif
