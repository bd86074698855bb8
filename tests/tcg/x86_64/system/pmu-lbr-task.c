/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Branch records where there is no long mode: of task switches, in virtual 8086
 * mode and in real mode.  Addresses are those of EIP in last branch records,
 * and linear ones in the branch trace store, where there is one.
 *
 * The output is the same with -icount shift=0 and with one-insn-per-tb=on.
 */

#include "pmu-lbr.h"
#include "pmu-legacy.h"

enum { SOFT = 33, ABSENT = 34 };

/* Selectors, of which some have another use in long mode */
enum { TASK_GATE = 0x38, OTHER_TSS = 0x40, ABSENT_TSS = 0x70,
       ABSENT_DATA = 0x78 };

/* Where the code of 16 bits is, and its offset in its segment */
#define V86_CODE        0x8000
#define V86_SEGMENT     0x0700
#define V86_IP          0x1000
#define REAL_CODE       0x9000
#define REAL_SEGMENT    0x0100
#define REAL_IP         0x8000

#define MSR_DS_AREA     0x600
#define DEBUGCTL_BTS    0xc0

static Tss other_tss;
static uint8_t other_stack[1024] __attribute__((aligned(16)));

typedef void Place(void);

/* NAME_at and NAME_behind are the branch, and what follows it. */
#define PLACES(name)    void name##_at(void), name##_behind(void);
#define BRANCH(name, before, insn) \
    PLACES(name) \
    LEGACY(name, "nop\n" before #name "_at: " insn "\n" #name "_behind: nop")

BRANCH(jmp, "", "jmp jmp_behind")
BRANCH(jump, "", "ljmp $0x40, $0")
BRANCH(call, "", "lcall $0x40, $0")
BRANCH(jump_gate, "", "ljmp $0x3b, $0")
BRANCH(call_gate, "", "lcall $0x3b, $0")
BRANCH(call_absent, "", "lcall $0x73, $0")
BRANCH(interrupt, "", "int $33")
BRANCH(interrupt_absent, "", "int $34")
BRANCH(call_iret, "", "lcall $0x40, $0")
BRANCH(undefined, "", "ud2")
BRANCH(enter_v86, "push $0\n push $0\n push $0\n push $0\n push $0\n"
       "push $0x7000\n push $0x23002\n push $0x700\n push $0x1000\n", "iret")

/* What else runs */
PLACE(skip_ud2_at);
PLACE(skip_error_2_at);
PLACE(skip_error_7_at);
LEGACY(jump_back, "ljmp $0x68, $0")
LEGACY(go_back, "iret")
LEGACY(spoil_back, "movl $0x78, main_tss + 84\n spoil_back_at: iret")
PLACE(spoil_back_at);
LEGACY(skip_ud2, "addl $2, main_tss + 32\n skip_ud2_at: iret")
LEGACY(skip_error_2, "add $4, %esp\n addl $2, (%esp)\n skip_error_2_at: iret")
LEGACY(skip_error_7, "add $4, %esp\n addl $7, (%esp)\n skip_error_7_at: iret")

/* Has an error code and the frame; INT EXIT goes on. */
uint32_t frame_eip;
LEGACY(end, "mov 4(%esp), %eax\n mov %eax, frame_eip")

/* JMP over an INT3, INT 33, NOP, INT EXIT of 16 bits */
static const uint8_t v86_code[] = {
    0x90, 0xeb, 1, 0xcc, 0xcd, SOFT, 0x90, 0xcd, EXIT
};
#define V86(offset)     ((Place *)(V86_IP + (offset)))

/* Real mode: JMP, INT n, IRET, far CALL, far RET, and back */
PLACE(enter_real);
PLACE(real_code);
PLACE(real_code_end);
PLACE(real_jmp);
PLACE(real_int);
PLACE(real_lcall);
PLACE(real_behind);
PLACE(real_lret);
PLACE(real_iret);
PLACE(real_leave);
PLACE(real_left);
#define REAL(fn)        ((Place *)(REAL_IP + (uintptr_t)(fn) - \
                                   (uintptr_t)real_code))
struct {
    uint16_t limit;
    uint32_t base;
} __attribute__((packed)) real_idtr = { 0x3ff, 0 };
asm(".text\n"
    ".code32\n"
    "enter_real: ljmp $0x50, $0x9000\n"
    ".code16\n"
    "real_code:\n"
    "    mov %cr0, %eax\n btr $0, %eax\n mov %eax, %cr0\n"
    "    ljmp $0x100, $0x8000 + 1f - real_code\n"
    "1:  mov $0x7000, %esp\n"
    "    xor %ax, %ax\n mov %ax, %ss\n"
    "real_jmp:\n"
    "    jmp real_int\n"
    "    int3\n"
    "real_int:\n"
    "    int $33\n"
    "real_lcall:\n"
    "    lcall $0x100, $0x8000 + real_lret - real_code\n"
    "real_behind:\n"
    "    mov %cr0, %eax\n bts $0, %eax\n mov %eax, %cr0\n"
    "real_leave:\n"
    "    ljmpl $0x48, $real_left\n"
    "real_lret:\n"
    "    lret\n"
    "real_iret:\n"
    "    iret\n"
    "real_code_end:\n"
    ".code32\n"
    "real_left:\n"
    "    mov $0x10, %eax\n mov %eax, %ss\n"
    "    mov $legacy_stack + 1024, %esp\n"
    "    lidt legacy_idtr\n"
    "    int $32\n"
    ".code64\n");
LEGACY(real, "lidt real_idtr\n jmp enter_real")

static const struct Case {
    const char *what;
    int cpl;
    Place *code;
    Place *other;               /* the task's, or a handler's */
    int vector;                 /* that has a handler or a task gate, or 0 */
    bool task;                  /* it is a task gate */
    bool spoilt;                /* the other task has no DS */
    /* From and to, the last one first */
    Place *path[13];
} cases[] = {
#define BY_TASK(name, from, other) \
    { from, name##_behind, name##_at, other }
    { "JMP", 0, jmp, .path = { jmp_at, jmp_behind } },
    { "JMP", 3, jmp, .path = { jmp_at, jmp_behind } },
    { "JMP to a TSS and back", 0, jump, jump_back,
      .path = BY_TASK(jump, jump_back, jump_back) },
    { "CALL of a TSS, IRET", 0, call, go_back,
      .path = BY_TASK(call, go_back, go_back) },
    { "JMP to a task gate, JMP to a TSS", 0, jump_gate, jump_back,
      .path = BY_TASK(jump_gate, jump_back, jump_back) },
    { "JMP to a task gate, JMP to a TSS", 3, jump_gate, jump_back,
      .path = BY_TASK(jump_gate, jump_back, jump_back) },
    { "CALL of a task gate, IRET", 0, call_gate, go_back,
      .path = BY_TASK(call_gate, go_back, go_back) },
    { "CALL of a task gate, IRET", 3, call_gate, go_back,
      .path = BY_TASK(call_gate, go_back, go_back) },
    { "INT n through a task gate, IRET", 0, interrupt, go_back, SOFT, true,
      .path = BY_TASK(interrupt, go_back, go_back) },
    { "INT n through a task gate, IRET", 3, interrupt, go_back, SOFT, true,
      .path = BY_TASK(interrupt, go_back, go_back) },
    { "#UD through a task gate, IRET", 0, undefined, skip_ud2, UD, true,
      .path = BY_TASK(undefined, skip_ud2_at, skip_ud2) },
    { "#UD through a task gate, IRET", 3, undefined, skip_ud2, UD, true,
      .path = BY_TASK(undefined, skip_ud2_at, skip_ud2) },
    { "CALL of a TSS that is not present", 0, call_absent, skip_error_7, NP,
      .path = BY_TASK(call_absent, skip_error_7_at, skip_error_7) },
    { "CALL of a TSS that is not present", 3, call_absent, skip_error_7, NP,
      .path = BY_TASK(call_absent, skip_error_7_at, skip_error_7) },
    { "INT n to a TSS that is not present", 3, interrupt_absent, skip_error_2,
      NP, .path = BY_TASK(interrupt_absent, skip_error_2_at, skip_error_2) },
    { "INT n, IRET", 3, interrupt, go_back, SOFT,
      .path = BY_TASK(interrupt, go_back, go_back) },
    /*
     * Behind the point where it is committed the fault is the next task's, but
     * comes from where the switch began (SDM, on FUPs of Processor Trace).
     */
#define SPOILT(what, cpl, code, other, vector, task, from) \
    { what ", no DS there", cpl, code, other, vector, task, true, \
      .path = { from, end } }
    SPOILT("JMP to a TSS", 0, jump, jump_back, 0, false, jump_at),
    SPOILT("CALL of a TSS", 0, call, go_back, 0, false, call_at),
    SPOILT("JMP to a task gate", 0, jump_gate, go_back, 0, false,
           jump_gate_at),
    SPOILT("JMP to a task gate", 3, jump_gate, go_back, 0, false,
           jump_gate_at),
    SPOILT("CALL of a task gate", 3, call_gate, go_back, 0, false,
           call_gate_at),
    SPOILT("INT n through a task gate", 0, interrupt, go_back, SOFT, true,
           interrupt_at),
    SPOILT("INT n through a task gate", 3, interrupt, go_back, SOFT, true,
           interrupt_at),
    SPOILT("#UD through a task gate", 0, undefined, go_back, UD, true,
           undefined_at),
    SPOILT("#UD through a task gate", 3, undefined, go_back, UD, true,
           undefined_at),
    { "CALL of a TSS, IRET to a task without DS", 0, call_iret, spoil_back,
      NP, .path = { spoil_back_at, end, call_iret_at, spoil_back } },
    { "IRET to virtual 8086 mode, JMP, INT n there", 0, enter_v86, go_back,
      SOFT, .path = { go_back, V86(6), V86(4), go_back, V86(1), V86(4),
                      enter_v86_at, V86(0) } },
};

static void prepare_case(const struct Case *c)
{
    other_tss = (Tss) {
        .esp0 = (uintptr_t)other_stack + sizeof(other_stack), .ss0 = DATA,
        .eip = (uintptr_t)c->other, .eflags = 2,
        .esp = (uintptr_t)other_stack + sizeof(other_stack) / 2,
        .cs = CODE32, .ss = DATA,
        .ds = c->spoilt ? ABSENT_DATA : DATA, .es = DATA,
    };
    legacy_init();
    set_int_gate(NP, (uintptr_t)end);
    set_segment(ABSENT_DATA, 0, 0xfffff, ACC_DATA & ~0x80, SEG_G | SEG_32);
    set_segment(OTHER_TSS, (uintptr_t)&other_tss, sizeof(Tss) - 1, ACC_TSS, 0);
    set_segment(ABSENT_TSS, (uintptr_t)&other_tss, sizeof(Tss) - 1,
                (ACC_TSS | ACC_USER) & ~0x80, 0);
    gdt64_table[TASK_GATE / 8] = OTHER_TSS << 16 | TYPE_TASK_GATE;
    set_task_gate(ABSENT, ABSENT_TSS);
    if (c->task) {
        set_task_gate(c->vector, OTHER_TSS);
    } else if (c->vector && c->other != spoil_back) {
        set_int_gate(c->vector, (uintptr_t)c->other);
    }
}

static bool bts;                /* or it is in the branch trace store */
static uint8_t ds_area[32] __attribute__((aligned(8)));
static uint8_t bts_buffer[64 * 24] __attribute__((aligned(8)));

static unsigned bts_field(void)
{
    return cpuid_reg(1, 0, 2) >> 2 & 1 ? 8 : 4;         /* DTES64 */
}

static void bts_prepare(void)
{
    unsigned size = bts_field();
    uint64_t base = (uintptr_t)bts_buffer, end = base + sizeof(bts_buffer);

    memcpy(ds_area, &base, size);
    memcpy(ds_area + size, &base, size);
    memcpy(ds_area + 2 * size, &end, size);
    wrmsr(MSR_DS_AREA, (uintptr_t)ds_area);
}

static Record nth_last(unsigned n)
{
    unsigned size = bts_field();
    uint64_t index = 0;
    Record r = { };

    if (!bts) {
        return record(n);
    }
    memcpy(&index, ds_area + size, size);
    index -= (n + 1) * 3 * size;
    if (index >= (uintptr_t)bts_buffer) {
        memcpy(&r.from, (void *)index, size);
        memcpy(&r.to, (void *)index + size, size);
    }
    return r;
}

/* What is in a record of that place */
static uintptr_t address(Place *place)
{
    uintptr_t ip = (uintptr_t)place;

    if (!bts || ip >= 0x100000) {
        return ip;
    }
    return ip + (ip >= REAL_IP ? REAL_CODE - REAL_IP : V86_CODE - V86_IP);
}

/* The stub that ends it has a JMP. */
static bool check_path(const struct Case *c)
{
    uintptr_t stub = (uintptr_t)legacy_stubs + 16 * legacy_vector;
    unsigned n = 1, end = bts ? -1 : lbr->depth == 1 ? 2 : lbr->depth;
    bool ok = true;

    if (end > 2) {
        ok &= nth_last(n++).to == stub;
    }
    for (int i = 0; c->path[i] && n < end; i += 2, n++) {
        ok &= goes(nth_last(n), address(c->path[i]), address(c->path[i + 1]));
    }
    return ok;
}

static void test_case(const struct Case *c)
{
    bool ok;

    prepare_case(c);
    if (bts) {
        bts_prepare();
    }
    legacy_vector = -1;
    frame_eip = 0;
    legacy_run((uintptr_t)c->code, c->cpl);
    load_tables();
    ok = legacy_vector == EXIT;
    if (!ok) {
        test_printf("  vector %d\n", (int)legacy_vector);
    }
    ok &= check_path(c);
    if (c->spoilt) {
        ok &= frame_eip == other_tss.eip;
    }
    report(ok, "%sCPL %d: %s", bts ? "BTS, " : "", c->cpl, c->what);
}

static void test_real(void)
{
    struct Case c = {
        "real mode: JMP, INT n, IRET, far CALL, far RET", 0, real,
        .path = {
            REAL(real_leave), real_left, REAL(real_lret), REAL(real_behind),
            REAL(real_lcall), REAL(real_lret), REAL(real_iret),
            REAL(real_lcall), REAL(real_int), REAL(real_iret),
            REAL(real_jmp), REAL(real_int),
        },
    };
    uint32_t *ivt = NULL;

    asm volatile("" : "+r" (ivt));      /* The table really is at 0. */
    ivt[SOFT] = REAL_SEGMENT << 16 | (uintptr_t)REAL(real_iret);
    memcpy((void *)REAL_CODE, (void *)real_code,
           (uintptr_t)real_code_end - (uintptr_t)real_code);
    test_case(&c);
}

static void test_cases(void)
{
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        test_case(&cases[i]);
    }
    test_real();
}

int main(void)
{
    kernel_init();
    apic_init(LVT_MASKED);
    lbr_find();
    test_printf("%s\n", lbr->name);
    legacy_msr = lbr_msr;
    legacy_on = lbr_on;
    memcpy((void *)V86_CODE, v86_code, sizeof(v86_code));
    test_cases();
    if (cpuid_reg(1, 0, 3) >> 21 & 1) {                 /* DS */
        bts = true;
        legacy_msr = MSR_DEBUGCTL;
        legacy_on = DEBUGCTL_BTS;
        test_cases();
    }
    return report_summary();
}
