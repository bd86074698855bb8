/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The file that "lwp record" writes: a header, then chunks, each with a
 * DataChunk in front.  Little-endian, every chunk padded to 8 bytes.  A reader
 * skips chunks that it does not know, and ends cleanly where the file does.
 *
 * The maps of a process are written when it starts, forks, loads or unloads
 * libraries, and when it ends: each time all of them, behind the records of
 * before and in front of those of afterwards.  So records may come before a map
 * that they need, if it is of memory that was mapped in between, and a map may
 * say again what was known.
 *
 * Older files have no DATA_FILE and DATA_SNAPSHOT.  There, records may come a
 * little before or behind the maps that are theirs, and what is not mapped any
 * more is not told.
 */
#ifndef LWP_DATA_H
#define LWP_DATA_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "lwp.h"

#define DATA_MAGIC      "LWPDATA1"
#define DATA_VERSION    2
#define DATA_DEFAULT    "lwp.data"

typedef struct DataHeader {
    char magic[8];
    uint32_t size;          /* of this header */
    uint32_t flags;         /* events: a set of LWP_FLAG_*, as in the LWPCB */
    uint32_t filters;       /* LWPCB.Filters */
    uint32_t random;        /* LWPCB.Random, bits */
    /* As in the LWPCB, by EventId - 1: one record for interval + 1 events. */
    uint32_t interval[LWP_NR_EVENTS];
    uint32_t cpuid[4];      /* Fn8000_001C EAX, EBX, ECX, EDX */
    uint64_t time;          /* when it began, seconds since 1970 */
    uint64_t base_ip, limit_ip;
    char command[256];      /* for people; cut off if longer */
    /* From version 2 on; 0 in older files, whose header ends here. */
    uint32_t version;       /* of this format: DATA_VERSION */
    uint32_t ring;          /* of a thread, records */
    uint64_t clock;         /* when it began, by CLOCK_MONOTONIC, ns */
    uint32_t cpus;          /* of the machine that ran "lwp record" */
    char tool[28];          /* version of lwp */
} DataHeader;

enum {
    /* DataProcess: pid starts a program or was forked: no map is valid yet. */
    DATA_PROCESS = 1,
    DATA_MAP,               /* DataMap: pid maps code or data */
    DATA_RECORDS,           /* DataThread, then LwpRecords: in their order */
    DATA_LOST,              /* DataLost: the ring was full */
    DATA_END,               /* DataThread: a thread has ended, or stopped */
    DATA_COUNTS,            /* DataCounts: all that was counted of a thread */
    DATA_FILE,              /* DataFile: what a path is, from here on */
    /* DataSnapshot: the DataMaps from BEGIN to END are all that pid maps. */
    DATA_SNAPSHOT,
    DATA_VDSO,              /* DataVdso: what the kernel maps there */
    DATA_TIME,              /* DataTime: when rings were emptied */
    DATA_NAME,              /* DataName: what a thread calls itself */
    DATA_UNPROFILED,        /* DataUnprofiled: who is not in this file */
};

typedef struct DataChunk {
    uint32_t type;
    uint32_t size;          /* with this, a multiple of 8 */
} DataChunk;

typedef struct DataProcess {
    int32_t pid, ppid;
    uint32_t bits;          /* 32 or 64 */
    uint32_t reserved;
    char comm[16];
} DataProcess;

typedef struct DataMap {
    int32_t pid;
    uint32_t prot;          /* PROT_* */
    uint64_t start, end;    /* [start, end) */
    uint64_t offset;        /* in the file, bytes */
    char path[];            /* zero-terminated; "" or "[...]" if no file */
} DataMap;

/* Which file was mapped.  All of it is 0 if that is not known. */
typedef struct FileId {
    uint64_t size;          /* bytes */
    int64_t mtime;          /* nanoseconds since 1970 */
    uint32_t build_id_size; /* bytes; 0: it has none */
    uint32_t reserved;
    uint8_t build_id[32];   /* the first bytes, if it is longer */
} FileId;

typedef struct DataFile {
    FileId id;
    char path[];            /* zero-terminated */
} DataFile;

typedef struct DataSnapshot {
    int32_t pid;
    enum { SNAPSHOT_BEGIN = 1, SNAPSHOT_END } what;
} DataSnapshot;

typedef struct DataVdso {
    uint32_t bits;          /* of the processes, 32 or 64 */
    uint32_t size;          /* bytes */
    char image[];           /* an ELF file */
} DataVdso;

typedef struct DataThread {
    int32_t pid, tid;
} DataThread;

/* Records that follow were stored before, and those in front were earlier. */
typedef struct DataTime {
    uint64_t clock;         /* CLOCK_MONOTONIC, ns */
} DataTime;

typedef struct DataUnprofiled {
    uint32_t threads;
    int32_t error;          /* why: errno, as for lwp_strerror(); 0: seccomp */
} DataUnprofiled;

typedef struct DataName {
    int32_t pid, tid;
    char name[16];
} DataName;

typedef struct DataLost {
    int32_t pid, tid;
    uint64_t missed;        /* records, since the last such chunk */
} DataLost;

typedef struct DataCounts {
    int32_t pid, tid;
    uint64_t records[LWP_NR_EVENTS];    /* stored; by EventId - 1 */
    /* That these and counters show: exact if random and missed are 0. */
    uint64_t events[LWP_NR_EVENTS];
} DataCounts;

/*
 * Writing: false, with a message on stderr, if the disk is full or so.  A file
 * gets its name when it is finished, and what had it gets ".old" behind; or
 * nothing changes, if it is not to be kept.
 */
typedef struct DataWriter DataWriter;
DataWriter *data_create(const char *path, const DataHeader *header);
bool data_write(DataWriter *w, uint32_t type, const void *head,
                size_t head_size, const void *body, size_t body_size);
bool data_finish(DataWriter *w, bool keep);

/* Another header in place of the first, if the file is not a pipe. */
void data_set_header(DataWriter *w, const DataHeader *header);

/*
 * Reading.  data_next() returns the payload of the next chunk, which is valid
 * until the next call, with its size, or NULL at the end.  A file that is cut
 * off is read as far as it goes; data_open() has a message for what is no such
 * file.
 */
typedef struct DataReader DataReader;
DataReader *data_open(const char *path, DataHeader *header);
const void *data_next(DataReader *r, uint32_t *type, size_t *size);
/* How much of the file has been read, from 0 to 1. */
double data_part(const DataReader *r);
/* At the end: the file is cut off, or its next chunk is none. */
bool data_damaged(const DataReader *r);
void data_close(DataReader *r);

#endif
