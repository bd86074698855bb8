/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A kernel whose operations are known, N times or twice as often: what a
 * library counts of its own is the same in both, and not in their difference.
 *
 * usage: known KERNEL EVENT EACH   PAPI has EACH times N of EVENT
 *        known KERNEL TIMES        TIMES * N in likwid-perfctr's region "known"
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <likwid.h>
#include <papi.h>

/* More pages and lines than any TLB and any first level has */
enum { N = 4096, LINE = 64, STRIDE = 4096 + LINE };

/*
 * Of double precision 2 scalar instructions, 3 of 128 bits and 1 of 256; of
 * single precision 4, 5 and 2; and 7 of x87
 */
static void flops(char *p, int n)
{
    asm volatile("1: addsd %%xmm1, %%xmm2\n divsd %%xmm1, %%xmm2\n"
                 ".rept 3\n mulpd %%xmm1, %%xmm3\n .endr\n"
                 "vaddpd %%ymm1, %%ymm1, %%ymm4\n"
                 ".rept 4\n subss %%xmm1, %%xmm5\n .endr\n"
                 ".rept 5\n addps %%xmm1, %%xmm6\n .endr\n"
                 ".rept 2\n vmulps %%ymm1, %%ymm1, %%ymm7\n .endr\n"
                 "fldz\n .rept 7\n fadd %%st(0)\n .endr\n fstp %%st(0)\n"
                 "dec %0\n jnz 1b\n vzeroupper"
                 : "+r" (n) : : "st", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
                 "xmm7");
}

/* One of each precision, of 256 bits */
static void fused(char *p, int n)
{
    asm volatile("1: vfmadd231pd %%ymm1, %%ymm2, %%ymm3\n"
                 "vfmadd231ps %%ymm1, %%ymm2, %%ymm4\n"
                 "dec %0\n jnz 1b\n vzeroupper"
                 : "+r" (n) : : "xmm3", "xmm4");
}

static void loads(char *p, int n)
{
    asm volatile("1: mov (%0), %%eax\n add %2, %0\n dec %1\n jnz 1b"
                 : "+r" (p), "+r" (n) : "i" (STRIDE) : "eax");
}

static void stores(char *p, int n)
{
    asm volatile("1: mov %%eax, (%0)\n add %2, %0\n dec %1\n jnz 1b"
                 : "+r" (p), "+r" (n) : "i" (STRIDE) : "memory");
}

/* A JMP in each line */
static void code(char *p, int n)
{
    ((void (*)(void))p)();
}

static const struct {
    const char *name;
    void (*run)(char *p, int n);
} kernels[] = {
    { "flops", flops }, { "fma", fused }, { "loads", loads },
    { "stores", stores }, { "code", code },
};

/* Lines and pages that no cache and no TLB has */
static char *fresh(int n)
{
    size_t size = (size_t)n * STRIDE;
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED || madvise(p, size, MADV_NOHUGEPAGE) ||
        madvise(p, size, MADV_POPULATE_WRITE)) {
        perror("FAIL: no memory");
        exit(1);
    }
    for (int i = 0; i < n; i++) {
        memcpy(p + i * LINE, i < n - 1 ? "\xeb\x3e" : "\xc3\x90", 2);
    }
    for (int i = 0; i < n; i++) {
        asm volatile("clflush %0" : "+m" (p[(size_t)i * STRIDE]));
    }
    mprotect(p, size, PROT_READ | PROT_EXEC);   /* flushes TLBs */
    mprotect(p, size, PROT_READ | PROT_WRITE | PROT_EXEC);
    return p;
}

/* It is not unmapped: L1I may have its lines. */
static void run(int kernel, int n, const char *region)
{
    char *p = fresh(n);

    likwid_markerStartRegion(region);
    kernels[kernel].run(p, n);
    likwid_markerStopRegion(region);
}

static void must(int status)
{
    if (status != PAPI_OK) {
        printf("FAIL %s\n", PAPI_strerror(status));
        exit(1);
    }
}

static long long count(int kernel, int n, int set)
{
    char *p = fresh(n);
    long long value;
    int status = PAPI_start(set);

    kernels[kernel].run(p, n);
    must(status ?: PAPI_stop(set, &value));
    return value;
}

int main(int argc, char **argv)
{
    long long once, twice, should;
    int kernel = 0, set = PAPI_NULL, tries = 3;

    while (strcmp(kernels[kernel].name, argv[1])) {
        kernel++;
    }
    /* Behind the first, nothing is left of what was there before. */
    if (argc == 3) {
        likwid_markerInit();
        run(kernel, N, "first");
        run(kernel, atoi(argv[2]) * N, "known");
        likwid_markerClose();
        return 0;
    }
    must(PAPI_library_init(PAPI_VER_CURRENT) == PAPI_VER_CURRENT ? PAPI_OK :
         PAPI_EINVAL);
    must(PAPI_create_eventset(&set));
    must(PAPI_add_named_event(set, argv[2]));
    should = atoll(argv[3]) * N;
    count(kernel, N, set);
    /* A task switch in between flushes TLBs. */
    do {
        once = count(kernel, N, set);
        twice = count(kernel, 2 * N, set);
    } while (twice - once != should && --tries);
    printf("%s %s of %s: %lld, should be %lld; %lld besides\n",
           tries ? "PASS" : "FAIL", argv[2], argv[1], twice - once, should,
           once - (twice - once));
    return !tries;
}
