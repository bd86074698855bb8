# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-or-later
# What scripts/boot boots: Debian's kernel, the driver for it, and the guest's
# file systems, which are the initramfs and, on disks, Debian's packages and a
# program of the user's.

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

guest=$root/guest
out=$build/boot

# choose_kernel KERNEL: of the metapackages, whose names do not move with every
# update.
choose_kernel() {
    linux=$1
    kernel=$cache/kernel-$linux
    case $linux in
    6.1) suite=bookworm meta=cloud-amd64 ;;
    6.12) suite=bookworm-security meta=6.12-cloud-amd64 ;;
    6.12-rt) suite=bookworm-security meta=6.12-rt-amd64 ;;
    6.12-debug) suite=bookworm-security meta=linux-source-6.12 ;;
    *) die "--kernel is 6.1, 6.12, 6.12-rt or 6.12-debug, not '$linux'" ;;
    esac
}

# stale TARGET SOURCE...: TARGET is missing or older than some source.
stale() {
    target=$1
    shift
    [ ! -e "$target" ] || [ -n "$(find "$@" -newer "$target")" ]
}

# --- kernel -----------------------------------------------------------------

# The versioned package of that kind on which PACKAGE, fetched, depends.
dependency() {
    dpkg-deb -f "$cache/debs/$1/"*.deb Depends | tr ',' '\n' |
        sed -n "s/^ *\($2[^ ]*\).*/\1/p"
}

# Of Debian's source, laid out as its packages are.
build_kernel() {
    need_packages bc bison flex gcc libelf-dev make xz-utils
    config=$root/tests/guest/debug.config
    stale "$kernel/complete" "$config" || return 0
    [ "${cache_locked:-}" ] || { cached build_kernel; return; }
    rm -rf "$kernel"
    mkdir -p "$kernel/boot" "$kernel/build"
    fetch_debs "$kernel" "$suite" "$meta"
    fetch_debs "$kernel" bookworm busybox-static
    say "building Linux $linux (15 minutes on 2 cores)"
    tar -C "$kernel/usr/src" -xf "$kernel/usr/src/$meta.tar.xz"
    rm "$kernel/usr/src/$meta.tar.xz"
    set -- make -C "$kernel/usr/src/$meta" O="$kernel/build" CC='ccache gcc'
    logged boot-kernel-config "$@" KCONFIG_ALLCONFIG="$config" allnoconfig
    sed -n '/^CONFIG_/p' "$config" | while read -r option; do
        grep -qx "$option" "$kernel/build/.config" ||
            die "Linux does not take $option"
    done
    logged boot-kernel "$@" -j"$(nproc)" bzImage modules
    version=$(cat "$kernel/build/include/config/kernel.release")
    logged boot-kernel-modules "$@" INSTALL_MOD_PATH="$kernel" modules_install
    cp "$kernel/build/arch/x86/boot/bzImage" "$kernel/boot/vmlinuz-$version"
    ln -s ../../build "$kernel/usr/src/linux-headers-$version"
    echo "$version" > "$kernel/complete"
}

fetch_kernel() {
    [ ! -f "$kernel/complete" ] || return 0
    [ "${cache_locked:-}" ] || { cached fetch_kernel; return; }
    rm -rf "$kernel"
    mkdir -p "$kernel"
    fetch_debs "$kernel" "$suite" "linux-image-$meta" "linux-headers-$meta"
    image=$(dependency "linux-image-$meta" linux-image-)
    headers=$(dependency "linux-headers-$meta" linux-headers-)
    version=${image#linux-image-}
    [ "$headers" = "linux-headers-$version" ] ||
        die "Debian $suite has $image but $headers; try again later"
    fetch_debs "$kernel" "$suite" "$image" "$headers"
    common=$(dependency "$headers" linux-headers-)
    kbuild=$(dependency "$headers" linux-kbuild-)
    fetch_debs "$kernel" "$suite" "$common" "$kbuild"
    fetch_debs "$kernel" bookworm busybox-static
    # Where Debian would have installed them.
    sed -i "s|^include /usr/src/|include $kernel/usr/src/|" \
        "$kernel/usr/src/$headers/Makefile"
    echo "$version" > "$kernel/complete"
}

# --- guest ------------------------------------------------------------------

build_module() {
    module=$out/lwp-$version.ko
    stale "$module" "$guest/linux" "$kernel/complete" || return 0
    say "building the driver for Linux $version"
    rm -rf "$out/linux"
    cp -R "$guest/linux" "$out/linux"
    # The kernel was built with a gcc that need not be there.
    logged boot-module make -C "$out/linux" \
        KDIR="$kernel/usr/src/linux-headers-$version" CC=gcc \
        CONFIG_DEBUG_INFO_BTF_MODULES= modules
    logged boot-module-test make -C "$kernel/usr/src/linux-headers-$version" \
        M="$out/linux/test" CC=gcc CONFIG_DEBUG_INFO_BTF_MODULES= modules
    mv "$out/linux/test/lwp-fault.ko" "$out/fault-$version.ko"
    mv "$out/linux/lwp.ko" "$module"
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

# copy_module NAME: of the kernel, unless it is built in; some kernels have them
# compressed.
copy_module() {
    f=$kernel/lib/modules/$version/kernel/$1.ko
    if [ -e "$f" ]; then
        cp "$f" "$fs/lib"
    elif [ -e "$f.xz" ]; then
        xz -dc "$f.xz" > "$fs/lib/${1##*/}.ko"
    fi
}

build_initramfs() {
    initrd=$out/initramfs-$version.gz
    stale "$initrd" "$module" "$out"/lwp-* "$out"/pmu-lo* "$out"/rr-* \
        "$out/pmu-taken" "$out/bzip2" "$build/tools/lwp" \
        "$guest/test" "$guest/init" "$root/scripts/guest.sh" \
        "$kernel/complete" || return 0
    say "packing the initramfs"
    fs=$out/initramfs
    rm -rf "$fs"
    usr_links "$fs"
    for d in dev etc proc root sys tmp; do
        mkdir -p "$fs/$d"
    done
    cp "$kernel/bin/busybox" "$out/bzip2" "$build/tools/lwp" \
        "$build/tools/example" "$out/pmu-load" "$out/pmu-loop" \
        "$out/pmu-taken" "$guest/test/pmu-branches" \
        "$guest/test/pmu-cost" "$guest/test/pmu-perf" \
        "$guest/test/pmu-dmesg" "$guest/test/pmu-generic" \
        "$guest/test/rr-cost" "$guest/test/rr-replay" "$fs/bin"
    find "$out" -maxdepth 1 \( -name 'lwp-*' -o -name 'rr-*' \) -type f \
        -perm -u+x -exec cp {} "$fs/bin" \;
    mkdir -p "$fs/usr/src"
    cp "$guest/test/rr-demo.c" "$fs/usr/src"
    cp "$module" "$fs/lib/lwp.ko"
    cp "$out/fault-$version.ko" "$fs/lib/lwp-fault.ko"
    # For nested guests, and for the disks; each behind those that it needs.
    for m in virt/lib/irqbypass arch/x86/kvm/kvm arch/x86/kvm/kvm-amd \
        drivers/virtio/virtio drivers/virtio/virtio_ring \
        drivers/virtio/virtio_pci_legacy_dev \
        drivers/virtio/virtio_pci_modern_dev drivers/virtio/virtio_pci \
        drivers/block/virtio_blk fs/squashfs/squashfs fs/overlayfs/overlay; do
        copy_module $m
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
    (cd "$fs" && find . | cpio --quiet -o -H newc -R 0:0) \
        > "$out/initramfs.cpio"
    gzip -6n < "$out/initramfs.cpio" > "$initrd.new"
    mv "$initrd.new" "$initrd"
}

# build_guest MESON: all that is not on a disk
build_guest() {
    # scripts/build has installed the libelf that the kernel's objtool needs.
    need_packages cpio gcc gcc-multilib libc6-dev make
    case $linux in
    *-debug) build_kernel ;;
    *) fetch_kernel ;;
    esac
    version=$(cat "$kernel/complete")
    build_module
    # "lwp" itself runs here, too, for what the guest has recorded.
    build_tools "$1"
    build_workload
    for t in lwp-stress lwp-notify lwp-leak lwp-load lwp-limits lwp-kvm \
        lwp-resume lwp-fault lwp-ticks pmu-load; do
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
    case $linux in
    6.12*) debian=trixie ;;
    esac
    ! dpkg --compare-versions "$(dpkg-query -W -f '${Version}' libc6)" ge 2.41 ||
        debian=trixie
    packages=$cache/$name-$debian
    fetch_tree "$packages" $debian "$@"
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
    # shellcheck disable=SC2154
    (
        copies=$1
        shift
        set -f
        IFS='
'
        for f in $copies; do
            set -- --copy="$f" "$@"
        done
        PWD=$(pwd) "$root/scripts/program-files" "$@" > "$run/names"
    ) || exit
}

# The C library, and what belongs to it, is the packages', if they have it.
list_libraries() {
    (cd "$packages" && find usr/lib* -regextype egrep -regex \
        '[^/]*/[^/]*(/[^/]*-linux-gnu)?(/gconv)?/[^/]*\.so[^/]*') > "$run/without"
}

# pack_program [PROGRAM [ARGUMENT...]]: the disk
pack_program() {
    need_packages squashfs-tools
    program=$run/program
    say "packing ${1:-files}"
    : > "$run/without"
    [ -z "$packages" ] || cached list_libraries
    grep -zvxFf "$run/without" "$run/names" > "$run/rest"
    {
        printf 'cd %s\n' "$(quote "$(pwd)")"
        printf 'export PATH=%s:/bin\n' "$(quote "$PATH")"
        [ -z "${LD_LIBRARY_PATH:-}" ] ||
            printf 'export LD_LIBRARY_PATH=%s\n' "$(quote "$LD_LIBRARY_PATH")"
        # shellcheck disable=SC2154
        printf 'record=%s stat=%s\n' "$(quote "$record")" "$(quote "$stat")"
        echo 'set --'
        for f; do
            printf 'set -- "$@" %s\n' "$(quote "$f")"
        done
    } > "$run/command"
    # shellcheck disable=SC2154
    logged "boot-program$slot" tar -cf "$program.tar" -C "$run" command \
        -C / --null --no-recursion -T "$run/rest"
    logged "boot-program$slot" sqfstar -all-root -comp lz4 -no-progress \
        "$program.squashfs" < "$program.tar"
    rm "$program.tar"
}
