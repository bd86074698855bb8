/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Text that comes from outside, made harmless for where it goes.
 */
#ifndef LWP_TEXT_H
#define LWP_TEXT_H

#include <stddef.h>
#include <stdio.h>

typedef enum TextStyle {
    TEXT_PLAIN,
    TEXT_JSON,
    TEXT_XML,
    TEXT_FOLDED,
} TextStyle;

void put_text(FILE *f, const char *text, TextStyle style);

/* How many columns of a terminal it needs. */
size_t text_columns(const char *text);

/*
 * The same, but at most COLUMNS wide, with a mark if it is cut; 0: whole.
 * Returns how wide.
 */
size_t put_text_cut(FILE *f, const char *text, TextStyle style,
                    size_t columns);

#endif
