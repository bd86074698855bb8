/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Branch records under TCG: a unit of performance monitoring. */

#ifndef I386_BRANCH_H
#define I386_BRANCH_H

#include "perfmon/perfmon.h"

/* To be sent when there is anything, before "cpu/arch_lbr" */
bool branch_cpu_loaded(X86CPU *cpu);

/* See PerfmonUnit. */
bool branch_cpu_event(CPUX86State *env, PerfmonEvent event);
PmuAccess branch_cpu_msr(CPUX86State *env, uint32_t msr, uint64_t *val,
                         bool write);
void branch_cpu_task_commit(CPUX86State *env, uintptr_t ra);

/* What retires shall be observed from the next sync on if it has to be. */
void branch_cpu_add_observer(X86CPU *cpu);

#endif
