/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Another processor interrupts one that counts, again and again: it hears of
 * that at once, though a TB that counts may undo the request to leave it.  In
 * these loops the budget of instructions is never used up, or only by and by.
 * And where the budget ends, interrupts gather; that is not at an overflow.
 */

#include "pmu-kernel.h"
#include "lwp-ap64.h"

enum { BRE = 3 };
enum { VECTOR = 0x51, FAR_AWAY = 1 << 24, PERIOD = 60000 };

#ifndef KICKS
#define KICKS           2000
#endif
/* The TSC counts ns.  A host that has nothing else to do needs 1 ms. */
#ifndef LONG_NS
#define LONG_NS         1000000000ull
#endif
#define RING_SIZE       (2 * PAGE)
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
        APIC(APIC_ICR) = ICR_FIXED | VECTOR;
    }
}

CODE(loop_rdpmc, "xor %ecx, %ecx\n 1: rdpmc\n jmp 1b")
CODE(loop_jmp, "1: jmp 1b")
CODE(loop_branches, "llwpcb %rax\n 1: dec %ecx\n jnz 1b\n jmp 1b")
CODE(loop_rep, "1: mov $0x100000, %esi\n mov $0x100000, %ecx\n rep lodsb\n"
     "jmp 1b")

/* The longest time until an interrupt comes, or UINT64_MAX */
static uint64_t slowest_kick(void (*loop)(void), int kicks)
{
    uint64_t slowest = 0;

    for (int i = 0; i < kicks; i++) {
        uint64_t ns;

        set_up(USER_CODE64, (uintptr_t)loop);
        regs.rflags |= FLAG_IF;
        regs.rax = (uintptr_t)user_cb;
        __atomic_store_n(&kick_wanted, true, __ATOMIC_RELEASE);
        if (run() != VECTOR) {
            return UINT64_MAX;
        }
        ns = rdtsc() - __atomic_load_n(&kick_sent, __ATOMIC_ACQUIRE);
        slowest = ns > slowest ? ns : slowest;
        APIC(APIC_EOI) = 0;
        if (loop == loop_branches) {
            slwpcb();
            at_cpl(3, llwpcb(NULL));
        }
    }
    return slowest;
}

static void test(const char *name, void (*loop)(void))
{
    uint64_t slowest = slowest_kick(loop, KICKS);

    report(slowest < LONG_NS, "%s: %d interrupts come", name, KICKS);
#ifdef SHOW_NS
    ml_printf("  after %d us at most\n", (int)(slowest / 1000));
#endif
}

/* An overflow is no likelier place than another. */
static void test_overflow(void)
{
    int gathered = 0;

    wrmsr(MSR_EVTSEL(0), 0xc0 | EVTSEL_USR | EVTSEL_INT | EVTSEL_EN);
    for (int i = 0; i < KICKS; i++) {
        uint64_t past;

        wrmsr(MSR_PMC(0), -PERIOD);
        gathered += slowest_kick(loop_jmp, 1) == UINT64_MAX;
        past = rdmsr(MSR_PMC(0)) + 8;
        gathered += past << 16 >> 16 <= 16;
    }
    report(gathered < KICKS / 50, "%d of %d interrupts come where a counter "
           "overflows", gathered, KICKS);
}

int main(void)
{
    kernel_init();
    lwp_make_available();
    write_cr4(read_cr4() | CR4_PCE);
    apic_init(LVT_MASKED);
    start_ap64(1, ap_stack + sizeof(ap_stack));
    for (int on = 0; on < 2; on++) {
        wrmsr(MSR_EVTSEL(0), 0xc0 | EVTSEL_USR | EVTSEL_EN);
        wrmsr(MSR_GLOBAL_CTRL, on);
        test(on ? "JMP, counted" : "JMP", loop_jmp);
        test(on ? "RDPMC, counted" : "RDPMC", loop_rdpmc);
        test(on ? "REP, counted" : "REP", loop_rep);
    }
    test_overflow();
    wrmsr(MSR_GLOBAL_CTRL, 0);
    prepare(1u << BRE);
    cb->size = RING_SIZE;
    cb->filters = FILTER_NPB;
    cb->event[BRE - 1].interval = cb->event[BRE - 1].counter = FAR_AWAY;
    test("branches that are observed", loop_branches);
    return report_summary();
}
