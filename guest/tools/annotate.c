/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lwp annotate: a function's instructions, and the records that each has.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "commands.h"
#include "names.h"
#include "report.h"
#include "terminal.h"

enum {
    OPTION_OBJDUMP = OPTION_OWN,
    OPTION_FULL_NAMES,
};

static const char help[] =
    "Usage: lwp annotate [OPTION]... FUNCTION\n"
    "Show how many records each instruction of a function has.\n\n"
    PROFILE_HELP
    "  -d, --dso NAME         only the function of this program or library\n"
    "      --full-names       names whole, and lines not cut\n"
    "      --objdump PROGRAM  what shows the instructions (objdump)\n";

/* The counts at an address. */
typedef struct Site {
    uint64_t address;
    uint64_t count[256];
} Site;

typedef struct Annotation {
    const Function *function;
    Table sites;
    uint64_t total[256];
    int indent;             /* of what is behind the counts */
    const char *file;       /* of the source line that was shown last */
    int line;
    FILE *source;           /* that file, if it can be read */
    int source_line;        /* that would be read next */
    const char *inlined;    /* what was shown last */
} Annotation;

/* A name, as far as there is room for it in a line with so much else. */
static void put_name(const char *name, size_t columns)
{
    const size_t least = 20;

    put_text_cut(stdout, name_shown(name), TEXT_PLAIN, !terminal_width ? 0 :
                 terminal_width < columns + least ? least :
                 terminal_width - columns);
}

/* Where the instruction is from, if that is another function. */
static void put_inlined(Annotation *a, uint64_t address)
{
    Place place = { .function = a->function, .address = address };
    const char *inlined = place_inlined(&place);

    if (inlined != a->inlined && (a->inlined || *inlined)) {
        printf("%*s[", a->indent, "");
        put_name(*inlined ? inlined : a->function->name,
                 a->indent + strlen("[]"));
        printf("]\n");
        a->inlined = inlined;
    }
}

/* The text of a source line, as far as the file is there. */
static void put_source(Annotation *a, uint64_t address)
{
    const char *file;
    char *text = NULL;
    size_t room = 0;
    int line;

    file = object_line((Object *)a->function->object, address, &line);
    if (!file || (a->file && line == a->line && !strcmp(file, a->file))) {
        return;
    }
    if (!a->file || strcmp(file, a->file)) {
        char *path = NULL;

        if (a->source) {
            fclose(a->source);
        }
        if (asprintf(&path, "%s%s", symbols_root, file) < 0) {
            path = NULL;
        }
        a->source = path ? fopen(path, "re") : NULL;
        /* The source is where it was compiled, not where it runs. */
        if (!a->source) {
            a->source = fopen(file, "re");
        }
        a->source_line = 1;
        free(path);
    }
    a->file = keep_text(file);
    a->line = line;
    file = strrchr(a->file, '/') ? strrchr(a->file, '/') + 1 : a->file;
    printf("%*s", a->indent, "");
    put_text(stdout, file, TEXT_PLAIN);
    printf(":%d", line);
    if (a->source && line < a->source_line) {
        rewind(a->source);
        a->source_line = 1;
    }
    while (a->source && a->source_line <= line) {
        ssize_t n = getline(&text, &room, a->source);

        if (n < 0) {
            break;
        }
        if (a->source_line++ == line) {
            text[strcspn(text, "\n")] = 0;
            for (char *t = text; *t; t++) {
                *t = *t == '\t' ? ' ' : *t;
            }
            printf("  ");
            put_text(stdout, text, TEXT_PLAIN);
        }
    }
    free(text);
    printf("\n");
}

static int compare_sites(const void *a, const void *b)
{
    const Site *x = a, *y = b;

    return x->address < y->address ? -1 : x->address > y->address;
}

/* NAME, or NULL, is what follows the text: where it jumps to, or loads from. */
static void put_site(Annotation *a, const Site *site, uint64_t address,
                     const char *text, const char *name)
{
    size_t columns = a->indent - 2 + text_columns(text);

    put_inlined(a, address);
    put_source(a, address);
    for (int event = 1; event < 256; event++) {
        if (!a->total[event]) {
            continue;
        }
        if (site && site->count[event]) {
            double share = 100.0 * site->count[event] / a->total[event];

            printf(" %9" PRIu64 " %s%6.2f%%%s", site->count[event],
                   terminal_colour(share), share, terminal_plain());
        } else {
            printf(" %9s %7s", "", "");
        }
    }
    columns += printf("  %8" PRIx64 "%s", address, *text ? ":  " : "");
    put_text(stdout, text, TEXT_PLAIN);
    if (name) {
        printf("<");
        put_name(keep_text(name), columns + 1);
    }
    printf("\n");
}

/* A pipe from objdump with this function's instructions. */
static FILE *start_objdump(const Function *f, const char *program, pid_t *pid)
{
    char start[40], stop[40];
    int fd[2];
    FILE *in;

    if (!f->size || !object_file(f->object) || pipe(fd)) {
        return NULL;
    }
    snprintf(start, sizeof(start), "--start-address=0x%" PRIx64, f->start);
    snprintf(stop, sizeof(stop), "--stop-address=0x%" PRIx64,
             f->start + f->size);
    fflush(stdout);
    *pid = fork();
    if (*pid == 0) {
        dup2(fd[1], STDOUT_FILENO);
        close(fd[0]);
        close(fd[1]);
        execlp(program, program, "-d", "-C", "--no-show-raw-insn", start, stop,
               "--", object_file(f->object), NULL);
        _exit(127);
    }
    close(fd[1]);
    in = *pid > 0 ? fdopen(fd[0], "r") : NULL;
    if (!in) {
        close(fd[0]);
    }
    return in;
}

static void put_sites(Annotation *a, const char *objdump)
{
    size_t next = 0, room = 0;
    char *text = NULL, *name;
    int status = 0;
    pid_t pid = -1;
    FILE *in = start_objdump(a->function, objdump, &pid);

    while (in && getline(&text, &room, in) > 0) {
        const Site *site = NULL;
        uint64_t address;
        int skip = 0;

        if (sscanf(text, " %" SCNx64 ": %n", &address, &skip) < 1 || !skip ||
            *text != ' ') {
            continue;
        }
        text[strcspn(text, "\n")] = 0;
        for (char *t = text + skip; *t; t++) {
            *t = *t == '\t' ? ' ' : *t;
        }
        name = strchr(text + skip, '<');
        if (name) {
            *name++ = 0;
        }
        for (; next < a->sites.count; next++) {
            site = table_at(&a->sites, next);
            if (site->address >= address) {
                break;
            }
            put_site(a, site, site->address, "(no instruction starts here)",
                     NULL);
        }
        if (next < a->sites.count && site->address == address) {
            next++;
        } else {
            site = NULL;
        }
        put_site(a, site, address, text + skip, name);
    }
    free(text);
    if (in) {
        fclose(in);
        waitpid(pid, &status, 0);
    }
    if (!in || status) {
        printf("# There are no instructions, as %s %s: these are the addresses "
               "that have records.\n",
               object_file(a->function->object) ? objdump : "the file",
               !object_file(a->function->object) ? "is not here" :
               !a->function->size ? "would not find a function" :
               in && WIFEXITED(status) && WEXITSTATUS(status) == 127 ?
               "is not installed" : "failed");
    }
    for (; next < a->sites.count; next++) {
        const Site *site = table_at(&a->sites, next);

        put_site(a, site, site->address, "", NULL);
    }
}

static void annotate(const Profile *p, const Function *f, const char *objdump)
{
    Annotation a = { .function = f, .sites = TABLE(Site, count) };

    for (size_t i = 0; i < p->entries.count; i++) {
        const Entry *e = table_at(&p->entries, i);

        if (function_at(p, e->from) == f) {
            const Place place = entry_from(p, e);
            Site *site = table_get(&a.sites, &place.address);

            site->count[e->event] += e->count;
            a.total[e->event] += e->count;
        }
    }
    qsort(a.sites.items, a.sites.count, sizeof(Site), compare_sites);
    printf("# ");
    put_name(f->name,
             strlen("#  in ") + text_columns(object_path(f->object)));
    printf(" in ");
    put_text(stdout, object_path(f->object), TEXT_PLAIN);
    printf("\n");
    for (int event = 1; event < 256; event++) {
        if (a.total[event]) {
            printf("# %s: %" PRIu64 " of %" PRIu64 " records of %s (%.2f%%)\n",
                   event_name(event), a.total[event], p->records[event],
                   event_title(event),
                   100.0 * a.total[event] / p->records[event]);
        }
    }
    if (p->missed) {
        printf("# WARNING: %" PRIu64 " records of the profile were missed\n",
               p->missed);
    }
    printf("#\n#");
    for (int event = 1; event < 256; event++) {
        if (a.total[event]) {
            printf("%*s%17s", a.indent ? 1 : 0, "", event_name(event));
            a.indent += 18;
        }
    }
    printf("   address\n#\n");
    a.indent += 2;
    put_sites(&a, objdump);
    if (a.source) {
        fclose(a.source);
    }
    table_free(&a.sites);
}

/* The name, with or without what follows it: parameters. */
static bool is_same(const char *whole, const char *name)
{
    size_t length = strlen(name);

    return !strncmp(whole, name, length) &&
           (!whole[length] ||
            (whole[length] == '(' && !strstr(whole, ")@plt")));
}

/* By its symbol, or as in the source, whole or as it is shown. */
static bool is_called(const Function *f, const char *name)
{
    return !strcmp(f->linkage, name) || is_same(f->name, name) ||
           is_same(name_short(f->name), name);
}

int cmd_annotate(int argc, char **argv)
{
    static const struct option longs[] = {
        { "dso", required_argument, NULL, 'd' },
        { "full-names", no_argument, NULL, OPTION_FULL_NAMES },
        { "objdump", required_argument, NULL, OPTION_OBJDUMP },
        { 0 },
    };
    const char *dso = NULL, *objdump = "objdump", *name;
    Table functions = { .item_size = 8, .key_size = 8 };
    ProfileOptions options = { 0 };
    bool ok = true, *called;
    int option;
    Profile p;

    argv[0] = "lwp annotate";
    while ((option = profile_getopt(argc, argv, "d:", longs, &options,
                                    help)) != -1) {
        if (option == 'd') {
            dso = optarg;
        } else if (option == OPTION_OBJDUMP) {
            objdump = optarg;
        } else if (option == OPTION_FULL_NAMES) {
            names_full = true;
        } else {
            return 2;
        }
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "lwp annotate: one function is needed; "
                "see --help\n");
        return 2;
    }
    name = argv[optind];
    if (!profile_load(&p, &options)) {
        return 1;
    }
    terminal_init();
    called = zeroed(p.nr_functions + 1, sizeof(*called));
    for (size_t i = 0; i < p.nr_functions; i++) {
        const Function *f = function_at(&p, i);
        const char *path = object_path(f->object);
        const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;

        called[i] = is_called(f, name) &&
                    (!dso || !strcmp(dso, path) || !strcmp(dso, base));
    }
    for (size_t i = 0; i < p.entries.count; i++) {
        const Entry *e = table_at(&p.entries, i);
        uint64_t key = (uintptr_t)function_at(&p, e->from);

        if (called[e->from]) {
            table_get(&functions, &key);
        }
    }
    free(called);
    for (size_t i = 0; i < functions.count; i++) {
        uint64_t key = *(uint64_t *)table_at(&functions, i);

        printf("%s", i ? "\n" : "");
        annotate(&p, (const Function *)(uintptr_t)key, objdump);
    }
    if (!functions.count) {
        fprintf(stderr, "lwp: %s has no records\n", name);
        ok = false;
    }
    ok = output_written() && ok;
    table_free(&functions);
    profile_close(&p);
    return !ok;
}
