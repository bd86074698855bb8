/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Performance monitoring under TCG: QMP x-query-pmu and x-query-pmu-events,
 * "info pmu" and "info pmu-events".
 */

#include "qemu/osdep.h"
#include "monitor/monitor.h"
#include "qapi/error.h"
#include "qapi/type-helpers.h"
#include "perfmon.h"
#include "retire/compat.h"

/* Runs where the CPU does, so what has been counted ahead can be seen. */
static void show(CPUState *cs, run_on_cpu_data text)
{
    g_string_append_printf(text.host_ptr, "CPU #%d: ", cs->cpu_index);
    PERFMON_FOREACH(u, show) {
        (*u)->show(X86_CPU(cs), text.host_ptr);
    }
}

HumanReadableText *qmp_x_query_pmu(Error **errp)
{
    g_autoptr(GString) text = g_string_new("");
    CPUState *cs;

    CPU_FOREACH(cs) {
        if (perfmon_has_pmu(X86_CPU(cs))) {
            run_on_cpu(cs, show, RUN_ON_CPU_HOST_PTR(text));
        }
    }
    if (!text->len) {
        g_string_append(text, "No CPU has performance counters under TCG\n");
    }
    return human_readable_text_from_str(text);
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

static void register_hmp(void)
{
    monitor_register_hmp_info_hrt("pmu", qmp_x_query_pmu);
    monitor_register_hmp_info_hrt("pmu-events", qmp_x_query_pmu_events);
}

type_init(register_hmp);
