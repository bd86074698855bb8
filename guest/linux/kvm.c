// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Keep KVM's guests away from LWP.
 *
 * SVM neither switches nor intercepts LWP (section 8.2.2), and KVM leaves XCR0
 * as it is while the guest has CR4.OSXSAVE clear, or has the XCR0 that KVM takes
 * for the host's.  If bit 62 were set then, the guest's LLWPCB would work, and
 * what the VMM does next would be recorded where the guest likes, in the VMM's
 * memory; and what the guest does would be counted for the VMM.  Therefore:
 *
 * The "kvm_entry" tracepoint, with IRQs off on the way to each VMRUN, parks the
 * LWP of the current task: its state is saved and XCR0[62] cleared.  KVM does
 * not let guests set that bit, so it stays clear.  The task gets its LWP back
 * before it can be in user mode again, or another task run: at the end of
 * KVM_RUN, which is "kvm_userspace_exit", or when it is switched out and in.
 * Guests that exit to KVM alone cost nothing more.  ("kvm_exit" would not do:
 * in some kernels the task may have been switched before.)
 *
 * KVM reads XCR0 once, when its vendor module is initialized, and loads that
 * value when a guest with another one exits.  It would go on to do so when this
 * driver is gone.  Therefore XCR0[62] is clear whenever a task runs that
 * initializes such a module.
 *
 * KVM and this driver may be loaded in any order, and at the same time.  If KVM
 * cannot be watched, whichever of them comes second is refused.
 *
 * Hypervisors other than KVM are not covered.  Nor are guests whose XCR0 is
 * hidden from KVM (SEV-ES), but no CPU that has these has LWP.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/kobject.h>
#include <linux/lockdep.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <trace/events/module.h>
#include "driver.h"

static struct {
	const char *name;
	const struct task_struct *loader;	/* is initializing it */
} vendors[] = {
	{ "kvm_amd" },
	{ "kvm_intel" },
};

/* Whether XCR0[62] has to be clear whenever @task runs. */
bool lwp_kvm_loader(const struct task_struct *task)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(vendors); i++) {
		if (unlikely(READ_ONCE(vendors[i].loader) == task))
			return true;
	}
	return false;
}

static int find_vendor(const struct module *mod)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(vendors); i++) {
		if (!strcmp(mod->name, vendors[i].name))
			return i;
	}
	return -1;
}

/* --- probes -------------------------------------------------------------- */

/*
 * These two get arguments, by registers, that differ from kernel to kernel and
 * are of no interest.
 */
static void probe_entry(void *unused)
{
	lockdep_assert_irqs_disabled();
	lwp_state_park();
}

static void probe_userspace_exit(void *unused)
{
	unsigned long flags;

	local_irq_save(flags);
	lwp_state_unpark();
	local_irq_restore(flags);
}

/* The last thing before the initialization of any module, by the same task. */
static void probe_load(void *unused, struct module *mod)
{
	int i = find_vendor(mod);
	unsigned long flags;

	if (i < 0)
		return;
	local_irq_save(flags);
	WRITE_ONCE(vendors[i].loader, current);
	lwp_state_park();
	local_irq_restore(flags);
}

static void loaded(int i)
{
	unsigned long flags;

	if (READ_ONCE(vendors[i].loader) != current)
		return;
	local_irq_save(flags);
	WRITE_ONCE(vendors[i].loader, NULL);
	lwp_state_unpark();
	local_irq_restore(flags);
}

enum { ENTRY, USERSPACE_EXIT, LOAD };

static struct {
	const char *name;
	void *probe;
	struct tracepoint *tp;		/* where it is registered, or NULL */
} probes[] = {
	[ENTRY] = { "kvm_entry", probe_entry },
	[USERSPACE_EXIT] = { "kvm_userspace_exit", probe_userspace_exit },
	[LOAD] = { "module_load", probe_load },
};

static bool watching(void)
{
	return probes[ENTRY].tp && probes[USERSPACE_EXIT].tp && probes[LOAD].tp;
}

static void probe_tracepoint(struct tracepoint *tp, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		if (!strcmp(tp->name, probes[i].name) &&
		    !tracepoint_probe_register(tp, probes[i].probe, NULL))
			probes[i].tp = tp;
	}
}

static void unprobe_tracepoint(struct tracepoint *tp, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		if (probes[i].tp == tp) {
			tracepoint_probe_unregister(tp, probes[i].probe, NULL);
			probes[i].tp = NULL;
		}
	}
}

/* KVM's tracepoints are in a module: it may be there, and come and go. */
static int notify_tracepoints(struct notifier_block *nb, unsigned long state,
			      void *data)
{
	const struct tp_module *tp_mod = data;
	struct module *mod = tp_mod->mod;
	unsigned int i;

	for (i = 0; i < mod->num_tracepoints; i++) {
		struct tracepoint *tp;

		tp = tracepoint_ptr_deref(&mod->tracepoints_ptrs[i]);
		if (state == MODULE_STATE_COMING)
			probe_tracepoint(tp, NULL);
		else if (state == MODULE_STATE_GOING)
			unprobe_tracepoint(tp, NULL);
	}
	return NOTIFY_OK;
}

static struct notifier_block tracepoints_nb = {
	.notifier_call = notify_tracepoints,
};

/* --- KVM's vendor modules ------------------------------------------------ */

static int notify_modules(struct notifier_block *nb, unsigned long state,
			  void *data)
{
	int i = find_vendor(data);

	if (i < 0)
		return NOTIFY_DONE;
	if (state == MODULE_STATE_COMING && !watching()) {
		pr_err("refusing %s: its guests could use LWP unseen\n",
		       vendors[i].name);
		return notifier_from_errno(-EBUSY);
	}
	if (state == MODULE_STATE_LIVE || state == MODULE_STATE_GOING)
		loaded(i);
	return NOTIFY_OK;
}

static struct notifier_block modules_nb = {
	.notifier_call = notify_modules,
};

/*
 * The state of a module that has got as far as "module_load", which then may
 * have gone by unseen; GOING if there is none.
 */
static enum module_state vendor_state(const char *name)
{
	enum module_state state = MODULE_STATE_LIVE;
	struct module_kobject *mk;
	struct kobject *kobj;

	/* All modules have theirs where this one has. */
	kobj = kset_find_obj(THIS_MODULE->mkobj.kobj.kset, name);
	if (!kobj)
		return MODULE_STATE_GOING;
	mk = container_of(kobj, struct module_kobject, kobj);
	if (mk->mod)
		state = READ_ONCE(mk->mod->state);
	kobject_put(kobj);
	return state;
}

/* Before XCR0[62] is set anywhere. */
int lwp_kvm_init(void)
{
	enum module_state state;
	int err, i;

	check_trace_callback_type_module_load(probe_load);

	for_each_kernel_tracepoint(probe_tracepoint, NULL);
	err = register_tracepoint_module_notifier(&tracepoints_nb);
	if (err)
		goto err_probes;
	err = register_module_notifier(&modules_nb);
	if (err)
		goto err_tracepoints;

	for (i = 0; i < ARRAY_SIZE(vendors); i++) {
		while ((state = vendor_state(vendors[i].name)) ==
		       MODULE_STATE_COMING) {
			err = -EINTR;
			if (msleep_interruptible(10))
				goto err_modules;
		}
		if (state == MODULE_STATE_LIVE && !watching()) {
			pr_err("%s is loaded: its guests could use LWP unseen\n",
			       vendors[i].name);
			err = -EBUSY;
			goto err_modules;
		}
	}
	return 0;

err_modules:
	unregister_module_notifier(&modules_nb);
err_tracepoints:
	unregister_tracepoint_module_notifier(&tracepoints_nb);
err_probes:
	for_each_kernel_tracepoint(unprobe_tracepoint, NULL);
	return err;
}

/* After it has been cleared everywhere; lwp_task_exit() waits for the probes. */
void lwp_kvm_exit(void)
{
	unregister_module_notifier(&modules_nb);
	unregister_tracepoint_module_notifier(&tracepoints_nb);
	for_each_kernel_tracepoint(unprobe_tracepoint, NULL);
}
