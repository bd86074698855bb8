/* SPDX-License-Identifier: GPL-2.0-or-later */
/* AMD Lightweight Profiling: QMP query-lwp and "info lwp". */

#include "qemu/osdep.h"
#include "monitor/monitor.h"
#include "qapi/error.h"
#include "lwp.h"
#include "retire/compat.h"

/* Runs on the CPU's thread outside its loop, where all has been reported. */
static void get_state(CPUState *cs, run_on_cpu_data state)
{
    *(LwpState *)state.host_ptr = X86_CPU(cs)->env.lwp;
}

static LwpProfile *get_profile(const LwpState *s)
{
    LwpProfile *p = g_new0(LwpProfile, 1);
    LwpCounterList **tail = &p->counters;

    p->base = s->base;
    p->size = s->size;
    p->head = s->head;
    p->filters = s->filters;
    p->pending = s->npending;
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        if (s->flags & LWP_FLAG(i + 1)) {
            LwpCounter *c = g_new0(LwpCounter, 1);

            c->event = i;
            c->value = s->counter[i];
            QAPI_LIST_APPEND(tail, c);
        }
    }
    return p;
}

LwpInfoList *qmp_query_lwp(Error **errp)
{
    LwpInfoList *list = NULL, **tail = &list;
    CPUState *cs;

    QEMU_BUILD_BUG_ON((int)LWP_EVENT_TYPE__MAX != LWP_NR_EVENTS);
    CPU_FOREACH(cs) {
        CPUX86State *env = &X86_CPU(cs)->env;
        LwpInfo *info;
        LwpState s;

        if (!(env->features[FEAT_8000_0001_ECX] & CPUID_EXT3_LWP)) {
            continue;
        }
        run_on_cpu(cs, get_state, RUN_ON_CPU_HOST_PTR(&s));
        info = g_new0(LwpInfo, 1);
        info->cpu_index = cs->cpu_index;
        info->cfg = s.cfg;
        info->cbaddr = s.cbaddr;
        info->profile = lwp_enabled(&s) ? get_profile(&s) : NULL;
        QAPI_LIST_APPEND(tail, info);
    }
    return list;
}

void hmp_info_lwp(Monitor *mon, const QDict *qdict)
{
    g_autoptr(LwpInfoList) list = qmp_query_lwp(NULL);

    if (!list) {
        monitor_printf(mon, "No CPU has LWP\n");
    }
    for (LwpInfoList *l = list; l; l = l->next) {
        const LwpProfile *p = l->value->profile;

        monitor_printf(mon, "CPU #%" PRId64 ": LWP_CFG=%016" PRIx64
                       " LWP_CBADDR=%016" PRIx64 "\n", l->value->cpu_index,
                       l->value->cfg, l->value->cbaddr);
        if (!p) {
            continue;
        }
        monitor_printf(mon, "  ring %016" PRIx64 " size %08x head %08x"
                       " filters %08x pending %u\n", p->base, p->size, p->head,
                       p->filters, p->pending);
        for (LwpCounterList *c = p->counters; c; c = c->next) {
            monitor_printf(mon, "  %s %d\n", LwpEventType_str(c->value->event),
                           c->value->value);
        }
    }
}
