/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Branch records under TCG: which there are. */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "branch.h"

static bool init_config(X86CPU *cpu, BranchConfig *config)
{
    PmuVendor vendor;
    unsigned family, model = perfmon_cpu_model(cpu, &vendor, &family);
    const BranchFlavour *f = branch_flavour(vendor, family, model);
    uint32_t without = 0;

    *config = (BranchConfig) { };
    if (!tcg_enabled() || !f) {
        return false;
    }
    without |= cpu->enable_pmu ? 0 : BRANCH_WITHOUT_PMU;
    without |= cpu->branch_lbr ? 0 : BRANCH_WITHOUT_LBR;
    without |= cpu->branch_btf ? 0 : BRANCH_WITHOUT_BTF;
    branch_config_init(config, f, without);
    return true;
}

static bool is_architectural(const BranchConfig *config)
{
    uint32_t regs[4];

    branch_cpuid_1c(config, regs);
    return regs[0];
}

static uint64_t branch_supported(X86CPU *cpu, FeatureWord w)
{
    BranchConfig config;

    if (!init_config(cpu, &config)) {
        return 0;
    }
    switch (w) {
    case FEAT_1_ECX:
        return perfmon_debug_store(cpu, w) ? CPUID_EXT_DSCPL : 0;
    case FEAT_7_0_EDX:
        return is_architectural(&config) ? CPUID_7_0_EDX_ARCH_LBR : 0;
    case FEAT_PERF_CAPABILITIES:
        return branch_perf_capabilities(&config);
    case FEAT_SVM:
        return config.pmu && branch_has_lbrv(&config) ? CPUID_SVM_LBRV : 0;
    case FEAT_8000_0022_EAX:
        return config.lbr_v2 ? CPUID_8000_0022_EAX_LBR_V2 : 0;
    default:
        return 0;
    }
}

static void branch_expand_features(X86CPU *cpu)
{
    CPUX86State *env = &cpu->env;
    uint64_t lbr_v2 = CPUID_8000_0022_EAX_LBR_V2 &
                      ~env->user_features[FEAT_8000_0022_EAX];

    if (env->features[FEAT_7_0_EDX] & CPUID_7_0_EDX_ARCH_LBR) {
        env->cpuid_min_level = MAX(env->cpuid_min_level, 0x1c);
    }
    env->features[FEAT_8000_0022_EAX] &= ~lbr_v2;
    if (env->features[FEAT_8000_0022_EAX] & CPUID_8000_0022_EAX_PERFMON_V2) {
        env->features[FEAT_8000_0022_EAX] |=
            branch_supported(cpu, FEAT_8000_0022_EAX) & lbr_v2;
    }
}

static bool branch_realize(X86CPU *cpu, Error **errp)
{
    BranchConfig *config = &cpu->branch_config;
    CPUX86State *env = &cpu->env;

    if (!init_config(cpu, config)) {
        return true;
    }
    config->ds = env->features[FEAT_1_EDX] & CPUID_DTS;
    config->dtes64 = env->features[FEAT_1_ECX] & CPUID_EXT_DTES64;
    config->ds_cpl = env->features[FEAT_1_ECX] & CPUID_EXT_DSCPL;
    config->lbr_v2 = env->features[FEAT_8000_0022_EAX] &
                     CPUID_8000_0022_EAX_LBR_V2;
    if (is_architectural(config)) {
        config->lbr = env->features[FEAT_7_0_EDX] & CPUID_7_0_EDX_ARCH_LBR;
    }
    if (cpu->enable_pmu && cpu->lbr_fmt != ~PERF_CAP_LBR_FMT &&
        cpu->lbr_fmt != branch_perf_capabilities(config)) {
        error_setg(errp, "Property 'lbr-fmt' must be 0x%" PRIx64
                   " for this CPU, not 0x%" PRIx64,
                   branch_perf_capabilities(config), cpu->lbr_fmt);
        return false;
    }
    config->pmu_version = cpu->perfmon.version;
    config->insn_clocks = cpu->retire_config.insn_clocks;
    config->debugctl_other = cpu->perfmon.debugctl_mask;
    return true;
}

static void branch_cpuid(X86CPU *cpu, uint32_t leaf, uint32_t regs[4])
{
    if (leaf == 0x1c) {
        branch_cpuid_1c(&cpu->branch_config, regs);
    } else if (leaf == 0x80000022) {
        branch_cpuid_80000022(&cpu->branch_config, regs);
    }
}

static uint64_t misc_enable(X86CPU *cpu, uint64_t val)
{
    return cpu->branch_config.ds ? val & ~(uint64_t)PMU_MISC_NO_BTS : val;
}

static void last_branches(X86CPU *cpu, PerfmonBranch *last, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        branch_entry(&cpu->branch, &cpu->branch_config, &cpu->branch_ring, i,
                     &last[i]);
    }
}

static void branch_show(X86CPU *cpu, GString *text)
{
    const BranchConfig *config = &cpu->branch_config;
    const BranchState *s = &cpu->branch;
    bool frozen = *cpu->perfmon.global_status & PMU_STATUS_LBR_FRZ;
    RetireWants wants = branch_wants(s, config, false, frozen) |
                        branch_wants(s, config, true, frozen);
    g_autoptr(GString) records = g_string_new("");
    unsigned depth = 0, n = 0;
    PerfmonBranch e;

    if (!config->lbr && !config->ds) {
        return;
    }
    while (branch_entry(s, config, &cpu->branch_ring, depth, &e)) {
        depth++;
        if (e.from || e.to || e.info) {
            g_string_append_printf(records, "  branch %u: %016" PRIx64
                                   " -> %016" PRIx64, n++, e.from, e.to);
            if (e.info) {
                g_string_append_printf(records, " info %016" PRIx64, e.info);
            }
            g_string_append_c(records, '\n');
        }
    }
    g_string_append_printf(text, "  branch records: %s, %u%s\n%s",
                           branch_flavour_name(config->flavour), depth,
                           wants & BRANCH_WANT_RECORDS ? ", recording" : "",
                           records->str);
    if (config->ds) {
        g_string_append_printf(text, "  BTS %s, DS_AREA=%016" PRIx64 "\n",
                               wants & RETIRE_WANT_TAKEN ? "on" : "off",
                               cpu->perfmon.ds_area);
    }
}

const PerfmonUnit branch_unit = {
    .supported = branch_supported,
    .expand_features = branch_expand_features,
    .realize = branch_realize,
    .cpuid = branch_cpuid,
    .misc_enable = misc_enable,
    .event = branch_cpu_event,
    .msr = branch_cpu_msr,
    .task_commit = branch_cpu_task_commit,
    .last_branches = last_branches,
    .show = branch_show,
    .loaded = branch_cpu_loaded,
};
