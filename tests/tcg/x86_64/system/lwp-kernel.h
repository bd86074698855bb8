/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: what its system mode tests share. */
#ifndef TESTS_TCG_LWP_KERNEL_H
#define TESTS_TCG_LWP_KERNEL_H

#include "kernel.h"
#include "../../i386/lwp.h"

#define MSR_LWP_CFG     0xc0000105
#define MSR_LWP_CBADDR  0xc0000106

/* Make all of LWP available except interrupts. */
static inline void lwp_make_available(void)
{
    xsetbv0(3 | LWP_XSTATE);
    wrmsr(MSR_LWP_CFG, cpuid_reg(0x8000001c, 0, 3) & ~LWP_FLAG_INT);
}

/*
 * Pages 0 and 1 of the window are the tests' ring, page 2 is their LWPCB;
 * programs use the window, the kernel looks at window_ram.
 */
#define RING_ADDR       WINDOW
#define CB_ADDR         (WINDOW + 2 * PAGE)
#define user_cb         ((LwpCb *)CB_ADDR)

static LwpRecord *const ring = (LwpRecord *)window_ram[0];
static LwpCb *const cb = (LwpCb *)window_ram[2];

/* LWP is disabled, everything is mapped and @cb is prepared for @flags. */
static inline void prepare(uint32_t flags)
{
    wrmsr(MSR_LWP_CBADDR, 0);
    for (int i = 0; i < WINDOW_PAGES; i++) {
        set_pte(i, PTE_ALL);
    }
    load_ds(USER_DATA);
    memset(window_ram, 0, sizeof(window_ram));
    lwp_init(cb, (void *)RING_ADDR, LWP_MIN_RING, flags);
    cb->event[0].interval = cb->event[0].counter = 9;
}

/* The same, enabled by the program. */
static inline void start(uint32_t flags)
{
    prepare(flags);
    at_cpl(3, llwpcb(user_cb));
}

#endif
