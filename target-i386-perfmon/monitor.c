/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Performance monitoring under TCG: QMP query-pmu and x-query-pmu-events, "info
 * pmu" and "info pmu-events".
 */

#include "qemu/osdep.h"
#include "monitor/hmp.h"
#include "monitor/monitor.h"
#include "qapi/error.h"
#include "qapi/type-helpers.h"
#include "perfmon.h"
#include "retire/compat.h"

/* Runs where the CPU does, so what has been counted ahead can be seen. */
static void get_info(CPUState *cs, run_on_cpu_data info)
{
    PERFMON_FOREACH(u, info) {
        (*u)->info(X86_CPU(cs), info.host_ptr);
    }
}

PmuInfoList *qmp_query_pmu(Error **errp)
{
    PmuInfoList *list = NULL, **tail = &list;
    CPUState *cs;

    CPU_FOREACH(cs) {
        if (perfmon_has_pmu(X86_CPU(cs))) {
            PmuInfo *info = g_new0(PmuInfo, 1);

            info->cpu_index = cs->cpu_index;
            run_on_cpu(cs, get_info, RUN_ON_CPU_HOST_PTR(info));
            QAPI_LIST_APPEND(tail, info);
        }
    }
    return list;
}

HumanReadableText *qmp_x_query_pmu_events(Error **errp)
{
    g_autoptr(GString) text = g_string_new("");
    CPUState *cs;

    CPU_FOREACH(cs) {
        X86CPU *cpu = X86_CPU(cs);

        if (perfmon_has_pmu(cpu)) {
            /* All CPUs have the same. */
            PERFMON_FOREACH(u, events) {
                (*u)->events(cpu, text);
            }
            return human_readable_text_from_str(text);
        }
    }
    error_setg(errp, "No CPU has performance counters under TCG");
    return NULL;
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
        if (info->has_pebs_enable) {
            monitor_printf(mon, "  PEBS_ENABLE=%016" PRIx64 " PEBS_DATA_CFG=%08"
                           PRIx64 " armed=%016" PRIx64 "\n", info->pebs_enable,
                           info->pebs_data_cfg, info->pebs_armed);
        }
        if (info->has_load_latency) {
            monitor_printf(mon, "  PEBS_LD_LAT_THRESHOLD=%04" PRIx64 "\n",
                           info->load_latency);
        }
        PERFMON_FOREACH(u, show) {
            g_autoptr(GString) text = g_string_new("");

            (*u)->show(info, text);
            monitor_puts(mon, text->str);
        }
    }
}

void hmp_info_pmu_events(Monitor *mon, const QDict *qdict)
{
    Error *err = NULL;
    g_autoptr(HumanReadableText) text = qmp_x_query_pmu_events(&err);

    if (!hmp_handle_error(mon, err)) {
        monitor_puts(mon, text->human_readable_text);
    }
}
