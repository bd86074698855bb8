/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * PEBS: when a counter that has overflown writes a record, what is in it, the
 * interrupt of the threshold, and where records are dropped.
 *
 * Runs on any processor that may have PEBS, with records of its format.  The
 * output is the same with -icount shift=0 and with one-insn-per-tb=on.
 */

#include "pmu-kernel.h"
#include "kernel-legacy.h"
#include "kernel-svm.h"

#define MSR_PEBS_ENABLE         0x3f1
#define MSR_PEBS_DATA_CFG       0x3f2
#define MSR_LOAD_LATENCY        0x3f6
#define MSR_DS_AREA             0x600
#define MISC_NO_PEBS            (1u << 12)
#define STATUS_OVF_BUF          (1ull << 62)
#define EVTSEL_ADAPTIVE         (1ull << 34)
#define FLAG_ZF                 (1u << 6)

enum { DB = 1, NMI = 2, VECTOR = 0x40, INSNS = 0xc0, BRANCHES = 0xc4 };
enum { CFG_MEMORY = 1, CFG_GPRS = 2, CFG_XMM = 4, CFG_LBR = 8 };
enum { TR = 1 << 6, BTS = 1 << 7, OFF_OS = 1 << 9 };

/* Page 0 of the window has the area, those behind it the buffer. */
#define AREA_ADDR               WINDOW
#define BUFFER_ADDR             (WINDOW + PAGE)

static unsigned format, size, counters;     /* of records; with PEBS */
static bool adaptive;

/* --- area and buffer ------------------------------------------------------ */

static uint8_t *ram_at(unsigned offset)
{
    uint8_t *ram = window_ram[0];

    asm("" : "+r" (ram));       /* It does not end with this page. */
    return ram + offset;
}

static uint64_t get(uint64_t addr)
{
    uint64_t val;

    memcpy(&val, ram_at(addr - WINDOW), sizeof(val));
    return val;
}

static void put(uint64_t addr, uint64_t val)
{
    memcpy(ram_at(addr - WINDOW), &val, sizeof(val));
}

/* Counters begin again @reset + 1 events before a record. */
static void set_area(uint64_t base, unsigned bytes, unsigned threshold,
                     unsigned reset)
{
    for (int i = 0; i < WINDOW_PAGES; i++) {
        set_pte(i, PTE_P | PTE_W);
    }
    memset(window_ram, 0xaa, sizeof(window_ram));
    put(AREA_ADDR + 0x20, base);
    put(AREA_ADDR + 0x28, base);
    put(AREA_ADDR + 0x30, base + bytes);
    put(AREA_ADDR + 0x38, base + threshold);
    for (int n = 0; n < 11; n++) {
        put(AREA_ADDR + 0x40 + 8 * n, -(uint64_t)reset);
    }
    wrmsr(MSR_DS_AREA, AREA_ADDR);
}

static void set_records(unsigned n, unsigned threshold, unsigned reset)
{
    set_area(BUFFER_ADDR, n * size, threshold * size, reset);
}

static unsigned stored(void)
{
    return (get(AREA_ADDR + 0x28) - get(AREA_ADDR + 0x20)) / size;
}

static uint64_t word(unsigned n, unsigned offset)
{
    return get(get(AREA_ADDR + 0x20) + n * size + offset);
}

/* Fields, of adaptive records with all groups but memory, too */
static uint64_t rax_of(unsigned n)
{
    return word(n, format < 4 ? 0x10 : 32 + 16);
}

static uint64_t next_of(unsigned n)
{
    return word(n, format < 4 ? 8 : 32 + 8);
}

static uint64_t flags_of(unsigned n)
{
    return word(n, format < 4 ? 0 : 32);
}

static uint64_t ip_of(unsigned n)
{
    return word(n, format < 4 ? 0xb0 : 8);
}

static uint64_t status_of(unsigned n)
{
    return word(n, format < 4 ? 0x90 : 16);
}

static bool has_ip(void)
{
    return format >= 2;
}

/* --- programs ------------------------------------------------------------- */

#define INC_SIZE    3
#define INCS        60

/* RAX is 0 first. */
CODE(incs, ".rept 60\n inc %rax\n .endr")
CODE(loop, "1: inc %rax\n nop\n jmp 1b")

static void select(unsigned n, uint64_t event, uint64_t left)
{
    wrmsr(MSR_EVTSEL(n), event | EVTSEL_EN |
          (adaptive ? EVTSEL_ADAPTIVE : 0));
    wrmsr(MSR_PMC(n), -left);
}

/* Run @fn at CPL 3 with counters @enable, as far as they have a register. */
static unsigned sampled(const void *fn, uint64_t enable, uint64_t pebs,
                        uint32_t flags)
{
    set_up(USER_CODE64, (uintptr_t)fn);
    regs.rflags |= flags;
    regs.rax = 0;
    regs.rbx = 0x1111, regs.rcx = 0x2222, regs.rdx = 0x3333;
    regs.rsi = 0x4444, regs.rdi = 0x5555, regs.rbp = 0x6666;
    regs.r8 = 0x8888, regs.r15 = 0xffff;
    wrmsr(MSR_PEBS_ENABLE, pebs);
    wrmsr(MSR_GLOBAL_CTRL, enable);
    enter_regs();
    wrmsr(MSR_GLOBAL_CTRL, 0);
    wrmsr(MSR_PEBS_ENABLE, 0);
    return regs.vector;
}

static uint64_t take_status(void)
{
    uint64_t status = rdmsr(MSR_GLOBAL_STATUS);

    wrmsr(MSR_GLOBAL_STATUS_RESET, status);
    return status;
}

/* What INC number @inc leaves */
static bool is_inc(unsigned n, unsigned inc)
{
    uint64_t next = (uintptr_t)incs + INC_SIZE * inc;

    return rax_of(n) == inc && next_of(n) == next &&
           (!has_ip() || ip_of(n) == next - INC_SIZE);
}

/* --- tests ---------------------------------------------------------------- */

static void test_distance(void)
{
    bool ok = true;

    for (unsigned left = 1; left < 50; left++) {
        set_records(4, 4, 1000);
        select(0, INSNS | EVTSEL_USR, left);
        ok &= sampled(incs, 1, 1, 0) == EXIT && stored() == 1 &&
              is_inc(0, left + 1) && take_status() == 0;
    }
    report(ok, "the instruction behind an overflow writes the record");
    ok = true;
    for (unsigned reset = 0; reset < 20; reset++) {
        unsigned n = reset ? (INCS - 2) / (reset + 1) + 1 : 1;

        set_records(40, 50, reset);
        select(0, INSNS | EVTSEL_USR, 1);
        ok &= sampled(incs, 1, 1, 0) == EXIT && stored() >= n &&
              stored() <= n + 1;
        for (unsigned i = 0; i < n; i++) {
            ok &= is_inc(i, 2 + i * (reset + 1));
        }
        take_status();
    }
    report(ok, "counters are loaded with their reset values");
}

static void test_fields(void)
{
    bool ok;

    set_records(4, 4, 1000);
    select(0, INSNS | EVTSEL_USR, 9);
    sampled(incs, 1, 1, FLAG_ZF);
    if (format < 4) {
        ok = word(0, 0x18) == 0x1111 && word(0, 0x20) == 0x2222 &&
             word(0, 0x28) == 0x3333 && word(0, 0x30) == 0x4444 &&
             word(0, 0x38) == 0x5555 && word(0, 0x40) == 0x6666 &&
             word(0, 0x48) == regs.rsp && word(0, 0x50) == 0x8888 &&
             word(0, 0x88) == 0xffff;
    } else {
        ok = word(0, 56) == 0x2222 && word(0, 64) == 0x3333 &&
             word(0, 72) == 0x1111 && word(0, 80) == regs.rsp &&
             word(0, 88) == 0x6666 && word(0, 96) == 0x4444 &&
             word(0, 104) == 0x5555 && word(0, 112) == 0x8888 &&
             word(0, 168) == 0xffff;
    }
    report(ok, "registers");
    /* PF of 10 is set. */
    report((flags_of(0) & 0x8d5) == 4 && (flags_of(0) & 2), "flags");
    if (format >= 1) {
        report(status_of(0) == 1, "the counter that it is of");
    }
    if (format == 3 || format == 4) {
        uint64_t before, tsc;

        set_records(4, 4, 1000);
        select(0, INSNS | EVTSEL_USR, 9);
        asm volatile("rdtsc" : "=a" (before), "=d" (tsc));
        before = (uint32_t)before | tsc << 32;
        sampled(incs, 1, 1, 0);
        tsc = word(0, format == 3 ? 0xc0 : 24) - before;
        report(tsc < 1ull << 40, "the time");
    }
}

static void test_branches(void)
{
    const uint64_t jmp = (uintptr_t)loop + 4;
    bool ok = true;

    if (format == 0) {
        return;                 /* Not one of its events */
    }
    for (unsigned left = 1; left < 20; left++) {
        APIC(APIC_LVTPC) = LVT_NMI;
        set_records(10, 1, 5);
        select(0, BRANCHES | EVTSEL_USR, left);
        ok &= sampled(loop, 1, 1, 0) == NMI && stored() == 1 &&
              rax_of(0) == left + 1 && next_of(0) == (uintptr_t)loop &&
              regs.rip == (uintptr_t)loop && regs.rax == left + 1 &&
              (!has_ip() || ip_of(0) == jmp) &&
              take_status() == STATUS_OVF_BUF;
    }
    report(ok, "of branches: the branch, where it goes, and a PMI there");
    APIC(APIC_LVTPC) = LVT_MASKED;
}

/* The branch trace store's record is over the other one. */
static void test_bts(void)
{
    const uint64_t record = BUFFER_ADDR + 48;

    if (format == 0) {
        return;
    }
    APIC(APIC_LVTPC) = LVT_NMI;
    set_area(record, size, size, 1000);
    put(AREA_ADDR, BUFFER_ADDR);
    put(AREA_ADDR + 8, BUFFER_ADDR);
    put(AREA_ADDR + 16, BUFFER_ADDR + 240);
    select(0, BRANCHES | EVTSEL_USR, 1);
    wrmsr(MSR_DEBUGCTL, TR | BTS | OFF_OS);
    sampled(loop, 1, 1, 0);
    wrmsr(MSR_DEBUGCTL, 0);
    /* IRET is the first one. */
    report(regs.vector == NMI && stored() == 1 &&
           get(AREA_ADDR + 8) == record + 24 &&
           get(record) == (uintptr_t)loop + 4 &&
           get(record + 8) == (uintptr_t)loop &&
           (get(record + 16) & ~0x10ull) == 0 &&
           (format == 4 || word(0, 0x18) == 0x1111),
           "a record of PEBS comes before that of BTS");
    APIC(APIC_LVTPC) = LVT_MASKED;
    take_status();
}

static void test_threshold(void)
{
    bool ok = true;

    for (unsigned k = 1; k < 6; k++) {
        APIC(APIC_LVTPC) = LVT_NMI;
        set_records(6, k, 3);
        select(0, INSNS | EVTSEL_USR, 1);
        ok &= sampled(incs, 1, 1, 0) == NMI && stored() == k &&
              regs.rip == next_of(k - 1) && regs.rax == rax_of(k - 1) &&
              take_status() == STATUS_OVF_BUF &&
              APIC(APIC_LVTPC) == (LVT_MASKED | LVT_NMI);
    }
    report(ok, "a PMI comes behind the record that reaches the threshold");
    APIC(APIC_LVTPC) = VECTOR;
    set_records(6, 2, 3);
    select(0, INSNS | EVTSEL_USR, 1);
    report(sampled(incs, 1, 1, FLAG_IF) == VECTOR && stored() == 2 &&
           regs.rip == next_of(1), "a fixed vector");
    APIC(APIC_EOI) = 0;
    take_status();

    APIC(APIC_LVTPC) = LVT_NMI;
    set_records(3, 4, 1);
    select(0, INSNS | EVTSEL_USR | EVTSEL_INT, 1);
    report(sampled(incs, 1, 1, 0) == EXIT && stored() == 3 &&
           !(take_status() & STATUS_OVF_BUF),
           "a full buffer drops records; EVTSEL.INT has no effect");
    set_area(BUFFER_ADDR, 2 * size - 1, 4 * size, 1);
    select(0, INSNS | EVTSEL_USR, 1);
    sampled(incs, 1, 1, 0);
    take_status();
    report(stored() == 1 && get(BUFFER_ADDR + size) == 0xaaaaaaaaaaaaaaaa,
           "there is no room for a record less a byte");

    for (int version = 2; version <= 4; version += 2) {
        bool frozen = (cpuid_reg(0xa, 0, 0) & 0xff) >= 4;

        if ((version == 4) != frozen) {
            continue;
        }
        APIC(APIC_LVTPC) = LVT_NMI;
        set_records(3, 1, 1);
        select(0, INSNS | EVTSEL_USR, 1);
        wrmsr(MSR_DEBUGCTL, FREEZE_ON_PMI);
        set_up(USER_CODE64, (uintptr_t)incs);
        wrmsr(MSR_PEBS_ENABLE, 1);
        wrmsr(MSR_GLOBAL_CTRL, 1);
        enter_regs();
        ok = regs.vector == NMI && stored() == 1 &&
             (frozen ? take_status() >> 59 & 1 : !rdmsr(MSR_GLOBAL_CTRL));
        wrmsr(MSR_DEBUGCTL, 0);
        wrmsr(MSR_GLOBAL_CTRL, 0);
        wrmsr(MSR_PEBS_ENABLE, 0);
        take_status();
        report(ok, "it freezes counters");
    }
    APIC(APIC_LVTPC) = LVT_MASKED;
}

static void test_enable(void)
{
    APIC(APIC_LVTPC) = LVT_NMI;
    set_records(3, 1, 1);
    select(0, INSNS | EVTSEL_USR | EVTSEL_INT, 5);
    report(sampled(incs, 1, 0, 0) == NMI && stored() == 0 && regs.rax == 5 &&
           take_status() == 1, "an overflow without PEBS is as ever");
    APIC(APIC_LVTPC) = LVT_MASKED;

    /* All of them, and INT EXIT does not count. */
    set_records(3, 4, 1000);
    select(0, INSNS | EVTSEL_USR, INCS + 1);
    sampled(incs, 1, 1, 0);
    if (rdmsr(MSR_GLOBAL_STATUS) == 1) {
        sampled(incs, 1, 0, 0);
        report(stored() == 0, "without PEBS_ENABLE, nothing is written");
        sampled(incs, 1, 1, 0);
        report(stored() == 1 && is_inc(0, 1),
               "with it, by the next event, whenever that is");
    } else {
        report(false, "INT is the last instruction");
    }
    take_status();
    select(0, INSNS | EVTSEL_USR, INCS + 1);
    sampled(incs, 1, 1, 0);
    set_records(3, 4, 1000);
    select(0, INSNS | EVTSEL_USR, 1000);
    sampled(incs, 1, 1, 0);
    report(stored() == 0, "a counter that is written begins anew");
    take_status();
}

static void test_several(void)
{
    bool ok = true, same_insn = true;
    unsigned all = (1u << counters) - 1;

    for (unsigned n = 0; n < counters; n++) {
        set_records(10, 11, 1000);
        select(n, INSNS | EVTSEL_USR, 7);
        sampled(incs, 1u << n, 1u << n, 0);
        ok &= stored() == 1 && is_inc(0, 8) && take_status() == 0 &&
              (!format || status_of(0) == 1u << n);
    }
    report(ok, "each counter");
    set_records(10, 11, 1000);
    for (unsigned n = 0; n < counters; n++) {
        select(n, INSNS | EVTSEL_USR, 7);
    }
    sampled(incs, all, all, 0);
    same_insn = stored() == counters && take_status() == 0;
    for (unsigned n = 0; n < counters && format; n++) {
        same_insn &= is_inc(n, 8) && status_of(n) == 1u << n;
    }
    report(same_insn, "all at the same instruction: a record each");
    for (unsigned n = 0; n < counters; n++) {
        wrmsr(MSR_EVTSEL(n), 0);
    }
}

/* --- adaptive records ----------------------------------------------------- */

static unsigned size_of(unsigned cfg, unsigned entries)
{
    return 32 + (cfg & CFG_MEMORY ? 32 : 0) + (cfg & CFG_GPRS ? 144 : 0) +
           (cfg & CFG_XMM ? 256 : 0) + (cfg & CFG_LBR ? 24 * entries : 0);
}

#define MSR_LBR_SELECT          0x1c8
#define MSR_LBR_TOS             0x1c9
#define MSR_LBR_CTL             0x14ce
#define INFO_CYCLES             3ull    /* of loop, between two branches */
#define INFO_JMP                (2ull << 56)    /* where there are types */
#define INFO_VALID              (1ull << 60)

/*
 * The LBRs of a record, the newest first: FROM and TO are addresses alone, and
 * INFO has the cycles (SDM 17.10.1 of what Ice Lake has, 17.7 of Tremont), as
 * the registers have it.
 */
static void test_lbr(void)
{
    bool arch = cpuid_reg(7, 0, 3) >> 19 & 1, same = true, layout = true;
    uint64_t info = INFO_CYCLES | (arch ? INFO_VALID | INFO_JMP : 0);
    const unsigned at = 32, jumps = 40;

    size = size_of(CFG_LBR, 32);
    wrmsr(MSR_PEBS_DATA_CFG, CFG_LBR | 31ull << 24);
    APIC(APIC_LVTPC) = LVT_NMI;
    set_records(10, 1, 1000);
    select(0, BRANCHES | EVTSEL_USR, jumps);
    if (arch) {
        wrmsr(MSR_LBR_CTL, 0x7f0005);
    } else {
        wrmsr(MSR_LBR_SELECT, 1);       /* not of CPL 0 */
        wrmsr(MSR_DEBUGCTL, 1);
    }
    sampled(loop, 1, 1, 0);
    wrmsr(arch ? MSR_LBR_CTL : MSR_DEBUGCTL, 0);
    for (unsigned i = 0; i < 32; i++) {
        unsigned n = arch ? i : (rdmsr(MSR_LBR_TOS) - i) % 32;
        unsigned word_at = at + 24 * i;

        same &= word(0, word_at) == rdmsr((arch ? 0x1500 : 0x680) + n) &&
                word(0, word_at + 8) == rdmsr((arch ? 0x1600 : 0x6c0) + n) &&
                word(0, word_at + 16) == rdmsr((arch ? 0x1200 : 0xdc0) + n);
        layout &= word(0, word_at) == (uintptr_t)loop + 4 &&
                  word(0, word_at + 8) == (uintptr_t)loop &&
                  word(0, word_at + 16) == info;
    }
    report(regs.vector == NMI && stored() == 1 && layout,
           "LBRs in a record: addresses, and cycles in INFO");
    report(same, "they are what the registers have");
    take_status();
    if (!arch) {
        wrmsr(MSR_LBR_SELECT, 0);
    }
    APIC(APIC_LVTPC) = LVT_MASKED;
}

static void test_adaptive(void)
{
    static const uint64_t xmm[4] = { 1, 2, 0x3333333333333333, 4 };
    bool ok = true, content = true, fixed = true;
    unsigned before = size;

    asm volatile("movups %0, %%xmm0\n movups %1, %%xmm15" : :
                 "m" (*(const char (*)[16])xmm),
                 "m" (*(const char (*)[16])(xmm + 2)));
    for (unsigned cfg = 0; cfg < 16; cfg++) {
        uint64_t data = cfg | (cfg & CFG_LBR ? 31ull << 24 : 0);
        unsigned at = 32 + (cfg & CFG_MEMORY ? 32 : 0);

        size = size_of(cfg, 32);
        wrmsr(MSR_PEBS_DATA_CFG, data);
        set_records(3, 4, 1000);
        select(0, INSNS | EVTSEL_USR, 7);
        sampled(incs, 1, 1, 0);
        ok &= stored() == 1 && word(0, 0) == ((uint64_t)size << 48 | data) &&
              ip_of(0) == (uintptr_t)incs + 7 * INC_SIZE && status_of(0) == 1;
        if (cfg & CFG_GPRS) {
            content &= word(0, at + 16) == 8;
            at += 144;
        }
        if (cfg & CFG_XMM) {
            content &= word(0, at) == 1 && word(0, at + 8) == 2 &&
                       word(0, at + 240) == xmm[2] && word(0, at + 248) == 4;
            at += 256;
        }
        for (unsigned i = 0; (cfg & CFG_LBR) && i < 96; i++) {
            content &= word(0, at + 8 * i) == 0;
        }
        size = 32;
        for (int i = 0; i < 3; i++) {
            uint64_t bit = GLOBAL_FIXED(i);

            set_records(3, 4, 1000);
            wrmsr(MSR_FIXED_CTR_CTRL, (uint64_t)FIXED_USR << 4 * i);
            wrmsr(MSR_FIXED_CTR(i), -7);
            sampled(incs, bit, bit, 0);
            fixed &= stored() == 1 && word(0, 0) == 32ull << 48 &&
                     ip_of(0) == (uintptr_t)incs + 7 * INC_SIZE &&
                     status_of(0) == bit && take_status() == 0;
        }
        wrmsr(MSR_FIXED_CTR_CTRL, 0);
    }
    report(ok, "each set of groups");
    report(content, "what is in them");
    report(fixed, "fixed counters, and records without groups");
    test_lbr();
    report(at_cpl(0, wrmsr(MSR_PEBS_DATA_CFG, 16)) == GP &&
           at_cpl(0, wrmsr(MSR_PEBS_DATA_CFG, 1ull << 32)) == GP,
           "other bits of PEBS_DATA_CFG are reserved");
    size = before;
    wrmsr(MSR_PEBS_DATA_CFG, CFG_GPRS);
}

/* --- data ----------------------------------------------------------------- */

enum { DRAM_LATENCY = 200, DEVICE_LATENCY = 400, L1_LATENCY = 4 };
enum { L1 = 1, DEVICE = 15, STLB_MISS = 1 << 4, LOCKED = 1 << 5 };
enum { LOADS = 0x81d0, STORES = 0x82d0, MISSES = 0x08d1, SPLIT = 0x42d0,
       STORE = 0x02cd, LOCKS = 0x21d0 };
#define PS_EN                   (1ull << 63)

uint8_t sample_data[256] __attribute__((aligned(128)));

#define DATA_LOOP(name, insns) \
    CODE(name, "lea sample_data(%rip), %rsi\n mov $30000, %edx\n" \
               "1: " insns "\n dec %edx\n jnz 1b")

DATA_LOOP(hits, "mov (%rsi), %rax")
DATA_LOOP(many_hits, ".rept 20\n mov (%rsi), %rax\n .endr")
DATA_LOOP(misses, "clflush (%rsi)\n mov (%rsi), %rax")
DATA_LOOP(behind, "mov %rax, (%rsi)\n mov 8(%rsi), %rax")
DATA_LOOP(updates, "lock incl (%rsi)")
DATA_LOOP(splits, "mov 60(%rsi), %rax\n mov %rax, 61(%rsi)")
DATA_LOOP(stores, "clflush (%rsi)\n mov %rax, (%rsi)")
DATA_LOOP(strings, "lea sample_data(%rip), %rsi\n mov $64, %ecx\n rep lodsb")
/* At CPL 0 */
DATA_LOOP(walks, "mov %cr3, %rax\n mov %rax, %cr3\n mov (%rsi), %rax")
DATA_LOOP(device, "mov $0xfee00080, %esi\n mov (%rsi), %eax")

static bool sample_into_area(void (*fn)(void), int cpl, unsigned n,
                             unsigned event, uint64_t enable)
{
    select(n, event | (cpl ? EVTSEL_USR : EVTSEL_OS), 1);
    set_up(cpl ? USER_CODE64 : CODE64, (uintptr_t)fn);
    wrmsr(MSR_PEBS_ENABLE, enable | 1u << n);
    wrmsr(MSR_GLOBAL_CTRL, 1u << n);
    do {
        enter_regs();
    } while (regs.vector == DB);
    wrmsr(MSR_GLOBAL_CTRL, 0);
    wrmsr(MSR_PEBS_ENABLE, 0);
    wrmsr(MSR_EVTSEL(n), 0);
    take_status();
    return stored();
}

/* Records of @event in counter @n, with what PEBS_ENABLE has, too */
static bool sample(void (*fn)(void), int cpl, unsigned n, unsigned event,
                   uint64_t enable)
{
    set_records(3, 4, 1000);
    return sample_into_area(fn, cpl, n, event, enable);
}

static bool is_golden_cove(void)
{
    return (cpuid_reg(1, 0, 0) & 0xf00f0) == 0x800f0;
}

static bool record_has_data(unsigned record, unsigned offset, uint64_t source,
                            uint64_t latency)
{
    unsigned at = format < 4 ? 0x98 : 32;

    /* The instruction's, too */
    latency |= is_golden_cove() ? latency << 32 : 0;
    return word(record, at) == (uintptr_t)sample_data + offset &&
           word(record, at + 8) == source && word(record, at + 16) == latency;
}

static bool has_data(unsigned offset, uint64_t source, uint64_t latency)
{
    return record_has_data(0, offset, source, latency);
}

/* Every second load that is tagged: some 200 in each run */
static void test_many_hits(unsigned n, unsigned event, uint64_t enable)
{
    unsigned records = 0, good = 0, runs = 0;

    for (; records < 10000 && runs < 100; runs++) {
        set_area(BUFFER_ADDR, 6 * PAGE, 6 * PAGE, 1);
        sample_into_area(many_hits, 3, n, event, enable);
        records += stored();
        for (unsigned i = 0; i < stored(); i++) {
            good += record_has_data(i, 0, L1, L1_LATENCY);
        }
    }
    report(records >= 10000 && good == records,
           "%u hits, %u of which say so, with their address", records, good);
}

static void test_latency(bool nehalem)
{
    const unsigned n = 3, event = nehalem ? 0x100b : 0x01cd;
    const uint64_t enable = format < 4 ? 1ull << (32 + n) : 0;
    const unsigned dram = format < 3 ? 12 : 10, at = format < 4 ? 0x98 : 32;
    uint64_t addr;

    report(at_cpl(3, rdmsr(MSR_LOAD_LATENCY)) == GP &&
           at_cpl(0, wrmsr(MSR_LOAD_LATENCY, 0x10000)) == GP,
           "the threshold has 16 bits, and is not for CPL 3");
    wrmsr(MSR_LOAD_LATENCY, 3);
    report(sample(hits, 3, n, event, enable) && has_data(0, L1, L1_LATENCY),
           "load latency: a hit");
    report(sample(misses, 3, n, event, enable) &&
           has_data(0, dram, DRAM_LATENCY), "a miss");
    /* Such a load is executed twice. */
    asm volatile("mov %0, %%dr0" : : "r" (sample_data));
    asm volatile("mov %0, %%dr7" : : "r" (0xf0401ul));
    report(sample(misses, 3, n, event, enable) &&
           has_data(0, dram, DRAM_LATENCY), "that a debug register watches");
    asm volatile("mov %0, %%dr7" : : "r" (0x400ul));
    if (format == 2) {
        /* This takes seconds, and Haswell is not run in all ways. */
        test_many_hits(n, event, enable);
    }
    report(sample(behind, 3, n, event, enable) && has_data(8, L1, L1_LATENCY),
           "only of loads");
    report(sample(updates, 3, n, event, enable) &&
           has_data(0, nehalem ? L1 : L1 | LOCKED, L1_LATENCY), "with LOCK");
    report(sample(splits, 3, n, event, enable) && has_data(60, L1, L1_LATENCY),
           "from two lines");
    report(sample(walks, 0, n, event, enable) &&
           has_data(0, nehalem ? L1 : L1 | STLB_MISS, L1_LATENCY),
           "in a page that STLB does not have");
    report(sample(device, 0, n, event, enable) && word(0, at) == 0xfee00080 &&
           word(0, at + 8) == DEVICE &&
           (uint32_t)word(0, at + 16) == DEVICE_LATENCY,
           "from a device");
    addr = (sample(strings, 3, n, event, enable), word(0, at));
    report(stored() == 1 && addr >= (uintptr_t)sample_data &&
           addr < (uintptr_t)sample_data + 64, "of string instructions");
    wrmsr(MSR_LOAD_LATENCY, L1_LATENCY);
    report(!sample(hits, 3, n, event, enable), "but not below the threshold");
    wrmsr(MSR_LOAD_LATENCY, DRAM_LATENCY - 1);
    report(sample(misses, 3, n, event, enable), "nor above it");
    wrmsr(MSR_LOAD_LATENCY, DRAM_LATENCY);
    report(!sample(misses, 3, n, event, enable), "which is not counted");
    wrmsr(MSR_LOAD_LATENCY, 3);
    report(!enable || !sample(hits, 3, n, event, 0),
           "PEBS_ENABLE has another bit for it");
}

static void test_data_of_events(void)
{
    const unsigned dram = format < 3 ? 12 : 10, at = format < 4 ? 0x98 : 32;

    report(sample(hits, 3, 0, LOADS, 0) && has_data(0, L1, 0),
           "the address of loads");
    report(sample(misses, 3, 0, MISSES, 0) && has_data(0, dram, 0),
           "of loads that miss");
    report(sample(behind, 3, 0, STORES, 0) && has_data(0, 1, 0), "of stores");
    report(sample(stores, 3, 0, STORES, 0) && has_data(0, 0, 0),
           "of stores that miss");
    report(sample(updates, 3, 0, STORES, 0) && has_data(0, 1 | LOCKED, 0),
           "of those with LOCK");
    report(sample(splits, 3, 0, SPLIT, 0) && has_data(61, 1, 0),
           "of stores to two lines");
    report(sample(hits, 3, 0, INSNS, 0) && word(0, at) == 0 &&
           word(0, at + 8) == 0, "not of instructions");
}

/* Atoms have nothing but the address. */
static void test_addresses(void)
{
    report(sample(hits, 3, 0, LOADS, 0) && has_data(0, 0, 0) &&
           sample(misses, 3, 0, MISSES, 0) && has_data(0, 0, 0),
           "the address of loads");
    report(sample(behind, 3, 0, STORES, 0) && has_data(0, 0, 0) &&
           sample(splits, 3, 0, SPLIT, 0) && has_data(61, 0, 0), "of stores");
    report(sample(updates, 3, 0, LOCKS, 0) && has_data(0, 0, 0),
           "of loads with LOCK");
    report(sample(hits, 3, 0, INSNS, 0) && word(0, 0x98) == 0,
           "not of instructions");
}

static void test_precise_store(void)
{
    report(sample(behind, 3, 3, STORE, PS_EN) && has_data(0, 1, 0),
           "precise store: a hit");
    report(sample(stores, 3, 3, STORE, PS_EN) && has_data(0, 0, 0), "a miss");
    report(sample(updates, 3, 3, STORE, PS_EN) && has_data(0, 1 | LOCKED, 0),
           "with LOCK");
    report(!sample(behind, 3, 3, STORE, 0) &&
           !sample(behind, 3, 0, STORE, PS_EN),
           "only with its bit, and of counter 3");
}

static void test_data(void)
{
    unsigned before = size;
    bool precise_store;

    if (at_cpl(0, rdmsr(MSR_LOAD_LATENCY)) == GP) {
        if (format == 3) {
            test_addresses();
        }
        return;
    }
    precise_store = at_cpl(0, wrmsr(MSR_PEBS_ENABLE, PS_EN)) == EXIT;
    wrmsr(MSR_PEBS_ENABLE, 0);
    if (adaptive) {
        size = 64;
        wrmsr(MSR_PEBS_DATA_CFG, CFG_MEMORY);
    }
    test_latency(format == 1 && !precise_store);
    if (format >= 2) {
        test_data_of_events();
    }
    if (precise_store) {
        test_precise_store();
    }
    if (is_golden_cove()) {
        report(sample(updates, 3, 0, STORE, 0) &&
               has_data(0, L1 | LOCKED, L1_LATENCY),
               "stores and their latency");
        report(sample(stores, 3, 0, STORE, 0) &&
               has_data(0, 10, DRAM_LATENCY), "of those that miss");
        report(!sample(hits, 3, 0, 0x01cd, 0) &&
               !sample(behind, 3, 1, STORE, 0), "each in its counters");
    }
    size = before;
    if (adaptive) {
        wrmsr(MSR_PEBS_DATA_CFG, CFG_GPRS);
    }
}

/* --- where records can be stored ------------------------------------------ */

/* The program runs, and nothing is stored. */
static bool drops(void)
{
    uint64_t index = get(AREA_ADDR + 0x28);
    bool ok;

    select(0, INSNS | EVTSEL_USR, 1);
    ok = sampled(incs, 1, 1, 0) == EXIT && regs.rax == INCS &&
         get(AREA_ADDR + 0x28) == index;
    take_status();
    return ok;
}

static void test_pages(void)
{
    bool ok = true, torn = true;

    for (unsigned offset = PAGE - size - 8; offset < PAGE + 8; offset += 7) {
        set_area(BUFFER_ADDR + offset, size, 2 * size, 1000);
        select(0, INSNS | EVTSEL_USR, 1);
        sampled(incs, 1, 1, 0);
        ok &= stored() == 1 && is_inc(0, 2);
        for (int page = 1; page < 3; page++) {
            unsigned last = offset + size - 1;

            set_area(BUFFER_ADDR + offset, size, 2 * size, 1000);
            set_pte(page, page == 1 ? 0 : PTE_P);
            if (page == (offset / PAGE + 1) || page == (last / PAGE + 1)) {
                torn &= drops();
                for (unsigned i = 0; i < size; i++) {
                    torn &= *ram_at(PAGE + offset + i) == 0xaa;
                }
            }
        }
    }
    report(ok, "records near the end of a page");
    report(torn, "without one of their pages, nothing of them is written");
    set_records(3, 4, 1000);
    set_pte(0, 0);
    ok = drops();
    set_pte(0, PTE_P);
    ok &= drops();
    set_pte(0, PTE_P | PTE_W);
    for (int i = 0; i < 3; i++) {
        static const uint64_t nowhere[] = {
            0xffff800000000000, 0x00007ffffffff000, WINDOW + 0x10000000000
        };

        wrmsr(MSR_DS_AREA, nowhere[i]);
        ok &= drops();
    }
    report(ok, "an area where no memory is");
    set_records(3, 4, 1000);
    set_pte(0, PTE_P | PTE_W);
    hide_kernel(true);
    select(0, INSNS | EVTSEL_USR, 1);
    set_pte(7, PTE_ALL);
    memcpy(window_ram[7], incs, INCS * INC_SIZE + 2);
    sampled((void *)(WINDOW + 7 * PAGE), 1, 1, 0);
    hide_kernel(false);
    report(stored() == 1 && rax_of(0) == 2,
           "CPL 3: the supervisor's pages are written");
    take_status();
}

/* --- nested paging -------------------------------------------------------- */

static Vmcb vmcb __attribute__((aligned(PAGE)));
static uint8_t host_save[PAGE] __attribute__((aligned(PAGE)));
static uint64_t nested_table[4][512] __attribute__((aligned(PAGE)));

static void __attribute__((naked)) guest_incs(void)
{
    asm(".rept 60\n inc %rax\n .endr\n vmmcall");
}

/* The guest has the first GiB as it is, but for a page of the window. */
static void map_nested(unsigned page, uint64_t entry)
{
    const unsigned large = PTE_ALL | 0x80;
    uint64_t addr = (uintptr_t)window_ram[page];

    nested_table[0][0] = (uintptr_t)nested_table[1] | PTE_ALL;
    nested_table[1][0] = (uintptr_t)nested_table[2] | PTE_ALL;
    for (int i = 0; i < 512; i++) {
        nested_table[2][i] = (uint64_t)i << 21 | large;
        nested_table[3][i] = (addr & -(1ul << 21)) + i * PAGE + PTE_ALL;
    }
    nested_table[2][addr >> 21] = (uintptr_t)nested_table[3] | PTE_ALL;
    nested_table[3][addr >> 12 & 511] = entry;
}

/* Whether nothing stops a guest that has an event at its first instruction */
static bool guest_runs(unsigned page, uint64_t entry)
{
    map_nested(page, entry);
    set_records(3, 4, 1000);
    select(0, INSNS | EVTSEL_USR, 1);
    set_vmcb(&vmcb, 3, guest_incs, 0);
    vmcb.nested = true;
    vmcb.nested_cr3 = (uintptr_t)nested_table;
    vmcb.rax = 0;
    wrmsr(MSR_PEBS_ENABLE, 1);
    wrmsr(MSR_GLOBAL_CTRL, 1);
    asm volatile("vmrun %0\n stgi" : : "a" (&vmcb) : "memory", "cc");
    wrmsr(MSR_GLOBAL_CTRL, 0);
    wrmsr(MSR_PEBS_ENABLE, 0);
    take_status();
    return vmcb.exit == EXIT_VMMCALL && vmcb.rax == INCS;
}

static void test_nested(void)
{
    const uint64_t next = (uintptr_t)guest_incs + 2 * INC_SIZE;
    uint64_t efer = rdmsr(MSR_EFER);
    bool ok = true;

    wrmsr(MSR_EFER, efer | EFER_SVME);
    wrmsr(MSR_HSAVE_PA, (uintptr_t)host_save);
    report(guest_runs(1, (uintptr_t)window_ram[5] + PTE_ALL) &&
           stored() == 1 && *ram_at(PAGE) == 0xaa &&
           get(WINDOW + 5 * PAGE + (format < 4 ? 8 : 40)) == next,
           "nested paging says where a guest's records are");
    for (int page = 0; page < 2; page++) {
        uint64_t entry = (uintptr_t)window_ram[page] + PTE_ALL;

        ok &= guest_runs(page, 0) && stored() == 0;
        ok &= guest_runs(page, entry - PTE_W) && stored() == 0;
        ok &= *ram_at(PAGE) == 0xaa;
    }
    report(ok, "a nested fault drops a record, and is none of the guest's");
    wrmsr(MSR_EFER, efer);
}

/* --- other privilege and modes -------------------------------------------- */

static uint8_t flat_area[256] __attribute__((aligned(64)));
static uint8_t flat[32 * PAGE] __attribute__((aligned(PAGE)));

static void test_modes(void)
{
    static const char *const names[MODES] = {
        "protected mode without paging", "v8086 mode", "real mode"
    };
    /* Thirty times INC AX or EAX; int EXIT */
    uint8_t code[32];

    memset(code, 0x40, 30);
    code[30] = 0xcd, code[31] = EXIT;
    for (int mode = 0; mode < MODES; mode++) {
        uint64_t base = (uintptr_t)flat, index, *area = (void *)flat_area;
        uint64_t *record = (void *)flat;
        unsigned rax = format < 4 ? 2 : 6, rip = format < 4 ? 1 : 5;

        memset(flat, 0xaa, sizeof(flat));
        area[4] = area[5] = base;
        area[6] = base + sizeof(flat);
        area[7] = base + 2 * sizeof(flat);
        area[8] = -4;
        wrmsr(MSR_DS_AREA, (uintptr_t)flat_area);
        memcpy((void *)CODE_ADDR, code, sizeof(code));
        select(0, INSNS | EVTSEL_USR | EVTSEL_OS, 4);
        wrmsr(MSR_PEBS_ENABLE, 1);
        wrmsr(MSR_GLOBAL_CTRL, 1);
        run_legacy(mode);
        wrmsr(MSR_GLOBAL_CTRL, 0);
        wrmsr(MSR_PEBS_ENABLE, 0);
        take_status();
        index = area[5];
        for (; (uintptr_t)record + size < index; record += size / 8) {
            /* Of three INCs that follow each other */
            uint64_t next = record[rip] + record[size / 8 + rax] -
                            record[rax];

            if (record[size / 8 + rax] - record[rax] == 5 &&
                record[size / 8 + rip] == next) {
                break;
            }
        }
        report((uintptr_t)record + size < index, "%s", names[mode]);
    }
}

static void test_cpl0(void)
{
    bool ok = true;

    for (unsigned left = 1; left < 60; left++) {
        set_records(9, 10, 30);
        select(0, INSNS | EVTSEL_OS, left);
        set_up(CODE64, (uintptr_t)incs);
        regs.rax = 0;
        wrmsr(MSR_PEBS_ENABLE, 1);
        wrmsr(MSR_GLOBAL_CTRL, 1);
        enter_regs();
        wrmsr(MSR_GLOBAL_CTRL, 0);
        wrmsr(MSR_PEBS_ENABLE, 0);
        ok &= stored() > 1;
        for (unsigned n = 0, in = 0; n < stored(); n++) {
            uint64_t at = next_of(n) - (uintptr_t)incs;

            if (at >= INC_SIZE && at <= INCS * INC_SIZE) {
                ok &= is_inc(n, at / INC_SIZE) && at % INC_SIZE == 0;
                in++;
            }
            ok &= n + 1 < stored() || in;
        }
        take_status();
    }
    report(ok, "CPL 0");
}

/* WRMSR is the event, of which nobody tells where it is: the next one is. */
PLACE(starts_next);

static void test_starts(void)
{
    uint32_t on = 1;

    set_records(3, 4, 1000);
    select(0, INSNS | EVTSEL_USR, INCS + 1);
    sampled(incs, 1, 1, 0);
    wrmsr(MSR_EVTSEL(0), INSNS | EVTSEL_OS | EVTSEL_EN |
          (adaptive ? EVTSEL_ADAPTIVE : 0));
    wrmsr(MSR_PEBS_ENABLE, 1);
    asm volatile("wrmsr\n"
                 "    xor %%eax, %%eax\n"
                 "starts_next:\n"
                 "    wrmsr"
                 : "+a" (on) : "c" (MSR_GLOBAL_CTRL), "d" (0) : "memory");
    wrmsr(MSR_PEBS_ENABLE, 0);
    report(stored() == 1 && next_of(0) == (uintptr_t)starts_next &&
           rax_of(0) == 0, "WRMSR that starts a counter");
    take_status();
}

int main(void)
{
    static const unsigned sizes[] = { 144, 176, 192, 200, 32 + 144 };
    uint64_t caps = 0;

    kernel_init();
    if (cpuid_reg(1, 0, 2) & CPUID_PDCM) {
        caps = rdmsr(MSR_PERF_CAPABILITIES);
    }
    if (rdmsr(MSR_MISC_ENABLE) & MISC_NO_PEBS) {
        report(!(caps & 0x4fc0), "IA32_PERF_CAPABILITIES has nothing of it");
        report(at_cpl(0, rdmsr(MSR_PEBS_ENABLE)) == GP &&
               at_cpl(0, wrmsr(MSR_PEBS_DATA_CFG, 0)) == GP,
               "its registers are not there");
        return report_summary();
    }
    report((caps & 0xc0) == 0xc0 && (caps >> 8 & 15) <= 4,
           "IA32_PERF_CAPABILITIES says that there is PEBS");
    format = caps >> 8 & 15;
    adaptive = caps >> 14 & 1;
    size = sizes[format];
    while (at_cpl(0, wrmsr(MSR_PEBS_ENABLE, 1u << counters)) == EXIT) {
        counters++;
    }
    wrmsr(MSR_PEBS_ENABLE, 0);
    report(counters == (format == 0 ? 1 : !adaptive ? 4 :
                        cpuid_reg(0xa, 0, 0) >> 8 & 0xff),
           "it has %d counters", counters);
    report(at_cpl(3, rdmsr(MSR_PEBS_ENABLE)) == GP, "and is not for CPL 3");
    if (adaptive) {
        wrmsr(MSR_PEBS_DATA_CFG, CFG_GPRS);
    }
    apic_init(LVT_MASKED);
    test_distance();
    test_fields();
    test_branches();
    test_bts();
    test_threshold();
    test_enable();
    test_several();
    test_pages();
    test_cpl0();
    test_starts();
    test_data();
    if (cpuid_reg(0x80000001, 0, 2) & 4) {
        test_nested();
    }
    if (adaptive) {
        test_adaptive();
    }
    legacy_init();
    test_modes();
    return report_summary();
}
