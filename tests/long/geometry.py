#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""usage: geometry.py BUILD [MODEL...]: see geometry.sh"""

import json
import os
import re
import subprocess
import sys
import tempfile

LEVELS = {'L1D': 'l1d', 'L2': 'l2', 'L3': 'l3'}
# What to put behind a model; each is accepted or says why not.
OPTIONS = ('', ',l3-cache=off', ',l1d-size=48K,l1d-assoc=12,l2-size=1M,'
           'l2-assoc=16,l3-size=0', ',+lwp')
NO_PMU = 'there is no PMU for this vendor'


class Qemu:
    """A guest that has not started yet."""

    def __init__(self, build, cpu, output):
        self.process = subprocess.Popen(
            [f'{build}/qemu-system-x86_64', '-S', '-M', 'q35', '-cpu', cpu,
             '-accel', 'tcg', '-display', 'none', '-monitor', 'none',
             '-qmp', 'stdio', '-chardev', f'file,path={output},id=output',
             '-device', 'isa-debugcon,chardev=output', '-device',
             'isa-debug-exit,iobase=0xf4,iosize=0x4', '-kernel',
             f'{build}/tests/tcg/x86_64-softmmu/pmu-geometry'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)

    def send(self, command, **arguments):
        try:
            self.process.stdin.write(json.dumps(
                {'execute': command, 'arguments': arguments}) + '\n')
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        while True:
            line = self.process.stdout.readline()
            if not line:
                return None
            reply = json.loads(line)
            if 'return' in reply:
                return reply['return']

    def caches(self):
        """What the properties say, in bytes and ways; whether the CPU can run
        the program."""
        if self.send('qmp_capabilities') is None:
            return None, True
        cpu = self.send('query-cpus-fast')[0]['qom-path']
        found = {}
        for name, level in LEVELS.items():
            size, ways = (self.send('qom-get', path=cpu, property=level + p)
                          for p in ('-size', '-assoc'))
            found[name] = (size, ways if size else 0)
        return found, self.send('qom-get', path=cpu, property='lm')

    def finish(self, command):
        """Returns what it has said."""
        self.send(command)
        return self.process.communicate()[1]


def check(build, cpu, output):
    """What is wrong, or None; and whether there is something to test."""
    qemu = Qemu(build, cpu, output)
    want, has_lm = qemu.caches()
    message = qemu.finish('cont' if want and has_lm else 'quit')
    if want is None:
        return (message.strip().split('\n')[-1],
                NO_PMU not in message and 'requires KVM' not in message)
    if not has_lm:
        return None, False
    with open(output, encoding='ascii', errors='replace') as f:
        text = f.read()
    shown = {name: (int(size), int(ways)) for name, size, ways in
             re.findall(r'^(L\w+) (\d+) (\d+)$', text, re.M)}
    for name, value in shown.items():
        if value != want[name]:
            return f'{name}: CPUID {value}, properties {want[name]}', True
    if ', 0 failures' not in text or not shown:
        failures = re.findall(r'FAIL: [^\n]*', text)
        return ', '.join(failures) or message, True
    return None, True


def main():
    build, *models = sys.argv[1:]
    if not models:
        text = subprocess.run([f'{build}/qemu-system-x86_64', '-cpu', 'help'],
                              stdout=subprocess.PIPE, text=True,
                              check=True).stdout
        models = re.findall(r'^  ([\w.-]+)', text.split('\n\n')[0], re.M)
    tested = failed = 0
    with tempfile.TemporaryDirectory() as directory:
        output = os.path.join(directory, 'output')
        for model in models:
            for options in OPTIONS:
                wrong, can = check(build, f'{model},pmu=on{options}', output)
                if not can:
                    break
                tested += 1
                failed += wrong is not None
                print('FAIL' if wrong else 'PASS', 'geometry: '
                      f'{model}{options}' + (f': {wrong}' if wrong else ''),
                      flush=True)
    print('FAIL' if tested < 50 and not sys.argv[2:] else 'PASS',
          f'geometry: {tested} CPUs were tested')
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
