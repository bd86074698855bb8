#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/guest/run.sh [--release 10.0]
#
# scripts/boot --run: a program comes to the guest with its library, its data
# and its arguments, is profiled there, and its output and its status come back.
# Prints a line of PASS or FAIL for each.
set -u

# shellcheck source=tests/guest/common
. "$(dirname "$0")/common"
dir="$build/run it"
rm -rf "$dir"
mkdir -p "$dir/lib" && cd "$dir" || exit 1

# For long enough to be sampled; it ends with the status or the signal that the
# second argument names.
cat > lib/work.c << 'END'
unsigned work(unsigned n);
unsigned work(unsigned n)
{
    unsigned x = 1;

    while (n--) {
        x = x * 69069 + 1;
    }
    return x;
}
END
cat > program.c << 'END'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
unsigned work(unsigned n);
int main(int argc, char **argv)
{
    FILE *data = fopen(argv[1], "r"), *once = fopen("once", "wx");
    char line[80];

    if (argc != 4 || !data || !once || !fgets(line, sizeof(line), data)) {
        return 99;
    }
    printf("%s%s\n%u\n", line, argv[3], work(20000000));
    fflush(stdout);
    if (atoi(argv[2]) < 0) {
        raise(-atoi(argv[2]));
    }
    return atoi(argv[2]);
}
END
gcc -O1 -g -shared -fPIC -o lib/libwork.so lib/work.c &&
    gcc -O1 -g -o program program.c -Llib -lwork \
        -Wl,-rpath,"\$ORIGIN/lib" || exit 1
echo "it's data" > "the data"
word="two  words and 'quotes'"
printf "it's data\n%s\n1428452097\n" "$word" > expected

# run NAME STATUS OPTION...: scripts/boot --run, which has to say what the
# program says, and to end as it
run() {
    name=guest-run-$1
    should=$2
    shift 2
    "$top/scripts/boot" "$@" --run --copy "the data" ./program "the data" \
        "$argument" "$word" > output 2> errors
    status=$?
    if [ $status = "$should" ] &&
        head -n 3 output | cmp -s - expected; then
        echo "PASS $name"
    else
        echo "FAIL $name: status $status, should be $should; see '$dir/output'"
        failed=1
    fi
}

# has NAME PATTERN...: what there has to be in the output
has() {
    name=guest-run-$1
    shift
    for p; do
        if grep -q "$p" output; then
            echo "PASS $name: $p"
        else
            echo "FAIL $name: there is no '$p' in '$dir/output'"
            failed=1
        fi
    done
}

# leaves NAME: a profile, where it says
leaves() {
    data=$(sed -n 's/.* -i //p' errors)
    if [ -n "$data" ] && [ -n "$(find "$top/$data" -newer expected)" ]; then
        echo "PASS guest-run-$1: profile"
    else
        echo "FAIL guest-run-$1: there is no profile '$data'"
        failed=1
    fi
}

argument=3
run plain 3 "$@"
argument=-11
run perf 139 "$@" --perf
has perf '[1-9][0-9]* *instructions' 'program  libwork.so .* work'
leaves perf
argument=3
run lwp 3 "$@" --lwp
has lwp 'libwork.so *work'
leaves lwp

printf '#!/bin/sh\n' > script
chmod +x script
if "$top/scripts/boot" "$@" --run ./script > output 2>&1 ||
    [ "$(wc -l < output)" != 1 ] || ! grep -q 'no x86 ELF program' output; then
    echo "FAIL guest-run-script: see '$dir/output'"
    failed=1
else
    echo "PASS guest-run-script"
fi
exit $failed
