#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/own-world.sh [--release 10.0] [--minutes N]
#
# scripts/boot with kernels and roots of other systems: Debian's kernels from
# 5.10 to the newest; Debian 12, 13 and sid as directories, archives and disk
# images, and containers' images that buildah and umoci make; what is kept there
# and what is not; and the commands of docs/kernel.md, with a kernel built from
# Debian's source.  Kernels and roots are made once, in build/long/own-world.
# What has been done is kept in build/long, for this QEMU, and not done again;
# with --minutes, nothing is started later than that.  Prints a line of PASS or
# FAIL for each check, and SKIP if some are left or cannot be tried.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
# shellcheck source=scripts/kernel.sh
. "$top/scripts/kernel.sh"
mkdir -p "$state"
left=

dir=$build/long/own-world
roots=$dir/roots
work=$dir/work
as_root rm -rf "$work"
# A run that was cut short can have hidden them.
if [ -d "$roots.away" ]; then
    as_root rm -rf "$roots"
    mv "$roots.away" "$roots"
fi
mkdir -p "$roots" "$dir/kernels" "$work/empty"
cd "$work" || exit
(need_packages mmdebstrap debian-archive-keyring buildah umoci e2fsprogs \
    qemu-utils attr gcc gdb libc6-dev perl python3) >> "$log" 2>&1 ||
    fail "packages are missing"

# once NAME COMMAND...: unless it has been done; prints results, without names
once() {
    name=$1
    shift
    [ ! -e "$state/$name" ] || return 0
    if late; then
        left="$left $name"
        return
    fi
    boots=0
    boot_log=$log
    "$@" > "$state/new"
    sed -i "s/^\(PASS\|FAIL\|SKIP\) /\1 own-world: $name: /" "$state/new"
    cat "$state/new"
    # What could not be had may be there the next time.
    if grep -q '^SKIP' "$state/new"; then
        rm "$state/new"
    else
        mv "$state/new" "$state/$name"
    fi
}

# boot STATUS OPTION...: scripts/boot, which has to end so; what the program
# says is left in said, and the rest in $boot_log
boot() {
    boots=$((boots + 1))
    boot_log=$state/$name.$boots.log
    should=$1
    shift
    "$top/scripts/boot" --release "$release" "$@" > output 2> "$boot_log"
    status=$?
    grep -av '^rr: ' output > said
    [ $status != "$should" ] || return 0
    echo "FAIL $*: status $status, should be $should:" \
        "$(tail -n 1 "$boot_log"); see $boot_log" | tr '\n' ' '
    echo
    return 1
}

# check WHAT COMMAND...
check() {
    what=$1
    shift
    if "$@" >> "$log" 2>&1; then
        echo "PASS $what"
    else
        echo "FAIL $what: not so: $*; see $boot_log"
    fi
}

# says WHAT FILE PATTERN
says() {
    check "$1" grep -aqE -e "$3" "$2"
}

# --- material ---------------------------------------------------------------

# made NAME COMMAND...: in $dir, once, or again if the command is another one
made() {
    what=$dir/$1
    shift
    [ "$(cat "$what.made" 2> /dev/null)" != "$*" ] || return 0
    as_root rm -rf "$what" "$what.made"
    # A shell of its own: those of scripts/lib.sh end it.
    ("$@") >> "$log" 2>&1 && echo "$*" > "$what.made"
}

# sid's lists are out of date in a mirror that is not the newest.
debian() {
    as_root mmdebstrap --variant=minbase --include="$2" \
        --aptopt='Acquire::Check-Valid-Until "false"' "$1" "$what" "$(mirror)"
}

# raw FILE: of Debian 12
raw() {
    truncate -s 1G "$what" &&
        as_root /sbin/mkfs.ext4 -q -d "$roots/12" "$what" &&
        as_root chown "$(id -u)" "$what"
}

qcow2() {
    qemu-img convert -O qcow2 "$roots/12.img" "$what"
}

tarball() {
    as_root tar -C "$roots/12" --numeric-owner --xattrs -cJf "$what" .
}

program() {
    mkdir -p "$what/bin"
    cat > works.c << 'END'
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char dir[80];
    volatile unsigned x = 1;

    for (int i = 0; i < 3000000; i++) {
        x = x * 69069 + 1;
    }
    if (!getcwd(dir, sizeof(dir))) {
        return 3;
    }
    printf("%u, MINE=%s in %s\n", x, getenv("MINE"), dir);
    return 6 + argc;
}
END
    gcc -O1 -g -static -o "$what/bin/works" works.c
}

with_buildah() {
    as_root buildah --root "$dir/containers" --runroot "$dir/containers/run" \
        --storage-driver vfs "$@"
}

# image FORMAT TREE: from scratch
image() {
    c=$(with_buildah from scratch) &&
        with_buildah copy -q "$c" "$2" / &&
        with_buildah config --env MINE=buildah --workingdir /made "$c" &&
        with_buildah commit -q "$c" "$1:$what:latest" &&
        with_buildah rm "$c" &&
        as_root chown -R "$(id -u)" "$what"
    status=$?
    as_root rm -rf "$dir/containers"
    return $status
}

# With a file that a later layer takes away
layout() {
    umoci init --layout "$what" && umoci new --image "$what:mine" &&
        umoci insert --image "$what:mine" "$roots/program/bin/works" \
            /bin/works &&
        umoci insert --image "$what:mine" works.c /bin/gone &&
        umoci insert --image "$what:mine" --whiteout /bin/gone &&
        umoci config --image "$what:mine" --config.env MINE=umoci \
            --config.env PATH=/bin --config.workingdir /made
}

# material NAME: what a root is made of, and it
material() {
    case $1 in
    program) made roots/program program ;;
    12) made roots/12 debian bookworm attr ;;
    13) made roots/13 debian trixie attr,linux-perf,rr ;;
    sid) made roots/sid debian sid attr,linux-perf,rr ;;
    12.img) material 12 && made roots/12.img raw ;;
    12.qcow2) material 12.img && made roots/12.qcow2 qcow2 ;;
    12.tar.xz) material 12 && made roots/12.tar.xz tarball ;;
    buildah)
        material program && made roots/buildah image oci "$roots/program"
        ;;
    buildah.tar)
        material 12 &&
            made roots/buildah.tar image docker-archive "$roots/12"
        ;;
    umoci) material program && made roots/umoci layout ;;
    esac
}

# kernel_packages SUITE...: of the first that has it, with what the driver is
# built against
kernel_packages() {
    lock 8 "$cache/lock"
    cache_locked=1
    for suite; do
        kernel_of "$suite" && return
    done
    return 1
}

kernel_of() {
    meta=cloud-amd64
    for p in linux-image linux-headers; do
        fetch_debs "$what" "$1" $p-$meta || return
    done
    image=$(dependency linux-image-$meta linux-image-)
    headers=$(dependency linux-headers-$meta linux-headers-)
    for p in "$image" "$headers"; do
        fetch_debs "$what" "$1" "$p" || return
    done
    # In newer ones, that has parts.
    for p in $(dependency "$image" linux-binary-) \
        $(dependency "$image" linux-modules-) \
        $(dependency "$headers" linux-headers-) \
        $(dependency "$headers" linux-kbuild-); do
        fetch_debs "$what" "$1" "$p" || return
    done
    sed -i "s|^include /usr/src/|include $what/usr/src/|" \
        "$what/usr/src/$headers/Makefile" &&
        echo "${image#linux-image-}" > "$what/version"
}

# --- roots ------------------------------------------------------------------

# listing DIR: all that is in a tree, but for directories' sizes
listing() {
    # shellcheck disable=SC2016 # of that shell
    as_root sh -c 'cd "$1" || exit
        find . ! -type d -printf "%p %y %m %U:%G %n %s %T@ %l\n" -o \
            -printf "%p %y %m %U:%G %T@\n" | sort
        find . -type f -exec sha256sum {} + | sort -k 2
        getfattr -Rhd -m - .' sh "$1"
}

# all_of NAME: of a root, to see whether it is changed
all_of() {
    if [ -f "$roots/$1" ]; then
        sha256sum "$roots/$1"
    else
        listing "$roots/$1"
    fi
}

# choose ROOT: sets $root_is, as scripts/boot is to have it, and makes expected,
# which is what it says for boot_root
choose() {
    root_is=$roots/$1
    root_name=$1
    case $1 in
    buildah | umoci)
        [ "$1" = buildah ] || root_is=$root_is:mine
        echo "$("$roots/program/bin/works" | sed 's/,.*//'), MINE=$1 in /made" \
            > expected
        return
        ;;
    13 | sid) debian=$1 ;;
    *) debian=12 ;;
    esac
    perl -e "$loop" | cat - "$roots/$debian/etc/debian_version" > expected
}

# shellcheck disable=SC2016 # Perl's
loop='$x = $x * 3 % 1000003 + 1 for 1 .. 300000; print "$x\n";'

# boot_root OPTION...: a program in the root that was chosen, which ends with 8
boot_root() {
    case $root_name in
    buildah | umoci) boot 8 "$@" --root "$root_is" --run works a ;;
    *)
        boot 8 "$@" --root "$root_is" --run perl -e "$loop"'
            open F, "/etc/debian_version"; print <F>;
            open F, ">/root/new" or die; exit 8'
        ;;
    esac || return
    head -n "$(wc -l < expected)" said > line
    label=
    for label; do :; done
    check "in $root_name: ${label:+$label }--run" cmp line expected
}

in_root() {
    material "$1" || { echo "SKIP it cannot be made; see $log"; return; }
    choose "$1"
    all_of "$1" > before
    for profiler in '' --perf --lwp --rr; do
        boot_root ${profiler:+"$profiler"} || continue
        case $profiler,$1 in
        --perf,*)
            says "--perf has a profile" said '[0-9]%.*(perl|works)'
            says "--perf has counts" said '[1-9].* instructions'
            ;;
        --lwp,buildah | --lwp,umoci) ;;
        --lwp,*) says "--lwp has a profile" said '[0-9]%.*perl' ;;
        --rr,*) says "--rr replays" "$boot_log" '^guest: replayed' ;;
        esac
    done
    all_of "$1" > after
    check "nothing is changed" cmp before after
}

# What a root has itself is what is used: its version is said, and is that of
# what wrote the profile.
own_tools() {
    for r in 12 13 sid; do
        material $r || { echo "SKIP $r cannot be made; see $log"; continue; }
        for t in perf rr; do
            boot 0 --$t --root "$roots/$r" --run $t --version || continue
            grep -a "^$t version" said | head -n 1 > line
            if [ $r = 12 ]; then
                says "Debian $r: ours, beside it" line ' (6\.1|5\.6)\.'
                check "Debian $r: it has no $t" [ ! -e "$roots/$r/usr/bin/$t" ]
            else
                as_root chroot "$roots/$r" "/usr/bin/$t" --version > its
                check "Debian $r: its own $t" cmp line its
            fi
            [ $t = perf ] || continue
            data=$(sed -n 's/.*report -i \([^ ]*perf.data\)$/\1/p' "$boot_log")
            # In its header; a perf of here need not read it.
            check "Debian $r: perf.data is of that" \
                grep -aqF "$(sed 's/perf version //' line)" "$top/$data"
        done
    done
}

# --- what is kept -----------------------------------------------------------

change='set -e; cd /root; echo made > made; ln made hard; ln -s made link
mkdir -m 2750 dir; mknod -m 600 dir/null c 1 3; rm /etc/issue.net
echo changed >> /etc/issue; chown 1234:4321 /etc/host.conf
chmod 4751 /etc/host.conf; setfattr -n user.mine -v yes /etc/host.conf'
show='cat /root/made; readlink /root/link; tail -n 1 /etc/issue
stat -c "%n %F %a %u:%g" /root/dir /root/dir/null /etc/host.conf
stat -c "%h %s" /root/hard; [ -e /etc/issue.net ] || echo removed
getfattr --absolute-names --only-values -n user.mine /etc/host.conf; echo'

keep() {
    for r in 12 12.img 12.qcow2; do
        material $r || { echo "SKIP $r cannot be made; see $log"; continue; }
        as_root rm -rf kept
        as_root cp -a "$roots/$r" kept
        [ -d kept ] || as_root chown "$(id -u)" kept
        [ ! -d kept ] || listing kept > before
        boot 0 --root kept --keep --run sh -c "$change" || continue
        if [ -d kept ]; then
            as_root chroot kept sh -c "$show" > here 2>&1
            check "$r: the change is there" cmp here changed
            listing kept | diff before - |
                sed -n 's/^[<>] \([^ ]*\) [a-z] .*/\1/p' | sort -u > names
            check "$r: and no other" cmp names changes
        fi
        boot 0 --root kept --run sh -c "$show" || continue
        head -n "$(wc -l < changed)" said > line
        check "$r: the next guest sees it" cmp line changed
        case $r in
        12.qcow2)
            check "$r: is sound" qemu-img check -q kept
            qemu-img convert -O raw kept sound && mv sound kept
            ;;
        esac
        [ -d kept ] ||
            check "$r: its file system is sound" /sbin/e2fsck -fn kept
        as_root rm -rf kept
    done
}
cat > changed << 'END'
made
made
changed
/root/dir directory 2750 0:0
/root/dir/null character special file 600 0:0
/etc/host.conf regular file 4751 1234:4321
2 5
removed
yes
END
printf './%s\n' etc etc/host.conf etc/issue etc/issue.net root root/dir \
    root/dir/null root/hard root/link root/made > changes

# --- the host's -------------------------------------------------------------

share() {
    for r in 12 13 sid; do
        material $r || { echo "SKIP $r cannot be made; see $log"; continue; }
        rm -rf shared port
        mkdir shared
        echo "of the host's" > shared/in
        python3 -u -c 'import functools, http.server as h
server = h.HTTPServer(("127.0.0.1", 0), functools.partial(
    h.SimpleHTTPRequestHandler, directory="shared"))
print(server.server_port)
server.serve_forever()' > port 2>> "$log" &
        http=$!
        until [ -s port ] || ! kill -0 $http; do
            sleep 0.1
        done
        boot 0 --share shared --net --root "$roots/$r" --run bash -ec "
            cd '$work/shared'; cat in
            exec 3<> /dev/tcp/10.0.2.2/$(cat port)
            printf 'GET /in HTTP/1.0\r\n\r\n' >&3; cat <&3 > out
            chown 1234:4321 out; setfattr -n user.mine -v yes out" &&
            {
                says "$r: --share, to read" said "^of the host's"
                says "$r: --share, to write, and --net" shared/out \
                    "^of the host's"
                check "$r: --share, with owners" \
                    [ "$(stat -c %u:%g shared/out)" = 1234:4321 ]
                check "$r: --share, with extended attributes" \
                    getfattr -n user.mine shared/out
            }
        kill $http
    done
}

# --- recordings -------------------------------------------------------------

# shell_types LINE: when the guest's shell asks for one
shell_types() {
    : > output
    n=0
    until tail -n 1 output | grep -aq '/tmp # ' || [ $((n += 1)) = 1500 ]; do
        sleep 0.2
    done
    sleep 1
    echo "$1"
}

# Replayed with nothing else than the recording
replay() {
    for r in 12 13 sid umoci; do
        material $r || { echo "SKIP $r cannot be made; see $log"; continue; }
        choose $r
        boot_root --rr || continue
        case $r in
        13 | sid)
            # By its own rr, in a shell that has another
            shell_types 'rr replay -a > /dev/null && echo "it replay"s; exit' |
                boot 0 --rr --shell
            boots=$((boots + 1))    # that was the pipeline's
            says "$r: --shell replays it" said '^it replays'
            ;;
        esac
        mv "$top/$(sed -n 's/.*the recording is \(.*\);.*/\1/p' "$boot_log")" \
            recording.tar
        mv "$roots" "$roots.away"
        set -- -ex continue -ex 'info registers rip'
        [ $r != umoci ] || set -- -ex 'break main' -ex continue -ex 'p argc' \
            -ex 'info line works.c:9'
        cd "$work/empty" || exit
        boot 0 --rr --replay ../recording.tar -- -batch "$@"
        ok=$?
        cd "$work" || exit
        mv "$roots.away" "$roots"
        mv empty/output empty/said .
        [ $ok = 0 ] || continue
        check "$r: nothing else is left there" [ -z "$(ls -A empty)" ]
        case $r in
        umoci)
            says "$r: gdb stops" said '^Breakpoint 1, main'
            says "$r: gdb has its values" said '^.1 = 2$'
            ;;
        *) says "$r: gdb comes to the end" said 'SIGKILL|with code 010' ;;
        esac
    done
}

# --- kernels ----------------------------------------------------------------

# kernel NAME ROOT SUITE...
kernel() {
    which=$1
    root_too=$2
    shift 2
    if ! made "kernels/$which" kernel_packages "$@" ||
        ! material program || ! material "$root_too"; then
        echo "SKIP Debian's of $* cannot be had; see $log"
        return
    fi
    tree=$dir/kernels/$which
    version=$(cat "$tree/version")
    image=$(ls "$tree/boot/vmlinuz-$version" \
        "$tree/usr/lib/modules/$version/vmlinuz" 2> /dev/null)
    set -- --kernel-image "$image" --modules "$tree"
    cp "$roots/program/bin/works" .
    for profiler in '' --perf --rr; do
        # shellcheck disable=SC2086 # a word or none
        boot 8 "$@" $profiler --append mine=yes --run ./works a || continue
        says "${profiler:+$profiler }--run" said '^[0-9]+, MINE='
        check "it is $version" grep -qF "guest: kernel $version" "$boot_log"
    done
    choose "$root_too"
    boot_root "$@" --rr
    boot 0 "$@" --append mine=yes --run cat /proc/cmdline &&
        says --append said ' mine=yes'
    # With the driver, where it builds
    set -- "$@" --kernel-build "$tree/usr/src/linux-headers-$version"
    boot_log=$state/$name.driver.log
    "$top/scripts/boot" --release "$release" "$@" > "$boot_log" 2>&1
    status=$?
    if grep -q 'without a driver: it does not build' "$boot_log"; then
        check "no driver, which is said" [ $status = 1 ]
        says "no LWP, which is said" "$boot_log" 'makes no LWP available'
        [ "$which" != 6.1 ] || echo "FAIL the driver does not build"
    else
        check "with the driver: status 0" [ $status = 0 ]
        says "with the driver: loaded" "$boot_log" '^guest: driver loaded'
        says "with the driver: a profile" "$boot_log" '^guest: bzip2 profiled'
    fi
}

# --- the page ---------------------------------------------------------------

page=$top/docs/kernel.md
source=$dir/kernel

# Commands, each with what it is to say: lines behind $, and those that are said
page_commands() {
    joined "$page" |
        awk '/^    \$ / { print; on = 1; next }
            /^    / && on { sub(/^    /, ""); print "> " $0 }' |
        sed 's/^    \$ /$ /'
}

# What is made of the source, for one kernel after another
without_numbers() {
    tr -d '\r' < "$1" | sed 's/6\.1\.[0-9][0-9]*/6.1.N/g; s/^ *//'
}

# do_command COMMAND: in the directory with the source; its output is in out
do_command() {
    case $1 in
    'apt-get install '*)
        # shellcheck disable=SC2086 # words
        (need_packages ${1#apt-get install }) > out 2>&1
        ;;
    'scripts/boot '*'&')
        eval "\"$top/scripts/boot\" --release $release ${1#scripts/boot}" \
            > waits 2>&1 < /dev/null 4>&-
        waited=0
        until grep -q 'waits for' waits || [ $((waited += 1)) = 3000 ]; do
            sleep 0.2
        done
        cp waits out
        port=$(sed -n "s/.*target remote :\([0-9]*\)'.*/\1/p" waits)
        ;;
    'scripts/boot '*)
        eval "\"$top/scripts/boot\" --release $release ${1#scripts/boot}" \
            > out 2>&1 < /dev/null
        ;;
    'gdb '*)
        # If another guest has it
        command=$(echo "$1" | sed "s/:1234/:$port/")
        eval "timeout 1800 $command" > out 2>&1 < /dev/null
        status=$?
        wait
        return $status
        ;;
    *) eval "$1" > out 2>&1 < /dev/null ;;
    esac
}

# A command of the page has been done
verdict() {
    [ "$command_is" ] || return 0
    boot_log=$state/page.$n.log
    cp out "$boot_log"
    # What it says of what is missing is no success.
    should=0
    ! grep -q '^boot: .* lacks$' wanted || should=1
    check "$command_is" [ "$did" = $should ]
    without_numbers out > told
    without_numbers wanted > wants
    while read -r want; do
        check "says '$want'" grep -qF -e "$want" told
    done < wants
    : > wanted
}

# All, as each needs what those before it have made; the kernel is kept.
page() {
    mkdir -p "$source/build"
    cd "$source" || exit
    ln -sfn "$build/boot" build/boot
    # shellcheck disable=SC2016
    sed -n '/^```gdb session$/,/^```$/p' "$page" | sed '1d;$d' > session
    page_commands > commands
    sed '/^\$ scripts\/boot/,$d' commands > first
    : > wanted
    n=0
    command_is=
    kept=
    ! cmp -s first made || kept=yes
    while read -r sign line <&3; do
        case $sign in
        '>') echo "$line" >> wanted; continue ;;
        esac
        verdict
        n=$((n + 1))
        command_is=$line
        if [ "$kept" ] && [ $n -le "$(grep -c '^\$' first)" ]; then
            : > out
            echo "PASS $line (done before)"
            command_is=
            continue
        fi
        [ $n -le "$(grep -c '^\$' first)" ] || cp first made
        do_command "$line"
        did=$?
        [ $did = 0 ] || [ $n -gt "$(grep -c '^\$' first)" ] || {
            verdict
            rm -f made
            break
        }
    done 3< commands
    [ $n -lt "$(grep -c '^\$' commands)" ] || verdict
    cd "$work" || exit
}

# ----------------------------------------------------------------------------

for r in 12 13 sid 12.img 12.qcow2 12.tar.xz buildah buildah.tar umoci; do
    once "root-$r" in_root $r
done
once own-tools own_tools
once keep keep
once share share
once replay replay
once kernel-5.10 kernel 5.10 12 bullseye-security bullseye
once kernel-6.1 kernel 6.1 13 bookworm
once kernel-newest kernel newest sid trixie-backports
once page page
[ -z "$left" ] || echo "SKIP own-world: left are$left"
cd "$state" || exit
! grep -qrs --exclude='*.log' '^FAIL' .
