/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: QMP x-query-lwp and "info lwp". */

#include "qemu/osdep.h"
#include "monitor/monitor.h"
#include "qapi/type-helpers.h"
#include "lwp.h"
#include "retire/compat.h"

/* Runs on the CPU's thread outside its loop, where all has been reported. */
static void show(CPUState *cs, run_on_cpu_data text)
{
    static const char *const names[LWP_NR_EVENTS] = {
        "val", "ire", "bre", "dme", "cnh", "rnh",
    };
    const LwpState *s = &X86_CPU(cs)->env.lwp;

    g_string_append_printf(text.host_ptr, "CPU #%d: LWP_CFG=%016" PRIx64
                           " LWP_CBADDR=%016" PRIx64 "\n", cs->cpu_index,
                           s->cfg, s->cbaddr);
    if (!lwp_enabled(s)) {
        return;
    }
    g_string_append_printf(text.host_ptr, "  ring %016" PRIx64 " size %08x head"
                           " %08x filters %08x pending %u\n", s->base, s->size,
                           s->head, s->filters, s->npending);
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        if (s->flags & LWP_FLAG(i + 1)) {
            g_string_append_printf(text.host_ptr, "  %s %d\n", names[i],
                                   s->counter[i]);
        }
    }
}

HumanReadableText *qmp_x_query_lwp(Error **errp)
{
    g_autoptr(GString) text = g_string_new("");
    CPUState *cs;

    CPU_FOREACH(cs) {
        if (X86_CPU(cs)->env.features[FEAT_8000_0001_ECX] & CPUID_EXT3_LWP) {
            run_on_cpu(cs, show, RUN_ON_CPU_HOST_PTR(text));
        }
    }
    if (!text->len) {
        g_string_append(text, "No CPU has LWP\n");
    }
    return human_readable_text_from_str(text);
}

static void register_hmp(void)
{
    monitor_register_hmp_info_hrt("lwp", qmp_x_query_lwp);
}

type_init(register_hmp);
