/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The branches that lead to a system call's handling, for ./snapshot.c. */
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <bpf/bpf_helpers.h>
#include "snapshot.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct snapshot);
} snapshots SEC(".maps");

SEC("raw_tp/sys_enter")
int take(struct bpf_raw_tracepoint_args *ctx)
{
    __u32 key = 0;
    struct snapshot *s;

    if (ctx->args[1] == SYSCALL) {
        s = bpf_map_lookup_elem(&snapshots, &key);
        if (s) {
            s->size = bpf_get_branch_snapshot(s->entries, sizeof(s->entries),
                                              0);
        }
    }
    return 0;
}

char _license[] SEC("license") = "GPL";
