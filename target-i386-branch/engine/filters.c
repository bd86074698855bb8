/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Last branch records: which branches are recorded. */

#include "branch-internal.h"

/*
 * How the classes of branches are selected: SDM 17.9, ISE and APM; LBR_JCC and
 * so on, and ARCH_LBR_JCC, in Linux' intel/lbr.c, and the same in amd/lbr.c.
 */
static const struct {
    RetireWants wants;
    uint32_t select;        /* SELECT: not to be recorded */
    uint32_t ctl;           /* IA32_LBR_CTL: to be recorded */
} filters[] = {
    { BRANCH_WANT(RETIRE_BRANCH_COND), 1u << 2, 1u << 16 },
    { BRANCH_WANT(RETIRE_BRANCH_CALL), 1u << 3, 1u << 19 },
    { BRANCH_WANT(RETIRE_BRANCH_CALL_ABS), 1u << 4, 1u << 20 },
    { BRANCH_WANT(RETIRE_BRANCH_RET), 1u << 5, 1u << 21 },
    { BRANCH_WANT(RETIRE_BRANCH_JMP_ABS), 1u << 6, 1u << 18 },
    { BRANCH_WANT(RETIRE_BRANCH_JMP), 1u << 7, 1u << 17 },
    { BRANCH_WANT_FAR, 1u << 8, 1u << 22 },
};

#define CALL_STACK_WANTS    (BRANCH_WANT(RETIRE_BRANCH_CALL) | \
                             BRANCH_WANT(RETIRE_BRANCH_CALL_ABS) | \
                             BRANCH_WANT(RETIRE_BRANCH_RET))

/* Whether it is AMD's last branch only, which nothing selects or freezes. */
static bool only_last(const BranchState *s, const BranchConfig *config)
{
    return branch_is_amd(config) && !(s->dbg_extn_cfg & CFG_LBRV2EN);
}

/* Whether branches that are selected are recorded. */
static bool runs(const BranchState *s, const BranchConfig *config, bool frozen)
{
    if (frozen && !only_last(s, config)) {
        return false;
    }
    return branch_is_arch(config) ? s->lbr_ctl & CTL_ENABLE :
           (s->debugctl & BRANCH_DEBUGCTL_LBR) ||
           (s->dbg_extn_cfg & CFG_LBRV2EN);
}

/* What leaves out what; IA32_LBR_CTL turned into that */
static uint64_t selection(const BranchState *s, const BranchConfig *config)
{
    uint64_t select;

    if (!branch_is_arch(config)) {
        return only_last(s, config) ? 0 : s->select;
    }
    select = (s->lbr_ctl & CTL_OS ? 0 : SELECT_OS) |
             (s->lbr_ctl & CTL_USR ? 0 : SELECT_USR) |
             (s->lbr_ctl & CTL_CALL_STACK ? SELECT_CALL_STACK : 0);
    for (unsigned i = 0; i < ARRAY_SIZE(filters); i++) {
        select |= s->lbr_ctl & filters[i].ctl ? 0 : filters[i].select;
    }
    return select;
}

/* What is recorded; 0 if nothing is. */
static RetireWants records(const BranchState *s, const BranchConfig *config,
                           bool os, bool frozen)
{
    uint64_t select = selection(s, config);
    RetireWants wants = 0;

    if (!runs(s, config, frozen) || (select & (os ? SELECT_OS : SELECT_USR))) {
        return 0;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(filters); i++) {
        wants |= select & filters[i].select ? 0 : filters[i].wants;
    }
    if (select & SELECT_CALL_STACK) {
        wants &= CALL_STACK_WANTS;
        wants |= wants ? RETIRE_WANT_LBR_STACK : 0;
    }
    return wants;
}

RetireWants branch_wants(const BranchState *s, const BranchConfig *config,
                         bool os, bool frozen)
{
    const uint64_t bts = BRANCH_DEBUGCTL_TR | BRANCH_DEBUGCTL_BTS;
    uint64_t bts_off = os ? BRANCH_DEBUGCTL_BTS_OFF_OS :
                       BRANCH_DEBUGCTL_BTS_OFF_USR;
    RetireWants wants = records(s, config, os, frozen);

    if (wants) {
        switch (config->flavour->format) {
        case FORMAT_TIME:
        case FORMAT_INFO:
        case FORMAT_INFO2:
        case FORMAT_ARCH:
            wants |= RETIRE_WANT_LBR_CLOCK;
            /* fall through */
        case FORMAT_FLAGS:
        case FORMAT_TSX:
            wants |= RETIRE_WANT_PREDICT;
            break;
        case FORMAT_V2:
            wants |= config->lbr_v2 ? RETIRE_WANT_PREDICT : 0;
            break;
        default:
            break;
        }
    }
    if ((s->debugctl & (bts | bts_off)) == bts) {
        wants |= RETIRE_WANT_TAKEN |
                 (config->bts_predicted ? RETIRE_WANT_PREDICT : 0);
    }
    return wants | (s->debugctl & BRANCH_DEBUGCTL_BTF ? RETIRE_WANT_BTF : 0);
}

void branch_record(BranchState *s, const BranchConfig *config,
                   BranchRing *ring, const BranchTaken *branch, bool frozen,
                   uint64_t clock)
{
    RetireWants wants = records(s, config, branch->to_os, frozen);
    uint64_t from = branch->from;

    if (branch->class == BRANCH_EVENT && runs(s, config, frozen)) {
        PerfmonBranch e = branch_last(config, ring);

        s->ler_from = e.from;
        s->ler_to = e.to;
        s->ler_info = branch_is_arch(config) ? e.info : 0;
    }
    if (!(wants & BRANCH_WANT(branch->class))) {
        return;
    }
    if ((wants & RETIRE_WANT_LBR_STACK) &&
        branch->class == RETIRE_BRANCH_RET) {
        branch_pop(ring);
        return;
    }
    if (branch_is_arch(config) &&
        !(s->lbr_ctl & (branch->from_os ? CTL_OS : CTL_USR))) {
        from = UINT64_MAX;      /* is not to be seen */
    }
    branch_push(ring, from, branch->to, clock, branch->mispredicted,
                branch->class);
}

bool branch_debug(BranchState *s)
{
    const uint64_t off = BRANCH_DEBUGCTL_LBR | BRANCH_DEBUGCTL_BTF;
    bool any = (s->debugctl & off) | (s->lbr_ctl & CTL_ENABLE);

    s->debugctl &= ~off;
    s->lbr_ctl &= ~(uint64_t)CTL_ENABLE;
    return any;
}

void branch_pmi(BranchState *s, const BranchConfig *config, bool freeze)
{
    /* Since version 4 it sets LBR_FRZ (SDM 17.4.7). */
    if (freeze && !branch_is_amd(config) && config->pmu_version < 4) {
        s->debugctl &= ~(uint64_t)BRANCH_DEBUGCTL_LBR;
        if (config->flavour->has & HAS_TR_OFF) {
            s->debugctl &= ~(uint64_t)BRANCH_DEBUGCTL_TR;
        }
    }
}

void branch_smi(BranchState *s, bool freeze)
{
    s->smm_lbr_ctl = s->lbr_ctl & CTL_ENABLE;
    s->lbr_ctl &= ~(uint64_t)CTL_ENABLE;
    if (freeze) {
        s->smm_frozen = true;
        s->smm_debugctl = s->debugctl;
        s->debugctl &= ~(uint64_t)(BRANCH_DEBUGCTL_LBR | BRANCH_DEBUGCTL_BTF |
                                   BRANCH_DEBUGCTL_TR | BRANCH_DEBUGCTL_BTS);
    }
}

void branch_rsm(BranchState *s)
{
    s->lbr_ctl &= ~(uint64_t)CTL_ENABLE;
    s->lbr_ctl |= s->smm_lbr_ctl & CTL_ENABLE;
    s->smm_lbr_ctl = 0;
    if (s->smm_frozen) {
        s->smm_frozen = false;
        s->debugctl = s->smm_debugctl;
        s->smm_debugctl = 0;
    }
}
