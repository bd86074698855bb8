/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Instruction-Based Sampling: see ibs.h. */

#include "ibs.h"

#define RANDOM_SEED     0x49425321u
#define PHYSICAL        0x000fffffffffffffull

/*
 * The capability words are AMD's BKDGs' and PPRs'.  CPUID dumps in public agree
 * for family 12h, model 1, 15h up to model 2Fh, 17h and 18h, and boot logs of
 * Linux for 10h.  One source only: families 14h and 16h, 15h from model 30h on,
 * 19h, and 1Ah, which has more (bits 12 and 19).  The fields that @layout is
 * about are in Linux' asm/amd-ibs.h, and those of one family only in perf's
 * amd-sample-raw.c or AMD's IBS toolkit; the entry of the LVT is what Linux
 * logs ("LVT offset 1 assigned") on 10h and 15h, and from 17h on 0.
 */
bool ibs_config_init(IbsConfig *config, unsigned family, unsigned model)
{
    bool zen3 = family == 0x19 && (model < 0x10 ||
                                   (model >= 0x20 && model < 0x60));
    uint32_t caps;

    *config = (IbsConfig) { };
    switch (family) {
    case 0x10:
        caps = 0x1f;
        break;
    case 0x12:
    case 0x14:
        caps = 0xff;
        break;
    case 0x15:
        caps = model < 0x30 ? 0xff : model < 0x60 ? 0x1ff : 0x7ff;
        break;
    case 0x16:
        caps = 0x1ff;
        break;
    case 0x17:
    case 0x18:
        caps = 0x3ff;
        break;
    case 0x19:
    case 0x1a:
        caps = zen3 ? 0x3ff : 0x3ff | IBS_CAP_ZEN4;
        break;
    default:
        return false;
    }
    config->caps = caps;
    config->insn_clocks = 1;
    config->random = true;
    config->lvt = family < 0x17;
    if (family >= 0x16 || (family == 0x15 && model >= 0x30)) {
        config->layout |= IBS_HAS_L2_MISS;
    }
    if (family == 0x10 || family == 0x12 || (family == 0x15 && model < 0x10)) {
        config->layout |= IBS_HAS_MISP_RETURN;
    }
    if (family != 0x16 && !zen3) {
        config->layout |= IBS_HAS_CACHE_HIT_ST;
    }
    if (family >= 0x17 || (family == 0x15 && model >= 0x60)) {
        config->layout |= IBS_HAS_FETCH_L2_MISS;
    }
    if (family == 0x19 && model < 0x10) {
        config->layout |= IBS_HAS_16K_PAGES;
    }
    if (family == 0x10) {
        config->layout |= IBS_HAS_LOCAL_L3;
    }
    return true;
}

void ibs_reset(IbsState *s)
{
    *s = (IbsState) { .random = RANDOM_SEED };
}

/* Registers are kept; nothing may come of them. */
void ibs_init(IbsState *s)
{
    IbsState old = *s;

    ibs_reset(s);
    memcpy(s->reg, old.reg, sizeof(s->reg));
    s->reg[IBS_FETCH_CTL] &= ~IBS_FETCH_EN;
    s->reg[IBS_OP_CTL] &= ~IBS_OP_EN;
    s->fetch_count = old.fetch_count;
    s->op_count = old.op_count;
    s->random = old.random;
}

/* @bits of Marsaglia's xorshift */
static uint32_t randomize(IbsState *s, const IbsConfig *config, unsigned bits)
{
    if (!config->random) {
        return 0;
    }
    s->random ^= s->random << 13;
    s->random ^= s->random >> 17;
    s->random ^= s->random << 5;
    return s->random >> (32 - bits);
}

/*
 * Registers
 */

static uint32_t op_count_mask(const IbsConfig *config)
{
    return config->caps & IBS_CAP_OP_CNT_EXT ? 0x7ffffff : 0xfffff;
}

/*
 * What of the capability word brings a register, and its bits that are stored:
 * counters are elsewhere.
 */
static const struct {
    uint32_t needs;
    uint64_t mask;
} registers[IBS_NR_REGISTERS] = {
    [IBS_FETCH_CTL] = { IBS_CAP_FETCH, 0x03ffffff0000ffffull },
    [IBS_FETCH_LIN_AD] = { IBS_CAP_FETCH, UINT64_MAX },
    [IBS_FETCH_PHYS_AD] = { IBS_CAP_FETCH, PHYSICAL },
    [IBS_OP_CTL] = { IBS_CAP_OP, 0xffff | IBS_OP_EN | IBS_OP_VAL },
    [IBS_OP_RIP] = { IBS_CAP_OP, UINT64_MAX },
    [IBS_OP_DATA] = { IBS_CAP_OP, 0x3cffffffffull },
    [IBS_OP_DATA2] = { IBS_CAP_OP, 0x17 },
    [IBS_OP_DATA3] = { IBS_CAP_OP, 0xffff000fffffull },
    [IBS_DC_LIN_AD] = { IBS_CAP_OP, UINT64_MAX },
    [IBS_DC_PHYS_AD] = { IBS_CAP_OP, PHYSICAL },
    [IBS_CONTROL] = { UINT32_MAX, 0 },
    [IBS_BR_TARGET] = { IBS_CAP_BRN_TRGT, UINT64_MAX },
    [IBS_FETCH_CTL_EXT] = { IBS_CAP_FETCH_CTL_EXTD, 0xffff },
    [IBS_OP_DATA4] = { IBS_CAP_OP_DATA4, 1 },
};

static bool has_register(const IbsConfig *config, unsigned reg)
{
    return config->caps & registers[reg].needs;
}

/* That mask, with what some processors have beside it */
static uint64_t register_mask(const IbsConfig *config, unsigned reg)
{
    bool zen4 = config->caps & IBS_CAP_ZEN4;
    uint64_t mask = registers[reg].mask;

    if (!has_register(config, reg)) {
        return 0;
    }
    switch (reg) {
    case IBS_FETCH_CTL:
        mask |= config->layout & IBS_HAS_FETCH_L2_MISS ? IBS_FETCH_L2_MISS : 0;
        mask |= zen4 ? IBS_FETCH_L3_MISS_ONLY | IBS_FETCH_OC_MISS |
                       IBS_FETCH_L3_MISS : 0;
        break;
    case IBS_OP_CTL:
        mask |= zen4 ? IBS_OP_L3_MISS_ONLY : 0;
        mask |= config->caps & IBS_CAP_OP_CNT ? IBS_OP_CNT_CTL : 0;
        mask |= config->caps & IBS_CAP_OP_CNT_EXT ? IBS_OP_MAX_EXT : 0;
        break;
    case IBS_OP_DATA:
        mask |= config->layout & IBS_HAS_MISP_RETURN ? 3ull << 32 : 0;
        mask |= config->caps & IBS_CAP_RIP_INVALID ? 1ull << 38 : 0;
        mask |= config->caps & IBS_CAP_OP_BRN_FUSE ? 3ull << 39 : 0;
        break;
    case IBS_OP_DATA2:
        mask |= zen4 ? 0xc0 : 0;
        mask |= config->layout & IBS_HAS_CACHE_HIT_ST ?
                IBS_DATA2_CACHE_HIT_ST : 0;
        break;
    case IBS_OP_DATA3:
        mask |= config->layout & IBS_HAS_L2_MISS ? UINT64_MAX : 0;
        break;
    }
    return mask;
}

static PmuAccess find_register(const IbsConfig *config, unsigned reg)
{
    return reg >= IBS_NR_REGISTERS ? PMU_MSR_OTHER :
           has_register(config, reg) ? PMU_MSR_OK : PMU_MSR_GP;
}

PmuAccess ibs_rdmsr(const IbsState *s, const IbsConfig *config, uint32_t msr,
                       uint64_t *val)
{
    uint32_t reg = msr - IBS_MSR_FIRST;
    PmuAccess access = find_register(config, reg);

    if (access != PMU_MSR_OK) {
        return access;
    }
    *val = s->reg[reg];
    if (reg == IBS_CONTROL) {
        *val = 1u << 8 | config->lvt;
    } else if (reg == IBS_FETCH_CTL) {
        *val |= (s->fetch_count >> 4) << IBS_FETCH_CNT_SHIFT;
    } else if (reg == IBS_OP_CTL && (config->caps & IBS_CAP_RD_WR_OP_CNT)) {
        *val |= (uint64_t)s->op_count << IBS_OP_CNT_SHIFT;
    }
    return PMU_MSR_OK;
}

/* Whether a counter runs, unless its end is 0. */
static bool is_on(uint64_t ctl, uint64_t en, uint64_t val)
{
    return (ctl & (en | val)) == en;
}

/*
 * What is written to the counters can be read at any time, and is where they go
 * on.  When one starts, what cannot be written is random, or 0.
 */
static void write_fetch_count(IbsState *s, const IbsConfig *config,
                              uint64_t old, uint64_t val)
{
    bool on = is_on(val, IBS_FETCH_EN, IBS_FETCH_VAL);
    uint32_t low = s->fetch_count & 15;

    if (on && !is_on(old, IBS_FETCH_EN, IBS_FETCH_VAL)) {
        low = val & IBS_FETCH_RAND_EN ? randomize(s, config, 4) : 0;
    }
    s->fetch_count = (uint32_t)(val >> IBS_FETCH_CNT_SHIFT & 0xffff) << 4 | low;
    s->started |= on ? IBS_FETCH : 0;
}

static void write_op_count(IbsState *s, const IbsConfig *config, uint64_t old,
                           uint64_t val)
{
    bool on = is_on(val, IBS_OP_EN, IBS_OP_VAL);

    if (config->caps & IBS_CAP_RD_WR_OP_CNT) {
        s->op_count = (uint32_t)(val >> IBS_OP_CNT_SHIFT) &
                      op_count_mask(config);
    } else if (on && !is_on(old, IBS_OP_EN, IBS_OP_VAL)) {
        s->op_count = 0;
    } else {
        return;
    }
    s->started |= on ? IBS_OP : 0;
}

PmuAccess ibs_wrmsr(IbsState *s, const IbsConfig *config, uint32_t msr,
                       uint64_t val)
{
    uint32_t reg = msr - IBS_MSR_FIRST;
    PmuAccess access = find_register(config, reg);
    uint64_t old;

    if (access != PMU_MSR_OK) {
        return access;
    }
    old = s->reg[reg];
    s->reg[reg] = val & register_mask(config, reg);
    if (reg == IBS_FETCH_CTL) {
        write_fetch_count(s, config, old, val);
    } else if (reg == IBS_OP_CTL) {
        write_op_count(s, config, old, val);
    }
    return PMU_MSR_OK;
}

/*
 * Counters
 */

static uint32_t fetch_end(const IbsState *s)
{
    return (uint32_t)(s->reg[IBS_FETCH_CTL] & 0xffff) << 4;
}

static uint32_t op_end(const IbsState *s)
{
    return (uint32_t)(s->reg[IBS_OP_CTL] & 0xffff) << 4 |
           (s->reg[IBS_OP_CTL] & IBS_OP_MAX_EXT);
}

unsigned ibs_enabled(const IbsState *s)
{
    return (s->reg[IBS_FETCH_CTL] & IBS_FETCH_EN ? IBS_FETCH : 0) |
           (s->reg[IBS_OP_CTL] & IBS_OP_EN ? IBS_OP : 0);
}

unsigned ibs_running(const IbsState *s)
{
    unsigned running = ibs_enabled(s);

    if ((s->reg[IBS_FETCH_CTL] & IBS_FETCH_VAL) || !fetch_end(s)) {
        running &= ~IBS_FETCH;
    }
    if ((s->reg[IBS_OP_CTL] & IBS_OP_VAL) || !op_end(s)) {
        running &= ~IBS_OP;
    }
    return running;
}

/* How much an instruction adds to the counter of ops. */
static uint32_t op_step(const IbsState *s, const IbsConfig *config)
{
    return s->reg[IBS_OP_CTL] & IBS_OP_CNT_CTL ? 1 : config->insn_clocks;
}

uint32_t ibs_distance(const IbsState *s, const IbsConfig *config)
{
    unsigned running = ibs_running(s);
    uint32_t distance = UINT32_MAX;

    /* No fetch misses L3: that is not modelled. */
    if ((running & IBS_FETCH) &&
        !(s->reg[IBS_FETCH_CTL] & IBS_FETCH_L3_MISS_ONLY)) {
        uint32_t end = fetch_end(s);

        distance = s->fetch_count < end ? end - s->fetch_count : 0;
    }
    if (running & IBS_OP) {
        uint32_t end = op_end(s), step = op_step(s, config);
        uint32_t n = s->op_count < end ?
                     (end - s->op_count + step - 1) / step : 0;

        distance = n < distance ? n : distance;
    }
    return distance;
}

unsigned ibs_due(const IbsState *s)
{
    unsigned running = ibs_running(s);

    return ((running & IBS_FETCH) && s->fetch_count >= fetch_end(s) &&
            !(s->reg[IBS_FETCH_CTL] & IBS_FETCH_L3_MISS_ONLY) ? IBS_FETCH : 0) |
           ((running & IBS_OP) && s->op_count >= op_end(s) ? IBS_OP : 0);
}

static uint32_t add(uint32_t count, uint64_t n, uint32_t max)
{
    return n < max - count ? count + (uint32_t)n : max;
}

static void count_some(IbsState *s, const IbsConfig *config, uint32_t n,
                       unsigned what)
{
    what &= ibs_running(s);
    if (what & IBS_FETCH) {
        s->fetch_count = add(s->fetch_count, n, 0xfffff);
    }
    if (what & IBS_OP) {
        s->op_count = add(s->op_count, (uint64_t)n * op_step(s, config),
                          op_count_mask(config));
    }
}

void ibs_count(IbsState *s, const IbsConfig *config, uint32_t n)
{
    count_some(s, config, n, IBS_FETCH | IBS_OP);
}

static void new_period(IbsState *s, const IbsConfig *config)
{
    s->op_count = randomize(s, config, 7);
}

void ibs_squash(IbsState *s, const IbsConfig *config)
{
    if (ibs_due(s) & IBS_OP) {
        new_period(s, config);
    }
}

/*
 * Samples
 */

static uint64_t limit(uint64_t clocks)
{
    return clocks < 0xffff ? clocks : 0xffff;
}

static void sample_fetch(IbsState *s, const IbsConfig *config,
                         const IbsInsn *insn)
{
    uint64_t *ctl = &s->reg[IBS_FETCH_CTL];
    unsigned page = insn->lg_page >= 30 ? 2 : insn->lg_page >= 21 ? 1 : 0;

    if (page && (config->layout & IBS_HAS_16K_PAGES)) {
        page++;
    }
    *ctl &= 0xffff | IBS_FETCH_EN | IBS_FETCH_RAND_EN;
    *ctl |= IBS_FETCH_VAL | IBS_FETCH_COMP;
    *ctl |= insn->fetch_missed ? IBS_FETCH_IC_MISS : 0;
    *ctl |= insn->fetch_tlb != RETIRE_TLB_L1 ? IBS_FETCH_L1TLB_MISS : 0;
    *ctl |= insn->fetch_tlb == RETIRE_TLB_WALK ? IBS_FETCH_L2TLB_MISS : 0;
    s->reg[IBS_FETCH_LIN_AD] = insn->rip;
    s->reg[IBS_FETCH_PHYS_AD] = 0;
    s->reg[IBS_FETCH_CTL_EXT] = 0;
    if (insn->has_physical) {
        *ctl |= IBS_FETCH_PHYS_VALID | (uint64_t)page << IBS_FETCH_PAGE_SHIFT;
        s->reg[IBS_FETCH_PHYS_AD] = insn->physical & PHYSICAL;
    }
}

static void sample_branch(IbsState *s, const IbsConfig *config,
                          const IbsInsn *insn)
{
    const RetireStory *story = insn->story;
    bool taken = story->taken || story->is_far ||
                 story->branch > RETIRE_BRANCH_COND;
    uint64_t data = IBS_DATA_BRANCH;

    if (story->branch == RETIRE_BRANCH_RET) {
        data |= IBS_DATA_RETURN;
        data |= story->mispredicted && (config->layout & IBS_HAS_MISP_RETURN) ?
                IBS_DATA_MISP_RETURN : 0;
    }
    data |= story->mispredicted ? IBS_DATA_MISPREDICTED : 0;
    if (taken) {
        data |= IBS_DATA_TAKEN;
        s->reg[IBS_BR_TARGET] = insn->target &
                                register_mask(config, IBS_BR_TARGET);
    }
    s->reg[IBS_OP_DATA] |= data;
}

/* The access that the sample is about: a load, if there is any. */
static const RetireAccess *choose(const RetireStory *story, bool *load,
                                  bool *store)
{
    const RetireAccess *chosen = NULL;

    *load = *store = false;
    for (unsigned i = 0; i < story->nr_accesses && i < RETIRE_STORY_ACCESSES;
         i++) {
        const RetireAccess *a = &story->access[i];

        if (!chosen || (a->load && !chosen->load)) {
            chosen = a;
        }
        *load |= a->load;
        *store |= a->store;
    }
    return chosen;
}

static uint64_t tlb_bits(const RetireAccess *a)
{
    bool large = a->lg_page >= 21, huge = a->lg_page >= 30;

    switch (a->tlb) {
    case RETIRE_TLB_L1:
        return huge ? IBS_DATA3_L1TLB_1G : large ? IBS_DATA3_L1TLB_2M : 0;
    case RETIRE_TLB_L2:
        return IBS_DATA3_L1TLB_MISS |
               (huge ? IBS_DATA3_L2TLB_1G : large ? IBS_DATA3_L2TLB_2M : 0);
    default:
        return IBS_DATA3_L1TLB_MISS | IBS_DATA3_L2TLB_MISS;
    }
}

static uint64_t width_bits(unsigned size)
{
    uint64_t n = 1;

    if (!size || (size & (size - 1))) {
        return 0;
    }
    while (size >>= 1) {
        n++;
    }
    return n << IBS_DATA3_WIDTH_SHIFT;
}

/* Where a load has found its line, behind L2 */
static uint64_t data_source(const IbsConfig *config, RetireSource source)
{
    switch (source) {
    case RETIRE_SOURCE_L3:
        return config->layout & IBS_HAS_LOCAL_L3 ? 1 :
               config->caps & IBS_CAP_ZEN4 ? 1 : 2;
    case RETIRE_SOURCE_REMOTE:
        /* Caches of all processors are those of one complex. */
        return config->caps & IBS_CAP_ZEN4 ? 1 : 2;
    default:
        return source;
    }
}

static void sample_access(IbsState *s, const IbsConfig *config,
                          const RetireStory *story)
{
    bool load, store;
    const RetireAccess *a = choose(story, &load, &store);
    bool l2, far;
    uint64_t data;

    if (!a) {
        return;
    }
    far = a->source != RETIRE_SOURCE_L1 && a->source != RETIRE_SOURCE_UNKNOWN;
    l2 = a->source == RETIRE_SOURCE_L2;
    data = IBS_DATA3_LIN_VALID | IBS_DATA3_PHYS_VALID | tlb_bits(a);
    data |= load ? IBS_DATA3_LOAD : 0;
    data |= store ? IBS_DATA3_STORE : 0;
    data |= far ? IBS_DATA3_DC_MISS : 0;
    data |= a->split ? IBS_DATA3_MISALIGNED : 0;
    data |= a->source == RETIRE_SOURCE_OTHER ? IBS_DATA3_UC : 0;
    data |= a->locked ? IBS_DATA3_LOCKED : 0;
    data |= far && !l2 ? IBS_DATA3_L2_MISS : 0;
    data |= width_bits(a->size);
    if (a->load && far) {
        data |= limit(a->clocks) << IBS_DATA3_LATENCY_SHIFT;
    }
    s->reg[IBS_OP_DATA3] = data & register_mask(config, IBS_OP_DATA3);
    if (a->load && far && !l2) {
        bool cache = a->source == RETIRE_SOURCE_L3 ||
                     a->source == RETIRE_SOURCE_REMOTE;

        data = data_source(config, a->source);
        data |= cache && !a->modified ? IBS_DATA2_CACHE_HIT_ST : 0;
        s->reg[IBS_OP_DATA2] = data & register_mask(config, IBS_OP_DATA2);
    }
    s->reg[IBS_DC_LIN_AD] = a->addr;
    s->reg[IBS_DC_PHYS_AD] = a->physical & PHYSICAL;
}

static bool misses_l3(const RetireStory *story)
{
    bool load, store;
    const RetireAccess *a = choose(story, &load, &store);

    return a && a->source == RETIRE_SOURCE_DRAM;
}

static bool sample_op(IbsState *s, const IbsConfig *config,
                      const IbsInsn *insn)
{
    const RetireStory *story = insn->story;
    uint64_t clocks = config->insn_clocks;

    new_period(s, config);
    if ((s->reg[IBS_OP_CTL] & IBS_OP_L3_MISS_ONLY) && !misses_l3(story)) {
        return false;
    }
    for (unsigned i = 0; i < story->nr_accesses && i < RETIRE_STORY_ACCESSES;
         i++) {
        clocks += story->access[i].clocks;
    }
    s->reg[IBS_OP_CTL] |= IBS_OP_VAL;
    s->reg[IBS_OP_RIP] = insn->rip;
    s->reg[IBS_OP_DATA] = IBS_DATA_COMP_TO_RET |
                          limit(clocks) << IBS_DATA_TAG_SHIFT;
    for (unsigned i = IBS_OP_DATA2; i <= IBS_DC_PHYS_AD; i++) {
        s->reg[i] = 0;
    }
    s->reg[IBS_BR_TARGET] = s->reg[IBS_OP_DATA4] = 0;
    if (story->branch || story->is_far) {
        sample_branch(s, config, insn);
    }
    sample_access(s, config, story);
    return true;
}

unsigned ibs_retire(IbsState *s, const IbsConfig *config, const IbsInsn *insn)
{
    unsigned due = ibs_due(s) & ~s->started, samples = 0;

    count_some(s, config, 1, ~(due | s->started));
    s->started = 0;
    if (!insn) {
        return 0;
    }
    if (due & IBS_FETCH) {
        sample_fetch(s, config, insn);
        samples |= IBS_FETCH;
    }
    if ((due & IBS_OP) && sample_op(s, config, insn)) {
        samples |= IBS_OP;
    }
    return samples;
}

bool ibs_state_valid(const IbsState *s, const IbsConfig *config)
{
    for (unsigned i = 0; i < IBS_NR_REGISTERS; i++) {
        if (s->reg[i] & ~register_mask(config, i)) {
            return false;
        }
    }
    return s->fetch_count <= 0xfffff && s->op_count <= op_count_mask(config) &&
           s->random;
}
