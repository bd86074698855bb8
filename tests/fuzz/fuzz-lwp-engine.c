/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzz target: any sequence of operations on any memory contents, with faults
 * anywhere.  The engine must only touch the LWPCB and the ring, count in
 * MissedEvents what it reports as missed, and always leave a state that
 * migration would accept.
 *
 * No overflow may be lost: as each record that is stored or missed takes its
 * interval and one from what its counter has counted, a counter is what it was
 * when LWP began, less what has been counted since, plus all these.  So what
 * has overflowed is stored, missed, or waits until LWP is disabled.
 */

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "input.h"
#include "lwp-engine.h"
#include "../unit/account.h"

#define FEATURES    (LWP_FLAG_EVENTS | LWP_FLAG_INT)
#define VECTOR      (0x51ull << 40)
#define CB_SIZE     176         /* LwpCbSize for six events, bytes */
#define CB_ADDR     64          /* of write_cb() */
#define CB_RANDOM   4           /* in bits 31:28 */
#define CB_MISSED   24
#define CB_INTERVAL(event)      (120 + 8 * (event))
#define COUNTER_MIN (-(1 << 25))

typedef struct Window {
    uint64_t start, size;
} Window;

/* Behind every address, modulo its size less 8 */
static _Alignas(8) uint8_t ram[4096];
static bool direct;             /* the engine may have pointers to it */
static Window windows[3];       /* old LWPCB, old ring, new LWPCB */
static int fault_in;            /* accesses until one faults; none if < 0 */
static jmp_buf fault;
static LwpState lwp;
static RetireWants wants;       /* as TBs have been told */
static bool forced;             /* the next one runs whether it may or not */
static const uint8_t *missed_host;      /* where MissedEvents is, or NULL */
static uint64_t missed_before;
static unsigned missed_counted, missed_reported;
static bool reports;            /* of all stores, not only those that are due */

static bool inserting;          /* LWPVAL, which counts itself */

/* Before a store */
static int32_t counter_before[LWP_NR_EVENTS];
static uint32_t interval[LWP_NR_EVENTS], random_before;

/* What the counters should be, of what has been reported and counted */
static struct {
    int64_t left[LWP_NR_EVENTS];
    uint32_t ref_fraction;
} model;

static LwpConfig config = {
    .model = {
        .latency = {
            [RETIRE_SOURCE_L2] = 1, [RETIRE_SOURCE_L3] = 60,
            [RETIRE_SOURCE_REMOTE] = 1000, [RETIRE_SOURCE_DRAM] = 70000,
            [RETIRE_SOURCE_OTHER] = RETIRE_LATENCY_MAX,
        },
        .latency_worst = 2 * RETIRE_LATENCY_MAX,
    },
};

static uint8_t *touch(uint64_t addr, uint32_t len)
{
    bool inside = false;

    for (int i = 0; i < 3; i++) {
        uint64_t offset = addr - windows[i].start;

        inside |= offset < windows[i].size && len <= windows[i].size - offset;
    }
    if (!inside) {
        fprintf(stderr, "access outside: 0x%llx, %u bytes\n",
                (unsigned long long)addr, len);
        abort();
    }
    if (fault_in >= 0 && fault_in-- == 0) {
        longjmp(fault, 1);
    }
    return &ram[addr % (sizeof(ram) - 8)];
}

/* A look that does not fault */
static uint32_t peek32(uint64_t addr)
{
    int saved = fault_in;
    uint32_t val;

    fault_in = -1;
    memcpy(&val, touch(addr, 4), 4);
    fault_in = saved;
    return val;
}

/* A record may be stored. */
static void look_before(void)
{
    uint64_t cb = lwp.cbaddr;

    memcpy(counter_before, lwp.counter, sizeof(counter_before));
    random_before = peek32(cb + CB_RANDOM) >> 28;
    for (int event = 1; event <= LWP_NR_EVENTS; event++) {
        interval[event - 1] = peek32(cb + CB_INTERVAL(event));
    }
}

static void fuzz_probe(LwpMem *mem, uint64_t addr, uint32_t len)
{
    (void)mem;
    touch(addr, len);
    if (addr == lwp.cbaddr) {
        look_before();
    }
}

/* The next access stores a record. */
static LwpMem *fuzz_host(LwpMem *mem)
{
    uint8_t *cb, *slot;
    uintptr_t gap;

    mem->host.cb = NULL;
    if (!direct || (fault_in >= 0 && fault_in < 2)) {
        return mem;
    }
    cb = touch(lwp.cbaddr, CB_SIZE);
    slot = touch(lwp.base + lwp.head, LWP_RECORD_SIZE);
    gap = slot - cb;
    if (((uintptr_t)cb | gap) % 8 || gap < CB_SIZE || -gap < LWP_RECORD_SIZE ||
        cb + CB_SIZE > ram + sizeof(ram) ||
        slot + LWP_RECORD_SIZE > ram + sizeof(ram)) {
        return mem;
    }
    look_before();
    mem->host = (LwpHost) { cb, slot };
    missed_host = cb + CB_MISSED;
    memcpy(&missed_before, missed_host, 8);
    fault_in = -1;
    return mem;
}

static void boundary(LwpMem *mem, uint64_t ip)
{
    lwp_boundary(&lwp, lwp_stores_first(&lwp) ? fuzz_host(mem) : mem, ip);
}

/* Pages of 512 bytes, so that some of a ring is not */
static bool fuzz_writable(LwpMem *mem, uint64_t addr, uint32_t len)
{
    (void)mem;
    return (addr >> 9) % 8 != 7 && ((addr + len - 1) >> 9) % 8 != 7;
}

static uint32_t fuzz_ld32(LwpMem *mem, uint64_t addr)
{
    uint32_t val;

    (void)mem;
    memcpy(&val, touch(addr, 4), 4);
    return val;
}

static uint64_t fuzz_ld64(LwpMem *mem, uint64_t addr)
{
    uint64_t val;

    (void)mem;
    memcpy(&val, touch(addr, 8), 8);
    return val;
}

static void fuzz_st32(LwpMem *mem, uint64_t addr, uint32_t val)
{
    (void)mem;
    memcpy(touch(addr, 4), &val, 4);
}

static void fuzz_st64(LwpMem *mem, uint64_t addr, uint64_t val)
{
    uint64_t *p = (uint64_t *)touch(addr, 8), old;

    (void)mem;
    memcpy(&old, p, 8);
    if (addr != lwp.cbaddr + CB_MISSED || val != old + 1) {
        fail("not MissedEvents");
    }
    missed_counted++;
    memcpy(p, &val, 8);
}

static void fuzz_st_record(LwpMem *mem, uint64_t addr, const LwpRecord *record)
{
    (void)mem;
    for (int i = 0; i < LWP_RECORD_SIZE / 8; i++) {
        memcpy(touch(addr + 8 * i, 8), &record->q[i], 8);
    }
}

/*
 * A counter below 0 goes on from there with an interval, of which Random bits
 * may be anything (Table 6-1); another one stays as it is.
 */
static void check_reset(unsigned event)
{
    uint32_t mask = (1u << random_before) - 1;
    int32_t left, gained;
    int32_t floor = (int32_t)(interval[event - 1] << 6) >> 6;

    left = counter_before[event - 1] - inserting;
    gained = lwp.counter[event - 1] - left;
    floor = floor < 0 ? 0 : floor;
    if (left < 0 ? ((gained - 1) & ~mask) != (floor & ~mask) : gained) {
        fail("a wrong interval");
    }
    model.left[event - 1] += lwp.counter[event - 1] -
                             counter_before[event - 1];
}

/* Table 6-1, Threshold, to the letter; memory is as it was looked at. */
static void fuzz_report(LwpMem *mem, uint64_t addr, const LwpRecord *record,
                        bool missed, uint8_t vector)
{
    uint64_t cb = lwp.cbaddr, offset = addr - lwp.base;
    int64_t threshold = peek32(cb + 32) / LWP_RECORD_SIZE * LWP_RECORD_SIZE;
    int64_t used = ((int64_t)lwp.head - peek32(cb + 64)) % lwp.size;
    bool due = !missed && (peek32(cb) & lwp.cfg & LWP_FLAG_INT) &&
               (used < 0 ? used + lwp.size : used) >= threshold;

    (void)mem;
    if (missed_host) {
        uint64_t missed_now;

        memcpy(&missed_now, missed_host, 8);
        missed_counted += missed_now - missed_before;
        missed_host = NULL;
    }
    if (!reports && !vector) {
        fail("a report that nobody wants");
    }
    if (lwp.head != (missed ? offset : (offset + LWP_RECORD_SIZE) % lwp.size) ||
        vector != (due ? lwp.cfg >> 40 & 255 : 0) || !(record->q[0] & 255)) {
        fail("a wrong report");
    }
    missed_reported += missed;
    if ((record->q[0] & 255) <= LWP_NR_EVENTS &&
        lwp.flags & LWP_FLAG(record->q[0] & 255)) {
        check_reset(record->q[0] & 255);
    }
}

static const LwpMemOps fuzz_ops = {
    .probe = fuzz_probe,
    .writable = fuzz_writable,
    .ld32 = fuzz_ld32,
    .ld64 = fuzz_ld64,
    .st32 = fuzz_st32,
    .st64 = fuzz_st64,
    .st_record = fuzz_st_record,
    .report = fuzz_report,
};

/* §1.1 step 1, as simple as it is. */
static void model_count(unsigned event, uint64_t n)
{
    if (lwp.flags & LWP_FLAG(event)) {
        model.left[event - 1] -= n;
        if (model.left[event - 1] < COUNTER_MIN) {
            model.left[event - 1] = COUNTER_MIN;
        }
    }
}

static void model_clocks(uint64_t clocks)
{
    uint64_t ref = model.ref_fraction + clocks * config.model.refclk_ratio;

    model_count(LWP_EVENT_CNH, clocks);
    if (lwp.flags & LWP_FLAG(LWP_EVENT_RNH)) {
        model_count(LWP_EVENT_RNH, ref / RETIRE_REFCLK_UNIT);
        model.ref_fraction = ref % RETIRE_REFCLK_UNIT;
    }
}

static void model_insns(uint32_t insns, uint32_t branches)
{
    model_count(LWP_EVENT_IRE, insns);
    model_count(LWP_EVENT_BRE, branches);
    model_clocks((uint64_t)insns * config.model.insn_clocks);
}

/* LWP has begun anew. */
static void model_begin(void)
{
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        model.left[i] = lwp.counter[i];
    }
    model.ref_fraction = lwp.ref_fraction;
}

static bool waits(unsigned event)
{
    for (unsigned i = 0; i < lwp.npending; i++) {
        if ((lwp.pending[i].q[0] & 255) == event) {
            return true;
        }
    }
    return false;
}

/* Those that any instruction may cause have records, if they are due. */
static void check_gathered(void)
{
    static const unsigned timed[] = {
        LWP_EVENT_IRE, LWP_EVENT_CNH, LWP_EVENT_RNH
    };

    for (int i = 0; i < 3; i++) {
        if (lwp.flags & LWP_FLAG(timed[i]) && lwp.counter[timed[i] - 1] < 0 &&
            !waits(timed[i]) && lwp.npending < LWP_NR_EVENTS) {
            fail("an event without a record");
        }
    }
}

/* The core's part, as retire-core.c has it: account.h, and what LWP says. */

static RetireTotals take_totals(RetireState *r,
                                uint64_t branches[RETIRE_NR_CLASSES])
{
    RetireTotals n = retire_take(r, account_left());

    if (wants & RETIRE_WANT_CLASSES) {
        n.branches = retire_take_branches(r, branches) ? branches : NULL;
    }
    return n;
}

static void report_account(void)
{
    uint64_t branches[RETIRE_NR_CLASSES];
    RetireTotals n = take_totals(&account, branches);

    if (wants) {
        lwp_count(&lwp, &config, &n);
    }
}

static RetireDistance arm_account(void)
{
    RetireDistance d = RETIRE_DISTANCE_MAX;

    lwp_distance(&lwp, &d);
    account_arm(&config.model, &d);
    return d;
}

static void sync_account(void)
{
    report_account();
    wants = lwp_wants(&lwp);
    account.ip_first = wants & RETIRE_WANT_RANGE ? lwp.ip_first : 0;
    account.ip_span = wants & RETIRE_WANT_RANGE ? lwp.ip_span : UINT64_MAX;
    if (wants) {
        arm_account();
    }
}

/* What a counter of latency shows (§2.4.1). */
static uint32_t shown(uint32_t clocks)
{
    uint32_t unit = 1u << config.latency_round;

    return clocks >> config.latency_bits ?
           (1u << config.latency_bits) - unit : clocks / unit * unit;
}

/* Table 6-2, MinLatency and the bits that CLF switches on */
static bool miss_counts(RetireSource source)
{
    static const uint32_t bit[RETIRE_NR_SOURCES] = {
        [RETIRE_SOURCE_L3] = 1u << 9, [RETIRE_SOURCE_REMOTE] = 1u << 10,
        [RETIRE_SOURCE_DRAM] = 1u << 11, [RETIRE_SOURCE_OTHER] = 1u << 12,
    };

    if (config.caps & LWP_CAP_CACHE_LATENCY &&
        shown(config.model.latency[source]) < shown((lwp.filters & 255) * 16)) {
        return false;
    }
    return !(config.caps & LWP_CAP_CACHE_LEVELS) ||
           !(lwp.filters & 1u << 8) || lwp.filters & bit[source];
}

/* A load that misses, as translated code and its helper ask about it. */
static void run_miss(uint64_t arg)
{
    static const RetireSource sources[] = {
        RETIRE_SOURCE_L2, RETIRE_SOURCE_L3, RETIRE_SOURCE_REMOTE,
        RETIRE_SOURCE_DRAM, RETIRE_SOURCE_OTHER,
    };
    RetireSource source = sources[(arg >> 16 & 255) % 5];
    RetireMiss miss = { .ip = arg & 0xffff, .addr = arg, .source = source,
                        .clocks = config.model.latency[source]
                                  << (arg >> 24 & 1) };
    uint32_t charged = account_charged();
    uint32_t npending = lwp.npending;
    uint64_t branches[RETIRE_NR_CLASSES];
    LwpState copy;
    RetireState copied;
    RetireTotals n = { 0 };
    bool due;

    if (account_miss(&config.model, source, miss.clocks)) {
        /* All alike */
        model_count(LWP_EVENT_DME, 1);
        model_clocks(miss.clocks);
        for (unsigned event = LWP_EVENT_DME; event <= LWP_EVENT_RNH; event++) {
            if (reports && lwp.flags & LWP_FLAG(event) &&
                model.left[event - 1] < 0) {
                fail("a miss that should not just be counted");
            }
        }
        return;
    }
    n.misses = account.misses_armed - account.misses;
    account.misses_armed = account.misses;
    lwp_count(&lwp, &config, &n);
    due = lwp_miss_due(&lwp, &config, charged, &miss);
    if (due && !lwp_miss_due(&lwp, &config, charged, NULL)) {
        fail("a miss is worse than the worst one");
    }
    if (lwp_eligible(&lwp, miss.ip)) {
        model_count(LWP_EVENT_DME, miss_counts(source));
        model_clocks(miss.clocks);
    }
    lwp_miss(&lwp, &config, &miss);
    arm_account();
    if (due || !lwp_eligible(&lwp, miss.ip)) {
        return;
    }
    /* What has been charged makes nothing fall due. */
    copy = lwp;
    copied = account;
    n = take_totals(&copied, branches);
    lwp_count(&copy, &config, &n);
    if (copy.npending != npending ||
        ((copy.flags & LWP_FLAG(LWP_EVENT_CNH)) &&
         copy.counter[LWP_EVENT_CNH - 1] < 0) ||
        ((copy.flags & LWP_FLAG(LWP_EVENT_RNH)) &&
         copy.counter[LWP_EVENT_RNH - 1] < 0)) {
        fail("a miss made an event fall due");
    }
}

/* Table 6-2, the bits for classes of branches */
static bool class_counts(RetireBranch branch)
{
    static const uint8_t bit[RETIRE_NR_BRANCHES] = {
        [RETIRE_BRANCH_COND] = 28, [RETIRE_BRANCH_JMP] = 29,
        [RETIRE_BRANCH_CALL] = 29, [RETIRE_BRANCH_RET] = 29,
        [RETIRE_BRANCH_JMP_ABS] = 27, [RETIRE_BRANCH_CALL_ABS] = 27,
    };

    return bit[branch] && !(lwp.filters >> bit[branch] & 1);
}

/* An instruction alone */
static void run_insn(const RetireStory *story)
{
    bool eligible = lwp_eligible(&lwp, story->ip);
    int32_t branches = lwp.counter[LWP_EVENT_BRE - 1];

    lwp_retire(&lwp, &config, story);
    if (!eligible) {
        return;
    }
    if (lwp.by_prediction) {
        /* Whether it counts is up to how it was predicted. */
        model_insns(1, branches - lwp.counter[LWP_EVENT_BRE - 1]);
    } else {
        model_insns(1, class_counts(story->branch));
    }
    if (!lwp.deferred) {
        check_gathered();
    }
}

/* helper_retire_observe() */
static void observe(LwpMem *mem, const RetireStory *story)
{
    account.clock++;
    report_account();
    account_allow_one();
    run_insn(story);
    boundary(mem, story->target);
    sync_account();
}

/* retire_cpu_begin() */
static void begin_insn(LwpMem *mem, uint64_t ip)
{
    uint16_t before = budget;

    account_allow_one();
    boundary(mem, ip);
    account_set_budget(before);
}

/*
 * retire_tb_expired(): a TB of @n instructions at @ip has not as many; returns
 * how many are to be in the next one, of which the last one is observed, or 0.
 */
static uint32_t expire_tb(LwpMem *mem, uint64_t ip, uint32_t n)
{
    RetireDistance d;

    report_account();
    d = arm_account();
    if (d.pending) {
        begin_insn(mem, ip);
        sync_account();
        d = arm_account();
        if (!d.pending) {
            return 0;
        }
    }
    return account_step(&d, n);
}

/* What has been charged and retires: nobody need have heard of it. */
static void check_charged(bool branch)
{
    for (unsigned event = LWP_EVENT_IRE; event <= LWP_EVENT_RNH; event++) {
        if (reports && (lwp.flags & LWP_FLAG(event)) &&
            event != LWP_EVENT_DME && (event != LWP_EVENT_BRE || branch) &&
            model.left[event - 1] < 0) {
            fail("an event that the budget does not know of");
        }
    }
}

/*
 * Whether @tb, of instructions of a byte, begins; or it is another one, and
 * @step says how long that is to be, if it is shorter.
 */
static bool begin_tb(LwpMem *mem, uint64_t ip, AccountTB *tb, uint32_t *step)
{
    uint32_t inside = 0;

    for (uint32_t i = 0; i < tb->n; i++) {
        inside += retire_eligible(&account, ip + i);
    }
    /* Its prologue has nothing to take back of what is only observed. */
    if (tb->n > 1 || !tb->last) {
        tb->outside = !retire_eligible(&account, ip);
    } else {
        inside = 0;
    }
    if (!account_begin(tb)) {
        if (icount && !account_left()) {
            report_account();
            account_restart(1000);
            sync_account();
        }
        *step = account_refill(tb->n);
        tb->n = expire_tb(mem, ip, tb->n);
        *step = tb->n ? tb->n : *step;
        return false;
    }
    if (inside && inside < tb->n) {
        /* helper_retire_divided() */
        account_leave(tb, 0, ip);
        forced = true;
        return false;
    }
    if (tb->uncharged) {
        /* helper_retire_begin() */
        begin_insn(mem, ip);
    }
    return true;
}

/* What starts with @insns instructions of a byte, in a TB of them or fewer */
static void run_tb(LwpMem *mem, RetireStory story, uint32_t insns, uint64_t arg)
{
    uint64_t clock = account_clock();
    uint64_t ip = story.ip;
    uint32_t step = 0, retired, charged;
    AccountTB tb;
    int tries = 0;

    do {
        if (!wants) {
            return;
        }
        if (tries++ > 9) {
            fail("nothing that may run");
        }
        tb = (AccountTB) { .n = insns, .uncharged = forced };
        tb.n = forced ? 1 : step && step < insns ? step : insns;
        tb.last = forced || step || (story.branch &&
                                     (wants & RETIRE_WANT_BRANCHES));
        step = 0;
        forced = false;
    } while (!begin_tb(mem, ip, &tb, &step));
    story.branch = tb.n == insns ? story.branch : RETIRE_BRANCH_NONE;
    charged = tb.n - tb.last;
    retired = arg >> 26 & 1 ? (uint32_t)(arg % tb.n) : tb.n;
    if (retired && charged && !tb.outside) {
        bool branch = retired == tb.n && story.branch && !tb.last;

        model_insns(retired < charged ? retired : charged,
                    branch && class_counts(story.branch));
        check_charged(branch && class_counts(story.branch));
    }
    if (retired < tb.n) {
        account_leave(&tb, retired, ip + retired);
        if (arg >> 27 & 1) {
            sync_account();
        } else {
            /* retire_restart() */
            forced = true;
        }
    } else if (tb.last) {
        story.ip += charged;
        observe(mem, &story);
    } else if (story.branch && (wants & RETIRE_WANT_CLASSES)) {
        account_branch(story.branch, story.taken, story.mispredicted);
    }
    /* Out of the range, only what is observed counts. */
    retired = tb.outside ? retired == tb.n && tb.last : retired;
    if (account_clock() - clock != retired) {
        fail("a clock that does not count what retires");
    }
}

typedef enum Code {
    LLWPCB,
    SLWPCB,
    VAL,
    INS,
    BOUNDARY,
    XRSTOR,
    XRSTOR_SMALL,           /* a small ring: the head comes to its end */
    CFG,
    CBADDR,
    INSN,
    TB,
    MISS,
    LLWPCB_GOOD,            /* a well-formed LWPCB */
    LOAD_STATE,
    NR_CODES
} Code;

typedef struct Op {
    Code code;
    uint8_t how;
    uint64_t arg;
    uint8_t image[LWP_XSAVE_SIZE];
    LwpSegment ds;
} Op;

static void put(uint64_t addr, uint64_t val, unsigned bytes)
{
    memcpy(&ram[addr], &val, bytes);
}

/* A well-formed LWPCB: small intervals, and a ring that may be read-only. */
static void write_cb(const Op *op)
{
    const uint8_t *val = op->image;

    memset(&ram[CB_ADDR], 0, CB_SIZE);
    put(CB_ADDR, op->arg & (LWP_FLAG_EVENTS | LWP_FLAG_INT), 4);
    put(CB_ADDR + 4, 1024 | (uint32_t)(val[0] & 7) << 28, 4);
    put(CB_ADDR + 8, val[0] & 8 ? 0x400 : 0xc00, 8);
    put(CB_ADDR + 32, val[1] * LWP_RECORD_SIZE, 4);
    put(CB_ADDR + 36, val[2] | (uint32_t)val[3] << 24, 4);        /* filters */
    put(CB_ADDR + 40, val[4] << 8, 8);
    put(CB_ADDR + 48, val[5] << 8, 8);
    put(CB_ADDR + 64, val[6] * LWP_RECORD_SIZE, 4);
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        put(CB_ADDR + 128 + 8 * i, val[8 + i] << (val[7] & 7), 4);
        put(CB_ADDR + 132 + 8 * i, val[14 + i], 4);
    }
}

/* What XSAVE writes, XRSTOR reads. */
static void check_xsave(void)
{
    uint8_t image[LWP_XSAVE_SIZE], again[LWP_XSAVE_SIZE];
    LwpState copy = lwp;

    if (lwp_enabled(&lwp)) {
        lwp_xsave(&lwp, image);
        lwp_xrstor(&copy, &config, image, NULL);
        lwp_xsave(&copy, again);
        if (memcmp(image, again, sizeof(image))) {
            fail("XSAVE and XRSTOR differ");
        }
    }
}

static void check_cpuid(bool avail)
{
    uint32_t regs[4];

    lwp_cpuid(&config, lwp.cfg, avail, regs);
    if ((regs[0] & 1) != avail) {
        fail("LWP is not as available as XCR0[62] says");
    }
}

static void run(const Op *op)
{
    LwpMem mem = { .ops = &fuzz_ops, .config = &config, .reports = reports };
    LwpState state;
    uint8_t *bytes;
    RetireStory story = {
        .ip = op->arg & 0xffff, .target = op->arg >> 16 & 7,
        .branch = (op->arg >> 24 & 255) % RETIRE_NR_BRANCHES,
        .predicted = op->arg >> 19 & 1,
    };
    unsigned repeat = 1 + (op->how & 31);
    bool due;

    /* What misses first is another TB's: there has been an exception. */
    if (op->code != TB && (op->code != MISS || forced)) {
        sync_account();
        forced = false;
    }
    switch (op->code) {
    case LLWPCB:
        lwp_llwpcb(&lwp, &mem, &op->ds, op->arg);
        break;
    case SLWPCB:
        lwp_slwpcb(&lwp, &mem, &op->ds);
        break;
    case VAL:
        due = lwp_val_due(&lwp, &mem, op->arg);
        if (due) {
            inserting = true;
            lwp_insert(&lwp, fuzz_host(&mem), LWP_EVENT_VAL, 1, 2, 3, 4);
        } else if (lwp_eligible(&lwp, op->arg)) {
            model_count(LWP_EVENT_VAL, 1);
        }
        break;
    case INS:
        if (lwp_enabled(&lwp)) {
            if (op->how & 1) {
                lwp_probe_store(&lwp, &mem);
            }
            lwp_insert(&lwp, fuzz_host(&mem), LWP_EVENT_INS, 1, 2, 3, 4);
        }
        break;
    case BOUNDARY:
        if (op->how == 1) {
            for (int i = 0; i < LWP_AWAY_MAX; i++) {
                boundary(&mem, op->arg);
            }
        }
        boundary(&mem, op->arg);
        break;
    case XRSTOR:
    case XRSTOR_SMALL:
        lwp_xrstor(&lwp, &config, op->how & 0x80 ? NULL : op->image,
                   op->how & 1 ? &op->ds : NULL);
        break;
    case CFG:
        lwp_write_cfg(&lwp, &config, op->arg);
        break;
    case CBADDR:
        check_cpuid(op->arg & 2);
        check_xsave();
        lwp_write_cbaddr(&lwp, op->arg & 1);
        break;
    case INSN:
        for (unsigned i = 0; i < repeat; i++) {
            story.taken = op->arg >> (32 + i) & 1;
            story.mispredicted = op->arg >> (40 + i % 24) & 1;
            run_insn(&story);
        }
        break;
    case TB:
        story.taken = op->how & 0x80;
        story.mispredicted = op->how & 0x20;
        while (repeat-- && wants) {
            run_tb(&mem, story, 1 + (op->arg >> 16 & 63), op->arg);
        }
        return;
    case MISS:
        while (repeat-- && (wants & RETIRE_WANT_SOURCES)) {
            run_miss(op->arg);
        }
        return;
    case LLWPCB_GOOD:
        lwp_disable(&lwp);
        sync_account();
        write_cb(op);
        lwp_llwpcb(&lwp, &mem, &(LwpSegment) { .va_bits = 48 }, CB_ADDR);
        break;
    case LOAD_STATE:
        /* Whatever a stream may have in it */
        state = lwp;
        bytes = (uint8_t *)&state;
        bytes[(op->arg >> 8) % offsetof(LwpState, timed)] = op->arg;
        if (op->how & 1) {
            memcpy(&bytes[(op->arg >> 24) % offsetof(LwpState, away)],
                   op->image, 4);
        }
        bytes[offsetof(LwpState, deferred)] &= 1;
        if (lwp_load_state(&state, &config, op->how & 2)) {
            lwp = state;
        }
        break;
    case NR_CODES:
        break;
    }
    sync_account();
}

static void check_counters(const LwpState *s)
{
    for (unsigned event = 1; event <= LWP_NR_EVENTS; event++) {
        if (s->flags & LWP_FLAG(event) &&
            s->counter[event - 1] != model.left[event - 1]) {
            fail("a counter that is not what it counted");
        }
    }
    if (s->flags & LWP_FLAG(LWP_EVENT_RNH) &&
        s->ref_fraction != model.ref_fraction) {
        fail("a wrong part of a reference clock");
    }
}

static void step(const Op *op)
{
    LwpState copy;
    RetireState copied;
    uint64_t branches[RETIRE_NR_CLASSES];
    RetireTotals n;

    windows[0] = (Window) { lwp.cbaddr, lwp.cbaddr ? CB_SIZE : 0 };
    windows[1] = (Window) { lwp.base, lwp.size };
    windows[2] = (Window) {
        op->code == LLWPCB_GOOD ? CB_ADDR :
        op->ds.va_bits ? op->arg : (uint32_t)(op->ds.base + op->arg),
        op->code == LLWPCB || op->code == LLWPCB_GOOD ? CB_SIZE : 0
    };
    missed_counted = missed_reported = 0;
    missed_host = NULL;
    inserting = false;
    if (setjmp(fault) == 0) {
        run(op);
    } else {
        sync_account();
    }
    if (reports && missed_counted != missed_reported) {
        fprintf(stderr, "%u events counted as missed, %u reported\n",
                missed_counted, missed_reported);
        abort();
    }
    switch (op->code) {
    case LLWPCB:
    case XRSTOR:
    case XRSTOR_SMALL:
    case CBADDR:
    case LLWPCB_GOOD:
    case LOAD_STATE:
        model_begin();
        break;
    default:
        break;
    }
    copy = lwp;
    copied = account;
    n = take_totals(&copied, branches);
    lwp_count(&copy, &config, &n);
    if (reports) {
        check_counters(&copy);
    } else {
        model_begin();
    }
    if (!lwp_load_state(&copy, &config, true)) {
        fprintf(stderr, "operation %u left an invalid state\n", op->code);
        abort();
    }
}

/* What an operation is done with */
static void take_op(Op *op)
{
    if (op->how & 0x40) {
        op->ds.va_bits = op->how & 0x20 ? 57 : 48;
    } else if (op->how & 0x20) {
        op->ds.base = take(4);
        op->ds.first = take(1);
        op->ds.last = take(4);
    }
    if (op->how & 0x10 && op->code <= XRSTOR_SMALL) {
        for (int i = 0; i < 4; i++) {
            ram[take(2) % sizeof(ram)] = take(1);
        }
    }
    switch (op->code) {
    case LLWPCB_GOOD:
    case LOAD_STATE:
        op->arg = take(4);
        for (unsigned i = 0; i < 20; i++) {
            op->image[i] = take(1);
        }
        break;
    case XRSTOR:
        for (unsigned i = 0; i < sizeof(op->image); i++) {
            op->image[i] = take(1);
        }
        break;
    case XRSTOR_SMALL:
        op->image[1] = 4;                       /* LWPCB at 0x400 */
        op->image[8] = take(1);
        op->image[12] = take(1) & -LWP_RECORD_SIZE;
        op->image[13] = 3;
        op->image[25] = 4;                      /* ring of 1024 bytes at 0 */
        for (int i = 28; i < 32; i++) {
            op->image[i] = take(1);
        }
        op->image[32] = take(1);                /* SavedEventRecord */
        for (int event = 1; event <= LWP_NR_EVENTS; event++) {
            op->image[60 + 4 * event] = take(1);
            op->image[63 + 4 * event] = take(1);
        }
        break;
    default:
        op->arg = take(op->ds.va_bits ? 8 : 4);
        if (op->how & 8 && op->ds.base) {
            op->ds.base = (uint32_t)-op->arg;     /* linear address 0 */
        }
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t caps, how;

    input = data;
    input_end = data + size;
    how = take(1);
    config.features = FEATURES;
    if (how & 1) {
        config.features &= take(1) | LWP_FLAG_INT;
    }
    caps = take(1);
    config.caps = (caps & LWP_CAP_DATA_ADDRESS) |
                  caps * LWP_CAP_PREDICTION;    /* bits 31:28 */
    direct = how & 2;
    reports = how & 12;
    config.model.insn_clocks = how & 16 ? 1 : 3;
    config.model.refclk_ratio = how & 32 ? 1000 : 1500;
    config.latency_bits = how & 64 ? 20 : 10;
    config.latency_round = how & 128 ? 0 : 4;
    lwp = (LwpState) { .cfg = config.features | VECTOR };
    account_reset(caps & 0x80, 1000);
    forced = false;
    wants = 0;
    memset(ram, 0, sizeof(ram));
    model_begin();

    while (input < input_end) {
        Op op = { .code = take(1) % NR_CODES, .ds.last = UINT32_MAX };

        op.how = take(1);
        fault_in = (int8_t)take(1);
        take_op(&op);
        step(&op);
        fault_in = -1;
        step(&op);
    }
    return 0;
}
