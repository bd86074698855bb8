/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Unit tests of Instruction-Based Sampling: registers, counters, samples. */

#include <string.h>
#include <glib.h>
#include "ibs.h"

#define MSR(reg)        (IBS_MSR_FIRST + (reg))
#define RUN(max)        ((uint64_t)(max) | IBS_OP_EN)
#define OPS             IBS_OP_CNT_CTL
#define COUNT(n)        ((uint64_t)(n) << IBS_OP_CNT_SHIFT)
#define FETCH(max)      ((uint64_t)(max) | IBS_FETCH_EN)

static IbsState ibs;
static IbsConfig config;

static void be(unsigned family, unsigned model)
{
    g_assert_true(ibs_config_init(&config, family, model));
    ibs_reset(&ibs);
}

static void be_phenom(void)
{
    be(0x10, 2);
}

static void be_zen(void)
{
    be(0x17, 1);
}

static void be_zen4(void)
{
    be(0x19, 0x11);
}

static uint64_t rd(IbsRegister reg)
{
    uint64_t val = 0xbad;

    g_assert_cmpint(ibs_rdmsr(&ibs, &config, MSR(reg), &val), ==, PMU_MSR_OK);
    return val;
}

static void wr(IbsRegister reg, uint64_t val)
{
    g_assert_cmpint(ibs_wrmsr(&ibs, &config, MSR(reg), val), ==, PMU_MSR_OK);
    ibs.started = 0;
}

static bool is_gp(IbsRegister reg)
{
    uint64_t val;
    bool gp = ibs_rdmsr(&ibs, &config, MSR(reg), &val) == PMU_MSR_GP;

    g_assert_cmpint(ibs_wrmsr(&ibs, &config, MSR(reg), 0), ==,
                    gp ? PMU_MSR_GP : PMU_MSR_OK);
    return gp;
}

static uint32_t count_of_ops(void)
{
    return rd(IBS_OP_CTL) >> IBS_OP_CNT_SHIFT;
}

/* The generator, from its state in front of a sample */
static uint32_t next_random(uint32_t *x, unsigned bits)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x >> (32 - bits);
}

static unsigned retire(uint64_t rip, const RetireStory *story)
{
    static const RetireStory plain;
    IbsInsn insn = {
        .story = story ? story : &plain, .rip = rip, .target = 0x7777,
        .has_physical = true, .physical = rip + 0x100000, .lg_page = 12,
    };

    return ibs_retire(&ibs, &config, &insn);
}

/* The op sample of @story, at once */
static void sample(const RetireStory *story)
{
    wr(IBS_OP_CTL, 0);
    wr(IBS_OP_CTL, RUN(1) | COUNT(16));
    g_assert_cmpuint(retire(0x1234, story), ==, IBS_OP);
    g_assert_cmphex(rd(IBS_OP_RIP), ==, 0x1234);
}

static void test_models(void)
{
    static const struct {
        uint8_t family, model;
        uint32_t caps, layout, lvt;
    } models[] = {
        { 0x10, 0x02, 0x1f, IBS_HAS_MISP_RETURN | IBS_HAS_CACHE_HIT_ST |
          IBS_HAS_LOCAL_L3, 1 },
        { 0x12, 0x01, 0xff, IBS_HAS_MISP_RETURN | IBS_HAS_CACHE_HIT_ST, 1 },
        { 0x14, 0x01, 0xff, IBS_HAS_CACHE_HIT_ST, 1 },
        { 0x15, 0x01, 0xff, IBS_HAS_MISP_RETURN | IBS_HAS_CACHE_HIT_ST, 1 },
        { 0x15, 0x10, 0xff, IBS_HAS_CACHE_HIT_ST, 1 },
        { 0x15, 0x30, 0x1ff, IBS_HAS_CACHE_HIT_ST | IBS_HAS_L2_MISS, 1 },
        { 0x15, 0x60, 0x7ff, IBS_HAS_CACHE_HIT_ST | IBS_HAS_L2_MISS |
          IBS_HAS_FETCH_L2_MISS, 1 },
        { 0x16, 0x00, 0x1ff, IBS_HAS_L2_MISS, 1 },
        { 0x17, 0x01, 0x3ff, IBS_HAS_CACHE_HIT_ST | IBS_HAS_L2_MISS |
          IBS_HAS_FETCH_L2_MISS, 0 },
        { 0x18, 0x00, 0x3ff, IBS_HAS_CACHE_HIT_ST | IBS_HAS_L2_MISS |
          IBS_HAS_FETCH_L2_MISS, 0 },
        { 0x19, 0x01, 0x3ff, IBS_HAS_L2_MISS | IBS_HAS_FETCH_L2_MISS |
          IBS_HAS_16K_PAGES, 0 },
        { 0x19, 0x11, 0xbff, IBS_HAS_CACHE_HIT_ST | IBS_HAS_L2_MISS |
          IBS_HAS_FETCH_L2_MISS, 0 },
        { 0x19, 0x21, 0x3ff, IBS_HAS_L2_MISS | IBS_HAS_FETCH_L2_MISS, 0 },
        { 0x19, 0x61, 0xbff, IBS_HAS_CACHE_HIT_ST | IBS_HAS_L2_MISS |
          IBS_HAS_FETCH_L2_MISS, 0 },
        { 0x1a, 0x02, 0xbff, IBS_HAS_CACHE_HIT_ST | IBS_HAS_L2_MISS |
          IBS_HAS_FETCH_L2_MISS, 0 },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(models); i++) {
        be(models[i].family, models[i].model);
        g_assert_cmphex(config.caps, ==, models[i].caps);
        g_assert_cmphex(config.layout, ==, models[i].layout);
        g_assert_cmphex(rd(IBS_CONTROL), ==, 0x100 | models[i].lvt);
    }
    g_assert_false(ibs_config_init(&config, 0xf, 0x48));
    g_assert_false(ibs_config_init(&config, 0x11, 0x3));
    g_assert_cmphex(config.caps, ==, 0);
}

/* Which registers there are follows from the capability word. */
static void test_registers(void)
{
    uint64_t val;

    be_zen4();
    g_assert_cmpint(ibs_rdmsr(&ibs, &config, MSR(-1), &val), ==, PMU_MSR_OTHER);
    g_assert_cmpint(ibs_wrmsr(&ibs, &config, MSR(IBS_NR_REGISTERS), 0), ==,
                    PMU_MSR_OTHER);
    for (unsigned bit = 0; bit < 12; bit++) {
        uint32_t caps = config.caps = 1u << bit;

        for (IbsRegister reg = 0; reg < IBS_NR_REGISTERS; reg++) {
            bool has = reg == IBS_CONTROL ||
                       (reg < IBS_OP_CTL && caps == IBS_CAP_FETCH) ||
                       (reg >= IBS_OP_CTL && reg < IBS_CONTROL &&
                        caps == IBS_CAP_OP) ||
                       (reg == IBS_BR_TARGET && caps == IBS_CAP_BRN_TRGT) ||
                       (reg == IBS_FETCH_CTL_EXT &&
                        caps == IBS_CAP_FETCH_CTL_EXTD) ||
                       (reg == IBS_OP_DATA4 && caps == IBS_CAP_OP_DATA4);

            g_assert_cmpint(is_gp(reg), ==, !has);
        }
    }
    config.caps = 0;
    g_assert_true(is_gp(IBS_CONTROL));
}

/* What is written can be read, but for reserved bits, and nothing faults. */
static void test_bits(void)
{
    static const struct {
        IbsRegister reg;
        uint64_t phenom, bulldozer, zen, zen3, zen4;
    } masks[] = {
        { IBS_FETCH_CTL, 0x03ffffffffffffff, 0x03ffffffffffffff,
          0x07ffffffffffffff, 0x07ffffffffffffff, 0x3fffffffffffffff },
        { IBS_FETCH_LIN_AD, -1, -1, -1, -1, -1 },
        { IBS_FETCH_PHYS_AD, ~0ull >> 12, ~0ull >> 12, ~0ull >> 12, ~0ull >> 12,
          ~0ull >> 12 },
        { IBS_OP_CTL, 0xfffff000effff, 0x7ffffff07feffff, 0x7ffffff07feffff,
          0x7ffffff07feffff, 0x7ffffff07ffffff },
        { IBS_OP_RIP, -1, -1, -1, -1, -1 },
        { IBS_OP_DATA, 0x3fffffffff, 0x7fffffffff, 0x1fcffffffff,
          0x1fcffffffff, 0x1fcffffffff },
        { IBS_OP_DATA2, 0x37, 0x37, 0x37, 0x17, 0xf7 },
        { IBS_OP_DATA3, 0xffff000fffff, 0xffff000fffff, -1, -1, -1 },
        { IBS_DC_LIN_AD, -1, -1, -1, -1, -1 },
        { IBS_DC_PHYS_AD, ~0ull >> 12, ~0ull >> 12, ~0ull >> 12, ~0ull >> 12,
          ~0ull >> 12 },
        { IBS_BR_TARGET, 0, -1, -1, -1, -1 },
        { IBS_FETCH_CTL_EXT, 0, 0, 0xffff, 0xffff, 0xffff },
    };
    static const uint8_t models[][2] = {
        { 0x10, 2 }, { 0x15, 2 }, { 0x17, 1 }, { 0x19, 1 }, { 0x19, 0x11 }
    };

    for (unsigned m = 0; m < G_N_ELEMENTS(models); m++) {
        be(models[m][0], models[m][1]);
        for (unsigned i = 0; i < G_N_ELEMENTS(masks); i++) {
            const uint64_t *mask = &masks[i].phenom;

            if (!mask[m]) {
                g_assert_true(is_gp(masks[i].reg));
                continue;
            }
            wr(masks[i].reg, UINT64_MAX);
            g_assert_cmphex(rd(masks[i].reg), ==, mask[m]);
            wr(masks[i].reg, 0);
            g_assert_cmphex(rd(masks[i].reg), ==, 0);
        }
        wr(IBS_CONTROL, 0);
        g_assert_cmphex(rd(IBS_CONTROL) & 0x100, ==, 0x100);
    }
    be(0x15, 0x60);
    wr(IBS_OP_DATA4, UINT64_MAX);
    g_assert_cmphex(rd(IBS_OP_DATA4), ==, 1);
}

/* Rules 1 to 6, and 15: what starts, where samples are, what CurCnt shows. */
static void test_ops(void)
{
    uint32_t x;

    be_zen();
    x = ibs.random;
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, UINT32_MAX);
    wr(IBS_OP_CTL, RUN(3) | OPS | COUNT(5));
    g_assert_cmpuint(ibs_running(&ibs), ==, IBS_OP);
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 43);
    ibs_count(&ibs, &config, 40);
    g_assert_cmpuint(count_of_ops(), ==, 45);
    g_assert_cmpuint(retire(0x1000, NULL), ==, 0);
    g_assert_cmpuint(retire(0x1001, NULL), ==, 0);
    g_assert_cmpuint(ibs_due(&ibs), ==, 0);
    /* While it runs, it goes on from what is written. */
    wr(IBS_OP_CTL, RUN(3) | OPS | COUNT(2));
    g_assert_cmphex(rd(IBS_OP_CTL), ==, RUN(3) | OPS | COUNT(2));
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 46);
    wr(IBS_OP_CTL, RUN(3) | OPS | COUNT(47));
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 1);
    g_assert_cmpuint(retire(0x1002, NULL), ==, 0);
    g_assert_cmpuint(ibs_due(&ibs), ==, IBS_OP);
    g_assert_cmpuint(retire(0x1003, NULL), ==, IBS_OP);
    g_assert_cmphex(rd(IBS_OP_RIP), ==, 0x1003);
    g_assert_cmphex(rd(IBS_OP_CTL), ==, RUN(3) | OPS | IBS_OP_VAL |
                    COUNT(next_random(&x, 7)));
    /* Everything stands. */
    g_assert_cmpuint(ibs_running(&ibs), ==, 0);
    g_assert_cmpuint(ibs_enabled(&ibs), ==, IBS_OP);
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, UINT32_MAX);
    ibs_count(&ibs, &config, 1000);
    g_assert_cmpuint(retire(0x1004, NULL), ==, 0);
    g_assert_cmpuint(count_of_ops(), ==, x >> 25);
    /* As Linux goes on: one write, En never 0 */
    wr(IBS_OP_CTL, RUN(20) | OPS | COUNT(x >> 25));
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 320 - (x >> 25));
    /* Val alone: neither counts nor loses anything, nor interrupts */
    ibs_count(&ibs, &config, 10);
    wr(IBS_OP_CTL, IBS_OP_VAL | COUNT((x >> 25) + 10));
    ibs_count(&ibs, &config, 10);
    g_assert_cmphex(rd(IBS_OP_CTL), ==, IBS_OP_VAL | COUNT((x >> 25) + 10));
    wr(IBS_OP_CTL, IBS_OP_VAL | IBS_OP_EN | 20 | COUNT(0x55));
    g_assert_cmpuint(ibs_running(&ibs), ==, 0);
    g_assert_cmpuint(count_of_ops(), ==, 0x55);
    wr(IBS_OP_CTL, 20 | COUNT(0x66));
    g_assert_cmphex(rd(IBS_OP_CTL), ==, 20 | COUNT(0x66));
    g_assert_cmphex(rd(IBS_OP_RIP), ==, 0x1003);
}

/* Rules 12 to 14 and 18 */
static void test_ends(void)
{
    be_zen();
    wr(IBS_OP_CTL, RUN(0) | OPS);
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, UINT32_MAX);
    wr(IBS_OP_CTL, 0);
    wr(IBS_OP_CTL, RUN(1) | OPS);
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 16);
    wr(IBS_OP_CTL, 0);
    wr(IBS_OP_CTL, RUN(1) | OPS | COUNT(1000));
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 0);
    g_assert_cmpuint(retire(1, NULL), ==, IBS_OP);
    /* The end has 27 bits, the upper seven at their own weight. */
    wr(IBS_OP_CTL, RUN(0x7f0ffff) | OPS | COUNT(0x7ffffef));
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 1);
    /* Both writes of a stop are quiet. */
    ibs_count(&ibs, &config, 1);
    wr(IBS_OP_CTL, IBS_OP_EN | OPS | COUNT(0x7fffff0));
    g_assert_cmpuint(retire(2, NULL), ==, 0);
    wr(IBS_OP_CTL, OPS | COUNT(0x7fffff0));
    g_assert_cmpuint(retire(3, NULL), ==, 0);
    g_assert_cmpuint(count_of_ops(), ==, 0x7fffff0);
    /* A counter that nobody has looked after stays where it is. */
    wr(IBS_OP_CTL, RUN(0x7f0ffff) | OPS | COUNT(0x7fffff0));
    ibs_count(&ibs, &config, UINT32_MAX);
    g_assert_cmphex(count_of_ops(), ==, 0x7ffffff);

    be_phenom();
    wr(IBS_OP_CTL, RUN(0x7f0ffff) | OPS | COUNT(0xffffffff));
    g_assert_cmphex(rd(IBS_OP_CTL), ==, RUN(0xffff) | OPS | COUNT(0xfffff));
    config.caps &= ~IBS_CAP_RD_WR_OP_CNT;
    wr(IBS_OP_CTL, 0);
    wr(IBS_OP_CTL, RUN(1) | OPS | COUNT(15));
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 16);
    ibs_count(&ibs, &config, 3);
    wr(IBS_OP_CTL, RUN(1) | OPS | COUNT(15));
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 13);
    g_assert_cmphex(rd(IBS_OP_CTL), ==, RUN(1) | OPS);
    config.caps &= ~IBS_CAP_OP_CNT;
    wr(IBS_OP_CTL, OPS);
    g_assert_cmphex(rd(IBS_OP_CTL), ==, 0);
}

/* By cycles, the first op at or behind the end. */
static void test_cycles(void)
{
    be_zen();
    config.insn_clocks = 5;
    wr(IBS_OP_CTL, RUN(1));
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 4);
    ibs_count(&ibs, &config, 3);
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 1);
    g_assert_cmpuint(retire(1, NULL), ==, 0);
    g_assert_cmpuint(retire(2, NULL), ==, IBS_OP);
    g_assert_cmphex(rd(IBS_OP_DATA), ==, 5 << 16 | 1);
}

/* Rule 8, 9 and 1: fetches have a counter of their own. */
static void test_fetch(void)
{
    uint32_t x;

    be_zen();
    x = ibs.random;
    wr(IBS_FETCH_CTL, FETCH(2) | 1 << IBS_FETCH_CNT_SHIFT);
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 16);
    wr(IBS_OP_CTL, RUN(1) | OPS | COUNT(6));
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 10);
    ibs_count(&ibs, &config, 10);
    g_assert_cmpuint(retire(0x1000, NULL), ==, IBS_OP);
    next_random(&x, 7);
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 5);
    ibs_count(&ibs, &config, 5);
    g_assert_cmpuint(retire(0x2000, NULL), ==, IBS_FETCH);
    g_assert_cmphex(rd(IBS_FETCH_CTL), ==, FETCH(2) | IBS_FETCH_VAL |
                    2 << IBS_FETCH_CNT_SHIFT | IBS_FETCH_COMP |
                    IBS_FETCH_PHYS_VALID);
    g_assert_cmphex(rd(IBS_FETCH_LIN_AD), ==, 0x2000);
    g_assert_cmphex(rd(IBS_FETCH_PHYS_AD), ==, 0x102000);
    g_assert_cmphex(rd(IBS_OP_RIP), ==, 0x1000);
    /* Bits 19:4 can be written at any time, and 3:0 are as they were. */
    wr(IBS_FETCH_CTL, FETCH(2));
    ibs_count(&ibs, &config, 5);
    wr(IBS_FETCH_CTL, FETCH(2) | 1 << IBS_FETCH_CNT_SHIFT);
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 11);
    wr(IBS_FETCH_CTL, 2 | 7 << IBS_FETCH_CNT_SHIFT);
    g_assert_cmphex(rd(IBS_FETCH_CTL), ==, 2 | 7 << IBS_FETCH_CNT_SHIFT);
    /* En need not be 0 in between, but may. */
    wr(IBS_FETCH_CTL, FETCH(1) | IBS_FETCH_RAND_EN);
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 16 - next_random(&x, 4));
    wr(IBS_FETCH_CTL, 0);
    wr(IBS_FETCH_CTL, FETCH(1) | IBS_FETCH_RAND_EN);
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 16 - next_random(&x, 4));
    wr(IBS_FETCH_CTL, FETCH(0));
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, UINT32_MAX);
    wr(IBS_FETCH_CTL, 0);
    wr(IBS_FETCH_CTL, FETCH(1) | 3 << IBS_FETCH_CNT_SHIFT);
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 0);
    /* Both at once */
    wr(IBS_OP_CTL, RUN(1) | OPS | COUNT(16));
    g_assert_cmpuint(retire(1, NULL), ==, IBS_FETCH | IBS_OP);
}

static void test_fetch_pages(void)
{
    static const struct {
        uint8_t family, model, lg_page, code;
    } pages[] = {
        { 0x17, 1, 12, 0 }, { 0x17, 1, 21, 1 }, { 0x17, 1, 30, 2 },
        { 0x19, 1, 12, 0 }, { 0x19, 1, 21, 2 }, { 0x19, 1, 30, 3 },
        { 0x19, 0x11, 21, 1 },
    };
    const RetireStory story = { };

    for (unsigned i = 0; i < G_N_ELEMENTS(pages); i++) {
        IbsInsn insn = {
            .story = &story, .has_physical = true,
            .lg_page = pages[i].lg_page
        };

        be(pages[i].family, pages[i].model);
        wr(IBS_FETCH_CTL, FETCH(1) | 1 << IBS_FETCH_CNT_SHIFT);
        g_assert_cmpuint(ibs_retire(&ibs, &config, &insn), ==, IBS_FETCH);
        g_assert_cmphex(rd(IBS_FETCH_CTL) >> IBS_FETCH_PAGE_SHIFT & 3, ==,
                        pages[i].code);
        insn.has_physical = false;
        wr(IBS_FETCH_CTL, FETCH(1) | 1 << IBS_FETCH_CNT_SHIFT);
        g_assert_cmpuint(ibs_retire(&ibs, &config, &insn), ==, IBS_FETCH);
        g_assert_cmphex(rd(IBS_FETCH_CTL) & IBS_FETCH_PHYS_VALID, ==, 0);
        g_assert_cmphex(rd(IBS_FETCH_PHYS_AD), ==, 0);
    }
    for (unsigned i = 0; i < 6; i++) {
        static const uint64_t bits[] = {
            [RETIRE_TLB_L2] = IBS_FETCH_L1TLB_MISS,
            [RETIRE_TLB_WALK] = IBS_FETCH_L1TLB_MISS | IBS_FETCH_L2TLB_MISS,
        };
        const IbsInsn insn = {
            .story = &story, .fetch_missed = i & 1, .fetch_tlb = i / 2
        };

        wr(IBS_FETCH_CTL, FETCH(1) | 1 << IBS_FETCH_CNT_SHIFT);
        g_assert_cmpuint(ibs_retire(&ibs, &config, &insn), ==, IBS_FETCH);
        g_assert_cmphex(rd(IBS_FETCH_CTL) &
                        (IBS_FETCH_IC_MISS | bits[RETIRE_TLB_WALK]), ==,
                        (i & 1 ? IBS_FETCH_IC_MISS : 0) | bits[i / 2]);
    }
    /* No fetch misses L3. */
    wr(IBS_FETCH_CTL, FETCH(1) | 1 << IBS_FETCH_CNT_SHIFT |
       IBS_FETCH_L3_MISS_ONLY);
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, UINT32_MAX);
    g_assert_cmpuint(retire(1, NULL), ==, 0);
}

/* Rule 7, and instructions of which nobody knows where they are */
static void test_no_op(void)
{
    uint32_t x;

    be_zen();
    wr(IBS_OP_CTL, RUN(2) | OPS | COUNT(30));
    ibs_squash(&ibs, &config);
    g_assert_cmpuint(count_of_ops(), ==, 30);
    ibs_count(&ibs, &config, 2);
    g_assert_cmpuint(ibs_retire(&ibs, &config, NULL), ==, 0);
    g_assert_cmpuint(ibs_due(&ibs), ==, IBS_OP);
    x = ibs.random;
    ibs_squash(&ibs, &config);
    g_assert_cmpuint(count_of_ops(), ==, next_random(&x, 7));
    /* A known period for tests */
    config.random = false;
    for (int i = 0; i < 2; i++) {
        wr(IBS_OP_CTL, RUN(2) | OPS | COUNT(32));
        g_assert_cmpuint(retire(1, NULL), ==, IBS_OP);
        g_assert_cmpuint(count_of_ops(), ==, 0);
    }
    wr(IBS_FETCH_CTL, FETCH(1) | IBS_FETCH_RAND_EN);
    g_assert_cmpuint(ibs_distance(&ibs, &config), ==, 16);
}

/* WRMSR is not one of the ops behind it, but one of others. */
static void test_started(void)
{
    be_zen();
    wr(IBS_FETCH_CTL, FETCH(2));
    ibs_wrmsr(&ibs, &config, MSR(IBS_OP_CTL), RUN(1) | OPS | COUNT(16));
    g_assert_cmpuint(retire(1, NULL), ==, 0);
    g_assert_cmpuint(count_of_ops(), ==, 16);
    g_assert_cmpuint(ibs.fetch_count, ==, 1);
    g_assert_cmpuint(retire(2, NULL), ==, IBS_OP);
    ibs_wrmsr(&ibs, &config, MSR(IBS_FETCH_CTL), 0);
    ibs_wrmsr(&ibs, &config, MSR(IBS_FETCH_CTL), FETCH(2));
    g_assert_cmpuint(retire(3, NULL), ==, 0);
    g_assert_cmpuint(ibs.fetch_count, ==, 0);
}

static void test_branches(void)
{
    static const struct {
        RetireStory story;
        uint64_t data, target;
    } cases[] = {
        { { .branch = RETIRE_BRANCH_COND }, 0, 0 },
        { { .branch = RETIRE_BRANCH_COND, .taken = true }, IBS_DATA_TAKEN,
          0x7777 },
        { { .branch = RETIRE_BRANCH_COND, .mispredicted = true },
          IBS_DATA_MISPREDICTED, 0 },
        { { .branch = RETIRE_BRANCH_JMP, .taken = true }, IBS_DATA_TAKEN,
          0x7777 },
        { { .branch = RETIRE_BRANCH_CALL_ABS, .taken = true,
            .mispredicted = true },
          IBS_DATA_TAKEN | IBS_DATA_MISPREDICTED, 0x7777 },
        { { .branch = RETIRE_BRANCH_RET, .taken = true },
          IBS_DATA_TAKEN | IBS_DATA_RETURN, 0x7777 },
        { { .is_far = true }, IBS_DATA_TAKEN, 0x7777 },
    };
    const RetireStory ret = {
        .branch = RETIRE_BRANCH_RET, .taken = true, .mispredicted = true
    };

    be_zen();
    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        sample(&cases[i].story);
        g_assert_cmphex(rd(IBS_OP_DATA), ==,
                        0x10001 | IBS_DATA_BRANCH | cases[i].data);
        g_assert_cmphex(rd(IBS_BR_TARGET), ==, cases[i].target);
    }
    /* What was there is gone. */
    sample(NULL);
    g_assert_cmphex(rd(IBS_OP_DATA), ==, 0x10001);
    g_assert_cmphex(rd(IBS_BR_TARGET), ==, 0);
    be_phenom();
    sample(&ret);
    g_assert_cmphex(rd(IBS_OP_DATA), ==, 0x10001 | IBS_DATA_BRANCH |
                    IBS_DATA_TAKEN | IBS_DATA_RETURN | IBS_DATA_MISPREDICTED |
                    IBS_DATA_MISP_RETURN);
    g_assert_cmphex(ibs.reg[IBS_BR_TARGET], ==, 0);
}

static void test_accesses(void)
{
    static const struct {
        RetireAccess a;
        uint64_t data3, data2, phenom2, milan2, zen42;
    } cases[] = {
        { { .load = true, .source = RETIRE_SOURCE_L1, .size = 8 },
          IBS_DATA3_LOAD | 4 << IBS_DATA3_WIDTH_SHIFT, 0, 0, 0, 0 },
        { { .store = true, .source = RETIRE_SOURCE_UNKNOWN, .size = 1 },
          IBS_DATA3_STORE | 1 << IBS_DATA3_WIDTH_SHIFT, 0, 0, 0, 0 },
        { { .load = true, .store = true, .locked = true, .split = true,
            .source = RETIRE_SOURCE_L2, .clocks = 20, .size = 16 },
          IBS_DATA3_LOAD | IBS_DATA3_STORE | IBS_DATA3_LOCKED |
          IBS_DATA3_MISALIGNED | IBS_DATA3_DC_MISS | 20ull << 32 |
          5 << IBS_DATA3_WIDTH_SHIFT, 0, 0, 0, 0 },
        { { .load = true, .source = RETIRE_SOURCE_L3, .clocks = 60,
            .size = 10 },
          IBS_DATA3_LOAD | IBS_DATA3_DC_MISS | IBS_DATA3_L2_MISS | 60ull << 32,
          0x22, 0x21, 2, 0x21 },
        { { .load = true, .source = RETIRE_SOURCE_REMOTE, .clocks = 120 },
          IBS_DATA3_LOAD | IBS_DATA3_DC_MISS | IBS_DATA3_L2_MISS | 120ull << 32,
          0x22, 0x22, 2, 0x21 },
        { { .load = true, .source = RETIRE_SOURCE_REMOTE, .modified = true },
          IBS_DATA3_LOAD | IBS_DATA3_DC_MISS | IBS_DATA3_L2_MISS,
          2, 2, 2, 1 },
        { { .load = true, .source = RETIRE_SOURCE_DRAM, .clocks = 1000000 },
          IBS_DATA3_LOAD | IBS_DATA3_DC_MISS | IBS_DATA3_L2_MISS |
          0xffffull << 32, 3, 3, 3, 3 },
        { { .load = true, .source = RETIRE_SOURCE_OTHER },
          IBS_DATA3_LOAD | IBS_DATA3_DC_MISS | IBS_DATA3_L2_MISS |
          IBS_DATA3_UC, 7, 7, 7, 7 },
        { { .store = true, .source = RETIRE_SOURCE_OTHER },
          IBS_DATA3_STORE | IBS_DATA3_DC_MISS | IBS_DATA3_L2_MISS |
          IBS_DATA3_UC, 0, 0, 0, 0 },
        { { .store = true, .source = RETIRE_SOURCE_DRAM },
          IBS_DATA3_STORE | IBS_DATA3_DC_MISS | IBS_DATA3_L2_MISS,
          0, 0, 0, 0 },
        { { .load = true, .source = RETIRE_SOURCE_L1, .lg_page = 21 },
          IBS_DATA3_LOAD | IBS_DATA3_L1TLB_2M, 0, 0, 0, 0 },
        { { .load = true, .source = RETIRE_SOURCE_L1, .lg_page = 30 },
          IBS_DATA3_LOAD | IBS_DATA3_L1TLB_1G, 0, 0, 0, 0 },
        { { .load = true, .source = RETIRE_SOURCE_L1, .lg_page = 12,
            .tlb = RETIRE_TLB_L2 },
          IBS_DATA3_LOAD | IBS_DATA3_L1TLB_MISS, 0, 0, 0, 0 },
        { { .load = true, .source = RETIRE_SOURCE_L1, .lg_page = 21,
            .tlb = RETIRE_TLB_L2 },
          IBS_DATA3_LOAD | IBS_DATA3_L1TLB_MISS | IBS_DATA3_L2TLB_2M,
          0, 0, 0, 0 },
        { { .load = true, .source = RETIRE_SOURCE_L1, .lg_page = 30,
            .tlb = RETIRE_TLB_L2 },
          IBS_DATA3_LOAD | IBS_DATA3_L1TLB_MISS | IBS_DATA3_L2TLB_1G,
          0, 0, 0, 0 },
        { { .load = true, .source = RETIRE_SOURCE_L1, .lg_page = 30,
            .tlb = RETIRE_TLB_WALK },
          IBS_DATA3_LOAD | IBS_DATA3_L1TLB_MISS | IBS_DATA3_L2TLB_MISS,
          0, 0, 0, 0 },
    };
    static const uint8_t models[][2] = {
        { 0x17, 1 }, { 0x10, 2 }, { 0x19, 1 }, { 0x19, 0x11 }
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        RetireAccess a = cases[i].a;
        const RetireStory story = { .access = &a, .nr_accesses = 1 };
        uint64_t clocks = 1 + a.clocks;

        a.addr = 0xffff800000001234;
        a.physical = 0x56789;
        for (unsigned m = 0; m < G_N_ELEMENTS(models); m++) {
            uint64_t mask = m == 1 ? 0xffff000fffff : UINT64_MAX;

            be(models[m][0], models[m][1]);
            sample(&story);
            g_assert_cmphex(rd(IBS_OP_DATA3), ==,
                            (cases[i].data3 | IBS_DATA3_LIN_VALID |
                             IBS_DATA3_PHYS_VALID) & mask);
            g_assert_cmphex(rd(IBS_OP_DATA2), ==, (&cases[i].data2)[m]);
            g_assert_cmphex(rd(IBS_DC_LIN_AD), ==, a.addr);
            g_assert_cmphex(rd(IBS_DC_PHYS_AD), ==, a.physical);
            g_assert_cmphex(rd(IBS_OP_DATA), ==,
                            MIN(clocks, 0xffff) << 16 | 1);
        }
        /* And then one without */
        sample(NULL);
        g_assert_cmphex(rd(IBS_OP_DATA3), ==, 0);
        g_assert_cmphex(rd(IBS_OP_DATA2), ==, 0);
        g_assert_cmphex(rd(IBS_DC_LIN_AD), ==, 0);
        g_assert_cmphex(rd(IBS_DC_PHYS_AD), ==, 0);
    }
}

/* The first load, or else the first store */
static void test_several(void)
{
    const RetireAccess a[RETIRE_STORY_ACCESSES] = {
        { .store = true, .addr = 0x10, .size = 4, .source = RETIRE_SOURCE_L1 },
        { .load = true, .addr = 0x20, .size = 2, .source = RETIRE_SOURCE_L2,
          .clocks = 20 },
        { .load = true, .addr = 0x30, .size = 8, .source = RETIRE_SOURCE_DRAM,
          .clocks = 200 },
        { .store = true, .addr = 0x40, .size = 8, .source = RETIRE_SOURCE_L1 },
    };
    RetireStory story = { .access = a, .nr_accesses = 100 };

    be_zen();
    sample(&story);
    g_assert_cmphex(rd(IBS_DC_LIN_AD), ==, 0x20);
    g_assert_cmphex(rd(IBS_OP_DATA3), ==, IBS_DATA3_LOAD | IBS_DATA3_STORE |
                    IBS_DATA3_LIN_VALID | IBS_DATA3_PHYS_VALID |
                    IBS_DATA3_DC_MISS | 20ull << 32 |
                    2 << IBS_DATA3_WIDTH_SHIFT);
    g_assert_cmphex(rd(IBS_OP_DATA), ==, 221 << 16 | 1);
    story.nr_accesses = 1;
    sample(&story);
    g_assert_cmphex(rd(IBS_DC_LIN_AD), ==, 0x10);
    g_assert_cmphex(rd(IBS_OP_DATA3) & 0xf, ==, IBS_DATA3_STORE);
}

/* Rule 10 */
static void test_l3_miss_only(void)
{
    RetireAccess a = { .load = true, .source = RETIRE_SOURCE_REMOTE };
    const RetireStory story = { .access = &a, .nr_accesses = 1 };
    uint64_t ctl = RUN(0x100) | OPS | IBS_OP_L3_MISS_ONLY | COUNT(0x1000);
    uint32_t x;

    be_zen4();
    x = ibs.random;
    wr(IBS_OP_RIP, 0x55);
    wr(IBS_OP_CTL, ctl);
    g_assert_cmpuint(retire(1, NULL), ==, 0);
    g_assert_cmpuint(count_of_ops(), ==, next_random(&x, 7));
    g_assert_cmpuint(ibs_running(&ibs), ==, IBS_OP);
    wr(IBS_OP_CTL, 0);
    wr(IBS_OP_CTL, ctl);
    g_assert_cmpuint(retire(2, &story), ==, 0);
    g_assert_cmphex(rd(IBS_OP_RIP), ==, 0x55);
    a.source = RETIRE_SOURCE_DRAM;
    wr(IBS_OP_CTL, 0);
    wr(IBS_OP_CTL, ctl);
    g_assert_cmpuint(retire(3, &story), ==, IBS_OP);
    g_assert_cmphex(rd(IBS_OP_RIP), ==, 3);
    be_zen();
    wr(IBS_OP_CTL, ctl);
    g_assert_cmpuint(retire(1, NULL), ==, IBS_OP);
}

/* Rule 19 */
static void test_init(void)
{
    be_zen4();
    wr(IBS_FETCH_CTL, FETCH(7) | 5 << IBS_FETCH_CNT_SHIFT);
    wr(IBS_OP_CTL, RUN(9) | COUNT(100));
    wr(IBS_OP_RIP, 0x1234);
    ibs.random = 77;
    ibs_init(&ibs);
    g_assert_cmphex(rd(IBS_FETCH_CTL), ==, 7 | 5 << IBS_FETCH_CNT_SHIFT);
    g_assert_cmphex(rd(IBS_OP_CTL), ==, 9 | COUNT(100));
    g_assert_cmphex(rd(IBS_OP_RIP), ==, 0x1234);
    g_assert_cmpuint(ibs.random, ==, 77);
    ibs_reset(&ibs);
    g_assert_cmphex(rd(IBS_OP_RIP), ==, 0);
}

static void test_incoming(void)
{
    be_zen();
    g_assert_true(ibs_state_valid(&ibs, &config));
    ibs.reg[IBS_OP_DATA2] = 0xff;
    g_assert_false(ibs_state_valid(&ibs, &config));
    ibs_reset(&ibs);
    ibs.reg[IBS_CONTROL] = 1;
    g_assert_false(ibs_state_valid(&ibs, &config));
    ibs_reset(&ibs);
    ibs.random = 0;
    g_assert_false(ibs_state_valid(&ibs, &config));
    ibs_reset(&ibs);
    ibs.op_count = 1 << 27;
    g_assert_false(ibs_state_valid(&ibs, &config));
    ibs_reset(&ibs);
    ibs.fetch_count = 1 << 20;
    g_assert_false(ibs_state_valid(&ibs, &config));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ibs/models", test_models);
    g_test_add_func("/ibs/registers", test_registers);
    g_test_add_func("/ibs/bits", test_bits);
    g_test_add_func("/ibs/ops", test_ops);
    g_test_add_func("/ibs/ends", test_ends);
    g_test_add_func("/ibs/cycles", test_cycles);
    g_test_add_func("/ibs/fetch", test_fetch);
    g_test_add_func("/ibs/fetch-pages", test_fetch_pages);
    g_test_add_func("/ibs/no-op", test_no_op);
    g_test_add_func("/ibs/started", test_started);
    g_test_add_func("/ibs/branches", test_branches);
    g_test_add_func("/ibs/accesses", test_accesses);
    g_test_add_func("/ibs/several", test_several);
    g_test_add_func("/ibs/l3-miss-only", test_l3_miss_only);
    g_test_add_func("/ibs/init", test_init);
    g_test_add_func("/ibs/incoming", test_incoming);
    return g_test_run();
}
