/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Work that never leaves the middle of a block, under LWP: lwp-blocks.py says
 * which event, with which interval and filters.
 */

#define _GNU_SOURCE
#include "../i386/lwp-work.h"

static LwpRecord ring[1024];

int main(int argc, char **argv)
{
    unsigned event = argc > 3 ? atoi(argv[1]) : 0;
    LwpCb cb;
    uint32_t sum;

    if (event) {
        lwp_init(&cb, ring, sizeof(ring), 1u << event);
        cb.event[event - 1].interval = atoi(argv[2]);
        cb.event[event - 1].counter = atoi(argv[2]);
        cb.filters = atoll(argv[3]);
        cb.base_ip = (uintptr_t)fib;
        cb.limit_ip = cb.base_ip + 8;
        llwpcb(&cb);
    }
    sum = work_integer() + work_vector() + work_string();
    llwpcb(NULL);
    printf("checksum %x\n", sum);
    return event && !cb.head && !cb.missed;
}
