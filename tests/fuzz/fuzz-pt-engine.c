/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzz target: any sequence of operations on Processor Trace.  Guest memory is
 * a few pages, in which tables of ToPA may be, lead to each other, or be
 * written over by the trace itself.  Nothing is written but to the region that
 * is current; tables do not take more reads than regions are filled; a WRMSR
 * that fails changes nothing; each state must be one that migration accepts.
 *
 * With clang this is a libFuzzer target; otherwise main() makes the inputs.
 */

#include <stddef.h>
#include <string.h>
#include "pt.h"
#include "fuzz.h"
#include "input.h"

#define PAGE        4096u
#define MEMORY      (8 * PAGE)

static PtConfig config;
static PtState state;
static PtPending pending;
static uint8_t memory[MEMORY];
static unsigned reads;

static bool host_read(void *opaque, uint64_t phys, uint64_t *val)
{
    (void)opaque;
    reads++;
    if (phys & 7) {
        fail("an entry that is not aligned");
    }
    if (phys >= MEMORY) {
        return false;
    }
    *val = 0;
    for (unsigned i = 8; i--; ) {
        *val = *val << 8 | memory[phys + i];
    }
    return true;
}

static bool host_write(void *opaque, uint64_t phys, const uint8_t *from,
                       uint32_t n)
{
    uint64_t size = (uint64_t)(uint32_t)state.output_mask + 1;
    uint64_t base = state.output_base;

    (void)opaque;
    if (state.ctl & PT_CTL_TOPA) {
        size = 4096ull << (state.entry >> 6 & 15);
        base = state.entry & ~4095ull;
    }
    if (!n || n > PT_STAGED || phys < base || phys - base > size - n) {
        fail("a write that is not to the region");
    }
    if (phys >= MEMORY || n > MEMORY - phys) {
        return false;
    }
    memcpy(memory + phys, from, n);
    return true;
}

static uint64_t host_tsc(void *opaque)
{
    (void)opaque;
    return 0x123456789abcdef0;
}

static const PtHost host = { host_read, host_write, host_tsc, NULL };
static const Pt pt = { &state, &pending, &config, &host };

static const uint32_t msrs[] = {
    0x560, 0x561, 0x570, 0x571, 0x572,
    0x580, 0x581, 0x582, 0x583, 0x584, 0x587, 0x588, 0x55f, 0x56f,
};

#define NR_MSRS     (sizeof(msrs) / sizeof(msrs[0]))

/* What can be executed: canonical, and often near */
static uint64_t take_ip(void)
{
    uint64_t ip = take(1) & 1 ? take(2) : take(6);

    return (uint64_t)((int64_t)(ip << 16) >> 16);
}

static PtPlace take_place(void)
{
    uint8_t how = (uint8_t)take(1);

    return (PtPlace) {
        .ip = take_ip(), .cr3 = how & 4 ? take(1) << 5 : state.here.cr3,
        .os = how & 1, .smm = (how & 0xf0) == 0xf0,
        .exec = (how >> 1 & 1) + (how >> 3 & 1),
    };
}

static void write_msr(uint32_t msr, uint64_t val)
{
    PtState old = state;
    PmuAccess access = pt_wrmsr(&pt, msr, val, take_ip());

    if (access != PMU_MSR_OK && memcmp(&old, &state, sizeof(old))) {
        fail("a WRMSR that failed");
    }
    if (access == PMU_MSR_OK &&
        pt_rdmsr(&pt, msr, &val) != PMU_MSR_OK) {
        fail("an MSR that can only be written");
    }
}

/* Values that are mostly accepted, and a table that is mostly one */
static void set_up(uint8_t how)
{
    unsigned table = take(1) % 8 * PAGE;

    write_msr(0x570, 0);
    write_msr(0x571, 0);
    for (unsigned i = how >> 4; i--; ) {
        uint64_t val = (take(1) % 16) * PAGE | take(1);

        for (unsigned j = 0; j < 8; j++) {
            memory[table + 8 * i + j] = (uint8_t)(val >> 8 * j);
        }
    }
    write_msr(0x560, table);
    write_msr(0x561, how & 1 ? 0xfff : take(2) << 32 | (take(1) & 15) << 7);
    write_msr(0x570, (how & 1 ? 0 : PT_CTL_TOPA) | PT_CTL_TRACE_EN |
                     (take(2) & 0x2c8c) | PT_CTL_BRANCH_EN |
                     (take(1) & 0x33) << 32);
    if (how & 2) {
        PtPlace next = take_place();

        pt_resume(&pt, &next);
    }
}

/* As translated code does; or as old code, which does not know any better */
static void near_branch(uint8_t how)
{
    uint64_t to = take_ip();

    if (pt_near_wanted(&state)) {
        if (how & 1) {
            pt_push(&pending, take_ip());
        }
        pt_near(&pt, (PtBranch)(how >> 1 & 3), to);
    } else if (how & 1) {
        pt_push(&pending, to);
    } else if (how & 2) {
        if (pt_ret(&pending, to)) {
            if (pt_cond(&pending, true)) {
                pt_outcomes(&pt, to);
            }
        } else {
            pt_indirect(&pt, to);
        }
    } else {
        pt_indirect(&pt, to);
    }
}

static void conditional(uint8_t how)
{
    for (unsigned n = take(1); n; n--) {
        if (pt_cond(&pending, how >> n % 8 & 1)) {
            pt_outcomes(&pt, take_ip());
        }
    }
}

static void migrate(void)
{
    unsigned at = take(2) % sizeof(PtState), n = (unsigned)take(1);
    PtPending p;
    PtState s;

    pt_settle(&pt);
    if (pt_state_bad(&state, &pending, &config)) {
        fail("a state that migration refuses");
    }
    /* Whatever a stream may have in it */
    s = state;
    p = pending;
    if (n & 8) {
        p.tnt ^= take(8);
        p.top ^= (uint32_t)take(2);
    }
    for (n &= 7; n; n--) {
        uint8_t *byte = (uint8_t *)&s + (at + n) % sizeof(s);

        /* Those of a bool are 0 or 1 in a stream. */
        *byte ^= (uint8_t)(&s.starting <= (bool *)byte &&
                           (bool *)byte <= &s.smm_trace_en ?
                           take(1) & 1 : take(1));
    }
    s.pmi = s.changed = false;
    s.here.os = s.here.smm = false;
    if (!pt_state_bad(&s, &p, &config)) {
        state = s;
        pending = p;
        pt_loaded(&pt);
    }
}

static void step(uint8_t op, uint8_t how)
{
    PtPlace place;

    switch (op % 16) {
    case 0:
        write_msr(msrs[how % NR_MSRS], take(8));
        break;
    case 1:
        write_msr(msrs[how % NR_MSRS], take(2) << (take(1) & 63));
        break;
    case 2:
    case 3:
        set_up(how);
        break;
    case 4:
        place = take_place();
        pt_resume(&pt, &place);
        break;
    case 5:
        place = take_place();
        pt_far(&pt, &place);
        break;
    case 6:
        place = take_place();
        pt_event(&pt, take_ip(), &place);
        break;
    case 7:
        place = take_place();
        pt_cr3(&pt, &place);
        break;
    case 8:
        pt_smi(&pt, take_ip());
        break;
    case 9:
        pt_rsm(&pt);
        break;
    case 10:
        migrate();
        break;
    case 11:
        if (how < 4) {
            pt_reset(&pt, how & 1);
        } else {
            pt_settle(&pt);
        }
        break;
    case 12:
        /* The end of a region is not far. */
        if (!(state.ctl & PT_CTL_TRACE_EN)) {
            write_msr(0x561, (0x1000ull - how) << 32 | (take(1) & 15) << 7);
        }
        break;
    case 13:
        conditional(how);
        break;
    default:
        near_branch(how);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t regs[4];
    uint8_t without;

    input = data;
    input_end = data + size;
    without = (uint8_t)take(1);
    /* Broadwell or Skylake */
    pt_config_init(&config, pt_flavour(PMU_VENDOR_INTEL, 6,
                                       without & 8 ? 0x3d : 0x5e));
    config.phys_bits = without & 1 ? 52 : 36;
    config.va_bits = without & 2 ? 57 : 48;
    config.ecx &= without & 4 ? ~PT_ECX_SINGLE : ~0u;
    pt_cpuid(&config, without, regs);
    memset(memory, 0, sizeof(memory));
    pt_reset(&pt, false);
    while (input < input_end) {
        uint8_t op = (uint8_t)take(1), how = (uint8_t)take(1);

        reads = 0;
        step(op, how);
        /* An operation has less bytes than a page, or settles a few times. */
        if (reads > 8) {
            fail("more entries than there is a use for");
        }
        if (state.staged > PT_STAGED || pending.top % 8 ||
            !pending.tnt || pending.tnt >> PT_FULL) {
            fail("out of range");
        }
        state.pmi = state.changed = false;
    }
    pt_settle(&pt);
    if (pt_state_bad(&state, &pending, &config)) {
        fail("a state that migration refuses");
    }
    return 0;
}
