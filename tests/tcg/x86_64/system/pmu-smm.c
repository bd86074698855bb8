/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Performance counters and System Management Mode: it counts as CPL 0 unless
 * FREEZE_WHILE_SMM is set (SDM 18.18.1), and a counter's interrupt can be an
 * SMI.  And CPUID faulting, which there is none of in SMM.
 *
 * Runs on a PMU like Skylake's.  The output is the same with -icount shift=0
 * and with one-insn-per-tb=on.
 */

#include "pmu-count.h"
#include "kernel-smm.h"

enum { NMI = 2, VECTOR = 0xee };

#define LVT_SMI             0x200
#define FREEZE_WHILE_SMM    (1u << 14)
#define CAP_FREEZE          (1u << 12)
#define WIDTH_MASK          ((1ull << 48) - 1)

/* What the handler finds */
typedef struct SmmLog {
    uint32_t smis, reserved;
    uint64_t global_ctrl, debugctl, rip;
} SmmLog;

/* volatile: SMM writes it */
volatile SmmLog smm_log;

#define SMM_INSNS           16          /* of which one is a JMP, */
#define SMM_BRANCHES        1
asm(".text\n"
    ".code16\n"
    "smm_code:\n"
    "    mov $smm_log, %ebx\n"
    "    incl (%ebx)\n"
    "    mov $0x38f, %ecx\n rdmsr\n"
    "    mov %eax, 8(%ebx)\n mov %edx, 12(%ebx)\n"
    "    mov $0x1d9, %ecx\n rdmsr\n"
    "    mov %eax, 16(%ebx)\n mov %edx, 20(%ebx)\n"
    "    mov $0xaff78, %esi\n"          /* RIP in the state save map */
    "    mov (%esi), %eax\n mov %eax, 24(%ebx)\n"
    "    nop\n"
    "    jmp 1f\n"
    "1:  rsm\n"                         /* and this is the last one. */
    "smm_code_end:\n"
    ".code64\n");

/* EDX goes to the ICR, or to memory. */
CODE(code, "nop\n mov %edx, (%rdi)\n nop\n nop")
CODE(nops, ".rept 300\n nop\n .endr")
#define BEHIND_STORE    3

static uint32_t scratch;

static Counts measure(int cpl, uint32_t rows, bool smi)
{
    uint64_t where = smi ? (uintptr_t)&APIC(APIC_ICR) : (uintptr_t)&scratch;

    start_counting(rows);
    set_up(cpl ? USER_CODE64 : CODE64, (uintptr_t)code);
    regs.rdx = ICR_SELF_SMI;
    regs.rdi = where;
    run();
    return stop_counting();
}

static void test_counts(bool frozen)
{
    static const uint32_t rows[] = { EVTSEL_USR, EVTSEL_OS };
    uint64_t debugctl = frozen ? FREEZE_WHILE_SMM : 0;

    wrmsr(MSR_DEBUGCTL, debugctl);
    for (int cpl = 3; cpl >= 0; cpl -= 3) {
        for (int r = 0; r < 2; r++) {
            bool counts = r && !frozen;
            Counts without = measure(cpl, rows[r], false);
            Counts with, want = { };
            uint32_t smis = smm_log.smis;

            with = measure(cpl, rows[r], true);
            for (int i = 0; i < EVENTS; i++) {
                with.n[i] -= without.n[i];
            }
            want.n[INSNS] = counts ? SMM_INSNS : 0;
            want.n[BRANCHES] = counts ? SMM_BRANCHES : 0;
            report(smm_log.smis == smis + 1 &&
                   smm_log.rip == (uintptr_t)code + BEHIND_STORE,
                   "CPL %d, DEBUGCTL %x: the SMI comes behind the store", cpl,
                   (int)debugctl);
            report(counts_are(&with, &want),
                   "CPL %d, DEBUGCTL %x: SMM counts %d instructions %s CPL 0",
                   cpl, (int)debugctl, (int)want.n[INSNS],
                   r ? "at" : "above");
            report(smm_log.global_ctrl ==
                   (frozen ? 0 : (GLOBAL_FIXED(0) | 15)) &&
                   smm_log.debugctl == debugctl &&
                   rdmsr(MSR_DEBUGCTL) == debugctl,
                   "CPL %d, DEBUGCTL %x: GLOBAL_CTRL in SMM is %s", cpl,
                   (int)debugctl, frozen ? "0" : "that of before");
        }
    }
    wrmsr(MSR_DEBUGCTL, 0);
}

static void stop(uint32_t lvtpc)
{
    wrmsr(MSR_GLOBAL_CTRL, 0);
    for (int i = 0; i < 4; i++) {
        wrmsr(MSR_EVTSEL(i), 0);
    }
    wrmsr(MSR_GLOBAL_STATUS_RESET, rdmsr(MSR_GLOBAL_STATUS));
    APIC(APIC_LVTPC) = lvtpc;
}

/* Counter 0 overflows at instruction @left at CPL 3. */
static void start_user(uint32_t lvtpc, uint64_t left)
{
    stop(lvtpc);
    wrmsr(MSR_FIXED_CTR_CTRL, FIXED_USR | FIXED_PMI);
    wrmsr(MSR_FIXED_CTR(0), -left & WIDTH_MASK);
    wrmsr(MSR_GLOBAL_CTRL, GLOBAL_FIXED(0));
}

/* The same at CPL 0, where the code has to start it. */
static void start_kernel(uint32_t lvtpc, uint64_t left)
{
    stop(lvtpc);
    wrmsr(MSR_FIXED_CTR_CTRL, FIXED_OS | FIXED_PMI);
    wrmsr(MSR_FIXED_CTR(0), -left & WIDTH_MASK);
}

/* ESI goes to the ICR, or to memory. */
#define KERNEL(name, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm("mov $0x38f, %ecx\n mov $1, %edx\n xor %eax, %eax\n wrmsr\n" \
            insns "\n int $32"); \
    }

KERNEL(kernel_nops, "kernel_begins: .rept 300\n nop\n .endr")
KERNEL(kernel_smi, "mov %esi, (%rdi)\n kernel_behind: .rept 50\n nop\n .endr")
PLACE(kernel_begins);
PLACE(kernel_behind);

/* The PMI is an SMI. */
static void test_smi(bool frozen)
{
    uint32_t smis = smm_log.smis;
    bool user = true, kernel = true, masked;

    wrmsr(MSR_DEBUGCTL, frozen ? FREEZE_WHILE_SMM : 0);
    for (int k = 1; k < 200; k++) {
        start_user(LVT_SMI, k);
        set_up(USER_CODE64, (uintptr_t)nops);
        user &= run() == EXIT && smm_log.smis == ++smis &&
                smm_log.rip == (uintptr_t)nops + k &&
                APIC(APIC_LVTPC) == (LVT_MASKED | LVT_SMI) &&
                rdmsr(MSR_GLOBAL_STATUS) == GLOBAL_FIXED(0);
        start_kernel(LVT_SMI, k);
        set_up(CODE64, (uintptr_t)kernel_nops);
        kernel &= run() == EXIT && smm_log.smis == ++smis &&
                  smm_log.rip == (uintptr_t)kernel_begins + k - 1;
    }
    start_user(LVT_MASKED | LVT_SMI, 5);
    set_up(USER_CODE64, (uintptr_t)nops);
    masked = run() == EXIT && smm_log.smis == smis &&
             rdmsr(MSR_GLOBAL_STATUS) == GLOBAL_FIXED(0);
    stop(LVT_MASKED);
    wrmsr(MSR_DEBUGCTL, 0);
    report(user, "%s: instruction 1 to 199 at CPL 3 interrupts by an SMI",
           frozen ? "FREEZE_WHILE_SMM" : "without it");
    report(kernel, "%s: instruction 1 to 199 at CPL 0 interrupts by an SMI",
           frozen ? "FREEZE_WHILE_SMM" : "without it");
    report(masked, "%s: no SMI if LVTPC is masked",
           frozen ? "FREEZE_WHILE_SMM" : "without it");
}

/*
 * Instruction 2 raises an SMI; the next ones are SMM's, where NMIs wait for RSM
 * and nothing counts if that is asked for.
 */
static void test_overflow_in_smm(bool frozen)
{
    uint32_t lvtpcs[] = { LVT_NMI, VECTOR };
    int hidden = frozen ? 0 : SMM_INSNS;

    wrmsr(MSR_DEBUGCTL, frozen ? FREEZE_WHILE_SMM : 0);
    for (int i = 0; i < 2; i++) {
        bool ok = true;

        for (int k = 2; k < 40; k++) {
            uintptr_t rip = (uintptr_t)kernel_behind;

            start_kernel(lvtpcs[i], k);
            set_up(CODE64, (uintptr_t)kernel_smi);
            regs.rflags |= FLAG_IF;
            regs.rdi = (uintptr_t)&APIC(APIC_ICR);
            regs.rsi = ICR_SELF_SMI;
            ok &= run() == (lvtpcs[i] == LVT_NMI ? NMI : VECTOR);
            wrmsr(MSR_GLOBAL_CTRL, 0);
            rip += k > 2 + hidden ? k - 2 - hidden : 0;
            ok &= regs.rip == rip &&
                  rdmsr(MSR_GLOBAL_STATUS) == GLOBAL_FIXED(0);
            if (regs.vector == VECTOR) {
                APIC(APIC_EOI) = 0;
            }
        }
        report(ok, "%s: an %s of which SMM is the cause comes behind RSM",
               frozen ? "FREEZE_WHILE_SMM" : "without it",
               i ? "interrupt" : "NMI");
    }
    stop(LVT_MASKED);
    wrmsr(MSR_DEBUGCTL, 0);
}

/* SMM's own way to CPL 3, with the kernel's GDT and TSS; CPUID; and RSM. */
volatile uint32_t smm_vector;
uint8_t smm_stack[256] __attribute__((aligned(16)));
uint64_t smm_idt[EXIT + 1];
TableRegister smm_idtr = { sizeof(smm_idt) - 1, (uintptr_t)smm_idt };

asm(".text\n"
    ".code16\n"
    "smm_cpuid:\n"
    "    mov %cr0, %eax\n or $1, %al\n mov %eax, %cr0\n"
    "    ljmpl $0x48, $1f\n"
    "smm_cpuid_end:\n"
    ".code32\n"
    "1:  mov $0x10, %eax\n mov %eax, %ds\n mov %eax, %ss\n"
    "    mov $smm_stack + 128, %esp\n"
    "    lidt smm_idtr\n"
    "    push $0x23\n push $smm_stack + 128\n push $2\n"
    "    push $0x2b\n push $2f\n"
    "    iret\n"
    "2:  xor %eax, %eax\n cpuid\n"
    "    int $32\n"
    "smm_gp:\n"
    "    movl $13, smm_vector\n rsm\n"
    "smm_exit:\n"
    "    movl $32, smm_vector\n rsm\n"
    ".code64\n");

static uint64_t gate32(uint64_t handler)
{
    return (handler & 0xffff) | CODE32 << 16 | 0xeeull << 40 |
           (handler >> 16 & 0xffff) << 48;
}

/* CPUID faulting does not concern SMM. */
static void test_cpuid(void)
{
    uint64_t esp0 = (uintptr_t)smm_stack + sizeof(smm_stack);

    tss[1] = esp0;
    tss[2] = DATA;
    smm_idt[GP] = gate32(LABEL(smm_gp));
    smm_idt[EXIT] = gate32(LABEL(smm_exit));
    set_smi_code(LABEL(smm_cpuid), LABEL(smm_cpuid_end));
    for (int faults = 0; faults < 2; faults++) {
        wrmsr(MSR_MISC_FEATURES, faults);
        report(at_cpl(3, cpuid_reg(0, 0, 0)) == (faults ? GP : EXIT),
               "CPL 3: CPUID %s", faults ? "faults" : "does not fault");
        smm_vector = 0;
        measure(0, EVTSEL_OS, true);
        report(smm_vector == EXIT, "CPL 3 in SMM: CPUID does not fault");
    }
    wrmsr(MSR_MISC_FEATURES, 0);
}

int main(void)
{
    kernel_init();
    apic_init(LVT_MASKED);
    set_smi_code(LABEL(smm_code), LABEL(smm_code_end));
    report(rdmsr(MSR_PERF_CAPABILITIES) & CAP_FREEZE,
           "IA32_PERF_CAPABILITIES has FREEZE_WHILE_SMM");
    measure(0, EVTSEL_OS, true);
    report(smm_log.smis == 1, "SMM runs this program's handler");
    for (int frozen = 0; frozen < 2; frozen++) {
        test_counts(frozen);
        test_smi(frozen);
        test_overflow_in_smm(frozen);
    }
    test_cpuid();
    return report_summary();
}
