/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the tests of the Linux driver share: reports, a profile of the calling
 * thread, and a workload of which every record and every count is known.
 *
 * Section and table numbers refer to AMD publication 43724, revision 3.08.
 */
#ifndef TEST_H
#define TEST_H

#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/rseq.h>
#include <unistd.h>
#include <x86intrin.h>
#include "../tools/lwp.h"

/* --- reports --------------------------------------------------------------*/

static int failed;

/* One line per check; the name of the program tells 32 from 64 bits. */
static __attribute__((format(printf, 2, 3), unused))
bool check(bool ok, const char *format, ...)
{
    va_list args;
    char what[256];

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    printf("%s %s: %s\n", ok ? "PASS" : "FAIL", program_invocation_short_name,
           what);
    fflush(stdout);
    failed |= !ok;
    return ok;
}

static inline __attribute__((noreturn)) void die(const char *what)
{
    fprintf(stderr, "FAIL %s: %s: %s\n", program_invocation_short_name, what,
            strerror(errno));
    exit(2);
}

static inline void handle(int sig, void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler };

    if (sigaction(sig, &action, NULL)) {
        die("sigaction");
    }
}

/* Write to a file of sysfs; 0 or a negative error. */
static inline int write_string(const char *path, const char *s)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC), err = 0;

    if (fd < 0 || write(fd, s, strlen(s)) != (ssize_t)strlen(s)) {
        err = -errno;
    }
    close(fd);
    return err;
}

/* Some time in user mode, and @n branches */
static inline void spin(unsigned n)
{
    if (n) {
        __asm__ volatile("1: sub $1, %0\n jnz 1b" : "+r" (n) : : "cc");
    }
}

static const char features[] __attribute__((unused)) =
    "/sys/class/misc/lwp/features";

/* Events and INT as available on the current CPU (table 3-1). */
static inline uint32_t available(void)
{
    unsigned eax, ebx, ecx, edx;

    __cpuid(0x8000001c, eax, ebx, ecx, edx);
    return eax & ~LWP_FLAG_AVAIL;
}

/* --- a profile ------------------------------------------------------------*/

typedef struct Profile {
    LwpCb *cb;
    LwpRecord *ring;
    uint32_t records;
} Profile;

static inline void *map_shared(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        die("mmap");
    }
    return p;
}

/* Children share the LWPCB and the ring. */
static inline void profile_map(Profile *p, uint32_t records)
{
    p->records = records;
    p->cb = map_shared(4096 + records * sizeof(LwpRecord));
    p->ring = (LwpRecord *)((char *)p->cb + 4096);
}

/* An LWPCB for events that should all have the same interval. */
static inline void profile_set(Profile *p, uint32_t flags, int32_t interval,
                               uint32_t threshold)
{
    memset(p->cb, 0, sizeof(*p->cb));
    p->cb->flags = flags;
    p->cb->size = p->records * sizeof(LwpRecord);
    p->cb->base = (uintptr_t)p->ring;
    p->cb->threshold = threshold * sizeof(LwpRecord);
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        p->cb->event[i].interval = interval;
        p->cb->event[i].counter = interval;
    }
}

static inline void profile_start(Profile *p)
{
    __llwpcb(p->cb);
}

static inline void profile_stop(void)
{
    __llwpcb(NULL);
}

/* The oldest record (section 1.1's protocol), or false if there is none. */
static inline bool profile_next(Profile *p, LwpRecord *record)
{
    uint32_t tail = p->cb->tail;

    if (tail == __atomic_load_n(&p->cb->head, __ATOMIC_ACQUIRE)) {
        return false;
    }
    *record = p->ring[tail / sizeof(*record)];
    tail = (tail + sizeof(*record)) % p->cb->size;
    __atomic_store_n(&p->cb->tail, tail, __ATOMIC_RELEASE);
    return true;
}

/* --- the workload ---------------------------------------------------------*/

enum { MARK = 0xabcd, INTERVAL = (1 << 25) - 1 };

typedef struct Counts {
    int32_t ire, bre;
} Counts;

/*
 * LWPINS for Data2 = @from to @to - 1, with a loop of @spin in between.  Data1
 * is the CPU: the kernel writes it to the thread's area of restartable
 * sequences before the thread goes on elsewhere, and LWPINS reads it while it
 * stores the record, however often the thread is moved around that.  It counts
 * 2 @spin + 5 instructions and @spin + 1 branches for each, and those around.
 */
static __attribute__((noinline, unused))
void workload(Profile *p, uint32_t from, uint32_t to, uint32_t spin)
{
    const struct rseq *area = (const struct rseq *)
        ((const char *)__builtin_thread_pointer() + __rseq_offset);

    if (!__rseq_size) {
        errno = ENOSYS;
        die("restartable sequences");
    }
    __asm__ volatile(
        "llwpcb %[cb]\n"
        "1:\n\t"
        "mov %[spin], %%ecx\n"
        "2:\n\t"
        "dec %%ecx\n\t"
        "jnz 2b\n\t"
        "lwpins $0xabcd, %[cpu], %%esi\n\t"
        "inc %%esi\n\t"
        "cmp %[to], %%esi\n\t"
        "jb 1b\n\t"
        "xor %%eax, %%eax\n\t"
        "llwpcb %%eax"
        : "+S" (from)
        : [cb] "b" (p->cb), [to] "m" (to), [spin] "m" (spin),
          [cpu] "m" (area->cpu_id)
        : "eax", "ecx", "cc", "memory");
}

static inline Counts counts(const Profile *p)
{
    return (Counts) {
        .ire = INTERVAL - p->cb->event[LWP_IRE - 1].counter,
        .bre = INTERVAL - p->cb->event[LWP_BRE - 1].counter,
    };
}

/*
 * NULL if the ring has the records of workload(), each of the CPU on which the
 * thread was, and nothing else; @moves: how often the CPU has changed.
 */
static __attribute__((unused))
const char *records_wrong(Profile *p, uint32_t from, uint32_t to,
                          unsigned *moves)
{
    LwpRecord r = { 0 };
    unsigned last = -1u;

    if (p->cb->missed) {
        return "records were missed";
    }
    for (uint32_t i = from; i < to; i++) {
        if (!profile_next(p, &r)) {
            return "records are lost";
        }
        if (r.event != LWP_INS || r.flags != MARK || r.data2 != i ||
            r.reserved) {
            return "a record is foreign";
        }
        if (r.core != r.data1) {
            return "CoreId is of another CPU";
        }
        *moves += last != -1u && r.core != last;
        last = r.core;
    }
    return profile_next(p, &r) ? "there are more records" : NULL;
}

static inline void run_on(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set)) {
        die("sched_setaffinity");
    }
}

/* Whether LWP does, there. */
static inline bool works_on(int cpu)
{
    unsigned moves = 0;
    Profile p;

    run_on(cpu);
    profile_map(&p, 64);
    profile_set(&p, LWP_FLAG(LWP_IRE) | LWP_FLAG(LWP_BRE), INTERVAL, 0);
    workload(&p, 0, 50, 500);
    return !records_wrong(&p, 0, 50, &moves) && counts(&p).ire > 50 * 2 * 500;
}

#endif
