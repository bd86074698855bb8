/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling: something to profile.  All that a program does to
 * make a translator's life hard, with a checksum.
 */
#ifndef TESTS_TCG_LWP_WORK_H
#define TESTS_TCG_LWP_WORK_H

#include "lwp.h"

#if TEST_64BIT
#define WORK_IP REG_RIP
#define WORK_CX REG_RCX
#define WORK_SP "rsp"
#else
#define WORK_IP REG_EIP
#define WORK_CX REG_ECX
#define WORK_SP "esp"
#endif

/* Instructions that have started more often than they have retired (§2.2) */
static unsigned not_retired;

static uint32_t fib(uint32_t n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static inline uint32_t work_integer(void)
{
    /* volatile: the compiler shall not see through the call */
    uint32_t (*volatile indirect)(uint32_t) = fib;
    uint32_t table[256], sum = 0;

    for (int i = 0; i < 256; i++) {
        uint32_t c = i;

        for (int k = 0; k < 8; k++) {
            c = c & 1 ? c >> 1 ^ 0xedb88320 : c >> 1;
        }
        table[i] = c;
    }
    for (int i = 0; i < 20000; i++) {
        sum = sum >> 8 ^ table[(sum ^ i) & 255];
    }
    return sum + indirect(16);
}

/* SSE, AVX and x87 */
__attribute__((target("avx2"), optimize("O3,tree-vectorize")))
static uint32_t work_vector(void)
{
    float a[512] = { 0 }, b[512] = { 0 };
    int c[512] = { 0 };
    long double x87 = 1;

    for (int k = 0; k < 20; k++) {
        for (int i = 0; i < 512; i++) {
            a[i] = a[i] * 1.25f + b[i] + k;
            b[i] = a[i] - i;
            c[i] = c[i] * 3 ^ k;
        }
        x87 = x87 * 1.5L + k;
    }
    return (uint32_t)a[17] + c[99] + (uint64_t)x87;
}

/*
 * QEMU starts a REP instruction again after every 64 Ki iterations; it counts
 * once.
 */
static inline uint32_t work_string(void)
{
    static uint8_t from[200000], to[200000];
    unsigned long n = sizeof(to);
    void *d = to, *s = from;
    uint32_t sum = 0;

    for (int i = 0; i < 1000; i++) {
        from[i * 199] = i;
    }
    asm volatile("rep movsb" : "+D" (d), "+S" (s), "+c" (n) : : "memory");
    not_retired += (sizeof(to) - 1) / 65536;
    for (int i = 0; i < 100; i++) {
        d = to + i;
        n = i;
        asm volatile("rep stosb" : "+D" (d), "+c" (n) : "a" (i) : "memory");
    }
    d = to;
    n = 5000;
    asm volatile("repne scasb" : "+D" (d), "+c" (n) : "a" (99) : "memory");
    for (int i = 0; i < (int)sizeof(to); i += 97) {
        sum = sum * 31 + to[i];
    }
    return sum + n;
}

/* What faults does not retire; it does when it has been mended. */
static void *work_page;
static bool work_stepping;
static uint32_t work_signals;

static inline void on_work_signal(int sig, siginfo_t *info, void *p)
{
    greg_t *regs = ((ucontext_t *)p)->uc_mcontext.gregs;

    work_signals = work_signals * 31 + sig;
    switch (sig) {
    case SIGSEGV:
        mprotect(work_page, PAGE, PROT_READ | PROT_WRITE);
        break;
    case SIGFPE:
        regs[WORK_CX] = 3;
        break;
    case SIGILL:
        regs[WORK_IP] += 2;
        break;
    case SIGTRAP:
        if (!work_stepping) {
            break;          /* INT3, which has entered the kernel */
        }
        return;             /* single step, behind an instruction */
    case SIGUSR1:
        return;
    }
    not_retired++;
}

static inline uint32_t work_signal(void)
{
    static const int sigs[] = { SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGUSR1 };
    uint32_t sum = 0;

    for (int i = 0; i < 5; i++) {
        catch(sigs[i], on_work_signal);
    }
    if (!work_page) {
        work_page = map_pages(1, PROT_NONE);
    }
    work_signals = 0;
    work_stepping = false;
    for (int i = 0; i < 5; i++) {
        unsigned long n = 100, ax = 1000, cx = 0, dx = 0;
        uint8_t *d = work_page;

        mprotect(work_page, PAGE, PROT_NONE);
        /* In the middle of a block, and in the middle of a REP */
        asm volatile("mov %1, %%edx\n inc %%edx\n addl $1, (%0)\n"
                     "inc %%edx\n dec %%edx"
                     : : "r" (work_page), "r" (i) : "edx", "memory");
        mprotect(work_page, PAGE, PROT_NONE);
        asm volatile("rep stosb" : "+D" (d), "+c" (n) : "a" (i) : "memory");
        asm volatile("nop\n div %%ecx\n nop" : "+a" (ax), "+d" (dx)
                     : "c" (cx));
        asm volatile("nop\n ud2\n nop");
        asm volatile("nop\n int3\n nop");
        kill(getpid(), SIGUSR1);
        sum = sum * 31 + *(uint8_t *)work_page + ax;
    }
    /* Single steps: every iteration of REP is one, and the last one its end. */
    work_stepping = true;
    asm volatile("mov $5, %%ecx\n"
                 "pushf\n orl $0x100, (%%" WORK_SP ")\n popf\n"
                 "nop\n cmp %%eax, %%eax\n jz 1f\n nop\n"
                 "1: rep stosb\n nop\n call 2f\n jmp 3f\n 2: ret\n"
                 "3: pushf\n andl $~0x100, (%%" WORK_SP ")\n popf\n nop"
                 : : "D" (work_page) : "ecx", "memory", "cc");
    not_retired += 4;
    return sum * 31 + work_signals;
}

/*
 * Code that changes.  When it writes to its own block, QEMU starts the
 * instruction again in a block of its own, unless it is in one anyway.
 */
static inline uint32_t work_changing_code(bool own_block)
{
    static const uint8_t code[] = {
        0xe8, 0, 0, 0, 0,                       /* call .+0 */
        0x5a,                                   /* pop %edx */
        0xc7, 0x42, 10, 1, 0, 0, 0,             /* movl $1, 10(%edx) */
        0x90,
        0xb8, 0, 0, 0, 0,                       /* mov $0, %eax */
        0x90,
        0xc3,
    };
    static uint8_t *p;
    uint32_t (*fn)(void);
    uint32_t sum = 0;

    if (!p) {
        p = map_pages(1, PROT_READ | PROT_WRITE | PROT_EXEC);
    }
    fn = (void *)(own_block ? p : p + 13);
    memcpy(p, code, sizeof(code));
    for (int i = 0; i < 10; i++) {
        p[own_block ? 9 : 15] = i;
        sum = sum * 31 + fn();
        not_retired += own_block;
    }
    return sum;
}

#endif
