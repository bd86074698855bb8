/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling: what the demos share.
 *
 * Section and table numbers refer to AMD publication 43724, revision 3.08.
 */
#ifndef DEMO_LWP_H
#define DEMO_LWP_H

#define _GNU_SOURCE
#include <cpuid.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#define LWP_AVAIL   (1u << 0)
#define LWP_VAL     (1u << 1)
#define LWP_IRE     (1u << 2)

enum { EVENT_VAL = 1, EVENT_IRE = 2, EVENT_INS = 255 };

/* Figure 2-1, with the names that Figures 2-2 and 2-8 give the data. */
typedef struct Record {
    uint8_t event_id;
    uint8_t core_id;
    uint16_t flags;
    uint32_t data1;
    uint64_t ip;
    uint64_t data2;
    uint64_t reserved;
} Record;

/* Table 6-1; the events begin at LwpEventOffset. */
typedef struct ControlBlock {
    uint32_t flags;
    uint32_t buffer_size:28;
    uint32_t random:4;
    uint64_t buffer_base;
    uint32_t buffer_head_offset;
    uint32_t reserved1;
    uint64_t missed_events;
    uint32_t threshold;
    uint32_t filters;
    uint64_t base_ip;
    uint64_t limit_ip;
    uint64_t reserved2;
    uint32_t buffer_tail_offset;
    uint32_t reserved3;
    uint64_t software[2];
} ControlBlock;

typedef struct Event {
    int32_t interval;
    int32_t counter;
} Event;

_Static_assert(sizeof(Record) == 32, "Figure 2-1");
_Static_assert(offsetof(ControlBlock, buffer_tail_offset) == 64, "Table 6-1");
_Static_assert(sizeof(ControlBlock) == 88, "Table 6-1");

/* What the leaf says, decoded (Table 3-1). */
typedef struct Lwp {
    uint32_t eax, ebx, ecx, edx;
    unsigned cb_size, event_size, max_event, event_offset;
    unsigned version, min_records;
} Lwp;

static inline void fail(const char *message)
{
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, message);
    exit(1);
}

/* Stay on one CPU: the given one, or the last that is allowed. */
static inline void pin(const char *arg)
{
    cpu_set_t set;
    int cpu = -1;

    if (arg) {
        cpu = atoi(arg);
    } else if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        for (int i = 0; i < CPU_SETSIZE; i++) {
            if (CPU_ISSET(i, &set)) {
                cpu = i;
            }
        }
    }
    if (cpu < 0 || cpu >= CPU_SETSIZE) {
        fail("there is no such CPU");
    }
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        fail("the system does not let this program choose that CPU");
    }
}

static inline Lwp detect(void)
{
    Lwp lwp = { 0 };
    uint32_t a, b, c, d;

    if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !(c & (1u << 15))) {
        fail("this CPU has no LWP: CPUID Fn8000_0001 ECX[15] is 0");
    }
    if (!__get_cpuid(0x8000001c, &lwp.eax, &lwp.ebx, &lwp.ecx, &lwp.edx)) {
        fail("this CPU claims LWP but has no CPUID Fn8000_001C");
    }
    lwp.cb_size = (lwp.ebx & 0xff) * 8;
    lwp.event_size = (lwp.ebx >> 8) & 0xff;
    lwp.max_event = (lwp.ebx >> 16) & 0xff;
    lwp.event_offset = lwp.ebx >> 24;
    lwp.version = (lwp.ecx >> 9) & 0x7f;
    lwp.min_records = ((lwp.ecx >> 16) & 0xff) * 32;
    return lwp;
}

#endif
