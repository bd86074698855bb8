/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LWP and REP string instructions: one instruction (§2.2), however often QEMU
 * starts it again, which it does after every 64 Ki iterations.
 */

#define _GNU_SOURCE
#include "lwp.h"
#include <time.h>

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define RING_SIZE       65536
#define MANY            10000000
#define ROUNDS          300
#define MIB             (1 << 20)

enum { IRE = 2, DME = 4 };

#define FLAG(event)     (1u << (event))

static LwpCb cb;
static LwpRecord *ring;

static uint8_t from[MIB] __attribute__((aligned(PAGE)));
static uint8_t to[MIB] __attribute__((aligned(PAGE)));

static void prepare(uint32_t flags, int interval)
{
    memset(ring, 0, RING_SIZE);
    lwp_init(&cb, ring, RING_SIZE, flags);
    for (int i = 0; i < 6; i++) {
        cb.event[i].interval = cb.event[i].counter = interval;
    }
}

/*
 * A caller and what it calls, on one page, so that their blocks are chained
 * and nobody has a reason to tell EIP on the way.
 */
#define CALLER(name) \
    ".balign 4096\n" \
    "lwp_call_" name ": 1: call lwp_" name "\n dec %ebx\n jnz 1b\n ret\n" \
    "lwp_call_" name "_end:\n" \
    ".balign 64\n" \
    "lwp_" name ":\n"
#define CALLEE(name) \
    "lwp_" name "_end:\n"

asm(".text\n"
    CALLER("stos") "mov $70000, %ecx\n mov %edx, %edi\n rep stosb\n ret\n"
    CALLEE("stos")
    CALLER("stos_slwpcb") "mov $70000, %ecx\n mov %edx, %edi\n rep stosb\n"
    "slwpcb %eax\n ret\n" CALLEE("stos_slwpcb")
    CALLER("twice") "mov $140000, %ecx\n mov %edx, %edi\n rep stosb\n nop\n"
    "mov $70000, %ecx\n mov %edx, %edi\n rep stosb\n nop\n ret\n"
    CALLEE("twice")
    CALLER("scas") "xor %eax, %eax\n mov $70000, %ecx\n mov %edx, %edi\n"
    "repe scasb\n ret\n" CALLEE("scas")
    CALLER("short") "mov $100, %ecx\n mov %edx, %edi\n rep stosb\n ret\n"
    CALLEE("short")
    ".balign 4096\n");

typedef struct Pair {
    const char *name;
    uintptr_t caller, caller_end, callee, callee_end;
    int insns;                  /* of the callee */
} Pair;

#define PAIR(name, insns) \
    { \
        #name, LABEL(lwp_call_##name), LABEL(lwp_call_##name##_end), \
        LABEL(lwp_##name), LABEL(lwp_##name##_end), insns, \
    }

static void run(const Pair *p)
{
    void *start = &cb;

    memset(to, 0, sizeof(to));
    asm volatile("llwpcb %0\n call *%1\n xor %%eax, %%eax\n"
                 "llwpcb " R "ax"
                 : "+a" (start)
                 : "S" (p->caller), "b" (ROUNDS), "d" (to)
                 : "ecx", "edi", "memory", "cc");
}

/* An IP filter that divides the two (Table 6-2) */
static void test_filter(void)
{
    const Pair pairs[] = {
        PAIR(stos, 4), PAIR(stos_slwpcb, 5), PAIR(twice, 9), PAIR(scas, 5),
        PAIR(short, 4),
    };

    for (int i = 0; i < ARRAY_SIZE(pairs); i++) {
        const Pair *p = &pairs[i];

        for (int n = 0; n < 8; n++) {
            bool callee = n & 1, invert = n & 2;
            int interval = n & 4 ? 99 : MANY;
            int in = callee ? p->insns * ROUNDS : 3 * ROUNDS + 1;
            int all = (p->insns + 3) * ROUNDS + 1 + 2;
            int want = invert ? all - in : in, got;
            bool ok = true;

            prepare(FLAG(IRE), interval);
            cb.filters = FILTER_IPF | (invert ? FILTER_IPI : 0);
            cb.base_ip = callee ? p->callee : p->caller;
            cb.limit_ip = callee ? p->callee_end - 1 : p->caller_end - 1;
            run(p);
            got = cb.head / sizeof(LwpRecord) * (interval + 1) +
                  interval - cb.event[IRE - 1].counter;
            for (int k = 0; k < cb.head / sizeof(LwpRecord); k++) {
                bool inside = ring[k].ip >= cb.base_ip &&
                              ring[k].ip <= cb.limit_ip;

                ok &= inside != invert;
            }
            report(ok && got == want,
                   "%s, %s %s, interval %d: %d instructions (%d)", p->name,
                   invert ? "all but" : "only", callee ? "callee" : "caller",
                   interval, want, got);
        }
    }
}

/* The time that the least of three runs takes, in ns */
static uint64_t copy_time(uint32_t flags, int interval)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 3; i++) {
        struct timespec t[2];
        /* Not in the same sets of a cache */
        void *d = to + 640, *s = from;
        unsigned long n = MIB - 640;
        uint64_t ns;

        prepare(flags, interval);
        cb.event[IRE - 1].interval = cb.event[IRE - 1].counter = 10;
        llwpcb(&cb);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t[0]);
        asm volatile("rep movsb" : "+D" (d), "+S" (s), "+c" (n)
                     : : "memory");
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t[1]);
        llwpcb(NULL);
        ns = (t[1].tv_sec - t[0].tv_sec) * 1000000000ll +
             t[1].tv_nsec - t[0].tv_nsec;
        least = ns < least ? ns : least;
    }
    return least;
}

/* An instruction that is long does not get slow when it causes events. */
static void test_time(void)
{
    uint64_t far, near;
    unsigned records;

    memset(from, 1, sizeof(from));
    far = copy_time(FLAG(DME), MANY);
    near = copy_time(FLAG(DME), 100);
    records = cb.head / sizeof(LwpRecord);
    report(records >= MIB / 64 / 101 - 1 && near < 15 * far,
           "%u records do not make REP MOVSB 15 times slower", records);
    near = copy_time(FLAG(IRE) | FLAG(DME), 100);
    report(near < 15 * far, "nor does an instruction that is due soon");
}

int main(void)
{
    ring = map_pages(RING_SIZE / PAGE, PROT_READ | PROT_WRITE);
    test_filter();
    test_time();
    return report_summary();
}
