#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/guest/own.sh [--release 10.0]
#
# scripts/boot with a kernel and a root of one's own, which are Debian's kernel and
# as little of a root as there can be; what such a kernel lacks is named; a
# directory of the host's and the network are there; a recording is replayed by
# another guest.  Prints a line of PASS or FAIL for each.
set -u

# shellcheck source=tests/guest/common
. "$(dirname "$0")/common"
release=${2:-10.0}
dir="$build/own world"
rm -rf "$dir"
mkdir -p "$dir" && cd "$dir" || exit 1
linux=$cache/kernel-6.1
need_packages e2fsprogs gdb gcc libc6-dev >> "$logs/guest-own-packages.log" || exit

# --- the root: a program, and nothing else ----------------------------------

# The first boot fetches busybox.
boot first 0 --run true
cat > works.c << 'END'
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    FILE *f = fopen(argv[argc - 1], "a+");
    char line[80] = "";
    volatile unsigned x = 1;

    for (int i = 0; i < 3000000; i++) {
        x = x * 69069 + 1;
    }
    if (!f || (rewind(f), fgets(line, sizeof(line), f)), !f) {
        return 3;
    }
    printf("had '%s', %s\n", line, access("/etc/debian_version", F_OK)
           ? "not Debian" : "Debian");
    fprintf(f, "was here\n");
    return argc - 2;
}
END
mkdir -p tree/bin
gcc -O1 -g -static -o tree/bin/works works.c || exit 1
boot root 0 --perf --root tree --run works /file
says "$said" "^had '', not Debian" 'works .*main' '[1-9].* instructions'
if [ "$(find tree -type f)" = tree/bin/works ]; then
    echo "PASS $name: is not changed"
else
    echo "FAIL $name: is changed"
    failed=1
fi

# What packs it has its own words for what is no archive, which nobody needs.
boot no-root 1 --root works.c --run works
says "$log" "^boot: 'works.c' is no tar"
if grep -iq 'fatal\|sqfstar\|^od:' "$log"; then
    echo "FAIL $name: says more than that; see $log"
    failed=1
fi

# A file system that is kept, and an image of containers that is recorded
truncate -s 8M disk
/sbin/mkfs.ext4 -q -d tree disk
boot keep 0 --root disk --keep --run works /file
boot kept 1 --root disk --run works 1 /file
says "$said" "^had 'was here"
python3 - << 'END' || exit 1
import hashlib, io, json, tarfile
def add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o755
    tar.addfile(info, io.BytesIO(data))
layer = io.BytesIO()
with tarfile.open(fileobj=layer, mode='w') as tar:
    add(tar, 'bin/works', open('tree/bin/works', 'rb').read())
layer = layer.getvalue()
config = json.dumps({
    'architecture': 'amd64', 'os': 'linux',
    'config': {'Env': ['PATH=/bin'], 'WorkingDir': '/made'},
    'rootfs': {'type': 'layers', 'diff_ids':
               ['sha256:' + hashlib.sha256(layer).hexdigest()]}}).encode()
name = hashlib.sha256(config).hexdigest() + '.json'
with tarfile.open('image.tar', 'w') as tar:
    add(tar, name, config)
    add(tar, 'layer.tar', layer)
    add(tar, 'manifest.json', json.dumps([
        {'Config': name, 'RepoTags': None, 'Layers': ['layer.tar']}]).encode())
END
# Which does not have the directory that it is to run in
boot record 0 --rr --root image.tar --run works /made/file
says "$said" "^had '', not Debian"
says "$log" '^boot: prepared .*, booted .*, ran .*, saved '
gzip -c "$top/$(sed -n 's/.*the recording is \(.*\);.*/\1/p' "$log")" \
    > recording.tar.gz
boot replay 0 --rr --replay recording.tar.gz -- -batch -ex 'break main' \
    -ex continue -ex 'p argc' -ex finish -ex 'info line works.c:18'
says "$said" 'Breakpoint 1, main' '= 2$'

# --- the host's -------------------------------------------------------------

mkdir shared
echo "of the host's" > shared/in
python3 -m http.server 8765 --bind 127.0.0.1 --directory shared \
    > "$logs/guest-own-http.log" 2>&1 &
http=$!
boot share 0 --share shared --qemu "-m 600" --net --root tree --run busybox sh -c \
    "cat '$dir/shared/in' && busybox wget -qO '$dir/shared/out' http://10.0.2.2:8765/in"
kill $http
says "$said" "of the host's"
says shared/out "of the host's"

# --- the kernel -------------------------------------------------------------

version=$(cat "$linux/complete")
mkdir kernel
cp "$linux/boot/vmlinuz-$version" kernel/bzImage
grep -v -e CONFIG_VIRTIO_BLK -e CONFIG_SQUASHFS= "$linux/boot/config-$version" \
    > "kernel/config-$version"
boot lacks 1 --perf --kernel-image kernel/bzImage --modules "$linux"
says "$log" 'CONFIG_VIRTIO_BLK for disks$' 'CONFIG_SQUASHFS for disks$'
# Without a configuration it is the guest that says it.
rm "kernel/config-$version"
mkdir -p modules/block
cp -R "$linux/lib/modules/$version/kernel/drivers/virtio" modules
boot fails 1 --perf --kernel-image kernel/bzImage --modules modules
says "$log" "lacks CONFIG_VIRTIO_BLK"
ln -sfn "$linux/usr/src/linux-headers-$version" headers
boot kernel 0 --kernel-image kernel/bzImage --modules "$linux" \
    --kernel-build headers --append mine=yes
says "$said" 'bzip2 .*mainSort' 'driver loaded'
boot no-kernel 1 --kernel-image works.c
says "$log" 'neither a bzImage nor a vmlinux'

# --- gdb: at the first instruction of all -----------------------------------

# What was built last was for another kernel.
: > "$build/boot/linux/lwp.ko"
"$top/scripts/boot" --release "$release" --gdb --quiet --run true \
    > out 2> "$logs/guest-own-gdb.log" &
name=guest-own-gdb
log=$logs/$name.log
n=0
until grep -q 'waits for' "$log" || [ $((n += 1)) -gt 900 ]; do
    sleep 0.2
done
port=$(sed -n "s/.*target remote :\([0-9]*\)'.*/\1/p" "$log")
until gdb -q -nx -batch -ex "target remote :$port" -ex 'info registers rip' \
    -ex detach > gdb.out 2>&1 && grep -q fff0 gdb.out; do
    [ $((n += 1)) -lt 1000 ] || break
    sleep 0.2
done
wait
says gdb.out 'rip  *0xfff0'
if cmp -s "$build/boot/linux/lwp.ko" "$build/boot/lwp-$version.ko"; then
    echo "PASS $name: the driver is where lx-symbols is to look"
else
    echo "FAIL $name: build/boot/linux has no driver of this kernel"
    failed=1
fi
says "$log" '^boot: prepared'
exit $failed
