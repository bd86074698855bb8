/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Other processors that come to ap_main() in 64-bit mode. */
#ifndef TESTS_TCG_KERNEL_AP64_H
#define TESTS_TCG_KERNEL_AP64_H

#include "kernel-ap.h"

/* For ap_32 */
struct {
    uint32_t cr3, cr4;
    uint64_t stack;
    TableRegister gdtr;
} ap_start;

asm(".text\n"
    ".code32\n"
    "ap_32:\n"
    "    mov $ap_start, %ebx\n"
    "    mov (%ebx), %eax\n mov %eax, %cr3\n"
    "    mov 4(%ebx), %eax\n mov %eax, %cr4\n"
    "    mov $0xc0000080, %ecx\n rdmsr\n or $0x100, %eax\n wrmsr\n"
    "    mov $0x80010001, %eax\n mov %eax, %cr0\n"
    "    lgdtl 16(%ebx)\n"
    "    ljmp $8, $ap_64\n"
    ".code64\n"
    "ap_64:\n"
    "    mov ap_start + 8(%rip), %rsp\n"
    "    call ap_main\n");

/* Start one with the memory and the tables of this processor. */
static void start_ap64(unsigned apic_id, void *stack_end)
{
    uint64_t cr3, cr4;

    asm volatile("mov %%cr3, %0\n mov %%cr4, %1" : "=r" (cr3), "=r" (cr4));
    ap_start.cr3 = cr3;
    ap_start.cr4 = cr4;
    asm volatile("sgdt %0" : "=m" (ap_start.gdtr));
    ap_start.stack = (uintptr_t)stack_end;
    start_ap(apic_id);
}

#endif
