#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/arm64.sh [--release 10.0] [--minutes N]
#
# The packages of scripts/package --arch arm64, in a bare root of Debian 13 for arm64
# whose programs Debian's qemu-aarch64 runs, so that guests are emulated twice: they are
# installed, an ordinary user records x86 programs there, and what LWP, perf and rr have
# of a program that does not depend on time is what the packages for amd64 have of it.
# Recordings of rr replay on either machine.  What has been done is kept in build/long,
# for this QEMU, and not done again; with --minutes, nothing is started later than that.
# Prints a line of PASS or FAIL for each, with the time that it took.
# shellcheck disable=SC2016,SC2317 # for the shells in there; once calls them
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
# shellcheck source=tests/packages/common
. "$top/tests/packages/common"
[ "$release" = 10.0 ] || {
    echo "SKIP arm64-long: packages are of QEMU 10.0"
    exit
}
packages=$build/packages
name=arm64
suite=arm64
uid=1000
as="HOME=/home/user"
home=/home/user
left=
registered=/proc/sys/fs/binfmt_misc/qemu-lwp-aarch64
need_packages mmdebstrap arch-test util-linux gcc libc6-dev linux-perf >> "$log" || exit
mkdir -p "$state"

# emulated: programs of arm64 run here, in any root, as long as this does.
emulated() {
    host=aarch64
    cross_tools >> "$log"
    register=${registered%/*}/register
    [ -e "$register" ] || as_root mount -t binfmt_misc none "${registered%/*}"
    trap 'as_root sh -c "echo -1 > $registered" 2> /dev/null' EXIT
    [ -e $registered ] || printf '%s' ":${registered##*/}:M::\x7fELF\x02\x01\x01\x00$(
        printf '\\x00%.0s' 1 2 3 4 5 6 7 8)\x02\x00\xb7\x00:$(
        printf '\\xff%.0s' 1 2 3 4 5 6 7)\x00$(
        printf '\\xff%.0s' 1 2 3 4 5 6 7 8)\xfe\xff\xff\xff:${emulator%% *}:F" |
        as_root tee "$register" > /dev/null
}

# once NAME COMMAND...: its results, unless they are there, and how long it took
once() {
    of=$1
    shift
    if [ ! -e "$state/$of" ]; then
        if [ "$left" ] || late; then
            left="$left $of"
            return
        fi
        began=$(date +%s)
        "$@" 2>> "$log" | grep -E '^(PASS|FAIL|SKIP) ' > "$state/new"
        echo "PASS arm64-$of-time: $(($(date +%s) - began)) s" >> "$state/new"
        mv "$state/new" "$state/$of"
    fi
    cat "$state/$of"
    ! grep -q '^FAIL' "$state/$of" || failed=1
}

# There: a root for arm64, in which user has the programs.  Here is one for amd64.
make_root() {
    dir=$state/$1
    as_root rm -rf "$dir"
    as_root mmdebstrap --mode=root --arch="$1" --skip=check/qemu --variant=apt trixie \
        "$dir" "deb $(mirror) trixie main" >> "$log" 2>&1 ||
        { echo "FAIL arm64-root-$1: see $log"; return; }
    as_root cp /etc/resolv.conf "$dir/etc"
    as_root install -d -o 1000 -g 1000 "$dir/home/user"
    as_root install -o 1000 "$state/counts" "$state/records" "$dir/home/user"
    as_root cp "$packages${2:+/$2}"/qemu-lwp_*.deb "$packages${2:+/$2}"/lwp-tools_*.deb \
        "$dir/root"
    log=$state/$1
    try "install-$1" 0 root sh -c 'apt-get update &&
        apt-get install -y --no-install-recommends /root/*.deb'
}

# on ARCH: what follows is done there.
on() {
    dir=$state/$1
    log=$state/$1
}

# What each of both has of the programs: with try's lines, and in files here
records() {
    on "$1"
    try "lwp-$1" 0 user qemu-lwp run ./records
    cp "$said" "$state/records-$1"
    try "profile-$1" 0 user qemu-lwp lwp /usr/bin/gzip --version
    says "$errors" 'wrote .*: [1-9][0-9]* records'
    try "perf-$1" 0 user qemu-lwp perf --record '-e instructions:u -c 10007' \
        --stat '-e instructions:u,branches:u' ./counts
    try "script-$1" 0 root sh -c 'cat /home/user/.cache/qemu-lwp/boot/perf.data'
    perf script -i "$said" -F ip 2>> "$log" > "$state/perf-$1"
    try "rr-$1" 0 user qemu-lwp rr ./counts
    says "$errors" '^guest: replayed'
    as_root cp "$dir/home/user/.cache/qemu-lwp/boot/recording.tar" "$state/recording-$1.tar"
}

# the_same WHAT: on both, and not nothing
the_same() {
    if [ -s "$state/$1-arm64" ] && cmp "$state/$1-amd64" "$state/$1-arm64" >> "$log" 2>&1; then
        echo "PASS arm64-$1: $(wc -l < "$state/$1-arm64") lines are the same on both"
    else
        echo "FAIL arm64-$1: $state/$1-amd64 and $state/$1-arm64 differ"
    fi
}

compare() {
    the_same records
    the_same perf
}

# replays FROM TO: what was recorded on one, on the other
replays() {
    on "$2"
    as_root install -o 1000 "$state/recording-$1.tar" "$dir/home/user/from-$1.tar"
    try "replay-$1-on-$2" 0 user qemu-lwp --quiet replay "from-$1.tar" \
        -- -batch -ex 'break main' -ex continue -ex 'print argc'
    says "$said" 'Breakpoint 1, main' '= 1$'
}

refused() {
    on arm64
    as_root cp "$dir/bin/true" "$dir/home/user/native"
    try refused 1 user qemu-lwp run ./native
    says "$errors" "is for this machine, and the guest is x86"
}

# What is recorded: counts depends on nothing, and records has LWP for itself.
cat > "$state/counts.c" << 'END'
#include <stdio.h>
int main(int argc, char **argv)
{
    static unsigned char seen[1 << 16];
    unsigned x = argc, sum = 0;
    for (int i = 0; i < 300000; i++) {
        x = x * 1103515245u + 12345u;
        if (x & 1 << 30) {
            sum ^= seen[x >> 16];
        } else {
            seen[x >> 16] += x;
        }
    }
    return printf("%s %u\n", argv[0], sum) < 0;
}
END
cat > "$state/records.c" << 'END'
#include <stdio.h>
#include "lwp.h"
static void show(const LwpRecord *r, void *unused)
{
    (void)unused;
    printf("%u %u %llx %llx\n", r->event, r->flags,
           (unsigned long long)r->ip, (unsigned long long)r->data2);
}
int main(void)
{
    LwpOptions o = {
        .events = LWP_FLAG(LWP_IRE) | LWP_FLAG(LWP_BRE),
        .period = { [LWP_IRE - 1] = 1009, [LWP_BRE - 1] = 503 },
        .records = 4096,
    };
    LwpSession *s = lwp_open(&o);
    unsigned x = 1;
    if (!s || !lwp_enable(s)) {
        return 1;
    }
    for (int i = 0; i < 100000; i++) {
        x = x & 1 ? 3 * x + 1 : x / 2 + i;
    }
    lwp_disable(s);
    return !lwp_drain(s, show, NULL) || x == 0;
}
END

emulated
once packages "$top/scripts/package"
once packages-arm64 "$top/scripts/package" --arch arm64
gcc -O1 -g -static -no-pie -o "$state/counts" "$state/counts.c" &&
    gcc -O1 -g -static -no-pie -I "$top/guest/tools" -o "$state/records" \
        "$state/records.c" "$build/tools/liblwp.a" || exit
once root-amd64 make_root amd64
once root-arm64 make_root arm64 arm64
once refused refused
once records-amd64 records amd64
once records-arm64 records arm64
once compare compare
once replays-arm64 replays amd64 arm64
once replays-amd64 replays arm64 amd64
[ ! "$left" ] || echo "SKIP arm64-long: no time left for$left"
exit $failed
