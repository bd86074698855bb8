#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/snapshots.sh [--release 10.0] [--minutes N]
#
# For LWP and for the PMU, snapshots at random moments, 1000 of one CPU and 100
# of two, each one gone on from and compared, and snapshots of which every byte
# of their sections has been changed, in ten ways: qtests that scripts/check runs
# for a moment.  Some minutes each; what has passed with this QEMU is not run
# again, and with --minutes, none is started later than that.  $QTEST_QEMU_BINARY
# may be another QEMU, with sanitizers.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
state=$state.txt
touch "$state"
QTEST_QEMU_BINARY=${QTEST_QEMU_BINARY:-$bld/qemu-system-x86_64}
export QTEST_QEMU_BINARY

failed=0
for t in lwp/migrate/bytes pmu/migrate/bytes lwp/migrate/snapshot-smp \
    pmu/migrate/snapshot-smp lwp/migrate/snapshot pmu/migrate/snapshot; do
    title=snapshots-long/$t
    log=$build/logs/long-snapshots-$(echo $t | tr / -).log
    if grep "^PASS $title: .* $QTEST_QEMU_BINARY" "$state"; then
        continue
    elif late; then
        echo "SKIP $title: is left"
        continue
    fi
    echo "snapshots: $t"
    if "$bld/tests/qtest/${t%%/*}-test" --tap -k -m slow -p "/x86_64/$t" \
        > "$log" 2>&1 && grep -q '^ok 1 ' "$log"; then
        echo "PASS $title: $(sed -n 's/^# \(.*snapshots.*\)/\1/p' "$log" |
            tail -n 1), with $QTEST_QEMU_BINARY" | tee -a "$state"
    else
        # What --seed takes, and how far it came
        sed -n 's/^# \(random seed.*\|.*snapshot.*\)/    \1/p' "$log" |
            sed '1p; $!d'
        echo "FAIL $title: see $log"
        failed=1
    fi
done
exit $failed
