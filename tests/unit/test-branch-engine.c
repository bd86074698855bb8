/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Unit tests of the engine of branch records: its registers; its stacks against
 * models that move records as the manuals say; and the branch trace store.
 */

#include <string.h>
#include <glib.h>
#include "branch.h"
#include "bts.h"
#include "perfmon/engine/processors.h"

#define DEBUGCTL        0x1d9
#define LOW_FROM        0x40
#define LOW_TO          0x60
#define HIGH_FROM       0x680
#define HIGH_TO         0x6c0
#define LBR_INFO        0xdc0
#define LBR_SELECT      0x1c8
#define LBR_TOS         0x1c9
#define LAST_FROM       0x1db
#define LAST_TO         0x1dc
#define LER_FROM        0x1dd
#define LER_TO          0x1de
#define LER_INFO        0x1e0
#define ARCH_CTL        0x14ce
#define ARCH_DEPTH      0x14cf
#define ARCH_INFO       0x1200
#define ARCH_FROM       0x1500
#define ARCH_TO         0x1600
#define V2_SELECT       0xc000010e
#define V2_CFG          0xc000010f
#define V2_FROM         0xc0010300
#define V2_TO           0xc0010301
#define V2_EN           (1u << 6)
#define V2_VALID        (1ull << 63)

#define LBR             BRANCH_DEBUGCTL_LBR
#define BTF             BRANCH_DEBUGCTL_BTF
#define TR              BRANCH_DEBUGCTL_TR
#define BTS             BRANCH_DEBUGCTL_BTS
#define BTINT           BRANCH_DEBUGCTL_BTINT
#define OFF_OS          BRANCH_DEBUGCTL_BTS_OFF_OS
#define OFF_USR         BRANCH_DEBUGCTL_BTS_OFF_USR
#define FREEZE          0x1800u         /* the PMU's */

#define SEL_CALL_STACK  0x3c4u          /* as Linux selects for it */
#define CTL_ALL         0x7f0007u       /* but for call-stack mode */
#define CTL_CALL_STACK  0x38000fu

#define MISPREDICTED    (1ull << 63)
#define KERNEL          0xffffffff81000000ull
#define USER            0x00007f1234567000ull

static BranchConfig config;
static BranchState state;
static BranchRing ring;
static uint64_t now;
static uint64_t ds_area;

static void be_without(PmuVendor vendor, unsigned family, unsigned model,
                       uint32_t without)
{
    const BranchFlavour *flavour = branch_flavour(vendor, family, model);
    PerfmonCore core = perfmon_core(vendor, family, model);

    g_assert_nonnull(flavour);
    branch_config_init(&config, flavour, without);
    g_assert_false(config.ds || config.dtes64 || config.ds_cpl);
    if (config.pmu) {
        config.ds = perfmon_has_ds(core);
        config.dtes64 = config.ds_cpl = perfmon_has_ds64(core);
    }
    memset(&ring, 0x5a, sizeof(ring));
    branch_reset(&state, &config, &ring);
    now = 12345;
}

static void be_intel(unsigned model)
{
    be_without(PMU_VENDOR_INTEL, 6, model, 0);
}

static void be_k7(void)
{
    be_without(PMU_VENDOR_AMD, 15, 0x6b, 0);
}

static void be_zen4(void)
{
    be_without(PMU_VENDOR_AMD, 0x19, 0x11, 0);
}

enum {
    P6 = 0x07,
    PENTIUM_M = 0x0d,
    CORE_DUO = 0x0e,
    CORE2 = 0x0f,
    BONNELL = 0x1c,
    SILVERMONT = 0x37,
    KNIGHTS = 0x85,
    NEHALEM = 0x1a,
    SANDY_BRIDGE = 0x2a,
    HASWELL = 0x3c,
    SKYLAKE = 0x5e,
    GOLDMONT = 0x5f,
    GOLDMONT_PLUS = 0x7a,
    TREMONT = 0x86,
    SAPPHIRE_RAPIDS = 0x8f,
};

static PmuAccess write_msr(uint32_t msr, uint64_t val)
{
    BranchState old = state;
    BranchRing old_ring = ring;
    PmuAccess access = branch_wrmsr(&state, &config, &ring, msr, val);

    if (access != PMU_MSR_OK) {
        g_assert_cmpmem(&state, sizeof(state), &old, sizeof(old));
        g_assert_cmpmem(&ring, sizeof(ring), &old_ring, sizeof(old_ring));
    }
    return access;
}

static void wr(uint32_t msr, uint64_t val)
{
    g_assert_cmpint(write_msr(msr, val), ==, PMU_MSR_OK);
}

static void wr_gp(uint32_t msr, uint64_t val)
{
    g_assert_cmpint(write_msr(msr, val), ==, PMU_MSR_GP);
}

static uint64_t rd(uint32_t msr)
{
    uint64_t val = 0xbad;

    g_assert_cmpint(branch_rdmsr(&state, &config, &ring, msr, &val), ==,
                    PMU_MSR_OK);
    return val;
}

/* What both RDMSR and WRMSR say */
static PmuAccess access_of(uint32_t msr)
{
    uint64_t val = 0xbad;
    PmuAccess access = branch_rdmsr(&state, &config, &ring, msr, &val);

    if (access != PMU_MSR_OK) {
        g_assert_cmphex(val, ==, 0xbad);
        val = 0;
    }
    g_assert_cmpint(write_msr(msr, val), ==, access);
    return access;
}

static void gp(uint32_t msr)
{
    g_assert_cmpint(access_of(msr), ==, PMU_MSR_GP);
}

static void other(uint32_t msr)
{
    g_assert_cmpint(access_of(msr), ==, PMU_MSR_OTHER);
}

static uint32_t wants(bool os)
{
    return branch_wants(&state, &config, os, false);
}

/* A branch behind @insns instructions */
static void take(unsigned class, uint64_t from, uint64_t to, bool os,
                 uint64_t insns, bool mispredicted)
{
    BranchTaken branch = {
        .from = from, .to = to, .class = class,
        .from_os = os, .to_os = os, .mispredicted = mispredicted,
    };

    now += insns;
    branch_record(&state, &config, &ring, &branch, false, now);
}

static void jmp(uint64_t from, uint64_t to)
{
    take(RETIRE_BRANCH_JMP, from, to, false, 1, false);
}

static void event(uint64_t from, uint64_t to)
{
    take(BRANCH_EVENT, from, to, true, 1, false);
}

/* Start to record all branches, in the processor's own way. */
static void start(void)
{
    if (branch_wrmsr(&state, &config, &ring, ARCH_CTL, CTL_ALL) !=
        PMU_MSR_OK &&
        branch_wrmsr(&state, &config, &ring, V2_CFG, V2_EN) != PMU_MSR_OK) {
        wr(DEBUGCTL, LBR);
    }
    g_assert_cmphex(wants(false) & BRANCH_WANT_RECORDS, ==,
                    BRANCH_WANT_RECORDS);
    g_assert_cmphex(wants(true), ==, wants(false));
}

static uint64_t rnd(void)
{
    return (uint64_t)g_test_rand_int() << 32 | (uint32_t)g_test_rand_int();
}

/*
 * Where the registers of each processor are.  @name is NULL if there is none of
 * that kind.
 */
typedef struct Cpu {
    PmuVendor vendor;
    unsigned family, model;
    const char *name;
    uint32_t caps, depth;
    uint32_t from, to, info, step;
    bool has_tos, select, ler, bts;
} Cpu;

#define INTEL   PMU_VENDOR_INTEL
#define AMD     PMU_VENDOR_AMD

/* Of each family and model that QEMU has a CPU of, and the others of issue */
static const Cpu cpus[] = {
    { INTEL, 6, 0x05, "P6", 0, 1, LAST_FROM, LAST_TO, 0, 0,
      false, false, true, false },
    { INTEL, 6, 0x07, "P6", 0, 1, LAST_FROM, LAST_TO, 0, 0,
      false, false, true, false },
    { INTEL, 6, 0x06, "P6", 0, 1, LAST_FROM, LAST_TO, 0, 0,
      false, false, true, false },
    { INTEL, 6, 0x09, "Pentium M", 0, 8, 0, 0, 0, 0,
      true, false, true, true },
    { INTEL, 6, 0x0e, "Core Duo", 0, 8, 0, 0, 0, 0, true, false, true, true },
    { INTEL, 6, 0x0f, "Core 2", 2, 4, LOW_FROM, LOW_TO, 0, 1,
      true, false, true, true },
    { INTEL, 6, 0x17, "Core 2", 2, 4, LOW_FROM, LOW_TO, 0, 1,
      true, false, true, true },
    { INTEL, 6, 0x1c, "Bonnell", 2, 8, LOW_FROM, LOW_TO, 0, 1,
      true, false, true, true },
    { INTEL, 6, 0x37, "Silvermont", 2, 8, LOW_FROM, LOW_TO, 0, 1,
      true, true, true, true },
    { INTEL, 6, 0x5d, "Silvermont", 2, 8, LOW_FROM, LOW_TO, 0, 1,
      true, true, true, true },
    { INTEL, 6, 0x75, "Silvermont", 2, 8, LOW_FROM, LOW_TO, 0, 1,
      true, true, true, true },
    { INTEL, 6, 0x57, "Knights Landing", 1, 8, HIGH_FROM, HIGH_TO, 0, 1,
      true, true, true, true },
    { INTEL, 6, 0x85, "Knights Landing", 1, 8, HIGH_FROM, HIGH_TO, 0, 1,
      true, true, true, true },
    { INTEL, 6, 0x1a, "Nehalem", 3, 16, HIGH_FROM, HIGH_TO, 0, 1,
      true, true, true, true },
    { INTEL, 6, 0x2c, "Nehalem", 3, 16, HIGH_FROM, HIGH_TO, 0, 1,
      true, true, true, true },
    { INTEL, 6, 0x2a, "Sandy Bridge", 3, 16, HIGH_FROM, HIGH_TO, 0, 1,
      true, true, true, true },
    { INTEL, 6, 0x3a, "Sandy Bridge", 3, 16, HIGH_FROM, HIGH_TO, 0, 1,
      true, true, true, true },
    { INTEL, 6, 0x3c, "Haswell", 4, 16, HIGH_FROM, HIGH_TO, 0, 1,
      true, true, true, true },
    { INTEL, 6, 0x3d, "Haswell", 4, 16, HIGH_FROM, HIGH_TO, 0, 1,
      true, true, true, true },
    { INTEL, 6, 0x5e, "Skylake", 5, 32, HIGH_FROM, HIGH_TO, LBR_INFO, 1,
      true, true, true, true },
    { INTEL, 6, 0x55, "Skylake", 5, 32, HIGH_FROM, HIGH_TO, LBR_INFO, 1,
      true, true, true, true },
    { INTEL, 6, 0x66, "Skylake", 5, 32, HIGH_FROM, HIGH_TO, LBR_INFO, 1,
      true, true, true, true },
    { INTEL, 6, 0x6a, "Skylake", 5, 32, HIGH_FROM, HIGH_TO, LBR_INFO, 1,
      true, true, true, true },
    { INTEL, 6, 0x9d, "Skylake", 5, 32, HIGH_FROM, HIGH_TO, LBR_INFO, 1,
      true, true, true, true },
    { INTEL, 6, 0x5f, "Goldmont", 6, 32, HIGH_FROM, HIGH_TO, 0, 1,
      true, true, true, true },
    { INTEL, 6, 0x7a, "Goldmont Plus", 7, 32, HIGH_FROM, HIGH_TO, LBR_INFO, 1,
      true, true, true, true },
    { INTEL, 6, 0x8a, "Goldmont Plus", 7, 32, HIGH_FROM, HIGH_TO, LBR_INFO, 1,
      true, true, true, true },
    { INTEL, 6, 0x86, "Goldmont Plus", 7, 32, HIGH_FROM, HIGH_TO, LBR_INFO, 1,
      true, true, true, true },
    { INTEL, 6, 0x8f, "architectural", 0x3f, 32,
      ARCH_FROM, ARCH_TO, ARCH_INFO, 1, false, false, true, true },
    { INTEL, 6, 0xad, "architectural", 0x3f, 32,
      ARCH_FROM, ARCH_TO, ARCH_INFO, 1, false, false, true, true },
    { INTEL, 6, 0xaf, "architectural", 0x3f, 32,
      ARCH_FROM, ARCH_TO, ARCH_INFO, 1, false, false, true, true },
    { INTEL, 6, 0xdd, "architectural", 0x3f, 32,
      ARCH_FROM, ARCH_TO, ARCH_INFO, 1, false, false, true, true },
    { AMD, 6, 2, "K7", 0, 1, LAST_FROM, LAST_TO, 0, 0,
      false, false, true, false },
    { AMD, 15, 0x6b, "K7", 0, 1, LAST_FROM, LAST_TO, 0, 0,
      false, false, true, false },
    { AMD, 15, 6, "K7", 0, 1, LAST_FROM, LAST_TO, 0, 0,
      false, false, true, false },
    { AMD, 16, 2, "K7", 0, 1, LAST_FROM, LAST_TO, 0, 0,
      false, false, true, false },
    { AMD, 0x15, 2, "K7", 0, 1, LAST_FROM, LAST_TO, 0, 0,
      false, false, true, false },
    { AMD, 0x17, 0x31, "K7", 0, 1, LAST_FROM, LAST_TO, 0, 0,
      false, false, true, false },
    { AMD, 0x18, 0, "K7", 0, 1, LAST_FROM, LAST_TO, 0, 0,
      false, false, true, false },
    { AMD, 0x19, 1, "K7", 0, 1, LAST_FROM, LAST_TO, 0, 0,
      false, false, true, false },
    { AMD, 0x19, 0x11, "LbrExtV2", 0, 16, V2_FROM, V2_TO, 0, 2,
      false, true, true, false },
    { AMD, 0x1a, 2, "LbrExtV2", 0, 16, V2_FROM, V2_TO, 0, 2,
      false, true, true, false },
};

static void be(const Cpu *cpu)
{
    be_without(cpu->vendor, cpu->family, cpu->model, 0);
}

/* Processors whose records can be written */
static bool is_stack(const Cpu *cpu)
{
    return cpu->step;
}

static uint32_t select_msr(const Cpu *cpu)
{
    return cpu->vendor == AMD ? V2_SELECT : LBR_SELECT;
}

/*
 * Which processors there are, and where they have what.
 */

static void test_flavours(void)
{
    static const uint32_t all[] = {
        LOW_FROM, LOW_TO, HIGH_FROM, HIGH_TO, LBR_INFO, ARCH_FROM, ARCH_TO,
        ARCH_INFO, ARCH_CTL, ARCH_DEPTH, V2_FROM, V2_TO, V2_CFG,
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(cpus); i++) {
        const Cpu *c = &cpus[i];
        bool packed = c->depth == 8 && !c->from;
        PerfmonBranch e;

        be(c);
        g_assert_cmpstr(branch_flavour_name(config.flavour), ==, c->name);
        g_assert_cmphex(branch_perf_capabilities(&config), ==, c->caps);
        g_assert_true(config.lbr);
        g_assert_cmpint(config.ds, ==, c->bts);
        g_assert_cmpint(config.dtes64, ==, c->bts && !packed);
        g_assert_cmpint(config.ds_cpl, ==, c->bts && !packed);
        for (unsigned j = 0; j < G_N_ELEMENTS(all); j++) {
            bool there = all[j] == c->from || all[j] == c->to ||
                         (c->info && all[j] == c->info) ||
                         (packed && all[j] == LOW_FROM) ||
                         (c->from == ARCH_FROM && (all[j] == ARCH_CTL ||
                                                   all[j] == ARCH_DEPTH)) ||
                         (c->from == V2_FROM && all[j] == V2_CFG);

            g_assert_cmpint(access_of(all[j]), ==,
                            there ? PMU_MSR_OK : PMU_MSR_GP);
        }
        /* Depth */
        for (unsigned n = 0; packed ? n < 8 : n < 32; n++) {
            PmuAccess want = n < c->depth ? PMU_MSR_OK : PMU_MSR_GP;

            if (packed) {
                g_assert_cmpint(access_of(LOW_FROM + n), ==, want);
            } else if (is_stack(c) && n * c->step < 32 &&
                       (c->from != LOW_FROM || n < 8)) {
                g_assert_cmpint(access_of(c->from + n * c->step), ==, want);
                g_assert_cmpint(access_of(c->to + n * c->step), ==, want);
                if (c->info) {
                    g_assert_cmpint(access_of(c->info + n), ==, want);
                }
            }
        }
        g_assert_true(branch_entry(&state, &config, &ring, c->depth - 1, &e));
        g_assert_cmphex(e.from | e.to | e.info, ==, 0);
        g_assert_false(branch_entry(&state, &config, &ring, c->depth, &e));
        g_assert_cmpint(access_of(LBR_TOS), ==,
                        c->has_tos ? PMU_MSR_OK : PMU_MSR_GP);
        /* kvm-unit-tests write 0 there without having looked. */
        g_assert_cmpint(access_of(LBR_SELECT), ==,
                        c->select && c->vendor == INTEL ? PMU_MSR_OK :
                        PMU_MSR_OTHER);
        g_assert_cmpint(access_of(LER_FROM), ==, PMU_MSR_OK);
        g_assert_cmpint(access_of(LER_TO), ==, PMU_MSR_OK);
        g_assert_cmpint(access_of(LER_INFO), ==,
                        c->from == ARCH_FROM ? PMU_MSR_OK :
                        PMU_MSR_OTHER);
        g_assert_cmpint(access_of(LAST_FROM), ==,
                        c->from == LAST_FROM || c->vendor == AMD ?
                        PMU_MSR_OK : PMU_MSR_OTHER);
        other(0x1d8);
        other(0x48);
        other(0x345);
        gp(0xc0010320);
        other(0xc0010340);
    }
    g_assert_null(branch_flavour(INTEL, 5, 4));
    g_assert_null(branch_flavour(AMD, 5, 8));
    g_assert_null(branch_flavour(PMU_VENDOR_OTHER, 5, 8));
}

/* What there is if the user does not want all. */
static void test_without(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(cpus); i++) {
        const Cpu *c = &cpus[i];
        bool debug = c->from == LAST_FROM || c->vendor == AMD;

        be_without(c->vendor, c->family, c->model, BRANCH_WITHOUT_PMU);
        g_assert_false(config.lbr_v2);
        wr(DEBUGCTL, UINT64_MAX);
        g_assert_cmphex(rd(DEBUGCTL) & ~BRANCH_DEBUGCTL_PINS, ==,
                        debug ? LBR | BTF : BTF);
        g_assert_cmpint(access_of(LAST_FROM), ==,
                        debug ? PMU_MSR_OK : PMU_MSR_OTHER);
        g_assert_cmpint(access_of(LER_TO), ==,
                        debug ? PMU_MSR_OK : PMU_MSR_OTHER);
        other(HIGH_FROM);
        other(LOW_FROM);
        other(ARCH_CTL);
        other(V2_FROM);
        g_assert_cmphex(branch_perf_capabilities(&config), ==, 0);

        be_without(c->vendor, c->family, c->model, BRANCH_WITHOUT_LBR);
        g_assert_false(config.lbr || config.lbr_v2);
        wr(DEBUGCTL, LBR | BTF);
        g_assert_cmphex(rd(DEBUGCTL), ==, BTF);
        g_assert_cmphex(wants(true), ==, RETIRE_WANT_BTF);
        if (c->from && c->from != LAST_FROM) {
            gp(c->from);
        }
        other(LAST_FROM);
        other(LER_FROM);
        g_assert_cmphex(branch_perf_capabilities(&config), ==, 0);
    }
    be_without(AMD, 0x19, 0x11, BRANCH_WITHOUT_LBR_V2);
    g_assert_true(config.lbr);
    gp(V2_FROM);
    gp(V2_CFG);
    wr(DEBUGCTL, LBR);
    jmp(USER, USER + 5);
    g_assert_cmphex(rd(LAST_FROM), ==, USER);
    g_assert_cmphex(wants(false), ==, BRANCH_WANT_RECORDS);

    /* Single step on branches alone */
    be_without(INTEL, 15, 6, 0);
    g_assert_cmpstr(branch_flavour_name(config.flavour), ==, "none");
    wr(DEBUGCTL, UINT64_MAX);
    g_assert_cmphex(rd(DEBUGCTL), ==, BTF);
    be_without(PMU_VENDOR_OTHER, 7, 0x0b, 0);
    wr(DEBUGCTL, BTF);
    g_assert_cmphex(rd(DEBUGCTL), ==, BTF);
    other(LAST_FROM);
}

static void test_debugctl(void)
{
    static const struct {
        unsigned model;
        uint32_t mask;
        uint32_t ignored;
    } tests[] = {
        { P6, 0x7f, 0 },
        { PENTIUM_M, 0x1ff, 0 },
        { CORE_DUO, 0x1c3, 0 },
        { CORE2, 0x7c3, 0 },
        { BONNELL, 0x7c3, 0 },
        { SILVERMONT, 0x7c3, 0 },
        { NEHALEM, 0x27c3, 0 },
        { 0x25, 0x27c3, 0 },
        { SANDY_BRIDGE, 0x27c3, 0 },
        { HASWELL, 0x27c3, 0 },
        { SKYLAKE, 0x27c3, 0 },
        { TREMONT, 0x7c3, 0 },
        { SAPPHIRE_RAPIDS, 0x27c2, LBR },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        be_intel(tests[i].model);
        config.debugctl_other = FREEZE;
        for (int bit = 0; bit < 64; bit++) {
            uint64_t val = 1ull << bit;

            if (val & tests[i].mask) {
                wr(DEBUGCTL, val);
                g_assert_cmphex(rd(DEBUGCTL), ==, val);
            } else if (val & (FREEZE | tests[i].ignored)) {
                wr(DEBUGCTL, val | BTF);
                g_assert_cmphex(rd(DEBUGCTL), ==, BTF);
            } else {
                wr_gp(DEBUGCTL, val);
            }
        }
        wr(DEBUGCTL, tests[i].mask | FREEZE);
        g_assert_cmphex(rd(DEBUGCTL), ==, tests[i].mask);
        wr(DEBUGCTL, 0);
        g_assert_cmphex(rd(DEBUGCTL), ==, 0);
    }
    /* By CPUID's bits */
    be_intel(SKYLAKE);
    config.ds_cpl = false;
    wr_gp(DEBUGCTL, OFF_OS);
    wr_gp(DEBUGCTL, OFF_USR);
    wr(DEBUGCTL, TR | BTS | BTINT);
    config.ds = false;
    config.ds_cpl = true;
    wr_gp(DEBUGCTL, TR);
    wr_gp(DEBUGCTL, BTS);
    wr_gp(DEBUGCTL, BTINT);
    wr_gp(DEBUGCTL, OFF_USR);
    /* Not AMD's, which ignore what they have not; kvm-unit-tests want 0, 1. */
    be_k7();
    wr(DEBUGCTL, UINT64_MAX);
    g_assert_cmphex(rd(DEBUGCTL), ==, 0x3f);
    wr(DEBUGCTL, LBR);
    g_assert_cmphex(rd(DEBUGCTL), ==, LBR);
    wr(DEBUGCTL, 0);
    g_assert_cmphex(rd(DEBUGCTL), ==, 0);
}

/*
 * Records
 */

static void test_formats(void)
{
    static const struct {
        unsigned model;
        uint64_t from, to, info;    /* of a mispredicted RET in the kernel */
    } tests[] = {
        { CORE2, KERNEL, KERNEL + 64, 0 },
        { SILVERMONT, KERNEL, KERNEL + 64, 0 },
        { KNIGHTS, KERNEL, KERNEL + 64, 0 },
        { NEHALEM, KERNEL, KERNEL + 64, 0 },
        { HASWELL, KERNEL & ~(3ull << 61), KERNEL + 64, 0 },
        { SKYLAKE, KERNEL, KERNEL + 64, MISPREDICTED | 60 },
        { GOLDMONT, KERNEL, 0x003cffff81000040ull, 0 },
        { GOLDMONT_PLUS, KERNEL, KERNEL + 64, MISPREDICTED | 60 },
        { TREMONT, KERNEL, KERNEL + 64, MISPREDICTED | 60 },
        { SAPPHIRE_RAPIDS, KERNEL, KERNEL + 64,
          MISPREDICTED | 1ull << 60 | 5ull << 56 | 60 },
    };
    PerfmonBranch e;

    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        bool shown = tests[i].model != CORE2 && tests[i].model != SILVERMONT;
        bool info = tests[i].info;
        uint64_t flag = shown && !info ? MISPREDICTED : 0;

        be_intel(tests[i].model);
        config.insn_clocks = 3;
        start();
        g_assert_cmpint(!!(wants(false) & RETIRE_WANT_PREDICT), ==, shown);
        g_assert_cmpint(!!(wants(false) & RETIRE_WANT_LBR_CLOCK), ==,
                        info || tests[i].model == GOLDMONT);
        take(RETIRE_BRANCH_RET, USER, USER + 5, false, 1, false);
        take(RETIRE_BRANCH_RET, KERNEL, KERNEL + 64, true, 20, true);
        g_assert_true(branch_entry(&state, &config, &ring, 0, &e));
        g_assert_cmphex(e.from, ==, tests[i].from | flag);
        g_assert_cmphex(e.to, ==, tests[i].to);
        g_assert_cmphex(e.info, ==, tests[i].info);
        /* The same, predicted */
        take(RETIRE_BRANCH_RET, KERNEL, KERNEL + 64, true, 20, false);
        g_assert_true(branch_entry(&state, &config, &ring, 0, &e));
        g_assert_cmphex(e.from, ==, tests[i].from & ~flag);
        g_assert_cmphex(e.info, ==, tests[i].info & ~MISPREDICTED);
        /* The first one, with no clocks that anybody knows */
        g_assert_true(branch_entry(&state, &config, &ring, 2, &e));
        g_assert_cmphex(e.from, ==, USER);
        g_assert_cmphex(e.to, ==, USER + 5);
        g_assert_cmphex(e.info, ==, tests[i].model == SAPPHIRE_RAPIDS ?
                        5ull << 56 : 0);
    }

    /* Clocks saturate. */
    be_intel(SKYLAKE);
    start();
    jmp(1, 2);
    take(RETIRE_BRANCH_JMP, 1, 2, false, 0xfffe, false);
    g_assert_cmphex(rd(LBR_INFO + rd(LBR_TOS)), ==, 0xfffe);
    take(RETIRE_BRANCH_JMP, 1, 2, false, 0, false);
    g_assert_cmphex(rd(LBR_INFO + rd(LBR_TOS)), ==, 0);
    take(RETIRE_BRANCH_JMP, 1, 2, false, 0xffff, false);
    g_assert_cmphex(rd(LBR_INFO + rd(LBR_TOS)), ==, 0xffff);
    take(RETIRE_BRANCH_JMP, 1, 2, false, 0x10000, false);
    g_assert_cmphex(rd(LBR_INFO + rd(LBR_TOS)), ==, 0xffff);
    config.insn_clocks = 1000;
    take(RETIRE_BRANCH_JMP, 1, 2, false, 65, false);
    g_assert_cmphex(rd(LBR_INFO + rd(LBR_TOS)), ==, 65000);
    for (int bit = 16; bit < 62; bit++) {
        take(RETIRE_BRANCH_JMP, 1, 2, false, 1ull << bit, false);
        g_assert_cmphex(rd(LBR_INFO + rd(LBR_TOS)), ==, 0xffff);
    }

    /* Types */
    be_intel(SAPPHIRE_RAPIDS);
    start();
    for (unsigned class = RETIRE_BRANCH_COND; class <= BRANCH_EVENT; class++) {
        static const uint8_t types[] = {
            [RETIRE_BRANCH_COND] = 0, [RETIRE_BRANCH_JMP_ABS] = 1,
            [RETIRE_BRANCH_JMP] = 2, [RETIRE_BRANCH_CALL_ABS] = 3,
            [RETIRE_BRANCH_CALL] = 4, [RETIRE_BRANCH_RET] = 5,
            [BRANCH_FAR] = 8, [BRANCH_EVENT] = 8,
        };

        take(class, 1, 2, false, 1, false);
        g_assert_cmphex(rd(ARCH_INFO) >> 56 & 15, ==, types[class]);
    }

    /* LbrExtV2 */
    be_zen4();
    start();
    g_assert_cmphex(wants(true), ==,
                    BRANCH_WANT_RECORDS | RETIRE_WANT_PREDICT);
    take(RETIRE_BRANCH_COND, KERNEL, KERNEL + 2, true, 1, true);
    take(RETIRE_BRANCH_COND, USER, USER + 2, true, 1, false);
    g_assert_cmphex(rd(V2_FROM), ==, USER);
    g_assert_cmphex(rd(V2_TO), ==, (USER + 2) | V2_VALID);
    g_assert_cmphex(rd(V2_FROM + 2), ==, KERNEL);
    g_assert_cmphex(rd(V2_TO + 2), ==,
                    ((KERNEL + 2) & ~(7ull << 61)) | V2_VALID);
    g_assert_cmphex(rd(V2_TO + 4), ==, 0);
    g_assert_cmphex(rd(LAST_FROM), ==, USER);
    g_assert_cmphex(rd(LAST_TO), ==, USER + 2);
    take(RETIRE_BRANCH_COND, KERNEL, KERNEL + 2, true, 1, false);
    g_assert_cmphex(rd(V2_FROM), ==, KERNEL & ~MISPREDICTED);
    g_assert_cmphex(rd(LAST_FROM), ==, KERNEL);
    g_assert_cmphex(rd(LAST_TO), ==, KERNEL + 2);

    /* Two addresses in one register */
    be_intel(CORE_DUO);
    start();
    jmp(0xfeedf00d, 0xcafe);
    g_assert_cmpint(rd(LBR_TOS), ==, 1);
    g_assert_cmphex(rd(LOW_FROM + 1), ==, 0x0000cafefeedf00dull);
    wr(LOW_FROM + 1, 0x123456789abcdef0ull);
    g_assert_cmphex(rd(LOW_FROM + 1), ==, 0x123456789abcdef0ull);
}

/* As Linux's check_msr() does it; the value goes back. */
static void probe(uint32_t msr, uint64_t mask)
{
    uint64_t old = rd(msr);

    wr(msr, old ^ mask);
    g_assert_cmphex(rd(msr), ==, old ^ mask);
    wr(msr, old);
    g_assert_cmphex(rd(msr), ==, old);
}

static void test_probe(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(cpus); i++) {
        const Cpu *c = &cpus[i];

        be(c);
        for (int round = 0; round < 3; round++) {
            if (c->select) {
                probe(select_msr(c), 0x11);
            }
            if (c->has_tos) {
                probe(LBR_TOS, 3);
                wr_gp(LBR_TOS, c->depth);
            }
            for (unsigned n = 0; is_stack(c) && n < c->depth; n++) {
                probe(c->from + n * c->step, 0xffff);
                probe(c->to + n * c->step, 0xffff);
                probe(c->from + n * c->step, UINT64_MAX);
                probe(c->to + n * c->step, UINT64_MAX);
                if (c->info) {
                    probe(c->info + n, UINT64_MAX);
                }
            }
            /* Again with records in it */
            start();
            for (unsigned n = 0; n < 21; n++) {
                take(RETIRE_BRANCH_COND, KERNEL + rnd() % 4096,
                     USER + rnd() % 4096,
                     true, rnd() % 100000, rnd() & 1);
            }
        }
    }
}

/* The last branches, as they are, and what comes before an exception */
static void test_pair(void)
{
    for (int amd = 0; amd < 2; amd++) {
        if (amd) {
            be_k7();
        } else {
            be_intel(P6);
        }
        jmp(0x1000, 0x2000);
        g_assert_cmphex(rd(LAST_FROM), ==, 0);
        start();
        g_assert_cmphex(wants(false), ==, BRANCH_WANT_RECORDS);
        jmp(0x1000, 0x2000);
        g_assert_cmphex(rd(LAST_FROM), ==, 0x1000);
        g_assert_cmphex(rd(LAST_TO), ==, 0x2000);
        g_assert_cmphex(rd(LER_FROM) | rd(LER_TO), ==, 0);
        take(BRANCH_FAR, 0x2004, 0x3000, true, 1, false);
        g_assert_cmphex(rd(LAST_FROM), ==, 0x2004);
        g_assert_cmphex(rd(LER_FROM) | rd(LER_TO), ==, 0);
        event(0x3008, 0x4000);
        g_assert_cmphex(rd(LAST_FROM), ==, 0x3008);
        g_assert_cmphex(rd(LAST_TO), ==, 0x4000);
        g_assert_cmphex(rd(LER_FROM), ==, 0x2004);
        g_assert_cmphex(rd(LER_TO), ==, 0x3000);
        /* Read-only, and nobody minds */
        for (uint32_t msr = LAST_FROM; msr <= LER_TO; msr++) {
            uint64_t val = rd(msr);

            wr(msr, 0x5555);
            g_assert_cmphex(rd(msr), ==, val);
        }
        wr(DEBUGCTL, 0);
        jmp(0x5000, 0x6000);
        event(0x6000, 0x7000);
        g_assert_cmphex(rd(LAST_FROM), ==, 0x3008);
        g_assert_cmphex(rd(LER_FROM), ==, 0x2004);
    }
    /* LBR_FRZ is not for these. */
    g_assert_cmphex(branch_wants(&state, &config, true, true), ==, 0);
    wr(DEBUGCTL, LBR);
    g_assert_cmphex(branch_wants(&state, &config, true, true), ==,
                    BRANCH_WANT_RECORDS);
}

/* The last event's record with all formats: plain addresses */
static void test_ler(void)
{
    static const unsigned models[] = {
        PENTIUM_M, CORE_DUO, CORE2, NEHALEM, HASWELL, SKYLAKE, GOLDMONT,
        TREMONT, SAPPHIRE_RAPIDS,
    };
    bool arch = false;

    for (unsigned i = 0; i < G_N_ELEMENTS(models); i++) {
        /* Pentium M has them the other way round. */
        uint32_t ler_from = models[i] == PENTIUM_M ? 0x1de : 0x1dd;
        uint32_t ler_to = models[i] == PENTIUM_M ? 0x1dd : 0x1de;

        arch = models[i] == SAPPHIRE_RAPIDS;
        be_intel(models[i]);
        event(1, 2);
        start();
        event(1, 2);
        g_assert_cmphex(rd(ler_from), ==, 0);
        take(RETIRE_BRANCH_RET, KERNEL, KERNEL + 16, true, 7, true);
        event(KERNEL + 16, KERNEL + 32);
        g_assert_cmphex(rd(ler_from), ==, KERNEL);
        g_assert_cmphex(rd(ler_to), ==, KERNEL + 16);
        take(RETIRE_BRANCH_RET, USER, USER + 16, false, 7, true);
        event(USER + 16, KERNEL + 32);
        g_assert_cmphex(rd(ler_from), ==, USER);
        g_assert_cmphex(rd(ler_to), ==, USER + 16);
        if (arch) {
            g_assert_cmphex(rd(LER_INFO), ==,
                            MISPREDICTED | 1ull << 60 | 5ull << 56 | 7);
            wr(LER_INFO, 3);
            g_assert_cmphex(rd(LER_INFO), ==, 3);
        }
        wr(ler_from, 1);
        wr(ler_to, 2);
        g_assert_cmphex(rd(ler_from), ==, arch ? 1 : USER);
        g_assert_cmphex(rd(ler_to), ==, arch ? 2 : USER + 16);
    }
}

/*
 * Random programs, against a stack as the manuals have it: registers that do
 * not move and a TOS, or that all move.
 */
typedef struct Model {
    unsigned depth, tos;
    bool moves;             /* there is no TOS */
    PerfmonBranch e[BRANCH_NR];
} Model;

static void model_push(Model *m, const PerfmonBranch *e)
{
    if (m->moves) {
        memmove(&m->e[1], &m->e[0], sizeof(m->e[0]) * (m->depth - 1));
        m->e[0] = *e;
    } else {
        m->tos = (m->tos + 1) % m->depth;
        m->e[m->tos] = *e;
    }
}

static void model_pop(Model *m)
{
    PerfmonBranch none = { 0 };

    if (m->moves) {
        memmove(&m->e[0], &m->e[1], sizeof(m->e[0]) * (m->depth - 1));
        m->e[m->depth - 1] = none;
    } else {
        m->e[m->tos] = none;
        m->tos = (m->tos + m->depth - 1) % m->depth;
    }
}

static void check_model(const Cpu *c, const Model *m)
{
    if (c->has_tos) {
        g_assert_cmpint(rd(LBR_TOS), ==, m->tos);
    }
    for (unsigned n = 0; n < m->depth; n++) {
        unsigned nth = m->moves ? n : (m->tos + m->depth - n) % m->depth;
        PerfmonBranch e;

        g_assert_cmphex(rd(c->from + n * c->step), ==, m->e[n].from);
        g_assert_cmphex(rd(c->to + n * c->step), ==, m->e[n].to);
        if (c->info) {
            g_assert_cmphex(rd(c->info + n), ==, m->e[n].info);
        }
        g_assert_true(branch_entry(&state, &config, &ring, nth, &e));
        g_assert_cmpmem(&e, sizeof(e), &m->e[n], sizeof(e));
    }
}

/* What a record of a CALL between small addresses is shown as */
static PerfmonBranch shown(const Cpu *c, uint64_t from, uint64_t to,
                         unsigned insns, bool mispredicted, bool first)
{
    PerfmonBranch e = { from, to, 0 };
    uint64_t flag = mispredicted ? MISPREDICTED : 0;

    insns = first ? 0 : insns;
    switch (c->caps) {
    case 1:                 /* as Knights Landing has it */
    case 3:
    case 4:
        e.from |= flag;
        break;
    case 5:
    case 7:
        e.info = flag | insns;
        break;
    case 6:
        e.from |= flag;
        e.to |= (uint64_t)insns << 48;
        break;
    case 0x3f:
        e.info = flag | insns | 4ull << 56 | (uint64_t)!first << 60;
        break;
    }
    if (c->vendor == AMD) {
        e.from |= flag;
        e.to |= V2_VALID;
    }
    return e;
}

static void run_model(const Cpu *c, bool call_stack, unsigned depth)
{
    Model m = {
        .depth = depth ? depth : c->depth,
        .moves = !c->has_tos,
    };
    bool first = true;
    BranchStack stack;

    be(c);
    if (depth) {
        wr(ARCH_DEPTH, depth);
    }
    if (depth && depth < 32) {
        gp(ARCH_FROM + depth);
        gp(ARCH_TO + depth);
        gp(ARCH_INFO + depth);
    }
    start();
    if (call_stack) {
        wr(depth ? ARCH_CTL : LBR_SELECT,
           depth ? CTL_CALL_STACK : SEL_CALL_STACK);
    }
    for (int i = 0; i < 4000; i++) {
        unsigned op = rnd() % 64, n = rnd() % m.depth;
        uint64_t val = rnd() & (rnd() % 2 ? UINT64_MAX : 0);
        PerfmonBranch e;

        switch (op) {
        case 0:
            wr(c->from + n * c->step, val);
            m.e[n].from = val;
            break;
        case 1:
            wr(c->to + n * c->step, val);
            m.e[n].to = val;
            break;
        case 2:
            if (c->info) {
                wr(c->info + n, val);
                m.e[n].info = val;
            }
            break;
        case 3:
            if (c->has_tos) {
                wr(LBR_TOS, n);
                m.tos = n;
            }
            break;
        case 4:
            /* The clock may be another one where it goes on. */
            branch_stack_save(&state, &config, &ring, now, &stack);
            g_assert_false(branch_state_bad(&state, &config, &stack));
            memset(&ring, 0xa5, sizeof(ring));
            now = rnd() >> 3;
            branch_stack_load(&state, &config, &ring, now, &stack);
            break;
        default:
            if (call_stack && op % 2) {
                take(RETIRE_BRANCH_RET, 1, 2, false, op, false);
                model_pop(&m);
                /* It is not recorded. */
                now -= op;
            } else {
                bool mispredicted = rnd() & 1;
                uint64_t from = rnd() & 0xffffff, to = rnd() & 0xffffff;

                e = shown(c, from, to, op, mispredicted, first);
                take(RETIRE_BRANCH_CALL, from, to, false, op, mispredicted);
                model_push(&m, &e);
                first = false;
            }
            break;
        }
        check_model(c, &m);
    }
}

static void test_model(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(cpus); i++) {
        const Cpu *c = &cpus[i];

        if (!is_stack(c)) {
            continue;
        }
        run_model(c, false, 0);
        if (c->from == ARCH_FROM) {
            for (unsigned depth = 8; depth <= 32; depth *= 2) {
                run_model(c, false, depth);
                run_model(c, true, depth);
            }
        } else if (c->vendor == INTEL && c->select) {
            be(c);
            if (write_msr(LBR_SELECT, 0x200) == PMU_MSR_OK) {
                run_model(c, true, 0);
            }
        }
    }
}

/*
 * Selection
 */

static void test_select(void)
{
    static const uint32_t classes[] = {
        [2] = BRANCH_WANT(RETIRE_BRANCH_COND),
        [3] = BRANCH_WANT(RETIRE_BRANCH_CALL),
        [4] = BRANCH_WANT(RETIRE_BRANCH_CALL_ABS),
        [5] = BRANCH_WANT(RETIRE_BRANCH_RET),
        [6] = BRANCH_WANT(RETIRE_BRANCH_JMP_ABS),
        [7] = BRANCH_WANT(RETIRE_BRANCH_JMP),
        [8] = BRANCH_WANT(BRANCH_FAR) | BRANCH_WANT(BRANCH_EVENT),
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(cpus); i++) {
        const Cpu *c = &cpus[i];
        uint32_t msr = select_msr(c);
        bool call_stack = c->depth >= 16 && c->vendor == INTEL &&
                          c->model != 0x1a && c->model != 0x2c &&
                          c->model != 0x2a && c->model != 0x3a;

        if (!c->select) {
            continue;
        }
        be(c);
        start();
        for (int bit = 2; bit <= 8; bit++) {
            wr(msr, 1u << bit);
            for (int os = 0; os < 2; os++) {
                g_assert_cmphex(wants(os) & BRANCH_WANT_RECORDS, ==,
                                BRANCH_WANT_RECORDS & ~classes[bit]);
            }
            wr(msr, 0x1fc & ~(1u << bit));
            g_assert_cmphex(wants(true) & BRANCH_WANT_RECORDS, ==,
                            classes[bit]);
        }
        wr(msr, 1);
        g_assert_cmphex(wants(true), ==, 0);
        g_assert_cmphex(wants(false) & BRANCH_WANT_RECORDS, ==,
                        BRANCH_WANT_RECORDS);
        wr(msr, 2);
        g_assert_cmphex(wants(false), ==, 0);
        g_assert_cmphex(wants(true) & BRANCH_WANT_RECORDS, ==,
                        BRANCH_WANT_RECORDS);
        wr(msr, 3);
        g_assert_cmphex(wants(true) | wants(false), ==, 0);
        g_assert_cmphex(rd(msr), ==, 3);
        if (c->vendor == AMD) {
            wr(msr, UINT64_MAX);
            g_assert_cmphex(rd(msr), ==, 0x1ff);
            continue;
        }
        wr_gp(msr, 0x400);
        if (!call_stack) {
            wr_gp(msr, 0x200);
            continue;
        }
        wr(msr, SEL_CALL_STACK);
        g_assert_cmphex(wants(false) & ~(RETIRE_WANT_PREDICT |
                                         RETIRE_WANT_LBR_CLOCK), ==,
                        RETIRE_WANT_LBR_STACK | classes[3] | classes[4] |
                        classes[5]);
        /* Undefined, but jumps must not be there. */
        wr(msr, 0x200);
        g_assert_cmphex(wants(false) & BRANCH_WANT_RECORDS, ==,
                        classes[3] | classes[4] | classes[5]);
        wr(msr, 0x2 | SEL_CALL_STACK);
        g_assert_cmphex(wants(false), ==, 0);
        wr(msr, 0x238);
        g_assert_cmphex(wants(false), ==, 0);
    }

    /* The last branch of AMD's is not selected, if that is all. */
    be_zen4();
    wr(V2_SELECT, 0x1ff);
    wr(DEBUGCTL, LBR);
    g_assert_cmphex(wants(true) & BRANCH_WANT_RECORDS, ==,
                    BRANCH_WANT_RECORDS);
    wr(V2_CFG, UINT64_MAX);
    g_assert_cmphex(rd(V2_CFG), ==, V2_EN);
    g_assert_cmphex(wants(true), ==, 0);
    wr(V2_SELECT, 0);
    g_assert_cmphex(branch_wants(&state, &config, true, true), ==, 0);
    wr(V2_CFG, 0);
    wr(DEBUGCTL, 0);
    g_assert_cmphex(wants(true), ==, 0);
}

static void test_arch(void)
{
    static const struct {
        uint32_t ctl, wants;
    } tests[] = {
        { 1u << 16, BRANCH_WANT(RETIRE_BRANCH_COND) },
        { 1u << 17, BRANCH_WANT(RETIRE_BRANCH_JMP) },
        { 1u << 18, BRANCH_WANT(RETIRE_BRANCH_JMP_ABS) },
        { 1u << 19, BRANCH_WANT(RETIRE_BRANCH_CALL) },
        { 1u << 20, BRANCH_WANT(RETIRE_BRANCH_CALL_ABS) },
        { 1u << 21, BRANCH_WANT(RETIRE_BRANCH_RET) },
        { 1u << 22, BRANCH_WANT(BRANCH_FAR) | BRANCH_WANT(BRANCH_EVENT) },
    };
    uint32_t regs[4] = { 1, 2, 3, 4 };
    BranchTaken branch = { .from = USER, .to = KERNEL, .to_os = true,
                           .class = BRANCH_FAR };

    be_intel(SAPPHIRE_RAPIDS);
    branch_cpuid_1c(&config, regs);
    g_assert_cmphex(regs[0], ==, 0x0b);
    g_assert_cmphex(regs[1], ==, 7);
    g_assert_cmphex(regs[2], ==, 7);
    g_assert_cmphex(regs[3], ==, 0);
    g_assert_cmpint(rd(ARCH_DEPTH), ==, 32);
    for (int bit = 0; bit < 64; bit++) {
        if (0x7f000full >> bit & 1) {
            wr(ARCH_CTL, 1ull << bit);
            g_assert_cmphex(rd(ARCH_CTL), ==, 1ull << bit);
        } else {
            wr_gp(ARCH_CTL, 1ull << bit);
        }
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        wr(ARCH_CTL, 7 | tests[i].ctl);
        g_assert_cmphex(wants(true) & BRANCH_WANT_RECORDS, ==, tests[i].wants);
        g_assert_cmphex(wants(false), ==, wants(true));
        g_assert_cmphex(branch_wants(&state, &config, true, true), ==, 0);
        wr(ARCH_CTL, 3 | tests[i].ctl);
        g_assert_cmphex(wants(true) & BRANCH_WANT_RECORDS, ==, tests[i].wants);
        g_assert_cmphex(wants(false), ==, 0);
        wr(ARCH_CTL, 5 | tests[i].ctl);
        g_assert_cmphex(wants(true), ==, 0);
        g_assert_cmphex(wants(false) & BRANCH_WANT_RECORDS, ==,
                        tests[i].wants);
        wr(ARCH_CTL, 6 | tests[i].ctl);
        g_assert_cmphex(wants(true) | wants(false), ==, 0);
    }
    wr(ARCH_CTL, CTL_CALL_STACK);
    g_assert_cmphex(wants(false), ==, RETIRE_WANT_LBR_STACK |
                    BRANCH_WANT(RETIRE_BRANCH_CALL) |
                    BRANCH_WANT(RETIRE_BRANCH_CALL_ABS) |
                    BRANCH_WANT(RETIRE_BRANCH_RET) |
                    RETIRE_WANT_PREDICT | RETIRE_WANT_LBR_CLOCK);

    /* Where a branch comes from that goes to another CPL */
    wr(ARCH_CTL, CTL_ALL & ~4);
    branch_record(&state, &config, &ring, &branch, false, now);
    g_assert_cmphex(rd(ARCH_FROM), ==, UINT64_MAX);
    g_assert_cmphex(rd(ARCH_TO), ==, KERNEL);
    wr(ARCH_CTL, CTL_ALL);
    branch_record(&state, &config, &ring, &branch, false, now);
    g_assert_cmphex(rd(ARCH_FROM), ==, USER);
    branch.from_os = true;
    branch.to_os = false;
    wr(ARCH_CTL, CTL_ALL & ~2);
    branch_record(&state, &config, &ring, &branch, false, now);
    g_assert_cmphex(rd(ARCH_FROM), ==, UINT64_MAX);
    branch_record(&state, &config, &ring, &branch, true, now);
    g_assert_cmphex(rd(ARCH_FROM + 3), ==, 0);

    /* Each write of the depth clears. */
    wr(ARCH_DEPTH, 32);
    for (unsigned n = 0; n < 32; n++) {
        g_assert_cmphex(rd(ARCH_FROM + n) | rd(ARCH_TO + n) |
                        rd(ARCH_INFO + n), ==, 0);
    }
    for (uint64_t n = 0; n < 70; n++) {
        if (n == 8 || n == 16 || n == 32) {
            wr(ARCH_DEPTH, n);
            g_assert_cmpint(rd(ARCH_DEPTH), ==, n);
        } else {
            wr_gp(ARCH_DEPTH, n);
        }
    }
    wr_gp(ARCH_DEPTH, 1ull << 32 | 8);

    be_without(INTEL, 6, SAPPHIRE_RAPIDS, BRANCH_WITHOUT_LBR);
    regs[0] = regs[1] = regs[2] = regs[3] = 5;
    branch_cpuid_1c(&config, regs);
    g_assert_cmphex(regs[0] | regs[1] | regs[2] | regs[3], ==, 0);
    gp(ARCH_CTL);
    g_assert_cmphex(state.lbr_depth, ==, 0);
}

/* A CALL, from instruction @n, and a RET; in the middle of it, an event */
static void test_call_stack(void)
{
    static const unsigned models[] = { HASWELL, SKYLAKE, TREMONT };

    for (unsigned i = 0; i < G_N_ELEMENTS(models); i++) {
        unsigned depth = models[i] == HASWELL ? 16 : 32;
        const unsigned calls = 50;

        be_intel(models[i]);
        start();
        wr(LBR_SELECT, SEL_CALL_STACK);
        for (unsigned n = 0; n < calls; n++) {
            take(RETIRE_BRANCH_CALL_ABS, 0x1000 + n, 0x2000 + n, false, 1,
                 false);
            jmp(1, 2);
            event(3, 4);
        }
        /* The newest are there, */
        for (unsigned n = 0; n < depth; n++) {
            unsigned slot = (rd(LBR_TOS) - n) % depth;

            g_assert_cmphex(rd(HIGH_FROM + slot), ==, 0x1000 + calls - 1 - n);
        }
        /* and behind them, when they have gone, nothing is. */
        for (unsigned n = 0; n < calls; n++) {
            uint64_t top = rd(LBR_TOS);

            g_assert_cmphex(rd(HIGH_FROM + top), ==,
                            n < depth ? 0x1000 + calls - 1 - n : 0);
            take(RETIRE_BRANCH_RET, 5, 6, false, 1, false);
            g_assert_cmphex(rd(LBR_TOS), ==, (top - 1) % depth);
            g_assert_cmphex(rd(HIGH_FROM + top) | rd(HIGH_TO + top), ==, 0);
        }
    }
}

/*
 * DEBUGCTL does more
 */

static void test_debug(void)
{
    be_intel(SKYLAKE);
    wr(DEBUGCTL, LBR | BTF | TR | BTS | BTINT);
    jmp(1, 2);
    g_assert_cmphex(wants(true) & RETIRE_WANT_BTF, ==, RETIRE_WANT_BTF);
    g_assert_true(branch_debug(&state));
    g_assert_false(branch_debug(&state));
    g_assert_cmphex(rd(DEBUGCTL), ==, TR | BTS | BTINT);
    g_assert_cmphex(wants(true), ==,
                    RETIRE_WANT_TAKEN | RETIRE_WANT_PREDICT);
    g_assert_cmphex(rd(HIGH_FROM + 1), ==, 1);

    /* IA32_LBR_CTL.LBREn is cleared, too. */
    be_intel(SAPPHIRE_RAPIDS);
    start();
    g_assert_true(branch_debug(&state));
    g_assert_false(branch_debug(&state));
    g_assert_cmphex(rd(ARCH_CTL), ==, CTL_ALL & ~1);
    g_assert_cmphex(wants(true), ==, 0);

    be_zen4();
    start();
    wr(DEBUGCTL, LBR | BTF);
    g_assert_true(branch_debug(&state));
    g_assert_cmphex(rd(DEBUGCTL), ==, 0);
    g_assert_cmphex(rd(V2_CFG), ==, V2_EN);
}

static void test_pmi(void)
{
    for (uint8_t version = 2; version <= 5; version++) {
        be_intel(SKYLAKE);
        config.pmu_version = version;
        wr(DEBUGCTL, LBR | BTF | TR);
        branch_pmi(&state, &config, false);
        g_assert_cmphex(rd(DEBUGCTL), ==, LBR | BTF | TR);
        branch_pmi(&state, &config, true);
        g_assert_cmphex(rd(DEBUGCTL), ==, (version < 4 ? 0 : LBR) | BTF | TR);
    }
    wr(DEBUGCTL, LBR);
    g_assert_cmphex(branch_wants(&state, &config, true, true), ==, 0);
    be_intel(BONNELL);
    config.pmu_version = 3;
    wr(DEBUGCTL, LBR | BTF | TR | BTS | BTINT);
    branch_pmi(&state, &config, false);
    g_assert_cmphex(rd(DEBUGCTL), ==, LBR | BTF | TR | BTS | BTINT);
    branch_pmi(&state, &config, true);
    g_assert_cmphex(rd(DEBUGCTL), ==, BTF | BTS | BTINT);
    be_k7();
    wr(DEBUGCTL, LBR);
    branch_pmi(&state, &config, true);
    g_assert_cmphex(rd(DEBUGCTL), ==, LBR);
    be_intel(SAPPHIRE_RAPIDS);
    config.pmu_version = 5;
    start();
    branch_pmi(&state, &config, true);
    g_assert_cmphex(rd(ARCH_CTL), ==, CTL_ALL);
}

static void test_smm(void)
{
    be_intel(SKYLAKE);
    wr(DEBUGCTL, LBR | BTF | TR | BTS | BTINT | OFF_USR);
    branch_smi(&state, false);
    g_assert_cmphex(rd(DEBUGCTL), ==, LBR | BTF | TR | BTS | BTINT | OFF_USR);
    branch_rsm(&state);
    branch_smi(&state, true);
    g_assert_cmphex(rd(DEBUGCTL), ==, BTINT | OFF_USR);
    g_assert_cmphex(wants(true) | wants(false), ==, 0);
    wr(DEBUGCTL, LBR);
    branch_rsm(&state);
    g_assert_cmphex(rd(DEBUGCTL), ==, LBR | BTF | TR | BTS | BTINT | OFF_USR);
    g_assert_cmphex(state.smm_debugctl, ==, 0);

    /* Architectural records are off in SMM in any case; but that is all. */
    for (int freeze = 0; freeze < 2; freeze++) {
        BranchStack stack = { 0 };

        be_intel(SAPPHIRE_RAPIDS);
        start();
        wr(DEBUGCTL, TR | BTS);
        branch_smi(&state, freeze);
        g_assert_cmphex(rd(ARCH_CTL), ==, CTL_ALL & ~1);
        g_assert_cmphex(rd(DEBUGCTL), ==, freeze ? 0 : TR | BTS);
        g_assert_cmphex(wants(true) & BRANCH_WANT_RECORDS, ==, 0);
        g_assert_false(branch_state_bad(&state, &config, &stack));
        wr(ARCH_CTL, CTL_CALL_STACK & ~1);
        branch_rsm(&state);
        g_assert_cmphex(rd(ARCH_CTL), ==, CTL_CALL_STACK);
        g_assert_cmphex(rd(DEBUGCTL), ==, TR | BTS);
        g_assert_cmphex(state.smm_lbr_ctl, ==, 0);
        /* What SMM switches on does not stay so. */
        wr(ARCH_CTL, 0);
        branch_smi(&state, freeze);
        wr(ARCH_CTL, CTL_ALL);
        branch_rsm(&state);
        g_assert_cmphex(rd(ARCH_CTL), ==, CTL_ALL & ~1);
    }
}

static void test_reset(void)
{
    be_intel(SKYLAKE);
    wr(DEBUGCTL, LBR);
    wr(LBR_SELECT, 4);
    jmp(1, 2);
    g_assert_cmphex(rd(HIGH_TO + 1), ==, 2);
    branch_reset(&state, &config, &ring);
    g_assert_cmphex(rd(DEBUGCTL) | rd(LBR_SELECT) | rd(LBR_TOS), ==, 0);
    g_assert_cmphex(rd(HIGH_TO + 1), ==, 0);
}

static void test_svm(void)
{
    BranchSvm host, guest = {
        .debugctl = LBR | 0x1800, .br_from = KERNEL, .br_to = USER,
        .last_excp_from = 5, .last_excp_to = 6,
    }, back;

    for (int v2 = 0; v2 < 2; v2++) {
        if (v2) {
            be_zen4();
        } else {
            be_k7();
        }
        wr(DEBUGCTL, LBR);
        jmp(0x10, 0x20);
        event(0x20, 0x30);
        wr(DEBUGCTL, 0);
        /* VMRUN */
        branch_svm_save(&state, &config, &ring, &host);
        branch_svm_load(&state, &config, &ring, &guest);
        g_assert_cmphex(rd(DEBUGCTL), ==, LBR);
        g_assert_cmphex(rd(LAST_FROM), ==, KERNEL);
        g_assert_cmphex(rd(LAST_TO), ==, USER);
        g_assert_cmphex(rd(LER_FROM), ==, 5);
        g_assert_cmphex(rd(LER_TO), ==, 6);
        if (v2) {
            g_assert_cmphex(rd(V2_TO), ==, USER | V2_VALID);
        }
        if (v2) {
            /* Whether it was mispredicted stays. */
            for (int i = 0; i < 4; i++) {
                uint64_t from = i & 1 ? KERNEL : USER;

                from &= ~MISPREDICTED;
                from |= i & 2 ? MISPREDICTED : 0;
                wr(V2_FROM, from);
                branch_svm_save(&state, &config, &ring, &back);
                wr(V2_FROM, 0);
                branch_svm_load(&state, &config, &ring, &back);
                g_assert_cmphex(rd(V2_FROM), ==, from);
                g_assert_cmphex(rd(LAST_FROM), ==, i & 1 ? KERNEL : USER);
                g_assert_cmphex(rd(LAST_TO), ==, USER);
            }
        }
        jmp(0x50, 0x60);
        branch_svm_save(&state, &config, &ring, &back);
        g_assert_cmphex(back.debugctl, ==, LBR);
        g_assert_cmphex(back.br_from, ==, 0x50);
        g_assert_cmphex(back.br_to, ==, 0x60);
        /* #VMEXIT */
        branch_svm_load(&state, &config, &ring, &host);
        g_assert_cmphex(rd(DEBUGCTL), ==, 0);
        g_assert_cmphex(rd(LAST_FROM), ==, 0x20);
        g_assert_cmphex(rd(LAST_TO), ==, 0x30);
        g_assert_cmphex(rd(LER_FROM), ==, 0x10);
        g_assert_cmphex(rd(LER_TO), ==, 0x20);
        memset(&guest, 0, sizeof(guest));
        branch_svm_load(&state, &config, &ring, &guest);
        g_assert_cmphex(rd(LAST_FROM) | rd(LAST_TO) | rd(LER_FROM), ==, 0);
        guest.br_from = KERNEL;
        guest.br_to = USER;
        guest.debugctl = LBR;
        guest.last_excp_from = 5;
        guest.last_excp_to = 6;
    }
    g_assert_true(branch_has_lbrv(&config));
    /* Only single step on branches is there. */
    be_without(AMD, 15, 0x6b, BRANCH_WITHOUT_LBR);
    g_assert_false(branch_has_lbrv(&config));
    guest.debugctl = LBR | BTF;
    branch_svm_load(&state, &config, &ring, &guest);
    branch_svm_save(&state, &config, &ring, &back);
    g_assert_cmphex(back.debugctl, ==, BTF);
    g_assert_cmphex(back.br_from | back.br_to | back.last_excp_from |
                    back.last_excp_to, ==, 0);
}

static void test_cpuid(void)
{
    uint32_t regs[4] = { 1, 6, 0, 0 };

    be_zen4();
    branch_cpuid_80000022(&config, regs);
    g_assert_cmphex(regs[0], ==, 7);
    g_assert_cmphex(regs[1], ==, 0x106);
    be_k7();
    regs[0] = 1;
    regs[1] = 6;
    branch_cpuid_80000022(&config, regs);
    g_assert_cmphex(regs[0], ==, 1);
    g_assert_cmphex(regs[1], ==, 6);
    be_intel(SKYLAKE);
    branch_cpuid_1c(&config, regs);
    g_assert_cmphex(regs[0] | regs[1] | regs[2] | regs[3], ==, 0);
}

/*
 * Migration
 */

#define BAD(field, val)                                                 \
    do {                                                                \
        BranchState s = state;                                          \
        BranchStack k = { 0 };                                          \
                                                                        \
        g_assert_false(branch_state_bad(&s, &config, &k));              \
        (void)k;                                                        \
        field = val;                                                    \
        g_assert_true(branch_state_bad(&s, &config, &k));               \
    } while (0)

static void test_bad(void)
{
    BranchStack stack = { 0 };
    BranchState s;

    be_intel(SKYLAKE);
    BAD(s.debugctl, 1u << 11);
    BAD(s.debugctl, 1ull << 63);
    BAD(s.select, 0x400);
    BAD(s.lbr_ctl, 1);
    BAD(s.lbr_depth, 32);
    BAD(s.dbg_extn_cfg, V2_EN);
    BAD(s.ler_info, 1);
    BAD(s.smm_debugctl, LBR);
    BAD(s.smm_lbr_ctl, 1);
    BAD(k.tos, 32);
    BAD(k.age, 1ull << 62);
    s = state;
    s.smm_frozen = true;
    s.smm_debugctl = LBR | BTF;
    g_assert_false(branch_state_bad(&s, &config, &stack));
    s.smm_debugctl = 1u << 12;
    g_assert_true(branch_state_bad(&s, &config, &stack));
    s.smm_debugctl = 0;
    s.smm_lbr_ctl = 1;
    g_assert_true(branch_state_bad(&s, &config, &stack));
    stack.entry[31].info = stack.entry[31].from = UINT64_MAX;
    g_assert_false(branch_state_bad(&state, &config, &stack));
    config.ds = false;
    s = state;
    s.debugctl = BTS;
    g_assert_true(branch_state_bad(&s, &config, &stack));

    be_intel(HASWELL);
    BAD(k.entry[0].info, 1);
    BAD(k.entry[16].from, 1);
    BAD(k.tos, 16);
    be_intel(CORE_DUO);
    BAD(k.entry[0].from, 1ull << 32);
    BAD(k.entry[0].to, 1ull << 32);
    BAD(k.entry[8].to, 1);
    BAD(s.select, 4);
    be_intel(SAPPHIRE_RAPIDS);
    BAD(s.lbr_depth, 0);
    BAD(s.lbr_depth, 24);
    BAD(s.lbr_depth, 64);
    BAD(s.lbr_depth, 8ull << 32);
    BAD(s.lbr_ctl, 0x10);
    BAD(s.smm_lbr_ctl, 0x10);
    BAD(s.debugctl, LBR);
    BAD(k.tos, 1);
    be_intel(P6);
    BAD(k.entry[1].from, 1);
    BAD(k.tos, 1);
    be_k7();
    BAD(s.dbg_extn_cfg, V2_EN);
    BAD(s.select, 1);
    be_zen4();
    BAD(s.dbg_extn_cfg, 1);
    BAD(s.select, 0x200);
    BAD(k.entry[16].from, 1);
    be_without(AMD, 0x19, 0x11, BRANCH_WITHOUT_LBR);
    BAD(s.ler_from, 1);
    BAD(s.ler_to, 1);
    BAD(k.entry[0].from, 1);
}

/* A ring, from one clock to another */
static void test_load(void)
{
    BranchStack stack;

    be_intel(SKYLAKE);
    branch_stack_save(&state, &config, &ring, now, &stack);
    g_assert_cmpint(stack.age, ==, 0);
    start();
    jmp(1, 2);
    take(RETIRE_BRANCH_COND, 3, 4, false, 10, true);
    now += 5;
    branch_stack_save(&state, &config, &ring, now, &stack);
    g_assert_cmphex(stack.tos, ==, 2);
    g_assert_cmphex(stack.age, ==, 5 + 1);
    g_assert_cmphex(stack.entry[0].info, ==, MISPREDICTED | 10);
    g_assert_cmphex(stack.entry[1].from, ==, 1);
    memset(&ring, 0xff, sizeof(ring));
    now = 0;
    branch_stack_load(&state, &config, &ring, now, &stack);
    g_assert_cmphex(rd(LBR_TOS), ==, 2);
    g_assert_cmphex(rd(LBR_INFO + 2), ==, MISPREDICTED | 10);
    g_assert_cmphex(rd(HIGH_FROM + 1), ==, 1);
    take(RETIRE_BRANCH_COND, 5, 6, false, 7, false);
    g_assert_cmphex(rd(LBR_INFO + 3), ==, 12);
    /* A stream that does not know of it */
    memset(&stack, 0, sizeof(stack));
    branch_stack_load(&state, &config, &ring, now, &stack);
    g_assert_cmphex(rd(LBR_TOS) | rd(HIGH_FROM + 3), ==, 0);
    take(RETIRE_BRANCH_COND, 5, 6, false, 7, false);
    g_assert_cmphex(rd(LBR_INFO + 1), ==, 0);
}

/*
 * The branch trace store
 */

#define PAGE    4096u
#define PAGES   8

/* Of which some cannot be written; the address of the first one may be any. */
typedef struct Memory {
    uint64_t base;
    bool absent[PAGES];
    uint8_t bytes[PAGES * PAGE];
    unsigned slow;          /* calls of host() */
} Memory;

static void *host(void *opaque, uint64_t addr, uint32_t len)
{
    Memory *m = opaque;
    uint64_t offset = addr - m->base;

    m->slow++;
    g_assert_cmpint(len, >, 0);
    g_assert_cmpint((addr & (PAGE - 1)) + len, <=, PAGE);
    return offset < sizeof(m->bytes) && !m->absent[offset / PAGE] ?
           m->bytes + offset : NULL;
}

static void *quick(void *opaque, uint64_t addr, uint32_t len)
{
    Memory *m = opaque;
    unsigned slow = m->slow;
    void *p = (addr & (PAGE - 1)) + len <= PAGE ? host(opaque, addr, len) :
              NULL;

    m->slow = slow;
    return p;
}

/* One that knows no translation */
static void *never(void *opaque, uint64_t addr, uint32_t len)
{
    return NULL;
}

static Memory *memory;

static uint64_t peek(uint64_t addr, unsigned size)
{
    uint64_t val = 0;

    for (unsigned i = 0; i < size; i++) {
        val |= (uint64_t)memory->bytes[addr - memory->base + i] << 8 * i;
    }
    return val;
}

static void poke(uint64_t addr, unsigned size, uint64_t val)
{
    for (unsigned i = 0; i < size; i++) {
        memory->bytes[addr - memory->base + i] = val >> 8 * i;
    }
}

static void set_area(uint64_t area, uint64_t base, uint64_t index,
                     uint64_t maximum, uint64_t threshold)
{
    unsigned size = config.dtes64 ? 8 : 4;

    ds_area = area;
    poke(area, size, base);
    poke(area + size, size, index);
    poke(area + 2 * size, size, maximum);
    poke(area + 3 * size, size, threshold);
}

static BtsResult bts(uint64_t from, uint64_t to, bool fast)
{
    return bts_record(&state, &config, ds_area, from, to, false,
                      fast ? quick : never, host, memory);
}

/* Bit 4 of the third field, where the manual has it */
static void test_predicted(void)
{
    static const struct {
        unsigned model;
        bool has;
    } tests[] = {
        { PENTIUM_M, true }, { CORE_DUO, true }, { CORE2, false },
        { BONNELL, false }, { SILVERMONT, false }, { KNIGHTS, false },
        { NEHALEM, true }, { SANDY_BRIDGE, true }, { HASWELL, true },
        { SKYLAKE, true }, { GOLDMONT, false }, { GOLDMONT_PLUS, false },
        { TREMONT, false }, { SAPPHIRE_RAPIDS, true }, { 0xaf, false },
        { 0xb6, false }, { 0xbe, false }, { 0xdd, false }, { 0xad, true },
    };

    memory = g_new0(Memory, 1);
    memory->base = 0xc0000000;
    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        uint64_t base = memory->base + PAGE;
        unsigned size;

        be_intel(tests[i].model);
        size = config.dtes64 ? 8 : 4;
        wr(DEBUGCTL, TR | BTS);
        g_assert_cmphex(wants(true), ==, RETIRE_WANT_TAKEN |
                        (tests[i].has ? RETIRE_WANT_PREDICT : 0));
        for (int n = 0; n < 4; n++) {
            set_area(memory->base, base, base, base + PAGE, 0);
            g_assert_cmpint(bts_record(&state, &config, ds_area, 1, 2, n & 1,
                                       n & 2 ? quick : never, host, memory),
                            ==, BTS_STORED);
            g_assert_cmphex(peek(base + 2 * size, size), ==,
                            tests[i].has && n & 1 ? 0x10 : 0);
        }
        wr(DEBUGCTL, TR | BTS | BTINT);
        g_assert_true(branch_bts_interrupts(&state));
        wr(DEBUGCTL, BTS | BTINT);
        g_assert_false(branch_bts_interrupts(&state));
    }
    g_free(memory);
}

/* Another processor reads records while they are stored. */
static void *read_records(void *opaque)
{
    uint64_t *index = (uint64_t *)&memory->bytes[BTS_INDEX];
    uint64_t at = memory->base + PAGE;
    const uint64_t end = memory->base + sizeof(memory->bytes) - BTS_RECORD_SIZE;

    for (uint64_t n = 0; at <= end; n++, at += BTS_RECORD_SIZE) {
        while (GUINT64_FROM_LE(__atomic_load_n(index, __ATOMIC_ACQUIRE)) <=
               at) {
            g_thread_yield();
        }
        g_assert_cmphex(peek(at, 8), ==, n);
        g_assert_cmphex(peek(at + 8, 8), ==, ~n);
    }
    return NULL;
}

/* Who sees the index sees the record: by the values, and with TSan. */
static void test_order(void)
{
    memory = g_new0(Memory, 1);
    memory->base = KERNEL;
    be_intel(SKYLAKE);
    wr(DEBUGCTL, TR | BTS);
    for (int fast = 0; fast < 2; fast++) {
        uint64_t base = memory->base + PAGE;
        GThread *reader;

        memset(memory->bytes, 0xee, sizeof(memory->bytes));
        set_area(memory->base, base, base, memory->base + sizeof(memory->bytes),
                 0);
        reader = g_thread_new("reader", read_records, NULL);
        for (uint64_t n = 0; n < (PAGES - 1) * PAGE / BTS_RECORD_SIZE; n++) {
            g_assert_cmpint(bts(n, ~n, fast), ==, BTS_STORED);
        }
        g_thread_join(reader);
    }
    g_free(memory);
}

static void test_bts(void)
{
    static const struct {
        unsigned model;
        bool fast;
    } tests[] = {
        { SKYLAKE, true }, { SKYLAKE, false }, { PENTIUM_M, true },
    };

    memory = g_new0(Memory, 1);
    /* Each of these processors has predictions in records. */
    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        const uint32_t on = RETIRE_WANT_TAKEN | RETIRE_WANT_PREDICT;
        bool fast = tests[i].fast;
        unsigned size, n;
        uint64_t area, base, top;

        be_intel(tests[i].model);
        size = config.dtes64 ? 8 : 4;
        memory->base = config.dtes64 ? KERNEL : 0xc0000000;
        area = memory->base + 0x10;
        base = memory->base + PAGE + 5;     /* as perf's AUX area may have it */
        top = base + 300 * 3 * size;

        wr(DEBUGCTL, TR);
        g_assert_cmphex(wants(true), ==, 0);
        wr(DEBUGCTL, BTS);
        g_assert_cmphex(wants(true), ==, 0);
        wr(DEBUGCTL, TR | BTS);
        g_assert_cmphex(wants(true), ==, on);
        g_assert_cmphex(wants(false), ==, on);
        if (config.ds_cpl) {
            wr(DEBUGCTL, TR | BTS | OFF_OS);
            g_assert_cmphex(wants(true), ==, 0);
            g_assert_cmphex(wants(false), ==, on);
            wr(DEBUGCTL, TR | BTS | OFF_USR);
            g_assert_cmphex(wants(true), ==, on);
            g_assert_cmphex(wants(false), ==, 0);
        }

        /* A ring, whose threshold does not matter */
        wr(DEBUGCTL, TR | BTS);
        memset(memory->bytes, 0xee, sizeof(memory->bytes));
        set_area(area, base, base, top, base);
        for (n = 0; n < 301; n++) {
            uint64_t at = base + n % 300 * 3 * size;

            memory->slow = 0;
            g_assert_cmpint(bts(0x11223344 + n, 0x55667788 + n, fast), ==,
                            BTS_STORED);
            if (config.dtes64 && fast && n < 300 &&
                at / PAGE == (at + 23) / PAGE) {
                g_assert_cmpint(memory->slow, ==, 0);
            }
            g_assert_cmphex(peek(at, size), ==, 0x11223344 + n);
            g_assert_cmphex(peek(at + size, size), ==, 0x55667788 + n);
            g_assert_cmphex(peek(at + 2 * size, size), ==, 0);
            g_assert_cmphex(peek(area + size, size), ==, at + 3 * size);
        }
        g_assert_cmphex(peek(top, 8), ==, 0xeeeeeeeeeeeeeeeeull);
        g_assert_cmphex(peek(base - 5, 5), ==, 0xeeeeeeeeeeull);
        g_assert_cmphex(peek(area, size), ==, base);

        /* With an interrupt from the threshold on, to the end */
        wr(DEBUGCTL, TR | BTS | BTINT);
        set_area(area, base, base, top + 2, base + 299 * 3 * size);
        for (n = 1; n <= 300; n++) {
            g_assert_cmpint(bts(n, n, fast), ==,
                            n < 299 ? BTS_STORED : BTS_PMI);
        }
        g_assert_cmpint(bts(n, n, fast), ==, BTS_FULL);
        g_assert_cmphex(peek(area + size, size), ==, top);
        poke(area + size, size, top + 3);
        g_assert_cmpint(bts(n, n, fast), ==, BTS_FULL);
        g_assert_cmphex(peek(area + size, size), ==, top + 3);
        /* The threshold may be the end, and software may change it. */
        set_area(area, base, top - 3 * size, top, top);
        g_assert_cmpint(bts(n, n, fast), ==, BTS_PMI);
        set_area(area, base, top - 3 * size, top, top + 1);
        g_assert_cmpint(bts(n, n, fast), ==, BTS_STORED);
        /* A ring that is too small, or the wrong way round */
        wr(DEBUGCTL, TR | BTS);
        set_area(area, base, base, base + 3 * size - 1, 0);
        g_assert_cmpint(bts(n, n, fast), ==, BTS_FULL);
        set_area(area, base + 100, base + 100, base, 0);
        g_assert_cmpint(bts(n, n, fast), ==, BTS_FULL);

        /* Not there: nothing is written. */
        memset(memory->bytes, 0, sizeof(memory->bytes));
        set_area(area, base, base + 3 * PAGE, base + 7 * PAGE, 0);
        poke(area + size, size, (memory->base + 3 * PAGE) - size);
        memory->absent[3] = true;
        g_assert_cmpint(bts(1, 2, fast), ==, BTS_NO_BUFFER);
        g_assert_cmphex(peek(memory->base + 3 * PAGE - size, size), ==, 0);
        memory->absent[3] = false;
        memory->absent[2] = true;
        g_assert_cmpint(bts(1, 2, fast), ==, BTS_NO_BUFFER);
        g_assert_cmphex(peek(memory->base + 3 * PAGE, size), ==, 0);
        memory->absent[2] = false;
        g_assert_cmpint(bts(1, 2, fast), ==, BTS_STORED);
        g_assert_cmphex(peek(memory->base + 3 * PAGE - size, size), ==, 1);
        g_assert_cmphex(peek(memory->base + 3 * PAGE, size), ==, 2);
        memory->absent[0] = true;
        g_assert_cmpint(bts(1, 2, fast), ==, BTS_NO_AREA);
        memory->absent[0] = false;

        /* The area itself in two pages, of which one may be missing */
        area = memory->base + PAGE - 2 * size - 1;
        set_area(area, base + PAGE, base + PAGE, base + 2 * PAGE, 0);
        g_assert_cmpint(bts(1, 2, fast), ==, BTS_STORED);
        g_assert_cmphex(peek(area + size, size), ==,
                        base + PAGE + 3 * size);
        memory->absent[1] = true;
        g_assert_cmpint(bts(1, 2, fast), ==, BTS_NO_AREA);
        memory->absent[1] = false;

        /* A record in the area: what it says is as it was before. */
        area = memory->base + 0x100;
        set_area(area, area, area, area + PAGE, 0);
        g_assert_cmpint(bts(1, 2, fast), ==, BTS_STORED);
        g_assert_cmphex(peek(area, size), ==, 1);
        g_assert_cmphex(peek(area + size, size), ==, area + 3 * size);
        g_assert_cmphex(peek(area + 2 * size, size), ==, 0);

        /* Nowhere */
        set_area(memory->base, base, 0x1000, UINT32_MAX, 0);
        g_assert_cmpint(bts(1, 2, fast), ==, BTS_NO_BUFFER);
    }

    /* The end of the address space, and a record that would go beyond. */
    be_intel(SKYLAKE);
    memory->base = -(uint64_t)sizeof(memory->bytes);
    wr(DEBUGCTL, TR | BTS | BTINT);
    set_area(memory->base, 0, -24ull, -1ull, 0);
    g_assert_cmpint(bts(1, 2, true), ==, BTS_FULL);
    set_area(memory->base, 0, -25ull, -1ull, -1ull);
    g_assert_cmpint(bts(1, 2, true), ==, BTS_PMI);
    ds_area = -8ull;
    g_assert_cmpint(bts(1, 2, true), ==, BTS_NO_AREA);
    g_free(memory);
}

int main(int argc, char *argv[])
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/branch/flavours", test_flavours);
    g_test_add_func("/branch/without", test_without);
    g_test_add_func("/branch/debugctl", test_debugctl);
    g_test_add_func("/branch/formats", test_formats);
    g_test_add_func("/branch/probe", test_probe);
    g_test_add_func("/branch/pair", test_pair);
    g_test_add_func("/branch/ler", test_ler);
    g_test_add_func("/branch/model", test_model);
    g_test_add_func("/branch/select", test_select);
    g_test_add_func("/branch/arch", test_arch);
    g_test_add_func("/branch/call-stack", test_call_stack);
    g_test_add_func("/branch/debug", test_debug);
    g_test_add_func("/branch/pmi", test_pmi);
    g_test_add_func("/branch/smm", test_smm);
    g_test_add_func("/branch/reset", test_reset);
    g_test_add_func("/branch/svm", test_svm);
    g_test_add_func("/branch/cpuid", test_cpuid);
    g_test_add_func("/branch/bad", test_bad);
    g_test_add_func("/branch/load", test_load);
    g_test_add_func("/branch/bts", test_bts);
    g_test_add_func("/branch/order", test_order);
    g_test_add_func("/branch/bts-predicted", test_predicted);
    return g_test_run();
}
