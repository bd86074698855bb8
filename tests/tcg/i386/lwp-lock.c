/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Locked instructions of threads that are profiled at short intervals.  One
 * that is misaligned is executed alone; what follows it must not be.
 */

#define _GNU_SOURCE
#include "lwp.h"
#include <pthread.h>

enum { IRE = 2, CNH = 5, THREADS = 2, ROUNDS = 1000000, LOCKS = 8 };

static uint32_t count;

static void *work(void *ring)
{
    char own[128] __attribute__((aligned(64))) = { 0 };
    LwpCb cb;
    const uint32_t flags = 1u << IRE | 1u << CNH;

    if (ring) {
        lwp_init(&cb, ring, PAGE, flags);
        cb.event[IRE - 1].interval = cb.event[IRE - 1].counter = 41;
        cb.event[CNH - 1].interval = cb.event[CNH - 1].counter = 44;
        cb.tail = 1;
        llwpcb(&cb);
    }
    for (int i = 0; i < ROUNDS; i++) {
        asm volatile(".rept 6\n nop\n .endr\n"
                     "lock incl %0\n"
                     ".rept 8\n lock incl %1\n .endr"
                     : "+m" (*(uint32_t *)(own + 62)), "+m" (count));
    }
    llwpcb(NULL);
    return NULL;
}

int main(void)
{
    for (int profiled = 0; profiled < 2; profiled++) {
        pthread_t thread[THREADS];

        count = 0;
        for (int i = 0; i < THREADS; i++) {
            pthread_create(&thread[i], NULL, work, profiled ?
                           map_pages(1, PROT_READ | PROT_WRITE) : NULL);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(thread[i], NULL);
        }
        report(count == THREADS * ROUNDS * LOCKS,
               "profiled %d: %u increments are not lost", profiled,
               THREADS * ROUNDS * LOCKS);
    }
    return report_summary();
}
