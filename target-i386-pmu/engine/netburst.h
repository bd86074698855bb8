/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counters of Pentium 4 (SDM 18.12, "Performance monitoring (processors based
 * on Intel NetBurst microarchitecture)"): their registers, and what these
 * select.  There is one logical processor, which is thread 0.
 */
#ifndef NETBURST_H
#define NETBURST_H

#include "pmu.h"

#define NETBURST_COUNTERS   18
#define NETBURST_WIDTH      40
#define NETBURST_ESCRS      0x42    /* from 3A0H on, with gaps */
#define NETBURST_PRECISE    3       /* 3F0H to PEBS_MATRIX_VERT */

/* The models differ in that. */
#define NETBURST_IQ_ESCR    (1u << 0)   /* up to 2 */
#define NETBURST_EXTENDED   (1u << 1)   /* extended cascading, from 2 on */

typedef struct NetburstState {
    /* The registers, which have to be migrated */
    uint64_t value[NETBURST_COUNTERS];
    uint32_t cccr[NETBURST_COUNTERS];
    uint32_t escr[NETBURST_ESCRS];
    uint32_t precise[NETBURST_PRECISE];

    PmuCounter counter[NETBURST_COUNTERS];  /* follows from them */
} NetburstState;

/* What a counter counts, as a PERFEVTSEL has it. */
typedef struct NetburstEvent {
    bool known;
    const char *name;       /* of the last one of the bits that are set */
    uint64_t add, sub;      /* quantities; neither: it never happens */
    uint32_t cmask;
    bool inv, edge;
    bool any_edge;          /* each event is one, for what holds always, too */
    uint32_t code, mask;    /* of the ESCR */
} NetburstEvent;

NetburstEvent netburst_event(const NetburstState *s, unsigned n);

/* As pmu_next_event(), but for what counts any of @lacking */
bool netburst_next_event(uint64_t lacking, unsigned *next, PmuEvent *event);

/*
 * The rows of RetireRow that counter @n is enabled for.  Whether somebody waits
 * for its overflow, be it with an interrupt or in a cascade.
 */
uint8_t netburst_rows(const NetburstState *s, unsigned n);
bool netburst_waits(const NetburstState *s, unsigned n);

/* FORCE_OVF: each count is an overflow. */
bool netburst_forced(const NetburstState *s, unsigned n);

/* OVF_PMI */
bool netburst_interrupts(const NetburstState *s, unsigned n);

/* Counter @n overflows.  Returns whether another one starts with it. */
bool netburst_overflow(NetburstState *s, unsigned n);

/* Whether an interrupt is asked for, as long as nobody clears OVF. */
bool netburst_asks(const NetburstState *s);

/* As pmu_rdmsr() and pmu_wrmsr(), for what is in NetburstState. */
PmuAccess netburst_rdmsr(const NetburstState *s, uint32_t has, uint32_t msr,
                         uint64_t *val);
PmuAccess netburst_wrmsr(NetburstState *s, uint32_t has, uint32_t msr,
                         uint64_t val);

/* Whether the registers can have what they have. */
bool netburst_valid(const NetburstState *s, uint32_t has);

#endif
