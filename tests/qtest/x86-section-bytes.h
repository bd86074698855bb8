/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A snapshot with a byte of a CPU's section changed is refused, or loads; the
 * guest can go on, and does no harm to anybody but itself.
 */

#ifndef X86_SECTION_BYTES_H
#define X86_SECTION_BYTES_H

#include "libqtest.h"

/* QEMU_VM_SUBSECTION, and the length, name and version of a subsection */
#define SECTION_HEADER_SIZE(name)   (1 + 1 + strlen(name) + 4)

/* Where the first section @name begins in the image @path. */
static size_t find_section(const char *path, const char *name)
{
    g_autofree char *header = g_strdup_printf("\x05%c%s", (int)strlen(name),
                                              name);
    g_autofree char *image = NULL;
    size_t size;
    char *pos;

    g_assert_true(g_file_get_contents(path, &image, &size, NULL));
    pos = memmem(image, size, header, strlen(header));
    g_assert_nonnull(pos);
    return pos - image;
}

/* Load it, and run what there is then for a moment; whether it is accepted. */
static bool try_snapshot(QTestState *qts, const char *snapshot,
                         const char *info)
{
    g_autofree char *text = qtest_hmp(qts, "loadvm %s", snapshot);
    g_autofree char *shown = NULL;

    qtest_qmp_assert_success(qts, "{ 'execute': 'cont' }");
    g_usleep(2000);
    qtest_qmp_assert_success(qts, "{ 'execute': 'stop' }");
    shown = qtest_hmp(qts, "%s", info);
    g_assert_cmpstr(shown, !=, "");
    return !*text;
}

/*
 * Change the section @name, which has @fields bytes behind its header, of
 * @snapshot in the image @path of a guest that has been stopped: some bytes, or
 * every one in many ways with -m slow.  @info is a monitor command that shows
 * what has been loaded.
 */
static void try_section_bytes(QTestState *qts, const char *path,
                              const char *snapshot, const char *name,
                              size_t fields, const char *info)
{
    static const uint8_t changes[] = {
        0x01, 0x80, 0xff, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x7f,
    };
    size_t start = find_section(path, name);
    size_t size = SECTION_HEADER_SIZE(name) + fields;
    unsigned accepted = 0, refused = 0;
    int fd = open(path, O_RDWR);

    g_assert_cmpint(fd, >=, 0);
    for (size_t i = 0; i < size; i += g_test_slow() ? 1 : 5) {
        int first = g_test_slow() ? 0 : i / 5 % G_N_ELEMENTS(changes);
        int end = g_test_slow() ? G_N_ELEMENTS(changes) : first + 1;
        uint8_t byte;

        g_assert_cmpint(pread(fd, &byte, 1, start + i), ==, 1);
        for (int n = first; n < end; n++) {
            uint8_t changed = byte ^ changes[n];

            g_test_message("%s: snapshot with 0x%02x for 0x%02x in byte %zu",
                           name, changed, byte, i);
            g_assert_cmpint(pwrite(fd, &changed, 1, start + i), ==, 1);
            if (try_snapshot(qts, snapshot, info)) {
                accepted++;
            } else {
                refused++;
            }
        }
        g_assert_cmpint(pwrite(fd, &byte, 1, start + i), ==, 1);
    }
    close(fd);
    g_test_message("%s: snapshots: %u accepted, %u refused", name, accepted,
                   refused);
    g_assert_cmpuint(accepted, >, 0);
    g_assert_cmpuint(refused, >, 0);
    g_assert_true(try_snapshot(qts, snapshot, info));
}

#endif
