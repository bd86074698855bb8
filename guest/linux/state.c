// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The LWP state of every task (sections 8.2.1, 8.4 and 8.7.2).
 *
 * The live state of a CPU is that of the user task which runs there.  It is
 * saved when that task is switched out, and the next one's state, or none, is
 * loaded.  A task that has never used LWP has no state here; it costs an XGETBV
 * and an RDMSR to be switched out, and a look into an empty bucket.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hash.h>
#include <linux/irq_work.h>
#include <linux/memcontrol.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <asm/asm.h>
#include <asm/fpu/xcr.h>
#include <asm/processor.h>
#include "driver.h"

/*
 * A standard XSAVE area, of which only the header and the LWP component (table
 * 7-1) are ever used: RFBM has bit 62 alone, so that the registers of user mode,
 * which may still be live, are neither stored nor loaded.
 */
struct lwp_xsave {
	u8 legacy[512];
	u64 xstate_bv;
	u64 reserved[7];
	u8 extended[256];
	u8 lwp[128];
} __aligned(64);

struct lwp_state {
	struct lwp_xsave xsave;
	struct hlist_node node;		/* in a bucket, or in the pool */
	const struct task_struct *task;
	u64 start;			/* the task's start_time */
	u64 muted;			/* in the window of this start */
	struct list_head fresh;		/* in the pool's, or empty */
	struct lwp_state *successor;	/* that is charged, or an error */
	bool charged;			/* to the task's memory cgroup */
};

#define BUCKET_BITS	8

static struct {
	raw_spinlock_t lock;
	struct hlist_head states;
} buckets[1 << BUCKET_BITS];

/* As many tasks may be new to LWP before the work item has run. */
#define MAX_RESERVE	16384

static int reserve_set(const char *val, const struct kernel_param *kp)
{
	return param_set_uint_minmax(val, kp, 1, MAX_RESERVE);
}

static const struct kernel_param_ops reserve_ops = {
	.set = reserve_set,
	.get = param_get_uint,
};

static unsigned int reserve = 128;
module_param_cb(reserve, &reserve_ops, &reserve, 0444);
MODULE_PARM_DESC(reserve, "refill below so many states, of 1 KB, for tasks new to LWP (1 to 16384; 128)");

static struct {
	raw_spinlock_t lock;
	struct hlist_head states;
	unsigned int size;
	struct list_head fresh;		/* in use, but not charged */
	struct hlist_head garbage;	/* charged, but not in use */
} lwp_pool = {
	.lock = __RAW_SPIN_LOCK_UNLOCKED(lwp_pool.lock),
	.fresh = LIST_HEAD_INIT(lwp_pool.fresh),
};

static struct kmem_cache *lwp_cache;

/* --- the pool ------------------------------------------------------------ */

static struct lwp_state *pool_get(void)
{
	struct lwp_state *state = NULL;
	unsigned long flags;

	raw_spin_lock_irqsave(&lwp_pool.lock, flags);
	if (lwp_pool.size) {
		state = hlist_entry(lwp_pool.states.first, struct lwp_state,
				    node);
		hlist_del(&state->node);
		lwp_pool.size--;
	}
	raw_spin_unlock_irqrestore(&lwp_pool.lock, flags);
	return state;
}

static void pool_put(struct lwp_state *state)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&lwp_pool.lock, flags);
	list_del_init(&state->fresh);
	if (state->charged) {
		hlist_add_head(&state->node, &lwp_pool.garbage);
	} else {
		hlist_add_head(&state->node, &lwp_pool.states);
		lwp_pool.size++;
	}
	raw_spin_unlock_irqrestore(&lwp_pool.lock, flags);
}

/* @state, not charged, is given to its task. */
static void pool_given(struct lwp_state *state)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&lwp_pool.lock, flags);
	list_add_tail(&state->fresh, &lwp_pool.fresh);
	raw_spin_unlock_irqrestore(&lwp_pool.lock, flags);
}

/* A task whose state is not charged yet, with a reference; or NULL. */
static struct task_struct *pool_debtor(void)
{
	struct task_struct *task = NULL;
	struct lwp_state *state;
	unsigned long flags;

	raw_spin_lock_irqsave(&lwp_pool.lock, flags);
	state = list_first_entry_or_null(&lwp_pool.fresh, struct lwp_state,
					 fresh);
	if (state) {
		/* It has not been in sched_process_exit. */
		list_del_init(&state->fresh);
		task = get_task_struct((struct task_struct *)state->task);
	}
	raw_spin_unlock_irqrestore(&lwp_pool.lock, flags);
	return task;
}

static void pool_sweep(void)
{
	struct lwp_state *state;
	struct hlist_node *next;
	struct hlist_head old;

	raw_spin_lock_irq(&lwp_pool.lock);
	hlist_move_list(&lwp_pool.garbage, &old);
	raw_spin_unlock_irq(&lwp_pool.lock);
	hlist_for_each_entry_safe(state, next, &old, node)
		kmem_cache_free(lwp_cache, state);
}

static struct lwp_state *state_alloc(gfp_t gfp)
{
	struct lwp_state *state = kmem_cache_zalloc(lwp_cache, gfp);

	if (state)
		INIT_LIST_HEAD(&state->fresh);
	return state;
}

static bool pool_low(void)
{
	return READ_ONCE(lwp_pool.size) < reserve;
}

static bool pool_high(void)
{
	return READ_ONCE(lwp_pool.size) / 4 > reserve;
}

static unsigned int bucket(const struct task_struct *task)
{
	return hash_ptr(task, BUCKET_BITS);
}

/*
 * The states in the pool belong to nobody.  What a task has taken from there is
 * exchanged, at a task switch, for one that its memory cgroup is charged for.
 * If that has no room, the task loses its LWP.
 */
static void charge(struct task_struct *task)
{
	struct mm_struct *mm = get_task_mm(task);
	unsigned int b = bucket(task);
	struct lwp_state *state, *new;
	struct mem_cgroup *memcg, *old;

	if (!mm)
		return;		/* it ends, and has no LWP any more */
	memcg = get_mem_cgroup_from_mm(mm);
	mmput(mm);
	old = set_active_memcg(memcg);
	new = state_alloc(GFP_KERNEL_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN);
	set_active_memcg(old);
	mem_cgroup_put(memcg);
	if (new)
		new->charged = true;
	else
		new = ERR_PTR(-ENOMEM);

	raw_spin_lock_irq(&buckets[b].lock);
	hlist_for_each_entry(state, &buckets[b].states, node) {
		if (state->task == task && !state->charged &&
		    !state->successor) {
			state->successor = new;
			new = NULL;
			break;
		}
	}
	raw_spin_unlock_irq(&buckets[b].lock);
	if (!IS_ERR_OR_NULL(new))
		kmem_cache_free(lwp_cache, new);
}

static void pool_adjust(struct work_struct *unused)
{
	struct lwp_state *state;
	struct task_struct *task;

	while (READ_ONCE(lwp_pool.size) / 2 < reserve) {
		state = state_alloc(GFP_KERNEL);
		if (!state)
			return;
		pool_put(state);
	}
	while ((task = pool_debtor())) {
		charge(task);
		put_task_struct(task);
		cond_resched();
	}
	pool_sweep();
	while (pool_high()) {
		state = pool_get();
		if (!state)
			return;
		kmem_cache_free(lwp_cache, state);
	}
}

static DECLARE_WORK(pool_work, pool_adjust);

/* Ahead of the tasks that are about to need them. */
static void pool_kick(struct irq_work *unused)
{
	queue_work(system_highpri_wq, &pool_work);
}

/* Hard, as on PREEMPT_RT no other may be freed, with the module, after a sync. */
static struct irq_work pool_irq_work = IRQ_WORK_INIT_HARD(pool_kick);

/* --- states of tasks ----------------------------------------------------- */

/* IRQs are off, and @task is switched out or in or is current. */
static struct lwp_state *state_find(const struct task_struct *task)
{
	unsigned int b = bucket(task);
	struct lwp_state *state;

	/*
	 * If there is a state, the task itself has added it, and moved from
	 * CPU to CPU since: no barrier is needed to see it.
	 */
	if (!READ_ONCE(buckets[b].states.first))
		return NULL;

	raw_spin_lock(&buckets[b].lock);
	hlist_for_each_entry(state, &buckets[b].states, node) {
		if (state->task == task)
			break;
	}
	raw_spin_unlock(&buckets[b].lock);

	/* One that died in an oops may have left it to another at its address. */
	if (state && state->start != task->start_time) {
		state->start = task->start_time;
		state->muted = 0;
		state->xsave.xstate_bv = 0;
	}
	return state;
}

static struct lwp_state *state_add(const struct task_struct *task)
{
	struct lwp_state *state = pool_get();
	unsigned int b = bucket(task);

	if (!state) {
		irq_work_queue(&pool_irq_work);
		return NULL;
	}
	state->task = task;
	state->start = task->start_time;
	state->muted = 0;
	raw_spin_lock(&buckets[b].lock);
	hlist_add_head(&state->node, &buckets[b].states);
	raw_spin_unlock(&buckets[b].lock);
	pool_given(state);
	irq_work_queue(&pool_irq_work);
	return state;
}

/* Replace @state by its successor, if it has one: this is returned, or NULL. */
static struct lwp_state *state_remove(struct lwp_state *state)
{
	unsigned int b = bucket(state->task);
	struct lwp_state *new;

	raw_spin_lock(&buckets[b].lock);
	new = state->successor;
	if (IS_ERR(new))
		new = NULL;
	if (new) {
		new->task = state->task;
		new->start = state->start;
		new->muted = state->muted;
		hlist_add_head(&new->node, &buckets[b].states);
	}
	hlist_del(&state->node);
	raw_spin_unlock(&buckets[b].lock);

	memset(&state->xsave, 0, sizeof(state->xsave));
	state->successor = NULL;
	if (state->charged || pool_high())
		irq_work_queue(&pool_irq_work);
	pool_put(state);
	return new;
}

static bool state_valid(const struct lwp_state *state)
{
	return state->xsave.xstate_bv & LWP_XMASK;
}

/* XSAVE or XRSTOR of component 62 alone; false if it has faulted. */
#define lwp_xstate(insn, area)						\
({									\
	bool done = false;						\
	asm volatile("1: " insn " %[xsave]\n\t"				\
		     "movb $1, %[ok]\n"					\
		     "2:\n"						\
		     _ASM_EXTABLE(1b, 2b)				\
		     : [ok] "+q" (done), [xsave] "+m" (*(area))		\
		     : "a" (0), "d" ((u32)(LWP_XMASK >> 32))		\
		     : "memory");					\
	done;								\
})

/* The live state is @task's; false if it was not using LWP. */
bool lwp_state_save(const struct task_struct *task)
{
	struct lwp_state *state;
	bool enabled, refused = false;

	/* Only user mode can enable LWP. */
	if (task->flags & PF_KTHREAD)
		return false;

	enabled = lwp_enabled();
	state = state_find(task);
	if (state && unlikely(READ_ONCE(state->successor))) {
		refused = IS_ERR(state->successor);
		state = state_remove(state);
	}
	if (!enabled) {
		if (state)
			state->xsave.xstate_bv = 0;
		return false;
	}

	if (!state && !refused)
		state = state_add(task);
	if (!state)
		lwp_count(exhausted);
	else if (lwp_xstate("xsave64", &state->xsave))
		lwp_count(saves);
	else
		state->xsave.xstate_bv = 0;
	return true;
}

void lwp_state_discard(const struct task_struct *task)
{
	struct lwp_state *state = state_find(task);

	if (!state || !state_valid(state))
		return;
	state->xsave.xstate_bv = 0;
	lwp_count(exhausted);
}

/* False if @task has LWP disabled, and the live state is still the last one. */
bool lwp_state_restore(const struct task_struct *task)
{
	struct lwp_state *state;

	if (task->flags & PF_KTHREAD)
		return false;

	state = state_find(task);
	if (!state || !state_valid(state) ||
	    !lwp_xstate("xrstor64", &state->xsave))
		return false;
	lwp_count(restores);
	return true;
}

/*
 * Take LWP away from the current task, with XCR0[62], until lwp_state_unpark()
 * or until it is switched out.  IRQs are off.  If the bit is clear although
 * nobody is parked, there is nothing to save, and probe_switch() will mend it.
 */
void lwp_state_park(void)
{
	if (!(xgetbv(XCR_XFEATURE_ENABLED_MASK) & LWP_XMASK))
		return;
	if (!this_cpu_read(lwp_cpus.parked)) {
		if (lwp_state_save(current))
			lwp_stop();
		this_cpu_write(lwp_cpus.parked, true);
	}
	lwp_hide();
}

/* If the current task has not been switched since, it gets its LWP back. */
void lwp_state_unpark(void)
{
	if (!this_cpu_read(lwp_cpus.parked))
		return;
	this_cpu_write(lwp_cpus.parked, false);
	lwp_show();
	lwp_state_restore(current);
}

/*
 * A muted task is switched out: remember that, in a state if need be, and that
 * it may have missed an interrupt.
 */
void lwp_state_mute(struct task_struct *prev)
{
	struct lwp_throttle *t = this_cpu_ptr(&lwp_cpus.throttle);
	struct lwp_state *state;

	/* After sched_process_exit, nobody would remove its state. */
	if (prev->flags & (PF_KTHREAD | PF_EXITING))
		return;
	state = state_find(prev);
	if (state && state_valid(state))
		lwp_listen_notify(prev, true);
	if (!state)
		state = state_add(prev);
	if (state)
		state->muted = t->start;
	else
		t->all = true;
}

bool lwp_state_muted(const struct task_struct *next)
{
	struct lwp_throttle *t = this_cpu_ptr(&lwp_cpus.throttle);
	struct lwp_state *state;

	if (!t->over || next->flags & PF_KTHREAD)
		return false;
	state = state_find(next);
	return t->all || (state && state->muted == t->start);
}

/* The current task ends, or it has become another program. */
void lwp_state_forget(void)
{
	struct lwp_state *state;
	unsigned long flags;

	local_irq_save(flags);
	if (lwp_enabled())
		lwp_stop();
	/* And its successor. */
	for (state = state_find(current); state; state = state_remove(state))
		;
	local_irq_restore(flags);
}

int lwp_state_init(void)
{
	unsigned int size, offset, unused, i;

	/* XSAVE would write somewhere else. */
	cpuid_count(CPUID_XSAVE, LWP_XFEATURE, &size, &offset, &unused, &unused);
	if (size != sizeof_field(struct lwp_xsave, lwp) ||
	    offset != offsetof(struct lwp_xsave, lwp)) {
		pr_err("XSAVE has LWP's component at %u, of %u bytes\n", offset,
		       size);
		return -ENODEV;
	}

	for (i = 0; i < ARRAY_SIZE(buckets); i++)
		raw_spin_lock_init(&buckets[i].lock);

	lwp_cache = KMEM_CACHE(lwp_state, 0);
	if (!lwp_cache)
		return -ENOMEM;
	pool_adjust(NULL);
	if (pool_low()) {
		lwp_state_exit();
		return -ENOMEM;
	}
	return 0;
}

void lwp_state_exit(void)
{
	struct lwp_state *state;
	struct hlist_node *next;
	int i;

	irq_work_sync(&pool_irq_work);
	cancel_work_sync(&pool_work);

	/* Nobody else is left: of tasks that go on, and unused ones. */
	for (i = 0; i < ARRAY_SIZE(buckets); i++) {
		hlist_for_each_entry_safe(state, next, &buckets[i].states,
					  node) {
			if (!IS_ERR_OR_NULL(state->successor))
				kmem_cache_free(lwp_cache, state->successor);
			kmem_cache_free(lwp_cache, state);
		}
	}
	pool_sweep();
	while ((state = pool_get()))
		kmem_cache_free(lwp_cache, state);
	kmem_cache_destroy(lwp_cache);
}
