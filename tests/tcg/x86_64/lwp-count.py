#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Run lwp-count and compare LWP's count with that of the plugin insn.

usage: lwp-count.py PLUGIN QEMU [OPTION...] PROGRAM

The plugin counts an instruction when it starts.  So it counts more: system
calls and other ways into the kernel, which LWP does not count (section 2.2),
faulting instructions and REPs that start again.  QEMU's -strace tells the
first, the program the others.
"""

import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time

EXITS = 2               # system calls behind SLWPCB
RESULT = 176 + 8
LONGEST = (1 << 25) - 1


class Gdb:
    """As much of the remote protocol as it takes to step."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        for _ in range(100):
            try:
                self.sock.connect(path)
                break
            except OSError:
                time.sleep(0.1)
        self.send('?')
        self.receive()

    def send(self, text):
        data = text.encode()
        self.sock.sendall(b'$%s#%02x' % (data, sum(data) % 256))

    def receive(self):
        """A packet, or None at the end."""
        data = b''
        while not re.search(rb'\$([^#]*)#..', data):
            more = self.sock.recv(4096)
            if not more:
                return None
            data += more
        self.sock.sendall(b'+')
        return re.search(rb'\$([^#]*)#..', data).group(1).decode()

    def run(self, text):
        self.send(text)
        return self.receive()

    def pc(self):
        regs = self.run('g')
        return struct.unpack('<Q', bytes.fromhex(regs[16 * 16:17 * 16]))[0]


def debug(path):
    """Step, and go on to the end; how many steps stayed at a REP."""
    gdb = Gdb(path)
    stayed = 0
    for _ in range(60):
        pc = gdb.pc()
        for _ in range(40):
            before = pc
            gdb.run('s')
            pc = gdb.pc()
            stayed += pc == before
        if pc == before:
            continue    # A step at a breakpoint may be an iteration or none.
        # A breakpoint where the program is now, hit or not, is no instruction.
        gdb.run(f'Z0,{pc:x},1')
        gdb.run('s')
        gdb.run(f'z0,{pc:x},1')
    # Signals stop the debugger, too; pass them on.
    reply = gdb.run('c')
    while reply and reply[0] in 'ST':
        reply = gdb.run('C' + reply[1:3])
    return stayed


def run(name, plugin, qemu, options, program, gdb=False):
    """Run a program; whether the counts agree, and its interval."""
    with tempfile.TemporaryDirectory() as tmp:
        log = os.path.join(tmp, 'log')
        sock = os.path.join(tmp, 'gdb')
        cmd = [qemu, '-strace', '-plugin', plugin, '-d', 'plugin', '-D', log]
        cmd += ['-g', sock] if gdb else []
        cmd += options + program
        with subprocess.Popen(cmd, stdout=subprocess.PIPE) as proc:
            # To the plugin, each step is an instruction.
            stayed = debug(sock) if gdb else 0
            out = proc.communicate()[0]
        with open(log, encoding='utf-8', errors='replace') as f:
            text = f.read()
    if proc.returncode or len(out) % RESULT or not out:
        sys.exit(f'FAIL: {cmd}: exit status {proc.returncode}, '
                 f'{len(out)} bytes')

    lwp, rest = 0, stayed
    for i in range(0, len(out), RESULT):
        head, missed = struct.unpack_from('<IxxxxQ', out, i + 16)
        interval, counter = struct.unpack_from('<ii', out, i + 128 + 8)
        lwp += (head // 32 + missed) * (interval + 1) + interval - counter
        not_retired, outside = struct.unpack_from('<II', out, i + 176)
        rest += not_retired + outside - EXITS
    syscalls = len(re.findall(r'\d+ [a-z]\w*\(', text))
    total = int(re.search(r'total insns: (\d+)', text).group(1))
    ok = total == lwp + syscalls + rest
    print(f'{"PASS" if ok else "FAIL"}: {name}: plugin {total}, LWP {lwp} + '
          f'{syscalls} system calls + {rest} not retired, outside or stayed')
    return ok, interval


def main():
    plugin, qemu, *options, program = sys.argv[1:]
    args = plugin, qemu, options
    ok, interval = run('blocks', *args, [program])
    ok &= run('threads', *args, [program, 'threads'])[0]
    ok &= run('one-insn-per-tb', plugin, qemu, options + ['-one-insn-per-tb'],
              [program])[0]
    ok &= run('gdbstub', *args, [program], gdb=True)[0]
    if interval == LONGEST:
        # Else blocks may be of one instruction, which restart less often.
        ok &= run('own-block', *args, [program, 'own-block'])[0]
    sys.exit(not ok)


main()
