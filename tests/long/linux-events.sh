#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/linux-events.sh [--release 10.0] [--minutes N]
#
# The list of what Linux asks of the counters, tests/unit/linux-events.c.inc, is
# what scripts/linux-events makes of the kernels that Debian has now.  Prints a
# line of PASS or FAIL.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
list=tests/unit/linux-events.c.inc
mkdir -p "$state"
! late || { echo "SKIP linux-events: no time is left"; exit; }
"$top/scripts/linux-events" --output "$state/list" > "$log" 2>&1 ||
    fail "scripts/linux-events failed"
# But for the kernels' versions
grep -v '^ \* Linux [0-9]' "$top/$list" > "$state/committed"
grep -v '^ \* Linux [0-9]' "$state/list" | diff -u "$state/committed" - >> "$log" ||
    fail "Debian's kernels have another list now: run scripts/linux-events"
echo "PASS linux-events"
