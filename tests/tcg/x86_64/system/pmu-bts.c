/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The branch trace store: each kind of branch in order, where records can be
 * stored and where they are dropped, and the interrupt of the threshold.
 *
 * Runs on any processor with a debug store; with DTES64 or without, which makes
 * records of 24 or 12 bytes.  Without DS-CPL, the kernel's own branches are
 * between those of its programs.  The output is the same with -icount shift=0
 * and with one-insn-per-tb=on.
 */

#include "pmu-kernel.h"
#include "kernel-legacy.h"
#include "kernel-smm.h"

#define MSR_DS_AREA             0x600
#define MISC_NO_BTS             (1u << 11)

enum { TR = 1 << 6, BTS = 1 << 7, BTINT = 1 << 8, OFF_OS = 1 << 9,
       OFF_USR = 1 << 10, FREEZE_SMM = 1 << 14 };
enum { DB = 1, NMI = 2, BP = 3, OF = 4, DF = 8, VECTOR = 0x40 };
#define FLAG_TF                 (1u << 8)
#define CR4_SMEP                (1ull << 20)
#define CR4_SMAP                (1ull << 21)

/* Page 0 of the window has the area, those behind it the buffer. */
#define AREA_ADDR               WINDOW
#define BUFFER_ADDR             (WINDOW + PAGE)
#define CODE_PAGE               (WINDOW_PAGES - 1)

static bool dtes64, ds_cpl;
static bool predicts;           /* Records have predictions. */
#define PREDICTED               0x10u
static unsigned size;           /* of a field: 8 bytes, or 4 */
#define RECORD                  (3 * size)

/* --- area and buffer ------------------------------------------------------ */

enum { BASE, INDEX, MAXIMUM, THRESHOLD };

static void put_field(void *p, unsigned n, uint64_t val)
{
    memcpy((uint8_t *)p + n * size, &val, size);
}

static uint64_t get_field(const void *p, unsigned n)
{
    uint64_t val = 0;

    memcpy(&val, (const uint8_t *)p + n * size, size);
    return val;
}

static void set_area_at(void *area, uint64_t base, unsigned bytes,
                        unsigned threshold)
{
    put_field(area, BASE, base);
    put_field(area, INDEX, base);
    put_field(area, MAXIMUM, base + bytes);
    put_field(area, THRESHOLD, base + threshold);
}

/* A buffer at @base; all that it could be in is empty. */
static void set_area(uint64_t base, unsigned bytes, unsigned threshold)
{
    for (int i = 0; i < WINDOW_PAGES; i++) {
        set_pte(i, PTE_P | PTE_W);
    }
    memset(window_ram, 0xaa, CODE_PAGE * PAGE);
    set_area_at(window_ram[0], base, bytes, threshold);
    wrmsr(MSR_DS_AREA, AREA_ADDR);
}

/* In records */
static void set_records(unsigned n, unsigned threshold)
{
    set_area(BUFFER_ADDR, n * RECORD, threshold * RECORD);
}

/* So many have been stored. */
static unsigned stored(void)
{
    return (get_field(window_ram[0], INDEX) -
            get_field(window_ram[0], BASE)) / RECORD;
}

/* A byte of the window */
static uint8_t *ram_at(unsigned offset)
{
    uint8_t *ram = window_ram[0];

    asm("" : "+r" (ram));       /* It does not end with this page. */
    return ram + offset;
}

static uint8_t *record_at(unsigned n)
{
    return ram_at(get_field(window_ram[0], BASE) - WINDOW + n * RECORD);
}

static uint64_t from_of(unsigned n)
{
    return get_field(record_at(n), 0);
}

static uint64_t to_of(unsigned n)
{
    return get_field(record_at(n), 1);
}

/* What @record says, but for addresses */
static bool has_flags(const void *record)
{
    return !(get_field(record, 2) & ~(uint64_t)(predicts ? PREDICTED : 0));
}

static bool is_record(unsigned n, const void *from, const void *to)
{
    return n < stored() && from_of(n) == (uintptr_t)from &&
           to_of(n) == (uintptr_t)to && has_flags(record_at(n));
}

/* The first record that goes to @to, or what is behind the last one */
static unsigned find_to(const void *to)
{
    unsigned n = 0;

    while (n < stored() && to_of(n) != (uintptr_t)to) {
        n++;
    }
    return n;
}

static bool all_is(unsigned page, unsigned end, uint8_t byte)
{
    for (unsigned i = page * PAGE; i < end * PAGE; i++) {
        if (*ram_at(i) != byte) {
            return false;
        }
    }
    return true;
}

/* @ip runs in @cs, with records.  This is inlined, so there are no others. */
static inline __attribute__((always_inline)) unsigned
traced_in(uint16_t cs, uint64_t ip, uint32_t flags, uint64_t debugctl)
{
    set_up(cs, ip);
    regs.rflags |= flags;
    wrmsr(MSR_DEBUGCTL, debugctl);
    enter_regs();
    wrmsr(MSR_DEBUGCTL, 0);
    return regs.vector;
}

/* So does @fn at @cpl. */
static inline __attribute__((always_inline)) unsigned
traced(int cpl, const void *fn, uint32_t flags, uint64_t debugctl)
{
    return traced_in(cpl ? USER_CODE64 : CODE64, (uintptr_t)fn, flags,
                     debugctl);
}

/* Branches of CPL 3 only, if that can be said */
static uint64_t user_only(void)
{
    return TR | BTS | (ds_cpl ? OFF_OS : 0);
}

/* --- which branches, in order --------------------------------------------- */

typedef struct Branch {
    uint64_t from, to;
} Branch;

/* @insn goes to 772, which is behind @between. */
#define TAKEN_OVER(insn, between) \
    "771: " insn "\n " between "\n 772:\n" \
    ".pushsection .rodata\n .quad 771b, 772b\n .popsection\n"
#define TAKEN(insn)     TAKEN_OVER(insn, "ud2")
#define TO_RBX          "lea 772f(%rip), %rbx\n"

/* The stack has FAR at 16(%rsp) and CS behind it, or what RET needs. */
#define ALL_BRANCHES \
    ".pushsection .rodata\n .balign 8\n all_taken:\n .popsection\n" \
    "sub $256, %rsp\n" \
    "cmp %eax, %eax\n" \
    TAKEN("jz 772f") \
    "jnz 1f\n jc 1f\n nop\n 1:\n" \
    TAKEN_OVER("jz 772f", "") \
    "inc %eax\n or $1, %al\n" \
    TAKEN_OVER("jnz 772f", ".skip 200, 0xcc") \
    "mov $3, %ecx\n" \
    TAKEN("loop 772f") \
    "mov $1, %ecx\n loop 1f\n 1:\n" \
    "mov $2, %ecx\n test %ecx, %ecx\n" \
    TAKEN("loopne 772f") \
    "loopne 1f\n 1:\n" \
    TAKEN("jrcxz 772f") \
    TAKEN("jecxz 772f") \
    "inc %ecx\n jrcxz 1f\n 1:\n" \
    TAKEN("jmp 772f") \
    TAKEN_OVER("jmp 772f", ".skip 300, 0xcc") \
    TO_RBX TAKEN("jmp *%rbx") \
    TO_RBX TAKEN("notrack jmp *%rbx") \
    TO_RBX "mov %rbx, (%rsp)\n" TAKEN("jmp *(%rsp)") \
    TAKEN("call 772f") \
    TAKEN_OVER("call 772f", "") \
    TO_RBX TAKEN("call *%rbx") \
    TO_RBX "mov %rbx, 64(%rsp)\n" TAKEN("call *64(%rsp)") \
    TO_RBX "push %rbx\n" TAKEN("ret") \
    TO_RBX "push $0\n push %rbx\n" TAKEN("ret $8") \
    "mov %rsp, %rdi\n mov $40, %ecx\n xor %eax, %eax\n rep stosb\n" \
    "mov $1, %ecx\n mov %rsp, %rsi\n repne scasb\n" \
    "cmp %eax, %eax\n cmovz %eax, %edx\n xor %ecx, %ecx\n rep stosb\n" \
    "cpuid\n rdtsc\n pause\n" \
    "mov %cs, %eax\n push %rax\n" TO_RBX "push %rbx\n" TAKEN("lretq") \
    TO_RBX "mov %ebx, 16(%rsp)\n mov %cs, 20(%rsp)\n" TAKEN("ljmp *16(%rsp)") \
    TO_RBX "mov %ebx, 48(%rsp)\n mov %cs, 52(%rsp)\n" TAKEN("lcall *48(%rsp)") \
    "mov %ss, %eax\n mov %rsp, %rbx\n push %rax\n push %rbx\n pushfq\n" \
    "mov %cs, %eax\n push %rax\n" TO_RBX "push %rbx\n" TAKEN("iretq")

PLACE(all_taken);
PLACE(all_taken_end);
PLACE(all_exit);
CODE(all, ALL_BRANCHES
     ".pushsection .rodata\n all_taken_end:\n .popsection\n all_exit:")

PLACE(all_taken32);
PLACE(all_taken32_end);
PLACE(all32_exit);
static void __attribute__((naked)) all32(void)
{
    asm(".pushsection .rodata\n .balign 8\n all_taken32:\n .popsection\n"
        ".code32\n"
        "xor %eax, %eax\n"
        TAKEN("jz 772f")
        "jnz 1f\n 1:\n"
        "mov $3, %ecx\n"
        TAKEN("loop 772f")
        "xor %ecx, %ecx\n"
        TAKEN("jecxz 772f")
        TAKEN("jcxz 772f")
        TAKEN("jmp 772f")
        "mov $772f, %ebx\n" TAKEN("jmp *%ebx")
        "mov $772f, %ebx\n" TAKEN("call *%ebx")
        TAKEN("call 772f")
        "push $772f\n" TAKEN("ret")
        "push $0\n push $772f\n" TAKEN("ret $4")
        "mov %cs, %eax\n push %eax\n push $772f\n" TAKEN("lret")
        TAKEN("ljmp $0x2b, $772f")
        TAKEN("lcall $0x2b, $772f")
        "pushf\n mov %cs, %eax\n push %eax\n push $772f\n" TAKEN("iret")
        "all32_exit: int $32\n"
        ".code64\n"
        ".pushsection .rodata\n all_taken32_end:\n .popsection\n");
}

/* The first of all */
static const Branch *first_taken(void)
{
    return (void *)all_taken;
}

/* The branches, then what left them */
static void check_branches(const char *what, const void *code, const void *exit,
                           const void *table, const void *table_end, bool os)
{
    const Branch *taken = table, *end = table_end;
    unsigned first = find_to(code) + 1, n = 0;
    void *stub = (void *)((uintptr_t)trap_stubs + 16 * EXIT);

    for (; taken + n < end; n++) {
        if (!is_record(first + n, (void *)taken[n].from,
                       (void *)taken[n].to)) {
            break;
        }
    }
    report(taken + n == end, "%s: %d of %d branches are in order", what, n,
           (int)(end - taken));
    if (os) {
        report(is_record(first + n, exit, stub),
               "%s: then comes the interrupt that ends it", what);
    } else {
        report(first + n == stored(), "%s: that is all", what);
    }
}

static void test_order(void)
{
    unsigned all_cpl0;

    set_records(500, 500);
    report(traced(3, all, 0, TR | BTS) == EXIT, "all branches at CPL 3");
    check_branches("CPL 3", all, all_exit, all_taken, all_taken_end, true);
    set_records(500, 500);
    report(traced(0, all, 0, TR | BTS) == EXIT, "all branches at CPL 0");
    check_branches("CPL 0", all, all_exit, all_taken, all_taken_end, true);
    all_cpl0 = stored();
    set_records(500, 500);
    report(traced_in(USER_CODE32, (uintptr_t)all32, 0, TR | BTS) == EXIT,
           "all branches in compatibility mode");
    check_branches("compatibility mode", all32, all32_exit, all_taken32,
                   all_taken32_end, true);

    set_records(500, 500);
    traced(3, all, 0, BTS);
    traced(3, all, 0, TR);
    traced(3, all, 0, TR | BTINT);
    report(stored() == 0 && all_is(1, CODE_PAGE, 0xaa),
           "TR or BTS alone stores nothing");
    if (!ds_cpl) {
        report(at_cpl(0, wrmsr(MSR_DEBUGCTL, OFF_OS)) == GP &&
               at_cpl(0, wrmsr(MSR_DEBUGCTL, OFF_USR)) == GP,
               "BTS_OFF_OS and BTS_OFF_USR are reserved");
        return;
    }
    set_records(500, 500);
    traced(3, all, 0, TR | BTS | OFF_OS);
    report(find_to(all) == 0, "BTS_OFF_OS: IRET to CPL 3 is first");
    check_branches("BTS_OFF_OS", all, all_exit, all_taken, all_taken_end,
                   false);
    set_records(500, 500);
    traced(0, all, 0, TR | BTS | OFF_OS);
    report(stored() == 0, "BTS_OFF_OS: none of CPL 0");
    set_records(500, 500);
    traced(3, all, 0, TR | BTS | OFF_USR);
    report(find_to(all) == stored() && find_to((void *)first_taken()->to) ==
           stored() && find_to((void *)((uintptr_t)trap_stubs + 16 * EXIT)) <
           stored(), "BTS_OFF_USR: the interrupt, and none to CPL 3");
    set_records(500, 500);
    traced(0, all, 0, TR | BTS | OFF_USR);
    report(stored() == all_cpl0, "BTS_OFF_USR: all of CPL 0");
    set_records(500, 500);
    traced(3, all, 0, TR | BTS | OFF_OS | OFF_USR);
    report(stored() == 0, "BTS_OFF_OS and BTS_OFF_USR: none");
}

/* --- events --------------------------------------------------------------- */

PLACE(ud_at);
CODE(ud, "nop\n nop\n ud_at: ud2")
PLACE(bp_at);
CODE(bp, "nop\n bp_at: int3")
PLACE(pf_at);
CODE(pf, "nop\n pf_at: movl 0xffffffffffff0000, %eax")
PLACE(target_from);
CODE(target, "mov $0xffffffffffff0000, %rbx\n target_from: jmp *%rbx")
PLACE(int_at);
CODE(soft, "nop\n int_at: int $64")
CODE(nops, ".rept 50\n nop\n .endr")
CODE(step, "jmp step_to\n step_to: nop\n nop")
PLACE(step_to);
PLACE(into_at);
CODE(into, ".code32\n mov $0x7fffffff, %eax\n inc %eax\n into_at: into\n"
     ".code64")
PLACE(df_at);
CODE(df, "nop\n df_at: hlt")
/* Writes the ICR first. */
PLACE(rep_at);
CODE(rep, "mov $65540, %ecx\n std\n rep_at: rep stosl")

static const void *stub(unsigned vector)
{
    return (void *)((uintptr_t)trap_stubs + 16 * vector);
}

static void test_events(void)
{
    static const struct {
        const char *what;
        void (*code)(void), (*at)(void);
        unsigned vector;
    } events[] = {
        { "#UD", ud, ud_at, UD },
        { "INT3", bp, bp_at, BP },
        { "#PF", pf, pf_at, PF },
        { "INT n", soft, int_at, VECTOR },
    };
    const void *nowhere = (void *)0xffffffffffff0000;
    unsigned n;

    for (int i = 0; i < ARRAY_SIZE(events); i++) {
        for (int cpl = 0; cpl < 4; cpl += 3) {
            set_records(500, 500);
            traced(cpl, events[i].code, 0, TR | BTS);
            n = find_to(events[i].code);
            report(regs.vector == events[i].vector &&
                   is_record(n + 1, events[i].at, stub(events[i].vector)),
                   "%s at CPL %d: vector %d, from %lx to %lx", events[i].what,
                   cpl, (int)regs.vector,
                   (long)(from_of(n + 1) - (uintptr_t)events[i].at),
                   (long)(to_of(n + 1) -
                          (uintptr_t)stub(events[i].vector)));
        }
    }
    if (dtes64) {
        set_records(500, 500);
        traced(3, target, 0, TR | BTS);
        n = find_to(target);
        report(regs.vector == PF && is_record(n + 1, target_from, nowhere) &&
               is_record(n + 2, nowhere, stub(PF)),
               "a branch to where nothing is: the branch, then the fault");
    }

    /* At a boundary, the address of what is next */
    set_records(500, 500);
    APIC(APIC_ICR) = 0x44000 | VECTOR;
    traced(3, nops, FLAG_IF, TR | BTS);
    n = find_to(nops);
    report(regs.vector == VECTOR && is_record(n + 1, nops, stub(VECTOR)),
           "an interrupt: vector %d", (int)regs.vector);
    APIC(APIC_EOI) = 0;

    set_records(500, 500);
    traced(3, step, FLAG_TF, TR | BTS);
    n = find_to(step);
    report(regs.vector == DB && is_record(n + 1, step, step_to) &&
           is_record(n + 2, step_to, stub(DB)),
           "single step: the branch, then #DB");

    set_records(500, 500);
    traced_in(USER_CODE32, (uintptr_t)into, 0, TR | BTS);
    n = find_to(into);
    report(regs.vector == OF && is_record(n + 1, into_at, stub(OF)), "INTO");

    set_records(500, 500);
    idt[GP].low &= ~(1ull << 47);       /* not present */
    traced(3, df, 0, TR | BTS);
    idt[GP].low |= 1ull << 47;
    n = find_to(df);
    report(regs.vector == DF && is_record(n + 1, df_at, stub(DF)),
           "#GP, #NP: only #DF");

    set_records(500, 500);
    regs.rax = 0x44000 | VECTOR;
    regs.rdi = (uintptr_t)&APIC(APIC_ICR);
    traced(3, rep, FLAG_IF, TR | BTS);
    n = find_to(rep);
    report(regs.vector == VECTOR && regs.rcx &&
           is_record(n + 1, rep_at, stub(VECTOR)), "an interrupt in REP");
    APIC(APIC_EOI) = 0;
}

/* A segment that does not begin at 0 */
#define CODE_BASE 0x10000
PLACE(based_far);
PLACE(flat_far);
PLACE(based_int);
static void __attribute__((naked)) based(void)
{
    asm(".code32\n"
        "jmp based_far\n"
        "ud2\n"
        "based_far: ljmp $0x2b, $flat_far\n"
        "flat_far: ljmp $0x33, $based_int - 0x10000\n"
        "based_int: int $64\n"
        ".code64\n");
}

static void test_base(void)
{
    unsigned n;

    set_segment(USER_CODE16, CODE_BASE, 0xfffff, ACC_CODE | ACC_USER,
                SEG_G | SEG_32);
    set_records(500, 500);
    traced_in(USER_CODE16, (uintptr_t)based - CODE_BASE, 0, TR | BTS);
    n = find_to(based);
    report(regs.vector == VECTOR && is_record(n + 1, based, based_far),
           "a segment with a base: linear addresses");
    report(is_record(n + 2, based_far, flat_far) &&
           is_record(n + 3, flat_far, based_int),
           "so they are from and to another one");
    report(is_record(n + 4, based_int, stub(VECTOR)), "and of an event");
}

PLACE(entered);
PLACE(entered_ret);
PLACE(syscall_at);
PLACE(syscall_to);
PLACE(sysenter_at);
PLACE(sysenter_to);
PLACE(fast_in);
PLACE(fast_out);
CODE(calls, "nop\n syscall_at: syscall\n syscall_to: nop\n mov %rsp, %rbp\n"
     "sysenter_at: sysenter\n ud2\n sysenter_to: nop")
asm(".text\n entered: nop\n entered_ret: sysretq\n"
    "fast_in: mov %rbp, %rcx\n lea sysenter_to(%rip), %rdx\n"
    "fast_out: rex.W sysexit\n");

static void test_calls(void)
{
    unsigned n;

    wrmsr(0xc0000082, (uintptr_t)entered);
    wrmsr(0xc0000081, 0x0018000800000000ull);
    wrmsr(0xc0000084, 0);
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | 1);
    wrmsr(0x174, CODE64);
    wrmsr(0x175, (uintptr_t)&regs);
    wrmsr(0x176, (uintptr_t)fast_in);
    set_records(500, 500);
    traced(3, calls, 0, TR | BTS);
    n = find_to(calls);
    report(regs.vector == EXIT && is_record(n + 1, syscall_at, entered) &&
           is_record(n + 2, entered_ret, syscall_to), "SYSCALL and SYSRET");
    report(is_record(n + 3, sysenter_at, fast_in) &&
           is_record(n + 4, fast_out, sysenter_to), "SYSENTER and SYSEXIT");
    if (ds_cpl) {
        set_records(500, 500);
        traced(3, calls, 0, TR | BTS | OFF_OS);
        report(stored() == 3 && to_of(0) == (uintptr_t)calls &&
               is_record(1, entered_ret, syscall_to) &&
               is_record(2, fast_out, sysenter_to),
               "BTS_OFF_OS: what goes to CPL 3 only, from wherever");
    }
}

/* --- predictions ---------------------------------------------------------- */

PLACE(guess_at);
PLACE(guess_to);
PLACE(guess_ind);
PLACE(guess_exit);
/* The first time that JMP goes there; then a loop's branch, 60 times. */
CODE(guess, "lea guess_to(%rip), %rbx\n guess_ind: jmp *%rbx\n ud2\n"
     "guess_to: mov $60, %ecx\n 1: dec %ecx\n guess_at: jnz 1b\n"
     "guess_exit:")

static void test_predicted(void)
{
    unsigned first, last;

    set_records(500, 500);
    traced(3, guess, 0, TR | BTS);
    first = find_to(guess);
    last = first + 1 + 59;
    report(is_record(first + 1, guess_ind, guess_to) &&
           is_record(last, guess_at, guess_to + 5) &&
           is_record(last + 1, guess_exit, stub(EXIT)),
           "branches of which some are predicted");
    report(get_field(record_at(last), 2) == (predicts ? PREDICTED : 0) &&
           get_field(record_at(last - 1), 2) == (predicts ? PREDICTED : 0),
           predicts ? "a loop's branch is" : "no record says so");
    report(!get_field(record_at(first), 2) &&
           !get_field(record_at(first + 1), 2) &&
           !get_field(record_at(last + 1), 2),
           "IRET, what has never gone there, and INT n are not");
}

/* --- threshold and end ---------------------------------------------------- */

CODE(loop, "1: inc %eax\n nop\n jmp 1b")
PLACE(loop_at);
CODE(bounded, "mov $100, %eax\n 1: dec %eax\n jnz 1b")

static void test_threshold(void)
{
    bool ok = true, next = true;
    uint64_t first;

    for (unsigned k = 8; k < 60; k++) {
        APIC(APIC_LVTPC) = LVT_NMI;
        set_records(200, k);
        traced(3, loop, 0, user_only() | BTINT);
        ok &= regs.vector == NMI && regs.rip == (uintptr_t)loop;
        /* The last one before the threshold is the branch. */
        ok &= to_of(k - 1) == (uintptr_t)loop;
        next &= ds_cpl ? stored() == k : is_record(k, loop, stub(NMI));
    }
    report(ok, "a PMI comes behind the branch that reaches the threshold");
    report(next, "it is the next one that is recorded, if at all");
    report(APIC(APIC_LVTPC) == (LVT_MASKED | LVT_NMI),
           "its delivery masks LVTPC");
    if (ds_cpl) {
        APIC(APIC_LVTPC) = LVT_NMI;
        set_records(200, 1);
        traced(3, loop, 0, user_only() | BTINT);
        report(regs.vector == NMI && stored() == 1 &&
               regs.rip == (uintptr_t)loop, "so it does behind IRET");
    }

    APIC(APIC_LVTPC) = VECTOR;
    set_records(200, 20);
    traced(3, loop, FLAG_IF, user_only() | BTINT);
    report(regs.vector == VECTOR && regs.rip == (uintptr_t)loop &&
           to_of(19) == (uintptr_t)loop, "a fixed vector");
    APIC(APIC_EOI) = 0;

    APIC(APIC_LVTPC) = LVT_MASKED | LVT_NMI;
    set_records(30, 20);
    traced(3, bounded, 0, user_only() | BTINT);
    report(regs.vector == EXIT && stored() == 30,
           "with LVTPC masked, the program goes on, and the buffer is full");
    first = from_of(0);
    ok = all_is(2, CODE_PAGE, 0xaa);
    for (unsigned i = BUFFER_ADDR - WINDOW + 30 * RECORD; i < 2 * PAGE; i++) {
        ok &= *ram_at(i) == 0xaa;
    }
    report(ok, "a full buffer drops records");
    traced(3, bounded, 0, user_only() | BTINT);
    report(stored() == 30 && from_of(0) == first, "and goes on to do so");

    APIC(APIC_LVTPC) = LVT_NMI;
    set_records(20, 20);
    traced(3, loop, 0, user_only() | BTINT);
    report(regs.vector == NMI && stored() == 20 &&
           regs.rip == (uintptr_t)loop,
           "a threshold at the end: a PMI with a full buffer");
    APIC(APIC_LVTPC) = LVT_NMI;
    set_records(20, 21);
    traced(3, bounded, 0, user_only() | BTINT);
    report(regs.vector == EXIT && stored() == 20,
           "a threshold behind it is not reached");
    set_area(BUFFER_ADDR, 20 * RECORD + RECORD - 1, 21 * RECORD);
    traced(3, bounded, 0, user_only() | BTINT);
    report(stored() == 20, "there is no room for a record less a byte");
    APIC(APIC_LVTPC) = LVT_MASKED;
}

/* --- what the PMI freezes ------------------------------------------------- */

#define MSR_LBR_CTL             0x14ce
#define LBR_CTL_ON              0x7f0007u
#define LBR_FRZ                 (1ull << 58)    /* of GLOBAL_STATUS */
#define CTR_FRZ                 (1ull << 59)
enum { LBR = 1 };

static unsigned version;
static bool arch_lbr;

/* Where the last record of LBRs is from */
static uint64_t last_from(void)
{
    uint32_t first = arch_lbr ? 0x1500 :
                     at_cpl(0, rdmsr(0x680)) == GP ? 0x40 : 0x680;

    return rdmsr(first + (arch_lbr ? 0 : rdmsr(0x1c9))) & ((1ull << 47) - 1);
}

/* What is there behind a PMI, or instead of it */
static struct {
    unsigned vector;
    uint64_t rip, debugctl, ctrl, status, count, from;
} frozen;

/*
 * @code at CPL 3, with LBRs, a counter of its instructions, and one of branches
 * that has @left of them until it interrupts.
 */
static void run_frozen(const void *code, uint64_t debugctl, uint64_t left)
{
    wrmsr(MSR_FIXED_CTR_CTRL, FIXED_USR);
    wrmsr(MSR_FIXED_CTR(0), 0);
    wrmsr(MSR_EVTSEL(0), 0x00c4 | EVTSEL_USR | EVTSEL_INT | EVTSEL_EN);
    wrmsr(MSR_PMC(0), -left);
    wrmsr(MSR_GLOBAL_CTRL, GLOBAL_FIXED(0) | 1);
    set_up(USER_CODE64, (uintptr_t)code);
    if (arch_lbr) {
        wrmsr(MSR_LBR_CTL, LBR_CTL_ON);
    }
    wrmsr(MSR_DEBUGCTL, debugctl | TR | BTS | BTINT | (arch_lbr ? 0 : LBR));
    enter_regs();
    frozen.debugctl = rdmsr(MSR_DEBUGCTL) ^ debugctl;
    wrmsr(MSR_DEBUGCTL, 0);
    if (arch_lbr) {
        wrmsr(MSR_LBR_CTL, 0);
    }
    frozen.vector = regs.vector;
    frozen.rip = regs.rip;
    frozen.ctrl = rdmsr(MSR_GLOBAL_CTRL);
    frozen.status = rdmsr(MSR_GLOBAL_STATUS);
    frozen.count = rdmsr(MSR_FIXED_CTR(0));
    frozen.from = last_from();
    /* Whether it goes on counting */
    set_up(USER_CODE64, (uintptr_t)nops);
    enter_regs();
    frozen.count += (rdmsr(MSR_FIXED_CTR(0)) - frozen.count) << 32;
    wrmsr(MSR_GLOBAL_CTRL, 0);
    wrmsr(MSR_EVTSEL(0), 0);
    wrmsr(MSR_GLOBAL_STATUS_RESET, frozen.status);
}

/* All is as @freeze says; @count instructions have been counted then. */
static bool is_frozen(uint64_t freeze, uint32_t count)
{
    bool lbrs = freeze & FREEZE_LBRS_ON_PMI, counters = freeze & FREEZE_ON_PMI;
    uint64_t status = 0, ctrl = GLOBAL_FIXED(0) | 1;
    uint64_t on = TR | BTS | BTINT | (arch_lbr ? 0 : LBR);
    bool ok;

    if (version >= 4) {
        status = (lbrs ? LBR_FRZ : 0) | (counters ? CTR_FRZ : 0);
    } else {
        on &= lbrs ? ~(uint64_t)LBR : -1;
        ctrl = counters ? 0 : ctrl;
    }
    ok = frozen.debugctl == on && frozen.ctrl == ctrl &&
         frozen.status == status &&
         !(frozen.count >> 32) == counters &&
         (!counters || frozen.count == count);
    if (!ok) {
        test_printf("  DEBUGCTL %lx, CTRL %lx, STATUS %lx, count %lx, not %x\n",
                    frozen.debugctl, frozen.ctrl, frozen.status, frozen.count,
                    count);
    }
    return ok;
}

PLACE(jnz_at);
CODE(counted, "mov $100, %eax\n 1: dec %eax\n jnz_at: jnz 1b")

static void test_freeze(void)
{
    static const struct {
        const char *what;
        void (*code)(void), (*at)(void);
        unsigned vector;
    } events[] = {
        { "INT n", soft, int_at, VECTOR }, { "#UD", ud, ud_at, UD },
    };

    version = cpuid_reg(0, 0, 0) >= 0xa ? cpuid_reg(0xa, 0, 0) & 0xff : 0;
    arch_lbr = cpuid_reg(0, 0, 0) >= 7 && (cpuid_reg(7, 0, 3) >> 19 & 1);
    if (version < 2 || !ds_cpl) {
        return;
    }
    for (uint64_t freeze = 0; freeze <= (FREEZE_LBRS_ON_PMI | FREEZE_ON_PMI);
         freeze += FREEZE_LBRS_ON_PMI) {
        bool lbrs = freeze & FREEZE_LBRS_ON_PMI, ok = true, masked = true;

        /* The first record is IRET's.  An overflow is far away, or near. */
        for (unsigned k = 1; k < 30; k++) {
            APIC(APIC_LVTPC) = LVT_NMI;
            set_records(200, k);
            run_frozen(counted, freeze | OFF_OS, k % 2 ? k + 3 : 100000);
            ok &= frozen.vector == NMI && stored() == k &&
                  is_frozen(freeze, k > 1 ? 2 * k - 1 : 0) &&
                  (k == 1 || !lbrs || frozen.from == (uintptr_t)jnz_at);
            /* The program goes on. */
            APIC(APIC_LVTPC) = LVT_MASKED | LVT_NMI;
            set_records(200, k);
            run_frozen(counted, freeze | OFF_OS, 100000);
            masked &= frozen.vector == EXIT && stored() == 100 &&
                      is_frozen(freeze, k > 1 ? 2 * k - 1 : 0) &&
                      (k == 1 || !lbrs || frozen.from == (uintptr_t)jnz_at);
        }
        report(ok, "a PMI with freeze bits %x", (int)freeze);
        report(masked, "so it is if LVTPC is masked");
        for (int i = 0; i < ARRAY_SIZE(events); i++) {
            unsigned n;

            set_records(200, 201);
            run_frozen(events[i].code, freeze, 100000);
            n = find_to(events[i].code) + 1;
            APIC(APIC_LVTPC) = LVT_NMI;
            set_records(200, n + 1);
            run_frozen(events[i].code, freeze, 100000);
            report(frozen.vector == NMI && stored() > n &&
                   is_record(n, events[i].at, stub(events[i].vector)) &&
                   frozen.rip == (uintptr_t)stub(events[i].vector) &&
                   is_frozen(freeze, 2) &&
                   (!lbrs || frozen.from == (uintptr_t)events[i].at),
                   "a PMI of %s", events[i].what);
        }
    }
    wrmsr(MSR_FIXED_CTR_CTRL, 0);
    APIC(APIC_LVTPC) = LVT_MASKED;
}

static void test_ring(void)
{
    bool ok = true;

    APIC(APIC_LVTPC) = LVT_NMI;
    set_records(20, 10);
    traced(3, bounded, 0, user_only());
    report(regs.vector == EXIT, "without BTINT there is no PMI");
    ok = all_is(2, CODE_PAGE, 0xaa);
    for (unsigned i = BUFFER_ADDR - WINDOW + 20 * RECORD; i < 2 * PAGE; i++) {
        ok &= *ram_at(i) == 0xaa;
    }
    report(ok, "it is a ring");
    if (ds_cpl) {
        /* IRET, and 99 times JNZ */
        report(stored() == 20, "of which the last record fills the last place");
        set_records(30, 10);
        traced(3, bounded, 0, user_only());
        report(stored() == 10, "or the tenth");
    }
    /* The index is behind the end, or where nothing is. */
    set_records(20, 10);
    put_field(window_ram[0], INDEX, BUFFER_ADDR + 5 * PAGE);
    traced(3, bounded, 0, user_only());
    report(stored() <= 20, "an index behind the end begins anew");
    set_area(BUFFER_ADDR, RECORD - 1, 0);
    traced(3, bounded, 0, user_only());
    report(stored() == 0 && all_is(1, CODE_PAGE, 0xaa),
           "a ring of less than a record stores nothing");
    APIC(APIC_LVTPC) = LVT_MASKED;
}

/* --- where records can be stored ------------------------------------------ */

/* Records of any kind are stored. */
static bool works(void)
{
    unsigned n;

    traced(3, all, 0, user_only());
    n = find_to(all) + 1;
    return regs.vector == EXIT &&
           is_record(n, (void *)first_taken()->from, (void *)first_taken()->to);
}

/* The program runs, and nothing is stored. */
static bool drops(void)
{
    uint64_t index = get_field(window_ram[0], INDEX);

    traced(3, all, 0, user_only());
    traced(0, all, 0, TR | BTS);
    return regs.vector == EXIT &&
           get_field(window_ram[0], INDEX) == index;
}

static void test_pages(void)
{
    bool ok;

    for (unsigned offset = 1; offset < RECORD; offset += offset < 4 ? 1 : 4) {
        set_area(BUFFER_ADDR + PAGE - 2 * RECORD - offset, 40 * RECORD, 0);
        ok = works();
        if (!ok) {
            break;
        }
    }
    report(ok, "records may cross pages, wherever they begin");
    for (unsigned offset = 1; offset < 4 * size; offset++) {
        uint8_t *area = ram_at(PAGE - offset);

        set_records(200, 200);
        set_area_at(area, BUFFER_ADDR + PAGE, 200 * RECORD, 200 * RECORD);
        wrmsr(MSR_DS_AREA, AREA_ADDR + PAGE - offset);
        traced(3, all, 0, user_only());
        memcpy(window_ram[0], area, 4 * size);
        ok &= is_record(find_to(all) + 1, (void *)first_taken()->from,
                        (void *)first_taken()->to);
    }
    report(ok, "so may the debug store area");

    for (unsigned offset = 1; offset < RECORD; offset++) {
        set_area(BUFFER_ADDR + PAGE - offset, 40 * RECORD, 0);
        set_pte(2, 0);
        ok &= drops() && all_is(1, CODE_PAGE, 0xaa);
        set_pte(2, PTE_P | PTE_W);
        set_pte(1, 0);
        ok &= drops() && all_is(1, CODE_PAGE, 0xaa);
    }
    report(ok, "one of two pages is not there: nothing is stored in the other");
    set_records(200, 200);
    set_pte(1, 0);
    report(drops() && all_is(1, CODE_PAGE, 0xaa), "the buffer is not there");
    set_pte(1, PTE_P | PTE_W);
    report(works(), "it is there again");
    set_records(200, 200);
    set_pte(0, 0);
    report(drops() && all_is(1, CODE_PAGE, 0xaa), "the area is not there");
    set_pte(0, PTE_P);
    report(drops() && all_is(1, CODE_PAGE, 0xaa), "the area is read-only");
    set_records(200, 200);
    set_pte(1, PTE_P);
    report(drops() && all_is(1, CODE_PAGE, 0xaa), "the buffer is read-only");
    write_cr0(read_cr0() & ~CR0_WP);
    report(works(), "a supervisor can write there without CR0.WP");
    write_cr0(read_cr0() | CR0_WP);
    set_records(200, 200);
    set_pte(0, PTE_ALL);
    set_pte(1, PTE_ALL);
    report(works(), "user pages are as good");
    set_records(200, 200);
    report(works(), "so are those of the supervisor");
}

/* Addresses that nothing can be at */
static void test_addresses(void)
{
    static const uint64_t buffers[] = {
        0xfee00000, 0xfee00ff8, 0xfec00000, 0x200000000, 0xfffffffffffffff0,
        0xfffffffffffff000, 0x7fffffffffe8, 0x7ffffffffff0, 0x800000000000,
        0x8000000000000000, 0xffff7fffffffffff, 0xffff800000000000, 0xfffff8,
    };
    static const uint64_t areas[] = {
        0, 1, 0xfee00000, 0xfee00ff0, 0xfffffff0, 0xffffffff, 0xf0000,
    };
    static const uint64_t areas64[] = {
        0x7fffffffffff, 0x7fffffffffe0, 0xffff800000000000, -1, -24, -32,
        0x100000000, 0xfffffffffffff000,
    };
    bool ok = true;

    for (int i = 0; i < ARRAY_SIZE(buffers) - 1; i++) {
        if (!dtes64 && buffers[i] >> 32) {
            continue;
        }
        set_area(buffers[i], 100 * RECORD, 0);
        ok &= drops();
        set_area(buffers[i], 0, 0);
        put_field(window_ram[0], MAXIMUM, -1);
        ok &= drops();
        put_field(window_ram[0], BASE, -1);
        put_field(window_ram[0], THRESHOLD, -1);
        traced(3, all, 0, user_only() | BTINT);
        ok &= regs.vector == EXIT;
    }
    report(ok && all_is(1, CODE_PAGE, 0xaa), "a buffer where no memory is");
    for (int i = 0; i < ARRAY_SIZE(areas); i++) {
        set_records(100, 100);
        wrmsr(MSR_DS_AREA, areas[i]);
        traced(3, all, 0, user_only());
        ok &= regs.vector == EXIT;
    }
    for (int i = 0; i < ARRAY_SIZE(areas64) && dtes64; i++) {
        set_records(100, 100);
        wrmsr(MSR_DS_AREA, areas64[i]);
        ok &= drops();
    }
    report(ok && all_is(1, CODE_PAGE, 0xaa), "an area where no memory is");
    if (dtes64) {
        /* By what there is, not by what is enabled. */
        bool la57 = cpuid_reg(0, 0, 0) >= 7 && cpuid_reg(7, 0, 2) >> 16 & 1;
        uint64_t bad = 1ull << (la57 ? 56 : 47);

        wrmsr(MSR_DS_AREA, AREA_ADDR);
        report(at_cpl(0, wrmsr(MSR_DS_AREA, bad)) == GP &&
               at_cpl(0, wrmsr(MSR_DS_AREA, 1ull << 63)) == GP &&
               at_cpl(0, wrmsr(MSR_DS_AREA, -1 - bad)) == GP &&
               rdmsr(MSR_DS_AREA) == AREA_ADDR,
               "IA32_DS_AREA has to be canonical");
        for (int i = 47; i < 57 && la57; i++) {
            set_records(100, 100);
            wrmsr(MSR_DS_AREA, i < 56 ? 1ull << i : -1ull << 56);
            ok &= drops();
        }
        report(ok, "an area that is canonical with five levels only");
    }
    report(at_cpl(3, rdmsr(MSR_DS_AREA)) == GP, "and is not for CPL 3");

    /* Records over the area itself: one is as it has to be. */
    set_records(10, 10);
    wrmsr(MSR_DS_AREA, AREA_ADDR);
    set_area_at(window_ram[0], AREA_ADDR, 4 * size, 4 * size);
    traced(3, all, 0, user_only() | BTINT);
    report(regs.vector == EXIT && get_field(window_ram[0], MAXIMUM) == 0 &&
           get_field(window_ram[0], INDEX) == AREA_ADDR + RECORD &&
           get_field(window_ram[0], THRESHOLD) == AREA_ADDR + 4 * size,
           "a record goes over the area, whose index is written last");
    for (unsigned i = 0; i < 64; i++) {
        set_area(AREA_ADDR + i, 64, i);
        traced(3, all, 0, user_only() | (i & 1 ? BTINT : 0));
        ok &= regs.vector == EXIT;
    }
    report(ok, "records go over the area, anywhere");
}

CODE(small, "nop\n jmp 1f\n ud2\n 1: nop")

static void test_supervisor(void)
{
    uint64_t cr4 = read_cr4(), more = 0;
    void *const code = (void *)(WINDOW + CODE_PAGE * PAGE);
    uint32_t features = cpuid_reg(0, 0, 0) >= 7 ? cpuid_reg(7, 0, 1) : 0;

    more |= features & 1u << 7 ? CR4_SMEP : 0;
    more |= features & 1u << 20 ? CR4_SMAP : 0;
    for (int user = 0; user < 2; user++) {
        set_records(100, 100);
        memcpy(window_ram[CODE_PAGE], small, 32);
        set_pte(CODE_PAGE, PTE_ALL);
        set_pte(0, user ? PTE_ALL : PTE_P | PTE_W);
        set_pte(1, user ? PTE_ALL : PTE_P | PTE_W);
        hide_kernel(true);
        write_cr4(cr4 | more);
        traced(3, code, 0, user_only());
        write_cr4(cr4);
        hide_kernel(false);
        report(regs.vector == EXIT &&
               is_record(find_to(code) + 1, code + 1, code + 5),
               "CPL 3 with SMAP and SMEP: %s pages are written",
               user ? "the user's" : "the supervisor's");
    }
}

/* --- code that records are stored over ------------------------------------ */

#define SMC_RECORDS     20

/*
 * The last field of a record, which is 0, lies over what JMP goes to: ADD %AL,
 * (%RAX) instead of INC %ECX, four times.  With PREDICTED, the first one is an
 * ADC, and there is no carry.
 */
static void __attribute__((naked)) smc(void)
{
    asm("smc_start:\n"
        "1:  sub $1, %edx\n"
        "    jz 2f\n"
        "    jmp smc_next\n"
        "    .skip 24 * 22, 0xcc\n"
        "smc_next:\n"
        "    .rept 4\n inc %ecx\n .endr\n"
        "    jmp 1b\n"
        "2:  int $32\n"
        "smc_end:\n");
}

PLACE(smc_next);
PLACE(smc_end);

static void test_smc(void)
{
    uint64_t code = WINDOW + CODE_PAGE * PAGE;
    uint64_t next = code + (uintptr_t)smc_next - (uintptr_t)smc;
    uint64_t debugctl = TR | BTS | BTINT | OFF_OS;

    if (!ds_cpl || !dtes64) {
        return;
    }
    set_area(next + 8 - SMC_RECORDS * RECORD, SMC_RECORDS * RECORD, 4096);
    set_pte(CODE_PAGE, PTE_ALL);
    set_pte(1, PTE_ALL);
    memcpy(window_ram[CODE_PAGE], smc, (uintptr_t)smc_end - (uintptr_t)smc);
    memset(window_ram[1], 0, PAGE);
    for (int run = 0; run < 2; run++) {
        set_up(USER_CODE64, code);
        regs.rax = BUFFER_ADDR + 0x101;
        regs.rcx = 0;
        regs.rdx = 101;
        wrmsr(MSR_DEBUGCTL, run ? debugctl : 0);
        enter_regs();
        wrmsr(MSR_DEBUGCTL, 0);
        report(regs.vector == EXIT &&
               regs.rcx == (run ? 4 * (SMC_RECORDS / 2 - 1) : 400) &&
               window_ram[1][0x101] == (run ? (uint8_t)
                                        (404 - 2 * SMC_RECORDS) : 0),
               "%s: INC %d times, ADD makes %d",
               run ? "a record goes over the next instruction" :
               "no records", (int)regs.rcx, window_ram[1][0x101]);
    }
}

/* --- other modes ---------------------------------------------------------- */

static uint8_t flat_area[64] __attribute__((aligned(64)));
static uint8_t flat[2 * PAGE] __attribute__((aligned(PAGE)));

static void set_flat(unsigned records)
{
    memset(flat, 0xaa, sizeof(flat));
    set_area_at(flat_area, (uintptr_t)flat, records * RECORD, records * RECORD);
    wrmsr(MSR_DS_AREA, (uintptr_t)flat_area);
}

/* The place of a record in @flat, or -1 */
static int find_flat(uint64_t from, uint64_t to)
{
    unsigned n = (get_field(flat_area, INDEX) - (uintptr_t)flat) / RECORD;

    for (unsigned i = 0; i < n; i++) {
        if (get_field(flat + i * RECORD, 0) == from &&
            get_field(flat + i * RECORD, 1) == to &&
            has_flags(flat + i * RECORD)) {
            return i;
        }
    }
    return -1;
}

static void test_modes(void)
{
    static const char *const names[MODES] = {
        "protected mode without paging", "v8086 mode", "real mode"
    };
    /* jmp 1f; nop; 1: jmp 2f; nop; 2: int EXIT */
    static const uint8_t code[] = {
        0xeb, 0x01, 0x90, 0xeb, 0x01, 0x90, 0xcd, EXIT
    };
    /* jmp 0x700:0x1005, which is what follows */
    static const uint8_t far_jump[] = { 0xea, 0x05, 0x10, 0x00, 0x07 };

    for (int mode = 0; mode < MODES; mode++) {
        uint64_t exit = mode == REAL ? REAL_ADDR + 96 :
                        ADDRESS_OF("legacy_gp");
        int first, second;

        set_flat(200);
        memcpy((void *)CODE_ADDR, code, sizeof(code));
        wrmsr(MSR_DEBUGCTL, TR | BTS | BTINT);
        run_legacy(mode);
        wrmsr(MSR_DEBUGCTL, 0);
        first = find_flat(CODE_ADDR, CODE_ADDR + 3);
        second = find_flat(CODE_ADDR + 3, CODE_ADDR + 6);
        report(first >= 0 && second == first + 1,
               "%s: branches are stored", names[mode]);
        if (mode == PROTECTED) {
            continue;
        }
        set_flat(200);
        memcpy((void *)CODE_ADDR, far_jump, sizeof(far_jump));
        memcpy((void *)CODE_ADDR + 5, code, sizeof(code));
        wrmsr(MSR_DEBUGCTL, TR | BTS | BTINT);
        run_legacy(mode);
        wrmsr(MSR_DEBUGCTL, 0);
        first = find_flat(CODE_ADDR, CODE_ADDR + 5);
        report(first >= 0 &&
               find_flat(CODE_ADDR + 5, CODE_ADDR + 8) == first + 1 &&
               find_flat(CODE_ADDR + 8, CODE_ADDR + 11) == first + 2 &&
               find_flat(CODE_ADDR + 11, exit) == first + 3,
               "%s: where CS is not 0", names[mode]);
    }
    if (dtes64) {
        /* As is what makes it 64 bits */
        set_flat(200);
        memcpy((void *)CODE_ADDR, code, sizeof(code));
        wrmsr(MSR_DS_AREA, (uintptr_t)flat_area | 0xffff800000000000);
        wrmsr(MSR_DEBUGCTL, TR | BTS | BTINT);
        run_legacy(PROTECTED);
        wrmsr(MSR_DEBUGCTL, 0);
        report(legacy_vector == EXIT, "protected mode: an address of 64 bits");
    }
}

/* volatile: SMM counts here */
volatile uint32_t smis;

asm(".text\n"
    ".code16\n"
    "smm_code:\n"
    "    mov $smis, %ebx\n"
    "    incl (%ebx)\n"
    "smm_far:\n"
    "    ljmp $0xa800, $1f - smm_code\n"
    "1:  jmp 1f\n"
    "1:  rsm\n"
    "smm_code_end:\n"
    ".code64\n");

PLACE(smi_at);
CODE(sends_smi, "jmp 1f\n nop\n 1: mov %edx, (%rdi)\n nop\n nop\n"
     "smi_at: jmp 1f\n 1: nop")

static void test_smm(void)
{
    const uint64_t end = SMI_ENTRY + LABEL(smm_code_end) - LABEL(smm_code);
    bool freezes = (cpuid_reg(1, 0, 2) & CPUID_PDCM) &&
                   (rdmsr(MSR_PERF_CAPABILITIES) >> 12 & 1);

    for (int frozen = 0; frozen <= freezes; frozen++) {
        uint32_t before = smis;
        uint64_t debugctl = TR | BTS | BTINT | (frozen ? FREEZE_SMM : 0), left;
        int first, second, inside, far_jump;

        set_flat(200);
        set_up(CODE64, (uintptr_t)sends_smi);
        regs.rdx = ICR_SELF_SMI;
        regs.rdi = (uintptr_t)&APIC(APIC_ICR);
        wrmsr(MSR_DEBUGCTL, debugctl);
        enter_regs();
        left = rdmsr(MSR_DEBUGCTL);
        wrmsr(MSR_DEBUGCTL, 0);
        first = find_flat((uintptr_t)sends_smi, (uintptr_t)sends_smi + 3);
        second = find_flat((uintptr_t)smi_at, (uintptr_t)smi_at + 2);
        far_jump = find_flat(end - 9, end - 4);
        inside = find_flat(end - 4, end - 2);
        report(smis == before + 1 && left == debugctl &&
               first >= 0 && (frozen ? second == first + 1 && inside < 0 :
                              second == first + 3 && inside == first + 2 &&
                              far_jump == first + 1),
               "SMM %s FREEZE_WHILE_SMM", frozen ? "with" : "without");
    }
}

int main(void)
{
    uint32_t features = cpuid_reg(1, 0, 2);

    kernel_init();
    if (!(cpuid_reg(1, 0, 3) >> 21 & 1)) {
        report(rdmsr(MSR_MISC_ENABLE) & MISC_NO_BTS,
               "IA32_MISC_ENABLE says that there is no BTS");
        report(at_cpl(0, rdmsr(MSR_DS_AREA)) == GP &&
               at_cpl(0, wrmsr(MSR_DEBUGCTL, BTS)) == GP &&
               at_cpl(0, wrmsr(MSR_DEBUGCTL, BTINT)) == GP,
               "its registers are not there");
        report(!(features & 0x14), "nor are DTES64 and DS-CPL");
        return report_summary();
    }
    report(!(rdmsr(MSR_MISC_ENABLE) & MISC_NO_BTS),
           "IA32_MISC_ENABLE says that there is BTS");
    /* Not on Core 2, "Core microarchitecture" */
    predicts = (cpuid_reg(1, 0, 0) & 0xf00f0) != 0xf0;
    dtes64 = features >> 2 & 1;
    ds_cpl = features >> 4 & 1;
    size = dtes64 ? 8 : 4;
    apic_init(LVT_MASKED);
    report(rdmsr(MSR_DS_AREA) == 0, "RESET clears IA32_DS_AREA");
    test_order();
    test_events();
    test_base();
    test_calls();
    test_predicted();
    test_threshold();
    test_freeze();
    test_ring();
    test_pages();
    test_addresses();
    test_supervisor();
    test_smc();
    set_smi_code(LABEL(smm_code), LABEL(smm_code_end));
    test_smm();
    legacy_init();
    test_modes();
    return report_summary();
}
