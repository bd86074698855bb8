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

typedef struct RetireDisas {
    RetireTb tb;
    RetireWants wants;      /* of all observers */
    uint64_t line;          /* of code, the last one, or UINT64_MAX */
    bool tf;                /* a taken branch traps: RETIRE_WANT_BTF */
    bool repeats;           /* it is a string instruction with a REP prefix */
    bool last;              /* the current one is observed: it ends the TB */
    bool taken;             /* the exit being emitted is the branch's target */
    bool exits;             /* the TB has an exit that is not an exception */
    bool updates;           /* the current one stores to what it loads */
    bool rest;              /* the next access is a part of the last one */
    uint8_t unit;           /* X86OpUnit of what it writes */
    uint8_t parts;          /* accesses of a string instruction so far */
    uint16_t row;           /* what the current instruction is: X86Retire, */
    RetireBranch branch;    /* and RETIRE_ROW_BRANCH of that */
    TCGv_i64 slot, addr;    /* for retire_gen_access() */
    TCGv_ptr base, word;
    TCGv ip;                /* its effective address, if it is @last */
    target_long jump;       /* how far a direct branch goes */
    TCGv next;              /* of what follows in memory, if it is a CALL */
    uint32_t offset;        /* the instruction's address in the page */
    uint32_t length;        /* and its length, in bytes */
    TCGOp *start;           /* the last op in front of what TBs begin with */
    TCGOp **insn_start;     /* of each instruction */
    uint64_t *memory;       /* what each does, as RETIRE_MEMORY_LOAD */
} RetireDisas;

/* CLFLUSH and CLFLUSHOPT, WBINVD and INVD: the caches lose lines. */
static void gen_CLFLUSH(struct DisasContext *s, X86DecodedInsn *decode);
static void gen_WBINVD(struct DisasContext *s, X86DecodedInsn *decode);

/*
 * Called before an access is emitted: have it counted, and shown to the model
 * of caches.  The code for that may have labels.
 */
static void retire_gen_access(struct DisasContext *s, TCGv addr, MemOp mop,
                              bool load, bool store);

/*
 * Called where an exit of the TB is emitted: in front of a jump, and, when EIP
 * is that of the next instruction, at the end.  The former returns false if the
 * exit may not be chained.
 */
static bool retire_gen_jump(struct DisasContext *s, int tb_num);
static void retire_gen_exit(struct DisasContext *s);

/*
 * How many iterations of a REP, one less than a power of two, may follow each
 * other within its TB; 0 if none.
 */
static target_ulong retire_rep_max(struct DisasContext *s, target_ulong max);

#endif
