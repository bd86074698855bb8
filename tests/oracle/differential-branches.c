/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a program of tests/oracle/branches.py runs in: body() once for each of
 * its sessions, at the session's CPL, with branch records on.  All RDMSRs are
 * in the program, each with a mark behind it: what they read is in the trace.
 */

#include "pmu-kernel.h"
#include "differential.h"

enum {
    DB = 1, BP = 3, OF = 4, DUMP = 35, IRQ = 0x50,
    /* Segments that SYSRET and SYSEXIT load are in that order. */
    SYSRET_BASE = 0x33, SYSENTER_BASE = 0x70,
};

#define MSR_STAR            0xc0000081
#define MSR_LSTAR           0xc0000082
#define MSR_SFMASK          0xc0000084
#define MSR_SYSENTER_CS     0x174
#define MSR_SYSENTER_ESP    0x175
#define MSR_SYSENTER_EIP    0x176
#define MSR_LBR_CTL         0x14ce
#define EFER_SCE            1
#define FLAG_TF             (1u << 8)

typedef struct Session {
    uint64_t cs, debugctl, enabled, reload;
    uint64_t msrs[48][2], last[2];  /* an address of 0: none */
    uint64_t ds[4];                 /* index, base, maximum, threshold */
} Session;

static uint8_t pmi_stack[4096] __attribute__((aligned(16)));
static uint8_t sysenter_stack[4096] __attribute__((aligned(16)));

/* What the program loads its registers with, and what it has */
uint64_t debugctl, enabled, reload, ds_index, ds_maximum, ds_threshold;
static uint64_t lbr_ctl;
void dump(void), end_session(void), set_ds_area(void);
void on_dump(void), on_irq(void), on_syscall(void), on_sysenter(void);

#define ENTER(name, bits) \
    ".code" bits "\n" \
    name ": call body\n" \
    "    int $32\n"

asm(".text\n"
    ENTER("enter32", "32")
    ENTER("enter64", "64")
    ".globl enter32, enter64\n");

/* The same, with more of them */
static bool goes_on(unsigned vector)
{
    switch (vector) {
    case DB:
        regs.rflags &= ~(uint64_t)FLAG_TF;
        if (debugctl) {
            wrmsr(MSR_DEBUGCTL, debugctl);
        }
        if (lbr_ctl) {
            wrmsr(MSR_LBR_CTL, lbr_ctl);
        }
        return true;
    case BP:
    case OF:
        return true;
    default:
        return handled(vector);
    }
}

static bool run_session(const Session *s)
{
    debugctl = s->debugctl;
    enabled = s->enabled;
    reload = s->reload;
    ds_index = s->ds[0];
    ds_maximum = s->ds[2];
    ds_threshold = s->ds[3];
    lbr_ctl = 0;
    if (ds_maximum) {
        set_ds_area();
    }
    for (int i = 0; i < ARRAY_SIZE(s->msrs) && s->msrs[i][0]; i++) {
        wrmsr(s->msrs[i][0], s->msrs[i][1]);
        lbr_ctl = s->msrs[i][0] == MSR_LBR_CTL ? s->msrs[i][1] : lbr_ctl;
    }
    set_up(s->cs, (uintptr_t)(s->cs == USER_CODE32 ? enter32 : enter64));
    regs.rflags |= FLAG_IF;
    if (enabled) {
        wrmsr(MSR_GLOBAL_CTRL, enabled);
    }
    do {
        run();
    } while (goes_on(regs.vector));
    if (enabled) {
        wrmsr(MSR_GLOBAL_CTRL, 0);
    }
    wrmsr(s->last[0], s->last[1]);
    dump();
    end_session();
    return regs.vector == EXIT;
}

/* Flat segments for code of 64 or 32 bits, and for data behind them */
static void flat_segments(uint16_t selector, unsigned user, bool wide)
{
    set_segment(selector, 0, 0xfffff, ACC_CODE | user,
                SEG_G | (wide ? SEG_64 : SEG_32));
    set_segment(selector + 8, 0, 0xfffff, ACC_DATA | user, SEG_G | SEG_32);
}

int main(void)
{
    int failures = 0;

    kernel_init();
    apic_init(LVT_NMI);
    asm volatile("mov %0, %%es" : : "r" (USER_DATA));
    xsetbv0(7);
    set_handler(NMI, on_pmi);
    idt[NMI].low += 1ull << 32;         /* IST2 */
    *(uint64_t *)&tss[11] = (uintptr_t)(pmi_stack + sizeof(pmi_stack));
    set_handler(DUMP, on_dump);
    set_handler(IRQ, on_irq);
    set_segment(TEST_DATA, 0, 0xfffff, ACC_DATA | ACC_USER, SEG_G | SEG_32);
    set_segment(TEST_CODE, 0, 0xfffff, ACC_CODE | ACC_USER, SEG_G | SEG_64);
    flat_segments(SYSENTER_BASE, 0, true);
    flat_segments(SYSENTER_BASE + 16, ACC_USER, false);
    flat_segments(SYSENTER_BASE + 32, ACC_USER, true);
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SCE);
    wrmsr(MSR_STAR, (uint64_t)SYSRET_BASE << 48 | (uint64_t)CODE64 << 32);
    wrmsr(MSR_LSTAR, (uintptr_t)on_syscall);
    wrmsr(MSR_SFMASK, 0);
    wrmsr(MSR_SYSENTER_CS, SYSENTER_BASE);
    wrmsr(MSR_SYSENTER_ESP, (uintptr_t)sysenter_stack +
          sizeof(sysenter_stack));
    wrmsr(MSR_SYSENTER_EIP, (uintptr_t)on_sysenter);
    for (int i = 0; i < nr_sessions; i++) {
        set_pte(BAD, 0);
        failures += !run_session((const Session *)sessions + i);
    }
    return failures;
}
