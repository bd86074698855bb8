/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling: System Management Mode, in which LWP is inactive
 * and which its state survives (§1.1, §8.2.4).
 *
 * The same program runs with and without SMIs, and what LWP has recorded and
 * counted is compared.
 */

#include "lwp-kernel.h"
#include "kernel-smm.h"

enum { IRE = 2, BRE = 3, CNH = 5, RNH = 6 };

#define ALL             (LWP_FLAG_VAL | 1u << IRE | 1u << BRE | 1u << CNH | \
                         1u << RNH)
#define PREDICTION      (3u << 13)      /* of a branch; runs may differ */

/* volatile: device registers */
#define IOAPIC(offset)  (*(volatile uint32_t *)(0xfec00000ul + (offset)))
#define IOAPIC_SMI      0x200
#define IOAPIC_MASKED   0x10000

struct {
    uint32_t cr3, cr4;
} smi_control;
uint8_t smi_stack[16384] __attribute__((aligned(16)));

asm(".text\n"
    ".code16\n"
    "smi_code:\n"
    "    mov $smi_control, %ebx\n"
    "    mov (%ebx), %eax\n mov %eax, %cr3\n"
    "    mov 4(%ebx), %eax\n mov %eax, %cr4\n"
    "    mov $0xc0000080, %ecx\n mov $0x100, %eax\n xor %edx, %edx\n wrmsr\n"
    "    mov $0x80010001, %eax\n mov %eax, %cr0\n"
    "    ljmpl $8, $smi_64\n"
    "smi_code_end:\n"
    ".code64\n"
    "smi_64:\n"
    "    mov $0x10, %eax\n mov %eax, %ss\n mov %eax, %ds\n mov %eax, %es\n"
    "    lea smi_stack + 16384(%rip), %rsp\n"
    "    cld\n call smi_main\n"
    "    rsm\n");

static void (*smi_action)(void);
/* volatile: counted in SMM */
static volatile unsigned smis, user_smis;
static bool smi_ok;

/* SMM uses run(), too. */
void smi_main(void)
{
    Regs saved_regs = regs;
    uint64_t saved_rsp = kernel_rsp, saved_address = fault_address;

    smi_action();
    smis++;
    user_smis += (SMI_SAVED_CS & 3) == 3;
    regs = saved_regs;
    kernel_rsp = saved_rsp;
    fault_address = saved_address;
}

static void install_handler(void)
{
    uint64_t cr3, cr4;

    asm volatile("mov %%cr3, %0\n mov %%cr4, %1" : "=r" (cr3), "=r" (cr4));
    smi_control.cr3 = cr3;
    smi_control.cr4 = cr4;
    set_smi_code(LABEL(smi_code), LABEL(smi_code_end));
}

/* Code like that of CODE() in lwp-retire.c; RDI is an ICR or not. */
#define CODE(name, bits, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm(".code" bits "\n" insns "\n int $32\n .code64"); \
    }

/* The SMI comes behind the MOV in all kinds of places. */
#define SMIS_PROGRAM    (4 * 30 - 1)
#define PROGRAM \
    "mov $30, %ecx\n" \
    "1: nop\n lwpins $7, %ecx, %ecx\n mov %edx, (%edi)\n" \
    "lwpval $8, %ecx, %edx\n nop\n nop\n mov %edx, (%edi)\n dec %ecx\n" \
    "mov %edx, (%edi)\n jz 2f\n call 3f\n jmp 1b\n nop\n" \
    "3: inc %eax\n mov %edx, (%edi)\n ret\n" \
    "2: nop\n nop"
CODE(program64, "64", PROGRAM)
CODE(program32, "32", PROGRAM)
CODE(program_long, "64",
     "mov $3000, %ebx\n 1: mov $100, %ecx\n rep stosb\n sub $100, %rdi\n"
     "lwpval $9, %ebx, %ebx\n call 2f\n dec %ebx\n jnz 1b\n jmp 3f\n"
     "2: mov $50, %eax\n 4: dec %eax\n jnz 4b\n ret\n 3: nop")
CODE(nops, "64", ".rept 64\n nop\n .endr")
/* Nothing of this counts in SMM. */
CODE(code_loop, "64",
     "mov $100, %ecx\n 1: mov (%rsi), %eax\n call 2f\n dec %ecx\n jnz 1b\n"
     "jmp 3f\n 2: ret\n 3: nop")

static uint8_t user_data[PAGE] __attribute__((aligned(16)));
static uint8_t program_stack[PAGE] __attribute__((aligned(16)));
static XsaveArea area, smm_area;

/* What SMM does */
static void do_nothing(void)
{
}

static void do_loop(int cpl)
{
    set_up(cpl ? USER_CODE64 : CODE64, (uintptr_t)code_loop);
    regs.rsi = (uintptr_t)user_data;
    smi_ok &= run() == EXIT;
}

static void do_system_code(void)
{
    do_loop(0);
}

static void do_user_code(void)
{
    do_loop(3);
}

/* The processor changes its power state. */
static void do_power(void)
{
    uint64_t cbaddr = rdmsr(MSR_LWP_CBADDR), cfg = rdmsr(MSR_LWP_CFG);
    uint64_t xcr0 = xgetbv0();

    memset(&smm_area, 0, sizeof(smm_area));
    xsave(&smm_area, LWP_XSTATE);
    wrmsr(MSR_LWP_CBADDR, 0);
    smi_ok &= rdmsr(MSR_LWP_CBADDR) == 0 && smm_area.lwp.cb == cbaddr;
    wrmsr(MSR_LWP_CFG, 0);
    xsetbv0(xcr0 & ~LWP_XSTATE);
    xsetbv0(xcr0);
    wrmsr(MSR_LWP_CFG, cfg);
    xrstor(&smm_area, LWP_XSTATE);
}

static const struct {
    const char *name;
    void (*action)(void);
} actions[] = {
    { "SMM does nothing", do_nothing },
    { "SMM: CPL 0 runs", do_system_code },
    { "SMM: CPL 3 runs", do_user_code },
    { "SMM saves, clears and restores LWP", do_power },
};

static void begin(uint16_t cs, void (*code)(void), int32_t interval,
                  uint32_t filters)
{
    prepare(ALL);
    cb->size = 2 * PAGE;
    for (int i = 0; i < 6; i++) {
        cb->event[i].interval = interval + i;
        cb->event[i].counter = interval / 2 + i;
    }
    cb->filters = filters;
    cb->base_ip = (uintptr_t)code + 6;
    cb->limit_ip = (uintptr_t)code + 20;
    llwpcb(user_cb);
    set_up(cs, (uintptr_t)code);
    regs.rsp = (uintptr_t)program_stack + sizeof(program_stack);
    regs.rdi = (uintptr_t)user_data;
    regs.rdx = ICR_SELF_SMI;
}

static void begin_smis(void (*action)(void))
{
    smi_action = action;
    smis = user_smis = 0;
    smi_ok = true;
}

/* Run to the end; the ring's pages are mapped when they are needed. */
static bool run_mended(void)
{
    while (run() == PF && fault_address - WINDOW < 2 * PAGE) {
        set_pte((fault_address - WINDOW) / PAGE, PTE_ALL);
    }
    return regs.vector == EXIT;
}

static void save(void)
{
    memset(&area, 0, sizeof(area));
    xsave(&area, LWP_XSTATE);
}

static struct {
    uint8_t ring[2 * PAGE];
    LwpCb cb;
    LwpImage image;
    uint64_t cfg, cbaddr;
} now, expected;

static void take_snapshot(void)
{
    save();
    for (unsigned i = 0; i < sizeof(now.ring) / sizeof(*ring); i++) {
        if (ring[i].event == BRE) {
            ring[i].flags &= ~PREDICTION;
        }
    }
    memcpy(now.ring, ring, sizeof(now.ring));
    now.cb = *cb;
    now.image = area.lwp;
    now.cfg = rdmsr(MSR_LWP_CFG);
    now.cbaddr = rdmsr(MSR_LWP_CBADDR);
}

static void expect_this(void)
{
    take_snapshot();
    expected = now;
}

static bool as_expected(void)
{
    take_snapshot();
    return same(&now, &expected, sizeof(now));
}

static bool unchanged(void (*action)(void), uint16_t cs, void (*code)(void),
                      bool missing)
{
    static const uint8_t intervals[] = { 0, 1, 2, 5, 12, 30, 63, 200 };
    bool ok = true;

    for (int i = 0; i < 2 * ARRAY_SIZE(intervals); i++) {
        int interval = intervals[i / 2];
        uint32_t filters = i & 1 ? FILTER_IPF : 0;

        begin(cs, code, interval, filters);
        ok &= run() == EXIT;
        expect_this();
        ok &= now.image.head != 0;

        begin(cs, code, interval, filters);
        if (missing) {
            set_pte(0, 0);
            set_pte(1, 0);
        }
        begin_smis(action);
        regs.rdi = (uintptr_t)&APIC(APIC_ICR);
        ok &= run_mended() && smis == SMIS_PROGRAM && smi_ok && as_expected();
    }
    return ok;
}

static void test_smis(void)
{
    for (int i = 0; i < ARRAY_SIZE(actions); i++) {
        const char *name = actions[i].name;
        void (*action)(void) = actions[i].action;

        report(unchanged(action, USER_CODE64, program64, false),
               "%s: the same records and counters", name);
        report(unchanged(action, USER_CODE64, program64, true),
               "%s: the same when the ring has to be mapped", name);
        report(unchanged(action, USER_CODE32, program32, false),
               "%s: the same in compatibility mode", name);
    }
}

/*
 * SMIs that nobody here causes: the PIT's, by way of the I/O APIC.  They
 * interrupt the kernel, too.
 */
static void set_timer(uint32_t entry)
{
    out8(0x43, 0x34);
    out8(0x40, 1193 & 255);
    out8(0x40, 1193 >> 8);
    IOAPIC(0) = 0x14;
    IOAPIC(0x10) = entry;
}

static void test_timer(void)
{
    for (int i = 0; i < ARRAY_SIZE(actions); i++) {
        bool ok = true;

        begin(USER_CODE64, program_long, 4999, 0);
        ok &= run() == EXIT;
        expect_this();
        begin_smis(actions[i].action);
        set_timer(IOAPIC_SMI);
        while (ok && user_smis < 20) {
            begin(USER_CODE64, program_long, 4999, 0);
            ok &= run() == EXIT && as_expected();
        }
        set_timer(IOAPIC_MASKED);
        report(ok && smi_ok && now.image.head,
               "%s at any time: the same records and counters",
               actions[i].name);
    }
}

static void raise_smi(void)
{
    unsigned before = smis;

    APIC(APIC_ICR) = ICR_SELF_SMI;
    while (smis == before) {
        asm volatile("pause");
    }
}

/* The handler of #PF meets SMM. */
static void test_pending(void)
{
    for (int i = 0; i < 2 * ARRAY_SIZE(actions); i++) {
        bool ok, early = i & 1;
        LwpImage image;
        Regs saved;

        begin(USER_CODE64, nops, 100, 0);
        ok = run() == EXIT;
        expect_this();
        ok &= ring[0].event == IRE && ring[0].ip == (uintptr_t)nops + 51;

        begin(USER_CODE64, nops, 100, 0);
        set_pte(0, 0);
        ok &= run() == PF && fault_address == RING_ADDR &&
              regs.rip == (uintptr_t)nops + 52;
        save();
        image = area.lwp;
        saved = regs;
        if (early) {
            set_pte(0, PTE_ALL);
        }
        begin_smis(actions[i / 2].action);
        raise_smi();
        save();
        ok &= smi_ok && same(&image, &area.lwp, sizeof(image)) &&
              image.saved.event == IRE && ring[0].event == 0 &&
              same(&saved, &regs, sizeof(regs));
        set_pte(0, PTE_ALL);
        report(ok && run() == EXIT && as_expected(),
               "%s, a record is pending, page mapped %s: stored once behind",
               actions[i / 2].name, early ? "before" : "after");
    }
}

/* In SMM, CPL 3 runs where the record would be stored. */
static void test_pending_address(void)
{
    void resume(void)
    {
        set_up(USER_CODE64, (uintptr_t)nops + 52);
        smi_ok &= run() == EXIT && ring[0].event == 0;
    }

    begin(USER_CODE64, nops, 100, 0);
    run();
    expect_this();
    begin(USER_CODE64, nops, 100, 0);
    set_pte(0, 0);
    run();
    set_pte(0, PTE_ALL);
    begin_smis(resume);
    raise_smi();
    report(smi_ok && regs.rip == (uintptr_t)nops + 52 && ring[0].event == 0,
           "a pending record is not stored in SMM");
    report(run() == EXIT && as_expected(), "but when the program resumes");
}

/* The instructions work in SMM as at CPL 0 (§5.3, §5.4). */
static void test_insert(void)
{
    static uint32_t data = 3;
    static bool full;

    void insert(void)
    {
        full = lwpins(1, data, 2);
        lwpval(4, data, 5);
        smi_ok &= slwpcb() == user_cb;
    }

    prepare(LWP_FLAG_VAL);
    cb->event[0].counter = 0;
    llwpcb(user_cb);
    begin_smis(insert);
    raise_smi();
    report(smi_ok && !full && cb->head == 2 * sizeof(*ring) &&
           ring[0].event == LWP_INS && ring[0].data1 == data &&
           ring[1].event == LWP_VAL && ring[1].data1 == data,
           "LWPINS, LWPVAL and SLWPCB work in SMM");
}

int main(void)
{
    kernel_init();
    lwp_make_available();
    install_handler();
    begin_smis(do_nothing);
    raise_smi();
    report(smis == 1, "SMM runs this program's handler");
    test_smis();
    test_timer();
    test_pending();
    test_pending_address();
    test_insert();
    return report_summary();
}
