// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Listeners: threshold interrupts are passed on to those who asked for them.
 *
 * Who has /dev/lwp open may attach to threads of the own process.  To attach to
 * another one needs the credentials to ptrace it, that is all user and group
 * IDs alike and a dumpable process, or CAP_PERFMON or CAP_SYS_PTRACE over it.
 * Security modules are not asked, as their hook is not for modules: where Yama,
 * AppArmor, SELinux or Landlock forbid ptrace, this is still allowed.  What a
 * listener learns is when a ring fills, not what is in it.  It is detached when
 * the process executes a program that raises privileges or that its user may
 * not read.
 *
 * Of the listeners that a thread or a process can have, one other process may
 * have a few only, and all others together not those that are left for itself.
 *
 * A thread that is attached twice, by itself and with its process, counts twice.
 */
#include <linux/binfmts.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/eventfd.h>
#include <linux/fs.h>
#include <linux/irq_work.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/preempt.h>
#include <linux/rculist.h>
#include <linux/sched/clock.h>
#include <linux/sched/coredump.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/xarray.h>
#include "driver.h"
#include "lwp_ioctl.h"

/* Of one thread or process, for the handler's sake; and of one open file. */
#define MAX_LISTENERS	16
#define MAX_ATTACHED	65536
/* Of those of a thread or process: that others, or another process, may have. */
#define MAX_FOREIGN	12
#define MAX_OF_ONE	4

/* A thread or a process to which somebody listens. */
struct lwp_target {
	struct list_head listeners;	/* written under lwp_mutex, read by RCU */
	unsigned long key;
	struct pid *pid;
	atomic_t dead;			/* who sets it frees the target */
	struct llist_node node;		/* in dead_targets */
	struct rcu_head rcu;
};

struct lwp_listener {
	struct list_head node;		/* of its target */
	struct list_head list;		/* in its file, or to be freed */
	struct lwp_file *file;
	struct lwp_target *target;
	struct pid *owner;		/* the process that attached it */
	pid_t nr;			/* how the file's user calls it */
	struct eventfd_ctx *eventfd;
	atomic_t pending;
	struct llist_node wake;		/* if pending: in some CPU's wakeups */
};

/*
 * By target_key(), as the time to find one in it has a bound, which the chains
 * of a hash table, filled by others, have not.
 */
static DEFINE_XARRAY_FLAGS(targets, XA_FLAGS_ACCOUNT);
static LLIST_HEAD(dead_targets);
static DEFINE_MUTEX(lwp_mutex);

static unsigned long target_key(pid_t nr, bool process)
{
	return (unsigned long)nr << 1 | process;
}

/* --- the interrupt ------------------------------------------------------- */

static void lwp_eventfd_signal(struct eventfd_ctx *ctx)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	eventfd_signal(ctx);
#else
	eventfd_signal(ctx, 1);
#endif
}

static void listener_wake(struct lwp_listener *l)
{
	int n = atomic_xchg(&l->pending, 0);

	wake_up_interruptible(&l->file->wait);
	kill_fasync(&l->file->fasync, SIGIO, POLL_IN);
	if (l->eventfd) {
		while (n-- > 0)
			lwp_eventfd_signal(l->eventfd);
	}
}

struct lwp_wakeups {
	struct llist_head list;
	struct irq_work work;
};

static void wake_listeners(struct irq_work *work)
{
	struct lwp_wakeups *w = container_of(work, struct lwp_wakeups, work);
	struct lwp_listener *l, *next;
	u64 start = local_clock();

	/* Once it is not pending, it may be added to another list. */
	llist_for_each_entry_safe(l, next, llist_del_all(&w->list), wake)
		listener_wake(l);
	if (in_hardirq())
		lwp_throttle_charge(start);
}

/*
 * On PREEMPT_RT, an irq_work may still be looked at after irq_work_sync().
 * These are never freed.
 */
static DEFINE_PER_CPU(struct lwp_wakeups, lwp_wakeups);

static void notify(const struct pid *pid, bool process, bool muted)
{
	struct lwp_target *t;
	struct lwp_listener *l;

	t = xa_load(&targets, target_key(pid_nr((struct pid *)pid), process));
	if (!t || t->pid != pid || atomic_read(&t->dead))
		return;
	list_for_each_entry_rcu(l, &t->listeners, node) {
		/* It is going to look. */
		if (muted && atomic_read(&l->pending))
			continue;
		atomic64_inc(&l->file->count);
		if (!atomic_fetch_inc(&l->pending))
			llist_add(&l->wake, this_cpu_ptr(&lwp_wakeups.list));
	}
}

/*
 * The current thread, @task, has crossed its threshold, or may have done so
 * while it was @muted.  IRQs are off, as in the next one.
 */
void lwp_listen_notify(struct task_struct *task, bool muted)
{
	/* It has no LWP any more, and soon no struct pid and signal_struct. */
	if (task->flags & PF_EXITING)
		return;
	rcu_read_lock();
	notify(task_pid(task), false, muted);
	notify(task_tgid(task), true, muted);
	rcu_read_unlock();
}

/* Wake those up who have been notified on this CPU. */
void lwp_listen_wake(void)
{
	if (!llist_empty(this_cpu_ptr(&lwp_wakeups.list)))
		irq_work_queue(this_cpu_ptr(&lwp_wakeups.work));
}

static void wake_cpu(void *unused)
{
	lwp_listen_wake();
}

/* --- targets and listeners ----------------------------------------------- */

static void target_free_rcu(struct rcu_head *rcu)
{
	struct lwp_target *t = container_of(rcu, struct lwp_target, rcu);

	put_pid(t->pid);
	kfree(t);
}

/* Under lwp_mutex. */
static void target_free(struct lwp_target *t)
{
	if (xa_load(&targets, t->key) == t)
		xa_erase(&targets, t->key);
	call_rcu(&t->rcu, target_free_rcu);
}

/*
 * Under lwp_mutex.  What is put on @old is to be given to listeners_free().
 * Not inlined, as guest/test/lwp-limits.c traces it.
 */
static noinline void listener_remove(struct lwp_listener *l,
				     struct list_head *old)
{
	struct lwp_target *t = l->target;
	struct lwp_file *file = l->file;

	list_del_rcu(&l->node);
	list_move(&l->list, old);
	WRITE_ONCE(file->nr, file->nr - 1);
	if (lwp_file_ended(file)) {
		wake_up_interruptible(&file->wait);
		kill_fasync(&file->fasync, SIGIO, POLL_HUP);
	}
	if (list_empty(&t->listeners) && !atomic_xchg(&t->dead, 1))
		target_free(t);
}

void lwp_file_free(struct kref *ref)
{
	kfree(container_of(ref, struct lwp_file, ref));
}

/* A listener that is on no list. */
static void listener_free(struct lwp_listener *l)
{
	if (l->eventfd)
		eventfd_ctx_put(l->eventfd);
	kref_put(&l->file->ref, lwp_file_free);
	put_pid(l->owner);
	kfree(l);
}

static void listeners_free(struct list_head *old)
{
	struct lwp_listener *l, *next;
	unsigned int cpu;

	if (list_empty(old))
		return;

	/* Nobody finds them any more; those who wait for it are to be woken. */
	synchronize_rcu();
	for_each_possible_cpu(cpu) {
		struct lwp_wakeups *w = &per_cpu(lwp_wakeups, cpu);

		/* A CPU that goes offline does this itself. */
		if (!llist_empty(&w->list))
			smp_call_function_single(cpu, wake_cpu, NULL, 1);
		irq_work_sync(&w->work);
	}

	list_for_each_entry_safe(l, next, old, list) {
		listener_free(l);
		cond_resched();
	}
}

static void reap(struct work_struct *unused)
{
	struct lwp_listener *l, *next_l;
	struct lwp_target *t, *next;
	LIST_HEAD(old);

	llist_for_each_entry_safe(t, next, llist_del_all(&dead_targets), node) {
		mutex_lock(&lwp_mutex);
		list_for_each_entry_safe(l, next_l, &t->listeners, node)
			listener_remove(l, &old);
		target_free(t);
		mutex_unlock(&lwp_mutex);
		cond_resched();
	}
	listeners_free(&old);
}

static DECLARE_WORK(reap_work, reap);

/* In any context, under RCU or lwp_mutex: detach all who listen to it. */
static void target_kill(struct lwp_target *t)
{
	if (!atomic_xchg(&t->dead, 1)) {
		llist_add(&t->node, &dead_targets);
		schedule_work(&reap_work);
	}
}

static void kill_by_pid(const struct pid *pid, bool process)
{
	struct lwp_target *t;

	rcu_read_lock();
	t = xa_load(&targets, target_key(pid_nr((struct pid *)pid), process));
	if (t && t->pid == pid)
		target_kill(t);
	rcu_read_unlock();
}

/*
 * In atomic context: the current task has executed another program.  If it was
 * not its process's first thread, it is now, and its old pid, @old_nr, is gone.
 */
void lwp_listen_exec(struct task_struct *task, pid_t old_nr,
		     struct linux_binprm *bprm)
{
	struct lwp_target *t;

	if (old_nr != task->pid) {
		rcu_read_lock();
		t = xa_load(&targets, target_key(old_nr, false));
		/* If it has a task, the number has been given away again. */
		if (t && !pid_task(t->pid, PIDTYPE_PID))
			target_kill(t);
		rcu_read_unlock();
	}
	if (bprm->secureexec || get_dumpable(task->mm) != SUID_DUMP_USER) {
		kill_by_pid(task_pid(task), false);
		kill_by_pid(task_tgid(task), true);
	}
}

/* In atomic context: the current task ends. */
void lwp_listen_task_exit(struct task_struct *task)
{
	kill_by_pid(task_pid(task), false);
	if (!atomic_read(&task->signal->live))
		kill_by_pid(task_tgid(task), true);
}

/* --- attaching and detaching --------------------------------------------- */

static bool has_cap(struct user_namespace *ns)
{
	return ns_capable(ns, CAP_PERFMON) || ns_capable(ns, CAP_SYS_PTRACE);
}

/* Under exec_update_lock of @task, so that exec does not raise it meanwhile. */
static bool may_attach(struct task_struct *task)
{
	const struct cred *cred = current_cred(), *tcred;
	struct mm_struct *mm;
	bool ok;

	if (same_thread_group(task, current))
		return true;

	task_lock(task);
	rcu_read_lock();
	tcred = __task_cred(task);
	ok = (uid_eq(cred->uid, tcred->euid) &&
	      uid_eq(cred->uid, tcred->suid) &&
	      uid_eq(cred->uid, tcred->uid) &&
	      gid_eq(cred->gid, tcred->egid) &&
	      gid_eq(cred->gid, tcred->sgid) &&
	      gid_eq(cred->gid, tcred->gid)) || has_cap(tcred->user_ns);
	rcu_read_unlock();

	/* Credentials before dumpability; commit_creds() has the counterpart. */
	smp_rmb();
	mm = task->mm;
	if (ok && mm && get_dumpable(mm) != SUID_DUMP_USER)
		ok = has_cap(mm->user_ns);
	task_unlock(task);
	return ok;
}

static bool target_gone(const struct lwp_target *t, struct task_struct *task,
			bool process)
{
	if (process)
		return !atomic_read(&task->signal->live);
	return READ_ONCE(task->flags) & PF_EXITING || task_pid(task) != t->pid;
}

/* The target that @task is or will be, under lwp_mutex; or an error. */
static struct lwp_target *target_get(struct task_struct *task, bool process)
{
	struct lwp_target *t, *old;
	unsigned long key;
	struct pid *pid;
	int err;

	/* As ptrace does: a thread that is being reaped has no pid. */
	pid = get_task_pid(task, process ? PIDTYPE_TGID : PIDTYPE_PID);
	if (!pid)
		return ERR_PTR(-ESRCH);
	key = target_key(pid_nr(pid), process);
	old = xa_load(&targets, key);
	if (old && old->pid == pid && !atomic_read(&old->dead)) {
		put_pid(pid);
		return old;
	}

	t = kzalloc(sizeof(*t), GFP_KERNEL_ACCOUNT);
	if (!t) {
		put_pid(pid);
		return ERR_PTR(-ENOMEM);
	}
	INIT_LIST_HEAD(&t->listeners);
	t->key = key;
	t->pid = pid;
	err = xa_err(xa_store(&targets, key, t, GFP_KERNEL));
	if (err) {
		put_pid(pid);
		kfree(t);
		return ERR_PTR(err);
	}
	if (old)
		target_kill(old);
	return t;
}

/* Make @l visible to the handler, unless there are too many. */
static int listener_add(struct lwp_listener *l, struct task_struct *task,
			bool process)
{
	bool foreign = l->owner != task_tgid(task);
	unsigned int all = 0, foreigners = 0, own = 0;
	struct lwp_listener *other;
	struct lwp_target *t;
	int err = 0;

	if (l->file->nr >= MAX_ATTACHED)
		return -ENOSPC;
	t = target_get(task, process);
	if (IS_ERR(t))
		return PTR_ERR(t);
	list_for_each_entry(other, &t->listeners, node) {
		if (other->file == l->file)
			err = -EEXIST;
		all++;
		foreigners += other->owner != task_tgid(task);
		own += other->owner == l->owner;
	}
	if (!err && (all >= MAX_LISTENERS ||
		     (foreign && (foreigners >= MAX_FOREIGN ||
				  own >= MAX_OF_ONE))))
		err = -EUSERS;
	if (err)
		return err;

	l->target = t;
	list_add_tail_rcu(&l->node, &t->listeners);
	list_add_tail(&l->list, &l->file->listeners);
	WRITE_ONCE(l->file->nr, max(l->file->nr, 0) + 1);
	/* Either it sees the target in its exit or exec, or this sees that. */
	smp_mb();
	if (target_gone(t, task, process))
		target_kill(t);
	return 0;
}

/* Take those with pid @nr, or all if it is -1, away from @file, and free them. */
int lwp_listen_detach(struct lwp_file *file, pid_t nr)
{
	struct lwp_listener *l, *next;
	LIST_HEAD(old);
	int err;

	mutex_lock(&lwp_mutex);
	list_for_each_entry_safe(l, next, &file->listeners, list) {
		if (nr == -1 || l->nr == nr)
			listener_remove(l, &old);
		cond_resched();
	}
	mutex_unlock(&lwp_mutex);

	err = list_empty(&old) ? -ESRCH : 0;
	listeners_free(&old);
	return err;
}

static int attach_task(struct lwp_listener *l, struct task_struct *task,
		       bool process)
{
	int err;

	err = down_read_killable(&task->signal->exec_update_lock);
	if (err)
		return err;
	mutex_lock(&lwp_mutex);
	err = may_attach(task) ? listener_add(l, task, process) : -EPERM;
	mutex_unlock(&lwp_mutex);
	up_read(&task->signal->exec_update_lock);
	return err;
}

long lwp_attach(struct lwp_file *file, const void __user *user)
{
	struct lwp_ioc_attach arg;
	struct task_struct *task;
	struct lwp_listener *l;
	long err;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (arg.pid < 0 || arg.flags & ~LWP_ATTACH_PROCESS ||
	    arg.eventfd < -1 || arg.reserved)
		return -EINVAL;

	rcu_read_lock();
	task = arg.pid ? pid_task(find_vpid(arg.pid), PIDTYPE_PID) : current;
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	if (!task)
		return -ESRCH;

	err = -ENOMEM;
	l = kzalloc(sizeof(*l), GFP_KERNEL_ACCOUNT);
	if (!l)
		goto out;
	kref_get(&file->ref);
	l->file = file;
	l->owner = get_pid(task_tgid(current));
	l->nr = arg.pid ? arg.pid : task_pid_vnr(current);
	if (arg.eventfd >= 0) {
		struct eventfd_ctx *ctx = eventfd_ctx_fdget(arg.eventfd);

		err = PTR_ERR_OR_ZERO(ctx);
		if (err)
			goto out_free;
		l->eventfd = ctx;
	}

	err = attach_task(l, task, arg.flags & LWP_ATTACH_PROCESS);
	if (!err)
		goto out;
out_free:
	listener_free(l);
out:
	put_task_struct(task);
	return err;
}

long lwp_detach(struct lwp_file *file, const __s32 __user *user)
{
	__s32 pid;

	if (get_user(pid, user))
		return -EFAULT;
	if (pid < 0)
		return -EINVAL;
	return lwp_listen_detach(file, pid ? pid : task_pid_vnr(current));
}

void __init lwp_listen_init(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		init_irq_work(&per_cpu(lwp_wakeups, cpu).work, wake_listeners);
}

/* After the last interrupt and the last probe. */
void lwp_listen_flush(void)
{
	unsigned int cpu;

	flush_work(&reap_work);
	for_each_possible_cpu(cpu)
		irq_work_sync(&per_cpu(lwp_wakeups, cpu).work);
	rcu_barrier();
}
