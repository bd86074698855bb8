/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "trace/trace-target_i386_lwp.h"

/* Trace that LWP may have been started, with LWP_CBADDR @old before. */
static inline void lwp_cpu_trace(CPUX86State *env, uint64_t old)
{
    const LwpState *s = &env->lwp;
    int index = env_cpu(env)->cpu_index;

    if (old) {
        trace_lwp_disable(index, old);
    }
    if (lwp_enabled(s)) {
        trace_lwp_enable(index, s->cbaddr, s->flags, s->base, s->size);
    }
}
