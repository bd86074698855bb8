/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Text that comes from outside, made harmless for where it goes.
 */
#ifndef LWP_TEXT_H
#define LWP_TEXT_H

#include <stdio.h>

typedef enum TextStyle {
    TEXT_PLAIN,
    TEXT_JSON,
    TEXT_XML,
    TEXT_FOLDED,
} TextStyle;

void put_text(FILE *f, const char *text, TextStyle style);

#endif
