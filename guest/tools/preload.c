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
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include "session.h"

#define EXPORT __attribute__((visibility("default")))

enum { MAX_PATH = 256 };

static bool active;                 /* there is a recorder, and LWP */
static char directory[MAX_PATH - 64];
static SessionConfig config;
static LwpInfo info;
static size_t size;                 /* of a session */
static pthread_key_t key;
static char first_name[16];         /* of the first thread, at its start */
/*
 * The program may not do system calls any more, or only some (seccomp(2)), and
 * would be killed for others.  So none are made from then on.
 */
static bool confined;
/* For syscall(), below; NULL until the constructor has run. */
__attribute__((visibility("hidden"))) void *next_syscall;
static unsigned files;              /* the next one's number: it is unique */
static __thread LwpSession *own __attribute__((tls_model("initial-exec")));

/* What the program must not see changed. */
typedef struct Visit {
    int error, cancel;
} Visit;

static Visit enter(void)
{
    Visit v = { .error = errno };

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &v.cancel);
    return v;
}

static void leave(Visit v)
{
    pthread_setcancelstate(v.cancel, NULL);
    errno = v.error;
}

#define WRAPPED(F)                                                          \
    F(pthread_create) F(thrd_create) F(prctl) F(syscall)                    \
    F(execve) F(execvpe) F(fexecve) F(execveat)

#define POINTER(name) void *name;
static struct {
    WRAPPED(POINTER)
} pointers;

static void *next_function(void **pointer, const char *name)
{
    void *p = __atomic_load_n(pointer, __ATOMIC_RELAXED);

    if (!p) {
        p = dlsym(RTLD_NEXT, name);
        __atomic_store_n(pointer, p, __ATOMIC_RELAXED);
    }
    return p;
}

/* The function that the wrapper of that name stands in front of. */
#define NEXT(name) \
    ((__typeof__(&name))next_function(&pointers.name, #name))

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

static void write_maps(void)
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
static void start_session(bool first)
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

/* The program is about to be replaced, or to end at once. */
static void flush_session(void)
{
    LwpSession *s = own;

    if (is_own(s)) {
        __atomic_store_n(&s->state, SESSION_FLUSHED, __ATOMIC_RELEASE);
    }
}

/* It was not replaced. */
static int go_on(int result)
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

/* Threads. */

typedef struct Start {
    void *(*run)(void *);
    thrd_start_t run_c11;
    void *arg;
} Start;

/* What is made ready for a thread that will be profiled. */
static Start *prepare_thread(Start start)
{
    Start *s = active && !confined ? malloc(sizeof(*s)) : NULL;

    if (s) {
        *s = start;
    } else if (active && own) {
        __atomic_fetch_add(&own->unprofiled, 1, __ATOMIC_RELAXED);
    }
    return s;
}

static Start thread_starts(void *p)
{
    Start start = *(Start *)p;
    Visit v = enter();

    free(p);
    start_session(false);
    leave(v);
    return start;
}

static void *run_thread(void *p)
{
    Start start = thread_starts(p);

    return start.run(start.arg);
}

static int run_c11_thread(void *p)
{
    Start start = thread_starts(p);

    return start.run_c11(start.arg);
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                          void *(*run)(void *), void *arg)
{
    Start *start = prepare_thread((Start) { .run = run, .arg = arg });
    int result;

    if (!start) {
        return NEXT(pthread_create)(thread, attr, run, arg);
    }
    result = NEXT(pthread_create)(thread, attr, run_thread, start);
    if (result != 0) {
        free(start);
    }
    return result;
}

EXPORT int thrd_create(thrd_t *thread, thrd_start_t run, void *arg)
{
    Start *start = prepare_thread((Start) { .run_c11 = run, .arg = arg });
    int result;

    if (!start) {
        return NEXT(thrd_create)(thread, run, arg);
    }
    result = NEXT(thrd_create)(thread, run_c11_thread, start);
    if (result != thrd_success) {
        free(start);
    }
    return result;
}

/* Programs that confine themselves. */

/* What is known until now is published, as it cannot be later. */
static bool before_confined(bool confining)
{
    if (active && confining) {
        Visit v = enter();

        write_maps();
        leave(v);
        confined = true;
    }
    return active && confining;
}

static long after_confined(bool confining, long result)
{
    if (confining && result < 0) {
        confined = false;
    }
    return result;
}

EXPORT int prctl(int option, ...)
{
    unsigned long a[4];
    va_list args;
    bool confining;

    va_start(args, option);
    for (int i = 0; i < 4; i++) {
        a[i] = va_arg(args, unsigned long);
    }
    va_end(args);
    confining = before_confined(option == PR_SET_SECCOMP && !confined);
    return after_confined(confining, NEXT(prctl)(option, a[0], a[1], a[2],
                                                 a[3]));
}

/*
 * Most calls of syscall() go through as they are: a child of vfork() would
 * overwrite what a function in C has on the stack.  The others, and those that
 * come before the constructor here, are for the function below.
 */
#if UINTPTR_MAX > UINT32_MAX
__asm__(".pushsection .text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        "    cmpq $317, %rdi\n"            /* SYS_seccomp */
        "    je confine_syscall\n"
        "    cmpq $157, %rdi\n"            /* SYS_prctl */
        "    je confine_syscall\n"
        "    cmpq $0, next_syscall(%rip)\n"
        "    je confine_syscall\n"
        "    jmp *next_syscall(%rip)\n"
        ".size syscall, . - syscall\n"
        ".popsection");
_Static_assert(SYS_seccomp == 317 && SYS_prctl == 157, "x86-64");
#else
__asm__(".pushsection .text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        "    cmpl $354, 4(%esp)\n"         /* SYS_seccomp */
        "    je confine_syscall\n"
        "    cmpl $172, 4(%esp)\n"         /* SYS_prctl */
        "    je confine_syscall\n"
        "    call 1f\n"
        "1:  popl %eax\n"
        "    addl $_GLOBAL_OFFSET_TABLE_ + (. - 1b), %eax\n"
        "    movl next_syscall@GOTOFF(%eax), %eax\n"
        "    testl %eax, %eax\n"
        "    je confine_syscall\n"
        "    jmp *%eax\n"
        ".size syscall, . - syscall\n"
        ".popsection");
_Static_assert(SYS_seccomp == 354 && SYS_prctl == 172, "i386");
#endif

__attribute__((visibility("hidden"), used))
long confine_syscall(long number, long a, long b, long c, long d, long e,
                     long f)
{
    /* SECCOMP_SET_MODE_STRICT and _FILTER */
    bool confining = before_confined(!confined &&
                                     ((number == SYS_seccomp && a <= 1) ||
                                      (number == SYS_prctl &&
                                       a == PR_SET_SECCOMP)));

    return after_confined(confining, NEXT(syscall)(number, a, b, c, d, e, f));
}

/* The end of the program, without its destructors. */

EXPORT void _exit(int status)
{
    flush_session();
    for (;;) {
        NEXT(syscall)(SYS_exit_group, status);
    }
}

EXPORT void _Exit(int status)
{
    _exit(status);
}

/* Another program in its place. */

EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
    flush_session();
    return go_on(NEXT(execve)(path, argv, envp));
}

EXPORT int execv(const char *path, char *const argv[])
{
    return execve(path, argv, environ);
}

EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
    flush_session();
    return go_on(NEXT(execvpe)(file, argv, envp));
}

EXPORT int execvp(const char *file, char *const argv[])
{
    return execvpe(file, argv, environ);
}

EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
    flush_session();
    return go_on(NEXT(fexecve)(fd, argv, envp));
}

EXPORT int execveat(int fd, const char *path, char *const argv[],
                    char *const envp[], int flags)
{
    flush_session();
    return go_on(NEXT(execveat)(fd, path, argv, envp, flags));
}

/* execle() has the environment behind the NULL. */
#define EXECL(name, function, environment)                                  \
    EXPORT int name(const char *path, const char *first, ...)               \
    {                                                                       \
        va_list args, again;                                                \
        size_t n = 1;                                                       \
        int result;                                                         \
                                                                            \
        va_start(args, first);                                              \
        va_copy(again, args);                                               \
        for (const char *a = first; a; a = va_arg(again, const char *)) {   \
            n++;                                                            \
        }                                                                   \
        va_end(again);                                                      \
                                                                            \
        char *argv[n];                                                      \
                                                                            \
        argv[0] = (char *)first;                                            \
        for (size_t i = 1; i < n; i++) {                                    \
            argv[i] = va_arg(args, char *);                                 \
        }                                                                   \
        result = function(path, argv, environment);                         \
        va_end(args);                                                       \
        return result;                                                      \
    }

EXECL(execl, execve, environ)
EXECL(execlp, execvpe, environ)
EXECL(execle, execve, va_arg(args, char **))
