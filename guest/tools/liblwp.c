/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * liblwp: see lwp.h.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include "session.h"

LwpInfo lwp_detect(void)
{
    LwpInfo info = { 0 };
    Cpuid lwp;

    /* This bit decides (3.1): the leaf may be there without it. */
    if (insn_cpuid(0x80000000).eax < 0x8000001c ||
        !(insn_cpuid(0x80000001).ecx & (1u << 15))) {
        return info;
    }
    lwp = insn_cpuid(0x8000001c);
    info.eax = lwp.eax;
    info.ebx = lwp.ebx;
    info.ecx = lwp.ecx;
    info.edx = lwp.edx;
    info.supported = true;
    info.available = info.eax & LWP_FLAG_AVAIL;
    info.events = info.available ? info.eax & ~LWP_FLAG_AVAIL : 0;
    info.version = info.ecx >> 9 & 0x7f;
    info.cb_size = (info.ebx & 0xff) * 8;
    info.record_size = info.ebx >> 8 & 0xff;
    info.max_event = info.ebx >> 16 & 0xff;
    info.event_offset = info.ebx >> 24;
    info.min_records = (info.ecx >> 16 & 0xff) * 32;
    return info;
}

uint32_t lwp_filters(const LwpInfo *info)
{
    uint32_t filters = LWP_FILTER_NAB | LWP_FILTER_NCB | LWP_FILTER_NRB;

    if (info->ecx & 1u << 28) {
        filters |= LWP_FILTER_NMB | LWP_FILTER_NPB;
    }
    if (info->ecx & 1u << 29) {
        filters |= LWP_FILTER_IPI | LWP_FILTER_IPF;
    }
    if (info->ecx & 1u << 30) {
        filters |= LWP_FILTER_CLF | LWP_FILTER_NBC | LWP_FILTER_RDC |
                   LWP_FILTER_RAM | LWP_FILTER_OTH;
    }
    if (info->ecx & 1u << 31) {
        filters |= LWP_FILTER_LATENCY;
    }
    return filters;
}

const char *lwp_strerror(int error)
{
    switch (error) {
    case ENODEV:
        return "this CPU has no LWP";
    case ENOSYS:
        return "the operating system has not made LWP available";
    case EPROTONOSUPPORT:
        return "this CPU's version of LWP is not known";
    case EOPNOTSUPP:
        return "an event is not available";
    case ERANGE:
        return "this CPU does not have a filter (see lwp info)";
    case EINVAL:
        return "an option of LWP is out of range";
    case EBUSY:
        return "LWP is in use in this thread already, as by lwp record";
    default:
        return strerror(error);
    }
}

static LwpRecord *ring_of(const LwpSession *s)
{
    return (LwpRecord *)((uintptr_t)s + SESSION_RING);
}

static LwpEventCounter *counter_of(const LwpSession *s, int event)
{
    return (LwpEventCounter *)(s->cb_space + s->event_offset) + event - 1;
}

static uint32_t ring_records(const LwpOptions *o, const LwpInfo *info)
{
    return o->records < info->min_records ? info->min_records : o->records;
}

size_t session_size(const LwpOptions *o, const LwpInfo *info)
{
    uint32_t records = ring_records(o, info);

    /* BufferSize has 28 bits; a ring of one record is always full (1.1). */
    if (records < 2 || records >= (1u << 28) / sizeof(LwpRecord)) {
        return 0;
    }
    return (SESSION_RING + records * sizeof(LwpRecord) + 4095) & ~(size_t)4095;
}

void session_init(LwpSession *s, const LwpOptions *o, const LwpInfo *info)
{
    s->magic = SESSION_MAGIC;
    s->state = SESSION_RUNS;
    s->event_offset = info->event_offset;
    s->size = ring_records(o, info) * sizeof(LwpRecord);
    s->cb.flags = o->events;
    s->cb.size = s->size | o->random << 28;
    s->cb.base = (uintptr_t)ring_of(s);
    s->cb.threshold = o->threshold < s->size / sizeof(LwpRecord) ?
                      o->threshold * sizeof(LwpRecord) : s->size;
    s->cb.filters = o->filters;
    s->cb.base_ip = o->base_ip;
    s->cb.limit_ip = o->limit_ip;
    for (int event = 1; event <= LWP_NR_EVENTS; event++) {
        if (o->events & LWP_FLAG(event)) {
            int32_t interval = o->period[event - 1] - 1;

            *counter_of(s, event) = (LwpEventCounter) { interval, interval };
            s->start[event - 1] = interval;
        }
    }
}

static bool options_valid(const LwpOptions *o)
{
    if (o->random > 15 || o->events & LWP_FLAG_AVAIL) {
        return false;
    }
    for (int event = 1; event <= LWP_NR_EVENTS; event++) {
        uint32_t period = o->period[event - 1];

        if (o->events & LWP_FLAG(event) &&
            (period < 1 || period > LWP_MAX_PERIOD)) {
            return false;
        }
    }
    return true;
}

LwpSession *lwp_open(const LwpOptions *options)
{
    LwpInfo info = lwp_detect();
    LwpSession *s = NULL;
    size_t size = session_size(options, &info);

    if (!info.supported) {
        errno = ENODEV;
    } else if (!info.available) {
        errno = ENOSYS;
    } else if (info.version != 1 || info.record_size != sizeof(LwpRecord)) {
        errno = EPROTONOSUPPORT;
    } else if (!size || !options_valid(options)) {
        errno = EINVAL;
    } else if (options->events & ~info.events) {
        errno = EOPNOTSUPP;
    } else if (options->filters & ~lwp_filters(&info)) {
        errno = ERANGE;
    } else {
        s = mmap(NULL, size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (s == MAP_FAILED) {
            return NULL;
        }
        session_init(s, options, &info);
    }
    return s;
}

bool lwp_enable(LwpSession *s)
{
    LwpCb *cb;

    if (!session_available()) {
        errno = ENOSYS;
        return false;
    }
    cb = session_flush();
    if (cb && cb != &s->cb) {
        errno = EBUSY;
        return false;
    }
    if (!cb) {
        insn_llwpcb(&s->cb);
    }
    return true;
}

void lwp_disable(LwpSession *s)
{
    if (session_flush() == &s->cb) {
        insn_llwpcb(NULL);
    }
}

/* What lwp_resume() goes on with. */
static __thread LwpCb *paused;

void lwp_pause(void)
{
    LwpCb *cb = lwp_detect().available ? session_flush() : NULL;

    if (cb) {
        paused = cb;
        insn_llwpcb(NULL);
    }
}

void lwp_resume(void)
{
    if (paused && lwp_detect().available && !session_flush()) {
        insn_llwpcb(paused);
    }
    paused = NULL;
}

ssize_t session_drain(LwpSession *s, uint32_t size, uint32_t until,
                      LwpCallback *callback, void *opaque)
{
    const LwpRecord *ring = ring_of(s);
    /* The records before the head are complete when it is (1.1). */
    uint32_t head = __atomic_load_n(&s->cb.head, __ATOMIC_ACQUIRE);
    uint32_t tail = __atomic_load_n(&s->cb.tail, __ATOMIC_RELAXED);
    ssize_t n = 0;

    if (head >= size || head % sizeof(LwpRecord) ||
        tail >= size || tail % sizeof(LwpRecord)) {
        return -1;
    }
    if (until != SESSION_ALL) {
        if (until >= size || until % sizeof(LwpRecord) ||
            (until + size - tail) % size > (head + size - tail) % size) {
            return 0;
        }
        head = until;
    }
    while (tail != head) {
        LwpRecord r = ring[tail / sizeof(LwpRecord)];

        if (r.event >= 1 && r.event <= LWP_NR_EVENTS) {
            s->drained[r.event - 1]++;
        }
        callback(&r, opaque);
        n++;
        tail += sizeof(LwpRecord);
        tail = tail < size ? tail : 0;
    }
    /* Only now may the CPU overwrite them. */
    __atomic_store_n(&s->cb.tail, tail, __ATOMIC_RELEASE);
    return n;
}

size_t lwp_drain(LwpSession *s, LwpCallback *callback, void *opaque)
{
    ssize_t n;

    session_flush();
    n = session_drain(s, s->size, SESSION_ALL, callback, opaque);
    return n > 0 ? n : 0;
}

uint64_t lwp_missed(const LwpSession *s)
{
    return __atomic_load_n(&s->cb.missed, __ATOMIC_RELAXED);
}

uint64_t session_count(const LwpSession *s, int event, bool flushed)
{
    LwpEventCounter *c = counter_of(s, event);
    uint64_t period = (uint64_t)c->interval + 1;
    uint32_t random = (1u << (s->cb.size >> 28)) - 1;
    uint32_t sign = 1u << 25;       /* the counter has 26 bits (Table 6-1) */
    uint32_t counter = c->counter;

    if (!(s->cb.flags & LWP_FLAG(event))) {
        return 0;
    }
    if (random) {
        /* The low bits are replaced: any value of them is as likely. */
        period = (c->interval & ~random) + random / 2 + 1;
    }
    counter = ((counter & (2 * sign - 1)) ^ sign) - sign;
    return s->drained[event - 1] * period +
           (flushed ? s->start[event - 1] - (int32_t)counter : 0);
}

uint64_t lwp_count(LwpSession *s, int event)
{
    const LwpRecord *ring = ring_of(s);
    uint64_t count;
    uint64_t waiting = 0;

    if (event < 1 || event > LWP_NR_EVENTS) {
        return 0;
    }
    session_flush();
    for (uint32_t i = s->cb.tail; i != s->cb.head;
         i = (i + sizeof(LwpRecord)) % s->size) {
        waiting += ring[i / sizeof(LwpRecord)].event == event;
    }
    s->drained[event - 1] += waiting;
    count = session_count(s, event, true);
    s->drained[event - 1] -= waiting;
    return count;
}

void lwp_close(LwpSession *s)
{
    if (s) {
        LwpOptions o = { .records = s->size / sizeof(LwpRecord) };
        LwpInfo none = { 0 };

        lwp_disable(s);
        if (paused == &s->cb) {
            paused = NULL;
        }
        munmap(s, session_size(&o, &none));
    }
}
