/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Precise event based sampling: see pebs.h. */

#include "pebs.h"

/* A record in words of 8 bytes */
typedef struct Record {
    uint32_t words;
    uint64_t word[PEBS_RECORD_MAX / 8];
} Record;

static void add(Record *r, uint64_t val)
{
    r->word[r->words++] = val;
}

/* Formats 0 to 3, each of which has more than the one before. */
static void make_fixed(Record *r, const PmuState *s, const PmuConfig *config,
                       unsigned n, const PebsSample *sample)
{
    /* RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP */
    static const uint8_t order[] = { 0, 3, 1, 2, 6, 7, 5, 4 };
    uint32_t format = PMU_CAP_PEBS_FORMAT(config->perf_capabilities);
    uint64_t bit = pmu_status_bit(n);

    add(r, sample->rflags);
    add(r, sample->next);
    for (unsigned i = 0; i < sizeof(order); i++) {
        add(r, sample->gpr[order[i]]);
    }
    for (unsigned i = 8; i < 16; i++) {
        add(r, sample->gpr[i]);
    }
    if (format == 0) {
        return;
    }
    /*
     * Who finds another counter of PEBS in GLOBAL_STATUS does not know whose
     * record it is.  Format 3 has nothing but that there.
     */
    add(r, bit | (format < 3 ? s->global_status & ~s->pebs_enable : 0));
    add(r, 0);                  /* data: address, */
    add(r, 0);                  /* source, */
    add(r, 0);                  /* latency */
    if (format >= 2) {
        add(r, sample->ip);
        add(r, 0);              /* of transactions, which there are not */
    }
    if (format >= 3) {
        add(r, sample->tsc);
    }
}

static void make_adaptive(Record *r, uint64_t groups, unsigned n,
                          const PebsSample *sample)
{
    add(r, 0);                  /* what follows below */
    add(r, sample->ip);
    add(r, pmu_status_bit(n));
    add(r, sample->tsc);
    if (groups & PEBS_GROUP_MEMORY) {
        for (unsigned i = 0; i < 4; i++) {
            add(r, 0);
        }
    }
    if (groups & PEBS_GROUP_GPRS) {
        add(r, sample->rflags);
        add(r, sample->next);
        for (unsigned i = 0; i < 16; i++) {
            add(r, sample->gpr[i]);
        }
    }
    if (groups & PEBS_GROUP_XMM) {
        for (unsigned i = 0; i < 16; i++) {
            add(r, sample->xmm[i][0]);
            add(r, sample->xmm[i][1]);
        }
    }
    if (groups & PEBS_GROUP_LBR) {
        for (unsigned i = 0; i < PEBS_LBR_ENTRIES(groups); i++) {
            add(r, i < PEBS_NR_LBR ? sample->lbr[i].from : 0);
            add(r, i < PEBS_NR_LBR ? sample->lbr[i].to : 0);
            add(r, i < PEBS_NR_LBR ? sample->lbr[i].info : 0);
        }
    }
    r->word[0] = (uint64_t)r->words * 8 << 48 | groups;
}

PebsResult pebs_store(PmuState *s, const PmuConfig *config, unsigned n,
                      uint64_t ds_area, const PebsSample *sample, DsHost *host,
                      void *opaque)
{
    uint64_t index, maximum, threshold, value;
    uint64_t reset = n < PMU_MAX_GP ? PEBS_RESET + 8 * n :
                     PEBS_RESET_FIXED + 8 * (n - PMU_MAX_GP);
    DsBytes area, load, buffer;
    Record record;
    PebsResult result = PEBS_STORED;

    if (!ds_reach(&area, host, opaque, ds_area + PEBS_BASE,
                  PEBS_RESET - PEBS_BASE) ||
        !ds_reach(&load, host, opaque, ds_area + reset, 8)) {
        pmu_pebs_done(s, config, n, NULL, false);
        return PEBS_NO_AREA;
    }
    record.words = 0;
    if (PMU_CAP_PEBS_FORMAT(config->perf_capabilities) < 4) {
        make_fixed(&record, s, config, n, sample);
    } else {
        make_adaptive(&record, pmu_pebs_groups(s, config, n), n, sample);
    }
    /* The record may go over all of these. */
    value = ds_get(&load, 8, 0);
    index = ds_get(&area, 8, (PEBS_INDEX - PEBS_BASE) / 8);
    maximum = ds_get(&area, 8, (PEBS_MAXIMUM - PEBS_BASE) / 8);
    threshold = ds_get(&area, 8, (PEBS_THRESHOLD - PEBS_BASE) / 8);
    if (index > maximum || maximum - index < record.words * 8) {
        result = PEBS_FULL;
    } else if (!ds_reach(&buffer, host, opaque, index, record.words * 8)) {
        result = PEBS_NO_BUFFER;
    } else {
        for (uint32_t i = 0; i < record.words; i++) {
            ds_put(&buffer, 8, i, record.word[i]);
        }
        index += record.words * 8;
        ds_put(&area, 8, (PEBS_INDEX - PEBS_BASE) / 8, index);
    }
    pmu_pebs_done(s, config, n, &value, index >= threshold);
    return result;
}
