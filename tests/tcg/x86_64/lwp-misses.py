#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Run lwp-misses and compare LWP's DCache misses with those of plugin cache.

usage: lwp-misses.py PLUGIN QEMU [OPTION...] PROGRAM

Both count by the address of the instruction, the plugin the misses of stores,
too, which are none for LWP (section 2.4).  What stores without loading is told
by the machine code, as QEMU may have been built without a disassembler.
"""

import os
import re
import struct
import subprocess
import sys
import tempfile

# The defaults of l1d-size and l1d-assoc
CACHE = 'dcachesize=16384,dassoc=4,dblksize=64,evict=lru,limit=1000000000'
INTERVAL = '997'

# Opcodes that store only: without ModRM or whatever it is, if it is memory,
# and for some values of its reg field
PUSH = {*range(0x50, 0x58), 0x68, 0x6a, 0xe8}
STORE = {0x88, 0x89, 0xc6, 0xc7}
STORE_0F = {0x11, 0x13, 0x17, 0x29, 0x2b, 0x7e, 0x7f, 0xc3, 0xd6, 0xe7,
            *range(0x90, 0xa0)}
STORE_X87 = {0xd9: {2, 3, 6, 7}, 0xdb: {1, 2, 3, 7}, 0xdd: {1, 2, 3, 7},
             0xdf: {1, 2, 3, 6, 7}}
CALL_REG, PUSH_REG = 2, 6


def stores(code):
    """Whether an instruction stores to memory and does not load."""
    rest = code.lstrip(b'\x26\x2e\x36\x3e\x64\x65\x66\x67\xf2\xf3')
    repz = b'\xf3' in code[:-len(rest)]
    if 0x40 <= rest[0] < 0x50:
        rest = rest[1:]
    op, modrm = rest[0], rest[1]
    if op in PUSH:
        return True
    if op == 0x0f:
        op, modrm = modrm, rest[2]
        # With REPZ, MOVD is a MOVQ that loads.
        return op in STORE_0F and modrm < 0xc0 and not (op == 0x7e and repz)
    if op == 0xff:
        return modrm >= 0xc0 and modrm // 8 % 8 in (CALL_REG, PUSH_REG)
    return modrm < 0xc0 and (op in STORE or
                             modrm // 8 % 8 in STORE_X87.get(op, ()))


class Elf:
    """As much of a 64-bit ELF file as it takes to read its code."""

    def __init__(self, path):
        with open(path, 'rb') as f:
            self.data = f.read()

    def read(self, addr, size):
        phoff, = struct.unpack_from('<Q', self.data, 32)
        phentsize, phnum = struct.unpack_from('<HH', self.data, 54)
        for i in range(phnum):
            kind, _, offset, vaddr, _, filesz = struct.unpack_from(
                '<IIQQQQ', self.data, phoff + i * phentsize)
            if kind == 1 and vaddr <= addr < vaddr + filesz:
                offset += addr - vaddr
                return self.data[offset:offset + size]
        sys.exit(f'FAIL: no code at {addr:#x}')


def run(plugin, qemu, args):
    """What the program has printed, and the plugin's misses by address."""
    with tempfile.TemporaryDirectory() as tmp:
        log = os.path.join(tmp, 'log')
        cmd = [qemu, '-plugin', f'{plugin},{CACHE}', '-d', 'plugin', '-D', log]
        proc = subprocess.run(cmd + args, stdout=subprocess.PIPE, text=True,
                              check=False)
        with open(log, encoding='utf-8', errors='replace') as f:
            text = f.read()
    if proc.returncode:
        sys.exit(f'{proc.stdout}FAIL: {cmd + args}: '
                 f'exit status {proc.returncode}')
    table = re.search(r'(?s)\naddress, data misses.*?\n\n', text).group(0)
    misses = re.findall(r'(?m)^0x([0-9a-f]+)(?: \(.*\))?, (\d+), ', table)
    return proc.stdout, {int(addr, 16): int(n) for addr, n in misses}


def compare(name, elf, plugin, qemu, args, by_address=True):
    """Run a program; whether the misses agree, or else their sum."""
    out, theirs = run(plugin, qemu, args)
    programs = re.findall(r'(?m)^program (\w+) (\w+) (\w+) (-?\d+)\n'
                          r'((?:misses .*\n)*)', out)
    all_ok = len(programs) > 0
    for program, start, end, total, lines in programs:
        total = int(total)
        lwp = {int(addr, 16): int(n) for addr, n in
               re.findall(r'misses (\w+) (\d+)', lines)}
        accesses = {addr: n for addr, n in theirs.items()
                    if int(start, 16) <= addr < int(end, 16) and n > 0}
        loads = {addr: n for addr, n in accesses.items()
                 if not stores(elf.read(addr, 16))}
        sums = sum(loads.values())
        wrong = [addr for addr in sorted({*lwp, *loads})
                 if by_address and lwp.get(addr) != loads.get(addr)]
        ok = not wrong and total == sums > 0
        all_ok &= ok
        print(f'{"PASS" if ok else "FAIL"}: {name}: {program}: LWP {total}, '
              f'plugin {sums} misses by {len(loads)} instructions; '
              f'{sum(accesses.values()) - sums} by stores')
        for addr in wrong:
            print(f'      {addr:#x}: LWP {lwp.get(addr, 0)}, '
                  f'plugin {loads.get(addr, 0)} misses, '
                  f'code {elf.read(addr, 16).hex(" ")}')
    return all_ok


def main():
    plugin, qemu, *options, program = sys.argv[1:]
    args = Elf(program), plugin, qemu
    ok = compare('blocks', *args, options + [program])
    ok &= compare('one-insn-per-tb', *args,
                  options + ['-one-insn-per-tb', program])
    ok &= compare(f'interval {INTERVAL}', *args, options + [program, INTERVAL],
                  by_address=False)
    sys.exit(not ok)


main()
