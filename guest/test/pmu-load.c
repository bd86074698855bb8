// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * usage: pmu-load getppid | faults | sort | loads | timer NUMBER
 *
 * Do something NUMBER times, and print how many nanoseconds that took; or, for
 * the timer, by how many it was late, but for the worst in a hundred.  A fourth
 * of the loads each hits L1D, L2, L3 and memory, if these have 16 KiB, 512 KiB
 * and 8 MiB.
 */
#define _GNU_SOURCE
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE_SIZE   4096
#define PAGES       64
#define NUMBERS     10000
#define PERIOD      1000000     /* ns */

static int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void getppids(int n)
{
    while (n--) {
        syscall(SYS_getppid);
    }
}

static void faults(int n)
{
    for (int page = PAGES; n--; page++) {
        /* volatile: nobody reads what is written */
        static volatile char *pages;

        if (page == PAGES) {
            if (pages) {
                munmap((void *)pages, PAGES * PAGE_SIZE);
            }
            pages = mmap(NULL, PAGES * PAGE_SIZE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (pages == MAP_FAILED) {
                err(1, "mmap");
            }
            page = 0;
        }
        pages[page * PAGE_SIZE] = 1;
    }
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void sorts(int n)
{
    static int64_t numbers[NUMBERS];

    while (n--) {
        srand(1);
        for (int i = 0; i < NUMBERS; i++) {
            numbers[i] = rand();
        }
        qsort(numbers, NUMBERS, sizeof(numbers[0]), compare);
    }
}

/* Not inline: perf has its name. */
static void __attribute__((noinline)) loads(int n)
{
    enum { LINE = 64, LINES = 4096, PARTS = 4 };
    static const size_t size[PARTS] = { 4 << 10, 32 << 10, 2 << 20, 32 << 20 };
    /* volatile: nobody wants what is read */
    static volatile char *part[PARTS];
    size_t at[PARTS] = { 0 };

    for (int i = 0; i < PARTS; i++) {
        part[i] = aligned_alloc(LINE, size[i]);
        if (!part[i]) {
            err(1, "aligned_alloc");
        }
        memset((void *)part[i], 1, size[i]);
    }
    while (n--) {
        for (int i = 0; i < PARTS; i++) {
            volatile char *p = part[i];     /* volatile, too */
            size_t last = size[i] - 1, offset = at[i];

            for (int line = 0; line < LINES; line++) {
                (void)p[offset];
                offset = (offset + LINE) & last;
            }
            at[i] = offset;
        }
    }
}

static int64_t timer(int n)
{
    int64_t *late = calloc(n, sizeof(*late));
    int64_t at = now();

    for (int i = 0; i < n; i++) {
        struct timespec t;

        at += PERIOD;
        t.tv_sec = at / 1000000000;
        t.tv_nsec = at % 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        late[i] = now() - at;
    }
    qsort(late, n, sizeof(*late), compare);
    return late[n * 99ll / 100];
}

int main(int argc, char **argv)
{
    int n = argc == 3 ? atoi(argv[2]) : 0;
    int64_t start = now();

    if (n <= 0) {
        errx(1, "usage: pmu-load getppid | faults | sort | loads | timer "
             "NUMBER");
    }
    if (!strcmp(argv[1], "getppid")) {
        getppids(n);
    } else if (!strcmp(argv[1], "faults")) {
        faults(n);
    } else if (!strcmp(argv[1], "sort")) {
        sorts(n);
    } else if (!strcmp(argv[1], "loads")) {
        loads(n);
    } else {
        printf("%lld\n", (long long)timer(n));
        return 0;
    }
    printf("%lld\n", (long long)(now() - start));
    return 0;
}
