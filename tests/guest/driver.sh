#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/guest/driver.sh [--release 10.0]
#
# The Linux driver in the guest: the programs of guest/test on the oldest and
# the newest kernel that Debian 12 has, which has to have nothing to warn of.
# Prints a line of PASS or FAIL for each of their checks.
set -u

top=$(cd "$(dirname "$0")/../.." && pwd)
failed=0

for kernel in 6.1 6.12; do
    log=$top/build/logs/guest-driver-$kernel.log
    "$top/scripts/boot" "$@" --kernel $kernel --test lwp-stress lwp-stress32 \
        lwp-leak lwp-notify lwp-load=20=/lib/lwp.ko lwp-outlive > "$log" 2>&1
    status=$?
    tr -d '\r' < "$log" | grep -E '^(PASS|FAIL) ' | sed "s/ / $kernel-/"
    if [ $status != 0 ]; then
        echo "FAIL guest-driver-$kernel: $(tail -n 1 "$log")"
        failed=1
    fi
done
exit $failed
