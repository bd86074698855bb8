/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Many profiles at once on few CPUs.
 *
 * usage: lwp-stress [ROUNDS]
 *
 * 8 threads and 4 processes profile themselves while another thread moves them
 * from CPU to CPU.  Each has to find its own records, in order and complete,
 * and exactly the counts of a run undisturbed.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include "test.h"

enum { THREADS = 8, PROCESSES = 4, WORKERS = THREADS + PROCESSES };
enum { MARKS = 500, SPIN = 2000 };

typedef struct Worker {
    unsigned id;
    _Atomic pid_t tid;
    Profile profile;
    const char *wrong;          /* in any round; a literal */
    unsigned moves, rounds;
    Counts counts;
} Worker;

static Worker *workers;
static Counts expected;
static unsigned rounds = 30;
static atomic_bool *go, *done;

/* Foreign records would have another worker's or another round's numbers. */
static Counts run(Worker *w, unsigned round)
{
    uint32_t from = w->id << 24 | round << 16;
    const char *wrong;
    Counts c;

    profile_set(&w->profile, LWP_FLAG(LWP_IRE) | LWP_FLAG(LWP_BRE), INTERVAL,
                0);
    workload(&w->profile, from, from + MARKS, SPIN);
    c = counts(&w->profile);
    wrong = records_wrong(&w->profile, from, from + MARKS, &w->moves);
    if (wrong && !w->wrong) {
        w->wrong = wrong;
    }
    w->rounds++;
    return c;
}

static void *work(void *opaque)
{
    Worker *w = opaque;

    w->tid = gettid();
    while (!*go) {
        sched_yield();
    }
    for (unsigned i = 0; i < rounds; i++) {
        w->counts = run(w, i);
        if (memcmp(&w->counts, &expected, sizeof(expected)) && !w->wrong) {
            w->wrong = "counts differ";
        }
    }
    return NULL;
}

/* Set everybody's affinity, again and again, to one CPU after the other. */
static void *move(void *opaque)
{
    unsigned *nr_cpus = opaque;

    for (unsigned n = 0; !*done; n++) {
        for (unsigned i = 0; i < WORKERS; i++) {
            cpu_set_t set;

            CPU_ZERO(&set);
            CPU_SET((n + i) % *nr_cpus, &set);
            if (workers[i].tid) {
                sched_setaffinity(workers[i].tid, sizeof(set), &set);
            }
        }
        usleep(1500);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS], mover;
    pid_t pids[PROCESSES];
    unsigned nr_cpus = sysconf(_SC_NPROCESSORS_ONLN), moves = 0;
    Worker alone = { .id = 0xff };

    if (argc > 1) {
        rounds = atoi(argv[1]);
    }
    workers = map_shared(WORKERS * sizeof(*workers));
    go = map_shared(2 * sizeof(*go));
    done = go + 1;

    profile_map(&alone.profile, MARKS + 1);
    expected = run(&alone, 0);
    check(!alone.wrong, "alone: %d marks, %" PRId32 " instructions, %" PRId32
          " branches%s%s", MARKS, expected.ire, expected.bre,
          alone.wrong ? ": " : "", alone.wrong ? alone.wrong : "");
    check(expected.bre == MARKS * (SPIN + 1) &&
          expected.ire >= MARKS * (2 * SPIN + 5) + 1 &&
          expected.ire <= MARKS * (2 * SPIN + 5) + 3,    /* LLWPCB, twice */
          "alone: the counts are those of the code");

    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i].id = i;
        profile_map(&workers[i].profile, MARKS + 1);
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] < 0) {
            die("fork");
        }
        if (!pids[i]) {
            work(&workers[THREADS + i]);
            _exit(0);
        }
    }
    for (unsigned i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, &workers[i])) {
            die("pthread_create");
        }
    }
    if (pthread_create(&mover, NULL, move, &nr_cpus)) {
        die("pthread_create");
    }
    *go = true;

    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        int status;

        if (waitpid(pids[i], &status, 0) < 0 || status) {
            workers[THREADS + i].wrong = "process died";
        }
    }
    *done = true;
    pthread_join(mover, NULL);

    for (unsigned i = 0; i < WORKERS; i++) {
        Worker *w = &workers[i];

        if (!w->wrong && w->rounds != rounds) {
            w->wrong = "rounds are missing";
        }
        check(!w->wrong, "%s %u: %u rounds, last %" PRId32 " instructions, "
              "moved %u times%s%s", i < THREADS ? "thread" : "process", i,
              w->rounds, w->counts.ire, w->moves, w->wrong ? ": " : "",
              w->wrong ? w->wrong : "");
        moves += w->moves;
    }
    check(nr_cpus < 2 || moves >= WORKERS, "records show %u moves between CPUs",
          moves);
    return failed;
}
