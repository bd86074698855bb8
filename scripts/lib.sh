# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-or-later
# What the scripts and the tests share: progress, locks, Debian packages, and
# fetching through apt's own tools without touching the user's apt set-up.
# shellcheck disable=SC2034 # theirs

self=$(realpath "$0")
root=$(cd "$(dirname "$self")" && until [ -e scripts/lib.sh ]; do
    [ "$(pwd)" != / ] || exit
    cd ..
done && pwd) || { echo "$0 is in no tree with scripts/lib.sh" >&2; exit 1; }
# How scripts/boot is called
me=scripts/boot
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/qemu-lwp
if [ -e "$root/scripts/compile.sh" ]; then
    installed=
    build=$root/build
    out=$build/boot
else
    # By a package, which has what a checkout builds
    installed=yes
    build=$cache/boot
    out=$build
    me=qemu-lwp
fi
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
    [ ! $installed ] || die "this needs packages; as root: apt-get install$missing"
    [ "${cache_locked:-}" ] || { cached need_packages "$@"; return; }
    [ "$(id -u)" = 0 ] || sudo -v 2> /dev/null ||
        die "this needs packages; as root, or with sudo: apt-get install$missing"
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
APT::Sandbox::User "root";
END
    [ "$codename" = "$1" ] || cat >> "$d/apt.conf" << END
APT::Architecture "${1#*:}";
APT::Architectures "${1#*:}";
END
    [ -z "$(find "$d/updated" -mtime -1 2>/dev/null)" ] || return 0
    apt-get -c "$d/apt.conf" --error-on=any update > "$logs/apt-$1.log" 2>&1 ||
        die "cannot read Debian $1's package lists from $uri: is the network up?${remedy:-} (see $logs/apt-$1.log)"
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

# shellcheck source=scripts/compile.sh
[ $installed ] || . "$root/scripts/compile.sh"
