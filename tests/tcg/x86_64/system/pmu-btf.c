/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Single step on branches: with DEBUGCTL.BTF, EFLAGS.TF traps behind a branch
 * that is taken, whatever it is, and behind nothing else.  This needs no
 * performance counters.
 *
 * The output is the same with -icount shift=0 and with one-insn-per-tb=on.
 */

#include "pmu-kernel.h"

enum { DB = 1, VECTOR = 64 };

#define MSR_STAR        0xc0000081
#define MSR_LSTAR       0xc0000082
#define MSR_FMASK       0xc0000084
#define EFER_SCE        1
#define ICR_SELF        0x44000
#define DEBUGCTL_BTF    (1u << 1)
#define FLAG_TF         (1u << 8)
#define DR6_BS          (1u << 14)
#define CODE_BASE       0x30

#define PLACE_TO(name)  void name##_to(void);
/* It goes from there, if nothing else stops it. */
#define GOES(name, bits, insns) \
    PLACE_TO(name) \
    CODE(name, ".code" #bits "\n nop\n" insns "\n ud2\n" #name "_to: 1: nop\n" \
         "nop\n .code64")
#define HERE32 "call 2f\n 2: pop %ebx\n add $1f - 2b, %ebx\n"

GOES(jcc, 64, "xor %eax, %eax\n jz 1f")
GOES(loop, 64, "mov $2, %ecx\n loop 1f")
GOES(jmp, 64, "jmp 1f")
GOES(jmp_ind, 64, "lea 1f(%rip), %rbx\n jmp *%rbx")
GOES(call, 64, "call 1f")
GOES(call_ind, 64, "lea 1f(%rip), %rbx\n call *%rbx")
GOES(ret, 64, "lea 1f(%rip), %rax\n push %rax\n ret")
GOES(lret, 64, "mov %cs, %eax\n push %rax\n lea 1f(%rip), %rax\n push %rax\n"
     "lretq")
GOES(iret, 64, "mov %ss, %eax\n mov %rsp, %rbx\n push %rax\n push %rbx\n"
     "pushfq\n mov %cs, %eax\n push %rax\n lea 1f(%rip), %rax\n push %rax\n"
     "iretq")
GOES(ljmp, 64, "lea 1f(%rip), %rax\n mov %eax, -16(%rsp)\n mov %cs, -12(%rsp)\n"
     "ljmp *-16(%rsp)")
GOES(lcall, 64, "lea 1f(%rip), %rax\n mov %eax, -16(%rsp)\n"
     "mov %cs, -12(%rsp)\n lcall *-16(%rsp)")
GOES(others, 64, ".rept 100\n nop\n .endr\n cmp %eax, %eax\n jnz 1f\n"
     "mov $20, %ecx\n mov %rsp, %rdi\n sub $64, %rdi\n rep stosb\n"
     "mov $40, %ecx\n lea -64(%rsp), %rsi\n rep lodsb\n cpuid\n pushf\n popf\n"
     "mov %ss, %eax\n mov %eax, %ss\n mov $2, %ecx\n jrcxz 1f\n jmp 1f")
GOES(twice, 64, "jmp 3f\n 3: jmp 1f")
GOES(jmp32, 32, "jmp 1f")
GOES(ret32, 32, "push $ret32_to\n ret")
GOES(jcc16, 16, "xor %eax, %eax\n jz 1f")
GOES(set_by_popf, 64, "pushf\n orl $0x100, (%rsp)\n popf\n nop\n nop\n jmp 1f")
PLACE(watched_to);
CODE(watched, "nop\n mov %eax, -8(%rsp)\n watched_to: jmp 1f\n 1: nop")
PLACE(ends_here);
CODE(nothing, "nop\n xor %eax, %eax\n jnz 1f\n nop\n 1: nop\n ends_here:")
PLACE(ends_ud);
CODE(undefined, "nop\n ends_ud: ud2")
CODE(soft, "nop\n int $64\n jmp 1f\n 1: nop")
CODE(ipi, "mov %edx, (%rdi)\n nop\n nop\n jmp ipi_to\n ipi_to: nop")
PLACE(ipi_to);
CODE(halt, "mov %edx, (%rdi)\n sti\n hlt\n halt_behind: nop\n jmp halt_to\n"
     "halt_to: nop")
PLACE(halt_behind);
PLACE(halt_to);
CODE(sys_call, "nop\n syscall\n nop")
CODE(entered, "nop\n nop")

typedef void Place(void);

static const struct Case {
    const char *what;
    uint16_t cs;
    Place *code, *at;           /* where it is stopped */
    unsigned vector;            /* DB, or what else it is */
    bool no_tf;
} cases[] = {
#define CASE64(name, what) { what, USER_CODE64, name, name##_to, DB }
    CASE64(jcc, "Jcc"),
    CASE64(loop, "LOOP"),
    CASE64(jmp, "JMP"),
    CASE64(jmp_ind, "indirect JMP"),
    CASE64(call, "CALL"),
    CASE64(call_ind, "indirect CALL"),
    CASE64(ret, "RET"),
    CASE64(lret, "far RET"),
    CASE64(iret, "IRET"),
    CASE64(ljmp, "far JMP"),
    CASE64(lcall, "far CALL"),
    CASE64(others, "JMP behind others"),
    CASE64(set_by_popf, "JMP behind POPF that sets TF"),
    { "JMP at CPL 0", CODE64, jmp, jmp_to, DB },
    { "JMP at CPL 0 behind others", CODE64, others, others_to, DB },
    { "IRET at CPL 0", CODE64, iret, iret_to, DB },
    { "JMP of 32 bits", USER_CODE32, jmp32, jmp32_to, DB },
    { "RET of 32 bits", USER_CODE32, ret32, ret32_to, DB },
    { "Jcc of 16 bits", USER_CODE16, jcc16, jcc16_to, DB },
    { "no branch", USER_CODE64, nothing, ends_here, EXIT },
    { "#UD", USER_CODE64, undefined, ends_ud, UD },
    { "a watchpoint", USER_CODE64, watched, watched_to, DB },
    { "INT n", USER_CODE64, soft, NULL, VECTOR },
    { "SYSCALL that clears TF", USER_CODE64, sys_call, NULL, EXIT },
    { "JMP without TF", USER_CODE64, jmp, NULL, EXIT, .no_tf = true },
};

static uint64_t read_dr6(void)
{
    uint64_t val;

    asm volatile("mov %%dr6, %0" : "=r" (val));
    return val;
}

static void set_dr6(uint64_t val)
{
    asm volatile("mov %0, %%dr6" : : "r" (val));
}

static void set_dr7(uint64_t val)
{
    asm volatile("mov %0, %%dr7" : : "r" (val));
}

static void test_case(const struct Case *c)
{
    uintptr_t base = c->cs == USER_CODE16 ? (uintptr_t)c->code - CODE_BASE : 0;
    bool step = c->vector == DB && c->code != watched, ok;
    uint64_t dr6, debugctl;

    set_segment(USER_CODE16, base, 0xffff, ACC_CODE | ACC_USER, SEG_16);
    set_up(c->cs, (uintptr_t)c->code - base);
    regs.rflags |= c->no_tf || c->code == set_by_popf ? 0 : FLAG_TF;
    set_dr6(0);
    if (c->code == watched) {
        asm volatile("mov %0, %%dr0" : : "r" (regs.rsp - 8));
        set_dr7(0xd0001);
    }
    wrmsr(MSR_DEBUGCTL, DEBUGCTL_BTF);
    run();
    set_dr7(0);
    dr6 = read_dr6();
    debugctl = rdmsr(MSR_DEBUGCTL);
    ok = regs.vector == c->vector &&
         (!c->at || regs.rip == (uintptr_t)c->at - base ||
          (c->vector == EXIT && regs.rip == (uintptr_t)c->at + 2)) &&
         !!(dr6 & DR6_BS) == step &&
         debugctl == (c->vector == DB ? 0 : DEBUGCTL_BTF);
    if (!ok) {
        test_printf("  vector %d at %lx, DR6 %lx, DEBUGCTL %lx\n",
                    (int)regs.vector, regs.rip - (uintptr_t)c->code + base, dr6,
                    debugctl);
    }
    report(ok, "%s", c->what);
    wrmsr(MSR_DEBUGCTL, 0);
}

/* Each trap clears BTF, and a debugger sets it again. */
static void test_again(void)
{
    set_up(USER_CODE64, (uintptr_t)twice);
    regs.rflags |= FLAG_TF;
    wrmsr(MSR_DEBUGCTL, DEBUGCTL_BTF);
    report(run() == DB && regs.rip < (uintptr_t)twice_to,
           "two branches: behind the first");
    wrmsr(MSR_DEBUGCTL, DEBUGCTL_BTF);
    report(run() == DB && regs.rip == (uintptr_t)twice_to,
           "BTF once more: behind the second");
    report(run() == DB && regs.rip == (uintptr_t)twice_to + 1,
           "without BTF: behind the next instruction");
}

static void test_interrupt(void)
{
    set_up(USER_CODE64, (uintptr_t)ipi);
    regs.rflags |= FLAG_TF | FLAG_IF;
    regs.rdx = ICR_SELF | VECTOR;
    regs.rdi = (uintptr_t)&APIC(APIC_ICR);
    wrmsr(MSR_DEBUGCTL, DEBUGCTL_BTF);
    report(run() == VECTOR && rdmsr(MSR_DEBUGCTL) == DEBUGCTL_BTF,
           "an interrupt does not trap");
    APIC(APIC_EOI) = 0;
    report(run() == DB && regs.rip == (uintptr_t)ipi_to,
           "behind it, the next branch does");
    set_up(CODE64, (uintptr_t)halt);
    regs.rflags |= FLAG_TF;
    regs.rdx = ICR_SELF | VECTOR;
    regs.rdi = (uintptr_t)&APIC(APIC_ICR);
    wrmsr(MSR_DEBUGCTL, DEBUGCTL_BTF);
    report(run() == VECTOR && regs.rip == (uintptr_t)halt_behind &&
           rdmsr(MSR_DEBUGCTL) == DEBUGCTL_BTF,
           "HLT does not trap when it goes on");
    APIC(APIC_EOI) = 0;
    report(run() == DB && regs.rip == (uintptr_t)halt_to,
           "the next branch does");
    wrmsr(MSR_DEBUGCTL, 0);
}

int main(void)
{
    kernel_init();
    apic_init(LVT_MASKED);
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SCE);
    wrmsr(MSR_STAR, (uint64_t)CODE64 << 32 | (uint64_t)CODE64 << 48);
    wrmsr(MSR_FMASK, FLAG_TF);
    wrmsr(MSR_LSTAR, (uintptr_t)entered);
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        test_case(&cases[i]);
    }
    test_again();
    test_interrupt();
    return report_summary();
}
