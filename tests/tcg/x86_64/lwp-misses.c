/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * DCache Misses (§2.4) of some programs, for lwp-misses.py to compare with
 * those of the TCG plugin "cache".
 *
 * Each program has a section of its own, and runs once, while it is profiled.
 * Its data are aligned, so that no access has two lines: the plugin takes only
 * the first.  No instruction loads from two places, or loads from one and
 * stores to another: the plugin does not tell them apart.
 */

#define _GNU_SOURCE
#include <emmintrin.h>
#include "../i386/lwp.h"

#define DME             4       /* EventId (Table 2-1) */
#define LINE            64
#define L1D_SIZE        16384
#define FLUSH_SIZE      (4 * L1D_SIZE)
#define RING_SIZE       (16 << 20)
#define CODE_SIZE       4096

#define ALIGNED __attribute__((aligned(LINE)))
#define IN(program) __attribute__((noinline, section("lwp_" #program)))

static uint8_t flush_buffer[FLUSH_SIZE] ALIGNED;
static LwpRecord ring[RING_SIZE / sizeof(LwpRecord)] ALIGNED;
static LwpCb cb ALIGNED;

static uint32_t seed;

static uint32_t random32(void)
{
    seed = seed * 1664525 + 1013904223;
    return seed >> 8;
}

/* Quicksort: a recursion */
#define NR_KEYS 25600

static uint32_t keys[NR_KEYS] ALIGNED;

static void sort_prepare(void)
{
    for (int i = 0; i < NR_KEYS; i++) {
        keys[i] = random32();
    }
}

static IN(sort) void sort_part(uint32_t *first, uint32_t *last)
{
    while (first < last) {
        uint32_t pivot = first[(last - first) / 2];
        uint32_t *i = first, *j = last;

        while (i <= j) {
            while (*i < pivot) {
                i++;
            }
            while (*j > pivot) {
                j--;
            }
            if (i <= j) {
                uint32_t key = *i;

                *i++ = *j;
                *j-- = key;
            }
        }
        sort_part(first, j);
        first = i;
    }
}

static IN(sort) void sort_run(void)
{
    sort_part(keys, keys + NR_KEYS - 1);
}

static bool sort_ok(void)
{
    for (int i = 1; i < NR_KEYS; i++) {
        if (keys[i - 1] > keys[i]) {
            return false;
        }
    }
    return true;
}

/* A hash table that counts: read-modify-write, and atomics */
#define NR_NODES    4000
#define NR_BUCKETS  2048
#define NR_LOOKUPS  20000

typedef struct Node {
    struct Node *next;
    uint64_t key;
    uint32_t count, shared;
    uint64_t sum;
} Node;

_Static_assert(LINE % sizeof(Node) == 0, "no node has two lines");

static Node nodes[NR_NODES] ALIGNED;
static Node *buckets[NR_BUCKETS] ALIGNED;
static uint32_t lookups[NR_LOOKUPS] ALIGNED;
static uint32_t nr_nodes;

static void hash_prepare(void)
{
    for (int i = 0; i < NR_LOOKUPS; i++) {
        lookups[i] = random32() % NR_NODES;
    }
}

static IN(hash) void hash_run(void)
{
    for (int i = 0; i < NR_LOOKUPS; i++) {
        uint64_t key = lookups[i];
        Node **bucket = &buckets[key * 0x9e3779b1 >> 7 & (NR_BUCKETS - 1)];
        Node *n = *bucket;

        while (n && n->key != key) {
            n = n->next;
        }
        if (!n) {
            n = &nodes[nr_nodes++];
            n->next = *bucket;
            n->key = key;
            *bucket = n;
        }
        switch (key % 3) {
        case 0:
            n->count++;
            break;
        case 1:
            __atomic_fetch_add(&n->shared, 1, __ATOMIC_SEQ_CST);
            break;
        default:
            n->sum += __atomic_exchange_n(&n->shared, i, __ATOMIC_SEQ_CST);
        }
    }
}

static bool hash_ok(void)
{
    uint32_t odd = 0, count = 0;

    for (uint32_t i = 0; i < nr_nodes; i++) {
        count += nodes[i].count;
    }
    for (int i = 0; i < NR_LOOKUPS; i++) {
        odd += lookups[i] % 3 != 0;
    }
    return count + odd == NR_LOOKUPS;
}

/* Matrices: vectors and scalars */
#define ORDER 48

_Static_assert(ORDER % 2 == 0, "rows consist of vectors");

static double ma[ORDER][ORDER] ALIGNED, mb[ORDER][ORDER] ALIGNED;
static double mc[ORDER][ORDER] ALIGNED, trace;

static void matrix_prepare(void)
{
    for (int i = 0; i < ORDER; i++) {
        for (int j = 0; j < ORDER; j++) {
            ma[i][j] = i == j ? 2 : 0;
            mb[i][j] = i + j;
        }
    }
}

static IN(matrix) void matrix_run(void)
{
    for (int i = 0; i < ORDER; i++) {
        for (int j = 0; j < ORDER; j++) {
            double sum = 0;

            for (int k = 0; k < ORDER; k++) {
                sum += ma[i][k] * mb[k][j];
            }
            mc[i][j] = sum;
        }
    }
    for (int i = 0; i < ORDER; i++) {
        for (int j = 0; j < ORDER; j += 2) {
            __m128d *c = (__m128d *)&mc[i][j];

            *c = _mm_add_pd(*c, *(__m128d *)&mb[i][j]);
        }
        for (int j = 0; j < ORDER; j++) {
            trace += mb[j][i] * mc[i][j];
        }
    }
}

static bool matrix_ok(void)
{
    /* C is three times B, which is symmetric. */
    double sum = 0;

    for (int i = 0; i < ORDER; i++) {
        for (int j = 0; j < ORDER; j++) {
            sum += 3.0 * (i + j) * (i + j);
        }
    }
    return trace == sum;
}

/* Merge sort of a list in random order: pointers */
#define NR_ITEMS 3000

typedef struct Item {
    struct Item *next;
    uint32_t key, unused[5];
} Item;

_Static_assert(LINE % sizeof(Item) == 0, "no item has two lines");

static Item items[NR_ITEMS] ALIGNED;
static Item *list;

static void list_prepare(void)
{
    for (int i = 0; i < NR_ITEMS; i++) {
        items[i].key = random32();
        items[i].next = list;
        list = &items[i];
    }
}

static IN(list) Item *list_merge(Item *a, Item *b)
{
    Item *first = NULL, **end = &first;

    while (a && b) {
        Item **least = a->key <= b->key ? &a : &b;

        *end = *least;
        end = &(*least)->next;
        *least = *end;
    }
    *end = a ? a : b;
    return first;
}

static IN(list) Item *list_sort(Item *first)
{
    Item *middle = first, *end = first ? first->next : NULL, *second;

    if (!end) {
        return first;
    }
    while (end && end->next) {
        middle = middle->next;
        end = end->next->next;
    }
    second = middle->next;
    middle->next = NULL;
    return list_merge(list_sort(first), list_sort(second));
}

static IN(list) void list_run(void)
{
    list = list_sort(list);
}

static bool list_ok(void)
{
    int n = 0;

    for (Item *i = list; i; i = i->next) {
        n += !i->next || i->key <= i->next->key;
    }
    return n == NR_ITEMS;
}

/* Text: bytes, string instructions and vectors */
#define TEXT_SIZE 65536

static uint8_t text[TEXT_SIZE] ALIGNED;
static uint32_t histogram[256] ALIGNED;
static uint32_t words, lines, commas;

static void text_prepare(void)
{
    for (int i = 0; i < TEXT_SIZE; i++) {
        text[i] = "etaoin shrdlu,\n"[random32() % 15];
    }
    text[TEXT_SIZE - 1] = '\n';
}

static IN(text) void text_run(void)
{
    const __m128i comma = _mm_set1_epi8(',');
    const uint8_t *p = text;
    unsigned long left = TEXT_SIZE;
    bool in_word = false;

    for (int i = 0; i < TEXT_SIZE; i++) {
        bool letter = text[i] > ',';

        words += letter && !in_word;
        in_word = letter;
        histogram[text[i]]++;
    }
    while (left) {
        asm volatile("repne scasb" : "+D" (p), "+c" (left) : "a" ('\n')
                     : "memory");
        lines++;
    }
    for (int i = 0; i < TEXT_SIZE; i += 16) {
        __m128i v = _mm_load_si128((const __m128i *)&text[i]);

        commas += __builtin_popcount(
            _mm_movemask_epi8(_mm_cmpeq_epi8(v, comma)));
    }
}

static bool text_ok(void)
{
    uint32_t n = 0;

    for (int i = 0; i < TEXT_SIZE; i++) {
        n += text[i] > ',' && (i == 0 || text[i - 1] <= ',');
    }
    return words == n && lines == histogram['\n'] && commas == histogram[','];
}

#define PROGRAM(name) \
    { \
        #name, name##_prepare, name##_run, name##_ok, \
        __start_lwp_##name, __stop_lwp_##name, \
    }

/* Where a section starts and ends, by the linker */
#define CODE(name) void __start_lwp_##name(void), __stop_lwp_##name(void)

CODE(sort);
CODE(hash);
CODE(matrix);
CODE(list);
CODE(text);

static const struct Program {
    const char *name;
    void (*prepare)(void);
    void (*run)(void);
    bool (*ok)(void);
    void (*start)(void), (*end)(void);
} programs[] = {
    PROGRAM(sort), PROGRAM(hash), PROGRAM(matrix), PROGRAM(list), PROGRAM(text),
};

/*
 * The plugin has seen accesses that LWP has not.  Reading four times as much as
 * fits makes no difference of that, and misses every line of the buffer.
 * Nothing else is read here.
 */
static void profile(void (*run)(void), int32_t interval)
{
    const uint8_t *p = flush_buffer, *end = flush_buffer + FLUSH_SIZE;
    LwpCb *profiled = &cb;

    lwp_init(&cb, ring, RING_SIZE, 1u << DME);
    cb.event[DME - 1].interval = interval;
    cb.event[DME - 1].counter = interval;
    asm volatile("mov %%rsp, %%r12\n"
                 "sub $128, %%rsp\n"
                 "and $-64, %%rsp\n"
                 "llwpcb %[cb]\n"
                 "1: mov (%[p]), %%al\n"
                 "add %[line], %[p]\n"
                 "cmp %[end], %[p]\n"
                 "jne 1b\n"
                 "call *%[run]\n"
                 "xor %%eax, %%eax\n"
                 "llwpcb %%rax\n"
                 "mov %%r12, %%rsp"
                 : [p] "+S" (p), [end] "+d" (end), [cb] "+D" (profiled)
                 : [run] "b" (run), [line] "i" (LINE)
                 : "rax", "rcx", "r8", "r9", "r10", "r11", "r12", "memory",
                   "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
                   "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
                   "xmm13", "xmm14", "xmm15");
}

/* How many misses LWP has counted, and those of the program by address */
static void print_misses(const struct Program *program)
{
    static uint32_t misses[CODE_SIZE];
    uint64_t start = (uintptr_t)program->start;
    uint32_t records = cb.head / sizeof(LwpRecord);
    int64_t interval = cb.event[DME - 1].interval;
    int64_t total = records * (interval + 1) + interval -
                    cb.event[DME - 1].counter;

    memset(misses, 0, sizeof(misses));
    for (uint32_t i = 0; i < records; i++) {
        if (ring[i].ip - start < CODE_SIZE) {
            misses[ring[i].ip - start]++;
        }
    }
    printf("program %s %lx %lx %ld\n", program->name, (long)start,
           (long)program->end, (long)total - FLUSH_SIZE / LINE);
    for (int i = 0; i < CODE_SIZE; i++) {
        if (misses[i] && interval == 0) {
            printf("misses %lx %u\n", (long)start + i, misses[i]);
        }
    }
}

/* The argument, if any, is EventInterval4. */
int main(int argc, char **argv)
{
    int32_t interval = argc > 1 ? atoi(argv[1]) : 0;

    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        const struct Program *program = &programs[i];
        bool ok = true;

        program->prepare();
        profile(program->run, interval);
        print_misses(program);
        for (uint32_t n = 0; n < cb.head / sizeof(LwpRecord); n++) {
            ok &= ring[n].event == DME;
        }
        report(ok && cb.head && cb.missed == 0 &&
               cb.event[DME - 1].interval == interval,
               "%s: there are records of misses, and none is missed",
               program->name);
        report(program->ok(), "%s: its result is right", program->name);
    }
    return report_summary();
}
