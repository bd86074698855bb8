/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Another processor that interrupts one that counts, again and again */
#ifndef TESTS_TCG_PMU_KICK_H
#define TESTS_TCG_PMU_KICK_H

#include "pmu-kernel.h"
#include "kernel-ap64.h"

enum { KICK_VECTOR = 0x51 };

#ifndef KICKS
#define KICKS           2000
#endif
/* The TSC counts ns.  A host that has nothing else to do needs 1 ms. */
#ifndef LONG_NS
#define LONG_NS         1000000000ull
#endif
#define ICR_FIXED       0x4000          /* asserted */

static bool kick_wanted;
static uint64_t kick_sent;              /* when */
static uint8_t ap_stack[4096] __attribute__((aligned(16)));

void ap_main(void)
{
    unsigned n = 0;

    __atomic_add_fetch(&ap_starts, 1, __ATOMIC_ACQ_REL);
    for (;;) {
        while (!__atomic_load_n(&kick_wanted, __ATOMIC_ACQUIRE)) {
            asm volatile("pause");
        }
        /* Not always at the same place of the loop */
        for (unsigned i = n++ * 2654435761u >> 23; i; i--) {
            asm volatile("");
        }
        __atomic_store_n(&kick_wanted, false, __ATOMIC_RELEASE);
        __atomic_store_n(&kick_sent, rdtsc(), __ATOMIC_RELEASE);
        APIC(APIC_ICR + 16) = 0;
        APIC(APIC_ICR) = ICR_FIXED | KICK_VECTOR;
    }
}

/*
 * The longest time until an interrupt comes to @loop, or UINT64_MAX.  @behind
 * is called behind each, if it is not NULL.
 */
static uint64_t slowest_kick(void (*loop)(void), int kicks,
                             void (*behind)(void))
{
    uint64_t slowest = 0;

    for (int i = 0; i < kicks; i++) {
        uint64_t ns;

        set_up(USER_CODE64, (uintptr_t)loop);
        regs.rflags |= FLAG_IF;
        __atomic_store_n(&kick_wanted, true, __ATOMIC_RELEASE);
        if (run() != KICK_VECTOR) {
            return UINT64_MAX;
        }
        ns = rdtsc() - __atomic_load_n(&kick_sent, __ATOMIC_ACQUIRE);
        slowest = ns > slowest ? ns : slowest;
        APIC(APIC_EOI) = 0;
        if (behind) {
            behind();
        }
    }
    return slowest;
}

static void test_kicks(const char *name, void (*loop)(void),
                       void (*behind)(void))
{
    uint64_t slowest = slowest_kick(loop, KICKS, behind);

    report(slowest < LONG_NS, "%s: %d interrupts come", name, KICKS);
#ifdef SHOW_NS
    ml_printf("  after %d us at most\n", (int)(slowest / 1000));
#endif
}

#endif
