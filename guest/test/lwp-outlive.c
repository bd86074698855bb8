/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Programs that "lwp record" has profiled go on when it has ended and the
 * driver is gone, and end in their own way: what is preloaded into them does
 * not execute LWP instructions any more.
 *
 * usage: lwp-outlive
 *
 * To be run as root.  It unloads the driver.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "test.h"

enum { STATUS = 42 };

static char self[] = "/proc/self/exe";
static char status[] = "status";
static char *status_args[] = { self, status, NULL };

/* --- the survivors --------------------------------------------------------*/

static void *returns(void *arg)
{
    spin(1000);
    return arg;
}

static int by_exit(void)
{
    return STATUS;
}

static int by_exit_at_once(void)
{
    _exit(STATUS);
}

static int by_exec(void)
{
    execv(self, status_args);
    return 1;
}

static int by_exec_that_fails(void)
{
    execv("/nowhere", status_args);
    return STATUS;
}

/* The second call writes the map of what the first one may have loaded. */
static int after_dlopen(void)
{
    return dlopen(NULL, RTLD_NOW) && dlopen(NULL, RTLD_NOW) ? STATUS : 1;
}

static int after_thread(void)
{
    pthread_t t;

    return pthread_create(&t, NULL, returns, NULL) ||
           pthread_join(t, NULL) ? 1 : STATUS;
}

static int after_fork(void)
{
    pid_t pid = fork();
    int result;

    if (!pid) {
        exit(STATUS);
    }
    return waitpid(pid, &result, 0) == pid && WIFEXITED(result) ?
           WEXITSTATUS(result) : 1;
}

static int gate;
static atomic_uint *ready;

/* Return when the driver is gone: nothing is left to be read then. */
static void wait_for_gate(void)
{
    char c;

    ++*ready;
    while (read(gate, &c, 1) > 0) {
        continue;
    }
}

static void *waits(void *arg)
{
    wait_for_gate();
    return arg;
}

/* This thread has been profiled, too. */
static int by_thread(void)
{
    pthread_t t;

    return pthread_create(&t, NULL, waits, NULL) ||
           pthread_join(t, NULL) ? 1 : STATUS;
}

static const struct {
    const char *name;
    int (*end)(void);
} ways[] = {
    { "exits", by_exit },
    { "exits at once", by_exit_at_once },
    { "executes a program", by_exec },
    { "fails to execute a program", by_exec_that_fails },
    { "loads libraries", after_dlopen },
    { "starts a thread", after_thread },
    { "forks", after_fork },
    { "ends a thread", by_thread },
};

enum { WAYS = sizeof(ways) / sizeof(*ways) };

/* Under "lwp record": leave one process for each way, and tell who they are. */
static int launch(int pids)
{
    ready = map_shared(sizeof(*ready));
    for (unsigned i = 0; i < WAYS; i++) {
        pid_t pid = fork();

        if (pid < 0) {
            return 1;
        }
        if (!pid) {
            spin(100000);
            if (ways[i].end != by_thread) {
                wait_for_gate();
            }
            exit(ways[i].end());
        }
        if (write(pids, &pid, sizeof(pid)) != sizeof(pid)) {
            return 1;
        }
    }
    while (*ready < WAYS) {
        usleep(1000);
    }
    return 0;
}

/* --- the test -------------------------------------------------------------*/

int main(int argc, char **argv)
{
    int pids[2], gates[2], result;
    pid_t recorder, pid[WAYS];
    bool available_before;

    if (argc > 1 && !strcmp(argv[1], status)) {
        return STATUS;
    }
    if (argc > 3) {
        gate = atoi(argv[2]);
        return launch(atoi(argv[3]));
    }

    available_before = available();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (pipe(pids) || pipe2(gates, O_CLOEXEC)) {
        die("pipe");
    }
    recorder = fork();
    if (!recorder) {
        char from[12], to[12];

        /* The survivors wait for the end of the only writer, the parent. */
        fcntl(gates[0], F_SETFD, 0);
        snprintf(from, sizeof(from), "%d", gates[0]);
        snprintf(to, sizeof(to), "%d", pids[1]);
        execlp("lwp", "lwp", "record", "-o", "/dev/null", "--", argv[0],
               "launch", from, to, NULL);
        _exit(127);
    }
    if (recorder < 0 || waitpid(recorder, &result, 0) != recorder) {
        die("fork or waitpid");
    }
    check(available_before && !result &&
          read(pids[0], pid, sizeof(pid)) == sizeof(pid),
          "%u programs were profiled, and go on", WAYS);

    check(!syscall(SYS_delete_module, "lwp", O_NONBLOCK) && !available(),
          "the driver is unloaded under them");
    close(gates[1]);
    for (unsigned i = 0; i < WAYS; i++) {
        bool ok = waitpid(pid[i], &result, 0) == pid[i] &&
                  WIFEXITED(result) && WEXITSTATUS(result) == STATUS;

        check(ok, "one of them %s: status 0x%x", ways[i].name, result);
    }
    return failed;
}
