/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the threads of a program leave in the recorder's directory, and the
 * rings in it: this empties them.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "../linux/lwp_ioctl.h"
#include "maps.h"
#include "recorder.h"

uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

double now(void)
{
    return now_ns() / 1e9;
}

static void write_batch(Recorder *r)
{
    DataThread thread = { r->drained->pid, r->drained->tid };

    if (r->in_batch && r->writer) {
        DataTime time = { now_ns() };

        if (time.clock - r->clock > 1000000) {
            data_write(r->writer, DATA_TIME, &time, sizeof(time), NULL, 0);
            r->clock = time.clock;
        }
        data_write(r->writer, DATA_RECORDS, &thread, sizeof(thread), r->batch,
                   r->in_batch * sizeof(LwpRecord));
    }
    r->in_batch = 0;
}

static void take_record(const LwpRecord *record, void *opaque)
{
    Recorder *r = opaque;

    if (record->event == LWP_DME && record->flags & LWP_MISS_DAV &&
        r->writer && !r->unknown) {
        r->unknown = !maps_known(r->drained->pid, record->data2);
    }

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

/*
 * Loads from memory that the last snapshot does not have.  If the process is
 * not emulated, the kernel tells what it is now; often that is still the same.
 */
static void look_at_maps(Recorder *r, const RecordedThread *t)
{
    char path[32];
    FILE *f;

    sprintf(path, "/proc/%d/maps", t->pid);
    f = maps_due(t->pid, now()) ? fopen(path, "re") : NULL;
    if (f) {
        if (maps_are_of(f, t->session->stack)) {
            maps_write(r->writer, t->pid, f);
        }
        fclose(f);
    }
}

/* Up to an offset of the ring, or SESSION_ALL. */
static void drain(Recorder *r, RecordedThread *t, uint32_t until)
{
    DataLost lost = { .pid = t->pid, .tid = t->tid };
    ssize_t n;

    if (t->broken) {
        return;
    }
    r->drained = t;
    n = session_drain(t->session, t->ring, until, take_record, r);
    if (n < 0 || t->session->size != t->ring) {
        say(r, "thread %d of %s has overwritten its session", t->tid, t->comm);
        t->broken = true;
    } else if (n > (ssize_t)(t->ring / sizeof(LwpRecord) / 4)) {
        r->busy = true;
    }
    write_batch(r);
    if (r->unknown) {
        r->unknown = false;
        look_at_maps(r, t);
    }
    lost.missed = lwp_missed(t->session) - t->missed;
    if (lost.missed) {
        t->missed += lost.missed;
        r->missed += lost.missed;
        if (r->writer) {
            data_write(r->writer, DATA_LOST, &lost, sizeof(lost), NULL, 0);
        }
    }
}

/* If it is not that of the program, which may be an emulator's. */
static void write_name(Recorder *r, RecordedThread *t, const char *name)
{
    DataName chunk = { t->pid, t->tid, "" };

    snprintf(chunk.name, sizeof(chunk.name), "%.15s", name);
    if (r->writer && *chunk.name && strcmp(chunk.name, t->name) &&
        (*t->name || strncmp(chunk.name, t->session->first_name, 15))) {
        memcpy(t->name, chunk.name, sizeof(t->name));
        data_write(r->writer, DATA_NAME, &chunk, sizeof(chunk), NULL, 0);
    }
}

static void look_at_name(Recorder *r, RecordedThread *t)
{
    char path[64], name[32] = "";
    FILE *f;

    sprintf(path, "/proc/%d/task/%d/comm", t->pid, t->tid);
    f = fopen(path, "re");
    if (f) {
        if (fgets(name, sizeof(name), f)) {
            name[strcspn(name, "\n")] = 0;
            write_name(r, t, name);
        }
        fclose(f);
    }
}

static void end_thread(Recorder *r, RecordedThread *t)
{
    uint32_t state = __atomic_load_n(&t->session->state, __ATOMIC_ACQUIRE);
    bool flushed = state == SESSION_ENDED || state == SESSION_FLUSHED;
    DataThread thread = { t->pid, t->tid };
    DataCounts counts = { .pid = t->pid, .tid = t->tid };
    RecordedThread **p = &r->threads;

    drain(r, t, SESSION_ALL);
    if (state == SESSION_ENDED) {
        write_name(r, t, t->session->name);
    } else {
        look_at_name(r, t);
    }
    for (int i = 0; i < LWP_NR_EVENTS && !t->broken; i++) {
        counts.records[i] = t->session->drained[i];
        counts.events[i] = session_count(t->session, i + 1, flushed);
        r->counts[i] += counts.events[i];
    }
    r->unfinished += !flushed;
    r->confined += t->session->unprofiled;
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

    if (r->driver < 0) {
        return;
    }
    /* It is there already for other threads, or another program before. */
    if (ioctl(r->driver, LWP_IOC_ATTACH, &a) == 0 || errno == EEXIST) {
        r->listening = true;
    } else if (errno != ESRCH) {
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
static RecordedThread *map_thread(int fd)
{
    RecordedThread *t = calloc(1, sizeof(*t));
    LwpSession *s = MAP_FAILED;
    struct stat st;

    if (t && fstat(fd, &st) == 0 && st.st_size > SESSION_RING) {
        s = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (s == MAP_FAILED) {
        free(t);
        return NULL;
    }
    *t = (RecordedThread) {
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
    RecordedThread *t;

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
    for (RecordedThread *old = r->threads, *next; old; old = next) {
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
    if (!(s->cpuid[0] & LWP_FLAG_INT)) {
        r->attached = false;    /* nothing will tell */
    }
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

/* Records of before are written before, and are not explained by these. */
static void take_maps(Recorder *r, const char *name)
{
    int fd = take_open(r, name, O_RDONLY);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    int pid = atoi(name + 2), tid = 0;
    unsigned head = 0;

    if (!f) {
        if (fd >= 0) {
            say(r, "out of memory");
            close(fd);
        }
        return;
    }
    if (fscanf(f, SESSION_MAPS_HEAD, &tid, &head) < 1) {
        tid = 0;
    }
    for (RecordedThread *t = r->threads; t; t = t->next) {
        if (t->pid == pid) {
            drain(r, t, t->tid == tid ? head : SESSION_ALL);
        }
    }
    maps_write(r->writer, pid, f);
    fclose(f);
}

static void take_vdso(Recorder *r, const char *name, int bits)
{
    int fd = openat(r->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW |
                    O_NONBLOCK);
    char image[1 << 16];
    ssize_t n = fd >= 0 ? read(fd, image, sizeof(image)) : -1;
    DataVdso vdso = { bits, n };

    if (n > 0) {
        data_write(r->writer, DATA_VDSO, &vdso, sizeof(vdso), image, n);
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void take_file(Recorder *r, const char *name)
{
    int pid, tid, error, bits;

    if (name[0] == 's' && name[1] == '.') {
        start_thread(r, name);
    } else if (name[0] == 'm' && name[1] == '.' && r->writer) {
        take_maps(r, name);
    } else if (sscanf(name, SESSION_FAILED, &pid, &tid, &error) == 3) {
        unlinkat(r->dir_fd, name, 0);
        r->failed[error & 255]++;
    } else if (sscanf(name, SESSION_VDSO, &bits) == 1 && r->writer) {
        take_vdso(r, name, bits);
    } else if (sscanf(name, SESSION_LATE, &pid) == 1) {
        unlinkat(r->dir_fd, name, 0);
        r->late++;
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

void take_files(Recorder *r)
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

static bool alive(const RecordedThread *t)
{
    return syscall(SYS_tgkill, t->pid, t->tid, 0) == 0 || errno != ESRCH;
}

/* A thread that has ended, but has not been waited for, is a zombie. */
static bool runs(const RecordedThread *t)
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

void look_at_threads(Recorder *r, bool who_lives)
{
    for (RecordedThread *t = r->threads, *next; t; t = next) {
        next = t->next;
        if (__atomic_load_n(&t->session->state, __ATOMIC_ACQUIRE) ==
            SESSION_ENDED || (who_lives && !alive(t))) {
            end_thread(r, t);
        } else {
            drain(r, t, SESSION_ALL);
            if (who_lives) {
                look_at_name(r, t);
            }
        }
    }
}

/* Who goes on is not waited for. */
void end_all_threads(Recorder *r)
{
    int told = 0;

    while (r->threads) {
        RecordedThread *t = r->threads;

        if (__atomic_load_n(&t->session->state, __ATOMIC_ACQUIRE) !=
            SESSION_ENDED && t->pid != told && runs(t)) {
            say(r, "%s (%d) still runs; what it does now is not profiled",
                t->comm, t->pid);
            told = t->pid;
        }
        end_thread(r, t);
    }
}

uint64_t counted(const Recorder *r, int event)
{
    uint64_t sum = r->counts[event - 1];

    for (const RecordedThread *t = r->threads; t; t = t->next) {
        sum += t->broken ? 0 : session_count(t->session, event, false);
    }
    return sum;
}
