#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Run lwp-blocks and compare what two plugins count: insn and bb.

usage: lwp-blocks.py DIRECTORY QEMU [OPTION...] PROGRAM

The first one counts each instruction when it starts, the other one all those
of a block when that starts.  The program never leaves a block in its middle,
so these are the same: a plugin is not told of a block that LWP has not let run.
"""

import os
import re
import subprocess
import sys
import tempfile

IRE, BRE, CNH = 2, 3, 5
NMB, IPF = 1 << 25, 1 << 31
# Event, interval, filters
CASES = {
    'no LWP': (0, 0, 0),
    'IRE, interval 1000': (IRE, 1000, 0),
    'IRE, interval 7': (IRE, 7, 0),
    'IRE, IP filter': (IRE, 20, IPF),
    'BRE, interval 1000': (BRE, 1000, 0),
    'BRE, interval 100': (BRE, 100, 0),
    'BRE, interval 0': (BRE, 0, 0),
    'BRE, predicted ones': (BRE, 100, NMB),
    'CNH, interval 97': (CNH, 97, 0),
}


def run(name, case, plugins, command):
    """Whether the counts agree."""
    with tempfile.TemporaryDirectory() as tmp:
        log = os.path.join(tmp, 'log')
        subprocess.run(
            [command[0], '-plugin', f'{plugins}/libinsn.so', '-plugin',
             f'{plugins}/libbb.so,inline=true', '-d', 'plugin', '-D', log,
             *command[1:], *map(str, case)], check=True)
        with open(log, encoding='utf-8') as f:
            text = f.read()
    insns = int(re.search(r'total insns: (\d+)', text).group(1))
    blocks = int(re.search(r"Total: bb's: \d+, insns: (\d+)", text).group(1))
    print(f'{"PASS" if insns == blocks else "FAIL"}: {name}: {insns} '
          f'instructions, {blocks} in blocks')
    return insns == blocks


def main():
    plugins, *command = sys.argv[1:]
    results = [run(name, case, plugins, command)
               for name, case in CASES.items()]
    sys.exit(not all(results))


main()
