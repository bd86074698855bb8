/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Last branch records: what processors have. */

#include <string.h>
#include "branch-internal.h"

/*
 * CPUID.1CH, as processors have it (Linux' intel_pmu_arch_lbr_init() asks for
 * all of it), but for deep C-states and, on some, counters of events.
 */
#define LEAF_DEPTHS         0x0bu       /* EAX: 8, 16 and 32 */
#define LEAF_FILTERS        7u          /* EBX: CPL, classes, call stack */
#define LEAF_INFO           7u          /* ECX: mispredictions, cycles, types */

/* CPUID 8000_0022 */
#define V2_LBR              (1u << 1)   /* EAX */
#define V2_FREEZE           (1u << 2)
#define V2_DEPTH_SHIFT      4           /* EBX */

#define PACKED      (HAS_PACKED | HAS_DS | HAS_PREDICTED)
#define LOW         (HAS_LOW | HAS_LER | HAS_DS | HAS_DS64)
#define HIGH        (HAS_HIGH | HAS_LER | HAS_DS | HAS_DS64 | HAS_SELECT)
#define STACK       (HIGH | HAS_CALL_STACK)
#define ARCH        (HAS_ARCH | HAS_LER | HAS_DS | HAS_DS64)
#define AMD         (HAS_PAIR | HAS_AMD)

#define PINS    BRANCH_DEBUGCTL_PINS
#define TR      BRANCH_DEBUGCTL_TR
#define UNCORE  BRANCH_DEBUGCTL_UNCORE

/*
 * Where each column comes from: the manual's place, and who else has it so.
 * EDK II's are the headers in MdePkg/Include/Register/Intel/Msr; Linux' are in
 * arch/x86/events, if nothing else is said; Xen's is arch/x86/hvm/vmx/vmx.c.
 *
 * @has, of registers: SDM vol. 4, APM; Xen (Core 2, and all since then that are
 *   not architectural), Linux' intel/lbr.c (Knights Landing, architectural),
 *   EDK II's P6Msr.h, PentiumMMsr.h and CoreMsr.h; Linux' amd/lbr.c
 *   (LbrExtV2) and Xen's calc_ler_msr() in traps.c (1DDH of AMD's, from K7 on).
 *   HAS_LER_TO: SDM vol. 4's table of Pentium M alone, which is PentiumMMsr.h,
 *   too.  Xen takes 1DDH of all processors of family 6 for FROM.
 *   HAS_DS, HAS_DS64: what CPUID of such a processor says.
 *   HAS_PREDICTED: SDM 17.4.9 alone: not on Core 2 ("Core microarchitecture")
 *   and Atoms, which Knights Landing is taken for, too.
 *   HAS_CALL_STACK: SDM 17.6, 17.7, 17.9, 17.10; hsw_lbr_sel_map in Linux'
 *   intel/lbr.c, which Skylake's and Goldmont's have there, too.
 *   HAS_TR_OFF: SDM 17.5 alone.
 * @depth: SDM 17.4.8, table 17-4; Xen, Linux' intel/lbr.c; EDK II (the first
 *   three); CPUID 8000_0022 (AMD).
 * @format: SDM 17.4.8.1 and the sections of generations; FORMAT_32: EDK II.
 *   That of Core 2, Bonnell and Silvermont has no flags in intel/lbr.c, either,
 *   but whether it is FORMAT_EIP or FORMAT_LIP, nobody else tells.  Others:
 *   what intel_pmu_lbr_init() makes of each format, GoldmontMsr.h (mispredicted
 *   in FROM, cycles in TO), GoldmontPlusMsr.h (a third register), and Xen's
 *   lbr_tsx_fixup_check() (Haswell).  FORMAT_INFO2's third one has no bits of
 *   transactions: LBR_FORMAT_INFO2 there.  FORMAT_V2: Linux' amd/lbr.c.
 *   HAS_SAYS_LIP: intel_pmu_lbr_init_knl() corrects that, by a test of one.
 * @debugctl: SDM vol. 4, table 2-2, and chapter 17's figures; EDK II.
 *   UNCORE: there "06_1AH", Sandy Bridge's own table, and "what applies to
 *   Nehalem" of those since then; Intel's TDX module keeps it (from Sapphire
 *   Rapids on).  No table of an older Atom has it.
 */
static const BranchFlavour
    p6 = { "P6", HAS_PAIR, 1, FORMAT_32, PINS | TR },
    pentium_m = { "Pentium M", PACKED | HAS_LER_TO, 8, FORMAT_32, PINS | TR },
    core_duo = { "Core Duo", PACKED | HAS_LER, 8, FORMAT_32, 0 },
    core2 = { "Core 2", LOW, 4, FORMAT_EIP, 0 },
    bonnell = { "Bonnell", LOW | HAS_TR_OFF, 8, FORMAT_EIP, 0 },
    silvermont = { "Silvermont", LOW | HAS_SELECT, 8, FORMAT_EIP, 0 },
    knights = { "Knights Landing", HIGH | HAS_SAYS_LIP, 8, FORMAT_FLAGS, 0 },
    nehalem = { "Nehalem", HIGH | HAS_PREDICTED, 16, FORMAT_FLAGS, UNCORE },
    sandy_bridge = { "Sandy Bridge", HIGH | HAS_PREDICTED, 16, FORMAT_FLAGS,
                     UNCORE },
    haswell = { "Haswell", STACK | HAS_PREDICTED, 16, FORMAT_TSX, UNCORE },
    skylake = { "Skylake", STACK | HAS_INFO | HAS_PREDICTED, 32, FORMAT_INFO,
                UNCORE },
    goldmont = { "Goldmont", STACK, 32, FORMAT_TIME, 0 },
    goldmont_plus = { "Goldmont Plus", STACK | HAS_INFO, 32, FORMAT_INFO2, 0 },
    architectural = { "architectural", ARCH | HAS_PREDICTED, 32, FORMAT_ARCH,
                      UNCORE },
    gracemont = { "architectural", ARCH, 32, FORMAT_ARCH, UNCORE },
    k7 = { "K7", AMD, 1, FORMAT_32, PINS },
    zen4 = { "LbrExtV2", AMD | HAS_V2, 16, FORMAT_V2, PINS },
    nothing = { "none", HAS_NOTHING, 0, FORMAT_32, 0 };

/*
 * The first row that fits counts.  Model numbers are those of SDM vol. 4, table
 * 2-1, Linux' intel-family.h and the switch in its intel/core.c, which has all
 * but P6 and Pentium M (EDK II has these), 5DH (SilvermontMsr.h), 66H (Xen, and
 * SkylakeMsr.h), 75H, 8AH (four of its five cores; the fifth is Ice Lake's) and
 * 9DH.  AMD's are those of Linux' arch/x86/kernel/cpu/amd.c.
 */
static const struct {
    PmuVendor vendor;
    uint8_t first_family, last_family, first_model, last_model;
    const BranchFlavour *flavour;
} processors[] = {
    { PMU_VENDOR_INTEL, 6, 6, 0x09, 0x09, &pentium_m },
    { PMU_VENDOR_INTEL, 6, 6, 0x0d, 0x0d, &pentium_m },
    { PMU_VENDOR_INTEL, 6, 6, 0x00, 0x0c, &p6 },
    { PMU_VENDOR_INTEL, 6, 6, 0x0e, 0x0e, &core_duo },
    { PMU_VENDOR_INTEL, 6, 6, 0x0f, 0x0f, &core2 },
    { PMU_VENDOR_INTEL, 6, 6, 0x16, 0x17, &core2 },
    { PMU_VENDOR_INTEL, 6, 6, 0x1d, 0x1d, &core2 },
    { PMU_VENDOR_INTEL, 6, 6, 0x1c, 0x1c, &bonnell },
    { PMU_VENDOR_INTEL, 6, 6, 0x26, 0x27, &bonnell },
    { PMU_VENDOR_INTEL, 6, 6, 0x35, 0x36, &bonnell },
    { PMU_VENDOR_INTEL, 6, 6, 0x1a, 0x1a, &nehalem },
    { PMU_VENDOR_INTEL, 6, 6, 0x1e, 0x1f, &nehalem },
    { PMU_VENDOR_INTEL, 6, 6, 0x2e, 0x2e, &nehalem },
    { PMU_VENDOR_INTEL, 6, 6, 0x25, 0x25, &nehalem },    /* Westmere */
    { PMU_VENDOR_INTEL, 6, 6, 0x2c, 0x2c, &nehalem },
    { PMU_VENDOR_INTEL, 6, 6, 0x2f, 0x2f, &nehalem },
    { PMU_VENDOR_INTEL, 6, 6, 0x2a, 0x2a, &sandy_bridge },
    { PMU_VENDOR_INTEL, 6, 6, 0x2d, 0x2d, &sandy_bridge },
    { PMU_VENDOR_INTEL, 6, 6, 0x3a, 0x3a, &sandy_bridge },   /* Ivy Bridge */
    { PMU_VENDOR_INTEL, 6, 6, 0x3e, 0x3e, &sandy_bridge },
    { PMU_VENDOR_INTEL, 6, 6, 0x3c, 0x3d, &haswell },    /* and Broadwell */
    { PMU_VENDOR_INTEL, 6, 6, 0x3f, 0x3f, &haswell },
    { PMU_VENDOR_INTEL, 6, 6, 0x45, 0x47, &haswell },
    { PMU_VENDOR_INTEL, 6, 6, 0x4f, 0x4f, &haswell },
    { PMU_VENDOR_INTEL, 6, 6, 0x56, 0x56, &haswell },
    { PMU_VENDOR_INTEL, 6, 6, 0x4e, 0x4e, &skylake },
    { PMU_VENDOR_INTEL, 6, 6, 0x5e, 0x5e, &skylake },
    { PMU_VENDOR_INTEL, 6, 6, 0x55, 0x55, &skylake },
    { PMU_VENDOR_INTEL, 6, 6, 0x8e, 0x8e, &skylake },    /* Kaby Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0x9e, 0x9e, &skylake },
    { PMU_VENDOR_INTEL, 6, 6, 0xa5, 0xa6, &skylake },    /* Comet Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0x66, 0x66, &skylake },    /* Cannon Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0x6a, 0x6a, &skylake },    /* Ice Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0x6c, 0x6c, &skylake },
    { PMU_VENDOR_INTEL, 6, 6, 0x7d, 0x7e, &skylake },
    { PMU_VENDOR_INTEL, 6, 6, 0x9d, 0x9d, &skylake },
    { PMU_VENDOR_INTEL, 6, 6, 0x8c, 0x8d, &skylake },    /* Tiger Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0xa7, 0xa7, &skylake },    /* Rocket Lake */
    { PMU_VENDOR_INTEL, 6, 6, 0x37, 0x37, &silvermont },
    { PMU_VENDOR_INTEL, 6, 6, 0x4a, 0x4a, &silvermont },
    { PMU_VENDOR_INTEL, 6, 6, 0x4c, 0x4d, &silvermont },
    { PMU_VENDOR_INTEL, 6, 6, 0x5a, 0x5a, &silvermont },
    { PMU_VENDOR_INTEL, 6, 6, 0x5d, 0x5d, &silvermont },
    { PMU_VENDOR_INTEL, 6, 6, 0x75, 0x75, &silvermont },     /* Airmont */
    { PMU_VENDOR_INTEL, 6, 6, 0x57, 0x57, &knights },
    { PMU_VENDOR_INTEL, 6, 6, 0x85, 0x85, &knights },    /* Knights Mill */
    { PMU_VENDOR_INTEL, 6, 6, 0x5c, 0x5c, &goldmont },
    { PMU_VENDOR_INTEL, 6, 6, 0x5f, 0x5f, &goldmont },
    { PMU_VENDOR_INTEL, 6, 6, 0x7a, 0x7a, &goldmont_plus },
    { PMU_VENDOR_INTEL, 6, 6, 0x86, 0x86, &goldmont_plus },  /* Tremont */
    { PMU_VENDOR_INTEL, 6, 6, 0x8a, 0x8a, &goldmont_plus },  /* Lakefield */
    { PMU_VENDOR_INTEL, 6, 6, 0x96, 0x96, &goldmont_plus },
    { PMU_VENDOR_INTEL, 6, 6, 0x9c, 0x9c, &goldmont_plus },
    { PMU_VENDOR_INTEL, 6, 6, 0xaf, 0xaf, &gracemont },      /* Crestmont */
    { PMU_VENDOR_INTEL, 6, 6, 0xb6, 0xb6, &gracemont },
    { PMU_VENDOR_INTEL, 6, 6, 0xbe, 0xbe, &gracemont },
    { PMU_VENDOR_INTEL, 6, 6, 0xdd, 0xdd, &gracemont },      /* Darkmont */
    /* What came later is architectural; so is Golden Cove. */
    { PMU_VENDOR_INTEL, 6, 6, 0x10, 0xff, &architectural },
    { PMU_VENDOR_INTEL, 0x12, 0x13, 0x00, 0xff, &architectural },
    { PMU_VENDOR_AMD, 0x19, 0x19, 0x10, 0x1f, &zen4 },
    { PMU_VENDOR_AMD, 0x19, 0x19, 0x60, 0xaf, &zen4 },
    { PMU_VENDOR_AMD, 0x1a, 0x1a, 0x00, 0xff, &zen4 },   /* Zen 5 */
    { PMU_VENDOR_AMD, 0x06, 0xff, 0x00, 0xff, &k7 },
    /* Pentium 4, and processors that we do not know */
    { PMU_VENDOR_INTEL, 0x0f, 0x0f, 0x00, 0xff, &nothing },
    { PMU_VENDOR_OTHER, 0x06, 0xff, 0x00, 0xff, &nothing },
};

const BranchFlavour *branch_flavour(PmuVendor vendor, unsigned family,
                                    unsigned model)
{
    for (unsigned i = 0; i < ARRAY_SIZE(processors); i++) {
        if (vendor == processors[i].vendor &&
            family >= processors[i].first_family &&
            family <= processors[i].last_family &&
            model >= processors[i].first_model &&
            model <= processors[i].last_model) {
            return processors[i].flavour;
        }
    }
    return NULL;
}

const char *branch_flavour_name(const BranchFlavour *flavour)
{
    return flavour->name;
}

void branch_config_init(BranchConfig *config, const BranchFlavour *flavour,
                        uint32_t without)
{
    uint32_t all = flavour->has;
    bool pmu = !(without & BRANCH_WITHOUT_PMU);
    bool lbr = !(without & BRANCH_WITHOUT_LBR);
    bool bts = !(without & BRANCH_WITHOUT_BTS);

    *config = (BranchConfig) {
        .flavour = flavour,
        .pmu = pmu,
        .lbr = lbr && (all & RECORDS) && (pmu || (all & HAS_PAIR)),
        .lbr_v2 = lbr && pmu && (all & HAS_V2) &&
                  !(without & BRANCH_WITHOUT_LBR_V2),
        .ds = bts && pmu && (all & HAS_DS),
        .dtes64 = bts && pmu && (all & HAS_DS64),
        .ds_cpl = bts && pmu && (all & HAS_DS64),
        .bts_predicted = all & HAS_PREDICTED,
        .va_bits = 48,
        .insn_clocks = 1,
    };
}

uint64_t branch_perf_capabilities(const BranchConfig *config)
{
    return !config->lbr || branch_is_amd(config) ? 0 :
           config->flavour->has & HAS_SAYS_LIP ? FORMAT_LIP :
           config->flavour->format;
}

void branch_cpuid_1c(const BranchConfig *config, uint32_t regs[4])
{
    memset(regs, 0, 4 * sizeof(regs[0]));
    if (branch_has(config) & HAS_ARCH) {
        regs[0] = LEAF_DEPTHS;
        regs[1] = LEAF_FILTERS;
        regs[2] = LEAF_INFO;
    }
}

void branch_cpuid_80000022(const BranchConfig *config, uint32_t regs[4])
{
    if (config->lbr_v2) {
        regs[0] |= V2_LBR | V2_FREEZE;
        regs[1] |= (uint32_t)config->flavour->depth << V2_DEPTH_SHIFT;
    }
}

bool branch_depth_exists(uint64_t depth)
{
    return depth && depth <= BRANCH_NR && !(depth & 7) &&
           (LEAF_DEPTHS >> (depth / 8 - 1) & 1);
}
