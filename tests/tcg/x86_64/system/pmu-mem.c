/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory accesses: each load and store that retires counts, where it has found
 * its line, and in the row of its privilege.
 *
 * Runs on a PMU like Skylake's, with an L1D of 16 KiB in 4 ways and an L2 of
 * 2 MiB in 16.  The output is the same with -icount shift=0 and with
 * one-insn-per-tb=on.
 */

#include "pmu-kernel.h"

enum { DE = 0, DB = 1, NMI = 2 };

enum {
    LOADS, STORES, LOCKED, SPLIT_LOADS, SPLIT_STORES, HIT_L1, HIT_L2, HIT_L3,
    MISS_L1, MISS_L2, MISS_L3, FILLS, LLC_REFS, LLC_MISSES, S_MISS_L1, EVENTS
};

static const struct {
    uint16_t code;
    const char *name;
} events[EVENTS] = {
    { 0x81d0, "loads" }, { 0x82d0, "stores" }, { 0x21d0, "locked loads" },
    { 0x41d0, "split loads" }, { 0x42d0, "split stores" },
    { 0x01d1, "L1D hits" }, { 0x02d1, "L2 hits" }, { 0x04d1, "L3 hits" },
    { 0x08d1, "L1D misses" }, { 0x10d1, "L2 misses" }, { 0x20d1, "L3 misses" },
    { 0x0151, "lines into L1D" }, { 0x4f2e, "LLC references" },
    { 0x412e, "LLC misses" }, { 0xe224, "stores that miss L1D" },
};

#define COUNTERS        4
#define LINE            64
#define AREA            0x10000
#define LARGE_AREA      0x300000
#define MEMORY          0x2000000
#define MEMORY_END      0x7800000

/* RSI is memory that no cache has seen, and RDI is half an area behind it. */
CODE(nothing, "")
CODE(loads, "mov $100, %ecx\n 1: mov (%rsi), %eax\n dec %ecx\n jnz 1b")
CODE(stores, "mov $100, %ecx\n 1: mov %eax, (%rsi)\n dec %ecx\n jnz 1b")
CODE(twice, "mov $2, %edx\n 2: mov $512, %ecx\n mov %rsi, %rbx\n"
     "1: mov (%rbx), %eax\n add $64, %rbx\n dec %ecx\n jnz 1b\n"
     "dec %edx\n jnz 2b")
CODE(fits, "mov $2, %edx\n 2: mov $256, %ecx\n mov %rsi, %rbx\n"
     "1: mov (%rbx), %eax\n add $64, %rbx\n dec %ecx\n jnz 1b\n"
     "dec %edx\n jnz 2b")
CODE(evicted, "mov $17, %ecx\n mov %rsi, %rbx\n"
     "1: mov (%rbx), %eax\n add $0x20000, %rbx\n dec %ecx\n jnz 1b\n"
     "mov (%rsi), %eax")
CODE(split_load, "mov 60(%rsi), %rax\n mov 60(%rsi), %rbx")
CODE(split_half, "mov (%rsi), %eax\n mov 60(%rsi), %rax")
CODE(split_store, "mov %rax, 60(%rsi)\n mov 64(%rsi), %eax")
CODE(rmw, "incl (%rsi)\n addb $1, 4(%rsi)\n orl %eax, 62(%rsi)")
CODE(no_rmw, "cmp %eax, (%rsi)\n testl $1, (%rsi)\n cmpl $1, (%rsi)\n"
     "add (%rsi), %eax\n btl $3, (%rsi)\n setz 1(%rsi)")
CODE(locked, "lock incl (%rsi)\n xchg %eax, (%rsi)\n lock xadd %eax, 4(%rsi)\n"
     "lock cmpxchg16b 16(%rsi)\n lock cmpxchg %eax, 32(%rsi)\n"
     "cmpxchg %eax, 32(%rsi)\n xadd %eax, 4(%rsi)\n lock btsl $3, 8(%rsi)")
CODE(stack, "lea 4096(%rsi), %rsp\n push %rax\n push %rbx\n pop %rax\n"
     "push (%rsp)\n pop 8(%rsp)\n call 1f\n pushfq\n popfq\n"
     "lea 2f(%rip), %rax\n mov %rax, (%rsp)\n call *(%rsp)\n jmp 3f\n"
     "1: ret\n 2: ret $8\n 3:")
CODE(frame, "lea 4096(%rsi), %rbp\n lea -64(%rbp), %rsp\n enter $16, $2\n"
     "leave")
CODE(rep_movs, "mov $100, %ecx\n rep movsb\n movsq")
CODE(rep_stos, "mov $200, %ecx\n xchg %rsi, %rdi\n rep stosq\n mov $3, %ecx\n"
     "lea (%rsi), %rdi\n rep stosb\n xor %ecx, %ecx\n rep stosb")
CODE(rep_cmps, "mov $150, %ecx\n repe cmpsb\n mov $70, %ecx\n repne scasb\n"
     "mov $40, %ecx\n rep lodsb\n scasb\n cmpsl\n lodsl")
CODE(wide, "movups (%rsi), %xmm0\n vmovdqu (%rsi), %ymm0\n"
     "vmovdqu %ymm0, 40(%rsi)\n fldl (%rsi)\n fstpl (%rsi)")
CODE(fx, "fxsave (%rsi)\n fxrstor (%rsi)")
CODE(iretq, "lea 4096(%rsi), %rsp\n mov %ss, %eax\n push %rax\n push %rsi\n"
     "pushfq\n mov %cs, %eax\n push %rax\n lea 1f(%rip), %rax\n push %rax\n"
     "iretq\n 1:")

static const struct {
    const char *name;
    void (*fn)(void);
    uint16_t n[EVENTS];
    bool large;             /* it needs much memory */
} codes[] = {
#define MISSES(n)   [MISS_L1] = (n), [MISS_L2] = (n), [MISS_L3] = (n), \
                    [LLC_REFS] = (n), [LLC_MISSES] = (n)
    { "nothing", nothing },
    { "loads of a line", loads,
      { [LOADS] = 100, [HIT_L1] = 99, [FILLS] = 1, MISSES(1) } },
    { "stores to a line", stores,
      { [STORES] = 100, [FILLS] = 1, [S_MISS_L1] = 1 } },
    { "twice L1D", twice,
      { [LOADS] = 1024, [HIT_L2] = 512, [MISS_L1] = 1024, [MISS_L2] = 512,
        [MISS_L3] = 512, [FILLS] = 1024, [LLC_REFS] = 512,
        [LLC_MISSES] = 512 } },
    { "all of L1D, twice", fits,
      { [LOADS] = 512, [HIT_L1] = 256, [FILLS] = 256, MISSES(256) } },
    { "a line that L2 has lost", evicted,
      { [LOADS] = 18, [HIT_L3] = 1, [MISS_L1] = 18, [MISS_L2] = 18,
        [MISS_L3] = 17, [FILLS] = 18, [LLC_REFS] = 18, [LLC_MISSES] = 17 },
      true },
    { "loads from two lines", split_load,
      { [LOADS] = 2, [SPLIT_LOADS] = 2, [HIT_L1] = 1, [FILLS] = 2,
        MISSES(1) } },
    { "one from two lines, one of them known", split_half,
      { [LOADS] = 2, [SPLIT_LOADS] = 1, [FILLS] = 2, MISSES(2) } },
    { "a store to two lines", split_store,
      { [LOADS] = 1, [STORES] = 1, [SPLIT_STORES] = 1, [HIT_L1] = 1,
        [FILLS] = 2, [S_MISS_L1] = 1 } },
    { "read-modify-writes", rmw,
      { [LOADS] = 3, [STORES] = 3, [SPLIT_LOADS] = 1, [SPLIT_STORES] = 1,
        [HIT_L1] = 1, [FILLS] = 2, MISSES(2) } },
    { "reads of a destination", no_rmw,
      { [LOADS] = 5, [STORES] = 1, [HIT_L1] = 4, [FILLS] = 1, MISSES(1) } },
    { "LOCK", locked,
      { [LOADS] = 8, [STORES] = 8, [LOCKED] = 6, [HIT_L1] = 7, [FILLS] = 1,
        MISSES(1) } },
    { "PUSH, POP, CALL, RET", stack,
      { [LOADS] = 7, [STORES] = 8, [HIT_L1] = 7, [FILLS] = 2,
        [S_MISS_L1] = 2 } },
    { "ENTER, LEAVE", frame,
      { [LOADS] = 2, [STORES] = 3, [HIT_L1] = 1, [FILLS] = 2, MISSES(1),
        [S_MISS_L1] = 1 } },
    { "REP MOVS", rep_movs,
      { [LOADS] = 101, [STORES] = 101, [HIT_L1] = 99,
        [FILLS] = 4, MISSES(2), [S_MISS_L1] = 2 } },
    { "REP STOS", rep_stos,
      { [STORES] = 203, [FILLS] = 26, [S_MISS_L1] = 26 } },
    { "REP CMPS, SCAS, LODS", rep_cmps,
      { [LOADS] = 345, [SPLIT_LOADS] = 1, [HIT_L1] = 338, [FILLS] = 7,
        MISSES(7) } },
    { "wide ones", wide,
      { [LOADS] = 3, [STORES] = 2, [SPLIT_STORES] = 1, [HIT_L1] = 2,
        [FILLS] = 2, MISSES(1), [S_MISS_L1] = 1 } },
    { "FXSAVE, FXRSTOR", fx,
      { [LOADS] = 8, [STORES] = 8, [HIT_L1] = 8, [FILLS] = 8,
        [S_MISS_L1] = 8 } },
    { "IRETQ", iretq,
      { [LOADS] = 5, [STORES] = 5, [HIT_L1] = 5, [FILLS] = 1,
        [S_MISS_L1] = 1 } },
};

static uintptr_t area = MEMORY;
static uintptr_t flush_at;      /* if not 0: for RDI */
static bool watching;           /* what DR0 says, in the area */
static uint32_t watched;        /* where that is */

static void stop(void)
{
    wrmsr(MSR_GLOBAL_CTRL, 0);
    for (int i = 0; i < COUNTERS; i++) {
        wrmsr(MSR_EVTSEL(i), 0);
    }
    wrmsr(MSR_GLOBAL_STATUS_RESET, rdmsr(MSR_GLOBAL_STATUS));
    APIC(APIC_LVTPC) = LVT_NMI;
}

static void set_memory(int cpl, void (*fn)(void))
{
    set_up(cpl ? USER_CODE64 : CODE64, (uintptr_t)fn);
    regs.rsi = area;
    regs.rdi = flush_at ? flush_at : area + AREA / 2;
    regs.rax = regs.rdx = 0;
    asm volatile("mov %0, %%dr0" : : "r" (area + watched));
    /* Reads and writes of 4 bytes */
    asm volatile("mov %0, %%dr7" : : "r" (watching ? 0xf0401ul : 0x400ul));
}

static void use_memory(uint32_t size)
{
    area += size;
    if (area > MEMORY_END - LARGE_AREA) {
        report(false, "there is memory left");
        area = MEMORY;
    }
}

/*
 * Add to @n what @fn counts at @cpl in @rows, EVTSEL_USR and EVTSEL_OS.  The
 * counters have to take turns.
 */
static void measure(int cpl, uint32_t rows, void (*fn)(void), uint32_t size,
                    int64_t n[EVENTS])
{
    for (int first = 0; first < EVENTS; first += COUNTERS) {
        int count = EVENTS - first < COUNTERS ? EVENTS - first : COUNTERS;

        stop();
        for (int i = 0; i < count; i++) {
            wrmsr(MSR_EVTSEL(i), events[first + i].code | rows | EVTSEL_EN);
            wrmsr(MSR_PMC(i), 0);
        }
        set_memory(cpl, fn);
        wrmsr(MSR_GLOBAL_CTRL, 15);
        while (run() == DB) {
            continue;
        }
        wrmsr(MSR_GLOBAL_CTRL, 0);
        for (int i = 0; i < count; i++) {
            n[first + i] += rdmsr(MSR_PMC(i));
        }
        use_memory(size);
    }
    stop();
}

static bool check(const int64_t n[EVENTS], const uint16_t want[EVENTS])
{
    bool ok = true;

    for (int i = 0; i < EVENTS; i++) {
        if (n[i] != want[i]) {
            test_printf("  %s: %ld for %d\n", events[i].name, n[i], want[i]);
            ok = false;
        }
    }
    return ok;
}

static void test_codes(void)
{
    for (int i = 0; i < ARRAY_SIZE(codes); i++) {
        int64_t n[EVENTS] = { 0 };

        measure(3, EVTSEL_USR, codes[i].fn, codes[i].large ? LARGE_AREA : AREA,
                n);
        report(check(n, codes[i].n), "CPL 3: %s", codes[i].name);
    }
}

/* The same at CPL 0, less what run() itself does; that is in L1D by then. */
static void test_kernel(void)
{
    for (int i = 0; i < ARRAY_SIZE(codes); i++) {
        int64_t n[EVENTS] = { 0 }, overhead[EVENTS] = { 0 };

        if (codes[i].n[FILLS] > 64 || codes[i].large) {
            continue;           /* what run() uses would not stay there */
        }
        measure(0, EVTSEL_OS, nothing, AREA, overhead);
        memset(overhead, 0, sizeof(overhead));
        measure(0, EVTSEL_OS, nothing, AREA, overhead);
        measure(0, EVTSEL_OS, codes[i].fn, AREA, n);
        for (int e = 0; e < EVENTS; e++) {
            n[e] -= overhead[e];
        }
        report(check(n, codes[i].n), "CPL 0: %s", codes[i].name);
    }
}

static void test_rows(void)
{
    int64_t overhead[EVENTS] = { 0 }, os[EVENTS] = { 0 }, usr[EVENTS] = { 0 };

    measure(3, EVTSEL_OS, nothing, AREA, overhead);
    measure(3, EVTSEL_OS, loads, AREA, os);
    report(os[LOADS] == overhead[LOADS] && os[STORES] == overhead[STORES] &&
           os[LOADS] > 0, "what CPL 3 does is not CPL 0's");
    measure(0, EVTSEL_USR, loads, AREA, usr);
    report(!usr[LOADS] && !usr[FILLS], "what CPL 0 does is not CPL 3's");
    memset(os, 0, sizeof(os));
    measure(3, EVTSEL_OS | EVTSEL_USR, loads, AREA, os);
    report(os[LOADS] == overhead[LOADS] + 100, "both count for both");
}

/*
 * What faults has not retired.  RSI is memory that is there, RDI the end of
 * some that is there: what is behind it comes later.
 */
CODE(fault_load, "mov (%rsi), %eax\n add (%rdi), %eax")
CODE(fault_push, "mov (%rsi), %eax\n lea 8(%rdi), %rsp\n push (%rsi)")
CODE(fault_movs, "movsb\n movsb")
CODE(fault_rep, "sub $10, %rdi\n mov $100, %ecx\n rep movsb")
CODE(fault_cmps, "sub $10, %rdi\n mov $90, %ecx\n xchg %rsi, %rdi\n"
     "repe cmpsb")
CODE(fault_fx, "mov (%rsi), %eax\n fxrstor -192(%rdi)")
CODE(fault_split, "mov %eax, -4(%rdi)\n mov %eax, -2(%rdi)")
CODE(fault_lock, "lock incl -4(%rdi)\n lock incl (%rdi)")
CODE(fault_rmw, "incl -4(%rdi)\n mov (%rsi), %eax\n incl (%rdi)\n nop")
CODE(fault_ret, "lea -8(%rdi), %rsp\n lea 1f(%rip), %rax\n push %rax\n"
     "mov %rdi, %rsp\n mov (%rsi), %eax\n call 1f\n 1: pop %rax\n pop %rax")
CODE(divide, "mov (%rsi), %eax\n divl (%rsi)")

static const struct {
    const char *name;
    void (*fn)(void);
    uint8_t before[3];      /* loads, stores, locked loads until it faults */
    uint8_t all[3];
} faults[] = {
    { "a load", fault_load, { 1 }, { 2 } },
    { "PUSH", fault_push, { 1 }, { 2, 1 } },
    { "MOVS", fault_movs, { 0 }, { 2, 2 } },
    { "REP MOVS", fault_rep, { 10, 10 }, { 100, 100 } },
    { "REP CMPS", fault_cmps, { 20 }, { 180 } },
    { "FXRSTOR", fault_fx, { 1 }, { 9 } },
    { "a store to two pages", fault_split, { 0, 1 }, { 0, 2 } },
    { "LOCK", fault_lock, { 1, 1, 1 }, { 2, 2, 2 } },
    { "INC", fault_rmw, { 2, 1 }, { 3, 2 } },
    { "POP", fault_ret, { 2, 2 }, { 3, 2 } },
};

static bool loads_are(const uint8_t n[3])
{
    static const char *const names[] = { "loads", "stores", "locked" };
    bool ok = true;

    for (int i = 0; i < 3; i++) {
        if (rdmsr(MSR_PMC(i)) != n[i]) {
            test_printf("  %s: %ld for %d\n", names[i], rdmsr(MSR_PMC(i)),
                        n[i]);
            ok = false;
        }
    }
    /* All that is there is in L1D. */
    return ok && rdmsr(MSR_PMC(3)) == n[0];
}

static void test_faults(void)
{
    static const uint8_t loads_of_divide[3] = { 1 };
    bool ok;

    for (int i = 0; i < ARRAY_SIZE(faults); i++) {
        /* Have the model know the lines, then once more. */
        for (int again = 0; again < 2; again++) {
            for (int e = 0; e < 3; e++) {
                wrmsr(MSR_EVTSEL(e), events[e].code | EVTSEL_USR | EVTSEL_EN);
                wrmsr(MSR_PMC(e), 0);
            }
            wrmsr(MSR_EVTSEL(3), events[HIT_L1].code | EVTSEL_USR | EVTSEL_EN);
            wrmsr(MSR_PMC(3), 0);
            memset(window_ram, 0, sizeof(window_ram));
            set_pte(2, again ? 0 : PTE_ALL);
            set_up(USER_CODE64, (uintptr_t)faults[i].fn);
            regs.rsi = WINDOW;
            regs.rdi = WINDOW + 2 * PAGE;
            wrmsr(MSR_GLOBAL_CTRL, 15);
            run();
            wrmsr(MSR_GLOBAL_CTRL, 0);
        }
        ok = regs.vector == PF && loads_are(faults[i].before);
        report(ok, "%s counts behind a fault only", faults[i].name);
        set_pte(2, PTE_ALL);
        wrmsr(MSR_GLOBAL_CTRL, 15);
        run();
        wrmsr(MSR_GLOBAL_CTRL, 0);
        report(regs.vector == EXIT && loads_are(faults[i].all),
               "%s counts once in the end", faults[i].name);
    }
    for (int e = 0; e < 4; e++) {
        wrmsr(MSR_PMC(e), 0);
    }
    memset(window_ram, 0, sizeof(window_ram));
    set_up(USER_CODE64, (uintptr_t)divide);
    regs.rsi = WINDOW;
    wrmsr(MSR_GLOBAL_CTRL, 15);
    ok = run() == DE;
    wrmsr(MSR_GLOBAL_CTRL, 0);
    report(ok && loads_are(loads_of_divide), "DIV that fails does not count");
    stop();
}

/*
 * An access that leaves its TB and is executed again is one access, which
 * misses as it does where nobody looks.
 */
CODE(again_load, "mov 8(%rsi), %eax\n mov 4(%rsi), %eax")
CODE(again_lock, "lock incl 4094(%rsi)\n lock incl 4094(%rsi)")
CODE(again_movs, "lea 0x1000(%rsi), %rdi\n movsl\n mov -4(%rdi), %eax")
CODE(again_rep, "lea 0x1000(%rsi), %rdi\n mov $64, %ecx\n rep movsl")
CODE(again_push, "lea 0x1008(%rsi), %rsp\n push (%rsi)\n pop %rax")
CODE(again_code, "lea 1f(%rip), %rdi\n mov $0x90, %al\n clflush (%rdi)\n"
     "mfence\n mov %al, (%rdi)\n nop\n .balign 64\n 1: nop\n nop")
CODE(again_rep_code, "lea 1f(%rip), %rdi\n mov $0x90, %al\n mov $9, %ecx\n"
     "clflush (%rdi)\n mfence\n rep stosb\n .balign 64\n"
     "1: .skip 9, 0x90")

static void test_executed_again(void)
{
    static const struct {
        const char *name;
        void (*fn)(void);
        int watched;            /* or -1 */
        uint16_t n[EVENTS];
    } t[] = {
        { "a load", again_load, 8,
          { [LOADS] = 2, [HIT_L1] = 1, [FILLS] = 1, MISSES(1) } },
        { "one that finds its line", again_load, 4,
          { [LOADS] = 2, [HIT_L1] = 1, [FILLS] = 1, MISSES(1) } },
        { "MOVS, that stores", again_movs, 0x1000,
          { [LOADS] = 2, [STORES] = 1, [HIT_L1] = 1, [FILLS] = 2, MISSES(1),
            [S_MISS_L1] = 1 } },
        { "MOVS, that loads", again_movs, 0,
          { [LOADS] = 2, [STORES] = 1, [HIT_L1] = 1, [FILLS] = 2, MISSES(1),
            [S_MISS_L1] = 1 } },
        { "REP MOVS", again_rep, 0x1080,
          { [LOADS] = 64, [STORES] = 64, [HIT_L1] = 60, [FILLS] = 8, MISSES(4),
            [S_MISS_L1] = 4 } },
        { "PUSH of memory", again_push, 0x1000,
          { [LOADS] = 2, [STORES] = 1, [HIT_L1] = 1, [FILLS] = 2, MISSES(1),
            [S_MISS_L1] = 1 } },
        { "LOCK across two pages", again_lock, -1,
          { [LOADS] = 2, [STORES] = 2, [LOCKED] = 2, [SPLIT_LOADS] = 2,
            [SPLIT_STORES] = 2, [HIT_L1] = 1, [FILLS] = 2, MISSES(1) } },
        { "that, watched", again_lock, 4094,
          { [LOADS] = 2, [STORES] = 2, [LOCKED] = 2, [SPLIT_LOADS] = 2,
            [SPLIT_STORES] = 2, [HIT_L1] = 1, [FILLS] = 2, MISSES(1) } },
        { "a store to its own TB", again_code, -1,
          { [STORES] = 1, [FILLS] = 1, [S_MISS_L1] = 1 } },
        { "REP STOS to its own TB", again_rep_code, -1,
          { [STORES] = 9, [FILLS] = 1, [S_MISS_L1] = 1 } },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        int64_t n[EVENTS] = { 0 };

        watching = t[i].watched >= 0;
        watched = watching ? t[i].watched : 0;
        measure(3, EVTSEL_USR, t[i].fn, AREA, n);
        watching = false;
        report(check(n, t[i].n), "executed again: %s", t[i].name);
    }
    stop();
    set_memory(3, nothing);     /* for DR7 */
}

/*
 * A kernel may have page tables in a device, here in VGA's text memory: nobody
 * but the program may look there, in the middle of a TB or elsewhere.
 */
CODE(through_device, "mov $16, %ecx\n 1: mov (%rsi), %eax\n clflush (%rsi)\n"
     "mov %eax, 60(%rsi)\n mov 0x1ffe(%rsi), %eax\n add $0x3000, %rsi\n"
     "dec %ecx\n jnz 1b")

static void test_tables_in_device(void)
{
    uint64_t *directory = (uint64_t *)0xb8000, cr3, *table, old;

    asm volatile("mov %%cr3, %0" : "=r" (cr3));
    table = (uint64_t *)cr3;
    table = (uint64_t *)(table[0] & -PAGE);
    old = table[2];
    for (int i = 0; i < 512; i++) {
        directory[i] = (uint64_t)i << 21 | 0x80 | PTE_ALL;
    }
    asm volatile("" : : : "memory");
    table[2] = 0xb8000 | PTE_ALL;
    for (int on = 0; on < 2; on++) {
        asm volatile("mov %0, %%cr3" : : "r" (cr3) : "memory");
        stop();
        wrmsr(MSR_EVTSEL(0), events[MISS_L1].code | EVTSEL_USR | EVTSEL_EN);
        wrmsr(MSR_EVTSEL(1), events[LOADS].code | EVTSEL_USR | EVTSEL_EN);
        wrmsr(MSR_PMC(0), 0);
        wrmsr(MSR_PMC(1), 0);
        set_memory(3, through_device);
        regs.rsi += 0x80000000;
        wrmsr(MSR_GLOBAL_CTRL, on ? 3 : 0);
        run();
        wrmsr(MSR_GLOBAL_CTRL, 0);
        report(regs.vector == EXIT && rdmsr(MSR_PMC(1)) == on * 32 &&
               rdmsr(MSR_PMC(0)) == on * 32,
               "page tables in a device, counters %s", on ? "on" : "off");
        use_memory(2 * AREA);
    }
    table[2] = old;
    asm volatile("mov %0, %%cr3" : : "r" (cr3) : "memory");
    stop();
}

/*
 * The kernel changes a page under its own feet: [RSI] is what RBX, RDX and RBX
 * again map there, through the PTE that RDI is the address of.
 */
CODE(remap_invlpg, "mov (%rsi), %eax\n mov (%rsi), %eax\n mov %rdx, (%rdi)\n"
     "invlpg (%rsi)\n mov (%rsi), %eax\n mov (%rsi), %eax")
CODE(remap_cr3, "mov (%rsi), %eax\n mov (%rsi), %eax\n mov %rdx, (%rdi)\n"
     "mov %cr3, %rax\n mov %rax, %cr3\n mov (%rsi), %eax\n mov (%rsi), %eax")

static void test_remap(void)
{
    static const struct {
        const char *name;
        void (*fn)(void);
    } t[] = {
        { "INVLPG", remap_invlpg }, { "MOV CR3", remap_cr3 },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        uint64_t missed = 0;

        /* What run() needs comes into L1D first, and then is known. */
        for (int again = 0; again < 3; again++) {
            void (*fn)(void) = again == 2 ? t[i].fn : nothing;

            stop();
            wrmsr(MSR_EVTSEL(0), events[MISS_L1].code | EVTSEL_OS | EVTSEL_EN);
            wrmsr(MSR_PMC(0), 0);
            set_pte(3, PTE_ALL);
            wrmsr(MSR_GLOBAL_CTRL, 15);
            set_memory(0, fn);
            regs.rdi = (uintptr_t)&window_table[3];
            regs.rsi = WINDOW + 3 * PAGE + 5 * LINE;
            /* Two pages that nobody has seen */
            window_table[3] = area | PTE_ALL;
            regs.rdx = (area + PAGE) | PTE_ALL;
            asm volatile("invlpg (%0)" : : "r" (regs.rsi) : "memory");
            run();
            wrmsr(MSR_GLOBAL_CTRL, 0);
            missed = rdmsr(MSR_PMC(0)) - (again == 2 ? missed : 0);
            use_memory(AREA);
        }
        report(missed == 2, "%s is followed by misses", t[i].name);
    }
    set_pte(3, PTE_ALL);
}

/*
 * Port 92H takes address line 20 away, for which this must not need it.  ESI is
 * an address that has it, and DL what is written there.
 */
#define A20_CODE        0x8000

asm(".text\n"
    "to_a20_code:\n"
    "    push %rbx\n mov $0x10, %eax\n mov %eax, %ds\n"
    "    push $0x48\n push $0x8000\n lretq\n"
    ".code32\n"
    "a20_code:\n"
    "    mov %cr0, %eax\n btr $31, %eax\n mov %eax, %cr0\n"
    "    mov (%esi), %ebx\n mov (%esi), %ebx\n"
    "    mov %edx, %eax\n out %al, $0x92\n"
    "    mov (%esi), %ebx\n mov (%esi), %ebx\n"
    "    mov $2, %al\n out %al, $0x92\n"
    "    mov %cr0, %eax\n bts $31, %eax\n mov %eax, %cr0\n"
    "    ljmp $8, $from_a20_code\n"
    "a20_code_end:\n"
    ".code64\n"
    "from_a20_code:\n"
    "    pop %rbx\n ret\n");

static void test_a20(void)
{
    uint64_t n[3];

    memcpy((void *)A20_CODE, (void *)LABEL(a20_code),
           LABEL(a20_code_end) - LABEL(a20_code));
    /* What this needs comes into L1D first. */
    for (int i = 0; i < ARRAY_SIZE(n); i++) {
        stop();
        wrmsr(MSR_EVTSEL(0), events[MISS_L1].code | EVTSEL_OS | EVTSEL_EN);
        wrmsr(MSR_PMC(0), 0);
        wrmsr(MSR_GLOBAL_CTRL, 1);
        asm volatile("call to_a20_code"
                     : : "S" (MEMORY_END + 0x100000 + i * LINE),
                         "d" (i == 2 ? 0 : 2) : "rax", "memory");
        wrmsr(MSR_GLOBAL_CTRL, 0);
        n[i] = rdmsr(MSR_PMC(0));
    }
    report(n[1] == 1 && n[2] == 2, "without A20, another line is loaded");
    stop();
}

/*
 * Lines go from all caches, whether the one who has them go is watched or not:
 * each iteration loads a line, has @insn done to it, and loads it again.
 */
#define FLUSH_CODE(name, insn) \
    CODE(name, "mov $100, %ecx\n 1: mov (%rsi), %eax\n" insn "\n mfence\n" \
         "mov 8(%rsi), %eax\n mov 16(%rsi), %eax\n dec %ecx\n jnz 1b")
FLUSH_CODE(flush, "clflush 63(%rsi)")
FLUSH_CODE(flush_opt, "clflushopt 4(%rsi)")
FLUSH_CODE(flush_other, "clflush -1(%rsi)\n clflush 64(%rsi)")
FLUSH_CODE(flush_nothing, "clflush (%rdi)\n clflushopt (%rdi)")
FLUSH_CODE(write_back, "clwb (%rsi)")
FLUSH_CODE(invalidate_all, "wbinvd")
FLUSH_CODE(discard_all, "invd")
FLUSH_CODE(write_back_all, "wbnoinvd")

static void test_flush(void)
{
    static const struct {
        const char *name;
        void (*fn)(void);
        bool kernel;            /* at CPL 0 only */
        uint16_t n[EVENTS];
    } t[] = {
#define FLUSHES { [LOADS] = 300, [HIT_L1] = 199, [FILLS] = 101, MISSES(101) }
#define KEEPS   { [LOADS] = 300, [HIT_L1] = 299, [FILLS] = 1, MISSES(1) }
        { "CLFLUSH", flush, false, FLUSHES },
        { "CLFLUSHOPT", flush_opt, false, FLUSHES },
        { "CLFLUSH of the lines around", flush_other, false, KEEPS },
        { "CLFLUSH of what is not mapped", flush_nothing, false, KEEPS },
        { "CLWB", write_back, false, KEEPS },
        { "WBNOINVD", write_back_all, true, KEEPS },
    }, all[] = {
        { "WBINVD", invalidate_all }, { "INVD", discard_all },
    };
    int64_t misses[2];

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        for (int cpl = t[i].kernel ? 0 : 3; cpl >= 0; cpl -= 3) {
            int64_t n[EVENTS] = { 0 }, overhead[EVENTS] = { 0 };
            uint32_t row = cpl ? EVTSEL_USR : EVTSEL_OS;

            measure(cpl, row, nothing, AREA, overhead);
            memset(overhead, 0, sizeof(overhead));
            measure(cpl, row, nothing, AREA, overhead);
            set_pte(2, 0);
            flush_at = WINDOW + 2 * PAGE;
            measure(cpl, row, t[i].fn, AREA, n);
            flush_at = 0;
            set_pte(2, PTE_ALL);
            for (int e = 0; e < EVENTS; e++) {
                n[e] -= overhead[e];
            }
            report(check(n, t[i].n), "CPL %d: %s", cpl, t[i].name);
        }
    }
    /* These take the stack and all that with them. */
    for (int i = 0; i < ARRAY_SIZE(all); i++) {
        int64_t n[EVENTS] = { 0 };

        measure(0, EVTSEL_OS, all[i].fn, AREA, n);
        report(n[LOADS] >= 300 && n[MISS_L3] > 100 && n[MISS_L3] < 200,
               "%s: the next load comes from memory", all[i].name);
    }
    /* A kernel that is not watched, and a program that is */
    for (int i = 0; i < ARRAY_SIZE(misses); i++) {
        stop();
        wrmsr(MSR_EVTSEL(0), events[MISS_L3].code | EVTSEL_USR | EVTSEL_EN);
        wrmsr(MSR_PMC(0), 0);
        wrmsr(MSR_GLOBAL_CTRL, 1);
        for (int k = 0; k < 10; k++) {
            set_memory(3, loads);
            run();
            if (i) {
                asm volatile("clflush (%0)" : : "r" (area) : "memory");
            }
        }
        stop();
        misses[i] = rdmsr(MSR_PMC(0));
        use_memory(AREA);
    }
    report(misses[0] == 1 && misses[1] == 10, "the kernel flushes a program's");
}

/*
 * The interrupt comes behind the instruction, or the iteration, that makes the
 * counter overflow.
 */
CODE(row, ".rept 300\n mov (%rsi), %eax\n .endr")
CODE(walk, "1: mov (%rsi), %eax\n walk_behind: add $64, %rsi\n jmp 1b")
CODE(stay, "1: mov (%rsi), %eax\n stay_behind: inc %rdi\n nop\n jmp 1b")
CODE(copy, "mov $1000, %ecx\n copy_at: rep movsb\n nop")
CODE(mixed, "push %rax\n mixed_1: lock incl (%rsi)\n mixed_2: pop %rax\n"
     "mixed_3: fxsave 512(%rsi)\n mixed_4: movsb\n mixed_5: nop")
PLACE(walk_behind);
PLACE(stay_behind);
PLACE(copy_at);
PLACE(mixed_1);
PLACE(mixed_2);
PLACE(mixed_3);
PLACE(mixed_4);
PLACE(mixed_5);

static bool interrupts(int cpl, int event, uint32_t period, void (*fn)(void),
                       uintptr_t at)
{
    stop();
    wrmsr(MSR_EVTSEL(1), events[event].code | EVTSEL_INT | EVTSEL_EN |
                         (cpl ? EVTSEL_USR : EVTSEL_OS));
    wrmsr(MSR_PMC(1), -period);
    set_memory(cpl, fn);
    wrmsr(MSR_GLOBAL_CTRL, 2);
    run();
    wrmsr(MSR_GLOBAL_CTRL, 0);
    use_memory(period * LINE > AREA ? period * LINE / AREA * AREA + AREA :
               AREA);
    return regs.vector == NMI && regs.rip == at && rdmsr(MSR_PMC(1)) == 0;
}

static void test_interrupts(void)
{
    static const uint16_t periods[] = { 1, 2, 3, 127, 128, 129, 500, 2000 };
    bool ok = true;

    for (int k = 1; k <= 300; k++) {
        ok &= interrupts(3, LOADS, k, row, (uintptr_t)row + 2 * k);
    }
    report(ok, "load 1 to 300 of a row interrupts behind it");
    ok = true;
    for (int i = 0; i < ARRAY_SIZE(periods); i++) {
        uintptr_t first = area;

        ok &= interrupts(3, MISS_L1, periods[i], walk, (uintptr_t)walk_behind);
        ok &= regs.rsi == first + (periods[i] - 1) * LINE;
        first = area;
        ok &= interrupts(3, FILLS, periods[i], walk, (uintptr_t)walk_behind);
        ok &= regs.rsi == first + (periods[i] - 1) * LINE;
    }
    report(ok, "loads that miss interrupt behind them");
    ok = interrupts(3, LOADS, 30000, stay, (uintptr_t)stay_behind);
    ok &= regs.rdi - regs.rsi == AREA / 2 + 29999;
    report(ok, "load 30000 of a loop interrupts behind it");
    ok = true;
    for (int i = 0; i < ARRAY_SIZE(periods) - 1; i++) {
        ok &= interrupts(3, STORES, periods[i], copy, (uintptr_t)copy_at);
        ok &= regs.rcx == 1000u - periods[i];
    }
    report(ok, "REP MOVS interrupts behind its iterations");
    report(interrupts(3, LOADS, 1000, copy, (uintptr_t)copy_at + 2) &&
           regs.rcx == 0, "its last one interrupts behind the instruction");
    /* PUSH, INC and MOVS have a store, FXSAVE eight. */
    ok = interrupts(3, STORES, 1, mixed, (uintptr_t)mixed_1);
    ok &= interrupts(3, STORES, 2, mixed, (uintptr_t)mixed_2);
    ok &= interrupts(3, LOCKED, 1, mixed, (uintptr_t)mixed_2);
    ok &= interrupts(3, LOADS, 2, mixed, (uintptr_t)mixed_3);
    ok &= interrupts(3, STORES, 10, mixed, (uintptr_t)mixed_4);
    ok &= interrupts(3, STORES, 11, mixed, (uintptr_t)mixed_5);
    report(ok, "so do PUSH, LOCK INC, POP, FXSAVE and MOVS");
    interrupts(3, STORES, 5, mixed, 0);
    report(regs.rip == (uintptr_t)mixed_4 && rdmsr(MSR_PMC(1)) == 5,
           "FXSAVE interrupts behind all of its stores");
}

CODE(load_ss, "movw %ss, 4(%rsi)\n nop\n lss (%rsi), %eax\n"
     "load_ss_behind: nop\n nop")
PLACE(load_ss_behind);

/* Also if what has loaded is looked at before the instruction has retired */
static void test_freeze(void)
{
    stop();
    wrmsr(MSR_EVTSEL(0), 0xc0 | EVTSEL_USR | EVTSEL_EN);
    wrmsr(MSR_EVTSEL(1), events[LOADS].code | EVTSEL_INT | EVTSEL_EN |
                         EVTSEL_USR);
    wrmsr(MSR_PMC(0), 0);
    wrmsr(MSR_PMC(1), -1);
    wrmsr(MSR_DEBUGCTL, FREEZE_ON_PMI);
    set_memory(3, load_ss);
    wrmsr(MSR_GLOBAL_CTRL, 3);
    run();
    report(regs.vector == NMI && regs.rip == (uintptr_t)load_ss_behind &&
           rdmsr(MSR_PMC(0)) == 3, "LSS: counters are frozen behind it");
    stop();
    wrmsr(MSR_DEBUGCTL, 0);
    use_memory(AREA);
}

int main(void)
{
    kernel_init();
    apic_init(LVT_NMI);
    xsetbv0(7);
    test_codes();
    test_kernel();
    test_rows();
    test_faults();
    test_executed_again();
    test_tables_in_device();
    test_remap();
    test_a20();
    test_flush();
    test_interrupts();
    test_freeze();
    return report_summary();
}
