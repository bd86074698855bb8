/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The registers of performance counters, as far as CPUID says that there are
 * some: Intel's architectural ones, those of P6, and AMD's (APM 13.2).
 */

#include "pmu-kernel.h"

enum { NMI = 2 };

#define BITS(n)         ((1ull << (n)) - 1)

CODE(nops, ".rept 100\n nop\n .endr")

/* @stmt is #GP at CPL 0. */
#define faults(stmt) (at_cpl(0, stmt) == GP)

static uint64_t got;

static bool rdpmc_is(int cpl, uint32_t index, uint64_t val)
{
    got = ~val;
    return at_cpl(cpl, got = rdpmc(index)) == EXIT && got == val;
}

static void run_nops(void)
{
    set_up(USER_CODE64, (uintptr_t)nops);
    run();
}

/* RDPMC of counter 0, that has @val, is a matter of privilege. */
static void test_pce(uint32_t index, uint64_t val)
{
    write_cr4(read_cr4() & ~CR4_PCE);
    report(rdpmc_is(0, index, val), "CPL 0: RDPMC of counter %d reads it",
           index);
    report(at_cpl(3, got = rdpmc(index)) == GP,
           "CPL 3: RDPMC without CR4.PCE is #GP");
    write_cr4(read_cr4() | CR4_PCE);
    report(rdpmc_is(3, index, val), "CPL 3: RDPMC with CR4.PCE reads it");
}

/* Nor is a program to access MSRs. */
static void test_msr(uint32_t msr, const char *name)
{
    report(at_cpl(3, got = rdmsr(msr)) == GP && at_cpl(3, wrmsr(msr, 0)) == GP,
           "CPL 3: RDMSR and WRMSR of %s are #GP", name);
}

static bool misc_enable_fits(void)
{
    bool ds = cpuid_reg(1, 0, 3) >> 21 & 1;
    bool pebs = (cpuid_reg(1, 0, 2) & CPUID_PDCM) &&
                (rdmsr(MSR_PERF_CAPABILITIES) & CAP_PEBS) == CAP_PEBS;

    return (rdmsr(MSR_MISC_ENABLE) & 0x1880) ==
           (0x80 | (ds ? 0 : 0x800) | (pebs ? 0 : 0x1000));
}

/* Zhaoxin writes all of a counter, and has no IA32_MISC_ENABLE. */
static void test_architectural(bool zhaoxin)
{
    uint32_t eax = cpuid_reg(10, 0, 0), edx = cpuid_reg(10, 0, 3);
    int version = eax & 0xff, n = eax >> 8 & 0xff, width = eax >> 16 & 0xff;
    int fixed = version > 1 ? edx & 31 : 0;
    uint64_t caps = 0, all = BITS(n) | BITS(fixed) << 32;
    bool full;

    report(version <= 5 && n >= 2 && n <= 8 && width >= 40 && eax >> 24 >= 7,
           "CPUID.0AH has a version, counters, their width and events");
    if (!zhaoxin) {
        report(misc_enable_fits(),
               "IA32_MISC_ENABLE says counters, and PEBS and BTS as others do");
        wrmsr(MSR_MISC_ENABLE, rdmsr(MSR_MISC_ENABLE) ^ 0x1880);
        report(misc_enable_fits(),
               "a write to IA32_MISC_ENABLE does not change these bits");
    }
    if (cpuid_reg(1, 0, 2) & CPUID_PDCM) {
        caps = rdmsr(MSR_PERF_CAPABILITIES);
        report(faults(wrmsr(MSR_PERF_CAPABILITIES, caps)),
               "a write to IA32_PERF_CAPABILITIES is #GP");
    } else {
        report(faults(got = rdmsr(MSR_PERF_CAPABILITIES)),
               "without PDCM, IA32_PERF_CAPABILITIES is #GP");
    }
    full = caps & CAP_FULL_WIDTH;

    wrmsr(MSR_PMC(0), 0x123480000000);
    if (zhaoxin) {
        report(rdmsr(MSR_PMC(0)) == 0x123480000000,
               "a write to IA32_PMC0 is the counter's width");
    } else {
        report(rdmsr(MSR_PMC(0)) == (BITS(width) & -0x80000000ull),
               "a write to IA32_PMC0 is 32 bits, sign-extended");
        wrmsr(MSR_PMC(0), 0x123470000000);
        report(rdmsr(MSR_PMC(0)) == 0x70000000,
               "a write to IA32_PMC0 of a value that is not negative, too");
    }
    if (full) {
        wrmsr(MSR_PMC_FULL(0), 0x123480000000);
        report(rdmsr(MSR_PMC(0)) == 0x123480000000 &&
               rdmsr(MSR_PMC_FULL(0)) == 0x123480000000,
               "a write to IA32_A_PMC0 is the counter's width");
        report(faults(wrmsr(MSR_PMC_FULL(0), 1ull << width)),
               "a write of more bits to IA32_A_PMC0 is #GP");
    } else {
        report(faults(wrmsr(MSR_PMC_FULL(0), 0)),
               "without full-width writes, IA32_A_PMC0 is #GP");
    }
    report(faults(wrmsr(MSR_EVTSEL(0), 1ull << 63)),
           "a write of a reserved bit to IA32_PERFEVTSEL0 is #GP");
    report(faults(wrmsr(MSR_EVTSEL(0), EVTSEL_ANY)) ==
           (version < 3 || version > 4),
           "IA32_PERFEVTSEL0 has the AnyThread bit in versions 3 and 4");
    report(faults(wrmsr(MSR_EVTSEL(n), 0)) == (n < 8),
           "IA32_PERFEVTSEL%d is %s", n, n < 8 ? "#GP" : "another MSR");

    test_msr(MSR_PMC(0), "IA32_PMC0");
    test_msr(MSR_EVTSEL(0), "IA32_PERFEVTSEL0");
    wrmsr(MSR_PMC(0), 0x1234);
    test_pce(0, 0x1234);
    report(faults(got = rdpmc(n)) && faults(got = rdpmc(64)) &&
           faults(got = rdpmc(0x80000000)),
           "RDPMC of a counter that is not there is #GP");

    if (version >= 2) {
        test_msr(MSR_FIXED_CTR(0), "IA32_FIXED_CTR0");
        test_msr(MSR_GLOBAL_CTRL, "IA32_PERF_GLOBAL_CTRL");
        wrmsr(MSR_FIXED_CTR(0), 0x5678);
        report(rdpmc_is(0, 0x40000000, 0x5678) &&
               faults(got = rdpmc(0x40000000 + fixed)),
               "RDPMC reads a fixed counter; of one too many, it is #GP");
        report(faults(wrmsr(MSR_FIXED_CTR_CTRL, 0xfull << 4 * fixed)),
               "IA32_FIXED_CTR_CTRL: a bit of one too many is #GP");
        wrmsr(MSR_GLOBAL_CTRL, all);
        report(rdmsr(MSR_GLOBAL_CTRL) == all &&
               faults(wrmsr(MSR_GLOBAL_CTRL, 1ull << n)) &&
               faults(wrmsr(MSR_GLOBAL_CTRL, 1ull << (32 + fixed))),
               "IA32_PERF_GLOBAL_CTRL has all counters; other bits are #GP");
        report(faults(wrmsr(MSR_GLOBAL_STATUS, 0)),
               "a write to IA32_PERF_GLOBAL_STATUS is #GP");
    }
    if (version >= 4) {
        wrmsr(MSR_GLOBAL_STATUS_SET, 1);
        report(rdmsr(MSR_GLOBAL_STATUS) == 1,
               "IA32_PERF_GLOBAL_STATUS_SET sets a bit of the status");
        wrmsr(MSR_GLOBAL_STATUS_RESET, 1);
        report(rdmsr(MSR_GLOBAL_STATUS) == 0,
               "IA32_PERF_GLOBAL_STATUS_RESET resets it");
        wrmsr(MSR_GLOBAL_STATUS_SET, 0x7c80ull << 48);
        report(rdmsr(MSR_GLOBAL_STATUS) == 0x7c80ull << 48 &&
               faults(wrmsr(MSR_GLOBAL_STATUS_SET, 1ull << 63)),
               "bits 55 and 58 to 62, of what is not here, too; not bit 63");
        wrmsr(MSR_GLOBAL_STATUS_RESET, 0x7c80ull << 48);
        wrmsr(MSR_EVTSEL(1), 0xc0);
        report(rdmsr(MSR_GLOBAL_INUSE) == 2 &&
               faults(wrmsr(MSR_GLOBAL_INUSE, 0)),
               "IA32_PERF_GLOBAL_INUSE has the counter that has an event");
    } else if (version >= 2) {
        report(faults(wrmsr(MSR_GLOBAL_STATUS_SET, 0)) &&
               faults(got = rdmsr(MSR_GLOBAL_INUSE)),
               "before version 4, MSRs 391H and 392H are #GP");
    }

    /* 100 NOPs and INT */
    wrmsr(MSR_EVTSEL(0), 0xc0 | EVTSEL_USR | EVTSEL_EN);
    wrmsr(MSR_PMC(0), 0);
    run_nops();
    wrmsr(MSR_EVTSEL(0), 0);
    report(rdmsr(MSR_PMC(0)) == 101, "IA32_PMC0 counts 101 instructions");
    wrmsr(MSR_EVTSEL(0), 0xc0 | EVTSEL_USR | EVTSEL_EN | EVTSEL_INT);
    wrmsr(MSR_PMC(0), -50);
    run_nops();
    report(regs.vector == NMI && regs.rip == (uintptr_t)nops + 50 &&
           APIC(APIC_LVTPC) == (LVT_MASKED | LVT_NMI) &&
           (version < 2 || rdmsr(MSR_GLOBAL_STATUS) == 1),
           "an overflow interrupts behind the instruction, and masks LVTPC");
    APIC(APIC_LVTPC) = LVT_NMI;
    APIC(APIC_SVR) = 0xff;
    wrmsr(MSR_PMC(0), -50);
    run_nops();
    report(regs.vector == EXIT && rdmsr(MSR_PMC(0)) == 51,
           "an APIC that software disables delivers no interrupt");
    wrmsr(MSR_EVTSEL(0), 0);
    apic_init(LVT_NMI);
}

/* EN of the first one is for both (perfctr's "P6"; Core Duo's erratum AE49). */
static void test_one_enable(uint32_t enable1)
{
    wrmsr(MSR_EVTSEL(0), 0);
    wrmsr(MSR_EVTSEL(1), 0xc0 | EVTSEL_USR | enable1);
    wrmsr(MSR_PMC(1), 0);
    run_nops();
    report(rdmsr(MSR_PMC(1)) == 0,
           "without PerfEvtSel0[22], PerfCtr1 does not count");
    wrmsr(MSR_EVTSEL(1), 0xc0 | EVTSEL_USR);
    wrmsr(MSR_EVTSEL(0), 0xc0 | EVTSEL_USR | EVTSEL_EN);
    wrmsr(MSR_PMC(0), 0);
    run_nops();
    wrmsr(MSR_EVTSEL(0), 0);
    wrmsr(MSR_EVTSEL(1), 0);
    report(rdmsr(MSR_PMC(0)) == 101 && rdmsr(MSR_PMC(1)) == 101,
           "with PerfEvtSel0[22], both count 101 instructions");
}

/* Pentium M has two things of Pentium 4's that other P6 have not. */
static void test_p6(bool pentium_m)
{
    bool again;

    test_one_enable(0);
    if (pentium_m) {
        report(misc_enable_fits(), "Pentium M: IA32_MISC_ENABLE says counters, "
               "no PEBS, and BTS as CPUID does");
    }
    wrmsr(MSR_PMC(0), 0x80000001);
    report(rdmsr(MSR_PMC(0)) == (BITS(40) & -0x7fffffffull),
           "P6: a write to PerfCtr0 is 32 bits, sign-extended to 40");
    test_pce(0, BITS(40) & -0x7fffffffull);
    report(faults(got = rdpmc(2)), "P6: RDPMC of a third counter is #GP");
    wrmsr(MSR_EVTSEL(0), 0xc0 | EVTSEL_USR | EVTSEL_EN | EVTSEL_INT);
    wrmsr(MSR_PMC(0), -50);
    run_nops();
    report(regs.vector == NMI && regs.rip == (uintptr_t)nops + 50,
           "P6: an overflow interrupts behind the instruction");
    report(APIC(APIC_LVTPC) == ((pentium_m ? LVT_MASKED : 0) | LVT_NMI),
           "P6: the interrupt %s LVTPC",
           pentium_m ? "masks" : "does not mask");
    wrmsr(MSR_PMC(0), -50);
    run_nops();
    again = regs.vector == NMI && regs.rip == (uintptr_t)nops + 50;
    report(again == !pentium_m, "P6: with LVTPC left alone, the next overflow "
           "%s", pentium_m ? "does not interrupt" : "interrupts");
    APIC(APIC_LVTPC) = LVT_NMI;
    wrmsr(MSR_EVTSEL(0), 0);
}

static void test_amd(bool core, bool v2)
{
    uint32_t evtsel = core ? MSR_PERF_CTL(0) : MSR_K7_EVTSEL(0);
    uint32_t perfctr = core ? MSR_PERF_CTR(0) : MSR_K7_PERFCTR(0);
    uint32_t n = core ? 6 : 4;

    /* kernel_init() has started some. */
    for (int i = 0; i < (core ? n : 0); i++) {
        wrmsr(MSR_PERF_CTL(i), 0);
    }
    if (v2) {
        /* It may have branch records, too, which are pmu-lbr2's. */
        report((cpuid_reg(0x80000022, 0, 1) & 15) == n &&
               (cpuid_reg(0x80000022, 0, 0) & ~6u) == 1,
               "AMD: CPUID Fn8000_0022 says PerfMonV2 and %d counters", n);
        wrmsr(MSR_AMD_CTL, BITS(n));
    }
    report(cpuid_reg(10, 0, 0) == 0, "AMD: CPUID.0AH has nothing");
    wrmsr(evtsel, ~0ull & ~(uint64_t)EVTSEL_EN);
    report(!(rdmsr(evtsel) & EVTSEL_EN),
           "AMD: reserved bits written to an event select are ignored");
    wrmsr(evtsel, 0);
    wrmsr(perfctr, 0xfedc123480000000);
    report(rdmsr(perfctr) == 0x123480000000,
           "AMD: a write to a counter is 48 bits");
    test_msr(perfctr, core ? "PERF_CTR0" : "PerfCtr0");
    test_msr(evtsel, core ? "PERF_CTL0" : "PerfEvtSel0");
    test_pce(0, 0x123480000000);
    report(faults(got = rdpmc(10)), "AMD: RDPMC of counter 10 is #GP");
    if (core) {
        wrmsr(MSR_PERF_CTR(3), 0x42);
        wrmsr(MSR_PERF_CTR(5), 0x43);
        report(rdmsr(MSR_K7_PERFCTR(3)) == 0x42 && rdpmc_is(0, 5, 0x43),
               "AMD: four of six counters are those of K7");
    } else {
        report(faults(got = rdpmc(4)), "AMD: RDPMC of a fifth counter is #GP");
    }
    wrmsr(perfctr, 0);
    wrmsr(evtsel, 0xc0 | EVTSEL_USR | EVTSEL_EN);
    run_nops();
    wrmsr(evtsel, 0);
    report(rdmsr(perfctr) == 101, "AMD: a counter counts 101 instructions");
    wrmsr(perfctr, -50);
    wrmsr(evtsel, 0xc0 | EVTSEL_USR | EVTSEL_EN | EVTSEL_INT);
    run_nops();
    report(regs.vector == NMI && regs.rip == (uintptr_t)nops + 50 &&
           APIC(APIC_LVTPC) == LVT_NMI,
           "AMD: an overflow interrupts, and does not mask LVTPC");
    if (v2) {
        report(rdmsr(MSR_AMD_STATUS) == 1,
               "AMD: PerfCntrGlobalStatus has the overflow");
        wrmsr(MSR_AMD_STATUS_CLR, 1);
        report(rdmsr(MSR_AMD_STATUS) == 0,
               "AMD: PerfCntrGlobalStatusClr clears it");
        wrmsr(perfctr, 0);
        wrmsr(MSR_AMD_CTL, 0);
        run_nops();
        report(rdmsr(perfctr) == 0,
               "AMD: PerfCntrGlobalCtl stops the counter");
    }
    wrmsr(evtsel, 0);
}

/* What @msr counts from one RDMSR to another, with 100 instructions between */
static uint32_t clocks_between(uint32_t msr)
{
    uint32_t n;

    asm volatile("rdmsr\n mov %%eax, %%ebx\n .rept 99\n nop\n .endr\n"
                 "rdmsr\n sub %%ebx, %%eax"
                 : "=a" (n) : "c" (msr) : "ebx", "edx");
    return n;
}

/* APERF and MPERF count clocks, whatever counters do. */
static void test_clocks(bool present)
{
    enum { MPERF = 0xe7, APERF = 0xe8 };
    uint64_t n;

    report((cpuid_reg(6, 0, 2) & 1) == present,
           "CPUID 6 %s APERF and MPERF", present ? "has" : "does not have");
    if (!present) {
        wrmsr(APERF, 5);
        report(!rdmsr(APERF) && !clocks_between(MPERF), "so they are 0");
        return;
    }
    report(rdmsr(APERF) == 0, "APERF is 0 when it is first read");
    report(clocks_between(APERF) == 101 && clocks_between(MPERF) == 101,
           "they count what is between two RDMSRs");
    wrmsr(APERF, -40ull);
    report(clocks_between(APERF) == 101 && rdmsr(APERF) < 1000,
           "APERF has 64 bits and can be written");
    wrmsr(MPERF, 1ull << 60);
    n = rdmsr(MPERF);
    run_nops();
    n = rdmsr(MPERF) - n;
    report(n > 100 && n < 1000 && rdmsr(MPERF) >> 60 == 1,
           "MPERF counts a program");
    test_msr(MPERF, "MPERF");
}

int main(void)
{
    uint32_t vendor = cpuid_reg(0, 0, 1);
    bool intel = vendor == 0x756e6547;  /* "Genu" */
    bool zhaoxin = vendor == 0x746e6543 || vendor == 0x68532020;
    bool has_leaf = cpuid_reg(0, 0, 0) >= 10 && cpuid_reg(10, 0, 0);
    uint32_t eax = cpuid_reg(1, 0, 0);
    unsigned model = (eax >> 4 & 15) | (eax >> 12 & 0xf0);

    kernel_init();
    apic_init(LVT_NMI);
    if ((intel || zhaoxin) && has_leaf) {
        test_architectural(zhaoxin);
        if (model == 14) {
            test_one_enable(EVTSEL_EN);
        }
    } else if (intel) {
        test_p6(model == 9 || model == 13);
    } else {
        bool core = cpuid_reg(0x80000001, 0, 2) & CPUID_PERFCTR_CORE;

        test_amd(core, cpuid_reg(0x80000000, 0, 0) >= 0x80000022 &&
                 (cpuid_reg(0x80000022, 0, 0) & 1));
    }
    test_clocks(!intel || has_leaf);
    return report_summary();
}
