/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD's last branch records since Zen 4 (LbrExtV2): sixteen of them, the newest
 * first, what selects them, and how they freeze.
 */

#include "pmu-kernel.h"

#define MSR_SELECT      0xc000010e
#define MSR_CFG         0xc000010f
#define MSR_FROM(i)     (0xc0010300 + 2 * (i))
#define MSR_TO(i)       (0xc0010301 + 2 * (i))
#define MSR_LAST_FROM   0x1db
#define MSR_LAST_TO     0x1dc

#define ENABLE          (1u << 6)       /* of MSR_CFG */
#define VALID           (1ull << 63)    /* of TO; bit 62 would be speculative */
#define MISPREDICTED    (1ull << 63)    /* of FROM */
#define DEPTH           16
#define LBR_FROZEN      (1ull << 58)    /* of MSR_AMD_STATUS */
#define COUNTERS_FROZEN (1ull << 59)
#define INSNS           0xc0

enum { NMI = 2 };

/* Bits of MSR_SELECT: what is left out */
enum {
    NO_OS = 1, NO_USR = 2, NO_JCC = 4, NO_CALL = 8, NO_CALL_IND = 0x10,
    NO_RET = 0x20, NO_JMP_IND = 0x40, NO_JMP = 0x80, NO_FAR = 0x100,
};

#define SET_CFG(val) \
    "mov $0xc000010f, %ecx\n mov $" val ", %eax\n xor %edx, %edx\n wrmsr\n"
#define ON      SET_CFG("0x40")
#define OFF     SET_CFG("0")

static bool is_record(unsigned n, void (*from)(void), void (*to)(void))
{
    return (rdmsr(MSR_FROM(n)) & ~MISPREDICTED) == (uintptr_t)from &&
           rdmsr(MSR_TO(n)) == ((uintptr_t)to | VALID);
}

static void clear(uint64_t select)
{
    wrmsr(MSR_CFG, 0);
    wrmsr(MSR_DEBUGCTL, 0);
    wrmsr(MSR_SELECT, select);
    for (int i = 0; i < DEPTH; i++) {
        wrmsr(MSR_FROM(i), 0);
        wrmsr(MSR_TO(i), 0);
    }
}

static unsigned count_records(void)
{
    unsigned n = 0;

    while (n < DEPTH && (rdmsr(MSR_TO(n)) & VALID)) {
        n++;
    }
    return n;
}

static void test_registers(void)
{
    uint32_t eax = cpuid_reg(0x80000022, 0, 0);
    uint32_t ebx = cpuid_reg(0x80000022, 0, 1);
    bool keep = true, gp = true;

    report((eax & 7) == 7 && (ebx >> 4 & 63) == DEPTH,
           "CPUID 8000_0022: EAX %x, depth %d", eax, ebx >> 4 & 63);
    clear(0);
    for (int i = 0; i < DEPTH; i++) {
        wrmsr(MSR_FROM(i), 0x1000 + i);
        wrmsr(MSR_TO(i), 0x2000 + i);
    }
    for (int i = 0; i < DEPTH; i++) {
        keep &= rdmsr(MSR_FROM(i)) == 0x1000 + i &&
                rdmsr(MSR_TO(i)) == 0x2000 + i;
    }
    report(keep, "%d records keep what is written", DEPTH);
    gp &= at_cpl(0, rdmsr(MSR_FROM(DEPTH))) == GP;
    gp &= at_cpl(0, rdmsr(MSR_TO(DEPTH))) == GP;
    gp &= at_cpl(0, wrmsr(MSR_FROM(DEPTH), 0)) == GP;
    report(gp, "there are no more of them");
    wrmsr(MSR_SELECT, 0x1ff);
    report(rdmsr(MSR_SELECT) == 0x1ff, "LBR_SELECT has 9 bits");
    wrmsr(MSR_CFG, ENABLE);
    report(rdmsr(MSR_CFG) == ENABLE, "DBG_EXTN_CFG enables");
    clear(0);
    report(count_records() == 0, "all are clear");
    wrmsr(MSR_DEBUGCTL, FREEZE_LBRS_ON_PMI | FREEZE_ON_PMI);
    report(rdmsr(MSR_DEBUGCTL) == (FREEZE_LBRS_ON_PMI | FREEZE_ON_PMI),
           "DbgCtl has both bits that freeze");
    wrmsr(MSR_DEBUGCTL, 0);
}

/* 20 branches, of three bytes each with what they skip */
PLACE(chain_first);
CODE(chain, ON "chain_first:\n .rept 20\n jmp 1f\n nop\n 1:\n .endr\n" OFF)

static bool in_chain(unsigned n, unsigned i)
{
    uintptr_t from = (uintptr_t)chain_first + 3 * i;

    return is_record(n, (void *)from, (void *)(from + 3));
}

static void test_order(void)
{
    bool ok = true;

    clear(0);
    run_function(0, chain);
    for (int i = 0; i < DEPTH; i++) {
        ok &= in_chain(i, 19 - i);
    }
    report(ok && count_records() == DEPTH, "20 branches: the last %d of them, "
           "the newest first", DEPTH);
    report(rdmsr(MSR_LAST_FROM) == (uintptr_t)chain_first + 3 * 19 &&
           rdmsr(MSR_LAST_TO) == (uintptr_t)chain_first + 3 * 20,
           "LastBranchFromIP and ToIP are those of the newest");
    run_function(0, (void *)((uintptr_t)chain_first + 3 * 19));
    report(in_chain(0, 19), "a branch that is not recorded moves nothing");
}

/* One of each kind, in the order of LBR_SELECT's bits */
PLACE(jcc_at);
PLACE(call_at);
PLACE(call_ind_at);
PLACE(ret_at);
PLACE(jmp_ind_at);
PLACE(jmp_at);
PLACE(far_at);
PLACE(kinds_end);
CODE(kinds, "lea jmp_at(%rip), %rdi\n mov %cs, %eax\n push %rax\n"
     "lea kinds_end(%rip), %rax\n push %rax\n"
     "lea jmp_ind_at(%rip), %rax\n push %rax\n lea 1f(%rip), %rbx\n"
     ON
     "jcc_at: jz call_at\n ud2\n"
     "call_at: call call_ind_at\n ud2\n"
     "call_ind_at: call *%rbx\n ud2\n"
     "1: lea 16(%rsp), %rsp\n"
     "ret_at: ret\n"
     "ud2\n"
     "jmp_ind_at: jmp *%rdi\n"
     "ud2\n"
     "jmp_at: jmp far_at\n"
     "ud2\n"
     "far_at: lretq\n"
     "ud2\n"
     "kinds_end:" OFF)

static void test_select(void)
{
    static void (*const to[])(void) = {
        call_at, call_ind_at, NULL, jmp_ind_at, jmp_at, far_at, kinds_end,
    };
    static void (*const from[])(void) = {
        jcc_at, call_at, call_ind_at, ret_at, jmp_ind_at, jmp_at, far_at,
    };
    const unsigned kinds_nr = ARRAY_SIZE(to);

    for (unsigned left = 0; left <= kinds_nr; left++) {
        /* Nothing is left out first, and then one after the other. */
        uint64_t select = left ? NO_JCC << (left - 1) : 0;
        unsigned n = 0;
        bool ok = true;

        clear(select);
        ok &= run_function(0, kinds) == EXIT;
        for (int i = kinds_nr - 1; i >= 0; i--) {
            if (i + 1 == left) {
                continue;
            }
            ok &= (!to[i] || rdmsr(MSR_TO(n)) == ((uintptr_t)to[i] | VALID)) &&
                  (!from[i] || (rdmsr(MSR_FROM(n)) & ~MISPREDICTED) ==
                               (uintptr_t)from[i]);
            n++;
        }
        report(ok && count_records() == n, "LBR_SELECT is %lx: %d of %d "
               "branches", select, count_records(), kinds_nr);
    }
}

/* The handler of INT EXIT: what was at CPL 3 is not to be overwritten. */
static void __attribute__((naked)) on_exit(void)
{
    asm("mov %rax, -24(%rsp)\n mov %rcx, -32(%rsp)\n"
        "mov %rdx, -40(%rsp)\n" OFF
        "mov -24(%rsp), %rax\n mov -32(%rsp), %rcx\n"
        "mov -40(%rsp), %rdx\n jmp trap_stubs + 16 * 32");
}

PLACE(user_from);
PLACE(user_to);
PLACE(user_end);
CODE(user, "user_from: jmp user_to\n nop\n user_to: nop\n user_end:")

static void run_user(uint64_t select)
{
    clear(select);
    set_handler(EXIT, on_exit);
    set_up(USER_CODE64, (uintptr_t)user);
    wrmsr(MSR_CFG, ENABLE);
    run();
    wrmsr(MSR_CFG, 0);
    reset_handler(EXIT);
}

static void test_cpl(void)
{
    run_user(0);
    report(is_record(0, user_end, on_exit) &&
           is_record(1, user_from, user_to) &&
           rdmsr(MSR_TO(2)) == ((uintptr_t)user | VALID),
           "both CPLs: INT, JMP, IRET");
    run_user(NO_OS);
    report(is_record(0, user_from, user_to) &&
           rdmsr(MSR_TO(1)) == ((uintptr_t)user | VALID) &&
           count_records() == 2, "what goes to CPL 3: JMP, IRET");
    run_user(NO_USR);
    report(is_record(0, user_end, on_exit) &&
           rdmsr(MSR_TO(1)) != ((uintptr_t)user | VALID),
           "what goes to CPL 0: INT, without IRET");
    run_user(NO_OS | NO_USR);
    report(count_records() == 0, "neither: nothing");
}

PLACE(user_chain_first);
CODE(user_chain, "user_chain_first:\n .rept 20\n jmp 1f\n nop\n 1:\n .endr\n")

static void stop(void)
{
    wrmsr(MSR_AMD_CTL, 0);
    wrmsr(MSR_PERF_CTL(0), 0);
    wrmsr(MSR_AMD_STATUS_CLR, ~0ull);
    APIC(APIC_LVTPC) = LVT_NMI;
}

/* Branch @k of the chain makes a counter interrupt. */
static unsigned run_to_pmi(int k, uint64_t debugctl)
{
    stop();
    clear(0);
    wrmsr(MSR_PERF_CTL(0), INSNS | EVTSEL_USR | EVTSEL_INT | EVTSEL_EN);
    wrmsr(MSR_PERF_CTR(0), -k & ((1ull << 48) - 1));
    wrmsr(MSR_DEBUGCTL, debugctl);
    wrmsr(MSR_CFG, ENABLE);
    wrmsr(MSR_AMD_CTL, 1);
    set_up(USER_CODE64, (uintptr_t)user_chain);
    return run();
}

static void test_freeze(void)
{
    for (int k = 1; k <= 20; k++) {
        uintptr_t first = (uintptr_t)user_chain_first;
        uint64_t status;
        bool ok = run_to_pmi(k, FREEZE_LBRS_ON_PMI) == NMI;

        status = rdmsr(MSR_AMD_STATUS);
        ok &= regs.rip == first + 3 * k && status == (LBR_FROZEN | 1) &&
              rdmsr(MSR_CFG) == ENABLE &&
              rdmsr(MSR_DEBUGCTL) == FREEZE_LBRS_ON_PMI;
        for (int i = 0; i < k && i < DEPTH; i++) {
            uintptr_t from = first + 3 * (k - 1 - i);

            ok &= is_record(i, (void *)from, (void *)(from + 3));
        }
        report(ok, "frozen: branch %d, which interrupts, is the newest, "
               "status %lx", k, status);
        /* It ends, and what has been recorded is still there. */
        ok = run() == EXIT && is_record(0, (void *)(first + 3 * (k - 1)),
                                        (void *)(first + 3 * k));
        report(ok, "frozen: it stays so until the bit is cleared");
        wrmsr(MSR_AMD_STATUS_CLR, LBR_FROZEN);
        run_function(0, chain);
        report(in_chain(0, 19), "then there are new ones");
    }
    report(run_to_pmi(5, 0) == NMI &&
           rdmsr(MSR_AMD_STATUS) == 1 &&
           rdmsr(MSR_FROM(0)) != (uintptr_t)user_chain_first + 3 * 4,
           "not to be frozen: the handler's are there");
    run();

    /* The counters */
    for (int freeze = 0; freeze < 2; freeze++) {
        uint64_t status, count;
        bool ok = run_to_pmi(5, freeze ? FREEZE_ON_PMI : 0) == NMI;

        status = rdmsr(MSR_AMD_STATUS);
        ok &= rdmsr(MSR_AMD_CTL) == 1 && run() == EXIT;
        count = rdmsr(MSR_PERF_CTR(0));
        /* 15 branches; INT counts at CPL 3 */
        report(ok && status == (freeze ? COUNTERS_FROZEN | 1 : 1) &&
               count == (freeze ? 0 : 16),
               "counters %s: %lx, %ld", freeze ? "are frozen" : "go on",
               status, count);
        wrmsr(MSR_AMD_STATUS_CLR, COUNTERS_FROZEN);
        wrmsr(MSR_PERF_CTR(0), 0);
        run_function(3, user_chain);
        report(rdmsr(MSR_PERF_CTR(0)) == 21, "then they count: %ld",
               rdmsr(MSR_PERF_CTR(0)));
    }
    stop();
    clear(0);
}

int main(void)
{
    kernel_init();
    for (int i = 0; i < 6; i++) {
        wrmsr(MSR_PERF_CTL(i), 0);
    }
    apic_init(LVT_NMI);
    stop();
    test_registers();
    test_order();
    test_select();
    test_cpl();
    test_freeze();
    return report_summary();
}
