/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A signal that comes right behind a block does not move the addresses of the
 * records that the block is due.
 *
 * The block takes long, so that many signals come meanwhile, and what follows
 * it has to be translated: QEMU sees the signal before it looks at the records.
 */

#define _GNU_SOURCE
#include "lwp.h"
#include <sys/time.h>

enum { IRE = 2, SLOW = 40, INSNS = SLOW + 2, RECORDS = 1024, SIGNALS = 400,
       PERIOD_US = 200 };

static LwpCb cb;
static LwpRecord ring[RECORDS];
/* volatile: changed by the signal handler */
volatile int signals;

static void on_alarm(int sig, siginfo_t *info, void *uc)
{
    signals++;
}

/* Whether there is a record of each instruction, and in their order */
static bool recorded(uintptr_t code)
{
    int n = 0;

    for (int i = 0; i < cb.head / sizeof(*ring); i++) {
        /* All but the last one have two bytes. */
        if (ring[i].ip - code <= 2 * INSNS && ring[i].ip != code + 2 * n++) {
            return false;
        }
    }
    return n == INSNS;
}

int main(void)
{
    struct itimerval timer = { { 0, PERIOD_US }, { 0, PERIOD_US } };
    static const uint8_t slow[] = { 0xd9, 0xf0 };       /* F2XM1 */
    static const uint8_t end[] = { 0xeb, 0, 0xc3 };     /* JMP, RET */
    uint8_t *code = map_pages(1, PROT_READ | PROT_WRITE | PROT_EXEC);
    int bad = 0, laps = 0;

    catch(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (; signals < SIGNALS; laps++) {
        for (int i = 0; i < SLOW; i++) {
            memcpy(code + sizeof(slow) * i, slow, sizeof(slow));
        }
        memcpy(code + sizeof(slow) * SLOW, end, sizeof(end));
        asm volatile("fninit\n fldln2");
        lwp_init(&cb, ring, sizeof(ring), 1u << IRE);
        lwp_profile(&cb, "mov $0x10000000, %%eax\n call *" R "ax");
        bad += !recorded((uintptr_t)code);
    }
    timer = (struct itimerval) { };
    setitimer(ITIMER_REAL, &timer, NULL);
    report(bad == 0, "a record of each instruction, whenever signals come");
    if (bad) {
        printf("not so in %d of %d runs\n", bad, laps);
    }
    return report_summary();
}
