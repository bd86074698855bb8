# SPDX-License-Identifier: GPL-2.0-or-later
#
# While LWP counts, "stepi" behind an interruption executes one instruction.
#
# This is launched via tests/guest-debug/run-test.py

from __future__ import print_function
import threading

import gdb
from test_gdbstub import main, report

ROUNDS = 40


def value(expression):
    return int(gdb.parse_and_eval(expression))


def interrupt():
    gdb.post_event(lambda: gdb.execute("interrupt"))


def run_test():
    start = value("(long)&lwp_code")
    end = value("(long)&lwp_code_end")
    steps = 0
    bad = []

    gdb.execute("break main")
    gdb.execute("c")
    gdb.execute("delete")
    gdb.execute("set variable lwp_forever = 1")

    for n in range(ROUNDS):
        threading.Timer(0.02, interrupt).start()
        gdb.execute("c")
        pc = value("(long)$pc")
        if not start <= pc < end:
            continue
        insn = gdb.selected_frame().architecture().disassemble(pc)[0]
        gdb.execute("stepi")
        after = value("(long)$pc")
        steps += 1
        if after not in (pc + insn["length"], start):
            bad.append("0x%x: %s, then 0x%x" % (pc, insn["asm"], after))

    report(steps >= ROUNDS // 2, "the program is interrupted at CPL 3")
    report(not bad, "stepi executes one instruction")
    for line in bad:
        print(line)


main(run_test)
