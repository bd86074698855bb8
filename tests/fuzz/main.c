/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * usage: fuzz-ENGINE DIRECTORY [NUMBER]
 *
 * Where there is no libFuzzer: run its corpus, and for each file of that NUMBER
 * inputs which begin like it and go on at random.
 */

#include <stdlib.h>
#include <glib.h>
#include "fuzz.h"

int main(int argc, char **argv)
{
    g_autoptr(GError) err = NULL;
    g_autoptr(GDir) dir = g_dir_open(argc > 1 ? argv[1] : "", 0, &err);
    int number = argc > 2 ? atoi(argv[2]) : 0;
    const char *name;

    if (!dir) {
        g_error("%s", err->message);
    }
    while ((name = g_dir_read_name(dir))) {
        g_autofree char *path = g_build_filename(argv[1], name, NULL);
        g_autofree char *contents = NULL;
        uint8_t *data;
        size_t size;

        if (!g_file_get_contents(path, &contents, &size, &err)) {
            g_error("%s", err->message);
        }
        data = (uint8_t *)contents;
        LLVMFuzzerTestOneInput(data, size);
        for (int i = 0; i < number && size; i++) {
            for (size_t n = rand() % size; n < size; n++) {
                /* Small numbers and zeroes are where the decisions are. */
                data[n] = rand() % 3 ? rand() : 0;
            }
            LLVMFuzzerTestOneInput(data, size);
        }
    }
    return 0;
}
