/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How the fuzzers read their input, and say what is wrong. */

#ifndef INPUT_H
#define INPUT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* What is left */
static const uint8_t *input, *input_end;

/* A number of so many bytes, or of what there is */
static inline uint64_t take(unsigned bytes)
{
    uint64_t val = 0;

    while (bytes-- && input < input_end) {
        val = val << 8 | *input++;
    }
    return val;
}

static inline void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    abort();
}

#endif
