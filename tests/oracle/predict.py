# SPDX-License-Identifier: GPL-2.0-or-later
"""What LWP has to do by its specification, AMD publication 43724 (section
numbers are its), for what has retired; nothing here knows how QEMU does it."""

import struct

import x86

VAL, IRE, BRE, DME, CNH, RNH = range(1, 7)
EVENTS = VAL, IRE, BRE, CNH, RNH    # not DME: nobody here knows the caches
INS = 255
RECORD = 32
XSTATE = 1 << 30                    # of EDX: component 62
CB_BYTES = 256

# LWPCB.Filters (Table 6-2), and a branch record's bits (Figure 2-4)
NAB, NCB, NRB, IPI, IPF = (1 << n for n in range(27, 32))
PRV, PRD, TKN = (1 << n for n in (29, 30, 31))
FILTERED_BY = {x86.JCC: NCB, x86.JMP: NRB, x86.CALL: NRB, x86.RET: NRB,
               x86.JMP_IND: NAB, x86.CALL_IND: NAB}


def sext26(n):
    return (n & 0x3ffffff ^ 0x2000000) - 0x2000000


class Lwp:
    """The state that LLWPCB of these bytes starts with (section 5.1)."""

    def __init__(self, cb, bits, ring_at, ring, constants, clocks):
        self.bits = bits
        self.constants = constants      # address: value
        self.insn_clocks, self.ratio = clocks
        self.ref_rest = 0
        (flags, size, base, self.head, self.missed, _, self.filters,
         self.low, self.high, self.tail) = struct.unpack_from(
             '<IIQI4xQIIQQ8xI', cb)
        self.flags = flags & sum(1 << e for e in EVENTS)
        self.size = (size & 0xfffffff) // RECORD * RECORD
        self.base = base - ring_at      # in what the program shows of it
        self.head = 0 if self.head >= self.size else (
            self.head // RECORD * RECORD)
        self.cb, self.ring = bytearray(cb), bytearray(ring)
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
        if event not in self.counter:
            return
        self.counter[event] -= n
        if self.counter[event] < 0:
            self.store(event, flags, data1, ip, data2)
            self.counter[event] += self.interval[event] + 1

    def in_range(self, ip):
        if not self.filters & IPF:
            return True
        return (self.low <= ip <= self.high) != bool(self.filters & IPI)

    def retire(self, insn, state, ip):
        """An instruction at CPL 3, and the address of the next one."""
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
        if not self.in_range(pc):
            return
        if kind == x86.LWPVAL:
            flags, data1, _, data2 = self.operands(insn, state)
            self.count(VAL, 1, flags, pc, data2, data1)
        self.count(IRE, 1, 0, pc)
        mask = FILTERED_BY.get(kind)
        if mask and not self.filters & mask:
            taken = kind != x86.JCC or ip != insn.end
            self.count(BRE, 1, TKN >> 16 if taken else 0, pc, ip)
        self.count(CNH, self.insn_clocks, 0, pc)
        self.ref_rest += self.insn_clocks * self.ratio
        self.count(RNH, self.ref_rest // 1000, 0, pc)
        self.ref_rest %= 1000

    def operands(self, insn, state):
        """Flags, Data1, address and Data2 of LWPINS and LWPVAL (5.3)."""
        i = 0
        while insn.code[i] in x86.PREFIXES:
            i += 1
        _, rxb, wv, _, modrm = insn.code[i:i + 5]
        wide = wv >> 7 and self.bits == 64
        reg = wv >> 3 & 15 ^ 15
        data2 = state[reg & (15 if self.bits == 64 else 7)]
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
            if self.comparable(have) != want:
                yield (f'ring at {i - self.base}: {self.show(have)}, '
                       f'should be {self.show(want)}')

    @staticmethod
    def comparable(record):
        """Without what a predictor has thought of a branch."""
        flags, = struct.unpack_from('<I', record)
        if flags & 0xff != BRE:
            return record
        return struct.pack('<I', flags & ~(PRV | PRD)) + record[4:]

    @staticmethod
    def show(record):
        event, core, flags, data1, ip, data2, rest = struct.unpack(
            '<BBHIQQQ', record)
        return (f'({event}, {core}, {flags:x}, {data1:x}, {ip:x}, {data2:x}, '
                f'{rest:x})')


# Skylake's events of branches (Intel SDM 3B, BR_INST_RETIRED), by unit mask
TAKEN, FAR_MASK = 0x20, 0x40
MASKS = {x86.JCC: 1, x86.CALL: 2, x86.CALL_IND: 2, x86.RET: 8}
FAR_KINDS = {x86.FAR, x86.ENTER, x86.RETURN}
WIDTH = 1 << 48
PMC, EVTSEL, FIXED, FIXED_CTRL, GLOBAL_CTRL, RESET = (
    0xc1, 0x186, 0x309, 0x38d, 0x38f, 0x390)
EN, INT = 1 << 22, 1 << 20
COUNTERS, FIXEDS = 4, 3


class Pmu:
    """Skylake's counters; the order is PMCs, fixed ones."""

    def __init__(self, nmi):
        self.nmi = nmi                  # address of its handler
        self.value = [0] * (COUNTERS + FIXEDS)
        self.evtsel = [0] * COUNTERS
        self.fixed_ctrl = self.control = self.status = 0
        self.blocked = self.pending = False
        self.interrupts = 0
        self.errors = []
        self.active = ()

    def wrmsr(self, state):
        msr = state[1] & 0xffffffff
        val = state[0] & 0xffffffff | state[2] << 32
        if PMC <= msr < PMC + COUNTERS:
            low = val & 0xffffffff
            self.value[msr - PMC] = ((low ^ 1 << 31) - (1 << 31)) % WIDTH
        elif EVTSEL <= msr < EVTSEL + COUNTERS:
            self.evtsel[msr - EVTSEL] = val
        elif FIXED <= msr < FIXED + FIXEDS:
            self.value[COUNTERS + msr - FIXED] = val % WIDTH
        elif msr == FIXED_CTRL:
            self.fixed_ctrl = val
        elif msr == GLOBAL_CTRL:
            self.control = val
        elif msr == RESET:
            self.status &= ~val
        else:
            return
        self.active = [
            (i, self.evtsel[i] & 0xffff, self.evtsel[i] >> 16 & 3)
            for i in range(COUNTERS)
            if self.control >> i & 1 and self.evtsel[i] & EN]
        for i in range(FIXEDS):         # instructions, cycles, and cycles
            rows = self.fixed_ctrl >> 4 * i & 3
            if self.control >> 32 + i & 1:
                self.active.append((COUNTERS + i, 0xc0,
                                    rows >> 1 | (rows & 1) << 1))

    def count(self, insn, ip, cpl):
        """Count an instruction in each counter that runs at @cpl."""
        kind = insn.kind
        row = 1 if cpl else 2           # USR, OS
        near = kind in x86.NEAR_BRANCHES
        far = kind in FAR_KINDS or kind == x86.INTO and ip != insn.end
        mask = MASKS.get(kind, 0)
        if near:
            mask |= TAKEN if kind != x86.JCC or ip != insn.end else 0x10
        elif far:
            mask |= FAR_MASK
        for i, event, rows in self.active:
            unit = event >> 8
            if not rows & row or event & 0xff == 0xc4 and not (
                    near or far if unit == 0 else mask & unit):
                continue
            self.value[i] += 1
            if self.value[i] == WIDTH:
                self.value[i] = 0
                self.status |= 1 << (i if i < COUNTERS else 32 + i - COUNTERS)
                if i < COUNTERS and self.evtsel[i] & INT:
                    self.pending = True

    def retire(self, insn, state, ip, cpl, entry):
        """An instruction (or None: one that faulted), and the handler that
        comes next or None."""
        if insn:
            if insn.kind == x86.WRMSR:
                self.wrmsr(state)       # it counts with what it has set
            if self.active:
                self.count(insn, ip, cpl)
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
        *have, status = struct.unpack('<8Q', output)
        for i, n in enumerate(have):
            if n != self.value[i]:
                yield f'counter {i}: {n:#x}, should be {self.value[i]:#x}'
        if status != self.status:
            yield f'GLOBAL_STATUS: {status:#x}, should be {self.status:#x}'


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
    cpl = 0 if pmu else 3
    size = 2 * CB_BYTES + ring_bytes + (64 if pmu else 0)
    for insn, state, ip, entry in trace.retired():
        if pmu:
            pmu.retire(insn, state, ip, cpl, entry)
        if insn is None:
            cpl = 0 if pmu else 3
            continue
        if insn.kind == x86.MARK:
            chunk = output[at:at + size]
            differences = []
            if lwp:
                differences += lwp.compare(chunk[CB_BYTES:2 * CB_BYTES],
                                           chunk[2 * CB_BYTES:][:ring_bytes])
            if pmu:
                differences += pmu.compare(chunk[-64:])
            results.append(Result(lwp, differences, pmu))
            at += size
            lwp = None
        elif insn.kind == x86.LLWPCB and cpl == 3:
            counts = bool(state[insn.code[-1] & 7 | (~insn.code[1] >> 2 & 8)])
            if counts:
                lwp = make(output[at:at + CB_BYTES])
        elif counts and cpl == 3:
            lwp.retire(insn, state, ip)
        if pmu and insn.kind == x86.RETURN:
            cpl = state[16 + 1] & 3 if cpl == 0 else cpl
        if pmu and entry:
            cpl = 0
    if at != len(output):
        raise ValueError(f'{len(output)} bytes of output, not {at}')
    return results
