# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-or-later
# What scripts/boot boots: the driver, and the guest's file systems, which are the
# initramfs and, on disks, Debian's packages and a program of the user's.
# shellcheck disable=SC2154 # of scripts/boot

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/kernel.sh
. "$(dirname "$0")/kernel.sh"

guest=$root/guest
out=$build/boot

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
    make -C "$out/linux" KDIR="$headers" CC=gcc CONFIG_DEBUG_INFO_BTF_MODULES= \
        modules &&
        make -C "$headers" M="$out/linux/test" CC=gcc \
            CONFIG_DEBUG_INFO_BTF_MODULES= modules
}

# The driver, which a kernel of the user's need not have
build_module() {
    module=$out/lwp-$kernel_name.ko
    if [ -z "$headers" ]; then
        say "without a driver: for that, give --kernel-build"
        module=
        return
    fi
    # For gdb it is to be where it was built, which may have been another's since.
    if ! stale "$module" "$guest/linux" "$headers/.config" \
        "$headers/include/generated/utsrelease.h" "$root/scripts/kernel.sh" &&
        { [ -z "$gdb" ] || cmp -s "$module" "$out/linux/lwp.ko"; }; then
        return
    fi
    say "building the driver for Linux $version"
    if [ "$kernel" ]; then
        logged boot-module make_module
    elif ! make_module > "$logs/boot-module.log" 2>&1; then
        say "without a driver: it does not build; see build/logs/boot-module.log"
        module=
        return
    fi
    cp "$out/linux/test/lwp-fault.ko" "$out/fault-$kernel_name.ko"
    cp "$out/linux/lwp.ko" "$module"
}

# A program to profile: an old friend of Debian's, with its symbols.
build_workload() {
    fetch_source "$cache/bzip2" bookworm bzip2
    stale "$out/bzip2" "$cache/bzip2/complete" || return 0
    say "building bzip2"
    rm -rf "$out/bzip2-src"
    mkdir "$out/bzip2-src"
    tar -C "$out/bzip2-src" --strip-components=1 --no-same-owner -xf \
        "$(echo "$cache"/bzip2/*.orig.tar.*z*)"
    (cd "$out/bzip2-src" &&
        logged boot-bzip2 gcc -O2 -g -D_FILE_OFFSET_BITS=64 -o "$out/bzip2" \
            blocksort.c huffman.c crctable.c randtable.c compress.c \
            decompress.c bzlib.c bzip2.c)
}

# build_test NAME [OPTION...]: a program of guest/test
build_test() {
    name=$1
    shift
    stale "$out/$name" "$guest/test" "$guest/linux/lwp_ioctl.h" || return 0
    say "building $name"
    logged "boot-$name" gcc -std=gnu11 -O2 -g -Wall -Wextra -mlwp -pthread \
        -I"$guest/linux" "$@" -o "$out/$name.new" "$guest/test/${name%32}.c"
    mv "$out/$name.new" "$out/$name"
}

# Programs for rr, as a user would have them: with shared libraries.  The source
# of the one that is debugged goes with it.
build_recorded() {
    build_test rr-demo -fno-inline -ffile-prefix-map="$guest/test"=/usr/src
    for t in rr-threads rr-signals rr-rdrand rr-counts; do
        build_test $t
    done
    build_test rr-threads32 -m32
}

# Programs without a C library
build_loops() {
    for t in pmu-loop pmu-taken; do
        stale "$out/$t" "$guest/test/$t.S" || continue
        logged "boot-$t" gcc -nostdlib -static -no-pie \
            -o "$out/$t" "$guest/test/$t.S"
    done
}

# The path that FILE has in the guest, where /bin is /usr/bin and so on.
guest_path() {
    case $1 in
    /bin/* | /sbin/* | /lib/* | /lib32/* | /lib64/* | /libx32/*) echo "/usr$1" ;;
    *) echo "$1" ;;
    esac
}

# copy_libraries PROGRAM...: the dynamic loader and the libraries that programs
# need, from here
copy_libraries() {
    ldd "$@" | sed -n 's,^[^/]*\(/.*\) (0x.*,\1,p' | sort -u |
        while read -r f; do
            g=$(guest_path "$f")
            mkdir -p "$fs${g%/*}"
            cp -L "$f" "$fs$g"
        done
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
    g=$fs/lib/$(basename "${f%.ko*}").ko
    decompressed "$f" > "$g"
    for f in $(readelf -p .modinfo "$g" |
        sed -n 's/^.*\] *depends=\(.*\)/\1/p' | tr , ' '); do
        # Not this one's variables
        (copy_module "$f")
    done
    echo "${g##*/}"
}

# load_list NAME MODULE...: what init is to load
load_list() {
    f=$fs/lib/load/$1
    shift
    for m; do
        (copy_module "$m")
    done | awk '!had[$0]++' > "$f"
}

copy_tests() {
    cp "$out/pmu-load" "$out/pmu-loop" "$out/pmu-share" "$out/pmu-taken" \
        "$guest/test/pmu-branches" "$guest/test/pmu-cost" \
        "$guest/test/pmu-perf" "$guest/test/pmu-dmesg" \
        "$guest/test/pmu-generic" "$guest/test/pmu-ibs" \
        "$guest/test/pmu-memory" "$guest/test/pmu-p4" "$guest/test/pmu-pebs" \
        "$guest/test/rr-cost" "$guest/test/rr-replay" "$fs/bin"
    find "$out" -maxdepth 1 \( -name 'lwp-*' -o -name 'rr-*' \) -type f \
        -perm -u+x -exec cp {} "$fs/bin" \;
    [ ! "$module" ] || cp "$out/fault-$kernel_name.ko" "$fs/lib/lwp-fault.ko"
    # For nested guests
    load_list kvm kvm kvm-amd
}

fetch_busybox() {
    fetch_debs "$cache/busybox" bookworm busybox-static
}

build_initramfs() {
    busybox=$cache/busybox/bin/busybox
    [ -e "$busybox" ] || cached fetch_busybox
    # It takes the guest time to unpack what few need.
    images=
    [ "$root_kind" != image ] || images=-images
    with_tests=
    [ "$mode" != test ] || with_tests=-tests
    initrd=$out/initramfs-$kernel_name$images$with_tests
    stale "$initrd" ${module:+"$module"} "$out"/lwp-* "$out"/pmu-lo* "$out"/rr-* \
        "$out/pmu-taken" "$out/bzip2" "$build/tools/lwp" \
        "$guest/test" "$guest/init" "$root/scripts/guest.sh" \
        "$busybox" ${modules:+"$modules/"} || return 0
    say "packing the initramfs"
    fs=$out/initramfs
    rm -rf "$fs"
    usr_links "$fs"
    for d in dev etc proc root run sys tmp; do
        mkdir -p "$fs/$d"
    done
    cp "$busybox" "$out/bzip2" "$build/tools/lwp" "$build/tools/example" \
        "$out/rr-demo" "$fs/bin"
    mkdir -p "$fs/usr/src" "$fs/lib/load"
    cp "$guest/test/rr-demo.c" "$fs/usr/src"
    [ ! "$module" ] || strip -g -o "$fs/lib/lwp.ko" "$module"
    [ ! "$with_tests" ] || copy_tests
    [ -z "$modules" ] || need_packages xz-utils zstd
    load_list disks virtio_pci virtio_blk squashfs overlay ext4
    load_list share virtio_pci virtiofs
    load_list net virtio_pci virtio_net
    [ -z "$images" ] || for t in btrfs ext4 xfs; do
        load_list $t $t
    done
    for arch in x86_64 i386; do
        d=lib/$arch-linux-gnu
        [ ! -e "$build/tools/$d/lwp-preload.so" ] ||
            { mkdir -p "$fs/bin/$d" &&
                cp "$build/tools/$d/lwp-preload.so" "$fs/bin/$d"; }
    done
    # Debian 13 leaves it to a script of its package.
    ln -s ../lib32/ld-linux.so.2 "$fs/usr/lib/ld-linux.so.2"
    ln -s lib/x86_64-linux-gnu "$fs/bin/lib64"
    ln -s lib/i386-linux-gnu "$fs/bin/lib32"
    copy_libraries "$fs/bin/bzip2" "$fs/bin/lwp" "$fs/bin/example" \
        "$fs/bin/lib/x86_64-linux-gnu/lwp-preload.so"
    cp "$guest/init" "$fs/init"
    chmod 755 "$fs/init"
    # Not compressed: the guest would take longer to unpack it.
    (cd "$fs" && find . | cpio --quiet -o -H newc -R 0:0) > "$initrd.new"
    mv "$initrd.new" "$initrd"
}

# build_guest MESON: all that is not on a disk
build_guest() {
    # scripts/build has installed the libelf that the kernel's objtool needs.
    need_packages cpio gcc gcc-multilib libc6-dev make
    [ -z "$kernel" ] || debian_kernel
    build_module
    # "lwp" itself runs here, too, for what the guest has recorded.
    build_tools "$1"
    build_workload
    for t in lwp-stress lwp-notify lwp-leak lwp-load lwp-limits lwp-kvm \
        lwp-resume lwp-fault lwp-ticks pmu-load pmu-share; do
        build_test $t -static
    done
    build_test lwp-stress32 -static -m32
    # "lwp record" needs a dynamic linker.
    build_test lwp-outlive
    build_recorded
    build_loops
    build_initramfs
}

# --- disks ------------------------------------------------------------------

# fetch_packages NAME PACKAGE...: a disk with packages and what they depend on,
# of the Debian that has a perf of the kernel's version, or of this one if that is
# newer.  Their C library then serves programs from here, too.
fetch_packages() {
    name=$1
    shift
    debian=bookworm
    ! dpkg --compare-versions "$version" ge 6.12 || debian=trixie
    # What has recorded replays.
    [ "$mode" != replay ] || debian=$(recorded debian)
    ! dpkg --compare-versions "$(dpkg-query -W -f '${Version}' libc6)" ge 2.41 ||
        debian=trixie
    packages=$cache/$name-$debian
    fetch_tree "$packages" "$debian" "$@"
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
# next two
list_files() {
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
        PWD=$(pwd) "$root/scripts/program-files" \
            --i386 "$build/qemu-$release/build/qemu-i386" "$@" > "$run/names"
    ) || exit
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
    printf 'cpu=%s debian=%s\n' "$(quote "$cpu")" "${debian:-}"
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
    say "packing ${1:-files}"
    : > "$run/without"
    [ -z "$packages" ] || [ "$user_root" ] || cached list_libraries
    grep -zvxFf "$run/without" "$run/names" > "$run/rest" || :
    write_command "$@" > "$run/command"
    logged "boot-program$slot" tar -cf "$program.tar" -C "$run" command \
        -C / --null --no-recursion -T "$run/rest"
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
