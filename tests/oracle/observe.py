# SPDX-License-Identifier: GPL-2.0-or-later
"""What the observer of target-i386-branch/retire-test.c has written of every
Nth instruction, against a trace."""

import collections

import caches
import predictor
import x86

L1 = 8                          # RETIRE_SOURCE_L1
LBR = 4                         # LBR_SHOWN
ACCESSES = 4                    # RETIRE_STORY_ACCESSES
BRANCH = {x86.JCC: 1, x86.JMP_IND: 2, x86.JMP: 3, x86.CALL_IND: 4, x86.CALL: 5,
          x86.RET: 6}           # RetireBranch

Result = collections.namedtuple('Result', 'records counters interrupts '
                                          'differences')


def lines(path):
    """The fields of each line, by name."""
    with open(path, encoding='ascii') as f:
        for line in f:
            if line.startswith('retire-test: '):
                yield dict(w.split('=') for w in line.split()[1:])


class Accesses:
    """An instruction's, and where data come from; all are to be shown."""

    def __init__(self, cpu, own):
        self.cpu, self.own = cpu, own

    def of(self, accesses, observed_lwp):
        """Kind, addresses, size, source and clocks of each, as a line of the
        log has them."""
        found = []
        for addr, physical, size, store in accesses:
            if observed_lwp and any(addr in r for r in self.own):
                continue                # LWP's
            last = found[-1:] and found[-1]
            if size == 16 and last and last[:4] == [
                    'S' if store else 'L', addr - 16, physical - 16, 16]:
                last[3] = 32            # halves of a vector are one
            else:
                found.append(['S' if store else 'L', addr, physical, size])
        for access in found:
            kind, _, physical, size = access
            first = physical // caches.LINE
            behind = (physical + size - 1) // caches.LINE + 1
            sources = [s for s in map(self.cpu.caches.access,
                                      range(first, behind)) if s is not None]
            access.append(sources[0] if sources else L1)
            access.append(0 if kind == 'S' else
                          sum(self.cpu.latency[s] for s in sources))
            access.append(behind - first == 2)
        return found


def is_locked(insn):
    """LOCK, or XCHG with memory."""
    code = insn.code.lstrip(x86.PREFIXES.replace(b'\xf0', b''))
    return code[0] == 0xf0 or code.lstrip(bytes(range(0x40, 0x50)))[0] in (
        0x86, 0x87)


def told(field):
    """Accesses of a line like those of Accesses.of(), and how many in all."""
    nr, _, rest = field.partition(':')
    result, locked = [], []
    for access in rest.split(',')[:-1]:
        flags, addr, physical, size, source, clocks = access.split('-')
        if 'X' in flags:
            locked.append(addr)
        for kind in 'LS':
            if kind in flags:
                # What is loaded is in L1D when it is stored to
                hit = kind == 'S' and 'L' in flags
                result.append([kind, int(addr, 16), int(physical, 16),
                               int(size), L1 if hit else int(source),
                               0 if kind == 'S' else int(clocks),
                               '2' in flags])
    return result, bool(locked), int(nr)


def check(insn, ip, line, prediction, lbr, accesses, code):
    """What is not as it should be in a line of the log."""
    branch = BRANCH.get(insn.kind, 0)
    taken = branch and (insn.kind != x86.JCC or ip != insn.end)
    right = {'ip': f'{insn.pc:x}', 'target': f'{ip:x}', 'cpl': '3',
             'branch': str(branch),
             # LLWPCB does not count itself, or what it ends would.
             'entry': str(int(insn.kind == x86.LLWPCB)),
             'far': str(int(insn.kind in (x86.FAR, x86.RETURN))),
             'lbr': ''.join(f'{f:x}-{t:x},' for f, t in lbr)}
    if branch:
        right.update(next=f'{insn.end:x}', taken=str(int(taken)),
                     predicted=str(int(prediction[0])),
                     mispredicted=str(int(not prediction[1])))
    for name, value in right.items():
        if line[name] != value:
            yield f'{name} is {line[name]}, should be {value}'
    found, locked, nr = told(line['accesses'])
    if insn.rep_loads or insn.code[-1] in x86.STRINGS:
        # Of the last iteration, which may have none
        accesses = accesses[len(accesses) - len(found):]
    elif nr > ACCESSES:
        accesses = accesses[:len(found)]
    for shown, access in zip(found, accesses):
        # What writes to its own block starts again, when L1D has the line
        if access[0] == 'S' and access[1] in code and shown[4] == L1:
            access[4] = L1
    if found != accesses:
        yield f'accesses are {found}, should be {accesses}'
    updates = [a[:4] for a in found if a[0] == 'L'
               and ['S', *a[1:4]] in [b[:4] for b in found]]
    if locked != bool(updates and is_locked(insn)):
        yield f'locked is {locked}'


def compare(trace, log, every, cpu, own, code):
    """A Result; @own are LWPCBs and rings, which LWP accesses, and @code may
    write to itself."""
    branches, shown = predictor.Predictor(), Accesses(cpu, own)
    lbr = collections.deque([(0, 0)] * LBR, LBR)
    log = lines(log)
    retired = checked = 0
    differences, registers, active = [], None, False
    for insn, state, ip, handler, accesses in trace.retired():
        if registers and list(state[:len(registers[1])]) != registers[1]:
            differences.append(f'behind {registers[0]}: registers are '
                               f'{registers[1]}, should be {state[:16]}')
        registers = None
        accesses = shown.of(accesses, active or insn.kind == x86.LLWPCB)
        if insn.kind == x86.LLWPCB:
            active = state[insn.code[-1] & 7 | (~insn.code[1] >> 2 & 8)]
        # What enters the kernel has not retired in user mode emulation
        if ip is None or insn.kind == x86.ENTER or (
                insn.kind == x86.INTO and ip != insn.end):
            continue
        retired += 1
        prediction = None
        if insn.kind in x86.NEAR_BRANCHES:
            prediction = branches.predict(insn, ip)
            if insn.kind != x86.JCC or ip != insn.end:
                lbr.appendleft((insn.pc, ip))
        if retired % every:
            continue
        line = next(log, None)
        if not line or line['n'] != str(retired):
            differences.append(f'instruction {retired}, {insn}: '
                               f'{line and "n is " + line["n"]}')
            break
        checked += 1
        differences += (f'instruction {retired}, {insn}: {text}' for text in
                        check(insn, ip, line, prediction, lbr, accesses, code))
        if not handler:
            registers = insn, [int(n, 16) for n in
                               line['regs'].split(',')[:-1]]
    return Result(checked, 0, 0, differences)
