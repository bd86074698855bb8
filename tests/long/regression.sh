#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/regression.sh [--release 10.0] [--minutes N]
#
# QEMU's own tests, all qtests and check-tcg of x86_64, i386 and system mode: as
# they are, with LWP in the CPU models that they use, and with performance
# counters in all; in the build of scripts/build, and in one for it with
# --enable-debug-tcg.  What has been done is kept in build/long, for this QEMU,
# and not done again; with --minutes, nothing is started later than that.
# Prints a line of PASS or FAIL for each, and SKIP if some are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
# There, the names of the sources are the same, and the compiler has its cache.
debug=$tree/build-debug

build_debug() {
    configure_qemu "$debug" --enable-debug-tcg --enable-linux-user \
        --target-list=x86_64-softmmu,x86_64-linux-user,i386-linux-user \
        --enable-plugins --enable-slirp
    make -C "$debug" >> "$log" 2>&1 || fail "make failed"
    share=qemu-bundle/usr/local/share/qemu
    rm -rf "${debug:?}/$share"
    ln -s "$bld/$share" "$debug/$share"
}

# emulators DIR WAY: QEMU with these options, under its own names, in build/long
emulators() {
    from=$1
    ways=$build/long/regression-$(basename "$from")-$2
    mkdir -p "$ways"
    case $2 in
    plain) system='' cpu=max ;;
    lwp)
        system="-global max-x86_64-cpu.lwp=on -global qemu64-x86_64-cpu.lwp=on"
        cpu=max,+lwp
        ;;
    pmu) system="-global x86_64-cpu.pmu=on" cpu=max ;;
    esac
    printf '#!/bin/sh\nexec %s "$@" %s\n' "$from/qemu-system-x86_64" "$system" \
        > "$ways/qemu-system-x86_64"
    for arch in x86_64 i386; do
        printf '#!/bin/sh\nexport QEMU_CPU=%s\nexec %s "$@"\n' "$cpu" \
            "$from/qemu-$arch" > "$ways/qemu-$arch"
    done
    # What meson puts in front of a test
    printf '#!/bin/sh\nexport QTEST_QEMU_BINARY=%s\nexec "$@"\n' \
        "$ways/qemu-system-x86_64" > "$ways/qtest"
    chmod +x "$ways"/*
}

# The goals of QEMU's own tests, but not of the drop-in's.
own() {
    make -r -s -C "$from/tests/tcg/$1" SRC_PATH="$tree" help |
        sed -n 's/^  \(run-.*\)/\1/p' | grep -vE 'lwp|pmu|differential'
}

# run SUITE: with $ways; what failed goes to $log.
run() {
    case $1 in
    qtest)
        meson=$bld/pyvenv/bin/meson
        goals=$("$meson" test -C "$from" --no-rebuild --list \
            --suite qtest-x86_64 2>> "$log" | sed 's,.* / ,,' |
            grep -vE '/(lwp|pmu)-test')
        # Two tables have an address which Debian's SeaBIOS chooses otherwise
        # than QEMU's own; the third wants a 486, which has no counters.
        skips='-s /x86_64/acpi/piix4/dimmpxm -s /x86_64/acpi/q35/mmio64'
        [ "$way" != pmu ] || skips="$skips -s /x86_64/acpi/piix4/smbios-legacy"
        # shellcheck disable=SC2086
        "$meson" test -C "$from" --no-rebuild -t 6 --wrapper "$ways/qtest" \
            --test-args "$skips" $goals > "$log" 2>&1
        status=$?
        counted=$(sed -n 's/^Ok: *//p' "$log")
        sed -n 's,.*qtest-x86_64/\([^ ]*\) *\(FAIL\|ERROR\|TIMEOUT\).*,\1,p' "$log" \
            > "$log.failed"
        ;;
    *)
        case $1 in
        x86_64-softmmu) emulator=qemu-system-x86_64 ;;
        *) emulator=qemu-${1%%-*} ;;
        esac
        goals=$(own "$1")
        # shellcheck disable=SC2086
        make -r -C "$from/tests/tcg/$1" -s -k -j"$(nproc)" SRC_PATH="$tree" \
            SPEED=quick TIMEOUT=900 QEMU="$ways/$emulator" $goals > "$log" 2>&1
        status=$?
        counted=$(echo "$goals" | wc -l)
        sed -n 's/^make.*\*\*\* \[.*: \(run-[^]]*\)\] .*/\1/p' "$log" \
            > "$log.failed"
        ;;
    esac
}

state=$state.txt
touch "$state"
left=0
for from in "$bld" "$debug"; do
    for way in plain lwp pmu; do
        for suite in qtest x86_64-softmmu x86_64-linux-user i386-linux-user; do
            case $way,$suite in
            pmu,*-linux-user) continue ;;
            esac
            title="regression: $(basename "$from"), $way, $suite:"
            ! grep -q "^[A-Z]* $title" "$state" || continue
            if late; then
                left=$((left + 1))
                continue
            fi
            [ "$from" = "$bld" ] || build_debug
            emulators "$from" $way
            log=$build/logs/long-regression-$(basename "$from")-$way-$suite.log
            run $suite
            if [ "$status" = 0 ] && [ "$counted" -gt 0 ]; then
                echo "PASS $title $counted tests"
            else
                echo "FAIL $title $(tr '\n' ' ' < "$log.failed")see $log"
            fi | tee -a "$state"
        done
    done
done
[ $left = 0 ] || echo "SKIP regression: $left of 20 are left"
! grep -q '^FAIL' "$state"
