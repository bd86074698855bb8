#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/order.sh [--release 10.0] [--minutes N]
#
# What a host needs whose memory order is weaker than x86's: QEMU is built here as
# if this one promised nothing, so that the barriers stand in the code.  Looks for
# them in front of each access of translated code, and in the functions by which
# helpers store LWP's records and BufferHeadOffset; and runs the tests of LWP.
# Prints a line of PASS or FAIL for each.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
failed=0
weak=$state.tree
order=$weak/build

result() {
    echo "$1 $name-long/$2" | tee -a "$state.new"
    [ "$1" = PASS ] || failed=1
}

if [ -e "$state" ]; then
    cat "$state"
    exit
elif late; then
    echo "SKIP $name-long: is left"
    exit
fi

rm -f "$state.new"
git -C "$tree" worktree prune
[ -e "$weak/.git" ] ||
    git -C "$tree" worktree add -q --detach "$weak" HEAD >> "$log" 2>&1 ||
    fail "no second tree"
mo=$(cd "$weak" && git ls-files 'tcg/i386/tcg-target-mo.h' 'tcg/x86_64/tcg-target-mo.h')
sed -i 's/\(#define TCG_TARGET_DEFAULT_MO\) .*/\1 0/' "$weak/$mo"
grep -q '_DEFAULT_MO 0' "$weak/$mo" || fail "$mo has another definition"
tree=$weak configure_qemu "$order" --enable-linux-user \
    --target-list=x86_64-linux-user
make -C "$order" qemu-x86_64 >> "$log" 2>&1 || fail "make failed"

# The programs are those of scripts/build's tree.
programs=$bld/tests/tcg/x86_64-linux-user
make -r -C "$programs" -s SRC_PATH="$tree" lwp-insn lwp-cache lwp-thread \
    >> "$log" 2>&1 || fail "no programs"
for p in lwp-insn lwp-cache lwp-thread; do
    if "$order/qemu-x86_64" -cpu max,+lwp "$programs/$p" >> "$log" 2>&1; then
        result PASS "$p"
    else
        result FAIL "$p"
    fi
done

# without FILE: accesses that have no barrier since the one before; as a program has
# one thread, it needs none
without() {
    awk '
        $1 == "mb" { barrier = threads = 1 }
        /^OP/ { barrier = 0 }
        threads && $1 ~ /^qemu_(ld|st)/ { bad += !barrier; barrier = 0 }
        END { print threads ? bad + 0 : "all" }' "$1"
}

ops=$build/logs/long-$name.ops
"$order/qemu-x86_64" -cpu max,+lwp -d op -D "$ops" "$programs/lwp-thread" \
    > /dev/null 2>> "$log"
n=$(without "$ops")
if [ "$n" = 0 ]; then
    rm "$ops"
    result PASS translated-code
else
    result FAIL "translated-code: $n accesses have no barrier; see $ops"
fi

for f in cpu_stl_mmu cpu_stq_mmu; do
    if objdump -d --disassemble="$f" "$order/qemu-x86_64" |
        grep -Eq 'mfence|lock or'; then
        result PASS "$f"
    else
        result FAIL "$f: has no barrier"
    fi
done
[ $failed = 1 ] || mv "$state.new" "$state"
exit $failed
