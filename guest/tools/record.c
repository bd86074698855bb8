/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * "lwp record" and "lwp stat": run a program with the preload library in it,
 * and empty the rings of all its threads (1.1: a process that shares the memory
 * may do so).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "../linux/lwp_ioctl.h"
#include "commands.h"
#include "data.h"
#include "session.h"
#include "table.h"

#define LIBRARY "lwp-preload.so"

enum {
    PAGE = 4096,
    PAGES = 128,            /* of a ring, if not chosen */
    POLL_MS = 5,            /* how often rings are looked at, at least */
    POLL_DRIVER_MS = 100,   /* the same if interrupts tell */
    ALIVE_MS = 1000,        /* how often it is asked who still lives */
    BATCH = 4096,           /* records of a chunk */
};

/* Periods are primes, so as not to keep step with a loop. */
typedef struct Event {
    const char *name;       /* by EventId - 1 */
    const char *long_name;
    uint32_t period;
} Event;

static const Event events[LWP_NR_EVENTS] = {
    { "val", "values", 1009 },
    { "ire", "instructions", 100003 },
    { "bre", "branches", 20011 },
    { "dme", "dcache-misses", 2003 },
    { "cnh", "cycles", 100003 },
    { "rnh", "ref-cycles", 100003 },
};

/*
 * "lwp stat" hardly needs records: the counters tell.  But what a thread that
 * is killed has not told is less than a period; and branches say in their
 * records whether they were predicted.
 */
static const uint32_t stat_period[LWP_NR_EVENTS] = {
    1 << 20, 1 << 20, 10007, 1 << 20, 1 << 20, 1 << 20,
};

typedef struct Thread {
    struct Thread *next;
    LwpSession *session;
    size_t size;            /* of the mapping */
    uint32_t ring;          /* what the session said first: */
    int pid, tid;
    uint64_t missed;
    bool broken;            /* the program has overwritten it */
    char comm[16];
} Thread;

typedef struct Recorder {
    const char *name;       /* of the command */
    bool stat, json;
    int verbose;
    const char *output;
    SessionConfig config;
    uint32_t asked;         /* events by name, not by default */
    char **command;

    char dir[128];
    int dir_fd;
    int inotify, signals, driver;
    bool attached;          /* interrupts tell of all threads */
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
    Thread *threads;
    LwpRecord batch[BATCH];
    size_t in_batch;
    Thread *drained;        /* whose records are in the batch */

    unsigned nr_threads, nr_processes;
    unsigned unfinished;    /* threads that ended without a word */
    unsigned failed[256];   /* threads without a session, by errno */
    uint32_t enabled;       /* events, in any session */
    uint64_t records, missed;
    uint64_t counts[LWP_NR_EVENTS];
    uint64_t branches, mispredicted;    /* in the sample */
} Recorder;

__attribute__((format(printf, 2, 3)))
static void say(const Recorder *r, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "lwp %s: ", r->name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

/* What the command line says. */

static bool parse_number(const char *text, uint64_t *value, const char **end)
{
    int64_t number;
    int length;

    if (sscanf(text, "%" SCNi64 "%n", &number, &length) != 1 || number < 0) {
        return false;
    }
    *value = number;
    *end = text + length;
    return true;
}

static bool parse_period(const char *text, uint32_t *period)
{
    const char *end;
    uint64_t value;

    if (!parse_number(text, &value, &end) || *end || value < 1 ||
        value > LWP_MAX_PERIOD) {
        return false;
    }
    *period = value;
    return true;
}

/* "ire,bre=1009": names, and periods of their own. */
static bool parse_events(Recorder *r, char *list, uint32_t *own)
{
    r->config.options.events = 0;
    for (char *name; (name = strsep(&list, ",")); ) {
        char *value = strchr(name, '=');
        int i;

        if (value) {
            *value++ = 0;
        }
        for (i = 0; i < LWP_NR_EVENTS; i++) {
            if (!strcmp(name, events[i].name) ||
                !strcmp(name, events[i].long_name)) {
                break;
            }
        }
        if (i == LWP_NR_EVENTS) {
            say(r, "there is no event \"%s\"", name);
            return false;
        }
        if (value && r->stat) {
            say(r, "\"%s=%s\": periods are for lwp record", name, value);
            return false;
        }
        if (value && !parse_period(value, &own[i])) {
            say(r, "the period \"%s\" is not 1 to %u", value, LWP_MAX_PERIOD);
            return false;
        }
        r->config.options.events |= LWP_FLAG(i + 1);
    }
    r->asked = r->config.options.events;
    return true;
}

/* Names of Figure 6-3, "latency=CYCLES", "ip=FIRST-LAST" and "!ip=...". */
static bool parse_filters(LwpOptions *o, char *list)
{
    static const struct {
        const char *name;
        uint32_t bits;
    } names[] = {
        { "nbc", LWP_FILTER_CLF | LWP_FILTER_NBC },
        { "rdc", LWP_FILTER_CLF | LWP_FILTER_RDC },
        { "ram", LWP_FILTER_CLF | LWP_FILTER_RAM },
        { "oth", LWP_FILTER_CLF | LWP_FILTER_OTH },
        { "nmb", LWP_FILTER_NMB },
        { "npb", LWP_FILTER_NPB },
        { "nab", LWP_FILTER_NAB },
        { "ncb", LWP_FILTER_NCB },
        { "nrb", LWP_FILTER_NRB },
    };

    for (char *name; (name = strsep(&list, ",")); ) {
        bool invert = *name == '!';
        const char *end;
        uint64_t value;
        size_t i;

        if (!strncmp(name + invert, "ip=", 3)) {
            if (!parse_number(name + invert + 3, &o->base_ip, &end) ||
                *end != '-' || !parse_number(end + 1, &o->limit_ip, &end) ||
                *end) {
                return false;
            }
            o->filters |= LWP_FILTER_IPF | (invert ? LWP_FILTER_IPI : 0);
            continue;
        }
        if (!strncmp(name, "latency=", 8)) {
            if (!parse_number(name + 8, &value, &end) || *end ||
                value / 16 > LWP_FILTER_LATENCY) {
                return false;
            }
            o->filters &= ~LWP_FILTER_LATENCY;
            o->filters |= value / 16;
            continue;
        }
        for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            if (!strcmp(name, names[i].name)) {
                o->filters |= names[i].bits;
                break;
            }
        }
        if (i == sizeof(names) / sizeof(names[0])) {
            return false;
        }
    }
    return true;
}

static void record_usage(FILE *f)
{
    fprintf(f, "usage: lwp record [OPTION...] [--] COMMAND [ARGUMENT...]\n\n"
"Run a command and write the profile of all its threads and children.\n\n"
"  -e, --event LIST    events, by commas, each with a period if wanted:\n"
"                      ire,bre=1009; those that are available of\n");
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        fprintf(f, "                        %s  %-13s  one record for %u\n",
                events[i].name, events[i].long_name, events[i].period);
    }
    fprintf(f,
"                      (ire if not given)\n"
"  -c, --count N       one record for N events: 1 to %u\n"
"  -i, --interval N    the same\n"
"  -r, --random BITS   let so many low bits of the period vary: 0 to 15\n"
"  -f, --filter LIST   count only some: no branches that are predicted (npb),\n"
"                      mispredicted (nmb), conditional (ncb), indirect (nab)\n"
"                      or other (nrb); misses served by a northbridge cache\n"
"                      (nbc), remote cache (rdc), memory (ram), other (oth);\n"
"                      misses of latency=CYCLES or more; instructions in\n"
"                      ip=FIRST-LAST or outside of it, !ip=FIRST-LAST\n"
"  -m, --mmap-pages N  4 KiB pages of each thread's ring (%u)\n"
"  -o, --output FILE   instead of %s\n"
"  -v, --verbose       tell of each thread\n"
"  -h, --help          this text\n", LWP_MAX_PERIOD, PAGES,
            DATA_DEFAULT);
}

static void stat_usage(FILE *f)
{
    fprintf(f, "usage: lwp stat [OPTION...] [--] COMMAND [ARGUMENT...]\n\n"
"Run a command and count the events of all its threads and children.\n\n"
"  -e, --event LIST    events, by commas; those that are available of\n"
"                      val,ire,bre,dme,cnh,rnh (all if not given)\n"
"  -f, --filter LIST   count only some: see lwp record --help\n"
"  -m, --mmap-pages N  4 KiB pages of each thread's ring (%u)\n"
"  -j, --json          as one JSON object\n"
"  -o, --output FILE   instead of standard error\n"
"  -v, --verbose       tell of each thread\n"
"  -h, --help          this text\n", PAGES);
}

/* -1: go on; otherwise the program's exit status. */
static int parse_options(Recorder *r, int argc, char **argv)
{
    static const struct option long_options[] = {
        { "event", required_argument, NULL, 'e' },
        { "count", required_argument, NULL, 'c' },
        { "interval", required_argument, NULL, 'c' },
        { "random", required_argument, NULL, 'r' },
        { "filter", required_argument, NULL, 'f' },
        { "mmap-pages", required_argument, NULL, 'm' },
        { "output", required_argument, NULL, 'o' },
        { "json", no_argument, NULL, 'j' },
        { "verbose", no_argument, NULL, 'v' },
        { "help", no_argument, NULL, 'h' },
        { }
    };
    LwpOptions *o = &r->config.options;
    uint32_t own[LWP_NR_EVENTS] = { 0 };
    uint32_t all = 0;
    uint64_t number;
    const char *end;
    int c;

    o->events = r->stat ? LWP_FLAG(LWP_NR_EVENTS + 1) - LWP_FLAG(LWP_VAL) :
                LWP_FLAG(LWP_IRE);
    o->records = PAGES * (PAGE / sizeof(LwpRecord));
    while ((c = getopt_long(argc, argv, "+e:c:i:r:f:m:o:jvh", long_options,
                            NULL)) != -1) {
        if (r->stat ? c == 'c' || c == 'i' || c == 'r' : c == 'j') {
            say(r, "-%c is not an option of this command", c);
            return 2;
        }
        switch (c) {
        case 'e':
            if (!parse_events(r, optarg, own)) {
                return 2;
            }
            break;
        case 'c':
        case 'i':
            if (!parse_period(optarg, &all)) {
                say(r, "the period \"%s\" is not 1 to %u", optarg,
                    LWP_MAX_PERIOD);
                return 2;
            }
            break;
        case 'r':
            if (!parse_number(optarg, &number, &end) || *end || number > 15) {
                say(r, "\"%s\" is not 0 to 15 bits", optarg);
                return 2;
            }
            o->random = number;
            break;
        case 'f':
            if (!parse_filters(o, optarg)) {
                say(r, "the filter is wrong; see lwp record --help");
                return 2;
            }
            break;
        case 'm':
            /* BufferSize has 28 bits. */
            if (!parse_number(optarg, &number, &end) || *end || number < 1 ||
                number >= (1u << 28) / PAGE) {
                say(r, "\"%s\" is not 1 to %u pages", optarg,
                    (1u << 28) / PAGE - 1);
                return 2;
            }
            o->records = number * (PAGE / sizeof(LwpRecord));
            break;
        case 'o':
            r->output = optarg;
            break;
        case 'j':
            r->json = true;
            break;
        case 'v':
            r->verbose++;
            break;
        case 'h':
            (r->stat ? stat_usage : record_usage)(stdout);
            return 0;
        default:
            return 2;
        }
    }
    if (optind == argc) {
        (r->stat ? stat_usage : record_usage)(stderr);
        return 2;
    }
    r->command = argv + optind;
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        o->period[i] = r->stat ? stat_period[i] : own[i] ? own[i] :
                       all ? all : events[i].period;
    }
    o->threshold = o->records / 2;
    return -1;
}

/* The directory that the threads meet in. */

static bool make_directory(Recorder *r)
{
    const char *places[] = { "/dev/shm", getenv("TMPDIR"), "/tmp" };
    int fd;

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (places[i] && *places[i] == '/' &&
            strlen(places[i]) < sizeof(r->dir) - 16) {
            sprintf(r->dir, "%s/lwp-XXXXXX", places[i]);
            if (mkdtemp(r->dir)) {
                break;
            }
        }
        r->dir[0] = 0;
    }
    r->dir_fd = r->dir[0] ? open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) :
                -1;
    if (r->dir_fd < 0) {
        say(r, "cannot make a directory in /dev/shm or /tmp: %s",
            strerror(errno));
        return false;
    }
    r->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (r->inotify < 0 ||
        inotify_add_watch(r->inotify, r->dir, IN_MOVED_TO | IN_CREATE) < 0) {
        say(r, "cannot watch %s: %s", r->dir, strerror(errno));
        return false;
    }
    r->config.magic = SESSION_MAGIC;
    r->config.maps = !r->stat;
    fd = openat(r->dir_fd, SESSION_CONFIG, O_WRONLY | O_CREAT | O_CLOEXEC,
                0600);
    if (fd < 0 ||
        write(fd, &r->config, sizeof(r->config)) != sizeof(r->config) ||
        close(fd) != 0) {
        say(r, "cannot write %s/%s: %s", r->dir, SESSION_CONFIG,
            strerror(errno));
        return false;
    }
    return true;
}

/* Threads of programs that go on may still have left something. */
static void remove_directory(Recorder *r)
{
    DIR *d = r->dir_fd >= 0 ? fdopendir(r->dir_fd) : NULL;

    if (d) {
        for (struct dirent *e; (e = readdir(d)); ) {
            unlinkat(dirfd(d), e->d_name, 0);
        }
        closedir(d);
    }
    if (r->dir[0]) {
        rmdir(r->dir);
    }
}

/*
 * Where the preload library is: next to this program, as it is built, or in
 * ../lib/lwp, as it is installed.  The dynamic linker fills in $LIB, which is
 * not the same for 32-bit programs.
 */
static bool preload_path(Recorder *r, char *path, size_t size)
{
    static const char *const libs[] = {
        "lib/x86_64-linux-gnu", "lib64", "lib",
    };
    static const char *const places[] = { "", "/../lib/lwp" };
    char exe[PATH_MAX], file[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

    if (n < 0) {
        say(r, "cannot read /proc/self/exe: %s", strerror(errno));
        return false;
    }
    exe[n] = 0;
    *strrchr(exe, '/') = 0;
    for (int place = 0; place < 2; place++) {
        for (int lib = 0; lib < 3; lib++) {
            snprintf(file, sizeof(file), "%s%s/%s/" LIBRARY, exe,
                     places[place], libs[lib]);
            if (access(file, R_OK) == 0) {
                if (strpbrk(exe, " :")) {
                    say(r, "a preloaded library's path may not have spaces "
                        "or colons: %s", exe);
                    return false;
                }
                snprintf(path, size, "%s%s/$LIB/" LIBRARY, exe,
                         places[place]);
                return true;
            }
        }
    }
    say(r, "cannot find lib/x86_64-linux-gnu/" LIBRARY " in %s or %s/%s",
        exe, exe, places[1] + 1);
    return false;
}

/* What threads do. */

static void write_batch(Recorder *r)
{
    DataThread thread = { r->drained->pid, r->drained->tid };

    if (r->in_batch && r->writer) {
        data_write(r->writer, DATA_RECORDS, &thread, sizeof(thread), r->batch,
                   r->in_batch * sizeof(LwpRecord));
    }
    r->in_batch = 0;
}

static void take_record(const LwpRecord *record, void *opaque)
{
    Recorder *r = opaque;

    if (r->in_batch == BATCH) {
        write_batch(r);
    }
    r->batch[r->in_batch++] = *record;
    r->records++;
    if (record->event == LWP_BRE && record->flags & LWP_BRANCH_PRV) {
        r->branches++;
        r->mispredicted += !(record->flags & LWP_BRANCH_PRD);
    }
}

static void drain(Recorder *r, Thread *t)
{
    DataLost lost = { .pid = t->pid, .tid = t->tid };
    ssize_t n;

    if (t->broken) {
        return;
    }
    r->drained = t;
    n = session_drain(t->session, t->ring, take_record, r);
    if (n < 0 || t->session->size != t->ring) {
        say(r, "thread %d of %s has overwritten its session", t->tid, t->comm);
        t->broken = true;
    } else if (n > (ssize_t)(t->ring / sizeof(LwpRecord) / 4)) {
        r->busy = true;
    }
    write_batch(r);
    lost.missed = lwp_missed(t->session) - t->missed;
    if (lost.missed) {
        t->missed += lost.missed;
        r->missed += lost.missed;
        if (r->writer) {
            data_write(r->writer, DATA_LOST, &lost, sizeof(lost), NULL, 0);
        }
    }
}

static void end_thread(Recorder *r, Thread *t)
{
    uint32_t state = __atomic_load_n(&t->session->state, __ATOMIC_ACQUIRE);
    bool flushed = state == SESSION_ENDED || state == SESSION_FLUSHED;
    DataThread thread = { t->pid, t->tid };
    DataCounts counts = { .pid = t->pid, .tid = t->tid };
    Thread **p = &r->threads;

    drain(r, t);
    for (int i = 0; i < LWP_NR_EVENTS && !t->broken; i++) {
        counts.records[i] = t->session->drained[i];
        counts.events[i] = session_count(t->session, i + 1, flushed);
        r->counts[i] += counts.events[i];
    }
    r->unfinished += !flushed;
    if (r->writer) {
        data_write(r->writer, DATA_COUNTS, &counts, sizeof(counts), NULL, 0);
        data_write(r->writer, DATA_END, &thread, sizeof(thread), NULL, 0);
    }
    if (r->verbose) {
        say(r, "thread %d of %s (%d) ends%s", t->tid, t->comm, t->pid,
            flushed ? "" : ", was killed or still runs");
    }
    while (*p != t) {
        p = &(*p)->next;
    }
    *p = t->next;
    munmap(t->session, t->size);
    free(t);
}

static void attach(Recorder *r, int pid)
{
    struct lwp_ioc_attach a = {
        .pid = pid, .flags = LWP_ATTACH_PROCESS, .eventfd = -1,
    };

    /* It is there already for other threads, or another program before. */
    if (r->driver >= 0 && ioctl(r->driver, LWP_IOC_ATTACH, &a) != 0 &&
        errno != ESRCH && errno != EEXIST) {
        if (r->attached) {
            say(r, "no threshold interrupts for process %d: %s", pid,
                strerror(errno));
        }
        r->attached = false;
    }
}

/* It is not there if it came twice, in a queue and behind its overflow. */
static int take_open(Recorder *r, const char *name, int flags)
{
    int fd = openat(r->dir_fd, name,
                    flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd >= 0) {
        unlinkat(r->dir_fd, name, 0);
    } else if (errno != ENOENT) {
        say(r, "cannot read %s/%s: %s", r->dir, name, strerror(errno));
    }
    return fd;
}

/* The program can write here too: believe it only as far as it is safe. */
static Thread *map_thread(int fd)
{
    Thread *t = calloc(1, sizeof(*t));
    LwpSession *s = MAP_FAILED;
    struct stat st;

    if (t && fstat(fd, &st) == 0 && st.st_size > SESSION_RING) {
        s = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (s == MAP_FAILED) {
        free(t);
        return NULL;
    }
    *t = (Thread) {
        .session = s, .size = st.st_size, .pid = s->pid, .tid = s->tid,
        .ring = __atomic_load_n(&s->size, __ATOMIC_RELAXED),
    };
    memcpy(t->comm, s->comm, sizeof(t->comm) - 1);
    if (s->magic != SESSION_MAGIC || !t->ring ||
        t->ring % sizeof(LwpRecord) || t->ring > t->size - SESSION_RING) {
        munmap(s, t->size);
        free(t);
        return NULL;
    }
    return t;
}

static void start_thread(Recorder *r, const char *name)
{
    int fd = take_open(r, name, O_RDWR);
    DataProcess process = { 0 };
    LwpSession *s;
    Thread *t;

    if (fd < 0) {
        return;
    }
    t = map_thread(fd);
    close(fd);
    if (!t) {
        say(r, "cannot use the session %s/%s", r->dir, name);
        return;
    }
    s = t->session;

    /* A program that replaces another ends all that one's threads. */
    for (Thread *old = r->threads, *next; old; old = next) {
        next = old->next;
        if (old->tid == t->tid || (s->first && old->pid == t->pid)) {
            end_thread(r, old);
        }
    }
    t->next = r->threads;
    r->threads = t;
    r->nr_threads++;
    r->nr_processes += s->first != 0;
    r->enabled |= s->cpuid[0] & r->config.options.events;
    attach(r, t->pid);
    if (r->verbose) {
        say(r, "thread %d of %s (%d, %u bits) starts", t->tid, t->comm, t->pid,
            s->bits);
    }
    if (r->writer && r->nr_threads == 1) {
        memcpy(r->header.cpuid, s->cpuid, sizeof(r->header.cpuid));
        r->header.flags = r->enabled;
        data_set_header(r->writer, &r->header);
    }
    if (r->writer && s->first) {
        process.pid = t->pid;
        process.ppid = s->ppid;
        process.bits = s->bits;
        memcpy(process.comm, t->comm, sizeof(process.comm));
        data_write(r->writer, DATA_PROCESS, &process, sizeof(process), NULL, 0);
    }
}

/* A copy of /proc/PID/maps, as the process itself saw it. */
static void read_maps(Recorder *r, const char *name)
{
    int fd = take_open(r, name, O_RDONLY);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    DataMap map = { .pid = atoi(name + 2) };

    if (!f) {
        if (fd >= 0) {
            say(r, "out of memory");
            close(fd);
        }
        return;
    }
    while ((n = getline(&line, &room, f)) > 0) {
        char prot[5];
        int path = 0;

        if (line[n - 1] == '\n') {
            line[--n] = 0;
        }
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64
                   " %*s %*s %n", &map.start, &map.end, prot, &map.offset,
                   &path) < 4 || !path) {
            continue;
        }
        map.prot = (prot[0] == 'r' ? PROT_READ : 0) |
                   (prot[1] == 'w' ? PROT_WRITE : 0) |
                   (prot[2] == 'x' ? PROT_EXEC : 0);
        data_write(r->writer, DATA_MAP, &map, sizeof(map), line + path,
                   n - path + 1);
    }
    free(line);
    fclose(f);
}

static void take_file(Recorder *r, const char *name)
{
    int pid, tid, error;

    if (name[0] == 's' && name[1] == '.') {
        start_thread(r, name);
    } else if (name[0] == 'm' && name[1] == '.' && r->writer) {
        read_maps(r, name);
    } else if (sscanf(name, SESSION_FAILED, &pid, &tid, &error) == 3) {
        unlinkat(r->dir_fd, name, 0);
        r->failed[error & 255]++;
    }
}

/* The order in which files came matters; a queue that overflows has lost it. */
static void take_all_files(Recorder *r)
{
    struct dirent **names;
    int n = scandir(r->dir, &names, NULL, NULL);

    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            if ((names[i]->d_name[0] == 's') == (pass == 0)) {
                take_file(r, names[i]->d_name);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        free(names[i]);
    }
    if (n >= 0) {
        free(names);
    }
}

static void take_files(Recorder *r)
{
    char buffer[4096] __attribute__((aligned(8)));
    ssize_t n;

    while ((n = read(r->inotify, buffer, sizeof(buffer))) > 0) {
        struct inotify_event *e;

        for (char *p = buffer; p < buffer + n; p += sizeof(*e) + e->len) {
            e = (struct inotify_event *)p;
            if (e->mask & IN_Q_OVERFLOW) {
                take_all_files(r);
            } else if (e->len) {
                take_file(r, e->name);
            }
        }
    }
}

static bool alive(const Thread *t)
{
    return syscall(SYS_tgkill, t->pid, t->tid, 0) == 0 || errno != ESRCH;
}

/* A thread that has ended, but has not been waited for, is a zombie. */
static bool runs(const Thread *t)
{
    char path[64], line[256], *p = NULL;
    FILE *f;

    sprintf(path, "/proc/%d/task/%d/stat", t->pid, t->tid);
    f = fopen(path, "re");
    if (f) {
        p = fgets(line, sizeof(line), f);
        fclose(f);
    }
    p = p ? strrchr(p, ')') : NULL;
    return p && p[1] && p[2] != 'Z' && p[2] != 'X';
}

static void look_at_threads(Recorder *r, bool who_lives)
{
    for (Thread *t = r->threads, *next; t; t = next) {
        next = t->next;
        if (__atomic_load_n(&t->session->state, __ATOMIC_ACQUIRE) ==
            SESSION_ENDED || (who_lives && !alive(t))) {
            end_thread(r, t);
        } else {
            drain(r, t);
        }
    }
}

/* Who goes on is not waited for. */
static void end_all_threads(Recorder *r)
{
    int told = 0;

    while (r->threads) {
        Thread *t = r->threads;

        if (__atomic_load_n(&t->session->state, __ATOMIC_ACQUIRE) !=
            SESSION_ENDED && t->pid != told && runs(t)) {
            say(r, "%s (%d) still runs; what it does now is not profiled",
                t->comm, t->pid);
            told = t->pid;
        }
        end_thread(r, t);
    }
}

/* The command. */

/*
 * A pipe that is closed and a file that grows too large are errors of writing;
 * the rings are not left behind.
 */
static const int ignored_signals[] = { SIGPIPE, SIGXFSZ };

static void ignore_signals(Recorder *r)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN };

    for (int i = 0; i < 2; i++) {
        sigaction(ignored_signals[i], &ignore, &r->ignored[i]);
    }
}

static void restore_signals(const Recorder *r)
{
    for (int i = 0; i < 2; i++) {
        sigaction(ignored_signals[i], &r->ignored[i], NULL);
    }
}

static bool set_environment(Recorder *r, const char *library)
{
    const char *before = getenv("LD_PRELOAD");
    char *value;

    if (asprintf(&value, "%s%s%s", library, before && *before ? ":" : "",
                 before ? before : "") < 0) {
        return false;
    }
    return setenv("LD_PRELOAD", value, 1) == 0 &&
           setenv(SESSION_ENV, r->dir, 1) == 0;
}

static bool run_command(Recorder *r, const sigset_t *mask)
{
    char library[PATH_MAX + 64];
    int report[2], error = 0;
    ssize_t n;

    if (!preload_path(r, library, sizeof(library))) {
        return false;
    }
    r->child = pipe2(report, O_CLOEXEC) == 0 ? fork() : -1;
    if (r->child < 0) {
        say(r, "cannot start a process: %s", strerror(errno));
        return false;
    }
    if (r->child == 0) {
        restore_signals(r);
        sigprocmask(SIG_SETMASK, mask, NULL);
        if (set_environment(r, library)) {
            execvp(r->command[0], r->command);
        }
        error = errno;
        n = write(report[1], &error, sizeof(error));
        _exit(n == sizeof(error) ? 127 : 126);
    }
    close(report[1]);
    do {
        n = read(report[0], &error, sizeof(error));
    } while (n < 0 && errno == EINTR);
    close(report[0]);
    if (n > 0) {
        waitpid(r->child, NULL, 0);
        say(r, "cannot run %s: %s", r->command[0], strerror(error));
        r->status = error == ENOENT ? 127 : 126;
        return false;
    }
    return true;
}

/* The terminal's signals reach the command too; others are passed on. */
static void take_signals(Recorder *r)
{
    struct signalfd_siginfo info;
    int status;

    while (read(r->signals, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP) {
            kill(r->child, info.ssi_signo);
        }
    }
    if (wait4(r->child, &status, WNOHANG, &r->usage) == r->child) {
        r->exited = true;
        r->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        r->status = r->signal ? 128 + r->signal : WEXITSTATUS(status);
    }
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void follow(Recorder *r)
{
    struct pollfd fds[] = {
        { .fd = r->signals, .events = POLLIN },
        { .fd = r->inotify, .events = POLLIN },
        { .fd = r->driver, .events = POLLIN },
    };
    double asked = now();
    uint64_t interrupts;
    int delay = 0;

    while (!r->exited) {
        bool ask = now() - asked >= ALIVE_MS / 1e3;
        int longest = !r->threads ? ALIVE_MS :
                      r->driver >= 0 && r->attached ? POLL_DRIVER_MS : POLL_MS;

        delay = r->busy ? 0 : delay < longest / 2 ? 2 * delay + 1 : longest;
        poll(fds, 3, delay);
        r->busy = false;
        if (fds[2].revents & POLLIN &&
            read(r->driver, &interrupts, sizeof(interrupts)) < 0 &&
            errno != EAGAIN) {
            r->attached = false;
            fds[2].fd = -1;
        } else {
            /* POLLHUP lasts until another process is attached. */
            fds[2].fd = fds[2].revents & POLLHUP ? -1 : r->driver;
        }
        take_signals(r);
        take_files(r);
        look_at_threads(r, ask);
        if (ask) {
            asked = now();
        }
    }
}

static void explain(Recorder *r)
{
    LwpInfo info = lwp_detect();
    bool nothing = !r->nr_threads;

    for (int error = 0; error < 256; error++) {
        if (r->failed[error]) {
            nothing = false;    /* this says why */
            say(r, "threads that were not profiled: %u: %s",
                r->failed[error], lwp_strerror(error));
        }
    }
    if (nothing && !info.available) {
        say(r, "nothing was profiled: %s (if %s emulates a CPU that has it: is "
            "the program there statically linked?)",
            lwp_strerror(info.supported ? ENOSYS : ENODEV), r->command[0]);
    } else if (nothing) {
        say(r, "nothing was profiled: is %s statically linked, set-user-ID, "
            "or does it clear its environment?", r->command[0]);
    }
    for (int i = 0; i < LWP_NR_EVENTS && r->nr_threads; i++) {
        if (r->asked & ~r->enabled & LWP_FLAG(i + 1)) {
            say(r, "the event %s (%s) is not available", events[i].name,
                events[i].long_name);
        }
    }
    if (r->missed) {
        say(r, "%" PRIu64 " records were missed: a ring was full%s", r->missed,
            r->stat ? "; counts are too low" :
            "; longer periods (-c) or a larger ring (-m) help");
    }
    if (r->stat && r->unfinished) {
        say(r, "threads that were killed or still run: %u; of each, up to %u "
            "events of a kind are not counted", r->unfinished, 1 << 20);
    }
    if (r->signal) {
        say(r, "%s: %s", r->command[0], strsignal(r->signal));
    }
}

/* False if the command was not run at all. */
static bool run(Recorder *r)
{
    sigset_t watched, mask;
    double start;
    bool ok;

    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGQUIT);
    sigaddset(&watched, SIGTERM);
    sigaddset(&watched, SIGHUP);
    sigprocmask(SIG_BLOCK, &watched, &mask);
    r->signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (r->signals < 0) {
        say(r, "cannot wait for signals: %s", strerror(errno));
        return false;
    }
    r->driver = open(LWP_DEVICE, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    r->attached = true;
    if (r->driver >= 0) {
        r->config.options.events |= LWP_FLAG_INT;
    }
    start = now();
    ok = make_directory(r) && run_command(r, &mask);
    if (ok) {
        follow(r);
        r->seconds = now() - start;
        take_files(r);
        look_at_threads(r, true);
        end_all_threads(r);
    }
    remove_directory(r);
    return ok;
}

static int with_recorder(int argc, char **argv, bool stat,
                         int (*command)(Recorder *r))
{
    Recorder *r = calloc(1, sizeof(*r));
    int status;

    if (!r) {
        fprintf(stderr, "lwp: out of memory\n");
        return 1;
    }
    r->name = argv[0];
    r->stat = stat;
    r->dir_fd = -1;
    status = parse_options(r, argc, argv);
    if (status < 0) {
        ignore_signals(r);
        status = command(r);
    }
    free(r);
    return status;
}

/* lwp record. */

static void fill_header(Recorder *r)
{
    const LwpOptions *o = &r->config.options;
    size_t length = 0;

    r->header = (DataHeader) {
        .flags = o->events, .filters = o->filters, .random = o->random,
        .base_ip = o->base_ip, .limit_ip = o->limit_ip, .time = time(NULL),
    };
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        r->header.interval[i] = o->period[i] - 1;
    }
    for (char **arg = r->command; *arg; arg++) {
        length += snprintf(r->header.command + length,
                           sizeof(r->header.command) - length, "%s%s",
                           length ? " " : "", *arg);
        if (length >= sizeof(r->header.command)) {
            break;
        }
    }
}

static int record(Recorder *r)
{
    bool ran, written;

    if (!r->output) {
        r->output = DATA_DEFAULT;
    }
    fill_header(r);
    r->writer = data_create(r->output, &r->header);
    if (!r->writer) {
        return 1;
    }
    ran = run(r);
    written = data_finish(r->writer);
    if (!ran) {
        return r->status ? r->status : 1;
    }
    explain(r);
    if (written) {
        say(r, "wrote %s: %" PRIu64 " records (threads: %u, processes: %u)",
            r->output, r->records, r->nr_threads, r->nr_processes);
    }
    return r->status || written ? r->status : 1;
}

int cmd_record(int argc, char **argv)
{
    return with_recorder(argc, argv, false, record);
}

/* lwp stat. */

static double ratio(uint64_t a, uint64_t b)
{
    return b ? (double)a / b : 0;
}

static double seconds(struct timeval t)
{
    return t.tv_sec + t.tv_usec / 1e6;
}

static bool shown(const Recorder *r, int event)
{
    /* Few programs have LWPVAL. */
    return r->enabled & LWP_FLAG(event) &&
           (event != LWP_VAL || r->asked || r->counts[LWP_VAL - 1]);
}

static void print_json(const Recorder *r, FILE *f)
{
    uint64_t instructions = r->counts[LWP_IRE - 1];
    bool more = false;

    fprintf(f, "{\"command\": [");
    for (char **arg = r->command; *arg; arg++) {
        fprintf(f, "%s\"", arg == r->command ? "" : ", ");
        put_text(f, *arg, TEXT_JSON);
        fputc('"', f);
    }
    fprintf(f, "], \"status\": %d, \"threads\": %u, \"processes\": %u, "
            "\"unfinished\": %u, \"missed\": %" PRIu64 ", \"elapsed\": %.6f, "
            "\"user\": %.6f, \"system\": %.6f, \"events\": {", r->status,
            r->nr_threads, r->nr_processes, r->unfinished, r->missed,
            r->seconds, seconds(r->usage.ru_utime),
            seconds(r->usage.ru_stime));
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        if (!shown(r, i + 1)) {
            continue;
        }
        fprintf(f, "%s\"%s\": {\"count\": %" PRIu64, more ? ", " : "",
                events[i].long_name, r->counts[i]);
        if (instructions && i + 1 != LWP_IRE) {
            fprintf(f, ", \"per_1000_instructions\": %.6g",
                    1000 * ratio(r->counts[i], instructions));
        }
        if (r->branches && i + 1 == LWP_BRE) {
            fprintf(f, ", \"sampled\": %" PRIu64 ", \"mispredicted\": %"
                    PRIu64, r->branches, r->mispredicted);
        }
        fputc('}', f);
        more = true;
    }
    fprintf(f, "}}\n");
}

static void print_table(const Recorder *r, FILE *f)
{
    uint64_t instructions = r->counts[LWP_IRE - 1];

    fprintf(f, "\n Events of '");
    for (char **arg = r->command; *arg; arg++) {
        fprintf(f, "%s", arg == r->command ? "" : " ");
        put_text(f, *arg, TEXT_PLAIN);
    }
    fprintf(f, "' (threads: %u, processes: %u):\n\n", r->nr_threads,
            r->nr_processes);
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        if (!shown(r, i + 1)) {
            continue;
        }
        fprintf(f, "%'20" PRIu64 "      %-16s", r->counts[i],
                events[i].long_name);
        if (instructions && i + 1 == LWP_IRE && r->counts[LWP_CNH - 1]) {
            fprintf(f, "  # %10.2f per cycle",
                    ratio(instructions, r->counts[LWP_CNH - 1]));
        } else if (instructions && i + 1 != LWP_IRE) {
            fprintf(f, "  # %10.2f per 1000 instructions",
                    1000 * ratio(r->counts[i], instructions));
        }
        if (r->branches && i + 1 == LWP_BRE) {
            fprintf(f, "\n%20s      %-16s  # %10.2f %% of branches, by a "
                    "sample of %" PRIu64, "", "branch-misses",
                    100 * ratio(r->mispredicted, r->branches), r->branches);
        }
        fputc('\n', f);
    }
    fprintf(f, "\n%20.6f seconds elapsed\n%20.6f seconds user\n"
            "%20.6f seconds system\n\n", r->seconds,
            seconds(r->usage.ru_utime), seconds(r->usage.ru_stime));
}

static int count(Recorder *r)
{
    FILE *f = r->output ? fopen(r->output, "we") : stderr;
    bool ok;

    if (!f) {
        say(r, "cannot write %s: %s", r->output, strerror(errno));
        return 1;
    }
    ok = run(r);
    if (ok) {
        explain(r);
        if (r->nr_threads) {
            (r->json ? print_json : print_table)(r, f);
        }
        ok = fflush(f) == 0 && !ferror(f);
        if (!ok) {
            say(r, "cannot write the counts: %s", strerror(errno));
        }
    }
    if (f != stderr) {
        fclose(f);
    }
    return r->status || ok ? r->status : 1;
}

int cmd_stat(int argc, char **argv)
{
    return with_recorder(argc, argv, true, count);
}
