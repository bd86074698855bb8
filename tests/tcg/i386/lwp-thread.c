/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LWP belongs to a thread: clone, fork, execve and signals (§1.1, §8.4). */

#define _GNU_SOURCE
#include "lwp.h"
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

enum { DME = 4 };

#define THREADS         4
#define RUNS            20000
#define INTERVAL        6

/* One thread's own profile and what it found */
typedef struct Profile {
    LwpCb cb;
    LwpRecord ring[32];
    pthread_t thread;
    int id;
    bool disabled_at_start, ok;
} Profile;

static Profile profile[THREADS], mine;
static pthread_barrier_t barrier;

static void init(Profile *p, uint32_t flags)
{
    lwp_init(&p->cb, p->ring, sizeof(p->ring), flags);
    p->cb.event[0].interval = p->cb.event[0].counter = INTERVAL;
}

static void *run(void *arg)
{
    Profile *p = arg;
    unsigned records = 0;
    bool ok = true;

    p->disabled_at_start = slwpcb() == NULL;
    init(p, LWP_FLAG_VAL);
    llwpcb(&p->cb);
    pthread_barrier_wait(&barrier);
    for (unsigned i = 1; i <= RUNS; i++) {
        lwpval(i, p->id, 1);
        if (i % (INTERVAL + 1) == 0) {
            LwpRecord *r = &p->ring[records++ % 32];

            ok &= r->event == LWP_VAL && r->data1 == p->id && r->data2 == i;
            p->cb.tail = records % 32 * sizeof(*r);
        }
    }
    /* Threads still run while others do. */
    pthread_barrier_wait(&barrier);
    ok &= slwpcb() == &p->cb;
    p->ok = ok && p->cb.missed == 0 &&
            p->cb.head == records % 32 * sizeof(LwpRecord) &&
            p->cb.event[0].counter == INTERVAL - RUNS % (INTERVAL + 1);
    return NULL;
}

static void test_threads(void)
{
    bool disabled = true;

    init(&mine, LWP_FLAG_VAL);
    llwpcb(&mine.cb);
    lwpval(0, 0, 0);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        profile[i].id = i + 100;
        pthread_create(&profile[i].thread, NULL, run, &profile[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(profile[i].thread, NULL);
        disabled &= profile[i].disabled_at_start;
        report(profile[i].ok, "thread %d: its own records, all of them", i);
    }
    report(disabled, "a new thread starts with LWP disabled");
    report(slwpcb() == &mine.cb && mine.cb.event[0].counter == INTERVAL - 1 &&
           mine.cb.head == 0, "the thread that made them goes on as before");
    llwpcb(NULL);
}

static void *count_down(void *arg)
{
    for (int i = 0; i < 5; i++) {
        lwpval(0, 0, 0);
    }
    return slwpcb();
}

/* A thread may not even count on its creator's LWPCB. */
static void test_leak(void)
{
    pthread_t thread;
    void *ret = &thread;

    init(&mine, LWP_FLAG_VAL);
    llwpcb(&mine.cb);
    pthread_create(&thread, NULL, count_down, NULL);
    pthread_join(thread, &ret);
    slwpcb();
    report(ret == NULL && mine.cb.event[0].counter == INTERVAL,
           "LWPVAL in another thread does not count here");
    llwpcb(NULL);
}

static void test_fork(void)
{
    int status;
    pid_t pid;

    init(&mine, LWP_FLAG_VAL);
    llwpcb(&mine.cb);
    lwpval(0, 0, 0);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        bool disabled = slwpcb() == NULL;

        llwpcb(&mine.cb);
        _exit(disabled && slwpcb() == &mine.cb ? 42 : 1);
    }
    waitpid(pid, &status, 0);
    report(WIFEXITED(status) && WEXITSTATUS(status) == 42,
           "a forked process starts with LWP disabled and can enable it");
    report(slwpcb() == &mine.cb &&
           mine.cb.event[0].counter == INTERVAL - 1,
           "its parent goes on as before");

    /* On an x86 host execve() would leave QEMU, hence $QEMU. */
    if (getenv("QEMU")) {
        pid = fork();
        if (pid == 0) {
            llwpcb(&mine.cb);
            execl(getenv("QEMU"), "qemu", "-cpu", "max,+lwp",
                  program_invocation_name, "exec", NULL);
            _exit(1);
        }
        waitpid(pid, &status, 0);
        report(WIFEXITED(status) && WEXITSTATUS(status) == 42,
               "a program starts with LWP disabled");
    } else {
        printf("SKIP: a new program, $QEMU is not set\n");
    }
    llwpcb(NULL);
}

/* Threads that have looked for misses end while another forks. */
static char lines[64 * 1024];
static int forking = 1;

static void *miss(void *ring)
{
    LwpCb cb;

    lwp_init(&cb, ring, PAGE, 1u << DME);
    cb.event[DME - 1].interval = cb.event[DME - 1].counter = 1000;
    llwpcb(&cb);
    for (unsigned i = 0; i < sizeof(lines); i += 64) {
        ((volatile char *)lines)[i];    /* volatile: the load is wanted */
    }
    llwpcb(NULL);
    return NULL;
}

static void *make_threads(void *ring)
{
    while (__atomic_load_n(&forking, __ATOMIC_RELAXED)) {
        pthread_t thread;

        pthread_create(&thread, NULL, miss, ring);
        pthread_join(thread, NULL);
    }
    return NULL;
}

static void test_fork_beside(void)
{
    enum { FORKS = 300 };
    pthread_t thread;
    int n = 0;

    pthread_create(&thread, NULL, make_threads,
                   map_pages(1, PROT_READ | PROT_WRITE));
    fflush(stdout);
    for (int i = 0; i < FORKS; i++) {
        int status = -1;
        pid_t pid = fork();

        if (pid == 0) {
            miss(map_pages(1, PROT_READ | PROT_WRITE));
            _exit(42);
        }
        waitpid(pid, &status, 0);
        n += WIFEXITED(status) && WEXITSTATUS(status) == 42;
    }
    __atomic_store_n(&forking, 0, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    report(n == FORKS, "%d children forked while threads end", FORKS);
}

static LwpCb *cb_in_handler;

static void handler(int sig, siginfo_t *info, void *uc)
{
    lwpins(sig, 1000, 1);
    lwpval(sig, 1000, 2);
    cb_in_handler = slwpcb();
}

static void handler_stops(int sig, siginfo_t *info, void *uc)
{
    llwpcb(NULL);
}

static void test_signals(void)
{
    catch(SIGUSR1, handler);
    catch(SIGUSR2, handler_stops);
    init(&mine, LWP_FLAG_VAL);
    llwpcb(&mine.cb);
    lwpval(0, 1, 0);
    lwpins(0, 1, 0);
    raise(SIGUSR1);
    report(cb_in_handler == &mine.cb, "LWP stays enabled in a handler");
    report(slwpcb() == &mine.cb && mine.cb.head == 64 &&
           mine.ring[1].data1 == 1000 && mine.ring[1].data2 == SIGUSR1,
           "a record of a handler stays in the ring after sigreturn");
    report(mine.cb.event[0].counter == INTERVAL - 2,
           "what a handler counts stays counted after sigreturn");
    for (int i = 0; i < INTERVAL - 1; i++) {
        lwpval(i, 2, 3);
    }
    report(mine.ring[2].event == LWP_VAL && mine.ring[2].data2 == INTERVAL - 2,
           "the LWPVAL that is due stores");
    raise(SIGUSR2);
    report(slwpcb() == NULL, "LWP that a handler stopped stays stopped");
}

/* Signals at arbitrary instructions: everything counts exactly once. */
enum { MANY = 1000000 };
static int ticks;

static void tick(int sig, siginfo_t *info, void *uc)
{
    lwpval(0, 0, 0);
    ticks++;
}

static void test_alarm(void)
{
    init(&mine, LWP_FLAG_VAL);
    mine.cb.event[0].counter = 2 * MANY;
    catch(SIGALRM, tick);
    llwpcb(&mine.cb);
    ualarm(1000, 1000);
    for (int i = 0; i < MANY || ticks < 10; i++) {
        if (i < MANY) {
            lwpval(0, 0, 0);
        }
    }
    ualarm(0, 0);
    slwpcb();
    report(mine.cb.event[0].counter == MANY - ticks,
           "LWPVAL counts exactly while signals arrive");
    llwpcb(NULL);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return slwpcb() == NULL ? 42 : 1;
    }
    test_threads();
    test_leak();
    test_fork();
    test_fork_beside();
    test_signals();
    test_alarm();
    return report_summary();
}
