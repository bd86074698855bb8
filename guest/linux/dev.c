// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * /dev/lwp passes threshold interrupts on to those who asked for them, and has
 * the driver's attributes in sysfs.
 *
 * Permissions: everyone may open it and attach to threads of the own process.
 * To attach to another process needs the credentials to ptrace it, that is all
 * user and group IDs alike and a dumpable process, or CAP_PERFMON or
 * CAP_SYS_PTRACE over it.  What a listener learns is when a ring fills, not what
 * is in it.  It is detached when the process executes a program that raises
 * privileges or that its user may not read.
 *
 * A thread that is attached twice, by itself and with its process, counts twice.
 */
#include <linux/atomic.h>
#include <linux/binfmts.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/eventfd.h>
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/irq_work.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/poll.h>
#include <linux/rculist.h>
#include <linux/sched/coredump.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/wait.h>
#include "driver.h"
#include "lwp_ioctl.h"

/* Of one thread or process, for the handler's sake; and of one open file. */
#define MAX_LISTENERS	16
#define MAX_ATTACHED	65536

struct lwp_file {
	struct mutex lock;		/* of listeners, nr */
	struct list_head listeners;
	unsigned int nr;
	atomic64_t count;		/* since the last read */
	wait_queue_head_t wait;
	struct fasync_struct *fasync;
};

struct lwp_listener {
	struct hlist_node node;		/* by pid; unhashed after some exec */
	struct list_head list;		/* in its file, or to be freed */
	struct lwp_file *file;
	struct pid *pid;		/* of a thread or a process */
	bool process;
	pid_t nr;			/* how the file's user calls it */
	struct eventfd_ctx *eventfd;
	atomic_t pending;
	struct irq_work work;
};

static DEFINE_HASHTABLE(listeners, 10);
static DEFINE_RAW_SPINLOCK(listeners_lock);

/* --- the interrupt ------------------------------------------------------- */

static void lwp_eventfd_signal(struct eventfd_ctx *ctx)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	eventfd_signal(ctx);
#else
	eventfd_signal(ctx, 1);
#endif
}

static void listener_wake(struct irq_work *work)
{
	struct lwp_listener *l = container_of(work, struct lwp_listener, work);
	int n = atomic_xchg(&l->pending, 0);

	if (!n)
		return;
	wake_up_interruptible(&l->file->wait);
	kill_fasync(&l->file->fasync, SIGIO, POLL_IN);
	if (l->eventfd) {
		while (n-- > 0)
			lwp_eventfd_signal(l->eventfd);
	}
}

static void notify(const struct pid *pid, bool process)
{
	struct lwp_listener *l;

	hash_for_each_possible_rcu(listeners, l, node, (unsigned long)pid) {
		if (l->pid != pid || l->process != process)
			continue;
		atomic64_inc(&l->file->count);
		atomic_inc(&l->pending);
		irq_work_queue(&l->work);
	}
}

/* In hard IRQ context: the current thread has crossed its threshold. */
void lwp_dev_notify(void)
{
	/* It has no LWP any more, and soon no struct pid and signal_struct. */
	if (current->flags & PF_EXITING)
		return;
	rcu_read_lock();
	notify(task_pid(current), false);
	notify(task_tgid(current), true);
	rcu_read_unlock();
}

/* --- attaching and detaching --------------------------------------------- */

static void unhash(const struct pid *pid)
{
	struct lwp_listener *l;
	struct hlist_node *next;

	hash_for_each_possible_safe(listeners, l, next, node,
				    (unsigned long)pid) {
		if (l->pid == pid)
			hlist_del_init_rcu(&l->node);
	}
}

/* In atomic context: the current task has executed another program. */
void lwp_dev_exec(struct task_struct *task, struct linux_binprm *bprm)
{
	unsigned long flags;

	if (!bprm->secureexec && get_dumpable(task->mm) == SUID_DUMP_USER)
		return;
	raw_spin_lock_irqsave(&listeners_lock, flags);
	unhash(task_pid(task));
	unhash(task_tgid(task));
	raw_spin_unlock_irqrestore(&listeners_lock, flags);
}

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

/* Make @l visible to the handler, unless there are too many. */
static int listener_hash(struct lwp_listener *l)
{
	struct lwp_listener *other;
	unsigned int n = 0;
	unsigned long flags;
	int err = 0;

	raw_spin_lock_irqsave(&listeners_lock, flags);
	hash_for_each_possible(listeners, other, node, (unsigned long)l->pid) {
		if (other->pid != l->pid || other->process != l->process)
			continue;
		if (other->file == l->file)
			err = -EEXIST;
		n++;
	}
	if (!err && n >= MAX_LISTENERS)
		err = -EUSERS;
	if (!err)
		hash_add_rcu(listeners, &l->node, (unsigned long)l->pid);
	raw_spin_unlock_irqrestore(&listeners_lock, flags);
	return err;
}

/* Take those with pid @nr, or all if it is -1, away from @file, and free them. */
static int detach(struct lwp_file *file, pid_t nr)
{
	struct lwp_listener *l, *next;
	unsigned long flags;
	LIST_HEAD(old);

	mutex_lock(&file->lock);
	raw_spin_lock_irqsave(&listeners_lock, flags);
	list_for_each_entry_safe(l, next, &file->listeners, list) {
		if (nr != -1 && l->nr != nr)
			continue;
		hlist_del_init_rcu(&l->node);
		list_move(&l->list, &old);
		file->nr--;
	}
	raw_spin_unlock_irqrestore(&listeners_lock, flags);
	mutex_unlock(&file->lock);

	if (list_empty(&old))
		return -ESRCH;

	synchronize_rcu();
	list_for_each_entry_safe(l, next, &old, list) {
		irq_work_sync(&l->work);
		if (l->eventfd)
			eventfd_ctx_put(l->eventfd);
		put_pid(l->pid);
		kfree(l);
	}
	return 0;
}

static int attach_task(struct lwp_file *file, struct lwp_listener *l,
		       struct task_struct *task)
{
	int err;

	/* As ptrace does: a thread that is being reaped has no pid. */
	l->pid = get_task_pid(task, l->process ? PIDTYPE_TGID : PIDTYPE_PID);
	if (!l->pid)
		return -ESRCH;

	err = down_read_killable(&task->signal->exec_update_lock);
	if (err)
		return err;
	mutex_lock(&file->lock);
	if (!may_attach(task))
		err = -EPERM;
	else if (file->nr >= MAX_ATTACHED)
		err = -ENOSPC;
	else
		err = listener_hash(l);
	if (!err) {
		list_add_tail(&l->list, &file->listeners);
		file->nr++;
	}
	mutex_unlock(&file->lock);
	up_read(&task->signal->exec_update_lock);
	return err;
}

static long lwp_attach(struct lwp_file *file, const void __user *user)
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
	l->file = file;
	l->nr = arg.pid ? arg.pid : task_pid_vnr(current);
	l->process = arg.flags & LWP_ATTACH_PROCESS;
	init_irq_work(&l->work, listener_wake);
	if (arg.eventfd >= 0) {
		struct eventfd_ctx *ctx = eventfd_ctx_fdget(arg.eventfd);

		if (IS_ERR(ctx)) {
			err = PTR_ERR(ctx);
			goto out_free;
		}
		l->eventfd = ctx;
	}

	err = attach_task(file, l, task);
	if (!err)
		goto out;

	/* It was never hashed. */
	if (l->eventfd)
		eventfd_ctx_put(l->eventfd);
	put_pid(l->pid);
out_free:
	kfree(l);
out:
	put_task_struct(task);
	return err;
}

static long lwp_detach(struct lwp_file *file, const __s32 __user *user)
{
	__s32 pid;

	if (get_user(pid, user))
		return -EFAULT;
	if (pid < 0)
		return -EINVAL;
	return detach(file, pid ? pid : task_pid_vnr(current));
}

static long lwp_status(void __user *user)
{
	struct lwp_counts counts;
	struct lwp_ioc_status status;

	lwp_sum(&counts);
	status = (struct lwp_ioc_status) {
		.features = lwp_get_features(),
		.interrupts = counts.interrupts,
		.saves = counts.saves,
		.restores = counts.restores,
		.heals = counts.heals,
		.exhausted = counts.exhausted,
	};
	return copy_to_user(user, &status, sizeof(status)) ? -EFAULT : 0;
}

/* --- /dev/lwp ------------------------------------------------------------ */

static int lwp_open(struct inode *inode, struct file *filp)
{
	struct lwp_file *file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);

	if (!file)
		return -ENOMEM;
	mutex_init(&file->lock);
	INIT_LIST_HEAD(&file->listeners);
	init_waitqueue_head(&file->wait);
	filp->private_data = file;
	return stream_open(inode, filp);
}

static int lwp_release(struct inode *inode, struct file *filp)
{
	struct lwp_file *file = filp->private_data;

	detach(file, -1);
	kfree(file);
	return 0;
}

static long lwp_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct lwp_file *file = filp->private_data;
	void __user *user = (void __user *)arg;

	switch (cmd) {
	case LWP_IOC_ATTACH:
		return lwp_attach(file, user);
	case LWP_IOC_DETACH:
		return lwp_detach(file, user);
	case LWP_IOC_STATUS:
		return lwp_status(user);
	default:
		return -ENOTTY;
	}
}

static ssize_t lwp_read(struct file *filp, char __user *buf, size_t size,
			loff_t *pos)
{
	struct lwp_file *file = filp->private_data;
	u64 count;
	int err;

	if (size < sizeof(count))
		return -EINVAL;

	while (!(count = atomic64_xchg(&file->count, 0))) {
		if (filp->f_flags & O_NONBLOCK)
			return -EAGAIN;
		err = wait_event_interruptible(file->wait,
					       atomic64_read(&file->count));
		if (err)
			return err;
	}
	if (copy_to_user(buf, &count, sizeof(count))) {
		atomic64_add(count, &file->count);
		return -EFAULT;
	}
	return sizeof(count);
}

static __poll_t lwp_poll(struct file *filp, poll_table *table)
{
	struct lwp_file *file = filp->private_data;

	poll_wait(filp, &file->wait, table);
	return atomic64_read(&file->count) ? EPOLLIN | EPOLLRDNORM : 0;
}

static int lwp_fasync(int fd, struct file *filp, int on)
{
	struct lwp_file *file = filp->private_data;

	return fasync_helper(fd, filp, on, &file->fasync);
}

static const struct file_operations lwp_fops = {
	.owner = THIS_MODULE,
	.open = lwp_open,
	.release = lwp_release,
	.unlocked_ioctl = lwp_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.read = lwp_read,
	.poll = lwp_poll,
	.fasync = lwp_fasync,
};

/* --- sysfs --------------------------------------------------------------- */

static ssize_t features_show(struct device *dev, struct device_attribute *attr,
			     char *buf)
{
	return sysfs_emit(buf, "%#x\n", lwp_get_features());
}

static ssize_t features_store(struct device *dev, struct device_attribute *attr,
			      const char *buf, size_t size)
{
	u32 features;
	int err;

	err = kstrtou32(buf, 16, &features);
	if (!err)
		err = lwp_set_features(features);
	return err ? err : size;
}
static DEVICE_ATTR_RW(features);

#define COUNT_ATTR(name)						\
static ssize_t name##_show(struct device *dev,				\
			   struct device_attribute *attr, char *buf)	\
{									\
	struct lwp_counts counts;					\
									\
	lwp_sum(&counts);						\
	return sysfs_emit(buf, "%llu\n", counts.name);			\
}									\
static DEVICE_ATTR_RO(name)

COUNT_ATTR(interrupts);
COUNT_ATTR(saves);
COUNT_ATTR(restores);
COUNT_ATTR(heals);
COUNT_ATTR(exhausted);

static struct attribute *lwp_attrs[] = {
	&dev_attr_features.attr,
	&dev_attr_interrupts.attr,
	&dev_attr_saves.attr,
	&dev_attr_restores.attr,
	&dev_attr_heals.attr,
	&dev_attr_exhausted.attr,
	NULL
};
ATTRIBUTE_GROUPS(lwp);

static struct miscdevice lwp_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "lwp",
	.fops = &lwp_fops,
	.mode = 0666,
	.groups = lwp_groups,
};

int lwp_dev_init(void)
{
	return misc_register(&lwp_misc);
}

void lwp_dev_exit(void)
{
	misc_deregister(&lwp_misc);
}
