/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What rr leans on: conditional branches at CPL 3 are counted without a mistake
 * whatever interrupts the program, and a counter that is to interrupt at one of
 * them does so there.  Prints a line of PASS or FAIL for each.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS       300         /* conditional branches of steps() */
#define PAGES       64
#define ROUNDS      3000000

static int counter;
static uint8_t *pages;
uint32_t watched;
uint64_t stopped_at;            /* by on_overflow() */
static int failed;

/* In assembly language, so that it is known which branches there are */
#define NAKED(name, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm(insns); \
    }

/* Each step is TEST and JNZ, which is not taken. */
#define STEP_SIZE   8
NAKED(steps, "xor %eax, %eax\n"
      ".rept 300\n test %eax, %eax\n .byte 0x0f, 0x85\n .long 0\n .endr\n ret")
#define FIRST_STEP  ((uintptr_t)steps + 2)

/* Handlers of signals; %rdx is the ucontext, with RIP at byte 168. */
NAKED(on_timer, "ret")
NAKED(on_trapped_rdtsc, "addq $2, 168(%rdx)\n ret")
NAKED(on_overflow, "mov 168(%rdx), %rax\n mov %rax, stopped_at(%rip)\n ret")

static void check(const char *what, uint64_t is, uint64_t should)
{
    printf("%s rr-counts: %s: %lu", is == should ? "PASS" : "FAIL", what, is);
    if (is != should) {
        printf(", should be %lu", should);
        failed = 1;
    }
    puts("");
    fflush(stdout);
}

/* A counter of conditional branches: Skylake's, or Zen's */
static int open_counter(uint64_t period)
{
    struct perf_event_attr attr = {
        .size = sizeof(attr), .type = PERF_TYPE_RAW, .disabled = 1,
        .pinned = 1, .exclude_kernel = 1, .exclude_guest = 1,
        .sample_period = period,
    };
    unsigned eax, ebx, ecx, edx;
    int fd;

    __cpuid(0, eax, ebx, ecx, edx);
    attr.config = ebx == signature_INTEL_ebx ? 0x1c4 : 0xd1;
    fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
    if (fd < 0) {
        perror("perf_event_open");
        _exit(1);
    }
    return fd;
}

static void handle(int sig, void (*handler)(void))
{
    struct sigaction action = {
        .sa_sigaction = (void *)handler, .sa_flags = SA_SIGINFO
    };

    sigaction(sig, &action, NULL);
}

/* What @counter counts from here to there; the same each time for nothing() */
static uint64_t count(void (*work)(void))
{
    uint64_t n;

    ioctl(counter, PERF_EVENT_IOC_RESET, 0);
    ioctl(counter, PERF_EVENT_IOC_ENABLE, 0);
    work();
    ioctl(counter, PERF_EVENT_IOC_DISABLE, 0);
    return read(counter, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

static void nothing(void)
{
}

static void fault(void)
{
    /* Reads, writes, and REP: no branch but that of the loop */
    asm volatile("1: lock incl (%0)\n add $4096, %0\n dec %1\n jnz 1b\n"
                 : "+&r" ((uint8_t *){ pages }), "+&r" ((long){ PAGES })
                 : : "memory", "cc");
}

static void repeat(void)
{
    void *to = pages;
    long n = PAGES * 4096;

    asm volatile("rep stosb" : "+D" (to), "+c" (n) : "a" (1) : "memory");
}

static void spin(void)
{
    long n = ROUNDS;

    asm volatile("1: dec %0\n jnz 1b" : "+r" (n) : : "cc");
}

static void watch(void)
{
    long n = 100;

    asm volatile("1: incl watched(%%rip)\n dec %0\n jnz 1b" : "+r" (n) : :
                 "memory", "cc");
}

static void read_clock(void)
{
    long n = 100;

    asm volatile("1: rdtsc\n dec %0\n jnz 1b" : "+r" (n) : :
                 "eax", "edx", "cc");
}

static void call(void)
{
    long n = 100, nr;

    asm volatile("1: mov %2, %1\n syscall\n dec %0\n jnz 1b"
                 : "+r" (n), "=&a" (nr) : "i" (SYS_getppid) :
                 "rcx", "r11", "memory", "cc");
}

static void forget_pages(void)
{
    madvise(pages, PAGES * 4096, MADV_DONTNEED);
}

static void test_faults(uint64_t none)
{
    forget_pages();
    check("branches with 64 page faults", count(fault) - none, PAGES);
    forget_pages();
    check("branches of REP STOS with 64 page faults", count(repeat) - none, 0);
}

static void test_interrupts(uint64_t none)
{
    const struct itimerval on = { { 0, 2000 }, { 0, 2000 } }, off = { };

    check("branches with the kernel's timer", count(spin) - none, ROUNDS);
    handle(SIGALRM, on_timer);
    setitimer(ITIMER_REAL, &on, NULL);
    check("branches with a signal each 2 ms", count(spin) - none, ROUNDS);
    setitimer(ITIMER_REAL, &off, NULL);
}

static void test_traps(uint64_t none)
{
    struct perf_event_attr attr = {
        .size = sizeof(attr), .type = PERF_TYPE_BREAKPOINT,
        .bp_type = HW_BREAKPOINT_W, .bp_addr = (uintptr_t)&watched,
        .bp_len = 4, .exclude_kernel = 1,
    };
    int fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
    uint64_t hits = 0;

    check("branches with a hardware watchpoint", count(watch) - none, 100);
    check("which is hit", read(fd, &hits, sizeof(hits)) > 0 ? hits : 0, 100);
    close(fd);
    handle(SIGSEGV, on_trapped_rdtsc);
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    check("branches with RDTSC that faults", count(read_clock) - none, 100);
    prctl(PR_SET_TSC, PR_TSC_ENABLE);
}

/* In a child, which a tracer steps, or stops at each system call */
static void test_traced(uint64_t none, bool step)
{
    uint64_t *result = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    pid_t pid = fork();

    if (!pid) {
        counter = open_counter(0);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        result[0] = count(step ? steps : call);
        _exit(0);
    }
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
        result[1]++;
        ptrace(step ? PTRACE_SINGLESTEP : PTRACE_SYSCALL, pid, 0, 0);
    }
    check(step ? "branches that are single-stepped" :
          "branches with ptrace at system calls", result[0] - none,
          step ? STEPS : 100);
    check("by more stops than that", result[1] > (step ? 2 * STEPS : 200), 1);
    munmap(result, 4096);
}

static void test_seccomp(uint64_t none)
{
    struct sock_filter allow[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { 2, allow };

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    check("seccomp", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    check("branches with seccomp", count(call) - none, 100);
}

/*
 * Each period from the first branch of steps() to its last: the signal comes
 * behind that branch, before the next instruction.  When Linux switches tasks
 * it gives a counter two events at least, and then it can come late by one, so
 * each has three tries.
 */
static void test_interrupt(void)
{
    long before = 0, right = 0, wrong = 0, tries = 0;

    handle(SIGIO, on_overflow);
    for (long period = 2; period <= STEPS; period++) {
        int fd = open_counter(period);
        long k;

        fcntl(fd, F_SETFL, O_ASYNC);
        fcntl(fd, F_SETOWN, getpid());
        stopped_at = 0;
        ioctl(fd, PERF_EVENT_IOC_REFRESH, 1);
        steps();
        ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
        close(fd);
        k = (long)(stopped_at - FIRST_STEP) / STEP_SIZE;
        if (k < 1 || k > STEPS) {
            continue;           /* ahead of it, on the way back from ioctl() */
        }
        /* As many branches are ahead of it each time. */
        before = right ? before : period - k;
        if (stopped_at == FIRST_STEP + k * STEP_SIZE && period == k + before) {
            right++;
            tries = 0;
        } else if (++tries < 3) {
            period--;
        } else {
            wrong++;
            tries = 0;
        }
    }
    check("periods with the interrupt elsewhere", wrong, 0);
    check("periods with the interrupt behind their branch", right,
          STEPS - (before > 1 ? before : 1));
}

int main(void)
{
    uint64_t none;

    pages = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    counter = open_counter(0);
    none = count(nothing);
    check("branches of nothing, again", count(nothing), none);
    check("branches", count(steps) - none, STEPS);
    test_faults(none);
    test_interrupts(none);
    test_traps(none);
    test_traced(none, true);
    test_traced(none, false);
    test_interrupt();
    test_seccomp(none);
    return failed;
}
