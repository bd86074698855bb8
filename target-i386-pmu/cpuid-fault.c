/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CPUID faulting under TCG: property, MSR and migration. */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qapi/error.h"
#include "migration/vmstate.h"
#include "system/tcg.h"
#include "cpuid-fault.h"
#ifdef CONFIG_TCG
#include "tcg/helper-tcg.h"
#endif

/* AMD64 Architecture Programmer's Manual, Volumes 2 and 3: CpuidUserDis */
#define HWCR_CPUID_USER_DIS             (1ULL << 35)
#define CPUID_8000_0021_EAX_USER_DIS    (1U << 17)

bool cpuid_fault_realize(X86CPU *cpu, Error **errp)
{
    static int common = -1;
    CPUX86State *env = &cpu->env;

    if (cpu->cpuid_fault &&
        (!tcg_enabled() || !(IS_INTEL_CPU(env) || IS_AMD_CPU(env)))) {
        error_setg(errp, "Property 'cpuid-fault' needs TCG and a CPU of "
                   "Intel's or AMD's");
        return false;
    }
    /* A program must not meet a processor where its tracer is not asked. */
    if (common >= 0 && cpu->cpuid_fault != common) {
        error_setg(errp, "Property 'cpuid-fault' must be the same for all "
                   "CPUs");
        return false;
    }
    common = cpu->cpuid_fault;
    if (cpu->cpuid_fault && IS_AMD_CPU(env)) {
        env->features[FEAT_8000_0021_EAX] |= CPUID_8000_0021_EAX_USER_DIS;
        env->cpuid_xlevel = MAX(env->cpuid_xlevel, 0x80000021);
    }
    return true;
}

#ifdef CONFIG_TCG
void cpuid_fault_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val,
                       uintptr_t ra)
{
    bool hwcr = msr == MSR_K7_HWCR;

    if (!env_archcpu(env)->cpuid_fault || hwcr != IS_AMD_CPU(env)) {
        return;
    }
    if (hwcr) {
        /* Of its other bits, TCG knows none. */
        val = val & HWCR_CPUID_USER_DIS ? MSR_MISC_FEATURES_CPUID_FAULT : 0;
    } else if (val & ~MSR_MISC_FEATURES_CPUID_FAULT) {
        raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
    }
    env->msr_misc_features_enables = val;
}

uint64_t cpuid_fault_rdmsr(CPUX86State *env, uint32_t msr)
{
    bool hwcr = msr == MSR_K7_HWCR;

    if (!env_archcpu(env)->cpuid_fault || hwcr != IS_AMD_CPU(env)) {
        return 0;
    }
    if (msr == MSR_PLATFORM_INFO) {
        return MSR_PLATFORM_INFO_CPUID_FAULT;
    }
    return hwcr && env->msr_misc_features_enables ? HWCR_CPUID_USER_DIS :
           env->msr_misc_features_enables;
}
#endif

static bool misc_features_needed(void *opaque)
{
    X86CPU *cpu = opaque;

    return cpu->env.msr_misc_features_enables != 0;
}

static int misc_features_post_load(void *opaque, int version_id)
{
    X86CPU *cpu = opaque;

    if (!cpu->cpuid_fault ||
        cpu->env.msr_misc_features_enables != MSR_MISC_FEATURES_CPUID_FAULT) {
        error_report("CPU %d: the incoming state has features enabled that "
                     "this CPU does not have (cpuid-fault)",
                     CPU(cpu)->cpu_index);
        return -EINVAL;
    }
    return 0;
}

const VMStateDescription vmstate_msr_misc_features_enables = {
    .name = "cpu/msr_misc_features_enables",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = misc_features_needed,
    .post_load = misc_features_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(env.msr_misc_features_enables, X86CPU),
        VMSTATE_END_OF_LIST()
    }
};
