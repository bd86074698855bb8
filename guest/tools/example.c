/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * liblwp in a nutshell: how well are the branches of qsort() predicted?
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "lwp.h"

typedef struct Branches {
    unsigned seen, wrong;
} Branches;

static void look(const LwpRecord *r, void *opaque)
{
    Branches *b = opaque;

    if (r->event == LWP_BRE && r->flags & LWP_BRANCH_PRV) {
        b->seen++;
        b->wrong += !(r->flags & LWP_BRANCH_PRD);
    }
}

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return x < y ? -1 : x > y;
}

int main(void)
{
    /* A record of one branch in 1009; instructions are only counted. */
    LwpOptions options = {
        .events = LWP_FLAG(LWP_IRE) | LWP_FLAG(LWP_BRE),
        .period = { [LWP_IRE - 1] = LWP_MAX_PERIOD, [LWP_BRE - 1] = 1009 },
        .records = 1 << 16,
    };
    static int numbers[100000];

    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        numbers[i] = rand();
    }
    for (int sorted = 0; sorted < 2; sorted++) {
        LwpSession *s = lwp_open(&options);
        Branches b = { 0 };

        if (!s || !lwp_enable(s)) {
            fprintf(stderr, "example: %s\n", lwp_strerror(errno));
            return 1;
        }
        qsort(numbers, sizeof(numbers) / sizeof(*numbers), sizeof(*numbers),
              compare);
        lwp_disable(s);

        lwp_drain(s, look, &b);
        printf("%s: %" PRIu64 " instructions, %" PRIu64 " branches, %.1f %% of "
               "%u mispredicted, %" PRIu64 " records missed\n",
               sorted ? "sorted" : "random", lwp_count(s, LWP_IRE),
               lwp_count(s, LWP_BRE),
               b.seen ? 100.0 * b.wrong / b.seen : 0, b.seen, lwp_missed(s));
        lwp_close(s);
    }
    return 0;
}
