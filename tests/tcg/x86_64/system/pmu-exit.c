/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How many instructions run between one that makes an interrupt come and the
 * interrupt's handler: none, or one behind STI, whatever is being counted.
 *
 * An interrupt ends run() like any other exception.  Runs on a PMU like
 * Skylake's, and on a processor without one.
 */

#include "pmu-kernel.h"

enum { NMI = 2, VECTOR = 0x51, PIC_BASE = 0x60 };
enum { RUNS = 10000, SLED = 128, BEHIND = 64 };
enum { INSNS = 0xc0, CYCLES = 0x3c, BRANCHES = 0xc4, CALLS = 0x2c4,
       MISPREDICTED = 0xc5 };

#define FLAG_IOPL3      (3u << 12)
#define FAR_AWAY        (1u << 30)      /* more than any test counts */

#define DUMMY_PORT      0x80
#define MSR_KERNEL_GS_BASE 0xc0000102
#define MSR_APICBASE    0x1b
#define APICBASE_EXTD   (1u << 10)
#define MSR_X2APIC_EOI  0x80b
#define MSR_X2APIC_ICR  0x830
#define MSR_SELF_IPI    0x83f
#define APIC_BASE       0xfee00000ul
#define APIC_LINT0      0x350
#define LVT_EXTINT      0x700
#define ICR_SELF        0x44000         /* fixed, asserted */
#define ICR_NMI         0x4400          /* to APIC ID 0, asserted */

/* volatile: device registers */
#define IOAPIC(offset)  (*(volatile uint32_t *)(0xfec00000ul + (offset)))
#define IOAPIC_MASKED   0x10000
#define IRQ_UART        4

#define UART_IER        0x3f9
#define IER_THRE        2               /* the transmitter is empty */
#define PIC_COMMAND     0x20
#define PIC_DATA        0x21

/* It is entered somewhere in the first NOPs; the last ones are counted. */
#define CAUSE(name, insns) \
    asm(".text\n" #name ":\n .fill 128, 1, 0x90\n" insns "\n" \
        #name "_behind:\n .fill 64, 1, 0x90\n int $32\n")

CAUSE(cause_out, "out %al, %dx");
CAUSE(cause_outs, "outsb");
CAUSE(cause_store, "mov %eax, (%rdi)");
CAUSE(cause_lock, "lock orl %eax, (%rdi)");
CAUSE(cause_rep, "rep stosl");
CAUSE(cause_wrmsr, "wrmsr");
CAUSE(cause_cr8, "mov %rax, %cr8");
CAUSE(cause_sti, "sti");
CAUSE(cause_popf, "push %rax\n popfq");

static bool x2apic;

static void self_ipi(void)
{
    if (x2apic) {
        wrmsr(MSR_SELF_IPI, VECTOR);
    } else {
        APIC(APIC_ICR) = ICR_SELF | VECTOR;
    }
}

static void eoi(void)
{
    if (x2apic) {
        wrmsr(MSR_X2APIC_EOI, 0);
    } else {
        APIC(APIC_EOI) = 0;
    }
}

static void ioapic_write(unsigned reg, uint32_t val)
{
    IOAPIC(0) = reg;
    IOAPIC(0x10) = val;
}

/* What is to be done before the code runs, and after the interrupt */
static void uart_ready(void)
{
    out8(UART_IER, 0);
    ioapic_write(0x11 + 2 * IRQ_UART, 0);
    ioapic_write(0x10 + 2 * IRQ_UART, VECTOR);
}

static void uart_done(void)
{
    ioapic_write(0x10 + 2 * IRQ_UART, IOAPIC_MASKED);
    out8(UART_IER, 0);
    eoi();
}

/* The request is there; it is masked. */
static void pic_ready(void)
{
    out8(PIC_COMMAND, 0x11);            /* edges, cascade, ICW4 */
    out8(PIC_DATA, PIC_BASE);
    out8(PIC_DATA, 4);
    out8(PIC_DATA, 1);
    out8(PIC_DATA, 0xff);
    out8(UART_IER, IER_THRE);
}

static void pic_done(void)
{
    out8(PIC_DATA, 0xff);
    out8(PIC_COMMAND, 0x20);            /* EOI */
    out8(UART_IER, 0);
}

static void tpr_ready(void)
{
    asm volatile("mov %0, %%cr8" : : "r" (15ul));
    self_ipi();
}

typedef struct Cause {
    const char *name;
    struct {
        uintptr_t code, behind;
    } at;
    uint64_t rax, rdx, rcx, rsi, rdi;
    uint8_t vector;             /* VECTOR if 0 */
    uint8_t insns;              /* that run before the handler */
    bool disabled;              /* EFLAGS.IF is clear before */
    bool user;                  /* can be at CPL 3, too */
    void (*ready)(void), (*done)(void);
} Cause;

#define AT(name)        { LABEL(name), LABEL(name##_behind) }

typedef struct Setting {
    uint32_t event;             /* of counter 0; EVTSEL_INT if it interrupts */
    uint32_t left;              /* until it overflows, at most */
} Setting;

static const Setting settings[] = {
    { 0, FAR_AWAY },            /* counts nothing */
    { INSNS, FAR_AWAY },
    { INSNS | EVTSEL_INT, FAR_AWAY },
    { INSNS | EVTSEL_INT, 300 },
    { CYCLES | EVTSEL_INT, FAR_AWAY },
    { BRANCHES, FAR_AWAY },
    { BRANCHES | EVTSEL_INT, FAR_AWAY },
    { CALLS | EVTSEL_INT, FAR_AWAY },
    { MISPREDICTED | EVTSEL_INT, FAR_AWAY },
};

/* A counter that overflows only sets its status bit, as LVTPC is masked. */
static void start_counter(const Setting *s, int n)
{
    wrmsr(MSR_GLOBAL_CTRL, 0);
    wrmsr(MSR_EVTSEL(0), s->event ? s->event | EVTSEL_OS | EVTSEL_USR |
                         EVTSEL_EN : 0);
    wrmsr(MSR_PMC(0), -(s->left == FAR_AWAY ? FAR_AWAY : n % s->left + 1));
    wrmsr(MSR_GLOBAL_CTRL, 1);
}

/*
 * The number of instructions between cause and handler.  If it is @dry,
 * nothing comes, and what is behind it runs.
 */
static unsigned run_cause(const Cause *c, int cpl, int n, bool dry)
{
    unsigned vector = c->vector ? c->vector : VECTOR;
    uint64_t insns;

    if (c->ready && !dry) {
        c->ready();
    }
    set_up(cpl ? USER_CODE64 : CODE64, c->at.code + n % SLED);
    regs.rflags |= FLAG_IOPL3 | (c->disabled ? 0 : FLAG_IF);
    regs.rax = dry && !c->disabled ? 0 : c->rax;
    regs.rcx = dry && c->rcx > 1 ? MSR_KERNEL_GS_BASE : c->rcx;
    regs.rdx = dry ? DUMMY_PORT : c->rdx;
    regs.rsi = c->rsi;
    regs.rdi = dry ? APIC_BASE + APIC_TPR : c->rdi;
    if (run() != (dry ? EXIT : vector)) {
        return BEHIND + 1;
    }
    insns = regs.rip - c->at.behind;
    if (dry) {
        return 0;
    }
    if (c->done) {
        c->done();
    } else if (vector != NMI) {
        eoi();
    }
    return insns <= BEHIND ? insns : BEHIND + 1;
}

/*
 * Position, counter and CPL are others each time.  It has run before, so that
 * its blocks are chained.
 */
static void check(const Cause *c, bool counters)
{
    unsigned most = 0, least = BEHIND + 1;

    for (int n = 0; n < RUNS; n++) {
        int cpl = c->user && n % 5 == 0 ? 3 : 0;
        unsigned insns;

        if (counters) {
            start_counter(&settings[n % ARRAY_SIZE(settings)], n);
        }
        insns = run_cause(c, cpl, n, true);
        insns += run_cause(c, cpl, n, false);
        most = insns > most ? insns : most;
        least = insns < least ? insns : least;
    }
    if (counters) {
        wrmsr(MSR_GLOBAL_CTRL, 0);
    }
    report(least == c->insns && most == c->insns,
           "%s: %d to %d instructions to the handler, should be %d", c->name,
           least, most, c->insns);
}

int main(void)
{
    static const uint8_t thre = IER_THRE;
    const uint64_t icr = APIC_BASE + APIC_ICR;
    const uint32_t self = ICR_SELF | VECTOR;
    const Cause xapic[] = {
        { "OUT to a device of the IOAPIC", AT(cause_out), IER_THRE, UART_IER,
          .user = true, .ready = uart_ready, .done = uart_done },
        { "OUTS to a device of the IOAPIC", AT(cause_outs), 0, UART_IER, 0,
          (uintptr_t)&thre, .user = true, .ready = uart_ready,
          .done = uart_done },
        { "OUT to the PIC", AT(cause_out), 0xff & ~(1 << IRQ_UART), PIC_DATA,
          .vector = PIC_BASE + IRQ_UART, .user = true, .ready = pic_ready,
          .done = pic_done },
        { "store to the ICR", AT(cause_store), self, .rdi = icr,
          .user = true },
        { "LOCK OR to the ICR", AT(cause_lock), self, .rdi = icr,
          .user = true },
        { "REP STOS to the ICR", AT(cause_rep), self, .rcx = 1, .rdi = icr,
          .user = true },
        { "NMI by the ICR", AT(cause_store), ICR_NMI, .rdi = icr,
          .vector = NMI, .user = true },
        { "MOV CR8", AT(cause_cr8), .ready = tpr_ready },
        { "STI", AT(cause_sti), .insns = 1, .disabled = true,
          .ready = self_ipi },
        { "POPF", AT(cause_popf), FLAG_IF | 2, .disabled = true,
          .ready = self_ipi },
    };
    const Cause by_msr[] = {
        { "WRMSR of the ICR", AT(cause_wrmsr), self, .rcx = MSR_X2APIC_ICR },
        { "NMI by WRMSR of the ICR", AT(cause_wrmsr), ICR_NMI,
          .rcx = MSR_X2APIC_ICR, .vector = NMI },
        { "WRMSR of SELF_IPI", AT(cause_wrmsr), VECTOR, .rcx = MSR_SELF_IPI },
    };
    bool counters;

    kernel_init();
    apic_init(LVT_MASKED);
    APIC(APIC_LINT0) = LVT_EXTINT;
    counters = cpuid_reg(10, 0, 0) & 0xff;
    for (int i = 0; i < ARRAY_SIZE(xapic); i++) {
        check(&xapic[i], counters);
    }
    wrmsr(MSR_APICBASE, rdmsr(MSR_APICBASE) | APICBASE_EXTD);
    x2apic = true;
    for (int i = 0; i < ARRAY_SIZE(by_msr); i++) {
        check(&by_msr[i], counters);
    }
    return report_summary();
}
