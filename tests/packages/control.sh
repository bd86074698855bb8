#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/packages/control.sh
#
# What debian/control says that the packages for arm64 depend on, and the libraries
# that their programs are linked with, can be installed in Debian 12 and 13 of arm64.
# Prints a line of PASS or FAIL for each.
# shellcheck disable=SC2317 # cached calls one
set -u

# shellcheck source=tests/packages/common
. "$(dirname "$0")/common"

# depends: of the packages that there are for arm64, without what is filled in
depends() {
    awk -v RS= '/\nArchitecture:[^\n]* arm64/' "$root/debian/control" |
        sed -n '/^Depends:/,/^[A-Z]/ { s/^Depends://; /^[A-Z]/d; s/\${.*}//; s/,//; p; }'
}

# satisfied SUITE NAME...: apt would install them on a machine that has nothing.
satisfied() {
    conf=$1:arm64
    shift
    (apt_lists "$conf") > "$log" 2>&1 &&
        apt_suite "$conf" -o Dir::State::status=/dev/null -s \
            --no-install-recommends install "$@" >> "$log" 2>&1
}

# shellcheck disable=SC2046,SC2086 # names
for suite in bookworm trixie; do
    log=$logs/packages-control-$suite.log
    set -- $(depends) $cross_libraries
    if [ $# -lt 12 ]; then
        result FAIL "packages-arm64-$suite: debian/control names $# packages"
    elif cached satisfied $suite "$@"; then
        result PASS "packages-arm64-$suite: $# packages can be installed"
    else
        result FAIL "packages-arm64-$suite: $(tail -n 1 "$log"); see $log"
    fi
done
exit $failed
