#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/event-names.sh [--release 10.0] [--minutes N]
#
# The manufacturers' lists of events, as the sources of Debian's kernels have
# them for perf, and that of libpfm4 for older processors: what
# tests/long/event-names.py says of them.  Prints a line of PASS or FAIL for each
# processor.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
mkdir -p "$state"
! late || { echo "SKIP event-names: no time is left"; exit; }
list_events
dir=$state/sources
for source in bookworm/linux-source-6.1 bookworm-security/linux-source-6.12; do
    package=${source#*/}
    fetch_debs "$dir" "${source%/*}" "$package" >> "$log" 2>&1 ||
        fail "$package cannot be fetched"
    tar -C "$dir" -xf "$dir/usr/src/$package.tar.xz" \
        "$package/tools/perf/pmu-events/arch/x86" >> "$log" 2>&1 ||
        fail "$package has no lists"
done
(cd "$dir" && apt_suite bookworm --download-only source libpfm4 &&
    tar -xf libpfm4_*.orig.tar.*) >> "$log" 2>&1 ||
    fail "libpfm4 cannot be fetched"
"$top/tests/long/event-names.py" "$dir/linux-source-6.1" \
    "$dir/linux-source-6.12" "$dir"/libpfm-*
status=$?
rm -rf "$dir"
exit "$status"
