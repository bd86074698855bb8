/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Intel Processor Trace under TCG: which there is, CPUID, migration. */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "migration/vmstate.h"
#include "pt-cpu.h"

static bool wanted(X86CPU *cpu)
{
    return cpu->env.features[FEAT_7_0_EBX] & CPUID_7_0_EBX_INTEL_PT;
}

static bool init_config(X86CPU *cpu, PtConfig *config)
{
    PmuVendor vendor;
    unsigned family, model = perfmon_cpu_model(cpu, &vendor, &family);
    const PtFlavour *f = pt_flavour(vendor, family, model);

    if (!f || !wanted(cpu)) {
        return false;
    }
    pt_config_init(config, f);
    config->va_bits = cpu->perfmon.va_bits;
    return true;
}

/* No model has it if it is not asked for: a trace is a channel of its own. */
static uint64_t pt_supported(X86CPU *cpu, FeatureWord w)
{
    PtConfig config;

    return w == FEAT_7_0_EBX && tcg_enabled() && init_config(cpu, &config) ?
           CPUID_7_0_EBX_INTEL_PT : 0;
}

/* What "max" has, and nobody has asked for, does not stand in the way. */
static void pt_expand_features(X86CPU *cpu)
{
    CPUX86State *env = &cpu->env;

    if (wanted(cpu)) {
        env->features[FEAT_8000_0001_ECX] &=
            env->user_features[FEAT_8000_0001_ECX] | ~CPUID_EXT3_SVM;
    }
}

static bool pt_realize(X86CPU *cpu, Error **errp)
{
    CPUX86State *env = &cpu->env;

    cpu->pt_config = (PtConfig) { };
    if (!perfmon_has_pmu(cpu) || !wanted(cpu)) {
        return true;
    }
    if (env->features[FEAT_8000_0001_ECX] & CPUID_EXT3_SVM) {
        error_setg(errp, "Property 'intel-pt' needs 'svm=off': no processor "
                   "has both");
        return false;
    }
    init_config(cpu, &cpu->pt_config);
    pt_forget(&cpu->pt_pending);
    return true;
}

void pt_cpu_cpuid(X86CPU *cpu, uint32_t subleaf, uint32_t *eax, uint32_t *ebx,
                  uint32_t *ecx, uint32_t *edx)
{
    uint32_t regs[4] = { };

    if (cpu->pt_config.ecx) {
        pt_cpuid(&cpu->pt_config, subleaf, regs);
    }
    *eax = regs[0];
    *ebx = regs[1];
    *ecx = regs[2];
    *edx = regs[3];
}

static void pt_show(X86CPU *cpu, GString *text)
{
    const PtState *s = &cpu->pt;

    if (cpu->pt_config.ecx) {
        g_string_append_printf(text, "  Processor Trace: %s, CTL=%016" PRIx64
                               " STATUS=%016" PRIx64 "\n"
                               "    OUTPUT_BASE=%016" PRIx64
                               " MASK_PTRS=%016" PRIx64 "\n",
                               pt_packets_wanted(s) ? "tracing" :
                               pt_tells(s) ? "on" : "off", s->ctl, s->status,
                               s->output_base, s->output_mask);
    }
}

/* What nobody has used is not sent. */
static bool pt_needed(void *opaque)
{
    X86CPU *cpu = opaque;
    const PtState *s = &cpu->pt;
    uint64_t used = s->ctl | s->status | s->output_base | s->cr3_match |
                    s->output_mask >> 7;

    for (int i = 0; i < ARRAY_SIZE(s->addr); i++) {
        used |= s->addr[i];
    }
    return cpu->pt_config.ecx && used;
}

static int pt_post_load(void *opaque, int version_id)
{
    X86CPU *cpu = opaque;

    if (!cpu->pt_config.ecx ||
        pt_state_bad(&cpu->pt, &cpu->pt_pending, &cpu->pt_config)) {
        error_report("CPU %d: inconsistent Processor Trace in the incoming "
                     "stream", CPU(cpu)->cpu_index);
        return -EINVAL;
    }
    pt_cpu_loaded(cpu);
    return 0;
}

const VMStateDescription vmstate_pt = {
    .name = "cpu/pt",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = pt_needed,
    .post_load = pt_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(pt.ctl, X86CPU),
        VMSTATE_UINT64(pt.status, X86CPU),
        VMSTATE_UINT64(pt.output_base, X86CPU),
        VMSTATE_UINT64(pt.output_mask, X86CPU),
        VMSTATE_UINT64(pt.cr3_match, X86CPU),
        VMSTATE_UINT64_ARRAY(pt.addr, X86CPU, 2 * PT_RANGES),
        VMSTATE_UINT32(pt.bytes, X86CPU),
        VMSTATE_BOOL(pt.starting, X86CPU),
        VMSTATE_BOOL(pt.context_en, X86CPU),
        VMSTATE_BOOL(pt.filter_en, X86CPU),
        VMSTATE_BOOL(pt.smm_trace_en, X86CPU),
        VMSTATE_UINT8(pt.mode, X86CPU),
        VMSTATE_UINT64(pt.last_ip, X86CPU),
        VMSTATE_UINT64(pt.here.cr3, X86CPU),
        VMSTATE_BOOL(pt.here.os, X86CPU),
        VMSTATE_BOOL(pt.here.smm, X86CPU),
        VMSTATE_UINT8(pt.here.exec, X86CPU),
        VMSTATE_UINT64(pt.entry, X86CPU),
        VMSTATE_UINT32(pt.staged, X86CPU),
        VMSTATE_UINT8_ARRAY(pt.stage, X86CPU, PT_STAGED + PT_PACKET),
        VMSTATE_UINT64(pt_pending.tnt, X86CPU),
        VMSTATE_UINT32(pt_pending.top, X86CPU),
        VMSTATE_UINT64_ARRAY(pt_pending.ret, X86CPU, PT_RETURNS),
        VMSTATE_BOOL(pt_cr3, X86CPU),
        VMSTATE_UINT64(pt_next.cr3, X86CPU),
        VMSTATE_BOOL(pt_next.os, X86CPU),
        VMSTATE_BOOL(pt_next.smm, X86CPU),
        VMSTATE_UINT8(pt_next.exec, X86CPU),
        VMSTATE_END_OF_LIST()
    }
};

const PerfmonUnit pt_unit = {
    .supported = pt_supported,
    .expand_features = pt_expand_features,
    .realize = pt_realize,
    .event = pt_cpu_event,
    .msr = pt_cpu_msr,
    .task_commit = pt_cpu_task_commit,
    .show = pt_show,
};
