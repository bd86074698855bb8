/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A thread's session: one piece of memory with its LWPCB and its ring.  For
 * "lwp record" and "lwp stat" it is a file that the preload library in the
 * program and the recorder share, in a directory that the environment names.
 * 32- and 64-bit programs agree about everything here.
 */
#ifndef LWP_SESSION_H
#define LWP_SESSION_H

#include <sys/types.h>
#include "insns.h"
#include "lwp.h"

#define SESSION_ENV         "LWP_SESSION"   /* the directory, absolute */
#define SESSION_MAGIC       0x3153504cu     /* "LPS1" */
#define SESSION_RING        4096            /* offset */

/*
 * What the directory holds.  The recorder makes SESSION_CONFIG; the library
 * makes the others, each first with a dot in front and then renamed.
 */
#define SESSION_CONFIG      "config"        /* SessionConfig */
#define SESSION_THREAD      "s.%d.%d.%u"    /* pid, tid, number: LwpSession */
#define SESSION_MAPS        "m.%d.%u"       /* pid, number: see below */
#define SESSION_FAILED      "f.%d.%d.%d"    /* pid, tid, errno: no session */
#define SESSION_VDSO        "v.%d"          /* bits: its image; stays there */
#define SESSION_LATE        "l.%d"          /* pid: does not see dlopen() */

typedef struct SessionConfig {
    uint32_t magic;
    uint32_t maps;          /* are wanted */
    LwpOptions options;     /* events are tried as far as they are available */
} SessionConfig;

/*
 * What a process has mapped: a line with a thread and the head of its ring when
 * that was so, which tells which of its records are older; then
 * /proc/self/maps.
 */
#define SESSION_MAPS_HEAD   "lwp %d %u\n"   /* tid, bytes */

enum {
    SESSION_RUNS = 1,       /* the library will say when it ends */
    SESSION_FLUSHED,        /* about to exec or exit: counters are stored */
    SESSION_ENDED,          /* will not be used again */
};

struct LwpSession {
    uint32_t magic;
    uint32_t state;         /* SESSION_* */
    uint32_t size;          /* of the ring, bytes */
    uint8_t event_offset;   /* LwpEventOffset */
    uint8_t reserved[3];
    int32_t start[LWP_NR_EVENTS];       /* what counters began with */
    /* The consumer's: how many it has seen of each event. */
    uint64_t drained[LWP_NR_EVENTS];
    /* For the recorder. */
    int32_t pid, tid, ppid;
    uint32_t bits;          /* 32 or 64 */
    uint32_t first;         /* the process starts with this thread */
    uint32_t cpuid[4];      /* Fn8000_001C */
    char comm[16];          /* of the program */
    /* An address in the stack of the first thread. */
    uint64_t stack __attribute__((aligned(8)));
    /* Of the program when it started; of this thread, start and end. */
    char first_name[16], name[16];
    uint32_t unprofiled;    /* threads that it has made since it is confined */
    /* Aligned, and within a page (5.1).  No LWPCB is larger than 255 * 8. */
    union {
        LwpCb cb;
        uint8_t cb_space[2048];
    } __attribute__((aligned(2048)));
};

_Static_assert(sizeof(LwpSession) == SESSION_RING, "the ring follows");
_Static_assert(offsetof(LwpSession, cb) == 2048, "the same in 32 bits");
_Static_assert(offsetof(LwpSession, unprofiled) == 184,
               "the same in 32 bits");
_Static_assert(sizeof(LwpOptions) == 64, "the same in 32 bits");

/* Bytes of a session with such a ring, in whole pages; 0: out of range. */
size_t session_size(const LwpOptions *options, const LwpInfo *info);

/*
 * Prepare a session in zeroed memory of that size.  All options are valid, and
 * the events available.
 */
void session_init(LwpSession *session, const LwpOptions *options,
                  const LwpInfo *info);

/*
 * What lwp_drain() does, where the CPU that runs this need not have LWP, and
 * the program may write anything here meanwhile: SIZE is the ring's.  It ends
 * at UNTIL, which the head has been, and does nothing if that was drained
 * before; or at the head, if it is SESSION_ALL.  -1: the head or the tail is
 * not in the ring.
 */
#define SESSION_ALL         UINT32_MAX
ssize_t session_drain(LwpSession *session, uint32_t size, uint32_t until,
                      LwpCallback *callback, void *opaque);

/*
 * How many events there were up to the last record that was drained, and (if
 * flushed, and nothing is left to drain) since then: by the counter.
 */
uint64_t session_count(const LwpSession *session, int event, bool flushed);

/*
 * Whether there still is the LWP that lwp_detect() has found: the operating
 * system may take it away at any moment, and its instructions are invalid then.
 */
static inline bool session_available(void)
{
    return insn_cpuid(0x8000001c).eax & LWP_FLAG_AVAIL;
}

/* The LWPCB that is enabled in this thread, after a flush, or NULL (5.2). */
static inline LwpCb *session_flush(void)
{
    return session_available() ? insn_slwpcb() : NULL;
}

#endif
