/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: the models' properties, and the observers of a CPU. */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qemu/error-report.h"
#include "qapi/error.h"
#include "retire.h"
#include "compat.h"

/*
 * Each thread of a program has a copy of env, and a reset clears most of env,
 * so what is large is elsewhere in X86CPU; target/i386/retire, lwp and pmu
 * together add 2 KiB to env at most.
 */
QEMU_BUILD_BUG_ON(offsetof(CPUX86State, end_init_save) -
                  offsetof(CPUX86State, retire) > 2 * KiB - 192);

/* What a property of the caches is that nobody has set */
#define RETIRE_AS_CPUID UINT32_MAX

static const Property properties[] = {
    DEFINE_PROP_UINT32("insn-clocks", X86CPU,
                       retire_config.insn_clocks, 1),
    DEFINE_PROP_UINT32("refclk-ratio", X86CPU,
                       retire_config.refclk_ratio, RETIRE_REFCLK_UNIT),
    DEFINE_PROP_SIZE32("l1d-size", X86CPU,
                       retire_config.cache[RETIRE_L1D].size,
                       RETIRE_AS_CPUID),
    DEFINE_PROP_UINT32("l1d-assoc", X86CPU,
                       retire_config.cache[RETIRE_L1D].assoc,
                       RETIRE_AS_CPUID),
    DEFINE_PROP_SIZE32("l2-size", X86CPU,
                       retire_config.cache[RETIRE_L2].size,
                       RETIRE_AS_CPUID),
    DEFINE_PROP_UINT32("l2-assoc", X86CPU,
                       retire_config.cache[RETIRE_L2].assoc,
                       RETIRE_AS_CPUID),
    DEFINE_PROP_SIZE32("l3-size", X86CPU,
                       retire_config.cache[RETIRE_L3].size,
                       RETIRE_AS_CPUID),
    DEFINE_PROP_UINT32("l3-assoc", X86CPU,
                       retire_config.cache[RETIRE_L3].assoc,
                       RETIRE_AS_CPUID),
    DEFINE_PROP_UINT32("l2-latency", X86CPU,
                       retire_config.latency[RETIRE_SOURCE_L2], 20),
    DEFINE_PROP_UINT32("l3-latency", X86CPU,
                       retire_config.latency[RETIRE_SOURCE_L3], 60),
    DEFINE_PROP_UINT32("remote-latency", X86CPU,
                       retire_config.latency[RETIRE_SOURCE_REMOTE], 120),
    DEFINE_PROP_UINT32("dram-latency", X86CPU,
                       retire_config.latency[RETIRE_SOURCE_DRAM], 200),
    DEFINE_PROP_UINT32("other-latency", X86CPU,
                       retire_config.latency[RETIRE_SOURCE_OTHER], 400),
    DEFINE_PROP_STRING("branch-predictor", X86CPU, lwp_branch_predictor),
};

void retire_cpu_init(X86CPU *cpu)
{
    for (int i = 0; i < ARRAY_SIZE(properties); i++) {
        const char *name = properties[i].name;
        g_autofree char *alias = g_strdup_printf("lwp-%s", name);

        qdev_property_add_static(DEVICE(cpu), &properties[i]);
        /* Only LWP had these models once. */
        object_property_add_alias(OBJECT(cpu), alias, OBJECT(cpu), name);
    }
    retire_test_init(cpu);
}

static bool in_range(const char *name, const char *suffix, uint32_t val,
                     uint32_t min, uint32_t max, Error **errp)
{
    if (val < min || val > max) {
        error_setg(errp, "Property '%s%s' must be between %" PRIu32 " and %"
                   PRIu32 ", not %" PRIu32, name, suffix, min, max, val);
        return false;
    }
    return true;
}

static bool check_ranges(const RetireConfig *config, Error **errp)
{
    const struct {
        const char *name;
        uint32_t val, min, max;
    } props[] = {
        { "insn-clocks", config->insn_clocks, 1, RETIRE_INSN_CLOCKS_MAX },
        { "refclk-ratio", config->refclk_ratio,
          1, RETIRE_REFCLK_RATIO_MAX },
        { "l2-latency", config->latency[RETIRE_SOURCE_L2],
          1, RETIRE_LATENCY_MAX },
        { "l3-latency", config->latency[RETIRE_SOURCE_L3],
          1, RETIRE_LATENCY_MAX },
        { "remote-latency", config->latency[RETIRE_SOURCE_REMOTE],
          1, RETIRE_LATENCY_MAX },
        { "dram-latency", config->latency[RETIRE_SOURCE_DRAM],
          1, RETIRE_LATENCY_MAX },
        { "other-latency", config->latency[RETIRE_SOURCE_OTHER],
          1, RETIRE_LATENCY_MAX },
    };

    for (int i = 0; i < ARRAY_SIZE(props); i++) {
        if (!in_range(props[i].name, "", props[i].val, props[i].min,
                      props[i].max, errp)) {
            return false;
        }
    }
    return true;
}

static const char *const levels[RETIRE_NR_LEVELS] = { "l1d", "l2", "l3" };

/* What has not been set is as in @from. */
static void default_caches(RetireConfig *config, const RetireGeometry *from)
{
    for (int i = 0; i < RETIRE_NR_LEVELS; i++) {
        RetireGeometry *g = &config->cache[i];

        g->size = g->size == RETIRE_AS_CPUID ? from[i].size : g->size;
        g->assoc = g->assoc == RETIRE_AS_CPUID ? from[i].assoc : g->assoc;
    }
}

static bool check_caches(const RetireConfig *config, Error **errp)
{
    static const struct {
        uint32_t min, max;
    } size[RETIRE_NR_LEVELS] = {
        [RETIRE_L1D] = { 1 * KiB, 1 * MiB },
        [RETIRE_L2] = { 1 * KiB, 64 * MiB },
        [RETIRE_L3] = { 0, 1 * GiB },
    };

    for (int i = 0; i < RETIRE_NR_LEVELS; i++) {
        const RetireGeometry *g = &config->cache[i];

        if (!in_range(levels[i], "-size", g->size, size[i].min, size[i].max,
                      errp) ||
            !in_range(levels[i], "-assoc", g->assoc, 1, RETIRE_ASSOC_MAX,
                      errp)) {
            return false;
        }
        if (!retire_geometry_valid(g)) {
            error_setg(errp, "Properties '%s-size' and '%s-assoc': "
                       "%" PRIu32 " bytes in %" PRIu32 " ways of 64-byte lines "
                       "do not make a number of sets", levels[i], levels[i],
                       g->size, g->assoc);
            return false;
        }
    }
    return true;
}

/* LWP's processors, AMD's family 15h */
static const RetireGeometry family_15h[RETIRE_NR_LEVELS] = {
    [RETIRE_L1D] = { 16 * KiB, 4 },
    [RETIRE_L2] = { 2 * MiB, 16 },
    [RETIRE_L3] = { 8 * MiB, 64 },
};

void retire_cpu_family_15h(X86CPU *cpu)
{
    RetireGeometry *l3 = &cpu->retire_config.cache[RETIRE_L3];

    if (!cpu->enable_l3_cache && l3->size == RETIRE_AS_CPUID) {
        l3->size = 0;
    }
    default_caches(&cpu->retire_config, family_15h);
}

/* Whether the fields of CPUID's leaves can say that @level is like that. */
static bool cpuid_can_show(CPUX86State *env, int level, const RetireGeometry *g)
{
    /* Leaf 8000_0006 has codes for these ways only. */
    static const uint8_t ways[] = { 1, 2, 4, 8, 16, 32, 48, 64, 96, 128 };
    uint32_t unit = level == RETIRE_L3 ? 512 * KiB : KiB;
    uint32_t max = level == RETIRE_L1D ? 0xff : level == RETIRE_L2 ? 0xffff :
                   0x3fff;
    bool ok = IS_INTEL_CPU(env) || level == RETIRE_L1D;

    for (int i = 0; i < ARRAY_SIZE(ways); i++) {
        ok |= g->assoc == ways[i];
    }
    return ok && g->size % unit == 0 && g->size / unit <= max &&
           g->assoc < g->size / RETIRE_LINE_SIZE / g->assoc;
}

/*
 * RetireConfig.caches_of_cpuid: the caches are those that CPUID shows, and
 * where properties say otherwise, CPUID shows what properties say, because
 * guests compare counts of misses with the sizes in CPUID.
 */
static bool same_as_cpuid(X86CPU *cpu, Error **errp)
{
    static CPUCacheInfo info[RETIRE_NR_LEVELS];
    CPUX86State *env = &cpu->env;
    RetireGeometry *cache = cpu->retire_config.cache;
    RetireGeometry from[RETIRE_NR_LEVELS] = { };
    CPUCacheInfo *seen[RETIRE_NR_LEVELS], *shown[RETIRE_NR_LEVELS];

    if (cpu->cache_info_passthrough) {
        error_setg(errp, "Property 'host-cache-info': the caches of "
                   "performance counters are not the host's");
        return false;
    }
    retire_get_cpuid_caches(env, seen, shown);
    for (int i = 0; i < RETIRE_NR_LEVELS; i++) {
        if (seen[i]->line_size != RETIRE_LINE_SIZE) {
            error_setg(errp, "This CPU model's CPUID shows lines of %d bytes in"
                       " '%s', only 64 are supported", seen[i]->line_size,
                       levels[i]);
            return false;
        }
        from[i] = (RetireGeometry) { seen[i]->size, seen[i]->associativity };
    }
    if (!cpu->enable_l3_cache) {
        if (cache[RETIRE_L3].size && cache[RETIRE_L3].size != RETIRE_AS_CPUID) {
            error_setg(errp, "Property 'l3-size' needs 'l3-cache=on'");
            return false;
        }
        from[RETIRE_L3].size = 0;
    }
    default_caches(&cpu->retire_config, from);
    if (!check_caches(&cpu->retire_config, errp)) {
        return false;
    }
    cpu->enable_l3_cache = cache[RETIRE_L3].size;
    for (int i = 0; i < RETIRE_NR_LEVELS; i++) {
        info[i] = *shown[i];
        if (!cache[i].size) {
            continue;
        }
        if (!cpuid_can_show(env, i, &cache[i])) {
            warn_report_once("CPUID cannot show '%s-size' and '%s-assoc'",
                             levels[i], levels[i]);
            continue;
        }
        info[i].size = cache[i].size;
        info[i].associativity = cache[i].assoc;
        info[i].line_size = RETIRE_LINE_SIZE;
        info[i].partitions = info[i].lines_per_tag = 1;
        info[i].sets = cache[i].size / RETIRE_LINE_SIZE / cache[i].assoc;
    }
    retire_set_cpuid_caches(env, info);
    return true;
}

static RetireUncore *uncore;

/* Whether there is, or may be at any time, another CPU. */
static bool has_siblings(X86CPU *cpu)
{
#ifdef CONFIG_USER_ONLY
    /*
     * The only thread there is makes the CPU of the second one, so nobody uses
     * the caches when this makes them begin to take locks.
     */
    return first_cpu && first_cpu != CPU(cpu);
#else
    return current_machine->smp.max_cpus > 1;
#endif
}

bool retire_cpu_realize_caches(X86CPU *cpu, Error **errp)
{
    RetireConfig *config = &cpu->retire_config;

    retire_test_realize(cpu);
    if (config->caches_of_cpuid) {
        if (!same_as_cpuid(cpu, errp)) {
            return false;
        }
    } else {
        default_caches(config, family_15h);
        if (!check_caches(config, errp)) {
            return false;
        }
    }
    if (!config->has_caches) {
        return true;
    }
    if (!uncore) {
        uncore = retire_uncore_new(config->cache);
    }
    if (!uncore) {
        error_setg(errp, "Not enough memory for 'l3-size'");
        return false;
    }
    if (has_siblings(cpu)) {
        retire_uncore_share(uncore);
    }
    cpu->retire_cache = retire_cache_new(uncore, config->cache,
                                         &cpu->retire_models.filter);
    if (!cpu->retire_cache) {
        error_setg(errp, "Not enough memory for 'l1d-size' and 'l2-size'");
        return false;
    }
    return true;
}

bool retire_cpu_realize(X86CPU *cpu, Error **errp)
{
    RetireConfig *config = &cpu->retire_config;

    if (!check_ranges(config, errp)) {
        return false;
    }
    /* "gshare" is what "local" was once. */
    if (cpu->lwp_branch_predictor &&
        strcmp(cpu->lwp_branch_predictor, "local") &&
        strcmp(cpu->lwp_branch_predictor, "gshare") &&
        strcmp(cpu->lwp_branch_predictor, "off")) {
        error_setg(errp, "Property 'branch-predictor' must be 'local' or "
                   "'off', not '%s'", cpu->lwp_branch_predictor);
        return false;
    }
    /* User mode emulation has no reset that would call retire_cpu_flush(). */
    retire_predictor_init(&cpu->retire_models.predictor);
    config->latency_worst = 0;
    for (int i = 0; i < RETIRE_NR_SOURCES; i++) {
        config->latency_worst = MAX(config->latency_worst,
                                    2 * config->latency[i]);
    }
    return true;
}

void retire_add_observer(X86CPU *cpu, const RetireObserver *observer,
                         bool caches)
{
    int n = 0;

    while (cpu->retire_observer[n]) {
        n++;
    }
    /* retire_observer[] has one more element, which is always NULL. */
    assert(n < RETIRE_MAX_OBSERVERS);
    cpu->retire_observer[n] = observer;
    cpu->retire_config.has_caches |= caches;
}

void retire_cpu_unrealize(X86CPU *cpu)
{
    if (cpu->retire_cache) {
        /* linux-user has clone_lock: no child finds the lock in it taken. */
        retire_cache_free(cpu->retire_cache);
        cpu->retire_cache = NULL;
    }
}

bool retire_has_caches(void)
{
    return uncore;
}

void retire_flush_line(uint64_t line)
{
    retire_uncore_flush_line(uncore, line);
}

void retire_cpu_flush(X86CPU *cpu)
{
    if (cpu->retire_cache) {
        retire_cache_flush(cpu->retire_cache);
    }
    retire_predictor_init(&cpu->retire_models.predictor);
}

/*
 * A number that changes whenever the TLB forgets more than a page, and is never
 * 0.  As the lines of the filter are linear, the filter is valid as long as
 * this is RetireFilter.mapping, which retire_page_flushed() makes 0.
 */
static uint64_t retire_mapping(CPUX86State *env)
{
    uint64_t flushes = 1;

#if defined(CONFIG_TCG) && !defined(CONFIG_USER_ONLY)
    const CPUTLBCommon *c = &env_cpu(env)->neg.tlb.c;

    flushes += qatomic_read(&c->full_flush_count) +
               qatomic_read(&c->part_flush_count) +
               qatomic_read(&c->elide_flush_count);
#endif
    return flushes;
}

void retire_cpu_use_caches(CPUX86State *env)
{
    RetireFilter *filter = &retire_models(env)->filter;
    uint64_t now = retire_mapping(env);

    if (filter->mapping != now) {
        retire_filter_clear(filter);
        filter->mapping = now;
    }
}
