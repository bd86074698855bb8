/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling: what RESET and INIT leave.  A second processor
 * notes what it finds, uses LWP, and is started again by INIT; then a program
 * of it is profiled when INIT comes.
 */

#include "lwp-kernel.h"
#include "kernel-ap.h"

enum { IRE = 2 };
#define AP_CFG      0x5a00000006ull     /* LwpVAL, LwpIRE, COREID 5Ah */

typedef struct Found {
    uint64_t cfg, cbaddr, xcr0;
} Found;

Found ap_found;
LwpCb ap_cb;
uint32_t ap_profiled;
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
    "    mov $0xc0000105, %ecx\n mov $6, %eax\n mov $0x5a, %edx\n wrmsr\n"
    "    mov $ap_cb, %eax\n llwpcb %eax\n"
    "    cmpl $0, ap_profiled\n je 1f\n"
    AP_TO_USER
    "ap_user:\n"
    "    lock incl %ss:ap_starts\n"
    "0:  nop\n nop\n jmp 0b\n"
    "ap_user_end:\n"
    "1:"
    "    lock incl ap_starts\n"
    "2:  hlt\n jmp 2b\n"
    ".code64\n");

static void test_profiled(void)
{
    unsigned other = 0, n = 0;

    memset(ap_ring, 0, sizeof(ap_ring));
    lwp_init(&ap_cb, ap_ring, sizeof(ap_ring), 1u << IRE);
    ap_cb.event[IRE - 1].interval = ap_cb.event[IRE - 1].counter = 20;
    ap_cb.tail = 1;                     /* never full */
    ap_profiled = 1;
    start_ap(1);
    /* The host may stop it just when it has said that it starts. */
    for (int i = 0; i < 100000000 &&
         !__atomic_load_n(&ap_ring[0].event, __ATOMIC_ACQUIRE); i++) {
        asm volatile("pause");
    }
    ap_profiled = 0;
    start_ap(1);
    for (int i = 0; i < ARRAY_SIZE(ap_ring); i++) {
        uint64_t ip = ap_ring[i].ip;

        n += ap_ring[i].event == IRE;
        other += ap_ring[i].event && (ip < LABEL(ap_user) ||
                                      ip >= LABEL(ap_user_end));
    }
    report(n > 0 && other == 0, "INIT ends a program: nothing else counts");
}

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
    test_profiled();
    return report_summary();
}
