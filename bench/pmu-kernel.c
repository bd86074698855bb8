// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * branchy at CPL 3 and at CPL 0 on a bare machine, while performance counters
 * count EVENTS, a list of unit masks and events.  FSIN, which nothing else here
 * executes, marks the ends of what is measured: at each CPL, WARM_UP rounds,
 * which are mostly translation, and ROUNDS more.
 */
#include <stdio.h>
#include <stdlib.h>

static int how_often;
/* volatile: or else there would be nothing to compute */
static volatile unsigned result;

#define main branchy
#define atoi(arg) how_often
#define printf(format, sum) (result = (sum))
#include "branchy.c"
#undef main

#include "pmu-kernel.h"

static const uint16_t events[] = { EVENTS };

static void mark(void)
{
    asm volatile("fldz\n fsin\n fstp %st(0)");
}

static void run_branchy(void)
{
    char *argv[2];

    branchy(2, argv);
}

static void measure(int cpl)
{
    mark();
    how_often = WARM_UP;
    run_function(cpl, run_branchy);
    mark();
    how_often = ROUNDS;
    run_function(cpl, run_branchy);
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
    measure(3);
    measure(0);
    mark();
    return 0;
}
