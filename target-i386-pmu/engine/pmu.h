/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The performance monitoring unit of x86 processors: registers and counters.
 * Nothing here knows QEMU, nor how it is found out what retires.
 *
 * "SDM" is Intel's Software Developer's Manual, Volume 3B, with the section
 * numbers of the edition that has chapter 17 "Debug, branch profile, TSC" and
 * chapter 18 "Performance monitoring"; "APM" is AMD's Architecture Programmer's
 * Manual, Volume 2, section 13.2.
 *
 * Last branch records and the branch trace store are not here, and of PEBS only
 * when a record is due: pebs.h stores it.
 */
#ifndef I386_PMU_ENGINE_H
#define I386_PMU_ENGINE_H

#include "counted.h"
#include "perfmon/engine/perfmon.h"

#define PMU_MAX_GP          8   /* general-purpose counters */
#define PMU_MAX_FIXED       3   /* fixed-function counters */
#define PMU_NR_COUNTERS     (PMU_MAX_GP + PMU_MAX_FIXED)
#define PMU_NR_OFFCORE      2   /* masks of offcore responses */
#define PMU_L1_LATENCY      4   /* of a load that hits L1D; in no clock */

/* Number of a fixed-function counter in PmuState.value and .counter. */
#define PMU_FIXED(i)        (PMU_MAX_GP + (i))

/* A row of the table of PMUs that there are; what is in it is the engine's. */
typedef struct PmuFlavour PmuFlavour;

struct NetburstState;

/*
 * What this processor has; does not change once the CPU exists.
 *
 *  1. pmu_config_init() with what pmu_flavour() finds;
 *  2. the CPUID bits @perfctr_core, @perfmon_v2 and, if that is set, @lbr_v2
 *     may be changed (AMD), and so may @pdcm, @aperfmperf, @insn_clocks and
 *     @refclk_ratio;
 *  3. pmu_configure(), and @netburst if pmu_is_netburst();
 *  4. bits of @perf_capabilities may be cleared (Intel).
 */
typedef struct PmuConfig {
    const PmuFlavour *flavour;
    uint64_t value_mask;    /* the bits of a counter */
    uint8_t version;        /* CPUID.0AH:EAX[7:0]; 0: not architectural */
    uint8_t counters;       /* general-purpose ones */
    uint8_t fixed;          /* fixed-function ones */
    bool pdcm;              /* CPUID.1:ECX[15], IA32_PERF_CAPABILITIES exists */
    bool perfctr_core;      /* CPUID 8000_0001 ECX[23], PerfCtrExtCore */
    bool perfmon_v2;        /* CPUID 8000_0022 EAX[0], PerfMonV2 */
    bool lbr_v2;            /* CPUID 8000_0022 EAX[1] and [2], LbrExtV2 */
    bool aperfmperf;        /* CPUID.6:ECX[0], APERF and MPERF exist */
    bool no_models;         /* nobody knows of caches and predictions */
    uint64_t perf_capabilities; /* IA32_PERF_CAPABILITIES */
    /* Pentium 4's registers, which belong to PmuState; others: NULL */
    struct NetburstState *netburst;
    /*
     * The clocks: an instruction takes @insn_clocks CPU clocks, 1 to 1000, the
     * event in its last one; 1000 of them are @refclk_ratio reference clocks,
     * 1 to 10000.  As RetireConfig has them, where they are checked.
     */
    uint32_t insn_clocks;
    uint32_t refclk_ratio;
} PmuConfig;

#define PMU_REFCLK_UNIT     1000

/* Bits of IA32_PERF_CAPABILITIES (SDM 18.18.1) that can be set. */
#define PMU_CAP_PEBS_TRAP           (1u << 6)
#define PMU_CAP_PEBS_REGS           (1u << 7)
#define PMU_CAP_PEBS_FORMAT(caps)   ((uint32_t)(caps) >> 8 & 15)
#define PMU_CAP_FREEZE_WHILE_SMM    (1u << 12)
#define PMU_CAP_FULL_WIDTH_WRITE    (1u << 13)
#define PMU_CAP_PEBS_BASELINE       (1u << 14)
/* PEBS is there if the first two are; all about it is PMU_CAP_PEBS. */

/* A property that has a wrong value. */
typedef struct PmuRange {
    const char *property;   /* "pmu-version" or "pmu-counters" */
    uint32_t value;
    uint32_t min, max;      /* what it may have; only 0, if @max is 0 */
} PmuRange;

/* A counter that runs; follows from the registers. */
typedef struct PmuCounter {
    /*
     * It counts the quantities in @add, less those in @sub (a counter with INV
     * counts cycles without an event); sets of PMU_BIT().
     */
    uint64_t add, sub;
    uint8_t rows;           /* bit r: it counts in RetireRow r; 0: not at all */
    bool interrupts;        /* its overflow causes a PMI, */
    bool pebs;              /* or has the next event write a record */
} PmuCounter;

/* Of what is not known to the migration stream, all zero is good. */
typedef struct PmuState {
    /*
     * The registers, as RDMSR shows them, and what else has to be migrated.
     * Fields that this processor does not have are 0.
     */
    /* IA32_PERFEVTSELn, PerfEvtSeln; the halves of CESR */
    uint64_t evtsel[PMU_MAX_GP];
    /* IA32_PMCn, PerfCtrn; from PMU_FIXED(0) on IA32_FIXED_CTRn */
    uint64_t value[PMU_NR_COUNTERS];
    uint64_t fixed_ctr_ctrl;            /* IA32_FIXED_CTR_CTRL */
    uint64_t global_ctrl;       /* IA32_PERF_GLOBAL_CTRL, PerfCntrGlobalCtl */
    uint64_t global_status;     /* ..._GLOBAL_STATUS, PerfCntrGlobalStatus */
    uint64_t debugctl;                  /* IA32_DEBUGCTL, PMU_FREEZE_* */
    uint64_t offcore[PMU_NR_OFFCORE];   /* MSR_OFFCORE_RSP_n */
    uint64_t pebs_enable;               /* IA32_PEBS_ENABLE */
    uint64_t pebs_data_cfg;             /* MSR_PEBS_DATA_CFG */
    uint64_t load_latency;              /* MSR_PEBS_LD_LAT_THRESHOLD */
    uint64_t frontend;                  /* MSR_PEBS_FRONTEND */
    /* Counters whose next event writes a record, as GLOBAL_STATUS has them */
    uint64_t pebs_armed;
    /* What chooses the loads that are tagged: see pmu_tag() */
    uint32_t tag_random, tag_left;
    /* Saved at an SMI with FREEZE_WHILE_SMM, for RSM. */
    uint64_t smm_global_ctrl, smm_debugctl;
    /* Of a reference clock in each row, in 1/PMU_REFCLK_UNIT. */
    uint32_t ref_fraction[RETIRE_NR_ROWS];
    bool smm_frozen;                    /* in SMM, with FREEZE_WHILE_SMM */
    /*
     * Clocks and reference clocks since somebody has asked for either, which
     * @clocks says, because who never asks shall not pay for them; or 0.
     */
    uint64_t mperf, aperf;
    bool clocks;

    /* The environment, see pmu_set_svm(); follows from the CPU's state. */
    bool svme, guest;

    /* The rest follows from the above and from what has been counted since. */
    PmuCounter counter[PMU_NR_COUNTERS];
    uint32_t running;                   /* a bit for each that has rows */
    uint64_t wanted[RETIRE_NR_ROWS];    /* see pmu_wanted() */
    RetireWants wants[RETIRE_NR_ROWS];  /* see pmu_wants() */
    bool memory_interrupts;     /* a counter of memory accesses, or FP, does */
    /*
     * Not taken by pmu_sync() yet.  BTS sets it at its threshold: that PMI
     * freezes what an overflow's does (SDM 17.4.7).
     */
    bool pmi;
    uint64_t pebs_due;                  /* of pebs_armed, whose event came */
    /*
     * Counted, but not in value[] yet.  So many instructions may be counted
     * before it has to be there; below 0, it has.
     */
    uint64_t pending[RETIRE_NR_ROWS][PMU_NR_QUANTITIES];
    uint64_t fp_pending[PMU_MAX_GP];    /* the same, of each counter */
    uint64_t counted[RETIRE_NR_ROWS];      /* which of these, as PMU_BIT() */
    int64_t slack[RETIRE_NR_ROWS];
    /* See pmu_distances(); as it was when nothing was pending. */
    int64_t insns[RETIRE_NR_ROWS], branches[RETIRE_NR_ROWS];
    bool has_unknown;                   /* see pmu_take_unknown() */
    uint32_t unknown;
    uint64_t reported[64];              /* event codes */
} PmuState;

/*
 * The PMU of a processor; NULL if it has none that we know.  @family and @model
 * are those of CPUID.1:EAX with the extended fields added.
 */
const PmuFlavour *pmu_flavour(PmuVendor vendor, unsigned family,
                              unsigned model);

/* What to call it, for people: "Skylake". */
const char *pmu_flavour_name(const PmuFlavour *flavour);

/* All that @flavour has, with one clock for an instruction. */
void pmu_config_init(PmuConfig *config, const PmuFlavour *flavour);

/*
 * Set @config's version and number of counters; 0 stands for the highest
 * version and the flavour's number of counters.  All that depends on them is
 * set, too.  Returns false with *@bad set if one is out of range:
 *
 *                  pmu-version             pmu-counters
 *  Intel           1 to the flavour's      2 to 8
 *  PerfMonV2       none                    4 to 6
 *  all others      none                    what there are
 */
bool pmu_configure(PmuConfig *config, uint32_t version, uint32_t counters,
                   PmuRange *bad);

/*
 * CPUID.0AH (SDM Vol. 2A; all 0 if the processor has none) and CPUID
 * 8000_0022.  @regs receives EAX, EBX, ECX and EDX.
 */
void pmu_cpuid_0a(const PmuConfig *config, uint32_t regs[4]);
void pmu_cpuid_80000022(const PmuConfig *config, uint32_t regs[4]);

/*
 * IA32_MISC_ENABLE[7], performance monitoring available, and [11] and [12],
 * branch trace store, which is not here, and PEBS unavailable.  They are
 * read-only: a WRMSR does not change those in PMU_MISC_ENABLE, which
 * pmu_misc_enable() gives; 0 where there is no such MSR (P6 and older, AMD).
 */
#define PMU_MISC_ENABLE     0x1880u

uint64_t pmu_misc_enable(const PmuConfig *config);

/*
 * The bits of IA32_DEBUGCTL that are in PmuState.debugctl.  The MSR is not here
 * because others have bits of it, too: who has it sets these.
 */
uint64_t pmu_debugctl_mask(const PmuConfig *config);

/*
 * Whether delivery of a PMI sets LVTPC's mask bit (SDM 10.5.1): not on AMD's,
 * nor on P6 before Pentium M.
 */
bool pmu_masks_lvtpc(const PmuConfig *config);

/* Whether it has those of netburst.h, which PmuConfig.netburst is for. */
bool pmu_is_netburst(const PmuFlavour *flavour);

/*
 * Whether a PMI is due as soon as LVTPC is not masked: Pentium 4 asks for it
 * until nobody's overflow flag is set any more.
 */
bool pmu_asks(const PmuConfig *config);

/*
 * Whether counter 0 is the TSC (VIA C3): what RDMSR and RDPMC show of it is the
 * caller's.
 */
#define PMU_TSC_WIDTH       40

bool pmu_has_tsc(const PmuConfig *config);

/* RESET.  INIT does not concern the PMU. */
void pmu_reset(PmuState *s, const PmuConfig *config);

/*
 * The MSRs.  What has retired must have been reported by pmu_count() before.
 * RDMSR and RDPMC set *@val only if they return PMU_MSR_OK or true.  With
 * PMU_MSR_GP nothing has changed.  PMU_MSR_OTHER: it belongs to somebody else.
 * IA32_MISC_ENABLE and the MSRs of the local APIC do.
 *
 * Behind a WRMSR, and an RDMSR of APERF or MPERF, pmu_wanted(), pmu_distance()
 * and pmu_take_unknown() are to be asked again.
 */
PmuAccess pmu_rdmsr(PmuState *s, const PmuConfig *config, uint32_t msr,
                    uint64_t *val);
PmuAccess pmu_wrmsr(PmuState *s, const PmuConfig *config, uint32_t msr,
                    uint64_t val);

/*
 * RDPMC with @ecx; false for #GP.  Whether it is allowed at this privilege
 * (CR4.PCE) is for the caller to check.
 */
bool pmu_rdpmc(PmuState *s, const PmuConfig *config, uint32_t ecx,
               uint64_t *val);

/*
 * SMI and RSM (SDM 18.18.1, FREEZE_WHILE_SMM), when what retired before them
 * has been reported; RSM itself retires before pmu_rsm().
 */
void pmu_smi(PmuState *s, const PmuConfig *config);
void pmu_rsm(PmuState *s, const PmuConfig *config);

/*
 * EFER.SVME, and whether the processor runs a guest of VMRUN: what the
 * Host/Guest Only bits of AMD's event selects go by.  To be called whenever
 * either may have changed, and behind pmu_load_state(); cheap if neither has.
 */
void pmu_change_svm(PmuState *s, const PmuConfig *config, bool svme,
                    bool guest);

static inline void pmu_set_svm(PmuState *s, const PmuConfig *config, bool svme,
                               bool guest)
{
    if (svme != s->svme || guest != s->guest) {
        pmu_change_svm(s, config, svme, guest);
    }
}

/*
 * The quantities that are to be counted in @row, a set of PMU_BIT() of those
 * below PMU_NR_COUNTED; 0 if no counter runs there.
 */
static inline uint64_t pmu_wanted(const PmuState *s, RetireRow row)
{
    return s->wanted[row];
}

/*
 * What an observer has to want for that; 0 if no counter runs there.  Without
 * RETIRE_WANT_CLASSES, near branches are not counted; without
 * RETIRE_WANT_SOURCES, loads may be counted as any of PMU_LOADS.
 */
static inline RetireWants pmu_wants(const PmuState *s, RetireRow row)
{
    return s->wants[row];
}

/* @n[RETIRE_FP(width, kind)] are counted in @row; as pmu_count(). */
void pmu_count_fp(PmuState *s, const PmuConfig *config, RetireRow row,
                  const uint64_t n[RETIRE_NR_FP]);

/*
 * @n of @quantity, one of those below PMU_NR_COUNTED, have been counted in
 * @row.  It does no harm to count what is not wanted.  All that an instruction
 * counts for is to be reported before anything else is called; and all that
 * has been counted before a register is written, before that.
 */
static inline void pmu_count(PmuState *s, RetireRow row, PmuQuantity quantity,
                             uint64_t n)
{
    s->pending[row][quantity] += n;
    s->counted[row] |= PMU_BIT(quantity);
    if (quantity == PMU_INSNS) {
        s->slack[RETIRE_OS] -= n;
        s->slack[RETIRE_USR] -= n;
    } else if (quantity >= PMU_INTERRUPTS &&
               (quantity <= PMU_TAGGED || s->memory_interrupts)) {
        s->slack[RETIRE_OS] = s->slack[RETIRE_USR] = -1;
    }
}

/* Whether something may have overflowed that interrupts */
static inline bool pmu_is_near(const PmuState *s)
{
    return (s->slack[RETIRE_OS] | s->slack[RETIRE_USR]) < 0;
}

/*
 * Add what is pending to the counters, and look for overflows.  Near one, it is
 * asked again and again how far it is, and nothing is pending.
 */
void pmu_add_pending(PmuState *s, const PmuConfig *config);

static inline void pmu_apply(PmuState *s, const PmuConfig *config)
{
    if ((s->counted[RETIRE_OS] | s->counted[RETIRE_USR]) || pmu_is_near(s)) {
        pmu_add_pending(s, config);
    }
}

/*
 * How many instructions may retire in @row, each of which may count for
 * everything, before one of them makes a counter overflow that interrupts.
 * Exact for instructions and cycles below PMU_NEAR, otherwise a lower bound;
 * UINT32_MAX at most.  Interrupts are not instructions.  Nor are iterations of
 * a string instruction, of which half of PMU_MEMORY_MAX accesses are one here.
 *
 * So if no more than that are run between two calls of pmu_sync(), an overflow
 * that interrupts is found by pmu_sync() behind the instruction that caused it.
 * This is what the freeze bits and the PMI need; all other overflows are exact
 * wherever they are found.
 */
#define PMU_NEAR            8192

static inline uint32_t pmu_distance(PmuState *s, const PmuConfig *config,
                                    RetireRow row)
{
    if (s->slack[row] < PMU_NEAR) {
        pmu_apply(s, config);
    }
    return s->slack[row] < UINT32_MAX ? (uint32_t)s->slack[row] : UINT32_MAX;
}

/*
 * The same in two numbers, for a caller who knows which instructions are
 * branches.  What is returned is how many instructions may retire before a
 * counter of instructions or clocks overflows; *@branches, how many branches
 * before a counter of branches does.
 */
static inline uint32_t pmu_distances(PmuState *s, const PmuConfig *config,
                                     RetireRow row, uint32_t *branches)
{
    *branches = pmu_distance(s, config, row);
    if (*branches >= PMU_NEAR) {
        return *branches;
    }
    *branches = s->branches[row] < UINT32_MAX ? (uint32_t)s->branches[row] :
                UINT32_MAX;
    return s->insns[row] < UINT32_MAX ? (uint32_t)s->insns[row] : UINT32_MAX;
}

/*
 * All that has been counted is in value[] afterwards, for somebody who looks at
 * the registers, or saves them; as pmu_sync().
 */
bool pmu_settle(PmuState *s, const PmuConfig *config);

/*
 * Look for overflows: set the bits of the status register, and freeze if that
 * is asked for (SDM 17.4.7, 18.2.4.1).  Returns whether a PMI is due, which is
 * then the caller's to deliver; pmu_wanted() and pmu_distance() may change
 * with it.  Cheap if there can be none.
 */
static inline bool pmu_sync(PmuState *s, const PmuConfig *config)
{
    return (pmu_is_near(s) || s->pmi) && pmu_settle(s, config);
}

/*
 * PEBS (SDM 18.4.4, 18.9.4): a counter that overflows is armed, and its next
 * event has a record written.  The caller asks here for those whose event came
 * with what has just been counted, in front of pmu_sync(), and has pebs_store()
 * write each, which calls pmu_pebs_done().  Bits are those of GLOBAL_STATUS.
 */
static inline uint64_t pmu_pebs_due(PmuState *s, const PmuConfig *config)
{
    if (pmu_is_near(s)) {
        pmu_apply(s, config);
    }
    return s->pebs_due;
}

/*
 * What became of it: the counter is loaded with *@reset unless that is NULL; if
 * the @threshold is reached, pmu_sync() has a PMI.
 */
void pmu_pebs_done(PmuState *s, const PmuConfig *config, unsigned n,
                   const uint64_t *reset, bool threshold);

/* The instruction is not known: the event after this one counts. */
void pmu_pebs_forget(PmuState *s, const PmuConfig *config);

/*
 * Load latency (SDM 18.8.1.2, 18.9.4.2): a load is tagged, and counts if its
 * latency is over the threshold.  That is the first one of the instruction
 * behind a gap, if it loads, so that each is as likely.  Gaps are random, and
 * always the same ones from RESET on; they are of instructions that retire in
 * rows where somebody wants tags.
 */
#define PMU_TAG_GAP_MIN     512
#define PMU_TAG_GAP_MAX     2559

static inline bool pmu_tags(const PmuState *s, RetireRow row)
{
    return s->wanted[row] & PMU_BIT(PMU_TAGGED);
}

/* How many instructions may retire in @row before one that may be tagged */
static inline uint32_t pmu_tag_distance(const PmuState *s, RetireRow row)
{
    return pmu_tags(s, row) ? s->tag_left : UINT32_MAX;
}

/* @n instructions have retired, no more than that; none of them was tagged. */
static inline void pmu_tag_pass(PmuState *s, RetireRow row, uint32_t n)
{
    if (pmu_tags(s, row)) {
        s->tag_left -= n;
    }
}

/*
 * Another one has, where pmu_tag_distance() is 0: its first load has taken
 * @latency clocks, or it has none, which is 0.
 */
void pmu_tag(PmuState *s, RetireRow row, uint32_t latency);

/* GLOBAL_STATUS without the counters that PEBS is on for */
uint64_t pmu_others_status(const PmuState *s, const PmuConfig *config);

/* Whether there is PEBS */
bool pmu_has_pebs(const PmuConfig *config);

/* Whether it has load latency, and MSR_PEBS_LD_LAT_THRESHOLD */
bool pmu_has_load_latency(const PmuConfig *config);

/*
 * What counter @n's record has of an access to memory: nothing; the address;
 * that and the source, for an event of loads or of stores; or these and the
 * latency.
 */
typedef enum PmuData {
    PMU_DATA_NONE,
    PMU_DATA_ADDRESS,       /* Atoms' */
    PMU_DATA_SOURCE,        /* from Haswell on */
    PMU_DATA_STORE,         /* Sandy Bridge's precise store */
    PMU_DATA_LATENCY,
    PMU_DATA_STORE_LATENCY, /* Golden Cove's and Crestmont's */
} PmuData;

PmuData pmu_pebs_data(const PmuState *s, const PmuConfig *config, unsigned n);

/* How a record has the source of a load. */
typedef enum PmuSources {
    PMU_SOURCES_NHM,
    PMU_SOURCES_SNB,
    PMU_SOURCES_SKL,
    PMU_SOURCES_CMT,
} PmuSources;

PmuSources pmu_pebs_sources(const PmuConfig *config);

/* Whether a latency is two, those of the instruction and of the access. */
bool pmu_splits_latency(const PmuConfig *config);

/* The groups of counter @n's record, as in MSR_PEBS_DATA_CFG. */
uint64_t pmu_adaptive_groups(const PmuState *s, const PmuConfig *config,
                             unsigned n);

static inline uint64_t pmu_pebs_groups(const PmuState *s,
                                       const PmuConfig *config, unsigned n)
{
    return PMU_CAP_PEBS_FORMAT(config->perf_capabilities) < 4 ? 0 :
           pmu_adaptive_groups(s, config, n);
}

/*
 * Whether what is next in @row may have a record.  If so, the caller of
 * pmu_distance() has it observed.
 */
static inline bool pmu_pebs_near(const PmuState *s, RetireRow row)
{
    return (s->pebs_armed & s->pebs_enable) && !s->slack[row];
}

/* The bit of counter @n in GLOBAL_STATUS, GLOBAL_CTRL and PEBS_ENABLE */
static inline uint64_t pmu_status_bit(unsigned n)
{
    return 1ull << (n < PMU_MAX_GP ? n : 32 + n - PMU_MAX_GP);
}

/* And the counter of the lowest one of such @bits */
static inline unsigned pmu_of_status_bit(uint64_t bits)
{
    unsigned bit = (unsigned)__builtin_ctzll(bits);

    return bit < 32 ? bit : PMU_MAX_GP + bit - 32;
}

/*
 * Whether an event was selected, and enabled, that this PMU does not count: it
 * counts 0, or what other bits of its unit mask name.  Each is told of once.
 * *@event has the event code in bits 11:0 and those bits of the unit mask that
 * do not count in bits 23:16.
 */
bool pmu_take_unknown(PmuState *s, uint32_t *event);

/* How a counter is set up, for people. */
typedef struct PmuSetting {
    char event[192];        /* its manual's names; "": nothing known */
    bool os, usr;           /* as its control register has them */
    bool interrupts;        /* so is this */
    bool enabled;           /* nothing but OS, USR and the event can stop it */
} PmuSetting;

/*
 * False if this processor has no counter @n, which is below PMU_NR_COUNTERS,
 * or NETBURST_COUNTERS.
 */
bool pmu_setting(const PmuState *s, const PmuConfig *config, unsigned n,
                 PmuSetting *setting);

/* An event that is counted, for people: what selects it, and its name. */
typedef struct PmuEvent {
    const char *name;
    uint16_t event;         /* P4's: of the ESCR */
    uint16_t umask;         /* bits, of which a select has to have all */
    bool no_umask;          /* there is none, */
    bool whole_umask;       /* or it has to be this */
    bool never;             /* known, but there are none here */
    uint32_t frontend;      /* what MSR_PEBS_FRONTEND has to have, or 0 */
} PmuEvent;

/*
 * One event of this processor's after the other: *@next is 0 for the first one.
 * False behind the last one.
 */
bool pmu_next_event(const PmuConfig *config, unsigned *next, PmuEvent *event);

/* In the same way, names of Linux' for one event select; NULL is the end. */
const char *pmu_next_linux_event(const PmuConfig *config, unsigned *next,
                                 uint64_t *select);

/*
 * Take over registers from outside, of which the fields down to @clocks, and
 * those of PmuConfig.netburst, have been set.  Returns false if this PMU could
 * not have reached them on this processor.
 */
bool pmu_load_state(PmuState *s, const PmuConfig *config);

#endif
