/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling: what all its tests share.
 *
 * Sections (§) and tables are those of AMD publication 43724, revision 3.08.
 */
#ifndef TESTS_TCG_LWP_H
#define TESTS_TCG_LWP_H

#include "report.h"

/* EventId values (Table 2-1). */
enum { LWP_VAL = 1, LWP_INS = 255 };

/* LWPCB.Filters (Table 6-2) */
#define FILTER_CLF      (1u << 8)
#define FILTER_NBC      (1u << 9)
#define FILTER_RDC      (1u << 10)
#define FILTER_RAM      (1u << 11)
#define FILTER_OTH      (1u << 12)
#define FILTER_NMB      (1u << 25)
#define FILTER_NPB      (1u << 26)
#define FILTER_NAB      (1u << 27)
#define FILTER_NCB      (1u << 28)
#define FILTER_NRB      (1u << 29)
#define FILTER_IPI      (1u << 30)
#define FILTER_IPF      (1u << 31)

#define LWP_AVAIL       (1u << 0)
#define LWP_FLAG_VAL    (1u << LWP_VAL)
#define LWP_FLAG_INT    (1u << 31)
#define LWP_MIN_RING    1024u
#define LWP_XSTATE      (1ull << 62)

typedef struct LwpCb {          /* Table 6-1 */
    uint32_t flags;
    uint32_t size;              /* BufferSize; Random in bits 31:28 */
    uint64_t base;
    uint32_t head;
    uint32_t reserved0;
    uint64_t missed;
    uint32_t threshold;
    uint32_t filters;
    uint64_t base_ip, limit_ip;
    uint64_t reserved1;
    uint32_t tail;
    uint32_t reserved2;
    uint64_t software[2];
    uint64_t reserved3[5];
    struct {
        int32_t interval, counter;
    } event[6];                 /* by EventId - 1 */
} LwpCb;

typedef struct LwpRecord {      /* Figure 2-1 */
    uint8_t event, core;
    uint16_t flags;
    uint32_t data1;
    uint64_t ip, data2, reserved;
} LwpRecord;

typedef struct LwpImage {       /* Table 7-1 */
    uint64_t cb;
    uint32_t flags, head;
    uint64_t base;
    uint32_t size, filters;
    LwpRecord saved;
    int32_t counter[16];
} LwpImage;

typedef struct XsaveArea {
    uint8_t legacy[512];
    uint64_t xstate_bv, xcomp_bv, header[6];
    uint8_t avx[256];
    LwpImage lwp;               /* §3.2: at 832 */
} __attribute__((aligned(64))) XsaveArea;

_Static_assert(offsetof(LwpCb, tail) == 64, "Table 6-1");
_Static_assert(offsetof(LwpCb, event) == 128, "Table 6-1");
_Static_assert(sizeof(LwpRecord) == 32, "Figure 2-1");
_Static_assert(sizeof(LwpImage) == 128, "Table 7-1");
_Static_assert(offsetof(XsaveArea, lwp) == 832, "section 3.2");

/* LwpCbSize (Table 3-1) in bytes. */
static inline uint32_t lwp_cb_size(void)
{
    return (cpuid_reg(0x8000001c, 0, 1) & 0xff) * 8;
}

/* InstructionAddress of the LWPINS or LWPVAL that ran last. */
static unsigned long lwp_ip __attribute__((unused));

#if TEST_64BIT
#define LWP_HERE(reg) "lea 77f(%%rip), " reg "\n77:"
#else
#define LWP_HERE(reg) \
    "call 76f\n" \
    "76: pop " reg "\n" \
    "add $77f - 76b, " reg "\n" \
    "77:"
#endif

static inline void llwpcb(const void *cb)
{
    asm volatile("llwpcb %0" : : "r" (cb) : "memory");
}

static inline void *slwpcb(void)
{
    void *cb;

    asm volatile("slwpcb %0" : "=r" (cb) : : "memory");
    return cb;
}

/* Operands in the order of the specification; returns CF. */
#define lwpins(data2, data1, imm) \
    ({ \
        bool cf_; \
        asm volatile(LWP_HERE("%0") "lwpins %4, %2, %3" \
                     : "=&r" (lwp_ip), "=@ccc" (cf_) \
                     : "r" ((uint32_t)(data1)), \
                       "r" ((unsigned long)(data2)), "i" (imm) \
                     : "memory"); \
        cf_; \
    })

#define lwpval(data2, data1, imm) \
    asm volatile(LWP_HERE("%0") "lwpval %3, %1, %2" \
                 : "=&r" (lwp_ip) \
                 : "r" ((uint32_t)(data1)), \
                   "r" ((unsigned long)(data2)), "i" (imm) \
                 : "memory")

/* XSAVE and XRSTOR of the components in @mask. */
static inline void xsave(XsaveArea *area, uint64_t mask)
{
    asm volatile("xsave %0" : "+m" (*area)
                 : "a" ((uint32_t)mask), "d" ((uint32_t)(mask >> 32))
                 : "memory");
}

static inline void xrstor(const XsaveArea *area, uint64_t mask)
{
    asm volatile("xrstor %0" : : "m" (*area),
                 "a" ((uint32_t)mask), "d" ((uint32_t)(mask >> 32))
                 : "memory");
}

/* An LWPCB for a ring of @size bytes that counts @flags. */
static inline void lwp_init(LwpCb *cb, const void *ring, uint32_t size,
                            uint32_t flags)
{
    *cb = (LwpCb) {
        .flags = flags, .size = size, .base = (uintptr_t)ring,
    };
}

/* Whether all 32 bytes are as they should be. */
static inline bool record_is(const LwpRecord *r, int event, uint16_t flags,
                             uint32_t data1, uint64_t ip, uint64_t data2)
{
    return r->event == event && r->core == 0 && r->flags == flags &&
           r->data1 == data1 && r->ip == ip && r->data2 == data2 &&
           r->reserved == 0;
}

#ifndef TEST_KERNEL
/* User mode: faults arrive as signals. */

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096

/*
 * Run @code from LLWPCB of @cb to LLWPCB of 0; the XOR that makes that 0
 * counts, too.  It may push: no caller is a leaf function that has a red zone
 * in use.
 */
#define lwp_profile(cb, code) \
    asm volatile("llwpcb %0\n" code "\nxor %%eax, %%eax\n" \
                 "llwpcb " R "ax" \
                 : : "r" (cb) \
                 : "eax", "ecx", "edx", "esi", "edi", "memory", "cc")

#if TEST_64BIT
#define UC_IP(uc) ((uc)->uc_mcontext.gregs[REG_RIP])
#else
#define UC_IP(uc) ((uc)->uc_mcontext.gregs[REG_EIP])
#endif

static siginfo_t fault;
static uintptr_t fault_ip;
static sigjmp_buf fault_return;

static inline void on_fault(int sig, siginfo_t *info, void *uc)
{
    fault = *info;
    fault_ip = UC_IP((ucontext_t *)uc);
    siglongjmp(fault_return, 1);
}

static inline void catch(int sig, void (*fn)(int, siginfo_t *, void *))
{
    struct sigaction sa = { .sa_sigaction = fn, .sa_flags = SA_SIGINFO };

    sigaction(sig, &sa, NULL);
}

/* The signal that @stmt gets while on_fault() handles it, or 0. */
#define faults(stmt) \
    ({ \
        memset(&fault, 0, sizeof(fault)); \
        if (!sigsetjmp(fault_return, 1)) { \
            stmt; \
        } \
        fault.si_signo; \
    })

/* #GP has no address; #PF has one. */
static inline bool fault_is_gp(void)
{
    return fault.si_signo == SIGSEGV && fault.si_code == SI_KERNEL;
}

static inline bool fault_is_pf(const void *page)
{
    return fault.si_signo == SIGSEGV && fault.si_code != SI_KERNEL &&
           (uintptr_t)fault.si_addr / PAGE == (uintptr_t)page / PAGE;
}

/* Zeroed pages; below 4 GiB, so that a 32-bit register can hold them. */
static inline void *map_pages(int pages, int prot)
{
    static uintptr_t next = 0x10000000;
    void *p = mmap((void *)next, pages * PAGE, prot,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    if (p == MAP_FAILED) {
        perror("mmap");
        exit(EXIT_FAILURE);
    }
    next += (pages + 16) * PAGE;
    return p;
}
#endif

#endif
