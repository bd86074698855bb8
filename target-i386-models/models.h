/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The models of caches, TLBs and branches: what the rest of target/i386 calls.
 */

#ifndef I386_MODELS_H
#define I386_MODELS_H

#include "retire/retire.h"
#include "engine/notes.h"
#include "engine/predictor.h"
#include "engine/tlb.h"

/* What is known of translated code, which has been flushed @flushes times */
typedef struct RetireCode {
    unsigned flushes;
    /* A return address, and what its instruction's insn_start has */
    uintptr_t ra;
    uint64_t start[2];
} RetireCode;

/* What translated code looks into */
typedef struct RetireModels {
    RetireFilter filter;
    RetirePredictor predictor;
    RetireAccesses accesses;
    RetireFetch fetch;
    RetireTlb tlb;
    RetireCode code;
    RetireCache *cache;
} RetireModels;

/* NULL as long as the CPU has no observer */
static inline RetireModels *retire_models(CPUX86State *env)
{
    return env_archcpu(env)->retire_models;
}

/* Their properties: of the class, and checked. */
void retire_models_class_init(ObjectClass *oc);
bool retire_models_realize(X86CPU *cpu, Error **errp);

/* When all observers are there, and CPUID has its caches: make the caches. */
bool retire_models_realize_caches(X86CPU *cpu, Error **errp);
void retire_models_unrealize(X86CPU *cpu);

/* A reset of the machine, not INIT, which keeps what is in caches. */
void retire_models_machine_reset(X86CPU *cpu);

/* What all CPUs share; NULL if there are no caches. */
extern RetireUncore *retire_uncore;

/* A processor's TLB forgets its pages, or only those that are not @global. */
static inline void retire_tlb_flushed(CPUX86State *env, bool global)
{
    RetireModels *models = retire_models(env);

    if (unlikely(models && models->tlb.used)) {
        retire_tlb_flush(&models->tlb, global);
    }
}

/*
 * All of the TLB has been flushed, and this is not the end of an instruction,
 * behind which cpu_sync_retire() sees that.
 */
static inline void retire_mapping_changed(CPUX86State *env)
{
    RetireModels *models = retire_models(env);

    if (models && qemu_cpu_is_self(env_cpu(env))) {
        retire_filter_clear(&models->filter);
    }
}

#ifdef CONFIG_TCG
/* RetireModelsOps.access */
void retire_models_access(CPUX86State *env, vaddr addr, unsigned size,
                          MMUAccessType type, uintptr_t ra);

/*
 * Descriptor of an access: RETIRE_ACCESS_LIMIT has RETIRE_LINE_SIZE less its
 * size, and this.
 */
#define RETIRE_ACCESS_LIMIT     0x7fu
#define RETIRE_ACCESS_STORE     (1u << 7)
#define RETIRE_ACCESS_LOAD      (1u << 9)
#define RETIRE_ACCESS_OBSERVED  (1u << 10)  /* its instruction is */
#define RETIRE_ACCESS_MMU_IDX_SHIFT 11      /* 5 bits */
#define RETIRE_ACCESS_OFFSET_SHIFT 16       /* if counted: its address */
#define RETIRE_ACCESS_LOCKED    (1u << 28)  /* for its story */

/* Called if the filter does not know that an access changes nothing. */
void retire_filter_miss(CPUX86State *env, uint64_t addr, uint32_t desc,
                        uintptr_t ra);

/*
 * In bits 63:32 of the second word of insn_start: loads, stores and locked
 * loads that do not retire, unless it is a REP that counts its own.
 */
#define RETIRE_INSN_START_REPEATS   (1ull << 63)

static inline uint64_t retire_insn_start_memory(uint64_t n)
{
    return (n & 0xfff) << 32 | (n >> 24 & 0xfff) << 44 | (n >> 48 & 0x7f) << 56;
}

static inline uint64_t retire_insn_start_to_memory(uint64_t data)
{
    return (data >> 32 & 0xfff) * RETIRE_MEMORY_LOAD +
           (data >> 44 & 0xfff) * RETIRE_MEMORY_STORE +
           (data >> 56 & 0x7f) * RETIRE_MEMORY_LOCKED;
}

/* INVLPG: what the filter knows may be elsewhere. */
static inline void retire_page_flushed(CPUX86State *env, uint64_t addr)
{
    RetireModels *models = retire_models(env);

    if (models) {
        models->filter.mapping = 0;
        retire_tlb_flush_page(&models->tlb, addr);
    }
}
#endif

#endif
