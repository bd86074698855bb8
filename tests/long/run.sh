#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/run.sh [--release 10.0] [--minutes N]
#
# scripts/boot --run of every kind of program, alone, with --perf, --lwp and --rr:
# each says what it says here, and ends with the same status.  What has been done
# is kept in build/long, for this QEMU, and not done again; with --minutes, nothing
# is started later than that.  Prints a line of PASS or FAIL for each, and SKIP if
# some are left.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
state=$state.txt
touch "$state"
dir=$build/long/run
rm -rf "$dir"
mkdir -p "$dir/jdk/bin" && cd "$dir" || exit 1
(need_packages default-jdk-headless gcc-multilib perl python3 qtbase5-dev \
    g++ pkg-config) >> "$log" 2>&1 || fail "packages are missing"

# One with threads
cat > Threads.java << 'END'
import java.util.stream.IntStream;
public class Threads {
    static long sum;
    static synchronized void add(int n) { sum += n; }
    public static void main(String[] args) throws InterruptedException {
        Thread[] threads = new Thread[4];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() ->
                IntStream.range(0, 1000).forEach(Threads::add));
            threads[i].start();
        }
        for (Thread t : threads) t.join();
        System.out.println("sum " + sum);
        System.exit(5);
    }
}
END
cat > program.c << 'END'
#include <stdio.h>
int main(int argc, char **argv)
{
    unsigned x = argc;

    for (int i = 0; i < 3000000; i++) {
        x = x * 69069 + 1;
    }
    printf("%u %zu %s\n", x, sizeof(void *), argv[1]);
    return 6;
}
END
# Its platform is a plugin, of which no library tells.
cat > qt.cpp << 'END'
#include <QGuiApplication>
#include <QImage>
#include <QPainter>
#include <cstdio>
int main(int argc, char **argv)
{
    QGuiApplication app(argc, argv);
    QImage image(8, 8, QImage::Format_RGB32);
    QPainter(&image).fillRect(0, 0, 8, 8, Qt::red);
    std::printf("%s %x\n", qPrintable(app.platformName()), image.pixel(4, 4));
    return 4;
}
END
cat > script.py << 'END'
#!/usr/bin/env -S python3 -B
import ctypes, json, ssl, sys, threading
t = threading.Thread(target=print, args=[json.dumps(sys.argv[1:])])
t.start()
t.join()
sys.exit(8)
END
sed -i '1s,python3,/usr/bin/python3,' script.py
cat > script.pl << 'END'
#!/usr/bin/perl -w
use strict; use Data::Dumper; use POSIX;
$Data::Dumper::Terse = $Data::Dumper::Sortkeys = 1;
print Dumper({ floor => floor(7.5), args => \@ARGV });
exit 9;
END
cat > script.sh << 'END'
#!/bin/bash
echo "nested: $*"
grep -cP '^\w' "$0"
ls --color=always -d /usr/bin
exit 10
END
ln -s missing dangling
ln -s .. jdk/around
ln -s missing jdk/dangling
ln -s ../../script.sh jdk/bin/link
# shellcheck disable=SC2046 # words
{
    javac Threads.java &&
        gcc -O1 -o program64 program.c &&
        gcc -O1 -m32 -o program32 program.c &&
        gcc -O1 -static -o static64 program.c &&
        gcc -O1 -m32 -static -o static32 program.c &&
        g++ -O1 -fPIC -o qt qt.cpp $(pkg-config --cflags --libs Qt5Gui)
} >> "$log" 2>&1 || fail "the programs do not build"
chmod +x script.*

# choose KIND: options, and what to run
choose() {
    options=
    case $1 in
    java-version) command='java -version' ;;
    java-threads) command='java -cp . Threads' options='--copy Threads.class' ;;
    python) command='/usr/bin/python3 -c print(sum(range(1000)))' ;;
    script.*) command="./$1 a b" ;;
    link) command='jdk/bin/link c' options='--copy jdk' ;;
    qt) command='env QT_QPA_PLATFORM=offscreen ./qt' ;;
    *) command="./$1 word" ;;
    esac
}

left=0
for kind in java-version java-threads python script.py script.pl script.sh link \
    program64 program32 static64 static32 qt; do
    choose $kind
    # shellcheck disable=SC2086 # words
    $command > expected 2>&1
    expected=$?
    for profiler in '' --perf --lwp --rr; do
        title="run-long: $kind${profiler:+ $profiler}:"
        ! grep -qF -e " $title" "$state" || continue
        if late; then
            left=$((left + 1))
            continue
        fi
        log=$build/logs/long-run-$kind$profiler.log
        # shellcheck disable=SC2086 # words
        "$top/scripts/boot" --release "$release" $profiler $options \
            --run $command > output 2> "$log"
        status=$?
        grep -v '^rr: ' output | head -n "$(wc -l < expected)" > said
        if [ $status = $expected ] && cmp -s expected said; then
            echo "PASS $title status $status"
        else
            cp output "$log.output"
            echo "FAIL $title status $status, should be $expected; see $log"
        fi | tee -a "$state"
    done
done
[ $left = 0 ] || echo "SKIP run-long: $left are left"
! grep -q '^FAIL' "$state"
