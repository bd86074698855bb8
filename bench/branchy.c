// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A small program with short blocks: calls, loops, unpredictable branches and
 * an indirect jump per step.  The argument is the number of rounds.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define N 512

static uint32_t heap[N];

static void __attribute__((noinline)) sift(uint32_t root, uint32_t end)
{
    while (2 * root + 1 < end) {
        uint32_t child = 2 * root + 1;
        uint32_t t = heap[root];

        if (child + 1 < end && heap[child] < heap[child + 1]) {
            child++;
        }
        if (t >= heap[child]) {
            return;
        }
        heap[root] = heap[child];
        heap[child] = t;
        root = child;
    }
}

static uint32_t fib(uint32_t n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

/* A byte code machine: what it does is up to its input. */
static uint32_t interpret(uint32_t seed, uint32_t steps)
{
    uint32_t acc = 0;

    while (steps--) {
        seed = seed * 1103515245 + 12345;
        switch (seed >> 29) {
        case 0:
            acc += seed;
            break;
        case 1:
            acc ^= seed >> 3;
            break;
        case 2:
            acc = acc << 5 | acc >> 27;
            break;
        case 3:
            acc -= 7;
            break;
        case 4:
            if (acc & 1) {
                acc = 3 * acc + 1;
            }
            break;
        case 5:
            acc ^= acc >> 16;
            break;
        case 6:
            acc += acc << 3;
            break;
        default:
            acc = ~acc;
        }
    }
    return acc;
}

int main(int argc, char **argv)
{
    uint32_t rounds = argc > 1 ? atoi(argv[1]) : 1;
    uint32_t sum = 0;

    for (uint32_t r = 0; r < rounds; r++) {
        uint32_t seed = r + 1;

        for (uint32_t i = 0; i < N; i++) {
            seed = seed * 1664525 + 1013904223;
            heap[i] = seed >> 8;
        }
        for (uint32_t i = N / 2; i-- > 0;) {
            sift(i, N);
        }
        for (uint32_t i = N; i-- > 1;) {
            uint32_t t = heap[0];

            heap[0] = heap[i];
            heap[i] = t;
            sift(0, i);
        }
        sum += heap[N / 2] + fib(15) + interpret(seed, 4000);
    }
    printf("%08x\n", sum);
    return 0;
}
