/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What ./snapshot.bpf.c tells ./snapshot.c */

#define SYSCALL 448             /* process_mrelease, which nobody calls */

struct snapshot {
    long size;                  /* in bytes, or an error */
    struct perf_branch_entry entries[64];
};
