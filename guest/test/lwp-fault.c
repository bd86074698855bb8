/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The driver where a CPU refuses LWP, and where a task is found at the address
 * of another one that had a state.
 *
 * usage: lwp-fault MODULE
 *
 * MODULE is the file of guest/linux/test, which makes that happen.  To be run
 * as root.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/klog.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "test.h"

static const char *module;
static const char cpu1[] = "/sys/devices/system/cpu/cpu1/online";

/* 0 or a negative error. */
static int load(const char *parameters)
{
    int fd = open(module, O_RDONLY | O_CLOEXEC), err;

    if (fd < 0) {
        die(module);
    }
    err = syscall(SYS_finit_module, fd, parameters, 0) ? -errno : 0;
    close(fd);
    return err;
}

static void unload(void)
{
    if (syscall(SYS_delete_module, "lwp_fault", O_NONBLOCK)) {
        die("delete_module");
    }
}

/* --- a CPU that refuses ---------------------------------------------------*/

/* Offline and online again: 0 or a negative error. */
static int replug(void)
{
    int err = write_string(cpu1, "0");

    for (int i = 0; !err && i < 100; i++) {
        err = write_string(cpu1, "1");
        if (err != -EBUSY) {
            break;
        }
        err = 0;
        usleep(10000);
    }
    return err;
}

static bool is_logged(const char *text)
{
    static char log[1 << 18];
    int size = klogctl(3 /* SYSLOG_ACTION_READ_ALL */, log, sizeof(log) - 1);

    log[size > 0 ? size : 0] = 0;
    return strstr(log, text);
}

/* Whether a child ends as it says itself; it is on CPU 0. */
static bool in_child(bool (*test)(void))
{
    int result;
    pid_t pid = fork();

    if (!pid) {
        run_on(0);
        _exit(test() ? 42 : 1);
    }
    return waitpid(pid, &result, 0) == pid && WIFEXITED(result) &&
           WEXITSTATUS(result) == 42;
}

static void on_ill(int sig)
{
    _exit(sig == SIGILL ? 42 : 2);
}

static bool is_illegal_there(void)
{
    handle(SIGILL, on_ill);
    run_on(1);
    __slwpcb();
    return false;
}

static bool is_lost_there(void)
{
    Profile p;

    profile_map(&p, 64);
    profile_set(&p, LWP_FLAG(LWP_IRE), INTERVAL, 0);
    profile_start(&p);
    if (__slwpcb() != p.cb) {
        return false;
    }
    run_on(1);
    spin(1000000);
    run_on(0);
    return !__slwpcb() && works_on(0);
}

static void test_refusal(void)
{
    int err = load("cpu=1");

    if (err == -EOPNOTSUPP || err == -ENOSYS) {
        printf("SKIP lwp-fault: the kernel has no kprobes\n");
        return;
    }
    check(!err, "the module is loaded: %s", strerror(-err));
    err = replug();
    check(!err, "a CPU that refuses LWP comes online: %s", strerror(-err));
    check(is_logged("lwp: CPU 1 refuses XCR0[62] or LWP_CFG: it has no LWP"),
          "the log tells of it");
    check(in_child(is_illegal_there), "LWP's instructions raise SIGILL there");
    check(in_child(is_lost_there), "a profile ends there, others do not");
    unload();
    err = replug();
    check(!err && works_on(1) && works_on(0),
          "when it does not refuse any more, it has LWP");
}

/* --- a task at the address of another -------------------------------------*/

static char state_of(pid_t pid)
{
    char path[32], state = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    f = fopen(path, "r");
    if (!f || fscanf(f, "%*d %*s %c", &state) != 1) {
        die(path);
    }
    fclose(f);
    return state;
}

/* Whether a child has its LWP after a sleep, in which it may become another. */
static bool survives(bool reused)
{
    atomic_bool *started = map_shared(sizeof(*started));
    int fds[2], result;
    char text[32];
    Profile p;
    pid_t pid;

    profile_map(&p, 64);
    profile_set(&p, LWP_FLAG(LWP_IRE), INTERVAL, 0);
    if (pipe(fds)) {
        die("pipe");
    }
    pid = fork();
    if (!pid) {
        char c;

        profile_start(&p);
        *started = true;
        result = read(fds[0], &c, 1) == 1;
        _exit(__slwpcb() == p.cb ? 42 : !result);
    }
    /* It is in read() then, and the driver has saved its LWP. */
    while (!*started || state_of(pid) != 'S') {
        usleep(10000);
    }
    snprintf(text, sizeof(text), "pid=%d", pid);
    if (reused && load(text)) {
        die("finit_module");
    }
    if (write(fds[1], "", 1) != 1 || waitpid(pid, &result, 0) != pid) {
        die("the child");
    }
    if (reused) {
        unload();
    }
    return check(WIFEXITED(result) && (WEXITSTATUS(result) == 42 ||
                                       !WEXITSTATUS(result)),
                 "a child ends by itself: status 0x%x", result) &&
           WEXITSTATUS(result) == 42;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: lwp-fault MODULE\n");
        return 2;
    }
    module = argv[1];
    test_refusal();
    check(survives(false), "a task that has slept has its LWP");
    check(!survives(true), "another one at its address has not");
    return failed;
}
