# SPDX-License-Identifier: GPL-2.0-or-later
"""Random programs for tests/oracle/differential: assembly code of body() and
its LWPCBs.

RBP has a random number (an LCG's), RBX points to scratch; other registers are
anybody's.  Code is for 32 and 64 bit alike, as programs are linked below 2 GiB:
only what pushes, pops or jumps needs names of full width (self.r)."""

from predict import (BRE, CLF, DME, EVENTS, GENERAL, IPF, IPI, MISPREDICTED,
                     NAB, NCB, NMB, NPB, NRB)

CONDITIONS = 'o no b ae e ne be a s ns p np l ge le g'.split()
WORK = ('eax', 'ecx', 'edx', 'esi', 'edi')
PAGE = 4096
SCRATCH = 4 * PAGE
CONSTANTS = [(i * 0x9e3779b9 + 0x7f4a7c15) & 0xffffffff for i in range(64)]

USR, OS, INT, EN = (1 << n for n in (16, 17, 20, 22))
WINDOW = 0x40000000             # kernel.h


def lg_of(addr):
    """How large the page of an address is."""
    return 12 if addr >> 21 == WINDOW >> 21 else 21


class Program:
    """Code for @bits from a seed's @rng; for system mode with the counters of
    @pmu, one of predict.PMUS, or for user mode.

    With @misses, DME is among the events, and what is left out is what accesses
    memory in a way that the trace does not tell: faults of lines that are in
    the caches, XSAVE and XRSTOR, and loads of descriptors."""

    def __init__(self, rng, bits, ring_bytes, pmu, misses):
        self.rng, self.bits, self.pmu = rng, bits, pmu
        self.ring_bytes, self.misses = ring_bytes, misses
        self.weights = dict(self.WEIGHTS)
        self.events = EVENTS
        if misses:
            for name in ('repaired', 'far', 'stack_segment'):
                del self.weights[name]
        else:
            self.events = [e for e in EVENTS if e != DME]
        self.lines, self.labels, self.blocks = [], 0, []
        self.r = 'r' if bits == 64 else 'e'
        self.functions = rng.randint(1, 4)
        self.straddled = False
        self.depth = 0

    def emit(self, *lines):
        self.lines += lines

    def label(self):
        self.labels += 1
        return f'.L{self.labels}'

    def reg(self):
        return self.rng.choice(WORK)

    def imm(self):
        return self.rng.choice((0, 1, -1, 0x7fffffff, -0x80000000,
                                self.rng.randint(-128, 127),
                                self.rng.randint(-1 << 31, (1 << 31) - 1)))

    def mem(self, size=16):
        """An operand in scratch: aligned, not, or across two pages."""
        page = self.rng.randrange(1, 4) * PAGE
        return '%d(%%%sbx)' % (self.rng.choice((
            self.rng.randrange(0, SCRATCH - size) & -size,
            self.rng.randrange(0, SCRATCH - size),
            page - self.rng.randint(1, size))), self.r)

    # --- snippets: each leaves stack, RBX and DF as they were ----------------

    def integer(self):
        r, q = self.reg(), self.reg()
        self.emit(self.rng.choice((
            f'add ${self.imm()}, %{r}', f'sub %{q}, %{r}', f'inc %{r}',
            f'imul %{q}, %{r}', f'xor %{q}, %{r}', f'neg %{r}', f'not %{r}',
            f'shl ${self.rng.randint(0, 31)}, %{r}', f'bswap %{r}',
            f'sar %cl, %{r}', f'rcl $3, %{r}', f'lea 7(%ebp,%ebp,4), %{r}',
            f'mov %ebp, %{r}', f'mul %{r}', f'bsr %ebp, %{r}',
            f'setc %al', f'cmovs %{q}, %{r}', f'adc ${self.imm()}, %{r}',
            f'popcnt %{q}, %{r}', f'andn %{q}, %ebp, %{r}', 'cltd', 'cld',
            'nop', 'nopw 0x100(%ebx)', 'cmc', 'stc', 'xchg %eax, %edx',
            f'movzbl %al, %{r}', f'bt %{q}, %{r}', f'shld $5, %{q}, %{r}')))

    def memory(self):
        r = self.reg()
        self.emit(self.rng.choice((
            f'mov %{r}, {self.mem(4)}', f'mov {self.mem(4)}, %{r}',
            f'add %{r}, {self.mem(4)}', f'sub {self.mem(4)}, %{r}',
            f'movb $7, {self.mem(1)}', f'movzwl {self.mem(2)}, %{r}',
            f'incl {self.mem(4)}', f'cmpl $5, {self.mem(4)}',
            f'sete {self.mem(1)}', f'xchg %{r}, {self.mem(4)}')))

    def locked(self):
        r, m = self.reg(), self.mem(16)
        self.emit(*self.rng.choice((
            [f'lock xadd %{r}, {self.mem(4)}'], [f'lock incl {m}'],
            [f'lock cmpxchg %{r}, {self.mem(4)}'], [f'lock btsl $3, {m}'],
            [f'push %{self.r}bx', f'lea {m}, %{self.r}si', 'mov %ebp, %ebx',
             f'lock cmpxchg8b (%{self.r}si)', f'pop %{self.r}bx'],
            ['mfence', 'lfence'])))

    def vector(self):
        m = self.mem(16)
        self.emit(*self.rng.choice((
            ['fld1', 'fldpi', 'faddp', f'fstps {self.mem(4)}'],
            [f'fildl {self.mem(4)}', 'fsqrt', f'fistpl {self.mem(4)}'],
            ['fninit', 'fldz', 'fxam', 'fstp %st(0)'],
            ['movd %ebp, %xmm0', 'pshufd $0, %xmm0, %xmm1',
             f'movups %xmm1, {m}'],
            ['cvtsi2ss %ebp, %xmm2', 'mulss %xmm2, %xmm2',
             'comiss %xmm2, %xmm1'],
            [f'movups {m}, %xmm3', 'paddd %xmm3, %xmm0',
             'pmovmskb %xmm0, %eax'],
            ['vpxor %ymm1, %ymm1, %ymm2', 'vaddps %ymm0, %ymm2, %ymm3',
             f'vmovups %ymm3, {self.mem(32)}', 'vzeroupper'])))

    def branch(self):
        """A conditional branch, taken or not, over a bit of code."""
        past = self.label()
        form = self.rng.choice(('', '{disp32} '))
        cond = self.rng.choice(CONDITIONS)
        self.emit(f'test ${1 << self.rng.randint(8, 30)}, %ebp',
                  f'{form}j{cond} {past}')
        self.emit('nop')            # taken is told by the next address
        for _ in range(self.rng.randint(0, 3)):
            self.snippet()
        self.emit(f'{past}:')

    def loop(self):
        top, past = self.label(), self.label()
        n = self.rng.choice((1, 2, 5, 30))
        self.emit(f'mov ${n}, %ecx', f'{top}:')
        if self.rng.random() < .6:
            self.emit(self.rng.choice(('nop', 'xor %ebp, %eax',
                                       'imul $5, %eax, %eax\n sar %eax',
                                       f'movb %al, {self.mem(1)}')))
        self.emit(self.rng.choice((f'loop {top}', f'loope {top}',
                                   f'loopne {top}', f'dec %ecx\n jnz {top}')))
        self.emit(self.rng.choice(('nop', f'jecxz {past}\n inc %eax',
                                   f'{"jrcxz" if self.bits == 64 else "jcxz"} '
                                   f'{past}\n inc %edx')), f'{past}:')

    def jump(self):
        past, mid, r = self.label(), self.label(), self.r
        self.emit(*self.rng.choice((
            [f'jmp {past}', 'ud2'],
            [f'{{disp32}} jmp {mid}', f'{past}: jmp 1f', 'ud2',
             f'{mid}: jmp {past}', '1:'],
            [f'mov ${past}, %eax', f'jmp *%{r}ax', 'ud2'],
            [f'movl ${past}, {SCRATCH - 8}(%{r}bx)',
             f'movl $0, {SCRATCH - 4}(%{r}bx)',
             f'jmp *{SCRATCH - 8}(%{r}bx)'],
            [f'mov %ebp, %eax', 'shr $30, %eax', f'add ${mid}, %eax',
             f'jmp *%{r}ax', f'{mid}: nop', 'nop', 'nop', 'nop'])))
        if self.lines[-1] != '1:':
            self.emit(f'{past}:')

    def calls(self):
        f, r = f'function{self.rng.randrange(self.functions)}', self.r
        past = self.label()
        word = self.bits // 8
        self.emit(*self.rng.choice((
            [f'call {f}'], [f'call {f}'],
            [f'mov ${f}, %eax', f'call *%{r}ax'],
            [f'movl ${f}, {SCRATCH - 8}(%{r}bx)',
             f'movl $0, {SCRATCH - 4}(%{r}bx)',
             f'call *{SCRATCH - 8}(%{r}bx)'],
            [f'push ${past}', f'jmp {f}', f'{past}:'],
            [f'push ${past}', f'push ${f}', 'ret', f'{past}:'],
            [f'push %{r}ax', f'push %{r}dx', 'call function_pops'],
            [f'push %{r}ax', f'push ${past}', f'ret ${word}', f'{past}:'])))

    def stack(self):
        r = self.r
        choices = [
            [f'push %{r}ax', f'pop %{r}dx'], ['pushf', f'pop %{r}ax'],
            ['pushf', 'popf'], ['enter $16, $0', 'leave'],
            [f'push {SCRATCH - 16}(%{r}bx)', f'pop {SCRATCH - 8}(%{r}bx)'],
            [f'push ${self.rng.randint(-128, 127)}', f'pop %{r}cx']]
        if self.bits == 32:
            choices.append(['pusha', 'popa'])
        if self.bits == 32 and not self.misses:
            choices.append(['push %es', 'pop %es'])
        self.emit(*self.rng.choice(choices))

    def string(self):
        r = self.r
        n = self.rng.choice((0, 1, 2, 7, 40, 63, 64, 65, 300))
        size = self.rng.choice('bwlq' if self.bits == 64 else 'bwl')
        down = self.rng.random() < .3
        at = self.rng.choice((0, PAGE - 20, PAGE))
        self.emit(f'mov ${n}, %ecx', f'lea {at + 4800}(%{r}bx), %{r}si',
                  f'lea {at + 2 * PAGE + 800}(%{r}bx), %{r}di')
        self.emit(*['std'] * down)
        if self.rng.random() < .2:
            self.emit(self.rng.choice(('movs', 'stos', 'lods', 'cmps',
                                       'scas')) + size)
        else:
            self.emit(self.rng.choice((
                f'rep movs{size}', f'rep stos{size}', f'rep lods{size}',
                f'repe cmps{size}', f'repne cmps{size}', f'repe scas{size}',
                f'repne scas{size}', f'rep movs{size}', f'rep stos{size}')))
        self.emit(*['cld'] * down)

    def fault(self):
        """An instruction that faults for good, or that jumps to nowhere."""
        resume, r = self.label(), self.r
        after = []
        # If the next instruction cannot be fetched, QEMU raises that before a
        # PMI, whose frame then does not tell where it was
        nowhere = [['ud2']] if self.pmu else [
            ['mov $bad, %eax', f'jmp *%{r}ax'],
            ['mov $bad, %eax', f'call *%{r}ax', 'POP'], ['push $bad', 'ret']]
        code = self.rng.choice((
            *nowhere, ['ud2'], ['mov bad, %eax'], ['mov %eax, bad - 2'],
            ['incl bad + 8'], ['lock incl bad'], ['call *bad + 16'],
            ['jmp *bad + 24'], ['.byte 0xf0, 0x90'], ['push bad'],
            ['pop bad'], ['xor %ecx, %ecx', 'div %ecx'],
            ['mov $2, %edx', 'mov $1, %ecx', 'div %ecx'],
            [f'movaps {"bad" if self.misses else "scratch"} + 1, %xmm0'],
            ['movups bad - 8, %xmm0'], ['fldl bad'],
            [f'mov $5, %ecx', f'lea {SCRATCH - 3}(%{r}bx), %{r}di',
             'rep stosb'],
            [f'mov $70, %ecx', f'mov %{r}bx, %{r}si',
             f'lea {SCRATCH - 64}(%{r}bx), %{r}di', 'rep movsl'],
            ['mov $1, %ecx', 'mov $bad, %esi', 'repne lodsb'],
            ['movl $77, %ecx', 'lwpval $99, bad, %ecx'],
            ['lwpins $98, bad, %ecx'],
            ['hlt'] if not self.pmu else ['ud2']))
        if code[-1] == 'POP':
            code.pop()
            after = [f'lea {self.bits // 8}(%{r}sp), %{r}sp']
        self.emit(f'movl ${resume}, resume_at', *code, 'nop',
                  *[f'movl $0, resume_at'] * (code[-1][:3] == 'lwp'),
                  f'{resume}:', *after)

    def repaired(self):
        """An instruction that faults, and starts again when that is mended."""
        r = self.r
        self.protect()
        self.emit(*self.rng.choice((
            ['mov guard + 5, %eax'], ['movl $3, guard + 5'],
            ['lock incl guard'], ['push guard', 'pop guard + 8'],
            ['movups %xmm0, guard - 3'], ['movups guard - 8, %xmm1'],
            ['mov $guard - 20, %edi', 'mov $70, %ecx', 'rep stosb'],
            ['mov $guard - 20, %edi', f'mov %{r}bx, %{r}si',
             'mov $70, %ecx', 'rep movsl'],
            ['mov $guard + 4100, %edi', 'mov $70, %ecx', 'std',
             'rep stosb', 'cld'],
            ['mov $guard, %esi', 'mov $3, %ecx', 'rep lodsb'],
            ['mov $guard - 10, %esi', 'mov $behind_guard, %edi',
             'mov $99, %ecx', 'repne cmpsb'],
            ['lwpval $97, guard + 2048, %ecx'], ['fstps guard'],
            ['decl guard', 'jns 1f', 'nop', '1:'])))

    def protect(self):
        if self.pmu:
            self.emit('int $33')
        elif self.bits == 64:
            self.emit('mov $10, %eax', 'mov $guard, %edi', 'mov $4096, %esi',
                      'xor %edx, %edx', 'syscall')
        else:
            self.emit('push %ebx', 'mov $125, %eax', 'mov $guard, %ebx',
                      'mov $4096, %ecx', 'xor %edx, %edx', 'int $0x80',
                      'pop %ebx')

    def kernel(self):
        """Ways into the kernel: calls, signals, traps."""
        if self.pmu:
            self.emit('int $34')
        elif self.bits == 64:
            self.emit(*self.rng.choice((
                ['int3'], ['mov $39, %eax', 'syscall'],
                ['mov $39, %eax', 'syscall', 'mov %eax, %edi',
                 'mov $10, %esi', 'mov $62, %eax', 'syscall'])))
        else:
            self.emit(*self.rng.choice((
                ['int3'], ['mov $20, %eax', 'int $0x80'],
                ['xor %eax, %eax', 'into'],
                ['push %ebx', 'mov $20, %eax', 'int $0x80', 'mov %eax, %ebx',
                 'mov $10, %ecx', 'mov $37, %eax', 'int $0x80', 'pop %ebx'])))

    def stack_segment(self):
        at = f'{SCRATCH - 8}(%{self.r}bx)'
        self.emit(f'movw %ss, {SCRATCH - 4}(%{self.r}bx)', f'lss {at}, %ecx')

    def far(self):
        past, r = self.label(), self.r
        if self.bits == 64:
            self.emit(*self.rng.choice((
                ['mov %cs, %eax', 'push %rax', f'push ${past}', 'lretq',
                 f'{past}:'],
                ['mov %ss, %eax', 'mov %rsp, %rdx', 'push %rax', 'push %rdx',
                 'pushfq', 'mov %cs, %eax', 'push %rax', f'push ${past}',
                 'iretq', f'{past}:'])))
        else:
            self.emit(*self.rng.choice((
                ['push %cs', f'push ${past}', 'lret', f'{past}:'],
                ['pushf', 'push %cs', f'push ${past}', 'iret', f'{past}:'])))

    def slow(self):
        choices = [
            ['pause'], ['rdtsc'], ['xor %ecx, %ecx', 'xgetbv'],
            [f'push %{self.r}bx', 'xor %eax, %eax', 'cpuid',
             f'pop %{self.r}bx'], [f'slwpcb %{self.r}ax']]
        states = [
            ['mov $7, %eax', 'xor %edx, %edx', 'xsave xsave_area',
             'xrstor xsave_area'],
            ['mov $3, %eax', 'mov $0x40000000, %edx', 'xsave xsave_area',
             'nop', 'xor $1, %ecx', 'xrstor xsave_area']]
        self.emit(*self.rng.choice(choices + states * (not self.misses)))

    def lwp(self):
        """LWPVAL and LWPINS; data come from constants, which are known."""
        insn = self.rng.choice(('lwpval', 'lwpins'))
        word = self.rng.choice(('r', 'e') if self.bits == 64 else ('e',))
        k = self.rng.randrange(len(CONSTANTS))
        src = self.rng.choice(('%ebp', '%ecx', f'constants + {4 * k}'))
        self.emit(f'{insn} ${self.rng.randint(0, 0xffff)}, {src}, '
                  f'%{word}{self.rng.choice(("dx", "bp", "di"))}')

    def modify(self):
        """Code that writes to its own block."""
        at = self.label()
        self.emit('mov %ebp, %eax', f'movb %al, {at} + 1', 'nop',
                  *['inc %edx'] * self.rng.randint(0, 2),
                  f'{at}: mov $0x11, %cl')

    def straddle(self):
        """An instruction on two pages."""
        if self.straddled:
            return
        self.straddled = True
        at = self.label()
        self.emit(f'jmp {at}', '.balign 4096', '.skip 4093, 0x90',
                  f'{at}: mov $0x12345678, %eax')

    WEIGHTS = {'integer': 12, 'memory': 6, 'locked': 2, 'vector': 3,
               'branch': 8, 'loop': 4, 'jump': 5, 'stack': 3, 'string': 4,
               'lwp': 2, 'slow': 1, 'far': 1, 'modify': .3, 'fault': 2,
               'repaired': 1, 'kernel': 1, 'straddle': .3, 'stack_segment': .5}

    def snippet(self):
        if self.depth > 2:
            self.integer()
            return
        self.depth += 1
        names, weights = zip(*self.weights.items())
        getattr(self, self.rng.choices(names, weights)[0])()
        self.depth -= 1

    def random(self):
        self.emit('imul $1103515245, %ebp, %ebp', 'add $12345, %ebp')

    def body(self):
        r, word = self.r, self.bits // 8
        saved = ('bx', 'bp', 'si', 'di')
        self.emit('.text' if self.pmu else '.section .body, "awx"',
                  f'.balign {PAGE if self.misses else 1}',
                  f'.code{self.bits}', '.globl body, body_end', 'body:',
                  *(f'push %{r}{s}' for s in saved),
                  'mov $scratch, %ebx',
                  f'mov ${self.rng.getrandbits(32)}, %ebp',
                  f'movl ${self.rng.randint(2, 8)}, rounds', '.Ltop:')
        for i in range(self.rng.randint(10, 50)):
            self.blocks.append(f'.Lblock{i}')
            self.emit(f'{self.blocks[-1]}:')
            self.random()
            for _ in range(self.rng.randint(1, 5)):
                self.snippet()
            if self.rng.random() < .3:
                self.calls()
            if self.rng.random() < .1:
                self.emit('nop\n' * self.rng.randint(10, 60))
        self.emit('decl rounds', 'jnz .Ltop',
                  *(f'pop %{r}{s}' for s in saved[::-1]), 'ret')
        for i in range(self.functions):
            self.emit(f'function{i}:')
            for _ in range(self.rng.randint(0, 4)):
                self.snippet()
            self.emit('ret')
        self.emit('function_pops:', 'nop', f'ret ${2 * word}', 'body_end:')
        self.emit('.data', '.globl resume_at', 'resume_at: .quad 0',
                  'rounds: .long 0', '.balign 64',
                  'xsave_area: .skip 4096', '.section .rodata',
                  '.globl constants',
                  'constants: .long ' + ', '.join(map(str, CONSTANTS)))

    # --- LWPCBs (Table 6-1) --------------------------------------------------

    def interval(self):
        return self.rng.choice((
            0, 1, 2, 3, self.rng.randint(0, 20), self.rng.randint(0, 200),
            self.rng.randint(100, 5000), self.rng.randint(1000, 20000),
            (1 << 25) - 1, self.rng.randint(-100, -1)))

    def session(self):
        """One LWPCB, for which the ring may be too small."""
        rng = self.rng
        # Many records in a block, which QEMU works out when it has run
        dense = rng.random() < .4
        flags = filters = low = high = 0
        for event in self.events:
            flags |= (rng.random() < .6 * (not dense or event != BRE)) << event
        for bit in (NAB, NCB, NRB, NMB, NPB):
            filters |= bit * (rng.random() < .2)
        if rng.random() < .5:
            filters |= rng.choice((0, 1, rng.randrange(256)))
            filters |= rng.getrandbits(5) * CLF
        if rng.random() < .4 and not dense:
            filters |= IPF | IPI * (rng.random() < .4)
            low, high = sorted(rng.choices(range(len(self.blocks)), k=2))
            low, high = (f'{self.blocks[n]} + {rng.choice((0, 0, 1, 6))}'
                         for n in (low, high))
        size = rng.choice((1024, 1056, 1100, 4096, self.ring_bytes))
        records = size // 32
        base = rng.choice((0, 0, 8, 4064)) if size < 4000 else 0
        head, tail = rng.randrange(records), rng.randrange(records)
        if rng.random() < .5:
            head = tail = 0
        head = rng.choice((32 * head, 32 * head, 32 * head + 5, size + 64))
        word = ('.quad %s' if self.bits == 64 or self.pmu else
                '.long %s, 0')
        cb = ['.long %#x, %#x' % (flags, size), word % f'lwp_ring + {base}',
              f'.long {head}, 0', f'.quad {rng.getrandbits(33)}',
              '.long 0, %#x' % filters, word % low, word % high, '.quad 0',
              f'.long {32 * tail}, 0', '.skip 56']
        for _ in range(6):
            n = rng.randint(0, 9) if dense else self.interval()
            cb.append('.long %d, %d' % (n & 0x3ffffff, rng.choice(
                (n, n, n, rng.randint(0, 300), -3)) & 0x3ffffff))
        return cb + ['.skip 80']

    def counters(self):
        """Settings of performance counters, see differential-system.c."""
        rng = self.rng
        cpl = rng.choice((0, 3, 3)) if (self.bits == 64 and
                                        not self.pmu.TLB) else 3
        n, known = self.pmu.COUNTERS, self.pmu.EVENTS
        events = [rng.choice((*self.pmu.FIRST_EVENTS, *known)),
                  *rng.choices((*known, *self.pmu.TLB, *self.pmu.TLB),
                               k=n - 1)]
        rows = rng.choices((USR, USR, OS, USR | OS), k=n)
        rows = [USR if e in self.pmu.TLB else r for e, r in zip(events, rows)]
        interrupts = rng.random() < .8
        select = [e | r | EN for e, r in zip(events, rows)]
        select[0] |= INT * interrupts
        # The handler's own end must not make the next one.
        period = rng.randint(1, 100) if rows[0] == USR else (
            rng.randint(50, 500))
        first = rng.randint(60, 300)
        if MISPREDICTED in known[events[0]] and rows[0] == USR:
            first = rng.randint(1, 30)  # they are rare
        pmc = [-first, *(-rng.choice((first, rng.randint(60, 20000), 0, -5))
                         for _ in range(n - 1))]
        none = [0] * (GENERAL - n)
        fixed = [rng.choice((0, (1 << 48) - rng.randint(1, 20000)))
                 for _ in range(3)]
        return ['.long ' + ', '.join(map(str, (
                    {0: 8, 3: 0x1b if self.bits == 64 else 0x2b}[cpl],
                    *select, *none, rng.getrandbits(12) & 0x333, *pmc,
                    *none))),
                '.balign 8',
                '.quad ' + ', '.join(map(str, (
                    *fixed, rng.getrandbits(4) | 1 | rng.getrandbits(3) << 32,
                    -period)))]

    def text(self, sessions):
        """The whole assembly program."""
        self.body()
        # LWPVAL and LWPINS start again if they store to a page with code
        self.emit('.data', f'.balign {PAGE if self.misses else 256}',
                  '.globl sessions, nr_sessions', 'sessions:')
        for _ in range(sessions):
            self.emit(*self.session())
            if self.pmu:
                self.emit(*self.counters(), '.balign 8')
        self.emit(f'nr_sessions: .long {sessions}',
                  '.section .note.GNU-stack, "", @progbits')
        if self.pmu:
            self.emit(*(f'.globl {name}\n.set {name}, {WINDOW + PAGE * n}'
                        for name, n in (('scratch', 0), ('bad', 4),
                                        ('guard', 6), ('behind_guard', 7))))
        return '\n'.join(self.lines) + '\n'
