/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * TLBs and the instruction cache, of which programs know how many pages and
 * lines they use, on a PMU and TLBs like Skylake's: DTLB of 64 entries in 4
 * ways, and 32 for pages of 2 MiB, STLB of 1536 in 12 ways, ITLB of 128 in 8,
 * L1I of 32 KiB in 8 ways.
 *
 * The output is the same with -icount shift=0 and with one-insn-per-tb=on.
 */

#include "pmu-kernel.h"

enum {
    LOAD_WALKS, LOAD_L2, STORE_WALKS, STORE_L2, STLB_MISS_LOADS,
    STLB_MISS_STORES, FETCH_WALKS, FETCH_L2, FETCH_MISSES, EVENTS
};

static const struct {
    uint16_t code;
    const char *name;
} events[EVENTS] = {
    { 0x0108, "walks for loads" }, { 0x2008, "pages of loads from STLB" },
    { 0x0e49, "walks for stores" }, { 0x2049, "pages of stores from STLB" },
    { 0x11d0, "loads that miss STLB" }, { 0x12d0, "stores that miss STLB" },
    { 0x0185, "walks for code" }, { 0x2085, "pages of code from STLB" },
    { 0x0283, "lines that miss L1I" },
};

#define COUNTERS    4
#define PTE_G       (1u << 8)
#define PTE_PS      (1u << 7)
#define CR4_PGE     (1u << 7)
#define MIB_2       0x200000ul
/* Of 4 KiB, one behind the other; the second table's are global. */
#define AREA        0x50000000ul
#define AREA_TABLES 8
#define MEMORY      0x2000000ul
/* Of 2 MiB, behind that */
#define LARGE       0x60000000ul
#define LARGE_PAGES 64

static uint64_t tables[AREA_TABLES][512] __attribute__((aligned(4096)));
static uint64_t *directory;     /* of the second GiB */

/* RDX pages from RSI on are accessed; RBX: how often. */
#define WALK(name, access) \
    CODE(name, "2: mov %rdx, %rcx\n mov %rsi, %rdi\n 1: " access "\n" \
         " add %rax, %rdi\n dec %rcx\n jnz 1b\n dec %rbx\n jnz 2b")
WALK(loads, "mov (%rdi), %r8")
WALK(stores, "mov %r8, (%rdi)")
WALK(updates, "incl (%rdi)")
WALK(splits, "mov 4092(%rdi), %r8")
WALK(split_stores, "mov %r8, 4092(%rdi)")
WALK(both_lines, "mov 60(%rdi), %r8")
/* What is at the start of each page goes to the next. */
CODE(fetches, "2: mov %rdx, %rcx\n mov %rsi, %rdi\n lea 1f(%rip), %r9\n"
     " jmp *%rdi\n 1: dec %rbx\n jnz 2b")
asm(".balign 16\n"
    "in_page: dec %rcx\n jz 1f\n add %rax, %rdi\n jmp *%rdi\n 1: jmp *%r9\n"
    "in_page_end:");
PLACE(in_page);
PLACE(in_page_end);
/* 64 KiB of code, and 16 KiB: NOPs of 8 bytes, and one of them in two lines */
#define NOPS(n) ".fill " #n ", 8, 0x0000000000841f0f\n"
CODE(much_code, ".balign 64\n 2:\n" NOPS(8192) "dec %rbx\n jnz 2b")
CODE(little_code, ".balign 64\n 2: nop\n" NOPS(2047) "dec %rbx\n jnz 2b")

/* RBX times: code that changes code, and comes to it each time. */
CODE(own_line, ".balign 64\n 2: movb $0x90, 1f(%rip)\n 1: nop\n dec %rbx\n"
     " jnz 2b")
CODE(next_line, ".balign 64\n 2: movb $0x90, 1f(%rip)\n jmp 1f\n .balign 64\n"
     " 1: nop\n dec %rbx\n jnz 2b")
CODE(next_line_often, ".balign 64\n 2: movw $0x9090, 1f(%rip)\n"
     " lock incl 3f(%rip)\n lea 1f(%rip), %rdi\n mov $4, %ecx\n"
     " mov $0x90, %al\n rep stosb\n jmp 1f\n .balign 64\n"
     " 1: .fill 8, 1, 0x90\n dec %rbx\n jnz 2b\n jmp 4f\n 3: .long 0\n 4:")
CODE(no_code, ".balign 64\n 2: incl 1f(%rip)\n dec %rbx\n jnz 2b\n jmp 3f\n"
     " .balign 64\n 1: .long 0\n .balign 64\n 3:")
/* RET at RSI */
CODE(ret_again, "2: call *%rsi\n movb $0xc3, (%rsi)\n dec %rbx\n jnz 2b")

static void stop(void)
{
    wrmsr(MSR_GLOBAL_CTRL, 0);
    for (int i = 0; i < COUNTERS; i++) {
        wrmsr(MSR_EVTSEL(i), 0);
    }
}

/* What comes before each of the runs that measure() needs */
static void nothing(void)
{
}

static void write_cr3(void)
{
    uint64_t cr3;

    asm volatile("mov %%cr3, %0\n mov %0, %%cr3" : "=r" (cr3) : : "memory");
}

static void toggle_pge(void)
{
    write_cr4(read_cr4() & ~(uint64_t)CR4_PGE);
    write_cr4(read_cr4() | CR4_PGE);
}

static void invlpg_first(void)
{
    asm volatile("invlpg (%0)" : : "r" (AREA + 123) : "memory");
}

static void invlpg_large(void)
{
    asm volatile("invlpg (%0)" : : "r" (LARGE + 0x12345) : "memory");
}

typedef struct Run {
    void (*fn)(void);
    uint64_t addr, pages, step, times;
} Run;

static void run_it(const Run *r)
{
    set_up(USER_CODE64, (uintptr_t)r->fn);
    regs.rsi = r->addr;
    regs.rdx = r->pages;
    regs.rax = r->step;
    regs.rbx = r->times;
    run();
}

/*
 * What @r counts at CPL 3 behind @before, if @warm, @r, and @flush; counters
 * have to take turns, and all have all TLBs and lines forgotten first.
 */
static void measure(const Run *r, const Run *warm, void (*flush)(void),
                    int64_t n[EVENTS])
{
    for (int first = 0; first < EVENTS; first += COUNTERS - 1) {
        int count = EVENTS - first < COUNTERS - 1 ? EVENTS - first :
                    COUNTERS - 1;

        stop();
        toggle_pge();
        for (int i = 0; i < count; i++) {
            wrmsr(MSR_EVTSEL(i), events[first + i].code | EVTSEL_USR |
                                 EVTSEL_EN);
        }
        wrmsr(MSR_GLOBAL_CTRL, 15);
        if (warm) {
            run_it(warm);
        }
        flush();
        for (int i = 0; i < count; i++) {
            wrmsr(MSR_PMC(i), 0);
        }
        run_it(r);
        wrmsr(MSR_GLOBAL_CTRL, 0);
        for (int i = 0; i < count; i++) {
            n[first + i] = rdmsr(MSR_PMC(i));
        }
    }
    stop();
}

/* Code is on one page, or two, which no test is about but that of fetches. */
static const struct {
    const char *name;
    Run run;
    bool warm;              /* it has run before */
    void (*flush)(void);
    int n[EVENTS];
} tests[] = {
#define LOADS(n)        [LOAD_WALKS] = (n), [STLB_MISS_LOADS] = (n)
#define STORES(n)       [STORE_WALKS] = (n), [STLB_MISS_STORES] = (n)
    { "64 pages", { loads, AREA, 64, 4096, 1 }, false, nothing, { LOADS(64) } },
    { "64 pages again", { loads, AREA, 64, 4096, 1 }, true, nothing, { } },
    { "stores to 64 pages", { stores, AREA, 64, 4096, 1 }, false, nothing,
      { STORES(64) } },
    { "loads that store", { updates, AREA, 64, 4096, 1 }, false, nothing,
      { LOADS(64) } },
    { "1536 pages",
      { loads, AREA, 1536, 4096, 1 }, false, nothing, { LOADS(1536) } },
    { "1536 pages again", { loads, AREA, 1536, 4096, 1 }, true, nothing,
      { [LOAD_L2] = 1536 } },
    { "stores to 1536 pages again", { stores, AREA, 1536, 4096, 1 }, true,
      nothing, { [STORE_L2] = 1536 } },
    { "one page, 64 times", { loads, AREA, 64, 64, 5 }, false, nothing,
      { LOADS(1) } },
    { "from two pages", { splits, AREA, 32, 8192, 3 }, false, nothing,
      { [LOAD_WALKS] = 64, [STLB_MISS_LOADS] = 32 } },
    { "to two pages", { split_stores, AREA, 32, 8192, 3 }, false, nothing,
      { [STORE_WALKS] = 64, [STLB_MISS_STORES] = 32 } },
    { "from two lines", { both_lines, AREA, 64, 4096, 1 }, false, nothing,
      { LOADS(64) } },
    { "INVLPG",
      { loads, AREA, 64, 4096, 1 }, true, invlpg_first, { LOADS(1) } },
    { "MOV CR3", { loads, AREA, 64, 4096, 1 }, true, write_cr3, { LOADS(64) } },
    { "MOV CR4",
      { loads, AREA, 64, 4096, 1 }, true, toggle_pge, { LOADS(64) } },
    { "global pages, MOV CR3", { loads, AREA + MIB_2, 64, 4096, 1 }, true,
      write_cr3, { } },
    { "global pages, MOV CR4", { loads, AREA + MIB_2, 64, 4096, 1 }, true,
      toggle_pge, { LOADS(64) } },
    { "32 pages of 2 MiB", { loads, LARGE, 32, MIB_2, 1 }, false, nothing,
      { LOADS(32) } },
    { "32 pages of 2 MiB again", { loads, LARGE, 32, MIB_2, 1 }, true, nothing,
      { } },
    { "64 pages of 2 MiB again", { loads, LARGE, 64, MIB_2, 1 }, true, nothing,
      { [LOAD_L2] = 64 } },
    { "all of 2 MiB", { loads, LARGE, 512, 4096, 1 }, false, nothing,
      { LOADS(1) } },
    { "INVLPG, 2 MiB", { loads, LARGE, 32, MIB_2, 1 }, true, invlpg_large,
      { LOADS(1) } },
};

static bool check(const int64_t n[EVENTS], const int want[EVENTS], int last)
{
    bool ok = true;

    for (int i = 0; i <= last; i++) {
        if (n[i] != want[i]) {
            test_printf("  %s: %ld for %d\n", events[i].name, n[i], want[i]);
            ok = false;
        }
    }
    return ok;
}

static void test_data(void)
{
    for (int i = 0; i < ARRAY_SIZE(tests); i++) {
        int64_t n[EVENTS] = { 0 };

        measure(&tests[i].run, tests[i].warm ? &tests[i].run : NULL,
                tests[i].flush, n);
        report(check(n, tests[i].n, STLB_MISS_STORES), "%s", tests[i].name);
    }
}

/* 4 MiB, whose pages are not global, have code. */
static void test_code(void)
{
    const uint64_t at = AREA + 2 * MIB_2;
    Run small = { fetches, at, 100, 4096, 1 };
    Run large = { fetches, at, 1000, 4096, 1 };
    Run twice = { fetches, at, 1000, 4096, 2 };
    int64_t n[EVENTS], m[EVENTS];

    for (int i = 0; i < 1024; i++) {
        memcpy((void *)(at + 4096 * i), in_page,
               (uintptr_t)in_page_end - (uintptr_t)in_page);
    }
    /* The caller's page, and its lines, come to that. */
    measure(&small, NULL, nothing, n);
    report(n[FETCH_WALKS] >= 101 && n[FETCH_WALKS] <= 102 && !n[FETCH_L2],
           "code in 100 pages: %ld walks", n[FETCH_WALKS]);
    measure(&small, &small, nothing, n);
    report(!n[FETCH_WALKS] && !n[FETCH_L2], "code in 100 pages again");
    measure(&small, &small, toggle_pge, n);
    report(n[FETCH_WALKS] >= 101 && n[FETCH_WALKS] <= 102,
           "code in 100 pages, MOV CR4");
    measure(&large, &large, nothing, n);
    report(!n[FETCH_WALKS] && n[FETCH_L2] >= 1000 && n[FETCH_L2] <= 1002,
           "code in 1000 pages again: %ld from STLB", n[FETCH_L2]);
    measure(&twice, NULL, nothing, n);
    report(n[FETCH_WALKS] >= 1001 && n[FETCH_WALKS] <= 1002 &&
           n[FETCH_L2] >= 1000, "code in 1000 pages, twice");
    measure(&twice, NULL, nothing, m);
    report(n[FETCH_WALKS] == m[FETCH_WALKS] && n[FETCH_L2] == m[FETCH_L2] &&
           n[FETCH_MISSES] == m[FETCH_MISSES], "the same again");
}

static void test_l1i(void)
{
    Run little = { little_code, 0, 0, 0, 1 };
    Run much = { much_code, 0, 0, 0, 1 };
    int64_t n[EVENTS];

    measure(&little, &much, nothing, n);
    report(n[FETCH_MISSES] >= 256 && n[FETCH_MISSES] <= 258,
           "16 KiB of code: %ld lines", n[FETCH_MISSES]);
    measure(&little, &little, nothing, n);
    report(!n[FETCH_MISSES], "16 KiB of code again");
    measure(&much, &little, nothing, n);
    report(n[FETCH_MISSES] >= 1024 && n[FETCH_MISSES] <= 1026,
           "64 KiB of code: %ld lines", n[FETCH_MISSES]);
    measure(&much, &much, nothing, n);
    report(n[FETCH_MISSES] >= 1024 && n[FETCH_MISSES] <= 1026,
           "64 KiB of code again");
}

static void count_code_stores(void)
{
    stop();
    wrmsr(MSR_EVTSEL(0), 0x04c3 | EVTSEL_USR | EVTSEL_EN);
    wrmsr(MSR_PMC(0), 0);
    wrmsr(MSR_GLOBAL_CTRL, 1);
}

static int64_t code_stores(void (*fn)(void), uint64_t times)
{
    Run r = { fn, 0, 0, 0, times };

    count_code_stores();
    run_it(&r);
    return rdmsr(MSR_PMC(0));
}

static void test_code_stores(void)
{
    const uint64_t at = AREA + 2 * MIB_2;
    const Run r = { ret_again, at, 0, 0, 10 };
    uint64_t *pte = &tables[2][0];
    int64_t n = code_stores(next_line, 100);
    bool fault;

    report(n == 99, "code changes another line: %ld of 99", n);
    n = code_stores(next_line, 100);
    report(n == 100, "and that has been executed before: %ld of 100", n);
    n = code_stores(own_line, 100);
    report(n == 100, "its own line: %ld of 100", n);
    n = code_stores(next_line_often, 100);
    report(n == 99, "in six stores each time: %ld of 99", n);
    n = code_stores(no_code, 100);
    report(!n, "data in a line of their own: %ld", n);

    memset((void *)at, 0xc3, 1);
    *pte &= ~(uint64_t)PTE_W;
    write_cr3();
    count_code_stores();
    run_it(&r);
    fault = regs.vector == PF;
    *pte |= PTE_W;
    write_cr3();
    fault &= run() == EXIT;
    n = rdmsr(MSR_PMC(0));
    report(fault && n == 10, "in a page that is read-only at first: %ld of 10",
           n);
    stop();
}

static void map(void)
{
    uint64_t cr3;

    asm volatile("mov %%cr3, %0" : "=r" (cr3));
    directory = (uint64_t *)(*(uint64_t *)cr3 & -PAGE);
    directory = (uint64_t *)(directory[AREA >> 30] & -PAGE);
    for (int t = 0; t < AREA_TABLES; t++) {
        for (int i = 0; i < 512; i++) {
            tables[t][i] = (MEMORY + (512 * t + i) * 4096ul) | PTE_ALL |
                           (t == 1 ? PTE_G : 0);
        }
        directory[(AREA >> 21 & 511) + t] = (uintptr_t)tables[t] | PTE_ALL;
    }
    for (int i = 0; i < LARGE_PAGES; i++) {
        directory[(LARGE >> 21 & 511) + i] =
            (MEMORY + (i % 16) * MIB_2) | PTE_ALL | PTE_PS;
    }
    write_cr3();
}

int main(void)
{
    kernel_init();
    apic_init(LVT_MASKED);
    map();
    test_data();
    test_code();
    test_l1i();
    test_code_stores();
    return report_summary();
}
