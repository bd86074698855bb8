/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What counts where code enters and leaves the kernel: an instruction that
 * retires counts once, at the privilege that it began with, and is a far branch
 * if it loads CS; one that faults does not count, nor do interrupts.
 *
 * Handlers return here, and are counted, too.  Runs on a PMU like Skylake's.
 * The output is the same with -icount shift=0 and with one-insn-per-tb=on.
 */

#include "pmu-count.h"

enum { DB = 1, BP = 3, OF = 4, DF = 8, NP = 11, SOFT = 33, ABSENT = 34,
       VECTOR = 0x51 };

#define MSR_SYSENTER_CS     0x174
#define MSR_SYSENTER_ESP    0x175
#define MSR_SYSENTER_EIP    0x176
#define MSR_STAR            0xc0000081
#define MSR_LSTAR           0xc0000082
#define MSR_FMASK           0xc0000084
#define EFER_SCE            1
#define ICR_SELF            0x44000         /* fixed, asserted */
#define APIC_TIMER          0x320
#define APIC_TIMER_COUNT    0x380
#define APIC_TIMER_DIVIDE   0x3e0
#define GATE_P              (1ull << 47)

/* A page of the window that is missing at first, see map_page() */
#define MISSING             (WINDOW + 5 * PAGE)

/* Handlers, see @cases for how many instructions they are */
#define HANDLER(name, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm(insns); \
    }

HANDLER(go_back, "iretq")
HANDLER(skip_2, "addq $2, (%rsp)\n iretq")
HANDLER(skip_error_1, "add $8, %rsp\n addq $1, (%rsp)\n iretq")
HANDLER(skip_error_2, "add $8, %rsp\n addq $2, (%rsp)\n iretq")
HANDLER(map_page, "add $8, %rsp\n orb $7, window_table + 40(%rip)\n iretq")
HANDLER(go_behind, "add $8, %rsp\n movq $df_behind, (%rsp)\n iretq")
HANDLER(interrupt, "mov $0xfee000b0, %eax\n movl $0, (%rax)\n iretq")
HANDLER(syscalled, "sysretq")
HANDLER(sysentered, "sysexitq")
HANDLER(called, "lretq")

CODE(nothing, "")
CODE(code_int, "nop\n int $33\n nop")
CODE(code_int3, "nop\n int3\n nop")
CODE(code_int1, "nop\n .byte 0xf1\n nop")
CODE(code_into, ".code32\n mov $0x7fffffff, %eax\n inc %eax\n into\n nop\n"
     "int $32\n .code64")
CODE(code_no_into, ".code32\n xor %eax, %eax\n into\n nop\n int $32\n .code64")
CODE(code_ud2, "nop\n ud2\n nop")
CODE(code_gp, "movabs $0x8000000000000000, %rbx\n mov (%rbx), %eax\n nop")
CODE(code_load, "mov $0x40005000, %edi\n mov (%rdi), %eax\n nop")
CODE(code_inc, "mov $0x40005000, %edi\n lock incl (%rdi)\n nop")
CODE(code_stos, "xor %eax, %eax\n mov $0x40004ff0, %edi\n mov $32, %ecx\n"
     "rep stosb\n nop")
CODE(code_movs, "mov $0x40004ff0, %edi\n mov $0x40002ff0, %esi\n"
     "mov $32, %ecx\n rep movsb\n nop")
CODE(code_lods, "mov $0x40005000, %esi\n mov $32, %ecx\n rep lodsb\n nop")
CODE(code_scas, "mov $0x40004ff8, %edi\n mov $32, %ecx\n mov $1, %al\n"
     "repne scasb\n nop")
CODE(code_call, "mov %rsp, %rbx\n mov $0x40005008, %esp\n call 1f\n"
     "1: mov %rbx, %rsp")
CODE(code_fetch, "mov $0x40005800, %eax\n call *%rax\n nop")
CODE(code_step, "pushf\n orl $0x100, (%rsp)\n popf\n nop\n nop")
CODE(code_syscall, "nop\n syscall\n nop")
CODE(code_sysenter, "lea 1f(%rip), %rdx\n mov %rsp, %rcx\n sysenter\n 1: nop")
CODE(code_ljmp, "mov %cs, %eax\n lea 1f(%rip), %rbx\n push %rax\n push %rbx\n"
     "rex.w ljmp *(%rsp)\n nop\n 1: nop")
CODE(code_lcall, "mov %cs, %eax\n lea 1f(%rip), %rbx\n push %rax\n push %rbx\n"
     "rex.w lcall *(%rsp)\n jmp 2f\n 1: lretq\n 2: nop")
CODE(code_gate, "push $0x3b\n push $0\n rex.w lcall *(%rsp)\n nop")
CODE(code_absent, "nop\n int $34\n nop")
CODE(code_df, "movabs $0x8000000000000000, %rbx\n mov (%rbx), %eax\n ud2\n"
     "df_behind: nop")
CODE(code_rdpmc, "mov $64, %ecx\n rdpmc\n nop")
CODE(code_rdmsr, "mov $0x30f, %ecx\n rdmsr\n nop")
CODE(code_wrmsr, "mov $0x30f, %ecx\n wrmsr\n nop")
CODE(code_iret, "push $0\n push $0\n push $2\n push $0\n push $0\n iretq\n"
     "nop")
CODE(code_lret, "push $0\n push $0\n lretq\n nop")
CODE(code_hlt, "sti\n hlt\n nop\n cli")
CODE(code_mwait, "lea (%rsp), %rax\n xor %ecx, %ecx\n xor %edx, %edx\n"
     "monitor\n sti\n mwait\n nop\n cli")
CODE(code_privileged, "nop\n hlt\n nop")
CODE(code_in, "nop\n in $0x80, %al\n nop")

static uint8_t kernel_stack[4096] __attribute__((aligned(16)));

static void unmap(void)
{
    set_pte(5, 0);
}

static void self_ipi(void)
{
    APIC(APIC_ICR) = ICR_SELF | VECTOR;
}

static void start_timer(void)
{
    APIC(APIC_TIMER_DIVIDE) = 0xb;
    APIC(APIC_TIMER) = VECTOR;
    APIC(APIC_TIMER_COUNT) = 1000000;
}

static void no_gp_handler(void)
{
    idt[GP].low &= ~GATE_P;
}

static const struct {
    const char *name;
    void (*code)(void);
    /* What counts of it: instructions, far branches, other branches */
    uint8_t insns, far, near;
    uint8_t vector;
    void (*handler)(void);
    uint8_t handler_insns, handler_far;
    void (*ready)(void);
    enum { BOTH, USER, KERNEL } where;
    bool compat;
} cases[] = {
    { "INT n", code_int, 3, 1, 0, SOFT, go_back, 1, 1 },
    { "INT3", code_int3, 3, 1, 0, BP, go_back, 1, 1 },
    { "INT1", code_int1, 3, 1, 0, DB, go_back, 1, 1 },
    { "INTO", code_into, 4, 1, 0, OF, go_back, 1, 1, .compat = true },
    { "INTO without overflow", code_no_into, 3, .compat = true },
    { "INT n, gate not present", code_absent, 2, 0, 0, NP, skip_error_2,
      3, 1 },
    { "UD2", code_ud2, 2, 0, 0, UD, skip_2, 2, 1 },
    { "#GP of a load", code_gp, 2, 0, 0, GP, skip_error_2, 3, 1 },
    { "#PF of a load", code_load, 3, 0, 0, PF, map_page, 3, 1, unmap },
    { "#PF of LOCK INC", code_inc, 3, 0, 0, PF, map_page, 3, 1, unmap },
    { "#PF of REP STOS", code_stos, 5, 0, 0, PF, map_page, 3, 1, unmap },
    { "#PF of REP MOVS", code_movs, 5, 0, 0, PF, map_page, 3, 1, unmap },
    { "#PF of REP LODS", code_lods, 4, 0, 0, PF, map_page, 3, 1, unmap },
    { "#PF of REPNE SCAS", code_scas, 5, 0, 0, PF, map_page, 3, 1, unmap },
    { "#PF of CALL", code_call, 4, 0, 1, PF, map_page, 3, 1, unmap },
    { "#PF behind an indirect CALL", code_fetch, 4, 0, 2, PF, map_page, 3, 1,
      unmap },
    { "#DB of two single steps", code_step, 5, 0, 0, DB, go_back, 2, 2 },
    { "#DF", code_df, 2, 0, 0, DF, go_behind, 3, 1, no_gp_handler },
    { "RDPMC that faults", code_rdpmc, 2, 0, 0, GP, skip_error_2, 3, 1 },
    { "RDMSR that faults", code_rdmsr, 2, 0, 0, GP, skip_error_2, 3, 1 },
    { "WRMSR that faults", code_wrmsr, 2, 0, 0, GP, skip_error_2, 3, 1 },
    { "IRET that faults", code_iret, 6, 0, 0, GP, skip_error_2, 3, 1 },
    { "far RET that faults", code_lret, 3, 0, 0, GP, skip_error_2, 3, 1 },
    { "far JMP", code_ljmp, 6, 1 },
    { "far CALL, far RET", code_lcall, 8, 2, 1 },
    { "CALL through a gate, far RET", code_gate, 4, 1, 0, 0, NULL, 1, 1,
      .where = USER },
    { "SYSCALL, SYSRET", code_syscall, 3, 1, 0, 0, NULL, 1, 1,
      .where = USER },
    { "SYSENTER, SYSEXIT", code_sysenter, 4, 1, 0, 0, NULL, 1, 1,
      .where = USER },
    { "HLT that faults", code_privileged, 2, 0, 0, GP, skip_error_1, 3, 1,
      .where = USER },
    { "IN that faults", code_in, 2, 0, 0, GP, skip_error_2, 3, 1,
      .where = USER },
    { "HLT, interrupt pending", code_hlt, 4, 0, 0, VECTOR, interrupt, 3, 1,
      self_ipi, KERNEL },
    { "HLT for some time", code_hlt, 4, 0, 0, VECTOR, interrupt, 3, 1,
      start_timer, KERNEL },
    { "MWAIT, interrupt pending", code_mwait, 8, 0, 0, VECTOR, interrupt, 3, 1,
      self_ipi, KERNEL },
    { "MWAIT for some time", code_mwait, 8, 0, 0, VECTOR, interrupt, 3, 1,
      start_timer, KERNEL },
};

static void init_entries(void)
{
    uint64_t gate = (uintptr_t)called;

    tss[1] = (uintptr_t)kernel_stack + sizeof(kernel_stack);
    tss[25] = sizeof(tss) << 16;        /* There is no I/O permission map. */
    gdt64_table[TEST_DATA / 8] = (gate & 0xffff) | CODE64 << 16 |
                                 0xecull << 40 | (gate >> 16 & 0xffff) << 48;
    gdt64_table[TEST_DATA / 8 + 1] = gate >> 32;
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SCE);
    wrmsr(MSR_STAR, (USER_CODE64 - 16ull) << 48 | (uint64_t)CODE64 << 32);
    wrmsr(MSR_LSTAR, (uintptr_t)syscalled);
    wrmsr(MSR_FMASK, 0);
    wrmsr(MSR_SYSENTER_CS, CODE64);
    wrmsr(MSR_SYSENTER_ESP, tss[1]);
    wrmsr(MSR_SYSENTER_EIP, (uintptr_t)sysentered);
    idt[ABSENT].low &= ~GATE_P;
    window_ram[5][0x800] = 0xc3;        /* RET */
}

/* All that counts in @row until INT EXIT, which is not taken in; or not OK */
static bool measure(int cpl, uint32_t row, bool compat, void (*code)(void),
                    Counts *c)
{
    static const uint16_t selectors[2][2] = {
        { CODE64, USER_CODE64 }, { CODE32, USER_CODE32 }
    };
    uint16_t cs = selectors[compat][!!cpl];

    start_counting(row);
    set_up(cs, (uintptr_t)code);
    run();
    *c = stop_counting();
    return regs.vector == EXIT;
}

static void test_case(int i, int cpl)
{
    uint32_t rows[] = { EVTSEL_USR, EVTSEL_OS };
    bool ok = true;

    for (int r = cpl ? 0 : 1; r < 2; r++) {
        Counts c, overhead, want = { };
        bool own = !r == !!cpl, handler = r;

        ok &= measure(cpl, rows[r], false, nothing, &overhead);
        if (cases[i].vector) {
            set_handler(cases[i].vector, cases[i].handler);
        }
        if (cases[i].ready) {
            cases[i].ready();
        }
        if (!measure(cpl, rows[r], cases[i].compat, cases[i].code, &c)) {
            lwp_print("  ended by vector %d at %lx\n", (int)regs.vector,
                      regs.rip);
            ok = false;
        }
        if (cases[i].vector) {
            reset_handler(cases[i].vector);
        }
        set_pte(5, PTE_ALL);
        for (int n = 0; n < EVENTS; n++) {
            c.n[n] -= overhead.n[n];
        }
        want.n[INSNS] = own * cases[i].insns +
                        handler * cases[i].handler_insns;
        want.n[FAR] = own * cases[i].far + handler * cases[i].handler_far;
        want.n[BRANCHES] = own * cases[i].near + want.n[FAR];
        reset_handler(GP);
        ok &= counts_are(&c, &want);
    }
    report(ok, "CPL %d: %s: %d instructions count, and %d of the handler", cpl,
           cases[i].name, cases[i].insns, cases[i].handler_insns);
}

int main(void)
{
    kernel_init();
    apic_init(LVT_MASKED);
    write_cr4(read_cr4() | CR4_PCE);
    init_entries();
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        if (cases[i].where != KERNEL) {
            test_case(i, 3);
        }
        if (cases[i].where != USER) {
            test_case(i, 0);
        }
    }
    return report_summary();
}
