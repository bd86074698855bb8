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

bool cpuid_fault_realize(X86CPU *cpu, Error **errp)
{
    static int common = -1;

    if (cpu->cpuid_fault && (!tcg_enabled() || !IS_INTEL_CPU(&cpu->env))) {
        error_setg(errp, "Property 'cpuid-fault' needs TCG and a CPU of "
                   "Intel's");
        return false;
    }
    /* A program must not meet a processor where its tracer is not asked. */
    if (common >= 0 && cpu->cpuid_fault != common) {
        error_setg(errp, "Property 'cpuid-fault' must be the same for all "
                   "CPUs");
        return false;
    }
    common = cpu->cpuid_fault;
    return true;
}

#ifdef CONFIG_TCG
void cpuid_fault_wrmsr(CPUX86State *env, uint64_t val, uintptr_t ra)
{
    if (env_archcpu(env)->cpuid_fault) {
        if (val & ~MSR_MISC_FEATURES_CPUID_FAULT) {
            raise_exception_err_ra(env, EXCP0D_GPF, 0, ra);
        }
        env->msr_misc_features_enables = val;
    }
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
