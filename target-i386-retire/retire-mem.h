/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: guest memory for who keeps records there. */

#ifndef I386_RETIRE_MEM_H
#define I386_RETIRE_MEM_H

#include "cpu.h"
#include "compat.h"
#include "tcg/tcg.h"

/*
 * The return address for accesses between two instructions: an address inside
 * generated code that belongs to no TB.  A fault is raised with @env as it
 * is, because no TB has that address; and user mode emulation takes the
 * host's SIGSEGV for the guest's, because generated code has it.
 */
#ifdef CONFIG_TCG_INTERPRETER
/* There is no epilogue; but a TranslationBlock comes before the first code. */
#define RETIRE_BOUNDARY_RA \
    ((uintptr_t)tcg_splitwx_to_rx(tcg_ctx->code_gen_buffer))
#else
#define RETIRE_BOUNDARY_RA ((uintptr_t)tcg_code_gen_epilogue)
#endif

/* Guest memory, with the privilege that an MMU index has */
typedef struct RetireMem {
    CPUX86State *env;
    int mmu_idx;
    uintptr_t ra;
} RetireMem;

/*
 * The TLB's flags of all pages of a range that is going to be written.  With
 * @nonfault, TLB_INVALID_MASK is a #PF.
 */
static inline int retire_mem_flags(const RetireMem *m, uint64_t addr,
                                   uint32_t len, bool nonfault)
{
    int flags = 0, error_code = m->env->error_code;
    void *host;

    while (len) {
        uint32_t n = MIN(len, -(addr | TARGET_PAGE_MASK));

        /* Not probe_write(): watchpoints are for what is really written. */
        flags |= probe_access_flags(m->env, addr, n, MMU_DATA_STORE,
                                    m->mmu_idx, nonfault, &host, m->ra);
        addr += n;
        len -= n;
    }
    /* Looking for a page must not change what an exception reports. */
    m->env->error_code = error_code;
    return flags;
}

#if defined(CONFIG_TCG) && !defined(CONFIG_USER_ONLY)
/*
 * The TLB's entry of what may be accessed as translated code would, if it has
 * that at hand; or NULL.
 */
static inline const CPUTLBEntry *retire_mem_entry(CPUX86State *env,
                                                  uint64_t addr,
                                                  MMUAccessType type,
                                                  int mmu_idx)
{
    const CPUTLBDescFast *fast = cpu_tlb_fast(env_cpu(env), mmu_idx);
    uintptr_t offset = (addr >> (TARGET_PAGE_BITS - CPU_TLB_ENTRY_BITS)) &
                       fast->mask;
    const CPUTLBEntry *entry = (void *)fast->table + offset;

    /* Flags, for which others have to be told, are in the lower bits. */
    return qatomic_read(&entry->addr_idx[type]) == (addr & TARGET_PAGE_MASK) ?
           entry : NULL;
}

/* And all that the TLB knows of it */
static inline CPUTLBEntryFull *retire_mem_full_of(CPUX86State *env,
                                                  const CPUTLBEntry *entry,
                                                  int mmu_idx)
{
    CPUState *cs = env_cpu(env);

    return &cs->neg.tlb.d[mmu_idx].fulltlb[entry -
                                           cpu_tlb_fast(cs, mmu_idx)->table];
}

/*
 * All that the TLB knows of a page, and its flags, wherever it has to look for
 * it, without an exception; or NULL.
 */
static inline CPUTLBEntryFull *retire_mem_full(CPUX86State *env, uint64_t addr,
                                               MMUAccessType type, int mmu_idx,
                                               int *flags)
{
    const CPUTLBEntry *entry = retire_mem_entry(env, addr, type, mmu_idx);
    CPUState *cs = env_cpu(env);
    bool can_do_io = cs->neg.can_do_io;
    int error_code = env->error_code;
    CPUTLBEntryFull *full;
    void *host;

    *flags = 0;
    if (entry) {
        return retire_mem_full_of(env, entry, mmu_idx);
    }
    /*
     * The page table may be in a device.  What reads it there is not the
     * instruction, which has not to be the last one of its TB for that.
     */
    cs->neg.can_do_io = true;
    *flags = probe_access_full_mmu(env, addr, 1, type, mmu_idx, &host, &full);
    cs->neg.can_do_io = can_do_io;
    /* Looking for a page must not change what an exception reports. */
    env->error_code = error_code;
    return *flags & TLB_INVALID_MASK ? NULL : full;
}

/* Where the host has what may be written */
static inline void *retire_mem_tlb(CPUX86State *env, uint64_t addr, int mmu_idx)
{
    const CPUTLBEntry *entry = retire_mem_entry(env, addr, MMU_DATA_STORE,
                                                mmu_idx);

    return entry ? (void *)((uintptr_t)addr + entry->addend) : NULL;
}
#endif

/*
 * Where the host has a range that is going to be written, or NULL if only
 * cpu_stq_le_mmuidx_ra() and the like reach it now.  The host's accesses are
 * between set_helper_retaddr(m->ra) and clear_helper_retaddr(), because the
 * first one may raise a #PF.
 */
static inline void *retire_mem_host(const RetireMem *m, uint64_t addr,
                                    uint32_t len)
{
    if ((addr ^ (addr + len - 1)) & TARGET_PAGE_MASK) {
        return NULL;
    }
#ifdef CONFIG_USER_ONLY
    /* The host raises it. */
    return guest_addr_valid_untagged(addr) ? g2h_untagged(addr) : NULL;
#else
#ifdef CONFIG_PLUGIN
    if (env_cpu(m->env)->neg.plugin_mem_cbs) {
        return NULL;    /* plugins are told of what helpers store */
    }
#endif
    return retire_mem_tlb(m->env, addr, m->mmu_idx);
#endif
}

/* Raise the #PF that writing a range would, unless the first access does. */
static inline void retire_mem_probe(const RetireMem *m, uint64_t addr,
                                    uint32_t len)
{
    if (!retire_mem_host(m, addr, len)) {
        retire_mem_flags(m, addr, len, false);
    }
}

static inline bool retire_mem_writable(const RetireMem *m, uint64_t addr,
                                       uint32_t len)
{
    /* A watchpoint takes the CPU elsewhere, too. */
    return !(retire_mem_flags(m, addr, len, true) &
             (TLB_INVALID_MASK | TLB_WATCHPOINT));
}

#endif
