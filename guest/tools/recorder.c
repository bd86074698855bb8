/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Run a program with the preload library in it, and empty the rings of all its
 * threads (1.1: a process that shares the memory may do so).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../linux/lwp_ioctl.h"
#include "recorder.h"

#define LIBRARY "lwp-preload.so"

enum {
    POLL_MS = 5,            /* how often rings are looked at, at least */
    POLL_DRIVER_MS = 100,   /* the same if interrupts tell */
    ALIVE_MS = 1000,        /* how often it is asked who still lives */
};

/* The directory that the threads meet in. */

static bool make_directory(Recorder *r)
{
    const char *places[] = { "/dev/shm", getenv("TMPDIR"), "/tmp" };
    int fd;

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (places[i] && *places[i] == '/' &&
            strlen(places[i]) < sizeof(r->dir) - 16) {
            sprintf(r->dir, "%s/lwp-XXXXXX", places[i]);
            if (mkdtemp(r->dir)) {
                break;
            }
        }
        r->dir[0] = 0;
    }
    r->dir_fd = r->dir[0] ? open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) :
                -1;
    if (r->dir_fd < 0) {
        say(r, "cannot make a directory in /dev/shm or /tmp: %s",
            strerror(errno));
        return false;
    }
    r->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (r->inotify < 0 ||
        inotify_add_watch(r->inotify, r->dir, IN_MOVED_TO | IN_CREATE) < 0) {
        say(r, "cannot watch %s: %s", r->dir, strerror(errno));
        return false;
    }
    r->config.magic = SESSION_MAGIC;
    r->config.maps = !r->stat;
    fd = openat(r->dir_fd, SESSION_CONFIG, O_WRONLY | O_CREAT | O_CLOEXEC,
                0600);
    if (fd < 0 ||
        write(fd, &r->config, sizeof(r->config)) != sizeof(r->config) ||
        close(fd) != 0) {
        say(r, "cannot write %s/%s: %s", r->dir, SESSION_CONFIG,
            strerror(errno));
        return false;
    }
    return true;
}

/* Threads of programs that go on may still have left something. */
static void remove_directory(Recorder *r)
{
    DIR *d = r->dir_fd >= 0 ? fdopendir(r->dir_fd) : NULL;

    if (d) {
        for (struct dirent *e; (e = readdir(d)); ) {
            unlinkat(dirfd(d), e->d_name, 0);
        }
        closedir(d);
    }
    if (r->dir[0]) {
        rmdir(r->dir);
    }
}

/*
 * Where the preload library is: next to this program, as it is built, or in
 * ../lib/lwp, as it is installed; or below $LWP_PRELOAD, for who starts this
 * program by a dynamic linker.  That fills in $LIB, which is not the same for
 * 32-bit programs.
 */
static bool preload_path(Recorder *r, char *path, size_t size)
{
    static const char *const libs[] = {
        "lib/x86_64-linux-gnu", "lib64", "lib",
    };
    static const char *const places[] = { "", "/../lib/lwp" };
    char exe[PATH_MAX], file[PATH_MAX + 64];
    const char *dir = getenv("LWP_PRELOAD");
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

    if (dir) {
        snprintf(exe, sizeof(exe), "%s", dir);
    } else if (n < 0) {
        say(r, "cannot read /proc/self/exe: %s", strerror(errno));
        return false;
    } else {
        exe[n] = 0;
        *strrchr(exe, '/') = 0;
    }
    for (int place = 0; place < 2; place++) {
        for (int lib = 0; lib < 3; lib++) {
            snprintf(file, sizeof(file), "%s%s/%s/" LIBRARY, exe,
                     places[place], libs[lib]);
            if (access(file, R_OK) == 0) {
                if (strpbrk(exe, " :")) {
                    say(r, "a preloaded library's path may not have spaces "
                        "or colons: %s", exe);
                    return false;
                }
                snprintf(path, size, "%s%s/$LIB/" LIBRARY, exe,
                         places[place]);
                return true;
            }
        }
    }
    say(r, "cannot find lib/x86_64-linux-gnu/" LIBRARY " in %s or %s/%s",
        exe, exe, places[1] + 1);
    return false;
}

/* The command. */

/*
 * A pipe that is closed and a file that grows too large are errors of writing;
 * the rings are not left behind.
 */
static const int ignored_signals[] = { SIGPIPE, SIGXFSZ };

static void ignore_signals(Recorder *r)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN };

    for (int i = 0; i < 2; i++) {
        sigaction(ignored_signals[i], &ignore, &r->ignored[i]);
    }
}

static void restore_signals(const Recorder *r)
{
    for (int i = 0; i < 2; i++) {
        sigaction(ignored_signals[i], &r->ignored[i], NULL);
    }
}

/*
 * The library is x86 code.  Elsewhere it is for the programs of QEMU, which
 * adds to their environment what this variable has, and not for QEMU itself.
 */
#ifndef LWP_NOT_X86
#define PRELOAD_ENV     "LD_PRELOAD"
#define PRELOAD_VALUE   ""
#define PRELOAD_OTHERS  ":"
#else
#define PRELOAD_ENV     "QEMU_SET_ENV"
#define PRELOAD_VALUE   "LD_PRELOAD="
#define PRELOAD_OTHERS  ","
#endif

static bool set_environment(Recorder *r, const char *library)
{
    const char *before = getenv(PRELOAD_ENV);
    char *value;

    if (asprintf(&value, PRELOAD_VALUE "%s%s%s", library,
                 before && *before ? PRELOAD_OTHERS : "",
                 before ? before : "") < 0) {
        return false;
    }
    return setenv(PRELOAD_ENV, value, 1) == 0 &&
           setenv(SESSION_ENV, r->dir, 1) == 0;
}

static bool run_command(Recorder *r, const sigset_t *mask)
{
    char library[PATH_MAX + 64];
    int report[2], error = 0;
    ssize_t n;

    if (!preload_path(r, library, sizeof(library))) {
        return false;
    }
    r->child = pipe2(report, O_CLOEXEC) == 0 ? fork() : -1;
    if (r->child < 0) {
        say(r, "cannot start a process: %s", strerror(errno));
        return false;
    }
    if (r->child == 0) {
        restore_signals(r);
        sigprocmask(SIG_SETMASK, mask, NULL);
        if (set_environment(r, library)) {
            execvp(r->command[0], r->command);
        }
        error = errno;
        n = write(report[1], &error, sizeof(error));
        _exit(n == sizeof(error) ? 127 : 126);
    }
    close(report[1]);
    do {
        n = read(report[0], &error, sizeof(error));
    } while (n < 0 && errno == EINTR);
    close(report[0]);
    if (n > 0) {
        waitpid(r->child, NULL, 0);
        say(r, "cannot run %s: %s", r->command[0], strerror(error));
        r->status = error == ENOENT ? 127 : 126;
        return false;
    }
    return true;
}

/* The terminal's signals reach the command too; others are passed on. */
static void take_signals(Recorder *r)
{
    struct signalfd_siginfo info;
    int status;

    while (read(r->signals, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP) {
            kill(r->child, info.ssi_signo);
        }
    }
    if (wait4(r->child, &status, WNOHANG, &r->usage) == r->child) {
        r->exited = true;
        r->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        r->status = r->signal ? 128 + r->signal : WEXITSTATUS(status);
    }
}

static void follow(Recorder *r)
{
    struct pollfd fds[] = {
        { .fd = r->signals, .events = POLLIN },
        { .fd = r->inotify, .events = POLLIN },
        { .events = POLLIN },
    };
    double asked = now();
    double ticked = asked;
    uint64_t interrupts;
    int delay = 0;

    while (!r->exited) {
        bool ask = now() - asked >= ALIVE_MS / 1e3;
        int longest = !r->threads ? ALIVE_MS :
                      r->driver >= 0 && r->attached ? POLL_DRIVER_MS : POLL_MS;

        delay = r->busy ? 0 : delay < longest / 2 ? 2 * delay + 1 : longest;
        fds[2].fd = r->listening && r->attached ? r->driver : -1;
        poll(fds, 3, delay);
        r->busy = false;
        if (fds[2].revents & POLLIN &&
            read(r->driver, &interrupts, sizeof(interrupts)) < 0 &&
            errno != EAGAIN) {
            r->attached = false;
        }
        if (fds[2].revents & POLLHUP) {
            r->listening = false;   /* until another process is attached */
        }
        take_signals(r);
        take_files(r);
        look_at_threads(r, ask);
        if (ask) {
            asked = now();
        }
        if (r->tick_ms && now() - ticked >= r->tick_ms / 1e3) {
            /* If it did not run for a while, there is one for all of it. */
            ticked = now() - fmod(now() - ticked, r->tick_ms / 1e3);
            r->tick(r);
        }
    }
}

void prepare_again(Recorder *r)
{
    r->exited = false;
    r->signal = r->status = 0;
    r->nr_threads = r->nr_processes = r->unfinished = r->late = 0;
    r->confined = 0;
    memset(r->failed, 0, sizeof(r->failed));
    memset(r->counts, 0, sizeof(r->counts));
    r->records = r->missed = r->branches = r->mispredicted = 0;
    r->exhausted = r->heals = 0;
}

static struct lwp_ioc_status driver_status(const Recorder *r)
{
    struct lwp_ioc_status s = { 0 };

    if (r->driver >= 0 && ioctl(r->driver, LWP_IOC_STATUS, &s) != 0) {
        memset(&s, 0, sizeof(s));
    }
    return s;
}

bool run(Recorder *r)
{
    struct lwp_ioc_status before, after;
    sigset_t watched, mask;
    bool ok;

    if (getenv("RUNNING_UNDER_RR")) {
        say(r, "cannot profile under rr, which does not record what LWP "
            "stores");
        return false;
    }
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGQUIT);
    sigaddset(&watched, SIGTERM);
    sigaddset(&watched, SIGHUP);
    sigprocmask(SIG_BLOCK, &watched, &mask);
    r->signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (r->signals < 0) {
        say(r, "cannot wait for signals: %s", strerror(errno));
        return false;
    }
    r->driver = open(LWP_DEVICE, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    r->attached = true;
    r->listening = false;
    if (r->driver >= 0) {
        r->config.options.events |= LWP_FLAG_INT;
    }
    before = driver_status(r);
    r->start = now();
    ok = make_directory(r) && run_command(r, &mask);
    if (ok) {
        follow(r);
        r->seconds = now() - r->start;
        take_files(r);
        look_at_threads(r, true);
        end_all_threads(r);
    }
    after = driver_status(r);
    r->exhausted = after.exhausted - before.exhausted;
    r->heals = after.heals - before.heals;
    remove_directory(r);
    close(r->signals);
    close(r->inotify);
    if (r->driver >= 0) {
        close(r->driver);
    }
    r->dir_fd = r->inotify = r->driver = -1;
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return ok;
}

int with_recorder(int argc, char **argv, bool stat,
                  int (*command)(Recorder *r))
{
    Recorder *r = calloc(1, sizeof(*r));
    int status;

    if (!r) {
        fprintf(stderr, "lwp: out of memory\n");
        return 1;
    }
    r->name = argv[0];
    r->stat = stat;
    r->dir_fd = -1;
    status = parse_options(r, argc, argv);
    if (status < 0) {
        ignore_signals(r);
        status = command(r);
    }
    free(r);
    return status;
}
