# SPDX-License-Identifier: GPL-2.0-or-later
"""The model of caches of one CPU, by docs/system/i386/models.rst."""

LINE = 64
L2, L3, DRAM = 0, 1, 3          # sources of data (43724, Figure 2-5)


class Level:
    """A cache; its sets have lines, the most recently used one first."""

    def __init__(self, size, assoc):
        self.assoc = assoc if size else 0
        self.sets = [[] for _ in range(size // LINE // assoc or 1)]

    def of(self, line):
        return self.sets[line % len(self.sets)]

    def remove(self, line):
        """Whether it has been there."""
        lines = self.of(line)
        if line not in lines:
            return False
        lines.remove(line)
        return True

    def insert(self, line):
        """The line that falls out, or None."""
        lines = self.of(line)
        lines.insert(0, line)
        return lines.pop() if len(lines) > self.assoc else None


class Caches:
    """@geometry has size and ways of L1D, L2 and L3."""

    def __init__(self, geometry):
        self.l1, self.l2, self.l3 = (Level(*g) for g in geometry)

    def access(self, line):
        """The source of the data, or None if L1D has them."""
        source = None
        if not self.l1.remove(line):
            source = L2
            if not self.l2.remove(line):
                source = L3 if self.l3.remove(line) else DRAM
            victim = self.l2.insert(line)
            if victim is not None:
                self.l3.remove(victim)
                self.l3.insert(victim)
        self.l1.insert(line)
        return source
