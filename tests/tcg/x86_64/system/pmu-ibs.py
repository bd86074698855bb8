# SPDX-License-Identifier: GPL-2.0-or-later
#
# Breakpoints where samples are, and single steps, change nothing of what pmu-ibs
# prints; the Makefile compares that.
#
# This is launched via tests/guest-debug/run-test.py

from __future__ import print_function

import gdb
from test_gdbstub import main, report

PLACES = ("nops_first", "load_at", "many_first", "guest_first",
          "profiled_first", "trap_stubs + 16 * 2")
STEPS = (0, 1, 25, 2)


def run_test():
    stops = 0

    # Interrupts come in single steps, too: SSTEP_ENABLE alone
    gdb.execute("maintenance packet Qqemu.sstep=0x1")
    end = gdb.Breakpoint("report_summary")
    points = [gdb.Breakpoint("*" + place) for place in PLACES]
    gdb.execute("c")
    while not end.hit_count:
        stops += 1
        steps = STEPS[stops % len(STEPS)]
        if steps:
            gdb.execute("stepi %d" % steps)
        if not end.hit_count:
            gdb.execute("c")
    report(stops > 50, "the program stops at breakpoints")
    report(all(point.hit_count for point in points), "at each of them")
    gdb.execute("c")


main(run_test)
