/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a file of "lwp record" says, with names: for report, annotate, script.
 */
#ifndef LWP_PROFILE_H
#define LWP_PROFILE_H

#include <getopt.h>
#include "data.h"
#include "events.h"
#include "symbols.h"
#include "table.h"
#include "text.h"

#define LWP_BRANCH_FUS      (1u << 12)  /* ip is of the comparison before */

typedef struct Map {
    uint64_t start, end, offset;
    uint32_t prot;
    Object *object;
    uint64_t bias;          /* address - bias is the address in the ELF file */
    bool bss;               /* it has none of the file: it comes behind it */
} Map;

/*
 * What a process has mapped from some chunk of the file on: there is another
 * one when it starts a program, or maps a file where another one was.
 */
typedef struct Space {
    int32_t pid, ppid;
    uint32_t bits;
    char comm[17];
    const char *name;       /* comm, kept */
    Object *jit;            /* NULL: none, if somebody has looked */
    bool jit_asked;
    uint64_t since;         /* number of a chunk */
    bool again;             /* the program is that of the older one */
    Map *maps;              /* by address */
    size_t nr_maps;
    int older;              /* the Space of pid before; -1 if none */
    int newer;              /* of the same program; 0 if none */
} Space;

/* What a process has mapped, as far as that has been read. */
typedef struct Snapshot {
    int32_t pid;            /* 0: none is being read */
    Map *maps;
    size_t nr_maps;
} Snapshot;

/* Which file a path is, as far as the profile was read. */
typedef struct PathId {
    uint64_t path;
    FileId id;
} PathId;

typedef struct Thread {
    int32_t pid, tid;
    uint64_t missed;
    DataCounts counts;
    char name[17];          /* "": that of the program */
    const char *kept;       /* the same; NULL: that of the program */
} Thread;

/* Code or data at an address of a space. */
typedef struct Place {
    uint64_t space, ip;
    const Function *function;
    uint64_t address;       /* as in the ELF file */
} Place;

/* Numbers of a Space, and of a Thread in it. */
typedef struct Owner {
    uint32_t space, thread;
} Owner;

/* Records that have all of this in common: there may be millions. */
typedef struct Entry {
    uint64_t ip;
    uint64_t data;          /* target, 64-byte line of data, or user's data2 */
    uint32_t data1;         /* the user's; of misses, for latency_of() */
    uint32_t owner;         /* number of an Owner */
    uint16_t flags;
    uint8_t event, core;
    uint32_t count;         /* the key ends here */
    uint32_t from, to;      /* functions of ip and data, by number */
} Entry;

/* In flags, where those of records have nothing. */
enum {
    ENTRY_SHARED = 1,       /* misses: several threads have the line of data */
    ENTRY_START = 2,        /* branches: the target is a function's start */
};

_Static_assert(sizeof(Entry) == 40, "no gaps");

typedef struct Latency {
    uint64_t sum;
    uint32_t min, max;
} Latency;

/* 64 bytes of data of a process, if several threads may have records of it. */
typedef struct Line {
    uint64_t pid, address;
    uint32_t threads;       /* how many have */
    uint32_t first;         /* one of them; for the others there are Pairs */
} Line;

typedef struct Pair {
    uint64_t pid, address, thread;
    uint64_t seen;
} Pair;

typedef struct Profile {
    DataHeader header;
    DataReader *reader;
    uint64_t chunk;         /* number of the last one that was read */
    uint64_t clock;         /* the last DATA_TIME, ns; 0: none yet */
    Space *spaces;
    size_t nr_spaces;
    Snapshot snapshot;
    Table threads, owners, entries, files;
    /*
     * Entries that differ only in addresses and data within functions, as one
     * Entry, of which there is no place; in the order of the first of each.
     */
    Table parts;
    const Function **functions;     /* those of the entries */
    size_t nr_functions;
    Latency *latencies;     /* of entries and parts with several records */
    size_t nr_latencies;
    Table lines, pairs;     /* of data; and with other threads */
    /* By entry: 1 if no other one has its line of data; or NULL: no misses. */
    uint8_t *alone;
    uint64_t records[256];  /* stored, by EventId */
    uint64_t missed;
    uint64_t unprofiled;    /* threads that are not in it */
} Profile;

/* Options that all commands with a profile have. */
typedef struct ProfileOptions {
    const char *input;
    uint32_t events;        /* event_bit()s; 0: all */
    double from, to;        /* seconds since the start; 0, 0: all */
} ProfileOptions;

enum {
    OPTION_SYMFS = 256,
    OPTION_DEBUG_DIR,
    OPTION_DEBUGINFOD,
    OPTION_TIME,
    OPTION_OWN,             /* a command's, from here on */
};

#define PROFILE_HELP \
    "  -i, --input FILE       the profile (" DATA_DEFAULT ")\n" \
    "  -e, --event LIST       only these: val,ire,bre,dme,cnh,rnh,ins\n" \
    "      --time FROM-TO     only what was recorded in these seconds\n" \
    "      --symfs DIR        look for programs and libraries in DIR\n" \
    "      --debug-dir DIR    separate debug files (/usr/lib/debug)\n" \
    "      --debuginfod       fetch what is not here from $DEBUGINFOD_URLS\n" \
    "  -h, --help             this text\n"

/*
 * The next of a command's own options, or -1 at the end, or '?' after an error.
 * Those that all have are taken care of.
 */
int profile_getopt(int argc, char **argv, const char *shorts,
                   const struct option *longs, ProfileOptions *options,
                   const char *help);

bool event_wanted(const ProfileOptions *options, int event);
/* Events for one record: the interval's, or the mean if it is random. */
double event_period(const Profile *p, int event);
const char *miss_source(unsigned flags);

/* Read all but the records, count them, and go back to the first chunk. */
bool profile_open(Profile *p, const ProfileOptions *options);
/* The payload of the next chunk, as data_next(). */
const void *profile_next(Profile *p, uint32_t *type, size_t *size);
/* Seconds from the start until the chunk's records were taken; 0: not known. */
double profile_seconds(const Profile *p);
bool time_wanted(const Profile *p, const ProfileOptions *options);
/* Say so, where the output has no place for it. */
void profile_missed(const Profile *p);
void profile_close(Profile *p);
/* Whether all that was printed has been written; if not, say so. */
bool output_written(void);

/* Then read the records as well: fills entries. */
bool profile_load(Profile *p, const ProfileOptions *options);

/* What a chunk says of spaces, if it does; and when it was the last one. */
bool space_chunk(Profile *p, uint32_t type, const void *chunk, size_t size);
void spaces_complete(Profile *p);

/* The pid's space at the chunk that was read last, by number. */
uint32_t profile_space(Profile *p, int32_t pid);
Thread *profile_thread(Profile *p, int32_t pid, int32_t tid);
/* How many threads of its process have records of the entry's line of data. */
unsigned profile_sharers(const Profile *p, const Entry *e);
/* What is at the place; its address there. */
Object *place_object(const Profile *p, Place *place);
Place profile_place(const Profile *p, uint32_t space, uint64_t address);

/* File and line of the source; "?" if they are not known. */
const char *place_line(const Place *place);

/*
 * The functions that the compiler has put into the place's, there: the
 * innermost first, with " < " between them; or "".
 */
const char *place_inlined(const Place *place);

/* Where that is mapped; NULL: nowhere. */
const Map *profile_map(const Profile *p, const Place *place);

/* The function of an entry's from or to. */
static inline const Function *function_at(const Profile *p, uint32_t i)
{
    return p->functions[i];
}

/* The place of an entry's ip, and of its data if that is an address. */
Place entry_from(const Profile *p, const Entry *e);
Place entry_to(const Profile *p, const Entry *e);

static inline const Owner *owner_of(const Profile *p, const Entry *e)
{
    return table_at(&p->owners, e->owner);
}

static inline const Space *space_of(const Profile *p, const Entry *e)
{
    return &p->spaces[owner_of(p, e)->space];
}

static inline const Thread *thread_of(const Profile *p, const Entry *e)
{
    return table_at(&p->threads, owner_of(p, e)->thread);
}

/* Of an entry of misses: CPU clocks. */
static inline Latency latency_of(const Profile *p, const Entry *e)
{
    return e->count > 1 ? p->latencies[e->data1] :
           (Latency) { e->data1, e->data1, e->data1 };
}

#endif
