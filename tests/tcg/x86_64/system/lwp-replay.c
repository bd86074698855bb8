/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling: a run to be recorded and replayed.  How often a
 * program polls the real-time clock until a second is over depends on the host;
 * what is printed of its ring, counters and interrupts must not change when
 * the same run is replayed.
 */

#include "lwp-kernel.h"

enum { VECTOR = 0x61, INTERVAL = 997 };

#define ALL         0x7e
#define RFLAGS_IF   (1ull << 9)
#define RFLAGS_IOPL (3ull << 12)

/* volatile: the kernel reads it when the program has been interrupted */
static volatile uint32_t polls;
static uint8_t data[65536];
static XsaveArea area;

static void program(void)
{
    uint8_t second = rtc_second();

    do {
        polls++;
        lwpval(polls, 2, 3);
        data[polls * 64 % sizeof(data)]++;
    } while (rtc_second() == second);
}

static uint64_t digest(const void *p, size_t size)
{
    const uint8_t *bytes = p;
    uint64_t hash = 0xcbf29ce484222325;     /* FNV-1a */

    while (size--) {
        hash = (hash ^ *bytes++) * 0x100000001b3;
    }
    return hash;
}

static void print(const char *name, uint64_t val)
{
    ml_printf("%s %lx\n", name, val);
}

int main(void)
{
    unsigned vector, interrupts = 0;
    int status;

    kernel_init();
    xsetbv0(3 | LWP_XSTATE);
    wrmsr(MSR_LWP_CFG, (uint64_t)VECTOR << 40 | ALL | LWP_FLAG_INT);
    APIC(0xf0) |= 0x100;                    /* software enable */
    out8(0x21, 0xff);                       /* nothing from the PICs */
    out8(0xa1, 0xff);

    prepare(ALL | LWP_FLAG_INT);
    /* 4 Random bits; a tail that the head never meets */
    cb->size = 2 * PAGE | 4u << 28;
    cb->tail = 1;
    for (int i = 0; i < ARRAY_SIZE(cb->event); i++) {
        cb->event[i].interval = cb->event[i].counter = INTERVAL << i;
    }
    llwpcb(user_cb);
    set_up(USER_CODE64, (uintptr_t)program);
    regs.rflags |= RFLAGS_IF | RFLAGS_IOPL;
    *(uint64_t *)regs.rsp = (uintptr_t)exit_user;
    while ((vector = run()) == VECTOR) {
        interrupts++;
        APIC(0xb0) = 0;                     /* EOI */
    }
    xsave(&area, LWP_XSTATE);

    report(vector == EXIT && interrupts > 2 && cb->missed == 0,
           "records are stored and interrupt");
    print("polls", polls);
    print("interrupts", interrupts);
    print("ring", digest(ring, 2 * PAGE));
    print("state", digest(&area.lwp, sizeof(area.lwp)));
    status = report_summary();
    /* An input: a recording ends with the last one. */
    rtc_second();
    return status;
}
