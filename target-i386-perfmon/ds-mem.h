/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The debug store under TCG: guest memory for who keeps records there. */

#ifndef I386_DS_MEM_H
#define I386_DS_MEM_H

#include "cpu.h"
#include "retire/compat.h"
#include "retire/retire-mem.h"

/*
 * Where the host has what a supervisor may write, whatever runs, and without
 * regard to SMAP.
 */
typedef struct DsSpace {
    CPUX86State *env;
    int mmu_idx;
} DsSpace;

static inline DsSpace ds_space(CPUX86State *env)
{
    return (DsSpace) {
        .env = env,
        .mmu_idx = env->hflags & HF_LMA_MASK ? MMU_KNOSMAP64_IDX :
                   MMU_KNOSMAP32_IDX,
    };
}

/* A DsHost, whose @opaque is a DsSpace */
static inline void *ds_host(void *opaque, uint64_t addr, uint32_t len)
{
    DsSpace *space = opaque;
    CPUTLBEntryFull *full;
    void *host = retire_mem_tlb(space->env, addr, space->mmu_idx);
    int flags;

    if (host) {
        return host;
    }
    /*
     * This also tells whoever wants to know of what is written, but for plugins
     * of the instruction's own accesses, which would make it a device.
     */
    flags = probe_access_full_mmu(space->env, addr, len, MMU_DATA_STORE,
                                  space->mmu_idx, &host, &full);
    return flags & (TLB_INVALID_MASK | TLB_MMIO) ? NULL : host;
}

#endif
