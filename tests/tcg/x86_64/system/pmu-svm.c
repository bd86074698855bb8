/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Performance counters in guests of a hypervisor, which is this program: what
 * counts in the guest and what in the hypervisor, with AMD's Guest-Only and
 * Host-Only bits (APM 13.2.1); intercepts; and the interrupt.
 *
 * Runs on AMD's PMU with PerfMonV2.  The output is the same with -icount
 * shift=0 and with one-insn-per-tb=on.
 */

#include "pmu-kernel.h"
#include "kernel-svm.h"

enum { NMI = 2, VECTOR = 0x51 };

#define INSNS           0xc0
#define FAR_BRANCHES    0xc6
#define GUEST_ONLY      (1ull << 40)
#define HOST_ONLY       (1ull << 41)
#define BOTH_CPL        (EVTSEL_USR | EVTSEL_OS)
#define COUNTERS        6
#define BITS(n)         ((1ull << (n)) - 1)
#define ICR_SELF        0x44000         /* fixed, asserted */

/* What enter_counted() does itself: with VMRUN, and until it */
#define HOST_INSNS      12
#define HOST_VMRUN      6

static Vmcb vmcb __attribute__((aligned(PAGE)));
static uint8_t host_save[PAGE] __attribute__((aligned(PAGE)));
static uint8_t msr_map[2 * PAGE] __attribute__((aligned(PAGE)));
static uint8_t io_map[3 * PAGE] __attribute__((aligned(PAGE)));
static uint8_t guest_stack[1024] __attribute__((aligned(16)));
uint64_t guest_rcx, guest_rdx, guest_rdi;

/* Code of the guest, which may use RAX, RCX, RDX, RDI; and RBX. */
#define GUEST(name, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm(insns "\n vmmcall"); \
    }

/* VMRUN, between two WRMSRs of PerfCntrGlobalCtl, of which the first counts */
static void __attribute__((naked, noinline))
enter_counted(uint64_t counters, Vmcb *v)
{
    asm("push %rbx\n push %rbp\n"
        "push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov $0xc0000301, %ecx\n mov %edi, %eax\n xor %edx, %edx\n"
        "wrmsr\n"
        "mov guest_rcx(%rip), %rcx\n mov guest_rdx(%rip), %rdx\n"
        "mov guest_rdi(%rip), %rdi\n mov %rsi, %rax\n"
        "vmrun %rax\n"
        "mov %rcx, guest_rcx(%rip)\n mov %rdx, guest_rdx(%rip)\n"
        "mov %rdi, guest_rdi(%rip)\n"
        "mov $0xc0000301, %ecx\n xor %eax, %eax\n xor %edx, %edx\n"
        "wrmsr\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n"
        "pop %rbp\n pop %rbx\n"
        "ret\n");
}

static void set_counter(int i, uint64_t evtsel, uint64_t val)
{
    wrmsr(MSR_PERF_CTL(i), evtsel | EVTSEL_EN);
    wrmsr(MSR_PERF_CTR(i), val & BITS(48));
}

static void stop(void)
{
    wrmsr(MSR_AMD_CTL, 0);
    for (int i = 0; i < COUNTERS; i++) {
        wrmsr(MSR_PERF_CTL(i), 0);
    }
    wrmsr(MSR_AMD_STATUS_CLR, BITS(COUNTERS));
    APIC(APIC_LVTPC) = LVT_NMI;
}

static void set_guest(int cpl, void (*code)(void))
{
    set_vmcb(&vmcb, cpl, code, (uintptr_t)guest_stack + sizeof(guest_stack));
    vmcb.io_map = (uintptr_t)io_map;
    vmcb.msr_map = (uintptr_t)msr_map;
}

static uint64_t enter(void)
{
    enter_counted(BITS(COUNTERS), &vmcb);
    return vmcb.exit;
}

/* Instructions and far branches of the guest; instructions of the hypervisor */
static uint64_t enter_and_count(uint64_t counts[3])
{
    uint64_t exit;

    stop();
    set_counter(0, INSNS | BOTH_CPL | GUEST_ONLY, 0);
    set_counter(1, FAR_BRANCHES | BOTH_CPL | GUEST_ONLY, 0);
    set_counter(2, INSNS | BOTH_CPL | HOST_ONLY, 0);
    exit = enter();
    for (int i = 0; i < 3; i++) {
        counts[i] = rdmsr(MSR_PERF_CTR(i));
    }
    stop();
    return exit;
}

/* Whatever has become pending while GIF is clear; EXIT if nothing has */
static unsigned take_pending(void)
{
    unsigned vector = at_cpl(0, asm volatile("stgi\n nop"));

    /* The IRET behind an NMI */
    at_cpl(0, asm volatile("nop"));
    return vector;
}

GUEST(nops, ".rept 20\n nop\n .endr")

static void test_guest_host(void)
{
    static const struct {
        const char *name;
        uint64_t evtsel;
        int cpl;                /* of the guest */
        uint32_t count;
    } t[] = {
        { "neither bit", BOTH_CPL, 0, 20 + HOST_INSNS },
        { "both bits", BOTH_CPL | GUEST_ONLY | HOST_ONLY, 0, 20 + HOST_INSNS },
        { "Guest-Only", BOTH_CPL | GUEST_ONLY, 0, 20 },
        { "Guest-Only, at CPL 0", EVTSEL_OS | GUEST_ONLY, 0, 20 },
        { "Guest-Only, above CPL 0", EVTSEL_USR | GUEST_ONLY, 0, 0 },
        { "Host-Only", BOTH_CPL | HOST_ONLY, 0, HOST_INSNS },
        { "neither bit", BOTH_CPL, 3, 20 + HOST_INSNS },
        { "at CPL 0", EVTSEL_OS, 3, HOST_INSNS },
        { "above CPL 0", EVTSEL_USR, 3, 20 },
        { "Guest-Only", BOTH_CPL | GUEST_ONLY, 3, 20 },
        { "Guest-Only, at CPL 0", EVTSEL_OS | GUEST_ONLY, 3, 0 },
        { "Guest-Only, above CPL 0", EVTSEL_USR | GUEST_ONLY, 3, 20 },
        { "Host-Only", BOTH_CPL | HOST_ONLY, 3, HOST_INSNS },
        { "Host-Only, above CPL 0", EVTSEL_USR | HOST_ONLY, 3, 0 },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        uint64_t got;

        stop();
        set_counter(i % COUNTERS, INSNS | t[i].evtsel, 0);
        set_guest(t[i].cpl, nops);
        report(enter() == EXIT_VMMCALL &&
               (got = rdmsr(MSR_PERF_CTR(i % COUNTERS))) == t[i].count,
               "guest at CPL %d, %s: counts %d", t[i].cpl, t[i].name,
               t[i].count);
    }
}

/* Without EFER.SVME, one of the bits alone makes that nothing counts. */
static void test_no_svme(void)
{
    static const uint64_t bits[] = { 0, GUEST_ONLY, HOST_ONLY };
    static const char *const names[] = { "no", "the Guest-Only",
                                         "the Host-Only" };

    for (int svme = 0; svme < 2; svme++) {
        uint64_t efer = rdmsr(MSR_EFER) & ~(uint64_t)EFER_SVME;

        wrmsr(MSR_EFER, efer | (svme ? EFER_SVME : 0));
        for (int i = 0; i < ARRAY_SIZE(bits); i++) {
            bool counts = !bits[i] || (svme && bits[i] == HOST_ONLY);

            stop();
            set_counter(0, INSNS | EVTSEL_USR | bits[i], 0);
            wrmsr(MSR_AMD_CTL, 1);
            at_cpl(3, asm volatile("nop"));
            wrmsr(MSR_AMD_CTL, 0);
            report(!!rdmsr(MSR_PERF_CTR(0)) == counts,
                   "EFER.SVME is %d, %s bit: a counter %s outside of guests",
                   svme, names[i], counts ? "counts" : "does not count");
        }
    }
}

GUEST(code_cpuid, "nop\n cpuid\n nop")
GUEST(code_rdtsc, "nop\n rdtsc\n nop")
GUEST(code_rdtscp, "nop\n rdtscp\n nop")
GUEST(code_rdpmc, "xor %ecx, %ecx\n rdpmc\n nop")
GUEST(code_rdmsr, "mov $0xc0000300, %ecx\n rdmsr\n nop")
GUEST(code_wrmsr, "mov $0xc0000302, %ecx\n wrmsr\n nop")
GUEST(code_pushf, "nop\n pushf\n popf\n nop")
GUEST(code_pause, "nop\n pause\n nop")
GUEST(code_sgdt, "nop\n sgdt -16(%rsp)\n nop")
GUEST(code_invlpg, "nop\n invlpg (%rsp)\n nop")
GUEST(code_wbinvd, "nop\n wbinvd\n nop")
GUEST(code_port, "nop\n in $0x80, %al\n nop")
GUEST(code_cr_read, "nop\n mov %cr0, %rax\n nop")
GUEST(code_cr_write, "mov %cr3, %rax\n mov %rax, %cr3\n nop")
GUEST(code_dr_read, "nop\n mov %dr7, %rax\n nop")
GUEST(code_dr_write, "mov $0x400, %eax\n mov %rax, %dr7\n nop")
GUEST(code_gif, "nop\n clgi\n stgi\n nop")
GUEST(code_xsetbv, "mov $3, %eax\n xor %edx, %edx\n xor %ecx, %ecx\n"
      "xsetbv\n nop")
GUEST(code_hlt, "nop\n hlt\n nop")
GUEST(code_mwait, "mov %rsp, %rax\n xor %ecx, %ecx\n xor %edx, %edx\n"
      "monitor\n mwait\n nop")
GUEST(code_int, "nop\n int $33\n nop")
GUEST(code_int1, "nop\n .byte 0xf1\n nop")
GUEST(code_iret, "nop\n iretq\n nop")
GUEST(code_vmrun, "nop\n vmrun %rax\n nop")
GUEST(code_ud2, "nop\n ud2\n nop")
GUEST(code_gp, "movabs $0x8000000000000000, %rbx\n mov (%rbx), %eax\n nop")
GUEST(code_pf, "mov $0x40005000, %edi\n mov (%rdi), %eax\n nop")
GUEST(code_stos, "mov $0x40004ff0, %edi\n mov $32, %ecx\n rep stosb\n nop")
GUEST(code_far, "mov %cs, %eax\n push %rax\n lea 1f(%rip), %rax\n push %rax\n"
      "lretq\n 1: nop")

/*
 * Instruction @k of the guest interrupts by an NMI, which exits; then the guest
 * goes on.
 */
static bool goes_on(void (*code)(void), int k, int total)
{
    bool ok;

    stop();
    set_guest(0, code);
    intercept_exit(&vmcb, EXIT_NMI, true);
    set_counter(0, INSNS | BOTH_CPL | GUEST_ONLY, 0);
    set_counter(1, INSNS | BOTH_CPL | HOST_ONLY, 0);
    set_counter(5, INSNS | BOTH_CPL | GUEST_ONLY | EVTSEL_INT, -k);
    ok = enter() == EXIT_NMI && take_pending() == NMI &&
         enter() == EXIT_VMMCALL &&
         rdmsr(MSR_PERF_CTR(0)) == total &&
         rdmsr(MSR_PERF_CTR(5)) == total - k &&
         rdmsr(MSR_PERF_CTR(1)) == 2 * HOST_INSNS;
    if (!ok) {
        test_printf("  instruction %d: exit %lx, %ld of %d\n", k, vmcb.exit,
                    rdmsr(MSR_PERF_CTR(0)), total);
    }
    stop();
    return ok;
}

static void test_intercepts(void)
{
    static const struct {
        const char *name;
        void (*code)(void);
        unsigned exit;
        uint8_t before;         /* what counts until #VMEXIT */
        uint8_t offset;         /* RIP then */
        uint8_t total;          /* if nothing is intercepted; 0: not run */
        uint8_t far;
    } t[] = {
        { "VMMCALL", nops, EXIT_VMMCALL, 20, 20 },
        { "VMRUN", code_vmrun, EXIT_VMRUN, 1, 1 },
        { "CPUID", code_cpuid, EXIT_CPUID, 1, 1, 3 },
        { "RDTSC", code_rdtsc, EXIT_RDTSC, 1, 1, 3 },
        { "RDTSCP", code_rdtscp, EXIT_RDTSCP, 1, 1, 3 },
        { "RDPMC", code_rdpmc, EXIT_RDPMC, 1, 2, 3 },
        { "RDMSR", code_rdmsr, EXIT_MSR, 1, 5, 3 },
        { "WRMSR", code_wrmsr, EXIT_MSR, 1, 5, 3 },
        { "PUSHF", code_pushf, EXIT_PUSHF, 1, 1, 4 },
        { "POPF", code_pushf, EXIT_POPF, 2, 2, 4 },
        { "PAUSE", code_pause, EXIT_PAUSE, 1, 1, 3 },
        { "SGDT", code_sgdt, EXIT_GDTR_READ, 1, 1, 3 },
        { "INVLPG", code_invlpg, EXIT_INVLPG, 1, 1, 3 },
        { "WBINVD", code_wbinvd, EXIT_WBINVD, 1, 1, 3 },
        { "IN", code_port, EXIT_IOIO, 1, 1, 3 },
        { "MOV from CR0", code_cr_read, EXIT_CR_READ, 1, 1, 3 },
        { "MOV to CR3", code_cr_write, EXIT_CR_WRITE + 3, 1, 3, 3 },
        { "MOV from DR7", code_dr_read, EXIT_DR_READ + 7, 1, 1, 3 },
        { "MOV to DR7", code_dr_write, EXIT_DR_WRITE + 7, 1, 5, 3 },
        { "CLGI", code_gif, EXIT_CLGI, 1, 1, 4 },
        { "STGI", code_gif, EXIT_STGI, 2, 4, 4 },
        { "XSETBV", code_xsetbv, EXIT_XSETBV, 3, 9, 5 },
        { "HLT", code_hlt, EXIT_HLT, 1, 1 },
        { "MWAIT", code_mwait, EXIT_MWAIT, 4, 10 },
        { "INT n", code_int, EXIT_SWINT, 1, 1 },
        { "INT1", code_int1, EXIT_ICEBP, 1, 1 },
        { "IRET", code_iret, EXIT_IRET, 1, 1 },
        { "#UD", code_ud2, EXIT_EXCEPTION + UD, 1, 1 },
        { "#GP", code_gp, EXIT_EXCEPTION + GP, 1, 10 },
        { "#PF", code_pf, EXIT_EXCEPTION + PF, 1, 5, 3 },
        { "#PF of REP STOS", code_stos, EXIT_EXCEPTION + PF, 2, 10, 4 },
        { "nothing", code_far, EXIT_VMMCALL, 6, 0, 6, 1 },
    };

    memset(msr_map, 0xff, sizeof(msr_map));
    memset(io_map, 0xff, sizeof(io_map));
    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        bool pf = t[i].exit == EXIT_EXCEPTION + PF;
        uint64_t c[3];
        bool ok;

        set_guest(0, t[i].code);
        intercept_exit(&vmcb, t[i].exit, true);
        set_pte(5, pf ? 0 : PTE_ALL);
        ok = enter_and_count(c) == t[i].exit && c[0] == t[i].before &&
             c[1] == t[i].far && c[2] == HOST_INSNS &&
             (!t[i].offset ||
              vmcb.rip == (uintptr_t)t[i].code + t[i].offset);
        set_pte(5, PTE_ALL);
        report(ok, "%s exits: %d instructions of the guest count before it",
               t[i].name, t[i].before);
        if (!ok) {
            test_printf("  exit %lx at %lx: %ld, far %ld; host %ld\n",
                        vmcb.exit, vmcb.rip - (uintptr_t)t[i].code, c[0], c[1],
                        c[2]);
        }
        if (t[i].total) {
            set_guest(0, t[i].code);
            ok = enter_and_count(c) == EXIT_VMMCALL && c[0] == t[i].total &&
                 c[1] == t[i].far && c[2] == HOST_INSNS;
            report(ok, "%s does not exit: %d instructions of the guest count",
                   t[i].name, t[i].total);
            if (!ok) {
                test_printf("  exit %lx: %ld, far %ld; host %ld\n", vmcb.exit,
                            c[0], c[1], c[2]);
            }
            ok = true;
            for (int k = 1; k <= t[i].total; k++) {
                ok &= goes_on(t[i].code, k, t[i].total);
            }
            report(ok, "%s does not exit: the same if any of them interrupts",
                   t[i].name);
        }
    }

    /* RDTSC's intercept is not RDTSCP's. */
    set_guest(0, code_rdtscp);
    intercept_exit(&vmcb, EXIT_RDTSC, true);
    report(enter() == EXIT_VMMCALL, "RDTSC's intercept is not RDTSCP's");
}

/* There is no descriptor for #UD, nor for #GP and #DF. */
static void test_triple_fault(void)
{
    uint64_t c[3];

    set_guest(0, code_ud2);
    vmcb.idtr.limit = 0;
    intercept_exit(&vmcb, EXIT_SHUTDOWN, true);
    report(enter_and_count(c) == EXIT_SHUTDOWN && c[0] == 1 && c[1] == 0 &&
           c[2] == HOST_INSNS,
           "a triple fault exits: what faulted does not count");
}

GUEST(code_access, "rdmsr\n nop")
GUEST(code_modify, "wrmsr\n nop")

/* Where an MSR's two bits are in the permission map (APM 15.11) */
static uint32_t map_bit(uint32_t msr)
{
    return (msr < 0xc0010000 ? 0x800 : 0x1000) * 8 + (msr & 0x1fff) * 2;
}

/*
 * What the guest reads from @msr, or @val, which it writes.  enter() would do
 * so itself with one of the MSRs.
 */
static uint64_t access_msr(bool write, uint32_t msr, uint64_t val)
{
    uint32_t lo = val, hi = val >> 32;
    uint64_t dummy;

    set_guest(0, write ? code_modify : code_access);
    vmcb.rax = lo;
    intercept_exit(&vmcb, EXIT_MSR, true);
    asm volatile("vmrun %%rax"
                 : "=a" (dummy), "+d" (hi)
                 : "a" (&vmcb), "c" (msr) : "rbx", "cc", "memory");
    return write ? val : (uint64_t)hi << 32 | (uint32_t)vmcb.rax;
}

static void test_msrs(void)
{
    static const struct {
        const char *name;
        uint32_t msr;
        bool read_only;         /* or reads 0 */
    } t[] = {
        { "PERF_CTL0 of K7", 0xc0010000 }, { "PERF_CTR0 of K7", 0xc0010004 },
        { "PERF_CTL5", MSR_PERF_CTL(5) }, { "PERF_CTR5", MSR_PERF_CTR(5) },
        { "PerfCntrGlobalCtl", MSR_AMD_CTL },
        { "PerfCntrGlobalStatus", MSR_AMD_STATUS, true },
        { "PerfCntrGlobalStatusClr", MSR_AMD_STATUS_CLR, true },
    };

    stop();
    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        uint32_t bit = map_bit(t[i].msr);
        bool exits = true, passes = true;

        for (int bits = 0; bits < 4; bits++) {
            for (int write = 0; write < 2; write++) {
                uint64_t old = t[i].read_only ? 0 : 5, val = 6, got;

                if (!t[i].read_only) {
                    wrmsr(t[i].msr, old);
                }
                memset(msr_map, 0xff, sizeof(msr_map));
                msr_map[bit / 8] &= ~(3 << bit % 8);
                msr_map[bit / 8] |= bits << bit % 8;
                got = access_msr(write, t[i].msr, val);
                if (bits >> write & 1) {
                    exits &= vmcb.exit == EXIT_MSR && vmcb.info1 == write &&
                             vmcb.rip == (uintptr_t)(write ? code_modify :
                                                     code_access) &&
                             rdmsr(t[i].msr) == old;
                } else {
                    passes &= vmcb.exit == EXIT_VMMCALL &&
                              (write ? rdmsr(t[i].msr) ==
                                       (t[i].read_only ? 0 : val) :
                                       got == old);
                }
            }
        }
        report(exits, "MSR %s exits by the map, and is not accessed",
               t[i].name);
        report(passes, "MSR %s is the guest's by the map", t[i].name);
        if (!t[i].read_only) {
            wrmsr(t[i].msr, 0);
        }
    }
    memset(msr_map, 0xff, sizeof(msr_map));
}

GUEST(code_counter, "rdpmc")

/* All exceptions of RDPMC precede its intercept (APM 15.9). */
static void test_rdpmc(void)
{
    static const uint32_t indices[] = {
        0, COUNTERS - 1, COUNTERS, 0x40000000, 0x80000000, 0xffffffff,
    };
    uint64_t cr4 = read_cr4();

    stop();
    for (int i = 0; i < ARRAY_SIZE(indices) * 4; i++) {
        uint32_t ecx = indices[i / 4];
        int cpl = i & 1 ? 3 : 0;
        bool pce = i & 2;
        bool gp = ecx >= COUNTERS || (cpl && !pce);

        write_cr4((cr4 & ~CR4_PCE) | (pce ? CR4_PCE : 0));
        set_guest(cpl, code_counter);
        guest_rcx = ecx;
        intercept_exit(&vmcb, EXIT_RDPMC, true);
        intercept_exit(&vmcb, EXIT_EXCEPTION + GP, true);
        report(enter() == (gp ? EXIT_EXCEPTION + GP : EXIT_RDPMC) &&
               vmcb.rip == (uintptr_t)code_counter,
               "CPL %d, CR4.PCE is %d: RDPMC of counter %x exits by %s", cpl,
               pce, ecx, gp ? "#GP" : "its intercept");
    }
    write_cr4(cr4);
}

GUEST(code_clts, "clts")
GUEST(code_invd, "invd")
GUEST(code_skinit, "skinit")
GUEST(code_stgi, "stgi")
GUEST(code_clgi, "clgi")
GUEST(code_vmload, "vmload %rax")
GUEST(code_vmsave, "vmsave %rax")
GUEST(code_lgdt, "lgdt (%rsp)")
GUEST(code_rsm, "rsm")

/*
 * At CPL 3, where all these are #GP, or #UD: most check that before their
 * intercept, but not all (APM 15.9, table 15-7; 15.11).
 */
static void test_order(void)
{
    static const struct {
        const char *name;
        void (*code)(void);
        unsigned exit;
        bool first;             /* the intercept is */
    } t[] = {
        { "MOV from CR0", code_cr_read, EXIT_CR_READ },
        { "MOV from DR7", code_dr_read, EXIT_DR_READ + 7 },
        { "CLTS", code_clts, EXIT_CR_WRITE },
        { "LGDT", code_lgdt, EXIT_GDTR_WRITE },
        { "RDMSR", code_access, EXIT_MSR },
        { "WRMSR", code_modify, EXIT_MSR },
        { "HLT", code_hlt, EXIT_HLT },
        { "INVD", code_invd, EXIT_INVD },
        { "WBINVD", code_wbinvd, EXIT_WBINVD },
        { "INVLPG", code_invlpg, EXIT_INVLPG },
        { "VMRUN", code_vmrun, EXIT_VMRUN },
        { "VMLOAD", code_vmload, EXIT_VMLOAD },
        { "VMSAVE", code_vmsave, EXIT_VMSAVE },
        { "STGI", code_stgi, EXIT_STGI },
        { "CLGI", code_clgi, EXIT_CLGI },
        { "SKINIT", code_skinit, EXIT_SKINIT },
        { "XSETBV", code_xsetbv, EXIT_XSETBV, true },
        { "RSM", code_rsm, EXIT_RSM, true },
    };

    for (int i = 0; i < ARRAY_SIZE(t); i++) {
        uint64_t exit;

        stop();
        set_guest(3, t[i].code);
        intercept_exit(&vmcb, t[i].exit, true);
        intercept_exit(&vmcb, EXIT_EXCEPTION + GP, true);
        intercept_exit(&vmcb, EXIT_EXCEPTION + UD, true);
        exit = enter();
        report(exit == (t[i].first ? t[i].exit : EXIT_EXCEPTION + GP),
               "CPL 3: %s exits by %s", t[i].name,
               t[i].first ? "its intercept" : "#GP");
    }
}

/* The guest's handler: RIP of what is interrupted is in @regs. */
static void __attribute__((naked)) tell(void)
{
    asm("vmmcall");
}

static void test_interrupt(void)
{
    for (int cpl = 3; cpl >= 0; cpl -= 3) {
        bool exits = true, taken = true, same_rip = true, none = true;

        for (int k = 1; k <= 20; k++) {
            stop();
            set_counter(0, INSNS | BOTH_CPL | GUEST_ONLY | EVTSEL_INT, -k);
            set_guest(cpl, nops);
            intercept_exit(&vmcb, EXIT_NMI, true);
            exits &= enter() == EXIT_NMI &&
                     vmcb.rip == (uintptr_t)nops + k &&
                     rdmsr(MSR_PERF_CTR(0)) == 0 &&
                     rdmsr(MSR_AMD_STATUS) == 1;
            taken &= take_pending() == NMI;
            none &= take_pending() == EXIT;

            stop();
            set_handler(NMI, tell);
            set_counter(0, INSNS | BOTH_CPL | GUEST_ONLY | EVTSEL_INT, -k);
            set_guest(cpl, nops);
            regs.rip = 0;
            same_rip &= enter() == EXIT_VMMCALL &&
                        vmcb.rip == (uintptr_t)tell &&
                        regs.rip == (uintptr_t)nops + k;
            reset_handler(NMI);
            asm volatile("stgi");
            /* The guest has not executed IRET. */
            at_cpl(0, asm volatile("nop"));
        }
        report(exits, "CPL %d: instruction 1 to 20 of the guest interrupts: "
               "#VMEXIT behind it", cpl);
        report(taken && none,
               "CPL %d: then the NMI is pending for the hypervisor, once",
               cpl);
        report(same_rip, "CPL %d: the guest takes the NMI behind it", cpl);
    }

    stop();
    set_counter(0, INSNS | BOTH_CPL | HOST_ONLY | EVTSEL_INT, -HOST_VMRUN);
    set_guest(0, nops);
    intercept_exit(&vmcb, EXIT_NMI, true);
    report(enter() == EXIT_NMI && vmcb.rip == (uintptr_t)nops,
           "VMRUN interrupts: #VMEXIT before the guest's first instruction");
    report(take_pending() == NMI,
           "then the NMI is pending for the hypervisor");

    stop();
    APIC(APIC_LVTPC) = VECTOR;
    set_counter(0, INSNS | BOTH_CPL | GUEST_ONLY | EVTSEL_INT, -7);
    set_guest(3, nops);
    intercept_exit(&vmcb, EXIT_INTR, true);
    vmcb.rflags |= FLAG_IF;
    report(enter() == EXIT_INTR && vmcb.rip == (uintptr_t)nops + 7,
           "a fixed vector: #VMEXIT behind the instruction");
    report(at_cpl(0, asm volatile("stgi\n sti\n nop\n cli")) == VECTOR,
           "then it is pending for the hypervisor");
    APIC(APIC_EOI) = 0;
    stop();
}

/* VMRUN that fails has not changed the guest, and counts once. */
static void test_failure(void)
{
    static const char *const names[] = {
        "ASID 0", "CR0 with a reserved bit", "DR7 with a reserved bit",
        "EFER without SVME",
    };

    for (int i = 0; i < ARRAY_SIZE(names); i++) {
        static Vmcb before;
        uint64_t c[3];
        bool ok;

        set_guest(3, nops);
        vmcb.rflags |= 0x8d5;           /* OF, SF, ZF, AF, PF, CF */
        vmcb.rax = 0x1234;
        switch (i) {
        case 0:
            vmcb.asid = 0;
            break;
        case 1:
            vmcb.cr0 |= 1ull << 32;
            break;
        case 2:
            vmcb.dr7 |= 1ull << 32;
            break;
        case 3:
            vmcb.efer &= ~(uint64_t)EFER_SVME;
            break;
        }
        before = vmcb;
        ok = enter_and_count(c) == -1ull;
        report(ok && c[0] == 0 && c[2] == HOST_INSNS,
               "VMRUN fails, %s: it counts once, the guest does not",
               names[i]);
        /* The state save area */
        report(same(&before.es, &vmcb.es, PAGE - offsetof(Vmcb, es)),
               "VMRUN fails, %s: the guest's state is as it was", names[i]);
        if (!ok) {
            test_printf("  exit %lx: %ld, host %ld\n", vmcb.exit, c[0], c[2]);
        }
    }
}

#define BEHIND ".rept 20\n nop\n .endr"

CODE(host_ud2, "nop\n ud2\n" BEHIND)
CODE(host_vmmcall, "nop\n vmmcall\n" BEHIND)

/* What counts until #UD in @code, and here until counters are stopped */
static uint64_t count_ud(int cpl, void (*code)(void))
{
    stop();
    set_counter(0, INSNS | BOTH_CPL, 0);
    set_up(cpl ? USER_CODE64 : CODE64, (uintptr_t)code);
    wrmsr(MSR_AMD_CTL, 1);
    if (run() != UD || regs.rip != (uintptr_t)code + 1) {
        return 0;
    }
    wrmsr(MSR_AMD_CTL, 0);
    return rdmsr(MSR_PERF_CTR(0));
}

static void test_host_vmmcall(void)
{
    for (int cpl = 0; cpl <= 3; cpl += 3) {
        uint64_t want = count_ud(cpl, host_ud2);
        uint64_t got = count_ud(cpl, host_vmmcall);

        report(want && got == want,
               "VMMCALL in the hypervisor at CPL %d: #UD, it does not count",
               cpl);
        if (got != want) {
            test_printf("  %ld, and with UD2 %ld\n", got, want);
        }
    }
    stop();
}

int main(void)
{
    kernel_init();
    apic_init(LVT_NMI);
    stop();
    test_no_svme();
    test_host_vmmcall();
    wrmsr(MSR_HSAVE_PA, (uintptr_t)host_save);
    test_guest_host();
    test_intercepts();
    test_triple_fault();
    test_msrs();
    test_rdpmc();
    test_order();
    test_interrupt();
    test_failure();
    return report_summary();
}
