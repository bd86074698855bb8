/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters under TCG: QMP query-pmu and "info pmu". */

#include "qemu/osdep.h"
#include "monitor/hmp-target.h"
#include "monitor/monitor.h"
#include "qapi/error.h"
#include "system/tcg.h"
#include "pmu.h"
#include "engine/netburst.h"
#include "retire/compat.h"

typedef struct State {
    PmuState pmu;
    PmuConfig config;
    NetburstState netburst;
    BranchState branch;
    BranchRing ring;
    IbsState ibs;
} State;

/* Runs where the CPU does, so what has been counted ahead can be seen. */
static void get_state(CPUState *cs, run_on_cpu_data state)
{
#ifdef CONFIG_TCG
    X86CPU *cpu = X86_CPU(cs);
    State *s = state.host_ptr;

    s->config = cpu->pmu_config;
    if (s->config.netburst) {
        s->netburst = *s->config.netburst;
        s->config.netburst = &s->netburst;
    }
    pmu_cpu_peek(&cpu->env, &s->pmu, &s->config);
    s->branch = cpu->branch;
    s->ring = *cpu->branch_ring;
    s->ibs = cpu->ibs;
#endif
}

static PmuCounterInfoList *get_counters(const PmuState *s,
                                        const PmuConfig *config)
{
    PmuCounterInfoList *list = NULL, **tail = &list;
    const NetburstState *netburst = config->netburst;

    for (unsigned n = 0;
         n < (netburst ? NETBURST_COUNTERS : PMU_NR_COUNTERS); n++) {
        bool fixed = n >= PMU_MAX_GP && !netburst;
        PmuCounterInfo *c;
        PmuSetting setting;

        if (!pmu_setting(s, config, n, &setting)) {
            continue;
        }
        c = g_new0(PmuCounterInfo, 1);
        c->type = fixed ? PMU_COUNTER_TYPE_FIXED : PMU_COUNTER_TYPE_GENERAL;
        c->index = fixed ? n - PMU_MAX_GP : n;
        c->has_select = !fixed;
        c->select = fixed ? 0 : netburst ? netburst->cccr[n] : s->evtsel[n];
        c->event = g_strdup(setting.event);
        c->os = setting.os;
        c->usr = setting.usr;
        c->interrupt = setting.interrupts;
        c->enabled = setting.enabled;
        c->value = netburst ? netburst->value[n] : s->value[n];
        QAPI_LIST_APPEND(tail, c);
    }
    return list;
}

static PmuBranchInfo *get_branches(const State *s, const BranchConfig *config)
{
    bool frozen = s->pmu.global_status & PMU_STATUS_LBR_FRZ;
    uint32_t wants = branch_wants(&s->branch, config, false, frozen) |
                     branch_wants(&s->branch, config, true, frozen);
    PmuBranchInfo *info = g_new0(PmuBranchInfo, 1);
    PmuBranchRecordList **tail = &info->records;
    BranchEntry e;

    info->kind = g_strdup(branch_flavour_name(config->flavour));
    info->recording = wants & BRANCH_WANT_RECORDS;
    while (branch_entry(&s->branch, config, &s->ring, info->depth, &e)) {
        info->depth++;
        if (e.from || e.to || e.info) {
            PmuBranchRecord *r = g_new0(PmuBranchRecord, 1);

            r->from = e.from;
            r->to = e.to;
            r->has_info = e.info;
            r->info = e.info;
            QAPI_LIST_APPEND(tail, r);
        }
    }
    info->has_bts = info->has_ds_area = config->ds;
    info->bts = wants & BRANCH_WANT_BTS;
    info->ds_area = s->branch.ds_area;
    return info;
}

static void get_ibs(const State *s, const IbsConfig *config, PmuInfo *info)
{
    info->has_ibs_fetch_ctl = config->caps & IBS_CAP_FETCH;
    if (info->has_ibs_fetch_ctl) {
        ibs_rdmsr(&s->ibs, config, IBS_MSR_FIRST + IBS_FETCH_CTL,
                  &info->ibs_fetch_ctl);
    }
    info->has_ibs_op_ctl = info->has_ibs_op_rip = config->caps & IBS_CAP_OP;
    if (info->has_ibs_op_ctl) {
        ibs_rdmsr(&s->ibs, config, IBS_MSR_FIRST + IBS_OP_CTL,
                  &info->ibs_op_ctl);
        info->ibs_op_rip = s->ibs.reg[IBS_OP_RIP];
    }
}

PmuInfoList *qmp_query_pmu(Error **errp)
{
    PmuInfoList *list = NULL, **tail = &list;
    CPUState *cs;

    CPU_FOREACH(cs) {
        X86CPU *cpu = X86_CPU(cs);
        const BranchConfig *branch_config = &cpu->branch_config;
        PmuInfo *info;
        State state;
        const PmuConfig *config = &state.config;
        const PmuState *s = &state.pmu;

        if (!tcg_enabled() || !cpu->enable_pmu) {
            continue;
        }
        run_on_cpu(cs, get_state, RUN_ON_CPU_HOST_PTR(&state));
        info = g_new0(PmuInfo, 1);
        info->cpu_index = cs->cpu_index;
        info->flavour = g_strdup(pmu_flavour_name(config->flavour));
        info->version = config->version;
        info->has_global_ctrl = config->version >= 2 || config->perfmon_v2;
        info->has_global_status = info->has_global_ctrl;
        info->global_ctrl = s->global_ctrl;
        info->global_status = s->global_status;
        info->has_fixed_ctr_ctrl = info->has_debugctl = config->fixed;
        info->fixed_ctr_ctrl = s->fixed_ctr_ctrl;
        info->debugctl = s->debugctl | state.branch.debugctl;
        info->counters = get_counters(s, config);
        if (branch_config->lbr || branch_config->ds) {
            info->branches = get_branches(&state, branch_config);
        }
        if (pmu_has_pebs(config)) {
            info->has_pebs_enable = info->has_pebs_data_cfg = true;
            info->has_pebs_armed = true;
            info->pebs_enable = s->pebs_enable;
            info->pebs_data_cfg = s->pebs_data_cfg;
            info->pebs_armed = s->pebs_armed;
        }
        info->has_load_latency = pmu_has_load_latency(config);
        info->load_latency = s->load_latency;
        get_ibs(&state, &cpu->ibs_config, info);
        QAPI_LIST_APPEND(tail, info);
    }
    return list;
}

static void print_control(Monitor *mon, const PmuInfo *info)
{
    if (info->has_global_ctrl) {
        monitor_printf(mon, "  GLOBAL_CTRL=%016" PRIx64 " GLOBAL_STATUS=%016"
                       PRIx64 "\n", info->global_ctrl, info->global_status);
    }
    if (info->has_debugctl) {
        uint64_t debugctl = info->debugctl;

        monitor_printf(mon, "  FIXED_CTR_CTRL=%016" PRIx64 " DEBUGCTL=%016"
                       PRIx64 "%s%s%s\n", info->fixed_ctr_ctrl, debugctl,
                       debugctl & PMU_FREEZE_LBRS_ON_PMI ?
                       " freeze-lbrs-on-pmi" : "",
                       debugctl & PMU_FREEZE_PERFMON_ON_PMI ?
                       " freeze-perfmon-on-pmi" : "",
                       debugctl & PMU_FREEZE_WHILE_SMM ?
                       " freeze-while-smm" : "");
    }
}

static void print_counter(Monitor *mon, const PmuCounterInfo *c)
{
    monitor_printf(mon, "  %s %" PRId64 ": %012" PRIx64,
                   PmuCounterType_str(c->type), c->index, c->value);
    if (c->has_select) {
        monitor_printf(mon, " select %016" PRIx64, c->select);
    }
    monitor_printf(mon, "%s%s%s%s", c->enabled ? " enabled" : "",
                   c->os ? " os" : "", c->usr ? " usr" : "",
                   c->interrupt ? " interrupt" : "");
    monitor_printf(mon, c->event ? ": %s\n" : "\n", c->event);
}

static void print_branches(Monitor *mon, const PmuBranchInfo *info)
{
    int n = 0;

    monitor_printf(mon, "  branch records: %s, %" PRId64 "%s\n", info->kind,
                   info->depth, info->recording ? ", recording" : "");
    for (PmuBranchRecordList *l = info->records; l; l = l->next) {
        const PmuBranchRecord *r = l->value;

        monitor_printf(mon, "  branch %d: %016" PRIx64 " -> %016" PRIx64, n++,
                       r->from, r->to);
        if (r->has_info) {
            monitor_printf(mon, " info %016" PRIx64, r->info);
        }
        monitor_printf(mon, "\n");
    }
    if (info->has_ds_area) {
        monitor_printf(mon, "  BTS %s, DS_AREA=%016" PRIx64 "\n",
                       info->bts ? "on" : "off", info->ds_area);
    }
}

void hmp_info_pmu(Monitor *mon, const QDict *qdict)
{
    g_autoptr(PmuInfoList) list = qmp_query_pmu(NULL);

    if (!list) {
        monitor_printf(mon, "No CPU has performance counters under TCG\n");
    }
    for (PmuInfoList *l = list; l; l = l->next) {
        const PmuInfo *info = l->value;

        monitor_printf(mon, "CPU #%" PRId64 ": %s", info->cpu_index,
                       info->flavour);
        if (info->version) {
            monitor_printf(mon, ", version %" PRId64, info->version);
        }
        monitor_printf(mon, "\n");
        print_control(mon, info);
        for (PmuCounterInfoList *c = info->counters; c; c = c->next) {
            print_counter(mon, c->value);
        }
        if (info->branches) {
            print_branches(mon, info->branches);
        }
        if (info->has_pebs_enable) {
            monitor_printf(mon, "  PEBS_ENABLE=%016" PRIx64 " PEBS_DATA_CFG=%08"
                           PRIx64 " armed=%016" PRIx64 "\n", info->pebs_enable,
                           info->pebs_data_cfg, info->pebs_armed);
        }
        if (info->has_load_latency) {
            monitor_printf(mon, "  PEBS_LD_LAT_THRESHOLD=%04" PRIx64 "\n",
                           info->load_latency);
        }
        if (info->has_ibs_fetch_ctl) {
            monitor_printf(mon, "  IBS fetch: CTL=%016" PRIx64 "\n",
                           info->ibs_fetch_ctl);
        }
        if (info->has_ibs_op_ctl) {
            monitor_printf(mon, "  IBS op: CTL=%016" PRIx64 " RIP=%016" PRIx64
                           "\n", info->ibs_op_ctl, info->ibs_op_rip);
        }
    }
}
