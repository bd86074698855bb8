/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A processor without performance counters: RDPMC, and the MSRs of counters
 * that CPUID would announce, raise what the processor of that age raises.
 */

#include "pmu-kernel.h"

#define CPUID_MMX   (1u << 23)

static void test_rdpmc(void)
{
    static const uint32_t indices[] = { 0, 1, 5, 0x40000000, 0xffffffff };
    uint32_t family = cpuid_reg(1, 0, 0) >> 8 & 15;
    bool has_it = family >= 6 || (cpuid_reg(1, 0, 3) & CPUID_MMX);
    uint64_t cr4 = read_cr4();

    for (int pce = 0; pce < 2; pce++) {
        write_cr4((cr4 & ~CR4_PCE) | (pce ? CR4_PCE : 0));
        for (int cpl = 0; cpl <= 3; cpl += 3) {
            bool ok = true;

            for (int i = 0; i < ARRAY_SIZE(indices); i++) {
                ok &= at_cpl(cpl, rdpmc(indices[i])) == (has_it ? GP : UD);
            }
            report(ok, "family %d, CPL %d, CR4.PCE is %d: RDPMC is #%s",
                   family, cpl, pce, has_it ? "GP" : "UD");
        }
    }
    write_cr4(cr4);
}

static void test_msrs(void)
{
    static const struct {
        const char *name;
        uint32_t first, last;
        bool absent;
    } t[] = {
        { "P6's", MSR_PMC(0), MSR_PMC(1) },
        { "P6's event select", MSR_EVTSEL(0), MSR_EVTSEL(1) },
        { "K7's", MSR_K7_EVTSEL(0), MSR_K7_PERFCTR(3) },
        { "PerfCtrExtCore's", MSR_PERF_CTL(0), MSR_PERF_CTR(5), true },
        { "PerfMonV2's", MSR_AMD_STATUS, MSR_AMD_STATUS_CLR + 1, true },
        { "no counter's", MSR_PERF_CTR(5) + 1, MSR_PERF_CTR(5) + 1 },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        unsigned vector = t[i].absent ? GP : EXIT;
        bool ok = true;

        for (uint32_t msr = t[i].first; msr <= t[i].last; msr++) {
            uint64_t val = 1;

            ok &= at_cpl(0, wrmsr(msr, 0x430076)) == vector &&
                  at_cpl(0, wrmsr(msr, 0)) == vector &&
                  at_cpl(0, val = rdmsr(msr)) == vector &&
                  val == t[i].absent;
        }
        report(ok, "MSR %x and on, %s: %s", t[i].first, t[i].name,
               t[i].absent ? "#GP" : "reads 0, and a write is ignored");
    }
}

int main(void)
{
    kernel_init();
    test_rdpmc();
    test_msrs();
    return report_summary();
}
