// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * /dev/lwp, by which programs listen to threshold interrupts (listen.c), and
 * the driver's attributes in sysfs.
 *
 * The parameter "mode" says who may open it, by default everyone; its group is
 * for user space to set.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "driver.h"
#include "lwp_ioctl.h"

static int lwp_open(struct inode *inode, struct file *filp)
{
	struct lwp_file *file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);

	if (!file)
		return -ENOMEM;
	kref_init(&file->ref);
	file->nr = -1;
	INIT_LIST_HEAD(&file->listeners);
	init_waitqueue_head(&file->wait);
	filp->private_data = file;
	return stream_open(inode, filp);
}

static int lwp_release(struct inode *inode, struct file *filp)
{
	struct lwp_file *file = filp->private_data;

	lwp_listen_detach(file, -1);
	kref_put(&file->ref, lwp_file_free);
	return 0;
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
		.throttles = counts.throttles,
	};
	return copy_to_user(user, &status, sizeof(status)) ? -EFAULT : 0;
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
		if (lwp_file_ended(file))
			return 0;
		if (filp->f_flags & O_NONBLOCK)
			return -EAGAIN;
		err = wait_event_interruptible(file->wait,
					       atomic64_read(&file->count) ||
					       lwp_file_ended(file));
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
	return (lwp_file_ended(file) ? EPOLLHUP : 0) |
	       (atomic64_read(&file->count) ? EPOLLIN | EPOLLRDNORM : 0);
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
COUNT_ATTR(throttles);

static struct attribute *lwp_attrs[] = {
	&dev_attr_features.attr,
	&dev_attr_interrupts.attr,
	&dev_attr_saves.attr,
	&dev_attr_restores.attr,
	&dev_attr_heals.attr,
	&dev_attr_exhausted.attr,
	&dev_attr_throttles.attr,
	NULL
};
ATTRIBUTE_GROUPS(lwp);

static int mode_set(const char *val, const struct kernel_param *kp)
{
	return param_set_uint_minmax(val, kp, 0, 0777);
}

static const struct kernel_param_ops mode_ops = {
	.set = mode_set,
	.get = param_get_uint,
};

static unsigned int mode = 0666;
module_param_cb(mode, &mode_ops, &mode, 0444);
MODULE_PARM_DESC(mode, "permissions of /dev/lwp (0666)");

static struct miscdevice lwp_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "lwp",
	.fops = &lwp_fops,
	.groups = lwp_groups,
};

int lwp_dev_init(void)
{
	lwp_misc.mode = mode;
	return misc_register(&lwp_misc);
}

/* Nobody has it open any more, but targets may still die. */
void lwp_dev_exit(void)
{
	misc_deregister(&lwp_misc);
}
