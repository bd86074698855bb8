/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Performance counters: what RESET and INIT leave.  A second processor notes
 * what it finds, sets all registers, and is started again by INIT, during which
 * one of its counters runs, and which may come at CPL 3, where none does.  Then
 * the machine is reset.
 *
 * For Intel's counters of version 4, and for AMD's PerfMonV2.
 */

#include "pmu-kernel.h"
#include "kernel-ap.h"

#define NR_MSRS         15
#define DO_NOT_WRITE    (~0ull)         /* for AP */

typedef struct Register {
    const char *name;
    uint32_t msr;
    uint64_t reset, val;    /* what RESET makes it, and what it is set to */
    bool counts;            /* its counter runs */
    bool cleared;           /* INIT clears it, too, */
    uint32_t clears;        /* or these bits of it */
} Register;

static const Register intel[NR_MSRS] = {
    { "IA32_PMC1", MSR_PMC(1), 0, 0x1234 },
    { "IA32_FIXED_CTR0", MSR_FIXED_CTR(0), 0, 0x123456789abc },
    { "IA32_FIXED_CTR_CTRL", MSR_FIXED_CTR_CTRL, 0, 0x0a2 },
    { "IA32_DEBUGCTL", MSR_DEBUGCTL, 0, 0x5800 },
    { "IA32_PERF_GLOBAL_STATUS_SET", MSR_GLOBAL_STATUS_SET, 0, 6 },
    { "IA32_PERF_GLOBAL_STATUS", MSR_GLOBAL_STATUS, 0, DO_NOT_WRITE },
    { "IA32_DS_AREA", 0x600, 0, 0x12340, .cleared = true },
    { "IA32_PMC2", MSR_PMC(2), 0, 0x4321 },
    { "IA32_PMC3", MSR_PMC(3), 0, 0x8765 },
    { "MSR_LBR_SELECT", 0x1c8, 0, 0x81 },
    { "MSR_LASTBRANCH_31_FROM_IP", 0x69f, 0, 0x12345678 },
    { "IA32_PERFEVTSEL1", MSR_EVTSEL(1), 0, 0x4100c4 },
    { "IA32_PERFEVTSEL0", MSR_EVTSEL(0), 0, 0x4200c0 },
    { "IA32_PERF_GLOBAL_CTRL", MSR_GLOBAL_CTRL, 15, 0x100000001 },
    { "IA32_PMC0", MSR_PMC(0), 0, 0, true },
}, amd[NR_MSRS] = {
    { "PERF_CTR1", MSR_PERF_CTR(1), 0, 0x1234 },
    { "PERF_CTR5", MSR_PERF_CTR(5), 0, 0x123456789abc },
    { "PERF_CTL5", MSR_PERF_CTL(5), 0, 0x300510076 },
    { "PERF_CTR4", MSR_PERF_CTR(4), 0, 0x5678 },
    { "PerfCntrGlobalStatusSet", 0xc0000303, 0, 6 },
    { "PerfCntrGlobalStatus", MSR_AMD_STATUS, 0, DO_NOT_WRITE },
    { "DbgCtl", MSR_DEBUGCTL, 0, 0x3c },
    { "IbsOpCtl", 0xc0011033, 0, 0xa0000, .clears = 0x20000 },
    { "IbsOpRip", 0xc0011034, 0, 0x12345678 },
    { "LastBranchFromIP", 0x1db, 0, 0 },
    { "LastIntToIP", 0x1de, 0, 0 },
    { "PERF_CTL1", MSR_PERF_CTL(1), 0, 0x4100c2 },
    { "PERF_CTL0", MSR_PERF_CTL(0), 0, 0x4200c0 },
    { "PerfCntrGlobalCtl", MSR_AMD_CTL, 63, 0x21 },
    { "PERF_CTR0", MSR_PERF_CTR(0), 0, 0, true },
};
/* In these; USER: only there is a counter for CPL 3 */
enum { USER = 2, STATUS_SET = 4, STATUS };

uint32_t ap_msrs[NR_MSRS], ap_leaves;
uint64_t ap_found[NR_MSRS], ap_set[NR_MSRS];

asm(".text\n"
    ".code32\n"
    "ap_32:\n"
    "    xor %esi, %esi\n"
    "1:  mov ap_msrs(, %esi, 4), %ecx\n rdmsr\n"
    "    mov %eax, ap_found(, %esi, 8)\n mov %edx, ap_found + 4(, %esi, 8)\n"
    "    inc %esi\n cmp $15, %esi\n jne 1b\n"
    "    xor %esi, %esi\n"
    "2:  mov ap_msrs(, %esi, 4), %ecx\n"
    "    mov ap_set(, %esi, 8), %eax\n mov ap_set + 4(, %esi, 8), %edx\n"
    "    cmp $-1, %eax\n je 3f\n"
    "    wrmsr\n"
    "3:  inc %esi\n cmp $15, %esi\n jne 2b\n"
    "    cmpl $0, ap_leaves\n je 4f\n"
    AP_TO_USER
    "ap_user:\n"
    "    lock incl %ss:ap_starts\n"
    "0:  jmp 0b\n"
    "4:  lock incl ap_starts\n"
    "5:  hlt\n jmp 5b\n"
    ".code64\n");

static void test_init(const Register *r)
{
    uint64_t counted;

    for (int i = 0; i < NR_MSRS; i++) {
        ap_msrs[i] = r[i].msr;
        ap_set[i] = r[i].val;
    }
    start_ap(1);
    for (int i = 0; i < NR_MSRS; i++) {
        report(ap_found[i] == r[i].reset, "RESET: %s is %x", r[i].name,
               (int)r[i].reset);
    }
    start_ap(1);
    for (int i = 0; i < NR_MSRS; i++) {
        uint64_t want = r[i].val & ~(uint64_t)r[i].clears;

        if (i == STATUS_SET || r[i].cleared) {
            want = 0;
        } else if (i == STATUS) {
            want = r[STATUS_SET].val;
        }
        report(r[i].counts ? ap_found[i] > 20 : ap_found[i] == want,
               "INIT: %s is %s", r[i].name, r[i].counts ? "counting" :
               r[i].cleared ? "cleared" : "kept");
        counted = ap_found[i];
    }
    ap_leaves = 1;
    ap_set[USER] = 0;
    start_ap(1);
    /* Whether HLT counts depends on when INIT came. */
    report(ap_found[NR_MSRS - 1] - counted + 1 <= 2,
           "INIT: it counts as much the next time");
    ap_leaves = 0;
    start_ap(1);
    /* Seven to leave, instead of INC and HLT */
    report(ap_found[NR_MSRS - 1] - counted - 5 <= 1,
           "INIT at CPL 3: so it does");
}

/* L2 has 16 lines of these, and L3 the one that L2 has lost. */
static void test_caches(void)
{
    uintptr_t p = 0x2000000;
    uint64_t before;

    wrmsr(MSR_PMC(0), 0);
    wrmsr(MSR_EVTSEL(0), 0x04d1 | EVTSEL_OS | EVTSEL_EN);
    for (int i = 0; i < 17; i++) {
        asm volatile("cmpb $0, (%0)" : : "r" (p + i * 0x20000ul) : "cc");
    }
    start_ap(1);
    before = rdmsr(MSR_PMC(0));
    asm volatile("cmpb $0, (%0)" : : "r" (p) : "cc");
    report(rdmsr(MSR_PMC(0)) == before + 1,
           "INIT of another processor keeps what L3 has");
    wrmsr(MSR_EVTSEL(0), 0);
}

static void set_all(const Register *r)
{
    for (int i = 0; i < NR_MSRS; i++) {
        if (r[i].val != DO_NOT_WRITE) {
            wrmsr(r[i].msr, r[i].val);
        }
    }
}

int main(void)
{
    const Register *r = cpuid_reg(0, 0, 1) == 0x756e6547 ? intel : amd;

    if (!was_reset()) {
        kernel_init();
        test_init(r);
        if (r == intel) {
            test_caches();
        }
        set_all(r);
        reset_machine();
    }
    for (int i = 0; i < NR_MSRS; i++) {
        report(rdmsr(r[i].msr) == r[i].reset,
               "RESET of a machine that has counted: %s is %x", r[i].name,
               (int)r[i].reset);
    }
    return report_summary();
}
