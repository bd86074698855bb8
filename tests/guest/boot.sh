#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/guest/boot.sh [--release 10.0]
#
# Boot a stock Linux guest with LWP, with the oldest kind of CPU that had it,
# and without it, where scripts/boot has to say why it fails.  Prints a line
# of PASS or FAIL for each.
set -u

# shellcheck source=tests/guest/common
. "$(dirname "$0")/common"

# boot CPU: scripts/boot's status; its last line is left in $last.
boot() {
    cpu=$1
    shift
    "$top/scripts/boot" "$@" --cpu "$cpu" > "$logs/guest-$cpu.log" 2>&1
    status=$?
    last=$(tail -n 1 "$logs/guest-$cpu.log")
    return $status
}

fail() {
    echo "FAIL guest-boot-$cpu: $*; see build/logs/guest-$cpu.log"
    failed=1
}

for model in max,+lwp Opteron_G5,+lwp; do
    if boot "$model" "$@"; then
        echo "PASS guest-boot-$cpu"
    else
        fail "$last"
    fi
done

if boot max "$@"; then
    fail "succeeds without LWP"
else
    case $last in
    *'/proc/cpuinfo does not list lwp: -cpu max has no LWP'*)
        echo "PASS guest-boot-$cpu" ;;
    *) fail "$last" ;;
    esac
fi
exit $failed
