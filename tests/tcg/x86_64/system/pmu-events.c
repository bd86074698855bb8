/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory events of each processor: the same code, of which every access and
 * where it finds its line is known, and what each event makes of it.
 *
 * L1D has 16 KiB in 4 ways, L2 2 MiB in 16.  A second processor has five of the
 * lines, two of them modified.
 */

#include <cpuid.h>
#include "pmu-kernel.h"
#include "kernel-ap.h"

#define AREA            0x240000
#define MEMORY          0x2000000
#define MEMORY_END      0x7800000
#define REMOTE_AREA     0x220000        /* in an area */
#define MSR_OFFCORE_RSP 0x1a6

/* What the code does, by where loads find their lines */
enum {
    L1 = 10, L2 = 2, L3 = 1, CLEAN = 2, MODIFIED = 1, DRAM = 26,
    REMOTE = CLEAN + MODIFIED,
    LOADS = L1 + L2 + L3 + REMOTE + DRAM, LOCKED = 2,
    SPLIT_LOADS = 1, SPLIT_STORES = 1,
    FROM_L3 = L3 + REMOTE, NOT_L2 = FROM_L3 + DRAM, NOT_L1 = L2 + NOT_L2
};

/* The same of stores */
enum {
    S_L1 = 9, S_L2 = 2, S_L3 = 3, S_CLEAN = 1, S_MODIFIED = 1, S_DRAM = 5,
    S_REMOTE = S_CLEAN + S_MODIFIED,
    STORES = S_L1 + S_L2 + S_L3 + S_REMOTE + S_DRAM,
    S_NOT_L2 = S_L3 + S_REMOTE + S_DRAM, S_NOT_L1 = S_L2 + S_NOT_L2,
    FILL_L2 = L2 + S_L2, FILL_FAR = NOT_L2 + S_NOT_L2,
    FILLS = FILL_L2 + FILL_FAR
};

/* RSI and RDI are memory that no cache has seen, RBX what the other has. */
CODE(code,
     /* From the other, and from memory */
     "mov (%rbx), %eax\n mov 64(%rbx), %eax\n mov 128(%rbx), %eax\n"
     ".rept 5\n mov (%rsi), %eax\n add $64, %rsi\n .endr\n"
     "sub $5 * 64, %rsi\n"
     /* L1D */
     ".rept 7\n mov 64(%rsi), %eax\n .endr\n"
     ".rept 6\n mov %eax, 8(%rsi)\n .endr\n"
     "lock incl (%rsi)\n lock incl 64(%rsi)\n"
     "mov 60(%rsi), %rax\n mov %rax, 124(%rsi)\n"
     /* Four more of a set of L1D, and the two that it has lost */
     "mov 0x1100(%rsi), %eax\n mov 0x2100(%rsi), %eax\n"
     "mov 0x3100(%rsi), %eax\n mov 0x4100(%rsi), %eax\n"
     "mov 0x100(%rsi), %eax\n mov 0x1100(%rsi), %eax\n"
     /* One more than a set of L2 has, and the one that it has lost */
     "mov %rdi, %rdx\n"
     ".rept 17\n mov (%rdx), %eax\n add $0x20000, %rdx\n .endr\n"
     "mov (%rdi), %eax\n"
     /* The next three that it loses, and what the other has */
     "mov %eax, 0x20000(%rdi)\n mov %eax, 0x40000(%rdi)\n"
     "mov %eax, 0x60000(%rdi)\n"
     "mov %eax, 192(%rbx)\n mov %eax, 256(%rbx)\n"
     /* One more than a set of L1D has, and two that it has lost */
     ".irp offset, 0, 0x1000, 0x2000, 0x3000, 0x4000, 0, 0x1000\n"
     "mov %eax, 0x800 + \\offset(%rsi)\n .endr\n")

typedef struct Event {
    uint16_t code;              /* unit mask first */
    uint8_t n;
    uint64_t response;          /* of MSR_OFFCORE_RSP_0 */
} Event;

static const Event llc[] = {
    { 0x4f2e, NOT_L2 }, { 0x412e, DRAM }, { }
}, p6[] = {
    { 0x0043, LOADS + STORES }, { 0x0045, FILLS }, { 0x0f29, NOT_L1 },
    { 0x0129, NOT_L2 }, { 0x0f2e, FILLS }, { 0x012e, FILL_FAR },
    { 0x0024, FILL_FAR }, { 0x002e, 0 }, { 0x0f2a, S_NOT_L1 },
    { 0x012a, S_NOT_L2 }, { 0x0025, S_NOT_L2 }, { }
}, core2[] = {                  /* L2 is the last level. */
    { 0x4f2e, FILLS }, { 0x412e, FILL_FAR },
    { 0x0f40, LOADS }, { 0x0140, NOT_L1 }, { 0x0f41, STORES },
    { 0x0f45, FILLS }, { 0x01cb, NOT_L1 }, { 0x04cb, NOT_L2 },
    { 0x4f29, NOT_L1 }, { 0x4129, NOT_L2 }, { 0x0141, S_NOT_L1 },
    { 0x4f2a, S_NOT_L1 }, { 0x412a, S_NOT_L2 }, { }
}, nehalem[] = {
    { 0x010b, LOADS }, { 0x020b, STORES }, { 0x0151, FILLS }, { 0x01cb, L1 },
    { 0x02cb, L2 }, { 0x04cb, L3 }, { 0x08cb, REMOTE }, { 0x10cb, DRAM },
    { 0x01b7, L3, 0x0101 }, { 0x01b7, CLEAN, 0x0201 },
    { 0x01b7, MODIFIED, 0x0401 }, { 0x01b7, S_MODIFIED, 0x0402 },
    { 0x01b7, DRAM, 0x4001 }, { 0x01b7, 0, 0x2001 }, { 0x0f40, LOADS },
    { 0x0f41, STORES }, { 0x0251, S_NOT_L1 }, { 0x01b7, S_NOT_L2, 0xf70a },
    { 0x01b7, S_DRAM, 0x700a }, { 0x01b7, 0, 0x200a }, { 0x0324, NOT_L1 },
    { 0x0224, NOT_L2 }, { 0x0424, S_L2 }, { 0x0824, S_NOT_L2 },
    { 0x0c24, S_NOT_L1 }, { 0xff24, FILLS }, { 0xaa24, FILL_FAR },
    { 0x07f1, FILL_FAR }, { }
}, sandy_bridge[] = {           /* and those since */
    { 0x0151, FILLS }, { 0x21d0, LOCKED }, { 0x41d0, SPLIT_LOADS },
    { 0x42d0, SPLIT_STORES }, { 0x81d0, LOADS }, { 0x82d0, STORES },
    { 0x01d1, L1 }, { 0x02d1, L2 }, { 0x04d1, FROM_L3 }, { 0x08d1, NOT_L1 },
    { 0x10d1, NOT_L2 }, { 0x20d1, DRAM }, { 0x02d2, CLEAN },
    { 0x04d2, MODIFIED },
    { 0x01b7, NOT_L2, 0x00010001 }, { 0x01b7, FROM_L3, 0x3f803c0001 },
    { 0x01b7, L3, 0x803c0001 }, { 0x01b7, CLEAN, 0x4003c0001 },
    { 0x01b7, MODIFIED, 0x10003c0001 }, { 0x01b7, S_MODIFIED, 0x10003c0002 },
    { 0x01b7, S_NOT_L2, 0x00010002 },
    { 0x01b7, S_L3 + S_REMOTE, 0x3f803c0002 },
    { 0x01b7, FILL_FAR, 0x00010003 }, { }
}, sandy_bridge_only[] = {
    { 0xf1d0, LOADS }, { 0xf2d0, STORES }, { 0x0851, S_NOT_L1 },
    { 0x0124, L2 }, { 0x0324, NOT_L1 }, { 0x0424, S_L2 },
    { 0x0824, S_NOT_L2 }, { 0x0c24, S_NOT_L1 }, { 0xc024, 0 }, { }
}, offcore[] = {                /* until Ice Lake */
    { 0x01b0, NOT_L2 }, { 0x04b0, S_NOT_L2 }, { }
}, local_22[] = {               /* DRAM of this node, and of others */
    { 0x01b7, DRAM, 0x1f80400001 }, { 0x01b7, 0, 0x1fb8000001 }, { }
}, haswell[] = {                /* and those since */
    { 0x01d3, DRAM }, { 0xc124, L2 }, { 0xe124, NOT_L1 }, { 0x2124, NOT_L2 },
    { 0xc224, S_L2 }, { 0xe224, S_NOT_L1 }, { 0x2224, S_NOT_L2 },
    { 0xe724, FILLS }, { 0x2724, FILL_FAR }, { 0x3f24, FILL_FAR },
    { 0xff24, FILLS }, { 0xf824, 0 }, { }
}, skylake[] = {                /* and those since */
    { 0x83d0, LOADS + STORES }, { 0x01b7, DRAM, 0x1fc4000001 },
    { 0x01b7, 0, 0x1ff8000001 }, { 0x01b7, S_DRAM, 0x1fc4000002 },
    { 0x01b7, 0, 0x1ff8000002 }, { }
}, golden_cove[] = {
    { 0x012a, NOT_L2, 0x10001 }, { 0x012a, DRAM, 0x10c000001 },
    { 0x012a, 0, 0x3fb3000001 }, { 0x012a, S_NOT_L2, 0x3f3ffc0002 },
    { 0x012a, S_DRAM, 0x3f3fc00002 }, { 0x0121, NOT_L2 },
    { 0x1f25, FILL_FAR }, { }
}, k8[] = {
    { 0x0040, LOADS + STORES }, { 0x0041, FILLS }, { 0x0042, FILL_L2 },
    { 0x0043, FILL_FAR }, { 0x027d, FILLS }, { 0x077d, FILLS },
    { 0x027e, FILL_FAR }, { 0x077e, FILL_FAR }, { 0x0124, LOCKED },
    { 0xb8e9, DRAM }, { 0x98e9, 0 }, { 0x017f, FILL_FAR }, { }
}, zen[] = {
    { 0x0040, LOADS + STORES }, { 0x0141, NOT_L1 }, { 0xc860, FILLS },
    { 0xff60, FILLS }, { 0x0864, FILL_FAR }, { 0x0964, FILL_FAR },
    { 0x8060, NOT_L1 }, { 0x4060, S_NOT_L1 }, { 0xf064, FILL_L2 },
    { 0x1064, S_L2 }, { 0x6064, L2 }, { 0x0143, FILL_L2 },
    { 0x0243, FROM_L3 + S_L3 + S_REMOTE }, { 0x0843, DRAM + S_DRAM },
    { 0x5043, 0 }, { }
}, family_15h[] = {             /* and Zen */
    { 0x0129, LOADS }, { 0x0229, STORES }, { }
};

static const struct Processor {
    const char *name;
    bool amd;
    uint8_t family, model;
    uint16_t misses;            /* an event for which caches are followed */
    const Event *events[6];
    uint16_t offcore;           /* what MSR_OFFCORE_RSP_0 is for, if not B7/1 */
} processors[] = {
    { "P6", false, 6, 3, 0x0045, { p6 } },
    { "Core 2", false, 6, 15, 0x412e, { core2 } },
    { "Nehalem", false, 6, 26, 0x412e, { llc, nehalem } },
    { "Sandy Bridge", false, 6, 42, 0x412e,
      { llc, sandy_bridge, sandy_bridge_only, local_22, offcore } },
    { "Haswell", false, 6, 60, 0x412e,
      { llc, sandy_bridge, local_22, haswell, offcore } },
    { "Skylake", false, 6, 94, 0x412e,
      { llc, sandy_bridge, haswell, skylake, offcore } },
    { "Ice Lake", false, 6, 106, 0x412e,
      { llc, sandy_bridge, haswell, skylake, offcore } },
    { "Golden Cove", false, 6, 143, 0x412e,
      { llc, sandy_bridge, haswell, skylake, golden_cove }, 0x012a },
    { "K8", true, 6, 0, 0x0041, { k8 } },
    { "family 15h", true, 21, 0, 0x0041, { k8, family_15h } },
    { "Zen", true, 23, 0, 0x0141, { zen, family_15h } },
};

/* The model follows a processor while one of its counters wants it. */
uint32_t ap_evtsel_msr, ap_evtsel, ap_lines;

asm(".text\n"
    ".code32\n"
    "ap_32:\n"
    "    mov ap_evtsel_msr, %ecx\n mov ap_evtsel, %eax\n xor %edx, %edx\n"
    "    wrmsr\n"
    "    mov ap_lines, %ebx\n"
    "    mov (%ebx), %eax\n incl 64(%ebx)\n mov 128(%ebx), %eax\n"
    "    mov 192(%ebx), %eax\n incl 256(%ebx)\n"
    "    lock incl ap_starts\n"
    "1:  hlt\n jmp 1b\n"
    ".code64\n");

static const struct Processor *find_processor(void)
{
    uint32_t eax, ebx, ecx, edx, family, model;
    bool amd;

    __cpuid(0, eax, ebx, ecx, edx);
    amd = ebx == signature_AMD_ebx;
    __cpuid(1, eax, ebx, ecx, edx);
    family = (eax >> 8 & 15) + (eax >> 20 & 0xff);
    model = (eax >> 4 & 15) | (eax >> 12 & 0xf0);
    for (int i = 0; i < ARRAY_SIZE(processors); i++) {
        const struct Processor *p = &processors[i];

        if (p->amd == amd && p->family == family &&
            (amd || p->model == model)) {
            return p;
        }
    }
    return NULL;
}

/* Count @e with counter 0 while the code runs, in an area of its own. */
static void test_event(const struct Processor *p, const Event *e)
{
    static uintptr_t area = MEMORY;
    uint32_t evtsel = p->amd ? MSR_K7_EVTSEL(0) : MSR_EVTSEL(0);
    uint32_t pmc = p->amd ? MSR_K7_PERFCTR(0) : MSR_PMC(0);
    uint64_t select = e->code == 0x01b7 && p->offcore ? p->offcore : e->code;
    uint64_t n;

    if (area > MEMORY_END - AREA) {
        area = MEMORY;
        asm volatile("wbinvd");
    }
    ap_lines = area + REMOTE_AREA;
    start_ap(1);
    if (e->response) {
        wrmsr(MSR_OFFCORE_RSP, e->response);
    }
    wrmsr(pmc, 0);
    wrmsr(evtsel, select | EVTSEL_USR | EVTSEL_EN);
    set_up(USER_CODE64, (uintptr_t)code);
    regs.rsi = area;
    regs.rdi = area + 0x8400;
    regs.rbx = ap_lines;
    run();
    wrmsr(evtsel, 0);
    n = rdmsr(pmc);
    report(n == e->n, "event %lx, unit mask %lx, response %lx: %d",
           select & 0xff, select >> 8, e->response, e->n);
    if (n != e->n) {
        test_printf("  %ld\n", n);
    }
    area += AREA;
}

int main(void)
{
    const struct Processor *p = find_processor();

    kernel_init();
    apic_init(LVT_MASKED);
    report(p, "this processor is known%s%s", p ? ": " : "", p ? p->name : "");
    if (!p) {
        return report_summary();
    }
    ap_evtsel_msr = p->amd ? MSR_K7_EVTSEL(0) : MSR_EVTSEL(0);
    ap_evtsel = p->misses | EVTSEL_OS | EVTSEL_EN;
    wrmsr(ap_evtsel_msr, 0);            /* the firmware's may run */
    for (int i = 0; p->events[i]; i++) {
        for (const Event *e = p->events[i]; e->code; e++) {
            test_event(p, e);
        }
    }
    return report_summary();
}
