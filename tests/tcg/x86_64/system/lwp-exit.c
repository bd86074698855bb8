/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an instruction makes a device do to its own CPU - an interrupt, another
 * memory map - is there before the next instruction, whatever LWP counts.
 *
 * An interrupt ends run() like any other exception.  The output is the same
 * with -icount shift=0 and with one-insn-per-tb=on.
 */

#include "lwp-kernel.h"

enum { IRE = 2, BRE = 3, DME = 4, CNH = 5 };

#define FLAG(event)     (1u << (event))
#define MANY            10000000        /* more than any test counts */
#define FLAG_IF         (1u << 9)
#define FLAG_IOPL3      (3u << 12)
#define VECTOR          0x51

/* Offsets in the local APIC */
enum { TPR = 0x80, EOI = 0xb0, SVR = 0xf0, LVT_TIMER = 0x320,
       LVT_ERROR = 0x370 };
#define APIC_BASE       0xfee00000u
#define SVR_ENABLED     0x1ff
#define LVT_MASKED      (1u << 16)
#define ICR_SELF        0x44000         /* fixed, asserted */

/* volatile: device registers */
#define IOAPIC(offset)  (*(volatile uint32_t *)(0xfec00000ul + (offset)))
#define IOAPIC_MASKED   0x10000
#define IRQ_KEYBOARD    1
#define IRQ_UART        4

#define UART_IER        0x3f9
#define IER_THRE        2               /* the transmitter is empty */

#define KBD_DATA        0x60
#define KBD_COMMAND     0x64
#define KBD_FULL        1

#define DUMMY_PORT      0x80

/* i440FX: D0000h to D3FFFh is RAM if PAM3 says so. */
#define PCI_PAM3        0x8000005c
#define PAM_PORT        0xcfc
#define PAM_RAM         0x33
#define PAM_NOTHING     0x00
#define SHADOWED        0xd0000

/*
 * RDX is a port, EAX what is written, RSI, RDI and RBP are addresses.  ECX
 * counts what runs until the interrupt comes, or does not.
 */
#define LOOP            "_behind:\n 1: inc %ecx\n cmp $20000, %ecx\n jne 1b\n" \
                        "int $32\n"
#define CODE_AT(where, name, bits, insns) \
    asm(".text\n .code" bits "\n" where #name ":\n" insns ".code64\n")
#define CODE(name, bits, insns) CODE_AT("", name, bits, insns)

CODE(code_out, "64", "out %al, %dx\n code_out" LOOP);
CODE(code_out_inside, "64",
     "nop\n nop\n out %al, %dx\n code_out_inside" LOOP);
CODE(code_outs, "64", "outsb\n code_outs" LOOP);
CODE(code_rep_outs, "64", "rep outsb\n code_rep_outs" LOOP);
CODE(code_in, "64", "in %dx, %al\n code_in" LOOP);
CODE(code_in_imm, "64", "in $0x60, %al\n code_in_imm" LOOP);
CODE(code_ins, "64", "insb\n code_ins" LOOP);
CODE(code_rep_ins, "64", "rep insb\n code_rep_ins" LOOP);

/* The last instruction of a block is the store, or not. */
CODE(code_store, "64", "nop\n mov %eax, (%rdi)\n code_store" LOOP);
CODE_AT(".balign 4096\n .fill 4092, 1, 0x90\n", code_page, "64",
        "nop\n nop\n mov %eax, (%rdi)\n code_page" LOOP);
CODE(code_64, "64",
     ".fill 63, 1, 0x90\n mov %eax, (%rdi)\n code_64" LOOP);
CODE(code_stos, "64", "stosl\n code_stos" LOOP);
CODE(code_rep_stos, "64", "rep stosl\n code_rep_stos" LOOP);
CODE(code_rep_movs, "64", "rep movsl\n code_rep_movs" LOOP);
CODE(code_lock, "64", "lock orl %eax, (%rdi)\n code_lock" LOOP);
/* The return address is what is written. */
CODE(code_call, "32", "call code_call_behind\n nop\n code_call" LOOP);
CODE(code_call_reg, "32", "call *%eax\n nop\n nop\n code_call_reg" LOOP);

/* The first access brings a page into the TLB that is not there afterwards. */
#define CODE_MAP(name, out) \
    static void __attribute__((naked)) name##_load(void) \
    { \
        asm("mov (%rbp), %ebx\n" out "\n mov (%rbp), %r8d\n int $32"); \
    } \
    static void __attribute__((naked)) name##_store(void) \
    { \
        asm("mov %ebx, (%rbp)\n" out "\n mov %r8d, (%rbp)\n int $32"); \
    }

CODE_MAP(map_out, "out %al, %dx")
CODE_MAP(map_outs, "outsb")
CODE_MAP(map_rep_outs, "rep outsb")

static void apic_init(void)
{
    out8(0x21, 0xff);
    out8(0xa1, 0xff);
    APIC(SVR) = SVR_ENABLED;
    APIC(TPR) = 0;
    for (unsigned lvt = LVT_TIMER; lvt <= LVT_ERROR; lvt += 16) {
        APIC(lvt) = LVT_MASKED;
    }
    APIC(APIC_ICR + 16) = 0;
}

static void ioapic_write(unsigned reg, uint32_t val)
{
    IOAPIC(0) = reg;
    IOAPIC(0x10) = val;
}

static void set_irq(unsigned irq, uint32_t entry)
{
    ioapic_write(0x11 + 2 * irq, 0);
    ioapic_write(0x10 + 2 * irq, entry);
}

/*
 * What REP MOVS stores: the interrupt comes with the last word of a line; then
 * the load of the next one misses, whose word is for the ICR's upper half.
 */
#define ICR_SOURCE_LAST 15
static uint32_t icr_source[32] __attribute__((aligned(64))) = {
    [ICR_SOURCE_LAST] = ICR_SELF | VECTOR
};

/* What is to be done before the code runs, and after the interrupt */
static void source_ready(void)
{
    asm volatile("clflush %0" : : "m" (icr_source[ICR_SOURCE_LAST + 1]));
}

static void uart_ready(void)
{
    out8(UART_IER, 0);
    set_irq(IRQ_UART, VECTOR);
}

static void uart_done(void)
{
    set_irq(IRQ_UART, IOAPIC_MASKED);
    out8(UART_IER, 0);
}

static void keyboard_drain(void)
{
    while (in8(KBD_COMMAND) & KBD_FULL) {
        in8(KBD_DATA);
    }
}

/* There are three bytes; the second one's interrupt comes with the first. */
static void keyboard_ready(void)
{
    set_irq(IRQ_KEYBOARD, IOAPIC_MASKED);
    keyboard_drain();
    out8(KBD_COMMAND, 0x60);            /* write the controller's command: */
    out8(KBD_DATA, 0x01);               /* interrupts, no translation */
    out8(KBD_DATA, 0xf2);               /* the keyboard's identity */
    while (!(in8(KBD_COMMAND) & KBD_FULL)) {
        asm volatile("pause");
    }
    set_irq(IRQ_KEYBOARD, VECTOR);
}

static void keyboard_done(void)
{
    set_irq(IRQ_KEYBOARD, IOAPIC_MASKED);
    keyboard_drain();
}

typedef struct Case {
    const char *name;
    struct {
        uintptr_t code, behind; /* behind what makes the interrupt come */
    } at;
    uint16_t port;
    uint32_t value;
    uint64_t rsi, rdi;
    void (*ready)(void), (*done)(void);
    int call;                   /* the size of a CALL that does it, or 0 */
    int more;                   /* iterations of REP than the first one */
} Case;

#define AT(name)        { LABEL(name), LABEL(name##_behind) }

/* The CS base with which @c writes @c->value; 0 for 64-bit code */
static uint64_t code_base(const Case *c)
{
    return c->call ? c->at.code + c->call - c->value : 0;
}

static const uint8_t zero, thre = IER_THRE, pam_nothing = PAM_NOTHING;
static uint32_t scratch[4];

/* If it is @dry, the device has nothing to say. */
static unsigned run_case(const Case *c, bool dry)
{
    uint64_t base = code_base(c);

    set_segment(TEST_CODE, base, 0xfffff, ACC_CODE | ACC_USER, SEG_G | SEG_32);
    set_up(base ? TEST_CODE : USER_CODE64, c->at.code - base);
    regs.rflags |= FLAG_IF | FLAG_IOPL3;
    regs.rax = base ? c->at.behind - base : dry ? 0 : c->value;
    regs.rcx = 1 + c->more;     /* of REP, too */
    regs.rdx = c->port;
    regs.rsi = dry ? (uintptr_t)&zero : c->rsi;
    regs.rdi = dry ? (uintptr_t)scratch : c->rdi;
    if (base) {
        regs.rsp = regs.rdi + 4;
    }
    return run();
}

static const struct {
    const char *name;
    uint32_t flags, filters;
} lwps[] = {
    { "LWP off" },
    { "IRE", FLAG(IRE) },
    { "BRE", FLAG(BRE) },
    { "some branches", FLAG(IRE) | FLAG(BRE), FILTER_NRB },
    { "IRE and DME", FLAG(IRE) | FLAG(DME) },
    { "DME and CNH", FLAG(DME) | FLAG(CNH) },
    { "IP filter", FLAG(IRE), FILTER_IPF },
    { "branches by prediction", FLAG(BRE), FILTER_NMB },
};

static void lwp_start(int i)
{
    prepare(lwps[i].flags);
    cb->filters = lwps[i].filters;
    cb->limit_ip = UINT64_MAX;
    for (int event = IRE; event <= CNH; event++) {
        cb->event[event - 1].interval = MANY;
        cb->event[event - 1].counter = MANY;
    }
    /* A load that misses brings this one nearer; it is not due in check(). */
    cb->event[CNH - 1].interval = cb->event[CNH - 1].counter = 15500;
    if (lwps[i].flags) {
        llwpcb(user_cb);
    }
}

/* It has run before, so that its blocks are chained. */
static void check(const Case *c)
{
    uint64_t behind = c->at.behind - code_base(c), want = 0;

    for (int i = 0; i < ARRAY_SIZE(lwps); i++) {
        bool ok = true, between;

        lwp_start(i);
        for (int n = 0; n < 3; n++) {
            ok &= run_case(c, true) == EXIT;
        }
        if (c->ready) {
            c->ready();
        }
        ok &= run_case(c, false) == VECTOR && regs.rcx <= 1;
        /* With -icount, or in a step if DME counts, a REP is interrupted. */
        between = regs.rcx == c->more && regs.rip == behind - 2;
        if (i == 0) {
            want = regs.rip;
            ok &= want == behind || between;
        } else {
            ok &= regs.rip == want ||
                  (between && (lwps[i].flags & FLAG(DME)));
        }
        APIC(EOI) = 0;
        if (c->done) {
            c->done();
        }
        report(ok, "%s, %s: the interrupt comes behind it", c->name,
               lwps[i].name);
    }
}

static void test_interrupts(void)
{
    const uint64_t out = (uintptr_t)&thre, in = (uintptr_t)scratch;
    const uint64_t icr = APIC_BASE + APIC_ICR;
    const uint32_t self = ICR_SELF | VECTOR;
    const Case t[] = {
        { "OUT", AT(code_out), UART_IER, IER_THRE, 0, 0,
          uart_ready, uart_done },
        { "OUT in a block", AT(code_out_inside), UART_IER, IER_THRE, 0, 0,
          uart_ready, uart_done },
        { "OUTS", AT(code_outs), UART_IER, 0, out, 0, uart_ready, uart_done },
        { "REP OUTS", AT(code_rep_outs), UART_IER, 0, out, 0,
          uart_ready, uart_done },
        { "IN", AT(code_in), KBD_DATA, 0, 0, 0,
          keyboard_ready, keyboard_done },
        { "IN imm", AT(code_in_imm), 0, 0, 0, 0,
          keyboard_ready, keyboard_done },
        { "INS", AT(code_ins), KBD_DATA, 0, 0, in,
          keyboard_ready, keyboard_done },
        { "REP INS", AT(code_rep_ins), KBD_DATA, 0, 0, in,
          keyboard_ready, keyboard_done },
        { "store to the APIC", AT(code_store), 0, self, 0, icr },
        { "store at a page's end", AT(code_page), 0, self, 0, icr },
        { "store as instruction 64", AT(code_64), 0, self, 0, icr },
        { "STOS", AT(code_stos), 0, self, 0, icr },
        { "REP STOS", AT(code_rep_stos), 0, self, 0, icr },
        { "REP MOVS", AT(code_rep_movs), 0, 0,
          (uintptr_t)&icr_source[ICR_SOURCE_LAST], icr + 12, source_ready,
          .more = 1 },
        { "LOCK OR", AT(code_lock), 0, self, 0, icr },
        { "CALL, stack in the APIC", AT(code_call), 0, self, 0, icr,
          NULL, NULL, 5 },
        { "indirect CALL, stack in the APIC", AT(code_call_reg), 0, self, 0,
          icr, NULL, NULL, 2 },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        check(&t[i]);
    }
}

static void map(uint8_t pam)
{
    out8(PAM_PORT, pam);
}

/* Memory comes and goes. */
static void test_map(void)
{
    static const struct {
        const char *name;
        void (*load)(void), (*store)(void);
    } t[] = {
        { "OUT", map_out_load, map_out_store },
        { "OUTS", map_outs_load, map_outs_store },
        { "REP OUTS", map_rep_outs_load, map_rep_outs_store },
    };
    /* volatile: it is not the same memory all the time */
    volatile uint32_t *word = (volatile uint32_t *)SHADOWED;
    uint8_t saved;
    uint32_t other;

    asm volatile("outl %0, %1" : : "a" (PCI_PAM3), "d" ((uint16_t)0xcf8));
    saved = in8(PAM_PORT);
    map(PAM_NOTHING);
    other = *word;
    map(PAM_RAM);
    *word = ~other;
    report(*word == ~other, "PAM3 maps RAM");

    for (int k = 0; k < 2 * ARRAY_SIZE(t); k++) {
        bool store = k & 1;

        for (int i = 0; i < ARRAY_SIZE(lwps); i++) {
            bool ok = true;

            lwp_start(i);
            for (int n = 0; n < 4; n++) {
                bool dry = n < 3;

                map(PAM_RAM);
                *word = ~other;
                set_up(USER_CODE64,
                       (uintptr_t)(store ? t[k / 2].store : t[k / 2].load));
                regs.rflags |= FLAG_IOPL3;
                regs.rax = PAM_NOTHING;
                regs.rbx = 1234;
                regs.rcx = 1;
                regs.rdx = dry ? DUMMY_PORT : PAM_PORT;
                regs.rsi = (uintptr_t)&pam_nothing;
                regs.rbp = SHADOWED;
                regs.r8 = 5678;
                ok &= run() == EXIT;
                map(PAM_RAM);
                if (store) {
                    ok &= *word == (dry ? 5678 : 1234);
                } else {
                    ok &= (uint32_t)regs.rbx == ~other &&
                          (uint32_t)regs.r8 == (dry ? ~other : other);
                }
            }
            report(ok, "%s to PAM, %s: RAM is not there behind it, %s",
                   t[k / 2].name, lwps[i].name, store ? "store" : "load");
        }
    }
    map(saved);
}

/*
 * VGA memory is RAM while its four planes are chained and all can be written,
 * or else a device, where every load misses.
 */
enum { VGA_SEQUENCER = 0x3c4, VGA_GRAPHICS = 0x3ce };
enum { SEQ_MAP_MASK = 2, SEQ_MEMORY_MODE = 4, GFX_MISC = 6 };
#define SEQ_CHAINED     0xe
#define SEQ_UNCHAINED   0x6
#define GFX_AT_A0000    0x5
#define VGA_MEMORY      0xa0000

static const uint8_t unchained = SEQ_UNCHAINED;

static uint8_t set_vga(uint16_t port, uint8_t index, uint8_t val)
{
    uint8_t old;

    out8(port, index);
    old = in8(port + 1);
    out8(port + 1, val);
    return old;
}

/* L1D has the line of RAM that becomes a device. */
static void test_caches(void)
{
    static const struct {
        const char *name;
        void (*code)(void);
    } t[] = {
        { "OUT", map_out_load }, { "OUTS", map_outs_load },
        { "REP OUTS", map_rep_outs_load },
    };
    uint8_t misc = set_vga(VGA_GRAPHICS, GFX_MISC, GFX_AT_A0000);
    uint8_t mask = set_vga(VGA_SEQUENCER, SEQ_MAP_MASK, 0xf);
    uint8_t mode = set_vga(VGA_SEQUENCER, SEQ_MEMORY_MODE, SEQ_CHAINED);

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        int left[4];

        prepare(FLAG(DME));
        cb->event[DME - 1].counter = MANY;
        llwpcb(user_cb);
        for (int n = 0; n < 4; n++) {
            set_vga(VGA_SEQUENCER, SEQ_MEMORY_MODE, SEQ_CHAINED);
            set_up(USER_CODE64, (uintptr_t)t[i].code);
            regs.rflags |= FLAG_IOPL3;
            regs.rax = SEQ_UNCHAINED;
            regs.rcx = 1;
            regs.rdx = n < 3 ? DUMMY_PORT : VGA_SEQUENCER + 1;
            regs.rsi = (uintptr_t)&unchained;
            regs.rbp = VGA_MEMORY;
            run();
            slwpcb();
            left[n] = cb->event[DME - 1].counter;
        }
        report(left[2] == left[1] && left[3] == left[2] - 1,
               "%s that makes a device of RAM: only the load behind it misses",
               t[i].name);
    }
    set_vga(VGA_SEQUENCER, SEQ_MEMORY_MODE, mode);
    set_vga(VGA_SEQUENCER, SEQ_MAP_MASK, mask);
    set_vga(VGA_GRAPHICS, GFX_MISC, misc);
}

int main(void)
{
    kernel_init();
    lwp_make_available();
    apic_init();
    test_interrupts();
    test_map();
    test_caches();
    return report_summary();
}
