/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance monitoring under TCG: units, CPU features, RESET, migration. */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "hw/i386/apic_internal.h"
#include "migration/vmstate.h"
#include "qemu/error-report.h"
#include "engine/processors.h"
#include "perfmon.h"

const PerfmonUnit *perfmon_units[PERFMON_MAX_UNITS + 1];

#ifdef CONFIG_TCG
void perfmon_add_unit(const PerfmonUnit *unit)
{
    int n = 0;

    while (perfmon_units[n]) {
        n++;
    }
    assert(n < PERFMON_MAX_UNITS);
    perfmon_units[n] = unit;
}
#endif

unsigned perfmon_cpu_model(X86CPU *cpu, PmuVendor *vendor, unsigned *family)
{
    static const struct {
        const char *name;
        PmuVendor vendor;
    } vendors[] = {
        { CPUID_VENDOR_INTEL, PMU_VENDOR_INTEL },
        { CPUID_VENDOR_AMD, PMU_VENDOR_AMD },
        { CPUID_VENDOR_HYGON, PMU_VENDOR_AMD },
        { "CyrixInstead", PMU_VENDOR_CYRIX },
        { "CentaurHauls", PMU_VENDOR_CENTAUR },
        { "  Shanghai  ", PMU_VENDOR_SHANGHAI },
    };
    CPUX86State *env = &cpu->env;
    uint32_t version = env->cpuid_version;
    unsigned n = extract32(version, 8, 4);
    char name[CPUID_VENDOR_SZ + 1];

    x86_cpu_vendor_words2str(name, env->cpuid_vendor1, env->cpuid_vendor2,
                             env->cpuid_vendor3);
    *vendor = PMU_VENDOR_OTHER;
    for (int i = 0; i < ARRAY_SIZE(vendors); i++) {
        if (!strcmp(name, vendors[i].name)) {
            *vendor = vendors[i].vendor;
        }
    }
    *family = n < 0xf ? n : n + extract32(version, 20, 8);
    return extract32(version, 4, 4) | extract32(version, 16, 4) << 4;
}

static bool exists(X86CPU *cpu)
{
    if (!perfmon_has_pmu(cpu)) {
        return false;
    }
    PERFMON_FOREACH(u, exists) {
        if (!(*u)->exists(cpu)) {
            return false;
        }
    }
    return true;
}

uint64_t perfmon_debug_store(X86CPU *cpu, FeatureWord w)
{
    PmuVendor vendor;
    unsigned family, model = perfmon_cpu_model(cpu, &vendor, &family);
    PerfmonCore core = perfmon_core(vendor, family, model);

    return !cpu->perfmon_ds ? 0 :
           w == FEAT_1_EDX && perfmon_has_ds(core) ? CPUID_DTS :
           w == FEAT_1_ECX && perfmon_has_ds64(core) ? CPUID_EXT_DTES64 : 0;
}

static uint64_t of_units(X86CPU *cpu, FeatureWord w)
{
    uint64_t features = perfmon_debug_store(cpu, w);

    PERFMON_FOREACH(u, supported) {
        features |= (*u)->supported(cpu, w);
    }
    return features;
}

/* PEBS is nothing without the debug store, and its records have 64 bits. */
static uint64_t capabilities(X86CPU *cpu)
{
    uint64_t caps = of_units(cpu, FEAT_PERF_CAPABILITIES);

    return of_units(cpu, FEAT_1_ECX) & CPUID_EXT_DTES64 ? caps :
           caps & ~(uint64_t)PMU_CAP_PEBS;
}

uint64_t perfmon_cpu_supported(X86CPU *cpu, FeatureWord w)
{
    if (!exists(cpu)) {
        return 0;
    }
    return w == FEAT_PERF_CAPABILITIES ? capabilities(cpu) :
           of_units(cpu, w) |
           (w == FEAT_1_ECX && capabilities(cpu) ? CPUID_EXT_PDCM : 0);
}

void perfmon_cpu_expand_features(X86CPU *cpu)
{
    static const FeatureWord words[] = {
        FEAT_1_EDX, FEAT_1_ECX, FEAT_6_ECX, FEAT_7_0_EDX,
        FEAT_PERF_CAPABILITIES, FEAT_SVM,
    };
    CPUX86State *env = &cpu->env;

    if (!exists(cpu)) {
        return;
    }
    /* No model has these: they depend on the accelerator. */
    for (int i = 0; i < ARRAY_SIZE(words); i++) {
        env->features[words[i]] |= perfmon_cpu_supported(cpu, words[i]) &
                                   ~env->user_features[words[i]];
    }
    if (!(env->features[FEAT_1_EDX] & CPUID_DTS)) {
        /* Who wants no 'ds' need not say so of what goes with it. */
        env->features[FEAT_1_ECX] &= env->user_features[FEAT_1_ECX] |
                                     ~(CPUID_EXT_DTES64 | CPUID_EXT_DSCPL);
    }
    PERFMON_FOREACH(u, expand_features) {
        (*u)->expand_features(cpu);
    }
}

bool perfmon_event(CPUX86State *env, PerfmonEvent event)
{
    bool ret = false;

    if (event <= PERFMON_PRE_LOAD) {
        env_archcpu(env)->perfmon.ds_area = 0;
    }
    PERFMON_FOREACH(u, event) {
        ret |= (*u)->event(env, event);
    }
    return ret;
}

void perfmon_cpu_event(CPUX86State *env, PerfmonEvent event)
{
#ifdef CONFIG_TCG
    if (event == PERFMON_RSM) {
        retire_cpu_settle(env);
    }
    if (perfmon_event(env, event)) {
        cpu_sync_retire(env);
    }
#endif
}

void perfmon_cpu_machine_reset(X86CPU *cpu)
{
    if (tcg_enabled()) {
        perfmon_cpu_event(&cpu->env, PERFMON_RESET);
    }
}

bool perfmon_ds_valid(X86CPU *cpu, uint64_t addr)
{
    unsigned bits = cpu->perfmon.va_bits;

    return bits == 32 ? addr <= UINT32_MAX : addr == sextract64(addr, 0, bits);
}

bool perfmon_cpu_realize(X86CPU *cpu, Error **errp)
{
    PerfmonState *s = &cpu->perfmon;
    CPUX86State *env = &cpu->env;
    uint64_t ecx = env->features[FEAT_1_ECX];

    if (!perfmon_has_pmu(cpu)) {
        const char *name = cpu->pmu_version ? "pmu-version" :
                           cpu->pmu_counters ? "pmu-counters" :
                           !cpu->pmu_pebs ? "pebs" :
                           !cpu->perfmon_ds ? "bts" : NULL;

        if (name) {
            error_setg(errp, "Property '%s' needs 'pmu=on' and TCG", name);
            return false;
        }
    }
    if (tcg_enabled() && !(env->features[FEAT_1_EDX] & CPUID_DTS) &&
        (ecx & (CPUID_EXT_DTES64 | CPUID_EXT_DSCPL))) {
        error_setg(errp, "Feature '%s' needs 'ds'",
                   ecx & CPUID_EXT_DTES64 ? "dtes64" : "ds-cpl");
        return false;
    }
    s->va_bits = env->features[FEAT_7_0_ECX] & CPUID_7_0_ECX_LA57 ? 57 :
                 env->features[FEAT_8000_0001_EDX] & CPUID_EXT2_LM ? 48 : 32;
    s->debugctl = &s->zero;
    s->global_status = &s->zero;
    s->pebs_armed = &s->zero;
    s->pmi = &s->nothing;
    s->capabilities = exists(cpu) ? capabilities(cpu) : 0;
    PERFMON_FOREACH(u, realize) {
        if (!(*u)->realize(cpu, errp)) {
            return false;
        }
    }
    perfmon_cpu_machine_reset(cpu);
    return true;
}

void perfmon_cpu_unrealize(X86CPU *cpu)
{
    if (tcg_enabled()) {
        perfmon_event(&cpu->env, PERFMON_UNREALIZE);
    }
}

bool cpu_asks_for_pmi(X86CPU *cpu)
{
    return perfmon_event(&cpu->env, PERFMON_ASKS);
}

void perfmon_cpu_cpuid(X86CPU *cpu, uint32_t leaf, uint32_t *eax,
                       uint32_t *ebx, uint32_t *ecx, uint32_t *edx)
{
    uint32_t regs[4] = { };

    PERFMON_FOREACH(u, cpuid) {
        if (perfmon_has_pmu(cpu)) {
            (*u)->cpuid(cpu, leaf, regs);
        }
    }
    *eax = regs[0];
    *ebx = regs[1];
    *ecx = regs[2];
    *edx = regs[3];
}

int perfmon_cpu_pre_load(void *opaque)
{
    X86CPU *cpu = opaque;

    perfmon_event(&cpu->env, PERFMON_PRE_LOAD);
    return 0;
}

static bool ds_needed(void *opaque)
{
    X86CPU *cpu = opaque;

    return cpu->perfmon.ds_area;
}

static int ds_post_load(void *opaque, int version_id)
{
    X86CPU *cpu = opaque;

    if (!(cpu->env.features[FEAT_1_EDX] & CPUID_DTS) ||
        !perfmon_ds_valid(cpu, cpu->perfmon.ds_area)) {
        error_report("CPU %d: inconsistent debug store in the incoming stream",
                     CPU(cpu)->cpu_index);
        return -EINVAL;
    }
    return 0;
}

const VMStateDescription vmstate_perfmon_ds = {
    .name = "cpu/pmu/ds",
    .version_id = 1,
    .minimum_version_id = 1,
    .needed = ds_needed,
    .post_load = ds_post_load,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT64(perfmon.ds_area, X86CPU),
        VMSTATE_END_OF_LIST()
    }
};

bool perfmon_cpu_loaded(X86CPU *cpu)
{
    PERFMON_FOREACH(u, loaded) {
        if (!(*u)->loaded(cpu)) {
            return false;
        }
    }
    return true;
}
