// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * usage: pmu-share alone | shared | turns | padded ROUNDS
 *
 * Two threads on two CPUs count, each in a variable of its own: of one line,
 * which they may do in turns, or of two.  Or one thread counts alone.
 */
#define _GNU_SOURCE
#include <err.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE    64

/* volatile: each count is an access */
typedef volatile long Count;

static struct {
    Count first;
    long unused[4];
    Count second;
} shared __attribute__((aligned(2 * LINE)));

static struct {
    Count first;
    char unused[2 * LINE - sizeof(Count)];
    Count second;
} padded __attribute__((aligned(2 * LINE)));

static long rounds;
static bool in_turns;

static void *count(void *var)
{
    Count *n = var;
    Count *other = n == &shared.first ? &shared.second : &shared.first;
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(n == &shared.second || n == &padded.second, &set);
    if (sched_setaffinity(0, sizeof(set), &set)) {
        err(1, "sched_setaffinity");
    }
    for (long i = 0; i < rounds; i++) {
        while (in_turns && *other < i) {
            __builtin_ia32_pause();
        }
        (*n)++;
    }
    return NULL;
}

int main(int argc, char *argv[])
{
    Count *first = &shared.first, *second = &shared.second;
    pthread_t thread;

    if (argc != 3) {
        errx(1, "usage: pmu-share alone | shared | turns | padded ROUNDS");
    }
    rounds = atol(argv[2]);
    in_turns = !strcmp(argv[1], "turns");
    if (!strcmp(argv[1], "padded")) {
        first = &padded.first;
        second = &padded.second;
    }
    if (!strcmp(argv[1], "alone")) {
        count((void *)first);
        return 0;
    }
    if (pthread_create(&thread, NULL, count, (void *)second)) {
        errx(1, "pthread_create");
    }
    count((void *)first);
    pthread_join(thread, NULL);
    printf("%ld\n", *first + *second);
    return 0;
}
