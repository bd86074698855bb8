/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Counters of processors older than P6: see pmu-old.h. */

#include "pmu-old.h"

/*
 * A half of CESR (Pentium Processor Family Developer's Manual, 16.6.3).
 * CESR_CLOCKS counts the clocks of an event in place of events, of which each
 * has one here; CESR_PIN is about pins PM0 and PM1.
 */
#define CESR_EVENT      0x003fu
#define CESR_CPL012     0x0040u
#define CESR_CPL3       0x0080u
#define CESR_CLOCKS     0x0100u
#define CESR_PIN        0x0200u
#define CESR_EVENT_HIGH 0x0400u     /* Cyrix' */

#define WINCHIP_EVENT   0x00ffu
#define C3_EVENT        0x01ffu

#define SEL_USR         (1u << 16)
#define SEL_OS          (1u << 17)
#define SEL_EN          (1u << 22)
#define SEL_ALWAYS      (SEL_USR | SEL_OS | SEL_EN)
#define SEL_HIGH(event) ((uint64_t)(event) >> 8 << 32)

/* These have one source, their manuals: Linux and libpfm4 know none of them. */
uint32_t pmu_old_mask(PmuOld old, unsigned n)
{
    static const uint32_t mask[] = {
        [PMU_OLD_P5] = CESR_EVENT | CESR_CPL012 | CESR_CPL3 | CESR_CLOCKS |
                       CESR_PIN,
        [PMU_OLD_6X86MX] = CESR_EVENT | CESR_CPL012 | CESR_CPL3 | CESR_CLOCKS |
                           CESR_PIN | CESR_EVENT_HIGH,
        [PMU_OLD_WINCHIP] = WINCHIP_EVENT,
        [PMU_OLD_C3] = UINT32_MAX,
    };

    return n > 1 || (old == PMU_OLD_C3 && !n) ? 0 : mask[old];
}

uint64_t pmu_old_select(PmuOld old, unsigned n, uint32_t control)
{
    uint32_t event;

    if (!pmu_old_mask(old, n)) {
        return 0;
    }
    switch (old) {
    case PMU_OLD_P5:
    case PMU_OLD_6X86MX:
        event = control & (CESR_EVENT | CESR_EVENT_HIGH);
        return (event & CESR_EVENT) | SEL_HIGH(event) | SEL_EN |
               (control & CESR_CPL012 ? SEL_OS : 0) |
               (control & CESR_CPL3 ? SEL_USR : 0);
    default:
        event = control & (old == PMU_OLD_C3 ? C3_EVENT : WINCHIP_EVENT);
        return (event & 0xff) | SEL_HIGH(event) | SEL_ALWAYS;
    }
}
