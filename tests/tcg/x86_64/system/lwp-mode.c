/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Segmentation, privilege and page faults of LWP (§5.1, §7.4, §8.6). */

#include "lwp-kernel.h"

/*
 * Code for compatibility mode; every piece ends with INT EXIT.  EAX is the
 * LWPCB, ECX and EDX are operands.  Encodings do not depend on the size
 * of the code segment.
 */
#define CODE(name, bits, insn) \
    static void __attribute__((naked)) name(void) \
    { \
        asm(".code" bits "\n" insn "\n int $32\n .code64"); \
    }

CODE(code_llwpcb, "32", "llwpcb %eax")
CODE(code_slwpcb, "32", "slwpcb %eax")
CODE(code_ins, "32", "lwpins $0x12345678, %ecx, %edx")
CODE(code_ins_w, "32", ".byte 0x8f, 0xea, 0xe8, 0x12, 0xc1, 1, 0, 0, 0")
CODE(code_val, "32", "lwpval $0x12345678, %ecx, %edx")
CODE(code_xrstor32, "32", "xrstor %fs:(%esi)")
CODE(code_xrstor16, "16", "xrstor %fs:(%esi)")

/* Memory operands in 16-bit code */
#define CODE_ADDR16(name, mem) \
    CODE(name, "16", "lwpins $0x12345678, " mem ", %edx")

CODE_ADDR16(code_bx_si, "(%bx,%si)")
CODE_ADDR16(code_disp16, "0x1020")
CODE_ADDR16(code_bp, "%ds:0x10(%bp)")
CODE_ADDR16(code_ebx, "0x20(%ebx)")

/* Code segments for that */
static const struct Mode {
    const char *name;
    uint16_t cs;
    uint64_t base;
    void (*xrstor)(void);
} modes[] = {
    { "32-bit", USER_CODE32, 0, code_xrstor32 },
    { "32-bit, CS base", TEST_CODE, 0x12000, code_xrstor32 },
    { "16-bit", USER_CODE16, 0x100000, code_xrstor16 },
};

static const struct Mode *mode;

/* Run one piece at CPL 3 in @mode. */
static unsigned run_code(void (*code)(void), uint32_t eax)
{
    uint64_t high = 0xdeadbeefull << 32;

    set_up(mode->cs, (uintptr_t)code - mode->base);
    regs.rax = high | eax;
    regs.rcx = high | 0x89abcdef;
    regs.rdx = high | 0x76543210;
    return run();
}

static uint64_t ip_of(void (*code)(void))
{
    return (uintptr_t)code - mode->base;
}

static void test_records(void)
{
    prepare(LWP_FLAG_VAL);
    cb->event[0].counter = 0;
    report(run_code(code_llwpcb, CB_ADDR) == EXIT &&
           rdmsr(MSR_LWP_CBADDR) == CB_ADDR, "%s: LLWPCB", mode->name);
    report(run_code(code_slwpcb, 0) == EXIT && regs.rax == CB_ADDR,
           "%s: SLWPCB", mode->name);
    report(run_code(code_ins, 0) == EXIT &&
           record_is(ring, LWP_INS, 0x5678, 0x89abcdef, ip_of(code_ins),
                     0x76543210), "%s: LWPINS record", mode->name);
    report(run_code(code_val, 0) == EXIT &&
           record_is(ring + 1, LWP_VAL, 0x5678, 0x89abcdef, ip_of(code_val),
                     0x76543210), "%s: LWPVAL record", mode->name);
    report(run_code(code_ins_w, 0) == EXIT &&
           record_is(ring + 2, LWP_INS, 1, 0x89abcdef, ip_of(code_ins_w),
                     0x76543210), "%s: LWPINS ignores W", mode->name);
}

static void test_addr16(void)
{
    static const struct {
        const char *name;
        void (*code)(void);
    } t[] = {
        { "[BX + SI]", code_bx_si }, { "disp16", code_disp16 },
        { "DS:[BP + disp8]", code_bp }, { "[EBX + disp8]", code_ebx },
    };
    static uint32_t operand;

    prepare(0);
    run_code(code_llwpcb, CB_ADDR);
    set_ds((uintptr_t)&operand - 0x1020, 0xffff, ACC_DATA, SEG_16);
    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        operand = 0xfeed0000 + i;
        set_up(USER_CODE16, ip_of(t[i].code));
        regs.rdx = i;
        regs.rsi = 0xffff0020;
        regs.rbx = t[i].code == code_ebx ? 0x1000 : 0xffff1000;
        regs.rbp = 0xffff1010;
        report(run() == EXIT &&
               record_is(ring + i, LWP_INS, 0x5678, operand,
                         ip_of(t[i].code), i), "16-bit: operand %s", t[i].name);
    }
    load_ds(0);
}

/* §5.1 step 5 */
static void test_base(void)
{
    const uint32_t base = 0x00700000;

    prepare(0);
    cb->base = RING_ADDR - base;
    set_ds(base, 0xfffff, ACC_DATA, SEG_G | SEG_32);
    report(run_code(code_llwpcb, CB_ADDR - base) == EXIT &&
           rdmsr(MSR_LWP_CBADDR) == CB_ADDR,
           "%s: LLWPCB adds the base of DS", mode->name);
    report(cb->base == RING_ADDR - base, "BufferBase stays as it is");
    report(run_code(code_slwpcb, 0) == EXIT && regs.rax == CB_ADDR - base,
           "SLWPCB returns the effective address");
    set_ds(0x1000, 0xfffff, ACC_DATA, SEG_G | SEG_32);
    report(run_code(code_slwpcb, 0) == EXIT && regs.rax == CB_ADDR - 0x1000,
           "relative to the DS of the moment");
    load_ds(0);
    report(run_code(code_ins, 0) == EXIT && ring[0].event == LWP_INS,
           "the ring does not depend on the DS of the moment");
    load_ds(TEST_DATA);
    prepare(0);
    set_ds(CB_ADDR + 0x100, 0xfffff, ACC_DATA, SEG_G | SEG_32);
    cb->base = RING_ADDR - CB_ADDR - 0x100;
    cb->base = (uint32_t)cb->base;
    report(run_code(code_llwpcb, -0x100) == EXIT &&
           rdmsr(MSR_LWP_CBADDR) == CB_ADDR &&
           run_code(code_ins, 0) == EXIT && ring[0].event == LWP_INS,
           "addresses wrap around at 4 GiB");

    /* LWP_CBADDR = 0 is LWP disabled, however it comes about (§4.3). */
    set_ds(-0x1000, 0xfffff, ACC_DATA, SEG_G | SEG_32);
    report(run_code(code_llwpcb, 0x1000) == EXIT &&
           rdmsr(MSR_LWP_CBADDR) == 0 &&
           run_code(code_slwpcb, 0) == EXIT && regs.rax == 0,
           "LLWPCB of linear address 0 disables");
    load_ds(0);
}

/*
 * What a data segment admits: LLWPCB raises #GP (§5.1 step 4), XRSTOR at
 * CPL 3 disables LWP (§7.4).  Either the ring is at 0 of the segment and
 * the LWPCB at 2 * PAGE, or the ring is there and the LWPCB at 64.
 */
#define RESERVED_FLAGS  0x7fffff80u     /* LLWPCB would clear them. */
static XsaveArea area;

static void test_segments(void)
{
    const uint32_t end = 2 * PAGE + lwp_cb_size() - 1;
    const struct {
        const char *name;
        bool ok, swap;          /* swap LWPCB and ring */
        uint32_t limit;
        unsigned access, bits;
    } table[] = {
        { "limit", true, false, end, ACC_DATA, SEG_32 },
        { "LWPCB beyond the limit", false, false, end - 1, ACC_DATA, SEG_32 },
        { "16-bit data", true, false, end, ACC_DATA, SEG_16 },
        { "4 GiB", true, false, 0xfffff, ACC_DATA, SEG_32 | SEG_G },
        { "limit in pages", true, false, 2, ACC_DATA, SEG_32 | SEG_G },
        { "a page less", false, false, 1, ACC_DATA, SEG_32 | SEG_G },
        { "ring at the limit", true, true, 2 * PAGE + 1023, ACC_DATA, SEG_32 },
        { "ring beyond the limit", false, true, 2 * PAGE + 1022, ACC_DATA,
          SEG_32 },
        { "read-only", false, false, 0xfffff, ACC_READ_ONLY,
          SEG_32 | SEG_G },
        { "code", false, false, 0xfffff, ACC_CODE, SEG_32 | SEG_G },
        { "expand-down, all excluded", false, false, 0xfffff,
          ACC_EXPAND_DOWN, SEG_32 | SEG_G },
        { "expand-down, start excluded", false, false, 0, ACC_EXPAND_DOWN,
          SEG_32 },
    };

    for (int i = 0; i < ARRAY_SIZE(table); i++) {
        uint32_t cb_at = table[i].swap ? 64 : 2 * PAGE;
        uint32_t ring_at = table[i].swap ? 2 * PAGE : 0;
        LwpCb *c = (LwpCb *)&window_ram[0][cb_at];

        prepare(0);
        lwp_init(c, NULL, LWP_MIN_RING, RESERVED_FLAGS);
        c->base = ring_at;
        set_ds(WINDOW, table[i].limit, table[i].access, table[i].bits);
        if (table[i].ok) {
            report(run_code(code_llwpcb, cb_at) == EXIT &&
                   rdmsr(MSR_LWP_CBADDR) == WINDOW + cb_at,
                   "%s: LLWPCB, %s: legal", mode->name, table[i].name);
        } else {
            report(run_code(code_llwpcb, cb_at) == GP && regs.error == 0 &&
                   rdmsr(MSR_LWP_CBADDR) == 0 && c->flags == RESERVED_FLAGS,
                   "%s: LLWPCB, %s: #GP", mode->name, table[i].name);
        }
        memset(&area, 0, sizeof(area));
        area.xstate_bv = LWP_XSTATE;
        area.lwp.cb = WINDOW + cb_at;
        area.lwp.base = WINDOW + ring_at;
        area.lwp.size = LWP_MIN_RING;
        set_up(mode->cs, (uintptr_t)mode->xrstor - mode->base);
        regs.rax = 0;
        regs.rdx = LWP_XSTATE >> 32;
        regs.rsi = (uintptr_t)&area;
        wrmsr(MSR_LWP_CBADDR, 0);
        report(run() == EXIT && rdmsr(MSR_LWP_CBADDR) ==
               (table[i].ok ? WINDOW + cb_at : 0), "%s: XRSTOR, %s: %s",
               mode->name, table[i].name, table[i].ok ? "enabled" : "disabled");
    }

    /* Expand-down: offsets above the limit, up to 64 KiB or 4 GiB */
    for (int big = 0; big < 2; big++) {
        prepare(0);
        cb->base = 0xf000;
        set_ds(WINDOW - 0xf000, 0xefff, ACC_EXPAND_DOWN, big ? SEG_32 : 0);
        report(run_code(code_llwpcb, 0xf000 + 2 * PAGE) == (big ? EXIT : GP),
               "LLWPCB above 64 KiB, expand-down with B = %d", big);
        set_ds(WINDOW - 0xf000, 0xf000, ACC_EXPAND_DOWN, big ? SEG_32 : 0);
        report(run_code(code_llwpcb, 0xf000 + 2 * PAGE) == GP,
               "ring at the limit, expand-down with B = %d", big);
    }
    prepare(0);
    load_ds(0);
    report(run_code(code_llwpcb, CB_ADDR) == GP, "LLWPCB with a null DS");

    prepare(0);
    set_ds(WINDOW, 0xff, ACC_READ_ONLY, SEG_32);
    report(at_cpl(3, llwpcb(user_cb)) == EXIT &&
           rdmsr(MSR_LWP_CBADDR) == CB_ADDR,
           "64-bit mode ignores base, limit and type of DS");
    memset(&area, 0, sizeof(area));
    xsave(&area, LWP_XSTATE);
    report(at_cpl(3, xrstor(&area, LWP_XSTATE)) == EXIT &&
           rdmsr(MSR_LWP_CBADDR) == CB_ADDR, "64-bit XRSTOR does, too");
    prepare(0);
    cb->base = 1ull << 47;
    report(at_cpl(3, llwpcb(user_cb)) == GP && regs.error == 0,
           "64-bit mode: non-canonical ring is #GP");
    report(at_cpl(3, llwpcb((void *)(1ul << 47))) == GP && regs.error == 0,
           "64-bit mode: non-canonical LWPCB is #GP");
}

/* Stores have user privilege, whatever CPL is. */
static void test_privilege(void)
{
    static const struct {
        const char *name;
        int page;
        unsigned pte, error;
    } table[] = {
        { "ring missing", 0, 0, PTE_U | PTE_W },
        { "ring read-only", 0, PTE_P | PTE_U, PTE_ALL },
        { "ring of the kernel", 0, PTE_P | PTE_W, PTE_ALL },
        { "LWPCB missing", 2, 0, PTE_U | PTE_W },
        { "LWPCB read-only", 2, PTE_P | PTE_U, PTE_ALL },
        { "LWPCB of the kernel", 2, PTE_P | PTE_W, PTE_ALL },
    };

    for (int i = 0; i < ARRAY_SIZE(table); i++) {
        uint64_t page = WINDOW / PAGE + table[i].page;

        for (int cpl = 0; cpl <= 3; cpl += 3) {
            start(LWP_FLAG_VAL);
            set_pte(table[i].page, table[i].pte);
            report(at_cpl(cpl, lwpins(1, 2, 3)) == PF &&
                   regs.error == table[i].error &&
                   fault_address / PAGE == page &&
                   *(uint8_t *)regs.rip == 0x8f &&
                   bytes_are(ring, 0, LWP_MIN_RING) && cb->head == 0,
                   "CPL %d: LWPINS, %s: #PF", cpl, table[i].name);
            set_pte(table[i].page, PTE_ALL);
            report(run() == EXIT && cb->head == 32 &&
                   record_is(ring, LWP_INS, 3, 2, lwp_ip, 1) &&
                   ring[1].event == 0, "page mapped: one record");
        }
        if (table[i].page == 0) {
            continue;
        }
        set_pte(2, table[i].pte);
        report(at_cpl(0, slwpcb()) == PF && regs.error == table[i].error,
               "CPL 0: SLWPCB, %s: #PF", table[i].name);
        report(at_cpl(3, llwpcb(NULL)) == PF &&
               regs.error == table[i].error && rdmsr(MSR_LWP_CBADDR) ==
               CB_ADDR, "LLWPCB, old %s: #PF, still enabled", table[i].name);
        set_pte(2, PTE_ALL);
        report(run() == EXIT && rdmsr(MSR_LWP_CBADDR) == 0,
               "page mapped: disabled");
        set_pte(2, table[i].pte);
        report(at_cpl(3, llwpcb(user_cb)) == PF &&
               regs.error == table[i].error && rdmsr(MSR_LWP_CBADDR) == 0,
               "LLWPCB, new %s: #PF, disabled", table[i].name);
        set_pte(2, PTE_ALL);
        report(run() == EXIT && rdmsr(MSR_LWP_CBADDR) == CB_ADDR,
               "page mapped: enabled");
    }

    /* A record across pages faults at the second one, whole. */
    prepare(0);
    cb->base = RING_ADDR + PAGE - 16;
    at_cpl(3, llwpcb(user_cb));
    set_pte(1, 0);
    report(at_cpl(3, lwpins(1, 2, 3)) == PF && regs.error == (PTE_U | PTE_W) &&
           fault_address == RING_ADDR + PAGE &&
           bytes_are(window_ram[0], 0, PAGE),
           "a record that crosses into a missing page is not started");
    set_pte(1, PTE_ALL);
    report(run() == EXIT && cb->head == 32 &&
           record_is((void *)(window_ram[1] - 16), LWP_INS, 3, 2, lwp_ip, 1),
           "page mapped: the record is whole");

    /* The operand is read with the program's privilege. */
    start(LWP_FLAG_VAL);
    *(uint32_t *)window_ram[5] = 0xfeedbeef;
    set_pte(5, PTE_P);
    report(at_cpl(3, asm volatile("lwpins $1, %0, %%edx" : :
                                  "m" (*(uint32_t *)(WINDOW + 5 * PAGE))
                                  : "cc")) == PF &&
           regs.error == (PTE_P | PTE_U) && ring[0].event == 0,
           "CPL 3: LWPINS of the kernel's memory: #PF");
    report(at_cpl(0, asm volatile("lwpins $1, %0, %%edx" : :
                                  "m" (*(uint32_t *)(WINDOW + 5 * PAGE))
                                  : "cc")) == EXIT &&
           ring[0].data1 == 0xfeedbeef,
           "CPL 0: LWPINS of the kernel's memory: legal");
}

/*
 * Nothing looks at the ring, and nothing is written, before there is a record:
 * what is the kernel's business, error codes and dirty bits, is as without LWP.
 */
#define PTE_D   0x40

enum { IRE = 2 };

static void __attribute__((naked)) code_loop(void)
{
    asm("mov $2500, %ecx\n 1: dec %ecx\n jnz 1b\n int $32");
}

static void __attribute__((naked)) code_nop(void)
{
    asm("nop\n nop\n int $32");
}

static void __attribute__((naked)) code_selector(void)
{
    asm("nop\n mov $0xfff8, %eax\n mov %eax, %fs\n nop\n int $32");
}

static void __attribute__((naked)) code_load(void)
{
    asm("nop\n mov (%rsi), %eax\n nop\n int $32");
}

static void __attribute__((naked)) code_store(void)
{
    asm("nop\n mov %eax, (%rsi)\n nop\n int $32");
}

static void test_transparent(void)
{
    static const struct {
        const char *name;
        void (*fn)(void);
        unsigned vector;
        uint64_t error;
    } faults[] = {
        { "a selector beyond the table", code_selector, GP, 0xfff8 },
        { "a load", code_load, PF, PTE_U },
        { "a store", code_store, PF, PTE_U | PTE_W },
    };
    static const struct {
        const char *name;
        uint64_t pte;
    } rings[] = {
        { "is there", PTE_ALL },
        { "is not there", PTE_ALL & ~PTE_P },
        { "is to be copied on write", PTE_ALL & ~PTE_W },
    };

    for (int i = 0; i < ARRAY_SIZE(faults); i++) {
        for (int r = 0; r < ARRAY_SIZE(rings); r++) {
            prepare(1u << IRE);
            cb->event[IRE - 1].interval = 1000;
            cb->event[IRE - 1].counter = 1000;
            at_cpl(3, llwpcb(user_cb));
            set_up(USER_CODE64, (uintptr_t)code_loop);
            report(run() == EXIT && cb->head > 0, "there are records");
            set_pte(4, PTE_ALL & ~PTE_P);
            set_pte(0, rings[r].pte);
            set_up(USER_CODE64, (uintptr_t)faults[i].fn);
            regs.rsi = WINDOW + 4 * PAGE;
            report(run() == faults[i].vector && regs.error == faults[i].error,
                   "a fault of %s, while the ring %s: its error code",
                   faults[i].name, rings[r].name);
            set_pte(0, PTE_ALL);
            set_pte(2, PTE_ALL);
            set_up(USER_CODE64, (uintptr_t)code_nop);
            run();
            report(!(window_table[0] & PTE_D) && !(window_table[2] & PTE_D),
                   "no record is due: no page is dirty");
        }
    }
    set_pte(4, PTE_ALL);
}

int main(void)
{
    kernel_init();
    lwp_make_available();
    set_segment(TEST_CODE, modes[1].base, 0xfffff, ACC_CODE | ACC_USER,
                SEG_G | SEG_32);
    set_segment(USER_CODE16, modes[2].base, 0xffff, ACC_CODE | ACC_USER,
                SEG_16);
    asm volatile("mov %0, %%fs" : : "r" ((uint16_t)USER_DATA));

    for (mode = modes; mode < modes + ARRAY_SIZE(modes); mode++) {
        test_records();
        test_base();
        test_segments();
    }
    mode = &modes[2];
    test_addr16();
    test_privilege();
    test_transparent();
    return report_summary();
}
