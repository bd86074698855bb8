/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Files of "lwp record": see data.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "data.h"

/* Bytes of the first version's header. */
#define OLD_HEADER  offsetof(DataHeader, version)

struct DataWriter {
    FILE *file;
    char *path;
    char *real, *temporary; /* NULL: it is no file, but a device or a pipe */
    bool failed;            /* and has said so */
};

struct DataReader {
    FILE *file;
    void *buffer;
    size_t room;
    bool damaged;
    uint64_t left;          /* bytes behind what was read, if it is a file */
};

static bool writer_failed(DataWriter *w)
{
    if (!w->failed) {
        fprintf(stderr, "lwp: cannot write %s: %s\n", w->path,
                strerror(errno));
    }
    w->failed = true;
    return false;
}

static void writer_free(DataWriter *w)
{
    if (w) {
        free(w->path);
        free(w->real);
        free(w->temporary);
        free(w);
    }
}

static DataHeader complete(const DataHeader *header)
{
    DataHeader h = *header;

    memcpy(h.magic, DATA_MAGIC, sizeof(h.magic));
    h.size = sizeof(h);
    h.version = DATA_VERSION;
    return h;
}

/* A new file next to that of this path, unless that is something else. */
static FILE *create(DataWriter *w)
{
    struct stat st;
    FILE *f;
    int fd;

    if (!stat(w->path, &st) && !S_ISREG(st.st_mode)) {
        return fopen(w->path, "we");
    }
    w->real = realpath(w->path, NULL);
    if (!w->real) {
        w->real = strdup(w->path);
    }
    if (!w->real || asprintf(&w->temporary, "%s.XXXXXX", w->real) < 0) {
        w->temporary = NULL;
        return NULL;
    }
    fd = mkostemp(w->temporary, O_CLOEXEC);
    f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f && fd >= 0) {
        unlink(w->temporary);
        close(fd);
    }
    return f;
}

DataWriter *data_create(const char *path, const DataHeader *header)
{
    DataWriter *w = calloc(1, sizeof(*w));
    DataHeader h = complete(header);

    if (w) {
        w->path = strdup(path);
    }
    if (!w || !w->path) {
        fprintf(stderr, "lwp: out of memory\n");
        writer_free(w);
        return NULL;
    }
    w->file = create(w);
    if (!w->file) {
        writer_failed(w);
        writer_free(w);
        return NULL;
    }
    /* What is written at once will be there even if the recorder is killed. */
    if (fwrite(&h, sizeof(h), 1, w->file) != 1 || fflush(w->file) != 0) {
        writer_failed(w);
        fclose(w->file);
        if (w->temporary) {
            unlink(w->temporary);
        }
        writer_free(w);
        return NULL;
    }
    return w;
}

void data_set_header(DataWriter *w, const DataHeader *header)
{
    DataHeader h = complete(header);

    if (!w->failed && pwrite(fileno(w->file), &h, sizeof(h), 0) < 0 &&
        errno != ESPIPE) {
        writer_failed(w);
    }
}

bool data_write(DataWriter *w, uint32_t type, const void *head,
                size_t head_size, const void *body, size_t body_size)
{
    static const char zero[8];
    size_t size = sizeof(DataChunk) + head_size + body_size;
    size_t pad = -size & 7;
    DataChunk chunk = { type, size + pad };

    /* After a failure there would be no telling where a chunk begins. */
    if (w->failed) {
        return false;
    }
    if (fwrite(&chunk, sizeof(chunk), 1, w->file) != 1 ||
        fwrite(head, 1, head_size, w->file) != head_size ||
        (body_size && fwrite(body, body_size, 1, w->file) != 1) ||
        fwrite(zero, 1, pad, w->file) != pad) {
        return writer_failed(w);
    }
    return true;
}

bool data_finish(DataWriter *w, bool keep)
{
    char *old;
    bool ok;

    if (fclose(w->file) != 0 && keep) {
        writer_failed(w);
    }
    if (w->temporary && !keep) {
        unlink(w->temporary);
    } else if (w->temporary) {
        if (asprintf(&old, "%s.old", w->real) > 0) {
            rename(w->real, old);
            free(old);
        }
        if (rename(w->temporary, w->real) != 0) {
            writer_failed(w);
        }
    }
    ok = !w->failed;
    writer_free(w);
    return ok;
}

static void *not_opened(DataReader *r, const char *path, const char *why)
{
    fprintf(stderr, "lwp: cannot read %s: %s\n", path, why);
    data_close(r);
    return NULL;
}

DataReader *data_open(const char *path, DataHeader *header)
{
    DataReader *r = calloc(1, sizeof(*r));
    struct stat st;
    size_t rest;

    if (!r) {
        return not_opened(r, path, "out of memory");
    }
    r->file = fopen(path, "re");
    if (!r->file) {
        return not_opened(r, path, strerror(errno));
    }
    memset(header, 0, sizeof(*header));
    errno = 0;
    if (fread(header, OLD_HEADER, 1, r->file) != 1) {
        return not_opened(r, path, errno ? strerror(errno) :
                          "it is not a file of lwp record");
    }
    if (memcmp(header->magic, DATA_MAGIC, sizeof(header->magic)) != 0 ||
        header->size < OLD_HEADER || header->size > 1u << 20) {
        return not_opened(r, path, "it is not a file of lwp record");
    }
    rest = header->size < sizeof(*header) ? header->size : sizeof(*header);
    rest -= OLD_HEADER;
    if (fread((char *)header + OLD_HEADER, 1, rest, r->file) != rest) {
        return not_opened(r, path, "it is cut off");
    }
    header->command[sizeof(header->command) - 1] = 0;
    header->tool[sizeof(header->tool) - 1] = 0;
    /* A later version's header may be longer. */
    for (size_t i = OLD_HEADER + rest; i < header->size; i++) {
        if (getc(r->file) == EOF) {
            return not_opened(r, path, "it is cut off");
        }
    }
    r->left = UINT64_MAX;
    if (!fstat(fileno(r->file), &st) && S_ISREG(st.st_mode)) {
        r->left = (uint64_t)st.st_size > header->size ?
                  st.st_size - header->size : 0;
    }
    return r;
}

const void *data_next(DataReader *r, uint32_t *type, size_t *size)
{
    DataChunk chunk;
    size_t n = fread(&chunk, 1, sizeof(chunk), r->file);

    r->damaged = n > 0 && (n < sizeof(chunk) || chunk.size < sizeof(chunk) ||
                           chunk.size % 8 || chunk.size > r->left);
    r->left -= chunk.size;
    if (n == 0 || r->damaged) {
        return NULL;
    }
    n = chunk.size - sizeof(chunk);
    /* One byte more, always 0, so that a path that is cut off has an end. */
    if (n >= r->room) {
        void *p = realloc(r->buffer, n + 1);

        if (!p) {
            fprintf(stderr, "lwp: out of memory\n");
            return NULL;
        }
        r->buffer = p;
        r->room = n + 1;
    }
    r->damaged = fread(r->buffer, 1, n, r->file) != n;
    if (r->damaged) {
        return NULL;
    }
    ((char *)r->buffer)[n] = 0;
    *type = chunk.type;
    *size = n;
    return r->buffer;
}

double data_part(const DataReader *r)
{
    struct stat st;
    long at = ftell(r->file);

    return at < 0 || fstat(fileno(r->file), &st) || st.st_size <= 0 ? 0 :
           (double)at / st.st_size;
}

bool data_damaged(const DataReader *r)
{
    return r->damaged || ferror(r->file);
}

void data_close(DataReader *r)
{
    if (r) {
        if (r->file) {
            fclose(r->file);
        }
        free(r->buffer);
        free(r);
    }
}
