#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/guest/driver.sh [--release 10.0] [KERNEL...]
#
# The Linux driver in the guest: the programs of guest/test on the oldest and
# the newest kernel that Debian 12 has, or on those of scripts/boot that are
# named.  6.12-debug has KASAN and lockdep.  They have to have nothing to warn
# of.  Prints a line of PASS or FAIL for each of their checks.
set -u

release=
if [ "${1:-}" = --release ]; then
    release=$2
    shift 2
fi
[ $# -gt 0 ] || set -- 6.1 6.12

# shellcheck source=tests/guest/common
. "$(dirname "$0")/common"

# boot NAME OPTION...: scripts/boot with $kernel, and what the programs say
boot() {
    log=$logs/guest-$1-$kernel.log
    name=guest-$1-$kernel
    shift
    "$top/scripts/boot" ${release:+--release "$release"} "$@" > "$log" 2>&1
    status=$?
    tr -d '\r' < "$log" | grep -E '^(PASS|FAIL|SKIP) ' | sed "s/ / $kernel-/"
    if [ $status != 0 ]; then
        echo "FAIL $name: $(tail -n 1 "$log")"
        failed=1
    fi
}

for kernel; do
    boot driver --kernel "$kernel" --test lwp-stress lwp-stress32 \
        lwp-leak lwp-notify lwp-notify=throttled lwp-limits=/lib/lwp.ko \
        lwp-fault=/lib/lwp-fault.ko lwp-load=20=/lib/lwp.ko lwp-outlive

    # Beside a program that counts as rr does
    boot ticks --kernel "$kernel" --cpu Opteron_G5,+lwp,pmu=on --test lwp-ticks

    # Suspend to RAM takes LWP away, and this tells of it.  When SeaBIOS resumes,
    # it does not wait for the other CPUs, because it counts them in memory that
    # is read-only then; on a busy host they find its code gone.  In one thread
    # they run when they are woken.
    boot resume --kernel "$kernel" --qemu "-accel tcg,thread=single" \
        --test lwp-resume

    # KVM comes after the driver, stays without it, and is there before it.  It
    # does not let guests use MPX; without that, their XCR0 can be the host's.
    boot kvm --kernel "$kernel" --cpu max,+lwp,-mpx --test \
        insmod=/lib/irqbypass.ko insmod=/lib/kvm.ko insmod=/lib/kvm-amd.ko \
        lwp-kvm=driver-first=/lib/kvm-amd.ko \
        rmmod=lwp lwp-kvm=driver-gone \
        rmmod=kvm_amd insmod=/lib/kvm-amd.ko \
        insmod=/lib/lwp.ko lwp-kvm=kvm-first \
        rmmod=kvm_amd rmmod=kvm insmod=/lib/kvm.ko insmod=/lib/kvm-amd.ko \
        lwp-kvm=kvm-again rmmod=lwp lwp-kvm=driver-gone-again
done
exit $failed
