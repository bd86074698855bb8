/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linux, which does not know LWP's bit in XCR0, clears it when it resumes from
 * suspend to RAM.  The driver finds out at the next task switch, and counts it;
 * LWP works again then, and "lwp record" tells that it was lost.
 *
 * To be run as root.
 */
#define _GNU_SOURCE
#include <sys/ioctl.h>
#include <sys/wait.h>
#include "test.h"
#include "../linux/lwp_ioctl.h"

static const char alarm_clock[] = "/sys/class/rtc/rtc0/wakealarm";

static uint64_t heals(void)
{
    struct lwp_ioc_status s;
    int fd = open(LWP_DEVICE, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || ioctl(fd, LWP_IOC_STATUS, &s)) {
        die(LWP_DEVICE);
    }
    close(fd);
    return s.heals;
}

/* Sleep for some seconds; 0 or a negative error. */
static int suspend(void)
{
    int err = write_string(alarm_clock, "0");

    err = err ? err : write_string(alarm_clock, "+3");
    return err ? err : write_string("/sys/power/state", "mem");
}

/* What "lwp record" says of a program that suspends the machine. */
static bool is_told(char *self)
{
    char text[4096];
    int fds[2], result;
    ssize_t size = 0, n;
    pid_t pid;

    if (pipe(fds)) {
        die("pipe");
    }
    pid = fork();
    if (!pid) {
        dup2(fds[1], 2);
        execlp("lwp", "lwp", "record", "-o", "/dev/null", "--", "sh", "-c",
               "/bin/bzip2 -kc text > /dev/null; \"$0\" suspend", self, NULL);
        _exit(127);
    }
    close(fds[1]);
    while ((n = read(fds[0], text + size, sizeof(text) - 1 - size)) > 0) {
        size += n;
    }
    text[size] = 0;
    close(fds[0]);
    return waitpid(pid, &result, 0) == pid && !result &&
           strstr(text, "lwp record: LWP was found off ");
}

int main(int argc, char **argv)
{
    uint64_t before = heals(), after;
    int err;

    if (argc > 1) {
        return suspend() != 0;
    }
    if (access(alarm_clock, W_OK)) {
        printf("SKIP lwp-resume: nothing would wake this guest up\n");
        return 0;
    }
    check(works_on(1) && works_on(0), "LWP works on both CPUs");
    err = suspend();
    check(!err, "the machine was suspended to RAM: %s", strerror(-err));
    usleep(10000);
    after = heals();
    check(after > before, "LWP was found off %" PRIu64 " times",
          after - before);
    check(works_on(0) && works_on(1), "it works on both CPUs again");
    check(is_told(argv[0]), "\"lwp record\" tells when that has happened");
    return failed;
}
