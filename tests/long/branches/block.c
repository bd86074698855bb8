/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * PTRACE_SINGLEBLOCK stops behind branches only: of a child that executes NOPs and
 * a JMP, once, at what that jumps to.
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

void code(void);
extern const char first[], target[];
asm("code: int3\n"
    "first: .skip 100, 0x90\n"
    "jmp target\n"
    "ud2\n"
    "target: nop\n"
    "ud2\n");

int main(void)
{
    struct user_regs_struct regs;
    int status, stops = 0;
    const char *ip;
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
        ip = (const char *)regs.rip;
        stops++;
    } while (ip >= first && ip < target);
    printf("%s pmu-branches: PTRACE_SINGLEBLOCK: stops %d times, at target%+td\n",
           stops == 1 && ip == target ? "PASS" : "FAIL", stops, ip - target);
    kill(child, SIGKILL);
    return stops != 1 || ip != target;
}
