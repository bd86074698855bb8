#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""
Profiles of lwp against exact counts.

usage: test-accuracy.py LWP QEMU-BUILD-DIR [TEST...]

Exact are: the plugin insn of QEMU for instructions and clocks, of which each
instruction takes one; the source for branches; the plugin cache for misses.

Where one event in P is recorded, n records of what happened N times fit if
|n - N / P| <= 4 * sqrt(N / P * (1 - share)), share being that of all events,
and if chi-square over all of them is not beyond its 1 - 1e-4 quantile.
"""
import math
import os
import re
import subprocess

import common
from common import Setup

SIGMAS = 4
QUANTILE = 3.72         # of the normal distribution, 1 - 1e-4

# Five functions of different weight in turn.  A digit 0 in the first argument
# has one that is but one instruction called instead.
WEIGHTS = r"""
#include <stdint.h>
#include <stdlib.h>

#define FUNCTION(name) \
    __attribute__((noipa)) uint32_t name(uint32_t n, uint32_t state)

FUNCTION(bits)
{
    for (uint32_t i = 0; i < 8 * n; i++) {
        state = state & 1 ? state >> 1 ^ 0xedb88320 : state >> 1;
    }
    return state;
}

static double a[6][6], b[6][6], c[6][6];

FUNCTION(matrix)
{
    while (n--) {
        for (int i = 0; i < 6; i++) {
            for (int j = 0; j < 6; j++) {
                c[i][j] = a[i][n % 6] * b[n % 6][j];
            }
        }
    }
    return state + c[1][2];
}

FUNCTION(collatz)
{
    uint32_t steps = state & 1;

    for (uint32_t i = 1; i <= n; i++) {
        for (uint32_t x = i + (state & 15); x > 1; steps++) {
            x = x % 2 ? 3 * x + 1 : x / 2;
        }
    }
    return steps;
}

FUNCTION(divisor)
{
    uint32_t sum = state;

    for (uint32_t i = 1; i <= n; i++) {
        uint32_t x = 1000 + state % 97, y = i;

        while (y) {
            uint32_t rest = x % y;

            x = y;
            y = rest;
        }
        sum += x;
    }
    return sum;
}

FUNCTION(rare)
{
    while (n--) {
        state = state * 1664525 + 1013904223;
    }
    return state;
}

FUNCTION(nothing);
__asm__(".globl nothing\n.type nothing, @function\n"
        "nothing: ret\n.size nothing, 1\n");

static struct Part {
    uint32_t (*run)(uint32_t n, uint32_t state);
    uint32_t n, state;
} parts[] = {
    { bits, 8, 1 }, { matrix, 4, 2 }, { collatz, 5, 3 }, { divisor, 8, 4 },
    { rare, 1, 5 },
};

/*
 * Rounds differ in length.  Else one of about a multiple of the period would
 * show the same function again and again: samples that are not independent.
 */
int main(int argc, char **argv)
{
    uint32_t random = 1;

    for (int i = 0; i < 5; i++) {
        if (argv[1][i] == '0') {
            parts[i].run = nothing;
        }
    }
    for (int round = atoi(argv[2]); round > 0; round--) {
        for (struct Part *p = parts; p < parts + 5; p++) {
            random = random * 1664525 + 1013904223;
            p->state = p->run(p->n + (random >> 28), p->state + round);
        }
    }
    return argc > 3;
}
"""

# Each branch has a symbol with its place in the function.
BRANCHES = r"""
#include <stdlib.h>

#ifdef __x86_64__
#define AX "%rax"
#else
#define AX "%eax"
#endif

#define START(name) ".globl " #name "\n.type " #name ", @function\n" \
    #name ":\n"
#define END(name) ".size " #name ", . - " #name "\n"
#define HERE(branch, name) \
    ".globl at_" #branch "\n.set at_" #branch ", . - " #name "\n"

__asm__(".text\n"
    START(outer)
    "nop\n"
    "1:\n"
    HERE(direct, outer)
    "call inner\n"
    HERE(indirect, outer)
    "call *" AX "\n"
    "test $1, %cl\n"
    "nop\n"
    HERE(half, outer)
    "jz 2f\n"
    "nop\n"
    "2: dec %ecx\n"
    "nop\n"
    HERE(loop, outer)
    "jnz 1b\n"
    HERE(away, outer)
    "jmp tail\n"
    END(outer)

    START(inner)
    "mov $5, %edx\n"
    "3: dec %edx\n"
    "nop\n"
    HERE(short, inner)
    "jnz 3b\n"
    HERE(jump, inner)
    "jmp 4f\n"
    "nop\n"
    "4: nop\n"
    HERE(return, inner)
    "ret\n"
    END(inner)

    START(leaf)
    "nop\n"
    HERE(leaf, leaf)
    "ret\n"
    END(leaf)

    START(tail)
    "nop\n"
    HERE(tail, tail)
    "ret\n"
    END(tail));

void leaf(void);

int main(int argc, char **argv)
{
    unsigned n = atoi(argv[1]);
    void *function = leaf;

    __asm__ volatile("call outer" : "+c"(n), "+a"(function) : : "edx", "cc",
                     "memory");
    return argc > 2;
}
"""

# No access has two lines: the plugin takes only the first.  No instruction both
# loads from one place and stores to another: it does not tell them apart.
MISSES = r"""
#include <stdint.h>
#include <string.h>

#define ALIGNED __attribute__((aligned(64)))
#define FUNCTION(name) __attribute__((noipa)) uint32_t name(void)

enum { NR = 16384, LINE = 64, L1D = 16384 };

static uint32_t table[NR] ALIGNED, counts[NR] ALIGNED, filled[NR] ALIGNED;
static struct Item {
    struct Item *next;
} items[NR] ALIGNED;
static uint8_t other[4 * L1D] ALIGNED;

/* Where the plugin and LWP start to have the same lines in their caches. */
FUNCTION(forget)
{
    uint32_t sum = 0;

    for (int i = 0; i < 4 * L1D; i += LINE) {
        sum += ((volatile uint8_t *)other)[i];
    }
    return sum;
}

FUNCTION(walk)
{
    uint32_t n = 0;

    for (struct Item *i = items[0].next; i != items; i = i->next) {
        n++;
    }
    return n;
}

FUNCTION(search)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < 6000; i++) {
        uint32_t key = i * 2654435761u % (3 * NR), low = 0, high = NR;

        while (low < high) {
            uint32_t middle = (low + high) / 2;

            if (((volatile uint32_t *)table)[middle] < key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        found += low;
    }
    return found;
}

FUNCTION(histogram)
{
    for (uint32_t i = 0, x = 1; i < 20000; i++) {
        x = x * 1664525 + 1013904223;
        __asm__ volatile("addl $1, %0" : "+m"(counts[x >> 18]));
    }
    return 0;
}

FUNCTION(fill)
{
    for (uint32_t i = 0; i < NR; i++) {
        __asm__ volatile("movl %1, %0" : "=m"(filled[i * 4099 % NR]) : "r"(i));
    }
    return 0;
}

FUNCTION(columns)
{
    uint32_t sum = 0;

    for (int i = 0; i < 32; i++) {
        for (int j = 0; j < NR; j += 48) {
            sum += ((volatile uint32_t *)filled)[i + j & NR - 1];
        }
    }
    return sum;
}

int main(void)
{
    for (uint32_t i = 0; i < NR; i++) {
        table[i] = 3 * i;
        items[i * 4099 % NR].next = &items[(i + 1) * 4099 % NR];
    }
    forget();
    for (int i = 0; i < 2; i++) {
        walk();
        search();
        histogram();
        fill();
        columns();
    }
    return 0;
}
"""

# The defaults of l1d-size and l1d-assoc.
CACHE = 'dcachesize=16384,dassoc=4,dblksize=64,evict=lru,limit=1000000000'


class Case(common.Case):
    def plugin(self, plugin, options, program, *args, bits=64):
        """A command that runs a program, and the plugin's output comes."""
        return [*Setup.qemu(bits, options=[
            '-plugin', ','.join([Setup.plugin(plugin), options]),
            '-d', 'plugin', '-D', self.path('log')]), program,
            *map(str, args)]

    def log(self):
        with open(self.path('log')) as f:
            return f.read()

    def record(self, options, program, *args, bits=64):
        self.lwp('record', '-m', '4096', *options, '--', *Setup.qemu(bits),
                 program, *map(str, args))
        whole, events = self.json()
        self.assertEqual(whole['missed'], 0)
        return events

    @staticmethod
    def misfits(seen, exact, period):
        """What does not fit, and the worst deviation."""
        total = sum(exact.values())
        wrong, worst, square = [], 0, 0

        for name, count in exact.items():
            expected = count / period
            sigma = math.sqrt(expected * (1 - count / total)) or 1
            deviation = abs(seen.get(name, 0) - expected) / sigma
            worst = max(worst, deviation)
            square += (seen.get(name, 0) - expected) ** 2 / expected
            if deviation > SIGMAS:
                wrong.append(f'{name}: {seen.get(name, 0)} records, '
                             f'{expected:.1f} expected')
        # Wilson and Hilferty: what this is for chi-square
        free = len(exact) - 1
        limit = free * (1 - 2 / (9 * free) +
                        QUANTILE * math.sqrt(2 / (9 * free))) ** 3
        if square > limit:
            wrong.append(f'chi-square {square:.1f} > {limit:.1f}')
        return wrong, worst

    def check_fit(self, seen, exact, period):
        wrong, worst = self.misfits(seen, exact, period)
        self.assertEqual(wrong, [])
        return worst


class Instructions(Case):
    FUNCTIONS = 'bits', 'matrix', 'collatz', 'divisor', 'rare'
    ROUNDS = 3000

    def exact(self, program, bits):
        """Executed instructions of each function: less without it."""
        def run(mask):
            subprocess.run(self.plugin('insn', 'inline=on', program, mask,
                                       self.ROUNDS, bits=bits), check=True)
            return int(re.search(r'total insns: (\d+)', self.log())[1])

        total = run('11111')
        result = {}
        for i, name in enumerate(self.FUNCTIONS):
            mask = '1' * i + '0' + '1' * (4 - i)
            result[name] = total - run(mask) + self.ROUNDS
            if i == 3:
                # LWP says the same.
                stat = [self.count(program, m, bits) for m in ('11111', mask)]
                self.assertEqual(stat[0] - stat[1] + self.ROUNDS, result[name])
        return result

    def count(self, program, mask, bits):
        self.lwp('stat', '-j', '-e', 'ire', '-o', 'stat', '--',
                 *Setup.qemu(bits), program, mask, str(self.ROUNDS))
        with open(self.path('stat')) as f:
            return common.json.load(f)['events']['ire']['count']

    def check(self, bits):
        program = common.compile_c(self.path(f'weights{bits}'), WEIGHTS, '-O2',
                                   '-fno-tree-vectorize',
                                   *(['-m32'] if bits == 32 else []))
        functions = self.exact(program, bits)
        runs, worst = 0, 0
        for options in (['-c', '1009'], ['-c', '1009', '-r', '3'],
                        ['-c', '1009', '-r', '5'], ['-c', '1009', '-r', '7'],
                        ['-c', '499'], ['-c', '2003', '-r', '9']):
            events = self.record(['-e', 'ire,cnh', *options], program, '11111',
                                 self.ROUNDS, bits=bits)
            for name in 'ire', 'cnh':
                event = events[name]
                seen = {n: 0 for n in (*functions, 'other')}
                for (_, function), n in self.functions(event).items():
                    seen[function if function in functions else 'other'] += n
                exact = dict(functions)
                if '-r' not in options:
                    self.counted = event['counted']
                exact['other'] = self.counted - sum(functions.values())
                worst = max(worst, self.check_fit(seen, exact,
                                                  event['period']))
                runs += 1
                # This would find what is wrong.
                exact['collatz'] *= 0.8
                self.assertTrue(self.misfits(seen, exact, event['period'])[0])
        shares = ', '.join(f'{n} {100 * c / self.counted:.1f} %'
                           for n, c in functions.items())
        self.sentence = (f'{shares}: {runs} profiles fit, the worst deviation '
                         f'is {worst:.1f} sigma')

    def test_64_bits(self):
        self.check(64)

    def test_32_bits(self):
        self.check(32)


class Branches(Case):
    @staticmethod
    def exact(n):
        """By branch: how often, how often taken; and edges."""
        return ({
            ('outer', 'direct'): (n, n), ('outer', 'indirect'): (n, n),
            ('outer', 'half'): (n, n // 2), ('outer', 'loop'): (n, n - 1),
            ('outer', 'away'): (1, 1), ('inner', 'short'): (5 * n, 4 * n),
            ('inner', 'jump'): (n, n), ('inner', 'return'): (n, n),
            ('leaf', 'leaf'): (n, n), ('tail', 'tail'): (1, 1),
        }, {
            ('call', 'main', 'outer'): 1, ('call', 'outer', 'inner'): n,
            ('call', 'outer', 'leaf'): n, ('call', 'outer', 'tail'): 1,
            ('return', 'inner', 'outer'): n, ('return', 'leaf', 'outer'): n,
            ('return', 'tail', 'main'): 1,
        })

    def compile(self, bits):
        program = common.compile_c(self.path(f'branches{bits}'), BRANCHES,
                                   '-O1', '-mno-red-zone',
                                   *(['-m32'] if bits == 32 else []))
        out = subprocess.run(['nm', program], stdout=subprocess.PIPE,
                             text=True, check=True).stdout
        symbols = {m[2]: int(m[1], 16) for m in
                   re.finditer(r'(?m)^(\w+) \w (\w+)$', out)}
        self.places = {hex(symbols[f] + symbols['at_' + b]): (f, b)
                       for f, b in self.exact(1)[0]}
        return program

    def profile(self, options, program, n, bits=64):
        """Records and those taken by branch; edges; and their period."""
        event = self.record(['-e', 'bre', *options], program, n,
                            bits=bits)['bre']
        functions = {f for f, _ in self.places.values()}
        rows = {self.places[r['addr']]: (r['records'], r['taken'])
                for r in event['branches'] if r['symbol'] in functions}
        edges = {(r['kind'], r['symbol'], r['symbol_to']): r['records']
                 for r in event['edges']
                 if {r['symbol'], r['symbol_to']} & functions}
        return rows, edges, event

    def check_all(self, bits):
        n = 20000
        program = self.compile(bits)
        rows, edges, event = self.profile(['-c', '1'], program, n, bits)
        self.assertEqual(rows, self.exact(n)[0])
        self.assertEqual(edges, self.exact(n)[1])
        self.assertEqual(event['records'], event['counted'])
        self.sentence = (f'{len(rows)} branches, taken and not, and '
                         f'{len(edges)} edges between functions: '
                         f'{sum(r[0] for r in rows.values())} records')

    def test_all_64_bits(self):
        self.check_all(64)

    def test_all_32_bits(self):
        self.check_all(32)

    def test_sampled(self):
        n = 1000000
        program = self.compile(64)
        branches, edges = self.exact(n)
        worst = 0
        for options in ([], ['-r', '4'], ['-r', '8']):
            rows, seen_edges, event = self.profile(['-c', '1009', *options],
                                                   program, n)
            exact, seen = {}, {}
            for name, (all_, taken) in branches.items():
                row = rows.get(name, (0, 0))
                for how, count, found in (('taken', taken, row[1]),
                                          ('not', all_ - taken,
                                           row[0] - row[1])):
                    # Too rare for a distribution, but not for a limit
                    if count > 1:
                        exact[name, how], seen[name, how] = count, found
                    else:
                        self.assertLessEqual(found, 1)
            worst = max(worst, self.check_fit(seen, exact, event['period']))
            total = sum(a for a, _ in branches.values())
            frequent = {e: c for e, c in edges.items() if c > 1}
            frequent['local'] = total - sum(frequent.values())
            seen_edges['local'] = sum(seen.values()) - sum(
                seen_edges.values())
            worst = max(worst, self.check_fit(seen_edges, frequent,
                                              event['period']))
        self.sentence = (f'{len(exact)} branches, taken and not, and '
                         f'{len(frequent) - 1} edges: 3 profiles fit, the '
                         f'worst deviation is {worst:.1f} sigma')


class Misses(Case):
    FUNCTIONS = 'walk', 'search', 'histogram', 'fill', 'columns'

    def profile(self, options, bits):
        """Misses of LWP and of the plugin, by function and address."""
        program = common.compile_c(self.path(f'misses{bits}'), MISSES, '-O2',
                                   '-no-pie', '-fno-tree-vectorize',
                                   '-fno-stack-protector',
                                   *(['-m32'] if bits == 32 else []))
        self.lwp('record', '-m', '4096', '-e', 'dme', *options, '--',
                 *self.plugin('cache', CACHE, program, bits=bits))
        whole, events = self.json('-s', 'symbol,addr')
        self.assertEqual(whole['missed'], 0)
        lwp = {(r['symbol'], int(r['addr'], 16)): r['records']
               for r in events['dme']['rows']
               if r['symbol'] in self.FUNCTIONS}
        out = subprocess.run(['nm', '-S', program], stdout=subprocess.PIPE,
                             text=True, check=True).stdout
        places = {m[3]: (int(m[1], 16), int(m[2], 16)) for m in
                  re.finditer(r'(?m)^(\w+) (\w+) [Tt] (\w+)$', out)}
        table = re.search(r'(?s)\naddress, data misses.*?\n\n', self.log())[0]
        plugin = {}
        for a, n in re.findall(r'(?m)^0x([0-9a-f]+)(?: \(.*\))?, (\d+), ',
                               table):
            for name in self.FUNCTIONS:
                start, size = places[name]
                if start <= int(a, 16) < start + size and n != '0':
                    plugin[name, int(a, 16)] = int(n)
        # Stores are no misses of LWP (2.4): only this function has any.
        stores = max((n, k) for k, n in plugin.items() if k[0] == 'fill')
        self.assertGreater(plugin.pop(stores[1]), 1000)
        # But for a push, if the stack happens to get to a new line there.
        for place in plugin.keys() - lwp.keys():
            self.assertLessEqual(plugin.pop(place), 2)
        return lwp, plugin

    def check_all(self, bits):
        lwp, plugin = self.profile(['-c', '1'], bits)
        self.assertEqual(lwp, plugin)
        self.assertEqual({f for f, _ in plugin}, {*self.FUNCTIONS})
        functions = {(os.path.basename(self.path(f'misses{bits}')), f): sum(
            n for (g, _), n in plugin.items() if f == g)
            for f, _ in plugin}
        reported = self.functions(self.json()[1]['dme'])
        self.assertEqual({k: reported[k] for k in functions}, functions)
        self.sentence = ', '.join(f'{f} {n}' for (_, f), n in functions.items())

    def test_all_64_bits(self):
        """Each load instruction's misses are those of the plugin."""
        self.check_all(64)

    def test_all_32_bits(self):
        """Each load instruction's misses are those of the plugin."""
        self.check_all(32)

    def test_sampled(self):
        worst = 0
        for random in '0', '3', '5':
            lwp, plugin = self.profile(['-c', '101', '-r', random], 64)
            period = self.json()[1]['dme']['period']
            exact = {k: n for k, n in plugin.items() if n >= 5 * period}
            worst = max(worst, self.check_fit(lwp, exact, period))
        self.sentence = (f'{len(exact)} instructions, {sum(exact.values())} '
                         'misses: 3 profiles fit, the worst deviation is '
                         f'{worst:.1f} sigma')


if __name__ == '__main__':
    common.main(__doc__)
