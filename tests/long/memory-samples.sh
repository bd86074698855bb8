#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/memory-samples.sh [--release 10.0] [--minutes N]
#
# Debian's perf and samples of memory: guest/test/pmu-memory on a model of each
# generation with two kernels, whose warnings are those without PEBS; and the
# commands of docs/memory.md.  What has been done is kept in build/long, for this
# QEMU, and not done again; with --minutes, no guest is started later than that.
# Prints a line of PASS or FAIL for each check, and SKIP if some are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
mkdir -p "$state"
left=
dir=$build/long/memory-samples
rm -rf "$dir"
mkdir -p "$dir"

# What pmu-memory is told of a model: Nehalem has no samples of stores, and Haswell
# none so near to each other as perf c2c wants them.
has() {
    case $1 in
    Nehalem) echo hitm ;;
    Haswell) echo stores=both=hitm ;;
    *) echo stores=both=hitm=plain ;;
    esac
}
icount='-icount shift=0,sleep=off'

for kernel in 6.1 6.12; do
    for model in Nehalem IvyBridge Haswell Skylake-Client Icelake-Server-v4 \
        SapphireRapids; do
        name=$kernel-$model
        [ ! -e "$state/$name" ] || continue
        if late; then
            left="$left $name"
            continue
        fi
        boot "$state/$name.log" --kernel "$kernel" --cpu "$model,pmu=on" \
            --qemu "$icount" \
            --test "pmu-memory=$(has $model)" pmu-dmesg
        status=$?
        boot "$state/$name.without.log" --kernel "$kernel" \
            --cpu "$model,pmu=on,pebs=off" \
            --qemu "$icount" --test pmu-dmesg
        compared memory-samples $((status + $?)) pmu-memory
    done
done

# --- the page ---------------------------------------------------------------

# says PATTERN: what a command has put out has such a line, or with "no" has not.
says() {
    if [ "$1" = no ]; then
        ! tr -d '\r' < "$state/page.log" | grep -Eq -e "$2"
    else
        tr -d '\r' < "$state/page.log" | grep -Eq -e "$1"
    fi
}

# verdict COMMAND STATUS: of a command of the page, by its place
verdict() {
    case $place in
    4) says '[0-9] .*SNP HitM.* 120$' && says '% +0x8 .*share\.c' ;;
    6) says 'SNP None.* 4$' && says no 'SNP HitM|% +0x8 ' ;;
    *) true ;;
    esac
    if [ "$2 $?" = '0 0' ]; then
        printf 'PASS memory-samples: page: %s\n' "$1"
    else
        printf 'FAIL memory-samples: page: %s: status %s; see %s\n' "$1" "$2" \
            "$state/page.$place"
    fi
}

if [ ! -e "$state/page" ]; then
    if late; then
        left="$left page"
    else
        page=$top/docs/memory.md
        cd "$dir" || exit
        for f in share.c find; do
            # shellcheck disable=SC2016 # a fence
            sed -n "/^\`\`\`[a-z]* $f\$/,/^\`\`\`\$/p" "$page" | sed '1d;$d' > $f
        done
        commands_of "$page" > commands
        : > "$state/new"
        place=0
        while read -r command <&3; do
            case $command in
            'apt-get install '*) (need_packages "${command##* }") ;;
            scripts/boot*) eval "\"$top\"/scripts/boot --release $release \
                ${command#scripts/boot}" ;;
            *) eval "$command" ;;
            esac > "$state/page.log" 2>&1 < /dev/null
            status=$?
            place=$((place + 1))
            cp "$state/page.log" "$state/page.$place"
            verdict "$command" $status > "$dir/verdict"
            cat "$dir/verdict"
            cat "$dir/verdict" >> "$state/new"
        done 3< commands
        mv "$state/new" "$state/page"
    fi
fi
[ -z "$left" ] || echo "SKIP memory-samples: left are$left"
cd "$state" || exit
! cat page 6.*[!g] 2> /dev/null | grep -q '^FAIL'
