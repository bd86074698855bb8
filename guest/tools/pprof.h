/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lwp script --pprof.
 */
#ifndef LWP_PPROF_H
#define LWP_PPROF_H

#include "profile.h"

/* False, with errno set, if the file could not be written. */
bool pprof_write(const char *path, const Profile *p);

#endif
