/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The branch trace store: see bts.h. */

#include "bts.h"

/* Bytes that the host has, in one page or two. */
typedef struct Bytes {
    uint8_t *part[2];
    uint32_t first;         /* so many in the first page */
} Bytes;

static bool reach(Bytes *b, BtsHost *host, void *opaque, uint64_t addr,
                  uint32_t len)
{
    uint32_t left = 4096 - (uint32_t)(addr & 4095);

    b->first = len < left ? len : left;
    b->part[0] = host(opaque, addr, b->first);
    b->part[1] = NULL;
    if (b->part[0] && len > left) {
        b->part[1] = host(opaque, addr + left, len - left);
        return b->part[1];
    }
    return b->part[0];
}

/* The byte at an offset */
static uint8_t *at(const Bytes *b, uint32_t offset)
{
    return offset < b->first ? b->part[0] + offset :
           b->part[1] + (offset - b->first);
}

/*
 * Little-endian fields of @size bytes; the @n-th of them.  In one page, another
 * processor that writes there sees, and leaves, no half of a field.
 */
static uint64_t get(const Bytes *b, uint32_t size, uint32_t n)
{
    uint64_t val = 0;

    if (size == 8 && (n + 1) * size <= b->first) {
        return bts_ld64(b->part[0] + n * size);
    }
    for (uint32_t i = 0; i < size; i++) {
        val |= (uint64_t)*at(b, n * size + i) << 8 * i;
    }
    return val;
}

static void put(const Bytes *b, uint32_t size, uint32_t n, uint64_t val)
{
    if (size == 8 && (n + 1) * size <= b->first) {
        bts_st64(b->part[0] + n * size, val);
        return;
    }
    for (uint32_t i = 0; i < size; i++) {
        *at(b, n * size + i) = (uint8_t)(val >> 8 * i);
    }
}

BtsResult bts_record_any(const BranchState *s, const BranchConfig *config,
                         uint64_t from, uint64_t to, BtsHost *host,
                         void *opaque)
{
    uint32_t size = config->dtes64 ? 8 : 4;     /* of a field */
    uint64_t index, maximum, threshold;
    Bytes area, record;

    if (!reach(&area, host, opaque, s->ds_area, 4 * size)) {
        return BTS_NO_AREA;
    }
    index = get(&area, size, BTS_INDEX / 8);
    maximum = get(&area, size, BTS_MAXIMUM / 8);
    threshold = get(&area, size, BTS_THRESHOLD / 8);
    if (index > maximum || maximum - index < 3 * size) {
        if (s->debugctl & BRANCH_DEBUGCTL_BTINT) {
            return BTS_FULL;
        }
        index = get(&area, size, BTS_BASE / 8);
        if (index > maximum || maximum - index < 3 * size) {
            return BTS_FULL;    /* and was never otherwise */
        }
    }
    if (!reach(&record, host, opaque, index, 3 * size)) {
        return BTS_NO_BUFFER;
    }
    /* Nothing can fail any more. */
    index += 3 * size;
    put(&record, size, 0, from);
    put(&record, size, 1, to);
    put(&record, size, 2, 0);
    put(&area, size, BTS_INDEX / 8, index);
    return (s->debugctl & BRANCH_DEBUGCTL_BTINT) && index >= threshold ?
           BTS_PMI : BTS_STORED;
}
