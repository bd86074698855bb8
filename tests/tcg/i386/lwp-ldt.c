/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * 32-bit code in a segment with a base, such that effective addresses are
 * large and linear ones are not.  What LWP records are effective addresses, of
 * 32 bits.
 */

#define _GNU_SOURCE
#include "lwp.h"
#include <asm/ldt.h>
#include <sys/syscall.h>

#define SELECTOR        7               /* entry 0 of the LDT, CPL 3 */
#define NOPS            100
#define MANY            1000000

enum { IRE = 2, BRE = 3 };

#define FLAG(event)     (1u << (event))

#if TEST_64BIT

/* qemu-x86_64 does not run 32-bit code. */
int main(void)
{
    printf("SKIP: no 32-bit segments\n");
    return report_summary();
}

#else

static LwpCb cb;
static LwpRecord ring[512];

static uint8_t *code;
uint8_t *lwp_stack;
struct __attribute__((packed)) {
    uint32_t ip;
    uint16_t cs;
} lwp_target;

#define INSNS           (NOPS + 2)      /* NOPs, JMP, far RET */

static void make_code(void)
{
    uint8_t *p = code;

    memset(p, 0x90, NOPS);
    p += NOPS;
    memcpy(p, (uint8_t []) { 0xeb, 0, 0xcb }, 3);
}

static int set_base(uint32_t base)
{
    struct user_desc d = {
        .base_addr = base, .limit = 0xfffff, .limit_in_pages = 1,
        .seg_32bit = 1, .contents = MODIFY_LDT_CONTENTS_CODE, .useable = 1,
    };

    return syscall(SYS_modify_ldt, 1, &d, sizeof(d));
}

#define BEFORE          3               /* up to the far CALL, which counts */
#define AFTER           2

static void call(uint32_t ip)
{
    void *start = &cb;

    lwp_target.ip = ip;
    lwp_target.cs = SELECTOR;
    asm volatile("llwpcb %0\n mov %%esp, %%ebx\n"
                 "mov lwp_stack, %%esp\n"
                 "lcall *lwp_target\n mov %%ebx, %%esp\n"
                 "xor %%eax, %%eax\n llwpcb %%eax"
                 : "+a" (start) : : "ebx", "memory", "cc");
}

static void prepare(uint32_t flags, int interval)
{
    memset(ring, 0, sizeof(ring));
    lwp_init(&cb, ring, sizeof(ring), flags);
    for (int i = 0; i < 6; i++) {
        cb.event[i].interval = cb.event[i].counter = interval;
    }
}

static void test_base(uint32_t ip)
{
    const int all = BEFORE + INSNS + AFTER;
    bool ok = true;
    int n = 0;

    if (set_base((uint32_t)(uintptr_t)code - ip)) {
        perror("modify_ldt");
        exit(EXIT_FAILURE);
    }
    for (int interval = 0; interval <= 50; interval += 5) {
        prepare(FLAG(IRE), interval);
        call(ip);
        for (n = 0; n < cb.head / sizeof(LwpRecord); n++) {
            int k = n * (interval + 1) + interval - BEFORE;
            uint64_t at = (uint32_t)(ip + k + (k > NOPS));

            ok &= k < 0 || k >= INSNS || ring[n].ip == at;
        }
        ok &= n == all / (interval + 1);
    }
    report(ok, "EIP 0x%x: addresses have 32 bits", ip);

    prepare(FLAG(BRE), 0);
    call(ip);
    report(cb.head == 32 && ring[0].ip == (uint32_t)(ip + NOPS) &&
           ring[0].data2 == (uint32_t)(ip + NOPS + 2),
           "and so have targets of branches");

    prepare(FLAG(IRE), MANY);
    cb.filters = FILTER_IPF;
    cb.base_ip = ip + 10;
    cb.limit_ip = ip + 20;
    call(ip);
    report(MANY - cb.event[IRE - 1].counter == 11,
           "and those that a filter sees");
}

int main(void)
{
    code = map_pages(1, PROT_READ | PROT_WRITE | PROT_EXEC);
    lwp_stack = (uint8_t *)map_pages(1, PROT_READ | PROT_WRITE) + PAGE;
    make_code();
    test_base(0x1000);
    test_base(0x7ffff000);
    test_base(0xf0000000);
    test_base(0xffffff00);
    return report_summary();
}

#endif
