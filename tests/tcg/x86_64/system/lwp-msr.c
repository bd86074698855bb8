/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LWP_CFG, LWP_CBADDR, XCR0[62], CR0.TS and CPUID (chapters 3 and 4). */

#include "lwp-kernel.h"

static uint32_t supported;      /* CPUID Fn8000_001C EDX */

static unsigned write_cfg(uint64_t val)
{
    return at_cpl(0, wrmsr(MSR_LWP_CFG, val));
}

static void values(int n)
{
    while (n--) {
        lwpval(1, 2, 3);
    }
}

/* Where the last component that leaf D lists ends; with XCR0, leaves D.0. */
static uint32_t xsave_end(void)
{
    uint64_t components = (uint64_t)cpuid_reg(0xd, 0, 3) << 32 |
                          cpuid_reg(0xd, 0, 0);
    uint32_t end = 576;

    for (int i = 2; i < 64; i++) {
        uint32_t e = cpuid_reg(0xd, i, 1) + cpuid_reg(0xd, i, 0);

        if (components & (1ull << i) && e > end) {
            end = e;
        }
    }
    return end;
}

static void test_reset(void)
{
    uint32_t size = cpuid_reg(0xd, 0, 1);

    report(cpuid_reg(0x80000001, 0, 2) & (1u << 15), "LWP is supported");
    report(cpuid_reg(0xd, 0, 3) & (1u << 30), "XSAVE supports component 62");
    report(cpuid_reg(0xd, 62, 0) == 128 && cpuid_reg(0xd, 62, 1) == 832,
           "component 62 has 128 bytes at 832");
    report(cpuid_reg(0xd, 0, 2) == xsave_end() && xsave_end() >= 960,
           "the maximal size is 0x%x, which includes it", xsave_end());
    report(rdmsr(MSR_LWP_CFG) == 0 && rdmsr(MSR_LWP_CBADDR) == 0,
           "both MSRs are 0 after reset, readable while XCR0[62] = 0");
    report(cpuid_reg(0x8000001c, 0, 0) == 0 && (supported & LWP_FLAG_VAL),
           "LWP is supported but not available");
    report(size == 576, "the size enabled does not include component 62");

    for (int cpl = 0; cpl <= 3; cpl += 3) {
        report(at_cpl(cpl, llwpcb(NULL)) == UD, "CPL %d: LLWPCB is #UD", cpl);
        report(at_cpl(cpl, slwpcb()) == UD, "CPL %d: SLWPCB is #UD", cpl);
        report(at_cpl(cpl, lwpins(0, 0, 0)) == UD, "CPL %d: LWPINS is #UD",
               cpl);
        report(at_cpl(cpl, lwpval(0, 0, 0)) == UD, "CPL %d: LWPVAL is #UD",
               cpl);
    }
    report(write_cfg(LWP_FLAG_VAL) == EXIT &&
           rdmsr(MSR_LWP_CFG) == LWP_FLAG_VAL &&
           cpuid_reg(0x8000001c, 0, 0) == 0,
           "LWP_CFG does not make LWP available");
    report(at_cpl(3, xsetbv0(3 | LWP_XSTATE)) == GP, "CPL 3: XSETBV is #GP");
    report(at_cpl(0, xsetbv0(3 | LWP_XSTATE)) == EXIT &&
           xgetbv0() == (3 | LWP_XSTATE), "XSETBV sets bit 62");
    report(at_cpl(0, xsetbv0(3 | 1ull << 63)) == GP, "but not bit 63");
    report(at_cpl(0, xsetbv0(2 | LWP_XSTATE)) == GP, "nor without bit 0");
    report(cpuid_reg(0xd, 0, 1) == 960, "the size enabled includes it");
    report(cpuid_reg(0x8000001c, 0, 0) == (LWP_AVAIL | LWP_FLAG_VAL),
           "LWP is available as LWP_CFG says");
    report(at_cpl(3, slwpcb()) == EXIT && at_cpl(0, slwpcb()) == EXIT,
           "the instructions are legal now");
}

/* What the silicon had, and all that there is. */
static void test_model(void)
{
    uint32_t ebx = cpuid_reg(0x8000001c, 0, 1);
    uint32_t ecx = cpuid_reg(0x8000001c, 0, 2);
    uint32_t signature = cpuid_reg(1, 0, 0);

    if ((signature >> 8 & 15) + (signature >> 20 & 255) == 0x15) {
        report(ebx == 0x80032013 && ecx == 0x00010200 &&
               supported == 0x8000000f,
               "CPUID of Family 15h: %x %x %x", ebx, ecx, supported);
    } else {
        report(ebx == 0x80062016 && (ecx >> 9 & 0x7fff) == 0x81 &&
               (ecx & 31) >= 10 && (ecx >> 6 & 7) <= 4 &&
               (ecx & 0xf0000020) == 0xf0000020 && supported == 0x8000007f,
               "CPUID of everything: %x %x %x", ebx, ecx, supported);
    }
}

static void test_cfg(void)
{
    static const struct {
        const char *name;
        uint64_t write, read;
    } table[] = {
        { "bit 0 is ignored", 1, 0 },
        { "bits 63:48 are ignored", 0xffff000000000000, 0 },
        { "COREID and VECTOR stick", 0x0000ffff00000000, 0xffff00000000 },
        { "EDX with COREID", 0x00005a0000000003, 0x5a0000000002 },
    };
    bool sticks = true, gp = true;

    for (int i = 0; i < ARRAY_SIZE(table); i++) {
        wrmsr(MSR_LWP_CFG, 0);
        report(write_cfg(table[i].write) == EXIT &&
               rdmsr(MSR_LWP_CFG) == table[i].read,
               "LWP_CFG: %s", table[i].name);
    }
    report(write_cfg(supported) == EXIT &&
           rdmsr(MSR_LWP_CFG) == (supported & ~LWP_AVAIL),
           "LWP_CFG takes EDX as it is");
    report(cpuid_reg(0x8000001c, 0, 0) == supported, "EAX equals EDX then");
    for (int bit = 1; bit < 32; bit++) {
        uint64_t val = 1ull << bit;

        wrmsr(MSR_LWP_CFG, 0);
        if (supported & val) {
            sticks &= write_cfg(val) == EXIT && rdmsr(MSR_LWP_CFG) == val &&
                      cpuid_reg(0x8000001c, 0, 0) == (val | LWP_AVAIL);
        } else {
            wrmsr(MSR_LWP_CFG, 0x1200000000);
            gp &= write_cfg(val) == GP && regs.error == 0 &&
                  rdmsr(MSR_LWP_CFG) == 0x1200000000;
        }
    }
    report(sticks, "LWP_CFG: every supported bit sticks");
    report(gp, "LWP_CFG: every other bit is #GP and changes nothing");
    for (int n = 0; n < 2; n++) {
        uint32_t msr = MSR_LWP_CFG + n;

        report(at_cpl(3, rdmsr(msr)) == GP, "CPL 3: RDMSR 0x%x is #GP", msr);
        report(at_cpl(3, wrmsr(msr, 0)) == GP, "CPL 3: WRMSR 0x%x is #GP", msr);
    }

    lwp_make_available();
    wrmsr(MSR_LWP_CFG, rdmsr(MSR_LWP_CFG) | 0xa55aull << 32);
    start(LWP_FLAG_VAL);
    at_cpl(3, lwpins(1, 2, 3));
    report(ring[0].event == LWP_INS && ring[0].core == 0x5a,
           "a record has COREID");
    wrmsr(MSR_LWP_CFG, LWP_FLAG_VAL | 0x77ull << 32);
    at_cpl(3, values(10));
    report(ring[1].event == LWP_VAL && ring[1].core == 0x77,
           "a new COREID counts at once");
}

static void test_cbaddr(void)
{
    static const uint64_t bad[] = { 1, CB_ADDR, 1ull << 63, ~0ull };

    start(LWP_FLAG_VAL);
    at_cpl(3, lwpval(0, 0, 0));
    report(rdmsr(MSR_LWP_CBADDR) == CB_ADDR, "LWP_CBADDR while enabled");
    report(cb->event[0].counter == 9, "RDMSR does not flush");
    for (int i = 0; i < ARRAY_SIZE(bad); i++) {
        report(at_cpl(0, wrmsr(MSR_LWP_CBADDR, bad[i])) == GP &&
               rdmsr(MSR_LWP_CBADDR) == CB_ADDR,
               "LWP_CBADDR: writing 0x%lx is #GP", bad[i]);
    }
    set_pte(2, 0);
    report(at_cpl(0, wrmsr(MSR_LWP_CBADDR, 0)) == EXIT &&
           rdmsr(MSR_LWP_CBADDR) == 0 && cb->event[0].counter == 9,
           "writing 0 disables LWP without touching the LWPCB");
    report(at_cpl(3, lwpins(0, 0, 0)) == EXIT && ring[0].event == 0,
           "nothing is stored then");
    start(0);
    at_cpl(3, llwpcb(NULL));
    report(rdmsr(MSR_LWP_CBADDR) == 0, "LWP_CBADDR after LLWPCB 0");
}

/* LWP_CFG withdraws and grants events (§4.2, §7.4 step 2). */
static void test_withdraw(void)
{
    uint64_t cfg = rdmsr(MSR_LWP_CFG);

    start(LWP_FLAG_VAL);
    at_cpl(3, lwpval(0, 0, 0));
    set_pte(2, 0);
    report(write_cfg(0) == EXIT && rdmsr(MSR_LWP_CBADDR) == CB_ADDR,
           "withdrawing events neither flushes nor disables");
    set_pte(2, PTE_ALL);
    report(cpuid_reg(0x8000001c, 0, 0) == LWP_AVAIL, "CPUID follows");
    at_cpl(3, values(20));
    report(ring[0].event == 0, "LWPVAL does not count without LWP_CFG");
    at_cpl(3, lwpins(0, 0, 0));
    report(ring[0].event == LWP_INS, "LWPINS goes on without LWP_CFG");
    wrmsr(MSR_LWP_CFG, cfg);
    at_cpl(3, values(20));
    report(ring[1].event == 0, "what is granted again does not start alone");
    cb->event[0].counter = 0;
    at_cpl(3, (llwpcb(NULL), llwpcb(user_cb)));
    at_cpl(3, lwpval(0, 0, 0));
    report(ring[1].event == LWP_VAL, "but with LLWPCB");

    wrmsr(MSR_LWP_CFG, 0);
    start(LWP_FLAG_VAL);
    report(cb->flags == 0, "LLWPCB clears Flags that LWP_CFG does not have");
    wrmsr(MSR_LWP_CFG, cfg);
    start(LWP_FLAG_VAL | LWP_FLAG_INT);
    report(cb->flags == LWP_FLAG_VAL, "LLWPCB clears INT if not in LWP_CFG");
}

static void test_xcr0(void)
{
    start(LWP_FLAG_VAL);
    xsetbv0(3);
    report(rdmsr(MSR_LWP_CBADDR) == 0, "clearing XCR0[62] disables LWP");
    report(rdmsr(MSR_LWP_CFG) & LWP_FLAG_VAL, "LWP_CFG stays");
    report(cpuid_reg(0x8000001c, 0, 0) == 0 && cpuid_reg(0xd, 0, 1) == 576,
           "CPUID follows XCR0[62]");
    report(at_cpl(3, slwpcb()) == UD && at_cpl(3, lwpins(0, 0, 0)) == UD,
           "#UD again");
    xsetbv0(3 | LWP_XSTATE);
    report(rdmsr(MSR_LWP_CBADDR) == 0, "and nothing comes back");
    start(LWP_FLAG_VAL);
    xsetbv0(1 | LWP_XSTATE);
    report(rdmsr(MSR_LWP_CBADDR) == CB_ADDR,
           "other bits of XCR0 do not matter");
    xsetbv0(3 | LWP_XSTATE);
}

/* §8.2.1: XSAVE and XRSTOR obey CR0.TS, LWP does not. */
static XsaveArea area;

static void test_ts(void)
{
    start(LWP_FLAG_VAL);
    write_cr0(read_cr0() | CR0_TS);
    for (int cpl = 0; cpl <= 3; cpl += 3) {
        report(at_cpl(cpl, xsave(&area, LWP_XSTATE)) == NM,
               "CPL %d: XSAVE with CR0.TS is #NM", cpl);
        report(at_cpl(cpl, xrstor(&area, LWP_XSTATE)) == NM,
               "CPL %d: XRSTOR with CR0.TS is #NM", cpl);
    }
    report(at_cpl(3, lwpins(0, 0, 0)) == EXIT && ring[0].event == LWP_INS &&
           at_cpl(3, lwpval(0, 0, 0)) == EXIT &&
           at_cpl(3, slwpcb()) == EXIT && cb->event[0].counter == 8 &&
           at_cpl(3, llwpcb(NULL)) == EXIT && rdmsr(MSR_LWP_CBADDR) == 0,
           "the LWP instructions ignore CR0.TS");
    write_cr0(read_cr0() & ~CR0_TS);
}

int main(void)
{
    kernel_init();
    supported = cpuid_reg(0x8000001c, 0, 3);
    test_reset();
    test_model();
    test_cfg();
    test_cbaddr();
    test_withdraw();
    test_xcr0();
    test_ts();
    return report_summary();
}
