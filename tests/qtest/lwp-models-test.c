/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling with models of caches and branches: features and
 * properties, and the caches of a CPU that is plugged.
 */

#include "qemu/osdep.h"
#include "lwp-guest.h"

/* What the other CPUs have of the models, and all of these */
static const FeatureTest model_tests[] = {
    { "max+lwp-no-predictor", "max,+lwp,branch-predictor=off",
      ALL & ~PREDICTION, 0x8000001c },
    { "G5+lwp+dme",         "Opteron_G5,+lwp,+lwp-dme,-lwp-data-address",
      FAMILY_15H | DME | LEVELS | LATENCY, 0x8000001c },
};

static void test_features(gconstpointer opaque)
{
    check_features(opaque, OF_MODELS);
}

static void test_model(gconstpointer opaque)
{
    check_features(opaque, ALL);
}

static void test_expansion(void)
{
    check_expansion(OF_MODELS);
}

static void test_properties(void)
{
    static const PropertyTest t[] = {
        { "max,+lwp,l1d-size=32K,l1d-assoc=8,l2-size=64M,"
          "l2-assoc=8,l3-size=0,l3-assoc=1,l2-latency=2,"
          "l3-latency=3,remote-latency=4,dram-latency=5,"
          "other-latency=6,insn-clocks=7,refclk-ratio=8,"
          "lwp-latency-max=31,lwp-latency-rnd=0,branch-predictor=off", NULL },
        { "max,+lwp,branch-predictor=local", NULL },
        { "max,+lwp,l1d-size=512",
          "'l1d-size' must be between 1024 and 1048576, not 512" },
        { "max,+lwp,l2-assoc=0",
          "'l2-assoc' must be between 1 and 128, not 0" },
        { "max,+lwp,l3-size=3M", NULL },            /* 768 sets */
        { "max,+lwp,l3-size=3M,l3-assoc=7", "'l3-size' and 'l3-assoc'" },
        { "max,+lwp,dram-latency=1000001",
          "'dram-latency' must be between 1 and 1000000, not 1000001" },
        { "max,+lwp,branch-predictor=tage",
          "'branch-predictor' must be 'local' or 'off', not 'tage'" },
        { "max,+lwp,-lwp-cache-levels,-lwp-cache-latency",
          "'lwp-dme' needs 'lwp-cache-levels' or 'lwp-cache-latency'" },
        { "max,+lwp,branch-predictor=off,+lwp-branch-prediction",
          "'lwp-branch-prediction' needs a predictor" },
    };

    check_properties(t, G_N_ELEMENTS(t));
}

/* What is set, and the defaults of the rest */
static void test_values(void)
{
    QTestState *qts = qtest_init("-machine pc -accel tcg -S -cpu max,+lwp,"
                                 "l3-size=0,dram-latency=321,"
                                 "branch-predictor=off");
    static const ValueTest t[] = {
        { "l3-size", 0 }, { "dram-latency", 321 },
        { "l1d-size", 0x4000 }, { "l1d-assoc", 4 },
        { "l2-size", 0x200000 }, { "l2-assoc", 16 }, { "l3-assoc", 64 },
    };

    check_values(qts, t, G_N_ELEMENTS(t));
    g_assert_false(qom_get_bool(qts, "lwp-branch-prediction"));
    qtest_quit(qts);
}

/* LWP alone has caches that are not those of CPUID. */
static void test_caches(void)
{
    const char *cpu = "Skylake-Client,+lwp,l2-size=4M";
    QTestState *qts = qtest_initf("-machine pc -accel tcg -S -cpu %s"
                                  " 2>/dev/null", cpu);
    g_autofree char *text = warnings("tcg", cpu);
    static const ValueTest t[] = {
        { "l1d-size", 16 << 10 }, { "l1d-assoc", 4 },
        { "l2-size", 4 << 20 }, { "l2-assoc", 16 },
        { "l3-size", 8 << 20 }, { "l3-assoc", 64 },
    };

    check_values(qts, t, G_N_ELEMENTS(t));
    g_assert_null(strstr(text, "CPUID cannot show"));
    qtest_quit(qts);
}

/* A CPU that comes has caches of its own for DME. */
static void test_hotplug(void)
{
    Guest g;

    guest_init(&g);
    g.flags = PROFILED_15H | 1u << E_DME;
    guest_run_to_plug(&g);
    for (int i = 0; i < 3; i++) {
        guest_plug(&g);
        g_assert_cmpint(g.session[1].misses, ==, 1);
        /* A snapshot empties the caches: CPU 0 looks for others' lines. */
        guest_unplug(&g);
        g_assert_cmpint(g.session[0].misses, ==, i + 2);
    }
    guest_cleanup(&g);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);

    for (int i = 0; i < G_N_ELEMENTS(feature_tests); i++) {
        const FeatureTest *t = &feature_tests[i];
        g_autofree char *path = g_strdup_printf("/lwp-models/features/%s",
                                                t->name);

        qtest_add_data_func(path, t, test_features);
    }
    for (int i = 0; i < G_N_ELEMENTS(model_tests); i++) {
        const FeatureTest *t = &model_tests[i];
        g_autofree char *path = g_strdup_printf("/lwp-models/features/%s",
                                                t->name);

        qtest_add_data_func(path, t, test_model);
    }
    qtest_add_func("/lwp-models/features/expansion", test_expansion);
    qtest_add_func("/lwp-models/features/properties", test_properties);
    qtest_add_func("/lwp-models/features/values", test_values);
    qtest_add_func("/lwp-models/caches", test_caches);

    /* The guest of hot-plug runs in 64-bit mode. */
    if (g_str_equal(qtest_get_arch(), "x86_64")) {
        qtest_add_func("/lwp-models/hotplug", test_hotplug);
    }
    return g_test_run();
}
