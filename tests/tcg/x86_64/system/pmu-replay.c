/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A run with counters that interrupt, to be recorded and replayed.  How often a
 * program polls the real-time clock until a second is over depends on the host;
 * what is printed of its counters, and of where it was interrupted, must not
 * change when the same run is replayed.
 */

#include "pmu-kernel.h"

enum { NMI = 2, PERIOD = 9973 };
enum { BRANCHES = 0x00c4, MISPREDICTED = 0x00c5 };

#define WIDTH_MASK  ((1ull << 48) - 1)
#define RFLAGS_IOPL (3ull << 12)

/* volatile: the kernel reads it when the program has been interrupted */
static volatile uint32_t polls;

static void program(void)
{
    static uint8_t line[64];
    uint8_t second = rtc_second();

    do {
        uint32_t n = polls++;
        uint64_t to, left;

        while (n) {
            n &= n - 1;
        }
        /* An instruction of many iterations, and one that does not retire */
        asm volatile("rep stosb\n ud2" : "=D" (to), "=c" (left)
                     : "0" (line), "1" (sizeof(line)), "a" (0) : "memory");
    } while (rtc_second() == second);
}

static void print(const char *name, uint64_t val)
{
    ml_printf("%s %lx\n", name, val);
}

int main(void)
{
    uint64_t places = 0xcbf29ce484222325;   /* FNV-1a */
    unsigned vector, interrupts = 0;
    int status;

    kernel_init();
    apic_init(LVT_NMI);
    wrmsr(MSR_EVTSEL(0), BRANCHES | EVTSEL_USR | EVTSEL_OS | EVTSEL_EN);
    wrmsr(MSR_EVTSEL(1), MISPREDICTED | EVTSEL_USR | EVTSEL_EN);
    wrmsr(MSR_FIXED_CTR_CTRL, FIXED_USR | FIXED_PMI);
    wrmsr(MSR_FIXED_CTR(0), -(uint64_t)PERIOD & WIDTH_MASK);
    wrmsr(MSR_GLOBAL_CTRL, GLOBAL_FIXED(0) | 3);

    set_up(USER_CODE64, (uintptr_t)program);
    regs.rflags |= RFLAGS_IOPL;
    *(uint64_t *)regs.rsp = (uintptr_t)exit_user;
    while ((vector = run()) == NMI || vector == UD) {
        if (vector == UD) {
            regs.rip += 2;
            continue;
        }
        places = (places ^ regs.rip) * 0x100000001b3;
        interrupts++;
        wrmsr(MSR_GLOBAL_STATUS_RESET, GLOBAL_FIXED(0));
        wrmsr(MSR_FIXED_CTR(0), -(uint64_t)PERIOD & WIDTH_MASK);
        APIC(APIC_LVTPC) = LVT_NMI;
    }
    wrmsr(MSR_GLOBAL_CTRL, 0);

    report(vector == EXIT && interrupts > 2, "counters interrupt");
    print("polls", polls);
    print("interrupts", interrupts);
    print("places", places);
    print("left", rdmsr(MSR_FIXED_CTR(0)));
    print("branches", rdmsr(MSR_PMC(0)));
    print("mispredicted", rdmsr(MSR_PMC(1)));
    status = report_summary();
    /* An input: a recording ends with the last one. */
    rtc_second();
    return status;
}
