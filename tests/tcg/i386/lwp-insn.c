/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The LWP instructions and XSAVE component 62 in user mode. */

#define _GNU_SOURCE
#include "lwp.h"
#include <asm/ldt.h>
#include <asm/prctl.h>
#include <sys/syscall.h>

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define RECORDS         32      /* of the smallest ring */
#define HIGH            ((unsigned long)0x89abcdef01234567ull)

static LwpCb *cb;               /* last bytes of their pages */
static LwpRecord *ring;
static uint32_t *word;          /* the last one before an unmapped page */

/* Prepare an LWPCB that counts @flags; LWP is disabled. */
static void prepare(uint32_t flags)
{
    llwpcb(NULL);
    memset(ring, 0, LWP_MIN_RING);
    lwp_init(cb, ring, LWP_MIN_RING, flags);
}

static void start(uint32_t flags, int32_t interval, int32_t counter)
{
    prepare(flags);
    cb->event[0].interval = interval;
    cb->event[0].counter = counter;
    llwpcb(cb);
}

/* How many records there are since start(). */
static unsigned stored(void)
{
    slwpcb();
    return cb->head / sizeof(LwpRecord);
}

static void test_cpuid(void)
{
    uint32_t eax = cpuid_reg(0x8000001c, 0, 0);
    uint32_t ebx = cpuid_reg(0x8000001c, 0, 1);
    uint32_t ecx = cpuid_reg(0x8000001c, 0, 2);
    uint32_t edx = cpuid_reg(0x8000001c, 0, 3);
    unsigned max = 31 - __builtin_clz((edx & ~LWP_FLAG_INT) | 1);

    report(cpuid_reg(0x80000001, 0, 2) & (1u << 15), "LWP is supported");
    report(cpuid_reg(0xd, 0, 3) & (1u << 30), "XSAVE supports component 62");
    report(xgetbv0() & LWP_XSTATE, "XCR0[62] is set");
    report(cpuid_reg(0xd, 62, 0) == 128 && cpuid_reg(0xd, 62, 1) == 832,
           "component 62 has 128 bytes at 832");
    report(cpuid_reg(0xd, 62, 2) == 0 && cpuid_reg(0xd, 62, 3) == 0,
           "component 62 is a user component without alignment");
    report(cpuid_reg(0xd, 0, 1) >= 960 && cpuid_reg(0xd, 0, 2) >= 960,
           "XSAVE area sizes include component 62");
    report((edx & LWP_AVAIL) && (edx & LWP_FLAG_VAL),
           "LWP and LWPVAL are supported");
    report(eax == (edx & ~LWP_FLAG_INT),
           "all that is supported is available, except interrupts");
    report((ebx >> 8 & 0xff) == sizeof(LwpRecord), "LwpEventSize is 32");
    report(ebx >> 24 == offsetof(LwpCb, event), "LwpEventOffset is 128");
    report((ebx >> 16 & 0xff) == max, "LwpMaxEvents is the last event");
    report((ebx & 0xff) == 16 + max, "LwpCbSize holds all events");
    report((ecx >> 9 & 0x7f) == 1, "LwpVersion is 1");
    report((ecx >> 16 & 0xff) == 1, "LwpMinBufferSize is 1");
}

/* §5.1 steps 2 and 3, §5.2 */
static void test_enable(void)
{
    unsigned long reg = -1;

    llwpcb(NULL);
    asm volatile("slwpcb %0" : "+r" (reg));
    report(reg == 0, "SLWPCB returns 0 while LWP is disabled");
    prepare(LWP_FLAG_VAL);
    report(!lwpins(1, 2, 3), "LWPINS clears CF while LWP is disabled");
    lwpval(1, 2, 3);
    report(bytes_are(ring, 0, LWP_MIN_RING), "disabled LWP stores nothing");

    start(0, 0, 0);
    report(slwpcb() == cb, "SLWPCB returns the LWPCB");
    lwpins(1, 2, 3);
    report(record_is(ring, LWP_INS, 3, 2, lwp_ip, 1),
           "LWPINS needs no event enabled");
    lwpval(1, 2, 3);
    report(stored() == 1, "LWPVAL does nothing if its event is not enabled");

    start(LWP_FLAG_VAL, 9, 9);
    lwpins(1, 2, 3);
    lwpval(1, 2, 3);
    cb->head = cb->event[0].counter = 77;
    llwpcb(NULL);
    report(cb->head == 32 && cb->event[0].counter == 8,
           "LLWPCB 0 flushes the head and the counter");
    report(slwpcb() == NULL, "LLWPCB 0 disables LWP");
    lwpins(1, 2, 3);
    report(ring[1].event == 0, "nothing is stored after LLWPCB 0");
}

static void test_truncation(void)
{
#if TEST_64BIT
    unsigned long reg = (uintptr_t)cb | 0xdeadbeefull << 32;
    LwpCb *high = (LwpCb *)0x7a5512340000ull;

    prepare(0);
    asm volatile("llwpcb %k0" : : "r" (reg) : "memory");
    report(slwpcb() == cb, "LLWPCB truncates a 32-bit operand");

    high = mmap(high, PAGE, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    lwp_init(high, ring, LWP_MIN_RING, 0);
    llwpcb(high);
    reg = -1;
    asm volatile("slwpcb %k0" : "+r" (reg) : : "memory");
    report(slwpcb() == high && reg == (uint32_t)(uintptr_t)high,
           "SLWPCB truncates and zero-extends a 32-bit operand");
    asm volatile("llwpcb %k0" : : "r" (7ul << 32) : "memory");
    report(slwpcb() == NULL, "a 32-bit operand of 0 disables LWP");
    munmap(high, PAGE);
#endif
}

/* §5.1 step 6 */
static void test_flags(void)
{
    uint32_t avail = cpuid_reg(0x8000001c, 0, 0) & ~LWP_AVAIL;

    prepare(~0u);
    for (int i = 0; i < 6; i++) {
        cb->event[i].interval = cb->event[i].counter = 0x1ffffff;
    }
    llwpcb(cb);
    report(cb->flags == avail, "LLWPCB clears the Flags not available");
    start(LWP_FLAG_VAL | 0x7fffff80, 0, 0);
    report(cb->flags == LWP_FLAG_VAL, "LLWPCB keeps the Flags available");
    start(LWP_FLAG_INT, 0, 0);
    report(cb->flags == 0 && slwpcb() == cb,
           "LLWPCB starts LWP without any event");
}

/* §5.1 step 7: what LLWPCB makes of an interval and a counter */
static void test_intervals(void)
{
    static const struct {
        const char *name;
        uint32_t interval, counter;
        int32_t interval_after, counter_after;
        unsigned first, second;         /* LWPVALs that store */
    } table[] = {
        { "counter = interval", 3, 3, 3, 3, 4, 8 },
        { "counter > interval", 2, 5, 2, 5, 6, 9 },
        { "counter < interval", 4, 1, 4, 1, 2, 7 },
        { "every LWPVAL", 0, 0, 0, 0, 1, 2 },
        { "counter 0", 3, 0, 3, 0, 1, 5 },
        { "negative counter", 3, -7, 3, 0, 1, 5 },
        { "26-bit negative counter", 2, 0x2000000, 2, 0, 1, 4 },
        { "negative interval", -2, 1, 0, 1, 2, 3 },
        { "26-bit negative interval", 0x2000005, 1, 0, 1, 2, 3 },
        { "reserved bits of the counter", 1, 0xfc000002, 1, 2, 3, 5 },
    };

    for (int i = 0; i < ARRAY_SIZE(table); i++) {
        unsigned at[2] = { }, n = 0;

        start(LWP_FLAG_VAL, table[i].interval, table[i].counter);
        cb->event[0].counter = -1;
        slwpcb();
        report(cb->event[0].interval == table[i].interval_after &&
               cb->event[0].counter == table[i].counter_after,
               "%s: interval and counter as loaded", table[i].name);
        for (unsigned k = 1; k < 20 && n < 2; k++) {
            lwpval(k, 0, 0);
            if (ring[n].event) {
                at[n++] = k;
            }
        }
        report(at[0] == table[i].first && at[1] == table[i].second,
               "%s: LWPVAL %u and %u store", table[i].name,
               table[i].first, table[i].second);
    }

    start(LWP_FLAG_VAL, 0x1ffffff, 0x1ffffff);
    lwpval(0, 0, 0);
    slwpcb();
    report(cb->event[0].counter == 0x1fffffe, "the counter has 26 bits");
    prepare(0);
    cb->event[0].interval = -2;
    cb->event[0].counter = -3;
    llwpcb(cb);
    llwpcb(NULL);
    report(cb->event[0].interval == -2 && cb->event[0].counter == -3,
           "the fields of an event not enabled stay");
}

/* Table 6-1: BufferSize and BufferHeadOffset */
static void test_geometry(void)
{
    static const struct {
        uint32_t size, head;
        uint32_t used, next;    /* before and after a record */
    } table[] = {
        { 1024, 0, 0, 32 },
        { 1024, 32, 32, 64 },
        { 1024, 31, 0, 32 },
        { 1024, 95, 64, 96 },
        { 1024, 992, 992, 0 },
        { 1024, 993, 992, 0 },
        { 1024, 1008, 992, 0 },
        { 1024, 1023, 992, 0 },
        { 1024, 1024, 0, 32 },
        { 1024, 0xffffffe0, 0, 32 },
        { 1055, 992, 992, 0 },
        { 1055, 1023, 992, 0 },
        { 1055, 1024, 0, 32 },
        { 1056, 992, 992, 1024 },
        { 1056, 1024, 1024, 0 },
    };

    for (int i = 0; i < ARRAY_SIZE(table); i++) {
        uint32_t used;

        prepare(0);
        memset(ring, 0, 1056);
        cb->size = table[i].size;
        cb->head = table[i].head;
        cb->tail = 512;
        llwpcb(cb);
        slwpcb();
        used = cb->head;
        lwpins(1, 2, 3);
        report(used == table[i].used && cb->head == table[i].next &&
               ring[table[i].used / 32].event == LWP_INS,
               "BufferSize %u, BufferHeadOffset %u: record at %u",
               table[i].size, table[i].head, table[i].used);
    }

    prepare(0);
    cb->base += 5;
    llwpcb(cb);
    lwpins(1, 2, 3);
    report(ring[0].event == 0 &&
           record_is((void *)((uint8_t *)ring + 5), LWP_INS, 3, 2, lwp_ip, 1),
           "a ring need not be aligned");
}

/* §5.1 step 4: what #GP leaves behind */
static void check_gp(LwpCb *bad, uint64_t base, uint32_t size,
                     const char *name)
{
    static LwpCb old, copy;
    bool mapped = bad == cb;

    llwpcb(NULL);
    lwp_init(&old, ring, LWP_MIN_RING, LWP_FLAG_VAL);
    old.event[0].counter = 5;
    llwpcb(&old);
    lwpval(0, 0, 0);

    lwp_init(cb, NULL, size, ~0u);
    cb->base = base;
    cb->head = cb->event[0].interval = -1;
    copy = *cb;
    report(faults(llwpcb(bad)) == SIGSEGV && fault_is_gp(),
           "%s is #GP", name);
    report(old.event[0].counter == 4 && slwpcb() == NULL &&
           (!mapped || !memcmp(cb, &copy, sizeof(copy))),
           "%s: old LWPCB flushed, new one untouched, LWP disabled", name);
}

static void test_gp(void)
{
    uintptr_t r = (uintptr_t)ring;

    check_gp(cb, r, 0, "BufferSize 0");
    check_gp(cb, r, 1023, "BufferSize 1023");
    check_gp(cb, r, 0xf0000000 | 992, "BufferSize 992 with Random 15");
#if TEST_64BIT
    check_gp((LwpCb *)0x800000000000ull, 0, 0, "LWPCB non-canonical");
    check_gp((LwpCb *)0xffff7fffffffff00ull, 0, 0, "LWPCB negative hole");
    check_gp((LwpCb *)(0x800000000000ull - lwp_cb_size() + 8), 0, 0,
             "LWPCB that ends in the hole");
    check_gp((LwpCb *)-64l, 0, 0, "LWPCB that wraps around");
    check_gp(cb, 0x800000000000ull, 1024, "ring non-canonical");
    check_gp(cb, 0x7ffffffffc20ull, 1024, "ring that ends in the hole");
    check_gp(cb, -1023ull, 1024, "ring that wraps around");

    prepare(0);
    cb->base = 0x7ffffffffc00ull;
    report(!faults(llwpcb(cb)) && slwpcb() == cb,
           "a ring may end where the hole begins");
    report(faults(lwpins(0, 0, 0)) == SIGSEGV && !fault_is_gp(),
           "LLWPCB does not access the ring");
#else
    check_gp((LwpCb *)(-lwp_cb_size() + 8), 0, 0,
             "LWPCB beyond the limit");
    check_gp(cb, 0xfffffc01, 1024, "ring beyond the limit");
    check_gp(cb, 1ull << 32 | r, 1024, "BufferBase above 4 GiB");

    prepare(0);
    cb->base = 0xfffffc00;
    report(!faults(llwpcb(cb)) && slwpcb() == cb,
           "a ring may end at the limit");
#endif
    prepare(0);
    report(!faults(llwpcb(cb)) && slwpcb() == cb, "LLWPCB after #GP works");
    llwpcb(NULL);
}

/* §5.1 step 2 */
static void test_switch(void)
{
    static LwpCb other;
    static LwpRecord ring2[RECORDS];

    start(LWP_FLAG_VAL, 9, 9);
    lwpval(0, 0, 0);
    lwpins(0, 0, 0);
    lwp_init(&other, ring2, sizeof(ring2), LWP_FLAG_VAL);
    other.event[0].counter = 3;
    other.head = 64;
    llwpcb(&other);
    report(cb->event[0].counter == 8 && cb->head == 32,
           "LLWPCB flushes the LWPCB that it replaces");
    lwpval(0, 0, 0);
    lwpins(0, 0, 0);
    report(ring2[2].event == LWP_INS && ring[1].event == 0,
           "records go to the new ring");
    slwpcb();
    report(cb->event[0].counter == 8 && cb->head == 32 &&
           other.event[0].counter == 2 && other.head == 96,
           "SLWPCB flushes to the new LWPCB");
    other.head = 0;
    other.event[0].counter = 100;
    llwpcb(&other);
    slwpcb();
    report(other.head == 96 && other.event[0].counter == 2,
           "LLWPCB of the active LWPCB loads what it flushed");
    llwpcb(NULL);
}

/* Register @r, @rd its low half; its value is saved in @save. */
#define INS_REG(r, rd, save, in, v) \
    do { \
        unsigned long val_ = HIGH + test_checks; \
        start(0, 0, 0); \
        asm volatile("mov %%" r ", %%" save "\n" \
                     "mov %%" v ", %%" r "\n" \
                     "lwpins $1, %%" rd ", %%" r "\n" \
                     "lwpins $2, %%" rd ", %%" rd "\n" \
                     "mov %%" save ", %%" r \
                     : : in(val_) : save, "memory", "cc"); \
        report(ring[0].data1 == (uint32_t)val_ && ring[0].data2 == val_, \
               "LWPINS %s, %s", rd, r); \
        report(ring[1].data1 == (uint32_t)val_ && \
               ring[1].data2 == (uint32_t)val_, "LWPINS %s, %s", rd, rd); \
    } while (0)

#define LLWPCB_REG(r, rd, save, in, v) \
    do { \
        void *p_ = cb; \
        prepare(0); \
        asm volatile("mov %%" r ", %%" save "\n" \
                     "mov %%" v ", %%" r "\n" \
                     "llwpcb %%" r "\n" \
                     "xor %%" rd ", %%" rd "\n" \
                     "slwpcb %%" r "\n" \
                     "mov %%" r ", %%" v "\n" \
                     "mov %%" save ", %%" r \
                     : "+" in(p_) : : save, "memory", "cc"); \
        report(p_ == cb && slwpcb() == cb, "LLWPCB and SLWPCB %s", r); \
    } while (0)

#if TEST_64BIT
#define EACH_REGISTER(X) \
    do { \
        X("rax", "eax", "rcx", "d", "rdx"); \
        X("rcx", "ecx", "rax", "d", "rdx"); \
        X("rdx", "edx", "rax", "c", "rcx"); \
        X("rbx", "ebx", "rax", "d", "rdx"); \
        X("rsp", "esp", "rax", "d", "rdx"); \
        X("rbp", "ebp", "rax", "d", "rdx"); \
        X("rsi", "esi", "rax", "d", "rdx"); \
        X("rdi", "edi", "rax", "d", "rdx"); \
        X("r8", "r8d", "rax", "d", "rdx"); \
        X("r9", "r9d", "rax", "d", "rdx"); \
        X("r10", "r10d", "rax", "d", "rdx"); \
        X("r11", "r11d", "rax", "d", "rdx"); \
        X("r12", "r12d", "rax", "d", "rdx"); \
        X("r13", "r13d", "rax", "d", "rdx"); \
        X("r14", "r14d", "rax", "d", "rdx"); \
        X("r15", "r15d", "rax", "d", "rdx"); \
    } while (0)
#else
#define EACH_REGISTER(X) \
    do { \
        X("eax", "eax", "ecx", "d", "edx"); \
        X("ecx", "ecx", "eax", "d", "edx"); \
        X("edx", "edx", "eax", "c", "ecx"); \
        X("ebx", "ebx", "eax", "d", "edx"); \
        X("esp", "esp", "eax", "d", "edx"); \
        X("ebp", "ebp", "eax", "d", "edx"); \
        X("esi", "esi", "eax", "d", "edx"); \
        X("edi", "edi", "eax", "d", "edx"); \
    } while (0)
#endif

static void test_registers(void)
{
    EACH_REGISTER(INS_REG);
    EACH_REGISTER(LLWPCB_REG);
}

static void test_record(void)
{
    start(LWP_FLAG_VAL, 0, 0);
    lwpins(HIGH, 0xcafef00d, 0x12345678);
    report(record_is(ring, LWP_INS, 0x5678, 0xcafef00d, lwp_ip, HIGH),
           "LWPINS record, immediate truncated");
    lwpins(-1l, -1, -1);
    report(record_is(ring + 1, LWP_INS, 0xffff, -1, lwp_ip,
                     (unsigned long)-1l), "LWPINS record of all ones");
    memset(ring + 2, 0xff, sizeof(*ring));
    lwpins(0, 0, 0xffff0000);
    report(record_is(ring + 2, LWP_INS, 0, 0, lwp_ip, 0),
           "LWPINS record of zeros");
    memset(ring + 3, 0xff, sizeof(*ring));
    lwpval(HIGH, 0x89abcdef, 0x12345678);
    report(record_is(ring + 3, LWP_VAL, 0x5678, 0x89abcdef, lwp_ip, HIGH),
           "LWPVAL record, immediate truncated");
    asm volatile(LWP_HERE("%0") "lwpval $0x8001, %k1, %k2"
                 : "=&r" (lwp_ip) : "r" (HIGH), "r" (HIGH + 1) : "memory");
    report(record_is(ring + 4, LWP_VAL, 0x8001, (uint32_t)HIGH, lwp_ip,
                     (uint32_t)HIGH + 1), "Data2 is zero-extended");
    report(stored() == 5 && bytes_are(ring + 5, 0, 32 * 27) &&
           cb->missed == 0, "nothing else is written");
}

/* LWPINS with memory operand @mem; @p is what it is relative to. */
#define INS_MEM(mem, p, index) \
    do { \
        start(0, 0, 0); \
        asm volatile("lwpins $0x7654321, " mem ", %%edx" \
                     : : "b" (p), "S" ((unsigned long)(index)), "d" (5) \
                     : "memory", "cc"); \
        report(record_is(ring, LWP_INS, 0x4321, 0xfeedbeef, ring->ip, 5), \
               "LWPINS %s", mem); \
    } while (0)

#if TEST_64BIT
static uint32_t in_data __attribute__((used)) = 0xfeedbeef;
#else
static struct user_desc ldt_entry = {
    .limit = 0xfffff, .limit_in_pages = 1, .seg_32bit = 1, .useable = 1,
};
#endif

static void test_memory(void)
{
    uintptr_t w = (uintptr_t)word;
    unsigned long out;

    *word = 0xfeedbeef;
    INS_MEM("(" R "bx)", w, 0);
    INS_MEM("-4(" R "bx)", w + 4, 0);
    INS_MEM("127(" R "bx)", w - 127, 0);
    INS_MEM("-0x12345(" R "bx)", w + 0x12345, 0);
    INS_MEM("(" R "bx, " R "si)", w - 9, 9);
    INS_MEM("8(" R "bx, " R "si, 4)", w + 4, -3);
    INS_MEM("-0x123454(, " R "si, 8)", 0, (w + 0x123454) / 8);
    INS_MEM("0x10000ffc", 0, 0);
    INS_MEM("%%es:(" R "bx)", w, 0);
    INS_MEM("%%cs:(" R "bx)", w, 0);
#if TEST_64BIT
    INS_MEM("in_data(%%rip)", 0, 0);
    INS_MEM("(%%ebx)", w | 7ull << 32, 0);
    INS_MEM("4(%%ebx, %%esi, 2)", (w - 8) | 7ull << 32, 2 | 9ull << 32);

    start(0, 0, 0);
    asm volatile("push %%r13\n mov %0, %%r13\n"
                 "lwpins $0x12345678, 0(%%r13d), %%edx\n"
                 "lwpins $0x12345678, (%%r13), %%r12\n"
                 "pop %%r13" : : "b" (w), "d" (6) : "memory", "cc");
    report(ring[0].data1 == 0xfeedbeef && ring[0].data2 == 6 &&
           ring[1].data1 == 0xfeedbeef, "LWPINS (%%r13)");

    syscall(SYS_arch_prctl, ARCH_SET_GS, w - 64);
    INS_MEM("%%gs:64", 0, 0);
    INS_MEM("%%gs:(%%rbx, %%rsi)", 32, 32);
    asm volatile("mov %%fs:0, %0" : "=r" (out));
    start(0, 0, 0);
    asm volatile("lwpins $1, %%fs:0, %%edx" : : : "memory", "cc");
    report(ring[0].data1 == (uint32_t)out, "LWPINS %%fs:0");
#else
    /* A 16-bit address must fit below the base of a segment. */
    ldt_entry.base_addr = w - 0x10;
    syscall(SYS_modify_ldt, 1, &ldt_entry, sizeof(ldt_entry));
    asm volatile("mov %0, %%fs" : : "r" (7));
    INS_MEM("%%fs:0x10", 0, 0);
    INS_MEM("%%fs:(%%ebx)", 0x10, 0);
    INS_MEM("%%fs:(%%bx, %%si)", 0xfff0, 0x20);
    INS_MEM("%%fs:(%%bx)", 0xabcd0010, 0);
    asm volatile("mov %0, %%fs" : : "r" (0));
    asm volatile("mov %%gs:0, %0" : "=r" (out));
    start(0, 0, 0);
    asm volatile("lwpins $1, %%gs:0, %%edx" : : : "memory", "cc");
    report(ring[0].data1 == out, "LWPINS %%gs:0");
#endif

    /* §5.3: a LWPVAL that stores reads its operand, others do not */
    start(LWP_FLAG_VAL, 1, 0);
    report(!faults(asm volatile("lwpval $8, %0, %%edx"
                                : : "m" (*word), "d" (9) : "memory")) &&
           record_is(ring, LWP_VAL, 8, 0xfeedbeef, ring->ip, 9),
           "LWPVAL reads 4 bytes of memory");
    report(!faults(asm volatile("lwpval $8, %0, %%edx"
                                : : "m" (word[1]) : "memory")),
           "LWPVAL that only counts leaves its operand alone");
    report(faults(asm volatile("lwpval $8, %0, %%edx"
                               : : "m" (word[1]) : "memory")) == SIGSEGV &&
           fault_is_pf(word + 1), "LWPVAL that stores reads its operand");
    start(0, 0, 0);
    report(!faults(asm volatile("lwpval $8, %0, %%edx"
                                : : "m" (word[1]) : "memory")),
           "LWPVAL not enabled leaves its operand alone");
    report(faults(asm volatile("lwpins $8, %0, %%edx"
                               : : "m" (word[1]) : "memory", "cc")) ==
           SIGSEGV && fault_is_pf(word + 1), "LWPINS reads its operand");
    llwpcb(NULL);
    report(!faults(asm volatile("lwpins $8, %0, %%edx\n lwpval $8, %0, %%edx"
                                : : "m" (word[1]) : "memory", "cc")),
           "disabled LWP leaves operands alone");
}

#define ARITH   0x8d5ul         /* OF SF ZF AF PF CF */
#define DF      0x400ul

/* EFLAGS after @op, started with @in, and @insn. */
#define FLAGS(in, op, insn) \
    ({ \
        unsigned long out_, a_ = 0x7fffffff, c_ = 1; \
        asm volatile("lea -128(" R "sp), " R "sp\n" \
                     "push %3\n popf\n" op "\n" insn "\n" \
                     "pushf\n pop %0\n" \
                     "lea 128(" R "sp), " R "sp\n cld" \
                     : "=&r" (out_), "+a" (a_), "+c" (c_) \
                     : "r" ((in) | 2), "d" (0) \
                     : "memory", "cc"); \
        out_ & (ARITH | DF); \
    })

/* @insn sets CF to @cf, or does not change it if that is negative. */
#define CHECK_FLAGS(op, insn, cf, when) \
    do { \
        bool ok_ = true; \
        for (int i_ = 0; i_ < 2; i_++) { \
            unsigned long in_ = i_ ? ARITH | DF : 0; \
            unsigned long want_ = FLAGS(in_, op, ""); \
            if ((cf) >= 0) { \
                want_ = (want_ & ~1ul) | (cf); \
            } \
            ok_ &= FLAGS(in_, op, insn) == want_; \
        } \
        report(ok_, "flags of %.6s after \"%s\", %s", insn, op, when); \
    } while (0)

#define CHECK_ALL_FLAGS(insn, cf, when) \
    do { \
        CHECK_FLAGS("", insn, cf, when); \
        CHECK_FLAGS("decl %%ecx", insn, cf, when); \
        CHECK_FLAGS("cmpl $2, %%ecx", insn, cf, when); \
        CHECK_FLAGS("addl %%eax, %%ecx", insn, cf, when); \
        CHECK_FLAGS("shrl $1, %%eax", insn, cf, when); \
    } while (0)

static void test_eflags(void)
{
    llwpcb(NULL);
    CHECK_ALL_FLAGS("lwpins $1, %%eax, %%ecx", 0, "disabled");
    CHECK_ALL_FLAGS("lwpval $1, %%eax, %%ecx", -1, "disabled");
    start(LWP_FLAG_VAL, 1, 1);
    CHECK_ALL_FLAGS("lwpval $1, %%eax, %%ecx", -1, "counted or stored");
    CHECK_ALL_FLAGS("slwpcb " R "cx", -1, "enabled");
    start(0, 0, 0);
    CHECK_ALL_FLAGS("lwpins $1, %%eax, %%ecx", 0, "stored");
    start(LWP_FLAG_VAL, 0, 0);
    cb->tail = 32;
    CHECK_ALL_FLAGS("lwpins $1, %%eax, %%ecx", 1, "ring full");
    CHECK_ALL_FLAGS("lwpval $1, %%eax, %%ecx", -1, "ring full");
    start(0, 0, 0);
    CHECK_ALL_FLAGS("llwpcb " R "dx", -1, "enabled or not");
}

/* §5.4, Table 6-1: a full ring */
static void test_full(void)
{
    static LwpRecord copy[RECORDS];
    bool ok = true;

    start(LWP_FLAG_VAL, 2, 2);
    for (int i = 0; i < RECORDS - 1; i++) {
        ok &= !lwpins(i, i, 0);
    }
    report(ok && stored() == RECORDS - 1 && cb->missed == 0,
           "a ring takes one record less than it has slots");
    memcpy(copy, ring, sizeof(copy));
    report(lwpins(100, 101, 102), "LWPINS sets CF when the ring is full");
    report(record_is(ring + 31, LWP_INS, 102, 101, lwp_ip, 100) &&
           cb->missed == 1 && stored() == 31,
           "it writes the slot at head and counts a missed event");
    report(lwpins(200, 201, 202) && ring[31].data2 == 200 &&
           cb->missed == 2 && stored() == 31, "the next one overwrites it");
    lwpval(1, 2, 3);
    lwpval(1, 2, 3);
    slwpcb();
    report(ring[31].event == LWP_INS && cb->event[0].counter == 0,
           "LWPVAL counts while the ring is full");
    lwpval(300, 301, 302);
    slwpcb();
    report(record_is(ring + 31, LWP_VAL, 302, 301, lwp_ip, 300) &&
           cb->missed == 3 && cb->event[0].counter == 2,
           "a missed LWPVAL resets the counter");
    report(!memcmp(copy, ring, 31 * sizeof(*ring)),
           "records between tail and head stay");
    cb->tail = 32;
    report(!lwpins(400, 401, 402) && ring[31].data2 == 400 &&
           cb->missed == 3 && stored() == 0,
           "LWPINS sees a new tail; the head wraps around");
    report(lwpins(500, 501, 502) && ring[0].data2 == 500 &&
           cb->missed == 4 && stored() == 0, "and the ring is full again");
    cb->tail = 0;
    for (int i = 0; i < 3 * RECORDS; i++) {
        ok &= !lwpins(i, 0, 0) && ring[i % RECORDS].data2 == i;
        cb->tail = (i + 1) % RECORDS * sizeof(*ring);
    }
    report(ok && cb->missed == 4 && stored() == 0,
           "an emptied ring is never full");

    prepare(0);
    cb->missed = 0xffffffff;
    cb->tail = 32;
    llwpcb(cb);
    lwpins(0, 0, 0);
    report(cb->missed == 1ull << 32, "MissedEvents has 64 bits");
}

/* Table 6-1: Random */
static void random_periods(unsigned *period, int n)
{
    unsigned count = 0;

    prepare(LWP_FLAG_VAL);
    cb->size |= 4u << 28;
    cb->event[0].interval = 0x45;
    llwpcb(cb);
    lwpval(0, 0, 0);            /* The first period is EventCounter1. */
    for (int i = 0; i < n;) {
        memset(ring, 0, LWP_MIN_RING);
        cb->head = 0;
        cb->tail = 512;         /* Never full, wherever the head is. */
        lwpval(0, 0, 0);
        count++;
        if (!bytes_are(ring, 0, LWP_MIN_RING)) {
            period[i++] = count;
            count = 0;
        }
    }
}

static void test_random(const char *self)
{
    enum { N = 400 };
    unsigned period[N], again[N], seen = 0;
    const char *qemu = getenv("QEMU");
    char command[4096];
    bool in_range = true;
    FILE *child;

    random_periods(period, N);
    for (int i = 0; i < N; i++) {
        in_range &= period[i] >= 0x41 && period[i] <= 0x50;
        seen |= 1u << (period[i] - 0x41);
    }
    report(in_range, "Random replaces the low bits of the interval only");
    report(seen == 0xffff, "Random gives every value of those bits");
    random_periods(again, N);
    report(memcmp(period, again, sizeof(period)),
           "Random goes on after LWP was disabled");

    if (!qemu) {
        printf("SKIP: Random in other processes, $QEMU is not set\n");
    }
    for (int run = 0; qemu && run < 2; run++) {
        size_t n;

        snprintf(command, sizeof(command), "%s -cpu max,+lwp %s random",
                 qemu, self);
        child = popen(command, "r");
        n = fread(again, sizeof(*again), N, child);
        report(pclose(child) == 0 && n == N &&
               (run == 0 || !memcmp(period, again, sizeof(period))),
               "Random, run %d in another process", run);
        memcpy(period, again, sizeof(period));
    }
}

/* Chapter 7 */
static XsaveArea area;

static void save(void)
{
    memset(&area, 0, sizeof(area));
    memset(&area.lwp, 0xee, sizeof(area.lwp));
    xsave(&area, LWP_XSTATE);
}

static void test_xsave(void)
{
    llwpcb(NULL);
    save();
    report(area.xstate_bv == 0, "XSAVE clears XSTATE_BV[62] if disabled");
    report(bytes_are(&area.lwp, 0xee, sizeof(area.lwp)),
           "XSAVE writes no image if disabled");

    prepare(LWP_FLAG_VAL);
    cb->filters = 0x18000105;
    cb->event[0].interval = 50;
    cb->event[0].counter = 100;
    cb->head = 64;
    cb->size = 0x20000000 | 1055;
    llwpcb(cb);
    lwpval(0, 0, 0);
    lwpins(0, 0, 0);
    cb->head = 0;
    save();
    report(area.xstate_bv == LWP_XSTATE, "XSAVE sets XSTATE_BV[62]");
    report(area.lwp.cb == (uintptr_t)cb && area.lwp.base == (uintptr_t)ring &&
           area.lwp.size == 1024 && area.lwp.filters == 0x18000105,
           "the image has pointers, rounded size and filters");
    report(area.lwp.flags == LWP_FLAG_VAL && area.lwp.head == 96 &&
           area.lwp.counter[0] == 99, "the image has the live state");
    report(bytes_are(&area.lwp.saved, 0, 32) &&
           bytes_are(area.lwp.counter + 1, 0, 60), "the rest is zero");
    report(cb->head == 0 && cb->event[0].counter == 100,
           "XSAVE does not flush");
    report(slwpcb() == cb && cb->head == 96 && cb->event[0].counter == 99,
           "XSAVE does not disturb LWP");

    area.xstate_bv = LWP_XSTATE;
    memset(&area.lwp, 0xee, sizeof(area.lwp));
    xsave(&area, 2);
    report((area.xstate_bv & LWP_XSTATE) &&
           bytes_are(&area.lwp, 0xee, sizeof(area.lwp)),
           "XSAVE without RFBM[62] leaves header bit and image");
    llwpcb(NULL);
    xsave(&area, LWP_XSTATE);
    report(!(area.xstate_bv & LWP_XSTATE), "a stale header bit is cleared");
}

static void test_xrstor(void)
{
    static LwpCb other;
    static LwpRecord ring2[RECORDS];
    unsigned n;

    start(LWP_FLAG_VAL, 5, 5);
    lwpval(0, 0, 0);
    lwpins(0, 0, 0);
    save();
    cb->head = cb->event[0].counter = 77;
    area.xstate_bv = 0;
    xrstor(&area, 2);
    area.xstate_bv = LWP_XSTATE;
    xrstor(&area, 2);
    report(slwpcb() == cb, "XRSTOR without RFBM[62] changes nothing");
    cb->head = cb->event[0].counter = 77;
    area.xstate_bv = 0;
    xrstor(&area, LWP_XSTATE);
    report(slwpcb() == NULL, "XRSTOR of the initial state disables LWP");
    report(cb->head == 77 && cb->event[0].counter == 77,
           "and does not flush it");

    area.xstate_bv = LWP_XSTATE;
    xrstor(&area, LWP_XSTATE);
    report(cb->head == 77 && slwpcb() == cb && cb->head == 32 &&
           cb->event[0].counter == 4,
           "XRSTOR restores head and counter; the image wins");
    for (n = 1; n < 20 && stored() == 1; n++) {
        lwpval(n, 0, 0);
    }
    report(n - 1 == 5 && ring[1].data2 == 5, "the counter goes on from there");
    for (n = 1; n < 20 && stored() == 2; n++) {
        lwpval(n, 0, 0);
    }
    report(n - 1 == 6, "the interval comes from the LWPCB");

    lwp_init(&other, ring2, sizeof(ring2), LWP_FLAG_VAL);
    other.event[0].counter = 55;
    llwpcb(&other);
    lwpval(0, 0, 0);
    xrstor(&area, LWP_XSTATE);
    report(slwpcb() == cb && other.event[0].counter == 55,
           "XRSTOR overwrites the old state without saving it");

    /* Overrun (§1.1 step 5): at -4, two more periods have begun. */
    start(LWP_FLAG_VAL, 10, 10);
    save();
    area.lwp.counter[0] = -3 & 0x3ffffff;
    xrstor(&area, LWP_XSTATE);
    lwpval(1, 2, 3);
    slwpcb();
    report(record_is(ring, LWP_VAL, 3, 2, lwp_ip, 1) &&
           cb->event[0].counter == 10 - 3,
           "a negative counter is due, and the overrun is deducted");

    start(0, 10, 10);
    save();
    area.lwp.flags = ~0u;
    area.lwp.counter[0] = 33;
    xrstor(&area, LWP_XSTATE);
    save();
    report(area.lwp.flags ==
           (cpuid_reg(0x8000001c, 0, 0) & 0x7e) &&
           area.lwp.counter[0] == 33,
           "XRSTOR enables the events in the image that are available");
    start(LWP_FLAG_VAL, 10, 10);
    save();
    area.lwp.flags = 0;
    xrstor(&area, LWP_XSTATE);
    save();
    report(area.lwp.flags == 0 && area.lwp.counter[0] == 0 && slwpcb() == cb,
           "XRSTOR disables the events that are not in the image");
    start(0, 0, 0);
    save();
    area.lwp.cb = 0;
    xrstor(&area, LWP_XSTATE);
    report(slwpcb() == NULL, "XRSTOR of LWPCBAddress 0 disables LWP");
}

/* §7.4 step 1 and the checks at CPL 3 */
static void test_xrstor_checks(void)
{
    uint64_t c = (uintptr_t)cb, r = (uintptr_t)ring;
    const struct {
        const char *name;
        uint64_t cb, base;
        uint32_t size, head;
        int at;                 /* of the next record; -1 if disabled */
    } table[] = {
        { "as it was", c, r, 1024, 64, 64 },
        { "size below the minimum", c, r, 1023, 0, -1 },
        { "size 0", c, r, 0, 0, -1 },
        { "reserved size bits", c, r, 0xf0000000, 0, -1 },
        { "size rounded down", c, r, 1055, 992, 992 },
        { "head in the remainder", c, r, 1055, 1000, 0 },
        { "head too near the end", c, r, 1024, 1008, 0 },
        { "head = size", c, r, 1024, 1024, 0 },
        { "huge head", c, r, 1024, 0xffffffe0, 0 },
        { "unaligned head", c, r, 1024, 95, 64 },
#if TEST_64BIT
        { "LWPCB non-canonical", 1ull << 47, r, 1024, 0, -1 },
        { "LWPCB ends in the hole", (1ull << 47) - lwp_cb_size() + 8,
          r, 1024, 0, -1 },
        { "ring non-canonical", c, 1ull << 63, 1024, 0, -1 },
        { "ring ends in the hole", c, 0x7ffffffffc20, 1024, 0, -1 },
        { "ring wraps around", c, -64ull, 1024, 0, -1 },
#else
        { "LWPCB beyond the limit", -8u, r, 1024, 0, -1 },
        { "ring beyond the limit", c, -1023u, 1024, 0, -1 },
#endif
    };

    for (int i = 0; i < ARRAY_SIZE(table); i++) {
        bool ok;

        start(0, 0, 0);
        save();
        area.lwp.cb = table[i].cb;
        area.lwp.base = table[i].base;
        area.lwp.size = table[i].size;
        area.lwp.head = table[i].head;
        cb->tail = 512;
        ok = !faults(xrstor(&area, LWP_XSTATE));
        if (table[i].at < 0) {
            ok &= slwpcb() == NULL;
        } else {
            lwpins(i, 2, 3);
            ok &= record_is(ring + table[i].at / 32, LWP_INS, 3, 2, lwp_ip, i);
        }
        report(ok, "XRSTOR: %s", table[i].name);
    }
}

/* §7.4 step 3 */
static void test_saved_record(void)
{
    static const LwpRecord forged = { 200, 17, 0x1234, 5, 6, 7, 8 };

    start(LWP_FLAG_VAL, 5, 5);
    save();
    area.lwp.saved = forged;
    xrstor(&area, LWP_XSTATE);
    report(stored() == 1 && !memcmp(ring, &forged, sizeof(forged)),
           "a saved record is stored as it is");
    save();
    report(bytes_are(&area.lwp.saved, 0, 32) && area.lwp.head == 32 &&
           bytes_are(ring + 1, 0, 32), "once");
    report(area.lwp.counter[0] == 5, "no counter is reset for it");

    start(LWP_FLAG_VAL, 5, 5);
    save();
    area.lwp.saved = forged;
    area.lwp.saved.event = LWP_VAL;
    area.lwp.counter[0] = -2;
    xrstor(&area, LWP_XSTATE);
    report(stored() == 1 && cb->event[0].counter == 4,
           "a saved LWPVAL record resets the counter, less the overrun");

    start(0, 0, 0);
    save();
    area.lwp.saved = forged;
    area.lwp.saved.event = 0;
    xrstor(&area, LWP_XSTATE);
    report(stored() == 0 && bytes_are(ring, 0, LWP_MIN_RING),
           "EventId 0 means that no record is saved");

    start(0, 0, 0);
    save();
    area.lwp.saved = forged;
    cb->tail = 32;
    xrstor(&area, LWP_XSTATE);
    report(stored() == 0 && cb->missed == 1 &&
           !memcmp(ring, &forged, sizeof(forged)),
           "a saved record may find the ring full");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        unsigned period[400];

        setvbuf(stdout, NULL, _IOFBF, BUFSIZ);
        ring = map_pages(1, PROT_READ | PROT_WRITE);
        cb = map_pages(1, PROT_READ | PROT_WRITE);
        random_periods(period, ARRAY_SIZE(period));
        fwrite(period, sizeof(period), 1, stdout);
        return 0;
    }

    catch(SIGSEGV, on_fault);
    catch(SIGILL, on_fault);
    /* 0x10000000 is where test_memory() expects @word to be. */
    word = map_pages(2, PROT_READ | PROT_WRITE);
    mprotect((char *)word + PAGE, PAGE, PROT_NONE);
    word += PAGE / sizeof(*word) - 1;
    ring = map_pages(1, PROT_READ | PROT_WRITE);
    cb = map_pages(1, PROT_READ | PROT_WRITE);

    test_cpuid();
    test_enable();
    test_truncation();
    test_flags();
    test_intervals();
    test_geometry();
    test_gp();
    test_switch();
    test_registers();
    test_record();
    test_memory();
    test_eflags();
    test_full();
    test_random(argv[0]);
    test_xsave();
    test_xrstor();
    test_xrstor_checks();
    test_saved_record();
    return report_summary();
}
