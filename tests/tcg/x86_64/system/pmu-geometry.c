/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The caches that events are counted of are those that CPUID shows: all of its
 * leaves say the same, and so does a walk over as many lines as a set has ways,
 * and one more.
 *
 * Runs on any processor with a PMU; the output begins with what CPUID shows.
 */

#include <cpuid.h>
#include "pmu-kernel.h"

#define LINE            64
#define MEMORY          0x2000000ul
#define MEMORY_END      0x7800000ul
#define LLC_REFERENCES  0x4f2e
#define LLC_MISSES      0x412e

enum { L1D, L2, L3, LEVELS };

static const char *const names[LEVELS] = { "L1D", "L2", "L3" };

typedef struct Cache {
    bool known;
    uint32_t size, ways;
} Cache;

static Cache cache[LEVELS];
static bool amd;

/* RDI is the first address, RSI the distance between them, RCX their number. */
CODE(walk, "1: mov (%rdi), %eax\n add %rsi, %rdi\n dec %ecx\n jnz 1b")

/* @leaf says so; leaves which say nothing of a level are not asked. */
static void found(uint32_t leaf, int level, uint32_t size, uint32_t ways)
{
    Cache *c = &cache[level];

    if (!c->known) {
        *c = (Cache) { true, size, ways };
        test_printf("%s %d %d\n", names[level], (int)size, (int)ways);
        return;
    }
    report(c->size == size && c->ways == ways, "leaf %lx: the same %s",
           (unsigned long)leaf, names[level]);
    if (c->size != size || c->ways != ways) {
        test_printf("  %d bytes, %d ways\n", (int)size, (int)ways);
    }
}

/* Leaves 4 and 8000_001D */
static void read_subleaves(uint32_t leaf)
{
    uint32_t eax, ebx, ecx, edx, seen = 0;

    for (int i = 0; i < 4; i++) {
        uint32_t level, ways;

        __cpuid_count(leaf, i, eax, ebx, ecx, edx);
        level = (eax >> 5 & 7) - 1;
        if ((eax & 31) == 0 || (eax & 31) == 2 || level > L3) {
            continue;
        }
        ways = (ebx >> 22) + 1;
        found(leaf, level, ways * ((ebx >> 12 & 0x3ff) + 1) *
              ((ebx & 0xfff) + 1) * (ecx + 1), ways);
        seen |= 1 << level;
    }
    if (seen && !(seen & 1 << L3)) {
        found(leaf, L3, 0, 0);
    }
}

static void read_amd(void)
{
    static const uint8_t ways[16] = {
        0, 1, 2, 0, 4, 0, 8, 0, 16, 0, 32, 48, 64, 96, 128, 0
    };
    uint32_t eax, ebx, ecx, edx;

    __cpuid(0x80000005, eax, ebx, ecx, edx);
    /* Intel's have nothing there; QEMU 10.0 shows it all the same. */
    if (amd || ecx) {
        found(0x80000005, L1D, (ecx >> 24) * 1024, ecx >> 16 & 0xff);
    }
    __cpuid(0x80000006, eax, ebx, ecx, edx);
    if (amd || ways[ecx >> 12 & 15]) {
        found(0x80000006, L2, (ecx >> 16) * 1024, ways[ecx >> 12 & 15]);
    }
    if (amd || ways[edx >> 12 & 15]) {
        found(0x80000006, L3, (edx >> 18) * 512 * 1024, ways[edx >> 12 & 15]);
    }
}

/* Those descriptors that QEMU has for a model without leaf 4 */
static void read_leaf_2(void)
{
    static const struct {
        uint8_t descriptor, level, ways;
        uint32_t size;
    } t[] = {
        { 0x0d, L1D, 4, 16 << 10 }, { 0x2c, L1D, 8, 32 << 10 },
        { 0x7d, L2, 8, 2 << 20 }, { 0x4d, L3, 16, 16 << 20 },
    };
    uint32_t r[4];

    __cpuid(2, r[0], r[1], r[2], r[3]);
    for (int i = 4; i < 16; i++) {
        for (int k = 0; k < ARRAY_SIZE(t); k++) {
            if ((r[i / 4] >> i % 4 * 8 & 0xff) == t[k].descriptor) {
                found(2, t[k].level, t[k].size, t[k].ways);
            }
        }
    }
}

static void read_cpuid(void)
{
    uint32_t max, ebx, ecx, edx;

    __cpuid(0, max, ebx, ecx, edx);
    amd = ebx != signature_INTEL_ebx;
    if (max >= 4) {
        read_subleaves(4);
    }
    if (max >= 2) {
        read_leaf_2();
    }
    __cpuid(0x80000000, max, ebx, ecx, edx);
    if (max >= 0x80000006) {
        read_amd();
    }
    if (max >= 0x8000001d) {
        read_subleaves(0x8000001d);
    }
}

static uint64_t count(uint16_t event, uint64_t stride, int lines)
{
    uint32_t evtsel = amd ? MSR_K7_EVTSEL(0) : MSR_EVTSEL(0);
    uint32_t pmc = amd ? MSR_K7_PERFCTR(0) : MSR_PMC(0);

    wrmsr(pmc, 0);
    wrmsr(evtsel, event | EVTSEL_USR | EVTSEL_EN);
    set_up(USER_CODE64, (uintptr_t)walk);
    regs.rdi = MEMORY;
    regs.rsi = stride;
    regs.rcx = lines;
    run();
    wrmsr(evtsel, 0);
    return rdmsr(pmc);
}

/*
 * Of lines that meet in all caches, these have room for so many; L3 is another
 * one's victims only.  How many of @lines miss when they come again?
 */
static int64_t again(uint16_t event, uint64_t stride, int lines)
{
    asm volatile("wbinvd" : : : "memory");
    count(event, stride, lines);
    return count(event, stride, lines);
}

/* An event of loads, or of lines, that @level has not; 0 if there is none. */
static uint16_t find_event(int level)
{
    static const uint16_t events[LEVELS][5] = {
        { 0x08d1, 0x01cb, 0x0151 },
        { 0x10d1, 0x04cb, LLC_REFERENCES, LLC_MISSES },
        { 0x20d1, 0x10cb }
    }, amd_events[LEVELS][5] = {
        { 0x0041, 0xc860 }, { 0x027e, 0x0864 },
    };
    const uint16_t *e = amd ? amd_events[level] : events[level];
    const Cache *l1 = &cache[L1D];

    for (; *e; e++) {
        /* Where L2 is the last level, references are what L1D has not. */
        if (*e == LLC_REFERENCES &&
            again(*e, l1->size / l1->ways, l1->ways + 1)) {
            continue;
        }
        asm volatile("wbinvd" : : : "memory");
        /* Some count pages, of which these lines need one. */
        if (count(*e, LINE, 2) == 2) {
            return *e;
        }
    }
    return 0;
}

static void test_level(int level)
{
    uint16_t event = find_event(level);
    const Cache *c = &cache[level];
    uint64_t stride, fits = c->ways;
    int64_t none, all;

    if (!c->size || !event) {
        return;
    }
    stride = c->size / c->ways;
    if (level == L3) {
        if (stride % (cache[L2].size / cache[L2].ways)) {
            return;
        }
        fits += cache[L2].ways;
    }
    if ((fits + 1) * stride > MEMORY_END - MEMORY) {
        return;
    }
    none = again(event, stride, fits);
    all = again(event, stride, fits + 1);
    report(none == 0 && all == fits + 1, "%s: %d lines stay, %d do not",
           names[level], (int)fits, (int)fits + 1);
    if (none || all != fits + 1) {
        test_printf("  event %lx: %ld, %ld misses\n", (unsigned long)event,
                    none, all);
    }
}

int main(void)
{
    kernel_init();
    apic_init(LVT_MASKED);
    read_cpuid();
    report(cache[L1D].known && cache[L2].known, "CPUID shows caches");
    for (int level = L1D; level <= L3; level++) {
        test_level(level);
    }
    return report_summary();
}
