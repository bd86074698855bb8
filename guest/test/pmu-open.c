// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * usage: pmu-open [alone | levels]
 *
 * Linux' perf_event_open() without perf, for kernels and processors that
 * Debian's perf is not for: counts of a loop that are known, and samples of it.
 * "alone": there is one counter; "levels": cycles are those of all privilege
 * levels.
 */
#define _GNU_SOURCE
#include "test.h"
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { PAGES = 64, ROUNDS = 1000000, PERIOD = 10007, INSNS = 3,
       LOOP_SIZE = 32 };

static const struct {
    const char *name;
    uint32_t config;
    unsigned n;                         /* in a round of loop() */
} events[] = {
    { "cycles", PERF_COUNT_HW_CPU_CYCLES, INSNS },
    { "instructions", PERF_COUNT_HW_INSTRUCTIONS, INSNS },
    { "branches", PERF_COUNT_HW_BRANCH_INSTRUCTIONS, 1 },
};

static __attribute__((noinline)) void loop(unsigned n)
{
    __asm__ volatile("1: nop\n sub $1, %0\n jnz 1b" : "+r" (n) : : "cc");
}

static bool all_levels;

/* Exactly, or not much more, if there is more in it. */
static bool is_near(unsigned event, uint64_t n, uint64_t should)
{
    return all_levels && event == 0 ? n >= should && n < 2 * should :
           n == should;
}

static int open_event(unsigned i, uint64_t period, int leader)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_HARDWARE, .size = sizeof(attr),
        .config = events[i].config, .sample_period = period,
        .sample_type = PERF_SAMPLE_IP, .disabled = leader < 0,
        .exclude_kernel = 1, .exclude_hv = 1,
    };
    int fd = syscall(SYS_perf_event_open, &attr, 0, -1, leader, 0);

    if (fd < 0) {
        die(events[i].name);
    }
    return fd;
}

static void run(int fd, unsigned rounds)
{
    ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
    loop(rounds);
    ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
}

static uint64_t count(int fd)
{
    uint64_t n = 0;

    if (read(fd, &n, sizeof(n)) != sizeof(n)) {
        die("read");
    }
    return n;
}

/* What all but the loop's rounds count for is the same each time. */
static void test_counts(unsigned first, unsigned last)
{
    int fd[2] = { open_event(first, 0, -1), -1 };
    uint64_t n[2][3];

    fd[1] = last != first ? open_event(last, 0, fd[0]) : -1;
    for (int i = 0; i < 3; i++) {
        run(fd[0], i ? ROUNDS : 1);
        for (unsigned e = 0; e <= (last != first); e++) {
            n[e][i] = count(fd[e]);
        }
    }
    for (unsigned e = 0; e <= (last != first); e++) {
        unsigned event = e ? last : first;
        uint64_t once = n[e][1] - n[e][0], again = n[e][2] - n[e][1];
        uint64_t should = (ROUNDS - 1ull) * events[event].n;

        should += all_levels && event == 0 ? 0 : n[e][0];

        check(is_near(event, once, should) && is_near(event, again, should),
              "%s%s: %" PRIu64 ", %" PRIu64 " and %" PRIu64,
              events[event].name, last != first ? " in a group" : "",
              n[e][0], once, again);
        close(fd[e]);
    }
}

/* Each @PERIOD, and each PERIOD'th address of the loop in turn */
static void test_samples(unsigned i)
{
    int fd = open_event(i, PERIOD, -1);
    size_t page = 4096;
    struct perf_event_mmap_page *map = mmap(NULL, (PAGES + 1) * page,
                                            PROT_READ | PROT_WRITE, MAP_SHARED,
                                            fd, 0);
    unsigned samples = 0, in = 0, should = ROUNDS * events[i].n / PERIOD;

    if (map == MAP_FAILED) {
        die("mmap");
    }
    run(fd, ROUNDS);
    for (uint64_t at = 0; at < map->data_head; ) {
        struct {
            struct perf_event_header header;
            uint64_t ip;
        } *r = (void *)((char *)map + page + at);

        if (r->header.type == PERF_RECORD_SAMPLE) {
            samples++;
            in += r->ip - (uintptr_t)loop < LOOP_SIZE;
        }
        at += r->header.size;
    }
    check(is_near(i, samples, should) && is_near(i, in, should),
          "%s: %u samples, %u of them in the loop, should be %u",
          events[i].name, samples, in, should);
    munmap(map, (PAGES + 1) * page);
    close(fd);
}

int main(int argc, char **argv)
{
    bool alone = argc == 2 && !strcmp(argv[1], "alone");

    all_levels = argc == 2 && !strcmp(argv[1], "levels");
    for (unsigned i = 0; i < 3; i++) {
        test_counts(i, i);
    }
    if (!alone) {
        test_counts(0, 1);
    }
    for (unsigned i = 0; i < 3; i++) {
        test_samples(i);
    }
    return failed;
}
