#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/series.sh [--release 10.0] [--minutes N]
#
# The series and each piece as mails: each one builds all of QEMU, and passes the
# tests that there are by then, of which the last one's are those of the piece as
# a whole; and LWP with models, without counters.  scripts/check-series keeps what
# is proven, and no step begins later than --minutes.  Prints a line of PASS or
# FAIL for each piece, and SKIP if steps are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
mkdir -p "$state"
failed=0

# report NAME COMMAND...: run it, and keep its last line if it has ended
report() {
    done=$state/$1
    log=$build/logs/long-series-$1.log
    if [ -e "$done" ]; then
        cat "$done"
    elif late; then
        echo "SKIP series-long/$1: is left"
    elif ! (shift; "$@") > "$log" 2>&1; then
        echo "FAIL series-long/$1: see $log"
        failed=1
    elif tail -n 1 "$log" | grep -q 'stopped in front of'; then
        echo "SKIP series-long/$1: $(tail -n 1 "$log")"
    else
        echo "PASS series-long/$1: $(tail -n 1 "$log")" | tee "$done"
    fi
}

# shellcheck disable=SC2317 # called by report
mails() {
    left=
    [ -z "$minutes" ] ||
        left=$((minutes - ($(date +%s) - started) / 60))
    "$top/scripts/check-series" --release "$release" "$@" \
        ${left:+--minutes "$left"}
}

# shellcheck disable=SC2317
lwp_with_models() {
    "$top/scripts/build" --release "$release" --pieces lwp,models
    for t in lwp-test lwp-models-test; do
        (cd "$build/qemu-$release-lwp+models/build" &&
            QTEST_QEMU_BINARY=./qemu-system-x86_64 "tests/qtest/$t" --tap -k) ||
            return 1
    done
    echo 'lwp-test and lwp-models-test pass without counters'
}

for piece in account lwp pmu models branch ibs pt backend; do
    report "$piece" mails --piece "$piece"
done
report lwp+models lwp_with_models
report all mails
exit $failed
