/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What "lwp record" and "lwp stat" have in common: they run a command with the
 * preload library in it, and empty the rings of all its threads.
 */
#ifndef LWP_RECORDER_H
#define LWP_RECORDER_H

#include <signal.h>
#include <sys/resource.h>
#include "data.h"
#include "session.h"

enum {
    BATCH = 4096,           /* records of a chunk */
};

/* A thread of the command's, whose session this process has mapped. */
typedef struct RecordedThread {
    struct RecordedThread *next;
    LwpSession *session;
    size_t size;            /* of the mapping */
    uint32_t ring;          /* what the session said first: */
    int pid, tid;
    uint64_t missed;
    bool broken;            /* the program has overwritten it */
    char comm[16];
    char name[16];          /* as the file says; "": the program's */
} RecordedThread;

typedef struct Recorder {
    const char *name;       /* of the command */
    bool stat, json;
    unsigned repeat;        /* 0 and 1: once */
    const char *separator;  /* NULL: for people */
    unsigned tick_ms;       /* how often tick() is called; 0: never */
    void (*tick)(struct Recorder *r);
    double start;           /* of the command, by now() */
    int verbose;
    const char *output;
    SessionConfig config;
    uint32_t asked;         /* events by name, not by default */
    char **command;

    char dir[128];
    int dir_fd;
    int inotify, signals, driver;
    bool attached;          /* interrupts tell of all threads */
    bool listening;         /* the driver has somebody to tell of */
    bool busy;              /* a ring fills fast */
    struct sigaction ignored[2];    /* what the command has for them */
    pid_t child;
    bool exited;
    int signal;             /* that killed it, or 0 */
    int status;             /* as a shell says it */
    struct rusage usage;
    double seconds;

    DataWriter *writer;     /* NULL for "lwp stat" */
    DataHeader header;
    RecordedThread *threads;
    LwpRecord batch[BATCH];
    size_t in_batch;
    uint64_t clock;         /* the last DATA_TIME */
    bool unknown;           /* something there is not in the maps */
    RecordedThread *drained;        /* whose records are in the batch */

    unsigned nr_threads, nr_processes;
    unsigned unfinished;    /* threads that ended without a word */
    unsigned failed[256];   /* threads without a session, by errno */
    unsigned confined;      /* threads without a session, for seccomp(2) */
    unsigned late;          /* processes that do not tell of libraries */
    uint32_t enabled;       /* events, in any session */
    uint64_t records, missed;
    uint64_t counts[LWP_NR_EVENTS];
    uint64_t branches, mispredicted;    /* in the sample */
    uint64_t exhausted, heals;          /* see struct lwp_ioc_status */
} Recorder;

/* options.c: -1: go on; otherwise the program's exit status. */
int parse_options(Recorder *r, int argc, char **argv);

/* messages.c */
__attribute__((format(printf, 2, 3)))
void say(const Recorder *r, const char *format, ...);
/* At the end: what was not counted or recorded, and why. */
void explain(const Recorder *r);

/* threads.c */
/* Seconds and nanoseconds of CLOCK_MONOTONIC. */
double now(void);
uint64_t now_ns(void);

/* What was counted of an event until now, exact to a period for each thread. */
uint64_t counted(const Recorder *r, int event);

/* Take what has come into the directory since the last time. */
void take_files(Recorder *r);
/* Empty the rings, and end those threads that have ended. */
void look_at_threads(Recorder *r, bool who_lives);
void end_all_threads(Recorder *r);

/* recorder.c: forget the last run. */
void prepare_again(Recorder *r);

/*
 * Run the command until it ends, and take what its threads record.  False, with
 * a message, if it was not run at all; r->status may say how then.
 */
bool run(Recorder *r);

/* The options, then the command, which returns the exit status. */
int with_recorder(int argc, char **argv, bool stat,
                  int (*command)(Recorder *r));

#endif
