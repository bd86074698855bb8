/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Code that enters and leaves the kernel, with handlers that return and are
 * counted, too; and whether counters count what they should of it, wherever one
 * of them interrupts.
 */
#ifndef TESTS_TCG_PMU_TRAP_H
#define TESTS_TCG_PMU_TRAP_H

#include "pmu-count.h"

enum { DB = 1, NMI = 2, BP = 3, OF = 4, DF = 8, NP = 11, SOFT = 33, ABSENT = 34,
       VECTOR = 0x51 };

/* What SYSCALL, SYSENTER and their opposites load; the rest follows. */
enum {
    ENTRY_CODE = 0x70, ENTRY_DATA = 0x78,
    SYSEXIT_CODE = ENTRY_CODE + 32, SYSEXIT_DATA = ENTRY_CODE + 40,
    SYSRET_BASE = SYSEXIT_DATA - 8, SYSRET_CODE = SYSRET_BASE + 16,
};

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
#define INSNS_EVENT         0x00c0
#define BRANCHES_EVENT      0x00c4
#define GATE_P              (1ull << 47)

uint32_t nmis;
uint32_t watched[4];            /* See watch(). */

/* Handlers, see @traps for how many instructions they are */
#define HANDLER(name, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm(insns); \
    }

HANDLER(go_back, "iretq")
HANDLER(skip_2, "addq $2, (%rsp)\n iretq")
HANDLER(skip_error_1, "add $8, %rsp\n addq $1, (%rsp)\n iretq")
HANDLER(skip_error_2, "add $8, %rsp\n addq $2, (%rsp)\n iretq")
/* It is WINDOW + 5 * PAGE, 40005000h, that is missing. */
HANDLER(map_page, "add $8, %rsp\n orb $7, window_table + 40(%rip)\n iretq")
HANDLER(go_behind, "add $8, %rsp\n movq $df_behind, (%rsp)\n iretq")
HANDLER(resume, "orl $0x10000, 16(%rsp)\n iretq")
HANDLER(count_nmi, "incl nmis(%rip)\n iretq")
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
CODE(code_step_rep, "mov $watched, %edi\n mov $4, %ecx\n pushf\n"
     "orl $0x100, (%rsp)\n popf\n rep stosb\n nop")
CODE(code_step_watch, "pushf\n orl $0x100, (%rsp)\n popf\n"
     "movl $1, watched + 4(%rip)\n nop")
CODE(code_watch, "nop\n movl $1, watched + 4(%rip)\n nop")
CODE(code_watch_rep, "mov $watched, %edi\n mov $4, %ecx\n rep stosl\n"
     "nop")
CODE(code_watch_lock, "nop\n lock incl watched + 4(%rip)\n nop")
/* With more processors, TCG executes this in a TB of its own. */
CODE(code_lock, "mov $0x40003ffe, %edi\n nop\n lock incl (%rdi)\n nop\n"
     "lock incl (%rdi)")
CODE(code_break, "nop\n nop\n break_here: nop\n nop")
PLACE(break_here);
/* A byte of an instruction that it has been translated with */
CODE(code_modify, "nop\n movb $3, 1f + 1(%rip)\n 1: mov $2, %eax\n nop")
CODE(code_device, "mov $0xfee00030, %esi\n nop\n mov (%rsi), %eax\n nop\n"
     "mov (%rsi), %eax\n inc %eax\n mov (%rsi), %eax\n nop")
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
CODE(code_cpuid, "xor %eax, %eax\n cpuid\n nop")
CODE(code_privileged, "nop\n hlt\n nop")
CODE(code_in, "nop\n in $0x80, %al\n nop")

static uint8_t kernel_stack[4096] __attribute__((aligned(16)));
static uint8_t nmi_stack[1024] __attribute__((aligned(16)));

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

static void set_dr(uintptr_t dr0, uint64_t dr7)
{
    asm volatile("mov %0, %%dr0\n mov %1, %%dr7" : : "r" (dr0), "r" (dr7));
}

/* Writes of the second word */
static void watch(void)
{
    set_dr((uintptr_t)&watched[1], 0xd0401);
}

static void set_break(void)
{
    set_dr((uintptr_t)break_here, 0x401);
}

static void fault_cpuid(void)
{
    wrmsr(MSR_MISC_FEATURES, 1);
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
    bool alone;             /* not with other processors: MWAIT is PAUSE */
    bool compat;
} traps[] = {
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
    /* REP ends with the last of four. */
    { "#DB of each iteration of REP", code_step_rep, 7, 0, 0, DB, go_back,
      5, 5 },
    { "#DB of a single step that stores", code_step_watch, 5, 0, 0, DB, go_back,
      2, 2, watch },
    { "#DB of a store", code_watch, 3, 0, 0, DB, go_back, 1, 1, watch },
    { "#DB of LOCK INC", code_watch_lock, 3, 0, 0, DB, go_back, 1, 1, watch },
    { "#DB of REP STOS", code_watch_rep, 4, 0, 0, DB, go_back, 1, 1, watch },
    { "#DB before an instruction", code_break, 4, 0, 0, DB, resume, 2, 1,
      set_break },
    { "code that modifies what is next", code_modify, 4 },
    { "loads from a device", code_device, 8 },
    { "LOCK INC across two pages", code_lock, 5 },
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
    { "CPUID", code_cpuid, 3 },
    { "CPUID that faults", code_cpuid, 2, 0, 0, GP, skip_error_2, 3, 1,
      fault_cpuid, USER },
    { "CPUID that would fault", code_cpuid, 3, .ready = fault_cpuid,
      .where = KERNEL },
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
      start_timer, KERNEL, .alone = true },
};

static void init_entries(void)
{
    const uint64_t flat = 0xfffff;

    tss[1] = (uintptr_t)kernel_stack + sizeof(kernel_stack);
    tss[11] = (uintptr_t)nmi_stack + sizeof(nmi_stack);     /* IST2 */
    tss[25] = sizeof(tss) << 16;        /* There is no I/O permission map. */
    set_call_gate(TEST_DATA, (uintptr_t)called);
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SCE);
    set_segment(ENTRY_CODE, 0, flat, ACC_CODE, SEG_G | SEG_64);
    set_segment(ENTRY_DATA, 0, flat, ACC_DATA, SEG_G | SEG_32);
    set_segment(SYSEXIT_CODE, 0, flat, ACC_CODE | ACC_USER, SEG_G | SEG_64);
    set_segment(SYSEXIT_DATA, 0, flat, ACC_DATA | ACC_USER, SEG_G | SEG_32);
    set_segment(SYSRET_CODE, 0, flat, ACC_CODE | ACC_USER, SEG_G | SEG_64);
    wrmsr(MSR_STAR, (SYSRET_BASE | 3ull) << 48 | (uint64_t)ENTRY_CODE << 32);
    wrmsr(MSR_LSTAR, (uintptr_t)syscalled);
    wrmsr(MSR_FMASK, 0);
    wrmsr(MSR_SYSENTER_CS, ENTRY_CODE);
    wrmsr(MSR_SYSENTER_ESP, tss[1]);
    wrmsr(MSR_SYSENTER_EIP, (uintptr_t)sysentered);
    idt[ABSENT].low &= ~GATE_P;
    window_ram[5][0x800] = 0xc3;                /* RET, for code_fetch */
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

static void begin_case(int i)
{
    if (traps[i].vector) {
        set_handler(traps[i].vector, traps[i].handler);
    }
    if (traps[i].ready) {
        traps[i].ready();
    }
}

static void end_case(int i)
{
    if (traps[i].vector) {
        reset_handler(traps[i].vector);
    }
    reset_handler(GP);
    set_pte(5, PTE_ALL);
    set_dr(0, 0x400);
    wrmsr(MSR_MISC_FEATURES, 0);
}

/* Whether what should count does, in both rows */
static bool counts_case(int i, int cpl)
{
    static const uint32_t rows[] = { EVTSEL_USR, EVTSEL_OS };
    bool ok = true;

    for (int r = cpl ? 0 : 1; r < 2; r++) {
        Counts c, overhead, want = { };
        bool own = !r == !!cpl, handler = r;

        ok &= measure(cpl, rows[r], false, nothing, &overhead);
        begin_case(i);
        if (!measure(cpl, rows[r], traps[i].compat, traps[i].code, &c)) {
            test_printf("  ended by vector %d at %lx\n", (int)regs.vector,
                        regs.rip);
            ok = false;
        }
        end_case(i);
        for (int n = 0; n < EVENTS; n++) {
            c.n[n] -= overhead.n[n];
        }
        want.n[INSNS] = own * traps[i].insns +
                        handler * traps[i].handler_insns;
        want.n[FAR] = own * traps[i].far + handler * traps[i].handler_far;
        want.n[BRANCHES] = own * traps[i].near + want.n[FAR];
        ok &= counts_are(&c, &want);
    }
    return ok;
}

/* At CPL 0 the code is run by this, of which two instructions count. */
static void __attribute__((naked)) start_kernel(void)
{
    asm("mov $0x38f, %ecx\n mov $7, %eax\n xor %edx, %edx\n wrmsr\n"
        "jmp *%r8");
}

/*
 * Run it with counters of @event, instructions and branches.  The first one
 * interrupts at event @k, of which the handler returns; never, if @k is 0.
 */
static bool run_case(int i, int cpl, unsigned event, int k, uint64_t c[3])
{
    uint32_t rows = cpl ? EVTSEL_USR : EVTSEL_OS;
    bool ok;

    stop_counting();
    wrmsr(MSR_FIXED_CTR_CTRL, 0);
    wrmsr(MSR_GLOBAL_STATUS_RESET, rdmsr(MSR_GLOBAL_STATUS));
    APIC(APIC_LVTPC) = LVT_NMI;
    nmis = 0;
    begin_case(i);
    set_handler(NMI, count_nmi);
    idt[NMI].low += 1ull << 32;                 /* IST2 */
    wrmsr(MSR_EVTSEL(0), event | rows | EVTSEL_INT | EVTSEL_EN);
    wrmsr(MSR_EVTSEL(1), INSNS_EVENT | rows | EVTSEL_EN);
    wrmsr(MSR_EVTSEL(2), BRANCHES_EVENT | rows | EVTSEL_EN);
    wrmsr(MSR_PMC(0), -k);
    wrmsr(MSR_PMC(1), 0);
    wrmsr(MSR_PMC(2), 0);
    if (cpl) {
        set_up(traps[i].compat ? USER_CODE32 : USER_CODE64,
               (uintptr_t)traps[i].code);
        wrmsr(MSR_GLOBAL_CTRL, 7);
    } else {
        set_up(CODE64, (uintptr_t)start_kernel);
        regs.r8 = (uintptr_t)traps[i].code;
    }
    run();
    wrmsr(MSR_GLOBAL_CTRL, 0);
    ok = regs.vector == EXIT && nmis == (k > 0) &&
         rdmsr(MSR_GLOBAL_STATUS) == (k > 0);
    for (int n = 0; n < 3; n++) {
        c[n] = rdmsr(MSR_PMC(n));
    }
    reset_handler(NMI);
    end_case(i);
    APIC(APIC_LVTPC) = LVT_MASKED;
    return ok;
}

/* An interrupt changes nothing for the others, but for what its handler is. */
static bool interrupts_case(int i, int cpl, unsigned event)
{
    bool is_insns = event == INSNS_EVENT;
    int handler = cpl ? 0 : is_insns ? 2 : 1;
    uint64_t want[3], c[3];
    int until;
    bool ok = run_case(i, cpl, event, 0, want);

    if (cpl) {
        /* INT EXIT, too */
        until = is_insns ? traps[i].insns + 1 :
                traps[i].far + traps[i].near + 1;
        ok &= want[0] == until;
    } else {
        until = is_insns ? traps[i].insns + traps[i].handler_insns + 2 :
                traps[i].far + traps[i].near + traps[i].handler_far + 1;
    }
    for (int k = 1; k <= until; k++) {
        bool unchanged = run_case(i, cpl, event, k, c) &&
                         c[0] == want[0] + handler - k &&
                         c[1] == want[1] + (cpl ? 0 : 2) &&
                         c[2] == want[2] + (cpl ? 0 : 1);

        if (!unchanged) {
            test_printf("  event %x, %d of %d: %d NMIs, then %ld; instructions "
                        "%ld for %ld, branches %ld for %ld\n", event, k, until,
                        (int)nmis, c[0], c[1], want[1], c[2], want[2]);
        }
        ok &= unchanged;
    }
    return ok;
}

/*
 * Whether that can be had: an interrupt would be the end of waiting;
 * start_kernel() cannot run code of 32 bits; and QEMU sets RF in the frame of
 * an interrupt, so that the instruction behind it has no breakpoint.
 */
static bool can_interrupt(int i, int cpl)
{
    return traps[i].ready != start_timer && (cpl || !traps[i].compat) &&
           traps[i].ready != set_break;
}

static void for_each_trap(void (*test)(int i, int cpl))
{
    for (int i = 0; i < ARRAY_SIZE(traps); i++) {
        if (traps[i].alone && (cpuid_reg(1, 0, 1) >> 16 & 0xff) > 1) {
            continue;
        }
        if (traps[i].where != KERNEL) {
            test(i, 3);
        }
        if (traps[i].where != USER) {
            test(i, 0);
        }
    }
}

#endif
