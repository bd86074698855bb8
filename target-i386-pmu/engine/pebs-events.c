/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters: what PEBS is for, and what its records have. */

#include "pmu-internal.h"

#define ANY_UMASK   0x100

/*
 * The events that PEBS has on processors where not all are precise; on others,
 * the counter is as without it.  They are precise in Linux' pebs_constraints[]
 * and in libpfm4 (INTEL_X86_PEBS), Nehalem's and Westmere's in Intel's lists,
 * too; but 0BH without latency is Linux' no more.
 */
static const struct {
    uint16_t event, umask;
    uint32_t has;
} precise_events[] = {
    { 0xc0, 0x00, HAS_CORE2 },
    { 0xc5, 0x00, HAS_CORE2 },
    { 0xcb, ANY_UMASK, HAS_CORE2 | NEHALEMS },
    { 0x0b, ANY_UMASK, NEHALEMS },
    { 0x0c, 0x01, NEHALEMS },
    { 0xc0, ANY_UMASK, NEHALEMS },
    { 0xc2, ANY_UMASK, NEHALEMS },
    { 0xc4, ANY_UMASK, NEHALEMS },
    { 0xc5, 0x02, HAS_NHM },
    { 0xc5, ANY_UMASK, HAS_WSM },
    { 0xc8, 0x20, NEHALEMS },
};

/*
 * Load latency and stores that are sampled count with PEBS only, in some
 * counters, and where PEBS_ENABLE has another bit for them, with that.
 * Counters are those of Linux' pebs_constraints[] and of Intel's lists (Linux'
 * pmu-events), bits those of Linux' intel_pmu_pebs_enable() and of SDM
 * 18.8.1.2.  Intel's lists have counter 3 alone for 0BH, and for CDH up to
 * Broadwell, where SDM and Linux have all four of Nehalem's and Haswell's.
 */
static const struct {
    uint16_t event, umask;
    uint32_t has;
    uint8_t counters;
    uint64_t enable;            /* of counter 0; the others' are behind it, */
    bool enables_all;           /* or it is for all */
} sampled_events[] = {
    { 0x0b, 0x10, NEHALEMS, 0x0f, PEBS_LATENCY(0), false },
    { 0xcd, 0x01, BRIDGES, 0x08, PEBS_LATENCY(0), false },
    { 0xcd, 0x01, HSW_TO_SKL, 0x0f, PEBS_LATENCY(0), false },
    { 0xcd, 0x01, HAS_ICL, 0xff, 0, true },
    { 0xcd, 0x01, HAS_GLC, 0xfe, 0, true },
    { 0xcd, 0x02, BRIDGES, 0x08, PEBS_STORES, true },
    { 0xcd, 0x02, HAS_GLC, 0x01, 0, true },
    { 0xd0, 0x05, HAS_CMT, 0x03, 0, true },
};

/*
 * The events whose records have a data address (SDM 18.9.4.2 and 18.9.4.3,
 * 18.11.3, 18.7.1.1), and what else there is to it.  They have Data_LA in
 * Intel's lists (tools/perf/pmu-events/arch/x86 in Linux 6.12), and those of
 * Haswell and later, and Crestmont's D0/5 and D0/6, are Linux' in ds.c.  One
 * source only: C2/1 has SDM table 18-45 and Linux, no list; and of D0, D0/11 to
 * D0/13 and D0/83 are not in Crestmont's.
 */
static const struct {
    uint16_t event, umask;
    uint32_t has;
    PmuData data;
} data_events[] = {
    { 0x0b, 0x10, NEHALEMS, PMU_DATA_LATENCY },
    { 0xcd, 0x01, SINCE_SNB, PMU_DATA_LATENCY },
    { 0xcd, 0x02, BRIDGES, PMU_DATA_STORE },
    { 0xcd, 0x02, HAS_GLC, PMU_DATA_STORE_LATENCY },
    { 0xd0, 0x05, HAS_CMT, PMU_DATA_LATENCY },
    { 0xd0, 0x06, HAS_CMT, PMU_DATA_STORE_LATENCY },
    { 0xc2, 0x01, HAS_HSW | HAS_BDW, PMU_DATA_SOURCE },
    { 0xd0, ANY_UMASK, SINCE_HSW, PMU_DATA_SOURCE },
    { 0xd1, ANY_UMASK, SINCE_HSW, PMU_DATA_SOURCE },
    { 0xd2, ANY_UMASK, SINCE_HSW, PMU_DATA_SOURCE },
    { 0xd3, ANY_UMASK, SINCE_HSW, PMU_DATA_SOURCE },
    { 0xd0, ANY_UMASK, GLM_TO_CMT, PMU_DATA_ADDRESS },
    { 0xd1, ANY_UMASK, HAS_GLM | HAS_TNT, PMU_DATA_ADDRESS },
    { 0x04, 0x02, HAS_KNL, PMU_DATA_ADDRESS },
    { 0x04, 0x04, HAS_KNL, PMU_DATA_ADDRESS },
    { 0x04, 0x08, HAS_KNL, PMU_DATA_ADDRESS },
    { 0x04, 0x20, HAS_KNL, PMU_DATA_ADDRESS },
};

bool pmu_is_precise(const PmuState *s, const PmuConfig *config, unsigned n)
{
    if (!(config->flavour->has & (HAS_CORE2 | NEHALEMS))) {
        /* No instruction has an interrupt. */
        return s->counter[n].add != B(INTERRUPTS);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(precise_events); i++) {
        if (precise_events[i].event == SEL_EVENT(s->evtsel[n]) &&
            (precise_events[i].has & config->flavour->has) &&
            (precise_events[i].umask == ANY_UMASK ||
             precise_events[i].umask == SEL_UMASK(s->evtsel[n]))) {
            return true;
        }
    }
    return false;
}

/* Whether @counter, of number @n, may count its event */
bool pmu_is_sampled(const PmuState *s, const PmuConfig *config, unsigned n,
                    const PmuCounter *counter)
{
    uint64_t sel = n < PMU_MAX_GP ? s->evtsel[n] : 0;

    for (unsigned i = 0; i < ARRAY_SIZE(sampled_events); i++) {
        if (sampled_events[i].event == SEL_EVENT(sel) &&
            sampled_events[i].umask == SEL_UMASK(sel) &&
            (sampled_events[i].has & config->flavour->has)) {
            uint64_t bits = sampled_events[i].enable <<
                            (sampled_events[i].enables_all ? 0 : n);

            return counter->pebs && (sampled_events[i].counters >> n & 1) &&
                   !(bits & ~s->pebs_enable);
        }
    }
    return true;
}

PmuData pmu_pebs_data(const PmuState *s, const PmuConfig *config, unsigned n)
{
    uint64_t sel = n < PMU_MAX_GP ? s->evtsel[n] : 0;

    /* Inverted, it is about clocks. */
    if (!s->counter[n].pebs || (s->counter[n].add & B(CYCLES))) {
        return PMU_DATA_NONE;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(data_events); i++) {
        if (data_events[i].event == SEL_EVENT(sel) &&
            (data_events[i].umask == ANY_UMASK ||
             data_events[i].umask == SEL_UMASK(sel)) &&
            (data_events[i].has & config->flavour->has)) {
            return data_events[i].data;
        }
    }
    return PMU_DATA_NONE;
}

PmuSources pmu_pebs_sources(const PmuConfig *config)
{
    uint64_t has = config->flavour->has;

    return has & NEHALEMS ? PMU_SOURCES_NHM :
           has & SINCE_SKL ? PMU_SOURCES_SKL :
           has & HAS_CMT ? PMU_SOURCES_CMT : PMU_SOURCES_SNB;
}

bool pmu_splits_latency(const PmuConfig *config)
{
    return config->flavour->has & (HAS_GLC | HAS_CMT);
}

uint64_t pmu_others_status(const PmuState *s, const PmuConfig *config)
{
    return s->global_status & ~(s->pebs_enable & pmu_pebs_mask(config));
}

uint64_t pmu_adaptive_groups(const PmuState *s, const PmuConfig *config,
                             unsigned n)
{
    bool adaptive = n < PMU_MAX_GP ? s->evtsel[n] & SEL_ADAPTIVE :
                    s->fixed_ctr_ctrl & FIXED_ADAPTIVE(n - PMU_MAX_GP);

    return adaptive && pmu_has_adaptive(config) ? s->pebs_data_cfg : 0;
}
