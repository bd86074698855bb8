/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * usage: rr-threads [ROUNDS]
 *
 * Something for rr to record: threads that pass work to each other, with locks,
 * conditions and atomic operations, in an order that differs from run to run.
 * Its output says in which.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, QUEUE = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned queue[QUEUE], queued;
static unsigned order = 1;          /* of who came when; with @lock */
static atomic_uint spins;

static unsigned work(unsigned x)
{
    for (int i = 0; i < 200; i++) {
        x = x & 1 ? x / 2 ^ 0xedb88320 : x / 2;
    }
    return x;
}

static void *take(void *arg)
{
    unsigned self = (unsigned *)arg - queue, x, old;

    do {
        pthread_mutex_lock(&lock);
        while (!queued) {
            pthread_cond_wait(&changed, &lock);
        }
        x = queue[--queued];
        order = order * 31 + self;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        /* Try again until nobody else has come between. */
        old = spins;
        while (x && !atomic_compare_exchange_weak(&spins, &old,
                                                  work(old + x))) {
            ;
        }
    } while (x);
    return NULL;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 300;
    pthread_t thread[THREADS];

    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&thread[i], NULL, take, queue + i)) {
            return 1;
        }
    }
    /* Zeros end them. */
    for (int i = rounds + THREADS; i-- > 0; ) {
        pthread_mutex_lock(&lock);
        while (queued == QUEUE) {
            pthread_cond_wait(&changed, &lock);
        }
        queue[queued++] = i < THREADS ? 0 : i;
        order = order * 31 + THREADS;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
    printf("order %u, spins %u\n", order, spins);
    return 0;
}
