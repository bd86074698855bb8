/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Starting other processors */
#ifndef TESTS_TCG_KERNEL_AP_H
#define TESTS_TCG_KERNEL_AP_H

#include "kernel.h"

#define AP_CODE     0x8000
#define ICR_INIT    0x4500              /* asserted */
#define ICR_STARTUP (0x4600 | AP_CODE >> 12)

/* The other processor increments this when it has done its part. */
uint32_t ap_starts;

/*
 * It arrives at ap_32, in 32-bit mode without paging and stack; on its way,
 * many instructions are nobody's.  Selectors 0x1b and 0x23 are for CPL 3.
 */
asm(".text\n"
    ".code16\n"
    "ap_code:\n"
    "    cli\n"
    "    mov $50, %ecx\n 3: loop 3b\n"
    "    xor %eax, %eax\n mov %ax, %ds\n"
    "    lgdtl 0x8000 + 1f - ap_code\n"
    "    mov $1, %al\n mov %eax, %cr0\n"
    "    ljmpl $8, $0f\n"
    "    .balign 8\n"
    "2:  .quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff\n"
    "    .quad 0x00cffb000000ffff, 0x00cff3000000ffff\n"
    "1:  .short 39\n .long 0x8000 + 2b - ap_code\n"
    "ap_code_end:\n"
    ".code32\n"
    "0:  mov $0x10, %eax\n mov %eax, %ds\n mov %eax, %ss\n"
    "    jmp ap_32\n"
    ".code64\n");

/* What a processor at ap_32 has to do to come to ap_user, at CPL 3 */
#define AP_TO_USER \
    "    mov $ap_user_stack + 64, %esp\n" \
    "    push $0x23\n push %esp\n push $2\n push $0x1b\n push $ap_user\n" \
    "    iret\n"

uint8_t ap_user_stack[64] __attribute__((aligned(16)));

/* Start a processor by INIT and wait until it has done its part. */
static void start_ap(unsigned apic_id)
{
    uint32_t starts = ap_starts;

    memcpy((void *)AP_CODE, (void *)LABEL(ap_code),
           LABEL(ap_code_end) - LABEL(ap_code));
    APIC(APIC_ICR + 16) = apic_id << 24;
    APIC(APIC_ICR) = ICR_INIT;
    for (int i = 0; i < 100000; i++) {
        asm volatile("pause");
    }
    APIC(APIC_ICR) = ICR_STARTUP;
    while (__atomic_load_n(&ap_starts, __ATOMIC_ACQUIRE) == starts) {
        asm volatile("pause");
    }
}

#endif
