/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance monitoring: what processors there are. */

#include "processors.h"

/*
 * Intel's of family 6 by model: those of SDM vol. 4, table 2-1, of Linux'
 * intel_pmu_init() and p6_pmu_init(), and of libpfm4's lists of models, but for
 * 1FH, which libpfm4 alone has, and 16H, 4AH, 5AH, 9CH, ADH to AFH and CFH,
 * which Linux alone has, and 5DH, 66H, 75H, 8AH, 9DH, B6H, BEH and DDH, which
 * are what their cores are by Linux' intel-family.h.  One source only, a
 * manual: models of P6 that are none of 1, 3, 5 to 8, 0AH and 0BH.
 */
static const uint8_t intel_6[256] = {
    [0x00 ... 0x08] = CORE_P6, [0x0a ... 0x0c] = CORE_P6,
    [0x09] = CORE_PENTIUM_M, [0x0d] = CORE_PENTIUM_M,
    [0x0e] = CORE_CORE_DUO,
    [0x0f] = CORE_CORE2, [0x16 ... 0x17] = CORE_CORE2, [0x1d] = CORE_CORE2,
    [0x1a] = CORE_NHM, [0x1e ... 0x1f] = CORE_NHM, [0x2e] = CORE_NHM,
    [0x25] = CORE_WSM, [0x2c] = CORE_WSM, [0x2f] = CORE_WSM,
    [0x2a] = CORE_SNB, [0x2d] = CORE_SNB,
    [0x3a] = CORE_IVB, [0x3e] = CORE_IVB,
    [0x3c] = CORE_HSW, [0x3f] = CORE_HSW, [0x45 ... 0x46] = CORE_HSW,
    [0x3d] = CORE_BDW, [0x47] = CORE_BDW, [0x4f] = CORE_BDW, [0x56] = CORE_BDW,
    [0x4e] = CORE_SKL, [0x55] = CORE_SKL, [0x5e] = CORE_SKL, [0x66] = CORE_SKL,
    [0x8e] = CORE_SKL, [0x9e] = CORE_SKL, [0xa5 ... 0xa6] = CORE_SKL,
    [0x6a] = CORE_ICL, [0x6c] = CORE_ICL, [0x7d ... 0x7e] = CORE_ICL,
    [0x8c ... 0x8d] = CORE_ICL, [0x9d] = CORE_ICL, [0xa7] = CORE_ICL,
    [0x8f] = CORE_GLC, [0xad ... 0xae] = CORE_GLC, [0xcf] = CORE_GLC,
    [0x1c] = CORE_BNL, [0x26 ... 0x27] = CORE_BNL, [0x35 ... 0x36] = CORE_BNL,
    [0x37] = CORE_SLM, [0x4a] = CORE_SLM, [0x4c ... 0x4d] = CORE_SLM,
    [0x5a] = CORE_SLM, [0x5d] = CORE_SLM, [0x75] = CORE_SLM,
    [0x57] = CORE_KNL, [0x85] = CORE_KNL,
    [0x5c] = CORE_GLM, [0x5f] = CORE_GLM,
    [0x7a] = CORE_GLP,
    [0x86] = CORE_TNT, [0x8a] = CORE_TNT, [0x96] = CORE_TNT, [0x9c] = CORE_TNT,
    [0xaf] = CORE_CMT,
    [0xb6] = CORE_GRT, [0xbe] = CORE_GRT, [0xdd] = CORE_GRT,
};

/*
 * Others; the first row that fits counts.  Those of families 17h to 1Ah are
 * Linux' bsp_init_amd()'s and, up to 19h, libpfm4's; Zhaoxin's are Linux'
 * zhaoxin/core.c's.  One source only, a manual: family 5, Cyrix' and Centaur's.
 */
static const struct {
    PmuVendor vendor;
    uint8_t first_family, last_family, first_model, last_model;
    PerfmonCore core;
} processors[] = {
    { PMU_VENDOR_INTEL, 5, 5, 0x00, 0xff, CORE_P5 },
    { PMU_VENDOR_CYRIX, 6, 6, 0x00, 0xff, CORE_6X86MX },
    { PMU_VENDOR_CENTAUR, 5, 5, 0x04, 0x04, CORE_C6 },
    { PMU_VENDOR_CENTAUR, 5, 5, 0x08, 0x09, CORE_WINCHIP2 },
    { PMU_VENDOR_CENTAUR, 6, 6, 0x06, 0x09, CORE_C3 },
    { PMU_VENDOR_CENTAUR, 6, 6, 0x0f, 0x0f, CORE_ZX },
    { PMU_VENDOR_CENTAUR, 6, 6, 0x19, 0x19, CORE_ZX },
    { PMU_VENDOR_CENTAUR, 7, 7, 0x00, 0xff, CORE_ZX },
    { PMU_VENDOR_SHANGHAI, 6, 6, 0x19, 0x19, CORE_ZX },
    { PMU_VENDOR_SHANGHAI, 7, 7, 0x00, 0xff, CORE_ZX },
    { PMU_VENDOR_INTEL, 15, 15, 0x00, 0x01, CORE_P4 },
    { PMU_VENDOR_INTEL, 15, 15, 0x02, 0x02, CORE_P4_MODEL2 },
    { PMU_VENDOR_INTEL, 15, 15, 0x03, 0x06, CORE_P4_MODEL3 },
    { PMU_VENDOR_INTEL, 15, 15, 0x07, 0xff, CORE_OTHER },
    { PMU_VENDOR_INTEL, 0x12, 0x13, 0x00, 0xff, CORE_ARCH },
    { PMU_VENDOR_AMD, 0x06, 0x06, 0x00, 0xff, CORE_K7 },
    { PMU_VENDOR_AMD, 0x0f, 0x12, 0x00, 0xff, CORE_K7 },
    { PMU_VENDOR_AMD, 0x14, 0x14, 0x00, 0xff, CORE_K7 },
    { PMU_VENDOR_AMD, 0x16, 0x16, 0x00, 0xff, CORE_K7 },
    { PMU_VENDOR_AMD, 0x15, 0x15, 0x00, 0xff, CORE_15H },
    { PMU_VENDOR_AMD, 0x17, 0x17, 0x30, 0x4f, CORE_ZEN2 },
    { PMU_VENDOR_AMD, 0x17, 0x17, 0x60, 0xff, CORE_ZEN2 },
    { PMU_VENDOR_AMD, 0x17, 0x17, 0x00, 0xff, CORE_ZEN1 },
    { PMU_VENDOR_AMD, 0x18, 0x18, 0x00, 0xff, CORE_HYGON },
    { PMU_VENDOR_AMD, 0x19, 0x19, 0x10, 0x1f, CORE_ZEN4 },
    { PMU_VENDOR_AMD, 0x19, 0x19, 0x60, 0xaf, CORE_ZEN4 },
    { PMU_VENDOR_AMD, 0x19, 0x19, 0x00, 0xff, CORE_ZEN3 },
    { PMU_VENDOR_AMD, 0x1a, 0x1a, 0x00, 0xff, CORE_ZEN5 },
    { PMU_VENDOR_AMD, 0x06, 0xff, 0x00, 0xff, CORE_AMD },
    { PMU_VENDOR_OTHER, 0x06, 0xff, 0x00, 0xff, CORE_OTHER },
};

PerfmonCore perfmon_core(PmuVendor vendor, unsigned family, unsigned model)
{
    if (vendor == PMU_VENDOR_INTEL && family == 6) {
        return model > 0xff ? CORE_UNKNOWN : intel_6[model] ?: CORE_ARCH;
    }
    for (unsigned i = 0; i < sizeof(processors) / sizeof(processors[0]); i++) {
        if (vendor == processors[i].vendor &&
            family >= processors[i].first_family &&
            family <= processors[i].last_family &&
            model >= processors[i].first_model &&
            model <= processors[i].last_model) {
            return processors[i].core;
        }
    }
    return CORE_UNKNOWN;
}
