#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# usage: tests/long/html.sh [--release 10.0] [--minutes N]
#
# The pages of scripts/boot --html in a browser, Debian's chromium: of perf, whose
# call stacks are those of a program without frame pointers, and of lwp, with two
# threads; what is drawn, a click, a search, and another part of the time; and
# 200,000 samples.  What the pages look like is left in build/long.  Prints a line
# of PASS or FAIL for each, or SKIP if there is no time.
set -u

# shellcheck source=tests/long/common
. "$(dirname "$0")/common"
late && { echo "SKIP html-long: left for later"; exit; }
need_packages chromium gcc
dir=$build/long/html
failed=0
mkdir -p "$dir" && cd "$dir" || exit 1

cat > calls.c << 'EOF'
#include <pthread.h>
#include <stdio.h>

static __attribute__((noinline)) unsigned mix(unsigned x)
{
    for (int i = 0; i < 100; i++) {
        x = x * 69069 + 1;
    }
    return x;
}

static __attribute__((noinline)) unsigned tree(unsigned n)
{
    return n < 2 ? mix(n) : tree(n - 1) + tree(n - 2) + 1;
}

static void *grow(void *arg)
{
    unsigned sum = 0;

    pthread_setname_np(pthread_self(), arg);
    for (int i = 0; i < 20; i++) {
        sum += tree(15) + mix(i);
    }
    return (void *)(long)(sum & 1);
}

int main(void)
{
    pthread_t thread[2];
    void *odd;

    pthread_create(&thread[0], NULL, grow, "<one>");
    pthread_create(&thread[1], NULL, grow, "the & other");
    pthread_join(thread[0], &odd);
    pthread_join(thread[1], &odd);
    return !!odd;
}
EOF
gcc -D_GNU_SOURCE -O2 -fomit-frame-pointer -pthread -o calls calls.c ||
    fail "the program does not compile"

result() {
    echo "$1 html-long: $2"
    [ "$1" = PASS ] || failed=1
}

# browse NAME OPTION...: NAME.html with what NAME.js says, to $dir/NAME.dom; what it
# says to the console is in NAME.log
browse() {
    page=$1
    shift
    {
        sed '/^<\/body>/d; /^<\/html>/d' "$page.html"
        echo '<script>'
        cat "$page.js"
        echo '</script></body></html>'
    } > tried.html
    timeout 300 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --enable-logging=stderr --v=0 --window-size=1280,800 "$@" \
        "file://$dir/tried.html" > "$page.dom" 2> "$page.log"
}

# What the tests say, in a browser; and what the pages do
cat > script.js << 'EOF'
const all = selector => Array.from(document.querySelectorAll(selector));
const boxes = name => all('#flame g').filter(g => g.__data__.frame.name === name);
function check(name, right) {
    console.log((right ? 'PASS ' : 'FAIL ') + name);
}
function drag(from, to) {
    const box = $('time').getBoundingClientRect();
    [['mousedown', from], ['mousemove', to], ['mouseup', to]].forEach(e => {
        document.querySelector('.brush .background').dispatchEvent(new MouseEvent(e[0], {
            bubbles: true, cancelable: true, view: window,
            clientX: box.left + LEFT + e[1] * (box.width - LEFT - 20), clientY: box.top + 10,
        }));
    });
}
function works(name) {
    const whole = root.count;
    const first = boxes(name).sort((a, b) => b.__data__.value - a.__data__.value)[0];
    const value = first.__data__.value, total = root.value;
    first.dispatchEvent(new MouseEvent('click'));
    check('a click widens', Math.abs(boxes(name).map(g => g.querySelector('rect')).reduce(
        (sum, r) => Math.max(sum, +r.getAttribute('width')), 0) - $('flame').clientWidth) < 1);
    $('whole').click();
    $('search').value = name.toUpperCase();
    $('search').oninput();
    const found = parseFloat($('found').textContent);
    check('a search adds up', found >= 100 * value / total - 0.01 && found <= 100);
    drag(0.5, 0.9);
    check('a part of the time', root.count > 0 && root.count < whole &&
          /^from [0-9.]+ s to/.test($('chosen').textContent));
    drag(0.5, 0.5);
    check('and all of it again', root.count === whole);
    $('whole').click();
}
EOF

# tried NAME: results of what the browser said
tried() {
    sed -n 's/.*CONSOLE.*"\(PASS\|FAIL\) \(.*\)", source.*/\1 \2/p' "$1.log" > tried
    if grep -qE 'CONSOLE.*(Uncaught|Error)' "$1.log" || ! [ -s tried ]; then
        result FAIL "$1: the browser says what is in $dir/$1.log"
    fi
    while read -r r what; do
        result "$r" "$1: $what"
    done < tried
}

# page NAME OPTION...: a guest's
page() {
    name=$1
    shift
    "$top/scripts/boot" --release "$release" "$name" --html "$@" > boot.log 2>&1 &&
        from=$(sed -n 's/.*the picture is \(.*\); for more.*/\1/p' boot.log) &&
        [ "$from" ] && cp "$top/$from" "$name.html" && return
    result FAIL "$name: see $dir/boot.log"
    return 1
}

if page perf ./calls; then
    cat script.js - > perf.js << 'EOF'
check('a row for each thread', all('#time .thread').length === 3 &&
      all('#time .thread').some(t => t.textContent.startsWith('<one> ')));
check('bars in a row', all('#time .share').length >= 3);
check('call stacks', d3.max(boxes('tree'), g => g.__data__.depth) > 8);
check('callers of functions without frame pointers',
      boxes('mix').some(g => /^(tree|grow)/.test(g.__data__.parent.frame.name)));
works('tree');
EOF
    browse perf --dump-dom
    tried perf
    browse perf --screenshot="$dir/perf.png"
    # As many as this has, again and again, later each time
    sed -n '/^<pre id="text"/,/^<\/pre>/p' perf.html | sed '1d; $d' > text
    awk '
        { line[NR] = $0; n += /cycles/ }
        END {
            for (times = 0; times * n < 200000; times++)
                for (i = 1; i <= NR; i++) {
                    if (match(line[i], /[0-9]+\.[0-9]+: /))
                        printf "%s%.6f: %s\n", substr(line[i], 1, RSTART - 1),
                            substr(line[i], RSTART, RLENGTH - 2) + times,
                            substr(line[i], RSTART + RLENGTH)
                    else
                        print line[i]
                }
        }' text > many
    {
        sed '/^<pre id="text"/q' perf.html
        cat many
        sed '1,/^<\/pre>/d' perf.html | sed '1i</pre>'
    } > many.html
    rm many
    cat script.js - > many.js << 'EOF'
check('200,000 samples', samples.length >= 200000);
const t0 = performance.now();
tree();
drawFlame();
check('are added up in less than 2 s', performance.now() - t0 < 2000);
EOF
    browse many --dump-dom
    tried many
    rm many.html many.dom
fi
if page lwp ./calls; then
    cat script.js - > lwp.js << 'EOF'
check('a row for each thread', all('#time .thread').some(
    t => t.textContent.startsWith('the & other ')));
check('a function in each', boxes('mix').length >= 2);
works('mix');
EOF
    browse lwp --dump-dom
    tried lwp
    browse lwp --screenshot="$dir/lwp.png"
fi
rm -f tried.html
exit $failed
