/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the driver refuses, and how it is told: its parameters; and how much of
 * a CPU programs can take by threshold interrupts.
 *
 * usage: lwp-limits MODULE
 *
 * MODULE is the driver's file, which is loaded again with each parameter.  To
 * be run as root.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include "test.h"
#include "../linux/lwp_ioctl.h"

static const char *module;

/* Load it again: 0 or a negative error, after which it is not loaded. */
static int reload(const char *parameters)
{
    int fd, err = 0;

    if (syscall(SYS_delete_module, "lwp", O_NONBLOCK) && errno != ENOENT) {
        die("delete_module");
    }
    fd = open(module, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        die(module);
    }
    if (syscall(SYS_finit_module, fd, parameters, 0)) {
        err = -errno;
    }
    close(fd);
    return err;
}

static void test_parameters(void)
{
    static const struct {
        const char *parameter;
        int result;
    } tests[] = {
        { "reserve=0", -EINVAL },
        { "reserve=16385", -EINVAL },
        { "reserve=4294967295", -EINVAL },
        { "reserve=x", -EINVAL },
        { "reserve=1", 0 },
        { "reserve=16384", 0 },
        { "max_share=0", -EINVAL },
        { "max_share=101", -EINVAL },
        { "max_share=1", 0 },
        { "max_share=100", 0 },
    };

    for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        int result = reload(tests[i].parameter);

        check(result == tests[i].result, "%s: %s", tests[i].parameter,
              strerror(-result));
    }
}

/* --- the throttle ---------------------------------------------------------*/

enum { FLOODERS = 8, LISTENERS = 16, SHARE = 10 };

typedef enum Flood { PLAIN, LOAD, STOP } Flood;

static struct lwp_ioc_status status(void)
{
    struct lwp_ioc_status s;
    int fd = open(LWP_DEVICE, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || ioctl(fd, LWP_IOC_STATUS, &s)) {
        die(LWP_DEVICE);
    }
    close(fd);
    return s;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/*
 * Insert records, with the ring above its threshold, and an interrupt for each
 * if INT is in @flags.  LOAD asks for INT each time again, STOP lets others
 * run, without LWP, each time.
 */
static void insert(Profile *p, Flood flood, uint32_t flags, unsigned n)
{
    profile_set(p, flags, INTERVAL, 0);
    profile_start(p);
    while (n--) {
        if (flood != PLAIN) {
            p->cb->flags = flags;
            profile_start(p);
        }
        __lwpins32(0, 0, MARK);
        p->cb->tail = p->cb->head;
        if (flood == STOP) {
            profile_stop();
            sched_yield();
        }
    }
    profile_stop();
}

/* How long it takes @processes that share CPU 0. */
static double flood_time(Flood flood, uint32_t flags, unsigned processes,
                         unsigned inserts)
{
    double start = now();
    pid_t pid[FLOODERS];
    int result;

    for (unsigned i = 0; i < processes; i++) {
        pid[i] = fork();
        if (pid[i] < 0) {
            die("fork");
        }
        if (!pid[i]) {
            Profile p;

            for (unsigned j = 0; j < LISTENERS; j++) {
                struct lwp_ioc_attach a = { .eventfd = -1 };
                int fd = open(LWP_DEVICE, O_RDONLY);

                if (fd < 0 || (ioctl(fd, LWP_IOC_ATTACH, &a) &&
                               errno != EUSERS)) {
                    _exit(1);
                }
            }
            profile_map(&p, 64);
            insert(&p, flood, flags, inserts / processes);
            _exit(0);
        }
    }
    for (unsigned i = 0; i < processes; i++) {
        if (waitpid(pid[i], &result, 0) != pid[i] || result) {
            die("a flood");
        }
    }
    return now() - start;
}

/* The shortest of some times, as others may use the machine. */
static double shortest(Flood flood, uint32_t flags, unsigned processes,
                       unsigned inserts)
{
    double best = 1e9;

    for (unsigned i = 0; i < 3; i++) {
        double t = flood_time(flood, flags, processes, inserts);

        best = t < best ? t : best;
    }
    return best;
}

static void test_throttle(void)
{
    static const struct {
        const char *what;
        Flood flood;
        unsigned processes, inserts;
    } tests[] = {
        { "a process", PLAIN, 1, 400000 },
        { "a process that executes LLWPCB again and again", LOAD, 1, 200000 },
        { "processes", PLAIN, FLOODERS, 400000 },
        { "processes that take turns", STOP, FLOODERS, 10000 },
    };
    char parameter[32];
    cpu_set_t set;

    snprintf(parameter, sizeof(parameter), "max_share=%d", SHARE);
    if (reload(parameter)) {
        die("finit_module");
    }
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    sched_setaffinity(0, sizeof(set), &set);

    for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        unsigned processes = tests[i].processes, inserts = tests[i].inserts;
        double quiet = shortest(tests[i].flood, 0, processes, inserts), loud;
        struct lwp_ioc_status before = status(), after;

        loud = shortest(tests[i].flood, LWP_FLAG_INT, processes, inserts);
        after = status();
        check(after.throttles > before.throttles &&
              after.interrupts > before.interrupts,
              "%s: %" PRIu64 " interrupts of %u, throttled %" PRIu64 " times",
              tests[i].what, after.interrupts - before.interrupts, 3 * inserts,
              after.throttles - before.throttles);
        check(loud < 1.5 * quiet, "%s: %.3f s without interrupts, %.3f s with",
              tests[i].what, quiet, loud);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: lwp-limits MODULE\n");
        return 2;
    }
    module = argv[1];
    test_parameters();
    test_throttle();
    if (reload("")) {
        die("finit_module");
    }
    return failed;
}
