/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The registers of last branch records, and IA32_DEBUGCTL: which there are, and
 * what they hold.  Of stepping 15, there are no records (lbr=off).
 */

#include "pmu-lbr.h"

#define STEPPING_OFF    15

static bool off;

static bool reads(uint32_t msr)
{
    return at_cpl(0, rdmsr(msr)) == EXIT;
}

static bool writes(uint32_t msr, uint64_t val)
{
    return at_cpl(0, wrmsr(msr, val)) == EXIT;
}

static bool keeps(uint32_t msr, uint64_t val)
{
    uint64_t old = rdmsr(msr), got;

    if (!writes(msr, val)) {
        test_printf("  %x: #GP for %lx\n", (int)msr, val);
        return false;
    }
    got = rdmsr(msr);
    wrmsr(msr, old);
    if (got != val) {
        test_printf("  %x: %lx for %lx\n", (int)msr, got, val);
    }
    return got == val;
}

/* A bit of @msr after the other */
static bool bits_are(uint32_t msr, uint64_t mask, uint64_t ignored)
{
    bool ok = true;

    for (int i = 0; i < 64; i++) {
        uint64_t bit = 1ull << i, old = rdmsr(msr), got;
        bool written = writes(msr, bit);

        got = rdmsr(msr);
        wrmsr(msr, old);
        if (written != !!((mask | ignored) & bit) ||
            (written && got != (mask & bit))) {
            test_printf("  %x: bit %d, %s, %lx\n", (int)msr, i,
                        written ? "written" : "#GP", got);
            ok = false;
        }
    }
    return ok;
}

static unsigned pmu_version(void)
{
    return is_amd() ? 0 : cpuid_reg(0xa, 0, 0) & 0xff;
}

static uint64_t perf_capabilities(void)
{
    return cpuid_reg(1, 0, 2) & CPUID_PDCM ? rdmsr(MSR_PERF_CAPABILITIES) : 0;
}

static void test_debugctl(void)
{
    uint64_t mask = DEBUGCTL_BTF | lbr->debugctl, ignored = DEBUGCTL_LBR;

    mask |= !off && !is_arch() ? DEBUGCTL_LBR : 0;
    mask |= cpuid_reg(1, 0, 3) >> 21 & 1 ? 0x1c0 : 0;
    mask |= cpuid_reg(1, 0, 2) >> 4 & 1 ? 0x600 : 0;
    mask |= pmu_version() >= 2 && (cpuid_reg(1, 0, 2) & CPUID_PDCM) ? 0x1800 :
            0;
    mask |= perf_capabilities() >> 12 & 1 ? FREEZE_WHILE_SMM : 0;
    ignored |= is_amd() ? -1ull : 0;
    report(bits_are(MSR_DEBUGCTL, mask, ignored), "DEBUGCTL has %lx", mask);
    report(keeps(MSR_DEBUGCTL, mask & ~0xc0ull) && keeps(MSR_DEBUGCTL, 0),
           "DEBUGCTL reads what is written");
}

static bool is_ours(uint32_t msr)
{
    return !off && (msr - lbr->from < lbr->depth ||
                    (lbr->to && msr - lbr->to < lbr->depth) ||
                    (lbr->info && msr - lbr->info < lbr->depth));
}

/* Where any generation has them */
static void test_which(void)
{
    static const uint32_t first[] = {
        0x40, 0x60, 0x680, 0x6c0, 0xdc0, 0x1200, 0x1500, 0x1600,
    };
    bool ok = true;

    for (int i = 0; i < ARRAY_SIZE(first); i++) {
        for (uint32_t msr = first[i];
             msr < first[i] + (first[i] < 0x100 ? 8 : 32); msr++) {
            if (reads(msr) != is_ours(msr) || writes(msr, 0) != is_ours(msr)) {
                test_printf("  %x\n", (int)msr);
                ok = false;
            }
        }
    }
    report(ok, "records are where they should be, and nowhere else");
    if (is_amd()) {
        return;
    }
    ok = reads(MSR_LBR_TOS) == (!off && lbr->depth > 1 && !is_arch()) &&
         reads(MSR_LBR_CTL) == (!off && is_arch()) &&
         reads(MSR_LBR_DEPTH) == (!off && is_arch());
    report(ok, "so are TOS, CTL and DEPTH");
    /* What looks for records writes that before it knows. */
    report(reads(MSR_LBR_SELECT) && writes(MSR_LBR_SELECT, 0),
           "SELECT may be written where it is not");
    /* Knights Landing has flags, and does not say so. */
    report((perf_capabilities() & 63) ==
           (off ? 0 : lbr->model == 87 ? FORMAT_LIP : lbr->format),
           "PERF_CAPABILITIES: format %d", (int)perf_capabilities() & 63);
    report((cpuid_reg(7, 0, 3) >> 19 & 1) == (!off && is_arch()),
           "CPUID 7.EDX[19]");
    report(cpuid_reg(0x1c, 0, 0) == (!off && is_arch() ? 0xb : 0) ||
           cpuid_reg(0, 0, 0) < 0x1c, "CPUID 1CH");
}

/* As Linux' check_msr() does it, and more */
static void test_records(void)
{
    static const uint64_t values[] = {
        0xffff, 0x123456789abc, -0x1000, 0xe000000000400000ull,
    };
    bool ok = true;

    for (unsigned i = 0; i < lbr->depth; i++) {
        for (int v = 0; v < ARRAY_SIZE(values); v++) {
            ok &= keeps(lbr->from + i, rdmsr(lbr->from + i) ^ values[v]) &&
                  keeps(lbr->from + i, values[v]);
            ok &= !lbr->to || keeps(lbr->to + i, values[v]);
            ok &= !lbr->info || keeps(lbr->info + i, values[v]);
        }
    }
    report(ok, "records keep what is written");
    ok = true;
    for (unsigned i = 0; i < lbr->depth; i++) {
        wrmsr(lbr->from + i, i + 1);
    }
    if (!is_arch()) {
        ok &= bits_are(MSR_LBR_TOS, lbr->depth - 1, 0);
        for (unsigned tos = 0; tos < lbr->depth; tos++) {
            wrmsr(MSR_LBR_TOS, tos);
            ok &= rdmsr(MSR_LBR_TOS) == tos;
            for (unsigned i = 0; i < lbr->depth; i++) {
                ok &= rdmsr(lbr->from + i) == i + 1;
            }
        }
        report(ok, "TOS does not move them");
    }
    clear_records();
}

CODE(jmp, "jmp 1f\n 1: nop")

static void test_tos(void)
{
    bool ok = true;

    for (unsigned tos = 0; tos < lbr->depth; tos++) {
        wrmsr(MSR_LBR_TOS, tos);
        set_up(USER_CODE64, (uintptr_t)jmp);
        run_recorded(EXIT, on_exit);
        ok &= rdmsr(MSR_LBR_TOS) < lbr->depth &&
              goes(record(0), regs.rip - 2, (uintptr_t)on_exit);
    }
    report(ok, "TOS is where the last record is");
}

static void test_select(void)
{
    if (lbr->select) {
        report(bits_are(MSR_LBR_SELECT, lbr->select, 0), "SELECT has %x",
               (int)lbr->select);
        report(keeps(MSR_LBR_SELECT, lbr->select), "SELECT keeps all of it");
    }
}

static void test_arch(void)
{
    bool ok = true;

    report(bits_are(MSR_LBR_CTL, CTL_CLASSES | 15, 0) &&
           keeps(MSR_LBR_CTL, CTL_CLASSES | 15), "LBR_CTL");
    report(rdmsr(MSR_LBR_DEPTH) == 32, "LBR_DEPTH is 32 at first");
    for (unsigned depth = 0; depth <= 64; depth++) {
        ok &= writes(MSR_LBR_DEPTH, depth) ==
              (depth == 8 || depth == 16 || depth == 32);
    }
    ok &= !writes(MSR_LBR_DEPTH, 1ull << 32 | 8);
    report(ok, "LBR_DEPTH is 8, 16 or 32");
    for (unsigned depth = 8; depth <= 32; depth *= 2) {
        wrmsr(MSR_LBR_DEPTH, depth);
        for (unsigned i = 0; i < depth; i++) {
            wrmsr(0x1500 + i, i + 1);
            wrmsr(0x1600 + i, i + 1);
            wrmsr(0x1200 + i, i + 1);
        }
        ok = true;
        for (unsigned i = 0; i < 32; i++) {
            ok &= reads(0x1500 + i) == (i < depth) &&
                  reads(0x1600 + i) == (i < depth) &&
                  reads(0x1200 + i) == (i < depth) &&
                  writes(0x1500 + i, i + 1) == (i < depth);
        }
        report(ok, "depth %d: #GP from there on", depth);
        set_up(USER_CODE64, (uintptr_t)jmp);
        run_recorded(EXIT, on_exit);
        report(record(0).to == (uintptr_t)on_exit &&
               record(1).from == (uintptr_t)jmp,
               "depth %d: the last one is the first", depth);
        wrmsr(MSR_LBR_DEPTH, depth);
        for (unsigned i = 0; i < depth; i++) {
            Record r = read_registers(i);

            ok &= r.from == 0 && r.to == 0 && r.info == 0;
        }
        report(ok, "depth %d: the same once more clears all", depth);
    }
    report(keeps(MSR_LER_FROM, 5) && keeps(MSR_LER_TO, 6) &&
           keeps(MSR_LER_INFO, 7), "LER_FROM, LER_TO and LER_INFO");
}

int main(void)
{
    kernel_init();
    lbr_find();
    off = (cpuid_reg(1, 0, 0) & 15) == STEPPING_OFF;
    test_printf("%s\n", lbr->name);
    test_debugctl();
    test_which();
    if (!off) {
        test_select();
        if (lbr->depth > 1) {
            test_records();
        }
        if (is_arch()) {
            test_arch();
        } else if (lbr->depth > 1) {
            test_tos();
        }
    }
    return report_summary();
}
