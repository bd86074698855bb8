/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which byte sequences are LWP instructions, which POP, which #UD. */

#define _GNU_SOURCE
#include "lwp.h"

#define ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))

enum { IN32 = 1, IN64 = 2, BOTH = IN32 | IN64, NONE = 0 };
#if TEST_64BIT
#define THIS            IN64
#define CLOBBERS        "r9", "memory", "cc"
#else
#define THIS            IN32
#define CLOBBERS        "memory", "cc"
#endif

/*
 * LWP is disabled, EAX is 0 and EDX points to memory, so that what is not
 * #UD has no effect.  R, X, B and vvvv are stored inverted; an immediate is 0.
 */
static const struct {
    const char *name;
    uint8_t len, legal, bytes[15];
} table[] = {
    /* Well-formed; 32-bit code ignores B and vvvv[3], as with VEX. */
    { "llwpcb rax", 5, BOTH, { 0x8f, 0xe9, 0xf8, 0x12, 0xc0 } },
    { "llwpcb eax", 5, BOTH, { 0x8f, 0xe9, 0x78, 0x12, 0xc0 } },
    { "slwpcb rcx", 5, BOTH, { 0x8f, 0xe9, 0xf8, 0x12, 0xc9 } },
    { "slwpcb ecx", 5, BOTH, { 0x8f, 0xe9, 0x78, 0x12, 0xc9 } },
    { "lwpins eax, r8", 9, BOTH, { 0x8f, 0xea, 0xb8, 0x12, 0xc0 } },
    { "lwpins eax, rax", 9, BOTH, { 0x8f, 0xea, 0xf8, 0x12, 0xc0 } },
    { "lwpins (rdx), eax", 9, BOTH, { 0x8f, 0xea, 0x78, 0x12, 0x02 } },
    { "lwpval eax, rax", 9, BOTH, { 0x8f, 0xea, 0xf8, 0x12, 0xc8 } },
    { "lwpval (rdx), eax", 9, BOTH, { 0x8f, 0xea, 0x78, 0x12, 0x0a } },
    { "lwpval [r8], r15d", 9, BOTH, { 0x8f, 0xca, 0x00, 0x12, 0x08 } },
    { "slwpcb r9", 5, BOTH, { 0x8f, 0xc9, 0xf8, 0x12, 0xc9 } },

    /* R is not used; in 32-bit R and X must be 1 or it is POP /1-/7. */
    { "llwpcb, R clear", 5, IN64, { 0x8f, 0x69, 0xf8, 0x12, 0xc0 } },
    { "llwpcb, X clear", 5, IN64, { 0x8f, 0xa9, 0xf8, 0x12, 0xc0 } },
    { "lwpins, R clear", 9, IN64, { 0x8f, 0x6a, 0x78, 0x12, 0xc0 } },
    { "lwpins, X clear", 9, IN64, { 0x8f, 0xaa, 0x78, 0x12, 0xc0 } },

    /* L and pp */
    { "llwpcb, L = 1", 5, NONE, { 0x8f, 0xe9, 0xfc, 0x12, 0xc0 } },
    { "slwpcb, L = 1", 5, NONE, { 0x8f, 0xe9, 0xfc, 0x12, 0xc9 } },
    { "lwpins, L = 1", 9, NONE, { 0x8f, 0xea, 0x7c, 0x12, 0xc0 } },
    { "lwpval, L = 1", 9, NONE, { 0x8f, 0xea, 0x7c, 0x12, 0xc8 } },
    { "llwpcb, pp = 1", 5, NONE, { 0x8f, 0xe9, 0xf9, 0x12, 0xc0 } },
    { "llwpcb, pp = 2", 5, NONE, { 0x8f, 0xe9, 0xfa, 0x12, 0xc0 } },
    { "llwpcb, pp = 3", 5, NONE, { 0x8f, 0xe9, 0xfb, 0x12, 0xc0 } },
    { "slwpcb, pp = 1", 5, NONE, { 0x8f, 0xe9, 0xf9, 0x12, 0xc9 } },
    { "lwpins, pp = 1", 9, NONE, { 0x8f, 0xea, 0x79, 0x12, 0xc0 } },
    { "lwpins, pp = 2", 9, NONE, { 0x8f, 0xea, 0x7a, 0x12, 0xc0 } },
    { "lwpins, pp = 3", 9, NONE, { 0x8f, 0xea, 0x7b, 0x12, 0xc0 } },
    { "lwpval, pp = 1", 9, NONE, { 0x8f, 0xea, 0x79, 0x12, 0xc8 } },

    /* Opcode extensions */
    { "map 9 /2", 5, NONE, { 0x8f, 0xe9, 0xf8, 0x12, 0xd0 } },
    { "map 9 /3", 5, NONE, { 0x8f, 0xe9, 0xf8, 0x12, 0xd8 } },
    { "map 9 /4", 5, NONE, { 0x8f, 0xe9, 0xf8, 0x12, 0xe0 } },
    { "map 9 /5", 5, NONE, { 0x8f, 0xe9, 0xf8, 0x12, 0xe8 } },
    { "map 9 /6", 5, NONE, { 0x8f, 0xe9, 0xf8, 0x12, 0xf0 } },
    { "map 9 /7", 5, NONE, { 0x8f, 0xe9, 0xf8, 0x12, 0xf8 } },
    { "map A /2", 9, NONE, { 0x8f, 0xea, 0x78, 0x12, 0xd0 } },
    { "map A /3", 9, NONE, { 0x8f, 0xea, 0x78, 0x12, 0xd8 } },
    { "map A /4", 9, NONE, { 0x8f, 0xea, 0x78, 0x12, 0xe0 } },
    { "map A /5", 9, NONE, { 0x8f, 0xea, 0x78, 0x12, 0xe8 } },
    { "map A /6", 9, NONE, { 0x8f, 0xea, 0x78, 0x12, 0xf0 } },
    { "map A /7", 9, NONE, { 0x8f, 0xea, 0x78, 0x12, 0xf8 } },
    { "map A /7 of memory", 9, NONE, { 0x8f, 0xea, 0x78, 0x12, 0x3a } },

    /* LLWPCB and SLWPCB: mod and vvvv */
    { "llwpcb, mod = 0", 5, NONE, { 0x8f, 0xe9, 0xf8, 0x12, 0x02 } },
    { "llwpcb, mod = 1", 6, NONE, { 0x8f, 0xe9, 0xf8, 0x12, 0x42, 0 } },
    { "llwpcb, mod = 2", 9, NONE,
      { 0x8f, 0xe9, 0xf8, 0x12, 0x82, 0, 0, 0, 0 } },
    { "slwpcb, mod = 0", 5, NONE, { 0x8f, 0xe9, 0xf8, 0x12, 0x0a } },
    { "slwpcb, mod = 1", 6, NONE, { 0x8f, 0xe9, 0xf8, 0x12, 0x4a, 0 } },
    { "llwpcb, vvvv = 1110", 5, NONE, { 0x8f, 0xe9, 0xf0, 0x12, 0xc0 } },
    { "llwpcb, vvvv = 0111", 5, IN32, { 0x8f, 0xe9, 0xb8, 0x12, 0xc0 } },
    { "llwpcb, vvvv = 0000", 5, NONE, { 0x8f, 0xe9, 0x80, 0x12, 0xc0 } },
    { "slwpcb, vvvv = 1011", 5, NONE, { 0x8f, 0xe9, 0x58, 0x12, 0xc9 } },
    { "slwpcb, vvvv = 0000", 5, NONE, { 0x8f, 0xe9, 0x00, 0x12, 0xc9 } },

    /* Prefixes: only segment and address size may come before 8F. */
    { "66 llwpcb", 6, NONE, { 0x66, 0x8f, 0xe9, 0xf8, 0x12, 0xc0 } },
    { "f2 llwpcb", 6, NONE, { 0xf2, 0x8f, 0xe9, 0xf8, 0x12, 0xc0 } },
    { "f3 llwpcb", 6, NONE, { 0xf3, 0x8f, 0xe9, 0xf8, 0x12, 0xc0 } },
    { "f0 llwpcb", 6, NONE, { 0xf0, 0x8f, 0xe9, 0xf8, 0x12, 0xc0 } },
    { "66 slwpcb", 6, NONE, { 0x66, 0x8f, 0xe9, 0xf8, 0x12, 0xc9 } },
    { "66 lwpins", 10, NONE, { 0x66, 0x8f, 0xea, 0x78, 0x12, 0xc0 } },
    { "f2 lwpins", 10, NONE, { 0xf2, 0x8f, 0xea, 0x78, 0x12, 0xc0 } },
    { "f3 lwpins", 10, NONE, { 0xf3, 0x8f, 0xea, 0x78, 0x12, 0xc0 } },
    { "f0 lwpins (rdx)", 10, NONE, { 0xf0, 0x8f, 0xea, 0x78, 0x12, 0x02 } },
    { "f0 lwpval (rdx)", 10, NONE, { 0xf0, 0x8f, 0xea, 0x78, 0x12, 0x0a } },
#if TEST_64BIT
    { "rex llwpcb", 6, NONE, { 0x40, 0x8f, 0xe9, 0xf8, 0x12, 0xc0 } },
    { "rex.w llwpcb", 6, NONE, { 0x48, 0x8f, 0xe9, 0xf8, 0x12, 0xc0 } },
    { "rex lwpins", 10, NONE, { 0x40, 0x8f, 0xea, 0x78, 0x12, 0xc0 } },
    { "rex.b lwpval", 10, NONE, { 0x41, 0x8f, 0xea, 0x78, 0x12, 0xc8 } },
#endif
    { "64 lwpins (rdx)", 10, BOTH, { 0x64, 0x8f, 0xea, 0x78, 0x12, 0x02 } },
    { "65 lwpval (rdx)", 10, BOTH, { 0x65, 0x8f, 0xea, 0x78, 0x12, 0x0a } },
    { "2e lwpins (rdx)", 10, BOTH, { 0x2e, 0x8f, 0xea, 0x78, 0x12, 0x02 } },
    { "67 lwpins (edx)", 10, BOTH, { 0x67, 0x8f, 0xea, 0x78, 0x12, 0x02 } },
    { "67 lwpins eax", 10, BOTH, { 0x67, 0x8f, 0xea, 0x78, 0x12, 0xc0 } },
    { "3e llwpcb", 6, BOTH, { 0x3e, 0x8f, 0xe9, 0xf8, 0x12, 0xc0 } },
    { "65 67 lwpval", 11, BOTH, { 0x65, 0x67, 0x8f, 0xea, 0x78, 0x12, 0x0a } },

    /* Other maps and opcodes of XOP */
    { "map 8", 9, NONE, { 0x8f, 0xe8, 0x78, 0x12, 0xc0 } },
    { "map B", 9, NONE, { 0x8f, 0xeb, 0x78, 0x12, 0xc0 } },
    { "map 10h", 9, NONE, { 0x8f, 0xf0, 0x78, 0x12, 0xc0 } },
    { "map 1Fh", 9, NONE, { 0x8f, 0xff, 0x78, 0x12, 0xc0 } },
    { "map 9, opcode 11", 5, NONE, { 0x8f, 0xe9, 0xf8, 0x11, 0xc0 } },
    { "map 9, opcode 13", 5, NONE, { 0x8f, 0xe9, 0xf8, 0x13, 0xc0 } },
    { "map 9, opcode 01", 5, NONE, { 0x8f, 0xe9, 0xf8, 0x01, 0xc8 } },
    { "map A, opcode 10", 9, NONE, { 0x8f, 0xea, 0x78, 0x10, 0xc0 } },
    { "map A, opcode 13", 9, NONE, { 0x8f, 0xea, 0x78, 0x13, 0xc0 } },

    /* 8F with a map below 8 is group 1A: only /0, POP, is defined. */
    { "group 1A /0, register", 3, BOTH, { 0x50, 0x8f, 0xc1 } },
    { "group 1A /0, memory", 3, BOTH, { 0x50, 0x8f, 0x02 } },
    { "group 1A /0, disp8", 4, BOTH, { 0x50, 0x8f, 0x42, 0x04 } },
    { "group 1A /4", 2, NONE, { 0x8f, 0xe0 } },
    { "group 1A /2 of memory", 2, NONE, { 0x8f, 0x12 } },
    { "group 1A /6 of memory", 2, NONE, { 0x8f, 0x32 } },
    { "group 1A /1 of memory", 2, NONE, { 0x8f, 0x0a } },
    { "group 1A /7", 2, NONE, { 0x8f, 0xfa } },
};

static void test_table(void)
{
    static uint64_t memory[16];
    uint8_t *code = map_pages(1, PROT_READ | PROT_WRITE | PROT_EXEC);

    for (int i = 0; i < ARRAY_SIZE(table); i++) {
        bool legal = table[i].legal & THIS;
        /* Registers that POP and SLWPCB write */
        unsigned long a = 0, c = 1, d = (uintptr_t)memory;
        int sig;

        memset(code, 0x90, 32);
        memcpy(code, table[i].bytes, table[i].len);
        code[table[i].len] = 0xc3;
        sig = faults(asm volatile("call *%3"
                                  : "+a" (a), "+c" (c), "+d" (d)
                                  : "S" (code) : CLOBBERS));
        report(sig == (legal ? 0 : SIGILL) && (legal || fault_ip ==
               (uintptr_t)code), "%s: %s", table[i].name,
               legal ? "legal" : "#UD");
    }
}

/* 8F /0 remains POP, with ESP counted after the increment. */
static void test_pop(void)
{
    static unsigned long word;
    unsigned long out, base, sp;

    asm volatile("lea -128(" R "sp), " R "sp\n"
                 "push $0x1234\n"
                 ".byte 0x8f, 0xc1\n"           /* pop ecx */
                 "lea 128(" R "sp), " R "sp" : "=c" (out) : : "memory");
    report(out == 0x1234, "POP of a register");
    asm volatile("lea -128(" R "sp), " R "sp\n"
                 "push $0x2345\n"
                 ".byte 0x8f, 0x02\n"           /* pop (edx) */
                 "lea 128(" R "sp), " R "sp" : : "d" (&word) : "memory");
    report(word == 0x2345, "POP of memory");
    asm volatile("lea -128(" R "sp), " R "sp\n"
                 "mov " R "sp, %1\n"
                 "push $0x3456\n"
                 "push $0x4567\n"
                 ".byte 0x8f, 0x04, 0x24\n"     /* pop (esp) */
                 "mov " R "sp, %2\n"
                 "pop %0\n"
                 "lea 128(" R "sp), " R "sp"
                 : "=&c" (out), "=&S" (base), "=&D" (sp) : : "memory");
    report(out == 0x4567 && base - sp == sizeof(long),
           "POP (esp) writes above the value popped");
    asm volatile("lea -128(" R "sp), " R "sp\n"
                 "push $0\n push $0\n"
                 "push $0x5678\n"
                 ".byte 0x8f, 0x44, 0x24, %c1\n" /* pop n(esp) */
                 "pop %0\n pop %0\n"
                 "lea 128(" R "sp), " R "sp"
                 : "=c" (out) : "i" (sizeof(long)) : "memory");
    report(out == 0x5678, "POP disp8(esp)");
    asm volatile("lea -128(" R "sp), " R "sp\n"
                 "push $0\n"
                 "pushw $0x6789\n"
                 ".byte 0x66, 0x8f, 0xc1\n"     /* pop cx */
                 "pop %1\n"
                 "lea 128(" R "sp), " R "sp"
                 : "=c" (out), "=d" (base) : "0" (-1l) : "memory");
    report((out & 0xffff) == 0x6789 && out >> 16 == -1ul >> 16,
           "66 POP pops 16 bits");
#if TEST_64BIT
    asm volatile("lea -128(%%rsp), %%rsp\n"
                 "push $0x789a\n"
                 ".byte 0x41, 0x8f, 0xc0\n"     /* pop r8 */
                 "mov %%r8, %0\n"
                 "lea 128(%%rsp), %%rsp" : "=r" (out) : : "r8", "memory");
    report(out == 0x789a, "REX POP");
#endif
}

int main(void)
{
    catch(SIGSEGV, on_fault);
    catch(SIGILL, on_fault);
    llwpcb(NULL);
    test_table();
    test_pop();
    return report_summary();
}
