#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/guest/rr.sh [--release 10.0]
#
# Debian's rr in the guest: the demo; recordings that replay, on other CPU models
# and kernels, in short, of which tests/long/rr.sh is the whole; the commands of
# docs/rr.md, which record a program of the user's and debug it in the next guest,
# which no other can at once; a script; and CPUs that rr does not know.  Prints a
# line of PASS or FAIL for each.
set -u

# shellcheck source=tests/guest/common
. "$(dirname "$0")/common"
release=${2:-10.0}
dir=$build/rr-test
rm -rf "$dir"
mkdir -p "$dir" && cd "$dir" || exit 1

# What programs of guest/test say
reports() {
    tr -d '\r' < "$said" | grep -E '^(PASS|FAIL) ' |
            sed "s/^\([A-Z]*\) rr-replay: \([^ ]*\) .*: /\1 $name-\2: /
             s/^\([A-Z]*\) rr-counts: /\1 $name-counts: /"
}

boot demo 0 --rr
says "$said" 'too far'

boot Skylake-Client 0 --rr --cpu Skylake-Client,pmu=on \
    --test rr-replay=bzip2 rr-replay=signals rr-replay=threads32
reports
# Without CPUID faulting, what asks for RDRAND would not replay.
boot max 0 --quiet --rr --test rr-counts rr-replay=rdrand
reports
# With --quiet the output is that of these programs, and no more.
says "$said" '^PASS rr-counts:' '^PASS rr-replay:'
if other=$(grep -v -m 1 '^PASS ' "$said"); then
    echo "FAIL $name: with --quiet it says '$other'"
    failed=1
fi
boot EPYC 0 --rr --cpu EPYC,pmu=on --kernel 6.12 \
    --test rr-counts rr-replay=python3 rr-replay=threads
reports

# type_at_prompts LOG: each line of stdin when the guest asks for one, as LOG says.
# What a terminal gets while its mode is changed can be lost.
type_at_prompts() {
    size=0
    escape=$(printf '\033')
    while IFS= read -r line; do
        for _ in $(seq 600); do
            [ "$(wc -c < "$1")" = "$size" ] || ! tail -c 99 "$1" |
                sed "s/$escape\[[0-9;?]*[a-zA-Z]//g" | tail -n 1 |
                grep -qE '(# |\(rr\) |\(y or n\) )$' || break
            sleep 0.2
        done
        size=$(wc -c < "$1")
        echo "$line"
    done
}

# Every command of docs/rr.md does what it is there for.  Lines behind (rr) are for
# the gdb of "replay", which asks whether to quit, those behind # for the shell.
page=$top/docs/rr.md
sed -n '/^.*c crash.c$/,/^    return 0;$/p' "$page" | sed 1d > crash.c
echo '}' >> crash.c
sed -n 's/^    (rr) //p' "$page" | sed 's/^quit$/quit\ny/' > typed-replay
sed -n 's/^    # //p' "$page" > typed-shell
mkfifo keys
recording=
sed -n 's/^    \$ //p' "$page" > commands
while read -r command <&3; do
    case $command in
    scripts/boot*)
        # Where the recording is, if another guest had build/boot
        command=$(echo "$command" | sed "s|build/boot/recording.tar|$recording|")
        # shellcheck disable=SC2086
        set -- $command
        shift
        case $* in
        rr\ *)
            boot page-run 134 "$@"
            says "$said" '^the limit is [1-9]'
            recording=$(sed -n 's/.*the recording is build\([^;]*\);.*/..\1/p' \
                "$log")
            ;;
        replay\ *)
            : > "$logs/guest-rr-page-replay.out"
            type_at_prompts "$logs/guest-rr-page-replay.out" \
                < typed-replay > keys &
            boot page-replay 0 "$@" < keys
            says "$said" 'Old value' '17 is one too many'
            ;;
        shell\ *)
            : > "$logs/guest-rr-page-shell.out"
            type_at_prompts "$logs/guest-rr-page-shell.out" \
                < typed-shell > keys &
            { boot page-shell 0 "$@"; exit $failed; } < keys &
            shell=$!
            while kill -0 $shell 2> /dev/null &&
                ! grep -q booting "$logs/guest-rr-page-shell.out"; do
                sleep 0.2
            done
            boot locked 1 rr true
            says "$log" "boot: build/boot/rr.img, .*, is that of .*, process [0-9]*$"
            wait $shell || failed=1
            name=guest-rr-page-shell
            says "$logs/$name.out" 'crash-[0-9]'
            ;;
        demo\ *) ;;             # as above
        *) echo "FAIL guest-rr-page: nothing runs '$command'"; failed=1 ;;
        esac
        ;;
    *) eval "$command" || exit 1 ;;
    esac
done 3< commands

# A script that fails in the third run, and a library of Perl's
cat > script << 'END'
#!/usr/bin/env perl
use POSIX;
print floor(7.5), "\n";
open(my $runs, '>>', '/tmp/runs');
print $runs "x";
close $runs;
exit(-s '/tmp/runs' == 3 ? 3 : 0);
END
chmod +x script
boot script 3 rr --until-fail --record -h ./script
says "$said" '^7$'
says "$log" 'guest: status 3 in run 3$' '^guest: replayed'

# A system call that this rr does not know is an error of its own, at which it is
# not to wait for a debugger.
boot error 134 --rr --run perl -e 'print "called\n"; syscall 450, 0, 0, 9, 0'
says "$said" '^called' 'failed to hold'

boot unknown 1 --rr --cpu max,pmu=on
says "$log" 'boot: rr does not record with -cpu max,pmu=on;'
boot no-counters 1 --rr --cpu Skylake-Client
says "$log" 'boot: the guest has no performance counters with -cpu Skylake-Client;'
exit $failed
