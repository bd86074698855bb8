/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters under TCG: QMP query-pmu and "info pmu". */

#include "qemu/osdep.h"
#include "monitor/hmp-target.h"
#include "monitor/monitor.h"
#include "qapi/error.h"
#include "system/tcg.h"
#include "pmu.h"
#include "retire/compat.h"

/* Runs where the CPU does, so what has been counted ahead can be seen. */
static void get_state(CPUState *cs, run_on_cpu_data state)
{
#ifdef CONFIG_TCG
    pmu_cpu_peek(&X86_CPU(cs)->env, state.host_ptr);
#endif
}

static PmuCounterInfoList *get_counters(const PmuState *s,
                                        const PmuConfig *config)
{
    PmuCounterInfoList *list = NULL, **tail = &list;

    for (unsigned n = 0; n < PMU_NR_COUNTERS; n++) {
        bool fixed = n >= PMU_MAX_GP;
        PmuCounterInfo *c;
        PmuSetting setting;

        if (!pmu_setting(s, config, n, &setting)) {
            continue;
        }
        c = g_new0(PmuCounterInfo, 1);
        c->type = fixed ? PMU_COUNTER_TYPE_FIXED : PMU_COUNTER_TYPE_GENERAL;
        c->index = fixed ? n - PMU_MAX_GP : n;
        c->has_select = !fixed;
        c->select = fixed ? 0 : s->evtsel[n];
        c->event = g_strdup(setting.event);
        c->os = setting.os;
        c->usr = setting.usr;
        c->interrupt = setting.interrupts;
        c->enabled = setting.enabled;
        c->value = s->value[n];
        QAPI_LIST_APPEND(tail, c);
    }
    return list;
}

PmuInfoList *qmp_query_pmu(Error **errp)
{
    PmuInfoList *list = NULL, **tail = &list;
    CPUState *cs;

    CPU_FOREACH(cs) {
        X86CPU *cpu = X86_CPU(cs);
        const PmuConfig *config = &cpu->pmu_config;
        PmuInfo *info;
        PmuState s;

        if (!tcg_enabled() || !cpu->enable_pmu) {
            continue;
        }
        run_on_cpu(cs, get_state, RUN_ON_CPU_HOST_PTR(&s));
        info = g_new0(PmuInfo, 1);
        info->cpu_index = cs->cpu_index;
        info->flavour = g_strdup(pmu_flavour_name(config->flavour));
        info->version = config->version;
        info->has_global_ctrl = config->version >= 2 || config->perfmon_v2;
        info->has_global_status = info->has_global_ctrl;
        info->global_ctrl = s.global_ctrl;
        info->global_status = s.global_status;
        info->has_fixed_ctr_ctrl = info->has_debugctl = config->fixed;
        info->fixed_ctr_ctrl = s.fixed_ctr_ctrl;
        info->debugctl = s.debugctl;
        info->counters = get_counters(&s, config);
        QAPI_LIST_APPEND(tail, info);
    }
    return list;
}

static void print_control(Monitor *mon, const PmuInfo *info)
{
    if (info->has_global_ctrl) {
        monitor_printf(mon, "  GLOBAL_CTRL=%016" PRIx64 " GLOBAL_STATUS=%016"
                       PRIx64 "\n", info->global_ctrl, info->global_status);
    }
    if (info->has_debugctl) {
        uint64_t debugctl = info->debugctl;

        monitor_printf(mon, "  FIXED_CTR_CTRL=%016" PRIx64 " DEBUGCTL=%016"
                       PRIx64 "%s%s%s\n", info->fixed_ctr_ctrl, debugctl,
                       debugctl & PMU_FREEZE_LBRS_ON_PMI ?
                       " freeze-lbrs-on-pmi" : "",
                       debugctl & PMU_FREEZE_PERFMON_ON_PMI ?
                       " freeze-perfmon-on-pmi" : "",
                       debugctl & PMU_FREEZE_WHILE_SMM ?
                       " freeze-while-smm" : "");
    }
}

static void print_counter(Monitor *mon, const PmuCounterInfo *c)
{
    monitor_printf(mon, "  %s %" PRId64 ": %012" PRIx64,
                   PmuCounterType_str(c->type), c->index, c->value);
    if (c->has_select) {
        monitor_printf(mon, " select %016" PRIx64, c->select);
    }
    monitor_printf(mon, "%s%s%s%s", c->enabled ? " enabled" : "",
                   c->os ? " os" : "", c->usr ? " usr" : "",
                   c->interrupt ? " interrupt" : "");
    monitor_printf(mon, c->event ? ": %s\n" : "\n", c->event);
}

void hmp_info_pmu(Monitor *mon, const QDict *qdict)
{
    g_autoptr(PmuInfoList) list = qmp_query_pmu(NULL);

    if (!list) {
        monitor_printf(mon, "No CPU has performance counters under TCG\n");
    }
    for (PmuInfoList *l = list; l; l = l->next) {
        const PmuInfo *info = l->value;

        monitor_printf(mon, "CPU #%" PRId64 ": %s", info->cpu_index,
                       info->flavour);
        if (info->version) {
            monitor_printf(mon, ", version %" PRId64, info->version);
        }
        monitor_printf(mon, "\n");
        print_control(mon, info);
        for (PmuCounterInfoList *c = info->counters; c; c = c->next) {
            print_counter(mon, c->value);
        }
    }
}
