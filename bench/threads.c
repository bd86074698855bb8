// SPDX-License-Identifier: GPL-2.0-or-later
/* usage: threads N.  Makes N threads, one behind the other: each is a CPU. */

#include <pthread.h>
#include <stdlib.h>

static void *work(void *arg)
{
    return arg;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1;

    for (int i = 0; i < n; i++) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, work, NULL) ||
            pthread_join(thread, NULL)) {
            return EXIT_FAILURE;
        }
    }
    return EXIT_SUCCESS;
}
