/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two consumers of what retires on one processor: a program that counts its
 * ticks as rr does on Family 15h (taken branches, C4h, less far transfers,
 * C6h), beside one that "lwp record" profiles.  Neither may notice the other.
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "test.h"

#define TAKEN       1000000     /* branches of ticks() that are taken */
#define PERIOD      123457
#define STOPS       (TAKEN / PERIOD)
#define NEVER       (1ull << 60)
/*
 * Far transfers, and the handlers' own branches, make the last stop come early;
 * and when Linux switches tasks it gives a counter two events at least.
 */
#define EARLY       200
#define LATE        2

static uint64_t stops, stopped_after;
static int c4, c6;

static int open_counter(uint64_t event, uint64_t period, int leader)
{
    struct perf_event_attr attr = {
        .size = sizeof(attr), .type = PERF_TYPE_RAW, .config = event,
        .disabled = leader < 0, .pinned = leader < 0, .exclude_kernel = 1,
        .exclude_guest = 1, .sample_period = period,
    };
    int fd = syscall(SYS_perf_event_open, &attr, 0, -1, leader, 0);

    if (fd < 0) {
        die("perf_event_open");
    }
    return fd;
}

static uint64_t count(int fd)
{
    uint64_t n;

    if (read(fd, &n, sizeof(n)) != sizeof(n)) {
        die("read");
    }
    return n;
}

static void on_overflow(int sig, siginfo_t *info, void *context)
{
    const ucontext_t *u = context;

    /* What is left is in %rbx of ticks(). */
    stopped_after = TAKEN - u->uc_mcontext.gregs[REG_RBX];
    stops++;
}

/* TAKEN branches, and the one that is not taken at the end */
static void ticks(void)
{
    __asm__ volatile("mov %0, %%rbx\n"
                     "1: dec %%rbx\n"
                     "jns 1b" : : "i"(TAKEN) : "rbx", "cc");
}

static uint64_t counted(void)
{
    ioctl(c4, PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP);
    ioctl(c4, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
    ticks();
    ioctl(c4, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
    return count(c4) - count(c6);
}

/* Profile bzip2; leave where each record is in NAME.txt. */
static bool profile(const char *name)
{
    char *command;

    if (asprintf(&command, "cd /tmp; lwp record -e ire,bre -c 10007 -o %s.data "
                 "bzip2 -c text > /dev/null && lwp report -i %s.data "
                 "-s symbol,addr -n 1000000 > %s.out && "
                 "sed '/^# recorded/d; /^# with/d' %s.out > %s.txt",
                 name, name, name, name, name) < 0) {
        die("asprintf");
    }
    return system(command) == 0;
}

int main(void)
{
    struct sigaction action = {
        .sa_sigaction = on_overflow, .sa_flags = SA_SIGINFO,
    };
    struct f_owner_ex owner = { F_OWNER_TID, getpid() };
    unsigned rounds = 0, wrong = 0, missing = 0, elsewhere = 0;
    uint64_t alone, n;
    cpu_set_t cpus;
    char random;
    pid_t pid;
    int status;

    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    if (sched_setaffinity(0, sizeof(cpus), &cpus) ||
        sigaction(SIGUSR1, &action, NULL)) {
        die("start");
    }
    /* A slow machine takes long for an interrupt: no reason to throttle. */
    if (write_string("/proc/sys/kernel/randomize_va_space", "0") ||
        write_string("/proc/sys/kernel/perf_cpu_time_max_percent", "0")) {
        die("/proc/sys/kernel");
    }
    /*
     * Until the kernel has random numbers, malloc() makes its own of the time,
     * of which the vDSO counts the seconds in a loop.
     */
    if (getrandom(&random, 1, 0) != 1) {
        die("getrandom");
    }
    check(profile("alone"), "profiled alone");
    c4 = open_counter(0xc4, NEVER, -1);
    c6 = open_counter(0xc6, 0, c4);
    alone = counted();          /* the ends of system calls included */
    check(alone >= TAKEN && alone < TAKEN + 16,
          "alone: taken branches less far transfers: %" PRIu64, alone);
    fcntl(c4, F_SETSIG, SIGUSR1);
    fcntl(c4, F_SETOWN_EX, &owner);
    fcntl(c4, F_SETFL, O_ASYNC);

    pid = fork();
    if (!pid) {
        _exit(!profile("beside"));
    }
    while (!waitpid(pid, &status, WNOHANG)) {
        bool stop = ++rounds % 2;

        n = stop ? PERIOD : NEVER;
        ioctl(c4, PERF_EVENT_IOC_PERIOD, &n);
        stops = 0;
        n = counted();
        /* The handler has branches of its own. */
        wrong += !stop && n != alone;
        missing += stops != stop * STOPS;
        elsewhere += stop && STOPS * PERIOD - stopped_after + LATE > EARLY;
    }
    check(rounds > 10, "%u rounds", rounds);
    check(!wrong, "ticks beside it: %u are wrong", wrong);
    check(!missing, "interrupts: %u rounds have more or fewer", missing);
    check(!elsewhere, "and %u have the last one elsewhere", elsewhere);
    check(WIFEXITED(status) && !WEXITSTATUS(status), "profiled beside it");
    check(!system("diff -U 0 /tmp/alone.txt /tmp/beside.txt && "
                  "grep -q BZ2_ /tmp/beside.txt"), "each record the same");
    return failed;
}
