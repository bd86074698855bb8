/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Intel Processor Trace under TCG: a unit of performance monitoring. */

#ifndef I386_PT_H
#define I386_PT_H

#include "perfmon/perfmon.h"

#ifndef CONFIG_USER_ONLY
extern const PerfmonUnit pt_unit;
extern const VMStateDescription vmstate_pt;

/* CPUID.(14H,@subleaf) */
void pt_cpu_cpuid(X86CPU *cpu, uint32_t subleaf, uint32_t *eax, uint32_t *ebx,
                  uint32_t *ecx, uint32_t *edx);

/* MOV CR3 is going to retire, whether or not it has changed anything. */
void pt_cpu_write_cr3(CPUX86State *env);
#else
#define pt_cpu_cpuid(cpu, subleaf, eax, ebx, ecx, edx)
#endif

#endif
