# SPDX-License-Identifier: GPL-2.0-or-later
"""Instruction-Based Sampling of AMD's processors: which instruction each sample
is about, given the generator of its random bits, and what registers say of it,
after what a trace says; and random programs that read them, as branches.py's
do.  Half of them have no accesses but those that the trace has as the models of
caches and TLBs do, and these are compared, too."""

import collections

import branches
import caches
import observe
import pebs
import predict
import programs
import tlb
import x86

FIRST = 0xc0011030
(FETCH_CTL, FETCH_LIN_AD, FETCH_PHYS_AD, OP_CTL, OP_RIP, OP_DATA, OP_DATA2,
 OP_DATA3, DC_LIN_AD, DC_PHYS_AD, _, BR_TARGET) = range(FIRST, FIRST + 12)
ALL_ONES = branches.ALL_ONES
# What count_all() has count mispredicted branches
MISPREDICTIONS = 0xc0010208, 0xc001020a

(FETCH_EN, FETCH_VAL, FETCH_COMP, IC_MISS, FETCH_PHYS, FETCH_L1TLB, FETCH_L2TLB,
 RAND_EN) = (1 << n for n in (48, 49, 50, 51, 52, 55, 56, 57))
FETCH_PAGE = 53
OP_EN, OP_VAL, OP_OPS = (1 << n for n in (17, 18, 19))
MISP_RETURN, RETURN, TAKEN, MISPREDICTED, BRANCH = (
    1 << n for n in range(33, 38))
(LOAD, STORE, L1TLB_MISS, L2TLB_MISS, L1TLB_2M, L2TLB_2M, DC_MISS, MISALIGNED,
 LOCKED) = (1 << n for n in (0, 1, 2, 3, 4, 6, 7, 8, 15))
VALID, L2_MISS, LATENCY = 3 << 17, 1 << 20, 32
HIT_ST = 1 << 5                     # of OP_DATA2
# What caches and DTLB make of OP_DATA3
FROM_CACHES = (ALL_ONES << LATENCY & ALL_ONES) | L2_MISS | 1 << 19 | 1 << 14 | (
    DC_MISS) | 0x7c

Generation = collections.namedtuple(
    'Generation', 'name cpu caps misp_return width hit_st l3 lg_stlb depth '
    'look version')
AMD = ('max,vendor=AuthenticAMD,family=%d,model=%d,stepping=2,pmu=on')
# L3 is 1 or 2 as a source of data.
GENERATIONS = [Generation(*row, 1, branches.PLAIN, 0) for row in (
    ('10h', AMD % (16, 2), 0x1f, True, False, True, 1, 29),
    ('15h', AMD % (21, 2), 0xff, True, False, True, 2, 30),
    ('Zen', AMD % (23, 1), 0x3ff, False, True, True, 2, 29),
    ('Zen 2', AMD % (23, 49), 0x3ff, False, True, True, 2, 29),
    ('Zen 3', AMD % (25, 1), 0x3ff, False, True, False, 2, 29),
    ('Zen 4', AMD % (25, 17), 0xbff, False, True, True, 1, 29))]


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
        """Whether it is on, and whether it was before."""
        on, was = (ctl & (self.en | self.val) == self.en
                   for ctl in (val, self.ctl))
        self.ctl, self.end = val, end
        return on, was


class Recorder:
    """A processor of @generation that runs a @program; @caches: with models, of
    data those of @cpu and @tlbs; @own is where nobody but the processor itself
    reads and writes."""

    def __init__(self, generation, program, nmi, caches, cpu, tlbs, own):
        self.gen, self.nmi, self.caches = generation, nmi, caches
        self.low_bits, self.exact = program.low_bits, program.exact
        self.shown, self.tlb = observe.Accesses(cpu, ()), tlbs
        self.own = own
        self.accesses, self.fetched = [], set()
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
        if not self.low_bits:
            return 0
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
        """Which counter goes on from what is written."""
        msr = state[1] & 0xffffffff
        val = state[0] & 0xffffffff | (state[2] & 0xffffffff) << 32
        if msr == OP_CTL:
            wide = self.gen.caps >> 6 & 1
            mask = 0xeffff | wide * 0x7f00000
            end = (val & 0xffff) << 4 | val & wide * 0x7f00000
            on, _ = self.op.write(val & mask, end)
            self.op.count = val >> 32 & (0x7ffffff if wide else 0xfffff)
            return self.op if on else None
        elif msr == FETCH_CTL:
            on, was = self.fetch.write(val & ~(0xffff << 16),
                                       (val & 0xffff) << 4)
            low = self.fetch.count & 15
            if on and not was:
                low = self.bits(4) if val & RAND_EN else 0
            self.fetch.count = (val >> 16 & 0xffff) << 4 | low
            return self.fetch if on else None
        elif msr in MISPREDICTIONS:
            (self.counting.add if val else self.counting.discard)(msr)
        return None

    def now(self):
        return {OP_CTL: (self.op.ctl | self.op.count << 32, ALL_ONES),
                FETCH_CTL: (self.fetch.ctl | self.fetch.count >> 4 << 16,
                            ALL_ONES), **self.regs}

    def mark(self, state):
        if self.read is None:
            return
        name = state[1] & 0xffffffff
        have = state[0] & 0xffffffff | (state[2] & 0xffffffff) << 32
        want, known = self.read.get(name, (0, 0))
        self.checked += 1
        if (have ^ want) & known:
            self.errors.append(f'MSR {name:x} is {have:x}, should be {want:x}')

    # --- memory --------------------------------------------------------------

    def memory(self, insn, state, ip, accesses):
        """What an instruction that has begun is fetched from and accesses."""
        if insn.kind == x86.INVLPG:
            self.tlb.invlpg(insn.invlpg_addr(state))
        self.accesses, self.fetched, last = [], set(), None
        if not self.caches:
            return
        if self.fetch.enabled() and (ip is not None or
                                     insn.code != predict.LOCK_NOP):
            self.tlb.last = self.tlb.split = None   # nobody counts lines
            self.fetched = {*self.tlb.fetch(insn.pc, insn.end)}
        if not self.op.enabled():
            return
        for access in self.shown.of(
                [a for a in accesses if a[0] not in self.own], False):
            kind, addr, physical, size, source, clocks, _ = access
            if last and kind == 'S' and last[:4] == ['L', *access[1:4]]:
                continue                # which is one access with the load
            last = access
            walks = {*self.tlb.access(addr, size, False)}
            self.accesses.append((addr, physical, size, kind == 'S', source,
                                  clocks, walks))

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
        self.fetch.ctl |= (1 + (self.gen.name == 'Zen 3')) << FETCH_PAGE
        self.fetch.ctl |= IC_MISS * (tlb.FETCH_MISS in self.fetched)
        self.fetch.ctl |= FETCH_L1TLB * (
            not self.fetched.isdisjoint((tlb.CODE_L2, tlb.CODE_WALK)))
        self.fetch.ctl |= FETCH_L2TLB * (tlb.CODE_WALK in self.fetched)
        # Code is where its addresses say
        self.regs[FETCH_LIN_AD] = self.regs[FETCH_PHYS_AD] = insn.pc, ALL_ONES

    def sample_op(self, insn, ip, entry, accesses, prediction):
        self.op.ctl |= OP_VAL
        self.regs[OP_RIP] = insn.pc, ALL_ONES
        kind = insn.kind
        helped = kind not in {x86.PLAIN, *x86.NEAR_BRANCHES} or (
            len(accesses) > observe.ACCESSES or has_helper(insn))
        clocks = min(1 + sum(a[5] for a in self.accesses), 0xffff)
        data, target = clocks << 16 | 1, 0
        known = ALL_ONES
        if self.caches and (helped or not self.exact):
            known &= ~0xffff0000
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
        if helped:
            for reg in OP_DATA2, OP_DATA3, DC_LIN_AD, DC_PHYS_AD:
                self.regs[reg] = 0, 0
            return
        self.sample_access(insn, accesses)
        self.sample_source()

    def sample_source(self):
        """Where the models have found what the sample is about."""
        access = next((a for a in self.accesses if not a[3]),
                      self.accesses[0] if self.accesses else None)
        exact = not self.caches or self.exact
        self.regs[OP_DATA2] = 0, ALL_ONES * exact
        if not access or not exact:
            return
        addr, _, _, store, source, clocks, walks = access
        data, known = self.regs[OP_DATA3]
        large = programs.lg_of(addr) >= tlb.LARGE
        if tlb.LOAD_WALK in walks:
            data |= L1TLB_MISS | L2TLB_MISS
        elif tlb.LOAD_L2 in walks:
            data |= L1TLB_MISS | L2TLB_2M * large
        else:
            data |= L1TLB_2M * large
        if source != observe.L1:
            data |= DC_MISS
            data |= L2_MISS * (source != caches.L2 and self.gen.width)
            data |= (not store and min(clocks, 0xffff)) << LATENCY
        self.regs[OP_DATA3] = data, ALL_ONES
        if not store and source in (caches.L3, caches.DRAM):
            self.regs[OP_DATA2] = (3 if source == caches.DRAM else (
                self.gen.l3 | HIT_ST * self.gen.hit_st)), ALL_ONES

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
        recorder.memory(insn, state, ip, accesses)
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
        self.low_bits = rng.random() < .5
        if rng.random() < .7:
            self.be_exact()
            for name in 'memory', 'locked', 'straddle':
                self.weights[name] *= 8

    # --- what the kernel calls -----------------------------------------------

    def reads(self, _):
        msrs = [*range(FETCH_CTL, DC_PHYS_AD + 1)]
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
        """A handler with all that it reads is shorter than each period of two
        counters, and what follows its WRMSR than that of one."""
        rng = self.rng
        cs = (0x1b if self.bits == 64 else 0x2b) if self.user else 8
        op = fetch = 0
        which = rng.choice((1, 1, 1, 2, 3))
        shortest = 16 if which == 3 else 9 if self.low_bits else 2
        msrs = [(msr, 0) for msr in MISPREDICTIONS]
        if which & 1:
            op = rng.randint(shortest, shortest + 8) | OP_EN
            op |= rng.choice((0, OP_OPS))
            msrs.append((OP_CTL, op | rng.randrange(256) << 32))
        if which & 2:
            fetch = rng.randint(shortest, shortest + 8) | FETCH_EN
            fetch |= rng.choice((0, RAND_EN))
            msrs.append((FETCH_CTL, fetch | rng.randrange(16) << 16))
        msrs += [(0, 0)] * (48 - len(msrs))
        self.emit(f'.quad {cs}, 0, 0, 0')
        for row in (*msrs, (OP_CTL, 0)):
            self.emit('.quad %d, %d' % row)
        self.emit(f'.quad {op}, 0, 1, {fetch}')
