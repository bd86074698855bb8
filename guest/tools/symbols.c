/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names of the code and data in ELF files, and of code that a program has
 * compiled while it ran.
 */
#include <gelf.h>
#include <inttypes.h>
#include <libiberty/demangle.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "object.h"
#include "text.h"

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

const char *readable_name(const char *name)
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
                s->function.name = readable_name(s->function.name);
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
