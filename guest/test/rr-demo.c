/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A program to debug backwards, for scripts/boot --rr.
 *
 * In each run another booking goes one place too far and overwrites the limit,
 * which is noticed much later: there is nothing to set a breakpoint on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define ACCOUNTS 64
#define BOOKINGS 5000

static struct {
    int account[ACCOUNTS];
    int limit;
} bank = { .limit = 1000 };

static void book(int place, int amount)
{
    bank.account[place] += amount; /* too far */
}

int main(void)
{
    unsigned short seed[3];
    int wrong;

    if (getrandom(seed, sizeof(seed), 0) != sizeof(seed)) {
        return 2;
    }
    wrong = nrand48(seed) % BOOKINGS;
    for (int i = 0; i < BOOKINGS; i++) {
        book(i == wrong ? ACCOUNTS : nrand48(seed) % ACCOUNTS, i % 7 + 1);
    }
    if (bank.limit != 1000) {
        fprintf(stderr, "rr-demo: the limit is %d\n", bank.limit);
        abort();
    }
    return 0;
}
