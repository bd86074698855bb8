/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: what a row of the decoder's tables says of it. */

#ifndef I386_DECODE_RETIRE_H
#define I386_DECODE_RETIRE_H

#include "engine/retire.h"

/*
 * What retire_gen_insn() has to know of an instruction to count it.  One that
 * comes "last" ends its TB and is observed behind its code, because its helper
 * may leave the TB, or depends on what has been counted.
 */
enum {
    RETIRE_ROW_BRANCH = 7,          /* a RetireBranch */
    RETIRE_ROW_STRING = 1 << 3,     /* counts with its last iteration, */
    RETIRE_ROW_PAIR = 1 << 4,       /* which has two accesses, not one */
    RETIRE_ROW_PROBES = 1 << 5,     /* to probe what it writes, and that */
    RETIRE_ROW_FAR_PTR = 1 << 6,    /* an operand is that, and one access */
    RETIRE_ROW_SEG = 1 << 7,        /* last if operand 0 is SS: CPL */
    RETIRE_ROW_SS = 1 << 8,         /* it is */
    RETIRE_ROW_CR = 1 << 9,         /* last if the caches are modelled */
    RETIRE_ROW_LAST = 1 << 10,
    RETIRE_ROW_NORETURN = 1 << 11,    /* its helper does not return */
    RETIRE_ROW_FAR = 1 << 12,       /* a far branch */
    RETIRE_ROW_ENTRY = 1 << 13,     /* it enters the kernel */
    RETIRE_ROW_BY_HELPER = 1 << 14,    /* who delivers it counts it */
    RETIRE_ROW_SYSTEM = 1 << 15,    /* gen_multi0F() decodes it */
};

typedef enum X86Retire {
    X86_RETIRE_None = RETIRE_BRANCH_NONE,
    X86_RETIRE_Cond = RETIRE_BRANCH_COND,
    X86_RETIRE_Jmp = RETIRE_BRANCH_JMP,
    X86_RETIRE_Call = RETIRE_BRANCH_CALL,
    X86_RETIRE_Ret = RETIRE_BRANCH_RET,
    X86_RETIRE_JmpInd = RETIRE_BRANCH_JMP_ABS,
    X86_RETIRE_CallInd = RETIRE_BRANCH_CALL_ABS,
    X86_RETIRE_String = RETIRE_ROW_STRING,
    X86_RETIRE_String2 = RETIRE_ROW_STRING | RETIRE_ROW_PAIR,
    X86_RETIRE_INS = X86_RETIRE_String2 | RETIRE_ROW_PROBES,
    X86_RETIRE_FarPtr = RETIRE_ROW_FAR_PTR,
    X86_RETIRE_LSS = RETIRE_ROW_FAR_PTR | RETIRE_ROW_SS,
    X86_RETIRE_Seg = RETIRE_ROW_SEG,
    X86_RETIRE_CR = RETIRE_ROW_CR,
    X86_RETIRE_Last = RETIRE_ROW_LAST,
    X86_RETIRE_Entry = RETIRE_ROW_LAST | RETIRE_ROW_ENTRY,
    X86_RETIRE_NoReturn = RETIRE_ROW_LAST | RETIRE_ROW_NORETURN,
    X86_RETIRE_Far = RETIRE_ROW_LAST | RETIRE_ROW_FAR,
    X86_RETIRE_FarMem = X86_RETIRE_Far | RETIRE_ROW_FAR_PTR,
    X86_RETIRE_Syscall = X86_RETIRE_Far | RETIRE_ROW_ENTRY,
    X86_RETIRE_INT1 = X86_RETIRE_Syscall | RETIRE_ROW_NORETURN,
    X86_RETIRE_INT = RETIRE_ROW_LAST | RETIRE_ROW_ENTRY | RETIRE_ROW_BY_HELPER,
    X86_RETIRE_System = RETIRE_ROW_SYSTEM,
} X86Retire;

/* Floating point: what retire_gen_insn_done() has to know to count it. */
enum {
    RETIRE_FP_KIND = 7,             /* one more than a RetireFpKind; */
    RETIRE_FP_PACKED = 1 << 3,      /* F2 does not say that it is scalar, */
    RETIRE_FP_SCALAR = 1 << 4,      /* but this; VEX.W is the precision, */
    RETIRE_FP_VEX_W = 1 << 5,       /* or else the prefix, */
    RETIRE_FP_SINGLE = 1 << 6,      /* but it is single */
    RETIRE_FP_STACK = 1 << 7,       /* x87 */
};

typedef enum X86RetireFp {
    X86_RETIRE_FP_None,
    X86_RETIRE_FP_Add = RETIRE_FP_ADD + 1,
    X86_RETIRE_FP_Mul = RETIRE_FP_MUL + 1,
    X86_RETIRE_FP_Div = RETIRE_FP_DIV + 1,
    X86_RETIRE_FP_Other = RETIRE_FP_OTHER + 1,
    X86_RETIRE_FP_Int = RETIRE_FP_INT + 1,
    X86_RETIRE_FP_Hadd = X86_RETIRE_FP_Add | RETIRE_FP_PACKED,
    X86_RETIRE_FP_Dppd = (RETIRE_FP_DP + 1) | RETIRE_FP_PACKED,
    X86_RETIRE_FP_Dpps = X86_RETIRE_FP_Dppd | RETIRE_FP_SINGLE,
    X86_RETIRE_FP_FmaPx = (RETIRE_FP_MAC + 1) | RETIRE_FP_VEX_W,
    X86_RETIRE_FP_FmaSx = X86_RETIRE_FP_FmaPx | RETIRE_FP_SCALAR,
    X86_RETIRE_FP_X87 = RETIRE_FP_STACK,
} X86RetireFp;

#endif
