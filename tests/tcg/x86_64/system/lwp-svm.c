/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling in guests of a hypervisor, which is this program:
 * intercepts, nested paging, interrupts and world switches (§8.2.2).
 */

#include "lwp-kernel.h"
#include "kernel-svm.h"

enum { VAL = 1, IRE = 2 };
enum { DB = 1, LWP_VECTOR = 31, INJECTED = 40, GUEST_VECTORS };

#define FLAG(event)     (1u << (event))
#define MANY            10000000        /* more than any test runs */
#define RFLAGS_TF       (1u << 8)
#define RFLAGS_IF       (1u << 9)

/*
 * A guest shares the hypervisor's memory below 1 GiB and has a window of its
 * own, at the same linear address as the others', laid out as in lwp-kernel.h.
 */
enum { RING, CB = 2, STOSB = 4, DATA_PAGE, TABLE = 7, PAGES };

#define DATA_ADDR       (WINDOW + DATA_PAGE * PAGE)
#define RECORDS         (2 * PAGE / sizeof(LwpRecord))

/* Guest physical address of a page of the window, if paging is nested */
#define GPA(page)       (0x50000000ul + (page) * PAGE)

typedef struct Guest {
    Vmcb vmcb;
    uint64_t table[3][512];             /* the fourth level is in RAM */
    uint64_t nested_table[4][512];
    uint8_t ram[PAGES][PAGE];
    uint64_t rbx, rcx, rdx, rsi, rdi;
    uint64_t cfg;                       /* §8.2.2: beside the XSAVE area */
    XsaveArea area;
} __attribute__((aligned(PAGE))) Guest;

static Guest guests[3];
static Guest *const guest = &guests[0];
static bool nested;
static uint64_t features;               /* of LWP_CFG */

static uint8_t host_save[PAGE] __attribute__((aligned(PAGE)));
static uint8_t msr_map[2 * PAGE] __attribute__((aligned(PAGE)));
static uint8_t guest_stack[1024] __attribute__((aligned(16)));
static struct {
    uint64_t low, high;
} guest_idt[GUEST_VECTORS];

/* Code of a guest; RDI is its LWPCB, RSI its data page. */
#define CODE(name, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm(insns "\n vmmcall"); \
    }

/* The same, but it profiles itself from the second #VMEXIT on. */
#define PROFILED(name, insns) CODE(name, "llwpcb %rdi\n vmmcall\n" insns)
#define BODY(code)      ((uintptr_t)(code) + 8)

static LwpRecord *guest_ring(Guest *g)
{
    return (LwpRecord *)g->ram[RING];
}

static LwpCb *guest_cb(Guest *g)
{
    return (LwpCb *)g->ram[CB];
}

/* Entries of the guest's page table and of the nested one */
static void map_guest(Guest *g, int page, unsigned bits)
{
    uint64_t addr = nested ? GPA(page) : (uintptr_t)g->ram[page];

    ((uint64_t *)g->ram[TABLE])[page] = addr | bits;
}

static void map_nested(Guest *g, int page, unsigned bits)
{
    g->nested_table[3][page] = (uintptr_t)g->ram[page] | bits;
}

/* Where LWP's accesses can fail, @nested or not */
static void map(Guest *g, int page, unsigned bits)
{
    (nested ? map_nested : map_guest)(g, page, bits);
}

static void make_tables(Guest *g)
{
    const unsigned large = PTE_ALL | 0x80;
    uint64_t cr3, *host;

    asm volatile("mov %%cr3, %0" : "=r" (cr3));
    host = (uint64_t *)(*(uint64_t *)(cr3 & -PAGE) & -PAGE);
    g->table[0][0] = (uintptr_t)g->table[1] | PTE_ALL;
    g->table[1][0] = host[0];
    g->table[1][WINDOW >> 30] = (uintptr_t)g->table[2] | PTE_ALL;
    g->table[2][0] = (nested ? GPA(TABLE) : (uintptr_t)g->ram[TABLE]) |
                     PTE_ALL;
    g->nested_table[0][0] = (uintptr_t)g->nested_table[1] | PTE_ALL;
    g->nested_table[1][0] = large;
    g->nested_table[1][GPA(0) >> 30] = (uintptr_t)g->nested_table[2] | PTE_ALL;
    g->nested_table[2][GPA(0) >> 21 & 511] =
        (uintptr_t)g->nested_table[3] | PTE_ALL;
    for (int i = 0; i < PAGES; i++) {
        map_guest(g, i, PTE_ALL);
        map_nested(g, i, PTE_ALL);
    }
}

static void intercept(Guest *g, unsigned exit, bool on)
{
    if (exit != EXIT_NPF) {
        intercept_exit(&g->vmcb, exit, on);
    }
}

/* @g will run @code; nothing but VMMCALL is intercepted. */
static void set_guest(Guest *g, int cpl, void (*code)(void))
{
    Vmcb *v = &g->vmcb;

    make_tables(g);
    set_vmcb(v, cpl, code, (uintptr_t)guest_stack + sizeof(guest_stack));
    v->msr_map = (uintptr_t)msr_map;
    v->asid = g - guests + 1;
    v->nested = nested;
    v->nested_cr3 = (uintptr_t)g->nested_table[0];
    v->idtr = (Segment) { .limit = sizeof(guest_idt) - 1,
                          .base = (uintptr_t)guest_idt };
    v->cr3 = (uintptr_t)g->table[0];
    v->cr2 = 0x1234;
    g->rdi = CB_ADDR;
    g->rsi = DATA_ADDR;
}

/* Returns the exit code.  GIF stays clear. */
static uint64_t enter(Guest *g)
{
    asm volatile("vmrun %%rax"
                 : "+b" (g->rbx), "+c" (g->rcx), "+d" (g->rdx),
                   "+S" (g->rsi), "+D" (g->rdi)
                 : "a" (&g->vmcb) : "cc", "memory");
    return g->vmcb.exit;
}

/* To the next VMMCALL, and over it */
static bool call(Guest *g)
{
    bool ok = enter(g) == EXIT_VMMCALL;

    g->vmcb.rip += 3;
    return ok;
}

/* LWPCB.EventInterval and EventCounter of an event */
typedef struct Period {
    int32_t interval, counter;
} Period;

#define EVERY(n)        ((Period) { (n) - 1, (n) - 1 })
#define NEVER           EVERY(MANY)

static int32_t left(const Guest *g, int event)
{
    return (int32_t)((uint32_t)g->area.lwp.counter[event - 1] << 6) >> 6;
}

static void save(Guest *g)
{
    memset(&g->area, 0, sizeof(g->area));
    xsave(&g->area, LWP_XSTATE);
}

/* How often IRE has counted, unless LWPINS records are in the ring */
static int32_t counted(Guest *g, Period p)
{
    save(g);
    return g->area.lwp.head / 32 * (p.interval + 1) + p.counter -
           left(g, IRE);
}

static void prepare_profiled(Guest *g, void (*code)(void), uint32_t flags,
                             Period period)
{
    wrmsr(MSR_LWP_CBADDR, 0);
    g->cfg = features | (uint64_t)(g - guests) << 32;
    wrmsr(MSR_LWP_CFG, g->cfg);
    memset(g->ram, 0, 3 * PAGE);
    set_guest(g, 3, code);
    lwp_init(guest_cb(g), (void *)RING_ADDR, 2 * PAGE, flags);
    for (int i = 0; i < ARRAY_SIZE(guest_cb(g)->event); i++) {
        guest_cb(g)->event[i].interval = period.interval;
        guest_cb(g)->event[i].counter = period.counter;
    }
}

/* @g has executed LLWPCB and is about to run BODY(@code). */
static bool start_profiled(Guest *g, void (*code)(void), uint32_t flags,
                           Period period)
{
    prepare_profiled(g, code, flags, period);
    return call(g) && rdmsr(MSR_LWP_CBADDR) == CB_ADDR;
}

/*
 * Offsets of the @n instructions that retire; those from @loop on do so over
 * and over.
 */
typedef struct Trace {
    uint8_t ip[6], n, loop;
} Trace;

/* Without a trace they have one byte each. */
static uint64_t trace_ip(void (*code)(void), const Trace *t, int i)
{
    if (t && i >= t->n) {
        i = t->loop + (i - t->loop) % (t->n - t->loop);
    }
    return BODY(code) + (t ? t->ip[i] : i);
}

/*
 * Whether the ring has the IRE records of @total instructions, and those of
 * @ins LWPINS at @ins_ip in between: Data1 and Data2 count down to 1.
 */
static bool ring_is(Guest *g, void (*code)(void), const Trace *t, Period p,
                    int total, int ins, uint64_t ins_ip)
{
    int n = p.counter;

    save(g);
    for (unsigned i = 0; i < g->area.lwp.head / 32; i++) {
        LwpRecord want = { .core = g - guests };

        if (guest_ring(g)[i].event == LWP_INS) {
            want.event = LWP_INS;
            want.flags = 7;
            want.data1 = want.data2 = ins--;
            want.ip = ins_ip;
        } else {
            want.event = IRE;
            want.ip = trace_ip(code, t, n);
            n += p.interval + 1;
        }
        if (!same(&want, &guest_ring(g)[i], sizeof(want))) {
            return false;
        }
    }
    return ins == 0 && n >= total && left(g, IRE) == n - total &&
           !guest_cb(g)->missed && g->area.lwp.saved.event == 0 &&
           guest_ring(g)[g->area.lwp.head / 32].event == 0;
}

static const char *paging(void)
{
    return nested ? "nested paging" : "no nested paging";
}

CODE(code_rdmsr, "rdmsr")
CODE(code_wrmsr, "wrmsr")
CODE(code_xsetbv, "xsetbv")
CODE(code_lwpins, "lwpins $7, %ecx, %rcx")

/* §4.2, §4.3: the MSRs are like others. */
static void test_msrs(void)
{
    static const uint32_t msrs[] = { MSR_LWP_CFG, MSR_LWP_CBADDR };
    static const char *const names[] = { "LWP_CFG", "LWP_CBADDR" };
    const uint64_t cfg = features | 5ull << 32;

    for (int i = 0; i < ARRAY_SIZE(msrs); i++) {
        uint32_t bit = 0x800 * 8 + (msrs[i] & 0x1fff) * 2;
        bool exits = true, passes = true;

        /* Bits of the map: reads, writes; 4 is no intercept at all */
        for (int bits = 0; bits < 8; bits++) {
            for (int write = 0; write <= 1; write++) {
                bool exit = (bits >> write & 1) && !(bits & 4);
                uint64_t old[2];

                wrmsr(MSR_LWP_CFG, cfg);
                start(0);
                for (int m = 0; m < 2; m++) {
                    old[m] = rdmsr(msrs[m]);
                }
                /* Other MSRs' bits must not matter. */
                memset(msr_map, exit ? 0 : 0xff, sizeof(msr_map));
                msr_map[bit / 8] &= ~(3 << bit % 8);
                msr_map[bit / 8] |= (bits & 3) << bit % 8;
                set_guest(guest, 0, write ? code_wrmsr : code_rdmsr);
                intercept(guest, EXIT_MSR, !(bits & 4));
                guest->rcx = msrs[i];
                guest->vmcb.rax = guest->rdx = 0;
                enter(guest);
                if (exit) {
                    exits &= guest->vmcb.exit == EXIT_MSR &&
                             guest->vmcb.info1 == write &&
                             guest->vmcb.rip == (uintptr_t)
                                 (write ? code_wrmsr : code_rdmsr) &&
                             guest->vmcb.rax == 0 && guest->rdx == 0 &&
                             rdmsr(MSR_LWP_CFG) == old[0] &&
                             rdmsr(MSR_LWP_CBADDR) == old[1];
                } else {
                    uint64_t val = (uint32_t)guest->vmcb.rax |
                                   guest->rdx << 32;

                    passes &= guest->vmcb.exit == EXIT_VMMCALL &&
                              val == (write ? 0 : old[i]) && old[i] &&
                              rdmsr(msrs[i]) == (write ? 0 : old[i]) &&
                              rdmsr(msrs[!i]) == old[!i];
                }
            }
        }
        report(exits, "%s: %s exits, nothing changes", paging(), names[i]);
        report(passes, "%s: %s passes", paging(), names[i]);
    }

    memset(msr_map, 0xff, sizeof(msr_map));
    set_guest(guest, 3, code_rdmsr);
    intercept(guest, EXIT_MSR, true);
    intercept(guest, EXIT_EXCEPTION + GP, true);
    guest->rcx = MSR_LWP_CFG;
    report(enter(guest) == EXIT_EXCEPTION + GP,
           "%s: CPL 3: #GP precedes the intercept", paging());
    memset(msr_map, 0, sizeof(msr_map));
    set_guest(guest, 0, code_wrmsr);
    intercept(guest, EXIT_MSR, true);
    intercept(guest, EXIT_EXCEPTION + GP, true);
    guest->rcx = MSR_LWP_CBADDR;
    guest->vmcb.rax = CB_ADDR;
    report(enter(guest) == EXIT_EXCEPTION + GP &&
           guest->vmcb.rip == (uintptr_t)code_wrmsr,
           "%s: #GP of WRMSR is the guest's", paging());
}

CODE(code_cr3, "mov %rbx, %cr3")
CODE(code_cr4, "mov %rbx, %cr4")

/* Reserved bits of control registers are not the hypervisor's business. */
static void test_control_registers(void)
{
    for (int cr = 3; cr <= 4; cr++) {
        void (*code)(void) = cr == 3 ? code_cr3 : code_cr4;

        start(0);
        set_guest(guest, 0, code);
        intercept(guest, EXIT_EXCEPTION + GP, true);
        guest->rbx = 1ull << 62;
        report(enter(guest) == EXIT_EXCEPTION + GP && guest->vmcb.info1 == 0 &&
               guest->vmcb.rip == (uintptr_t)code && guest->rbx == 1ull << 62,
               "%s: reserved bits of CR%d are #GP", paging(), cr);
        set_up(CODE64, (uintptr_t)code);
        regs.rbx = 1ull << 62;
        report(run() == GP && regs.error == 0 && regs.rip == (uintptr_t)code,
               "%s: and without a guest", paging());
    }
}

CODE(code_rdpmc, "rdpmc")

/*
 * Processors of AMD have four counters, whether or not CPUID announces more:
 * these exit, and #GP of others comes first (APM volume 2, table 15-7).
 */
static void test_rdpmc(void)
{
    bool more = cpuid_reg(0x80000001, 0, 2) & CPUID_PERFCTR_CORE;

    for (int i = 0; i < 8; i++) {
        unsigned exit = i < (more ? 6 : 4) ? EXIT_RDPMC : EXIT_EXCEPTION + GP;

        start(0);
        set_guest(guest, 0, code_rdpmc);
        intercept(guest, EXIT_RDPMC, true);
        intercept(guest, EXIT_EXCEPTION + GP, true);
        guest->rcx = i;
        report(enter(guest) == exit &&
               guest->vmcb.rip == (uintptr_t)code_rdpmc,
               "%s: RDPMC of counter %d exits", paging(), i);
    }
}

PROFILED(code_nops, ".rept 20\n nop\n .endr")

/* §4.1: XCR0 is the guest's unless the hypervisor says otherwise. */
static void test_xsetbv(void)
{
    start(0);
    set_guest(guest, 0, code_xsetbv);
    intercept(guest, EXIT_XSETBV, true);
    guest->rcx = guest->rdx = 0;
    guest->vmcb.rax = 3;
    report(enter(guest) == EXIT_XSETBV &&
           guest->vmcb.rip == (uintptr_t)code_xsetbv &&
           xgetbv0() == (3 | LWP_XSTATE) && rdmsr(MSR_LWP_CBADDR) == CB_ADDR,
           "%s: XSETBV exits, nothing changes", paging());
    intercept(guest, EXIT_XSETBV, false);
    report(enter(guest) == EXIT_VMMCALL && xgetbv0() == 3 &&
           rdmsr(MSR_LWP_CBADDR) == 0,
           "%s: XSETBV clears XCR0[62]: LWP is disabled", paging());
    set_guest(guest, 3, code_lwpins);
    intercept(guest, EXIT_EXCEPTION + UD, true);
    report(enter(guest) == EXIT_EXCEPTION + UD,
           "%s: then LWPINS is #UD", paging());
    xsetbv0(3 | LWP_XSTATE);
    report(rdmsr(MSR_LWP_CBADDR) == 0 && call(guest) &&
           guest->vmcb.rip == (uintptr_t)code_lwpins + 12,
           "%s: set again: LWP stays disabled", paging());

    /* VMRUN that fails has loaded CPL 3 already. */
    start_profiled(guest, code_nops, FLAG(IRE), NEVER);
    guest->vmcb.dr7 = 1ull << 32;
    report(enter(guest) == -1ull && rdmsr(MSR_LWP_CBADDR) == CB_ADDR &&
           counted(guest, NEVER) == 0, "%s: VMRUN fails: nothing counts",
           paging());
    guest->vmcb.dr7 = 0x400;
    report(call(guest) && ring_is(guest, code_nops, NULL, NEVER, 20, 0, 0),
           "%s: then it succeeds: exact", paging());
}

/* Records of each instruction, of some, and of one in a longer block */
static const Period periods[] = {
    NEVER, EVERY(1), EVERY(2), EVERY(3), EVERY(4), EVERY(5), EVERY(8),
    { 150, 0 }, { 150, 1 }, { 150, 2 }, { 150, 3 },
};

PROFILED(code_cpuid, "nop\n cpuid\n nop")
PROFILED(code_rdtsc, "nop\n rdtsc\n nop")
PROFILED(code_pause, "nop\n pause\n nop")
PROFILED(code_pushf, "nop\n pushf\n popf\n nop")
PROFILED(code_sgdt, "nop\n sgdt (%rsi)\n nop")
PROFILED(code_int, "nop\n int $32\n nop")
PROFILED(code_int1, "nop\n .byte 0xf1\n nop")
PROFILED(code_ud2, "nop\n ud2\n nop")
PROFILED(code_hlt, "nop\n hlt\n nop")
PROFILED(code_div, "xor %ecx, %ecx\n div %ecx\n nop")
PROFILED(code_load, "nop\n mov (%rsi), %eax\n nop")
PROFILED(code_store, "nop\n incl (%rsi)\n nop")
PROFILED(code_rep, "lea -50(%rsi), %rdi\n mov $100, %ecx\n rep stosb\n nop")

/* What does not retire because of #VMEXIT does not count, and once later. */
static void test_intercepts(void)
{
    static const struct {
        const char *name;
        void (*code)(void);
        unsigned exit;
        uint8_t before, skip;   /* instructions that count; bytes */
        Trace trace;
    } t[] = {
        { "CPUID", code_cpuid, EXIT_CPUID, 1, 0, { { 0, 1, 3 }, 3 } },
        { "RDTSC", code_rdtsc, EXIT_RDTSC, 1, 0, { { 0, 1, 3 }, 3 } },
        { "PAUSE", code_pause, EXIT_PAUSE, 1, 0, { { 0, 1, 3 }, 3 } },
        { "PUSHF", code_pushf, EXIT_PUSHF, 1, 0, { { 0, 1, 2, 3 }, 4 } },
        { "POPF", code_pushf, EXIT_POPF, 2, 0, { { 0, 1, 2, 3 }, 4 } },
        { "SGDT", code_sgdt, EXIT_GDTR_READ, 1, 0, { { 0, 1, 4 }, 3 } },
        { "INT n", code_int, EXIT_SWINT, 1, 2, { { 0, 3 }, 2 } },
        { "INT1", code_int1, EXIT_ICEBP, 1, 1, { { 0, 2 }, 2 } },
        { "#UD", code_ud2, EXIT_EXCEPTION + UD, 1, 2, { { 0, 3 }, 2 } },
        { "#GP", code_hlt, EXIT_EXCEPTION + GP, 1, 1, { { 0, 2 }, 2 } },
        { "#DE", code_div, EXIT_EXCEPTION, 1, 2, { { 0, 4 }, 2 } },
        { "#PF of a load", code_load, EXIT_EXCEPTION + PF, 1, 0,
          { { 0, 1, 3 }, 3 } },
        { "#PF of INC", code_store, EXIT_EXCEPTION + PF, 1, 0,
          { { 0, 1, 3 }, 3 } },
        { "#PF of REP STOSB", code_rep, EXIT_EXCEPTION + PF, 2, 0,
          { { 0, 4, 9, 11 }, 4 } },
        { "nested #PF of a load", code_load, EXIT_NPF, 1, 0,
          { { 0, 1, 3 }, 3 } },
        { "nested #PF of INC", code_store, EXIT_NPF, 1, 0,
          { { 0, 1, 3 }, 3 } },
        { "nested #PF of REP STOSB", code_rep, EXIT_NPF, 2, 0,
          { { 0, 4, 9, 11 }, 4 } },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        bool ok = true;

        if (t[i].exit == EXIT_NPF && !nested) {
            continue;
        }
        for (int n = 0; n < ARRAY_SIZE(periods); n++) {
            ok &= start_profiled(guest, t[i].code, FLAG(IRE), periods[n]);
            intercept(guest, t[i].exit, true);
            if (t[i].exit == EXIT_EXCEPTION + PF) {
                map_guest(guest, DATA_PAGE, 0);
            } else if (t[i].exit == EXIT_NPF) {
                map_nested(guest, DATA_PAGE, 0);
            }
            ok &= enter(guest) == t[i].exit &&
                  guest->vmcb.rip == BODY(t[i].code) - t[i].skip +
                                     t[i].trace.ip[t[i].before] &&
                  counted(guest, periods[n]) == t[i].before;
            intercept(guest, t[i].exit, false);
            map_guest(guest, DATA_PAGE, PTE_ALL);
            map_nested(guest, DATA_PAGE, PTE_ALL);
            guest->vmcb.rip += t[i].skip;
            ok &= call(guest) &&
                  ring_is(guest, t[i].code, &t[i].trace, periods[n],
                          t[i].trace.n, 0, 0);
        }
        report(ok, "%s: %s exits, counts %s", paging(), t[i].name,
               t[i].skip ? "never" : "once");
    }
}

#define LOOPS 100
PROFILED(code_loop,
         "mov $100, %ecx\n 1: lwpins $7, %ecx, %rcx\n vmmcall\n dec %ecx\n"
         "jnz 1b")

static const Trace loop_trace = { { 0, 5, 17, 19 }, 4, 1 };

static bool loop_is_done(Guest *g, Period period)
{
    return g->rcx == 0 &&
           ring_is(g, code_loop, &loop_trace, period, 3 * LOOPS + 1, LOOPS,
                   BODY(code_loop) + 5);
}

/* What the hypervisor itself runs between #VMEXIT and VMRUN */
static void busy(void)
{
    for (int i = 0; i < 10; i++) {
        asm volatile("nop");
    }
}

static void busy_inserting(void)
{
    busy();
    lwpins(1, 2, 3);
}

/* VMMCALL does not count, the hypervisor does not, the guest does. */
static void test_exits(void)
{
    enum { RESUME, RUN_CPL0, RUN_WRMSR, RUN_XRSTOR };
    static const char *const names[] = {
        "at once", "after code at CPL 0",
        "after code at CPL 3, disabled by WRMSR",
        "after code at CPL 3, disabled by XRSTOR",
    };
    static XsaveArea before;
    static uint8_t ram[3 * PAGE];

    for (int how = RESUME; how <= RUN_XRSTOR; how++) {
        bool ok = true, still = true;

        for (int i = 0; i < ARRAY_SIZE(periods); i++) {
            if (periods[i].interval == 0) {
                continue;       /* more records than the ring holds */
            }
            ok &= start_profiled(guest, code_loop, FLAG(IRE), periods[i]);
            for (int n = LOOPS; n; n--) {
                ok &= call(guest) && guest->rcx == n;
                if (how == RESUME || (n & 15)) {
                    continue;
                }
                save(guest);
                before = guest->area;
                memcpy(ram, guest->ram, sizeof(ram));
                if (how == RUN_WRMSR) {
                    wrmsr(MSR_LWP_CBADDR, 0);
                } else if (how == RUN_XRSTOR) {
                    guest->area.xstate_bv = 0;
                    xrstor(&guest->area, LWP_XSTATE);
                }
                if (how == RUN_CPL0) {
                    still &= run_function(0, busy) == EXIT &&
                             rdmsr(MSR_LWP_CBADDR) == CB_ADDR;
                } else {
                    still &= run_function(3, busy_inserting) == EXIT &&
                             rdmsr(MSR_LWP_CBADDR) == 0;
                    xrstor(&before, LWP_XSTATE);
                }
                save(guest);
                still &= same(&before.lwp, &guest->area.lwp,
                              sizeof(LwpImage)) &&
                         same(ram, guest->ram, sizeof(ram));
            }
            ok &= call(guest) && loop_is_done(guest, periods[i]);
        }
        if (how != RESUME) {
            report(still, "%s: %s: nothing counts", paging(), names[how]);
        }
        report(ok, "%s: VMRUN %s: exact", paging(), names[how]);
    }
}

/* A guest that steps itself exits between any two instructions. */
static void test_steps(void)
{
    bool ok = true;

    for (int i = 0; i < ARRAY_SIZE(periods); i++) {
        int n = 0;

        ok &= start_profiled(guest, code_rep, FLAG(IRE), periods[i]);
        intercept(guest, EXIT_EXCEPTION + DB, true);
        guest->vmcb.rflags |= RFLAGS_TF;
        while (enter(guest) == EXIT_EXCEPTION + DB) {
            static const uint8_t ip[] = { 0, 4, 9, 11, 12 };

            /* REP traps after each iteration. */
            n += n < 2 || guest->vmcb.rip != BODY(code_rep) + 9;
            ok &= n < ARRAY_SIZE(ip) &&
                  guest->vmcb.rip == BODY(code_rep) + ip[n] &&
                  counted(guest, periods[i]) == n;
        }
        ok &= guest->vmcb.exit == EXIT_VMMCALL && n == 4 &&
              ring_is(guest, code_rep, &(Trace) { { 0, 4, 9, 11 }, 4 },
                      periods[i], 4, 0, 0);
    }
    report(ok, "%s: TF, #DB exits: exact at every trap", paging());
}

PROFILED(code_inserts,
         "mov $100, %ecx\n 1: lwpins $7, %ecx, %rcx\n dec %ecx\n jnz 1b")

/* Several events, which can be pending at the same time */
static void test_all_events(void)
{
    const uint32_t all = features & 0x6e;       /* DME knows a cache */
    static uint8_t ram[3 * PAGE];
    static LwpImage image;
    bool ok = true, some = true;

    for (int i = 0; i < ARRAY_SIZE(periods); i++) {
        for (int stepped = 0; stepped <= 1; stepped++) {
            ok &= start_profiled(guest, code_inserts, all, periods[i]);
            if (stepped) {
                intercept(guest, EXIT_EXCEPTION + DB, true);
                guest->vmcb.rflags |= RFLAGS_TF;
            }
            for (int n = 0; stepped && n < 301; n++) {
                ok &= enter(guest) == EXIT_EXCEPTION + DB;
            }
            ok &= call(guest) && guest->rcx == 0;
            save(guest);
            for (int n = 0; n < RECORDS; n++) {
                /* The second time branches are predicted better. */
                guest_ring(guest)[n].flags &= ~0x6000;
            }
            if (stepped) {
                ok &= same(&image, &guest->area.lwp, sizeof(image)) &&
                      same(ram, guest->ram, sizeof(ram));
            }
            image = guest->area.lwp;
            memcpy(ram, guest->ram, sizeof(ram));
            some &= image.flags == all && image.head > 0;
        }
    }
    report(ok && some, "%s: all events, TF, #DB exits: the same records",
           paging());
}

PROFILED(code_ins, "nop\n lwpins $7, %ecx, %rcx\n nop")
PROFILED(code_val, "nop\n lwpval $7, %ecx, %rcx\n nop")
PROFILED(code_slwpcb, "nop\n slwpcb %rax\n nop")

/* §8.6: LWP's accesses fault as the guest's would. */
static void test_faults(void)
{
    static const struct {
        const char *name;
        void (*code)(void);
        uint32_t flags;
        uint8_t retired, at;    /* when it exits; where */
    } t[] = {
        { "IRE", code_nops, FLAG(IRE), 3, 3 },
        { "LWPINS", code_ins, FLAG(IRE), 1, 1 },
        { "LWPVAL", code_val, FLAG(IRE) | FLAG(VAL), 1, 1 },
        { "SLWPCB", code_slwpcb, FLAG(IRE), 1, 1 },
    };
    static const struct {
        const char *name;
        uint8_t page, bits;
    } missing[] = {
        { "ring missing", RING, 0 }, { "ring read-only", RING, PTE_P | PTE_U },
        { "LWPCB missing", CB, 0 }, { "LWPCB read-only", CB, PTE_P | PTE_U },
        { "page table missing", TABLE, 0 },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        Period period = t[i].code == code_nops ? EVERY(3) : EVERY(20);

        for (int m = 0; m < ARRAY_SIZE(missing); m++) {
            unsigned page = missing[m].page;
            Vmcb *v = &guest->vmcb;
            uint64_t info1 = 6 | (missing[m].bits & 1), info2;
            bool ok;

            if ((page == TABLE && !nested) ||
                (page == RING && t[i].code == code_slwpcb)) {
                continue;
            }
            prepare_profiled(guest, t[i].code, t[i].flags, period);
            guest_cb(guest)->event[VAL - 1].counter = 0;
            ok = call(guest);
            guest->rcx = 1;
            map(guest, page, missing[m].bits);
            intercept(guest, EXIT_EXCEPTION + PF, true);
            enter(guest);
            info2 = v->info2;
            ok &= v->exit == (nested ? EXIT_NPF : EXIT_EXCEPTION + PF) &&
                  v->rip == BODY(t[i].code) + t[i].at && v->cr2 == 0x1234;
            if (page == TABLE) {
                ok &= (v->info1 & (NPF_TABLE | NPF_ADDRESS)) == NPF_TABLE &&
                      (info2 == GPA(TABLE) + RING * 8 ||
                       info2 == GPA(TABLE) + CB * 8);
            } else {
                uint64_t base = nested ? GPA(page) : WINDOW + page * PAGE;

                ok &= v->info1 == (info1 | (nested ? NPF_ADDRESS : 0)) &&
                      (page == RING ? info2 == base :
                                      info2 / PAGE == base / PAGE);
            }
            ok &= guest_ring(guest)->event == 0 &&
                  guest_cb(guest)->head == 0 &&
                  counted(guest, period) == t[i].retired;
            report(ok, "%s: %s, %s: exits", paging(), t[i].name,
                   missing[m].name);

            /* Time for others */
            run_function(0, busy);
            map(guest, page, PTE_ALL);
            ok = call(guest);
            if (t[i].code == code_nops) {
                ok &= ring_is(guest, code_nops, NULL, period, 20, 0, 0);
            } else {
                bool stored = t[i].code != code_slwpcb;
                LwpRecord *r = guest_ring(guest);

                save(guest);
                ok &= left(guest, IRE) == 20 - 1 - 3 &&
                      guest->area.lwp.head == 32 * stored &&
                      r[1].event == 0 &&
                      (!stored ||
                       record_is(r, t[i].flags & FLAG(VAL) ? LWP_VAL : LWP_INS,
                                 7, 1, BODY(t[i].code) + 1, 1)) &&
                      (stored || v->rax == CB_ADDR);
            }
            report(ok, "%s: %s, page mapped: %s once", paging(), t[i].name,
                   t[i].code == code_slwpcb ? "done" : "stored");
        }
    }

    prepare_profiled(guest, code_nops, FLAG(IRE), EVERY(3));
    map(guest, CB, 0);
    intercept(guest, EXIT_EXCEPTION + PF, true);
    report(enter(guest) == (nested ? EXIT_NPF : EXIT_EXCEPTION + PF) &&
           guest->vmcb.rip == (uintptr_t)code_nops &&
           rdmsr(MSR_LWP_CBADDR) == 0,
           "%s: LLWPCB, LWPCB missing: exits", paging());
    map(guest, CB, PTE_ALL);
    report(call(guest) && rdmsr(MSR_LWP_CBADDR) == CB_ADDR && call(guest) &&
           ring_is(guest, code_nops, NULL, EVERY(3), 20, 0, 0),
           "%s: LLWPCB, page mapped: done", paging());
}

/* Handlers of a guest; IST1 is @regs. */
static void __attribute__((naked)) guest_pf(void)
{
    asm("vmmcall\n add $8, %rsp\n iretq");
}

static void __attribute__((naked)) guest_interrupt(void)
{
    asm("nop\n vmmcall\n iretq");
}

static void set_gate(int vector, void (*fn)(void))
{
    uint64_t handler = (uintptr_t)fn;

    guest_idt[vector].low = (handler & 0xffff) | CODE64 << 16 | 1ull << 32 |
                            0x8eull << 40 | (handler >> 16 & 0xffff) << 48;
    guest_idt[vector].high = handler >> 32;
}

/* Events that the guest handles at CPL 0 */
static void test_delivery(void)
{
    bool ok = true;

    start_profiled(guest, code_nops, FLAG(IRE), EVERY(3));
    map_guest(guest, RING, 0);
    report(call(guest) && guest->vmcb.cr2 == RING_ADDR && regs.error == 6 &&
           regs.rip == BODY(code_nops) + 3 && regs.cs == USER_CODE64 &&
           counted(guest, EVERY(3)) == 3 && guest_ring(guest)->event == 0,
           "%s: #PF of LWP is delivered in the guest", paging());
    map_guest(guest, RING, PTE_ALL);
    report(call(guest) && ring_is(guest, code_nops, NULL, EVERY(3), 20, 0, 0),
           "%s: page mapped by the guest: stored once", paging());

    for (int i = 0; i < ARRAY_SIZE(periods); i++) {
        if (periods[i].interval == 0) {
            continue;
        }
        ok &= start_profiled(guest, code_loop, FLAG(IRE), periods[i]);
        for (int n = LOOPS; n; n--) {
            ok &= call(guest) && guest->rcx == n;
            guest->vmcb.inject = INJECT | INJECTED;
            ok &= call(guest) && (guest->vmcb.cs.selector & 3) == 0 &&
                  regs.rip == BODY(code_loop) + 17;
        }
        ok &= call(guest) && loop_is_done(guest, periods[i]);
    }
    report(ok, "%s: injected interrupts: the handler does not count",
           paging());
}

/* §8.2.2: to another guest; one that has no @cfg does not use LWP. */
static void switch_guest(Guest *from, Guest *to)
{
    if (from->cfg) {
        save(from);
        from->cfg = rdmsr(MSR_LWP_CFG);
    }
    if (to->cfg) {
        xsetbv0(3 | LWP_XSTATE);
        wrmsr(MSR_LWP_CFG, to->cfg);
        xrstor(&to->area, LWP_XSTATE);
    } else {
        xsetbv0(3);
    }
}

CODE(code_plain, "1: nop\n vmmcall\n dec %rcx\n jnz 1b")

static void test_switch(void)
{
    static uint8_t alone[2][2 * PAGE];
    static LwpImage image[2];
    bool ok = true, same_alone = true, third = true;

    for (int i = 0; i < ARRAY_SIZE(periods) - 1; i++) {
        const Period *period = &periods[i];
        Guest *g, *last = NULL;

        if (period[0].interval == 0 || period[1].interval == 0) {
            continue;
        }
        for (int n = 0; n < 2; n++) {
            g = &guests[n];
            ok &= start_profiled(g, code_loop, FLAG(IRE), period[n]);
            for (int k = 0; k <= LOOPS; k++) {
                ok &= call(g);
            }
            ok &= loop_is_done(g, period[n]);
            memcpy(alone[n], g->ram, 2 * PAGE);
            image[n] = g->area.lwp;
        }
        for (int n = 0; n < 2; n++) {
            ok &= start_profiled(&guests[n], code_loop, FLAG(IRE),
                                 period[n]);
            save(&guests[n]);
        }
        last = &guests[1];
        set_guest(&guests[2], 3, code_plain);
        guests[2].rcx = LOOPS + 1;
        for (int k = 0; k <= LOOPS; k++) {
            for (int n = 0; n < 3; n++) {
                /* Not always the same one after the other */
                g = &guests[(n + k / 3) % 3];
                if (g != last) {
                    switch_guest(last, g);
                }
                last = g;
                ok &= call(g);
                if (!g->cfg) {
                    third &= xgetbv0() == 3 && rdmsr(MSR_LWP_CBADDR) == 0;
                }
            }
        }
        switch_guest(last, &guests[0]);
        for (int n = 0; n < 2; n++) {
            g = &guests[n];
            if (n) {
                switch_guest(&guests[0], g);
            }
            ok &= rdmsr(MSR_LWP_CFG) == g->cfg &&
                  loop_is_done(g, period[n]);
            same_alone &= same(alone[n], g->ram, 2 * PAGE) &&
                          same(&image[n], &g->area.lwp, sizeof(LwpImage));
        }
    }
    report(ok, "%s: world switches: records and counts are exact", paging());
    report(same_alone, "%s: they are as without switches", paging());
    report(third && guests[2].rcx == 1,
           "%s: a guest without XCR0[62] runs without LWP", paging());

    /* A record is pending when guests are switched (§8.6). */
    start_profiled(&guests[0], code_nops, FLAG(IRE), EVERY(3));
    intercept(guest, EXIT_EXCEPTION + PF, true);
    map(&guests[0], RING, 0);
    report(enter(&guests[0]) == (nested ? EXIT_NPF : EXIT_EXCEPTION + PF) &&
           (save(&guests[0]), guests[0].area.lwp.saved.event == IRE) &&
           guests[0].area.lwp.saved.ip == BODY(code_nops) + 2,
           "%s: the record is in the XSAVE area", paging());
    report(start_profiled(&guests[1], code_nops, FLAG(IRE), EVERY(5)) &&
           call(&guests[1]) &&
           ring_is(&guests[1], code_nops, NULL, EVERY(5), 20, 0, 0),
           "%s: the other guest does not see it", paging());
    switch_guest(&guests[1], &guests[0]);
    map(&guests[0], RING, PTE_ALL);
    report(call(&guests[0]) &&
           ring_is(&guests[0], code_nops, NULL, EVERY(3), 20, 0, 0),
           "%s: back, page mapped: stored once", paging());

    /* BaseIP and LimitIP are not in the XSAVE area (§8.2.5). */
    prepare_profiled(guest, code_nops, FLAG(IRE), EVERY(3));
    guest_cb(guest)->filters = FILTER_IPF;
    guest_cb(guest)->base_ip = BODY(code_nops) + 8;
    guest_cb(guest)->limit_ip = BODY(code_nops) + 13;
    ok = call(guest);
    switch_guest(&guests[0], &guests[1]);
    switch_guest(&guests[1], &guests[0]);
    map(guest, CB, 0);
    intercept(guest, EXIT_EXCEPTION + PF, true);
    report(ok && enter(guest) == (nested ? EXIT_NPF : EXIT_EXCEPTION + PF) &&
           guest->vmcb.rip == BODY(code_nops) &&
           counted(guest, EVERY(3)) == 0,
           "%s: IP filter, LWPCB missing: exits after the switch", paging());
    map(guest, CB, PTE_ALL);
    report(call(guest) && counted(guest, EVERY(3)) == 6 &&
           guest_ring(guest)[0].ip == BODY(code_nops) + 10 &&
           guest_ring(guest)[1].ip == BODY(code_nops) + 13 &&
           guest_ring(guest)[2].event == 0,
           "%s: page mapped: the range is that of the LWPCB", paging());
}

/* Without paging, linear addresses are guest physical ones. */
static void test_legacy(void)
{
    const uint64_t ring = nested ? GPA(RING) : (uintptr_t)guest->ram[RING];
    Vmcb *v = &guest->vmcb;
    bool ok;

    prepare_profiled(guest, code_nops, FLAG(IRE), EVERY(3));
    guest_cb(guest)->base = ring;
    v->cs = (Segment) { USER_CODE32, 0xcfb, -1, 0 };
    v->cr0 &= ~CR0_PG;
    v->efer &= ~EFER_LME_LMA;
    guest->rdi = ring + CB * PAGE;
    ok = call(guest) && rdmsr(MSR_LWP_CBADDR) == ring + CB * PAGE;
    if (nested) {
        map_nested(guest, RING, 0);
        ok &= enter(guest) == EXIT_NPF &&
              v->info1 == (NPF_ADDRESS | 6) && v->info2 == GPA(RING) &&
              v->rip == BODY(code_nops) + 3 &&
              guest_ring(guest)->event == 0;
        map_nested(guest, RING, PTE_ALL);
    }
    report(ok && call(guest) &&
           ring_is(guest, code_nops, NULL, EVERY(3), 20, 0, 0),
           "%s: 32-bit guest without paging: stored once", paging());
}

enum {
    APIC_EOI = 0xb0, APIC_SPURIOUS = 0xf0, APIC_IRR = 0x200,
    APIC_TIMER = 0x320, APIC_TIMER_COUNT = 0x380, APIC_TIMER_DIVIDE = 0x3e0,
};

static void init_apic(void)
{
    /* Nothing comes from the other interrupt controllers. */
    out8(0x21, 0xff);
    out8(0xa1, 0xff);
    APIC(APIC_SPURIOUS) = 0x1ff;
    APIC(APIC_TIMER) = LWP_VECTOR;      /* one-shot */
    APIC(APIC_TIMER_DIVIDE) = 0xb;      /* by 1 */
}

static bool is_requested(void)
{
    return APIC(APIC_IRR) & 1u << LWP_VECTOR;
}

static void allow_interrupts(void)
{
    asm volatile("sti\n nop\n cli");
}

/* The interrupt that a guest has not taken, by way of the own IDT */
static bool take_interrupt(void)
{
    bool ok = run_function(0, allow_interrupts) == EXIT && is_requested();

    /* #VMEXIT has cleared GIF. */
    asm volatile("stgi");
    ok &= run_function(0, allow_interrupts) == LWP_VECTOR && !is_requested();
    APIC(APIC_EOI) = 0;
    return ok && run_function(0, allow_interrupts) == EXIT;
}

PROFILED(code_wait, "1: inc %rbx\n cmpl $0, (%rsi)\n je 1b")
CODE(code_wait_plain, "1: inc %rbx\n cmpl $0, (%rsi)\n je 1b")

static const Trace wait_trace = { { 0, 3, 6 }, 3, 0 };
static const Period wait_period[] = { { 100002, 7 }, { 1000002, 8 } };

/* A timer decides when guests are switched. */
static void test_preemption(void)
{
    bool ok = true;
    Guest *g, *last = &guests[1];

    for (int n = 0; n < 2; n++) {
        g = &guests[n];
        ok &= start_profiled(g, code_wait, FLAG(IRE), wait_period[n]);
        g->rbx = 0;
        *(uint32_t *)g->ram[DATA_PAGE] = 0;
        save(g);
    }
    g = &guests[2];
    set_guest(g, 3, code_wait_plain);
    *(uint32_t *)g->ram[DATA_PAGE] = 0;
    for (int n = 0; n < 60; n++) {
        g = &guests[n % 3];
        switch_guest(last, g);
        last = g;
        intercept(g, EXIT_INTR, true);
        g->vmcb.rflags |= RFLAGS_IF;
        APIC(APIC_TIMER_COUNT) = 100000;
        ok &= enter(g) == EXIT_INTR && take_interrupt();
    }
    report(ok, "%s: interrupts exit, 60 world switches", paging());
    ok = true;
    for (int n = 0; n < 2; n++) {
        Period p = wait_period[n];
        int64_t total;

        g = &guests[n];
        switch_guest(last, g);
        last = g;
        *(uint32_t *)g->ram[DATA_PAGE] = 1;
        ok &= call(g);
        /* If it took long, the ring is full. */
        total = counted(g, p) + guest_cb(g)->missed * (p.interval + 1);
        ok &= total == g->rbx * 3;
        for (int i = 0; i < g->area.lwp.head / 32; i++) {
            ok &= guest_ring(g)[i].event == IRE &&
                  guest_ring(g)[i].core == n &&
                  guest_ring(g)[i].ip == trace_ip(code_wait, &wait_trace,
                                                  i * (p.interval + 1) +
                                                  p.counter);
        }
    }
    report(ok, "%s: whenever that was, counts are exact", paging());
}

#define THRESHOLD 5

/* @code has interrupts after THRESHOLD records. */
static bool start_interrupts(void (*code)(void), Period period)
{
    Guest *g = guest;
    bool ok;

    prepare_profiled(g, code, FLAG(IRE) | LWP_FLAG_INT, period);
    guest_cb(g)->threshold = THRESHOLD * 32;
    g->cfg |= LWP_FLAG_INT | (uint64_t)LWP_VECTOR << 40;
    wrmsr(MSR_LWP_CFG, g->cfg);
    ok = call(g) && guest_cb(g)->flags == (FLAG(IRE) | LWP_FLAG_INT);
    intercept(g, EXIT_INTR, true);
    g->vmcb.rflags |= RFLAGS_IF;
    return ok;
}

/* Whether LWPINS has stored @n records and then been interrupted */
static bool inserted(int n, uint64_t rip)
{
    return guest->rcx == 101 - n && rip == BODY(code_inserts) + 5 + 9 &&
           guest_cb(guest)->head == n * 32 && guest_ring(guest)[n].event == 0;
}

/* Table 6-1, Threshold: a physical interrupt of this processor */
int injected;

static void __attribute__((naked)) count_injected(void)
{
    asm("incl injected(%rip)\n iretq");
}

/* The threshold interrupt makes the CPU leave its blocks soon afterwards. */
static void test_injected_once(void)
{
    Guest *g = guest;
    bool ok = start_interrupts(code_inserts, NEVER);

    set_gate(INJECTED, count_injected);
    g->vmcb.inject = INJECT | INJECTED;
    report(ok && enter(g) == EXIT_INTR && injected == 1 &&
           inserted(THRESHOLD, g->vmcb.rip) && take_interrupt(),
           "an injected interrupt is delivered once");
    set_gate(INJECTED, guest_interrupt);
}

static void test_interrupts(void)
{
    Guest *g = guest;
    bool ok;

    report(start_interrupts(code_inserts, NEVER) && enter(g) == EXIT_INTR &&
           inserted(THRESHOLD, g->vmcb.rip) && is_requested(),
           "%s: threshold interrupt of LWPINS exits", paging());
    report(take_interrupt(), "%s: it is pending for the hypervisor", paging());
    report(enter(g) == EXIT_INTR && inserted(THRESHOLD + 1, g->vmcb.rip) &&
           take_interrupt(),
           "%s: ring not emptied: the next record's exits, too", paging());
    guest_cb(g)->tail = guest_cb(g)->head;
    report(enter(g) == EXIT_INTR && inserted(2 * THRESHOLD + 1, g->vmcb.rip) &&
           take_interrupt(), "%s: ring emptied: after more records", paging());

    ok = true;
    for (int every = 1; every <= 3; every++) {
        Period period = EVERY(every);

        ok &= start_interrupts(code_nops, period);
        for (int n = THRESHOLD; n <= 20 / every; n += THRESHOLD) {
            int insns = n * every;

            ok &= enter(g) == EXIT_INTR && guest_cb(g)->head == n * 32 &&
                  g->vmcb.rip == BODY(code_nops) + insns &&
                  counted(g, period) == insns && take_interrupt();
            guest_cb(g)->tail = guest_cb(g)->head;
        }
        ok &= call(g) && !is_requested() &&
              ring_is(g, code_nops, NULL, period, 20, 0, 0);
    }
    report(ok, "%s: threshold interrupt of IRE exits, counts are exact",
           paging());

    ok = start_interrupts(code_nops, EVERY(10));
    intercept(g, EXIT_EXCEPTION + PF, true);
    guest_cb(g)->threshold = 32;
    map(g, RING, 0);
    ok &= enter(g) == (nested ? EXIT_NPF : EXIT_EXCEPTION + PF) &&
          !is_requested();
    map(g, RING, PTE_ALL);
    /* It may be late (§1.1 step 4), but nothing is lost. */
    ok &= enter(g) == EXIT_INTR && g->vmcb.rip < BODY(code_nops) + 20;
    report(ok && guest_cb(g)->head == 32 && take_interrupt() &&
           counted(g, EVERY(10)) == g->vmcb.rip - BODY(code_nops),
           "%s: record after the page is mapped: interrupt", paging());
    guest_cb(g)->tail = 32;
    report(enter(g) == EXIT_INTR && g->vmcb.rip == BODY(code_nops) + 20 &&
           take_interrupt() && call(g) &&
           ring_is(g, code_nops, NULL, EVERY(10), 20, 0, 0),
           "%s: stored once", paging());

    ok = start_interrupts(code_inserts, NEVER);
    g->vmcb.rflags &= ~RFLAGS_IF;
    report(ok && call(g) && guest_cb(g)->head == 3200 && is_requested() &&
           take_interrupt(), "%s: RFLAGS.IF = 0: it waits", paging());

    ok = start_interrupts(code_inserts, NEVER);
    g->vmcb.rflags &= ~RFLAGS_IF;
    g->vmcb.int_ctl = INTR_MASKING;
    asm volatile("clgi\n sti");
    enter(g);
    asm volatile("cli");
    report(ok && g->vmcb.exit == EXIT_INTR &&
           inserted(THRESHOLD, g->vmcb.rip) && take_interrupt(),
           "%s: V_INTR_MASKING: the hypervisor's IF counts", paging());

    ok = start_interrupts(code_inserts, NEVER);
    intercept(g, EXIT_INTR, false);
    report(ok && call(g) && (g->vmcb.cs.selector & 3) == 0 &&
           regs.cs == USER_CODE64 && inserted(THRESHOLD, regs.rip) &&
           !is_requested(), "%s: not intercepted: the guest takes it",
           paging());
    ok = true;
    for (int n = 2; n <= 100 / THRESHOLD; n++) {
        APIC(APIC_EOI) = 0;
        guest_cb(g)->tail = guest_cb(g)->head;
        ok &= call(g) && inserted(n * THRESHOLD, regs.rip);
    }
    APIC(APIC_EOI) = 0;
    report(ok && call(g) && g->rcx == 0 && (save(g), left(g, IRE)) ==
           MANY - 1 - 301, "%s: its handler does not count", paging());
}

int main(void)
{
    uint32_t supported = cpuid_reg(0x8000001c, 0, 3);

    kernel_init();
    lwp_make_available();
    features = supported & ~LWP_FLAG_INT;
    report((cpuid_reg(0x80000001, 0, 2) & 4) &&
           (cpuid_reg(0x8000000a, 0, 3) & 1),
           "SVM and nested paging are available");
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SVME);
    wrmsr(MSR_HSAVE_PA, (uintptr_t)host_save);
    set_gate(PF, guest_pf);
    set_gate(LWP_VECTOR, guest_interrupt);
    set_gate(INJECTED, guest_interrupt);
    init_apic();
    test_injected_once();
    for (int i = 0; i <= 1; i++) {
        nested = i;
        test_msrs();
        test_control_registers();
    test_rdpmc();
        test_xsetbv();
        test_intercepts();
        test_exits();
        test_steps();
        test_all_events();
        test_faults();
        test_delivery();
        test_switch();
        test_legacy();
        test_preemption();
        test_interrupts();
    }
    return report_summary();
}
