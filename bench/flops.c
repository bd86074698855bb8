// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A small program of which every other instruction is one of floating point:
 * bodies that move in each other's way, scalar, and two at once.  The argument
 * is the number of rounds.
 */
#include <stdio.h>
#include <stdlib.h>

#define N 32

typedef double Pair __attribute__((vector_size(16)));

static double x[N], v[N];
static Pair y[N], w[N];

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    double sum = 0;

    for (int i = 0; i < N; i++) {
        x[i] = i * i % 17;
        y[i] = (Pair){ i * 3 % 19, i * 5 % 23 };
    }
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < N; i++) {
            for (int j = 0; j < i; j++) {
                double d = x[i] - x[j];
                double f = d / (1 + d * d);
                Pair e = y[i] - y[j];
                Pair g = e / (1 + e * e);

                v[i] -= f;
                v[j] += f;
                w[i] -= g;
                w[j] += g;
            }
        }
        for (int i = 0; i < N; i++) {
            x[i] += .01 * v[i];
            y[i] += .01 * w[i];
            sum += x[i];
        }
    }
    printf("%08x\n", (int)sum);
    return 0;
}
