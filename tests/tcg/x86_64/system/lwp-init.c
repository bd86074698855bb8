/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling: what RESET and INIT leave.  A second processor
 * notes what it finds, uses LWP, and is started again by INIT.
 */

#include "lwp-ap.h"

#define AP_CFG      0x5a00000002ull     /* LwpVAL, COREID 5Ah */

typedef struct Found {
    uint64_t cfg, cbaddr, xcr0;
} Found;

Found ap_found;
LwpCb ap_cb;
static LwpRecord ap_ring[LWP_MIN_RING / sizeof(LwpRecord)];

asm(".text\n"
    ".code32\n"
    "ap_32:\n"
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

int main(void)
{
    kernel_init();
    lwp_init(&ap_cb, ap_ring, sizeof(ap_ring), LWP_FLAG_VAL);

    start_ap(1);
    report(ap_found.cfg == 0, "RESET: LWP_CFG is 0");
    report(ap_found.cbaddr == 0, "RESET: LWP_CBADDR is 0");
    report(ap_found.xcr0 == 1, "RESET: XCR0 is 1");

    start_ap(1);
    report(ap_found.cfg == AP_CFG, "INIT: LWP_CFG is kept");
    report(ap_found.cbaddr == (uintptr_t)&ap_cb, "INIT: LWP_CBADDR is kept");
    report(ap_found.xcr0 == (1 | LWP_XSTATE), "INIT: XCR0 is kept");
    report(rdmsr(MSR_LWP_CFG) == 0 && rdmsr(MSR_LWP_CBADDR) == 0,
           "the other processor is not concerned");
    return report_summary();
}
