/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Last branch records: each kind of branch, at CPL 0 and 3, on processors of
 * several generations.  What is run switches them on, and off again where it
 * goes, so that nothing else is in them.
 */

#include "pmu-kernel.h"

#define MSR_LBR_SELECT          0x1c8
#define MSR_LBR_TOS             0x1c9
#define MSR_LER_FROM            0x1dd
#define MSR_LER_TO              0x1de
#define MSR_LAST_FROM           0x1db
#define MSR_LAST_TO             0x1dc
#define MSR_LBR_FROM            0x680
#define MSR_LBR_TO              0x6c0
#define MSR_LBR_INFO            0xdc0

enum { DEBUGCTL_LBR = 1, DEBUGCTL_BTF = 2 };
enum { DB = 1, BP = 3, VECTOR = 0x40 };
#define FLAG_TF                 (1u << 8)
#define ADDRESS_MASK            ((1ull << 48) - 1)

static unsigned depth;          /* 1: MSR_LAST_FROM and MSR_LAST_TO */

typedef struct Record {
    uint64_t from, to;
} Record;

/* The @n-th of the last records; bits 63:48 are flags, or the sign. */
static Record record(unsigned n)
{
    unsigned i = depth > 1 ? (rdmsr(MSR_LBR_TOS) - n) % depth : 0;
    Record r = {
        rdmsr(depth > 1 ? MSR_LBR_FROM + i : MSR_LAST_FROM) & ADDRESS_MASK,
        rdmsr(depth > 1 ? MSR_LBR_TO + i : MSR_LAST_TO) & ADDRESS_MASK,
    };

    return r;
}

#define ON  "mov $0x1d9, %ecx\n mov $1, %eax\n xor %edx, %edx\n wrmsr\n"
#define OFF "mov $0x1d9, %ecx\n xor %eax, %eax\n xor %edx, %edx\n wrmsr\n"

/* A program of CPL 0: @before, then @insn, which goes to @name_to. */
#define ROW(name, before, insn, behind) \
    CODE(name, before "\n" ON #name "_from: " insn "\n int3\n" #name "_to:\n" \
         OFF behind)

PLACE(jcc_from), jcc_to(void);
PLACE(jcc_far_from), jcc_far_to(void);
PLACE(loop_from), loop_to(void);
PLACE(jrcxz_from), jrcxz_to(void);
PLACE(jmp_from), jmp_to(void);
PLACE(jmp_ind_from), jmp_ind_to(void);
PLACE(jmp_prefix_from), jmp_prefix_to(void);
PLACE(call_from), call_to(void);
PLACE(call_ind_from), call_ind_to(void);
PLACE(ret_from), ret_to(void);
PLACE(retn_from), retn_to(void);
PLACE(lret_from), lret_to(void);
PLACE(iret_from), iret_to(void);
PLACE(ljmp_from), ljmp_to(void);
PLACE(nothing_from), nothing_to(void);

ROW(jcc, "cmp %eax, %eax", "jz jcc_to", "")
ROW(jcc_far, "", "test %eax, %eax\n nop\n jnz jcc_far_to", "")
ROW(loop, "", "loop loop_to", "")
ROW(jrcxz, "", "xor %ecx, %ecx\n jrcxz jrcxz_to", "")
ROW(jmp, "", "jmp jmp_to", "")
ROW(jmp_ind, "lea jmp_ind_to(%rip), %rbx", "jmp *%rbx", "")
ROW(jmp_prefix, "lea jmp_prefix_to(%rip), %rbx", "notrack jmp *%rbx", "")
ROW(call, "", "call call_to", "pop %rax")
ROW(call_ind, "lea call_ind_to(%rip), %rbx", "call *%rbx", "pop %rax")
ROW(ret, "lea ret_to(%rip), %rax\n push %rax", "ret", "")
ROW(retn, "lea retn_to(%rip), %rax\n pushq $0\n push %rax", "ret $8", "")
ROW(lret, "mov %cs, %eax\n push %rax\n lea lret_to(%rip), %rax\n push %rax",
    "lretq", "")
ROW(iret, "mov %ss, %eax\n mov %rsp, %rbx\n push %rax\n push %rbx\n pushfq\n"
    "mov %cs, %eax\n push %rax\n lea iret_to(%rip), %rax\n push %rax",
    "iretq", "")
ROW(ljmp, "lea ljmp_to(%rip), %rax\n mov %eax, -16(%rsp)\n"
    "mov %cs, -12(%rsp)", "ljmp *-16(%rsp)", "")
ROW(nothing, "cmp %eax, %eax", "jnz 1f\n cpuid\n rdtsc\n 1: jmp nothing_to",
    "")

static const struct {
    const char *what;
    void (*code)(void), (*from)(void), (*to)(void);
    unsigned skip;          /* bytes in front of the branch */
} rows[] = {
    { "Jcc", jcc, jcc_from, jcc_to },
    { "Jcc behind others", jcc_far, jcc_far_from, jcc_far_to, 3 },
    { "LOOP", loop, loop_from, loop_to },
    { "JRCXZ", jrcxz, jrcxz_from, jrcxz_to, 2 },
    { "JMP", jmp, jmp_from, jmp_to },
    { "indirect JMP", jmp_ind, jmp_ind_from, jmp_ind_to },
    { "JMP with a prefix", jmp_prefix, jmp_prefix_from, jmp_prefix_to },
    { "CALL", call, call_from, call_to },
    { "indirect CALL", call_ind, call_ind_from, call_ind_to },
    { "RET", ret, ret_from, ret_to },
    { "RET n", retn, retn_from, retn_to },
    { "far RET", lret, lret_from, lret_to },
    { "IRET", iret, iret_from, iret_to },
    { "far JMP", ljmp, ljmp_from, ljmp_to },
};

static void test_rows(void)
{
    for (int i = 0; i < ARRAY_SIZE(rows); i++) {
        unsigned vector;
        Record r;

        wrmsr(MSR_DEBUGCTL, 0);
        vector = run_function(0, rows[i].code);
        r = record(0);
        report(vector == EXIT && r.to == (uintptr_t)rows[i].to &&
               r.from == (uintptr_t)rows[i].from + rows[i].skip,
               "%s at CPL 0: vector %d, %lx to %lx", rows[i].what, vector,
               r.from - (uintptr_t)rows[i].from,
               r.to - (uintptr_t)rows[i].to);
    }
}

/* Switches records off and goes on as if it had not been there. */
#define HANDLER(name, vector) \
    static void __attribute__((naked)) name(void) \
    { \
        asm("mov %rax, -24(%rsp)\n mov %rcx, -32(%rsp)\n" \
            "mov %rdx, -40(%rsp)\n" OFF \
            "mov -24(%rsp), %rax\n mov -32(%rsp), %rcx\n" \
            "mov -40(%rsp), %rdx\n jmp trap_stubs + 16 * " #vector); \
    }

HANDLER(on_exit, 32)
HANDLER(on_ud, 6)
HANDLER(on_bp, 3)
HANDLER(on_pf, 14)
HANDLER(on_int, 64)
HANDLER(on_db, 1)

PLACE(user_from);
PLACE(user_to);
PLACE(user_end);
CODE(user, "user_from: jmp user_to\n nop\n user_to: nop\n"
     "user_end: nop")
PLACE(ud_at);
CODE(ud, "nop\n nop\n ud_at: ud2")
PLACE(bp_at);
CODE(bp, "nop\n bp_at: int3")
PLACE(pf_at);
CODE(pf, "nop\n pf_at: movl 0x40000000, %eax")
PLACE(int_at);
CODE(soft, "nop\n int_at: int $64")
CODE(user_tf, "nop\n nop")

/* @code runs at CPL 3 with records until @handler of @vector has begun. */
static void run_user(void (*code)(void), unsigned vector, void (*handler)(void))
{
    set_handler(vector, handler);
    set_up(USER_CODE64, (uintptr_t)code);
    wrmsr(MSR_DEBUGCTL, DEBUGCTL_LBR);
    run();
    wrmsr(MSR_DEBUGCTL, 0);
    reset_handler(vector);
}

static void test_events(void)
{
    static const struct {
        const char *what;
        void (*code)(void), (*at)(void);
        unsigned vector;
        void (*handler)(void);
    } events[] = {
        { "#UD", ud, ud_at, UD, on_ud },
        { "INT3", bp, bp_at, BP, on_bp },
        { "#PF", pf, pf_at, PF, on_pf },
        { "INT n", soft, int_at, 64, on_int },
    };

    set_pte(0, 0);
    for (int i = 0; i < ARRAY_SIZE(events); i++) {
        Record r, before;

        run_user(events[i].code, events[i].vector, events[i].handler);
        r = record(0);
        report(regs.vector == events[i].vector &&
               r.from == (uintptr_t)events[i].at &&
               r.to == (uintptr_t)events[i].handler,
               "%s at CPL 3: vector %d, from %lx to %lx", events[i].what,
               (int)regs.vector, r.from - (uintptr_t)events[i].at,
               r.to - (uintptr_t)events[i].handler);
        before.from = rdmsr(MSR_LER_FROM) & ADDRESS_MASK;
        before.to = rdmsr(MSR_LER_TO) & ADDRESS_MASK;
        report(before.to == (uintptr_t)events[i].code,
               "%s: the branch before it was to its program", events[i].what);
        if (depth > 1) {
            r = record(1);
            report(r.to == (uintptr_t)events[i].code,
                   "%s: IRET is before it", events[i].what);
        }
    }
}

static void test_order(void)
{
    Record r;

    if (depth == 1) {
        return;
    }
    run_user(user, EXIT, on_exit);
    r = record(1);
    report(r.from == (uintptr_t)user_from && r.to == (uintptr_t)user_to,
           "JMP at CPL 3 is second");
    r = record(2);
    report(r.to == (uintptr_t)user_from, "IRET is third");
    /* Only what goes to CPL 3 */
    wrmsr(MSR_LBR_SELECT, 1);
    run_user(user, EXIT, on_exit);
    r = record(0);
    report(r.from == (uintptr_t)user_from && r.to == (uintptr_t)user_to,
           "of CPL 3 only: JMP is first");
    r = record(1);
    report(r.to == (uintptr_t)user_from, "of CPL 3 only: IRET is second");
    wrmsr(MSR_LBR_SELECT, 2);
    run_user(user, EXIT, on_exit);
    r = record(0);
    report(r.to == (uintptr_t)on_exit, "of CPL 0 only: INT is first");
    r = record(1);
    report(r.to != (uintptr_t)user_from && r.from != (uintptr_t)user_from,
           "of CPL 0 only: nothing of CPL 3 is second");
    wrmsr(MSR_LBR_SELECT, 0x80);    /* no direct JMP */
    run_user(user, EXIT, on_exit);
    r = record(1);
    report(r.to == (uintptr_t)user_from, "without direct JMP: IRET is second");
    wrmsr(MSR_LBR_SELECT, 0);
}

PLACE(stepped_from);
PLACE(stepped_to);
PLACE(rep_end);
CODE(stepped, ".rept 100\n nop\n .endr\n cmp %eax, %eax\n jnz stepped_to\n"
     "mov $20, %ecx\n mov %rsp, %rdi\n sub $64, %rdi\n rep stosb\n"
     "rep_end: stepped_from: jmp stepped_to\n ud2\n stepped_to: nop\n nop")
PLACE(call_stepped_to);
CODE(call_stepped, "nop\n lea call_stepped_to(%rip), %rax\n call *%rax\n ud2\n"
     "call_stepped_to: nop")

static void test_btf(void)
{
    uint64_t dr6;

    wrmsr(MSR_DEBUGCTL, DEBUGCTL_BTF);
    report(rdmsr(MSR_DEBUGCTL) == DEBUGCTL_BTF, "BTF reads back");
    set_up(USER_CODE64, (uintptr_t)stepped);
    regs.rflags |= FLAG_TF;
    report(run() == DB && regs.rip == (uintptr_t)stepped_to,
           "BTF: vector %d at %ld behind the first branch", (int)regs.vector,
           (long)(regs.rip - (uintptr_t)stepped_to));
    asm volatile("mov %%dr6, %0" : "=r" (dr6));
    report((dr6 >> 14 & 1) && rdmsr(MSR_DEBUGCTL) == 0,
           "BTF: DR6.BS, and BTF is clear: %lx, %lx", dr6,
           rdmsr(MSR_DEBUGCTL));
    report(run() == DB && regs.rip == (uintptr_t)stepped_to + 1,
           "without BTF it is a step");
    wrmsr(MSR_DEBUGCTL, DEBUGCTL_BTF | DEBUGCTL_LBR);
    set_up(USER_CODE64, (uintptr_t)call_stepped);
    regs.rflags |= FLAG_TF;
    report(run() == DB && regs.rip == (uintptr_t)call_stepped_to,
           "BTF: indirect CALL, vector %d", (int)regs.vector);
    report(rdmsr(MSR_DEBUGCTL) == 0, "#DB clears LBR and BTF");
    if (depth) {
        Record r = record(0);

        report(r.to == (uintptr_t)call_stepped_to, "#DB is not recorded");
    }
}

int main(void)
{
    uint32_t signature = cpuid_reg(1, 0, 0);
    unsigned model = (signature >> 4 & 15) | (signature >> 12 & 0xf0);
    bool intel = cpuid_reg(0, 0, 1) == 0x756e6547;

    kernel_init();
    depth = 1;
    while (intel && model >= 9 && depth < 64 &&
           at_cpl(0, rdmsr(MSR_LBR_FROM + depth - 1)) == EXIT) {
        depth++;
    }
    depth -= depth > 1;
    report(true, "depth %d, format %ld", depth, depth > 1 ?
           (long)rdmsr(MSR_PERF_CAPABILITIES) & 63 : 0);
    test_rows();
    test_events();
    test_order();
    test_btf();
    return report_summary();
}
