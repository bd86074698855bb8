#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/geometry.sh [--release 10.0]
#
# All CPU models that have performance counters: CPUID shows the caches that the
# properties l1d-size and its like name, in all its leaves, and the counters
# find these caches (tests/tcg/x86_64/system/pmu-geometry.c); by default, and
# with other properties.  Prints a line of PASS or FAIL for each.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
make -r -C "$bld/tests/tcg/x86_64-softmmu" -s SRC_PATH="$tree" pmu-geometry \
    >> "$log" 2>&1 || fail "pmu-geometry cannot be built"
"$top/tests/long/geometry.py" "$bld"
