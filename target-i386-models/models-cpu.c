/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The models of caches, TLBs and branches: their properties, and a CPU's. */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qemu/error-report.h"
#include "qapi/error.h"
#include "system/tcg.h"
#include "models.h"

/* What a property of the caches is that nobody has set */
#define RETIRE_AS_CPUID UINT32_MAX

#define BYTES(name, level, min, max)                                    \
    { DEFINE_PROP_SIZE32(name, X86CPU, models_config.cache[level].size, \
                         RETIRE_AS_CPUID), min, max }
#define ASSOC(name, level, max)                                         \
    RETIRE_PROPERTY(name, models_config.cache[level].assoc,             \
                    RETIRE_AS_CPUID, 1, max)
#define ENTRIES(name, kind)                                             \
    RETIRE_PROPERTY(name, models_config.tlb.tlb[kind].size,             \
                    RETIRE_AS_CPUID, 0, RETIRE_TLB_ENTRIES_MAX)
#define WAYS(name, kind)                                                \
    RETIRE_PROPERTY(name, models_config.tlb.tlb[kind].assoc,            \
                    RETIRE_AS_CPUID, 1, RETIRE_TLB_ASSOC_MAX)
#define LATENCY(name, source, value)                                    \
    RETIRE_PROPERTY(name, retire_config.latency[RETIRE_SOURCE_##source], \
                    value, 1, RETIRE_LATENCY_MAX)

static const RetireProperty properties[] = {
    BYTES("l1d-size", RETIRE_L1D, 1 * KiB, 1 * MiB),
    ASSOC("l1d-assoc", RETIRE_L1D, RETIRE_ASSOC_MAX),
    BYTES("l2-size", RETIRE_L2, 1 * KiB, 64 * MiB),
    ASSOC("l2-assoc", RETIRE_L2, RETIRE_ASSOC_MAX),
    BYTES("l3-size", RETIRE_L3, 0, 1 * GiB),
    ASSOC("l3-assoc", RETIRE_L3, RETIRE_ASSOC_MAX),
    /* As 64 bits at most mark a set's lines, it has no more ways. */
    BYTES("l1i-size", RETIRE_L1I, 1 * KiB, 1 * MiB),
    ASSOC("l1i-assoc", RETIRE_L1I, RETIRE_TLB_ASSOC_MAX),
    ENTRIES("dtlb-entries", RETIRE_DTLB), WAYS("dtlb-assoc", RETIRE_DTLB),
    ENTRIES("dtlb-2m-entries", RETIRE_DTLB_2M),
    WAYS("dtlb-2m-assoc", RETIRE_DTLB_2M),
    ENTRIES("dtlb-1g-entries", RETIRE_DTLB_1G),
    WAYS("dtlb-1g-assoc", RETIRE_DTLB_1G),
    ENTRIES("itlb-entries", RETIRE_ITLB), WAYS("itlb-assoc", RETIRE_ITLB),
    ENTRIES("itlb-2m-entries", RETIRE_ITLB_2M),
    WAYS("itlb-2m-assoc", RETIRE_ITLB_2M),
    ENTRIES("stlb-entries", RETIRE_STLB), WAYS("stlb-assoc", RETIRE_STLB),
    ENTRIES("istlb-entries", RETIRE_ISTLB), WAYS("istlb-assoc", RETIRE_ISTLB),
    LATENCY("l2-latency", L2, 20), LATENCY("l3-latency", L3, 60),
    LATENCY("remote-latency", REMOTE, 120), LATENCY("dram-latency", DRAM, 200),
    LATENCY("other-latency", OTHER, 400),
};

static const Property branch_predictor =
    DEFINE_PROP_STRING("branch-predictor", X86CPU, branch_predictor);

static CPUCacheInfo **level_of(CPUCaches *c, RetireLevel level)
{
    return level == RETIRE_L1D ? &c->l1d_cache :
           level == RETIRE_L1I ? &c->l1i_cache :
           level == RETIRE_L2 ? &c->l2_cache : &c->l3_cache;
}

/*
 * The cache that CPUID shows a guest of this vendor and cpuid_level, and what
 * has all of CPUID show @info.
 */
#if QEMU_VERSION_MAJOR == 10 && QEMU_VERSION_MINOR == 0
static CPUCacheInfo *get_cpuid_cache(CPUX86State *env, RetireLevel level)
{
    return *level_of(!IS_INTEL_CPU(env) ? &env->cache_info_amd :
                         env->cpuid_level < 4 ? &env->cache_info_cpuid2 :
                         &env->cache_info_cpuid4, level);
}

static void set_cpuid_cache(CPUX86State *env, RetireLevel level,
                            CPUCacheInfo *info)
{
    *level_of(&env->cache_info_cpuid2, level) = info;
    *level_of(&env->cache_info_cpuid4, level) = info;
    *level_of(&env->cache_info_amd, level) = info;
}
#else
static CPUCacheInfo *get_cpuid_cache(CPUX86State *env, RetireLevel level)
{
    return *level_of(&env->cache_info, level);
}

static void set_cpuid_cache(CPUX86State *env, RetireLevel level,
                            CPUCacheInfo *info)
{
    *level_of(&env->cache_info, level) = info;
    env->enable_legacy_cpuid2_cache = false;
    env->enable_legacy_vendor_cache = false;
}
#endif

static const char *const levels[RETIRE_NR_GEOMETRIES] = {
    "l1d", "l2", "l3", "l1i"
};

/* Whether the fields of CPUID's leaves can say that @level is like that. */
static bool cpuid_can_show(CPUX86State *env, int level, const RetireGeometry *g)
{
    static const struct {
        uint32_t unit, max;
    } field[RETIRE_NR_GEOMETRIES] = {
        { KiB, 0xff }, { KiB, 0xffff }, { 512 * KiB, 0x3fff }, { KiB, 0xff }
    };
    /* Of others than Intel's, leaf 8000_0006, which has codes for few ways */
    bool ways = IS_INTEL_CPU(env) || level == RETIRE_L1D ||
                level == RETIRE_L1I ||
                is_power_of_2(g->assoc) || g->assoc == 48 || g->assoc == 96;

    return ways && g->size % field[level].unit == 0 &&
           g->size / field[level].unit <= field[level].max &&
           g->assoc < g->size / RETIRE_LINE_SIZE / g->assoc;
}

/* Have CPUID show @g, which it can. */
static void show_in_cpuid(CPUX86State *env, int level, const RetireGeometry *g)
{
    /* The same for all CPUs */
    static CPUCacheInfo infos[RETIRE_NR_GEOMETRIES];
    CPUCacheInfo *info = &infos[level];

    /* A CPU that runs reads it, while another one is plugged. */
    if (!info->size) {
        CPUCacheInfo shown = *get_cpuid_cache(env, level);

        shown.size = g->size;
        shown.associativity = g->assoc;
        shown.partitions = shown.lines_per_tag = 1;
        shown.sets = g->size / RETIRE_LINE_SIZE / g->assoc;
        *info = shown;
    }
    set_cpuid_cache(env, level, info);
}

/*
 * With RetireConfig.caches_of_cpuid, the caches are those that CPUID shows, and
 * where properties say otherwise, CPUID shows what properties say, because
 * guests compare counts of misses with the sizes in CPUID.
 */
static bool choose_caches(X86CPU *cpu, Error **errp)
{
    /* LWP's processors, AMD's family 15h */
    static const RetireGeometry family_15h[RETIRE_NR_GEOMETRIES] = {
        [RETIRE_L1D] = { 16 * KiB, 4 },
        [RETIRE_L2] = { 2 * MiB, 16 },
        [RETIRE_L3] = { 8 * MiB, 64 },
        [RETIRE_L1I] = { 64 * KiB, 2 },
    };
    const RetireConfig *config = &cpu->retire_config;
    RetireModelsConfig *models = &cpu->models_config;
    bool cpuid = config->caches_of_cpuid && config->counted_models;

    if (cpuid && cpu->cache_info_passthrough) {
        error_setg(errp, "Property 'host-cache-info': the caches of "
                   "performance counters are not the host's");
        return false;
    }
    for (int i = 0; i < RETIRE_NR_GEOMETRIES; i++) {
        RetireGeometry *g = &models->cache[i], unset = family_15h[i];
        bool none = cpuid && i == RETIRE_L3 && !cpu->enable_l3_cache;

        if (cpuid && !config->family_15h) {
            const CPUCacheInfo *info = get_cpuid_cache(&cpu->env, i);

            assert(info->line_size == RETIRE_LINE_SIZE);
            unset = (RetireGeometry) { info->size, info->associativity };
        }
        if (g->size == RETIRE_AS_CPUID) {
            g->size = none ? 0 : unset.size;
        }
        if (g->assoc == RETIRE_AS_CPUID) {
            g->assoc = unset.assoc;
        }
        if (none && g->size) {
            error_setg(errp, "Property 'l3-size' needs 'l3-cache=on'");
            return false;
        }
        if (!retire_geometry_valid(g)) {
            error_setg(errp, "Properties '%s-size' and '%s-assoc': "
                       "%" PRIu32 " bytes in %" PRIu32 " ways of 64-byte lines "
                       "do not make a number of sets", levels[i], levels[i],
                       g->size, g->assoc);
            return false;
        }
        if (!cpuid || !g->size || (i == RETIRE_L1I && g->size == unset.size &&
                                   g->assoc == unset.assoc)) {
            continue;
        }
        if (cpuid_can_show(&cpu->env, i, g)) {
            show_in_cpuid(&cpu->env, i, g);
        } else {
            warn_report_once("CPUID cannot show '%s-size' and '%s-assoc'",
                             levels[i], levels[i]);
        }
    }
    if (cpuid) {
        cpu->enable_l3_cache = models->cache[RETIRE_L3].size;
    }
    return true;
}

static bool choose_tlbs(X86CPU *cpu, Error **errp)
{
    static const char *const names[RETIRE_NR_TLBS] = {
        "dtlb", "dtlb-2m", "dtlb-1g", "itlb", "itlb-2m", "stlb", "istlb"
    };
    RetireTlbConfig *config = &cpu->models_config.tlb;
    const RetireTlbConfig *unset = retire_tlb_config(
        IS_INTEL_CPU(&cpu->env),
        object_property_get_int(OBJECT(cpu), "family", &error_abort),
        object_property_get_int(OBJECT(cpu), "model", &error_abort));

    config->stlb_lg_max = unset->stlb_lg_max;
    config->stlb_code = unset->stlb_code;
    for (int i = 0; i < RETIRE_NR_TLBS; i++) {
        RetireGeometry *g = &config->tlb[i];

        if (g->size == RETIRE_AS_CPUID) {
            g->size = unset->tlb[i].size;
        }
        if (g->assoc == RETIRE_AS_CPUID) {
            g->assoc = unset->tlb[i].assoc ?: g->size;
        }
        if (!retire_tlb_valid(i, g)) {
            error_setg(errp, "Properties '%s-entries' and '%s-assoc': "
                       "%" PRIu32 " entries in %" PRIu32 " ways do not make a "
                       "number of sets", names[i], names[i], g->size, g->assoc);
            return false;
        }
    }
    return true;
}

RetireUncore *retire_uncore;

/* RetireModelsOps.flush */
static void flush(X86CPU *cpu)
{
    RetireModels *models = cpu->retire_models;

    if (models && models->cache) {
        retire_cache_flush(models->cache);
        retire_tlb_reset(&models->tlb);
    }
    if (models) {
        retire_predictor_init(&models->predictor);
    }
}

#ifndef CONFIG_USER_ONLY
void retire_models_machine_reset(X86CPU *cpu)
{
    if (tcg_enabled()) {
        flush(cpu);
    }
}
#endif

/* RetireModelsOps.add */
static void add(X86CPU *cpu)
{
    if (!cpu->retire_models) {
        cpu->retire_models = g_new0(RetireModels, 1);
        retire_predictor_init(&cpu->retire_models->predictor);
    }
}

bool retire_models_realize_caches(X86CPU *cpu, Error **errp)
{
    const RetireGeometry *g = cpu->models_config.cache;
    RetireModels *models;
    /*
     * Whether there is, or may be at any time, another CPU.  In user mode, that
     * of a second thread is made by the first, which runs no code meanwhile.
     */
    bool shared = retire_uncore;

#ifndef CONFIG_USER_ONLY
    shared |= current_machine->smp.max_cpus > 1;
#endif
    retire_test_realize(cpu);
    if (!choose_caches(cpu, errp) || !choose_tlbs(cpu, errp)) {
        return false;
    }
    if (!cpu->retire_config.has_caches) {
        return true;
    }
    add(cpu);
    models = cpu->retire_models;
    retire_uncore = retire_uncore ?: retire_uncore_new(g);
    if (!retire_uncore) {
        error_setg(errp, "Not enough memory for 'l3-size'");
        return false;
    }
    if (shared) {
        retire_uncore_share(retire_uncore);
    }
    models->cache = retire_cache_new(retire_uncore, g, &models->filter);
    if (!models->cache) {
        error_setg(errp, "Not enough memory for 'l1d-size' and 'l2-size'");
        return false;
    }
    if (!retire_tlb_init(&models->tlb, &cpu->models_config.tlb, &g[RETIRE_L1I],
                         &models->filter)) {
        error_setg(errp, "Not enough memory for 'l1i-size' and TLBs");
        return false;
    }
    return true;
}

bool retire_models_realize(X86CPU *cpu, Error **errp)
{
    static const char *const predictors[] = { "local", "off", NULL };
    RetireConfig *config = &cpu->retire_config;
    static void *common;

    if (cpu->branch_predictor &&
        !g_strv_contains(predictors, cpu->branch_predictor)) {
        error_setg(errp, "Property 'branch-predictor' must be 'local' or "
                   "'off', not '%s'", cpu->branch_predictor);
        return false;
    }
    config->counted_models = cpu->pmu_models;
    config->latency_worst = 0;
    for (int i = 0; i < RETIRE_NR_SOURCES; i++) {
        config->latency_worst = MAX(config->latency_worst,
                                    2 * config->latency[i]);
    }
    return retire_same_for_all(&cpu->models_config, sizeof(cpu->models_config),
                               &common, "Properties of the models", errp);
}

void retire_models_unrealize(X86CPU *cpu)
{
    if (cpu->retire_models && cpu->retire_models->cache) {
        /* linux-user has clone_lock: no child finds the lock in it taken. */
        retire_cache_free(cpu->retire_models->cache);
        retire_tlb_free(&cpu->retire_models->tlb);
    }
    g_clear_pointer(&cpu->retire_models, g_free);
}

/* RetireModelsOps, see there: */

static bool predicts(X86CPU *cpu)
{
    return g_strcmp0(cpu->branch_predictor, "off") != 0;
}

static void update(CPUX86State *env, RetireWants wants)
{
    RetireFilter *filter = &retire_models(env)->filter;
    RetireTlb *t = &retire_models(env)->tlb;
    bool tlb = wants & RETIRE_WANT_TLB, code = wants & RETIRE_WANT_CODE;
    /*
     * Changes whenever the TLB forgets more than a page, and is never 0, which
     * retire_page_flushed() makes of RetireFilter.mapping.
     */
    uint64_t mapping = 1;

#if defined(CONFIG_TCG) && !defined(CONFIG_USER_ONLY)
    const CPUTLBCommon *c = &env_cpu(env)->neg.tlb.c;

    mapping += qatomic_read(&c->full_flush_count) +
               qatomic_read(&c->part_flush_count) +
               qatomic_read(&c->elide_flush_count);
#endif
    if (wants & RETIRE_WANT_FETCHES) {
        retire_tlb_count_lines(t, wants & RETIRE_WANT_LINES);
    }
    if (!(wants & RETIRE_WANT_SOURCES)) {
        return;
    }
    /*
     * Lines that the filter got without DTLB may be in no page of that, and
     * L1I may have them.
     */
    if (filter->mapping != mapping || (tlb && !t->data) || (code && !t->code)) {
        retire_filter_clear(filter);
        filter->mapping = mapping;
    }
    t->data = tlb;
    t->code = code;
}

static void take(CPUX86State *env, uint64_t n[RETIRE_NR_MEMORY])
{
    retire_take_memory(&env->retire_memory, env->retire.row, n);
}

static void begin(CPUX86State *env, uint64_t ip)
{
    retire_again(&env->retire_memory, retire_cpu_clock(env), ip);
}

#ifdef CONFIG_TCG
static void leave(CPUX86State *env, uint64_t data, uint64_t clock)
{
    RetireMemoryState *m = &env->retire_memory;

    retire_unnote(m, clock, env->eip);
    if (data >> 32) {
        retire_give_back_memory(m, retire_row(env),
                                retire_insn_start_to_memory(data),
                                data & RETIRE_INSN_START_REPEATS);
    }
    retire_leave(m, retire_cpu_clock(env), env->eip,
                 retire_wants(env, RETIRE_WANT_STORY) &&
                 !RETIRE_INSN_START_INSNS(data) ?
                 retire_models(env)->accesses.nr : 0);
}

static void tell(CPUX86State *env, RetireStory *story, uint32_t desc)
{
    const RetireModels *models = retire_models(env);

    story->access = models->accesses.access;
    story->nr_accesses = desc & RETIRE_DESC_STORY ? models->accesses.nr : 0;
    story->fetch = &models->fetch;
    if (story->branch && retire_wants(env, RETIRE_WANT_PREDICT)) {
        uint64_t last = models->predictor.last;

        story->predicted = !(last & RETIRE_BRANCH_UNEXPECTED);
        story->mispredicted = last & RETIRE_BRANCH_MISPREDICTED;
    }
}
#endif

static void delivered(CPUX86State *env, uint64_t ip)
{
    /* A handler may be where what has faulted was. */
    env->retire_memory.left.ip = ~ip;
}

static const RetireModelsOps ops = {
    .add = add,
    .flush = flush,
    .predicts = predicts,
    .update = update,
    .take = take,
    .begin = begin,
#ifdef CONFIG_TCG
    .leave = leave,
    .access = retire_models_access,
    .tell = tell,
#endif
    .delivered = delivered,
};

void retire_models_class_init(ObjectClass *oc)
{
    retire_add_properties(oc, properties, ARRAY_SIZE(properties));
    retire_add_property(oc, &branch_predictor);
    retire_models_ops = &ops;
}
