/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a process has mapped, for the file of "lwp record".
 */
#ifndef LWP_MAPS_H
#define LWP_MAPS_H

#include "data.h"

/*
 * Write a snapshot of the process with what F has in the form of
 * /proc/PID/maps; and before, which files they are of.
 */
void maps_write(DataWriter *w, int32_t pid, FILE *f);

#endif
