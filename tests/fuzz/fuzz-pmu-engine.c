/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzz target: any sequence of operations on any PMU.  It is done on two of
 * them, of which one looks for overflows only where it has to and the other one
 * after each instruction: they must always be the same.  Each state must be one
 * that migration would accept.
 *
 * With clang this is a libFuzzer target; otherwise main() makes the inputs.
 */

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "pmu.h"

#define REGISTERS   offsetof(PmuState, svme)

static const uint8_t *input, *input_end;
static PmuConfig config;
static PmuState lazy, eager;

static uint64_t take(unsigned bytes)
{
    uint64_t val = 0;

    while (bytes-- && input < input_end) {
        val = val << 8 | *input++;
    }
    return val;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    abort();
}

static void same(uint64_t a, uint64_t b, const char *what)
{
    if (a != b) {
        fail(what);
    }
}

static const struct {
    PmuVendor vendor;
    unsigned family, model;
} cpus[] = {
    { PMU_VENDOR_INTEL, 6, 6 }, { PMU_VENDOR_INTEL, 6, 0x0e },
    { PMU_VENDOR_INTEL, 6, 0x17 }, { PMU_VENDOR_INTEL, 6, 0x3a },
    { PMU_VENDOR_INTEL, 6, 0x5e }, { PMU_VENDOR_INTEL, 6, 0x6a },
    { PMU_VENDOR_AMD, 15, 0x6b }, { PMU_VENDOR_AMD, 0x15, 2 },
    { PMU_VENDOR_AMD, 0x19, 0x11 },
};

static const uint32_t msrs[] = {
    0x186, 0x187, 0x188, 0x189, 0x18d, 0xc1, 0xc2, 0xc3, 0xc8, 0x4c1, 0x4c2,
    0x309, 0x30a, 0x30b, 0x30c, 0x38d, 0x38e, 0x38f, 0x390, 0x391, 0x392,
    0x1d9, 0x345, 0x48, 0x600, 0xc0000300, 0xc0000301, 0xc0000302,
    0xc0010000, 0xc0010001, 0xc0010004, 0xc0010005, 0xc0010200, 0xc0010201,
    0xc0010208, 0xc0010209,
};

/* Events of some PMU */
static const uint16_t events[] = {
    0x00c0, 0x003c, 0x013c, 0x00c4, 0x01c4, 0x20c4, 0x00c5, 0x01cb, 0x0076,
    0x00c2, 0x0079, 0x00cf, 0x412e,
};

static void write_msr(uint8_t select, uint64_t val)
{
    uint32_t msr = msrs[select % (sizeof(msrs) / sizeof(msrs[0]))];
    PmuState before = lazy;
    PmuAccess access;
    uint64_t a = 0, b = 0;

    pmu_settle(&before, &config);
    access = pmu_wrmsr(&lazy, &config, msr, val);
    same(access, pmu_wrmsr(&eager, &config, msr, val), "WRMSR");
    pmu_sync(&lazy, &config);
    if (access != PMU_MSR_OK) {
        PmuState after = lazy;

        pmu_settle(&after, &config);
        if (memcmp(&before, &after, REGISTERS)) {
            fail("a WRMSR that failed");
        }
    }
    same(pmu_rdmsr(&lazy, &config, msr, &a),
         pmu_rdmsr(&eager, &config, msr, &b), "RDMSR");
    same(a, b, "what RDMSR shows");
}

/* So many instructions of a kind, as far as nothing can happen in between. */
static void run(PmuRow row, PmuQuantity kind, uint32_t n, bool one_more)
{
    uint32_t distance = pmu_distance(&lazy, &config, row);
    bool pmi = false;

    n = (n < distance ? n : distance) + one_more;
    for (uint32_t i = 0; i < n; i++) {
        if (pmi) {
            fail("an overflow within the distance");
        }
        for (int both = 0; both < 2; both++) {
            PmuState *s = both ? &eager : &lazy;

            pmu_count(s, row, PMU_INSNS, 1);
            if (kind != PMU_INSNS && kind != PMU_INTERRUPTS) {
                pmu_count(s, row, kind, 1);
            }
        }
        pmi = pmu_settle(&eager, &config);
    }
    same(pmu_sync(&lazy, &config), pmi, "PMI");
}

static void interrupt(PmuRow row)
{
    bool pmi;

    pmu_count(&lazy, row, PMU_INTERRUPTS, 1);
    pmu_count(&eager, row, PMU_INTERRUPTS, 1);
    pmi = pmu_settle(&eager, &config);
    same(pmu_sync(&lazy, &config), pmi, "PMI of an interrupt");
}

static void check(void)
{
    PmuState copy = lazy;

    if (pmu_settle(&copy, &config)) {
        fail("a PMI that has been missed");
    }
    if (memcmp(&copy, &eager, REGISTERS)) {
        fail("two states that differ");
    }
    if (!pmu_load_state(&copy, &config)) {
        fail("a state that migration refuses");
    }
    for (int row = 0; row < PMU_NR_ROWS; row++) {
        same(pmu_wanted(&copy, row), pmu_wanted(&lazy, row), "wanted");
    }
}

static void step(uint8_t op)
{
    PmuRow row = op >> 7;
    uint64_t a = 0, b = 0;
    uint32_t ecx;

    switch (op % 10) {
    case 0:
        write_msr(take(1), take(8));
        break;
    case 1:
    case 2:
        /* An event, enabled, on one of the first counters */
        a = events[take(1) % (sizeof(events) / sizeof(events[0]))];
        b = take(2);
        write_msr(op >> 4 & 3, a | 3u << 16 | 1u << 22 | (b & 0x3f9fu) << 16);
        write_msr(28 + (op >> 4 & 1),
                  a | 3u << 16 | 1u << 22 | (b & 0x3f9fu) << 16);
        break;
    case 3:
        /* Near an overflow */
        write_msr(5 + (op >> 4 & 3), -take(1));
        write_msr(11 + (op >> 4 & 1), -take(1));
        write_msr(30 + (op >> 4 & 1), -take(1));
        break;
    case 4:
        write_msr(15, take(2));         /* FIXED_CTR_CTRL */
        write_msr(17, 0x70000000full);  /* GLOBAL_CTRL */
        write_msr(18, ~0ull >> 6);      /* STATUS_RESET */
        break;
    case 5:
    case 6:
        run(row, (op >> 4 & 7) * 2 % PMU_NR_COUNTED, take(1), op & 8);
        break;
    case 7:
        interrupt(row);
        break;
    case 8:
        ecx = take(1) | take(1) << 24;
        same(pmu_rdpmc(&lazy, &config, ecx, &a),
             pmu_rdpmc(&eager, &config, ecx, &b), "RDPMC");
        same(a, b, "what RDPMC shows");
        break;
    case 9:
        if (op & 16) {
            pmu_set_svm(&lazy, &config, op & 32, op & 64);
            pmu_set_svm(&eager, &config, op & 32, op & 64);
        } else if (op & 32) {
            pmu_smi(&lazy, &config);
            pmu_smi(&eager, &config);
        } else {
            pmu_rsm(&lazy, &config);
            pmu_rsm(&eager, &config);
        }
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned cpu;

    input = data;
    input_end = data + size;
    cpu = take(1) % (sizeof(cpus) / sizeof(cpus[0]));
    pmu_config_init(&config, pmu_flavour(cpus[cpu].vendor, cpus[cpu].family,
                                         cpus[cpu].model));
    config.insn_clocks = 1 + take(1) % 4;
    config.refclk_ratio = 1 + take(2) % 10000;
    memset(&lazy, 0, sizeof(lazy));
    pmu_reset(&lazy, &config);
    eager = lazy;
    while (input < input_end) {
        step(take(1));
        check();
    }
    return 0;
}
