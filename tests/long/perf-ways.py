# SPDX-License-Identifier: GPL-2.0-or-later
"""For gdb: stop, step and watch each pmu-loop of the guest at $STUB.

Prints a line of PASS or FAIL for each check.
"""

import os
import time

import gdb

STEPS = 500
HITS = 20

while not os.path.exists(os.environ['STUB']):
    time.sleep(1)
gdb.execute('set confirm off')
gdb.execute('file ' + os.environ['ELF'])
gdb.execute('target remote ' + os.environ['STUB'])
# Interrupts come in single steps, too: SSTEP_ENABLE alone
gdb.execute('maintenance packet Qqemu.sstep=0x1')
start = gdb.Breakpoint('*_start', type=gdb.BP_HARDWARE_BREAKPOINT)
runs = hits = 0
try:
    while True:
        gdb.execute('continue')
        runs += 1
        start.enabled = False
        gdb.execute(f'stepi {STEPS}')
        kind = (gdb.WP_WRITE, gdb.WP_READ, gdb.WP_ACCESS)[runs % 3]
        watch = gdb.Breakpoint('*(int *)&to', gdb.BP_WATCHPOINT, kind)
        while watch.hit_count < HITS:
            gdb.execute('continue')
        hits += watch.hit_count
        watch.delete()
        start.enabled = True
except gdb.error as e:          # QEMU has ended
    print(e)
print('FAIL' if runs < 5 else 'PASS', f'perf-ways: gdb: stopped {runs} programs')
print('FAIL' if hits < 100 else 'PASS', f'perf-ways: gdb: {hits} watchpoints hit')
