// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Threshold interrupts (section 8.5): an edge-triggered interrupt to the local
 * APIC of the CPU that profiles, at the vector in its LWP_CFG.  Each CPU has an
 * interrupt of its own from Linux's vector domain, which so sets up the IDT and
 * shows it in /proc/interrupts.  It is bound to the CPU and given up when the
 * CPU goes offline, so that Linux never moves it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <linux/jiffies.h>
#include <linux/preempt.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <linux/topology.h>
#include <asm/hw_irq.h>
#include <asm/irqdomain.h>
#include "driver.h"

static void throttle_work(struct work_struct *work)
{
	struct lwp_throttle *t = container_of(to_delayed_work(work),
					      struct lwp_throttle, work);
	u64 early;

	local_irq_disable();
	early = lwp_throttle_end(t);
	if (!early)
		lwp_listen_wake();
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

/*
 * Whoever crossed the threshold is still current: maskable interrupts have not
 * been enabled since, if its instruction was the last before a system call or
 * an exception, or else it is what was interrupted.
 */
static irqreturn_t lwp_interrupt(int irq, void *unused)
{
	u64 start = local_clock();

	lwp_count(interrupts);
	lwp_listen_notify(current, false);
	lwp_listen_wake();
	lwp_throttle_charge(start);
	lwp_throttle();
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
	if (!lwp_throttle_end(&c->throttle))
		lwp_listen_wake();
	local_irq_enable();
}
