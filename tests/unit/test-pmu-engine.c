/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Unit tests of the PMU engine: its registers, and its counters against a model
 * that runs a program clock by clock.
 */

#include "pmu-state.h"

#define A_PMC(n)        (0x4c1 + (n))
#define STATUS_SET      0x391
#define PERF_CAPS       0x345
#define K7_EVTSEL(n)    (0xc0010000 + (n))
#define K7_PERFCTR(n)   (0xc0010004 + (n))
#define EXT_EVTSEL(n)   (0xc0010200 + 2 * (n))
#define EXT_PERFCTR(n)  (0xc0010201 + 2 * (n))
#define V2_STATUS       0xc0000300
#define V2_CTL          0xc0000301
#define V2_STATUS_CLR   0xc0000302
#define V2_STATUS_SET   0xc0000303

#define EDGE            (1u << 18)
#define ANY             (1u << 21)
#define INV             (1u << 23)
#define CMASK(n)        ((uint32_t)(n) << 24)
#define GUEST_ONLY      (1ull << 40)
#define HOST_ONLY       (1ull << 41)

#define LBR_FRZ         (1ull << 58)
#define CTR_FRZ         (1ull << 59)
#define FREEZE_LBRS     (1u << 11)
#define FREEZE_PERFMON  (1u << 12)
#define FREEZE_SMM      (1u << 14)

#define ONES(n)         ((1ull << (n)) - 1)
#define WIDTH           48

static void be_version(unsigned version)
{
    PmuRange bad;

    be_intel(0xff);
    g_assert_true(pmu_configure(&config, version, 0, &bad));
    pmu_reset(&pmu, &config);
}

static void be_perfmon_v2(void)
{
    be(PMU_VENDOR_AMD, 0x19, 0x11);
}

static void be_lbr_v2(void)
{
    be_perfmon_v2();
    config.lbr_v2 = true;
}

static void be_k7(void)
{
    be(PMU_VENDOR_AMD, 15, 0x6b);
}

/* The state, but for what may follow from it, stays as it was. */
static void wr_gp(uint32_t msr, uint64_t val)
{
    PmuState old = pmu;

    g_assert_cmpint(pmu_wrmsr(&pmu, &config, msr, val), ==, PMU_MSR_GP);
    g_assert_cmpmem(&pmu, offsetof(PmuState, svme),
                    &old, offsetof(PmuState, svme));
}

static void rd_gp(uint32_t msr)
{
    uint64_t val = 0xbad;

    g_assert_cmpint(pmu_rdmsr(&pmu, &config, msr, &val), ==, PMU_MSR_GP);
    g_assert_cmphex(val, ==, 0xbad);
}

static void gp(uint32_t msr)
{
    wr_gp(msr, 0);
    rd_gp(msr);
}

static void other(uint32_t msr)
{
    uint64_t val;

    g_assert_cmpint(pmu_rdmsr(&pmu, &config, msr, &val), ==, PMU_MSR_OTHER);
    g_assert_cmpint(pmu_wrmsr(&pmu, &config, msr, 0), ==, PMU_MSR_OTHER);
}

/* Each bit of @msr: those in @mask can be written, the others are reserved. */
static void check_bits(uint32_t msr, uint64_t mask)
{
    for (int bit = 0; bit < 64; bit++) {
        if (mask >> bit & 1) {
            wr(msr, 1ull << bit);
            g_assert_cmphex(rd(msr), ==, 1ull << bit);
        } else {
            wr_gp(msr, 1ull << bit);
        }
    }
    wr(msr, mask);
    g_assert_cmphex(rd(msr), ==, mask);
    wr(msr, 0);
    g_assert_cmphex(rd(msr), ==, 0);
}

/* @n plain instructions; whether there was a PMI behind them. */
static bool run(RetireRow row, uint64_t n)
{
    pmu_count(&pmu, row, PMU_INSNS, n);
    return pmu_sync(&pmu, &config);
}

/* Whether @want is wanted in @row. */
static bool wants(RetireRow row, RetireWants want)
{
    return pmu_wants(&pmu, row) & want;
}

/*
 * Which processors there are, and what CPUID says of them.
 */

static void test_flavours(void)
{
    static const struct {
        PmuVendor vendor;
        unsigned family, model;
        const char *name;
        uint32_t eax, ebx, ecx, edx;
        uint32_t caps;
        uint32_t counters, fixed;
    } tests[] = {
#define INTEL   PMU_VENDOR_INTEL
#define AMD     PMU_VENDOR_AMD
        { INTEL, 5, 0x02, "P5", 0, 0, 0, 0, 0, 2, 0 },
        { INTEL, 5, 0x04, "P5", 0, 0, 0, 0, 0, 2, 0 },
        { PMU_VENDOR_CYRIX, 6, 0, "6x86MX", 0, 0, 0, 0, 0, 2, 0 },
        { PMU_VENDOR_CENTAUR, 5, 4, "WinChip C6", 0, 0, 0, 0, 0, 2, 0 },
        { PMU_VENDOR_CENTAUR, 5, 8, "WinChip 2", 0, 0, 0, 0, 0, 2, 0 },
        { PMU_VENDOR_CENTAUR, 5, 9, "WinChip 2", 0, 0, 0, 0, 0, 2, 0 },
        { PMU_VENDOR_CENTAUR, 6, 6, "C3", 0, 0, 0, 0, 0, 2, 0 },
        { PMU_VENDOR_CENTAUR, 6, 9, "C3", 0, 0, 0, 0, 0, 2, 0 },
        { PMU_VENDOR_CENTAUR, 6, 0x0f, "Zhaoxin",
          0x07300402, 0, 0, 0x603, 0, 4, 3 },
        { PMU_VENDOR_CENTAUR, 7, 0x0b, "Zhaoxin",
          0x07300402, 0, 0, 0x603, 0, 4, 3 },
        { PMU_VENDOR_SHANGHAI, 7, 0x3b, "Zhaoxin",
          0x07300402, 0, 0, 0x603, 0, 4, 3 },
        { INTEL, 6, 0x01, "P6", 0, 0, 0, 0, 0, 2, 0 },
        { INTEL, 6, 0x05, "P6", 0, 0, 0, 0, 0, 2, 0 },
        { INTEL, 6, 0x0b, "P6", 0, 0, 0, 0, 0, 2, 0 },
        { INTEL, 6, 0x09, "Pentium M", 0, 0, 0, 0, 0, 2, 0 },
        { INTEL, 6, 0x0d, "Pentium M", 0, 0, 0, 0, 0, 2, 0 },
        { INTEL, 6, 0x0e, "Core Duo", 0x07280201, 0, 0, 0, 0, 2, 0 },
        { INTEL, 6, 0x0f, "Core 2", 0x07280202, 0, 0, 0x503, 0xc0, 2, 3 },
        { INTEL, 6, 0x17, "Core 2", 0x07280202, 0, 0, 0x503, 0xc0, 2, 3 },
        { INTEL, 6, 0x1a, "Nehalem", 0x07300403, 0, 0, 0x603, 0x11c0, 4, 3 },
        { INTEL, 6, 0x1c, "Bonnell", 0x07280203, 0, 0, 0x503, 0xc0, 2, 3 },
        { INTEL, 6, 0x2c, "Westmere", 0x07300403, 0, 0, 0x603, 0x11c0, 4, 3 },
        { INTEL, 6, 0x2a, "Sandy Bridge",
          0x07300403, 0, 0, 0x603, 0x31c0, 4, 3 },
        { INTEL, 6, 0x3a, "Ivy Bridge",
          0x07300403, 0, 0, 0x603, 0x31c0, 4, 3 },
        { INTEL, 6, 0x3c, "Haswell", 0x07300403, 0, 0, 0x603, 0x32c0, 4, 3 },
        { INTEL, 6, 0x3d, "Broadwell", 0x07300403, 0, 0, 0x603, 0x32c0, 4, 3 },
        { INTEL, 6, 0x5e, "Skylake", 0x07300404, 0, 0, 0x603, 0x33c0, 4, 3 },
        { INTEL, 6, 0x55, "Skylake", 0x07300404, 0, 0, 0x603, 0x33c0, 4, 3 },
        { INTEL, 6, 0x66, "Skylake", 0x07300404, 0, 0, 0x603, 0x33c0, 4, 3 },
        { INTEL, 6, 0x6a, "Ice Lake",
          0x08300805, 0x80, 7, 0x8603, 0x74c0, 8, 3 },
        { INTEL, 6, 0x9d, "Ice Lake",
          0x08300805, 0x80, 7, 0x8603, 0x74c0, 8, 3 },
        { INTEL, 6, 0x8f, "Golden Cove",
          0x08300805, 0x80, 7, 0x8603, 0x74c0, 8, 3 },
        { INTEL, 6, 0xad, "Golden Cove",
          0x08300805, 0x80, 7, 0x8603, 0x74c0, 8, 3 },
        { INTEL, 6, 0x37, "Silvermont",
          0x07280203, 0, 0, 0x503, 0x32c0, 2, 3 },
        { INTEL, 6, 0x5d, "Silvermont",
          0x07280203, 0, 0, 0x503, 0x32c0, 2, 3 },
        { INTEL, 6, 0x75, "Silvermont",
          0x07280203, 0, 0, 0x503, 0x32c0, 2, 3 },
        { INTEL, 6, 0x85, "Knights Landing",
          0x07280203, 0, 0, 0x503, 0x32c0, 2, 3 },
        { INTEL, 6, 0x5f, "Goldmont", 0x07300404, 0, 0, 0x603, 0x33c0, 4, 3 },
        { INTEL, 6, 0x7a, "Goldmont Plus",
          0x07300404, 0, 0, 0x603, 0x33c0, 4, 3 },
        { INTEL, 6, 0x86, "Tremont",
          0x08300405, 0x80, 7, 0x8603, 0x74c0, 4, 3 },
        { INTEL, 6, 0x8a, "Tremont",
          0x08300405, 0x80, 7, 0x8603, 0x74c0, 4, 3 },
        { INTEL, 6, 0xaf, "Crestmont",
          0x08300805, 0x80, 7, 0x8603, 0x74c0, 8, 3 },
        { INTEL, 6, 0xdd, "architectural",
          0x08300405, 0x80, 7, 0x8603, 0x3000, 4, 3 },
        { INTEL, 0x13, 1, "architectural",
          0x08300405, 0x80, 7, 0x8603, 0x3000, 4, 3 },
        { INTEL, 15, 0, "P4", 0, 0, 0, 0, 0, 18, 0 },
        { INTEL, 15, 2, "P4", 0, 0, 0, 0, 0, 18, 0 },
        { INTEL, 15, 6, "P4", 0, 0, 0, 0, 0, 18, 0 },
        { AMD, 6, 1, "K7", 0, 0, 0, 0, 0, 4, 0 },
        { AMD, 0xf, 0x6b, "K7", 0, 0, 0, 0, 0, 4, 0 },
        { AMD, 0x10, 2, "K7", 0, 0, 0, 0, 0, 4, 0 },
        { AMD, 0x15, 2, "Family 15h", 0, 0, 0, 0, 0, 6, 0 },
        { AMD, 0x16, 0, "K7", 0, 0, 0, 0, 0, 4, 0 },
        { AMD, 0x17, 1, "Family 17h", 0, 0, 0, 0, 0, 6, 0 },
        { AMD, 0x17, 0x31, "Family 17h", 0, 0, 0, 0, 0, 6, 0 },
        { AMD, 0x18, 0, "Family 18h", 0, 0, 0, 0, 0, 6, 0 },
        { AMD, 0x19, 1, "Family 17h", 0, 0, 0, 0, 0, 6, 0 },
        { AMD, 0x19, 0x21, "Family 17h", 0, 0, 0, 0, 0, 6, 0 },
        { AMD, 0x19, 0x11, "PerfMonV2", 0, 0, 0, 0, 0, 6, 0 },
        { AMD, 0x19, 0x61, "PerfMonV2", 0, 0, 0, 0, 0, 6, 0 },
        { AMD, 0x1a, 0, "PerfMonV2", 0, 0, 0, 0, 0, 6, 0 },
#undef INTEL
#undef AMD
    };
    uint32_t regs[4];

    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        bool v2 = !strcmp(tests[i].name, "PerfMonV2");
        /* What came with Pentium 4, and Pentium M took over */
        bool p4 = tests[i].eax || !strcmp(tests[i].name, "Pentium M") ||
                  !strcmp(tests[i].name, "P4");

        be(tests[i].vendor, tests[i].family, tests[i].model);
        g_assert_cmpstr(pmu_flavour_name(config.flavour), ==, tests[i].name);
        pmu_cpuid_0a(&config, regs);
        g_assert_cmphex(regs[0], ==, tests[i].eax);
        g_assert_cmphex(regs[1], ==, tests[i].ebx);
        g_assert_cmphex(regs[2], ==, tests[i].ecx);
        g_assert_cmphex(regs[3], ==, tests[i].edx);
        pmu_cpuid_80000022(&config, regs);
        g_assert_cmphex(regs[0], ==, v2);
        g_assert_cmphex(regs[1], ==, v2 ? 6 : 0);
        g_assert_cmphex(regs[2] | regs[3], ==, 0);
        g_assert_cmphex(config.perf_capabilities, ==, tests[i].caps);
        g_assert_cmpint(config.pdcm, ==, tests[i].caps != 0);
        g_assert_cmpint(config.counters, ==, tests[i].counters);
        g_assert_cmpint(config.fixed, ==, tests[i].fixed);
        g_assert_cmpint(config.perfmon_v2, ==, v2);
        g_assert_cmpint(config.perfctr_core, ==, tests[i].counters == 6);
        g_assert_cmphex(pmu_misc_enable(&config), ==,
                        pmu_has_pebs(&config) ? 0x880 : p4 ? 0x1880 : 0);
        g_assert_cmpint(pmu_has_pebs(&config), ==, (tests[i].caps & 0xc0) != 0);
        g_assert_cmpint(pmu_masks_lvtpc(&config), ==, p4);
    }
    /* No row takes in what nobody knows. */
    for (unsigned family = 0; family < 0x100; family++) {
        for (unsigned model = 0; model < 0x100; model++) {
            g_assert_cmpint(!pmu_flavour(PMU_VENDOR_INTEL, family, model), ==,
                            family != 5 && family != 6 && family != 0x12 &&
                            family != 0x13 && (family != 15 || model > 6));
            g_assert_cmpint(!pmu_flavour(PMU_VENDOR_CYRIX, family, model), ==,
                            family != 6);
            g_assert_cmpint(!pmu_flavour(PMU_VENDOR_CENTAUR, family, model),
                            ==, (family != 5 || (model != 4 && model != 8 &&
                                                 model != 9)) &&
                            (family != 6 ||
                             ((model < 6 || model > 9) && model != 0xf &&
                              model != 0x19)) && family != 7);
            g_assert_cmpint(!pmu_flavour(PMU_VENDOR_SHANGHAI, family, model),
                            ==, family != 7 &&
                            (family != 6 || model != 0x19));
            g_assert_cmpint(!pmu_flavour(PMU_VENDOR_AMD, family, model), ==,
                            family < 6 || (family > 6 && family < 0xf) ||
                            family == 0x13 || family > 0x1a);
        }
    }
    g_assert_null(pmu_flavour(PMU_VENDOR_OTHER, 6, 0x5e));
}

static void check_range(uint32_t version, uint32_t counters,
                        const char *property, uint32_t min, uint32_t max)
{
    PmuConfig old = config;
    PmuRange bad;

    g_assert_false(pmu_configure(&config, version, counters, &bad));
    g_assert_cmpmem(&config, sizeof(config), &old, sizeof(old));
    g_assert_cmpstr(bad.property, ==, property);
    g_assert_cmpint(bad.value, ==, version ? version : counters);
    g_assert_cmpint(bad.min, ==, min);
    g_assert_cmpint(bad.max, ==, max);
}

static void test_configure(void)
{
    uint32_t regs[4];
    PmuRange bad;

    be_intel(0x5e);
    check_range(5, 0, "pmu-version", 1, 4);
    check_range(0, 1, "pmu-counters", 2, 8);
    check_range(0, 9, "pmu-counters", 2, 8);
    g_assert_true(pmu_configure(&config, 3, 8, &bad));
    pmu_cpuid_0a(&config, regs);
    g_assert_cmphex(regs[0], ==, 0x07300803);
    g_assert_cmphex(regs[3], ==, 0x603);
    g_assert_true(pmu_configure(&config, 1, 2, &bad));
    pmu_cpuid_0a(&config, regs);
    g_assert_cmphex(regs[0], ==, 0x07300201);
    g_assert_cmphex(regs[3], ==, 0);
    /* There is no GLOBAL_CTRL that an SMI could clear. */
    g_assert_cmphex(config.perf_capabilities, ==, 0x2000);
    g_assert_true(pmu_configure(&config, 0, 0, &bad));
    pmu_cpuid_0a(&config, regs);
    g_assert_cmphex(regs[0], ==, 0x07300404);
    g_assert_cmphex(config.perf_capabilities, ==, 0x33c0);

    be_intel(0x6a);
    check_range(6, 0, "pmu-version", 1, 5);
    for (uint32_t version = 1; version <= 5; version++) {
        g_assert_true(pmu_configure(&config, version, 0, &bad));
        pmu_cpuid_0a(&config, regs);
        g_assert_cmphex(regs[0] & 0xff, ==, version);
    }

    be_intel(6);
    check_range(1, 0, "pmu-version", 0, 0);
    check_range(0, 4, "pmu-counters", 2, 2);
    g_assert_true(pmu_configure(&config, 0, 2, &bad));

    be_k7();
    check_range(2, 0, "pmu-version", 0, 0);
    check_range(0, 6, "pmu-counters", 4, 4);
    config.perfctr_core = true;
    g_assert_true(pmu_configure(&config, 0, 0, &bad));
    g_assert_cmpint(config.counters, ==, 6);
    check_range(0, 4, "pmu-counters", 6, 6);

    be(PMU_VENDOR_AMD, 0x17, 1);
    config.perfctr_core = false;
    g_assert_true(pmu_configure(&config, 0, 0, &bad));
    g_assert_cmpint(config.counters, ==, 4);

    be_perfmon_v2();
    check_range(0, 3, "pmu-counters", 4, 6);
    check_range(0, 7, "pmu-counters", 4, 6);
    g_assert_true(pmu_configure(&config, 0, 5, &bad));
    pmu_cpuid_80000022(&config, regs);
    g_assert_cmphex(regs[1], ==, 5);
    gp(EXT_EVTSEL(5));
    g_assert_cmphex(rd(EXT_EVTSEL(4)), ==, 0);
}

/*
 * Registers
 */

static void test_presence(void)
{
    for (unsigned version = 1; version <= 5; version++) {
        be_version(version);
        for (unsigned n = 0; n < 8; n++) {
            if (n < 4) {
                g_assert_cmphex(rd(PERFEVTSEL(n)), ==, 0);
                g_assert_cmphex(rd(PMC(n)), ==, 0);
                g_assert_cmphex(rd(A_PMC(n)), ==, 0);
            } else {
                gp(PERFEVTSEL(n));
                gp(PMC(n));
                gp(A_PMC(n));
            }
        }
        for (uint32_t msr = FIXED_CTR_CTRL; msr <= GLOBAL_INUSE; msr++) {
            if (version >= (msr >= STATUS_SET ? 4 : 2)) {
                g_assert_cmphex(rd(msr), ==, msr == GLOBAL_CTRL ? 15 : 0);
            } else {
                gp(msr);
            }
        }
        for (unsigned i = 0; i < 3; i++) {
            if (version >= 2) {
                g_assert_cmphex(rd(FIXED_CTR(i)), ==, 0);
            } else {
                gp(FIXED_CTR(i));
            }
        }
        gp(FIXED_CTR(3));
        gp(0x30f);
        gp(EXT_EVTSEL(0));
        gp(K7_PERFCTR(3));
        gp(V2_CTL);
    }
    g_assert_cmphex(rd(PERF_CAPS), ==, 0x3000);
    wr_gp(PERF_CAPS, 0x3000);
    config.pdcm = false;
    gp(PERF_CAPS);
    config.perf_capabilities &= ~(uint64_t)PMU_CAP_FULL_WIDTH_WRITE;
    gp(A_PMC(0));

    /* PEBS, which this one has not */
    gp(0x3f1);
    gp(0x3f2);
    gp(0x3f6);

    /* What is not ours: these and others are among the above. */
    other(0x10);        /* TSC */
    other(0x1b);        /* APIC_BASE */
    other(0x48);        /* SPEC_CTRL */
    other(0x49);        /* PRED_CMD */
    other(0xc0);
    other(0xc9);
    other(0x185);
    other(0x18e);
    other(0x1a0);       /* MISC_ENABLE */
    other(0x1a6);       /* OFFCORE_RSP */
    other(0x1d8);
    other(0x308);
    other(0x310);
    other(0x38c);
    other(0x393);
    other(0x6a0);       /* CET */
    other(0x6e0);       /* TSC_DEADLINE */
    other(0xc0000080);  /* EFER */
    other(0xc0000304);
    other(0xc0010008);
    other(0xc001020c);

    be_intel(6);
    g_assert_cmphex(rd(PERFEVTSEL(1)), ==, 0);
    g_assert_cmphex(rd(PMC(1)), ==, 0);
    gp(PERFEVTSEL(2));
    gp(PMC(2));
    gp(A_PMC(0));
    gp(PERF_CAPS);
    gp(GLOBAL_CTRL);

    be_k7();
    gp(PMC(0));
    gp(PERFEVTSEL(0));
    gp(PERF_CAPS);
    gp(EXT_EVTSEL(0));
    gp(V2_STATUS);
    gp(V2_CTL);
    gp(V2_STATUS_CLR);
    gp(V2_STATUS_SET);
    be(PMU_VENDOR_AMD, 0x15, 2);
    g_assert_cmphex(rd(EXT_PERFCTR(5)), ==, 0);
    gp(V2_CTL);
}

static void test_evtsel(void)
{
    for (unsigned version = 1; version <= 5; version++) {
        be_version(version);
        wr(A_PMC(3), 0x123456789abcull);
        check_bits(PERFEVTSEL(3),
                   0xffdfffff | (version == 3 || version == 4 ? ANY : 0));
        g_assert_cmphex(rd(PMC(3)), ==, 0x123456789abcull);
    }
    be_intel(6);
    check_bits(PERFEVTSEL(0), 0xffdfffff);
    check_bits(PERFEVTSEL(1), 0xffdfffff);
}

static void test_width(void)
{
    be_intel(0x5e);
    for (unsigned n = 0; n < 4; n++) {
        wr(PMC(n), 0x7fffffff);
        g_assert_cmphex(rd(PMC(n)), ==, 0x7fffffff);
        wr(PMC(n), 0x12345678ffff1234ull + n);
        g_assert_cmphex(rd(PMC(n)), ==, 0xffffffff1234ull + n);
        g_assert_cmphex(rd(A_PMC(n)), ==, 0xffffffff1234ull + n);
        wr(PMC(n), 0xffffffff00000000ull);
        g_assert_cmphex(rd(PMC(n)), ==, 0);
        wr(A_PMC(n), 0x800000000001ull);
        g_assert_cmphex(rd(PMC(n)), ==, 0x800000000001ull);
        wr_gp(A_PMC(n), 1ull << 48);
        wr_gp(A_PMC(n), ~0ull);
        wr(A_PMC(n), ONES(48));
        g_assert_cmphex(rd(A_PMC(n)), ==, ONES(48));
    }
    wr(FIXED_CTR(2), ~0ull);
    g_assert_cmphex(rd(FIXED_CTR(2)), ==, ONES(48));
    wr(FIXED_CTR(2), 0x80000000);
    g_assert_cmphex(rd(FIXED_CTR(2)), ==, 0x80000000);

    be_intel(0x17);
    wr(PMC(1), 0x80000000);
    g_assert_cmphex(rd(PMC(1)), ==, 0xff80000000ull);
    wr(FIXED_CTR(0), ~0ull);
    g_assert_cmphex(rd(FIXED_CTR(0)), ==, ONES(40));
    gp(A_PMC(1));
    be_intel(3);
    wr(PMC(1), -5);
    g_assert_cmphex(rd(PMC(1)), ==, ONES(40) - 4);

    be_k7();
    wr(K7_PERFCTR(2), 0x80000000);
    g_assert_cmphex(rd(K7_PERFCTR(2)), ==, 0x80000000);
    wr(K7_PERFCTR(2), ~0ull);
    g_assert_cmphex(rd(K7_PERFCTR(2)), ==, ONES(48));
}

static void test_global(void)
{
    for (unsigned version = 2; version <= 5; version++) {
        bool any = version == 3 || version == 4;
        uint64_t reset = 15 | FIXED_BIT(0) | FIXED_BIT(1) | FIXED_BIT(2) |
                         3ull << 62;

        be_version(version);
        check_bits(FIXED_CTR_CTRL, any ? 0xfff : 0xbbb);
        check_bits(GLOBAL_CTRL, 0x70000000full);
        wr_gp(GLOBAL_STATUS, 0);
        reset |= version >= 3 ? 1ull << 61 : 0;
        reset |= version >= 4 ? 7ull << 58 | 1ull << 55 : 0;
        for (int bit = 0; bit < 64; bit++) {
            if (reset >> bit & 1) {
                wr(STATUS_RESET, 1ull << bit);
            } else {
                wr_gp(STATUS_RESET, 1ull << bit);
            }
        }
        g_assert_cmphex(rd(STATUS_RESET), ==, 0);
    }
    for (int bit = 48; bit < 64; bit++) {
        if ((7ull << 58 | 1ull << 55 | 1ull << 61 | 1ull << 62) >> bit & 1) {
            wr(STATUS_SET, 1ull << bit);
            g_assert_cmphex(rd(GLOBAL_STATUS), ==, 1ull << bit);
            wr(STATUS_RESET, 1ull << bit);
        } else {
            wr_gp(STATUS_SET, 1ull << bit);
        }
    }
    wr(STATUS_SET, 5);
    wr(STATUS_SET, CTR_FRZ | FIXED_BIT(2));
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, 5 | CTR_FRZ | FIXED_BIT(2));
    g_assert_cmphex(rd(STATUS_SET), ==, 0);
    wr(STATUS_RESET, 1 | FIXED_BIT(2));
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, 4 | CTR_FRZ);
    wr(STATUS_SET, LBR_FRZ);
    wr_gp(STATUS_SET, 1ull << 63);
    wr_gp(STATUS_SET, 1ull << 4);
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, 4 | LBR_FRZ | CTR_FRZ);
    /* Nothing of this is a PMI. */
    g_assert_false(pmu_settle(&pmu, &config));
}

static void test_inuse(void)
{
    be_intel(0x5e);
    wr_gp(GLOBAL_INUSE, 0);
    wr(PERFEVTSEL(2), 0xc0);
    g_assert_cmphex(rd(GLOBAL_INUSE), ==, 4);
    wr(PERFEVTSEL(0), INT);
    g_assert_cmphex(rd(GLOBAL_INUSE), ==, 4 | 1ull << 63);
    wr(PERFEVTSEL(0), RUN);
    g_assert_cmphex(rd(GLOBAL_INUSE), ==, 4);
    wr(FIXED_CTR_CTRL, 0x021);
    g_assert_cmphex(rd(GLOBAL_INUSE), ==, 4 | FIXED_BIT(0) | FIXED_BIT(1));
    wr(FIXED_CTR_CTRL, 0x800);
    g_assert_cmphex(rd(GLOBAL_INUSE), ==, 4 | 1ull << 63);
}

static void test_debugctl(void)
{
    for (unsigned version = 2; version <= 5; version++) {
        be_version(version);
        g_assert_cmphex(pmu_debugctl_mask(&config), ==,
                        FREEZE_LBRS | FREEZE_PERFMON | FREEZE_SMM);
    }
    be_intel(0x17);
    g_assert_cmphex(pmu_debugctl_mask(&config), ==,
                    FREEZE_LBRS | FREEZE_PERFMON);
    config.pdcm = false;
    g_assert_cmphex(pmu_debugctl_mask(&config), ==, 0);
    be_version(1);
    g_assert_cmphex(pmu_debugctl_mask(&config), ==, 0);
    be_lbr_v2();
    g_assert_cmphex(pmu_debugctl_mask(&config), ==,
                    FREEZE_LBRS | FREEZE_PERFMON);
    be_perfmon_v2();
    g_assert_cmphex(pmu_debugctl_mask(&config), ==, 0);
}

static void test_reset(void)
{
    be_intel(0x5e);
    wr(PERFEVTSEL(0), RUN | INT | 0xc0);
    wr(PMC(0), -1);
    wr(FIXED_CTR_CTRL, 0x33);
    wr(GLOBAL_CTRL, FIXED_BIT(0) | 1);
    pmu.debugctl = FREEZE_PERFMON;
    pmu_count(&pmu, RETIRE_USR, PMU_INSNS, 1);
    pmu_reset(&pmu, &config);
    g_assert_false(pmu_settle(&pmu, &config));
    g_assert_cmphex(rd(GLOBAL_CTRL), ==, 15);
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, 0);
    g_assert_cmphex(rd(PERFEVTSEL(0)), ==, 0);
    g_assert_cmphex(rd(PMC(0)), ==, 0);
    g_assert_cmphex(rd(FIXED_CTR_CTRL), ==, 0);
    g_assert_cmphex(pmu.debugctl, ==, 0);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_OS), ==, 0);

    /* Software for version 1 does not know GLOBAL_CTRL. */
    wr(PERFEVTSEL(0), RUN | 0xc0);
    run(RETIRE_OS, 3);
    g_assert_cmpint(rd(PMC(0)), ==, 3);

    be_perfmon_v2();
    g_assert_cmphex(rd(V2_CTL), ==, 0x3f);
}

static bool rdpmc(uint32_t ecx, uint64_t *val)
{
    return pmu_rdpmc(&pmu, &config, ecx, val);
}

static void check_rdpmc(uint32_t ecx, uint64_t expected)
{
    uint64_t val = 0xbad;

    g_assert_true(rdpmc(ecx, &val));
    g_assert_cmphex(val, ==, expected);
}

static void check_no_rdpmc(uint32_t ecx)
{
    uint64_t val = 0xbad;

    g_assert_false(rdpmc(ecx, &val));
    g_assert_cmphex(val, ==, 0xbad);
}

static void test_rdpmc(void)
{
    for (unsigned version = 1; version <= 5; version++) {
        be_version(version);
        for (unsigned n = 0; n < 4; n++) {
            wr(A_PMC(n), 0x800000000100ull + n);
            check_rdpmc(n, 0x800000000100ull + n);
        }
        check_no_rdpmc(4);
        check_no_rdpmc(64);
        check_no_rdpmc(0x80000000);
        check_no_rdpmc(0x80000001);
        check_no_rdpmc(0x20000000);
        check_no_rdpmc(0x10000);
        for (unsigned i = 0; i < 3; i++) {
            if (version >= 2) {
                wr(FIXED_CTR(i), 0xf00000000000ull + i);
                check_rdpmc(0x40000000 + i, 0xf00000000000ull + i);
            } else {
                check_no_rdpmc(0x40000000 + i);
            }
        }
        check_no_rdpmc(0x40000003);
        check_no_rdpmc(0x40010000);
        check_no_rdpmc(0xc0000000);
    }
    be_intel(6);
    wr(PMC(1), -1);
    check_rdpmc(1, ONES(40));
    check_no_rdpmc(2);
    check_no_rdpmc(0x40000000);

    be_k7();
    wr(K7_PERFCTR(3), 77);
    check_rdpmc(3, 77);
    check_no_rdpmc(4);
    be(PMU_VENDOR_AMD, 0x15, 2);
    wr(EXT_PERFCTR(5), 78);
    check_rdpmc(5, 78);
    check_no_rdpmc(6);
    check_no_rdpmc(0x40000000);
    check_no_rdpmc(0x80000000);

    /* What has been counted is there. */
    wr(EXT_EVTSEL(1), RUN | 0xc0);
    pmu_count(&pmu, RETIRE_USR, PMU_INSNS, 11);
    check_rdpmc(1, 11);
}

static void test_amd(void)
{
    const uint64_t valid = 0x30fffd7ffffull;

    be_k7();
    for (unsigned n = 0; n < 4; n++) {
        wr(K7_EVTSEL(n), ~0ull);
        g_assert_cmphex(rd(K7_EVTSEL(n)), ==, valid);
        wr(K7_EVTSEL(n), 0);
    }

    /* The two sets of registers are the same. */
    be(PMU_VENDOR_AMD, 0x17, 1);
    for (unsigned n = 0; n < 6; n++) {
        wr(EXT_EVTSEL(n), 0x40 + n);
        wr(EXT_PERFCTR(n), 1000 + n);
        if (n < 4) {
            g_assert_cmphex(rd(K7_EVTSEL(n)), ==, 0x40 + n);
            g_assert_cmphex(rd(K7_PERFCTR(n)), ==, 1000 + n);
            wr(K7_EVTSEL(n), 0xc0);
            wr(K7_PERFCTR(n), 7);
            g_assert_cmphex(rd(EXT_EVTSEL(n)), ==, 0xc0);
            g_assert_cmphex(rd(EXT_PERFCTR(n)), ==, 7);
        }
    }

    /* Without a status register, there still is the PMI. */
    be_k7();
    wr(K7_EVTSEL(1), RUN | INT | 0xc0);
    wr(K7_PERFCTR(1), -10);
    g_assert_false(run(RETIRE_USR, 9));
    g_assert_true(run(RETIRE_USR, 1));
    g_assert_cmphex(rd(K7_PERFCTR(1)), ==, 0);
    g_assert_cmphex(pmu.global_status, ==, 0);
}

static void test_perfmon_v2(void)
{
    be_perfmon_v2();
    wr(V2_CTL, 0);
    g_assert_cmphex(rd(V2_CTL), ==, 0);
    wr(V2_CTL, ~0ull);
    g_assert_cmphex(rd(V2_CTL), ==, 0x3f);
    wr(V2_STATUS, ~0ull);
    g_assert_cmphex(rd(V2_STATUS), ==, 0);
    wr(EXT_EVTSEL(4), RUN | INT | 0xc0);
    wr(EXT_PERFCTR(4), -2);
    wr(K7_EVTSEL(1), RUN | 0xc0);
    wr(K7_PERFCTR(1), -3);
    wr(V2_CTL, 0);
    g_assert_false(run(RETIRE_OS, 10));
    wr(V2_CTL, 1 << 4);
    g_assert_false(run(RETIRE_OS, 1));
    g_assert_true(run(RETIRE_OS, 1));
    g_assert_cmphex(rd(V2_STATUS), ==, 1 << 4);
    g_assert_cmphex(rd(K7_PERFCTR(1)), ==, ONES(48) - 2);
    wr(V2_CTL, 1 << 1);
    g_assert_false(run(RETIRE_OS, 5));
    g_assert_cmphex(rd(V2_STATUS), ==, 1 << 4 | 1 << 1);
    g_assert_cmphex(rd(EXT_PERFCTR(1)), ==, 2);
    wr(V2_STATUS_CLR, ~0ull << 2);
    g_assert_cmphex(rd(V2_STATUS), ==, 1 << 1);
    g_assert_cmphex(rd(V2_STATUS_CLR), ==, 0);
    wr(V2_STATUS_SET, ~0ull << 3);
    g_assert_cmphex(rd(V2_STATUS), ==, 0x3a);
    g_assert_cmphex(rd(V2_STATUS_SET), ==, 0);
}

static void test_svm(void)
{
    static const uint64_t bits[] = {
        0, GUEST_ONLY, HOST_ONLY, GUEST_ONLY | HOST_ONLY,
    };
    /* Columns: no SVME, host, guest. */
    static const int expected[][3] = {
        { 1, 1, 1 }, { 0, 0, 1 }, { 0, 1, 0 }, { 0, 1, 1 },
    };

    be_k7();
    for (unsigned i = 0; i < G_N_ELEMENTS(bits); i++) {
        wr(K7_EVTSEL(i), RUN | 0xc0 | bits[i]);
    }
    for (int column = 0; column < 3; column++) {
        /* What has been counted before belongs to the old environment. */
        pmu_set_svm(&pmu, &config, column > 0, column == 2);
        for (unsigned i = 0; i < G_N_ELEMENTS(bits); i++) {
            wr(K7_PERFCTR(i), 0);
        }
        pmu_count(&pmu, RETIRE_OS, PMU_INSNS, 1);
        pmu_set_svm(&pmu, &config, true, column != 2);
        pmu_set_svm(&pmu, &config, false, false);
        for (unsigned i = 0; i < G_N_ELEMENTS(bits); i++) {
            g_assert_cmpint(rd(K7_PERFCTR(i)), ==, expected[i][column]);
        }
    }
}

/* PERFEVTSEL0 enables both. */
static void test_p6(void)
{
    be_intel(6);
    wr(PERFEVTSEL(1), USR | 0xc0);
    run(RETIRE_USR, 5);
    g_assert_cmphex(rd(PMC(1)), ==, 0);
    wr(PERFEVTSEL(1), USR | EN | 0xc0);
    run(RETIRE_USR, 5);
    g_assert_cmphex(rd(PMC(1)), ==, 0);
    wr(PERFEVTSEL(0), EN);
    run(RETIRE_USR, 5);
    g_assert_cmphex(rd(PMC(1)), ==, 5);
    wr(PERFEVTSEL(1), OS | INT | 0x79);
    wr(PMC(1), -3);
    g_assert_false(run(RETIRE_USR, 5));
    g_assert_false(run(RETIRE_OS, 2));
    g_assert_true(run(RETIRE_OS, 1));
    wr(PERFEVTSEL(0), 0);
    run(RETIRE_OS, 3);
    g_assert_cmphex(rd(PMC(1)), ==, 0);

    /* Core Duo has a bit for each, but the second one's does nothing. */
    be_intel(0x0e);
    wr(PERFEVTSEL(1), USR | EN | 0xc0);
    run(RETIRE_USR, 5);
    g_assert_cmphex(rd(PMC(1)), ==, 0);
    wr(PERFEVTSEL(1), USR | 0xc0);
    wr(PERFEVTSEL(0), EN);
    run(RETIRE_USR, 5);
    g_assert_cmphex(rd(PMC(1)), ==, 5);
}

/*
 * Older than P6, or made like that
 */

#define CESR        0x11
#define CTR(n)      (0x12 + (n))
#define CPL_0_TO_2  0x40
#define CPL_3       0x80
#define CLOCKS      0x100

static void be_p5(void)
{
    be(PMU_VENDOR_INTEL, 5, 4);
}

static void be_6x86mx(void)
{
    be(PMU_VENDOR_CYRIX, 6, 0);
}

/* @ctl and @width are those of each counter. */
static void check_p5(uint32_t ctl, unsigned width)
{
    static const uint32_t absent[] = {
        PMC(0), PMC(1), A_PMC(0), PERFEVTSEL(0), PERFEVTSEL(1), PERF_CAPS,
        FIXED_CTR(0), FIXED_CTR_CTRL, GLOBAL_STATUS, GLOBAL_CTRL,
        STATUS_RESET, 0x3f1, K7_EVTSEL(0), K7_PERFCTR(3), EXT_EVTSEL(0),
        V2_CTL,
    };

    for (int i = 0; i < 2; i++) {
        wr(CTR(i), 0x123456789abcdef);
        g_assert_cmphex(rd(CTR(i)), ==, 0x123456789abcdef & ONES(width));
        wr(CTR(i), 0);
    }
    check_rdpmc(0, 0);
    check_rdpmc(1, 0);
    check_no_rdpmc(2);
    check_no_rdpmc(0x40000000);
    check_no_rdpmc(0x80000000);
    /* Reserved bits are ignored. */
    wr(CESR, ~0ull);
    g_assert_cmphex(rd(CESR), ==, ctl << 16 | ctl);
    wr(CESR, 0);
    for (unsigned i = 0; i < G_N_ELEMENTS(absent); i++) {
        gp(absent[i]);
    }
    other(0x10);
    other(0x14);
    other(0xe8);        /* APERF */
    other(0x1a6);
    g_assert_cmphex(pmu_debugctl_mask(&config), ==, 0);
}

static void test_p5(void)
{
    PmuState state;

    be_p5();
    check_p5(0x3ff, 40);

    /* No field of privilege: it does not count. */
    wr(CESR, 0x160016);
    run(RETIRE_OS, 5);
    run(RETIRE_USR, 5);
    wr(CESR, (CPL_3 | 0x16) << 16 | CPL_0_TO_2 | 0x16);
    g_assert_false(run(RETIRE_OS, 3));
    g_assert_false(run(RETIRE_USR, 4));
    check_rdpmc(0, 3);
    check_rdpmc(1, 4);
    /* Not the other one, which is written in the same register */
    wr(CESR, CPL_3 | CPL_0_TO_2 | 0x16);
    run(RETIRE_OS, 3);
    run(RETIRE_USR, 4);
    g_assert_cmphex(rd(CTR(0)), ==, 10);
    g_assert_cmphex(rd(CTR(1)), ==, 4);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_OS), ==, PMU_BIT(PMU_INSNS));
    /* There is no interrupt, whatever pins say. */
    wr(CTR(0), ONES(40));
    wr(CESR, 0x200 | CLOCKS | CPL_3 | 0x16);
    g_assert_false(run(RETIRE_USR, 1));
    g_assert_cmphex(rd(CTR(0)), ==, 0);
    g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_USR), ==, UINT32_MAX);
    wr(CESR, 0);
    run(RETIRE_USR, 1);
    g_assert_cmphex(rd(CTR(0)), ==, 0);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_USR), ==, 0);

    wr(CESR, (CPL_3 | 0x16) << 16);
    wr(CTR(1), 5);
    state = pmu;
    pmu_reset(&pmu, &config);
    g_assert_cmphex(rd(CESR), ==, 0);
    g_assert_cmphex(rd(CTR(1)), ==, 0);
    g_assert_true(pmu_load_state(&state, &config));
    pmu = state;
    run(RETIRE_USR, 3);
    g_assert_cmphex(rd(CTR(1)), ==, 8);
    state.evtsel[0] = 0x400;
    g_assert_false(pmu_load_state(&state, &config));
    state.evtsel[0] = 0;
    state.evtsel[2] = 1;
    g_assert_false(pmu_load_state(&state, &config));
    state.evtsel[2] = 0;
    state.value[0] = 1ull << 40;
    g_assert_false(pmu_load_state(&state, &config));

    /* That is nobody else's register. */
    be_intel(6);
    other(CESR);
    other(CTR(1));
    be_k7();
    other(CESR);
}

static void test_6x86mx(void)
{
    be_6x86mx();
    check_p5(0x7ff, 48);
    wr(CESR, 0x400 | CPL_3 | 0x08);
    run(RETIRE_USR, 7);
    g_assert_cmphex(rd(CTR(0)), ==, 7);
    wr(CTR(0), ONES(48));
    g_assert_false(run(RETIRE_USR, 3));
    g_assert_cmphex(rd(CTR(0)), ==, 2);
}

static void test_winchip(void)
{
    static const struct {
        unsigned model, cycles, insns;
    } tests[] = {
        { 4, 0x00, 0x02 }, { 8, 0x3f, 0x16 }, { 9, 0x3f, 0x16 },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        be(PMU_VENDOR_CENTAUR, 5, tests[i].model);
        config.insn_clocks = 3;
        check_p5(0xff, 40);
        wr(CESR, tests[i].cycles << 16 | tests[i].insns);
        wr(CTR(0), 0);
        wr(CTR(1), 0);
        /* All privilege levels */
        run(RETIRE_USR, 5);
        run(RETIRE_OS, 6);
        check_rdpmc(0, 11);
        check_rdpmc(1, 33);
    }
    /* What RESET leaves counts as well. */
    be(PMU_VENDOR_CENTAUR, 5, 4);
    run(RETIRE_OS, 6);
    check_rdpmc(0, 6);
    check_rdpmc(1, 6);
}

static void test_c3(void)
{
    PmuState state;
    PmuSetting setting;

    be(PMU_VENDOR_CENTAUR, 6, 7);
    g_assert_true(pmu_has_tsc(&config));
    g_assert_cmphex(rd(PERFEVTSEL(1)), ==, 0x70079);
    config.insn_clocks = 3;
    run(RETIRE_OS, 2);
    run(RETIRE_USR, 2);
    g_assert_cmphex(rd(PMC(1)), ==, 12);
    check_rdpmc(1, 12);
    check_no_rdpmc(2);
    check_no_rdpmc(0x80000001);
    /* Only the event means anything. */
    wr(PERFEVTSEL(1), 0xfffffe00 | 0xc0);
    g_assert_cmphex(rd(PERFEVTSEL(1)), ==, 0xfffffec0);
    wr(PMC(1), 0x1fffffffe);
    g_assert_cmphex(rd(PMC(1)), ==, 0xfffffffe);
    g_assert_false(run(RETIRE_OS, 3));
    g_assert_cmphex(rd(PMC(1)), ==, 1);
    wr(PERFEVTSEL(1), 0x1c0);
    run(RETIRE_USR, 3);
    g_assert_cmphex(rd(PMC(1)), ==, 4);
    g_assert_false(pmu_setting(&pmu, &config, 0, &setting));
    g_assert_true(pmu_setting(&pmu, &config, 1, &setting));
    g_assert_true(setting.enabled && setting.os && setting.usr);
    g_assert_false(setting.interrupts);

    /* The TSC's can be read, but not be written. */
    g_assert_cmphex(rd(PERFEVTSEL(0)), ==, 0);
    rd(PMC(0));
    wr_gp(PERFEVTSEL(0), 0x79);
    wr_gp(PMC(0), 0);
    gp(PERFEVTSEL(2));
    gp(PMC(2));
    gp(PERF_CAPS);
    gp(GLOBAL_CTRL);
    gp(K7_EVTSEL(0));
    other(CESR);
    other(CTR(0));
    other(0xe8);

    state = pmu;
    g_assert_true(pmu_load_state(&state, &config));
    pmu = state;
    run(RETIRE_USR, 3);
    g_assert_cmphex(rd(PMC(1)), ==, 7);
    state.value[0] = 1;
    g_assert_false(pmu_load_state(&state, &config));
    state.value[0] = 0;
    state.evtsel[0] = 1;
    g_assert_false(pmu_load_state(&state, &config));
    be_p5();
    g_assert_false(pmu_has_tsc(&config));
}

static void test_zhaoxin(void)
{
    be(PMU_VENDOR_CENTAUR, 7, 0x3b);
    /* Its driver writes counters in full width. */
    wr(PMC(3), -10ull);
    g_assert_cmphex(rd(PMC(3)), ==, ONES(48) - 9);
    wr(PMC(3), 0x123456789abcull);
    g_assert_cmphex(rd(PMC(3)), ==, 0x123456789abcull);
    gp(PMC(4));
    gp(STATUS_SET);
    gp(A_PMC(0));
    gp(PERF_CAPS);
    wr(GLOBAL_CTRL, 0xf | FIXED_BIT(0) | FIXED_BIT(1) | FIXED_BIT(2));
    wr(FIXED_CTR_CTRL, 0x222);
    wr(PMC(0), -5ull);
    wr(PERFEVTSEL(0), USR | EN | INT | 0x82);
    g_assert_false(run(RETIRE_USR, 4));
    g_assert_true(run(RETIRE_USR, 1));
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, 1);
    wr(STATUS_RESET, 1);
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, 0);
    for (int i = 0; i < 3; i++) {
        g_assert_cmphex(rd(FIXED_CTR(i)), ==, 5);
    }
    check_rdpmc(0x40000001, 5);
    check_no_rdpmc(4);
}

/*
 * Events
 */

#define Q(quantity) PMU_BIT(PMU_ ## quantity)
#define Q_COND      (Q(COND_TAKEN) | Q(COND_NOT_TAKEN))
#define Q_IND       (Q(JMP_IND) | Q(CALL_IND))
#define Q_CALLS     (Q(CALL) | Q(CALL_IND))
#define Q_TAKEN     (Q(COND_TAKEN) | Q(JMP) | Q_IND | Q(CALL) | Q(RET))
#define Q_NEAR      (Q_TAKEN | Q(COND_NOT_TAKEN))
#define Q_ALL       (Q_NEAR | Q(FAR))
#define Q_M_TAKEN   (Q(MISP_COND_TAKEN) | Q(MISP_JMP_IND) | \
                     Q(MISP_CALL_IND) | Q(MISP_RET))
#define Q_M_COND    (Q(MISP_COND_TAKEN) | Q(MISP_COND_NOT_TAKEN))
#define Q_M_ALL     (Q_M_TAKEN | Q(MISP_COND_NOT_TAKEN))
#define Q_M_IND     (Q(MISP_JMP_IND) | Q(MISP_CALL_IND))
#define Q_REMOTE    (Q(LOAD_REMOTE) | Q(LOAD_MODIFIED))
#define Q_L3        (Q(LOAD_L3) | Q_REMOTE)
#define Q_NOT_L2    (Q_L3 | Q(LOAD_DRAM))
#define Q_NOT_L1    (Q(LOAD_L2) | Q_NOT_L2)
#define Q_LOADS     (Q(LOAD_L1) | Q_NOT_L1 | Q(LOAD_OTHER))
#define Q_FILLS     (Q(FILL_L2) | Q(FILL_FAR))
#define Q_S_L3      (Q(STORE_L3) | Q(STORE_REMOTE) | Q(STORE_MODIFIED))
#define Q_S_NOT_L2  (Q_S_L3 | Q(STORE_DRAM))
#define Q_S_NOT_L1  (Q(STORE_L2) | Q_S_NOT_L2)
#define Q_MEMORY    (Q_LOADS | Q(STORES) | Q(LOCKED) | Q(SPLIT_LOADS) | \
                     Q(SPLIT_STORES) | Q_FILLS | Q_S_NOT_L1 | Q_TLB | \
                     Q_FETCHED | Q(CODE_STORES))
#define Q_D_L2      (Q(TLB_LOAD_L2) | Q(TLB_STORE_L2))
#define Q_D_WALKS   (Q(TLB_LOAD_WALK) | Q(TLB_STORE_WALK))
#define Q_LD_PAGES  (Q(TLB_LOAD_L2) | Q(TLB_LOAD_WALK))
#define Q_ST_PAGES  (Q(TLB_STORE_L2) | Q(TLB_STORE_WALK))
#define Q_C_PAGES   (Q(TLB_FETCH_L2) | Q(TLB_FETCH_WALK))
#define Q_TLB       (Q_D_L2 | Q_D_WALKS | Q(STLB_MISS_LOADS) | \
                     Q(STLB_MISS_STORES))
#define Q_FETCHED   (Q_C_PAGES | Q(FETCHES) | Q(FETCH_MISSES))
#define HALF        24u

/* Known, but no quantity: clocks without an instruction, and what never is */
#define Q_STALLED   (1ull << 63)
#define Q_NEVER     Q(MISP_JMP)

enum {
    P6, CORE_DUO, CORE2, BONNELL, SILVERMONT, GOLDMONT, TREMONT, CRESTMONT,
    NEHALEM, WESTMERE, SANDY_BRIDGE, IVY_BRIDGE, HASWELL, BROADWELL, SKYLAKE,
    ICE_LAKE, GOLDEN_COVE, GENERIC, ZHAOXIN, K7, FAM15H, ZEN, HYGON, ZEN2,
    ZEN3, ZEN5, PERFMON_V2, NR_CPUS
};

static const struct {
    PmuVendor vendor;
    unsigned family, model;
} cpus[NR_CPUS] = {
    [P6] = { PMU_VENDOR_INTEL, 6, 6 },
    [CORE_DUO] = { PMU_VENDOR_INTEL, 6, 0x0e },
    [CORE2] = { PMU_VENDOR_INTEL, 6, 0x0f },
    [BONNELL] = { PMU_VENDOR_INTEL, 6, 0x1c },
    [SILVERMONT] = { PMU_VENDOR_INTEL, 6, 0x85 },
    [GOLDMONT] = { PMU_VENDOR_INTEL, 6, 0x5f },
    [TREMONT] = { PMU_VENDOR_INTEL, 6, 0x86 },
    [CRESTMONT] = { PMU_VENDOR_INTEL, 6, 0xaf },
    [NEHALEM] = { PMU_VENDOR_INTEL, 6, 0x1a },
    [WESTMERE] = { PMU_VENDOR_INTEL, 6, 0x2c },
    [SANDY_BRIDGE] = { PMU_VENDOR_INTEL, 6, 0x2a },
    [IVY_BRIDGE] = { PMU_VENDOR_INTEL, 6, 0x3a },
    [HASWELL] = { PMU_VENDOR_INTEL, 6, 0x3c },
    [BROADWELL] = { PMU_VENDOR_INTEL, 6, 0x3d },
    [SKYLAKE] = { PMU_VENDOR_INTEL, 6, 0x5e },
    [ICE_LAKE] = { PMU_VENDOR_INTEL, 6, 0x6a },
    [ZHAOXIN] = { PMU_VENDOR_CENTAUR, 7, 0x0b },
    [GOLDEN_COVE] = { PMU_VENDOR_INTEL, 6, 0x8f },
    [GENERIC] = { PMU_VENDOR_INTEL, 6, 0xff },
    [K7] = { PMU_VENDOR_AMD, 15, 0x6b },
    [FAM15H] = { PMU_VENDOR_AMD, 0x15, 2 },
    [ZEN] = { PMU_VENDOR_AMD, 0x17, 1 },
    [HYGON] = { PMU_VENDOR_AMD, 0x18, 0 },
    [ZEN2] = { PMU_VENDOR_AMD, 0x17, 0x31 },
    [ZEN3] = { PMU_VENDOR_AMD, 0x19, 1 },
    [ZEN5] = { PMU_VENDOR_AMD, 0x1a, 2 },
    [PERFMON_V2] = { PMU_VENDOR_AMD, 0x19, 0x11 },
};

/* CPUs @first to @last, as a set */
#define CPUS(first, last)   (ONES((last) + 1) & ~ONES(first))

static const struct {
    uint16_t code;          /* unit mask and event: bits 15:0 of PERFEVTSEL */
    uint32_t cpus;
    uint64_t quantities;
    bool masked;            /* the unit mask matters on AMD's, too */
} events[] = {
    { 0x0079, CPUS(P6, P6), Q(CYCLES) },
    { 0x003c, CPUS(CORE_DUO, ZHAOXIN), Q(CYCLES) },
    { 0x013c, CPUS(CORE_DUO, ZHAOXIN), Q(REF_CYCLES) },
    { 0x00c0, CPUS(P6, ZHAOXIN), Q(INSNS) },
    { 0x01c0, CPUS(NEHALEM, GOLDEN_COVE), Q(INSNS) },
    { 0x00c4, CPUS(P6, ZHAOXIN), Q_ALL },
    { 0x03c4, CPUS(CORE2, BONNELL), Q(COND_NOT_TAKEN) },
    { 0x0cc4, CPUS(CORE2, BONNELL), Q_TAKEN | Q(FAR) },
    { 0x01c4, CPUS(NEHALEM, SKYLAKE), Q_COND },
    { 0x01c4, CPUS(ICE_LAKE, GOLDEN_COVE), Q(COND_TAKEN) },
    { 0x02c4, CPUS(NEHALEM, GOLDEN_COVE), Q_CALLS },
    { 0x04c4, CPUS(NEHALEM, SKYLAKE) | CPUS(GOLDEN_COVE, GOLDEN_COVE), Q_ALL },
    { 0x08c4, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(RET) },
    { 0x10c4, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(COND_NOT_TAKEN) },
    { 0x11c4, CPUS(ICE_LAKE, GOLDEN_COVE), Q_COND },
    { 0x20c4, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q_TAKEN },
    { 0x40c4, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(FAR) },
    { 0x80c4, CPUS(ICE_LAKE, GOLDEN_COVE), Q_IND },
    { 0x00c5, CPUS(P6, ZHAOXIN), Q_M_ALL },
    { 0x01c5, CPUS(NEHALEM, SKYLAKE), Q_M_COND },
    { 0x01c5, CPUS(ICE_LAKE, GOLDEN_COVE), Q(MISP_COND_TAKEN) },
    { 0x02c5, CPUS(NEHALEM, GOLDEN_COVE), Q(MISP_CALL_IND) },
    { 0x04c5, CPUS(NEHALEM, SKYLAKE) | CPUS(GOLDEN_COVE, GOLDEN_COVE),
      Q_M_ALL },
    { 0x03e8, CPUS(NEHALEM, WESTMERE), Q_M_ALL },
    { 0x08c5, CPUS(HASWELL, GOLDEN_COVE), Q(MISP_RET) },
    { 0x10c5, CPUS(SANDY_BRIDGE, IVY_BRIDGE), Q(MISP_COND_NOT_TAKEN) },
    { 0x10c5, CPUS(ICE_LAKE, GOLDEN_COVE), Q(MISP_COND_NOT_TAKEN) },
    { 0x11c5, CPUS(ICE_LAKE, GOLDEN_COVE), Q_M_COND },
    { 0x20c5, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q_M_TAKEN },
    { 0x80c5, CPUS(ICE_LAKE, GOLDEN_COVE), Q_M_IND },
    { 0x00c8, CPUS(P6, P6) | CPUS(CORE2, CORE2), Q(INTERRUPTS) },
    { 0x00c9, CPUS(P6, P6), Q_TAKEN | Q(FAR) },
    { 0x00ca, CPUS(P6, P6), Q_M_TAKEN },
    { 0x01cb, CPUS(SKYLAKE, GOLDEN_COVE), Q(INTERRUPTS) },
    { 0x0076, CPUS(K7, PERFMON_V2), Q(CYCLES) },
    { 0x00c0, CPUS(K7, PERFMON_V2), Q(INSNS) },
    { 0x00c2, CPUS(K7, PERFMON_V2), Q_ALL },
    { 0x00c3, CPUS(K7, PERFMON_V2), Q_M_ALL },
    { 0x00c4, CPUS(K7, PERFMON_V2), Q_TAKEN | Q(FAR) },
    { 0x00c5, CPUS(K7, PERFMON_V2), Q_M_TAKEN },
    { 0x00c6, CPUS(K7, PERFMON_V2), Q(FAR) },
    { 0x00c8, CPUS(K7, PERFMON_V2), Q(RET) },
    { 0x00c9, CPUS(K7, PERFMON_V2), Q(MISP_RET) },
    { 0x00ca, CPUS(K7, PERFMON_V2), Q_M_IND },
    { 0x00cf, CPUS(K7, FAM15H), Q(INTERRUPTS) },
    { 0x002c, CPUS(ZEN, PERFMON_V2), Q(INTERRUPTS) },
    { 0x00d1, CPUS(ZEN, PERFMON_V2), Q_COND },
    { 0x00d2, CPUS(ZEN, PERFMON_V2), Q_M_COND },
    { 0x0062, CPUS(P6, P6), Q(REF_CYCLES) },
    { 0x010e, CPUS(NEHALEM, ICE_LAKE), Q(INSNS) },
    { 0x01ae, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q(INSNS) },
    { 0x3fb1, CPUS(NEHALEM, WESTMERE), Q(INSNS) },
    { 0x01b1, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(INSNS) },
    { 0x02b1, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(INSNS) },
    { 0x00c2, CPUS(P6, P6), Q(INSNS) },
    { 0x01c2, CPUS(NEHALEM, SKYLAKE), Q(INSNS) },
    { 0x02c2, CPUS(NEHALEM, GOLDEN_COVE), Q(INSNS) },
    { 0x00a2, CPUS(P6, P6), Q_STALLED },
    { 0x0043, CPUS(P6, P6), Q_LOADS | Q(STORES) },
    { 0x0045, CPUS(P6, P6), Q_FILLS },
    { 0x0024, CPUS(P6, P6), Q(FILL_FAR) },
    { 0x0f29, CPUS(P6, P6), Q_NOT_L1 },
    { 0x0129, CPUS(P6, P6), Q_NOT_L2 },
    { 0x0f2e, CPUS(P6, P6), Q_FILLS },
    { 0x012e, CPUS(P6, P6), Q(FILL_FAR) },
    { 0x002e, CPUS(P6, P6), Q_NEVER },
    { 0x4f2e, CPUS(CORE_DUO, GOLDMONT), Q_FILLS },
    { 0x412e, CPUS(CORE_DUO, GOLDMONT), Q(FILL_FAR) },
    { 0x4f2e, CPUS(TREMONT, ZHAOXIN), Q_NOT_L2 },
    { 0x412e, CPUS(TREMONT, ZHAOXIN), Q(LOAD_DRAM) },
    { 0x4f29, CPUS(CORE2, BONNELL), Q_NOT_L1 },
    { 0x4129, CPUS(CORE2, BONNELL), Q_NOT_L2 },
    { 0x7f29, CPUS(CORE2, BONNELL), Q_NOT_L1 },
    { 0x2140, CPUS(BONNELL, BONNELL), Q_LOADS },
    { 0x2240, CPUS(BONNELL, BONNELL), Q(STORES) },
    { 0x0104, CPUS(SILVERMONT, SILVERMONT), Q_NOT_L1 },
    { 0x0204, CPUS(SILVERMONT, SILVERMONT), Q(LOAD_L2) },
    { 0x0404, CPUS(SILVERMONT, SILVERMONT), Q_NOT_L2 },
    { 0x2004, CPUS(SILVERMONT, SILVERMONT), Q(LOAD_MODIFIED) },
    { 0x4004, CPUS(SILVERMONT, SILVERMONT), Q_LOADS },
    { 0x8004, CPUS(SILVERMONT, SILVERMONT), Q(STORES) },
    { 0x81d0, CPUS(GOLDMONT, CRESTMONT), Q_LOADS },
    { 0x82d0, CPUS(GOLDMONT, CRESTMONT), Q(STORES) },
    { 0x83d0, CPUS(GOLDMONT, TREMONT), Q_LOADS | Q(STORES) },
    { 0x21d0, CPUS(GOLDMONT, CRESTMONT), Q(LOCKED) },
    { 0x41d0, CPUS(GOLDMONT, CRESTMONT), Q(SPLIT_LOADS) },
    { 0x42d0, CPUS(GOLDMONT, CRESTMONT), Q(SPLIT_STORES) },
    { 0x43d0, CPUS(GOLDMONT, CRESTMONT), Q(SPLIT_LOADS) | Q(SPLIT_STORES) },
    { 0x06d0, CPUS(CRESTMONT, CRESTMONT), Q(STORES) },
    { 0x01d1, CPUS(GOLDMONT, CRESTMONT), Q(LOAD_L1) },
    { 0x02d1, CPUS(GOLDMONT, CRESTMONT), Q(LOAD_L2) },
    { 0x04d1, CPUS(TREMONT, TREMONT), Q_L3 },
    { 0x08d1, CPUS(GOLDMONT, TREMONT), Q_NOT_L1 },
    { 0x10d1, CPUS(GOLDMONT, TREMONT), Q_NOT_L2 },
    { 0x20d1, CPUS(GOLDMONT, TREMONT), Q(LOAD_MODIFIED) },
    { 0x80d1, CPUS(GOLDMONT, TREMONT), Q(LOAD_DRAM) },
    { 0x1cd1, CPUS(CRESTMONT, CRESTMONT), Q_L3 },
    { 0x40d1, CPUS(CRESTMONT, CRESTMONT), Q_NOT_L1 },
    { 0x80d1, CPUS(CRESTMONT, CRESTMONT), Q_NOT_L2 },
    { 0x01d3, CPUS(CRESTMONT, CRESTMONT), Q(LOAD_DRAM) },
    { 0x0f2a, CPUS(P6, P6), Q_S_NOT_L1 },
    { 0x012a, CPUS(P6, P6), Q_S_NOT_L2 },
    { 0x0025, CPUS(P6, P6), Q_S_NOT_L2 },
    { 0x4f2a, CPUS(CORE2, BONNELL), Q_S_NOT_L1 },
    { 0x412a, CPUS(CORE2, BONNELL), Q_S_NOT_L2 },
    { 0x0141, CPUS(CORE2, CORE2), Q_S_NOT_L1 },
    { 0x0251, CPUS(NEHALEM, WESTMERE), Q_S_NOT_L1 },
    { 0x0851, CPUS(SANDY_BRIDGE, IVY_BRIDGE), Q_S_NOT_L1 },
    { 0x0124, CPUS(NEHALEM, IVY_BRIDGE), Q(LOAD_L2) },
    { 0x0224, CPUS(NEHALEM, WESTMERE), Q_NOT_L2 },
    { 0x0324, CPUS(NEHALEM, IVY_BRIDGE), Q_NOT_L1 },
    { 0x0424, CPUS(NEHALEM, IVY_BRIDGE), Q(STORE_L2) },
    { 0x0824, CPUS(NEHALEM, IVY_BRIDGE), Q_S_NOT_L2 },
    { 0x0c24, CPUS(NEHALEM, IVY_BRIDGE), Q_S_NOT_L1 },
    { 0x0f27, CPUS(NEHALEM, IVY_BRIDGE), Q_S_NOT_L1 },
    { 0xc024, CPUS(NEHALEM, IVY_BRIDGE), Q_NEVER },
    { 0xaa24, CPUS(NEHALEM, WESTMERE), Q_NOT_L2 | Q_S_NOT_L2 },
    { 0xff24, CPUS(NEHALEM, WESTMERE) | CPUS(HASWELL, GOLDEN_COVE),
      Q_NOT_L1 | Q_S_NOT_L1 },
    { 0x2124, CPUS(HASWELL, GOLDEN_COVE), Q_NOT_L2 },
    { 0x2224, CPUS(HASWELL, GOLDEN_COVE), Q_S_NOT_L2 },
    { 0x2724, CPUS(HASWELL, GOLDEN_COVE), Q_NOT_L2 | Q_S_NOT_L2 },
    { 0x3f24, CPUS(HASWELL, GOLDEN_COVE), Q_NOT_L2 | Q_S_NOT_L2 },
    { 0xc124, CPUS(HASWELL, GOLDEN_COVE), Q(LOAD_L2) },
    { 0xc224, CPUS(HASWELL, GOLDEN_COVE), Q(STORE_L2) },
    { 0xe124, CPUS(HASWELL, GOLDEN_COVE), Q_NOT_L1 },
    { 0xe224, CPUS(HASWELL, GOLDEN_COVE), Q_S_NOT_L1 },
    { 0xe724, CPUS(HASWELL, GOLDEN_COVE), Q_NOT_L1 | Q_S_NOT_L1 },
    { 0xf824, CPUS(HASWELL, GOLDEN_COVE), Q_NEVER },
    { 0x01f0, CPUS(HASWELL, BROADWELL), Q_NOT_L1 },
    { 0x02f0, CPUS(HASWELL, BROADWELL), Q_S_NOT_L1 },
    { 0x01b0, CPUS(SANDY_BRIDGE, ICE_LAKE), Q_NOT_L2 },
    { 0x04b0, CPUS(SANDY_BRIDGE, ICE_LAKE), Q_S_NOT_L2 },
    { 0x08b0, CPUS(SANDY_BRIDGE, ICE_LAKE), Q_NOT_L2 },
    { 0x0121, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q_NOT_L2 },
    { 0x0821, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q_NOT_L2 },
    { 0x07f1, CPUS(NEHALEM, BROADWELL), Q(FILL_FAR) },
    { 0x1ff1, CPUS(SKYLAKE, ICE_LAKE), Q(FILL_FAR) },
    { 0x1f25, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q(FILL_FAR) },
    { 0x011d, CPUS(NEHALEM, WESTMERE), Q(INTERRUPTS) },
    { 0x0f40, CPUS(NEHALEM, NEHALEM), Q_LOADS },
    { 0x0f41, CPUS(NEHALEM, NEHALEM), Q(STORES) },
    { 0x0f40, CPUS(CORE2, CORE2), Q_LOADS },
    { 0x0140, CPUS(CORE2, CORE2), Q_NOT_L1 },
    { 0x0f41, CPUS(CORE2, CORE2), Q(STORES) },
    { 0x0f45, CPUS(CORE2, CORE2), Q_FILLS },
    { 0x01cb, CPUS(CORE2, CORE2), Q_NOT_L1 },
    { 0x04cb, CPUS(CORE2, CORE2), Q_NOT_L2 },
    { 0x010b, CPUS(NEHALEM, WESTMERE), Q_LOADS },
    { 0x020b, CPUS(NEHALEM, WESTMERE), Q(STORES) },
    { 0x01cb, CPUS(NEHALEM, WESTMERE), Q(LOAD_L1) },
    { 0x02cb, CPUS(NEHALEM, WESTMERE), Q(LOAD_L2) },
    { 0x04cb, CPUS(NEHALEM, WESTMERE), Q(LOAD_L3) },
    { 0x08cb, CPUS(NEHALEM, WESTMERE), Q_REMOTE },
    { 0x10cb, CPUS(NEHALEM, WESTMERE), Q(LOAD_DRAM) },
    { 0x0151, CPUS(NEHALEM, GOLDEN_COVE), Q_FILLS },
    { 0x21d0, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(LOCKED) },
    { 0x41d0, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(SPLIT_LOADS) },
    { 0x42d0, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(SPLIT_STORES) },
    { 0x81d0, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q_LOADS },
    { 0x82d0, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(STORES) },
    { 0x83d0, CPUS(SKYLAKE, GOLDEN_COVE), Q_LOADS | Q(STORES) },
    { 0xf1d0, CPUS(SANDY_BRIDGE, IVY_BRIDGE), Q_LOADS },
    { 0xf2d0, CPUS(SANDY_BRIDGE, IVY_BRIDGE), Q(STORES) },
    { 0x01d1, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(LOAD_L1) },
    { 0x02d1, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(LOAD_L2) },
    { 0x04d1, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q_L3 },
    { 0x08d1, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q_NOT_L1 },
    { 0x10d1, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q_NOT_L2 },
    { 0x20d1, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(LOAD_DRAM) },
    { 0x02d2, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(LOAD_REMOTE) },
    { 0x04d2, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(LOAD_MODIFIED) },
    { 0x08d2, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(LOAD_L3) },
    { 0x01d3, CPUS(HASWELL, GOLDEN_COVE), Q(LOAD_DRAM) },
    /* Without PEBS: see test-pebs-engine.c */
    { 0x100b, CPUS(NEHALEM, WESTMERE), Q_NEVER },
    { 0x05d0, CPUS(CRESTMONT, CRESTMONT), Q_NEVER },
    { 0x01cd, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q_NEVER },
    { 0x02cd, CPUS(SANDY_BRIDGE, IVY_BRIDGE), Q_NEVER },
    { 0x02cd, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q_NEVER },
    { 0x8203, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q_NEVER },
    { 0x00c1, CPUS(K7, PERFMON_V2), Q(INSNS) },
    { 0x00d0, CPUS(K7, FAM15H) | CPUS(HYGON, HYGON), Q_STALLED },
    { 0x00d1, CPUS(K7, FAM15H), Q_STALLED },
    { 0x0187, CPUS(ZEN, PERFMON_V2), Q_STALLED, true },
    { 0x0287, CPUS(ZEN, PERFMON_V2), Q_STALLED, true },
    { 0x00a9, CPUS(ZEN2, PERFMON_V2), Q_STALLED },
    { 0xa8e9, CPUS(K7, FAM15H), Q(LOAD_DRAM), true },
    { 0xb8e9, CPUS(K7, FAM15H), Q(LOAD_DRAM), true },
    { 0x98e9, CPUS(K7, FAM15H), Q_NEVER, true },
    { 0x0040, CPUS(K7, PERFMON_V2), Q_LOADS | Q(STORES) },
    { 0x0041, CPUS(K7, FAM15H), Q_FILLS },
    { 0x0042, CPUS(K7, FAM15H), Q(FILL_L2) },
    { 0x0043, CPUS(K7, FAM15H), Q(FILL_FAR) },
    { 0x027d, CPUS(K7, FAM15H), Q_FILLS, true },
    { 0x037d, CPUS(K7, FAM15H), Q_FILLS, true },
    { 0x077d, CPUS(K7, FAM15H) | CPUS(HYGON, HYGON), Q_FILLS, true },
    { 0x027e, CPUS(K7, FAM15H), Q(FILL_FAR), true },
    { 0x037e, CPUS(K7, FAM15H), Q(FILL_FAR), true },
    { 0x077e, CPUS(K7, FAM15H) | CPUS(HYGON, HYGON), Q(FILL_FAR), true },
    { 0x017f, CPUS(K7, FAM15H), Q(FILL_FAR), true },
    { 0x0124, CPUS(K7, FAM15H), Q(LOCKED), true },
    { 0x0129, CPUS(FAM15H, PERFMON_V2), Q_LOADS, true },
    { 0x0229, CPUS(FAM15H, PERFMON_V2), Q(STORES), true },
    { 0x0729, CPUS(ZEN, PERFMON_V2), Q_LOADS | Q(STORES), true },
    { 0x0141, CPUS(ZEN, PERFMON_V2), Q_NOT_L1, true },
    { 0x8060, CPUS(ZEN, PERFMON_V2), Q_NOT_L1, true },
    { 0x4060, CPUS(ZEN, PERFMON_V2), Q_S_NOT_L1, true },
    { 0x1064, CPUS(ZEN, PERFMON_V2), Q(STORE_L2), true },
    { 0x4064, CPUS(ZEN, PERFMON_V2), Q(LOAD_L2), true },
    { 0x6064, CPUS(ZEN, PERFMON_V2), Q(LOAD_L2), true },
    { 0x7064, CPUS(ZEN, PERFMON_V2), Q(FILL_L2), true },
    { 0xf064, CPUS(ZEN, PERFMON_V2), Q(FILL_L2), true },
    { 0xf664, CPUS(ZEN, PERFMON_V2), Q(FILL_L2), true },
    { 0x0143, CPUS(ZEN, PERFMON_V2), Q(LOAD_L2) | Q(STORE_L2), true },
    { 0x0243, CPUS(ZEN, PERFMON_V2), Q_L3 | Q_S_L3, true },
    { 0x0843, CPUS(ZEN, PERFMON_V2), Q(LOAD_DRAM) | Q(STORE_DRAM), true },
    { 0x5043, CPUS(ZEN, PERFMON_V2), Q_NEVER, true },
    { 0xe860, CPUS(ZEN, PERFMON_V2), Q_FILLS, true },
    { 0xf960, CPUS(ZEN, PERFMON_V2), Q_FILLS, true },
    { 0xc860, CPUS(ZEN, PERFMON_V2), Q_FILLS, true },
    { 0xff60, CPUS(ZEN, PERFMON_V2), Q_FILLS, true },
    { 0x0864, CPUS(ZEN, PERFMON_V2), Q(FILL_FAR), true },
    { 0x0964, CPUS(ZEN, PERFMON_V2), Q(FILL_FAR), true },
    { 0x0108, CPUS(CORE2, CORE2), Q_D_WALKS },
    { 0x0208, CPUS(CORE2, CORE2), Q(TLB_LOAD_WALK) },
    { 0x0408, CPUS(CORE2, CORE2), Q_LD_PAGES },
    { 0x0808, CPUS(CORE2, CORE2), Q(TLB_STORE_WALK) },
    { 0x010c, CPUS(CORE2, CORE2), Q_D_WALKS | Q(TLB_FETCH_WALK) },
    { 0x10cb, CPUS(CORE2, CORE2), Q(STLB_MISS_LOADS) },
    { 0x1282, CPUS(CORE2, CORE2), Q_C_PAGES },
    { 0x0508, CPUS(BONNELL, BONNELL), Q(TLB_LOAD_WALK) },
    { 0x0608, CPUS(BONNELL, BONNELL), Q(TLB_STORE_WALK) },
    { 0x0708, CPUS(BONNELL, BONNELL), Q_D_WALKS },
    { 0x0908, CPUS(BONNELL, BONNELL), Q_LD_PAGES },
    { 0x0a08, CPUS(BONNELL, BONNELL), Q_ST_PAGES },
    { 0x04cb, CPUS(BONNELL, BONNELL), Q(STLB_MISS_LOADS) },
    { 0x0282, CPUS(BONNELL, BONNELL), Q_C_PAGES },
    { 0x8282, CPUS(BONNELL, BONNELL), Q_C_PAGES },
    { 0x0804, CPUS(SILVERMONT, SILVERMONT), Q(STLB_MISS_LOADS) },
    { 0x0481, CPUS(GOLDMONT, CRESTMONT), Q_C_PAGES },
    { 0x0108, CPUS(NEHALEM, SANDY_BRIDGE), Q(TLB_LOAD_WALK) },
    { 0x0108, CPUS(HASWELL, SKYLAKE), Q(TLB_LOAD_WALK) },
    { 0x0208, CPUS(NEHALEM, SANDY_BRIDGE), Q(TLB_LOAD_WALK) },
    { 0x0e08, CPUS(HASWELL, ICE_LAKE) | CPUS(TREMONT, CRESTMONT),
      Q(TLB_LOAD_WALK) },
    { 0x1008, CPUS(NEHALEM, SANDY_BRIDGE), Q(TLB_LOAD_L2) },
    { 0x6008, CPUS(HASWELL, BROADWELL), Q(TLB_LOAD_L2) },
    { 0x2008, CPUS(SKYLAKE, ICE_LAKE) | CPUS(TREMONT, CRESTMONT),
      Q(TLB_LOAD_L2) },
    { 0x0149, CPUS(NEHALEM, WESTMERE), Q_D_WALKS },
    { 0x0249, CPUS(NEHALEM, WESTMERE), Q_D_WALKS },
    { 0x1049, CPUS(NEHALEM, WESTMERE), Q_D_L2 },
    { 0x0149, CPUS(SANDY_BRIDGE, SKYLAKE), Q(TLB_STORE_WALK) },
    { 0x0249, CPUS(SANDY_BRIDGE, IVY_BRIDGE), Q(TLB_STORE_WALK) },
    { 0x0e49, CPUS(HASWELL, ICE_LAKE) | CPUS(TREMONT, CRESTMONT),
      Q(TLB_STORE_WALK) },
    { 0x1049, CPUS(SANDY_BRIDGE, IVY_BRIDGE), Q(TLB_STORE_L2) },
    { 0x6049, CPUS(HASWELL, BROADWELL), Q(TLB_STORE_L2) },
    { 0x2049, CPUS(SKYLAKE, ICE_LAKE) | CPUS(TREMONT, CRESTMONT),
      Q(TLB_STORE_L2) },
    { 0x0185, CPUS(NEHALEM, SKYLAKE), Q(TLB_FETCH_WALK) },
    { 0x0285, CPUS(NEHALEM, IVY_BRIDGE), Q(TLB_FETCH_WALK) },
    { 0x0e85, CPUS(HASWELL, ICE_LAKE) | CPUS(TREMONT, CRESTMONT),
      Q(TLB_FETCH_WALK) },
    { 0x1085, CPUS(SANDY_BRIDGE, IVY_BRIDGE), Q(TLB_FETCH_L2) },
    { 0x6085, CPUS(HASWELL, BROADWELL), Q(TLB_FETCH_L2) },
    { 0x2085, CPUS(SKYLAKE, ICE_LAKE) | CPUS(TREMONT, CRESTMONT),
      Q(TLB_FETCH_L2) },
    { 0x13d0, CPUS(GOLDMONT, CRESTMONT),
      Q(STLB_MISS_LOADS) | Q(STLB_MISS_STORES) },
    { 0x0e12, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q(TLB_LOAD_WALK) },
    { 0x2012, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q(TLB_LOAD_L2) },
    { 0x0e13, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q(TLB_STORE_WALK) },
    { 0x2013, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q(TLB_STORE_L2) },
    { 0x0e11, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q(TLB_FETCH_WALK) },
    { 0x2011, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q(TLB_FETCH_L2) },
    { 0x8108, CPUS(IVY_BRIDGE, IVY_BRIDGE), Q(TLB_LOAD_WALK) },
    { 0x8208, CPUS(IVY_BRIDGE, IVY_BRIDGE), Q(TLB_LOAD_WALK) },
    { 0x045f, CPUS(SANDY_BRIDGE, IVY_BRIDGE), Q(TLB_LOAD_L2) },
    { 0x80cb, CPUS(NEHALEM, WESTMERE), Q(STLB_MISS_LOADS) },
    { 0x20c8, CPUS(NEHALEM, WESTMERE), Q(TLB_FETCH_WALK) },
    { 0x010c, CPUS(NEHALEM, WESTMERE), Q(STLB_MISS_STORES) },
    { 0x11d0, CPUS(SANDY_BRIDGE, GOLDEN_COVE) | CPUS(GOLDMONT, CRESTMONT),
      Q(STLB_MISS_LOADS) },
    { 0x12d0, CPUS(SANDY_BRIDGE, GOLDEN_COVE) | CPUS(GOLDMONT, CRESTMONT),
      Q(STLB_MISS_STORES) },
    { 0x0085, CPUS(P6, CORE_DUO), Q_C_PAGES },
    { 0x0080, CPUS(P6, CORE2), Q(FETCHES) },
    { 0x0081, CPUS(P6, CORE2), Q(FETCH_MISSES) },
    { 0x0f28, CPUS(P6, P6), Q(FETCH_MISSES) },
    { 0x4f28, CPUS(CORE2, BONNELL), Q(FETCH_MISSES) },
    { 0x0280, CPUS(BONNELL, BROADWELL), Q(FETCH_MISSES) },
    { 0x0380, CPUS(BONNELL, BROADWELL), Q(FETCHES) },
    { 0x0383, CPUS(SKYLAKE, ICE_LAKE), Q(FETCHES) },
    { 0x0283, CPUS(SKYLAKE, ICE_LAKE), Q(FETCH_MISSES) },
    { 0x3024, CPUS(NEHALEM, IVY_BRIDGE), Q(FETCH_MISSES) },
    { 0xe424, CPUS(HASWELL, GOLDEN_COVE), Q(FETCH_MISSES) },
    { 0x0045, CPUS(K7, K7), Q_D_L2, true },
    { 0x0745, CPUS(K7, FAM15H), Q_D_L2, true },
    { 0x0046, CPUS(K7, K7), Q_D_WALKS, true },
    { 0x0746, CPUS(K7, FAM15H), Q_D_WALKS, true },
    { 0x7046, CPUS(FAM15H, FAM15H), Q(TLB_FETCH_WALK), true },
    { 0x7746, CPUS(FAM15H, FAM15H), Q_D_WALKS | Q(TLB_FETCH_WALK), true },
    { 0x0f45, CPUS(ZEN, PERFMON_V2), Q_D_L2, true },
    { 0xf045, CPUS(ZEN, PERFMON_V2), Q_D_WALKS, true },
    { 0xff45, CPUS(ZEN, PERFMON_V2), Q_D_L2 | Q_D_WALKS, true },
    { 0x0084, CPUS(K7, PERFMON_V2), Q(TLB_FETCH_L2) },
    { 0x0085, CPUS(K7, K7), Q(TLB_FETCH_WALK), true },
    { 0x0385, CPUS(K7, FAM15H), Q(TLB_FETCH_WALK), true },
    { 0x0785, CPUS(FAM15H, PERFMON_V2), Q(TLB_FETCH_WALK), true },
    { 0x0f85, CPUS(ZEN, PERFMON_V2), Q(TLB_FETCH_WALK), true },
    { 0xff85, CPUS(ZEN, PERFMON_V2), Q(TLB_FETCH_WALK), true },
    { 0x0080, CPUS(K7, PERFMON_V2), Q(FETCHES) },
    { 0x0081, CPUS(K7, PERFMON_V2), Q(FETCH_MISSES) },
    { 0x0082, CPUS(ZHAOXIN, ZHAOXIN), Q(CYCLES) },
    { 0x0083, CPUS(ZHAOXIN, ZHAOXIN), Q(REF_CYCLES) },
    { 0x0101, CPUS(ZHAOXIN, ZHAOXIN), Q(INSNS) },
    { 0x040f, CPUS(ZHAOXIN, ZHAOXIN), Q_STALLED },
    { 0x0700, CPUS(ZHAOXIN, ZHAOXIN), Q_ALL },
    { 0x0028, CPUS(ZHAOXIN, ZHAOXIN), Q_ALL },
    { 0x0709, CPUS(ZHAOXIN, ZHAOXIN), Q_M_ALL },
    { 0x0029, CPUS(ZHAOXIN, ZHAOXIN), Q_M_ALL },
    { 0x0042, CPUS(ZHAOXIN, ZHAOXIN), Q_LOADS },
    { 0x0568, CPUS(ZHAOXIN, ZHAOXIN), Q_LOADS },
    { 0x0043, CPUS(ZHAOXIN, ZHAOXIN), Q(STORES) },
    { 0x0669, CPUS(ZHAOXIN, ZHAOXIN), Q(STORES) },
    { 0x0538, CPUS(ZHAOXIN, ZHAOXIN), Q_NOT_L1 },
    { 0x054b, CPUS(ZHAOXIN, ZHAOXIN), Q_NOT_L1 },
    { 0x0562, CPUS(ZHAOXIN, ZHAOXIN), Q_S_NOT_L1 },
    { 0x0515, CPUS(ZHAOXIN, ZHAOXIN), Q_FILLS },
    { 0x051a, CPUS(ZHAOXIN, ZHAOXIN), Q(FILL_FAR) },
    { 0x052c, CPUS(ZHAOXIN, ZHAOXIN), Q_LD_PAGES },
    { 0x0530, CPUS(ZHAOXIN, ZHAOXIN), Q_ST_PAGES },
    { 0x0534, CPUS(ZHAOXIN, ZHAOXIN), Q_C_PAGES },
    { 0x0300, CPUS(ZHAOXIN, ZHAOXIN), Q(FETCHES) },
    { 0x0301, CPUS(ZHAOXIN, ZHAOXIN), Q(FETCH_MISSES) },
    { 0x017d, CPUS(K7, FAM15H), Q(FETCH_MISSES), true },
    /* What tools ask for by sums of bits */
    { 0x0b43, CPUS(ZEN, PERFMON_V2), Q_NOT_L1 | Q_S_NOT_L1, true },
    { 0x0f43, CPUS(ZEN, PERFMON_V2), Q_NOT_L1 | Q_S_NOT_L1, true },
    { 0x4843, CPUS(ZEN, PERFMON_V2), Q(LOAD_DRAM) | Q(STORE_DRAM), true },
    { 0x5b43, CPUS(ZEN, PERFMON_V2), Q_NOT_L1 | Q_S_NOT_L1, true },
    { 0xff43, CPUS(ZEN, PERFMON_V2), Q_NOT_L1 | Q_S_NOT_L1, true },
    { 0x6864, CPUS(ZEN, PERFMON_V2), Q(LOAD_L2) | Q(FILL_FAR), true },
    { 0xf864, CPUS(ZEN, PERFMON_V2), Q_FILLS, true },
    { 0xff64, CPUS(ZEN, PERFMON_V2), Q_FILLS, true },
    { 0x5124, CPUS(NEHALEM, IVY_BRIDGE), Q(LOAD_L2) },
    { 0xc7c4, CPUS(SKYLAKE, SKYLAKE), Q_ALL },
    { 0xe1d1, CPUS(SKYLAKE, GOLDEN_COVE), Q(LOAD_L1) | Q(LOAD_DRAM) },
    { 0x1060, CPUS(ZEN, PERFMON_V2), Q(FETCH_MISSES), true },
    { 0x0403, CPUS(SILVERMONT, SILVERMONT), Q(SPLIT_STORES) },
    { 0x0803, CPUS(SILVERMONT, SILVERMONT), Q(SPLIT_LOADS) },
    { 0x1003, CPUS(SILVERMONT, SILVERMONT), Q(LOCKED) },
    { 0x0103, CPUS(GOLDMONT, CRESTMONT) | CPUS(SANDY_BRIDGE, SANDY_BRIDGE),
      Q_NEVER },
    { 0x0203, CPUS(GOLDMONT, CRESTMONT) | CPUS(SANDY_BRIDGE, ICE_LAKE),
      Q_NEVER },
    { 0x0403, CPUS(GOLDMONT, CRESTMONT) | CPUS(GOLDEN_COVE, GOLDEN_COVE),
      Q_NEVER },
    { 0x0803, CPUS(SANDY_BRIDGE, ICE_LAKE), Q_NEVER },
    { 0x8803, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q_NEVER },
    { 0x1003, CPUS(PERFMON_V2, PERFMON_V2), Q_NEVER, true },
    { 0x0105, CPUS(SANDY_BRIDGE, BROADWELL), Q(SPLIT_LOADS) },
    { 0x0205, CPUS(SANDY_BRIDGE, BROADWELL), Q(SPLIT_STORES) },
    { 0x0107, CPUS(SANDY_BRIDGE, ICE_LAKE), Q_NEVER },
    { 0x000e, CPUS(GOLDMONT, CRESTMONT), Q(INSNS) },
    { 0x020f, CPUS(NEHALEM, WESTMERE), Q(LOAD_MODIFIED) },
    { 0x040f, CPUS(WESTMERE, WESTMERE), Q_NEVER },
    { 0x080f, CPUS(NEHALEM, WESTMERE), Q_NEVER },
    { 0x200f, CPUS(NEHALEM, NEHALEM), Q(LOAD_DRAM) },
    { 0x100f, CPUS(NEHALEM, NEHALEM), Q_NEVER },
    { 0x100f, CPUS(WESTMERE, WESTMERE), Q(LOAD_DRAM) },
    { 0x200f, CPUS(WESTMERE, WESTMERE), Q_NEVER },
    { 0x800f, CPUS(NEHALEM, WESTMERE), Q(LOAD_OTHER) },
    { 0x0421, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q_S_NOT_L2 },
    { 0x1021, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q(LOAD_DRAM) },
    { 0x4024, CPUS(CORE_DUO, BONNELL), Q(FILL_FAR) },
    { 0x5024, CPUS(CORE_DUO, BONNELL), Q_NEVER },
    { 0x7024, CPUS(CORE_DUO, BONNELL), Q(FILL_FAR) },
    { 0x4024, CPUS(NEHALEM, IVY_BRIDGE), Q_NEVER },
    { 0x8024, CPUS(NEHALEM, IVY_BRIDGE), Q_NEVER },
    { 0x2824, CPUS(HASWELL, GOLDEN_COVE), Q_NEVER },
    { 0x3024, CPUS(HASWELL, GOLDEN_COVE), Q_NEVER },
    { 0x4124, CPUS(HASWELL, GOLDEN_COVE), Q(LOAD_L2) },
    { 0x4224, CPUS(HASWELL, GOLDEN_COVE), Q(STORE_L2) },
    { 0xc824, CPUS(HASWELL, GOLDEN_COVE), Q_NEVER },
    { 0xd024, CPUS(HASWELL, GOLDEN_COVE), Q_NEVER },
    { 0xdf24, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q(LOAD_L2) | Q(STORE_L2) },
    { 0x0024, CPUS(TREMONT, TREMONT), Q_NOT_L1 | Q_S_NOT_L1 },
    { 0x0124, CPUS(TREMONT, TREMONT), Q_NOT_L2 | Q_S_NOT_L2 },
    { 0x0224, CPUS(TREMONT, TREMONT), Q(LOAD_L2) | Q(STORE_L2) },
    { 0x1f25, CPUS(ZEN5, ZEN5), Q(LOCKED), true },
    { 0x0126, CPUS(NEHALEM, WESTMERE), Q_NOT_L2 },
    { 0x0e26, CPUS(NEHALEM, WESTMERE), Q(LOAD_L2) },
    { 0xf026, CPUS(NEHALEM, WESTMERE), Q_NEVER },
    { 0x0127, CPUS(NEHALEM, IVY_BRIDGE), Q_S_NOT_L2 },
    { 0x0e27, CPUS(NEHALEM, IVY_BRIDGE), Q(STORE_L2) },
    { 0x4f28, CPUS(CORE_DUO, CORE_DUO), Q(FETCH_MISSES) },
    { 0x0e29, CPUS(P6, P6), Q(LOAD_L2) },
    { 0x4129, CPUS(CORE_DUO, CORE_DUO), Q_NOT_L2 },
    { 0x4e29, CPUS(CORE_DUO, CORE_DUO), Q(LOAD_L2) },
    { 0x5f29, CPUS(CORE2, BONNELL), Q_NEVER },
    { 0x7129, CPUS(CORE2, BONNELL), Q_NOT_L2 },
    { 0x0429, CPUS(FAM15H, PERFMON_V2), Q_NEVER, true },
    { 0x0e2a, CPUS(P6, P6), Q(STORE_L2) },
    { 0x412a, CPUS(CORE_DUO, CORE_DUO), Q_S_NOT_L2 },
    { 0x4e2a, CPUS(CORE_DUO, BONNELL), Q(STORE_L2) },
    { 0x0e2e, CPUS(P6, P6), Q(FILL_L2) },
    { 0x712e, CPUS(CORE_DUO, BONNELL), Q(FILL_FAR) },
    { 0x7f2e, CPUS(CORE_DUO, BONNELL), Q_FILLS },
    { 0x0035, CPUS(ZEN, PERFMON_V2), Q_NEVER },
    { 0x023c, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q(REF_CYCLES) },
    { 0x083c, CPUS(ICE_LAKE, GOLDEN_COVE), Q(REF_CYCLES) },
    { 0x0140, CPUS(CORE_DUO, CORE_DUO) | CPUS(NEHALEM, NEHALEM), Q_NOT_L1 },
    { 0x0e40, CPUS(CORE_DUO, CORE2) | CPUS(NEHALEM, NEHALEM), Q(LOAD_L1) },
    { 0x0f40, CPUS(CORE_DUO, CORE_DUO), Q_LOADS },
    { 0xa140, CPUS(BONNELL, BONNELL), Q_LOADS },
    { 0xa240, CPUS(BONNELL, BONNELL), Q(STORES) },
    { 0xa340, CPUS(BONNELL, BONNELL), Q_LOADS | Q(STORES) },
    { 0x8340, CPUS(BONNELL, BONNELL), Q_LOADS | Q(STORES) },
    { 0x0840, CPUS(BONNELL, BONNELL), Q_FILLS },
    { 0x0141, CPUS(CORE_DUO, CORE_DUO), Q_S_NOT_L1 },
    { 0x0f41, CPUS(CORE_DUO, CORE_DUO), Q(STORES) },
    { 0x0241, CPUS(ZEN, PERFMON_V2), Q_S_NOT_L1, true },
    { 0x0741, CPUS(ZEN5, ZEN5), Q_NOT_L1 | Q_S_NOT_L1, true },
    { 0x3f41, CPUS(ZEN3, ZEN3) | CPUS(PERFMON_V2, PERFMON_V2),
      Q_NOT_L1 | Q_S_NOT_L1, true },
    { 0x4041, CPUS(ZEN3, ZEN3) | CPUS(PERFMON_V2, PERFMON_V2), Q_NEVER, true },
    { 0x0841, CPUS(ZEN, ZEN5), Q_NEVER, true },
    { 0x0143, CPUS(CORE_DUO, CORE2) | CPUS(NEHALEM, NEHALEM),
      Q_LOADS | Q(STORES) },
    { 0xfd43, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q_NOT_L1 },
    { 0x0443, CPUS(ZEN, PERFMON_V2), Q_NEVER, true },
    { 0x1043, CPUS(ZEN, PERFMON_V2), Q_NEVER, true },
    { 0x4043, CPUS(ZEN, PERFMON_V2), Q_NEVER, true },
    { 0x8043, CPUS(ZEN5, PERFMON_V2), Q_NEVER, true },
    { 0x0144, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q(STORE_L2) },
    { 0x0144, CPUS(ZEN3, PERFMON_V2), Q(LOAD_L2) | Q(STORE_L2), true },
    { 0x0244, CPUS(ZEN3, PERFMON_V2), Q_L3 | Q_S_L3, true },
    { 0x0444, CPUS(ZEN3, PERFMON_V2), Q_NEVER, true },
    { 0x0844, CPUS(ZEN3, PERFMON_V2), Q(LOAD_DRAM) | Q(STORE_DRAM), true },
    { 0x1044, CPUS(ZEN3, PERFMON_V2), Q_NEVER, true },
    { 0x4044, CPUS(ZEN3, PERFMON_V2), Q_NEVER, true },
    { 0x8044, CPUS(ZEN5, PERFMON_V2), Q_NEVER, true },
    { 0xff44, CPUS(ZEN3, PERFMON_V2), Q_NOT_L1 | Q_S_NOT_L1, true },
    { 0x0f45, CPUS(CORE_DUO, CORE_DUO), Q_FILLS },
    { 0x7045, CPUS(FAM15H, FAM15H), Q(TLB_FETCH_L2), true },
    { 0x0346, CPUS(ZEN, ZEN3), Q_D_WALKS, true },
    { 0x0c46, CPUS(ZEN, ZEN3), Q(TLB_FETCH_WALK), true },
    { 0x0047, CPUS(ZEN, ZEN2), Q(SPLIT_LOADS) },
    { 0x0147, CPUS(ZEN3, PERFMON_V2), Q(SPLIT_LOADS), true },
    { 0x0149, CPUS(CORE2, CORE2), Q(SPLIT_LOADS) },
    { 0x0249, CPUS(CORE2, CORE2), Q(SPLIT_STORES) },
    { 0x014c, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q_NEVER },
    { 0x024c, CPUS(SANDY_BRIDGE, BROADWELL), Q_NEVER },
    { 0x2051, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q_NEVER },
    { 0x0059, CPUS(ZEN2, PERFMON_V2), Q_NEVER },
    { 0x005a, CPUS(ZEN2, PERFMON_V2), Q_NEVER },
    { 0x0160, CPUS(ZEN, PERFMON_V2), Q_NEVER, true },
    { 0x0260, CPUS(ZEN, PERFMON_V2), Q_NEVER, true },
    { 0x0460, CPUS(ZEN, PERFMON_V2), Q_NEVER, true },
    { 0x0860, CPUS(ZEN, PERFMON_V2), Q_NEVER, true },
    { 0x2060, CPUS(ZEN, PERFMON_V2), Q_NEVER, true },
    { 0xc060, CPUS(ZEN, PERFMON_V2), Q_FILLS, true },
    { 0xd060, CPUS(ZEN, PERFMON_V2), Q_FILLS, true },
    { 0x0764, CPUS(ZEN, PERFMON_V2), Q(FETCH_MISSES), true },
    { 0x2064, CPUS(ZEN, PERFMON_V2), Q_NEVER, true },
    { 0x8064, CPUS(ZEN, PERFMON_V2), Q_NEVER, true },
    { 0x5064, CPUS(ZEN, PERFMON_V2), Q(FILL_L2), true },
    { 0x0070, CPUS(ZEN, PERFMON_V2), Q_NEVER },
    { 0x0071, CPUS(ZEN, PERFMON_V2), Q_NEVER },
    { 0x0072, CPUS(ZEN, PERFMON_V2), Q_NEVER },
    { 0x0185, CPUS(CRESTMONT, CRESTMONT), Q(TLB_FETCH_WALK) },
    { 0x0885, CPUS(ZEN, PERFMON_V2), Q_NEVER, true },
    { 0x0088, CPUS(CORE_DUO, CORE2), Q_TAKEN | Q(COND_NOT_TAKEN) },
    { 0x0188, CPUS(BONNELL, BONNELL) | CPUS(NEHALEM, WESTMERE), Q_COND },
    { 0x0288, CPUS(BONNELL, BONNELL) | CPUS(NEHALEM, WESTMERE), Q(JMP) },
    { 0x0488, CPUS(BONNELL, BONNELL) | CPUS(NEHALEM, WESTMERE), Q(JMP_IND) },
    { 0x0888, CPUS(BONNELL, BONNELL) | CPUS(NEHALEM, WESTMERE), Q(RET) },
    { 0x1088, CPUS(BONNELL, BONNELL) | CPUS(NEHALEM, WESTMERE), Q(CALL) },
    { 0x2088, CPUS(BONNELL, BONNELL) | CPUS(NEHALEM, WESTMERE), Q(CALL_IND) },
    { 0x4088, CPUS(NEHALEM, WESTMERE), Q_TAKEN },
    { 0x4188, CPUS(BONNELL, BONNELL), Q(COND_TAKEN) },
    { 0x4088, CPUS(SANDY_BRIDGE, BROADWELL), Q_NEVER },
    { 0x4188, CPUS(SANDY_BRIDGE, BROADWELL), Q(COND_NOT_TAKEN) },
    { 0x8188, CPUS(SANDY_BRIDGE, BROADWELL), Q(COND_TAKEN) },
    { 0x8288, CPUS(SANDY_BRIDGE, BROADWELL), Q(JMP) },
    { 0x8488, CPUS(SANDY_BRIDGE, BROADWELL), Q(JMP_IND) },
    { 0x8888, CPUS(SANDY_BRIDGE, BROADWELL), Q(RET) },
    { 0x9088, CPUS(SANDY_BRIDGE, BROADWELL), Q(CALL) },
    { 0xa088, CPUS(SANDY_BRIDGE, BROADWELL), Q(CALL_IND) },
    { 0x0089, CPUS(CORE_DUO, CORE2), Q_M_ALL },
    { 0x0189, CPUS(BONNELL, BONNELL) | CPUS(NEHALEM, WESTMERE), Q_M_COND },
    { 0x0289, CPUS(NEHALEM, WESTMERE), Q_NEVER },
    { 0x0489, CPUS(NEHALEM, WESTMERE), Q(MISP_JMP_IND) },
    { 0x0889, CPUS(NEHALEM, WESTMERE), Q(MISP_RET) },
    { 0x1089, CPUS(NEHALEM, WESTMERE), Q_NEVER },
    { 0x2089, CPUS(NEHALEM, WESTMERE), Q(MISP_CALL_IND) },
    { 0x4089, CPUS(NEHALEM, WESTMERE), Q_M_TAKEN },
    { 0x0289, CPUS(BONNELL, BONNELL), Q(MISP_JMP_IND) },
    { 0x0489, CPUS(BONNELL, BONNELL), Q(MISP_RET) },
    { 0x0889, CPUS(BONNELL, BONNELL), Q(MISP_CALL_IND) },
    { 0x1189, CPUS(BONNELL, BONNELL), Q(MISP_COND_TAKEN) },
    { 0x4089, CPUS(SANDY_BRIDGE, SKYLAKE), Q_NEVER },
    { 0x4189, CPUS(SANDY_BRIDGE, SKYLAKE), Q(MISP_COND_NOT_TAKEN) },
    { 0x8189, CPUS(SANDY_BRIDGE, SKYLAKE), Q(MISP_COND_TAKEN) },
    { 0x8289, CPUS(SANDY_BRIDGE, SKYLAKE), Q_NEVER },
    { 0x8489, CPUS(SANDY_BRIDGE, SKYLAKE), Q(MISP_JMP_IND) },
    { 0x8889, CPUS(SANDY_BRIDGE, SKYLAKE), Q(MISP_RET) },
    { 0x9089, CPUS(SANDY_BRIDGE, SKYLAKE), Q_NEVER },
    { 0xa089, CPUS(SANDY_BRIDGE, SKYLAKE), Q(MISP_CALL_IND) },
    { 0x008b, CPUS(CORE_DUO, CORE2), Q_COND },
    { 0x008c, CPUS(CORE_DUO, CORE2), Q_M_COND },
    { 0x008f, CPUS(CORE_DUO, CORE2), Q(RET) },
    { 0x0090, CPUS(CORE_DUO, CORE2), Q(MISP_RET) },
    { 0x0092, CPUS(CORE_DUO, CORE2), Q_CALLS },
    { 0x0093, CPUS(CORE_DUO, CORE2), Q(MISP_CALL_IND) },
    { 0x0094, CPUS(CORE_DUO, CORE2), Q(CALL_IND) },
    { 0x01a8, CPUS(NEHALEM, GOLDEN_COVE), Q_NEVER },
    { 0x01aa, CPUS(CORE2, CORE2), Q(INSNS) },
    { 0x03aa, CPUS(BONNELL, BONNELL), Q(INSNS) },
    { 0x03aa, CPUS(ZEN, ZEN2) | CPUS(ZEN5, PERFMON_V2), Q(INSNS), true },
    { 0xffaa, CPUS(ZEN2, ZEN2), Q(INSNS), true },
    { 0x04aa, CPUS(ZEN5, PERFMON_V2), Q_NEVER, true },
    { 0x01b0, CPUS(WESTMERE, WESTMERE), Q_NOT_L2 },
    { 0x04b0, CPUS(WESTMERE, WESTMERE), Q_S_NOT_L2 },
    { 0x10b0, CPUS(WESTMERE, WESTMERE), Q_S_NOT_L2 },
    { 0x10b0, CPUS(SKYLAKE, ICE_LAKE), Q(LOAD_DRAM) },
    { 0x01c0, CPUS(CORE2, CORE2), Q_LOADS },
    { 0x02c0, CPUS(CORE2, CORE2), Q(STORES) },
    { 0x10c0, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q_NEVER },
    { 0x00c2, CPUS(CORE_DUO, CORE_DUO) | CPUS(GOLDMONT, CRESTMONT), Q(INSNS) },
    { 0x0fc2, CPUS(CORE2, CORE2), Q(INSNS) },
    { 0x10c2, CPUS(BONNELL, SILVERMONT), Q(INSNS) },
    { 0x04c2, CPUS(NEHALEM, WESTMERE) | CPUS(SKYLAKE, SKYLAKE), Q_NEVER },
    { 0x01c3, CPUS(CORE2, CRESTMONT), Q(CODE_STORES) },
    { 0x02c3, CPUS(SILVERMONT, GOLDEN_COVE), Q_NEVER },
    { 0x04c3, CPUS(NEHALEM, GOLDEN_COVE), Q(CODE_STORES) },
    { 0x0021, CPUS(FAM15H, FAM15H), Q(CODE_STORES), true },
    { 0x02c4, CPUS(CORE2, BONNELL), Q(MISP_COND_NOT_TAKEN) },
    { 0x08c4, CPUS(CORE2, BONNELL), Q_M_TAKEN },
    { 0x7ec4, CPUS(SILVERMONT, CRESTMONT), Q_COND },
    { 0x80c4, CPUS(SILVERMONT, GOLDMONT), Q_ALL & ~Q(COND_NOT_TAKEN) },
    { 0xbfc4, CPUS(SILVERMONT, CRESTMONT), Q(FAR) },
    { 0xebc4, CPUS(SILVERMONT, CRESTMONT), Q_IND },
    { 0xf7c4, CPUS(SILVERMONT, CRESTMONT), Q(RET) },
    { 0xf9c4, CPUS(SILVERMONT, CRESTMONT), Q_CALLS },
    { 0xfbc4, CPUS(SILVERMONT, CRESTMONT), Q(CALL_IND) },
    { 0xfdc4, CPUS(SILVERMONT, CRESTMONT), Q(CALL) },
    { 0xfec4, CPUS(SILVERMONT, CRESTMONT), Q(COND_TAKEN) },
    { 0x7ec5, CPUS(SILVERMONT, CRESTMONT), Q_M_COND },
    { 0x80c5, CPUS(CRESTMONT, CRESTMONT), Q_M_TAKEN },
    { 0xebc5, CPUS(SILVERMONT, CRESTMONT), Q_M_IND },
    { 0xf7c5, CPUS(SILVERMONT, CRESTMONT), Q(MISP_RET) },
    { 0xfbc5, CPUS(SILVERMONT, CRESTMONT), Q(MISP_CALL_IND) },
    { 0xfec5, CPUS(SILVERMONT, CRESTMONT), Q(MISP_COND_TAKEN) },
    { 0xbfc5, CPUS(SILVERMONT, SILVERMONT), Q_NEVER },
    { 0xf9c5, CPUS(SILVERMONT, SILVERMONT), Q(MISP_CALL_IND) },
    { 0xfdc5, CPUS(SILVERMONT, SILVERMONT), Q_NEVER },
    { 0x10c6, CPUS(CRESTMONT, CRESTMONT), Q_C_PAGES },
    { 0x00c8, CPUS(CORE_DUO, CORE_DUO) | CPUS(BONNELL, BONNELL),
      Q(INTERRUPTS) },
    { 0x00c9, CPUS(CORE_DUO, CORE_DUO), Q_ALL & ~Q(COND_NOT_TAKEN) },
    { 0x00c9, CPUS(CORE2, CORE2), Q_C_PAGES },
    { 0x00ca, CPUS(CORE_DUO, CORE_DUO), Q_M_TAKEN },
    { 0x01cb, CPUS(GOLDMONT, TREMONT), Q(INTERRUPTS) },
    { 0x02cb, CPUS(CORE2, CORE2), Q_NOT_L1 },
    { 0x08cb, CPUS(CORE2, CORE2), Q_NOT_L2 },
    { 0x01cb, CPUS(BONNELL, BONNELL), Q(LOAD_L2) },
    { 0x02cb, CPUS(BONNELL, BONNELL), Q_NOT_L2 },
    { 0x40cb, CPUS(NEHALEM, WESTMERE), Q_NEVER },
    { 0x00cc, CPUS(ZEN3, PERFMON_V2), Q_IND },
    { 0x01ce, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q_NEVER },
    { 0x02ce, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q_NEVER },
    { 0x00d0, CPUS(P6, CORE_DUO), Q(INSNS) },
    { 0x40d1, CPUS(GOLDMONT, TREMONT) | CPUS(SANDY_BRIDGE, GOLDEN_COVE),
      Q_NEVER },
    { 0x80d1, CPUS(SKYLAKE, GOLDEN_COVE), Q_NEVER },
    { 0x20d1, CPUS(CRESTMONT, CRESTMONT), Q_NEVER },
    { 0x01d2, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q_NEVER },
    { 0x01d3, CPUS(SANDY_BRIDGE, IVY_BRIDGE), Q(LOAD_DRAM) },
    { 0x02d3, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q_NEVER },
    { 0x04d3, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q_NEVER },
    { 0x08d3, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q_NEVER },
    { 0x10d3, CPUS(SANDY_BRIDGE, GOLDEN_COVE), Q_NEVER },
    { 0x20d3, CPUS(SANDY_BRIDGE, BROADWELL), Q_NEVER },
    { 0x02d4, CPUS(SANDY_BRIDGE, SANDY_BRIDGE), Q(LOAD_DRAM) },
    { 0x04d4, CPUS(SKYLAKE, GOLDEN_COVE), Q(LOAD_OTHER) },
    { 0x1bd6, CPUS(ZEN5, PERFMON_V2), Q_STALLED, true },
    { 0x00e0, CPUS(P6, CORE2), Q_TAKEN | Q(COND_NOT_TAKEN) },
    { 0x01e0, CPUS(BONNELL, BONNELL) | CPUS(NEHALEM, WESTMERE),
      Q_TAKEN | Q(COND_NOT_TAKEN) },
    { 0x03e5, CPUS(GOLDEN_COVE, GOLDEN_COVE), Q_LOADS | Q(STORES) },
    { 0x02ec, CPUS(ICE_LAKE, GOLDEN_COVE), Q(CYCLES) },
    { 0x01f0, CPUS(NEHALEM, IVY_BRIDGE), Q_NOT_L1 },
    { 0x02f0, CPUS(NEHALEM, IVY_BRIDGE), Q_S_NOT_L1 },
    { 0x08f0, CPUS(NEHALEM, BROADWELL), Q_NEVER },
    { 0x20f0, CPUS(NEHALEM, BROADWELL), Q(FILL_FAR) },
};

static void be_cpu(unsigned i)
{
    be(cpus[i].vendor, cpus[i].family, cpus[i].model);
}

static bool is_amd(void)
{
    uint64_t val;

    return pmu_rdmsr(&pmu, &config, PERFEVTSEL(0), &val) == PMU_MSR_GP;
}

static uint32_t evtsel_msr(unsigned n)
{
    return !is_amd() ? PERFEVTSEL(n) : n < 4 ? K7_EVTSEL(n) : EXT_EVTSEL(n);
}

static uint32_t pmc_msr(unsigned n)
{
    return !is_amd() ? PMC(n) : n < 4 ? K7_PERFCTR(n) : EXT_PERFCTR(n);
}

/* Events of floating-point instructions, with unit masks out of @umasks */
static const struct {
    uint8_t event, umasks;
    uint32_t cpus;
} fp_events[] = {
    { 0x10, 0, CPUS(P6, P6) | CPUS(CORE2, CORE2) },
    { 0xc1, 0, CPUS(P6, P6) },
    { 0xca, 0x0f, CPUS(CORE2, CORE2) },
    { 0x10, 0xf5, CPUS(NEHALEM, WESTMERE) },
    { 0x10, 0xf1, CPUS(SANDY_BRIDGE, IVY_BRIDGE) },
    { 0x11, 0x03, CPUS(SANDY_BRIDGE, IVY_BRIDGE) },
    { 0xc7, 0xff, CPUS(BROADWELL, GOLDEN_COVE) },
    { 0xcb, 0x07, CPUS(K7, PERFMON_V2) },
    { 0x02, 0x07, CPUS(ZEN, PERFMON_V2) },
    { 0x03, 0xff, CPUS(FAM15H, HYGON) },
    { 0x03, 0x0f, CPUS(ZEN2, PERFMON_V2) },
};

/*
 * What the event select @sel asks for on CPU @cpu, if its unit mask has a name.
 */
static uint64_t expected_event(unsigned cpu, uint64_t sel)
{
    bool amd = cpus[cpu].vendor == PMU_VENDOR_AMD;
    unsigned umask = sel >> 8 & 0xff;

    for (unsigned i = 0; i < G_N_ELEMENTS(fp_events); i++) {
        if ((fp_events[i].cpus >> cpu & 1) &&
            fp_events[i].event == (sel & 0xff) &&
            (fp_events[i].umasks ? umask & fp_events[i].umasks : !umask)) {
            return Q(FLOATING);
        }
    }

    for (unsigned i = 0; i < G_N_ELEMENTS(events); i++) {
        if ((events[i].cpus >> cpu & 1) &&
            events[i].code ==
            (sel & (amd && !events[i].masked ? 0xff : 0xffff))) {
            return events[i].quantities;
        }
    }
    return 0;
}

/* What people are shown of counter @n, as "os usr int en event". */
static void check_setting(unsigned n, const char *expected)
{
    g_autofree char *text = NULL;
    PmuSetting c;

    g_assert_true(pmu_setting(&pmu, &config, n, &c));
    text = g_strdup_printf("%d%d%d%d %s", c.os, c.usr, c.interrupts, c.enabled,
                           *c.event ? c.event : "?");
    g_assert_cmpstr(text, ==, expected);
}

/*
 * Pentium 4
 */

#define P4_COUNTER(n)   (0x300 + (n))
#define P4_CCCR(n)      (0x360 + (n))
#define P4_ENABLE       (3u << 16 | 1u << 12)   /* with ACTIVE_THREAD */
#define P4_SELECT(n)    ((uint32_t)(n) << 13)
#define P4_EXTENDED     (1u << 11)
#define P4_COMPARE      (1u << 18)
#define P4_COMPLEMENT   (1u << 19)
#define P4_THRESHOLD(n) ((uint32_t)(n) << 20)
#define P4_EDGE         (1u << 24)
#define P4_FORCE_OVF    (1u << 25)
#define P4_OVF_PMI      (1u << 26)
#define P4_CASCADE      (1u << 30)
#define P4_OVF          (1u << 31)
#define P4_USR          (1u << 2)
#define P4_OS           (1u << 3)
#define P4_EVENT(event, mask)   ((uint32_t)(event) << 25 | (mask) << 9)
#define P4_CYCLES       (P4_COMPARE | P4_COMPLEMENT | P4_THRESHOLD(15))
#define PEBS_ENABLE     0x3f1
#define PEBS_VERT       0x3f2

static void be_p4(unsigned model)
{
    be(PMU_VENDOR_INTEL, 15, model);
}

/* Counter @n counts @event of ESCR @escr, which it selects by @select. */
static void p4_count(unsigned n, unsigned select, uint32_t escr,
                     uint32_t event, uint32_t cccr)
{
    wr(escr, event);
    wr(P4_CCCR(n), P4_ENABLE | P4_SELECT(select) | cccr);
}

/* Which instructions counter @n of IQ's counts */
static void p4_insns(unsigned n, uint32_t rows, uint32_t cccr)
{
    p4_count(n, 4, n == 14 || n == 15 || n == 17 ? 0x3b9 : 0x3b8,
             P4_EVENT(2, 1) | rows, cccr);
}

static void test_p4_registers(void)
{
    static const uint32_t absent[] = {
        PMC(0), A_PMC(0), PERFEVTSEL(0), FIXED_CTR_CTRL, GLOBAL_STATUS,
        GLOBAL_CTRL, STATUS_RESET, PERF_CAPS, K7_EVTSEL(0), V2_CTL, 0x3bf,
        0x3c6, 0x3c7, 0x3ce, 0x3df,
    };
    unsigned escrs = 0;

    for (unsigned model = 0; model <= 6; model++) {
        be_p4(model);
        for (unsigned n = 0; n < NETBURST_COUNTERS; n++) {
            uint32_t mask = model < 2 ? 0xcffff000 : 0xcffff800;

            wr(P4_COUNTER(n), -1ull);
            g_assert_cmphex(rd(P4_COUNTER(n)), ==, ONES(40));
            wr(P4_COUNTER(n), 0x123456789abcdef);
            g_assert_cmphex(rd(P4_COUNTER(n)), ==, 0x6789abcdef);
            check_rdpmc(n, 0x6789abcdef);
            check_rdpmc(1u << 31 | n, 0x89abcdef);
            /* OVF is only cleared. */
            wr(P4_CCCR(n), ~0ull);
            g_assert_cmphex(rd(P4_CCCR(n)), ==, mask & ~P4_OVF);
            wr(P4_CCCR(n), 0);
        }
        check_no_rdpmc(18);
        check_no_rdpmc(1u << 31 | 18);
        check_no_rdpmc(0x40000000);
        escrs = 0;
        for (uint32_t msr = 0x3a0; msr <= 0x3e1; msr++) {
            uint64_t val;

            if (pmu_rdmsr(&pmu, &config, msr, &val) == PMU_MSR_OK) {
                escrs++;
                wr(msr, ~0ull);
                g_assert_cmphex(rd(msr), ==, 0x7fffffff);
                wr(msr, 0);
            } else {
                gp(msr);
            }
        }
        g_assert_cmpint(escrs, ==, model <= 2 ? 45 : 43);
        for (uint32_t msr = 0x3f0; msr <= 0x3f2; msr++) {
            wr(msr, 0x123456789);
            g_assert_cmphex(rd(msr), ==, 0x23456789);
        }
        for (unsigned i = 0; i < G_N_ELEMENTS(absent); i++) {
            gp(absent[i]);
        }
        other(0x2ff);
        other(0x312);
        other(0x35f);
        other(0x372);
        other(0x39f);
        other(0x3e2);
        other(0xe8);
        other(CESR);
        pmu_reset(&pmu, &config);
        g_assert_cmphex(rd(P4_COUNTER(17)), ==, 0);
        g_assert_cmphex(rd(PEBS_VERT), ==, 0);
    }
    be_intel(6);
    other(P4_COUNTER(0));
    other(P4_CCCR(0));
    other(0x3a0);
    g_assert_false(pmu_asks(&config));
}

/* Each counter's CCCR reaches these ESCRs, and no other one. */
static void test_p4_map(void)
{
    static const uint16_t map[NETBURST_COUNTERS / 2][8] = {
        { 0x3b2, 0x3b4, 0x3aa, 0x3b6, 0x3ac, 0x3c8, 0x3a2, 0x3a0 },
        { 0x3b3, 0x3b5, 0x3ab, 0x3b7, 0x3ad, 0x3c9, 0x3a3, 0x3a1 },
        { 0x3c0, 0x3c4, 0x3c2 },
        { 0x3c1, 0x3c5, 0x3c3 },
        { 0x3a6, 0x3a4, 0x3ae, 0x3b0, 0, 0x3a8 },
        { 0x3a7, 0x3a5, 0x3af, 0x3b1, 0, 0x3a9 },
        { 0x3ba, 0x3ca, 0x3bc, 0x3be, 0x3b8, 0x3cc, 0x3e0 },
        { 0x3bb, 0x3cb, 0x3bd, 0, 0x3b9, 0x3cd, 0x3e1 },
    };

    be_p4(2);
    for (unsigned n = 0; n < NETBURST_COUNTERS; n++) {
        for (unsigned select = 0; select < 8; select++) {
            uint16_t escr = map[n < 16 ? n / 2 : n - 10][select];

            for (uint32_t msr = 0x3a0; msr <= 0x3e1; msr++) {
                PmuSetting setting;
                uint64_t val;

                if (pmu_rdmsr(&pmu, &config, msr, &val) != PMU_MSR_OK) {
                    continue;
                }
                p4_count(n, select, msr, P4_OS, 0);
                g_assert_true(pmu_setting(&pmu, &config, n, &setting));
                g_assert_cmpint(setting.os, ==, msr == escr);
                wr(msr, 0);
            }
        }
        wr(P4_CCCR(n), 0);
    }
}

static void test_p4_rows(void)
{
    be_p4(6);
    p4_insns(12, P4_USR, 0);
    run(RETIRE_OS, 3);
    run(RETIRE_USR, 5);
    check_rdpmc(12, 5);
    p4_insns(12, P4_OS, 0);
    run(RETIRE_OS, 3);
    run(RETIRE_USR, 5);
    check_rdpmc(12, 8);
    p4_insns(12, 3, 0);                 /* thread 1's */
    run(RETIRE_USR, 5);
    check_rdpmc(12, 8);
    p4_insns(12, P4_OS | P4_USR, 0);
    wr(P4_CCCR(12), P4_SELECT(4) | 3u << 16);
    run(RETIRE_USR, 5);
    wr(P4_CCCR(12), P4_SELECT(4) | 1u << 12);
    run(RETIRE_USR, 5);
    check_rdpmc(12, 8);
    check_setting(12, "0000 INSTR_RETIRED.NBOGUSNTAG");
    wr(P4_CCCR(12), P4_SELECT(4) | P4_ENABLE | P4_OVF_PMI);
    check_setting(12, "1111 INSTR_RETIRED.NBOGUSNTAG");
}

static void test_p4_overflow(void)
{
    be_p4(6);
    p4_insns(12, P4_USR, P4_OVF_PMI);
    p4_insns(13, P4_USR, 0);
    wr(P4_COUNTER(12), -10ull);
    wr(P4_COUNTER(13), -5ull);
    g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_USR), ==, 9);
    g_assert_false(run(RETIRE_USR, 9));
    g_assert_true(rd(P4_CCCR(13)) & P4_OVF);
    g_assert_false(pmu_asks(&config));
    g_assert_true(run(RETIRE_USR, 1));
    g_assert_true(pmu_asks(&config));
    g_assert_cmphex(rd(P4_COUNTER(12)), ==, 0);
    /* It asks until the flag is cleared, and so does what goes on counting. */
    wr(P4_CCCR(13), 0);
    g_assert_false(run(RETIRE_USR, 7));
    g_assert_true(pmu_asks(&config));
    wr(P4_CCCR(12), rd(P4_CCCR(12)));
    g_assert_true(pmu_asks(&config));
    wr(P4_CCCR(12), rd(P4_CCCR(12)) & ~P4_OVF);
    g_assert_false(pmu_asks(&config));
    check_rdpmc(12, 7);

    /* Each count is an overflow. */
    wr(P4_COUNTER(12), -1ull);
    p4_insns(12, P4_USR, P4_OVF_PMI | P4_FORCE_OVF);
    g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_USR), ==, 0);
    for (int i = 0; i < 3; i++) {
        g_assert_true(run(RETIRE_USR, 1));
        g_assert_true(rd(P4_CCCR(12)) & P4_OVF);
        wr(P4_CCCR(12), rd(P4_CCCR(12)) & ~P4_OVF);
        check_rdpmc(12, i);
    }
    g_assert_false(run(RETIRE_OS, 1));
    g_assert_false(pmu_asks(&config));
}

static void check_cascade(unsigned from, unsigned to, uint32_t flag, bool does)
{
    wr(P4_CCCR(from), 0);
    wr(P4_CCCR(to), 0);
    wr(P4_COUNTER(to), 0);
    p4_insns(from, P4_USR, 0);
    p4_insns(to, P4_USR, flag);
    wr(P4_CCCR(to), rd(P4_CCCR(to)) & ~(1u << 12));
    wr(P4_COUNTER(from), -10ull);
    g_assert_false(run(RETIRE_USR, 9));
    check_rdpmc(to, 0);
    g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_USR), ==,
                    does ? 0 : UINT32_MAX);
    g_assert_false(run(RETIRE_USR, 1));
    g_assert_false(run(RETIRE_USR, 4));
    check_rdpmc(from, 4);
    check_rdpmc(to, does ? 4 : 0);
    g_assert_cmphex(rd(P4_CCCR(to)) >> 12 & 1, ==, does);
    wr(P4_CCCR(from), 0);
    wr(P4_CCCR(to), 0);
}

static void test_p4_cascade(void)
{
    static const struct {
        unsigned from, to;
    } extended[] = { { 16, 12 }, { 17, 15 }, { 17, 16 }, { 16, 17 } };

    for (unsigned model = 1; model <= 2; model++) {
        be_p4(model);
        check_cascade(12, 14, P4_CASCADE, true);
        check_cascade(14, 12, P4_CASCADE, true);
        check_cascade(13, 15, P4_CASCADE, true);
        check_cascade(12, 15, P4_CASCADE, false);
        check_cascade(12, 13, P4_CASCADE, false);
        check_cascade(16, 17, P4_CASCADE, false);
        for (unsigned i = 0; i < G_N_ELEMENTS(extended); i++) {
            check_cascade(extended[i].from, extended[i].to, P4_EXTENDED,
                          model >= 2);
        }
        check_cascade(16, 15, P4_EXTENDED, false);
        check_cascade(14, 13, P4_EXTENDED, false);
    }
}

/* Clocks by how many events are in them: one, and two that have none */
static void test_p4_compare(void)
{
    static const struct {
        uint32_t cccr;
        unsigned insns, cycles;
    } tests[] = {
        { 0, 10, 30 },
        { P4_EDGE, 10, 30 },            /* of a comparison that there is not */
        { P4_COMPLEMENT, 10, 30 },
        { P4_COMPARE, 10, 30 },
        { P4_COMPARE | P4_EDGE, 10, 0 },
        { P4_COMPARE | P4_THRESHOLD(1), 0, 0 },
        { P4_COMPARE | P4_COMPLEMENT, 20, 0 },
        { P4_COMPARE | P4_COMPLEMENT | P4_EDGE, 10, 0 },
        { P4_COMPARE | P4_COMPLEMENT | P4_THRESHOLD(1), 30, 30 },
        { P4_CYCLES, 30, 30 },
        { P4_CYCLES | P4_EDGE, 0, 0 },
    };

    be_p4(6);
    config.insn_clocks = 3;
    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        wr(P4_COUNTER(12), 0);
        wr(P4_COUNTER(0), 0);
        p4_insns(12, P4_OS, tests[i].cccr);
        p4_count(0, 6, 0x3a2, P4_EVENT(0x13, 1) | P4_OS, tests[i].cccr);
        run(RETIRE_OS, 10);
        check_rdpmc(12, tests[i].insns);
        check_rdpmc(0, tests[i].cycles);
    }
    /* What Linux has for cycles beside its watchdog, and for bus cycles */
    wr(P4_COUNTER(12), 0);
    wr(P4_COUNTER(0), 0);
    config.refclk_ratio = 500;
    p4_count(12, 0, 0x3cc, P4_EVENT(0x0c, 0xff) | P4_USR, P4_CYCLES);
    p4_count(0, 6, 0x3a2, P4_EVENT(0x17, 3) | P4_OS, P4_COMPARE | P4_EDGE);
    run(RETIRE_OS, 10);
    check_rdpmc(12, 30);
    check_rdpmc(0, 15);
    run(RETIRE_USR, 10);
    check_rdpmc(12, 60);
    wr(P4_CCCR(12), P4_ENABLE | P4_SELECT(5));
    run(RETIRE_OS, 10);
    check_rdpmc(12, 60);
}

static void test_p4_events(void)
{
    enum { CRU0, CRU2, TBPU, FSB, BSU, PMH, ITLB };
    static const struct {
        unsigned counter, select, escr;
    } places[] = {
        [CRU0] = { 12, 4, 0x3b8 }, [CRU2] = { 12, 5, 0x3cc },
        [TBPU] = { 4, 2, 0x3c2 }, [FSB] = { 0, 6, 0x3a2 },
        [BSU] = { 0, 7, 0x3a0 }, [PMH] = { 0, 4, 0x3ac },
        [ITLB] = { 0, 3, 0x3b6 },
    };
    static const struct {
        unsigned place, event, mask;
        uint64_t add, sub;
        uint32_t enable, vert;
    } tests[] = {
        { FSB, 0x13, 1, Q(CYCLES) },
        { CRU0, 0x02, 1, Q(INSNS) },
        { CRU0, 0x02, 5, Q(INSNS) },
        { CRU0, 0x02, 14, 0 },
        { CRU0, 0x01, 3, Q(INSNS) },
        { CRU0, 0x07, 3, Q(INSNS) },
        { CRU0, 0x03, 1, Q_M_ALL },
        { CRU2, 0x06, 1, Q(COND_NOT_TAKEN), Q(MISP_COND_NOT_TAKEN) },
        { CRU2, 0x06, 2, Q(MISP_COND_NOT_TAKEN) },
        { CRU2, 0x06, 3, Q(COND_NOT_TAKEN) },
        { CRU2, 0x06, 4, Q_TAKEN | Q(FAR), Q_M_TAKEN },
        { CRU2, 0x06, 8, Q_M_TAKEN },
        { CRU2, 0x06, 15, Q_ALL },
        { CRU2, 0x0c, 0xff, 0 },
        { TBPU, 0x04, 0x02, Q_COND },
        { TBPU, 0x04, 0x04, Q_CALLS },
        { TBPU, 0x04, 0x08, Q(RET) },
        { TBPU, 0x04, 0x10, Q_IND | Q(RET) },
        { TBPU, 0x04, 0x1e, Q_COND | Q_CALLS | Q(RET) | Q_IND },
        { TBPU, 0x05, 0x02, Q_M_COND },
        { TBPU, 0x05, 0x1e, Q_M_ALL },
        { BSU, 0x0c, 0x01, Q(LOAD_L2) },
        { BSU, 0x0c, 0x3f, Q(LOAD_L2) | Q_L3 },
        { BSU, 0x0c, 0x700, Q_NOT_L2 },
        { BSU, 0x0c, 0x200, Q(LOAD_DRAM) },
        { PMH, 0x01, 1, Q_LD_PAGES | Q_ST_PAGES },
        { PMH, 0x01, 2, Q_C_PAGES },
        { ITLB, 0x18, 2, Q_C_PAGES },
        { CRU2, 0x09, 1, 0, 0, 0, 0 },
        { CRU2, 0x09, 2, 0, 0, 1u << 24 | 1, 1 },
        { CRU2, 0x09, 1, 0, 0, 1, 1 },
        { CRU2, 0x09, 1, Q_NOT_L1, 0, 1u << 24 | 1, 1 },
        { CRU2, 0x09, 1, Q_NOT_L2, 0, 1u << 24 | 2, 1 },
        { CRU2, 0x09, 1, Q_LD_PAGES, 0, 1u << 24 | 4, 1 },
        { CRU2, 0x09, 1, Q_ST_PAGES, 0, 1u << 24 | 4, 2 },
        { CRU2, 0x09, 1, Q_LD_PAGES | Q_ST_PAGES, 0, 1u << 24 | 4, 3 },
        { CRU2, 0x09, 1, Q(SPLIT_LOADS), 0, 1u << 24 | 0x400, 1 },
        { CRU2, 0x09, 1, Q(SPLIT_STORES), 0, 1u << 24 | 0x400, 2 },
    };
    uint32_t event;

    be_p4(6);
    config.insn_clocks = 3;
    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        unsigned place = tests[i].place, n = places[place].counter;
        uint64_t expected = 0;

        wr(PEBS_ENABLE, tests[i].enable);
        wr(PEBS_VERT, tests[i].vert);
        wr(P4_COUNTER(n), 0);
        p4_count(n, places[place].select, places[place].escr,
                 P4_EVENT(tests[i].event, tests[i].mask) | P4_USR, 0);
        g_assert_false(pmu_take_unknown(&pmu, &event));
        for (unsigned q = 0; q < PMU_NR_COUNTED; q++) {
            bool misp = q >= PMU_MISP_COND_TAKEN && q < PMU_INTERRUPTS;
            unsigned times = misp ? 1 + q : 100 + q * q;

            pmu_count(&pmu, RETIRE_USR, q, times);
            expected += tests[i].add >> q & 1 ? times : 0;
            expected -= tests[i].sub >> q & 1 ? times : 0;
        }
        expected += tests[i].add & Q(CYCLES) ? 300 : 0;
        check_rdpmc(n, expected);
        wr(P4_CCCR(n), 0);
    }
    /* Tags of loads and stores */
    wr(0x3bc, P4_EVENT(2, 2));
    p4_count(12, 5, 0x3cc, P4_EVENT(8, 1) | P4_USR, 0);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_USR), ==, Q_LOADS | Q(INSNS));
    wr(0x3bd, P4_EVENT(2, 4));
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_USR), ==,
                    Q_LOADS | Q(STORES) | Q(INSNS));
    wr(P4_CCCR(12), 0);

    p4_count(12, 4, 0x3b8, P4_EVENT(0x3f, 3) | P4_USR, 0);
    g_assert_true(pmu_take_unknown(&pmu, &event));
    g_assert_cmphex(event, ==, 0x3003f);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_USR), ==, 0);
}

static void test_p4_load(void)
{
    NetburstState good;

    be_p4(6);
    p4_insns(12, P4_USR, P4_OVF_PMI);
    wr(P4_COUNTER(12), -5ull);
    run(RETIRE_USR, 2);
    pmu_settle(&pmu, &config);
    good = netburst;
    memset(&netburst.counter, 0xff, sizeof(netburst.counter));
    g_assert_true(pmu_load_state(&pmu, &config));
    g_assert_false(run(RETIRE_USR, 2));
    g_assert_true(run(RETIRE_USR, 1));
#define REFUSED(field, val) do {                            \
        netburst = good;                                    \
        netburst.field = (val);                             \
        g_assert_false(pmu_load_state(&pmu, &config));      \
    } while (0)
    REFUSED(value[3], 1ull << 40);
    REFUSED(cccr[3], 1);
    REFUSED(escr[0], 1u << 31);
    REFUSED(escr[0x1a], 1);             /* IQ_ESCR0 */
    REFUSED(escr[0x1f], 1);             /* There is none. */
#undef REFUSED
    netburst = good;
    pmu.evtsel[0] = 1;
    g_assert_false(pmu_load_state(&pmu, &config));
    pmu.evtsel[0] = 0;
    pmu.value[0] = 1;
    g_assert_false(pmu_load_state(&pmu, &config));
    be_p4(2);
    netburst.escr[0x1a] = 1;
    g_assert_true(pmu_load_state(&pmu, &config));
}

/* Events of those without unit masks, and the counters that have them */
enum { P5 = 1, MX = 2, C6 = 4, WINCHIP2 = 8, C3 = 16 };
static const struct {
    uint16_t code;
    uint8_t has, counters;
    uint64_t quantities;
} old_events[] = {
    { 0x00, P5 | MX | WINCHIP2, 3, Q_LOADS },
    { 0x01, P5 | MX | WINCHIP2, 3, Q(STORES) },
    { 0x02, P5 | MX | WINCHIP2, 3, Q_LD_PAGES | Q_ST_PAGES },
    { 0x03, P5 | MX | WINCHIP2, 3, Q_NOT_L1 },
    { 0x04, P5 | MX | WINCHIP2, 3, Q_S_NOT_L1 },
    { 0x0b, P5 | MX, 3, Q(SPLIT_LOADS) | Q(SPLIT_STORES) },
    { 0x0c, P5 | MX, 3, Q(FETCHES) },
    { 0x0d, P5 | MX | WINCHIP2, 3, Q_C_PAGES },
    { 0x0e, P5 | MX | WINCHIP2, 3, Q(FETCH_MISSES) },
    { 0x12, P5 | MX, 3, Q_ALL },
    { 0x14, P5 | MX, 3, Q_TAKEN | Q(FAR) },
    { 0x15, P5 | MX, 3, Q_M_ALL },
    { 0x16, P5 | MX | WINCHIP2, 3, Q(INSNS) },
    { 0x17, P5 | MX, 3, Q_NEVER },
    { 0x1c, P5 | MX, 3, Q(LOCKED) },
    { 0x22, P5 | MX, 3, Q(FLOATING) },
    { 0x27, P5 | MX, 3, Q(INTERRUPTS) },
    { 0x28, P5 | MX | WINCHIP2, 3, Q_LOADS | Q(STORES) },
    { 0x29, P5 | MX, 3, Q_NOT_L1 | Q_S_NOT_L1 },
    { 0x30, P5, 1, Q(CYCLES) },
    { 0x32, P5 | MX, 2, Q_TAKEN | Q(FAR) },
    { 0x35, P5, 1, Q_M_ALL },
    { 0x37, P5 | MX, 1, Q(MISP_RET) },
    { 0x37, P5 | MX, 2, Q(RET) },
    { 0x39, P5 | MX, 1, Q(RET) },
    { 0x400, MX, 3, Q_D_WALKS | Q(TLB_FETCH_WALK) },
    { 0x401, MX, 3, Q_LD_PAGES | Q_ST_PAGES },
    { 0x402, MX, 3, Q_C_PAGES },
    { 0x403, MX, 3, Q_LD_PAGES | Q_ST_PAGES | Q_C_PAGES },
    { 0x408, MX, 3, Q(INSNS) },
    { 0x00, C6, 3, Q(CYCLES) },
    { 0x02, C6, 3, Q(INSNS) },
    { 0x47, C6, 3, Q_NOT_L1 },
    { 0x4a, C6, 3, Q_S_NOT_L1 },
    { 0x3f, WINCHIP2, 3, Q(CYCLES) },
    { 0x79, C3, 2, Q(CYCLES) },
    { 0xc0, C3, 2, Q(INSNS) },
    { 0x1c0, C3, 2, Q(INSNS) },
};

/* Each quantity a different number of times, and the sum of all of them */
static void check_old_event(unsigned cpu, unsigned counter, unsigned code)
{
    uint64_t quantities = 0, expected = 0, low;
    uint32_t event;

    for (unsigned i = 0; i < G_N_ELEMENTS(old_events); i++) {
        if (old_events[i].code == code && (old_events[i].has & cpu) &&
            (old_events[i].counters >> counter & 1)) {
            quantities = old_events[i].quantities;
        }
    }
    g_assert_cmpint(pmu_take_unknown(&pmu, &event), ==, !quantities);
    if (!quantities) {
        g_assert_cmphex(event, ==, code);
    }
    quantities &= ~Q_NEVER;
    low = quantities & ONES(PMU_NR_COUNTED);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_USR), ==,
                    quantities ? low | Q(INSNS) : 0);
    g_assert_true(pmu_rdpmc(&pmu, &config, counter, &low));
    for (unsigned q = 0; q < PMU_NR_COUNTED; q++) {
        pmu_count(&pmu, RETIRE_USR, q, 100 + q * q);
        expected += quantities >> q & 1 ? 100 + q * q : 0;
    }
    expected += quantities & Q(CYCLES) ? 3 * 100 : 0;
    check_rdpmc(counter, low + expected);
}

static void test_old_events(void)
{
    static const struct {
        unsigned has, family, model, codes;
        PmuVendor vendor;
    } old[] = {
        { P5, 5, 4, 0x40, PMU_VENDOR_INTEL },
        { MX, 6, 0, 0x80, PMU_VENDOR_CYRIX },
        { C6, 5, 4, 0x100, PMU_VENDOR_CENTAUR },
        { WINCHIP2, 5, 8, 0x100, PMU_VENDOR_CENTAUR },
        { C3, 6, 9, 0x200, PMU_VENDOR_CENTAUR },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(old); i++) {
        bool c3 = old[i].has == C3, winchip = old[i].has & (C6 | WINCHIP2);

        for (unsigned n = 0; n < old[i].codes; n++) {
            unsigned code = old[i].has == MX ? (n & 0x3f) | (n & 0x40) << 4 : n;

            for (unsigned counter = c3; counter < 2; counter++) {
                be(old[i].vendor, old[i].family, old[i].model);
                config.insn_clocks = 3;
                /* WinChip's other counter never stops. */
                wr(c3 ? PERFEVTSEL(1) : CESR, c3 ? code : winchip ?
                   code << 16 | code : (CPL_3 | code) << 16 * counter);
                check_old_event(old[i].has, counter, code);
            }
        }
    }
}

/* Which quantities counter 0 counts, found out with one of each */
static uint64_t counted(void)
{
    uint64_t quantities = 0;

    for (unsigned q = 0; q < PMU_NR_COUNTED; q++) {
        wr(pmc_msr(0), 0);
        pmu_count(&pmu, RETIRE_USR, q, 1);
        pmu_count(&pmu, RETIRE_OS, q, 7);
        quantities |= (uint64_t)!!rd(pmc_msr(0)) << q;
    }
    return quantities;
}

/* What pmu_wanted() and the like say is what is counted. */
static void check_wanted(uint64_t quantities)
{
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_OS), ==, 0);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_USR), ==,
                    quantities ? (quantities & ONES(PMU_NR_COUNTED)) |
                                 Q(INSNS) : 0);
    g_assert_cmpint(wants(RETIRE_USR, RETIRE_WANT_CLASSES), ==,
                    (quantities & (Q_NEAR | Q_M_ALL)) != 0);
    g_assert_cmpint(wants(RETIRE_USR, RETIRE_WANT_TLB), ==,
                    (quantities & Q_TLB) != 0);
    g_assert_cmpint(wants(RETIRE_USR, RETIRE_WANT_FETCHES), ==,
                    (quantities & (Q_FETCHED | Q(CODE_STORES))) != 0);
    g_assert_cmpint(wants(RETIRE_USR, RETIRE_WANT_CODE), ==,
                    (quantities & Q(CODE_STORES)) != 0);
    g_assert_cmpint(wants(RETIRE_USR, RETIRE_WANT_SOURCES), ==,
                    (quantities & Q_MEMORY & ~Q_FETCHED &
                     ~(Q_LOADS | Q(STORES) | Q(LOCKED))) ||
                    ((quantities & Q_LOADS) &&
                     (quantities & Q_LOADS) != Q_LOADS));
}

/* Every event that has a name, on every processor */
static void test_events(void)
{
    for (unsigned cpu = 0; cpu < NR_CPUS; cpu++) {
        for (uint64_t sel = 0; sel < 0x10000; sel++) {
            uint64_t quantities = expected_event(cpu, sel), expected = 0;
            uint32_t event;

            if (!quantities) {
                continue;
            }
            be_cpu(cpu);
            config.insn_clocks = 3;
            config.refclk_ratio = 500;
            wr(evtsel_msr(0), sel | USR | EN);
            wr(pmc_msr(0), 0);
            /* There are more of them than a counter has bits. */
            for (unsigned first = 0; first < PMU_NR_COUNTED; first += HALF) {
                wr(pmc_msr(0), 0);
                expected = 0;
                for (unsigned q = first;
                     q < MIN(first + HALF, PMU_NR_COUNTED); q++) {
                    uint64_t n = 1ull << (q == PMU_INSNS ? HALF : q - first);

                    pmu_count(&pmu, RETIRE_USR, q, n);
                    pmu_count(&pmu, RETIRE_OS, q, 7);
                    expected += (quantities & ~Q_NEVER) >> q & 1 ? n : 0;
                }
                if (!first) {
                    expected += quantities & Q(CYCLES) ? 3ull << HALF : 0;
                    expected += quantities & Q(REF_CYCLES) ?
                                (3ull << HALF) / 2 : 0;
                    expected += quantities & Q_STALLED ? 2ull << HALF : 0;
                }
                g_assert_cmpint(rd(pmc_msr(0)), ==, expected);
            }
            check_wanted(quantities & ~Q_NEVER);
            if (pmu_take_unknown(&pmu, &event)) {
                /* The manuals' sums have bits that are not here. */
                g_assert_cmphex(quantities, !=, Q_NEVER);
                g_assert_cmphex(event >> 16, !=, 0);
                g_assert_cmphex(event >> 16 & ~(sel >> 8), ==, 0);
                g_assert_cmphex(event >> 16, !=, sel >> 8);
            }
        }
    }
}

/* Loads, and stores, of which two kinds may be the same ones */
static bool may_be_same(uint64_t a, uint64_t b)
{
    static const uint64_t kinds[2][4] = {
        { Q_LOADS, Q(LOCKED), Q(SPLIT_LOADS), Q(STLB_MISS_LOADS) },
        { 0, 0, Q(SPLIT_STORES), Q(STLB_MISS_STORES) },
    };

    for (unsigned i = 0; i < 2; i++) {
        for (unsigned j = 0; j < 16; j++) {
            if (j / 4 != j % 4 && (a & kinds[i][j / 4]) &&
                (b & kinds[i][j % 4])) {
                return true;
            }
        }
    }
    return false;
}

/* Those of a set that has all of some, and some of these again */
static uint64_t each_once(uint64_t quantities)
{
    if ((quantities & Q_LOADS) == Q_LOADS) {
        quantities &= ~(Q(LOCKED) | Q(SPLIT_LOADS) | Q(STLB_MISS_LOADS));
    }
    if (quantities & Q(STORES)) {
        quantities &= ~(Q(SPLIT_STORES) | Q(STLB_MISS_STORES));
    }
    return quantities;
}

/* Events whose unit masks are codes, of which each is for itself */
static bool has_codes(unsigned cpu, unsigned event)
{
    static const struct {
        uint32_t cpus;
        uint8_t event;
    } codes[] = {
        { CPUS(CORE_DUO, ZHAOXIN), 0x3c }, { CPUS(CORE_DUO, ZHAOXIN), 0x2e },
        { CPUS(CORE_DUO, BONNELL), 0x24 }, { CPUS(CORE2, BONNELL), 0x29 },
        { CPUS(BONNELL, BONNELL), 0x40 }, { CPUS(SILVERMONT, CRESTMONT), 0xc4 },
        { CPUS(SILVERMONT, CRESTMONT), 0xc5 }, { CPUS(K7, FAM15H), 0x7d },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(codes); i++) {
        if ((codes[i].cpus >> cpu & 1) && codes[i].event == event) {
            return true;
        }
    }
    return cpu == ZHAOXIN;
}

/* What bits @a and @b count, of which each alone counts what is in @one. */
static uint64_t check_pair(unsigned cpu, unsigned event, unsigned a,
                           unsigned b, const uint64_t one[8])
{
    uint64_t sel = (1u << a | 1u << b) << 8 | event, found;
    uint64_t expected = expected_event(cpu, sel);

    if (!expected && has_codes(cpu, event)) {
        return 0;
    }
    if (!expected || expected == Q(FLOATING)) {
        expected = each_once(one[a] | one[b]);
        if (expected == (one[a] | one[b]) && may_be_same(one[a], one[b])) {
            expected = 0;
        }
    } else if (expected & (Q(CYCLES) | Q(REF_CYCLES) | Q_STALLED)) {
        expected = Q(INSNS);            /* their clocks */
    }
    expected &= ~Q_NEVER;
    wr(evtsel_msr(0), sel | USR | EN);
    found = counted();
    if (found != expected) {
        g_test_message("CPU %u, select %04x", cpu, (unsigned)sel);
    }
    g_assert_cmphex(found, ==, expected);
    return found;
}

/*
 * Two bits of a unit mask count what each of them does, once; but for those
 * that have a name together.  Of hits, that they are no misses is in
 * test_hits().
 */
static void test_bits(void)
{
    unsigned pairs = 0, unions = 0;

    for (unsigned cpu = 0; cpu < NR_CPUS; cpu++) {
        for (unsigned event = 0; event < 0x100; event++) {
            uint64_t one[8];

            be_cpu(cpu);
            config.insn_clocks = 3;
            for (unsigned bit = 0; bit < 8; bit++) {
                wr(evtsel_msr(0), 1u << (8 + bit) | event | USR | EN);
                one[bit] = counted();
            }
            wr(evtsel_msr(0), 0xff00 | event | USR | EN);   /* many rows */
            for (unsigned a = 0; a < 8; a++) {
                for (unsigned b = 0; b < a; b++) {
                    uint64_t found = check_pair(cpu, event, a, b, one);

                    pairs += found != 0;
                    unions += found && found != one[a] && found != one[b];
                }
            }
        }
    }
    g_assert_cmpint(pairs, >, 5000);
    g_assert_cmpint(unions, >, 500);
}

/* Hits are what does not miss, and with the misses, all. */
static void test_hits(void)
{
    static const struct {
        uint32_t cpus;
        uint16_t event;
        uint8_t hits, misses;
        uint64_t hit, missed;
    } tests[] = {
        { CPUS(BONNELL, BROADWELL), 0x80, 1, 2, Q(FETCHES), Q(FETCH_MISSES) },
        { CPUS(SKYLAKE, ICE_LAKE), 0x83, 1, 2, Q(FETCHES), Q(FETCH_MISSES) },
        { CPUS(ZEN2, PERFMON_V2), 0x18e, 0x07, 0x18, Q(FETCHES),
          Q(FETCH_MISSES) },
        { CPUS(ZEN2, PERFMON_V2), 0x94, 0x07, 0, Q(FETCHES),
          Q(TLB_FETCH_L2) | Q(TLB_FETCH_WALK) },
        { CPUS(ZEN2, PERFMON_V2), 0x94, 0xff, 0, Q(FETCHES),
          Q(TLB_FETCH_L2) | Q(TLB_FETCH_WALK) },
        { CPUS(CORE2, BONNELL), 0xc4, 1, 2, Q(COND_NOT_TAKEN),
          Q(MISP_COND_NOT_TAKEN) },
        { CPUS(CORE2, BONNELL), 0xc4, 4, 8, Q_TAKEN | Q(FAR), Q_M_TAKEN },
        { CPUS(CORE2, BONNELL), 0xc4, 5, 10, Q_ALL, Q_M_ALL },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        for (unsigned cpu = 0; cpu < NR_CPUS; cpu++) {
            uint64_t sel = (tests[i].event & 0xff) | USR | EN |
                           (uint64_t)(tests[i].event >> 8) << 32;
            unsigned hits = 0, misses = 0;

            if (!(tests[i].cpus >> cpu & 1)) {
                continue;
            }
            be_cpu(cpu);
            for (unsigned umask = 1; umask < (tests[i].misses ? 4 : 2);
                 umask++) {
                wr(evtsel_msr(umask & 1), sel |
                   (umask & 1 ? tests[i].hits : 0) << 8 |
                   (umask & 2 ? tests[i].misses : 0) << 8);
                wr(pmc_msr(umask & 1), 0);
                hits = misses = 0;
                for (unsigned q = 0; q < PMU_NR_COUNTED; q++) {
                    unsigned n = tests[i].missed >> q & 1 ? 1 + q % 3 : 100;

                    pmu_count(&pmu, RETIRE_USR, q, n);
                    hits += tests[i].hit >> q & 1 ? n : 0;
                    misses += tests[i].missed >> q & 1 ? n : 0;
                }
                g_assert_cmpint(rd(pmc_msr(umask & 1)), ==,
                                umask == 1 ? hits - misses :
                                umask == 2 ? misses : hits);
            }
            /* Nobody tells in which clocks they are. */
            wr(evtsel_msr(1), 0);
            wr(evtsel_msr(0), sel | tests[i].hits << 8 | CMASK(1) | INV);
            g_assert_cmphex(pmu_wanted(&pmu, RETIRE_USR), ==, 0);
        }
    }
}

/* AMD's events of more than eight bits, with any unit mask or with one */
static void test_high_events(void)
{
    static const struct {
        uint16_t event, umask;
        uint32_t cpus;
        uint64_t quantities;
    } tests[] = {
        { 0x120, 0x01, CPUS(ZEN5, PERFMON_V2), Q(INSNS) },  /* its clocks */
        { 0x1c7, 0x100, CPUS(ZEN3, PERFMON_V2), Q_M_COND },
        { 0x1c8, 0x100, CPUS(ZEN5, PERFMON_V2), Q_M_ALL & ~Q_M_COND },
        { 0x1c9, 0x100, CPUS(ZEN5, PERFMON_V2), Q_ALL & ~Q_COND },
        { 0x1d0, 0x100, CPUS(ZEN, PERFMON_V2), 0 },
        { 0x18e, 0x18, CPUS(ZEN2, PERFMON_V2), Q(FETCH_MISSES) },
        { 0x18e, 0x1f, CPUS(ZEN2, PERFMON_V2), Q(FETCHES) },
    };

    for (unsigned cpu = K7; cpu < NR_CPUS; cpu++) {
        for (unsigned code = 0; code < 0x40000; code += 1) {
            unsigned event = 0x100 + (code >> 8), umask = code & 0xff;
            uint64_t expected = 0;
            bool known = false;
            uint32_t unknown;

            for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
                known |= (tests[i].cpus >> cpu & 1) && tests[i].event == event;
            }
            if (!known && umask) {
                continue;
            }
            be_cpu(cpu);
            wr(evtsel_msr(0), (event & 0xff) | umask << 8 | USR | EN |
                              (uint64_t)(event >> 8) << 32);
            g_assert_true(known || pmu_take_unknown(&pmu, &unknown));
            for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
                if ((tests[i].cpus >> cpu & 1) && tests[i].event == event &&
                    tests[i].umask == (tests[i].umask >> 8 ? 0x100 : umask)) {
                    g_assert_cmphex(counted(), ==, tests[i].quantities);
                    expected = tests[i].quantities;
                }
            }
            if (!known) {
                g_assert_cmphex(counted(), ==, expected);
            }
        }
    }
}

/* Each event that is listed counts, or never happens; in the order of codes. */
static void test_list(void)
{
    for (unsigned cpu = 0; cpu < NR_CPUS; cpu++) {
        unsigned next = 0, last = 0, number = 0;
        uint32_t unknown;
        PmuEvent e;

        be_cpu(cpu);
        config.insn_clocks = 2;
        while (pmu_next_event(&config, &next, &e)) {
            if (!strcmp(e.name, "OFFCORE_RESPONSE")) {
                continue;
            }
            pmu_reset(&pmu, &config);
            memset(pmu.reported, 0, sizeof(pmu.reported));
            if (e.frontend) {
                wr(0x3f7, e.frontend);
            } else {
                g_assert_cmphex(e.event, >=, last);
                last = e.event;
            }
            /* Atoms' walks count where they begin. */
            wr(evtsel_msr(0), (e.event & 0xff) | e.umask << 8 | USR | EN |
                              (uint64_t)(e.event >> 8) << 32 |
                              (strstr(e.name, "_SIDE_WALKS") ? EDGE :
                               0));
            if (pmu_take_unknown(&pmu, &unknown)) {
                g_test_message("CPU %u: %x/%x %s: %x is not known", cpu,
                               e.event, e.umask, e.name, unknown >> 16);
                g_test_fail();
            }
            g_assert_cmpint(pmu.counter[0].add != 0, ==, !e.never);
            number++;
        }
        g_assert_cmpint(number, >=, 7);
        g_assert_false(pmu_next_event(&config, &next, &e));
    }
}

/* FRONTEND_RETIRED goes by MSR_PEBS_FRONTEND, whichever is written first. */
static void test_frontend(void)
{
    static const struct {
        uint32_t frontend;
        uint64_t quantities;
    } tests[] = {
        { 0x12, Q(FETCH_MISSES) }, { 0x14, Q_C_PAGES },
        { 0x15, Q(TLB_FETCH_WALK) }, { 0x11, 0 }, { 0x400206, 0 }, { 0, 0 },
    };
    static const unsigned models[] = { 0x5e, 0x6a, 0x8f };

    for (unsigned i = 0; i < G_N_ELEMENTS(models); i++) {
        for (unsigned j = 0; j < G_N_ELEMENTS(tests); j++) {
            uint32_t event;

            be_intel(models[i]);
            wr(0x3f7, tests[j].frontend);
            wr(PERFEVTSEL(0), USR | EN | 0x01c6);
            g_assert_cmphex(counted(), ==, tests[j].quantities);
            g_assert_cmpint(pmu_take_unknown(&pmu, &event), ==,
                            !tests[j].quantities);
            wr(0x3f7, 0x15);
            g_assert_cmphex(counted(), ==, Q(TLB_FETCH_WALK));
            wr(0x3f7, tests[j].frontend);
            g_assert_cmphex(counted(), ==, tests[j].quantities);
        }
    }
    /* On others there is no such MSR, and no such event. */
    be_intel(0x3d);
    wr(PERFEVTSEL(0), USR | EN | 0x01c6);
    g_assert_cmphex(counted(), ==, 0);
}

/*
 * Nobody knows how often what is not modelled happens, nor how often not.  All
 * codes take seconds, and with sanitizers a minute.
 */
static void test_not_modelled(void)
{
    static const uint8_t cmask[] = { 0, 1, 2, 16 };
    unsigned step = g_test_slow() ? 1 : 61;

    for (unsigned cpu = 0; cpu < NR_CPUS; cpu++) {
        unsigned walks = cpu == BONNELL ? 0x0c : cpu == SILVERMONT ? 0x05 : 0;
        unsigned n = 0;

        be_cpu(cpu);
        config.insn_clocks = 3;
        wr(evtsel_msr(1), OS | EN | 0xc0);
        for (uint64_t sel = 0; sel < 0x10000; sel += step) {
            wr(evtsel_msr(0), sel | USR | EN);
            if (pmu_wanted(&pmu, RETIRE_USR)) {
                continue;
            }
            for (unsigned i = 0; i < 4 * G_N_ELEMENTS(cmask); i++) {
                /* Of these walks it is known how many begin. */
                if ((sel & 0xff) == walks && (sel >> 8 & 3) &&
                    !cmask[i / 4] && i & 2) {
                    continue;
                }
                wr(evtsel_msr(0), sel | USR | EN | CMASK(cmask[i / 4]) |
                                  (i & 1 ? INV : 0) | (i & 2 ? EDGE : 0));
                n += pmu_wanted(&pmu, RETIRE_USR) != 0;
            }
        }
        g_assert_cmpint(n, ==, 0);
        run(RETIRE_USR, 1);
        g_assert_cmpint(rd(pmc_msr(0)), ==, 0);
    }
}

/* Near branches are counted by class where they count, or do not. */
static void test_classes(void)
{
    be_intel(0x5e);
    g_assert_false(wants(RETIRE_USR, RETIRE_WANT_CLASSES));
    wr(PERFEVTSEL(0), USR | EN | 0xc0);
    wr(PERFEVTSEL(1), RUN | 0x40c4);
    g_assert_false(wants(RETIRE_USR, RETIRE_WANT_CLASSES));
    wr(PERFEVTSEL(2), USR | EN | 0x00c4);
    g_assert_true(wants(RETIRE_USR, RETIRE_WANT_CLASSES));
    g_assert_false(wants(RETIRE_OS, RETIRE_WANT_CLASSES));
    wr(PERFEVTSEL(2), OS | EN | INV | CMASK(1) | 0x00c4);
    g_assert_false(wants(RETIRE_USR, RETIRE_WANT_CLASSES));
    g_assert_true(wants(RETIRE_OS, RETIRE_WANT_CLASSES));
    wr(PERFEVTSEL(2), OS | 0x00c4);
    g_assert_false(wants(RETIRE_OS, RETIRE_WANT_CLASSES));
}

/* Without models, memory events and mispredictions are not there. */
static void test_no_models(void)
{
    static const uint16_t with[] = { 0x00c0, 0x003c, 0x00c4 };
    static const uint16_t without[] = { 0x00c5, 0x412e, 0x81d0, 0x20d1 };
    uint32_t regs[4], event;
    unsigned next = 0, listed = 0;
    uint64_t select;
    PmuEvent e;

    be_intel(0x5e);
    config.no_models = true;
    /* What is listed counts. */
    for (; pmu_next_event(&config, &next, &e); listed++) {
        wr(PERFEVTSEL(0), USR | EN | (uint64_t)e.umask << 8 | e.event);
        g_assert_false(pmu_take_unknown(&pmu, &event));
        g_assert_true(e.never || pmu.counter[0].add);
    }
    g_assert_cmpuint(listed, >, 20);
    next = 0;
    while (pmu_next_linux_event(&config, &next, &select)) {
        wr(PERFEVTSEL(0), USR | EN | select);
        g_assert_false(pmu_take_unknown(&pmu, &event));
    }
    pmu_reset(&pmu, &config);
    pmu_cpuid_0a(&config, regs);
    g_assert_cmphex(regs[1], ==, 0x58);
    for (int i = 0; i < G_N_ELEMENTS(with); i++) {
        wr(PERFEVTSEL(0), USR | EN | with[i]);
        g_assert_false(pmu_take_unknown(&pmu, &event));
    }
    for (int i = 0; i < G_N_ELEMENTS(without); i++) {
        wr(PERFEVTSEL(0), USR | EN | without[i]);
        g_assert_true(pmu_take_unknown(&pmu, &event));
        g_assert_cmphex(event, ==, (without[i] & 0xff) |
                                   (without[i] >> 8) << 16);
        g_assert_cmphex(pmu_wanted(&pmu, RETIRE_USR), ==, 0);
    }
}

static void test_unknown(void)
{
    uint32_t event;

    be_intel(0x5e);
    wr(PERFEVTSEL(0), USR | 0x4085);
    g_assert_false(pmu_take_unknown(&pmu, &event));     /* not enabled */
    wr(PERFEVTSEL(0), USR | EN | 0x4085);
    g_assert_true(pmu_take_unknown(&pmu, &event));
    g_assert_cmphex(event, ==, 0x400085);
    g_assert_false(pmu_take_unknown(&pmu, &event));
    wr(PERFEVTSEL(1), USR | EN | 0x4685);               /* once */
    g_assert_false(pmu_take_unknown(&pmu, &event));
    pmu_reset(&pmu, &config);
    wr(PERFEVTSEL(1), USR | EN | 0x4085);
    g_assert_false(pmu_take_unknown(&pmu, &event));
    /* Of a unit mask, the bits that do not count, while the others do. */
    wr(PERFEVTSEL(1), USR | EN | 0x4151);
    g_assert_true(pmu_take_unknown(&pmu, &event));
    g_assert_cmphex(event, ==, 0x400051);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_USR), ==, Q_FILLS | Q(INSNS));
    /* "cycles:p": as many micro-operations are never retired in a clock. */
    wr(PERFEVTSEL(1), USR | EN | INV | CMASK(16) | 0x01c2);
    g_assert_false(pmu_take_unknown(&pmu, &event));
    run(RETIRE_USR, 5);
    g_assert_cmpint(rd(PMC(1)), ==, 5);

    /* AMD has twelve bits of event code. */
    be_k7();
    wr(K7_EVTSEL(0), RUN | 0xc0 | 1ull << 32);
    g_assert_true(pmu_take_unknown(&pmu, &event));
    g_assert_cmphex(event, ==, 0x1c0);
    run(RETIRE_USR, 5);
    g_assert_cmpint(rd(K7_PERFCTR(0)), ==, 0);
}

static void test_setting(void)
{
    PmuSetting c;

    be_intel(0x5e);
    check_setting(0, "0000 ?");
    check_setting(PMU_FIXED(0), "0000 INST_RETIRED.ANY");
    wr(PERFEVTSEL(0), OS | EN | 0xc4);
    check_setting(0, "1001 BR_INST_RETIRED.ALL_BRANCHES");  /* RESET's */
    wr(PERFEVTSEL(3), USR | INT | 0x08c5);
    check_setting(3, "0110 BR_MISP_RETIRED.RET");
    wr(FIXED_CTR_CTRL, 0xb20);
    check_setting(PMU_FIXED(1), "0100 CPU_CLK_UNHALTED.THREAD");
    check_setting(PMU_FIXED(2), "1110 CPU_CLK_UNHALTED.REF_TSC");
    wr(GLOBAL_CTRL, FIXED_BIT(2));
    check_setting(0, "1000 BR_INST_RETIRED.ALL_BRANCHES");
    check_setting(PMU_FIXED(2), "1111 CPU_CLK_UNHALTED.REF_TSC");
    wr(STATUS_SET, CTR_FRZ);
    check_setting(PMU_FIXED(2), "1110 CPU_CLK_UNHALTED.REF_TSC");
    wr(PERFEVTSEL(0), USR | EN | 0x4085);
    check_setting(0, "0100 ?");
    wr(PERFEVTSEL(0), USR | EN | 0x41c4);
    check_setting(0, "0100 BR_INST_RETIRED.CONDITIONAL, "
                     "BR_INST_RETIRED.FAR_BRANCH");
    wr(PERFEVTSEL(0), USR | EN | 0x0151);
    check_setting(0, "0100 L1D.REPLACEMENT");
    wr(0x1a6, 0x10001);
    wr(PERFEVTSEL(0), USR | EN | 0x01b7);
    check_setting(0, "0100 OFFCORE_RESPONSE");
    g_assert_false(pmu_setting(&pmu, &config, 4, &c));

    be_version(1);
    g_assert_false(pmu_setting(&pmu, &config, PMU_FIXED(0), &c));

    /* One bit enables both counters. */
    be_intel(3);
    wr(PERFEVTSEL(1), USR | 0xca);
    check_setting(1, "0100 BR_MISS_PRED_TAKEN_RET");
    wr(PERFEVTSEL(0), EN);
    check_setting(1, "0101 BR_MISS_PRED_TAKEN_RET");
    g_assert_false(pmu_setting(&pmu, &config, 2, &c));

    be_k7();
    wr(K7_EVTSEL(2), RUN | 0x12cf);
    check_setting(2, "1101 INTERRUPTS_TAKEN");
    wr(K7_EVTSEL(2), RUN | 0xcf | HOST_ONLY);       /* without SVME */
    check_setting(2, "1100 INTERRUPTS_TAKEN");
}

/*
 * CMASK, INV and edge
 */

static void test_cmask(void)
{
    static const struct {
        uint32_t clocks, ratio;
        uint64_t sel;
        uint64_t expected;  /* of 100 instructions, 30 of them branches */
    } tests[] = {
        { 1, 1000, 0xc0, 100 },
        { 1, 1000, 0xc0 | CMASK(1), 100 },
        { 1, 1000, 0xc0 | CMASK(2), 0 },
        { 1, 1000, 0xc0 | INV, 100 },           /* CMASK 0: ignored */
        { 1, 1000, 0xc0 | INV | CMASK(1), 0 },
        { 1, 1000, 0xc0 | INV | CMASK(2), 100 },
        { 1, 1000, 0xc0 | INV | CMASK(16), 100 },
        { 1, 1000, 0xc0 | EDGE, 0 },
        { 1, 1000, 0xc4 | CMASK(1), 30 },
        { 1, 1000, 0xc4 | INV | CMASK(1), 70 },
        { 1, 1000, 0xc4 | EDGE, 30 },
        { 4, 1000, 0xc0 | INV | CMASK(1), 300 },
        { 4, 1000, 0xc0 | INV | CMASK(255), 400 },
        { 4, 1000, 0xc0 | EDGE, 100 },
        { 4, 1000, 0xc0 | EDGE | INV | CMASK(1), 100 },
        { 4, 1000, 0xc0 | EDGE | INV | CMASK(2), 0 },
        { 4, 1000, 0xc4 | INV | CMASK(1), 370 },
        { 4, 1000, 0x3c, 400 },
        { 4, 1000, 0x3c | CMASK(1), 400 },
        { 4, 1000, 0x3c | CMASK(2), 0 },
        { 4, 1000, 0x3c | INV | CMASK(1), 0 },
        { 4, 1000, 0x3c | INV | CMASK(2), 400 },
        { 4, 1000, 0x3c | EDGE, 0 },
        { 4, 2500, 0x13c, 1000 },
        { 4, 2500, 0x13c | CMASK(1), 400 },
        { 4, 2500, 0x13c | INV | CMASK(1), 0 },
        { 4, 2500, 0x13c | INV | CMASK(3), 400 },
        { 4, 2500, 0x13c | EDGE, 0 },
        { 4, 100, 0x13c, 40 },
        { 4, 100, 0x13c | CMASK(1), 40 },
        { 4, 100, 0x13c | INV | CMASK(1), 360 },
        { 4, 100, 0x13c | EDGE, 40 },
        { 1, 1000, 0xdead | CMASK(1), 0 },
        { 3, 1000, 0xdead | CMASK(1) | INV, 0 },
        { 3, 1000, 0xdead | CMASK(2) | INV, 0 },
        { 3, 1000, 0xdead | EDGE, 0 },
        /* What prefetches would do: as all events of memory */
        { 3, 1000, 0xf824, 0 },
        { 3, 1000, 0xf824 | CMASK(1) | INV, 0 },
        { 3, 1000, 0xf824 | CMASK(16) | INV, 0 },
        /* Micro-operations issued, and executed */
        { 3, 1000, 0x10e, 100 },
        { 3, 1000, 0x10e | CMASK(1) | INV, 200 },
        { 1, 1000, 0x10e | CMASK(1) | INV, 0 },
        { 3, 1000, 0x1b1 | CMASK(1) | INV, 200 },
        { 1, 1000, 0x1b1 | CMASK(1) | INV, 0 },
        /* Interrupts come between the clocks; there are 9 of them here. */
        { 2, 1000, 0x1cb, 9 },
        { 2, 1000, 0x1cb | CMASK(1), 9 },
        { 2, 1000, 0x1cb | EDGE, 9 },
        { 2, 1000, 0x1cb | CMASK(1) | INV, 200 },
        { 2, 1000, 0x1cb | CMASK(2), 0 },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        be_intel(0x5e);
        config.insn_clocks = tests[i].clocks;
        config.refclk_ratio = tests[i].ratio;
        wr(PERFEVTSEL(0), RUN | ANY | tests[i].sel);
        if (!tests[i].expected) {
            /* It can never count, and is no reason to look at anything. */
            g_assert_cmphex(pmu_wanted(&pmu, RETIRE_OS), ==, 0);
        } else if ((tests[i].sel & 0xffff) == 0xc4) {
            g_assert_cmphex(pmu_wanted(&pmu, RETIRE_OS), ==, Q_ALL | Q(INSNS));
        }
        for (int n = 0; n < 100; n++) {
            if (n % 10 < 3) {
                pmu_count(&pmu, RETIRE_OS, PMU_JMP, 1);
            }
            if (n % 11 == 10) {
                pmu_count(&pmu, RETIRE_OS, PMU_INTERRUPTS, 1);
            }
            run(RETIRE_OS, 1);
        }
        g_assert_cmpint(rd(PMC(0)), ==, tests[i].expected);
    }
}

/* AMD's and P6's events of clocks in which nothing is done */
static void test_stalled(void)
{
    static const struct {
        uint32_t clocks;
        uint64_t sel;
        uint64_t expected;      /* of 100 instructions */
    } tests[] = {
        { 1, 0, 0 },
        { 1, CMASK(1), 0 },
        { 1, CMASK(1) | INV, 100 },
        { 1, EDGE, 0 },
        { 4, 0, 300 },
        { 4, INV, 300 },
        { 4, CMASK(1), 300 },
        { 4, CMASK(1) | INV, 100 },
        { 4, CMASK(2), 0 },
        { 4, CMASK(2) | INV, 400 },
        { 4, EDGE, 100 },
        { 4, EDGE | CMASK(1), 100 },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        be_k7();
        config.insn_clocks = tests[i].clocks;
        wr(K7_EVTSEL(0), RUN | tests[i].sel | 0xd0);
        run(RETIRE_OS, 100);
        g_assert_cmpint(rd(K7_PERFCTR(0)), ==, tests[i].expected);
        be_intel(6);
        config.insn_clocks = tests[i].clocks;
        wr(PERFEVTSEL(0), RUN | tests[i].sel | 0xa2);
        run(RETIRE_OS, 100);
        g_assert_cmpint(rd(PMC(0)), ==, tests[i].expected);
    }
}

/* Atoms' page walks are clocks of these, but where they begin. */
static void test_page_walks(void)
{
    static const struct {
        uint8_t umask;
        uint64_t expected;
        const char *setting;
    } tests[] = {
        { 1, 11, "1101 PAGE_WALKS.D_SIDE_WALKS" },
        { 2, 100, "1101 PAGE_WALKS.I_SIDE_WALKS" },
        { 3, 111, "1101 PAGE_WALKS.D_SIDE_WALKS, PAGE_WALKS.I_SIDE_WALKS" },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        for (int n = 0; n < 4; n++) {
            bool edge = n % 2;

            be_intel(n / 2 ? 0x37 : 0x1c);
            wr(PMC(0), 0);
            wr(PERFEVTSEL(0), RUN | (n / 2 ? 0x05 : 0x0c) |
                              tests[i].umask << 8 | (edge ? EDGE : 0));
            pmu_count(&pmu, RETIRE_OS, PMU_TLB_LOAD_WALK, 1);
            pmu_count(&pmu, RETIRE_OS, PMU_TLB_STORE_WALK, 10);
            pmu_count(&pmu, RETIRE_OS, PMU_TLB_FETCH_WALK, 100);
            pmu_count(&pmu, RETIRE_OS, PMU_TLB_LOAD_L2, 1000);
            g_assert_cmpint(rd(PMC(0)), ==, edge ? tests[i].expected : 0);
        }
        check_setting(0, tests[i].setting);
        wr(PERFEVTSEL(0), RUN | EDGE | CMASK(1) | 0x105);
        g_assert_cmphex(pmu_wanted(&pmu, RETIRE_OS), ==, 0);
    }
    /* Zen 2's L1I has an event above FFH. */
    for (unsigned family = 0x17; family < 0x1a; family += 2) {
        be(PMU_VENDOR_AMD, family, family == 0x17 ? 0x31 : 0x11);
        wr(K7_EVTSEL(0), RUN | 0x188e | 1ull << 32);
        g_assert_true(wants(RETIRE_OS, RETIRE_WANT_FETCHES));
        check_setting(0, "1101 ic_tag_hit_miss.instruction_cache_miss");
        wr(K7_EVTSEL(0), RUN | 0x1f8e | 1ull << 32);
        check_setting(0, "1101 ic_tag_hit_miss.instruction_cache_hit, "
                         "ic_tag_hit_miss.instruction_cache_miss");
    }
}

/* Zen 4's reference clocks have more bits of event code than eight. */
static void test_ref_cycles(void)
{
    be(PMU_VENDOR_AMD, 0x19, 1);
    wr(K7_EVTSEL(0), RUN | 0x120 | 1ull << 32);
    run(RETIRE_OS, 100);
    g_assert_cmpint(rd(K7_PERFCTR(0)), ==, 0);
    be_perfmon_v2();
    config.refclk_ratio = 500;
    wr(K7_EVTSEL(0), RUN | 0x120 | 1ull << 32);
    run(RETIRE_OS, 100);
    g_assert_cmpint(rd(K7_PERFCTR(0)), ==, 50);
    check_setting(0, "1101 ls_not_halted_p0_cyc.p0_freq_cyc");
}

/*
 * Overflow, PMI and freezing
 */

static void test_overflow(void)
{
    be_intel(0x5e);
    wr(PERFEVTSEL(0), USR | INT | EN | 0xc0);
    wr(PERFEVTSEL(1), USR | EN | 0xc0);
    wr(FIXED_CTR_CTRL, 0x8a);           /* PMI alone does not enable 1 */
    wr(GLOBAL_CTRL, FIXED_BIT(0) | FIXED_BIT(1) | 3);
    wr(PMC(0), -20000);
    wr(PMC(1), -19999);
    wr(FIXED_CTR(0), ONES(48) - 30000 + 1);
    g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_USR), >=, PMU_NEAR);
    g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_OS), ==, UINT32_MAX);
    g_assert_false(run(RETIRE_USR, 19990));
    g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_USR), ==, 9);
    g_assert_false(run(RETIRE_OS, 100000));
    g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_USR), ==, 9);
    g_assert_false(run(RETIRE_USR, 9));
    g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_USR), ==, 0);
    g_assert_cmphex(rd(PMC(0)), ==, ONES(48));
    /* No INT, no PMI; but there is the bit. */
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, 2);
    g_assert_true(run(RETIRE_USR, 1));
    g_assert_false(pmu_sync(&pmu, &config));
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, 3);
    g_assert_cmphex(rd(PMC(0)), ==, 0);
    g_assert_cmphex(rd(PMC(1)), ==, 1);
    wr(STATUS_RESET, 1);
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, 2);
    g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_USR), >=, PMU_NEAR);
    g_assert_false(run(RETIRE_USR, 9999));
    g_assert_true(run(RETIRE_USR, 1));
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, 2 | FIXED_BIT(0));
    g_assert_cmphex(rd(FIXED_CTR(1)), ==, 0);

    /* What overflowed before INT was set causes no PMI. */
    wr(PERFEVTSEL(0), 0);
    wr(FIXED_CTR_CTRL, 0);
    wr(STATUS_RESET, rd(GLOBAL_STATUS));
    wr(PMC(1), -1);
    pmu_count(&pmu, RETIRE_USR, PMU_INSNS, 1);
    wr(PERFEVTSEL(1), USR | INT | EN | 0xc0);
    g_assert_false(pmu_sync(&pmu, &config));
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, 2);

    /* Interrupts overflow, too, without an instruction. */
    wr(PERFEVTSEL(1), USR | INT | EN | 0x1cb);
    wr(PMC(1), -2);
    g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_USR), ==, UINT32_MAX);
    g_assert_false(run(RETIRE_USR, 100));
    pmu_count(&pmu, RETIRE_USR, PMU_INTERRUPTS, 1);
    g_assert_false(pmu_sync(&pmu, &config));
    pmu_count(&pmu, RETIRE_USR, PMU_INTERRUPTS, 1);
    g_assert_true(pmu_sync(&pmu, &config));

    /* One PMI for two counters */
    wr(PERFEVTSEL(0), USR | INT | EN | 0xc0);
    wr(PERFEVTSEL(1), USR | INT | EN | 0xc0);
    wr(PMC(0), -3);
    wr(PMC(1), -3);
    wr(STATUS_RESET, 3);
    g_assert_true(run(RETIRE_USR, 3));
    g_assert_false(pmu_sync(&pmu, &config));
    g_assert_cmphex(rd(GLOBAL_STATUS), ==, 3);
}

static void check_distances(uint32_t insns, uint32_t branches)
{
    uint32_t got;

    g_assert_cmpint(pmu_distances(&pmu, &config, RETIRE_OS, &got), ==, insns);
    g_assert_cmpint(got, ==, branches);
}

/* A counter of rare branches does not make each instruction suspicious. */
static void test_distances(void)
{
    be_intel(0x5e);
    wr(PERFEVTSEL(0), RUN | INT | 0x40c4);
    wr(PMC(0), -3);
    check_distances(UINT32_MAX, 2);
    pmu_count(&pmu, RETIRE_OS, PMU_FAR, 2);
    g_assert_false(run(RETIRE_OS, 1000));
    check_distances(UINT32_MAX, 0);
    wr(PERFEVTSEL(1), RUN | INT | 0x01c5);
    wr(PMC(1), -1);
    check_distances(UINT32_MAX, 0);
    wr(FIXED_CTR_CTRL, 8 | 1);
    wr(FIXED_CTR(0), ONES(WIDTH) - 9);
    wr(GLOBAL_CTRL, 0xf | FIXED_BIT(0));
    check_distances(9, 0);
    wr(PERFEVTSEL(0), RUN | 0x40c4);
    wr(PERFEVTSEL(1), USR | EN | INT | 0x01c5);
    check_distances(9, UINT32_MAX);
    wr(FIXED_CTR_CTRL, 0);
    check_distances(UINT32_MAX, UINT32_MAX);
}

/* kvm-unit-tests: a preset of 1 - count ends at exactly 1. */
static void test_preset(void)
{
    for (unsigned cpu = 0; cpu < NR_CPUS; cpu++) {
        uint64_t count;

        be_cpu(cpu);
        wr(evtsel_msr(1), RUN | 0xc0);
        wr(evtsel_msr(0), EN);          /* P6 */
        run(RETIRE_OS, 1017);
        count = rd(pmc_msr(1));
        g_assert_cmpint(count, ==, 1017);
        wr(pmc_msr(1), 1 - count);
        g_assert_false(run(RETIRE_OS, 1017));
        g_assert_cmpint(rd(pmc_msr(1)), ==, 1);
        wr(evtsel_msr(1), RUN | INT | 0xc0);
        wr(pmc_msr(1), 1 - count);
        g_assert_false(run(RETIRE_OS, 1015));
        g_assert_true(run(RETIRE_OS, 1));
        g_assert_false(run(RETIRE_OS, 1));
        g_assert_cmpint(rd(pmc_msr(1)), ==, 1);
    }
}

/* SDM 17.4.7, legacy and streamlined, and 18.2.4.1 */
static void test_freeze(void)
{
    for (unsigned version = 2; version <= 5; version++) {
        for (unsigned bits = 0; bits < 4; bits++) {
            bool lbrs = bits & 1, perfmon = bits & 2, v4 = version >= 4;
            uint64_t status = 1;

            be_version(version);
            wr(PERFEVTSEL(0), RUN | INT | 0xc0);
            wr(PERFEVTSEL(1), RUN | 0xc0);
            wr(FIXED_CTR_CTRL, 3);
            wr(GLOBAL_CTRL, 3 | FIXED_BIT(0));
            pmu.debugctl = (lbrs ? FREEZE_LBRS : 0) |
                           (perfmon ? FREEZE_PERFMON : 0);
            wr(PMC(0), -5);
            /* Without INT, an overflow freezes nothing. */
            wr(PMC(1), -2);
            g_assert_true(run(RETIRE_OS, 5));
            status |= 2 | (v4 && lbrs ? LBR_FRZ : 0) |
                      (v4 && perfmon ? CTR_FRZ : 0);
            g_assert_cmphex(rd(GLOBAL_STATUS), ==, status);
            g_assert_cmphex(rd(GLOBAL_CTRL), ==,
                            perfmon && !v4 ? 0 : 3 | FIXED_BIT(0));
            g_assert_cmpint(!pmu_wanted(&pmu, RETIRE_OS), ==, perfmon);
            run(RETIRE_OS, 7);
            g_assert_cmpint(rd(PMC(0)), ==, perfmon ? 0 : 7);
            g_assert_cmpint(rd(PMC(1)), ==, perfmon ? 3 : 10);
            g_assert_cmpint(rd(FIXED_CTR(0)), ==, perfmon ? 5 : 12);
            wr(STATUS_RESET, status);
            g_assert_cmphex(rd(GLOBAL_STATUS), ==, 0);
            wr(GLOBAL_CTRL, 3);
            run(RETIRE_OS, 1);
            g_assert_cmpint(rd(PMC(0)), ==, perfmon ? 1 : 8);
            /* So does BTS, without an overflow, with what has been counted. */
            wr(GLOBAL_CTRL, 3);
            pmu_count(&pmu, RETIRE_OS, PMU_INSNS, 3);
            pmu.pmi = true;
            g_assert_true(pmu_sync(&pmu, &config));
            g_assert_false(pmu_sync(&pmu, &config));
            g_assert_cmphex(rd(GLOBAL_STATUS), ==, status & ~3ull);
            g_assert_cmphex(rd(GLOBAL_CTRL), ==, perfmon && !v4 ? 0 : 3);
            run(RETIRE_OS, 7);
            g_assert_cmpint(rd(PMC(0)), ==, perfmon ? 4 : 18);
            wr(STATUS_RESET, status);
            wr(PMC(0), 1);
        }
    }
    /* A VMM freezes by hand. */
    wr(STATUS_SET, CTR_FRZ);
    run(RETIRE_OS, 9);
    g_assert_cmpint(rd(PMC(0)), ==, 1);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_OS), ==, 0);
    wr(STATUS_RESET, CTR_FRZ);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_OS), ==, Q(INSNS));
    run(RETIRE_OS, 9);
    g_assert_cmpint(rd(PMC(0)), ==, 10);
}

/* The same for AMD's, which leaves PerfCntrGlobalCtl alone. */
static void test_freeze_amd(void)
{
    for (unsigned bits = 0; bits < 4; bits++) {
        bool lbrs = bits & 1, perfmon = bits & 2;
        uint64_t status = 3 | (lbrs ? LBR_FRZ : 0) | (perfmon ? CTR_FRZ : 0);

        be_lbr_v2();
        wr(EXT_EVTSEL(0), RUN | INT | 0xc0);
        wr(EXT_EVTSEL(1), RUN | 0xc0);
        pmu.debugctl = (lbrs ? FREEZE_LBRS : 0) |
                       (perfmon ? FREEZE_PERFMON : 0);
        wr(EXT_PERFCTR(0), -5);
        /* Without INT, an overflow freezes nothing. */
        wr(EXT_PERFCTR(1), -2);
        g_assert_false(run(RETIRE_OS, 4));
        g_assert_cmphex(rd(V2_STATUS), ==, 2);
        g_assert_true(run(RETIRE_OS, 1));
        g_assert_cmphex(rd(V2_STATUS), ==, status);
        g_assert_cmphex(rd(V2_CTL), ==, 0x3f);
        g_assert_cmpint(!pmu_wanted(&pmu, RETIRE_OS), ==, perfmon);
        run(RETIRE_OS, 7);
        g_assert_cmpint(rd(EXT_PERFCTR(0)), ==, perfmon ? 0 : 7);
        g_assert_cmpint(rd(EXT_PERFCTR(1)), ==, perfmon ? 3 : 10);
        wr(V2_STATUS_CLR, status & ~CTR_FRZ);
        g_assert_cmphex(rd(V2_STATUS), ==, perfmon ? CTR_FRZ : 0);
        wr(V2_STATUS_CLR, status);
        run(RETIRE_OS, 1);
        g_assert_cmpint(rd(EXT_PERFCTR(0)), ==, perfmon ? 1 : 8);
    }
    /* A VMM freezes by hand. */
    wr(V2_STATUS_SET, ~0ull);
    g_assert_cmphex(rd(V2_STATUS), ==, LBR_FRZ | CTR_FRZ | 0x3f);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_OS), ==, 0);
    wr(V2_STATUS_CLR, CTR_FRZ);
    g_assert_cmphex(rd(V2_STATUS), ==, LBR_FRZ | 0x3f);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_OS), ==, Q(INSNS));
}

static void test_smm(void)
{
    be_intel(0x5e);
    wr(PERFEVTSEL(0), RUN | 0xc0);
    wr(GLOBAL_CTRL, 1);
    pmu_smi(&pmu, &config);
    run(RETIRE_OS, 3);
    g_assert_cmpint(rd(PMC(0)), ==, 3);
    g_assert_cmphex(rd(GLOBAL_CTRL), ==, 1);
    pmu_rsm(&pmu, &config);
    g_assert_cmphex(rd(GLOBAL_CTRL), ==, 1);

    pmu.debugctl = FREEZE_SMM | FREEZE_PERFMON;
    pmu_count(&pmu, RETIRE_OS, PMU_INSNS, 2);
    pmu_smi(&pmu, &config);
    g_assert_cmphex(rd(GLOBAL_CTRL), ==, 0);
    run(RETIRE_OS, 100);
    g_assert_cmpint(rd(PMC(0)), ==, 5);
    pmu.debugctl = 0;
    pmu_count(&pmu, RETIRE_OS, PMU_INSNS, 100);
    pmu_rsm(&pmu, &config);
    g_assert_cmphex(pmu.debugctl, ==, FREEZE_SMM | FREEZE_PERFMON);
    g_assert_cmphex(rd(GLOBAL_CTRL), ==, 1);
    run(RETIRE_OS, 1);
    g_assert_cmpint(rd(PMC(0)), ==, 6);
    pmu_rsm(&pmu, &config);
    g_assert_cmphex(rd(GLOBAL_CTRL), ==, 1);
}

static void test_running(void)
{
    /* GLOBAL_CTRL, the enable bits and the privilege */
    be_intel(0x5e);
    wr(PERFEVTSEL(0), USR | EN | 0xc0);
    wr(PERFEVTSEL(1), OS | EN | 0xc0);
    wr(PERFEVTSEL(2), OS | USR | 0xc0);
    wr(PERFEVTSEL(3), EN | 0xc0);
    wr(FIXED_CTR_CTRL, 0x321);
    wr(GLOBAL_CTRL, 0x70000000full);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_OS), ==, Q(INSNS));
    run(RETIRE_OS, 1);
    run(RETIRE_USR, 10);
    run(RETIRE_OS, 100);
    g_assert_cmpint(rd(PMC(0)), ==, 10);
    g_assert_cmpint(rd(PMC(1)), ==, 101);
    g_assert_cmpint(rd(PMC(2)), ==, 0);
    g_assert_cmpint(rd(PMC(3)), ==, 0);
    g_assert_cmpint(rd(FIXED_CTR(0)), ==, 101);
    g_assert_cmpint(rd(FIXED_CTR(1)), ==, 10);
    g_assert_cmpint(rd(FIXED_CTR(2)), ==, 111);
    wr(GLOBAL_CTRL, 2 | FIXED_BIT(1));
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_USR), ==, Q(INSNS));
    run(RETIRE_OS, 1);
    run(RETIRE_USR, 10);
    g_assert_cmpint(rd(PMC(0)), ==, 10);
    g_assert_cmpint(rd(PMC(1)), ==, 102);
    g_assert_cmpint(rd(FIXED_CTR(0)), ==, 101);
    g_assert_cmpint(rd(FIXED_CTR(1)), ==, 20);
    g_assert_cmpint(rd(FIXED_CTR(2)), ==, 111);

    /* Writing to a counter that runs */
    pmu_count(&pmu, RETIRE_OS, PMU_INSNS, 5);
    wr(PMC(1), 1000);
    run(RETIRE_OS, 5);
    g_assert_cmpint(rd(PMC(1)), ==, 1005);

    /* Version 1 has no GLOBAL_CTRL. */
    be_version(1);
    wr(PERFEVTSEL(0), RUN | 0xc0);
    run(RETIRE_OS, 5);
    g_assert_cmpint(rd(PMC(0)), ==, 5);

    /* A long time without a look at the counter */
    be_intel(0x5e);
    config.insn_clocks = 1000;
    config.refclk_ratio = 10000;
    wr(PERFEVTSEL(0), RUN | 0x13c);
    for (int i = 0; i < 16; i++) {
        run(RETIRE_OS, 1ull << 39);
    }
    g_assert_cmphex(rd(PMC(0)), ==, ((16ull << 39) * 10000) & ONES(48));
}

/*
 * Migration
 */

static void test_load(void)
{
    PmuState good, bad;

    be_intel(0x5e);
    wr(PERFEVTSEL(0), RUN | INT | 0xc0);
    wr(PERFEVTSEL(3), RUN | ANY | 0x01c4);
    wr(PMC(0), -100);
    wr(FIXED_CTR_CTRL, 0xb);
    wr(GLOBAL_CTRL, 9 | FIXED_BIT(0));
    pmu.debugctl = FREEZE_PERFMON | FREEZE_SMM;
    wr(STATUS_SET, LBR_FRZ);
    pmu_count(&pmu, RETIRE_USR, PMU_COND_TAKEN, 4);
    g_assert_false(run(RETIRE_USR, 10));
    g_assert_false(pmu_settle(&pmu, &config));

    memset(&good, 0xff, sizeof(good));
    good.svme = good.guest = false;
    memcpy(&good, &pmu, offsetof(PmuState, svme));
    bad = good;
    g_assert_true(pmu_load_state(&good, &config));
    pmu = good;
    g_assert_false(pmu_sync(&pmu, &config));
    g_assert_cmpint(rd(PMC(0)), ==, ONES(48) - 89);
    g_assert_cmpint(rd(PMC(3)), ==, 4);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_USR), ==, Q_COND | Q(INSNS));
    g_assert_cmpint(pmu_distance(&pmu, &config, RETIRE_USR), ==, 89);
    pmu_count(&pmu, RETIRE_OS, PMU_COND_NOT_TAKEN, 2);
    g_assert_true(run(RETIRE_OS, 90));
    g_assert_cmpint(rd(PMC(3)), ==, 6);

#define REFUSED(field, val) do {                            \
        good = bad;                                         \
        good.field = (val);                                 \
        g_assert_false(pmu_load_state(&good, &config));     \
    } while (0)
    REFUSED(evtsel[0], 1ull << 32);
    REFUSED(evtsel[4], 1);
    REFUSED(value[0], 1ull << 48);
    REFUSED(value[4], 1);
    REFUSED(value[PMU_FIXED(2)], 1ull << 48);
    REFUSED(fixed_ctr_ctrl, 0x1000);
    REFUSED(global_ctrl, 0x10);
    REFUSED(global_status, 0x10);
    REFUSED(global_status, 1ull << 63);
    REFUSED(debugctl, 1);
    REFUSED(smm_global_ctrl, 1);
    REFUSED(smm_debugctl, FREEZE_SMM);
    REFUSED(ref_fraction[1], 1000);
    REFUSED(smm_frozen, true);
    bad.smm_frozen = true;
    bad.smm_debugctl = FREEZE_SMM;
    good = bad;
    g_assert_true(pmu_load_state(&good, &config));
    REFUSED(smm_debugctl, FREEZE_SMM | 1);
    REFUSED(smm_global_ctrl, 0x10);

    be_version(1);
    bad = pmu;
    good = bad;
    g_assert_true(pmu_load_state(&good, &config));
    REFUSED(value[PMU_FIXED(0)], 1);
    REFUSED(fixed_ctr_ctrl, 1);
    REFUSED(global_ctrl, 1);
    REFUSED(global_status, 1);
    REFUSED(debugctl, FREEZE_PERFMON);

    be_lbr_v2();
    wr(V2_STATUS_SET, ~0ull);
    pmu.debugctl = FREEZE_LBRS | FREEZE_PERFMON;
    bad = pmu;
    good = bad;
    g_assert_true(pmu_load_state(&good, &config));
    g_assert_cmphex(pmu_wanted(&good, RETIRE_OS), ==, 0);
    REFUSED(global_status, 1ull << 57);
    REFUSED(global_status, 1ull << 60);
    REFUSED(debugctl, FREEZE_SMM);
    REFUSED(debugctl, 1);
    config.lbr_v2 = false;
    bad.debugctl = 0;
    bad.global_status = 0x3f;
    good = bad;
    g_assert_true(pmu_load_state(&good, &config));
    REFUSED(global_status, LBR_FRZ);
    REFUSED(global_status, CTR_FRZ);
    REFUSED(debugctl, FREEZE_LBRS);
    REFUSED(debugctl, FREEZE_PERFMON);

    be_k7();
    pmu.evtsel[0] = 1u << 21;
    g_assert_false(pmu_load_state(&pmu, &config));
#undef REFUSED
}

/*
 * The engine against a model that runs a random program clock by clock.
 */

typedef struct Model {
    uint64_t value;
    uint64_t sel;
    uint64_t quantities;
    int rows;
    bool pmi;
    bool high;              /* the condition, in the last clock */
} Model;

static Model model[PMU_NR_COUNTERS];
static unsigned model_fraction[RETIRE_NR_ROWS];
static bool model_frozen;
static uint64_t model_status;

/* @n of the event in one clock; whether @m overflows. */
static bool model_clock(Model *m, unsigned n)
{
    unsigned cmask = m->sel >> 24 & 0xff;
    bool high = cmask ? (MIN(n, 1) >= cmask) != !!(m->sel & INV) : n > 0;
    unsigned inc = m->sel & EDGE ? high && !m->high : cmask ? high : n;

    m->high = high;
    m->value += inc;
    return m->value < inc || m->value >> WIDTH;
}

/* An instruction that counts for @quantities; whether there is a PMI. */
static bool model_insn(RetireRow row, uint64_t quantities)
{
    bool pmi = false;

    for (unsigned clock = 1; clock <= config.insn_clocks; clock++) {
        unsigned ref = model_fraction[row] + config.refclk_ratio;

        model_fraction[row] = ref % 1000;
        for (unsigned n = 0; n < PMU_NR_COUNTERS; n++) {
            Model *m = &model[n];
            unsigned events = 0;

            if (!(m->rows >> row & 1) || model_frozen) {
                continue;
            }
            if (m->quantities & Q(CYCLES)) {
                events = 1;
            } else if (m->quantities & Q(REF_CYCLES)) {
                events = ref / 1000;
            } else if (m->quantities == Q_STALLED) {
                events = clock < config.insn_clocks;
            } else if (clock == config.insn_clocks) {
                events = __builtin_popcountll(m->quantities & quantities);
            }
            if (model_clock(m, events)) {
                m->value &= ONES(WIDTH);
                model_status |= n < PMU_MAX_GP ? 1ull << n :
                                FIXED_BIT(n - PMU_MAX_GP);
                pmi |= m->pmi;
            }
        }
    }
    return pmi;
}

static bool model_interrupt(RetireRow row)
{
    bool pmi = false;

    for (unsigned n = 0; n < PMU_MAX_GP; n++) {
        Model *m = &model[n];
        unsigned cmask = m->sel >> 24 & 0xff;

        if ((m->rows >> row & 1) && !model_frozen &&
            (m->quantities & Q(INTERRUPTS)) && cmask <= 1 &&
            (!(m->sel & INV) || !cmask || (m->sel & EDGE))) {
            if (++m->value >> WIDTH) {
                m->value = 0;
                model_status |= 1ull << n;
                pmi |= m->pmi;
            }
        }
    }
    return pmi;
}

static uint32_t rnd(void)
{
    return g_test_rand_int();
}

static uint64_t rnd64(void)
{
    return (uint64_t)rnd() << 32 | rnd();
}

static uint64_t random_insn(void)
{
    static const uint64_t branches[] = {
        Q(COND_TAKEN), Q(COND_NOT_TAKEN), Q(JMP), Q(JMP_IND), Q(CALL),
        Q(CALL_IND), Q(RET), Q(FAR),
        Q(COND_TAKEN) | Q(MISP_COND_TAKEN),
        Q(COND_NOT_TAKEN) | Q(MISP_COND_NOT_TAKEN),
        Q(JMP_IND) | Q(MISP_JMP_IND), Q(CALL_IND) | Q(MISP_CALL_IND),
        Q(RET) | Q(MISP_RET),
    };

    return Q(INSNS) | (rnd64() & rnd64() & rnd64() & Q_MEMORY) |
           (rnd() % 4 ? 0 : branches[rnd() % G_N_ELEMENTS(branches)]);
}

/* A value from which it is not far to an overflow */
static uint64_t random_value(void)
{
    return rnd() % 8 ?
           (1ull << WIDTH) - 1 - rnd() % 300 :
           rnd() % 1000;
}

static void random_gp(unsigned cpu, unsigned n)
{
    Model *m = &model[n];
    uint64_t sel;
    unsigned i;

    do {
        i = rnd() % G_N_ELEMENTS(events);
    } while (!(events[i].cpus >> cpu & 1));
    sel = events[i].code;
    sel |= rnd() % 6 ? EN : 0;
    sel |= rnd() & (OS | USR);
    sel |= rnd() % 2 ? INT : 0;
    if (rnd() % 3 == 0) {
        sel |= (rnd() & INV) | CMASK(rnd() % 3);
    }
    m->quantities = expected_event(cpu, sel);
    /*
     * The pulses of two events must not be neighbours, nor those of what is no
     * event: there, the engine counts what comes a clock later.
     */
    if (config.insn_clocks > 1 && !(sel & INV) &&
        !(m->quantities & (Q(REF_CYCLES) | Q_STALLED))) {
        sel |= rnd() & EDGE;
    }
    m->sel = sel;
    m->rows = (sel & EN && sel & OS ? 1 << RETIRE_OS : 0) |
              (sel & EN && sel & USR ? 1 << RETIRE_USR : 0);
    if ((m->quantities & Q_MEMORY) && ((sel & EDGE) || sel >> 24) &&
        !((sel & INV) && sel >> 24 > 1)) {
        m->rows = 0;
    }
    if (m->quantities == Q_NEVER) {
        m->rows = 0;
    }
    m->pmi = sel & INT;
    m->high = true;
    wr(evtsel_msr(n), sel);
    if (is_amd()) {
        m->value = random_value();
        wr(pmc_msr(n), m->value);
    } else {
        /* by way of 32 bits */
        m->value = random_value();
        wr(PMC(n), m->value);
    }
}

static void random_fixed(unsigned i)
{
    static const uint64_t quantities[] = {
        Q(INSNS), Q(CYCLES), Q(REF_CYCLES),
    };
    Model *m = &model[PMU_FIXED(i)];
    uint64_t field = rnd() & 0xb;

    m->quantities = quantities[i];
    m->rows = (field & 1 ? 1 << RETIRE_OS : 0) |
              (field & 2 ? 1 << RETIRE_USR : 0);
    m->pmi = field & 8;
    m->value = random_value();
    wr(FIXED_CTR_CTRL, (rd(FIXED_CTR_CTRL) & ~(0xfull << 4 * i)) |
                       field << 4 * i);
    wr(FIXED_CTR(i), m->value);
}

static void check_model(void)
{
    for (unsigned n = 0; n < config.counters; n++) {
        g_assert_cmphex(rd(pmc_msr(n)), ==, model[n].value);
    }
    for (unsigned i = 0; i < config.fixed; i++) {
        g_assert_cmphex(rd(FIXED_CTR(i)), ==, model[PMU_FIXED(i)].value);
    }
    if (config.version >= 2 || config.perfmon_v2) {
        g_assert_cmphex(rd(is_amd() ? V2_STATUS : GLOBAL_STATUS) & ~CTR_FRZ,
                        ==, model_status);
    }
}

/* An interrupting counter whose quantities are exact */
static bool is_exact(const Model *m)
{
    return !(m->quantities & ~(Q(INSNS) | Q(CYCLES))) &&
           !(m->sel >> 24) && !(m->sel & EDGE);
}

/* In how many instructions of @row the next exact counter overflows */
static uint64_t exact_distance(RetireRow row, bool *all)
{
    uint64_t least = UINT32_MAX;

    *all = true;
    for (unsigned n = 0; n < PMU_NR_COUNTERS; n++) {
        const Model *m = &model[n];

        if (m->pmi && (m->rows >> row & 1) && !model_frozen) {
            uint64_t left = (1ull << WIDTH) - m->value;
            uint64_t clocks = m->quantities & Q(CYCLES) ?
                              config.insn_clocks : 1;

            if (is_exact(m)) {
                least = MIN(least, (left + clocks - 1) / clocks - 1);
            } else {
                *all = false;
            }
        }
    }
    return least;
}

/*
 * Up to @n instructions in which nothing can overflow, by @distance or by what
 * pmu_distances() says, and one more; whether there is a PMI behind that.
 */
static bool run_insns(RetireRow row, uint32_t n, uint32_t distance)
{
    bool by_branches = rnd() % 2, safe, pmi;
    uint32_t branches = 0;

    if (by_branches) {
        distance = pmu_distances(&pmu, &config, row, &branches);
    }
    do {
        uint64_t insn = random_insn();

        safe = n && distance;
        n -= safe;
        distance -= safe;
        if (by_branches && (insn & ~(Q(INSNS) | Q_MEMORY))) {
            safe &= branches > 0;
            branches -= branches > 0;
        }
        pmi = model_insn(row, insn);
        for (uint64_t q = insn; q; q &= q - 1) {
            pmu_count(&pmu, row, __builtin_ctzll(q), 1);
        }
        if (safe) {
            g_assert_false(pmi);
            if (rnd() % 10 == 0) {
                g_assert_false(pmu_sync(&pmu, &config));
            }
        }
    } while (safe);
    return pmi;
}

static void run_program(unsigned cpu, unsigned *pmis, unsigned *exact)
{
    RetireRow row = RETIRE_OS;

    for (int length = 0; length < 300; length++) {
        uint32_t distance;
        bool all, pmi = false;
        uint64_t least;

        if (rnd() % 5 == 0) {
            row = !row;
        }
        if (rnd() % 8 == 0) {
            pmu_count(&pmu, row, PMU_INTERRUPTS, 1);
            pmi = model_interrupt(row);
        } else {
            distance = pmu_distance(&pmu, &config, row);
            least = exact_distance(row, &all);
            if (all && least < PMU_NEAR) {
                g_assert_cmpint(distance, ==, least);
                ++*exact;
            } else {
                g_assert_cmpint(distance, <=, least);
            }
            pmi = run_insns(row, rnd() % 50, distance);
        }
        if (rnd() % 2) {
            g_assert_cmpint(pmu_sync(&pmu, &config), ==, pmi);
        } else {
            g_assert_cmpint(pmu_settle(&pmu, &config), ==, pmi);
        }
        if (pmi) {
            ++*pmis;
            model_frozen = pmu.debugctl & FREEZE_PERFMON;
        }
        if (pmi || rnd() % 20 == 0) {
            check_model();
        }
        if (pmi || rnd() % 30 == 0) {
            /* The handler */
            if (config.version >= 2) {
                wr(STATUS_RESET, rd(GLOBAL_STATUS));
                wr(GLOBAL_CTRL, 0x700000000ull | ONES(config.counters));
                model_status = 0;
                model_frozen = false;
            } else if (config.perfmon_v2) {
                wr(V2_STATUS_CLR, rd(V2_STATUS));
                model_status = 0;
            }
            random_gp(cpu, rnd() % config.counters);
            if (config.fixed) {
                random_fixed(rnd() % 3);
            }
        }
    }
    check_model();
}

static void test_random(void)
{
    unsigned pmis = 0, exact = 0;

    for (int round = 0; round < 4000; round++) {
        unsigned cpu = rnd() % NR_CPUS;

        /* The models' counters have the width of most. */
        be_cpu(cpu);
        wr(evtsel_msr(0), 0);
        wr(pmc_msr(0), ~0ull);
        if (rd(pmc_msr(0)) != ONES(WIDTH)) {
            continue;
        }
        config.insn_clocks = 1 + rnd() % 4;
        config.refclk_ratio = rnd() % 2 ? 1000 :
                              1 + rnd() % 4000;
        memset(model, 0, sizeof(model));
        memset(model_fraction, 0, sizeof(model_fraction));
        model_status = 0;
        model_frozen = false;
        for (unsigned n = 0; n < config.counters; n++) {
            random_gp(cpu, n);
        }
        for (unsigned i = 0; i < config.fixed; i++) {
            random_fixed(i);
        }
        if (config.version >= 2) {
            wr(GLOBAL_CTRL, 0x700000000ull | ONES(config.counters));
            pmu.debugctl = rnd() & FREEZE_PERFMON;
        }
        run_program(cpu, &pmis, &exact);
    }
    /* The program is one that tests something. */
    g_assert_cmpint(pmis, >, 10000);
    g_assert_cmpint(exact, >, 1000);
}

enum {
    NHM = 0x1a, WSM = 0x2c, SNB = 0x2a, HSW = 0x3c, BDW = 0x3d, SKL = 0x5e,
    ICL = 0x6a, GLC = 0x8f, KNM = 0x85, GLM = 0x5f, TNT = 0x86, CMT = 0xaf,
};

/* Linux' extra_regs[], and libpfm4's tables */
static uint32_t offcore_event(unsigned model, unsigned n)
{
    switch (model) {
    case KNM:
    case GLM:
    case TNT:
    case CMT:
        return n ? 0x02b7 : 0x01b7;
    case GLC:
        return n ? 0x012b : 0x012a;
    default:
        return n ? 0x01bb : 0x01b7;
    }
}

/* SDM 18.9.5: what is counted of offcore responses follows from the masks. */
static void test_offcore(void)
{
    static const uint32_t codes[] = {
        0x01b7, 0x02b7, 0x01bb, 0x02bb, 0x012a, 0x012b, 0x022a,
    };
    static const struct {
        unsigned model;
        uint64_t mask;
        uint64_t quantities;
    } tests[] = {
        { NHM, 0x0101, Q(LOAD_L3) },
        { NHM, 0x0201, Q(LOAD_REMOTE) },
        { NHM, 0x0401, Q(LOAD_MODIFIED) },
        { NHM, 0x0701, Q_L3 },
        { NHM, 0x6001, Q(LOAD_DRAM) },
        { NHM, 0x4001, Q(LOAD_DRAM) },
        { NHM, 0x2001, Q_NEVER },               /* another node's */
        { NHM, 0xff01, Q_NOT_L2 },
        { NHM, 0x4002, Q(STORE_DRAM) },
        { NHM, 0x4004, 0 },                     /* code */
        { NHM, 0xf70a, Q_S_NOT_L2 },
        { NHM, 0x700a, Q(STORE_DRAM) },
        { WSM, 0x4001, Q(LOAD_DRAM) },
        { SNB, 0x3fffc20001ull, Q(LOAD_DRAM) },
        { SNB, 0x1fff800081ull, Q_NEVER },
        { SNB, 0x10001, Q_NOT_L2 },
        { HSW, 0x3fb8400001ull, Q(LOAD_DRAM) },
        { HSW, 0x1fb8000001ull, Q_NEVER },
        { HSW, 0x1f84000001ull, Q_NEVER },
        { BDW, 0x1f84000001ull, Q(LOAD_DRAM) },
        { BDW, 0x1f80400001ull, Q_NEVER },
        { SKL, 0x10001, Q_NOT_L2 },
        { SKL, 0x10002, Q_S_NOT_L2 },
        { SKL, 0x10003, Q_NOT_L2 | Q_S_NOT_L2 },
        { SKL, 0x1f84000002ull, Q(STORE_DRAM) },
        { SKL, 0x1fb8000002ull, Q_NEVER },
        { SKL, 0x3f803c0001ull, Q_L3 },
        { SKL, 0x3c0001, Q_NEVER },             /* no answer */
        { SKL, 0x80003c0001ull, Q_NEVER },
        { SKL, 0x0803c0001ull, Q(LOAD_L3) },
        { SKL, 0x1003c0001ull, Q(LOAD_L3) },
        { SKL, 0x2003c0001ull, Q(LOAD_L3) },
        { SKL, 0x4003c0001ull, Q(LOAD_REMOTE) },
        { SKL, 0x8003c0001ull, Q(LOAD_REMOTE) },
        { SKL, 0x10003c0001ull, Q(LOAD_MODIFIED) },
        { SKL, 0x10003c0002ull, Q(STORE_MODIFIED) },
        { SKL, 0x3fbc000001ull, Q(LOAD_DRAM) },
        { SKL, 0x1fc4000001ull, Q(LOAD_DRAM) },
        { SKL, 0x1ff8000001ull, Q_NEVER },
        { SKL, 0x3c04000001ull, Q_NEVER },      /* somebody has it */
        { ICL, 0x3fffc00001ull, Q(LOAD_DRAM) },
        { ICL, 0, 0 },
        { GLC, 0x3fbfc00001ull, Q(LOAD_DRAM) },
        { GLC, 0x10c000001ull, Q(LOAD_DRAM) },
        { GLC, 0x3fb3000001ull, Q_NEVER },
        { TNT, 0x10001, Q_NOT_L2 },
        { CMT, 0x10001, Q_NOT_L2 },
        { TNT, 0x3f04000001ull, Q(LOAD_DRAM) },
        /* Theirs are requests to L2. */
        { KNM, 0x10001, Q_NOT_L1 },
        { GLM, 0x10001, Q_NOT_L1 },
        { GLM, 0x40001, Q(LOAD_L2) },
        { GLM, 0x3600000001ull, Q_NOT_L2 },
        { GLM, 0x3600000002ull, Q_S_NOT_L2 },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        unsigned masks = tests[i].model == NHM ? 1 : 2;

        for (unsigned n = 0; n < masks; n++) {
            uint64_t expected = 0;
            uint32_t event;

            be_intel(tests[i].model);
            wr(0x1a6 + n, tests[i].mask);
            g_assert_cmphex(rd(0x1a6 + n), ==, tests[i].mask);
            if (masks == 2) {
                g_assert_cmphex(rd(0x1a7 - n), ==, 0);
            }
            wr(PERFEVTSEL(1), RUN | offcore_event(tests[i].model, n));
            g_assert_cmpint(pmu_take_unknown(&pmu, &event), ==,
                            !tests[i].quantities);
            for (unsigned q = 0; q < PMU_NR_COUNTED; q++) {
                pmu_count(&pmu, RETIRE_OS, q, PMU_BIT(q));
                expected += tests[i].quantities & ~Q_NEVER & PMU_BIT(q);
            }
            g_assert_cmpint(rd(PMC(1)), ==, expected);
            /* A mask that changes concerns counters that run. */
            wr(0x1a6 + n, tests[i].model == NHM || tests[i].model == WSM ?
                          0x4001 : 0x10001);
            pmu_count(&pmu, RETIRE_OS, PMU_LOAD_DRAM, 1);
            g_assert_cmpint(rd(PMC(1)), ==, expected + 1);
        }
    }
    pmu_reset(&pmu, &config);
    g_assert_cmphex(rd(0x1a7), ==, 0);

    /* No other code goes by a mask. */
    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        for (unsigned n = 0; n < G_N_ELEMENTS(codes); n++) {
            bool known = codes[n] == offcore_event(tests[i].model, 0) ||
                         (tests[i].model != NHM &&
                          codes[n] == offcore_event(tests[i].model, 1));
            uint32_t event;

            be_intel(tests[i].model);
            wr(0x1a6, tests[i].model <= WSM ? 0x4001 : 0x10001);
            if (tests[i].model != NHM) {
                wr(0x1a7, tests[i].model <= WSM ? 0x4001 : 0x10001);
            }
            wr(PERFEVTSEL(0), RUN | codes[n]);
            g_assert_cmpint(pmu_take_unknown(&pmu, &event), ==, !known);
        }
    }

    /* The second mask came with Westmere. */
    be_intel(NHM);
    gp(0x1a7);
    wr(PERFEVTSEL(0), RUN | 0x01bb);
    pmu_count(&pmu, RETIRE_OS, PMU_LOAD_DRAM, 1);
    g_assert_cmpint(rd(PMC(0)), ==, 0);
    pmu.offcore[1] = 1;
    g_assert_false(pmu_load_state(&pmu, &config));
    be_intel(0x0f);
    other(0x1a6);
    pmu.offcore[1] = 1;
    g_assert_false(pmu_load_state(&pmu, &config));
    be_k7();
    other(0x1a7);
}

/*
 * Instructions with up to PMU_MEMORY_MAX accesses, and iterations of others:
 * the PMI comes behind the one that overflows, however far away that was.
 */
static void test_memory(void)
{
    static const uint32_t periods[] = { 1, 2, 100, 128, 129, 5000, 1000003 };

    for (unsigned i = 0; i < G_N_ELEMENTS(periods); i++) {
        uint64_t loads = 0, steps = 0;
        bool pmi = false;

        be_intel(0x5e);
        wr(PERFEVTSEL(0), RUN | INT | 0x81d0);
        wr(PMC(0), -periods[i]);
        wr(PERFEVTSEL(1), RUN | 0x82d0);
        while (!pmi) {
            uint32_t branches;
            uint32_t n = pmu_distances(&pmu, &config, RETIRE_USR, &branches);

            g_assert_cmpint(loads, <, periods[i]);
            for (; n > 0; n--) {
                uint32_t accesses = rnd() % 4 ? rnd() % 3 :
                                    rnd() % (PMU_MEMORY_MAX + 1);

                loads += accesses;
                pmu_count(&pmu, RETIRE_USR, PMU_LOAD_L2, accesses / 2);
                pmu_count(&pmu, RETIRE_USR, PMU_LOAD_L1,
                          accesses - accesses / 2);
                pmu_count(&pmu, RETIRE_USR, PMU_STORES, accesses);
                pmu_count(&pmu, RETIRE_USR, PMU_INSNS, 1);
            }
            g_assert_false(pmu_sync(&pmu, &config));
            g_assert_cmpint(loads, <, periods[i]);
            /* One that may be it; an iteration does not retire. */
            loads++;
            pmu_count(&pmu, RETIRE_USR, PMU_LOAD_DRAM, 1);
            pmu_count(&pmu, RETIRE_USR, PMU_STORES, 1);
            pmu_count(&pmu, RETIRE_USR, PMU_INSNS, rnd() % 2);
            pmi = pmu_sync(&pmu, &config);
            steps++;
        }
        g_assert_cmpint(loads, ==, periods[i]);
        g_assert_cmpint(rd(PMC(0)), ==, 0);
        g_assert_cmpint(rd(PMC(1)), ==, loads);
        g_assert_cmpint(steps, <, 2 * PMU_MEMORY_MAX + 1000);
    }
}

/* What one instruction counts for. */
static uint64_t count_fp(unsigned fp, uint64_t n)
{
    uint64_t fps[RETIRE_NR_FP] = { 0 };

    fps[fp] = n;
    pmu_count_fp(&pmu, &config, RETIRE_USR, fps);
    return rd(pmc_msr(0));
}

#define FP(width, kind) RETIRE_FP(RETIRE_FP_ ## width, RETIRE_FP_ ## kind)

static void test_fp(void)
{
    static const struct {
        unsigned cpu;
        uint64_t sel;
        uint8_t n[RETIRE_NR_FP];
    } tests[] = {
#define ALL(width, n) [FP(width, ADD)] = 1, [FP(width, MUL)] = 1, \
                      [FP(width, DIV)] = 1, [FP(width, OTHER)] = 1, \
                      [FP(width, MAC)] = (n), [FP(width, DP)] = (n)
#define ONCE(width)     ALL(width, 1)
#define TWICE(width)    ALL(width, 2)
#define NONE(width)     [FP(width, NONE)] = 1
        { P6, 0x00c1, { ONCE(X87) } },
        { P6, 0x0010, { ONCE(X87), [FP(X87, INT)] = 1 } },
        { CORE2, 0x0010,
          { ONCE(X87), ONCE(SS), ONCE(SD), ONCE(PS), ONCE(PD) } },
        { CORE2, 0x01ca, { ONCE(PS) } },
        { CORE2, 0x0aca, { ONCE(SS), ONCE(SD) } },
        { CORE2, 0x04ca, { ONCE(PD) } },
        { NEHALEM, 0x0110, { ONCE(X87), [FP(X87, INT)] = 1 } },
        { NEHALEM, 0x0410, { ONCE(SS), ONCE(SD), ONCE(PS), ONCE(PD) } },
        { NEHALEM, 0x1010, { ONCE(PS), ONCE(PD) } },
        { WESTMERE, 0x2010, { ONCE(SS), ONCE(SD) } },
        { WESTMERE, 0x4010, { ONCE(SS), ONCE(PS) } },
        { WESTMERE, 0x8010, { ONCE(SD), ONCE(PD) } },
        { IVY_BRIDGE, 0x0110, { ONCE(X87), [FP(X87, INT)] = 1 } },
        { IVY_BRIDGE, 0x1010, { ONCE(PD) } },
        { IVY_BRIDGE, 0x2010, { ONCE(SS) } },
        { IVY_BRIDGE, 0x4010, { ONCE(PS) } },
        { IVY_BRIDGE, 0x9010, { ONCE(SD), ONCE(PD) } },
        { SANDY_BRIDGE, 0x0111, { ONCE(PS256) } },
        { SANDY_BRIDGE, 0x0211, { ONCE(PD256) } },
        { BROADWELL, 0x01c7, { TWICE(SD) } },
        { SKYLAKE, 0x02c7, { TWICE(SS) } },
        { SKYLAKE, 0x04c7, { TWICE(PD) } },
        { SKYLAKE, 0x08c7, { TWICE(PS) } },
        { ICE_LAKE, 0x10c7, { TWICE(PD256) } },
        { GOLDEN_COVE, 0x20c7, { TWICE(PS256) } },
        { GOLDEN_COVE, 0x15c7, { TWICE(SD), TWICE(PD), TWICE(PD256) } },
        { SKYLAKE, 0x40c7, { 0 } },
        { SKYLAKE, 0xa0c7, { TWICE(PS256) } },
        { SKYLAKE, 0x08c7 | CMASK(1), { ONCE(PS) } },
        { SKYLAKE, 0x08c7 | EDGE, { ONCE(PS) } },
        { SKYLAKE, 0x08c7 | CMASK(2),
          { [FP(PS, MAC)] = 1, [FP(PS, DP)] = 1 } },
        { SKYLAKE, 0x08c7 | CMASK(3), { 0 } },
        { ZEN, 0x0102, { [FP(X87, ADD)] = 1 } },
        { ZEN2, 0x0602, { [FP(X87, MUL)] = 1, [FP(X87, DIV)] = 1 } },
        { ZEN2, 0x0103,
          { [FP(SS, ADD)] = 1, [FP(SD, ADD)] = 1, [FP(PS, ADD)] = 4,
            [FP(PD, ADD)] = 2, [FP(PS256, ADD)] = 8, [FP(PD256, ADD)] = 4,
            [FP(SS, DP)] = 1, [FP(SD, DP)] = 1, [FP(PS, DP)] = 4,
            [FP(PD, DP)] = 2, [FP(PS256, DP)] = 8, [FP(PD256, DP)] = 4 } },
        { ZEN2, 0x0c03,
          { [FP(SS, DIV)] = 1, [FP(SD, DIV)] = 1, [FP(PS, DIV)] = 4,
            [FP(PD, DIV)] = 2, [FP(PS256, DIV)] = 8, [FP(PD256, DIV)] = 4,
            [FP(SS, MAC)] = 2, [FP(SD, MAC)] = 2, [FP(PS, MAC)] = 8,
            [FP(PD, MAC)] = 4, [FP(PS256, MAC)] = 16, [FP(PD256, MAC)] = 8 } },
        { ZEN2, 0x0803 | CMASK(9), { [FP(PS256, MAC)] = 1 } },
        { PERFMON_V2, 0x0203 | CMASK(4),
          { [FP(PS, MUL)] = 1, [FP(PS256, MUL)] = 1, [FP(PD256, MUL)] = 1,
            [FP(PS, DP)] = 1, [FP(PS256, DP)] = 1, [FP(PD256, DP)] = 1 } },
        { ZEN, 0x2103,
          { [FP(SS, ADD)] = 1, [FP(PS, ADD)] = 4, [FP(PS256, ADD)] = 8,
            [FP(SD, MUL)] = 1, [FP(PD, MUL)] = 2, [FP(PD256, MUL)] = 4,
            [FP(SS, DP)] = 1, [FP(PS, DP)] = 4, [FP(PS256, DP)] = 8,
            [FP(SD, DP)] = 1, [FP(PD, DP)] = 2, [FP(PD256, DP)] = 4 } },
        { FAM15H, 0x8003,
          { [FP(SD, MAC)] = 2, [FP(PD, MAC)] = 4, [FP(PD256, MAC)] = 8 } },
        { ZEN2, 0x01cb, { ONCE(X87), NONE(X87) } },
        { K7, 0x02cb, { ONCE(MMX), NONE(MMX) } },
        { ZEN, 0x05cb,
          { ONCE(X87), ONCE(SS), ONCE(SD), ONCE(PS), ONCE(PD), ONCE(PS256),
            ONCE(PD256), NONE(X87), NONE(SS), NONE(SD), NONE(PS), NONE(PD),
            NONE(PS256), NONE(PD256) } },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        for (unsigned fp = 0; fp < RETIRE_NR_FP; fp++) {
            uint64_t n = tests[i].n[fp];

            be_cpu(tests[i].cpu);
            config.insn_clocks = 3;
            wr(evtsel_msr(0), tests[i].sel | USR | EN);
            g_assert_true(wants(RETIRE_USR, RETIRE_WANT_FP));
            g_assert_false(wants(RETIRE_OS, RETIRE_WANT_FP));
            g_assert_cmpint(count_fp(fp, 1), ==, n);
            g_assert_cmpint(count_fp(fp, 100), ==, 101 * n);
            /* The clocks in which it is not so many */
            if (tests[i].sel >> 24) {
                wr(evtsel_msr(0), tests[i].sel | USR | EN | INV);
                wr(pmc_msr(0), 0);
                run(RETIRE_USR, 10);
                g_assert_cmpint(count_fp(fp, 10), ==, 30 - 10 * n);
            }
        }
    }

    /* Half of a program is at a privilege that does not count. */
    be_cpu(SKYLAKE);
    wr(PERFEVTSEL(0), OS | EN | 0x01c7);
    g_assert_cmpint(count_fp(FP(SD, ADD), 5), ==, 0);
    g_assert_false(wants(RETIRE_USR, RETIRE_WANT_FP));
    /* P6 has one counter for these. */
    be_cpu(P6);
    wr(PERFEVTSEL(0), RUN);
    wr(PERFEVTSEL(1), RUN | 0xc1);
    g_assert_false(wants(RETIRE_USR, RETIRE_WANT_FP));
    /* What comes from outside starts afresh. */
    be_cpu(SKYLAKE);
    wr(PERFEVTSEL(0), RUN | 0x01c7);
    pmu_count_fp(&pmu, &config, RETIRE_USR,
                 (const uint64_t[RETIRE_NR_FP]) { [FP(SD, ADD)] = 1 });
    g_assert_true(pmu_load_state(&pmu, &config));
    g_assert_true(wants(RETIRE_USR, RETIRE_WANT_FP));
    g_assert_cmpint(count_fp(FP(SD, ADD), 2), ==, 2);
}

/* The PMI comes behind the instruction that overflows, whatever it adds. */
static void test_fp_period(void)
{
    static const uint32_t periods[] = { 1, 2, 15, 16, 17, 1000, 100003 };

    for (unsigned i = 0; i < G_N_ELEMENTS(periods); i++) {
        uint64_t counts = 0, steps = 0;
        bool pmi = false;

        be_cpu(ZEN2);
        wr(K7_EVTSEL(0), RUN | INT | 0xff03);
        wr(K7_PERFCTR(0), -(uint64_t)periods[i]);
        while (!pmi) {
            uint64_t fps[RETIRE_NR_FP] = { 0 };
            uint32_t branches;
            uint32_t n = pmu_distances(&pmu, &config, RETIRE_USR, &branches);

            fps[FP(PS256, MAC)] = rnd() % (n + 1);
            counts += 16 * fps[FP(PS256, MAC)];
            pmu_count_fp(&pmu, &config, RETIRE_USR, fps);
            pmu_count(&pmu, RETIRE_USR, PMU_INSNS, n);
            g_assert_false(pmu_sync(&pmu, &config));
            g_assert_cmpint(counts, <, periods[i]);
            memset(fps, 0, sizeof(fps));
            fps[FP(PD, MUL)] = 1;
            counts += 2;
            pmu_count_fp(&pmu, &config, RETIRE_USR, fps);
            pmi = run(RETIRE_USR, 1);
            steps++;
        }
        g_assert_cmpint(counts - periods[i], <, 2);
        g_assert_cmpint(rd(K7_PERFCTR(0)), ==, counts - periods[i]);
        g_assert_cmpint(steps, <, 200);
    }
}

/* Zen's MERGE: the next counter has 16 bits more. */
static void test_merge(void)
{
    const uint64_t merge = 0xf000000ffull | EN;
    uint32_t event;

    be_cpu(ZEN2);
    wr(EXT_EVTSEL(2), RUN | INT | 0x0803);
    wr(EXT_EVTSEL(3), merge);
    g_assert_false(pmu_take_unknown(&pmu, &event));
    wr(EXT_PERFCTR(2), -16);
    wr(EXT_PERFCTR(3), 0xfffe);
    count_fp(FP(PS256, MAC), 1);
    g_assert_false(pmu_settle(&pmu, &config));
    g_assert_cmphex(rd(EXT_PERFCTR(2)), ==, 0);
    g_assert_cmphex(rd(EXT_PERFCTR(3)), ==, 0xffff);
    wr(EXT_PERFCTR(2), -16);
    count_fp(FP(PS256, MAC), 1);
    g_assert_true(pmu_settle(&pmu, &config));
    g_assert_cmphex(rd(EXT_PERFCTR(2)), ==, 0);
    g_assert_cmphex(rd(EXT_PERFCTR(3)), ==, 0);
    /* Only the counter before it, only a counter behind one, and if enabled */
    wr(EXT_EVTSEL(3), merge & ~(uint64_t)EN);
    wr(EXT_PERFCTR(2), -16);
    count_fp(FP(PS256, MAC), 1);
    g_assert_true(pmu_settle(&pmu, &config));
    g_assert_cmphex(rd(EXT_PERFCTR(3)), ==, 0);
    wr(EXT_EVTSEL(4), merge);
    g_assert_true(pmu_take_unknown(&pmu, &event));
    g_assert_cmphex(event, ==, 0xfff);
    be_k7();
    wr(K7_EVTSEL(1), merge);
    g_assert_true(pmu_take_unknown(&pmu, &event));
}

/* APERF and MPERF: clocks of all rows, from when somebody first asks for one */
static void test_clocks(void)
{
    enum {
        MPERF = 0xe7, APERF = 0xe8,
        MPERF_READ_ONLY = 0xc00000e7, APERF_READ_ONLY = 0xc00000e8,
    };
    PmuState saved;

    be_cpu(SKYLAKE);
    config.insn_clocks = 3;
    config.refclk_ratio = 500;
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_USR), ==, 0);
    run(RETIRE_USR, 10);
    g_assert_cmpint(rd(APERF), ==, 0);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_USR), ==, Q(INSNS));
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_OS), ==, Q(INSNS));
    run(RETIRE_USR, 10);
    run(RETIRE_OS, 20);
    g_assert_cmpint(rd(APERF), ==, 90);
    g_assert_cmpint(rd(MPERF), ==, 45);
    /* No counter, nor what stops them, makes a difference. */
    wr(PERFEVTSEL(0), RUN | 0x00c0);
    wr(GLOBAL_CTRL, 0);
    run(RETIRE_USR, 2);
    g_assert_cmpint(rd(APERF), ==, 96);
    wr(APERF, -6);
    wr(MPERF, 7);
    run(RETIRE_OS, 4);
    g_assert_cmphex(rd(APERF), ==, 6);
    g_assert_cmphex(rd(MPERF), ==, 13);

    saved = pmu;
    g_assert_true(pmu_load_state(&pmu, &config));
    run(RETIRE_OS, 2);
    g_assert_cmphex(rd(APERF), ==, 12);
    pmu = saved;
    config.aperfmperf = false;
    g_assert_false(pmu_load_state(&pmu, &config));
    config.aperfmperf = true;
    pmu = saved;
    pmu.clocks = false;
    g_assert_false(pmu_load_state(&pmu, &config));
    pmu_reset(&pmu, &config);
    g_assert_cmphex(pmu_wanted(&pmu, RETIRE_OS), ==, 0);
    g_assert_cmphex(rd(MPERF), ==, 0);

    /* To write one is to ask for both. */
    pmu_reset(&pmu, &config);
    wr(MPERF, 5);
    run(RETIRE_OS, 2);
    g_assert_cmphex(rd(MPERF), ==, 8);
    g_assert_cmphex(rd(APERF), ==, 6);

    be_cpu(ZEN);
    wr(APERF, 0);
    run(RETIRE_OS, 2);
    g_assert_cmphex(rd(APERF), ==, 2);

    /* Zen has them twice. */
    be_cpu(ZEN);
    g_assert_cmphex(rd(APERF_READ_ONLY), ==, 0);
    run(RETIRE_USR, 2);
    wr(APERF_READ_ONLY, 9);
    wr(MPERF_READ_ONLY, 9);
    g_assert_cmphex(rd(APERF_READ_ONLY), ==, 2);
    g_assert_cmphex(rd(MPERF_READ_ONLY), ==, 2);
    g_assert_cmphex(rd(APERF), ==, 2);
    config.aperfmperf = false;
    other(APERF);
    other(APERF_READ_ONLY);
    be_cpu(K7);
    other(APERF_READ_ONLY);
    be_cpu(SKYLAKE);
    other(APERF_READ_ONLY);
    be_cpu(P6);
    other(MPERF);
}

/*
 * However what is counted is divided, distances lead to the overflow, and in
 * few steps.
 */
static void test_distance(void)
{
    static const struct {
        uint64_t sel;
        uint32_t clocks, ratio;
        PmuQuantity quantity;       /* that each third instruction counts for */
        uint64_t insns;             /* that retire until the overflow */
    } tests[] = {
        { 0x00c0, 1, 1000, PMU_JMP, 100000 },
        { 0x003c, 1, 1000, PMU_JMP, 100000 },
        { 0x003c, 7, 1000, PMU_JMP, 14286 },
        { 0x013c, 1, 1000, PMU_JMP, 100000 },
        { 0x013c, 3, 100, PMU_JMP, 333334 },
        { 0x013c, 1000, 10000, PMU_JMP, 10 },
        { 0x01c4, 1, 1000, PMU_COND_NOT_TAKEN, 300000 },
        { 0x02c5, 1, 1000, PMU_MISP_CALL_IND, 300000 },
        { 0x00c4 | INV | CMASK(1), 2, 1000, PMU_JMP, 60000 },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(tests); i++) {
        uint64_t insns = 0, thirds = 0;
        unsigned steps = 0;
        bool pmi = false;

        be_intel(0x5e);
        config.insn_clocks = tests[i].clocks;
        config.refclk_ratio = tests[i].ratio;
        wr(PERFEVTSEL(0), RUN | INT | tests[i].sel);
        wr(PMC(0), -100000);
        while (!pmi) {
            uint32_t n = pmu_distance(&pmu, &config, RETIRE_USR);

            n = MAX(MIN(n, 8191), 1);
            insns += n;
            pmu_count(&pmu, RETIRE_USR, tests[i].quantity, insns / 3 - thirds);
            thirds = insns / 3;
            pmi = run(RETIRE_USR, n);
            steps++;
        }
        g_assert_cmpint(insns, ==, tests[i].insns);
        g_assert_cmpint(steps, <, 100);
        g_assert_cmpint(rd(PMC(0)), <, tests[i].clocks * tests[i].ratio);
    }
}

int main(int argc, char *argv[])
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/pmu/flavours", test_flavours);
    g_test_add_func("/pmu/configure", test_configure);
    g_test_add_func("/pmu/presence", test_presence);
    g_test_add_func("/pmu/evtsel", test_evtsel);
    g_test_add_func("/pmu/width", test_width);
    g_test_add_func("/pmu/global", test_global);
    g_test_add_func("/pmu/inuse", test_inuse);
    g_test_add_func("/pmu/debugctl", test_debugctl);
    g_test_add_func("/pmu/reset", test_reset);
    g_test_add_func("/pmu/rdpmc", test_rdpmc);
    g_test_add_func("/pmu/amd", test_amd);
    g_test_add_func("/pmu/perfmon-v2", test_perfmon_v2);
    g_test_add_func("/pmu/svm", test_svm);
    g_test_add_func("/pmu/p6", test_p6);
    g_test_add_func("/pmu/p5", test_p5);
    g_test_add_func("/pmu/6x86mx", test_6x86mx);
    g_test_add_func("/pmu/winchip", test_winchip);
    g_test_add_func("/pmu/c3", test_c3);
    g_test_add_func("/pmu/zhaoxin", test_zhaoxin);
    g_test_add_func("/pmu/old-events", test_old_events);
    g_test_add_func("/pmu/p4/registers", test_p4_registers);
    g_test_add_func("/pmu/p4/map", test_p4_map);
    g_test_add_func("/pmu/p4/rows", test_p4_rows);
    g_test_add_func("/pmu/p4/overflow", test_p4_overflow);
    g_test_add_func("/pmu/p4/cascade", test_p4_cascade);
    g_test_add_func("/pmu/p4/compare", test_p4_compare);
    g_test_add_func("/pmu/p4/events", test_p4_events);
    g_test_add_func("/pmu/p4/load", test_p4_load);
    g_test_add_func("/pmu/events", test_events);
    g_test_add_func("/pmu/bits", test_bits);
    g_test_add_func("/pmu/hits", test_hits);
    g_test_add_func("/pmu/high-events", test_high_events);
    g_test_add_func("/pmu/list", test_list);
    g_test_add_func("/pmu/frontend", test_frontend);
    g_test_add_func("/pmu/classes", test_classes);
    g_test_add_func("/pmu/no-models", test_no_models);
    g_test_add_func("/pmu/unknown", test_unknown);
    g_test_add_func("/pmu/setting", test_setting);
    g_test_add_func("/pmu/cmask", test_cmask);
    g_test_add_func("/pmu/overflow", test_overflow);
    g_test_add_func("/pmu/distances", test_distances);
    g_test_add_func("/pmu/preset", test_preset);
    g_test_add_func("/pmu/freeze", test_freeze);
    g_test_add_func("/pmu/freeze-amd", test_freeze_amd);
    g_test_add_func("/pmu/smm", test_smm);
    g_test_add_func("/pmu/running", test_running);
    g_test_add_func("/pmu/load", test_load);
    g_test_add_func("/pmu/random", test_random);
    g_test_add_func("/pmu/offcore", test_offcore);
    g_test_add_func("/pmu/not-modelled", test_not_modelled);
    g_test_add_func("/pmu/stalled", test_stalled);
    g_test_add_func("/pmu/ref-cycles", test_ref_cycles);
    g_test_add_func("/pmu/page-walks", test_page_walks);
    g_test_add_func("/pmu/memory", test_memory);
    g_test_add_func("/pmu/fp", test_fp);
    g_test_add_func("/pmu/fp-period", test_fp_period);
    g_test_add_func("/pmu/merge", test_merge);
    g_test_add_func("/pmu/clocks", test_clocks);
    g_test_add_func("/pmu/distance", test_distance);
    return g_test_run();
}
