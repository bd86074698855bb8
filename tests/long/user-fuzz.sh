#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/user-fuzz.sh [--release 10.0] [--minutes N]
#
# A million iterations of tests/tcg/i386/lwp-fuzz.c, in runs with a seed each,
# under qemu-x86_64 and qemu-i386 in turns.  What has been done is kept in
# build/long, for this QEMU, and not done again; with --minutes, no run is
# started later than that.  Prints a line of PASS or FAIL for each, and SKIP if
# some are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
runs=50
iterations=7000         # of each of three threads
for arch in x86_64 i386; do
    make -r -C "$tree/build/tests/tcg/$arch-linux-user" SRC_PATH="$tree" \
        lwp-fuzz >> "$log" 2>&1 || fail "the test program does not build"
done

state=$state.txt
touch "$state"
n=0
while [ $n -lt $runs ]; do
    n=$((n + 1))
    ! grep -q "^[A-Z]* user-fuzz: $n:" "$state" || continue
    ! late || break
    if [ $((n % 2)) = 0 ]; then arch=i386; else arch=x86_64; fi
    out=$build/long/user-fuzz-$n.out
    timeout 900 "$tree/build/qemu-$arch" -cpu max,+lwp \
        "$tree/build/tests/tcg/$arch-linux-user/lwp-fuzz" \
        "$n" "$iterations" > "$out" 2>&1
    status=$?
    if [ $status != 0 ]; then
        result="FAIL user-fuzz: $n: $arch: status $status; see $out"
    else
        result="PASS user-fuzz: $n: $arch"
        rm "$out"
    fi
    echo "$result" | tee -a "$state"
    echo "user-fuzz: $(wc -l < "$state") of $runs runs," \
        "$(grep -c '^FAIL' "$state") failed"
done
left=$((runs - $(wc -l < "$state")))
[ $left = 0 ] || echo "SKIP user-fuzz: $left of $runs runs are left"
! grep -q '^FAIL' "$state"
