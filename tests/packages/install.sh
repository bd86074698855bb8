#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/packages/install.sh [--long] SUITE
#
# The packages that scripts/package has left in build/packages, in a bare root of that
# Debian: they are installed, an ordinary user without any privilege runs qemu-lwp, and
# when they are purged nothing is left but what is the user's.  With --long, all of
# them, by a proxy, then without a network, with kernels that they have no driver for,
# and with an upgrade.  Needs root or sudo.  Prints a line of PASS or FAIL for each.
# shellcheck disable=SC2016 # for the shells in there
set -u

# shellcheck source=tests/packages/common
. "$(dirname "$0")/common"
long=
[ "$1" != --long ] || { long=yes; shift; }
suite=$1
dir=$packages/root-$suite
log=$logs/packages-$suite
uid=1000
as="HOME=/home/user"
home=/home/user
need_packages mmdebstrap util-linux

as_root rm -rf "$dir"
uri=$(mirror) || exit
as_root mmdebstrap --mode=root --variant=apt "$suite" "$dir" "deb $uri $suite main" \
    > "$log-root.log" 2>&1 || {
    echo "FAIL packages-$suite-root: see $log-root.log"
    exit 1
}
# mmdebstrap does not leave what is this machine's.
as_root cp /etc/resolv.conf "$dir/etc"
as_root install -d -o 1000 -g 1000 "$dir/home/user"
as_root cp "$packages"/*.deb "$dir/root"

# --- installed and run --------------------------------------------------------

apt="apt-get install -y --no-install-recommends"
began=$(date +%s)
try install 0 root sh -c "apt-get update && $apt /root/qemu-lwp_*.deb"
try rr 0 user qemu-lwp rr /bin/true
says "$errors" '^guest: replayed' '; for more: qemu-lwp replay /home/user/'
say "from apt install to the end of the first rr: $(($(date +%s) - began)) s"
try again 3 user qemu-lwp --quiet rr sh -c 'echo hello; exit 3'
says "$said" '^hello$'
try lwp 0 user qemu-lwp lwp --html --json it.json /bin/true
says "$errors" 'driver loaded'
page=$(as_root python3 -c 'import json, sys; print(json.load(sys.stdin)["files"]["page"])' \
    < "$dir/home/user/it.json")
says "$dir$page" '^</html>$'
size=$(inside root dpkg-query -W -f '${Installed-Size}' qemu-lwp)
if [ "$size" -le 120000 ]; then
    result PASS "packages-$suite-size: $size KB"
else
    result FAIL "packages-$suite-size: $size KB installed"
fi

# --- without a network, a driver, and so on -----------------------------------

# A proxy, which writes the addresses it is asked for
proxy() {
    python3 -u - << 'END'
import http.server
import shutil
import urllib.request

class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, flush=True)
        try:
            with urllib.request.urlopen(self.path) as r:
                self.send_response(r.status)
                self.send_header('Content-Length', r.headers['Content-Length'])
                self.end_headers()
                shutil.copyfileobj(r, self.wfile)
        except urllib.error.HTTPError as e:
            self.send_error(e.code)
    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Proxy)
print(server.server_port, flush=True)
server.serve_forever()
END
}

# least NAME: of the times that "qemu-lwp NAME" took, in hundredths of a second
least() {
    sed -n "s/^$1 //p" "$log-times.out" | sort -n | head -n 1
}

# bar NAME VALUE MOST
bar() {
    if [ "$2" -le "$3" ]; then
        result PASS "packages-$suite-$1: $2, at most $3"
    else
        result FAIL "packages-$suite-$1: $2, should be at most $3"
    fi
}

all_of_it() {
    try missing 1 offline env XDG_CACHE_HOME=/home/user/none qemu-lwp rr /bin/true
    says "$errors" 'qemu-lwp fetch rr'
    try no-binutils 1 offline qemu-lwp run --kernel-image /boot/none /bin/true
    says "$errors" 'as root: apt-get install.* binutils'

    as_root rm -r "$dir/home/user/.cache"
    proxy > "$log-proxy.out" &
    proxy=$!
    sleep 1
    http_proxy=http://127.0.0.1:$(head -n 1 "$log-proxy.out")
    export http_proxy
    try fetch 0 user qemu-lwp fetch rr perf lwp share
    kill $proxy
    unset http_proxy
    said=$log-proxy.out
    says "$said" 'linux-image-[^/]*cloud-amd64_' '/rr_' '/linux-perf' '/virtiofsd_'

    try offline-rr 0 offline qemu-lwp rr /bin/true
    try replay 0 offline qemu-lwp --quiet replay .cache/qemu-lwp/boot/recording.tar \
        -- -batch -ex continue
    says "$said" SIGKILL
    try offline-perf 0 offline qemu-lwp perf --html /bin/true
    says "$said" '[1-9].* instructions'
    try share 0 offline sh -c 'mkdir shared && qemu-lwp run --share shared \
        sh -c "echo it > shared/file" && cat shared/file'
    says "$said" '^it$'
    for of in '' --perf --rr; do
        try "demo$of" 0 offline qemu-lwp demo $of
    done
    for _ in 1 2 3 4 5; do
        for of in lwp rr perf; do
            t=$(date +%s%N)
            inside offline qemu-lwp $of /bin/true > "$log-time.log" 2>&1 || break 2
            echo "$of $((($(date +%s%N) - t) / 10000000))"
        done
    done > "$log-times.out"
    bar rr-time "$(least rr)" $(($(least lwp) * 14 / 10))
    bar perf-time "$(least perf)" $(($(least lwp) * 18 / 10))

    # A newer kernel than those there are drivers for
    as_root mv "$dir/usr/lib/qemu-lwp/guest/modules" "$dir/root"
    try no-compiler 0 offline qemu-lwp lwp /bin/true
    says "$errors" 'without a driver: .*; as root: apt-get install gcc make$'
    try tools 0 root sh -c "$apt /root/lwp-tools_*.deb /root/liblwp-dev_*.deb gcc make \
        libc6-dev libelf1 pkg-config"
    try compiler 0 user qemu-lwp lwp /bin/true
    says "$errors" 'building the driver' 'driver loaded'
    as_root mv "$dir/root/modules" "$dir/usr/lib/qemu-lwp/guest"

    try example 0 user sh -c 'gcc -o example /usr/share/doc/liblwp-dev/examples/example.c \
        $(pkg-config --cflags --libs lwp) && qemu-lwp run ./example'
    try report 0 user sh -c 'qemu-lwp lwp /bin/ls -lR /usr &&
        lwp report -i .cache/qemu-lwp/boot/profile.data'
    says "$said" ' ls '
    try dkms 0 root sh -c "$apt linux-headers-cloud-amd64 /root/lwp-dkms_*.deb &&
        dkms install lwp/1 -k \$(ls /lib/modules | head -n 1) && dkms status"
    says "$said" '^lwp/1, .*installed'

    # The next version
    mkdir -p "$packages/next"
    for p in "$packages"/*.deb; do
        as_root rm -rf "$packages/next"
        dpkg-deb -R "$p" "$packages/next"
        sed -i 's/^Version: .*/&.next/' "$packages/next/DEBIAN/control"
        as_root dpkg-deb -b "$packages/next" "$dir/root" >> "$log-next.log"
    done
    try upgrade 0 root sh -c "$apt /root/*.next_*.deb"
    try upgraded 0 offline qemu-lwp rr /bin/true
}

[ ! $long ] || all_of_it

# --- and gone -----------------------------------------------------------------

recording=/home/user/.cache/qemu-lwp/boot/recording.tar
before=$(inside root sha256sum $recording)
try remove 0 root sh -c "apt-get remove -y '.*lwp.*'"
try purge 0 root sh -c "apt-get purge -y '.*lwp.*'"
left=$(as_root find "$dir" -xdev \( -path "$dir/home" -o -path "$dir/root" -o \
    -path "$dir/usr/lib/gcc" -o -path "$dir/var/log" -o -path "$dir/var/cache" \) -prune -o \
    -path '*lwp*' -print | grep -v "^$dir$" | sed "s,^$dir,," | grep lwp)
if [ -z "$left" ]; then
    result PASS "packages-$suite-purge: nothing is left"
else
    result FAIL "packages-$suite-purge: there are $(echo "$left" | head -n 3)"
fi
if [ "$(inside root sha256sum $recording)" = "$before" ]; then
    result PASS "packages-$suite-purge: the user's recording is left"
else
    result FAIL "packages-$suite-purge: the user's recording is not what it was"
fi
as_root rm -rf "$dir"
exit $failed
