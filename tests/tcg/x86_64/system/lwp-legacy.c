/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LWP without long mode: legal in protected mode, #UD in real and virtual
 * 8086 mode (chapter 5).  A task switch can bring another address space while
 * LWP goes on.
 */

#include "lwp-kernel.h"
#include "kernel-legacy.h"

/* A task gate and a TSS, where long mode has other segments */
enum { TASK_GATE = 0x38, OTHER_TSS = 0x40 };

enum { IRE = 2 };

#define TASK_ADDR       0x8100              /* what the other task executes */
#define BIG_PAGE        (4ul << 20)
#define BIG_PTE         (PTE_ALL | 0x80)

static Tss other_tss;
uint32_t old_space[1024] __attribute__((aligned(PAGE)));
static uint32_t new_space[1024] __attribute__((aligned(PAGE)));
uint32_t long_cr3;

/* With paging, at CPL 3: USER_INSNS instructions, the last one to the task */
#define USER_INSNS 57
static void __attribute__((naked, used)) task_code(void)
{
    asm(".code32\n"
        "task_enter:\n"
        "mov %cr3, %eax\n mov %eax, long_cr3\n"
        "mov %cr4, %eax\n btr $5, %eax\n bts $4, %eax\n mov %eax, %cr4\n"
        "mov $old_space, %eax\n mov %eax, %cr3\n"
        "mov %cr0, %eax\n bts $31, %eax\n mov %eax, %cr0\n"
        "mov $0x23, %eax\n mov %eax, %ds\n mov %eax, %es\n"
        "push $0x23\n push $legacy_stack + 2048\n push $2\n"
        "push $0x2b\n push $1f\n iret\n"
        "1: mov $5, %ecx\n"
        "2: .rept 10\n nop\n .endr\n loop 2b\n"
        "ljmp $0x3b, $0\n"
        "task_exit: mov $32, %ebx\n jmp 3f\n"
        "task_fault: mov $14, %ebx\n add $4, %esp\n"
        "3: mov (%esp), %ebp\n"
        "mov $0x10, %eax\n mov %eax, %ds\n"
        "mov %cr0, %eax\n btr $31, %eax\n mov %eax, %cr0\n"
        "mov %cr4, %eax\n bts $5, %eax\n mov %eax, %cr4\n"
        "mov long_cr3, %eax\n mov %eax, %cr3\n"
        "jmp legacy_back\n"
        ".code64\n");
}

/*
 * §8.6: a record whose ring is not there faults behind its instruction, here
 * one of a task that has another address space, in virtual 8086 mode or not.
 */
static void test_task(bool v86, int interval)
{
    /* To 0x8000 comes: PUSH task_enter; RET */
    uint8_t *code = (uint8_t *)CODE_ADDR, *other = (uint8_t *)TASK_ADDR;
    LwpRecord *records = (LwpRecord *)(4 * BIG_PAGE);
    LwpCb *lwpcb = (LwpCb *)(4 * BIG_PAGE + LWP_MIN_RING);
    uint32_t enter = ADDRESS_OF("task_enter");
    int period = interval + 1, n = USER_INSNS / period;
    int left = period - USER_INSNS % period;
    bool ok;

    code[0] = 0x68;
    memcpy(code + 1, &enter, 4);
    code[5] = 0xc3;
    memset(other, 0x90, 64);
    other[64] = 0xcd;                       /* INT EXIT */
    other[65] = EXIT;

    for (int i = 0; i < ARRAY_SIZE(old_space); i++) {
        old_space[i] = new_space[i] = i * BIG_PAGE | BIG_PTE;
    }
    new_space[4] = 0;
    other_tss = (Tss) {
        .esp0 = (uintptr_t)legacy_stack + sizeof(legacy_stack), .ss0 = DATA,
        .cr3 = (uintptr_t)new_space, .eip = TASK_ADDR,
        .eflags = v86 ? 0x23002 : 2,        /* VM, IOPL 3 */
        .esp = 0x7000,
        .cs = v86 ? 0 : USER_CODE32, .ss = v86 ? 0 : USER_DATA,
    };
    set_segment(OTHER_TSS, (uintptr_t)&other_tss, sizeof(other_tss) - 1,
                ACC_TSS, 0);
    gdt64_table[TASK_GATE / 8] = OTHER_TSS << 16 | TYPE_TASK_GATE;
    set_gate(EXIT, ADDRESS_OF("task_exit"));
    set_gate(PF, ADDRESS_OF("task_fault"));

    memset(records, 0, LWP_MIN_RING);
    lwp_init(lwpcb, records, LWP_MIN_RING, 1u << IRE);
    lwpcb->event[IRE - 1].interval = lwpcb->event[IRE - 1].counter = interval;
    llwpcb(lwpcb);
    ok = run_legacy(PROTECTED) == PF && legacy_ip == TASK_ADDR + left;
    wrmsr(MSR_LWP_CBADDR, 0);
    report(ok && records[n - 1].event == IRE && records[n].event == 0,
           "a task of %s without the ring: #PF behind instruction %d",
           v86 ? "virtual 8086 mode" : "CPL 3", left);
}

int main(void)
{
    static const char *const names[MODES] = {
        "protected mode", "virtual 8086 mode", "real mode"
    };
    /* How code that runs to its end leaves: INT is #GP in V86 mode. */
    static const unsigned done[MODES] = { EXIT, GP, EXIT };
    static const struct {
        const char *name;
        uint8_t len;
        bool lwp;
        uint8_t bytes[12];
    } table[] = {
        { "LWPINS", 9, true, { 0x8f, 0xea, 0x68, 0x12, 0xc1, 3 } },
        { "LWPVAL", 9, true, { 0x8f, 0xea, 0x68, 0x12, 0xc9, 4 } },
        { "SLWPCB", 5, true, { 0x8f, 0xe9, 0x78, 0x12, 0xc9 } },
        { "LLWPCB 0", 5, true, { 0x8f, 0xe9, 0x78, 0x12, 0xc0 } },
        { "POP (8F C1)", 2, false, { 0x8f, 0xc1 } },
    };

    kernel_init();
    lwp_make_available();
    legacy_init();
    legacy_regs[2] = 0x12345678;        /* EDX */
    for (int m = 0; m < MODES; m++) {
        for (int i = 0; i < ARRAY_SIZE(table); i++) {
            uint8_t *code = (uint8_t *)CODE_ADDR;
            bool ud = table[i].lwp && m != PROTECTED;
            unsigned vector;

            /* There is no paging, so addresses are physical. */
            prepare(LWP_FLAG_VAL);
            cb->base = (uintptr_t)ring;
            cb->event[0].counter = 0;
            llwpcb(cb);
            memcpy(code, table[i].bytes, table[i].len);
            code[table[i].len] = 0xcd;          /* INT EXIT */
            code[table[i].len + 1] = EXIT;
            vector = run_legacy(m);
            report(vector == (ud ? UD : done[m]) &&
                   legacy_ip == CODE_ADDR + (ud ? 0 : table[i].len) +
                   (vector == EXIT ? 2 : 0),
                   "%s: %s is %s", names[m], table[i].name,
                   ud ? "#UD" : "legal");
            if (m == PROTECTED && i == 0) {
                report(record_is(ring, LWP_INS, 3, 0, CODE_ADDR, 0x12345678),
                       "its record");
            } else if (m == PROTECTED && i == 1) {
                report(record_is(ring, LWP_VAL, 4, 0, CODE_ADDR, 0x12345678),
                       "its record");
            } else if (m == PROTECTED && i == 3) {
                report(rdmsr(MSR_LWP_CBADDR) == 0, "LWP is disabled");
            } else {
                report(rdmsr(MSR_LWP_CBADDR) == (uintptr_t)cb &&
                       ring[0].event == 0, "LWP stays enabled");
            }
        }
    }
    for (int v86 = 0; v86 < 2; v86++) {
        static const int intervals[] = { 1, 3, 8, 27 };

        for (int i = 0; i < ARRAY_SIZE(intervals); i++) {
            test_task(v86, intervals[i]);
        }
    }
    return report_summary();
}
