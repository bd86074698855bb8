# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-or-later
# What of the host's the guest of scripts/boot sees: a root of the user's, and
# directories.
# shellcheck disable=SC2034,SC2154 # of scripts/boot and of lib.sh

# own_root SOURCE KEEP: sets $root_kind, which is guest/init's lwp_root, and what
# is to be given to QEMU or shared, $root_file and $root_dir.  A tree is packed once,
# as long as nothing in it changes.
own_root() {
    source=$1
    root_kind=squashfs
    root_file=
    root_dir=
    settings=
    [ -r "$source" ] || [ -r "${source%:*}" ] || die "there is no root '$source'"
    if [ -d "$source" ] && [ ! -e "$source/oci-layout" ]; then
        root_dir=$(cd "$source" && pwd)
        for d in bin usr/bin sbin; do
            [ ! -e "$source/$d" ] || break
        done
        [ -e "$source/$d" ] || die "'$source' has no programs: no bin, no usr/bin"
        if [ "$2" ]; then
            root_kind=virtiofs
            return
        fi
    elif disk_format "$source"; then
        root_kind=image
        root_file=$source
        return
    elif [ "$2" ]; then
        die "--keep is for a directory or a disk image, not '$source'"
    fi
    mkdir -p "$out/roots"
    root_file=$out/roots/$(realpath -m "$source" | cksum | cut -d ' ' -f 1).squashfs
    settings=$root_file.settings
    lock 5 "$root_file.lock"
    # Its time of change, which no program sets
    if [ -e "$root_file" ] && [ -z "$(find "${root_dir:-${source%:*}}" \
        -cnewer "$root_file" 2> /dev/null | head -n 1)" ]; then
        unlock 5
        return
    fi
    need_packages squashfs-tools
    say "packing $source"
    rm -f "$root_file.new"
    if [ "$root_dir" ]; then
        : > "$settings"
        logged boot-root mksquashfs "$root_dir" "$root_file.new" -comp lz4 \
            -one-file-system -no-progress
        ! grep -q '^Failed to read' "$logs/boot-root.log" || say \
            "some files are not readable here, and empty in the guest; see ${logs#"$root"/}/boot-root.log"
    else
        rm -f "$root_file.failed"
        # If that fails it has said why, and this fails, too.
        { "$root/scripts/root-tar" "$source" "$settings" ||
            touch "$root_file.failed"; } |
            sqfstar -comp lz4 -root-mode 0755 -no-progress "$root_file.new" \
                > "$logs/boot-root.log" 2>&1 || [ -e "$root_file.failed" ] ||
            die "cannot pack '$source'; see ${logs#"$root"/}/boot-root.log"
        [ ! -e "$root_file.failed" ] || {
            rm -f "$root_file.failed" "$root_file.new"
            exit 1
        }
    fi
    mv "$root_file.new" "$root_file"
    unlock 5
}

# disk_format FILE: sets $root_format; fails if it is no disk image: qcow2, or what
# is no archive and has a file system or partitions where these have their names.
disk_format() {
    [ -f "$1" ] || [ -b "$1" ] || return 1
    root_format=raw
    case $(od -An -tx1 -N 4 "$1" | tr -d ' ') in
    514649fb) root_format=qcow2; return ;;
    58465342) return ;;     # XFS
    esac
    # The superblocks of ext2 to ext4 and Btrfs; a boot sector; od minds short files
    {
        [ "$(od -An -tx2 -j 1080 -N 2 "$1" | tr -d ' ')" = ef53 ] ||
            [ "$(od -An -c -j 65600 -N 8 "$1" | tr -d ' ')" = _BHRfS_M ] ||
            [ "$(od -An -tx2 -j 510 -N 2 "$1" | tr -d ' ')" = aa55 ]
    } 2> /dev/null
}

# find_virtiofsd: Debian 13's, which nobody has to be root for; where it is not
# installed, as on Debian 12, the package with its own $libraries
find_virtiofsd() {
    virtiofsd=/usr/libexec/virtiofsd
    libraries=
    [ ! -x $virtiofsd ] || return 0
    fetch_tree "$cache/virtiofsd" trixie virtiofsd
    virtiofsd=$cache/virtiofsd/usr/libexec/virtiofsd
    libraries=$(echo "$cache"/virtiofsd/usr/lib/*-linux-gnu)
}

# share DIR TAG: by a virtiofsd at $run/TAG.sock, which ends with QEMU
share() {
    find_virtiofsd
    tag=$2
    socket=$run/$tag.sock
    rm -f "$socket"
    set -- "$virtiofsd" --shared-dir "$1" --socket-path "$socket" --xattr
    [ ! "$libraries" ] ||
        set -- "$libraries"/ld-linux-*.so.* --library-path "$libraries" "$@"
    if [ "$(id -u)" = 0 ]; then
        set -- "$@" --sandbox chroot
    else
        set -- "$@" --sandbox none
    fi
    "$@" > "$logs/boot-$tag$slot.log" 2>&1 &
    n=0
    until [ -S "$socket" ]; do
        n=$((n + 1))
        if [ $n = 100 ] || ! kill -0 $! 2> /dev/null; then
            die "virtiofsd does not start; see ${logs#"$root"/}/boot-$tag$slot.log"
        fi
        sleep 0.1
    done
}
