/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What perfctr's low-level driver (its document low-level-x86.txt) does of all
 * processors: a task's counters sum up differences of 32 bits, and one that
 * interrupts has a negative start.  And programs for the tasks.
 */
#ifndef TESTS_TCG_PMU_DRIVER_H
#define TESTS_TCG_PMU_DRIVER_H

#include "pmu-kernel.h"

enum { YIELD = 33, LOCAL_PERFCTR_VECTOR = 0xee };

typedef struct Sum {
    uint32_t start;
    uint64_t sum;
} Sum;

struct Task;                            /* each program has its own */

/* ECX is how often they go round. */
#define PROGRAM_INSNS(n)        (5 * (n) + 1)   /* with INT EXIT */
#define PROGRAM_BRANCHES(n)     (2 * (n) + 1)
CODE(program, "1: nop\n nop\n int $33\n dec %ecx\n jnz 1b")
#define OTHER_INSNS(n)          (8 * (n) + 2)
#define OTHER_BRANCHES(n)       (4 * (n) + 2)
CODE(other, "1: call 2f\n nop\n int $33\n dec %ecx\n jnz 1b\n jmp 3f\n"
     "2: nop\n nop\n ret\n 3:")
/* EAX is what the counter in ECX has counted of 100 NOPs and three others. */
CODE(reader, "rdpmc\n mov %eax, %ebx\n"
     ".rept 101\n nop\n .endr\n rdpmc\n sub %ebx, %eax")
CODE(nops, ".rept 1000\n nop\n .endr")

static inline void start_program(Regs *r, void (*code)(void), uint32_t ecx)
{
    set_up(USER_CODE64, (uintptr_t)code);
    regs.rflags |= FLAG_IF;
    regs.rcx = ecx;
    *r = regs;
}

static inline void accumulate(Sum *pmc, uint32_t now)
{
    pmc->sum += now - pmc->start;
    pmc->start = now;
}

/* Whether it has overflowed; then it starts again. */
static inline bool restarts(Sum *pmc, int32_t ireset)
{
    if ((int32_t)pmc->start < 0) {
        return false;
    }
    pmc->start = ireset;
    return true;
}

static inline unsigned pending_vector(void)
{
    void allow(void)
    {
        asm volatile("sti\n nop\n cli");
    }

    return run_function(0, allow);
}

/*
 * A task has entered the kernel with @vector: whether there was an interrupt,
 * be it that one or one of the instruction that has entered.
 */
static inline bool interrupted(unsigned vector)
{
    if (vector != LOCAL_PERFCTR_VECTOR &&
        pending_vector() != LOCAL_PERFCTR_VECTOR) {
        return false;
    }
    APIC(APIC_EOI) = 0;
    return true;
}

static inline void take_turns(unsigned (*run_task)(struct Task *),
                              struct Task *a, struct Task *b)
{
    bool ends[2] = { };

    while (!ends[0] || !ends[1]) {
        ends[0] = ends[0] || run_task(a) == EXIT;
        ends[1] = ends[1] || run_task(b) == EXIT;
    }
}

#endif
