/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Last branch records, of whatever generation of processors this is; and code
 * that switches them on, and off again where it goes, so that nothing else is
 * in them.
 */
#ifndef TESTS_TCG_PMU_LBR_H
#define TESTS_TCG_PMU_LBR_H

#include "pmu-kernel.h"

#define MSR_LBR_SELECT          0x1c8
#define MSR_LBR_TOS             0x1c9
#define MSR_LAST_FROM           0x1db
#define MSR_LAST_TO             0x1dc
#define MSR_LER_FROM            0x1dd
#define MSR_LER_TO              0x1de
#define MSR_LER_INFO            0x1e0
#define MSR_LBR_CTL             0x14ce
#define MSR_LBR_DEPTH           0x14cf

enum { DE, DB, NMI, BP, OF, BR, DF = 8, NP = 11, SS, VECTOR = 64 };

#define DEBUGCTL_LBR            (1u << 0)
#define DEBUGCTL_BTF            (1u << 1)
#define FREEZE_WHILE_SMM        (1u << 14)
#define LBR_FRZ                 (1ull << 58)    /* of GLOBAL_STATUS */
#define CTL_ENABLE              1u
#define CTL_OS                  2u
#define CTL_USR                 4u
#define CTL_CALL_STACK          8u
#define CTL_CLASSES             0x7f0000u
#define FLAG_TF                 (1u << 8)
#define ADDRESS_MASK            ((1ull << 48) - 1)
#define MISPREDICTED            (1ull << 63)
#define INFO_VALID              (1ull << 60)

typedef enum Format {
    FORMAT_32, FORMAT_LIP, FORMAT_EIP, FORMAT_FLAGS, FORMAT_TSX, FORMAT_INFO,
    FORMAT_TIME, FORMAT_INFO2, FORMAT_ARCH = 63,
} Format;

/* Bits of SELECT, and, from bit 16 on, of IA32_LBR_CTL */
typedef enum Class {
    JCC, CALL_REL, CALL_IND, RET, JMP_IND, JMP_REL, FAR, CLASSES
} Class;

static const uint32_t select_bits[CLASSES] = {
    1u << 2, 1u << 3, 1u << 4, 1u << 5, 1u << 6, 1u << 7, 1u << 8,
};
static const uint32_t ctl_bits[CLASSES] = {
    1u << 16, 1u << 19, 1u << 20, 1u << 21, 1u << 18, 1u << 17, 1u << 22,
};
/* INFO[59:56] of architectural records */
static const uint8_t types[CLASSES] = { 0, 4, 3, 5, 1, 2, 8 };

typedef struct Generation {
    uint8_t model;
    const char *name;
    unsigned depth;         /* 1: MSR_LAST_FROM and MSR_LAST_TO */
    Format format;
    /* The first MSRs; with both addresses in one, there is no @to. */
    uint32_t from, to, info;
    uint32_t select;        /* bits of it; 0: there is none */
    uint32_t debugctl;      /* bits that are there whatever CPUID says */
    bool to_first;          /* MSR_LER_FROM has the target, MSR_LER_TO not */
} Generation;

#define PINS            0x3cu
#define TR              0x40u
#define UNCORE          (1u << 13)
#define CALL_STACK      (1u << 9)

static const Generation generations[] = {
    { 3, "P6", 1, FORMAT_32, 0x1db, 0x1dc, 0, 0, PINS | TR },
    { 13, "Pentium M", 8, FORMAT_32, 0x40, 0, 0, 0, PINS | TR, true },
    { 14, "Core Duo", 8, FORMAT_32, 0x40, 0, 0, 0, 0 },
    { 15, "Core 2", 4, FORMAT_EIP, 0x40, 0x60, 0, 0, 0 },
    { 28, "Bonnell", 8, FORMAT_EIP, 0x40, 0x60, 0, 0, 0 },
    { 55, "Silvermont", 8, FORMAT_EIP, 0x40, 0x60, 0, 0x1ff, 0 },
    { 87, "Knights Landing", 8, FORMAT_FLAGS, 0x680, 0x6c0, 0, 0x1ff, 0 },
    { 26, "Nehalem", 16, FORMAT_FLAGS, 0x680, 0x6c0, 0, 0x1ff, UNCORE },
    { 42, "Sandy Bridge", 16, FORMAT_FLAGS, 0x680, 0x6c0, 0, 0x1ff, UNCORE },
    { 60, "Haswell", 16, FORMAT_TSX, 0x680, 0x6c0, 0, 0x3ff, UNCORE },
    { 94, "Skylake", 32, FORMAT_INFO, 0x680, 0x6c0, 0xdc0, 0x3ff, UNCORE },
    { 92, "Goldmont", 32, FORMAT_TIME, 0x680, 0x6c0, 0, 0x3ff, 0 },
    { 122, "Goldmont Plus", 32, FORMAT_INFO2, 0x680, 0x6c0, 0xdc0, 0x3ff, 0 },
    { 143, "Golden Cove", 32, FORMAT_ARCH, 0x1500, 0x1600, 0x1200, 0, UNCORE },
};
static const Generation amd = { 0, "AMD", 1, FORMAT_32, 0x1db, 0x1dc, 0, 0,
                                PINS };

static const Generation *lbr;

/* What switches records on, if written to that MSR. */
uint32_t lbr_msr = MSR_DEBUGCTL, lbr_on = DEBUGCTL_LBR;

static inline bool is_arch(void)
{
    return lbr->format == FORMAT_ARCH;
}

static inline bool is_amd(void)
{
    return lbr == &amd;
}

static inline bool has_flags(void)
{
    return lbr->format >= FORMAT_FLAGS;
}

static inline bool has_cycles(void)
{
    return lbr->info || lbr->format == FORMAT_TIME;
}

/* As CPUID says it */
static inline void lbr_find(void)
{
    uint32_t signature = cpuid_reg(1, 0, 0);
    unsigned model = (signature >> 4 & 15) | (signature >> 12 & 0xf0);

    lbr = &amd;
    if (cpuid_reg(0, 0, 1) != 0x756e6547) {
        return;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(generations); i++) {
        if (generations[i].model == model) {
            lbr = &generations[i];
        }
    }
    if (is_arch()) {
        lbr_msr = MSR_LBR_CTL;
        lbr_on = CTL_ENABLE | CTL_OS | CTL_USR | CTL_CLASSES;
    }
}

static inline void lbr_start(void)
{
    wrmsr(lbr_msr, lbr_on);
}

static inline void lbr_stop(void)
{
    wrmsr(lbr_msr, 0);
}

typedef struct Record {
    uint64_t from, to, info;
} Record;

/* The registers with that index, as they are. */
static inline Record read_registers(unsigned i)
{
    Record r = { rdmsr(lbr->from + i), 0, 0 };

    if (lbr->to) {
        r.to = rdmsr(lbr->to + i);
    } else {
        r.to = r.from >> 32;
        r.from &= 0xffffffff;
    }
    r.info = lbr->info ? rdmsr(lbr->info + i) : 0;
    return r;
}

/* Where the @n-th of the last records is. */
static inline unsigned place(unsigned n)
{
    return is_arch() ? n : lbr->depth == 1 ? 0 :
           (rdmsr(MSR_LBR_TOS) - n) % lbr->depth;
}

/*
 * The addresses alone of the @n-th of the last records.  If there is but one,
 * it is of an event, and then what was before it is elsewhere.
 */
static inline Record record(unsigned n)
{
    Record r;

    if (lbr->depth == 1 && n) {
        r = (Record) { rdmsr(MSR_LER_FROM), rdmsr(MSR_LER_TO), 0 };
    } else {
        r = read_registers(place(n));
    }
    r.from &= ADDRESS_MASK;
    r.to &= ADDRESS_MASK;
    return r;
}

static inline bool goes(Record r, uintptr_t from, uintptr_t to)
{
    if (r.from != from || r.to != to) {
        test_printf("  %lx to %lx, for %lx to %lx\n", r.from, r.to,
                    (uint64_t)from, (uint64_t)to);
        return false;
    }
    return true;
}

static inline void clear_records(void)
{
    if (is_arch()) {
        wrmsr(MSR_LBR_DEPTH, rdmsr(MSR_LBR_DEPTH));
        return;
    }
    for (unsigned i = 0; i < lbr->depth && lbr->depth > 1; i++) {
        wrmsr(lbr->from + i, 0);
        if (lbr->to) {
            wrmsr(lbr->to + i, 0);
        }
        if (lbr->info) {
            wrmsr(lbr->info + i, 0);
        }
    }
}

/* These change EAX, ECX and EDX. */
#define ON  "mov lbr_msr, %ecx\n mov lbr_on, %eax\n xor %edx, %edx\n wrmsr\n"
#define OFF "mov lbr_msr, %ecx\n xor %eax, %eax\n xor %edx, %edx\n wrmsr\n"

/* Switches records off and goes on as if it had not been there. */
#define HANDLER(name, vector) \
    static void __attribute__((naked)) name(void) \
    { \
        asm("mov %rax, -24(%rsp)\n mov %rcx, -32(%rsp)\n" \
            "mov %rdx, -40(%rsp)\n" OFF \
            "mov -24(%rsp), %rax\n mov -32(%rsp), %rcx\n" \
            "mov -40(%rsp), %rdx\n jmp trap_stubs + 16 * " #vector); \
    }

HANDLER(on_exit, 32)

/* Run what has been set up, with records; @handler of @vector ends it. */
static inline unsigned run_recorded(unsigned vector, void (*handler)(void))
{
    set_handler(EXIT, on_exit);
    set_handler(vector, handler);
    lbr_start();
    run();
    lbr_stop();
    reset_handler(vector);
    reset_handler(EXIT);
    return regs.vector;
}

/* A segment of 16 or 32 bits that does not begin at 0 */
#define CODE_BASE               0x30
#define offset_in(fn)           ((uintptr_t)(fn) - code_base)
static uintptr_t code_base;

static inline void set_code_base(uint16_t selector, uintptr_t near_to)
{
    bool wide = selector != USER_CODE16;

    code_base = (near_to & ~0xfffull) - CODE_BASE;
    set_segment(selector, code_base, 0xffff, ACC_CODE | ACC_USER,
                wide ? SEG_32 : SEG_16);
}

#endif
