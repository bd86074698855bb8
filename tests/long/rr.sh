#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/rr.sh [--release 10.0] [--minutes N]
#
# 100 recordings of rr in the guest, each replayed three times: eight programs,
# spread over CPU models and kernels.  What has been done is kept in build/long,
# for this QEMU, and not done again; with --minutes, no guest is started later
# than that.  Prints a line of PASS or FAIL for each, and SKIP if some are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
recordings=100
programs='bzip2 gzip sqlite3 perl python3 threads threads32 signals'
skylake=max,vendor=GenuineIntel,family=6,model=94,stepping=3,pmu=on
state=$state.txt
touch "$state"

# A guest for each group of recordings, one of each program
group=0
while [ $((8 * group)) -lt $recordings ]; do
    case $((group % 3)) in
    0) model=max cpu=$skylake ;;
    1) model=Skylake-Client cpu=Skylake-Client,pmu=on ;;
    2) model=EPYC cpu=EPYC,pmu=on ;;
    esac
    case $((group / 3 % 2)) in
    0) kernel=6.1 ;;
    1) kernel=6.12 ;;
    esac
    n=$((8 * group))
    set --
    for p in $programs; do
        [ $n -ge $recordings ] || grep -q "^[A-Z]* rr-long: $n:" "$state" ||
            set -- "$@" "rr-replay=$p=$n=3"
        n=$((n + 1))
    done
    group=$((group + 1))
    [ $# -gt 0 ] || continue
    ! late || break
    "$top/scripts/boot" --release "$release" --rr --cpu "$cpu" \
        --kernel "$kernel" --test "$@" > "$log" 2>&1
    tr -d '\r' < "$log" | sed -n \
        "s/^\([A-Z]*\) rr-replay: \([^ ]*\) \([0-9]*\): /\1 rr-long: \3: $model, $kernel, \2: /p" |
        tee -a "$state"
    for job; do
        n=${job%=*}
        n=${n##*=}
        grep -q "^[A-Z]* rr-long: $n:" "$state" ||
            echo "FAIL rr-long: $n: $model, $kernel, $job: $(tail -n 1 "$log")" |
                tee -a "$state"
    done
    cp "$log" "$build/long/rr-group-$group.log"
    echo "rr-long: $(wc -l < "$state") of $recordings"
done
left=$((recordings - $(wc -l < "$state")))
[ $left = 0 ] || echo "SKIP rr-long: $left of $recordings are left"
! grep -q '^FAIL' "$state"
