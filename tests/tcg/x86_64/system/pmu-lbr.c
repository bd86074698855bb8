/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Last branch records: each kind of branch, where it begins and where it goes,
 * at CPL 0 and 3, in code of 64, 32 and 16 bits, on processors of each
 * generation; what is said of it, and which can be left out.
 *
 * The output is the same with -icount shift=0 and with one-insn-per-tb=on.
 */

#include "pmu-lbr.h"

/*
 * A branch, that @insn is, at CPL 0, with records on right before it and off
 * behind it; and in other code, at CPL 3.  It goes to label 1, or int3 follows.
 */
#define PLACES(name) \
    void name##_from(void), name##_to(void);

#define ROW(name, before, between, insn, behind) \
    PLACES(k_##name) \
    CODE(k_##name, before "\n" ON between "\nk_" #name "_from: " insn \
         "\n int3\nk_" #name "_to: 1:\n" OFF behind) \
    ROW_OF(64, name, before "\n mov $2, %ecx\n xor %edx, %edx\n" between, insn)

#define ROW_OF(bits, name, before, insn) \
    PLACES(u_##name) \
    static void __attribute__((naked)) u_##name(void) \
    { \
        asm(".code" #bits "\n" before "\nu_" #name "_from: " insn \
            "\n int3\nu_" #name "_to: 1:\n nop\n int $32\n .code64"); \
    }

/* What label 1 is in a segment that does not begin at 0 */
#define HERE32  "call 2f\n 2: pop %ebx\n add $1f - 2b, %ebx\n"
#define HERE16  "call 2f\n 2: pop %bx\n add $1f - 2b, %bx\n"

ROW(jcc, "", "", "jz 1f", "")
ROW(jcc_long, "", "", ".byte 0x0f, 0x84\n .long 1f - (. + 4)", "")
ROW(jcc_far, "", "test %ecx, %ecx\n nop", "jnz 1f", "")
ROW(loop, "", "", "loop 1f", "")
ROW(loope, "", "", "loope 1f", "")
ROW(loop32, "", "", "addr32 loop 1f", "")
ROW(jrcxz, "", "xor %ecx, %ecx", "jrcxz 1f", "")
ROW(jmp, "", "", "jmp 1f", "")
ROW(jmp_long, "", "", ".byte 0xe9\n .long 1f - (. + 4)", "")
ROW(jmp_ind, "lea 1f(%rip), %rbx", "", "jmp *%rbx", "")
ROW(jmp_mem, "lea 1f(%rip), %rbx\n mov %rbx, -16(%rsp)", "", "jmp *-16(%rsp)",
    "")
ROW(jmp_prefix, "lea 1f(%rip), %rbx", "", "notrack jmp *%rbx", "")
ROW(call, "", "", "call 1f", "pop %rax")
ROW(call_next, "", "", "call 3f\n 3: jmp 1f", "pop %rax")
ROW(call_ind, "lea 1f(%rip), %rbx", "", "call *%rbx", "pop %rax")
ROW(ret, "lea 1f(%rip), %rax\n push %rax", "", "ret", "")
ROW(ret_rep, "lea 1f(%rip), %rax\n push %rax", "", "rep ret", "")
ROW(retn, "lea 1f(%rip), %rax\n pushq $0\n push %rax", "", "ret $8", "")
ROW(lret, "mov %cs, %eax\n push %rax\n lea 1f(%rip), %rax\n push %rax", "",
    "lretq", "")
ROW(lretn, "mov %cs, %eax\n push $0\n push %rax\n lea 1f(%rip), %rax\n"
    "push %rax", "", "lretq $8", "")
ROW(iret, "mov %ss, %eax\n mov %rsp, %rbx\n push %rax\n push %rbx\n pushfq\n"
    "mov %cs, %eax\n push %rax\n lea 1f(%rip), %rax\n push %rax", "", "iretq",
    "")
ROW(ljmp, "lea 1f(%rip), %rax\n mov %eax, -16(%rsp)\n mov %cs, -12(%rsp)", "",
    "ljmp *-16(%rsp)", "")
ROW(lcall, "lea 1f(%rip), %rax\n mov %eax, -16(%rsp)\n mov %cs, -12(%rsp)", "",
    "lcall *-16(%rsp)", "pop %rax")
ROW(nothing, "", "jnz 1f\n cmovz %eax, %eax\n cpuid\n rdtsc\n mov $3, %ecx\n"
    "jrcxz 1f\n lea -64(%rsp), %rsi\n rep lodsb", "jmp 1f", "")

ROW_OF(32, jcc32, "xor %eax, %eax", "jz 1f")
ROW_OF(32, jmp32, "", "jmp 1f")
ROW_OF(32, jmp_ind32, HERE32, "jmp *%ebx")
ROW_OF(32, call32, "", "call 1f")
ROW_OF(32, call_ind32, HERE32, "call *%ebx")
ROW_OF(32, ret32, HERE32 "push %ebx", "ret")
ROW_OF(32, lret32, HERE32 "push %cs\n push %ebx", "lret")
ROW_OF(32, iret32, HERE32 "pushf\n push %cs\n push %ebx", "iret")
ROW_OF(32, ljmp32, HERE32 "mov %ebx, -16(%esp)\n mov %cs, -12(%esp)",
       "ljmp *-16(%esp)")
ROW_OF(32, loop32_, "mov $2, %ecx", "loop 1f")
ROW_OF(32, jcxz32, "xor %ecx, %ecx", "jcxz 1f")

ROW_OF(16, jcc16, "xor %eax, %eax", "jz 1f")
ROW_OF(16, jmp16, "", "jmp 1f")
ROW_OF(16, jmp_ind16, HERE16, "jmp *%bx")
ROW_OF(16, call16, "", "call 1f")
ROW_OF(16, call16_32, "", "data32 call 1f")
ROW_OF(16, ret16, HERE16 "push %bx", "ret")
ROW_OF(16, lret16, HERE16 "push %cs\n push %bx", "lret")
ROW_OF(16, iret16, HERE16 "pushf\n push %cs\n push %bx", "iret")

typedef void Place(void);

static const struct Row {
    const char *what;
    Class class;
    uint16_t cs;
    Place *code, *from, *to;                    /* at CPL 3 */
    Place *kernel, *kernel_from, *kernel_to;    /* at CPL 0, or NULL */
} rows[] = {
#define ROW64(name, class, what) \
    { what, class, USER_CODE64, u_##name, u_##name##_from, u_##name##_to, \
      k_##name, k_##name##_from, k_##name##_to }
#define ROW32(name, class, what) \
    { what " of 32 bits", class, TEST_CODE, u_##name, u_##name##_from, \
      u_##name##_to }
#define ROW16(name, class, what) \
    { what " of 16 bits", class, USER_CODE16, u_##name, u_##name##_from, \
      u_##name##_to }
    ROW64(jcc, JCC, "Jcc"),
    ROW64(jcc_long, JCC, "long Jcc"),
    ROW64(jcc_far, JCC, "Jcc behind others"),
    ROW64(loop, JCC, "LOOP"),
    ROW64(loope, JCC, "LOOPE"),
    ROW64(loop32, JCC, "LOOP with a prefix"),
    ROW64(jrcxz, JCC, "JRCXZ"),
    ROW64(jmp, JMP_REL, "JMP"),
    ROW64(jmp_long, JMP_REL, "long JMP"),
    ROW64(jmp_ind, JMP_IND, "indirect JMP"),
    ROW64(jmp_mem, JMP_IND, "JMP through memory"),
    ROW64(jmp_prefix, JMP_IND, "JMP with a prefix"),
    ROW64(call, CALL_REL, "CALL"),
    ROW64(call_ind, CALL_IND, "indirect CALL"),
    ROW64(ret, RET, "RET"),
    ROW64(ret_rep, RET, "RET with a prefix"),
    ROW64(retn, RET, "RET n"),
    ROW64(lret, FAR, "far RET"),
    ROW64(lretn, FAR, "far RET n"),
    ROW64(iret, FAR, "IRET"),
    ROW64(ljmp, FAR, "far JMP"),
    ROW64(lcall, FAR, "far CALL"),
    ROW64(nothing, JMP_REL, "JMP behind what is no branch"),
    ROW32(jcc32, JCC, "Jcc"),
    ROW32(loop32_, JCC, "LOOP"),
    ROW32(jcxz32, JCC, "JCXZ"),
    ROW32(jmp32, JMP_REL, "JMP"),
    ROW32(jmp_ind32, JMP_IND, "indirect JMP"),
    ROW32(call32, CALL_REL, "CALL"),
    ROW32(call_ind32, CALL_IND, "indirect CALL"),
    ROW32(ret32, RET, "RET"),
    ROW32(lret32, FAR, "far RET"),
    ROW32(iret32, FAR, "IRET"),
    ROW32(ljmp32, FAR, "far JMP"),
    ROW16(jcc16, JCC, "Jcc"),
    ROW16(jmp16, JMP_REL, "JMP"),
    ROW16(jmp_ind16, JMP_IND, "indirect JMP"),
    ROW16(call16, CALL_REL, "CALL"),
    ROW16(call16_32, CALL_REL, "CALL with a prefix"),
    ROW16(ret16, RET, "RET"),
    ROW16(lret16, FAR, "far RET"),
    ROW16(iret16, FAR, "IRET"),
};

static void set_up_row(const struct Row *row)
{
    code_base = 0;
    if (row->cs != USER_CODE64) {
        set_code_base(row->cs, (uintptr_t)row->code);
    }
    set_up(row->cs, offset_in(row->code));
}

/* What is said of the @n-th of the last records, but for addresses and time */
static bool says(unsigned n, Class class)
{
    Record r = read_registers(place(n));
    uint64_t info = r.info >> 56;
    bool guessed = class == JCC || class == JMP_IND || class == CALL_IND ||
                   class == RET;

    switch (lbr->format) {
    case FORMAT_FLAGS:
    case FORMAT_TSX:
    case FORMAT_TIME:
        return !(r.from >> 48 & (guessed ? 0x7fff : 0xffff)) &&
               (lbr->format == FORMAT_TIME || !(r.to >> 48));
    case FORMAT_INFO:
    case FORMAT_INFO2:
        return !(r.info >> 16 & (guessed ? 0x7fffffffffff : 0xffffffffffff));
    case FORMAT_ARCH:
        return (info & (guessed ? 0x6f : 0xef)) == types[class] &&
               !(r.info >> 16 & 0xffffffffff);
    default:
        return r.from <= ADDRESS_MASK && r.to <= ADDRESS_MASK;
    }
}

static void test_rows(void)
{
    for (int i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct Row *row = &rows[i];

        if (row->kernel) {
            lbr_stop();
            report(run_function(0, row->kernel) == EXIT &&
                   goes(record(0), (uintptr_t)row->kernel_from,
                        (uintptr_t)row->kernel_to) && says(0, row->class),
                   "CPL 0: %s", row->what);
        }
        set_up_row(row);
        report(run_recorded(EXIT, on_exit) == EXIT &&
               goes(record(0), regs.rip - 2, (uintptr_t)on_exit) &&
               goes(record(1), offset_in(row->from), offset_in(row->to)) &&
               (lbr->depth == 1 || says(1, row->class)),
               "CPL 3: %s", row->what);
    }
}

/* How often the branch is in the records */
static unsigned find(const struct Row *row)
{
    unsigned n = 0;

    for (unsigned i = 0; i < lbr->depth; i++) {
        Record r = record(i);

        n += r.from == offset_in(row->from) && r.to == offset_in(row->to);
    }
    return n;
}

/* Leave out @class; or all but that, if @only. */
static void leave_out(Class class, bool only)
{
    uint32_t ctl = only ? ctl_bits[class] : CTL_CLASSES & ~ctl_bits[class];

    if (is_arch()) {
        lbr_on = CTL_ENABLE | CTL_OS | CTL_USR | ctl;
    } else {
        wrmsr(MSR_LBR_SELECT, only ? 0x1fc & ~select_bits[class] :
              select_bits[class]);
    }
}

static void leave_out_none(void)
{
    if (is_arch()) {
        lbr_on = CTL_ENABLE | CTL_OS | CTL_USR | CTL_CLASSES;
    } else if (lbr->select) {
        wrmsr(MSR_LBR_SELECT, 0);
    }
}

static void test_classes(void)
{
    if (!lbr->select && !is_arch()) {
        return;
    }
    for (int i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct Row *row = &rows[i];
        bool ok = true;

        for (int only = 0; only < 2; only++) {
            for (Class class = 0; class < CLASSES; class++) {
                unsigned n;

                leave_out(class, only);
                clear_records();
                set_up_row(row);
                run_recorded(EXIT, on_exit);
                n = find(row);
                if (n != ((class == row->class) == only)) {
                    test_printf("  class %d, only %d: %d\n", class, only, n);
                    ok = false;
                }
            }
        }
        leave_out_none();
        report(ok, "%s is selected as what it is", row->what);
    }
}

static bool in_user(uint64_t addr, const struct Row *row)
{
    return addr >= (uintptr_t)row->code && addr < (uintptr_t)row->to + 8;
}

static void select_cpl(uint32_t select, uint32_t ctl)
{
    if (is_arch()) {
        lbr_on = CTL_ENABLE | CTL_CLASSES | ctl;
    } else {
        wrmsr(MSR_LBR_SELECT, select);
    }
}

/* The order; and which are left out by where they go */
static void test_order(void)
{
    const struct Row *row = rows;
    bool ok = true;

    while (row->class != JMP_REL) {
        row++;
    }
    if (lbr->depth == 1) {
        return;
    }
    clear_records();
    set_up_row(row);
    run_recorded(EXIT, on_exit);
    report(record(2).to == (uintptr_t)row->code,
           "IRET is in front of a branch of CPL 3");
    if (!lbr->select && !is_arch()) {
        return;
    }
    clear_records();
    select_cpl(1, CTL_USR);
    set_up_row(row);
    run_recorded(EXIT, on_exit);
    report(goes(record(0), (uintptr_t)row->from, (uintptr_t)row->to) &&
           record(1).to == (uintptr_t)row->code,
           "of CPL 3 only: the branch, IRET");
    if (is_arch()) {
        report(read_registers(1).from == UINT64_MAX,
               "of CPL 3 only: IRET comes from where nobody may look");
    } else {
        report(record(1).from != ADDRESS_MASK && record(1).from,
               "of CPL 3 only: IRET is where it was");
    }
    for (unsigned i = 2; i < lbr->depth; i++) {
        ok &= record(i).from == 0 && record(i).to == 0;
    }
    report(ok, "of CPL 3 only: nothing else");

    clear_records();
    select_cpl(2, CTL_OS);
    set_up_row(row);
    run_recorded(EXIT, on_exit);
    report(record(0).to == (uintptr_t)on_exit &&
           record(0).from == (is_arch() ? ADDRESS_MASK : regs.rip - 2),
           "of CPL 0 only: INT n");
    ok = true;
    for (unsigned i = 1; i < lbr->depth; i++) {
        Record r = record(i);

        ok &= !in_user(r.from, row) && !in_user(r.to, row);
    }
    report(ok, "of CPL 0 only: nothing of CPL 3");

    clear_records();
    select_cpl(3, 0);
    set_up_row(row);
    run_recorded(EXIT, on_exit);
    report(record(0).to == 0, "of no CPL: nothing");
    leave_out_none();
}

/* The last of more branches than there are records: a ring, and its TOS */
PLACE(many_jmp);
CODE(many, "mov $40, %ecx\n many_jmp: jmp 2f\n nop\n 2: dec %ecx\n"
     "many_jnz: jnz many_jmp")
PLACE(many_jnz);

static void test_ring(void)
{
    bool ok = true;

    if (lbr->depth == 1) {
        return;
    }
    set_up(USER_CODE64, (uintptr_t)many);
    run_recorded(EXIT, on_exit);
    for (unsigned i = 1; i < lbr->depth; i++) {
        bool jmp = i & 1;

        ok &= goes(record(i), (uintptr_t)(jmp ? many_jmp : many_jnz),
                   (uintptr_t)many_jmp + (jmp ? 3 : 0));
    }
    report(ok, "the last %d of 80 branches in their order", lbr->depth);
}

/*
 * Time: an instruction is a clock.  Where there are several, that is what the
 * last branch of all comes behind.
 */
static unsigned cycles(unsigned n)
{
    Record r = read_registers(place(n));

    return lbr->info ? r.info & 0xffff : r.to >> 48;
}

CODE(time_nops, "jmp 1f\n 1: .rept 10\n nop\n .endr\n jmp 2f\n 2: nop\n nop")
CODE(time_rep, "jmp 1f\n 1: mov $50, %ecx\n mov %rsp, %rdi\n sub $64, %rdi\n"
     "rep stosb\n jmp 2f\n 2:")
CODE(time_not_taken, "jmp 1f\n 1: cmp %eax, %eax\n jnz 1b\n nop\n jz 2f\n 2:")
CODE(time_ud, "jmp 1f\n 1: nop\n nop\n nop\n ud2")
CODE(time_kernel, "mov $0x10, %ecx\n rdmsr\n jmp 1f\n 1: rdmsr\n nop\n cpuid\n"
     "mov %cr0, %rax\n mov %rax, %cr0\n jmp 2f\n 2: nop\n")
CODE(time_long, "jmp 1f\n 1: mov $20000, %ecx\n 2: dec %ecx\n jnz 2b\n jmp 2f\n"
     "2: nop")
CODE(time_saturated, "jmp 1f\n 1: mov $40000, %ecx\n 2: dec %ecx\n jnz 2b\n"
     "jmp 2f\n 2: nop")
CODE(time_first, "nop")

HANDLER(on_ud, 6)

static void test_cycles(void)
{
    static const struct {
        const char *what;
        uint16_t cs;
        void (*code)(void);
        unsigned last, before;      /* cycles */
    } cases[] = {
        { "NOPs", USER_CODE64, time_nops, 3, 11 },
        { "REP", USER_CODE64, time_rep, 1, 5 },
        { "a branch not taken", USER_CODE64, time_not_taken, 1, 4 },
        { "a fault", USER_CODE64, time_ud, 3, 1 },
        { "CPL 0", CODE64, time_kernel, 2, 6 },
        { "many of what is left out", USER_CODE64, time_long, 2, 40002 },
        { "more than can be told", USER_CODE64, time_saturated, 2, 0xffff },
    };

    if (!has_cycles()) {
        return;
    }
    leave_out(JCC, false);
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        if (i == 2) {
            leave_out_none();
        } else if (i == 3) {
            leave_out(JCC, false);
        }
        set_up(cases[i].cs, (uintptr_t)cases[i].code);
        if (i == 3) {
            run_recorded(UD, on_ud);
        } else {
            run_recorded(EXIT, on_exit);
        }
        report(cycles(0) == cases[i].last && cycles(1) == cases[i].before,
               "time with %s: %d, before that %d", cases[i].what, cycles(0),
               cycles(1));
    }
    leave_out_none();
}

/* Whether it was mispredicted: see models/engine/predictor.h. */
#define TIMES(n, insns) "mov $" #n ", %esi\n 9: " insns "\n dec %esi\n jnz 9b\n"
/* A branch that for once does something else, as the last one */
CODE(always_jcc, TIMES(40, "nop") "nop")
CODE(surprise_jcc, "mov $40, %esi\n 1: dec %esi\n jz 2f\n jmp 1b\n 2:")
CODE(always_ind, "lea 1f(%rip), %rbx\n mov $40, %esi\n"
     "2: mov %rbx, %rax\n dec %esi\n jz 3f\n jmp *%rax\n 1: jmp 2b\n"
     "3: jmp *%rax\n .balign 64\n 1: nop")
CODE(surprise_ind, "lea 1f(%rip), %rbx\n lea 3f(%rip), %rdx\n mov $40, %esi\n"
     "2: dec %esi\n cmovz %rdx, %rbx\n jmp *%rbx\n 1: jmp 2b\n 3: nop")
CODE(paired_ret, TIMES(20, "call 1f\n nop") "call 1f\n int $32\n 1: ret")
CODE(lone_ret, "lea 1f(%rip), %rax\n push %rax\n ret\n 1: nop")
CODE(direct, "jmp 1f\n 1: nop")

static bool mispredicted(unsigned n)
{
    Record r = read_registers(place(n));

    return (lbr->info ? r.info : r.from) >> 63;
}

static void test_mispredicted(void)
{
    static const struct {
        const char *what;
        void (*code)(void);
        bool mispredicted;
    } cases[] = {
        { "a Jcc as ever", always_jcc, false },
        { "a Jcc that is taken for once", surprise_jcc, true },
        { "a JMP to somewhere else for once", surprise_ind, true },
        { "a RET to its CALL", paired_ret, false },
        { "a RET without a CALL", lone_ret, true },
        { "a direct JMP", direct, false },
    };

    if (!has_flags()) {
        return;
    }
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        bool want = cases[i].mispredicted;

        set_up(USER_CODE64, (uintptr_t)cases[i].code);
        run_recorded(EXIT, on_exit);
        report(mispredicted(1) == want && !mispredicted(0),
               "%s: mispredicted %d", cases[i].what, want);
    }
}

/*
 * Call-stack mode
 */

PLACE(nest_a);
PLACE(nest_b);
PLACE(nest_c);
PLACE(nest_f);
PLACE(nest_g);
CODE(nest, "lea nest_g(%rip), %rbx\n nest_a: call nest_f\n int $32\n"
     "nest_f: jmp 1f\n 1: xor %eax, %eax\n jz 2f\n 2: nest_b: call *%rbx\n"
     "nop\n int $32\n nest_g: call 3f\n 3: pop %rax\n nest_c: call 4f\n"
     "test %edi, %edi\n jz 5f\n int $32\n 5: ret\n"
     "4: test %esi, %esi\n jz 5f\n int $32\n 5: ret")
PLACE(nest_4);
PLACE(deep_call);
PLACE(deep_f);
/* EDI levels, then ESI returns */
CODE(deep, "call deep_f\n int $32\n"
     "deep_f: dec %edi\n jz 1f\n deep_call: call deep_f\n"
     "1: dec %esi\n js 2f\n ret\n 2:")
/* Returns without a call */
CODE(unpaired, "lea 1f(%rip), %rax\n push %rax\n push %rax\n ret\n"
     "1: dec %esi\n jns 2f\n nop\n int $32\n 2: ret")

static void test_call_stack(void)
{
    unsigned levels = lbr->depth + 5;
    bool ok = true;

    if (is_arch()) {
        lbr_on = CTL_ENABLE | CTL_OS | CTL_USR | CTL_CALL_STACK |
                 ctl_bits[CALL_REL] | ctl_bits[CALL_IND] | ctl_bits[RET];
    } else if (lbr->select & CALL_STACK) {
        /* CPL 3 only; the wrappers of this kernel are calls, too. */
        wrmsr(MSR_LBR_SELECT, CALL_STACK | 0x1c4 | 1);
    } else {
        return;
    }
    if (is_arch()) {
        lbr_on &= ~CTL_OS;
    }
    for (int i = 0; i < 3; i++) {
        clear_records();
        set_up(USER_CODE64, (uintptr_t)nest);
        regs.rsi = i == 0;
        regs.rdi = i == 1;
        run_recorded(EXIT, on_exit);
        if (i == 0) {
            ok &= record(0).from == (uintptr_t)nest_c;
        }
        if (i <= 1) {
            ok &= goes(record(1 - i), (uintptr_t)nest_b, (uintptr_t)nest_g);
        }
        ok &= goes(record(2 - i), (uintptr_t)nest_a, (uintptr_t)nest_f) &&
              goes(record(3 - i), 0, 0);
        report(ok, "call stack: %d calls that have not returned", 3 - i);
        ok = true;
    }
    for (int back = 0; back < 9; back += 2) {
        clear_records();
        set_up(USER_CODE64, (uintptr_t)deep);
        regs.rdi = levels;
        regs.rsi = back;
        run_recorded(EXIT, on_exit);
        ok = true;
        for (unsigned i = 0; i < lbr->depth; i++) {
            bool gone = i >= lbr->depth - back;

            ok &= goes(record(i), gone ? 0 : (uintptr_t)deep_call,
                       gone ? 0 : (uintptr_t)deep_f);
        }
        report(ok, "call stack: %d more calls than there is room, %d returns",
               levels - lbr->depth, back);
    }
    clear_records();
    set_up(USER_CODE64, (uintptr_t)unpaired);
    regs.rsi = 0;
    run_recorded(EXIT, on_exit);
    ok = true;
    for (unsigned i = 0; i < lbr->depth; i++) {
        ok &= goes(record(i), 0, 0);
    }
    report(ok, "call stack: returns without calls");
    leave_out_none();
}

/* What is first after a reset has nothing to be compared with. */
static void test_first(void)
{
    Record r;

    set_up(CODE64, (uintptr_t)k_jmp);
    run();
    if (!has_cycles()) {
        return;
    }
    r = read_registers(place(0));
    report(cycles(0) == 0 && !(r.info & (is_arch() ? INFO_VALID : 0)),
           "the first record of all has no time");
    set_up(CODE64, (uintptr_t)k_jmp);
    run();
    r = read_registers(place(0));
    report(cycles(0) != 0 && (!is_arch() || (r.info & INFO_VALID)),
           "the second one has");
}

int main(void)
{
    kernel_init();
    lbr_find();
    test_printf("%s\n", lbr->name);
    test_first();
    test_rows();
    test_classes();
    test_order();
    test_ring();
    test_cycles();
    test_mispredicted();
    test_call_stack();
    return report_summary();
}
