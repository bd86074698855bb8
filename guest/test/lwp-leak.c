/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LWP ends where its program does (section 8.4): new processes, threads and
 * programs find it disabled, and nothing is written any more to the LWPCB and
 * the ring of one that has been killed, has exited or has executed another
 * program, however it was profiling.
 *
 * usage: lwp-leak [ROUNDS]
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include "test.h"

enum { EVENTS = LWP_FLAG(LWP_IRE) | LWP_FLAG(LWP_BRE), EVERY = 50,
       RING = 4096 };

static char self[] = "/proc/self/exe";
static char *probe_args[] = { self, "probe", NULL };

static inline bool disabled(void)
{
    return __slwpcb() == NULL;
}

/* What an executed program does: 0 if it has no LWP, now and a while later. */
static int probe(void)
{
    if (!disabled()) {
        return 1;
    }
    for (unsigned i = 0; i < 4; i++) {
        spin(50000);
        sched_yield();
        if (!disabled()) {
            return 1;
        }
    }
    return 0;
}

static int wait_for(pid_t pid)
{
    int status;

    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        die("fork or waitpid");
    }
    return status;
}

static void start(Profile *p)
{
    profile_set(p, EVENTS, EVERY, 0);
    profile_start(p);
}

/* --- what is new ----------------------------------------------------------*/

static void *thread_disabled(void *unused)
{
    (void)unused;
    return probe() ? NULL : self;
}

static void test_new(void)
{
    Profile p;
    pthread_t t;
    void *result;
    pid_t pid;
    uint64_t records;
    int status;

    profile_map(&p, RING);

    start(&p);
    pid = fork();
    if (!pid) {
        _exit(probe());
    }
    status = wait_for(pid);
    check(status == 0 && !disabled(), "a forked child has LWP disabled");

    pid = vfork();
    if (!pid) {
        _exit(!disabled());
    }
    status = wait_for(pid);
    check(status == 0 && !disabled(), "a vforked child has LWP disabled");

    if (pthread_create(&t, NULL, thread_disabled, NULL)) {
        die("pthread_create");
    }
    pthread_join(t, &result);
    check(result && !disabled(), "a new thread has LWP disabled");

    if (posix_spawn(&pid, self, NULL, NULL, probe_args, environ)) {
        die("posix_spawn");
    }
    status = wait_for(pid);
    check(status == 0 && !disabled(), "a spawned program has LWP disabled");

    profile_stop();
    records = p.cb->head / sizeof(LwpRecord) + p.cb->missed;
    check(disabled() && records > 10,
          "the parent was profiling all the time: %" PRIu64 " records",
          records);
}

/* --- what has ended -------------------------------------------------------*/

typedef enum How { KILLED, EXITED, EXECUTED, THREAD_EXECUTED, CRASHED } How;

static const char *const how_names[] = {
    "killed", "exited", "executed a program",
    "executed a program from a second thread", "died of a signal of its own",
};

static void *execute(void *unused)
{
    (void)unused;
    execv(self, probe_args);
    _exit(3);
}

/* The child, which profiles until its end, that comes after @loops. */
static void __attribute__((noreturn)) live(Profile *p, How how, unsigned loops)
{
    pthread_t t;

    start(p);
    spin(loops);
    switch (how) {
    case KILLED:
        for (;;) {
            spin(1000);
        }
    case EXITED:
        _exit(0);
    case EXECUTED:
        execute(NULL);
        break;
    case THREAD_EXECUTED:
        if (!pthread_create(&t, NULL, execute, NULL)) {
            for (;;) {
                spin(1000);
            }
        }
        break;
    case CRASHED:
        raise(SIGILL);
        break;
    }
    _exit(3);
}

static bool ended_well(How how, int status)
{
    switch (how) {
    case KILLED:
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    case CRASHED:
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGILL;
    default:
        return status == 0;     /* of probe(), too */
    }
}

/* A process that has the mappings of the dead one and the same code. */
static int survivor(void)
{
    pid_t pid = fork();

    if (!pid) {
        for (unsigned i = 0; i < 3; i++) {
            spin(10000);
            sched_yield();
        }
        _exit(!disabled());
    }
    return wait_for(pid);
}

static void test_end(How how, unsigned rounds)
{
    const char *wrong = NULL;
    uint64_t records = 0;
    LwpCb *cb = malloc(sizeof(*cb));
    LwpRecord *ring = malloc(RING * sizeof(*ring));
    Profile p;

    if (!cb || !ring) {
        die("malloc");
    }
    profile_map(&p, RING);
    for (unsigned i = 0; i < rounds && !wrong; i++) {
        pid_t pid;

        memset(p.ring, 0, RING * sizeof(*ring));
        memset(p.cb, 0, sizeof(*cb));
        pid = fork();
        if (!pid) {
            live(&p, how, 1000 * (i % 7));
        }
        if (how == KILLED) {
            while (!__atomic_load_n(&p.cb->head, __ATOMIC_ACQUIRE)) {
                sched_yield();
            }
            kill(pid, SIGKILL);
        }
        if (!ended_well(how, wait_for(pid))) {
            wrong = "it did not end so, or the next program had LWP";
            break;
        }
        *cb = *p.cb;
        memcpy(ring, p.ring, RING * sizeof(*ring));
        if (survivor() || !disabled()) {
            wrong = "others have its LWP";
        }
        if (memcmp(cb, p.cb, sizeof(*cb)) ||
            memcmp(ring, p.ring, RING * sizeof(*ring))) {
            wrong = "its LWPCB or ring has changed";
        }
        records += cb->head / sizeof(*ring) + cb->missed;
    }
    if (!wrong && !records) {
        wrong = "nothing was profiled";
    }
    check(!wrong, "%s: %u times, %" PRIu64 " records, nothing after it%s%s",
          how_names[how], rounds, records, wrong ? ": " : "",
          wrong ? wrong : "");
    free(cb);
    free(ring);
    munmap(p.cb, 4096 + RING * sizeof(*ring));
}

int main(int argc, char **argv)
{
    unsigned rounds = 40;

    if (argc > 1 && !strcmp(argv[1], "probe")) {
        return probe();
    }
    if (argc > 1) {
        rounds = atoi(argv[1]);
    }
    check(disabled(), "LWP is disabled at the start");
    test_new();
    for (How how = KILLED; how <= CRASHED; how++) {
        test_end(how, rounds);
    }
    return failed;
}
