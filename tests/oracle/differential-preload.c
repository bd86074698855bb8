/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A library to preload that profiles any program from before its main() to its
 * destructors, for tests/oracle/differential: LWPCB before and after, and the
 * ring, are written to the file DIFFERENTIAL_OUT.  DIFFERENTIAL_CB has, in
 * decimal numbers, Flags, Filters, and the intervals of events 1 to 6.
 */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "differential.h"

enum { RING_BYTES = 1 << 20 };

static uint32_t cb[CB_BYTES / 4] __attribute__((aligned(CB_BYTES)));
static uint8_t ring[RING_BYTES] __attribute__((aligned(4096)));
static int fd = -1;

static void out(const void *p, size_t n)
{
    if (write(fd, p, n) != n) {
        _exit(99);
    }
}

static void __attribute__((constructor)) start(void)
{
    const char *path = getenv("DIFFERENTIAL_OUT");
    const char *words = getenv("DIFFERENTIAL_CB");

    if (!path || !words || sscanf(words, "%u %u %u %u %u %u %u %u", &cb[0],
                                  &cb[9], &cb[32], &cb[34], &cb[36], &cb[38],
                                  &cb[40], &cb[42]) != 8) {
        _exit(99);
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    /* Table 6-1: BufferSize, BufferBase, and the counters */
    cb[1] = RING_BYTES;
    memcpy(&cb[2], &(uint64_t) { (uintptr_t)ring }, 8);
    for (int i = 33; i < 44; i += 2) {
        cb[i] = cb[i - 1];
    }
    memset(ring, RING_FILL, RING_BYTES);
    out(cb, CB_BYTES);
    asm volatile("llwpcb %0" : : "r" (cb) : "memory");
}

static void __attribute__((destructor)) stop(void)
{
    asm volatile("llwpcb %0" : : "r" (NULL) : "memory");
    out(cb, CB_BYTES);
    out(ring, RING_BYTES);
    MARK();
}
