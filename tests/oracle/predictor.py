# SPDX-License-Identifier: GPL-2.0-or-later
"""The model of branch prediction, by target-i386-models/engine/predictor.h."""

import x86

RETURNS, TARGETS, CONDS = 32, 512, 4096
CALLS = {x86.CALL, x86.CALL_IND}
INDIRECT = {x86.JMP_IND, x86.CALL_IND}


class Predictor:
    """One for a processor: whoever counts or records sees the same."""

    def __init__(self):
        self.returns, self.top = [0] * RETURNS, 0
        self.targets = [0] * TARGETS
        # Goes on as it did last, but may soon be told otherwise
        self.conds = [[(False, False), {
            (False, False): 1, (False, True): 2, (True, False): 1,
            (True, True): 2}] for _ in range(CONDS)]

    def predict(self, insn, ip):
        """Whether there is a prediction, and if it is right; and learn."""
        if insn.kind != x86.JCC:
            expected = self.target(insn, ip)
            return expected != 0, expected == ip
        entry = self.conds[insn.pc % CONDS]
        last, counters = entry
        taken = ip != insn.end
        n = counters[last]
        counters[last] = min(n + 1, 3) if taken else max(n - 1, 0)
        entry[0] = last[1], taken       # the older one first
        return True, (n >= 2) == taken

    def target(self, insn, ip):
        """The address expected behind @insn, or 0; @ip is the right one."""
        expected = ip
        if insn.kind == x86.RET:
            self.top = (self.top - 1) % RETURNS
            expected = self.returns[self.top]
        elif insn.kind in INDIRECT:
            i = insn.pc % TARGETS
            expected, self.targets[i] = self.targets[i], ip
        if insn.kind in CALLS:
            self.returns[self.top] = insn.end
            self.top = (self.top + 1) % RETURNS
        return expected
