/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: what a DisasContext holds of it. */

#ifndef I386_TRANSLATE_LWP_H
#define I386_TRANSLATE_LWP_H

#include "lwp/lwp.h"

struct DisasContext;

typedef struct LwpDisas {
    LwpMode mode;       /* of the block */
    bool loads;         /* accesses to memory go through the caches */
    bool learns;        /* the block's last branch is shown to the predictor */
    bool last_late;     /* the block's last instruction is counted late */
    bool late;          /* the current one is, if it ends the block */
    bool uncounted;     /* the current instruction never counts */
    bool repeats;       /* it is a string instruction with a REP prefix */
    bool taken;         /* the exit being emitted is the branch's target */
    bool exits;         /* the block has an exit that is not an exception */
    LwpBranch branch;   /* what the current instruction is */
    TCGv ip;            /* its effective address, if counted late */
    TCGv next;          /* that of what follows in memory, if it is a CALL */
    uint32_t offset;    /* the instruction's address in the page */
    uint32_t length;    /* and its length, in bytes */
    TCGOp *head;        /* the code that counts the block comes behind this */
} LwpDisas;

/*
 * Called where an exit of the block is emitted: in front of a jump, and, when
 * EIP is that of the next instruction, at the end.  The former returns false
 * if the exit may not be chained.
 */
static bool lwp_gen_jump(struct DisasContext *s, int tb_num);
static void lwp_gen_retire(struct DisasContext *s);

/*
 * Whether a REP may go on within its block.  If not, because an event is near,
 * each iteration that misses a cache is a chance to store a record.
 */
static bool lwp_can_loop(struct DisasContext *s);

#endif
