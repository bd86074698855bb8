/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Performance counters: what their system mode tests share.
 *
 * "SDM" is Intel's Software Developer's Manual, Volume 3B, chapter 18.
 */
#ifndef TESTS_TCG_PMU_KERNEL_H
#define TESTS_TCG_PMU_KERNEL_H

#include "kernel.h"

#define MSR_PMC(n)              (0xc1 + (n))
#define MSR_MISC_FEATURES       0x140   /* bit 0: CPUID faults */
#define MSR_EVTSEL(n)           (0x186 + (n))
#define MSR_PMC_FULL(n)         (0x4c1 + (n))
#define MSR_MISC_ENABLE         0x1a0
#define MSR_DEBUGCTL            0x1d9
#define MSR_FIXED_CTR(n)        (0x309 + (n))
#define MSR_PERF_CAPABILITIES   0x345
#define MSR_FIXED_CTR_CTRL      0x38d
#define MSR_GLOBAL_STATUS       0x38e
#define MSR_GLOBAL_CTRL         0x38f
#define MSR_GLOBAL_STATUS_RESET 0x390
#define MSR_GLOBAL_STATUS_SET   0x391
#define MSR_GLOBAL_INUSE        0x392

/* AMD's; those of K7 are the first four of the others (APM 13.2) */
#define MSR_K7_EVTSEL(n)        (0xc0010000 + (n))
#define MSR_K7_PERFCTR(n)       (0xc0010004 + (n))
#define MSR_PERF_CTL(n)         (MSR_PERF_CTL0 + 2 * (n))
#define MSR_PERF_CTR(n)         (MSR_PERF_CTL0 + 2 * (n) + 1)
#define MSR_AMD_STATUS          0xc0000300
#define MSR_AMD_CTL             0xc0000301
#define MSR_AMD_STATUS_CLR      0xc0000302

#define CPUID_PDCM              (1u << 15)
#define CAP_PEBS                (3u << 6)       /* trap, all registers */
#define CAP_FULL_WIDTH          (1u << 13)

#define EVTSEL_USR              (1u << 16)
#define EVTSEL_OS               (1u << 17)
#define EVTSEL_INT              (1u << 20)
#define EVTSEL_ANY              (1u << 21)
#define EVTSEL_EN               (1u << 22)
#define EVTSEL_INV              (1u << 23)
#define EVTSEL_CMASK(n)         ((uint32_t)(n) << 24)

/* Bits of FIXED_CTR_CTRL for counter 0 */
enum { FIXED_OS = 1, FIXED_USR = 2, FIXED_PMI = 8 };

/* Bits of GLOBAL_CTRL and GLOBAL_STATUS */
#define GLOBAL_FIXED(i)         (1ull << (32 + (i)))

/* The local APIC */
enum { APIC_TPR = 0x80, APIC_EOI = 0xb0, APIC_SVR = 0xf0, APIC_LVTPC = 0x340 };
#define LVT_MASKED              (1u << 16)
#define LVT_NMI                 0x400

/* Bits of DEBUGCTL */
#define FREEZE_LBRS_ON_PMI      (1u << 11)
#define FREEZE_ON_PMI           (1u << 12)

#define CR4_PCE                 (1ull << 8)
#define FLAG_IF                 (1u << 9)

/* A place in code */
#define PLACE(name)             void name(void)

/* Code that ends with INT EXIT */
#define CODE(name, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm(insns "\n int $32"); \
    }

/* Have @fn handle @vector, with @regs' end as its stack. */
static inline void set_handler(int vector, void (*fn)(void))
{
    uint64_t handler = (uintptr_t)fn;

    idt[vector].low = (handler & 0xffff) | CODE64 << 16 | 1ull << 32 |
                      0xeeull << 40 | (handler >> 16 & 0xffff) << 48;
    idt[vector].high = handler >> 32;
}

static inline void reset_handler(int vector)
{
    set_handler(vector, (void *)((uintptr_t)trap_stubs + 16 * vector));
}

static inline uint64_t rdpmc(uint32_t index)
{
    uint32_t lo, hi;

    asm volatile("rdpmc" : "=a" (lo), "=d" (hi) : "c" (index));
    return (uint64_t)hi << 32 | lo;
}

static inline uint64_t read_cr4(void)
{
    uint64_t val;

    asm volatile("mov %%cr4, %0" : "=r" (val));
    return val;
}

static inline void write_cr4(uint64_t val)
{
    asm volatile("mov %0, %%cr4" : : "r" (val) : "memory");
}

/* Programs reach nothing but the window, or all of memory again. */
static inline void hide_kernel(bool hidden)
{
    uint64_t cr3, *table;

    asm volatile("mov %%cr3, %0" : "=r" (cr3));
    table = (uint64_t *)cr3;
    table = (uint64_t *)(table[0] & -PAGE);
    for (int gib = 0; gib < 4; gib++) {
        uint64_t *pages = (uint64_t *)(table[gib] & -PAGE);

        for (int i = 0; i < 512; i++) {
            if (gib != WINDOW >> 30 || i != (WINDOW >> 21 & 511)) {
                pages[i] = hidden ? pages[i] & ~(uint64_t)PTE_U :
                           pages[i] | PTE_U;
            }
        }
    }
    asm volatile("mov %0, %%cr3" : : "r" (cr3) : "memory");
}

static inline uint64_t rdtsc(void)
{
    uint32_t lo, hi;

    asm volatile("rdtsc" : "=a" (lo), "=d" (hi));
    return (uint64_t)hi << 32 | lo;
}

/* Nothing but what the tests want; the PMI is @lvtpc. */
static inline void apic_init(uint32_t lvtpc)
{
    out8(0x21, 0xff);
    out8(0xa1, 0xff);
    APIC(APIC_SVR) = 0x1ff;
    APIC(APIC_TPR) = 0;
    for (unsigned lvt = 0x320; lvt <= 0x370; lvt += 16) {
        APIC(lvt) = LVT_MASKED;
    }
    APIC(APIC_LVTPC) = lvtpc;
}

#endif
