/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Intel Processor Trace: the way to memory (SDM 3C, "Trace Output"), which is a
 * single range or what the Table of Physical Addresses, ToPA, lists.
 */

#include "pt-internal.h"

/* An entry of ToPA; END: it has the address of the table that is next. */
#define ENTRY_END           (1u << 0)
#define ENTRY_INT           (1u << 2)
#define ENTRY_STOP          (1u << 4)
#define ENTRY_SIZE_SHIFT    6
#define ENTRY_SIZE          (15u << ENTRY_SIZE_SHIFT)

#define TABLE_PAGE      0xfffu
#define MASK_ONES       0x7fu               /* 561H: these read as 1 */
#define INDEX_MAX       0x1ffffffu          /* of a table of 256 MiB */
#define OFFSET_SHIFT    32

static uint32_t table_index(const PtState *s)
{
    return (uint32_t)s->output_mask >> 7;
}

static uint64_t offset(const PtState *s)
{
    return s->output_mask >> OFFSET_SHIFT;
}

static void set_offset(PtState *s, uint64_t val)
{
    s->output_mask = val << OFFSET_SHIFT | (uint32_t)s->output_mask;
}

static void set_index(PtState *s, uint32_t index)
{
    s->output_mask = (uint64_t)index << 7 | MASK_ONES;
}

static uint64_t region_size(const PtState *s)
{
    return s->ctl & PT_CTL_TOPA ?
           4096ull << ((s->entry & ENTRY_SIZE) >> ENTRY_SIZE_SHIFT) :
           (uint64_t)(uint32_t)s->output_mask + 1;
}

/* It is aligned to its size. */
static uint64_t region_base(const PtState *s)
{
    return (s->ctl & PT_CTL_TOPA ? s->entry : s->output_base) &
           ~(region_size(s) - 1);
}

/* An operational error: TriggerEn is 0, and what is on its way is lost. */
static void fail(PtState *s)
{
    s->status |= PT_STATUS_ERROR;
    s->staged = s->room = 0;
    s->changed = true;
}

static uint64_t entry_reserved(const PtConfig *config, uint64_t entry)
{
    uint64_t base = pt_phys_mask(config) & ~(uint64_t)TABLE_PAGE;

    return entry & ~(base | ENTRY_END | ENTRY_INT | ENTRY_STOP | ENTRY_SIZE);
}

/*
 * What is an operational error, and not #GP, when TraceEn is set (SDM 3C, "ToPA
 * errors", "single range output"), but for what is in the table.
 */
bool pt_output_bad(const PtState *s, const PtConfig *config)
{
    uint32_t mask = (uint32_t)s->output_mask;

    if (s->ctl & PT_CTL_TOPA) {
        return (s->output_base & TABLE_PAGE) || (s->entry & ENTRY_END) ||
               entry_reserved(config, s->entry) ||
               (s->entry & (region_size(s) - 1) & ~(uint64_t)TABLE_PAGE) ||
               offset(s) >= region_size(s);
    }
    return (mask & (mask + 1)) || (s->output_base & mask) || offset(s) > mask;
}

/*
 * Get the entry that the index is of, or the first one of the next table.  END
 * in the first one of any table is an error, whether there may be several
 * entries or not; so two tables that are only that do not lead anywhere.
 */
static void load_entry(const Pt *pt)
{
    const PtHost *host = pt->host;
    PtState *s = pt->state;

    if (!host->read(host->opaque, s->output_base + 8ull * table_index(s),
                    &s->entry)) {
        fail(s);
        return;
    }
    if (s->entry & ENTRY_END) {
        if (!table_index(s) || entry_reserved(pt->config, s->entry) ||
            (s->entry & (ENTRY_INT | ENTRY_STOP))) {
            fail(s);
            return;
        }
        s->output_base = s->entry & ~(uint64_t)(TABLE_PAGE);
        s->output_mask &= ~(uint64_t)UINT32_MAX;
        s->output_mask |= MASK_ONES;
        load_entry(pt);
    } else if (pt_output_bad(s, pt->config)) {
        fail(s);
    }
}

/*
 * Where there is one entry only, what is behind the end is where it begins, so
 * its interrupt is early, and software counts on that (SDM 3C, "ToPA PMI").
 * Linux takes it that these are 512 bytes (TOPA_PMI_MARGIN).
 */
static uint64_t early(const PtState *s, const PtConfig *config)
{
    return !(config->ecx & PT_ECX_TOPA_MULTI) && (s->ctl & PT_CTL_TOPA) &&
           (s->entry & ENTRY_INT) ? region_size(s) - 512 : 0;
}

/* Up to the end of the region, of what may be staged, or to that */
uint32_t pt_room(const PtState *s, const PtConfig *config)
{
    uint64_t end = offset(s) < early(s, config) ? early(s, config) :
                   region_size(s);
    uint64_t left = end - offset(s);

    return pt_tells(s) ? (uint32_t)MIN(left, PT_STAGED) - s->staged : 0;
}

void pt_output_start(const Pt *pt)
{
    PtState *s = pt->state;

    s->staged = 0;
    if (pt_tells(s)) {
        if (s->ctl & PT_CTL_TOPA) {
            load_entry(pt);
        } else if (pt_output_bad(s, pt->config)) {
            fail(s);
        }
    }
    s->room = pt_room(s, pt->config);
}

/*
 * The PMI is exact here, as it is not on processors.  With STOP, the offset is
 * left at the end, as software expects it (SDM 3C, "ToPA STOP").
 */
static void region_full(const Pt *pt)
{
    PtState *s = pt->state;

    if (!(s->ctl & PT_CTL_TOPA)) {
        set_offset(s, 0);
        return;
    }
    s->pmi |= (s->entry & ENTRY_INT) && !early(s, pt->config);
    if (s->entry & ENTRY_STOP) {
        s->status |= PT_STATUS_STOPPED;
        s->changed = true;
    } else if (table_index(s) == INDEX_MAX) {
        fail(s);
    } else {
        set_index(s, table_index(s) + 1);
        load_entry(pt);
    }
}

void pt_drain(const Pt *pt)
{
    const PtHost *host = pt->host;
    PtState *s = pt->state;
    uint64_t end = offset(s) + s->staged;

    if (s->staged && !host->write(host->opaque, region_base(s) + offset(s),
                                  s->stage, s->staged)) {
        fail(s);
    } else if (s->staged) {
        s->staged = 0;
        set_offset(s, end);
        if (end == region_size(s)) {
            region_full(pt);
        } else {
            s->pmi |= end == early(s, pt->config);
        }
        s->room = pt_room(s, pt->config);
    }
}

/* Where output ends, it ends in the middle of a packet. */
void pt_put_rest(const Pt *pt, const uint8_t *bytes, uint32_t n)
{
    PtState *s = pt->state;

    while (n && pt_tells(s)) {
        uint32_t now = MIN(n, s->room);

        memcpy(s->stage + s->staged, bytes, now);
        s->staged += now;
        s->room -= now;
        s->bytes += now;
        bytes += now;
        n -= now;
        if (!s->room) {
            pt_drain(pt);
        }
    }
}
