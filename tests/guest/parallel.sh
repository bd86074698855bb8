#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/guest/parallel.sh [--release 10.0]
#
# Four of scripts/boot at once wait for each other while they build, say so, and
# then have guests, outputs and profiles of their own.  Prints a line of PASS or
# FAIL for each.
set -u

# shellcheck source=tests/guest/common
. "$(dirname "$0")/common"
dir=$build/parallel
rm -rf "$dir"
mkdir -p "$dir" && cd "$dir" || exit 1

lock 9 "$build/lock"
for n in 1 2 3 4; do
    {
        # shellcheck disable=SC2016 # for the program
        "$top/scripts/boot" "$@" --run --lwp \
            sh -c 'echo "number $1"; exit $1' name$n $n > $n.output 2> $n.errors
        echo $? > $n.status
    } 9>&- &
done
# They all come here; then they start at the same moment.
for _ in $(seq 1800); do
    [ "$(cat ./*.errors | grep -c "waiting for tests/guest/parallel.sh, process $$$")" != 4 ] ||
        break
    sleep 0.1
done
unlock 9
wait

for n in 1 2 3 4; do
    name=guest-parallel-$n
    # As it says itself
    profile=$(sed -n 's/.*lwp report -i //p' $n.errors)
    if ! grep -q 'waiting for tests/guest/parallel.sh' $n.errors; then
        echo "FAIL $name: does not wait for what is being built"
    elif [ "$(cat $n.status)" != $n ] || [ "$(head -n 1 $n.output)" != "number $n" ]; then
        echo "FAIL $name: status $(cat $n.status); see '$dir/$n.errors'"
    elif ! grep -qs "name$n" "$top/$profile"; then
        echo "FAIL $name: $profile is another's"
    else
        echo "PASS $name"
        continue
    fi
    failed=1
done
exit $failed
