// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The throttle: what threshold interrupts may take of a CPU.
 *
 * Programs choose how often they interrupt: after each record, if they like.
 * Therefore the time that it takes is measured, with the wake-ups (other than on
 * PREEMPT_RT, where these are a thread's) and something for entry and exit.  In a
 * window of 10 ms, up to max_share percent of it may be spent.  From half of that
 * on, each task that interrupts is muted until the window ends: LWP_CFG has no
 * INT while it runs.  When all is spent, nobody can interrupt.  A window in which
 * more has been spent lasts longer accordingly.
 *
 * What a muted task has missed is made good at the end of the window by one
 * notification.  But LLWPCB clears INT in the LWPCB of a task that executes it
 * while it is muted (section 5.1).
 */
#include <linux/jiffies.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/sched/clock.h>
#include "driver.h"

#define WINDOW_NS	(10 * NSEC_PER_MSEC)
#define ENTRY_NS	1000

static int max_share_set(const char *val, const struct kernel_param *kp)
{
	return param_set_uint_minmax(val, kp, 1, 100);
}

static const struct kernel_param_ops max_share_ops = {
	.set = max_share_set,
	.get = param_get_uint,
};

static unsigned int max_share = 25;
module_param_cb(max_share, &max_share_ops, &max_share, 0644);
MODULE_PARM_DESC(max_share, "percent of a CPU that threshold interrupts may take (1 to 99, 100: all; 25)");

/* When the window has to end so that no more than max_share was spent. */
static u64 window_end(const struct lwp_throttle *t)
{
	u64 ns = div_u64(t->spent * 100, READ_ONCE(max_share));

	return t->start + max_t(u64, ns, WINDOW_NS);
}

/* IRQs are off, as in all below. */
void lwp_throttle_mute(bool mute)
{
	struct lwp_cpu *c = this_cpu_ptr(&lwp_cpus);

	if (c->throttle.muted == mute)
		return;
	c->throttle.muted = mute;
	if (c->on)
		lwp_write_cfg();
}

/* It has taken the time since @start, and its entry and exit. */
void lwp_throttle_charge(u64 start)
{
	struct lwp_throttle *t = this_cpu_ptr(&lwp_cpus.throttle);
	u64 now = local_clock();

	if (!t->over && now >= window_end(t)) {
		t->start = now;
		t->spent = 0;
	}
	t->spent += now - start + ENTRY_NS;
}

/* The current task has interrupted. */
void lwp_throttle(void)
{
	struct lwp_throttle *t = this_cpu_ptr(&lwp_cpus.throttle);
	unsigned int percent = READ_ONCE(max_share);
	u64 share = WINDOW_NS / 100 * percent;

	if (percent == 100 || t->spent < share / 2)
		return;
	if (!t->over) {
		t->over = true;
		lwp_count(throttles);
		queue_delayed_work_on(smp_processor_id(), system_highpri_wq,
				      &t->work, nsecs_to_jiffies(WINDOW_NS));
	}
	if (t->spent >= share)
		t->all = true;
	lwp_throttle_mute(true);
}

/* On the CPU of @t, in a kernel thread; returns how long it is too early. */
u64 lwp_throttle_end(struct lwp_throttle *t)
{
	u64 now = local_clock(), end = window_end(t);

	if (now < end)
		return end - now;
	t->start = now;
	t->spent = 0;
	t->over = false;
	t->all = false;
	lwp_throttle_mute(false);
	return 0;
}
