/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The memory map changes while another processor uses a device: what it reads
 * is always the device's.  A processor whose instructions are counted may hear
 * late of such a change.
 */

#include "pmu-kernel.h"
#include "kernel-ap64.h"

#define APIC_VERSION    0x30
#define CHANGES         2000

/* The i440FX's PAM1 says whether RAM can be read from C0000H to C7FFFH. */
#define PCI_ADDRESS     0xcf8
#define PCI_DATA        0xcfc
#define PAM1            0x8000005a

static uint32_t ap_stop, ap_reads, ap_wrong, version;
static uint8_t ap_stack[4096] __attribute__((aligned(16)));

static void outl(uint16_t port, uint32_t val)
{
    asm volatile("outl %0, %1" : : "a" (val), "d" (port));
}

void ap_main(void)
{
    wrmsr(MSR_EVTSEL(0), 0xc0 | EVTSEL_OS | EVTSEL_EN);
    wrmsr(MSR_GLOBAL_CTRL, 1);
    __atomic_add_fetch(&ap_starts, 1, __ATOMIC_ACQ_REL);
    do {
        for (int i = 0; i < 1000; i++) {
            ap_wrong += APIC(APIC_VERSION) != version;
        }
        __atomic_add_fetch(&ap_reads, 1, __ATOMIC_ACQ_REL);
    } while (!__atomic_load_n(&ap_stop, __ATOMIC_ACQUIRE));
    __atomic_add_fetch(&ap_starts, 1, __ATOMIC_ACQ_REL);
    for (;;) {
        asm volatile("hlt");
    }
}

int main(void)
{
    kernel_init();
    version = APIC(APIC_VERSION);
    start_ap64(1, ap_stack + sizeof(ap_stack));
    outl(PCI_ADDRESS, PAM1 & ~3);
    for (int i = 0; i < CHANGES; i++) {
        /* One half, or both: the map has more parts, or fewer. */
        out8(PCI_DATA + (PAM1 & 3), i & 1 ? 0x01 : 0x11);
    }
    __atomic_store_n(&ap_stop, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&ap_starts, __ATOMIC_ACQUIRE) < 2) {
        asm volatile("pause");
    }
    report(ap_reads && !ap_wrong,
           "an APIC is read while the memory map changes");
    return report_summary();
}
