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

# boot NAME STATUS OPTION...: scripts/boot, which has to end so; its output is left
# in $log.
boot() {
    name=guest-rr-$1
    should=$2
    log=$logs/$name.log
    shift 2
    "$top/scripts/boot" --release "$release" --rr "$@" > "$log" 2>&1
    status=$?
    if [ $status = "$should" ]; then
        echo "PASS $name"
    else
        echo "FAIL $name: status $status, should be $should: $(tail -n 1 "$log")"
        failed=1
    fi
}

# says PATTERN...: what there has to be in the output
says() {
    for p; do
        if tr -d '\r' < "$log" | grep -q "$p"; then
            echo "PASS $name: $p"
        else
            echo "FAIL $name: does not say '$p'; see $log"
            failed=1
        fi
    done
}

# What programs of guest/test say
reports() {
    tr -d '\r' < "$log" | grep -E '^(PASS|FAIL) ' |
            sed "s/^\([A-Z]*\) rr-replay: \([^ ]*\) .*: /\1 $name-\2: /
             s/^\([A-Z]*\) rr-counts: /\1 $name-counts: /"
}

boot demo 0
says 'too far'

boot Skylake-Client 0 --cpu Skylake-Client,pmu=on \
    --test rr-replay=bzip2 rr-replay=signals rr-replay=threads32
reports
# Without CPUID faulting, what asks for RDRAND would not replay.
boot max 0 --test rr-counts rr-replay=rdrand
reports
boot EPYC 0 --cpu EPYC,pmu=on --kernel 6.12 \
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

# Every command of docs/rr.md does what it is there for.  Those behind --shell are
# for the guest; gdb asks whether to quit.
page=$top/docs/rr.md
sed -n '/^.*c crash.c$/,/^    return 0;$/p' "$page" | sed 1d > crash.c
echo '}' >> crash.c
sed -n 's/^    # //p; s/^    (rr) //p' "$page" | sed 's/^quit$/quit\ny/' > typed
mkfifo keys
sed -n 's/^    \$ //p' "$page" > commands
while read -r command <&3; do
    case $command in
    scripts/boot*)
        # shellcheck disable=SC2086
        set -- $command
        shift 2
        case $* in
        *--run*)
            boot page-run 134 "$@"
            says '^the limit is [1-9]'
            ;;
        *--shell*)
            : > "$logs/guest-rr-page-shell.log"
            type_at_prompts "$logs/guest-rr-page-shell.log" < typed > keys &
            { boot page-shell 0 "$@"; exit $failed; } < keys &
            shell=$!
            while kill -0 $shell 2> /dev/null &&
                ! grep -q booting "$logs/guest-rr-page-shell.log"; do
                sleep 0.2
            done
            boot locked 1 --run true
            says "boot: build/boot/rr.img, .*, is that of .*, process [0-9]*$"
            wait $shell || failed=1
            name=guest-rr-page-shell
            log=$logs/$name.log
            ;;
        *) continue ;;          # the demo, as above
        esac
        ;;
    *) eval "$command" || exit 1 ;;
    esac
done 3< commands
says 'Old value' '17 is one too many'

# A script, and a library of Perl's
printf '#!/usr/bin/env perl\nuse POSIX;\nprint floor(7.5), "\\n";\nexit 3;\n' \
    > script
chmod +x script
boot script 3 --run ./script
says '^7$'

boot unknown 1 --cpu max,pmu=on
says 'boot: rr does not record with -cpu max,pmu=on;'
boot no-counters 1 --cpu Skylake-Client
says 'boot: the guest has no performance counters with -cpu Skylake-Client;'
exit $failed
