#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/guest/run.sh [--release 10.0]
#
# scripts/boot --run: a program comes to the guest with its library, its data
# and its arguments, is profiled there, and its output and its status come back:
# one behind links, one of 32 bits, a script with a static one, one of Debian's.
# tests/long/run.sh has more.  Prints a line of PASS or FAIL for each.
set -u

# shellcheck source=tests/guest/common
. "$(dirname "$0")/common"
dir="$build/run it"
rm -rf "$dir"
mkdir -p "$dir/bin" "$dir/lib" "$dir/the data" && cd "$dir" || exit 1

# For long enough to be sampled; it ends with the status or the signal that the
# second argument names.
cat > work.c << 'END'
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
for bits in 64 32; do
    gcc -O1 -g -m$bits -shared -fPIC -o lib/libwork$bits.so work.c &&
        gcc -O1 -g -m$bits -o bin/program$bits program.c -Llib -lwork$bits \
            -Wl,-rpath,"\$ORIGIN/../lib" || exit 1
    # As Debian's alternatives: its library is not beside the link.
    ln -s bin/program$bits alternative$bits
    ln -s "$dir/alternative$bits" program$bits
done
gcc -O1 -static -o static program.c work.c || exit 1
echo "it's data" > file
ln -s ../file "the data/link"
ln -s missing "the data/dangling"
ln -s .. "the data/around"
word="two  words and 'quotes'"
printf "it's data\n%s\n1428452097\n" "$word" > expected

# run NAME STATUS OPTION...: scripts/boot --run, which has to say what the
# program says, and to end as it
run() {
    name=guest-run-$1
    should=$2
    shift 2
    "$top/scripts/boot" "$@" --run --copy "the data" "$program" \
        "the data/link" "$argument" "$word" > output 2> errors
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

# draws NAME PATTERN: a page, where it says, with such a sample
draws() {
    name=guest-run-$1-page
    page=$(sed -n 's/.*the picture is \(.*\); for more.*/\1/p' errors)
    if [ -n "$page" ] && [ "$(tail -n 1 "$top/$page")" = '</html>' ] &&
        grep -q "$2" "$top/$page"; then
        echo "PASS $name"
    else
        echo "FAIL $name: '$page' has no sample of '$2'"
        failed=1
    fi
}

program=./program64
argument=3
run plain 3 "$@"
program=./program32
argument=-11
# The program's own status comes before that of a limit.
run perf 139 "$@" perf --html --json results.json --fail-above instructions:u=9 \
    --stat "-e branches:u" --record "-e instructions:u -c 100003"
if python3 -c 'import json, os
it = json.load(open("results.json"))
assert it["status"] == 139 and it["counts"]["instructions:u"] > 60000000
assert it["counts"]["branches:u"] > 20000000
assert "error" not in it and it["seconds"]["ran"] > 0
assert it["command"][0] == "./program32" and os.path.exists(it["files"]["profile"])
' 2> errors-json; then
    echo "PASS guest-run-json"
else
    echo "FAIL guest-run-json: $(tail -n 1 errors-json); see '$dir/results.json'"
    failed=1
fi
has perf '[1-9][0-9]* *instructions' 'program32  libwork32.so .* work'
leaves perf
draws perf ' work (.*libwork32.so)'
program=./program64
argument=3
run lwp 3 "$@" lwp --html --record "-e ire,bre -c 10000"
has lwp 'libwork64.so *work' '^# bre: .* one for every 10000;'
leaves lwp
draws lwp ' ire: [0-9a-f]* work'

# Perl's modules are in another package.
cat > script << 'END'
#!/usr/bin/env perl
use Data::Dumper;
$Data::Dumper::Terse = 1;
exit(Dumper("") eq "''\n" ? system("./static", @ARGV) >> 8 : 98);
END
chmod +x script file
program=./script
run script 3 "$@" --copy static

run_python() {
    name=guest-run-python
    if [ "$("$top/scripts/boot" "$@" --run /usr/bin/python3 -c \
        'import ctypes, json; print(json.dumps([0]))' 2> errors)" = '[0]' ]; then
        echo "PASS $name"
    else
        echo "FAIL $name: see '$dir/errors'"
        failed=1
    fi
}
run_python "$@"

# Lines with a time are progress: other guests may be running.
if "$top/scripts/boot" "$@" --run ./file > output 2>&1 ||
    [ "$(grep -cv '^\[' output)" != 1 ] ||
    ! grep -q 'no x86 ELF program' output; then
    echo "FAIL guest-run-file: see '$dir/output'"
    failed=1
else
    echo "PASS guest-run-file"
fi
exit $failed
