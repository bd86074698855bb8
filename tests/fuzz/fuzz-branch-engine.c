/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzz target: any sequence of operations on the branch records of any
 * processor.  The stack must be that of a model which moves records where the
 * manuals say that they move; what RDMSR shows must be the same behind a
 * migration, and if it is written back; each state must be one that migration
 * would accept.  The branch trace store is done twice, with and without its
 * quick way: both must be the same, and touch nothing but their own.
 *
 * With clang this is a libFuzzer target; otherwise main() makes the inputs.
 */

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "branch.h"
#include "bts.h"
#include "fuzz.h"
#include "input.h"

#define DEPTH       0x14cf
#define TOS         0x1c9

static BranchConfig config;
static BranchState state;
static BranchRing ring;
static uint64_t now;

static const struct {
    PmuVendor vendor;
    unsigned family, model;
} cpus[] = {
    { PMU_VENDOR_INTEL, 6, 7 }, { PMU_VENDOR_INTEL, 6, 0x0d },
    { PMU_VENDOR_INTEL, 6, 0x0e }, { PMU_VENDOR_INTEL, 6, 0x0f },
    { PMU_VENDOR_INTEL, 6, 0x1c }, { PMU_VENDOR_INTEL, 6, 0x37 },
    { PMU_VENDOR_INTEL, 6, 0x1a }, { PMU_VENDOR_INTEL, 6, 0x3c },
    { PMU_VENDOR_INTEL, 6, 0x5e }, { PMU_VENDOR_INTEL, 6, 0x86 },
    { PMU_VENDOR_INTEL, 6, 0x8f }, { PMU_VENDOR_AMD, 15, 0x6b },
    { PMU_VENDOR_AMD, 0x19, 0x11 }, { PMU_VENDOR_INTEL, 15, 6 },
    { PMU_VENDOR_INTEL, 6, 0x5f },
};

static const struct {
    uint32_t first, number;
} msrs[] = {
    { 0x1d9, 1 }, { 0x1c8, 2 }, { 0x1db, 4 }, { 0x1e0, 1 },
    { 0x040, 9 }, { 0x060, 9 }, { 0x680, 33 }, { 0x6c0, 33 }, { 0xdc0, 33 },
    { 0x14ce, 2 }, { 0x1200, 33 }, { 0x1500, 33 }, { 0x1600, 33 },
    { 0xc000010e, 2 }, { 0xc0010300, 33 }, { 0x1d8, 1 },
};

#define NR_MSRS     (sizeof(msrs) / sizeof(msrs[0]))

/* All registers as they are shown */
typedef struct Shown {
    uint64_t val[NR_MSRS][33];
} Shown;

static void show(Shown *shown)
{
    memset(shown, 0, sizeof(*shown));
    for (unsigned i = 0; i < NR_MSRS; i++) {
        for (unsigned n = 0; n < msrs[i].number; n++) {
            branch_rdmsr(&state, &config, &ring, msrs[i].first + n,
                         &shown->val[i][n]);
        }
    }
}

static void same_shown(const Shown *a, const char *what)
{
    Shown b;

    show(&b);
    if (memcmp(a, &b, sizeof(b))) {
        fail(what);
    }
}

/*
 * The model: by what RDMSR shows of its registers, records are in slots, with
 * or without a TOS.
 */
static PerfmonBranch model[BRANCH_NR];        /* the last one first */
static unsigned depth;

static unsigned get_depth(void)
{
    PerfmonBranch e;
    unsigned n = 0;

    while (branch_entry(&state, &config, &ring, n, &e)) {
        n++;
    }
    return n;
}

static void get_model(void)
{
    depth = get_depth();
    for (unsigned n = 0; n < depth; n++) {
        branch_entry(&state, &config, &ring, n, &model[n]);
    }
}

static void check_model(const char *what)
{
    if (get_depth() != depth) {
        fail("the depth");
    }
    for (unsigned n = 0; n < depth; n++) {
        PerfmonBranch e;

        branch_entry(&state, &config, &ring, n, &e);
        if (memcmp(&e, &model[n], sizeof(e))) {
            fail(what);
        }
    }
}

static uint64_t get_tos(void)
{
    uint64_t tos = 0;

    branch_rdmsr(&state, &config, &ring, TOS, &tos);
    return tos;
}

static void record_one(uint8_t how)
{
    BranchTaken branch = {
        .class = RETIRE_BRANCH_COND + (how & 7),
        .mispredicted = how & 8, .from_os = how & 16, .to_os = how & 32,
        .from = take(3), .to = take(3),
    };
    bool frozen = (how & 0xc0) == 0xc0, has_tos;
    uint32_t wants = branch_wants(&state, &config, branch.to_os, frozen);
    uint64_t tos = get_tos(), unused;
    PerfmonBranch newest = { 0 };

    has_tos = branch_rdmsr(&state, &config, &ring, TOS, &unused) ==
              PMU_MSR_OK;
    now += take(2);
    get_model();
    branch_record(&state, &config, &ring, &branch, frozen, now);
    if (!(wants & BRANCH_WANT(branch.class))) {
        check_model("not to be recorded");
        return;
    }
    if (!depth) {
        fail("recorded, and nothing to record it in");
    }
    if ((wants & RETIRE_WANT_LBR_STACK) && branch.class == RETIRE_BRANCH_RET) {
        memmove(&model[0], &model[1], (depth - 1) * sizeof(model[0]));
        model[depth - 1] = newest;
        check_model("a return");
        tos += depth - 1;
    } else {
        branch_entry(&state, &config, &ring, 0, &newest);
        if (((newest.from ^ branch.from) & 0xffffff && ~newest.from) ||
            (newest.to ^ branch.to) & 0xffffff) {
            fail("the newest record");
        }
        memmove(&model[1], &model[0], (depth - 1) * sizeof(model[0]));
        model[0] = newest;
        check_model("a record");
        tos++;
    }
    if (has_tos && get_tos() != tos % depth) {
        fail("TOS");
    }
}

/* And again, so that a stack is full, or empty, some time */
static void record(uint8_t how)
{
    for (unsigned n = take(1) % 40 + 1; n; n--) {
        record_one(how);
    }
}

/* Registers that keep all bits */
static bool keeps(uint32_t msr)
{
    return (msr >= 0x40 && msr < 0x68) || msr == TOS ||
           (msr >= 0x600 && msr < 0x2000) || msr >= 0xc0010300;
}

/* A WRMSR changes one register, but for those that are the same. */
static void write_msr(uint32_t msr, uint64_t val)
{
    BranchState old = state;
    BranchRing old_ring = ring;
    Shown before, after;
    PmuAccess access;

    show(&before);
    access = branch_wrmsr(&state, &config, &ring, msr, val);
    if (access != PMU_MSR_OK) {
        if (memcmp(&old, &state, sizeof(old)) ||
            memcmp(&old_ring, &ring, sizeof(ring))) {
            fail("a WRMSR that failed");
        }
        return;
    }
    show(&after);
    for (unsigned i = 0; i < NR_MSRS; i++) {
        for (unsigned n = 0; n < msrs[i].number; n++) {
            uint32_t m = msrs[i].first + n;

            if (m == msr) {
                if (keeps(m) && after.val[i][n] != val) {
                    fail("what was written");
                }
            } else if (after.val[i][n] != before.val[i][n] && msr != DEPTH &&
                       !(msr >= 0xc0010300 && (m == 0x1db || m == 0x1dc))) {
                fail("what was not written");
            }
        }
    }
}

/* What is shown may be written back. */
static void write_back(uint8_t which)
{
    unsigned i = which % NR_MSRS;
    Shown shown;

    show(&shown);
    if (msrs[i].first == 0x14ce) {
        return;                 /* clears */
    }
    for (unsigned n = 0; n < msrs[i].number; n++) {
        branch_wrmsr(&state, &config, &ring, msrs[i].first + n,
                     shown.val[i][n]);
    }
    same_shown(&shown, "what was written back");
}

static void migrate(void)
{
    BranchStack stack;
    Shown shown;

    show(&shown);
    branch_stack_save(&state, &config, &ring, now, &stack);
    if (branch_state_bad(&state, &config, &stack)) {
        fail("a state that migration refuses");
    }
    memset(&ring, take(1) & 0xff, sizeof(ring));
    now = take(4);
    branch_stack_load(&state, &config, &ring, now, &stack);
    same_shown(&shown, "what was migrated");
}

/* Whatever a stream may have in it */
static void load(void)
{
    BranchState s = state;
    BranchStack stack;
    unsigned at = take(1);
    uint64_t val = take(8);

    branch_stack_save(&state, &config, &ring, now, &stack);
    if (at & 1) {
        at = at / 2 * 8 % offsetof(BranchState, smm_frozen);
        memcpy((uint8_t *)&s + at, &val, 8);
    } else {
        at = at / 2 * 8 % sizeof(stack);
        memcpy((uint8_t *)&stack + at, &val, 8);
    }
    s.smm_frozen ^= val >> 63;
    if (!branch_state_bad(&s, &config, &stack)) {
        state = s;
        branch_stack_load(&state, &config, &ring, now, &stack);
    }
}

/*
 * The branch trace store
 */

#define PAGE        4096u
#define PAGES       4

typedef struct Memory {
    uint8_t absent;         /* pages */
    uint8_t bytes[PAGES * PAGE];
} Memory;

static Memory slow_memory, quick_memory, old_memory;

static void *host(void *opaque, uint64_t addr, uint32_t len)
{
    Memory *m = opaque;

    if (!len || (addr & (PAGE - 1)) + len > PAGE) {
        fail("two pages");
    }
    return addr < sizeof(m->bytes) && !(m->absent >> addr / PAGE & 1) ?
           m->bytes + addr : NULL;
}

/* This knows no translation for the one of two memories. */
static void *quick(void *opaque, uint64_t addr, uint32_t len)
{
    return opaque == &slow_memory || (addr & (PAGE - 1)) + len > PAGE ? NULL :
           host(opaque, addr, len);
}

/* A field of a management area, near what matters if @how says so */
static uint64_t field(uint8_t how)
{
    uint64_t val = how & 1 ? take(8) : take(2) % (PAGES * PAGE);

    return how & 2 ? -(val & 0xff) : val;
}

static void trace(uint8_t how)
{
    unsigned size = config.dtes64 ? 8 : 4;
    uint64_t area = how & 16 ? take(8) : take(2) % (PAGES * PAGE - 32);
    uint64_t from = take(4), to = take(4), index, at;
    uint64_t flags = how & 32 && config.bts_predicted ? 16 : 0;
    uint64_t record[3] = { from, to, flags };
    BtsResult a, b;

    slow_memory.absent = (how & 12) == 12 ? (uint8_t)take(1) : 0;
    if (area < PAGES * PAGE - 32) {
        uint64_t base = field(how), index = base + take(1);
        uint64_t maximum = index + (take(1) & 7) * size - size;
        uint64_t threshold = index + (take(1) & 7) * size;
        uint64_t fields[4] = { base, index, maximum, threshold };

        for (unsigned i = 0; i < 4 * size; i++) {
            slow_memory.bytes[area + i] =
                (uint8_t)(fields[i / size] >> 8 * (i % size));
        }
    }
    quick_memory = old_memory = slow_memory;
    a = bts_record(&state, &config, area, from, to, how & 32, quick, host,
                   &slow_memory);
    b = bts_record(&state, &config, area, from, to, how & 32, quick, host,
                   &quick_memory);
    if (a != b || memcmp(&slow_memory, &quick_memory, sizeof(slow_memory))) {
        fail("two ways to store a record");
    }
    if (a != BTS_STORED && a != BTS_PMI) {
        if (memcmp(&slow_memory, &old_memory, sizeof(slow_memory))) {
            fail("memory, and no record");
        }
        return;
    }
    index = 0;
    for (unsigned i = 0; i < size; i++) {
        index |= (uint64_t)slow_memory.bytes[area + size + i] <<
                 8 * i;
    }
    at = index - 3 * size;
    for (unsigned i = 0; i < 3 * size; i++) {
        /* Unless the index has been written over it */
        if (at + i - area - size >= size && at < PAGES * PAGE - 24 &&
            slow_memory.bytes[at + i] !=
            (uint8_t)(record[i / size] >> 8 * (i % size))) {
            fail("a record");
        }
    }
    for (unsigned i = 0; i < PAGES * PAGE; i++) {
        if (slow_memory.bytes[i] != old_memory.bytes[i] &&
            i - at >= 3 * size && i - area - size >= size) {
            fail("memory that is not the record");
        }
    }
}

static void environment(uint8_t how)
{
    BranchSvm svm, other;

    switch (how & 7) {
    case 0:
        branch_debug(&state);
        break;
    case 1:
        config.pmu_version = how >> 3 & 7;
        branch_pmi(&state, &config, how & 64);
        break;
    case 2:
        if (!state.smm_frozen) {
            branch_smi(&state, how & 8);
        }
        break;
    case 3:
        branch_rsm(&state);
        break;
    case 4:
    case 5:
        branch_reset(&state, &config, &ring);
        break;
    default:
        branch_svm_save(&state, &config, &ring, &svm);
        other = (BranchSvm) { take(2), take(8), take(8), take(8), take(8) };
        branch_svm_load(&state, &config, &ring, &other);
        branch_svm_load(&state, &config, &ring, &svm);
        branch_svm_save(&state, &config, &ring, &other);
        if (memcmp(&svm, &other, sizeof(svm))) {
            fail("what SVM has saved");
        }
        break;
    }
}

static void step(uint8_t op, uint8_t how)
{
    unsigned i;

    switch (op % 12) {
    case 0:
        i = how % NR_MSRS;
        write_msr(msrs[i].first + take(1) % msrs[i].number, take(8));
        break;
    case 1:
        write_msr(0x1d9, take(2) & 0x27ff);
        break;
    case 2:
        write_msr(0x1c8, how & 32 ? 0x3c4 : take(2) & 0x3ff);
        write_msr(0xc000010e, take(1));
        write_msr(0xc000010f, how);
        break;
    case 3:
        write_msr(0x14ce, how & 1 ? 0x38000f : take(3) & 0x7f000f);
        break;
    case 4:
        write_msr(DEPTH, 8u << (how & 3));
        write_msr(TOS, how >> 3);
        break;
    case 5:
        write_back(how);
        break;
    case 6:
        migrate();
        break;
    case 7:
        load();
        break;
    case 8:
        trace(how);
        break;
    case 9:
        environment(how);
        break;
    default:
        record(how);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t regs[4] = { 0 };
    const BranchFlavour *flavour;
    uint8_t without;
    unsigned i;

    input = data;
    input_end = data + size;
    i = take(1) % (sizeof(cpus) / sizeof(cpus[0]));
    without = take(1);
    flavour = branch_flavour(cpus[i].vendor, cpus[i].family, cpus[i].model);
    branch_config_init(&config, flavour, without & 16 ? without & 7 : 0);
    config.ds = config.pmu && !(without & 128);
    config.dtes64 = config.ds && !(without & 32);
    config.ds_cpl = config.ds && !(without & 64);
    config.insn_clocks = 1 + (without & 1) * 999;
    config.debugctl_other = without & 2 ? 0x1800 : 0;
    if (!branch_flavour_name(flavour) ||
        branch_perf_capabilities(&config) > 0x3f) {
        fail("what it is");
    }
    branch_cpuid_80000022(&config, regs);
    branch_cpuid_1c(&config, regs);
    memset(&slow_memory, 0, sizeof(slow_memory));
    now = 0;
    branch_reset(&state, &config, &ring);
    while (input < input_end) {
        uint8_t op = (uint8_t)take(1), how = (uint8_t)take(1);
        BranchStack stack;

        step(op, how);
        branch_stack_save(&state, &config, &ring, now, &stack);
        if (branch_state_bad(&state, &config, &stack)) {
            fail("a state that migration refuses");
        }
        if (ring.top % 8) {
            fail("the ring");
        }
    }
    return 0;
}
