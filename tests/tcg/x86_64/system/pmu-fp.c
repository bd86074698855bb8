/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Floating-point instructions: what each of them is to the events of each
 * processor.  The output is the same with -icount shift=0 and with
 * one-insn-per-tb=on.
 */

#include <cpuid.h>
#include "pmu-kernel.h"

enum { DE = 0, NMI = 2 };

/* On what an instruction operates, and what it does, as sets */
enum {
    X87 = 1, SS = 2, SD = 4, PS = 8, PD = 16, YPS = 32, YPD = 64,
    XMM = SS | SD | PS | PD, ALL = XMM | YPS | YPD
};
enum {
    ADD = 1, MUL = 2, DIV = 4, MAC = 8, OTHER = 16, DP = 32, INT_MUL = 64,
    ANY = ADD | MUL | DIV | MAC | OTHER | DP
};

#define TIMES   10

/* RSI is memory that is there, RDI is not; x87 has numbers. */
#define FP(name, insn) \
    CODE(name, "fninit\n fld1\n fld1\n fld1\n mov $2, %eax\n xor %edx, %edx\n" \
         ".rept 10\n" insn "\n .endr")

FP(nothing, "")
FP(addss, "addss (%rsi), %xmm0")
FP(addsd, "addsd %xmm1, %xmm0")
FP(addps, "addps %xmm1, %xmm0")
FP(addpd, "addpd (%rsi), %xmm0")
FP(vaddss, "vaddss %xmm1, %xmm1, %xmm0")
FP(vaddps, "vaddps %ymm1, %ymm1, %ymm0")
FP(vaddpd, "vaddpd (%rsi), %ymm1, %ymm0")
FP(vaddps_xmm, "vaddps %xmm1, %xmm1, %xmm0")
FP(subsd, "subsd %xmm1, %xmm0")
FP(vsubps, "vsubps %ymm1, %ymm1, %ymm0")
FP(mulss, "mulss %xmm1, %xmm0")
FP(mulsd, "mulsd (%rsi), %xmm0")
FP(mulps, "mulps %xmm1, %xmm0")
FP(mulpd, "mulpd %xmm1, %xmm0")
FP(vmulpd, "vmulpd %ymm1, %ymm1, %ymm0")
FP(divss, "divss %xmm1, %xmm0")
FP(divpd, "divpd %xmm1, %xmm0")
FP(vdivps, "vdivps %ymm1, %ymm1, %ymm0")
FP(sqrtss, "sqrtss %xmm1, %xmm0")
FP(sqrtsd, "sqrtsd %xmm1, %xmm0")
FP(sqrtps, "sqrtps %xmm1, %xmm0")
FP(vsqrtpd, "vsqrtpd %ymm1, %ymm0")
FP(rcpss, "rcpss %xmm1, %xmm0")
FP(rcpps, "rcpps %xmm1, %xmm0")
FP(rsqrtss, "rsqrtss %xmm1, %xmm0")
FP(vrsqrtps, "vrsqrtps %ymm1, %ymm0")
FP(minss, "minss %xmm1, %xmm0")
FP(maxpd, "maxpd %xmm1, %xmm0")
FP(vmaxps, "vmaxps %ymm1, %ymm1, %ymm0")
FP(haddps, "haddps %xmm1, %xmm0")
FP(haddpd, "haddpd %xmm1, %xmm0")
FP(vhsubps, "vhsubps %ymm1, %ymm1, %ymm0")
FP(addsubps, "addsubps %xmm1, %xmm0")
FP(vaddsubpd, "vaddsubpd %ymm1, %ymm1, %ymm0")
FP(dpps, "dpps $0xff, %xmm1, %xmm0")
FP(rex_dpps, "rex.w dpps $0xff, %xmm1, %xmm0")
FP(dppd, "dppd $0xff, %xmm1, %xmm0")
FP(vdpps, "vdpps $0xff, %ymm1, %ymm1, %ymm0")
FP(fmass, "vfmadd132ss %xmm1, %xmm1, %xmm0")
FP(fmasd, "vfnmsub231sd (%rsi), %xmm1, %xmm0")
FP(fmaps, "vfmadd213ps %xmm1, %xmm1, %xmm0")
FP(fmapd, "vfmsub231pd %xmm1, %xmm1, %xmm0")
FP(fmaps_ymm, "vfmaddsub132ps %ymm1, %ymm1, %ymm0")
FP(fmapd_ymm, "vfnmadd213pd %ymm1, %ymm1, %ymm0")
FP(moves, "movaps %xmm1, %xmm0\n movss (%rsi), %xmm0\n vmovups (%rsi), %ymm0\n"
   "andps %xmm1, %xmm0\n shufps $1, %xmm1, %xmm0\n cvtss2sd %xmm1, %xmm0\n"
   "cvtsi2sd %eax, %xmm0\n cvtps2dq %xmm1, %xmm0\n cmpps $1, %xmm1, %xmm0\n"
   "ucomiss %xmm1, %xmm0\n roundps $1, %xmm1, %xmm0\n"
   "blendps $1, %xmm1, %xmm0\n paddd %xmm1, %xmm0\n"
   "vpaddd %ymm1, %ymm1, %ymm0\n pmuludq %xmm1, %xmm0")
FP(fadd, "fadds (%rsi)")
FP(fsubr, "fsubr %st(1), %st")
FP(faddp, "fld %st(0)\n faddp")
FP(fiadd, "fiaddl (%rsi)")
FP(fmul, "fmull (%rsi)")
FP(fmul_to, "fmul %st, %st(1)")
FP(fdivrp, "fld %st(0)\n fdivrp")
FP(fidivs, "fidivs (%rsi)")
FP(fsqrt, "fsqrt")
FP(fcom, "fcom %st(1)")
FP(fcompp, "fld %st(0)\n fld %st(0)\n fcompp")
FP(fucom, "fucom %st(1)")
FP(fucompp, "fld %st(0)\n fld %st(0)\n fucompp")
FP(fcomi, "fcomi %st(1), %st")
FP(fucomip, "fld %st(0)\n fucomip %st(1), %st")
FP(fprem, "fprem")
FP(fsin, "fsin")
FP(f2xm1, "f2xm1")
FP(fmoves, "fld %st(0)\n fstp %st(0)\n flds (%rsi)\n fstpl (%rsi)\n fchs\n"
   "fabs\n fxam\n fxch\n fcmovb %st(1), %st\n fildl (%rsi)\n fistpl (%rsi)\n"
   "frndint\n fscale\n fldpi\n fstp %st(0)\n fnstcw (%rsi)\n fldcw (%rsi)\n"
   "fnstsw %ax\n mov $2, %eax\n fincstp\n fdecstp\n fnop\n movl $0, (%rsi)")
FP(imul, "imul %ecx, %edx")
FP(imul_by, "imul $3, 8(%rsi), %edx")
FP(mul, "mul %cl")
FP(div_insn, "mov $2, %ax\n mov $1, %cl\n div %cl")

/* Of SSE 8, of MMX 3, of x87 2, of none of these 1 */
FP(sets, "movaps %xmm1, %xmm0\n movd %eax, %xmm2\n cvttss2si (%rsi), %edx\n"
   "addps %xmm1, %xmm0\n vpaddd %ymm1, %ymm1, %ymm0\n movmskps %xmm0, %edx\n"
   "ucomiss %xmm1, %xmm0\n movups %xmm0, (%rsi)\n movd %eax, %mm0\n"
   "paddb %mm1, %mm0\n movq %mm0, (%rsi)\n fnop\n fstps (%rsi)\n"
   "movl $0, (%rsi)")

static const struct {
    const char *name;
    void (*fn)(void);
    uint8_t width, kind;
} codes[] = {
    { "nothing", nothing, 0, 0 },
    { "ADDSS", addss, SS, ADD }, { "ADDSD", addsd, SD, ADD },
    { "ADDPS", addps, PS, ADD }, { "ADDPD", addpd, PD, ADD },
    { "VADDSS", vaddss, SS, ADD }, { "VADDPS, 256 bits", vaddps, YPS, ADD },
    { "VADDPD, 256 bits", vaddpd, YPD, ADD },
    { "VADDPS, 128 bits", vaddps_xmm, PS, ADD }, { "SUBSD", subsd, SD, ADD },
    { "VSUBPS", vsubps, YPS, ADD }, { "MULSS", mulss, SS, MUL },
    { "MULSD", mulsd, SD, MUL }, { "MULPS", mulps, PS, MUL },
    { "MULPD", mulpd, PD, MUL }, { "VMULPD", vmulpd, YPD, MUL },
    { "DIVSS", divss, SS, DIV }, { "DIVPD", divpd, PD, DIV },
    { "VDIVPS", vdivps, YPS, DIV }, { "SQRTSS", sqrtss, SS, DIV },
    { "SQRTSD", sqrtsd, SD, DIV }, { "SQRTPS", sqrtps, PS, DIV },
    { "VSQRTPD", vsqrtpd, YPD, DIV }, { "RCPSS", rcpss, SS, OTHER },
    { "RCPPS", rcpps, PS, OTHER }, { "RSQRTSS", rsqrtss, SS, OTHER },
    { "VRSQRTPS", vrsqrtps, YPS, OTHER }, { "MINSS", minss, SS, OTHER },
    { "MAXPD", maxpd, PD, OTHER }, { "VMAXPS", vmaxps, YPS, OTHER },
    { "HADDPS", haddps, PS, ADD }, { "HADDPD", haddpd, PD, ADD },
    { "VHSUBPS", vhsubps, YPS, ADD }, { "ADDSUBPS", addsubps, PS, ADD },
    { "VADDSUBPD", vaddsubpd, YPD, ADD }, { "DPPS", dpps, PS, DP },
    { "DPPS with REX.W", rex_dpps, PS, DP }, { "DPPD", dppd, PD, DP },
    { "VDPPS", vdpps, YPS, DP }, { "VFMADD132SS", fmass, SS, MAC },
    { "VFNMSUB231SD", fmasd, SD, MAC }, { "VFMADD213PS", fmaps, PS, MAC },
    { "VFMSUB231PD", fmapd, PD, MAC },
    { "VFMADDSUB132PS", fmaps_ymm, YPS, MAC },
    { "VFNMADD213PD", fmapd_ymm, YPD, MAC }, { "moves and so on", moves, 0, 0 },
    { "FADD", fadd, X87, ADD }, { "FSUBR", fsubr, X87, ADD },
    { "FADDP", faddp, X87, ADD }, { "FIADD", fiadd, X87, ADD },
    { "FMUL", fmul, X87, MUL }, { "FMUL ST(1)", fmul_to, X87, MUL },
    { "FDIVRP", fdivrp, X87, DIV }, { "FIDIV", fidivs, X87, DIV },
    { "FSQRT", fsqrt, X87, DIV }, { "FCOM", fcom, X87, OTHER },
    { "FCOMPP", fcompp, X87, OTHER }, { "FUCOM", fucom, X87, OTHER },
    { "FUCOMPP", fucompp, X87, OTHER }, { "FCOMI", fcomi, X87, OTHER },
    { "FUCOMIP", fucomip, X87, OTHER }, { "FPREM", fprem, X87, OTHER },
    { "FSIN", fsin, X87, OTHER }, { "F2XM1", f2xm1, X87, OTHER },
    { "x87's moves and so on", fmoves, 0, 0 },
    { "IMUL", imul, X87, INT_MUL },
    { "IMUL by a constant", imul_by, X87, INT_MUL },
    { "MUL", mul, X87, INT_MUL }, { "DIV", div_insn, X87, INT_MUL },
};

/* An event that counts once, or twice for some kinds, or for each element */
typedef struct Event {
    uint16_t code;              /* unit mask first */
    uint8_t width, kind, twice;
    bool elements;
} Event;

static const Event broadwell[] = {
    { 0x01c7, SD, ANY, MAC | DP }, { 0x02c7, SS, ANY, MAC | DP },
    { 0x04c7, PD, ANY, MAC | DP }, { 0x08c7, PS, ANY, MAC | DP },
    { 0x10c7, YPD, ANY, MAC | DP }, { 0x20c7, YPS, ANY, MAC | DP },
    { 0x15c7, SD | PD | YPD, ANY, MAC | DP }, { }
}, sandy_bridge[] = {
    { 0x0110, X87, ANY | INT_MUL }, { 0x1010, PD, ANY }, { 0x2010, SS, ANY },
    { 0x4010, PS, ANY }, { 0x8010, SD, ANY }, { 0x0111, YPS, ANY },
    { 0x0211, YPD, ANY }, { }
}, nehalem[] = {
    { 0x0110, X87, ANY | INT_MUL }, { 0x0410, XMM, ANY },
    { 0x1010, PS | PD, ANY }, { 0x2010, SS | SD, ANY },
    { 0x4010, SS | PS, ANY }, { 0x8010, SD | PD, ANY }, { }
}, core2[] = {
    { 0x0010, X87 | XMM, ANY }, { 0x01ca, PS, ANY }, { 0x02ca, SS, ANY },
    { 0x04ca, PD, ANY }, { 0x08ca, SD, ANY }, { }
}, p6[] = {
    { 0x00c1, X87, ANY }, { 0x0010, X87, ANY | INT_MUL }, { }
}, zen[] = {
    { 0x0103, SS | PS | YPS, ADD | DP, 0, true },
    { 0x0203, SS | PS | YPS, MUL | DP, 0, true },
    { 0x0403, SS | PS | YPS, DIV, 0, true },
    { 0x0803, SS | PS | YPS, MAC, MAC, true },
    { 0x1003, SD | PD | YPD, ADD | DP, 0, true },
    { 0x2003, SD | PD | YPD, MUL | DP, 0, true },
    { 0x4003, SD | PD | YPD, DIV, 0, true },
    { 0x8003, SD | PD | YPD, MAC, MAC, true },
    { 0xff03, ALL, ANY & ~OTHER, MAC | DP, true }, { 0x0102, X87, ADD },
    { 0x0202, X87, MUL }, { 0x0402, X87, DIV }, { }
}, zen2[] = {
    { 0x0103, ALL, ADD | DP, 0, true }, { 0x0203, ALL, MUL | DP, 0, true },
    { 0x0403, ALL, DIV, 0, true }, { 0x0803, ALL, MAC, MAC, true },
    { 0xff03, ALL, ANY & ~OTHER, MAC | DP, true },
    { 0x0702, X87, ADD | MUL | DIV }, { }
};

/* What faults has not retired. */
CODE(fault_load, "addps %xmm1, %xmm0\n addps (%rdi), %xmm0\n"
     "addps %xmm0, %xmm0")
CODE(fault_x87, "fninit\n fld1\n fadd %st(0), %st\n fadds (%rdi)")
CODE(fault_div, "xor %ecx, %ecx\n imul %ecx, %ecx\n div %ecx\n"
     "imul %ecx, %ecx")

static const struct Processor {
    const char *name;
    bool amd;
    uint8_t family, model;
    const Event *events;
    uint16_t fault_event;       /* of which @fault counts one */
    void (*fault)(void);
} processors[] = {
    { "P6", false, 6, 3, p6, 0x0010, fault_div },
    { "Core 2", false, 6, 15, core2, 0x01ca, fault_load },
    { "Nehalem", false, 6, 26, nehalem, 0x0110, fault_div },
    { "Sandy Bridge", false, 6, 42, sandy_bridge, 0x0110, fault_div },
    { "Skylake", false, 6, 94, broadwell, 0x08c7, fault_load },
    { "Zen", true, 23, 1, zen, 0x0102, fault_x87 },
    { "Zen 2", true, 23, 49, zen2, 0x0702, fault_x87 },
};

static uint32_t evtsel, pmc;
static bool amd;
static uint8_t data[64] __attribute__((aligned(64)));

static const struct Processor *find_processor(void)
{
    uint32_t eax, ebx, ecx, edx, family, model;

    __cpuid(0, eax, ebx, ecx, edx);
    amd = ebx == signature_AMD_ebx;
    evtsel = amd ? MSR_K7_EVTSEL(0) : MSR_EVTSEL(0);
    pmc = amd ? MSR_K7_PERFCTR(0) : MSR_PMC(0);
    __cpuid(1, eax, ebx, ecx, edx);
    family = (eax >> 8 & 15) + (eax >> 20 & 0xff);
    model = (eax >> 4 & 15) | (eax >> 12 & 0xf0);
    for (int i = 0; i < ARRAY_SIZE(processors); i++) {
        const struct Processor *p = &processors[i];

        if (p->amd == amd && p->family == family && p->model == model) {
            return p;
        }
    }
    return NULL;
}

static int count(const Event *e, uint8_t width, uint8_t kind)
{
    int n = e->twice & kind ? 2 : 1;

    if (!(e->width & width) || !(e->kind & kind)) {
        return 0;
    }
    return !e->elements ? n :
           n * (width & (SS | SD) ? 1 : width & PD ? 2 : width & YPS ? 8 : 4);
}

static void set_fp(int cpl, void (*fn)(void))
{
    set_up(cpl ? USER_CODE64 : CODE64, (uintptr_t)fn);
    regs.rsi = (uintptr_t)data;
    regs.rdi = WINDOW + 2 * PAGE;
    regs.rcx = 1;
}

static uint64_t measure(uint32_t sel, int cpl, void (*fn)(void))
{
    wrmsr(evtsel, 0);
    wrmsr(pmc, 0);
    set_fp(cpl, fn);
    wrmsr(evtsel, sel | EVTSEL_EN | (cpl ? EVTSEL_USR : EVTSEL_OS));
    run();
    wrmsr(evtsel, 0);
    return rdmsr(pmc);
}

static void test_codes(const Event *events)
{
    for (int i = 0; i < ARRAY_SIZE(codes); i++) {
        bool ok = true;

        for (const Event *e = events; e->code; e++) {
            int want = TIMES * count(e, codes[i].width, codes[i].kind);

            for (int cpl = 0; cpl <= 3; cpl += 3) {
                uint64_t n = measure(e->code, cpl, codes[i].fn);

                /* What else runs at CPL 0 multiplies. */
                if (!cpl && (e->kind & INT_MUL)) {
                    n -= measure(e->code, cpl, nothing);
                }
                if (n != want) {
                    test_printf("  event %x: %ld for %d\n", e->code, n, want);
                    ok = false;
                }
            }
        }
        report(ok, "%s", codes[i].name);
    }
}

/* AMD's event of all instructions of these sets; "nothing" has 4 of x87. */
static void test_sets(void)
{
    report(measure(0x01cb, 3, sets) == 4 + 2 * TIMES &&
           measure(0x02cb, 3, sets) == 3 * TIMES &&
           measure(0x04cb, 3, sets) == 8 * TIMES &&
           measure(0x07cb, 3, sets) == 4 + 13 * TIMES &&
           measure(0x07cb, 3, nothing) == 4,
           "instructions of x87, MMX and SSE");
}

/* CMASK, INV and edge detection: what an instruction adds is in one clock. */
static void test_cmask(void)
{
    report(measure(0x08c7 | EVTSEL_CMASK(1), 3, fmaps) == TIMES &&
           measure(0x08c7 | EVTSEL_CMASK(2), 3, fmaps) == TIMES &&
           measure(0x08c7 | EVTSEL_CMASK(3), 3, fmaps) == 0 &&
           measure(0x08c7 | EVTSEL_CMASK(2), 3, addps) == 0,
           "an FMA counts twice in a clock");
    /* All but FNINIT to XOR, INT and itself have an instruction. */
    report(measure(0x08c7 | EVTSEL_CMASK(2) | EVTSEL_INV, 3, fmaps) == 7 &&
           measure(0x08c7 | EVTSEL_CMASK(3) | EVTSEL_INV, 3, fmaps) ==
           7 + TIMES, "other clocks are others");
}

static void test_fault(const struct Processor *p)
{
    uint64_t n;

    set_pte(2, 0);
    n = measure(p->fault_event, 3, p->fault);
    report(n == 1 && regs.vector == (p->fault == fault_div ? DE : PF),
           "what faults does not count");
    set_pte(2, PTE_ALL);
}

/* The interrupt comes behind the instruction that overflows the counter. */
CODE(row, ".rept 100\n vfmadd213ps %ymm1, %ymm1, %ymm0\n .endr")
CODE(loop, "mov $10000, %ecx\n 1: mulpd %xmm1, %xmm0\n"
     "loop_behind: dec %ecx\n jnz 1b")
PLACE(loop_behind);

static void interrupt_after(uint32_t sel, uint64_t period, void (*fn)(void))
{
    APIC(APIC_LVTPC) = LVT_NMI;
    wrmsr(evtsel, 0);
    wrmsr(pmc, -period);
    set_fp(3, fn);
    wrmsr(evtsel, sel | EVTSEL_INT | EVTSEL_USR | EVTSEL_EN);
    run();
    wrmsr(evtsel, 0);
    if (!amd) {
        wrmsr(MSR_GLOBAL_STATUS_RESET, rdmsr(MSR_GLOBAL_STATUS));
    }
}

static void test_interrupts(uint32_t sel, uint32_t once, uint32_t each)
{
    bool ok = true;

    for (int period = 1; period <= 99 * (int)each; period++) {
        int insns = (period + each - 1) / each;

        interrupt_after(sel, period, row);
        ok &= regs.vector == NMI &&
              regs.rip == (uintptr_t)row + 5 * (uintptr_t)insns &&
              rdmsr(pmc) == insns * each - period;
    }
    report(ok, "an FMA interrupts behind it");
    interrupt_after(once, 5000, loop);
    report(regs.vector == NMI && regs.rip == (uintptr_t)loop_behind &&
           regs.rcx == 10000 - 5000 / (amd ? 2 : 1) + 1 && rdmsr(pmc) == 0,
           "instruction 5000 of a loop interrupts behind it");
}

int main(void)
{
    const struct Processor *p = find_processor();

    kernel_init();
    apic_init(LVT_NMI);
    xsetbv0(7);
    report(p, "this processor is known%s%s", p ? ": " : "", p ? p->name : "");
    if (!p) {
        return report_summary();
    }
    if (!amd && cpuid_reg(0xa, 0, 0)) {
        wrmsr(MSR_GLOBAL_CTRL, 1);
    }
    test_codes(p->events);
    test_fault(p);
    if (amd) {
        test_sets();
    }
    if (p->events == broadwell) {
        test_cmask();
        test_interrupts(0x20c7, 0x04c7, 2);
    } else if (p->events == zen2) {
        test_interrupts(0x0803, 0x0203, 16);
    }
    return report_summary();
}
