/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the parts of the LWP driver share; main.c describes the whole.
 */
#ifndef LWP_DRIVER_H
#define LWP_DRIVER_H

#include <linux/atomic.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/percpu.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <asm/msr.h>

#define MSR_LWP_CFG	0xc0000105
#define MSR_LWP_CBADDR	0xc0000106
#define CPUID_XSAVE	0xd
#define CPUID_LWP	0x8000001c

/* Bits of LWP_CFG and CPUID Fn8000_001C EAX and EDX (table 3-1). */
#define LWP_AVAIL	BIT(0)
#define LWP_INT		BIT(31)

/* The component in XCR0 and XSAVE areas; its upper half is EDX of XSAVE. */
#define LWP_XFEATURE	62
#define LWP_XMASK	BIT_ULL(LWP_XFEATURE)

struct fasync_struct;
struct linux_binprm;
struct task_struct;

struct lwp_counts {
	u64 interrupts;
	u64 saves;
	u64 restores;
	u64 heals;
	u64 exhausted;
	u64 throttles;
};

/* What threshold interrupts cost a CPU; changed there, with IRQs off. */
struct lwp_throttle {
	u64 start;		/* of the window, by local_clock() */
	u64 spent;		/* in it, in ns */
	bool over;		/* the work item is to end the window */
	bool muted;		/* no interrupts from the current task, */
	bool all;		/* nor any other one, until then */
	struct delayed_work work;
};

/* An open /dev/lwp. */
struct lwp_file {
	struct kref ref;		/* of the open file and of each listener */
	struct list_head listeners;	/* under lwp_mutex */
	int nr;				/* of them; -1 before the first */
	atomic64_t count;		/* since the last read */
	wait_queue_head_t wait;
	struct fasync_struct *fasync;
};

/* Whether there is nobody left whose interrupts could still come. */
static inline bool lwp_file_ended(const struct lwp_file *file)
{
	return !READ_ONCE(file->nr);
}

struct lwp_cpu {
	bool on;		/* LWP is available here; IRQs off to change */
	bool parked;		/* but not to the current task; likewise */
	u8 vector;		/* 0 if there is none */
	unsigned int irq;
	struct lwp_throttle throttle;
	struct lwp_counts counts;
};

DECLARE_PER_CPU(struct lwp_cpu, lwp_cpus);

#define lwp_count(what)	this_cpu_inc(lwp_cpus.counts.what)

/* Whether the current task has LWP enabled: LWP_CBADDR is 0 if not. */
static inline bool lwp_enabled(void)
{
	u32 low, high;

	return !rdmsr_safe(MSR_LWP_CBADDR, &low, &high) && (low | high);
}

/* Disable LWP and discard its state (section 4.3). */
static inline void lwp_stop(void)
{
	wrmsr_safe(MSR_LWP_CBADDR, 0, 0);
}

/* dev.c */
int lwp_dev_init(void);
void lwp_dev_exit(void);

/* task.c */
int lwp_task_init(void);
void lwp_task_exit(void);

/* irq.c */
void lwp_irq_init(void);
void lwp_irq_setup(unsigned int cpu);
void lwp_irq_free(unsigned int cpu);

/* kvm.c */
int lwp_kvm_init(void);
void lwp_kvm_exit(void);
bool lwp_kvm_loader(const struct task_struct *task);

/* state.c */
int lwp_state_init(void);
void lwp_state_exit(void);
bool lwp_state_save(const struct task_struct *task);
bool lwp_state_restore(const struct task_struct *task);
void lwp_state_discard(const struct task_struct *task);
void lwp_state_park(void);
void lwp_state_unpark(void);
void lwp_state_mute(struct task_struct *prev);
bool lwp_state_muted(const struct task_struct *next);
void lwp_state_forget(void);

/* listen.c */
void lwp_listen_init(void);
void lwp_listen_flush(void);
void lwp_listen_notify(struct task_struct *task, bool muted);
void lwp_listen_wake(void);
void lwp_listen_exec(struct task_struct *task, pid_t old_nr,
		     struct linux_binprm *bprm);
void lwp_listen_task_exit(struct task_struct *task);
long lwp_attach(struct lwp_file *file, const void __user *user);
long lwp_detach(struct lwp_file *file, const __s32 __user *user);
int lwp_listen_detach(struct lwp_file *file, pid_t nr);
void lwp_file_free(struct kref *ref);

/* throttle.c */
void lwp_throttle(void);
void lwp_throttle_charge(u64 start);
u64 lwp_throttle_end(struct lwp_throttle *t);
void lwp_throttle_mute(bool mute);

/* cpu.c */
int lwp_detect(void);
int lwp_write_cfg(void);
void lwp_hide(void);
void lwp_show(void);
void lwp_disable(void);
int lwp_enable(void);
void lwp_heal(void);
void lwp_sum(struct lwp_counts *sum);
u32 lwp_get_features(void);
int lwp_set_features(u32 features);

#endif
