// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * branchy at CPL 3 on a bare machine: ROUNDS of it, with Instructions Retired
 * at INTERVAL.  Says how many records that made.
 */
#include <stdio.h>
#include <stdlib.h>

/* volatile: or else there would be nothing to compute */
static volatile unsigned result;

#define main branchy
#define atoi(arg) ROUNDS
#define printf(format, sum) (result = (sum))
#include "branchy.c"
#undef main

#include "lwp-kernel.h"

/* A round is 155,000 instructions. */
static LwpRecord records[ROUNDS * 160000 / INTERVAL];
static LwpCb bench_cb = {
    .flags = 1 << 2, .size = sizeof(records), .base = (uintptr_t)records,
    .event[1] = { INTERVAL, INTERVAL },
};

static void user(void)
{
    char *argv[2];

    llwpcb(&bench_cb);
    branchy(2, argv);
    llwpcb(NULL);
}

int main(void)
{
    unsigned n;

    kernel_init();
    lwp_make_available();
    n = run_function(3, user) == EXIT ? bench_cb.head / sizeof(*records) : 0;
    for (unsigned unit = 1000000; unit; unit /= 10) {
        out8(0xe9, '0' + n / unit % 10);
    }
    return 0;
}
