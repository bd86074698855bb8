/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names of C++ that are short enough for people.
 *
 * Names may be of other languages, cut off, or anything: this knows brackets,
 * and what it does not understand stays as it is.
 */
#include <stdlib.h>
#include <string.h>
#include "names.h"
#include "table.h"

bool names_full;

enum {
    ARGS = 5,               /* of a template, at most */
    DEPTH = 200,            /* of brackets */
};

typedef struct Span {
    const char *text;
    size_t length;
} Span;

typedef struct Template {
    const char *name;
    int needed;             /* arguments that have no default */
    const char *defaults[ARGS - 1];     /* $1 is the first argument */
} Template;

#define ALLOCATOR   "std::allocator<$1>"
#define PAIRS       "std::allocator<std::pair<$1 const, $2>>"
#define TRAITS      "std::char_traits<$1>"

/* As in the C++ standard, and what its maps consist of in libstdc++. */
static const Template templates[] = {
    { "std::_Rb_tree", 4, { "std::allocator<$2>" } },
    { "std::basic_filebuf", 1, { TRAITS } },
    { "std::basic_fstream", 1, { TRAITS } },
    { "std::basic_ifstream", 1, { TRAITS } },
    { "std::basic_ios", 1, { TRAITS } },
    { "std::basic_iostream", 1, { TRAITS } },
    { "std::basic_istream", 1, { TRAITS } },
    { "std::basic_istringstream", 1, { TRAITS, ALLOCATOR } },
    { "std::basic_ofstream", 1, { TRAITS } },
    { "std::basic_ostream", 1, { TRAITS } },
    { "std::basic_ostringstream", 1, { TRAITS, ALLOCATOR } },
    { "std::basic_regex", 1, { "std::regex_traits<$1>" } },
    { "std::basic_streambuf", 1, { TRAITS } },
    { "std::basic_string", 1, { TRAITS, ALLOCATOR } },
    { "std::basic_string_view", 1, { TRAITS } },
    { "std::basic_stringbuf", 1, { TRAITS, ALLOCATOR } },
    { "std::basic_stringstream", 1, { TRAITS, ALLOCATOR } },
    { "std::deque", 1, { ALLOCATOR } },
    { "std::forward_list", 1, { ALLOCATOR } },
    { "std::istreambuf_iterator", 1, { TRAITS } },
    { "std::list", 1, { ALLOCATOR } },
    { "std::map", 2, { "std::less<$1>", PAIRS } },
    { "std::match_results", 1, { "std::allocator<std::sub_match<$1>>" } },
    { "std::multimap", 2, { "std::less<$1>", PAIRS } },
    { "std::multiset", 1, { "std::less<$1>", ALLOCATOR } },
    { "std::ostreambuf_iterator", 1, { TRAITS } },
    { "std::priority_queue", 1, { "std::vector<$1>", "std::less<$1>" } },
    { "std::queue", 1, { "std::deque<$1>" } },
    { "std::set", 1, { "std::less<$1>", ALLOCATOR } },
    { "std::stack", 1, { "std::deque<$1>" } },
    { "std::unique_ptr", 1, { "std::default_delete<$1>" } },
    { "std::unordered_map", 2,
      { "std::hash<$1>", "std::equal_to<$1>", PAIRS } },
    { "std::unordered_multimap", 2,
      { "std::hash<$1>", "std::equal_to<$1>", PAIRS } },
    { "std::unordered_multiset", 1,
      { "std::hash<$1>", "std::equal_to<$1>", ALLOCATOR } },
    { "std::unordered_set", 1,
      { "std::hash<$1>", "std::equal_to<$1>", ALLOCATOR } },
    { "std::vector", 1, { ALLOCATOR } },
};

/* std::basic_x<type> has the name std::PREFIXx. */
static const struct {
    const char *type, *prefix;
    bool strings;               /* only of basic_string and _string_view */
} characters[] = {
    { "char", "", false }, { "wchar_t", "w", false }, { "char8_t", "u8", true },
    { "char16_t", "u16", true }, { "char32_t", "u32", true },
};

/* A bracket that is open in what has been written. */
typedef struct Open {
    char closing;
    size_t at;
    size_t commas[ARGS];
    int nr_commas;              /* ARGS: or more */
} Open;

static bool is_letter(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z') || c == '_' || c == '$' || c & 0x80;
}

static bool starts(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

static bool is_text(Span s, const char *text)
{
    return s.length == strlen(text) && !memcmp(s.text, text, s.length);
}

static Span trim(const char *start, const char *end)
{
    while (start < end && *start == ' ') {
        start++;
    }
    while (start < end && end[-1] == ' ') {
        end--;
    }
    return (Span) { start, end - start };
}

/* Where the name with "::" in it starts that ends at out[n]. */
static size_t name_start(const char *out, size_t n)
{
    while (n && (is_letter(out[n - 1]) || out[n - 1] == ':')) {
        n--;
    }
    return n;
}

/* Whether an argument is as by default; there may be spaces in front of '>'. */
static bool matches(Span text, const char *pattern, const Span *args)
{
    for (; *pattern; pattern++) {
        Span part = { pattern, 1 };

        if (*pattern == '$') {
            part = args[*++pattern - '1'];
        } else if (*pattern == '>') {
            text = trim(text.text, text.text + text.length);
        }
        if (text.length < part.length ||
            memcmp(text.text, part.text, part.length)) {
            return false;
        }
        text.text += part.length;
        text.length -= part.length;
    }
    return !text.length;
}

/* The standard's name of a template with this argument, to out; or 0. */
static size_t put_typedef(char *out, Span name, Span arg)
{
    static const char basic[] = "std::basic_";
    const size_t skip = sizeof(basic) - 1;
    Span rest = { name.text + skip, name.length - skip };

    if (name.length < skip || memcmp(name.text, basic, skip)) {
        return 0;
    }
    for (size_t i = 0; i < sizeof(characters) / sizeof(*characters); i++) {
        size_t n = strlen(characters[i].prefix);

        if (is_text(arg, characters[i].type) &&
            (!characters[i].strings || is_text(rest, "string") ||
             is_text(rest, "string_view"))) {
            memcpy(out + strlen("std::"), characters[i].prefix, n);
            n += strlen("std::");
            memmove(out + n, rest.text, rest.length);
            return n + rest.length;
        }
    }
    return 0;
}

/*
 * The arguments of a template end at out[n], and its bracket comes; SPACE: with
 * a space in front, which keeps it apart from another one.  Returns the new n.
 */
static size_t close_template(char *out, size_t n, const Open *open, bool space)
{
    const size_t start = name_start(out, open->at);
    const Span name = { out + start, open->at - start };
    const Template *t = NULL;
    int nr = open->nr_commas + 1;
    Span args[ARGS];
    size_t end;

    for (size_t i = 0; i < sizeof(templates) / sizeof(*templates) && !t; i++) {
        t = is_text(name, templates[i].name) ? &templates[i] : NULL;
    }
    if (t && nr <= ARGS) {
        for (int i = 0; i < nr; i++) {
            args[i] = trim(out + (i ? open->commas[i - 1] : open->at) + 1,
                           out + (i + 1 < nr ? open->commas[i] : n));
        }
        while (nr > t->needed && t->defaults[nr - 1 - t->needed] &&
               matches(args[nr - 1], t->defaults[nr - 1 - t->needed], args)) {
            n = open->commas[--nr - 1];
        }
        end = nr == 1 ? put_typedef(out + start, name, args[0]) : 0;
        if (end) {
            return start + end;
        }
    }
    if (space && out[n - 1] == '>') {
        out[n++] = ' ';
    }
    out[n++] = '>';
    return n;
}

/* How long it is with its keyword, if an operator looks like brackets; or 0. */
static size_t operator_length(const char *text)
{
    static const char *const operators[] = {
        "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "()", "[]",
        "<", ">", ",",
    };
    const size_t keyword = strlen("operator");

    for (size_t i = 0; starts(text, "operator") &&
                       i < sizeof(operators) / sizeof(*operators); i++) {
        if (starts(text + keyword, operators[i])) {
            return keyword + strlen(operators[i]);
        }
    }
    return 0;
}

/* How much of the text is an inline namespace of what is in front of it. */
static size_t inline_length(const char *text, const char *out, size_t n)
{
    static const char *const spaces[] = { "__cxx11::", "__1::", "_V2::" };
    const size_t std = strlen("std::");

    for (size_t i = 0; i < sizeof(spaces) / sizeof(*spaces); i++) {
        if (starts(text, spaces[i]) && n && out[n - 1] == ':') {
            size_t start = name_start(out, n);

            return n - start >= std && !memcmp(out + start, "std::", std) ?
                   strlen(spaces[i]) : 0;
        }
    }
    return 0;
}

/*
 * Not if it compares, as in "(1)<(2)", or stands between two functions.  What
 * follows the name of an operator does, with or without a space.
 */
static bool opens_template(const char *c, const char *out, size_t n,
                           size_t operator_end)
{
    return n == operator_end || (n == operator_end + 1 && out[n - 1] == ' ') ||
           !n || (out[n - 1] != ')' && (out[n - 1] != ' ' || c[1] != ' '));
}

/* OUT has room for the name.  False: there are too many brackets. */
static bool shorten(const char *name, char *out)
{
    static const char pairs[] = "()[]{}<>";
    size_t n = 0, skip, operator_end = SIZE_MAX - 1;
    Open open[DEPTH];
    int depth = 0;

    for (const char *c = name; *c; c++) {
        bool word = !n || !is_letter(out[n - 1]);
        const char *pair = strchr(pairs, *c);
        int outer = depth;

        skip = word ? inline_length(c, out, n) : 0;
        if (skip) {
            c += skip - 1;
            continue;
        }
        skip = word ? operator_length(c) : 0;
        if (skip) {
            memcpy(out + n, c, skip);
            n = operator_end = n + skip;
            c += skip - 1;
            continue;
        }
        if (*c == '<' ? opens_template(c, out, n, operator_end)
                      : pair && (pair - pairs) % 2 == 0) {
            if (depth == DEPTH) {
                return false;
            }
            open[depth++] = (Open) { .closing = pair[1], .at = n };
        } else if (*c == '>' && c > name && c[-1] != '-' && depth &&
                   open[depth - 1].closing == '>') {
            bool space = c > name + 1 && c[-1] == ' ' && c[-2] == '>';

            n = close_template(out, n - space, &open[--depth], space);
            continue;
        } else if (*c == ',' && depth) {
            Open *o = &open[depth - 1];

            if (o->nr_commas < ARGS) {
                o->commas[o->nr_commas++] = n;
            }
        } else if (pair && *c != '<' && *c != '>') {
            /* What was opened inside of these brackets were none. */
            while (outer && open[outer - 1].closing != *c) {
                outer--;
            }
            depth = outer ? outer - 1 : depth;
        }
        out[n++] = *c;
    }
    out[n] = 0;
    return true;
}

typedef struct Short {
    uint64_t name;
    const char *text;
} Short;

const char *name_short(const char *name)
{
    static Table shorts = TABLE(Short, text);
    const uint64_t key = (uintptr_t)name;
    Short *item;
    char *out;

    if (!strstr(name, "std::")) {
        return name;
    }
    item = table_get(&shorts, &key);
    if (!item->text) {
        out = zeroed(strlen(name) + 1, 1);
        item->text = shorten(name, out) ? keep_text(out) : name;
        free(out);
    }
    return item->text;
}
