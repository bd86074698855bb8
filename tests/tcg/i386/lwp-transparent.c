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
    return sum;
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
        filters = 0;
    }
    return report_summary();
}
