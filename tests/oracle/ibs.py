# SPDX-License-Identifier: GPL-2.0-or-later
"""Instruction-Based Sampling of AMD's processors: which instruction each sample
is about, given the generator of its random bits, and what registers say of it,
after what a trace says; and random programs that read them, as branches.py's
do.  Where the caches have a part in it, observe.py has looked at that."""

import collections

import branches
import observe
import pebs
import predict
import x86

FIRST = 0xc0011030
(FETCH_CTL, FETCH_LIN_AD, FETCH_PHYS_AD, OP_CTL, OP_RIP, OP_DATA, OP_DATA2,
 OP_DATA3, DC_LIN_AD, DC_PHYS_AD, _, BR_TARGET) = range(FIRST, FIRST + 12)
ALL_ONES = branches.ALL_ONES
# What count_all() has count mispredicted branches
MISPREDICTIONS = 0xc0010208, 0xc001020a

FETCH_EN, FETCH_VAL, FETCH_COMP, FETCH_PHYS, RAND_EN = (
    1 << n for n in (48, 49, 50, 52, 57))
FETCH_PAGE = 3 << 53
OP_EN, OP_VAL, OP_OPS = (1 << n for n in (17, 18, 19))
MISP_RETURN, RETURN, TAKEN, MISPREDICTED, BRANCH = (
    1 << n for n in range(33, 38))
LOAD, STORE, MISALIGNED, LOCKED, VALID = 1, 2, 1 << 8, 1 << 15, 3 << 17
# What caches and DTLB make of OP_DATA3
FROM_CACHES = (ALL_ONES << 32 & ALL_ONES) | 1 << 20 | 1 << 19 | 1 << 14 | (
    1 << 7) | 0x7c

Generation = collections.namedtuple(
    'Generation', 'name cpu caps misp_return width depth look version')
AMD = ('max,vendor=AuthenticAMD,family=%d,model=%d,stepping=2,pmu=on')
GENERATIONS = [Generation(*row, 1, branches.PLAIN, 0) for row in (
    ('10h', AMD % (16, 2), 0x1f, True, False),
    ('15h', AMD % (21, 2), 0xff, True, False),
    ('Zen', AMD % (23, 1), 0x3ff, False, True),
    ('Zen 3', AMD % (25, 1), 0x3ff, False, True),
    ('Zen 4', AMD % (25, 17), 0xbff, False, True))]


def has_helper(insn):
    """Perhaps; then accesses are not one by one what a trace has."""
    code = insn.code.lstrip(x86.PREFIXES)
    code = code[code[0] & 0xf0 == 0x40 and len(code) > 1:]
    return code[0] in b'\x0f\x62\xc4\xc5\xc8' or code[0] & 0xf8 == 0xd8 or (
        code[-1] in x86.STRINGS)


class Counter:
    """One of both, with its bits."""

    def __init__(self, en, val):
        self.en, self.val = en, val
        self.ctl = self.count = self.end = 0

    def enabled(self):
        return bool(self.ctl & self.en)

    def running(self):
        return self.ctl & (self.en | self.val) == self.en and self.end > 0

    def due(self):
        return self.running() and self.count >= self.end

    def write(self, val, end):
        """Whether it starts."""
        starts = (val & (self.en | self.val) == self.en and
                  self.ctl & (self.en | self.val) != self.en)
        self.ctl, self.end = val, end
        return starts


class Recorder:
    """A processor of @generation."""

    def __init__(self, generation, nmi, caches):
        self.gen, self.nmi, self.caches = generation, nmi, caches
        self.random = 0x49425321
        self.op = Counter(OP_EN, OP_VAL)
        self.fetch = Counter(FETCH_EN, FETCH_VAL)
        self.regs = {}                  # value, bits that are known
        self.read = None
        self.counting = set()           # by others, of MISPREDICTIONS
        self.waiting = None             # how long an interrupt has done so
        self.blocked = False            # by the handler of another one
        self.errors, self.checked, self.interrupts = [], 0, 0

    def bits(self, n):
        x = self.random
        x = (x ^ x << 13) & 0xffffffff
        x ^= x >> 17
        x = (x ^ x << 5) & 0xffffffff
        self.random = x
        return x >> 32 - n

    def trains(self):
        return self.counting or self.caches and self.op.enabled()

    # --- registers -----------------------------------------------------------

    def wrmsr(self, state):
        """Which counter starts."""
        msr = state[1] & 0xffffffff
        val = state[0] & 0xffffffff | (state[2] & 0xffffffff) << 32
        if msr == OP_CTL:
            wide = self.gen.caps >> 6 & 1
            mask = 0xeffff | wide * 0x7f00000
            end = (val & 0xffff) << 4 | val & wide * 0x7f00000
            if self.op.write(val & mask, end):
                self.op.count = val >> 32 & (0x7ffffff if wide else 0xfffff)
                return self.op
        elif msr == FETCH_CTL:
            if self.fetch.write(val & ~(0xffff << 16), (val & 0xffff) << 4):
                self.fetch.count = (val >> 16 & 0xffff) << 4
                if val & RAND_EN:
                    self.fetch.count |= self.bits(4)
                return self.fetch
        elif msr in MISPREDICTIONS:
            (self.counting.add if val else self.counting.discard)(msr)
        return None

    def now(self):
        return {OP_CTL: (self.op.ctl | self.op.count << 32, ALL_ONES),
                FETCH_CTL: (self.fetch.ctl | self.fetch.count >> 4 << 16,
                            ~FETCH_PAGE), **self.regs}

    def mark(self, state):
        if self.read is None:
            return
        name = state[1] & 0xffffffff
        have = state[0] & 0xffffffff | (state[2] & 0xffffffff) << 32
        want, known = self.read.get(name, (0, 0))
        self.checked += 1
        if (have ^ want) & known:
            self.errors.append(f'MSR {name:x} is {have:x}, should be {want:x}')

    # --- what retires --------------------------------------------------------

    def retire(self, insn, state, ip, entry, accesses, prediction):
        """An instruction and what comes next, as Trace.retired() has it."""
        if ip is None:
            if self.op.due() and entry.pc != self.nmi:
                self.op.count = self.bits(7)
            self.arrived(insn, entry)
            return
        if insn.kind == x86.MARK:
            self.mark(state)
        self.read = self.now() if insn.code == pebs.RDMSR else None
        started = self.wrmsr(state) if insn.kind == x86.WRMSR else None
        due = [c for c in (self.fetch, self.op) if c.due() and c != started]
        for c in (self.fetch, self.op):
            if c.running() and c not in due and c != started:
                c.count += 1
        if self.fetch in due:
            self.sample_fetch(insn)
        if self.op in due:
            self.op.count = self.bits(7)
            self.sample_op(insn, ip, entry, accesses, prediction)
        if due and self.waiting is None:
            self.waiting = 0
        self.arrived(insn, entry)

    def arrived(self, insn, entry):
        """NMIs wait for the IRET of another one, or an instruction longer."""
        if insn.kind == x86.RETURN:
            self.blocked = False
        if entry and entry.pc == self.nmi:
            if self.waiting is None:
                self.errors.append(f'an NMI behind {insn} has no sample')
            self.waiting, self.blocked = None, True
            self.interrupts += 1
            return
        if self.waiting is not None and not self.blocked:
            self.waiting += 1
            if self.waiting > 2:
                self.errors.append(f'no NMI behind {insn}')
                self.waiting = None

    # --- samples -------------------------------------------------------------

    def sample_fetch(self, insn):
        self.fetch.ctl &= 0xffff | FETCH_EN | RAND_EN
        self.fetch.ctl |= FETCH_VAL | FETCH_COMP | FETCH_PHYS
        # Code is where its addresses say
        self.regs[FETCH_LIN_AD] = self.regs[FETCH_PHYS_AD] = insn.pc, ALL_ONES

    def sample_op(self, insn, ip, entry, accesses, prediction):
        self.op.ctl |= OP_VAL
        self.regs[OP_RIP] = insn.pc, ALL_ONES
        data, target = 1 << 16 | 1, 0
        known = ALL_ONES & ~0xffff0000 if self.caches else ALL_ONES
        kind = insn.kind
        if kind in x86.NEAR_BRANCHES or kind in predict.FAR_KINDS or (
                kind == x86.INTO and ip != insn.end):
            data |= BRANCH
            if kind != x86.JCC or ip != insn.end:
                data |= TAKEN
                target = ip
            if kind in (x86.ENTER, x86.INTO) and ip == insn.end:
                target = entry.pc
            wrong = bool(prediction and not prediction[1])
            data |= MISPREDICTED * wrong
            if kind == x86.RET:
                data |= RETURN | MISP_RETURN * (wrong and self.gen.misp_return)
        self.regs[OP_DATA] = data, known
        self.regs[BR_TARGET] = target, ALL_ONES
        if kind not in {x86.PLAIN, *x86.NEAR_BRANCHES} or (
                len(accesses) > observe.ACCESSES or has_helper(insn)):
            for reg in OP_DATA3, DC_LIN_AD, DC_PHYS_AD:
                self.regs[reg] = 0, 0   # of helpers
            return
        self.sample_access(insn, accesses)

    def sample_access(self, insn, accesses):
        data = addr = physical = 0
        known = ALL_ONES & ~FROM_CACHES if self.caches else ALL_ONES
        if accesses:
            addr, physical, size, _ = next(
                (a for a in accesses if not a[3]), accesses[0])
            data = VALID
            for access in accesses:
                data |= STORE if access[3] else LOAD
            data |= MISALIGNED * (addr // 64 != (addr + size - 1) // 64)
            data |= LOCKED * (data & 3 == 3 and observe.is_locked(insn))
            if self.gen.width:
                data |= (size.bit_length() << 22) * (size & size - 1 == 0)
        if not self.caches:
            known &= ~0x70              # the page's size is known without
        self.regs[OP_DATA3] = data, known
        self.regs[DC_LIN_AD] = addr, ALL_ONES
        self.regs[DC_PHYS_AD] = physical, ALL_ONES


def compare(trace, recorder):
    """A branches.Result of each session."""
    results = []
    predictor = branches.predictor.Predictor()
    for insn, state, ip, entry, accesses in trace.retired():
        prediction = None
        if ip is not None and insn.kind in x86.NEAR_BRANCHES and (
                recorder.trains()):
            prediction = predictor.predict(insn, ip)
        recorder.retire(insn, state, ip, entry, accesses, prediction)
        if insn.kind == x86.MARK and ip is not None and (
                state[1] & 0xffffffff == branches.SESSION_END):
            errors = [f'{recorder.gen.name}: {e}' for e in recorder.errors]
            results.append(branches.Result(recorder.checked, 0,
                                           recorder.interrupts, errors))
            recorder.errors, recorder.checked = [], 0
            recorder.interrupts = 0
    return results


class Program(branches.Program):
    """Code for @bits and sessions of a @generation's IBS."""
    WEIGHTS, kernel = pebs.Program.WEIGHTS, pebs.Program.kernel

    def __init__(self, rng, bits, generation):
        super().__init__(rng, bits, generation, 0)
        self.counts = True

    # --- what the kernel calls -----------------------------------------------

    def reads(self, _):
        msrs = [*range(FETCH_CTL, OP_DATA2), OP_DATA3, DC_LIN_AD, DC_PHYS_AD]
        if self.gen.caps >> 5 & 1:
            msrs.append(BR_TARGET)
        for msr in msrs:
            yield from (f'mov ${msr:#x}, %ecx', 'rdmsr', branches.MARK)

    def handlers(self):
        """What goes on with a sample is in ds_index and ds_threshold."""
        regs = ('ax', 'bx', 'cx', 'dx', 'si', 'di')
        push = [f'push %r{reg}' for reg in regs]
        pop = [f'pop %r{reg}' for reg in regs[::-1]]
        entry = branches.APIC + 0x500 + 16 * (self.gen.caps < 0x100)
        stop = (f'mov ${OP_CTL:#x}, %ecx', 'wrmsr',
                f'mov ${FETCH_CTL:#x}, %ecx', 'wrmsr')
        self.emit('.text', '.code64', '.globl dump, on_dump, on_pmi, on_irq',
                  '.globl on_syscall, on_sysenter, end_session, set_ds_area',
                  'dump:', *push, 'xor %eax, %eax', 'xor %edx, %edx',
                  'mov %rax, ds_index', 'mov %rax, ds_threshold', *stop,
                  *self.reads(True), *pop, 'ret',
                  'on_dump:', *push, *self.reads(False), *pop, 'iretq',
                  f'end_session: mov ${branches.SESSION_END:#x}, %ecx',
                  branches.MARK, 'ret',
                  f'set_ds_area: mov ${entry:#x}, %eax',
                  'movl $0x400, (%rax)', 'ret',
                  'on_irq: iretq', 'on_syscall: sysretq', 'on_sysenter: ud2',
                  'on_pmi:', *push, *self.reads(True),
                  *self.wrmsr(FETCH_CTL, 'ds_threshold'),
                  f'mov ${OP_CTL:#x}, %ecx', 'rdmsr', 'and $0x7f, %edx',
                  'mov ds_index, %eax', 'wrmsr', *pop, 'iretq')

    # --- sessions ------------------------------------------------------------

    def session(self):
        """A handler with all that it reads is shorter than each period."""
        rng = self.rng
        cs = (0x1b if self.bits == 64 else 0x2b) if self.user else 8
        op = fetch = 0
        which = rng.choice((1, 1, 2, 3))
        msrs = [(msr, 0) for msr in MISPREDICTIONS]
        if which & 1:
            op = rng.randint(16, 60) | OP_EN | rng.choice((0, OP_OPS))
            msrs.append((OP_CTL, op | rng.randrange(256) << 32))
        if which & 2:
            fetch = rng.randint(16, 60) | FETCH_EN | rng.choice((0, RAND_EN))
            msrs.append((FETCH_CTL, fetch | rng.randrange(16) << 16))
        msrs += [(0, 0)] * (48 - len(msrs))
        self.emit(f'.quad {cs}, 0, 0, 0')
        for row in (*msrs, (OP_CTL, 0)):
            self.emit('.quad %d, %d' % row)
        self.emit(f'.quad {op}, 0, 1, {fetch}')
