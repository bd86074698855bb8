/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Last branch records of x86 processors: see branch.h. */

#include <string.h>
#include "branch.h"

#define DEBUGCTL_BTS        (BRANCH_DEBUGCTL_TR | BRANCH_DEBUGCTL_BTS | \
                             BRANCH_DEBUGCTL_BTINT)
#define DEBUGCTL_BTS_OFF    (BRANCH_DEBUGCTL_BTS_OFF_OS | \
                             BRANCH_DEBUGCTL_BTS_OFF_USR)

/* MSR_LBR_SELECT (SDM 17.7.2, 17.9): what is left out; and a mode */
#define SELECT_OS           (1u << 0)
#define SELECT_USR          (1u << 1)
#define SELECT_ALL          0x1ffu
#define SELECT_CALL_STACK   (1u << 9)

/* IA32_LBR_CTL: what is not */
#define CTL_ENABLE          (1u << 0)
#define CTL_OS              (1u << 1)
#define CTL_USR             (1u << 2)
#define CTL_CALL_STACK      (1u << 3)
#define CTL_ALL             0x7f000fu

#define CFG_LBRV2EN         (1u << 6)   /* DBG_EXTN_CFG */

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

/* What is in records, beside two addresses */
#define MISPREDICTED        (1ull << 63)
#define TSX_FLAGS           (3ull << 61)    /* FROM, with FORMAT_TSX */
#define TIME_SHIFT          48              /* TO, with FORMAT_TIME */
#define INFO_VALID          (1ull << 60)    /* and FORMAT_ARCH */
#define INFO_TYPE_SHIFT     56
#define INFO_TYPE_OTHER     8ull
#define CYCLES_MAX          0xffffull
#define V2_IP_BITS          58
#define V2_VALID            (1ull << 63)    /* TO, with FORMAT_V2 */
#define V2_TO_IP            ((1ull << 61) - 1)

/* IA32_PERF_CAPABILITIES[5:0], and what has no such register */
typedef enum Format {
    FORMAT_32,              /* FROM and TO in one register, or plain */
    FORMAT_LIP,
    FORMAT_EIP,
    FORMAT_FLAGS,
    FORMAT_TSX,
    FORMAT_INFO,
    FORMAT_TIME,
    FORMAT_INFO2,           /* FORMAT_INFO, without transactions */
    FORMAT_ARCH = 0x3f,
    FORMAT_V2,              /* AMD's */
} Format;

/* Which MSRs there are; a flavour is some of these. */
enum {
    HAS_PAIR = 1 << 0,      /* last branch and exception, of P6 and AMD's */
    HAS_PACKED = 1 << 1,    /* of Pentium M */
    HAS_LOW = 1 << 2,       /* at 40H and 60H */
    HAS_HIGH = 1 << 3,      /* at 680H and 6C0H */
    HAS_INFO = 1 << 4,
    HAS_SELECT = 1 << 5,
    HAS_LER = 1 << 6,
    HAS_ARCH = 1 << 7,
    HAS_V2 = 1 << 8,
    HAS_DS = 1 << 9,
    /* These are not MSRs. */
    HAS_DS64 = 1 << 10,     /* DTES64 and DS-CPL */
    HAS_CALL_STACK = 1 << 11,
    HAS_AMD = 1 << 12,
    HAS_NOTHING = 1 << 13,  /* but single step on branches */
    HAS_ALWAYS = 1 << 14,
    HAS_LER_TO = 1 << 15,   /* HAS_LER, the other way round */
    /* Nor are these. */
    HAS_PREDICTED = 1 << 16,    /* in BTS's records */
    HAS_TR_OFF = 1 << 17,   /* FREEZE_LBRS_ON_PMI clears TR, too */
    HAS_SAYS_LIP = 1 << 18, /* FORMAT_LIP is what it says it has */
};

#define RECORDS     (HAS_PAIR | HAS_PACKED | HAS_LOW | HAS_HIGH | HAS_INFO | \
                     HAS_SELECT | HAS_LER | HAS_LER_TO | HAS_ARCH)
#define HAS_TOS     (HAS_PACKED | HAS_LOW | HAS_HIGH)
#define PACKED      (HAS_PACKED | HAS_DS | HAS_PREDICTED)
#define LOW         (HAS_LOW | HAS_LER | HAS_DS | HAS_DS64)
#define HIGH        (HAS_HIGH | HAS_LER | HAS_DS | HAS_DS64 | HAS_SELECT)
#define STACK       (HIGH | HAS_CALL_STACK)
#define ARCH        (HAS_ARCH | HAS_LER | HAS_DS | HAS_DS64)
#define AMD         (HAS_PAIR | HAS_AMD)

struct BranchFlavour {
    const char *name;
    uint32_t has;           /* HAS_* */
    uint8_t depth;
    Format format;
    uint16_t debugctl;      /* bits that need no CPUID bit, but for LBR, BTF */
};

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
    BranchVendor vendor;
    uint8_t first_family, last_family, first_model, last_model;
    const BranchFlavour *flavour;
} processors[] = {
    { BRANCH_VENDOR_INTEL, 6, 6, 0x09, 0x09, &pentium_m },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x0d, 0x0d, &pentium_m },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x00, 0x0c, &p6 },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x0e, 0x0e, &core_duo },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x0f, 0x0f, &core2 },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x16, 0x17, &core2 },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x1d, 0x1d, &core2 },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x1c, 0x1c, &bonnell },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x26, 0x27, &bonnell },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x35, 0x36, &bonnell },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x1a, 0x1a, &nehalem },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x1e, 0x1f, &nehalem },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x2e, 0x2e, &nehalem },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x25, 0x25, &nehalem },    /* Westmere */
    { BRANCH_VENDOR_INTEL, 6, 6, 0x2c, 0x2c, &nehalem },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x2f, 0x2f, &nehalem },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x2a, 0x2a, &sandy_bridge },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x2d, 0x2d, &sandy_bridge },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x3a, 0x3a, &sandy_bridge },   /* Ivy Bridge */
    { BRANCH_VENDOR_INTEL, 6, 6, 0x3e, 0x3e, &sandy_bridge },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x3c, 0x3d, &haswell },    /* and Broadwell */
    { BRANCH_VENDOR_INTEL, 6, 6, 0x3f, 0x3f, &haswell },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x45, 0x47, &haswell },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x4f, 0x4f, &haswell },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x56, 0x56, &haswell },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x4e, 0x4e, &skylake },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x5e, 0x5e, &skylake },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x55, 0x55, &skylake },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x8e, 0x8e, &skylake },    /* Kaby Lake */
    { BRANCH_VENDOR_INTEL, 6, 6, 0x9e, 0x9e, &skylake },
    { BRANCH_VENDOR_INTEL, 6, 6, 0xa5, 0xa6, &skylake },    /* Comet Lake */
    { BRANCH_VENDOR_INTEL, 6, 6, 0x66, 0x66, &skylake },    /* Cannon Lake */
    { BRANCH_VENDOR_INTEL, 6, 6, 0x6a, 0x6a, &skylake },    /* Ice Lake */
    { BRANCH_VENDOR_INTEL, 6, 6, 0x6c, 0x6c, &skylake },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x7d, 0x7e, &skylake },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x9d, 0x9d, &skylake },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x8c, 0x8d, &skylake },    /* Tiger Lake */
    { BRANCH_VENDOR_INTEL, 6, 6, 0xa7, 0xa7, &skylake },    /* Rocket Lake */
    { BRANCH_VENDOR_INTEL, 6, 6, 0x37, 0x37, &silvermont },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x4a, 0x4a, &silvermont },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x4c, 0x4d, &silvermont },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x5a, 0x5a, &silvermont },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x5d, 0x5d, &silvermont },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x75, 0x75, &silvermont },     /* Airmont */
    { BRANCH_VENDOR_INTEL, 6, 6, 0x57, 0x57, &knights },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x85, 0x85, &knights },    /* Knights Mill */
    { BRANCH_VENDOR_INTEL, 6, 6, 0x5c, 0x5c, &goldmont },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x5f, 0x5f, &goldmont },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x7a, 0x7a, &goldmont_plus },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x86, 0x86, &goldmont_plus },  /* Tremont */
    { BRANCH_VENDOR_INTEL, 6, 6, 0x8a, 0x8a, &goldmont_plus },  /* Lakefield */
    { BRANCH_VENDOR_INTEL, 6, 6, 0x96, 0x96, &goldmont_plus },
    { BRANCH_VENDOR_INTEL, 6, 6, 0x9c, 0x9c, &goldmont_plus },
    { BRANCH_VENDOR_INTEL, 6, 6, 0xaf, 0xaf, &gracemont },      /* Crestmont */
    { BRANCH_VENDOR_INTEL, 6, 6, 0xb6, 0xb6, &gracemont },
    { BRANCH_VENDOR_INTEL, 6, 6, 0xbe, 0xbe, &gracemont },
    { BRANCH_VENDOR_INTEL, 6, 6, 0xdd, 0xdd, &gracemont },      /* Darkmont */
    /* What came later is architectural; so is Golden Cove. */
    { BRANCH_VENDOR_INTEL, 6, 6, 0x10, 0xff, &architectural },
    { BRANCH_VENDOR_INTEL, 0x12, 0x13, 0x00, 0xff, &architectural },
    { BRANCH_VENDOR_AMD, 0x19, 0x19, 0x10, 0x1f, &zen4 },
    { BRANCH_VENDOR_AMD, 0x19, 0x19, 0x60, 0xaf, &zen4 },
    { BRANCH_VENDOR_AMD, 0x1a, 0x1a, 0x00, 0xff, &zen4 },   /* Zen 5 */
    { BRANCH_VENDOR_AMD, 0x06, 0xff, 0x00, 0xff, &k7 },
    /* Pentium 4, and processors that we do not know */
    { BRANCH_VENDOR_INTEL, 0x0f, 0x0f, 0x00, 0xff, &nothing },
    { BRANCH_VENDOR_OTHER, 0x06, 0xff, 0x00, 0xff, &nothing },
};

/*
 * How the classes of branches are selected: SDM 17.9, ISE and APM; LBR_JCC and
 * so on, and ARCH_LBR_JCC, in Linux' intel/lbr.c, and the same in amd/lbr.c.
 */
static const struct {
    uint32_t wants;
    uint32_t select;        /* SELECT: not to be recorded */
    uint32_t ctl;           /* IA32_LBR_CTL: to be recorded */
} filters[] = {
    { BRANCH_WANT(BRANCH_JCC), 1u << 2, 1u << 16 },
    { BRANCH_WANT(BRANCH_CALL_REL), 1u << 3, 1u << 19 },
    { BRANCH_WANT(BRANCH_CALL_IND), 1u << 4, 1u << 20 },
    { BRANCH_WANT(BRANCH_RET), 1u << 5, 1u << 21 },
    { BRANCH_WANT(BRANCH_JMP_IND), 1u << 6, 1u << 18 },
    { BRANCH_WANT(BRANCH_JMP_REL), 1u << 7, 1u << 17 },
    { BRANCH_WANT(BRANCH_FAR) | BRANCH_WANT(BRANCH_EVENT),
      1u << 8, 1u << 22 },
};

#define CALL_STACK_WANTS    (BRANCH_WANT(BRANCH_CALL_REL) | \
                             BRANCH_WANT(BRANCH_CALL_IND) | \
                             BRANCH_WANT(BRANCH_RET))

typedef enum BranchReg {
    REG_DEBUGCTL,
    REG_PACKED,
    REG_FROM,
    REG_TO,
    REG_INFO,
    REG_FROM_TO,            /* in turn */
    REG_TOS,
    REG_SELECT,
    REG_CTL,
    REG_DEPTH,
    REG_CFG,
    REG_LAST_FROM,
    REG_LAST_TO,
    REG_LER_FROM,
    REG_LER_TO,
    REG_LER_INFO,
    REG_DS_AREA,
} BranchReg;

/*
 * Where an MSR is (SDM vol. 4 and APM, and Linux' and Xen's msr-index.h), and
 * who has it.  Who does not, has a #GP if there is a PMU; but for those that
 * software looks for where they never were.
 */
static const struct {
    uint32_t first, last;
    BranchReg reg;
    uint32_t has;
    bool tolerant;
} msrs[] = {
    { 0x1d9, 0x1d9, REG_DEBUGCTL, HAS_ALWAYS, false },
    { 0x040, 0x047, REG_PACKED, HAS_PACKED, false },
    { 0x040, 0x047, REG_FROM, HAS_LOW, false },
    { 0x060, 0x067, REG_TO, HAS_LOW, false },
    { 0x680, 0x69f, REG_FROM, HAS_HIGH, false },
    { 0x6c0, 0x6df, REG_TO, HAS_HIGH, false },
    { 0xdc0, 0xddf, REG_INFO, HAS_INFO, false },
    { 0x1c8, 0x1c8, REG_SELECT, HAS_SELECT, true },
    { 0x1c9, 0x1c9, REG_TOS, HAS_TOS, false },
    { 0x1db, 0x1db, REG_LAST_FROM, HAS_PAIR, true },
    { 0x1dc, 0x1dc, REG_LAST_TO, HAS_PAIR, true },
    { 0x1dd, 0x1dd, REG_LER_FROM, HAS_PAIR | HAS_LER, true },
    { 0x1de, 0x1de, REG_LER_TO, HAS_PAIR | HAS_LER, true },
    { 0x1dd, 0x1dd, REG_LER_TO, HAS_LER_TO, true },
    { 0x1de, 0x1de, REG_LER_FROM, HAS_LER_TO, true },
    { 0x1e0, 0x1e0, REG_LER_INFO, HAS_ARCH, true },
    { 0x14ce, 0x14ce, REG_CTL, HAS_ARCH, false },
    { 0x14cf, 0x14cf, REG_DEPTH, HAS_ARCH, false },
    { 0x1200, 0x121f, REG_INFO, HAS_ARCH, false },
    { 0x1500, 0x151f, REG_FROM, HAS_ARCH, false },
    { 0x1600, 0x161f, REG_TO, HAS_ARCH, false },
    { 0x600, 0x600, REG_DS_AREA, HAS_DS, false },
    { 0xc000010e, 0xc000010e, REG_SELECT, HAS_V2, false },
    { 0xc000010f, 0xc000010f, REG_CFG, HAS_V2, false },
    { 0xc0010300, 0xc001033f, REG_FROM_TO, HAS_V2, false },
};

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)       ((a) < (b) ? (a) : (b))

/*
 * Configuration and CPUID
 */

const BranchFlavour *branch_flavour(BranchVendor vendor, unsigned family,
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

static bool is_amd(const BranchConfig *config)
{
    return config->flavour->has & HAS_AMD;
}

static bool is_arch(const BranchConfig *config)
{
    return config->flavour->has & HAS_ARCH;
}

/* What exists of the flavour's. */
static uint32_t has(const BranchConfig *config)
{
    uint32_t absent = (config->lbr ? 0 : RECORDS) |
                      (config->lbr_v2 ? 0 : HAS_V2) |
                      (config->ds ? 0 : HAS_DS);

    return (config->flavour->has & ~absent) | HAS_ALWAYS;
}

uint64_t branch_perf_capabilities(const BranchConfig *config)
{
    return !config->lbr || is_amd(config) ? 0 :
           config->flavour->has & HAS_SAYS_LIP ? FORMAT_LIP :
           config->flavour->format;
}

void branch_cpuid_1c(const BranchConfig *config, uint32_t regs[4])
{
    memset(regs, 0, 4 * sizeof(regs[0]));
    if (has(config) & HAS_ARCH) {
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

/*
 * What the registers can hold
 */

static uint64_t debugctl_mask(const BranchConfig *config)
{
    return BRANCH_DEBUGCTL_BTF |
           (config->lbr && !is_arch(config) ? BRANCH_DEBUGCTL_LBR : 0) |
           (config->pmu ? config->flavour->debugctl : 0) |
           (config->ds ? DEBUGCTL_BTS : 0) |
           (config->ds && config->ds_cpl ? DEBUGCTL_BTS_OFF : 0);
}

/*
 * What must not be set.  Where there are no such records, bit 0 does not stay
 * set, and that is all, because hypervisors do so.  Where there is no PMU, many
 * a program has been used to that for all bits; AMD's do so anyway.
 */
static uint64_t debugctl_reserved(const BranchConfig *config)
{
    if (!config->pmu || (config->flavour->has & (HAS_AMD | HAS_NOTHING))) {
        return 0;
    }
    return ~(debugctl_mask(config) | config->debugctl_other |
             BRANCH_DEBUGCTL_LBR);
}

static uint64_t select_mask(const BranchConfig *config)
{
    if (!(has(config) & (HAS_SELECT | HAS_V2))) {
        return 0;
    }
    return SELECT_ALL |
           (config->flavour->has & HAS_CALL_STACK ? SELECT_CALL_STACK : 0);
}

static uint64_t ctl_mask(const BranchConfig *config)
{
    return has(config) & HAS_ARCH ? CTL_ALL : 0;
}

static bool depth_exists(uint64_t depth)
{
    return depth && depth <= BRANCH_NR && !(depth & 7) &&
           (LEAF_DEPTHS >> (depth / 8 - 1) & 1);
}

static uint64_t sign_extend(uint64_t addr, unsigned bits)
{
    return (uint64_t)((int64_t)(addr << (64 - bits)) >> (64 - bits));
}

static bool canonical(const BranchConfig *config, uint64_t addr)
{
    return config->va_bits <= 32 ? addr <= UINT32_MAX :
           addr == sign_extend(addr, config->va_bits);
}

/*
 * Records
 */

static unsigned depth(const BranchState *s, const BranchConfig *config)
{
    return is_arch(config) ? (unsigned)s->lbr_depth : config->flavour->depth;
}

/* The place of the @n-th last record. */
static unsigned nth(const BranchRing *ring, unsigned n)
{
    return (ring->top / 8u - 1 - n) % BRANCH_NR;
}

static unsigned tos(const BranchConfig *config, const BranchRing *ring)
{
    return has(config) & HAS_TOS ? nth(ring, 0) % config->flavour->depth : 0;
}

/* Saturates; *@known says whether there was a record before. */
static uint64_t get_cycles(const BranchConfig *config, const BranchRing *ring,
                           unsigned i, bool *known)
{
    *known = !(ring->cycles[i] >> 63);
    return *known ? MIN(MIN(ring->cycles[i], CYCLES_MAX) * config->insn_clocks,
                        CYCLES_MAX) : 0;
}

static uint64_t get_type(const BranchRing *ring, unsigned i)
{
    return ring->class[i] < BRANCH_FAR ? ring->class[i] - 1 : INFO_TYPE_OTHER;
}

/* The record at a place, as registers show it. */
static BranchEntry get_entry(const BranchConfig *config,
                             const BranchRing *ring, unsigned i)
{
    BranchEntry e = { ring->from[i], ring->to[i], ring->cycles[i] };
    uint64_t mispredicted = ring->what[i] & 1 ? MISPREDICTED : 0, cycles;
    bool known;

    if (ring->class[i] == BRANCH_WRITTEN) {
        return e;
    }
    if (ring->class[i] == BRANCH_NONE) {
        return (BranchEntry) { 0 };
    }
    e.info = 0;
    cycles = get_cycles(config, ring, i, &known);
    switch (config->flavour->format) {
    case FORMAT_TIME:
        e.to = (e.to & ((1ull << TIME_SHIFT) - 1)) | cycles << TIME_SHIFT;
        /* fall through */
    case FORMAT_FLAGS:
        e.from = (e.from & ~MISPREDICTED) | mispredicted;
        break;
    case FORMAT_TSX:
        e.from = (e.from & ~(MISPREDICTED | TSX_FLAGS)) | mispredicted;
        break;
    case FORMAT_INFO:
    case FORMAT_INFO2:
        e.info = mispredicted | cycles;
        break;
    case FORMAT_ARCH:
        e.info = mispredicted | (known ? INFO_VALID : 0) |
                 get_type(ring, i) << INFO_TYPE_SHIFT | cycles;
        break;
    case FORMAT_V2:
        e.from = (e.from & ~MISPREDICTED) | mispredicted;
        e.to = (e.to & V2_TO_IP) | V2_VALID;
        break;
    default:
        break;
    }
    return e;
}

/* All 0 is what is not recorded, either. */
static void set_entry(BranchRing *ring, unsigned i, const BranchEntry *e)
{
    ring->from[i] = e->from;
    ring->to[i] = e->to;
    ring->cycles[i] = e->info;
    ring->what[i] = 0;
    ring->class[i] = e->from || e->to || e->info ? BRANCH_WRITTEN :
                     BRANCH_NONE;
}

/* The addresses alone, as the registers of the last branch show them. */
static BranchEntry last_branch(const BranchConfig *config,
                               const BranchRing *ring)
{
    BranchEntry e = get_entry(config, ring, nth(ring, 0));

    switch (config->flavour->format) {
    case FORMAT_TIME:
        e.to = sign_extend(e.to, TIME_SHIFT);
        /* fall through */
    case FORMAT_FLAGS:
        e.from = sign_extend(e.from, 63);
        break;
    case FORMAT_TSX:
        e.from = sign_extend(e.from, 61);
        break;
    case FORMAT_V2:
        e.from = sign_extend(e.from, V2_IP_BITS);
        e.to = sign_extend(e.to, V2_IP_BITS);
        break;
    default:
        break;
    }
    return e;
}

/* The same the other way round; see BranchSvm for @from. */
static void set_last_branch(const BranchConfig *config, BranchRing *ring,
                            uint64_t from, uint64_t to)
{
    BranchEntry e = { from, to, 0 };

    if (config->flavour->format == FORMAT_V2 && (from || to)) {
        e.from = (from & ~MISPREDICTED) | ((from ^ from << 1) & MISPREDICTED);
        e.to = (to & V2_TO_IP) | V2_VALID;
    }
    set_entry(ring, nth(ring, 0), &e);
}

static void clear_ring(const BranchState *s, const BranchConfig *config,
                       BranchRing *ring)
{
    memset(ring, 0, sizeof(*ring));
    ring->top = 8;              /* so that TOS is 0 */
    ring->span = (uint8_t)(8 * depth(s, config));
    ring->last = BRANCH_NO_CLOCK;
}

/* What is in a register with TOS stays there: all but the top moves. */
static void set_tos(const BranchConfig *config, BranchRing *ring, unsigned val)
{
    unsigned mask = config->flavour->depth - 1u;
    BranchRing old = *ring;

    memset(ring->class, 0, sizeof(ring->class));
    ring->top = (uint8_t)(8 * (val + 1));
    for (unsigned slot = 0; slot <= mask; slot++) {
        unsigned i = nth(ring, (val - slot) & mask);
        unsigned j = nth(&old, (tos(config, &old) - slot) & mask);

        ring->from[i] = old.from[j];
        ring->to[i] = old.to[j];
        ring->cycles[i] = old.cycles[j];
        ring->what[i] = old.what[j];
        ring->class[i] = old.class[j];
    }
}

/* The place of the register with that index */
static unsigned place(const BranchConfig *config, const BranchRing *ring,
                      unsigned index)
{
    if (!(has(config) & HAS_TOS)) {
        return nth(ring, index);
    }
    return nth(ring, (tos(config, ring) - index) &
                     (config->flavour->depth - 1u));
}

/*
 * Recording
 */

/* Whether it is AMD's last branch only, which nothing selects or freezes. */
static bool only_last(const BranchState *s, const BranchConfig *config)
{
    return is_amd(config) && !(s->dbg_extn_cfg & CFG_LBRV2EN);
}

/* Whether branches that are selected are recorded. */
static bool runs(const BranchState *s, const BranchConfig *config, bool frozen)
{
    if (frozen && !only_last(s, config)) {
        return false;
    }
    return is_arch(config) ? s->lbr_ctl & CTL_ENABLE :
           (s->debugctl & BRANCH_DEBUGCTL_LBR) ||
           (s->dbg_extn_cfg & CFG_LBRV2EN);
}

/* What leaves out what; IA32_LBR_CTL turned into that */
static uint64_t selection(const BranchState *s, const BranchConfig *config)
{
    uint64_t select;

    if (!is_arch(config)) {
        return only_last(s, config) ? 0 : s->select;
    }
    select = (s->lbr_ctl & CTL_OS ? 0 : SELECT_OS) |
             (s->lbr_ctl & CTL_USR ? 0 : SELECT_USR) |
             (s->lbr_ctl & CTL_CALL_STACK ? SELECT_CALL_STACK : 0);
    for (unsigned i = 0; i < ARRAY_SIZE(filters); i++) {
        select |= s->lbr_ctl & filters[i].ctl ? 0 : filters[i].select;
    }
    return select;
}

/* What is recorded; 0 if nothing is. */
static uint32_t records(const BranchState *s, const BranchConfig *config,
                        bool os, bool frozen)
{
    uint64_t select = selection(s, config);
    uint32_t wants = 0;

    if (!runs(s, config, frozen) || (select & (os ? SELECT_OS : SELECT_USR))) {
        return 0;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(filters); i++) {
        wants |= select & filters[i].select ? 0 : filters[i].wants;
    }
    if (select & SELECT_CALL_STACK) {
        wants &= CALL_STACK_WANTS;
        wants |= wants ? BRANCH_WANT_CALL_STACK : 0;
    }
    return wants;
}

uint32_t branch_wants(const BranchState *s, const BranchConfig *config,
                      bool os, bool frozen)
{
    const uint64_t bts = BRANCH_DEBUGCTL_TR | BRANCH_DEBUGCTL_BTS;
    uint64_t bts_off = os ? BRANCH_DEBUGCTL_BTS_OFF_OS :
                       BRANCH_DEBUGCTL_BTS_OFF_USR;
    uint32_t wants = records(s, config, os, frozen);

    if (wants) {
        switch (config->flavour->format) {
        case FORMAT_TIME:
        case FORMAT_INFO:
        case FORMAT_INFO2:
        case FORMAT_ARCH:
            wants |= BRANCH_WANT_CYCLES;
            /* fall through */
        case FORMAT_FLAGS:
        case FORMAT_TSX:
            wants |= BRANCH_WANT_PREDICTIONS;
            break;
        case FORMAT_V2:
            wants |= config->lbr_v2 ? BRANCH_WANT_PREDICTIONS : 0;
            break;
        default:
            break;
        }
    }
    if ((s->debugctl & (bts | bts_off)) == bts) {
        wants |= BRANCH_WANT_BTS |
                 (config->bts_predicted ? BRANCH_WANT_PREDICTIONS : 0);
    }
    return wants | (s->debugctl & BRANCH_DEBUGCTL_BTF ? BRANCH_WANT_BTF : 0);
}

void branch_record(BranchState *s, const BranchConfig *config,
                   BranchRing *ring, const BranchTaken *branch, bool frozen,
                   uint64_t clock)
{
    uint32_t wants = records(s, config, branch->to_os, frozen);
    uint64_t from = branch->from;

    if (branch->class == BRANCH_EVENT && runs(s, config, frozen)) {
        BranchEntry e = last_branch(config, ring);

        s->ler_from = e.from;
        s->ler_to = e.to;
        s->ler_info = is_arch(config) ? e.info : 0;
    }
    if (!(wants & BRANCH_WANT(branch->class))) {
        return;
    }
    if ((wants & BRANCH_WANT_CALL_STACK) && branch->class == BRANCH_RET) {
        branch_pop(ring);
        return;
    }
    if (is_arch(config) &&
        !(s->lbr_ctl & (branch->from_os ? CTL_OS : CTL_USR))) {
        from = UINT64_MAX;      /* is not to be seen */
    }
    branch_push(ring, from, branch->to, clock, branch->mispredicted,
                branch->class);
}

bool branch_debug(BranchState *s)
{
    const uint64_t off = BRANCH_DEBUGCTL_LBR | BRANCH_DEBUGCTL_BTF;
    bool any = (s->debugctl & off) | (s->lbr_ctl & CTL_ENABLE);

    s->debugctl &= ~off;
    s->lbr_ctl &= ~(uint64_t)CTL_ENABLE;
    return any;
}

void branch_pmi(BranchState *s, const BranchConfig *config, bool freeze)
{
    /* Since version 4 it sets LBR_FRZ (SDM 17.4.7). */
    if (freeze && !is_amd(config) && config->pmu_version < 4) {
        s->debugctl &= ~(uint64_t)BRANCH_DEBUGCTL_LBR;
        if (config->flavour->has & HAS_TR_OFF) {
            s->debugctl &= ~(uint64_t)BRANCH_DEBUGCTL_TR;
        }
    }
}

void branch_smi(BranchState *s, bool freeze)
{
    s->smm_lbr_ctl = s->lbr_ctl & CTL_ENABLE;
    s->lbr_ctl &= ~(uint64_t)CTL_ENABLE;
    if (freeze) {
        s->smm_frozen = true;
        s->smm_debugctl = s->debugctl;
        s->debugctl &= ~(uint64_t)(BRANCH_DEBUGCTL_LBR | BRANCH_DEBUGCTL_BTF |
                                   BRANCH_DEBUGCTL_TR | BRANCH_DEBUGCTL_BTS);
    }
}

void branch_rsm(BranchState *s)
{
    s->lbr_ctl &= ~(uint64_t)CTL_ENABLE;
    s->lbr_ctl |= s->smm_lbr_ctl & CTL_ENABLE;
    s->smm_lbr_ctl = 0;
    if (s->smm_frozen) {
        s->smm_frozen = false;
        s->debugctl = s->smm_debugctl;
        s->smm_debugctl = 0;
    }
}

/*
 * Registers
 */

void branch_reset(BranchState *s, const BranchConfig *config, BranchRing *ring)
{
    *s = (BranchState) {
        .lbr_depth = has(config) & HAS_ARCH ? config->flavour->depth : 0,
    };
    clear_ring(s, config, ring);
}

void branch_init(BranchState *s)
{
    s->ds_area = 0;
}

/* Find @msr; *@index is that of the record, where it is one's. */
static BranchAccess find_msr(const BranchState *s, const BranchConfig *config,
                             uint32_t msr, BranchReg *reg, unsigned *index)
{
    BranchAccess absent = BRANCH_MSR_OTHER;

    for (unsigned i = 0; i < ARRAY_SIZE(msrs); i++) {
        if (msr < msrs[i].first || msr > msrs[i].last) {
            continue;
        }
        if (!(msrs[i].has & has(config))) {
            absent = config->pmu && !msrs[i].tolerant ? BRANCH_MSR_GP :
                     BRANCH_MSR_OTHER;
            continue;
        }
        *reg = msrs[i].reg;
        *index = msr - msrs[i].first;
        switch (*reg) {
        case REG_FROM_TO:
            *reg = *index % 2 ? REG_TO : REG_FROM;
            *index /= 2;
            /* fall through */
        case REG_PACKED:
        case REG_FROM:
        case REG_TO:
        case REG_INFO:
            return *index < depth(s, config) ? BRANCH_MSR_OK : BRANCH_MSR_GP;
        default:
            return BRANCH_MSR_OK;
        }
    }
    return absent;
}

BranchAccess branch_rdmsr(const BranchState *s, const BranchConfig *config,
                          const BranchRing *ring, uint32_t msr, uint64_t *val)
{
    unsigned index;
    BranchReg reg;
    BranchAccess access = find_msr(s, config, msr, &reg, &index);
    BranchEntry e, last = last_branch(config, ring);

    if (access != BRANCH_MSR_OK) {
        return access;
    }
    e = get_entry(config, ring, place(config, ring, index));
    switch (reg) {
    case REG_DEBUGCTL:
        *val = s->debugctl;
        break;
    case REG_PACKED:
        *val = (uint32_t)e.from | e.to << 32;
        break;
    case REG_FROM:
        *val = e.from;
        break;
    case REG_TO:
        *val = e.to;
        break;
    case REG_INFO:
        *val = e.info;
        break;
    case REG_TOS:
        *val = tos(config, ring);
        break;
    case REG_SELECT:
        *val = s->select;
        break;
    case REG_CTL:
        *val = s->lbr_ctl;
        break;
    case REG_DEPTH:
        *val = s->lbr_depth;
        break;
    case REG_CFG:
        *val = s->dbg_extn_cfg;
        break;
    case REG_LAST_FROM:
        *val = last.from;
        break;
    case REG_LAST_TO:
        *val = last.to;
        break;
    case REG_LER_FROM:
        *val = s->ler_from;
        break;
    case REG_LER_TO:
        *val = s->ler_to;
        break;
    case REG_LER_INFO:
        *val = s->ler_info;
        break;
    default:
        *val = s->ds_area;
        break;
    }
    return BRANCH_MSR_OK;
}

/* Whether @val can be written; AMD's ignore bits that they have not. */
static bool writable(const BranchConfig *config, BranchReg reg, uint64_t val)
{
    switch (reg) {
    case REG_DEBUGCTL:
        return !(val & debugctl_reserved(config));
    case REG_SELECT:
        return is_amd(config) || !(val & ~select_mask(config));
    case REG_TOS:
        return val < config->flavour->depth;
    case REG_CTL:
        return !(val & ~ctl_mask(config));
    case REG_DEPTH:
        return depth_exists(val);
    case REG_DS_AREA:
        return canonical(config, val);
    default:
        return true;
    }
}

static void write_entry(const BranchConfig *config, BranchRing *ring,
                        unsigned index, BranchReg reg, uint64_t val)
{
    unsigned i = place(config, ring, index);
    BranchEntry e = get_entry(config, ring, i);

    switch (reg) {
    case REG_PACKED:
        e = (BranchEntry) { (uint32_t)val, val >> 32, 0 };
        break;
    case REG_FROM:
        e.from = val;
        break;
    case REG_TO:
        e.to = val;
        break;
    default:
        e.info = val;
        break;
    }
    set_entry(ring, i, &e);
}

BranchAccess branch_wrmsr(BranchState *s, const BranchConfig *config,
                          BranchRing *ring, uint32_t msr, uint64_t val)
{
    unsigned index;
    BranchReg reg;
    BranchAccess access = find_msr(s, config, msr, &reg, &index);

    if (access != BRANCH_MSR_OK) {
        return access;
    }
    if (!writable(config, reg, val)) {
        return BRANCH_MSR_GP;
    }
    switch (reg) {
    case REG_DEBUGCTL:
        s->debugctl = val & debugctl_mask(config);
        break;
    case REG_TOS:
        set_tos(config, ring, (unsigned)val);
        break;
    case REG_SELECT:
        s->select = val & select_mask(config);
        break;
    case REG_CTL:
        s->lbr_ctl = val;
        break;
    case REG_DEPTH:
        s->lbr_depth = val;
        clear_ring(s, config, ring);
        break;
    case REG_CFG:
        s->dbg_extn_cfg = val & CFG_LBRV2EN;
        break;
    case REG_LER_FROM:
        s->ler_from = is_arch(config) ? val : s->ler_from;
        break;
    case REG_LER_TO:
        s->ler_to = is_arch(config) ? val : s->ler_to;
        break;
    case REG_LER_INFO:
        s->ler_info = val;
        break;
    case REG_DS_AREA:
        s->ds_area = val;
        break;
    case REG_LAST_FROM:
    case REG_LAST_TO:
        break;                  /* ignored, as are those before arch */
    default:
        write_entry(config, ring, index, reg, val);
        break;
    }
    return BRANCH_MSR_OK;
}

/*
 * The environment
 */

bool branch_has_lbrv(const BranchConfig *config)
{
    return config->lbr && is_amd(config);
}

void branch_svm_save(const BranchState *s, const BranchConfig *config,
                     const BranchRing *ring, BranchSvm *save)
{
    BranchEntry e = last_branch(config, ring);

    if (config->flavour->format == FORMAT_V2) {
        e.from ^= get_entry(config, ring, nth(ring, 0)).from & MISPREDICTED;
    }
    *save = (BranchSvm) { s->debugctl, e.from, e.to, s->ler_from, s->ler_to };
}

void branch_svm_load(BranchState *s, const BranchConfig *config,
                     BranchRing *ring, const BranchSvm *save)
{
    s->debugctl = save->debugctl & debugctl_mask(config);
    if (has(config) & HAS_PAIR) {
        s->ler_from = save->last_excp_from;
        s->ler_to = save->last_excp_to;
        set_last_branch(config, ring, save->br_from, save->br_to);
    }
}

/* How many records can be seen */
static unsigned visible(const BranchState *s, const BranchConfig *config)
{
    return config->lbr ? depth(s, config) : 0;
}

bool branch_entry(const BranchState *s, const BranchConfig *config,
                  const BranchRing *ring, unsigned n, BranchEntry *entry)
{
    if (n >= visible(s, config)) {
        return false;
    }
    *entry = get_entry(config, ring, nth(ring, n));
    return true;
}

void branch_stack_save(const BranchState *s, const BranchConfig *config,
                       const BranchRing *ring, uint64_t clock,
                       BranchStack *stack)
{
    memset(stack, 0, sizeof(*stack));
    stack->tos = tos(config, ring);
    stack->age = ring->last == BRANCH_NO_CLOCK ? 0 : clock - ring->last + 1;
    for (unsigned n = 0; n < visible(s, config); n++) {
        stack->entry[n] = get_entry(config, ring, nth(ring, n));
    }
}

/* Bits of entries that registers of this processor cannot hold */
static uint64_t foreign(const BranchConfig *config, const BranchEntry *e)
{
    uint64_t bad = has(config) & (HAS_INFO | HAS_ARCH) ? 0 : e->info;

    if (config->flavour->has & HAS_PACKED) {
        bad |= (e->from | e->to) >> 32;
    }
    return bad;
}

bool branch_state_bad(const BranchState *s, const BranchConfig *config,
                      const BranchStack *stack)
{
    uint32_t exists = has(config);
    uint64_t bad = stack->age >> 62;

    if (exists & HAS_ARCH ? !depth_exists(s->lbr_depth) : s->lbr_depth) {
        return true;
    }
    for (unsigned n = 0; n < BRANCH_NR; n++) {
        const BranchEntry *e = &stack->entry[n];

        bad |= n < visible(s, config) ? foreign(config, e) :
               e->from | e->to | e->info;
    }
    bad |= exists & HAS_TOS ? stack->tos >= config->flavour->depth :
           stack->tos;
    bad |= s->debugctl & ~debugctl_mask(config);
    bad |= s->select & ~select_mask(config);
    bad |= s->lbr_ctl & ~ctl_mask(config);
    bad |= s->dbg_extn_cfg & (exists & HAS_V2 ? ~(uint64_t)CFG_LBRV2EN :
                              UINT64_MAX);
    bad |= exists & (HAS_LER | HAS_LER_TO | HAS_PAIR) ? 0 :
           s->ler_from | s->ler_to;
    bad |= exists & HAS_ARCH ? 0 : s->ler_info;
    bad |= exists & HAS_DS ? !canonical(config, s->ds_area) : s->ds_area;
    bad |= s->smm_lbr_ctl & ~ctl_mask(config);
    bad |= s->smm_debugctl & ~(s->smm_frozen ? debugctl_mask(config) : 0);
    return bad;
}

void branch_stack_load(const BranchState *s, const BranchConfig *config,
                       BranchRing *ring, uint64_t clock,
                       const BranchStack *stack)
{
    clear_ring(s, config, ring);
    ring->top = (uint8_t)(8 * (stack->tos + 1));
    if (stack->age) {
        ring->last = clock - (stack->age - 1);
    }
    for (unsigned n = 0; n < BRANCH_NR; n++) {
        set_entry(ring, nth(ring, n), &stack->entry[n]);
    }
}
