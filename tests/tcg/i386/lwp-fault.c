/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Page faults of LWP in user mode: exact, restartable, nothing lost, stored
 * twice or in part (§8.6).
 */

#define _GNU_SOURCE
#include "lwp.h"

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define RW              (PROT_READ | PROT_WRITE)

/* Pages; a ring or an LWPCB that straddles has half of it on either page. */
static uint8_t *ring_pages, *cb_pages, *data_pages;
static LwpCb *cb;
static LwpRecord *ring;
static LwpCb other;             /* An LWPCB that never faults */
static LwpRecord other_ring[32];

/* What the repairing handler saw */
static struct {
    int faults;
    bool clean;                 /* no part of a record was there */
    uintptr_t addr[4], ip[4];
} seen;

static uint8_t *page_of(void *addr)
{
    return (uint8_t *)((uintptr_t)addr & -PAGE);
}

static void repair(int sig, siginfo_t *info, void *uc)
{
    uint8_t *page = page_of(info->si_addr);

    if (info->si_code == SI_KERNEL || seen.faults == 4) {
        on_fault(sig, info, uc);
    }
    seen.addr[seen.faults] = (uintptr_t)info->si_addr;
    seen.ip[seen.faults++] = UC_IP((ucontext_t *)uc);
    mprotect(page, PAGE, RW);
    if (page == ring_pages || page == ring_pages + PAGE) {
        seen.clean &= bytes_are(page, 0, PAGE);
    }
}

static void unprotect(void)
{
    mprotect(ring_pages, 2 * PAGE, RW);
    mprotect(cb_pages, 2 * PAGE, RW);
    mprotect(data_pages, 2 * PAGE, RW);
}

/* Set up @cb with the ring and the LWPCB at those offsets in their pages. */
static void prepare(int ring_at, int cb_at, uint32_t flags)
{
    llwpcb(NULL);
    unprotect();
    memset(ring_pages, 0, 2 * PAGE);
    memset(cb_pages, 0, 2 * PAGE);
    memset(&seen, 0, sizeof(seen));
    seen.clean = true;
    ring = (LwpRecord *)(ring_pages + ring_at);
    cb = (LwpCb *)(cb_pages + cb_at);
    lwp_init(cb, ring, LWP_MIN_RING, flags);
    cb->event[0].interval = 7;
}

#define STRADDLE_RING   (PAGE - 16)
#define STRADDLE_CB     (PAGE - 64)     /* BufferTailOffset on page 1 */

/* Where to fault */
typedef struct Place {
    const char *name;
    int ring_at, cb_at;
    uint8_t **pages;
    int page, prot;
} Place;

static const Place ring_places[] = {
    { "ring missing", 0, 0, &ring_pages, 0, PROT_NONE },
    { "ring read-only", 0, 0, &ring_pages, 0, PROT_READ },
    { "end of record missing", STRADDLE_RING, 0, &ring_pages, 1, PROT_NONE },
    { "start of record missing", STRADDLE_RING, 0, &ring_pages, 0, PROT_NONE },
    { "end of record read-only", STRADDLE_RING, 0, &ring_pages, 1, PROT_READ },
};

static const Place cb_places[] = {
    { "LWPCB missing", 0, 0, &cb_pages, 0, PROT_NONE },
    { "LWPCB read-only", 0, 0, &cb_pages, 0, PROT_READ },
    { "start of LWPCB missing", 0, STRADDLE_CB, &cb_pages, 0, PROT_NONE },
    { "start of LWPCB read-only", 0, STRADDLE_CB, &cb_pages, 0, PROT_READ },
    { "end of LWPCB missing", 0, STRADDLE_CB, &cb_pages, 1, PROT_NONE },
};

/* Whether exactly one fault came from @place, at instruction @ip if known. */
static bool one_fault(const Place *place, uintptr_t ip)
{
    uint8_t *page = *place->pages + place->page * PAGE;

    return seen.faults == 1 && page_of((void *)seen.addr[0]) == page &&
           seen.clean && (!ip || seen.ip[0] == ip);
}

static void protect(const Place *place)
{
    mprotect(*place->pages + place->page * PAGE, PAGE, place->prot);
}

static void check_store(const Place *place)
{
    prepare(place->ring_at, place->cb_at, LWP_FLAG_VAL);
    llwpcb(cb);
    protect(place);
    lwpins(1, 2, 3);
    report(one_fault(place, lwp_ip) && slwpcb() == cb && cb->head == 32 &&
           cb->missed == 0 && record_is(ring, LWP_INS, 3, 2, lwp_ip, 1) &&
           bytes_are(ring + 1, 0, 1024 - 32),
           "LWPINS, %s: one fault, one record", place->name);

    prepare(place->ring_at, place->cb_at, LWP_FLAG_VAL);
    llwpcb(cb);
    protect(place);
    lwpval(1, 2, 3);
    report(one_fault(place, lwp_ip) && slwpcb() == cb && cb->head == 32 &&
           record_is(ring, LWP_VAL, 3, 2, lwp_ip, 1) &&
           bytes_are(ring + 1, 0, 1024 - 32) && cb->event[0].counter == 7,
           "LWPVAL, %s: one fault, one record, one reset", place->name);

    prepare(place->ring_at, place->cb_at, LWP_FLAG_VAL);
    cb->event[0].counter = 1;
    llwpcb(cb);
    protect(place);
    lwpval(1, 2, 3);
    report(seen.faults == 0, "LWPVAL that only counts, %s: no fault",
           place->name);

    /* A ring that is full: MissedEvents may not count twice. */
    prepare(place->ring_at, place->cb_at, LWP_FLAG_VAL);
    cb->tail = 32;
    cb->missed = 10;
    llwpcb(cb);
    protect(place);
    report(lwpins(1, 2, 3) && one_fault(place, lwp_ip) && slwpcb() == cb &&
           cb->missed == 11 && cb->head == 0 &&
           record_is(ring, LWP_INS, 3, 2, lwp_ip, 1),
           "LWPINS, ring full, %s: missed once", place->name);

    /* The program gives the instruction up instead. */
    prepare(place->ring_at, place->cb_at, LWP_FLAG_VAL);
    llwpcb(cb);
    protect(place);
    catch(SIGSEGV, on_fault);
    report(faults(lwpval(1, 2, 3)) == SIGSEGV &&
           faults(lwpins(1, 2, 3)) == SIGSEGV &&
           *(uint8_t *)fault_ip == 0x8f,
           "LWPVAL and LWPINS, %s: given up", place->name);
    catch(SIGSEGV, repair);
    unprotect();
    report(slwpcb() == cb && cb->head == 0 && cb->event[0].counter == 0 &&
           cb->missed == 0 && bytes_are(ring, 0, 1024),
           "and had no effect");
}

static void check_flush(const Place *place)
{
    void *p;

    prepare(place->ring_at, place->cb_at, LWP_FLAG_VAL);
    cb->event[0].counter = 5;
    llwpcb(cb);
    lwpval(1, 2, 3);
    lwpins(1, 2, 3);
    cb->head = cb->event[0].counter = 77;
    protect(place);
    p = slwpcb();
    report(one_fault(place, 0) && p == cb && cb->head == 32 &&
           cb->event[0].counter == 4, "SLWPCB, %s: one fault, then flushed",
           place->name);

    /* LLWPCB flushes the old LWPCB first (§5.1 step 2). */
    cb->head = cb->event[0].counter = 77;
    protect(place);
    seen.faults = 0;
    other.flags = LWP_FLAG_VAL;
    llwpcb(&other);
    report(one_fault(place, 0) && cb->head == 32 &&
           cb->event[0].counter == 4 && slwpcb() == &other,
           "LLWPCB, old %s: one fault, flushed, new one active", place->name);

    /* LLWPCB gives up: the old LWPCB remains. */
    prepare(place->ring_at, place->cb_at, LWP_FLAG_VAL);
    llwpcb(cb);
    protect(place);
    catch(SIGSEGV, on_fault);
    other.flags = ~0u;
    report(faults(llwpcb(&other)) == SIGSEGV && other.flags == ~0u &&
           faults(slwpcb()) == SIGSEGV,
           "LLWPCB, old %s: given up, new one untouched", place->name);
    catch(SIGSEGV, repair);
    unprotect();
    report(slwpcb() == cb, "and the old one is still active");

    /* The new LWPCB faults (§5.1 step 4). */
    prepare(place->ring_at, place->cb_at, LWP_FLAG_VAL);
    cb->event[0].interval = -1;
    cb->event[0].counter = 3;
    lwp_init(&other, other_ring, sizeof(other_ring), LWP_FLAG_VAL);
    other.event[0].counter = 9;
    llwpcb(&other);
    lwpval(0, 0, 0);
    protect(place);
    llwpcb(cb);
    report(one_fault(place, 0) && slwpcb() == cb &&
           cb->event[0].interval == 0 && cb->event[0].counter == 3 &&
           other.event[0].counter == 8,
           "LLWPCB, new %s: one fault, then active", place->name);

    prepare(place->ring_at, place->cb_at, LWP_FLAG_VAL | LWP_FLAG_INT);
    cb->event[0].interval = -1;
    llwpcb(&other);
    protect(place);
    catch(SIGSEGV, on_fault);
    report(faults(llwpcb(cb)) == SIGSEGV && slwpcb() == NULL,
           "LLWPCB, new %s: given up, LWP is disabled", place->name);
    catch(SIGSEGV, repair);
    unprotect();
    report(cb->flags == (LWP_FLAG_VAL | LWP_FLAG_INT) &&
           cb->event[0].interval == -1, "and the new one untouched");
}

static void test_two_faults(void)
{
    prepare(STRADDLE_RING, STRADDLE_CB, LWP_FLAG_VAL);
    llwpcb(cb);
    mprotect(ring_pages, 2 * PAGE, PROT_NONE);
    mprotect(cb_pages, 2 * PAGE, PROT_NONE);
    lwpval(1, 2, 3);
    report(seen.faults == 4 && seen.clean && slwpcb() == cb &&
           cb->head == 32 && cb->event[0].counter == 7 &&
           record_is(ring, LWP_VAL, 3, 2, lwp_ip, 1) &&
           bytes_are(ring + 1, 0, 1024 - 32),
           "everything missing: four faults, one record");
}

static void test_operand(void)
{
    uint32_t *word = (uint32_t *)(data_pages + PAGE - 2);

    memcpy(word, &(uint32_t){ 0xfeedbeef }, 4);
    prepare(0, 0, LWP_FLAG_VAL);
    llwpcb(cb);
    mprotect(data_pages + PAGE, PAGE, PROT_NONE);
    asm volatile("lwpins $3, %0, %%edx" : : "m" (*word), "d" (1)
                 : "memory", "cc");
    report(seen.faults == 1 && slwpcb() == cb && cb->head == 32 &&
           record_is(ring, LWP_INS, 3, 0xfeedbeef, seen.ip[0], 1),
           "LWPINS, operand half missing: one fault, one record");

    prepare(0, 0, LWP_FLAG_VAL);
    llwpcb(cb);
    mprotect(data_pages, PAGE, PROT_NONE);
    asm volatile("lwpval $3, %0, %%edx" : : "m" (*word), "d" (1) : "memory");
    report(seen.faults == 1 && slwpcb() == cb && cb->head == 32 &&
           record_is(ring, LWP_VAL, 3, 0xfeedbeef, seen.ip[0], 1) &&
           cb->event[0].counter == 7,
           "LWPVAL, operand half missing: one fault, one record");
}

/* The random bits of an interval are drawn anew after a fault. */
static void test_random(void)
{
    bool ok = true;

    for (int n = 0; n < 20; n++) {
        prepare(0, 0, LWP_FLAG_VAL);
        cb->size |= 8u << 28;
        cb->event[0].interval = 0x1000;
        llwpcb(cb);
        mprotect(ring_pages, PAGE, PROT_NONE);
        lwpval(0, 0, 0);
        slwpcb();
        ok &= seen.faults == 1 && cb->head == 32 &&
              (cb->event[0].counter & ~0xff) == 0x1000;
    }
    report(ok, "a random interval is in range after a fault");
}

/* Rings in pages of code: the function that stores, and its neighbours. */
static void test_code(void)
{
    static const uint8_t code[] = {
#if TEST_64BIT
        0x8f, 0xea, 0xc0, 0x12, 0xc0, 0x34, 0x12, 0, 0, /* lwpins rdi, eax */
#else
        0x8f, 0xea, 0x40, 0x12, 0xc0, 0x34, 0x12, 0, 0, /* lwpins edi, eax */
#endif
        0xb8, 0x2a, 0x00, 0x00, 0x00,                   /* mov eax, 42 */
        0xc3,
    };
    static const struct {
        const char *name;
        int ring_at, cb_at, first, second;
    } table[] = {
        { "code before the ring", 512, -1, 0, 16 },
        { "code after the ring", 0, -1, 1024, 2048 },
        { "code on both pages of a record", STRADDLE_RING, -1, 0, 8000 },
        { "code with the LWPCB", -1, 256, 0, 1024 },
        { "code on both pages of the LWPCB", -1, STRADDLE_CB, 0, 8000 },
        { "code with ring and LWPCB", 1024, 3072, 0, 4000 },
    };
    uint8_t *pages = map_pages(2, RW | PROT_EXEC);

    for (int i = 0; i < ARRAY_SIZE(table); i++) {
        uint8_t *fn[2] = { pages + table[i].first, pages + table[i].second };
        bool ok = true;

        prepare(0, 0, 0);
        memset(pages, 0, 2 * PAGE);
        memcpy(fn[0], code, sizeof(code));
        memcpy(fn[1], code, sizeof(code));
        if (table[i].ring_at >= 0) {
            ring = (LwpRecord *)(pages + table[i].ring_at);
        }
        if (table[i].cb_at >= 0) {
            cb = (LwpCb *)(pages + table[i].cb_at);
        }
        lwp_init(cb, ring, LWP_MIN_RING, 0);
        llwpcb(cb);
        for (int n = 0; n < 100; n++) {
            unsigned long a = n;

            asm volatile("call *%1" : "+a" (a)
                         : "S" (fn[n & 1]), "D" (n + 1) : "memory", "cc");
            ok &= a == 42 &&
                  record_is(ring + n % 32, LWP_INS, 0x1234, n,
                            (uintptr_t)fn[n & 1], n + 1);
            cb->tail = (n + 1) % 32 * 32;
        }
        report(ok && slwpcb() == cb && cb->head == 100 % 32 * 32 &&
               cb->missed == 0, "%s: 100 records", table[i].name);
        llwpcb(NULL);
    }
}

/* A pending record whose store faults (§7.4 step 3, §8.6) */
static XsaveArea area, in_handler;
static LwpRecord forged = { 199, 1, 2, 3, 4, 5, 0 };
static int loops;

static void __attribute__((noinline)) work(void)
{
    for (int i = 0; i < 1000; i++) {
        asm volatile("incl %0" : "+m" (loops));
    }
}

static void repair_late(int sig, siginfo_t *info, void *uc)
{
    work();
    memset(&in_handler, 0, sizeof(in_handler));
    xsave(&in_handler, LWP_XSTATE);
    work();
    repair(sig, info, uc);
    work();
}

static void make_pending(const Place *place)
{
    prepare(place->ring_at, place->cb_at, LWP_FLAG_VAL);
    llwpcb(cb);
    memset(&area, 0, sizeof(area));
    xsave(&area, LWP_XSTATE);
    area.lwp.saved = forged;
    llwpcb(NULL);
    protect(place);
}

/* XRSTOR, and the address of the next instruction. */
static uintptr_t restore_pending(void)
{
    uintptr_t next;

    asm volatile(LWP_HERE("%0") "xrstor %1\n nop"
                 : "=&r" (next)
                 : "m" (area), "a" (0), "d" (1u << 30) : "memory");
    while (*(uint8_t *)next != 0x90) {
        next++;
    }
    return next;
}

static void check_pending(const Place *place)
{
    uintptr_t next;

    make_pending(place);
    catch(SIGSEGV, repair_late);
    loops = 0;
    next = restore_pending();
    report(one_fault(place, next), "pending record, %s: one fault after XRSTOR",
           place->name);
    report(loops == 3000 && !memcmp(&in_handler.lwp.saved, &forged, 32),
           "the handler runs on and sees the record in the XSAVE image");
    report(!memcmp(ring, &forged, 32) && slwpcb() == cb && cb->head == 32 &&
           bytes_are(ring + 1, 0, 1024 - 32), "the record is stored once");

    make_pending(place);
    catch(SIGSEGV, on_fault);
    loops = 0;
    report(faults(restore_pending()) == SIGSEGV, "pending record, %s: faults",
           place->name);
    work();
    report(loops == 1000, "the program goes on elsewhere");
    unprotect();
    report(bytes_are(ring, 0, 1024), "and nothing is stored");
    report(slwpcb() == cb && cb->head == 32 && !memcmp(ring, &forged, 32),
           "until SLWPCB flushes it");
    slwpcb();
    report(cb->head == 32, "once");

    make_pending(place);
    faults(restore_pending());
    faults(llwpcb(&other));
    unprotect();
    report(slwpcb() == cb && cb->head == 32,
           "a LLWPCB that faults does not lose it");
    catch(SIGSEGV, repair);
}

/* Records that have been stored or missed; SLWPCB would store more. */
static unsigned seen_records(void)
{
    /* volatile: LWP writes there when it likes */
    volatile LwpCb *c = cb;

    return c->head / sizeof(LwpRecord) + c->missed;
}

/* Code that never runs where LWP faults; 4000 to 8000 instructions each time */
static void __attribute__((noinline)) work_elsewhere(int n)
{
    for (; n > 0; n--) {
        for (int i = 0; i < 1000; i++) {
            asm volatile("incl %0" : "+m" (loops));
        }
    }
}

static unsigned seen_before;

static void repair_early(int sig, siginfo_t *info, void *uc)
{
    repair(sig, info, uc);
    work_elsewhere(5);
    seen_before = seen_records();
}

static void leave_late(int sig, siginfo_t *info, void *uc)
{
    work_elsewhere(100);
    on_fault(sig, info, uc);
}

/* Events of retirement need the ring, wherever the program happens to be. */
static void start_retire(const Place *place)
{
    prepare(place->ring_at, place->cb_at, 1u << 2);
    cb->event[1].interval = cb->event[1].counter = 999;
    llwpcb(cb);
    protect(place);
}

static void check_left(const Place *place)
{
    int sig, rounds = 0;
    unsigned n;

    start_retire(place);
    catch(SIGSEGV, repair_early);
    work();
    report(one_fault(place, 0) && seen_before == 0 && seen_records() > 1 &&
           ring[0].event == 2,
           "Instructions Retired, %s: a short handler is left alone",
           place->name);

    start_retire(place);
    catch(SIGSEGV, leave_late);
    sig = faults(work());
    report(sig == SIGSEGV && seen_records() == 0,
           "%s: so is a long one while the page is missing", place->name);
    catch(SIGSEGV, repair);
    seen.faults = 0;
    work_elsewhere(100);
    report(seen.faults == 0 && seen_records() == 0,
           "and the program that it leaves for");
    unprotect();
    while (seen_records() == 0 && rounds++ < 100) {
        work_elsewhere(1);
    }
    report(rounds <= 75 && ring[0].event == 2 && seen.faults == 0,
           "the page comes back: so do the records");
    n = seen_records();
    work_elsewhere(25);
    report(seen_records() - n >= 75, "with as many as ever behind them");
    llwpcb(NULL);
}

static int file;

static void extend(int sig, siginfo_t *info, void *uc)
{
    if (seen.faults++ || ftruncate(file, PAGE) != 0) {
        on_fault(sig, info, uc);
    }
}

/* A page that may be written, but behind the end of its file: SIGBUS. */
static void test_end_of_file(void)
{
    file = memfd_create("ring", 0);
    prepare(0, 0, 1u << 2);
    ring = mmap(NULL, PAGE, RW, MAP_SHARED, file, 0);
    lwp_init(cb, ring, LWP_MIN_RING, 1u << 2);
    cb->event[1].interval = cb->event[1].counter = 1000;
    catch(SIGBUS, extend);
    llwpcb(cb);
    work_elsewhere(1);
    report(seen.faults == 1 && slwpcb() == cb && cb->head >= 2 * 32 &&
           ring[0].event == 2 && ring[1].event == 2,
           "Instructions Retired, ring behind the end of a file: one SIGBUS");
    llwpcb(NULL);
}

int main(void)
{
    ring_pages = map_pages(2, RW);
    cb_pages = map_pages(2, RW);
    data_pages = map_pages(2, RW);
    lwp_init(&other, other_ring, sizeof(other_ring), 0);
    catch(SIGSEGV, repair);
    catch(SIGILL, on_fault);

    for (int i = 0; i < ARRAY_SIZE(ring_places); i++) {
        check_store(&ring_places[i]);
    }
    for (int i = 0; i < ARRAY_SIZE(cb_places); i++) {
        check_store(&cb_places[i]);
        check_flush(&cb_places[i]);
    }
    test_two_faults();
    test_operand();
    test_random();
    test_code();
    for (int i = 0; i < ARRAY_SIZE(ring_places); i++) {
        check_pending(&ring_places[i]);
        check_left(&ring_places[i]);
    }
    test_end_of_file();
    return report_summary();
}
