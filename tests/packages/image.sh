#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/packages/image.sh
#
# The image that scripts/package --image has left in build/packages, without a network
# and without any privilege, long after it was made: rr, perf and lwp work in it for
# its user, for a uid that it does not know and that has no HOME, and for root with the
# HOME that a CI service gives it.  Needs root or sudo.  Prints a line of PASS or FAIL
# for each.
# shellcheck disable=SC2016 # for the shells in there
set -u

# shellcheck source=tests/packages/common
. "$(dirname "$0")/common"
suite=image
dir=$packages/root-image
log=$logs/packages-image
home=/src

# member NAME: of the archive
member() {
    tar -xOf "$packages/qemu-lwp.oci.tar" "$1"
}

# blob JSON: the file that {"digest": "sha256:..."} means
blob() {
    member "blobs/$(echo "$1" | tr : /)"
}

# json EXPRESSION: of what is on stdin
json() {
    python3 -c "import json, sys; of = json.load(sys.stdin); print($1)"
}

# unpacked: the image anew, as containers have it
unpacked() {
    as_root rm -rf "$dir"
    as_root mkdir "$dir"
    for l in $(echo "$manifest" | json '*(l["digest"] for l in of["layers"])'); do
        blob "$l" | as_root tar -C "$dir" --numeric-owner -xpz
    done
    printf '#!/bin/sh\necho hello\nexit 3\n' | as_root install -m 755 /dev/stdin "$dir/src/test"
    as_root find "$dir/var/cache/qemu-lwp" -exec touch -h -d "$(date -I -d '3 days ago')" {} +
}

manifest=$(blob "$(member index.json | json 'of["manifests"][0]["digest"]')")
config=$(blob "$(echo "$manifest" | json 'of["config"]["digest"]')" |
    json 'json.dumps(of["config"])')
variables=$(echo "$config" | json '*(v for v in of["Env"] if v[:5] != "PATH=")')
result PASS "packages-image-size: $(stat -c %s "$packages/qemu-lwp.oci.tar") bytes"
name="packages-image-config"
echo "$config" > "$log-config.out"
says "$log-config.out" '"User": "user"' '"WorkingDir": "/src"'

unpacked
uid=1000
as="$variables HOME=/home/user"
at=/var/cache/qemu-lwp/boot
began=$(date +%s)
try rr 3 offline qemu-lwp rr ./test
result PASS "packages-image-rr-time: $(($(date +%s) - began)) s"
says "$said" '^hello$'
says "$errors" '^guest: replayed' "; for more: qemu-lwp replay $at/recording.tar"
if grep '[0-9]\] \(fetching\|reading\)' "$errors"; then
    result FAIL "$name: there is something to fetch"
fi
try replay 0 offline qemu-lwp --quiet replay $at/recording.tar -- -batch -ex continue
try perf 0 offline qemu-lwp perf --fail-above instructions:u=9000000 /bin/true
try perf-fails 1 offline qemu-lwp perf --fail-above instructions:u=9 /bin/true
says "$errors" '^qemu-lwp: instructions:u is [0-9]*, above 9$'
try lwp 0 offline qemu-lwp lwp /bin/true
says "$errors" 'driver loaded'

unpacked
uid=12345
as=$variables
try uid-rr 3 offline qemu-lwp rr ./test
try uid-perf 0 offline qemu-lwp perf /bin/true

unpacked
uid=0
as="$variables HOME=/none"
try root-rr 3 offline qemu-lwp rr ./test
as_root rm -rf "$dir"
exit $failed
