#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/perf-ways.sh [--release 10.0] [--minutes N]
#
# What Debian's perf counts in the guest, and where it takes its samples, does
# not depend on how TCG translates, nor on who else looks: guest/test/pmu-perf in
# all ways, with the same counts of a program that has a C library.  What has
# been done is kept in build/long, for this QEMU, and not done again; with
# --minutes, no guest is started later than that.  Prints a line of PASS or FAIL
# for each check, and SKIP if ways are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
ways='plain one-insn nochain single tb-size plugin icount gdb'
mkdir -p "$state"
stub=$state/gdb.sock
left=

for way in $ways; do
    log=$state/$way.log
    [ ! -e "$state/$way" ] || continue
    if late; then
        left="$left $way"
        continue
    fi
    case $way in
    plain) options='-accel tcg' ;;
    one-insn) options='-accel tcg,one-insn-per-tb=on' ;;
    nochain) options="-d nochain -D $state/qemu.log" ;;
    single) options='-accel tcg,thread=single' ;;
    # Not all of the kernel's blocks; with less it takes hours.
    tb-size) options='-accel tcg,tb-size=8' ;;
    plugin) options="-plugin $bld/tests/tcg/plugins/libinsn.so" ;;
    icount) options='-icount shift=0,sleep=off' ;;
    gdb) options="-gdb unix:$stub,server=on,wait=off" ;;
    esac
    [ "$way" != gdb ] || ELF="$build/boot/pmu-loop" STUB="$stub" \
        timeout 1800 gdb -batch -nx -x "$top/tests/long/perf-ways.py" \
        > "$state/gdb.out" 2>&1 &
    "$top/scripts/boot" --release "$release" --perf --qemu "$options" \
        --test pmu-perf > "$log" 2>&1
    status=$?
    wait
    tr -d '\r' < "$log" |
        sed -n "s/^\(PASS\|FAIL\) pmu-perf: /\1 perf-ways: $way: /p" > "$state/new"
    [ $status = 0 ] || grep -q '^FAIL' "$state/new" ||
        echo "FAIL perf-ways: $way: $(tail -n 1 "$log")" >> "$state/new"
    [ "$way" != gdb ] || grep -E '^(PASS|FAIL) ' "$state/gdb.out" >> "$state/new" ||
        echo "FAIL perf-ways: gdb: $(tail -n 1 "$state/gdb.out")" >> "$state/new"
    counts=$(grep -o 'same counts, .*' "$state/new")
    if [ "$way" = plain ]; then
        echo "$counts" > "$state/counts"
    elif [ "$counts" != "$(cat "$state/counts")" ]; then
        echo "FAIL perf-ways: $way: $counts, were $(cat "$state/counts")" \
            >> "$state/new"
    fi
    cat "$state/new"
    mv "$state/new" "$state/$way"
done
[ -z "$left" ] || echo "SKIP perf-ways: left are$left"
cd "$state" || exit
# shellcheck disable=SC2086 # words
! cat $ways 2> /dev/null | grep -q '^FAIL'
