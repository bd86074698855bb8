/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Precise event based sampling: see pebs.h. */

#include "pebs.h"

/* A record's data: linear address, source, latency */
typedef struct Data {
    uint64_t addr, source, latency;
} Data;

/* The quantities that @a counts for as a load, and as a store */
static uint64_t loaded(const PebsAccess *a)
{
    return !a->load ? 0 :
           PMU_BIT(a->source) | (a->locked ? PMU_BIT(PMU_LOCKED) : 0) |
           (a->split ? PMU_BIT(PMU_SPLIT_LOADS) : 0) |
           (a->stlb_miss ? PMU_BIT(PMU_STLB_MISS_LOADS) : 0);
}

static uint64_t stored(const PebsAccess *a)
{
    return !a->store ? 0 :
           PMU_BIT(PMU_STORES) |
           (a->split ? PMU_BIT(PMU_SPLIT_STORES) : 0) |
           (a->stlb_miss && !a->load ? PMU_BIT(PMU_STLB_MISS_STORES) : 0);
}

/*
 * Of a load (SDM table 18-24; Linux has the later ones): what is another
 * processor's has been asked for, and DRAM is local, whose lines nobody else
 * has.
 */
static uint64_t source_of_load(PmuSources sources, const PebsAccess *a,
                               PmuQuantity source, bool stlb_miss)
{
    static const uint8_t codes[][PMU_LOAD_OTHER - PMU_LOAD_L1 + 1] = {
        /* L1D, L2, L3, remote, DRAM, remote and modified, not memory */
        [PMU_SOURCES_NHM] = { 1, 3, 4, 5, 0xc, 6, 0xf },
        [PMU_SOURCES_SNB] = { 1, 3, 4, 6, 0xc, 7, 0xf },
        [PMU_SOURCES_SKL] = { 1, 3, 4, 6, 0xa, 7, 0xf },
    };
    uint64_t code = codes[sources][source - PMU_LOAD_L1];

    return sources == PMU_SOURCES_NHM ? code :
           code | (uint64_t)stlb_miss << 4 | (uint64_t)a->locked << 5;
}

/* Of a store, only whether L1D has its line */
static uint64_t source_of_store(const PebsAccess *a, PmuQuantity source,
                                bool stlb_miss)
{
    return (source == PMU_LOAD_L1) | (uint64_t)stlb_miss << 4 |
           (uint64_t)a->locked << 5;
}

/* The data of the first access that counter @n counts, or nothing */
static Data find_data(const PmuState *s, const PmuConfig *config, unsigned n,
                      const PebsSample *sample)
{
    Data data = { 0, 0, 0 };
    uint64_t events;
    PmuSources sources;
    PmuData kind;

    if (!sample->nr_accesses) {
        return data;
    }
    kind = pmu_pebs_data(s, config, n);
    sources = pmu_pebs_sources(config);
    events = s->counter[n].add;
    for (unsigned i = 0; kind && i < sample->nr_accesses; i++) {
        const PebsAccess *a = &sample->access[i];
        bool load = kind == PMU_DATA_LATENCY ? a->load : events & loaded(a);
        /* What has been loaded from is in L1D, and DTLB, when it is stored. */
        PmuQuantity source = load || !a->load ? a->source : PMU_LOAD_L1;
        bool stlb_miss = a->stlb_miss && (load || !a->load);

        if (!load && !(events & stored(a))) {
            continue;
        }
        data.addr = a->addr;
        data.source = load || kind == PMU_DATA_STORE_LATENCY ?
                      source_of_load(sources, a, source, stlb_miss) :
                      source_of_store(a, source, stlb_miss);
        if (kind >= PMU_DATA_LATENCY) {
            data.latency = source == PMU_LOAD_L1 ? PMU_L1_LATENCY : a->latency;
        }
        if (pmu_splits_latency(config)) {
            uint64_t part = data.latency < 0xffff ? data.latency : 0xffff;

            data.latency = part << 32 | part;
        }
        break;
    }
    return data;
}

/*
 * Formats 0 to 3, each of which has more than the one before, in words of 8
 * bytes from @w on; returns where it ends.
 */
static uint64_t *make_fixed(uint64_t *w, const PmuState *s,
                            const PmuConfig *config, unsigned n,
                            const PebsSample *sample)
{
    /* RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP */
    static const uint8_t order[] = { 0, 3, 1, 2, 6, 7, 5, 4 };
    uint32_t format = PMU_CAP_PEBS_FORMAT(config->perf_capabilities);
    uint64_t bit = pmu_status_bit(n);
    Data data = find_data(s, config, n, sample);

    *w++ = sample->rflags;
    *w++ = sample->next;
    for (unsigned i = 0; i < sizeof(order); i++) {
        *w++ = sample->gpr[order[i]];
    }
    for (unsigned i = 8; i < 16; i++) {
        *w++ = sample->gpr[i];
    }
    if (format == 0) {
        return w;
    }
    /*
     * Who finds another counter of PEBS in GLOBAL_STATUS does not know whose
     * record it is.  Format 3 has nothing but that there.
     */
    *w++ = bit | (format < 3 ? pmu_others_status(s, config) : 0);
    *w++ = data.addr;
    *w++ = data.source;
    *w++ = data.latency;
    if (format >= 2) {
        *w++ = sample->ip;
        *w++ = 0;               /* of transactions, which there are not */
    }
    if (format >= 3) {
        *w++ = sample->tsc;
    }
    return w;
}

static uint64_t *make_adaptive(uint64_t *w, const PmuState *s,
                               const PmuConfig *config, unsigned n,
                               const PebsSample *sample)
{
    uint64_t *header = w;
    uint64_t groups = pmu_pebs_groups(s, config, n);

    *w++ = 0;                   /* what follows below */
    *w++ = sample->ip;
    *w++ = pmu_status_bit(n);
    *w++ = sample->tsc;
    if (groups & PEBS_GROUP_MEMORY) {
        Data data = find_data(s, config, n, sample);

        *w++ = data.addr;
        *w++ = data.source;
        *w++ = data.latency;
        *w++ = 0;               /* of transactions */
    }
    if (groups & PEBS_GROUP_GPRS) {
        *w++ = sample->rflags;
        *w++ = sample->next;
        for (unsigned i = 0; i < 16; i++) {
            *w++ = sample->gpr[i];
        }
    }
    if (groups & PEBS_GROUP_XMM) {
        for (unsigned i = 0; i < 16; i++) {
            *w++ = sample->xmm[i][0];
            *w++ = sample->xmm[i][1];
        }
    }
    if (groups & PEBS_GROUP_LBR) {
        for (unsigned i = 0; i < PEBS_LBR_ENTRIES(groups); i++) {
            *w++ = i < PEBS_NR_LBR ? sample->lbr[i].from : 0;
            *w++ = i < PEBS_NR_LBR ? sample->lbr[i].to : 0;
            *w++ = i < PEBS_NR_LBR ? sample->lbr[i].info : 0;
        }
    }
    *header = (uint64_t)(w - header) * 8 << 48 | groups;
    return w;
}

PebsResult pebs_store(PmuState *s, const PmuConfig *config, unsigned n,
                      uint64_t ds_area, const PebsSample *sample, DsHost *host,
                      void *opaque)
{
    uint64_t index, maximum, threshold, value;
    uint64_t reset = n < PMU_MAX_GP ? PEBS_RESET + 8 * n :
                     PEBS_RESET_FIXED + 8 * (n - PMU_MAX_GP);
    DsBytes area, load, buffer;
    uint64_t record[PEBS_RECORD_MAX / 8] PEBS_UNINITIALIZED;
    uint32_t words;
    PebsResult result = PEBS_STORED;

    if (!ds_reach(&area, host, opaque, ds_area + PEBS_BASE,
                  PEBS_RESET - PEBS_BASE) ||
        !ds_reach(&load, host, opaque, ds_area + reset, 8)) {
        pmu_pebs_done(s, config, n, NULL, false);
        return PEBS_NO_AREA;
    }
    words = (uint32_t)((PMU_CAP_PEBS_FORMAT(config->perf_capabilities) < 4 ?
                        make_fixed(record, s, config, n, sample) :
                        make_adaptive(record, s, config, n, sample)) - record);
    /* The record may go over all of these. */
    value = ds_get(&load, 8, 0);
    index = ds_get(&area, 8, (PEBS_INDEX - PEBS_BASE) / 8);
    maximum = ds_get(&area, 8, (PEBS_MAXIMUM - PEBS_BASE) / 8);
    threshold = ds_get(&area, 8, (PEBS_THRESHOLD - PEBS_BASE) / 8);
    if (index > maximum || maximum - index < words * 8) {
        result = PEBS_FULL;
    } else if (!ds_reach(&buffer, host, opaque, index, words * 8)) {
        result = PEBS_NO_BUFFER;
    } else {
        ds_put_all(&buffer, record, words);
        index += words * 8;
        ds_put(&area, 8, (PEBS_INDEX - PEBS_BASE) / 8, index);
    }
    pmu_pebs_done(s, config, n, &value, index >= threshold);
    return result;
}
