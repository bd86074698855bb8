/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LWP's DCache Miss events (§2.4): records, filters, clocks, faults.
 *
 * An argument is the value of the CPU's property dram-latency, if it is
 * not the default.
 */

#define _GNU_SOURCE
#include "lwp-work.h"
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#if TEST_64BIT
#include <asm/prctl.h>
#else
#include <asm/ldt.h>
#endif

/* The default caches; a victim of L2 moves to L3, and back when it is used. */
#define KB          1024u
#define MB          (1024 * KB)
#define LINE        64u
#define L1_SIZE     (16 * KB)
#define L1_WAYS     4
#define L1_WAY      (L1_SIZE / L1_WAYS)
#define L2_SIZE     (2 * MB)
#define L2_WAYS     16
#define L2_WAY      (L2_SIZE / L2_WAYS)
#define L3_SIZE     (8 * MB)
#define L3_WAY      (128 * KB)

enum { HIT = -1, L2, L3, REMOTE, DRAM, SOURCES };   /* SRC (Figure 2-5) */
static uint32_t latency[SOURCES] = { 20, 60, 120, 200 };
static const char *const source_name[SOURCES] = {
    "L2", "L3", "remote", "DRAM"
};

#define RING_SIZE   (512 * KB)
#define RECORDS     (RING_SIZE / sizeof(LwpRecord))
#define MANY        0x1ffffff

enum { DME = 4, CNH, RNH };

#define FLAG(event)     (1u << (event))
#define DAV             0x1000      /* Figure 2-5, in the record's flags */
#define SRC(source)     ((source) << 13)

#if TEST_64BIT
#define WORD "8"
#define IRET "iretq"
#define SEG "gs"
#else
#define WORD "4"
#define IRET "iret"
#define SEG "fs"
#endif

#define SI "(" R "si" ")"
#define DI "(" R "di" ")"

/* Of each thread */
static __thread LwpCb cb;
static __thread LwpRecord *ring;

static void prepare(uint32_t flags, int interval)
{
    if (!ring) {
        ring = map_pages(RING_SIZE / PAGE, PROT_READ | PROT_WRITE);
    }
    memset(ring, 0, cb.head);
    lwp_init(&cb, ring, RING_SIZE, flags);
    for (int i = 0; i < 6; i++) {
        cb.event[i].interval = cb.event[i].counter = interval;
    }
}

static unsigned records(void)
{
    return cb.head / sizeof(LwpRecord);
}

/* All events since prepare(), with a record or without (§1.1 step 5) */
static uint64_t total(int event)
{
    int interval = cb.event[event - 1].interval;
    /* 26 bits with a sign (Table 6-1) */
    int32_t counter = (uint32_t)cb.event[event - 1].counter << 6;
    int64_t n = interval - (counter >> 6);

    for (unsigned k = 0; k < records(); k++) {
        n += ring[k].event == event ? interval + 1 : 0;
    }
    return n;
}

/* §2.4.1: what a record says of a latency */
static uint32_t recorded(uint32_t clocks)
{
    uint32_t ecx = cpuid_reg(0x8000001c, 0, 2);
    uint32_t unit = 1u << (ecx >> 6 & 7), max = (1u << (ecx & 0x1f)) - unit;

    clocks &= -unit;
    return clocks < max ? clocks : max;
}

static bool miss_is(const LwpRecord *r, int source, uintptr_t ip,
                    const void *addr)
{
    return record_is(r, DME, DAV | SRC(source), recorded(latency[source]), ip,
                     (uintptr_t)addr);
}

/* Memory that no cache has seen, on an own page, zeroed */
static void *fresh(unsigned size)
{
    static char *next, *end;
    void *p;

    size = (size + PAGE - 1) & -PAGE;
    if (next + size > end) {
        unsigned chunk = size > MB ? size : MB;

        next = map_pages(chunk / PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
        end = next + chunk;
    }
    p = next;
    next += size;
    return p;
}

/*
 * Run @code with LWP, and @before without.  They may use all registers but BP,
 * and the stack if no cache is to see it; @code has a label 77, which goes to
 * lwp_ip.  The XOR counts as an instruction.
 */
#define run(before, code, si, di, cx) \
    ({ \
        uintptr_t si_ = (uintptr_t)(si), di_ = (uintptr_t)(di), cx_ = (cx); \
        void *ax_ = &cb; \
        asm volatile(before "\nllwpcb " R "ax" "\n" code \
                     "\nxor %%eax, %%eax\n llwpcb " R "ax" "\n" \
                     LEA("77b", R "dx") \
                     : "+a" (ax_), "=d" (lwp_ip), "+S" (si_), "+D" (di_), \
                       "+c" (cx_) \
                     : : "ebx", "memory", "cc"); \
    })

/* Where a load from @p finds it */
static int load(void *p)
{
    prepare(FLAG(DME), 0);
    run("", "77: mov " SI ", %%al", p, 0, 0);
    return records() ? ring[0].flags >> 13 : HIT;
}

static int store(void *p)
{
    prepare(FLAG(DME), 0);
    run("", "77: mov %%al, " SI, p, 0, 0);
    return records() ? ring[0].flags >> 13 : HIT;
}

static void load_each(void *p, int n, unsigned stride)
{
    for (int i = 0; i < n; i++) {
        load((char *)p + i * stride);
    }
}

/*
 * Textbook
 */

/* All @n loads of a loop, which has @insns instructions: events and clocks */
static bool loop_is(unsigned n, int insns, uint64_t events, uint64_t clocks)
{
    uint64_t all = (uint64_t)n * insns + 1 + clocks;

    return total(DME) == events && total(CNH) == all && total(RNH) == all;
}

static void prepare_loop(void)
{
    prepare(FLAG(DME) | FLAG(CNH) | FLAG(RNH), MANY);
}

static void test_strides(void)
{
    static const unsigned strides[] = { 1, 2, 8, 32, 60, 64, 128, 256, 4096 };
    enum { N = 4096 };

    for (int i = 0; i < (int)(sizeof(strides) / sizeof(strides[0])); i++) {
        unsigned stride = strides[i];
        unsigned lines = stride >= LINE ? N : ((N - 1) * stride) / LINE + 1;

        prepare_loop();
        run("", "77: movb " SI ", %%al\n add " R "di" ", " R "si" "\n"
            "dec %%ecx\n jnz 77b", fresh(N * stride), stride, N);
        report(loop_is(N, 4, lines, (uint64_t)lines * latency[DRAM]),
               "%u bytes %u apart are in %u lines", N, stride, lines);
    }
}

/* The rows of a matrix, and its columns, each of which is in 8 sets of L1 */
static void test_matrix(void)
{
    enum { N = 128, LINES = N * N * sizeof(int) / LINE };
    uint64_t events = 0, clocks = 0;
    char *p = fresh(LINES * LINE);

    prepare_loop();
    run("", "77: add " SI ", %%eax\n add $4, " R "si" "\n dec %%ecx\n jnz 77b",
        fresh(LINES * LINE), 0, N * N);
    report(loop_is(N * N, 4, LINES, LINES * latency[DRAM]),
           "a matrix by rows misses once per line");

    for (int column = 0; column < N; column++) {
        prepare_loop();
        run("", "77: add " SI ", %%eax\n add $512, " R "si" "\n"
            "dec %%ecx\n jnz 77b", p + column * sizeof(int), 0, N);
        events += total(DME);
        clocks += total(CNH) - N * 4 - 1;
    }
    report(events == N * N && clocks == LINES * latency[DRAM] +
           (N * N - LINES) * latency[L2],
           "a matrix by columns misses L1 every time");
}

/* A list in another order than that of its addresses; @n is no multiple. */
static void *make_list(char *p, unsigned n)
{
    enum { STEP = 4099 };           /* prime */

    for (unsigned i = 0; i < n; i++) {
        *(void **)(p + i * LINE) = p + (i + STEP) % n * LINE;
    }
    return p;
}

static void test_working_sets(void)
{
    static const struct {
        unsigned size;
        int source;
    } t[] = {
        { L1_SIZE / 2, HIT }, { L1_SIZE, HIT },
        { L1_SIZE + L1_WAY, L2 }, { 128 * KB, L2 }, { L2_SIZE, L2 },
        { L2_SIZE + L2_WAY, L3 }, { 4 * MB, L3 }, { L2_SIZE + L3_SIZE, L3 },
        { L2_SIZE + L3_SIZE + L3_WAY, DRAM }, { 12 * MB, DRAM },
    };

    for (int i = 0; i < (int)(sizeof(t) / sizeof(t[0])); i++) {
        unsigned n = t[i].size / LINE;
        void *p = make_list(fresh(t[i].size), n);

        for (int pass = 0; pass < 3; pass++) {
            int source = pass ? t[i].source : DRAM;
            unsigned misses = source == HIT ? 0 : n;

            prepare_loop();
            run("", "77: mov " SI ", " R "si" "\n dec %%ecx\n jnz 77b",
                p, 0, n);
            report(loop_is(n, 3, misses, source == HIT ? 0 :
                           (uint64_t)n * latency[source]),
                   "list of %u KiB, pass %d: %u misses, %s",
                   t[i].size / KB, pass + 1, misses,
                   source == HIT ? "none" : source_name[source]);
        }
    }
}

/* The least recently used line of a set makes room. */
static void test_replacement(void)
{
    char *p = fresh(2 * L1_WAYS * L1_WAY), *q;
    bool ok = true;

    for (int round = 0; round < 5; round++) {
        for (int i = 0; i <= L1_WAYS; i++) {
            ok &= load(p + i * L1_WAY) == (round ? L2 : DRAM);
        }
    }
    report(ok, "5 lines of a set with 4 ways always miss");
    p = fresh(2 * L1_WAYS * L1_WAY);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < L1_WAYS; i++) {
            ok &= load(p + i * L1_WAY) == (round ? HIT : DRAM);
        }
    }
    report(ok, "4 lines stay");
    ok = load(p) == HIT && load(p + 4 * L1_WAY) == DRAM;
    report(ok && load(p) == HIT && load(p + 2 * L1_WAY) == HIT &&
           load(p + 3 * L1_WAY) == HIT && load(p + 1 * L1_WAY) == L2,
           "the one that was not used for longest has gone");
    ok = load(p + LINE) == DRAM && load(p + L1_WAY + LINE) == DRAM;
    report(ok && load(p + 2 * L1_WAY) == HIT, "other sets have room");

    p = fresh((2 + L2_WAYS) * L2_WAY);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i <= L2_WAYS; i++) {
            ok &= load(p + i * L2_WAY) == (round ? L3 : DRAM);
        }
    }
    report(ok, "17 lines of a set of L2 go to L3");

    p = fresh(2 * L1_WAYS * L1_WAY);
    load_each(p, L1_WAYS, L1_WAY);
    store(p);
    q = p + L1_WAYS * L1_WAY;
    ok = store(q) == HIT && load(q) == HIT;
    report(ok && load(p) == HIT && load(p + L1_WAY) == L2,
           "a store allocates, uses a line, and is no event");
}

/*
 * Records
 */

static void test_records(void)
{
    static const int intervals[] = { 0, 1, 2, 6, 7, 31, 63, 200 };

    for (int i = 0; i < (int)(sizeof(intervals) / sizeof(intervals[0])); i++) {
        int n = intervals[i];
        char *p = fresh(512 * LINE);
        bool ok = true;

        prepare(FLAG(DME), n);
        /* 64 rounds of 8 misses, 4 hits, and other instructions */
        run("", "mov $64, %%ecx\n"
            "77: .rept 4\n"
            "mov 5" SI ", %%al\n nop\n mov 60" SI ", %%edx\n"
            "mov 69" SI ", %%al\n lea 128" SI ", " R "si" "\n"
            ".endr\n dec %%ecx\n jnz 77b", p, 0, 0);
        for (unsigned k = 0; k < records(); k++) {
            unsigned nth = k * (n + 1) + n;
            int size = 3 + 1 + 3 + 3 + 6 + TEST_64BIT;

            ok &= miss_is(&ring[k], DRAM, lwp_ip + nth % 8 / 2 * size +
                          (nth % 2 ? 7 : 0), p + nth * LINE + 5);
        }
        report(ok && records() == 512 / (n + 1) &&
               cb.event[DME - 1].counter == n - 512 % (n + 1),
               "interval %d: every load that ends one (Figure 2-5)", n);
    }
}

/* A load that crosses into the next line; @clocks are those of both misses. */
static void misaligned(const char *what, char *p, int source, int offset,
                       uint32_t clocks)
{
    prepare(FLAG(DME), 0);
    cb.flags |= FLAG(CNH) | FLAG(RNH);
    cb.event[CNH - 1].counter = cb.event[CNH - 1].interval = MANY;
    cb.event[RNH - 1].counter = cb.event[RNH - 1].interval = MANY;
    run("", "77: mov " SI ", %%eax", p, 0, 0);
    report(records() == 1 && miss_is(&ring[0], source, lwp_ip, p + offset) &&
           total(DME) == 1 && total(CNH) == 2 + clocks &&
           total(RNH) == 2 + clocks, "misaligned load: %s", what);
}

static void test_misaligned(void)
{
    char *p = fresh(4 * PAGE);

    misaligned("both lines miss", p + LINE - 1, DRAM, 0, 2 * latency[DRAM]);
    load(p + 2 * LINE);
    misaligned("the second misses", p + 3 * LINE - 3, DRAM, 3, latency[DRAM]);
    load(p + 5 * LINE);
    misaligned("the first misses", p + 5 * LINE - 2, DRAM, 0, latency[DRAM]);
    load_each(p + 7 * LINE, 2, LINE);
    prepare(FLAG(DME), 0);
    run("", "77: mov " SI ", %%eax", p + 8 * LINE - 2, 0, 0);
    report(records() == 0, "misaligned load: none misses");
    misaligned("two pages", p + PAGE - 2, DRAM, 0, 2 * latency[DRAM]);

    p = fresh(8 * PAGE);
    load_each(p, L1_WAYS + 1, L1_WAY);
    misaligned("L2 and DRAM", p + LINE - 1, L2, 0, latency[L2] + latency[DRAM]);
    p = fresh(8 * PAGE) + LINE;
    load_each(p, L1_WAYS + 1, L1_WAY);
    misaligned("DRAM and L2", p - 1, DRAM, 0, latency[L2] + latency[DRAM]);
}

/* §2.4.2: a linear address includes the base of the segment. */
static void test_segment_base(void)
{
    char *p = fresh(PAGE);

#if TEST_64BIT
    syscall(SYS_arch_prctl, ARCH_SET_GS, p);
#else
    struct user_desc desc = {
        .entry_number = -1, .base_addr = (uintptr_t)p, .limit = 0xfffff,
        .seg_32bit = 1, .limit_in_pages = 1, .useable = 1,
    };

    syscall(SYS_set_thread_area, &desc);
    asm volatile("mov %w0, %%" SEG : : "r" (desc.entry_number << 3 | 3));
#endif
    prepare(FLAG(DME), 0);
    run("", "77: mov %%" SEG ":" SI ", %%eax", 100, 0, 0);
    report(records() == 1 && miss_is(&ring[0], DRAM, lwp_ip, p + 100),
           "DataAddress is linear");
}

/* All addresses are a program's, 0 included, if the host lets it have them. */
static void test_lowest_line(void)
{
    char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    char *q = fresh(PAGE);

    /* Nothing is known of the lines with this offset in their page. */
    load(q);
    asm volatile("clflush (%0)" : : "r" (q));
    report(p == MAP_FAILED ||
           (load(p) == DRAM && load(p + 8) == HIT && load(p + LINE) == DRAM),
           "line 0 misses like any other");
    if (p != MAP_FAILED) {
        munmap(p, PAGE);
    }
}

/*
 * Loads of all kinds.  Each @code finds cold memory at SI and DI, 32 bytes into
 * a line; its loads cause @events, the first of them at SI, unless there are
 * several.
 */
enum { STORE = 0, NOTHING = -1 };

#define kind_at(events, offset, before, code) \
    do { \
        char *p_, *q_; \
        bool ok_ = true; \
        for (int interval_ = 0; interval_ <= MANY; interval_ += MANY) { \
            p_ = (char *)fresh(2 * PAGE) + (offset); \
            q_ = p_ + PAGE; \
            prepare(FLAG(DME), interval_); \
            run(before, code, p_, q_, 0); \
            ok_ &= kind_is(events, p_, q_); \
        } \
        if ((events) <= 0) { \
            ok_ &= load(p_) == ((events) == STORE ? HIT : DRAM); \
        } \
        report(ok_, "%s: " #events, tested(code)); \
    } while (0)

#define kind_with(events, before, code) \
    kind_at(events, LINE / 2, before, code)
#define kind(events, code) kind_with(events, "", code)
/* One load from two lines is one event. */
#define crossing(offset, code) kind_at(1, LINE - (offset), "", code)

/* The instruction that has the label */
static const char *tested(const char *code)
{
    static char name[80];
    char *to = name;

    for (code = strstr(code, "77: ") + 4; *code && *code != '\n'; code++) {
        if (*code != '%' || code[1] != '%') {
            *to++ = *code;
        }
    }
    *to = '\0';
    return name;
}

static bool kind_is(int events, const char *p, const char *q)
{
    unsigned n = events > 0 ? events : 0;

    if (cb.event[DME - 1].interval) {
        return total(DME) == n;
    }
    if (n == 0) {
        return records() == 0;
    }
    return records() > 0 && (miss_is(&ring[0], DRAM, lwp_ip, p) ||
                             (n > 1 && miss_is(&ring[0], DRAM, lwp_ip, q)));
}

/* The stack is at SI, and back when @code is done. */
#define stack(code) \
    "xchg " R "sp" ", " R "si" "\n" code "\nmov " R "si" ", " R "sp"
/* BP points to SI, with @offset */
#define frame(offset, code) \
    "mov " R "bp" ", " R "cx" "\n lea " offset SI ", " R "bp" "\n" \
    code "\nmov " R "cx" ", " R "bp"
#define address_of(label, offset) \
    LEA(label, R "dx") "mov " R "dx" ", " offset SI "\n"

static void test_integer(void)
{
    kind(1, "77: mov " SI ", %%al");
    kind(1, "77: mov " SI ", %%ax");
    kind(1, "77: mov " SI ", %%eax");
    kind(1, "77: mov " SI ", " R "ax");
    kind(1, "77: movzbl " SI ", %%eax");
    kind(1, "77: movswl " SI ", %%eax");
    kind(1, "77: add " SI ", %%eax");
    kind(1, "77: cmp %%eax, " SI);
    kind(1, "77: testb $1, " SI);
    kind(1, "77: add %%eax, " SI);
    kind(1, "77: adcb $1, " SI);
    kind(1, "77: incl " SI);
    kind(1, "77: notw " SI);
    kind(1, "77: shll $3, " SI);
    kind(1, "77: rcrl $3, " SI);
    kind(1, "77: negl " SI);
    kind(1, "mov $3, %%cl\n 77: sarl %%cl, " SI);
    kind(1, "mov $0, %%cl\n 77: roll %%cl, " SI);
    kind(1, "77: shld %%cl, %%eax, " SI);
    kind(1, "77: imul $3, " SI ", %%eax");
    kind(1, "77: mull " SI);
    kind(1, "77: cmovz " SI ", %%eax");
    kind(1, "or $1, %%eax\n 77: cmovz " SI ", %%eax");
    kind(1, "77: btl $3, " SI);
    kind(1, "77: btsl $3, " SI);
    kind(1, "77: btrl $3, " SI);
    kind(1, "mov $7, %%eax\n 77: btcl %%eax, " SI);
    kind(1, "mov $-64 * 8, %%eax\n 77: btl %%eax, 64" SI);
    kind(1, "77: movbe " SI ", %%eax");
    kind(1, "77: crc32l " SI ", %%eax");
    kind(1, "77: popcntl " SI ", %%eax");
    kind(1, "77: andn " SI ", %%eax, %%edx");
    kind(1, "77: mulx " SI ", %%eax, %%edx");
    kind(1, "mov " R "si" ", " R "bx" "\n xor %%eax, %%eax\n 77: xlat");
    kind_with(1, "mov %%es, " SI, "77: mov " SI ", %%es");
    kind_with(1, "mov %%gs, 4" SI, "77: lgs " SI ", %%eax");
    kind_with(1, "mov %%ss, 4" SI, "77: lss " SI ", %%eax");
    kind(1, "77: verr " SI);
#if TEST_64BIT
    kind(1, "77: movslq " SI ", %%rax");
#else
    kind_with(1, "mov %%fs, 4" SI, "77: lfs " SI ", %%eax");
    kind_with(1, "mov %%es, 4" SI, "77: les " SI ", %%eax");
    kind_with(1, "mov %%ds, 4" SI, "77: lds " SI ", %%eax");
    kind_with(1, "movl $9, 4" SI, "mov $5, %%eax\n 77: bound %%eax, " SI);
    kind_with(1, "movw $9, 2" SI, "mov $5, %%eax\n 77: bound %%ax, " SI);
#endif
    kind(STORE, "77: mov %%eax, " SI);
    kind(STORE, "77: movb $1, " SI);
    kind(STORE, "77: setc " SI);
    kind(STORE, "77: movbe %%eax, " SI);
    kind(STORE, "mov " R "si" ", " R "di" "\n 77: stosb");
    kind(STORE, "mov " R "si" ", " R "di" "\n mov $9, %%ecx\n"
         "77: rep stosl");
    kind(NOTHING, "77: lea " SI ", %%eax");
    kind(NOTHING, "77: nopl " SI);
    kind(NOTHING, "77: prefetcht0 " SI);
    kind(NOTHING, "77: prefetchw " SI);
    kind(NOTHING, "77: rep movsb");
    kind(NOTHING, "77: rep lodsb");
}

static void test_stack(void)
{
    kind(1, "xchg " R "sp" ", " R "di" "\n 77: push " SI "\n"
         "mov " R "di" ", " R "sp");
    kind(1, stack("77: pop " R "dx"));
    kind(1, stack("77: pop " DI));
    kind(1, stack("77: popf"));
    kind_with(1, address_of("88f", ""), stack("77: ret\n 88:"));
    kind_with(1, address_of("88f", ""), stack("77: ret $8\n 88:"));
    kind(1, frame("", stack("77: leave")));
    kind(STORE, frame(WORD, stack("77: enter $8, $0")));
    kind(STORE, frame(WORD, stack("77: enter $8, $1")));
    /* of the second level: the outer frame's address */
    kind(1, "xchg " R "sp" ", " R "di" "\n"
         frame(WORD, "77: enter $8, $2") "\n mov " R "di" ", " R "sp");
    kind_with(1, address_of("88f", ""), "77: jmp *" SI "\n 88:");
    kind_with(1, address_of("88f", ""),
              "xchg " R "sp" ", " R "di" "\n 77: call *" SI "\n 88:"
              "mov " R "di" ", " R "sp");
    kind_with(1, address_of("88f", "") "mov %%cs, 4" SI,
              "77: ljmp *" SI "\n 88:");
    kind_with(1, address_of("88f", "") "mov %%cs, 4" SI,
              "xchg " R "sp" ", " R "di" "\n 77: lcall *" SI "\n 88:"
              "mov " R "di" ", " R "sp");
    kind_with(1, address_of("88f", "") "mov %%cs, 4" SI,
              stack("77: lretl\n 88:"));
    kind_with(1, address_of("88f", "") "mov %%cs, 4" SI "\n"
              "pushf\n pop " R "dx" "\n mov %%edx, 8" SI "\n"
              "mov %%esi, 12" SI "\n mov %%ss, 16" SI,
              stack("77: iretl\n 88:"));
#if !TEST_64BIT
    kind_with(1, "mov %%esp, 4" SI "\n mov %%ebp, 8" SI, stack("77: popa"));
    kind(STORE, stack("77: pusha"));
#endif
    kind(STORE, stack("77: pushf"));
    kind(STORE, stack("77: push " R "dx"));
    kind(STORE, stack("77: call 88f\n 88:"));
}

static void test_strings(void)
{
    kind(1, "77: lodsb");
    kind(1, "77: lodsl");
    kind(1, "77: movsb");
    kind(1, "77: movsl");
    kind(2, "77: cmpsb");
    kind(2, "77: cmpsl");
    kind(1, "xchg " R "di" ", " R "si" "\n 77: scasl");
    /* 256 bytes from 5 lines */
    kind(5, "mov $256, %%ecx\n 77: rep lodsb");
    kind(5, "mov $64, %%ecx\n 77: rep movsl");
    kind(10, "mov $256, %%ecx\n 77: repe cmpsb");
    kind(5, "xchg " R "di" ", " R "si" "\n xor %%eax, %%eax\n"
         "mov $256, %%ecx\n 77: repe scasb");
    /* stops at the first */
    kind(1, "xchg " R "di" ", " R "si" "\n xor %%eax, %%eax\n"
         "mov $256, %%ecx\n 77: repne scasb");
}

static void test_x87(void)
{
    kind(1, "77: flds " SI "\n fninit");
    kind(1, "77: fldl " SI "\n fninit");
    kind(1, "77: fldt " SI "\n fninit");
    kind(1, "77: fbld " SI "\n fninit");
    kind(1, "77: filds " SI "\n fninit");
    kind(1, "77: fildll " SI "\n fninit");
    kind(1, "fld1\n 77: fadds " SI "\n fninit");
    kind(1, "fld1\n 77: ficoml " SI "\n fninit");
    kind(1, "77: fldcw " SI "\n fninit");
    kind(1, "77: fldenv " SI "\n fninit");
    kind(3, "77: frstor " SI "\n fninit");      /* 108 bytes */
    kind_with(9, "fxsave " SI, "77: fxrstor " SI);  /* 512 bytes */
    kind(STORE, "fld1\n 77: fsts " SI "\n fninit");
    kind(STORE, "fld1\n 77: fstpt " SI "\n fninit");
    kind(STORE, "fld1\n 77: fbstp " SI "\n fninit");
    kind(STORE, "fld1\n 77: fistl " SI "\n fninit");
    kind(STORE, "77: fnstcw " SI);
    kind(STORE, "77: fnstenv " SI);
    kind(STORE, "77: fnsave " SI);
    kind(STORE, "77: fxsave " SI);
    kind(STORE, "77: stmxcsr " SI);
}

static void test_vectors(void)
{
    kind_with(1, "stmxcsr " SI, "77: ldmxcsr " SI);
    kind(1, "77: movd " SI ", %%mm0\n emms");
    kind(1, "77: paddb " SI ", %%mm0\n emms");
    kind(1, "77: movss " SI ", %%xmm0");
    kind(1, "77: movq " SI ", %%xmm0");
    kind(1, "77: movhps " SI ", %%xmm0");
    kind(1, "77: movlpd " SI ", %%xmm0");
    kind(1, "77: movaps " SI ", %%xmm0");
    kind(1, "77: movups " SI ", %%xmm0");
    kind(1, "77: lddqu " SI ", %%xmm0");
    kind(1, "77: movntdqa " SI ", %%xmm0");
    kind(1, "77: pxor " SI ", %%xmm0");
    kind(1, "77: mulsd " SI ", %%xmm0");
    kind(1, "77: pinsrw $1, " SI ", %%xmm0");
    kind(1, "77: insertps $1, " SI ", %%xmm0");
    kind(1, "77: pmovzxbw " SI ", %%xmm0");
    kind(1, "77: cvtsi2sdl " SI ", %%xmm0");
    kind(1, "xor %%eax, %%eax\n 77: pcmpistri $0, " SI ", %%xmm0");
    kind(1, "77: aesenc " SI ", %%xmm0");
    kind(1, "77: vmovdqa " SI ", %%ymm0");
    kind(1, "77: vmovups " SI ", %%ymm0");
    kind(1, "77: vaddps " SI ", %%ymm0, %%ymm0");
    kind(1, "77: vbroadcastss " SI ", %%ymm0");
    kind(1, "77: vbroadcastf128 " SI ", %%ymm0");
    kind(1, "77: vinserti128 $1, " SI ", %%ymm0, %%ymm0");
    kind(1, "vpcmpeqb %%ymm1, %%ymm1, %%ymm1\n"
         "77: vpmaskmovd " SI ", %%ymm1, %%ymm0");
    /* 32 bytes in two lines are one load */
    kind(1, "add $63, " R "si" "\n 77: vmovups -63" SI ", %%ymm0");
    kind(1, "77: vpxor %%xmm1, %%xmm1, %%xmm1\n"
         "vpcmpeqb %%ymm0, %%ymm0, %%ymm0\n nop"
         "\n 77: vpgatherdd %%ymm0, (" R "si" ", %%ymm1, 4), %%ymm2");
    kind_with(4, "movl $64, 132" SI "\n movl $128, 136" SI "\n"
              "movl $256, 140" SI "\n movdqa 128" SI ", %%xmm1\n"
              "pcmpeqb %%xmm0, %%xmm0",
              "77: vpgatherdd %%xmm0, (" R "si" ", %%xmm1, 1), %%xmm2");
    kind_with(2, "movl $-1, 132" SI "\n movl $-1, 136" SI "\n"
              "movdqa 128" SI ", %%xmm0\n"
              "movl $64, 132" SI "\n movl $128, 136" SI "\n"
              "movl $256, 140" SI "\n movdqa 128" SI ", %%xmm1\n"
              "sub $64, " R "si",
              "77: vgatherdps %%xmm0, (" R "si" ", %%xmm1, 1), %%xmm2");
    kind_with(4, "movl $16, 136" SI "\n movl $32, 144" SI "\n"
              "movl $64, 152" SI "\n vmovdqa 128" SI ", %%ymm1\n"
              "vpcmpeqb %%ymm0, %%ymm0, %%ymm0",
              "77: vpgatherqq %%ymm0, (" R "si" ", %%ymm1, 8), %%ymm2");
    kind(STORE, "77: movups %%xmm0, " SI);
    kind(STORE, "77: movnti %%eax, " SI);
    kind(STORE, "77: vmovdqa %%ymm0, " SI);
    kind(STORE, "77: vextractf128 $1, %%ymm0, " SI);
    kind(STORE, "77: movhps %%xmm0, " SI);
    kind(STORE, "pcmpeqb %%mm1, %%mm1\n mov " R "si" ", " R "di" "\n"
         "77: maskmovq %%mm1, %%mm0\n emms");
    kind(STORE, "77: pextrw $1, %%xmm0, " SI);
    kind(STORE, "pcmpeqb %%xmm1, %%xmm1\n mov " R "si" ", " R "di" "\n"
         "77: maskmovdqu %%xmm1, %%xmm0");
    kind(STORE, "vpcmpeqb %%ymm1, %%ymm1, %%ymm1\n"
         "77: vpmaskmovd %%ymm0, %%ymm1, " SI);
    asm volatile("vzeroupper");
}

static void test_atomics(void)
{
    kind(1, "xor %%eax, %%eax\n 77: cmpxchg %%ecx, " SI);
    kind(1, "mov $1, %%eax\n 77: cmpxchg %%ecx, " SI);
    kind(1, "xor %%eax, %%eax\n 77: lock cmpxchg %%ecx, " SI);
    kind(1, "mov $1, %%eax\n 77: lock cmpxchg %%ecx, " SI);
    kind(1, "77: xadd %%ecx, " SI);
    kind(1, "77: lock xadd %%ecx, " SI);
    kind(1, "77: xchg %%ecx, " SI);
    kind(1, "77: xchg %%cl, " SI);
    kind(1, "77: lock addl $1, " SI);
    kind(1, "77: lock adcl $1, " SI);
    kind(1, "77: lock incb " SI);
    kind(1, "77: lock negl " SI);
    kind(1, "77: lock notl " SI);
    kind(1, "77: lock orw $1, " SI);
    kind(1, "77: lock subl $1, " SI);
    kind(1, "77: lock sbbl $1, " SI);
    kind(1, "77: lock xorb $1, " SI);
    kind(1, "77: lock btsl $1, " SI);
    kind(1, "mov $7, %%eax\n 77: lock btcl %%eax, " SI);
    kind(1, "77: cmpxchg8b " SI);
    kind(1, "77: lock cmpxchg8b " SI);
    kind(1, "xor %%eax, %%eax\n xor %%edx, %%edx\n 77: cmpxchg8b " SI);
    kind(1, "xor %%eax, %%eax\n xor %%edx, %%edx\n 77: lock cmpxchg8b " SI);
#if TEST_64BIT
    kind(1, "77: cmpxchg16b " SI);
    kind(1, "77: lock cmpxchg16b " SI);
    kind(1, "xor %%eax, %%eax\n xor %%edx, %%edx\n 77: cmpxchg16b " SI);
    kind(1, "xor %%eax, %%eax\n xor %%edx, %%edx\n 77: lock cmpxchg16b " SI);
#endif
}

static void test_crossings(void)
{
    crossing(1, "77: mov " SI ", %%ax");
    crossing(1, "77: mov " SI ", %%eax");
    crossing(3, "77: mov " SI ", " R "ax");
    crossing(2, "77: add %%eax, " SI);
    crossing(3, "77: lock add %%eax, " SI);
    crossing(1, "77: xchg %%ax, " SI);
    crossing(1, "77: lock cmpxchg8b " SI);
    crossing(4, "77: cmpxchg8b " SI);
    crossing(1, "77: incw " SI);
    crossing(2, "77: lock incl " SI);
    crossing(3, "77: xadd %%ecx, " SI);
    crossing(3, "77: lock xadd %%ecx, " SI);
    crossing(2, "77: btsl $3, " SI);
    crossing(1, "77: lodsw");
    crossing(2, "77: movsl");
    crossing(1, "77: flds " SI "\n fninit");
    crossing(4, "77: fldl " SI "\n fninit");
    crossing(1, "77: fldt " SI "\n fninit");
    crossing(8, "77: fldt " SI "\n fninit");
    crossing(9, "77: fbld " SI "\n fninit");
    crossing(7, "77: movq " SI ", %%xmm0");
    crossing(1, "77: movups " SI ", %%xmm0");
    crossing(8, "77: movups " SI ", %%xmm0");
    crossing(15, "77: pcmpistri $0, " SI ", %%xmm0");
    crossing(3, "77: vmovups " SI ", %%ymm0");
    crossing(16, "77: vmovups " SI ", %%ymm0");
    crossing(31, "77: vaddps " SI ", %%ymm0, %%ymm0");
    crossing(2, "vpxor %%xmm1, %%xmm1, %%xmm1\n"
             "vpcmpeqb %%xmm0, %%xmm0, %%xmm0\n"
             "77: vpgatherdd %%xmm0, (" R "si" ", %%xmm1, 4), %%xmm2");
    crossing(1, stack("77: pop " R "dx"));
    crossing(2, "xchg " R "sp" ", " R "di" "\n 77: push " SI "\n"
             "mov " R "di" ", " R "sp");
    kind_at(1, LINE - 1, address_of("88f", ""), stack("77: ret\n 88:"));
    kind_at(1, LINE - 3, address_of("88f", ""), "77: jmp *" SI "\n 88:");
    kind_at(1, LINE - 4, "mov %%gs, 4" SI, "77: lgs " SI ", %%eax");
    kind_at(1, LINE - 2, "mov %%gs, 4" SI, "77: lgs " SI ", %%eax");
    kind_at(1, LINE - 4, address_of("88f", "") "mov %%cs, 4" SI,
            "77: ljmp *" SI "\n 88:");
#if !TEST_64BIT
    kind_at(1, LINE - 4, "movl $9, 4" SI, "mov $5, %%eax\n 77: bound %%eax, "
            SI);
#endif
    kind_at(STORE, LINE - 1, "", "77: movups %%xmm0, " SI);
}

/*
 * As many events are counted as are recorded: the model has shorter ways for
 * accesses, to one line and to two, while no record is due.
 */
static void test_counts(void)
{
    enum { N = 4000, SPAN = 48 * KB };
    uint32_t *list = fresh(N * sizeof(*list));
    char *p = fresh(SPAN + LINE);
    uint64_t n[3];

    for (unsigned i = 0, x = 1; i < N; i++, x = x * 1103515245 + 12345) {
        list[i] = (x >> 8) % SPAN;
    }
    /* Each run finds what the one in front of it has left in the caches. */
    for (int i = 0; i < 3; i++) {
        prepare(FLAG(DME), i < 2 ? 0 : MANY);
        run("", "77: lodsl\n"
                "movups (" R "di" ", " R "ax" "), %%xmm0\n"
                "movups %%xmm0, 24(" R "di" ", " R "ax" ")\n"
                "dec %%ecx\n"
                "jnz 77b", list, p, N);
        n[i] = total(DME);
    }
    report(n[1] == n[2] && !records() && n[1] > N / 4 && n[1] < N,
           "%u misses in %u accesses", (unsigned)n[2], 3 * N);
}

static void test_kinds(void)
{
    test_integer();
    test_stack();
    test_strings();
    test_x87();
    test_vectors();
    test_atomics();
    test_crossings();
    test_counts();
}

/* §5.3: only an LWPVAL that stores a record reads its operand. */
static void test_lwpval(void)
{
    char *p = fresh(3 * PAGE);

    for (int i = 0; i < 2; i++, p += PAGE) {
        prepare(FLAG(LWP_VAL) | FLAG(DME), 0);
        cb.event[LWP_VAL - 1].counter = !i;
        run("", "77: lwpval $1, " SI ", %%eax", p, 0, 0);
        report(records() == 2 * i && total(DME) == i &&
               (!i || miss_is(&ring[1], DRAM, lwp_ip, p) ||
                miss_is(&ring[0], DRAM, lwp_ip, p)) &&
               load(p) == (i ? HIT : DRAM),
               "LWPVAL that %s a record", i ? "stores" : "does not store");
    }
    prepare(FLAG(DME), 0);
    run("", "77: lwpins $1, " SI ", %%eax", p, 0, 0);
    report(records() == 2 && total(DME) == 1 && load(p) == HIT,
           "LWPINS loads");
}

/*
 * A second processor
 */

static struct {
    pthread_t thread;
    sem_t go, done;
    int (*fn)(void *);
    void *arg;
    int result;
} second;

static void *run_second(void *unused)
{
    while (sem_wait(&second.go) == 0 && second.fn) {
        second.result = second.fn(second.arg);
        sem_post(&second.done);
    }
    return NULL;
}

static void start_second(void)
{
    sem_init(&second.go, 0, 0);
    sem_init(&second.done, 0, 0);
    pthread_create(&second.thread, NULL, run_second, NULL);
}

static void stop_second(void)
{
    second.fn = NULL;
    sem_post(&second.go);
    pthread_join(second.thread, NULL);
}

static int second_does(int (*fn)(void *), void *p)
{
    second.fn = fn;
    second.arg = p;
    sem_post(&second.go);
    sem_wait(&second.done);
    return second.result;
}

/* A read-modify-write; where its load finds the line */
static int add(void *p)
{
    prepare(FLAG(DME), 0);
    run("", "77: lock addl $1, " SI, p, 0, 0);
    return records() ? ring[0].flags >> 13 : HIT;
}

static int replace(void *p)
{
    load_each((char *)p + L2_WAY, L2_WAYS, L2_WAY);
    return 0;
}

static int flush(void *p)
{
    asm volatile("clflush (%0)" : : "r" (p) : "memory");
    return 0;
}

static void test_flush(void)
{
    char *p = fresh(2 * PAGE), *none = fresh(PAGE);

    report(load(p) == DRAM && load(p) == HIT && !flush(p + LINE - 1) &&
           load(p) == DRAM && load(p) == HIT, "CLFLUSH");
    asm volatile("clflushopt (%0)" : : "r" (p + 4) : "memory");
    report(load(p) == DRAM, "CLFLUSHOPT");
    flush(p + LINE);
    asm volatile("clwb (%0)" : : "r" (p) : "memory");
    report(load(p) == HIT, "CLFLUSH of another line, CLWB");
    prepare(FLAG(DME) | FLAG(CNH), MANY);
    run("", "mov $50, %%ecx\n 77: mov " SI ", %%al\n clflush " SI "\n"
        "dec %%ecx\n jnz 77b", p + PAGE, 0, 0);
    report(total(DME) == 50 && total(CNH) == 50 * 4 + 2 + 50 * latency[DRAM],
           "CLFLUSH in a loop: every load misses, and no CLFLUSH does");
    munmap(none, PAGE);
    prepare(FLAG(DME), 0);
    run("", "77: clflush " SI "\n clflushopt " SI, none, 0, 0);
    report(records() == 0, "CLFLUSH of what is not mapped");
}

static void test_remote(void)
{
    char *p = fresh(16 * PAGE), *big = fresh((1 + L2_WAYS) * L2_WAY);

    report(second_does(load, p) == DRAM && load(p) == REMOTE &&
           load(p) == HIT && second_does(load, p) == HIT,
           "what the other has read is remote, then shared");
    report(store(p) == HIT && second_does(load, p) == REMOTE,
           "a store takes a shared line away");
    report(second_does(store, p) == HIT && load(p) == REMOTE,
           "and so does the other's");
    report(load(p) == HIT && second_does(load, p) == HIT,
           "a load leaves it where it is");
    p += PAGE;
    report(second_does(store, p) == HIT && load(p) == REMOTE &&
           second_does(store, p) == HIT && load(p) == REMOTE,
           "what the other has written is remote");
    p += PAGE;
    report(store(p) == HIT && load(p) == HIT && second_does(load, p) == REMOTE,
           "what this one has written is remote for the other");
    p += PAGE;
    report(load(p) == DRAM && second_does(add, p) == REMOTE &&
           add(p) == REMOTE && add(p) == HIT && second_does(add, p) == REMOTE,
           "a read-modify-write loads, and takes the line");
    p += PAGE;
    report(load(p) == DRAM && second_does(load, p) == REMOTE &&
           add(p) == HIT && second_does(load, p) == REMOTE,
           "it finds a shared line in its own cache");
    p += PAGE;
    second_does(load, p);
    prepare(FLAG(DME), 0);
    run("", "77: mov " SI ", %%eax", p + 12, 0, 0);
    report(records() == 1 && miss_is(&ring[0], REMOTE, lwp_ip, p + 12),
           "a record of a remote line");
    second_does(load, big);
    second_does(replace, big);
    report(load(big) == L3, "what the other has replaced is in L3");
    report(second_does(load, big) == REMOTE, "and is this one's, then");
    report(!second_does(flush, big) && load(big) == DRAM &&
           second_does(load, big) == REMOTE && !flush(big) &&
           second_does(load, big) == DRAM, "CLFLUSH takes it from both");
    second_does(replace, big);
    report(!flush(big) && load(big) == DRAM, "and out of L3");
}

/*
 * Filters
 */

/* A line that a load is going to get from @source */
static void *line_from(int source)
{
    static char *lines;
    static int used;
    char *p = lines + used * LINE;

    switch (source) {
    case L2:
    case L3:
        if (used++ % (L2_WAY / LINE) == 0) {
            p = lines = fresh((1 + L2_WAYS) * L2_WAY);
            used = 1;
        }
        load(p);
        load_each(p + L2_WAY, source == L2 ? L1_WAYS : L2_WAYS, L2_WAY);
        return p;
    case REMOTE:
        p = fresh(PAGE);
        second_does(load, p);
        return p;
    default:
        return fresh(PAGE);
    }
}

/* Whether an event counts, whose clocks always do */
static bool passes(int source, uint32_t filters, bool want)
{
    void *p = line_from(source);

    prepare(FLAG(DME) | FLAG(CNH), MANY);
    cb.filters = filters;
    run("", "77: mov " SI ", %%al", p, 0, 0);
    return total(DME) == want && total(CNH) == 2 + latency[source];
}

/* Table 6-2 */
static void test_filters(void)
{
    static const uint32_t bit[SOURCES] = { 0, FILTER_NBC, FILTER_RDC,
                                           FILTER_RAM };

    for (int source = 0; source < SOURCES; source++) {
        uint32_t clocks = recorded(latency[source]), max = recorded(UINT32_MAX);
        bool ok = true;

        for (uint32_t min = 0; min < 256; min += min < 14 ? 1 : 11) {
            ok &= passes(source, min,
                         clocks >= (min * 16 < max ? min * 16 : max));
        }
        report(ok, "MinLatency and data from %s", source_name[source]);

        ok = true;
        for (uint32_t clf = 0; clf <= 0x1f00; clf += FILTER_CLF) {
            ok &= passes(source, clf,
                         !(clf & FILTER_CLF) || (clf & bit[source]));
        }
        report(ok, "cache levels and data from %s", source_name[source]);
    }
    report(passes(DRAM, FILTER_CLF | FILTER_RAM | 1, true) &&
           passes(DRAM, FILTER_CLF | FILTER_NBC | 1, false) &&
           passes(L3, FILTER_CLF | FILTER_NBC | 3, true) &&
           passes(L3, FILTER_CLF | FILTER_NBC | 4, false),
           "MinLatency and cache levels both count");
}

/* BaseIP and LimitIP, in front of LLWPCB */
#define range(first, last) \
    LEA(first, R "dx") "mov " R "dx" ", 40(" R "ax" ")\n" \
    LEA(last, R "dx") "mov " R "dx" ", 48(" R "ax" ")\n"

/* What is not eligible allocates, but is no event and takes no latency. */
static void test_ip_filter(void)
{
    for (int invert = 0; invert < 2; invert++) {
        char *p = fresh(PAGE);
        bool ok;

        prepare(FLAG(DME) | FLAG(CNH), 0);
        cb.event[CNH - 1].interval = cb.event[CNH - 1].counter = MANY;
        cb.filters = FILTER_IPF | (invert ? FILTER_IPI : 0);
        run(range("77f", "78f"), "mov " SI ", %%eax\n"
            "77: mov " SI ", %%eax\n mov 64" SI ", %%eax\n"
            "78: mov 128" SI ", %%eax\n"
            "mov 128" SI ", %%eax\n mov 192" SI ", %%eax", p, 0, 0);
        ok = records() == 2 && total(DME) == 2 &&
             ring[0].data2 == (uintptr_t)p + (invert ? 0 : 64) &&
             ring[1].data2 == (uintptr_t)p + (invert ? 192 : 128) &&
             total(CNH) == (invert ? 4 : 3) + 2 * latency[DRAM];
        report(ok && load(p) == HIT && load(p + 192) == HIT,
               "%s a range", invert ? "outside" : "inside");
    }
}

/* A record of clocks names the load that takes them. */
static void test_clocks(void)
{
    int interval = 5 * latency[DRAM] - 1;
    unsigned n = 0, insn = TEST_64BIT ? 4 : 3;
    uint64_t clocks = 0;
    char *p = fresh(128 * LINE);
    bool ok = true;

    prepare(FLAG(DME) | FLAG(CNH) | FLAG(RNH), interval);
    cb.event[DME - 1].interval = cb.event[DME - 1].counter = MANY;
    run("", "77: .rept 128\n mov " SI ", %%al\n nop\n lea 64" SI ", " R "si"
        "\n .endr", p, 0, 0);
    for (int i = 0; i < 128 && ok; i++) {
        clocks += 1 + latency[DRAM];
        for (int k = 0; k < 3; k++, clocks += k < 3) {
            if (clocks / (interval + 1) > n / 2) {
                uint64_t ip = lwp_ip + i * (3 + insn) + (k ? k + 1 : 0);

                ok &= record_is(&ring[n], CNH, 0, 0, ip, 0) &&
                      record_is(&ring[n + 1], RNH, 0, 0, ip, 0);
                n += 2;
            }
        }
    }
    report(ok && n == records() && total(CNH) == clocks + 1 &&
           total(RNH) == clocks + 1, "clocks of loads are theirs");
}

/* The same if a load is among instructions that are one step. */
static void test_step(void)
{
    bool ok = true;

    for (int n = 0; n <= 16; n++) {
        prepare(FLAG(DME) | FLAG(CNH), MANY);
        cb.event[CNH - 1].counter = n;
        run("", "77: .rept 8\n nop\n .endr\n mov " SI ", %%al\n"
            ".rept 8\n nop\n .endr\n pause", fresh(LINE), 0, 0);
        ok &= records() == 1 &&
              record_is(&ring[0], CNH, 0, 0, lwp_ip + (n < 8 ? n : 8), 0);
    }
    report(ok, "an event that a load brings about is that load's");
}

/*
 * Faults
 */

uintptr_t lwp_skip;                 /* behind the faulting instruction */
static unsigned segvs;
static bool mends;
static char *bad_page;

static void on_bad_page(int sig, siginfo_t *info, void *uc)
{
    segvs++;
    if (mends) {
        mprotect(bad_page, PAGE, PROT_READ | PROT_WRITE);
    } else {
        UC_IP((ucontext_t *)uc) = lwp_skip;
    }
}

/*
 * Four lines of memory at SI; those at DI are on the page behind, which is
 * missing or read-only.  The instruction between the labels 77 and 78 has
 * @events when it has been mended and, if @to is SKIP, none when it is skipped.
 * Its handler is left out.
 */
enum { SKIP, MEND };

#define faulting(events, to, prot, code) \
    do { \
        for (int mend_ = MEND; mend_ >= (to); mend_--) { \
            bool ok_ = true; \
            \
            for (int n_ = 0; n_ <= MANY; n_ += MANY) { \
                uint64_t want_ = mend_ ? (events) : 0; \
                \
                bad_page = (char *)fresh(2 * PAGE) + PAGE; \
                mends = mend_; \
                mprotect(bad_page, PAGE, prot); \
                segvs = 0; \
                prepare(FLAG(DME), n_); \
                cb.filters = FILTER_IPF; \
                run(range("77f", "77f") LEA("78f", R "dx") \
                    "mov " R "dx" ", lwp_skip", code "\n 78:", \
                    bad_page - 4 * LINE, bad_page, 0); \
                ok_ &= segvs == 1 && total(DME) == want_; \
                for (unsigned k_ = 0; k_ < records(); k_++) { \
                    ok_ &= ring[k_].ip == lwp_ip && \
                           ring[k_].data1 == recorded(latency[DRAM]); \
                } \
                ok_ &= n_ || (records() > 0) == mend_; \
                mprotect(bad_page, PAGE, PROT_READ | PROT_WRITE); \
            } \
            report(ok_, "%s is %s", tested(code), \
                   mend_ ? "mended: " #events : "skipped: 0"); \
        } \
    } while (0)

static void test_faults(void)
{
    catch(SIGSEGV, on_bad_page);
    faulting(1, SKIP, PROT_NONE, "77: mov " DI ", %%eax");
    faulting(1, SKIP, PROT_NONE, "77: mov -2" DI ", %%eax");
    faulting(1, SKIP, PROT_NONE, "77: movups -2" DI ", %%xmm0");
    faulting(1, SKIP, PROT_NONE, "77: fldt -2" DI);
    asm volatile("fninit");
    faulting(1, SKIP, PROT_NONE, "77: addl $1, " DI);
    faulting(1, MEND, PROT_READ, "77: addl $1, " DI);
    faulting(1, MEND, PROT_READ, "77: lock addl $1, " DI);
    faulting(1, MEND, PROT_NONE, "77: movsb");
    faulting(1, MEND, PROT_READ, "77: movsb");
    faulting(2, MEND, PROT_NONE, "77: cmpsb");
    faulting(4, MEND, PROT_NONE, "mov $256, %%ecx\n 77: rep movsb");
    faulting(8, MEND, PROT_NONE, "mov $256, %%ecx\n 77: repe cmpsb");
}

/* The ring's page is missing: a fault behind the load; nothing is lost. */
static uintptr_t segv_ip;
static void *segv_addr;

static void on_missing_ring(int sig, siginfo_t *info, void *uc)
{
    segvs++;
    segv_ip = UC_IP((ucontext_t *)uc);
    segv_addr = info->si_addr;
    mprotect(ring, RING_SIZE, PROT_READ | PROT_WRITE);
}

static void test_missing_ring(void)
{
    static const int intervals[] = { 0, 1, 10, 63 };

    catch(SIGSEGV, on_missing_ring);
    for (int i = 0; i < 4; i++) {
        int n = intervals[i], insn = TEST_64BIT ? 2 + 7 : 2 + 6;
        char *p = fresh(128 * LINE);
        bool ok = true;

        prepare(FLAG(DME), n);
        cb.filters = FILTER_IPF;
        segvs = 0;
        mprotect(ring, RING_SIZE, PROT_NONE);
        run(range("77f", "78f"), "77: .rept 64\n mov " SI ", %%eax\n"
            "lea 128" SI ", " R "si" "\n .endr\n 78:", p, 0, 0);
        ok &= segvs == 1 && segv_addr == ring &&
              segv_ip == lwp_ip + n * insn + 2;
        for (unsigned k = 0; k < records(); k++) {
            unsigned nth = k * (n + 1) + n;

            ok &= miss_is(&ring[k], DRAM, lwp_ip + nth * insn,
                          p + nth * 2 * LINE);
        }
        report(ok && records() == 64 / (n + 1) && total(DME) == 64,
               "interval %d: SIGSEGV behind load %d, for the ring", n, n + 1);
    }
}

/* The records of some work, which starts from the same state each time */
typedef struct Result {
    LwpCb cb;
    LwpRecord ring[RECORDS];
    uint32_t sum;
} Result;

static void profile_work(Result *result, uint32_t flags, int interval)
{
    pid_t pid = fork();
    uint32_t sum;

    if (pid == 0) {
        prepare(flags, interval);
        llwpcb(&cb);
        sum = work_integer();
        sum = sum * 31 + work_vector();
        sum = sum * 31 + work_string();
        llwpcb(NULL);
        result->sum = sum;
        result->cb = cb;
        memcpy(result->ring, ring, RING_SIZE);
        _exit(EXIT_SUCCESS);
    }
    waitpid(pid, NULL, 0);
}

static void test_work(void)
{
    static const int intervals[] = { 1, 6, 28, 255 };
    uint32_t available = cpuid_reg(0x8000001c, 0, 0) & 0x7e;
    Result *result = mmap(NULL, 2 * sizeof(*result), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const LwpRecord *all = result[0].ring, *some = result[1].ring;

    for (int i = 0; i < 2; i++) {
        profile_work(&result[i], available, 28);
    }
    report(result[0].cb.missed > 0 &&
           memcmp(&result[0], &result[1], sizeof(*result)) == 0,
           "another run has the same records");

    profile_work(&result[0], FLAG(DME), 0);
    for (int i = 0; i < 4; i++) {
        unsigned n = intervals[i] + 1, misses;
        bool ok = true;

        profile_work(&result[1], FLAG(DME), intervals[i]);
        misses = result[0].cb.head / sizeof(*all);
        for (unsigned k = 0; k < misses / n; k++) {
            ok &= memcmp(&some[k], &all[k * n + n - 1], sizeof(*some)) == 0;
        }
        report(ok && misses > 5000 && misses < RECORDS - 1 &&
               result[1].cb.head / sizeof(*some) == misses / n,
               "interval %d: records of every %u. miss", intervals[i], n);
    }
}

/* Have the host's shell set the soft limit of QEMU's address space. */
static bool limit_qemu(const char *bytes)
{
    char command[256];

    snprintf(command, sizeof(command), "prlimit --pid $PPID --as=%s: "
             "2> /dev/null", bytes);
    return system(command) == 0;
}

/* A program that enables DME must not have QEMU run out of memory. */
static void test_memory(void)
{
    prepare(FLAG(DME), 0);
    if (limit_qemu("$(($(sed -n 's/^VmSize:[^0-9]*\\([0-9]*\\).*/\\1/p' "
                   "/proc/$PPID/status) * 1024 + 131072))")) {
        llwpcb(&cb);
        llwpcb(NULL);
        limit_qemu("unlimited");
        report(true, "DME without memory for more caches");
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        latency[DRAM] = atoi(argv[1]);
    }
    test_memory();
    test_strides();
    test_matrix();
    test_working_sets();
    test_replacement();
    test_flush();
    test_records();
    test_misaligned();
    test_segment_base();
    test_lowest_line();
    test_kinds();
    test_lwpval();
    test_ip_filter();
    test_clocks();
    test_step();
    test_faults();
    test_missing_ring();
    test_work();
    start_second();
    test_remote();
    test_filters();
    /* Atomic instructions are others now. */
    test_kinds();
    stop_second();
    return report_summary();
}
