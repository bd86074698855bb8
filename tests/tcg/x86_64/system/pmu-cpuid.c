/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CPUID faulting of AMD's processors; that of Intel's is in pmu-trap. */

#include "pmu-kernel.h"

#define MSR_HWCR            0xc0010015
#define HWCR_CPUID_USER_DIS (1ull << 35)
#define CPUID_USER_DIS      (1u << 17)  /* Fn8000_0021 EAX */

static unsigned at(int cpl)
{
    return at_cpl(cpl, cpuid_reg(0, 0, 0));
}

int main(void)
{
    kernel_init();
    report(!cpuid_reg(0xd, 62, 0) && !cpuid_reg(0xd, 62, 1),
           "without LWP, CPUID has no component 62");
    report(cpuid_reg(0x80000000, 0, 0) >= 0x80000021 &&
           (cpuid_reg(0x80000021, 0, 0) & CPUID_USER_DIS),
           "CPUID has CpuidUserDis");
    report(!rdmsr(MSR_HWCR) && at(3) == EXIT, "CPUID does not fault");
    wrmsr(MSR_MISC_FEATURES, 1);
    report(!rdmsr(MSR_MISC_FEATURES) && at(3) == EXIT,
           "nor with Intel's MSR");
    wrmsr(MSR_HWCR, HWCR_CPUID_USER_DIS);
    report(rdmsr(MSR_HWCR) == HWCR_CPUID_USER_DIS, "HWCR has the bit");
    report(at(3) == GP && regs.error == 0, "CPUID faults at CPL 3");
    report(at(0) == EXIT, "but not at CPL 0");
    wrmsr(MSR_HWCR, ~HWCR_CPUID_USER_DIS);
    report(!rdmsr(MSR_HWCR) && at(3) == EXIT, "and not without the bit");
    return report_summary();
}
