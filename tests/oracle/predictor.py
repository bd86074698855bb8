# SPDX-License-Identifier: GPL-2.0-or-later
"""The models of branch prediction, by target-i386-retire/engine/predictor.h and
what expect() in predictor.c says of itself."""

import x86

RETURNS, TARGETS, SETS, EXECUTIONS = 32, 512, 2048, 32
LONGEST, LONG, ENOUGH, SURE = 16, 11, 3, 6      # of predictor.c
CALLS = {x86.CALL, x86.CALL_IND}
INDIRECT = {x86.JMP_IND, x86.CALL_IND}


class Targets:
    """What both models expect of a branch that is not conditional."""

    def __init__(self):
        self.returns, self.top = [0] * RETURNS, 0
        self.targets = [0] * TARGETS

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


class Local(Targets):
    """LWP's.  Histories begin with the last execution; each has whether the
    branch was taken, and whether the conditional one before it was."""

    def __init__(self):
        super().__init__()
        self.histories = [[(False, False)] * EXECUTIONS for _ in range(SETS)]
        self.before = False

    def predict(self, insn, ip):
        """Whether there is a prediction, and if it is right; and learn."""
        if insn.kind != x86.JCC:
            expected = self.target(insn, ip)
            return expected != 0, expected == ip
        history = self.histories[insn.pc // 2 % SETS]
        taken = ip != insn.end
        correct = self.expect(history) == taken
        history.insert(0, (taken, self.before))
        history.pop()
        self.before = taken
        return True, correct

    def expect(self, history):
        own = [taken for taken, _ in history]
        then = [taken for taken, before in history if before == self.before]
        if len(then) >= SURE and len(set(then)) == 1:
            return then[0]
        best = own
        for k in range(1, LONGEST + 1):
            like = [own[i] for i in range(EXECUTIONS - k)
                    if own[i + 1:i + 1 + k] == own[:k]]
            if not like:
                break
            if len(like) >= ENOUGH or k >= LONG:
                best = like
        if len(set(best)) == 1:
            return best[0]
        then = then or own
        if 2 * sum(then) == len(then):
            return then[0]
        return 2 * sum(then) > len(then)


class Counting(Targets):
    """The counters'."""

    def __init__(self):
        super().__init__()
        # Goes on as it did last, but may soon be told otherwise
        self.sets = [[(False, False), {
            (False, False): 1, (False, True): 2, (True, False): 1,
            (True, True): 2}] for _ in range(SETS)]

    def mispredicted(self, insn, ip):
        """Whether a branch is; and learn."""
        if insn.kind != x86.JCC:
            return self.target(insn, ip) != ip
        entry = self.sets[insn.pc // 2 % SETS]
        last, counters = entry
        taken = ip != insn.end
        n = counters[last]
        counters[last] = min(n + 1, 3) if taken else max(n - 1, 0)
        entry[0] = last[1], taken       # the older one first
        return (n >= 2) != taken
