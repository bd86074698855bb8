/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For a program that is process 1 of Linux: counts what it does at CPL 3 with
 * counters of EVENTS, and prints that on the serial port when it ends.  A mark
 * is the first instruction that counts, and another one is in front of the
 * SYSCALL that is the last.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MSR_PMC0        0xc1
#define MSR_EVTSEL0     0x186
#define MSR_GLOBAL_CTRL 0x38f
#define EVTSEL_USR_EN   0x410000
#define MARK            "nopl 0x5a(%%rax)\n"

static const uint16_t events[] = { EVENTS };
enum { N = sizeof(events) / sizeof(events[0]) };
static int msr;

static void die(const char *what)
{
    perror(what);
    reboot(RB_AUTOBOOT);
}

/* With a mark in front of it and behind it, of which one is wanted */
static inline __attribute__((always_inline)) void global_ctrl(uint64_t val)
{
    long ret = SYS_pwrite64;
    register long offset asm("r10") = MSR_GLOBAL_CTRL;

    asm volatile(MARK "syscall\n" MARK
                 : "+a" (ret) : "D" (msr), "S" (&val), "d" (sizeof(val)),
                 "r" (offset) : "rcx", "r11", "memory");
    if (ret != sizeof(val)) {
        die("GLOBAL_CTRL");
    }
}

static void wrmsr(off_t index, uint64_t val)
{
    if (pwrite(msr, &val, sizeof(val), index) != sizeof(val)) {
        die("WRMSR");
    }
}

static void __attribute__((constructor)) start(void)
{
    int module = open("/msr.ko", O_RDONLY);

    mkdir("/dev", 0755);
    mount("none", "/dev", "devtmpfs", 0, NULL);
    if (syscall(SYS_finit_module, module, "", 0)) {
        die("msr.ko");
    }
    msr = open("/dev/cpu/0/msr", O_RDWR);
    wrmsr(MSR_GLOBAL_CTRL, 0);
    for (int i = 0; i < N; i++) {
        wrmsr(MSR_PMC0 + i, 0);         /* Linux has tried them. */
        wrmsr(MSR_EVTSEL0 + i, events[i] | EVTSEL_USR_EN);
    }
    /* Its output is nobody's. */
    dup2(open("/dev/null", O_RDWR), 1);
    global_ctrl((1 << N) - 1);
}

static void __attribute__((destructor)) stop(void)
{
    FILE *serial;

    global_ctrl(0);
    serial = fopen("/dev/ttyS0", "w");
    for (int i = 0; i < N; i++) {
        uint64_t val;

        if (pread(msr, &val, sizeof(val), MSR_PMC0 + i) != sizeof(val)) {
            die("PMC");
        }
        fprintf(serial, "%s%lu", i ? " " : "counts: ", val);
    }
    fputs("\n", serial);
    fclose(serial);
    reboot(RB_AUTOBOOT);
}
