/* SPDX-License-Identifier: GPL-2.0-or-later */
/* XSAVE and XRSTOR of LWP by a kernel, and pending records (chapter 7). */

#include "lwp-kernel.h"

static XsaveArea area;
static const LwpRecord forged = { 200, 17, 0x1234, 5, 6, 7, 8 };

static void save(void)
{
    memset(&area, 0, sizeof(area));
    xsave(&area, LWP_XSTATE);
}

/* An image of an enabled LWP; LWP itself is disabled. */
static void make_image(uint32_t flags)
{
    start(flags);
    save();
    wrmsr(MSR_LWP_CBADDR, 0);
}

static void test_cpl0(void)
{
    start(LWP_FLAG_VAL);
    at_cpl(3, lwpval(0, 0, 0));
    for (int i = 0; i < 3; i++) {
        set_pte(i, 0);
    }
    report(at_cpl(0, save()) == EXIT && area.xstate_bv == LWP_XSTATE &&
           area.lwp.cb == CB_ADDR && area.lwp.base == RING_ADDR &&
           area.lwp.size == LWP_MIN_RING && area.lwp.counter[0] == 8,
           "CPL 0: XSAVE without LWPCB and ring in memory");
    wrmsr(MSR_LWP_CBADDR, 0);
    report(at_cpl(0, xrstor(&area, LWP_XSTATE)) == EXIT &&
           rdmsr(MSR_LWP_CBADDR) == CB_ADDR,
           "CPL 0: XRSTOR without LWPCB and ring in memory");
    area.xstate_bv = 0;
    report(at_cpl(0, xrstor(&area, LWP_XSTATE)) == EXIT &&
           rdmsr(MSR_LWP_CBADDR) == 0,
           "CPL 0: XRSTOR of the initial state disables");
    save();
    report(area.xstate_bv == 0, "XSTATE_BV[62] is LWP's being enabled");

    make_image(0);
    area.lwp.cb = 1ull << 63;
    area.lwp.base = 1ull << 62;
    at_cpl(0, xrstor(&area, LWP_XSTATE));
    report(rdmsr(MSR_LWP_CBADDR) == 1ull << 63,
           "CPL 0: XRSTOR trusts the pointers");
    at_cpl(3, xrstor(&area, LWP_XSTATE));
    report(regs.vector == EXIT && rdmsr(MSR_LWP_CBADDR) == 0,
           "CPL 3: XRSTOR does not");
    make_image(0);
    area.lwp.size = LWP_MIN_RING - 1;
    at_cpl(0, xrstor(&area, LWP_XSTATE));
    report(rdmsr(MSR_LWP_CBADDR) == 0,
           "CPL 0: XRSTOR of a ring that is too small disables");
}

static void xsaveopt(void)
{
    asm volatile("xsaveopt %0" : "+m" (area)
                 : "a" (0), "d" ((uint32_t)(LWP_XSTATE >> 32)) : "memory");
}

/* XCR0 & XINUSE */
static uint64_t xgetbv1(void)
{
    uint32_t lo, hi;

    asm volatile("xgetbv" : "=a" (lo), "=d" (hi) : "c" (1));
    return (uint64_t)hi << 32 | lo;
}

static void test_optimized(void)
{
    if ((cpuid_reg(0xd, 1, 0) & 5) != 5) {
        ml_printf("SKIP: no XSAVEOPT, no XGETBV with ECX = 1\n");
        return;
    }
    start(LWP_FLAG_VAL);
    at_cpl(3, lwpval(0, 0, 0));
    memset(&area, 0, sizeof(area));
    xsaveopt();
    report(area.xstate_bv == LWP_XSTATE && area.lwp.cb == CB_ADDR &&
           area.lwp.counter[0] == 8, "XSAVEOPT of LWP in use");
    report(xgetbv1() & LWP_XSTATE, "XGETBV(1) shows that it is");
    wrmsr(MSR_LWP_CBADDR, 0);
    xsaveopt();
    report(area.xstate_bv == 0, "XSAVEOPT of LWP not in use");
    report(!(xgetbv1() & LWP_XSTATE), "XGETBV(1) shows that it is not");
}

static void test_header(void)
{
    start(0);
    area.xstate_bv = LWP_XSTATE | 4;
    xsave(&area, LWP_XSTATE);
    report(area.xstate_bv == (LWP_XSTATE | 4),
           "XSAVE changes the header bits of RFBM only");
    save();
    xsetbv0(3);
    report(at_cpl(0, xrstor(&area, LWP_XSTATE)) == GP,
           "XRSTOR of XSTATE_BV[62] while XCR0[62] = 0 is #GP");
    report(at_cpl(3, xrstor(&area, 3)) == GP, "without RFBM[62], too");
    area.xstate_bv = 0;
    report(at_cpl(0, xrstor(&area, ~0ull)) == EXIT &&
           at_cpl(0, xsave(&area, ~0ull)) == EXIT &&
           !(area.xstate_bv & LWP_XSTATE), "else XCR0 masks RFBM");
    xsetbv0(3 | LWP_XSTATE);
    report(rdmsr(MSR_LWP_CBADDR) == 0, "and LWP stays disabled");

    make_image(LWP_FLAG_VAL);
    area.lwp.flags = LWP_FLAG_VAL;
    wrmsr(MSR_LWP_CFG, 0);
    xrstor(&area, LWP_XSTATE);
    lwp_make_available();
    save();
    report(area.lwp.cb == CB_ADDR && area.lwp.flags == 0,
           "XRSTOR drops events that LWP_CFG does not have at the moment");
}

/* Switch between two programs that both use LWP. */
static void test_switch(void)
{
    static XsaveArea second;
    LwpCb *cb2 = (LwpCb *)window_ram[3];
    bool ok = true;

    start(LWP_FLAG_VAL);
    save();
    lwp_init(cb2, (void *)(WINDOW + 4 * PAGE), LWP_MIN_RING, LWP_FLAG_VAL);
    cb2->event[0].interval = cb2->event[0].counter = 1;
    /* A system would not let LWPCB 1 be flushed by LWPCB 2's LLWPCB. */
    wrmsr(MSR_LWP_CBADDR, 0);
    at_cpl(3, llwpcb((void *)(WINDOW + 3 * PAGE)));
    xsave(&second, LWP_XSTATE);
    for (int i = 0; i < 20; i++) {
        XsaveArea *task = i & 1 ? &second : &area;

        xrstor(task, LWP_XSTATE);
        ok &= at_cpl(3, lwpval(i, 0, 0)) == EXIT;
        xsave(task, LWP_XSTATE);
    }
    report(ok && ring[0].event == LWP_VAL && ring[0].data2 == 18 &&
           ring[1].event == 0, "task switches: ten LWPVALs, one record");
    report(area.lwp.head == 32 && area.lwp.counter[0] == 9 &&
           second.lwp.head == 160 && second.lwp.counter[0] == 1,
           "each task has its own counter and head");
}

/* §7.4 step 3: a saved record is stored once CPL is 3. */
static void nothing(void)
{
    asm volatile("nop");
}

static void enter_nothing(void)
{
    set_up(USER_CODE64, (uintptr_t)nothing);
    *(uint64_t *)regs.rsp = (uintptr_t)exit_user;
}

static void restore_forged(void)
{
    make_image(LWP_FLAG_VAL);
    area.lwp.saved = forged;
    xrstor(&area, LWP_XSTATE);
}

static void test_pending(void)
{
    uint64_t ip;

    restore_forged();
    save();
    report(at_cpl(0, nothing()) == EXIT && ring[0].event == 0 &&
           same(&area.lwp.saved, &forged, 32),
           "a pending record is kept at CPL 0, and XSAVE shows it");
    enter_nothing();
    report(run() == EXIT && same(ring, &forged, 32) && ring[1].event == 0,
           "it is stored when CPL is 3");
    run_function(3, nothing);
    save();
    report(area.lwp.head == 32 && area.lwp.saved.event == 0 &&
           ring[1].event == 0, "once");

    restore_forged();
    set_pte(0, 0);
    enter_nothing();
    ip = regs.rip;
    report(run() == PF && regs.error == (PTE_U | PTE_W) &&
           fault_address == RING_ADDR && regs.rip == ip && regs.cs & 3,
           "ring missing: #PF at the next instruction of the program");
    save();
    report(same(&area.lwp.saved, &forged, 32) && area.lwp.head == 0,
           "the record is still pending");
    report(at_cpl(3, (void)0) == EXIT,
           "a program that goes on elsewhere is left alone");
    enter_nothing();
    report(run() == PF, "one that returns to the address faults again");
    set_pte(0, PTE_ALL);
    report(run() == EXIT && same(ring, &forged, 32) && ring[1].event == 0,
           "page mapped: the record is stored, the program goes on");

    /* Another task in between makes the address of the fault irrelevant. */
    restore_forged();
    set_pte(0, PTE_P | PTE_U);
    enter_nothing();
    report(run() == PF && regs.error == PTE_ALL, "ring read-only: #PF");
    save();
    wrmsr(MSR_LWP_CBADDR, 0);
    set_pte(0, PTE_ALL);
    report(at_cpl(3, (void)0) == EXIT && ring[0].event == 0,
           "LWP_CBADDR = 0 forgets the record");
    xrstor(&area, LWP_XSTATE);
    report(run_function(3, nothing) == EXIT && same(ring, &forged, 32),
           "XRSTOR brings it back");

    restore_forged();
    set_pte(2, 0);
    enter_nothing();
    report(run() == PF && regs.error == (PTE_U | PTE_W) &&
           fault_address >> 12 == CB_ADDR >> 12, "LWPCB missing: #PF");
    set_pte(2, PTE_ALL);
    report(run() == EXIT && same(ring, &forged, 32) && cb->head == 32,
           "page mapped: record and head are stored");

    restore_forged();
    xsetbv0(3);
    xsetbv0(3 | LWP_XSTATE);
    report(at_cpl(3, (void)0) == EXIT && ring[0].event == 0,
           "clearing XCR0[62] forgets the record");

    restore_forged();
    report(at_cpl(0, slwpcb()) == EXIT && same(ring, &forged, 32),
           "CPL 0: SLWPCB stores it");
    restore_forged();
    report(at_cpl(0, llwpcb(NULL)) == EXIT && same(ring, &forged, 32) &&
           cb->head == 32, "CPL 0: LLWPCB stores it");
    restore_forged();
    area.xstate_bv = 0;
    report(at_cpl(3, xrstor(&area, LWP_XSTATE)) == EXIT &&
           same(ring, &forged, 32), "CPL 3: it precedes any instruction");
}

/* Wherever a program is entered, in 32-bit code too */
static void test_pending_compat(void)
{
    restore_forged();
    set_up(USER_CODE32, (uintptr_t)exit_user);
    report(run() == EXIT && same(ring, &forged, 32),
           "a pending record is stored in compatibility mode");
    restore_forged();
    set_pte(0, 0);
    set_up(USER_CODE32, (uintptr_t)exit_user);
    report(run() == PF && regs.rip == (uintptr_t)exit_user,
           "it faults at the instruction to come, even INT");
    set_pte(0, PTE_ALL);
    report(run() == EXIT && same(ring, &forged, 32) && ring[1].event == 0,
           "page mapped: it is stored");
}

int main(void)
{
    kernel_init();
    lwp_make_available();
    test_cpl0();
    test_optimized();
    test_header();
    test_switch();
    test_pending();
    test_pending_compat();
    return report_summary();
}
