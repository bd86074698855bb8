/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A TCG plugin that counts what retires, beside the performance counters of
 * target/i386/pmu and without them: for each vCPU, from a WRMSR on that makes
 * fixed counter 0 run at all privilege levels, to the one that stops it.
 *
 * A plugin sees instructions start.  Such a start does not count if
 *  - the handler of a fault comes next, and its frame has the address of this
 *    very instruction; or
 *  - the same instruction starts again next, and is no jump to itself: QEMU
 *    leaves it and comes back, for another iteration of a REP, or as it has
 *    stored to code that is in the same block.
 *
 * Works for 64-bit kernels whose handlers begin as Linux's do.  What is counted
 * is printed when QEMU ends, as "vcpu N insns M".
 */

#include <glib.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plugin.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

#define MSR_FIXED_CTR0      0x309
#define MSR_FIXED_CTR_CTRL  0x38d
#define MSR_GLOBAL_CTRL     0x38f
#define FIXED_CTR0_ALL      3
#define MAX_INSN_LENGTH     15
#define GLOBAL_FIXED_CTR0   (1ull << 32)

typedef struct Cpu {
    uint64_t insns;             /* starts that count, in blocks */
    uint64_t last;              /* address of the last start */
    uint64_t fixed_ctr_ctrl, global_ctrl;
    uint64_t stopped_at;        /* insns when it was stopped */
    bool runs, started;
} Cpu;

typedef enum Reg { RAX, RCX, RDX, RSP, NR_REGS } Reg;

static const char *const reg_names[NR_REGS] = { "rax", "rcx", "rdx", "rsp" };
static struct qemu_plugin_register *regs[NR_REGS];
static struct qemu_plugin_scoreboard *cpus;
static qemu_plugin_u64 insns, last;

static uint64_t bytes_to_u64(const GByteArray *bytes)
{
    uint64_t val = 0;

    memcpy(&val, bytes->data, MIN(bytes->len, sizeof(val)));
    return GUINT64_FROM_LE(val);
}

static uint64_t get_reg(Reg reg)
{
    g_autoptr(GByteArray) buf = g_byte_array_new();

    qemu_plugin_read_register(regs[reg], buf);
    return bytes_to_u64(buf);
}

static bool read_u64(uint64_t addr, uint64_t *val)
{
    g_autoptr(GByteArray) buf = g_byte_array_new();

    if (!qemu_plugin_read_memory_vaddr(addr, buf, sizeof(*val))) {
        return false;
    }
    *val = bytes_to_u64(buf);
    return true;
}

/* Whether the frame at @addr, which begins with RIP and CS, is of @rip. */
static bool is_frame_of(uint64_t addr, uint64_t rip)
{
    uint64_t val[2];

    return read_u64(addr, &val[0]) && val[0] == rip &&
           read_u64(addr + 8, &val[1]) && val[1] < 0x10000;
}

/*
 * What may be a handler is entered, with or without an error code.  It is none
 * if it only follows in memory: a NOP behind STI, with an old frame on the
 * stack.
 */
static void entry(unsigned vcpu, void *pc)
{
    Cpu *cpu = qemu_plugin_scoreboard_find(cpus, vcpu);
    uint64_t rsp = get_reg(RSP);

    if ((uintptr_t)pc - cpu->last <= MAX_INSN_LENGTH) {
        return;
    }
    if (is_frame_of(rsp, cpu->last) || is_frame_of(rsp + 8, cpu->last)) {
        cpu->insns--;
    }
}

static void again(unsigned vcpu, void *unused)
{
    Cpu *cpu = qemu_plugin_scoreboard_find(cpus, vcpu);

    cpu->insns--;
}

static void wrmsr(unsigned vcpu, void *unused)
{
    Cpu *cpu = qemu_plugin_scoreboard_find(cpus, vcpu);
    uint64_t val = (uint32_t)get_reg(RAX) | get_reg(RDX) << 32;
    bool runs;

    switch ((uint32_t)get_reg(RCX)) {
    case MSR_FIXED_CTR0:
        cpu->insns = cpu->stopped_at = val;
        break;
    case MSR_FIXED_CTR_CTRL:
        cpu->fixed_ctr_ctrl = val;
        break;
    case MSR_GLOBAL_CTRL:
        cpu->global_ctrl = val;
        break;
    default:
        return;
    }
    runs = (cpu->global_ctrl & GLOBAL_FIXED_CTR0) &&
           (cpu->fixed_ctr_ctrl & FIXED_CTR0_ALL) == FIXED_CTR0_ALL;
    if (runs && !cpu->runs) {
        cpu->insns = cpu->stopped_at;   /* this WRMSR is the next one */
        cpu->started = true;
    } else if (!runs && cpu->runs) {
        cpu->stopped_at = cpu->insns;   /* without this WRMSR */
    }
    cpu->runs = runs;
}

/* ENDBR64, CLAC, CLD, NOP, PUSH imm; PUSH RDI while it is decompressed */
static bool is_entry(const uint8_t *code, size_t len)
{
    return (len >= 4 && !memcmp(code, "\xf3\x0f\x1e\xfa", 4)) ||
           (len >= 3 && !memcmp(code, "\x0f\x01\xca", 3)) ||
           (len >= 2 && !memcmp(code, "\x0f\x1f", 2)) ||
           (len >= 1 && memchr("\xfc\x90\x6a\x68\x57", code[0], 5));
}

/* Jcc, LOOPcc, JCXZ, near CALL and JMP; RET may go back to itself, too. */
static bool is_jump(const uint8_t *code, size_t len)
{
    size_t i = 0;

    while (i < len && ((code[i] >= 0x40 && code[i] <= 0x4f) ||
                       memchr("\x26\x2e\x36\x3e\x64\x65\x66\x67\xf2\xf3",
                              code[i], 10))) {
        i++;
    }
    if (i + 1 >= len) {
        return i < len && code[i] == 0xc3;
    }
    return (code[i] & 0xf0) == 0x70 || (code[i] & 0xf4) == 0xe0 ||
           code[i] == 0xc2 || code[i] == 0xff ||
           (code[i] == 0x0f && (code[i + 1] & 0xf0) == 0x80);
}

static void translate(struct qemu_plugin_tb *tb, void *unused)
{
    size_t n = qemu_plugin_tb_n_insns(tb);

    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        uint64_t pc = qemu_plugin_insn_vaddr(insn);
        uint8_t code[16];
        size_t len = qemu_plugin_insn_data(insn, code, sizeof(code));

        /* In this order: each call is in front of what is inline. */
        if (i == 0 && is_entry(code, len)) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, entry,
                                                   QEMU_PLUGIN_CB_R_REGS,
                                                   (void *)(uintptr_t)pc);
        }
        if (len >= 2 && !memcmp(code, "\x0f\x30", 2)) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, wrmsr,
                                                   QEMU_PLUGIN_CB_R_REGS, NULL);
        }
        if (!is_jump(code, len)) {
            qemu_plugin_register_vcpu_insn_exec_cond_cb(
                insn, again, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_COND_EQ, last,
                pc, NULL);
        }
        qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
            insn, QEMU_PLUGIN_INLINE_ADD_U64, insns, 1);
        qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
            insn, QEMU_PLUGIN_INLINE_STORE_U64, last, pc);
    }
}

static void vcpu_init(unsigned vcpu, void *unused)
{
    g_autoptr(GArray) list = qemu_plugin_get_registers();

    for (unsigned i = 0; i < list->len; i++) {
        qemu_plugin_reg_descriptor *d =
            &g_array_index(list, qemu_plugin_reg_descriptor, i);

        for (int r = 0; r < NR_REGS; r++) {
            if (!strcmp(d->name, reg_names[r])) {
                regs[r] = d->handle;
            }
        }
    }
}

static void finish(void *unused)
{
    for (int i = 0; i < qemu_plugin_num_vcpus(); i++) {
        Cpu *cpu = qemu_plugin_scoreboard_find(cpus, i);
        uint64_t n = cpu->runs ? cpu->insns : cpu->stopped_at;
        g_autofree char *line = g_strdup_printf("vcpu %d insns %" PRIu64 "\n",
                                                i, n);

        if (cpu->started) {
            qemu_plugin_outs(line);
        }
    }
}

QEMU_PLUGIN_EXPORT
int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
                        int argc, char **argv)
{
    if (!info->system_emulation || strcmp(info->target_name, "x86_64")) {
        fprintf(stderr, "pmu-oracle: only for qemu-system-x86_64\n");
        return -1;
    }
    cpus = qemu_plugin_scoreboard_new(sizeof(Cpu));
    insns = qemu_plugin_scoreboard_u64_in_struct(cpus, Cpu, insns);
    last = qemu_plugin_scoreboard_u64_in_struct(cpus, Cpu, last);
    register_callbacks(id);
    return 0;
}
