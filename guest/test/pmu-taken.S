/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A program of which every taken branch is known: guest/test/pmu-branches looks
 * for them in branch records and in the branch trace.
 *
 * ROUNDS times, but once less the last, from b00 to t00, from b01 to t01 and so
 * on to b11.  With an argument, REPEATS times calls from one to the other of
 * DEPTH functions that have frames, and work in the last.
 */
#define ROUNDS  6000
#define REPEATS 4000

        .globl _start, rounds
        .set rounds, ROUNDS
        .macro branch n, insn:vararg
b\n:    \insn
        .endm
        .macro target n
t\n:
        .endm
        .macro f n, next
        .type f\n, @function
f\n:    push    %rbp
        mov     %rsp, %rbp
        call    f\next
        nop
        pop     %rbp
        ret
        .size f\n, . - f\n
        .endm

        .text
        .type _start, @function
_start: xor     %ebp, %ebp
        mov     $ROUNDS, %ebx
        cmpl    $1, (%rsp)
        lea     t03(%rip), %r12
        lea     t04(%rip), %r13
        ja      deep
        target  11
        xor     %eax, %eax
        branch  00, jz t00
        ud2
        target  00
        jnz     t00                     # is not taken
        branch  01, jmp t01
        ud2
        target  01
        mov     $2, %ecx
        target  02
        branch  02, loop t02            # is taken once
        branch  03, jmp *%r12
        ud2
        target  04                      # called
        branch  05, ret
        target  03
        branch  04, call *%r13
        target  05
        sub     $8, %rsp
        branch  06, call t06
        target  08
        add     $8, %rsp
        xor     %ecx, %ecx
        branch  09, jrcxz t09
        ud2
        .skip   64, 0x90
        target  09
        lea     slot(%rip), %rax
        branch  10, jmp *(%rax)
        ud2
        target  06
        branch  07, call t07            # the next
        target  07
        pop     %rdx
        branch  08, ret
        target  10
        dec     %ebx
        branch  11, jnz t11
        jmp     exit
deep:   mov     $REPEATS, %ebx
2:      call    f01
        dec     %ebx
        jnz     2b
exit:   mov     $60, %eax
        xor     %edi, %edi
        syscall
        .size _start, . - _start

        f 01, 02
        f 02, 03
        f 03, 04
        f 04, 05
        f 05, 06
        f 06, 07
        f 07, 08
        f 08, 09
        f 09, 10
        .type f10, @function
f10:    push    %rbp
        mov     %rsp, %rbp
        mov     $100, %ecx
3:      imul    %ecx, %eax
        jmp     4f
        ud2
4:      call    leaf
        dec     %ecx
        jnz     3b
        pop     %rbp
        ret
        .size f10, . - f10
        .type leaf, @function
leaf:   push    %rbp
        mov     %rsp, %rbp
        inc     %eax
        pop     %rbp
        ret
        .size leaf, . - leaf

        .data
slot:   .quad   t10
        .section .note.GNU-stack, "", @progbits
