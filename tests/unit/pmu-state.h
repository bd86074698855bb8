/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A PMU and its registers, for unit tests of its engine. */
#ifndef TESTS_UNIT_PMU_STATE_H
#define TESTS_UNIT_PMU_STATE_H

#include <string.h>
#include <glib.h>
#include "netburst.h"

#define PERFEVTSEL(n)   (0x186 + (n))
#define PMC(n)          (0xc1 + (n))
#define FIXED_CTR(i)    (0x309 + (i))
#define FIXED_CTR_CTRL  0x38d
#define GLOBAL_STATUS   0x38e
#define GLOBAL_CTRL     0x38f
#define STATUS_RESET    0x390
#define GLOBAL_INUSE    0x392

#define USR             (1u << 16)
#define OS              (1u << 17)
#define INT             (1u << 20)
#define EN              (1u << 22)
#define RUN             (USR | OS | EN)
#define FIXED_BIT(i)    (1ull << (32 + (i)))

static PmuState pmu;
static PmuConfig config;
static NetburstState netburst;

static void be(PmuVendor vendor, unsigned family, unsigned model)
{
    const PmuFlavour *flavour = pmu_flavour(vendor, family, model);

    g_assert_nonnull(flavour);
    pmu_config_init(&config, flavour);
    config.netburst = pmu_is_netburst(flavour) ? &netburst : NULL;
    memset(&pmu, 0, sizeof(pmu));
    pmu_reset(&pmu, &config);
}

static void be_intel(unsigned model)
{
    be(PMU_VENDOR_INTEL, 6, model);
}

static void wr(uint32_t msr, uint64_t val)
{
    g_assert_cmpint(pmu_wrmsr(&pmu, &config, msr, val), ==, PMU_MSR_OK);
}

static uint64_t rd(uint32_t msr)
{
    uint64_t val = 0xbad;

    g_assert_cmpint(pmu_rdmsr(&pmu, &config, msr, &val), ==, PMU_MSR_OK);
    return val;
}

#endif
