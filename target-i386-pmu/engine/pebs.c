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
 * Of a load (SDM table 18-24; Linux has all of them in ds.c, and is the only
 * source of Skylake's and Crestmont's): what is another processor's has been
 * asked for, and DRAM is local, whose lines nobody else has.
 */
static uint64_t source_of_load(PmuSources sources, const PebsAccess *a,
                               PmuQuantity source, bool stlb_miss)
{
    static const uint8_t codes[][PMU_LOAD_OTHER - PMU_LOAD_L1 + 1] = {
        /* L1D, L2, L3, remote, DRAM, remote and modified, not memory */
        [PMU_SOURCES_NHM] = { 1, 3, 4, 5, 0xc, 6, 0xf },
        [PMU_SOURCES_SNB] = { 1, 3, 4, 6, 0xc, 7, 0xf },
        [PMU_SOURCES_SKL] = { 1, 3, 4, 6, 0xa, 7, 0xf },
        [PMU_SOURCES_CMT] = { 1, 3, 4, 6, 0xa, 8, 0xf },
    };
    uint64_t code = codes[sources][source - PMU_LOAD_L1];

    return sources == PMU_SOURCES_NHM ? code :
           code | (uint64_t)a->locked << 5 |
           (uint64_t)stlb_miss << (sources == PMU_SOURCES_CMT ? 6 : 4);
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
    bool any;                   /* it is an event of all instructions */

    if (!sample->nr_accesses) {
        return data;
    }
    kind = pmu_pebs_data(s, config, n);
    sources = pmu_pebs_sources(config);
    events = s->counter[n].add;
    any = events == PMU_BIT(PMU_INSNS);
    for (unsigned i = 0; kind && i < sample->nr_accesses; i++) {
        const PebsAccess *a = &sample->access[i];
        bool load = kind == PMU_DATA_LATENCY || any ? a->load :
                    events & loaded(a);
        /* What has been loaded from is in L1D, and DTLB, when it is stored. */
        PmuQuantity source = load || !a->load ? a->source : PMU_LOAD_L1;
        bool stlb_miss = a->stlb_miss && (load || !a->load);

        if (!load && !any && !(events & stored(a))) {
            continue;
        }
        data.addr = a->addr;
        if (kind == PMU_DATA_ADDRESS) {
            break;
        }
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

static uint8_t *put(uint8_t *p, uint64_t val)
{
    ds_st64(p, val);
    return p + 8;
}

static uint8_t *put_all(uint8_t *p, const uint64_t *val, unsigned n)
{
    ds_put_all(p, val, n);
    return p + 8 * n;
}

static uint8_t *put_data(uint8_t *p, Data data)
{
    p = put(p, data.addr);
    p = put(p, data.source);
    return put(p, data.latency);
}

/* Formats 0 to 3, each of which has more than the one before, to @p. */
static void make_fixed(uint8_t *p, const PmuState *s, const PmuConfig *config,
                       unsigned n, const PebsSample *sample, uint32_t format)
{
    const uint64_t *gpr = sample->gpr;

    p = put(p, sample->rflags);
    p = put(p, sample->next);
    p = put(p, gpr[0]);         /* RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP */
    p = put(p, gpr[3]);
    p = put_all(p, gpr + 1, 2);
    p = put_all(p, gpr + 6, 2);
    p = put(p, gpr[5]);
    p = put(p, gpr[4]);
    p = put_all(p, gpr + 8, 8);
    if (format == 0) {
        return;
    }
    /*
     * Who finds another counter of PEBS in GLOBAL_STATUS does not know whose
     * record it is.  Format 3 has nothing but that there.
     */
    p = put(p, pmu_status_bit(n) |
               (format < 3 ? pmu_others_status(s, config) : 0));
    p = put_data(p, find_data(s, config, n, sample));
    if (format >= 2) {
        p = put(p, sample->ip);
        p = put(p, 0);          /* of transactions, which there are not */
    }
    if (format >= 3) {
        put(p, sample->tsc);
    }
}

static uint32_t adaptive_size(uint64_t groups)
{
    return 32 + (groups & PEBS_GROUP_MEMORY ? 32 : 0) +
           (groups & PEBS_GROUP_GPRS ? 144 : 0) +
           (groups & PEBS_GROUP_XMM ? 256 : 0) +
           (groups & PEBS_GROUP_LBR ? PEBS_LBR_ENTRIES(groups) * 24 : 0);
}

static void make_adaptive(uint8_t *p, const PmuState *s,
                          const PmuConfig *config, unsigned n,
                          const PebsSample *sample, uint64_t groups)
{
    p = put(p, (uint64_t)adaptive_size(groups) << 48 | groups);
    p = put(p, sample->ip);
    p = put(p, pmu_status_bit(n));
    p = put(p, sample->tsc);
    if (groups & PEBS_GROUP_MEMORY) {
        p = put_data(p, find_data(s, config, n, sample));
        p = put(p, 0);          /* of transactions */
    }
    if (groups & PEBS_GROUP_GPRS) {
        p = put(p, sample->rflags);
        p = put(p, sample->next);
        p = put_all(p, sample->gpr, 16);
    }
    if (groups & PEBS_GROUP_XMM) {
        p = put_all(p, sample->xmm[0], 32);
    }
    if (groups & PEBS_GROUP_LBR) {
        for (unsigned i = 0; i < PEBS_LBR_ENTRIES(groups); i++) {
            p = put(p, i < PEBS_NR_LBR ? sample->lbr[i].from : 0);
            p = put(p, i < PEBS_NR_LBR ? sample->lbr[i].to : 0);
            p = put(p, i < PEBS_NR_LBR ? sample->lbr[i].info : 0);
        }
    }
}

PebsResult pebs_store(PmuState *s, const PmuConfig *config, unsigned n,
                      uint64_t ds_area, const PebsSample *sample, DsHost *host,
                      void *opaque)
{
    static const uint8_t sizes[] = { 0x90, 0xb0, 0xc0, 0xc8 };
    uint32_t format = PMU_CAP_PEBS_FORMAT(config->perf_capabilities);
    uint64_t groups = pmu_pebs_groups(s, config, n);
    uint32_t size = format < 4 ? sizes[format] : adaptive_size(groups);
    uint32_t reset = n < PMU_MAX_GP ? PEBS_RESET + 8 * n :
                     PEBS_RESET_FIXED + 8 * (n - PMU_MAX_GP);
    uint64_t index, maximum, threshold, value;
    DsBytes area PEBS_UNINITIALIZED, buffer PEBS_UNINITIALIZED;
    uint8_t record[PEBS_RECORD_MAX] PEBS_UNINITIALIZED, *p;
    PebsResult result = PEBS_STORED;

    if (!ds_reach(&area, host, opaque, ds_area + PEBS_BASE,
                  reset + 8 - PEBS_BASE)) {
        pmu_pebs_done(s, config, n, NULL, false);
        return PEBS_NO_AREA;
    }
    /* The record may go over all of these. */
    value = ds_get(&area, 8, (reset - PEBS_BASE) / 8);
    index = ds_get(&area, 8, (PEBS_INDEX - PEBS_BASE) / 8);
    maximum = ds_get(&area, 8, (PEBS_MAXIMUM - PEBS_BASE) / 8);
    threshold = ds_get(&area, 8, (PEBS_THRESHOLD - PEBS_BASE) / 8);
    if (index > maximum || maximum - index < size) {
        result = PEBS_FULL;
    } else if (!ds_reach(&buffer, host, opaque, index, size)) {
        result = PEBS_NO_BUFFER;
    } else {
        p = size <= buffer.first ? buffer.part[0] : record;
        if (format < 4) {
            make_fixed(p, s, config, n, sample, format);
        } else {
            make_adaptive(p, s, config, n, sample, groups);
        }
        if (p == record) {
            ds_copy(&buffer, record, size);
        }
        index += size;
        ds_put_index(&area, 8, (PEBS_INDEX - PEBS_BASE) / 8, index);
    }
    pmu_pebs_done(s, config, n, &value, index >= threshold);
    return result;
}
