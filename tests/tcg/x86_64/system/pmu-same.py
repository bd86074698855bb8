# SPDX-License-Identifier: GPL-2.0-or-later
#
# Breakpoints, watchpoints and single steps change nothing of what pmu-same
# prints; the Makefile compares that.
#
# This is launched via tests/guest-debug/run-test.py

from __future__ import print_function

import gdb
from test_gdbstub import main, report

STEPS = 100
HITS = 2


def value(expression):
    return int(gdb.parse_and_eval(expression))


def run_test():
    end = value("(long)&same_end")
    stops = hits = 0

    def resume(command):
        if value("(long)$pc") != end:
            gdb.execute(command)
        return value("(long)$pc") != end

    # Interrupts come in single steps, too: SSTEP_ENABLE alone
    gdb.execute("maintenance packet Qqemu.sstep=0x1")
    gdb.Breakpoint("*same_end")
    blocks = gdb.Breakpoint("*same_blocks")
    nmi = gdb.Breakpoint("*trap_stubs + 16 * 2")
    nmi.enabled = False
    while resume("c"):
        kind = (None, gdb.WP_WRITE, gdb.WP_READ, gdb.WP_ACCESS)[stops % 4]
        stops += 1
        blocks.enabled = False
        if kind is None:
            nmi.enabled = True
            resume("stepi %d" % STEPS)
            nmi.enabled = False
        else:
            point = gdb.Breakpoint("same_word", gdb.BP_WATCHPOINT, kind)
            while point.hit_count < HITS and resume("c"):
                pass
            hits += point.hit_count
            point.delete()
        blocks.enabled = True

    report(stops > 20, "the program stops at breakpoints")
    report(hits > 20, "and at watchpoints")
    report(nmi.hit_count > 1, "and NMIs come in single steps")


main(run_test)
