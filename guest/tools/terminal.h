/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What standard output is, if it is for people: width, colours, a pager; and
 * how far long work has come.
 */
#ifndef LWP_TERMINAL_H
#define LWP_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* Columns to keep to; 0: lines are not cut.  After terminal_init(). */
extern size_t terminal_width;

/*
 * To be called before anything is printed that people read line by line: if
 * standard output is a terminal, it goes through a pager from then on.
 */
void terminal_init(void);

/* What comes in front of a share in per cent, and behind it. */
const char *terminal_colour(double share);
const char *terminal_plain(void);

/*
 * A part from 0 to 1 of the work is done: told on standard error, if it is a
 * terminal and this takes long.  1 removes what was told.
 */
void terminal_progress(double part);

/* Wait until people have read it. */
void terminal_finish(void);

#endif
