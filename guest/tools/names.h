/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names of C++ that are short enough for people.
 */
#ifndef LWP_NAMES_H
#define LWP_NAMES_H

#include <stdbool.h>

/*
 * The same name without what nobody writes in the source: inline namespaces of
 * the standard library, and its templates' arguments that are as by default.
 * Both are kept text.
 */
const char *name_short(const char *name);

extern bool names_full;         /* --full-names */

static inline const char *name_shown(const char *name)
{
    return names_full ? name : name_short(name);
}

#endif
