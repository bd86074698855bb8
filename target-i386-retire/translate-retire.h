/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: what a DisasContext holds of it. */

#ifndef I386_TRANSLATE_RETIRE_H
#define I386_TRANSLATE_RETIRE_H

#include "retire.h"

struct DisasContext;

/* What becomes of a TB's instructions */
typedef enum RetireTb {
    RETIRE_TB_UNTOLD,       /* Nobody is told of them: nothing is emitted. */
    RETIRE_TB_CHARGED,      /* They are taken off the budget. */
    RETIRE_TB_STEP,         /* So they are, but the last one is observed. */
    RETIRE_TB_FORCED,       /* It has one, which may not be left undone. */
} RetireTb;

/* What models emit, for RETIRE_WANT_OF_MODELS alone; NULL without any */
typedef struct RetireModelsGen {
    /* An instruction has been decoded, and its code comes next. */
    void (*insn)(struct DisasContext *s, X86DecodedInsn *decode);
    /*
     * A near branch is at an exit of its TB.  Returns what is to be added to
     * those of @class; NULL if it is not @told how the branch was predicted.
     */
    TCGv_i64 (*branch)(struct DisasContext *s, RetireClass class, bool told);
    /* What a TB begins with */
    void (*prologue)(struct DisasContext *s);
} RetireModelsGen;

typedef struct RetireDisas {
    const RetireModelsGen *models;
    /* A near branch is taken, for RETIRE_WANT_LBR alone; or NULL */
    void (*lbr)(struct DisasContext *s, TCGv_i64 what);
    /* A near branch is at an exit, for RETIRE_WANT_PT alone; or NULL */
    void (*pt)(struct DisasContext *s);
    RetireTb tb;
    RetireWants wants;      /* of all observers */
    bool tf;                /* a taken branch traps: RETIRE_WANT_BTF */
    bool repeats;           /* it is a string instruction with a REP prefix */
    bool last;              /* the current one is observed: it ends the TB */
    bool taken;             /* the exit being emitted is the branch's target */
    bool exits;             /* the TB has an exit that is not an exception */
    uint8_t unit;           /* X86OpUnit of what it writes */
    uint16_t row;           /* what the current instruction is: X86Retire, */
    RetireBranch branch;    /* and RETIRE_ROW_BRANCH of that */
    TCGv ip;                /* its effective address, if it is @last */
    target_long jump;       /* how far a direct branch goes */
    uint32_t offset;        /* the instruction's address in the page */
    uint32_t length;        /* and its length, in bytes */
    TCGOp *start;           /* the last op in front of what TBs begin with */
    TCGOp **insn_start;     /* of each instruction */
} RetireDisas;

/*
 * Called where an exit of the TB is emitted: in front of a jump, and, when EIP
 * is that of the next instruction, at the end.  The former returns false if the
 * exit may not be chained.
 */
static bool retire_gen_jump(struct DisasContext *s, int tb_num);
static void retire_gen_exit(struct DisasContext *s);

#endif
