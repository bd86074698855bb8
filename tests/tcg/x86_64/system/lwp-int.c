/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The threshold interrupt (Table 6-1 Threshold, §8.5) and the local APIC.
 *
 * An interrupt ends run() like any other exception.  The output is the same
 * with -icount shift=0, with one-insn-per-tb=on and on several processors.
 */

#include "lwp-kernel.h"

enum { IRE = 2, BRE = 3, DME = 4, CNH = 5, RNH = 6 };

#define FLAG(event)     (1u << (event))
#define MANY            10000000        /* more than any test counts */
#define FLAG_IF         (1u << 9)
#define FLAG_CF         (1u << 0)

/* Two priority classes */
enum { VECTOR = 0x51, HIGHER = 0x61 };

/* Local APIC: xAPIC offsets; x2APIC's MSR numbers are a 16th of them. */
enum {
    TPR = 0x80, EOI = 0xb0, SVR = 0xf0, ISR = 0x100, TMR = 0x180, IRR = 0x200,
    ESR = 0x280, LVT_TIMER = 0x320, LVT_ERROR = 0x370,
};
#define MSR_APIC_BASE   0x1b
#define APIC_BASE_X2    (1u << 10)
#define APIC_BASE_EN    (1u << 11)
#define MSR_X2APIC      0x800
#define SVR_ENABLED     0x1ff
#define LVT_MASKED      (1u << 16)
#define ICR_SELF        0x44000         /* fixed, asserted */
#define ICR_LEVEL       (1u << 15)

/* Code that ends with INT EXIT; RDI is a buffer. */
#define CODE(name, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm(insns "\n int $32"); \
    }

#define INS             "lwpins $1, %eax, %rdx\n"
#define INS_SIZE        9               /* also of LWPVAL */

CODE(ins, INS)
CODE(ins31, ".rept 31\n" INS ".endr")
CODE(ins100, ".rept 100\n" INS ".endr")
CODE(val31, ".rept 31\n lwpval $1, %eax, %rdx\n .endr")
CODE(nops, ".rept 16\n nop\n .endr")
CODE(loop, "mov $50, %ecx\n 1: dec %ecx\n jnz 1b")
CODE(loads, "mov $45, %ecx\n 1: mov (%rdi), %eax\n add $64, %rdi\n"
     "dec %ecx\n jnz 1b")
CODE(sti, "cli\n" INS "sti\n nop\n nop")
CODE(sti_jcc, "cli\n" INS "cmp %eax, %eax\n sti\n jz 1f\n nop\n 1: cli\n nop")
CODE(sti_rep, "cli\n" INS "mov $1, %ecx\n sti\n rep stosb\n cli\n nop")
CODE(sti_hlt, "cli\n" INS "sti\n hlt\n nop")
CODE(sti_ins_hlt, "cli\n sti\n" INS "hlt")
CODE(storm, "mov $700, %ecx\n mov $1, %eax\n"
     "1: imul $16777619, %eax, %eax\n xor %ecx, %eax\n call 2f\n"
     "dec %ecx\n jnz 1b\n jmp 3f\n"
     "2: test $3, %al\n jz 4f\n nop\n 4: ret\n"
     "3:")

static XsaveArea area;
static bool x2apic;
/* A page that no load has touched, for each mode of the APIC */
static uint8_t fresh[2][PAGE] __attribute__((aligned(PAGE)));

static uint32_t apic_read(unsigned reg)
{
    return x2apic ? rdmsr(MSR_X2APIC + reg / 16) : APIC(reg);
}

static void apic_write(unsigned reg, uint32_t val)
{
    if (x2apic) {
        wrmsr(MSR_X2APIC + reg / 16, val);
    } else {
        APIC(reg) = val;
    }
}

/* Nothing but what the tests want. */
static void apic_init(void)
{
    out8(0x21, 0xff);
    out8(0xa1, 0xff);
    apic_write(SVR, SVR_ENABLED);
    apic_write(TPR, 0);
    for (unsigned lvt = LVT_TIMER; lvt <= LVT_ERROR; lvt += 16) {
        apic_write(lvt, LVT_MASKED);
    }
}

/* One of the 256 bits of ISR, TMR or IRR */
static bool apic_bit(unsigned reg, unsigned vector)
{
    return apic_read(reg + vector / 32 * 16) >> vector % 32 & 1;
}

/* Nothing is requested and nothing in service. */
static bool idle(void)
{
    uint32_t bits = 0;

    for (int i = 0; i < 8; i++) {
        bits |= apic_read(IRR + 16 * i) | apic_read(ISR + 16 * i);
    }
    return !bits;
}

/* VECTOR, and nothing else, is requested. */
static bool requested(void)
{
    bool only = apic_bit(IRR, VECTOR);

    for (int i = 0; i < 256; i++) {
        only &= i == VECTOR || !(apic_bit(IRR, i) || apic_bit(ISR, i));
    }
    return only;
}

static void set_cfg(unsigned vector, uint32_t without)
{
    wrmsr(MSR_LWP_CFG, (cpuid_reg(0x8000001c, 0, 3) & ~without) |
                       (uint64_t)vector << 40);
}

static void set_event(int event, int32_t interval, int32_t counter)
{
    cb->event[event - 1].interval = interval;
    cb->event[event - 1].counter = counter;
}

/* The kernel starts LWP, so that nothing has been counted when it does run. */
static void begin_with(uint32_t flags, uint32_t threshold, uint32_t size,
                       uint32_t head, uint32_t tail)
{
    prepare(flags | LWP_FLAG_INT);
    set_event(LWP_VAL, 0, 0);
    cb->size = size;
    cb->threshold = threshold;
    cb->head = head;
    cb->tail = tail;
    llwpcb(user_cb);
}

static void begin(uint32_t flags, uint32_t threshold)
{
    begin_with(flags, threshold, LWP_MIN_RING, 0, 0);
}

static void enter_segment(uint16_t cs, void (*code)(void))
{
    set_up(cs, (uintptr_t)code);
    regs.rflags |= FLAG_IF;
    regs.rdi = (uintptr_t)fresh[x2apic];
}

static void enter(int cpl, void (*code)(void))
{
    enter_segment(cpl ? USER_CODE64 : CODE64, code);
}

static struct {
    uint32_t n;
    uint64_t rip[128];
    uint32_t head[128];
} taken;

/*
 * Go on until something else than an interrupt comes; returns how many have
 * come, or -1 if that was not EXIT.
 */
static int take(void)
{
    for (taken.n = 0; run() == VECTOR; taken.n++) {
        taken.rip[taken.n % ARRAY_SIZE(taken.rip)] = regs.rip;
        taken.head[taken.n % ARRAY_SIZE(taken.head)] = cb->head;
        apic_write(EOI, 0);
    }
    return regs.vector == EXIT ? taken.n : -1;
}

static int interrupts(int cpl, void (*code)(void))
{
    enter(cpl, code);
    return take();
}

/* Whether @vector is what comes next while @code runs. */
static bool next_is(unsigned vector, void (*code)(void))
{
    enter(3, code);
    return run() == vector;
}

/* §8.3: the head pointer is in memory when the handler runs. */
static void test_precise(void)
{
    static const struct {
        const char *name;
        uint16_t cs;
        void (*code)(void);
    } t[] = {
        { "CPL 0: LWPINS", CODE64, ins31 },
        { "CPL 0: LWPVAL", CODE64, val31 },
        { "CPL 3: LWPINS", USER_CODE64, ins31 },
        { "CPL 3: LWPVAL", USER_CODE64, val31 },
        { "32-bit code: LWPINS", USER_CODE32, ins31 },
        { "32-bit code: LWPVAL", USER_CODE32, val31 },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        bool ips = true, heads = true;

        begin(LWP_FLAG_VAL, 0);
        enter_segment(t[i].cs, t[i].code);
        report(take() == 31, "%s: one interrupt for each of 31 records",
               t[i].name);
        for (int k = 0; k < taken.n; k++) {
            ips &= taken.rip[k] == (uintptr_t)t[i].code + INS_SIZE * (k + 1);
            heads &= taken.head[k] == 32 * (k + 1);
        }
        report(ips, "%s: before the next instruction", t[i].name);
        report(heads && idle() && cb->missed == 0,
               "%s: the head pointer is in memory", t[i].name);
    }
}

static void test_events(void)
{
    static const struct {
        const char *name;
        int event;
        void (*code)(void);
        int interval, records;
    } t[] = {
        { "LWPVAL", LWP_VAL, val31, 2, 10 },            /* of 31 */
        { "Instructions Retired", IRE, loop, 29, 3 },   /* of 101 */
        { "Branches Retired", BRE, loop, 14, 3 },       /* of 50 */
        { "CPU Clocks", CNH, loop, 29, 3 },
        { "CPU Reference Clocks", RNH, loop, 29, 3 },
        { "DCache Misses", DME, loads, 9, 4 },          /* of 45 */
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        int n;
        bool heads = true;

        prepare(FLAG(t[i].event) | LWP_FLAG_INT);
        set_event(t[i].event, t[i].interval, t[i].interval);
        llwpcb(user_cb);
        n = interrupts(3, t[i].code);
        for (int k = 0; k < taken.n; k++) {
            heads &= taken.head[k] == 32 * (k + 1);
        }
        report(n == t[i].records && heads && idle() &&
               ring[n - 1].event == t[i].event && ring[n].event == 0,
               "%s: one interrupt for each record", t[i].name);
    }
}

/* Table 6-1: "(head - tail) % size", in whole records */
static uint32_t used(uint32_t head, uint32_t tail, uint32_t size)
{
    uint32_t n = 0;

    for (; tail != head; n += 32) {
        tail = tail + 32 == size ? 0 : tail + 32;
    }
    return n;
}

static void test_threshold(void)
{
    static const uint32_t thresholds[] = {
        0, 1, 31, 32, 33, 63, 64, 65, 512, 961, 991, 992, 993, 1023,
        1024, 1025, 1055, 1056, 4096, 0x80000000, 0xffffffe0, 0xffffffff
    };

    for (int i = 0; i < ARRAY_SIZE(thresholds); i++) {
        uint32_t threshold = thresholds[i];
        uint32_t least = threshold / 32;        /* records */
        int expected = least <= 1 ? 31 : least <= 31 ? 32 - least : 0;

        begin(0, threshold);
        report(interrupts(3, ins31) == expected && idle() &&
               cb->head == 31 * 32 &&
               (!expected || taken.head[0] == 32 * (32 - expected)),
               "Threshold 0x%x, 1 to 31 records: %d interrupts", threshold,
               expected);
    }
}

/* All heads and tails; a BufferSize that is no power of two, too */
static void test_wrap(uint32_t size, uint32_t loaded)
{
    static const uint32_t thresholds[] = { 0, 32, 95, 96, 512, 960, 992, 1024 };

    for (int i = 0; i < ARRAY_SIZE(thresholds); i++) {
        int wrong = 0, want = 0;

        for (uint32_t head = 0; head < size; head += 32) {
            for (uint32_t tail = 0; tail < size; tail += 32) {
                uint32_t next = head + 32 == size ? 0 : head + 32;
                bool due = next != tail &&
                           used(next, tail, size) >= (thresholds[i] & -32);

                wrmsr(MSR_LWP_CBADDR, 0);
                lwp_init(cb, (void *)RING_ADDR, loaded, LWP_FLAG_INT);
                cb->head = head;
                cb->tail = tail;
                cb->threshold = thresholds[i];
                llwpcb(user_cb);
                wrong += interrupts(3, ins) != due;
                wrong += cb->head != (next == tail ? head : next);
                want += due;
            }
        }
        report(wrong == 0, "BufferSize %d, Threshold %d: %d of all pairs of "
               "head and tail interrupt", loaded, thresholds[i], want);
    }
    report(idle(), "BufferSize %d: nothing is left over", loaded);
}

static void test_full(void)
{
    begin_with(0, 0, LWP_MIN_RING, 32, 96);
    report(interrupts(3, ins) == 1 && cb->head == 64, "one slot is left");
    report(interrupts(3, ins) == 0 && idle() && (regs.rflags & FLAG_CF) &&
           cb->head == 64 && cb->missed == 1,
           "the ring is full: the head does not advance, no interrupt");
    report(interrupts(3, ins31) == 0 && idle() && cb->missed == 32,
           "nor for any record that is missed");
    cb->tail = 128;
    report(interrupts(3, ins) == 1 && cb->head == 96 && cb->missed == 32,
           "the tail moves: there is one again");

    /* What an interrupt handler is for */
    begin(0, 128);
    enter(3, ins100);
    for (taken.n = 0; run() == VECTOR; taken.n++) {
        taken.rip[taken.n] = regs.rip;
        cb->tail = cb->head;
        apic_write(EOI, 0);
    }
    report(regs.vector == EXIT && taken.n == 25 && cb->missed == 0 &&
           taken.rip[0] == (uintptr_t)ins100 + 4 * INS_SIZE &&
           taken.rip[24] == (uintptr_t)ins100 + 100 * INS_SIZE,
           "a handler that empties the ring comes every 4 records");
}

/* LWP_CFG[31], LWPCB.Flags.INT and the vector: all are needed. */
static void test_enable(void)
{
    set_cfg(VECTOR, LWP_FLAG_INT);
    begin(0, 0);
    report(!(cb->flags & LWP_FLAG_INT),
           "LLWPCB clears Flags.INT if LWP_CFG[31] is 0");
    report(interrupts(3, ins31) == 0 && idle() && cb->head == 31 * 32,
           "no interrupt");
    cb->flags |= LWP_FLAG_INT;
    cb->tail = cb->head;
    report(interrupts(3, ins) == 0 && idle(), "not with Flags.INT written");
    set_cfg(VECTOR, 0);
    begin(0, 0);
    report((cb->flags & LWP_FLAG_INT) && interrupts(3, ins) == 1,
           "LLWPCB keeps it and enables the interrupt if LWP_CFG[31] is 1");
    set_cfg(VECTOR, LWP_FLAG_INT);
    report(interrupts(3, ins31) == 0 && idle() && cb->head == 31 * 32,
           "what WRMSR of LWP_CFG withdraws stops at once");

    set_cfg(VECTOR, 0);
    prepare(0);
    llwpcb(user_cb);
    report(interrupts(3, ins31) == 0 && idle(), "Flags.INT is 0: none");
    set_cfg(0, 0);
    begin(0, 0);
    report((cb->flags & LWP_FLAG_INT) && interrupts(3, ins31) == 0 && idle(),
           "vector 0: none");
    set_cfg(HIGHER, 0);
    cb->tail = cb->head;
    report(next_is(HIGHER, ins) && regs.rip == (uintptr_t)ins + INS_SIZE,
           "another vector in LWP_CFG[47:40]");
    apic_write(EOI, 0);
    set_cfg(VECTOR, 0);
}

static void test_mask(void)
{
    begin(0, 0);
    enter(3, ins31);
    regs.rflags &= ~FLAG_IF;
    report(run() == EXIT && requested(), "IF = 0: pending in the APIC's IRR");
    report(next_is(VECTOR, nops) && regs.rip == (uintptr_t)nops &&
           !apic_bit(IRR, VECTOR) && apic_bit(ISR, VECTOR),
           "IF = 1: it comes, for all records together");
    apic_write(EOI, 0);
    report(take() == 0 && idle(), "and it is the only one");

    cb->tail = cb->head;
    enter(0, sti);
    report(run() == VECTOR &&
           regs.rip == (uintptr_t)sti + 1 + INS_SIZE + 1 + 1,
           "STI: it comes behind the next instruction");
    apic_write(EOI, 0);
    report(take() == 0 && idle(), "once");
    /* The other exit of a block, in front of what would hold it back */
    enter(0, sti_jcc);
    report(run() == VECTOR && regs.rip == (uintptr_t)sti_jcc + INS_SIZE + 7,
           "STI and a Jcc that is taken: behind that");
    apic_write(EOI, 0);
    enter(0, sti_rep);
    report(run() == VECTOR && regs.rip == (uintptr_t)sti_rep + INS_SIZE + 9 &&
           regs.rcx == 0, "STI and a REP with one iteration: behind that");
    apic_write(EOI, 0);
    lwpins(0, 0, 0);
    report(requested(), "LWPINS of a kernel with IF = 0 requests one");
    report(interrupts(0, nops) == 1 && idle(), "which it takes with IF = 1");

    begin(0, 0);
    apic_write(TPR, VECTOR & 0xf0);
    report(interrupts(3, ins) == 0 && requested(),
           "TPR of its priority class holds it back");
    apic_write(TPR, (VECTOR & 0xf0) - 0x10);
    report(interrupts(3, nops) == 1 && idle(), "a lower one does not");
    apic_write(TPR, 0xf0);
    report(interrupts(3, ins) == 0 && requested(), "the highest does");
    asm volatile("mov %0, %%cr8" : : "r" (0ul));
    report(apic_read(TPR) == 0 && interrupts(3, nops) == 1 && idle(),
           "CR8 lets it come");
}

static void test_eoi(void)
{
    bool masked = true;

    begin(0, 0);
    report(next_is(VECTOR, ins31) && !apic_bit(IRR, VECTOR) &&
           apic_bit(ISR, VECTOR), "in service while its handler runs");
    report(run() == EXIT && apic_bit(IRR, VECTOR) && apic_bit(ISR, VECTOR),
           "no EOI: the next one waits");
    set_cfg(HIGHER, 0);
    cb->tail = cb->head;
    report(next_is(HIGHER, ins) && apic_bit(ISR, HIGHER) &&
           apic_bit(ISR, VECTOR) && apic_bit(IRR, VECTOR),
           "a vector of a higher class does not");
    apic_write(EOI, 0);
    set_cfg(VECTOR, 0);
    report(!apic_bit(ISR, HIGHER) && next_is(EXIT, nops), "it still waits");
    apic_write(EOI, 0);
    report(next_is(VECTOR, nops) && regs.rip == (uintptr_t)nops,
           "EOI: it comes");
    apic_write(EOI, 0);
    report(run() == EXIT && idle(), "nothing is left over");

    /* An earlier interrupt may have been a level-triggered one. */
    if (!x2apic) {
        apic_write(APIC_ICR + 16, 0);
    }
    apic_write(APIC_ICR, ICR_SELF | ICR_LEVEL | VECTOR);
    masked = interrupts(3, nops) == 1;
    lwpins(0, 0, 0);
    report(masked && requested() && !apic_bit(TMR, VECTOR),
           "the interrupt is edge-triggered");
    masked = interrupts(3, nops) == 1;
    for (unsigned lvt = LVT_TIMER; lvt <= LVT_ERROR; lvt += 16) {
        masked &= apic_read(lvt) >> 16 & 1;
    }
    report(masked, "no entry of the LVT is involved");

    apic_write(SVR, SVR_ENABLED & ~0x100);
    cb->tail = cb->head;
    report(interrupts(3, ins) == 0 && idle(), "APIC disabled by SVR: nothing");
    apic_write(SVR, SVR_ENABLED);
    report(interrupts(3, nops) == 0 && idle(), "nor when it is enabled again");
    report(interrupts(3, ins) == 1 && idle(), "but at the next record");
}

static void test_hlt(void)
{
    begin(0, 0);
    enter(0, sti_hlt);
    report(run() == VECTOR &&
           regs.rip == (uintptr_t)sti_hlt + 1 + INS_SIZE + 1 + 1,
           "HLT with one pending: it goes on");
    apic_write(EOI, 0);
    report(take() == 0 && idle(), "once");
    enter(0, sti_ins_hlt);
    report(run() == VECTOR &&
           regs.rip == (uintptr_t)sti_ins_hlt + 2 + INS_SIZE,
           "LWPINS behind STI: it comes behind LWPINS");
    apic_write(EOI, 0);
    report(idle(), "nothing is left over");
}

static void save(void)
{
    memset(&area, 0, sizeof(area));
    xsave(&area, LWP_XSTATE);
}

/* §7.4: XRSTOR of a ring that is beyond the threshold */
static void test_xrstor(void)
{
    begin(LWP_FLAG_VAL, 96);
    interrupts(3, ins);
    save();
    report(area.lwp.flags == LWP_FLAG_VAL, "INT is not in the XSAVE image");
    area.lwp.head = 128;
    for (int cpl = 0; cpl <= 3; cpl += 3) {
        wrmsr(MSR_LWP_CBADDR, 0);
        enter(cpl, nops);
        report(at_cpl(cpl, xrstor(&area, LWP_XSTATE)) == EXIT && idle() &&
               interrupts(cpl, nops) == 0 && idle() &&
               rdmsr(MSR_LWP_CBADDR) == CB_ADDR,
               "CPL %d: XRSTOR raises none", cpl);
        report(interrupts(3, ins) == 1 && taken.head[0] == 160 && idle(),
               "CPL %d: the next record does", cpl);
    }

    cb->threshold = 192;
    xrstor(&area, LWP_XSTATE);
    report(interrupts(3, ins) == 0 && idle() && interrupts(3, ins) == 1,
           "Threshold is read again after XRSTOR");
    cb->flags = LWP_FLAG_VAL;
    xrstor(&area, LWP_XSTATE);
    report(interrupts(3, ins31) == 0 && idle(), "Flags.INT is read again");
    cb->flags = LWP_FLAG_VAL | LWP_FLAG_INT;
    cb->threshold = 0;
    xrstor(&area, LWP_XSTATE);
    report(interrupts(3, ins) == 1 && idle(), "when it is set, too");

    xrstor(&area, LWP_XSTATE);
    set_cfg(VECTOR, LWP_FLAG_INT);
    xrstor(&area, LWP_XSTATE);
    report(interrupts(3, ins31) == 0 && idle(),
           "XRSTOR does not enable what LWP_CFG does not have");
    set_cfg(VECTOR, 0);
}

/* Records that cannot be stored at once */
static void test_fault(void)
{
    const uint64_t next = (uintptr_t)ins + INS_SIZE;

    for (int page = 0; page <= 2; page += 2) {
        begin(0, 0);
        set_pte(page, page ? PTE_P | PTE_U : 0);
        enter(3, ins);
        report(run() == PF && regs.rip == (uintptr_t)ins && idle() &&
               cb->head == 0, "LWPINS without %s: no interrupt",
               page ? "a writable LWPCB" : "ring");
        set_pte(page, PTE_ALL);
        report(take() == 1 && taken.rip[0] == next && taken.head[0] == 32 &&
               idle(), "when it has been stored: one");
    }

    prepare(FLAG(IRE) | LWP_FLAG_INT);
    set_event(IRE, MANY, 4);
    llwpcb(user_cb);
    set_pte(0, 0);
    enter(3, nops);
    report(run() == PF && regs.rip == (uintptr_t)nops + 5 && idle() &&
           cb->head == 0, "Instructions Retired without ring: no interrupt");
    save();
    set_pte(0, PTE_ALL);
    report(take() == 1 && taken.head[0] == 32 && idle() &&
           ring[0].ip == (uintptr_t)nops + 4 && ring[1].event == 0,
           "when it has been stored: one");

    wrmsr(MSR_LWP_CBADDR, 0);
    memset(ring, 0, PAGE);
    set_pte(0, 0);
    xrstor(&area, LWP_XSTATE);
    report(area.lwp.saved.event == IRE && interrupts(0, nops) == 0 && idle(),
           "SavedEventRecord: no interrupt at CPL 0");
    enter(3, nops);
    report(run() == PF && regs.rip == (uintptr_t)nops && idle(),
           "nor while it is pending");
    set_pte(0, PTE_ALL);
    report(take() == 1 && taken.head[0] == 32 && idle() &&
           ring[0].ip == (uintptr_t)nops + 4 && ring[1].event == 0,
           "when it has been stored: one");
    xrstor(&area, LWP_XSTATE);
    slwpcb();
    report(requested() && cb->head == 32, "SLWPCB that stores it: one");
    report(interrupts(3, nops) == 1 && idle(), "and no more");
}

static void clear_esr(void)
{
    apic_write(ESR, 0);
    apic_write(ESR, 0);
}

/* Vectors that the architecture reserves are treated as an IPI's are. */
static void test_reserved_vectors(void)
{
    begin(0, 0);
    for (unsigned v = 1; v < 16; v++) {
        uint32_t irr[2], esr[2], came[2] = { };

        if (v == 8 || (v >= 10 && v <= 14)) {
            continue;           /* their stubs want an error code */
        }
        set_cfg(v, 0);
        for (int ipi = 0; ipi < 2; ipi++) {
            clear_esr();
            cb->tail = cb->head;
            if (ipi) {
                apic_write(APIC_ICR, ICR_SELF | v);
            } else {
                lwpins(0, 0, 0);
            }
            irr[ipi] = apic_read(IRR);
            if (!x2apic) {
                apic_write(ESR, 0);
            }
            esr[ipi] = apic_read(ESR);
            for (enter(3, nops); run() == v; came[ipi]++) {
                apic_write(EOI, 0);
            }
        }
        report(irr[0] == irr[1] && esr[0] == esr[1] && came[0] == came[1] &&
               idle(), "vector %d: as an IPI with it", v);
    }
    set_cfg(VECTOR, 0);
}

static LwpRecord plain[8192], stormy[8192];
static int plain_n, stormy_n;
static uint32_t plain_result;

/* A handler that runs after each record, and one that empties the ring */
static void test_storm(void)
{
    static const int intervals[] = { 0, 1, 7, 97 };

    for (int i = 0; i < ARRAY_SIZE(intervals); i++) {
        int interval = intervals[i], n = 0;

        prepare(FLAG(IRE));
        cb->base = (uintptr_t)plain;
        cb->size = sizeof(plain);
        set_event(IRE, interval, interval);
        llwpcb(user_cb);
        report(interrupts(3, storm) == 0, "no INT, interval %d: none",
               interval);
        slwpcb();
        plain_n = cb->head / 32;
        plain_result = regs.rax;

        prepare(FLAG(IRE) | LWP_FLAG_INT);
        memset(stormy, 0, sizeof(stormy));
        cb->base = (uintptr_t)stormy;
        cb->size = sizeof(stormy);
        set_event(IRE, interval, interval);
        llwpcb(user_cb);
        n = interrupts(3, storm);
        slwpcb();
        report(cb->head / 32 == plain_n && (uint32_t)regs.rax == plain_result &&
               same(plain, stormy, cb->head),
               "Threshold 0, interval %d: the same %d records", interval,
               plain_n);
        n += interrupts(0, nops);
        report(n == plain_n, "and as many interrupts");

        prepare(FLAG(IRE) | LWP_FLAG_INT);
        memset(stormy, 0, sizeof(stormy));
        cb->threshold = 512;
        set_event(IRE, interval, interval);
        llwpcb(user_cb);
        stormy_n = n = 0;
        for (enter(3, storm); run() == VECTOR; n++) {
            for (; cb->tail != cb->head; cb->tail = (cb->tail + 32) % 1024) {
                stormy[stormy_n++ % ARRAY_SIZE(stormy)] = ring[cb->tail / 32];
            }
            apic_write(EOI, 0);
        }
        slwpcb();
        for (; cb->tail != cb->head; cb->tail = (cb->tail + 32) % 1024) {
            stormy[stormy_n++ % ARRAY_SIZE(stormy)] = ring[cb->tail / 32];
        }
        report(regs.vector == EXIT && stormy_n == plain_n && !cb->missed &&
               same(plain, stormy, plain_n * 32),
               "Threshold 512, interval %d: none is missed", interval);
        n += interrupts(0, nops);
        report(n == plain_n / 16 && idle(), "one interrupt for each 16");
    }
}

static void test_all(void)
{
    apic_init();
    test_precise();
    test_events();
    test_full();
    test_enable();
    test_mask();
    test_eoi();
    test_hlt();
    test_xrstor();
    test_fault();
    test_reserved_vectors();
}

int main(void)
{
    uint64_t base;

    kernel_init();
    xsetbv0(3 | LWP_XSTATE);
    set_cfg(VECTOR, 0);
    report(rdmsr(MSR_LWP_CFG) >> 31 == ((uint64_t)VECTOR << 9 | 1),
           "LWP_CFG has the interrupt and its vector");
    test_printf("xAPIC\n");
    test_all();
    test_threshold();
    test_wrap(1024, 1024);
    test_wrap(1056, 1087);
    test_storm();
    base = rdmsr(MSR_APIC_BASE);
    wrmsr(MSR_APIC_BASE, base & ~APIC_BASE_EN);
    begin(0, 0);
    report(interrupts(3, ins31) == 0 && cb->head == 31 * 32,
           "APIC disabled by its base MSR: nothing but records");
    wrmsr(MSR_APIC_BASE, base);
    report(interrupts(3, nops) == 0 && idle(), "nor when it is enabled again");

    test_printf("x2APIC\n");
    wrmsr(MSR_APIC_BASE, base | APIC_BASE_X2);
    x2apic = true;
    test_all();
    return report_summary();
}
