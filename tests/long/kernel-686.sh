#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/kernel-686.sh [--release 10.0] [--minutes N]
#
# Debian's 32-bit kernels on processors with counters that had no other ones, with
# the NMI watchdog and without: what they call the PMU, counts and samples
# (guest/test/pmu-open), and that they have nothing to say of NMIs.  P4 has Debian
# 11's, because Linux from 6.1 on writes wrong values to its counters.  What has
# been done is kept in build/long, for this QEMU, and not done again; with
# --minutes, no guest is started later than that.  Prints a line of PASS or FAIL
# for each check, and SKIP if processors are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
# shellcheck source=scripts/kernel.sh
. "$top/scripts/kernel.sh"
mkdir -p "$state"
kernels=$cache/kernels-686
work=$build/long/kernel-686
left=

fetch_kernels() {
    [ ! -f "$kernels/complete" ] || return 0
    rm -rf "$kernels"
    fetch_debs "$kernels" bookworm:i386 busybox-static
    for k in bookworm/686 bookworm/686-pae bullseye/686-pae; do
        suite=${k%/*}:i386
        meta=linux-image-${k#*/}
        fetch_debs "$kernels" "$suite" "$meta"
        image=$(dependency "$meta" linux-image-)
        fetch_debs "$kernels" "$suite" "$image"
        mkdir -p "$kernels/${k%/*}"
        ln -s "../boot/vmlinuz-${image#linux-image-}" "$kernels/$k"
    done
    # No modules
    (cd "$kernels" && rm -rf lib usr)
    touch "$kernels/complete"
}

make_initrd() {
    rm -rf "$work"
    mkdir -p "$work/bin" "$work/dev" "$work/proc" "$work/sys"
    cp "$kernels/bin/busybox" "$work/bin"
    gcc -m32 -std=gnu11 -O2 -Wall -Wextra -static -I"$top/guest/linux" \
        -o "$work/bin/pmu-open" "$top/guest/test/pmu-open.c" || return
    cat > "$work/init" << 'END'
#!/bin/busybox sh
/bin/busybox --install /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
dmesg | sed -n 's/.*Performance Events: /PMU: /p; s/.*NMI watchdog: /NMI: /p'
# It is not to take fewer samples where these take long.
echo 0 > /proc/sys/kernel/perf_cpu_time_max_percent
# P6 has no two counters beside the watchdog's; on P4 this has the event, and
# another one is for cycles.
if [ "$(cat /proc/sys/kernel/nmi_watchdog)" != 0 ]; then
    mode=alone
    ! dmesg | grep -q Netburst || mode=levels
fi
/bin/pmu-open $mode
dmesg | sed -n 's/.*\(NMI received\|WARNING:\).*/COMPLAINT: &/p'
echo done
reboot -f
END
    chmod +x "$work/init"
    (cd "$work" && find . | cpio -o -H newc --quiet) > "$work.cpio"
}

# run_on CPU KERNEL WATCHDOG NAME: what Linux is to call its PMU
run_on() {
    done=$state/$1-${2#*/}-$3
    [ ! -e "$done" ] || return 0
    if late; then
        left="$left $1-${2#*/}-$3"
        return
    fi
    timeout 600 "$bld/qemu-system-x86_64" -nodefaults -M q35 -m 512 \
        -cpu "$1,pmu=on" -display none -monitor none -no-reboot \
        -kernel "$kernels/$2" -initrd "$work.cpio" -serial "file:$done.log" \
        -append "console=ttyS0 panic=-1 quiet nokaslr mitigations=off
            no_timer_check cryptomgr.notests nmi_watchdog=$3" \
        < /dev/null >> "$log" 2>&1
    tr -d '\r' < "$done.log" > "$state/said"
    {
        sed -n 's/^\(PASS\|FAIL\) pmu-open: /\1 /p' "$state/said"
        says "calls it $4" "^PMU: .*$4"
        says "is at its end" '^done$'
        [ "$3" = 0 ] || says "has a watchdog" '^NMI: Enabled'
        sed -n 's/^COMPLAINT: /FAIL says /p' "$state/said"
    } | sed "s,^\(PASS\|FAIL\),& kernel-686: $1 ${2#*/} $3:," > "$state/new"
    cat "$state/new"
    mv "$state/new" "$done"
}

# says WHAT PATTERN
says() {
    if grep -q "$2" "$state/said"; then
        echo "PASS $1"
    else
        echo "FAIL does not say that it $1; see $done.log"
    fi
}

(need_packages cpio gcc gcc-multilib && cached fetch_kernels && make_initrd) \
    >> "$log" 2>&1 || fail "kernels or a program are missing"

# Beside the watchdog it has NMIs that Linux does not know: without an enable bit
# (erratum AE49) its second counter does not stop when Linux clears that.
run_on coreduo bookworm/686-pae 0 'Core events, core PMU driver'
for watchdog in 0 1; do
    run_on pentium2 bookworm/686 $watchdog 'p6 PMU driver'
    run_on pentium3 bookworm/686 $watchdog 'p6 PMU driver'
    run_on pentium3 bookworm/686-pae $watchdog 'p6 PMU driver'
    run_on n270 bookworm/686 $watchdog 'Atom events, Intel PMU driver'
    run_on n270 bookworm/686-pae $watchdog 'Atom events, Intel PMU driver'
    run_on kvm32 bullseye/686-pae $watchdog 'Netburst P4/Xeon PMU driver'
done
[ -z "$left" ] || echo "SKIP kernel-686: left are$left"
! cat "$state"/*-[01] 2> /dev/null | grep -q '^FAIL'
