/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Threads that LWP counts run on a page of code which another one writes to,
 * protects and maps anew: a block may be thrown away by the time that its
 * thread wants another one like it.
 */

#define _GNU_SOURCE
#include "lwp.h"
#include <pthread.h>

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define THREADS         3
#define ROUNDS          2000    /* of each thread, at least */
#define WRITES          100     /* while all of them run, at least */
#define INSNS           (2 + 100 * 24 + 1)      /* of lwp_code */
#define RWX             (PROT_READ | PROT_WRITE | PROT_EXEC)

enum { IRE = 2 };

/* Adds 2100 to EAX; position-independent, like lwp_written. */
asm(".text\n"
    "lwp_code: mov $100, %ecx\n nop\n"
    "1: .rept 21\n inc %eax\n .endr\n jmp 2f\n .byte 0x0f, 0x0b\n"
    "2: dec %ecx\n jnz 1b\n ret\n"
    "lwp_code_end:\n"
    "lwp_written: mov $0, %eax\n nop\n ret\n"
    "lwp_written_end:\n");

typedef struct Runner {
    LwpCb cb;
    LwpRecord ring[32];
    int interval;
    uintptr_t code;
    bool ok;
    uint64_t rounds, insns;
} Runner;

static Runner runners[THREADS];
static uint8_t *pages;
static int running = THREADS;
static uint32_t n;                              /* code written so far */

static void *run(void *arg)
{
    Runner *r = arg;
    uint32_t want = 0, got = 0;

    lwp_init(&r->cb, r->ring, sizeof(r->ring), 1u << IRE);
    r->cb.event[IRE - 1].interval = r->cb.event[IRE - 1].counter = r->interval;
    while (r->rounds < ROUNDS ||
           __atomic_load_n(&n, __ATOMIC_SEQ_CST) < WRITES) {
        uintptr_t ax = got;

        asm volatile("llwpcb %2\n call *%1\n mov %%eax, %%edx\n"
                     "xor %%eax, %%eax\n llwpcb " R "ax\n mov %%edx, %%eax"
                     : "+a" (ax)
                     : "S" (r->code), "D" (&r->cb)
                     : "ecx", "edx", "memory", "cc");
        got = ax;
        want += 2100;
        r->rounds++;
    }
    r->ok = got == want;
    r->insns = (uint64_t)(r->cb.head / 32 + r->cb.missed) * (r->interval + 1) +
               r->interval - r->cb.event[IRE - 1].counter;
    __atomic_fetch_sub(&running, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static unsigned copy(uint8_t *to, uintptr_t start, uintptr_t end)
{
    memcpy(to, (void *)start, end - start);
    return end - start;
}

int main(void)
{
    static const int intervals[THREADS] = { 20, 30, 47 };
    pthread_t thread[THREADS];
    uint8_t *written, *other;
    uint32_t bad = 0;
    unsigned at = 0;

    pages = map_pages(2, RWX);
    other = map_pages(1, RWX);
    for (int i = 0; i < THREADS; i++) {
        runners[i].interval = intervals[i];
        runners[i].code = (uintptr_t)pages + at;
        at += copy(pages + at, LABEL(lwp_code), LABEL(lwp_code_end));
    }
    written = pages + at;
    copy(written, LABEL(lwp_written), LABEL(lwp_written_end));
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&thread[i], NULL, run, &runners[i]);
    }
    while (__atomic_load_n(&running, __ATOMIC_SEQ_CST)) {
        uint32_t (*fn)(void) = (void *)written;

        memcpy(written + 1, &n, 4);
        bad += fn() != n;
        __atomic_fetch_add(&n, 1, __ATOMIC_SEQ_CST);
        switch (n % 8) {
        case 0:
            mprotect(pages, PAGE, PROT_READ | PROT_EXEC);
            mprotect(pages, PAGE, RWX);
            break;
        case 4:
            munmap(other, PAGE);
            mmap(other, PAGE, RWX, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                 -1, 0);
            copy(other, LABEL(lwp_written), LABEL(lwp_written_end));
            fn = (void *)other;
            bad += fn() != 0;
            break;
        }
    }
    report(n >= WRITES && bad == 0,
           "code that is written runs as it was written");
    for (int i = 0; i < THREADS; i++) {
        uint64_t want;

        pthread_join(thread[i], NULL);
        want = runners[i].rounds * (INSNS + 3);
        report(runners[i].ok, "thread %d runs its code", i);
        report(runners[i].insns == want,
               "interval %d: %d instructions (%d)", intervals[i], (int)want,
               (int)runners[i].insns);
    }
    return report_summary();
}
