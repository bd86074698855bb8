/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Performance counters under TCG: properties and what QMP shows; migration,
 * snapshots, reset and CPU hot-plug of a guest that has counters running.
 */

#include "qemu/osdep.h"
#include "pmu-guest.h"
#include "x86-section-bytes.h"
#include <sys/socket.h>
#include <sys/un.h>

/* --- CPU models --------------------------------------------------------- */

typedef struct ModelTest {
    const char *name;
    const char *cpu;
    CounterModel counters;      /* of no flavour: none */
} ModelTest;

static const ModelTest model_tests[] = {
    { "max", "max" },
    { "max-off", "max,pmu=off" },
    { "max-pmu", "max,pmu=on,-perfctr-core,-perfmon-v2", { "K7", 0, 4, 0 } },
    { "Skylake", "Skylake-Client,pmu=on", { "Skylake", 4, 4, 3 } },
    { "Skylake-no-bts", "Skylake-Client,pmu=on,bts=off",
      { "Skylake", 4, 4, 3 } },
    { "Skylake-no-ds", "Skylake-Client,pmu=on,ds=off",
      { "Skylake", 4, 4, 3 } },
    { "Haswell", "Haswell,pmu=on", { "Haswell", 3, 4, 3 } },
    { "v1", "Skylake-Client,pmu=on,pmu-version=1,pmu-counters=2",
      { "Skylake", 1, 2, 0 } },
    { "enforce", "qemu32,vendor=GenuineIntel,family=6,model=94,pmu=on,enforce,"
      "full-width-write=on", { "Skylake", 4, 4, 3 } },
    { "pentium3", "pentium3,pmu=on", { "P6", 0, 2, 0 } },
    { "n270", "n270,pmu=on", { "Bonnell", 3, 2, 3 } },
    { "SapphireRapids", "SapphireRapids,pmu=on", { "Golden Cove", 5, 8, 3 } },
    { "EPYC", "EPYC,pmu=on,+perfctr-core", { "Family 17h", 0, 6, 0 } },
    { "Dhyana", "Dhyana,pmu=on", { "Family 18h", 0, 4, 0 } },
    { "Dhyana-core", "Dhyana,pmu=on,+perfctr-core",
      { "Family 18h", 0, 6, 0 } },
};

static void test_model(gconstpointer opaque)
{
    const ModelTest *t = opaque;
    QTestState *qts = qtest_initf("-machine pc -accel tcg -S -smp 2 -cpu %s"
                                  " 2>/dev/null", t->cpu);
    g_autofree char *all = qtest_hmp(qts, "info pmu");

    if (!t->counters.flavour) {
        g_assert_cmpstr(all, ==,
                        "No CPU has performance counters under TCG\r\n");
    } else {
        g_autofree char *info = info_pmu(qts, 1);

        g_assert_true(g_str_has_prefix(all, "CPU #0: "));
        g_assert_true(g_str_has_suffix(all, info));
        check_counter_model(&t->counters, info);
    }
    qtest_quit(qts);
}

static void test_properties(void)
{
    static const PropertyTest t[] = {
        { "Skylake-Client,pmu=on,pmu-version=5",
          "'pmu-version' must be between 1 and 4 for this CPU, not 5" },
        { "Skylake-Client,pmu=on,pmu-version=x", "'pmu-version'" },
        { "Skylake-Client,pmu=on,pmu-counters=9",
          "'pmu-counters' must be between 2 and 8 for this CPU, not 9" },
        { "Skylake-Client,pmu=on,pmu-counters=1",
          "'pmu-counters' must be between 2 and 8 for this CPU, not 1" },
        { "pentium3,pmu=on,pmu-version=1",
          "'pmu-version': the PMU of this CPU has no choice of it" },
        { "EPYC-Genoa,pmu=on,+perfctr-core,+perfmon-v2,pmu-counters=3",
          "'pmu-counters' must be between 4 and 6 for this CPU, not 3" },
        { "EPYC,pmu=on,+perfmon-v2", "'perfmon-v2' needs 'perfctr-core'" },
        { "max,pmu-version=2", "'pmu-version' needs 'pmu=on' and TCG" },
        { "max,pmu-counters=4", "'pmu-counters' needs 'pmu=on' and TCG" },
        { "max,pebs=off", "'pebs' needs 'pmu=on' and TCG" },
        { "max,vendor=CentaurHauls,family=15,pmu=on",
          "'pmu': there is no PMU for this vendor" },
        { "pentium,vendor=CyrixInstead,pmu=on",
          "'pmu': there is no PMU for this vendor" },
        { "max,vendor=CentaurHauls,family=6,model=10,pmu=on",
          "'pmu': there is no PMU for this vendor" },
        { "max,family=4,pmu=on", "'pmu': there is no PMU for this vendor" },
        { "pentium,pmu=on,pmu-version=1",
          "'pmu-version': the PMU of this CPU has no choice of it" },
        { "YongFeng,pmu=on,pmu-version=3",
          "'pmu-version' must be between 1 and 2 for this CPU, not 3" },
        { "kvm64,pmu=on,pmu-version=1",
          "'pmu-version': the PMU of this CPU has no choice of it" },
        { "kvm64,model=7,pmu=on", "'pmu': there is no PMU for this vendor" },
        { "kvm32,pmu=on", "'pmu': threads of a core share these counters",
          "2,threads=2" },
        { "kvm64,family=14,pmu=on", "'pmu': there is no PMU for this vendor" },
        { "max,vendor=HygonGenuine,cpuid-fault=on",
          "'cpuid-fault' needs TCG and a CPU of Intel's or AMD's" },
        { "max,pmu=on,insn-clocks=0",
          "'insn-clocks' must be between 1 and 1000, not 0" },
        { "max,pmu=on,refclk-ratio=10001",
          "'refclk-ratio' must be between 1 and 10000, not 10001" },
        { "Skylake-Client,pmu=on,ds=off,dtes64=on", "'dtes64' needs 'ds'" },
        { "pentium3,pmu=on,bts=on,enforce,+dtes64",
          "TCG doesn't support requested features" },
    };

    check_properties(t, G_N_ELEMENTS(t));
}

/* Which CPUs have APERF and MPERF: CPUID says so, and a property. */
static void test_aperfmperf(void)
{
    static const struct {
        const char *cpu;
        bool has;
    } t[] = {
        { "max", false }, { "max,pmu=on", true },
        { "max,pmu=on,aperfmperf=off", false },
        { "Skylake-Client,pmu=on", true }, { "EPYC,pmu=on", true },
        { "EPYC", false }, { "coreduo,pmu=on", true },
        { "phenom,pmu=on", false },             /* has no leaf 6 */
        { "phenom,pmu=on,level=6", true },
        { "pentium3,pmu=on,level=6", false },
        { "kvm64,aperfmperf=on", false },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        assert_has(t[i].cpu, "aperfmperf", t[i].has);
    }
}

/* The events by name, which QMP has as well */
static void test_events(void)
{
    static const struct {
        const char *cpu, *lines[3];
    } tests[] = {
        { SKYLAKE ",pmu=on",
          { "c4/20    BR_INST_RETIRED.NEAR_TAKEN\r\n",
            "d1/40    MEM_LOAD_RETIRED.FB_HIT (never)\r\n",
            "00c0     instructions\r\n" } },
        { "EPYC,pmu=on",
          { "c2       ex_ret_brn\r\n",
            "1d0       ex_ret_fused_instr (never)\r\n",
            "00c2     branches, branch-loads\r\n" } },
        { "kvm32,pmu=on", { "GLOBAL_POWER_EVENTS.RUNNING\r\n" } },
        { "max", { "No CPU has performance counters under TCG\r\n" } },
    };

    for (int i = 0; i < G_N_ELEMENTS(tests); i++) {
        QTestState *qts = qtest_initf("-machine pc -accel tcg -S -cpu %s",
                                      tests[i].cpu);
        g_autofree char *text = qtest_hmp(qts, "info pmu-events");
        QDict *rsp = qtest_qmp(qts, "{ 'execute': 'x-query-pmu-events' }");

        g_assert_cmpint(qdict_haskey(rsp, "return"), ==,
                        !strstr(text, "No CPU"));
        qobject_unref(rsp);
        for (int j = 0; j < 3 && tests[i].lines[j]; j++) {
            g_test_message("%s", tests[i].lines[j]);
            g_assert_nonnull(strstr(text, tests[i].lines[j]));
        }
        qtest_quit(qts);
    }
}

/* --- migration and snapshots -------------------------------------------- */

static void guest_migrate(Guest *g, const char *args)
{
    guest_save(g);
    g_assert_true(guest_load(g, SKYLAKE ",pmu=on", args));
}

/* Live, while the counters run and interrupt */
static void test_migrate(void)
{
    Guest g;

    guest_init(&g);
    guest_run(&g, SKYLAKE ",pmu=on", 2, "");
    for (int i = 0; i < 5; i++) {
        guest_consume(&g, 100);
        guest_cont(&g);
        guest_migrate(&g, "");
    }
    guest_consume(&g, 100);
    guest_cleanup(&g);
}

static void test_snapshot(gconstpointer opaque)
{
    unsigned cpus = GPOINTER_TO_UINT(opaque);
    int number = !g_test_slow() ? 5 : cpus == 1 ? 1000 : 100;
    g_autofree char *args = NULL;
    Guest g, saved;

    guest_start_with_disk(&g, cpus);
    guest_cont(&g);
    for (int i = 0; i < number; i++) {
        guest_consume(&g, g_test_rand_int_range(1, 100));
        guest_cont(&g);
        saved = g;
        guest_hmp(&g, "savevm pmu");
        guest_consume(&g, 100);
        guest_hmp(&g, "loadvm pmu");
        /* As it was, once more */
        memcpy(g.session, saved.session, sizeof(g.session));
        guest_cont(&g);
        guest_consume(&g, 100);
        guest_cont(&g);
        guest_hmp(&g, "delvm pmu");
        g_test_message("%d snapshots", i + 1);
    }
    /* In another QEMU */
    guest_hmp(&g, "savevm pmu");
    guest_quit(&g);
    args = g_strdup_printf("-smp %u -loadvm pmu "
                           "-drive if=none,format=qcow2,file=%s",
                           cpus, g.disk);
    guest_start(&g, SKYLAKE ",pmu=on", args);
    guest_consume(&g, 100);
    guest_cleanup(&g);
}

/*
 * An interrupt is pending behind NMI blocking: the next one comes in front of
 * the instruction that the first one has come in front of.
 */
static void check_pending(Guest *g)
{
    guest_stop(g);
    for (unsigned cpu = 0; cpu < g->cpus; cpu++) {
        guest_rearm(g, cpu, PERIOD);
        qtest_writel(g->qts, AREA(cpu) + HOLD, 0);
    }
    guest_cont(g);
    for (unsigned cpu = 0; cpu < g->cpus; cpu++) {
        guest_wait(g, cpu, NMIS, 3);
    }
    guest_stop(g);
    for (unsigned cpu = 0; cpu < g->cpus; cpu++) {
        Record r[3];

        for (int i = 0; i < 3; i++) {
            r[i] = read_record(g, cpu, i);
            g_assert_cmphex(r[i].status[0], ==, 1);
        }
        g_assert_cmphex(r[1].eip, ==, r[0].eip);
        g_assert_cmpuint(r[1].ecx, ==, r[0].ecx);
        g_assert_cmpuint(r[1].seq, ==, r[0].seq);
        g_assert_cmpuint(position(r[2].seq, r[2].eip, r[2].ecx) -
                         position(r[1].seq, r[1].eip, r[1].ecx), ==,
                         PERIOD - HANDLER_REARM);
    }
}

static void test_pending(void)
{
    Guest g;

    guest_start_with_disk(&g, 2);
    for (unsigned cpu = 0; cpu < g.cpus; cpu++) {
        guest_rearm(&g, cpu, 200);
        qtest_writel(g.qts, AREA(cpu) + HOLD, 1);
    }
    guest_cont(&g);
    for (unsigned cpu = 0; cpu < g.cpus; cpu++) {
        guest_wait(&g, cpu, HELD, 1000);
    }
    guest_hmp(&g, "savevm pmu");
    check_pending(&g);
    guest_hmp(&g, "loadvm pmu");
    guest_cont(&g);
    guest_migrate(&g, "");
    check_pending(&g);
    guest_cleanup(&g);
}

#define SECTION_HEADER  (7 + 4)     /* name, version */
#define SECTION_SIZE    209

/* Offsets in the subsection, whose numbers are big-endian */
enum {
    S_EVTSEL = 0,
    S_VALUE = 64,
    S_FIXED_CTR_CTRL = 152,
    S_GLOBAL_CTRL = 160,
    S_GLOBAL_STATUS = 168,
    S_DEBUGCTL = 176,
    S_SMM_GLOBAL_CTRL = 184,
    S_SMM_DEBUGCTL = 192,
    S_REF_FRACTION = 200,
    S_SMM_FROZEN = 208,
};

/*
 * Read the stream of a guest.  Returns the fields of the first CPU's
 * subsection, which lie in *@stream; the caller frees that.
 */
static char *read_section(Guest *g, char **stream, size_t *size)
{
    char *section;

    g_assert_true(g_file_get_contents(g->stream, stream, size, NULL));
    section = memmem(*stream, *size, "cpu/pmu", 7);
    g_assert_nonnull(section);
    return section + SECTION_HEADER;
}

/*
 * Every field survives: the subsection is changed, loaded, saved again, and
 * compared.
 */
static void test_fields(void)
{
    static const struct {
        unsigned offset, bytes;
        uint64_t val;
    } t[] = {
        { S_EVTSEL, 8, 0xffffffff },
        { S_EVTSEL + 3 * 8, 8, 0x12345678 },
        { S_VALUE, 8, 0xaaaabbbbcccc },
        { S_VALUE + 3 * 8, 8, WIDTH_MASK },
        { S_VALUE + 8 * 8, 8, 0x123456789abc },
        { S_VALUE + 10 * 8, 8, 0xcba987654321 },
        { S_FIXED_CTR_CTRL, 8, 0xfbc },
        { S_GLOBAL_CTRL, 8, 0x500000005 },
        { S_GLOBAL_STATUS, 8, 0x0c00000200000009 },
        { S_DEBUGCTL, 8, 0x1800 },
        { S_SMM_GLOBAL_CTRL, 8, 0x70000000f },
        { S_SMM_DEBUGCTL, 8, 0x5800 },
        { S_REF_FRACTION, 4, 999 },
        { S_REF_FRACTION + 4, 4, 1 },
        { S_SMM_FROZEN, 1, 1 },
    };
    g_autofree char *before = NULL, *after = NULL;
    char *section, *saved;
    size_t size;
    Guest g;

    guest_init(&g);
    guest_run(&g, SKYLAKE ",pmu=on", 1, "");
    guest_consume(&g, 1);
    guest_save(&g);
    section = read_section(&g, &before, &size);
    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        put(section, t[i].offset, t[i].bytes, t[i].val);
    }
    g_assert_true(g_file_set_contents(g.stream, before, size, NULL));
    g_assert_true(guest_load(&g, SKYLAKE ",pmu=on", "-S"));
    guest_save(&g);
    saved = read_section(&g, &after, &size);
    g_assert_cmpmem(saved, SECTION_SIZE, section, SECTION_SIZE);
    guest_cleanup(&g);
}

/* The guest has not seen them, and the stream does not have them. */
static void test_without(void)
{
    Guest g;

    guest_init(&g);
    guest_start(&g, SKYLAKE, "-S");
    g.cpus = 1;
    guest_save(&g);
    assert_load_fails(&g, SKYLAKE ",pmu=on", "CPU 0: the incoming state has no "
                      "performance counters, which this CPU has");
    g_assert_true(guest_load(&g, SKYLAKE, "-S"));
    guest_cleanup(&g);
}

/* A stream that no such CPU could have sent */
static void test_refused(void)
{
    static const struct {
        unsigned offset, bytes;
        uint64_t val;
    } t[] = {
        { S_EVTSEL, 8, 1ull << 32 },
        { S_EVTSEL + 4 * 8, 8, 1 },             /* there are four of them */
        { S_VALUE, 8, 1ull << 48 },
        { S_VALUE + 4 * 8, 8, 1 },
        { S_VALUE + 8 * 8, 8, UINT64_MAX },
        { S_FIXED_CTR_CTRL, 8, 0x1000 },
        { S_GLOBAL_CTRL, 8, 0x10 },
        { S_GLOBAL_STATUS, 8, 1ull << 63 },
        { S_DEBUGCTL, 8, 1 },
        { S_SMM_GLOBAL_CTRL, 8, 1 },            /* not in SMM */
        { S_SMM_DEBUGCTL, 8, 1 << 14 },
        { S_SMM_FROZEN, 1, 1 },                 /* FREEZE_WHILE_SMM was 0 */
        { S_REF_FRACTION, 4, 1000 },
        { S_REF_FRACTION + 4, 4, UINT32_MAX },
    };
    g_autofree char *stream = NULL;
    char *section, old[SECTION_SIZE];
    size_t size;
    Guest g;

    guest_init(&g);
    guest_run(&g, SKYLAKE ",pmu=on", 1, "");
    guest_consume(&g, 1);
    guest_save(&g);
    section = read_section(&g, &stream, &size);
    memcpy(old, section, SECTION_SIZE);
    assert_load_fails(&g, SKYLAKE, "performance counters, which this CPU does "
                      "not have");
    assert_load_fails(&g, SKYLAKE ",pmu=on,pmu-version=1",
                      "inconsistent performance counters");
    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        put(section, t[i].offset, t[i].bytes, t[i].val);
        g_assert_true(g_file_set_contents(g.stream, stream, size, NULL));
        assert_load_fails(&g, SKYLAKE ",pmu=on",
                          "inconsistent performance counters");
        memcpy(section, old, SECTION_SIZE);
    }
    /* It was this that was wrong. */
    g_assert_true(g_file_set_contents(g.stream, stream, size, NULL));
    g_assert_true(guest_load(&g, SKYLAKE ",pmu=on", "-S"));
    guest_cleanup(&g);
}

/* A stream that nobody has sent */
static void test_bytes(void)
{
    Guest g, saved;

    guest_start_with_disk(&g, 2);
    guest_cont(&g);
    guest_consume(&g, 10);
    saved = g;
    guest_hmp(&g, "savevm pmu");
    try_section_bytes(g.qts, g.disk, "pmu", "cpu/pmu", SECTION_SIZE,
                      "info pmu");
    guest_hmp(&g, "loadvm pmu");
    memcpy(g.session, saved.session, sizeof(g.session));
    guest_cont(&g);
    guest_consume(&g, 10);
    guest_cleanup(&g);
}

/* They are sent as they are, once the guest has asked for them. */
static void test_clocks(void)
{
    const char *cpu = SKYLAKE ",pmu=on", *name = "cpu/pmu/clocks";
    g_autofree char *before = NULL, *after = NULL;
    size_t size[2];
    char *section[2];
    uint64_t aperf;
    Guest g;

    guest_init(&g);
    guest_start(&g, cpu, "-S -smp 1");
    guest_prepare_all(&g, 1);
    guest_save(&g);
    g_assert_true(g_file_get_contents(g.stream, &before, &size[0], NULL));
    g_assert_null(memmem(before, size[0], name, strlen(name)));
    g_assert_true(guest_load(&g, cpu, "-S"));
    write_msr(&g, AREA(0) + WRITES, 0xe8, 1ull << 40);
    guest_cont(&g);
    guest_wait(&g, 0, SEQ, 1);
    guest_save(&g);
    g_free(before);
    g_assert_true(g_file_get_contents(g.stream, &before, &size[0], NULL));
    assert_load_fails(&g, SKYLAKE ",pmu=on,aperfmperf=off",
                      "inconsistent performance counters");
    g_assert_true(guest_load(&g, cpu, "-S"));
    guest_save(&g);
    g_assert_true(g_file_get_contents(g.stream, &after, &size[1], NULL));
    section[0] = memmem(before, size[0], name, strlen(name));
    section[1] = memmem(after, size[1], name, strlen(name));
    g_assert_true(section[0] && section[1]);
    /* Behind the name come a version, MPERF, and APERF. */
    g_assert_cmpmem(section[0], strlen(name) + 21, section[1],
                    strlen(name) + 21);
    aperf = ldq_be_p(section[0] + strlen(name) + 12);
    g_assert_cmpint(aperf, >, 1ull << 40);
    g_assert_cmpint(aperf, <, 1ull << 41);
    g_assert_cmpint(ldq_be_p(section[0] + strlen(name) + 4), ==,
                    aperf - (1ull << 40));
    g_assert_true(guest_load(&g, cpu, "-S"));
    qtest_qmp_assert_success(g.qts, "{ 'execute': 'system_reset' }");
    qtest_qmp_eventwait(g.qts, "RESET");
    guest_save(&g);
    g_free(after);
    g_assert_true(g_file_get_contents(g.stream, &after, &size[1], NULL));
    g_assert_null(memmem(after, size[1], name, strlen(name)));
    guest_cleanup(&g);
}

/* PEBS is sent when it is used, and refused where there is none. */
static void test_pebs(void)
{
    const char *cpu = SKYLAKE ",pmu=on", *name = "cpu/pmu/pebs";
    const size_t len = strlen(name);
    g_autofree char *before = NULL, *after = NULL, *hmp = NULL;
    size_t size[2];
    char *section[2];
    Guest g;

    guest_init(&g);
    guest_start(&g, cpu, "-S -smp 1");
    guest_prepare_all(&g, 1);
    write_msr(&g, AREA(0) + WRITES, 0x3f1, 8);
    write_msr(&g, AREA(0) + WRITES + 12, 0x3f6, 77);
    guest_cont(&g);
    guest_wait(&g, 0, SEQ, 1);
    guest_save(&g);
    g_assert_true(g_file_get_contents(g.stream, &before, &size[0], NULL));
    assert_load_fails(&g, SKYLAKE ",pmu=on,pebs=off",
                      "inconsistent performance counters");
    g_assert_true(guest_load(&g, cpu, "-S"));
    hmp = qtest_hmp(g.qts, "info pmu");
    g_assert_nonnull(strstr(hmp, "PEBS_LD_LAT_THRESHOLD=004d"));
    guest_save(&g);
    g_assert_true(g_file_get_contents(g.stream, &after, &size[1], NULL));
    section[0] = memmem(before, size[0], name, len);
    section[1] = memmem(after, size[1], name, len);
    g_assert_true(section[0] && section[1]);
    /*
     * Behind the name: a version, PEBS_ENABLE, PEBS_DATA_CFG, what is armed,
     * the threshold, and what chooses loads
     */
    g_assert_cmpmem(section[0], len + 44, section[1], len + 44);
    g_assert_cmphex(ldq_be_p(section[0] + len + 4), ==, 8);
    g_assert_cmphex(ldq_be_p(section[0] + len + 12), ==, 0);
    g_assert_cmphex(ldq_be_p(section[0] + len + 28), ==, 77);
    g_assert_true(guest_load(&g, cpu, "-S"));
    qtest_qmp_assert_success(g.qts, "{ 'execute': 'system_reset' }");
    qtest_qmp_eventwait(g.qts, "RESET");
    guest_save(&g);
    g_free(after);
    g_assert_true(g_file_get_contents(g.stream, &after, &size[1], NULL));
    g_assert_null(memmem(after, size[1], name, len));
    guest_cleanup(&g);
}

/* Pentium 4's registers, of which a stream has any that there can be */
static void test_netburst(void)
{
    const char *cpu = "kvm64,pmu=on", *name = "cpu/pmu/netburst";
    enum { VALUE = 0, CCCR = VALUE + 18 * 8, ESCR = CCCR + 18 * 4,
           SIZE = ESCR + 66 * 4 + 3 * 4 };
    g_autofree char *before = NULL, *after = NULL;
    char *section, *loaded, *hmp;
    size_t size[2];
    Guest g;

    guest_init(&g);
    guest_start(&g, cpu, "-S");
    g.cpus = 1;
    guest_save(&g);
    assert_load_fails(&g, "kvm64,model=7,vendor=AuthenticAMD,pmu=on",
                      "counters of a P4, which this CPU does not have");
    g_assert_true(g_file_get_contents(g.stream, &before, &size[0], NULL));
    section = memmem(before, size[0], name, strlen(name));
    g_assert_nonnull(section);
    section += strlen(name) + 4;                /* and a version */
    stl_be_p(section + CCCR + 4 * 12, 1);       /* reserved */
    g_assert_true(g_file_set_contents(g.stream, before, size[0], NULL));
    assert_load_fails(&g, cpu, "inconsistent performance counters");
    stl_be_p(section + CCCR + 4 * 12, 0x84039000);  /* OVF, ESCR 4, enabled */
    stl_be_p(section + ESCR + 4 * 0x18, 0x0400020c);
    stq_be_p(section + VALUE + 8 * 12, 0xfedcba9876);
    g_assert_true(g_file_set_contents(g.stream, before, size[0], NULL));
    g_assert_true(guest_load(&g, cpu, "-S"));
    hmp = qtest_hmp(g.qts, "info pmu");
    g_assert_nonnull(strstr(hmp, "general 12: 00fedcba9876 select "
                            "0000000084039000 enabled os usr interrupt: "
                            "INSTR_RETIRED.NBOGUSNTAG"));
    g_free(hmp);
    guest_save(&g);
    g_assert_true(g_file_get_contents(g.stream, &after, &size[1], NULL));
    loaded = memmem(after, size[1], name, strlen(name));
    g_assert_nonnull(loaded);
    g_assert_cmpmem(loaded + strlen(name) + 4, SIZE, section, SIZE);
    g_assert_true(guest_load(&g, cpu, "-S"));
    guest_cleanup(&g);
}

/* A CPU at which CPUID faults goes on so; only where CPUID can fault */
static void check_cpuid_fault(const char *without, uint32_t msr, uint64_t val)
{
    g_autofree char *cpu = g_strdup_printf("%s,cpuid-fault=on", without);
    const char *name = "cpu/msr_misc_features_enables";
    g_autofree char *stream = NULL;
    size_t size;
    Guest g;

    guest_init(&g);
    guest_start(&g, cpu, "-S -smp 1");
    guest_prepare_all(&g, 1);
    write_msr(&g, AREA(0) + WRITES, msr, val);
    guest_cont(&g);
    guest_wait(&g, 0, SEQ, 1);
    guest_save(&g);
    assert_load_fails(&g, without, "(cpuid-fault)");
    g_assert_true(guest_load(&g, cpu, ""));
    /* It is sent only if it is set. */
    guest_save(&g);
    g_assert_true(g_file_get_contents(g.stream, &stream, &size, NULL));
    g_assert_nonnull(memmem(stream, size, name, strlen(name)));
    g_assert_true(guest_load(&g, cpu, ""));
    /* Nor does it survive a reset. */
    guest_stop(&g);
    qtest_qmp_assert_success(g.qts, "{ 'execute': 'system_reset' }");
    qtest_qmp_eventwait(g.qts, "RESET");
    guest_save(&g);
    g_assert_true(guest_load(&g, without, ""));
    guest_cleanup(&g);
}

static void test_cpuid_fault(void)
{
    check_cpuid_fault(SKYLAKE ",pmu=on", MSR_MISC_FEATURES_ENABLES, 1);
    check_cpuid_fault("max", MSR_K7_HWCR, 1ull << 35);
}

/* --- reset and hot-plug ------------------------------------------------- */

/* RESET leaves nothing, but enables the general-purpose counters globally. */
static const uint64_t found_at_reset[] = { 0, 0, 0, 0, 0, 0, 0xf };

static void guest_assert_reset(Guest *g, unsigned cpu)
{
    guest_wait(g, cpu, BOOTS, 1);
    for (int i = 0; i < G_N_ELEMENTS(reads); i++) {
        g_assert_cmphex(qtest_readq(g->qts, AREA(cpu) + FOUND + 8 * i), ==,
                        found_at_reset[i]);
    }
}

static void test_reset(void)
{
    Guest g;

    guest_init(&g);
    guest_run(&g, SKYLAKE ",pmu=on", 2, "");
    for (int i = 0; i < 3; i++) {
        guest_consume(&g, 100);
        for (unsigned cpu = 0; cpu < g.cpus; cpu++) {
            guest_assert_reset(&g, cpu);
        }
        qtest_qmp_assert_success(g.qts, "{ 'execute': 'system_reset' }");
        qtest_qmp_eventwait(g.qts, "RESET");
        guest_prepare_all(&g, 2);
        guest_cont(&g);
    }
    guest_consume(&g, 100);
    guest_cleanup(&g);
}

/* A CPU that comes has the state that RESET leaves; CPU 0 does not notice. */
static void test_hotplug(void)
{
    g_autofree char *info = NULL;
    Guest g;

    guest_init(&g);
    guest_run(&g, SKYLAKE ",pmu=on", 1, "-smp 1,sockets=2,maxcpus=2");
    guest_consume(&g, 100);
    guest_cont(&g);
    assert_other(qtest_qmp(g.qts, PLUG ", 'pmu': false } }"));
    assert_other(qtest_qmp(g.qts, PLUG ", 'pmu-version': 3 } }"));
    assert_other(qtest_qmp(g.qts, PLUG ", 'pmu-counters': 8 } }"));
    assert_other(qtest_qmp(g.qts, PLUG ", 'full-width-write': false } }"));
    assert_other(qtest_qmp(g.qts, PLUG ", 'insn-clocks': 2 } }"));
    assert_other(qtest_qmp(g.qts, PLUG ", 'cpuid-fault': true } }"));
    guest_prepare(&g, 1, RUN);
    qtest_qmp_assert_success(g.qts, PLUG " } }");
    info = info_pmu(g.qts, 1);
    g_assert_cmphex(shown(info, "GLOBAL_CTRL="), ==, 0xf);
    g_assert_cmphex(shown(info, "FIXED_CTR_CTRL="), ==, 0);
    g_assert_cmpint(shown(info, "  general 0: "), ==, 0);
    g_assert_cmpint(shown(info, "  fixed 0: "), ==, 0);
    guest_consume(&g, 100);
    g_assert_cmpint(qtest_readl(g.qts, AREA(1) + BOOTS), ==, 0);

    /* CPU 0 starts it when it starts itself. */
    qtest_qmp_assert_success(g.qts, "{ 'execute': 'system_reset' }");
    qtest_qmp_eventwait(g.qts, "RESET");
    guest_prepare_all(&g, 2);
    guest_cont(&g);
    guest_consume(&g, 100);
    guest_assert_reset(&g, 1);
    guest_cleanup(&g);

    guest_init(&g);
    guest_start(&g, SKYLAKE, "-S -smp 1,sockets=2,maxcpus=2");
    assert_other(qtest_qmp(g.qts, PLUG ", 'pmu': true } }"));
    guest_cleanup(&g);

}

/* LBR and BTF may be written where nothing comes of them. */
static void test_debugctl(void)
{
    const MsrWrite writes[] = {
        { MSR_DEBUGCTL, 1 }, { MSR_DEBUGCTL, 2 }, { MSR_DEBUGCTL, 0 },
        { MSR_GLOBAL_CTRL, GLOBAL_CTRL },
    };
    Guest g;

    guest_init(&g);
    guest_start(&g, SKYLAKE ",pmu=on", "-S -smp 1");
    guest_prepare_all(&g, 1);
    write_msrs(&g, 0, 3, writes, G_N_ELEMENTS(writes));
    guest_cont(&g);
    guest_consume(&g, 20);
    guest_cleanup(&g);
}

/* --- monitor and trace events ------------------------------------------- */

/* What the monitor shows of a CPU that has been stopped */
static void check_monitor(Guest *g, unsigned index)
{
    g_autofree char *info = info_pmu(g->qts, index);
    g_autofree char *general =
        g_strdup_printf("  general 0: %012" PRIx64 " select 00000000005200c0 "
                        "enabled os interrupt: INST_RETIRED.ANY_P\r\n"
                        "  general 1: 000000000000 select 0000000000000000\r\n",
                        shown(info, "  general 0: "));
    g_autofree char *fixed =
        g_strdup_printf("  fixed 0: %012" PRIx64 " enabled os: "
                        "INST_RETIRED.ANY\r\n", shown(info, "  fixed 0: "));

    g_assert_nonnull(strstr(info, "  GLOBAL_CTRL=0000000100000001 "));
    g_assert_cmphex(shown(info, "GLOBAL_STATUS=") & ~1ull, ==, 0);
    g_assert_cmphex(shown(info, "FIXED_CTR_CTRL="), ==, 1);
    g_assert_cmphex(shown(info, "DEBUGCTL="), ==, 0);
    g_assert_nonnull(strstr(info, general));
    g_assert_nonnull(strstr(info, fixed));
}

static void test_monitor(void)
{
    int exact = 0;
    Guest g;

    guest_init(&g);
    guest_run(&g, SKYLAKE ",pmu=on", 2, "");
    for (int i = 0; i < 20; i++) {
        guest_consume(&g, 20);
        for (unsigned cpu = 0; cpu < g.cpus; cpu++) {
            exact += check_values(&g, cpu);
            check_monitor(&g, cpu);
        }
        guest_cont(&g);
    }
    g_assert_cmpint(exact, >, 20);
    guest_cleanup(&g);
}

/* Counters of @event and of all branches, beside those of instructions */
static void check_branches(uint64_t event)
{
    const MsrWrite writes[] = {
        /* After RESET each counts at once. */
        { MSR_EVTSEL0 + 2, 0x4200c4 }, { MSR_EVTSEL0 + 1, event },
        { MSR_GLOBAL_CTRL, GLOBAL_CTRL | 6 },
    };
    Guest g;

    guest_init(&g);
    guest_start(&g, SKYLAKE ",pmu=on", "-S");
    guest_prepare_all(&g, 1);
    write_msrs(&g, 0, 3, writes, G_N_ELEMENTS(writes));
    guest_cont(&g);
    for (uint32_t nmis = 2; nmis < 20; nmis++) {
        g_autofree char *info = NULL;
        uint64_t all;

        guest_wait(&g, 0, NMIS, nmis);
        guest_stop(&g);
        info = info_pmu(g.qts, 0);
        all = shown(info, "  general 2: ");
        g_assert_cmpuint(shown(info, "  general 1: "), <=, all);
        g_assert_cmpuint(all, >, 0);
        g_assert_cmpuint(all, <, shown(info, "  fixed 0: "));
        guest_cont(&g);
    }
    guest_cleanup(&g);
}

static void test_branches(void)
{
    check_branches(0x4200c4);   /* no class matters */
    check_branches(0x4220c4);   /* near and taken */
    check_branches(0x4200c5);   /* mispredicted */
}

static void test_trace(void)
{
    static const char *const lines[] = {
        "x86_pmu_wrmsr cpu 0: msr 0x186, val 0x52012e\n",
        "x86_pmu_unknown_event cpu 0: event 0x2e, unit mask 0x1\n",
        "x86_pmu_wrmsr cpu 0: msr 0x186, val 0x5200c0\n",
        "x86_pmu_wrmsr cpu 0: msr 0x38f, val 0x100000001\n",
        "x86_pmu_pmi cpu 0: overflow before ip 0xf00",
        "x86_pmu_wrmsr cpu 0: msr 0x390, val 0x1\n",
    };
    g_autofree char *args = NULL, *text = NULL;
    const char *pos;
    Guest g;

    guest_init(&g);
    args = g_strdup_printf("-S -trace 'x86_pmu_*' -D %s", g.log);
    guest_start(&g, SKYLAKE ",pmu=on", args);
    guest_prepare_all(&g, 1);
    /* The WRMSR of PMC0 is one of EVTSEL0, too; the first event is unknown. */
    write_msr(&g, AREA(0) + WRITES + 12, MSR_EVTSEL0, EVTSEL);
    write_msr(&g, AREA(0) + WRITES, MSR_EVTSEL0, 0x52012e);
    write_msr(&g, AREA(0) + WRITES + 36, MSR_GLOBAL_CTRL, GLOBAL_CTRL);
    write_msr(&g, AREA(0) + WRITES + 24, MSR_PMC0, -(uint64_t)PERIOD);
    guest_cont(&g);
    guest_wait(&g, 0, NMIS, 2);
    guest_quit(&g);

    g_assert_true(g_file_get_contents(g.log, &text, NULL, NULL));
    pos = text;
    for (int i = 0; i < G_N_ELEMENTS(lines); i++) {
        g_test_message("%s", lines[i]);
        pos = strstr(pos, lines[i]);
        g_assert_nonnull(pos);
    }
    guest_cleanup(&g);
}

/* --- interrupts without end ---------------------------------------------- */

/* What a guest does at every instruction of CPU 0 */
typedef struct StormTest {
    const char *name, *cpu;
    uint32_t lvtpc;
    bool amd, progress;     /* progress: one instruction runs between two */
} StormTest;

enum { LVT_SMI = 0x200, LVT_FIXED = 0x40 };

static const StormTest storm_tests[] = {
    { "nmi", SKYLAKE ",pmu=on", LVT_NMI, false, true },
    { "fixed", SKYLAKE ",pmu=on", LVT_FIXED, false, true },
    { "smi", SKYLAKE ",pmu=on", LVT_SMI, false, true },
    /* AMD's do not mask LVTPC: the next one waits for the end of this one. */
    { "nmi-amd", "max,pmu=on,-perfctr-core,-perfmon-v2", LVT_NMI, true },
};

#define STORM_IDT       0x3000          /* with a gate for each vector */
#define STORM_CODE      0x38000         /* of SMM */
#define STORM_SMIS      0x4000          /* counts them */
#define STORM_SECONDS   3
#define ANSWER_SECONDS  10              /* far more than it takes */

#define MSR_K7_EVTSEL0  0xc0010000
#define MSR_K7_PERFCTR0 0xc0010004

/* The code of 16 bits at SMBASE; all it changes is what it has to. */
static const uint8_t smm_code[] = {
    /* push %eax, %ecx, %edx          */ 0x66, 0x50, 0x66, 0x51, 0x66, 0x52,
    /* addr32 incl 0x4000             */ 0x67, 0x66, 0xff, 0x05, 0x00, 0x40,
                                         0x00, 0x00,
    /* addr32 movl $0x200,0xfee00340  */ 0x67, 0x66, 0xc7, 0x05, 0x40, 0x03,
                                         0xe0, 0xfe, 0x00, 0x02, 0x00, 0x00,
    /* mov $0xc1,%ecx                 */ 0x66, 0xb9, 0xc1, 0x00, 0x00, 0x00,
    /* mov $-6,%eax                   */ 0x66, 0xb8, 0xfa, 0xff, 0xff, 0xff,
    /* mov $-1,%edx                   */ 0x66, 0xba, 0xff, 0xff, 0xff, 0xff,
    /* wrmsr                          */ 0x0f, 0x30,
    /* pop %edx, %ecx, %eax           */ 0x66, 0x5a, 0x66, 0x59, 0x66, 0x58,
    /* rsm                            */ 0x0f, 0xaa,
};

/*
 * Give the guest a fixed interrupt: an IDT in RAM, STI, and EOI; or a handler
 * that reads no MSRs of Intel's.
 */
static void storm_patch(Guest *g, const StormTest *t)
{
    /* mov $MSR_K7_PERFCTR0,%ecx            instead of two others */
    static const uint8_t msr[] = { 0xb9, 0x04, 0x00, 0x01, 0xc0 };
    /* pause                                nop; sti */
    static const uint8_t sti[] = { 0x90, 0xfb };
    /* cmpl, jne (HOLD)                     mov %eax,0xfee000b0; nopl */
    static const uint8_t eoi[] = { 0xa3, 0xb0, 0x00, 0xe0, 0xfe,
                                   0x0f, 0x1f, 0x40, 0x00 };
    static const uint8_t idt[] = { 0xff, 0x07, 0x00, 0x30, 0x00, 0x00 };
    g_autofree char *image = NULL;
    gsize size;

    g_assert_true(g_file_get_contents(g->bios, &image, &size, NULL));
    if (t->lvtpc == LVT_FIXED) {
        memcpy(image + 0x63, sti, sizeof(sti));
        memcpy(image + 0x139, eoi, sizeof(eoi));
        memcpy(image + 0x196, idt, sizeof(idt));
    }
    if (t->amd) {
        memcpy(image + 0xc2, msr, sizeof(msr));
        memcpy(image + 0xfb, msr, sizeof(msr));
    }
    g_assert_true(g_file_set_contents(g->bios, image, size, NULL));
}

static void storm_prepare(Guest *g, const StormTest *t)
{
    const uint64_t gate = 0x000f8e00000800bdull;    /* IP_NMI */

    g->cpus = 2;
    guest_prepare(g, 1, RUN);
    guest_prepare(g, 0, START_OTHERS);
    for (int i = 0; i < 256; i++) {
        qtest_writeq(g->qts, STORM_IDT + 8 * i, gate);
    }
    qtest_writel(g->qts, STORM_SMIS, 0);
    qtest_memwrite(g->qts, STORM_CODE, smm_code, sizeof(smm_code));
    guest_rearm(g, 0, HANDLER_REARM + 1);
    for (int cpu = 0; cpu < 2 && t->amd; cpu++) {
        uint64_t area = AREA(cpu);
        uint64_t period = cpu ? PERIOD : 1;

        qtest_writel(g->qts, area + READS, 0);
        write_msr(g, area + REARM, MSR_K7_PERFCTR0 + 1, 0);
        write_msr(g, area + REARM + 12, MSR_K7_PERFCTR0, -period);
        write_msr(g, area + WRITES, MSR_K7_PERFCTR0, -(uint64_t)PERIOD);
        write_msr(g, area + WRITES + 12, MSR_K7_EVTSEL0, EVTSEL | 0x10000);
        qtest_writel(g->qts, area + WRITES + 24, 0);
    }
    qtest_writel(g->qts, AREA(0) + LVTPC, t->lvtpc);
}

/* The gdbstub, by its protocol: send @text and wait for a packet of @kind. */
static void gdb_ask(int fd, const char *text, const char *kinds)
{
    int64_t end = g_get_monotonic_time() + ANSWER_SECONDS * G_TIME_SPAN_SECOND;
    char c, last = 0;

    g_assert_cmpint(write(fd, text, strlen(text)), ==, strlen(text));
    for (;;) {
        GPollFD poll = { .fd = fd, .events = G_IO_IN };

        g_assert_cmpint(g_get_monotonic_time(), <, end);
        if (g_poll(&poll, 1, 100) <= 0) {
            continue;
        }
        g_assert_cmpint(read(fd, &c, 1), ==, 1);
        if (last == '$' && strchr(kinds, c)) {
            break;
        }
        last = c;
    }
    /* The end of the packet, which is acknowledged */
    while (c != '#') {
        g_assert_cmpint(read(fd, &c, 1), ==, 1);
    }
    g_assert_cmpint(read(fd, &c, 1), ==, 1);
    g_assert_cmpint(read(fd, &c, 1), ==, 1);
    g_assert_cmpint(write(fd, "+", 1), ==, 1);
}

static void check_gdb(const char *path)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    g_assert_cmpint(g_strlcpy(addr.sun_path, path, sizeof(addr.sun_path)), <,
                    sizeof(addr.sun_path));
    g_assert_cmpint(connect(fd, (void *)&addr, sizeof(addr)), ==, 0);
    gdb_ask(fd, "+$?#3f", "TS");
    for (int i = 0; i < 5; i++) {
        gdb_ask(fd, "$g#67", "0123456789abcdef");       /* registers */
        gdb_ask(fd, "$s#73", "TS");                     /* step */
        g_assert_cmpint(write(fd, "$c#63", 5), ==, 5);
        g_usleep(50000);
        gdb_ask(fd, "\003", "TS");
    }
    gdb_ask(fd, "$D#44", "O");
    close(fd);
}

/*
 * A counter of CPU 0 interrupts at every instruction, at CPL 0: monitor,
 * gdbstub and the other CPU go on.
 */
static void test_storm(gconstpointer opaque)
{
    const StormTest *t = opaque;
    int64_t end, start;
    g_autofree char *args = NULL;
    bool smi = t->lvtpc == LVT_SMI;
    uint64_t at = smi ? STORM_SMIS : AREA(0) + NMIS;
    uint32_t seq, count;
    Guest g;

    guest_init(&g);
    storm_patch(&g, t);
    args = g_strdup_printf("-S -smp 2 -gdb unix:%s,server=on,wait=off",
                           g.stream);
    guest_start(&g, t->cpu, args);
    storm_prepare(&g, t);
    guest_cont(&g);
    guest_wait(&g, 1, SEQ, 1);

    end = g_get_monotonic_time() + STORM_SECONDS * G_TIME_SPAN_SECOND;
    do {
        g_autofree char *info = NULL;

        count = qtest_readl(g.qts, at);
        seq = qtest_readl(g.qts, AREA(1) + SEQ);
        start = g_get_monotonic_time();
        info = qtest_hmp(g.qts, "info registers -a");
        g_assert_nonnull(strstr(info, "CPU#1"));
        guest_stop(&g);
        if (t->progress && !smi) {
            uint32_t n = qtest_readl(g.qts, at);

            /* The last ones of all, of which none is half overwritten. */
            for (uint32_t i = MAX(3, n - MIN(n, 100)); i + 1 < n; i++) {
                Record r = read_record(&g, 0, i);
                Record r1 = read_record(&g, 0, i + 1);

                g_assert_cmpuint(position(r1.seq, r1.eip, r1.ecx) -
                                 position(r.seq, r.eip, r.ecx), ==, 1);
            }
        }
        guest_cont(&g);
        g_assert_cmpint(g_get_monotonic_time() - start, <,
                        ANSWER_SECONDS * G_TIME_SPAN_SECOND);
        guest_wait(&g, 1, SEQ, seq + 2);
        guest_wait_at(&g, at, count + 2);
    } while (g_get_monotonic_time() < end);

    check_gdb(g.stream);
    seq = qtest_readl(g.qts, AREA(1) + SEQ);
    guest_wait(&g, 1, SEQ, seq + 2);
    g_test_message("%u interrupts, %u rounds of the other CPU",
                   qtest_readl(g.qts, at), seq);
    guest_cleanup(&g);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);

    for (int i = 0; i < G_N_ELEMENTS(model_tests); i++) {
        const ModelTest *t = &model_tests[i];
        g_autofree char *path = g_strdup_printf("/pmu/model/%s", t->name);

        qtest_add_data_func(path, t, test_model);
    }
    qtest_add_func("/pmu/properties", test_properties);
    qtest_add_func("/pmu/aperfmperf", test_aperfmperf);
    qtest_add_func("/pmu/events", test_events);

    /* The guest of the others runs in 64-bit mode. */
    if (!g_str_equal(qtest_get_arch(), "x86_64")) {
        return g_test_run();
    }
    for (int i = 0; i < G_N_ELEMENTS(storm_tests); i++) {
        const StormTest *t = &storm_tests[i];
        g_autofree char *path = g_strdup_printf("/pmu/storm/%s", t->name);

        qtest_add_data_func(path, t, test_storm);
    }
    qtest_add_func("/pmu/migrate/live", test_migrate);
    qtest_add_data_func("/pmu/migrate/snapshot", GUINT_TO_POINTER(1),
                        test_snapshot);
    qtest_add_data_func("/pmu/migrate/snapshot-smp", GUINT_TO_POINTER(2),
                        test_snapshot);
    qtest_add_func("/pmu/migrate/pending", test_pending);
    qtest_add_func("/pmu/migrate/fields", test_fields);
    qtest_add_func("/pmu/migrate/without", test_without);
    qtest_add_func("/pmu/migrate/refused", test_refused);
    qtest_add_func("/pmu/migrate/bytes", test_bytes);
    qtest_add_func("/pmu/migrate/cpuid-fault", test_cpuid_fault);
    qtest_add_func("/pmu/migrate/netburst", test_netburst);
    qtest_add_func("/pmu/migrate/clocks", test_clocks);
    qtest_add_func("/pmu/migrate/pebs", test_pebs);
    qtest_add_func("/pmu/reset", test_reset);
    qtest_add_func("/pmu/hotplug", test_hotplug);
    qtest_add_func("/pmu/debugctl", test_debugctl);
    qtest_add_func("/pmu/monitor", test_monitor);
    qtest_add_func("/pmu/monitor/branches", test_branches);
    qtest_add_func("/pmu/trace", test_trace);
    return g_test_run();
}
