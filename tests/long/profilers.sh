#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/profilers.sh [--release 10.0] [--minutes N]
#
# Debian's PAPI and LIKWID, which reads the MSRs itself, count what a program
# does, profilers/known.c.  What has been done is kept in build/long, for this
# QEMU, and not done again; with --minutes, no guest is started later than that.
# Prints a line of PASS or FAIL for each event, and SKIP if processors are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
# shellcheck source=scripts/kernel.sh
. "$top/scripts/kernel.sh"
mkdir -p "$state"
left=

# Presets, kernels, and how often one of N counts
presets() {
    case $1 in
    Skylake-Client)
        cat << 'END'
PAPI_DP_OPS flops 12
PAPI_DP_OPS fma 8
PAPI_SP_OPS flops 40
PAPI_SP_OPS fma 16
PAPI_TLB_DM loads 1
PAPI_TLB_DM stores 1
PAPI_L1_ICM code 1
PAPI_L2_STM stores 1
END
        ;;
    # Scalar ones, and x87's
    IvyBridge)
        cat << 'END'
PAPI_FP_OPS flops 13
PAPI_DP_OPS flops 12
PAPI_SP_OPS flops 40
PAPI_TLB_DM loads 1
PAPI_L1_ICM code 1
END
        ;;
    EPYC-Rome)
        cat << 'END'
PAPI_FP_OPS flops 52
PAPI_FP_OPS fma 24
PAPI_TLB_DM loads 1
PAPI_TLB_DM stores 1
PAPI_L1_ICM code 1
END
        ;;
    esac
}

# The same for groups of LIKWID's, and their counters
groups='CLOCK loads PMC0 4 PMC1 4
FLOPS_DP flops PMC2 52
FLOPS_DP fma PMC2 24
L2 loads PMC3 1
TLB loads PMC1 1 PMC2 0 PMC3 1'

dir=$build/long/profilers
rm -rf "$dir"
mkdir -p "$dir"
(need_packages likwid libpapi-dev gcc libc6-dev) >> "$log" 2>&1 ||
    fail "packages are missing"
gcc -O1 -Wall -o "$dir/known" "$top/tests/long/profilers/known.c" -llikwid \
    -lpapi >> "$log" 2>&1 || fail "known.c does not build"
choose_kernel 6.1
(fetch_kernel) >> "$log" 2>&1 || fail "there is no kernel"
modules=$kernel/lib/modules/$(cat "$kernel/complete")
cp "$modules/kernel/arch/x86/kernel/msr.ko" "$dir" || fail "there is no msr.ko"
echo "$groups" > "$dir/groups"
cp "$top/tests/long/profilers/count" "$dir"

for processor in Skylake-Client IvyBridge EPYC-Rome; do
    [ ! -e "$state/$processor" ] || continue
    if late; then
        left="$left $processor"
        continue
    fi
    presets $processor > "$dir/presets"
    tool=
    case $processor in EPYC*) tool=/usr/bin/likwid-perfctr ;; esac
    "$top/scripts/boot" --release "$release" --cpu $processor,pmu=on \
        --copy "$dir" --copy "$dir/known" ${tool:+--copy "$tool"} \
        --run "$dir/count" "$dir" ${tool:+groups} \
        > "$state/new" 2> "$state/$processor.log"
    status=$?
    sed -i -n "s/^\(PASS\|FAIL\) /\1 profilers: $processor: /p" "$state/new"
    [ $status = 0 ] && [ -s "$state/new" ] || grep -q '^FAIL' "$state/new" ||
        echo "FAIL profilers: $processor: status $status;" \
            "see $state/$processor.log" >> "$state/new"
    cat "$state/new"
    mv "$state/new" "$state/$processor"
done
[ -z "$left" ] || echo "SKIP profilers: left are$left"
! cat "$state"/[A-Z]*[a-z] 2> /dev/null | grep -q '^FAIL'
