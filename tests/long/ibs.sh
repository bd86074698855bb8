#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/ibs.sh [--release 10.0] [--minutes N]
#
# Debian's perf with Instruction-Based Sampling, guest/test/pmu-ibs, on each of
# AMD's models, with two kernels.  What has been done is kept in build/long, for
# this QEMU, and not done again; with --minutes, no guest is started later than
# that.  Prints a line of PASS or FAIL for each thing that is checked, and SKIP if
# models are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
mkdir -p "$state"
left=

# LVT offset and capabilities, and where a line that others have modified is told;
# perf of 6.1 does not show it by c2c.
while read -r model arguments c2c; do
    for kernel in 6.1 6.12; do
        done=$state/$kernel-$model
        log=$done.log
        [ ! -e "$done" ] || continue
        if late; then
            left="$left $kernel-$model"
            continue
        fi
        with=
        [ $kernel = 6.1 ] || with=${c2c:+=c2c}
        "$top/scripts/boot" --release "$release" --perf --kernel "$kernel" \
            --cpu "$model,pmu=on" --test "pmu-ibs=$arguments$with" pmu-dmesg \
            > "$log" 2>&1 < /dev/null
        status=$?
        tr -d '\r' < "$log" | sed -n \
            "s/^\(PASS\|FAIL\) pmu-ibs: /\1 ibs: $kernel $model: /p" \
            > "$state/new"
        [ $status = 0 ] && [ -s "$state/new" ] || grep -q '^FAIL' "$state/new" ||
            echo "FAIL ibs: $kernel $model: $(tail -n 1 "$log")" >> "$state/new"
        cat "$state/new"
        mv "$state/new" "$done"
    done
done << 'END'
phenom 1=0x0000001f
Opteron_G5 1=0x000000ff
EPYC 0=0x000003ff c2c
EPYC-Milan 0=0x000003ff
EPYC-Genoa 0=0x00000bff c2c
END
[ -z "$left" ] || echo "SKIP ibs: left are$left"
! cat "$state"/6.*[!g] 2> /dev/null | grep -q '^FAIL'
