/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling: CPU features as QMP shows them; migration,
 * snapshots, reset and CPU hot-plug of a guest that profiles itself.
 */

#include "qemu/osdep.h"
#include "lwp-guest.h"
#include "x86-section-bytes.h"

/* --- CPU features ------------------------------------------------------- */

static void test_features(gconstpointer opaque)
{
    check_features(opaque, ~OF_MODELS);
}

/* A machine of an earlier release has L3 in CPUID[0x8000001D] as it had. */
static void test_old_machine(void)
{
    static const char *const machines[] = { "pc", "pc-i440fx-9.2" };

    for (int i = 0; i < G_N_ELEMENTS(machines); i++) {
        QTestState *qts = qtest_initf("-machine %s -accel tcg -S -cpu max",
                                      machines[i]);

        g_assert_cmpint(qom_get_bool(qts, "x-l3-cache-topoext"), ==, i == 0);
        qtest_quit(qts);
    }
}

/* +lwp on a CPU that cannot have it is warned of, and taken back. */
static void test_warning(void)
{
    static const char without[] = "LWP needs TCG, level 0xD and xlevel "
                                  "0x8000001C: ";
    g_autofree char *text = warnings("tcg", "qemu64,+lwp,+lwp-ire");
    g_autofree char *none = warnings("tcg", "max,+lwp");
    g_autofree char *level = warnings("tcg", "max,+lwp,level=0xc");
    g_autofree char *accel = warnings("qtest", "max,+lwp");

    g_assert_nonnull(strstr(text, "depends on other features"));
    g_assert_nonnull(strstr(text, ".lwp [bit 15]"));
    g_assert_nonnull(strstr(text, ".lwp-ire [bit 2]"));
    g_assert_null(strstr(none, "TCG doesn't support"));
    g_assert_nonnull(strstr(level, without));
    g_assert_nonnull(strstr(level, ".lwp [bit 15]"));
    g_assert_nonnull(strstr(accel, without));
    g_assert_nonnull(strstr(accel, ".lwp [bit 15]"));
}

static void test_properties(void)
{
    static const PropertyTest t[] = {
        { "max,+lwp,refclk-ratio=1,insn-clocks=1000", NULL },
        { "max,+lwp,refclk-ratio=10000,insn-clocks=1", NULL },
        { "max,+lwp,insn-clocks=x", "'insn-clocks'" },
        { "max,+lwp,refclk-ratio=0",
          "'refclk-ratio' must be between 1 and 10000, not 0" },
        { "max,refclk-ratio=10001",
          "'refclk-ratio' must be between 1 and 10000, not 10001" },
        { "max,+lwp,insn-clocks=0",
          "'insn-clocks' must be between 1 and 1000, not 0" },
        { "Opteron_G5,+lwp,insn-clocks=1001",
          "'insn-clocks' must be between 1 and 1000, not 1001" },
        { "max,+lwp,lwp-latency-max=9",
          "'lwp-latency-max' must be between 10 and 31, not 9" },
        { "max,+lwp,lwp-latency-rnd=5",
          "'lwp-latency-rnd' must be between 0 and 4, not 5" },
    };

    check_properties(t, G_N_ELEMENTS(t));
}

/* What is set, and the default of the other one */
static void test_values(void)
{
    QTestState *qts = qtest_init("-machine pc -accel tcg -S -cpu max,+lwp,"
                                 "insn-clocks=7");
    static const ValueTest t[] = {
        { "insn-clocks", 7 }, { "refclk-ratio", 1000 },
    };

    check_values(qts, t, G_N_ELEMENTS(t));
    qtest_quit(qts);
}

static void test_expansion(void)
{
    check_expansion(~OF_MODELS);
}

/* --- a guest that profiles itself ---------------------------------------- */

static void guest_run(Guest *g, const char *cpu, unsigned cpus, bool fault)
{
    g_autofree char *args = g_strdup_printf("-S -smp %u", cpus);

    guest_start(g, cpu, args);
    guest_prepare_all(g, cpus, fault);
    guest_cont(g);
}

/* Wait until a CPU has taken @n page faults more. */
static void guest_wait_faults(Guest *g, unsigned cpu, uint32_t n)
{
    uint64_t addr = AREA(cpu) + FAULTS;
    uint32_t before = qtest_readl(g->qts, addr);
    int64_t end = deadline();

    while (qtest_readl(g->qts, addr) - before < n) {
        g_assert_cmpint(g_get_monotonic_time(), <, end);
    }
}

/* --- migration and snapshots -------------------------------------------- */

/* Whether a migration has ended, and if it has succeeded. */
static bool migration_ended(QTestState *qts, bool *ok)
{
    QDict *rsp = qtest_qmp(qts, "{ 'execute': 'query-migrate' }");
    const char *status = qdict_get_try_str(qdict_get_qdict(rsp, "return"),
                                           "status") ?: "";
    bool failed = !strcmp(status, "failed");

    *ok = !strcmp(status, "completed");
    qobject_unref(rsp);
    return *ok || failed;
}

/* The same when an incoming migration has ended. */
static bool migrated(QTestState *qts)
{
    bool ok;

    while (!migration_ended(qts, &ok)) {
        g_usleep(1000);
    }
    return ok;
}

static void guest_save(Guest *g)
{
    g_autofree char *uri = g_strdup_printf("file:%s", g->stream);
    bool ok;

    qtest_qmp_assert_success(g->qts, "{ 'execute': 'migrate',"
                             "'arguments': { 'uri': %s } }", uri);
    do {
        /* A guest that waits for room is not being profiled. */
        for (unsigned cpu = 0; cpu < g->cpus; cpu++) {
            guest_poll(g, cpu);
        }
    } while (!migration_ended(g->qts, &ok));
    g_assert_true(ok);
    guest_quit(g);
}

static void guest_load(Guest *g, const char *cpu, const char *args)
{
    g_autofree char *uri = g_strdup_printf("file:%s", g->stream);
    g_autofree char *defer = g_strdup_printf("-incoming defer -smp %u %s",
                                             g->cpus ?: 1, args);

    guest_start(g, cpu, defer);
    qtest_qmp_assert_success(g->qts, "{ 'execute': 'migrate-incoming',"
                             "'arguments': { 'uri': %s,"
                             "'exit-on-error': false } }", uri);
}

static void guest_migrate(Guest *g, const char *cpu)
{
    guest_save(g);
    guest_load(g, cpu, "");
    g_assert_true(migrated(g->qts));
}

typedef struct MigrateTest {
    const char *name;
    const char *cpu;
    unsigned cpus;
    uint32_t flags;
} MigrateTest;

static const MigrateTest migrate_tests[] = {
    { "max", "max,+lwp", 2, PROFILED },
    /* Also shows that Opteron_G5 can set CR4.OSXSAVE. */
    { "Opteron_G5", "Opteron_G5,+lwp", 1, PROFILED_15H },
};

static void test_migrate(gconstpointer opaque)
{
    const MigrateTest *t = opaque;
    Guest g;

    guest_init(&g);
    g.flags = t->flags;
    guest_run(&g, t->cpu, t->cpus, false);
    for (int i = 0; i < 3; i++) {
        guest_consume(&g, 100);
        guest_migrate(&g, t->cpu);
    }
    guest_consume(&g, 100);
    guest_cleanup(&g);
}

static void guest_run_with_disk(Guest *g, unsigned cpus, bool fault)
{
    g_autofree char *args = g_strdup_printf("-S -smp %u" NULL_DRIVE, cpus);

    guest_init(g);
    guest_start(g, "max,+lwp", args);
    guest_create_disk(g);
    guest_prepare_all(g, cpus, fault);
    guest_cont(g);
}

/* Go on from a snapshot, once more after the guest has gone on already. */
static void guest_snapshot(Guest *g)
{
    Guest saved = *g;

    guest_hmp(g, "savevm lwp");
    guest_consume(g, 100);
    guest_hmp(g, "loadvm lwp");
    memcpy(g->session, saved.session, sizeof(g->session));
    guest_hmp(g, "delvm lwp");
}

static void test_snapshot(gconstpointer opaque)
{
    unsigned cpus = GPOINTER_TO_UINT(opaque);
    int number = !g_test_slow() ? 5 : cpus == 1 ? 1000 : 100;
    g_autofree char *args = NULL;
    Guest g;

    guest_run_with_disk(&g, cpus, false);
    for (int i = 0; i < number; i++) {
        guest_consume(&g, g_test_rand_int_range(0, 100));
        guest_snapshot(&g);
        g_test_message("%d snapshots", i + 1);
    }
    guest_consume(&g, 100);

    /* In another QEMU */
    guest_hmp(&g, "savevm lwp");
    guest_quit(&g);
    args = g_strdup_printf("-smp %u -loadvm lwp "
                           "-drive if=none,format=qcow2,file=%s",
                           cpus, g.disk);
    guest_start(&g, "max,+lwp", args);
    guest_consume(&g, 100);
    guest_cleanup(&g);
}

/*
 * Records of two events find that their page of the ring is missing, and
 * wait, while the program gets to them again and again and the other counters
 * go on below zero.  They are stored once, when the page is there (§1.1).
 */
static void test_pending(void)
{
    Guest g;

    guest_run_with_disk(&g, 2, true);
    for (int i = 0; i < 3; i++) {
        for (unsigned cpu = 0; cpu < g.cpus; cpu++) {
            uint64_t area = AREA(cpu);

            guest_wait_faults(&g, cpu, 10);
            g_assert_cmphex(qtest_readq(g.qts, area + FAULT_ADDR), ==,
                            AREA_ADDR + RING);
            g_assert_cmphex(qtest_readq(g.qts, area + FAULT_IP), ==, IP_LWPINS);
            g_assert_cmphex(qtest_readl(g.qts, area + CB_HEAD), ==, 0);
        }
        if (i == 0) {
            guest_hmp(&g, "savevm lwp");
            guest_hmp(&g, "loadvm lwp");
        } else if (i == 1) {
            guest_migrate(&g, "max,+lwp");
        }
    }
    for (unsigned cpu = 0; cpu < g.cpus; cpu++) {
        qtest_writel(g.qts, AREA(cpu) + PRESENT, 1);
    }
    guest_consume(&g, 100);
    guest_cleanup(&g);
}

/* Whether the guest, which this ends, sends any LWP state. */
static bool sends_state(Guest *g)
{
    g_autofree char *stream = NULL;
    size_t size;

    guest_save(g);
    g_assert_true(g_file_get_contents(g->stream, &stream, &size, NULL));
    return memmem(stream, size, "cpu/lwp", 7) != NULL;
}

/* A guest that has not touched LWP sends nothing about it. */
static void test_not_needed(void)
{
    Guest g;

    guest_init(&g);
    guest_start(&g, "max,+lwp", "-S");
    g_assert_false(sends_state(&g));
    guest_run(&g, "max,+lwp", 1, false);
    guest_consume(&g, 1);
    g_assert_true(sends_state(&g));
    guest_cleanup(&g);
}

#define SECTION_HEADER  (7 + 4)     /* name, version */
#define SECTION_SIZE    302

/*
 * Read the stream of a guest that uses LWP.  Returns the fields of its
 * subsection, which lie in *@stream; the caller frees that.
 */
static char *read_section(Guest *g, char **stream, size_t *size)
{
    char *section;

    g_assert_true(g_file_get_contents(g->stream, stream, size, NULL));
    section = memmem(*stream, *size, "cpu/lwp", 7);
    g_assert_nonnull(section);
    return section + SECTION_HEADER;
}

/* The stream of a guest that has been using LWP, as read_section() reads it. */
static char *save_section(Guest *g, char **stream, size_t *size)
{
    guest_run(g, "max,+lwp", 1, false);
    guest_consume(g, 10);
    guest_save(g);
    return read_section(g, stream, size);
}

/*
 * Every field survives: the subsection is changed, loaded, saved again, and
 * compared.
 */
static void test_fields(void)
{
    static const struct {
        int offset, bytes;
        uint64_t val;
    } t[] = {
        { 0, 8, 0xa55a00000046 },                   /* cfg */
        { 24, 8, 0x0123456789abcdef },              /* prng */
        { 32, 8, 0xfedcba9876543210 },              /* ip_first */
        { 40, 8, 0x13579bdf02468ace },              /* ip_span */
        { 48, 8, 0x1122334455667788 },              /* deferred_ip */
        { 56, 8, 0x99aabbccddeeffc8 },              /* pending[0] */
        { 64, 8, 0x1111111111111111 },
        { 72, 8, 0x2222222222222222 },
        { 80, 8, 0x3333333333333333 },
        { 88, 8, 0x8002 },                          /* pending[1] */
        { 216, 8, 0x4444444444444444 },             /* pending[5] */
        { 248, 4, 0xfe000000 },                     /* counter[0] */
        { 268, 4, 0x1234567 },                      /* counter[5] */
        { 272, 4, 0x800 },                          /* size */
        { 276, 4, 0x7e0 },                          /* head */
        { 280, 4, 0x46 },                           /* flags */
        { 284, 4, 0x89abcdef },                     /* filters */
        { 288, 4, 999 },                            /* ref_fraction */
        { 292, 4, 2 },                              /* npending */
        { 296, 1, 2 },                              /* ip_filter */
        { 297, 1, 1 },                              /* deferred */
    };
    g_autofree char *before = NULL, *after = NULL;
    char *section, *saved;
    size_t size;
    Guest g;

    guest_init(&g);
    section = save_section(&g, &before, &size);
    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        for (int b = 0; b < t[i].bytes; b++) {
            section[t[i].offset + b] = t[i].val >> (8 * (t[i].bytes - 1 - b));
        }
    }
    g_assert_true(g_file_set_contents(g.stream, before, size, NULL));

    guest_load(&g, "max,+lwp", "-S");
    g_assert_true(migrated(g.qts));
    guest_save(&g);
    saved = read_section(&g, &after, &size);
    g_assert_cmpmem(saved, SECTION_SIZE, section, SECTION_SIZE);
    guest_cleanup(&g);
}

static void assert_load_fails(Guest *g, const char *cpu, const char *message)
{
    g_autofree char *args = g_strdup_printf("%s 2>%s", cpu, g->log);
    g_autofree char *text = NULL;

    guest_load(g, args, "");
    g_assert_false(migrated(g->qts));
    guest_quit(g);
    g_assert_true(g_file_get_contents(g->log, &text, NULL, NULL));
    g_assert_nonnull(strstr(text, message));
}

static void test_refused(void)
{
    g_autofree char *stream = NULL;
    char *section;
    size_t size;
    Guest g;

    guest_init(&g);
    section = save_section(&g, &stream, &size);
    assert_load_fails(&g, "max", "LWP, which this CPU does not have");
    assert_load_fails(&g, "max,+lwp,-lwp-val", "inconsistent LWP state");

    /* Bit 0 of LWP_CFG, which comes first and is big-endian, is never set. */
    section[7] |= 1;
    g_assert_true(g_file_set_contents(g.stream, stream, size, NULL));
    assert_load_fails(&g, "max,+lwp", "inconsistent LWP state");

    /* A QEMU without LWP does not know the subsection, and says so or not. */
    section[-5] = 'x';
    g_assert_true(g_file_set_contents(g.stream, stream, size, NULL));
    assert_load_fails(&g, "max,+lwp", "");
    guest_cleanup(&g);
}

/* A stream that nobody has sent */
static void test_bytes(void)
{
    Session saved[MAX_CPUS];
    Guest g;

    guest_run_with_disk(&g, 2, false);
    guest_consume(&g, 10);
    qtest_qmp_assert_success(g.qts, "{ 'execute': 'stop' }");
    guest_poll(&g, 0);
    guest_poll(&g, 1);
    memcpy(saved, g.session, sizeof(saved));
    guest_hmp(&g, "savevm lwp");
    try_section_bytes(g.qts, g.disk, "lwp", "cpu/lwp", SECTION_SIZE,
                      "info lwp");
    guest_hmp(&g, "loadvm lwp");
    memcpy(g.session, saved, sizeof(saved));
    guest_cont(&g);
    guest_consume(&g, 10);
    guest_cleanup(&g);
}

/* EIP in the stream of a guest that is in its loop; EFLAGS follows it. */
static uint8_t *find_eip(char *stream, size_t size)
{
    for (size_t i = 0; i + 20 <= size; i++) {
        uint8_t *p = (uint8_t *)stream + i;
        uint64_t ip = ldq_be_p(p);

        if ((ip == IP_LOOP || ip == IP_LOOP + 2) && ldq_be_p(p + 8) < 0x1000 &&
            (p[19] & 3) == 3) {
            return p;
        }
    }
    return NULL;
}

/*
 * The hidden flags in a stream do not tell whether LWP counts: a CPU whose
 * subsection has been lost, or never was, runs without it.
 */
static void test_hidden_flags(void)
{
    uint8_t *eip;
    Guest g;

    guest_init(&g);
    for (int i = 0; ; i++) {
        g_autofree char *stream = NULL;
        char *section;
        size_t size;

        section = save_section(&g, &stream, &size);
        eip = find_eip(stream, size);
        if (eip) {
            /* All those that QEMU has no other use for; next is a load. */
            eip[16] |= 0xe0;
            eip[19] |= 4;
            stq_be_p(eip, IP_LOAD);
            section -= SECTION_HEADER + 2;
            size -= SECTION_HEADER + 2 + SECTION_SIZE;
            memmove(section, section + SECTION_HEADER + 2 + SECTION_SIZE,
                    stream + size - section);
            g_assert_true(g_file_set_contents(g.stream, stream, size, NULL));
            break;
        }
        g_assert_cmpint(i, <, 10);
    }
    guest_load(&g, "max,+lwp", "");
    g_assert_true(migrated(g.qts));
    /* It still does what it is told to do. */
    guest_forget(&g);
    qtest_writel(g.qts, AREA(0) + COMMAND, TRIPLE_FAULT);
    qtest_qmp_eventwait(g.qts, "RESET");
    guest_cleanup(&g);
}

/* --- reset and hot-plug ------------------------------------------------- */

/* Reset in the middle of a session leaves nothing, and the next one works. */
static void test_reset(gconstpointer opaque)
{
    bool triple_fault = opaque;
    Guest g;

    guest_init(&g);
    guest_run(&g, "max,+lwp", 2, false);
    guest_consume(&g, 100);
    guest_forget(&g);
    if (triple_fault) {
        qtest_writel(g.qts, AREA(0) + COMMAND, TRIPLE_FAULT);
        qtest_qmp_eventwait(g.qts, "RESET");
        guest_prepare_all(&g, 2, false);
    } else {
        qtest_qmp_assert_success(g.qts, "{ 'execute': 'stop' }");
        qtest_qmp_assert_success(g.qts, "{ 'execute': 'system_reset' }");
        qtest_qmp_eventwait(g.qts, "RESET");
        guest_prepare_all(&g, 2, false);
        guest_cont(&g);
    }
    guest_consume(&g, 100);
    for (unsigned cpu = 0; cpu < g.cpus; cpu++) {
        guest_assert_reset(&g, cpu);
    }

    qtest_qmp_assert_success(g.qts, "{ 'execute': 'stop' }");
    qtest_qmp_assert_success(g.qts, "{ 'execute': 'system_reset' }");
    qtest_qmp_eventwait(g.qts, "RESET");
    g_assert_false(sends_state(&g));
    guest_cleanup(&g);
}

/* A CPU that differs from the others is refused. */
static void assert_other(QDict *rsp)
{
    const char *text = qdict_get_str(qdict_get_qdict(rsp, "error"), "desc");

    g_assert_nonnull(strstr(text, "must be the same for all CPUs"));
    qobject_unref(rsp);
}

/* CPUs come and go while CPU 0 is profiled, more than "maxcpus" in all. */
static void test_hotplug(void)
{
    Guest g;

    guest_init(&g);
    g.flags = PROFILED_15H;
    guest_run_to_plug(&g);
    assert_other(qtest_qmp(g.qts, PLUG ", 'insn-clocks': 2 } }"));
    assert_other(qtest_qmp(g.qts, PLUG ", 'lwp-int': false } }"));
    assert_other(qtest_qmp(g.qts, PLUG ", 'lwp': false } }"));
    for (int i = 0; i < 3; i++) {
        guest_plug(&g);
        guest_unplug(&g);
    }
    guest_cleanup(&g);
}

/* --- monitor and trace events ------------------------------------------- */

/* Without LWP, or while it is disabled. */
static void assert_no_profile(Guest *g, const char *line)
{
    g_autofree char *info = qtest_hmp(g->qts, "info lwp");
    g_autofree char *registers = qtest_hmp(g->qts, "info registers");

    g_assert_cmpstr(info, ==, line);
    g_assert_null(strstr(registers, "LWP"));
}

/* What the monitor shows of a CPU that has been stopped while profiled. */
static void check_monitor(Guest *g)
{
    static const char *const names[NR_EVENTS] = {
        [E_VAL] = "  val ", [E_IRE] = "  ire ", [E_CNH] = "  cnh ",
    };
    g_autofree char *info = qtest_hmp(g->qts, "info lwp");
    g_autofree char *registers = qtest_hmp(g->qts, "info registers");
    g_auto(GStrv) lines = g_strsplit(info, "\r\n", -1);
    const Session *s = &g->session[0];
    g_autofree char *ring =
        g_strdup_printf("  ring %016x size %08x head %08x filters 00000000 "
                        "pending 0", AREA_ADDR + RING, RING_SIZE, s->tail);
    g_autofree char *line = NULL;
    int64_t left[NR_EVENTS] = { };

    g_assert_cmpstr(lines[0], ==, "CPU #0: LWP_CFG=0000415a80000026 "
                    "LWP_CBADDR=0000000000200000");
    g_assert_cmpstr(lines[1], ==, ring);
    for (char **counter = lines + 2; **counter; counter++) {
        int event = 1;
        char *end;

        while (!names[event] || !g_str_has_prefix(*counter, names[event])) {
            g_assert_cmpint(++event, <, NR_EVENTS);
        }
        left[event] = g_ascii_strtoll(*counter + strlen(names[event]), &end,
                                      10);
        g_assert_cmpstr(end, ==, "");
        g_assert_cmpint(left[event], <=, interval[event]);
    }

    /* Each instruction is one clock. */
    g_assert_cmpint(left[E_IRE] - left[E_CNH], ==,
                    (int64_t)(s->due[E_IRE] - s->due[E_CNH]));
    /* LWPVAL comes right behind LWPINS. */
    g_assert_cmpint(s->due[E_VAL] - left[E_VAL] - s->seq, <=, 1);
    g_assert_nonnull(strstr(registers, "LWP_CBADDR=0000000000200000"));
    line = g_strdup_printf("LWP VAL=%" PRId64 " IRE=%" PRId64 " CNH=%" PRId64,
                           left[E_VAL], left[E_IRE], left[E_CNH]);
    g_assert_nonnull(strstr(registers, line));
}

/*
 * What -d cpu shows of a counter while blocks run: they have charged what they
 * do to a budget, and nobody has been told of that yet.
 */
static void check_log(Guest *g)
{
    g_autofree char *file = g_strdup_printf("logfile %s", g->log);
    g_autofree char *text = NULL;
    unsigned shown = 0, same = 0;
    int64_t last = -1;

    qtest_qmp_assert_success(g->qts, "{ 'execute': 'stop' }");
    guest_poll(g, 0);
    guest_hmp(g, file);
    guest_hmp(g, "log cpu,nochain");
    guest_cont(g);
    guest_consume(g, 2);
    guest_hmp(g, "log none");
    g_assert_true(g_file_get_contents(g->log, &text, NULL, NULL));
    for (const char *s = text; (s = strstr(s, " IRE=")); shown++) {
        int64_t left = g_ascii_strtoll(s += 5, NULL, 10);

        same += left == last;
        last = left;
    }
    g_assert_cmpuint(shown, >, 100);
    g_assert_cmpuint(same, <, shown / 4);
}

static void test_monitor(void)
{
    Guest g;

    guest_init(&g);
    guest_start(&g, "max", "-S");
    assert_no_profile(&g, "No CPU has LWP\r\n");
    guest_quit(&g);

    g.flags |= 1u << 31;
    guest_start(&g, "max,+lwp", "-S");
    assert_no_profile(&g, "CPU #0: LWP_CFG=0000000000000000 "
                      "LWP_CBADDR=0000000000000000\r\n");
    guest_prepare_all(&g, 1, false);
    qtest_writeq(g.qts, AREA(0) + CFG, 0x415a80000000 | PROFILED);
    guest_cont(&g);
    for (int i = 0; i < 5; i++) {
        guest_consume(&g, 20);
        qtest_qmp_assert_success(g.qts, "{ 'execute': 'stop' }");
        guest_poll(&g, 0);
        check_monitor(&g);
        guest_cont(&g);
    }
    check_log(&g);
    guest_cleanup(&g);
}

/*
 * Trace events.  A record finds its page of the ring missing, is then stored
 * and causes an interrupt; there is no room for the next one.
 */
static void test_trace(void)
{
    static const char *const lines[] = {
        "lwp_enable cpu 0 cbaddr 0x200000 events 0x26 base 0x280000 "
            "size 0x80000\n",
        "lwp_fault cpu 0 addr 0x280000 len 32\n",
        "lwp_store cpu 0 event 2 ip 0xf0178 addr 0x280000\n",
        "lwp_interrupt cpu 0 vector 0x41\n",
        "lwp_missed cpu 0 event 255 ip 0xf017e\n",
    };
    g_autofree char *args = NULL;
    g_autofree char *text = NULL;
    int64_t end = deadline();
    const char *pos;
    Guest g;

    guest_init(&g);
    g.flags |= 1u << 31;
    args = g_strdup_printf("-S -trace 'lwp_*' -D %s", g.log);
    guest_start(&g, "max,+lwp", args);
    guest_prepare_all(&g, 1, true);
    qtest_writeq(g.qts, AREA(0) + CFG, 0x415a80000000 | PROFILED);
    guest_cont(&g);
    guest_wait_faults(&g, 0, 1);
    qtest_writel(g.qts, AREA(0) + CB_TAIL, 64);
    qtest_writel(g.qts, AREA(0) + PRESENT, 1);
    while (qtest_readq(g.qts, AREA(0) + CB_MISSED) < 2) {
        g_assert_cmpint(g_get_monotonic_time(), <, end);
    }
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

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);

    for (int i = 0; i < G_N_ELEMENTS(feature_tests); i++) {
        const FeatureTest *t = &feature_tests[i];
        g_autofree char *path = g_strdup_printf("/lwp/features/%s", t->name);

        qtest_add_data_func(path, t, test_features);
    }
    qtest_add_func("/lwp/features/warning", test_warning);
    qtest_add_func("/lwp/features/old-machine", test_old_machine);
    qtest_add_func("/lwp/features/expansion", test_expansion);
    qtest_add_func("/lwp/features/properties", test_properties);
    qtest_add_func("/lwp/features/values", test_values);

    /* The guest of the others runs in 64-bit mode. */
    if (!g_str_equal(qtest_get_arch(), "x86_64")) {
        return g_test_run();
    }
    for (int i = 0; i < G_N_ELEMENTS(migrate_tests); i++) {
        const MigrateTest *t = &migrate_tests[i];
        g_autofree char *path = g_strdup_printf("/lwp/migrate/%s", t->name);

        qtest_add_data_func(path, t, test_migrate);
    }
    qtest_add_data_func("/lwp/migrate/snapshot", GUINT_TO_POINTER(1),
                        test_snapshot);
    qtest_add_data_func("/lwp/migrate/snapshot-smp", GUINT_TO_POINTER(2),
                        test_snapshot);
    qtest_add_func("/lwp/migrate/pending", test_pending);
    qtest_add_func("/lwp/migrate/not-needed", test_not_needed);
    qtest_add_func("/lwp/migrate/fields", test_fields);
    qtest_add_func("/lwp/migrate/refused", test_refused);
    qtest_add_func("/lwp/migrate/bytes", test_bytes);
    qtest_add_func("/lwp/migrate/hidden-flags", test_hidden_flags);
    qtest_add_data_func("/lwp/reset/system", NULL, test_reset);
    qtest_add_data_func("/lwp/reset/triple-fault", (void *)1, test_reset);
    qtest_add_func("/lwp/hotplug", test_hotplug);
    qtest_add_func("/lwp/monitor", test_monitor);
    qtest_add_func("/lwp/trace", test_trace);
    return g_test_run();
}
