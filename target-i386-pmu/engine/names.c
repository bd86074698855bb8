/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters: how one is set up, for people. */

#include <stdio.h>
#include "pmu-internal.h"

/*
 * Linux' generic events, by its event selects, but for prefetches and offcore
 * responses.  They are those of its tables, as tests/unit/linux-events.c.inc
 * has them, which test-pmu-linux compares.
 */
static const struct {
    uint64_t select;
    uint64_t has;
    const char *names;
} linux_events[] = {
    { 0x0025, HAS_P6, "LLC-store-misses" },
    { 0x003c, ARCH, "cycles" },
    { 0x0040, AMD, "L1-dcache-loads" },
    { 0x0040, OLD_AMD, "dTLB-loads" },
    { 0x0043, HAS_P6, "L1-dcache-loads, dTLB-loads" },
    { 0x0045, HAS_P6, "L1-dcache-load-misses" },
    { 0x0062, HAS_P6, "bus-cycles" },
    { 0x0076, AMD, "cycles" },
    { 0x0079, HAS_P6, "cycles" },
    { 0x0080, AMD | HAS_P6 | HAS_CORE2, "L1-icache-loads" },
    { 0x0080, OLD_AMD | HAS_P6, "iTLB-loads" },
    { 0x0081, AMD | HAS_CORE2, "L1-icache-load-misses" },
    { 0x0084, HAS_17H, "iTLB-loads" },
    { 0x0085, HAS_P6, "iTLB-load-misses" },
    { 0x00a2, HAS_P6, "stalled-cycles-frontend" },
    { 0x00a9, SINCE_ZEN2, "stalled-cycles-frontend" },
    { 0x00c0, ARCH | AMD | HAS_P6, "instructions" },
    { 0x00c0, SLM_GLM | HAS_CORE2 | HAS_BNL, "iTLB-loads" },
    { 0x00c2, AMD, "branches, branch-loads" },
    { 0x00c3, AMD, "branch-misses, branch-load-misses" },
    { 0x00c4, ARCH | HAS_P6, "branches" },
    { 0x00c4, NHM_TO_SKL | HAS_ICL | GLM_TO_CMT | SLM_GLM | HAS_P6 | HAS_CORE2 |
              HAS_BNL, "branch-loads" },
    { 0x00c5, ARCH | HAS_P6, "branch-misses" },
    { 0x00c5, BRIDGES | HSW_TO_SKL | HAS_ICL | GLM_TO_CMT | SLM_GLM | HAS_P6 |
              HAS_CORE2 | HAS_BNL, "branch-load-misses" },
    { 0x00d0, OLD_AMD | HAS_HYGON, "stalled-cycles-frontend" },
    { 0x00d1, OLD_AMD | HAS_HYGON, "stalled-cycles-backend" },
    { 0x0104, HAS_SLM, "L1-dcache-load-misses" },
    { 0x0108, NEHALEMS | HAS_SNB | HAS_HSW | HAS_BDW, "dTLB-load-misses" },
    { 0x010b, HAS_WSM, "dTLB-loads" },
    { 0x010b, NEHALEMS, "L1-dcache-loads" },
    { 0x010c, NEHALEMS, "dTLB-store-misses" },
    { 0x012e, HAS_P6, "cache-misses" },
    { 0x013c, ARCH, "bus-cycles" },
    { 0x013c, HAS_GLC | HAS_CMT, "ref-cycles" },
    { 0x0140, HAS_CORE2, "L1-dcache-load-misses" },
    { 0x0141, HAS_CORE2, "L1-dcache-store-misses" },
    { 0x0141, OLD_AMD, "L1-dcache-load-misses" },
    { 0x0149, BRIDGES | HAS_HSW | HAS_BDW, "dTLB-store-misses" },
    { 0x0151, NHM_TO_SKL | HAS_ICL, "L1-dcache-load-misses" },
    { 0x017f, OLD_AMD, "LLC-stores" },
    { 0x0185, BRIDGES | HAS_WSM | HAS_HSW | HAS_BDW, "iTLB-load-misses" },
    { 0x0187, HAS_17H, "stalled-cycles-backend" },
    { 0x01c0, NEHALEMS, "iTLB-loads" },
    { 0x0208, HAS_CORE2, "dTLB-load-misses" },
    { 0x020b, HAS_WSM, "dTLB-stores" },
    { 0x020b, NEHALEMS, "L1-dcache-stores" },
    { 0x0251, NEHALEMS, "L1-dcache-store-misses" },
    { 0x0280, NEHALEMS | BRIDGES | HAS_HSW | HAS_BDW | GLM_TO_CMT | SLM_GLM |
              HAS_BNL, "L1-icache-load-misses" },
    { 0x0282, HAS_BNL, "iTLB-load-misses" },
    { 0x0283, HAS_SKL | HAS_ICL, "L1-icache-load-misses" },
    { 0x0287, HAS_17H, "stalled-cycles-frontend" },
    { 0x037d, OLD_AMD, "LLC-loads" },
    { 0x037e, OLD_AMD, "LLC-load-misses" },
    { 0x0380, GLM_TO_CMT | NEHALEMS | SLM_GLM | HAS_BNL, "L1-icache-loads" },
    { 0x0385, OLD_AMD, "iTLB-load-misses" },
    { 0x03e8, NEHALEMS, "branch-load-misses" },
    { 0x0481, GLM_TO_CMT, "iTLB-load-misses" },
    { 0x04c4, HAS_GLC, "branch-loads" },
    { 0x04c5, HAS_GLC, "branch-load-misses" },
    { 0x0508, HAS_BNL, "dTLB-load-misses" },
    { 0x0608, HAS_BNL, "dTLB-store-misses" },
    { 0x0746, OLD_AMD, "dTLB-load-misses" },
    { 0x077d, OLD_AMD | HAS_HYGON, "cache-references" },
    { 0x077e, OLD_AMD | HAS_HYGON, "cache-misses" },
    { 0x0804, HAS_SLM, "dTLB-load-misses" },
    { 0x0808, HAS_CORE2, "dTLB-store-misses" },
    { 0x0851, BRIDGES, "L1-dcache-store-misses" },
    { 0x0964, HAS_17H, "cache-misses" },
    { 0x0e08, TNT_CMT | HAS_SKL | HAS_ICL, "dTLB-load-misses" },
    { 0x0e11, HAS_GLC, "iTLB-load-misses" },
    { 0x0e12, HAS_GLC, "dTLB-load-misses" },
    { 0x0e13, HAS_GLC, "dTLB-store-misses" },
    { 0x0e49, TNT_CMT | HAS_SKL | HAS_ICL, "dTLB-store-misses" },
    { 0x0e85, HAS_SKL | HAS_ICL, "iTLB-load-misses" },
    { 0x0f28, HAS_P6, "L1-icache-load-misses" },
    { 0x0f29, HAS_P6, "L1-dcache-store-misses" },
    { 0x0f2e, HAS_P6, "cache-references" },
    { 0x0f40, HAS_CORE2, "L1-dcache-loads" },
    { 0x0f40, HAS_CORE2 | HAS_NHM, "dTLB-loads" },
    { 0x0f41, HAS_CORE2, "L1-dcache-stores" },
    { 0x0f41, HAS_CORE2 | HAS_NHM, "dTLB-stores" },
    { 0x1085, BRIDGES, "iTLB-loads" },
    { 0x1282, HAS_CORE2, "iTLB-load-misses" },
    { 0x2085, HAS_SKL, "iTLB-loads" },
    { 0x20c8, HAS_NHM, "iTLB-load-misses" },
    { 0x2140, HAS_BNL, "L1-dcache-loads, dTLB-loads" },
    { 0x2240, HAS_BNL, "L1-dcache-stores, dTLB-stores" },
    { 0x4129, HAS_CORE2 | HAS_BNL, "LLC-load-misses" },
    { 0x412a, HAS_CORE2 | HAS_BNL, "LLC-store-misses" },
    { 0x412e, ARCH, "cache-misses" },
    { 0x4f29, HAS_CORE2 | HAS_BNL, "LLC-loads" },
    { 0x4f2a, HAS_CORE2 | HAS_BNL, "LLC-stores" },
    { 0x4f2e, ARCH, "cache-references" },
    { 0x6085, HAS_HSW | HAS_BDW, "iTLB-loads" },
    { 0x8108, HAS_IVB, "dTLB-load-misses" },
    { 0x81d0, SINCE_HSW | GLM_TO_CMT, "L1-dcache-loads" },
    { 0x81d0, SINCE_SNB | GLM_TO_CMT, "dTLB-loads" },
    { 0x82d0, SINCE_HSW | GLM_TO_CMT, "L1-dcache-stores" },
    { 0x82d0, SINCE_SNB | GLM_TO_CMT, "dTLB-stores" },
    { 0x98e9, OLD_AMD, "node-load-misses" },
    { 0xb8e9, OLD_AMD, "node-loads" },
    { 0xc860, HAS_17H, "L1-dcache-load-misses" },
    { 0xe124, HAS_GLC, "L1-dcache-load-misses" },
    { 0xe424, HAS_GLC, "L1-icache-load-misses" },
    { 0xf045, HAS_17H, "dTLB-load-misses" },
    { 0xf1d0, BRIDGES, "L1-dcache-loads" },
    { 0xf2d0, BRIDGES, "L1-dcache-stores" },
    { 0xff45, HAS_17H, "dTLB-loads" },
    { 0xff60, HAS_17H, "cache-references" },
    { 0xff85, HAS_17H, "iTLB-load-misses" },
    { 0x40205, HAS_SLM, "iTLB-load-misses" },
    { 0x180010e, NEHALEMS | BRIDGES, "stalled-cycles-frontend" },
    { 0x18001b1, HAS_SNB, "stalled-cycles-backend" },
    { 0x1803fb1, NEHALEMS, "stalled-cycles-backend" },
    { 0x100000120, SINCE_ZEN4, "ref-cycles" },
};

const char *pmu_next_linux_event(const PmuConfig *config, unsigned *next,
                                 uint64_t *select)
{
    while (*next < ARRAY_SIZE(linux_events)) {
        unsigned i = (*next)++;

        if ((linux_events[i].has & config->flavour->has) &&
            !pmu_lacks_event(config, linux_events[i].select)) {
            *select = linux_events[i].select;
            return linux_events[i].names;
        }
    }
    return NULL;
}

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
