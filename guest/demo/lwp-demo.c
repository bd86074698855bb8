/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Profile the divisors of a loop with AMD Lightweight Profiling.
 *
 * usage: lwp-demo [CPU]
 *
 * LWPINS marks the phases of the program and LWPVAL samples every tenth
 * divisor; the records are then read from the ring, printed, and compared
 * with what was inserted.  The program stays on one CPU, the given one or the
 * last it may use, because lwp_enable does not switch LWP state.
 *
 * Section and table numbers refer to AMD publication 43724, revision 3.08.
 */

#include "lwp.h"

enum { LOOPS = 50, EVERY = 10, MARKS = 3, RECORDS = MARKS + LOOPS / EVERY };
enum { MARK_FLAGS = 0xabcd, SAMPLE_FLAGS = 0x1234 };

/* Filled in while LWP runs, looked at afterwards. */
typedef struct Session {
    Record records[RECORDS + 1];    /* as read from the ring */
    unsigned nr_records;
    bool mark_refused;              /* a LWPINS set CF: ring full */
    bool lwpcb_differs;             /* SLWPCB did not return the LWPCB */
    unsigned filled;                /* LWPINS until one set CF */
    unsigned capacity;              /* what that has to be */
    uint64_t missed;                /* MissedEvents after that */
} Session;

static void print_bits(const char *what, uint32_t reg, const char *const *names)
{
    const char *separator = "";

    printf("  %-22s", what);
    for (unsigned i = 0; i < 32; i++) {
        if (reg & (1u << i)) {
            if (names[i]) {
                printf("%s%s", separator, names[i]);
            } else {
                printf("%sbit %u", separator, i);
            }
            separator = " ";
        }
    }
    puts(*separator ? "" : "none");
}

static void print_leaf(const Lwp *lwp)
{
    static const char *const features[32] = {
        "LwpAvail", "LwpVAL", "LwpIRE", "LwpBRE", "LwpDME", "LwpCNH", "LwpRNH",
        [29] = "LwpCont", "LwpPTSC", "LwpInt",
    };
    static const char *const filters[32] = {
        [28] = "LwpBranchPrediction", "LwpIpFiltering", "LwpCacheLevels",
        "LwpCacheLatency",
    };

    printf("CPUID Fn8000_001C: EAX %08" PRIx32 " EBX %08" PRIx32
           " ECX %08" PRIx32 " EDX %08" PRIx32 "\n",
           lwp->eax, lwp->ebx, lwp->ecx, lwp->edx);
    printf("  %-22s%u\n", "LwpVersion", lwp->version);
    print_bits("supported", lwp->edx, features);
    print_bits("available", lwp->eax, features);
    print_bits("filters", lwp->ecx & 0xf0000000, filters);
    printf("  %-22s%u bytes, events at %u, highest EventId %u\n", "LWPCB",
           lwp->cb_size, lwp->event_offset, lwp->max_event);
    printf("  %-22s%u bytes each, at least %u in a ring\n", "event records",
           lwp->event_size, lwp->min_records);
}

static uint32_t divisor(uint32_t i)
{
    return i % 7 + 1;
}

/* The program being profiled. */
static uint32_t __attribute__((noinline)) workload(Session *s)
{
    uint32_t sum = 0;

    s->mark_refused |= __lwpins32(1, LOOPS, MARK_FLAGS);
    for (uint32_t i = 0; i < LOOPS; i++) {
        uint32_t d = divisor(i);

        __lwpval64(i, d, SAMPLE_FLAGS);
        sum += 1000000 / d;
    }
    s->mark_refused |= __lwpins32(2, sum, MARK_FLAGS);
    s->mark_refused |= __lwpins64(UINT64_MAX, 0, MARK_FLAGS);
    return sum;
}

/* Consume the ring the way a profiler does: from the tail to the head. */
static void drain(Session *s, ControlBlock *cb)
{
    const uint8_t *ring = (const uint8_t *)(uintptr_t)cb->buffer_base;

    /* The head in memory is current only after SLWPCB (§5.2). */
    s->lwpcb_differs |= __slwpcb() != cb;
    while (cb->buffer_tail_offset != cb->buffer_head_offset) {
        if (s->nr_records <= RECORDS) {
            memcpy(&s->records[s->nr_records++], ring + cb->buffer_tail_offset,
                   sizeof(Record));
        }
        cb->buffer_tail_offset += sizeof(Record);
        cb->buffer_tail_offset %= cb->buffer_size;
    }
}

static uint32_t run(const Lwp *lwp, Session *s)
{
    unsigned nr = lwp->min_records ? lwp->min_records : 32;
    size_t ring_size = nr * sizeof(Record);
    void *ring = aligned_alloc(4096, (ring_size + 4095) & -4096);
    ControlBlock *cb = aligned_alloc(64, (lwp->cb_size + 63) & -64);
    Event *events = (Event *)((char *)cb + lwp->event_offset);
    uint32_t sum;

    if (!ring || !cb) {
        fail("out of memory");
    }
    memset(cb, 0, lwp->cb_size);
    cb->flags = LWP_VAL;
    cb->buffer_size = ring_size;
    cb->buffer_base = (uintptr_t)ring;
    events[EVENT_VAL - 1] = (Event) { EVERY - 1, EVERY - 1 };

    __llwpcb(cb);
    sum = workload(s);
    drain(s, cb);

    /* A full ring keeps one slot free, and says so in CF (§5.4). */
    s->capacity = nr - 1;
    while (s->filled < 2 * nr && !__lwpins32(3, s->filled, MARK_FLAGS)) {
        s->filled++;
    }
    __llwpcb(NULL);

    s->missed = cb->missed_events;
    if (!(cb->flags & LWP_VAL)) {
        fail("LLWPCB did not enable the LwpVAL event");
    }
    free(cb);
    free(ring);
    return sum;
}

static void print_records(const Session *s)
{
    puts(" No.  EventId      CoreId  Flags  InstructionAddress"
         "       Data1                 Data2");
    for (unsigned i = 0; i < s->nr_records; i++) {
        const Record *r = &s->records[i];
        const char *name = r->event_id == EVENT_VAL ? "VAL" :
                           r->event_id == EVENT_INS ? "INS" : "?";

        printf("%4u  %3u %-7s  %6u   %04x    %016" PRIx64 "  %10" PRIu32
               "  %20" PRIu64 "\n", i + 1, r->event_id, name, r->core_id,
               r->flags, r->ip, r->data1, r->data2);
    }
}

/* Does the record name the instruction that made it, XOP map A opcode 12h? */
static bool names_instruction(const Record *r)
{
    const uint8_t *code = (const uint8_t *)(uintptr_t)r->ip;
    uint8_t reg = r->event_id == EVENT_VAL ? 1 : 0;

    return code[0] == 0x8f && (code[1] & 0x1f) == 0x0a && code[3] == 0x12 &&
           ((code[4] >> 3) & 7) == reg;
}

static void check_record(const Record *r, const Record *expected)
{
    Record seen = *r;

    seen.ip = 0;
    if (memcmp(&seen, expected, sizeof(seen)) != 0) {
        fail("a record is not what was inserted");
    }
    if (!names_instruction(r)) {
        fail("a record's InstructionAddress is not that of its instruction");
    }
}

static void check(const Session *s, uint32_t sum)
{
    Record mark = { .event_id = EVENT_INS, .flags = MARK_FLAGS };
    Record sample = { .event_id = EVENT_VAL, .flags = SAMPLE_FLAGS };
    const Record *r = s->records;
    uint32_t a, b, c, d;

    /* What lwp_enable has put into LWP_CFG: the local APIC ID (§4.2). */
    __cpuid(1, a, b, c, d);
    mark.core_id = sample.core_id = b >> 24;

    if (s->nr_records != RECORDS) {
        fail("the ring does not hold as many records as were inserted");
    }
    mark.data1 = LOOPS;
    mark.data2 = 1;
    check_record(r++, &mark);
    for (uint32_t i = EVERY - 1; i < LOOPS; i += EVERY) {
        sample.data1 = divisor(i);
        sample.data2 = i;
        check_record(r++, &sample);
    }
    mark.data1 = sum;
    mark.data2 = 2;
    check_record(r++, &mark);
    mark.data1 = 0;
    mark.data2 = UINT64_MAX;
    check_record(r++, &mark);

    if (s->lwpcb_differs) {
        fail("SLWPCB does not return the address of the LWPCB");
    }
    if (s->mark_refused) {
        fail("LWPINS reported a full ring although there was room");
    }
    if (s->filled != s->capacity || s->missed != 1) {
        fail("the ring did not fill up when it should have");
    }
}

int main(int argc, char **argv)
{
    Session session = { 0 };
    Lwp lwp = detect();
    uint32_t sum;

    pin(argc > 1 ? argv[1] : NULL);
    print_leaf(&lwp);
    if (!(lwp.eax & LWP_AVAIL)) {
        fail("the CPU has LWP, but the operating system has not made it "
             "available: CPUID Fn8000_001C EAX[0] is 0");
    }
    if (!(lwp.eax & LWP_VAL)) {
        fail("the LwpVAL event is not available");
    }
    if (lwp.event_size != sizeof(Record) ||
        lwp.cb_size < lwp.event_offset + sizeof(Event) ||
        lwp.event_offset < sizeof(ControlBlock)) {
        fail("the sizes in CPUID Fn8000_001C are not those of LWP version 1");
    }

    sum = run(&lwp, &session);

    printf("\n%u marks by LWPINS, and every %uth of %u values by LWPVAL:\n",
           MARKS, EVERY, LOOPS);
    print_records(&session);
    printf("LWPINS then filled the ring with %u records; MissedEvents is %"
           PRIu64 "\n", session.filled, session.missed);
    check(&session, sum);
    return 0;
}
