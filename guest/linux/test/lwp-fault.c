// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What no emulated machine does, for guest/test/lwp-fault.c.  While this is
 * loaded, behind the driver:
 *
 * cpu=N	CPU N refuses to write LWP_CFG
 * pid=N	the task of this number, which sleeps, is another one at the same
 *		address of a task_struct
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/smp.h>

static int cpu = -1;
module_param(cpu, int, 0);
static int pid;
module_param(pid, int, 0);

static noinline int refuse(void)
{
	return -EIO;
}

/* In place of the function, as IRQs are off there. */
static int on_write_cfg(struct kprobe *p, struct pt_regs *regs)
{
	if (smp_processor_id() != cpu)
		return 0;
	regs->ip = (unsigned long)refuse;
	return 1;
}

static struct kprobe probe = {
	.symbol_name = "lwp:lwp_write_cfg",
	.pre_handler = on_write_cfg,
};

static int __init fault_init(void)
{
	struct task_struct *task;

	if (cpu >= 0)
		return register_kprobe(&probe);
	rcu_read_lock();
	task = pid_task(find_vpid(pid), PIDTYPE_PID);
	if (task)
		task->start_time++;
	rcu_read_unlock();
	return task ? 0 : -ESRCH;
}

static void __exit fault_exit(void)
{
	if (cpu >= 0)
		unregister_kprobe(&probe);
}

module_init(fault_init);
module_exit(fault_exit);

MODULE_DESCRIPTION("Faults for the test of the LWP driver");
MODULE_LICENSE("GPL");
