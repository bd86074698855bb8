/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names of the code and data in ELF files: functions, source lines.
 */
#ifndef LWP_SYMBOLS_H
#define LWP_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>
#include "data.h"

typedef struct Object Object;

/*
 * A function, or a variable.  "[object+0x12]" is a function without a name;
 * "[object]", of size 0, is all of the object that nothing tells apart.
 */
typedef struct Function {
    const Object *object;
    const char *name;       /* as in the source, if that can be told */
    const char *linkage;    /* as in the symbol table */
    uint64_t start, size;   /* address as in the ELF file */
    uint32_t number;        /* 0, until somebody who counts them has set it */
    bool walked, has_inlined;       /* see function_has_inlined() */
} Function;

/* Where files are looked for; to be set before the first object_get(). */
extern const char *symbols_root;        /* instead of / */
extern const char *symbols_debug_dir;   /* instead of /usr/lib/debug */
extern bool symbols_debuginfod;         /* ask $DEBUGINFOD_URLS, too */

/*
 * There is one for each path and file that was there, also if there is no such
 * file now.  NULL: which file it was is not known.  A file that is not the one
 * of this ID is not used.
 */
Object *object_get(const char *path, const FileId *id);

/* The same, with what the file has: there is no file of this path. */
Object *object_from_image(const char *path, const void *image, size_t size);

/*
 * What a process has compiled while it ran: NULL if it has not told anybody.
 * DUMP is a file in the form of jitdump, or NULL; /tmp/perf-PID.map is asked
 * as well.  Files that are older than SINCE (seconds since 1970) are not its.
 */
Object *object_jit(int32_t pid, const char *dump, uint64_t since);

/* Only if it has been told about this address. */
bool object_knows(Object *o, uint64_t address);

const char *object_path(const Object *o);
const FileId *object_id(const Object *o);
/* Where the file can be read on this machine; NULL: nowhere. */
const char *object_file(const Object *o);

/* The address, as in the ELF file, of what is at this offset of the file. */
uint64_t object_address(Object *o, uint64_t offset, bool exec);

/* The first address behind all that it has in memory. */
uint64_t object_end(const Object *o);

/* Never NULL, and always the same pointer for the same function. */
Function *object_function(Object *o, uint64_t address);

/* A function that the compiler has put into another one. */
typedef struct Call {
    const char *name;
    const char *file;       /* where it is called there; NULL: not known */
    int line;
    size_t number;          /* another one for each such place of the object */
} Call;

/* Whether there may be any in it. */
bool function_has_inlined(Function *f);

/*
 * Those that are at this address: the innermost first, MAX at most.  Returns
 * how many.
 */
int object_inlined(Object *o, uint64_t address, Call *calls, int max);

/* Whether there is any debug information. */
bool object_has_lines(Object *o);

/* Path of the source file, and the line; NULL if that is not known. */
const char *object_line(Object *o, uint64_t address, int *line);

#endif
