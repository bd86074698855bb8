#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/scripts/build.sh
#
# scripts/lib.sh configures no build that works, whatever meson is installed by
# then, and says why if it does; its locks keep others out and end with their
# process; who fetches packages keeps the caller's suite; what is pinned is what
# has been asked for; all scripts have a help; and scripts/boot takes both
# spellings.  Prints a line of PASS or FAIL for each.
set -u

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
logs=$work
failed=0

# check NAME COMMAND...
check() {
    title=$1
    shift
    if "$@"; then
        echo "PASS scripts/$title"
    else
        echo "FAIL scripts/$title: $(cat "$work/says")"
        failed=1
    fi
}

# shellcheck disable=SC2317 # check calls it.
says() {
    grep -q -e "$1" "$work/says"
}

# In a shell of its own
# shellcheck disable=SC2317 # check calls it.
sh_of() {
    ("$@")
}

# --- fetching -----------------------------------------------------------------

# scripts/kernel.sh has its suite in that variable.
# shellcheck disable=SC2317 # check calls it, and fetch_debs what is in it.
keeps_suite() {
    apt_lists() { :; }
    dpkg() { :; }
    progress() { :; }
    suite=bookworm dir=$work/kernel cache=$work/cache
    fetch_debs "$work/debs" trixie seabios > "$work/says" &&
        [ "$suite $dir" = "bookworm $work/kernel" ]
}

check fetch-keeps-suite sh_of keeps_suite

# A mirror with a source package, and one of which a file has changed
# shellcheck disable=SC2317 # check calls it.
pinned() {
    mirror=$work/mirror
    mkdir -p "$mirror/pool"
    date > "$mirror/pool/a.tar"
    a=$(sha256sum < "$mirror/pool/a.tar")
    printf 'Checksums-Sha256:\n %s 1 a.tar\nFiles:\n' "${a%% *}" > "$mirror/pool/a.dsc"
    dsc=$(sha256sum < "$mirror/pool/a.dsc")
    echo "${dsc%% *}  pool/a.dsc" > "$work/sums"
    echo "${a%% *}  pool/a.tar" >> "$work/sums"
    QEMU_LWP_MIRROR=copy:$mirror cache_locked=1
    fetch_pinned "$work/src" "$work/sums" > "$work/says" || return
    echo changed >> "$mirror/pool/a.tar"
    fetch_pinned "$work/src" "$work/sums" >> "$work/says" || return
    ! fetch_pinned "$work/src2" "$work/sums" >> "$work/says" &&
        [ ! -e "$work/src2/complete" ] &&
        ! fetch_pinned "$work/src" "$work/none" >> "$work/says"
}

check fetch-pinned sh_of pinned

# --- configuring --------------------------------------------------------------

bld=$work/build
found=/usr/bin/python3
make_python() {
    python=$found
}

# What configure and meson leave behind
logged() {
    shift
    case $1 in
    ../configure)
        mkdir -p "$bld/pyvenv/bin"
        cp "$work/meson" "$bld/pyvenv/bin"
        ;;
    *)
        mkdir -p "$3/meson-private"
        touch "$3/meson-private/coredata.dat"
        echo " command = $1 --internal regenerate /src /dir" > "$3/build.ninja"
        ;;
    esac
}

# again COMMAND...: what it says is in $work/says, and $work/build/kept is lost if
# it starts anew.
again() {
    mkdir -p "$bld"
    touch "$bld/kept"
    "$@" > "$work/says" 2>&1
}

# shellcheck disable=SC2317 # as this
kept() {
    [ -e "$bld/kept" ] && [ ! -s "$work/says" ]
}

printf '#!/bin/sh\n' > "$work/meson"
chmod +x "$work/meson"
configure > "$work/says"
check configure/first says ' configuring QEMU '
found=/opt/newer/bin/python3
again configure
check configure/newer-meson kept
again configure --enable-werror
check configure/options says 'again: the options were .*=gcc$'
check configure/python grep -q -e --python=/usr/bin/python3 "$bld/.configured"
rm "$bld/pyvenv/bin/meson"
again configure --enable-werror
check configure/meson-gone says 'again: its meson does not work any more$'
rm "$bld/.configured"
again configure --enable-werror
check configure/interrupted says 'again: it was left unfinished$'

rm -r "$bld"
meson_setup "$work/meson" "$bld" /src > "$work/says"
again meson_setup "$work/newer" "$bld" /src
check setup/newer-meson kept
rm "$work/meson"
again meson_setup "$work/newer" "$bld" /src
check setup/meson-gone says "again: $work/meson does not work any more$"
rm "$bld/meson-private/coredata.dat"
again meson_setup "$work/newer" "$bld" /src
check setup/interrupted says 'again: it was left unfinished$'

# --- locks --------------------------------------------------------------------

# Another process that has the lock, until it is told to end
mkfifo "$work/ready" "$work/end"
holder() {
    sh -c '. "$0"; lock 9 "$1/lock"; echo > "$1/ready"; read -r _ < "$1/end"' \
        "$root/scripts/lib.sh" "$work" &
    holder=$!
    read -r _ < "$work/ready"
}

# shellcheck disable=SC2317
locked() {
    ! try_lock 9 "$work/lock"
}

holder
check lock/held locked
{ sleep 0.3; echo > "$work/end"; } &
lock 9 "$work/lock" > "$work/says"
check lock/waits says "waiting for scripts/lib.sh, process $holder$"
unlock 9
wait
holder
kill -KILL $holder
wait $holder 2> "$work/says"
check lock/killed try_lock 9 "$work/lock"

# --- what is said -------------------------------------------------------------

# helped SCRIPT: its help starts with how it is called, and has nothing for shellcheck.
# shellcheck disable=SC2317
helped() {
    "$root/scripts/$1" --help > "$work/says" &&
        sed '/./q' "$work/says" | grep -qE "^ *(usage: )?scripts/$1" &&
        ! grep -q shellcheck "$work/says"
}

for s in boot build check check-series package porting; do
    check help/$s helped $s
done
for c in rr perf lwp run shell replay demo fetch options files; do
    "$root/scripts/boot" help $c > "$work/says" 2>&1
    check help/boot-$c says ...
done
# All that the shell completes is an option, and all options are completed but for
# those of a checkout.
options() {
    grep -oE -e '(^|[ ,=])--[a-z-]+' | grep -o -e '--.*' | sort -u |
        grep -vxE -e '--(help|release|test)'
}
options < "$root/debian/completion/qemu-lwp" > "$work/completed"
"$root/scripts/boot" help options | options | diff "$work/completed" - > "$work/says"
check complete/options test ! -s "$work/says"

# refused NAME PATTERN ARGUMENT...
refused() {
    check=$1
    pattern=$2
    shift 2
    ! "$root/scripts/boot" "$@" > "$work/says" 2>&1 || echo "goes on" > "$work/says"
    check "refused/$check" says "$pattern"
}

refused program 'there is no program to rr$' rr
refused old-program 'there is no program to perf$' --perf --run
refused no-program "there is no program '/none'" lwp --quiet /none
refused recording 'there is no recording to replay' replay
refused old-recording "there is no recording '/none'" --rr --replay /none
refused fetch "unknown argument 'gdb'" fetch rr gdb
refused twice "unknown argument 'demo'" demo demo
refused share "there is no directory '/none'" run --share /none true
refused html 'is for what perf or lwp records' rr --html /bin/true
refused html-shell 'is for what perf or lwp records' shell --html
refused option "unknown option '--none'" run --none /bin/true
for limit in '' instructions instructions:u= =5 instructions:u=5x 'a b=5'; do
    refused "limit-$limit" '--fail-above needs EVENT=N,' perf --fail-above "$limit" true
done
refused limit-rr '--fail-above is for perf$' rr --fail-above a=5 true
refused limit-demo '--fail-above is for perf$' demo --perf --fail-above a=5
refused until-fail '--until-fail is for rr$' perf --until-fail true
refused json-shell '--json is for rr, perf, lwp and run$' shell --json /dev/null
refused json-file "cannot write '/none/f'$" run --json /none/f true
refused help "there is no help for 'none'" help none

# --- what scripts read ----------------------------------------------------------

cat > "$work/perf.stat" << 'END'
# started on Sat Nov 28 20:22:08 2026

 Performance counter stats for './a':

         1,234,567      instructions:u            #    0.50  insn per cycle
              0.52 msec task-clock                #    0.331 CPUs utilized
            119547      branches                                      (25.01%)
   <not supported>      cpu/event=0xc5/u

       0.261135040 seconds time elapsed
END
"$root/scripts/results" above "$work/perf.stat" task-clock=1 instructions:u=1234567 \
    > "$work/says"
check results/below test ! "$(cat "$work/says")"
"$root/scripts/results" above "$work/perf.stat" instructions:u=1234566 > "$work/says"
check results/above says '^instructions:u is 1234567, above 1234566$'
"$root/scripts/results" above "$work/perf.stat" branches=1 cpu/event=0xc5/u=7 > "$work/says"
check results/none says 'no count of branches; .* no count of cpu/event=0xc5/u$'

# Names that JSON has to quote, of a program that is not there
name=$(printf 'a"\\\n\t\303\244b')
"$root/scripts/boot" run --json "$work/it $name" "/none/$name" x 2> "$work/says"
check json/valid python3 -c 'import json, sys
it = json.load(open(sys.argv[1]))
sys.exit(it["status"] != 1 or it["command"] != [sys.argv[2], "x"]
         or it["error"] != f"there is no program \x27{sys.argv[2]}\x27")' \
    "$work/it $name" "/none/$name"
exit $failed
