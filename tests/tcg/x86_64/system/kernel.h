/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A kernel for the system mode tests.
 *
 * run() loads a register set, enters whatever mode its CS says and returns
 * when that code causes an exception or executes INT EXIT; the registers are
 * then in the same place, so run() again resumes it.
 *
 * boot.S maps the first 4 GiB one to one, for user code too.  WINDOW adds a
 * few 4 KiB pages whose PTEs the tests can change.
 */
#ifndef TESTS_TCG_KERNEL_H
#define TESTS_TCG_KERNEL_H

#define TEST_KERNEL
#include "../../i386/report.h"

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define PAGE            4096

/* Boot code cannot have enabled SSE yet when main() starts. */
#pragma GCC target("general-regs-only")

/* Vectors */
enum { UD = 6, NM = 7, GP = 13, PF = 14, EXIT = 32, VECTORS = 256 };

/* Bits of page table entries and of a page fault's error code */
enum { PTE_P = 1, PTE_W = 2, PTE_U = 4, PTE_ALL = 7 };

/* Selectors */
enum {
    CODE64 = 0x08, DATA = 0x10,
    USER_CODE64 = 0x1b, USER_DATA = 0x23,
    USER_CODE32 = 0x2b,
    USER_CODE16 = 0x33,         /* its base is set_code16()'s */
    TEST_DATA = 0x3b,           /* set_segment() */
    TEST_CODE = 0x43,
    CODE32 = 0x48, CODE16 = 0x50,
    TSS64 = 0x58, TSS32 = 0x68, /* the first one has two entries */
};

#define TYPE_TASK_GATE  (0xe5ull << 40)     /* present, DPL 3 */
#define TYPE_CALL_GATE  (0xecull << 40)

/* A task of 32 bits (SDM Vol. 3A, figure 7-2) */
typedef struct Tss {
    uint32_t link, esp0, ss0, esp1, ss1, esp2, ss2, cr3, eip, eflags;
    uint32_t eax, ecx, edx, ebx, esp, ebp, esi, edi;
    uint32_t es, cs, ss, ds, fs, gs, ldt, io_map;
} Tss;

_Static_assert(sizeof(Tss) == 104, "TSS");

#define MSR_EFER        0xc0000080
#define MSR_PERF_CTL0   0xc0010200
#define CPUID_PERFCTR_CORE (1u << 23)
#define CPUID_XSAVE     (1u << 26)
#define CR0_TS          (1ull << 3)
#define CR0_WP          (1ull << 16)
#define CR4_OSFXSR      (1ull << 9)
#define CR4_OSXSAVE     (1ull << 18)

/* The local APIC; volatile: a device register */
#define APIC(offset)    (*(volatile uint32_t *)(0xfee00000ul + (offset)))
#define APIC_ICR        0x300   /* its upper half is at 0x310 */

typedef struct Regs {
    uint64_t r15, r14, r13, r12, r11, r10, r9, r8;
    uint64_t rbp, rdi, rsi, rdx, rcx, rbx, rax;
    uint64_t vector, error, rip, cs, rflags, rsp, ss;
} Regs;

/* The interrupt stack ends where this ends. */
Regs regs __attribute__((aligned(16)));
uint64_t kernel_rsp;
uint64_t fault_address;

uint64_t gdt64_table[21];      /* The last ones are the tests'. */
static struct {
    uint64_t low, high;
} idt[VECTORS];
static uint32_t tss[26];
static uint64_t window_table[512] __attribute__((aligned(PAGE)));

#define WINDOW          0x40000000ul
#define WINDOW_PAGES    8
static uint8_t window_ram[WINDOW_PAGES][PAGE] __attribute__((aligned(PAGE)));

static uint8_t user_stack[16384] __attribute__((aligned(16)));

/* The compiler may call these. */
void *memcpy(void *dst, const void *src, size_t n)
{
    uint8_t *d = dst;
    const uint8_t *s = src;

    while (n--) {
        *d++ = *s++;
    }
    return dst;
}

void *memset(void *dst, int byte, size_t n)
{
    uint8_t *d = dst;

    while (n--) {
        *d++ = byte;
    }
    return dst;
}

static inline bool same(const void *a, const void *b, size_t n)
{
    const uint8_t *p = a, *q = b;

    while (n && *p == *q) {
        p++, q++, n--;
    }
    return n == 0;
}

void enter_regs(void);
void exit_user(void);           /* in any mode */
void trap_stubs(void);

asm(".text\n"
    "enter_regs:\n"
    "    push %rbx\n push %rbp\n"
    "    push %r12\n push %r13\n push %r14\n push %r15\n"
    "    mov %rsp, kernel_rsp(%rip)\n"
    "    lea regs(%rip), %rsp\n"
    "    pop %r15\n pop %r14\n pop %r13\n pop %r12\n"
    "    pop %r11\n pop %r10\n pop %r9\n pop %r8\n"
    "    pop %rbp\n pop %rdi\n pop %rsi\n pop %rdx\n"
    "    pop %rcx\n pop %rbx\n pop %rax\n"
    "    add $16, %rsp\n"
    "    iretq\n"
    "exit_user:\n"
    "    int $32\n"
    "    .balign 16\n"
    "trap_stubs:\n"
    "    vector = 0\n"
    "    .rept 256\n"
    "    .balign 16\n"
    "    .if !(vector == 8 || (vector >= 10 && vector <= 14) ||"
    "          vector == 17)\n"
    "    push $0\n"
    "    .endif\n"
    "    push $vector\n"
    "    jmp trap\n"
    "    vector = vector + 1\n"
    "    .endr\n"
    "trap:\n"
    "    push %rax\n push %rbx\n push %rcx\n push %rdx\n"
    "    push %rsi\n push %rdi\n push %rbp\n"
    "    push %r8\n push %r9\n push %r10\n push %r11\n"
    "    push %r12\n push %r13\n push %r14\n push %r15\n"
    "    mov %cr2, %rax\n"
    "    mov %rax, fault_address(%rip)\n"
    "    mov kernel_rsp(%rip), %rsp\n"
    "    cld\n"
    "    pop %r15\n pop %r14\n pop %r13\n pop %r12\n"
    "    pop %rbp\n pop %rbx\n"
    "    ret\n");

/* Enter @regs; returns the vector that ended it. */
static inline unsigned run(void)
{
    enter_regs();
    return regs.vector;
}

/* Set up @regs to run at @rip in the code segment @cs. */
static inline void set_up(uint16_t cs, uint64_t rip)
{
    regs.cs = cs;
    regs.rip = rip;
    regs.rflags = 2;
    regs.rsp = (uintptr_t)user_stack + sizeof(user_stack) - 8;
    regs.ss = cs & 3 ? USER_DATA : DATA;
}

/* Run a function without arguments at CPL 0 or 3, in 64-bit mode. */
static inline unsigned run_function(int cpl, void (*fn)(void))
{
    set_up(cpl ? USER_CODE64 : CODE64, (uintptr_t)fn);
    *(uint64_t *)regs.rsp = (uintptr_t)exit_user;
    return run();
}

/* The vector that ends @stmt, which may use variables of its function. */
#define at_cpl(cpl, stmt) \
    ({ \
        void stmt_(void) \
        { \
            stmt; \
        } \
        run_function(cpl, stmt_); \
    })

static inline void set_pte(int page, unsigned bits)
{
    window_table[page] = (uintptr_t)window_ram[page] | bits;
    asm volatile("invlpg %0" : : "m" (*(char *)(WINDOW + page * PAGE))
                 : "memory");
}

/* Descriptors: access byte and upper nibble (G, D/B, L, AVL) */
enum {
    ACC_CODE = 0x9b, ACC_DATA = 0x93, ACC_READ_ONLY = 0x91,
    ACC_EXPAND_DOWN = 0x97, ACC_USER = 0x60, ACC_TSS = 0x89,
    SEG_G = 8, SEG_32 = 4, SEG_64 = 2, SEG_16 = 0,
};

static inline void set_segment(uint16_t selector, uint64_t base,
                               uint64_t limit, unsigned access, uint64_t bits)
{
    gdt64_table[selector / 8] =
        (limit & 0xffff) | (limit >> 16 & 15) << 48 |
        (base & 0xffffff) << 16 | (base >> 24 & 0xff) << 56 |
        (uint64_t)access << 40 | bits << 52;
}

/* A call gate to @fn, at CPL 0, which takes two entries from @selector on */
static inline void set_call_gate(uint16_t selector, uint64_t fn)
{
    gdt64_table[selector / 8] = (fn & 0xffff) | CODE64 << 16 | TYPE_CALL_GATE |
                                (fn >> 16 & 0xffff) << 48;
    gdt64_table[selector / 8 + 1] = fn >> 32;
}

/* Load DS, also for the code that run() enters. */
static inline void load_ds(uint16_t selector)
{
    asm volatile("mov %0, %%ds" : : "r" (selector) : "memory");
}

static inline void set_ds(uint64_t base, uint64_t limit, unsigned access,
                          unsigned bits)
{
    set_segment(TEST_DATA, base, limit, access | ACC_USER, bits);
    load_ds(TEST_DATA);
}

static inline uint64_t rdmsr(uint32_t msr)
{
    uint32_t lo, hi;

    asm volatile("rdmsr" : "=a" (lo), "=d" (hi) : "c" (msr));
    return (uint64_t)hi << 32 | lo;
}

static inline void wrmsr(uint32_t msr, uint64_t val)
{
    asm volatile("wrmsr" : : "c" (msr), "a" ((uint32_t)val),
                 "d" ((uint32_t)(val >> 32)) : "memory");
}

static inline uint8_t in8(uint16_t port)
{
    uint8_t val;

    asm volatile("inb %1, %0" : "=a" (val) : "d" (port));
    return val;
}

static inline void out8(uint16_t port, uint8_t val)
{
    asm volatile("outb %0, %1" : : "a" (val), "d" (port));
}

/* The real-time clock, whose memory RESET does not concern */
static inline uint8_t read_cmos(uint8_t index)
{
    out8(0x70, index);
    return in8(0x71);
}

static inline void write_cmos(uint8_t index, uint8_t val)
{
    out8(0x70, index);
    out8(0x71, val);
}

static inline uint8_t rtc_second(void)
{
    return read_cmos(0);
}

static inline void xsetbv0(uint64_t val)
{
    asm volatile("xsetbv" : : "c" (0), "a" ((uint32_t)val),
                 "d" ((uint32_t)(val >> 32)) : "memory");
}

static inline uint64_t read_cr0(void)
{
    uint64_t val;

    asm volatile("mov %%cr0, %0" : "=r" (val));
    return val;
}

static inline void write_cr0(uint64_t val)
{
    asm volatile("mov %0, %%cr0" : : "r" (val) : "memory");
}

typedef struct __attribute__((packed)) TableRegister {
    uint16_t limit;
    uint64_t base;
} TableRegister;

/* A mark, and failures until then */
enum { CMOS_MARK = 0x6e, CMOS_FAILURES };
#define RESET_MARK      0x5a

/* Does not return: main() begins again, with memory as it was first. */
static inline void reset_machine(void)
{
    TableRegister none = { };

    write_cmos(CMOS_MARK, RESET_MARK);
    write_cmos(CMOS_FAILURES, test_failures);
    asm volatile("lidt %0\n int3" : : "m" (none));
}

/* First thing in main() then */
static inline bool was_reset(void)
{
    if (read_cmos(CMOS_MARK) != RESET_MARK) {
        return false;
    }
    test_failures = read_cmos(CMOS_FAILURES);
    return true;
}

static inline void load_tables(void)
{
    TableRegister gdtr = { sizeof(gdt64_table) - 1, (uintptr_t)gdt64_table };
    TableRegister idtr = { sizeof(idt) - 1, (uintptr_t)idt };

    set_segment(TSS64, (uintptr_t)tss, sizeof(tss) - 1, ACC_TSS, 0);
    asm volatile("lgdt %0\n lidt %1" : : "m" (gdtr), "m" (idtr) : "memory");
    asm volatile("ltr %0" : : "r" ((uint16_t)TSS64) : "memory");
}

/*
 * With performance counters, have them count all that they can (APM 13.2).  The
 * predictor learns what is counted as mispredicted.
 */
static inline void count_all(void)
{
    static const uint8_t events[] = {
        0x76, 0xc0, 0xc2, 0xc4,
#ifndef COUNT_NO_MISPREDICTIONS
        0xc3, 0xca,
#endif
    };

    if (cpuid_reg(0x80000001, 0, 2) & CPUID_PERFCTR_CORE) {
        for (int i = 0; i < ARRAY_SIZE(events); i++) {
            /* enabled, at CPL 0 and above */
            wrmsr(MSR_PERF_CTL0 + 2 * i, 0x430000 | events[i]);
        }
    }
}

/* First thing in main().  XCR0 is as after reset. */
static inline void kernel_init(void)
{
    const uint64_t flat = 0xfffff;
    uint64_t cr3, cr4, *table;

    set_segment(CODE64, 0, flat, ACC_CODE, SEG_G | SEG_64);
    set_segment(DATA, 0, flat, ACC_DATA, SEG_G | SEG_32);
    set_segment(USER_CODE64, 0, flat, ACC_CODE | ACC_USER, SEG_G | SEG_64);
    set_segment(USER_DATA, 0, flat, ACC_DATA | ACC_USER, SEG_G | SEG_32);
    set_segment(USER_CODE32, 0, flat, ACC_CODE | ACC_USER, SEG_G | SEG_32);
    set_segment(CODE32, 0, flat, ACC_CODE, SEG_G | SEG_32);
    set_segment(CODE16, 0, 0xffff, ACC_CODE, SEG_16);
    for (int i = 0; i < VECTORS; i++) {
        uint64_t handler = (uintptr_t)trap_stubs + 16 * i;

        idt[i].low = (handler & 0xffff) | CODE64 << 16 | 1ull << 32 |
                     0xeeull << 40 | (handler >> 16 & 0xffff) << 48;
        idt[i].high = handler >> 32;
    }
    /* IST1, at 36: every trap pushes straight to @regs. */
    tss[9] = (uintptr_t)(&regs + 1);
    load_tables();
    load_ds(USER_DATA);

    asm volatile("mov %%cr3, %0" : "=r" (cr3));
    table = (uint64_t *)cr3;
    table = (uint64_t *)(table[0] & -PAGE);
    table = (uint64_t *)(table[WINDOW >> 30] & -PAGE);
    table[WINDOW >> 21 & 511] = (uintptr_t)window_table | PTE_ALL;
    asm volatile("mov %%cr4, %0" : "=r" (cr4));
    cr4 |= CR4_OSFXSR;
    cr4 |= cpuid_reg(1, 0, 2) & CPUID_XSAVE ? CR4_OSXSAVE : 0;
    /* Without CR4.PGE boot.S's global pages cannot outlive this either. */
    asm volatile("mov %0, %%cr4\n mov %1, %%cr3" : : "r" (cr4), "r" (cr3)
                 : "memory");
    write_cr0(read_cr0() | CR0_WP);
    for (int i = 0; i < WINDOW_PAGES; i++) {
        set_pte(i, PTE_ALL);
    }
    count_all();
}

#endif
