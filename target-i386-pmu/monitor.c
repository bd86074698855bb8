/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters under TCG: what the monitor shows of them. */

#include "qemu/osdep.h"
#include "pmu.h"
#include "engine/netburst.h"
#include "retire/compat.h"

static PmuCounterInfoList *get_counters(const PmuState *s,
                                        const PmuConfig *config)
{
    PmuCounterInfoList *list = NULL, **tail = &list;
    const NetburstState *netburst = config->netburst;

    for (unsigned n = 0;
         n < (netburst ? NETBURST_COUNTERS : PMU_NR_COUNTERS); n++) {
        bool fixed = n >= PMU_MAX_GP && !netburst;
        PmuCounterInfo *c;
        PmuSetting setting;

        if (!pmu_setting(s, config, n, &setting)) {
            continue;
        }
        c = g_new0(PmuCounterInfo, 1);
        c->type = fixed ? PMU_COUNTER_TYPE_FIXED : PMU_COUNTER_TYPE_GENERAL;
        c->index = fixed ? n - PMU_MAX_GP : n;
        c->has_select = !fixed;
        c->select = fixed ? 0 : netburst ? netburst->cccr[n] : s->evtsel[n];
        c->event = *setting.event ? g_strdup(setting.event) : NULL;
        c->os = setting.os;
        c->usr = setting.usr;
        c->interrupt = setting.interrupts;
        c->enabled = setting.enabled;
        c->value = netburst ? netburst->value[n] : s->value[n];
        QAPI_LIST_APPEND(tail, c);
    }
    return list;
}

void pmu_cpu_events(X86CPU *cpu, GString *text)
{
    const PmuConfig *config = &cpu->pmu_config;
    const char *names;
    unsigned next = 0;
    uint64_t select;
    PmuEvent e;

    g_string_append_printf(text, "%s\n", pmu_flavour_name(config->flavour));
    while (pmu_next_event(config, &next, &e)) {
        g_autofree char *mask = e.no_umask ? g_strdup("") :
                                g_strdup_printf("/%02x%s", e.umask,
                                                e.whole_umask ? "=" : "");
        g_autofree char *frontend =
            e.frontend ? g_strdup_printf(" with 3f7h %02x", e.frontend) :
            g_strdup("");

        g_string_append_printf(text, "  %02x%-6s %s%s%s\n", e.event, mask,
                               e.name, frontend, e.never ? " (never)" : "");
    }
    g_string_append(text, "Linux's generic events\n");
    next = 0;
    while ((names = pmu_next_linux_event(config, &next, &select))) {
        g_string_append_printf(text, "  %04" PRIx64 "     %s\n", select, names);
    }
}

void pmu_cpu_info(X86CPU *cpu, PmuInfo *info)
{
    PmuConfig config = cpu->pmu_config;
    PmuState s = cpu->pmu;
    NetburstState netburst;

    /* All has been reported, but the guest's registers stay as they are. */
    if (config.netburst) {
        netburst = *config.netburst;
        config.netburst = &netburst;
    }
    pmu_settle(&s, &config);
    info->flavour = g_strdup(pmu_flavour_name(config.flavour));
    info->version = config.version;
    info->has_global_ctrl = config.version >= 2 || config.perfmon_v2;
    info->has_global_status = info->has_global_ctrl;
    info->global_ctrl = s.global_ctrl;
    info->global_status = s.global_status;
    info->has_fixed_ctr_ctrl = info->has_debugctl = config.fixed;
    info->fixed_ctr_ctrl = s.fixed_ctr_ctrl;
    info->debugctl |= s.debugctl;
    info->counters = get_counters(&s, &config);
    if (pmu_has_pebs(&config)) {
        info->has_pebs_enable = info->has_pebs_data_cfg = true;
        info->has_pebs_armed = true;
        info->pebs_enable = s.pebs_enable;
        info->pebs_data_cfg = s.pebs_data_cfg;
        info->pebs_armed = s.pebs_armed;
    }
    info->has_load_latency = pmu_has_load_latency(&config);
    info->load_latency = s.load_latency;
}
