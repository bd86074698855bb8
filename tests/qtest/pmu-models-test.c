/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The caches and TLBs of CPUs with performance counters under TCG: those that a
 * CPU model has, properties, and what counters say of a guest's loads.
 */

#include "qemu/osdep.h"
#include "qobject/qlist.h"
#include "pmu-guest.h"

/*
 * The caches that a model has: what its CPUID shows, which pmu-geometry reads,
 * or properties.  @warning: CPUID cannot show them.
 */
static void test_caches(void)
{
    static const struct {
        const char *cpu;
        int l1d, l1d_ways, l2, l2_ways, l3, l3_ways;    /* KiB */
        const char *warning;
    } t[] = {
        { "Skylake-Client,pmu=on", 32, 8, 4096, 16, 16384, 16 },
        { "Skylake-Client,pmu=on,l1d-size=48K,l1d-assoc=12,l2-size=2M",
          48, 12, 2048, 16, 16384, 16 },
        { "Skylake-Client,pmu=on,l3-size=14080K,l3-assoc=11",
          32, 8, 4096, 16, 14080, 11, "CPUID cannot show 'l3-size'" },
        { "pentium3,pmu=on", 32, 8, 2048, 8, 16384, 16 },
        { "EPYC-Milan,pmu=on", 32, 8, 512, 8, 32768, 16 },
        { "EPYC,pmu=on,legacy-cache=on", 64, 2, 512, 16, 16384, 16 },
        { "EPYC,pmu=on,l3-cache=off", 32, 8, 512, 8, 0, 16 },
        { "EPYC,pmu=on,l2-size=576K,l2-assoc=9", 32, 8, 576, 9, 8192, 16,
          "CPUID cannot show 'l2-size' and 'l2-assoc'" },
        { "Opteron_G5,pmu=on", 16, 4, 2048, 16, 8192, 64 },
        { "Opteron_G5,pmu=on,l3-cache=off", 16, 4, 2048, 16, 0, 64 },
        { "max,pmu=on", 64, 2, 512, 16, 16384, 16 },
    };
    static const char *const names[] = {
        "l1d-size", "l1d-assoc", "l2-size", "l2-assoc", "l3-size", "l3-assoc",
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        const int *want = &t[i].l1d;
        g_autofree char *log = g_strdup_printf("%s/pmu-caches-%d.log",
                                               g_get_tmp_dir(), getpid());
        g_autofree char *text = NULL;
        QTestState *qts = qtest_initf("-machine pc -accel tcg -S -cpu %s 2>%s",
                                      t[i].cpu, log);
        QDict *rsp = qtest_qmp(qts, "{ 'execute': 'query-cpus-fast' }");
        QObject *first = qlist_peek(qdict_get_qlist(rsp, "return"));
        g_autofree char *path = g_strdup(qdict_get_str(qobject_to(QDict, first),
                                                       "qom-path"));

        qobject_unref(rsp);
        for (int k = 0; k < G_N_ELEMENTS(names); k++) {
            rsp = qtest_qmp(qts, "{ 'execute': 'qom-get', 'arguments':"
                            " { 'path': %s, 'property': %s } }", path,
                            names[k]);
            g_assert_cmpint(qdict_get_int(rsp, "return"), ==,
                            k % 2 ? want[k] : want[k] * 1024);
            qobject_unref(rsp);
        }
        qtest_quit(qts);
        g_assert_true(g_file_get_contents(log, &text, NULL, NULL));
        unlink(log);
        g_assert_true(!strstr(text, "CPUID cannot show") == !t[i].warning);
        g_assert_true(!t[i].warning || strstr(text, t[i].warning));
    }
}

/* A guest can ask CPUID for caches of which it cannot show the size. */
static void test_caches_not_shown(void)
{
    static const struct {
        const char *cpu;
        uint8_t leaf;               /* that of 8000_0000 and so many more */
    } t[] = {
        { "Skylake-Client,pmu=on,l1d-size=512K", 5 },
        { "Skylake-Client,pmu=on,l2-size=64M", 6 },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        const uint8_t code[] = {
            0x66, 0xb8, t[i].leaf, 0, 0, 0x80,  /* mov $leaf, %eax */
            0x0f, 0xa2,                         /* cpuid */
            0xb0, 2, 0xe6, 0xf4, 0xf4,          /* outb $2, $0xf4; hlt */
        };
        g_autofree char *bios = g_strdup_printf("%s/pmu-bios-%d.bin",
                                                g_get_tmp_dir(), getpid());
        const char *argv[] = {
            getenv("QTEST_QEMU_BINARY"), "-machine", "pc", "-accel", "tcg",
            "-display", "none", "-device", "isa-debug-exit,iobase=0xf4",
            "-bios", bios, "-cpu", t[i].cpu, NULL
        };
        g_autofree char *rom = g_malloc0(0x10000);
        g_autofree char *text = NULL;
        int status;

        memcpy(rom + 0xfff0, code, sizeof(code));
        g_assert_true(g_file_set_contents(bios, rom, 0x10000, NULL));
        g_assert_true(g_spawn_sync(NULL, (char **)argv, NULL, 0, NULL, NULL,
                                   NULL, &text, &status, NULL));
        g_test_message("%s: %s", t[i].cpu, text);
        unlink(bios);
        g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == (2 << 1 | 1));
    }
}

static void test_properties(void)
{
    static const PropertyTest t[] = {
        { "max,pmu=on,l1d-assoc=129",
          "'l1d-assoc' must be between 1 and 128, not 129" },
        { "max,pmu=on,l2-assoc=7", "'l2-size' and 'l2-assoc'" },
        { "max,pmu=on,l1i-assoc=65",
          "'l1i-assoc' must be between 1 and 64, not 65" },
        { "max,pmu=on,l1i-assoc=7", "'l1i-size' and 'l1i-assoc'" },
        { "max,pmu=on,stlb-entries=65537",
          "'stlb-entries' must be between 0 and 65536, not 65537" },
        { "max,pmu=on,dtlb-2m-assoc=0",
          "'dtlb-2m-assoc' must be between 1 and 64, not 0" },
        { "Skylake-Client,pmu=on,dtlb-assoc=7",
          "'dtlb-entries' and 'dtlb-assoc': 64 entries in 7 ways do not" },
        { "max,pmu=on,itlb-entries=0", "'itlb-entries' and 'itlb-assoc'" },
        { "Conroe,pmu=on,istlb-entries=100",
          "'istlb-entries' and 'istlb-assoc'" },
        { "max,pmu=on,l3-cache=off,l3-size=8M",
          "'l3-size' needs 'l3-cache=on'" },
        { "max,pmu=on,host-cache-info=on", "'host-cache-info'" },
    };

    check_properties(t, G_N_ELEMENTS(t));
}

/* Counters have events of the models, if they have models. */
static void test_events(void)
{
    static const char *const args[] = { "", ",pmu-models=off" };
    static const struct {
        const char *cpu, *lines[4];
    } tests[] = {
        { SKYLAKE ",pmu=on",
          { "2e/41=   LONGEST_LAT_CACHE.MISS\r\n",
            "c6/01=   FRONTEND_RETIRED.L1I_MISS with 3f7h 12\r\n",
            "b7/01=   OFFCORE_RESPONSE\r\n",
            "0151     L1-dcache-load-misses\r\n" } },
        { "EPYC,pmu=on",
          { "64/08    l2_cache_req_stat.ls_rd",
            "00c3     branch-misses, branch-load-misses\r\n" } },
        { "kvm32,pmu=on", { "MISPRED_BRANCH_RETIRED.NBOGUS\r\n" } },
    };

    for (int i = 0; i < 2 * G_N_ELEMENTS(tests); i++) {
        const char *const *lines = tests[i / 2].lines;
        QTestState *qts = qtest_initf("-machine pc -accel tcg -S -cpu %s%s",
                                      tests[i / 2].cpu, args[i % 2]);
        g_autofree char *text = qtest_hmp(qts, "info pmu-events");

        for (int j = 0; j < 4 && lines[j]; j++) {
            g_test_message("%s", lines[j]);
            g_assert_cmpint(strstr(text, lines[j]) != NULL, ==, i % 2 == 0);
        }
        qtest_quit(qts);
    }
}

/*
 * After RESET, a counter counts once it has an event.  From then on, the guest
 * loads the rest of its list of MSRs, which is in one line, and SEQ, with the
 * INC of each round.
 */
static void test_loads(void)
{
    const MsrWrite writes[] = {
        { MSR_EVTSEL0 + 1, 0x4208d1 },      /* loads that L1D does not have */
        { MSR_EVTSEL0, 0x4281d0 },          /* all loads */
        { MSR_FIXED_CTR_CTRL, 0 }, { MSR_GLOBAL_CTRL, 3 },
    };
    g_autofree char *info = NULL;
    Guest g;

    guest_init(&g);
    guest_start(&g, SKYLAKE ",pmu=on", "-S -smp 1");
    guest_prepare_all(&g, 1);
    write_msrs(&g, 0, 0, writes, G_N_ELEMENTS(writes));
    guest_cont(&g);
    guest_wait(&g, 0, SEQ, 100);
    guest_stop(&g);
    info = info_pmu(g.qts, 0);
    g_assert_cmpuint(shown(info, "general 0: "), ==,
                     2 * 3 + 1 + qtest_readl(g.qts, AREA(0) + SEQ));
    g_assert_cmpuint(shown(info, "general 1: "), ==, 2);
    guest_cleanup(&g);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);

    qtest_add_func("/pmu-models/caches", test_caches);
    qtest_add_func("/pmu-models/caches/not-shown", test_caches_not_shown);
    qtest_add_func("/pmu-models/properties", test_properties);
    qtest_add_func("/pmu-models/events", test_events);

    /* The guest runs in 64-bit mode. */
    if (g_str_equal(qtest_get_arch(), "x86_64")) {
        qtest_add_func("/pmu-models/loads", test_loads);
    }
    return g_test_run();
}
