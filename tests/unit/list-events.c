/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Prints the events of all processors that have counters, or, with arguments
 * VENDOR FAMILY MODEL, what these are for the selects on stdin.
 *
 * A line of the list has the processor, the event, its unit mask ("-" without
 * one; "=" in front: all of it has to be so), the value of MSR_PEBS_FRONTEND or
 * 0, "never" or "counts", and the name.  A line of stdin has a select and
 * MSR_PEBS_FRONTEND or MSR_OFFCORE_RSP_0; what is printed for it, "counts",
 * "never" or "unknown", bits of the unit mask that are not known, and names.
 */

#include <stdio.h>
#include <string.h>
#include <inttypes.h>
#include <glib.h>
#include "pmu.h"

#define RUN     (1u << 22 | 1u << 17 | 1u << 16)

static PmuState pmu;
static PmuConfig config;

static const struct {
    const char *name;
    PmuVendor vendor;
    unsigned family, model;
} processors[] = {
    { "P5", PMU_VENDOR_INTEL, 5, 4 },
    { "6x86MX", PMU_VENDOR_CYRIX, 6, 0 },
    { "WinChip C6", PMU_VENDOR_CENTAUR, 5, 4 },
    { "WinChip 2", PMU_VENDOR_CENTAUR, 5, 8 },
    { "C3", PMU_VENDOR_CENTAUR, 6, 7 },
    { "P6", PMU_VENDOR_INTEL, 6, 6 },
    { "Core Duo", PMU_VENDOR_INTEL, 6, 0x0e },
    { "Core 2", PMU_VENDOR_INTEL, 6, 0x0f },
    { "P4", PMU_VENDOR_INTEL, 15, 2 },
    { "Nehalem", PMU_VENDOR_INTEL, 6, 0x1a },
    { "Westmere", PMU_VENDOR_INTEL, 6, 0x2c },
    { "Sandy Bridge", PMU_VENDOR_INTEL, 6, 0x2a },
    { "Ivy Bridge", PMU_VENDOR_INTEL, 6, 0x3a },
    { "Haswell", PMU_VENDOR_INTEL, 6, 0x3c },
    { "Broadwell", PMU_VENDOR_INTEL, 6, 0x3d },
    { "Skylake", PMU_VENDOR_INTEL, 6, 0x5e },
    { "Ice Lake", PMU_VENDOR_INTEL, 6, 0x6a },
    { "Golden Cove", PMU_VENDOR_INTEL, 6, 0x8f },
    { "Bonnell", PMU_VENDOR_INTEL, 6, 0x1c },
    { "Silvermont", PMU_VENDOR_INTEL, 6, 0x37 },
    { "Goldmont", PMU_VENDOR_INTEL, 6, 0x5f },
    { "Tremont", PMU_VENDOR_INTEL, 6, 0x86 },
    { "Crestmont", PMU_VENDOR_INTEL, 6, 0xaf },
    { "architectural", PMU_VENDOR_INTEL, 6, 0xff },
    { "K7", PMU_VENDOR_AMD, 15, 0x6b },
    { "15h", PMU_VENDOR_AMD, 0x15, 2 },
    { "Zen", PMU_VENDOR_AMD, 0x17, 1 },
    { "Zen 2", PMU_VENDOR_AMD, 0x17, 0x31 },
    { "Zen 3", PMU_VENDOR_AMD, 0x19, 1 },
    { "Zen 4", PMU_VENDOR_AMD, 0x19, 0x11 },
    { "Zen 5", PMU_VENDOR_AMD, 0x1a, 2 },
    { "Hygon", PMU_VENDOR_AMD, 0x18, 0 },
    { "Zhaoxin", PMU_VENDOR_CENTAUR, 7, 0x3b },
};

static void be(PmuVendor vendor, unsigned family, unsigned model)
{
    pmu_config_init(&config, pmu_flavour(vendor, family, model));
    config.insn_clocks = 2;     /* there are clocks of nothing */
    memset(&pmu, 0, sizeof(pmu));
    pmu_reset(&pmu, &config);
}

static void list(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(processors); i++) {
        unsigned next = 0;
        PmuEvent e;

        be(processors[i].vendor, processors[i].family, processors[i].model);
        while (pmu_next_event(&config, &next, &e)) {
            printf("%s\t%x\t", processors[i].name, e.event);
            if (e.no_umask) {
                printf("-");
            } else {
                printf("%s%x", e.whole_umask ? "=" : "", e.umask);
            }
            printf("\t%x\t%s\t%s\n", e.frontend,
                   e.never ? "never" : "counts", e.name);
        }
    }
}

static void answer(PmuVendor vendor, unsigned family, unsigned model)
{
    uint32_t select = vendor == PMU_VENDOR_AMD ? 0xc0010000 : 0x186;
    uint64_t sel, extra;

    while (scanf("%" SCNx64 " %" SCNx64, &sel, &extra) == 2) {
        PmuSetting setting;
        uint32_t event = 0;
        bool unknown;

        be(vendor, family, model);
        if (extra) {
            /* Each takes what it is for, or it is not there. */
            pmu_wrmsr(&pmu, &config, 0x3f7, extra);
            pmu_wrmsr(&pmu, &config, 0x1a6, extra);
        }
        pmu_wrmsr(&pmu, &config, select, sel | RUN);
        unknown = pmu_take_unknown(&pmu, &event);
        pmu_setting(&pmu, &config, 0, &setting);
        printf("%s\t%x\t%s\n", pmu.counter[0].add ? "counts" :
               unknown ? "unknown" : "never", unknown ? event >> 16 : 0,
               setting.event);
    }
}

int main(int argc, char *argv[])
{
    unsigned family, model;

    if (argc == 4 && sscanf(argv[2], "%x", &family) == 1 &&
        sscanf(argv[3], "%x", &model) == 1) {
        answer(!strcmp(argv[1], "AMD") ? PMU_VENDOR_AMD :
               !strcmp(argv[1], "Intel") ? PMU_VENDOR_INTEL :
               PMU_VENDOR_CENTAUR, family, model);
    } else {
        list();
    }
    return 0;
}
