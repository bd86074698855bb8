/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Random instructions, register values, LWPCBs, XSAVE images, debug store areas
 * and page tables, in all processor modes, for LWP, performance counters and
 * branch records.
 *
 * What can be known is checked: which exceptions the instruction may raise, its
 * length, that LWP writes to its ring and its LWPCB only, what LWP's state may
 * be.  With a second processor, that one changes page tables and LWPCBs and
 * sends interrupts meanwhile; it also notices if the first one hangs.
 *
 * Needs pmu=on.  Arguments, in -append: SEED:ITERATIONS:FIRST.  A round of
 * ROUND iterations starts afresh, and depends on SEED and its number only, but
 * for what the second processor does when.
 */

#include "pmu-kernel.h"
#include "lwp-kernel.h"
#include "kernel-ap64.h"
#include "kernel-legacy.h"
#include "kernel-smm.h"

#define ROUND           64
#define HANG_SECONDS    60
#define MAX_EVENTS      20000       /* interrupts and the like in one run */

/* The window: pages that programs and LWP can reach, and nothing else is. */
enum {
    RING = 0, RING_PAGES = 4,
    CBS = 4,                        /* and 5 */
    DATAS = 6,                      /* and 7 */
    AREA = 8,                       /* XSAVE's */
    CODE_PAGE = 9,                  /* read-only */
    PAGES,
    /* Behind them, where only branches are stored, and nothing follows */
    TRACE = PAGES, TRACE_PAGES = 3,
    ALL_PAGES = TRACE + TRACE_PAGES
};

#define ADDR(page)      (WINDOW + (page) * PAGE)
#define SIZE            (PAGES * PAGE)

static uint8_t ram[ALL_PAGES][PAGE] __attribute__((aligned(PAGE)));
static uint8_t shadow[SIZE] __attribute__((aligned(PAGE)));
#define code            ram[CODE_PAGE]

enum {
    DB = 1, NMI_VECTOR = 2, SS = 12,
    FIRST_INTERRUPT = 48, PMI = 0xee,
    IPI = 0xf2, LWP_VECTOR = 0xd0
};
#define BIT(n)          (1ull << (n))

enum { ICR_FIXED = 0x4000, ICR_NMI = 0x4400, ICR_SMI = 0x4200 };

#define FLAG_TF         (1u << 8)
#define FLAG_DF         (1u << 10)
#define FLAG_IOPL       (3u << 12)
#define FLAG_AC         (1u << 18)

#define LVT_SMI             0x200
#define MSR_DS_AREA         0x600
#define MSR_LBR_SELECT      0x1c8
#define MSR_LBR_TOS         0x1c9
#define MSR_LBR_CTL         0x14ce
#define MSR_LBR_DEPTH       0x14cf
#define MSR_AMD_SELECT      0xc000010e
#define DEBUGCTL_BTS        0xc0
#define MSR_MISC_FEATURES   0x140

/* --- random numbers ------------------------------------------------------ */

typedef struct Random {
    uint64_t state;
} Random;

static Random random0;          /* of the first processor */

static uint64_t next(Random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15ull;     /* SplitMix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static uint64_t rnd(void)
{
    return next(&random0);
}

static unsigned below(unsigned n)
{
    return rnd() % n;
}

static bool one_in(unsigned n)
{
    return below(n) == 0;
}

#define PICK(array)     ((array)[below(ARRAY_SIZE(array))])

/* --- what is going on ---------------------------------------------------- */

static uint64_t seed, iteration, iterations, first;
static const char *what;        /* is being executed */
static uint64_t seen[VECTORS];  /* what it has raised */
static uint64_t enabled;        /* how often LWP has been found so */
static unsigned code_len;

static uint32_t stopping, stopped;  /* the second processor */
static bool has_ap, ap_runs;        /* ap_runs: in this round */
static uint64_t ap_seed;            /* of this round */
static uint32_t ap_cb[2];           /* LWPCBs, as offsets in @ram */
static uint32_t ap_pages;           /* a mask of what it may change */

static bool has_lwp, is_intel, has_global, has_ds;
static uint64_t osxsave;            /* CR4_OSXSAVE, if there is XSAVE */

static void print_state(void)
{
    ml_printf("seed %ld, iteration %ld: %s, code", seed, iteration, what);
    for (int i = 0; i < code_len; i++) {
        ml_printf(" %x", code[i]);
    }
    ml_printf("\nvector %ld, error %lx, CS %lx, RIP %lx, CR2 %lx\n",
              regs.vector, regs.error, regs.cs, regs.rip, fault_address);
}

static void __attribute__((noreturn)) leave(unsigned status)
{
    asm volatile("outb %%al, $0xf4" : : "a" ((uint8_t)status));
    for (;;) {
        asm volatile("hlt");
    }
}

#define check(ok, ...) \
    do { \
        if (!(ok)) { \
            report(false, __VA_ARGS__); \
            print_state(); \
            report_summary(); \
            leave(1); \
        } \
    } while (0)

/* --- memory -------------------------------------------------------------- */

/* Parts of the window in which a byte may change in this round */
static struct {
    uint32_t start, end;
    bool lwp;                       /* only through pages that LWP may write */
} allowed[512];
static unsigned nallowed;
static uint32_t lwp_pages;          /* that could be written at CPL 3 */

static void allow(uint64_t addr, uint64_t size, bool lwp)
{
    uint64_t start = addr - WINDOW, end = start + size;

    if (addr < WINDOW) {
        start = 0;
        end = addr + size - WINDOW;
        if (addr + size <= WINDOW || addr + size < addr) {
            return;
        }
    }
    if (start >= SIZE) {
        return;
    }
    if (end > SIZE || end < start) {
        end = SIZE;
    }
    for (int i = 0; i < nallowed; i++) {
        if (allowed[i].start <= start && allowed[i].end >= end &&
            allowed[i].lwp <= lwp) {
            return;
        }
    }
    check(nallowed < ARRAY_SIZE(allowed), "room for another range");
    allowed[nallowed].start = start;
    allowed[nallowed].end = end;
    allowed[nallowed++].lwp = lwp;
}

static bool is_allowed(uint32_t at)
{
    for (int i = 0; i < nallowed; i++) {
        if (at >= allowed[i].start && at < allowed[i].end &&
            (!allowed[i].lwp || lwp_pages >> (at / PAGE) & 1)) {
            return true;
        }
    }
    return false;
}

/* Nothing but what may have changed has. */
static void check_memory(void)
{
    const uint64_t *now = (void *)ram, *then = (void *)shadow;

    for (int i = 0; i < CODE_PAGE * PAGE / 8; i++) {
        if (now[i] == then[i]) {
            continue;
        }
        for (int n = 8 * i; n < 8 * i + 8; n++) {
            check(ram[0][n] == shadow[n] || is_allowed(n),
                  "byte 0x%x of the window is %x, was %x", n, ram[0][n],
                  shadow[n]);
        }
    }
}

/* The kernel's own changes */
static void *poke(uint32_t at, const void *from, unsigned size)
{
    memcpy(&ram[0][at], from, size);
    memcpy(&shadow[at], from, size);
    return &ram[0][at];
}

static void write_pte(int page, uint64_t pte)
{
    if ((pte & PTE_ALL) == PTE_ALL) {
        __atomic_or_fetch(&lwp_pages, 1u << page, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&window_table[page], pte, __ATOMIC_RELAXED);
}

static uint64_t pte_of(int page, unsigned bits)
{
    return (uintptr_t)ram[page] | bits;
}

static void flush_tlb(void)
{
    uint64_t cr3;

    asm volatile("mov %%cr3, %0\n mov %0, %%cr3" : "=r" (cr3) : : "memory");
}

/* Bits of a page table entry for a page of data */
static unsigned random_bits(Random *r)
{
    unsigned n = next(r) % 8;

    return n < 3 ? n * 2 + 1 :          /* P, P|W, P|U */
           n == 3 ? 0 : PTE_ALL;
}

static void repair_pages(void)
{
    for (int i = 0; i < CODE_PAGE; i++) {
        write_pte(i, pte_of(i, PTE_ALL));
    }
    flush_tlb();
}

/* An address of some interest */
static uint64_t random_address(void)
{
    static const uint64_t wild[] = {
        0, 1, 0x1000, 0x100000, 0xfee00000, 0xfffff000, 0xffffffff,
        0x100000000, 0x7fffffffffff, 0x800000000000, 0xffff800000000000,
        -1, -64, 1ull << 63, WINDOW - 64, WINDOW + SIZE, 0xa0000, 0xf0000,
    };

    switch (below(8)) {
    case 0:
        return PICK(wild) + (one_in(2) ? 0 : below(4096) & -32);
    case 1:
        return WINDOW + below(SIZE);
    case 2:
        return one_in(4) ? rnd() : (uint32_t)rnd();
    case 3:
        return ADDR(below(PAGES)) - below(256);
    default:
        return WINDOW + ap_cb[below(2)];
    }
}

static uint32_t small_or_random(void)
{
    switch (below(4)) {
    case 0:
        return below(4);
    case 1:
        return below(2000);
    default:
        return rnd();
    }
}

/* @tame: enabled, and in the pages that are for it, at @ring_at */
static void make_cb(LwpCb *c, uint64_t ring_at, bool tame)
{
    uint64_t *q = (void *)c;

    for (int i = 0; i < sizeof(*c) / 8; i++) {
        q[i] = one_in(2) ? 0 : rnd();
    }
    c->flags = one_in(4) ? rnd() : 0x8000007e;
    c->filters = one_in(2) ? 0 : rnd();
    c->tail = one_in(2) ? 0 : below(64) * 32;
    c->head = one_in(2) ? 0 : below(64) * 32;
    c->threshold = below(64) * 32;
    for (int i = 0; i < 6; i++) {
        c->event[i].interval = small_or_random();
        c->event[i].counter = small_or_random();
    }
    if (tame || !one_in(4)) {
        c->base = ring_at + (one_in(2) ? 0 : below(2 * PAGE));
        c->size = LWP_MIN_RING + below(PAGE) + (one_in(2) ? 0 : rnd() << 28);
    } else {
        c->base = random_address();
        c->size = small_or_random() << below(20);
    }
}

/* --- what branches are stored in ------------------------------------------ */

/*
 * Branches are stored with the rights of a supervisor, which may write to all
 * of the kernel, so what is random is where there is no memory: neither with
 * the upper half of the address nor, as without paging, without it.
 */
static const uint64_t no_memory[] = {
    0xfec00000, 0xfee00000, 0xfee00ff8, 0xfed00000, 0x1fee00000,
    0x7fffffffffe8, 0x7fffffffffff, 0x8000fee00000, 0xffff8000fee00000,
    0x80000000fee00000, 0xff00000fee000000, -1, -8, -24, -31, -4096,
};

static uint32_t trace_at;       /* the area, as an offset in @ram */

/*
 * The buffer begins behind BASE: a record that goes over the area must not make
 * an address of code of that.
 */
static uint64_t random_buffer(Random *r)
{
    uint64_t area = WINDOW + trace_at;

    switch (next(r) % 8) {
    case 0:
        return no_memory[next(r) % ARRAY_SIZE(no_memory)];
    case 1:
        return area + 8 + next(r) % 32;
    case 2:
        return ADDR(TRACE + 2) - next(r) % 32;
    default:
        return ADDR(TRACE + 1) + 64 + next(r) % (2 * PAGE - 64);
    }
}

static uint64_t random_field(Random *r, int n)
{
    return n < 2 ? random_buffer(r) :       /* BASE and INDEX */
           next(r) % 8 == 0 ? next(r) :
           ADDR(TRACE + 1) + next(r) % (2 * PAGE);
}

/* One store, because half an address is another one */
static void store_field(int n, uint64_t val)
{
    asm volatile("mov %1, %0" : "=m" (*(uint64_t *)(ram[0] + trace_at + 8 * n))
                 : "r" (val));
}

static void make_trace_area(void)
{
    uint64_t base = random_field(&random0, 0);
    bool near_base = base - WINDOW < ALL_PAGES * PAGE && !one_in(4);

    store_field(0, base);
    store_field(1, near_base ? base + 24 * below(20) :
                random_field(&random0, 1));
    store_field(2, random_field(&random0, 2));
    store_field(3, random_field(&random0, 3));
}

/* Not for user mode, whose stores could make any address of it. */
static void write_trace_pte(int page, uint64_t random)
{
    static const uint8_t bits[] = {
        0, PTE_P, PTE_P | PTE_W, PTE_P | PTE_W, PTE_P | PTE_W
    };

    write_pte(page, pte_of(page, bits[random % ARRAY_SIZE(bits)]));
}

/* --- what LWP's state may be --------------------------------------------- */

static XsaveArea kernel_area;
static bool lwp_wild;           /* XRSTOR at CPL 0 trusts pointers (§7.4). */

static bool canonical(uint64_t addr)
{
    return (int64_t)(addr << 16) >> 16 == addr;
}

/* What stores to ring and LWPCB may cause */
static uint64_t lwp_faults(void)
{
    if (!has_lwp || !rdmsr(MSR_LWP_CBADDR)) {
        return 0;
    }
    return BIT(PF) | (lwp_wild ? BIT(GP) : 0);
}

/* By XCR0[62]; CR4.OSXSAVE does not matter (chapter 5). */
static bool lwp_available(void)
{
    uint64_t cr4 = read_cr4(), xcr0;

    write_cr4(cr4 | CR4_OSXSAVE);
    xcr0 = xgetbv0();
    write_cr4(cr4);
    return xcr0 & LWP_XSTATE;
}

static void check_lwp(void)
{
    uint64_t addr = has_lwp ? rdmsr(MSR_LWP_CBADDR) : 0;
    const LwpImage *image = &kernel_area.lwp;
    uint64_t cr4 = read_cr4();

    if (!addr) {
        return;
    }
    enabled++;
    check(lwp_available(), "LWP is enabled only if XCR0 has it");
    write_cr4(cr4 | CR4_OSXSAVE);
    write_cr0(read_cr0() & ~CR0_TS);
    kernel_area.xstate_bv = 0;
    xsave(&kernel_area, LWP_XSTATE);
    write_cr4(cr4);
    check(kernel_area.xstate_bv == LWP_XSTATE && image->cb == addr,
          "XSAVE shows LWP_CBADDR");
    check(image->size >= LWP_MIN_RING && image->size % 32 == 0 &&
          image->head < image->size && image->head % 32 == 0,
          "head 0x%x is in the ring of 0x%x bytes", image->head, image->size);
    check(!(image->flags & ~rdmsr(MSR_LWP_CFG)),
          "events 0x%x are those of LWP_CFG", image->flags);
    lwp_wild = !canonical(image->cb) || !canonical(image->base) ||
               !canonical(image->cb + lwp_cb_size() - 1) ||
               !canonical(image->base + image->size - 1);
    allow(image->cb, lwp_cb_size(), true);
    allow(image->base, image->size, true);
}

/* --- instructions -------------------------------------------------------- */

typedef enum Mode { M64, M32, M16, MPROTECTED, MV86, MREAL } Mode;

/* What a piece of code is, and what may come of it */
typedef struct Op {
    Mode mode;
    int cpl;
    uint8_t *p;                     /* where the next byte goes */
    uint64_t vectors;
    bool enables;                   /* it may enable LWP, or disable it */
    uint64_t lwp_faults;            /* what LWP's own accesses may cause */
    bool may_halt;
} Op;

static void put(Op *op, uint64_t bytes, unsigned n)
{
    while (n--) {
        *op->p++ = bytes;
        bytes >>= 8;
    }
}

#define PUT(op, ...) \
    do { \
        static const uint8_t bytes_[] = { __VA_ARGS__ }; \
        memcpy((op)->p, bytes_, sizeof(bytes_)); \
        (op)->p += sizeof(bytes_); \
    } while (0)

/* MOV r32, imm32 */
enum { EAX, ECX, EDX, EBX, ESI = 6, EDI };

static void put_mov(Op *op, int reg, uint32_t val)
{
    put(op, 0xb8 + reg, 1);
    put(op, val, 4);
}

static void may(Op *op, uint64_t vectors)
{
    op->vectors |= vectors;
}

static void put_modrm(Op *op, unsigned modrm, bool addr16)
{
    unsigned mod = modrm >> 6, rm = modrm & 7, disp = 0;

    put(op, modrm, 1);
    if (mod == 3) {
        return;
    }
    if (addr16) {
        disp = mod == 1 ? 1 : mod == 2 || rm == 6 ? 2 : 0;
    } else {
        bool none = rm == 5;

        if (rm == 4) {
            uint8_t sib = rnd();

            put(op, sib, 1);
            none = (sib & 7) == 5;
        }
        disp = mod == 1 ? 1 : mod == 2 || none ? 4 : 0;
    }
    put(op, one_in(2) ? rnd() : random_address(), disp);
}

/*
 * An instruction with an XOP prefix, which has to be exactly what chapter 5
 * says or is #UD.
 */
static void gen_lwp(Op *op)
{
    static const uint8_t prefixes[] = {
        0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x67, 0x66, 0xf2, 0xf3, 0xf0
    };
    bool is64 = op->mode == M64, addr16 = op->mode == M16, ud;
    unsigned map, xop1, xop2, opcode, modrm, reg;
    uint8_t *start = op->p;

    ud = op->mode >= MV86 || !has_lwp || !lwp_available();
    if (one_in(4)) {
        unsigned n = 1 + below(2);
        bool toggled = false;

        while (n--) {
            unsigned prefix = PICK(prefixes);

            put(op, prefix, 1);
            ud |= prefix == 0x66 || prefix >= 0xf0;
            toggled |= prefix == 0x67;
        }
        addr16 ^= toggled && !is64;
    }
    if (is64 && one_in(16)) {
        put(op, 0x40 + below(16), 1);           /* REX */
        ud = true;
    }

    map = one_in(8) ? 8 + below(24) : 9 + below(2);
    xop1 = map | (one_in(4) ? rnd() & 0xe0 : 0xe0);
    xop2 = 0x78 | (rnd() & 0x80);
    if (one_in(4)) {
        xop2 = map == 10 && !one_in(4) ? rnd() & 0xf8 : rnd() & 0xff;
    }
    opcode = one_in(32) ? rnd() & 0xff : 0x12;
    modrm = rnd() & 0xff;
    if (!one_in(8)) {
        modrm &= ~0x30;
        modrm |= map == 9 || one_in(2) ? 0xc0 : 0;
    }
    if (op->mode == MPROTECTED && map == 9) {
        /* Not ESP, ESI or EDI, which point to memory of the kernel's. */
        modrm = (modrm & ~7) | below(4);
    }

    ud |= map != 9 && map != 10;
    ud |= !is64 && (xop1 & 0xc0) != 0xc0;
    ud |= opcode != 0x12 || (xop2 & 7);
    reg = modrm >> 3 & 7;
    ud |= reg > 1;
    if (map == 9) {
        ud |= modrm < 0xc0;
        ud |= (xop2 & (is64 ? 0x78 : 0x38)) != (is64 ? 0x78 : 0x38);
    }

    put(op, 0x8f, 1);
    put(op, xop1, 1);
    put(op, xop2, 1);
    put(op, opcode, 1);
    put_modrm(op, modrm, addr16);
    if (map == 10) {
        put(op, rnd(), 4);
    }
    if (op->p - start > 15) {
        what = "an instruction of more than 15 bytes";
        may(op, BIT(GP) | (ud ? BIT(UD) : 0));
        return;
    }
    if (ud) {
        what = "not an LWP instruction";
        may(op, BIT(UD));
        return;
    }

    may(op, BIT(EXIT));
    if (map == 9 && reg == 0) {
        what = "LLWPCB";
        op->enables = true;
        may(op, BIT(GP) | BIT(PF));
    } else if (map == 9) {
        what = "SLWPCB";
        may(op, op->lwp_faults);
    } else {
        what = reg ? "LWPVAL" : "LWPINS";
        may(op, op->lwp_faults);
        may(op, op->lwp_faults && modrm < 0xc0 ? BIT(GP) | BIT(SS) : 0);
    }
}

static uint32_t random_mask(void)
{
    return one_in(4) ? rnd() : 3;
}

/* An XSAVE area that is good, bad, or not there */
static void gen_xrstor(Op *op)
{
    uint32_t at = AREA * PAGE + (one_in(16) ? below(PAGE) : below(8) * 256);
    uint64_t any = rnd();
    XsaveArea area = { };
    LwpImage *image = &area.lwp;

    what = "XRSTOR";
    area.legacy[1] = 3;                     /* FCW: 037F */
    area.legacy[0] = 0x7f;
    area.legacy[24] = 0x80;                 /* MXCSR: 1F80 */
    area.legacy[25] = 0x1f;
    area.xstate_bv = LWP_XSTATE | (rnd() & 3);
    if (one_in(8)) {
        area.xstate_bv = rnd();
    }
    if (one_in(16)) {
        area.xcomp_bv = rnd();
    }
    if (one_in(16)) {
        area.header[below(6)] = rnd();
    }
    image->cb = random_address();
    image->flags = one_in(2) ? 0x7e : rnd();
    image->head = small_or_random();
    image->base = one_in(2) ? WINDOW + below(RING_PAGES * PAGE)
                            : random_address();
    image->size = one_in(2) ? LWP_MIN_RING + below(PAGE) : rnd();
    image->filters = one_in(2) ? 0 : rnd();
    if (one_in(2)) {
        memcpy(&image->saved, &(uint64_t[4]) { rnd(), any, 3, rnd() }, 32);
    }
    for (int i = 0; i < 16; i++) {
        image->counter[i] = small_or_random();
    }
    if (at + sizeof(area) > (AREA + 1) * PAGE) {
        at = AREA * PAGE;
    }
    poke(at, &area, sizeof(area));

    op->enables = true;
    put_mov(op, EAX, random_mask());
    put_mov(op, EDX, one_in(4) ? rnd() : LWP_XSTATE >> 32);
    put_mov(op, ESI, WINDOW + at);
    if (op->mode == M64 && one_in(2)) {
        put(op, 0x48, 1);
    }
    PUT(op, 0x0f, 0xae, 0x2e);
    may(op, BIT(EXIT) | BIT(UD) | BIT(NM) | BIT(GP) | BIT(PF));
}

static void gen_xsave(Op *op)
{
    uint32_t at = AREA * PAGE + below(PAGE / 64) * 64;

    what = "XSAVE";
    put_mov(op, EAX, random_mask());
    put_mov(op, EDX, one_in(4) ? rnd() : LWP_XSTATE >> 32);
    put_mov(op, ESI, WINDOW + at);
    put(op, 0xae0f, 2);
    put(op, one_in(2) ? 0x26 : 0x36, 1);        /* or XSAVEOPT */
    allow(WINDOW + at, 4096, false);
    may(op, BIT(EXIT) | BIT(UD) | BIT(NM) | BIT(GP) | BIT(PF));
}

static uint32_t random_msr(void)
{
    static const uint32_t others[] = {
        MSR_LWP_CFG, MSR_LWP_CFG, MSR_LWP_CBADDR, MSR_DEBUGCTL, MSR_DEBUGCTL,
        MSR_MISC_ENABLE, MSR_MISC_FEATURES, MSR_PERF_CAPABILITIES,
        MSR_FIXED_CTR_CTRL, MSR_GLOBAL_STATUS, MSR_GLOBAL_CTRL,
        MSR_GLOBAL_STATUS_RESET, MSR_GLOBAL_STATUS_SET, MSR_GLOBAL_INUSE,
        0x3f1, 0x3f2 /* PEBS */, 0x834 /* x2APIC's LVTPC */,
    };
    /* Of branch records: so many behind the first one */
    static const struct {
        uint32_t first, more;
    } branches[] = {
        { MSR_DEBUGCTL }, { MSR_DS_AREA }, { MSR_DS_AREA }, { MSR_LBR_SELECT },
        { MSR_LBR_TOS }, { 0x1db, 3 }, { 0x1e0 }, { 0x40, 7 }, { 0x60, 7 },
        { 0x680, 32 }, { 0x6c0, 32 }, { 0xdc0, 32 }, { MSR_LBR_CTL },
        { MSR_LBR_DEPTH }, { 0x1200, 32 }, { 0x1500, 32 }, { 0x1600, 32 },
    }, amd_branches[] = {
        { MSR_DEBUGCTL }, { 0x1db, 3 }, { MSR_AMD_SELECT, 1 },
        { 0xc0010300, 32 },
    };
    bool intel = is_intel ^ one_in(16);
    unsigned n;

    switch (below(11)) {
    case 0:
    case 1:
        return intel ? MSR_EVTSEL(below(9)) :
               one_in(2) ? MSR_PERF_CTL(below(7)) : MSR_K7_EVTSEL(below(4));
    case 2:
        return intel ? MSR_PMC(below(9)) :
               one_in(2) ? MSR_PERF_CTR(below(7)) : MSR_K7_PERFCTR(below(4));
    case 3:
        return intel ? MSR_PMC_FULL(below(9)) : MSR_AMD_STATUS + below(4);
    case 4:
        return intel ? MSR_FIXED_CTR(below(4)) : MSR_AMD_CTL;
    case 5:
    case 6:
    case 7:
        n = intel ? below(ARRAY_SIZE(branches)) :
            below(ARRAY_SIZE(amd_branches));
        return intel ? branches[n].first + below(branches[n].more + 1) :
               amd_branches[n].first + below(amd_branches[n].more + 1);
    default:
        return PICK(others);
    }
}

static uint64_t random_msr_value(uint32_t msr)
{
    static const uint8_t events[] = {
        0x3c, 0xc0, 0xc4, 0xc5, 0x76, 0x79, 0xc2, 0xc3, 0xcb, 0xcf, 0x2c,
        0xd0, 0xd1, 0x51, 0x2e, 0x40, 0x41, 0x29
    };
    static const uint8_t masks[] = {
        0, 0, 0, 1, 2, 4, 8, 0x10, 0x20, 0x21, 0x41, 0x4f, 0x81, 0x82
    };
    uint64_t val;

    switch (msr) {
    case MSR_LWP_CFG:
        val = one_in(4) ? rnd() : (rnd() & 0xff8000007e) |
                                  (uint64_t)LWP_VECTOR << 40;
        /* No vectors of exceptions, which nobody could tell from them */
        if (val >> 40 & 0xff && (val >> 40 & 0xff) < FIRST_INTERRUPT) {
            val |= 0x800000000000;
        }
        return val;
    case MSR_MISC_ENABLE:
        return rnd() & 0x1889;
    case MSR_DEBUGCTL:
        val = rnd() & (one_in(8) ? -1 : one_in(2) ? 0x5fc3 : 0x7fff);
        return one_in(2) ? val : val | DEBUGCTL_BTS;
    case MSR_DS_AREA:
        return one_in(8) ? PICK(no_memory) : WINDOW + trace_at;
    case MSR_LBR_SELECT:
    case MSR_AMD_SELECT:
        return rnd() & (one_in(8) ? -1 : 0x3ff);
    case MSR_LBR_CTL:
        return rnd() & (one_in(8) ? -1 : 0x7f000f);
    case MSR_LBR_DEPTH:
        return one_in(4) ? rnd() : below(6) * 8;
    case MSR_LBR_TOS:
        return below(40);
    case MSR_GLOBAL_CTRL:
    case MSR_AMD_CTL:
        return rnd() & (one_in(8) ? -1 : 0x7000000ff);
    case MSR_FIXED_CTR_CTRL:
        return rnd() & (one_in(8) ? -1 : 0xbbb);
    }
    switch (below(4)) {
    case 0:
        return rnd();
    case 1:
        return -(uint64_t)below(600);
    default:
        return PICK(events) | PICK(masks) << 8 |
               (rnd() & (one_in(8) ? 0xffff0000 : 0xf0000)) |
               EVTSEL_EN | EVTSEL_INT;
    }
}

static void gen_msr(Op *op)
{
    uint32_t msr = random_msr();

    put_mov(op, ECX, msr);
    if (one_in(3)) {
        what = "RDMSR";
        PUT(op, 0x0f, 0x32);
    } else {
        uint64_t val = random_msr_value(msr);

        what = "WRMSR";
        op->enables |= msr == MSR_LWP_CBADDR;
        put_mov(op, EAX, val);
        put_mov(op, EDX, val >> 32);
        PUT(op, 0x0f, 0x30);
    }
    may(op, op->cpl ? BIT(GP) : BIT(EXIT) | BIT(GP));
}

static void gen_rdpmc(Op *op)
{
    static const uint32_t indices[] = {
        1u << 30, 1u << 31, 1u << 29, -1, 0x40000001, 0x80000002
    };

    what = "RDPMC";
    put_mov(op, ECX, one_in(2) ? below(10) : PICK(indices));
    PUT(op, 0x0f, 0x33);
    may(op, BIT(GP) |
        (op->cpl && !(read_cr4() & CR4_PCE) ? 0 : BIT(EXIT)));
}

static void gen_xsetbv(Op *op)
{
    static const uint32_t values[] = { 1, 3, 3, 3, 7, 7, 0, 2, 5 };

    what = "XSETBV";
    op->enables = true;
    put_mov(op, ECX, one_in(16));
    put_mov(op, EAX, PICK(values));
    put_mov(op, EDX, one_in(3) ? 0 : one_in(8) ? rnd() : LWP_XSTATE >> 32);
    PUT(op, 0x0f, 0x01, 0xd1);
    may(op, BIT(UD) | BIT(GP) | (op->cpl ? 0 : BIT(EXIT)));
}

/* MOVS, CMPS, STOS, LODS and SCAS; INS and OUTS of a port that is not there */
static void gen_string(Op *op)
{
    static const uint8_t opcodes[] = { 0xa4, 0xa6, 0xaa, 0xac, 0xae };
    uint32_t to = ADDR(DATAS) + below(PAGE), count = below(3000);
    uint32_t from = WINDOW + below(SIZE);
    bool io = one_in(8), wide = one_in(2);
    unsigned opcode = io ? (one_in(2) ? 0x6c : 0x6e) : PICK(opcodes);

    what = io ? "INS or OUTS" : "a string instruction";
    put_mov(op, ESI, from);
    put_mov(op, EDI, to);
    if (io) {
        count %= 100;
        put_mov(op, EDX, 0x80);
        may(op, BIT(GP));
    }
    put_mov(op, ECX, count);
    if (!one_in(4)) {
        put(op, one_in(2) ? 0xf3 : 0xf2, 1);
    }
    put(op, opcode + wide, 1);
    allow(to - 4 * count, 8 * count + 8, false);
    may(op, BIT(EXIT) | BIT(PF));
}

static void gen_io(Op *op)
{
    static const uint8_t ports[] = { 0x80, 0x84, 0x61, 0xed };
    static const uint8_t opcodes[] = { 0xe4, 0xe5, 0xec, 0xed };
    unsigned opcode = PICK(opcodes), port = PICK(ports);
    bool out = port != 0x61 && one_in(2);

    what = "I/O";
    if (opcode < 0xe8) {
        put(op, opcode + 2 * out, 1);
        put(op, port, 1);
    } else {
        put_mov(op, EDX, port);
        put(op, opcode + 2 * out, 1);
    }
    may(op, BIT(EXIT) | (op->cpl ? BIT(GP) : 0));
}

/* The local APIC, which is a device at CPL 0 and not there at CPL 3 */
static void gen_apic(Op *op)
{
    static const uint32_t lvtpcs[] = {
        PMI, PMI, LVT_NMI, LVT_NMI, LVT_SMI, LVT_MASKED | PMI,
        0x100 | PMI, 0x300 | PMI, 0x600 | PMI /* reserved */
    };
    static const uint32_t icrs[] = {
        0x40000 | ICR_FIXED | 0x77, 0x40000 | ICR_SMI, 0x40000 | ICR_FIXED | IPI
    };
    bool lvtpc = !one_in(4);

    what = "a store to the APIC";
    put_mov(op, EAX, lvtpc ? PICK(lvtpcs) : PICK(icrs));
    put_mov(op, ESI, (uintptr_t)&APIC(lvtpc ? APIC_LVTPC : APIC_ICR));
    PUT(op, 0x89, 0x06);
    may(op, op->cpl ? BIT(PF) : BIT(EXIT));
}

/* Loops, calls, loads and stores: what LWP and the counters count */
static void gen_work(Op *op)
{
    what = "a loop";
    put_mov(op, ESI, ADDR(DATAS) + below(PAGE));
    put_mov(op, ECX, 1 + below(200));
    PUT(op, 0xff, 0xc0,                 /* 1: inc %eax */
        0xa8, 0x05,                     /* test $5, %al */
        0x75, 0x02,                     /* jnz 2f */
        0xff, 0xc2,                     /* inc %edx */
        0x8b, 0x1e,                     /* 2: mov (%rsi), %ebx */
        0x83, 0xc6, 0x04,               /* add $4, %esi */
        0xff, 0xc9,                     /* dec %ecx */
        0x75, 0xef);                    /* jnz 1b */
    may(op, BIT(EXIT) | BIT(PF));
}

static void gen_other(Op *op)
{
    may(op, BIT(EXIT));
    switch (below(6)) {
    case 0:
        what = "CPUID";
        put_mov(op, EAX, one_in(2) ? 0xa : 0x8000001c);
        put_mov(op, ECX, below(3));
        PUT(op, 0x0f, 0xa2);
        may(op, op->cpl ? BIT(GP) : 0);
        break;
    case 1:
        what = "XGETBV";
        put_mov(op, ECX, below(3));
        PUT(op, 0x0f, 0x01, 0xd0);
        may(op, BIT(UD) | BIT(GP));
        break;
    case 2:
        what = "PAUSE";
        PUT(op, 0xf3, 0x90);
        break;
    case 3:
        what = "STI";
        PUT(op, 0xfb, 0x90);
        may(op, op->cpl ? BIT(GP) : 0);
        break;
    case 4:
        what = "RDTSC";
        PUT(op, 0x0f, 0x31);
        break;
    case 5:
        what = "HLT";
        if (op->may_halt) {
            put(op, 0xf4, 1);
            may(op, op->cpl ? BIT(GP) : 0);
        } else {
            put(op, 0x90, 1);
        }
        break;
    }
}

static void (*const generators[])(Op *) = {
    gen_lwp, gen_lwp, gen_lwp, gen_lwp, gen_lwp, gen_lwp, gen_lwp, gen_lwp,
    gen_xrstor, gen_xrstor, gen_xsave, gen_msr, gen_msr, gen_msr, gen_msr,
    gen_rdpmc, gen_xsetbv, gen_string, gen_string, gen_io, gen_apic, gen_work,
    gen_work, gen_work, gen_other, gen_other,
};

static void generate(Op *op)
{
    int n = one_in(4) ? 2 + below(4) : 1;
    bool enabled = false;

    op->p = code;
    op->may_halt = has_ap && ap_runs && n == 1;
    for (int i = 0; i < n; i++) {
        uint8_t *p = op->p;
        uint64_t vectors = op->vectors;
        bool narrow = op->mode == M16 || op->mode == MPROTECTED ||
                      op->mode >= MV86;
        void (*gen)(Op *) = narrow ? gen_lwp : PICK(generators);

        op->enables = false;
        gen(op);
        /* What the first one does to LWP has to be seen before the next one. */
        if (op->enables && enabled) {
            op->p = p;
            op->vectors = vectors | BIT(EXIT);
            break;
        }
        op->lwp_faults |= op->enables ? BIT(PF) | BIT(GP) : 0;
        enabled |= op->enables;
        if (gen == gen_xsetbv) {
            break;      /* LWP's instructions are judged by XCR0 of now. */
        }
    }
    op->enables = enabled;
    if (n > 1) {
        what = "a sequence";
        may(op, BIT(EXIT));
    }
    code_len = op->p - code;
    put(op, 0x20cd, 2);                 /* INT EXIT */
}

/* --- running it ---------------------------------------------------------- */

/* What an exception in the kernel itself leads to; see trap_stubs */
static uint64_t panic_stack[1024];

static void panic(void)
{
    check(false, "no exception %d at 0x%lx of the kernel", (int)regs.vector,
          regs.rip);
}

static void expect_none(void)
{
    kernel_rsp = (uintptr_t)&panic_stack[ARRAY_SIZE(panic_stack) - 8];
    panic_stack[ARRAY_SIZE(panic_stack) - 2] = (uintptr_t)panic;
}

static unsigned run_code(void)
{
    unsigned vector = run();

    expect_none();
    return vector;
}

/* NMIs may come at any moment, also in what enters and leaves the code. */
uint32_t nmis;
PLACE(on_nmi);
asm(".text\n"
    "on_nmi: lock incl nmis(%rip)\n iretq\n"
    "smi_code: rsm\n"
    "smi_code_end:\n");

static uint8_t nmi_stack[4096] __attribute__((aligned(16)));

static void run_long(Op *op)
{
    static const uint16_t selectors[][2] = {
        { CODE64, USER_CODE64 }, { CODE32, USER_CODE32 },
        { CODE16, USER_CODE16 }
    };
    uint64_t base = op->mode == M16 ? ADDR(CODE_PAGE) : 0, *gpr = &regs.r15;
    uint64_t entry = ADDR(CODE_PAGE) - base, vectors = op->vectors;
    unsigned vector, events = 0, repairs = 0;

    set_up(selectors[op->mode][op->cpl != 0], entry);
    for (int i = 0; i < 15; i++) {
        gpr[i] = one_in(8) ? small_or_random() : random_address();
    }
    regs.rsp = ADDR(DATAS + 1);
    regs.rflags |= op->may_halt || !one_in(4) ? FLAG_IF : 0;
    regs.rflags |= one_in(8) ? FLAG_TF : 0;
    regs.rflags |= one_in(8) ? FLAG_DF : 0;
    regs.rflags |= one_in(8) ? FLAG_IOPL : 0;
    regs.rflags |= one_in(8) ? FLAG_AC : 0;
    if (regs.rflags & FLAG_TF) {
        vectors |= BIT(DB);
    }
    if (op->cpl) {
        /* A record is stored between two instructions (§8.6). */
        vectors |= op->lwp_faults;
    }

    for (;;) {
        vector = run_code();
        seen[vector]++;
        check(++events < MAX_EVENTS, "%s comes to an end", what);
        if (vector >= FIRST_INTERRUPT) {
            if (vector == IPI) {
                flush_tlb();
            }
            APIC(APIC_EOI) = 0;
            continue;
        }
        check(vectors >> vector & 1, "%s at CPL %d in mode %d raises %d, "
              "not one of 0x%lx", what, op->cpl, op->mode, vector, vectors);
        if (vector == DB) {
            regs.rflags &= ~FLAG_TF;
            continue;
        }
        if (vector == PF && repairs++ < 4 && one_in(2)) {
            repair_pages();
            continue;
        }
        break;
    }
    if (vector == EXIT) {
        check(regs.rip == entry + code_len + 2,
              "%s in mode %d has %d bytes", what, op->mode, code_len);
    } else {
        check(regs.rip >= entry && regs.rip <= entry + code_len,
              "%s in mode %d stops where it is", what, op->mode);
    }
}

static void stop_ap(void)
{
    if (has_ap) {
        __atomic_store_n(&stopping, 1, __ATOMIC_SEQ_CST);
        while (!__atomic_load_n(&stopped, __ATOMIC_SEQ_CST)) {
            asm volatile("pause");
        }
    }
}

/* It is halted; an NMI may come just before that, so there are several. */
static void resume_ap(void)
{
    if (has_ap && ap_runs) {
        __atomic_store_n(&stopping, 0, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&stopped, __ATOMIC_SEQ_CST)) {
            APIC(APIC_ICR + 16) = 1 << 24;
            APIC(APIC_ICR) = ICR_NMI;
            for (int i = 0; i < 1000; i++) {
                asm volatile("pause");
            }
        }
    }
}

/*
 * Addresses are physical then, so LWP writes where it is told to: it may have
 * a tame LWPCB only.  There are no NMIs, which would find no handler.
 */
static void run_outside(Op *op)
{
    static const Mode modes[] = { PROTECTED, V86, REAL };
    unsigned vector, done = op->mode == MV86 ? GP : EXIT;
    uint64_t cr4 = read_cr4();
    LwpCb c;

    stop_ap();
    APIC(APIC_LVTPC) = LVT_MASKED;
    if (has_lwp) {
        wrmsr(MSR_LWP_CBADDR, 0);
    }
    lwp_pages |= (1u << CODE_PAGE) - 1;
    for (int i = 0; i < 2; i++) {
        make_cb(&c, (uintptr_t)ram[RING], true);
        c.size &= 0xffff;
        poke(ap_cb[i], &c, sizeof(c));
        allow(WINDOW + ap_cb[i], lwp_cb_size(), true);
    }
    allow(ADDR(RING), RING_PAGES * PAGE, true);
    for (int i = 0; i < 5; i++) {
        legacy_regs[i] = one_in(4) ? 0 : (uintptr_t)&ram[0][ap_cb[below(2)]];
    }
    memcpy((void *)CODE_ADDR, code, code_len + 2);
    set_segment(CODE16, 0, 0xffff, ACC_CODE, SEG_16);
    vector = run_legacy(modes[op->mode - MPROTECTED]);
    if (has_lwp) {
        wrmsr(MSR_LWP_CBADDR, 0);
    }
    write_cr4(cr4);
    set_segment(CODE16, ADDR(CODE_PAGE), 0xffff, ACC_CODE, SEG_16);
    check((op->vectors & ~BIT(EXIT)) >> vector & 1 ||
          (op->vectors & BIT(EXIT) && vector == done),
          "%s in mode %d raises %d", what, op->mode, (int)vector);
    check(vector != UD || legacy_ip < CODE_ADDR + code_len ||
          op->mode == MREAL, "%s in mode %d stops where it is", what, op->mode);
    resume_ap();
}

/* --- rounds -------------------------------------------------------------- */

static void clear_msr(uint32_t msr)
{
    uint64_t vector = 0;

    /* Whether it is there depends on the model. */
    set_up(CODE64, ADDR(CODE_PAGE));
    regs.rcx = msr;
    regs.rax = regs.rdx = 0;
    memcpy(code, (uint8_t[]) { 0x0f, 0x30, 0xcd, EXIT }, 4);
    vector = run_code();
    check(vector == EXIT || vector == GP, "MSR %x can be cleared", msr);
}

static void start_round(void)
{
    uint32_t pages = 0;

    random0.state = seed * 0x9e3779b97f4a7c15ull ^ (iteration / ROUND) << 20;
    rnd();
    what = "the start of a round";
    code_len = 0;
    write_pte(CODE_PAGE, pte_of(CODE_PAGE, PTE_P | PTE_U));
    flush_tlb();
    write_cr0(read_cr0() & ~CR0_TS);
    write_cr4((read_cr4() | osxsave) & ~CR4_PCE);
    if (has_lwp) {
        wrmsr(MSR_LWP_CBADDR, 0);
        wrmsr(MSR_LWP_CFG, random_msr_value(MSR_LWP_CFG) &
              (0xffff00000000 | cpuid_reg(0x8000001c, 0, 3)));
        xsetbv0(one_in(16) ? 3 : 3 | LWP_XSTATE);
    }
    APIC(APIC_LVTPC) = LVT_MASKED | PMI;
    wrmsr(MSR_DEBUGCTL, 0);
    if (is_intel) {
        clear_msr(MSR_LBR_CTL);
        clear_msr(MSR_LBR_SELECT);
        clear_msr(MSR_GLOBAL_CTRL);
        clear_msr(MSR_MISC_FEATURES);
        clear_msr(MSR_FIXED_CTR_CTRL);
        for (int i = 0; i < 8; i++) {
            clear_msr(MSR_EVTSEL(i));
        }
    } else {
        clear_msr(MSR_AMD_SELECT + 1);
        for (int i = 0; i < 6; i++) {
            clear_msr(i < 4 ? MSR_K7_EVTSEL(i) : MSR_PERF_CTL(i));
        }
    }
    write_cr4(read_cr4() | (one_in(2) ? CR4_PCE : 0));
    if (one_in(32)) {
        write_cr4(read_cr4() & ~CR4_OSXSAVE);
    }

    nallowed = 0;
    lwp_pages = 0;
    for (int i = 0; i < 2; i++) {
        LwpCb c;

        ap_cb[i] = CBS * PAGE + below(2 * PAGE / 64 - 8) * 64;
        make_cb(&c, ADDR(RING), false);
        memcpy(&ram[0][ap_cb[i]], &c, sizeof(c));
        /* The second processor writes to it. */
        allow(WINDOW + ap_cb[i], sizeof(c), false);
    }
    memcpy(shadow, ram, sizeof(shadow));
    trace_at = TRACE * PAGE +
               (one_in(4) ? PAGE - below(32) : below(PAGE / 8) * 8);
    make_trace_area();
    for (int i = TRACE; i < ALL_PAGES; i++) {
        write_trace_pte(i, rnd());
    }
    if (has_ds) {
        wrmsr(MSR_DS_AREA, WINDOW + trace_at);
    }
    for (int i = 0; i < CODE_PAGE; i++) {
        write_pte(i, pte_of(i, random_bits(&random0)));
        if (one_in(16)) {
            /* ROM, or nothing at all */
            write_pte(i, (one_in(2) ? 0xf0000 : 0xfe000000) |
                      (random_bits(&random0) & ~(uint64_t)PTE_W));
        }
        pages |= one_in(4) << i;
    }
    flush_tlb();
    ap_pages = pages;
    ap_seed = rnd();
    ap_runs = one_in(4);
}

/* Counter 0 overflows soon, in the code or in the kernel. */
static void arm_counter(void)
{
    static const uint32_t lvtpcs[] = { PMI, PMI, LVT_NMI, LVT_SMI };
    static const uint32_t rows[] = {
        EVTSEL_USR, EVTSEL_OS, EVTSEL_USR | EVTSEL_OS
    };
    uint32_t select = EVTSEL_EN | EVTSEL_INT | 0xc0 | PICK(rows);
    uint64_t left = 1 + below(one_in(2) ? 20 : 2000);

    APIC(APIC_LVTPC) = PICK(lvtpcs);
    if (is_intel) {
        wrmsr(MSR_PMC(0), -left & 0xffffffff);
        wrmsr(MSR_EVTSEL(0), select);
        if (has_global) {
            wrmsr(MSR_GLOBAL_CTRL, rdmsr(MSR_GLOBAL_CTRL) | 1);
        }
    } else {
        wrmsr(MSR_K7_PERFCTR(0), -left & 0xffffffffffff);
        wrmsr(MSR_K7_EVTSEL(0), select);
    }
}

static void iterate(void)
{
    Op op = { };

    op.cpl = one_in(2) ? 3 : 0;
    op.mode = one_in(2) ? M64 : one_in(3) ? M16 : M32;
    if (one_in(64)) {
        op.mode = MPROTECTED + below(3);
        op.cpl = 0;
    }
    if (one_in(8)) {
        LwpCb c;

        make_cb(&c, ADDR(RING), false);
        poke(ap_cb[below(2)], &c, sizeof(c));
    }
    if (one_in(32)) {
        write_cr0(read_cr0() | CR0_TS);
    }
    if (one_in(8)) {
        arm_counter();
    }
    if (one_in(8)) {
        make_trace_area();
        write_trace_pte(TRACE + below(TRACE_PAGES), rnd());
        flush_tlb();
        if (has_ds && one_in(2)) {
            wrmsr(MSR_DEBUGCTL, DEBUGCTL_BTS | (one_in(2) ? 0x100 : 0));
        }
    }
    op.lwp_faults = lwp_faults();
    load_ds(USER_DATA);
    if (op.mode != M64 && one_in(8)) {
        static const uint8_t types[] = {
            ACC_DATA, ACC_DATA, ACC_READ_ONLY, ACC_EXPAND_DOWN
        };

        set_ds(one_in(2) ? 0 : rnd() & 0xfffff000, rnd() & 0xfffff,
               PICK(types), one_in(2) ? SEG_G | SEG_32 : rnd() & 12);
        may(&op, BIT(GP));
    }
    generate(&op);
    if (op.mode < MPROTECTED) {
        run_long(&op);
    } else {
        run_outside(&op);
    }
    load_ds(USER_DATA);
    check_lwp();
}

/* --- the second processor ------------------------------------------------ */

static uint8_t ap_stack[16384] __attribute__((aligned(16)));

static typeof(idt[0]) ap_idt[NMI_VECTOR + 1];

/* Iterations go on, or somebody is told. */
static void watch(void)
{
    static uint64_t last;
    static unsigned second, seconds;
    unsigned now = rtc_second();

    if (last != iteration) {
        last = iteration;
        seconds = 0;
    } else if (now != second) {
        seconds++;
    }
    second = now;
    check(seconds < HANG_SECONDS, "%s ends within %d s", what, HANG_SECONDS);
}

static void send(uint32_t icr)
{
    APIC(APIC_ICR + 16) = 0;
    APIC(APIC_ICR) = icr;
}

static void disturb(Random *r)
{
    unsigned page = next(r) % CODE_PAGE;
    void *c = &ram[0][ap_cb[next(r) % 2]];
    uint32_t head;
    int n;

    switch (next(r) % 18) {
    case 0:
    case 1:
    case 2:
    case 3:
        if (ap_pages >> page & 1) {
            write_pte(page, pte_of(page, random_bits(r)));
        }
        break;
    case 4:
    case 5:
        send(ICR_NMI);
        break;
    case 6:
        send(ICR_SMI);
        break;
    case 7:
        __atomic_store_n((uint32_t *)c + next(r) % (sizeof(LwpCb) / 4), next(r),
                         __ATOMIC_RELAXED);
        break;
    case 8:
        head = __atomic_load_n(&((LwpCb *)c)->head, __ATOMIC_RELAXED);
        __atomic_store_n(&((LwpCb *)c)->tail, head, __ATOMIC_RELAXED);
        break;
    case 9:
        n = next(r) % 4;
        if (trace_at % 8 == 0) {
            store_field(n, random_field(r, n));
        }
        break;
    case 10:
        write_trace_pte(TRACE + next(r) % TRACE_PAGES, next(r));
        break;
    default:
        send(ICR_FIXED | IPI);
        break;
    }
}

void ap_main(void)
{
    TableRegister idtr = { sizeof(ap_idt) - 1, (uintptr_t)ap_idt };
    Random r = { };
    uint64_t started = 0;

    /* It has no TSS, and no other interrupts. */
    memcpy(ap_idt, idt, sizeof(ap_idt));
    ap_idt[NMI_VECTOR].low &= ~(7ull << 32);
    asm volatile("lidt %0" : : "m" (idtr) : "memory");
    __atomic_add_fetch(&ap_starts, 1, __ATOMIC_ACQ_REL);
    for (unsigned n = 0;; n++) {
        if (__atomic_load_n(&stopping, __ATOMIC_SEQ_CST)) {
            __atomic_store_n(&stopped, 1, __ATOMIC_SEQ_CST);
            while (__atomic_load_n(&stopping, __ATOMIC_SEQ_CST)) {
                asm volatile("hlt");
            }
            __atomic_store_n(&stopped, 0, __ATOMIC_SEQ_CST);
        }
        if (started != ap_seed) {
            started = r.state = ap_seed;
        }
        disturb(&r);
        if (n % 1024 == 0) {
            watch();
        }
        for (int i = next(&r) % 512; i; i--) {
            asm volatile("pause");
        }
    }
}

static void start_second(void)
{
    out8(0x70, 0x5f);                   /* processors - 1, from QEMU */
    has_ap = in8(0x71) > 0;
    if (has_ap) {
        start_ap64(1, ap_stack + sizeof(ap_stack));
    }
}

/* --- the program --------------------------------------------------------- */

/* The kernel's command line, by QEMU's fw_cfg (docs/specs/fw_cfg.rst) */
static void read_arguments(void)
{
    enum { CMDLINE_SIZE = 0x14, CMDLINE_DATA = 0x15 };
    uint64_t *const args[] = { &seed, &iterations, &first };
    uint64_t *arg = NULL;
    uint32_t size = 0;
    int n = 0;

    asm volatile("outw %0, %1" : : "a" ((uint16_t)CMDLINE_SIZE),
                 "d" ((uint16_t)0x510));
    for (int i = 0; i < 4; i++) {
        size |= in8(0x511) << 8 * i;
    }
    asm volatile("outw %0, %1" : : "a" ((uint16_t)CMDLINE_DATA),
                 "d" ((uint16_t)0x510));
    while (size--) {
        unsigned c = in8(0x511) - '0';

        if (c > 9) {
            arg = NULL;
        } else if (arg || n < ARRAY_SIZE(args)) {
            if (!arg) {
                arg = args[n++];
                *arg = 0;
            }
            *arg = *arg * 10 + c;
        }
    }
}

int main(void)
{
    uint64_t end;

    seed = 1;
    iterations = 1000;
    read_arguments();
    what = "the start";
    kernel_init();
    expect_none();
    hide_kernel(true);
    has_lwp = cpuid_reg(0x80000001, 0, 2) & 1u << 15;
    is_intel = cpuid_reg(0, 0, 2) == 0x6c65746e;        /* "ntel" */
    has_global = is_intel && (cpuid_reg(10, 0, 0) & 0xff) >= 2;
    osxsave = read_cr4() & CR4_OSXSAVE;
    /* In 12 bytes less than an address could be overwritten. */
    has_ds = (cpuid_reg(1, 0, 3) >> 21 & 1) && (cpuid_reg(1, 0, 2) & 4);
    set_handler(NMI_VECTOR, on_nmi);
    idt[NMI_VECTOR].low = (idt[NMI_VECTOR].low & ~(7ull << 32)) | 2ull << 32;
    *(uint64_t *)&tss[11] = (uintptr_t)(nmi_stack + sizeof(nmi_stack));
    set_segment(CODE16, ADDR(CODE_PAGE), 0xffff, ACC_CODE, SEG_16);
    set_segment(USER_CODE16, ADDR(CODE_PAGE), 0xffff, ACC_CODE | ACC_USER,
                SEG_16);
    set_smi_code(LABEL(smi_code), LABEL(smi_code_end));
    apic_init(LVT_MASKED);
    start_second();
    legacy_init();

    end = first + iterations;
    for (iteration = first / ROUND * ROUND; iteration < end; iteration++) {
        if (iteration % ROUND == 0) {
            stop_ap();
            if (iteration > first) {
                check_memory();
            }
            start_round();
            resume_ap();
        }
        iterate();
    }
    stop_ap();
    check_memory();
    ml_printf("LWP enabled after %ld; %ld #UD, %ld #GP, %ld #PF, %ld PMIs, "
              "%ld from LWP, %d NMIs\n", enabled, seen[UD], seen[GP],
              seen[PF], seen[PMI], seen[LWP_VECTOR], nmis);
    report(iterations < 10000 ||
           (seen[UD] && seen[GP] && seen[PF] && seen[PMI] && nmis &&
            (!has_lwp || (enabled && seen[LWP_VECTOR]))),
           "all has come that was to come");
    report(true, "%ld iterations from %ld with seed %ld", iterations, first,
           seed);
    return report_summary();
}
