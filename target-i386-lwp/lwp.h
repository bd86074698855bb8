/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: what the rest of target/i386 calls. */

#ifndef I386_LWP_H
#define I386_LWP_H

#include "cpu.h"

/*
 * Fill in CPUID Fn8000_001C EDX of a CPU that has LWP: one whose model names
 * none of its features gets all that the accelerator has, except those that
 * the user has set.  Returns false if level or xlevel hide leaves that LWP
 * needs.
 */
bool lwp_cpu_expand_features(X86CPU *cpu);

/*
 * Take over what the CPU model and the user have set, and get the memory that
 * models take.  Fails if a property lwp-* is out of range.
 */
bool lwp_cpu_realize(X86CPU *cpu, Error **errp);
void lwp_cpu_unrealize(X86CPU *cpu);

/* CPUID Fn8000_001C (§3.3); all zero on a CPU without LWP. */
void lwp_cpu_cpuid(CPUX86State *env, uint32_t *eax, uint32_t *ebx,
                   uint32_t *ecx, uint32_t *edx);

/* RDMSR and WRMSR of the two LWP MSRs (§4.2, §4.3); false means #GP. */
bool lwp_cpu_rdmsr(CPUX86State *env, uint32_t msr, uint64_t *val);
bool lwp_cpu_wrmsr(CPUX86State *env, uint32_t msr, uint64_t val);

/* Stop LWP and forget its state; LWP_CFG stays. */
void lwp_cpu_disable(CPUX86State *env);

/* Trace that LWP may have been started, with LWP_CBADDR @old before. */
void lwp_cpu_trace(CPUX86State *env, uint64_t old);

/* A few lines of "info registers", while LWP is enabled. */
void lwp_cpu_dump(CPUX86State *env, FILE *f);

/*
 * What an operating system would have set up (§8.7.1), in user mode emulation:
 * all of LWP_CFG but the interrupt.
 */
void lwp_cpu_reset_user(CPUX86State *env);

/*
 * Operand descriptor of helper_lwpval() and helper_lwpins(): bits 15:0 are the
 * immediate, this one says that the second operand is in memory.
 */
#define LWP_DESC_MEM    (1u << 16)

/* Operand descriptor of helper_lwp_retire(). */
#define LWP_DESC_BRANCH 7u              /* LwpBranch */
#define LWP_DESC_TAKEN  (1u << 3)
#define LWP_DESC_TF     (1u << 4)       /* EFLAGS.TF, as in hflags */
#define LWP_DESC_LENGTH_SHIFT 8         /* of a branch, in bytes */

/*
 * Operand descriptor of helper_lwp_trip(): LWP_DESC_BRANCH, the number of
 * instructions that count from LWP_DESC_INSNS_SHIFT on, and these.
 */
#define LWP_DESC_DIVIDED (1u << 3)      /* the IP filter divides the block */
#define LWP_DESC_LATE   (1u << 4)       /* it ends with one counted late */
#define LWP_DESC_INSNS_SHIFT 8

/*
 * Operand descriptor of helper_lwp_access(): the size in bytes, and these.
 */
#define LWP_DESC_SIZE   63u
#define LWP_DESC_LOAD   (1u << 6)
#define LWP_DESC_STORE  (1u << 7)
#define LWP_DESC_MMU_IDX_SHIFT 8
#define LWP_DESC_INDEX_SHIFT 16         /* of the instruction in its block */

static inline LwpMode lwp_tb_mode(uint32_t flags)
{
    return flags >> HF_LWP_SHIFT;
}

void lwp_cpu_set_mode(CPUX86State *env, LwpMode mode);

/* The models of caches and branches start afresh. */
void lwp_cpu_flush(X86CPU *cpu);

#ifdef CONFIG_TCG
/*
 * Beside cc_op, each insn_start of a block that counts has what the block has
 * counted too much if this instruction does not retire.
 */
#define LWP_INSN_START(insns, branch) ((insns) << 8 | (branch) << 24)
#define LWP_INSN_START_CC_OP(data) ((data) & 0xff)

/* A block is left at the instruction whose insn_start has @data. */
static inline void lwp_restore_state(CPUX86State *env, uint64_t data)
{
    if (data >> 8) {
        lwp_unretire(&env->lwp, (data >> 8) & 0xffff, data >> 24, env->eip);
    }
}

/*
 * A helper is about to access [@addr, @addr + @size) on behalf of the current
 * instruction, with the privilege of the program.  Does not return if that has
 * to be executed again.
 */
void lwp_cpu_access(CPUX86State *env, vaddr addr, unsigned size,
                    MMUAccessType type, uintptr_t ra);

static inline void lwp_access(CPUX86State *env, vaddr addr, unsigned size,
                              MMUAccessType type, uintptr_t ra)
{
    if (unlikely(env->hflags & HF_LWP_DME_MASK)) {
        lwp_cpu_access(env, addr, size, type, ra);
    }
}

/* An exception or interrupt is about to be delivered. */
void lwp_cpu_settle(CPUX86State *env);

static inline void lwp_interrupt(CPUX86State *env)
{
    if (unlikely(env->lwp.ndue)) {
        lwp_cpu_settle(env);
    }
}

/* XRSTOR of component 62 (§7.4); @image is NULL for the initial state. */
void lwp_cpu_xrstor(CPUX86State *env, const uint8_t *image);
#endif

#ifndef CONFIG_USER_ONLY
extern const VMStateDescription vmstate_lwp;
#endif

#endif
