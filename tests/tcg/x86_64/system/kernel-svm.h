/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SVM, as the tests with guests need it (APM 15, appendix B). */
#ifndef TESTS_TCG_KERNEL_SVM_H
#define TESTS_TCG_KERNEL_SVM_H

#include "kernel.h"

#define CR0_PG          (1ull << 31)
#define EFER_LME_LMA    (5ull << 8)
#define EFER_SVME       (1u << 12)
#define MSR_HSAVE_PA    0xc0010117

/* Codes of #VMEXIT; those of exceptions are 40h + vector. */
enum {
    EXIT_CR_READ = 0x00, EXIT_CR_WRITE = 0x10,
    EXIT_DR_READ = 0x20, EXIT_DR_WRITE = 0x30, EXIT_EXCEPTION = 0x40,
    EXIT_INTR = 0x60, EXIT_NMI = 0x61, EXIT_GDTR_READ = 0x67,
    EXIT_GDTR_WRITE = 0x6b, EXIT_RDTSC = 0x6e, EXIT_RDPMC = 0x6f,
    EXIT_PUSHF = 0x70, EXIT_POPF = 0x71, EXIT_CPUID = 0x72, EXIT_RSM = 0x73,
    EXIT_IRET = 0x74, EXIT_SWINT = 0x75, EXIT_INVD = 0x76, EXIT_PAUSE = 0x77,
    EXIT_HLT = 0x78, EXIT_INVLPG = 0x79, EXIT_IOIO = 0x7b, EXIT_MSR = 0x7c,
    EXIT_SHUTDOWN = 0x7f, EXIT_VMRUN = 0x80, EXIT_VMMCALL = 0x81,
    EXIT_VMLOAD = 0x82, EXIT_VMSAVE = 0x83, EXIT_STGI = 0x84,
    EXIT_CLGI = 0x85, EXIT_SKINIT = 0x86, EXIT_RDTSCP = 0x87,
    EXIT_ICEBP = 0x88, EXIT_WBINVD = 0x89, EXIT_MWAIT = 0x8b,
    EXIT_XSETBV = 0x8d,
    EXIT_NPF = 0x400,
};

#define NPF_ADDRESS     (1ull << 32)    /* EXITINFO1: of the access, */
#define NPF_TABLE       (1ull << 33)    /* of the guest's page table */
#define INJECT          (1u << 31)
#define INTR_MASKING    (1u << 24)      /* V_INTR_MASKING */
#define VIRT_LBR        1u              /* LBR virtualization */

typedef struct Segment {
    uint16_t selector, attrib;
    uint32_t limit;
    uint64_t base;
} Segment;

typedef struct Vmcb {
    uint32_t cr, dr, exceptions, intercept[2];
    uint8_t reserved0[0x2c];
    uint64_t io_map, msr_map, tsc_offset;
    uint32_t asid, flush_tlb, int_ctl, int_vector;
    uint64_t int_state, exit, info1, info2, int_info, nested;
    uint8_t reserved1[0x10];
    uint64_t inject, nested_cr3, virt_ext;
    uint8_t reserved2[0x340];
    Segment es, cs, ss, ds, fs, gs, gdtr, ldtr, idtr, tr;
    uint8_t reserved3[0x2b], cpl, reserved4[4];
    uint64_t efer;
    uint8_t reserved5[0x70];
    uint64_t cr4, cr3, cr0, dr7, dr6, rflags, rip;
    uint8_t reserved6[0x58];
    uint64_t rsp;
    uint8_t reserved7[0x18];
    uint64_t rax, star[8], cr2;
    uint8_t reserved8[0x28];
    uint64_t lbr[5];            /* MSRs 1D9H, 1DBH to 1DEH */
    uint8_t reserved9[0x968];
} Vmcb;

_Static_assert(offsetof(Vmcb, dr) == 4, "VMCB");
_Static_assert(offsetof(Vmcb, msr_map) == 0x48, "VMCB");
_Static_assert(offsetof(Vmcb, exit) == 0x70, "VMCB");
_Static_assert(offsetof(Vmcb, nested_cr3) == 0xb0, "VMCB");
_Static_assert(offsetof(Vmcb, es) == 0x400, "VMCB");
_Static_assert(offsetof(Vmcb, cpl) == 0x4cb, "VMCB");
_Static_assert(offsetof(Vmcb, cr4) == 0x548, "VMCB");
_Static_assert(offsetof(Vmcb, rsp) == 0x5d8, "VMCB");
_Static_assert(offsetof(Vmcb, cr2) == 0x640, "VMCB");
_Static_assert(offsetof(Vmcb, lbr) == 0x670, "VMCB");
_Static_assert(sizeof(Vmcb) == PAGE, "VMCB");

/* Have instructions, exceptions or interrupts exit, or not. */
static inline void intercept_exit(Vmcb *v, unsigned exit, bool on)
{
    uint32_t *word = &v->cr + exit / 32;

    *word = (*word & ~(1u << exit % 32)) | (uint32_t)on << exit % 32;
}

/*
 * The guest of @v will run @code in 64-bit mode, with the memory and the tables
 * of its hypervisor; nothing but VMMCALL is intercepted.
 */
static inline void set_vmcb(Vmcb *v, int cpl, void (*code)(void), uint64_t rsp)
{
    TableRegister gdtr, idtr;
    uint64_t dpl = cpl << 5;

    memset(v, 0, 0x100);
    intercept_exit(v, EXIT_VMRUN, true);
    intercept_exit(v, EXIT_VMMCALL, true);
    v->asid = 1;
    v->flush_tlb = 1;
    v->cs = (Segment) { cpl ? USER_CODE64 : CODE64, 0xa9b | dpl, -1, 0 };
    v->ss = (Segment) { cpl ? USER_DATA : DATA, 0xc93 | dpl, -1, 0 };
    v->ds = v->es = (Segment) { USER_DATA, 0xcf3, -1, 0 };
    asm volatile("sgdt %0\n sidt %1" : "=m" (gdtr), "=m" (idtr));
    v->gdtr = (Segment) { .limit = gdtr.limit, .base = gdtr.base };
    v->idtr = (Segment) { .limit = idtr.limit, .base = idtr.base };
    v->efer = rdmsr(MSR_EFER);
    v->cr0 = read_cr0();
    asm volatile("mov %%cr3, %0\n mov %%cr4, %1" : "=r" (v->cr3),
                 "=r" (v->cr4));
    v->dr6 = 0xffff0ff0;
    v->dr7 = 0x400;
    v->rflags = 2;
    v->rip = (uintptr_t)code;
    v->rsp = rsp;
}

#endif
