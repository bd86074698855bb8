/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A program of which every instruction is known: guest/test/pmu-perf knows what
 * perf has to count and where it has to take its samples.
 *
 * LOOPS times the instructions s00 to s16, in that order; before them one, and
 * behind them three, the last of which is SYSCALL.
 */
#define LOOPS 3000000

        .globl _start, s00, s01, s02, s03, s04, s05, s06, s07, s08, s09
        .globl s10, s11, s12, s13, s14, s15, s16, loops
        .set loops, LOOPS
        .text
_start: mov     $LOOPS, %ecx
s00:    xor     %eax, %eax
s01:    jz      s02
        ud2
s02:    jnz     1f
s03:    push    %rcx
s04:    call    s05
s07:    mov     $16, %ecx
s08:    lea     from(%rip), %rsi
s09:    lea     to(%rip), %rdi
s10:    rep movsb                       # one instruction
s11:    pop     %rcx
s12:    lea     s14(%rip), %rdx
s13:    jmp     *%rdx
1:      ud2
s14:    lock incl to(%rip)
s15:    dec     %ecx
s16:    jnz     s00
        mov     $60, %eax               # exit
        xor     %edi, %edi
        syscall

s05:    lea     1(%rax), %rax
s06:    ret

        .bss
from:   .skip   16
to:     .skip   16
        .section .note.GNU-stack, "", @progbits
