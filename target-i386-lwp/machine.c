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

    retire_cpu_settle(&cpu->env);
    /* What goes on from here sees what the destination will. */
    retire_cpu_flush(cpu);
    cpu->lwp_stream = cpu->env.lwp;
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
    if (!lwp_load_state(&cpu->lwp_stream, &env->lwp_config,
                        env->xcr0 & XSTATE_LWP_MASK)) {
        error_report("CPU %d: inconsistent LWP state in the incoming stream",
                     CPU(cpu)->cpu_index);
        return -EINVAL;
    }
    /* If a snapshot is refused, the guest may go on with what it had. */
    env->lwp = cpu->lwp_stream;
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
        VMSTATE_UINT64(lwp_stream.cfg, X86CPU),
        VMSTATE_UINT64(lwp_stream.cbaddr, X86CPU),
        VMSTATE_UINT64(lwp_stream.base, X86CPU),
        VMSTATE_UINT64(lwp_stream.prng, X86CPU),
        VMSTATE_UINT64(lwp_stream.ip_first, X86CPU),
        VMSTATE_UINT64(lwp_stream.ip_span, X86CPU),
        VMSTATE_UINT64(lwp_stream.deferred_ip, X86CPU),
        VMSTATE_STRUCT_ARRAY(lwp_stream.pending, X86CPU, LWP_NR_EVENTS, 1,
                             vmstate_lwp_record, LwpRecord),
        VMSTATE_INT32_ARRAY(lwp_stream.counter, X86CPU, LWP_NR_EVENTS),
        VMSTATE_UINT32(lwp_stream.size, X86CPU),
        VMSTATE_UINT32(lwp_stream.head, X86CPU),
        VMSTATE_UINT32(lwp_stream.flags, X86CPU),
        VMSTATE_UINT32(lwp_stream.filters, X86CPU),
        VMSTATE_UINT32(lwp_stream.ref_fraction, X86CPU),
        VMSTATE_UINT32(lwp_stream.npending, X86CPU),
        VMSTATE_UINT8(lwp_stream.ip_filter, X86CPU),
        VMSTATE_BOOL(lwp_stream.deferred, X86CPU),
        VMSTATE_UINT32(lwp_stream.away, X86CPU),
        VMSTATE_END_OF_LIST()
    }
};
