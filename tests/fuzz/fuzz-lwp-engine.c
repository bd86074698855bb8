/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzz target: any sequence of operations on any memory contents, with faults
 * anywhere.  The engine must only touch the LWPCB and the ring, count in
 * MissedEvents what it reports as missed, and always leave a state that
 * migration would accept.
 */

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"
#include "lwp-engine.h"

#define FEATURES    (LWP_FLAG_EVENTS | LWP_FLAG_INT)
#define VECTOR      (0x51ull << 40)
#define CB_SIZE     176         /* LwpCbSize for six events, bytes */
#define CB_ADDR     64          /* of write_cb() */
#define CB_MISSED   24

typedef struct Window {
    uint64_t start, size;
} Window;

static const uint8_t *input, *input_end;
/* Behind every address, modulo its size less 8 */
static _Alignas(8) uint8_t ram[4096];
static bool direct;             /* the engine may have pointers to it */
static Window windows[3];       /* old LWPCB, old ring, new LWPCB */
static int fault_in;            /* accesses until one faults; none if < 0 */
static jmp_buf fault;
static LwpState lwp;
static RetireState account;
static uint64_t missed_before;
static unsigned missed_counted, missed_reported;

static LwpConfig config = {
    .latency_bits = 10, .latency_round = 4,
    .model = {
        .insn_clocks = 3, .refclk_ratio = 1500,
        .latency = {
            [RETIRE_SOURCE_L2] = 1, [RETIRE_SOURCE_L3] = 60,
            [RETIRE_SOURCE_REMOTE] = 1000, [RETIRE_SOURCE_DRAM] = 70000,
            [RETIRE_SOURCE_OTHER] = RETIRE_LATENCY_MAX,
        },
        .latency_worst = 2 * RETIRE_LATENCY_MAX,
    },
};
static RetirePredictor predictor;

static uint64_t take(unsigned bytes)
{
    uint64_t val = 0;

    while (bytes-- && input < input_end) {
        val = val << 8 | *input++;
    }
    return val;
}

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

static void fuzz_probe(LwpMem *mem, uint64_t addr, uint32_t len)
{
    (void)mem;
    touch(addr, len);
}

static bool fuzz_begin(LwpMem *mem, uint64_t cb, uint32_t size, uint64_t slot,
                       bool ready, LwpHost *host)
{
    uintptr_t gap;

    (void)mem;
    if (ready) {
        fault_in = -1;
    }
    host->cb = touch(cb, size);
    host->slot = touch(slot, LWP_RECORD_SIZE);
    gap = host->slot - host->cb;
    if (!direct || ((uintptr_t)host->cb | gap) % 8 || gap < size ||
        -gap < LWP_RECORD_SIZE || host->cb + size > ram + sizeof(ram) ||
        host->slot + LWP_RECORD_SIZE > ram + sizeof(ram)) {
        return false;
    }
    memcpy(&missed_before, host->cb + CB_MISSED, 8);
    fault_in = -1;
    return true;
}

static void fuzz_end(LwpMem *mem)
{
    uint64_t missed;

    (void)mem;
    memcpy(&missed, touch(lwp.cbaddr + CB_MISSED, 8), 8);
    missed_counted += missed - missed_before;
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
        fprintf(stderr, "not MissedEvents\n");
        abort();
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

/* A look that does not fault */
static uint32_t peek32(uint64_t addr)
{
    int saved = fault_in;
    uint32_t val;

    fault_in = -1;
    val = fuzz_ld32(NULL, addr);
    fault_in = saved;
    return val;
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
    if (lwp.head != (missed ? offset : (offset + LWP_RECORD_SIZE) % lwp.size) ||
        vector != (due ? lwp.cfg >> 40 & 255 : 0) || !(record->q[0] & 255)) {
        fprintf(stderr, "a wrong report\n");
        abort();
    }
    missed_reported += missed;
}

static const LwpMemOps fuzz_ops = {
    .probe = fuzz_probe,
    .begin = fuzz_begin,
    .end = fuzz_end,
    .writable = fuzz_writable,
    .ld32 = fuzz_ld32,
    .ld64 = fuzz_ld64,
    .st32 = fuzz_st32,
    .st64 = fuzz_st64,
    .st_record = fuzz_st_record,
    .report = fuzz_report,
};

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
    uint32_t ahead = account.due ? UINT32_MAX : retire_ahead(&account);
    bool due = lwp_miss_due(&lwp, &config, ahead, &miss);
    uint32_t npending = lwp.npending;
    LwpState copy;
    RetireState copied;
    RetireCount n;

    if (due && !lwp_miss_due(&lwp, &config, ahead, NULL)) {
        fprintf(stderr, "a miss is worse than the worst one\n");
        abort();
    }
    if (lwp_miss(&lwp, &config, &miss)) {
        retire_arm(&account, lwp_distance(&lwp));
    }
    if (due || account.due || !lwp_eligible(&lwp, miss.ip)) {
        return;
    }
    /* Nothing happens, then, nor will it with what has been counted ahead. */
    copy = lwp;
    copied = account;
    n = retire_take(&copied);
    lwp_count(&copy, &config, &n);
    if (copy.npending != npending ||
        ((copy.flags & LWP_FLAG(LWP_EVENT_CNH)) &&
         copy.counter[LWP_EVENT_CNH - 1] < 0) ||
        ((copy.flags & LWP_FLAG(LWP_EVENT_RNH)) &&
         copy.counter[LWP_EVENT_RNH - 1] < 0)) {
        fprintf(stderr, "a miss made an event fall due\n");
        abort();
    }
}

static void sync_account(void)
{
    RetireCount n = retire_take(&account);

    lwp_count(&lwp, &config, &n);
    memcpy(account.branch_unit, lwp.branch_unit, sizeof(account.branch_unit));
    account.ip_first = lwp.ip_first;
    account.ip_span = lwp.ip_span;
    retire_arm(&account, lwp_distance(&lwp));
}

/* A block, as translated code runs it. */
static void run_block(LwpMem *mem, const RetireBlock *block, uint64_t arg)
{
    RetireCount n;

    retire_begin(&account, block->insns, block->branch);
    if (account.fuse < 0 && account.foreseen) {
        account.block = *block;
        retire_set_due(&account);
    } else if (account.fuse < 0) {
        RetirePlan plan;

        retire_give_back(&account, block->insns, block->branch);
        n = retire_take(&account);
        plan = lwp_trip(&lwp, mem, block, &n);
        if (plan.action == RETIRE_PLAN_STEP) {
            sync_account();
            return;
        }
        retire_run(&account, plan.insns, block);
        if (plan.action == RETIRE_PLAN_DUE) {
            account.block = *block;
            retire_set_due(&account);
        }
        account.foreseen = plan.foreseen;
    }
    if (arg >> 26 & 1) {
        retire_unretire(&account, 1 + arg % block->insns, block->branch,
                        block->ip);
        if (arg >> 27 & 1) {
            n = retire_take(&account);
            lwp_settle(&lwp, mem, &n);
            sync_account();
        }
    }
}

typedef struct Op {
    uint8_t code;
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

static void run(const Op *op)
{
    LwpMem mem = { .ops = &fuzz_ops, .config = &config, .reports = true };
    uint8_t image[LWP_XSAVE_SIZE];
    uint32_t regs[4];
    LwpState state;
    RetireBlock block = { .ip = op->arg & 0xffff, .lengths = { op->arg },
                       .insns = 1 + (op->arg >> 16 & 63),
                       .branch = (op->arg >> 24 & 255) % RETIRE_NR_BRANCHES };

    if (op->code % 13 != 9 && op->code % 13 != 10) {
        sync_account();
    }
    switch (op->code % 13) {
    case 0:
        lwp_llwpcb(&lwp, &mem, &op->ds, op->arg);
        break;
    case 1:
        lwp_slwpcb(&lwp, &mem, &op->ds);
        break;
    case 2:
        if (lwp_val_due(&lwp, &mem, op->arg)) {
            lwp_insert(&lwp, &mem, LWP_EVENT_VAL, 1, 2, 3, 4);
        }
        break;
    case 3:
        if (lwp_enabled(&lwp)) {
            lwp_insert(&lwp, &mem, LWP_EVENT_INS, 1, 2, 3, 4);
        }
        break;
    case 4:
        lwp_boundary(&lwp, &mem, op->arg);
        break;
    case 5:
        lwp_xrstor(&lwp, &config, op->image,
                   op->code & 0x80 ? &op->ds : NULL);
        break;
    case 6:
        lwp_write_cfg(&lwp, &config, op->arg);
        break;
    case 7:
        lwp_cpuid(&config, lwp.cfg, op->arg & 2, regs);
        if ((regs[0] & 1) != (op->arg >> 1 & 1)) {
            fprintf(stderr, "LWP is not as available as XCR0[62] says\n");
            abort();
        }
        lwp_xsave(&lwp, image);
        lwp_write_cbaddr(&lwp, op->arg & 1);
        break;
    case 8:
        lwp_retire(&lwp, &config, &predictor, &(RetireInsn) {
            .ip = block.ip, .next = block.ip + 2, .target = op->arg & 7,
            .branch = block.branch, .taken = op->arg & 1,
        });
        break;
    case 9:
        /* A block, as translated code runs it. */
        if (lwp_mode(&lwp) >= RETIRE_INSNS && lwp_eligible(&lwp, block.ip)) {
            run_block(&mem, &block, op->arg);
        }
        return;
    case 10:
        if (lwp_wants_loads(&lwp)) {
            run_miss(op->arg);
        }
        return;
    case 11:
        lwp_disable(&lwp);
        sync_account();
        write_cb(op);
        lwp_llwpcb(&lwp, &mem, &(LwpSegment) { .va_bits = 48 }, CB_ADDR);
        break;
    case 12:
        /* Whatever a stream may have in it */
        state = lwp;
        ((uint8_t *)&state)[(op->arg >> 8) % sizeof(state)] = op->arg;
        memcpy(&((uint8_t *)&state)[(op->arg >> 24) % (sizeof(state) - 8)],
               op->image, 8);
        lwp_load_state(&state, &config, op->code & 0x80);
        break;
    }
    sync_account();
}

static void step(const Op *op)
{
    LwpState copy;
    RetireState copied;
    RetireCount n;

    windows[0] = (Window) { lwp.cbaddr, lwp.cbaddr ? CB_SIZE : 0 };
    windows[1] = (Window) { lwp.base, lwp.size };
    windows[2] = (Window) {
        op->code % 13 == 11 ? CB_ADDR :
        op->ds.va_bits ? op->arg : (uint32_t)(op->ds.base + op->arg),
        op->code % 13 == 0 || op->code % 13 == 11 ? CB_SIZE : 0
    };
    missed_counted = missed_reported = 0;
    if (setjmp(fault) == 0) {
        run(op);
    }
    if (missed_counted != missed_reported) {
        fprintf(stderr, "%u events counted as missed, %u reported\n",
                missed_counted, missed_reported);
        abort();
    }
    copy = lwp;
    copied = account;
    n = retire_take(&copied);
    lwp_count(&copy, &config, &n);
    if (!lwp_load_state(&copy, &config, true)) {
        fprintf(stderr, "operation %u left an invalid state\n", op->code % 13);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t caps;

    input = data;
    input_end = data + size;
    config.features = FEATURES;
    if (size & 1) {
        config.features &= take(1) | LWP_FLAG_INT;
    }
    caps = take(1);
    config.caps = (caps & LWP_CAP_DATA_ADDRESS) |
                  caps * LWP_CAP_PREDICTION;    /* bits 31:28 */
    direct = size & 2;
    lwp = (LwpState) { .cfg = config.features | VECTOR };
    account = (RetireState) { 0 };
    memset(&predictor, 0, sizeof(predictor));
    memset(ram, 0, sizeof(ram));

    while (input < input_end) {
        Op op = { .code = take(1), .ds.last = UINT32_MAX };

        fault_in = (int8_t)take(1);
        if (op.code & 0x40) {
            op.ds.va_bits = 48;
        } else if (op.code & 0x20) {
            op.ds.base = take(4);
            op.ds.last = take(4);
        }
        if (op.code & 0x10) {
            for (int i = 0; i < 4; i++) {
                ram[take(2) % sizeof(ram)] = take(1);
            }
        }
        if (op.code % 13 == 11 || op.code % 13 == 12) {
            op.arg = take(4);
            for (unsigned i = 0; i < 20; i++) {
                op.image[i] = take(1);
            }
        } else if (op.code % 13 == 5) {
            for (unsigned i = 0; i < sizeof(op.image); i++) {
                op.image[i] = take(1);
            }
            if (op.code & 8) {
                /* A small ring, so that the head comes to its end. */
                op.image[12] = take(1) & -LWP_RECORD_SIZE;
                op.image[13] = 3;
                op.image[14] = op.image[15] = 0;
                op.image[24] = 0;
                op.image[25] = 4;
                op.image[26] = op.image[27] = 0;
            }
        } else {
            op.arg = take(op.ds.va_bits ? 8 : 4);
            if (op.code & 8 && op.ds.base) {
                op.ds.base = (uint32_t)-op.arg;     /* linear address 0 */
            }
        }
        step(&op);
        fault_in = -1;
        step(&op);
    }
    return 0;
}
