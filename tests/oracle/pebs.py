# SPDX-License-Identifier: GPL-2.0-or-later
"""PEBS records of Intel's processors by their manuals: what is in the buffer
after what a trace says, with the registers of each instruction's end, and
random programs that read it, as branches.py's do."""

import collections

import branches
import caches
import observe
import predict
import programs
import tlb
import x86

PEBS_ENABLE, DATA_CFG, PMC, EVTSEL = 0x3f1, 0x3f2, 0xc1, 0x186
LOAD_LATENCY, L1_LATENCY, STORES_BIT = 0x3f6, 4, 1 << 63
GLOBAL_CTRL, STATUS, RESET = 0x38f, 0x38e, 0x390
OVF_BUF, ADAPTIVE, RF = 1 << 62, 1 << 34, 1 << 16
MEMORY, GPRS, XMM, LBRS = 1, 2, 4, 8
RECORDS = 8                     # in the buffer, at most
ALL_ONES, RDMSR = branches.ALL_ONES, b'\x0f\x32'

# Registers in a record, by their numbers in instructions
ORDER = 0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15

# Precise events, unit mask first; Ice Lake has others of conditional branches
EVENTS = 0x00c0, 0x00c4, 0x01c4, 0x20c4, 0x00c5, 0x01c5
ICE_LAKE_EVENTS = 0x00c0, 0x00c4, 0x11c4, 0x20c4, 0x00c5, 0x11c5

# Of memory: what pmu_tag() counts, and stores that are sampled
TAGGED_NHM, TAGGED, STORE = 0x100b, 0x01cd, 0x02cd
LOADS, ALL_STORES, HITS, MISSES, LOCKS, SPLITS, SPLIT_STORES, WALKS, WALKED = (
    0x81d0, 0x82d0, 0x01d1, 0x08d1, 0x21d0, 0x41d0, 0x42d0, 0x11d0, 0x12d0)
DATA = LOADS, LOADS, ALL_STORES, HITS, MISSES, LOCKS, SPLITS, SPLIT_STORES, (
    WALKS), WALKED
# Data sources of L2, L3, DRAM, L1D
SNB_SOURCES, SKL_SOURCES = (
    {caches.L2: 3, caches.L3: 4, caches.DRAM: dram, observe.L1: 1}
    for dram in (12, 10))

Generation = collections.namedtuple(
    'Generation', 'name cpu format size events memory lg_stlb depth look '
    'version')
INTEL = 'max,vendor=GenuineIntel,family=6,model=%d,stepping=%d,pmu=on'
GENERATIONS = [Generation(*row, 1, branches.PLAIN, 3) for row in (
    ('Nehalem', INTEL % (26, 3), 1, 22, (0x00c0, 0x00c4), (), 12),
    ('Ivy Bridge', INTEL % (58, 9), 1, 22, EVENTS, (), 12),
    ('Haswell', INTEL % (60, 3), 2, 24, EVENTS, DATA, 29),
    ('Skylake', INTEL % (94, 3), 3, 25, EVENTS, DATA, 30),
    ('Ice Lake', INTEL % (106, 6), 4, 0, ICE_LAKE_EVENTS, DATA, 30),
    ('Golden Cove', INTEL % (143, 8), 4, 0, ICE_LAKE_EVENTS, DATA, 30))]


class Access:
    """A load, a store, or both, as a record may have it."""

    def __init__(self, shown, locked, update, walk):
        kind, self.addr, _, _, self.source, self.clocks, self.split = shown
        self.load, self.store = kind == 'L', kind == 'S' or update
        self.locked, self.walk = locked and update, walk

    def counts(self, event):
        """Whether it counts for it as a load, and as a store."""
        miss = self.source != observe.L1
        load = {LOADS: True, HITS: not miss, MISSES: miss, TAGGED: True,
                TAGGED_NHM: True, LOCKS: self.locked, SPLITS: self.split,
                WALKS: self.walk}
        store = {ALL_STORES: True, STORE: True, SPLIT_STORES: self.split,
                 WALKED: self.walk and not self.load}
        return (self.load and load.get(event, False),
                self.store and store.get(event, False))


class Recorder(predict.Skylake):
    """A processor of @generation; @stubs are the kernel's entries, and @resets
    what is in the program's DS area."""
    EVENTS = {**predict.Skylake.EVENTS, 0x11c4: (predict.COND,),
              0x11c5: (predict.COND, predict.MISPREDICTED),
              **dict.fromkeys((*DATA, TAGGED, TAGGED_NHM, STORE), (0,))}

    def __init__(self, generation, stubs, nmi, resets, cpu, tlbs):
        """@cpu and @tlbs are its models of data."""
        super().__init__(nmi)
        self.gen, self.stubs = generation, stubs
        self.shown, self.tlb = observe.Accesses(cpu, ()), tlbs
        self.cpu, self.accesses = cpu, []
        self.least = self.random = self.left = 0    # see pmu.h
        self.enable = self.armed = self.data_cfg = 0
        self.control = (1 << self.COUNTERS) - 1     # at reset
        self.due, self.masked = [], False
        self.words = {}                 # address: value, bits that are known
        self.index = self.maximum = self.threshold = 0
        self.resets = resets
        self.after, self.frame = None, False
        self.checked = self.with_data = 0   # of the records

    # --- counters ------------------------------------------------------------

    def write(self, msr, val):
        if msr == PEBS_ENABLE:
            self.enable = val
        elif msr == DATA_CFG:
            self.data_cfg = val
        elif msr == LOAD_LATENCY:
            self.least = val
        elif msr == GLOBAL_CTRL and val:
            self.masked = False         # LVTPC, in front of that
            return super().write(msr, val)
        else:
            if PMC <= msr < PMC + self.COUNTERS:
                self.armed &= ~(1 << msr - PMC)
            return super().write(msr, val)
        return True

    def add(self, i):
        bit = 1 << i
        if i >= predict.GENERAL or not self.enable & bit:
            pending = self.pending
            super().add(i)
            self.pending = pending or (self.pending and not self.masked)
        elif self.armed & bit and self.starts:
            self.value[i] += 1
        elif self.armed & bit:
            self.due += [i] * (i not in self.due)
        else:
            self.value[i] = (self.value[i] + 1) % predict.WIDTH
            if not self.value[i]:
                self.armed |= bit
                self.status |= bit

    def retire(self, insn, state, ip, cpl, entry, prediction):
        if insn and insn.code == RDMSR:
            self.read = {STATUS: self.status,
                         **{PMC + i: self.value[i] for i in range(4)}}
        elif insn and insn.kind != x86.MARK or entry:
            self.read = None            # a PMI came between it and its mark
        # A WRMSR that starts all counting is counted, but has no record.
        self.starts = insn and insn.kind == x86.WRMSR and not any(
            rows & 2 for _, _, rows in self.active)
        super().retire(insn, state, ip, cpl, entry, prediction)
        self.masked |= entry is not None and entry.pc == self.nmi

    # --- memory --------------------------------------------------------------

    def sampling(self, cpl):
        """Counters and events of memory that run at @cpl, which only those at
        CPL 3 do here."""
        return [(i, self.evtsel[i] & 0xffff) for i, event, _ in self.active
                if cpl and event == (0,) and self.enable >> i & 1]

    def memory(self, insn, state, cpl, accesses):
        """What an instruction that has begun, which may fault, accesses."""
        self.accesses = []
        if cpl == 0 and insn.kind == x86.INVLPG:
            self.tlb.invlpg(insn.invlpg_addr(state))
        if not self.sampling(cpl):
            return
        shown = self.shown.of(accesses, False)
        while shown:
            access, *shown = shown
            update = access[0] == 'L' and any(
                ['S', *access[1:4]] == other[:4] for other in shown)
            shown = [other for other in shown
                     if not update or other[:4] != ['S', *access[1:4]]]
            walk = tlb.LOAD_WALK in [*self.tlb.access(
                access[1], access[3], False)]
            self.accesses.append(Access(
                access, observe.is_locked(insn), update, walk))

    def tag(self):
        """Whether the load of an instruction is tagged, and its latency."""
        if self.left:
            self.left -= 1
            return None
        load = next((a for a in self.accesses if a.load), None)
        self.random = (self.random * 1664525 + 1013904223) % (1 << 32)
        self.left = 512 + (self.random >> 21)
        return load and (load.clocks or L1_LATENCY)

    def count_memory(self, cpl):
        events = self.sampling(cpl)
        latency = None
        if any(event in (TAGGED, TAGGED_NHM) for _, event in events):
            latency = self.tag()
        for i, event in events:
            if event in (TAGGED, TAGGED_NHM):
                n = latency is not None and latency > self.least
            else:
                n = sum(map(any, (a.counts(event) for a in self.accesses)))
            for _ in range(n):
                self.add(i)

    def data(self, i):
        """Address, source and latency of an event."""
        event = self.evtsel[i] & 0xffff
        tagged = event in (TAGGED, TAGGED_NHM)
        for a in self.accesses:
            load, store = a.counts(event)
            if not load and not store:
                continue
            # It has just been loaded from there.
            there = a.load and not load
            source, walk = (observe.L1, False) if there else (a.source, a.walk)
            flags = walk << 4 | a.locked << 5
            sources = SNB_SOURCES if self.gen.format < 3 else SKL_SOURCES
            both = self.gen.name == 'Golden Cove'
            code = sources[source] if load or both and event == STORE else (
                source == observe.L1)
            latency = 0
            if tagged or both and event == STORE:
                latency = L1_LATENCY if source == observe.L1 else (
                    a.clocks or self.cpu.latency[source])
            latency = min(latency, 0xffff) * (1 + (1 << 32)) if both else (
                latency)
            return a.addr, code | flags * (event != TAGGED_NHM), latency
        return 0, 0, 0

    # --- what retires --------------------------------------------------------

    def count(self, insn, ip, cpl, prediction):
        super().count(insn, ip, cpl, prediction)
        self.count_memory(cpl)
        for i in sorted(self.due):
            self.record(i, insn)
        self.due = []

    # --- records -------------------------------------------------------------

    def record(self, i, insn):
        words = [(val, ALL_ONES) if isinstance(val, int) else val
                 for val in self.make(i, insn)]
        bit = 1 << i
        if self.index + 8 * len(words) <= self.maximum:
            for val in words:
                self.words[self.index] = val
                self.index += 8
            self.checked += 1
            self.with_data += self.has_data(i)
        self.armed &= ~bit
        self.status &= ~bit
        self.value[i] = self.resets[i] % predict.WIDTH
        if self.index >= self.threshold:
            self.status |= OVF_BUF
            self.pending |= not self.masked

    def groups(self, i):
        return self.data_cfg if self.evtsel[i] & ADAPTIVE else 0

    def has_data(self, i):
        told = self.gen.format < 4 or self.groups(i) & MEMORY
        return bool(told and self.data(i)[0])

    def make(self, i, insn):
        """The words of a record; a pair has the bits that are known."""
        regs, rflags, ip = self.after
        # The frame of an NMI has RF set here
        rflags = (rflags, ~RF & ALL_ONES) if self.frame else (0, 0)
        bit = 1 << i
        if self.gen.format < 4:
            yield from (rflags, ip, *(regs[n] for n in ORDER))
            # Others that have overflowed, but not for PEBS
            others = self.status & ~self.enable if self.gen.format < 3 else 0
            yield from (bit | others, *self.data(i))
            if self.gen.format >= 2:
                yield from (insn.pc, 0)
            if self.gen.format >= 3:
                yield 0, 0              # TSC
            return
        groups = self.groups(i)
        size = 32 + 32 * (groups & MEMORY) + 144 * bool(groups & GPRS) + (
            256 * bool(groups & XMM))
        yield from (size << 48 | groups, insn.pc, bit, (0, 0))
        if groups & MEMORY:
            yield from (*self.data(i), 0)
        if groups & GPRS:
            yield from (rflags, ip, *regs)
        if groups & XMM:
            yield from [(0, 0)] * 32

    # --- what the program shows ----------------------------------------------

    def mark(self, state):
        name = state[1] & 0xffffffff
        if name == branches.NEW_AREA:
            self.index, self.maximum, self.threshold = (
                state[0], state[2], state[6])
            return
        if name >= branches.AREA:
            addr = state[7] + 8 * (name - branches.AREA)
            have = state[2]
            want, known = self.words.get(addr, (0, 0))
            text = f'the buffer at {addr:x}'
        elif self.read:
            have = state[0] & 0xffffffff | (state[2] & 0xffffffff) << 32
            want, text, known = self.read[name], f'MSR {name:x}', ALL_ONES
        else:
            return
        if (have ^ want) & known:
            self.errors.append(f'{text} is {have:x}, should be {want:x}')


def states(trace, stubs, error_code):
    """Each that has retired, with its end: registers, RFLAGS and RIP, and
    whether RFLAGS are known, as a frame has them."""
    last = None
    for now in trace.retired():
        if last:
            yield (*last, *end_of(last, now, stubs, error_code))
        last = now


def end_of(last, now, stubs, error_code):
    state, entry = now[1], last[3]
    regs = list(state[:16])
    if not entry:
        return (regs, 0, last[2]), False
    if last[0].kind in (x86.ENTER, x86.INTO) and last[2] == last[0].end:
        return (regs, 0, entry.pc), False
    vector = (entry.pc - stubs[0]) // 16
    frame = state[17 if entry.pc in stubs and vector in error_code else 16:]
    regs[4] = frame[3]
    return (regs, frame[2], last[2]), True


def compare(trace, recorder, error_code):
    """A branches.Result of each session."""
    results, cpl = [], 0
    predictor = branches.predictor.Predictor()
    for insn, state, ip, entry, accesses, after, frame in states(
            trace, recorder.stubs, error_code):
        recorder.after, recorder.frame = after, frame
        prediction = None
        if ip is not None and insn.kind in x86.NEAR_BRANCHES and (
                recorder.trains(cpl)):
            prediction = predictor.predict(insn, ip)
        recorder.memory(insn, state, cpl, accesses)
        recorder.retire(insn if ip is not None else None, state, ip, cpl,
                        entry, prediction)
        if ip is None:
            cpl = 0
            continue
        if insn.kind == x86.MARK:
            if state[1] & 0xffffffff == branches.SESSION_END:
                errors = [f'{recorder.gen.name}: {e}' for e in recorder.errors]
                results.append(branches.Result(
                    recorder.checked, 0, recorder.interrupts, errors))
                recorder.errors, recorder.checked = [], 0
                recorder.interrupts = 0
            else:
                recorder.mark(state)
        if insn.kind == x86.RETURN:
            cpl = state[17] & 3 if cpl == 0 else cpl
        if entry:
            cpl = 0
    return results


class Program(branches.Program):
    """Code for @bits and sessions of a @generation's PEBS."""
    WEIGHTS = {**branches.Program.WEIGHTS}
    for name in 'ipi', 'long_branch':
        del WEIGHTS[name]

    def __init__(self, rng, bits, generation):
        super().__init__(rng, bits, generation, 8)
        self.counts = True
        self.groups = rng.choice((0, MEMORY, GPRS, GPRS, GPRS | MEMORY,
                                  GPRS | MEMORY | XMM))
        # Most programs have events of memory, at CPL 3, and no accesses that
        # the trace does not tell in the order of their steps.
        self.user = self.samples = rng.random() < .75
        self.groups |= MEMORY * self.samples
        self.size = 8 * generation.size or (
            32 + 32 * (self.groups & MEMORY) + 144 * bool(self.groups & GPRS) +
            256 * bool(self.groups & XMM))
        if self.samples:
            self.be_exact()
        # The counter of load latency, which counts seldom
        self.seldom = 3 if generation.name == 'Ivy Bridge' else (
            rng.randrange(1, 3))
        self.resets = []

    def most(self, i, most):
        if not self.samples:
            return most
        return 3 if i == self.seldom else 20

    def kernel(self):
        self.emit('int $34')

    # --- what the kernel calls -----------------------------------------------

    def reads(self, area):
        for msr in (STATUS, *range(PMC, PMC + 4)):
            yield from (f'mov ${msr:#x}, %ecx', 'rdmsr', branches.MARK)
        yield 'mov $pebs_buffer, %edi'
        for i in range(RECORDS * self.size // 8 if area else 0):
            yield from (f'mov ${branches.AREA + i:#x}, %ecx',
                        f'mov {8 * i}(%rdi), %rdx', branches.MARK)

    def new_area(self):
        for n in range(4):
            yield f'movq ${self.resets[n]}, ds_area + {0x40 + 8 * n}'
        for n, (name, reg) in enumerate((('$pebs_buffer', 'rbx'),
                                         ('ds_index', 'rax'),
                                         ('ds_maximum', 'rdx'),
                                         ('ds_threshold', 'rsi'))):
            yield from (f'mov {name}, %{reg}',
                        f'mov %{reg}, ds_area + {0x20 + 8 * n}')
        yield from ('mov $ds_area, %edi', f'mov ${branches.NEW_AREA:#x}, %ecx',
                    branches.MARK)

    def handlers(self):
        self.resets = [-self.rng.randint(1, self.most(i, 150))
                       for i in range(4)]
        regs = ('ax', 'bx', 'cx', 'dx', 'si', 'di')
        push = [f'push %r{reg}' for reg in regs]
        pop = [f'pop %r{reg}' for reg in regs[::-1]]
        self.emit('.text', '.code64', '.globl dump, on_dump, on_pmi, on_irq',
                  '.globl on_syscall, on_sysenter, end_session, set_ds_area',
                  'dump:', *push, *self.reads(True), *pop, 'ret',
                  'on_dump:', *push, *self.reads(False), *pop, 'iretq',
                  f'end_session: mov ${branches.SESSION_END:#x}, %ecx',
                  branches.MARK, 'ret',
                  'set_ds_area:', *push, *self.new_area(),
                  'mov $0x600, %ecx', 'mov $ds_area, %eax', 'xor %edx, %edx',
                  'wrmsr', *pop, 'ret',
                  'on_irq: iretq', 'on_syscall: sysretq', 'on_sysenter: ud2',
                  'on_pmi:', *push, f'mov ${GLOBAL_CTRL:#x}, %ecx',
                  'xor %eax, %eax', 'xor %edx, %edx', 'wrmsr',
                  *self.reads(True), *self.new_area(),
                  *self.wrmsr(PMC + 3, 'reload'),
                  f'mov ${STATUS:#x}, %ecx', 'rdmsr', f'mov ${RESET:#x}, %ecx',
                  'wrmsr', f'mov ${branches.APIC + 0x340:#x}, %eax',
                  'movl $0x400, (%rax)', *self.wrmsr(GLOBAL_CTRL, 'enabled'),
                  *pop, 'iretq')
        self.emit('.data', '.balign 4096',
                  f'.skip {self.rng.randrange(4096)}',
                  'ds_area: .skip 0x100', f'.skip {self.rng.randrange(4096)}',
                  f'pebs_buffer: .skip {RECORDS * self.size}', '.balign 4096')

    # --- sessions ------------------------------------------------------------

    def session(self):
        """Counters 0 to 2 have PEBS or count, and counter 3 interrupts."""
        rng = self.rng
        cs = (0x1b if self.bits == 64 else 0x2b) if self.user else 8
        threshold = rng.choice((1, 1, 2, 5, RECORDS))
        rows = rng.choice((1, 1, 1 if self.samples else 3)) if self.user else 2
        enable, msrs = 0, []
        for i in range(3):
            if self.samples and (i == self.seldom or rng.random() < .9):
                bits, event = self.sampled(i)
                enable |= bits
            elif rng.random() < .7:
                enable |= 1 << i
                event = rng.choice(self.gen.events)
            else:
                event = rng.choice((0xc0, 0xc4))
            adaptive = ADAPTIVE * (self.gen.format == 4)
            msrs += [(EVTSEL + i, event | rows << 16 | 1 << 22 | adaptive),
                     (PMC + i, -rng.randint(1, self.most(i, 200)))]
        period = rng.randint(100, 900) if threshold < RECORDS else 1 << 30
        msrs += [(EVTSEL + 3, 0xc0 | rows << 16 | 1 << 20 | 1 << 22),
                 (PMC + 3, -period), (LOAD_LATENCY, rng.choice((0, 3, 3, 30)))]
        if self.samples and self.gen.name == 'Ivy Bridge':
            # These are counter 3's.
            bits, event = rng.choice(((1 << 35, TAGGED), (STORES_BIT, STORE)))
            enable |= bits | 1 << 3
            msrs += [(EVTSEL + 3, event | rows << 16 | 1 << 22), (PMC + 3, -1)]
            period = rng.randint(1, 50)
        if self.gen.format == 4:
            msrs.append((DATA_CFG, self.groups))
        msrs.append((PEBS_ENABLE, enable))
        end = (f'pebs_buffer + {RECORDS * self.size - rng.choice((0, 0, 1))}')
        if threshold == RECORDS:
            threshold = 1 << 30
        else:
            threshold = f'pebs_buffer + {threshold * self.size}'
        msrs += [(0, 0)] * (48 - len(msrs))
        self.emit('.quad ' + ', '.join(map(str, (cs, 0, 15, -period))))
        for row in (*msrs, (PEBS_ENABLE, 0)):
            self.emit('.quad %d, %d' % row)
        self.emit(f'.quad pebs_buffer, pebs_buffer, {end}, {threshold}')

    def sampled(self, i):
        """Bits of PEBS_ENABLE and an event of memory, for counter @i."""
        latency = TAGGED_NHM if self.gen.name == 'Nehalem' else TAGGED
        bit = 1 << i
        if self.gen.name == 'Ivy Bridge':
            return bit, self.rng.choice(self.gen.events)
        if self.gen.name == 'Golden Cove' and i == 0:
            return bit, STORE
        if i == self.seldom:
            return bit | (bit << 32) * (self.gen.format < 4), latency
        return bit, self.rng.choice(self.gen.memory or self.gen.events)

    def text(self, sessions):
        self.gen = self.gen._replace(version=0)     # no branch trace store
        return super().text(sessions)
