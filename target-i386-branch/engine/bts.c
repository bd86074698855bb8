/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The branch trace store: see bts.h. */

#include "bts.h"

BtsResult bts_record_any(const BranchState *s, const BranchConfig *config,
                         uint64_t ds_area, uint64_t from, uint64_t to,
                         bool predicted, DsHost *host, void *opaque)
{
    uint32_t size = config->dtes64 ? 8 : 4;     /* of a field */
    uint64_t index, maximum, threshold;
    DsBytes area, record;

    if (!ds_reach(&area, host, opaque, ds_area, 4 * size)) {
        return BTS_NO_AREA;
    }
    index = ds_get(&area, size, BTS_INDEX / 8);
    maximum = ds_get(&area, size, BTS_MAXIMUM / 8);
    threshold = ds_get(&area, size, BTS_THRESHOLD / 8);
    if (index > maximum || maximum - index < 3 * size) {
        if (s->debugctl & BRANCH_DEBUGCTL_BTINT) {
            return BTS_FULL;
        }
        index = ds_get(&area, size, BTS_BASE / 8);
        if (index > maximum || maximum - index < 3 * size) {
            return BTS_FULL;    /* and was never otherwise */
        }
    }
    if (!ds_reach(&record, host, opaque, index, 3 * size)) {
        return BTS_NO_BUFFER;
    }
    /* Nothing can fail any more. */
    index += 3 * size;
    ds_put(&record, size, 0, from);
    ds_put(&record, size, 1, to);
    ds_put(&record, size, 2, bts_flags(config, predicted));
    ds_put_index(&area, size, BTS_INDEX / 8, index);
    return (s->debugctl & BRANCH_DEBUGCTL_BTINT) && index >= threshold ?
           BTS_PMI : BTS_STORED;
}
