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

release=10.0
minutes=
while [ $# -gt 0 ]; do
    case $1 in
    --release) release=$2 ;;
    --minutes) minutes=$2 ;;
    *) echo "${0##*/}: unknown argument '$1'" >&2; exit 1 ;;
    esac
    shift 2
done

top=$(cd "$(dirname "$0")/../.." && pwd)
build=$top/build
runs=50
iterations=7000         # of each of three threads
started=$(date +%s)
log=$build/logs/long-user-fuzz.log
mkdir -p "$build/logs" "$build/long"
tree=$build/qemu-$release

# Is the time up?
late() {
    [ "$minutes" ] && [ $(($(date +%s) - started)) -ge $((60 * minutes)) ]
}

fail() {
    echo "FAIL user-fuzz: $*; see $log"
    exit 1
}

"$top/scripts/build" --release "$release" > "$log" 2>&1 ||
    fail "scripts/build failed"
for arch in x86_64 i386; do
    make -C "$tree/build/tests/tcg/$arch-linux-user" SRC_PATH="$tree" \
        lwp-fuzz >> "$log" 2>&1 || fail "the test program does not build"
done

head=$(git -C "$tree" rev-parse --short=12 HEAD)
state=$build/long/user-fuzz-$head.txt
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
    echo "user-fuzz: $(wc -l < "$state") of $runs runs"
done
left=$((runs - $(wc -l < "$state")))
[ $left = 0 ] || echo "SKIP user-fuzz: $left of $runs runs are left"
! grep -q '^FAIL' "$state"
