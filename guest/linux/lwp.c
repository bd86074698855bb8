// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Make AMD Lightweight Profiling available to programs: XCR0[62] and LWP_CFG
 * on every CPU (AMD publication 43724, revision 3.08, section 8.7.1).
 *
 * This does not save LWP state at context switches.  A program that uses LWP
 * has to stay on one CPU and to be the only one there that does; it has to
 * disable LWP before it exits, or the next program inherits its LWPCB.
 * Threshold interrupts are not offered.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bits.h>
#include <linux/cpuhotplug.h>
#include <linux/module.h>
#include <asm/cpufeature.h>
#include <asm/fpu/xcr.h>
#include <asm/msr.h>
#include <asm/processor.h>

#define XFEATURE_MASK_LWP	BIT_ULL(62)
#define MSR_LWP_CFG		0xc0000105
#define CPUID_LWP		0x8000001c
#define CPUID_XSAVE		0xd
#define LWP_INT			BIT(31)

static enum cpuhp_state lwp_state;

static int lwp_cpu_down(unsigned int cpu)
{
	wrmsrl_safe(MSR_LWP_CFG, 0);
	xsetbv(XCR_XFEATURE_ENABLED_MASK,
	       xgetbv(XCR_XFEATURE_ENABLED_MASK) & ~XFEATURE_MASK_LWP);
	return 0;
}

/* Runs on @cpu, at load and whenever it comes online. */
static int lwp_cpu_online(unsigned int cpu)
{
	u64 features = cpuid_edx(CPUID_LWP) & ~LWP_INT;
	u64 core_id = cpuid_ebx(1) >> 24;	/* local APIC ID */
	int err;

	xsetbv(XCR_XFEATURE_ENABLED_MASK,
	       xgetbv(XCR_XFEATURE_ENABLED_MASK) | XFEATURE_MASK_LWP);

	err = wrmsrl_safe(MSR_LWP_CFG, core_id << 32 | features);
	if (err) {
		pr_err("CPU %u refuses LWP_CFG\n", cpu);
		lwp_cpu_down(cpu);
	}
	return err;
}

static int __init lwp_init(void)
{
	unsigned int eax, ebx, ecx, edx;
	int ret;

	if (!boot_cpu_has(X86_FEATURE_LWP)) {
		pr_err("this CPU has no LWP (CPUID Fn8000_0001 ECX[15] is 0)\n");
		return -ENODEV;
	}
	if (!boot_cpu_has(X86_FEATURE_OSXSAVE)) {
		pr_err("the kernel does not use XSAVE, which LWP needs\n");
		return -ENODEV;
	}
	/* XSETBV faults on what leaf D does not list. */
	cpuid_count(CPUID_XSAVE, 0, &eax, &ebx, &ecx, &edx);
	if (!(((u64)edx << 32 | eax) & XFEATURE_MASK_LWP)) {
		pr_err("this CPU has LWP but no XSAVE component for it\n");
		return -ENODEV;
	}

	ret = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "x86/lwp:online",
				lwp_cpu_online, lwp_cpu_down);
	if (ret < 0)
		return ret;
	lwp_state = ret;
	return 0;
}

static void __exit lwp_exit(void)
{
	cpuhp_remove_state(lwp_state);
}

module_init(lwp_init);
module_exit(lwp_exit);

MODULE_DESCRIPTION("Makes AMD Lightweight Profiling available to programs");
MODULE_LICENSE("GPL");
