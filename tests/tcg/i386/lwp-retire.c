/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LWP events of retired instructions: records, filters, clocks, faults. */

#define _GNU_SOURCE
#include "lwp.h"
#include <sys/time.h>

#define RING_SIZE   65536
#define RECORDS     (RING_SIZE / sizeof(LwpRecord))

enum { IRE = 2, BRE, CNH = 5, RNH };

#define FLAG(event)     (1u << (event))
/* Figure 2-4, in the record's flags */
#define PREDICTION      0x6000      /* PRV and PRD: see lwp-predict.c */
#define TKN             0x8000

static LwpCb cb;
static LwpRecord *ring;

#if TEST_64BIT
#define JCXZ "jrcxz"
#else
#define JCXZ "jecxz"
#endif

static void prepare(uint32_t flags, int interval)
{
    memset(ring, 0, RING_SIZE);
    lwp_init(&cb, ring, RING_SIZE, flags);
    for (int i = 0; i < 6; i++) {
        cb.event[i].interval = cb.event[i].counter = interval;
    }
}

static unsigned records(void)
{
    return cb.head / sizeof(LwpRecord);
}

#define profile(code)   lwp_profile(&cb, code)

static void test_every_nth(void)
{
    static const int intervals[] = { 0, 1, 2, 7, 23, 24, 25, 63, 250, 999 };

    for (int i = 0; i < 10; i++) {
        int n = intervals[i];
        uintptr_t nops = LABEL(lwp_nops);
        bool ok = true;

        prepare(FLAG(IRE), n);
        profile("lwp_nops: .fill 2000, 1, 0x90\n");
        for (unsigned k = 0; k < records() && k < RECORDS; k++) {
            uintptr_t ip = nops + k * (n + 1) + n;

            ok &= record_is(&ring[k], IRE, 0, 0, ip, 0);
        }
        report(ok && records() == 2001 / (n + 1) &&
               cb.event[IRE - 1].counter == n - 2001 % (n + 1),
               "interval %d: every instruction that ends one (Figure 2-3)", n);
    }
}

/*
 * The same instructions again and again, with blocks of which one is longer
 * than what is known of the lengths in it, and others that end in the middle.
 */
static void __attribute__((noinline)) run_late(unsigned rounds)
{
    asm volatile("llwpcb %1\n"
                 "lwp_late: nop\n mov $1, %%eax\n add $2, %%eax\n"
                 "jmp 2f\n nop\n"
                 "2: .rept 7\n"
                 "inc %%eax\n lea 0x1234567(" R "ax), %%edx\n"
                 "movl $5, lwp_from\n nopw 0x1234567(" R "ax, " R "ax)\n"
                 ".endr\n"
                 "lwp_late_val: lwpval $1, %%edx, %%edx\n"
                 ".fill 70, 1, 0x90\n call 3f\n nop\n nop\n nop\n"
                 "lwp_late_ins: lwpins $2, %%edx, %%edx\n"
                 ".fill 40, 1, 0x90\n"
                 "push " R "cx\n mov $9, %%ecx\n lea lwp_to, %%edi\n"
                 "rep stosb\n pop " R "cx\n dec %%ecx\n jnz lwp_late\n"
                 "jmp 4f\n"
                 "3: .fill 20, 1, 0x90\n ret\n"
                 "4: xor %%eax, %%eax\n llwpcb " R "ax"
                 : "+c" (rounds) : "r" (&cb)
                 : "eax", "edx", "edi", "memory", "cc");
}

static void test_late(void)
{
    static const int intervals[] = { 5, 9, 30, 63, 64, 100, 999 };
    static uintptr_t ip[RECORDS];
    uintptr_t val = LABEL(lwp_late_val), ins = LABEL(lwp_late_ins);
    unsigned n = 0;

    /* Each instruction of a round has a record. */
    prepare(FLAG(IRE), 0);
    run_late(2);
    for (unsigned k = 0; k < records() && (!n || ring[k].ip != ip[0]); k++) {
        if (ring[k].event == IRE) {
            ip[n++] = ring[k].ip;
        }
    }
    report(n == 176 && ip[0] == LABEL(lwp_late), "%u instructions", n);

    for (int i = 0; i < (int)(sizeof(intervals) / sizeof(intervals[0])); i++) {
        int every = intervals[i] + 1;
        unsigned rounds = every < 20 ? 40 : 200, at = 0;
        bool ok = true;

        prepare(FLAG(IRE) | FLAG(LWP_VAL), intervals[i]);
        cb.event[LWP_VAL - 1].interval = 1000;
        cb.event[LWP_VAL - 1].counter = 3;
        run_late(rounds);
        for (unsigned k = 0; k < rounds * n; k++) {
            uintptr_t here = ip[k % n];

            if ((here == val && k / n == 3) || here == ins) {
                ok &= ring[at].event == (here == ins ? LWP_INS : LWP_VAL) &&
                      ring[at].ip == here;
                at++;
            }
            if (k % every == every - 1u) {
                ok &= record_is(&ring[at++], IRE, 0, 0, here, 0);
            }
        }
        report(ok && at >= records() - 1 && records() < RECORDS,
               "interval %d: the order of records is that of instructions",
               intervals[i]);
    }
}

static void test_loop(void)
{
    uintptr_t loop = LABEL(lwp_loop);
    bool ok = true;
    unsigned total = 1 + 3 * 5000 + 1;

    prepare(FLAG(IRE), 99);
    profile("mov $5000, %%ecx\n"
            "lwp_loop: nop\n dec %%ecx\n jnz lwp_loop\n");
    for (unsigned k = 0; k < records(); k++) {
        static const int offset[] = { 0, 1, TEST_64BIT ? 3 : 2 };
        unsigned nth = k * 100 + 99 - 1;    /* in the loop */

        ok &= ring[k].ip == loop + offset[nth % 3];
    }
    report(ok && records() == total / 100 &&
           cb.event[IRE - 1].counter == 99 - total % 100,
           "records and counter of a loop");
}

static void test_branches(void)
{
    struct {
        uintptr_t ip, target;
        uint16_t flags;
        uint32_t filter;
    } want[] = {
        { LABEL(lwp_b0), LABEL(lwp_b1), TKN, FILTER_NRB },      /* JMP */
        { LABEL(lwp_b1), LABEL(lwp_b2), TKN, FILTER_NCB },      /* JZ */
        { LABEL(lwp_b2), LABEL(lwp_b3), 0, FILTER_NCB },        /* JNZ */
        { LABEL(lwp_b3), LABEL(lwp_f), TKN, FILTER_NRB },       /* CALL */
        { LABEL(lwp_f), LABEL(lwp_b4), TKN, FILTER_NRB },       /* RET */
        { LABEL(lwp_b4), LABEL(lwp_f), TKN, FILTER_NAB },       /* CALL reg */
        { LABEL(lwp_f), LABEL(lwp_b5), TKN, FILTER_NRB },
        { LABEL(lwp_b6), LABEL(lwp_b7), TKN, FILTER_NAB },      /* JMP reg */
        { LABEL(lwp_b7), LABEL(lwp_b8), TKN, FILTER_NCB },      /* JZ +0 */
        { LABEL(lwp_b8), LABEL(lwp_b8n), 0, FILTER_NCB },       /* J(E)CXZ */
        { LABEL(lwp_b9), LABEL(lwp_b9), TKN, FILTER_NCB },      /* LOOP */
        { LABEL(lwp_b9), LABEL(lwp_b10), 0, FILTER_NCB },
        { LABEL(lwp_b10), LABEL(lwp_b10n), 0, FILTER_NCB },     /* LOOPNE */
        { LABEL(lwp_b11), LABEL(lwp_b12), TKN, FILTER_NAB },    /* JMP mem */
        { LABEL(lwp_b13), LABEL(lwp_b14), TKN, FILTER_NRB },    /* RET imm */
    };

    for (int filter = 0; filter < 8; filter++) {
        unsigned n = 0;
        bool ok = true;

        prepare(FLAG(BRE), 0);
        cb.filters = (uint32_t)filter << 27;
        profile("cmp %%eax, %%eax\n" LEA("lwp_f", R "cx")
                "lwp_b0: jmp lwp_b1\n nop\n"
                "lwp_b1: jz lwp_b2\n nop\n"
                "lwp_b2: jnz 1f\n"
                "lwp_b3: call lwp_f\n"
                "lwp_b4: call *" R "cx" "\n"
                "lwp_b5: " LEA("lwp_b7", R "cx")
                "lwp_b6: jmp *" R "cx" "\n"
                "1: nop\n"
                "lwp_b7: jz lwp_b8\n"
                "lwp_b8: " JCXZ " 1b\n"
                "lwp_b8n: mov $2, %%ecx\n"
                "lwp_b9: loop lwp_b9\n"
                "lwp_b10: loopne 1b\n"
                "lwp_b10n: " LEA("lwp_b12", R "cx") "push " R "cx" "\n"
                "lwp_b11: jmp *(" R "sp" ")\n"
                "lwp_f: ret\n"
                "lwp_b12: pop " R "cx" "\n"
                LEA("lwp_b14", R "cx") "push " R "cx" "\n"
                "lwp_b13: ret $0\n"
                "lwp_b14: nop\n");
        for (int i = 0; i < (int)(sizeof(want) / sizeof(want[0])); i++) {
            if (!(cb.filters & want[i].filter)) {
                ring[n].flags &= ~PREDICTION;
                ok &= record_is(&ring[n], BRE, want[i].flags, 0, want[i].ip,
                                want[i].target);
                n++;
            }
        }
        report(ok && n == records(),
               "branches with NRB %d, NCB %d, NAB %d (Table 6-2)",
               filter >> 2, filter >> 1 & 1, filter & 1);
    }
}

/* §1.1 step 2: a waiting event takes the next branch that is not filtered. */
static void test_counter_and_overrun(void)
{
    prepare(FLAG(IRE) | FLAG(BRE), 100);
    cb.event[IRE - 1].counter = 5;      /* the first period is its own */
    cb.event[BRE - 1].counter = -7;     /* taken as 0 */
    cb.event[BRE - 1].interval = -1;
    profile(".rept 120\n nop\n .endr\n"
            "lwp_jump: jmp 1f\n 1: nop\n");
    report(records() == 3 &&
           ring[0].event == IRE && ring[0].ip == LABEL(lwp_jump) - 115 &&
           ring[1].event == IRE && ring[1].ip == LABEL(lwp_jump) - 14 &&
           ring[2].event == BRE && ring[2].ip == LABEL(lwp_jump) &&
           cb.event[BRE - 1].interval == 0,
           "EventCounter starts the first period, EventInterval the others");
}

static void test_simultaneous(void)
{
    uintptr_t jump = LABEL(lwp_same);
    unsigned seen = 0;

    prepare(FLAG(1) | FLAG(IRE) | FLAG(BRE) | FLAG(CNH) | FLAG(RNH), 4);
    profile("nop\n nop\n nop\n nop\n"
            "lwp_same: jmp 1f\n 1:\n");
    for (unsigned i = 0; i < records(); i++) {
        seen |= ring[i].ip == jump ? 1u << ring[i].event : 1;
    }
    /* Its counter had four more branches to go. */
    report(records() == 3 &&
           seen == (FLAG(IRE) | FLAG(CNH) | FLAG(RNH)) &&
           cb.event[BRE - 1].counter == 3,
           "events of one instruction are all stored (section 8.1)");

    prepare(FLAG(1) | FLAG(IRE), 0);
    profile("lwpval $7, %%edx, %%edx\n"
            "lwp_val: lwpins $8, %%edx, %%edx\n nop\n");
    report(records() == 6 && ring[0].event == LWP_VAL &&
           ring[1].event == IRE && ring[1].ip == ring[0].ip &&
           ring[2].event == LWP_INS && ring[2].ip == LABEL(lwp_val) &&
           ring[3].event == IRE && ring[3].ip == ring[2].ip &&
           ring[4].event == IRE && ring[5].event == IRE,
           "LWPVAL and LWPINS are instructions, too (sections 5.3 and 5.4)");
}

/* Counters of a program that is all in one piece of code. */
#define count_of(event_, code) \
    ({ \
        prepare(FLAG(event_), 0x1ffffff); \
        profile(code); \
        0x1ffffff - cb.event[(event_) - 1].counter - 1; \
    })

uint8_t lwp_from[150000], lwp_to[150000];

static void test_counts(void)
{
    unsigned n;

    n = count_of(IRE, "");
    report(n == 0, "LLWPCB does not count");
    n = count_of(IRE, "mov $150000, %%ecx\n lea lwp_from, %%esi\n"
                 "lea lwp_to, %%edi\n rep movsb\n");
    report(n == 4, "REP MOVSB counts once");
    n = count_of(IRE, "xor %%ecx, %%ecx\n rep lodsb\n");
    report(n == 2, "REP with a count of 0 counts, too");
    n = count_of(IRE, "mov $100, %%ecx\n lea lwp_from, %%edi\n"
                 "mov $1, %%al\n repne scasb\n repe scasb\n"
                 "repne cmpsb\n") - 3;
    report(n == 3, "REPE and REPNE count once");
    n = count_of(IRE, "pause\n pushf\n popf\n mov %%ss, %%eax\n"
                 "mov %%eax, %%ss\n nop\n");
    report(n == 6, "PAUSE, POPF and MOV SS count");
    n = count_of(IRE, "mov $-1, %%eax\n mov $-1, %%edx\n"
                 "xor %%ecx, %%ecx\n xgetbv\n");
    report(n == 4, "XGETBV counts");
    n = count_of(BRE, "mov $20000, %%ecx\n 1: jmp 2f\n 2: dec %%ecx\n"
                 "jnz 1b\n pause\n rep lodsb\n") + 1;
    report(n == 40000, "JMP and JNZ are branches, REP is not");
    n = count_of(CNH, ".rept 50\n nop\n .endr\n");
    report(n == 50, "one clock per instruction");
    n = count_of(RNH, ".rept 50\n nop\n .endr\n");
    report(n == 50, "one reference clock per clock");
}

/* An XRSTOR is not part of the session that it ends, nor of the next one. */
static void test_xrstor(void)
{
    static XsaveArea area;
    uint32_t mask = (uint32_t)LWP_XSTATE;
    unsigned n;

    prepare(FLAG(IRE), 1000);
    llwpcb(&cb);
    xrstor(&area, LWP_XSTATE);
    report(slwpcb() == NULL, "XRSTOR has disabled LWP");
    n = count_of(IRE, "lwpins $1, %%edx, %%edx\n nop\n");
    report(n == 2, "the next session counts everything");

    prepare(FLAG(IRE), 1000);
    asm volatile("llwpcb %1\n nop\n xsave %2\n nop\n nop\n xrstor %2\n"
                 "nop\n xor %%eax, %%eax\n llwpcb " R "ax"
                 : "+a" (mask) : "r" (&cb), "m" (area),
                 "d" ((uint32_t)(LWP_XSTATE >> 32)) : "memory", "cc");
    report(cb.event[IRE - 1].counter == 1000 - 1 - 2,
           "XRSTOR goes back to what XSAVE saw, and does not count itself");
}

/* Nor does it matter what was counted before, if anything. */
static void test_xrstor_from(const char *name, uint32_t flags)
{
    static XsaveArea area;
    static LwpCb other;
    uint32_t mask = (uint32_t)LWP_XSTATE;

    prepare(FLAG(IRE), 1000);
    llwpcb(&cb);
    xsave(&area, LWP_XSTATE);
    lwp_init(&other, ring, RING_SIZE, flags);
    other.event[IRE - 1].counter = 1000;
    asm volatile("llwpcb %1\n nop\n xrstor %2\n"
                 "nop\n nop\n nop\n slwpcb " R "ax\n nop\n"
                 "xor %%eax, %%eax\n llwpcb " R "ax"
                 : "+a" (mask) : "r" (flags ? &other : NULL), "m" (area),
                 "d" ((uint32_t)(LWP_XSTATE >> 32)) : "memory", "cc");
    report((int)area.lwp.counter[IRE - 1] - cb.event[IRE - 1].counter == 6,
           "%s before XRSTOR: all behind it counts", name);
}

/* Table 6-2: BaseIP and LimitIP are the starts of instructions. */
static void test_ip_filter(void)
{
    uintptr_t first = LABEL(lwp_range), last = LABEL(lwp_range_last);
    static const struct {
        int from, to;
        unsigned inside, outside;
    } t[] = {
        /* relative to @first and @last; 300 rounds of 13 instructions */
        { 0, 0, 300 * 5, 300 * 8 },
        { 0, -1, 300 * 4, 300 * 9 },
        { 1, 0, 300 * 4, 300 * 9 },
        { -1, 1, 300 * 7, 300 * 6 },
        { -2, 1, 300 * 8, 300 * 5 },
    };

    for (int i = 0; i < (int)(sizeof(t) / sizeof(t[0])); i++) {
        for (int invert = 0; invert < 2; invert++) {
            unsigned want = invert ? t[i].outside + 2 : t[i].inside;
            bool ok = true;

            prepare(FLAG(IRE) | FLAG(1), 9);
            cb.filters = FILTER_IPF | (invert ? FILTER_IPI : 0);
            cb.base_ip = first + t[i].from;
            cb.limit_ip = last + t[i].to;
            profile("mov $300, %%ecx\n"
                    "1: nop\n nop\n jmp 2f\n 2: nop\n nop\n"
                    ""
                    "lwp_range: nop\n nop\n jmp 3f\n 3: nop\n"
                    ""
                    "lwp_range_last: nop\n"
                    "nop\n dec %%ecx\n jnz 1b\n");
            for (unsigned k = 0; k < records() && k < RECORDS; k++) {
                bool inside = ring[k].ip >= cb.base_ip &&
                              ring[k].ip <= cb.limit_ip;

                ok &= inside != invert;
            }
            report(ok && records() == want / 10 &&
                   cb.event[IRE - 1].counter == 9 - want % 10,
                   "%s %+d to %+d: %u instructions",
                   invert ? "outside" : "inside", t[i].from, t[i].to, want);
        }
    }

    prepare(FLAG(IRE) | FLAG(1), 0);
    cb.filters = FILTER_IPF;
    cb.base_ip = cb.limit_ip = LABEL(lwp_val_in);
    profile("lwpval $1, %%edx, %%edx\n"
            "lwp_val_in: lwpval $2, %%edx, %%edx\n"
            "lwpval $3, %%edx, %%edx\n lwpins $4, %%edx, %%edx\n");
    report(records() == 3 && ring[0].event == LWP_VAL && ring[0].flags == 2 &&
           ring[1].event == IRE && ring[2].event == LWP_INS,
           "the filter applies to LWPVAL and not to LWPINS");
}

/* Each random period is from the interval's neighbourhood (Table 6-1). */
static void test_random(void)
{
    unsigned min = ~0u, max = 0, distinct = 0;
    uint32_t seen = 0;

    prepare(FLAG(IRE), 64);
    cb.size |= 4u << 28;
    profile("lwp_rnd: .fill 30000, 1, 0x90\n");
    for (unsigned k = 1; k < records(); k++) {
        unsigned period = ring[k].ip - ring[k - 1].ip;

        min = period < min ? period : min;
        max = period > max ? period : max;
        seen |= 1u << (period & 15);
    }
    for (; seen; seen &= seen - 1) {
        distinct++;
    }
    report(min == 65 && max == 80 && distinct == 16,
           "Random bits replace the low bits of the interval");
}

/*
 * A missing ring page: SIGSEGV with its address, right behind the instruction;
 * nothing is lost and nothing is there twice.
 */
static unsigned segvs;
static uintptr_t segv_addr, segv_ip;

static void on_segv(int sig, siginfo_t *info, void *uc)
{
    segvs++;
    segv_addr = (uintptr_t)info->si_addr;
    segv_ip = UC_IP((ucontext_t *)uc);
    /* The handler is profiled, too, and is not in the way of itself. */
    mprotect(ring, RING_SIZE, PROT_READ | PROT_WRITE);
}

static void test_missing_page(void)
{
    static const int intervals[] = { 0, 10, 700 };

    catch(SIGSEGV, on_segv);
    for (int i = 0; i < 3; i++) {
        int n = intervals[i];
        unsigned own[7] = { 0 };
        uint64_t next = 0;
        bool ok = true;

        prepare(FLAG(IRE) | FLAG(CNH), n);
        segvs = 0;
        mprotect(ring, RING_SIZE, PROT_NONE);
        profile("lwp_missing: .fill 900, 1, 0x90\n");
        ok &= segvs == 1 && segv_addr == (uintptr_t)ring &&
              segv_ip == LABEL(lwp_missing) + n + 1;
        ok &= record_is(&ring[0], IRE, 0, 0, LABEL(lwp_missing) + n, 0);
        ok &= record_is(&ring[1], CNH, 0, 0, LABEL(lwp_missing) + n, 0);
        for (unsigned k = 0; k < records(); k++) {
            uint64_t offset = ring[k].ip - LABEL(lwp_missing);

            if (offset < 900) {
                own[ring[k].event]++;
                ok &= offset >= next;
                next = offset;
            }
        }
        if (n == 0) {
            ok &= own[IRE] == 900 && own[CNH] == 900;
        }
        report(ok, "interval %d: SIGSEGV behind instruction %d, for the ring",
               n, n + 1);
    }
}

/* Profile @before, mprotect() of the ring to nothing, and @behind. */
#if TEST_64BIT
#define PROTECT_RING(before, behind) \
    asm volatile("llwpcb %0\n" before "mov $10, %%eax\n syscall\n" behind \
                 "xor %%eax, %%eax\n llwpcb %%rax" \
                 : : "r" (&cb), "D" (ring), "S" (RING_SIZE), "d" (PROT_NONE) \
                 : "rax", "rcx", "r11", "memory", "cc")
#else
#define PROTECT_RING(before, behind) \
    asm volatile("llwpcb %0\n" before "mov $125, %%eax\n int $0x80\n" behind \
                 "xor %%eax, %%eax\n llwpcb %%eax" \
                 : : "D" (&cb), "b" (ring), "c" (RING_SIZE), "d" (PROT_NONE) \
                 : "eax", "memory", "cc")
#endif

/*
 * The same for a page that is missing behind others.  When it is next, blocks
 * do not run whole with what is due in them.
 */
static void prepare_page(int interval, unsigned head, unsigned page)
{
    catch(SIGSEGV, on_segv);
    prepare(FLAG(IRE), interval);
    cb.head = head;
    cb.tail = RING_SIZE / 2;
    segvs = 0;
    mprotect(ring + page * PAGE / sizeof(*ring), PAGE, PROT_NONE);
}

static void report_page(const char *what, unsigned head, uintptr_t ip)
{
    report(segvs == 1 && segv_ip == ip &&
           segv_addr == (uintptr_t)ring + head &&
           ring[head / sizeof(*ring)].event == IRE &&
           ring[head / sizeof(*ring)].ip == ip - 1,
           "%s: SIGSEGV right behind the instruction, not its block", what);
}

/* 90 blocks of 10 instructions, 11 bytes */
static void __attribute__((noinline)) run_page(void)
{
    profile("lwp_page: .rept 90\n .fill 9, 1, 0x90\n jmp 1f\n 1:\n .endr\n");
}

static void test_missing_next_page(void)
{
    static const int intervals[] = { 5, 30, 98 };

    for (int i = 0; i < 3; i++) {
        unsigned due = 4 * (intervals[i] + 1);
        uintptr_t ip = LABEL(lwp_page) + due / 10 * 11 + due % 10;

        prepare_page(intervals[i], PAGE - 96, 1);
        run_page();
        report_page("next page", PAGE, ip);
        prepare_page(intervals[i], RING_SIZE - 96, 0);
        run_page();
        report_page("first page", 0, ip);
    }

    prepare_page(69, PAGE - 96, 1);
    profile(".fill 80, 1, 0x90\n"
            "lwpins $1, %%edx, %%edx\n lwpins $1, %%edx, %%edx\n"
            ".fill 50, 1, 0x90\n jmp lwp_page_ins\n"
            "lwp_page_ins: .fill 100, 1, 0x90\n");
    report_page("LWPINS before", PAGE, LABEL(lwp_page_ins) + 140 - 133);

    prepare_page(69, PAGE, 2);
    PROTECT_RING(".fill 80, 1, 0x90\n",
                 ".fill 50, 1, 0x90\n jmp lwp_page_call\n"
                 "lwp_page_call: .fill 100, 1, 0x90\n");
    report_page("mprotect() before", PAGE + 32,
                LABEL(lwp_page_call) + 140 - 132);
}

/* A system call sees all records of what has retired before. */
static void test_system_call(void)
{
    uintptr_t nops = LABEL(lwp_before_call);

    catch(SIGSEGV, on_segv);
    segvs = 0;
    prepare(FLAG(IRE), 99);
    PROTECT_RING("lwp_before_call: .fill 250, 1, 0x90\n", "");
    report(segvs == 0, "mprotect() takes away a ring that is complete");
    mprotect(ring, RING_SIZE, PROT_READ | PROT_WRITE);
    report(records() == 2 && ring[0].ip == nops + 99 &&
           ring[1].ip == nops + 199, "it had both records");
}

/* Asynchronous signals, with handlers that the filter leaves out */
static volatile unsigned alarms;    /* volatile: changes behind our back */

static void on_alarm(int sig, siginfo_t *info, void *uc)
{
    alarms++;
    asm volatile(".fill 300, 1, 0x90");
}

static void test_alarms(void)
{
    struct itimerval every = { { 0, 200 }, { 0, 200 } }, never = { 0 };
    enum { ROUNDS = 2000000 };
    unsigned rounds = ROUNDS;

    catch(SIGALRM, on_alarm);
    prepare(FLAG(IRE), 45);
    cb.filters = FILTER_IPF;
    cb.base_ip = LABEL(lwp_alarmed);
    cb.limit_ip = LABEL(lwp_alarmed_end) - 1;
    alarms = 0;
    setitimer(ITIMER_REAL, &every, NULL);
    asm volatile("llwpcb %1\n"
                 "lwp_alarmed: nop\n nop\n nop\n nop\n nop\n nop\n"
                 "dec %%ecx\n jnz lwp_alarmed\n lwp_alarmed_end: nop\n"
                 "xor %%eax, %%eax\n llwpcb " R "ax"
                 : "+c" (rounds) : "r" (&cb) : "eax", "memory", "cc");
    setitimer(ITIMER_REAL, &never, NULL);
    report((cb.missed + records()) * 46 + 45 - cb.event[IRE - 1].counter ==
           ROUNDS * 8u && alarms > 0,
           "%u signals make no difference", alarms);
}

/* Branches of a handler, while the branch counter has run out */
static void test_faulting_block(void)
{
    catch(SIGSEGV, on_segv);
    prepare(FLAG(BRE), 0);
    segvs = 0;
    mprotect(ring + PAGE / sizeof(*ring), PAGE, PROT_NONE);
    asm volatile("llwpcb %0\n jmp 1f\n 1: nop\n incl (%1)\n"
                 ".fill 30, 1, 0x90\n pause\n"
                 "xor %%eax, %%eax\n llwpcb " R "ax"
                 : : "r" (&cb), "r" ((char *)ring + PAGE)
                 : "eax", "memory", "cc");
    report(segvs == 1 && cb.event[BRE - 1].counter == 0,
           "every branch of the handler has a record");
}

int main(void)
{
    ring = map_pages(RING_SIZE / PAGE, PROT_READ | PROT_WRITE);
    test_every_nth();
    test_late();
    test_loop();
    test_branches();
    test_counter_and_overrun();
    test_simultaneous();
    test_counts();
    test_xrstor();
    test_xrstor_from("LWP disabled", 0);
    test_xrstor_from("LwpVAL", LWP_FLAG_VAL);
    test_xrstor_from("LwpIRE", FLAG(IRE));
    test_ip_filter();
    test_random();
    test_missing_page();
    test_missing_next_page();
    test_system_call();
    test_alarms();
    test_faulting_block();
    return report_summary();
}
