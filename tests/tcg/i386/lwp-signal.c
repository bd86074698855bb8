/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Signals are delivered in time, whatever LWP counts and however much work a
 * single instruction is.
 *
 * usage: lwp-signal [ROUNDS SECONDS]
 *
 * Without arguments, compare the number of signals in short runs, which a busy
 * machine can bear.  With them, make so many runs of each kind, in turns, and
 * demand 99 % of the signals, and at the 99th percentile gaps that are at most
 * 1.2 times those without LWP.
 */

#define _GNU_SOURCE
#include "lwp.h"
#include <sys/time.h>
#include <time.h>

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define PERIOD_US       5000
#define MAX_SIGNALS     100000
#define MANY            0x1ffffff

enum { IRE = 2, BRE, DME, CNH };

#define FLAG(event)     (1u << (event))

static LwpCb cb;
static LwpRecord ring[32];

/* volatile: changed by the signal handler */
volatile uint32_t lwp_stop;
static double first, last, seconds;
static int signals;
static float gaps[MAX_SIGNALS];

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void on_alarm(int sig, siginfo_t *info, void *uc)
{
    double t = now();

    if (signals < MAX_SIGNALS) {
        gaps[signals++] = t - last;
    }
    last = t;
    if (t - first >= seconds) {
        lwp_stop = 1;
    }
}

static uint8_t buffer[65536];

/* A few instructions, over and over, until the signal handler stops them */
#define LOOP(insn) \
    asm volatile(".balign 256\n 1: mov $65535, %%ecx\n mov %0, " R "di\n" \
                 "mov %0, " R "si\n" insn "\n cmpl $0, lwp_stop\n je 1b" \
                 : : "r" (buffer) : "eax", "ecx", "esi", "edi", "memory", "cc")

static void loop_stos(void)
{
    LOOP("rep stosb");
}

static void loop_cmps(void)
{
    LOOP("repe cmpsb");
}

static void loop_short(void)
{
    LOOP("mov $100, %%ecx\n rep lodsb\n nop");
}

static const struct {
    const char *name;
    void (*loop)(void);
} loops[] = {
    { "REP STOSB", loop_stos },
    { "REPE CMPSB", loop_cmps },
    { "short REPs", loop_short },
};

static const struct {
    const char *name;
    uint32_t flags, filters;
} lwps[] = {
    { "LWP off" },
    { "IRE", FLAG(IRE) },
    { "BRE", FLAG(BRE) },
    { "DME", FLAG(DME) },
    { "IRE, IP filter", FLAG(IRE), FILTER_IPF },
    { "all", FLAG(IRE) | FLAG(BRE) | FLAG(DME) | FLAG(CNH) },
};

typedef struct Result {
    double expected;
    int n;                      /* signals, and the gaps between them */
    float gap[MAX_SIGNALS];
} Result;

static Result results[ARRAY_SIZE(lwps)];

static void run(int loop, int lwp)
{
    struct itimerval timer = { { 0, PERIOD_US }, { 0, PERIOD_US } };
    Result *r = &results[lwp];

    lwp_init(&cb, ring, sizeof(ring), lwps[lwp].flags);
    cb.filters = lwps[lwp].filters;
    cb.limit_ip = UINT64_MAX;
    for (int event = IRE; event <= CNH; event++) {
        cb.event[event - 1].interval = cb.event[event - 1].counter = MANY;
    }
    signals = lwp_stop = 0;
    first = last = now();
    setitimer(ITIMER_REAL, &timer, NULL);
    llwpcb(lwps[lwp].flags ? &cb : NULL);
    loops[loop].loop();
    llwpcb(NULL);
    timer = (struct itimerval) { };
    setitimer(ITIMER_REAL, &timer, NULL);
    r->expected += (last - first) * 1e6 / PERIOD_US;
    for (int i = 0; i < signals && r->n < MAX_SIGNALS; i++) {
        r->gap[r->n++] = gaps[i];
    }
}

/* How many of the signals have come */
static double share(int lwp)
{
    return results[lwp].n / results[lwp].expected;
}

static void test_short(int loop, int lwp)
{
    bool ok = false;

    seconds = 0.25;
    for (int i = 0; i < 4 && !ok; i++) {
        memset(results, 0, sizeof(results));
        run(loop, 0);
        run(loop, lwp);
        ok = share(lwp) >= 0.9 * share(0);
    }
    report(ok, "%s, %s: as many signals as without LWP", loops[loop].name,
           lwps[lwp].name);
    if (!ok) {
        printf("%.0f %% instead of %.0f %%\n", 100 * share(lwp),
               100 * share(0));
    }
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static double percentile99(int lwp)
{
    Result *r = &results[lwp];

    qsort(r->gap, r->n, sizeof(r->gap[0]), compare);
    return r->gap[r->n * 99 / 100];
}

static void test_long(int loop, int rounds)
{
    memset(results, 0, sizeof(results));
    for (int i = 0; i < rounds; i++) {
        for (int lwp = 0; lwp < ARRAY_SIZE(lwps); lwp++) {
            run(loop, lwp);
        }
    }
    for (int lwp = 0; lwp < ARRAY_SIZE(lwps); lwp++) {
        double gap = percentile99(lwp);

        report(share(lwp) >= 0.99 * share(0) && gap <= 1.2 * percentile99(0),
               "%s, %s: %d of %.0f signals, gaps of %.2f ms, at most %.2f ms",
               loops[loop].name, lwps[lwp].name, results[lwp].n,
               results[lwp].expected, 1e3 * gap,
               1e3 * results[lwp].gap[results[lwp].n - 1]);
    }
}

int main(int argc, char **argv)
{
    catch(SIGALRM, on_alarm);
    for (int loop = 0; loop < ARRAY_SIZE(loops); loop++) {
        if (argc == 3) {
            seconds = atof(argv[2]);
            test_long(loop, atoi(argv[1]));
            continue;
        }
        for (int lwp = 1; lwp < ARRAY_SIZE(lwps); lwp++) {
            test_short(loop, lwp);
        }
    }
    return report_summary();
}
