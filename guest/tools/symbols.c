/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names of the code and data in ELF files: functions, source lines.
 *
 * libdwfl finds separate debug files.  It is not asked which compilation unit
 * an address is in, as it only looks into .debug_aranges, which compilers other
 * than GCC leave out.
 */
#include <dwarf.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <inttypes.h>
#include <libiberty/demangle.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "symbols.h"
#include "table.h"
#include "text.h"

typedef struct Symbol {
    Function function;
    uint64_t max_end;       /* of this one and all before it */
    int rank;               /* which of several names of one place is best */
    bool readable;          /* its name has been looked at */
} Symbol;

/* A place where a function was put into another one; and where that is. */
typedef struct Inlined {
    Call call;
    int depth;
    size_t outer;           /* its number; 0: it is no inlined one */
} Inlined;

typedef struct InlinedRange {
    uint64_t start, end;
    uint64_t max_end;       /* of this one and all before it */
    size_t what;            /* index */
} InlinedRange;

typedef struct CuRange {
    uint64_t start, end;
    Dwarf_Off die;
    bool walked;
} CuRange;

struct Object {
    const char *path;
    FileId id;
    const char *file;       /* NULL: there is none that is the right one */
    Dwfl_Module *module;    /* of a Dwfl of its own; NULL: no ELF file */
    Elf *elf;               /* its */
    uint64_t end;           /* behind its last segment */
    Symbol *symbols;        /* by address */
    size_t nr_symbols;
    /* How many start before each step of 1 << shift, from the first one on. */
    uint32_t *before;
    uint64_t steps;
    unsigned shift;
    Dwarf *dwarf;
    CuRange *cus;           /* by address */
    size_t nr_cus;
    Inlined *inlined;
    size_t nr_inlined;
    InlinedRange *ranges;   /* of them, by address */
    size_t nr_ranges;
    Table walked;           /* compilation units that are in them */
    const char *why;        /* it could not be opened */
    bool symbols_read, lines_read;
    Function unnamed;
};

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

static Elf_Scn *find_section(Elf *elf, const char *name, GElf_Shdr *shdr)
{
    Elf_Scn *scn = NULL;
    size_t names;

    if (elf_getshdrstrndx(elf, &names)) {
        return NULL;
    }
    while ((scn = elf_nextscn(elf, scn))) {
        const char *s = gelf_getshdr(scn, shdr) ?
                        elf_strptr(elf, names, shdr->sh_name) : NULL;

        if (s && !strcmp(s, name)) {
            return scn;
        }
    }
    return NULL;
}

/* Its contents, if the file has them. */
static Elf_Data *section_data(Elf *elf, const char *name, GElf_Shdr *shdr)
{
    Elf_Scn *scn = find_section(elf, name, shdr);

    return scn && shdr->sh_type != SHT_NOBITS ? elf_getdata(scn, NULL) : NULL;
}

static void add_symbol(Object *o, const char *name, uint64_t start,
                       uint64_t size, int rank)
{
    o->symbols = grow(o->symbols, o->nr_symbols, sizeof(*o->symbols));
    o->symbols[o->nr_symbols++] = (Symbol) {
        .function = {
            .object = o, .name = keep_text(name), .start = start, .size = size,
        }, .rank = rank,
    };
}

static void read_symbols(Object *o)
{
    int n = dwfl_module_getsymtab(o->module);

    for (int i = 0; i < n; i++) {
        Dwarf_Addr bias;
        GElf_Word shndx;
        GElf_Addr address;
        GElf_Sym sym;
        GElf_Shdr in;
        Elf *elf;
        const char *cut;
        char *plain = NULL;
        const char *name = dwfl_module_getsym_info(o->module, i, &sym, &address,
                                                   &shndx, &elf, &bias);
        int type = GELF_ST_TYPE(sym.st_info);
        int bind = GELF_ST_BIND(sym.st_info);
        Elf_Scn *home = name && elf && shndx != SHN_UNDEF &&
                        shndx < SHN_LORESERVE ? elf_getscn(elf, shndx) : NULL;
        uint64_t size = sym.st_size;

        if (!home || !*name || !gelf_getshdr(home, &in) ||
            !(in.sh_flags & SHF_ALLOC) || in.sh_flags & SHF_TLS) {
            continue;
        }
        if (type == STT_NOTYPE ? !(in.sh_flags & SHF_EXECINSTR)
            : type != STT_FUNC && type != STT_GNU_IFUNC &&
              type != STT_OBJECT) {
            continue;
        }
        if (!size && !(in.sh_flags & SHF_EXECINSTR)) {
            continue;
        }
        /* .symtab has versions of dynamic symbols behind their names. */
        cut = name[0] == '@' ? NULL : strchr(name, '@');
        if (cut) {
            plain = strndup(name, cut - name);
            name = plain ? plain : name;
        }
        /*
         * One address may have several names: that of a function, a strong
         * one, and with few underscores is what people know.
         */
        add_symbol(o, name, sym.st_value, size,
                   (size ? 1000 : 0) + (type != STT_NOTYPE ? 500 : 0) +
                   (bind == STB_GLOBAL ? 200 : bind == STB_LOCAL ? 0 : 100)
                   - (int)strspn(name, "_"));
        free(plain);
    }
}

/* A slot of the GOT, and the name of what the dynamic linker puts there. */
typedef struct Slot {
    uint64_t address;
    const char *name;
} Slot;

static void read_slots(Object *o, Table *slots)
{
    Elf_Scn *scn = NULL, *symtab;
    GElf_Shdr shdr, symhdr;
    Elf_Data *data, *symbols;

    while ((scn = elf_nextscn(o->elf, scn))) {
        bool rel;

        if (!gelf_getshdr(scn, &shdr) ||
            (shdr.sh_type != SHT_RELA && shdr.sh_type != SHT_REL)) {
            continue;
        }
        data = elf_getdata(scn, NULL);
        rel = shdr.sh_type == SHT_REL;
        symtab = elf_getscn(o->elf, shdr.sh_link);
        symbols = symtab && gelf_getshdr(symtab, &symhdr) ?
                  elf_getdata(symtab, NULL) : NULL;
        for (int i = 0; data; i++) {
            GElf_Rela rela = { 0 };
            const char *name = NULL;
            GElf_Sym sym;

            /* a GElf_Rel is the start of a GElf_Rela */
            if (!(rel ? (void *)gelf_getrel(data, i, (GElf_Rel *)&rela)
                      : (void *)gelf_getrela(data, i, &rela))) {
                break;
            }
            if (GELF_R_SYM(rela.r_info)) {
                if (symbols &&
                    gelf_getsym(symbols, GELF_R_SYM(rela.r_info), &sym)) {
                    name = elf_strptr(o->elf, symhdr.sh_link, sym.st_name);
                }
            } else if (GELF_R_TYPE(rela.r_info) == R_X86_64_IRELATIVE) {
                for (size_t s = 0; s < o->nr_symbols && !name; s++) {
                    if (o->symbols[s].function.start ==
                        (uint64_t)rela.r_addend) {
                        name = o->symbols[s].function.name;
                    }
                }
            }
            if (name && *name) {
                ((Slot *)table_get(slots, &rela.r_offset))->name = name;
            }
        }
    }
}

#define PLT     "@plt"          /* behind the name of what a stub jumps to */

/*
 * PLT stubs have no symbols, but each has an indirect jump through the GOT in
 * it, whatever the linker's style, which tells by its relocation where to.
 */
static void read_plt(Object *o)
{
    static const char * const sections[] = { ".plt", ".plt.sec", ".plt.got" };
    Table slots = TABLE(Slot, name);
    GElf_Shdr shdr, got;
    GElf_Ehdr ehdr;
    char *name;

    if (!gelf_getehdr(o->elf, &ehdr) ||
        (ehdr.e_machine != EM_X86_64 && ehdr.e_machine != EM_386)) {
        return;
    }
    if (!find_section(o->elf, ".got.plt", &got) &&
        !find_section(o->elf, ".got", &got)) {
        return;
    }
    read_slots(o, &slots);
    for (int i = 0; i < 3; i++) {
        Elf_Data *data = section_data(o->elf, sections[i], &shdr);
        size_t step = shdr.sh_entsize == 8 ? 8 : 16;

        if (!data || !data->d_buf) {
            continue;
        }
        add_symbol(o, sections[i], shdr.sh_addr, shdr.sh_size, -1000);
        for (size_t at = 0; at + step <= data->d_size; at += step) {
            const uint8_t *code = (uint8_t *)data->d_buf + at;

            for (size_t k = 0; k + 6 <= step; k++) {
                const char *target;
                uint64_t slot;
                int32_t disp;

                /* jmp *disp(%rip), on i386 *disp or *disp(%ebx) */
                if (code[k] != 0xff || (code[k + 1] != 0x25 &&
                    (code[k + 1] != 0xa3 || ehdr.e_machine != EM_386))) {
                    continue;
                }
                memcpy(&disp, code + k + 2, sizeof(disp));
                slot = ehdr.e_machine == EM_X86_64 ?
                       shdr.sh_addr + at + k + 6 + disp :
                       code[k + 1] == 0x25 ? (uint32_t)disp :
                       got.sh_addr + disp;
                target = ((Slot *)table_get(&slots, &slot))->name;
                if (target && asprintf(&name, "%s" PLT, target) > 0) {
                    add_symbol(o, name, shdr.sh_addr + at, step, 0);
                    free(name);
                }
                break;
            }
        }
    }
    table_free(&slots);
}

static const char *offset_name(const Object *o, uint64_t address)
{
    const char *base = strrchr(o->path, '/');
    char name[300];

    base = base ? base + 1 : o->path;
    snprintf(name, sizeof(name), "[%.255s+0x%" PRIx64 "]",
             *base == '[' ? "vdso" : base, address);
    return keep_text(name);
}

/*
 * Stripped files still have a table for unwinding that tells functions apart.
 * Linkers make it with 4-byte offsets.
 */
static void read_unwind_table(Object *o)
{
    GElf_Shdr hdr_shdr, shdr;
    Elf_Data *hdr = section_data(o->elf, ".eh_frame_hdr", &hdr_shdr);
    Elf_Data *frames = section_data(o->elf, ".eh_frame", &shdr);
    const uint8_t *h = hdr ? hdr->d_buf : NULL;
    uint32_t count;

    /* version, and DW_EH_PE_* of the pointer, of the count, of the table */
    if (!h || !frames || hdr->d_size < 12 || h[0] != 1 || h[1] != 0x1b ||
        h[2] != 0x03 || h[3] != 0x3b) {
        return;
    }
    memcpy(&count, h + 8, sizeof(count));
    for (size_t i = 0; i < count && 20 + i * 8 <= hdr->d_size; i++) {
        int32_t entry[2];       /* function, FDE: from the header on */
        uint32_t fde[4];        /* length, CIE, function from here, its size */
        uint64_t start, offset;

        memcpy(entry, h + 12 + i * 8, sizeof(entry));
        start = hdr_shdr.sh_addr + entry[0];
        offset = hdr_shdr.sh_addr + entry[1] - shdr.sh_addr;
        if (offset > frames->d_size ||
            frames->d_size - offset < sizeof(fde)) {
            continue;
        }
        memcpy(fde, (char *)frames->d_buf + offset, sizeof(fde));
        /* if not, pointers in the FDE are of another kind */
        if (shdr.sh_addr + offset + 8 + (int32_t)fde[2] == start) {
            add_symbol(o, offset_name(o, start), start, fde[3], -500);
        }
    }
}

static int compare_symbols(const void *a, const void *b)
{
    const Symbol *x = a, *y = b;

    return x->function.start != y->function.start ?
           (x->function.start < y->function.start ? -1 : 1) :
           x->rank != y->rank ? y->rank - x->rank :
           strlen(x->function.name) != strlen(y->function.name) ?
           (int)strlen(x->function.name) - (int)strlen(y->function.name) :
           strcmp(x->function.name, y->function.name);
}

/* As many steps as there are symbols, or up to twice as many. */
static void index_symbols(Object *o)
{
    uint64_t first = o->symbols[0].function.start;
    uint64_t span = o->symbols[o->nr_symbols - 1].function.start - first;
    size_t n = 0;

    while (span >> o->shift > 2 * o->nr_symbols) {
        o->shift++;
    }
    o->steps = (span >> o->shift) + 1;
    o->before = zeroed(o->steps + 1, sizeof(*o->before));
    for (size_t i = 0; i <= o->steps; i++) {
        while (n < o->nr_symbols &&
               (o->symbols[n].function.start - first) >> o->shift < i) {
            n++;
        }
        o->before[i] = n;
    }
}

/* One name for each address, and a size for what has none. */
static void sort_symbols(Object *o)
{
    uint64_t max_end = 0;
    size_t n = 0;

    if (!o->nr_symbols) {
        return;
    }
    qsort(o->symbols, o->nr_symbols, sizeof(Symbol), compare_symbols);
    for (size_t i = 0; i < o->nr_symbols; i++) {
        if (!n || o->symbols[n - 1].function.start !=
                  o->symbols[i].function.start) {
            o->symbols[n++] = o->symbols[i];
        }
    }
    o->nr_symbols = n;
    for (size_t i = 0; i < n; i++) {
        Function *f = &o->symbols[i].function;
        Elf_Scn *scn = NULL;
        GElf_Shdr shdr;

        while (!f->size && o->elf && (scn = elf_nextscn(o->elf, scn))) {
            if (gelf_getshdr(scn, &shdr) && shdr.sh_flags & SHF_ALLOC &&
                f->start - shdr.sh_addr < shdr.sh_size) {
                f->size = shdr.sh_addr + shdr.sh_size - f->start;
                if (i + 1 < n && o->symbols[i + 1].function.start <
                                 f->start + f->size) {
                    f->size = o->symbols[i + 1].function.start - f->start;
                }
            }
        }
        if (f->start + f->size > max_end) {
            max_end = f->start + f->size;
        }
        o->symbols[i].max_end = max_end;
    }
    index_symbols(o);
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

/* Wherever it is that somebody has copied it. */
static bool has_section(Object *o, const char *name)
{
    Dwarf_Addr bias;
    Dwarf *dwarf;
    GElf_Shdr shdr;

    if (find_section(o->elf, name, &shdr)) {
        return true;
    }
    dwarf = dwfl_module_getdwarf(o->module, &bias);
    return dwarf && find_section(dwarf_getelf(dwarf), name, &shdr);
}

static void load_symbols(Object *o)
{
    o->symbols_read = true;
    if (!o->elf) {
        if (*o->path == '/') {
            fprintf(stderr, "lwp: no symbols of ");
            put_text(stderr, symbols_root, TEXT_PLAIN);
            put_text(stderr, o->path, TEXT_PLAIN);
            fprintf(stderr, ": %s\n", o->why);
        }
        return;
    }
    read_symbols(o);
    if (!has_section(o, ".symtab")) {
        read_unwind_table(o);
    }
    read_plt(o);
    sort_symbols(o);
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

/* All that has no name is one thing. */
static Function *unnamed(Object *o)
{
    const char *base;
    char name[300];

    if (!o->unnamed.name) {
        base = strrchr(o->path, '/');
        base = base ? base + 1 : o->path;
        if (*base != '[') {
            snprintf(name, sizeof(name), "[%.255s]", base);
            base = keep_text(name);
        }
        o->unnamed = (Function) { .object = o, .name = base, .linkage = base };
    }
    return &o->unnamed;
}

/* C++ and Rust have the types of parameters and more in their symbols. */
static const char *readable(const char *name)
{
    const size_t length = strlen(name);
    const bool stub = length > strlen(PLT) &&
                      !strcmp(name + length - strlen(PLT), PLT);
    char *plain = strndup(name, length - (stub ? strlen(PLT) : 0));
    char *text = plain ? cplus_demangle(plain, DMGL_AUTO | DMGL_ANSI |
                                        DMGL_PARAMS) : NULL;
    char *whole;

    if (text && asprintf(&whole, "%s%s", text, stub ? PLT : "") > 0) {
        name = keep_text(whole);
        free(whole);
    }
    free(text);
    free(plain);
    return name;
}

static Function *find_function(Object *o, uint64_t address)
{
    size_t low, high;
    uint64_t step;

    if (!o->symbols_read) {
        load_symbols(o);
    }
    if (!o->nr_symbols || address < o->symbols[0].function.start) {
        return NULL;
    }
    step = (address - o->symbols[0].function.start) >> o->shift;
    low = o->before[step < o->steps ? step : o->steps];
    high = o->before[step < o->steps ? step + 1 : o->steps];
    while (low < high) {
        size_t mid = (low + high) / 2;

        if (o->symbols[mid].function.start <= address) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    /* symbols may be inside others */
    while (low-- && o->symbols[low].max_end > address) {
        Symbol *s = &o->symbols[low];

        if (address - s->function.start < s->function.size) {
            if (!s->readable) {
                s->readable = true;
                s->function.linkage = s->function.name;
                s->function.name = readable(s->function.name);
            }
            return &s->function;
        }
    }
    return NULL;
}

Function *object_function(Object *o, uint64_t address)
{
    Function *f = find_function(o, address);

    return f ? f : unnamed(o);
}

bool object_knows(Object *o, uint64_t address)
{
    return find_function(o, address);
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

/* Whether it was there when the profile was recorded. */
static FILE *open_jit_file(const char *path, uint64_t since)
{
    FILE *f = fopen(path, "re");
    struct stat st;

    if (f && (fstat(fileno(f), &st) || !S_ISREG(st.st_mode) ||
              (uint64_t)st.st_mtime < since)) {
        fclose(f);
        f = NULL;
    }
    return f;
}

/* Lines of start, size and name, as perf(1) reads them. */
static void read_perf_map(Object *o, FILE *f)
{
    char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, f) > 0) {
        uint64_t start, size;
        int name = 0;

        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%" SCNx64 " %" SCNx64 " %n", &start, &size,
                   &name) == 2 && name && line[name] && size) {
            add_symbol(o, line + name, start, size, 0);
        }
    }
    free(line);
}

/* jitdump-specification.txt in tools/perf/Documentation of Linux. */
typedef struct JitHeader {
    uint32_t magic, version, size, machine, pad, pid;
    uint64_t time, flags;
} JitHeader;

typedef struct JitRecord {
    uint32_t id, size;
    uint64_t time;
} JitRecord;

typedef struct JitLoad {
    uint32_t pid, tid;
    uint64_t vma, address, size, index;
} JitLoad;

enum { JIT_MAGIC = 0x4a695444, JIT_CODE_LOAD = 0 };

static void read_jitdump(Object *o, FILE *f)
{
    JitHeader header;
    JitRecord record;
    JitLoad load;
    char *name = NULL;
    size_t room = 0;
    long at;

    if (fread(&header, sizeof(header), 1, f) != 1 ||
        header.magic != JIT_MAGIC) {
        return;
    }
    for (at = header.size; !fseek(f, at, SEEK_SET) &&
         fread(&record, sizeof(record), 1, f) == 1 &&
         record.size >= sizeof(record); at += record.size) {
        if (record.id == JIT_CODE_LOAD &&
            record.size > sizeof(record) + sizeof(load) &&
            fread(&load, sizeof(load), 1, f) == 1 &&
            getdelim(&name, &room, 0, f) > 0) {
            add_symbol(o, name, load.address, load.size, 0);
        }
    }
    free(name);
}

Object *object_jit(int32_t pid, const char *dump, uint64_t since)
{
    char path[PATH_MAX];
    Object *o;
    FILE *f;

    snprintf(path, sizeof(path), "[JIT %d]", pid);
    o = object_get(path, NULL);
    if (o->symbols_read) {
        return o->nr_symbols ? o : NULL;
    }
    o->symbols_read = true;
    snprintf(path, sizeof(path), "%s/tmp/perf-%d.map", symbols_root, pid);
    f = open_jit_file(path, since);
    if (f) {
        read_perf_map(o, f);
        fclose(f);
    }
    snprintf(path, sizeof(path), "%s%s", symbols_root, dump ? dump : "");
    f = dump ? open_jit_file(path, since) : NULL;
    if (f) {
        read_jitdump(o, f);
        fclose(f);
    }
    sort_symbols(o);
    return o->nr_symbols ? o : NULL;
}

static int compare_cus(const void *a, const void *b)
{
    const CuRange *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

/* .debug_aranges need not be there, so this asks each compilation unit. */
static void read_cus(Object *o)
{
    Dwarf_Off at = 0, next;
    Dwarf_Addr bias;
    size_t header;

    o->lines_read = true;
    o->dwarf = o->module ? dwfl_module_getdwarf(o->module, &bias) : NULL;
    for (; o->dwarf && !dwarf_nextcu(o->dwarf, at, &next, &header, NULL, NULL,
                                     NULL); at = next) {
        Dwarf_Addr base, start, end;
        ptrdiff_t i = 0;
        Dwarf_Die die;

        if (!dwarf_offdie(o->dwarf, at + header, &die)) {
            continue;
        }
        while ((i = dwarf_ranges(&die, i, &base, &start, &end)) > 0) {
            o->cus = grow(o->cus, o->nr_cus, sizeof(*o->cus));
            o->cus[o->nr_cus++] = (CuRange) {
                start, end, dwarf_dieoffset(&die), false
            };
        }
    }
    if (o->nr_cus) {
        qsort(o->cus, o->nr_cus, sizeof(*o->cus), compare_cus);
    }
}

/* How many pieces of compilation units start at the address or before. */
static size_t cus_until(Object *o, uint64_t address)
{
    size_t low = 0, high;

    if (!o->lines_read) {
        read_cus(o);
    }
    high = o->nr_cus;
    while (low < high) {
        size_t mid = (low + high) / 2;

        if (o->cus[mid].start <= address) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

/* The piece that an address is in. */
static CuRange *find_cu(Object *o, uint64_t address)
{
    size_t n = cus_until(o, address);

    return n && address < o->cus[n - 1].end ? &o->cus[n - 1] : NULL;
}

bool object_has_lines(Object *o)
{
    if (!o->lines_read) {
        read_cus(o);
    }
    return o->nr_cus;
}

const char *object_line(Object *o, uint64_t address, int *line)
{
    const CuRange *cu = find_cu(o, address);
    Dwarf_Line *l;
    Dwarf_Die die;

    if (!cu || !dwarf_offdie(o->dwarf, cu->die, &die)) {
        return NULL;
    }
    l = dwarf_getsrc_die(&die, address);
    return l && !dwarf_lineno(l, line) && *line ? dwarf_linesrc(l, NULL, NULL)
                                                : NULL;
}

static const char *inlined_name(Dwarf_Die *die)
{
    static const unsigned names[] = { DW_AT_linkage_name, DW_AT_name };

    for (int i = 0; i < 2; i++) {
        Dwarf_Attribute attr;
        const char *name = dwarf_formstring(
            dwarf_attr_integrate(die, names[i], &attr));

        if (name) {
            return readable(keep_text(name));
        }
    }
    return "?";
}

static uint64_t number_in(Dwarf_Die *die, unsigned name)
{
    Dwarf_Attribute attr;
    Dwarf_Word value;

    return dwarf_formudata(dwarf_attr(die, name, &attr), &value) ? 0 : value;
}

/* All of a compilation unit, to be asked for many addresses. */
static void walk(Object *o, Dwarf_Files *files, Dwarf_Die *parent,
                 size_t outer, int depth)
{
    Dwarf_Die die;

    if (depth > 200 || dwarf_child(parent, &die)) {
        return;
    }
    do {
        size_t inside = outer;
        Dwarf_Addr base, start, end;
        ptrdiff_t i = 0;

        switch (dwarf_tag(&die)) {
        case DW_TAG_inlined_subroutine:
            o->inlined = grow(o->inlined, o->nr_inlined, sizeof(*o->inlined));
            inside = ++o->nr_inlined;
            o->inlined[inside - 1] = (Inlined) {
                .call = {
                    inlined_name(&die), dwarf_filesrc(
                        files, number_in(&die, DW_AT_call_file), NULL, NULL),
                    number_in(&die, DW_AT_call_line), inside,
                }, .depth = depth, .outer = outer,
            };
            while ((i = dwarf_ranges(&die, i, &base, &start, &end)) > 0) {
                o->ranges = grow(o->ranges, o->nr_ranges, sizeof(*o->ranges));
                o->ranges[o->nr_ranges++] = (InlinedRange) {
                    start, end, 0, inside - 1
                };
            }
            /* fallthrough */
        case DW_TAG_subprogram:
        case DW_TAG_lexical_block:
        case DW_TAG_namespace:
        case DW_TAG_module:
            walk(o, files, &die, inside, depth + 1);
        }
    } while (!dwarf_siblingof(&die, &die));
}

static int compare_ranges(const void *a, const void *b)
{
    const InlinedRange *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

static void walk_once(Object *o, CuRange *cu)
{
    const uint64_t key = cu->die;
    Dwarf_Files *files = NULL;
    uint64_t max_end = 0;
    Dwarf_Die die;

    if (cu->walked) {
        return;
    }
    cu->walked = true;
    o->walked.item_size = o->walked.key_size = sizeof(key);
    if (table_find(&o->walked, &key) || !dwarf_offdie(o->dwarf, key, &die)) {
        return;
    }
    table_get(&o->walked, &key);
    dwarf_getsrcfiles(&die, &files, NULL);
    walk(o, files, &die, 0, 0);
    if (o->nr_ranges) {
        qsort(o->ranges, o->nr_ranges, sizeof(*o->ranges), compare_ranges);
    }
    for (size_t i = 0; i < o->nr_ranges; i++) {
        max_end = o->ranges[i].end > max_end ? o->ranges[i].end : max_end;
        o->ranges[i].max_end = max_end;
    }
}

/* How many ranges start at the address or before. */
static size_t ranges_until(const Object *o, uint64_t address)
{
    size_t low = 0, high = o->nr_ranges;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (o->ranges[mid].start <= address) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

bool function_has_inlined(Function *f)
{
    Object *o = (Object *)f->object;
    size_t n;

    if (!f->size) {
        return object_has_lines(o);     /* it may be anywhere */
    }
    if (!f->walked) {
        f->walked = true;
        n = cus_until(o, f->start + f->size - 1);
        while (n-- && o->cus[n].end > f->start) {
            walk_once(o, &o->cus[n]);
        }
        n = ranges_until(o, f->start + f->size - 1);
        f->has_inlined = n && o->ranges[n - 1].max_end > f->start;
    }
    return f->has_inlined;
}

int object_inlined(Object *o, uint64_t address, Call *calls, int max)
{
    const Inlined *innermost = NULL;
    CuRange *cu = find_cu(o, address);
    size_t low;
    int n = 0;

    if (!cu) {
        return 0;
    }
    walk_once(o, cu);
    low = ranges_until(o, address);
    while (low-- && o->ranges[low].max_end > address) {
        const Inlined *in = &o->inlined[o->ranges[low].what];

        if (address < o->ranges[low].end &&
            (!innermost || in->depth > innermost->depth)) {
            innermost = in;
        }
    }
    while (innermost && n < max) {
        calls[n++] = innermost->call;
        innermost = innermost->outer ? &o->inlined[innermost->outer - 1]
                                     : NULL;
    }
    return n;
}
