/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lwp-preload.so: calls of the program that change what there is to profile.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>
#include "preload.h"

#define EXPORT __attribute__((visibility("default")))

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
