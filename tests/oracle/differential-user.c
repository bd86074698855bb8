/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a program of tests/oracle/differential runs in, in user mode: profiles
 * body() with each of its LWPCBs, and writes the LWPCB before and after, and
 * the ring, to stdout.  No C library: all that runs is the program's.
 *
 * A fault resumes at resume_at if that is set; else one of the guard page makes
 * it accessible, and the instruction starts again.
 */

#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include "differential.h"

#if UINTPTR_MAX > UINT32_MAX
#define SIGRETURN   "mov $15, %eax\n syscall\n"
#define IP          REG_RIP
#else
#define SIGRETURN   "mov $173, %eax\n int $0x80\n"
#define IP          REG_EIP
#endif

#ifndef RING_BYTES
#define RING_BYTES  32768
#endif

typedef struct Action {         /* the kernel's */
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
} Action;

uint64_t lwp_ring[RING_BYTES / 8] __attribute__((aligned(4096)));
asm(".bss\n"
    ".globl scratch, bad, guard, behind_guard\n"
    ".balign 4096\n"
    "scratch: .skip 4 * 4096\n"
    "bad: .skip 2 * 4096\n"
    "guard: .skip 4096\n"
    "behind_guard: .skip 4096\n"
    ".text\n");

static long call(long nr, long a, long b, long c, long d)
{
    long ret;

#if UINTPTR_MAX > UINT32_MAX
    register long r10 asm("r10") = d;

    asm volatile("syscall" : "=a" (ret)
                 : "a" (nr), "D" (a), "S" (b), "d" (c), "r" (r10)
                 : "rcx", "r11", "memory");
#else
    asm volatile("int $0x80" : "=a" (ret)
                 : "a" (nr), "b" (a), "c" (b), "d" (c), "S" (d) : "memory");
#endif
    return ret;
}

static void must(bool ok)
{
    if (!ok) {
        call(SYS_exit_group, 99, 0, 0, 0);
    }
}

asm("restore:\n" SIGRETURN);

static void on_signal(int sig, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    uintptr_t addr = (uintptr_t)info->si_addr;

    if (resume_at) {
        uc->uc_mcontext.gregs[IP] = resume_at;
        resume_at = 0;
    } else if (sig == SIGSEGV) {
        must(addr - (uintptr_t)guard < 4096);
        must(!call(SYS_mprotect, (long)guard, 4096, PROT_READ | PROT_WRITE,
                   0));
    } else {
        must(sig == SIGUSR1 || sig == SIGTRAP);
    }
}

static void out(const void *p, size_t n)
{
    must(call(SYS_write, 1, (long)p, n, 0) == n);
}

void start_user(void)
{
    static const uint8_t signals[] = {
        SIGSEGV, SIGILL, SIGFPE, SIGTRAP, SIGBUS, SIGUSR1
    };
    Action action = {
        .handler = on_signal, .flags = SA_SIGINFO | 0x04000000,
        .restorer = restore,
    };

    for (int i = 0; i < sizeof(signals); i++) {
        must(!call(SYS_rt_sigaction, signals[i], (long)&action, 0, 8));
    }
    must(!call(SYS_mprotect, (long)bad, 4096, PROT_NONE, 0));
    for (int i = 0; i < nr_sessions; i++) {
        uint8_t *cb = sessions[i];

        for (int j = 0; j < RING_BYTES / 8; j++) {
            lwp_ring[j] = RING_FILL * (UINT64_MAX / 255);
        }
        out(cb, CB_BYTES);
        asm volatile("llwpcb %0" : : "r" (cb) : "memory");
        body();
        asm volatile("llwpcb %0" : : "r" (NULL) : "memory");
        out(cb, CB_BYTES);
        out(lwp_ring, RING_BYTES);
        MARK();
    }
    call(SYS_exit_group, 0, 0, 0, 0);
}

asm(".globl _start\n_start: call start_user\n");
