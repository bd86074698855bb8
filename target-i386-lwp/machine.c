/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: migration. */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "migration/vmstate.h"
#include "lwp.h"

static bool lwp_needed(void *opaque)
{
    X86CPU *cpu = opaque;
    const LwpState *s = &cpu->env.lwp;

    return s->cfg || lwp_enabled(s) || s->prng;
}

static int lwp_pre_save(void *opaque)
{
    X86CPU *cpu = opaque;

    retire_cpu_count(&cpu->env);
    /* What goes on from here sees what the destination will. */
    retire_cpu_flush(cpu);
    return 0;
}

static int lwp_post_load(void *opaque, int version_id)
{
    X86CPU *cpu = opaque;
    CPUX86State *env = &cpu->env;

    if (!(env->features[FEAT_8000_0001_ECX] & CPUID_EXT3_LWP)) {
        error_report("CPU %d: the incoming state uses LWP, "
                     "which this CPU does not have", CPU(cpu)->cpu_index);
        return -EINVAL;
    }
    if (!lwp_load_state(&env->lwp, &env->lwp_config,
                        env->xcr0 & XSTATE_LWP_MASK)) {
        error_report("CPU %d: inconsistent LWP state in the incoming stream",
                     CPU(cpu)->cpu_index);
        return -EINVAL;
    }
    retire_cpu_flush(cpu);
    return 0;
}

static const VMStateDescription vmstate_lwp_record = {
    .name = "cpu/lwp/record",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64_ARRAY(q, LwpRecord, LWP_RECORD_SIZE / 8),
        VMSTATE_END_OF_LIST()
    }
};

const VMStateDescription vmstate_lwp = {
    .name = "cpu/lwp",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = lwp_needed,
    .pre_save = lwp_pre_save,
    .post_load = lwp_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(env.lwp.cfg, X86CPU),
        VMSTATE_UINT64(env.lwp.cbaddr, X86CPU),
        VMSTATE_UINT64(env.lwp.base, X86CPU),
        VMSTATE_UINT64(env.lwp.prng, X86CPU),
        VMSTATE_UINT64(env.lwp.ip_first, X86CPU),
        VMSTATE_UINT64(env.lwp.ip_span, X86CPU),
        VMSTATE_UINT64(env.lwp.deferred_ip, X86CPU),
        VMSTATE_STRUCT_ARRAY(env.lwp.pending, X86CPU, LWP_NR_EVENTS, 1,
                             vmstate_lwp_record, LwpRecord),
        VMSTATE_INT32_ARRAY(env.lwp.counter, X86CPU, LWP_NR_EVENTS),
        VMSTATE_UINT32(env.lwp.size, X86CPU),
        VMSTATE_UINT32(env.lwp.head, X86CPU),
        VMSTATE_UINT32(env.lwp.flags, X86CPU),
        VMSTATE_UINT32(env.lwp.filters, X86CPU),
        VMSTATE_UINT32(env.lwp.ref_fraction, X86CPU),
        VMSTATE_UINT32(env.lwp.npending, X86CPU),
        VMSTATE_UINT8(env.lwp.ip_filter, X86CPU),
        VMSTATE_BOOL(env.lwp.deferred, X86CPU),
        VMSTATE_UINT32(env.lwp.away, X86CPU),
        VMSTATE_END_OF_LIST()
    }
};
