/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which processor it is, as far as what monitors performance goes. */
#ifndef PERFMON_PROCESSORS_H
#define PERFMON_PROCESSORS_H

#include "perfmon.h"

/* An index of units' own tables; what a table does not name is all zero. */
typedef enum PerfmonCore {
    CORE_UNKNOWN,           /* may have less than the next one */
    CORE_OTHER,             /* has the debug features that all have */
    CORE_P5, CORE_6X86MX, CORE_C6, CORE_WINCHIP2, CORE_C3, CORE_ZX,
    CORE_P6, CORE_PENTIUM_M, CORE_CORE_DUO, CORE_CORE2,
    CORE_NHM, CORE_WSM, CORE_SNB, CORE_IVB, CORE_HSW, CORE_BDW,
    CORE_SKL, CORE_ICL, CORE_GLC,
    CORE_BNL, CORE_SLM, CORE_KNL, CORE_GLM, CORE_GLP, CORE_TNT, CORE_CMT,
    CORE_GRT,               /* and Darkmont */
    CORE_ARCH,              /* Intel's that came later */
    CORE_P4, CORE_P4_MODEL2, CORE_P4_MODEL3,
    CORE_K7, CORE_15H, CORE_ZEN1, CORE_HYGON, CORE_ZEN2, CORE_ZEN3,
    CORE_AMD,               /* AMD's that came later */
    CORE_ZEN4,
    PERFMON_NR_CORES
} PerfmonCore;

/* @family and @model are those of CPUID.1:EAX with the extended fields added */
PerfmonCore perfmon_core(PmuVendor vendor, unsigned family, unsigned model);

#endif
