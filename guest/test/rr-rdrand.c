/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Something for rr to record: a program that asks CPUID for RDRAND and uses it.
 * rr cannot record what RDRAND gives; it makes CPUID fault, and hides it.
 */
#include <cpuid.h>
#include <stdio.h>

int main(void)
{
    unsigned eax, ebx, ecx = 0, edx, random = 0;

    __get_cpuid(1, &eax, &ebx, &ecx, &edx);
    for (int i = 0; ecx & bit_RDRND && i < 100; i++) {
        unsigned x;

        asm volatile("rdrand %0" : "=r" (x) : : "cc");
        /* Branches that depend on it */
        while (x) {
            random += x & 1;
            x >>= 1;
        }
    }
    printf("%s RDRAND, %u\n", ecx & bit_RDRND ? "has" : "no", random);
    return 0;
}
