// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * 100 NOPs and a JMP at CPL 3, ROUNDS times, with EFLAGS.TF: #DB comes behind
 * each of them, or, if DEBUGCTL has BTF, behind the JMP.  FSIN, which nothing
 * else here executes, marks the ends of what is measured.
 */
#include "bench-kernel.h"

enum { DB = 1, FLAG_TF = 1 << 8 };
#define STRINGIFY_(x)   #x
#define STRINGIFY(x)    STRINGIFY_(x)

CODE(stepped, "mov $" STRINGIFY(ROUNDS) ", %ecx\n 1: .rept 100\n nop\n .endr\n"
     "jmp 2f\n 2: dec %ecx\n jnz 1b")

/* #DB clears BTF. */
static void __attribute__((naked)) on_db(void)
{
    asm("push %rax\n push %rcx\n push %rdx\n mov $0x1d9, %ecx\n"
        "mov $" STRINGIFY(DEBUGCTL) ", %eax\n xor %edx, %edx\n wrmsr\n"
        "pop %rdx\n pop %rcx\n pop %rax\n iretq");
}

int main(void)
{
    kernel_init();
    set_handler(DB, on_db);
    for (int i = 0; i < 2; i++) {
        mark();
        set_up(USER_CODE64, (uintptr_t)stepped);
        regs.rflags |= FLAG_TF;
        wrmsr(MSR_DEBUGCTL, DEBUGCTL);
        run();
    }
    mark();
    return 0;
}
