/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The driver under load.
 *
 * usage: lwp-load SECONDS [MODULE]
 *
 * Workers profile themselves, and check every record and count, under a rain
 * of signals for some, while processes are forked, executed and killed amid
 * their profiles, listeners come and go, features are withdrawn and granted,
 * and a CPU goes offline and back.  With MODULE, a file, the second half of the
 * time it is unloaded and loaded again meanwhile; rounds that lose their LWP
 * then do not count.  What the kernel thinks of it is in its log.
 *
 * To be run as root.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include "test.h"
#include "../linux/lwp_ioctl.h"

enum { WORKERS = 4, MARKS = 200, SPIN = 500, HELPERS = 5 };

static const char cpu1[] = "/sys/devices/system/cpu/cpu1/online";

typedef struct Shared {
    atomic_bool reloading, stop;
    struct {
        _Atomic pid_t pid;
        atomic_uint rounds, lost, signals;
        const char *_Atomic wrong;
    } worker[WORKERS];
    atomic_uint forks, hotplugs, attached, notified, switched, reloads;
    const char *_Atomic wrong;
} Shared;

static Shared *shared;
static const char *module;

/* --- workers --------------------------------------------------------------*/

static sigjmp_buf no_lwp;
static atomic_uint *signals;

static void on_ill(int sig)
{
    siglongjmp(no_lwp, sig);
}

static void on_alarm(int sig)
{
    *signals += sig != 0;
}

static const char *round_wrong(Profile *p, uint32_t from, bool counting)
{
    static Counts expected;
    unsigned moves = 0;
    const char *wrong = records_wrong(p, from, from + MARKS, &moves);
    Counts c = counts(p);

    if (wrong || !counting) {
        return wrong;
    }
    if (!expected.ire) {
        expected = c;
    }
    return memcmp(&c, &expected, sizeof(c)) ? "counts differ" : NULL;
}

/* False if LWP went away, with a SIGILL or silently. */
static __attribute__((noinline)) bool run_round(Profile *p, uint32_t from)
{
    profile_set(p, LWP_FLAG(LWP_IRE) | LWP_FLAG(LWP_BRE) | LWP_FLAG_INT,
                INTERVAL, MARKS / 2);
    if (sigsetjmp(no_lwp, 1)) {
        return false;
    }
    workload(p, from, from + MARKS, SPIN);
    /* The last LLWPCB has flushed the counters, if LWP was still enabled. */
    return counts(p).ire != 0;
}

/* Workers with an odd number get signals, whose handlers are counted too. */
static void work(unsigned id)
{
    bool alarmed = id % 2;
    struct itimerval every = { { 0, 1000 }, { 0, 1000 } };
    const char *wrong = NULL;
    Profile p;

    profile_map(&p, MARKS + 1);
    signals = &shared->worker[id].signals;
    handle(SIGILL, on_ill);
    handle(SIGALRM, on_alarm);
    if (alarmed) {
        setitimer(ITIMER_REAL, &every, NULL);
    }
    shared->worker[id].pid = getpid();

    for (uint32_t round = 0; !wrong && !shared->stop; round++) {
        uint32_t from = id << 24 | (round & 0xff) << 16;
        bool reloading = shared->reloading;

        if (run_round(&p, from)) {
            shared->worker[id].rounds++;
            wrong = round_wrong(&p, from, !alarmed);
        } else {
            shared->worker[id].lost++;
            if (!reloading && !shared->reloading) {
                wrong = "LWP was lost";
            }
            usleep(1000);
        }
    }
    shared->worker[id].wrong = wrong;
}

/* --- what disturbs them ---------------------------------------------------*/

/* Profile for a while and end in one of several ways. */
static void __attribute__((noreturn)) mayfly(unsigned n)
{
    Profile p;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    profile_map(&p, 64);
    if (shared->reloading && n % 2) {
        _exit(0);       /* without a SIGILL */
    }
    profile_set(&p, LWP_FLAG(LWP_IRE), 100, 32);
    profile_start(&p);
    spin(n % 2000);
    switch (n % 3) {
    case 0:
        execl("/proc/self/exe", "lwp-load", "probe", NULL);
        _exit(2);
    case 1:
        _exit(0);
    default:
        for (;;) {      /* to be killed */
        }
    }
}

static void forks(void)
{
    for (unsigned n = 0; !shared->stop; n++) {
        pid_t pid = fork();
        int status;

        if (pid < 0) {
            continue;
        }
        if (!pid) {
            mayfly(n);
        }
        if (n % 3 == 2) {
            usleep(n % 3000);
            kill(pid, SIGKILL);
        }
        waitpid(pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status)) {
            shared->wrong = "an executed program had LWP enabled";
        }
        shared->forks++;
    }
}

/* Linux refuses it while it suspends or resumes. */
static void hotplugs(void)
{
    while (!shared->stop && !access(cpu1, W_OK)) {
        if (!write_string(cpu1, "0")) {
            usleep(50000);
            for (unsigned i = 0; write_string(cpu1, "1") == -EBUSY &&
                 i < 1000; i++) {
                usleep(10000);
            }
            shared->hotplugs++;
        }
        usleep(250000);
    }
}

static void attaches(void)
{
    while (!shared->stop) {
        int fd = open(LWP_DEVICE, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        uint64_t n, m;

        if (fd < 0) {
            close(event);
            usleep(1000);
            continue;
        }
        fcntl(fd, F_SETOWN, getpid());
        fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC);
        for (unsigned i = 0; i < WORKERS; i++) {
            struct lwp_ioc_attach a = {
                .pid = shared->worker[i].pid,
                .flags = i & 1 ? LWP_ATTACH_PROCESS : 0,
                .eventfd = event,
            };

            if (!ioctl(fd, LWP_IOC_ATTACH, &a)) {
                shared->attached++;
            }
        }
        usleep(20000);
        ioctl(fd, LWP_IOC_DETACH, &shared->worker[0].pid);
        if (read(fd, &n, sizeof(n)) == sizeof(n)) {
            shared->notified += n;
        }
        if (read(event, &m, sizeof(m)) < 0 && errno != EAGAIN) {
            shared->wrong = "eventfd does not work";
        }
        close(fd);
        close(event);
        usleep(shared->reloading ? 30000 : 1000);
    }
}

/* Without and with DME and CNH, which the workers do not use. */
static void switches(void)
{
    char all[16], fewer[16];
    uint32_t mask = available();

    snprintf(all, sizeof(all), "%" PRIx32, mask);
    mask &= ~(LWP_FLAG(LWP_DME) | LWP_FLAG(LWP_CNH));
    snprintf(fewer, sizeof(fewer), "%" PRIx32, mask);
    while (!shared->stop) {
        shared->switched += !write_string(features, fewer);
        usleep(3000);
        write_string(features, all);
        usleep(3000);
    }
}

static void reloads(void)
{
    while (!shared->stop) {
        int fd;

        usleep(20000);
        if (!shared->reloading ||
            syscall(SYS_delete_module, "lwp", O_NONBLOCK)) {
            continue;
        }
        usleep(5000);
        fd = open(module, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || syscall(SYS_finit_module, fd, "", 0)) {
            shared->wrong = "the module does not load again";
            break;
        }
        close(fd);
        shared->reloads++;
    }
}

static pid_t start(void (*f)(void))
{
    pid_t pid = fork();

    if (pid < 0) {
        die("fork");
    }
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        handle(SIGIO, SIG_IGN);
        f();
        _exit(0);
    }
    return pid;
}

static void wait_seconds(double s)
{
    struct timespec now, end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)s;
    end.tv_nsec += (s - (time_t)s) * 1e9;
    do {
        usleep(10000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec ||
             (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}

int main(int argc, char **argv)
{
    void (*const helpers[HELPERS])(void) = {
        forks, hotplugs, attaches, switches, reloads,
    };
    pid_t worker_pids[WORKERS], helper_pids[HELPERS];
    double seconds;
    int status;

    if (argc > 1 && !strcmp(argv[1], "probe")) {
        return shared != NULL || __slwpcb() != NULL;
    }
    if (argc < 2) {
        fprintf(stderr, "usage: lwp-load SECONDS [MODULE]\n");
        return 2;
    }
    seconds = atof(argv[1]);
    module = argc > 2 ? argv[2] : NULL;
    shared = map_shared(sizeof(*shared));

    for (unsigned i = 0; i < WORKERS; i++) {
        worker_pids[i] = fork();
        if (worker_pids[i] < 0) {
            die("fork");
        }
        if (!worker_pids[i]) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(i);
            _exit(0);
        }
    }
    for (unsigned i = 0; i < HELPERS; i++) {
        helper_pids[i] = start(helpers[i]);
    }

    wait_seconds(module ? seconds / 2 : seconds);
    if (module) {
        shared->reloading = true;
        wait_seconds(seconds / 2);
    }
    shared->stop = true;

    for (unsigned i = 0; i < HELPERS; i++) {
        if (waitpid(helper_pids[i], &status, 0) < 0 || status) {
            shared->wrong = "a helper died";
        }
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        const char *wrong;

        if (waitpid(worker_pids[i], &status, 0) < 0 || status) {
            shared->worker[i].wrong = "it died";
        }
        wrong = shared->worker[i].wrong;
        check(!wrong && shared->worker[i].rounds, "worker %u: %u rounds "
              "complete, %u without LWP, %u signals%s%s", i,
              shared->worker[i].rounds, shared->worker[i].lost,
              shared->worker[i].signals, wrong ? ": " : "", wrong ? wrong : "");
    }
    check(!shared->wrong && shared->forks && shared->attached &&
          shared->notified && shared->switched,
          "%u processes, %u listeners, %u interrupts heard, features withdrawn "
          "%u times%s%s", shared->forks, shared->attached, shared->notified,
          shared->switched, shared->wrong ? ": " : "",
          shared->wrong ? shared->wrong : "");
    check(shared->hotplugs || access(cpu1, W_OK), "a CPU offline and back %u "
          "times", shared->hotplugs);
    if (module) {
        check(shared->reloads, "the module reloaded %u times", shared->reloads);
    }
    return failed;
}
