# SPDX-License-Identifier: GPL-2.0-or-later
"""Branch records of processors since P6 by their manuals: what is recorded of
what a trace says, and random programs that read it.

A mark is behind each RDMSR of them (and each load of what BTS has stored),
so that what is read is in the trace, too: each value has to be just what all
branches, events and WRMSRs in front of it make it.  Nothing here knows how QEMU
does it."""

import collections

import predictor
import programs
import x86

LBR, BTF, TR, BTS, BTINT, OFF_OS, OFF_USR, FREEZE = (
    1 << n for n in (0, 1, 6, 7, 8, 9, 10, 11))
DEBUGCTL, SELECT, TOS, CTL, DEPTH = 0x1d9, 0x1c8, 0x1c9, 0x14ce, 0x14cf
STATUS_RESET, LBR_FRZ = 0x390, 1 << 58
LAST, LER, LER_INFO = 0x1db, 0x1dd, 0x1e0
CALL_STACK = 1 << 9             # as SELECT has it
STACK_SELECT = 0x1c4            # goes with it

# What is recorded; SELECT's and CTL's bits, and architectural types
JCC, CALL, CALL_IND, RET, JMP_IND, JMP, FAR = range(2, 9)
CTL_BITS = {JCC: 16, JMP: 17, JMP_IND: 18, CALL: 19, CALL_IND: 20, RET: 21,
            FAR: 22}
TYPES = {JCC: 0, JMP_IND: 1, JMP: 2, CALL_IND: 3, CALL: 4, RET: 5, FAR: 8}
KINDS = {x86.JCC: JCC, x86.JMP: JMP, x86.CALL: CALL, x86.RET: RET,
         x86.JMP_IND: JMP_IND, x86.CALL_IND: CALL_IND}

# ECX at a mark that is not behind an RDMSR
SESSION_END, NEW_AREA, AREA = 0xffff0000, 0xffff0001, 0xffff1000
BTS_RECORDS = 24
ALL_ONES = (1 << 64) - 1

# How records look
PLAIN, PACKED, FLAGS, TSX, INFO, TIME, ARCH = range(7)

Generation = collections.namedtuple(
    'Generation', 'name cpu depth look version first has_select has_stack '
                  'bts_predicts')
PREDICTED = 1 << 4              # in the third field of BTS's records
INTEL = 'max,vendor=GenuineIntel,family=6,model=%d,stepping=3,pmu=on'
GENERATIONS = [Generation(*row) for row in (
    # FROM, TO and INFO are at those addresses
    ('P6', INTEL % 8, 1, PLAIN, 0, (LAST, LAST + 1, 0), False, False, False),
    ('Pentium M', INTEL % 13, 8, PACKED, 0, (0x40, 0, 0), False, False, True),
    ('Core 2', INTEL % 15, 4, PLAIN, 2, (0x40, 0x60, 0), False, False, False),
    ('Nehalem', INTEL % 26, 16, FLAGS, 3, (0x680, 0x6c0, 0), True, False,
     True),
    ('Sandy Bridge', INTEL % 42, 16, FLAGS, 3, (0x680, 0x6c0, 0), True,
     False, True),
    ('Haswell', INTEL % 60, 16, TSX, 3, (0x680, 0x6c0, 0), True, True, True),
    ('Goldmont', INTEL % 92, 32, TIME, 4, (0x680, 0x6c0, 0), True, True,
     False),
    ('Goldmont Plus', INTEL % 122, 32, INFO, 4, (0x680, 0x6c0, 0xdc0), True,
     True, False),
    ('Skylake', INTEL % 94, 32, INFO, 4, (0x680, 0x6c0, 0xdc0), True, True,
     True),
    ('architectural', INTEL % 143, 32, ARCH, 5, (0x1500, 0x1600, 0x1200),
     False, True, True),
    ('K7', 'max,vendor=AuthenticAMD,family=23,model=1,perfmon-v2=off,pmu=on',
     1, PLAIN, 0, (LAST, LAST + 1, 0), False, False, False))]


class Record:
    """The registers of one, and what they are as those of an event's."""

    def __init__(self, source=0, target=0, info=0):
        self.regs = [source, target, info]
        self.last = source, target, info
        self.ignored = [0, 0, 0]        # bits of @regs


class Recorder:
    """A processor of this Generation; its architectural @depth."""

    def __init__(self, generation, word, stubs, nmi, irq):
        self.gen, self.word = generation, word
        self.stubs, self.nmi, self.irq = stubs, nmi, irq
        self.debug = stubs[1]
        self.predictor = predictor.Predictor()
        self.debugctl = self.select = self.ctl = self.tos = 0
        self.depth = generation.depth
        self.records = [Record() for _ in range(self.depth)]
        self.ler, self.ler_ignored = [0, 0, 0], 0
        self.frozen, self.cpl = False, 0
        self.last = None                # where it goes on, but for events
        self.ignored = 0                # bits of what read() returns
        self.clock, self.recorded_at = 0, None
        self.paused = False             # since then
        self.area, self.area_at = None, 0
        self.errors, self.checked, self.pmis = [], 0, 0

    # --- what is wanted ------------------------------------------------------

    def running(self):
        if self.frozen:
            return False
        return bool((self.ctl if self.gen.look == ARCH else self.debugctl) & 1)

    def stacks(self):
        if self.gen.look == ARCH:
            return bool(self.ctl & 8)
        return bool(self.select & CALL_STACK)

    def wants(self, what, cpl):
        if not self.running():
            return False
        if self.gen.look == ARCH:
            return bool(self.ctl & (4 if cpl else 2) and
                        self.ctl >> CTL_BITS[what] & 1)
        return not self.select & (2 if cpl else 1) and not (
            self.select >> what & 1)

    def trains(self):
        """A branch trains the predictor if such a one at this CPL could be
        recorded or stored, with what becomes of its prediction."""
        return self.gen.bts_predicts and self.traces() or self.gen.look not in (PLAIN, PACKED) and any(
            self.wants(what, self.cpl) and
            (what in (CALL, CALL_IND, RET) or not self.stacks())
            for what in KINDS.values())

    # --- recording -----------------------------------------------------------

    def newest(self):
        return self.records[0 if self.gen.look == ARCH else self.tos]

    def push(self, record):
        if self.gen.look == ARCH:
            self.records = [record, *self.records[:-1]]
        else:
            self.tos = (self.tos + 1) % self.depth
            self.records[self.tos] = record

    def pop(self):
        if self.gen.look == ARCH:
            self.records = [*self.records[1:], Record()]
        else:
            self.records[self.tos] = Record()
            self.tos = (self.tos - 1) % self.depth

    def cycles(self):
        return 0 if self.recorded_at is None else min(
            (self.clock - self.recorded_at), 0xffff)

    def show(self, what, source, target, wrong):
        look, wrong = self.gen.look, wrong << 63
        cycles, info = self.cycles(), 0
        record = Record(source, target)
        if look in (FLAGS, TSX, TIME):
            source = source & (1 << 61 if look == TSX else 1 << 63) - 1 | wrong
        if look == TIME:
            target = target & (1 << 48) - 1 | cycles << 48
        if look == INFO:
            info = wrong | cycles
        if look == ARCH:
            info = (wrong | (self.recorded_at is not None) << 60 |
                    TYPES[what] << 56 | cycles)
        record.regs = [source, target, info]
        record.last = record.last[0], record.last[1], info
        if self.paused:                 # the clock may have stood still
            record.ignored = [0, 0xffff << 48 if look == TIME else 0, 0xffff]
            self.paused = False
        return record

    def branch(self, what, source, target, cpl, wrong=False):
        """A branch that is taken, from @cpl to self.cpl."""
        self.store(source, target, what != FAR and not wrong)
        if not self.wants(what, self.cpl):
            return
        if self.stacks():
            if what == RET:
                self.pop()
                return
            if what not in (CALL, CALL_IND):
                return
        if self.gen.look == ARCH and not self.ctl & (4 if cpl else 2):
            source = ALL_ONES
        self.push(self.show(what, source, target, wrong))
        self.recorded_at = self.clock

    def freeze(self):
        if self.debugctl & FREEZE:
            if self.gen.version < 4:
                self.debugctl &= ~LBR
            else:
                self.frozen = True

    def event(self, source, handler):
        cpl, self.cpl = self.cpl, 0
        if handler == self.debug:
            self.debugctl &= ~(LBR | BTF)
            self.ctl &= ~1
            self.store(source, handler)     # TR stays set
            return
        if handler == self.nmi:
            self.pmis += 1
            self.freeze()
        if self.running():
            self.ler = list(self.newest().last)
            self.ler_ignored = self.newest().ignored[2]
        self.branch(FAR, source, handler, cpl)

    def retire(self, insn, state, ip, entry):
        """An instruction and what comes next, as Trace.retired() has it."""
        if ip is None:                  # a fault, or INT1
            self.event(insn.end if entry.pc == self.debug else insn.pc,
                       entry.pc)
            return
        if (ip in self.stubs or ip == self.irq) and insn.kind not in (
                x86.ENTER, x86.INTO, x86.RETURN):
            # An event, and a PMI behind it; some have let it retire
            retired = ip in (self.irq, self.debug)
            self.clock += retired
            if retired and insn.kind in KINDS:
                # What steps is a JMP to what follows it: see kernel().
                self.branch(KINDS[insn.kind], insn.pc, insn.end, self.cpl)
            if not self.debugctl & BTS:
                self.freeze()           # A counter's was first.
            self.event(insn.end if retired else insn.pc, ip)
            self.event(ip, entry.pc)
            return
        self.clock += 1
        self.paused |= not self.running()
        cpl, kind = self.cpl, insn.kind
        if kind == x86.RETURN and cpl == 0 and state and entry and (
                state[16] == entry.pc != ip):
            ip, entry = entry.pc, None      # a PMI was in front of it
        if kind in KINDS:
            wrong = False
            if self.trains():
                wrong = not self.predictor.predict(insn, ip)[1]
            taken = kind != x86.JCC or ip != insn.end
            if kind == x86.CALL and ip == insn.end and self.stacks():
                self.store(insn.pc, ip, True)   # only tells where it is
            elif taken:
                self.branch(KINDS[kind], insn.pc, ip, cpl, wrong)
        elif kind == x86.WRMSR:
            self.wrmsr(state)
        elif kind == x86.MARK:
            if self.last == insn.pc or (
                    state[1] & 0xffffffff in (SESSION_END, NEW_AREA)):
                self.mark(state)    # else a PMI has been there
        elif kind in (x86.ENTER, x86.INTO) and entry and ip == insn.end and (
                entry.pc not in (self.nmi, self.irq)):
            # What it was is the vector.  #DB has what it pushes.
            self.event(ip if entry.pc == self.debug else insn.pc, entry.pc)
            return
        elif kind in (x86.ENTER, x86.INTO) and ip != insn.end and (
                insn.code[0] != 0x0f):
            # And a PMI may be behind it.
            self.event(insn.end if ip == self.debug else insn.pc, ip)
        elif kind == x86.ENTER:
            self.cpl = 0
            self.branch(FAR, insn.pc, ip, cpl)
        elif kind == x86.FAR:
            self.branch(FAR, insn.pc, ip, cpl)
        elif kind == x86.RETURN:
            if cpl == 0:
                self.cpl = 3 if insn.code[-2] == 0x0f else state[17] & 3
            self.branch(FAR, insn.pc, ip, cpl)
        self.last = ip if kind != x86.RETURN else None
        if entry:
            self.last = None
            self.event(ip, entry.pc)

    # --- the branch trace store ----------------------------------------------

    def traces(self):
        off = OFF_USR if self.cpl else OFF_OS
        return self.debugctl & (TR | BTS | off) == TR | BTS

    def store(self, source, target, predicted=False):
        # Linear addresses: CS begins at 0 here.
        if not self.traces():
            return
        word = self.word
        base, index, maximum, _ = (self.field(n) for n in range(4))
        if index + 3 * word > maximum:
            if self.debugctl & BTINT:
                return
            index = base
        flags = PREDICTED if predicted and self.gen.bts_predicts else 0
        for n, val in enumerate((source, target, flags)):
            self.put(index + n * word, val)
        self.put(self.area_at + word, index + 3 * word)

    def field(self, n):
        return int.from_bytes(self.area[n * self.word:(n + 1) * self.word],
                              'little')

    def put(self, addr, val):
        i = addr - self.area_at
        self.area[i:i + self.word] = (val % (1 << 8 * self.word)).to_bytes(
            self.word, 'little')

    # --- registers -----------------------------------------------------------

    def place(self, msr):
        """The record and which part of it, if @msr is one's."""
        for part, first in enumerate(self.gen.first):
            if first and first <= msr < first + self.depth:
                return self.records[msr - first], part
        return None, 0

    def wrmsr(self, state):
        msr = state[1] & 0xffffffff
        val = state[0] & 0xffffffff | (state[2] & 0xffffffff) << 32
        record, part = self.place(msr)
        if msr == DEBUGCTL:
            self.debugctl = val
        elif msr == SELECT:
            self.select = val
        elif msr == TOS:
            self.tos = val
        elif msr == CTL:
            self.ctl = val
        elif msr == DEPTH:
            self.depth, self.recorded_at = val, None
            self.records = [Record() for _ in range(val)]
        elif msr == STATUS_RESET and val & LBR_FRZ:
            self.frozen = False
        elif record and self.depth > 1:
            record.ignored[part] = 0
            if self.gen.look == PACKED:
                record.regs[:2] = val & 0xffffffff, val >> 32
            else:
                record.regs[part] = val
            record.last = self.plain(record)

    def plain(self, record):
        """The addresses of a record that has been written."""
        def extend(val, bits):
            val &= (1 << bits) - 1
            return (val ^ 1 << bits - 1) - (1 << bits - 1) & ALL_ONES
        source, target, info = record.regs
        if self.gen.look in (FLAGS, TIME, TSX):
            source = extend(source, 61 if self.gen.look == TSX else 63)
        if self.gen.look == TIME:
            target = extend(target, 48)
        return source, target, info

    def read(self, msr):
        record, part = self.place(msr)
        self.ignored = record.ignored[part] if record else 0
        if record:
            if self.gen.look == PACKED:
                return record.regs[0] & 0xffffffff | (
                    record.regs[1] & 0xffffffff) << 32
            return record.regs[part]
        if msr in (LER, LER + 1):
            # Pentium M has them the other way round.
            return self.ler[msr - LER ^ (self.gen.look == PACKED)]
        if msr == LER_INFO:
            self.ignored = self.ler_ignored
        return {DEBUGCTL: self.debugctl, SELECT: self.select, TOS: self.tos,
                CTL: self.ctl, DEPTH: self.depth, LER_INFO: self.ler[2]}[msr]

    def mark(self, state):
        name, self.ignored = state[1] & 0xffffffff, 0
        if name == SESSION_END:
            return
        if name == NEW_AREA:
            self.area_at = state[7]
            if self.area is None:
                self.area = bytearray(area_bytes(self.word))
            for n, reg in enumerate((3, 0, 2, 6)):
                self.put(self.area_at + n * self.word, state[reg])
            return
        if name >= AREA:
            name -= AREA
            have, want = state[2], int.from_bytes(
                self.area[8 * name:8 * name + 8], 'little')
            text = f'the DS area at {8 * name}'
        else:
            have = state[0] & 0xffffffff | (state[2] & 0xffffffff) << 32
            want, text = self.read(name), f'MSR {name:x}'
        self.checked += 1
        if (have ^ want) & ~self.ignored:
            self.errors.append(f'{text} is {have:x}, should be {want:x}, at '
                               f'instruction {self.clock} (TOS {self.tos}, '
                               f'SELECT {self.select:x}, CTL {self.ctl:x}, '
                               f'DEBUGCTL {self.debugctl:x})')


class Trace(x86.Trace):
    """One whose events may have a PMI behind them, if they are recorded."""

    def __init__(self, prefix, bits, entry_ip, handlers):
        super().__init__(prefix, bits, entry_ip)
        self.handlers = handlers

    def check_flow(self, insn, ip):
        if ip not in self.handlers:
            super().check_flow(insn, ip)


def area_bytes(word):
    return 4 * word + 3 * word * BTS_RECORDS


Result = collections.namedtuple('Result', 'records counters interrupts '
                                          'differences')


def compare(trace, recorder):
    """A Result of each session."""
    results = []
    for insn, state, ip, entry, _ in trace.retired():
        recorder.retire(insn, state, ip, entry)
        if insn.kind == x86.MARK and ip is not None and (
                state[1] & 0xffffffff == SESSION_END):
            errors = [f'{recorder.gen.name}: {e}' for e in recorder.errors]
            results.append(Result(recorder.checked, 0, recorder.pmis, errors))
            recorder.errors, recorder.checked, recorder.pmis = [], 0, 0
    return results


MARK = '.byte 0x0f, 0x1f, 0x40, 0x5a'
APIC = 0xfee00000


class Program(programs.Program):
    """Code for @bits and sessions of a @generation's branch records."""

    WEIGHTS = {**programs.Program.WEIGHTS, 'branch': 12, 'jump': 10,
               'far': 3, 'kernel': 4, 'ipi': 1, 'call_next': 1,
               'deep': .5, 'read': .7, 'long_branch': 1}
    del WEIGHTS['lwp']
    exact = False

    def __init__(self, rng, bits, generation, word):
        super().__init__(rng, bits, 0, True, False)
        self.weights = dict(self.WEIGHTS)
        self.gen, self.word = generation, word
        self.user = False
        self.depth_now = (rng.choice((8, 16, 32)) if generation.look == ARCH
                          else generation.depth)
        # Its frame does not tell where a PMI was if the next instruction
        # cannot be fetched, so either these or that.
        self.counts = generation.version >= 2 and rng.random() < .7

    def be_exact(self):
        """No accesses but those that a trace has in the order of its steps"""
        self.exact = self.misses = True
        for name in 'repaired', 'far', 'stack_segment', 'string', 'modify':
            del self.weights[name]

    def emit(self, *lines):
        super().emit(*('nop' if line.startswith('lwp') else line
                       for line in lines))

    # --- snippets ------------------------------------------------------------

    def fault(self):
        before = len(self.lines)
        super().fault()
        if self.exact and any(' rep' in f' {line}' for line in
                              self.lines[before:]):
            del self.lines[before:]

    def slow(self):
        self.emit(*self.rng.choice((
            ['pause'], ['rdtsc'], ['xor %ecx, %ecx', 'xgetbv'],
            [f'push %{self.r}bx', 'xor %eax, %eax', 'cpuid',
             f'pop %{self.r}bx'])))

    def read(self):
        self.emit('int $35')

    def call_next(self):
        past, r = self.label(), self.r
        self.emit(f'call {past}', f'{past}: pop %{r}ax')

    def deep(self):
        """Calls in calls, more than there are records."""
        f, past = self.label(), self.label()
        n = self.rng.choice((3, 15, 17, 33, 70))
        self.emit(f'mov ${n}, %ecx', f'call {f}', f'jmp {past}',
                  f'{f}: dec %ecx', 'jz 1f', f'call {f}',
                  'nop',        # a RET to itself does not tell how often
                  '1: ret', f'{past}:')

    def long_branch(self):
        """A branch with prefixes, and one whose target faults."""
        past, resume, r = self.label(), self.label(), self.r
        if self.counts or self.rng.random() < .5:
            self.emit('test %ebp, %ebp',
                      f'.byte 0x2e; js {past}', f'.byte 0x3e; jmp {past}',
                      'ud2', f'{past}:')
        else:
            self.emit(f'movl ${resume}, resume_at', *self.rng.choice((
                ['mov $bad, %eax', f'jmp *%{r}ax'], ['push $bad', 'ret'])),
                'nop', f'{resume}:')

    def ipi(self):
        r = self.r
        self.emit(f'mov ${APIC + 0x300:#x}, %eax',
                  f'movl $0x40050, (%{r}ax)', 'nop')

    def kernel(self):
        r, past = self.r, self.label()
        choices = [['int $34'], ['int3'], ['.byte 0xf1'],
                   [f'pushf', f'orl $0x100, (%{r}sp)', 'popf',
                    self.rng.choice(('nop', f'jmp {past}', 'inc %eax')),
                    f'{past}:']]
        if self.bits == 32:
            choices += [['mov $0x7fffffff, %eax', 'inc %eax', 'into'],
                        ['xor %eax, %eax', 'into']]
        if self.user and 'Authentic' not in self.gen.cpu:
            choices.append([f'mov %{r}sp, %{r}cx', f'mov ${past}, %edx',
                            'sysenter', f'{past}:'])
        if self.user and self.bits == 64:
            choices += 2 * [['syscall']]
        self.emit(*self.rng.choice(choices))

    # --- what the kernel calls -----------------------------------------------

    def reads(self, area):
        """Code without branches that reads all there is."""
        msrs = [DEBUGCTL, LER, LER + 1]
        if self.depth_now > 1 and self.gen.look != ARCH:
            msrs.append(TOS)
        if self.gen.has_select:
            msrs.append(SELECT)
        if self.gen.look == ARCH:
            msrs += [CTL, DEPTH, LER_INFO]
        for first in filter(None, self.gen.first):
            msrs += range(first, first + (self.depth_now if self.gen.depth > 1
                                          else 1))
        for msr in msrs:
            yield from (f'mov ${msr:#x}, %ecx', 'rdmsr', MARK)
        for i in range(area_bytes(self.word) // 8 if area else 0):
            yield from (f'mov ${AREA + i:#x}, %ecx',
                        f'mov ds_area + {8 * i}, %rdx', MARK)

    def new_area(self):
        """Code without branches that writes the management area."""
        for n, (name, reg) in enumerate((('$bts_buffer', 'bx'),
                                         ('ds_index', 'ax'),
                                         ('ds_maximum', 'dx'),
                                         ('ds_threshold', 'si'))):
            reg = f'%{"r" if self.word == 8 else "e"}{reg}'
            yield from (f'mov {name}, {reg}',
                        f'mov {reg}, ds_area + {n * self.word}')
        yield from ('mov $ds_area, %edi', f'mov ${NEW_AREA:#x}, %ecx', MARK)

    @staticmethod
    def wrmsr(msr, name):
        return (f'mov ${msr:#x}, %ecx', f'mov {name}, %eax',
                f'mov {name} + 4, %edx', 'wrmsr')

    def handlers(self):
        regs = ('ax', 'bx', 'cx', 'dx', 'si', 'di')
        push = [f'push %r{reg}' for reg in regs]
        pop = [f'pop %r{reg}' for reg in regs[::-1]]
        area = self.bts
        self.emit('.text', '.code64', '.globl dump, on_dump, on_pmi, on_irq',
                  '.globl on_syscall, on_sysenter, end_session, set_ds_area',
                  'dump:', *push, *self.reads(area), *pop, 'ret',
                  'on_dump:', *push, *self.reads(area), *pop, 'iretq',
                  'end_session:', f'mov ${SESSION_END:#x}, %ecx', MARK, 'ret',
                  'set_ds_area:', *push,
                  *(self.new_area() if area else ()),
                  'mov $0x600, %ecx', 'mov $ds_area, %eax', 'xor %edx, %edx',
                  'wrmsr', *pop, 'ret',
                  'on_irq: push %rax', f'mov ${APIC + 0xb0:#x}, %eax',
                  'movl $0, (%rax)', 'pop %rax', 'iretq',
                  'on_syscall: sysretq',
                  'on_sysenter: sti',
                  f'.byte {"0x48, " if self.bits == 64 else ""}0x0f, 0x35',
                  'on_pmi:', *push, 'mov $0x38f, %ecx', 'xor %eax, %eax',
                  'xor %edx, %edx', 'wrmsr', *self.reads(area),
                  *(self.new_area() if area else ()),
                  *self.wrmsr(0xc1, 'reload'),
                  'mov $0x38e, %ecx', 'rdmsr', 'mov $0x390, %ecx', 'wrmsr',
                  f'mov ${APIC + 0x340:#x}, %eax', 'movl $0x400, (%rax)',
                  *self.wrmsr(DEBUGCTL, 'debugctl'),
                  *self.wrmsr(0x38f, 'enabled'), *pop, 'iretq')
        self.emit('.data', '.balign 4096',
                  f'.skip {self.rng.randrange(4096)}',
                  f'ds_area: .skip {4 * self.word}',
                  f'bts_buffer: .skip {3 * self.word * BTS_RECORDS}',
                  '.balign 4096')

    # --- sessions ------------------------------------------------------------

    def selection(self):
        """SELECT, of which CTL can be made."""
        rng = self.rng
        if self.gen.has_stack and rng.random() < .4:
            return CALL_STACK | STACK_SELECT | rng.choice((0, 1, 2, 1))
        select = rng.choice((0, 0, 1, 2))
        if rng.random() < .5:
            select |= rng.getrandbits(7) & rng.getrandbits(7) << 2
        return select

    def written(self):
        """What restores records from a time before."""
        rng, val = self.rng, self.rng.getrandbits
        look = self.gen.look
        for part, first in enumerate(filter(None, self.gen.first)):
            for i in range(self.depth_now):
                if rng.random() < .5:
                    continue
                n = val(31)
                if look == PACKED:
                    n |= val(31) << 32
                elif part == 2:
                    n = val(16) | val(1) << 63
                elif rng.random() < .3:
                    n |= ALL_ONES - 0xffffffff
                yield first + i, n
        if look != ARCH:
            yield TOS, rng.randrange(self.gen.depth)

    def session(self):
        rng, look = self.rng, self.gen.look
        cs = 0x1b if self.bits == 64 else 0x2b
        debugctl = 0 if look == ARCH else LBR
        first, msrs, area = [], [], (0, 0, 0, 0)
        enabled = period = 0
        if self.bts:
            debugctl |= TR | BTS
            if self.word == 8:
                debugctl |= rng.choice((0, 0, OFF_OS, OFF_USR))
            n = 3 * self.word
            threshold = 1 << 30
            if rng.random() < .7:
                debugctl |= BTINT
                if self.gen.version >= 2 and self.counts:
                    threshold = f'bts_buffer + {n * rng.randint(7, 20)}'
                    debugctl |= FREEZE * (rng.random() < .5)
            area = (f'bts_buffer + {n * rng.randint(0, 3)}', 'bts_buffer',
                    f'bts_buffer + {n * rng.randint(21, BTS_RECORDS)} + '
                    f'{rng.choice((0, 0, 1, n - 1))}', threshold)
            if rng.random() < .5 and look != ARCH:
                debugctl &= ~LBR
        elif self.counts:
            rows = rng.choice((1, 1, 1, 3, 2)) << 16
            period = rng.randint(1, 150) if rows == 1 << 16 else (
                rng.randint(80, 500))
            event = rng.choice((0xc0, 0xc4))
            msrs += [(0x186, event | rows | 1 << 20 | 1 << 22),
                     (0xc1, -rng.randint(1, 400))]
            enabled = 1
            debugctl |= FREEZE * (rng.random() < .7)
        if not self.user:
            cs = 8
        if look == ARCH:
            if rng.random() < .6 or not self.sessions:
                first.append((DEPTH, self.depth_now))
        if self.gen.depth > 1 and rng.random() < .4:
            first += self.written()
        select = self.selection()
        if look == ARCH:
            ctl = 1 | 2 * (not select & 1) | 4 * (not select & 2)
            ctl |= 8 * bool(select & CALL_STACK)
            ctl |= sum(1 << CTL_BITS[what] for what in CTL_BITS
                       if not select >> what & 1)
            msrs += [(DEBUGCTL, debugctl), (CTL, ctl)]
        else:
            msrs += [(SELECT, select)] * self.gen.has_select
            msrs.append((DEBUGCTL, debugctl))
        self.sessions += 1
        rows = [*first, *msrs]
        for row in rows[48:]:           # room for so many
            rows.remove(next(r for r in rows if r in first and
                             r[0] not in (DEPTH, TOS)))
        rows += [(0, 0)] * (48 - len(rows))
        last = (CTL, 0) if look == ARCH else (DEBUGCTL, 0)
        self.emit('.quad ' + ', '.join(map(str, (
            cs, debugctl, enabled, -period))))
        for row in (*rows, last):
            self.emit('.quad %d, %d' % row)
        self.emit('.quad ' + ', '.join(map(str, area)))

    def text(self, sessions):
        rng = self.rng
        self.user |= self.bits == 32 or rng.random() < .6
        self.bts = self.word and self.gen.version != 0 and rng.random() < .35
        self.sessions = 0
        self.body()
        self.handlers()
        self.emit('.data', '.balign 8', '.globl sessions, nr_sessions',
                  'sessions:')
        for _ in range(sessions):
            self.session()
        self.emit(f'nr_sessions: .long {sessions}',
                  '.section .note.GNU-stack, "", @progbits',
                  *(f'.globl {name}\n.set {name}, '
                    f'{programs.WINDOW + programs.PAGE * n}'
                    for name, n in (('scratch', 0), ('bad', 4), ('guard', 6),
                                    ('behind_guard', 7))))
        return '\n'.join(self.lines) + '\n'
