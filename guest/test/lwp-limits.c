/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the driver refuses, and how it is told: its parameters; how much of a
 * CPU programs can take by threshold interrupts; who is charged for memory;
 * that IRQs are on while many listeners are detached.
 *
 * usage: lwp-limits MODULE
 *
 * MODULE is the driver's file, which is loaded again with each parameter.  To
 * be run as root.
 */
#define _GNU_SOURCE
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
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
        { "mode=01000", -EINVAL },
    };

    for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        int result = reload(tests[i].parameter);

        check(result == tests[i].result, "%s: %s", tests[i].parameter,
              strerror(-result));
    }
}

/* Who may open /dev/lwp. */
static void test_mode(void)
{
    enum { USER = 1000 };
    struct stat st;
    int result;
    pid_t pid;

    check(!stat(LWP_DEVICE, &st) && (st.st_mode & 0777) == 0666,
          "everyone may open " LWP_DEVICE);
    check(!reload("mode=0640") && !stat(LWP_DEVICE, &st) &&
          (st.st_mode & 0777) == 0640, "mode=0640: root and a group may");
    pid = fork();
    if (!pid) {
        if (setgroups(0, NULL) || setgid(USER) || setuid(USER)) {
            _exit(2);
        }
        _exit(open(LWP_DEVICE, O_RDONLY) >= 0 || errno != EACCES);
    }
    check(waitpid(pid, &result, 0) == pid && !result, "others may not");
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
        __atomic_store_n(&p->cb->tail,
                         __atomic_load_n(&p->cb->head, __ATOMIC_ACQUIRE),
                         __ATOMIC_RELEASE);
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
        { "a process", PLAIN, 1, 2000000 },
        { "a process that executes LLWPCB again and again", LOAD, 1, 500000 },
        { "processes", PLAIN, FLOODERS, 2000000 },
        { "processes that take turns", STOP, FLOODERS, 10000 },
    };
    char parameter[32];

    snprintf(parameter, sizeof(parameter), "max_share=%d", SHARE);
    if (reload(parameter)) {
        die("finit_module");
    }
    run_on(0);

    for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        unsigned processes = tests[i].processes, inserts = tests[i].inserts;
        double quiet = shortest(tests[i].flood, 0, processes, inserts), loud;
        struct lwp_ioc_status before = status(), after;

        loud = shortest(tests[i].flood, LWP_FLAG_INT, processes, inserts);
        after = status();
        /* More than once in each of the three. */
        check(after.throttles - before.throttles > 3 &&
              after.interrupts > before.interrupts &&
              after.interrupts - before.interrupts < 3 * inserts / 2,
              "%s: %" PRIu64 " interrupts of %u, throttled %" PRIu64 " times",
              tests[i].what, after.interrupts - before.interrupts, 3 * inserts,
              after.throttles - before.throttles);
        /*
         * It should be 10 in 9, but the host's load comes and goes; those who
         * take turns depend on it most.
         */
        check(loud < 3 * quiet || tests[i].flood == STOP,
              "%s: %.3f s without interrupts, %.3f s with", tests[i].what,
              quiet, loud);
    }
}

/* --- memory ---------------------------------------------------------------*/

enum { THREADS = 400, STATE = 1024 };

static const char cgroups[] = "/tmp/cgroups";
static pthread_barrier_t barrier;

/* The driver exchanges the first state at a later switch. */
static void *use_lwp(void *opaque)
{
    Profile *p = opaque;

    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    profile_set(p, LWP_FLAG(LWP_IRE), INTERVAL, 0);
    profile_start(p);
    for (unsigned i = 0; i < 20; i++) {
        usleep(20000);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    profile_stop();
    return NULL;
}

/* Of a line "NAME NUMBER" in the group's @file. */
static long long in_group(const char *file, const char *name)
{
    char path[64], word[32];
    long long value = -1;
    FILE *f;

    snprintf(path, sizeof(path), "%s/lwp/%s", cgroups, file);
    f = fopen(path, "r");
    if (!f) {
        die(path);
    }
    while (fscanf(f, "%31s %lld", word, &value) == 2 && strcmp(word, name)) {
        value = -1;
    }
    fclose(f);
    return value;
}

static void group_write(const char *file, const char *s)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/%s", cgroups, file);
    if (write_string(path, s)) {
        die(path);
    }
}

/* What the group has, when it is @sign-wise beyond @bytes, or after 5 s. */
static long long slab_until(long long bytes, int sign)
{
    long long value = 0;

    for (unsigned i = 0; i < 50; i++) {
        value = in_group("memory.stat", "slab_unreclaimable");
        if (sign * (value - bytes) >= 0) {
            break;
        }
        usleep(100000);
    }
    return value;
}

static void test_memory(void)
{
    static pthread_t threads[THREADS];
    static Profile p[THREADS];
    char path[64];
    long long before, used, freed;
    uint64_t lost;

    if (reload("reserve=1024")) {
        die("finit_module");
    }
    mkdir(cgroups, 0755);
    snprintf(path, sizeof(path), "%s/lwp", cgroups);
    if (mount("cgroup2", cgroups, "cgroup2", 0, NULL)) {
        die("mount");
    }
    group_write("cgroup.subtree_control", "+memory");
    if (mkdir(path, 0755)) {
        die(path);
    }
    group_write("lwp/cgroup.procs", "0");
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    lost = status().exhausted;
    for (unsigned i = 0; i < THREADS; i++) {
        profile_map(&p[i], 64);
        if (pthread_create(&threads[i], NULL, use_lwp, &p[i])) {
            die("pthread_create");
        }
    }
    pthread_barrier_wait(&barrier);
    before = in_group("memory.stat", "slab_unreclaimable");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    used = slab_until(before + THREADS * STATE, 1) - before;
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    check(used >= THREADS * STATE, "the states of %d threads: their memory "
          "cgroup is charged for %lld bytes", THREADS, used);
    freed = before + used - slab_until(before + used - THREADS * STATE, -1);
    check(freed >= THREADS * STATE, "when they have ended: for %lld less",
          freed);
    check(status().exhausted == lost, "none has lost its LWP");

    group_write("cgroup.procs", "0");
}

/* More than fits into what the kernel has charged a group for in advance. */
enum { CROWD = 1200 };

static pthread_barrier_t crowd_barrier;
static atomic_uint losers;

static void *lose_lwp(void *opaque)
{
    Profile *p = opaque;

    pthread_barrier_wait(&crowd_barrier);
    pthread_barrier_wait(&crowd_barrier);
    profile_set(p, LWP_FLAG(LWP_IRE), INTERVAL, 0);
    profile_start(p);
    for (unsigned i = 0; i < 20; i++) {
        usleep(50000);
    }
    losers += !__slwpcb();
    pthread_barrier_wait(&crowd_barrier);
    profile_stop();
    return NULL;
}

/* Tell when all memory is there, wait, and tell how many lost their LWP. */
static void __attribute__((noreturn)) crowd(int from, int to)
{
    static pthread_t thread[CROWD];
    static Profile p[CROWD];
    pthread_attr_t attr;
    unsigned n;
    char c;

    group_write("lwp/cgroup.procs", "0");
    pthread_barrier_init(&crowd_barrier, NULL, CROWD + 1);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 65536);
    for (unsigned i = 0; i < CROWD; i++) {
        profile_map(&p[i], 64);
        memset(p[i].cb, 0, 4096 + 64 * sizeof(LwpRecord));
        if (pthread_create(&thread[i], &attr, lose_lwp, &p[i])) {
            _exit(1);
        }
    }
    pthread_barrier_wait(&crowd_barrier);
    if (write(to, "", 1) != 1 || read(from, &c, 1) != 1) {
        _exit(2);
    }
    pthread_barrier_wait(&crowd_barrier);
    pthread_barrier_wait(&crowd_barrier);
    n = losers;
    _exit(write(to, &n, sizeof(n)) != sizeof(n));
}

/* A group that has no room for states: who needs one goes on without LWP. */
static void test_full_group(void)
{
    int there[2], back[2], result;
    unsigned lost = 0;
    uint64_t before, counted;
    char line[32] = "";
    pid_t pid;
    Profile p;
    bool ok;
    char c;
    int fd;

    if (reload("reserve=1024") || pipe(there) || pipe(back)) {
        die("test_full_group");
    }
    before = status().exhausted;
    pid = fork();
    if (!pid) {
        crowd(there[0], back[1]);
    }
    close(back[1]);
    ok = read(back[0], &c, 1) == 1;
    fd = open("/tmp/cgroups/lwp/memory.current", O_RDONLY);
    ok = ok && read(fd, line, sizeof(line) - 1) > 0;
    close(fd);
    group_write("lwp/memory.max", line);
    ok = ok && write(there[1], "", 1) == 1 &&
         read(back[0], &lost, sizeof(lost)) == sizeof(lost);
    check(waitpid(pid, &result, 0) == pid && ok && !result,
          "%d threads of a group without room for states go on: status 0x%x",
          CROWD, result);
    counted = status().exhausted - before;
    check(lost && lost < CROWD && counted >= lost,
          "%u of them have lost their LWP, and %" PRIu64 " are counted", lost,
          counted);
    group_write("lwp/memory.max", "max");
    profile_map(&p, 64);
    profile_set(&p, LWP_FLAG(LWP_IRE), INTERVAL, 0);
    profile_start(&p);
    usleep(100000);
    check(__slwpcb() == p.cb, "others have theirs");
    profile_stop();
}

/* --- detaching ------------------------------------------------------------*/

enum { ATTACHED = 2000 };

static const char tracing[] = "/tmp/tracing";
static atomic_uint attached;

static int trace_set(const char *file, const char *s)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/%s", tracing, file);
    return write_string(path, s);
}

static void *attach_self(void *opaque)
{
    struct lwp_ioc_attach a = { .eventfd = -1 };

    attached += !ioctl(*(int *)opaque, LWP_IOC_ATTACH, &a);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

/* How often the driver's function was called, and in @off, with IRQs off. */
static unsigned count_traced(const char *function, unsigned *off)
{
    char line[256], path[64];
    unsigned n = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/trace", tracing);
    f = fopen(path, "r");
    if (!f) {
        die(path);
    }
    *off = 0;
    while (fgets(line, sizeof(line), f)) {
        /* TASK-PID [CPU] FLAGS TIME: FUNCTION <-CALLER */
        const char *flags = strstr(line, "] ");

        if (*line != '#' && flags && strstr(flags, function)) {
            n++;
            *off += flags[2] == 'd' || flags[2] == 'D';
        }
    }
    fclose(f);
    return n;
}

/* A file with many listeners is closed: as many may wait as are let in. */
static void test_detach(void)
{
    static const char function[] = "listener_remove";
    static pthread_t thread[ATTACHED];
    pthread_attr_t attr;
    unsigned n, off;
    char line[32];
    int fd, err;

    if (reload("")) {
        die("finit_module");
    }
    mkdir(tracing, 0755);
    if (mount("tracefs", tracing, "tracefs", 0, NULL)) {
        die("mount");
    }
    /* It is taken at once if a line ends there. */
    snprintf(line, sizeof(line), "%s\n", function);
    err = trace_set("set_ftrace_filter", line);
    if (err == -ENOENT) {
        printf("SKIP lwp-limits: the kernel cannot trace functions\n");
        return;
    }
    if (!check(!err, "%s can be traced: %s", function, strerror(-err))) {
        return;
    }
    fd = open(LWP_DEVICE, O_RDONLY | O_CLOEXEC);
    pthread_barrier_init(&barrier, NULL, ATTACHED + 1);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 65536);
    for (unsigned i = 0; i < ATTACHED; i++) {
        if (pthread_create(&thread[i], &attr, attach_self, &fd)) {
            die("pthread_create");
        }
    }
    pthread_barrier_wait(&barrier);
    if (trace_set("current_tracer", "function")) {
        die("current_tracer");
    }
    close(fd);
    n = count_traced(function, &off);
    trace_set("current_tracer", "nop");
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < ATTACHED; i++) {
        pthread_join(thread[i], NULL);
    }
    check(attached == ATTACHED && n == ATTACHED && !off,
          "IRQs are on while %u listeners are detached: off for %u of %u",
          attached, off, n);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: lwp-limits MODULE\n");
        return 2;
    }
    module = argv[1];
    test_parameters();
    if (reload("")) {
        die("finit_module");
    }
    test_mode();
    test_throttle();
    test_memory();
    test_full_group();
    test_detach();
    if (reload("")) {
        die("finit_module");
    }
    return failed;
}
