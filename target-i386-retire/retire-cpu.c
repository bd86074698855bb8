/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: the models' properties, and the mode. */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qemu/error-report.h"
#include "qapi/error.h"
#include "retire.h"
#include "compat.h"

static const Property properties[] = {
    DEFINE_PROP_UINT32("insn-clocks", X86CPU,
                       env.retire_config.insn_clocks, 1),
    DEFINE_PROP_UINT32("refclk-ratio", X86CPU,
                       env.retire_config.refclk_ratio, RETIRE_REFCLK_UNIT),
    DEFINE_PROP_SIZE32("l1d-size", X86CPU,
                       env.retire_config.cache[RETIRE_L1D].size, 16 * KiB),
    DEFINE_PROP_UINT32("l1d-assoc", X86CPU,
                       env.retire_config.cache[RETIRE_L1D].assoc, 4),
    DEFINE_PROP_SIZE32("l2-size", X86CPU,
                       env.retire_config.cache[RETIRE_L2].size, 2 * MiB),
    DEFINE_PROP_UINT32("l2-assoc", X86CPU,
                       env.retire_config.cache[RETIRE_L2].assoc, 16),
    DEFINE_PROP_SIZE32("l3-size", X86CPU,
                       env.retire_config.cache[RETIRE_L3].size, 8 * MiB),
    DEFINE_PROP_UINT32("l3-assoc", X86CPU,
                       env.retire_config.cache[RETIRE_L3].assoc, 64),
    DEFINE_PROP_UINT32("l2-latency", X86CPU,
                       env.retire_config.latency[RETIRE_SOURCE_L2], 20),
    DEFINE_PROP_UINT32("l3-latency", X86CPU,
                       env.retire_config.latency[RETIRE_SOURCE_L3], 60),
    DEFINE_PROP_UINT32("remote-latency", X86CPU,
                       env.retire_config.latency[RETIRE_SOURCE_REMOTE], 120),
    DEFINE_PROP_UINT32("dram-latency", X86CPU,
                       env.retire_config.latency[RETIRE_SOURCE_DRAM], 200),
    DEFINE_PROP_UINT32("other-latency", X86CPU,
                       env.retire_config.latency[RETIRE_SOURCE_OTHER], 400),
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
        { "l1d-size", config->cache[RETIRE_L1D].size, 1 * KiB, 1 * MiB },
        { "l1d-assoc", config->cache[RETIRE_L1D].assoc,
          1, RETIRE_ASSOC_MAX },
        { "l2-size", config->cache[RETIRE_L2].size, 1 * KiB, 64 * MiB },
        { "l2-assoc", config->cache[RETIRE_L2].assoc, 1, RETIRE_ASSOC_MAX },
        { "l3-size", config->cache[RETIRE_L3].size, 0, 1 * GiB },
        { "l3-assoc", config->cache[RETIRE_L3].assoc, 1, RETIRE_ASSOC_MAX },
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
    static const char *const levels[RETIRE_NR_LEVELS] = { "l1d", "l2", "l3" };

    for (int i = 0; i < ARRAY_SIZE(props); i++) {
        if (props[i].val < props[i].min || props[i].val > props[i].max) {
            error_setg(errp, "Property '%s' must be between %" PRIu32 " and %"
                       PRIu32 ", not %" PRIu32, props[i].name, props[i].min,
                       props[i].max, props[i].val);
            return false;
        }
    }
    for (int i = 0; i < RETIRE_NR_LEVELS; i++) {
        if (!retire_geometry_valid(&config->cache[i])) {
            error_setg(errp, "Properties '%s-size' and '%s-assoc': "
                       "%" PRIu32 " bytes in %" PRIu32 " ways of 64-byte lines "
                       "do not make a power of two of sets", levels[i],
                       levels[i], config->cache[i].size,
                       config->cache[i].assoc);
            return false;
        }
    }
    return true;
}

static RetireUncore *uncore;

/* Whether there is, or may be at any time, another CPU. */
static bool has_siblings(X86CPU *cpu)
{
#ifdef CONFIG_USER_ONLY
    /* The thread that creates another was the only one. */
    return first_cpu && first_cpu != CPU(cpu);
#else
    return current_machine->smp.max_cpus > 1;
#endif
}

bool retire_cpu_realize_caches(X86CPU *cpu, Error **errp)
{
    if (!uncore) {
        uncore = retire_uncore_new(cpu->env.retire_config.cache);
    }
    if (!uncore) {
        error_setg(errp, "Not enough memory for 'l3-size'");
        return false;
    }
    if (has_siblings(cpu)) {
        retire_uncore_share(uncore);
    }
    return true;
}

bool retire_cpu_realize(X86CPU *cpu, const RetireConsumer *consumer, bool loads,
                        Error **errp)
{
    RetireConfig *config = &cpu->env.retire_config;

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
    config->latency_worst = 0;
    for (int i = 0; i < RETIRE_NR_SOURCES; i++) {
        config->latency_worst = MAX(config->latency_worst,
                                    2 * config->latency[i]);
    }
    if (loads && !retire_cpu_realize_caches(cpu, errp)) {
        return false;
    }
    cpu->retire_consumer = consumer;
    return true;
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

void retire_cpu_flush_caches(X86CPU *cpu)
{
    if (cpu->retire_cache) {
        retire_cache_flush(cpu->retire_cache);
    } else {
        retire_uncore_flush(uncore);
    }
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
    memset(&cpu->env.retire_predictor, 0, sizeof(cpu->env.retire_predictor));
    retire_counting_init(&cpu->env.retire_counting);
}

/*
 * The filter's lines are linear, so it lasts as long as this number, which is
 * never 0.  It changes whenever the TLB forgets more than a page; for a page,
 * see retire_page_flushed().
 */
static uint64_t mapping(CPUX86State *env)
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

void retire_cpu_set_mode(CPUX86State *env, RetireMode mode, bool loads)
{
    X86CPU *cpu = env_archcpu(env);
    uint64_t flags = (uint64_t)mode << RETIRE_TB_MODE_SHIFT;

    if (mode != RETIRE_OFF) {
        flags |= loads ? RETIRE_TB_LOADS : 0;
        flags |= env->retire.learns ? RETIRE_TB_LEARNS : 0;
        flags |= env->retire.row_flags;
    }
    if (flags & (RETIRE_TB_LOADS | RETIRE_TB_CACHES)) {
        uint64_t now = mapping(env);

        if (!cpu->retire_cache) {
            cpu->retire_cache = retire_cache_new(uncore,
                                                 env->retire_config.cache,
                                                 &env->retire_filter);
            if (!cpu->retire_cache) {
                error_report("Not enough memory for the caches of 'lwp-dme'");
                abort();
            }
        }
        if (env->retire_filter.mapping != now) {
            retire_filter_clear(&env->retire_filter);
            env->retire_filter.mapping = now;
        }
    }
    env->retire_flags = flags;
}

void retire_cpu_count(CPUX86State *env)
{
    const RetireConsumer *c = env_archcpu(env)->retire_consumer;
    RetireCount n = retire_take(&env->retire);

    c->count(env, &n);
}

void cpu_sync_retire(CPUX86State *env)
{
    const RetireConsumer *c = env_archcpu(env)->retire_consumer;
    RetireState *r = &env->retire;
    RetireMode mode = RETIRE_OFF;
    bool loads = false;

    if (likely(!c)) {
        return;
    }
#ifdef CONFIG_USER_ONLY
    /*
     * A signal is being delivered, and memory cannot be accessed.  The CPL
     * stays, so the mode does; the next block looks at what is due.
     */
    if (r->due) {
        return;
    }
#endif
    retire_cpu_count(env);
    mode = c->mode(env, &loads);
    if (mode != RETIRE_OFF) {
        if (mode != RETIRE_BOUNDARY && r->step) {
            mode = RETIRE_STEP;
        }
        retire_arm(r, c->distance(env));
        r->misses = r->misses_armed = loads ? c->misses(env) : 0;
#ifdef CONFIG_TCG
        /* A debug trap of this instruction must not wait (DR7). */
        if (cpu_loop_exit_requested(env_cpu(env))) {
            retire_expire(r);
        }
#endif
    }
    retire_cpu_set_mode(env, mode, loads);
}
