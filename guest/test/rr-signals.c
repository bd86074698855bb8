/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * usage: rr-signals [CHILDREN]
 *
 * Something for rr to record: a timer's signals that interrupt a computation at
 * places that differ from run to run, and children that do the same, end by
 * signals, and tell of it through pipes.  Its output says where it was.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TICKS = 5 };

static atomic_ulong place;
static atomic_ulong heard;          /* of all places so far */
static atomic_int ticks;

static void tick(int sig)
{
    heard = heard * 31 + place + sig;
    ticks++;
}

static unsigned long compute(void)
{
    const struct itimerval on = { { 0, 5000 }, { 0, 5000 } }, off = { };

    ticks = 0;
    setitimer(ITIMER_REAL, &on, NULL);
    for (place = 0; ticks < TICKS; place++) {
        if (place % 65536 == 0) {
            getppid();
        }
    }
    setitimer(ITIMER_REAL, &off, NULL);
    return heard;
}

int main(int argc, char **argv)
{
    int children = argc > 1 ? atoi(argv[1]) : 2;
    struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
    unsigned long said;
    int fd[2], status;

    if (sigaction(SIGALRM, &action, NULL) || pipe(fd)) {
        return 1;
    }
    for (int i = 0; i < children; i++) {
        if (!fork()) {
            said = compute();
            if (write(fd[1], &said, sizeof(said)) != sizeof(said)) {
                _exit(2);
            }
            raise(i % 2 ? SIGKILL : SIGTERM);
        }
    }
    printf("parent: %lu\n", compute());
    for (int i = 0; i < children; i++) {
        if (read(fd[0], &said, sizeof(said)) != sizeof(said) ||
            wait(&status) < 0) {
            return 3;
        }
        printf("child: %lu\n", said);
        if (!WIFSIGNALED(status)) {
            return 4;
        }
    }
    return 0;
}
