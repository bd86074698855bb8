/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lwp-preload.so: what its two halves share.
 */
#ifndef LWP_PRELOAD_H
#define LWP_PRELOAD_H

#include <errno.h>
#include <pthread.h>
#include "session.h"

#pragma GCC visibility push(hidden)

extern bool active;                 /* there is a recorder, and LWP */
/*
 * The program may not do system calls any more, or only some (seccomp(2)), and
 * would be killed for others.  So none are made from then on.
 */
extern bool confined;
/* For syscall(); NULL until the constructor has run. */
extern void *next_syscall;
/* This thread's; NULL: none. */
extern __thread LwpSession *own __attribute__((tls_model("initial-exec")));

/* What the program must not see changed. */
typedef struct Visit {
    int error, cancel;
} Visit;

static inline Visit enter(void)
{
    Visit v = { .error = errno };

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &v.cancel);
    return v;
}

static inline void leave(Visit v)
{
    pthread_setcancelstate(v.cancel, NULL);
    errno = v.error;
}

#define WRAPPED(F)                                                          \
    F(pthread_create) F(thrd_create) F(prctl) F(syscall)                    \
    F(execve) F(execvpe) F(fexecve) F(execveat)

#define POINTER(name) void *name;
struct pointers {
    WRAPPED(POINTER)
};
extern struct pointers pointers;
void *next_function(void **pointer, const char *name);

/* The function that the wrapper of that name stands in front of. */
#define NEXT(name) \
    ((__typeof__(&name))next_function(&pointers.name, #name))

void write_maps(void);
void start_session(bool first);     /* of the process */
/* The program is about to be replaced, or to end at once. */
void flush_session(void);
/* It was not replaced. */
int go_on(int result);

#pragma GCC visibility pop

#endif
