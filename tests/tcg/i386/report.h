/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What tests share, be they programs or kernels: one test is one line of
 * report().
 */
#ifndef TESTS_TCG_REPORT_H
#define TESTS_TCG_REPORT_H

#include <cpuid.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef TEST_KERNEL
#include "minilib.h"
#define test_printf ml_printf
#else
#include <stdio.h>
#define test_printf printf
#endif

#define TEST_64BIT      (UINTPTR_MAX > UINT32_MAX)

static int test_checks, test_failures;

#define report(ok, ...) \
    do { \
        bool pass_ = (ok); \
        test_checks++; \
        test_failures += !pass_; \
        test_printf(pass_ ? "PASS: " : "FAIL: "); \
        test_printf(__VA_ARGS__); \
        test_printf("\n"); \
    } while (0)

/* The exit status of a test program. */
static inline int report_summary(void)
{
    test_printf("SUMMARY: %d tests, %d failures\n", test_checks, test_failures);
    return test_failures != 0;
}

/* CPUID.leaf:subleaf, register 0 to 3 for EAX to EDX. */
static inline uint32_t cpuid_reg(uint32_t leaf, uint32_t subleaf, int reg)
{
    uint32_t r[4];

    __cpuid_count(leaf, subleaf, r[0], r[1], r[2], r[3]);
    return r[reg];
}

static inline uint64_t xgetbv0(void)
{
    uint32_t lo, hi;

    asm volatile("xgetbv" : "=a" (lo), "=d" (hi) : "c" (0));
    return (uint64_t)hi << 32 | lo;
}

/* Whether @size bytes at @p all have the value @byte. */
static inline bool bytes_are(const void *p, uint8_t byte, size_t size)
{
    const uint8_t *b = p;

    while (size && *b == byte) {
        b++;
        size--;
    }
    return size == 0;
}

/* In assembly code: the start of a register's name, the address of a label */
#if TEST_64BIT
#define R "%%r"
#define LEA(label, reg) "lea " label "(%%rip), " reg "\n"
#else
#define R "%%e"
#define LEA(label, reg) "mov $" label ", " reg "\n"
#endif

/* The address of a label in assembly code */
#define LABEL(name) \
    ({ \
        uintptr_t addr_; \
        asm(LEA(#name, "%0") : "=r" (addr_)); \
        addr_; \
    })

#endif
