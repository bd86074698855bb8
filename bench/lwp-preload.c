// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * LD_PRELOAD library: profile an unmodified program from its start to its end.
 *
 * LWP_PROFILE=FLAGS:INTERVAL[:FILTERS:BASEIP:LIMITIP] selects the events as
 * LWPCB.Flags does; without it this library does nothing.  Nobody reads the
 * records: the tail pointer is one that the head never meets, so that LWP goes
 * round the ring as if somebody did.
 *
 * LWP_COUNT=FILE has written there how often BRE has happened, if the interval
 * is so long that the ring has not been full.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <x86intrin.h>

#define RING_SIZE   (256u << 10)
#define NR_EVENTS   6

static struct {
    uint32_t flags, size;
    uint64_t base;
    uint32_t head, rsvd1;
    uint64_t missed;
    uint32_t threshold, filters;
    uint64_t base_ip, limit_ip, rsvd2;
    uint32_t tail, rsvd3[15];
    struct {
        uint32_t interval, counter;
    } event[NR_EVENTS];
} lwpcb __attribute__((aligned(64)));

static void __attribute__((constructor)) start(void)
{
    const char *arg = getenv("LWP_PROFILE");
    unsigned long long base = 0, limit = 0;
    unsigned flags, interval, filters = 0;
    void *ring;

    if (!arg) {
        return;
    }
    if (sscanf(arg, "%i:%i:%i:%lli:%lli", &flags, &interval, &filters,
               &base, &limit) < 2) {
        fprintf(stderr, "LWP_PROFILE: expected FLAGS:INTERVAL\n");
        exit(1);
    }
    ring = mmap(NULL, RING_SIZE, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED) {
        perror("LWP_PROFILE: mmap");
        exit(1);
    }
    lwpcb.flags = flags;
    lwpcb.size = RING_SIZE;
    lwpcb.base = (uintptr_t)ring;
    lwpcb.tail = 1;
    lwpcb.filters = filters;
    lwpcb.base_ip = base;
    lwpcb.limit_ip = limit;
    for (int i = 0; i < NR_EVENTS; i++) {
        lwpcb.event[i].interval = interval;
        lwpcb.event[i].counter = interval;
    }
    __llwpcb(&lwpcb);
    if (lwpcb.flags != flags) {
        fprintf(stderr, "LWP_PROFILE: only events 0x%x of 0x%x are available\n",
                lwpcb.flags, flags);
        exit(1);
    }
}

static void __attribute__((destructor)) stop(void)
{
    const char *arg = getenv("LWP_COUNT");

    if (lwpcb.base) {
        __llwpcb(NULL);
    }
    if (lwpcb.base && arg) {
        FILE *f = fopen(arg, "w");

        if (!f) {
            return;
        }
        fprintf(f, "%llu\n", lwpcb.head / 32 *
                (lwpcb.event[2].interval + 1ull) + lwpcb.event[2].interval -
                lwpcb.event[2].counter);
        fclose(f);
    }
}
