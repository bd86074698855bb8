/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Random LWP instructions, LWPCBs and XSAVE images in threads and in children,
 * while another thread protects rings, LWPCBs and code, and rewrites them, and
 * signals come.
 *
 * usage: lwp-fuzz [SEED [ITERATIONS]]
 *
 * Each thread makes ITERATIONS; what it does depends on SEED and on its number
 * only, but for what the others do when.
 */

#define _GNU_SOURCE
#include "lwp.h"
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define THREADS         3
#define HANG_SECONDS    60
#define FORK_EVERY      512     /* iterations */
#define SIGNAL_STACK    (32 << 20)
#define DME_FLAG        (1u << 4)       /* A miss is many clocks. */
#define RW              (PROT_READ | PROT_WRITE)
#define RWX             (RW | PROT_EXEC)

/* A thread's window, whose pages have another mapping that stays */
enum { RING = 0, RING_PAGES = 4, CBS = 4, DATAS = 5, AREA = 7, PAGES };

#define SLOTS           4       /* LWPCBs in page CBS */
#define SLOT            512

enum { EAX, ECX, EDX, EBX, ESP, EBP, ESI, EDI };

typedef struct Fuzz {
    unsigned index;
    uint64_t random;
    uint8_t *window, *view, *code;
    unsigned code_len;
    uint8_t shadow[PAGES * PAGE];
    uint64_t ring, ring_size;   /* of all LWPCBs of an iteration */
    /*
     * A handler that is interrupted for want of the ring, before it has
     * disabled LWP, starts again and again.  So an iteration has either short
     * intervals or, if it does not hold this lock, pages that go away for a
     * moment; and what is never there is for LWPVAL and LWPINS only.
     */
    pthread_mutex_t pages;
    bool steady;
    const char *what;
    int sig;
    uintptr_t ip;               /* of the instruction that got it */
    sigjmp_buf back;
    uint64_t iteration;
    unsigned enabled, signals[3], forks;
} Fuzz;

static Fuzz fuzz[THREADS];
static __thread Fuzz *self;
static uint8_t *shared_code;    /* mov $N, %eax; ret */
static uint64_t seed = 1, iterations = 3000;
static int running = THREADS;
static unsigned alarms;
static XsaveArea initial;       /* the initial state */

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;       /* SplitMix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static uint64_t rnd(void)
{
    return next(&self->random);
}

static unsigned below(unsigned n)
{
    return rnd() % n;
}

static bool one_in(unsigned n)
{
    return below(n) == 0;
}

#define PICK(array)     ((array)[below(ARRAY_SIZE(array))])

static void __attribute__((noreturn, format(printf, 1, 2)))
fail(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    printf("FAIL: ");
    vprintf(format, ap);
    va_end(ap);
    printf("\nseed %llu, thread %u, iteration %llu: %s, signal %d at "
           "0x%llx, code at 0x%llx",
           (unsigned long long)seed, self->index,
           (unsigned long long)self->iteration, self->what, self->sig,
           (unsigned long long)self->ip,
           (unsigned long long)(uintptr_t)self->code);
    for (unsigned i = 0; i < self->code_len; i++) {
        printf(" %02x", self->code[i]);
    }
    printf("\n");
    fflush(stdout);
    _exit(EXIT_FAILURE);
}

/* --- memory -------------------------------------------------------------- */

/* Where nothing is mapped, or can be */
static uint64_t no_address(void)
{
    static const uint64_t wild[] = {
        0, 64, 0x1000, 0x8000, -64, -4096, 1ull << 63, 0x800000000000,
        0x7fffffffffc0, 0xffff800000000000,
    };

    return PICK(wild) & UINTPTR_MAX;
}

static uint64_t cb_address(void)
{
    return (uintptr_t)self->window + CBS * PAGE + below(SLOTS) * SLOT;
}

/* A counter or an interval */
static uint32_t random_count(void)
{
    if (!self->steady) {
        return 100 + below(one_in(2) ? 1000 : 0x1000000);
    }
    return one_in(4) ? below(4) : one_in(3) ? below(2000) : rnd();
}

/*
 * LWP writes as the program does, so no ring may be where the program's own
 * memory is.
 */
static uint64_t ring_address(void)
{
    return one_in(8) ? no_address() : self->ring;
}

static void make_cbs(void)
{
    Fuzz *f = self;

    f->ring_size = LWP_MIN_RING + below(2 * PAGE);
    f->ring = (uintptr_t)f->window +
              below(RING_PAGES * PAGE - f->ring_size + 1);
    for (int n = 0; n < SLOTS; n++) {
        LwpCb *cb = (LwpCb *)(f->view + CBS * PAGE + n * SLOT);
        uint64_t *q = (uint64_t *)cb;

        for (unsigned i = 0; i < sizeof(*cb) / 8; i++) {
            q[i] = one_in(2) ? 0 : rnd();
        }
        cb->flags = (one_in(4) ? rnd() : 0x7e) & ~(f->steady ? 0 : DME_FLAG);
        cb->filters = one_in(2) ? 0 : rnd();
        cb->head = one_in(2) ? 0 : below(64) * 32;
        cb->tail = one_in(2) ? 0 : below(64) * 32;
        cb->base = ring_address();
        cb->flags &= cb->base == f->ring ? ~0u : 1u << LWP_VAL;
        cb->size = one_in(8) ? below(2048) : f->ring_size;
        if ((cb->size & 0x0fffffff) > f->ring_size) {
            cb->size = f->ring_size;
        }
        cb->size |= f->steady && one_in(4) ? (uint32_t)rnd() << 28 : 0;
        for (int i = 0; i < 6; i++) {
            cb->event[i].interval = random_count();
            cb->event[i].counter = random_count();
        }
    }
}

/* Nothing but ring and LWPCBs has changed. */
static void check_memory(void)
{
    Fuzz *f = self;
    unsigned start = f->ring - (uintptr_t)f->window;
    unsigned end = start + f->ring_size;
    uint8_t *now = f->view, *then = f->shadow;

    if (memcmp(now, then, start) ||
        memcmp(now + end, then + end, RING_PAGES * PAGE - end)) {
        fail("LWP writes to its ring only");
    }
    for (int i = 0; i < SLOTS; i++) {
        unsigned at = CBS * PAGE + i * SLOT + lwp_cb_size();

        if (memcmp(now + at, then + at, SLOT - lwp_cb_size())) {
            fail("LWP writes to its LWPCB only");
        }
    }
}

/* --- code ---------------------------------------------------------------- */

/* Signals that an instruction may cause */
enum { NONE = 1, ILL = 2, SEGV = 4 };

typedef struct Op {
    uint8_t *p;
    unsigned may;
} Op;

static void put(Op *op, uint64_t bytes, unsigned n)
{
    while (n--) {
        *op->p++ = bytes;
        bytes >>= 8;
    }
}

#define PUT(op, ...) \
    do { \
        static const uint8_t bytes_[] = { __VA_ARGS__ }; \
        memcpy((op)->p, bytes_, sizeof(bytes_)); \
        (op)->p += sizeof(bytes_); \
    } while (0)

/* MOV of an immediate of the register's size */
static void put_mov(Op *op, int reg, uint64_t val)
{
    if (TEST_64BIT) {
        put(op, reg < 8 ? 0x48 : 0x49, 1);
    }
    put(op, 0xb8 + (reg & 7), 1);
    put(op, val, sizeof(uintptr_t));
}

static void put_modrm(Op *op, unsigned modrm, bool addr16)
{
    unsigned mod = modrm >> 6, rm = modrm & 7, disp = 0;
    bool none = rm == 5;

    put(op, modrm, 1);
    if (mod == 3) {
        return;
    }
    if (addr16) {
        disp = mod == 1 ? 1 : mod == 2 || rm == 6 ? 2 : 0;
    } else {
        if (rm == 4) {
            uint8_t sib = rnd();

            put(op, sib, 1);
            none = (sib & 7) == 5;
        }
        disp = mod == 1 ? 1 : mod == 2 || none ? 4 : 0;
    }
    put(op, one_in(2) ? rnd() : below(256), disp);
}

/* An instruction with an XOP prefix is one of chapter 5's or #UD. */
static void gen_lwp(Op *op)
{
    static const uint8_t prefixes[] = {
        0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x67, 0x66, 0xf2, 0xf3, 0xf0
    };
    bool addr16 = false, ud = false, toggled = false;
    unsigned map, xop1, xop2, opcode, modrm, reg;
    uint8_t *start;

    /* No LWPCB that nobody knows: its ring could be anywhere. */
    for (int r = EAX; r < (TEST_64BIT ? 16 : 8); r++) {
        if (r != ESP) {
            put_mov(op, r, one_in(4) ? no_address() : cb_address());
        }
    }
    start = op->p;
    if (one_in(4)) {
        for (int n = 1 + below(2); n; n--) {
            unsigned prefix = PICK(prefixes);

            put(op, prefix, 1);
            ud |= prefix == 0x66 || prefix >= 0xf0;
            toggled |= prefix == 0x67;
        }
        addr16 = toggled && !TEST_64BIT;
    }
    if (TEST_64BIT && one_in(16)) {
        put(op, 0x40 + below(16), 1);           /* REX */
        ud = true;
    }
    map = one_in(8) ? 8 + below(24) : 9 + below(2);
    xop1 = map | (one_in(4) ? rnd() & 0xe0 : 0xe0);
    xop2 = 0x78 | (rnd() & 0x80);
    if (one_in(4)) {
        xop2 = map == 10 && !one_in(4) ? rnd() & 0xf8 : rnd() & 0xff;
    }
    opcode = one_in(32) ? rnd() & 0xff : 0x12;
    modrm = rnd() & 0xff;
    if (!one_in(8)) {
        modrm &= ~0x30;
        modrm |= map == 9 || one_in(2) ? 0xc0 : 0;
    }
    if (map == 9 && (modrm & 7) == ESP) {
        modrm ^= 1;             /* The stack is needed. */
    }

    ud |= map != 9 && map != 10;
    ud |= !TEST_64BIT && (xop1 & 0xc0) != 0xc0;
    ud |= opcode != 0x12 || (xop2 & 7);
    reg = modrm >> 3 & 7;
    ud |= reg > 1;
    if (map == 9) {
        unsigned vvvv = TEST_64BIT ? 0x78 : 0x38;

        ud |= modrm < 0xc0 || (xop2 & vvvv) != vvvv;
    }
    put(op, 0x8f, 1);
    put(op, xop1, 1);
    put(op, xop2, 1);
    put(op, opcode, 1);
    put_modrm(op, modrm, addr16);
    if (map == 10) {
        put(op, rnd(), 4);
    }
    if (op->p - start > 15) {
        self->what = "an instruction of more than 15 bytes";
        op->may |= SEGV | (ud ? ILL : 0);
    } else if (ud) {
        self->what = "not an LWP instruction";
        op->may |= ILL;
    } else {
        self->what = map == 9 ? (reg ? "SLWPCB" : "LLWPCB") :
                     reg ? "LWPVAL" : "LWPINS";
        op->may |= NONE | SEGV;
    }
}

static void gen_xrstor(Op *op)
{
    XsaveArea area = { };
    LwpImage *image = &area.lwp;
    bool known;

    self->what = "XRSTOR";
    area.xstate_bv = one_in(8) ? rnd() : LWP_XSTATE;
    area.xcomp_bv = one_in(16) ? rnd() : 0;
    image->cb = one_in(8) ? no_address() : cb_address();
    image->base = ring_address();
    known = image->base == self->ring &&
            image->cb - CBS * PAGE - (uintptr_t)self->window < PAGE;
    image->size = one_in(8) ? below(2048) : self->ring_size;
    if (image->size > self->ring_size) {
        image->size = self->ring_size;
    }
    image->head = one_in(2) ? below(2000) : rnd();
    image->flags = (one_in(2) ? 0x7e : rnd()) &
                   ~(self->steady ? 0 : DME_FLAG);
    image->filters = one_in(2) ? 0 : rnd();
    image->flags &= known ? ~0u : 1u << LWP_VAL;
    if (known && self->steady && one_in(2)) {
        image->saved = (LwpRecord) { rnd(), rnd(), rnd(), 1, 2, 3, 4 };
    }
    for (int i = 0; i < 16; i++) {
        image->counter[i] = random_count();
    }
    memcpy(self->view + AREA * PAGE, &area, sizeof(area));
    put_mov(op, EAX, 0);
    put_mov(op, EDX, LWP_XSTATE >> 32);
    put_mov(op, ESI, (uintptr_t)self->window + AREA * PAGE + 16 * one_in(32));
    PUT(op, 0x0f, 0xae, 0x2e);
    op->may |= NONE | SEGV;
}

static void gen_xsave(Op *op)
{
    self->what = "XSAVE";
    put_mov(op, EAX, 0);
    put_mov(op, EDX, LWP_XSTATE >> 32);
    put_mov(op, ESI, (uintptr_t)self->window + AREA * PAGE);
    PUT(op, 0x0f, 0xae, 0x26);
    op->may |= NONE | SEGV;
}

static void gen_string(Op *op)
{
    static const uint8_t opcodes[] = { 0xa4, 0xa6, 0xaa, 0xac, 0xae };

    self->what = "a string instruction";
    put_mov(op, ECX, below(2000));
    put_mov(op, ESI, (uintptr_t)self->window + below(DATAS * PAGE));
    put_mov(op, EDI, (uintptr_t)self->window + DATAS * PAGE);
    put(op, one_in(2) ? 0xf3 : 0xf2, 1);
    put(op, PICK(opcodes) + one_in(2), 1);
    op->may |= NONE | SEGV;
}

static void gen_work(Op *op)
{
    self->what = "a loop";
    put_mov(op, ESI, (uintptr_t)self->window + DATAS * PAGE);
    put_mov(op, ECX, 1 + below(300));
    PUT(op, 0xff, 0xc0,                 /* 1: inc %eax */
        0xa8, 0x05,                     /* test $5, %al */
        0x75, 0x02,                     /* jnz 2f */
        0xff, 0xc2,                     /* inc %edx */
        0x8b, 0x1e,                     /* 2: mov (%rsi), %ebx */
        0x83, 0xc6, 0x04,               /* add $4, %esi */
        0xff, 0xc9,                     /* dec %ecx */
        0x75, 0xef);                    /* jnz 1b */
    op->may |= NONE | SEGV;
}

/* Code that another thread rewrites and protects */
static void gen_call(Op *op)
{
    self->what = "a call";
    put_mov(op, EBX, (uintptr_t)shared_code);
    PUT(op, 0xff, 0xd3);
    op->may |= NONE | SEGV;
}

/* Code that rewrites what is right behind it: MOV $N, %eax */
static void gen_rewrite(Op *op)
{
    uint8_t *target = op->p + 1 + sizeof(void *) + TEST_64BIT + 6;

    self->what = "code that changes";
    put_mov(op, EDI, (uintptr_t)target + 1);
    PUT(op, 0xc7, 0x07);                /* movl $imm, (%rdi) */
    put(op, rnd(), 4);
    put(op, 0xb8, 1);
    put(op, 0, 4);
    op->may |= NONE | SEGV;
}

static void (*const generators[])(Op *) = {
    gen_lwp, gen_lwp, gen_lwp, gen_lwp, gen_lwp, gen_lwp,
    gen_xrstor, gen_xrstor, gen_xsave, gen_string, gen_work, gen_work,
    gen_call, gen_rewrite,
};

/* Registers that are kept, and the call */
static void __attribute__((naked, noinline)) call_code(void *code)
{
#if TEST_64BIT
    asm("push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n"
        "push %r15\n push %rax\n call *%rdi\n pop %rcx\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"
        "cld\n ret");
#else
    asm("mov 4(%esp), %eax\n push %ebx\n push %ebp\n push %esi\n push %edi\n"
        "call *%eax\n pop %edi\n pop %esi\n pop %ebp\n pop %ebx\n"
        "cld\n ret");
#endif
}

/* --- signals ------------------------------------------------------------- */

static void leave_code(int sig, siginfo_t *info, void *uc)
{
    /* First of all, and without the LWPCB, which may be what is missing */
    xrstor(&initial, LWP_XSTATE);
    if (!self) {
        signal(sig, SIG_DFL);
        return;
    }
    /*
     * If a helper of QEMU's has an address that is not canonical in RBP, an x86
     * host has #SS, which is SIGBUS without an address, in place of #GP.
     */
    self->sig = sig == SIGBUS && info->si_code == SI_KERNEL ? SIGSEGV : sig;
    self->ip = UC_IP((ucontext_t *)uc);
    siglongjmp(self->back, 1);
}

static void on_alarm(int sig, siginfo_t *info, void *uc)
{
    alarms++;
}

/* What LWP's state may be; then it is disabled. */
static void check_lwp(void)
{
    XsaveArea area = { };
    const LwpImage *image = &area.lwp;

    xsave(&area, LWP_XSTATE);
    xrstor(&initial, LWP_XSTATE);
    if (area.xstate_bv & LWP_XSTATE) {
        self->enabled++;
        if (!image->cb || image->size < LWP_MIN_RING || image->size % 32 ||
            image->head >= image->size || image->head % 32 ||
            (image->flags & ~0x7eu)) {
            fail("LWP's state is valid: ring of 0x%x bytes, head 0x%x, "
                 "events 0x%x", image->size, image->head, image->flags);
        }
    }
}

static void iterate(void)
{
    Fuzz *f = self;
    Op op = { .p = f->code };
    int n = 1 + below(4);
    unsigned sig;

    f->steady = one_in(2);
    if (f->steady) {
        pthread_mutex_lock(&f->pages);
    }
    make_cbs();
    memcpy(f->shadow, f->view, sizeof(f->shadow));
    /* Start with LWP enabled, or not, in most cases. */
    if (!one_in(4)) {
        put_mov(&op, EAX, cb_address());
        PUT(&op, 0x8f, 0xe9, TEST_64BIT ? 0xf8 : 0x78, 0x12, 0xc0);
        op.may |= SEGV;
        n++;
    }
    while (n--) {
        op.may &= ~NONE;
        PICK(generators)(&op);
        if (!(op.may & NONE)) {
            break;              /* It does not get any further. */
        }
    }
    put(&op, 0xc3, 1);
    f->code_len = op.p - f->code;

    f->sig = 0;
    if (!sigsetjmp(f->back, 1)) {
        call_code(f->code);
        check_lwp();
    }
    sig = f->sig == SIGILL ? ILL : f->sig == SIGSEGV ? SEGV : f->sig ? 0 : NONE;
    if (!(op.may & sig)) {
        fail("the signal is one of 0x%x", op.may);
    }
    f->signals[sig == ILL ? 1 : sig == SEGV ? 2 : 0]++;
    check_memory();
    if (f->steady) {
        pthread_mutex_unlock(&f->pages);
    }
}

static void fork_child(void)
{
    pid_t ended, pid = fork();
    int status = 0;

    if (pid < 0) {
        return;
    }
    if (pid == 0) {
        mprotect(self->window, PAGES * PAGE, RW);
        pthread_mutex_init(&self->pages, NULL);
        for (int i = 0; i < 16; i++) {
            iterate();
        }
        _exit(EXIT_SUCCESS);
    }
    do {
        ended = waitpid(pid, &status, 0);
    } while (ended < 0 && errno == EINTR);
    if (ended != pid || !WIFEXITED(status) ||
        WEXITSTATUS(status) != EXIT_SUCCESS) {
        fail("a child ends well, not with status 0x%x", status);
    }
    /* Its random numbers are not to come again. */
    rnd();
    self->forks++;
}

static void *run(void *arg)
{
    stack_t stack = {
        .ss_size = SIGNAL_STACK,
        .ss_sp = mmap(NULL, SIGNAL_STACK, RW,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
    };

    self = arg;
    sigaltstack(&stack, NULL);
    for (uint64_t i = 0; i < iterations; i++) {
        __atomic_store_n(&self->iteration, i, __ATOMIC_RELAXED);
        iterate();
        if (i % FORK_EVERY == FORK_EVERY - 1) {
            fork_child();
        }
    }
    __atomic_fetch_sub(&running, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* --- the thread that disturbs -------------------------------------------- */

static void disturb(uint64_t *random)
{
    static const int prots[] = { PROT_NONE, PROT_READ, PROT_WRITE };
    Fuzz *f = &fuzz[next(random) % THREADS];
    int page = next(random) % DATAS;
    LwpCb *cb = (LwpCb *)(f->view + CBS * PAGE + next(random) % SLOTS * SLOT);

    switch (next(random) % 8) {
    case 0:
        cb->tail = cb->head;
        break;
    case 1:
        ((uint32_t *)cb->event)[next(random) % 12] = 100 + next(random) % 9999;
        break;
    case 2:
        cb->head = cb->missed = next(random);
        break;
    case 3:
        mprotect(shared_code, PAGE, next(random) % 4 ? RWX : RW);
        break;
    case 4:
        mprotect(shared_code, PAGE, RWX);
        __atomic_store_n((uint32_t *)(shared_code + 4), next(random),
                         __ATOMIC_RELAXED);
        break;
    default:
        pthread_mutex_lock(&f->pages);
        mprotect(f->window + page * PAGE, PAGE, prots[next(random) % 3]);
        usleep(next(random) % 256);
        mprotect(f->window + page * PAGE, PAGE, RW);
        pthread_mutex_unlock(&f->pages);
        break;
    }
    usleep(next(random) % 256);
}

int main(int argc, char **argv)
{
    struct itimerval timer = { { 0, 5000 }, { 0, 5000 } };
    static const int signals[] = { SIGSEGV, SIGILL, SIGBUS, SIGTRAP, SIGFPE };
    pthread_t threads[THREADS];
    time_t moved = time(NULL);
    uint64_t last = 0, random;
    unsigned enabled = 0, ill = 0, segv = 0, none = 0, forks = 0;

    if (argc > 1) {
        seed = atoll(argv[1]);
    }
    if (argc > 2) {
        iterations = atoll(argv[2]);
    }
    random = seed;
    for (unsigned i = 0; i < ARRAY_SIZE(signals); i++) {
        struct sigaction sa = {
            .sa_sigaction = leave_code,
            /* The handler's own start may miss the ring, more than once. */
            .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER,
        };

        sigaction(signals[i], &sa, NULL);
    }
    catch(SIGALRM, on_alarm);
    shared_code = map_pages(1, RWX);
    /* Its constant is aligned. */
    memcpy(shared_code, (uint8_t[]) {
        0x90, 0x90, 0x90, 0xb8, 0, 0, 0, 0, 0xc3
    }, 9);
    for (int i = 0; i < THREADS; i++) {
        Fuzz *f = &fuzz[i];
        int fd = memfd_create("lwp-fuzz", 0);

        f->index = i;
        pthread_mutex_init(&f->pages, NULL);
        f->random = seed * 1000003 + i;
        f->window = map_pages(PAGES, PROT_NONE);
        f->code = map_pages(1, RWX);
        if (ftruncate(fd, PAGES * PAGE) ||
            mmap(f->window, PAGES * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) !=
            f->window) {
            perror("lwp-fuzz");
            return EXIT_FAILURE;
        }
        f->view = mmap(NULL, PAGES * PAGE, RW, MAP_SHARED, fd, 0);
        close(fd);
    }
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, run, &fuzz[i]);
    }
    while (__atomic_load_n(&running, __ATOMIC_SEQ_CST)) {
        uint64_t sum = 0;

        disturb(&random);
        for (int i = 0; i < THREADS; i++) {
            sum += __atomic_load_n(&fuzz[i].iteration, __ATOMIC_RELAXED);
        }
        if (sum != last) {
            last = sum;
            moved = time(NULL);
        } else if (time(NULL) - moved > HANG_SECONDS) {
            self = &fuzz[0];
            fail("it goes on");
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        enabled += fuzz[i].enabled;
        none += fuzz[i].signals[0];
        ill += fuzz[i].signals[1];
        segv += fuzz[i].signals[2];
        forks += fuzz[i].forks;
    }
    printf("%u without a signal, %u SIGILL, %u SIGSEGV; LWP enabled after %u; "
           "%u children, %u alarms\n", none, ill, segv, enabled, forks,
           alarms);
    report(iterations < 1000 ||
           (none && ill && segv && enabled && forks && alarms),
           "all has come that was to come");
    report(true, "seed %llu, %d threads with %llu iterations",
           (unsigned long long)seed, THREADS, (unsigned long long)iterations);
    return report_summary();
}
