/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a process has mapped, for the file of "lwp record".
 */
#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "maps.h"
#include "table.h"

/* What the profile says of a path so far. */
typedef struct Known {
    uint64_t path;
    uint64_t inode;
    FileId id;
    bool written;
} Known;

static void read_build_id(FileId *id, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const void *build_id;
    ssize_t size = -1;
    Elf *elf;

    if (fd < 0) {
        return;
    }
    elf_version(EV_CURRENT);
    elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
    if (elf && elf_kind(elf) == ELF_K_ELF) {
        size = dwelf_elf_gnu_build_id(elf, &build_id);
    }
    if (size > 0) {
        id->build_id_size = size < (ssize_t)sizeof(id->build_id) ?
                            (size_t)size : sizeof(id->build_id);
        memcpy(id->build_id, build_id, id->build_id_size);
    }
    elf_end(elf);
    close(fd);
}

/* Tell which file a path is, if that is news. */
static void write_file(DataWriter *w, const char *path, uint64_t inode)
{
    static Table known = TABLE(Known, inode);
    uint64_t key = (uintptr_t)keep_text(path);
    Known *k = table_get(&known, &key);
    FileId id = { .size = UINT64_MAX };
    struct stat st;

    /* If another file has its name by now, nothing is the right one. */
    if (!stat(path, &st) && S_ISREG(st.st_mode) && st.st_ino == inode) {
        id.size = st.st_size;
        id.mtime = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
    }
    if (k->written && k->inode == inode && k->id.size == id.size &&
        k->id.mtime == id.mtime) {
        return;
    }
    if (id.size != UINT64_MAX) {
        read_build_id(&id, path);
    }
    k->written = true;
    k->inode = inode;
    k->id = id;
    data_write(w, DATA_FILE, &id, sizeof(id), path, strlen(path) + 1);
}

/* What is mapped by the process's last snapshot. */
typedef struct Range {
    uint64_t start, end;
} Range;

typedef struct Mapped {
    uint64_t pid;
    Range *ranges;          /* by address */
    size_t nr_ranges;
    double asked;           /* when maps_due() was true, seconds */
} Mapped;

static Mapped *mapped(int32_t pid)
{
    static Table table = TABLE(Mapped, ranges);
    uint64_t key = pid;

    return table_get(&table, &key);
}

static void add_range(Mapped *m, uint64_t start, uint64_t end)
{
    if (m->nr_ranges && m->ranges[m->nr_ranges - 1].end == start) {
        m->ranges[m->nr_ranges - 1].end = end;
        return;
    }
    m->ranges = grow(m->ranges, m->nr_ranges, sizeof(*m->ranges));
    m->ranges[m->nr_ranges++] = (Range) { start, end };
}

bool maps_known(int32_t pid, uint64_t address)
{
    const Mapped *m = mapped(pid);
    size_t low = 0, high = m->nr_ranges;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (m->ranges[mid].start <= address) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low && address < m->ranges[low - 1].end;
}

bool maps_due(int32_t pid, double now)
{
    Mapped *m = mapped(pid);

    if (now < m->asked + 0.05) {
        return false;
    }
    m->asked = now;
    return true;
}

bool maps_are_of(FILE *f, uint64_t stack)
{
    char *line = NULL;
    size_t room = 0;
    bool found = false;

    while (!found && getline(&line, &room, f) > 0) {
        uint64_t start, end;

        found = sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) == 2 &&
                start <= stack && stack < end && strstr(line, " [stack]\n");
    }
    free(line);
    rewind(f);
    return found;
}

void maps_write(DataWriter *w, int32_t pid, FILE *f)
{
    DataSnapshot snapshot = { pid, SNAPSHOT_BEGIN };
    DataMap map = { .pid = pid };
    Mapped *now = mapped(pid);
    char *line = NULL, *last = NULL;
    size_t room = 0;
    ssize_t n;

    free(now->ranges);
    now->ranges = NULL;
    now->nr_ranges = 0;
    data_write(w, DATA_SNAPSHOT, &snapshot, sizeof(snapshot), NULL, 0);
    while ((n = getline(&line, &room, f)) > 0) {
        uint64_t inode;
        char prot[5];
        int path = 0;

        if (line[n - 1] == '\n') {
            line[--n] = 0;
        }
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %" SCNu64
                   " %n", &map.start, &map.end, prot, &map.offset, &inode,
                   &path) < 5 || !path) {
            continue;
        }
        map.prot = (prot[0] == 'r' ? PROT_READ : 0) |
                   (prot[1] == 'w' ? PROT_WRITE : 0) |
                   (prot[2] == 'x' ? PROT_EXEC : 0);
        if (line[path] == '/' && (!last || strcmp(last, line + path))) {
            write_file(w, line + path, inode);
            free(last);
            last = strdup(line + path);
        }
        add_range(now, map.start, map.end);
        data_write(w, DATA_MAP, &map, sizeof(map), line + path,
                   n - path + 1);
    }
    snapshot.what = SNAPSHOT_END;
    data_write(w, DATA_SNAPSHOT, &snapshot, sizeof(snapshot), NULL, 0);
    free(line);
    free(last);
}
