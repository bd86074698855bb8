/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What programs of tests/oracle/differential and what they run in share, and
 * what these have in assembly code.
 */
#ifndef TESTS_ORACLE_DIFFERENTIAL_H
#define TESTS_ORACLE_DIFFERENTIAL_H

#include <stdint.h>

enum { RING_FILL = 0xa5, CB_BYTES = 256 };

/* Ends a session: the plugin writes it down. */
#define MARK() asm volatile(".byte 0x0f, 0x1f, 0x40, 0x5a")

/* The program's */
extern const uint32_t nr_sessions;
extern uintptr_t resume_at;
void body(void);

/* differential-user.c */
extern uint8_t sessions[][CB_BYTES], bad[], guard[];
void restore(void);
void start_user(void);

/* differential-system.c */
void enter64(void);
void enter32(void);
void on_pmi(void);
void on_amd_pmi(void);

#ifdef TEST_KERNEL
enum {
    GUARD = 6, BAD = 4,         /* pages of the window */
    NMI = 2, PROTECT = 33, NOTHING = 34,
};

/* Go on behind an exception, if that is not the end. */
static bool handled(unsigned vector)
{
    if (vector == EXIT) {
        return false;
    }
    if (resume_at) {
        regs.rip = resume_at;
        resume_at = 0;
        return true;
    }
    if (vector == PF && fault_address / PAGE == WINDOW / PAGE + GUARD) {
        set_pte(GUARD, PTE_ALL);
        return true;
    }
    if (vector == PROTECT) {
        set_pte(GUARD, 0);
    }
    return vector == PROTECT || vector == NOTHING;
}
#endif

#endif
