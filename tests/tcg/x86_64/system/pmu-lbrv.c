/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The last branch in guests of a hypervisor, which is this program: with LBR
 * virtualization (APM 15.23) guest and hypervisor have registers of their own,
 * and without it they share them.  VMRUN, #VMEXIT, STGI, RDMSR and WRMSR are
 * not branches.  Runs on two processors.
 */

#include "pmu-kernel.h"
#include "kernel-ap64.h"
#include "kernel-svm.h"

/* The last branch, and the one before the last exception, are 1DBH to 1DEH. */
enum { CTL, FROM, TO, EXCP_FROM, EXCP_TO, NR_LBR };
enum { LBR = 1, BTF = 2 };
enum { DB = 1 };
#define FLAG_TF         (1u << 8)
#define CPUID_LBRV      (1u << 1)

static Vmcb vmcb __attribute__((aligned(PAGE)));
static uint8_t host_save[PAGE] __attribute__((aligned(PAGE)));
static uint8_t guest_stack[1024] __attribute__((aligned(16)));
uint64_t host_lbr[NR_LBR];      /* as they are behind #VMEXIT */
uint64_t guest_lbr[NR_LBR];     /* and in the guest */
uint64_t guest_last[NR_LBR];    /* at its end */

#define SET_CTL(val) \
    "mov $0x1d9, %ecx\n mov " val ", %eax\n xor %edx, %edx\n wrmsr\n"
#define GET(msr, where) \
    "mov $" msr ", %ecx\n rdmsr\n" \
    "mov %eax, " where "(%rip)\n mov %edx, 4 + " where "(%rip)\n"
#define GET_ALL(where) \
    GET("0x1d9", where) GET("0x1db", where " + 8") \
    GET("0x1dc", where " + 16") GET("0x1dd", where " + 24") \
    GET("0x1de", where " + 32")
#define BRANCH(name) \
    #name "_from: jmp " #name "_to\n nop\n" #name "_to: nop\n"
#define GUEST(name, insns) \
    static void __attribute__((naked)) name(void) \
    { \
        asm(insns "\n vmmcall"); \
    }

PLACE(host_from);
PLACE(host_to);
PLACE(first_from);
PLACE(first_to);
PLACE(second_from);
PLACE(second_to);
PLACE(third_from);
PLACE(third_to);
PLACE(fourth_from);
PLACE(fourth_to);
PLACE(ud_at);
PLACE(stepped_to);

/* A branch of the hypervisor with @ctl; VMRUN; and what there is then */
static void __attribute__((naked, noinline)) enter(uint64_t ctl, Vmcb *v)
{
    asm("push %rbx\n push %rbp\n"
        "push %r12\n push %r13\n push %r14\n push %r15\n"
        SET_CTL("$1")
        BRANCH(host)
        SET_CTL("%edi")
        "mov %rsi, %rax\n"
        "vmrun %rax\n"
        "stgi\n"
        GET_ALL("host_lbr")
        SET_CTL("$0")
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n"
        "pop %rbp\n pop %rbx\n"
        "ret\n");
}

GUEST(look, GET_ALL("guest_lbr"))
GUEST(branch, SET_CTL("$1") BRANCH(first) GET_ALL("guest_lbr"))
GUEST(go_on, BRANCH(second) GET_ALL("guest_lbr"))
GUEST(switch_off, SET_CTL("$0"))
GUEST(branch_off, BRANCH(third) SET_CTL("$0") GET_ALL("guest_last"))
GUEST(off_on_off, "jmp 1f\n 1:" GET_ALL("guest_lbr") SET_CTL("$1")
      BRANCH(fourth) SET_CTL("$0") GET_ALL("guest_last"))
GUEST(fault, "jmp ud_at\n nop\n ud_at: ud2")
GUEST(step, "nop\n nop\n jmp stepped_to\n ud2\n stepped_to: nop")

/* The first record of LbrExtV2, which was mispredicted, is the last branch. */
#define MISPREDICTED    (1ull << 63)
#define WRITE(msr, low) \
    "mov $" msr ", %ecx\n mov $" low ", %eax\n mov $0x80000000, %edx\n wrmsr\n"
GUEST(set_record, WRITE("0xc0010300", "0x1234") WRITE("0xc0010301", "0x5678"))
GUEST(get_record, GET("0xc0010300", "guest_lbr")
      GET("0xc0010301", "guest_lbr + 8"))

/* The guest's handler of #UD */
GUEST(tell, "")

static void set_guest(bool virt, void (*code)(void))
{
    set_vmcb(&vmcb, 0, code, (uintptr_t)guest_stack + sizeof(guest_stack));
    vmcb.virt_ext = virt ? VIRT_LBR : 0;
    for (int i = FROM; i < NR_LBR; i++) {
        vmcb.lbr[i] = 0x1000 * i;
    }
    vmcb.lbr[CTL] = 0;
    memset(guest_lbr, 0xff, sizeof(guest_lbr));
    memset(guest_last, 0xff, sizeof(guest_last));
    memset(host_lbr, 0xff, sizeof(host_lbr));
}

static bool is_branch(const uint64_t lbr[NR_LBR], uint64_t ctl,
                      void (*from)(void), void (*to)(void))
{
    return lbr[CTL] == ctl && lbr[FROM] == (uintptr_t)from &&
           lbr[TO] == (uintptr_t)to;
}

static bool is_made_up(const uint64_t lbr[NR_LBR], uint64_t ctl)
{
    for (int i = FROM; i < NR_LBR; i++) {
        if (lbr[i] != 0x1000 * i) {
            return false;
        }
    }
    return lbr[CTL] == ctl;
}

static bool exits(uint64_t ctl, uint64_t exit)
{
    enter(ctl, &vmcb);
    return vmcb.exit == exit;
}

static void test_host(void)
{
    wrmsr(MSR_DEBUGCTL, LBR);
    report(rdmsr(MSR_DEBUGCTL) == LBR, "LBR reads 1 if it is set");
    wrmsr(MSR_DEBUGCTL, 0);
    report(rdmsr(MSR_DEBUGCTL) == 0, "LBR reads 0 if it is not");
}

/* Nothing is switched. */
static void test_shared(const char *how)
{
    bool ok;

    set_guest(false, look);
    ok = exits(LBR, EXIT_VMMCALL);
    report(ok && is_branch(guest_lbr, LBR, host_from, host_to),
           "%s: the guest sees the hypervisor's last branch", how);
    report(ok && is_branch(host_lbr, LBR, host_from, host_to),
           "%s: VMRUN and #VMEXIT are not branches", how);
    report(is_made_up(vmcb.lbr, 0), "%s: the VMCB's are not touched", how);

    set_guest(false, branch);
    ok = exits(0, EXIT_VMMCALL);
    report(ok && is_branch(guest_lbr, LBR, first_from, first_to),
           "%s: the guest sees its own", how);
    report(ok && is_branch(host_lbr, LBR, first_from, first_to),
           "%s: so does the hypervisor", how);

    set_guest(false, switch_off);
    ok = exits(LBR, EXIT_VMMCALL);
    report(ok && is_branch(host_lbr, 0, host_from, host_to),
           "%s: the guest has switched it off", how);

    /* What kvm-unit-tests' svm_lbrv_test1 and 2 look at */
    set_guest(false, branch_off);
    ok = exits(LBR, EXIT_VMMCALL);
    report(ok && is_branch(guest_last, 0, third_from, third_to) &&
           is_branch(host_lbr, 0, third_from, third_to),
           "%s: it was on, and the guest's branch is the last one", how);
    set_guest(false, off_on_off);
    ok = exits(0, EXIT_VMMCALL);
    report(ok && is_branch(guest_lbr, 0, host_from, host_to),
           "%s: it was off: the guest's branch is not recorded", how);
    report(ok && is_branch(guest_last, 0, fourth_from, fourth_to) &&
           is_branch(host_lbr, 0, fourth_from, fourth_to),
           "%s: one with LBR on is, and stays", how);
}

static void test_virtual(void)
{
    uint64_t excp_from, excp_to;
    bool ok;

    /* Something that is not 0 */
    wrmsr(MSR_DEBUGCTL, LBR);
    at_cpl(0, asm volatile("ud2"));
    wrmsr(MSR_DEBUGCTL, 0);
    excp_from = rdmsr(0x1dd);
    excp_to = rdmsr(0x1de);
    report(excp_from && excp_to, "there is a branch before an exception");

    for (int ctl = 0; ctl < 2; ctl++) {
        set_guest(true, look);
        ok = exits(ctl, EXIT_VMMCALL);
        report(ok && is_made_up(guest_lbr, 0),
               "hypervisor %d: the guest sees what is in the VMCB", ctl);
        report(ok && is_made_up(vmcb.lbr, 0),
               "hypervisor %d: it is there afterwards", ctl);
        report(ok && is_branch(host_lbr, ctl, host_from, host_to) &&
               host_lbr[EXCP_FROM] == excp_from &&
               host_lbr[EXCP_TO] == excp_to,
               "hypervisor %d: its own are as they were", ctl);

        set_guest(true, branch);
        ok = exits(ctl, EXIT_VMMCALL);
        report(ok && is_branch(guest_lbr, LBR, first_from, first_to),
               "hypervisor %d: the guest sees its own branch", ctl);
        report(ok && is_branch(vmcb.lbr, LBR, first_from, first_to),
               "hypervisor %d: it is in the VMCB", ctl);
        report(ok && is_branch(host_lbr, ctl, host_from, host_to),
               "hypervisor %d: but not in its registers", ctl);

        /* The same guest, which has it switched on */
        vmcb.rip = (uintptr_t)go_on;
        ok = exits(ctl, EXIT_VMMCALL);
        report(ok && is_branch(guest_lbr, LBR, second_from, second_to),
               "hypervisor %d: the guest goes on with LBR", ctl);
        report(ok && is_branch(host_lbr, ctl, host_from, host_to),
               "hypervisor %d: its own are as they were", ctl);

        set_guest(true, switch_off);
        vmcb.lbr[CTL] = LBR;
        ok = exits(ctl, EXIT_VMMCALL);
        report(ok && is_made_up(vmcb.lbr, 0) &&
               is_branch(host_lbr, ctl, host_from, host_to),
               "hypervisor %d: the guest has switched off its own", ctl);

        set_guest(true, branch_off);
        vmcb.lbr[CTL] = LBR;
        ok = exits(ctl, EXIT_VMMCALL);
        report(ok && is_branch(guest_last, 0, third_from, third_to) &&
               is_branch(vmcb.lbr, 0, third_from, third_to) &&
               is_branch(host_lbr, ctl, host_from, host_to),
               "hypervisor %d: the guest's last branch is its own", ctl);
        set_guest(true, off_on_off);
        ok = exits(ctl, EXIT_VMMCALL);
        report(ok && is_made_up(guest_lbr, 0) &&
               is_branch(guest_last, 0, fourth_from, fourth_to) &&
               is_branch(host_lbr, ctl, host_from, host_to),
               "hypervisor %d: it was off: the guest's is not recorded", ctl);

        set_handler(UD, tell);
        set_guest(true, fault);
        vmcb.lbr[CTL] = LBR;
        ok = exits(ctl, EXIT_VMMCALL);
        reset_handler(UD);
        report(ok && is_branch(vmcb.lbr, LBR, ud_at, tell) &&
               vmcb.lbr[EXCP_TO] == (uintptr_t)ud_at,
               "hypervisor %d: an exception in the guest", ctl);
        report(host_lbr[EXCP_FROM] == excp_from &&
               host_lbr[EXCP_TO] == excp_to,
               "hypervisor %d: that is not its own", ctl);

        set_guest(true, fault);
        intercept_exit(&vmcb, EXIT_EXCEPTION + UD, true);
        vmcb.lbr[CTL] = LBR;
        ok = exits(ctl, EXIT_EXCEPTION + UD);
        report(ok && vmcb.lbr[TO] == (uintptr_t)ud_at &&
               vmcb.lbr[EXCP_TO] == 0x1000 * EXCP_TO,
               "hypervisor %d: an exception that exits is none", ctl);

        set_guest(true, look);
        vmcb.asid = 0;
        vmcb.lbr[CTL] = 1ull << 32;     /* a bit that it does not have */
        ok = exits(ctl, -1ull);
        report(ok && is_made_up(vmcb.lbr, 1ull << 32) &&
               is_branch(host_lbr, ctl, host_from, host_to),
               "hypervisor %d: VMRUN fails, and nothing changes", ctl);
        vmcb.asid = 1;

        set_guest(true, step);
        intercept_exit(&vmcb, EXIT_EXCEPTION + DB, true);
        vmcb.lbr[CTL] = BTF;
        vmcb.rflags |= FLAG_TF;
        ok = exits(ctl, EXIT_EXCEPTION + DB);
        report(ok && vmcb.rip == (uintptr_t)stepped_to &&
               is_branch(host_lbr, ctl, host_from, host_to),
               "hypervisor %d: the guest is stepped by branches", ctl);
        vmcb.rflags &= ~(uint64_t)FLAG_TF;
    }

    if (cpuid_reg(0x80000000, 0, 0) >= 0x80000022 &&
        (cpuid_reg(0x80000022, 0, 0) & 2)) {
        set_guest(true, set_record);
        ok = exits(0, EXIT_VMMCALL);
        ok &= vmcb.lbr[FROM] == (0x1234 | MISPREDICTED);
        vmcb.rip = (uintptr_t)get_record;
        ok &= exits(0, EXIT_VMMCALL);
        report(ok && guest_lbr[0] == (0x1234 | MISPREDICTED) &&
               guest_lbr[1] == (0x5678 | 1ull << 63),
               "the guest's last branch was mispredicted");
    }

    /* Bits that DbgCtl does not have */
    set_guest(true, look);
    vmcb.lbr[CTL] = ~0ull;
    vmcb.lbr[CTL] &= ~(uint64_t)(LBR | BTF);
    ok = exits(0, EXIT_VMMCALL);
    wrmsr(MSR_DEBUGCTL, ~3ull);
    report(ok && guest_lbr[CTL] == rdmsr(MSR_DEBUGCTL),
           "the guest's DbgCtl has the bits that there are");
    wrmsr(MSR_DEBUGCTL, 0);
}

static uint8_t ap_stack[4096] __attribute__((aligned(16)));
static bool ap_stop;

/* The other processor writes to the VMCB what VMRUN would if it succeeded. */
void ap_main(void)
{
    __atomic_add_fetch(&ap_starts, 1, __ATOMIC_ACQ_REL);
    while (!__atomic_load_n(&ap_stop, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&vmcb.exit, EXIT_VMMCALL, __ATOMIC_RELAXED);
    }
    for (;;) {
        asm volatile("hlt");
    }
}

static void test_written(bool virt)
{
    enum { ROUNDS = 2000 };
    static Vmcb before;
    bool ok = true;

    start_ap64(1, ap_stack + sizeof(ap_stack));
    for (int i = 0; i < ROUNDS; i++) {
        set_guest(virt, look);
        vmcb.asid = 0;
        before = vmcb;
        enter(0, &vmcb);
        ok &= same(&before.es, &vmcb.es, PAGE - offsetof(Vmcb, es));
    }
    __atomic_store_n(&ap_stop, true, __ATOMIC_RELEASE);
    report(ok, "VMRUN fails, whoever writes its exit code: nothing changes");
}

int main(void)
{
    bool lbrv = cpuid_reg(0x8000000a, 0, 3) & CPUID_LBRV;

    kernel_init();
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SVME);
    wrmsr(MSR_HSAVE_PA, (uintptr_t)host_save);
    test_host();
    test_shared("off");
    if (lbrv) {
        test_virtual();
        test_shared("off again");
    }
    test_written(lbrv);
    report(true, "LBR virtualization: %d", lbrv);
    return report_summary();
}
