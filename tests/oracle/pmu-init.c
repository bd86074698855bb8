/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The init process of pmu-oracle's guest: has fixed counter 0 count
 * everything on the CPUs that do not do so yet, and then keeps the kernel busy.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MSR_FIXED_CTR_CTRL  0x38d
#define MSR_GLOBAL_CTRL     0x38f

/* Set bits of an MSR, if they are not set already. */
static void set_bits(int fd, off_t msr, uint64_t bits)
{
    uint64_t val;

    if (pread(fd, &val, sizeof(val), msr) != sizeof(val)) {
        perror("oracle: rdmsr");
        exit(1);
    }
    if ((val & bits) != bits) {
        val |= bits;
        if (pwrite(fd, &val, sizeof(val), msr) != sizeof(val)) {
            perror("oracle: wrmsr");
            exit(1);
        }
    }
}

static int start_all(void)
{
    int cpu;

    for (cpu = 0; ; cpu++) {
        char path[32];
        int fd;

        snprintf(path, sizeof(path), "/dev/cpu/%d/msr", cpu);
        fd = open(path, O_RDWR);
        if (fd < 0) {
            return cpu;
        }
        set_bits(fd, MSR_FIXED_CTR_CTRL, 3);
        set_bits(fd, MSR_GLOBAL_CTRL, 1ull << 32);
        close(fd);
    }
}

/* Page faults, in the middle of string instructions too, and system calls */
static void work(void)
{
    for (int i = 0; i < 50; i++) {
        size_t size = 1 << 20;
        char *p = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *from = p, *to = p + size;
        size_t left = size;
        int pipes[2];
        pid_t pid;

        if (p == MAP_FAILED || pipe(pipes)) {
            exit(1);
        }
        asm volatile("rep movsb" : "+S" (from), "+D" (to), "+c" (left)
                     : : "memory");
        pid = fork();
        if (pid == 0) {
            memset(p, i, size);
            _exit(write(pipes[1], p, 4096) != 4096);
        }
        for (int n = 0; n < 4096; ) {
            n += read(pipes[0], p + size, 4096 - n);
        }
        waitpid(pid, NULL, 0);
        close(pipes[0]);
        close(pipes[1]);
        munmap(p, 2 * size);
        sched_yield();
    }
}

int main(void)
{
    int fd, cpus;

    mount("none", "/dev", "devtmpfs", 0, NULL);
    fd = open("/msr.ko", O_RDONLY);
    if (fd < 0 || syscall(SYS_finit_module, fd, "", 0)) {
        perror("oracle: msr.ko");
        return 1;
    }
    cpus = start_all();
    for (int i = 0; i < cpus; i++) {
        if (fork() == 0) {
            work();
            _exit(0);
        }
    }
    for (int i = 0; i < cpus; i++) {
        wait(NULL);
    }
    printf("oracle: %d CPUs\n", cpus);
    fflush(stdout);
    for (;;) {
        pause();
    }
}
