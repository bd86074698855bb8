/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: guest memory for who keeps records there. */

#include "qemu/osdep.h"
#include "retire-mem.h"

int retire_mem_flags(const RetireMem *m, uint64_t addr, uint32_t len,
                     bool nonfault)
{
    int flags = 0;
    void *host;

    while (len) {
        uint32_t n = MIN(len, -(addr | TARGET_PAGE_MASK));

        /* Not probe_write(): watchpoints are for what is really written. */
        flags |= probe_access_flags(m->env, addr, n, MMU_DATA_STORE,
                                    m->mmu_idx, nonfault, &host, m->ra);
        addr += n;
        len -= n;
    }
    return flags;
}
