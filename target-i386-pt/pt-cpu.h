/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Intel Processor Trace under TCG: what the files of this directory share. */

#ifndef I386_PT_CPU_H
#define I386_PT_CPU_H

#include "pt.h"

/* See PerfmonUnit. */
bool pt_cpu_event(CPUX86State *env, PerfmonEvent event);
PmuAccess pt_cpu_msr(CPUX86State *env, uint32_t msr, uint64_t *val, bool write);

void pt_cpu_task_commit(CPUX86State *env, uintptr_t ra);

/* The state that has been loaded is not bad. */
void pt_cpu_loaded(X86CPU *cpu);

#endif
