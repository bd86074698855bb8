/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Text that comes from outside, made harmless for where it goes.
 */
#include <locale.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include "text.h"

/* The length of the UTF-8 sequence at text; 0 if it is none. */
static int utf8_length(const unsigned char *text)
{
    int length = *text < 0x80 ? 1 : *text >= 0xc2 && *text < 0xe0 ? 2 :
                 *text >= 0xe0 && *text < 0xf0 ? 3 :
                 *text >= 0xf0 && *text < 0xf5 ? 4 : 0;

    for (int i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    /*
     * Overlong forms, surrogates and what is beyond the last code point; what
     * controls terminals (C1), and U+FFFE and U+FFFF, which XML may not have.
     */
    if ((*text == 0xe0 && text[1] < 0xa0) || (*text == 0xed && text[1] > 0x9f)
        || (*text == 0xf0 && text[1] < 0x90)
        || (*text == 0xf4 && text[1] > 0x8f)
        || (*text == 0xc2 && text[1] < 0xa0)
        || (*text == 0xef && text[1] == 0xbf && text[2] > 0xbd)) {
        return 0;
    }
    return length;
}

/* What has to be put instead of a letter, or NULL; buffer has room for it. */
static const char *replacement(unsigned char c, TextStyle style, char *buffer)
{
    if (c < ' ' || c == 0x7f) {
        if (style != TEXT_JSON) {
            return "?";
        }
        sprintf(buffer, "\\u%04x", c);
    } else if (style == TEXT_JSON && (c == '"' || c == '\\')) {
        sprintf(buffer, "\\%c", c);
    } else if (style == TEXT_XML && strchr("<>&\"", c)) {
        sprintf(buffer, "&#%d;", c);
    } else if (style == TEXT_FOLDED && c == ';') {
        return ":";
    } else {
        return NULL;
    }
    return buffer;
}

void put_text(FILE *f, const char *text, TextStyle style)
{
    const char *start = text, *other;
    char buffer[8];

    while (*text) {
        int length = utf8_length((const unsigned char *)text);

        other = length == 0 ? "\xef\xbf\xbd" :
                length == 1 ? replacement(*text, style, buffer) : NULL;
        if (other) {
            fwrite(start, 1, text - start, f);
            fputs(other, f);
        }
        text += length ? length : 1;
        start = other ? text : start;
    }
    fwrite(start, 1, text - start, f);
}

/* Behind the letter at text; its columns are added to n. */
static const char *skip_letter(const char *text, size_t *n)
{
    static bool ready;
    int length = utf8_length((const unsigned char *)text), columns = 1;
    wchar_t letter;

    if (length > 1) {
        if (!ready) {
            setlocale(LC_CTYPE, "C.UTF-8");
            ready = true;
        }
        if (mbtowc(&letter, text, length) > 0) {
            columns = wcwidth(letter);
        }
    }
    *n += columns < 0 ? 1 : columns;
    return text + (length ? length : 1);
}

size_t text_columns(const char *text)
{
    size_t n = 0;

    while (*text) {
        text = skip_letter(text, &n);
    }
    return n;
}

size_t put_text_cut(FILE *f, const char *text, TextStyle style,
                    size_t columns)
{
    size_t width = 0, next = 0;
    const char *end = text, *rest = text;
    char *cut;

    while (*rest && (next <= columns || !columns)) {
        rest = skip_letter(rest, &next);
        if (next < columns) {
            end = rest;
            width = next;
        }
    }
    if (next <= columns || !columns) {
        put_text(f, text, style);
        return next;
    }
    cut = strndup(text, end - text);
    if (cut) {
        put_text(f, cut, style);
        free(cut);
    }
    fputs("\u2026", f);
    return width + 1;
}
