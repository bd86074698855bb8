/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance monitoring: what processors there are. */

#include "processors.h"

/*
 * The first row that fits counts.  Intel's rows of family 6 are those of SDM
 * vol. 4, table 2-1, of Linux' intel_pmu_init() and p6_pmu_init(), and of
 * libpfm4's lists of models, but for 1FH, which libpfm4 alone has, and 16H,
 * 4AH, 5AH, 9CH, ADH to AFH and CFH, which Linux alone has, and 5DH, 66H, 75H,
 * 8AH and 9DH, which are what their cores are by Linux' intel-family.h; so are
 * B6H, BEH and DDH.  Those of families 17h to 1Ah are Linux' bsp_init_amd()'s
 * and, up to 19h, libpfm4's; Zhaoxin's are Linux' zhaoxin/core.c's.  One source
 * only, a manual: family 5, Cyrix' and Centaur's others, and models of P6 that
 * are none of 1, 3, 5 to 8, 0AH and 0BH.
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
    { PMU_VENDOR_CENTAUR, 6, 6, 0x0f, 0x0f, CORE_ZX },   /* ZX-C */
    { PMU_VENDOR_CENTAUR, 6, 6, 0x19, 0x19, CORE_ZX },
    { PMU_VENDOR_CENTAUR, 7, 7, 0x00, 0xff, CORE_ZX },
    { PMU_VENDOR_SHANGHAI, 6, 6, 0x19, 0x19, CORE_ZX },
    { PMU_VENDOR_SHANGHAI, 7, 7, 0x00, 0xff, CORE_ZX },
    { PMU_VENDOR_INTEL, 6, 6, 0x09, 0x09, CORE_PENTIUM_M },
    { PMU_VENDOR_INTEL, 6, 6, 0x0d, 0x0d, CORE_PENTIUM_M },
    { PMU_VENDOR_INTEL, 6, 6, 0x00, 0x0c, CORE_P6 },
    { PMU_VENDOR_INTEL, 6, 6, 0x0e, 0x0e, CORE_CORE_DUO },
    { PMU_VENDOR_INTEL, 6, 6, 0x0f, 0x0f, CORE_CORE2 },
    { PMU_VENDOR_INTEL, 6, 6, 0x16, 0x17, CORE_CORE2 },
    { PMU_VENDOR_INTEL, 6, 6, 0x1d, 0x1d, CORE_CORE2 },
    { PMU_VENDOR_INTEL, 6, 6, 0x1a, 0x1a, CORE_NHM },
    { PMU_VENDOR_INTEL, 6, 6, 0x1e, 0x1f, CORE_NHM },
    { PMU_VENDOR_INTEL, 6, 6, 0x2e, 0x2e, CORE_NHM },
    { PMU_VENDOR_INTEL, 6, 6, 0x25, 0x25, CORE_WSM },
    { PMU_VENDOR_INTEL, 6, 6, 0x2c, 0x2c, CORE_WSM },
    { PMU_VENDOR_INTEL, 6, 6, 0x2f, 0x2f, CORE_WSM },
    { PMU_VENDOR_INTEL, 6, 6, 0x2a, 0x2a, CORE_SNB },
    { PMU_VENDOR_INTEL, 6, 6, 0x2d, 0x2d, CORE_SNB },
    { PMU_VENDOR_INTEL, 6, 6, 0x3a, 0x3a, CORE_IVB },
    { PMU_VENDOR_INTEL, 6, 6, 0x3e, 0x3e, CORE_IVB },
    { PMU_VENDOR_INTEL, 6, 6, 0x3c, 0x3c, CORE_HSW },
    { PMU_VENDOR_INTEL, 6, 6, 0x3f, 0x3f, CORE_HSW },
    { PMU_VENDOR_INTEL, 6, 6, 0x45, 0x46, CORE_HSW },
    { PMU_VENDOR_INTEL, 6, 6, 0x3d, 0x3d, CORE_BDW },
    { PMU_VENDOR_INTEL, 6, 6, 0x47, 0x47, CORE_BDW },
    { PMU_VENDOR_INTEL, 6, 6, 0x4f, 0x4f, CORE_BDW },
    { PMU_VENDOR_INTEL, 6, 6, 0x56, 0x56, CORE_BDW },
    { PMU_VENDOR_INTEL, 6, 6, 0x4e, 0x4e, CORE_SKL },
    { PMU_VENDOR_INTEL, 6, 6, 0x5e, 0x5e, CORE_SKL },
    { PMU_VENDOR_INTEL, 6, 6, 0x55, 0x55, CORE_SKL },
    { PMU_VENDOR_INTEL, 6, 6, 0x8e, 0x8e, CORE_SKL },    /* Kaby Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0x9e, 0x9e, CORE_SKL },
    { PMU_VENDOR_INTEL, 6, 6, 0xa5, 0xa6, CORE_SKL },    /* Comet Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0x66, 0x66, CORE_SKL },    /* Cannon Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0x6a, 0x6a, CORE_ICL },
    { PMU_VENDOR_INTEL, 6, 6, 0x6c, 0x6c, CORE_ICL },
    { PMU_VENDOR_INTEL, 6, 6, 0x7d, 0x7e, CORE_ICL },
    { PMU_VENDOR_INTEL, 6, 6, 0x9d, 0x9d, CORE_ICL },
    { PMU_VENDOR_INTEL, 6, 6, 0x8c, 0x8d, CORE_ICL },    /* Tiger Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0xa7, 0xa7, CORE_ICL },    /* Rocket Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0x8f, 0x8f, CORE_GLC },
    { PMU_VENDOR_INTEL, 6, 6, 0xcf, 0xcf, CORE_GLC },
    { PMU_VENDOR_INTEL, 6, 6, 0xad, 0xae, CORE_GLC },    /* Redwood Cove */
    { PMU_VENDOR_INTEL, 6, 6, 0x1c, 0x1c, CORE_BNL },
    { PMU_VENDOR_INTEL, 6, 6, 0x26, 0x27, CORE_BNL },
    { PMU_VENDOR_INTEL, 6, 6, 0x35, 0x36, CORE_BNL },
    { PMU_VENDOR_INTEL, 6, 6, 0x37, 0x37, CORE_SLM },
    { PMU_VENDOR_INTEL, 6, 6, 0x4a, 0x4a, CORE_SLM },
    { PMU_VENDOR_INTEL, 6, 6, 0x4c, 0x4d, CORE_SLM },
    { PMU_VENDOR_INTEL, 6, 6, 0x5a, 0x5a, CORE_SLM },
    { PMU_VENDOR_INTEL, 6, 6, 0x5d, 0x5d, CORE_SLM },
    { PMU_VENDOR_INTEL, 6, 6, 0x75, 0x75, CORE_SLM },    /* Airmont */
    { PMU_VENDOR_INTEL, 6, 6, 0x57, 0x57, CORE_KNL },
    { PMU_VENDOR_INTEL, 6, 6, 0x85, 0x85, CORE_KNL },    /* Knights Mill */
    { PMU_VENDOR_INTEL, 6, 6, 0x5c, 0x5c, CORE_GLM },
    { PMU_VENDOR_INTEL, 6, 6, 0x5f, 0x5f, CORE_GLM },
    { PMU_VENDOR_INTEL, 6, 6, 0x7a, 0x7a, CORE_GLP },
    { PMU_VENDOR_INTEL, 6, 6, 0x86, 0x86, CORE_TNT },
    { PMU_VENDOR_INTEL, 6, 6, 0x8a, 0x8a, CORE_TNT },    /* Lakefield */
    { PMU_VENDOR_INTEL, 6, 6, 0x96, 0x96, CORE_TNT },
    { PMU_VENDOR_INTEL, 6, 6, 0x9c, 0x9c, CORE_TNT },
    { PMU_VENDOR_INTEL, 6, 6, 0xaf, 0xaf, CORE_CMT },
    { PMU_VENDOR_INTEL, 6, 6, 0xb6, 0xb6, CORE_GRT },
    { PMU_VENDOR_INTEL, 6, 6, 0xbe, 0xbe, CORE_GRT },
    { PMU_VENDOR_INTEL, 6, 6, 0xdd, 0xdd, CORE_GRT },    /* Darkmont */
    /* What came later is architectural. */
    { PMU_VENDOR_INTEL, 6, 6, 0x10, 0xff, CORE_ARCH },
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
    { PMU_VENDOR_AMD, 0x1a, 0x1a, 0x00, 0xff, CORE_ZEN4 },/* Zen 5 */
    { PMU_VENDOR_AMD, 0x06, 0xff, 0x00, 0xff, CORE_AMD },
    { PMU_VENDOR_OTHER, 0x06, 0xff, 0x00, 0xff, CORE_OTHER },
};

PerfmonCore perfmon_core(PmuVendor vendor, unsigned family, unsigned model)
{
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
