/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * PTRACE_SINGLEBLOCK stops behind branches only: of a child that executes NOPs
 * and a JMP, once, at what that jumps to.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PTRACE_SINGLEBLOCK
#define PTRACE_SINGLEBLOCK 33
#endif

enum { FIRST = 1, TARGET = FIRST + 100 + 2 + 2 };   /* of code() */

static void __attribute__((naked)) code(void)
{
    asm("int3\n .skip 100, 0x90\n jmp 1f\n ud2\n 1: nop\n ud2");
}

int main(void)
{
    struct user_regs_struct regs;
    int status, stops = 0;
    long ip;
    pid_t child = fork();

    if (!child) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        code();
    }
    waitpid(child, &status, 0);
    do {
        if (ptrace(PTRACE_SINGLEBLOCK, child, 0, 0)) {
            perror("FAIL pmu-branches: PTRACE_SINGLEBLOCK");
            return 1;
        }
        waitpid(child, &status, 0);
        ptrace(PTRACE_GETREGS, child, 0, &regs);
        ip = regs.rip - (unsigned long)code;
        stops++;
    } while (ip >= FIRST && ip < TARGET);
    printf("%s pmu-branches: PTRACE_SINGLEBLOCK: stops %d times, "
           "at target%+ld\n", stops == 1 && ip == TARGET ? "PASS" : "FAIL",
           stops, ip - TARGET);
    kill(child, SIGKILL);
    return stops != 1 || ip != TARGET;
}
