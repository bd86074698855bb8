/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters: how one is set up, for people. */

#include "pmu-internal.h"

static const struct {
    uint64_t quantities;
    const char *name;
} event_names[] = {
    { B(INSNS), "instructions" },
    { B(CYCLES), "core cycles" },
    { B(REF_CYCLES), "reference cycles" },
    { BRANCHES, "branches" },
    { COND, "conditional branches" },
    { B(COND_TAKEN), "conditional branches taken" },
    { B(COND_NOT_TAKEN), "branches not taken" },
    { BRANCHES & ~B(COND_NOT_TAKEN), "branches taken" },
    { NEAR_TAKEN, "near branches taken" },
    { CALLS, "near calls" },
    { B(RET), "near returns" },
    { INDIRECT, "indirect jumps and calls" },
    { B(FAR), "far transfers" },
    { PMU_MISPREDICTED, "mispredicted branches" },
    { M_COND, "mispredicted conditional branches" },
    { B(MISP_COND_TAKEN), "mispredicted conditional branches taken" },
    { B(MISP_COND_NOT_TAKEN), "mispredicted branches not taken" },
    { M_TAKEN, "mispredicted branches taken" },
    { B(MISP_CALL_IND), "mispredicted near calls" },
    { B(MISP_RET), "mispredicted near returns" },
    { M_INDIRECT, "mispredicted indirect jumps and calls" },
    { B(INTERRUPTS), "hardware interrupts" },
    { B(TAGGED), "tagged loads" },
    { PMU_LOADS, "loads" },
    { B(STORES), "stores" },
    { PMU_LOADS | B(STORES), "loads and stores" },
    { B(LOCKED), "locked loads" },
    { B(SPLIT_LOADS), "loads from two lines" },
    { B(SPLIT_STORES), "stores to two lines" },
    { B(LOAD_L1), "loads that hit L1D" },
    { B(LOAD_L2), "loads that hit L2" },
    { B(LOAD_L3), "loads that hit L3 alone" },
    { FROM_L3, "loads that hit L3" },
    { B(LOAD_REMOTE), "loads that hit other CPUs' unmodified lines" },
    { B(LOAD_MODIFIED), "loads that hit other CPUs' modified lines" },
    { FROM_REMOTE, "loads that hit other CPUs' caches" },
    { B(LOAD_DRAM), "loads that miss L3" },
    { NOT_L1, "loads that miss L1D" },
    { NOT_L2, "loads that miss L2" },
    { FILLS, "lines into L1D" },
    { B(FILL_L2), "lines into L1D from L2" },
    { B(FILL_FAR), "lines into L1D from behind L2" },
    { B(STORE_L2), "stores that hit L2" },
    { S_NOT_L1, "stores that miss L1D" },
    { S_NOT_L2, "stores that miss L2" },
    { B(STORE_DRAM), "stores that miss L3" },
    { NOT_L1 | S_NOT_L1, "accesses that miss L1D" },
    { NOT_L2 | S_NOT_L2, "accesses that miss L2" },
    { B(FLOATING), "floating-point operations" },
    { B(TLB_LOAD_L2), "pages of loads from STLB" },
    { B(TLB_LOAD_WALK), "page walks for loads" },
    { LOAD_PAGES, "pages of loads into DTLB" },
    { B(TLB_STORE_L2), "pages of stores from STLB" },
    { B(TLB_STORE_WALK), "page walks for stores" },
    { STORE_PAGES, "pages of stores into DTLB" },
    { DATA_L2, "pages of data from STLB" },
    { DATA_WALKS, "page walks for data" },
    { LOAD_PAGES | STORE_PAGES, "pages into DTLB" },
    { DATA_WALKS | B(TLB_FETCH_WALK), "page walks" },
    { B(STLB_MISS_LOADS), "loads that miss STLB" },
    { B(STLB_MISS_STORES), "stores that miss STLB" },
    { B(STLB_MISS_LOADS) | B(STLB_MISS_STORES), "accesses that miss STLB" },
    { B(TLB_FETCH_L2), "pages of code from STLB" },
    { B(TLB_FETCH_WALK), "page walks for code" },
    { CODE_PAGES, "pages into ITLB" },
    { LOAD_PAGES | STORE_PAGES | CODE_PAGES, "pages into TLBs" },
    { B(SPLIT_LOADS) | B(SPLIT_STORES), "accesses to two lines" },
    { B(FETCHES), "lines of code fetched" },
    { B(FETCH_MISSES), "lines of code that miss L1I" },
    { STALLED, "stalled cycles" },
    { NEVER, "what never happens here" },
};

bool pmu_setting(const PmuState *s, const PmuConfig *config, unsigned n,
                 PmuSetting *setting)
{
    bool fixed = n >= PMU_MAX_GP && !config->netburst;
    uint64_t quantities;

    if (fixed ? n - PMU_MAX_GP >= config->fixed :
        n >= config->counters || (!n && pmu_has_tsc(config))) {
        return false;
    }
    if (config->netburst) {
        uint8_t rows = netburst_rows(config->netburst, n);

        quantities = netburst_event(config->netburst, n).add;
        *setting = (PmuSetting) {
            .enabled = rows,
            .os = rows >> RETIRE_OS & 1,
            .usr = rows >> RETIRE_USR & 1,
            .interrupts = netburst_interrupts(config->netburst, n),
        };
    } else {
        quantities = fixed ? pmu_fixed_event[n - PMU_MAX_GP] :
                     pmu_find_event(s, config, n) & ~EDGES;
        *setting = (PmuSetting) { .enabled = pmu_enabled(s, config, n) };
        pmu_get_bits(s, config, n, &setting->os, &setting->usr,
                     &setting->interrupts);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(event_names); i++) {
        if (event_names[i].quantities == quantities) {
            setting->event = event_names[i].name;
        }
    }
    return true;
}
