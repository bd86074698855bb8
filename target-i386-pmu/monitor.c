/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters under TCG: what the monitor shows of them. */

#include "qemu/osdep.h"
#include "pmu.h"
#include "engine/netburst.h"

static void show_counter(const PmuState *s, const PmuConfig *config, unsigned n,
                         GString *text)
{
    const NetburstState *netburst = config->netburst;
    bool fixed = n >= PMU_MAX_GP && !netburst;
    PmuSetting setting;

    if (!pmu_setting(s, config, n, &setting)) {
        return;
    }
    g_string_append_printf(text, "  %s %u: %012" PRIx64,
                           fixed ? "fixed" : "general",
                           fixed ? n - PMU_MAX_GP : n,
                           netburst ? netburst->value[n] : s->value[n]);
    if (!fixed) {
        g_string_append_printf(text, " select %016" PRIx64,
                               netburst ? netburst->cccr[n] : s->evtsel[n]);
    }
    g_string_append_printf(text, "%s%s%s%s%s%s\n",
                           setting.enabled ? " enabled" : "",
                           setting.os ? " os" : "", setting.usr ? " usr" : "",
                           setting.interrupts ? " interrupt" : "",
                           *setting.event ? ": " : "", setting.event);
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

void pmu_cpu_show(X86CPU *cpu, GString *text)
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
    g_string_append(text, pmu_flavour_name(config.flavour));
    if (config.version) {
        g_string_append_printf(text, ", version %d", config.version);
    }
    g_string_append_c(text, '\n');
    if (config.version >= 2 || config.perfmon_v2) {
        g_string_append_printf(text, "  GLOBAL_CTRL=%016" PRIx64
                               " GLOBAL_STATUS=%016" PRIx64 "\n",
                               s.global_ctrl, s.global_status);
    }
    if (config.fixed) {
        /* Units share it, so that each CPU has it: this is never #GP. */
        uint64_t debugctl = perfmon_cpu_rdmsr(&cpu->env, MSR_IA32_DEBUGCTL, 0);

        g_string_append_printf(text, "  FIXED_CTR_CTRL=%016" PRIx64
                               " DEBUGCTL=%016" PRIx64 "%s%s%s\n",
                               s.fixed_ctr_ctrl, debugctl,
                               debugctl & PMU_FREEZE_LBRS_ON_PMI ?
                               " freeze-lbrs-on-pmi" : "",
                               debugctl & PMU_FREEZE_PERFMON_ON_PMI ?
                               " freeze-perfmon-on-pmi" : "",
                               debugctl & PMU_FREEZE_WHILE_SMM ?
                               " freeze-while-smm" : "");
    }
    for (unsigned n = 0;
         n < (config.netburst ? NETBURST_COUNTERS : PMU_NR_COUNTERS); n++) {
        show_counter(&s, &config, n, text);
    }
    if (pmu_has_pebs(&config)) {
        g_string_append_printf(text, "  PEBS_ENABLE=%016" PRIx64
                               " PEBS_DATA_CFG=%08" PRIx64 " armed=%016" PRIx64
                               "\n", s.pebs_enable, s.pebs_data_cfg,
                               s.pebs_armed);
    }
    if (pmu_has_load_latency(&config)) {
        g_string_append_printf(text, "  PEBS_LD_LAT_THRESHOLD=%04" PRIx64 "\n",
                               s.load_latency);
    }
}
