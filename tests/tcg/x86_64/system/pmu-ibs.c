/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD's Instruction-Based Sampling: registers, the extended LVT, which
 * instruction a sample is about, what it has, and when it interrupts.
 *
 * Runs on any processor that may have it.  The output is the same with -icount
 * shift=0 and with one-insn-per-tb=on.
 */

#include "pmu-kernel.h"
#include "lwp-kernel.h"
#include "kernel-smm.h"
#include "kernel-svm.h"

#define MSR_IBS(reg)    (0xc0011030 + (reg))

enum {
    FETCH_CTL, FETCH_LIN_AD, FETCH_PHYS_AD, OP_CTL, OP_RIP, OP_DATA, OP_DATA2,
    OP_DATA3, DC_LIN_AD, DC_PHYS_AD, IBS_CTL, BR_TARGET, FETCH_CTL_EXT,
    OP_DATA4, NR_REGISTERS
};

/* The capability word */
enum {
    OP_CNT = 1 << 4, BRN_TRGT = 1 << 5, OP_CNT_EXT = 1 << 6,
    FETCH_CTL_EXTD = 1 << 9, HAS_DATA4 = 1 << 10, ZEN4 = 1 << 11,
};

#define FETCH_EN        (1ull << 48)
#define FETCH_VAL       (1ull << 49)
#define FETCH_COMP      (1ull << 50)
#define FETCH_IC_MISS   (1ull << 51)
#define FETCH_PHYS      (1ull << 52)
#define FETCH_L1TLB     (1ull << 55)
#define FETCH_L2TLB     (1ull << 56)
#define FETCH_RAND      (1ull << 57)

#define OP_L3_MISS_ONLY (1u << 16)
#define OP_EN           (1u << 17)
#define OP_VAL          (1u << 18)
#define OP_OPS          (1u << 19)
#define COUNT(n)        ((uint64_t)(n) << 32)
/* The op behind @n others; a new period has at least 128 of them. */
#define AFTER(n)        (16 | OP_EN | OP_OPS | COUNT(256 - (n)))
#define AT_ONCE         (1 | OP_EN | OP_OPS | COUNT(16))

/* OP_DATA */
#define RETURN          (1ull << 34)
#define TAKEN           (1ull << 35)
#define MISPREDICTED    (1ull << 36)
#define BRANCH          (1ull << 37)

/* OP_DATA3 */
enum {
    LOAD = 1 << 0, STORE = 1 << 1, DC_MISS = 1 << 7, MISALIGNED = 1 << 8,
    UC = 1 << 14, LOCKED = 1 << 15, LIN = 1 << 17, PHYS = 1 << 18,
    L2_MISS = 1 << 20,
};
#define WIDTH(n)        ((n) << 22)
#define TLB_BITS        0x8007cull      /* of the page, which is of 2 MiB */

enum { NMI = 2, VECTOR = 0x40, LOW_VECTOR = 0x14 };
enum { IRE = 2 };
enum { APIC_VERSION = 0x30, APIC_EXT = 0x400, APIC_EILVT = 0x500 };

static unsigned family, model;
static uint32_t caps;
static bool has_l2_miss;
static uint32_t eilvt;          /* the APIC's register */

static uint8_t data[8192] __attribute__((aligned(4096)));

static uint64_t ibs(int reg)
{
    return rdmsr(MSR_IBS(reg));
}

static void stop(void)
{
    wrmsr(MSR_IBS(OP_CTL), 0);
    wrmsr(MSR_IBS(FETCH_CTL), 0);
}

/* Run @fn, whose first instruction writes @val to register @reg. */
static unsigned run_from(void (*fn)(void), int reg, uint64_t val)
{
    set_up(CODE64, (uintptr_t)fn);
    regs.rcx = MSR_IBS(reg);
    regs.rax = (uint32_t)val;
    regs.rdx = val >> 32;
    regs.rsi = (uintptr_t)data;
    regs.rdi = (uintptr_t)data + 1024;
    return run();
}

static bool has_register(int reg)
{
    switch (reg) {
    case BR_TARGET:
        return caps & BRN_TRGT;
    case FETCH_CTL_EXT:
        return caps & FETCH_CTL_EXTD;
    case OP_DATA4:
        return caps & HAS_DATA4;
    default:
        return true;
    }
}

static void test_registers(void)
{
    uint32_t offset = family < 0x17;

    report((cpuid_reg(0x80000001, 0, 2) & 0x408) == 0x408,
           "CPUID: ibs, extapic");
    report(caps == (family == 0x10 ? 0x1f : family == 0x15 ? 0xff :
                    family == 0x19 && model >= 0x10 ? 0xbff : 0x3ff),
           "CPUID: capabilities %x", caps);
    for (int reg = 0; reg < NR_REGISTERS; reg++) {
        unsigned rd = at_cpl(0, rdmsr(MSR_IBS(reg)));
        unsigned wr = at_cpl(0, wrmsr(MSR_IBS(reg), 0));
        unsigned want = has_register(reg) ? EXIT : GP;

        report(rd == want && wr == want, "register %d: vectors %d, %d", reg, rd,
               wr);
        if (want == EXIT && reg != IBS_CTL) {
            wrmsr(MSR_IBS(reg), ~0ull);
            report(ibs(reg), "register %d: bits %lx", reg, ibs(reg));
            wrmsr(MSR_IBS(reg), 0);
        }
    }
    stop();
    report(ibs(IBS_CTL) == (0x100 | offset), "IBSCTL %lx", ibs(IBS_CTL));
    eilvt = APIC_EILVT + 16 * offset;
    report(APIC(APIC_VERSION) >> 31, "APIC: version %x", APIC(APIC_VERSION));
    report(APIC(APIC_EXT) == 0x40000, "APIC: 400H is %x", APIC(APIC_EXT));
    APIC(APIC_EXT) = ~0u;
    APIC(APIC_EXT + 16) = ~0u;
    report(APIC(APIC_EXT) == 0x40000 && APIC(APIC_EXT + 16) == 0,
           "APIC: 400H is read-only, and 410H has nothing to control");
    for (int i = 0; i < 4; i++) {
        uint32_t first = APIC(APIC_EILVT + 16 * i);

        APIC(APIC_EILVT + 16 * i) = ~0u;
        report(first == LVT_MASKED && APIC(APIC_EILVT + 16 * i) == 0x107ff,
               "APIC: entry %d is %x, then %x", i, first,
               APIC(APIC_EILVT + 16 * i));
        APIC(APIC_EILVT + 16 * i) = LVT_MASKED;
    }
    APIC(eilvt) = LVT_NMI;
}

/* Counting begins behind WRMSR. */
PLACE(nops_first);
CODE(nops, "wrmsr\n .globl nops_first\n nops_first: .rept 200\n nop\n .endr")

static void test_distance(void)
{
    static const struct {
        uint32_t max, first;
    } periods[] = {
        { 1, 0 }, { 1, 5 }, { 1, 15 }, { 1, 16 }, { 1, 77 }, { 3, 1 }, { 9, 0 }
    };

    for (int i = 0; i < ARRAY_SIZE(periods); i++) {
        uint32_t end = 16 * periods[i].max, n = periods[i].first;
        uint32_t ops = n < end ? end - n : 0;
        uint64_t at = (uintptr_t)nops_first + ops, ctl;
        unsigned vector;

        vector = run_from(nops, OP_CTL,
                          periods[i].max | OP_EN | OP_OPS | COUNT(n));
        ctl = ibs(OP_CTL);
        report(vector == NMI && regs.rip == at + 1 && ibs(OP_RIP) == at &&
               (ctl & 0x80fffffffful) ==
               (periods[i].max | OP_EN | OP_OPS | OP_VAL),
               "%d ops of %d: vector %d, RIP %ld, sample %ld, CTL %lx", n, end,
               vector, regs.rip - (uintptr_t)nops_first,
               ibs(OP_RIP) - (uintptr_t)nops_first, ctl);
        /* Everything stands, and nothing interrupts again. */
        vector = run();
        report(vector == EXIT && ibs(OP_CTL) == ctl, "it stands: vector %d",
               vector);
        stop();
        wrmsr(MSR_IBS(OP_CTL), ctl & COUNT(~0u));
        report(ibs(OP_CTL) == (ctl & COUNT(~0u)) && ibs(OP_RIP) == at,
               "when it is stopped, the count that is written: CTL %lx",
               ibs(OP_CTL));
    }
    /* By clocks, which an instruction takes one of */
    report(run_from(nops, OP_CTL, 1 | OP_EN) == NMI &&
           ibs(OP_RIP) == (uintptr_t)nops_first + 16, "by clocks: 16");
    stop();
    report(run_from(nops, OP_CTL, OP_EN) == EXIT, "no end: no sample");
    stop();
}

PLACE(fetch_first);
CODE(fetches, "wrmsr\n .globl fetch_first\n"
     "fetch_first: .rept 100\n nop\n .endr")

static void test_fetch(void)
{
    uint64_t at = (uintptr_t)fetch_first + 16, ctl;

    report(run_from(fetches, FETCH_CTL, FETCH_EN | 2 | 1 << 16) == NMI &&
           regs.rip == at + 1, "fetches: RIP %ld",
           regs.rip - (uintptr_t)fetch_first);
    ctl = ibs(FETCH_CTL);
    report(ibs(FETCH_LIN_AD) == at && ibs(FETCH_PHYS_AD) == at &&
           (ctl & ~(3ull << 53 | FETCH_IC_MISS)) ==
           (FETCH_EN | FETCH_VAL | FETCH_COMP | FETCH_PHYS | 2 << 16 | 2),
           "fetches: addresses %lx, %lx, CTL %lx", ibs(FETCH_LIN_AD),
           ibs(FETCH_PHYS_AD), ctl);
    stop();
    for (int i = 0; i < 20; i++) {
        bool ok = run_from(fetches, FETCH_CTL, FETCH_EN | FETCH_RAND | 2) ==
                  NMI;

        at = ibs(FETCH_LIN_AD) - (uintptr_t)fetch_first;
        report(ok && at > 16 && at <= 32, "fetches at random: %ld", at);
        stop();
    }
}

PLACE(line_at);
CODE(new_line, "wrmsr\n .rept 15\n nop\n .endr\n jmp line_at\n"
     ".balign 4096\n .globl line_at\n line_at: nop")

/* Of the op that follows the jump, or the WRMSR */
static uint64_t fetch_misses(bool jump)
{
    uint64_t ctl = FETCH_EN | 1 << 16 | (jump ? 2 : 1);
    unsigned vector = run_from(new_line, FETCH_CTL, ctl);

    ctl = ibs(FETCH_CTL);
    stop();
    return vector == NMI && (ibs(FETCH_LIN_AD) == (uintptr_t)line_at) == jump ?
           ctl & (FETCH_IC_MISS | FETCH_L1TLB | FETCH_L2TLB) : ~0ull;
}

static void test_fetch_misses(void)
{
    uint64_t cr3;

    report(fetch_misses(true) == FETCH_IC_MISS, "a line's first fetch");
    report(fetch_misses(true) == 0, "and its second one");
    asm volatile("mov %%cr3, %0\n mov %0, %%cr3" : "=r" (cr3));
    report(fetch_misses(false) == (FETCH_L1TLB | FETCH_L2TLB),
           "a page's first fetch");
    report(fetch_misses(false) == 0, "and its second one");
}

/*
 * An NMI handler as Linux' is: one write goes on, En never 0.  The four
 * instructions behind that are ops, too.
 */
static uint64_t seen[64][2];
static uint64_t *next_seen;
PLACE(on_sample);
asm(".text\n"
    "on_sample:\n"
    "    push %rax\n push %rcx\n push %rdx\n push %rbx\n"
    "    mov next_seen, %rbx\n"
    "    mov $0xc0011034, %ecx\n"
    "    rdmsr\n"
    "    mov %eax, (%rbx)\n"
    "    mov %edx, 4(%rbx)\n"
    "    mov $0xc0011033, %ecx\n"
    "    rdmsr\n"
    "    mov %eax, 8(%rbx)\n"
    "    mov %edx, 12(%rbx)\n"
    "    addq $16, next_seen\n"
    "    and $0x7f, %edx\n"
    "    mov $0xa0005, %eax\n"
    "    pop %rbx\n"
    "    wrmsr\n"
    "    pop %rdx\n pop %rcx\n pop %rax\n"
    "    iretq\n");
PLACE(many_first);
CODE(many, "wrmsr\n .globl many_first\n"
     "many_first: .rept 1000\n nop\n .endr\n"
     "xor %eax, %eax\n xor %edx, %edx\n wrmsr\n")

static void test_again(void)
{
    uint64_t at = (uintptr_t)many_first + 80;
    unsigned n, vector, same = 0;

    next_seen = seen[0];
    set_handler(NMI, on_sample);
    vector = run_from(many, OP_CTL, 5 | OP_EN | OP_OPS);
    reset_handler(NMI);
    n = (next_seen - seen[0]) / 2;
    for (unsigned i = 0; i < n; i++) {
        uint32_t random = seen[i][1] >> 32;

        report(seen[i][0] == at && random < 128 &&
               (uint32_t)seen[i][1] == (5 | OP_EN | OP_OPS | OP_VAL),
               "sample %d: at %ld, should be %ld, CTL %lx", i,
               seen[i][0] - (uintptr_t)many_first,
               at - (uintptr_t)many_first, seen[i][1]);
        same += i && random == seen[i - 1][1] >> 32;
        /* With more than there are, or one of the handler's own */
        at += random < 76 ? 1 + 80 - random - 4 : 0;
        if (random >= 76) {
            break;
        }
    }
    report(vector == EXIT && n && !same, "sampled again and again: vector %d, "
           "%d times", vector, n);
    stop();
}

/* One instruction, behind WRMSR: where it begins, and where it may go */
#define ONE(name, before, insn) \
    CODE(name, before "\n wrmsr\n .globl " #name "_at, " #name "_to\n" \
         #name "_at: " insn "\n nop\n" #name "_to: nop\n")

void plain_at(void), not_taken_at(void), taken_at(void), jump_at(void),
     jump_ind_at(void), call_at(void), ret_at(void), iret_at(void);
void plain_to(void), not_taken_to(void), taken_to(void), jump_to(void),
     jump_ind_to(void), call_to(void), ret_to(void), iret_to(void);

ONE(plain, "", "nop")
ONE(not_taken, "stc", "jnc 1f\n 1:")
ONE(taken, "clc", "jnc taken_to")
ONE(jump, "", "jmp jump_to")
ONE(jump_ind, "lea jump_ind_to(%rip), %rbx", "jmp *%rbx")
ONE(call, "", "call call_to")
ONE(ret, "lea ret_to(%rip), %rbx\n push %rbx", "ret")
ONE(iret, "push $0x10\n push %rsp\n addq $8, (%rsp)\n pushf\n"
    "push $0x8\n lea iret_to(%rip), %rbx\n push %rbx", "iretq")

static const struct {
    const char *name;
    void (*fn)(void), (*at)(void), (*to)(void);
    uint64_t bits;              /* of OP_DATA, but whether it was predicted */
} branches[] = {
    { "no branch", plain, plain_at, NULL, 0 },
    { "Jcc", not_taken, not_taken_at, NULL, BRANCH },
    { "Jcc, taken", taken, taken_at, taken_to, BRANCH | TAKEN },
    { "JMP", jump, jump_at, jump_to, BRANCH | TAKEN },
    { "indirect JMP", jump_ind, jump_ind_at, jump_ind_to, BRANCH | TAKEN },
    { "CALL", call, call_at, call_to, BRANCH | TAKEN },
    { "RET", ret, ret_at, ret_to, BRANCH | TAKEN | RETURN },
    { "IRET", iret, iret_at, iret_to, BRANCH | TAKEN },
};

static void test_branches(void)
{
    for (int i = 0; i < ARRAY_SIZE(branches); i++) {
        uint64_t got, target = branches[i].to ? (uintptr_t)branches[i].to : 0;
        unsigned vector = run_from(branches[i].fn, OP_CTL, AT_ONCE);

        got = ibs(OP_DATA);
        report(vector == NMI && ibs(OP_RIP) == (uintptr_t)branches[i].at &&
               (got & 0xff00000000 & ~MISPREDICTED & ~(1ull << 33)) ==
               branches[i].bits && (got & 0xffff) == 1,
               "%s: vector %d, data %lx", branches[i].name, vector,
               got & ~MISPREDICTED);
        if (caps & BRN_TRGT) {
            report(ibs(BR_TARGET) == target, "%s: its target",
                   branches[i].name);
        }
        stop();
    }
}

#define TOUCH   "mov (%rsi), %rbx\n mov (%rdi), %rbx\n mov 64(%rsi), %rbx"

void load_at(void), load4_at(void), load16_at(void), store_at(void),
     update_at(void), locked_at(void), exchange_at(void), split_at(void),
     movs_at(void), push_at(void), x87_at(void), miss_at(void),
     store_miss_at(void), device_at(void);

ONE(load, TOUCH, "mov (%rsi), %rbx")
ONE(load4, TOUCH, "mov 4(%rsi), %ebx")
ONE(load16, TOUCH, "movaps (%rsi), %xmm0")
ONE(store, TOUCH, "movb $0, 3(%rsi)")
ONE(update, TOUCH, "addw $1, 2(%rsi)")
ONE(locked, TOUCH, "lock incq (%rsi)")
ONE(exchange, TOUCH, "xchg %rbx, (%rsi)")
ONE(split, TOUCH, "mov 60(%rsi), %rbx")
ONE(movs, TOUCH, "movsq")
ONE(push, TOUCH, "push (%rsi)")
ONE(x87, TOUCH, "fldt (%rsi)")
ONE(miss, "clflush (%rsi)\n mfence", "mov (%rsi), %rbx")
ONE(store_miss, "clflush (%rsi)\n mfence", "mov %rbx, (%rsi)")
ONE(device, "mov $0xfee00030, %ebx", "mov (%rbx), %ebx")

static const struct {
    const char *name;
    void (*fn)(void), (*at)(void);
    uint64_t addr;              /* behind data; or of a device */
    uint32_t bits;              /* of OP_DATA3, all that there may be */
    unsigned source;
} accesses[] = {
    { "load", load, load_at, 0, LOAD | WIDTH(4), 0 },
    { "4 bytes", load4, load4_at, 4, LOAD | WIDTH(3), 0 },
    { "16 bytes", load16, load16_at, 0, LOAD | WIDTH(5), 0 },
    { "store", store, store_at, 3, STORE | WIDTH(1), 0 },
    { "both", update, update_at, 2, LOAD | STORE | WIDTH(2), 0 },
    { "LOCK", locked, locked_at, 0, LOAD | STORE | LOCKED | WIDTH(4), 0 },
    { "XCHG", exchange, exchange_at, 0, LOAD | STORE | LOCKED | WIDTH(4), 0 },
    { "two lines", split, split_at, 60, LOAD | MISALIGNED | WIDTH(4), 0 },
    { "MOVS", movs, movs_at, 0, LOAD | STORE | WIDTH(4), 0 },
    { "PUSH", push, push_at, 0, LOAD | STORE | WIDTH(4), 0 },
    { "load from DRAM", miss, miss_at, 0,
      LOAD | DC_MISS | L2_MISS | WIDTH(4), 3 },
    { "store to DRAM", store_miss, store_miss_at, 0,
      STORE | DC_MISS | L2_MISS | WIDTH(4), 0 },
    { "device", device, device_at, 0xfee00030,
      LOAD | DC_MISS | L2_MISS | UC | WIDTH(3), 7 },
};

static void test_accesses(void)
{
    uint32_t there = has_l2_miss ? ~0u : 0xfffff;

    for (int i = 0; i < ARRAY_SIZE(accesses); i++) {
        uint64_t want = (accesses[i].bits & there) | LIN | PHYS;
        bool slow = (accesses[i].bits & (LOAD | DC_MISS)) == (LOAD | DC_MISS);
        uint64_t addr = accesses[i].addr, got;
        unsigned vector;

        /* The model knows nothing of what was before the first time. */
        run_from(accesses[i].fn, OP_CTL, AT_ONCE);
        stop();
        vector = run_from(accesses[i].fn, OP_CTL, AT_ONCE);
        got = ibs(OP_DATA3);
        addr += addr < 4096 ? (uintptr_t)data : 0;
        report(vector == NMI && ibs(OP_RIP) == (uintptr_t)accesses[i].at &&
               (got & 0xfffffffful & ~TLB_BITS) == want &&
               (got >> 32 & 0xffff) == (slow ? accesses[i].source == 3 ? 200 :
                                        400 : 0),
               "%s: vector %d, %lx, should be %lx", accesses[i].name, vector,
               got, want);
        report(ibs(DC_LIN_AD) == addr && ibs(DC_PHYS_AD) == addr &&
               ibs(OP_DATA2) == accesses[i].source, "%s: at %lx, %lx from %lx",
               accesses[i].name, ibs(DC_LIN_AD), ibs(DC_PHYS_AD),
               ibs(OP_DATA2));
        stop();
    }
    report(run_from(x87, OP_CTL, AT_ONCE) == NMI &&
           (ibs(OP_DATA3) & LOAD), "x87");
    stop();
    report(run_from(plain, OP_CTL, AT_ONCE) == NMI && !ibs(OP_DATA3) &&
           !ibs(OP_DATA2) && !ibs(DC_LIN_AD) && !ibs(DC_PHYS_AD),
           "no access: %lx", ibs(OP_DATA3));
    stop();
}

void rep_movs_at(void), rep_stos_at(void), rep_lods_at(void), rep_scas_at(void);

#define STRING(name, insn) \
    CODE(name, "wrmsr\n mov $7, %ecx\n .globl " #name "_at\n" \
               #name "_at: " insn "\n nop\n nop")

STRING(rep_movs, "rep movsb")
STRING(rep_stos, "rep stosb")
STRING(rep_lods, "rep lodsw")
STRING(rep_scas, "repe scasb")

/* Of the last iteration, behind which they retire */
static void test_strings(void)
{
    static const struct {
        const char *name;
        void (*fn)(void), (*at)(void);
        unsigned addr, bits;
    } strings[] = {
        { "REP MOVS", rep_movs, rep_movs_at, 6, LOAD | STORE | WIDTH(1) },
        { "REP STOS", rep_stos, rep_stos_at, 1030, STORE | WIDTH(1) },
        { "REP LODS", rep_lods, rep_lods_at, 12, LOAD | WIDTH(2) },
        { "REPE SCAS of what that has stored", rep_scas, rep_scas_at, 1030,
          LOAD | WIDTH(1) },
    };
    uint32_t there = has_l2_miss ? ~0u : 0xfffff;

    for (int i = 0; i < ARRAY_SIZE(strings); i++) {
        unsigned vector = run_from(strings[i].fn, OP_CTL, AFTER(1));

        report(vector == NMI && ibs(OP_RIP) == (uintptr_t)strings[i].at &&
               !regs.rcx && regs.rip == (uintptr_t)strings[i].at + 2 +
               (strings[i].fn == rep_lods) &&
               (ibs(OP_DATA3) & (LOAD | STORE | LIN | WIDTH(15))) ==
               ((strings[i].bits | LIN) & there) &&
               ibs(DC_LIN_AD) == (uintptr_t)data + strings[i].addr,
               "%s: vector %d, %lx at %lx", strings[i].name, vector,
               ibs(OP_DATA3), ibs(DC_LIN_AD) - (uintptr_t)data);
        stop();
    }
}

PLACE(faults_at);
CODE(faults, "wrmsr\n .globl faults_at\n faults_at: ud2")

/* A fault is no op, and a new period begins. */
static void test_fault(void)
{
    unsigned vector = run_from(faults, OP_CTL, 9 | OP_EN | OP_OPS | COUNT(144));
    uint64_t ctl = ibs(OP_CTL);

    stop();
    report(vector == UD && regs.rip == (uintptr_t)faults_at && ctl >> 32 < 144,
           "fault: vector %d, CTL %lx", vector, ctl);
}

/* To itself; an interrupt with a vector that faults have, too */
CODE(interrupted, "wrmsr\n"
     "mov $0x44014, %eax\n movabs %eax, 0xfee00300\n sti\n nop\n nop")

/* The op that is due is the handler's first one. */
static void test_interrupt(void)
{
    TableRegister idtr;
    const uint16_t *gate;
    unsigned vector;

    asm volatile("sidt %0" : "=m" (idtr));
    gate = (const uint16_t *)(idtr.base + 16 * LOW_VECTOR);
    APIC(eilvt) = LVT_MASKED | LVT_NMI;
    vector = run_from(interrupted, OP_CTL, 9 | OP_EN | OP_OPS | COUNT(140));
    report(vector == LOW_VECTOR && (ibs(OP_CTL) & OP_VAL) &&
           (uint32_t)ibs(OP_RIP) == (gate[0] | (uint32_t)gate[3] << 16),
           "interrupt: vector %d, RIP %lx", vector, ibs(OP_RIP));
    APIC(APIC_EOI) = 0;
    stop();
    APIC(eilvt) = LVT_NMI;
}

static uint64_t handler_of(unsigned vector)
{
    return (uintptr_t)trap_stubs + 16 * vector;
}

PLACE(profiled_first);
CODE(profiled, "mov %rsi, %rsp\n wrmsr\n iretq\n .globl profiled_first\n"
     "profiled_first: .rept 1000\n nop\n .endr")

/* At CPL 3, behind a write of @ctl to OP_CTL and IRET; returns the vector. */
static unsigned run_profiled(uint64_t ctl)
{
    uint64_t frame[5] = { (uintptr_t)profiled_first, USER_CODE64, 2,
                          (uintptr_t)user_stack + sizeof(user_stack),
                          USER_DATA };

    set_up(CODE64, (uintptr_t)profiled);
    regs.rsi = (uintptr_t)frame;
    regs.rcx = MSR_IBS(OP_CTL);
    regs.rax = (uint32_t)ctl;
    regs.rdx = ctl >> 32;
    return run();
}

/* A record of LWP cannot be stored: that is no fault of the op behind it. */
static void test_lwp(void)
{
    unsigned vector, left = 0;

    lwp_make_available();
    APIC(eilvt) = LVT_MASKED | LVT_NMI;
    /* Without a sample first, to see where it is */
    for (int i = 0; i < 2; i++) {
        prepare(1u << IRE);
        cb->event[IRE - 1].interval = cb->event[IRE - 1].counter = 9;
        at_cpl(3, llwpcb(user_cb));
        set_pte(0, 0);
        vector = run_profiled(i ? AFTER(1 + left) : 0);
        left = regs.rip - (uintptr_t)profiled_first;
    }
    report(vector == PF && left && left < 20 && (ibs(OP_CTL) & OP_VAL) &&
           ibs(OP_RIP) == handler_of(PF),
           "#PF of a record of LWP: vector %d, RIP %lx", vector, ibs(OP_RIP));
    stop();
    wrmsr(MSR_LWP_CBADDR, 0);
    set_pte(0, PTE_ALL);
    APIC(eilvt) = LVT_NMI;
}

/* LWP, a counter and samples of ops have the same program. */
static void test_together(void)
{
    enum { EVERY = 20 };
    uint64_t first = (uintptr_t)profiled_first, at = first + 79, ip;
    unsigned vector, n, records;
    bool ok = true;

    prepare(1u << IRE);
    cb->size = 2 * PAGE;
    cb->event[IRE - 1].interval = cb->event[IRE - 1].counter = EVERY - 1;
    at_cpl(3, llwpcb(user_cb));
    wrmsr(MSR_K7_EVTSEL(0), 0xc0 | EVTSEL_USR | EVTSEL_EN);
    wrmsr(MSR_K7_PERFCTR(0), 0);
    next_seen = seen[0];
    set_handler(NMI, on_sample);
    vector = run_profiled(5 | OP_EN | OP_OPS);
    stop();
    reset_handler(NMI);
    wrmsr(MSR_K7_EVTSEL(0), 0);
    slwpcb();
    n = (next_seen - seen[0]) / 2;
    for (unsigned i = 0; i < n && at < first + 1000; i++) {
        uint32_t random = seen[i][1] >> 32;

        ok &= seen[i][0] == at;
        if (random >= 76) {
            break;                      /* one of the handler's own */
        }
        at += 1 + 80 - random - 4;
    }
    report(vector == EXIT && n && ok, "all at once: samples");
    report(rdmsr(MSR_K7_PERFCTR(0)) == 1001, "all at once: %ld instructions",
           rdmsr(MSR_K7_PERFCTR(0)));
    records = cb->head / sizeof(LwpRecord);
    ok = records == 1000 / EVERY && !cb->missed && ring[0].ip >= first &&
         ring[0].ip < first + EVERY;
    ip = ring[0].ip;
    for (unsigned i = 0; i < records; i++) {
        ok &= ring[i].ip == ip + i * EVERY;
    }
    report(ok, "all at once: %d records of LWP", records);
    wrmsr(MSR_LWP_CBADDR, 0);
}

/* --- guests --------------------------------------------------------------- */

static Vmcb vmcb __attribute__((aligned(PAGE)));
static uint8_t host_save[PAGE] __attribute__((aligned(PAGE)));
static uint8_t guest_stack[1024] __attribute__((aligned(16)));

PLACE(guest_first);
PLACE(host_first);

/* VMRUN as the second op behind a WRMSR of OP_CTL; the guest has 20 ops. */
static void __attribute__((naked, noinline)) enter(uint64_t ctl, Vmcb *v)
{
    asm("push %rbx\n push %rbp\n"
        "push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rdi, %rdx\n shr $32, %rdx\n mov %edi, %eax\n"
        "mov $0xc0011033, %ecx\n wrmsr\n"
        "mov %rsi, %rax\n vmrun %rax\n"
        ".globl host_first\n host_first: nop\n nop\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n"
        "pop %rbp\n pop %rbx\n"
        "ret\n"
        ".globl guest_first\n guest_first: .rept 20\n nop\n .endr\n"
        "vmmcall\n");
}

static uint64_t enter_guest(uint64_t ctl, uint32_t inject)
{
    set_vmcb(&vmcb, 0, guest_first,
             (uintptr_t)guest_stack + sizeof(guest_stack));
    vmcb.inject = inject;
    intercept_exit(&vmcb, EXIT_NMI, true);
    enter(ctl, &vmcb);
    return vmcb.exit;
}

/* Whatever has become pending while GIF is clear; EXIT if nothing has */
static unsigned take_pending(void)
{
    unsigned vector = at_cpl(0, asm volatile("stgi\n nop"));

    /* The IRET behind an NMI */
    at_cpl(0, asm volatile("nop"));
    return vector;
}

static void test_guest(void)
{
    static const struct {
        const char *name;
        uint8_t ops;            /* in front of the one that is sampled, */
        uint8_t at;             /* in the guest */
    } t[] = {
        /* VMRUN does not tell where it was. */
        { "VMRUN", 1, 0 }, { "the first one", 2, 0 }, { "the tenth", 11, 9 },
        { "the last one", 21, 19 },
    };
    static const uint32_t injected[] = {
        INJECT | LOW_VECTOR, INJECT | 3 << 8 | UD,
    };
    uint64_t exit;

    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SVME);
    wrmsr(MSR_HSAVE_PA, (uintptr_t)host_save);
    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        uint64_t at = (uintptr_t)guest_first + t[i].at;

        exit = enter_guest(AFTER(t[i].ops), 0);
        report(exit == EXIT_NMI && vmcb.rip == at + 1 && ibs(OP_RIP) == at &&
               take_pending() == NMI, "guest, %s: exit %lx at %ld, sample %ld",
               t[i].name, exit, vmcb.rip - (uintptr_t)guest_first,
               ibs(OP_RIP) - (uintptr_t)guest_first);
        stop();
    }
    /* VMMCALL does not retire. */
    exit = enter_guest(AFTER(22), 0);
    report(exit == EXIT_VMMCALL && ibs(OP_RIP) == (uintptr_t)host_first &&
           take_pending() == NMI,
           "guest: armed there, the sample is of what follows VMRUN");
    stop();
    /* With GIF clear, it waits for the guest. */
    asm volatile("clgi");
    exit = enter_guest(AFTER(0), 0);
    report(exit == EXIT_NMI && vmcb.rip == (uintptr_t)guest_first &&
           take_pending() == NMI, "guest: an NMI that waited exits, %lx at %ld",
           exit, vmcb.rip - (uintptr_t)guest_first);
    stop();
    for (int i = 0; i < ARRAY_SIZE(injected); i++) {
        uint64_t at = handler_of((uint8_t)injected[i]);

        exit = enter_guest(AFTER(2), injected[i]);
        report(exit == EXIT_NMI && ibs(OP_RIP) == at && vmcb.rip == at + 2,
               "guest, vector %d injected: exit %lx, sample of the handler's "
               "first", (uint8_t)injected[i], exit);
        take_pending();
        stop();
    }
}

static void test_l3_miss_only(void)
{
    uint64_t ctl, only = AT_ONCE | OP_L3_MISS_ONLY;
    unsigned vector;

    if (!(caps & ZEN4)) {
        return;
    }
    vector = run_from(load, OP_CTL, only);
    ctl = ibs(OP_CTL);
    stop();                         /* What report() does may miss. */
    report(vector == EXIT && !(ctl & OP_VAL),
           "L3MissOnly: what hits has no sample");
    report(run_from(miss, OP_CTL, only) == NMI &&
           ibs(OP_RIP) == (uintptr_t)miss_at, "L3MissOnly: what misses has");
    stop();
}

/* --- the extended LVT ----------------------------------------------------- */

PLACE(smi_code);
PLACE(smi_code_end);
asm(".text\n .code16\n"
    "smi_code: incw %cs:(smi_count - smi_code + 0x8000)\n"
    "    rsm\n"
    "smi_count: .word 0\n"
    "smi_code_end: .code64\n");

static void test_messages(void)
{
    unsigned vector;

    APIC(eilvt) = LVT_MASKED | LVT_NMI;
    vector = run_from(nops, OP_CTL, AT_ONCE);
    report(vector == EXIT && (ibs(OP_CTL) & OP_VAL), "masked: vector %d",
           vector);
    APIC(eilvt) = LVT_NMI;
    report(run_from(nops, OP_RIP, 0) == EXIT,
           "a sample that waits interrupts no more");
    stop();
    report(run_from(nops, OP_CTL, AT_ONCE) == NMI && APIC(eilvt) == LVT_NMI,
           "an NMI masks nothing");
    stop();
    APIC(eilvt) = VECTOR;
    set_up(CODE64, (uintptr_t)nops);
    regs.rflags |= FLAG_IF;
    regs.rcx = MSR_IBS(OP_CTL);
    regs.rax = (uint32_t)AT_ONCE;
    regs.rdx = AT_ONCE >> 32;
    vector = run();
    report(vector == VECTOR && regs.rip == (uintptr_t)nops_first + 1,
           "fixed: vector %d, RIP %ld", vector,
           regs.rip - (uintptr_t)nops_first);
    APIC(APIC_EOI) = 0;
    stop();
    APIC(APIC_SVR) = 0xff;
    APIC(eilvt) = LVT_NMI;
    report(run_from(nops, OP_CTL, AT_ONCE) == EXIT, "no APIC, no interrupt");
    APIC(APIC_SVR) = 0x1ff;
    stop();
    APIC(eilvt) = 0x200;
    set_smi_code((uintptr_t)smi_code, (uintptr_t)smi_code_end);
    vector = run_from(nops, OP_CTL, AT_ONCE);
    report(vector == EXIT && ibs(OP_RIP) == (uintptr_t)nops_first,
           "SMI: vector %d", vector);
    stop();
    APIC(eilvt) = LVT_NMI;
}

#define X2APIC(offset)  (0x800 + (offset) / 16)

/* For good, as there is no way back but by a disabled APIC */
static void test_x2apic(void)
{
    enum { BASE = 0x1b, EXTD = 1 << 10 };
    uint32_t entry = X2APIC(eilvt);

    wrmsr(BASE, rdmsr(BASE) | EXTD);
    report(rdmsr(X2APIC(APIC_EXT)) == 0x40000, "x2APIC: 840H is %lx",
           rdmsr(X2APIC(APIC_EXT)));
    wrmsr(X2APIC(APIC_EXT + 16), 5);
    report(rdmsr(X2APIC(APIC_EXT + 16)) == 0, "x2APIC: 841H");
    for (int i = 0; i < 4; i++) {
        uint32_t msr = X2APIC(APIC_EILVT + 16 * i);
        uint64_t first = rdmsr(msr);

        wrmsr(msr, LVT_MASKED | i);
        report(first == (msr == entry ? LVT_NMI : LVT_MASKED) &&
               rdmsr(msr) == (LVT_MASKED | i), "x2APIC: MSR %x", msr);
    }
    report(at_cpl(0, rdmsr(X2APIC(APIC_EILVT + 16 * 4))) == GP,
           "x2APIC: no fifth entry");
    wrmsr(entry, LVT_NMI);
    report(run_from(nops, OP_CTL, AT_ONCE) == NMI &&
           ibs(OP_RIP) == (uintptr_t)nops_first, "x2APIC: an NMI");
    stop();
}

int main(void)
{
    uint32_t version = cpuid_reg(1, 0, 0);

    kernel_init();
    family = version >> 8 & 15;
    family += family == 15 ? version >> 20 & 255 : 0;
    model = (version >> 4 & 15) | (version >> 12 & 0xf0);
    caps = cpuid_reg(0x8000001b, 0, 0);
    has_l2_miss = family >= 0x16;
    apic_init(LVT_MASKED);
    test_registers();
    test_distance();
    test_fetch();
    test_fetch_misses();
    test_again();
    test_branches();
    test_accesses();
    test_fault();
    test_interrupt();
    test_lwp();
    test_together();
    test_guest();
    test_l3_miss_only();
    test_strings();
    test_messages();
    test_x2apic();
    return report_summary();
}
