/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What standard output is.
 */
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "terminal.h"

size_t terminal_width;

void terminal_init(void)
{
    struct winsize size;

    if (isatty(STDOUT_FILENO) &&
        ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
        terminal_width = size.ws_col;
    }
}
