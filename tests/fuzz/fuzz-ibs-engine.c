/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzz target: any sequence of operations on the registers of Instruction-Based
 * Sampling, of any processor.  A sample must come just where the distance says,
 * with a valid bit that was not set before; what RDMSR shows must be what is
 * written back, and each state one that migration would accept.
 *
 * With clang this is a libFuzzer target; otherwise main() makes the inputs.
 */

#include <stddef.h>
#include <string.h>
#include "ibs.h"
#include "fuzz.h"
#include "input.h"

static IbsConfig config;
static IbsState state;

static uint64_t rd(unsigned reg)
{
    uint64_t val = 0;

    ibs_rdmsr(&state, &config, IBS_MSR_FIRST + reg, &val);
    return val;
}

static unsigned valid(void)
{
    return (rd(IBS_FETCH_CTL) & IBS_FETCH_VAL ? IBS_FETCH : 0) |
           (rd(IBS_OP_CTL) & IBS_OP_VAL ? IBS_OP : 0);
}

static void be(unsigned n)
{
    static const uint8_t cpus[][2] = {
        { 0x10, 2 }, { 0x12, 1 }, { 0x15, 2 }, { 0x15, 0x13 }, { 0x15, 0x30 },
        { 0x15, 0x65 }, { 0x16, 0 }, { 0x17, 1 }, { 0x18, 0 }, { 0x19, 1 },
        { 0x19, 0x11 }, { 0x19, 0x21 }, { 0x19, 0x61 }, { 0x1a, 2 }, { 15, 6 },
    };
    const uint8_t *cpu = cpus[n % (sizeof(cpus) / sizeof(cpus[0]))];

    if (ibs_config_init(&config, cpu[0], cpu[1])) {
        config.caps &= n & 0x80 ? take(2) : UINT32_MAX;
        config.insn_clocks += n & 0x40 ? take(1) : 0;
        config.random = !(n & 0x20);
    }
    ibs_reset(&state);
}

static void write_register(unsigned reg, uint64_t val)
{
    uint64_t got;

    switch (ibs_wrmsr(&state, &config, IBS_MSR_FIRST + reg, val)) {
    case PMU_MSR_OK:
        got = rd(reg);
        state.started &= take(1);
        if (reg != IBS_CONTROL) {
            ibs_wrmsr(&state, &config, IBS_MSR_FIRST + reg, got);
            if (rd(reg) != got || (got & ~val)) {
                fail("a register is not what was written");
            }
        }
        break;
    case PMU_MSR_GP:
        if (ibs_rdmsr(&state, &config, IBS_MSR_FIRST + reg, &got) !=
            PMU_MSR_GP) {
            fail("a register can be read, but not written");
        }
        break;
    case PMU_MSR_OTHER:
        if (reg < IBS_NR_REGISTERS) {
            fail("a register is nobody's");
        }
        break;
    }
}

static void retire(void)
{
    RetireAccess access[RETIRE_STORY_ACCESSES];
    unsigned before = valid(), due = ibs_due(&state), bits = take(2), samples;
    RetireStory story = {
        .branch = (bits & 15) % RETIRE_NR_BRANCHES, .taken = bits & 16,
        .is_far = bits & 32, .mispredicted = bits & 64, .access = access,
        .nr_accesses = bits >> 8 & 7,
    };
    IbsInsn insn = {
        .story = &story, .rip = take(4), .target = take(4),
        .has_physical = bits & 128, .physical = take(8),
        .lg_page = 12 + take(1) % 20, .fetch_missed = bits & 0x800,
        .fetch_tlb = (bits >> 12 & 3) % 3,
    };

    memset(access, 0, sizeof(access));
    for (unsigned i = 0; i < story.nr_accesses && i < RETIRE_STORY_ACCESSES;
         i++) {
        unsigned what = take(2);

        access[i] = (RetireAccess) {
            .addr = take(1), .physical = take(8), .modified = what & 1,
            .source = (what >> 1) % (RETIRE_SOURCE_UNKNOWN + 1),
            .clocks = take(3), .size = take(1), .load = what & 0x100,
            .store = what & 0x200, .locked = what & 0x400,
            .split = what & 0x800, .tlb = (what >> 12) % 3,
            .lg_page = 12 + take(1) % 20,
        };
    }
    due &= ~state.started;
    samples = ibs_retire(&state, &config, bits & 0x8000 ? NULL : &insn);
    if ((samples & ~due) || (samples & before) ||
        valid() != (before | samples)) {
        fail("a sample that was not due");
    }
    if ((samples & IBS_OP) && rd(IBS_OP_RIP) != insn.rip) {
        fail("another instruction's sample");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t n;

    input = data;
    input_end = data + size;
    be(take(1));
    while (input < input_end) {
        unsigned what = take(1);

        switch (what & 7) {
        case 0:
        case 1:
            write_register(what >> 3 & 15, take(8));
            break;
        case 2:
            write_register(what & 8 ? IBS_OP_CTL : IBS_FETCH_CTL,
                           what & 8 ? take(2) << 32 | IBS_OP_EN |
                           (take(1) & 3) << 18 | (take(1) & 7) :
                           IBS_FETCH_EN | (take(1) & 3) << 56 |
                           (take(2) & 0xf0007));
            break;
        case 3:
            n = ibs_distance(&state, &config);
            if (n != UINT32_MAX) {
                ibs_count(&state, &config, n);
                if (!ibs_due(&state) || ibs_distance(&state, &config)) {
                    fail("no sample where the distance says");
                }
            }
            break;
        case 4:
            ibs_count(&state, &config, take(what >> 3 & 3));
            break;
        case 5:
        case 6:
            retire();
            break;
        default:
            if (what & 8) {
                ibs_squash(&state, &config);
            } else if (what & 0x10) {
                ibs_init(&state);
                if (ibs_enabled(&state)) {
                    fail("enabled behind INIT");
                }
            } else if (what & 0x20) {
                /* Of a stream, anything may come. */
                IbsState other = state;

                other.reg[take(1) % IBS_NR_REGISTERS] ^= 1ull << take(1) % 64;
                other.op_count ^= take(4);
                other.fetch_count ^= take(4);
                if (ibs_state_valid(&other, &config)) {
                    state = other;
                }
            }
            break;
        }
        if (!ibs_state_valid(&state, &config)) {
            fail("a state that no stream may have");
        }
    }
    return 0;
}
