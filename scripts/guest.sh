# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-or-later
# What scripts/boot boots: the driver, and the guest's file systems, which are the
# initramfs and, on disks, Debian's packages and a program of the user's.
# shellcheck disable=SC2154 # of scripts/boot

# shellcheck source=scripts/lib.sh
. "$(dirname "$(realpath "$0")")/lib.sh"
# shellcheck source=scripts/kernel.sh
. "$root/scripts/kernel.sh"

guest=$root/guest

# stale TARGET SOURCE...: TARGET is missing or older than some source.
stale() {
    target=$1
    shift
    [ ! -e "$target" ] || [ -n "$(find "$@" -newer "$target")" ]
}

# --- guest ------------------------------------------------------------------

# make_module: in $out/linux, with a gcc that need not be that of the kernel
make_module() {
    rm -rf "$out/linux"
    cp -R "$guest/linux" "$out/linux"
    set -- CC=gcc CONFIG_DEBUG_INFO_BTF_MODULES= modules
    make -C "$out/linux" KDIR="$headers" "$@" || return
    [ ! -e "$out/linux/test" ] || make -C "$headers" M="$out/linux/test" "$@"
}

# without_driver REASON...: the guest runs all the same.
without_driver() {
    say "without a driver: $*"
    module=
}

# The driver, $module or nothing: as a package brought it, or built here
build_module() {
    module=$guest/modules/lwp-$version.ko
    [ ! "$kernel" ] || [ ! -e "$module" ] || return 0
    module=$out/lwp-$kernel_name.ko
    case $cpu in
    *lwp*) ;;
    *)
        # It would not be loaded.
        [ -e "$module" ] || module=
        return
        ;;
    esac
    lacking=$(for p in gcc make; do
        command -v $p > /dev/null || printf ' %s' $p
    done)
    if [ ! "$headers" ]; then
        without_driver "for that, give --kernel-build"
        return
    elif [ "$foreign" ]; then
        without_driver "the package has none for Linux $version," \
            "and this machine builds none: it is $foreign"
        return
    elif [ "$lacking" ]; then
        without_driver "for Linux $version it has to be built;" \
            "as root: apt-get install$lacking"
        return
    elif [ "$kernel" ] && ! (fetch_headers); then
        [ $installed ] || {
            rm "$kernel/complete"
            die "Linux $version is here, but the mirror has no headers of it;" \
                "the next time, a newer one is fetched"
        }
        without_driver "the mirror has no headers of Linux $version"
        return
    fi
    # For gdb it is to be where it was built, which may have been another's since.
    if ! stale "$module" "$guest/linux" "$headers/.config" \
        "$headers/include/generated/utsrelease.h" "$root/scripts/kernel.sh" &&
        { [ -z "$gdb" ] || cmp -s "$module" "$out/linux/lwp.ko"; }; then
        return
    fi
    say "building the driver for Linux $version"
    if ! make_module > "$logs/boot-module.log" 2>&1; then
        [ $installed ] || [ ! "$kernel" ] ||
            die "the driver does not build; see $logs/boot-module.log"
        without_driver "it does not build; see ${logs#"$root"/}/boot-module.log"
        return
    fi
    [ ! -e "$out/linux/test" ] ||
        cp "$out/linux/test/lwp-fault.ko" "$out/fault-$kernel_name.ko"
    cp "$out/linux/lwp.ko" "$module"
}

# find_module NAME: unless it is built in; in names, - and _ are the same.
find_module() {
    n=$(echo "$1" | sed 's/[-_]/[-_]/g')
    find "$modules/" -name "$n.ko*" ! -name '*.mod*' ! -name '*.cmd' |
        grep -m 1 -E '\.ko(\.(gz|xz|zst))?$'
}

# copy_module NAME: and before it those that it needs; prints their names.
copy_module() {
    [ "$modules" ] || return 0
    f=$(find_module "$1") || return 0
    g=$fs/usr/lib/$(basename "${f%.ko*}").ko
    decompressed "$f" > "$g"
    for f in $(/sbin/modinfo -F depends "$g" | tr , ' '); do
        # Not this one's variables
        (copy_module "$f")
    done
    echo "${g##*/}"
}

# load_list NAME MODULE...: what init is to load
load_list() {
    f=$fs/usr/lib/load/$1
    shift
    for m; do
        (copy_module "$m")
    done | awk '!had[$0]++' > "$f"
}

# pack DIR FILE: as a cpio, which is the same if the files are.  Not compressed: the
# guest would take longer to unpack it.
pack() {
    find "$1" -exec touch -h -d 2000-01-01 {} +
    (cd "$1" && find . | LC_ALL=C sort |
        cpio --quiet --reproducible -o -H newc -R 0:0) > "$2.new"
    mv "$2.new" "$2"
}

# What every guest has, $base, and what this kernel adds to it, as one $initrd
build_initramfs() {
    # It takes the guest time to unpack what few need.
    images=
    [ "$root_kind" != image ] || images=-images
    with_tests=
    [ "$mode" != test ] || with_tests=-tests
    initrd=$out/initramfs-$kernel_name$images$with_tests
    stale "$initrd" "$base" ${module:+"$module"} ${modules:+"$modules/"} \
        "$root/scripts/guest.sh" || return 0
    say "packing the initramfs"
    fs=$out/modules
    rm -rf "$fs"
    # In the base, /lib is a link.
    mkdir -p "$fs/usr/bin" "$fs/usr/lib/load"
    case $module in
    '') ;;
    "$guest"/*) cp "$module" "$fs/usr/lib/lwp.ko" ;;
    *) strip -g -o "$fs/usr/lib/lwp.ko" "$module" ;;
    esac
    [ ! "$with_tests" ] || copy_tests
    [ -z "$modules" ] || need_packages kmod xz-utils zstd
    load_list disks virtio_pci virtio_blk squashfs overlay ext4
    load_list share virtio_pci virtiofs
    load_list net virtio_pci virtio_net
    [ -z "$images" ] || for t in btrfs ext4 xfs; do
        load_list $t $t
    done
    pack "$fs" "$fs.cpio"
    cat "$base" "$fs.cpio" > "$initrd.new"
    mv "$initrd.new" "$initrd"
}

# build_guest MESON: all that is not on a disk
build_guest() {
    need_packages cpio
    base=$guest/base.cpio
    [ $installed ] || build_base "$1"
    [ -z "$kernel" ] || debian_kernel
    build_module
    build_initramfs
}

# --- disks ------------------------------------------------------------------

# choose_debian: the one that has a perf of the kernel's version, or this one if that is
# newer.  Its C library then serves programs from here, too.
choose_debian() {
    debian=bookworm
    ! dpkg --compare-versions "$version" ge 6.12 || debian=trixie
    # What has recorded replays.
    [ "$mode" != replay ] || debian=$(recorded debian)
    ! dpkg --compare-versions "$(dpkg-query -W -f '${Version}' libc6)" ge 2.41 ||
        debian=trixie
}

# fetch_packages NAME PACKAGE...: a disk with packages and what they depend on
fetch_packages() {
    name=$1
    shift
    packages=$cache/$name-$debian
    fetch_tree "$packages" "$debian$of_guest" "$@"
    stale "$packages.squashfs" "$packages/complete" || return 0
    [ "${cache_locked:-}" ] || { cached fetch_packages "$name" "$@"; return; }
    need_packages squashfs-tools
    say "packing the packages"
    rm -f "$packages.squashfs.new"
    logged boot-packages mksquashfs "$packages" "$packages.squashfs.new" \
        -all-root -comp lz4 -no-progress \
        -e usr/share/man usr/share/locale complete
    mv "$packages.squashfs.new" "$packages.squashfs"
}

# make_disk FILE: an empty file system that grows, unless there is one
make_disk() {
    disk=$1
    [ ! -e "$disk" ] || return 0
    need_packages e2fsprogs
    rm -f "$disk.new"
    truncate -s 16G "$disk.new"
    logged boot-disk /sbin/mkfs.ext4 -q -m 0 "$disk.new"
    mv "$disk.new" "$disk"
}

# quote WORD: for the shell in the guest
quote() {
    printf '%s\n' "$1" | sed "s/'/'\\\\''/g; 1s/^/'/; \$s/\$/'/"
}

# list_files COPIES [PROGRAM [ARGUMENT...]]: what a program's disk is to have, with
# the files that COPIES lists, one a line; in $run, which is scripts/boot's, as the
# next two.  Where this machine is $foreign, and for packages: their names.
list_files() {
    rm -f "$run/foreign"
    (
        copies=$1
        shift
        [ "$copies$*" ] || { : > "$run/names"; exit; }
        set -f
        IFS='
'
        for f in $copies; do
            set -- --copy="$f" "$@"
        done
        # Not every host's kernel runs the loader of 32-bit programs.
        why=$(PWD=$(pwd) "$root/scripts/program-files" ${foreign:+--foreign="$run/foreign"} \
            --i386 "$qemu/qemu-i386" "$@" 2>&1 > "$run/names") || die "${why#*: }"
    ) || exit
}

# fetch_foreign: these packages, in $foreign_tree, for that disk
fetch_foreign() {
    foreign_tree=
    [ -s "$run/foreign" ] || return 0
    # shellcheck disable=SC2046 # names
    set -- $(cat "$run/foreign")
    foreign_tree=$cache/programs-$debian/$(echo "$*" | cksum | cut -d ' ' -f 1)
    fetch_tree "$foreign_tree" "$debian$of_guest" "$@"
}

# The C library, and what belongs to it, is the packages', if they have it.
list_libraries() {
    (cd "$packages" && find usr/lib* -regextype egrep -regex \
        '[^/]*/[^/]*(/[^/]*-linux-gnu)?(/gconv)?/[^/]*\.so[^/]*') > "$run/without"
}

# As guest/init looks for them in a root
list_large() {
    grep -zE '^(usr|opt)/' "$run/rest" | (cd / && xargs -0r sh -c \
        'find "$@" -maxdepth 0 -type f -user root -size +1024k ! -perm /111' -)
    [ ! "$foreign_tree" ] || (cd "$foreign_tree" &&
        find usr opt -type f -size +1024k ! -perm /111 2> /dev/null)
}

# write_command [PROGRAM [ARGUMENT...]]: what guest/init is to do with it
write_command() {
    if [ "$user_root" ]; then
        echo 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
        # As its image has them
        [ -z "$settings" ] || cat "$settings"
        # shellcheck disable=SC2016
        echo 'export PATH="$PATH:$ours/beside:$ours/bin"'
        # An image need not have the directory that it names.
        # shellcheck disable=SC2016
        echo 'mkdir -p "${workdir:-/}"; cd "${workdir:-/}"'
    elif [ "$mode" = run ]; then
        printf 'cd %s\n' "$(quote "$(pwd)")"
        printf 'export PATH=%s:/bin\n' "$(quote "$PATH")"
        [ -z "${LD_LIBRARY_PATH:-}" ] ||
            printf 'export LD_LIBRARY_PATH=%s\n' "$(quote "$LD_LIBRARY_PATH")"
    fi
    printf 'record=%s stat=%s\n' "$(quote "$record")" "$(quote "$stat")"
    printf 'cpu=%s debian=%s until_fail=%s\n' "$(quote "$cpu")" "${debian:-}" "$until_fail"
    [ "$profiler" != rr ] || [ "$user_root" ] ||
        printf 'large=%s\n' "$(quote "$(list_large)")"
    [ "$mode" != replay ] ||
        printf 'gdb_port=%s gdb_files=%s\n' "$port" "$(quote "$run/recording")"
    echo 'set --'
    for f; do
        printf 'set -- "$@" %s\n' "$(quote "$f")"
    done
}

# pack_program [PROGRAM [ARGUMENT...]]: the disk
pack_program() {
    need_packages squashfs-tools
    program=$run/program
    [ "$mode" = replay ] || say "packing ${1:-files}"
    : > "$run/without"
    [ -z "$packages" ] || [ "$user_root" ] || cached list_libraries
    grep -zvxFf "$run/without" "$run/names" > "$run/rest" || :
    write_command "$@" > "$run/command"
    logged "boot-program$slot" tar -cf "$program.tar" -C "$run" command \
        -C / --null --no-recursion -T "$run/rest"
    [ ! "$foreign_tree" ] || logged "boot-program$slot" tar -rf "$program.tar" \
        --exclude=./complete --exclude=./usr/share/doc --exclude=./usr/share/man \
        --exclude=./usr/share/locale -C "$foreign_tree" .
    # To compress it would take longer.
    logged "boot-program$slot" sqfstar -all-root -comp lz4 -noI -noD -noF \
        -noX -no-progress "$program.squashfs" < "$program.tar"
    rm "$program.tar"
}

# recorded NAME: of the machine that made the recording
recorded() {
    decompressed "$recording" | tar -xO --wildcards '*/qemu-lwp' 2> /dev/null |
        sed -n "s/^$1=//p"
}

# decompressed FILE
decompressed() {
    case $(od -An -tx1 -N 4 "$1" | tr -d ' ') in
    1f8b*) gzip -dc "$1" ;;
    fd377a58) xz -dc "$1" ;;
    28b52ffd) zstd -dcq "$1" ;;
    02214c18) lz4 -dcq "$1" ;;
    *) cat "$1" ;;
    esac
}

# pack_recording FILE: as a disk
pack_recording() {
    need_packages squashfs-tools
    say "unpacking $1"
    replayed=$run/recording.squashfs
    rm -f "$replayed"
    decompressed "$1" | logged "boot-recording$slot" sqfstar -all-root \
        -comp lz4 -no-progress "$replayed"
    [ "$gdb" ] || return 0
    # The programs, for gdb here
    rm -rf "$run/recording"
    mkdir "$run/recording"
    decompressed "$1" | tar -C "$run/recording" -x --wildcards '*/mmap_pack_*'
}
