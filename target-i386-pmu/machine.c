/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters under TCG: migration. */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "migration/vmstate.h"
#include "pmu.h"
#include "engine/netburst.h"

static bool pmu_needed(void *opaque)
{
    X86CPU *cpu = opaque;

    return perfmon_has_pmu(cpu);
}

static int pmu_pre_save(void *opaque)
{
    X86CPU *cpu = opaque;

    retire_cpu_settle(&cpu->env);
    /* Between two instructions every interrupt is with the APIC already. */
    pmu_settle(&cpu->pmu, &cpu->pmu_config);
    /* What goes on from here sees what the destination will. */
    retire_cpu_flush(cpu);
    return 0;
}

static int pmu_pre_load(void *opaque)
{
    X86CPU *cpu = opaque;

    if (!pmu_needed(cpu)) {
        error_report("CPU %d: the incoming state has performance counters, "
                     "which this CPU does not have", CPU(cpu)->cpu_index);
        return -EINVAL;
    }
    return 0;
}

static int pmu_post_load(void *opaque, int version_id)
{
    X86CPU *cpu = opaque;
    CPUX86State *env = &cpu->env;

    if (!pmu_load_state(&cpu->pmu, &cpu->pmu_config)) {
        error_report("CPU %d: inconsistent performance counters in the "
                     "incoming stream", CPU(cpu)->cpu_index);
        return -EINVAL;
    }
    pmu_set_svm(&cpu->pmu, &cpu->pmu_config, env->efer & MSR_EFER_SVME,
                env->hflags & HF_GUEST_MASK);
    retire_cpu_flush(cpu);
    cpu->pmu_loaded = true;
    return 0;
}

void pmu_cpu_pre_load(X86CPU *cpu)
{
    PmuState *s = &cpu->pmu;

    cpu->pmu_loaded = false;
    memset(s->offcore, 0, sizeof(s->offcore));
    s->mperf = s->aperf = 0;
    s->clocks = false;
    s->pebs_enable = s->pebs_data_cfg = 0;
    s->pebs_armed = s->load_latency = s->frontend = 0;
    s->tag_random = s->tag_left = 0;
    if (cpu->pmu_config.netburst) {
        *cpu->pmu_config.netburst = (NetburstState) { };
    }
}

bool pmu_cpu_loaded(X86CPU *cpu)
{
    if (pmu_needed(cpu) && !cpu->pmu_loaded) {
        error_report("CPU %d: the incoming state has no performance counters, "
                     "which this CPU has", CPU(cpu)->cpu_index);
        return false;
    }
    return true;
}

/* A subsection of fields of PmuState that is sent if @is_needed */
#define SUBSECTION(what, is_needed, ...)                                \
    static bool what##_needed(void *opaque)                             \
    {                                                                   \
        const PmuState *s = &((X86CPU *)opaque)->pmu;                   \
                                                                        \
        return is_needed;                                               \
    }                                                                   \
                                                                        \
    static const VMStateDescription vmstate_pmu_##what = {              \
        .name = "cpu/pmu/" #what,                                       \
        .version_id = 1,                                                \
        .minimum_version_id = 1,                                        \
        .needed = what##_needed,                                        \
        .fields = (const VMStateField[]) {                              \
            __VA_ARGS__,                                                \
            VMSTATE_END_OF_LIST()                                       \
        }                                                               \
    }

SUBSECTION(offcore, s->offcore[0] || s->offcore[1],
           VMSTATE_UINT64_ARRAY(pmu.offcore, X86CPU, PMU_NR_OFFCORE));
SUBSECTION(clocks, s->clocks,
           VMSTATE_UINT64(pmu.mperf, X86CPU),
           VMSTATE_UINT64(pmu.aperf, X86CPU),
           VMSTATE_BOOL(pmu.clocks, X86CPU));
SUBSECTION(pebs, s->pebs_enable || s->pebs_data_cfg || s->pebs_armed ||
                 s->load_latency || s->tag_random || s->tag_left,
           VMSTATE_UINT64(pmu.pebs_enable, X86CPU),
           VMSTATE_UINT64(pmu.pebs_data_cfg, X86CPU),
           VMSTATE_UINT64(pmu.pebs_armed, X86CPU),
           VMSTATE_UINT64(pmu.load_latency, X86CPU),
           VMSTATE_UINT32(pmu.tag_random, X86CPU),
           VMSTATE_UINT32(pmu.tag_left, X86CPU));
SUBSECTION(frontend, s->frontend, VMSTATE_UINT64(pmu.frontend, X86CPU));

static bool netburst_needed(void *opaque)
{
    X86CPU *cpu = opaque;

    return cpu->pmu_config.netburst;
}

static const VMStateDescription vmstate_netburst_registers = {
    .name = "netburst-registers",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64_ARRAY(value, NetburstState, NETBURST_COUNTERS),
        VMSTATE_UINT32_ARRAY(cccr, NetburstState, NETBURST_COUNTERS),
        VMSTATE_UINT32_ARRAY(escr, NetburstState, NETBURST_ESCRS),
        VMSTATE_UINT32_ARRAY(precise, NetburstState, NETBURST_PRECISE),
        VMSTATE_END_OF_LIST()
    }
};

static int netburst_pre_load(void *opaque)
{
    X86CPU *cpu = opaque;

    if (!cpu->pmu_config.netburst) {
        error_report("CPU %d: the incoming state has counters of a P4, which "
                     "this CPU does not have", CPU(cpu)->cpu_index);
        return -EINVAL;
    }
    return 0;
}

static const VMStateDescription vmstate_pmu_netburst = {
    .name = "cpu/pmu/netburst",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = netburst_needed,
    .pre_load = netburst_pre_load,
    .fields = (const VMStateField[]) {
        VMSTATE_STRUCT_POINTER(pmu_config.netburst, X86CPU,
                               vmstate_netburst_registers, NetburstState),
        VMSTATE_END_OF_LIST()
    }
};

const VMStateDescription vmstate_pmu = {
    .name = "cpu/pmu",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = pmu_needed,
    .pre_save = pmu_pre_save,
    .pre_load = pmu_pre_load,
    .post_load = pmu_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64_ARRAY(pmu.evtsel, X86CPU, PMU_MAX_GP),
        VMSTATE_UINT64_ARRAY(pmu.value, X86CPU, PMU_NR_COUNTERS),
        VMSTATE_UINT64(pmu.fixed_ctr_ctrl, X86CPU),
        VMSTATE_UINT64(pmu.global_ctrl, X86CPU),
        VMSTATE_UINT64(pmu.global_status, X86CPU),
        VMSTATE_UINT64(pmu.debugctl, X86CPU),
        VMSTATE_UINT64(pmu.smm_global_ctrl, X86CPU),
        VMSTATE_UINT64(pmu.smm_debugctl, X86CPU),
        VMSTATE_UINT32_ARRAY(pmu.ref_fraction, X86CPU, RETIRE_NR_ROWS),
        VMSTATE_BOOL(pmu.smm_frozen, X86CPU),
        VMSTATE_END_OF_LIST()
    },
    .subsections = (const VMStateDescription * const []) {
        &vmstate_pmu_offcore,
        &vmstate_pmu_clocks,
        &vmstate_pmu_pebs,
        &vmstate_pmu_frontend,
        &vmstate_pmu_netburst,
        &vmstate_perfmon_ds,
        NULL
    }
};
