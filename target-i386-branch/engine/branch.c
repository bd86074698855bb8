/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Last branch records: the registers, and the ring as they show it. */

#include <string.h>
#include "branch-internal.h"

#define DEBUGCTL_BTS        (BRANCH_DEBUGCTL_TR | BRANCH_DEBUGCTL_BTS | \
                             BRANCH_DEBUGCTL_BTINT)
#define DEBUGCTL_BTS_OFF    (BRANCH_DEBUGCTL_BTS_OFF_OS | \
                             BRANCH_DEBUGCTL_BTS_OFF_USR)

/* What is in records, beside two addresses */
#define MISPREDICTED        (1ull << 63)
#define TSX_FLAGS           (3ull << 61)    /* FROM, with FORMAT_TSX */
#define TIME_SHIFT          48              /* TO, with FORMAT_TIME */
#define INFO_VALID          (1ull << 60)    /* and FORMAT_ARCH */
#define INFO_TYPE_SHIFT     56
#define INFO_TYPE_OTHER     8ull
#define CYCLES_MAX          0xffffull
#define V2_IP_BITS          58
#define V2_VALID            (1ull << 63)    /* TO, with FORMAT_V2 */
#define V2_TO_IP            ((1ull << 61) - 1)

typedef enum BranchReg {
    REG_DEBUGCTL,
    REG_PACKED,
    REG_FROM,
    REG_TO,
    REG_INFO,
    REG_FROM_TO,            /* in turn */
    REG_TOS,
    REG_SELECT,
    REG_CTL,
    REG_DEPTH,
    REG_CFG,
    REG_LAST_FROM,
    REG_LAST_TO,
    REG_LER_FROM,
    REG_LER_TO,
    REG_LER_INFO,
} BranchReg;

/*
 * Where an MSR is (SDM vol. 4 and APM, and Linux' and Xen's msr-index.h), and
 * who has it.  Who does not, has a #GP if there is a PMU; but for those that
 * software looks for where they never were.
 */
static const struct {
    uint32_t first, last;
    BranchReg reg;
    uint32_t has;
    bool tolerant;
} msrs[] = {
    { 0x1d9, 0x1d9, REG_DEBUGCTL, HAS_ALWAYS, false },
    { 0x040, 0x047, REG_PACKED, HAS_PACKED, false },
    { 0x040, 0x047, REG_FROM, HAS_LOW, false },
    { 0x060, 0x067, REG_TO, HAS_LOW, false },
    { 0x680, 0x69f, REG_FROM, HAS_HIGH, false },
    { 0x6c0, 0x6df, REG_TO, HAS_HIGH, false },
    { 0xdc0, 0xddf, REG_INFO, HAS_INFO, false },
    { 0x1c8, 0x1c8, REG_SELECT, HAS_SELECT, true },
    { 0x1c9, 0x1c9, REG_TOS, HAS_TOS, false },
    { 0x1db, 0x1db, REG_LAST_FROM, HAS_PAIR, true },
    { 0x1dc, 0x1dc, REG_LAST_TO, HAS_PAIR, true },
    { 0x1dd, 0x1dd, REG_LER_FROM, HAS_PAIR | HAS_LER, true },
    { 0x1de, 0x1de, REG_LER_TO, HAS_PAIR | HAS_LER, true },
    { 0x1dd, 0x1dd, REG_LER_TO, HAS_LER_TO, true },
    { 0x1de, 0x1de, REG_LER_FROM, HAS_LER_TO, true },
    { 0x1e0, 0x1e0, REG_LER_INFO, HAS_ARCH, true },
    { 0x14ce, 0x14ce, REG_CTL, HAS_ARCH, false },
    { 0x14cf, 0x14cf, REG_DEPTH, HAS_ARCH, false },
    { 0x1200, 0x121f, REG_INFO, HAS_ARCH, false },
    { 0x1500, 0x151f, REG_FROM, HAS_ARCH, false },
    { 0x1600, 0x161f, REG_TO, HAS_ARCH, false },
    { 0xc000010e, 0xc000010e, REG_SELECT, HAS_V2, false },
    { 0xc000010f, 0xc000010f, REG_CFG, HAS_V2, false },
    { 0xc0010300, 0xc001033f, REG_FROM_TO, HAS_V2, false },
};

/*
 * What the registers can hold
 */

static uint64_t debugctl_mask(const BranchConfig *config)
{
    return (config->btf ? BRANCH_DEBUGCTL_BTF : 0) |
           (config->lbr && !branch_is_arch(config) ? BRANCH_DEBUGCTL_LBR : 0) |
           (config->pmu ? config->flavour->debugctl : 0) |
           (config->ds ? DEBUGCTL_BTS : 0) |
           (config->ds && config->ds_cpl ? DEBUGCTL_BTS_OFF : 0);
}

/*
 * What must not be set.  Where there are no such records, bits 0 and 1 do not
 * stay set, and that is all, because hypervisors do so.  Where there is no PMU,
 * many a program has been used to that for all bits; AMD's do so anyway.
 */
static uint64_t debugctl_reserved(const BranchConfig *config)
{
    if (!config->pmu || (config->flavour->has & (HAS_AMD | HAS_NOTHING))) {
        return 0;
    }
    return ~(debugctl_mask(config) | config->debugctl_other |
             BRANCH_DEBUGCTL_LBR | BRANCH_DEBUGCTL_BTF);
}

static uint64_t select_mask(const BranchConfig *config)
{
    if (!(branch_has(config) & (HAS_SELECT | HAS_V2))) {
        return 0;
    }
    return SELECT_ALL |
           (config->flavour->has & HAS_CALL_STACK ? SELECT_CALL_STACK : 0);
}

static uint64_t ctl_mask(const BranchConfig *config)
{
    return branch_has(config) & HAS_ARCH ? CTL_ALL : 0;
}

static uint64_t sign_extend(uint64_t addr, unsigned bits)
{
    return (uint64_t)((int64_t)(addr << (64 - bits)) >> (64 - bits));
}

/*
 * Records
 */

static unsigned depth(const BranchState *s, const BranchConfig *config)
{
    return branch_is_arch(config) ? (unsigned)s->lbr_depth :
           config->flavour->depth;
}

/* The place of the @n-th last record. */
static unsigned nth(const BranchRing *ring, unsigned n)
{
    return (ring->top / 8u - 1 - n) % BRANCH_NR;
}

static unsigned tos(const BranchConfig *config, const BranchRing *ring)
{
    return branch_has(config) & HAS_TOS ?
           nth(ring, 0) % config->flavour->depth : 0;
}

/* Saturates; *@known says whether there was a record before. */
static uint64_t get_cycles(const BranchConfig *config, const BranchRing *ring,
                           unsigned i, bool *known)
{
    *known = !(ring->cycles[i] >> 63);
    return *known ? MIN(MIN(ring->cycles[i], CYCLES_MAX) * config->insn_clocks,
                        CYCLES_MAX) : 0;
}

static uint64_t get_type(const BranchRing *ring, unsigned i)
{
    return ring->class[i] < BRANCH_FAR ? ring->class[i] - 1 : INFO_TYPE_OTHER;
}

/* The record at a place, as registers show it. */
static PerfmonBranch get_entry(const BranchConfig *config,
                             const BranchRing *ring, unsigned i)
{
    PerfmonBranch e = { ring->from[i], ring->to[i], ring->cycles[i] };
    uint64_t mispredicted = ring->what[i] & 1 ? MISPREDICTED : 0, cycles;
    bool known;

    if (ring->class[i] == BRANCH_WRITTEN) {
        return e;
    }
    if (ring->class[i] == RETIRE_BRANCH_NONE) {
        return (PerfmonBranch) { 0 };
    }
    e.info = 0;
    cycles = get_cycles(config, ring, i, &known);
    switch (config->flavour->format) {
    case FORMAT_TIME:
        e.to = (e.to & ((1ull << TIME_SHIFT) - 1)) | cycles << TIME_SHIFT;
        /* fall through */
    case FORMAT_FLAGS:
        e.from = (e.from & ~MISPREDICTED) | mispredicted;
        break;
    case FORMAT_TSX:
        e.from = (e.from & ~(MISPREDICTED | TSX_FLAGS)) | mispredicted;
        break;
    case FORMAT_INFO:
    case FORMAT_INFO2:
        e.info = mispredicted | cycles;
        break;
    case FORMAT_ARCH:
        e.info = mispredicted | (known ? INFO_VALID : 0) |
                 get_type(ring, i) << INFO_TYPE_SHIFT | cycles;
        break;
    case FORMAT_V2:
        e.from = (e.from & ~MISPREDICTED) | mispredicted;
        e.to = (e.to & V2_TO_IP) | V2_VALID;
        break;
    default:
        break;
    }
    return e;
}

/* All 0 is what is not recorded, either. */
static void set_entry(BranchRing *ring, unsigned i, const PerfmonBranch *e)
{
    ring->from[i] = e->from;
    ring->to[i] = e->to;
    ring->cycles[i] = e->info;
    ring->what[i] = 0;
    ring->class[i] = e->from || e->to || e->info ? BRANCH_WRITTEN :
                     RETIRE_BRANCH_NONE;
}

/* The addresses alone, as the registers of the last branch show them. */
PerfmonBranch branch_last(const BranchConfig *config, const BranchRing *ring)
{
    PerfmonBranch e = get_entry(config, ring, nth(ring, 0));

    switch (config->flavour->format) {
    case FORMAT_TIME:
        e.to = sign_extend(e.to, TIME_SHIFT);
        /* fall through */
    case FORMAT_FLAGS:
        e.from = sign_extend(e.from, 63);
        break;
    case FORMAT_TSX:
        e.from = sign_extend(e.from, 61);
        break;
    case FORMAT_V2:
        e.from = sign_extend(e.from, V2_IP_BITS);
        e.to = sign_extend(e.to, V2_IP_BITS);
        break;
    default:
        break;
    }
    return e;
}

/* The same the other way round; see BranchSvm for @from. */
static void set_last_branch(const BranchConfig *config, BranchRing *ring,
                            uint64_t from, uint64_t to)
{
    PerfmonBranch e = { from, to, 0 };

    if (config->flavour->format == FORMAT_V2 && (from || to)) {
        e.from = (from & ~MISPREDICTED) | ((from ^ from << 1) & MISPREDICTED);
        e.to = (to & V2_TO_IP) | V2_VALID;
    }
    set_entry(ring, nth(ring, 0), &e);
}

static void clear_ring(const BranchState *s, const BranchConfig *config,
                       BranchRing *ring)
{
    memset(ring, 0, sizeof(*ring));
    ring->top = 8;              /* so that TOS is 0 */
    ring->span = (uint8_t)(8 * depth(s, config));
    ring->last = BRANCH_NO_CLOCK;
}

/* What is in a register with TOS stays there: all but the top moves. */
static void set_tos(const BranchConfig *config, BranchRing *ring, unsigned val)
{
    unsigned mask = config->flavour->depth - 1u;
    BranchRing old = *ring;

    memset(ring->class, 0, sizeof(ring->class));
    ring->top = (uint8_t)(8 * (val + 1));
    for (unsigned slot = 0; slot <= mask; slot++) {
        unsigned i = nth(ring, (val - slot) & mask);
        unsigned j = nth(&old, (tos(config, &old) - slot) & mask);

        ring->from[i] = old.from[j];
        ring->to[i] = old.to[j];
        ring->cycles[i] = old.cycles[j];
        ring->what[i] = old.what[j];
        ring->class[i] = old.class[j];
    }
}

/* The place of the register with that index */
static unsigned place(const BranchConfig *config, const BranchRing *ring,
                      unsigned index)
{
    if (!(branch_has(config) & HAS_TOS)) {
        return nth(ring, index);
    }
    return nth(ring, (tos(config, ring) - index) &
                     (config->flavour->depth - 1u));
}

/*
 * Registers
 */

void branch_reset(BranchState *s, const BranchConfig *config, BranchRing *ring)
{
    *s = (BranchState) {
        .lbr_depth = branch_has(config) & HAS_ARCH ? config->flavour->depth : 0,
    };
    clear_ring(s, config, ring);
}

/* Find @msr; *@index is that of the record, where it is one's. */
static PmuAccess find_msr(const BranchState *s, const BranchConfig *config,
                             uint32_t msr, BranchReg *reg, unsigned *index)
{
    PmuAccess absent = PMU_MSR_OTHER;

    for (unsigned i = 0; i < ARRAY_SIZE(msrs); i++) {
        if (msr < msrs[i].first || msr > msrs[i].last) {
            continue;
        }
        if (!(msrs[i].has & branch_has(config))) {
            absent = config->pmu && !msrs[i].tolerant ? PMU_MSR_GP :
                     PMU_MSR_OTHER;
            continue;
        }
        *reg = msrs[i].reg;
        *index = msr - msrs[i].first;
        switch (*reg) {
        case REG_FROM_TO:
            *reg = *index % 2 ? REG_TO : REG_FROM;
            *index /= 2;
            /* fall through */
        case REG_PACKED:
        case REG_FROM:
        case REG_TO:
        case REG_INFO:
            return *index < depth(s, config) ? PMU_MSR_OK : PMU_MSR_GP;
        default:
            return PMU_MSR_OK;
        }
    }
    return absent;
}

PmuAccess branch_rdmsr(const BranchState *s, const BranchConfig *config,
                          const BranchRing *ring, uint32_t msr, uint64_t *val)
{
    unsigned index;
    BranchReg reg;
    PmuAccess access = find_msr(s, config, msr, &reg, &index);
    PerfmonBranch e, last = branch_last(config, ring);

    if (access != PMU_MSR_OK) {
        return access;
    }
    e = get_entry(config, ring, place(config, ring, index));
    switch (reg) {
    case REG_DEBUGCTL:
        *val = s->debugctl;
        break;
    case REG_PACKED:
        *val = (uint32_t)e.from | e.to << 32;
        break;
    case REG_FROM:
        *val = e.from;
        break;
    case REG_TO:
        *val = e.to;
        break;
    case REG_INFO:
        *val = e.info;
        break;
    case REG_TOS:
        *val = tos(config, ring);
        break;
    case REG_SELECT:
        *val = s->select;
        break;
    case REG_CTL:
        *val = s->lbr_ctl;
        break;
    case REG_DEPTH:
        *val = s->lbr_depth;
        break;
    case REG_CFG:
        *val = s->dbg_extn_cfg;
        break;
    case REG_LAST_FROM:
        *val = last.from;
        break;
    case REG_LAST_TO:
        *val = last.to;
        break;
    case REG_LER_FROM:
        *val = s->ler_from;
        break;
    case REG_LER_TO:
        *val = s->ler_to;
        break;
    default:
        *val = s->ler_info;
        break;
    }
    return PMU_MSR_OK;
}

/* Whether @val can be written; AMD's ignore bits that they have not. */
static bool writable(const BranchConfig *config, BranchReg reg, uint64_t val)
{
    switch (reg) {
    case REG_DEBUGCTL:
        return !(val & debugctl_reserved(config));
    case REG_SELECT:
        return branch_is_amd(config) || !(val & ~select_mask(config));
    case REG_TOS:
        return val < config->flavour->depth;
    case REG_CTL:
        return !(val & ~ctl_mask(config));
    case REG_DEPTH:
        return branch_depth_exists(val);
    default:
        return true;
    }
}

static void write_entry(const BranchConfig *config, BranchRing *ring,
                        unsigned index, BranchReg reg, uint64_t val)
{
    unsigned i = place(config, ring, index);
    PerfmonBranch e = get_entry(config, ring, i);

    switch (reg) {
    case REG_PACKED:
        e = (PerfmonBranch) { (uint32_t)val, val >> 32, 0 };
        break;
    case REG_FROM:
        e.from = val;
        break;
    case REG_TO:
        e.to = val;
        break;
    default:
        e.info = val;
        break;
    }
    set_entry(ring, i, &e);
}

PmuAccess branch_wrmsr(BranchState *s, const BranchConfig *config,
                          BranchRing *ring, uint32_t msr, uint64_t val)
{
    unsigned index;
    BranchReg reg;
    PmuAccess access = find_msr(s, config, msr, &reg, &index);

    if (access != PMU_MSR_OK) {
        return access;
    }
    if (!writable(config, reg, val)) {
        return PMU_MSR_GP;
    }
    switch (reg) {
    case REG_DEBUGCTL:
        s->debugctl = val & debugctl_mask(config);
        break;
    case REG_TOS:
        set_tos(config, ring, (unsigned)val);
        break;
    case REG_SELECT:
        s->select = val & select_mask(config);
        break;
    case REG_CTL:
        s->lbr_ctl = val;
        break;
    case REG_DEPTH:
        s->lbr_depth = val;
        clear_ring(s, config, ring);
        break;
    case REG_CFG:
        s->dbg_extn_cfg = val & CFG_LBRV2EN;
        break;
    case REG_LER_FROM:
        s->ler_from = branch_is_arch(config) ? val : s->ler_from;
        break;
    case REG_LER_TO:
        s->ler_to = branch_is_arch(config) ? val : s->ler_to;
        break;
    case REG_LER_INFO:
        s->ler_info = val;
        break;
    case REG_LAST_FROM:
    case REG_LAST_TO:
        break;                  /* ignored, as are those before arch */
    default:
        write_entry(config, ring, index, reg, val);
        break;
    }
    return PMU_MSR_OK;
}

/*
 * The environment
 */

bool branch_has_lbrv(const BranchConfig *config)
{
    return config->lbr && branch_is_amd(config);
}

void branch_svm_save(const BranchState *s, const BranchConfig *config,
                     const BranchRing *ring, BranchSvm *save)
{
    PerfmonBranch e = branch_last(config, ring);

    if (config->flavour->format == FORMAT_V2) {
        e.from ^= get_entry(config, ring, nth(ring, 0)).from & MISPREDICTED;
    }
    *save = (BranchSvm) { s->debugctl, e.from, e.to, s->ler_from, s->ler_to };
}

void branch_svm_load(BranchState *s, const BranchConfig *config,
                     BranchRing *ring, const BranchSvm *save)
{
    s->debugctl = save->debugctl & debugctl_mask(config);
    if (branch_has(config) & HAS_PAIR) {
        s->ler_from = save->last_excp_from;
        s->ler_to = save->last_excp_to;
        set_last_branch(config, ring, save->br_from, save->br_to);
    }
}

/* How many records can be seen */
static unsigned visible(const BranchState *s, const BranchConfig *config)
{
    return config->lbr ? depth(s, config) : 0;
}

bool branch_entry(const BranchState *s, const BranchConfig *config,
                  const BranchRing *ring, unsigned n, PerfmonBranch *entry)
{
    if (n >= visible(s, config)) {
        return false;
    }
    *entry = get_entry(config, ring, nth(ring, n));
    return true;
}

void branch_stack_save(const BranchState *s, const BranchConfig *config,
                       const BranchRing *ring, uint64_t clock,
                       BranchStack *stack)
{
    memset(stack, 0, sizeof(*stack));
    stack->tos = tos(config, ring);
    stack->age = ring->last == BRANCH_NO_CLOCK ? 0 : clock - ring->last + 1;
    for (unsigned n = 0; n < visible(s, config); n++) {
        stack->entry[n] = get_entry(config, ring, nth(ring, n));
    }
}

/* Bits of entries that registers of this processor cannot hold */
static uint64_t foreign(const BranchConfig *config, const PerfmonBranch *e)
{
    uint64_t bad = branch_has(config) & (HAS_INFO | HAS_ARCH) ? 0 : e->info;

    if (config->flavour->has & HAS_PACKED) {
        bad |= (e->from | e->to) >> 32;
    }
    return bad;
}

bool branch_state_bad(const BranchState *s, const BranchConfig *config,
                      const BranchStack *stack)
{
    uint32_t exists = branch_has(config);
    uint64_t bad = stack->age >> 62;

    if (exists & HAS_ARCH ? !branch_depth_exists(s->lbr_depth) : s->lbr_depth) {
        return true;
    }
    for (unsigned n = 0; n < BRANCH_NR; n++) {
        const PerfmonBranch *e = &stack->entry[n];

        bad |= n < visible(s, config) ? foreign(config, e) :
               e->from | e->to | e->info;
    }
    bad |= exists & HAS_TOS ? stack->tos >= config->flavour->depth :
           stack->tos;
    bad |= s->debugctl & ~debugctl_mask(config);
    bad |= s->select & ~select_mask(config);
    bad |= s->lbr_ctl & ~ctl_mask(config);
    bad |= s->dbg_extn_cfg & (exists & HAS_V2 ? ~(uint64_t)CFG_LBRV2EN :
                              UINT64_MAX);
    bad |= exists & (HAS_LER | HAS_LER_TO | HAS_PAIR) ? 0 :
           s->ler_from | s->ler_to;
    bad |= exists & HAS_ARCH ? 0 : s->ler_info;
    bad |= s->smm_lbr_ctl & ~ctl_mask(config);
    bad |= s->smm_debugctl & ~(s->smm_frozen ? debugctl_mask(config) : 0);
    return bad;
}

void branch_stack_load(const BranchState *s, const BranchConfig *config,
                       BranchRing *ring, uint64_t clock,
                       const BranchStack *stack)
{
    clear_ring(s, config, ring);
    ring->top = (uint8_t)(8 * (stack->tos + 1));
    if (stack->age) {
        ring->last = clock - (stack->age - 1);
    }
    for (unsigned n = 0; n < BRANCH_NR; n++) {
        set_entry(ring, nth(ring, n), &stack->entry[n]);
    }
}
