/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters: how one is set up, for people. */

#include <stdio.h>
#include "pmu-internal.h"

bool pmu_setting(const PmuState *s, const PmuConfig *config, unsigned n,
                 PmuSetting *setting)
{
    static const char *const fixed_names[PMU_MAX_FIXED] = {
        "INST_RETIRED.ANY", "CPU_CLK_UNHALTED.THREAD",
        "CPU_CLK_UNHALTED.REF_TSC",
    };
    bool fixed = n >= PMU_MAX_GP && !config->netburst;

    if (fixed ? n - PMU_MAX_GP >= config->fixed :
        n >= config->counters || (!n && pmu_has_tsc(config))) {
        return false;
    }
    if (config->netburst) {
        uint8_t rows = netburst_rows(config->netburst, n);
        NetburstEvent e = netburst_event(config->netburst, n);

        *setting = (PmuSetting) {
            .enabled = rows,
            .os = rows >> RETIRE_OS & 1,
            .usr = rows >> RETIRE_USR & 1,
            .interrupts = netburst_interrupts(config->netburst, n),
        };
        snprintf(setting->event, sizeof(setting->event), "%s",
                 e.known ? e.name : "");
        return true;
    }
    *setting = (PmuSetting) { .enabled = pmu_enabled(s, config, n) };
    pmu_get_bits(s, config, n, &setting->os, &setting->usr,
                 &setting->interrupts);
    if (fixed) {
        snprintf(setting->event, sizeof(setting->event), "%s",
                 fixed_names[n - PMU_MAX_GP]);
    } else {
        pmu_name_event(s, config, n, setting->event, sizeof(setting->event));
    }
    return true;
}
