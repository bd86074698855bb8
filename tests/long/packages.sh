#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/packages.sh [--release 10.0] [--minutes N]
#
# The packages of scripts/package: made in another directory, they are the same; in
# bare roots of Debian 12 and 13 all of qemu-lwp works for an ordinary user
# (tests/packages/install.sh), and in the image that is made of them, which has no
# network (tests/packages/image.sh); this Debian's piuparts finds nothing that they leave.
# What has been done is kept in build/long, for this QEMU, and not done again; with --minutes,
# nothing is started later than that.  Prints a line of PASS or FAIL for each.
# shellcheck disable=SC2317 # once calls them
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
[ "$release" = 10.0 ] || {
    echo "SKIP packages-long: they are of QEMU 10.0"
    exit
}
need_packages mmdebstrap piuparts >> "$log" || exit
mkdir -p "$state"
failed=0
left=

# elsewhere: the same tree in another directory makes the same packages.
elsewhere() {
    other=$build/long/packages-elsewhere
    rm -rf "$other"
    mkdir -p "$other"
    tar -C "$top" --exclude=./build --exclude=./.git -c . | tar -C "$other" -x
    "$other/scripts/package" >> "$log" 2>&1 ||
        { echo "FAIL packages-elsewhere: see $log"; return; }
    for p in "$build/packages"/*.deb; do
        n=packages-elsewhere-$(basename "$p")
        if cmp "$p" "$other/build/packages/${p##*/}" >> "$log" 2>&1; then
            echo "PASS $n"
        else
            echo "FAIL $n: is another one in another directory"
        fi
    done
    rm -rf "$other"
}

# piuparts_says SUITE: of this machine, as it takes what packages of a later one do
# for a fault of ours
piuparts_says() {
    for p in "$build/packages"/*.deb; do
        n=packages-piuparts-$1-$(basename "$p" | sed 's/_.*//')
        if as_root piuparts -d "$1" --no-eatmydata -m "$(mirror) main" "$p" \
            > "$state/piuparts.log" 2>&1; then
            echo "PASS $n"
        else
            echo "FAIL $n: $(grep -m 1 ERROR "$state/piuparts.log")"
        fi
        cat "$state/piuparts.log" >> "$log"
    done
}

# once NAME COMMAND...: its results, unless they are there
once() {
    of=$1
    shift
    if [ ! -e "$state/$of" ]; then
        ! late || { left="$left $of"; return; }
        "$@" 2>> "$log" | grep -E '^(PASS|FAIL|SKIP) ' > "$state/new"
        mv "$state/new" "$state/$of"
    fi
    cat "$state/$of"
    ! grep -q '^FAIL' "$state/$of" || failed=1
}

"$top/scripts/package" --image >> "$log" 2>&1 || fail "scripts/package failed"
once elsewhere elsewhere
once image "$top/tests/packages/image.sh"
for suite in bookworm trixie; do
    dpkg --compare-versions "$(dpkg-query -W -f '${Version}' libc6)" lt 2.41 ||
        [ $suite != bookworm ] || {
        echo "SKIP packages-bookworm: it is older than what they were made on"
        continue
    }
    once install-$suite "$top/tests/packages/install.sh" --long $suite
    [ $suite != "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" ] ||
        once piuparts-$suite piuparts_says $suite
done
[ ! "$left" ] || echo "SKIP packages-long: no time left for$left"
exit $failed
