/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The branch trace store (SDM 17.4.5, 17.4.9): records of branches in a buffer
 * in memory, which the debug store area describes.
 */
#ifndef BTS_H
#define BTS_H

#include "branch.h"
#include "perfmon/engine/ds.h"

/* The debug store area with DTES64; without, all is half that size. */
#define BTS_BASE        0
#define BTS_INDEX       8
#define BTS_MAXIMUM     16
#define BTS_THRESHOLD   24
#define BTS_AREA_SIZE   32
#define BTS_RECORD_SIZE 24

/* What became of a record. */
typedef enum BtsResult {
    BTS_STORED,
    BTS_PMI,                /* stored, and now a PMI is due */
    BTS_FULL,               /* dropped: the buffer has no room for it */
    BTS_NO_AREA,            /* dropped: the debug store area, */
    BTS_NO_BUFFER,          /* or the record's place is not writable memory */
} BtsResult;

BtsResult bts_record_any(const BranchState *s, const BranchConfig *config,
                         uint64_t ds_area, uint64_t from, uint64_t to,
                         bool predicted, DsHost *host, void *opaque);

/* The third field, where there is such a bit */
static inline uint64_t bts_flags(const BranchConfig *config, bool predicted)
{
    return (uint64_t)(config->bts_predicted & predicted) << 4;
}

/*
 * Store a record of a branch, if RETIRE_WANT_TAKEN is wanted where it goes.
 * Each record reads the whole debug store area, which software may change.
 *
 * @host does all that DsHost says.  @quick, to be inlined, does so only for
 * bytes in one page, whose translation it knows, and which may be written
 * without anybody being told; and returns NULL for others.  So it is to look
 * into the TLB, and there is nothing to be cached here.
 */
static inline BtsResult bts_record(const BranchState *s,
                                   const BranchConfig *config,
                                   uint64_t ds_area, uint64_t from, uint64_t to,
                                   bool predicted, DsHost *quick, DsHost *host,
                                   void *opaque)
{
    uint8_t *area = config->dtes64 ?
                    quick(opaque, ds_area, BTS_AREA_SIZE) : NULL;

    if (area) {
        uint64_t index = ds_ld64(area + BTS_INDEX);
        uint64_t maximum = ds_ld64(area + BTS_MAXIMUM);
        uint64_t threshold = ds_ld64(area + BTS_THRESHOLD);
        uint8_t *record = quick(opaque, index, BTS_RECORD_SIZE);

        if (record && index <= maximum &&
            maximum - index >= BTS_RECORD_SIZE) {
            ds_st64(record, from);
            ds_st64(record + 8, to);
            ds_st64(record + 16, bts_flags(config, predicted));
            index += BTS_RECORD_SIZE;
            ds_st64_release(area + BTS_INDEX, index);
            return (s->debugctl & BRANCH_DEBUGCTL_BTINT) &&
                   index >= threshold ? BTS_PMI : BTS_STORED;
        }
    }
    return bts_record_any(s, config, ds_area, from, to, predicted, host,
                          opaque);
}

#endif
