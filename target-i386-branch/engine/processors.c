/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Last branch records: what processors have. */

#include <string.h>
#include "branch-internal.h"
#include "perfmon/engine/processors.h"

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

#define PACKED      (HAS_PACKED | HAS_PREDICTED)
#define LOW         (HAS_LOW | HAS_LER)
#define HIGH        (HAS_HIGH | HAS_LER | HAS_SELECT)
#define STACK       (HIGH | HAS_CALL_STACK)
#define ARCH        (HAS_ARCH | HAS_LER)
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
static const BranchFlavour flavours[PERFMON_NR_CORES] = {
    [CORE_P6] = { "P6", HAS_PAIR, 1, FORMAT_32, PINS | TR },
    [CORE_PENTIUM_M] = { "Pentium M", PACKED | HAS_LER_TO, 8, FORMAT_32,
        PINS | TR },
    [CORE_CORE_DUO] = { "Core Duo", PACKED | HAS_LER, 8, FORMAT_32, 0 },
    [CORE_CORE2] = { "Core 2", LOW, 4, FORMAT_EIP, 0 },
    [CORE_BNL] = { "Bonnell", LOW | HAS_TR_OFF, 8, FORMAT_EIP, 0 },
    [CORE_SLM] = { "Silvermont", LOW | HAS_SELECT, 8, FORMAT_EIP, 0 },
    [CORE_KNL] = { "Knights Landing", HIGH | HAS_SAYS_LIP, 8, FORMAT_FLAGS, 0 },
    [CORE_NHM ... CORE_WSM] = { "Nehalem", HIGH | HAS_PREDICTED, 16,
        FORMAT_FLAGS, UNCORE },
    [CORE_SNB ... CORE_IVB] = { "Sandy Bridge", HIGH | HAS_PREDICTED, 16,
        FORMAT_FLAGS, UNCORE },
    [CORE_HSW ... CORE_BDW] = { "Haswell", STACK | HAS_PREDICTED, 16,
        FORMAT_TSX, UNCORE },
    [CORE_SKL ... CORE_ICL] = { "Skylake", STACK | HAS_INFO | HAS_PREDICTED, 32,
        FORMAT_INFO, UNCORE },
    [CORE_GLM] = { "Goldmont", STACK, 32, FORMAT_TIME, 0 },
    [CORE_GLP ... CORE_TNT] = { "Goldmont Plus", STACK | HAS_INFO, 32,
        FORMAT_INFO2, 0 },
    [CORE_CMT ... CORE_GRT] = { "architectural", ARCH, 32, FORMAT_ARCH,
        UNCORE },
    [CORE_GLC] = { "architectural", ARCH | HAS_PREDICTED, 32, FORMAT_ARCH,
        UNCORE },
    [CORE_ARCH] = { "architectural", ARCH | HAS_PREDICTED, 32, FORMAT_ARCH,
        UNCORE },
    [CORE_K7 ... CORE_AMD] = { "K7", AMD, 1, FORMAT_32, PINS },
    [CORE_ZEN4 ... CORE_ZEN5] = { "LbrExtV2", AMD | HAS_V2, 16, FORMAT_V2,
        PINS },
    [CORE_P4 ... CORE_P4_MODEL3] = { "none", HAS_NOTHING, 0, FORMAT_32, 0 },
    [CORE_OTHER] = { "none", HAS_NOTHING, 0, FORMAT_32, 0 },
};

const BranchFlavour *branch_flavour(PmuVendor vendor, unsigned family,
                                    unsigned model)
{
    const BranchFlavour *f = &flavours[perfmon_core(vendor, family, model)];

    return f->name ? f : NULL;
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

    *config = (BranchConfig) {
        .flavour = flavour,
        .pmu = pmu,
        .btf = !(without & BRANCH_WITHOUT_BTF),
        .lbr = lbr && (all & RECORDS) && (pmu || (all & HAS_PAIR)),
        .lbr_v2 = lbr && pmu && (all & HAS_V2) &&
                  !(without & BRANCH_WITHOUT_LBR_V2),
        .bts_predicted = all & HAS_PREDICTED,
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
