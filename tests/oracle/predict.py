# SPDX-License-Identifier: GPL-2.0-or-later
"""What LWP has to do by its specification, AMD publication 43724 (section
numbers are its), for what has retired; nothing here knows how QEMU does it."""

import struct

import caches
import predictor
import tlb
import x86

VAL, IRE, BRE, DME, CNH, RNH = range(1, 7)
EVENTS = VAL, IRE, BRE, DME, CNH, RNH
INS = 255
RECORD = 32
XSTATE = 1 << 30                    # of EDX: component 62
CB_BYTES = 256

# LWPCB.Filters (Table 6-2), and a branch record's bits (Figure 2-4)
NMB, NPB, NAB, NCB, NRB, IPI, IPF = (1 << n for n in range(25, 32))
PRV, PRD, TKN = (1 << n for n in (29, 30, 31))
# Of the filters, those of misses, by source; and a record's bits (Figure 2-5)
CLF, NBC, RAM = 1 << 8, 1 << 9, 1 << 11
SELECTED_BY = {caches.L2: 0, caches.L3: NBC, caches.DRAM: RAM}
DAV, SRC_SHIFT = 1 << 28, 29
LOWEST = -1 << 25               # value of a counter

FILTERED_BY = {x86.JCC: NCB, x86.JMP: NRB, x86.CALL: NRB, x86.RET: NRB,
               x86.JMP_IND: NAB, x86.CALL_IND: NAB}


def sext26(n):
    return (n & 0x3ffffff ^ 0x2000000) - 0x2000000


class Cpu:
    """An emulated processor, and what of it is the same in all sessions."""

    def __init__(self, bits, insn_clocks=1, ratio=1000, predicts=True,
                 geometry=((16384, 4), (2 << 20, 16), (8 << 20, 64)),
                 latency=(20, 60, 120, 200), latency_bits=12, latency_round=4):
        """@latency is by source."""
        self.bits, self.insn_clocks, self.ratio = bits, insn_clocks, ratio
        self.predicts = predicts        # LWP's branches
        self.caches, self.geometry = caches.Caches(geometry), geometry
        self.latency, self.latency_bits = latency, latency_bits
        self.latency_round = latency_round

    @staticmethod
    def random(rng, bits, system):
        clocks = rng.choice(((1, 1000), (1, 1000), (3, 700), (1, 2500)))
        l1 = (16384, 4), (16384, 4), (1024, 1), (1024, 16), (3072, 3)
        l2 = (1024, 1), (2048, 8), (8192, 2), (6144, 3), (2 << 20, 16)
        l3 = (0, 1), (2048, 32), (8192, 1), (24576, 3), (8 << 20, 64)
        return Cpu(bits, *((1, 1000) if system else clocks),
                   rng.random() < .8, tuple(map(rng.choice, (l1, l2, l3))),
                   tuple(rng.choice((1, rng.randint(1, 40), rng.randint(
                       1, 5000))) for _ in range(4)),
                   rng.choice((10, 12, 31)), rng.choice((0, 2, 4)))

    def data_properties(self):
        """Those of caches"""
        sizes = zip(('l1d', 'l2', 'l3'), self.geometry)
        sources = zip(('l2', 'l3', 'remote', 'dram'), self.latency)
        return ','.join((
            *(f'{n}-size={size},{n}-assoc={ways}'
              for n, (size, ways) in sizes),
            *(f'{n}-latency={clocks}' for n, clocks in sources)))

    def properties(self):
        return ','.join((
            f'insn-clocks={self.insn_clocks}', f'refclk-ratio={self.ratio}',
            f'branch-predictor={"local" if self.predicts else "off"}',
            f'lwp-latency-max={self.latency_bits}',
            f'lwp-latency-rnd={self.latency_round}', self.data_properties()))


class Lwp:
    """The state that LLWPCB of these bytes starts with (section 5.1)."""

    def __init__(self, cb, cpu, cb_at, ring_at, ring, constants):
        self.cpu = cpu
        self.constants = constants      # address: value
        self.ref_rest = 0
        self.waiting = None             # a record of DME
        (flags, size, base, self.head, self.missed, _, self.filters,
         self.low, self.high, self.tail) = struct.unpack_from(
             '<IIQI4xQIIQQ8xI', cb)
        self.flags = flags & sum(1 << e for e in EVENTS)
        self.size = (size & 0xfffffff) // RECORD * RECORD
        self.base = base - ring_at      # in what the program shows of it
        self.head = 0 if self.head >= self.size else (
            self.head // RECORD * RECORD)
        self.cb, self.ring = bytearray(cb), bytearray(ring)
        self.own = range(cb_at, cb_at + CB_BYTES), range(ring_at,
                                                         ring_at + len(ring))
        self.interval, self.counter = {}, {}
        self.records = 0
        self.saved = None
        for e in EVENTS:
            if self.flags >> e & 1:
                interval, counter = map(sext26, struct.unpack_from(
                    '<II', cb, 128 + 8 * (e - 1)))
                self.interval[e] = max(interval, 0)
                self.counter[e] = max(counter, 0)

    def store(self, event, flags, data1, ip, data2):
        """Store a record, or miss it (Table 6-1)."""
        at = self.base + self.head
        self.ring[at:at + RECORD] = struct.pack('<BBHIQQQ', event, 0, flags,
                                                data1, ip, data2, 0)
        head = (self.head + RECORD) % self.size
        if head == self.tail:
            self.missed += 1
        else:
            self.head = head
        self.records += 1

    def count(self, event, n, flags, ip, data2=0, data1=0):
        """Count @n, and reset the counter if it gets negative (1.1)."""
        self.only_count(event, n)
        if self.counter.get(event, 0) < 0:
            self.store(event, flags, data1, ip, data2)
            self.counter[event] += self.interval[event] + 1

    def only_count(self, event, n):
        if event in self.counter:
            self.counter[event] = max(self.counter[event] - n, LOWEST)

    def reference_clocks(self, clocks):
        rest = self.ref_rest + clocks * self.cpu.ratio
        self.ref_rest = rest % 1000
        return rest // 1000

    def in_range(self, ip):
        if not self.filters & IPF:
            return True
        return (self.low <= ip <= self.high) != bool(self.filters & IPI)

    def access(self, insn, accesses):
        """What an instruction at CPL 3 has accessed, retired or not (2.4)."""
        iteration = []
        for i, (addr, physical, size, store) in enumerate(accesses):
            if any(addr in part for part in self.own):
                continue                # LWP's
            if not store and insn.rep_loads and addr not in iteration:
                # A record is stored between two iterations
                if len(iteration) == insn.rep_loads:
                    self.store_miss()
                    iteration = []
                iteration.append(addr)
            # Halves of a vector are one load
            if not store and size == 16:
                if (addr - 16, physical - 16, 16, False) in accesses[:i][-1:]:
                    continue
                if (addr + 16, physical + 16, 16, False) in accesses[i + 1:
                                                                     i + 2]:
                    size = 32
            clocks, first = 0, None
            line = physical // caches.LINE
            last = (physical + size - 1) // caches.LINE
            for n in range(line, last + 1):
                source = self.cpu.caches.access(n)
                if source is not None:
                    clocks += self.cpu.latency[source]
                    if first is None:
                        first = source, addr if n == line else (
                            addr + size - 1 & -caches.LINE)
            if first and not store and self.in_range(insn.pc):
                self.miss(insn, *first, clocks)

    def miss(self, insn, source, addr, clocks):
        """A load misses; @source and @addr are those of the first line."""
        latency = self.latency(self.cpu.latency[source])
        if latency >= self.latency(16 * (self.filters & 0xff)) and (
                not self.filters & CLF or self.filters & SELECTED_BY[source]):
            self.only_count(DME, 1)
            if self.counter[DME] < 0 and not self.waiting:
                self.waiting = (DME, (source << SRC_SHIFT | DAV) >> 16,
                                latency, insn.pc, addr)
        self.only_count(CNH, clocks)
        self.only_count(RNH, self.reference_clocks(clocks))

    def latency(self, clocks):
        """As in a record (2.4.1)."""
        unit = 1 << self.cpu.latency_round
        return min(clocks & -unit, (1 << self.cpu.latency_bits) - unit)

    def store_miss(self):
        if self.waiting:
            self.store(*self.waiting)
            self.counter[DME] += self.interval[DME] + 1
            self.waiting = None

    def trains(self):
        """Whether branches train the predictor, in range or not."""
        return BRE in self.counter and self.cpu.predicts

    def retire(self, insn, state, ip, accesses, prediction):
        """An instruction at CPL 3, and the address of the next one, or None if
        it has not retired; @prediction is what predictor.py says of a branch
        if somebody trains that."""
        if DME in self.counter:
            self.access(insn, accesses)
        if ip is not None:
            self.retired(insn, state, ip, prediction)
        self.store_miss()

    def retired(self, insn, state, ip, prediction):
        kind, pc = insn.kind, insn.pc
        if kind == x86.LWPINS:
            self.store(INS, *self.operands(insn, state))
        elif kind == x86.XSAVE and state[2] & XSTATE:
            self.saved = self.head, dict(self.counter)
        elif kind == x86.XRSTOR and state[2] & XSTATE:
            self.head, self.counter = self.saved[0], dict(self.saved[1])
            self.ref_rest = 0           # the image has no place for it (7.2)
            return                      # the session begins behind it
        if kind == x86.ENTER or kind == x86.INTO and ip != insn.end:
            return                      # not entirely in user mode (2.2)
        branch = self.branch(insn, ip, prediction)
        if not self.in_range(pc):
            return
        if kind == x86.LWPVAL:
            flags, data1, _, data2 = self.operands(insn, state)
            self.count(VAL, 1, flags, pc, data2, data1)
        self.store_miss()
        self.count(IRE, 1, 0, pc)
        if branch is not None:
            self.count(BRE, 1, branch >> 16, pc, ip)
        self.count(CNH, self.cpu.insn_clocks, 0, pc)
        self.count(RNH, self.reference_clocks(self.cpu.insn_clocks), 0, pc)

    def branch(self, insn, ip, prediction):
        """The flags of a branch's record (Figure 2-4); None if it does not
        count by Filters (Table 6-2), or is none."""
        if BRE not in self.counter or insn.kind not in FILTERED_BY:
            return None
        flags = TKN if insn.kind != x86.JCC or ip != insn.end else 0
        off = self.filters & FILTERED_BY[insn.kind]
        if self.cpu.predicts:
            known, correct = prediction
            if known:
                flags |= PRV | (PRD if correct else 0)
                off |= self.filters & (NPB if correct else NMB)
            off |= self.filters & (NMB | NPB) == NMB | NPB
        return None if off else flags

    def operands(self, insn, state):
        """Flags, Data1, address and Data2 of LWPINS and LWPVAL (5.3)."""
        i = 0
        while insn.code[i] in x86.PREFIXES:
            i += 1
        _, rxb, wv, _, modrm = insn.code[i:i + 5]
        wide = wv >> 7 and self.cpu.bits == 64
        reg = wv >> 3 & 15 ^ 15
        data2 = state[reg & (15 if self.cpu.bits == 64 else 7)]
        if modrm >= 0xc0:
            data1 = state[modrm & 7 | (~rxb >> 2 & 8)]
        else:                           # an absolute address is all there is
            data1 = self.constants.get(
                int.from_bytes(insn.code[-8:-4], 'little'), 0)
        return (int.from_bytes(insn.code[-4:-2], 'little'),
                data1 & 0xffffffff, insn.pc,
                data2 if wide else data2 & 0xffffffff)

    def compare(self, cb, ring):
        """Differences to what there is when LLWPCB has flushed the state."""
        struct.pack_into('<I', self.cb, 0, self.flags)
        struct.pack_into('<IxxxxQ', self.cb, 16, self.head, self.missed)
        for e, counter in self.counter.items():
            struct.pack_into('<iI', self.cb, 128 + 8 * (e - 1),
                             self.interval[e], counter & 0x3ffffff)
        for i in range(0, CB_BYTES, 8):
            if self.cb[i:i + 8] != cb[i:i + 8]:
                yield (f'LWPCB at {i}: {cb[i:i + 8].hex(" ")}, should be '
                       f'{self.cb[i:i + 8].hex(" ")}')
        for i in range(self.base % RECORD, len(ring) - RECORD + 1, RECORD):
            have, want = ring[i:i + RECORD], bytes(self.ring[i:i + RECORD])
            if have != want:
                yield (f'ring at {i - self.base}: {self.show(have)}, '
                       f'should be {self.show(want)}')

    @staticmethod
    def show(record):
        event, core, flags, data1, ip, data2, rest = struct.unpack(
            '<BBHIQQQ', record)
        return (f'({event}, {core}, {flags:x}, {data1:x}, {ip:x}, {data2:x}, '
                f'{rest:x})')


# What an instruction is for the counters
INSN, COND, NOT_TAKEN, TAKEN, CALL, RET, INDIRECT, FAR, MISPREDICTED = (
    1 << n for n in range(9))
BRANCHES = NOT_TAKEN | TAKEN | FAR          # TAKEN: near
KINDS = {x86.JCC: COND, x86.CALL: CALL, x86.CALL_IND: CALL | INDIRECT,
         x86.RET: RET, x86.JMP_IND: INDIRECT}
FAR_KINDS = {x86.FAR, x86.ENTER, x86.RETURN}

WIDTH = 1 << 48
LOCK_NOP = b'\xf0\x90'
EN, INT = 1 << 22, 1 << 20
GENERAL, FIXED = 6, 3           # at most; the order is that


class Pmu:
    """Performance counters; @nmi is the address of their interrupt's handler.
    EVENTS are sets by event select: one of what is in each set; TLB are what
    of tlb.py a memory access or a fetch counts for, at CPL 3 only."""
    TLB = {}

    def __init__(self, nmi):
        self.nmi = nmi
        self.value = [0] * (GENERAL + FIXED)
        self.evtsel = [0] * GENERAL
        self.status = 0
        self.blocked = self.pending = False
        self.interrupts = 0
        self.errors = []
        self.active = ()

    def wrmsr(self, state):
        """What WRMSR does, with the state in front of it."""
        if self.write(state[1] & 0xffffffff,
                      state[0] & 0xffffffff | (state[2] & 0xffffffff) << 32):
            self.active = self.running()

    def running(self):
        """Counter, event and rows of those that are enabled."""
        events = {**self.EVENTS, **{e: (q,) for e, q in self.TLB.items()}}
        return [(i, events[self.evtsel[i] & self.EVENT],
                 self.evtsel[i] >> 16 & 3)
                for i in range(GENERAL) if self.evtsel[i] & EN]

    def trains(self, cpl):
        """Whether branches train the predictor."""
        row = 1 if cpl else 2           # USR, OS
        return any(MISPREDICTED in event for _, event, rows in self.active
                   if rows & row)

    def count(self, insn, ip, cpl, prediction):
        """Count an instruction in each counter that runs at @cpl."""
        row = 1 if cpl else 2           # USR, OS
        what = self.what(insn, ip)
        if prediction and not prediction[1]:
            what |= MISPREDICTED
        for i, event, rows in self.active:
            if not rows & row or not all(what & part for part in event):
                continue
            self.add(i)

    def add(self, i):
        self.value[i] += 1
        if self.value[i] == WIDTH:
            self.value[i] = 0
            self.overflow(i)
            if i < GENERAL and self.evtsel[i] & INT:
                self.pending = True

    def memory(self, insn, state, ip, cpl, accesses):
        """What TLBs and L1I have seen of an instruction that has begun."""
        if cpl == 0 and insn.kind == x86.INVLPG:
            self.tlb.invlpg(insn.invlpg_addr(state))
        wanted = 0
        for _, event, rows in self.active:
            wanted |= event[0] if rows & 1 and cpl else 0
        found = []
        if wanted & tlb.CODE and not wanted & tlb.FETCH:
            self.tlb.last = self.tlb.split = None   # nobody counts lines
        # What cannot be decoded is not fetched
        if wanted & tlb.CODE and (ip is not None or insn.code != LOCK_NOP):
            found += self.tlb.fetch(insn.pc, insn.end)
        loaded = None
        for addr, _, size, store in accesses if wanted & tlb.DATA else ():
            # What is stored to where it comes from is one access
            if (addr, size, store) != loaded and not any(
                    addr in part for part in self.lwp_memory):
                found += self.tlb.access(addr, size, store)
            loaded = addr, size, not store
        for i, event, rows in self.active:
            for what in found:
                if event[0] & what and rows & 1:
                    self.add(i)

    @staticmethod
    def what(insn, ip):
        what = INSN | KINDS.get(insn.kind, 0)
        if insn.kind in x86.NEAR_BRANCHES:
            return what | (NOT_TAKEN if insn.kind == x86.JCC and ip == insn.end
                           else TAKEN)
        if insn.kind in FAR_KINDS or insn.kind == x86.INTO and ip != insn.end:
            return what | FAR
        return what

    def retire(self, insn, state, ip, cpl, entry, prediction):
        """An instruction (or None: one that faulted), and the handler that
        comes next or None; @prediction as for Lwp."""
        if insn:
            if insn.kind == x86.WRMSR:
                self.wrmsr(state)       # it counts with what it has set
            if self.active:
                self.count(insn, ip, cpl, prediction)
            if insn.kind == x86.RETURN:
                self.blocked = False
        here = entry is not None and entry.pc == self.nmi
        if here != (self.pending and not self.blocked):
            self.errors.append(f'{"an" if here else "no"} interrupt behind '
                               f'{insn} at CPL {cpl}')
        if here:
            self.blocked, self.pending = True, False
            self.interrupts += 1

    def compare(self, output):
        """Differences to the counters and GLOBAL_STATUS."""
        errors, self.errors = self.errors, []
        yield from errors
        *have, status = struct.unpack('<10Q', output)
        for i, n in enumerate(have):
            if n != self.value[i]:
                yield f'counter {i}: {n:#x}, should be {self.value[i]:#x}'
        if status != self.status:
            yield f'GLOBAL_STATUS: {status:#x}, should be {self.status:#x}'


class Skylake(Pmu):
    """Intel's of that name (SDM 3B)."""
    CPU = 'max,vendor=GenuineIntel,family=6,model=94,stepping=3'
    HANDLER, COUNTERS, EVENT = 'on_pmi', 4, 0xffff
    FIRST_EVENTS = 0xc0, 0xc0, 0xc4
    EVENTS = {                          # unit mask first
        0x00c0: (INSN,), 0x003c: (INSN,),
        0x00c4: (BRANCHES,), 0x01c4: (COND,), 0x02c4: (CALL,), 0x08c4: (RET,),
        0x10c4: (NOT_TAKEN,), 0x20c4: (TAKEN,), 0x40c4: (FAR,),
        0x00c5: (BRANCHES, MISPREDICTED), 0x01c5: (COND, MISPREDICTED),
        0x02c5: (CALL, MISPREDICTED), 0x04c5: (BRANCHES, MISPREDICTED),
        0x08c5: (RET, MISPREDICTED), 0x20c5: (TAKEN, MISPREDICTED),
    }
    PMC, EVTSEL, FIXED_CTR, FIXED_CTRL, GLOBAL_CTRL, RESET = (
        0xc1, 0x186, 0x309, 0x38d, 0x38f, 0x390)

    def __init__(self, nmi):
        super().__init__(nmi)
        self.fixed_ctrl = self.control = 0

    def write(self, msr, val):
        if self.PMC <= msr < self.PMC + self.COUNTERS:
            low = val & 0xffffffff
            self.value[msr - self.PMC] = ((low ^ 1 << 31) - (1 << 31)) % WIDTH
        elif self.EVTSEL <= msr < self.EVTSEL + self.COUNTERS:
            self.evtsel[msr - self.EVTSEL] = val
        elif self.FIXED_CTR <= msr < self.FIXED_CTR + FIXED:
            self.value[GENERAL + msr - self.FIXED_CTR] = val % WIDTH
        elif msr == self.FIXED_CTRL:
            self.fixed_ctrl = val
        elif msr == self.GLOBAL_CTRL:
            self.control = val
        elif msr == self.RESET:
            self.status &= ~val
        else:
            return False
        return True

    def running(self):
        active = [counter for counter in super().running()
                  if self.control >> counter[0] & 1]
        for i in range(FIXED):          # instructions, cycles, and cycles
            rows = self.fixed_ctrl >> 4 * i & 3
            if self.control >> 32 + i & 1:
                active.append((GENERAL + i, (INSN,),
                               rows >> 1 | (rows & 1) << 1))
        return active

    def overflow(self, i):
        self.status |= 1 << (i if i < GENERAL else 32 + i - GENERAL)


class Family15h(Pmu):
    """AMD's with PerfCtrExtCore (APM 13.2): no global control and status."""
    CPU = 'max,vendor=AuthenticAMD,family=21,model=2,perfmon-v2=off'
    HANDLER, COUNTERS, EVENT = 'on_amd_pmi', 6, 0xf000000ff
    FIRST_EVENTS = 0xc0, 0xc0, 0xc2
    EVENTS = {
        0xc0: (INSN,), 0x76: (INSN,),
        0xc2: (BRANCHES,), 0xc3: (BRANCHES, MISPREDICTED),
        0xc4: (TAKEN | FAR,), 0xc5: (TAKEN, MISPREDICTED), 0xc6: (FAR,),
        0xc8: (RET,), 0xc9: (RET, MISPREDICTED), 0xca: (INDIRECT, MISPREDICTED)
    }
    PERF_CTL = 0xc0010200

    def write(self, msr, val):
        i, is_counter = divmod(msr - self.PERF_CTL, 2)
        if not 0 <= i < self.COUNTERS:
            return False
        if is_counter:
            self.value[i] = val % WIDTH
        else:
            self.evtsel[i] = val
        return True

    def overflow(self, i):
        pass


class Family17h(Family15h):
    """Has two events more."""
    CPU = 'max,vendor=AuthenticAMD,family=23,model=1,perfmon-v2=off'
    EVENTS = {**Family15h.EVENTS, 0xd1: (COND,), 0xd2: (COND, MISPREDICTED)}


PMUS = Skylake, Skylake, Family15h, Family17h


class SkylakeTlb(Skylake):
    """With an STLB for all."""
    TLB = {0x0108: tlb.LOAD_WALK, 0x2008: tlb.LOAD_L2, 0x0149: tlb.STORE_WALK,
           0x2049: tlb.STORE_L2, 0x0185: tlb.CODE_WALK, 0x2085: tlb.CODE_L2,
           0x0283: tlb.FETCH_MISS, 0xe424: tlb.FETCH_MISS}
    LG_MAX, SHARED = 30, True


class Family17hTlb(Family17h):
    """Code has a second level of its own."""
    EVENT = 0xf0000ffff
    TLB = {0x0f45: tlb.LOAD_L2 | tlb.STORE_L2, 0xff45: tlb.DATA,
           0xf045: tlb.LOAD_WALK | tlb.STORE_WALK, 0x80: tlb.FETCH,
           0x81: tlb.FETCH_MISS, 0x84: tlb.CODE_L2, 0xff85: tlb.CODE_WALK}
    LG_MAX, SHARED = 29, False


TLB_PMUS = SkylakeTlb, Family17hTlb


class Result:
    """What has been compared of a session, and the differences."""

    def __init__(self, lwp, differences, pmu):
        self.differences = differences
        self.records = lwp.records if lwp else 0
        self.counters = (len(lwp.counter) if lwp else 0) + (
            len(pmu.value) if pmu else 0)
        self.interrupts = 0
        if pmu:
            self.interrupts, pmu.interrupts = pmu.interrupts, 0


def sessions(trace, output, ring_bytes, make, pmu=None):
    """Compare all sessions of a program; a Result of each.

    @output has, of each, LWPCB before, LWPCB after, ring, and counters; @make
    makes an Lwp of the first.  CPL is 3 in user mode, without a @pmu."""
    lwp, at, results = None, 0, []
    counts = False
    branches = predictor.Predictor()
    cpl = 0 if pmu else 3
    size = 2 * CB_BYTES + ring_bytes + (80 if pmu else 0)
    for insn, state, ip, entry, accesses in trace.retired():
        prediction = None
        if ip is not None and insn.kind in x86.NEAR_BRANCHES and (
                counts and cpl == 3 and lwp.trains() or
                pmu and pmu.trains(cpl)):
            prediction = branches.predict(insn, ip)
        if pmu and pmu.TLB:
            pmu.memory(insn, state, ip, cpl, accesses)
        if pmu:
            pmu.retire(insn if ip is not None else None, state, ip, cpl, entry,
                       prediction)
        if counts and cpl == 3 and insn.kind != x86.LLWPCB:
            lwp.retire(insn, state, ip, accesses, prediction)
        if ip is None:
            cpl = 0 if pmu else 3
            continue
        if insn.kind == x86.MARK:
            chunk = output[at:at + size]
            differences = []
            if lwp:
                differences += lwp.compare(chunk[CB_BYTES:2 * CB_BYTES],
                                           chunk[2 * CB_BYTES:][:ring_bytes])
            if pmu:
                differences += pmu.compare(chunk[-80:])
            results.append(Result(lwp, differences, pmu))
            at += size
            lwp = None
        elif insn.kind == x86.LLWPCB and cpl == 3:
            cb_at = state[insn.code[-1] & 7 | (~insn.code[1] >> 2 & 8)]
            counts = cb_at != 0
            if counts:
                lwp = make(output[at:at + CB_BYTES], cb_at)
        if pmu and insn.kind == x86.RETURN:
            cpl = state[16 + 1] & 3 if cpl == 0 else cpl
        if pmu and entry:
            cpl = 0
    if at != len(output):
        raise ValueError(f'{len(output)} bytes of output, not {at}')
    return results
