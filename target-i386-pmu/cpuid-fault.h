/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CPUID faulting under TCG: what the rest of target/i386 calls. */

#ifndef I386_CPUID_FAULT_H
#define I386_CPUID_FAULT_H

#include "cpu.h"

#ifndef CONFIG_USER_ONLY

/* Fails if "cpuid-fault=on" is for a CPU that cannot have it. */
bool cpuid_fault_realize(X86CPU *cpu, Error **errp);

/*
 * WRMSR of MISC_FEATURES_ENABLES, which may raise #GP, or HWCR, and RDMSR of
 * these and PLATFORM_INFO.  All are 0 on a CPU without.
 */
void cpuid_fault_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val,
                       uintptr_t ra);
uint64_t cpuid_fault_rdmsr(CPUX86State *env, uint32_t msr);

extern const VMStateDescription vmstate_msr_misc_features_enables;

#else

static inline bool cpuid_fault_realize(X86CPU *cpu, Error **errp)
{
    return true;
}

#endif

#endif
