// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * PROGRAM at CPL 3 and at CPL 0 on a bare machine, while performance counters
 * count EVENTS, a list of unit masks and events, branches are recorded as
 * IA32_DEBUGCTL and MSR_LBR_SELECT have it, each IBS-th op is sampled, and
 * branches are traced if PT is not 0, but IA32_RTIT_CTL.
 * With PERIOD the first counter interrupts so often or, with PEBS in
 * IA32_PEBS_ENABLE, records.  FSIN, which nothing else here executes, marks the
 * ends of what is measured: at each CPL, WARM_UP rounds, which are mostly
 * translation, and ROUNDS more.
 */
#include <stdio.h>
#include <stdlib.h>

static int how_often;
/* volatile: or else there would be nothing to compute */
static volatile unsigned result;

#define main program
#define atoi(arg) how_often
#define printf(format, sum) (result = (sum))
#include PROGRAM
#undef main

#include "bench-kernel.h"

static const uint16_t events[] = { EVENTS };

/* The debug store area and its buffer: there is a PMI for 2,500 records */
enum { DEBUGCTL_BTS = 1 << 7, MSR_DS_AREA = 0x600, MSR_LBR_SELECT = 0x1c8 };
enum { MSR_RTIT_OUTPUT_BASE = 0x560, MSR_RTIT_OUTPUT_MASK,
       MSR_RTIT_CTL = 0x570 };
enum { MSR_PEBS_ENABLE = 0x3f1, MSR_PEBS_DATA_CFG = 0x3f2,
       MSR_LOAD_LATENCY = 0x3f6, CFG_ALL = 0x1f00000f };
#define EVTSEL_ADAPTIVE (1ull << 34)
static uint64_t __attribute__((used)) records[3 * 2560], ds[9];
static unsigned __attribute__((used)) interrupts;

/* It has a stack of its own. */
static void __attribute__((naked)) on_pmi(void)
{
    asm("push %%rax\n lea records(%%rip), %%rax\n"
        "mov %%rax, 8 + ds(%%rip)\n mov %%rax, 0x28 + ds(%%rip)\n"
        "incl interrupts(%%rip)\n"
        ".if %c0\n push %%rcx\n push %%rdx\n"
        "mov $0x390, %%ecx\n mov $1, %%eax\n mov $0x40000000, %%edx\n wrmsr\n"
        "mov $0xc1, %%ecx\n mov $-%c0, %%eax\n cltd\n wrmsr\n"
        "pop %%rdx\n pop %%rcx\n .endif\n"
        "mov $0xfee00340, %%eax\n movl $0x400, (%%rax)\n pop %%rax\n iretq"
        : : "i" (PERIOD));
}

static void set_on_pmi(void)
{
    apic_init(LVT_NMI);
    set_handler(2, on_pmi);
}

static bool is_adaptive(void)
{
    return PEBS && (rdmsr(MSR_PERF_CAPABILITIES) >> 14 & 1);
}

/* How many samples, or records of format 3 or with all groups, there were */
static unsigned recorded(void)
{
    unsigned size = is_adaptive() ? 32 + 32 + 144 + 256 + 32 * 24 : 200;

    return IBS ? interrupts :
           interrupts * ((ds[7] - ds[4] + size - 1) / size) +
           (ds[5] - ds[4]) / size;
}

/* There are few interrupts. */
static void sample(void)
{
    set_on_pmi();
    wrmsr(MSR_PMC(0), -PERIOD);
    if (PEBS) {
        ds[4] = ds[5] = (uintptr_t)records;
        ds[6] = ds[4] + sizeof(records);
        ds[7] = ds[4] + sizeof(records) - 8192;
        ds[8] = -(uint64_t)PERIOD;
        wrmsr(MSR_DS_AREA, (uintptr_t)ds);
        if (is_adaptive()) {
            wrmsr(MSR_PEBS_DATA_CFG, CFG_ALL);
        }
        wrmsr(MSR_LOAD_LATENCY, 3);
        wrmsr(MSR_PEBS_ENABLE, PEBS);
    }
}

static void record_branches(void)
{
    if (DEBUGCTL & DEBUGCTL_BTS) {
        set_on_pmi();
        ds[0] = ds[1] = (uintptr_t)records;
        ds[2] = ds[0] + sizeof(records);
        ds[3] = ds[0] + 24 * 2500;
        wrmsr(MSR_DS_AREA, (uintptr_t)ds);
    }
    if (SELECT) {
        wrmsr(MSR_LBR_SELECT, SELECT);
    }
    if (DEBUGCTL) {
        wrmsr(MSR_DEBUGCTL, DEBUGCTL);
    }
}

static void __attribute__((naked)) on_sample(void)
{
    asm("push %%rax\n push %%rcx\n push %%rdx\n"
        "incl interrupts(%%rip)\n"
        "mov %0, %%ecx\n mov %1, %%eax\n xor %%edx, %%edx\n wrmsr\n"
        "pop %%rdx\n pop %%rcx\n pop %%rax\n iretq"
        : : "i" (MSR_IBS_OP_CTL), "i" (IBS_OP_EVERY(IBS)));
}

static void sample_ops(void)
{
    if (IBS) {
        stop_counters();
        apic_init(LVT_MASKED);
        APIC(0x500) = LVT_NMI;      /* the first entry of the extended LVT */
        set_handler(2, on_sample);
        wrmsr(MSR_IBS_OP_CTL, IBS_OP_EVERY(IBS));
    }
}

/* It goes round in a buffer. */
static void trace_branches(void)
{
    static uint8_t trace[1 << 16] __attribute__((aligned(1 << 16)));

    if (PT) {
        wrmsr(MSR_RTIT_OUTPUT_BASE, (uintptr_t)trace);
        wrmsr(MSR_RTIT_OUTPUT_MASK, sizeof(trace) - 1);
        wrmsr(MSR_RTIT_CTL, PT);
    }
}

static void run_program(void)
{
    char *argv[2];

    program(2, argv);
}

static void measure(int cpl)
{
    mark();
    how_often = WARM_UP;
    run_function(cpl, run_program);
    mark();
    how_often = ROUNDS;
    run_function(cpl, run_program);
}

int main(void)
{
    int counters = sizeof(events) / sizeof(events[0]);

    kernel_init();
    for (int i = 0; i < counters; i++) {
        wrmsr(MSR_EVTSEL(i), events[i] | EVTSEL_USR | EVTSEL_OS | EVTSEL_EN |
              (PERIOD && !PEBS ? EVTSEL_INT : 0) |
              (is_adaptive() ? EVTSEL_ADAPTIVE : 0));
    }
    if (PERIOD) {
        sample();
    }
    if (counters) {
        wrmsr(MSR_GLOBAL_CTRL, (1 << counters) - 1);
    }
    record_branches();
    trace_branches();
    sample_ops();
    measure(3);
    measure(0);
    mark();
    for (unsigned unit = 10000000; (PEBS || IBS) && unit; unit /= 10) {
        out8(0xe9, '0' + recorded() / unit % 10);
    }
    return 0;
}
