/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Instructions Retired from the first instruction to the last (§2.2), for
 * lwp-count.py to compare with what a TCG plugin has counted.
 *
 * LWP runs from the entry point of the program on, so that the C library's
 * start-up code is part of it, too.  At the end the LWPCB goes to file
 * descriptor 1, and with it what this program knows to have started without
 * retiring, which is what the plugin counts more.
 */

#define _GNU_SOURCE
#include <sched.h>
#include "../i386/lwp-work.h"

#ifndef INTERVAL
#define INTERVAL 0x1ffffff
#endif

#define RING_SIZE   32768

/* What lwp-count.py reads. */
struct Result {
    LwpCb cb;
    uint32_t not_retired, outside;
};

static LwpRecord ring[2][RING_SIZE / sizeof(LwpRecord)];

#define CB(n) { \
    .flags = 1u << 2, .size = RING_SIZE, .base = (uint64_t)ring[n], \
    .event[1] = { INTERVAL, INTERVAL }, \
}

struct Result result[2] = {
    { .cb = CB(0), .outside = 2 + 9 }, { .cb = CB(1), .outside = 4 + 9 }
};

/* Outside LWP: two instructions here and nine in FINISH(). */
asm(".globl lwp_entry\n"
    "lwp_entry:\n"
    "    lea result(%rip), %rax\n"
    "    llwpcb %rax\n"
    "    jmp _start\n");

#define FINISH(result_, exit_nr) \
    asm volatile("xor %%eax, %%eax\n" \
                 "llwpcb %%rax\n" \
                 "mov $1, %%eax\n" \
                 "mov $1, %%edi\n" \
                 "mov %0, %%rsi\n" \
                 "mov %1, %%edx\n" \
                 "syscall\n" \
                 "mov %2, %%eax\n" \
                 "xor %%edi, %%edi\n" \
                 "syscall" \
                 : : "r" (result_), "i" (sizeof(struct Result)), \
                 "i" (exit_nr) \
                 : "rax", "rcx", "rdx", "rsi", "rdi", "r11", "memory")

/* A second thread, with four instructions in front of LWP's first. */
#define CLONE_FLAGS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | \
                     CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID)

static uint8_t stack[65536] __attribute__((aligned(16)));
/* volatile: the kernel clears it when the thread has gone */
static volatile int thread_runs = 1;

void thread(void)
{
    work_integer();
    work_vector();
    FINISH(&result[1], 60);
}

static void start_thread(void)
{
    asm volatile("mov $56, %%eax\n"
                 "mov %1, %%r10\n"
                 "syscall\n"
                 "test %%eax, %%eax\n"
                 "jnz 1f\n"
                 "lea %2, %%rax\n"
                 "llwpcb %%rax\n"
                 "call thread\n"
                 "1:"
                 : : "D" (CLONE_FLAGS), "r" (&thread_runs), "m" (result[1]),
                 "S" (stack + sizeof(stack)), "d" (0)
                 : "rax", "rcx", "r8", "r9", "r10", "r11", "memory");
}

int main(int argc, char **argv)
{
    bool threads = argc > 1 && !strcmp(argv[1], "threads");

    if (threads) {
        start_thread();
    }
    work_integer();
    work_vector();
    work_string();
    work_signal();
    work_changing_code(false);
    if (argc > 1 && !strcmp(argv[1], "own-block")) {
        work_changing_code(true);
    }
    while (threads && thread_runs) {
        usleep(1000);
    }
    result[0].not_retired = not_retired;
    FINISH(&result[0], 231);
    return 0;
}
