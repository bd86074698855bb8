#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/fuzz.sh [--release 10.0] [--minutes N]
#
# A million inputs for each of the fuzzers of tests/fuzz, with clang's
# sanitizers, a minute for each in turn.  The corpus that grows, and how many
# inputs these engines have had, are kept in build/long; with --minutes, no turn
# ends later than that.  Prints what has been done and is covered, and at the
# end a line of PASS, FAIL or SKIP for each.  An input that fails is kept, and
# tried first the next time.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
long=$build/long
inputs=1000000
command -v clang >> "$log" || { echo "SKIP fuzz-long: needs clang"; exit 0; }
meson=$bld/pyvenv/bin/meson
(
    export CC=clang
    meson_setup "$meson" "$long/fuzz" "$top"
) >> "$log" 2>&1
"$meson" compile -C "$long/fuzz" >> "$log" 2>&1 || fail "no fuzzers"

# What the turn of an engine needs; returns 1 if an input is known to fail.
choose() {
    fuzzer=$long/fuzz/tests/fuzz/fuzz-$1-engine
    corpus=$long/fuzz-corpus/$1-engine
    bad=$long/fuzz-$1-failed
    sum=$(cat "$top"/target-i386-*/engine/* \
        "$top/tests/fuzz/fuzz-$1-engine.c" | cksum)
    state=$long/fuzz-$1-${sum%% *}.txt
    had=$(cat "$state" 2> "$build/logs/long-fuzz.log" || echo 0)
    log=$build/logs/long-fuzz-$1.log
    [ ! -e "$bad" ]
}

# At most $2 seconds for the fuzzer of engine $1
turn() {
    mkdir -p "$corpus"
    "$fuzzer" -max_len=700 -entropic=0 -timeout=60 -report_slow_units=60 \
        -max_total_time="$2" -print_final_stats=1 -exact_artifact_path="$bad" \
        "$corpus" "$top/tests/fuzz/corpus/$1-engine" > "$log" 2>&1
    status=$?
    # 72: interrupted
    [ $status = 0 ] || [ $status = 72 ] || [ -e "$bad" ] || cp "$log" "$bad"
    new=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    had=$((had + ${new:-0}))
    echo "$had" > "$state"
    echo "fuzz: $1: $had of $inputs inputs," \
        "$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log") a second;" \
        "$(grep -o 'cov: [0-9]* ft: [0-9]* corp: [0-9]*' "$log" | tail -n 1)"
}

for e in branch ibs lwp models pmu; do
    # It may have been mended.
    choose $e || ! "$fuzzer" "$bad" > "$log" 2>&1 || rm "$bad"
done
going=1
while [ $going = 1 ]; do
    going=0
    for e in branch ibs lwp models pmu; do
        seconds=60
        if [ "$minutes" ]; then
            [ "$minutes" -ge 4 ] || seconds=$((15 * minutes))
            rest=$((started + 60 * minutes - $(date +%s)))
            [ $rest -ge $seconds ] || seconds=$rest
        fi
        if choose $e && [ "$had" -lt $inputs ] && [ $seconds -gt 0 ]; then
            turn $e $seconds
            going=1
        fi
    done
done

failed=0
for e in branch ibs lwp models pmu; do
    if ! choose $e; then
        echo "FAIL fuzz-long/$e: it fails with $bad"
        failed=1
    elif [ "$had" -lt $inputs ]; then
        echo "SKIP fuzz-long/$e: $((inputs - had)) of $inputs inputs are left"
    else
        echo "PASS fuzz-long/$e: $had inputs"
    fi
done
exit $failed
