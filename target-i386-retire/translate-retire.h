/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: what a DisasContext holds of it. */

#ifndef I386_TRANSLATE_RETIRE_H
#define I386_TRANSLATE_RETIRE_H

#include "retire.h"

struct DisasContext;

typedef struct RetireDisas {
    RetireWants wants;      /* of all observers */
    bool sources;           /* accesses to memory go through the caches */
    bool accesses;          /* they are counted */
    bool fetches;           /* code goes through L1I and ITLB, */
    bool fetched;           /* and has, so that @line */
    uint64_t line;          /* is the last one */
    bool story;             /* those of what is observed are told */
    bool observed;          /* the block's last instruction is, in any case, */
    bool forced;            /* not because retire_tb_ask() says so */
    bool late;              /* the current one is, if it ends the block */
    bool tf;                /* a taken branch traps: RETIRE_WANT_BTF */
    bool repeats;           /* it is a string instruction with a REP prefix */
    bool taken;             /* the exit being emitted is the branch's target */
    bool exits;             /* the block has an exit that is not an exception */
    bool updates;           /* the current one stores to what it loads */
    bool rest;              /* the next access is a part of the last one */
    uint8_t unit;           /* X86OpUnit of what it writes */
    uint8_t parts;          /* accesses of a string instruction so far */
    uint16_t row;           /* what the current instruction is: X86Retire, */
    RetireBranch branch;    /* and RETIRE_ROW_BRANCH of that */
    TCGv_i64 slot, addr;    /* for retire_gen_access() */
    TCGv_ptr base, word;
    TCGv ip;                /* its effective address, if counted late */
    target_long jump;       /* how far a direct branch goes */
    TCGv next;              /* of what follows in memory, if it is a CALL */
    uint32_t offset;        /* the instruction's address in the page */
    uint32_t length;        /* and its length, in bytes */
    TCGOp **insn_start;     /* of each instruction */
    uint64_t *memory;       /* what each does, as RetireState.memory */
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
 * Called where an exit of the block is emitted: in front of a jump, and, when
 * EIP is that of the next instruction, at the end.  The former returns false
 * if the exit may not be chained.  The latter may be, if it @chains.
 */
static bool retire_gen_jump(struct DisasContext *s, int tb_num);
static void retire_gen_exit(struct DisasContext *s, bool chains);

/*
 * How many iterations of a REP, one less than a power of two, may follow each
 * other within its block; 0 if none.
 */
static target_ulong retire_rep_max(struct DisasContext *s, target_ulong max);

#endif
