# SPDX-License-Identifier: GPL-2.0-or-later
"""As much of an x86 decoder as it takes to tell what an instruction counts as,
and the order in which a trace of retire-trace.c says that they retired."""

import array

# What an instruction is; LWP's and PMU's classes are made of these
PLAIN, JCC, JMP, CALL, RET, JMP_IND, CALL_IND = range(7)
FAR, ENTER, INTO = range(7, 10)     # ENTER: always leaves for the kernel
RETURN = 10                         # IRET, SYSRET, SYSEXIT
LLWPCB, SLWPCB, LWPINS, LWPVAL = range(11, 15)
XSAVE, XRSTOR, WRMSR, MARK, INVLPG = range(15, 20)

NEAR_BRANCHES = {JCC, JMP, CALL, RET, JMP_IND, CALL_IND}
STRINGS = b'\xa4\xa5\xa6\xa7\xaa\xab\xac\xad\xae\xaf'
PREFIXES = b'\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3'

STATE = 16 + 32                     # 64-bit words: registers, stack
WITH_STATE, ACCESS, STORE = (1 << n for n in (31, 30, 8))


class Insn:
    """An instruction: kind, address, that behind it, that of a direct jump."""

    def __init__(self, line, bits):
        addr, code = line.split()
        self.pc = int(addr, 16)
        self.code = bytes.fromhex(code)
        self.end = self.pc + len(self.code)
        self.target = None
        self.rep_loads = 0      # of each iteration, if it repeats
        mode = bits(self.pc)
        self.kind = self.decode(mode) if mode else FAR

    def jump(self, kind, size):
        self.target = self.end + int.from_bytes(self.code[-size:], 'little',
                                                signed=True)
        return kind

    def decode(self, bits):
        p = self.code.lstrip(PREFIXES)
        if bits == 64 and p[0] & 0xf0 == 0x40:
            p = p[1:]
        op, modrm = p[0], p[1] if len(p) > 1 else 0
        if op in STRINGS and not {0xf2, 0xf3}.isdisjoint(self.code):
            self.rep_loads = 2 if op in (0xa6, 0xa7) else 1
        reg = modrm >> 3 & 7
        if op & 0xf0 == 0x70 or 0xe0 <= op <= 0xe3:
            return self.jump(JCC, 1)
        if op in (0xe9, 0xe8):
            return self.jump(JMP if op == 0xe9 else CALL, 4)
        if op == 0xeb:
            return self.jump(JMP, 1)
        if op == 0xff and reg in (2, 4):
            return CALL_IND if reg == 2 else JMP_IND
        if op in (0x9a, 0xea, 0xca, 0xcb) or op == 0xff and reg in (3, 5):
            return FAR
        if op == 0x8f and modrm & 0x1f >= 8 and len(p) > 4:
            kinds = {9: (LLWPCB, SLWPCB), 10: (LWPINS, LWPVAL)}
            return kinds[modrm & 0x1f][p[4] >> 3 & 1]
        if op == 0x0f:
            return self.decode_0f(p)
        return {0xc2: RET, 0xc3: RET, 0xcc: ENTER, 0xcd: ENTER, 0xf1: ENTER,
                0xce: INTO, 0xcf: RETURN}.get(op, PLAIN)

    def decode_0f(self, p):
        op = p[1]
        if op & 0xf0 == 0x80:
            return self.jump(JCC, 4)
        if op == 0xae and p[2] < 0xc0:
            return {4: XSAVE, 5: XRSTOR}.get(p[2] >> 3 & 7, PLAIN)
        if op == 0x01 and p[2] < 0xc0 and p[2] & 0x38 == 0x38:
            return INVLPG
        if p[1:4] == b'\x1f\x40\x5a':
            return MARK
        return {0x05: ENTER, 0x34: ENTER, 0x07: RETURN, 0x35: RETURN,
                0x30: WRMSR}.get(op, PLAIN)

    def invlpg_addr(self, state):
        """The operand of INVLPG: (REG), DISP(REG), or an absolute address."""
        modrm = self.code[self.code.index(0x0f) + 2]
        if modrm & 7 == 4:
            return int.from_bytes(self.code[-4:], 'little')
        reg = state[modrm & 7 | (self.code[0] & 0x41 == 0x41) * 8]
        size = (0, 1, 4)[modrm >> 6]
        return reg + int.from_bytes(self.code[len(self.code) - size:],
                                    'little', signed=True)

    def __str__(self):
        return f'{self.pc:x}: {self.code.hex(" ")}'


class Trace:
    """What has been started, in order; and what of it retired."""

    def __init__(self, prefix, bits, entry_ip):
        """@bits says how code at an address is to be decoded, or 0 if it does
        not matter; @entry_ip, of
        the address and state of a start, which one is in its frame if that
        is of a handler, or else None."""
        with open(prefix + '.code', encoding='ascii') as f:
            self.insns = [Insn(line, bits) for line in f]
        with open(prefix + '.0', 'rb') as f:
            self.words = array.array('I', f.read())
        self.entry_ip = entry_ip

    def starts(self):
        """Of each an instruction, None or the state in front of it, and what
        it has accessed: linear and physical address, size, if it is a store."""
        words, insns, i = self.words, self.insns, 0
        insn, state, accesses = None, None, []
        while i < len(words):
            w = words[i]
            i += 1
            if w & ACCESS and not w & WITH_STATE:
                accesses.append((words[i] | words[i + 1] << 32,
                                 words[i + 2] | words[i + 3] << 32, w & 0xff,
                                 bool(w & STORE)))
                i += 4
                continue
            if insn:
                yield insn, state, accesses
                accesses = []
            insn, state = insns[w & ~WITH_STATE], None
            if w & WITH_STATE:
                state = array.array('Q', words[i:i + 2 * STATE].tobytes())
                i += 2 * STATE
        yield insn, state, accesses

    def retired(self):
        """Instruction, state, address of the next, the next if it is the
        first one of a handler, accesses.  The address is None if it has not
        retired, as that handler comes first.

        What is started does not retire if a handler comes next whose frame has
        its address, or if it is started again at once and is no jump to
        itself: then QEMU came back to it, for the rest of a REP or because it
        wrote to its own block."""
        last = last_state = None
        again, before = False, []
        for insn, state, accesses in self.starts():
            ip = insn.pc
            entry = state and self.entry_ip(ip, state)
            if last and last.kind == RETURN and last_state and (
                    last_state[16] == ip):
                entry = None            # It was interrupted there.
            handler = insn if entry is not None else None
            if handler:
                ip = entry
            if last and (ip != last.pc or last.target == ip):
                self.check_flow(last, ip)
                yield last, last_state, ip, handler, before
                again, before = False, []
            elif last and handler:
                yield last, last_state, None, handler, before
                again, before = False, []
            else:
                again = last
            last, last_state = insn, last_state if again else state
            before = before + accesses if before else accesses

    @staticmethod
    def check_flow(insn, ip):
        if insn.kind in (PLAIN, JCC) and ip == insn.end or ip == insn.target:
            return
        if insn.kind in (PLAIN, JCC, JMP, CALL):
            raise ValueError(f'the trace goes from {insn} to {ip:x}')
