/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What standard output is, if it is for people.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "names.h"
#include "terminal.h"

#define LESS    "/usr/bin/less"

size_t terminal_width;

static bool coloured;
static pid_t pager;             /* 0: none */

static const char *pager_command(void)
{
    static const char *const names[] = { "LWP_PAGER", "PAGER" };

    for (int i = 0; i < 2; i++) {
        const char *value = getenv(names[i]);

        if (value) {
            return *value && strcmp(value, "cat") ? value : NULL;
        }
    }
    return access(LESS, X_OK) ? NULL : LESS;
}

static void start_pager(void)
{
    const char *command = pager_command();
    int fd[2];

    if (!command || pipe(fd)) {
        return;
    }
    fflush(stdout);
    pager = fork();
    if (pager == 0) {
        dup2(fd[0], STDIN_FILENO);
        close(fd[0]);
        close(fd[1]);
        /* End if it fits; keep colours and the screen. */
        setenv("LESS", "FRX", 0);
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(127);
    }
    if (pager > 0) {
        dup2(fd[1], STDOUT_FILENO);
        /* Whoever leaves the pager has seen enough. */
        signal(SIGPIPE, SIG_DFL);
    } else {
        pager = 0;
    }
    close(fd[0]);
    close(fd[1]);
}

/* A serial line does not tell how wide it is. */
static size_t find_width(void)
{
    const char *columns = getenv("COLUMNS");
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col) {
        return size.ws_col;
    }
    return columns && atoi(columns) > 0 ? atoi(columns) : 80;
}

void terminal_init(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    if (!isatty(STDOUT_FILENO)) {
        return;
    }
    terminal_width = names_full ? 0 : find_width();
    coloured = !(no && *no) && term && strcmp(term, "dumb");
    start_pager();
}

const char *terminal_colour(double share)
{
    return !coloured ? "" : share >= 5 ? "\033[31m" :
           share >= 0.5 ? "\033[32m" : "";
}

const char *terminal_plain(void)
{
    return coloured ? "\033[m" : "";
}

void terminal_progress(double part)
{
    static double start, last;
    static bool shown;
    struct timespec t;
    double now;

    clock_gettime(CLOCK_MONOTONIC, &t);
    now = t.tv_sec + t.tv_nsec / 1e9;
    if (!start) {
        start = last = now;
    }
    if (part >= 1 && shown) {
        fprintf(stderr, "\r%24s\r", "");
        shown = false;
    } else if (part < 1 && now - last >= 0.1 && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\rlwp: reading: %3.0f %%", 100 * part);
        last = now;
        shown = true;
    }
}

void terminal_finish(void)
{
    if (pager) {
        fclose(stdout);
        while (waitpid(pager, NULL, 0) < 0 && errno == EINTR) {
            continue;
        }
        pager = 0;
    }
}
