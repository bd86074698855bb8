/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Unit tests of the engine of Processor Trace: its registers; packets against
 * bytes worked out by hand from the manual's tables; the way to memory; and at
 * random, against a parser and models of what decoders do.
 */

#include <string.h>
#include <glib.h>
#include "pt.h"

#define OUTPUT_BASE     0x560
#define OUTPUT_MASK     0x561
#define CTL             0x570
#define STATUS          0x571
#define CR3_MATCH       0x572
#define ADDR(n)         (0x580 + (n))   /* 0A, 0B, 1A, 1B */

#define EN              PT_CTL_TRACE_EN
#define OS              PT_CTL_OS
#define USER            PT_CTL_USER
#define CR3             PT_CTL_CR3_FILTER
#define TOPA            PT_CTL_TOPA
#define TSC             PT_CTL_TSC_EN
#define DISRETC         PT_CTL_DIS_RETC
#define BRANCH          PT_CTL_BRANCH_EN
#define CFG(n, cfg)     ((uint64_t)(cfg) << (32 + 4 * (n)))
#define PSB_FREQ(n)     ((uint64_t)(n) << 24)
#define ALL             (EN | OS | USER | BRANCH)

#define ERROR           (1u << 4)
#define STOPPED         (1u << 5)

#define BUFFER          0x40000u        /* a single range */
#define BUFFER_SIZE     0x10000u
#define MEMORY          0x100000u

#define K               0xffffffff81000000ull
#define U               0x0000000000401000ull
#define CR3_A           0x0000000012345000ull
#define CR3_B           0x000ffffffffff000ull

static PtConfig config;
static PtState state;
static PtPending pending;
static uint8_t memory[MEMORY];
static uint64_t now;
static unsigned reads;
static uint32_t seen;           /* offset up to which output was looked at */
static uint64_t memory_base;    /* of @memory, modulo 4 GiB */

static bool host_read(void *opaque, uint64_t phys, uint64_t *val)
{
    g_assert_true(opaque == memory);
    g_assert_cmphex(phys & 7, ==, 0);
    reads++;
    if (phys > MEMORY - 8) {
        return false;
    }
    memcpy(val, memory + phys, 8);
    *val = GUINT64_FROM_LE(*val);
    return true;
}

static bool host_write(void *opaque, uint64_t phys, const uint8_t *from,
                       uint32_t n)
{
    g_assert_true(opaque == memory);
    g_assert_cmpuint(n, <=, PT_STAGED);
    g_assert_cmpuint(n, >, 0);
    g_assert_cmphex(phys, <, 1ull << 39);
    phys = (phys - memory_base) & UINT32_MAX;
    if (phys >= MEMORY || n > MEMORY - phys) {
        return false;
    }
    memcpy(memory + phys, from, n);
    return true;
}

static uint64_t host_tsc(void *opaque)
{
    g_assert_true(opaque == memory);
    return now;
}

static const PtHost host = { host_read, host_write, host_tsc, memory };
static const Pt pt = { &state, &pending, &config, &host };

static void be(unsigned model)
{
    const PtFlavour *flavour = pt_flavour(PMU_VENDOR_INTEL, 6, model);

    g_assert_nonnull(flavour);
    memset(&config, 0x5a, sizeof(config));
    pt_config_init(&config, flavour);
    config.phys_bits = 39;
    config.va_bits = 48;
    config.cbr = 0x24;
    memset(memory, 0xcc, sizeof(memory));
    memset(&pending, 0x5a, sizeof(pending));
    memset(&state, 0x5a, sizeof(state));
    pt_reset(&pt, false);
    now = 0xff11223344556677ull;
    memory_base = 0;
    reads = 0;
}

static void be_skylake(void)
{
    be(0x5e);
}

static PmuAccess write_msr(uint32_t msr, uint64_t val)
{
    PtState old = state;
    PtPending old_pending = pending;
    PmuAccess access = pt_wrmsr(&pt, msr, val, K);

    if (access != PMU_MSR_OK) {
        g_assert_cmpmem(&state, sizeof(state), &old, sizeof(old));
        g_assert_cmpmem(&pending, sizeof(old_pending), &old_pending,
                        sizeof(old_pending));
    }
    return access;
}

static void wr(uint32_t msr, uint64_t val)
{
    g_assert_cmpint(write_msr(msr, val), ==, PMU_MSR_OK);
}

static void wr_gp(uint32_t msr, uint64_t val)
{
    g_assert_cmpint(write_msr(msr, val), ==, PMU_MSR_GP);
}

static uint64_t rd(uint32_t msr)
{
    uint64_t val = 0xbad;

    g_assert_cmpint(pt_rdmsr(&pt, msr, &val), ==, PMU_MSR_OK);
    return val;
}

static void access_is(uint32_t msr, PmuAccess access)
{
    uint64_t val = 0xbad;

    g_assert_cmpint(pt_rdmsr(&pt, msr, &val), ==, access);
    g_assert_cmphex(val, ==, 0xbad);
    g_assert_cmpint(write_msr(msr, 0), ==, access);
}

static PtPlace kernel(uint64_t ip)
{
    return (PtPlace) { .ip = ip, .cr3 = CR3_A, .os = true, .exec = 1 };
}

static PtPlace user(uint64_t ip)
{
    return (PtPlace) { .ip = ip, .cr3 = CR3_A, .exec = 1 };
}

static void far(PtPlace to)
{
    pt_far(&pt, &to);
}

static void event(uint64_t from, PtPlace to)
{
    pt_event(&pt, from, &to);
}

static void mov_cr3(PtPlace next)
{
    pt_cr3(&pt, &next);
}

static void resume(PtPlace next)
{
    pt_resume(&pt, &next);
}

/* What is in the buffer since the last time */
static void expect_bytes(const uint8_t *bytes, uint32_t n)
{
    pt_settle(&pt);
    g_assert_cmpmem(memory + BUFFER + seen, n, bytes, n);
    g_assert_cmphex(memory[BUFFER + seen + n], ==, 0xcc);
    seen += n;
    g_assert_cmphex(state.output_mask >> 32, ==, seen);
}

#define EXPECT(...)                                     \
    do {                                                \
        static const uint8_t e_[] = { __VA_ARGS__ };    \
                                                        \
        expect_bytes(e_, sizeof(e_));                   \
    } while (0)

static void expect_none(void)
{
    expect_bytes(memory, 0);
}

static void set_up(void)
{
    be_skylake();
    wr(OUTPUT_BASE, BUFFER);
    wr(OUTPUT_MASK, BUFFER_SIZE - 1);
    seen = 0;
}

#define BYTES(...)  __VA_ARGS__
#define P16     BYTES(2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, \
                      2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82)
#define CBR     BYTES(2, 3, 0x24, 0)
#define PSBEND  BYTES(2, 0x23)
#define STOP    BYTES(2, 0x83)
/* CR3[51:5] << 1: CR3 >> 4 */
#define PIP_A   BYTES(2, 0x43, 0x00, 0x45, 0x23, 0x01, 0, 0)
#define PIP_B   BYTES(2, 0x43, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff)

/* Turn it on at @next, and let the first packets go. */
static void start_at(uint64_t ctl, PtPlace next)
{
    wr(CTL, ctl);
    expect_none();
    g_assert_false(pt_packets_wanted(&state));
    resume(next);
    pt_settle(&pt);
    seen = (uint32_t)(state.output_mask >> 32);
    g_assert_false(state.status);
}

static void start(uint64_t ctl, PtPlace next)
{
    set_up();
    start_at(ctl, next);
}

/*
 * Registers
 */

static void test_config(void)
{
    uint32_t regs[4] = { 9, 9, 9, 9 };

    g_assert_null(pt_flavour(PMU_VENDOR_INTEL, 6, 0x3c));
    g_assert_null(pt_flavour(PMU_VENDOR_INTEL, 15, 0x5e));
    g_assert_null(pt_flavour(PMU_VENDOR_AMD, 6, 0x5e));
    be_skylake();
    g_assert_cmphex(config.ctl_mask, ==, 0xff0f782d8f);
    pt_cpuid(&config, 0, regs);
    g_assert_cmphex(regs[0], ==, 1);
    g_assert_cmphex(regs[1], ==, 7);
    g_assert_cmphex(regs[2], ==, 7);
    g_assert_cmphex(regs[3], ==, 0);
    pt_cpuid(&config, 1, regs);
    g_assert_cmphex(regs[0], ==, 2);
    g_assert_cmphex(regs[1], ==, 0x3f0000);
    g_assert_cmphex(regs[2] | regs[3], ==, 0);
    regs[3] = 9;
    pt_cpuid(&config, 2, regs);
    g_assert_cmphex(regs[0] | regs[1] | regs[2] | regs[3], ==, 0);
}

static void test_reset(void)
{
    be_skylake();
    g_assert_cmphex(rd(CTL), ==, 0);
    g_assert_cmphex(rd(STATUS), ==, 0);
    g_assert_cmphex(rd(OUTPUT_BASE), ==, 0);
    g_assert_cmphex(rd(OUTPUT_MASK), ==, 0x7f);
    g_assert_cmphex(rd(CR3_MATCH), ==, 0);
    for (unsigned i = 0; i < 4; i++) {
        g_assert_cmphex(rd(ADDR(i)), ==, 0);
    }
    /* Warm: what is on its way still gets there, and TraceEn is cleared. */
    start(ALL, kernel(K));
    pt_indirect(&pt, K + 2);
    state.changed = false;
    pt_reset(&pt, true);
    g_assert_true(state.changed);
    g_assert_false(pt_tells(&state));
    g_assert_cmphex(memory[BUFFER + seen], ==, 0x2d);
    g_assert_cmphex(rd(CTL), ==, ALL & ~EN);
    g_assert_cmphex(rd(OUTPUT_BASE), ==, BUFFER);
    EXPECT(0x2d, 2, 0);
    /* It is as cold where that needs a bit which is not there. */
    config.ebx &= ~PT_EBX_IP_FILTER;
    pt_reset(&pt, true);
    g_assert_cmphex(rd(CTL), ==, 0);
    g_assert_cmphex(rd(OUTPUT_BASE), ==, 0);
}

static void test_msrs(void)
{
    set_up();
    access_is(0x55f, PMU_MSR_OTHER);
    access_is(0x562, PMU_MSR_OTHER);
    access_is(0x56f, PMU_MSR_OTHER);
    access_is(0x573, PMU_MSR_OTHER);
    access_is(0x57f, PMU_MSR_OTHER);
    access_is(0x584, PMU_MSR_GP);
    access_is(0x587, PMU_MSR_GP);
    access_is(0x588, PMU_MSR_OTHER);

    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t val = 1ull << bit;

        /* CTL: CycThresh has only 0, PSBFreq is to 5, ADDRn_CFG to 2. */
        g_assert_cmpint(write_msr(CTL, val & ~EN), ==,
                        val & 0xff0f782d8f && !(val & 0x0008780000) &&
                        !(val & 0xcc08000000) ? PMU_MSR_OK : PMU_MSR_GP);
        wr(CTL, 0);
        g_assert_cmpint(write_msr(STATUS, val), ==,
                        bit <= 2 || bit == 4 || bit == 5 ||
                        (bit >= 32 && bit <= 48) ? PMU_MSR_OK : PMU_MSR_GP);
        wr(STATUS, 0);
        g_assert_cmpint(write_msr(OUTPUT_BASE, val), ==,
                        bit >= 7 && bit < 39 ? PMU_MSR_OK : PMU_MSR_GP);
        wr(OUTPUT_MASK, val);
        g_assert_cmphex(rd(OUTPUT_MASK), ==, val | 0x7f);
        g_assert_cmpint(write_msr(CR3_MATCH, val), ==,
                        bit >= 5 ? PMU_MSR_OK : PMU_MSR_GP);
        g_assert_cmpint(write_msr(ADDR(0), val), ==,
                        bit < 47 ? PMU_MSR_OK : PMU_MSR_GP);
        g_assert_cmpint(write_msr(ADDR(3), -val), ==,
                        bit < 48 ? PMU_MSR_OK : PMU_MSR_GP);
    }
    wr_gp(CTL, PSB_FREQ(6));
    wr(CTL, PSB_FREQ(5));
    wr_gp(CTL, CFG(0, 3));
    wr_gp(CTL, CFG(1, 3));
    wr(CTL, CFG(1, 2) | CFG(0, 1));

    /* Read-only bits are ignored, others are kept. */
    wr(CTL, 0);
    wr(STATUS, 0x1ffff00000037ull);
    g_assert_cmphex(rd(STATUS), ==, 0x1ffff00000030ull);
    config.va_bits = 57;
    wr(ADDR(0), 1ull << 55);
    wr_gp(ADDR(0), 1ull << 56);
    g_assert_cmphex(rd(ADDR(0)), ==, 1ull << 55);
}

/* While TraceEn is set */
static void test_msrs_on(void)
{
    const uint64_t on = ALL | PSB_FREQ(2);

    start(on, kernel(K));
    g_assert_cmphex(rd(CTL), ==, on);
    wr_gp(OUTPUT_BASE, BUFFER);
    wr_gp(OUTPUT_MASK, 0x7f);
    wr_gp(STATUS, 0);
    wr_gp(CR3_MATCH, 0);
    wr_gp(ADDR(0), 0);
    wr_gp(ADDR(3), 0);
    wr_gp(CTL, on | TSC);
    wr_gp(CTL, on & ~OS);
    wr_gp(CTL, 1ull << 63);
    wr(CTL, on);
    resume(kernel(K + 2));
    expect_none();
    g_assert_true(pt_packets_wanted(&state));
    /* All of the read-only bits */
    g_assert_cmphex((uint32_t)rd(STATUS), ==, 7);
    far(user(U));
    g_assert_cmphex((uint32_t)rd(STATUS), ==, 7);
    /* Others may change with it, when it is cleared. */
    wr(CTL, OS | TSC);
    g_assert_cmphex(rd(CTL), ==, OS | TSC);
    g_assert_cmphex((uint32_t)rd(STATUS), ==, 0);

    start(EN | OS | BRANCH | CFG(0, 1), kernel(K));
    g_assert_cmphex((uint32_t)rd(STATUS), ==, 6);
    far(user(0));
    g_assert_cmphex((uint32_t)rd(STATUS), ==, 5);
}

/* Bits that need what CPUID does not have */
static void test_msrs_less(void)
{
    PtPlace next = kernel(K);
    PtConfig all;

    be_skylake();
    all = config;
    config.ecx &= ~PT_ECX_SINGLE;
    wr_gp(CTL, ALL);
    wr(CTL, ALL | TOPA);
    g_assert_cmphex(rd(STATUS), ==, ERROR);     /* no table */

    set_up();
    config = all;
    config.ebx &= ~(PT_EBX_CR3_FILTER | PT_EBX_PSB_CYC | PT_EBX_IP_FILTER);
    config.ctl_mask &= ~(CR3 | PT_CTL_CYC_EN | CFG(0, 15) | CFG(1, 15) |
                         15ull << 19 | PSB_FREQ(15));
    access_is(CR3_MATCH, PMU_MSR_GP);
    access_is(ADDR(0), PMU_MSR_GP);
    wr_gp(CTL, PSB_FREQ(1));
    wr_gp(CTL, CFG(0, 1));
    wr_gp(CTL, CR3);
    wr_gp(STATUS, 1ull << 32);
    /* The count is neither to be seen, nor to be written: always PSB+. */
    start_at(ALL, next);
    g_assert_cmphex(rd(STATUS), ==, 7);
    wr(CTL, ALL & ~EN);
    pt_settle(&pt);
    seen = (uint32_t)(state.output_mask >> 32);
    wr(CTL, ALL);
    resume(next);
    EXPECT(P16, PIP_A, CBR, 0x99, 0x20, PSBEND,
           0x99, 1, 0x71, 0, 0, 0, 0x81, 0xff, 0xff);
}

/*
 * Packets
 */

static void test_start(void)
{
    static const uint8_t exec[] = { 1, 2, 0 };

    /* ByteCnt 0: PSB+ without MODE.Exec and FUP; IPs begin at 0. */
    set_up();
    wr(CTL, ALL | TSC);
    g_assert_true(pt_tells(&state));
    resume(kernel(K));
    EXPECT(P16, 0x19, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, PIP_A, CBR,
           0x99, 0x20, PSBEND, 0x99, 1, 0x71, 0, 0, 0, 0x81, 0xff, 0xff);
    g_assert_cmphex(rd(STATUS) >> 32, ==, 49);
    wr(CTL, OS);
    EXPECT(0x3d, 0, 0, 1);      /* FUP(CLIP), TIP.PGD() */

    /* ByteCnt not 0: none, and nothing known of addresses or modes */
    wr(CTL, ALL | TSC);
    resume(kernel(K));
    EXPECT(0x19, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, CBR,
           0x99, 1, 0x71, 0, 0, 0, 0x81, 0xff, 0xff);
    wr(CTL, 0);
    seen += 4;
    wr(CTL, ALL);
    resume(kernel(K));
    EXPECT(CBR, 0x99, 1, 0x71, 0, 0, 0, 0x81, 0xff, 0xff);

    /* PacketEn stays 0: no PIP without OS; no MODE.TSX without ContextEn. */
    set_up();
    wr(CTL, EN | USER | BRANCH);
    resume(kernel(K));
    EXPECT(P16, CBR, PSBEND);
    g_assert_cmphex((uint32_t)rd(STATUS), ==, 5);
    wr(CTL, 0);
    expect_none();
    wr(CTL, EN | USER | BRANCH);
    resume(kernel(K));
    EXPECT(CBR);

    for (unsigned i = 0; i < 3; i++) {
        PtPlace next = user(U);
        uint8_t bytes[] = { P16, PIP_A, CBR, 0x99, 0x20, PSBEND,
                            0x99, exec[i], 0x51, 0, 0x10, 0x40, 0 };

        set_up();
        wr(CTL, ALL);
        next.exec = exec[i];
        resume(next);
        expect_bytes(bytes, sizeof(bytes));
    }
}

static void test_outcomes(void)
{
    start(ALL, kernel(K));
    g_assert_false(pt_cond(&pending, true));
    EXPECT(0x06);
    pt_cond(&pending, false);
    EXPECT(0x04);
    pt_cond(&pending, true);
    pt_cond(&pending, false);
    pt_cond(&pending, true);
    EXPECT(0x1a);               /* 1 101 0 */
    for (unsigned i = 0; i < 6; i++) {
        pt_cond(&pending, i == 0 || i > 2);
    }
    EXPECT(0xce);               /* 1 100111 0 */
    for (unsigned i = 0; i < 8; i++) {
        pt_cond(&pending, i >= 6);
    }
    EXPECT(0x80, 0x0e);         /* 1 000000 0, 1 11 0 */
    for (unsigned i = 0; i < 59; i++) {
        g_assert_false(pt_cond(&pending, !(i & 1)));
    }
    g_assert_true(pt_cond(&pending, false));
    pt_outcomes(&pt, K);
    g_assert_cmphex(pending.tnt, ==, 1);
    EXPECT(0xd4, 0xd4, 0xd4, 0xd4, 0xd4, 0xd4, 0xd4, 0xd4, 0xd4, 0xd4);
    /* They go out before what comes next. */
    pt_cond(&pending, false);
    pt_indirect(&pt, K + 4);
    EXPECT(0x04, 0x2d, 4, 0);
    pt_cond(&pending, false);
    event(K + 4, kernel(K + 8));
    EXPECT(0x04, 0x3d, 4, 0, 0x2d, 8, 0);
    pt_cond(&pending, true);
    mov_cr3(kernel(K));
    EXPECT(0x06, PIP_A);
    /* What is added when nobody wants it is lost. */
    wr(CTL, 0);
    EXPECT(0x3d, 0, 0, 1);
    pt_cond(&pending, true);
    pt_outcomes(&pt, K);
    pt_indirect(&pt, K);
    pt_cond(&pending, true);
    wr(CTL, ALL);
    resume(kernel(K));
    EXPECT(CBR, 0x99, 1, 0x71, 0, 0, 0, 0x81, 0xff, 0xff);
}

static void test_ip(void)
{
    start(ALL, user(0x7fff12345678));
    pt_indirect(&pt, 0x7fff12345678);
    EXPECT(0x2d, 0x78, 0x56);
    pt_indirect(&pt, 0x7fff1234ffff);
    EXPECT(0x2d, 0xff, 0xff);
    pt_indirect(&pt, 0x7fff12350000);
    EXPECT(0x4d, 0, 0, 0x35, 0x12);
    pt_indirect(&pt, 0x7fffffffffff);
    EXPECT(0x4d, 0xff, 0xff, 0xff, 0xff);
    pt_indirect(&pt, 0x7ffe00000000);
    EXPECT(0x6d, 0, 0, 0, 0, 0xfe, 0x7f);
    pt_indirect(&pt, 0xffff800000000000);
    EXPECT(0x6d, 0, 0, 0, 0, 0, 0x80);
    pt_indirect(&pt, 0xfffffffffffffffe);
    EXPECT(0x6d, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff);
    pt_indirect(&pt, 0);
    EXPECT(0x6d, 0, 0, 0, 0, 0, 0);
    pt_indirect(&pt, 0xffff0000);
    EXPECT(0x4d, 0, 0, 0xff, 0xff);
    pt_indirect(&pt, 0x800000000000);           /* 57 bits */
    EXPECT(0xcd, 0, 0, 0, 0, 0, 0x80, 0, 0);
    /* What is suppressed does not change the last one. */
    wr(CTL, 0);
    EXPECT(0x7d, 0, 0, 0, 0x81, 0xff, 0xff, 1);
    start(EN | OS | BRANCH, kernel(K));
    far(user(U));
    far(kernel(K + 0x10));
    EXPECT(1, 0x31, 0x10, 0);
}

static void test_far(void)
{
    PtPlace to = kernel(K + 0x100);

    /* Stays on: [PIP] [MODE.Exec] TIP */
    start(ALL, kernel(K));
    far(to);
    EXPECT(0x2d, 0, 1);
    to = user(U);
    to.exec = 2;
    far(to);
    EXPECT(0x99, 2, 0x6d, 0, 0x10, 0x40, 0, 0, 0);
    far(to);
    EXPECT(0x2d, 0, 0x10);
    to.cr3 = CR3_B;
    to.exec = 0;
    far(to);
    EXPECT(PIP_B, 0x99, 0, 0x2d, 0, 0x10);

    /* Context lost: no FUP, and no IP; PIP when it is back */
    start(EN | OS | BRANCH, kernel(K));
    to = user(U);
    to.cr3 = CR3_B;
    far(to);
    EXPECT(1);
    g_assert_false(pt_packets_wanted(&state));
    g_assert_true(pt_tells(&state));
    to.exec = 2;
    far(to);
    expect_none();
    far(kernel(K));
    EXPECT(PIP_A, 0x31, 0, 0);

    /* User only, as for a system call: no PIP anyway */
    start(EN | USER | BRANCH, kernel(K));
    to = user(U);
    to.cr3 = CR3_B;
    far(to);
    EXPECT(0x99, 1, 0x51, 0, 0x10, 0x40, 0);
    far(kernel(K));
    EXPECT(1);
    to.ip += 2;
    far(to);
    EXPECT(0x31, 2, 0x10);
}

static void test_event(void)
{
    PtPlace to = kernel(K + 0x100);

    start(ALL, kernel(K));
    event(K + 2, to);
    EXPECT(0x3d, 2, 0, 0x2d, 0, 1);
    to.cr3 = CR3_B;
    to.exec = 2;
    event(K + 0x102, to);
    EXPECT(0x3d, 2, 1, PIP_B, 0x99, 2, 0x2d, 0, 1);

    start(EN | USER | BRANCH, user(U));
    event(U + 1, to);
    EXPECT(0x3d, 1, 0x10, 1);
    event(K, to);
    expect_none();
    event(K, user(U + 3));
    EXPECT(0x31, 3, 0x10);

    /* Handler in SMM */
    to.smm = true;
    start(ALL, kernel(K));
    event(K, to);
    EXPECT(0x3d, 0, 0, 1);
}

static void test_cr3(void)
{
    PtPlace next = kernel(K + 3);

    start(ALL, kernel(K));
    mov_cr3(next);
    EXPECT(PIP_A);
    next.cr3 = CR3_B | 0x1f;    /* these are not in it */
    mov_cr3(next);
    EXPECT(PIP_B);
    next.cr3 = 0xfffffffffffff020;
    mov_cr3(next);
    EXPECT(2, 0x43, 2, 0xff, 0xff, 0xff, 0xff, 0xff);

    /* Filtered: the low 5 bits and what no address has do not matter. */
    set_up();
    wr(CR3_MATCH, CR3_A | 0xff00000000000020);
    wr(CTL, ALL | CR3);
    next = kernel(K);
    next.cr3 = CR3_A | 0x20 | 0x1f;
    resume(next);
    seen = 32 + 2 + 7;
    expect_none();
    g_assert_true(pt_packets_wanted(&state));
    next.cr3 = CR3_A;
    next.ip += 3;
    mov_cr3(next);
    EXPECT(1);
    mov_cr3(next);
    expect_none();
    pt_cond(&pending, true);    /* stale */
    next.cr3 = CR3_A | 0x20;
    mov_cr3(next);
    EXPECT(2, 0x43, 2, 0x45, 0x23, 1, 0, 0, 0x31, 3, 0);
    /* User only: it is not seen. */
    start(EN | USER | BRANCH, kernel(K));
    mov_cr3(next);
    expect_none();
}

/* SMI is as TraceEn cleared, and RSM as it was set. */
static void test_smi(void)
{
    PtPlace smm = kernel(0x8000);

    smm.smm = true;
    start(ALL, kernel(K));
    pt_cond(&pending, true);
    pt_smi(&pt, K + 4);
    EXPECT(0x06, 0x3d, 4, 0, 1);
    g_assert_cmphex(rd(CTL), ==, ALL & ~EN);
    /* Whatever SMM does with it */
    wr(CTL, ALL);
    resume(smm);
    EXPECT(CBR);
    far(smm);
    expect_none();
    pt_rsm(&pt);
    resume(user(U));
    EXPECT(CBR, 0x99, 1, 0x71, 0, 0x10, 0x40, 0, 0, 0);

    wr(CTL, 0);
    seen += 8;
    pt_smi(&pt, K);
    wr(CTL, ALL);
    resume(smm);
    pt_rsm(&pt);
    resume(user(U));
    EXPECT(CBR);
    g_assert_cmphex(rd(CTL), ==, ALL & ~EN);

    /* What WRMSR would not set */
    config.ecx &= ~PT_ECX_SINGLE;
    wr(CTL, ALL | TOPA);
    pt_smi(&pt, K);
    wr(CTL, ALL & ~EN);
    pt_rsm(&pt);
    g_assert_cmphex(rd(CTL), ==, ALL & ~EN);
    g_assert_false(pt_state_bad(&state, &pending, &config));
}

/* BranchEn 0: no packets of branches; and TSC, CBR, PIP are sent. */
static void test_no_branches(void)
{
    PtPlace to = kernel(K);

    set_up();
    wr(CTL, ALL & ~BRANCH);
    resume(kernel(K));
    EXPECT(P16, PIP_A, CBR, PSBEND);
    g_assert_false(pt_packets_wanted(&state));
    g_assert_cmphex((uint32_t)rd(STATUS), ==, 7);
    to.cr3 = CR3_B;
    to.exec = 2;
    event(K, to);
    EXPECT(PIP_B);
    far(user(U));
    EXPECT(PIP_A);
    mov_cr3(kernel(K));
    EXPECT(PIP_A);
    pt_indirect(&pt, K);
    pt_outcomes(&pt, K);
    expect_none();
    wr(CTL, 0);
    expect_none();
}

/*
 * PSB+
 */

/* So that PSB+ is due after @n bytes more */
static void due_after(uint32_t n)
{
    pt_settle(&pt);
    g_assert_cmpuint(state.bytes, <, 2048 - n);
    state.bytes = 2048 - n;
}

#define PSB_IN(...)     BYTES(P16, PIP_A, CBR, 0x99, 0x20, 0x99, 1, \
                              0x7d, __VA_ARGS__, 0x81, 0xff, 0xff, PSBEND)

static void test_psb(void)
{
    start(ALL, kernel(K));
    due_after(4);
    pt_indirect(&pt, K + 1);
    EXPECT(0x2d, 1, 0);
    pt_indirect(&pt, K + 2);
    EXPECT(0x2d, 2, 0, PSB_IN(2, 0, 0));
    g_assert_cmphex(rd(STATUS) >> 32, ==, 41);
    /* And the next IP is that much shorter again. */
    pt_indirect(&pt, K + 3);
    EXPECT(0x2d, 3, 0);

    /* FUP and TIP stay together. */
    due_after(1);
    event(K + 2, kernel(K + 9));
    EXPECT(0x3d, 2, 0, 0x2d, 9, 0, PSB_IN(9, 0, 0));

    /* Outcomes, and nothing is left of them behind it */
    due_after(10);
    for (unsigned i = 0; i < 59; i++) {
        pt_cond(&pending, true);
    }
    g_assert_true(pt_cond(&pending, false));
    pt_outcomes(&pt, K + 0x1234);
    EXPECT(0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfc,
           PSB_IN(0x34, 0x12, 0));

    /* Without packets, there is no FUP. */
    due_after(8);
    mov_cr3(kernel(K + 3));
    EXPECT(PIP_A, PSB_IN(3, 0, 0));
    start(EN | OS | BRANCH, kernel(K));
    due_after(1);
    far(user(U));
    EXPECT(1, P16, CBR, PSBEND);
    far(kernel(K));
    EXPECT(0x99, 1, 0x71, 0, 0, 0, 0x81, 0xff, 0xff);

    /* All of an address that is short, too */
    start(ALL, user(U));
    due_after(3);
    pt_indirect(&pt, U + 1);
    EXPECT(0x2d, 1, 0x10, P16, PIP_A, CBR, 0x99, 0x20, 0x99, 1,
           0x7d, 1, 0x10, 0x40, 0, 0, 0, PSBEND);

    for (unsigned freq = 0; freq < 6; freq++) {
        start(ALL | PSB_FREQ(freq), kernel(K));
        state.bytes = (2048u << freq) - 4;
        pt_indirect(&pt, K);
        g_assert_cmpuint(state.bytes, ==, (2048u << freq) - 1);
        pt_indirect(&pt, K);
        g_assert_cmpuint(state.bytes, ==, 41);
    }
}

/*
 * Return compression
 */

static void call(uint64_t nlip)
{
    g_assert_true(pt_returns_wanted(&state));
    pt_push(&pending, nlip);
}

/* Whether a RET is compressed */
static bool ret(uint64_t to)
{
    g_assert_true(pt_returns_wanted(&state));
    if (!pt_ret(&pending, to)) {
        pt_indirect(&pt, to);
        return false;
    }
    if (pt_cond(&pending, true)) {
        pt_outcomes(&pt, to);
    }
    return true;
}

static void test_returns(void)
{
    start(ALL, kernel(K));
    g_assert_false(ret(K));
    EXPECT(0x2d, 0, 0);
    call(K + 1);
    call(K + 2);
    g_assert_true(ret(K + 2));
    g_assert_true(ret(K + 1));
    g_assert_false(ret(K + 1));
    EXPECT(0x0e, 0x2d, 1, 0);

    /* 64 of them, and the oldest is lost */
    for (unsigned i = 0; i < 65; i++) {
        call(K + i);
    }
    for (unsigned i = 64; i; i--) {
        g_assert_true(ret(K + i));
    }
    g_assert_false(ret(K));
    g_assert_false(ret(K + 64));

    /* Behind one that does not match, only what is newer matches. */
    call(K + 1);
    call(K + 2);
    call(K + 3);
    g_assert_false(ret(K + 2));
    g_assert_false(ret(K + 3));
    g_assert_false(ret(K + 2));
    call(K + 1);
    g_assert_false(ret(K + 2));
    call(K + 4);
    g_assert_true(ret(K + 4));
    g_assert_false(ret(K + 1));
    for (unsigned i = 0; i < 64; i++) {
        call(K);
    }
    g_assert_false(ret(K + 1));
    for (unsigned i = 0; i < 63; i++) {
        call(K);
    }
    for (unsigned i = 0; i < 63; i++) {
        g_assert_true(ret(K));
    }
    g_assert_false(ret(K));

    /* PSB empties it, as does PacketEn that is set; but no event. */
    call(K + 1);
    event(K, kernel(K + 5));
    g_assert_true(ret(K + 1));
    call(K + 1);
    call(K + 2);
    due_after(3);
    pt_indirect(&pt, K);
    g_assert_cmpuint(state.bytes, ==, 41);
    g_assert_false(ret(K + 2));
    call(K + 1);
    wr(CTL, ALL & ~EN);
    wr(CTL, ALL);
    resume(kernel(K));
    g_assert_false(ret(K + 1));
    start(EN | OS | BRANCH, kernel(K));
    call(K + 1);
    far(user(U));
    far(kernel(K));
    g_assert_false(ret(K + 1));

    start(ALL | DISRETC, kernel(K));
    g_assert_true(pt_packets_wanted(&state));
    g_assert_false(pt_returns_wanted(&state));
}

/*
 * Address filters
 */

static void start_filtered(uint64_t ctl, PtPlace next)
{
    set_up();
    wr(ADDR(0), K);
    wr(ADDR(1), K + 0xfff);
    wr(ADDR(2), K + 0x8000);
    wr(ADDR(3), K + 0x8fff);
    start_at(ctl, next);
}

static void test_filter(void)
{
    const uint64_t ctl = ALL | CFG(0, 1);
    PtPlace out = kernel(K + 0x1000);

    start_filtered(ctl, out);
    g_assert_cmphex(memory[BUFFER + seen - 1], ==, 0x23);
    g_assert_true(pt_near_wanted(&state));
    g_assert_false(pt_packets_wanted(&state));
    /* Outside */
    pt_near(&pt, PT_DIRECT, K - 1);
    pt_near(&pt, PT_COND, K + 0x1000);
    pt_near(&pt, PT_INDIRECT, K + 0x1000);
    pt_near(&pt, PT_RET, K + 0x8000);
    pt_cond(&pending, true);
    event(K, out);
    far(out);
    expect_none();
    /* Who goes straight on does not enter. */
    mov_cr3(kernel(K));
    EXPECT(PIP_A);

    /* In, each way */
    pt_near(&pt, PT_COND, K + 0xfff);
    EXPECT(0x99, 1, 0x71, 0xff, 0x0f, 0, 0x81, 0xff, 0xff);
    /* Inside */
    pt_near(&pt, PT_DIRECT, K);
    expect_none();
    pt_near(&pt, PT_COND, K + 1);
    pt_cond(&pending, false);
    pt_near(&pt, PT_INDIRECT, K + 2);
    EXPECT(0x0c, 0x2d, 2, 0);
    pt_push(&pending, K + 3);
    pt_near(&pt, PT_RET, K + 3);
    pt_near(&pt, PT_RET, K + 3);
    EXPECT(0x06, 0x2d, 3, 0);
    for (unsigned i = 0; i < 59; i++) {
        pt_near(&pt, PT_COND, K);
    }
    g_assert_cmphex(state.output_mask >> 32, ==, seen);
    pt_near(&pt, PT_COND, K);
    g_assert_cmphex(pending.tnt, ==, 1);
    EXPECT(0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe);
    mov_cr3(out);               /* straight on */
    EXPECT(PIP_A);
    g_assert_true(pt_packets_wanted(&state));

    /* Out, each way: no bit for a conditional one */
    pt_cond(&pending, true);
    pt_near(&pt, PT_COND, K + 0x1000);
    EXPECT(0x06, 0x21, 0, 0x10);
    pt_near(&pt, PT_DIRECT, K);
    EXPECT(0x31, 0, 0);
    pt_near(&pt, PT_DIRECT, K + 0x1000);
    EXPECT(0x21, 0, 0x10);
    pt_near(&pt, PT_INDIRECT, K);
    EXPECT(0x31, 0, 0);
    pt_cond(&pending, true);
    pt_near(&pt, PT_INDIRECT, K + 0x1000);
    EXPECT(0x06, 0x21, 0, 0x10);
    pt_near(&pt, PT_RET, K);
    EXPECT(0x31, 0, 0);
    pt_push(&pending, K + 0x1000);
    pt_near(&pt, PT_RET, K + 0x1000);
    EXPECT(0x21, 0, 0x10);
    far(kernel(K));
    EXPECT(0x31, 0, 0);
    far(out);
    EXPECT(0x21, 0, 0x10);
    event(K, kernel(K));
    EXPECT(0x31, 0, 0);
    event(K + 7, out);
    EXPECT(0x3d, 7, 0, 0x21, 0, 0x10);
    out.cr3 = CR3_B;
    far(kernel(K));
    EXPECT(0x31, 0, 0);
    far(out);
    EXPECT(PIP_B, 0x21, 0, 0x10);

    /* Out of context and back: where it is counts. */
    start_filtered(ctl & ~USER, kernel(K));
    far(user(K));
    EXPECT(0x01);
    g_assert_false(pt_near_wanted(&state));
    pt_near(&pt, PT_DIRECT, K);
    far(kernel(K + 0x1000));
    expect_none();

    /* Both ranges */
    start_filtered(ctl | CFG(1, 1), kernel(K));
    pt_near(&pt, PT_INDIRECT, K + 0x8fff);
    EXPECT(0x2d, 0xff, 0x8f);
    pt_near(&pt, PT_INDIRECT, K + 0x9000);
    EXPECT(0x21, 0, 0x90);
}

static void test_trace_stop(void)
{
    const uint64_t ctl = ALL | CFG(1, 2);
    PtPlace in = kernel(K + 0x8000);

    start_filtered(ctl, kernel(K));
    g_assert_true(pt_packets_wanted(&state));
    pt_near(&pt, PT_COND, K + 0x7fff);
    state.changed = false;
    pt_near(&pt, PT_COND, in.ip);
    g_assert_true(state.changed);
    EXPECT(0x06, 0x21, 0, 0x80, STOP);
    g_assert_cmphex((uint32_t)rd(STATUS), ==, STOPPED);
    g_assert_false(pt_tells(&state));
    pt_near(&pt, PT_COND, K);
    far(kernel(K));
    event(K, kernel(K));
    mov_cr3(kernel(K));
    expect_none();
    wr(CTL, 0);
    wr(CTL, ctl);               /* is still stopped */
    resume(kernel(K));
    expect_none();

    start_filtered(ctl, kernel(K));
    pt_near(&pt, PT_DIRECT, in.ip);
    EXPECT(0x21, 0, 0x80, STOP);
    start_filtered(ctl, kernel(K));
    event(K + 1, in);
    EXPECT(0x3d, 1, 0, 0x21, 0, 0x80, STOP);
    /* Where PacketEn was 0 */
    start_filtered(ctl | CFG(0, 1), kernel(K + 0x1000));
    far(in);
    EXPECT(STOP);
    /* MOV CR3, and WRMSR, in it */
    start_filtered(ctl, kernel(K));
    mov_cr3(in);
    EXPECT(PIP_A, 0x21, 0, 0x80, STOP);
    start_filtered(ctl | CFG(0, 1), kernel(K + 0x1000));
    mov_cr3(in);
    EXPECT(PIP_A, STOP);
    set_up();
    wr(ADDR(2), K);
    wr(ADDR(3), K);
    wr(CTL, ctl);
    resume(kernel(K));
    EXPECT(P16, PIP_A, CBR, 0x99, 0x20, PSBEND, STOP);
    g_assert_cmphex((uint32_t)rd(STATUS), ==, STOPPED);
    /* Not out of context, nor where it has been told straight on */
    start_filtered(ctl & ~USER, kernel(K));
    far(user(in.ip));
    EXPECT(0x01);
    g_assert_true(pt_tells(&state));
}

/*
 * Output
 */

static void test_single(void)
{
    uint64_t bad[][2] = {
        { BUFFER, 0x17f }, { BUFFER, 0x80007f },        /* holes */
        { BUFFER | 0x80, 0xff },                        /* overlap */
        { BUFFER, 0x100000000fffull }, { BUFFER, 0x800000007full },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        be_skylake();
        wr(OUTPUT_BASE, bad[i][0]);
        wr(OUTPUT_MASK, bad[i][1]);
        wr(CTL, ALL);
        g_assert_cmphex(rd(STATUS), ==, ERROR);
        g_assert_true(pt_state_bad(&state, &pending, &config) == false);
        resume(kernel(K));
        g_assert_cmphex(rd(OUTPUT_MASK), ==, bad[i][1]);
        g_assert_cmphex(rd(CTL), ==, ALL);
        wr(CTL, 0);
    }

    /* It wraps at 128 bytes. */
    be_skylake();
    wr(OUTPUT_BASE, BUFFER + 0x80);
    wr(OUTPUT_MASK, 0x640000007full);
    wr(CTL, ALL);
    resume(kernel(K));          /* 41 bytes */
    g_assert_cmphex(rd(OUTPUT_MASK), ==, 0x0d0000007full);
    g_assert_cmphex(memory[BUFFER + 0x7f], ==, 0xcc);
    g_assert_cmphex(memory[BUFFER + 0x80 + 0x64], ==, 2);
    g_assert_cmphex(memory[BUFFER + 0xfe], ==, 0x24);   /* CBR */
    g_assert_cmphex(memory[BUFFER + 0xff], ==, 0);
    g_assert_cmphex(memory[BUFFER + 0x80], ==, 0x99);   /* MODE.TSX */
    g_assert_cmphex(memory[BUFFER + 0x81], ==, 0x20);
    g_assert_cmphex(memory[BUFFER + 0x80 + 0x0d], ==, 0xcc);
    g_assert_cmphex(memory[BUFFER + 0x100], ==, 0xcc);
    g_assert_false(state.pmi);

    /* All of 4 GiB */
    be_skylake();
    memory_base = 0xffff0000;
    wr(OUTPUT_MASK, 0xffffffe0ffffffffull);
    wr(CTL, ALL);
    resume(kernel(K));
    g_assert_cmphex(rd(OUTPUT_MASK), ==, 0x00000009ffffffffull);
    g_assert_cmphex(memory[0xffdf], ==, 0xcc);
    g_assert_cmphex(memory[0xffe0], ==, 0x02);
    g_assert_cmphex(memory[0xffff], ==, 0x23);
    g_assert_cmphex(memory[0x10000], ==, 0x99);
    g_assert_cmphex(memory[0x10008], ==, 0xff);
    g_assert_cmphex(memory[0x10009], ==, 0xcc);

    /* What is no memory is an error when it is written. */
    be_skylake();
    wr(OUTPUT_BASE, MEMORY);
    wr(OUTPUT_MASK, 0xfff);
    wr(CTL, ALL);
    resume(kernel(K));
    g_assert_true(pt_packets_wanted(&state));
    state.changed = false;
    g_assert_cmphex((uint32_t)rd(STATUS), ==, ERROR);
    g_assert_true(state.changed);
    far(kernel(K));
    g_assert_cmphex(rd(OUTPUT_MASK), ==, 0xfff);
}

#define TABLE       0x1000u
#define TABLE2      0x2000u
#define END         1u
#define INT         4u
#define TSTOP       16u
#define SIZE(n)     ((n) << 6)

static void entry(uint32_t table, unsigned index, uint64_t val)
{
    val = GUINT64_TO_LE(val);
    memcpy(memory + table + 8 * index, &val, 8);
}

/* Three regions, of 4K, 8K and 4K, and round again */
static void set_up_topa(void)
{
    be_skylake();
    entry(TABLE, 0, 0x10000);
    entry(TABLE, 1, 0x22000 | SIZE(1) | INT);
    entry(TABLE, 2, 0x30000);
    entry(TABLE, 3, TABLE | END);
    wr(OUTPUT_BASE, TABLE);
}

static void start_topa(unsigned index, uint64_t at)
{
    wr(OUTPUT_MASK, at << 32 | index << 7);
    wr(CTL, ALL | TOPA);
    resume(kernel(K));          /* 41 bytes */
}

static void test_topa(void)
{
    set_up_topa();
    start_topa(0, 0xff0);
    g_assert_cmphex(rd(OUTPUT_BASE), ==, TABLE);
    g_assert_cmphex(rd(OUTPUT_MASK), ==, 0x19000000ffull);
    g_assert_cmphex(memory[0x10fef], ==, 0xcc);
    g_assert_cmphex(memory[0x10ff0], ==, 0x02);
    g_assert_cmphex(memory[0x10fff], ==, 0x82);
    g_assert_cmphex(memory[0x11000], ==, 0xcc);
    g_assert_cmphex(memory[0x22000], ==, 0x02);         /* PIP */
    g_assert_cmphex(memory[0x22001], ==, 0x43);
    g_assert_cmphex(memory[0x22018], ==, 0xff);
    g_assert_cmphex(memory[0x22019], ==, 0xcc);
    g_assert_false(state.pmi);

    /* INT: just where it is full */
    set_up_topa();
    start_topa(1, 0x2000 - 42);
    g_assert_false(state.pmi);
    g_assert_cmphex(rd(OUTPUT_MASK), ==, 0x1fff000000ffull);
    pt_cond(&pending, true);
    g_assert_false(state.pmi);
    pt_settle(&pt);
    g_assert_true(state.pmi);
    g_assert_cmphex(memory[0x23fff], ==, 0x06);
    g_assert_cmphex(rd(OUTPUT_MASK), ==, 0x17full);
    /* And until somebody has seen it */
    while ((rd(OUTPUT_MASK) & UINT32_MAX) != 0x7f) {
        pt_indirect(&pt, K);
    }
    g_assert_true(state.pmi);
    state.pmi = false;

    /* END: the first entry of the same table */
    set_up_topa();
    start_topa(2, 0xfff);
    pt_settle(&pt);
    g_assert_cmphex(memory[0x30fff], ==, 0x02);
    g_assert_cmphex(memory[0x10000], ==, 0x82);
    g_assert_cmphex(rd(OUTPUT_MASK), ==, 0x280000007full);
    g_assert_cmphex(rd(OUTPUT_BASE), ==, TABLE);
    g_assert_false(state.pmi);
    /* Of another one; and software may begin there. */
    set_up_topa();
    entry(TABLE, 3, TABLE2 | END);
    entry(TABLE2, 0, 0x50000);
    start_topa(3, 0x123);
    g_assert_cmphex(rd(OUTPUT_BASE), ==, TABLE2);
    g_assert_cmphex(rd(OUTPUT_MASK), ==, 0x14c0000007full);
    g_assert_cmphex(memory[0x50123], ==, 0x02);

    /* It is read once, and not for each packet. */
    reads = 0;
    for (unsigned i = 0; i < 1000; i++) {
        pt_indirect(&pt, K);
    }
    g_assert_cmpuint(reads, ==, 0);
}

static void test_topa_stop(void)
{
    /* In the middle of the first packet; index and offset stay. */
    set_up_topa();
    entry(TABLE, 1, 0x22000 | SIZE(1) | TSTOP | INT);
    start_topa(1, 0x1ff9);
    g_assert_true(state.pmi);
    g_assert_true(state.changed);
    g_assert_false(pt_tells(&state));
    g_assert_cmphex((uint32_t)rd(STATUS), ==, STOPPED);
    g_assert_cmphex(rd(OUTPUT_MASK), ==, 0x2000000000ffull);
    g_assert_cmphex(memory[0x23fff], ==, 0x02);
    g_assert_cmphex(memory[0x24000], ==, 0xcc);
    g_assert_cmphex(memory[0x30000], ==, 0xcc);
    wr(CTL, 0);                 /* and no TIP.PGD */
    wr(CTL, ALL | TOPA);        /* The offset is no error, if it is stopped. */
    resume(kernel(K));
    g_assert_cmphex((uint32_t)rd(STATUS), ==, STOPPED);
    wr(CTL, 0);
    wr(STATUS, 0);
    wr(CTL, ALL | TOPA);
    g_assert_cmphex((uint32_t)rd(STATUS), ==, ERROR);

    /* In the middle of a TIP: two bytes of it, and one of four outcomes */
    set_up_topa();
    entry(TABLE, 1, 0x22000 | SIZE(1) | TSTOP);
    start_topa(1, 0x2000 - 41 - 3);
    for (unsigned i = 0; i < 4; i++) {
        pt_cond(&pending, true);
    }
    pt_indirect(&pt, K + 0x1234);
    g_assert_cmphex((uint32_t)rd(STATUS), ==, STOPPED);
    g_assert_cmphex(memory[0x23ffd], ==, 0x3e);
    g_assert_cmphex(memory[0x23ffe], ==, 0x2d);
    g_assert_cmphex(memory[0x23fff], ==, 0x34);
    g_assert_false(state.pmi);
    g_assert_false(pt_state_bad(&state, &pending, &config));
}

static void expect_topa_error(unsigned index, uint64_t at)
{
    start_topa(index, at);
    g_assert_cmphex((uint32_t)rd(STATUS), ==, ERROR);
    g_assert_false(pt_state_bad(&state, &pending, &config));
    wr(CTL, 0);
    wr(STATUS, 0);
}

static void test_topa_errors(void)
{
    static const uint64_t bad[] = {
        0x10002, 0x10008, 0x10020, 0x10400, 0x10800, 1ull << 39, 1ull << 63,
        0x11000 | SIZE(1), 0x10000 | SIZE(5), 0x4000000 | SIZE(15),
        TABLE2 | END | INT, TABLE2 | END | TSTOP, TABLE2 | END | 2,
        TABLE2 | END | 1ull << 40,
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        set_up_topa();
        entry(TABLE2, 0, 0x50000);
        entry(TABLE, 2, bad[i]);
        expect_topa_error(2, 0);
        /* When it is reached */
        start_topa(1, 0x2000 - 42);
        pt_cond(&pending, true);
        g_assert_true(pt_packets_wanted(&state));
        pt_settle(&pt);
        g_assert_cmphex((uint32_t)rd(STATUS), ==, ERROR);
        g_assert_cmphex(memory[0x23fff], ==, 0x06);
        g_assert_true(state.pmi);
    }
    set_up_topa();
    expect_topa_error(0, 0x1000);
    expect_topa_error(1, 0x2000);
    expect_topa_error(3, 0x1000);
    expect_topa_error(0x1ffffff, 0);
    wr(OUTPUT_BASE, TABLE + 0x80);
    entry(TABLE + 0x80, 0, 0x10000);
    expect_topa_error(0, 0);
    wr(OUTPUT_BASE, MEMORY);
    expect_topa_error(0, 0);

    /* Tables that only lead to each other */
    set_up_topa();
    entry(TABLE, 0, TABLE2 | END);
    entry(TABLE, 3, TABLE2 | END);
    entry(TABLE2, 0, TABLE | END);
    reads = 0;
    expect_topa_error(0, 0);
    g_assert_cmpuint(reads, ==, 1);
    wr(OUTPUT_BASE, TABLE);
    expect_topa_error(3, 0);
    g_assert_cmpuint(reads, ==, 3);

    /* A region that is no memory */
    set_up_topa();
    entry(TABLE, 0, MEMORY);
    start_topa(0, 0);
    g_assert_true(pt_packets_wanted(&state));
    g_assert_cmphex((uint32_t)rd(STATUS), ==, ERROR);
    set_up_topa();
    entry(TABLE, 0, MEMORY | INT);
    start_topa(0, 0xfff);
    g_assert_cmphex((uint32_t)rd(STATUS), ==, ERROR);
    g_assert_false(state.pmi);
}

/*
 * Broadwell's table has one entry, so that the interrupt comes 512 bytes before
 * the end, behind which the region begins anew.  It has no ranges, and no
 * single range.
 */
static void test_topa_one_entry(void)
{
    uint32_t regs[4];

    be(0x3d);
    pt_cpuid(&config, 0, regs);
    g_assert_cmphex(regs[0], ==, 0);
    g_assert_cmphex(regs[1], ==, 1);
    g_assert_cmphex(regs[2], ==, 1);
    wr_gp(CTL, ALL);
    wr_gp(CTL, ALL | TOPA | 1ull << 32);
    entry(TABLE, 0, 0x10000 | INT);
    entry(TABLE, 1, TABLE | END);
    wr(OUTPUT_BASE, TABLE);
    wr(OUTPUT_MASK, 0xdf000000000);
    wr(CTL, ALL | TOPA);
    resume(kernel(K));          /* more than 16 bytes */
    g_assert_true(state.pmi);
    state.pmi = false;
    while (rd(OUTPUT_MASK) >> 32 > 0xe00) {
        pt_indirect(&pt, K + 0x10000 * reads);
        reads++;
    }
    g_assert_false(state.pmi);
    g_assert_cmphex(rd(OUTPUT_MASK) >> 32, <, 0x10);
    g_assert_cmphex((uint32_t)rd(STATUS), ==, 7);
}

/* The largest table there can be; its last entry is not END. */
static void test_topa_end_of_table(void)
{
    set_up_topa();
    start_topa(0, 0);
    pt_settle(&pt);
    state.output_mask = 0xfff00000000ull | 0xffffffff;
    pt_loaded(&pt);
    pt_indirect(&pt, K);
    g_assert_cmphex((uint32_t)rd(STATUS), ==, ERROR);
}

static void test_state(void)
{
    PtState good;

    start(ALL, kernel(K));
    good = state;
    g_assert_false(pt_state_bad(&state, &pending, &config));
#define BAD(field, val)                                 \
    do {                                                \
        state = good;                                   \
        state.field = val;                              \
        g_assert_true(pt_state_bad(&state, &pending, &config));   \
    } while (0)
    BAD(ctl, good.ctl | 1ull << 63);
    BAD(ctl, good.ctl | CFG(1, 3));
    BAD(status, 8);
    BAD(status, 1);
    BAD(output_base, 1);
    BAD(output_base, 1ull << 39);
    BAD(output_base, BUFFER + 0x80);
    BAD(output_mask, 0xff00);
    BAD(output_mask, good.output_mask | 0x10000ull << 32);
    BAD(cr3_match, 1);
    BAD(addr[0], 1ull << 47);
    BAD(addr[7], 1ull << 63);
    BAD(mode, 3);
    BAD(here.exec, 3);
    BAD(staged, PT_STAGED + 1);
    set_up_topa();
    start_topa(1, 0);
    pt_settle(&pt);
    good = state;
    g_assert_false(pt_state_bad(&state, &pending, &config));
    BAD(entry, 1);
    BAD(entry, 0x22002);
    BAD(entry, 0x21000 | SIZE(1));
    BAD(output_base, 0x80);
    BAD(output_mask, 0x200000000007full);
}

/*
 * At random
 */

typedef struct Item {
    char kind;
    uint8_t exec;
    uint64_t val;
} Item;

static GArray *expected;

static void expect_item(char kind, uint64_t val, uint8_t exec)
{
    Item item = { kind, exec, val };

    g_array_append_val(expected, item);
}

/* What is passed in, as its packets have it; modes are those of TIP and PGE. */
static struct {
    PtPlace here;
    bool context, filter, on;
    uint64_t perf[4096], libipt[64];    /* their return stacks */
    unsigned nr_perf, nr_libipt;
} model;

static bool model_in(unsigned cfg, uint64_t ip, bool none)
{
    bool any = false, in = false;

    for (unsigned i = 0; i < 2; i++) {
        if ((state.ctl >> (32 + 4 * i) & 15) == cfg) {
            any = true;
            in |= ip >= state.addr[2 * i] && ip <= state.addr[2 * i + 1];
        }
    }
    return any ? in : none;
}

static bool model_wanted(void)
{
    return model.on && model.context && model.filter && (state.ctl & BRANCH);
}

static void model_go(PtPlace to, char packet, bool straight, bool cr3_written)
{
    bool was = model_wanted(), context = model.context, now;
    bool cr3 = cr3_written || to.cr3 != model.here.cr3;

    model.here = to;
    model.context = (state.ctl & (to.os ? OS : USER)) &&
                    (!(state.ctl & CR3) ||
                     (to.cr3 & ~31ull) == state.cr3_match);
    if (!straight || !context) {
        model.filter = model_in(1, to.ip, true);
    }
    if (model.context && model_in(2, to.ip, false)) {
        model.on = false;
    }
    now = model_wanted();
    if (cr3 && model.context && (state.ctl & OS)) {
        expect_item('P', to.cr3 & ~31ull, 0);
    }
    if (was && now && packet) {
        expect_item(packet, packet == 'I' ? to.ip : 0,
                    packet == 'I' ? to.exec : 0);
    } else if (was && !now) {
        expect_item(model.context ? 'D' : 'd', model.context ? to.ip : 0, 0);
    } else if (!was && now) {
        expect_item('E', to.ip, to.exec);
    }
    if (!model.on) {
        expect_item('S', 0, 0);
    }
}

static void model_call(uint64_t nlip)
{
    if (model.nr_perf == G_N_ELEMENTS(model.perf)) {
        model.nr_perf--;
        memmove(model.perf, model.perf + 1, sizeof(model.perf) - 8);
    }
    model.perf[model.nr_perf++] = nlip;
    if (model.nr_libipt == 64) {
        model.nr_libipt--;
        memmove(model.libipt, model.libipt + 1, sizeof(model.libipt) - 8);
    }
    model.libipt[model.nr_libipt++] = nlip;
}

/* Both must know where to. */
static void model_ret(bool compressed, uint64_t to)
{
    uint64_t perf = model.nr_perf ? model.perf[--model.nr_perf] : 0;

    if (compressed) {
        g_assert_cmphex(perf, ==, to);
        g_assert_cmpuint(model.nr_libipt, >, 0);
        g_assert_cmphex(model.libipt[--model.nr_libipt], ==, to);
    }
}

/* A parser, which knows nothing of the engine */
typedef struct Parser {
    const uint8_t *p, *end;
    uint64_t last_ip;
    int mode;
} Parser;

static uint64_t get(Parser *s, unsigned n)
{
    uint64_t val = 0;

    g_assert_cmpuint(s->end - s->p, >=, n);
    for (unsigned i = 0; i < n; i++) {
        val |= (uint64_t)*s->p++ << 8 * i;
    }
    return val;
}

static uint64_t get_ip(Parser *s, unsigned ip_bytes)
{
    switch (ip_bytes) {
    case 1:
        s->last_ip = (s->last_ip & ~0xffffull) | get(s, 2);
        break;
    case 2:
        s->last_ip = (s->last_ip & ~0xffffffffull) | get(s, 4);
        break;
    case 3:
        s->last_ip = (uint64_t)((int64_t)(get(s, 6) << 16) >> 16);
        break;
    default:
        g_assert_not_reached();
    }
    return s->last_ip;
}

/* PSB+, behind its first two bytes; returns FUP's IP, or PT_NOWHERE. */
static uint64_t parse_psb(Parser *s)
{
    uint64_t ip = PT_NOWHERE;
    bool cbr = false;

    for (unsigned i = 1; i < 8; i++) {
        g_assert_cmphex(get(s, 2), ==, 0x8202);
    }
    s->last_ip = 0;
    s->mode = -1;
    for (;;) {
        uint8_t byte = (uint8_t)get(s, 1);

        if (byte == 0x19) {
            get(s, 7);
        } else if (byte == 0x99) {
            byte = (uint8_t)get(s, 1);
            if (byte != 0x20) {
                s->mode = byte;
            }
        } else if ((byte & 0x1f) == 0x1d) {
            g_assert_cmphex(ip, ==, PT_NOWHERE);
            g_assert_cmphex(byte >> 5, ==, 3);
            ip = get_ip(s, byte >> 5);
        } else {
            g_assert_cmphex(byte, ==, 2);
            byte = (uint8_t)get(s, 1);
            if (byte == 0x43) {
                get(s, 6);
            } else if (byte == 3) {
                g_assert_cmphex(get(s, 2), ==, 0x24);
                cbr = true;
            } else {
                g_assert_cmphex(byte, ==, 0x23);
                g_assert_true(cbr);
                return ip;
            }
        }
    }
}

static void next_item(unsigned *n, char kind, uint64_t val, int exec)
{
    Item *item = &g_array_index(expected, Item, *n);

    g_assert_cmpuint(*n, <, expected->len);
    g_assert_cmpint(kind, ==, item->kind);
    g_assert_cmphex(val, ==, item->val);
    g_assert_cmpint(exec, ==, item->exec);
    (*n)++;
}

static void parse(const uint8_t *p, const uint8_t *end)
{
    Parser s = { p, end, 0, -1 };
    bool bound = false;         /* FUP, and then TIP must come */
    unsigned n = 0;

    while (s.p < s.end) {
        uint8_t byte = (uint8_t)get(&s, 1);

        if (byte == 2) {
            switch (get(&s, 1)) {
            case 0x82:
                g_assert_false(bound);
                next_item(&n, 'B', parse_psb(&s), 0);
                break;
            case 0x43:
                next_item(&n, 'P', get(&s, 6) >> 1 << 5, 0);
                break;
            case 0x03:
                g_assert_cmphex(get(&s, 2), ==, 0x24);
                g_assert_false(bound);
                next_item(&n, 'C', 0, 0);
                break;
            case 0x83:
                g_assert_false(bound);
                next_item(&n, 'S', 0, 0);
                break;
            default:
                g_assert_not_reached();
            }
        } else if (!(byte & 1)) {
            int bit = 7;

            g_assert_false(bound);
            g_assert_cmphex(byte, !=, 0);
            while (!(byte >> bit & 1)) {
                bit--;
            }
            g_assert_cmpint(bit, >=, 2);
            while (--bit) {
                next_item(&n, byte >> bit & 1 ? 'T' : 'N', 0, 0);
            }
        } else if (byte == 0x99) {
            s.mode = (int)get(&s, 1);
            g_assert_cmpint(s.mode, <=, 2);
            g_assert_true((*s.p & 0x1f) == 0x0d || (*s.p & 0x1f) == 0x11);
        } else if (byte == 0x19) {
            g_assert_false(bound);
            g_assert_cmphex(get(&s, 7), ==, now & (~0ull >> 8));
        } else if (byte == 1) {
            next_item(&n, 'd', 0, 0);
            bound = false;
        } else {
            uint64_t ip = get_ip(&s, byte >> 5);

            switch (byte & 0x1f) {
            case 0x0d:
                next_item(&n, 'I', ip, s.mode);
                bound = false;
                break;
            case 0x11:
                g_assert_false(bound);
                next_item(&n, 'E', ip, s.mode);
                break;
            case 0x01:
                next_item(&n, 'D', ip, 0);
                bound = false;
                break;
            case 0x1d:
                g_assert_false(bound);
                next_item(&n, 'F', ip, 0);
                bound = true;
                break;
            default:
                g_assert_not_reached();
            }
        }
    }
    g_assert_cmpuint(n, ==, expected->len);
    g_assert_false(bound);
}

static uint64_t random_ip(GRand *r)
{
    static const uint64_t base[] = { K, K + 0x7f00, K ^ 0x120000, U,
                                     0x7fff12340000 };

    return base[g_rand_int(r) % G_N_ELEMENTS(base)] + g_rand_int(r) % 0x1000;
}

static PtPlace random_place(GRand *r)
{
    return (PtPlace) {
        .ip = random_ip(r), .os = g_rand_boolean(r),
        .cr3 = g_rand_int(r) % 4 ? model.here.cr3 :
               g_rand_boolean(r) ? CR3_A : CR3_B,
        .exec = g_rand_int(r) % 8 ? 1 : (uint8_t)(g_rand_int(r) % 3),
    };
}

static void random_near(GRand *r)
{
    unsigned how = g_rand_int(r) % 8;
    PtPlace to = model.here;
    bool was = model_wanted();

    to.ip = random_ip(r);
    if (how < 4) {              /* a conditional branch */
        bool taken = g_rand_boolean(r);

        if (taken && pt_near_wanted(&state)) {
            model_go(to, 'T', false, false);
            pt_near(&pt, PT_COND, to.ip);
        } else if (pt_packets_wanted(&state)) {
            model.here.ip = to.ip;
            expect_item(taken ? 'T' : 'N', 0, 0);
            if (pt_cond(&pending, taken)) {
                pt_outcomes(&pt, to.ip);
            }
        }
    } else if (how < 6) {       /* CALL */
        if (pt_returns_wanted(&state)) {
            uint64_t nlip = random_ip(r) & ~0xfffull;

            model_call(nlip);
            pt_push(&pending, nlip);
        }
        if (pt_near_wanted(&state)) {
            model_go(to, how == 4 ? 'I' : 0, false, false);
            pt_near(&pt, how == 4 ? PT_INDIRECT : PT_DIRECT, to.ip);
        } else if (how == 4 && pt_packets_wanted(&state)) {
            model.here.ip = to.ip;
            expect_item('I', to.ip, to.exec);
            pt_indirect(&pt, to.ip);
        }
    } else {                    /* RET, mostly to where it should go */
        if (g_rand_int(r) % 16) {
            to.ip = model.nr_perf ? model.perf[model.nr_perf - 1] : to.ip;
        }
        if (pt_near_wanted(&state)) {
            PtPending old = pending;
            bool match = pt_returns_wanted(&state) && pt_ret(&old, to.ip);

            if (was) {
                model_ret(match && model_in(1, to.ip, true) &&
                          !model_in(2, to.ip, false), to.ip);
            }
            model_go(to, match ? 'T' : 'I', false, false);
            pt_near(&pt, PT_RET, to.ip);
        } else if (pt_packets_wanted(&state)) {
            bool match = pt_returns_wanted(&state) && pt_ret(&pending, to.ip);

            model_ret(match, to.ip);
            model.here.ip = to.ip;
            expect_item(match ? 'T' : 'I', match ? 0 : to.ip,
                        match ? 0 : to.exec);
            if (!match) {
                pt_indirect(&pt, to.ip);
            } else if (pt_cond(&pending, true)) {
                pt_outcomes(&pt, to.ip);
            }
        }
    }
}

static void random_op(GRand *r)
{
    unsigned how = g_rand_int(r) % 64;
    PtPlace to = random_place(r);
    uint64_t from = random_ip(r);

    if (how < 50 || !model.on) {
        random_near(r);
    } else if (how < 54) {
        model_go(to, 'I', false, false);
        far(to);
    } else if (how < 60) {
        if (model_wanted()) {
            expect_item('F', from, 0);
        }
        model_go(to, 'I', false, false);
        event(from, to);
    } else if (how < 63) {
        to.os = true;
        to.exec = model.here.exec;
        model_go(to, 0, true, true);
        mov_cr3(to);
    } else {
        uint64_t ctl = state.ctl;

        if (model_wanted()) {
            expect_item('F', K, 0);
            expect_item('d', 0, 0);
        }
        wr(CTL, 0);
        wr(CTL, ctl);
        model.context = model.filter = false;
        model.here.cr3 = to.cr3;
        expect_item('C', 0, 0);
        model_go(to, 0, false, false);
        resume(to);
    }
}

static void random_sequence(GRand *r)
{
    const uint64_t *bits;
    static const uint64_t some[] = {
        OS | USER | BRANCH, USER | BRANCH, OS | BRANCH, OS | USER,
        OS | USER | BRANCH | CR3, OS | USER | BRANCH | CFG(0, 1),
        OS | USER | BRANCH | CFG(0, 1) | CFG(1, 2), USER | BRANCH | CFG(1, 1),
        OS | USER | BRANCH | CFG(0, 1) | CFG(1, 1) | CR3,
    };
    uint32_t first = g_rand_int(r) % 4096;
    const uint8_t *begin = memory + BUFFER + first;
    unsigned pages = (MEMORY - BUFFER) / 4096, pmis = 0;
    uint64_t ctl, end;
    PtPlace next;

    be_skylake();
    for (unsigned i = 0; i < pages; i++) {
        entry(TABLE, i, BUFFER + 4096 * i + (i & 1 ? INT : 0));
    }
    wr(OUTPUT_BASE, TABLE);
    wr(OUTPUT_MASK, (uint64_t)first << 32);
    wr(ADDR(0), K);
    wr(ADDR(1), K + 0x7fff);
    wr(ADDR(2), U + 0x800);
    wr(ADDR(3), U + 0x80f);
    wr(CR3_MATCH, CR3_A);
    bits = &some[g_rand_int(r) % G_N_ELEMENTS(some)];
    ctl = EN | TOPA | *bits | (g_rand_int(r) % 4 ? 0 : DISRETC) |
          (g_rand_int(r) % 4 ? 0 : TSC) | PSB_FREQ(g_rand_int(r) % 2);
    expected = g_array_new(false, false, sizeof(Item));
    memset(&model, 0, sizeof(model));
    model.on = true;
    model.here.cr3 = CR3_A;
    next = random_place(r);
    model.here.cr3 = next.cr3;
    wr(CTL, ctl);
    expect_item('B', PT_NOWHERE, 0);
    model_go(next, 0, false, false);
    resume(next);
    for (unsigned i = 0; i < 6000; i++) {
        uint32_t bytes = state.bytes;

        random_op(r);
        if (state.bytes < bytes) {
            expect_item('B', model_wanted() ? model.here.ip : PT_NOWHERE, 0);
            model.nr_perf = 0;
        }
        g_assert_cmpint(pt_tells(&state), ==, model.on);
        g_assert_cmpint(pt_packets_wanted(&state), ==, model_wanted());
        pmis += state.pmi;
        state.pmi = false;
    }
    pt_settle(&pt);
    pmis += state.pmi;
    g_assert_false(pt_state_bad(&state, &pending, &config));
    end = (state.output_mask >> 7 & 0x1ffffff) * 4096 +
          (state.output_mask >> 32);
    g_assert_cmpuint(pmis, ==, end / 8192);
    parse(begin, memory + BUFFER + end);
    g_array_free(expected, true);
}

static void test_random(void)
{
    g_autoptr(GRand) r = g_rand_new_with_seed(20240607);

    for (unsigned i = 0; i < 200; i++) {
        random_sequence(r);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/pt-engine/config", test_config);
    g_test_add_func("/pt-engine/reset", test_reset);
    g_test_add_func("/pt-engine/msrs", test_msrs);
    g_test_add_func("/pt-engine/msrs-on", test_msrs_on);
    g_test_add_func("/pt-engine/msrs-less", test_msrs_less);
    g_test_add_func("/pt-engine/start", test_start);
    g_test_add_func("/pt-engine/outcomes", test_outcomes);
    g_test_add_func("/pt-engine/ip", test_ip);
    g_test_add_func("/pt-engine/far", test_far);
    g_test_add_func("/pt-engine/event", test_event);
    g_test_add_func("/pt-engine/cr3", test_cr3);
    g_test_add_func("/pt-engine/smi", test_smi);
    g_test_add_func("/pt-engine/no-branches", test_no_branches);
    g_test_add_func("/pt-engine/psb", test_psb);
    g_test_add_func("/pt-engine/returns", test_returns);
    g_test_add_func("/pt-engine/filter", test_filter);
    g_test_add_func("/pt-engine/trace-stop", test_trace_stop);
    g_test_add_func("/pt-engine/single", test_single);
    g_test_add_func("/pt-engine/topa", test_topa);
    g_test_add_func("/pt-engine/topa-stop", test_topa_stop);
    g_test_add_func("/pt-engine/topa-errors", test_topa_errors);
    g_test_add_func("/pt-engine/topa-end-of-table", test_topa_end_of_table);
    g_test_add_func("/pt-engine/topa-one-entry", test_topa_one_entry);
    g_test_add_func("/pt-engine/state", test_state);
    g_test_add_func("/pt-engine/random", test_random);
    return g_test_run();
}
