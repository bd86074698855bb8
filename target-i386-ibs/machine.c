/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Instruction-Based Sampling under TCG: migration. */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "migration/vmstate.h"
#include "ibs.h"

static bool has_ibs(X86CPU *cpu)
{
    return cpu->env.features[FEAT_8000_0001_ECX] & CPUID_EXT3_EXTAPIC;
}

/* What nobody has used is not sent. */
static bool ibs_needed(void *opaque)
{
    X86CPU *cpu = opaque;
    IbsState unused = { };

    ibs_reset(&unused);
    return has_ibs(cpu) && memcmp(&cpu->ibs, &unused, sizeof(unused));
}

static int ibs_post_load(void *opaque, int version_id)
{
    X86CPU *cpu = opaque;

    if (!has_ibs(cpu) || !ibs_state_valid(&cpu->ibs, &cpu->ibs_config)) {
        error_report("CPU %d: inconsistent registers of IBS in the incoming "
                     "stream", CPU(cpu)->cpu_index);
        return -EINVAL;
    }
#ifdef CONFIG_TCG
    ibs_cpu_add_observer(cpu);
#endif
    return 0;
}

const VMStateDescription vmstate_ibs = {
    .name = "cpu/pmu/ibs",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = ibs_needed,
    .post_load = ibs_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64_ARRAY(ibs.reg, X86CPU, IBS_NR_REGISTERS),
        VMSTATE_UINT32(ibs.fetch_count, X86CPU),
        VMSTATE_UINT32(ibs.op_count, X86CPU),
        VMSTATE_UINT32(ibs.random, X86CPU),
        VMSTATE_UINT32_ARRAY(ibs.extended, X86CPU, IBS_NR_EILVT),
        VMSTATE_UNUSED(4),      /* 410H, when it was state */
        VMSTATE_END_OF_LIST()
    }
};
