/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Code outside of long mode, for system mode tests. */
#ifndef TESTS_TCG_KERNEL_LEGACY_H
#define TESTS_TCG_KERNEL_LEGACY_H

#include "kernel.h"

enum { PROTECTED, V86, REAL, MODES };

#define CODE_ADDR       0x8000          /* the instruction under test */
#define REAL_ADDR       0x9000          /* a copy of real_code */

/* EAX, ECX, EDX, EBX and EBP of the code; real mode has EAX = 0. */
uint32_t legacy_regs[5];

/* What legacy_run() finds: vector and EIP of the exception */
uint32_t legacy_vector, legacy_ip;
uint64_t legacy_rsp;
uint8_t legacy_stack[4096] __attribute__((aligned(16)));
uint64_t legacy_idt[VECTORS];
TableRegister legacy_idtr = { sizeof(legacy_idt) - 1, (uintptr_t)legacy_idt };

/*
 * Leave long mode, run CODE_ADDR at CPL 0 of protected mode, in virtual 8086
 * mode or in real mode until an exception, and return to long mode.  The
 * caller loads descriptor tables and TR again.
 */
static void __attribute__((naked)) legacy_run(int in_mode)
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
        "mov $legacy_stack + 4096 - 64, %esp\n"
        "mov %cr0, %eax\n btr $31, %eax\n mov %eax, %cr0\n"
        "mov $0xc0000080, %ecx\n rdmsr\n btr $8, %eax\n wrmsr\n"
        "lidt legacy_idtr\n"
        "mov $0x68, %eax\n ltr %ax\n"
        "mov legacy_regs, %eax\n mov legacy_regs + 4, %ecx\n"
        "mov legacy_regs + 8, %edx\n mov legacy_regs + 12, %ebx\n"
        "mov legacy_regs + 16, %ebp\n"
        "cmp $1, %edi\n"
        "je 1f\n"
        "ja 2f\n"
        "mov $0x8000, %esi\n jmp *%esi\n"
        /* IRET to virtual 8086 mode */
        "1: push $0\n push $0\n push $0\n push $0\n"
        "push $0\n push $0x7000\n push $0x20002\n push $0\n push $0x8000\n"
        "iret\n"
        "2: ljmp $0x50, $0x9000\n"

        "legacy_ud: mov $6, %ebx\n jmp 3f\n"
        "legacy_exit: mov $32, %ebx\n jmp 3f\n"
        "legacy_gp: mov $13, %ebx\n add $4, %esp\n"
        "3: mov (%esp), %ebp\n"
        "legacy_back:\n"
        "mov $0x10, %eax\n"
        "mov %eax, %ds\n mov %eax, %es\n mov %eax, %ss\n"
        "mov %ebx, legacy_vector\n mov %ebp, legacy_ip\n"
        "mov $0xc0000080, %ecx\n rdmsr\n bts $8, %eax\n wrmsr\n"
        "mov %cr0, %eax\n bts $31, %eax\n mov %eax, %cr0\n"
        "ljmp $0x08, $4f\n"

        ".code64\n"
        "4: mov legacy_rsp(%rip), %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n"
        "pop %rbp\n pop %rbx\n"
        "ret\n"

        ".code16\n"
        ".balign 64\n"
        "real_code:\n"
        "mov %cr0, %eax\n btr $0, %eax\n mov %eax, %cr0\n"
        "ljmp $0, $0x9000 + 5f - real_code\n"
        "5: xor %eax, %eax\n"
        "mov %ax, %ds\n mov %ax, %es\n mov %ax, %ss\n"
        "mov $0x7000, %esp\n"
        "lidtl 0x9000 + 7f - real_code\n"
        "mov $0x8000, %si\n jmp *%si\n"
        ".balign 64\n"
        "mov $6, %ebx\n jmp 6f\n"               /* at 64: #UD */
        ".balign 32\n"
        "mov $32, %ebx\n"                       /* at 96: INT EXIT */
        "6: xor %ebp, %ebp\n pop %bp\n"
        "mov %cr0, %eax\n bts $0, %eax\n mov %eax, %cr0\n"
        "ljmpl $0x48, $legacy_back\n"
        "7: .short 0x3ff\n .long 0\n"
        ".code64\n");
}

static void set_gate(int vector, uint64_t handler)
{
    legacy_idt[vector] = (handler & 0xffff) | CODE32 << 16 |
                         0xeeull << 40 | (handler >> 16 & 0xffff) << 48;
}

#define ADDRESS_OF(label) \
    ({ \
        uint64_t p_; \
        asm("mov $" label ", %k0" : "=r" (p_)); \
        p_; \
    })

static void legacy_init(void)
{
    uint32_t *ivt = NULL;

    asm volatile("" : "+r" (ivt));      /* The table really is at 0. */
    ivt[UD] = REAL_ADDR + 64;
    ivt[EXIT] = REAL_ADDR + 96;
    memcpy((void *)REAL_ADDR, (void *)ADDRESS_OF("real_code"), 256);
    set_gate(UD, ADDRESS_OF("legacy_ud"));
    set_gate(GP, ADDRESS_OF("legacy_gp"));
    set_gate(EXIT, ADDRESS_OF("legacy_exit"));
}

/* A TSS of its own: only the stack of CPL 0 matters. */
static unsigned run_legacy(int in_mode)
{
    static uint32_t tss32[26];

    tss32[1] = (uintptr_t)legacy_stack + sizeof(legacy_stack);
    tss32[2] = DATA;
    set_segment(TSS32, (uintptr_t)tss32, sizeof(tss32) - 1, ACC_TSS, 0);
    legacy_vector = -1;
    legacy_run(in_mode);
    load_tables();
    return legacy_vector;
}

#endif
