/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the driver refuses, and how it is told: its parameters.
 *
 * usage: lwp-limits MODULE
 *
 * MODULE is the driver's file, which is loaded again with each parameter.  To
 * be run as root.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include "test.h"
#include "../linux/lwp_ioctl.h"

static const char *module;

/* Load it again: 0 or a negative error, after which it is not loaded. */
static int reload(const char *parameters)
{
    int fd, err = 0;

    if (syscall(SYS_delete_module, "lwp", O_NONBLOCK) && errno != ENOENT) {
        die("delete_module");
    }
    fd = open(module, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        die(module);
    }
    if (syscall(SYS_finit_module, fd, parameters, 0)) {
        err = -errno;
    }
    close(fd);
    return err;
}

static void test_reserve(void)
{
    static const struct {
        const char *parameter;
        int result;
    } tests[] = {
        { "reserve=0", -EINVAL },
        { "reserve=16385", -EINVAL },
        { "reserve=4294967295", -EINVAL },
        { "reserve=x", -EINVAL },
        { "reserve=1", 0 },
        { "reserve=16384", 0 },
    };

    for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        int result = reload(tests[i].parameter);

        check(result == tests[i].result, "%s: %s", tests[i].parameter,
              strerror(-result));
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: lwp-limits MODULE\n");
        return 2;
    }
    module = argv[1];
    test_reserve();
    if (reload("")) {
        die("finit_module");
    }
    return failed;
}
