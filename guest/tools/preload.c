/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lwp-preload.so: profile the program that it is preloaded into.
 *
 * Each thread gets a session (session.h), from its first instruction to its
 * last.  In between nothing here runs, but for the few calls that change what
 * there is to profile.  The program must not notice: no file stays open, errno
 * and cancellation are left alone, and whatever fails is kept quiet about,
 * except in the session's directory.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include "preload.h"

enum { MAX_PATH = 256 };

bool active;
static char directory[MAX_PATH - 64];
static SessionConfig config;
static LwpInfo info;
static size_t size;                 /* of a session */
static pthread_key_t key;
static char first_name[16];         /* of the first thread, at its start */
bool confined;
void *next_syscall;
static unsigned files;              /* the next one's number: it is unique */
__thread LwpSession *own;

struct pointers pointers;

void *next_function(void **pointer, const char *name)
{
    void *p = __atomic_load_n(pointer, __ATOMIC_RELAXED);

    if (!p) {
        p = dlsym(RTLD_NEXT, name);
        __atomic_store_n(pointer, p, __ATOMIC_RELAXED);
    }
    return p;
}

/* Writing beyond this limit would kill the program. */
static bool file_allowed(size_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes <= limit.rlim_cur;
}

/*
 * The recorder takes a file when it gets its name: until it is complete, there
 * is a dot in front.
 */
static int create_file(const char *dotted)
{
    return open(dotted, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

static void publish_file(const char *dotted, char *plain)
{
    char *slash = stpcpy(plain, dotted) - 1;

    while (*slash != '/') {
        slash--;
    }
    memmove(slash + 1, slash + 2, strlen(slash + 2) + 1);
    if (rename(dotted, plain) != 0) {
        unlink(dotted);
    }
}

void write_maps(void)
{
    char dotted[MAX_PATH], plain[MAX_PATH], buffer[4096];
    LwpSession *s = own;
    bool enabled = s && session_flush() == &s->cb;
    int from, to = -1;
    ssize_t n;

    if (!config.maps || confined) {
        return;
    }
    if (enabled) {
        lwp_disable(s);
    }
    snprintf(dotted, sizeof(dotted), "%s/." SESSION_MAPS, directory, getpid(),
             __atomic_fetch_add(&files, 1, __ATOMIC_RELAXED));
    from = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (from >= 0 && file_allowed(1 << 20)) {
        to = create_file(dotted);
    }
    if (to >= 0) {
        n = snprintf(buffer, sizeof(buffer), SESSION_MAPS_HEAD, gettid(),
                     s ? s->cb.head : 0);
        while (n > 0 && write(to, buffer, n) == n) {
            n = read(from, buffer, sizeof(buffer));
        }
        close(to);
        if (n == 0) {
            publish_file(dotted, plain);
        } else {
            unlink(dotted);
        }
    }
    if (from >= 0) {
        close(from);
    }
    if (enabled) {
        lwp_enable(s);
    }
}

static LwpSession *map_session(const char *dotted, int *error)
{
    LwpSession *s;
    int fd;

    if (!file_allowed(size)) {
        *error = EFBIG;
        return MAP_FAILED;
    }
    fd = create_file(dotted);
    if (fd < 0) {
        *error = errno;
        return MAP_FAILED;
    }
    /* What has no place on the disk would be SIGBUS later. */
    *error = posix_fallocate(fd, 0, size);
    s = MAP_FAILED;
    if (*error == 0) {
        s = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        *error = errno;
    }
    close(fd);
    if (s == MAP_FAILED) {
        unlink(dotted);
    }
    return s;
}

/*
 * The dynamic linker calls an empty function when it begins to change what is
 * mapped, and when it has done so, for debuggers to put a breakpoint there
 * (link.h, struct r_debug).  Here it becomes a jump to this.  Nothing else sees
 * what the C library itself loads, or a library before its constructors run.
 */
static void linker_changes(void)
{
    Visit v = enter();

    if (_r_debug.r_state == RT_CONSISTENT && !confined) {
        write_maps();
    }
    leave(v);
}

static bool follow_linker(void)
{
    static const char endbr[] = { 0xf3, 0x0f, 0x1e,
                                  sizeof(void *) == 8 ? 0xfa : 0xfb };
    /* What is between functions in 64- and 32-bit code. */
    static const char *const padding[] = {
        "\x66\x66\x2e\x0f", "\x66\x2e\x0f\x1f", "\x90\x90\x90\x90",
        "\xcc\xcc\xcc\xcc", "\x8d\x76\x00\x8d", "\x8d\xb4\x26\x00",
        "\x66\x90\x66\x90",
    };
    char *at = (char *)(uintptr_t)_r_debug.r_brk;
    intptr_t jump = (intptr_t)linker_changes - (intptr_t)at - 5;
    char *start = (char *)((uintptr_t)at & -4096);
    bool known = false;

    /* The jump has 5 bytes: those of ENDBR and RET, or of RET and no code. */
    if (at && jump == (int32_t)jump && (uintptr_t)at % 16 == 0) {
        known = !memcmp(at, endbr, 4) && at[4] == '\xc3';
        for (size_t i = 0; i < sizeof(padding) / sizeof(*padding); i++) {
            known |= *at == '\xc3' && !memcmp(at + 1, padding[i], 4);
        }
    }
    if (!known || mprotect(start, 4096, PROT_READ | PROT_WRITE | PROT_EXEC)) {
        return false;
    }
    at[0] = 0xe9;
    memcpy(at + 1, &(int32_t){ jump }, 4);
    mprotect(start, 4096, PROT_READ | PROT_EXEC);
    return true;
}

/*
 * Leave a note, which takes neither a file descriptor nor space.  There may be
 * no directory any more, if the recorder has ended: then nobody has to know.
 */
static void leave_note(const char *name)
{
    char path[MAX_PATH];

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (symlink("-", path) != 0) {
        return;
    }
}

static void say_failed(int error)
{
    char name[64];

    snprintf(name, sizeof(name), SESSION_FAILED, getpid(), gettid(), error);
    leave_note(name);
}

/* One process does this for all that are recorded. */
static void write_vdso(void)
{
    const ElfW(Ehdr) *e = (void *)getauxval(AT_SYSINFO_EHDR);
    char dotted[MAX_PATH], plain[MAX_PATH];
    size_t bytes;
    int fd;

    snprintf(plain, sizeof(plain), "%s/" SESSION_VDSO, directory,
             (int)sizeof(void *) * 8);
    if (!config.maps || !e || access(plain, F_OK) == 0) {
        return;
    }
    bytes = e->e_shoff + e->e_shnum * e->e_shentsize;
    snprintf(dotted, sizeof(dotted), "%s/." SESSION_VDSO, directory,
             (int)sizeof(void *) * 8);
    if (bytes > 1 << 16 || !file_allowed(bytes)) {
        return;
    }
    fd = create_file(dotted);
    if (fd >= 0) {
        if (write(fd, e, bytes) == (ssize_t)bytes) {
            publish_file(dotted, plain);
        } else {
            unlink(dotted);
        }
        close(fd);
    }
}

/* The maps go with the process's first session: they have to follow it. */
static void start_session_now(bool first)
{
    char dotted[MAX_PATH], plain[MAX_PATH];
    struct timespec t;
    LwpSession *s;
    int error;

    if (first) {
        /* What this process was before may have sessions that wait. */
        clock_gettime(CLOCK_MONOTONIC, &t);
        files = t.tv_sec * 1000000000u + t.tv_nsec;
    }
    snprintf(dotted, sizeof(dotted), "%s/." SESSION_THREAD, directory,
             getpid(), gettid(),
             __atomic_fetch_add(&files, 1, __ATOMIC_RELAXED));
    s = map_session(dotted, &error);
    if (s == MAP_FAILED) {
        say_failed(error);
        return;
    }
    session_init(s, &config.options, &info);
    s->pid = getpid();
    s->tid = gettid();
    s->ppid = getppid();
    s->bits = sizeof(void *) * 8;
    s->first = first;
    s->cpuid[0] = info.eax;
    s->cpuid[1] = info.ebx;
    s->cpuid[2] = info.ecx;
    s->cpuid[3] = info.edx;
    strncpy(s->comm, program_invocation_short_name, sizeof(s->comm) - 1);
    s->stack = getauxval(AT_RANDOM);
    NEXT(prctl)(PR_GET_NAME, s->name);
    if (first) {
        memcpy(first_name, s->name, sizeof(first_name));
    }
    memcpy(s->first_name, first_name, sizeof(first_name));
    publish_file(dotted, plain);
    if (first) {
        write_maps();
        write_vdso();
    }
    pthread_setspecific(key, s);
    own = s;
    lwp_enable(s);
}

/*
 * Handlers of signals had better not run in the middle of this; and until Linux
 * 6.11, a pending signal keeps posix_fallocate() from what it has to do.
 */
void start_session(bool first)
{
    sigset_t all, before;

    if (!confined) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        start_session_now(first);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
}

/* The thread ends, by exit() or otherwise. */
static void end_session(void *unused)
{
    LwpSession *s = own;

    (void)unused;
    own = NULL;
    if (s && confined) {
        lwp_disable(s);
        __atomic_store_n(&s->state, SESSION_ENDED, __ATOMIC_RELEASE);
    /* A child that no handler of fork() has seen has its parent's. */
    } else if (s && s->tid == gettid()) {
        lwp_disable(s);
        NEXT(prctl)(PR_GET_NAME, s->name);
        __atomic_store_n(&s->state, SESSION_ENDED, __ATOMIC_RELEASE);
        munmap(s, size);
    }
}

/*
 * Whether the session is this thread's: it has it enabled, or has paused.  A
 * child of vfork() has its parent's memory, but not its LWP.
 */
static bool is_own(const LwpSession *s)
{
    LwpCb *cb = s ? session_flush() : NULL;

    return s && (cb == &s->cb || (!cb && !confined && s->tid == gettid()));
}

void flush_session(void)
{
    LwpSession *s = own;

    if (is_own(s)) {
        __atomic_store_n(&s->state, SESSION_FLUSHED, __ATOMIC_RELEASE);
    }
}

int go_on(int result)
{
    LwpSession *s = own;

    if (is_own(s)) {
        __atomic_store_n(&s->state, SESSION_RUNS, __ATOMIC_RELEASE);
    }
    return result;
}

/* LWP is disabled in a child, and the session is its parent's. */
static void child_starts(void)
{
    Visit v = enter();

    if (own && !confined) {
        munmap(own, size);
    } else if (own) {
        __atomic_fetch_add(&own->unprofiled, 1, __ATOMIC_RELAXED);
    }
    own = NULL;
    start_session(true);
    leave(v);
}

static bool read_config(void)
{
    const char *dir = getenv(SESSION_ENV);
    char path[MAX_PATH];
    struct stat st;
    bool ok;
    int fd;

    /* rr does not record what LWP stores. */
    if (!dir || strlen(dir) >= sizeof(directory) ||
        getenv("RUNNING_UNDER_RR")) {
        return false;
    }
    strcpy(directory, dir);
    snprintf(path, sizeof(path), "%s/" SESSION_CONFIG, directory);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return false;
    }
    /* When the recorder has gone, somebody else may take its name. */
    ok = fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
         read(fd, &config, sizeof(config)) == sizeof(config) &&
         config.magic == SESSION_MAGIC;
    close(fd);
    return ok;
}

static void __attribute__((constructor)) program_starts(void)
{
    Visit v = enter();

    info = lwp_detect();
    if (info.available && read_config()) {
        config.options.events &= info.events;
        size = session_size(&config.options, &info);
        if (info.version != 1 || info.record_size != sizeof(LwpRecord)) {
            say_failed(EPROTONOSUPPORT);
        } else if (!(config.options.events & ~LWP_FLAG_INT)) {
            say_failed(EOPNOTSUPP);
        } else if (config.options.filters & ~lwp_filters(&info)) {
            say_failed(ERANGE);
        } else if (!size || pthread_key_create(&key, end_session) != 0 ||
                   pthread_atfork(NULL, NULL, child_starts) != 0 ||
                   at_quick_exit(flush_session) != 0) {
            say_failed(EINVAL);
        } else {
            active = true;
            if (config.maps && !follow_linker()) {
                char name[64];

                snprintf(name, sizeof(name), SESSION_LATE, getpid());
                leave_note(name);
            }
            /* A child of vfork() had better not look for them. */
#define FIND(name) NEXT(name);
            WRAPPED(FIND)
            next_syscall = pointers.syscall;
            start_session(true);
        }
    }
    leave(v);
}

static void __attribute__((destructor)) program_ends(void)
{
    if (own && (confined || own->tid == gettid())) {
        Visit v = enter();

        write_maps();
        end_session(NULL);
        leave(v);
    }
}
