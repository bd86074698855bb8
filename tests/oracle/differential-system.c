/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a program of tests/oracle/differential runs in, in system mode: runs
 * body() with each of its LWPCBs and settings of performance counters, and
 * writes the LWPCB before and after, the ring and the counters to debugcon.
 *
 * A fault resumes at resume_at if that is set; else one of the guard page makes
 * it accessible, and the instruction starts again.  Interrupts of counter 0
 * have a handler and a stack of their own, so they can come anywhere.
 */

#include "pmu-kernel.h"
#include "lwp-kernel.h"
#include "differential.h"

enum {
    RING_BYTES = 8192,
    COUNTERS = 6, FIXED = 3,    /* at most */
};

typedef struct Session {
    uint8_t cb[CB_BYTES];
    uint32_t cs, evtsel[COUNTERS], fixed_ctrl;
    int32_t pmc[COUNTERS];
    uint64_t fixed[FIXED], global;
    int64_t period;             /* of counter 0, negative */
} Session;

static bool amd;
static int counters, fixed;     /* of this CPU */
uint64_t enabled, reload;
static uint8_t pmi_stack[4096] __attribute__((aligned(16)));
uint8_t lwp_ring[RING_BYTES] __attribute__((aligned(4096)));

#define ENTER(name, bits, reg) \
    ".code" bits "\n" \
    name ": llwpcb %" reg "di\n" \
    "    call body\n" \
    "    xor %eax, %eax\n" \
    "    llwpcb %" reg "ax\n" \
    "    int $32\n"

#define WRMSR(msr) \
    "    mov $" #msr ", %ecx\n" \
    "    wrmsr\n"

asm(".text\n"
    ENTER("enter32", "32", "e")
    ENTER("enter64", "64", "r")
    "on_pmi:\n"
    "    push %rax\n push %rcx\n push %rdx\n"
    "    xor %eax, %eax\n"
    "    xor %edx, %edx\n"
    WRMSR(0x38f)
    "    mov reload, %eax\n"
    "    mov reload + 4, %edx\n"
    WRMSR(0xc1)
    "    mov $1, %eax\n"
    "    xor %edx, %edx\n"
    WRMSR(0x390)
    "    mov $0xfee00340, %eax\n"
    "    movl $0x400, (%rax)\n"
    "    mov enabled, %eax\n"
    "    mov enabled + 4, %edx\n"
    WRMSR(0x38f)
    "    pop %rdx\n pop %rcx\n pop %rax\n"
    "    iretq\n"
    /* AMD's has no enable bits in one place, and LVTPC is not masked */
    "    .balign 16\n"
    "on_amd_pmi:\n"
    "    push %rax\n push %rcx\n push %rdx\n"
    "    mov reload, %eax\n"
    "    mov reload + 4, %edx\n"
    WRMSR(0xc0010201)
    "    pop %rdx\n pop %rcx\n pop %rax\n"
    "    iretq\n");

static uint32_t evtsel_msr(int i)
{
    return amd ? MSR_PERF_CTL(i) : MSR_EVTSEL(i);
}

static uint32_t pmc_msr(int i)
{
    return amd ? MSR_PERF_CTR(i) : MSR_PMC(i);
}

static void out(const void *p, size_t n)
{
    asm volatile("rep outsb" : "+S" (p), "+c" (n) : "d" (0xe9) : "memory");
}

static void stop(void)
{
    if (!amd) {
        wrmsr(MSR_GLOBAL_CTRL, 0);
        return;
    }
    for (int i = 0; i < counters; i++) {
        wrmsr(evtsel_msr(i), 0);
    }
}

static bool run_session(Session *s)
{
    uint64_t val;
    int i;

    memset(lwp_ring, RING_FILL, sizeof(lwp_ring));
    out(s->cb, CB_BYTES);
    reload = s->period;
    enabled = s->global;
    for (i = 0; i < counters; i++) {
        wrmsr(pmc_msr(i), s->pmc[i]);
        wrmsr(evtsel_msr(i), s->evtsel[i]);
    }
    for (i = 0; i < fixed; i++) {
        wrmsr(MSR_FIXED_CTR(i), s->fixed[i]);
    }
    if (!amd) {
        wrmsr(MSR_FIXED_CTR_CTRL, s->fixed_ctrl);
    }
    set_up(s->cs, (uintptr_t)(s->cs == USER_CODE32 ? enter32 : enter64));
    regs.rdi = s->cs & 3 ? (uintptr_t)s->cb : 0;
    if (!amd) {
        wrmsr(MSR_GLOBAL_CTRL, enabled);
    }
    do {
        run();
    } while (handled(regs.vector));
    stop();
    out(s->cb, CB_BYTES);
    out(lwp_ring, RING_BYTES);
    for (i = 0; i < COUNTERS; i++) {
        val = i < counters ? rdmsr(pmc_msr(i)) : 0;
        out(&val, sizeof(val));
    }
    for (i = 0; i < FIXED; i++) {
        val = i < fixed ? rdmsr(MSR_FIXED_CTR(i)) : 0;
        out(&val, sizeof(val));
    }
    val = amd ? 0 : rdmsr(MSR_GLOBAL_STATUS);
    out(&val, sizeof(val));
    MARK();
    if (!amd) {
        wrmsr(MSR_GLOBAL_STATUS_RESET, val);
    }
    return regs.vector == EXIT;
}

int main(void)
{
    int failures = 0;

    kernel_init();
    apic_init(LVT_NMI);
    amd = cpuid_reg(0x80000001, 0, 2) & CPUID_PERFCTR_CORE;
    counters = amd ? COUNTERS : 4;
    fixed = amd ? 0 : FIXED;
    stop();
    asm volatile("mov %0, %%es" : : "r" (USER_DATA));
    xsetbv0(7 | LWP_XSTATE);
    wrmsr(MSR_LWP_CFG, cpuid_reg(0x8000001c, 0, 3) & ~LWP_FLAG_INT);
    set_handler(NMI, amd ? on_amd_pmi : on_pmi);
    idt[NMI].low += 1ull << 32;         /* IST2 */
    *(uint64_t *)&tss[11] = (uintptr_t)(pmi_stack + sizeof(pmi_stack));
    for (int i = 0; i < nr_sessions; i++) {
        set_pte(BAD, 0);
        failures += !run_session((Session *)sessions + i);
    }
    return failures;
}
