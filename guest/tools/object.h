/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An ELF file, for those who read it: its symbols, and its debug information.
 */
#ifndef LWP_OBJECT_H
#define LWP_OBJECT_H

#include <elfutils/libdwfl.h>
#include "symbols.h"
#include "table.h"

typedef struct Symbol {
    Function function;
    uint64_t max_end;       /* of this one and all before it */
    int rank;               /* which of several names of one place is best */
    bool readable;          /* its name has been looked at */
} Symbol;

/* A place where a function was put into another one; and where that is. */
typedef struct Inlined {
    Call call;
    int depth;
    size_t outer;           /* its number; 0: it is no inlined one */
} Inlined;

typedef struct InlinedRange {
    uint64_t start, end;
    uint64_t max_end;       /* of this one and all before it */
    size_t what;            /* index */
} InlinedRange;

typedef struct CuRange {
    uint64_t start, end;
    Dwarf_Off die;
    bool walked;
} CuRange;

struct Object {
    const char *path;
    FileId id;
    const char *file;       /* NULL: there is none that is the right one */
    Dwfl_Module *module;    /* of a Dwfl of its own; NULL: no ELF file */
    Elf *elf;               /* its */
    uint64_t end;           /* behind its last segment */
    Symbol *symbols;        /* by address */
    size_t nr_symbols;
    /* How many start before each step of 1 << shift, from the first one on. */
    uint32_t *before;
    uint64_t steps;
    unsigned shift;
    Dwarf *dwarf;
    CuRange *cus;           /* by address */
    size_t nr_cus;
    Inlined *inlined;
    size_t nr_inlined;
    InlinedRange *ranges;   /* of them, by address */
    size_t nr_ranges;
    Table walked;           /* compilation units that are in them */
    const char *why;        /* it could not be opened */
    bool symbols_read, lines_read;
    Function unnamed;
};

/* symbols.c: C++ and Rust have the types of parameters and more in symbols. */
const char *readable_name(const char *name);

#endif
