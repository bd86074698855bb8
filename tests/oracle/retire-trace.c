/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A TCG plugin that writes down which instructions start, for a script that
 * works out what retires (tests/oracle/differential).
 *
 * usage: -plugin retire-trace.so,out=PREFIX[,from=ADDRESS][,accesses=on]
 *                [,states=on][,user=on][,entry=FIRST-LAST]...
 *
 * PREFIX.code has a line "ADDRESS BYTES" for each instruction translated, in
 * hexadecimal; its number is that of the line, from 0.  PREFIX.N has 32-bit
 * words, little-endian, the numbers of what vCPU N starts.  If bit 31 is set,
 * the state in front of it follows: 16 registers (RAX, RCX, RDX, RBX, RSP, RBP,
 * RSI, RDI, R8 to R15) and STACK bytes from RSP on, in 64-bit words.  That is
 * so for those whose effect on the counters depends on it, and for those at the
 * addresses of entry, where handlers of signals or exceptions begin, or for all
 * with states=on.  Nothing is written before the instruction at the address of
 * from starts.  With user=on, that is a mark (see below), and in the upper half
 * of addresses, the kernel's, only INVLPG and MOV to control registers are
 * written down.
 *
 * With accesses=on, behind an instruction are those to memory that it has made:
 * a word with bit 30, in bit 8 whether it is a store and in bits 7:0 its size,
 * and then its linear and its physical address, of two words each; in user mode
 * emulation both are the same.
 */

#include <endian.h>
#include <glib.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plugin.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

#define REGS        16
#define STACK       256
#define WITH_STATE  (1u << 31)
#define ACCESS      (1u << 30)
#define STORE       (1u << 8)

typedef struct Cpu {
    FILE *out;
    bool on;
    struct qemu_plugin_register *regs[REGS];
    bool has[REGS];             /* handles may be NULL */
} Cpu;

static const char *const names[][REGS] = {
    { "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9",
      "r10", "r11", "r12", "r13", "r14", "r15" },
    { "eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi" },
};
enum { RSP = 4 };

static GMutex lock;             /* of @code and @count */
static FILE *code;
static uint32_t count;
static const char *prefix;
static uint64_t from;
static bool accesses, states, user;
static GArray *entries;         /* pairs of addresses */
static struct qemu_plugin_scoreboard *cpus;

static void start(unsigned vcpu, void *number)
{
    Cpu *cpu = qemu_plugin_scoreboard_find(cpus, vcpu);
    uint32_t word = htole32(GPOINTER_TO_UINT(number));

    if (!cpu->on) {
        return;
    }
    fwrite(&word, sizeof(word), 1, cpu->out);
}

static void start_with_state(unsigned vcpu, void *number)
{
    Cpu *cpu = qemu_plugin_scoreboard_find(cpus, vcpu);
    uint32_t word = htole32(GPOINTER_TO_UINT(number) | WITH_STATE);
    uint64_t state[REGS + STACK / 8] = { 0 };
    g_autoptr(GByteArray) buf = g_byte_array_new();

    if (!cpu->on) {
        return;
    }
    for (int i = 0; i < REGS; i++) {
        if (cpu->has[i]) {
            g_byte_array_set_size(buf, 0);
            qemu_plugin_read_register(cpu->regs[i], buf);
            memcpy(&state[i], buf->data, MIN(buf->len, sizeof(state[i])));
        }
    }
    if (qemu_plugin_read_memory_vaddr(le64toh(state[RSP]), buf, STACK)) {
        memcpy(&state[REGS], buf->data, STACK);
    }
    fwrite(&word, sizeof(word), 1, cpu->out);
    fwrite(state, sizeof(state), 1, cpu->out);
}

static void access_memory(unsigned vcpu, qemu_plugin_meminfo_t info,
                          uint64_t addr, void *unused)
{
    Cpu *cpu = qemu_plugin_scoreboard_find(cpus, vcpu);
    struct qemu_plugin_hwaddr *hw = qemu_plugin_get_hwaddr(info, addr);
    uint64_t phys = hw ? qemu_plugin_hwaddr_phys_addr(hw) : addr;
    uint32_t word = htole32(ACCESS | 1u << qemu_plugin_mem_size_shift(info) |
                            (qemu_plugin_mem_is_store(info) ? STORE : 0));
    uint64_t addrs[] = { htole64(addr), htole64(phys) };

    if (cpu->on) {
        fwrite(&word, sizeof(word), 1, cpu->out);
        fwrite(addrs, sizeof(addrs), 1, cpu->out);
    }
}

static void switch_on(unsigned vcpu, void *unused)
{
    Cpu *cpu = qemu_plugin_scoreboard_find(cpus, vcpu);

    cpu->on = true;
}

static bool is_mark(const uint8_t *p, size_t len)
{
    return len > 3 && !memcmp(p, "\x0f\x1f\x40\x5a", 4);
}

static bool is_invlpg(const uint8_t *p, size_t len)
{
    return len > 2 && p[0] == 0x0f && p[1] == 0x01 && p[2] < 0xc0 &&
           (p[2] & 0x38) == 0x38;
}

/* What flushes TLBs */
static bool flushes(const uint8_t *p, size_t len)
{
    if (len && (*p & 0xf0) == 0x40) {
        p++, len--;
    }
    return is_invlpg(p, len) || (len > 1 && p[0] == 0x0f && p[1] == 0x22);
}

/*
 * LWP's instructions, XSAVE and XRSTOR, WRMSR, INVLPG, IRET, and as a mark
 * that programs put where they like NOP with a displacement of 5Ah.
 */
static bool wants_state(const uint8_t *p, size_t len)
{
    while (len > 1 && (memchr("\xf2\xf3\x66", *p, 3) ||
                       (*p >= 0x40 && *p <= 0x4f))) {
        p++, len--;
    }
    return (len && p[0] == 0xcf) ||
           (len > 1 && p[0] == 0x8f && (p[1] & 0x1f) >= 8) ||
           (len > 1 && p[0] == 0x0f && p[1] == 0x30) ||
           is_invlpg(p, len) ||
           (len > 2 && p[0] == 0x0f && p[1] == 0xae &&
            ((p[2] & 0x38) == 0x20 || (p[2] & 0x38) == 0x28)) ||
           is_mark(p, len);
}

static bool is_entry(uint64_t pc)
{
    for (unsigned i = 0; i < entries->len; i += 2) {
        if (pc >= g_array_index(entries, uint64_t, i) &&
            pc <= g_array_index(entries, uint64_t, i + 1)) {
            return true;
        }
    }
    return false;
}

static void translate(struct qemu_plugin_tb *tb, void *unused)
{
    size_t n = qemu_plugin_tb_n_insns(tb);

    g_mutex_lock(&lock);
    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        uint64_t pc = qemu_plugin_insn_vaddr(insn);
        uint8_t bytes[16];
        size_t len = qemu_plugin_insn_data(insn, bytes, sizeof(bytes));
        bool kernel = user && pc >> 63;
        void *number;

        if (kernel && !flushes(bytes, len)) {
            continue;
        }
        number = GUINT_TO_POINTER(count++);
        fprintf(code, "%" PRIx64 " ", pc);
        for (size_t j = 0; j < len; j++) {
            fprintf(code, "%02x", bytes[j]);
        }
        fputc('\n', code);
        if (user ? !kernel && is_mark(bytes, len) : pc == from) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, switch_on,
                                                   QEMU_PLUGIN_CB_NO_REGS,
                                                   NULL);
        }
        if (states || wants_state(bytes, len) || is_entry(pc)) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, start_with_state,
                                                   QEMU_PLUGIN_CB_R_REGS,
                                                   number);
        } else {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, start,
                                                   QEMU_PLUGIN_CB_NO_REGS,
                                                   number);
        }
        if (accesses && !kernel) {
            qemu_plugin_register_vcpu_mem_cb(insn, access_memory,
                                             QEMU_PLUGIN_CB_NO_REGS,
                                             QEMU_PLUGIN_MEM_RW, NULL);
        }
    }
    g_mutex_unlock(&lock);
}

static FILE *create(const char *suffix)
{
    g_autofree char *path = g_strconcat(prefix, ".", suffix, NULL);
    FILE *f = fopen(path, "wb");

    if (!f) {
        g_error("retire-trace: %s cannot be written", path);
    }
    return f;
}

static void vcpu_init(unsigned vcpu, void *unused)
{
    Cpu *cpu = qemu_plugin_scoreboard_find(cpus, vcpu);
    g_autoptr(GArray) list = qemu_plugin_get_registers();
    g_autofree char *suffix = g_strdup_printf("%u", vcpu);

    cpu->out = create(suffix);
    cpu->on = !from && !user;
    for (unsigned i = 0; i < list->len; i++) {
        qemu_plugin_reg_descriptor *d =
            &g_array_index(list, qemu_plugin_reg_descriptor, i);

        for (int r = 0; r < REGS; r++) {
            if (!g_strcmp0(d->name, names[0][r]) ||
                !g_strcmp0(d->name, names[1][r])) {
                cpu->regs[r] = d->handle;
                cpu->has[r] = true;
            }
        }
    }
}

static void finish(void *unused)
{
    bool ok = !fclose(code);

    for (int i = 0; i < qemu_plugin_num_vcpus(); i++) {
        Cpu *cpu = qemu_plugin_scoreboard_find(cpus, i);

        if (cpu->out) {
            ok &= !ferror(cpu->out) && !fclose(cpu->out);
        }
    }
    if (!ok) {
        g_error("retire-trace: the trace is not complete");
    }
}

QEMU_PLUGIN_EXPORT
int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
                        int argc, char **argv)
{
    uint64_t range[2];

    entries = g_array_new(false, false, sizeof(uint64_t));
    for (int i = 0; i < argc; i++) {
        if (g_str_has_prefix(argv[i], "out=")) {
            prefix = g_strdup(argv[i] + 4);
        } else if (!strcmp(argv[i], "accesses=on")) {
            accesses = true;
        } else if (!strcmp(argv[i], "states=on")) {
            states = true;
        } else if (!strcmp(argv[i], "user=on")) {
            user = true;
        } else if (sscanf(argv[i], "entry=%" SCNx64 "-%" SCNx64, &range[0],
                          &range[1]) == 2) {
            g_array_append_vals(entries, range, 2);
        } else if (sscanf(argv[i], "from=%" SCNx64, &from) != 1) {
            fprintf(stderr, "retire-trace: unknown argument %s\n", argv[i]);
            return -1;
        }
    }
    if (!prefix) {
        fprintf(stderr, "retire-trace: out= is missing\n");
        return -1;
    }
    code = create("code");
    cpus = qemu_plugin_scoreboard_new(sizeof(Cpu));
    register_callbacks(id);
    return 0;
}
