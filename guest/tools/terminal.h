/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What standard output is.
 */
#ifndef LWP_TERMINAL_H
#define LWP_TERMINAL_H

#include <stddef.h>

/* Its columns; 0: it is no terminal, or not known.  After terminal_init(). */
extern size_t terminal_width;

void terminal_init(void);

#endif
