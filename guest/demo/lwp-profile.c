/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Profile zlib by instructions retired, with AMD Lightweight Profiling.
 *
 * usage: lwp-profile [CPU]
 *
 * Compress and decompress a text while LWP samples every INTERVAL + 1st
 * instruction (§2.2), empty the ring between two pieces of it, and show which
 * functions the samples are in.  As for lwp-demo, the program stays on one CPU.
 */

#include "lwp.h"
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum {
    INTERVAL = 1008,            /* a prime less one: no loop has that length */
    TEXT_SIZE = 1 << 20,
    PIECE = 1 << 14,
    RING_RECORDS = 4096,
    SHOWN = 12,
};

typedef struct Function {
    uint64_t start, size;
    const char *name;
    unsigned samples;
} Function;

static Function *functions;
static unsigned nr_functions;

static struct {
    ControlBlock cb;
    uint8_t rest[512];          /* events, and what a later version adds */
} lwpcb __attribute__((aligned(64)));
static Record ring[RING_RECORDS];
static unsigned samples, elsewhere;

static int by_start(const void *a, const void *b)
{
    const Function *f = a, *g = b;

    return f->start < g->start ? -1 : f->start > g->start;
}

static int by_samples(const void *a, const void *b)
{
    const Function *f = a, *g = b;

    return f->samples > g->samples ? -1 : f->samples < g->samples;
}

/* The functions in this program's own symbol table. */
static void read_symbols(void)
{
    int fd = open("/proc/self/exe", O_RDONLY);
    struct stat st;
    const uint8_t *elf;
    const Elf64_Ehdr *header;
    const Elf64_Shdr *section;

    if (fd < 0 || fstat(fd, &st) != 0) {
        fail("cannot open /proc/self/exe");
    }
    elf = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (elf == MAP_FAILED) {
        fail("cannot map /proc/self/exe");
    }
    header = (const Elf64_Ehdr *)elf;
    section = (const Elf64_Shdr *)(elf + header->e_shoff);
    for (unsigned i = 0; i < header->e_shnum; i++) {
        const Elf64_Sym *sym = (const Elf64_Sym *)(elf + section[i].sh_offset);
        size_t n = section[i].sh_size / sizeof(*sym);
        const char *names;

        if (section[i].sh_type != SHT_SYMTAB) {
            continue;
        }
        names = (const char *)elf + section[section[i].sh_link].sh_offset;
        functions = calloc(n, sizeof(*functions));
        if (!functions) {
            fail("out of memory");
        }
        for (size_t k = 0; k < n; k++) {
            unsigned type = ELF64_ST_TYPE(sym[k].st_info);

            if ((type == STT_FUNC || type == STT_GNU_IFUNC) && sym[k].st_size) {
                functions[nr_functions++] = (Function) {
                    sym[k].st_value, sym[k].st_size, names + sym[k].st_name, 0
                };
            }
        }
    }
    if (!nr_functions) {
        fail("this program has no symbols");
    }
    qsort(functions, nr_functions, sizeof(*functions), by_start);
}

static void count_sample(const Record *r)
{
    unsigned low = 0, high = nr_functions;

    if (r->event_id != EVENT_IRE || r->flags || r->data1 || r->data2) {
        fail("a record is not one of instructions retired");
    }
    samples++;
    /* The last function that starts at or before the address. */
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;

        if (functions[middle].start <= r->ip) {
            low = middle;
        } else {
            high = middle;
        }
    }
    if (r->ip - functions[low].start < functions[low].size) {
        functions[low].samples++;
    } else {
        elsewhere++;
    }
}

/* LWP is disabled, or else the profiler would profile itself. */
static void drain(void)
{
    ControlBlock *cb = &lwpcb.cb;

    while (cb->buffer_tail_offset != cb->buffer_head_offset) {
        count_sample(&ring[cb->buffer_tail_offset / sizeof(Record)]);
        cb->buffer_tail_offset += sizeof(Record);
        cb->buffer_tail_offset %= sizeof(ring);
    }
}

/* English-like: words of a few lengths and letters, some much more often. */
static void make_text(uint8_t *text)
{
    uint32_t seed = 1;

    for (unsigned i = 0; i < TEXT_SIZE; i++) {
        seed = seed * 1103515245 + 12345;
        text[i] = (seed >> 28) < 3 ? ' ' :
                  "etaoinshrdlucmfwe"[(seed >> 16 & 255) % 17];
        if (i > 4096 && (seed >> 8 & 63) == 0) {
            unsigned n = (seed >> 20 & 31) + 4;

            for (; n && i + 1 < TEXT_SIZE; n--, i++) {
                text[i + 1] = text[i + 1 - 4000];
            }
        }
    }
}

/* The program being profiled; returns the compressed size. */
static unsigned long work(const uint8_t *text)
{
    static uint8_t packed[2 * PIECE], back[PIECE];
    unsigned long total = 0;

    for (unsigned i = 0; i < TEXT_SIZE; i += PIECE) {
        unsigned long size = sizeof(packed), back_size = sizeof(back);

        if (compress2(packed, &size, text + i, PIECE, 6) != Z_OK ||
            uncompress(back, &back_size, packed, size) != Z_OK ||
            back_size != PIECE || memcmp(back, text + i, PIECE) != 0) {
            fail("zlib does not give back what it was given");
        }
        total += size;
        /* Stop, saving the counter, and go on with it (§5.1). */
        __llwpcb(NULL);
        drain();
        __llwpcb(&lwpcb);
    }
    return total;
}

static void start(const Lwp *lwp)
{
    Event *event = (Event *)((char *)&lwpcb + lwp->event_offset) +
                   EVENT_IRE - 1;

    if (lwp->cb_size > sizeof(lwpcb)) {
        fail("the LWPCB is larger than in LWP version 1");
    }
    lwpcb.cb.flags = LWP_IRE;
    lwpcb.cb.buffer_size = sizeof(ring);
    lwpcb.cb.buffer_base = (uintptr_t)ring;
    *event = (Event) { INTERVAL, INTERVAL };
    __llwpcb(&lwpcb);
    if (!(lwpcb.cb.flags & LWP_IRE)) {
        fail("LLWPCB did not enable the LwpIRE event");
    }
}

static void print_histogram(void)
{
    unsigned shown = 0;

    qsort(functions, nr_functions, sizeof(*functions), by_samples);
    for (unsigned i = 0; i < nr_functions && i < SHOWN; i++) {
        const Function *f = &functions[i];
        double percent = 100.0 * f->samples / samples;

        if (f->samples) {
            printf("%6.2f %%  %6u  %-24s ", percent, f->samples, f->name);
            for (double bar = 0; bar < percent; bar += 2) {
                putchar('#');
            }
            putchar('\n');
            shown += f->samples;
        }
    }
    printf("%6.2f %%  %6u  others\n", 100.0 * (samples - shown) / samples,
           samples - shown);
}

int main(int argc, char **argv)
{
    Lwp lwp = detect();
    uint8_t *text = malloc(TEXT_SIZE);
    unsigned long size;

    pin(argc > 1 ? argv[1] : NULL);
    if (!(lwp.eax & LWP_IRE)) {
        fail("the LwpIRE event is not available");
    }
    if (!text) {
        fail("out of memory");
    }
    read_symbols();
    make_text(text);
    /* Nothing of it may have to be paged in later. */
    memset(ring, 0, sizeof(ring));

    start(&lwp);
    size = work(text);
    __llwpcb(NULL);
    drain();

    printf("zlib, %u KiB of text to %lu KiB and back: %u samples, one in %u "
           "instructions\n", TEXT_SIZE >> 10, size >> 10, samples,
           INTERVAL + 1);
    print_histogram();
    if (lwpcb.cb.missed_events) {
        fail("the ring was too small");
    }
    if (elsewhere > samples / 50 || samples < 10000) {
        fail("the samples are not where this program is");
    }
    return 0;
}
