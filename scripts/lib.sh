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
cache=${QEMU_LWP_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/qemu-lwp}
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
# Guests are amd64's.  Where this machine is not, $foreign is its architecture, and what
# is the guest's is fetched from a suite with $of_guest behind its name.
foreign=$(dpkg --print-architecture)
[ "$foreign" != amd64 ] || foreign=
of_guest=${foreign:+:amd64}

# Programs of ours among QEMU's qtests; what each needs is in docs/submitting.md.
our_qtests='lwp-test lwp-models-test pmu-test pmu-models-test branch-test ibs-test'

mkdir -p "$logs" "$cache"

say() {
    [ -z "${QEMU_LWP_QUIET:-}" ] || return 0
    elapsed=$(($(date +%s) - started))
    printf '[%02d:%02d] %s\n' $((elapsed / 60)) $((elapsed % 60)) "$*"
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    # For the file of --json, from subshells, too
    [ -z "${QEMU_LWP_WHY:-}" ] || printf '%s\n' "$*" > "$QEMU_LWP_WHY"
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

# show_progress: of stdin, "> STEP" as it is, and "N TOTAL [UNIT]" as N of TOTAL, or N
# UNIT, with the time that is left: on a terminal in a line that is rewritten, and
# elsewhere in one for each tenth of what takes longer than five seconds.  Not by awk:
# Debian 13's reads a pipe to its end first.
show_progress() {
    [ -z "${QEMU_LWP_QUIET:-}" ] || { cat > /dev/null; return; }
    clear='' end='\n' every=5
    [ ! -t 1 ] || clear='\033[K' end='\r' every=1
    before=0
    while read -r n total unit; do
        [ "$n" != '>' ] || { printf "$clear        %s\n" "$total${unit:+ $unit}"; continue; }
        read -r now _ < /proc/uptime
        now=${now%.*}
        if [ "$before" = 0 ] || [ "$n" -lt "$before" ]; then
            # It has begun, as apt does twice: it fetches, and then it installs.
            first=$n since=$now next=$((now + every)) shown=0
        fi
        before=$n
        if [ "$now" -lt "$next" ] || [ "$n" = "$first" ] || [ "$n" = "$total" ]; then
            continue
        fi
        [ $every = 1 ] || [ $((10 * n / total)) != "$shown" ] || continue
        shown=$((10 * n / total))
        next=$((now + every))
        left=$(((now - since) * (total - n) / (n - first)))
        printf "$clear        %s, %d s left$end" "$n ${unit:-of $total}" $left
    done
    printf '%b' "$clear"
}

# followed NAME COMMAND...: as logged, but show how far it is, by its "[N/TOTAL]", by
# what apt's APT::Status-Fd=1 says, or by what mmdebstrap, or say, says.  Fails if it does.
followed() {
    log=$logs/$1.log
    shift
    rm -f "$log.failed"
    { ("$@") 2>&1 || touch "$log.failed"; } | sed -nu "/^[dp][lm]status:/!w $log
        s|^\[\([0-9]*\)/\([0-9]*\)\].*|\1 \2|p
        /^I: running --/d
        s,^\(I: \|\[[0-9]*:[0-9]*\] \),> ,p
        s|^[dp][lm]status:[^:]*:\([0-9]*\)[0-9.]*:.*|\1 100 %|p" | show_progress
    [ -e "$log.failed" ] || return 0
    rm -f "$log.failed"
    return 1
}

# progress NAME COMMAND...: the same, but fail as logged
progress() {
    followed "$@" || {
        shift
        grep -E -A 15 '^FAILED|error:' "$log" | head -n 40 >&2 ||
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
    followed apt as_root apt-get -o APT::Status-Fd=1 update ||
        die "apt cannot read its package lists: is the network up? (see $logs/apt.log)"
    # shellcheck disable=SC2086
    progress apt-install as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -o DPkg::Lock::Timeout=600 -o APT::Status-Fd=1 install -y \
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
APT::Status-Fd "1";
END
    [ "$codename" = "$1" ] || cat >> "$d/apt.conf" << END
APT::Architecture "${1#*:}";
APT::Architectures "${1#*:}";
END
    [ -z "$(find "$d/updated" -mtime -1 2>/dev/null)" ] || return 0
    say "reading Debian $1's package lists"
    followed "apt-$1" apt-get -c "$d/apt.conf" --error-on=any update ||
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
    into=$1
    from=$2
    shift 2
    mkdir -p "$cache/debs"
    apt_lists "$from"
    for p; do
        say "fetching $p ($from)"
        rm -rf "$cache/debs/$p"
        mkdir -p "$cache/debs/$p"
        (cd "$cache/debs/$p" &&
            progress "fetch-$p" apt_suite "$from" download "$p/${from%:*}")
        dpkg -x "$cache/debs/$p/"*.deb "$into"
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

# unpack_debs DIR FILE...
unpack_debs() {
    to=$1
    shift
    n=0
    for p; do
        n=$((n + 1))
        echo "[$n/$#]"
        dpkg-deb --fsys-tarfile "$p" |
            tar -C "$to" --no-same-owner --keep-directory-symlink -x || return
    done
}

# fetch_tree DIR SUITE[:ARCHITECTURE] PACKAGE...: unpack packages and all that
# they depend on into DIR, as a root of a system, but install nothing: no
# maintainer scripts.
fetch_tree() {
    into=$1
    from=$2
    shift 2
    [ "$(cat "$into/complete" 2>/dev/null)" != "$*" ] || return 0
    [ "${cache_locked:-}" ] || { cached fetch_tree "$into" "$from" "$@"; return; }
    debs=$cache/debs/$from
    apt_lists "$from"
    say "fetching $* and what they need ($from)"
    rm -rf "$into" "$debs"
    mkdir -p "$into" "$debs/partial"
    : > "$debs/status"
    progress "fetch-tree-$from" apt_suite "$from" -y --no-install-recommends \
        -o Dir::State::status="$debs/status" \
        -o Dir::Cache::archives="$debs" --download-only install "$@"
    usr_links "$into"
    progress "unpack-$from" unpack_debs "$into" "$debs"/*.deb
    rm -rf "$debs"
    echo "$*" > "$into/complete"
}

# shellcheck source=scripts/compile.sh
[ $installed ] || . "$root/scripts/compile.sh"
