/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling: each processor profiles itself while the one
 * before it empties the ring by the lockless protocol (§1.1).
 */

#include "lwp-kernel.h"
#include "kernel-ap64.h"

/* How long it runs, by the clock */
#ifndef SECONDS
#define SECONDS 60
#endif
/* 1: nobody reads the rings; prints how much each processor has done */
#ifndef THROUGHPUT
#define THROUGHPUT 0
#endif

enum { IRE = 2, BRE = 3, CNH = 5 };

#define MAX_CPUS        4
#define SMALL           32              /* records; the minimum */
#define LARGE           1000
#define IRE_INTERVAL    (THROUGHPUT ? 100000 : 97)
#define BRE_INTERVAL    (THROUGHPUT ? 100000 : 101)
#define CNH_INTERVAL    0x1ffffff       /* the maximum */

#define EFER_SCE        1
#define MSR_STAR        0xc0000081
#define MSR_LSTAR       0xc0000082

/* What user_chunk() executes at CPL 3 */
#define CHUNK_LWPINS    (64 * 4)
#define CHUNK_INSNS     (1 + 4 + 64 * (4 * (10 + 12 * 2) + 2) + 4)
#define CHUNK_BRANCHES  (1 + 64 * (4 * 12 + 1) + 1)
#define CHUNK_HASH      0x1e3779b1u
#define CHUNK_FLAGS     0x1357
#define CHUNK_FLAGS_ADD 0x2222

typedef struct Cpu {
    /* chunk() knows these: */
    uint64_t seq;               /* of the next LWPINS */
    uint64_t full;              /* LWPINS with CF = 1 */
    uint64_t sum;               /* of seq, of LWPINS with CF = 0 */
    uint64_t key;
    unsigned index;
    unsigned phase;             /* barriers passed */
    uint64_t chunks;
    uint64_t clocks;
    int32_t clock_counter;
    uint32_t size;              /* of the ring */
    uint32_t first_head;        /* after one chunk, before anyone reads */
    uint64_t first_missed;
    _Alignas(64) LwpCb cb;
    _Alignas(64) LwpRecord ring[LARGE];
    /* What the processor before this one has read */
    struct {
        uint32_t tail;
        uint64_t lwpins, sum, next_seq;
        uint64_t events[CNH + 1];
        uint64_t bad, disorder;
    } seen __attribute__((aligned(64)));
    uint8_t stack[16384] __attribute__((aligned(16)));
} Cpu;

static Cpu cpu[MAX_CPUS];
static unsigned cpus;
static uint32_t arrived, stop;
static uint64_t panic_stack[512];

static void __attribute__((naked)) syscall_entry(void)
{
    asm("jmp *%rcx");
}

/* The caller goes on at another CPL, on the same stack. */
static void __attribute__((naked)) leave_user(void)
{
    asm("syscall\n ret");
}

static void __attribute__((naked)) enter_user(void)
{
    asm("pop %rdx\n"
        "mov %rsp, %rax\n"
        "push $0x23\n push %rax\n push $2\n push $0x1b\n push %rdx\n"
        "iretq\n");
}

/* The program.  It keeps count without branches, in RAX, R8 and R9. */
static void __attribute__((naked)) chunk(Cpu *c)
{
    asm("mov (%rdi), %rax\n mov 8(%rdi), %r8\n mov 16(%rdi), %r9\n"
        "mov $64, %esi\n"
        "1:\n"
        "flags = 0x1357\n"
        "chunk_copies:\n"
        ".rept 4\n"
        "imul $0x1e3779b1, %eax, %edx\n"
        "xor 24(%rdi), %edx\n"
        "lwpins $flags, %edx, %rax\n"
        "sbb %rcx, %rcx\n sub %rcx, %r8\n"
        "not %rcx\n and %rax, %rcx\n add %rcx, %r9\n"
        "inc %rax\n"
        "mov $12, %ecx\n"
        "2: dec %ecx\n"
        "jnz 2b\n"
        "flags = flags + 0x2222\n"
        ".endr\n"
        "chunk_copies_end:\n"
        "dec %esi\n"
        "jnz 1b\n"
        "mov %rax, (%rdi)\n mov %r8, 8(%rdi)\n mov %r9, 16(%rdi)\n"
        "ret\n"
        "chunk_end:\n");
}

/* From CPL 0: chunk() at CPL 3 */
static void __attribute__((naked)) user_chunk(Cpu *c)
{
    asm("mov %rsp, %rax\n"
        "push $0x23\n push %rax\n push $2\n push $0x1b\n push $1f\n"
        "iretq\n"
        "1: call chunk\n"
        "syscall\n"
        "ret\n"
        "user_chunk_end:\n");
}

/* Of LWPINS in a copy: IMUL and XOR are before it. */
#define LWPINS_OFFSET   9

static bool in_program(uint64_t ip)
{
    return (ip >= (uintptr_t)chunk && ip < LABEL(chunk_end)) ||
           (ip >= (uintptr_t)user_chunk && ip < LABEL(user_chunk_end));
}

/* Processors with an odd number read at CPL 3, under LWP. */
static bool reads_at_cpl3(const Cpu *c)
{
    return c->index & 1;
}

/* Such ones count clocks, as compiled code has no fixed number of branches. */
static int other_event(const Cpu *c)
{
    return reads_at_cpl3(c) && !THROUGHPUT ? CNH : BRE;
}

/* Whether all of @r is from one event of @c's. */
static bool record_is_good(const Cpu *c, const LwpRecord *r)
{
    uint64_t copies = LABEL(chunk_copies);
    uint64_t stride = (LABEL(chunk_copies_end) - copies) / 4;
    unsigned copy = r->data2 & 3;

    if (r->core != c->index + 1 || r->reserved) {
        return false;
    }
    if (r->event == LWP_INS) {
        return r->data1 == ((uint32_t)(r->data2 * CHUNK_HASH) ^ c->key) &&
               r->flags == CHUNK_FLAGS + CHUNK_FLAGS_ADD * copy &&
               r->ip == copies + stride * copy + LWPINS_OFFSET;
    }
    if (r->data1 || r->ip < LABEL(__load_st) || r->ip >= LABEL(__load_en) ||
        !(reads_at_cpl3(c) || in_program(r->ip))) {
        return false;
    }
    if (r->event == BRE && r->event == other_event(c)) {
        return !(r->flags & 0xfff) && in_program(r->data2);
    }
    return (r->event == IRE || r->event == other_event(c)) &&
           r->flags == 0 && r->data2 == 0;
}

static void read_record(Cpu *c, const LwpRecord *r)
{
    if (!record_is_good(c, r)) {
        c->seen.bad++;
    } else if (r->event == LWP_INS) {
        c->seen.disorder += r->data2 < c->seen.next_seq;
        c->seen.next_seq = r->data2 + 1;
        c->seen.lwpins++;
        c->seen.sum += r->data2;
    } else {
        c->seen.events[r->event]++;
    }
}

static void empty_ring(Cpu *c)
{
    uint32_t head = __atomic_load_n(&c->cb.head, __ATOMIC_ACQUIRE);
    uint32_t tail = c->seen.tail;

    while (tail != head) {
        LwpRecord *r = &c->ring[tail / sizeof(*r)];

        read_record(c, r);
        /* Nobody may read it twice. */
        r->event = 0;
        r->reserved = -1;
        tail += sizeof(*r);
        if (tail == c->size) {
            tail = 0;
        }
    }
    c->seen.tail = tail;
    __atomic_store_n(&c->cb.tail, tail, __ATOMIC_RELEASE);
}

/* At any CPL; the interval is far longer than what is between two calls. */
static void read_clock(Cpu *c)
{
    int32_t counter;

    slwpcb();
    counter = c->cb.event[CNH - 1].counter;
    c->clocks += (c->clock_counter - counter) & CNH_INTERVAL;
    c->clock_counter = counter;
}

static bool is_stopped(void)
{
    return __atomic_load_n(&stop, __ATOMIC_RELAXED);
}

static bool is_patient(const Cpu *c)
{
    return c->size == LARGE * sizeof(LwpRecord);
}

/* Whether a patient processor may go on. */
static bool has_room(Cpu *c)
{
    uint32_t tail = __atomic_load_n(&c->cb.tail, __ATOMIC_RELAXED);

    return (c->cb.head + c->size - tail) % c->size <= c->size / 2;
}

/* What a processor does beside what chunk() does */
static void consume(Cpu *c)
{
    do {
        empty_ring(&cpu[(c->index + 1) % cpus]);
        if (reads_at_cpl3(c)) {
            read_clock(c);
        }
    } while (is_patient(c) && !has_room(c) && !is_stopped());
}

static uint8_t cmos(uint8_t index)
{
    out8(0x70, index);
    return in8(0x71);
}

/* For one processor: whether SECONDS are over since the first call. */
static bool time_is_over(void)
{
    static unsigned second, seconds;
    static bool started;
    unsigned now = cmos(0);

    if (!started) {
        /* Begin with a whole one. */
        while (cmos(0) == now) {
            asm volatile("pause");
        }
        now = cmos(0);
        started = true;
    } else if (now != second) {
        seconds++;
    }
    second = now;
    return seconds == SECONDS;
}

static void barrier(Cpu *c)
{
    __atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL);
    c->phase++;
    while (__atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < c->phase * cpus) {
        asm volatile("pause");
    }
}

static void start_profiling(Cpu *c)
{
    int other = other_event(c);

    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SCE);
    wrmsr(MSR_STAR, (uint64_t)CODE64 << 32);
    wrmsr(MSR_LSTAR, (uintptr_t)syscall_entry);
    lwp_make_available();
    wrmsr(MSR_LWP_CFG, rdmsr(MSR_LWP_CFG) | (c->index + 1ull) << 32);

    c->key = 0x10203040 * (c->index + 1);
    c->size = (c->index & 2 || THROUGHPUT ? LARGE : SMALL) * sizeof(*c->ring);
    c->clock_counter = CNH_INTERVAL;
    lwp_init(&c->cb, c->ring, c->size, 1u << IRE | 1u << other);
    c->cb.event[IRE - 1].interval = IRE_INTERVAL;
    c->cb.event[IRE - 1].counter = IRE_INTERVAL;
    c->cb.event[other - 1].interval = other == BRE ? BRE_INTERVAL
                                                   : CNH_INTERVAL;
    c->cb.event[other - 1].counter = c->cb.event[other - 1].interval;
    llwpcb(&c->cb);
}

static void run_chunk(Cpu *c)
{
    user_chunk(c);
    c->chunks++;
}

static void measure(Cpu *c)
{
    while (!is_stopped()) {
        for (int i = 0; i < 64; i++) {
            run_chunk(c);
            c->cb.tail = c->cb.head;
        }
        if (c->index == 0 && time_is_over()) {
            __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        }
    }
}

static void work(Cpu *c)
{
    start_profiling(c);
    if (c->index == 0) {
        time_is_over();
    }
    barrier(c);
    if (THROUGHPUT) {
        measure(c);
        barrier(c);
        return;
    }

    run_chunk(c);
    c->first_head = c->cb.head;
    c->first_missed = c->cb.missed;
    barrier(c);
    while (!is_stopped()) {
        if (reads_at_cpl3(c)) {
            enter_user();
            chunk(c);
            consume(c);
            leave_user();
            c->chunks++;
        } else {
            run_chunk(c);
            consume(c);
        }
        if (c->index == 0 && time_is_over()) {
            __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        }
    }
    if (reads_at_cpl3(c)) {
        read_clock(c);
    } else {
        slwpcb();
    }
    wrmsr(MSR_LWP_CBADDR, 0);
    barrier(c);
    empty_ring(&cpu[(c->index + 1) % cpus]);
    barrier(c);
}

/* The number of the processor that is being started */
static unsigned starting;

void ap_main(void)
{
    Cpu *c = &cpu[starting];

    load_tables();
    __atomic_add_fetch(&ap_starts, 1, __ATOMIC_ACQ_REL);
    work(c);
    for (;;) {
        asm volatile("hlt");
    }
}

/* What any exception leads to; see trap_stubs */
static void panic(void)
{
    report(false, "exception %d at 0x%lx", (int)regs.vector, regs.rip);
    report_summary();
    asm volatile("out %0, $0xf4" : : "a" (1));
}

static void start_aps(void)
{
    for (starting = 1; starting < cpus; starting++) {
        start_ap64(starting,
                   cpu[starting].stack + sizeof(cpu[starting].stack));
    }
}

static void check_ring(const Cpu *c)
{
    int n = c->index, other = other_event(c);
    uint64_t insns = c->chunks * CHUNK_INSNS;
    uint64_t others = c->chunks * CHUNK_BRANCHES / (BRE_INTERVAL + 1);
    uint64_t ires, produced, consumed, first;

    if (other == CNH) {
        insns = c->clocks;
        others = c->clocks / (CNH_INTERVAL + 1);
    }
    ires = insns / (IRE_INTERVAL + 1);
    produced = c->seq + ires + others;
    consumed = c->seen.lwpins + c->seen.events[IRE] + c->seen.events[other];
    ml_printf("ring %d, %d records: %ld LWPINS, %ld instructions; "
              "%ld records read, %ld missed\n", n,
              c->size / (int)sizeof(LwpRecord), c->seq, insns, consumed,
              c->cb.missed);

    first = CHUNK_LWPINS + CHUNK_INSNS / (IRE_INTERVAL + 1);
    if (other == BRE) {
        first += CHUNK_BRANCHES / (BRE_INTERVAL + 1);
    }
    if (is_patient(c)) {
        report(c->first_missed == 0 &&
               c->first_head == first * sizeof(LwpRecord),
               "ring %d: has room for the first records", n);
    } else {
        report(c->first_missed == first - (SMALL - 1) &&
               c->first_head == (SMALL - 1) * sizeof(LwpRecord),
               "ring %d: is full after the first records", n);
    }
    report(c->chunks > 1 && c->seen.lwpins && c->seen.events[IRE] &&
           c->seq == c->chunks * CHUNK_LWPINS && insns > c->seq,
           "ring %d: the program has run", n);
    report(produced == consumed + c->cb.missed,
           "ring %d: produced = consumed + missed", n);
    report(c->seq == c->seen.lwpins + c->full && c->sum == c->seen.sum,
           "ring %d: LWPINS: consumed if CF = 0, missed if CF = 1", n);
    report(c->seen.disorder == 0, "ring %d: LWPINS are in order", n);
    report(c->cb.missed - c->full == ires - c->seen.events[IRE] +
           others - c->seen.events[other],
           "ring %d: the other missed events are those not consumed", n);
    report(c->cb.event[IRE - 1].counter ==
           IRE_INTERVAL - insns % (IRE_INTERVAL + 1),
           "ring %d: the counter is exact", n);
    if (is_patient(c) && !reads_at_cpl3(c)) {
        report(c->cb.missed == 0, "ring %d: never full", n);
    }
    report(c->seen.bad == 0, "ring %d: no record is torn", n);
}

int main(void)
{
    kernel_init();
    kernel_rsp = (uintptr_t)&panic_stack[ARRAY_SIZE(panic_stack) - 8];
    panic_stack[ARRAY_SIZE(panic_stack) - 2] = (uintptr_t)panic;
    cpus = cmos(0x5f) + 1;
    if (cpus > MAX_CPUS) {
        cpus = MAX_CPUS;
    }
    for (int i = 0; i < cpus; i++) {
        cpu[i].index = i;
    }
    start_aps();
    work(&cpu[0]);

    if (THROUGHPUT) {
        for (int i = 0; i < cpus; i++) {
            ml_printf("processor %d: %ld instructions and %ld LWPINS/s\n", i,
                      cpu[i].chunks * CHUNK_INSNS / SECONDS,
                      cpu[i].seq / SECONDS);
        }
        return 0;
    }
    report(cpus > 1, "%d processors", cpus);
    for (int i = 0; i < cpus; i++) {
        check_ring(&cpu[i]);
    }
    return report_summary();
}
