/* SPDX-License-Identifier: GPL-2.0-or-later */
/* System Management Mode with a handler of the test's own. */
#ifndef TESTS_TCG_KERNEL_SMM_H
#define TESTS_TCG_KERNEL_SMM_H

#include "kernel.h"

/* The i440FX and the place to which the BIOS has moved SMBASE */
#define PCI_SMRAM       0x80000070      /* the register is at byte 2 */
#define SMRAM_OPEN      0x40
#define SMI_ENTRY       0xa8000
#define SMI_SAVED_CS    (*(uint16_t *)(SMI_ENTRY + 0x7e10))

#define ICR_SELF_SMI    0x44200

/* Have SMIs run the code of 16 bits from @start to @end, copied to SMRAM. */
static inline void set_smi_code(uintptr_t start, uintptr_t end)
{
    uint8_t smram;

    asm volatile("outl %0, %1" : : "a" (PCI_SMRAM), "d" ((uint16_t)0xcf8));
    smram = in8(0xcfe);
    out8(0xcfe, smram | SMRAM_OPEN);
    memcpy((void *)SMI_ENTRY, (void *)start, end - start);
    out8(0xcfe, smram);
}

#endif
