// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * AMD Lightweight Profiling for Linux (AMD publication 43724, revision 3.08;
 * section and table numbers in this driver refer to it).
 *
 * here		load, unload and hot-plug; each of these calls only those below:
 * dev.c	/dev/lwp, and attributes in sysfs
 * task.c	switches, exec and exit
 * irq.c	a vector for each CPU, threshold interrupts
 * kvm.c	no LWP in KVM's guests
 * state.c	the LWP state of every task
 * listen.c	who is told of threshold interrupts
 * throttle.c	how much of a CPU these may take
 * cpu.c	LWP on a CPU: XCR0[62], LWP_CFG
 *
 * Programs
 *
 * While the driver is loaded, any program may profile itself; LLWPCB needs no
 * system call.  A new thread, a new process and a new program start with LWP
 * disabled (section 8.4), and signal handlers run under the LWP of their thread.
 * The driver never reads or writes an LWPCB or a ring: the CPU does, with the
 * rights of ring 3, and its page faults are ordinary ones.  Threshold interrupts
 * are limited in the time that they take (throttle.c).
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
 *	a bucket's lock, lwp_pool.lock (state.c), one at a time, never nested
 *
 * They are raw (so that they spin on PREEMPT_RT too), are taken with IRQs off
 * everywhere, and nothing else is taken inside: lockdep sees them only as leaves
 * below the run-queue lock.  The interrupt handler finds its listeners under
 * RCU, of which there are at most 32, in a time that depends on nobody else;
 * writers hold lwp_mutex (listen.c), inside exec_update_lock of the task.  The
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

#include <linux/cpuhotplug.h>
#include <linux/module.h>
#include "driver.h"

static enum cpuhp_state lwp_hotplug;
static bool lwp_loaded;		/* on all CPUs that were online */

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

static int __init lwp_init(void)
{
	int ret;

	ret = lwp_detect();
	if (ret)
		return ret;

	lwp_listen_init();
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
	lwp_listen_flush();
}

module_init(lwp_init);
module_exit(lwp_exit);

MODULE_DESCRIPTION("AMD Lightweight Profiling");
MODULE_LICENSE("GPL");
