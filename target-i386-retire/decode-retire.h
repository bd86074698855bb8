/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: what a row of the decoder's tables says of it. */

#ifndef I386_DECODE_RETIRE_H
#define I386_DECODE_RETIRE_H

#include "engine/predictor.h"

/*
 * What retire_gen_insn() has to know of an instruction to count it.  One that
 * is "late" comes last in its block and is counted behind its code, because its
 * helper may leave the block, or depends on what has been counted.
 */
typedef enum X86Retire {
    X86_RETIRE_None = RETIRE_BRANCH_NONE,

    /* Near branches */
    X86_RETIRE_Cond = RETIRE_BRANCH_COND,
    X86_RETIRE_Jmp = RETIRE_BRANCH_JMP,
    X86_RETIRE_Call = RETIRE_BRANCH_CALL,
    X86_RETIRE_Ret = RETIRE_BRANCH_RET,
    X86_RETIRE_JmpInd = RETIRE_BRANCH_JMP_ABS,
    X86_RETIRE_CallInd = RETIRE_BRANCH_CALL_ABS,

    /* If repeated, counts with its last iteration, which has one access */
    X86_RETIRE_String = RETIRE_NR_BRANCHES,

    /* The same, but two accesses; INS writes what it has just probed */
    X86_RETIRE_String2,
    X86_RETIRE_INS,

    /* Operand 0 is from a far pointer, which is one access; LSS as Seg, too */
    X86_RETIRE_FarPtr,
    X86_RETIRE_LSS,

    /* Writes a segment register; late if SS, which decides on CPL */
    X86_RETIRE_Seg,

    /* Writes a control register; late if the caches are modelled */
    X86_RETIRE_CR,

    /* Late */
    X86_RETIRE_Late,

    /* Late, but counted before its code, because its helper does not return */
    X86_RETIRE_Leaves,

    /* Far branch, late; operand 1 may be a far pointer in memory */
    X86_RETIRE_Far,
    X86_RETIRE_FarMem,

    /* Far branch into the kernel, late; does not count in user mode */
    X86_RETIRE_Syscall,

    /* INT1 is Syscall and Leaves; the delivery of INT and INT3 counts them */
    X86_RETIRE_INT1,
    X86_RETIRE_INT,

    /* One of those that gen_multi0F() decodes */
    X86_RETIRE_System,
} X86Retire;

#endif
