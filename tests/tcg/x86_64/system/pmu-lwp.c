/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LWP and counters at once.  Programs that LWP counts use RDPMC while no
 * counter runs: what RDPMC reports to LWP is what has retired, also if it
 * raises #GP itself or is followed by another exception.  Both agree on which
 * branches are mispredicted and which loads miss: there is one predictor, and
 * one model of caches.  And counters take no notice of LWP where code enters
 * and leaves the kernel.
 *
 * If there is another processor, it interrupts this one.
 */

#include "pmu-trap.h"
#include "pmu-kick.h"
#include "lwp-kernel.h"

enum { IRE = 2, BRE = 3, DME = 4, FAR_AWAY = 1 << 24 };

#define RING_SIZE           (2 * PAGE)
#define MISPREDICTED        0x00c5
#define PRD                 0x4000
#define MSR_PEBS_ENABLE     0x3f1
#define MSR_LOAD_LATENCY    0x3f6
#define MSR_DS_AREA         0x600

CODE(rdpmc_bad, "nop\n nop\n nop\n rdpmc\n nop\n nop")
CODE(code_ud, "nop\n nop\n nop\n ud2\n nop\n nop")
CODE(rdpmc_good, "nop\n nop\n rdpmc\n nop\n nop\n ud2\n nop\n nop")
CODE(code_nop, "nop\n nop\n nop\n nop\n nop\n ud2\n nop\n nop")

/* What LWP has counted when @code has ended in @vector */
static int counted(void (*code)(void), uint32_t ecx, unsigned vector)
{
    const int interval = 100000;

    prepare(1u << IRE);
    cb->event[IRE - 1].interval = cb->event[IRE - 1].counter = interval;
    at_cpl(3, llwpcb(user_cb));
    for (int i = 0; i < 5; i++) {
        set_up(USER_CODE64, (uintptr_t)code);
        regs.rcx = ecx;
        if (run() != vector) {
            return -1;
        }
    }
    slwpcb();
    return interval - cb->event[IRE - 1].counter;
}

/*
 * 30 rounds of up to seven branches of all kinds: three by pseudo-random bits,
 * two of which are conditional, and the other one is an indirect jump.
 */
CODE(code_branches,
     "llwpcb %rax\n mov $30, %ecx\n"
     "1: imul $1664525, %ebx\n add $1013904223, %ebx\n js 2f\n nop\n"
     "2: bt $30, %ebx\n jnc 3f\n call 7f\n"
     "3: mov %ebx, %eax\n shr $28, %eax\n and $2, %eax\n"
     "lea 4f(%rip), %rdx\n add %rax, %rdx\n jmp *%rdx\n"
     "4: xchg %ax, %ax\n"
     "5: lea 7f(%rip), %rdx\n test $15, %cl\n jnz 6f\n call *%rdx\n"
     "6: dec %ecx\n jnz 1b\n jmp 8f\n"
     "7: ret\n 8:")

/* Run that; returns how many of its branches a counter says are mispredicted */
static unsigned mispredicted(uint32_t filters, int interval)
{
    static uint32_t seed = 1;

    prepare(1u << BRE);
    cb->size = RING_SIZE;
    cb->filters = filters;
    cb->event[BRE - 1].interval = cb->event[BRE - 1].counter = interval;
    wrmsr(MSR_EVTSEL(0), MISPREDICTED | EVTSEL_USR | EVTSEL_EN);
    wrmsr(MSR_PMC(0), 0);
    wrmsr(MSR_GLOBAL_CTRL, 1);
    set_up(USER_CODE64, (uintptr_t)code_branches);
    regs.rax = (uintptr_t)user_cb;
    regs.rbx = seed;
    run();
    seed = regs.rbx;
    wrmsr(MSR_GLOBAL_CTRL, 0);
    slwpcb();
    return rdmsr(MSR_PMC(0));
}

static void test_predictions(void)
{
    const int interval = 100000;

    for (int run = 0; run < 4; run++) {
        unsigned counted = mispredicted(0, 0), wrong = 0, n;

        n = cb->head / sizeof(LwpRecord);
        for (unsigned i = 0; i < n; i++) {
            wrong += !(ring[i].flags & PRD);
        }
        report(n > 120 && !cb->missed && wrong && wrong == counted,
               "of %u branches, LWP sees %u mispredicted, a counter %u", n,
               wrong, counted);

        counted = mispredicted(FILTER_NPB, 0);
        n = cb->head / sizeof(LwpRecord);
        report(n && n == counted,
               "that are mispredicted: LWP records %u, a counter has %u", n,
               counted);

        counted = mispredicted(FILTER_NPB, interval);
        n = interval - cb->event[BRE - 1].counter;
        report(n && n == counted,
               "that are mispredicted: LWP counts %u, a counter %u", n,
               counted);
    }
}

/* Lines that L1D has no more when they are loaded again, and LWP's records */
enum { LINES = 2000, WALKS = 32 };
uint8_t lines[LINES * 64] __attribute__((aligned(64)));
static LwpRecord __attribute__((aligned(PAGE)))
    misses_of_lwp[LINES * WALKS + 1000];
static LwpCb cb_of_lwp __attribute__((aligned(64)));

CODE(walk, "mov $32, %ecx\n 2: lea lines(%rip), %rsi\n mov $2000, %edx\n"
           "1: mov (%rsi), %rax\n add $64, %rsi\n dec %edx\n jnz 1b\n"
           "dec %ecx\n jnz 2b")

static bool is_in_lwp(uint64_t ip, uint64_t addr, unsigned records)
{
    for (unsigned i = 0; i < records; i++) {
        if (misses_of_lwp[i].ip == ip && misses_of_lwp[i].data2 == addr) {
            return true;
        }
    }
    return false;
}

/* A record of PEBS, as Skylake's are, and the part of its area for them */
typedef struct Sample {
    uint64_t others[19], addr, source, latency, ip, tsx, tsc;
} Sample;

_Static_assert(sizeof(Sample) == 200, "record of PEBS");

static struct {
    uint64_t bts[4];
    Sample *base, *index, *maximum, *threshold;
    uint64_t reset[7];
} area;
static Sample samples[120];

static void test_latency(void)
{
    enum { N = 3, EVENT = 0x01cd, L1 = 1 };
    unsigned records, stored, found = 0;

    wrmsr(MSR_LWP_CBADDR, 0);
    lwp_init(&cb_of_lwp, misses_of_lwp, sizeof(misses_of_lwp), 1u << DME);
    at_cpl(3, llwpcb(&cb_of_lwp));
    area.base = area.index = samples;
    area.maximum = area.threshold = samples + ARRAY_SIZE(samples);
    area.reset[N] = -1ull;
    wrmsr(MSR_DS_AREA, (uintptr_t)&area);
    wrmsr(MSR_LOAD_LATENCY, 3);
    wrmsr(MSR_EVTSEL(N), EVENT | EVTSEL_USR | EVTSEL_EN);
    wrmsr(MSR_PMC(N), -1ull);
    set_up(USER_CODE64, (uintptr_t)walk);
    wrmsr(MSR_PEBS_ENABLE, 1ull << (32 + N) | 1u << N);
    wrmsr(MSR_GLOBAL_CTRL, 1u << N);
    run();
    wrmsr(MSR_GLOBAL_CTRL, 0);
    wrmsr(MSR_PEBS_ENABLE, 0);
    wrmsr(MSR_EVTSEL(N), 0);
    slwpcb();
    records = cb_of_lwp.head / sizeof(LwpRecord);
    stored = area.index - area.base;
    for (unsigned i = 0; i < stored; i++) {
        found += samples[i].source != L1 &&
                 is_in_lwp(samples[i].ip, samples[i].addr, records);
    }
    report(records >= LINES * WALKS && found > 10 && found == stored,
           "%u samples of %u misses that LWP knows", found, records);
    wrmsr(MSR_LWP_CBADDR, 0);
    wrmsr(MSR_GLOBAL_STATUS_RESET, rdmsr(MSR_GLOBAL_STATUS));
}

#define FLAG_IRE    (1u << IRE)
#define FLAG_BRE    (1u << BRE)

static const struct {
    uint32_t flags, filters;
} lwps[] = {
    { FLAG_IRE },
    { FLAG_IRE | FLAG_BRE },
    { FLAG_BRE, FILTER_NRB },
    { FLAG_IRE, FILTER_IPF },
    { FLAG_BRE, FILTER_NMB },
};

static void start_lwp(int n)
{
    wrmsr(MSR_LWP_CBADDR, 0);
    lwp_init(cb, (void *)RING_ADDR, LWP_MIN_RING, lwps[n].flags);
    cb->filters = lwps[n].filters;
    cb->limit_ip = (uintptr_t)code_step + 2;
    for (int i = 0; i < ARRAY_SIZE(cb->event); i++) {
        cb->event[i].interval = cb->event[i].counter = 5;
    }
    llwpcb(user_cb);
}

static void test_trap(int i, int cpl)
{
    bool ok = true;

    for (int n = 0; n < ARRAY_SIZE(lwps); n++) {
        start_lwp(n);
        ok &= counts_case(i, cpl);
    }
    report(ok, "CPL %d: %s: with LWP, the same counts", cpl, traps[i].name);
    if (can_interrupt(i, cpl)) {
        start_lwp(3);
        ok = interrupts_case(i, cpl, INSNS_EVENT);
        ok &= interrupts_case(i, cpl, BRANCHES_EVENT);
        report(ok, "CPL %d: %s: with LWP, the same if any of them interrupts",
               cpl, traps[i].name);
    }
}

static void test_traps(void)
{
    init_entries();
    start_lwp(0);
    report(slwpcb() == user_cb, "LWP is enabled beside the counters");
    for_each_trap(test_trap);
}

/* The LWPCB is at 40002000h. */
CODE(loop_branches, "mov $0x40002000, %eax\n llwpcb %rax\n"
     "1: dec %ecx\n jnz 1b\n jmp 1b")

static void stop_lwp(void)
{
    slwpcb();
    at_cpl(3, llwpcb(NULL));
}

/* What LWP counts in this loop does not use up its interval. */
static void test_observed(void)
{
    start_ap64(1, ap_stack + sizeof(ap_stack));
    prepare(1u << BRE);
    cb->size = RING_SIZE;
    cb->filters = FILTER_NPB;
    cb->event[BRE - 1].interval = cb->event[BRE - 1].counter = FAR_AWAY;
    test_kicks("branches that are observed", loop_branches, stop_lwp);
}

int main(void)
{
    int bad, ud, good, nop;

    kernel_init();
    lwp_make_available();
    wrmsr(MSR_GLOBAL_CTRL, 0);
    write_cr4(read_cr4() | CR4_PCE);
    bad = counted(rdpmc_bad, -1, GP);
    ud = counted(code_ud, 0, UD);
    report(bad > 0 && bad == ud, "RDPMC that is #GP: LWP counts %d, as %d",
           bad, ud);
    good = counted(rdpmc_good, 0, UD);
    nop = counted(code_nop, 0, UD);
    report(good > 0 && good == nop, "RDPMC before #UD: LWP counts %d, as %d",
           good, nop);
    test_predictions();
    apic_init(LVT_MASKED);
    test_latency();
    test_traps();
    if ((cpuid_reg(1, 0, 1) >> 16 & 0xff) > 1) {
        test_observed();
    }
    return report_summary();
}
