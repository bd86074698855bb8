#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/perf-models.sh [--release 10.0] [--minutes N]
#
# Debian's perf has events of its own, for which Linux knows each processor's
# codes: guest/test/pmu-generic on all processors that there are counters of,
# with two kernels; and names and metrics of four processors, which
# guest/test/pmu-names counts.  What has been done is kept in build/long, for this
# QEMU, and not done again; with --minutes, no guest is started later than that.
# Prints a line of PASS or FAIL for each event, and SKIP if processors are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
mkdir -p "$state"
left=

# One of each row of the engine's table, by family and model
intel='6.3 6.13 6.14 6.15 6.28 6.133 6.95 6.134 6.175 6.26 6.44 6.42 6.58 6.60
    6.61 6.94 6.106 6.143 6.221'
amd='15.107 21.2 23.1 23.49 24.0 25.1 25.17 26.2'
zhaoxin='7.27 7.59'

for kernel in 6.1 6.12; do
    for processor in $intel $amd $zhaoxin; do
        done=$state/$kernel-$processor
        log=$done.log
        [ ! -e "$done" ] || continue
        if late; then
            left="$left $kernel-$processor"
            continue
        fi
        cpu=max,family=${processor%.*},model=${processor#*.}
        case $processor in
        6.*) cpu=$cpu,vendor=GenuineIntel ;;
        7.*) cpu=$cpu,vendor=CentaurHauls ;;
        24.*) cpu=$cpu,vendor=HygonGenuine ;;
        esac
        "$top/scripts/boot" --release "$release" --perf --kernel "$kernel" \
            --cpu "$cpu,pmu=on,insn-clocks=2" --test pmu-generic \
            > "$log" 2>&1
        status=$?
        tr -d '\r' < "$log" | sed -n \
            "s/^\(PASS\|FAIL\) pmu-generic: /\1 perf-models: $kernel $processor: /p" \
            > "$state/new"
        [ $status = 0 ] && [ -s "$state/new" ] || grep -q '^FAIL' "$state/new" ||
            echo "FAIL perf-models: $kernel $processor: $(tail -n 1 "$log")" \
                >> "$state/new"
        cat "$state/new"
        mv "$state/new" "$done"
    done
done

# perf's names and metrics, on four processors: what is 0 has a reason
list_events
for processor in 'Intel 6 8f' 'Intel 6 5e' 'AMD 19 11' 'AMD 17 31'; do
    case $processor in
    *8f) cpu=SapphireRapids ;;
    *5e) cpu=Skylake-Client ;;
    *11) cpu=EPYC-Genoa,perfmon-v2=on ;;
    *31) cpu=EPYC-Rome ;;
    esac
    done=$state/6.12-$cpu
    log=$done.log
    [ ! -e "$done" ] || continue
    if late; then
        left="$left 6.12-$cpu"
        continue
    fi
    : > "$state/new"
    "$top/scripts/boot" --release "$release" --perf --kernel 6.12 \
        --cpu "$cpu,pmu=on,insn-clocks=2" --test pmu-names > "$log" 2>&1 ||
        echo "FAIL perf-models: $cpu: $(tail -n 1 "$log")" > "$state/new"
    tr -d '\r' < "$log" > "$state/text"
    "$top/tests/long/event-names.py" --guest "$state/text" \
        --processor "$processor" >> "$state/new"
    cat "$state/new"
    mv "$state/new" "$done"
done
[ -z "$left" ] || echo "SKIP perf-models: left are$left"
! cat "$state"/6.*[0-9] "$state"/6.*[a-z] 2> /dev/null | grep -q '^FAIL'
