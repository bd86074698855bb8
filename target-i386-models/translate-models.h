/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Models of caches, TLBs and branches: what a DisasContext holds of them. */

#ifndef I386_TRANSLATE_MODELS_H
#define I386_TRANSLATE_MODELS_H

#include "models.h"

struct DisasContext;

typedef struct RetireModelsDisas {
    uint64_t line;          /* of code, the last one, or UINT64_MAX */
    bool updates;           /* the current one stores to what it loads */
    bool rest;              /* the next access is a part of the last one */
    uint8_t parts;          /* accesses of a string instruction so far */
    TCGv_i64 slot, addr;    /* for retire_gen_access() */
    TCGv_ptr base, word;
    /*
     * Have the backend test the filter, as a part of the access @mop that
     * follows, or return false; NULL if no backend does.
     */
    bool (*backend)(uint32_t desc, MemOp mop);
    TCGv next;              /* of what follows in memory, if it is a CALL */
    uint64_t *memory;       /* what each does, as RETIRE_MEMORY_LOAD */
} RetireModelsDisas;

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
 * How many iterations of a REP, one less than a power of two, may follow each
 * other within its TB; 0 if none.
 */
static target_ulong retire_rep_max(struct DisasContext *s, target_ulong max);

#endif
