/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The events that retiring instructions cause (§2.2, §2.3, §2.5, §2.6). */

#include "lwp-kernel.h"

enum { IRE = 2, BRE = 3, CNH = 5, RNH = 6 };
enum { DB = 1, BP = 3, OF = 4 };
enum { GATE = 0x73 };

#define FLAG(event)     (1u << (event))
#define CLOCKS          (FLAG(CNH) | FLAG(RNH))
#define ALL             (FLAG(IRE) | FLAG(BRE) | CLOCKS)
#define MANY            10000000        /* more than any test runs */

#define FLAG_TF         (1u << 8)
#define FLAG_RF         (1u << 16)
/* Figure 2-4; of LwpRecord.flags */
#define PREDICTION      (3u << 13)      /* PRV and PRD: see lwp-dme.c */
#define TKN             (1u << 15)


#define MSR_STAR        0xc0000081
#define MSR_LSTAR       0xc0000082
#define MSR_CSTAR       0xc0000083

/*
 * Code for CPL 3, with nothing before its first instruction; each piece ends
 * with INT EXIT.  RDI is a buffer, RSI a page that may be missing.
 */
#define CODE(name, bits, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm(".code" bits "\n" insns "\n int $32\n .code64"); \
    }

#define NOPS 64
CODE(nops, "64", ".rept 64\n nop\n .endr")

CODE(code_loop, "64", "mov $100, %ecx\n 1: dec %ecx\n jnz 1b")
CODE(code_loop2, "64", "mov $100, %ecx\n 1: nop\n loop 1b")
CODE(code_long_loop, "64", "mov $100000, %ecx\n 1: dec %ecx\n jnz 1b")
CODE(code_call, "64", "call 1f\n jmp 2f\n 1: ret\n 2:")
CODE(code_indirect, "64",
     "lea 1f(%rip), %rax\n jmp *%rax\n nop\n 1: lea 2f(%rip), %rax\n"
     "push %rax\n mov %rsp, %rdx\n call *(%rdx)\n jmp 3f\n 2: ret\n 3:")
CODE(code_rep, "64", "mov $200000, %ecx\n rep stosb\n nop")
CODE(code_rep0, "64", "xor %ecx, %ecx\n rep stosb\n nop")
CODE(code_rep_cmps, "64", "mov %rdi, %rsi\n mov $5000, %ecx\n repe cmpsb")
CODE(code_rep_scas, "64",
     "mov $1, %al\n movb $1, 4000(%rdi)\n mov $5000, %ecx\n repne scasb")
CODE(code_string, "64", "stosb\n lodsb\n stosl")
CODE(code_lwp, "64",
     "lwpval $0, %eax, %eax\n lwpins $0, %eax, %eax\n slwpcb %rax")
CODE(code_val, "64", "nop\n lwpval $0, %eax, %eax\n nop")
CODE(code_special, "64",
     "pause\n xor %eax, %eax\n cpuid\n rdtsc\n pushf\n popf\n cld")
CODE(code_mov_ss, "64", "mov %ss, %eax\n mov %eax, %ss\n nop\n nop")
CODE(code_modify, "64",
     "lea 1f(%rip), %rax\n movb $0x90, (%rax)\n nop\n 1: nop\n nop")
CODE(code_iret, "64",
     "mov %rsp, %rax\n push $0x23\n push %rax\n pushf\n push $0x1b\n"
     "lea 1f(%rip), %rax\n push %rax\n iretq\n nop\n 1: nop")
CODE(code_far_ret, "64",
     "push $0x1b\n lea 1f(%rip), %rax\n push %rax\n lretq\n nop\n 1: nop")
CODE(code_far_jump, "64",
     "ljmp *1f(%rip)\n nop\n 1: .long 2f\n .short 0x1b\n 2: nop")
CODE(code_syscall, "64", "nop\n syscall\n nop\n nop")
CODE(code_gate, "64",
     "push $0x73\n push $0\n rex.w lcall *(%rsp)\n nop\n nop")
CODE(code_fault, "64", "nop\n nop\n mov (%rsi), %eax\n nop\n nop")
CODE(code_store, "64", "nop\n nop\n incl (%rsi)\n nop\n nop")
CODE(code_push_fault, "64", "nop\n lea 8(%rsi), %rsp\n call 1f\n 1: nop")
CODE(code_jump_fault, "64", "nop\n jmp *(%rsi)\n nop")
CODE(code_rep_fault, "64", "lea -2000(%rsi), %rdi\n"
     "mov $4000, %ecx\n rep stosb\n nop")
CODE(code_ud2, "64", "nop\n jmp 1f\n 1: ud2\n nop")
CODE(code_hlt, "64", "nop\n hlt\n nop")
CODE(code_int, "64", "nop\n int $32\n nop")
CODE(code_int3, "64", "nop\n int3\n nop")
CODE(code_int1, "64", "nop\n .byte 0xf1\n nop")
CODE(code_leave, "64",
     "nop\n nop\n nop\n jmp 1f\n nop\n 1: mov $100000, %ecx\n"
     "2: dec %ecx\n jnz 2b\n mov 16(%rbx), %eax\n lwpins $5, %ecx, %ecx")

static uint8_t buffer[200000];
static XsaveArea area, user_area;

static void enter(uint16_t cs, uint64_t ip)
{
    set_up(cs, ip);
    regs.rdi = (uintptr_t)buffer;
    regs.rsi = WINDOW + 5 * PAGE;
}

static void enter64(void (*code)(void))
{
    enter(USER_CODE64, (uintptr_t)code);
}

static void set_event(int event, int32_t interval, int32_t counter)
{
    cb->event[event - 1].interval = interval;
    cb->event[event - 1].counter = counter;
}

/* @cb for @flags: all intervals and counters are @interval. */
static void prepare_events(uint32_t flags, int32_t interval)
{
    prepare(flags);
    cb->size = 2 * PAGE;
    for (int event = IRE; event <= RNH; event++) {
        set_event(event, interval, interval);
    }
}

/* The kernel starts LWP, so that nothing has been counted when it does run. */
static void begin(uint32_t flags)
{
    prepare_events(flags, MANY);
    llwpcb(user_cb);
}

static void save(void)
{
    memset(&area, 0, sizeof(area));
    xsave(&area, LWP_XSTATE);
}

/* A counter in @area; it has 26 bits (Table 6-1). */
static int32_t left(int event)
{
    return (int32_t)((uint32_t)area.lwp.counter[event - 1] << 6) >> 6;
}

/* What begin()'s counters have counted; a clock is an instruction. */
static bool counted(int insns, int branches)
{
    save();
    return area.lwp.flags == ALL && left(IRE) == MANY - insns &&
           left(CNH) == MANY - insns && left(RNH) == MANY - insns &&
           left(BRE) == MANY - branches;
}

static void set_breakpoint(uint64_t addr, uint64_t dr7)
{
    asm volatile("mov %0, %%dr0\n mov %1, %%dr6\n mov %2, %%dr7"
                 : : "r" (addr), "r" (0xffff0ff0ul), "r" (dr7 | 0x400));
}

enum { DR7_EXEC = 0x2, DR7_WRITE4 = 0xd0002 };

/* What the gate enters, at CPL 0 */
static void __attribute__((naked)) gate_entered(void)
{
    asm("nop\n nop\n lretq");
}

static void test_counts(void)
{
    static uint8_t stack[256] __attribute__((aligned(16)));
    static const struct {
        const char *name;
        void (*code)(void);
        int insns, branches;
        unsigned stop;          /* an exception in between, if not 0 */
        int before, skip;       /* instructions before; bytes to skip then */
    } t[] = {
        { "NOPs", nops, NOPS, 0 },
        { "DEC, JNZ", code_loop, 201, 100 },
        { "LOOP", code_loop2, 201, 100 },
        { "200001 instructions", code_long_loop, 200001, 100000 },
        { "CALL, RET, JMP", code_call, 3, 3 },
        { "indirect JMP and CALL", code_indirect, 8, 4 },
        { "REP STOSB", code_rep, 3, 0 },
        { "REP STOSB, RCX = 0", code_rep0, 3, 0 },
        { "REPE CMPSB", code_rep_cmps, 3, 0 },
        { "REPNE SCASB", code_rep_scas, 4, 0 },
        { "string instructions without REP", code_string, 3, 0 },
        { "LWPVAL, LWPINS, SLWPCB", code_lwp, 3, 0 },
        { "PAUSE, CPUID, RDTSC, POPF", code_special, 7, 0 },
        { "MOV SS", code_mov_ss, 4, 0 },
        { "code that changes itself", code_modify, 5, 0 },
        { "IRET within CPL 3", code_iret, 9, 0 },
        { "far RET within CPL 3", code_far_ret, 5, 0 },
        { "far JMP within CPL 3", code_far_jump, 2, 0 },
        { "SYSCALL and SYSRET", code_syscall, 3, 0 },
        { "far CALL through a gate", code_gate, 4, 0 },
        { "load with #PF", code_fault, 5, 0, PF, 2, 0 },
        { "read-modify-write with #PF", code_store, 5, 0, PF, 2, 0 },
        { "CALL with #PF", code_push_fault, 4, 1, PF, 2, 0 },
        { "indirect JMP with #PF", code_jump_fault, 3, 1, PF, 1, 0 },
        { "REP STOSB with #PF", code_rep_fault, 4, 0, PF, 2, 0 },
        { "UD2", code_ud2, 3, 1, UD, 2, 2 },
        { "HLT with #GP", code_hlt, 2, 0, GP, 1, 1 },
        { "INT n", code_int, 2, 0, EXIT, 1, 0 },
        { "INT3", code_int3, 2, 0, BP, 1, 0 },
        { "INT1", code_int1, 2, 0, DB, 1, 0 },
    };

    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | 1);
    wrmsr(MSR_STAR, 0x0bull << 48 | (uint64_t)CODE64 << 32);
    asm volatile("lea 1f(%%rip), %%rax\n"
                 "mov %%rax, %%rdx\n shr $32, %%rdx\n wrmsr\n"
                 "jmp 2f\n"
                 /* What SYSCALL enters, at CPL 0 */
                 "1: nop\n nop\n jmp 3f\n 3: sysretq\n"
                 "2:" : : "c" (MSR_LSTAR) : "rax", "rdx", "memory");
    tss[1] = (uintptr_t)stack + sizeof(stack);      /* RSP0 */
    set_call_gate(GATE, (uintptr_t)gate_entered);

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        unsigned vector = 0;
        bool ok = true;

        begin(ALL);
        memset(buffer, 0, sizeof(buffer));
        enter64(t[i].code);
        if (t[i].stop) {
            set_pte(5, 0);
            vector = run();
            /* For that JMP: to the NOP that follows it */
            *(uint64_t *)window_ram[5] = regs.rip + 2;
            ok = counted(t[i].before, t[i].code == code_ud2);
            set_pte(5, PTE_ALL);
            regs.rip += t[i].skip;
        }
        report(vector == t[i].stop && ok && run() == EXIT &&
               counted(t[i].insns, t[i].branches),
               "%s: %d retire, %d branches", t[i].name, t[i].insns,
               t[i].branches);
    }
    enter64(code_rep);
    regs.rax = 0x55;
    report(run() == EXIT && regs.rcx == 0 &&
           bytes_are(buffer, 0x55, sizeof(buffer)), "REP STOSB did run");
}

/* The second page of an instruction may be missing. */
static void test_fetch(void)
{
    uint8_t *code = &window_ram[5][PAGE - 3];
    uint64_t ip = WINDOW + 6 * PAGE - 3;

    begin(ALL);
    memcpy(code, (uint8_t []) { 0x90, 0xb8, 1, 2, 3, 4, 0x90, 0xcd, EXIT }, 9);
    set_pte(6, 0);
    enter(USER_CODE64, ip);
    report(run() == PF && regs.rip == ip + 1 && counted(1, 0) &&
           fault_address == ip + 3,
           "an instruction that cannot be fetched does not count");
    set_pte(6, PTE_ALL);
    report(run() == EXIT && regs.rax == 0x04030201 && counted(3, 0),
           "it counts when it has run");
}

static void test_kernel(void)
{
    XsaveArea before;

    begin(ALL);
    enter64(code_loop);
    run();
    xsave(&before, LWP_XSTATE);
    for (int n = 0; n < 1000; n++) {
        cpuid_reg(0, 0, 0);
    }
    report(counted(201, 100) && same(&before.lwp, &area.lwp, 128),
           "CPL 0: nothing counts");
    report(run_function(0, code_loop) == EXIT && counted(201, 100),
           "CPL 0: code that counted at CPL 3 does not");
    enter64(code_loop);
    report(run() == EXIT && counted(402, 200), "it does again at CPL 3");
}

/* The instructions that start LWP or show its counters */
CODE(code_session, "64",
     "llwpcb %rax\n nop\n nop\n slwpcb %rbx\n nop\n llwpcb %rax\n"
     "nop\n llwpcb %rcx\n nop")
CODE(code_xsave, "64", "nop\n xsave (%rdi)\n nop\n nop\n nop")
CODE(code_xrstor, "64", "nop\n xrstor (%rdi)\n nop\n nop")

static void test_session(void)
{
    prepare_events(ALL, MANY);
    enter64(code_session);
    regs.rax = CB_ADDR;
    report(run() == EXIT && regs.rbx == CB_ADDR &&
           cb->event[IRE - 1].counter == MANY - 5 &&
           cb->event[CNH - 1].counter == MANY - 5 &&
           cb->event[BRE - 1].counter == MANY,
           "LLWPCB does not count, SLWPCB does");
    prepare_events(ALL, MANY);
    at_cpl(3, llwpcb(user_cb); slwpcb());
    report(cb->event[IRE - 1].counter < MANY &&
           cb->event[IRE - 1].counter > MANY - 20,
           "compiled code counts, too");

    begin(ALL);
    enter64(code_xsave);
    regs.rdi = (uintptr_t)&user_area;
    regs.rax = 0;
    regs.rdx = LWP_XSTATE >> 32;
    report(run() == EXIT && user_area.lwp.counter[IRE - 1] == MANY - 1 &&
           counted(5, 0), "CPL 3: XSAVE counts after it has stored");
    enter64(code_xrstor);
    regs.rdi = (uintptr_t)&user_area;
    regs.rax = 0;
    regs.rdx = LWP_XSTATE >> 32;
    report(run() == EXIT && counted(3, 0),
           "CPL 3: XRSTOR starts LWP and does not count");
}

static void test_breakpoints(void)
{
    uint64_t start = (uintptr_t)nops;
    bool ok = true;

    begin(ALL);
    set_breakpoint(start + 10, DR7_EXEC);
    enter64(nops);
    report(run() == DB && regs.rip == start + 10 && counted(10, 0),
           "instruction breakpoint: the instruction has not run");
    regs.rflags |= FLAG_RF;
    report(run() == EXIT && counted(NOPS, 0), "it counts when it has");

    begin(ALL);
    set_breakpoint((uintptr_t)code_rep + 5, DR7_EXEC);
    enter64(code_rep);
    ok = run() == DB && regs.rip == (uintptr_t)code_rep + 5 && counted(1, 0);
    regs.rflags |= FLAG_RF;
    report(ok && run() == EXIT && counted(3, 0), "breakpoint at REP");

    begin(ALL);
    set_breakpoint(WINDOW + 5 * PAGE, DR7_WRITE4);
    enter64(code_store);
    report(run() == DB && regs.rip == (uintptr_t)code_store + 4 &&
           *(uint32_t *)window_ram[5] == 1 && counted(3, 0),
           "data breakpoint: the instruction has retired");
    report(run() == EXIT && counted(5, 0), "it counts once");
    ok = true;
    for (int i = 0; i < 4; i++) {
        begin(ALL);
        enter64(code_store);
        ok &= run() == DB && regs.rip == (uintptr_t)code_store + 4 &&
              counted(3, 0) && run() == EXIT && counted(5, 0);
    }
    report(ok, "also where the next instruction has been translated before");

    begin(ALL);
    set_breakpoint((uintptr_t)buffer + 1000, DR7_WRITE4);
    enter64(code_rep);
    /* It may run on for a while. */
    ok = run() == DB && regs.rip == (uintptr_t)code_rep + 5 &&
         regs.rdi > (uintptr_t)buffer + 1000 && regs.rcx && counted(1, 0);
    set_breakpoint(0, 0);
    report(ok, "data breakpoint in REP: it has not finished");
    report(run() == EXIT && counted(3, 0), "it counts once, too");
}

CODE(code_steps, "64",
     "nop\n mov %ss, %eax\n mov %eax, %ss\n nop\n mov $3, %ecx\n"
     "rep stosb\n jmp 1f\n 1: nop")

static void test_steps(void)
{
    /* How many have retired when a trap comes in front of an instruction */
    static const uint8_t retired[] = {
        /* There is no trap between MOV SS and the next instruction. */
        [1] = 1, [3] = 2, [6] = 4, [11] = 5, [13] = 6, [15] = 7, [16] = 8
    };
    bool ok = true;
    int traps[ARRAY_SIZE(retired)] = { 0 };

    begin(ALL);
    enter64(code_steps);
    regs.rflags |= FLAG_TF;
    while (run() == DB) {
        uint64_t offset = regs.rip - (uintptr_t)code_steps;

        if (offset >= ARRAY_SIZE(retired) || !retired[offset] ||
            !counted(retired[offset], offset > 13)) {
            ok = false;
            break;
        }
        traps[offset]++;
    }
    report(ok && regs.vector == EXIT, "TF: exact at every trap");
    report(counted(8, 1), "TF: every instruction counts once");
    report(traps[1] == 1 && traps[3] == 1 && traps[6] == 1 &&
           traps[11] >= 3 && traps[13] == 1 && traps[15] == 1 &&
           traps[16] == 1, "TF: REP traps after each iteration");
}

/*
 * Whether the records of @event in the ring are those of occurrences @first,
 * @first + @period, ... of @total; @ip gives their addresses.
 */
static bool samples_are(int event, unsigned first, unsigned period,
                        unsigned total, uint64_t (*ip)(int n))
{
    save();
    for (unsigned i = 0; i < area.lwp.head / 32; i++) {
        LwpRecord *r = &ring[i];

        if (r->event != event) {
            continue;
        }
        if (first >= total || r->ip != ip(first) || r->core || r->data1 ||
            (event != BRE && (r->flags || r->data2)) || r->reserved) {
            return false;
        }
        first += period;
    }
    return first >= total && left(event) == first - total;
}

/* A loop whose instructions have different lengths; RCX is the count. */
CODE(code_body, "64",
     "1: nop\n xchg %ax, %ax\n nopl (%rax)\n jmp 2f\n 2: dec %ecx\n jnz 1b")

static uint64_t body_insn(int n)
{
    static const uint8_t offset[] = { 0, 1, 3, 6, 8, 10 };

    return (uintptr_t)code_body + offset[n % 6];
}

static uint64_t body_branch(int n)
{
    return body_insn(n % 2 ? 5 : 3);
}

/* SS tells CPL, so that loading it has what counts judged anew. */
CODE(code_load_ss, "64",
     "1: .rept 12\n nop\n .endr\n mov %eax, %ss\n lss (%rdi), %ecx\n"
     "dec %edx\n jnz 1b")

static uint64_t load_ss_insn(int n)
{
    static const uint8_t offset[] = { 12, 14, 17, 19 };

    n %= 16;
    return (uintptr_t)code_load_ss + (n < 12 ? n : offset[n - 12]);
}

static uint64_t nop_insn(int n)
{
    return (uintptr_t)nops + n;
}

static bool exact(uint32_t flags, int interval, int counter)
{
    unsigned n = interval < 40 ? 10 * (interval + 1) : 400;

    prepare_events(flags, interval);
    for (int event = IRE; event <= RNH; event++) {
        set_event(event, interval, counter);
    }
    llwpcb(user_cb);
    enter64(code_body);
    regs.rcx = n;
    if (run() != EXIT || cb->missed) {
        return false;
    }
    for (int event = IRE; event <= RNH; event++) {
        unsigned total = event == BRE ? 2 * n : 6 * n;

        if (flags & FLAG(event) &&
            !samples_are(event, counter, interval + 1, total,
                         event == BRE ? body_branch : body_insn)) {
            return false;
        }
    }
    return true;
}

static void test_load_ss(void)
{
    enum { ROUNDS = 15 };
    bool ok = true;

    for (int n = 0; n < 20; n++) {
        prepare_events(FLAG(IRE), n);
        memcpy(buffer + 4, &(uint16_t){ USER_DATA }, 2);
        llwpcb(user_cb);
        enter64(code_load_ss);
        regs.rax = USER_DATA;
        regs.rdx = ROUNDS;
        ok &= run() == EXIT && samples_are(IRE, n, n + 1, 16 * ROUNDS,
                                           load_ss_insn);
    }
    report(ok, "a program that loads SS has its records");
}

static void test_intervals(void)
{
    static const struct {
        const char *name;
        uint32_t flags;
    } t[] = {
        { "IRE", FLAG(IRE) }, { "BRE", FLAG(BRE) }, { "CNH", FLAG(CNH) },
        { "RNH", FLAG(RNH) }, { "IRE and BRE", FLAG(IRE) | FLAG(BRE) },
        { "all", ALL },
    };
    static const int8_t odd[] = { 0, 1, 2, 3, 6, 7, 20, 31, 62, 63, 64 };

    for (int i = 0; i < ARRAY_SIZE(odd); i++) {
        int n = odd[i];

        prepare_events(FLAG(IRE), n);
        llwpcb(user_cb);
        enter64(nops);
        report(run() == EXIT &&
               samples_are(IRE, n, n + 1, NOPS, nop_insn) &&
               area.lwp.head == NOPS / (n + 1) * 32 &&
               cb->head == area.lwp.head,
               "IRE: interval %d samples every NOP number %d", n, n + 1);
    }
    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        int n = 0;

        while (n <= 200 && exact(t[i].flags, n, n) &&
               exact(t[i].flags, n, n * 7 % 50)) {
            n += n < 30 ? 1 : 19;
        }
        report(n > 200, "%s: exact with intervals from 0 to 200 (%d)",
               t[i].name, n);
    }
    prepare_events(FLAG(IRE), 0);
    cb->size = LWP_MIN_RING;
    llwpcb(user_cb);
    enter64(nops);
    report(run() == EXIT && cb->missed == NOPS - 31 && cb->head == 31 * 32 &&
           record_is(&ring[31], IRE, 0, 0, nop_insn(63), 0) &&
           record_is(&ring[30], IRE, 0, 0, nop_insn(30), 0),
           "a full ring misses events");
}

/* Control flow of all kinds; in compatibility mode CS has a base. */
CODE(code_flow64, "64",
     "jmp 1f\n nop\n 1: xor %ecx, %ecx\n jrcxz 2f\n nop\n"
     "2: jnz 3f\n nop\n 3: jz 4f\n nop\n 4: call 5f\n jmp 6f\n nop\n"
     "5: inc %ecx\n jrcxz 5b\n ret\n"
     "6: mov $3, %ecx\n 7: nop\n loop 7b\n"
     "lea 8f(%rip), %rax\n jmp *%rax\n nop\n"
     "8: lea 9f(%rip), %rax\n call *%rax\n jmp 1f\n 9: ret\n 1: nop")
#define BASE32 0x12000
CODE(code_flow32, "32",
     "nop\n ljmp $0x43, $1f - 0x12000\n nop\n"
     "1: push $0x43\n push $2f - 0x12000\n lret\n nop\n"
     "2: pushf\n push $0x43\n push $3f - 0x12000\n iret\n nop\n"
     "3: lcall $0x43, $4f - 0x12000\n jmp 5f\n 4: lret\n nop\n"
     "5: cmp %eax, %eax\n je 6f\n nop\n 6: jne 7f\n nop\n"
     "7: call 8f\n jmp 9f\n 8: ret\n nop\n"
     "9: mov $1f - 0x12000, %eax\n jmp *%eax\n nop\n"
     "1: xor %ecx, %ecx\n into\n jecxz 2f\n nop\n"
     /* to another CS, without base */
     "2: ljmp $0x2b, $3f\n 3: nop\n jmp 4f\n nop\n 4:")
CODE(code_flow16, "16",
     "nop\n jmp 1f\n nop\n 1: mov $2, %cx\n 2: loop 2b\n"
     "jcxz 3f\n nop\n 3: call 4f\n jmp 5f\n 4: ret\n 5: nop")
/* Anywhere: its instructions are at 0, 1, 3, 4, 9, 11, 13, 14, 19, 21, 22... */
CODE(code_wrap32, "32",
     "nop\n jmp 1f\n nop\n 1: mov $2, %ecx\n 2: loop 2b\n"
     "jecxz 3f\n nop\n 3: call 4f\n jmp 5f\n 4: ret\n"
     "5: cmp %eax, %eax\n je 6f\n nop\n 6: nop")

#define BRANCH_FIXED (1 << 16)  /* always taken */

/* The filter for a branch of @code[], 0 if it is not one that counts. */
static uint32_t branch_filter(const uint8_t *code)
{
    uint8_t reg = code[1] >> 3 & 7;

    switch (code[0]) {
    case 0x70 ... 0x7f:
    case 0xe0 ... 0xe3:
        return FILTER_NCB;
    case 0xc3:
    case 0xe8 ... 0xe9:
    case 0xeb:
        return FILTER_NRB;
    case 0xff:
        return reg == 2 || reg == 4 ? FILTER_NAB : 0;
    default:
        return 0;
    }
}

/* What TF says has run, LWP aside: instruction n is at ip[n] of base[n]. */
static struct {
    int n;
    uint64_t ip[128], base[128];
} trace;

static void make_trace(uint16_t cs, uint64_t base, uint64_t start)
{
    wrmsr(MSR_LWP_CBADDR, 0);
    enter(cs, start);
    regs.rflags |= FLAG_TF;
    trace.n = 0;
    do {
        trace.ip[trace.n] = regs.rip;
        trace.base[trace.n++] = regs.cs == cs ? base : 0;
    } while (run() == DB && trace.n < 127);
    trace.n--;                  /* INT */
    trace.ip[trace.n] = regs.rip - 2;
}

/* The same run under LWP: every address, every branch with its target */
static void test_flow(const char *name, uint16_t cs, uint64_t base,
                      void (*code)(void))
{
    uint32_t start = (uintptr_t)code - base;
    static const uint32_t filters[] = {
        0, FILTER_NAB, FILTER_NCB, FILTER_NRB, FILTER_NAB | FILTER_NRB,
        FILTER_NAB | FILTER_NCB | FILTER_NRB
    };
    bool ok;

    make_trace(cs, base, start);
    begin(ALL);
    enter(cs, start);
    ok = run() == EXIT && regs.vector == EXIT;
    save();
    report(ok && left(IRE) == MANY - trace.n && trace.n >= 10,
           "%s: %d instructions", name, trace.n);

    prepare_events(FLAG(IRE), 0);
    llwpcb(user_cb);
    enter(cs, start);
    ok = run() == EXIT && cb->head == trace.n * 32;
    for (int i = 0; i < trace.n; i++) {
        ok &= record_is(&ring[i], IRE, 0, 0, (uint32_t)trace.ip[i], 0);
    }
    report(ok, "%s: their effective addresses", name);

    for (int f = 0; f < ARRAY_SIZE(filters); f++) {
        LwpRecord *r = ring;

        prepare_events(FLAG(BRE), 0);
        cb->filters = filters[f];
        llwpcb(user_cb);
        enter(cs, start);
        ok = run() == EXIT;
        for (int i = 0; i < trace.n; i++) {
            uint64_t ip = trace.ip[i], next = trace.ip[i + 1];
            uint32_t linear = trace.base[i] + ip;
            uint32_t class = branch_filter((uint8_t *)(uintptr_t)linear);
            bool taken = class != FILTER_NCB || (uint32_t)(next - ip) != 2;

            if (class & ~filters[f]) {
                r->flags &= ~PREDICTION;
                ok &= record_is(r++, BRE, taken ? TKN : 0, 0, ip, next);
            }
        }
        save();
        report(ok && area.lwp.head == (r - ring) * 32 && r->event == 0 &&
               (f || r - ring >= 6),
               "%s: %d branches with filters 0x%x", name, (int)(r - ring),
               filters[f]);
    }
}

/* INTO enters the kernel only if there is an overflow. */
CODE(code_into, "32", "nop\n into\n mov $0x7f, %al\n inc %al\n into\n nop")

CODE(code_int32, "32", "")
CODE(code_syscall32, "32", "syscall")

/* What goes into a frame, or ECX, behind the last byte of a segment is 0. */
static void test_segment_end(void)
{
    uint64_t base = (uintptr_t)code_int32 + 2;      /* the length of both */
    bool ok;

    set_segment(TEST_CODE, base, 0xfffff, ACC_CODE | ACC_USER, SEG_G | SEG_32);
    enter(TEST_CODE, (uint32_t)-2);
    ok = run() == EXIT && regs.rip == 0;
    base = (uintptr_t)code_syscall32 + 2;
    set_segment(TEST_CODE, base, 0xfffff, ACC_CODE | ACC_USER, SEG_G | SEG_32);
    wrmsr(MSR_CSTAR, (uintptr_t)exit_user);
    enter(TEST_CODE, (uint32_t)-2);
    ok &= run() == EXIT && regs.cs == CODE64 && regs.rcx == 0;
    report(ok, "INT n and SYSCALL at the end of a segment");
}

static void test_compat(void)
{
    uint64_t base16 = (uintptr_t)code_flow16 - 0x1234;
    static const uint8_t offsets[] = { 1, 3, 9, 11, 14, 19, 21, 22 };

    test_flow("64-bit", USER_CODE64, 0, code_flow64);
    set_segment(TEST_CODE, BASE32, 0xfffff, ACC_CODE | ACC_USER,
                SEG_G | SEG_32);
    test_flow("32-bit, CS base", TEST_CODE, BASE32, code_flow32);
    set_segment(USER_CODE16, base16, 0xffff, ACC_CODE | ACC_USER, SEG_16);
    test_flow("16-bit, CS base", USER_CODE16, base16, code_flow16);
    for (int i = 0; i < ARRAY_SIZE(offsets); i++) {
        uint64_t base = (uintptr_t)code_wrap32 + offsets[i];

        set_segment(TEST_CODE, base, 0xfffff, ACC_CODE | ACC_USER,
                    SEG_G | SEG_32);
        test_flow("32-bit, EIP wraps", TEST_CODE, base, code_wrap32);
    }

    begin(ALL);
    enter(USER_CODE32, (uintptr_t)code_into);
    report(run() == OF && counted(4, 0) && run() == EXIT && counted(5, 0),
           "INTO counts if it does nothing");
    test_segment_end();
}

/* §8.6: NOP @n causes a record whose ring page is missing. */
static void fault_at(unsigned n)
{
    prepare_events(ALL, MANY);
    set_event(IRE, 1000, n);
    llwpcb(user_cb);
    set_pte(0, 0);
    enter64(nops);
}

static bool ring_fault(uint64_t ip)
{
    return regs.vector == PF && regs.error == (PTE_U | PTE_W) &&
           fault_address == RING_ADDR && regs.rip == ip && regs.cs & 3;
}

/* The record of NOP @n is in the ring, and no other. */
static bool stored_once(unsigned n)
{
    save();
    return record_is(&ring[0], IRE, 0, 0, nop_insn(n), 0) &&
           ring[1].event == 0 && area.lwp.head == 32 && cb->head == 32 &&
           area.lwp.saved.event == 0 && cb->missed == 0;
}

static void test_fault(void)
{
    static const uint8_t at[] = { 0, 2, 15, 16, 31, 62, 63 };
    Regs saved;

    for (int i = 0; i < ARRAY_SIZE(at); i++) {
        unsigned n = at[i];

        fault_at(n);
        run();
        report(ring_fault(nop_insn(n + 1)),
               "NOP %d, ring missing: #PF behind it", n);
        save();
        report(record_is(&area.lwp.saved, IRE, 0, 0, nop_insn(n), 0) &&
               left(IRE) == -1 && left(CNH) == MANY - n - 1 &&
               area.lwp.head == 0, "the record is pending, the counter is -1");
        report(run_function(0, nops) == EXIT && cb->head == 0 &&
               (save(), left(CNH) == MANY - n - 1), "CPL 0 does not matter");
        enter(USER_CODE64, nop_insn(n + 1));
        run();
        report(ring_fault(nop_insn(n + 1)), "it faults again");
        set_pte(0, PTE_ALL);
        report(run() == EXIT && stored_once(n) &&
               left(IRE) == 1000 - (NOPS - n - 1) && left(CNH) == MANY - NOPS,
               "page mapped: stored once, nothing counts twice");
    }

    /* The system switches to another task and back. */
    fault_at(20);
    run();
    saved = regs;
    save();
    wrmsr(MSR_LWP_CBADDR, 0);
    set_pte(0, PTE_ALL);
    enter64(nops);
    report(run() == EXIT && ring[0].event == 0, "task without LWP");
    xrstor(&area, LWP_XSTATE);
    regs = saved;
    report(run() == EXIT && stored_once(20) &&
           left(IRE) == 1000 - (NOPS - 21) && left(CNH) == MANY - NOPS,
           "XRSTOR of the image: stored once");

    /* A signal handler runs with the page still missing (§1.1 step 2). */
    fault_at(20);
    run();
    saved = regs;
    enter64(code_loop);
    report(run() == EXIT && (save(), left(IRE)) == -202 &&
           left(BRE) == MANY - 100 && area.lwp.saved.ip == nop_insn(20),
           "code that runs elsewhere counts below zero");
    regs = saved;
    run();
    report(ring_fault(nop_insn(21)), "back at the address: #PF");
    set_pte(0, PTE_ALL);
    report(run() == EXIT && stored_once(20) &&
           left(IRE) == 1000 - 201 - (NOPS - 21),
           "page mapped: the overrun shortens the interval");
    /* If the page is there, it is retried at the address only, too. */
    fault_at(20);
    run();
    set_pte(0, PTE_ALL);
    saved = regs;
    enter64(code_loop);
    report(run() == EXIT && ring[0].event == 0, "not retried elsewhere");
    regs = saved;
    report(run() == EXIT && stored_once(20), "but there");

    fault_at(20);
    set_pte(0, PTE_ALL);
    set_pte(2, 0);
    report(run() == PF && regs.rip == nop_insn(21) &&
           fault_address / PAGE == CB_ADDR / PAGE, "LWPCB missing: #PF");
    set_pte(2, PTE_ALL);
    report(run() == EXIT && stored_once(20), "page mapped: stored once");

    /* Both traps come, the one for TF first. */
    fault_at(1);
    regs.rflags |= FLAG_TF;
    report(run() == DB && run() == DB && regs.rip == nop_insn(2) &&
           (save(), left(IRE)) == -1, "TF: #DB precedes #PF");
    run();
    report(ring_fault(nop_insn(2)), "then #PF");
    set_pte(0, PTE_ALL);
    regs.rflags &= ~FLAG_TF;
    report(run() == EXIT && stored_once(1) && left(CNH) == MANY - NOPS,
           "page mapped: stored once");
}

/* A block in which number 256 retires before something goes wrong */
#define CODE_BAD(name, insns) \
    CODE(name, "64", ".rept 254\n nop\n .endr\n jmp 1f\n 1: nop\n nop\n" \
         insns "\n jmp 2f\n 2: nop")
CODE_BAD(code_bad_load, "mov (%rsi), %eax")
CODE_BAD(code_bad_store, "mov %eax, (%rsi)")
CODE_BAD(code_bad_segment, "mov %eax, %es")
CODE_BAD(code_bad_jump, "jmp *%rsi")

/*
 * Two records may still wait when an exception is delivered.  The second one's
 * page is missing: its own #PF may come before the exception or behind it, but
 * it does not change what the exception tells.
 */
static void test_error_code(void)
{
    static const struct {
        const char *name;
        void (*code)(void);
        unsigned pte, vector, error;
    } t[] = {
        { "load", code_bad_load, 0, PF, PTE_U },
        { "store to a read-only page", code_bad_store, PTE_P | PTE_U,
          PF, PTE_U | PTE_W | PTE_P },
        { "load from the system's page", code_bad_load, PTE_P | PTE_W,
          PF, PTE_U | PTE_P },
        { "load from a non-canonical address", code_bad_load, PTE_ALL, GP, 0 },
        { "MOV ES", code_bad_segment, PTE_ALL, GP, 0x1230 },
        { "jump", code_bad_jump, 0, PF, PTE_U },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        for (int missing = 0; missing < 2; missing++) {
            bool gp = t[i].vector == GP;

            prepare_events(FLAG(IRE) | FLAG(CNH), MANY);
            set_event(IRE, MANY, 255);
            set_event(CNH, MANY, 255);
            cb->head = PAGE - 32;
            llwpcb(user_cb);
            set_pte(1, missing ? 0 : PTE_ALL);
            set_pte(5, t[i].pte);
            enter64(t[i].code);
            regs.rax = 0x1230;
            regs.rsi = gp ? 1ull << 63 : WINDOW + 5 * PAGE;
            if (run() == PF && fault_address == RING_ADDR + PAGE && missing &&
                regs.rip == (uintptr_t)t[i].code + 257) {
                set_pte(1, PTE_ALL);
                run();
            }
            report(regs.vector == t[i].vector && regs.error == t[i].error &&
                   (gp || fault_address == regs.rsi) &&
                   record_is((LwpRecord *)window_ram[1] - 1, IRE, 0, 0,
                             (uintptr_t)t[i].code + 256, 0),
                   "%s, room for %d of 2 records: error code 0x%x", t[i].name,
                   2 - missing, t[i].error);
            if (t[i].code == code_bad_jump) {
                continue;       /* It has no instruction to go on with. */
            }
            set_pte(1, PTE_ALL);
            report(run() == t[i].vector && regs.error == t[i].error &&
                   (save(), area.lwp.head) == PAGE + 32 &&
                   record_is((LwpRecord *)window_ram[1], CNH, 0, 0,
                             (uintptr_t)t[i].code + 256, 0),
                   "the same again, and both have been stored");
        }
    }
}

/* Run to the end as a system would; the number of exceptions, -1 if none. */
static int run_mended(void)
{
    for (int n = 0; n < 20; n++) {
        switch (run()) {
        case PF:
            set_pte((fault_address - WINDOW) / PAGE, PTE_ALL);
            break;
        case DB:
            regs.rflags |= FLAG_RF;
            break;
        case EXIT:
            return n;
        default:
            return -1;
        }
    }
    return -1;
}

static void start_mended(void (*code)(void), int interval)
{
    prepare_events(ALL, interval);
    /* For JMP (RSI): to the NOP behind it */
    *(uint64_t *)window_ram[5] = (uintptr_t)code_jump_fault + 3;
    llwpcb(user_cb);
    enter64(code);
}

/* Branches are predicted better the second time. */
static void forget_predictions(void)
{
    for (unsigned i = 0; i < 2 * PAGE / sizeof(*ring); i++) {
        ring[i].flags &= ~PREDICTION;
    }
}

/* Faults of the program and of LWP, side by side, change nothing. */
static void test_mended(void)
{
    static uint8_t expected[2 * PAGE];
    static const struct {
        const char *name;
        void (*code)(void);
    } t[] = {
        { "load", code_fault }, { "read-modify-write", code_store },
        { "CALL", code_push_fault }, { "indirect JMP", code_jump_fault },
        { "REP STOSB", code_rep_fault }, { "NOPs", nops },
        { "control flow", code_flow64 },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        bool ok = true;

        for (int n = 0; n < 12; n++) {
            int interval = n / 4 + (t[i].code == nops);
            LwpImage lwp;

            start_mended(t[i].code, interval);
            ok &= run_mended() == 0;
            save();
            lwp = area.lwp;
            forget_predictions();
            memcpy(expected, ring, 2 * PAGE);

            start_mended(t[i].code, interval);
            set_pte(0, n & 1 ? PTE_P | PTE_U : 0);
            set_pte(2, n & 2 ? PTE_ALL : 0);
            set_pte(5, 0);
            ok &= run_mended() > 0;
            save();
            forget_predictions();
            ok &= same(&lwp, &area.lwp, sizeof(lwp)) && lwp.head &&
                  same(expected, ring, 2 * PAGE) && !cb->missed;
        }
        report(ok, "%s: the same records with and without #PF", t[i].name);
    }

    fault_at(20);
    set_breakpoint(nop_insn(21), DR7_EXEC);
    report(run_mended() >= 1 && stored_once(20) &&
           left(CNH) == MANY - NOPS, "#PF and an instruction breakpoint");

    prepare_events(ALL, MANY);
    set_event(IRE, 1000, 2);
    llwpcb(user_cb);
    set_pte(0, 0);
    set_breakpoint(WINDOW + 5 * PAGE, DR7_WRITE4);
    enter64(code_store);
    report(run() == DB && regs.rip == (uintptr_t)code_store + 4 &&
           (save(), left(IRE)) == -1, "data breakpoint precedes #PF");
    report(run() == PF && regs.rip == (uintptr_t)code_store + 4 &&
           run_mended() == 1 && (save(), left(CNH)) == MANY - 5 &&
           record_is(ring, IRE, 0, 0, (uintptr_t)code_store + 2, 0) &&
           ring[1].event == 0, "page mapped: stored once");
    set_breakpoint(0, 0);
}

/* Loads from RCX pages, by which the TLB forgets what it had */
CODE(code_pages, "64",
     "1: mov (%rsi), %eax\n add $4096, %rsi\n nop\n dec %ecx\n jnz 1b")

/*
 * A page goes from the page tables, but nobody has said so yet: #PF comes for a
 * record that seemed certain, and not once more in its handler.
 */
static void test_stale(void)
{
    prepare_events(FLAG(IRE), 299);
    llwpcb(user_cb);
    enter64(code_pages);
    regs.rsi = 16 << 20;
    regs.rcx = 100;
    report(run() == EXIT && cb->head == 32, "its page is there");
    window_table[0] = 0;
    regs.rip = (uintptr_t)code_pages;
    regs.rsi = 16 << 20;
    regs.rcx = 14000;
    report(run() == PF && fault_address == RING_ADDR + cb->head &&
           (regs.error & ~1ull) == 6, "its page has gone: #PF");
    enter64(nops);
    report(run() == EXIT, "the handler runs");
    wrmsr(MSR_LWP_CBADDR, 0);
    set_pte(0, PTE_ALL);
}

/* Where #PF is if the event's instruction is not just followed by the next */
static void test_fault_insn(void)
{
    static const struct {
        const char *name;
        void (*code)(void);
        uint8_t n, at, behind;  /* instruction; its offset; the next one's */
    } t[] = {
        { "JMP", code_ud2, 1, 1, 3 },
        { "CALL", code_call, 0, 0, 7 },
        { "RET", code_call, 1, 7, 5 },
        { "JNZ", code_loop, 2, 7, 5 },
        { "REP", code_rep, 1, 5, 7 },
        { "MOV SS", code_mov_ss, 1, 2, 4 },
        { "PAUSE", code_special, 0, 0, 2 },
        { "LWPINS", code_lwp, 1, 9, 18 },
        { "before INT", code_int, 0, 0, 1 },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        uint64_t start = (uintptr_t)t[i].code;
        /* LWPINS stores a record itself: that is page 0, this is page 1. */
        bool ins = t[i].code == code_lwp;
        LwpRecord *r = ins ? (LwpRecord *)window_ram[1] : ring;

        prepare_events(FLAG(IRE), MANY);
        cb->event[IRE - 1].counter = t[i].n;
        cb->head = ins ? PAGE - 32 : 0;
        llwpcb(user_cb);
        set_pte(ins, 0);
        enter64(t[i].code);
        report(run() == PF && regs.rip == start + t[i].behind &&
               fault_address == RING_ADDR + ins * PAGE && r->event == 0,
               "%s, ring missing: #PF behind it", t[i].name);
        set_pte(ins, PTE_ALL);
        run();
        report(regs.vector == (t[i].code == code_ud2 ? UD : EXIT) &&
               record_is(r, IRE, 0, 0, start + t[i].at, 0) &&
               r[1].event == 0, "page mapped: stored once");
    }
}

/* §4.2: what LWP_CFG withdraws stops at once. */
static void test_cfg(void)
{
    uint64_t cfg = rdmsr(MSR_LWP_CFG);

    prepare_events(ALL, MANY);
    set_event(IRE, 7, 100);
    llwpcb(user_cb);
    enter64(nops);
    run();
    wrmsr(MSR_LWP_CFG, cfg & ~FLAG(IRE));
    enter64(nops);
    report(run() == EXIT && ring[0].event == 0 &&
           (save(), left(CNH)) == MANY - 2 * NOPS &&
           area.lwp.flags == (ALL & ~FLAG(IRE)),
           "LWP_CFG withdraws IRE: no record, CNH counts on");
    wrmsr(MSR_LWP_CFG, cfg);
    enter64(nops);
    report(run() == EXIT && ring[0].event == 0 &&
           (save(), left(CNH)) == MANY - 3 * NOPS &&
           area.lwp.flags == (ALL & ~FLAG(IRE)),
           "LWP_CFG grants IRE: it does not start by itself");
    wrmsr(MSR_LWP_CFG, 0);
    enter64(code_loop);
    report(run() == EXIT && (save(), area.lwp.flags) == 0 &&
           area.lwp.cb == CB_ADDR && area.lwp.counter[CNH - 1] == 0,
           "LWP_CFG = 0: nothing counts");
    wrmsr(MSR_LWP_CFG, cfg);

    begin(ALL);
    wrmsr(MSR_LWP_CBADDR, 0);
    enter64(code_loop);
    report(run() == EXIT && cb->event[IRE - 1].counter == MANY,
           "LWP_CBADDR = 0: nothing counts");
}

/* Instructions of nops() that count; @how it started */
enum { LLWPCB, XRSTOR };

static bool filtered(int how, uint32_t filters, int first, int last)
{
    int in = first <= last ? last - first + 1 : 0;
    int n;

    prepare_events(FLAG(IRE), 0);
    cb->filters = filters;
    cb->base_ip = nop_insn(first);
    cb->limit_ip = nop_insn(last);
    llwpcb(user_cb);
    if (how == XRSTOR) {
        save();
        wrmsr(MSR_LWP_CBADDR, 0);
        xrstor(&area, LWP_XSTATE);
    }
    enter64(nops);
    if (run() != EXIT) {
        return false;
    }
    if (!(filters & FILTER_IPI)) {
        for (n = 0; n < in; n++) {
            if (ring[n].ip != nop_insn(first + n)) {
                return false;
            }
        }
    } else {
        n = NOPS - in;
        if (n && (ring[0].ip != nop_insn(in && first == 0 ? in : 0) ||
                  ring[n - 1].ip !=
                  nop_insn(NOPS - 1 - (last == NOPS - 1 ? in : 0)))) {
            return false;
        }
    }
    return cb->head == n * 32 && ring[n].event == 0;
}

static void test_filter(void)
{
    static const char *const names[] = { "LLWPCB", "XRSTOR at CPL 0" };

    if (!(cpuid_reg(0x8000001c, 0, 2) & (1u << 29))) {
        ml_printf("SKIP: no IP filter\n");
        return;
    }
    for (int how = LLWPCB; how <= XRSTOR; how++) {
        bool in = true, out = true;

        for (int first = 0; first < NOPS; first += 7) {
            for (int last = first - 1; last < NOPS; last += 6) {
                in &= filtered(how, FILTER_IPF, first, last);
                out &= filtered(how, FILTER_IPF | FILTER_IPI, first, last);
            }
        }
        report(in, "%s: BaseIP to LimitIP, inclusive", names[how]);
        report(out, "%s: all but BaseIP to LimitIP", names[how]);
        report(filtered(how, FILTER_IPI, 0, NOPS - 1) == false &&
               cb->head == NOPS * 32, "%s: IPI without IPF", names[how]);
    }

    /* Code that does not count does not keep records waiting. */
    for (int n = 0; n < 4; n++) {
        prepare_events(FLAG(IRE), MANY);
        cb->event[IRE - 1].counter = n;
        cb->filters = FILTER_IPF;
        cb->base_ip = (uintptr_t)code_leave;
        cb->limit_ip = (uintptr_t)code_leave + 3;
        llwpcb(user_cb);
        enter64(code_leave);
        regs.rbx = CB_ADDR;
        report(run() == EXIT && regs.rax == sizeof(*ring) &&
               ring[0].event == IRE &&
               ring[0].ip == (uintptr_t)code_leave + n &&
               ring[1].event == 255,
               "instruction %d before the filter's end: stored at once", n);
    }

    /* The image has no BaseIP: the program reads it (§8.2.5). */
    prepare_events(FLAG(IRE) | FLAG(BRE), MANY);
    cb->filters = FILTER_IPF;
    cb->base_ip = (uintptr_t)code_loop + 5;
    cb->limit_ip = (uintptr_t)code_loop + 6;
    llwpcb(user_cb);
    save();
    wrmsr(MSR_LWP_CBADDR, 0);
    xrstor(&area, LWP_XSTATE);
    set_pte(2, 0);
    enter64(code_loop);
    report(run() == PF && regs.rip == (uintptr_t)code_loop &&
           fault_address / PAGE == CB_ADDR / PAGE,
           "XRSTOR, LWPCB missing: #PF at the first instruction");
    set_pte(2, PTE_ALL);
    report(run() == EXIT && (save(), left(IRE)) == MANY - 100 &&
           left(BRE) == MANY, "page mapped: DEC counts, JNZ does not");
    cb->limit_ip++;
    xrstor(&area, LWP_XSTATE);
    enter64(code_loop);
    report(run() == EXIT && (save(), left(IRE)) == MANY - 300 &&
           left(BRE) == MANY - 100, "XRSTOR reads LimitIP again");

    /* The program goes on elsewhere, and it is LWPVAL that reads them. */
    prepare_events(LWP_FLAG_VAL | FLAG(IRE), 9);
    cb->filters = FILTER_IPF;
    cb->limit_ip = UINT64_MAX;
    llwpcb(user_cb);
    save();
    wrmsr(MSR_LWP_CBADDR, 0);
    xrstor(&area, LWP_XSTATE);
    set_pte(2, 0);
    enter64(code_loop);
    report(run() == PF && regs.rip == (uintptr_t)code_loop,
           "XRSTOR, LWPCB missing: #PF");
    enter64(code_val);
    report(run() == PF && regs.rip == (uintptr_t)code_val + 1,
           "LWPVAL elsewhere: #PF");
    set_pte(2, PTE_ALL);
    report(run() == EXIT && (save(), left(LWP_VAL)) == 8,
           "page mapped: LWPVAL counts");
    enter64(nops);
    report(run() == EXIT && cb->head >= 6 * 32 && ring[0].event == IRE &&
           (save(), left(IRE)) >= 0, "and other events have records again");
}

/* Stores of LWP's may meet a data breakpoint, or only its page. */
static void test_watched(void)
{
    bool ok = true;

    prepare_events(FLAG(IRE), 100);
    llwpcb(user_cb);
    enter64(code_body);
    regs.rcx = 200;
    set_breakpoint(RING_ADDR + 3 * 32, DR7_WRITE4);
    report(run_mended() >= 0 && samples_are(IRE, 100, 101, 1200, body_insn),
           "data breakpoint at one of many records");
    set_breakpoint(0, 0);
    prepare_events(FLAG(IRE), 100);
    llwpcb(user_cb);
    enter64(code_body);
    regs.rcx = 200;
    set_breakpoint((uintptr_t)&user_cb->head, DR7_WRITE4);
    report(run_mended() >= 0 && samples_are(IRE, 100, 101, 1200, body_insn),
           "data breakpoint at BufferHeadOffset");
    set_breakpoint(0, 0);
    /* The store of a record does not hide that a step has been made. */
    prepare_events(FLAG(IRE), 5);
    llwpcb(user_cb);
    enter64(nops);
    regs.rflags |= FLAG_TF;
    set_breakpoint(RING_ADDR, DR7_WRITE4);
    for (int n = 1; n <= 6; n++) {
        ok &= run() == DB && regs.rip == (uintptr_t)nops + n;
    }
    set_breakpoint(0, 0);
    report(ok, "single steps and a data breakpoint at a record");
    for (int at = 64; at >= 0; at -= 64) {
        fault_at(20);
        set_pte(0, PTE_ALL);
        set_breakpoint(RING_ADDR + at, DR7_WRITE4);
        report(run_mended() >= 0 && stored_once(20) &&
               left(CNH) == MANY - NOPS && left(IRE) == 1000 - (NOPS - 21),
               "data breakpoint %d bytes behind the slot", at);
        set_breakpoint(0, 0);
    }
}

int main(void)
{
    kernel_init();
    lwp_make_available();
    report((cpuid_reg(0x8000001c, 0, 0) & ALL) == ALL,
           "the events are available");
    test_counts();
    test_fetch();
    test_kernel();
    test_session();
    test_breakpoints();
    test_steps();
    test_load_ss();
    test_intervals();
    test_compat();
    test_fault();
    test_stale();
    test_fault_insn();
    test_error_code();
    test_mended();
    test_cfg();
    test_filter();
    test_watched();
    return report_summary();
}
