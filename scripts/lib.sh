# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-or-later
# What the scripts and the tests share: progress, locks, Debian packages, and
# fetching through apt's own tools without touching the user's apt set-up.

root=$(cd "$(dirname "$0")" && until [ -e scripts/lib.sh ]; do
    [ "$(pwd)" != / ] || exit
    cd ..
done && pwd) || { echo "$0 is in no tree with scripts/lib.sh" >&2; exit 1; }
build=$root/build
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/qemu-lwp
logs=$build/logs
started=$(date +%s)

mkdir -p "$logs" "$cache"

say() {
    [ -z "${QEMU_LWP_QUIET:-}" ] || return 0
    elapsed=$(($(date +%s) - started))
    printf '[%02d:%02d] %s\n' $((elapsed / 60)) $((elapsed % 60)) "$*"
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# try_lock FD FILE: for this process and those that it starts, as long as one of
# them has FD open; a lock needs no cleaning up.  Fails if another process has it,
# which FILE names.
try_lock() {
    eval "exec $1>> \"\$2\""
    flock -n "$1" || return 1
    echo "${0#"$root"/}, process $$" > "$2"
}

# lock FD FILE: the same, but wait for it, and say so
lock() {
    ! try_lock "$@" || return 0
    say "waiting for $(cat "$2")"
    flock "$1"
    echo "${0#"$root"/}, process $$" > "$2"
}

unlock() {
    eval "exec $1>&-"
}

# cached COMMAND...: run it while no other process changes the cache
cached() {
    [ -z "${cache_locked:-}" ] || { "$@"; return; }
    lock 8 "$cache/lock"
    cache_locked=1
    "$@"
    cache_locked=
    unlock 8
}

# Run a command with its output in a log file; show the end of it on failure.
logged() {
    log=$logs/$1.log
    shift
    ("$@") > "$log" 2>&1 || {
        tail -n 20 "$log" >&2
        die "'$*' failed; the whole output is in $log"
    }
}

# Not by awk: Debian 13's reads a pipe to its end first.
progress_lines() {
    last=0
    while read -r n total; do
        tenth=$((10 * n / total))
        if [ "$total" -gt 100 ] && [ $tenth != $last ]; then
            echo "        $n of $total"
        fi
        last=$tenth
    done
}

# As logged, but pass on ten lines of a longer "[n/total] ..." progress.
progress() {
    log=$logs/$1.log
    shift
    rm -f "$log.failed"
    { "$@" 2>&1 || touch "$log.failed"; } | tee "$log" |
        sed -nu 's|^\[\([0-9]*\)/\([0-9]*\)\].*|\1 \2|p' | progress_lines
    if [ -e "$log.failed" ]; then
        rm -f "$log.failed"
        grep -E -A 15 '^FAILED|error:' "$log" | head -n 40 >&2 ||
            tail -n 20 "$log" >&2
        die "'$*' failed; the whole output is in $log"
    fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# Install those of the named packages that are missing.
need_packages() {
    missing=
    have=$(dpkg-query -W -f '${db:Status-Status}:${Package} ' "$@" 2>/dev/null) || :
    for p; do
        case " $have" in
        *" installed:$p "*) ;;
        *) missing="$missing $p" ;;
        esac
    done
    [ -n "$missing" ] || return 0
    [ "${cache_locked:-}" ] || { cached need_packages "$@"; return; }
    [ "$(id -u)" = 0 ] || sudo -v 2> /dev/null ||
        die "needs root or sudo to install:$missing"
    say "installing Debian packages:$missing"
    as_root apt-get update > "$logs/apt.log" 2>&1 ||
        die "apt cannot read its package lists: is the network up? (see $logs/apt.log)"
    # shellcheck disable=SC2086
    logged apt-install as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -o DPkg::Lock::Timeout=600 install -y \
        --no-install-recommends $missing
}

# The Debian mirror that this machine already uses.
mirror() {
    [ -z "${QEMU_LWP_MIRROR:-}" ] || { echo "$QEMU_LWP_MIRROR"; return; }
    # shellcheck disable=SC2016
    m=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 2>/dev/null |
        awk '$1 ~ /\/debian\/?$/ && $2 !~ /security/ { print $1; exit }')
    [ -n "$m" ] ||
        die "apt knows no Debian mirror here; set QEMU_LWP_MIRROR to one"
    echo "$m"
}

# apt_lists SUITE[:ARCHITECTURE]: package lists of a suite in the cache, apart
# from apt's own.
apt_lists() {
    d=$cache/apt/$1
    uri=$(mirror) || exit 1
    codename=${1%:*}
    # Security updates are next to what they update.
    case $codename in
    *-security) uri=${uri%/}; uri=${uri%/debian}/debian-security ;;
    esac
    signed='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
    mkdir -p "$d/lists/partial" "$d/archives/partial"
    {
        echo "deb $signed $uri $codename main"
        echo "deb-src $signed $uri $codename main"
    } > "$d/sources.list"
    cat > "$d/apt.conf" << END
Dir::Etc::sourcelist "$d/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "$d";
Dir::State::Lists "$d/lists";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "$d";
APT::Sandbox::User "$(id -un)";
END
    [ "$codename" = "$1" ] || cat >> "$d/apt.conf" << END
APT::Architecture "${1#*:}";
APT::Architectures "${1#*:}";
END
    [ -z "$(find "$d/updated" -mtime -1 2>/dev/null)" ] || return 0
    apt-get -c "$d/apt.conf" --error-on=any update > "$logs/apt-$1.log" 2>&1 ||
        die "cannot read Debian $1's package lists from $uri: is the network up? (see $logs/apt-$1.log)"
    touch "$d/updated"
}

# apt_suite SUITE APT-GET-ARGUMENTS...: apt-get with those lists.
apt_suite() {
    conf=$cache/apt/$1/apt.conf
    shift
    apt-get -c "$conf" "$@"
}

# fetch_debs DIR SUITE[:ARCHITECTURE] PACKAGE...: download packages, unpack them
# into DIR.
fetch_debs() {
    dir=$1
    suite=$2
    shift 2
    mkdir -p "$cache/debs"
    apt_lists "$suite"
    for p; do
        say "fetching $p ($suite)"
        rm -rf "$cache/debs/$p"
        mkdir -p "$cache/debs/$p"
        (cd "$cache/debs/$p" &&
            logged "fetch-$p" apt_suite "$suite" download "$p/${suite%:*}")
        dpkg -x "$cache/debs/$p/"*.deb "$dir"
    done
}

# usr_links DIR: make /bin /usr/bin, and so on.  Newer packages count on it, and
# older ones get on with it.
usr_links() {
    for d in bin sbin lib lib32 lib64 libx32; do
        mkdir -p "$1/usr/$d"
        ln -s "usr/$d" "$1/$d"
    done
}

# fetch_tree DIR SUITE[:ARCHITECTURE] PACKAGE...: unpack packages and all that
# they depend on into DIR, as a root of a system, but install nothing: no
# maintainer scripts.
fetch_tree() {
    dir=$1
    suite=$2
    shift 2
    [ "$(cat "$dir/complete" 2>/dev/null)" != "$*" ] || return 0
    [ "${cache_locked:-}" ] || { cached fetch_tree "$dir" "$suite" "$@"; return; }
    debs=$cache/debs/$suite
    apt_lists "$suite"
    say "fetching $* and what they need ($suite)"
    rm -rf "$dir" "$debs"
    mkdir -p "$dir" "$debs/partial"
    : > "$debs/status"
    logged "fetch-tree-$suite" apt_suite "$suite" -y --no-install-recommends \
        -o Dir::State::status="$debs/status" \
        -o Dir::Cache::archives="$debs" --download-only install "$@"
    usr_links "$dir"
    for p in "$debs"/*.deb; do
        dpkg-deb --fsys-tarfile "$p" |
            tar -C "$dir" --no-same-owner --keep-directory-symlink -x ||
            die "cannot unpack $p"
    done
    rm -rf "$debs"
    echo "$*" > "$dir/complete"
}

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
    need_packages gcc gcc-multilib libc6-dev ninja-build pkg-config libdw-dev \
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
        (cd "$1" && logged "fetch-source-$3" apt_suite "$2" source \
            --download-only "$source_version") || exit 2
        (cd "$1" && verify_source) ||
            die "the source of $3 does not match its .dsc"
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
    set -- --target-list=x86_64-softmmu,x86_64-linux-user,i386-linux-user \
        --without-default-features --enable-tcg --enable-system \
        --enable-linux-user --enable-plugins --enable-slirp --enable-vhost-user \
        --enable-fdt=system --disable-install-blobs --disable-docs \
        --python="$python" --cc='ccache gcc' --cross-cc-i386=gcc "$@"
    [ "$had" != "$*" ] || return 0
    if [ -e "$bld" ]; then
        say "configuring ${bld#"$root"/} again: $why"
    else
        say "configuring QEMU"
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
