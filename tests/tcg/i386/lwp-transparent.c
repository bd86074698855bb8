/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A profiled program does what it does without LWP. */

#define _GNU_SOURCE
#include "lwp-work.h"
#include <pthread.h>

#define RING_SIZE   4096
#define THREADS     3

typedef struct Profile {
    LwpCb cb;
    LwpRecord ring[RING_SIZE / sizeof(LwpRecord)];
    uint32_t sum;
    pthread_t thread;
} Profile;

static Profile profile[THREADS];
static uint32_t flags, filters;
static int interval;

/*
 * What DCache misses (§2.4) are about: lists, loads of all sizes and
 * alignments, and lines that others write to.
 */
static uint32_t shared[2];

static uint32_t work_memory(void)
{
    enum { SIZE = 20000, STEP = 1009 * sizeof(uint32_t) };
    __attribute__((aligned(64))) uint8_t buf[SIZE + 64], state[512];
    uint32_t sum = 0, at = 0, index[4] = { 0, 50, 7000, 19996 };

    memset(buf, 1, sizeof(buf));
    for (int i = 0; i < SIZE / 4; i++) {
        uint32_t next = (at + STEP) % SIZE;

        memcpy(buf + at, &next, sizeof(next));
        at = next;
    }
    for (int i = 0; i < SIZE / 3; i++) {
        memcpy(&at, buf + at, sizeof(at));
        sum = sum * 31 + at;
    }
    for (int i = 0; i < SIZE - 64; i += 61) {
        uint8_t *p = buf + i;
        uint32_t one = 1;

        asm volatile("lock xadd %0, %1\n lock incl %2"
                     : "+r" (one), "+m" (shared[0]), "+m" (shared[1]));
        memmove(p + 9, p + 5, i % 40);
        asm volatile("incl 3(%1)\n"
                     "movups (%1), %%xmm0\n movups %%xmm0, 20(%1)\n"
                     "fldt (%1)\n fstpt 17(%1)\n"
                     "xor %%eax, %%eax\n xor %%edx, %%edx\n"
                     "lock cmpxchg8b 40(%1)\n add %%eax, %0"
                     : "+S" (sum) : "D" (p), "b" (i), "c" (0)
                     : "eax", "edx", "memory", "cc");
        sum = sum * 31 + p[20];
    }
    asm volatile("fxsave (%1)\n fxrstor (%1)\n"
                 "fnstenv 3(%1)\n fldenv 3(%1)\n"
                 "vmovups %2, %%xmm1\n vpcmpeqb %%xmm2, %%xmm2, %%xmm2\n"
                 "vpgatherdd %%xmm2, (%3, %%xmm1, 1), %%xmm0\n"
                 "vmovups %%xmm0, %0"
                 : "=m" (index) : "r" (state), "m" (index), "r" (buf)
                 : "memory");
    for (int i = 0; i < SIZE; i += 13) {
        sum = sum * 31 + buf[i];
    }
    return sum + index[0] + index[1] * 3 + index[2] * 5 + index[3] * 7;
}

static void start(Profile *p)
{
    lwp_init(&p->cb, p->ring, RING_SIZE, flags);
    p->cb.filters = filters;
    p->cb.base_ip = (uintptr_t)work_integer;
    p->cb.limit_ip = (uintptr_t)work_integer + 100;
    for (int i = 0; i < 6; i++) {
        p->cb.event[i].interval = p->cb.event[i].counter = interval;
    }
    if (flags) {
        llwpcb(&p->cb);
    }
}

static void *run(void *arg)
{
    Profile *p = arg;

    start(p);
    p->sum = work_integer();
    p->sum = p->sum * 31 + work_vector();
    p->sum = p->sum * 31 + work_memory();
    if (p == profile) {
        p->sum = p->sum * 31 + work_string();
        p->sum = p->sum * 31 + work_signal();
        p->sum = p->sum * 31 + work_changing_code(false);
        p->sum = p->sum * 31 + work_changing_code(true);
    }
    llwpcb(NULL);
    return NULL;
}

static uint32_t checksum(void)
{
    uint32_t sum = 0;

    shared[0] = shared[1] = 0;
    for (int i = 1; i < THREADS; i++) {
        pthread_create(&profile[i].thread, NULL, run, &profile[i]);
    }
    run(&profile[0]);
    for (int i = 0; i < THREADS; i++) {
        if (i) {
            pthread_join(profile[i].thread, NULL);
        }
        sum = sum * 31 + profile[i].sum;
    }
    return sum * 31 + shared[0] * 31 + shared[1];
}

int main(void)
{
    static const int intervals[] = { 0, 1, 7, 10007 };
    uint32_t available = cpuid_reg(0x8000001c, 0, 0) & 0x7e;
    uint32_t want = checksum();

    for (int i = 0; i < 4; i++) {
        interval = intervals[i];
        for (int event = 2; event <= 6; event++) {
            flags = available & 1u << event;
            if (flags) {
                report(checksum() == want, "event %d, interval %d", event,
                       interval);
            }
        }
        flags = available;
        report(checksum() == want, "all events, interval %d", interval);
        filters = 1u << 31;
        report(checksum() == want, "in a range, interval %d", interval);
        filters = 1u << 27;
        report(checksum() == want, "some branches, interval %d", interval);
        filters = 1u << 11 | 1u << 8 | 5;
        report(checksum() == want, "slow loads, interval %d", interval);
        filters = 0;
    }
    return report_summary();
}
