/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling: a program for lwp-debug.py, which interrupts it
 * and goes on in single steps.  An event is always near, and so is an
 * interrupt of the timer.  EFLAGS.IF is clear: none is delivered, but QEMU
 * leaves the translated code for each.
 */

#include "lwp-kernel.h"

enum {
    IRE = 2, INTERVAL = 30, ROUNDS = 1000,

    PIT_CHANNEL0 = 0x40, PIT_MODE = 0x43, PIT_MODE2 = 0x34,
    PIT_CLOCKS = 50,            /* 42 us */
};

/* volatile: the debugger sets it, and then nothing ends the program */
volatile uint32_t lwp_forever;
uint32_t lwp_rounds;

asm(".text\n"
    "lwp_code:\n"
    "1: .fill 200, 1, 0x90\n"
    "   incl lwp_rounds(%rip)\n"
    "   cmpl $0, lwp_forever(%rip)\n"
    "   jne 1b\n"
    "   dec %ecx\n"
    "   jnz 1b\n"
    "   int $32\n"
    "lwp_code_end:\n");

int main(void)
{
    unsigned insns = ROUNDS * 205 + 1;

    kernel_init();
    out8(PIT_MODE, PIT_MODE2);
    out8(PIT_CHANNEL0, PIT_CLOCKS);
    out8(PIT_CHANNEL0, 0);
    lwp_make_available();
    prepare(1u << IRE);
    cb->event[IRE - 1].interval = cb->event[IRE - 1].counter = INTERVAL;
    llwpcb(user_cb);
    set_up(USER_CODE64, LABEL(lwp_code));
    regs.rcx = ROUNDS;
    report(run() == EXIT && lwp_rounds >= ROUNDS, "the program runs");
    report(cb->head / 32 + cb->missed >= (insns - 1) / (INTERVAL + 1),
           "and is recorded");
    return report_summary();
}
