# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-or-later
# The kernel that scripts/boot boots, Debian's or the user's: $image, $version, its
# $modules and what its driver is built against, $headers; either can be empty.  Files
# that are for this kernel alone have $kernel_name in theirs.
# shellcheck disable=SC2034,SC2154 # of scripts/boot and of lib.sh

# number FILE OFFSET: the 16 bits there
number() {
    od -An -tu2 -j "$2" -N 2 "$1" | tr -d ' '
}

# long FILE OFFSET: the 32 bits there
long() {
    od -An -tu4 -j "$2" -N 4 "$1" | tr -d ' '
}

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
    suite=$suite$of_guest
    [ ! "$installed" ] || [ "$linux" != 6.12-debug ] ||
        die "--kernel 6.12-debug is built, which takes a checkout"
}

# The versioned package of that kind on which PACKAGE, fetched, depends.
dependency() {
    dpkg-deb -f "$cache/debs/$1/"*.deb Depends | tr ',' '\n' |
        sed -n "s/^ *\($2[^ ]*\).*/\1/p"
}

fetch_kernel() {
    [ ! -f "$kernel/complete" ] || return 0
    [ "${cache_locked:-}" ] || { cached fetch_kernel; return; }
    rm -rf "$kernel"
    mkdir -p "$kernel"
    fetch_debs "$kernel" "$suite" "linux-image-$meta"
    image=$(dependency "linux-image-$meta" linux-image-)
    fetch_debs "$kernel" "$suite" "$image"
    echo "${image#linux-image-}" > "$kernel/complete"
}

# What a driver for it is built with, which a mirror need not have any more
fetch_headers() {
    headers=linux-headers-$version
    ! grep -qs "^include $kernel/" "$kernel/usr/src/$headers/Makefile" || return 0
    [ "${cache_locked:-}" ] || { cached fetch_headers; return; }
    fetch_debs "$kernel" "$suite" "$headers"
    common=$(dependency "$headers" linux-headers-)
    kbuild=$(dependency "$headers" linux-kbuild-)
    fetch_debs "$kernel" "$suite" "$common" "$kbuild"
    # Where Debian would have installed them.
    sed -i "s|^include /usr/src/|include $kernel/usr/src/|" \
        "$kernel/usr/src/$headers/Makefile"
}

# The vmlinux that the bzImage has, as Linux's boot protocol says: QEMU starts that,
# too, by its PVH entry, and the guest would take longer to unpack it.
unpack_kernel() {
    [ ! -f "$kernel/boot/vmlinux" ] || return 0
    [ "${cache_locked:-}" ] || { cached unpack_kernel; return; }
    need_packages lz4 zstd
    say "unpacking the kernel"
    at=$((($(number "$image" 497) % 256 + 1) * 512 + $(long "$image" 584)))
    tail -c +$((at + 1)) "$image" |
        head -c $(($(long "$image" 588) - 4)) > "$kernel/boot/payload"
    decompressed "$kernel/boot/payload" > "$kernel/boot/vmlinux.new"
    rm "$kernel/boot/payload"
    mv "$kernel/boot/vmlinux.new" "$kernel/boot/vmlinux"
}

debian_kernel() {
    case $linux in
    *-debug) build_kernel ;;
    *) fetch_kernel ;;
    esac
    version=$(cat "$kernel/complete")
    kernel_name=$version
    image=$kernel/boot/vmlinuz-$version
    # That does not come back from suspend to RAM, which only these can want.
    case $linux,$mode in
    *-debug,* | *,shell | *,test) ;;
    *) unpack_kernel; image=$kernel/boot/vmlinux ;;
    esac
    modules=$kernel/lib/modules/$version
    headers=$kernel/usr/src/linux-headers-$version
}

# --- the user's -------------------------------------------------------------

# read_kernel FILE: what it says of itself, which for a bzImage is in the header of
# Linux's boot protocol
read_kernel() {
    image=$1
    case $image in
    */*) ;;
    *) image=./$image ;;
    esac
    if [ ! -f "$image" ] || [ ! -r "$image" ]; then
        die "there is no kernel '$image'"
    fi
    vmlinux=
    if [ "$(dd "if=$image" bs=1 skip=514 count=4 2> /dev/null)" = HdrS ]; then
        [ $(($(number "$image" 566) & 1)) = 1 ] ||
            die "'$image' is not a 64-bit kernel"
        at=$(number "$image" 526)
        version=$(tail -c +$((at + 513)) "$image" | head -c 200 | tr '\0' '\n' |
            sed -n '1s/ .*//p')
        tree=$(realpath -sm --relative-base=. "${image%/*}/../../..")
    elif readelf -h "$image" 2> /dev/null | grep -q 'X86-64'; then
        vmlinux=$image
        # The entry that QEMU starts it at
        readelf -nW "$image" 2> /dev/null | grep -q 'Xen .*0x00000012' ||
            die "'$image' is an ELF file that QEMU cannot start: " \
                "it lacks CONFIG_PVH; use its bzImage"
        version=$(grep -aom 1 'Linux version [0-9][^ ]*' "$image" | head -n 1)
        version=${version##* }
        tree=${image%/*}
    else
        die "'$image' is neither a bzImage nor a vmlinux"
    fi
    [ "$version" ] || die "'$image' does not say which Linux it is"
    if ! dpkg --compare-versions "$version" ge 5.10; then
        die "'$image' is Linux $version; this is for 5.10 and later"
    fi
    # Of its own tree, if it is still there
    [ -e "$tree/.config" ] || tree=
    [ "$vmlinux" ] || [ ! -e "${tree:-/none}/vmlinux" ] || vmlinux=$tree/vmlinux
}

# The configuration of the user's kernel, or nothing
kernel_config() {
    for c in "${image%/*}/config-$version" "${image%/*}/config" \
        "${tree:-/none}/.config" "${headers:-/none}/.config" \
        "${image%/*}"/config-*; do
        if grep -qs '^CONFIG_64BIT=' "$c"; then
            echo "$c"
            return
        fi
    done
}

# requires WHAT SYMBOL...: which must be in the kernel, or with --modules be modules
requires() {
    what=$1
    shift
    for s; do
        grep -q "^CONFIG_$s=y" "$config" && continue
        if grep -q "^CONFIG_$s=m" "$config"; then
            [ ! "$modules" ] || continue
            lacking="$lacking
        CONFIG_$s for $what, which is a module: give --modules"
        else
            lacking="$lacking
        CONFIG_$s for $what"
        fi
    done
}

# check_config DISKS EXTRA...: what the kernel must have for this run, told before
# it is booted; EXTRA is perf, rr, share, net or driver.
check_config() {
    config=$(kernel_config)
    if [ ! "$config" ]; then
        say "there is no config-$version beside $image: what it lacks will show"
        return
    fi
    lacking=
    requires "the guest's first program" BLK_DEV_INITRD BINFMT_ELF \
        BINFMT_SCRIPT DEVTMPFS PROC_FS SYSFS TMPFS
    requires "its console" SERIAL_8250 SERIAL_8250_CONSOLE
    [ ! "$1" ] ||
        requires "disks" PCI VIRTIO_PCI VIRTIO_BLK SQUASHFS SQUASHFS_LZ4 \
            OVERLAY_FS
    shift
    for need; do
        case $need in
        perf) requires "--perf" PERF_EVENTS ;;
        rr) requires "--rr" PERF_EVENTS SECCOMP_FILTER EXT4_FS UNIX ;;
        share) requires "a directory of the host's" FUSE_FS VIRTIO_FS ;;
        net) requires "--net" INET VIRTIO_NET ;;
        driver) requires "the driver" MODULES TRACEPOINTS ;;
        esac
    done
    [ -z "$lacking" ] || die "by $config, Linux $version lacks$lacking"
}

# own_kernel FILE MODULES HEADERS: the user's, with its directories or nothing
own_kernel() {
    need_packages binutils
    read_kernel "$1"
    modules=$2
    headers=$3
    if [ "$modules" ]; then
        # As make modules_install INSTALL_MOD_PATH= leaves it, or that itself
        for d in lib usr/lib; do
            [ ! -d "$modules/$d/modules/$version" ] ||
                modules=$modules/$d/modules/$version
        done
        [ "$(find "$modules/" -name '*.ko*' 2> /dev/null | head -n 1)" ] ||
            die "there are no modules in '$modules'"
    fi
    if [ "$headers" ]; then
        is=$(sed -n 's/.*"\(.*\)".*/\1/p' \
            "$headers/include/generated/utsrelease.h" 2> /dev/null) ||
            die "'$headers' is no build of a kernel"
        [ "$is" = "$version" ] ||
            die "'$image' is Linux $version, but '$headers' is $is"
        [ "$vmlinux" ] || [ ! -e "$headers/vmlinux" ] || vmlinux=$headers/vmlinux
        headers=$(cd "$headers" && pwd -P)  # for make, which goes elsewhere
    fi
    # Several can be the same version, and have the same names elsewhere.
    kernel_name=own-$version-$(echo "$(pwd) $image $modules $headers" | cksum |
        cut -d ' ' -f 1)
}
