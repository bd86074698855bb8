/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Performance counters: RESET, SMM, SVM, and a state from outside. */

#include <string.h>
#include "pmu-internal.h"

/* Some never stop, whatever their control says. */
static void reset_old(PmuState *s, const PmuConfig *config)
{
    if (pmu_old_kind(config->flavour) == PMU_OLD_C3) {
        s->evtsel[1] = PMU_OLD_C3_RESET;
    }
    for (unsigned n = 0; n < config->counters; n++) {
        pmu_select_event(s, config, n);
    }
}

void pmu_reset(PmuState *s, const PmuConfig *config)
{
    PmuState old = *s;

    *s = (PmuState) { .svme = old.svme, .guest = old.guest };
    memcpy(s->reported, old.reported, sizeof(s->reported));
    /* So that software for version 1 finds its counters running. */
    s->global_ctrl = pmu_global_mask(config) & pmu_ones(config->counters);
    if (pmu_old_kind(config->flavour)) {
        reset_old(s, config);
    }
    if (config->netburst) {
        *config->netburst = (NetburstState) { 0 };
    }
    pmu_changed(s, config);
}

void pmu_smi(PmuState *s, const PmuConfig *config)
{
    if (!(s->debugctl & PMU_FREEZE_WHILE_SMM)) {
        return;
    }
    pmu_apply(s, config);
    s->smm_frozen = true;
    s->smm_debugctl = s->debugctl;
    s->smm_global_ctrl = s->global_ctrl;
    s->global_ctrl = 0;
    pmu_changed(s, config);
}

void pmu_rsm(PmuState *s, const PmuConfig *config)
{
    if (!s->smm_frozen) {
        return;
    }
    pmu_apply(s, config);
    s->smm_frozen = false;
    s->debugctl = s->smm_debugctl;
    s->global_ctrl = s->smm_global_ctrl;
    s->smm_debugctl = s->smm_global_ctrl = 0;
    pmu_changed(s, config);
}

void pmu_change_svm(PmuState *s, const PmuConfig *config, bool svme, bool guest)
{
    pmu_apply(s, config);
    s->svme = svme;
    s->guest = guest;
    pmu_changed(s, config);
}

bool pmu_load_state(PmuState *s, const PmuConfig *config)
{
    uint64_t bad = config->netburst &&
                   !netburst_valid(config->netburst,
                                   pmu_netburst_has(config->flavour));

    for (unsigned n = 0; n < PMU_MAX_GP; n++) {
        bool present = n < config->counters && !config->netburst;

        present &= n || !pmu_has_tsc(config);
        bad |= s->evtsel[n] & ~(present ? pmu_evtsel_mask(config, n) : 0);
        bad |= s->value[n] & ~(present ? config->value_mask : 0);
    }
    for (unsigned i = 0; i < PMU_MAX_FIXED; i++) {
        bad |= s->value[PMU_FIXED(i)] &
               ~(i < config->fixed ? config->value_mask : 0);
    }
    bad |= s->fixed_ctr_ctrl & ~pmu_fixed_ctrl_mask(config);
    bad |= s->global_ctrl & ~pmu_global_mask(config);
    bad |= s->global_status & ~pmu_status_mask(config);
    bad |= s->debugctl & ~pmu_debugctl_mask(config);
    if (s->smm_frozen) {
        bad |= s->smm_global_ctrl & ~pmu_global_mask(config);
        bad |= s->smm_debugctl & ~pmu_debugctl_mask(config);
        bad |= ~s->smm_debugctl & PMU_FREEZE_WHILE_SMM;
    } else {
        bad |= s->smm_global_ctrl | s->smm_debugctl;
    }
    for (unsigned i = pmu_offcore_masks(config); i < PMU_NR_OFFCORE; i++) {
        bad |= s->offcore[i];
    }
    bad |= s->pebs_armed & ~pmu_pebs_mask(config);
    bad |= s->pebs_enable & ~pmu_pebs_enable_mask(config);
    bad |= s->load_latency & ~(uint64_t)(pmu_has_load_latency(config) ?
                                         LATENCY_MASK : 0);
    bad |= s->frontend & ~pmu_frontend_mask(config);
    bad |= s->tag_left > PMU_TAG_GAP_MAX;
    bad |= s->pebs_data_cfg & ~(pmu_has_adaptive(config) ? DATA_CFG : 0);
    if (!config->aperfmperf || !s->clocks) {
        bad |= s->clocks | s->aperf | s->mperf;
    }
    for (int r = 0; r < RETIRE_NR_ROWS; r++) {
        bad |= s->ref_fraction[r] >= PMU_REFCLK_UNIT;
    }
    if (bad) {
        return false;
    }
    memset(s->counter, 0, sizeof(s->counter));
    memset(s->pending, 0, sizeof(s->pending));
    memset(s->fp_pending, 0, sizeof(s->fp_pending));
    memset(s->counted, 0, sizeof(s->counted));
    s->pmi = false;
    s->pebs_due = 0;
    for (unsigned n = 0; n < PMU_MAX_GP && !config->netburst; n++) {
        pmu_select_event(s, config, n);
    }
    if (config->netburst) {
        pmu_select_netburst(s, config);
    }
    pmu_changed(s, config);
    return true;
}
