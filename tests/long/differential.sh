#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/differential.sh [--release 10.0] [--minutes N]
#
# 3,000 random programs, 250 in each mode (32 and 64 bit; user, system, TLBs, PEBS, IBS,
# branch records), and twelve of Debian's, by tests/oracle/differential; and TLBs
# and L1I under nine of Debian's in Linux, by tests/oracle/tlb-oracle.  What has
# been done is kept in build/long, for this QEMU, and not done again; with
# --minutes, nothing is started later than that.  Prints a line of PASS or FAIL
# for each ten programs, or one of the last, and SKIP if some are left; the seed
# in it reproduces a failure.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
# shellcheck source=scripts/kernel.sh
. "$top/scripts/kernel.sh"
need_packages libipt-dev >> "$log" || exit
state=$state.txt
touch "$state"
export PYTHONDONTWRITEBYTECODE=1

# Modes in turns, ten random programs each
left=0
chunk=0
while [ $chunk -lt 25 ]; do
    for mode in user64 user32 system64 system32 tlb64 tlb32 branches64 \
        branches32 pebs64 pebs32 ibs64 ibs32 pt64 pt32 debian; do
        count=10
        if [ $mode = debian ]; then
            [ $chunk -lt 12 ] || continue
            count=1
        fi
        seed=$((1000 + chunk * count))
        ! grep -q " differential-long/$mode: seeds $seed to" "$state" ||
            continue
        if late; then
            left=$((left + count))
            continue
        fi
        if "$top/tests/oracle/differential" --mode $mode --seed $seed \
            --count $count "$bld" > "$log" 2>&1; then
            sed -n 's,^PASS differential/,PASS differential-long/,p' "$log"
        else
            echo "FAIL differential-long/$mode: seeds $seed to" \
                "$((seed + count - 1)):" \
                "$(grep -m 1 '^FAIL' "$log" || tail -n 1 "$log")"
        fi | tee -a "$state"
    done
    chunk=$((chunk + 1))
done

choose_kernel 6.1
(fetch_kernel) >> "$log" 2>&1 || fail "there is no kernel"
version=$(cat "$kernel/complete")
for seed in 0 1 2 3 4 5 6 7 8; do
    ! grep -q " tlb-oracle-long: seed $seed:" "$state" || continue
    if late; then
        left=$((left + 1))
        continue
    fi
    if "$top/tests/oracle/tlb-oracle" --seed $seed --count 1 \
        "$bld/qemu-system-x86_64" "$(dirname "$(find "$tree/include" -name qemu-plugin.h)")" \
        "$kernel/boot/vmlinuz-$version" \
        "$kernel/lib/modules/$version/kernel/arch/x86/kernel/msr.ko" \
        > "$log" 2>&1; then
        sed -n 's,^PASS tlb-oracle:,PASS tlb-oracle-long:,p' "$log"
    else
        echo "FAIL tlb-oracle-long: seed $seed:" \
            "$(grep -m 1 '^FAIL' "$log" || tail -n 1 "$log")"
    fi | tee -a "$state"
done
[ $left = 0 ] || echo "SKIP differential-long: $left of 1521 programs are left"
! grep -q '^FAIL' "$state"
