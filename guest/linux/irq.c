// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Threshold interrupts (section 8.5): an edge-triggered interrupt to the local
 * APIC of the CPU that profiles, at the vector in its LWP_CFG.  Each CPU has an
 * interrupt of its own from Linux's vector domain, which so sets up the IDT and
 * shows it in /proc/interrupts.  It is bound to the CPU and given up when the
 * CPU goes offline, so that Linux never moves it.
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
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <linux/jiffies.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <linux/topology.h>
#include <asm/hw_irq.h>
#include <asm/irqdomain.h>
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

/* --- the throttle -------------------------------------------------------- */

/* When the window has to end so that no more than max_share was spent. */
static u64 window_end(const struct lwp_throttle *t)
{
	u64 ns = div_u64(t->spent * 100, READ_ONCE(max_share));

	return t->start + max_t(u64, ns, WINDOW_NS);
}

/* IRQs are off, as in all down to end_window(). */
void lwp_irq_mute(bool mute)
{
	struct lwp_cpu *c = this_cpu_ptr(&lwp_cpus);

	if (c->throttle.muted == mute)
		return;
	c->throttle.muted = mute;
	if (c->on)
		lwp_write_cfg();
}

/* It has taken the time since @start, and its entry and exit. */
void lwp_irq_charge(u64 start)
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
static void throttle(void)
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
	lwp_irq_mute(true);
}

/* On the CPU of @t, in a kernel thread; returns how long it is too early. */
static u64 end_window(struct lwp_throttle *t)
{
	u64 now = local_clock(), end = window_end(t);

	if (now < end)
		return end - now;
	t->start = now;
	t->spent = 0;
	t->over = false;
	t->all = false;
	lwp_irq_mute(false);
	lwp_dev_wake();
	return 0;
}

static void throttle_work(struct work_struct *work)
{
	struct lwp_throttle *t = container_of(to_delayed_work(work),
					      struct lwp_throttle, work);
	u64 early;

	local_irq_disable();
	early = end_window(t);
	local_irq_enable();
	if (early)
		queue_delayed_work_on(smp_processor_id(), system_highpri_wq,
				      &t->work, nsecs_to_jiffies(early) + 1);
}

void lwp_irq_init(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		INIT_DELAYED_WORK(&per_cpu(lwp_cpus, cpu).throttle.work,
				  throttle_work);
}

/* --- the interrupt ------------------------------------------------------- */

/*
 * Whoever crossed the threshold is still current: maskable interrupts have not
 * been enabled since, if its instruction was the last before a system call or
 * an exception, or else it is what was interrupted.
 */
static irqreturn_t lwp_interrupt(int irq, void *unused)
{
	u64 start = local_clock();

	lwp_count(interrupts);
	lwp_dev_notify(current, false);
	lwp_dev_wake();
	lwp_irq_charge(start);
	throttle();
	return IRQ_HANDLED;
}

static int alloc_irq(unsigned int cpu)
{
	struct irq_alloc_info info = { .mask = cpumask_of(cpu) };
	struct irq_affinity_desc *affinity;
	int irq;

	/* Activation goes by the mask in the descriptor. */
	affinity = kzalloc(sizeof(*affinity), GFP_KERNEL);
	if (!affinity)
		return -ENOMEM;
	cpumask_copy(&affinity->mask, cpumask_of(cpu));
	irq = __irq_domain_alloc_irqs(x86_vector_domain, -1, 1,
				      cpu_to_node(cpu), &info, false, affinity);
	kfree(affinity);
	return irq;
}

/* Without a vector, LWP works on @cpu but never interrupts there. */
void lwp_irq_setup(unsigned int cpu)
{
	struct lwp_cpu *c = &per_cpu(lwp_cpus, cpu);
	struct irq_data *data;
	int irq, err;

	irq = alloc_irq(cpu);
	if (irq < 0) {
		err = irq;
		goto out;
	}
	irq_set_handler(irq, handle_edge_irq);
	err = request_irq(irq, lwp_interrupt, IRQF_NOBALANCING | IRQF_NO_THREAD,
			  "lwp", c);
	if (err)
		goto out_dispose;

	data = irq_get_irq_data(irq);
	err = -EXDEV;
	if (!cpumask_test_cpu(cpu, irq_data_get_effective_affinity_mask(data)))
		goto out_free;
	c->irq = irq;
	c->vector = irqd_cfg(data)->vector;
	return;

out_free:
	free_irq(irq, c);
out_dispose:
	irq_dispose_mapping(irq);
out:
	pr_warn("no vector on CPU %u: no threshold interrupts there (%d)\n",
		cpu, err);
}

void lwp_irq_free(unsigned int cpu)
{
	struct lwp_cpu *c = &per_cpu(lwp_cpus, cpu);

	if (!c->vector)
		return;
	c->vector = 0;
	free_irq(c->irq, c);
	irq_dispose_mapping(c->irq);

	/* No interrupts come any more; who waits for one hears of it now. */
	cancel_delayed_work_sync(&c->throttle.work);
	local_irq_disable();
	c->throttle.spent = 0;
	c->throttle.start = 0;
	end_window(&c->throttle);
	local_irq_enable();
}
