#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/guest/perf.sh [--release 10.0] [KERNEL...]
#
# Debian's perf in the guest, on the oldest and the newest kernel that Debian 12
# has, or on those that are named: the demo, exact counts, samples, branch records,
# AMD's IBS, Intel PT, P4's counters, and a log of the kernel that warns of nothing, and calls
# nothing invalid, but what it has without counters; and scripts/boot --run.  Prints
# a line of PASS or FAIL for each.
set -u

release=
if [ "${1:-}" = --release ]; then
    release=$2
    shift 2
fi
[ $# -gt 0 ] || set -- 6.1 6.12

# shellcheck source=tests/guest/common
. "$(dirname "$0")/common"

# boot NAME OPTION...: scripts/boot's status; the output is left in $log.
boot() {
    name=guest-$1
    log=$logs/$name.log
    shift
    "$top/scripts/boot" ${release:+--release "$release"} "$@" > "$log" 2>&1
}

result() {
    echo "$*"
    [ "$1" = PASS ] || failed=1
}

# As boot, and a result of it.
passes() {
    if boot "$@"; then
        result PASS "$name"
    else
        result FAIL "$name: $(tail -n 1 "$log")"
    fi
}

# What programs of guest/test say
reports() {
    tr -d '\r' < "$log" | grep -E '^(PASS|FAIL) ' | sed "s/ / $kernel-/"
}

# The kernel's warnings and the like, which pmu-dmesg prints, but for those of time,
# which a busy host is behind
warnings() {
    tr -d '\r' < "$log" | sed -n 's/^dmesg: //p' | sort |
        grep -Ev 'calibrat|8254 timer|h(pet|rtimer):|clocksource|TSC found unstable|too long'
}

for kernel; do
    passes "perf-$kernel" --perf --kernel "$kernel" --html
    page=$top/$(sed -n 's/.*the picture is \(.*\); for more.*/\1/p' "$log")
    if grep -A 20 -w mainSort "$page" | grep -qw BZ2_compressBlock; then
        result PASS "$name-page"
    else
        result FAIL "$name-page: '$page' has no callers of mainSort"
    fi
    passes "perf-counts-$kernel" --perf --kernel "$kernel" --test pmu-perf \
        pmu-branches=--quick=32 pmu-pebs=3+ \
        pmu-memory=--quick=stores pmu-dmesg
    reports
    warnings > "$logs/warnings"
    # It has no counters, so scripts/boot is right to fail.
    if boot "perf-off-$kernel" --perf --kernel "$kernel" \
        --cpu max,vendor=GenuineIntel,family=6,model=94,stepping=3 \
        --test pmu-dmesg; then
        result FAIL "$name: works without counters"
    fi
    if new=$(warnings | comm -13 - "$logs/warnings") && [ -z "$new" ]; then
        result PASS "$name"
    else
        result FAIL "$name: with counters the kernel says '$new'"
    fi
    passes "perf-pt-$kernel" --perf --kernel "$kernel" \
        --cpu max,vendor=GenuineIntel,family=6,model=94,stepping=3,pmu=on,intel-pt=on \
        --test pmu-pt
    reports
    if [ "$kernel" = 6.1 ]; then
        passes perf-p4 --perf --cpu kvm64,pmu=on --append nmi_watchdog=1 \
            --test pmu-p4
        reports
    fi
done
# On the last one: precise events behind a suspend to RAM, where a program does
# not have the kernel's pages; and AMD's instruction-based sampling.
passes "perf-suspend-$kernel" --perf --kernel "$kernel" --append pti=on \
    --test pmu-pebs=3+=suspend
reports
passes "perf-ibs-$kernel" --perf --kernel "$kernel" --cpu EPYC-Genoa,pmu=on \
    --test pmu-ibs=0=0x00000bff pmu-dmesg
reports
exit $failed
