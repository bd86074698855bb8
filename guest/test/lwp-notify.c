/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Threshold interrupts through /dev/lwp: by read, poll, eventfd and SIGIO; of
 * oneself, of another process and of all its threads; and who may have them.
 *
 * usage: lwp-notify [throttled]
 *
 * To be run as root.
 */
#define _GNU_SOURCE
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "test.h"
#include "../linux/lwp_ioctl.h"

enum { USER = 1000, OTHER = 1001 };
enum { SECOND = 1000, PATIENCE = 20 * SECOND };

static const char suid_copy[] = "/tmp/lwp-notify-suid";

static int open_lwp(void)
{
    int fd = open(LWP_DEVICE, O_RDWR | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0) {
        die(LWP_DEVICE);
    }
    return fd;
}

/* 0 or a negative error. */
static int attach(int fd, pid_t pid, unsigned flags, int eventfd)
{
    struct lwp_ioc_attach a = {
        .pid = pid, .flags = flags, .eventfd = eventfd,
    };

    return ioctl(fd, LWP_IOC_ATTACH, &a) ? -errno : 0;
}

static int detach(int fd, pid_t pid)
{
    return ioctl(fd, LWP_IOC_DETACH, &pid) ? -errno : 0;
}

/* What read() has, of the device or an eventfd; 0 for EAGAIN and the end. */
static uint64_t read_count(int fd)
{
    uint64_t n;
    ssize_t size = read(fd, &n, sizeof(n));

    if (size == 0 || (size < 0 && errno == EAGAIN)) {
        return 0;
    }
    if (size != sizeof(n)) {
        die("read");
    }
    return n;
}

/* Of poll(), which may wait for @timeout ms. */
static int events_of(int fd, int timeout)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    return poll(&p, 1, timeout) < 0 ? -1 : p.revents;
}

static bool readable(int fd, int timeout)
{
    return events_of(fd, timeout) & POLLIN;
}

/* Insert a number, once there is room for it. */
static void insert(uint32_t n)
{
    while (__lwpins32(n, 0, MARK)) {
        usleep(100);
    }
}

/* The records in the ring, all of them insert()'s @next and those after. */
static bool drain(Profile *p, uint32_t *next)
{
    LwpRecord r;

    while (profile_next(p, &r)) {
        if (r.event != LWP_INS || r.data2 != *next) {
            return false;
        }
        ++*next;
    }
    return true;
}

/* --- oneself --------------------------------------------------------------*/

static volatile sig_atomic_t signals;

static void count_signal(int sig)
{
    signals += sig != 0;
}

static void test_self(void)
{
    enum { RING = 64, THRESHOLD = 16 };
    int fd = open_lwp(), event = eventfd(0, EFD_NONBLOCK);
    uint32_t n = 0, next = 0;
    uint64_t count;
    Profile p;

    profile_map(&p, RING);
    profile_set(&p, LWP_FLAG_INT, INTERVAL, THRESHOLD);
    check(attach(fd, 0, 0, event) == 0, "attach to self");
    profile_start(&p);
    check(p.cb->flags & LWP_FLAG_INT, "LWPCB.Flags keep INT");

    while (n < THRESHOLD - 1) {
        insert(n++);
    }
    check(!read_count(fd) && !read_count(event) && !readable(fd, 0),
          "quiet below the threshold");
    insert(n++);
    check(readable(fd, SECOND) && readable(event, SECOND),
          "device and eventfd are readable at the threshold");
    count = read_count(fd);
    check(count == 1, "read: %" PRIu64 " interrupt", count);
    count = read_count(event);
    check(count == 1, "eventfd: %" PRIu64, count);
    check(!readable(fd, 0) && !read_count(fd), "reading resets the count");
    insert(n++);
    insert(n++);
    count = read_count(fd);
    check(count == 2, "read: %" PRIu64 " for two records above it", count);
    check(drain(&p, &next) && next == n, "all %u records are there", n);

    handle(SIGIO, count_signal);
    if (fcntl(fd, F_SETOWN, getpid()) ||
        fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC)) {
        die("O_ASYNC");
    }
    for (unsigned i = 0; i < THRESHOLD - 1; i++) {
        insert(n++);
    }
    check(signals == 0, "no SIGIO below the threshold");
    insert(n++);
    for (unsigned i = 0; !signals && i < 1000; i++) {
        usleep(SECOND);
    }
    check(signals == 1, "%d SIGIO at the threshold", (int)signals);

    check(read_count(fd) == 1 && detach(fd, 0) == 0, "detach from self");
    insert(n++);
    check(!readable(fd, 10), "quiet after that");
    check(detach(fd, 0) == -ESRCH, "detach twice: ESRCH");
    profile_stop();
    close(fd);
    close(event);
}

/* --- others ---------------------------------------------------------------*/

enum { MANY = 20000, BIG_RING = 1024, BIG_THRESHOLD = 512, THREADS = 3 };

static Profile rings[1 + THREADS];

static void *produce(void *opaque)
{
    Profile *p = opaque;

    profile_set(p, LWP_FLAG_INT, INTERVAL, BIG_THRESHOLD);
    profile_start(p);
    for (uint32_t i = 0; i < MANY; i++) {
        insert(i);
    }
    profile_stop();
    return NULL;
}

/* A child that waits for a byte before it profiles @threads more threads. */
static pid_t start_producer(int *go, unsigned threads)
{
    int pipes[2];
    pthread_t t[THREADS];
    pid_t pid;
    char c;

    if (pipe(pipes)) {
        die("pipe");
    }
    pid = fork();
    if (pid < 0) {
        die("fork");
    }
    if (pid) {
        close(pipes[0]);
        *go = pipes[1];
        return pid;
    }
    close(pipes[1]);
    if (read(pipes[0], &c, 1) != 1) {
        _exit(2);
    }
    for (unsigned i = 0; i < threads; i++) {
        if (pthread_create(&t[i], NULL, produce, &rings[1 + i])) {
            _exit(2);
        }
    }
    produce(&rings[0]);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(t[i], NULL);
    }
    _exit(0);
}

/* Drain @nr rings when there is an interrupt, and only then, until the end. */
static bool consume(int fd, unsigned nr, pid_t pid, uint64_t *interrupts,
                    uint64_t *missed)
{
    uint32_t next[1 + THREADS] = { 0 };
    bool ok = true;
    int status = -1;

    *interrupts = *missed = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        for (int i = 0; !events_of(fd, 100); i++) {
            if (waitpid(pid, &status, WNOHANG | WNOWAIT) != 0) {
                break;
            }
            if (i > PATIENCE / 100) {
                kill(pid, SIGKILL);
                ok = false;
            }
        }
        *interrupts += read_count(fd);
        for (unsigned i = 0; i < nr; i++) {
            ok &= drain(&rings[i], &next[i]);
        }
    }
    for (unsigned i = 0; i < nr; i++) {
        ok &= drain(&rings[i], &next[i]) && next[i] == MANY;
        *missed += rings[i].cb->missed;
    }
    return ok && status == 0;
}

static void test_process(unsigned flags, unsigned threads, bool throttled)
{
    const char *what = flags ? "a process with later threads" : "a process";
    int fd = open_lwp(), go;
    pid_t pid = start_producer(&go, threads);
    uint64_t interrupts, missed;

    check(attach(fd, pid, flags, -1) == 0, "attach to %s", what);
    if (write(go, "", 1) != 1) {
        die("write");
    }
    check(consume(fd, 1 + threads, pid, &interrupts, &missed),
          "%s: all of %u records, by interrupts alone", what,
          (1 + threads) * MANY);
    check(interrupts >= (throttled ? 1 : (1 + threads) * (MANY / BIG_RING)),
          "%s: %" PRIu64 " interrupts, %" PRIu64 " inserted again", what,
          interrupts, missed);
    close(go);
    close(fd);
}

static void *insert_one(void *opaque)
{
    Profile *p = opaque;

    profile_set(p, LWP_FLAG_INT, INTERVAL, 1);
    profile_start(p);
    insert(0);
    profile_stop();
    return NULL;
}

static void test_thread(void)
{
    int fd = open_lwp(), blocking = open(LWP_DEVICE, O_RDONLY);
    pthread_t t;

    check(attach(fd, getpid(), 0, -1) == 0 && attach(blocking, 0,
          LWP_ATTACH_PROCESS, -1) == 0, "attach to a thread, and to all");
    if (pthread_create(&t, NULL, insert_one, &rings[0])) {
        die("pthread_create");
    }
    check(read_count(blocking) == 1, "all: read blocks until it happens");
    pthread_join(t, NULL);
    check(!readable(fd, 0), "a thread: nothing of another one");
    insert_one(&rings[1]);
    check(read_count(fd) == 1 && read_count(blocking) == 1,
          "a thread: its own interrupt");
    close(fd);
    close(blocking);
}

/* --- permissions ----------------------------------------------------------*/

static void become(uid_t uid)
{
    if (setgroups(0, NULL) || setgid(uid) || setuid(uid)) {
        die("setuid");
    }
}

/* A child of @uid that just waits; dumpable or not. */
static pid_t start_victim(uid_t uid, bool dumpable)
{
    int pipes[2];
    char c;
    pid_t pid;

    if (pipe(pipes)) {
        die("pipe");
    }
    pid = fork();
    if (pid < 0) {
        die("fork");
    }
    if (!pid) {
        if (uid) {
            become(uid);
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_DUMPABLE, dumpable);
        close(pipes[1]);
        for (;;) {
            pause();
        }
    }
    /* Ready when the child's end is closed, but for its own copy. */
    close(pipes[1]);
    if (read(pipes[0], &c, 1) != 0) {
        die("read");
    }
    close(pipes[0]);
    return pid;
}

static void end_victim(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* What @uid gets for attaching to @pid. */
static int attach_as(uid_t uid, pid_t pid)
{
    int status;
    pid_t child = fork();

    if (child < 0) {
        die("fork");
    }
    if (!child) {
        if (uid) {
            become(uid);
        }
        _exit(-attach(open_lwp(), pid, LWP_ATTACH_PROCESS, -1));
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EFAULT;
}

static void test_permissions(void)
{
    static const struct {
        const char *what;
        uid_t who, whom;
        bool dumpable;
        int result;
    } tests[] = {
        { "root may attach to a user's process", 0, USER, true, 0 },
        { "root may attach to one that is not dumpable", 0, USER, false, 0 },
        { "a user may attach to an own process", USER, USER, true, 0 },
        { "a user may not, if it is not dumpable", USER, USER, false, -EPERM },
        { "a user may not attach to root's", USER, 0, true, -EPERM },
        { "a user may not attach to another's", USER, OTHER, true, -EPERM },
    };
    int fd = open_lwp();
    pid_t dead = start_victim(0, true);

    for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        pid_t pid = start_victim(tests[i].whom, tests[i].dumpable);

        check(attach_as(tests[i].who, pid) == tests[i].result, "%s",
              tests[i].what);
        end_victim(pid);
    }

    end_victim(dead);
    check(attach(fd, dead, 0, -1) == -ESRCH, "no such process: ESRCH");
    check(attach(fd, -1, 0, -1) == -EINVAL &&
          attach(fd, 0, 2, -1) == -EINVAL &&
          attach(fd, 0, 0, -2) == -EINVAL, "bad arguments: EINVAL");
    check(attach(fd, 0, 0, 999) == -EBADF &&
          attach(fd, 0, 0, fd) == -EINVAL, "no eventfd: EBADF, EINVAL");
    check(attach(fd, 0, 0, -1) == 0 && attach(fd, 0, 0, -1) == -EEXIST,
          "attach twice: EEXIST");
    check(ioctl(fd, _IO('L', 0), 0) && errno == ENOTTY, "bad ioctl: ENOTTY");
    close(fd);
}

/* --- the end --------------------------------------------------------------*/

/* What a blocking read() returns, of someone who ends meanwhile. */
static ssize_t read_blocking(int fd)
{
    uint64_t n;
    ssize_t size;

    fcntl(fd, F_SETFL, 0);
    alarm(PATIENCE / SECOND);   /* kills, instead of a wait for ever */
    size = read(fd, &n, sizeof(n));
    alarm(0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return size;
}

static _Atomic pid_t *second;

/* In the second thread; the new program waits to be killed. */
static void *execute(void *opaque)
{
    char c;

    *second = gettid();
    if (read(*(int *)opaque, &c, 1) == 0) {
        execl("/proc/self/exe", "lwp-notify", "wait", NULL);
    }
    _exit(2);
}

/* A child that runs @f with the reading end of a pipe; @end is the other. */
static pid_t start_child(void (*f)(int), int *end)
{
    int pipes[2];
    pid_t pid;

    if (pipe(pipes)) {
        die("pipe");
    }
    pid = fork();
    if (pid < 0) {
        die("fork");
    }
    if (!pid) {
        close(pipes[1]);
        f(pipes[0]);
        _exit(0);
    }
    close(pipes[0]);
    *end = pipes[1];
    return pid;
}

static void *wait_for_end(void *opaque)
{
    char c;

    return read(*(int *)opaque, &c, 1) < 0 ? opaque : NULL;
}

static void start_thread(void *(*f)(void *), int fd)
{
    static int arg;
    pthread_t t;

    arg = fd;
    if (pthread_create(&t, NULL, f, &arg)) {
        _exit(2);
    }
}

static void outlive_first(int fd)
{
    start_thread(wait_for_end, fd);
    pthread_exit(NULL);
}

static void interrupt_last(int fd)
{
    wait_for_end(&fd);
    insert_one(&rings[0]);
}

static void execute_by_second(int fd)
{
    start_thread(execute, fd);
    for (;;) {
        pause();
    }
}

static void end_child(pid_t pid, int end)
{
    close(end);
    waitpid(pid, NULL, 0);
}

static void test_end(void)
{
    int fd = open_lwp(), end, end2;
    pid_t pid, pid2;
    uint64_t n;

    check(!events_of(fd, 0), "nobody was attached yet: no POLLHUP");
    pid = start_victim(0, true);
    pid2 = start_victim(0, true);
    check(!attach(fd, pid, 0, -1) && !attach(fd, pid2, LWP_ATTACH_PROCESS, -1),
          "attach to a thread and to a process");
    end_victim(pid);
    check(!events_of(fd, 50), "one of two has ended: no POLLHUP");
    end_victim(pid2);
    check(events_of(fd, PATIENCE) == POLLHUP, "both have ended: POLLHUP");
    check(read(fd, &n, sizeof(n)) == 0, "both have ended: read returns 0");
    check(detach(fd, pid) == -ESRCH, "both are detached");

    pid = start_victim(0, true);
    check(!attach(fd, pid, LWP_ATTACH_PROCESS, -1) && !events_of(fd, 0),
          "another one is attached: no POLLHUP");
    pid2 = fork();
    if (!pid2) {
        usleep(50 * SECOND);
        _exit(kill(pid, SIGKILL) != 0);
    }
    check(read_blocking(fd) == 0, "a read that blocks ends with it");
    waitpid(pid2, NULL, 0);
    waitpid(pid, NULL, 0);
    check(!attach(fd, 0, 0, -1) && !detach(fd, 0) && events_of(fd, 0) ==
          POLLHUP, "detaching the last one: POLLHUP");

    pid = start_child(outlive_first, &end);
    check(!attach(fd, pid, LWP_ATTACH_PROCESS, -1) && !events_of(fd, 50),
          "the first thread of a process has ended: no POLLHUP");
    pid2 = start_child(interrupt_last, &end2);
    check(!attach(fd, pid2, 0, -1), "attach to a thread that will interrupt");
    end_child(pid2, end2);  /* it has @end, too */
    end_child(pid, end);
    check(events_of(fd, PATIENCE) & POLLIN && read_count(fd) == 1,
          "its interrupt is read");
    check(events_of(fd, PATIENCE) == POLLHUP && !read(fd, &n, sizeof(n)),
          "POLLHUP when both have ended");

    /* The second thread becomes the first one, and loses its number. */
    second = map_shared(sizeof(*second));
    pid = start_child(execute_by_second, &end);
    while (!*second) {
        usleep(SECOND);
    }
    check(!attach(fd, *second, 0, -1) && !events_of(fd, 0),
          "attach to a thread that will execute a program");
    close(end);
    check(events_of(fd, PATIENCE) == POLLHUP, "POLLHUP when it does");
    check(!attach(fd, pid, LWP_ATTACH_PROCESS, -1) && !events_of(fd, 50),
          "its process goes on");
    end_victim(pid);
    check(events_of(fd, PATIENCE) == POLLHUP, "POLLHUP when that ends");
    close(fd);
}

/* --- the number of listeners ----------------------------------------------*/

/* A stopped child with as many files attached to @pid as it can have. */
static pid_t attach_many(pid_t pid)
{
    int status;
    pid_t child = fork();

    if (child < 0) {
        die("fork");
    }
    if (!child) {
        int n = 0;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (attach(open_lwp(), pid, LWP_ATTACH_PROCESS, -1) == 0) {
            n++;
        }
        if (errno != EUSERS) {
            n = 99;
        }
        kill(getpid(), SIGSTOP);    /* and keep them */
        _exit(n);
    }
    waitpid(child, &status, WUNTRACED);
    return child;
}

static void test_number(void)
{
    enum { GREEDY = 4 };
    pid_t pid = start_victim(0, true), greedy[GREEDY];
    int got[GREEDY], status, fds[16], own = 0;

    for (unsigned i = 0; i < GREEDY; i++) {
        greedy[i] = attach_many(pid);
    }
    for (unsigned i = 0; i < GREEDY; i++) {
        kill(greedy[i], SIGCONT);
        waitpid(greedy[i], &status, 0);
        got[i] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    check(got[0] == 4 && got[1] == 4 && got[2] == 4 && got[3] == 0,
          "of one process, four processes can have %d, %d, %d and %d "
          "listeners", got[0], got[1], got[2], got[3]);
    end_victim(pid);

    for (unsigned i = 0; i < 3; i++) {
        greedy[i] = attach_many(getpid());
    }
    while (own < 16) {
        fds[own] = open_lwp();
        if (attach(fds[own++], 0, LWP_ATTACH_PROCESS, -1)) {
            break;
        }
    }
    check(own == 5 && errno == EUSERS, "others have left %d for itself",
          own - 1);
    while (own--) {
        close(fds[own]);
    }
    for (unsigned i = 0; i < 3; i++) {
        end_victim(greedy[i]);
    }
}

/* --- a program that raises privileges -------------------------------------*/

/* Inserts as many records as the threshold has; in the copy with its s bit. */
static int raised(void)
{
    Profile p;

    profile_map(&p, 64);
    insert_one(&p);
    return geteuid() != 0;
}

enum { LISTENED = 10 };     /* and how many; die() has lower numbers */

/* A user's listener on a process which executes @program; its interrupts. */
static int listen_to(const char *program)
{
    int fds[2], status, fd;
    uint64_t n;
    char c;
    pid_t pid;

    become(USER);
    prctl(PR_SET_DUMPABLE, 1);
    fd = open_lwp();
    if (pipe(fds)) {
        die("pipe");
    }
    pid = fork();
    if (!pid) {
        if (read(fds[0], &c, 1) == 1) {
            execl(program, program, "raised", NULL);
        }
        _exit(99);
    }
    if (pid < 0 || attach(fd, pid, LWP_ATTACH_PROCESS, -1) ||
        attach(fd, pid, 0, -1) || write(fds[1], "", 1) != 1 ||
        waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
        WEXITSTATUS(status) == 99) {
        die("listen_to");
    }
    n = read_count(fd);
    close(fd);
    return LISTENED + n;
}

static int listen_in_child(const char *program)
{
    int status;
    pid_t pid = fork();

    if (pid < 0) {
        die("fork");
    }
    if (!pid) {
        _exit(listen_to(program));
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void copy_file(const char *from, const char *to)
{
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC,
                                              0755);
    char buf[65536];
    ssize_t n;

    if (in < 0 || out < 0) {
        die(to);
    }
    while ((n = read(in, buf, sizeof(buf))) > 0) {
        if (write(out, buf, n) != n) {
            die(to);
        }
    }
    close(in);
    close(out);
}

static void test_exec(void)
{
    copy_file("/proc/self/exe", suid_copy);
    check(listen_in_child(suid_copy) == LISTENED + 2,
          "a listener, twice attached, stays through an ordinary exec");
    if (chmod(suid_copy, 04755)) {
        die("chmod");
    }
    check(listen_in_child(suid_copy) == LISTENED,
          "a user's listener is detached by a set-user-ID program");
    unlink(suid_copy);
}

/* --- status ---------------------------------------------------------------*/

static void test_status(void)
{
    struct lwp_ioc_status before, after;
    int fd = open_lwp();

    if (ioctl(fd, LWP_IOC_STATUS, &before)) {
        die("LWP_IOC_STATUS");
    }
    insert_one(&rings[0]);
    if (ioctl(fd, LWP_IOC_STATUS, &after)) {
        die("LWP_IOC_STATUS");
    }
    check(after.interrupts == before.interrupts + 1,
          "status: one interrupt more, though nobody is attached");
    check(after.features == available() && after.features,
          "status: features 0x%" PRIx64 " are CPUID's",
          (uint64_t)after.features);
    close(fd);
}

/* Whether CPUID has these features on all CPUs. */
static bool all_have(uint32_t mask)
{
    cpu_set_t all, one;
    bool ok = true;

    if (sched_getaffinity(0, sizeof(all), &all)) {
        die("sched_getaffinity");
    }
    for (unsigned i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all)) {
            CPU_ZERO(&one);
            CPU_SET(i, &one);
            ok &= !sched_setaffinity(0, sizeof(one), &one) &&
                  available() == mask;
        }
    }
    if (sched_setaffinity(0, sizeof(all), &all)) {
        die("sched_setaffinity");
    }
    return ok;
}

/* Withdraw an event from a profile that runs, and grant it again. */
static void test_features(void)
{
    uint32_t all = available(), fewer = all & ~LWP_FLAG(LWP_BRE);
    char s[16];
    int32_t first, second, ire;
    LwpCb *cb = rings[0].cb;

    check(write_string(features, "ffffffff") == -EINVAL &&
          write_string(features, "x") == -EINVAL && all_have(all),
          "features that the CPU does not have: EINVAL");

    profile_set(&rings[0], LWP_FLAG(LWP_IRE) | LWP_FLAG(LWP_BRE), INTERVAL, 0);
    profile_start(&rings[0]);
    snprintf(s, sizeof(s), "0x%" PRIx32, fewer);
    check(!write_string(features, s) && all_have(fewer),
          "an event is withdrawn on all CPUs");
    __slwpcb();
    first = cb->event[LWP_BRE - 1].counter;
    ire = cb->event[LWP_IRE - 1].counter;
    spin(1000);
    snprintf(s, sizeof(s), "%" PRIx32, all);
    check(!write_string(features, s) && all_have(all),
          "it is granted again on all CPUs");
    spin(1000);
    __slwpcb();
    second = cb->event[LWP_BRE - 1].counter;
    ire -= cb->event[LWP_IRE - 1].counter;
    profile_stop();
    check(first == second && ire > 2000,
          "the profile has stopped counting it, and counts the others");

    profile_set(&rings[0], LWP_FLAG(LWP_BRE), INTERVAL, 0);
    profile_start(&rings[0]);
    spin(1000);
    profile_stop();
    check(cb->event[LWP_BRE - 1].counter <= INTERVAL - 1000,
          "the next profile counts it again");
}

/* --- the throttle ---------------------------------------------------------*/

/* Percent of a CPU that interrupts may take. */
static void share(const char *percent)
{
    static const char max_share[] = "/sys/module/lwp/parameters/max_share";

    if (write_string(max_share, percent)) {
        die(max_share);
    }
}

/* Interrupts that are held back are not lost, or the producers would wait. */
static void test_throttled(void)
{
    struct lwp_ioc_status before, after;
    int fd = open_lwp();

    share("1");
    if (ioctl(fd, LWP_IOC_STATUS, &before)) {
        die("LWP_IOC_STATUS");
    }
    test_process(0, 0, true);
    test_process(LWP_ATTACH_PROCESS, THREADS, true);
    if (ioctl(fd, LWP_IOC_STATUS, &after)) {
        die("LWP_IOC_STATUS");
    }
    check(after.throttles > before.throttles, "throttled %" PRIu64 " times",
          (uint64_t)(after.throttles - before.throttles));
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "raised")) {
        return raised();
    }
    if (argc > 1 && !strcmp(argv[1], "wait")) {
        return pause();
    }
    for (unsigned i = 0; i < 1 + THREADS; i++) {
        profile_map(&rings[i], BIG_RING);
    }
    if (argc > 1 && !strcmp(argv[1], "throttled")) {
        test_throttled();
        share("25");
        return failed;
    }
    share("100");       /* to count each */
    test_self();
    test_process(0, 0, false);
    test_process(LWP_ATTACH_PROCESS, THREADS, false);
    test_thread();
    test_end();
    test_permissions();
    test_number();
    test_exec();
    test_status();
    test_features();
    share("25");
    return failed;
}
