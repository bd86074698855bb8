/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Locked instructions of threads that are profiled at short intervals.  One
 * that is misaligned is executed alone; what follows it must not be, and no
 * flag gets lost on the way.
 */

#define _GNU_SOURCE
#include "lwp.h"
#include <pthread.h>

enum { IRE = 2, CNH = 5, THREADS = 2, ROUNDS = 1000000, LOCKS = 8 };

static char shared[128] __attribute__((aligned(64)));
#define misaligned      (*(uint32_t *)(shared + 62))

static uint32_t count;

static void *work(void *ring)
{
    uintptr_t carries = 0;
    LwpCb cb;
    const uint32_t flags = 1u << IRE | 1u << CNH;

    if (ring) {
        lwp_init(&cb, ring, PAGE, flags);
        cb.event[IRE - 1].interval = cb.event[IRE - 1].counter = 4;
        cb.event[CNH - 1].interval = cb.event[CNH - 1].counter = 44;
        cb.tail = 1;
        llwpcb(&cb);
    }
    for (int i = 0; i < ROUNDS; i++) {
        asm volatile(".rept 6\n nop\n .endr\n"
                     "stc\n lock incl %0\n adc $0, %2\n"
                     ".rept 8\n lock incl %1\n .endr"
                     : "+m" (misaligned), "+m" (count), "+r" (carries)
                     : : "cc");
    }
    llwpcb(NULL);
    return (void *)carries;
}

int main(void)
{
    for (int profiled = 0; profiled < 2; profiled++) {
        pthread_t thread[THREADS];
        uintptr_t carries = 0;

        count = misaligned = 0;
        for (int i = 0; i < THREADS; i++) {
            pthread_create(&thread[i], NULL, work, profiled ?
                           map_pages(1, PROT_READ | PROT_WRITE) : NULL);
        }
        for (int i = 0; i < THREADS; i++) {
            void *result;

            pthread_join(thread[i], &result);
            carries += (uintptr_t)result;
        }
        report(misaligned == THREADS * ROUNDS && carries == THREADS * ROUNDS,
               "profiled %d: %u misaligned ones, and the carry in front of them",
               profiled, THREADS * ROUNDS);
        report(count == THREADS * ROUNDS * LOCKS,
               "profiled %d: %u increments are not lost", profiled,
               THREADS * ROUNDS * LOCKS);
    }
    return report_summary();
}
