#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/branches.sh [--release 10.0] [--minutes N]
#
# Debian's own software and branch records: guest/test/pmu-branches, block steps of
# ptrace, and a snapshot that a BPF program takes, on a model of each generation
# with two kernels; gdb, backwards; and the commands of docs/branches.md, which
# make a program faster.  What has been done is kept in build/long, for this QEMU,
# and not done again; with --minutes, no guest is started later than that.  Prints a
# line of PASS or FAIL for each check, and SKIP if some are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
mkdir -p "$state"
left=

# As guest/test/pmu-branches has them: Linux's idea of Nehalem and Haswell is
# that a period of one is too short.
records() {
    case $1 in
    core2duo) echo 4 bts period ;;
    Nehalem) echo 16 bts ;;
    IvyBridge) echo 16 bts period ;;
    Haswell) echo 16 stack bts ;;
    Skylake-Client | SapphireRapids) echo 32 stack cycles bts period ;;
    EPYC-Genoa) echo 16 ;;
    esac
}

# --- programs, for all guests -----------------------------------------------

dir=$build/long/branches
src=$top/tests/long/branches
rm -rf "$dir"
mkdir -p "$dir/copy"
(need_packages clang libbpf-dev libelf-dev zlib1g-dev gcc libc6-dev gdb \
    linux-perf bolt-16 llvm-16) >> "$log" 2>&1 || fail "packages are missing"
{
    gcc -O2 -Wall -static -o "$dir/copy/block" "$src/block.c" &&
        clang -O2 -g -target bpf -I"/usr/include/$(gcc -print-multiarch)" \
            -c -o "$dir/copy/snapshot.bpf.o" "$src/snapshot.bpf.c" &&
        gcc -O2 -Wall -static -o "$dir/copy/snapshot" "$src/snapshot.c" \
            -lbpf -lelf -lz
} >> "$log" 2>&1 || fail "the programs do not build"

# --- models -----------------------------------------------------------------

for kernel in 6.1 6.12; do
    for model in core2duo Nehalem IvyBridge Haswell Skylake-Client \
        SapphireRapids EPYC-Genoa; do
        name=$kernel-$model
        cpu=$model,pmu=on
        case $model,$kernel in
        # Linux 6.1 has them, too, but perf is to be newer.
        EPYC-Genoa,6.1) continue ;;
        EPYC-Genoa,*) cpu=$cpu,perfmon-v2=on ;;
        esac
        [ ! -e "$state/$name" ] || continue
        if late; then
            left="$left $name"
            continue
        fi
        tests=pmu-branches=$(records $model | tr ' ' =)
        case $model in
        EPYC*) ;;
        *)
            printf '#!/bin/sh\ncd %s && exec ./snapshot %s\n' "$dir/copy" \
                "$(records $model | cut -d ' ' -f 1)" > "$dir/copy/take"
            chmod +x "$dir/copy/take"
            tests="$tests $dir/copy/take"
            ;;
        esac
        # shellcheck disable=SC2086 # words
        boot "$state/$name.log" --kernel "$kernel" --cpu "$cpu" \
            --copy "$dir/copy" --test $tests "$dir/copy/block" pmu-dmesg
        status=$?
        boot "$state/$name.without.log" --kernel "$kernel" \
            --cpu "$cpu,lbr=off,bts=off" --test pmu-dmesg
        compared branches $((status + $?)) pmu-branches
    done
done

# --- the page ---------------------------------------------------------------

page=$top/docs/branches.md

# file NAME: of the page, into $dir
file() {
    sed -n "/^\`\`\`[a-z]* $1\$/,/^\`\`\`\$/p" "$page" | sed '1d;$d' > "$dir/$1"
}

# says NAME PATTERN...: the output of a command has lines like these, in order.
says() {
    name=$1
    shift
    for p; do
        if tr -d '\r' < "$state/$name.log" | grep -Eq -e "$p"; then
            echo "PASS branches: $name: $p"
        else
            echo "FAIL branches: $name: does not say '$p'"
        fi
    done
}

# taken NAME: taken branches of a program, as perf stat has counted them
taken() {
    tr -d '\r' < "$state/$1.log" | awk '/ r20c4:u/ { print $1 }'
}

# gdb NAME OPTION...: a run of the page's session
gdb_says() {
    says "$1" '^11[[:space:]]+main' '^12[[:space:]]+sum' \
        'Recorded [0-9]+ instructions in [0-9]+ functions \(0 gaps\)' \
        '^main \(\) at table.c:22' '^sum \(\) at table.c|, sum \(\) at table.c'
}

# verdict NAME STATUS: what one command of the page has done
verdict() {
    if [ "$2" = 0 ]; then
        echo "PASS branches: $1"
    else
        echo "FAIL branches: $1: status $2; see $state/$1.log"
    fi
    case $1 in
    page-perf2bolt)
        says "$1" 'contents: 0 \(0\.0%\)' 'wrote [1-9][0-9]* objects'
        ;;
    page-bolted)
        if cmp -s "$dir/page-lua.said" "$dir/page-bolted.said"; then
            echo "PASS branches: $1: says the same"
        else
            echo "FAIL branches: $1: does not say the same"
        fi
        before=$(taken page-lua)
        after=$(taken page-bolted)
        if [ "${after:-0}" -gt 0 ] && [ $((after * 10)) -le $((before * 9)) ]
        then
            echo "PASS branches: $1: takes $after branches, took $before"
        else
            echo "FAIL branches: $1: takes $after branches, took $before"
        fi
        ;;
    page-profgen)
        llvm-profdata show --sample "$dir/lua5.4.prof" >> "$state/$1.log" 2>&1
        says "$1" '^Function: luaV_execute: [1-9]'
        ;;
    page-report) says "$1" '[1-9]\.[0-9]+%.*lua' ;;
    page-script)
        says "$1" 'insn:.*# PRED [0-9]+ cycles'
        ! grep -qi mismatch "$state/$1.log" ||
            echo "FAIL branches: $1: has a mismatch"
        ;;
    page-callgraph) says "$1" '^# .*cycles:u' luaV_execute ;;
    page-bts | page-branches) says "$1" 'Captured and wrote' ;;
    page-trace) says "$1" '=> ' ;;
    page-gdb) gdb_says "$1" ;;
    esac
}

# What each command of the page is called here
title() {
    case $1 in
    'apt-get install '*) echo page-install ;;
    'apt-get source '*) echo page-source ;;
    perf2bolt*) echo page-perf2bolt ;;
    llvm-bolt*) echo page-llvm-bolt ;;
    llvm-profgen*) echo page-profgen ;;
    *lua5.4.bolt\ work.lua) echo page-bolted ;;
    *'-j any,u'*) echo page-lua ;;
    *'--call-graph lbr'*) echo page-callgraph ;;
    'perf report'*) echo page-report ;;
    'perf script'*brstackinsn*) echo page-script ;;
    *intel_bts*) echo page-bts ;;
    'perf script'*) echo page-trace ;;
    *branches:u*) echo page-branches ;;
    'scripts/boot run '*' gdb '*) echo page-gdb ;;
    *) echo page-other ;;
    esac
}

# do_command COMMAND
do_command() {
    case $1 in
    'apt-get install '*)
        # shellcheck disable=SC2086 # words
        need_packages ${1#apt-get install }
        ;;
    'apt-get source '*)
        fetch_source "$cache/lua5.4" bookworm lua5.4
        cp "$cache/lua5.4"/*.orig.tar.* "$dir"
        ;;
    # The profile is in build/boot/2, say, if that is not the only guest.
    scripts/boot*)
        eval "\"$top\"/scripts/boot --release $release ${1#scripts/boot}" ||
            return
        data=$(sed -n 's/.*perf report -i \([^ ]*perf.data\)$/\1/p' \
            "$state/$name.err")
        [ -z "$data" ] || cp "$top/$data" build/boot
        ;;
    *) eval "$1" ;;
    esac
}

# All, as each needs what those before it have made
name=page
if [ ! -e "$state/page" ]; then
    if late; then
        left="$left page"
    else
        cd "$dir" || exit
        for f in work.lua table.c session; do
            file $f
        done
        PATH=$PATH:/usr/lib/llvm-16/bin
        # Where the page has the profile
        mkdir -p build/boot
        commands_of "$page" > commands
        : > "$state/new"
        while read -r command <&3; do
            name=$(title "$command")
            # A shell of its own: those of scripts/lib.sh end it.
            (do_command "$command") > "$dir/$name.said" 2> "$state/$name.err" \
                < /dev/null
            status=$?
            cat "$dir/$name.said" "$state/$name.err" > "$state/$name.log"
            # What the program says comes first.
            case $name in
            page-lua | page-bolted) sed -i 2q "$dir/$name.said" ;;
            esac
            verdict "$name" $status | tee -a "$state/new"
        done 3< commands
        mv "$state/new" "$state/page"
    fi
fi

# gdb takes the trace of these models, too; see nat/linux-btrace.c there.
for model in Broadwell Skylake-Client; do
    name=gdb-$model
    [ ! -e "$state/$name" ] || continue
    if late; then
        left="$left $name"
        continue
    fi
    cd "$dir" || exit
    [ -x table ] || { file table.c && file session && gcc -g -o table table.c; }
    "$top/scripts/boot" --release "$release" --cpu "$model,pmu=on" \
        --copy table --copy table.c --copy session \
        --run gdb -q -nx -batch -x session ./table > "$state/$name.log" 2>&1
    gdb_says "$name" > "$state/new"
    cat "$state/new"
    mv "$state/new" "$state/$name"
done
[ -z "$left" ] || echo "SKIP branches: left are$left"
cd "$state" || exit
! cat page gdb-*[!g] 6.*[!g] 2> /dev/null | grep -q '^FAIL'
