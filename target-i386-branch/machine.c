/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Branch records under TCG: migration. */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "migration/vmstate.h"
#include "branch.h"
#include "retire/retire.h"

/* What nobody has used is not sent. */
static bool branch_needed(void *opaque)
{
    X86CPU *cpu = opaque;

    return cpu->branch_used;
}

/* These are in "cpu/arch_lbr". */
static bool has_arch(X86CPU *cpu)
{
    return cpu->env.features[FEAT_7_0_EDX] & CPUID_7_0_EDX_ARCH_LBR;
}

static bool stack_needed(void *opaque)
{
    return !has_arch(opaque);
}

/* An LBREntry is a PerfmonBranch. */
QEMU_BUILD_BUG_ON(sizeof_field(CPUX86State, lbr_records) !=
                  sizeof_field(BranchStack, entry));

static int branch_pre_save(void *opaque)
{
    X86CPU *cpu = opaque;
    CPUX86State *env = &cpu->env;
    BranchStack *stack = &cpu->branch_stream;

    branch_stack_save(&cpu->branch, &cpu->branch_config, &cpu->branch_ring,
                      env->retire.clock, stack);
    env->msr_lbr_ctl = cpu->branch.lbr_ctl;
    env->msr_lbr_depth = cpu->branch.lbr_depth;
    memcpy(env->lbr_records, stack->entry, sizeof(stack->entry));
    return 0;
}

static int branch_pre_load(void *opaque)
{
    X86CPU *cpu = opaque;

    if (!cpu->branch_config.flavour) {
        error_report("CPU %d: the incoming state has branch records, which "
                     "this CPU does not have", CPU(cpu)->cpu_index);
        return -EINVAL;
    }
    return 0;
}

static int branch_post_load(void *opaque, int version_id)
{
    X86CPU *cpu = opaque;

    cpu->branch_used = true;
    return 0;
}

bool branch_cpu_loaded(X86CPU *cpu)
{
    CPUX86State *env = &cpu->env;
    BranchStack *stack = &cpu->branch_stream;

    if (!cpu->branch_used) {
        return true;
    }
    if (has_arch(cpu)) {
        cpu->branch.lbr_ctl = env->msr_lbr_ctl;
        cpu->branch.lbr_depth = env->msr_lbr_depth;
        memcpy(stack->entry, env->lbr_records, sizeof(stack->entry));
    }
    if (branch_state_bad(&cpu->branch, &cpu->branch_config, stack)) {
        error_report("CPU %d: inconsistent branch records in the incoming "
                     "stream", CPU(cpu)->cpu_index);
        return false;
    }
    branch_stack_load(&cpu->branch, &cpu->branch_config, &cpu->branch_ring,
                      env->retire.clock, stack);
    branch_cpu_add_observer(cpu);
    cpu_sync_retire(env);
    return true;
}

static const VMStateDescription vmstate_entry = {
    .name = "cpu/branch/entry",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(from, PerfmonBranch),
        VMSTATE_UINT64(to, PerfmonBranch),
        VMSTATE_UINT64(info, PerfmonBranch),
        VMSTATE_END_OF_LIST()
    }
};

static const VMStateDescription vmstate_stack = {
    .name = "cpu/branch/stack",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = stack_needed,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(branch_stream.tos, X86CPU),
        VMSTATE_STRUCT_ARRAY(branch_stream.entry, X86CPU, BRANCH_NR, 1,
                             vmstate_entry, PerfmonBranch),
        VMSTATE_END_OF_LIST()
    }
};

const VMStateDescription vmstate_branch = {
    .name = "cpu/branch",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = branch_needed,
    .pre_save = branch_pre_save,
    .pre_load = branch_pre_load,
    .post_load = branch_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(branch.debugctl, X86CPU),
        VMSTATE_UINT64(branch.select, X86CPU),
        VMSTATE_UINT64(branch.dbg_extn_cfg, X86CPU),
        VMSTATE_UINT64(branch.ler_from, X86CPU),
        VMSTATE_UINT64(branch.ler_to, X86CPU),
        VMSTATE_UINT64(branch.ler_info, X86CPU),
        VMSTATE_UINT64(branch.smm_debugctl, X86CPU),
        VMSTATE_UINT64(branch.smm_lbr_ctl, X86CPU),
        VMSTATE_BOOL(branch.smm_frozen, X86CPU),
        VMSTATE_UINT64(branch_stream.age, X86CPU),
        VMSTATE_END_OF_LIST()
    },
    .subsections = (const VMStateDescription * const []) {
        &vmstate_stack,
        NULL
    }
};
