/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What counts where code enters and leaves the kernel: an instruction that
 * retires counts once, at the privilege that it began with, and is a far branch
 * if it loads CS; one that faults does not count, nor do interrupts.
 *
 * Handlers return here, and are counted, too.  All is the same wherever a
 * counter interrupts.  Runs on a PMU like Skylake's.
 * The output is the same with -icount shift=0 and with one-insn-per-tb=on.
 */

#include "pmu-trap.h"

#define MSR_PLATFORM_INFO   0xce
#define CPUID_FAULT         (1u << 31)      /* of MSR_PLATFORM_INFO */
#define FLAG_TF             (1u << 8)
#define DR6_BS              (1u << 14)

PLACE(step_behind);
PLACE(step_end);
CODE(step_over, "nop\n movl $1, (%rdi)\n step_behind: nop\n nop\n nop\n"
     "step_end:")

/*
 * Of steps over a store that is watched, only its own reports that.  Nobody
 * else touches that page.
 */
static void test_watch_steps(void)
{
    bool ok = true;

    set_dr(WINDOW + 4 * PAGE, 0xd0401);
    set_up(USER_CODE64, (uintptr_t)step_over);
    regs.rdi = WINDOW + 4 * PAGE;
    for (int i = 0; i < 5; i++) {
        uint64_t dr6;

        asm volatile("mov %0, %%dr6" : : "r" (0ull));
        regs.rflags |= FLAG_TF;
        ok &= run() == DB;
        asm volatile("mov %%dr6, %0" : "=r" (dr6));
        ok &= (dr6 & DR6_BS) &&
              (dr6 & 15) == (regs.rip == (uintptr_t)step_behind);
    }
    set_dr(0, 0x400);
    report(ok && regs.rip == (uintptr_t)step_end,
           "a data breakpoint is reported by one single step");
}

CODE(rep_stos, "rep stosb\n nop")
CODE(rep_lods, "rep lodsb\n nop")

/*
 * A data breakpoint is seen behind its iteration of a string instruction, so
 * it comes in front of the page fault of a later one.
 */
static void test_watch_rep(void)
{
    enum { COUNT = 300, MAPPED = 100 };
    static const struct {
        const char *name;
        void (*code)(void);
        uint64_t dr7;               /* a byte, written or accessed */
    } t[] = {
        { "REP STOS", rep_stos, 0x10401 }, { "REP LODS", rep_lods, 0x30401 },
    };
    uint64_t first = WINDOW + 5 * PAGE - MAPPED, dr6;

    unmap();
    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        bool ok = true;

        for (int n = 0; n < MAPPED; n += 33) {
            set_dr(first + n, t[i].dr7);
            asm volatile("mov %0, %%dr6" : : "r" (0ull));
            set_up(USER_CODE64, (uintptr_t)t[i].code);
            regs.rdi = regs.rsi = first;
            regs.rcx = COUNT;
            ok &= run() == DB && regs.rcx == COUNT - n - 1 &&
                  regs.rip == (uintptr_t)t[i].code;
            asm volatile("mov %%dr6, %0" : "=r" (dr6));
            ok &= (dr6 & 15) == 1 && run() == PF &&
                  regs.rcx == COUNT - MAPPED;
        }
        report(ok, "a data breakpoint in %s", t[i].name);
    }
    set_dr(0, 0x400);
}

/*
 * QEMU runs what hits a watchpoint again, alone.  Here that is always new code,
 * so that there is no room for it some of the time: often with tb-size=1.  The
 * lengths vary, lest room ends at the same place each time.
 */
static void test_watch_new(void)
{
    enum { ROUNDS = 5, LENGTHS = 11 };
    /* movl $1, watched + 4; nop; nop; int EXIT */
    static const uint8_t insns[15] = {
        0xc7, 0x04, 0x25, [7] = 1, [11] = 0x90, 0x90, 0xcd, EXIT
    };
    static uint8_t code[4096][32];
    uint32_t address = (uintptr_t)&watched[1];
    bool ok = true;

    watch();
    for (int i = 0; i < ROUNDS * ARRAY_SIZE(code); i++) {
        uint8_t *start = code[i % ARRAY_SIZE(code)];
        uint8_t *store = start + i % LENGTHS;

        __builtin_memset(start, 0x90, store - start);
        __builtin_memcpy(store, insns, sizeof(insns));
        __builtin_memcpy(store + 3, &address, sizeof(address));
        set_up(USER_CODE64, (uintptr_t)start);
        ok &= run() == DB && regs.rip == (uintptr_t)store + 11;
    }
    set_dr(0, 0x400);
    report(ok, "a data breakpoint in code that is new");
}

/*
 * What is pushed for an exception or an interrupt may hit one: that is seen at
 * the start of the handler, and what has been delivered is not forgotten.
 */
static void test_watch_frame(void)
{
    static const struct {
        const char *name;
        unsigned vector;
        void (*handler)(void), (*code)(void), (*ready)(void);
    } t[] = {
        { "#UD", UD, skip_2, code_ud2 },
        { "INT n", SOFT, go_back, code_int },
        { "#PF", PF, map_page, code_load, unmap },
        { "an interrupt", VECTOR, interrupt, nothing, self_ipi },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        bool ok;

        set_handler(t[i].vector, t[i].handler);
        idt[t[i].vector].low &= ~(7ull << 32);      /* no IST, but RSP0 */
        set_up(USER_CODE64, (uintptr_t)t[i].code);
        regs.rflags |= FLAG_IF;
        set_dr((uintptr_t)kernel_stack + sizeof(kernel_stack) - 8, 0xd0401);
        if (t[i].ready) {
            t[i].ready();
        }
        ok = run() == DB && regs.rip == (uintptr_t)t[i].handler &&
             regs.cs == CODE64;
        set_dr(0, 0x400);
        report(ok && run() == EXIT, "a data breakpoint on the stack of %s",
               t[i].name);
        reset_handler(t[i].vector);
    }
}

CODE(push_watched, "pushq watched(%rip)\n nop")

/* What faults behind an access that hits one has not been done. */
static void test_watch_fault(void)
{
    bool ok;

    unmap();
    set_dr((uintptr_t)&watched[1], 0xf0401);
    set_up(USER_CODE64, (uintptr_t)push_watched);
    regs.rsp = WINDOW + 5 * PAGE + 8;
    ok = run() == PF && regs.rip == (uintptr_t)push_watched;
    set_pte(5, PTE_ALL);
    ok &= run() == DB && regs.rip == (uintptr_t)push_watched + 6 &&
          regs.rsp == WINDOW + 5 * PAGE && run() == EXIT;
    set_dr(0, 0x400);
    report(ok, "a data breakpoint of a PUSH that faults");
}

CODE(port_to_watched, "insb\n nop")

/* It is one exception with the breakpoint of a port. */
static void test_watch_port(void)
{
    enum { CR4_DE = 1 << 3, IOPL_3 = 3 << 12, PORT = 0x80 };
    uint64_t dr6;
    bool ok;

    write_cr4(read_cr4() | CR4_DE);
    asm volatile("mov %0, %%dr6\n mov %1, %%dr1"
                 : : "r" (0ull), "r" ((uint64_t)PORT));
    set_dr((uintptr_t)&watched[1], 0x2d0405);
    set_up(USER_CODE64, (uintptr_t)port_to_watched);
    regs.rflags |= IOPL_3;
    regs.rdi = (uintptr_t)&watched[1];
    regs.rdx = PORT;
    ok = run() == DB && regs.rip == (uintptr_t)port_to_watched + 1;
    asm volatile("mov %%dr6, %0" : "=r" (dr6));
    ok &= (dr6 & 15) == 3 && run() == EXIT;
    set_dr(0, 0x400);
    write_cr4(read_cr4() & ~CR4_DE);
    report(ok, "a data breakpoint of INS from a port that has one");
}

static void test_case(int i, int cpl)
{
    bool ok = counts_case(i, cpl);

    report(ok, "CPL %d: %s: %d instructions count, and %d of the handler", cpl,
           traps[i].name, traps[i].insns, traps[i].handler_insns);
    if (can_interrupt(i, cpl)) {
        ok = interrupts_case(i, cpl, INSNS_EVENT);
        ok &= interrupts_case(i, cpl, BRANCHES_EVENT);
        report(ok, "CPL %d: %s: the same if any of them interrupts", cpl,
               traps[i].name);
    }
}

int main(void)
{
    kernel_init();
    test_watch_steps();
    test_watch_rep();
    test_watch_new();
    apic_init(LVT_MASKED);
    write_cr4(read_cr4() | CR4_PCE);
    init_entries();
    test_watch_frame();
    test_watch_fault();
    test_watch_port();
    report(rdmsr(MSR_PLATFORM_INFO) == CPUID_FAULT &&
           at_cpl(0, wrmsr(MSR_MISC_FEATURES, 2)) == GP &&
           !rdmsr(MSR_MISC_FEATURES),
           "CPUID can be made to fault");
    for_each_trap(test_case);
    return report_summary();
}
