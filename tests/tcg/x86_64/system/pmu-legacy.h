/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters and branch records where there is no long mode. */
#ifndef TESTS_TCG_PMU_LEGACY_H
#define TESTS_TCG_PMU_LEGACY_H

#include "pmu-kernel.h"

enum { NR_STUBS = 35 };

#define TYPE_INT_GATE   (0xeeull << 40)

Tss main_tss;
uint64_t legacy_idt[NR_STUBS];
TableRegister legacy_idtr = { sizeof(legacy_idt) - 1, (uintptr_t)legacy_idt };
uint8_t legacy_stack[1024] __attribute__((aligned(16)));
uint64_t legacy_rsp;
uint32_t legacy_vector;
uint32_t legacy_msr;
uint64_t legacy_on;
PLACE(legacy_stubs);

/*
 * Leave long mode, run @code at @cpl of protected mode, without paging, until
 * an exception or INT EXIT, and return to long mode.  What is written to
 * @legacy_msr switches on what is to run in protected mode only.
 */
static void __attribute__((naked)) legacy_run(uint32_t code, int cpl)
{
    asm("push %rbx\n push %rbp\n"
        "push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp, legacy_rsp(%rip)\n"
        "ljmp *0f(%rip)\n"
        "0: .long legacy_32\n .short 0x48\n"

        ".code32\n"
        "legacy_32:\n"
        "mov $0x10, %eax\n"
        "mov %eax, %ds\n mov %eax, %es\n mov %eax, %ss\n"
        "mov $legacy_stack + 1024, %esp\n"
        "mov %cr0, %eax\n btr $31, %eax\n mov %eax, %cr0\n"
        "mov $0xc0000080, %ecx\n rdmsr\n btr $8, %eax\n wrmsr\n"
        "lidt legacy_idtr\n"
        "mov $0x68, %eax\n ltr %ax\n"
        "mov legacy_msr, %ecx\n mov legacy_on, %eax\n"
        "mov legacy_on + 4, %edx\n wrmsr\n"
        "test %esi, %esi\n jnz 1f\n"
        "jmp *%edi\n"
        "1: mov $0x23, %eax\n mov %eax, %ds\n mov %eax, %es\n"
        "push $0x23\n push $user_stack + 1024\n push $2\n push $0x2b\n"
        "push %edi\n iret\n"

        ".balign 16\n"
        "legacy_stubs:\n"
        "legacy_number = 0\n"
        ".rept 35\n .balign 16\n"
        "mov $legacy_number, %ebx\n jmp legacy_back\n"
        "legacy_number = legacy_number + 1\n"
        ".endr\n"
        "legacy_back:\n"
        "mov $0x10, %eax\n"
        "mov %eax, %ds\n mov %eax, %es\n mov %eax, %ss\n"
        "mov legacy_msr, %ecx\n xor %eax, %eax\n xor %edx, %edx\n wrmsr\n"
        "mov %ebx, legacy_vector\n"
        "mov $0xc0000080, %ecx\n rdmsr\n bts $8, %eax\n wrmsr\n"
        "mov %cr0, %eax\n bts $31, %eax\n mov %eax, %cr0\n"
        "ljmp $0x08, $2f\n"

        ".code64\n"
        "2: mov legacy_rsp(%rip), %rsp\n"
        "clts\n"                        /* A task switch sets CR0.TS. */
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n"
        "pop %rbp\n pop %rbx\n"
        "ret\n");
}

#define LEGACY(name, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm(".code32\n" insns "\n int $32\n .code64"); \
    }

static void set_int_gate(int vector, uintptr_t handler)
{
    legacy_idt[vector] = (handler & 0xffff) | CODE32 << 16 | TYPE_INT_GATE |
                         (uint64_t)(handler >> 16 & 0xffff) << 48;
}

static void set_task_gate(int vector, uint16_t selector)
{
    legacy_idt[vector] = selector << 16 | TYPE_TASK_GATE;
}

/* All that exceptions do is to end the code. */
static void legacy_init(void)
{
    main_tss = (Tss) {
        .esp0 = (uintptr_t)legacy_stack + sizeof(legacy_stack), .ss0 = DATA,
    };
    set_segment(TSS32, (uintptr_t)&main_tss, sizeof(Tss) - 1, ACC_TSS, 0);
    for (int i = 0; i < NR_STUBS; i++) {
        set_int_gate(i, (uintptr_t)legacy_stubs + 16 * i);
    }
}

#endif
