// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * PROGRAM at CPL 3 and at CPL 0 on a bare machine, while performance counters
 * count EVENTS, a list of unit masks and events, and branches are recorded as
 * IA32_DEBUGCTL and MSR_LBR_SELECT have it.  FSIN, which nothing else here
 * executes, marks the ends of what is measured: at each CPL, WARM_UP rounds,
 * which are mostly translation, and ROUNDS more.
 */
#include <stdio.h>
#include <stdlib.h>

static int how_often;
/* volatile: or else there would be nothing to compute */
static volatile unsigned result;

#define main program
#define atoi(arg) how_often
#define printf(format, sum) (result = (sum))
#include PROGRAM
#undef main

#include "pmu-kernel.h"

static const uint16_t events[] = { EVENTS };

/* The debug store area and its buffer: there is a PMI for 2,500 records */
enum { DEBUGCTL_BTS = 1 << 7, MSR_DS_AREA = 0x600, MSR_LBR_SELECT = 0x1c8 };
static uint64_t records[3 * 2560], ds[4];

/* At CPL 3, so that it has a stack of its own */
static void __attribute__((naked)) on_pmi(void)
{
    asm("push %rax\n lea records(%rip), %rax\n mov %rax, 8 + ds(%rip)\n"
        "mov $0xfee00340, %eax\n movl $0x400, (%rax)\n pop %rax\n iretq");
}

static void record_branches(void)
{
    if (DEBUGCTL & DEBUGCTL_BTS) {
        apic_init(LVT_NMI);
        set_handler(2, on_pmi);
        ds[0] = ds[1] = (uintptr_t)records;
        ds[2] = ds[0] + sizeof(records);
        ds[3] = ds[0] + 24 * 2500;
        wrmsr(MSR_DS_AREA, (uintptr_t)ds);
    }
    if (SELECT) {
        wrmsr(MSR_LBR_SELECT, SELECT);
    }
    if (DEBUGCTL) {
        wrmsr(MSR_DEBUGCTL, DEBUGCTL);
    }
}

static void mark(void)
{
    asm volatile("fldz\n fsin\n fstp %st(0)");
}

static void run_program(void)
{
    char *argv[2];

    program(2, argv);
}

static void measure(int cpl)
{
    mark();
    how_often = WARM_UP;
    run_function(cpl, run_program);
    mark();
    how_often = ROUNDS;
    run_function(cpl, run_program);
}

int main(void)
{
    int counters = sizeof(events) / sizeof(events[0]);

    kernel_init();
    for (int i = 0; i < counters; i++) {
        wrmsr(MSR_EVTSEL(i), events[i] | EVTSEL_USR | EVTSEL_OS | EVTSEL_EN);
    }
    if (counters) {
        wrmsr(MSR_GLOBAL_CTRL, (1 << counters) - 1);
    }
    record_branches();
    measure(3);
    measure(0);
    mark();
    return 0;
}
