/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LWP and KVM.  SVM does not switch LWP: if a nested guest finds XCR0[62] set,
 * its LLWPCB works, and what the VMM does next stores records in the VMM's own
 * memory, at linear addresses of the guest's choice.
 *
 * usage: lwp-kvm WHEN [MODULE]
 *
 * Nested guests try that, with CR4.OSXSAVE clear and set, and the VMM looks
 * whether something has happened to it; and whether its own LWP, and that of
 * another task on the same CPU, are as they should be.  Without the driver,
 * there has to be no LWP at all.  WHEN is for the report.  With MODULE, which
 * is the file of kvm_amd, that is first loaded again amid profiles.
 *
 * To be run as root.
 */
#define _GNU_SOURCE
#include <linux/kvm.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "test.h"
#include "../linux/lwp_ioctl.h"

#define STRING_(x)  #x
#define STRING(x)   STRING_(x)

/* The guest's memory: physical addresses, which are its linear ones. */
#define CODE        0x1000
#define IDT         0x4000
#define GDT         0x5000
#define STACK       0x8000
#define MEMORY      0x10000
/* The LWPCB that it tries, which the VMM has at the same linear address. */
#define TRAP        0x10000000
#define TRAP_SIZE   0x5000

#define PORT        0x80
#define DONE        0xff        /* the guest writes this, or a vector */
#define UD          6

#define OSXSAVE     (1u << 18)  /* in CR4 */
#define LWP_XFEATURE (1ull << 62)

enum { ROUNDS = 50, RECORDS = 64, MODULES = 2 };

/*
 * 32-bit code without paging, which begins anew after each OUT.  ESI has XCR0,
 * EDI a number of loops.
 */
__asm__(
    ".pushsection .rodata\n"
    ".code32\n"
    "guest_code:\n"
    "guest_xsetbv:\n\t"
    "xor %ecx, %ecx\n\t"
    "xor %edx, %edx\n\t"
    "mov %esi, %eax\n\t"
    "xsetbv\n"
    "guest_llwpcb:\n\t"
    "mov $" STRING(TRAP) ", %eax\n\t"
    "llwpcb %eax\n\t"
    "mov $" STRING(DONE) ", %al\n\t"
    "out %al, $" STRING(PORT) "\n\t"
    "jmp guest_llwpcb\n"
    "guest_user:\n\t"
    "mov %edi, %ecx\n"
    "1:\n\t"
    "dec %ecx\n\t"
    "jnz 1b\n\t"
    "mov $" STRING(DONE) ", %al\n\t"
    "out %al, $" STRING(PORT) "\n\t"
    "jmp guest_user\n\t"
    ".balign 16\n"
    "guest_vectors:\n\t"
    "vector = 0\n\t"
    ".rept 32\n\t"
    "mov $vector, %al\n\t"
    "jmp guest_exception\n\t"
    ".balign 16\n\t"
    "vector = vector + 1\n\t"
    ".endr\n"
    "guest_exception:\n\t"
    "mov $" STRING(STACK) ", %esp\n\t"
    "out %al, $" STRING(PORT) "\n\t"
    "jmp guest_llwpcb\n"
    "guest_end:\n\t"
    ".code64\n\t"
    ".popsection");

/* The address of a label in it, here and in the guest. */
#define LABEL(name) \
    ({ \
        uintptr_t addr_; \
        __asm__("lea " #name "(%%rip), %0" : "=r" (addr_)); \
        addr_; \
    })
#define GUEST(name) (CODE + LABEL(guest_##name) - LABEL(guest_code))

static const char *when;
static Profile trap, untouched, own;
static bool driver;
static sigjmp_buf no_lwp;

static void on_ill(int sig)
{
    siglongjmp(no_lwp, sig);
}

static bool lwp_available(void)
{
    unsigned eax, ebx, ecx, edx;

    __cpuid(0x8000001c, eax, ebx, ecx, edx);
    return eax & LWP_FLAG_AVAIL;
}

/* --- guests ---------------------------------------------------------------*/

typedef struct Guest {
    int vm, vcpu;
    char *memory, *trap;
    struct kvm_run *run;
    size_t run_size;
} Guest;

static int kvm;

static long do_ioctl(int fd, unsigned long request, void *arg)
{
    long result = ioctl(fd, request, arg);

    if (result < 0) {
        die("an ioctl of KVM");
    }
    return result;
}

static void add_memory(Guest *g, unsigned slot, uint64_t address, size_t size,
                       char *memory)
{
    struct kvm_userspace_memory_region region = {
        .slot = slot,
        .guest_phys_addr = address,
        .memory_size = size,
        .userspace_addr = (uintptr_t)memory,
    };

    do_ioctl(g->vm, KVM_SET_USER_MEMORY_REGION, &region);
}

/* All that the host has; returns the XCR0 that it may have. */
static uint64_t set_cpuid(Guest *g)
{
    struct {
        struct kvm_cpuid2 head;
        struct kvm_cpuid_entry2 entry[256];
    } c = { .head.nent = 256 };
    uint64_t xcr0 = 0;

    do_ioctl(kvm, KVM_GET_SUPPORTED_CPUID, &c);
    for (unsigned i = 0; i < c.head.nent; i++) {
        if (c.entry[i].function == 0xd && c.entry[i].index == 0) {
            xcr0 = (uint64_t)c.entry[i].edx << 32 | c.entry[i].eax;
        }
    }
    do_ioctl(g->vcpu, KVM_SET_CPUID2, &c);
    return xcr0;
}

static __attribute__((target("xsave"))) uint64_t host_xcr0(void)
{
    return _xgetbv(0);
}

static void guest_create(Guest *g, uint64_t entry, unsigned cpl, unsigned cr4,
                         unsigned loops)
{
    struct kvm_segment code = {
        .limit = 0xffffffff, .selector = 8 | cpl, .type = 0xb, .present = 1,
        .dpl = cpl, .db = 1, .s = 1, .g = 1,
    }, data = code;
    struct kvm_regs regs = {
        .rip = entry, .rsp = STACK, .rflags = 2 | cpl << 12, .rdi = loops,
    };
    static const uint64_t gdt[] = {
        0, 0x00cf9b000000ffff, 0x00cf93000000ffff,
    };
    struct kvm_sregs sregs;

    g->vm = do_ioctl(kvm, KVM_CREATE_VM, NULL);
    g->vcpu = do_ioctl(g->vm, KVM_CREATE_VCPU, NULL);
    g->run_size = do_ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, NULL);
    g->run = mmap(NULL, g->run_size, PROT_READ | PROT_WRITE, MAP_SHARED,
                  g->vcpu, 0);
    if (g->run == MAP_FAILED) {
        die("mmap of a vCPU");
    }

    g->memory = map_shared(MEMORY);
    memcpy(g->memory + CODE, (void *)LABEL(guest_code), GUEST(end) - CODE);
    memcpy(g->memory + GDT, gdt, sizeof(gdt));
    for (unsigned i = 0; i < 32; i++) {
        uint32_t at = GUEST(vectors) + 16 * i;
        uint64_t gate = 0x00008e0000080000 | (at & 0xffff) |
                        (uint64_t)(at >> 16) << 48;

        memcpy(g->memory + IDT + 8 * i, &gate, sizeof(gate));
    }
    add_memory(g, 0, 0, MEMORY, g->memory);
    /* The guest's own, so that whatever changes the VMM's is not the guest. */
    g->trap = map_shared(TRAP_SIZE);
    memcpy(g->trap, untouched.cb, TRAP_SIZE);
    add_memory(g, 1, TRAP, TRAP_SIZE, g->trap);

    regs.rsi = set_cpuid(g) & host_xcr0() & ~LWP_XFEATURE;
    do_ioctl(g->vcpu, KVM_GET_SREGS, &sregs);
    data.selector = 16 | cpl;
    data.type = 3;
    sregs.cs = code;
    sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = data;
    sregs.cr0 = 0x11;   /* PE, ET */
    sregs.cr4 = cr4;
    sregs.gdt.base = GDT;
    sregs.gdt.limit = sizeof(gdt) - 1;
    sregs.idt.base = IDT;
    sregs.idt.limit = 32 * 8 - 1;
    do_ioctl(g->vcpu, KVM_SET_SREGS, &sregs);
    do_ioctl(g->vcpu, KVM_SET_REGS, &regs);
}

static void guest_destroy(Guest *g)
{
    munmap(g->run, g->run_size);
    close(g->vcpu);
    close(g->vm);
    munmap(g->memory, MEMORY);
    munmap(g->trap, TRAP_SIZE);
}

/* What the guest wrote to its port, or -1. */
static int guest_said(const Guest *g)
{
    const struct kvm_run *run = g->run;

    if (run->exit_reason != KVM_EXIT_IO || run->io.port != PORT) {
        return -1;
    }
    return ((const uint8_t *)run)[run->io.data_offset];
}

/* --- what a guest may do to its VMM ---------------------------------------*/

/* NULL, or what has happened to this task. */
static const char *harm(void)
{
    static const char *wrong;

    wrong = NULL;
    spin(10000);
    if (sigsetjmp(no_lwp, 1)) {
        return "LWP was lost";
    }
    if (lwp_available() != driver) {
        wrong = driver ? "LWP is not available" :
                         "LWP is available without the driver";
    }
    if (lwp_available() && __slwpcb()) {
        wrong = "the VMM has LWP enabled";
        __llwpcb(NULL);
    }
    if (memcmp(trap.cb, untouched.cb, TRAP_SIZE)) {
        wrong = trap.cb->head ? "there are records in the VMM's memory" :
                                "the VMM's memory has changed";
        memcpy(trap.cb, untouched.cb, TRAP_SIZE);
    }
    return wrong;
}

static void test_llwpcb(int cpu)
{
    Guest guest[2];
    const char *wrong[2] = { NULL };
    int said[2] = { UD, UD };

    run_on(cpu);
    guest_create(&guest[0], GUEST(llwpcb), 0, 0, 0);
    guest_create(&guest[1], GUEST(xsetbv), 0, OSXSAVE, 0);
    /* In turn, as one may prepare what the other needs. */
    for (unsigned i = 0; i < 2 * ROUNDS; i++) {
        Guest *g = &guest[i % 2];
        const char *w;

        do_ioctl(g->vcpu, KVM_RUN, NULL);
        if (guest_said(g) != UD) {
            said[i % 2] = guest_said(g);
        }
        w = harm();
        if (memcmp(g->trap, untouched.cb, TRAP_SIZE)) {
            w = "the guest's LWPCB or ring has changed";
        }
        wrong[i % 2] = wrong[i % 2] ? wrong[i % 2] : w;
        /* XCR0 may be another one after a task switch. */
        usleep(1);
    }
    for (unsigned i = 0; i < 2; i++) {
        check(said[i] == UD && !wrong[i], "%s: CPU %d, OSXSAVE %s: LLWPCB of a "
              "guest is #UD and does nothing to the VMM%s%s%s", when, cpu,
              i ? "set" : "clear", said[i] == UD ? "" : said[i] == DONE ?
              ": it works" : ": the guest failed", wrong[i] ? ": " : "",
              wrong[i] ? wrong[i] : "");
        guest_destroy(&guest[i]);
    }
}

/* --- the VMM's own LWP, and others' ---------------------------------------*/

/*
 * Make that ioctl() so often, with a record after each.  The number of
 * instructions is always the same.
 */
static __attribute__((noinline))
const char *profiled(int fd, unsigned long request, unsigned long arg,
                     Counts *c)
{
    const char *wrong = NULL;
    LwpRecord r;

    profile_set(&own, LWP_FLAG(LWP_IRE) | LWP_FLAG(LWP_BRE), INTERVAL, 0);
    if (sigsetjmp(no_lwp, 1)) {
        return "LWP was lost";
    }
    profile_start(&own);
    for (unsigned i = 0; i < ROUNDS; i++) {
        long result = SYS_ioctl;

        __asm__ volatile("syscall\n\t"
                         "lwpins $0xabcd, %[i], %[i]"
                         : "+a" (result)
                         : "D" (fd), "S" (request), "d" (arg), [i] "r" (i)
                         : "rcx", "r11", "cc", "memory");
    }
    profile_stop();

    for (unsigned i = 0; i < ROUNDS && !wrong; i++) {
        if (!profile_next(&own, &r) || r.event != LWP_INS ||
            r.flags != MARK || r.data1 != i) {
            wrong = "records are lost";
        }
    }
    if (!wrong && (profile_next(&own, &r) || own.cb->missed)) {
        wrong = "there are more records";
    }
    *c = counts(&own);
    return wrong;
}

/* KVM_RUN with an argument is refused before anything happens. */
static void test_own(const char *what, uint64_t entry, unsigned cpl,
                     unsigned cr4, unsigned loops)
{
    const char *wrong;
    Counts refused = { 0 }, run = { 0 };
    int expected = cpl ? DONE : UD;
    Guest g;

    guest_create(&g, entry, cpl, cr4, loops);
    wrong = profiled(g.vcpu, KVM_RUN, 1, &refused);
    if (!wrong) {
        wrong = profiled(g.vcpu, KVM_RUN, 0, &run);
    }
    if (!wrong && guest_said(&g) != expected) {
        wrong = "the guest failed";
    }
    if (!wrong && memcmp(&refused, &run, sizeof(run))) {
        wrong = "counts differ";
    }
    check(!wrong && refused.ire > ROUNDS, "%s: a VMM's profile goes on while "
          "its guest runs, %s: %d instructions without it, %d with it%s%s",
          when, what, refused.ire, run.ire, wrong ? ": " : "",
          wrong ? wrong : "");
    guest_destroy(&g);
}

typedef struct Neighbour {
    atomic_bool stop;
    atomic_uint rounds;
    const char *_Atomic wrong;
} Neighbour;

static void neighbour(Neighbour *n)
{
    static Counts first;

    while (!n->stop && !n->wrong) {
        unsigned moves = 0;
        Counts c;

        profile_set(&own, LWP_FLAG(LWP_IRE) | LWP_FLAG(LWP_BRE), INTERVAL, 0);
        if (sigsetjmp(no_lwp, 1)) {
            n->wrong = "LWP was lost";
            break;
        }
        workload(&own, 0, RECORDS - 1, 500);
        c = counts(&own);
        n->wrong = records_wrong(&own, 0, RECORDS - 1, &moves);
        if (n->rounds++ == 0) {
            first = c;
        } else if (!n->wrong && memcmp(&c, &first, sizeof(c))) {
            n->wrong = "counts differ";
        }
    }
    _exit(0);
}

static pid_t neighbour_start(Neighbour **n, int cpu)
{
    pid_t pid;

    *n = map_shared(sizeof(**n));
    pid = fork();
    if (pid < 0) {
        die("fork");
    }
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        profile_map(&own, RECORDS);
        run_on(cpu);
        neighbour(*n);
    }
    return pid;
}

static void neighbour_end(pid_t pid, Neighbour *n, const char *what)
{
    const char *wrong;
    int status;

    n->stop = true;
    waitpid(pid, &status, 0);
    wrong = status ? "it died" : n->wrong;
    check(!wrong && n->rounds > 1, "%s: another task's profile, while %s: %u "
          "rounds%s%s", when, what, n->rounds, wrong ? ": " : "",
          wrong ? wrong : "");
    munmap(n, sizeof(*n));
}

/* Both on one CPU, where the kernel takes turns, also amid the guest. */
static void test_neighbour(void)
{
    Neighbour *n;
    pid_t pid;

    run_on(0);
    pid = neighbour_start(&n, 0);
    test_own("in turns with another task", GUEST(user), 3, 0, 200000);
    test_own("in turns with another task, OSXSAVE set", GUEST(xsetbv), 0,
             OSXSAVE, 0);
    neighbour_end(pid, n, "guests run on its CPU");
}

/* --- KVM comes and goes ---------------------------------------------------*/

static void test_load(const char *module)
{
    static const char *wrong;
    Neighbour *n[2];
    pid_t pid[2];
    LwpRecord r;

    for (int cpu = 0; cpu < 2; cpu++) {
        pid[cpu] = neighbour_start(&n[cpu], cpu);
    }
    profile_set(&own, LWP_FLAG(LWP_IRE), INTERVAL, 0);
    if (sigsetjmp(no_lwp, 1)) {
        wrong = "LWP was lost";
    } else {
        profile_start(&own);
        for (unsigned i = 0; i < MODULES; i++) {
            int fd = open(module, O_RDONLY | O_CLOEXEC);

            if (syscall(SYS_delete_module, "kvm_amd", O_NONBLOCK) ||
                syscall(SYS_finit_module, fd, "", 0)) {
                wrong = "the module does not load again";
            }
            __lwpins32(i, i, MARK);
            close(fd);
        }
        profile_stop();
    }
    for (unsigned i = 0; i < MODULES && !wrong; i++) {
        if (!profile_next(&own, &r) || r.event != LWP_INS || r.data1 != i) {
            wrong = "records are lost";
        }
    }
    check(!wrong, "%s: the profile of a program that loads KVM %d times%s%s",
          when, MODULES, wrong ? ": " : "", wrong ? wrong : "");
    neighbour_end(pid[0], n[0], "KVM is loaded");
    neighbour_end(pid[1], n[1], "KVM is loaded");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: lwp-kvm WHEN [MODULE]\n");
        return 2;
    }
    when = argv[1];
    driver = !access(LWP_DEVICE, F_OK);
    handle(SIGILL, on_ill);

    profile_map(&own, RECORDS);
    trap.cb = mmap((void *)TRAP, TRAP_SIZE, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (trap.cb == MAP_FAILED) {
        die("mmap of a certain address");
    }
    trap.ring = (LwpRecord *)(TRAP + 4096);
    trap.records = (TRAP_SIZE - 4096) / sizeof(LwpRecord);
    profile_set(&trap, LWP_FLAG(LWP_IRE), 100, 0);
    untouched.cb = map_shared(TRAP_SIZE);
    memcpy(untouched.cb, trap.cb, TRAP_SIZE);

    if (argc > 2) {
        test_load(argv[2]);
    }
    kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (kvm < 0) {
        die("/dev/kvm");
    }
    test_llwpcb(0);
    test_llwpcb(1);
    if (driver) {
        test_own("in user mode", GUEST(user), 3, 0, 1000);
        test_own("OSXSAVE clear", GUEST(llwpcb), 0, 0, 0);
        test_own("OSXSAVE set", GUEST(xsetbv), 0, OSXSAVE, 0);
        test_neighbour();
    }
    return failed;
}
