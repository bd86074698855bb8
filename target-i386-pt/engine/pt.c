/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Intel Processor Trace: the packets, and what decides which are sent. */

#include "pt-internal.h"

/* First bytes of packets (SDM 3C, "Packet Definitions") */
#define TIP             0x0du
#define TIP_PGE         0x11u
#define TIP_PGD         0x01u
#define FUP             0x1du
#define TSC             0x19u
#define MODE            0x99u
#define EXTENDED        0x02u           /* and one of these: */
#define PIP             0x43u
#define CBR             0x03u
#define STOP            0x83u
#define PSB             0x82u
#define PSBEND          0x23u

#define MODE_TSX        (1u << 5)       /* not in a transaction */
#define TNT_BITS        6u

#define CR3_SHIFT       5               /* what is compared and in PIP */
#define PIP_CR3_BITS    47

/* ADDRn_CFG */
#define RANGE_FILTER    1u
#define RANGE_STOP      2u

/* Whatever may change PacketEn: a PtBranch, or one of these */
enum {
    MOVE_FAR = PT_RET + 1,
    MOVE_EVENT,
    MOVE_CR3,
    MOVE_START,
};

static void empty_returns(PtPending *p)
{
    p->ret[(p->top - 8) % sizeof(p->ret) / 8] = PT_NOWHERE;
}

void pt_forget(PtPending *p)
{
    p->tnt = 1;
    p->top = 0;
    empty_returns(p);
}

/*
 * Packets.  Outcomes go out before any other, so that the order is exact.
 */

static void flush_outcomes(const Pt *pt)
{
    uint64_t tnt = pt->pending->tnt;
    unsigned left = 63u - (unsigned)__builtin_clzll(tnt), n = 0;
    uint8_t packets[PT_PACKET];

    while (left) {
        unsigned now = MIN(left, TNT_BITS);
        unsigned stop = 1u << now;

        left -= now;
        packets[n++] = (uint8_t)((stop | (tnt >> left & (stop - 1))) << 1);
    }
    if (n) {
        pt->pending->tnt = 1;
        pt_put(pt, packets, n);
    }
}

/* Some bytes, and then so many of @val */
static void send(const Pt *pt, unsigned first, unsigned second, uint64_t val,
                 unsigned size)
{
    uint8_t packet[PT_PACKET] = { (uint8_t)first, (uint8_t)second };
    unsigned n = first == EXTENDED || first == MODE ? 2 : 1;

    flush_outcomes(pt);
    ds_st64(packet + n, val);
    pt_put(pt, packet, n + size);
}

/* The shortest of the ways to tell an IP (SDM 3C, "IP compression") */
static void send_ip(const Pt *pt, unsigned first, uint64_t ip)
{
    PtState *s = pt->state;
    uint64_t diff = ip ^ s->last_ip;
    uint64_t top = (uint64_t)((int64_t)ip >> 47);
    unsigned ip_bytes = !(diff >> 16) ? 1 : !(diff >> 32) ? 2 :
                        !(top + 1) || !top ? 3 : 6;

    s->last_ip = ip;
    send(pt, first | ip_bytes << 5, 0, ip, ip_bytes == 6 ? 8 : 2 * ip_bytes);
}

static void send_mode(const Pt *pt)
{
    PtState *s = pt->state;

    if (s->mode != s->here.exec) {
        s->mode = s->here.exec;
        send(pt, MODE, s->mode, 0, 0);
    }
}

static void send_pip(const Pt *pt)
{
    uint64_t cr3 = pt->state->here.cr3 >> CR3_SHIFT;

    send(pt, EXTENDED, PIP, (cr3 & ((1ull << PIP_CR3_BITS) - 1)) << 1, 6);
}

static void send_tsc(const Pt *pt)
{
    if (pt->state->ctl & PT_CTL_TSC_EN) {
        send(pt, TSC, 0, pt->host->tsc(pt->host->opaque), 7);
    }
}

static void send_cbr(const Pt *pt)
{
    send(pt, EXTENDED, CBR, pt->config->cbr, 2);
}

/*
 * PSB+: where a decoder can begin (SDM 3C, "PSB").  With @packets, FUP says
 * where: at @ip, the instruction that is next.
 */
static void send_psb(const Pt *pt, bool packets, uint64_t ip)
{
    PtState *s = pt->state;

    flush_outcomes(pt);
    empty_returns(pt->pending);
    s->bytes = 0;
    s->last_ip = 0;
    s->mode = PT_MODE_NONE;
    for (unsigned i = 0; i < 8; i++) {
        send(pt, EXTENDED, PSB, 0, 0);
    }
    send_tsc(pt);
    if (s->context_en && (s->ctl & PT_CTL_OS)) {
        send_pip(pt);
    }
    send_cbr(pt);
    if (s->context_en && (s->ctl & PT_CTL_BRANCH_EN)) {
        send(pt, MODE, MODE_TSX, 0, 0);
    }
    if (packets) {
        send_mode(pt);
        /*
         * All of the address: perf looks at this packet before it has made its
         * last IP 0 (intel_pt_psb_with_fup() in intel-pt-decoder.c).
         */
        s->last_ip = PT_NOWHERE;
        send_ip(pt, FUP, ip);
    }
    send(pt, EXTENDED, PSBEND, 0, 0);
}

/*
 * PSB+ is due so many bytes after the last one.  This is only asked where all
 * is out that belongs to what is before @ip: never between a FUP and its TIP.
 */
static void sync(const Pt *pt, uint64_t ip)
{
    PtState *s = pt->state;
    unsigned freq = (unsigned)(s->ctl >> PT_CTL_PSB_FREQ_SHIFT) & 15;

    if (s->bytes >= 2048u << freq && pt_tells(s)) {
        send_psb(pt, pt_packets_wanted(s), ip);
    }
}

/*
 * Filters
 */

/* SDM 3C, "ContextEn"; of CR3, the low 5 bits are not compared. */
static bool in_context(const PtState *s, const PtConfig *config)
{
    uint64_t cr3 = (s->here.cr3 ^ s->cr3_match) & pt_phys_mask(config);

    return !s->here.smm &&
           (s->ctl & (s->here.os ? PT_CTL_OS : PT_CTL_USER)) &&
           (!(s->ctl & PT_CTL_CR3_FILTER) || !(cr3 >> CR3_SHIFT));
}

/* Whether a range of that kind has @ip; or @none, if there is no such range. */
static bool in_range(const PtState *s, unsigned cfg, uint64_t ip, bool none)
{
    uint64_t cfgs = (s->ctl & PT_CTL_ADDRS) >> PT_CTL_ADDR_SHIFT;
    bool in = none;

    for (const uint64_t *addr = s->addr; cfgs; cfgs >>= 4, addr += 2) {
        if ((cfgs & 15) == cfg) {
            in = false;
            if (addr[0] <= ip && ip <= addr[1]) {
                return true;
            }
        }
    }
    return in;
}

/*
 * What goes first when TraceEn is set.  It may be another buffer than the last
 * time, so nothing of what a decoder had then is of use.
 */
static void begin(const Pt *pt)
{
    PtState *s = pt->state;

    s->last_ip = PT_NOWHERE;
    s->mode = PT_MODE_NONE;
    if (s->bytes) {
        send_tsc(pt);
        send_cbr(pt);
    } else {
        send_psb(pt, false, 0);
    }
}

/*
 * From one instruction to another; @from is an event's.  Each case is in SDM
 * 3C, "Packet Generation Scenarios", by whether PacketEn was and is set.
 */
static void move(const Pt *pt, int how, uint64_t from, const PtPlace *to)
{
    PtState *s = pt->state;
    bool was = pt_packets_wanted(s), context = s->context_en;
    bool filter = s->filter_en, now, stop;
    bool pip = how == MOVE_CR3 ||
               (how != MOVE_START && to->cr3 != s->here.cr3);
    bool match = how == PT_RET && pt_returns_wanted(s) &&
                 pt_ret(pt->pending, to->ip);

    if (!was) {
        pt->pending->tnt = 1;   /* of code that is on its way out */
    }
    s->here = *to;
    s->context_en = in_context(s, pt->config);
    /* Who goes straight on does not leave a range, nor enter it. */
    if (how != MOVE_CR3 || !context) {
        s->filter_en = in_range(s, RANGE_FILTER, to->ip, true);
    }
    stop = s->context_en && in_range(s, RANGE_STOP, to->ip, false);
    s->changed |= context != s->context_en || filter != s->filter_en;
    now = pt_packets_wanted(s) && !stop;

    if (how == MOVE_START) {
        begin(pt);
    }
    if (was && how == MOVE_EVENT) {
        send_ip(pt, FUP, from);
    }
    if (pip && s->context_en && (s->ctl & PT_CTL_OS)) {
        send_pip(pt);
    }
    if (was && !now) {
        /*
         * Where it goes is told if it may be known.  Of a conditional branch it
         * need not be, but libipt's decoder of instructions needs it.
         */
        if (s->context_en) {
            send_ip(pt, TIP_PGD, to->ip);
        } else {
            send(pt, TIP_PGD, 0, 0, 0);
        }
    } else if (!was && now) {
        empty_returns(pt->pending);
        send_mode(pt);
        send_ip(pt, TIP_PGE, to->ip);
    } else if (now && (how == PT_COND || match)) {
        if (pt_cond(pt->pending, true)) {
            flush_outcomes(pt);
        }
    } else if (now && how != PT_DIRECT && how != MOVE_CR3) {
        send_mode(pt);
        send_ip(pt, TIP, to->ip);
    }
    if (stop) {
        send(pt, EXTENDED, STOP, 0, 0);
        s->status |= PT_STATUS_STOPPED;
        s->changed = true;
    }
    sync(pt, to->ip);
}

/*
 * What is told
 */

void pt_outcomes(const Pt *pt, uint64_t next)
{
    if (pt_packets_wanted(pt->state)) {
        flush_outcomes(pt);
        sync(pt, next);
    } else {
        pt->pending->tnt = 1;
    }
}

void pt_indirect(const Pt *pt, uint64_t to)
{
    if (pt_packets_wanted(pt->state)) {
        send_ip(pt, TIP, to);
        sync(pt, to);
    }
}

void pt_near(const Pt *pt, PtBranch branch, uint64_t to)
{
    PtPlace place = pt->state->here;

    place.ip = to;
    if (pt_near_wanted(pt->state)) {
        move(pt, branch, 0, &place);
    }
}

void pt_far(const Pt *pt, const PtPlace *to)
{
    if (pt_tells(pt->state)) {
        move(pt, MOVE_FAR, 0, to);
    }
}

void pt_event(const Pt *pt, uint64_t from, const PtPlace *to)
{
    if (pt_tells(pt->state)) {
        move(pt, MOVE_EVENT, from, to);
    }
}

void pt_cr3(const Pt *pt, const PtPlace *next)
{
    if (pt_tells(pt->state)) {
        move(pt, MOVE_CR3, 0, next);
    }
}

void pt_resume(const Pt *pt, const PtPlace *next)
{
    PtState *s = pt->state;

    if (s->starting && pt_tells(s)) {
        move(pt, MOVE_START, 0, next);
    }
    s->starting = false;
}

void pt_settle(const Pt *pt)
{
    if (pt_packets_wanted(pt->state)) {
        flush_outcomes(pt);
    }
    pt_drain(pt);
}

/* Software cannot clear what it cannot see: each time is the first one then. */
void pt_start(const Pt *pt)
{
    PtState *s = pt->state;

    s->ctl |= PT_CTL_TRACE_EN;
    s->starting = true;
    s->context_en = s->filter_en = false;
    s->changed = true;
    if (!(pt->config->ebx & PT_EBX_PSB_CYC)) {
        s->bytes = 0;
    }
    pt_output_start(pt);
}

void pt_stop(const Pt *pt, uint64_t from)
{
    PtState *s = pt->state;

    if (pt_packets_wanted(s)) {
        send_ip(pt, FUP, from);
        send(pt, TIP_PGD, 0, 0, 0);
    }
    pt_drain(pt);
    s->ctl &= ~PT_CTL_TRACE_EN;
    s->room = 0;
    s->starting = false;
    s->changed = true;
}

void pt_smi(const Pt *pt, uint64_t from)
{
    PtState *s = pt->state;

    s->smm_trace_en = s->ctl & PT_CTL_TRACE_EN;
    pt_stop(pt, from);
}

/*
 * What was set in SMM is lost, and there were no packets.  TraceEn stays clear
 * where SMM has left what WRMSR would not set it with.
 */
void pt_rsm(const Pt *pt)
{
    PtState *s = pt->state;
    bool trace_en = s->smm_trace_en;

    pt_stop(pt, 0);
    s->smm_trace_en = false;
    if (trace_en && !pt_ctl_bad(pt->config, s->ctl | PT_CTL_TRACE_EN)) {
        pt_start(pt);
    }
}
