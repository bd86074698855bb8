# SPDX-License-Identifier: GPL-2.0-or-later
"""Intel Processor Trace: random programs that are traced, and what Debian's
decoder makes of the trace (pt-decode.c), which has to be what a plugin says
that has retired, instruction for instruction.  Nothing here knows packets."""

import collections
import re
import subprocess

import branches
import x86

CPU = 'max,vendor=GenuineIntel,family=6,model=94,stepping=3,pmu=on,intel-pt=on'
BASE, MASK, CTL, STATUS = 0x560, 0x561, 0x570, 0x571
TRACE_EN, OS, USER, TOPA, DISRETC, BRANCH_EN = (
    1 << n for n in (0, 2, 3, 8, 11, 13))
BUFFER = 1 << 18
PSB = b'\x02\x82' * 8
END = 1                         # of an entry of ToPA
PAGE = 4096

ADDR, INSIDE = 0x580, 1         # the first range; its code in CTL

# @range: of the instructions of body() that are traced, from a label to another
Session = collections.namedtuple('Session', 'ctl regions range')
Result = collections.namedtuple('Result', 'records counters interrupts '
                                          'differences')


class Program(branches.Program):
    """Code for @bits that is traced, with all that branches may do."""

    WEIGHTS = {**branches.Program.WEIGHTS, 'modify': 0, 'deep': 2}

    def __init__(self, rng, bits):
        super().__init__(rng, bits, branches.GENERATIONS[8], 8)
        self.counts = False     # and so targets that fault
        self.plans, self.marks = [], 0

    def emit(self, *lines):
        """libipt takes each INTO for one that traps."""
        super().emit(*('nop' if line == 'into' and lines[0][:3] == 'xor' else
                       line for line in lines))

    def snippet(self):
        if self.rng.random() < .3:
            super().emit(f'.globl mark{self.marks}', f'mark{self.marks}:')
            self.marks += 1
        super().snippet()

    def handlers(self):
        self.emit(f'.globl mark{self.marks}', f'mark{self.marks}: nop')
        self.marks += 1
        # Some code has other upper bits of addresses.
        self.emit('.text', '.balign 0x10000', '.code64',
                  '.globl dump, on_dump, on_pmi, on_irq',
                  '.globl on_syscall, on_sysenter, end_session, set_ds_area',
                  'dump: mov $0x561, %ecx', 'rdmsr', 'mov %eax, pt_end',
                  'mov %edx, pt_end + 4', 'mov $pt_end, %esi',
                  f'mov ${BUFFER + 8}, %ecx', 'mov $0xe9, %edx',
                  'cld', 'rep outsb', 'ret',
                  'on_dump: iretq', 'end_session: ret', 'set_ds_area: ret',
                  'on_irq: push %rax', f'mov ${branches.APIC + 0xb0:#x}, %eax',
                  'movl $0, (%rax)', 'pop %rax', 'iretq',
                  'on_syscall: sysretq', 'on_sysenter: sti',
                  f'.byte {"0x48, " if self.bits == 64 else ""}0x0f, 0x35',
                  'on_pmi: iretq')
        self.emit('.bss', f'.balign {BUFFER}', f'.skip {BUFFER - 8}',
                  'pt_end: .skip 8', f'pt_buffer: .skip {BUFFER}')

    def session(self):
        rng = self.rng
        ctl = TRACE_EN | BRANCH_EN | rng.choice((OS | USER, OS | USER,
                                                 USER if self.user else OS,
                                                 OS, USER))
        ctl |= rng.choice((0, 0, 0, DISRETC))
        regions = None
        base = 'pt_buffer'
        if rng.random() < .6:
            ctl |= TOPA
            regions = rng.sample(range(BUFFER // PAGE), BUFFER // PAGE)
            base = f'topa{len(self.plans)}'
        ends = None
        filters = []
        if rng.random() < .5:
            first, last = sorted((rng.randrange(self.marks),
                                  rng.randrange(self.marks)))
            ends = f'mark{first}', f'mark{last}'
            n = rng.randrange(2)
            ctl |= INSIDE << 32 + 4 * n
            filters = [(ADDR + 2 * n, ends[0]), (ADDR + 2 * n + 1, ends[1])]
        self.plans.append(Session(ctl, regions, ends))
        rows = [(STATUS, 0), (BASE, base), *filters,
                (MASK, 0x7f if regions else BUFFER - 1), (CTL, ctl)]
        rows += [(0, 0)] * (48 - len(rows))
        cs = 8 if not self.user else 0x1b if self.bits == 64 else 0x2b
        self.emit(f'.quad {cs}, 0, 0, 0')
        for row in (*rows, (CTL, ctl & ~TRACE_EN)):
            self.emit('.quad %s, %s' % row)
        self.emit('.quad 0, 0, 0, 0')

    def text(self, sessions):
        text = super().text(sessions)
        lines = ['.data']
        for i, plan in enumerate(self.plans):
            if plan.regions:
                lines += [f'.balign {PAGE}', f'topa{i}:',
                          *(f'.quad pt_buffer + {PAGE * r}'
                            for r in plan.regions), f'.quad topa{i} + {END}']
        return text + '\n'.join(lines) + '\n'


def trace_of(plan, output):
    """The bytes of a trace, from the register and the buffer."""
    mask = int.from_bytes(output[:8], 'little')
    buffer = output[8:8 + BUFFER]
    index, offset = (mask & 0xffffffff) >> 7, mask >> 32
    if not plan.regions:
        return buffer[:offset]
    regions = [buffer[PAGE * r:PAGE * r + PAGE] for r in plan.regions]
    return b''.join(regions[:index]) + regions[index][:offset]


def decode(program, path, code, offset):
    """The addresses that the decoder finds, and why it has stopped."""
    done = subprocess.run([program, path, code, str(offset)], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    lines = (line.split() for line in done.stdout.splitlines())
    return ([int(words[0], 16) for words in lines if words[0] != 'event'],
            done.stderr.strip())


class Filter:
    """FilterEn: what goes straight on neither leaves a range nor enters it."""

    def __init__(self, plan, symbols):
        self.range = plan.range and range(symbols[plan.range[0]],
                                          symbols[plan.range[1]] + 1)
        self.on = None

    def at(self, insn):
        """Whether the instruction is traced"""
        if self.on is None:
            self.goes(insn.pc)
        return self.on

    def goes(self, ip):
        self.on = not self.range or ip in self.range

    def behind(self, insn, ip, entry):
        if entry:
            self.goes(entry.pc)
        elif ip != insn.end or insn.kind not in (x86.PLAIN, x86.JCC, x86.MARK):
            self.goes(ip)


def expected(trace, plans, symbols, in_user):
    """Of each session, the addresses that have retired while it was traced."""
    plans, session, addresses = iter(plans), None, []
    for insn, state, ip, entry, _ in trace.retired():
        if insn.kind == x86.WRMSR and state and (
                state[1] & 0xffffffff) == CTL:
            if session:
                yield addresses
                session, addresses = None, []
            else:
                session = next(plans)
                path = Filter(session, symbols)
            continue
        if not session:
            continue
        inside = path.at(insn)
        path.behind(insn, ip, entry)
        if ip is None or not inside:
            continue
        # INT n and the like are events, which come in front of them.
        if insn.kind in (x86.ENTER, x86.INTO) and insn.code[0] != 0x0f:
            continue
        if session.ctl & (USER if in_user(insn.pc) else OS):
            addresses.append(insn.pc)


def compare(retired, plans, output, decoder, code, work, symbols, in_user):
    """A Result of each session."""
    results = []
    for i, want in enumerate(expected(retired, plans, symbols, in_user)):
        trace = trace_of(plans[i], output[i * (BUFFER + 8):])
        path = work / 'trace.pt'
        path.write_bytes(trace)
        have, error = decode(decoder, path, code, 0)
        errors = [error] if error else []
        if have != want:
            n = next((n for n, (a, b) in enumerate(zip(have, want))
                      if a != b), min(len(have), len(want)))
            errors.append(
                f'instruction {n} of {len(want)} (CTL {plans[i].ctl:x}): '
                f'{have[n:n + 1]} is decoded, {want[n:n + 1]} retired, behind '
                f'{want[max(n - 1, 0):n]}')
        # From any other PSB on, the rest has to be the same.
        for at in re.finditer(re.escape(PSB), trace[1:]):
            have, error = decode(decoder, path, code, at.start() + 1)
            if error or have != want[len(want) - len(have):]:
                errors.append(f'from the PSB at byte {at.start() + 1} on: '
                              f'{error or "other instructions"}')
        results.append(Result(len(want), 0, 0, errors))
    return results
