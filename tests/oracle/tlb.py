# SPDX-License-Identifier: GPL-2.0-or-later
"""The model of TLBs and L1I of one CPU, by docs/system/i386/models.rst."""

import caches

# Beside what predict.py counts
(LOAD_L2, LOAD_WALK, STORE_L2, STORE_WALK, FETCH, FETCH_MISS, CODE_L2,
 CODE_WALK) = (1 << n for n in range(9, 17))
DATA = LOAD_L2 | LOAD_WALK | STORE_L2 | STORE_WALK
CODE = FETCH | FETCH_MISS | CODE_L2 | CODE_WALK
LARGE = 21


class Array:
    """Sets of entries; what is used is marked, until all would be."""

    def __init__(self, entries, assoc):
        self.sets = [[None] * assoc for _ in range(entries // assoc)]
        self.marked = [set() for _ in self.sets]

    def __bool__(self):
        return bool(self.sets)

    def use(self, number, key):
        """Whether @key has been there, in the set that @number selects."""
        at = number % len(self.sets)
        entries, marked = self.sets[at], self.marked[at]
        hit = key in entries
        if hit:
            way = entries.index(key)
        elif None in entries:
            way = entries.index(None)
        else:
            way = next((w for w in range(len(entries)) if w not in marked), 0)
        entries[way] = key
        marked.add(way)
        if len(marked) == len(entries):
            self.marked[at] = {way}
        return hit

    def clear(self):
        for entries, marked in zip(self.sets, self.marked):
            entries[:] = [None] * len(entries)
            marked.clear()

    def forget(self, addr):
        for entries, marked in zip(self.sets, self.marked):
            for way, key in enumerate(entries):
                if key and key[0] == addr >> key[1]:
                    entries[way] = None
                    marked.discard(way)


class Tlb:
    """@sizes has entries and ways by the names of properties; the second level
    has pages of up to 2 ** @lg_max bytes, and those of code if it is @shared;
    @lg_of says how large the page of an address is."""
    NAMES = 'dtlb', 'dtlb-2m', 'itlb', 'itlb-2m', 'stlb', 'istlb'

    def __init__(self, sizes, l1i, lg_max, shared, lg_of):
        self.array = {name: Array(*sizes[name]) for name in self.NAMES}
        self.l1i = Array(l1i[0] // caches.LINE, l1i[1])
        self.lg_max, self.lg_of = lg_max, lg_of
        self.second = 'stlb' if shared and not self.array['istlb'] else 'istlb'
        self.last = self.split = None

    def page(self, addr, first, second):
        """0: the first level has it; 1: the second; 2: neither."""
        lg_size = self.lg_of(addr)
        number = addr >> lg_size
        key = number, lg_size
        if lg_size >= LARGE and self.array[first + '-2m']:
            first += '-2m'
        if self.array[first].use(number, key):
            return 0
        if not self.array[second] or lg_size > self.lg_max:
            return 2
        return 1 if self.array[second].use(number, key) else 2

    def access(self, addr, size, store):
        """What an access of data counts for."""
        for line in range(addr // caches.LINE,
                          (addr + size - 1) // caches.LINE + 1):
            where = self.page(max(addr, line * caches.LINE), 'dtlb', 'stlb')
            if where:
                yield ((STORE_L2, STORE_WALK) if store else
                       (LOAD_L2, LOAD_WALK))[where - 1]

    def fetch(self, pc, end):
        """What an instruction counts for."""
        first, last = pc // caches.LINE, (end - 1) // caches.LINE
        for line in (first, last):
            second = line != first
            if line == self.last or (not second and pc == self.split):
                continue
            self.split = pc if second else None
            self.last = line
            yield FETCH
            if not self.l1i.use(line, (line, 0)):
                yield FETCH_MISS
            where = self.page(max(pc, line * caches.LINE), 'itlb', self.second)
            if where:
                yield (CODE_L2, CODE_WALK)[where - 1]

    def flush(self):
        """All entries, as there are none of global pages"""
        for array in self.array.values():
            array.clear()
        self.last = self.split = None

    def invlpg(self, addr):
        for array in self.array.values():
            array.forget(addr)
        self.last = self.split = None
