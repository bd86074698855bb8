/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What retires: properties of the class, and the account of a CPU. */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "retire.h"

static const RetireProperty properties[] = {
    RETIRE_PROPERTY("insn-clocks", retire_config.insn_clocks, 1,
                    1, RETIRE_INSN_CLOCKS_MAX),
    RETIRE_PROPERTY("refclk-ratio", retire_config.refclk_ratio,
                    RETIRE_REFCLK_UNIT, 1, RETIRE_REFCLK_RATIO_MAX),
};

static void set_property(Object *obj, Visitor *v, const char *name,
                         void *opaque, Error **errp)
{
    const Property *prop = opaque;

    if (DEVICE(obj)->realized) {
        error_setg(errp, "Property '%s' is not for a CPU that is there already",
                   name);
        return;
    }
    prop->info->set(obj, v, name, opaque, errp);
}

void retire_add_property(ObjectClass *oc, const Property *prop)
{
    object_class_property_add(oc, prop->name, prop->info->type, prop->info->get,
                              set_property, prop->info->release, (void *)prop);
}

/* Those of the account, of models, and of an observer */
static struct {
    const RetireProperty *p;
    int n;
} tables[3];

void retire_add_properties(ObjectClass *oc, const RetireProperty *p, int n)
{
    int t = 0;

    while (tables[t].n) {
        t++;
        assert(t < ARRAY_SIZE(tables));
    }
    tables[t].p = p;
    tables[t].n = n;
    for (int i = 0; i < n; i++) {
        retire_add_property(oc, &p[i].prop);
    }
}

void retire_class_init(ObjectClass *oc)
{
    retire_add_properties(oc, properties, ARRAY_SIZE(properties));
    retire_test_class_init(oc);
}

void retire_cpu_init(X86CPU *cpu)
{
    for (int t = 0; t < ARRAY_SIZE(tables); t++) {
        for (int i = 0; i < tables[t].n; i++) {
            const Property *prop = &tables[t].p[i].prop;

            *(uint32_t *)object_field_prop_ptr(OBJECT(cpu), prop) =
                prop->defval.u;
        }
    }
}

static bool check_property(X86CPU *cpu, const RetireProperty *p, Error **errp)
{
    const Property *prop = &p->prop;
    uint32_t val = *(uint32_t *)object_field_prop_ptr(OBJECT(cpu), prop);

    if (val != prop->defval.u && (val < p->min || val > p->max)) {
        error_setg(errp, "Property '%s' must be between %" PRIu32 " and %"
                   PRIu32 ", not %" PRIu32, prop->name, p->min, p->max, val);
        return false;
    }
    return true;
}

bool retire_cpu_realize(X86CPU *cpu, Error **errp)
{
    for (int t = 0; t < ARRAY_SIZE(tables); t++) {
        for (int i = 0; i < tables[t].n; i++) {
            if (!check_property(cpu, &tables[t].p[i], errp)) {
                return false;
            }
        }
    }
    return true;
}

bool retire_same_for_all(const void *config, size_t size, void **common,
                         const char *what, Error **errp)
{
    if (!*common) {
        *common = g_memdup2(config, size);
    }
    if (memcmp(config, *common, size)) {
        error_setg(errp, "%s must be the same for all CPUs", what);
        return false;
    }
    return true;
}
