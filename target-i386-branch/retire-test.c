/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A test of what retires, and the example of an observer: with the property
 * x-retire-test=N, each Nth instruction of the first CPU is observed, and all
 * that is told of it is a line of the log (-d unimp -D FILE, because no file is
 * opened without a category), which tests/oracle/observe.py compares with a
 * trace.
 *
 * scripts/export-series leaves out this file, and each line of others that has
 * its name in it or calls it.
 */

#include "qemu/osdep.h"
#include "qemu/log.h"
#include "qom/object.h"
#include "engine/branch.h"
#include "retire/retire.h"

#define LBR_SHOWN   4

static uint32_t every;          /* the property: N, or 0 */
static uint64_t retired;        /* instructions of the CPU that is observed */

static RetireWants test_wants(CPUX86State *env, RetireRow row)
{
    return RETIRE_WANT_COUNT | RETIRE_WANT_PREDICT | RETIRE_WANT_SOURCES |
           RETIRE_WANT_LBR | RETIRE_WANT_STORY;
}

static void test_distance(CPUX86State *env, RetireRow row, RetireDistance *d)
{
    /* All in front of the next one that is observed. */
    d->insns = MIN(d->insns, every - 1 - retired % every);
}

static void test_count(CPUX86State *env, RetireRow row, const RetireTotals *n)
{
    retired += n->insns;
}

static void show_registers(GString *line, CPUX86State *env)
{
    g_string_append(line, " regs=");
    for (int i = 0; i < CPU_NB_REGS; i++) {
        g_string_append_printf(line, "%" PRIx64 ",", (uint64_t)env->regs[i]);
    }
}

/* The last branches, the last one of all first; this one may be that. */
static void show_branches(GString *line, const BranchRing *lbr)
{
    unsigned top = lbr->top / sizeof(uint64_t);

    g_string_append(line, " lbr=");
    for (int i = 1; i <= LBR_SHOWN; i++) {
        unsigned n = (top - i) % BRANCH_NR;

        g_string_append_printf(line, "%" PRIx64 "-%" PRIx64 ",",
                               lbr->from[n], lbr->to[n]);
    }
}

static void show_accesses(GString *line, const RetireStory *story)
{
    unsigned nr = MIN(story->nr_accesses, RETIRE_STORY_ACCESSES);

    g_string_append_printf(line, " accesses=%u:", story->nr_accesses);
    for (int i = 0; i < nr; i++) {
        const RetireAccess *a = &story->access[i];

        g_string_append_printf(line, "%s%s%s%s-%" PRIx64 "-%" PRIx64 "-%u-%d-%"
                               PRIu32 ",", a->load ? "L" : "",
                               a->store ? "S" : "", a->locked ? "X" : "",
                               a->split ? "2" : "", a->addr, a->physical,
                               a->size, a->source, a->clocks);
    }
}

static bool test_observe(CPUX86State *env, const RetireStory *story)
{
    g_autoptr(GString) line = NULL;

    /* Not only the Nth are told of: others may be wanted by somebody else. */
    if (story->part || ++retired % every) {
        return false;
    }
    line = g_string_new("retire-test:");
    g_string_append_printf(line, " n=%" PRIu64 " ip=%" PRIx64 " next=%" PRIx64
                           " target=%" PRIx64 " cpl=%d branch=%d taken=%d "
                           "predicted=%d mispredicted=%d far=%d entry=%d",
                           retired, story->ip, story->next, story->target,
                           story->row == RETIRE_USR ? 3 : 0, story->branch,
                           story->taken, story->predicted, story->mispredicted,
                           story->is_far, story->entry);
    show_registers(line, env);
    show_branches(line, &env_archcpu(env)->branch_ring);
    show_accesses(line, story);
    qemu_log("%s\n", line->str);
    return false;
}

static const RetireObserver test_observer = {
    .wants = test_wants,
    .distance = test_distance,
    .count = test_count,
    .observe = test_observe,
};

void retire_test_class_init(ObjectClass *oc)
{
    object_class_property_add_uint32_ptr(oc, "x-retire-test", &every,
                                         OBJ_PROP_FLAG_READWRITE);
}

void retire_test_realize(X86CPU *cpu)
{
    static bool observed;

    /* WBINVD relies on that: where one CPU has caches, each has. */
    cpu->retire_config.has_caches |= every;
    /* Not those of other threads, which are not counted. */
    if (every && !observed) {
        observed = true;
        retire_add_observer(cpu, &test_observer, true);
    }
}
