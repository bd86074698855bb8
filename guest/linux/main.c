// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * AMD Lightweight Profiling for Linux (AMD publication 43724, revision 3.08;
 * section and table numbers in this driver refer to it).
 *
 * here		LWP on every CPU: XCR0[62], LWP_CFG, hot-plug
 * task.c	the LWP state of every task, at switches, exec and exit
 * kvm.c	no LWP in KVM's guests
 * irq.c	a vector for each CPU, threshold interrupts
 * dev.c	/dev/lwp, which passes them on, and sysfs attributes
 *
 * Programs
 *
 * While the driver is loaded, any program may profile itself; LLWPCB needs no
 * system call.  A new thread, a new process and a new program start with LWP
 * disabled (section 8.4), and signal handlers run under the LWP of their thread.
 * The driver never reads or writes an LWPCB or a ring: the CPU does, with the
 * rights of ring 3, and its page faults are ordinary ones.  Threshold interrupts
 * are limited in the time that they take (irq.c).
 *
 * CoreId in records is the number that Linux gives the CPU, modulo 256.
 *
 * When the driver is unloaded, at any moment, LWP goes away under programs that
 * use it: their next LWP instruction raises #UD and thus SIGILL.  (Programs that
 * only let it count do not notice.)  It does not come back by itself, even if
 * the driver is loaded again.  An open /dev/lwp keeps it loaded.  CPUID tells
 * programs whether LWP is still there.
 *
 * XCR0 belongs to the kernel, which knows nothing of bit 62 and rewrites it when
 * it resumes from suspend.  That discards the LWP state of the task that is
 * running, whose LWP is then disabled; the next task switch sets the bit again
 * and counts it in "heals".  Load this driver before programs ask CPUID for the
 * size of their XSAVE areas, which grows where LWP's component is the last one.
 *
 * Contexts and locks
 *
 * sched_switch (task.c) runs under the run-queue lock with IRQs off, kvm_entry
 * (kvm.c) with IRQs off, and the interrupt handler (irq.c) in hard IRQ context.
 * None of them sleeps, allocates, prints or wakes anything up; what needs that
 * goes through irq_work, which runs after the run-queue lock has been dropped.
 * They take these locks:
 *
 *	a bucket's lock, lwp_pool.lock (task.c), one at a time, never nested
 *
 * They are raw (so that they spin on PREEMPT_RT too), are taken with IRQs off
 * everywhere, and nothing else is taken inside: lockdep sees them only as leaves
 * below the run-queue lock.  The interrupt handler finds its listeners under
 * RCU, of which there are at most 32, in a time that depends on nobody else;
 * writers hold lwp_mutex (dev.c), inside exec_update_lock of the task.  The
 * probes of exec and exit only mark a target as dead, and a work item detaches
 * its listeners.
 *
 * lwp_cpus[cpu].on changes on that CPU with IRQs off, so that the switch hook
 * sees LWP either wholly on or wholly off.  The CPU goes off in a kernel thread
 * of that CPU, when the live state is nobody's, and user tasks do not run on a
 * CPU that is on its way up or down: to unplug a CPU loses nothing.  .parked,
 * which changes likewise, is about the current task and ends with the switch to
 * another: LWP is on, but XCR0[62] clear and the task's state saved (kvm.c).
 *
 * Lifetimes, as KASAN would see them
 *
 * A task's saved state is found by its task_struct's address.  Only the task
 * itself, when it is switched out or enters a guest, creates it, and only the
 * task itself, in sched_process_exit, removes it, after which it cannot enable
 * LWP any more.  So a state does not outlive the task, unless that dies in a way
 * that passes no sched_process_exit, after an oops in its exit: a new task at
 * its address has another start_time, and does not inherit what is saved.
 * States come from a pool that a work item fills, which also makes the charged
 * ones that replace them.  The lock of their bucket covers each list operation;
 * the contents belong to the task alone, which runs on one CPU at a time.  A
 * listener holds its file and eventfd, and is freed a grace period after the
 * last interrupt could see it, and after irq_work_sync().  A target, which holds
 * its struct pid, is freed by whoever marks it as dead first: who detaches its
 * last listener, or the work item.  Unloading unregisters the probes and waits
 * for them, then for irq_work, then for the work items, and only then frees.
 *
 * "tests/guest/driver.sh 6.12-debug" runs the tests in guest/test with KASAN,
 * PROVE_LOCKING, PROVE_RCU, DEBUG_ATOMIC_SLEEP, DEBUG_OBJECTS and PREEMPT.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/module.h>
#include <linux/smp.h>
#include <asm/asm.h>
#include <asm/cpufeature.h>
#include <asm/fpu/xcr.h>
#include <asm/processor.h>
#include "driver.h"

DEFINE_PER_CPU(struct lwp_cpu, lwp_cpus);

static enum cpuhp_state lwp_hotplug;

static u32 lwp_supported;	/* constant once loaded */
static u32 lwp_features;	/* what LWP_CFG makes available */
static bool lwp_loaded;		/* on all CPUs that were online */

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

static void lwp_disable(void)
{
	this_cpu_write(lwp_cpus.on, false);
	lwp_stop();
	wrmsr_safe(MSR_LWP_CFG, 0, 0);
	lwp_hide();
}

static int lwp_enable(void)
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

/*
 * These two run on @cpu, in a kernel thread, at load, unload and hot-plug.  The
 * driver does not load where a CPU refuses LWP.  One that comes later is of use
 * without it, though programs may lose their LWP there.
 */
static int lwp_cpu_online(unsigned int cpu)
{
	int err;

	lwp_irq_setup(cpu);
	local_irq_disable();
	err = lwp_enable();
	local_irq_enable();
	if (!err)
		return 0;

	lwp_irq_free(cpu);
	pr_warn("CPU %u refuses XCR0[62] or LWP_CFG: %s\n", cpu,
		READ_ONCE(lwp_loaded) ? "it has no LWP" : "not loaded");
	return READ_ONCE(lwp_loaded) ? 0 : err;
}

static int lwp_cpu_offline(unsigned int cpu)
{
	local_irq_disable();
	lwp_disable();
	local_irq_enable();
	lwp_irq_free(cpu);
	return 0;
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

static int __init lwp_detect(void)
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

static int __init lwp_init(void)
{
	int ret;

	ret = lwp_detect();
	if (ret)
		return ret;

	lwp_irq_init();
	ret = lwp_task_init();
	if (ret)
		return ret;

	ret = lwp_kvm_init();
	if (ret)
		goto err_task;

	ret = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "x86/lwp:online",
				lwp_cpu_online, lwp_cpu_offline);
	if (ret < 0)
		goto err_kvm;
	lwp_hotplug = ret;
	WRITE_ONCE(lwp_loaded, true);

	ret = lwp_dev_init();
	if (ret)
		goto err_hotplug;
	return 0;

err_hotplug:
	cpuhp_remove_state(lwp_hotplug);
err_kvm:
	lwp_kvm_exit();
err_task:
	lwp_task_exit();
	return ret;
}

static void __exit lwp_exit(void)
{
	lwp_dev_exit();
	cpuhp_remove_state(lwp_hotplug);
	lwp_kvm_exit();
	lwp_task_exit();
	lwp_dev_flush();
}

module_init(lwp_init);
module_exit(lwp_exit);

MODULE_DESCRIPTION("AMD Lightweight Profiling");
MODULE_LICENSE("GPL");
