// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The registers of a CPU, XCR0[62] and LWP_CFG, and what all CPUs offer.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/smp.h>
#include <asm/asm.h>
#include <asm/cpufeature.h>
#include <asm/fpu/xcr.h>
#include <asm/processor.h>
#include "driver.h"

DEFINE_PER_CPU(struct lwp_cpu, lwp_cpus);

static u32 lwp_supported;	/* constant once loaded */
static u32 lwp_features;	/* what LWP_CFG makes available */

static int lwp_xsetbv(u64 xcr0)
{
	int err = -EIO;

	asm volatile("1: xsetbv\n\t"
		     "xor %[err], %[err]\n"
		     "2:\n"
		     _ASM_EXTABLE(1b, 2b)
		     : [err] "+r" (err)
		     : "a" ((u32)xcr0), "d" ((u32)(xcr0 >> 32)),
		       "c" (XCR_XFEATURE_ENABLED_MASK)
		     : "memory");
	return err;
}

/* With IRQs off. */
int lwp_write_cfg(void)
{
	struct lwp_cpu *cpu = this_cpu_ptr(&lwp_cpus);
	u32 features = READ_ONCE(lwp_features);

	if (!cpu->vector || cpu->throttle.muted)
		features &= ~LWP_INT;
	return wrmsr_safe(MSR_LWP_CFG, features,
			  cpu->vector << 8 | (smp_processor_id() & 0xff));
}

/* XCR0[62] alone.  To be called with IRQs off, as all down to lwp_heal(). */
void lwp_hide(void)
{
	lwp_xsetbv(xgetbv(XCR_XFEATURE_ENABLED_MASK) & ~LWP_XMASK);
}

void lwp_show(void)
{
	lwp_xsetbv(xgetbv(XCR_XFEATURE_ENABLED_MASK) | LWP_XMASK);
}

void lwp_disable(void)
{
	this_cpu_write(lwp_cpus.on, false);
	lwp_stop();
	wrmsr_safe(MSR_LWP_CFG, 0, 0);
	lwp_hide();
}

int lwp_enable(void)
{
	int err;

	err = lwp_xsetbv(xgetbv(XCR_XFEATURE_ENABLED_MASK) | LWP_XMASK);
	if (!err)
		err = lwp_write_cfg();
	if (err) {
		lwp_disable();
		return err;
	}
	lwp_stop();
	this_cpu_write(lwp_cpus.on, true);
	return 0;
}

/* Something has cleared XCR0[62], and LWP_CFG with it if it was a resume. */
void lwp_heal(void)
{
	if (!lwp_enable())
		lwp_count(heals);
}

void lwp_sum(struct lwp_counts *sum)
{
	unsigned int cpu;

	memset(sum, 0, sizeof(*sum));
	for_each_possible_cpu(cpu) {
		const struct lwp_counts *c = &per_cpu(lwp_cpus, cpu).counts;

		sum->interrupts += READ_ONCE(c->interrupts);
		sum->saves += READ_ONCE(c->saves);
		sum->restores += READ_ONCE(c->restores);
		sum->heals += READ_ONCE(c->heals);
		sum->exhausted += READ_ONCE(c->exhausted);
		sum->throttles += READ_ONCE(c->throttles);
	}
}

u32 lwp_get_features(void)
{
	return READ_ONCE(lwp_features);
}

/* The last writer of lwp_features has the last word: it is read here. */
static void lwp_update_cfg(void *unused)
{
	if (this_cpu_read(lwp_cpus.on))
		lwp_write_cfg();
}

/*
 * Events that are withdrawn stop at once; those granted again start with the
 * next LLWPCB (section 4.2).
 */
int lwp_set_features(u32 features)
{
	if (features & ~lwp_supported)
		return -EINVAL;

	cpus_read_lock();
	WRITE_ONCE(lwp_features, features & ~LWP_AVAIL);
	on_each_cpu(lwp_update_cfg, NULL, 1);
	cpus_read_unlock();
	return 0;
}

int __init lwp_detect(void)
{
	unsigned int eax, ebx, ecx, edx;

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
	if (!(((u64)edx << 32 | eax) & LWP_XMASK)) {
		pr_err("this CPU has LWP but no XSAVE component for it\n");
		return -ENODEV;
	}
	lwp_supported = cpuid_edx(CPUID_LWP);
	lwp_features = lwp_supported & ~LWP_AVAIL;
	return 0;
}
