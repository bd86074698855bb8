/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling: what RESET and INIT leave.  A second processor
 * notes what it finds, uses LWP, and is started again by INIT.
 */

#include "lwp-kernel.h"

#define AP_CODE     0x8000
#define AP_CFG      0x5a00000002ull     /* LwpVAL, COREID 5Ah */
/* volatile: a device register */
#define APIC_ICR    (*(volatile uint32_t *)0xfee00300ul)
#define ICR_INIT    0xc4500             /* to all but this one, asserted */
#define ICR_STARTUP (0xc4600 | AP_CODE >> 12)

typedef struct Found {
    uint64_t cfg, cbaddr, xcr0;
} Found;

uint32_t ap_starts;
Found ap_found;
LwpCb ap_cb;
static LwpRecord ap_ring[LWP_MIN_RING / sizeof(LwpRecord)];

asm(".text\n"
    ".code16\n"
    "ap_code:\n"
    "    cli\n"
    "    xor %eax, %eax\n mov %ax, %ds\n"
    "    lgdtl 0x8000 + 1f - ap_code\n"
    "    mov $1, %al\n mov %eax, %cr0\n"
    "    ljmpl $8, $ap_32\n"
    "    .balign 8\n"
    "0:  .quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff\n"
    "1:  .short 23\n .long 0x8000 + 0b - ap_code\n"
    "ap_code_end:\n"
    ".code32\n"
    "ap_32:\n"
    "    mov $0x10, %eax\n mov %eax, %ds\n"
    "    mov $0x40000, %eax\n mov %eax, %cr4\n"     /* OSXSAVE */
    "    mov $0xc0000105, %ecx\n rdmsr\n"
    "    mov %eax, ap_found\n mov %edx, ap_found + 4\n"
    "    inc %ecx\n rdmsr\n"
    "    mov %eax, ap_found + 8\n mov %edx, ap_found + 12\n"
    "    xor %ecx, %ecx\n xgetbv\n"
    "    mov %eax, ap_found + 16\n mov %edx, ap_found + 20\n"
    "    mov $1, %eax\n mov $0x40000000, %edx\n xsetbv\n"
    "    mov $0xc0000105, %ecx\n mov $2, %eax\n mov $0x5a, %edx\n wrmsr\n"
    "    mov $ap_cb, %eax\n llwpcb %eax\n"
    "    lock incl ap_starts\n"
    "2:  hlt\n jmp 2b\n"
    ".code64\n");

static void copy_ap_code(void)
{
    const void *code;
    uint64_t size;

    asm("lea ap_code(%%rip), %0\n mov $ap_code_end - ap_code, %1"
        : "=r"(code), "=r"(size));
    memcpy((void *)AP_CODE, code, size);
}

/* Start the other processor by INIT and wait until it has done its part. */
static void start_ap(uint32_t start)
{
    APIC_ICR = ICR_INIT;
    for (int i = 0; i < 100000; i++) {
        asm volatile("pause");
    }
    APIC_ICR = ICR_STARTUP;
    while (ap_starts < start) {
        asm volatile("pause" : : : "memory");
    }
}

int main(void)
{
    kernel_init();
    lwp_init(&ap_cb, ap_ring, sizeof(ap_ring), LWP_FLAG_VAL);
    copy_ap_code();

    start_ap(1);
    report(ap_found.cfg == 0, "RESET: LWP_CFG is 0");
    report(ap_found.cbaddr == 0, "RESET: LWP_CBADDR is 0");
    report(ap_found.xcr0 == 1, "RESET: XCR0 is 1");

    start_ap(2);
    report(ap_found.cfg == AP_CFG, "INIT: LWP_CFG is kept");
    report(ap_found.cbaddr == (uintptr_t)&ap_cb, "INIT: LWP_CBADDR is kept");
    report(ap_found.xcr0 == (1 | LWP_XSTATE), "INIT: XCR0 is kept");
    report(rdmsr(MSR_LWP_CFG) == 0 && rdmsr(MSR_LWP_CBADDR) == 0,
           "the other processor is not concerned");
    return report_summary();
}
