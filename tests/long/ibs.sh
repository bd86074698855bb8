#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/ibs.sh [--release 10.0] [--minutes N]
#
# Debian's perf with Instruction-Based Sampling, guest/test/pmu-ibs, on each of
# AMD's models, with two kernels; loads by perf mem, which have to be found where
# PEBS finds them; and an hour of starts and stops.  What has been done is kept in
# build/long, for this QEMU, and not done again; with --minutes, no guest is started
# later than that.  Prints a line of PASS or FAIL for each thing that is checked, and
# SKIP if guests are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
mkdir -p "$state"
left=

# guest NAME OPTION...: a guest with Debian's perf, and the results of its test,
# unless there are any; or false
guest() {
    done=$state/$1
    what=$(echo "$1" | tr - ' ')
    [ ! -e "$done" ] || return 0
    if late; then
        left="$left $1"
        return 1
    fi
    log=$done.log
    shift
    boot "$log" "$@" < /dev/null
    status=$?
    tr -d '\r' < "$log" |
        sed -n "s/^\(PASS\|FAIL\) pmu-ibs: /\1 ibs: $what: /p" > "$state/new"
    [ $status = 0 ] || grep -q '^FAIL' "$state/new" ||
        echo "FAIL ibs: $what: $(tail -n 1 "$log")" >> "$state/new"
    cat "$state/new"
    mv "$state/new" "$done"
}

# LVT offset and capabilities
while read -r model arguments; do
    for kernel in 6.1 6.12; do
        guest "$kernel-$model" --kernel "$kernel" --cpu "$model,pmu=on" \
            --test "pmu-ibs=$arguments" pmu-dmesg
    done
done << 'END'
phenom 1=0x0000001f
Opteron_G5 1=0x000000ff
EPYC 0=0x000003ff
EPYC-Milan 0=0x000003ff
EPYC-Genoa 0=0x00000bff
END

# Where a line that others have modified is told; perf of 6.1 does not show it
for model in EPYC EPYC-Genoa; do
    guest "c2c-$model" --kernel 6.12 --cpu "$model,pmu=on" \
        --qemu '-accel tcg,thread=single' --test pmu-ibs=c2c
done

# levels NAME: how many samples of loads, and per mille of each level
levels() {
    tr -d '\r' < "$state/$1.log" | sed -n 's/^pmu-memory: levels //p'
}

# The same caches; and Skylake's PEBS
caches=l1d-size=16K,l1d-assoc=4,l2-size=512K,l2-assoc=8,l3-size=8M,l3-assoc=16
pebs=max,vendor=GenuineIntel,family=6,model=94,stepping=3
guest levels-PEBS --kernel 6.12 --cpu "$pebs,pmu=on,$caches" \
    --test pmu-memory=levels
for model in EPYC EPYC-Milan EPYC-Genoa; do
    guest "levels-$model" --kernel 6.12 --cpu "$model,pmu=on,$caches" \
        --test pmu-memory=levels || continue
    [ -e "$state/levels-PEBS" ] || continue
    # Four standard deviations, and the page faults
    echo "$(levels levels-PEBS) $(levels "levels-$model")" | awk -v model="$model" '
        {
            ok = NF == 10 && $1 > 1000 && $6 > 1000
            for (i = 2; i <= 5; i++) {
                p = $i / 1000
                s = sqrt((p * (1 - p) + 0.001) * (1 / $1 + 1 / $6))
                d = p - $(i + 5) / 1000
                ok = ok && d * d < (4 * s + 0.01) ^ 2
            }
            print (ok ? "PASS" : "FAIL") " ibs: levels " model ": " $0
        }'
done > "$state/levels.new"
cat "$state/levels.new"
mv "$state/levels.new" "$state/levels"

# An hour of it, in three guests
for n in 1 2 3; do
    guest "stops-$n" --kernel 6.12 --cpu EPYC,pmu=on --test pmu-ibs=stops=1200
done
[ -z "$left" ] || echo "SKIP ibs: left are$left"
! find "$state" -type f ! -name '*.log' -exec cat {} + | grep -q '^FAIL'
