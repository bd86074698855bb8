/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What counts: each instruction that retires once, in the row of the privilege
 * it began with, and each branch in its class.  Interrupts and faults do not.
 *
 * Runs on a PMU like Skylake's.  The output is the same with -icount shift=0
 * and with one-insn-per-tb=on.
 */

#include "pmu-count.h"

static void __attribute__((naked)) nothing(void)
{
    asm("int $32");
}

/* What @regs counts until INT EXIT, which is not taken in. */
static Counts measure_code(int cpl, void (*fn)(void))
{
    start_counting(cpl ? EVTSEL_USR : EVTSEL_OS);
    set_up(cpl ? USER_CODE64 : CODE64, (uintptr_t)fn);
    run();
    return stop_counting();
}

static Counts measure(int cpl, void (*fn)(void))
{
    Counts c = measure_code(cpl, fn);
    Counts overhead = measure_code(cpl, nothing);

    for (int i = 0; i < EVENTS; i++) {
        c.n[i] -= overhead.n[i];
    }
    return c;
}

CODE(nops, ".rept 100\n nop\n .endr")
CODE(loop, "mov $1000, %ecx\n 1: dec %ecx\n jnz 1b")
CODE(loop_insn, "mov $1000, %ecx\n 1: loop 1b")
CODE(jcxz, "mov $1, %ecx\n jecxz 1f\n dec %ecx\n jecxz 1f\n nop\n 1:")
CODE(calls, "mov $10, %ecx\n 1: call 2f\n dec %ecx\n jnz 1b\n jmp 3f\n"
     "2: ret\n 3:")
CODE(indirect, "lea 1f(%rip), %rax\n jmp *%rax\n nop\n"
     "1: lea 2f(%rip), %rax\n call *%rax\n jmp 3f\n 2: ret\n 3:")
CODE(rep_movs, "mov %rsp, %rsi\n lea -256(%rsp), %rdi\n mov $100, %ecx\n"
     "rep movsb\n nop")
CODE(rep_none, "xor %ecx, %ecx\n rep stosb\n nop")
CODE(rep_scas, "mov %rsp, %rdi\n mov $8, %ecx\n mov (%rdi), %al\n"
     "repne scasb")
CODE(pause_insn, "pause\n nop\n pause")
CODE(cpuid_insn, "xor %eax, %eax\n cpuid\n nop")
CODE(movss, "mov %ss, %eax\n mov %eax, %ss\n nop\n nop")
CODE(sti_cli, "cli\n sti\n nop\n cli")
CODE(mov_cr, "mov %cr0, %rax\n mov %rax, %cr0\n mov %cr3, %rax\n"
     "mov %rax, %cr3\n mov %cr4, %rax\n mov %rax, %cr4\n nop")
CODE(clts_insn, "clts\n nop")
CODE(lmsw_insn, "smsw %ax\n lmsw %ax\n nop")
CODE(invlpg_insn, "invlpg (%rsp)\n nop")
CODE(swapgs_insn, "swapgs\n nop\n swapgs\n nop")
CODE(stac_insn, "stac\n nop\n clac\n nop")
CODE(port, "in $0x80, %al\n out %al, $0x80\n nop")
CODE(msrs, "mov $0xc0000103, %ecx\n rdmsr\n wrmsr\n nop")
CODE(rdpmc_insn, "mov $1, %ecx\n rdpmc\n nop")
CODE(rdtsc_insn, "rdtsc\n nop")
CODE(fx, "sub $512, %rsp\n and $-64, %rsp\n fxsave (%rsp)\n fxrstor (%rsp)")
CODE(iretq, "mov %ss, %eax\n mov %rsp, %rbx\n push %rax\n push %rbx\n pushfq\n"
     "mov %cs, %eax\n push %rax\n lea 1f(%rip), %rax\n push %rax\n iretq\n"
     "1: nop")
CODE(lretq, "mov %cs, %eax\n push %rax\n lea 1f(%rip), %rax\n push %rax\n"
     "lretq\n 1: nop")
CODE(push_pop, "push %rax\n pop %rbx\n pushfq\n popfq\n nop")
CODE(lock_insn, "lock incl (%rsp)\n xchg %eax, (%rsp)\n"
     "lock cmpxchg16b -24(%rsp)\n nop")

static const struct {
    const char *name;
    void (*fn)(void);
    uint32_t insns, cond, not_taken, branches, far;
    bool kernel;                /* CPL 0 only */
} codes[] = {
    { "NOP", nops, 100 },
    { "Jcc", loop, 2001, 1000, 1, 1000 },
    { "LOOP", loop_insn, 1001, 1000, 1, 1000 },
    { "JECXZ", jcxz, 4, 2, 1, 2 },
    { "CALL, RET", calls, 42, 10, 1, 31 },
    { "indirect JMP, CALL", indirect, 6, 0, 0, 4 },
    { "REP MOVS", rep_movs, 5 },
    { "REP STOS of nothing", rep_none, 3 },
    { "REPNE SCAS", rep_scas, 4 },
    { "PAUSE", pause_insn, 3 },
    { "CPUID", cpuid_insn, 3 },
    { "RDTSC", rdtsc_insn, 2 },
    { "RDPMC", rdpmc_insn, 3 },
    { "FXSAVE, FXRSTOR", fx, 4 },
    { "PUSHF, POPF", push_pop, 5 },
    { "LOCK", lock_insn, 4 },
    { "IRETQ", iretq, 11, 0, 0, 1, 1 },
    { "far RET", lretq, 6, 0, 0, 1, 1 },
    { "MOV SS", movss, 4 },
    { "STI, CLI", sti_cli, 4, .kernel = true },
    { "MOV CR", mov_cr, 7, .kernel = true },
    { "CLTS", clts_insn, 2, .kernel = true },
    { "LMSW", lmsw_insn, 3, .kernel = true },
    { "INVLPG", invlpg_insn, 2, .kernel = true },
    { "SWAPGS", swapgs_insn, 4, .kernel = true },
    { "STAC, CLAC", stac_insn, 4, .kernel = true },
    { "IN, OUT", port, 3, .kernel = true },
    { "RDMSR, WRMSR", msrs, 4, .kernel = true },
};

static void test_codes(void)
{
    for (int i = 0; i < ARRAY_SIZE(codes); i++) {
        for (int cpl = codes[i].kernel ? 0 : 3; ; cpl = 0) {
            Counts want = { { codes[i].branches, codes[i].cond,
                              codes[i].not_taken, codes[i].far,
                              codes[i].insns } };
            Counts c = measure(cpl, codes[i].fn);

            report(counts_are(&c, &want), "CPL %d: %s counts %d instructions, "
                   "%d branches", cpl, codes[i].name, codes[i].insns,
                   codes[i].branches);
            if (!cpl) {
                break;
            }
        }
    }
}

/* Two instructions, what is between them, and four that prepare the second */
#define LOOP_COUNT 1000
static void __attribute__((naked, noinline)) between(void)
{
    asm("mov $0x38f, %ecx\n mov $15, %eax\n mov $1, %edx\n wrmsr\n"
        "mov $1000, %eax\n"
        "1: nop\n nop\n nop\n nop\n nop\n nop\n nop\n nop\n"
        "dec %eax\n jnz 1b\n"
        "mov $0x38f, %ecx\n xor %eax, %eax\n xor %edx, %edx\n wrmsr\n"
        "ret");
}

/* Of two WRMSR to GLOBAL_CTRL, exactly one counts: the one that starts. */
static void test_wrmsr(void)
{
    const Counts want = { {
        LOOP_COUNT, LOOP_COUNT, 1, 0, 1 + 1 + 10 * LOOP_COUNT + 3
    } };
    Counts c;

    for (int i = 0; i < 3; i++) {
        start_counting(EVTSEL_OS);
        wrmsr(MSR_GLOBAL_CTRL, 0);
        for (int j = 0; j < INSNS; j++) {
            wrmsr(MSR_PMC(j), 0);
        }
        wrmsr(MSR_FIXED_CTR(0), 0);
        between();
        c = stop_counting();
        report(counts_are(&c, &want),
               "of two WRMSRs of GLOBAL_CTRL, the one that starts counts");
    }
}

/* One instruction a clock: what masks of them count (SDM 18.2.1.1) */
static void test_masks(void)
{
    static const struct {
        const char *name;
        uint32_t evtsel;
        int count;
    } t[] = {
        { "instructions", 0xc0, 2002 },
        { "core cycles", 0x3c, 2002 },
        { "reference cycles", 0x13c, 2002 },
        { "clocks with an instruction", 0xc0 | EVTSEL_CMASK(1), 2002 },
        { "clocks with two instructions", 0xc0 | EVTSEL_CMASK(2), 0 },
        { "clocks without an instruction", 0xc0 | EVTSEL_CMASK(1) | EVTSEL_INV,
          0 },
        { "clocks with less than 16 instructions",
          0xc0 | EVTSEL_CMASK(16) | EVTSEL_INV, 2002 },
        { "branches", 0xc4, 1001 },
        { "clocks with a branch", 0xc4 | EVTSEL_CMASK(1), 1001 },
        { "clocks without a branch", 0xc4 | EVTSEL_CMASK(1) | EVTSEL_INV,
          1001 },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        stop_counting();
        wrmsr(MSR_EVTSEL(0), t[i].evtsel | EVTSEL_USR | EVTSEL_EN);
        wrmsr(MSR_PMC(0), 0);
        set_up(USER_CODE64, (uintptr_t)loop);
        wrmsr(MSR_GLOBAL_CTRL, 1);
        run();
        report(stop_counting().n[0] == t[i].count,
               "1001 branches of 2002 instructions: %d %s", t[i].count,
               t[i].name);
    }
}

/* A branch that nobody can predict, 1000 times */
CODE(random, "mov $1000, %ecx\n mov $1, %eax\n"
     "1: imul $1103515245, %eax, %eax\n add $12345, %eax\n"
     "test $0x10000, %eax\n jz 2f\n nop\n 2: dec %ecx\n jnz 1b")
/* Not taken each third time: known once it has been seen, 999 times */
CODE(thirds, "mov $999, %ecx\n mov $3, %eax\n"
     "1: dec %eax\n jnz 2f\n mov $3, %eax\n 2: dec %ecx\n jnz 1b")
/* Targets that are always others */
CODE(targets, "mov $100, %ecx\n lea 2f(%rip), %rbx\n"
     "1: mov %ecx, %eax\n and $1, %eax\n add %rbx, %rax\n jmp *%rax\n"
     "2: nop\n dec %ecx\n jnz 1b")

static uint64_t mispredicted(int cpl, void (*fn)(void))
{
    stop_counting();
    wrmsr(MSR_EVTSEL(0), 0x00c5 | (cpl ? EVTSEL_USR : EVTSEL_OS) | EVTSEL_EN);
    wrmsr(MSR_PMC(0), 0);
    set_up(cpl ? USER_CODE64 : CODE64, (uintptr_t)fn);
    wrmsr(MSR_GLOBAL_CTRL, 1);
    run();
    return stop_counting().n[0];
}

/* A kernel of some calls runs before and behind what is measured. */
static void test_prediction(void)
{
    for (int cpl = 3; cpl >= 0; cpl -= 3) {
        mispredicted(cpl, loop);
        report(mispredicted(cpl, loop) <= 10,
               "CPL %d: a loop is predicted", cpl);
        mispredicted(cpl, calls);
        report(mispredicted(cpl, calls) <= 10,
               "CPL %d: returns are predicted", cpl);
        mispredicted(cpl, thirds);
        report(mispredicted(cpl, thirds) <= 10,
               "CPL %d: so is a pattern of three", cpl);
        report(mispredicted(cpl, random) > 300,
               "CPL %d: chance is not predicted", cpl);
        report(mispredicted(cpl, targets) >= 99,
               "CPL %d: an indirect branch with new targets is not", cpl);
    }
}

int main(void)
{
    kernel_init();
    apic_init(LVT_MASKED);
    write_cr4(read_cr4() | CR4_PCE);
    test_codes();
    test_wrmsr();
    test_masks();
    test_prediction();
    return report_summary();
}
