/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is counted of a program with many blocks, and where its counters
 * interrupt, is printed, and is the same however QEMU runs it: see
 * Makefile.softmmu-target, and pmu-same.py for a debugger.
 */

#include "pmu-kernel.h"

enum { NMI = 2, ROUNDS = 4 };

uint32_t same_word;             /* the debugger watches it */

/* ECX counts rounds, EAX is random; some 6,000 blocks in all */
asm(".text\n"
    "same_code:\n"
    "   mov %edi, %ecx\n"
    "1: push %rcx\n"
    "   lea -512(%rsp), %rdi\n"
    "   mov $70, %ecx\n"
    "   rep stosb\n"
    "   pop %rcx\n"
    "same_blocks:\n"
    "   .rept 1000\n"
    "   imul $1103515245, %eax, %eax\n"
    "   add $12345, %eax\n"
    "   test $0x10000, %eax\n"
    "   jz 2f\n"
    "   test $0x60000, %eax\n"
    "   jnz 2f\n"
    "   call 4f\n"
    "2:\n"
    "   .endr\n"
    "   mov %eax, same_word(%rip)\n"
    "   lea 3f(%rip), %r8\n"
    "   mov %eax, %edx\n"
    "   shr $31, %edx\n"
    "   add %rdx, %r8\n"
    "   jmp *%r8\n"
    "3: nop\n"
    "   lock incl same_word(%rip)\n"
    "   dec %ecx\n"
    "   jnz 1b\n"
    /* At CPL 0 no interrupt may come behind this. */
    "   mov %cs, %eax\n"
    "   test $3, %al\n"
    "   jnz 6f\n"
    "   mov $0x38f, %ecx\n"
    "   xor %eax, %eax\n"
    "   xor %edx, %edx\n"
    "   wrmsr\n"
    "6: int $32\n"
    "4: test $0x100000, %eax\n"
    "   jz 5f\n"
    "   movl $2, same_word(%rip)\n"
    "5: ret\n");

/* The period is more than what it takes to go on after an interrupt. */
static const struct {
    const char *name;
    uint32_t event, period;
} events[] = {
    { "instructions", 0xc0, 997 },
    { "cycles", 0x3c, 1009 },
    { "branches", 0xc4, 97 },
    { "conditional branches", 0x01c4, 89 },
    { "near calls", 0x02c4, 17 },
    { "near returns", 0x08c4, 13 },
    { "not taken branches", 0x10c4, 83 },
    { "taken branches", 0x20c4, 79 },
    { "mispredicted branches", 0x00c5, 73 },
    { "mispredicted taken branches", 0x20c5, 31 },
    { "mispredicted returns", 0x08c5 },
    { "far branches", 0x40c4 },
};

static void set_up_code(int cpl)
{
    set_up(cpl ? USER_CODE64 : CODE64, LABEL(same_code));
    regs.rax = 1;
    regs.rdi = ROUNDS;
    same_word = 0;
}

static uint32_t rows(int cpl)
{
    return cpl ? EVTSEL_USR : EVTSEL_OS;
}

/* Four at a time */
static void count(int cpl)
{
    for (int first = 0; first < ARRAY_SIZE(events); first += 4) {
        for (int i = 0; i < 4; i++) {
            wrmsr(MSR_EVTSEL(i), events[first + i].event | rows(cpl) |
                                 EVTSEL_EN);
            wrmsr(MSR_PMC(i), 0);
        }
        set_up_code(cpl);
        wrmsr(MSR_GLOBAL_CTRL, 15);
        run();
        wrmsr(MSR_GLOBAL_CTRL, 0);
        for (int i = 0; i < 4; i++) {
            test_printf("CPL %d: %ld %s\n", cpl, rdmsr(MSR_PMC(i)),
                        events[first + i].name);
            wrmsr(MSR_EVTSEL(i), 0);
        }
    }
}

/* Of one event; the sum is of all registers that each interrupt finds. */
static void sample(int cpl, int event)
{
    uint64_t first = 0, sum = 0, left = -(uint64_t)events[event].period;
    int samples = 0;

    wrmsr(MSR_EVTSEL(0), events[event].event | rows(cpl) | EVTSEL_INT |
                         EVTSEL_EN);
    wrmsr(MSR_PMC(0), left);
    set_up_code(cpl);
    wrmsr(MSR_GLOBAL_CTRL, 1);
    while (run() == NMI) {
        wrmsr(MSR_GLOBAL_CTRL, 0);
        first = samples++ ? first : regs.rip - LABEL(same_code);
        for (int i = 0; i < sizeof(regs) / 8; i++) {
            sum = (sum ^ ((uint64_t *)&regs)[i]) * 0x100000001b3;
        }
        wrmsr(MSR_PMC(0), left);
        wrmsr(MSR_GLOBAL_STATUS_RESET, 1);
        APIC(APIC_LVTPC) = LVT_NMI;
        wrmsr(MSR_GLOBAL_CTRL, 1);
    }
    wrmsr(MSR_GLOBAL_CTRL, 0);
    report(samples > 5 && regs.vector == EXIT,
           "CPL %d: %d samples of %s, the first at %ld; %lx", cpl, samples,
           events[event].name, first, sum);
}

/* The debugger stops here. */
void same_end(void)
{
}

int main(void)
{
    int failures;

    kernel_init();
    apic_init(LVT_NMI);
    for (int cpl = 3; cpl >= 0; cpl -= 3) {
        count(cpl);
        for (int i = 0; i < ARRAY_SIZE(events); i++) {
            if (events[i].period) {
                sample(cpl, i);
            }
        }
    }
    failures = report_summary();
    same_end();
    return failures;
}
