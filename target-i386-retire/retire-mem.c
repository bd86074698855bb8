/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: guest memory for who keeps records there. */

#include "qemu/osdep.h"
#include "retire-mem.h"

int retire_mem_flags(const RetireMem *m, uint64_t addr, uint32_t len,
                     bool nonfault, void **host)
{
    int flags = 0;

    while (len) {
        uint32_t n = MIN(len, -(addr | TARGET_PAGE_MASK));

        /* Not probe_write(): watchpoints are for what is really written. */
        flags |= probe_access_flags(m->env, addr, n, MMU_DATA_STORE,
                                    m->mmu_idx, nonfault, host, m->ra);
        addr += n;
        len -= n;
    }
    return flags;
}

void *retire_mem_probe(const RetireMem *m, uint64_t addr, uint32_t len)
{
    bool pages = (addr ^ (addr + len - 1)) & TARGET_PAGE_MASK;
    void *host;

    if (pages) {
        retire_mem_flags(m, addr, len, false, &host);
        return NULL;
    }
#ifdef CONFIG_USER_ONLY
    /* The host raises it, unless it is TCI's, whose code is nowhere. */
    if (m->ra && guest_addr_valid_untagged(addr)) {
        return g2h_untagged(addr);
    }
#endif
    /* As retire_mem_flags() does it */
    return probe_access_flags(m->env, addr, len, MMU_DATA_STORE, m->mmu_idx,
                              false, &host, m->ra) ? NULL : host;
}
