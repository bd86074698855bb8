/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling: CPU features as QMP shows them, and migration of
 * a guest that profiles itself.
 */

#include "qemu/osdep.h"
#include "libqtest.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"
#include "qobject/qnum.h"

/* --- CPU features ------------------------------------------------------- */

static const char *const lwp_features[] = {
    "lwp-val", "lwp-ire", "lwp-bre", "lwp-dme", "lwp-cnh", "lwp-rnh",
    "lwp-data-address", "lwp-branch-prediction", "lwp-ip-filtering",
    "lwp-cache-levels", "lwp-cache-latency", "lwp-int",
};

enum {
    NONE = 0,
    VAL = 1 << 0,
    BRE = 1 << 2,
    DME = 1 << 3,
    ADDRESS = 1 << 6,
    PREDICTION = 1 << 7,
    LEVELS = 1 << 9,
    LATENCY = 1 << 10,
    FAMILY_15H = VAL | 1 << 1 | BRE,
    ALL = (1 << 11) - 1,    /* lwp-int has a name only */
};

typedef struct FeatureTest {
    const char *name;
    const char *cpu;
    uint32_t features;      /* bits of lwp_features[]; LWP goes with them */
    uint32_t xlevel;        /* at least */
} FeatureTest;

static const FeatureTest feature_tests[] = {
    { "max",                "max", NONE, 0 },
    { "max+lwp",            "max,+lwp", ALL, 0x8000001c },
    { "max=on",             "max,lwp=on", ALL, 0x8000001c },
    { "max+lwp-val-only",   "max,+lwp-val", NONE, 0 },
    { "max+lwp-no-val",     "max,+lwp,-lwp-val", ALL & ~VAL, 0x8000001c },
    { "max+lwp-no-dme",     "max,+lwp,-lwp-dme",
      ALL & ~(DME | ADDRESS | LEVELS | LATENCY), 0x8000001c },
    { "max+lwp-no-bre",     "max,+lwp,-lwp-bre", ALL & ~(BRE | PREDICTION),
      0x8000001c },
    { "max+lwp-no-levels",  "max,+lwp,-lwp-cache-levels", ALL & ~LEVELS,
      0x8000001c },
    { "max+lwp-no-predictor", "max,+lwp,lwp-branch-predictor=off",
      ALL & ~PREDICTION, 0x8000001c },
    { "max+lwp-xsave",      "max,+lwp,-xsave", NONE, 0 },
    { "qemu64+lwp",         "qemu64,+lwp", NONE, 0 },
    { "qemu64+xsave+lwp",   "qemu64,+xsave,+lwp", ALL, 0x8000001c },
    { "G4",                 "Opteron_G4", NONE, 0x8000001a },
    { "G4+lwp",             "Opteron_G4,+lwp", FAMILY_15H, 0x8000001c },
    { "G5+lwp",             "Opteron_G5,+lwp", FAMILY_15H, 0x8000001c },
    { "max+lwp-unimplemented", "max,+lwp,+lwp-int", ALL, 0x8000001c },
    { "G5+lwp+dme",         "Opteron_G5,+lwp,+lwp-dme,-lwp-data-address",
      FAMILY_15H | DME | LEVELS | LATENCY, 0x8000001c },
    { "max+lwp+xlevel",     "max,+lwp,xlevel=0x80000008", NONE, 0 },
    { "max+lwp+level",      "max,+lwp,level=7", NONE, 0 },
};

static QDict *qom_get(QTestState *qts, const char *property)
{
    return qtest_qmp(qts, "{ 'execute': 'qom-get', 'arguments': {"
                     "'path': '/machine/unattached/device[0]',"
                     "'property': %s } }", property);
}

static bool qom_get_bool(QTestState *qts, const char *property)
{
    QDict *rsp = qom_get(qts, property);
    bool val = qdict_get_bool(rsp, "return");

    qobject_unref(rsp);
    return val;
}

static void test_features(gconstpointer opaque)
{
    const FeatureTest *t = opaque;
    QTestState *qts = qtest_initf("-machine pc -accel tcg -S -cpu %s"
                                  " 2>/dev/null", t->cpu);
    QDict *rsp = qom_get(qts, "xlevel");

    g_assert_cmphex(qdict_get_int(rsp, "return"), >=, t->xlevel);
    if (!t->features) {
        g_assert_cmphex(qdict_get_int(rsp, "return"), !=, 0x8000001c);
    }
    qobject_unref(rsp);
    g_assert_cmpint(qom_get_bool(qts, "lwp"), ==, t->features != 0);
    for (int i = 0; i < G_N_ELEMENTS(lwp_features); i++) {
        g_assert_cmpint(qom_get_bool(qts, lwp_features[i]), ==,
                        t->features >> i & 1);
    }
    qtest_quit(qts);
}

/* What QEMU has to say about a CPU. */
static char *warnings(const char *cpu)
{
    g_autofree char *log = g_strdup_printf("%s/lwp-test-%d.log",
                                           g_get_tmp_dir(), getpid());
    char *text;

    qtest_quit(qtest_initf("-machine pc -accel tcg -S -cpu %s 2>%s",
                           cpu, log));
    g_assert_true(g_file_get_contents(log, &text, NULL, NULL));
    unlink(log);
    return text;
}

/* +lwp on a CPU without XSAVE is warned of like any missing dependency. */
static void test_warning(void)
{
    g_autofree char *text = warnings("qemu64,+lwp,+lwp-ire");
    g_autofree char *none = warnings("max,+lwp");

    g_assert_nonnull(strstr(text, "depends on other features"));
    g_assert_nonnull(strstr(text, ".lwp [bit 15]"));
    g_assert_nonnull(strstr(text, ".lwp-ire [bit 2]"));
    g_assert_null(strstr(none, "TCG doesn't support"));
}

/* A property out of its range ends QEMU with a sentence that names both. */
static void test_properties(void)
{
    static const struct {
        const char *cpu, *message;      /* NULL: it is accepted */
    } t[] = {
        { "max,+lwp,lwp-refclk-ratio=1,lwp-insn-clocks=1000", NULL },
        { "max,+lwp,lwp-refclk-ratio=10000,lwp-insn-clocks=1", NULL },
        { "max,+lwp,lwp-refclk-ratio=0",
          "'lwp-refclk-ratio' must be between 1 and 10000, not 0" },
        { "max,lwp-refclk-ratio=10001",
          "'lwp-refclk-ratio' must be between 1 and 10000, not 10001" },
        { "max,+lwp,lwp-insn-clocks=0",
          "'lwp-insn-clocks' must be between 1 and 1000, not 0" },
        { "Opteron_G5,+lwp,lwp-insn-clocks=1001",
          "'lwp-insn-clocks' must be between 1 and 1000, not 1001" },
        { "max,+lwp,lwp-l1d-size=32K,lwp-l1d-assoc=8,lwp-l2-size=64M,"
          "lwp-l3-size=0,lwp-latency-max=31,lwp-latency-rnd=0,"
          "lwp-branch-predictor=gshare", NULL },
        { "max,+lwp,lwp-l1d-size=512",
          "'lwp-l1d-size' must be between 1024 and 1048576, not 512" },
        { "max,+lwp,lwp-l2-assoc=0",
          "'lwp-l2-assoc' must be between 1 and 128, not 0" },
        { "max,+lwp,lwp-l3-size=3M", "'lwp-l3-size' and 'lwp-l3-assoc'" },
        { "max,+lwp,lwp-dram-latency=1000001",
          "'lwp-dram-latency' must be between 1 and 1000000, not 1000001" },
        { "max,+lwp,lwp-latency-max=9",
          "'lwp-latency-max' must be between 10 and 31, not 9" },
        { "max,+lwp,lwp-latency-rnd=5",
          "'lwp-latency-rnd' must be between 0 and 4, not 5" },
        { "max,+lwp,lwp-branch-predictor=tage",
          "'lwp-branch-predictor' must be 'gshare' or 'off', not 'tage'" },
        { "max,+lwp,-lwp-cache-levels,-lwp-cache-latency",
          "'lwp-dme' needs 'lwp-cache-levels' or 'lwp-cache-latency'" },
        { "max,+lwp,lwp-branch-predictor=off,+lwp-branch-prediction",
          "'lwp-branch-prediction' needs a predictor" },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        const char *argv[] = {
            getenv("QTEST_QEMU_BINARY"), "-machine", "pc", "-accel", "tcg",
            "-display", "none", "-cpu", t[i].cpu, NULL
        };
        g_autofree char *text = NULL;
        int status;

        if (!t[i].message) {
            text = warnings(t[i].cpu);
            g_assert_cmpstr(text, ==, "");
            continue;
        }
        g_assert_true(g_spawn_sync(NULL, (char **)argv, NULL, 0, NULL, NULL,
                                   NULL, &text, &status, NULL));
        g_assert_cmpint(status, !=, 0);
        g_assert_nonnull(strstr(text, t[i].message));
    }
}

static QDict *expand(QTestState *qts, const char *type, bool lwp)
{
    QDict *rsp = qtest_qmp(qts, "{ 'execute': 'query-cpu-model-expansion',"
                           "'arguments': { 'type': %s, 'model': {"
                           "'name': 'max', 'props': { 'lwp': %i } } } }",
                           type, lwp);
    QDict *props = qdict_get_qdict(qdict_get_qdict(qdict_get_qdict(rsp,
                                   "return"), "model"), "props");

    qobject_ref(props);
    qobject_unref(rsp);
    return props;
}

static void test_expansion(void)
{
    QTestState *qts = qtest_init("-machine none -accel tcg");

    for (int lwp = 0; lwp < 2; lwp++) {
        QDict *props = expand(qts, "full", lwp);

        g_assert_cmpint(qdict_get_bool(props, "lwp"), ==, lwp);
        for (int i = 0; i < G_N_ELEMENTS(lwp_features); i++) {
            g_assert_cmpint(qdict_get_bool(props, lwp_features[i]), ==,
                            lwp && (ALL >> i & 1));
        }
        qobject_unref(props);
    }
    qtest_quit(qts);
}

/* --- migration ---------------------------------------------------------- */

#define CB          0x10000
#define RING        0x20000
#define RING_SIZE   0x400
#define COUNTER     0x1ffffff
#define BIOS_SIZE   0x10000

/*
 * The last 64 KiB below 4 GiB.  In 32-bit protected mode, make LWP available
 * with COREID 5Ah, then for ever insert records that hold a sequence number
 * and what is left of the counter of LWPVAL, which runs once for each.
 */
static const uint8_t guest_code[] = {
    /* cli                        */ 0xfa,
    /* lgdtl %cs:0xb8             */ 0x2e, 0x66, 0x0f, 0x01, 0x16, 0xb8, 0x00,
    /* mov $0x1,%eax              */ 0x66, 0xb8, 0x01, 0x00, 0x00, 0x00,
    /* mov %eax,%cr0              */ 0x0f, 0x22, 0xc0,
    /* ljmpl $0x8,$0xffff0019     */ 0x66, 0xea, 0x19, 0x00, 0xff, 0xff, 0x08,
                                     0x00,
    /* mov $0x10,%eax             */ 0xb8, 0x10, 0x00, 0x00, 0x00,
    /* mov %eax,%ds               */ 0x8e, 0xd8,
    /* mov $0x40000,%eax          */ 0xb8, 0x00, 0x00, 0x04, 0x00,
    /* mov %eax,%cr4              */ 0x0f, 0x22, 0xe0,
    /* xor %ecx,%ecx              */ 0x31, 0xc9,
    /* mov $0x1,%eax              */ 0xb8, 0x01, 0x00, 0x00, 0x00,
    /* mov $0x40000000,%edx       */ 0xba, 0x00, 0x00, 0x00, 0x40,
    /* xsetbv                     */ 0x0f, 0x01, 0xd1,
    /* mov $0xc0000105,%ecx       */ 0xb9, 0x05, 0x01, 0x00, 0xc0,
    /* mov $0x2,%eax              */ 0xb8, 0x02, 0x00, 0x00, 0x00,
    /* mov $0x5a,%edx             */ 0xba, 0x5a, 0x00, 0x00, 0x00,
    /* wrmsr                      */ 0x0f, 0x30,
    /* mov $CB,%esi               */ 0xbe, 0x00, 0x00, 0x01, 0x00,
    /* movl $0x2,(%esi)           */ 0xc7, 0x06, 0x02, 0x00, 0x00, 0x00,
    /* movl $0x400,0x4(%esi)      */ 0xc7, 0x46, 0x04, 0x00, 0x04, 0x00, 0x00,
    /* movl $RING,0x8(%esi)       */ 0xc7, 0x46, 0x08, 0x00, 0x00, 0x02, 0x00,
    /* movl $COUNTER,0x80(%esi)   */ 0xc7, 0x86, 0x80, 0x00, 0x00, 0x00,
                                     0xff, 0xff, 0xff, 0x01,
    /* movl $COUNTER,0x84(%esi)   */ 0xc7, 0x86, 0x84, 0x00, 0x00, 0x00,
                                     0xff, 0xff, 0xff, 0x01,
    /* llwpcb %esi                */ 0x8f, 0xe9, 0x78, 0x12, 0xc6,
    /* xor %ebx,%ebx              */ 0x31, 0xdb,
    /* 7c: mov 0x84(%esi),%edx    */ 0x8b, 0x96, 0x84, 0x00, 0x00, 0x00,
    /* lwpins $0x1234,%ebx,%edx   */ 0x8f, 0xea, 0x68, 0x12, 0xc3,
                                     0x34, 0x12, 0x00, 0x00,
    /* jc 7c                      */ 0x72, 0xef,
    /* inc %ebx                   */ 0x43,
    /* lwpval $0x0,%ebx,%ebx      */ 0x8f, 0xea, 0x60, 0x12, 0xcb,
                                     0x00, 0x00, 0x00, 0x00,
    /* slwpcb %eax                */ 0x8f, 0xe9, 0x78, 0x12, 0xc8,
    /* jmp 7c                     */ 0xeb, 0xde,
    /* nop; nop                   */ 0x90, 0x90,
    /* a0: null, code, data       */ 0, 0, 0, 0, 0, 0, 0, 0,
                                     0xff, 0xff, 0, 0, 0, 0x9b, 0xcf, 0,
                                     0xff, 0xff, 0, 0, 0, 0x93, 0xcf, 0,
    /* b8: limit, base            */ 0x17, 0x00, 0xa0, 0x00, 0xff, 0xff,
};

/* jmp 0 (relative to CS), at the reset vector */
static const uint8_t reset_vector[] = { 0xe9, 0x0d, 0x00 };

typedef struct Guest {
    char *dir, *bios, *stream, *log;
} Guest;

static void guest_init(Guest *g)
{
    g_autofree uint8_t *image = g_malloc0(BIOS_SIZE);

    g->dir = g_dir_make_tmp(NULL, NULL);
    g->bios = g_strdup_printf("%s/bios", g->dir);
    g->stream = g_strdup_printf("%s/stream", g->dir);
    g->log = g_strdup_printf("%s/log", g->dir);
    memcpy(image, guest_code, sizeof(guest_code));
    memcpy(image + BIOS_SIZE - 16, reset_vector, sizeof(reset_vector));
    g_assert_true(g_file_set_contents(g->bios, (char *)image, BIOS_SIZE, NULL));
}

static void guest_cleanup(Guest *g)
{
    unlink(g->bios);
    unlink(g->stream);
    unlink(g->log);
    rmdir(g->dir);
    g_free(g->dir);
    g_free(g->bios);
    g_free(g->stream);
    g_free(g->log);
}

static QTestState *guest_start(Guest *g, const char *cpu, const char *args)
{
    return qtest_initf("-machine pc -accel tcg -m 16 -nodefaults -bios %s "
                       "%s -cpu %s", g->bios, args, cpu);
}

/* Take @count records out of the ring; they continue at sequence @seq. */
static uint32_t guest_consume(QTestState *qts, uint32_t seq, uint32_t count)
{
    int64_t deadline = g_get_monotonic_time() + 60 * G_TIME_SPAN_SECOND;
    uint32_t tail = qtest_readl(qts, CB + 64);

    while (count) {
        uint64_t slot = RING + tail;

        if (qtest_readl(qts, CB + 16) == tail) {
            g_assert_cmpint(g_get_monotonic_time(), <, deadline);
            continue;
        }
        g_assert_cmphex(qtest_readl(qts, slot), ==, 0x12345aff);
        g_assert_cmpuint(qtest_readl(qts, slot + 4), ==, seq);
        g_assert_cmphex(qtest_readq(qts, slot + 8), ==, 0xffff0082);
        g_assert_cmpuint(qtest_readq(qts, slot + 16), ==, COUNTER - seq);
        g_assert_cmphex(qtest_readq(qts, slot + 24), ==, 0);
        tail = (tail + 32) % RING_SIZE;
        qtest_writel(qts, CB + 64, tail);
        seq++;
        count--;
    }
    return seq;
}

/* Wait for the end of a migration; whether it succeeded. */
static bool migrated(QTestState *qts)
{
    for (;;) {
        QDict *rsp = qtest_qmp(qts, "{ 'execute': 'query-migrate' }");
        const char *status = qdict_get_try_str(qdict_get_qdict(rsp, "return"),
                                               "status") ?: "";
        bool completed = !strcmp(status, "completed");
        bool failed = !strcmp(status, "failed");

        qobject_unref(rsp);
        if (completed || failed) {
            return completed;
        }
        g_usleep(1000);
    }
}

static void guest_save(Guest *g, QTestState *qts)
{
    g_autofree char *uri = g_strdup_printf("file:%s", g->stream);

    qtest_qmp_assert_success(qts, "{ 'execute': 'migrate',"
                             "'arguments': { 'uri': %s } }", uri);
    g_assert_true(migrated(qts));
    qtest_quit(qts);
}

static QTestState *guest_load(Guest *g, const char *cpu, const char *args)
{
    g_autofree char *uri = g_strdup_printf("file:%s", g->stream);
    g_autofree char *defer = g_strdup_printf("-incoming defer %s", args);
    QTestState *qts = guest_start(g, cpu, defer);

    qtest_qmp_assert_success(qts, "{ 'execute': 'migrate-incoming',"
                             "'arguments': { 'uri': %s,"
                             "'exit-on-error': false } }", uri);
    return qts;
}

static void test_migrate(gconstpointer opaque)
{
    const char *cpu = opaque;
    uint32_t seq = 0;
    QTestState *qts;
    Guest g;

    guest_init(&g);
    qts = guest_start(&g, cpu, "");
    for (int i = 0; i < 3; i++) {
        seq = guest_consume(qts, seq, 100);
        guest_save(&g, qts);
        qts = guest_load(&g, cpu, "");
        g_assert_true(migrated(qts));
    }
    guest_consume(qts, seq, 100);
    qtest_quit(qts);
    guest_cleanup(&g);
}

/* Whether the guest, which this ends, sends any LWP state. */
static bool sends_state(Guest *g, QTestState *qts)
{
    g_autofree char *stream = NULL;
    size_t size;

    guest_save(g, qts);
    g_assert_true(g_file_get_contents(g->stream, &stream, &size, NULL));
    return memmem(stream, size, "cpu/lwp", 7) != NULL;
}

/* A guest that has not touched LWP sends nothing about it. */
static void test_not_needed(void)
{
    QTestState *qts;
    Guest g;

    guest_init(&g);
    g_assert_false(sends_state(&g, guest_start(&g, "max,+lwp", "-S")));
    qts = guest_start(&g, "max,+lwp", "");
    guest_consume(qts, 0, 1);
    g_assert_true(sends_state(&g, qts));
    guest_cleanup(&g);
}

#define SECTION_HEADER  (7 + 4)     /* name, version */
#define SECTION_SIZE    298

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
    QTestState *qts = guest_start(g, "max,+lwp", "");

    guest_consume(qts, 0, 10);
    guest_save(g, qts);
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
    QTestState *qts;
    Guest g;

    guest_init(&g);
    section = save_section(&g, &before, &size);
    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        for (int b = 0; b < t[i].bytes; b++) {
            section[t[i].offset + b] = t[i].val >> (8 * (t[i].bytes - 1 - b));
        }
    }
    g_assert_true(g_file_set_contents(g.stream, before, size, NULL));

    qts = guest_load(&g, "max,+lwp", "-S");
    g_assert_true(migrated(qts));
    guest_save(&g, qts);
    saved = read_section(&g, &after, &size);
    g_assert_cmpmem(saved, SECTION_SIZE, section, SECTION_SIZE);
    guest_cleanup(&g);
}

/* Reset leaves nothing of a session, and the next one works. */
static void test_reset(void)
{
    QTestState *qts;
    Guest g;

    guest_init(&g);
    for (int again = 0; again < 2; again++) {
        qts = guest_start(&g, "max,+lwp", "");
        guest_consume(qts, 0, 100);
        qtest_qmp_assert_success(qts, "{ 'execute': 'stop' }");
        qtest_qmp_assert_success(qts, "{ 'execute': 'system_reset' }");
        qtest_qmp_eventwait(qts, "RESET");
        if (again) {
            qtest_memset(qts, CB, 0, 256);
            qtest_qmp_assert_success(qts, "{ 'execute': 'cont' }");
            guest_consume(qts, 0, 100);
            qtest_quit(qts);
        } else {
            g_assert_false(sends_state(&g, qts));
        }
    }
    guest_cleanup(&g);
}

static void assert_load_fails(Guest *g, const char *cpu, const char *message)
{
    g_autofree char *args = g_strdup_printf("%s 2>%s", cpu, g->log);
    g_autofree char *text = NULL;
    QTestState *qts = guest_load(g, args, "");

    g_assert_false(migrated(qts));
    qtest_quit(qts);
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
    qtest_add_func("/lwp/features/expansion", test_expansion);
    qtest_add_func("/lwp/features/properties", test_properties);
    qtest_add_data_func("/lwp/migrate/max", "max,+lwp", test_migrate);
    /* Also shows that Opteron_G5 can set CR4.OSXSAVE. */
    qtest_add_data_func("/lwp/migrate/Opteron_G5", "Opteron_G5,+lwp",
                        test_migrate);
    qtest_add_func("/lwp/migrate/not-needed", test_not_needed);
    qtest_add_func("/lwp/migrate/fields", test_fields);
    qtest_add_func("/lwp/migrate/refused", test_refused);
    qtest_add_func("/lwp/reset", test_reset);
    return g_test_run();
}
