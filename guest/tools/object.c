/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ELF files: finding and opening those that were profiled, and where in memory
 * they are.  libdwfl finds separate debug files.
 */
#include <elfutils/libdwelf.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "object.h"

const char *symbols_root = "";
const char *symbols_debug_dir = "/usr/lib/debug";
bool symbols_debuginfod;

/* What libdwfl searches, and for which the CRC of a debug link has to fit. */
static char *debug_path;

static const Dwfl_Callbacks callbacks = {
    .find_elf = dwfl_build_id_find_elf,
    .find_debuginfo = dwfl_standard_find_debuginfo,
    .debuginfo_path = &debug_path,
};

static void set_debug_path(void)
{
    static char dir[PATH_MAX];
    char joined[PATH_MAX];

    if (debug_path) {
        return;
    }
    snprintf(joined, sizeof(joined), "%s%s", symbols_root, symbols_debug_dir);
    /* A relative one would be relative to the program's folder. */
    if (!realpath(joined, dir)) {
        strcpy(dir, "/nonexistent");
    }
    if (asprintf(&debug_path, "+:.debug:%s", dir) < 0) {
        exit(1);
    }
    if (!symbols_debuginfod) {
        unsetenv("DEBUGINFOD_URLS");
    }
}

static bool same_build_id(const FileId *id, const void *other, ssize_t size)
{
    return size > 0 &&
           id->build_id_size == ((size_t)size < sizeof(id->build_id) ?
                                 (size_t)size : sizeof(id->build_id)) &&
           !memcmp(id->build_id, other, id->build_id_size);
}

static const char *hex(const uint8_t *id, size_t size)
{
    char text[2 * sizeof(((FileId *)0)->build_id) + 1] = "none";

    for (size_t i = 0; i < size && 2 * i + 2 < sizeof(text); i++) {
        sprintf(text + 2 * i, "%02x", id[i]);
    }
    return keep_text(text);
}

/* Whether it is the file that the profile is of; if not, why. */
static bool is_right(Object *o, Elf *elf, const struct stat *st)
{
    int64_t mtime = st->st_mtim.tv_sec * 1000000000ll + st->st_mtim.tv_nsec;
    const void *id;
    ssize_t size;
    char text[400];

    if (o->id.build_id_size) {
        size = dwelf_elf_gnu_build_id(elf, &id);
        if (same_build_id(&o->id, id, size)) {
            return true;
        }
        snprintf(text, sizeof(text), "it is another file than the one that "
                 "was profiled (build ID %s, then %s)",
                 hex(id, size > 0 ? size : 0),
                 hex(o->id.build_id, o->id.build_id_size));
    } else {
        if (!o->id.size || ((uint64_t)st->st_size == o->id.size &&
                            mtime == o->id.mtime)) {
            return true;
        }
        snprintf(text, sizeof(text), "it has been changed since it was "
                 "profiled, and has no build ID");
    }
    o->why = keep_text(text);
    return false;
}

static uint64_t find_end(Elf *elf)
{
    uint64_t end = 0;
    GElf_Phdr phdr;
    size_t n;

    if (elf_getphdrnum(elf, &n)) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (gelf_getphdr(elf, i, &phdr) && phdr.p_type == PT_LOAD &&
            phdr.p_vaddr + phdr.p_memsz > end) {
            end = phdr.p_vaddr + phdr.p_memsz;
        }
    }
    return end;
}

static bool open_object(Object *o, const char *file, int fd)
{
    struct stat st;
    Dwfl *dwfl = NULL;
    Dwarf_Addr bias;
    Elf *elf;

    /* To open a device that was mapped may do something. */
    if (fd < 0 && !stat(file, &st) && S_ISREG(st.st_mode)) {
        fd = open(file, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0 || fstat(fd, &st)) {
        o->why = errno ? strerror(errno) : "not an ELF file";
        return false;
    }
    o->why = "not an ELF file";
    elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
    if (elf && elf_kind(elf) == ELF_K_ELF && is_right(o, elf, &st)) {
        dwfl = dwfl_begin(&callbacks);
    }
    elf_end(elf);
    if (dwfl) {
        dwfl_report_begin(dwfl);
        o->module = dwfl_report_elf(dwfl, o->path, file, fd, 0, true);
        dwfl_report_end(dwfl, NULL, NULL);
        o->elf = o->module ? dwfl_module_getelf(o->module, &bias) : NULL;
    }
    if (!o->elf) {
        dwfl_end(dwfl);
        o->module = NULL;
        close(fd);
        return false;
    }
    o->end = find_end(o->elf);
    o->file = keep_text(file);
    return true;
}

/* The file itself, or what was split off it, wherever it may be by its ID. */
static void find_by_build_id(Object *o)
{
    Dwfl *dwfl = dwfl_begin(&callbacks);
    const char *id = hex(o->id.build_id, o->id.build_id_size), *why = o->why;
    char *name = NULL, path[PATH_MAX];
    Dwfl_Module *module = NULL;
    Elf *elf = NULL;
    int fd = -1;

    if (dwfl) {
        dwfl_report_begin(dwfl);
        module = dwfl_report_module(dwfl, o->path, 0, UINT64_MAX);
        dwfl_report_end(dwfl, NULL, NULL);
    }
    if (module && !dwfl_module_report_build_id(module, o->id.build_id,
                                               o->id.build_id_size, 0)) {
        fd = dwfl_build_id_find_elf(module, NULL, o->path, 0, &name, &elf);
    }
    if (fd < 0 || !open_object(o, name ? name : o->path, fd)) {
        snprintf(path, sizeof(path), "%s/.build-id/%.2s/%s.debug",
                 debug_path + strlen("+:.debug:"), id, id + 2);
        open_object(o, path, -1);
    }
    if (!o->elf) {
        o->why = why;
    }
    elf_end(elf);
    free(name);
    dwfl_end(dwfl);
}

typedef struct ObjectItem {
    uint64_t path;
    FileId id;
    Object *object;
} ObjectItem;

Object *object_get(const char *path, const FileId *id)
{
    static Table objects = TABLE(ObjectItem, object);
    char file[PATH_MAX];
    ObjectItem key, *item;
    Object *o;

    path = keep_text(path);
    memset(&key, 0, sizeof(key));
    key.path = (uintptr_t)path;
    if (id) {
        key.id = *id;
    }
    item = table_get(&objects, &key);
    if (item->object) {
        return item->object;
    }
    o = item->object = grow(NULL, 0, sizeof(*o));
    memset(o, 0, sizeof(*o));
    o->path = path;
    o->id = key.id;
    if (*path != '/') {
        return o;           /* [vdso], [anon] and so on */
    }
    elf_version(EV_CURRENT);
    set_debug_path();
    snprintf(file, sizeof(file), "%s%s", symbols_root, path);
    errno = 0;
    if (!open_object(o, file, -1) && o->id.build_id_size) {
        find_by_build_id(o);
    }
    return o;
}

const char *object_path(const Object *o)
{
    return o->path;
}

const FileId *object_id(const Object *o)
{
    return &o->id;
}

const char *object_file(const Object *o)
{
    return o->file;
}

uint64_t object_address(Object *o, uint64_t offset, bool exec)
{
    uint64_t address = offset;
    GElf_Phdr phdr;
    size_t n;

    if (!o->elf || elf_getphdrnum(o->elf, &n)) {
        return offset;
    }
    for (size_t i = 0; i < n; i++) {
        /* mappings start at pages, segments need not */
        if (gelf_getphdr(o->elf, i, &phdr) && phdr.p_type == PT_LOAD &&
            offset >= (phdr.p_offset & ~4095ull) &&
            offset < phdr.p_offset + phdr.p_filesz) {
            address = offset - phdr.p_offset + phdr.p_vaddr;
            if (exec == !!(phdr.p_flags & PF_X)) {
                break;
            }
        }
    }
    return address;
}

uint64_t object_end(const Object *o)
{
    return o->end;
}

Object *object_from_image(const char *path, const void *image, size_t size)
{
    Object *o = object_get(path, NULL);
    int fd = o->elf ? -1 : memfd_create(path, MFD_CLOEXEC);

    elf_version(EV_CURRENT);
    set_debug_path();
    if (fd >= 0 && (write(fd, image, size) != (ssize_t)size ||
                    lseek(fd, 0, SEEK_SET) != 0)) {
        close(fd);
    } else if (fd >= 0 && open_object(o, path, fd)) {
        o->file = NULL;     /* nobody else can read it */
    }
    return o;
}
