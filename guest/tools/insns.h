/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The instructions that make this x86 code.  The program "lwp" is there for
 * other processors, too: recordings of guests are read there, and an emulator's
 * programs recorded.  These processors have no LWP, and nothing but CPUID is
 * called.
 */
#ifndef LWP_INSNS_H
#define LWP_INSNS_H

#include <stddef.h>
#include <stdint.h>

typedef struct Cpuid {
    uint32_t eax, ebx, ecx, edx;
} Cpuid;

#ifndef LWP_NOT_X86
#include <cpuid.h>

static inline Cpuid insn_cpuid(uint32_t leaf)
{
    Cpuid r;

    __cpuid(leaf, r.eax, r.ebx, r.ecx, r.edx);
    return r;
}

static inline void insn_llwpcb(void *cb)
{
    asm volatile("llwpcb %0" : : "r"(cb) : "memory");
}

static inline void *insn_slwpcb(void)
{
    void *cb;

    asm volatile("slwpcb %0" : "=r"(cb) : : "memory");
    return cb;
}
#else
static inline Cpuid insn_cpuid(__attribute__((unused)) uint32_t leaf)
{
    return (Cpuid) { 0 };
}

static inline void insn_llwpcb(__attribute__((unused)) void *cb)
{
}

static inline void *insn_slwpcb(void)
{
    return NULL;
}
#endif

#endif
