/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LWP branch prediction: PRV and PRD (Figure 2-4), NMB and NPB (Table 6-2). */

#define _GNU_SOURCE
#include "lwp.h"

#define RING_SIZE   (2048 * 1024)
#define RECORDS     (RING_SIZE / sizeof(LwpRecord))

enum { IRE = 2, BRE = 3 };

#define PRV         0x2000
#define PRD         0x4000
#define TKN         0x8000

static LwpCb cb;
static LwpRecord *ring;

static void prepare(uint32_t filters, int interval)
{
    memset(ring, 0, RING_SIZE);
    lwp_init(&cb, ring, RING_SIZE, 1u << BRE);
    cb.event[BRE - 1].interval = cb.event[BRE - 1].counter = interval;
    cb.filters = filters;
}

static unsigned records(void)
{
    return cb.head / sizeof(LwpRecord);
}

#define profile(code)   lwp_profile(&cb, code)

/*
 * What predictor.h says, as plainly as can be: the last two outcomes of a
 * branch, and for each such pair whether it is mostly taken then.  It sees all
 * that runs while BRE is enabled in this process.
 */
static struct {
    bool last, before;
    int taken[2][2];        /* 0 to 3, by before and last */
    bool known;
} branches[4096];           /* by the offset in their page */

/* Whether the branch is predicted; it is learnt. */
static bool predict(uintptr_t ip, bool taken)
{
    typeof(&branches[0]) b = &branches[ip % 4096];
    int *n = &b->taken[b->before][b->last];
    bool predicted;

    if (!b->known) {
        b->known = true;
        for (int last = 0; last < 4; last++) {
            b->taken[last / 2][last % 2] = 1 + last % 2;
        }
    }
    predicted = *n >= 2;
    *n += taken ? *n < 3 : -(*n > 0);
    b->before = b->last;
    b->last = taken;
    return predicted == taken;
}

#define PATTERN_MAX 20000
#define pattern lwp_pattern
uint8_t pattern[PATTERN_MAX];
uint32_t lwp_arg;           /* of the code that is profiled */

/* One branch that does what the pattern says, and one that makes the loop. */
static void run_pattern(unsigned n)
{
    lwp_arg = n;
    profile("lea lwp_pattern, %%esi\n mov lwp_arg, %%ecx\n"
            "1: cmpb $0, (" R "si" ")\n"
            "lwp_if: jne 2f\n nop\n"
            "2: inc " R "si" "\n dec %%ecx\n"
            "lwp_loop: jnz 1b\n");
}

/*
 * All branches of a run, against the records of every (@interval + 1)th; the
 * rest was learnt without anybody looking.  Returns how many of the second
 * half of the pattern's branches were mispredicted.
 */
static unsigned check_pattern(const char *name, unsigned n, int interval)
{
    unsigned missed = 0, branch = 0, r = 0;
    bool ok = true;

    prepare(0, interval);
    run_pattern(n);
    for (unsigned i = 0; i < n; i++) {
        for (int last = 0; last < 2; last++) {
            bool taken = last ? i < n - 1 : pattern[i];
            uintptr_t ip = last ? LABEL(lwp_loop) : LABEL(lwp_if);
            bool correct = predict(ip, taken);

            missed += !last && i >= n / 2 && !correct;
            if (branch++ % (interval + 1) == (unsigned)interval) {
                ok &= r < RECORDS && ring[r].ip == ip &&
                      ring[r].flags == (PRV | (correct ? PRD : 0) |
                                        (taken ? TKN : 0));
                r++;
            }
        }
    }
    report(ok && records() == r, "%s, interval %d: every prediction", name,
           interval);
    return missed;
}

static void fill_randomly(unsigned percent)
{
    static uint32_t x = 1;

    for (int i = 0; i < PATTERN_MAX; i++) {
        x = x * 1664525 + 1013904223;
        pattern[i] = (x >> 16) * 100 >> 16 < percent;
    }
}

static void test_patterns(void)
{
    static const int intervals[] = { 0, 1, 30, 63, 500 };
    unsigned missed;

    for (int k = 0; k < 5; k++) {
        int interval = intervals[k];

        memset(pattern, 1, PATTERN_MAX);
        missed = check_pattern("always taken", 2000, interval);
        report(missed == 0, "is predicted");
        memset(pattern, 0, PATTERN_MAX);
        missed = check_pattern("never taken", 2000, interval);
        report(missed == 0, "is predicted");
        for (int i = 0; i < PATTERN_MAX; i++) {
            pattern[i] = i & 1;
        }
        missed = check_pattern("every other one taken", 2000, interval);
        report(missed == 0, "is predicted once it is known");
        for (int period = 3; period <= 16; period++) {
            unsigned ends = 0;
            char name[20];

            for (int i = 0; i < PATTERN_MAX; i++) {
                pattern[i] = i % period != period - 1;
                ends += i >= 1000 && i < 2000 && !pattern[i];
            }
            snprintf(name, sizeof(name), "a loop of %d", period);
            missed = check_pattern(name, 2000, interval);
            report(missed == (period > 3 ? ends : 0),
                   "is predicted, but for its end if there are more than two "
                   "rounds");
        }
        fill_randomly(50);
        missed = check_pattern("random", PATTERN_MAX, interval);
        report(missed > PATTERN_MAX / 2 * 45 / 100 &&
               missed < PATTERN_MAX / 2 * 55 / 100,
               "is mispredicted half of the time");
        fill_randomly(90);
        missed = check_pattern("9 of 10 taken", PATTERN_MAX, interval);
        report(missed < PATTERN_MAX / 2 * 15 / 100,
               "is predicted most of the time");
    }
}

/* "Note that direct branches are always predicted correctly" (Table 6-2). */
static void test_direct(void)
{
    bool ok = true;

    prepare(0, 0);
    profile("mov $50, %%ecx\n"
            "1: jmp 2f\n nop\n"
            "2: call 3f\n dec %%ecx\n jnz 1b\n jmp 4f\n"
            "3: ret\n 4:");
    for (unsigned i = 0; i < 50; i++) {
        predict(ring[i * 4 + 3].ip, i < 49);
        ok &= ring[i * 4].flags == (PRV | PRD | TKN) &&
              ring[i * 4 + 1].flags == (PRV | PRD | TKN) &&
              ring[i * 4 + 2].flags == (PRV | PRD | TKN);
    }
    report(ok && records() == 201,
           "JMP, CALL, and RET to the CALL, are predicted");
}

static void test_indirect(void)
{
    uint16_t flags[16];

    for (int alternate = -1; alternate < 2; alternate++) {
        prepare(0, 0);
        lwp_arg = alternate > 0;
        if (alternate < 0) {
            /* Without BRE nothing is learnt, not in a range either. */
            cb.flags = 1u << IRE;
            cb.event[IRE - 1].interval = cb.event[IRE - 1].counter = 1000000;
            cb.filters = FILTER_IPF;
            cb.base_ip = PAGE;
            cb.limit_ip = UINT64_MAX;
        }
        profile("mov $8, %%ecx\n" LEA("lwp_t0", R "si") "xor %%edi, %%edi\n"
                "1: lea (" R "si" ", " R "di" "), " R "ax" "\n"
                "lwp_indirect: jmp *" R "ax" "\n"
                "lwp_t0: nop\n"
                "lwp_t1: xor lwp_arg, %%edi\n dec %%ecx\n jnz 1b\n");
        if (alternate < 0) {
            report(records() == 0, "branches without BRE");
            continue;
        }
        for (int i = 0; i < 8; i++) {
            flags[i] = ring[2 * i].flags;
            predict(ring[2 * i + 1].ip, i < 7);
        }
        if (!alternate) {
            report(!(flags[0] & PRV) && flags[1] == (PRV | PRD | TKN) &&
                   flags[7] == flags[1],
                   "JMP through a register: unknown at first, then predicted");
        } else {
            report(flags[0] == (PRV | PRD | TKN) && flags[1] == (PRV | TKN) &&
                   flags[2] == flags[1] && flags[7] == flags[1],
                   "targets that alternate are mispredicted");
        }
    }
}

/* @n nested calls, all from the same place. */
static void test_returns(void)
{
    static const int depth[] = { 5, 32, 40 };

    for (int k = 0; k < 3; k++) {
        unsigned n = depth[k], correct = 0;

        prepare(0, 0);
        lwp_arg = n;
        profile("mov lwp_arg, %%ecx\n call 1f\n jmp 3f\n"
                "1: dec %%ecx\n jz 2f\n call 1b\n nop\n 2: ret\n 3:");
        for (unsigned i = 0; i < records(); i++) {
            /* JZ is the only other one that has no call or target before. */
            bool ret = ring[i].ip == ring[records() - 2].ip;

            correct += ret && ring[i].flags == (PRV | PRD | TKN);
        }
        for (unsigned i = 0; i < n; i++) {
            predict(ring[1 + 2 * i].ip, i == n - 1);
        }
        /* The deeper ones all return to the same address, the first not. */
        report(records() == 3 * n + 1 && correct == (n <= 32 ? n : n - 1),
               "the return stack is good for 32 of %u calls", n);
    }
}

/* NMB and NPB let complementary branches through (Table 6-2). */
static void test_filters(void)
{
    static const uint32_t filters[] = {
        0, FILTER_NMB, FILTER_NPB, FILTER_NMB | FILTER_NPB,
    };

    for (int interval = 0; interval < 40; interval += 39) {
        for (int f = 0; f < 4; f++) {
            unsigned n = 3000, want = 0, r = 0;
            bool ok = true;

            fill_randomly(50);
            prepare(filters[f], interval);
            run_pattern(n);
            for (unsigned i = 0; i < 2 * n; i++) {
                bool loop = i & 1;
                bool taken = loop ? i < 2 * n - 1 : pattern[i / 2];
                bool correct = predict(loop ? LABEL(lwp_loop) : LABEL(lwp_if),
                                       taken);

                if (filters[f] & (correct ? FILTER_NPB : FILTER_NMB)) {
                    continue;
                }
                if (want++ % (interval + 1) == (unsigned)interval) {
                    ok &= ring[r].flags == (PRV | (correct ? PRD : 0) |
                                            (taken ? TKN : 0));
                    r++;
                }
            }
            report(ok && records() == r,
                   "NMB %d, NPB %d, interval %d: what counts, and what not",
                   f & 1, f >> 1, interval);
        }
    }
}

int main(void)
{
    ring = map_pages(RING_SIZE / PAGE, PROT_READ | PROT_WRITE);
    if (!(cpuid_reg(0x8000001c, 0, 2) & 1u << 28)) {
        report(false, "LwpBranchPrediction (Table 3-1)");
        return report_summary();
    }
    test_patterns();
    test_direct();
    test_indirect();
    test_returns();
    test_filters();
    return report_summary();
}
