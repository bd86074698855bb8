/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters under TCG: a unit of performance monitoring. */

#ifndef I386_PMU_H
#define I386_PMU_H

#include "perfmon/perfmon.h"

void pmu_cpu_pre_load(X86CPU *cpu);
bool pmu_cpu_loaded(X86CPU *cpu);

/* See PerfmonUnit. */
bool pmu_cpu_event(CPUX86State *env, PerfmonEvent event);
PmuAccess pmu_cpu_msr(CPUX86State *env, uint32_t msr, uint64_t *val,
                      bool write);
PmuAccess pmu_cpu_rdpmc(CPUX86State *env, uint64_t *val);
void pmu_cpu_show(X86CPU *cpu, GString *text);
void pmu_cpu_events(X86CPU *cpu, GString *text);

extern const RetireObserver pmu_observer;

/* With pmu_tags(), the instruction of @story has retired: tag its load. */
void pebs_cpu_tag(CPUX86State *env, const RetireStory *story);

/* Store the records that pmu_pebs_due() has, of the instruction of @story. */
void pebs_cpu_store(CPUX86State *env, const RetireStory *story, uint64_t due);

#endif
