/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A snapshot of branches that a BPF program takes: it is as long as there are
 * branch records, and each branch starts at or behind the target of the one
 * before it, in the same piece of code.
 *
 * usage: snapshot DEPTH
 */
#define _GNU_SOURCE
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "snapshot.h"

static void open_event(int cpu)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_HARDWARE,
        .size = sizeof(attr),
        .config = PERF_COUNT_HW_CPU_CYCLES,
        .sample_type = PERF_SAMPLE_BRANCH_STACK,
        .branch_sample_type = PERF_SAMPLE_BRANCH_KERNEL |
                              PERF_SAMPLE_BRANCH_USER | PERF_SAMPLE_BRANCH_ANY,
    };

    if (syscall(SYS_perf_event_open, &attr, -1, cpu, -1, 0) < 0) {
        perror("FAIL pmu-branches: snapshot: perf_event_open");
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct bpf_object *object = bpf_object__open_file("snapshot.bpf.o", NULL);
    struct bpf_program *program;
    struct snapshot s = { 0 };
    __u32 key = 0;
    int bad = 0, n, depth = atoi(argv[argc - 1]);

    for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++) {
        open_event(cpu);
    }
    if (!object || bpf_object__load(object)) {
        puts("FAIL pmu-branches: snapshot: is not loaded");
        return 1;
    }
    program = bpf_object__find_program_by_name(object, "take");
    if (!bpf_program__attach(program)) {
        puts("FAIL pmu-branches: snapshot: is not attached");
        return 1;
    }
    syscall(SYSCALL, -1, 0);
    bpf_map_lookup_elem(bpf_object__find_map_fd_by_name(object, "snapshots"),
                        &key, &s);
    n = s.size < 0 ? s.size : s.size / (long)sizeof(s.entries[0]);
    for (int i = 0; i < n; i++) {
        const struct perf_branch_entry *e = &s.entries[i];

        if (i + 1 < n && (e->from < e[1].to || e->from > e[1].to + 4096)) {
            bad++;
        }
        printf("%llx => %llx\n", e->from, e->to);
    }
    printf("%s pmu-branches: snapshot: %d of %d branches, %d not behind the "
           "one before\n", n == depth && !bad ? "PASS" : "FAIL", n, depth, bad);
    return n != depth || bad;
}
