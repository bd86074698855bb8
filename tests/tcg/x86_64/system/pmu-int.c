/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The interrupt of a counter that overflows: it comes behind the instruction
 * that has caused it, and what is to be frozen is frozen there.
 *
 * An interrupt ends run() like any other exception.  Runs on a PMU like
 * Skylake's, of version 4 or lower.  The output is the same with -icount
 * shift=0 and with one-insn-per-tb=on.
 */

#include "pmu-kernel.h"

enum { DB = 1, NMI = 2, VECTOR = 0xee };
enum { C4_ALL = 0x00c4, C4_NOT_TAKEN = 0x10c4, CYCLES = 0x003c,
       HW_INTERRUPTS = 0x01cb };

#define WIDTH_MASK      ((1ull << 48) - 1)
#define FLAG_TF         (1u << 8)
#define CTR_FRZ         (1ull << 59)
#define LBR_FRZ         (1ull << 58)

/* Bytes and instructions are the same in the first; the loop has 4 of them. */
CODE(nops, ".rept 1000\n nop\n .endr")
CODE(loop, "1: inc %eax\n nop\n nop\n jmp 1b")
static const uint8_t loop_offset[] = { 0, 2, 3, 4 };
CODE(branchy, "mov $1000000, %ecx\n 1: test $3, %cl\n jz 2f\n nop\n"
     "call 3f\n 2: dec %ecx\n jnz 1b\n int $32\n 3: ret")
CODE(enter, "nop\n syscall\n nop")
CODE(entered, "nop\n nop")
CODE(soft, "nop\n int $33\n nop")
CODE(shadow, "mov %ss, %eax\n mov %eax, %ss\n nop\n nop")
CODE(iret, "mov %ss, %eax\n mov %rsp, %rbx\n push %rax\n push %rbx\n pushfq\n"
     "mov %cs, %eax\n push %rax\n lea iret_behind(%rip), %rax\n push %rax\n"
     "iretq\n nop\n iret_behind: nop")
CODE(rep, "mov $300, %ecx\n lea -512(%rsp), %rdi\n rep stosb\n"
     "rep_behind: nop")
CODE(faults, "nop\n ud2")
PLACE(iret_behind);
PLACE(rep_behind);
PLACE(halt_behind);
PLACE(between_start);

static int version;
static uint32_t lvtpc = LVT_NMI;        /* what stop() sets */

static void stop(void)
{
    wrmsr(MSR_GLOBAL_CTRL, 0);
    wrmsr(MSR_FIXED_CTR_CTRL, 0);
    for (int i = 0; i < 4; i++) {
        wrmsr(MSR_EVTSEL(i), 0);
    }
    wrmsr(MSR_GLOBAL_STATUS_RESET, rdmsr(MSR_GLOBAL_STATUS));
    APIC(APIC_LVTPC) = lvtpc;
}

/* Of fixed counter 0, @left instructions at CPL 3 are to overflow. */
static void start_fixed(uint64_t left)
{
    stop();
    wrmsr(MSR_FIXED_CTR_CTRL, FIXED_USR | FIXED_PMI);
    wrmsr(MSR_FIXED_CTR(0), -left & WIDTH_MASK);
    wrmsr(MSR_GLOBAL_CTRL, GLOBAL_FIXED(0));
}

/* The same for counter 1 and @event. */
static void start_event(unsigned event, uint64_t left)
{
    stop();
    wrmsr(MSR_EVTSEL(1), event | EVTSEL_USR | EVTSEL_INT | EVTSEL_EN);
    wrmsr(MSR_PMC(1), -left);
    wrmsr(MSR_GLOBAL_CTRL, 2);
}

static unsigned run_at(int cpl, void (*fn)(void), uint32_t flags)
{
    set_up(cpl ? USER_CODE64 : CODE64, (uintptr_t)fn);
    regs.rflags |= flags;
    regs.rax = 0;
    return run();
}

static void test_skid(void)
{
    static const uint32_t lefts[] = {
        8190, 8191, 8192, 8193, 16381, 65535, 65536, 100003, 1000000,
    };
    bool ok = true;

    for (int k = 1; k < 300; k++) {
        start_fixed(k);
        ok &= run_at(3, nops, 0) == NMI && regs.rip == (uintptr_t)nops + k &&
              rdmsr(MSR_FIXED_CTR(0)) == 0;
    }
    report(ok, "CPL 3: instruction 1 to 299 of a row interrupts behind it");
    ok = true;
    for (int k = 1; k < 300 + ARRAY_SIZE(lefts); k++) {
        uint32_t left = k < 300 ? k : lefts[k - 300];

        start_fixed(left);
        ok &= run_at(3, loop, 0) == NMI &&
              regs.rip == (uintptr_t)loop + loop_offset[left % 4] &&
              regs.rax == (left + 3) / 4;
    }
    report(ok, "CPL 3: instructions of a loop interrupt behind them");
    ok = true;
    for (int k = 1; k < 300 + ARRAY_SIZE(lefts); k++) {
        uint32_t left = k < 300 ? k : lefts[k - 300];

        start_event(C4_ALL, left);
        ok &= run_at(3, loop, 0) == NMI && regs.rip == (uintptr_t)loop &&
              regs.rax == left && rdmsr(MSR_PMC(1)) == 0;
    }
    report(ok, "CPL 3: branches of a loop interrupt behind them");
    ok = true;
    for (int k = 1; k < 100; k++) {
        start_event(CYCLES, k);
        ok &= run_at(3, nops, 0) == NMI && regs.rip == (uintptr_t)nops + k;
    }
    report(ok, "CPL 3: cycles interrupt behind their instructions");
}

/* At CPL 0, the WRMSR is the first that counts. */
static void __attribute__((naked, noinline)) kernel_nops(void)
{
    asm("mov $0x38f, %ecx\n mov $1, %edx\n xor %eax, %eax\n wrmsr\n"
        "between_start: .rept 300\n nop\n .endr\n"
        "int $32");
}

static void test_skid_kernel(void)
{
    bool ok = true;

    for (int k = 1; k < 300; k++) {
        stop();
        wrmsr(MSR_FIXED_CTR_CTRL, FIXED_OS | FIXED_PMI);
        wrmsr(MSR_FIXED_CTR(0), -(uint64_t)k & WIDTH_MASK);
        ok &= run_at(0, kernel_nops, 0) == NMI &&
              regs.rip == (uintptr_t)between_start + k - 1;
        wrmsr(MSR_GLOBAL_CTRL, 0);
    }
    report(ok, "CPL 0: instruction 1 to 299 of a row interrupts behind it");
}

/* A program is the same whether it is interrupted or not, and so is the sum. */
static void test_periods(void)
{
    uint64_t total = 0, expected;
    bool ok = true;

    stop();
    wrmsr(MSR_FIXED_CTR_CTRL, FIXED_USR);
    wrmsr(MSR_FIXED_CTR(0), 0);
    wrmsr(MSR_GLOBAL_CTRL, GLOBAL_FIXED(0));
    run_at(3, branchy, 0);
    expected = rdmsr(MSR_FIXED_CTR(0));
    start_fixed(9973);
    set_up(USER_CODE64, (uintptr_t)branchy);
    while (run() == NMI) {
        APIC(APIC_LVTPC) = LVT_NMI;
        ok &= rdmsr(MSR_GLOBAL_STATUS) == GLOBAL_FIXED(0);
        wrmsr(MSR_GLOBAL_STATUS_RESET, GLOBAL_FIXED(0));
        ok &= rdmsr(MSR_FIXED_CTR(0)) == 0;
        wrmsr(MSR_FIXED_CTR(0), -9973ull & WIDTH_MASK);
        total += 9973;
    }
    total += 9973 - (-rdmsr(MSR_FIXED_CTR(0)) & WIDTH_MASK);
    report(ok && regs.vector == EXIT && total == expected,
           "%d samples sum up to the program's %d instructions",
           (int)(total / 9973), (int)expected);
}

static void test_places(void)
{
    start_fixed(2);
    wrmsr(0xc0000082, (uintptr_t)entered);
    wrmsr(0xc0000081, 0x0018000800000000ull);
    wrmsr(0xc0000084, 0);
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | 1);
    report(run_at(3, enter, 0) == NMI && regs.rip == (uintptr_t)entered &&
           regs.cs == CODE64,
           "SYSCALL interrupts at the kernel's first instruction");
    start_fixed(2);
    report(run_at(3, soft, 0) == NMI &&
           regs.rip == (uintptr_t)trap_stubs + 16 * 33 && regs.cs == CODE64,
           "INT n interrupts at its handler's first instruction");
    for (int k = 1; k < 5; k++) {
        stop();
        wrmsr(MSR_EVTSEL(0), 0);
        start_fixed(k);
        report(run_at(3, rep, 0) == NMI &&
               regs.rip == (k < 3 ? (uintptr_t)rep + (k == 1 ? 5 : 13) :
                            (uintptr_t)rep_behind + k - 3),
               "REP STOS, overflow at instruction %d interrupts behind it", k);
    }
    start_fixed(9);
    report(run_at(3, iret, 0) == NMI && regs.rip == (uintptr_t)iret_behind - 3,
           "the instruction before IRETQ interrupts before it");
    start_fixed(10);
    report(run_at(3, iret, 0) == NMI && regs.rip == (uintptr_t)iret_behind,
           "IRETQ interrupts at its target");
    start_fixed(2);
    report(run_at(3, faults, 0) == UD &&
           rdmsr(MSR_FIXED_CTR(0)) == WIDTH_MASK &&
           !rdmsr(MSR_GLOBAL_STATUS),
           "an instruction that faults does not count");
    start_fixed(2);
    report(run_at(3, shadow, 0) == NMI && regs.rip == (uintptr_t)shadow + 5,
           "MOV SS interrupts by an NMI one instruction behind it");
}

/* At CPL 0; the WRMSR that starts the counter counts, too. */
#define KERNEL(name, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm("mov $0x38f, %ecx\n mov $1, %edx\n xor %eax, %eax\n wrmsr\n" \
            insns "\n int $32"); \
    }

KERNEL(sti, "cli\n sti\n nop\n sti_behind: nop\n nop")
KERNEL(mov_ss, "mov %ss, %eax\n mov %eax, %ss\n nop\n ss_behind: nop\n nop")
KERNEL(pop_ss, "pushq %rax\n mov %ss, %eax\n mov %eax, %ss\n pop %rax\n"
       "pop_behind: nop\n nop")
PLACE(sti_behind);
PLACE(ss_behind);
PLACE(pop_behind);

/* The instruction behind STI, MOV SS comes before an interrupt. */
static void test_shadows(void)
{
    static const struct {
        const char *name;
        void (*code)(void), (*behind)(void);
        uint8_t first, last;    /* of these instructions the PMI comes there */
        uint8_t first_fixed;    /* the same for a fixed vector */
    } t[] = {
        { "STI", sti, sti_behind, 3, 4, 2 },
        { "MOV SS", mov_ss, ss_behind, 3, 4, 3 },
        { "MOV SS, POP", pop_ss, pop_behind, 4, 5, 4 },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        for (int fixed = 0; fixed < 2; fixed++) {
            int first = fixed ? t[i].first_fixed : t[i].first;
            bool ok = true;

            lvtpc = fixed ? VECTOR : LVT_NMI;
            for (int k = first; k <= t[i].last + 1; k++) {
                stop();
                wrmsr(MSR_FIXED_CTR_CTRL, FIXED_OS | FIXED_PMI);
                wrmsr(MSR_FIXED_CTR(0), -(uint64_t)k & WIDTH_MASK);
                ok &= run_at(0, t[i].code, FLAG_IF) == (fixed ? VECTOR : NMI);
                wrmsr(MSR_GLOBAL_CTRL, 0);
                ok &= regs.rip == (uintptr_t)t[i].behind + (k > t[i].last);
                if (regs.vector == VECTOR) {
                    APIC(APIC_EOI) = 0;
                }
            }
            report(ok, "CPL 0: %s one instruction behind %s",
                   fixed ? "an interrupt comes" : "an NMI comes", t[i].name);
        }
    }
    lvtpc = LVT_NMI;
}

/* A trap of the instruction comes before the interrupt that it causes. */
static void test_single_step(void)
{
    bool ok = true;

    for (int k = 1; k < 20; k++) {
        lvtpc = LVT_NMI;
        start_fixed(k);
        set_up(USER_CODE64, (uintptr_t)nops);
        regs.rflags |= FLAG_TF;
        for (int i = 1; i < k; i++) {
            ok &= run() == DB && regs.rip == (uintptr_t)nops + i;
        }
        ok &= run() == NMI && regs.cs == CODE64 &&
              regs.rip == (uintptr_t)trap_stubs + 16 * DB;
    }
    report(ok, "single steps: the NMI interrupts the handler of #DB");
    ok = true;
    for (int k = 1; k < 20; k++) {
        lvtpc = VECTOR;
        start_fixed(k);
        set_up(USER_CODE64, (uintptr_t)nops);
        regs.rflags |= FLAG_TF | FLAG_IF;
        for (int i = 1; i <= k; i++) {
            ok &= run() == DB && regs.rip == (uintptr_t)nops + i;
        }
        ok &= run() == VECTOR && regs.rip == (uintptr_t)nops + k;
        APIC(APIC_EOI) = 0;
    }
    report(ok, "single steps: an interrupt comes behind #DB");
    lvtpc = LVT_NMI;
}

static void test_delivery(void)
{
    bool ok;

    lvtpc = VECTOR;
    start_fixed(3);
    wrmsr(MSR_EVTSEL(3), HW_INTERRUPTS | EVTSEL_USR | EVTSEL_EN);
    wrmsr(MSR_PMC(3), 0);
    wrmsr(MSR_GLOBAL_CTRL, GLOBAL_FIXED(0) | 8);
    report(run_at(3, nops, FLAG_IF) == VECTOR &&
           regs.rip == (uintptr_t)nops + 3,
           "a fixed vector interrupts behind the instruction");
    report(rdmsr(MSR_PMC(3)) == 1,
           "the PMI itself is a hardware interrupt that counts");
    report(APIC(APIC_LVTPC) == (LVT_MASKED | VECTOR),
           "its delivery masks LVTPC");
    APIC(APIC_EOI) = 0;
    lvtpc = LVT_MASKED | VECTOR;
    start_fixed(3);
    report(run_at(3, nops, FLAG_IF) == EXIT &&
           rdmsr(MSR_GLOBAL_STATUS) == GLOBAL_FIXED(0),
           "while LVTPC is masked, an overflow sets the status alone");
    lvtpc = VECTOR;
    start_fixed(3);
    ok = run_at(3, nops, 0) == EXIT;
    report(ok && run_at(3, nops, FLAG_IF) == VECTOR &&
           regs.rip == (uintptr_t)nops, "a fixed vector waits for EFLAGS.IF");
    APIC(APIC_EOI) = 0;
    stop();
    wrmsr(MSR_EVTSEL(1), C4_ALL | EVTSEL_USR | EVTSEL_EN);
    wrmsr(MSR_PMC(1), -5);
    wrmsr(MSR_GLOBAL_CTRL, 2);
    report(run_at(3, branchy, FLAG_IF) == EXIT &&
           rdmsr(MSR_GLOBAL_STATUS) == 2,
           "without INT, an overflow sets the status alone");
    stop();
}

/* The WRMSR counts, too; RDX is what it writes. */
static void __attribute__((naked, noinline)) kernel_halt(void)
{
    asm("mov $0x38f, %ecx\n mov $1, %edx\n xor %eax, %eax\n wrmsr\n"
        "nop\n hlt\n halt_behind: nop\n nop\n int $32");
}

static void test_halt(void)
{
    lvtpc = LVT_NMI;
    stop();
    wrmsr(MSR_FIXED_CTR_CTRL, FIXED_OS | FIXED_PMI);
    wrmsr(MSR_FIXED_CTR(0), -3ull & WIDTH_MASK);
    report(run_at(0, kernel_halt, 0) == NMI &&
           regs.rip == (uintptr_t)halt_behind,
           "HLT that overflows a counter wakes up by its interrupt");
}

static void test_freeze(void)
{
    uint64_t others, status;

    stop();
    wrmsr(MSR_DEBUGCTL, FREEZE_ON_PMI);
    report(rdmsr(MSR_DEBUGCTL) == FREEZE_ON_PMI,
           "DEBUGCTL has Freeze_Perfmon_On_PMI");
    wrmsr(MSR_EVTSEL(0), 0x00c0 | EVTSEL_USR | EVTSEL_OS | EVTSEL_EN);
    wrmsr(MSR_EVTSEL(1), C4_ALL | EVTSEL_USR | EVTSEL_INT | EVTSEL_EN);
    wrmsr(MSR_EVTSEL(2), 0x00c0 | EVTSEL_USR | EVTSEL_EN);
    wrmsr(MSR_PMC(0), 0);
    wrmsr(MSR_PMC(1), -100);
    wrmsr(MSR_PMC(2), 0);
    wrmsr(MSR_GLOBAL_CTRL, 7);
    report(run_at(3, loop, 0) == NMI, "a counter interrupts with it");
    others = rdmsr(MSR_PMC(0));
    status = rdmsr(MSR_GLOBAL_STATUS);
    report(rdmsr(MSR_PMC(2)) == 400 && rdmsr(MSR_PMC(1)) == 0 &&
           others == rdmsr(MSR_PMC(0)),
           "all counters are frozen behind the instruction");
    if (version >= 4) {
        report(status == (CTR_FRZ | 2) && rdmsr(MSR_GLOBAL_CTRL) == 7,
               "version 4: CTR_FRZ is set, and GLOBAL_CTRL stays");
        wrmsr(MSR_GLOBAL_STATUS_RESET, CTR_FRZ);
        report(rdmsr(MSR_GLOBAL_STATUS) == 2 && rdmsr(MSR_PMC(0)) > others,
               "version 4: counters run again when CTR_FRZ is reset");
    } else {
        report(status == 2 && rdmsr(MSR_GLOBAL_CTRL) == 0,
               "before version 4: GLOBAL_CTRL is cleared");
    }
    stop();
    wrmsr(MSR_DEBUGCTL, 0);
}

/* The LBRs that there are not can be frozen, too (SDM 17.4.7). */
static void test_freeze_lbrs(void)
{
    wrmsr(MSR_DEBUGCTL, FREEZE_LBRS_ON_PMI);
    start_event(C4_ALL, 100);
    report(run_at(3, loop, 0) == NMI &&
           rdmsr(MSR_GLOBAL_STATUS) == (2 | (version >= 4 ? LBR_FRZ : 0)) &&
           rdmsr(MSR_GLOBAL_CTRL) == 2,
           "Freeze_LBR_On_PMI: %s", version >= 4 ? "LBR_FRZ is set" :
           "the status has no bit for it");
    if (version >= 4) {
        wrmsr(MSR_GLOBAL_STATUS_RESET, LBR_FRZ);
        report(rdmsr(MSR_GLOBAL_STATUS) == 2, "LBR_FRZ can be reset");
    }
    stop();
    wrmsr(MSR_DEBUGCTL, 0);
}

int main(void)
{
    kernel_init();
    version = cpuid_reg(10, 0, 0) & 0xff;
    apic_init(LVT_NMI);
    test_skid();
    test_skid_kernel();
    test_periods();
    test_places();
    test_shadows();
    test_single_step();
    test_delivery();
    test_halt();
    test_freeze();
    test_freeze_lbrs();
    return report_summary();
}
