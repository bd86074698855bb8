/* SPDX-License-Identifier: GPL-2.0-or-later WITH Linux-syscall-note */
/*
 * /dev/lwp: threshold interrupts of AMD Lightweight Profiling (AMD publication
 * 43724, revision 3.08, section 8.5).  Nothing here is needed to profile
 * oneself with LLWPCB and to poll the ring.
 *
 * An open file collects the interrupts of the threads attached to it.  read()
 * returns a __u64: how many since the last read; it blocks, or fails with
 * EAGAIN, while that is 0.  poll() reports POLLIN while it is not.  With
 * O_ASYNC, SIGIO (F_SETSIG) goes to the F_SETOWN owner at each interrupt.
 *
 * A thread is detached when it ends, a process when its last thread does, and
 * both when they execute a program of higher privileges.  When the last one of
 * a file has gone, and until another one is attached, read() returns 0 once it
 * has returned the count, poll() reports POLLHUP, and the owner gets SIGIO.
 *
 * LWP_IOC_ATTACH fails with EPERM for who may not trace the other process (see
 * listen.c), ESRCH if there is none, EEXIST if the file has it already, EUSERS
 * if it has too many listeners, and ENOSPC if the file has too many.
 *
 * The driver limits how much of a CPU threshold interrupts may take.  Who is
 * muted for that reason is heard of once when it has ended, but if it executes
 * LLWPCB meanwhile, finds INT clear in its LWPCB.Flags.
 *
 * The layout is the same for 32-bit programs.
 */
#ifndef LWP_IOCTL_H
#define LWP_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define LWP_DEVICE	"/dev/lwp"

/* In lwp_ioc_attach.flags: all threads of the process, now and later. */
#define LWP_ATTACH_PROCESS	(1u << 0)

/**
 * struct lwp_ioc_attach - whose interrupts to collect
 * @pid:	thread ID, 0 for the calling thread
 * @flags:	LWP_ATTACH_*
 * @eventfd:	gets 1 added at each interrupt of these threads; -1 for none
 * @reserved:	0
 */
struct lwp_ioc_attach {
	__s32 pid;
	__u32 flags;
	__s32 eventfd;
	__u32 reserved;
};

/**
 * struct lwp_ioc_status - what the driver offers and has done since its load
 * @features:	made available, bits as in CPUID Fn8000_001C EDX
 * @interrupts:	threshold interrupts
 * @saves:	LWP states saved at a task switch
 * @restores:	LWP states restored at a task switch
 * @heals:	times that XCR0[62] was found clear and set again
 * @exhausted:	tasks whose LWP was disabled for want of memory to save it, or
 *		because they ran on a CPU that refuses LWP
 * @throttles:	times that a CPU was kept from interrupting more
 */
struct lwp_ioc_status {
	__u64 features;
	__u64 interrupts;
	__u64 saves;
	__u64 restores;
	__u64 heals;
	__u64 exhausted;
	__u64 throttles;
};

#define LWP_IOC_ATTACH	_IOW('L', 0x10, struct lwp_ioc_attach)
#define LWP_IOC_DETACH	_IOW('L', 0x11, __s32)	/* the pid of the attach */
#define LWP_IOC_STATUS	_IOR('L', 0x12, struct lwp_ioc_status)

#endif
