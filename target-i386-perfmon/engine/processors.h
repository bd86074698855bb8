/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which processor it is, as far as what monitors performance goes. */
#ifndef PERFMON_PROCESSORS_H
#define PERFMON_PROCESSORS_H

#include "perfmon.h"

/* An index of units' own tables; what a table does not name is all zero. */
typedef enum PerfmonCore {
    CORE_UNKNOWN,           /* may have less than the next one */
    CORE_OTHER,             /* has the debug features that all have */
    CORE_P5, CORE_6X86MX,
    CORE_C6, CORE_WINCHIP2, CORE_C3,
    CORE_ZX,                /* all of Zhaoxin's */
    CORE_P6,
    /* These have a debug store, in this order: see below. */
    CORE_PENTIUM_M, CORE_CORE_DUO, CORE_CORE2,
    CORE_NHM, CORE_WSM,     /* Nehalem, Westmere */
    CORE_SNB, CORE_IVB,     /* Sandy Bridge, Ivy Bridge */
    CORE_HSW, CORE_BDW,     /* Haswell, Broadwell */
    CORE_SKL,               /* Skylake, Kaby Lake, Comet Lake, Cannon Lake */
    CORE_ICL,               /* Ice Lake, Tiger Lake, Rocket Lake */
    CORE_GLC,               /* Golden Cove, Redwood Cove */
    CORE_BNL,               /* Bonnell and what has its core */
    CORE_SLM,               /* Silvermont, Airmont */
    CORE_KNL,               /* Knights Landing, Knights Mill */
    CORE_GLM, CORE_GLP,     /* Goldmont, Goldmont Plus */
    CORE_TNT,               /* Tremont, Lakefield */
    CORE_CMT,               /* Crestmont */
    CORE_GRT,               /* Gracemont, Darkmont */
    CORE_ARCH,              /* Intel's that came later */
    CORE_P4, CORE_P4_MODEL2, CORE_P4_MODEL3,
    CORE_K7,                /* AMD's up to family 16h, but for 15h */
    CORE_15H, CORE_ZEN1, CORE_HYGON, CORE_ZEN2, CORE_ZEN3,
    CORE_AMD,               /* AMD's that came later */
    CORE_ZEN4, CORE_ZEN5,
    PERFMON_NR_CORES
} PerfmonCore;

/* @family and @model are those of CPUID.1:EAX with the extended fields added */
PerfmonCore perfmon_core(PmuVendor vendor, unsigned family, unsigned model);

/* The debug store: CPUID.1:EDX[21], and with 64 bits CPUID.1:ECX[2] and [4] */
static inline bool perfmon_has_ds(PerfmonCore core)
{
    return core >= CORE_PENTIUM_M && core <= CORE_ARCH;
}

static inline bool perfmon_has_ds64(PerfmonCore core)
{
    return core >= CORE_CORE2 && core <= CORE_ARCH;
}

#endif
