# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-or-later
# What a checkout builds: lib.sh takes it in if it is there, and it is not in
# Debian's packages of this, which have all that it makes.
# shellcheck disable=SC2154 # of lib.sh, and of scripts/boot

# meson_works MESON: not that Python has come to be one without it.  "--version",
# which takes half a second, is for one that is not a package of Python.
meson_works() {
    interpreter=$(sed -n '1s/^#!//p' "${1%% *}" 2> /dev/null)
    case $interpreter in
    *python*) ! $interpreter -c 'import mesonbuild' 2> /dev/null || return 0 ;;
    esac
    $1 --version > /dev/null 2>&1
}

# meson_setup MESON DIR SOURCE [OPTION...]: once; and again, with the reason, if it
# was interrupted, or cannot be built because the meson that did it is gone.
meson_setup() {
    by=$1
    shift
    did=$(sed -n 's/^ command = \(.*\) --internal regenerate .*/\1/p' \
        "$1/build.ninja" 2> /dev/null) || true
    if [ -z "$did" ] || [ ! -f "$1/meson-private/coredata.dat" ]; then
        why="it was left unfinished"
    elif meson_works "$did"; then
        return
    else
        why="$did does not work any more"
    fi
    [ ! -e "$1" ] || say "setting up ${1#"$root"/} again: $why"
    rm -rf "$1"
    logged "${1##*/}-setup" "$by" setup "$@"
}

# build_tools MESON: guest/tools, in build/tools.
build_tools() {
    need_packages gcc gcc-multilib libc6-dev ninja-build pkg-config libdw-dev libjs-d3 \
        libelf-dev libiberty-dev zlib1g-dev
    meson_setup "$1" "$build/tools" "$root/guest/tools"
    say "building lwp"
    logged tools-build ninja -C "$build/tools"
}

# fetch_source DIR SUITE PACKAGE [RELEASE]: a Debian source package, of a version
# of RELEASE, checked by apt when it is fetched and against its .dsc from then on.
# The exit status is 2 if Debian does not serve it.
fetch_source() {
    if ! (cd "$1" 2>/dev/null && [ -f complete ] && verify_source); then
        [ "${cache_locked:-}" ] || { cached fetch_source "$@"; return; }
        say "fetching the source of $3${4:+ $4} ($2)"
        rm -rf "$1"
        mkdir -p "$1"
        apt_lists "$2"
        source_version=$3/$2
        if [ -n "${4:-}" ]; then
            # A suite may have more than one release.
            source_version=$(apt-cache -c "$cache/apt/$2/apt.conf" showsrc \
                --only-source "$3" | sed -n "s/^Version: //p" |
                grep -E "^([0-9]+:)?$4[.+~-]" | sort -V | tail -n 1)
            [ -n "$source_version" ] || {
                echo "${0##*/}: Debian $2 has no source of $3 $4 any more" >&2
                exit 2
            }
            source_version=$3=$source_version
        fi
        (cd "$1" && progress "fetch-source-$3" apt_suite "$2" source \
            --download-only "$source_version") || exit 2
        (cd "$1" && verify_source) ||
            die "the source of $3 does not match its .dsc"
        touch "$1/complete"
    fi
}

# fetch_pinned DIR SUMS: a source package of which SUMS has the SHA256 and the place
# on the mirror of each file.  Fails if they are not all there.
fetch_pinned() {
    [ -f "$2" ] || return
    if ! (cd "$1" 2>/dev/null && [ -f complete ] && verify_source); then
        [ "${cache_locked:-}" ] || { cached fetch_pinned "$@"; return; }
        uri=$(mirror) || exit 1
        rm -rf "$1"
        mkdir -p "$1"
        while read -r sum place; do
            say "fetching ${place##*/}"
            /usr/lib/apt/apt-helper download-file "${uri%/}/$place" \
                "$1/${place##*/}" "SHA256:$sum" > "$logs/fetch-pinned.log" 2>&1 ||
                return
        done < "$2"
        touch "$1/complete"
    fi
}

verify_source() {
    awk '/^Checksums-Sha256:/ { on = 1; next } /^[^ ]/ { on = 0 }
         on { print $1 "  " $3 }' ./*.dsc | sha256sum --quiet -c - 2>/dev/null
}

# --- building QEMU ----------------------------------------------------------

# What that needs, and the compiler's cache
qemu_packages() {
    need_packages git patch xz-utils dpkg-dev gcc gcc-multilib libc6-dev make \
        ninja-build ccache pkg-config flex bison python3-venv libglib2.0-dev \
        libpixman-1-dev libfdt-dev device-tree-compiler libslirp-dev seabios \
        ipxe-qemu gdb perl

    export CCACHE_DIR="$cache/ccache" CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1 \
        CCACHE_MAXSIZE=2G
}

# QEMU wants meson 1.5; where Debian's is older, trixie's serves from a private
# Python environment.
make_python() {
    if /usr/bin/python3 -c 'import sys, mesonbuild.coredata as c
v = tuple(int(x) for x in c.version.split(".")[:2])
sys.exit(v < (1, 5))' 2>/dev/null; then
        python=/usr/bin/python3
        return
    fi
    python=$cache/python/bin/python3
    if [ ! -f "$cache/python/complete" ] ||
        ! "$python" -c 'import mesonbuild' 2>/dev/null; then
        [ "${cache_locked:-}" ] || { cached make_python; return; }
        rm -rf "$cache/python" "$cache/meson"
        fetch_debs "$cache/meson" trixie meson
        logged venv /usr/bin/python3 -m venv --system-site-packages \
            --without-pip "$cache/python"
        cp -R "$cache"/meson/usr/lib/python3/dist-packages/. \
            "$cache"/python/lib/python3*/site-packages
        touch "$cache/python/complete"
    fi
}

# configure [OPTION...]: QEMU, in $bld, a directory below its source: once; and
# again, with the reason, if it must be.  It goes on with the meson that it has,
# whatever there is by now.
configure() {
    # shellcheck disable=SC2154
    had=$(cat "$bld/.configured" 2> /dev/null) || true
    python=$(echo "$had" | sed -n 's/.* --python=\([^ ]*\).*/\1/p')
    if [ -z "$had" ]; then
        why="it was left unfinished"
    elif ! meson_works "$bld/pyvenv/bin/meson"; then
        why="its meson does not work any more"
        had=
    else
        why="the options were $had"
    fi
    [ "$had" ] || make_python
    # 10.0 compiles AVX2 only if it is asked to; later releases have no option.
    if [ -z "${host:-}" ] && [ "$(uname -m)" = x86_64 ] &&
        grep -qs -e --enable-avx2 "${bld%/*}/scripts/meson-buildoptions.sh"; then
        set -- --enable-avx2 "$@"
    fi
    set -- --target-list=x86_64-softmmu,x86_64-linux-user,i386-linux-user \
        --without-default-features --enable-tcg --enable-system \
        --enable-linux-user --enable-plugins --enable-slirp --enable-vhost-user \
        --enable-fdt=system --disable-install-blobs --disable-docs \
        --python="$python" --cc='ccache gcc' --cross-cc-i386=gcc "$@"
    [ "$had" != "$*" ] || return 0
    if [ -e "$bld" ]; then
        say "configuring ${bld#"$root"/} again: $why"
    else
        say "configuring QEMU (half a minute)"
    fi
    rm -rf "$bld"
    mkdir -p "$bld"
    (cd "$bld" && logged configure ../configure "$@")
    echo "$*" > "$bld/.configured"
}

fetch_seabios() {
    [ ! -f "$1/complete" ] || return 0
    fetch_debs "$1" trixie seabios
    touch "$1/complete"
}

# The source has no firmware; QEMU looks for it under qemu-bundle.  SeaBIOS before
# 1.16.3 waits 32 seconds for each disk of q35's AHCI, so trixie's is taken.
link_firmware() {
    newer=
    if dpkg --compare-versions "$(dpkg-query -W -f '${Version}' seabios)" \
        lt 1.16.3; then
        newer=$cache/seabios
        [ -f "$newer/complete" ] || cached fetch_seabios "$newer"
    fi
    d=$bld/qemu-bundle/usr/local/share/qemu
    mkdir -p "$d"
    # Debian releases differ in where they put it.
    for f in ${newer:+$(find "$newer" -name '*.bin')} \
        $(dpkg -L seabios ipxe-qemu | grep -E '\.(bin|rom)$') \
        "$bld"/pc-bios/optionrom/*.bin; do
        [ -e "$d/${f##*/}" ] || ln -sf "$f" "$d"
    done
    for f in bios-256k.bin efi-e1000.rom kvmvapic.bin linuxboot_dma.bin; do
        [ -e "$d/$f" ] || die "there is no $f among Debian's and QEMU's firmware"
    done
}

# --- other hosts --------------------------------------------------------------

# The packages that programs for another processor are linked with
# shellcheck disable=SC2034 # of scripts/package
cross_libraries='libc6 libdw1 libelf1 libfdt1 libgcc-s1 libglib2.0-0 libslirp0 zlib1g'

# cross_tools: what compiles for $host, a processor of Linux's name, and runs that here:
# $cc, $emulator, and for meson $build/$host/cross.  By clang, as Debian's gcc for other
# processors excludes gcc-multilib; $host_arch is Debian's name of it, and what is linked
# with is of Debian 12, and so for all later ones.
cross_tools() {
    endian=little
    case $host in
    aarch64) host_arch=arm64 ;;
    s390x) host_arch=s390x endian=big ;;
    esac
    triple=$host-linux-gnu
    need_packages clang "binutils-$triple" pkg-config
    # That of Debian 12 fails where a child of fork() makes a thread.
    fetch_tree "$cache/qemu-user" trixie qemu-user
    sysroot=$cache/$host
    fetch_tree "$sysroot" "bookworm:$host_arch" libc6-dev libgcc-12-dev \
        libglib2.0-dev libfdt-dev libslirp-dev libdw-dev libelf-dev libiberty-dev \
        zlib1g-dev
    # A linker follows links to / to the wrong one.
    (cd "$sysroot" && find . -type l -lname '/*') | while read -r l; do
        to=$sysroot$(readlink "$sysroot/$l")
        ln -sfn "$(realpath -m -s --relative-to="$sysroot/${l%/*}" "$to")" \
            "$sysroot/$l"
    done
    cc="clang --target=$triple --sysroot=$sysroot"
    emulator="$cache/qemu-user/usr/bin/qemu-$host -L $sysroot"
    pkg_config=$build/$host/pkg-config
    mkdir -p "$build/$host"
    cat > "$pkg_config" << END
#!/bin/sh
export PKG_CONFIG_SYSROOT_DIR="$sysroot"
export PKG_CONFIG_LIBDIR="$sysroot/usr/lib/$triple/pkgconfig"
exec pkg-config "\$@"
END
    cat > "$build/$host/cross" << END
[binaries]
c = '$build/$host/cc'
ar = '$triple-ar'
strip = '$triple-strip'
pkgconfig = '$pkg_config'
exe_wrapper = '$build/$host/emulator'
[host_machine]
system = 'linux'
cpu_family = '$host'
cpu = '$host'
endian = '$endian'
END
    printf '#!/bin/sh\nexec %s "$@"\n' "$cc" > "$build/$host/cc"
    printf '#!/bin/sh\nexec %s "$@"\n' "$emulator" > "$build/$host/emulator"
    chmod +x "$pkg_config" "$build/$host/cc" "$build/$host/emulator"
}

# build_cross: QEMU for $host, from the tree in $tree, in $bld, which it sets
build_cross() {
    cross_tools
    qemu_packages
    bld=$tree/build-$host
    export PKG_CONFIG="$pkg_config"
    configure --cross-prefix="$triple-" --cpu="$host" --host-cc=gcc \
        --cc="ccache $cc" --cross-cc-x86_64=gcc
    say "building QEMU for $host in ${bld#"$root/"}"
    progress "build-$host" ninja -C "$bld" qemu-system-x86_64 qemu-x86_64 qemu-i386
}

# --- the guest ---------------------------------------------------------------

# Of Debian's source, laid out as its packages are.
build_kernel() {
    need_packages bc bison flex gcc libelf-dev make xz-utils
    config=$root/tests/guest/debug.config
    stale "$kernel/complete" "$config" || return 0
    [ "${cache_locked:-}" ] || { cached build_kernel; return; }
    rm -rf "$kernel"
    mkdir -p "$kernel/boot" "$kernel/build"
    fetch_debs "$kernel" "$suite" "$meta"
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
        logged boot-bzip2 gcc -O2 -g -ffile-prefix-map="$out/bzip2-src"=/usr/src \
            -D_FILE_OFFSET_BITS=64 -o "$out/bzip2" \
            blocksort.c huffman.c crctable.c randtable.c compress.c \
            decompress.c bzlib.c bzip2.c)
}

# build_test NAME [OPTION...]: a program of guest/test
build_test() {
    name=$1
    shift
    stale "$out/$name" "$guest/test" "$guest/linux/lwp_ioctl.h" || return 0
    say "building $name"
    logged "boot-$name" gcc -std=gnu11 -O2 -g -ffile-prefix-map="$(pwd)"=. \
        -Wall -Wextra -mlwp -pthread -I"$guest/linux" "$@" -o "$out/$name.new" "$guest/test/${name%32}.c"
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

fetch_busybox() {
    fetch_debs "$cache/busybox" bookworm busybox-static
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

# pack_base DIR: what every guest has, in DIR, and as DIR.cpio
pack_base() {
    fs=$1
    rm -rf "$fs"
    usr_links "$fs"
    for d in dev etc proc root run sys tmp; do
        mkdir -p "$fs/$d"
    done
    cp "$busybox" "$out/bzip2" "$build/tools/lwp" "$build/tools/example" \
        "$out/rr-demo" "$fs/bin"
    mkdir -p "$fs/usr/src"
    cp "$guest/test/rr-demo.c" "$fs/usr/src"
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
    pack "$fs" "$fs.cpio"
}

# build_base MESON: that, and the programs for --test
build_base() {
    # scripts/build has installed the libelf that the kernel's objtool needs.
    need_packages gcc gcc-multilib libc6-dev make
    busybox=$cache/busybox/bin/busybox
    [ -e "$busybox" ] || cached fetch_busybox
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
    base=$out/initramfs.cpio
    ! stale "$base" "$out"/lwp-* "$out"/pmu-lo* "$out"/rr-* "$out/pmu-taken" \
        "$out/bzip2" "$build/tools/lwp" "$guest/test" "$guest/init" "$busybox" \
        "$root/scripts/compile.sh" || pack_base "$out/initramfs"
}

copy_tests() {
    cp "$out/pmu-load" "$out/pmu-loop" "$out/pmu-share" "$out/pmu-taken" \
        "$guest/test/pmu-branches" "$guest/test/pmu-cost" \
        "$guest/test/pmu-perf" "$guest/test/pmu-dmesg" \
        "$guest/test/pmu-generic" "$guest/test/pmu-ibs" \
        "$guest/test/pmu-memory" "$guest/test/pmu-names" \
        "$guest/test/pmu-p4" "$guest/test/pmu-pebs" "$guest/test/pmu-pt" \
        "$guest/test/rr-cost" "$guest/test/rr-replay" "$fs/usr/bin"
    find "$out" -maxdepth 1 \( -name 'lwp-*' -o -name 'rr-*' \) -type f \
        -perm -u+x -exec cp {} "$fs/usr/bin" \;
    [ ! "$module" ] || cp "$out/fault-$kernel_name.ko" "$fs/usr/lib/lwp-fault.ko"
    # For nested guests
    load_list kvm kvm kvm-amd
}
