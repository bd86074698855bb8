/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Last branch records where code enters and leaves the kernel, and what is none
 * of it: interrupts, exceptions, SYSCALL and the like, SMM, and the interrupt
 * of a performance counter, which can freeze them.
 *
 * The output is the same with -icount shift=0 and with one-insn-per-tb=on.
 */

#include "pmu-lbr.h"
#include "kernel-smm.h"

enum { ABSENT = 65, GATE = 0x73, ABSENT_DATA = 0x83 };

#define MSR_SYSENTER_CS         0x174
#define MSR_SYSENTER_ESP        0x175
#define MSR_SYSENTER_EIP        0x176
#define MSR_STAR                0xc0000081
#define MSR_LSTAR               0xc0000082
#define MSR_CSTAR               0xc0000083
#define MSR_FMASK               0xc0000084
#define EFER_SCE                1
#define ICR_SELF                0x44000
#define ICR_SELF_NMI            0x44400
#define LVT_SMI                 0x200
#define GATE_P                  (1ull << 47)
#define CAP_FREEZE_WHILE_SMM    (1u << 12)

HANDLER(on_de, 0)
HANDLER(on_db, 1)
HANDLER(on_nmi, 2)
HANDLER(on_bp, 3)
HANDLER(on_of, 4)
HANDLER(on_br, 5)
HANDLER(on_ud, 6)
HANDLER(on_df, 8)
HANDLER(on_np, 11)
HANDLER(on_ss, 12)
HANDLER(on_gp, 13)
HANDLER(on_pf, 14)
HANDLER(on_int, 64)

/* AT is where it happens. */
#define PLACE_AT(name)  void name##_at(void);
#define EVENT(name, insns) \
    PLACE_AT(name) \
    CODE(name, insns)
#define AT(name) #name "_at: "
#define TARGET_PAGE 0x40005000
#define NON_CANONICAL "movabs $0x8000000000000000, %rbx\n"

EVENT(ud, "nop\n nop\n" AT(ud) "ud2")
EVENT(divide, "xor %ecx, %ecx\n" AT(divide) "div %ecx")
EVENT(bp, "nop\n" AT(bp) "int3")
EVENT(int3, "nop\n" AT(int3) "int $3")
EVENT(soft, "nop\n" AT(soft) "int $64")
EVENT(int_prefix, "nop\n" AT(int_prefix) ".byte 0x66, 0xcd, 64")
EVENT(into, ".code32\n mov $0x7fffffff, %eax\n inc %eax\n" AT(into) "into\n"
      ".code64")
EVENT(bound, ".code32\n mov $5, %eax\n mov %esp, %ebx\n movl $0, (%esp)\n"
      "movl $4, 4(%esp)\n" AT(bound) "bound %eax, (%ebx)\n .code64")
EVENT(privileged, "nop\n" AT(privileged) "hlt")
EVENT(gp, NON_CANONICAL AT(gp) "mov (%rbx), %eax")
EVENT(ss, "mov $0x83, %eax\n" AT(ss) "mov %eax, %ss")
EVENT(np, "mov $0x83, %eax\n" AT(np) "mov %eax, %es")
EVENT(pf, "nop\n mov $0x40005000, %edi\n" AT(pf) "mov (%rdi), %eax")
EVENT(pf_rep, "mov $0x40004ff0, %edi\n mov $32, %ecx\n" AT(pf_rep)
      "rep stosb")
EVENT(int_absent, "nop\n" AT(int_absent) "int $65")
EVENT(df, NON_CANONICAL AT(df) "mov (%rbx), %eax")
EVENT(pf_np, "nop\n mov $0x40005000, %edi\n" AT(pf_np) "mov (%rdi), %eax")
EVENT(to_fault, "nop\n mov $0x40005000, %edi\n" AT(to_fault) "jmp *%rdi")
EVENT(call_fault, "mov $0x40006000, %esp\n" AT(call_fault) "call to_fault")
EVENT(ind_fault, "mov $0x40005000, %edi\n" AT(ind_fault) "jmp *(%rdi)")
EVENT(ret_fault, "mov $0x40005000, %esp\n" AT(ret_fault) "ret")
EVENT(far_fault, "push $0\n push $0\n" AT(far_fault) "lretq")
EVENT(iret_fault, "push $0\n push $0\n push $2\n push $0\n push $0\n"
      AT(iret_fault) "iretq")
EVENT(ljmp_fault, "push $0\n push $0\n" AT(ljmp_fault) "rex.w ljmp *(%rsp)")
/* EDX goes to the ICR. */
EVENT(ipi, "mov %edx, (%rdi)\n" AT(ipi) "nop\n nop")
EVENT(ipi_jmp, "mov %edx, (%rdi)\n" AT(ipi_jmp) "jmp 1f\n 1: nop\n nop")
EVENT(ipi_rep, "mov %edx, %eax\n mov $65540, %ecx\n std\n" AT(ipi_rep)
      "rep stosl")
EVENT(halt, "mov %edx, (%rdi)\n sti\n hlt\n" AT(halt) "nop")
EVENT(jmp_ud, AT(jmp_ud) "jmp jmp_ud_to\n nop\n jmp_ud_to: ud2")
PLACE(jmp_ud_to);

EVENT(sys_call, "nop\n" AT(sys_call) "syscall\n sys_call_behind: nop")
EVENT(sys_call32, ".code32\n nop\n" AT(sys_call32) "syscall\n .code64")
EVENT(sys_enter, "lea sys_enter_behind(%rip), %rdx\n mov %rsp, %rcx\n"
      AT(sys_enter) "sysenter\n ud2\n sys_enter_behind: nop")
EVENT(call_gate, "push $0x73\n push $0\n" AT(call_gate) "rex.w lcall *(%rsp)\n"
      "call_gate_behind: nop")
PLACE(sys_call_behind);
PLACE(sys_enter_behind);
PLACE(call_gate_behind);
PLACE(entered_from);
CODE(entered, "nop\n nop")
PLACE(sys_return_at);
CODE(sys_return, "nop\n sys_return_at: sysretq")
PLACE(sys_exit_at);
CODE(sys_exit, "nop\n sys_exit_at: sysexitq")
PLACE(gate_return_at);
CODE(gate_return, "gate_return_at: lretq")

static uint8_t kernel_stack[1024] __attribute__((aligned(16)));

static void prepare_absent(void)
{
    idt[ABSENT].low &= ~GATE_P;
}

/* #GP or #PF, then #NP for its handler */
static void prepare_double(void)
{
    idt[GP].low &= ~GATE_P;
    idt[PF].low &= ~GATE_P;
}

static void call_entered(void)
{
    wrmsr(MSR_LSTAR, (uintptr_t)entered);
    wrmsr(MSR_CSTAR, (uintptr_t)entered);
    wrmsr(MSR_SYSENTER_EIP, (uintptr_t)entered);
}

static void call_sysret(void)
{
    wrmsr(MSR_LSTAR, (uintptr_t)sys_return);
}

static void call_sysexit(void)
{
    wrmsr(MSR_SYSENTER_EIP, (uintptr_t)sys_exit);
}

static void gate_entered(void)
{
    set_call_gate(GATE, (uintptr_t)entered);
}

static void gate_returns(void)
{
    set_call_gate(GATE, (uintptr_t)gate_return);
}

static void send_int(void)
{
    regs.rdx = ICR_SELF | VECTOR;
    regs.rflags |= FLAG_IF;
}

static void send_int_masked(void)
{
    regs.rdx = ICR_SELF | VECTOR;
}

static void send_nmi(void)
{
    regs.rdx = ICR_SELF_NMI;
}

typedef void Place(void);
#define PAGE_5  ((Place *)TARGET_PAGE)

static const struct Case {
    const char *what;
    uint16_t cs;
    void (*code)(void);
    unsigned vector;            /* what ends it */
    Place *handler;
    /* From and to, the last one first.  INT EXIT, IRET to @code are added. */
    Place *path[5];
    void (*prepare)(void);
    bool intel;                 /* not on others; and the reverse */
    bool amd;
} cases[] = {
#define PREPARED(what, name, vector, handler, prepare) \
    { what, USER_CODE64, name, vector, handler, { name##_at, handler }, \
      prepare }
#define SIMPLE(what, name, vector, handler) \
    PREPARED(what, name, vector, handler, NULL)
    SIMPLE("#UD", ud, UD, on_ud),
    SIMPLE("#DE", divide, DE, on_de),
    SIMPLE("INT3", bp, BP, on_bp),
    SIMPLE("INT 3", int3, BP, on_bp),
    SIMPLE("INT n", soft, VECTOR, on_int),
    SIMPLE("INT n with a prefix", int_prefix, VECTOR, on_int),
    { "INTO", USER_CODE32, into, OF, on_of, { into_at, on_of } },
    { "BOUND", USER_CODE32, bound, BR, on_br, { bound_at, on_br } },
    SIMPLE("HLT at CPL 3", privileged, GP, on_gp),
    SIMPLE("#GP", gp, GP, on_gp),
    SIMPLE("#SS", ss, SS, on_ss),
    SIMPLE("#NP", np, NP, on_np),
    SIMPLE("#PF", pf, PF, on_pf),
    SIMPLE("#PF in REP", pf_rep, PF, on_pf),
    PREPARED("INT n without a handler: #NP", int_absent, NP, on_np,
             prepare_absent),
    PREPARED("#GP, #NP: #DF", df, DF, on_df, prepare_double),
    PREPARED("#PF, #NP: #DF", pf_np, DF, on_df, prepare_double),
    { "JMP to where #PF is", USER_CODE64, to_fault, PF, on_pf,
      { PAGE_5, on_pf, to_fault_at, PAGE_5 } },
    { "JMP to UD2", USER_CODE64, jmp_ud, UD, on_ud,
      { jmp_ud_to, on_ud, jmp_ud_at, jmp_ud_to } },
    SIMPLE("CALL that faults", call_fault, PF, on_pf),
    SIMPLE("indirect JMP that faults", ind_fault, PF, on_pf),
    SIMPLE("RET that faults", ret_fault, PF, on_pf),
    SIMPLE("far RET that faults", far_fault, GP, on_gp),
    SIMPLE("IRET that faults", iret_fault, GP, on_gp),
    SIMPLE("far JMP that faults", ljmp_fault, GP, on_gp),
    PREPARED("an interrupt", ipi, VECTOR, on_int, send_int),
    PREPARED("an interrupt in front of JMP", ipi_jmp, VECTOR, on_int, send_int),
    PREPARED("NMI", ipi, NMI, on_nmi, send_nmi),
    PREPARED("an interrupt in REP", ipi_rep, VECTOR, on_int, send_int),
    PREPARED("NMI in REP", ipi_rep, NMI, on_nmi, send_nmi),
    { "HLT and an interrupt", CODE64, halt, VECTOR, on_int,
      { halt_at, on_int }, send_int_masked },
    { "#UD at CPL 0", CODE64, ud, UD, on_ud, { ud_at, on_ud } },
    { "INT n at CPL 0", CODE64, soft, VECTOR, on_int, { soft_at, on_int } },
    { "an interrupt at CPL 0", CODE64, ipi, VECTOR, on_int,
      { ipi_at, on_int }, send_int },
    { "SYSCALL", USER_CODE64, sys_call, EXIT, on_exit,
      { sys_call_at, entered }, call_entered },
    { "SYSCALL, SYSRET", USER_CODE64, sys_call, EXIT, on_exit,
      { sys_return_at, sys_call_behind, sys_call_at, sys_return },
      call_sysret },
    { "SYSCALL of 32 bits", USER_CODE32, sys_call32, EXIT, on_exit,
      { sys_call32_at, entered }, call_entered, .amd = true },
    { "SYSENTER", USER_CODE64, sys_enter, EXIT, on_exit,
      { sys_enter_at, entered }, call_entered, .intel = true },
    { "SYSENTER, SYSEXIT", USER_CODE64, sys_enter, EXIT, on_exit,
      { sys_exit_at, sys_enter_behind, sys_enter_at, sys_exit },
      call_sysexit, .intel = true },
    { "CALL through a gate", USER_CODE64, call_gate, EXIT, on_exit,
      { call_gate_at, entered }, gate_entered },
    { "CALL through a gate, far RET", USER_CODE64, call_gate, EXIT, on_exit,
      { gate_return_at, call_gate_behind, call_gate_at, gate_return },
      gate_returns },
};

static void init(void)
{
    uint64_t stack = (uintptr_t)kernel_stack + sizeof(kernel_stack);

    apic_init(LVT_MASKED);
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SCE);
    wrmsr(MSR_STAR, (uint64_t)CODE64 << 32 | (uint64_t)CODE64 << 48);
    wrmsr(MSR_FMASK, 0);
    wrmsr(MSR_SYSENTER_CS, CODE64);
    wrmsr(MSR_SYSENTER_ESP, stack);
    tss[1] = stack;
    set_segment(ABSENT_DATA, 0, 0xfffff, (ACC_DATA | ACC_USER) & ~0x80, 0);
}

static bool check_path(const struct Case *c)
{
    unsigned n = 0;
    bool ok = true;

    if (c->handler == on_exit) {
        ok &= goes(record(n++), regs.rip - 2, (uintptr_t)on_exit);
    }
    for (int i = 0; c->path[i]; i += 2) {
        if (n < (lbr->depth == 1 ? 2 : lbr->depth)) {
            ok &= goes(record(n++), (uintptr_t)c->path[i],
                       (uintptr_t)c->path[i + 1]);
        }
    }
    if (n < (lbr->depth == 1 ? 2 : lbr->depth)) {
        ok &= record(n).to == (uintptr_t)c->code;
    }
    return ok;
}

static void test_events(void)
{
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct Case *c = &cases[i];
        bool ok;

        if (is_amd() ? c->intel : c->amd) {
            continue;
        }
        set_pte(5, 0);
        set_up(c->cs, (uintptr_t)c->code);
        regs.rdi = (uintptr_t)&APIC(APIC_ICR);
        if (c->prepare) {
            c->prepare();
        }
        ok = run_recorded(c->vector, c->handler) == c->vector;
        ok &= check_path(c);
        if (!ok) {
            test_printf("  vector %d\n", (int)regs.vector);
        }
        if (c->code == ipi_rep) {
            /* It is for an interrupt in the middle of it. */
            ok &= regs.rcx != 0 && regs.rip == (uintptr_t)ipi_rep_at;
        }
        APIC(APIC_EOI) = 0;
        load_ds(USER_DATA);
        asm volatile("mov %0, %%es" : : "r" (USER_DATA));
        idt[GP].low |= GATE_P;
        idt[PF].low |= GATE_P;
        report(ok, "%s", c->what);
    }
}

/* The last branch before an event, where there are registers for it */
static void test_last_exception(void)
{
    Record r;

    set_up(USER_CODE64, (uintptr_t)jmp_ud);
    run_recorded(UD, on_ud);
    r = (Record) { rdmsr(MSR_LER_FROM + lbr->to_first) & ADDRESS_MASK,
                   rdmsr(MSR_LER_TO - lbr->to_first) & ADDRESS_MASK };
    report(goes(r, (uintptr_t)jmp_ud_at, (uintptr_t)jmp_ud_to),
           "the branch before an exception");
    if (is_arch()) {
        report(rdmsr(MSR_LER_INFO) >> 56 == (types[JMP_REL] | 0x10),
               "and its type");
    }
}

/* #DB is not recorded, and switches records off. */
PLACE(int1_at);
CODE(int1, "jmp 1f\n 1: int1_at: .byte 0xf1")
PLACE(step_to);
CODE(step, "jmp step_to\n step_to: nop\n")
PLACE(watch_to);
CODE(watch, "jmp watch_to\n watch_to: mov %eax, -8(%rsp)\n nop\n")

static void test_debug(void)
{
    /* Of IA32_LBR_CTL, it is the same bit. */
    uint64_t want = lbr_on & ~(is_arch() ? CTL_ENABLE : DEBUGCTL_LBR);
    static const struct {
        const char *what;
        Place *code, *to;
        uint32_t flags;
    } traps[] = {
        { "#DB of a step", step, step_to, FLAG_TF },
        { "#DB of a watchpoint", watch, watch_to, 0 },
        { "#DB of INT1", int1, int1_at, 0 },
    };

    for (int i = 0; i < ARRAY_SIZE(traps); i++) {
        uint64_t got;

        set_up(USER_CODE64, (uintptr_t)traps[i].code);
        regs.rflags |= traps[i].flags;
        if (traps[i].code == watch) {
            asm volatile("mov %0, %%dr0\n mov %1, %%dr7"
                         : : "r" (regs.rsp - 8), "r" (0xd0001ull));
        }
        lbr_start();
        run();
        got = rdmsr(lbr_msr);
        lbr_stop();
        asm volatile("mov %0, %%dr7" : : "r" (0ull));
        report(regs.vector == DB && got == want &&
               record(0).to == (uintptr_t)traps[i].to,
               "%s: vector %d, then %lx", traps[i].what, (int)regs.vector,
               got);
    }
}

/*
 * System Management Mode
 */

/* volatile: SMM writes it */
volatile struct {
    uint32_t smis, debugctl, msr, val;
} smm_log;

#define SMM_IP(name) (0x8000 + ((uintptr_t)(name) - (uintptr_t)smm_code))
PLACE(smm_code);
PLACE(smm_code_end);
PLACE(smm_jmp);
PLACE(smm_jmp_to);
asm(".text\n"
    ".code16\n"
    "smm_code:\n"
    "    mov $smm_log, %ebx\n"
    "    incl (%ebx)\n"
    "    mov $0x1d9, %ecx\n rdmsr\n mov %eax, 4(%ebx)\n"
    "    mov 8(%ebx), %ecx\n rdmsr\n mov %eax, 12(%ebx)\n"
    "smm_jmp:\n"
    "    jmp smm_jmp_to\n"
    "    nop\n"
    "smm_jmp_to:\n"
    "    rsm\n"
    "smm_code_end:\n"
    ".code64\n");

EVENT(smi, "jmp 1f\n nop\n 1: mov %edx, (%rdi)\n nop\n nop")

static void run_smi(void)
{
    set_up(USER_CODE64, (uintptr_t)smi);
    regs.rdx = ICR_SELF_SMI;
    regs.rdi = (uintptr_t)&APIC(APIC_ICR);
    run_recorded(EXIT, on_exit);
}

static void test_smm(void)
{
    uint32_t smis = smm_log.smis;

    set_smi_code((uintptr_t)smm_code, (uintptr_t)smm_code_end);
    smm_log.msr = lbr_msr;
    run_smi();
    if (is_arch()) {
        report(smm_log.smis == smis + 1 &&
               goes(record(0), regs.rip - 2, (uintptr_t)on_exit) &&
               record(1).from == (uintptr_t)smi &&
               smm_log.val == (lbr_on & ~CTL_ENABLE),
               "SMI clears LBREn, and RSM restores it: LBR_CTL %x",
               smm_log.val);
    } else {
        report(smm_log.smis == smis + 1 &&
               goes(record(0), regs.rip - 2, (uintptr_t)on_exit) &&
               goes(record(1), SMM_IP(smm_jmp), SMM_IP(smm_jmp_to)) &&
               (lbr->depth == 1 || record(2).from == (uintptr_t)smi),
               "SMI and RSM are nothing, JMP in SMM is");
    }
    if (is_amd() || !(cpuid_reg(1, 0, 2) & CPUID_PDCM) ||
        !(rdmsr(MSR_PERF_CAPABILITIES) & CAP_FREEZE_WHILE_SMM)) {
        return;
    }
    wrmsr(MSR_DEBUGCTL, FREEZE_WHILE_SMM);
    lbr_on |= is_arch() ? 0 : FREEZE_WHILE_SMM;
    run_smi();
    lbr_on &= ~FREEZE_WHILE_SMM;
    report(goes(record(0), regs.rip - 2, (uintptr_t)on_exit) &&
           record(1).from == (uintptr_t)smi &&
           smm_log.debugctl == FREEZE_WHILE_SMM,
           "FREEZE_WHILE_SMM: nor is that; DEBUGCTL %x", smm_log.debugctl);
    wrmsr(MSR_DEBUGCTL, 0);
}

/*
 * The interrupt of a counter: the branch that overflows is in the records.
 */

PLACE(loop_jmp);
CODE(loop, "1: nop\n loop_jmp: jmp 1b")

static void start_branches(uint64_t left, uint32_t row)
{
    wrmsr(MSR_GLOBAL_CTRL, 0);
    wrmsr(MSR_EVTSEL(0), 0x00c4 | row | EVTSEL_INT | EVTSEL_EN);
    wrmsr(MSR_PMC(0), -left);
    APIC(APIC_LVTPC) = LVT_NMI;
    wrmsr(MSR_GLOBAL_CTRL, 1);
}

static void stop_branches(void)
{
    wrmsr(MSR_GLOBAL_CTRL, 0);
    wrmsr(MSR_EVTSEL(0), 0);
    APIC(APIC_LVTPC) = LVT_MASKED;
}

static void test_freeze(void)
{
    unsigned version = cpuid_reg(0xa, 0, 0) & 0xff;
    uint64_t frozen = version >= 4 ? LBR_FRZ : 0;
    /* Bonnell's switches off trace messages, too. */
    uint32_t tr = !is_arch() && (cpuid_reg(1, 0, 3) >> 21 & 1) ? TR : 0;
    uint32_t tr_left = lbr->model == 28 ? 0 : tr;
    static const struct {
        const char *what;
        Place *code, *from, *to;
        uint32_t left;
        void (*prepare)(void);
    } ways[] = {
        { "JMP", loop, loop_jmp, loop, 20 },
        { "SYSCALL", sys_call, sys_call_at, entered, 1, call_entered },
        { "INT n", soft, soft_at, entered, 1 },
    };

    if (is_amd() || version < 2) {
        return;
    }
    for (int i = 0; i < ARRAY_SIZE(ways); i++) {
        uint64_t got;
        Record r;
        bool ok;

        set_up(USER_CODE64, (uintptr_t)ways[i].code);
        if (ways[i].prepare) {
            ways[i].prepare();
        }
        set_handler(VECTOR, entered);
        /* It is delivered, and recorded. */
        start_branches(ways[i].left, EVTSEL_USR);
        run_recorded(NMI, on_nmi);
        stop_branches();
        wrmsr(MSR_GLOBAL_STATUS_RESET, rdmsr(MSR_GLOBAL_STATUS));
        report(regs.vector == NMI && regs.rip == (uintptr_t)ways[i].to &&
               goes(record(0), regs.rip, (uintptr_t)on_nmi) &&
               goes(record(1), (uintptr_t)ways[i].from,
                    (uintptr_t)ways[i].to),
               "a PMI of %s: the branch, then the PMI", ways[i].what);

        set_up(USER_CODE64, (uintptr_t)ways[i].code);
        start_branches(ways[i].left, EVTSEL_USR);
        wrmsr(MSR_DEBUGCTL, FREEZE_LBRS_ON_PMI);
        lbr_on |= is_arch() ? 0 : FREEZE_LBRS_ON_PMI | tr;
        lbr_start();
        run();
        stop_branches();
        got = rdmsr(MSR_DEBUGCTL);
        r = record(0);
        ok = regs.vector == NMI && regs.rip == (uintptr_t)ways[i].to &&
             goes(r, (uintptr_t)ways[i].from, (uintptr_t)ways[i].to);
        report(ok, "a PMI of %s that freezes: the branch is the last",
               ways[i].what);
        report(got == (FREEZE_LBRS_ON_PMI | tr_left |
                       (version >= 4 && !is_arch() ? DEBUGCTL_LBR : 0)) &&
               (rdmsr(MSR_GLOBAL_STATUS) & LBR_FRZ) == frozen &&
               (!is_arch() || rdmsr(MSR_LBR_CTL) == lbr_on),
               "a PMI of %s that freezes: DEBUGCTL %lx, then %lx, STATUS %lx",
               ways[i].what, (uint64_t)lbr_on, got,
               rdmsr(MSR_GLOBAL_STATUS));
        if (version >= 4) {
            set_up(USER_CODE64, (uintptr_t)jmp_ud);
            run();
            ok = goes(record(0), r.from, r.to);
            wrmsr(MSR_GLOBAL_STATUS_RESET, LBR_FRZ);
            set_up(USER_CODE64, (uintptr_t)jmp_ud);
            run_recorded(UD, on_ud);
            report(ok && goes(record(0), (uintptr_t)jmp_ud_to,
                              (uintptr_t)on_ud),
                   "nothing is recorded until LBR_FRZ is cleared");
        }
        lbr_on &= ~(FREEZE_LBRS_ON_PMI | tr);
        lbr_stop();
        wrmsr(MSR_DEBUGCTL, 0);
        wrmsr(MSR_GLOBAL_STATUS_RESET, rdmsr(MSR_GLOBAL_STATUS));
        reset_handler(VECTOR);
    }
    if (version >= 4) {
        wrmsr(MSR_GLOBAL_STATUS_SET, LBR_FRZ);
        clear_records();
        lbr_start();
        set_up(USER_CODE64, (uintptr_t)jmp_ud);
        run_recorded(UD, on_ud);
        report(record(0).to == 0 && record(1).to == 0,
               "LBR_FRZ that is written freezes, too");
        wrmsr(MSR_GLOBAL_STATUS_RESET, LBR_FRZ);
    }
}

int main(void)
{
    kernel_init();
    lbr_find();
    init();
    test_printf("%s\n", lbr->name);
    test_events();
    test_last_exception();
    test_debug();
    test_smm();
    test_freeze();
    return report_summary();
}
