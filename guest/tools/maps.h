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

/* Whether the address is in the process's last snapshot. */
bool maps_known(int32_t pid, uint64_t address);

/* Whether it is time for another one: at most 20 in a second. */
bool maps_due(int32_t pid, double now);

/*
 * Whether the first thread's stack is there, as its address in the process
 * itself tells; if not, the process is emulated.  F is at its start then.
 */
bool maps_are_of(FILE *f, uint64_t stack);

#endif
