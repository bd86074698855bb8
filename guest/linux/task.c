// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The scheduler's tracepoints: switches, exec and exit of tasks.
 */
#include <linux/cpumask.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/version.h>
#include <asm/fpu/xcr.h>
#include <trace/events/sched.h>
#include "driver.h"

static void probe_switch(void *unused, bool preempt, struct task_struct *prev,
			 struct task_struct *next, unsigned int prev_state)
{
	bool live = false;

	if (!this_cpu_read(lwp_cpus.on)) {
		/*
		 * The driver is being loaded or unloaded, or this CPU refuses
		 * LWP, and @prev may have found out here that there is none: it
		 * must not come back on a CPU that has it.  A CPU that is being
		 * plugged is not active, and runs no user mode code.
		 */
		if (cpu_active(smp_processor_id()))
			lwp_state_discard(prev);
		return;
	}
	if (unlikely(this_cpu_read(lwp_cpus.parked))) {
		this_cpu_write(lwp_cpus.parked, false);
		lwp_show();
	} else {
		/* XSETBV is slow, and traps in virtual machines: look first. */
		if (unlikely(!(xgetbv(XCR_XFEATURE_ENABLED_MASK) & LWP_XMASK)))
			lwp_heal();
		live = lwp_state_save(prev);
	}
	if (unlikely(this_cpu_read(lwp_cpus.throttle.muted)))
		lwp_state_mute(prev);

	if (unlikely(lwp_kvm_loader(next))) {
		if (live)
			lwp_stop();
		this_cpu_write(lwp_cpus.parked, true);
		lwp_hide();
	} else if (!lwp_state_restore(next) && live) {
		lwp_stop();
	}
	if (unlikely(this_cpu_read(lwp_cpus.throttle.over)))
		lwp_throttle_mute(lwp_state_muted(next));
}

static void probe_exec(void *unused, struct task_struct *task, pid_t old_pid,
		       struct linux_binprm *bprm)
{
	lwp_state_forget();
	lwp_listen_exec(task, old_pid, bprm);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
static void probe_exit(void *unused, struct task_struct *task, bool group_dead)
#else
static void probe_exit(void *unused, struct task_struct *task)
#endif
{
	lwp_state_forget();
	lwp_listen_task_exit(task);
}

/* Registered in this order and unregistered in the reverse. */
static struct {
	const char *name;
	void *probe;
	struct tracepoint *tp;
	bool registered;
} probes[] = {
	{ "sched_process_exit", probe_exit },
	{ "sched_process_exec", probe_exec },
	{ "sched_switch", probe_switch },
};

/* The variables of these tracepoints are not exported; the list of all is. */
static void find_tracepoint(struct tracepoint *tp, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		if (!strcmp(tp->name, probes[i].name))
			probes[i].tp = tp;
	}
}

int lwp_task_init(void)
{
	int err, i;

	err = lwp_state_init();
	if (err)
		return err;

	/* Let the compiler compare the probes with the tracepoints. */
	check_trace_callback_type_sched_process_exit(probe_exit);
	check_trace_callback_type_sched_process_exec(probe_exec);
	check_trace_callback_type_sched_switch(probe_switch);

	for_each_kernel_tracepoint(find_tracepoint, NULL);
	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		err = -ENOENT;
		if (!probes[i].tp)
			goto err;
		err = tracepoint_probe_register(probes[i].tp, probes[i].probe,
						NULL);
		if (err)
			goto err;
		probes[i].registered = true;
	}
	return 0;

err:
	lwp_task_exit();
	return err;
}

void lwp_task_exit(void)
{
	int i;

	for (i = ARRAY_SIZE(probes) - 1; i >= 0; i--) {
		if (probes[i].registered)
			tracepoint_probe_unregister(probes[i].tp,
						    probes[i].probe, NULL);
	}
	tracepoint_synchronize_unregister();
	lwp_state_exit();
}
