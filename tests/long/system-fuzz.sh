#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/system-fuzz.sh [--release 10.0] [--minutes N]
#
# A million iterations of tests/tcg/x86_64/system/pmu-fuzz.c, in runs of 20,000
# with a seed each, spread over CPU models, in a QEMU that is built for it with
# AddressSanitizer, UBSan and --enable-debug-tcg.  What has been done is kept in
# build/long, for this QEMU, and not done again; with --minutes, no run is
# started later than that.  Prints a line of PASS or FAIL for each, and SKIP if
# some are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
runs=50
iterations=20000
fuzz=$build/fuzz-qemu-$release
configure_qemu "$fuzz" --target-list=x86_64-softmmu --enable-asan \
    --enable-ubsan --enable-debug-tcg
ninja -C "$fuzz" qemu-system-x86_64 >> "$log" 2>&1 || fail "ninja failed"
make -r -C "$bld/tests/tcg/x86_64-softmmu" SRC_PATH="$tree" pmu-fuzz \
    >> "$log" 2>&1 || fail "the test program does not build"

# QEMU itself looks for notes in an ELF file where they are.
ignore=$build/long/system-fuzz-ignore
echo 'alignment:x86-common.c' > "$ignore"

state=$state.txt
touch "$state"
n=0
while [ $n -lt $runs ]; do
    n=$((n + 1))
    ! grep -q "^[A-Z]* system-fuzz: $n:" "$state" || continue
    ! late || break
    case $((n % 3)) in
    0) cpu=EPYC,pmu=on ;;
    1) cpu=max,vendor=GenuineIntel,family=6,model=94,stepping=3,pmu=on,+lwp ;;
    2) cpu=Opteron_G5,pmu=on,+lwp ;;
    esac
    out=$build/long/system-fuzz-$n
    ASAN_OPTIONS=detect_leaks=0 \
        UBSAN_OPTIONS=print_stacktrace=1:suppressions=$ignore \
        timeout 1800 "$fuzz/qemu-system-x86_64" \
        -L "$bld/qemu-bundle/usr/local/share/qemu" \
        -monitor none -display none -no-reboot -smp 2 -cpu "$cpu" \
        -chardev "file,path=$out.out,id=output" \
        -device isa-debugcon,chardev=output \
        -device isa-debug-exit,iobase=0xf4,iosize=0x4 \
        -append "$n:$iterations" \
        -kernel "$bld/tests/tcg/x86_64-softmmu/pmu-fuzz" \
        > "$out.err" 2>&1
    status=$?
    if grep -qE 'Sanitizer|runtime error' "$out.err"; then
        result="FAIL system-fuzz: $n: $cpu: a sanitizer's report in $out.err"
    elif [ $status != 0 ] || ! grep -q '^SUMMARY: 2 tests, 0 fail' "$out.out"; then
        result="FAIL system-fuzz: $n: $cpu: status $status; see $out.out"
    else
        result="PASS system-fuzz: $n: $cpu"
        rm "$out.out" "$out.err"
    fi
    echo "$result" | tee -a "$state"
    echo "system-fuzz: $(wc -l < "$state") of $runs runs of $iterations," \
        "$(grep -c '^FAIL' "$state") failed"
done
left=$((runs - $(wc -l < "$state")))
[ $left = 0 ] || echo "SKIP system-fuzz: $left of $runs runs are left"
! grep -q '^FAIL' "$state"
