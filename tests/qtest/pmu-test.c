/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Performance counters and branch records under TCG: properties and what QMP
 * shows; migration, snapshots, reset and CPU hot-plug of a guest that has
 * counters running, or records branches.
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "libqtest.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"
#include "qobject/qjson.h"
#include "qobject/qnum.h"
#include "x86-section-bytes.h"
#include <sys/socket.h>
#include <sys/un.h>

#define SKYLAKE "max,vendor=GenuineIntel,family=6,model=94,stepping=3"

/* --- CPU models --------------------------------------------------------- */

typedef struct ModelTest {
    const char *name;
    const char *cpu;
    const char *flavour;    /* NULL: none */
    int version, general, fixed;
    const char *branches;   /* kind of the records, */
    int depth;              /* how many, */
    bool bts;               /* and whether they can be in memory */
} ModelTest;

static const ModelTest model_tests[] = {
    { "max", "max" },
    { "max-off", "max,pmu=off" },
    { "max-pmu", "max,pmu=on,-perfctr-core,-perfmon-v2", "K7", 0, 4, 0,
      "K7", 1 },
    { "Skylake", "Skylake-Client,pmu=on", "Skylake", 4, 4, 3,
      "Skylake", 32, true },
    { "Skylake-no-lbr", "Skylake-Client,pmu=on,lbr=off", "Skylake", 4, 4, 3,
      "Skylake", 0, true },
    { "Skylake-no-bts", "Skylake-Client,pmu=on,bts=off", "Skylake", 4, 4, 3,
      "Skylake", 32, false },
    { "Skylake-no-ds", "Skylake-Client,pmu=on,ds=off", "Skylake", 4, 4, 3,
      "Skylake", 32, false },
    { "Skylake-no-records", "Skylake-Client,pmu=on,lbr=off,bts=off", "Skylake",
      4, 4, 3 },
    { "Skylake-format", "Skylake-Client,pmu=on,lbr-fmt=5", "Skylake", 4, 4, 3,
      "Skylake", 32, true },
    { "Haswell", "Haswell,pmu=on", "Haswell", 3, 4, 3, "Haswell", 16, true },
    { "v1", "Skylake-Client,pmu=on,pmu-version=1,pmu-counters=2",
      "Skylake", 1, 2, 0, "Skylake", 32, true },
    { "enforce", "qemu32,vendor=GenuineIntel,family=6,model=94,pmu=on,enforce,"
      "full-width-write=on", "Skylake", 4, 4, 3, "Skylake", 32, true },
    { "pentium3", "pentium3,pmu=on", "P6", 0, 2, 0, "P6", 1, false },
    { "n270", "n270,pmu=on", "Bonnell", 3, 2, 3, "Bonnell", 8, true },
    { "SapphireRapids", "SapphireRapids,pmu=on", "Golden Cove", 5, 8, 3,
      "architectural", 32, true },
    { "SapphireRapids-no-lbr", "SapphireRapids,pmu=on,arch-lbr=off",
      "Golden Cove", 5, 8, 3, "architectural", 0, true },
    { "EPYC", "EPYC,pmu=on,+perfctr-core", "Family 17h", 0, 6, 0, "K7", 1 },
    { "Dhyana", "Dhyana,pmu=on", "Family 18h", 0, 4, 0, "K7", 1 },
    { "Dhyana-core", "Dhyana,pmu=on,+perfctr-core", "Family 18h", 0, 6, 0,
      "K7", 1 },
};

/* The answer of query-pmu; the caller unrefs it. */
static QDict *query(QTestState *qts, QList **list)
{
    QDict *rsp = qtest_qmp(qts, "{ 'execute': 'query-pmu' }");

    *list = qdict_get_qlist(rsp, "return");
    g_assert_nonnull(*list);
    return rsp;
}

static QDict *get_dict(QList *list, int index)
{
    const QListEntry *entry = qlist_first(list);

    while (index--) {
        entry = qlist_next(entry);
    }
    return qobject_to(QDict, qlist_entry_obj(entry));
}

/* Nothing has been recorded yet. */
static void check_branch_model(const ModelTest *t, QDict *cpu, const char *info)
{
    g_autofree char *line = NULL;
    QDict *branches;

    g_assert_cmpint(qdict_haskey(cpu, "branches"), ==, t->branches != NULL);
    if (!t->branches) {
        g_assert_null(strstr(info, "branch records"));
        return;
    }
    branches = qdict_get_qdict(cpu, "branches");
    g_assert_cmpstr(qdict_get_str(branches, "kind"), ==, t->branches);
    g_assert_cmpint(qdict_get_int(branches, "depth"), ==, t->depth);
    g_assert_false(qdict_get_bool(branches, "recording"));
    g_assert_true(qlist_empty(qdict_get_qlist(branches, "records")));
    g_assert_cmpint(qdict_haskey(branches, "bts"), ==, t->bts);
    g_assert_cmpint(qdict_haskey(branches, "ds-area"), ==, t->bts);
    g_assert_false(qdict_get_try_bool(branches, "bts", false));
    line = g_strdup_printf("  branch records: %s, %d\r\n", t->branches,
                           t->depth);
    g_assert_nonnull(strstr(info, line));
    g_assert_true(!strstr(info, "  BTS off, DS_AREA=0000000000000000\r\n") ==
                  !t->bts);
}

static void test_model(gconstpointer opaque)
{
    const ModelTest *t = opaque;
    QTestState *qts = qtest_initf("-machine pc -accel tcg -S -smp 2 -cpu %s"
                                  " 2>/dev/null", t->cpu);
    g_autofree char *info = qtest_hmp(qts, "info pmu");
    const QListEntry *entry;
    int n[2] = { };
    QList *list;
    QDict *rsp, *cpu;

    rsp = query(qts, &list);
    if (!t->flavour) {
        g_assert_true(qlist_empty(list));
        g_assert_nonnull(strstr(info, "No CPU has performance counters"));
    } else {
        g_autofree char *line = g_strdup_printf("CPU #1: %s", t->flavour);

        g_assert_nonnull(strstr(info, line));
        g_assert_cmpint(qlist_size(list), ==, 2);
        cpu = get_dict(list, 1);
        g_assert_cmpint(qdict_get_int(cpu, "cpu-index"), ==, 1);
        g_assert_cmpstr(qdict_get_str(cpu, "flavour"), ==, t->flavour);
        g_assert_cmpint(qdict_get_int(cpu, "version"), ==, t->version);
        g_assert_cmpint(qdict_haskey(cpu, "global-ctrl"), ==, t->version >= 2);
        g_assert_cmpint(qdict_haskey(cpu, "debugctl"), ==, t->version >= 2);
        QLIST_FOREACH_ENTRY(qdict_get_qlist(cpu, "counters"), entry) {
            QDict *c = qobject_to(QDict, qlist_entry_obj(entry));
            bool fixed = g_str_equal(qdict_get_str(c, "type"), "fixed");

            g_assert_cmpint(qdict_get_int(c, "index"), ==, n[fixed]++);
            g_assert_cmpint(qdict_haskey(c, "select"), ==, !fixed);
            g_assert_cmpint(qdict_haskey(c, "event"), ==, fixed);
            g_assert_cmpint(qdict_get_int(c, "value"), ==, 0);
        }
        g_assert_cmpint(n[0], ==, t->general);
        g_assert_cmpint(n[1], ==, t->fixed);
        check_branch_model(t, cpu, info);
    }
    qobject_unref(rsp);
    qtest_quit(qts);
}

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
        { "Skylake-Client,pmu=on,l1d-size=48K,l1d-assoc=12,lwp-l2-size=2M",
          48, 12, 2048, 16, 16384, 16 },
        { "Skylake-Client,pmu=on,l3-size=14080K,l3-assoc=11",
          32, 8, 4096, 16, 14080, 11, "CPUID cannot show 'l3-size'" },
        { "Skylake-Client,+lwp,l2-size=4M", 16, 4, 4096, 16, 8192, 64 },
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
        g_autofree char *path = g_strdup(qdict_get_str(
            get_dict(qdict_get_qlist(rsp, "return"), 0), "qom-path"));

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

/* What AMD's have of branch records follows from the model and the user. */
static void test_amd_lbr(void)
{
#define GENOA "EPYC-Genoa,perfctr-core=on,svm=on,"
    static const struct {
        const char *cpu;
        bool v2, lbrv;
    } t[] = {
        { GENOA "pmu=on,perfmon-v2=on", true, true },
        { GENOA "pmu=on,perfmon-v2=on,lbr-v2=off", false, true },
        { GENOA "pmu=on,perfmon-v2=on,lbrv=off", true, false },
        { GENOA "pmu=on,perfmon-v2=on,lbr=off", false, false },
        { GENOA "pmu=on,perfmon-v2=on,svm=off", true, false },
        { GENOA "pmu=on,perfmon-v2=off", false, true },
        { GENOA "pmu=off", false, false },
        { "EPYC,pmu=on,svm=on,lbr-v2=on", false, true },
        { "max,pmu=on", false, true },
        { "max,pmu=on,family=25,model=17", true, true },
        { "max,pmu=on,family=25,model=17,perfmon-v2=off", false, true },
        { "max", false, false },
        { "Skylake-Client,pmu=on,svm=on", false, false },
    };
#undef GENOA

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        QTestState *qts = qtest_initf("-machine pc -accel tcg -S -cpu %s",
                                      t[i].cpu);
        QDict *rsp = qtest_qmp(qts, "{ 'execute': 'query-cpus-fast' }");
        g_autofree char *path = g_strdup(qdict_get_str(
            get_dict(qdict_get_qlist(rsp, "return"), 0), "qom-path"));

        qobject_unref(rsp);
        for (int k = 0; k < 2; k++) {
            rsp = qtest_qmp(qts, "{ 'execute': 'qom-get', 'arguments':"
                            " { 'path': %s, 'property': %s } }", path,
                            k ? "lbrv" : "lbr-v2");
            g_test_message("%s: %d", t[i].cpu, k);
            g_assert_cmpint(qdict_get_bool(rsp, "return"), ==,
                            k ? t[i].lbrv : t[i].v2);
            qobject_unref(rsp);
        }
        qtest_quit(qts);
    }
}

/* A property out of its range ends QEMU with a sentence that names both. */
static void test_properties(void)
{
    static const struct {
        const char *cpu, *message, *smp;
    } t[] = {
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
        { "EPYC-Genoa,pmu=on,+perfctr-core,perfmon-v2=off,lbr-v2=on",
          "'lbr-v2' needs 'perfmon-v2'" },
        { "max,pmu-version=2", "'pmu-version' needs 'pmu=on' and TCG" },
        { "max,pmu-counters=4", "'pmu-counters' needs 'pmu=on' and TCG" },
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
        { "Skylake-Client,pmu=on,ds=off,dtes64=on", "'dtes64' needs 'ds'" },
        { "Skylake-Client,pmu=on,ds=off,ds-cpl=on", "'ds-cpl' needs 'ds'" },
        { "Skylake-Client,pmu=on,lbr-fmt=4",
          "'lbr-fmt' must be 0x5 for this CPU, not 0x4" },
        { "Skylake-Client,pmu=on,lbr=off,lbr-fmt=5",
          "'lbr-fmt' must be 0x0 for this CPU, not 0x5" },
        { "Skylake-Client,pmu=on,lbr-fmt=0x40", "'lbr-fmt'" },
        { "pentium3,pmu=on,bts=on,enforce,+dtes64",
          "TCG doesn't support requested features" },
        { "EPYC,pmu=on,ibs=off,ibs-op-sam=on,enforce",
          "TCG doesn't support requested features" },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        const char *argv[] = {
            getenv("QTEST_QEMU_BINARY"), "-machine", "pc", "-accel", "tcg",
            "-display", "none", "-cpu", t[i].cpu, "-smp", t[i].smp ?: "1",
            NULL
        };
        g_autofree char *text = NULL;
        int status;

        g_assert_true(g_spawn_sync(NULL, (char **)argv, NULL, 0, NULL, NULL,
                                   NULL, &text, &status, NULL));
        g_test_message("%s: %s", t[i].cpu, text);
        g_assert_cmpint(status, !=, 0);
        g_assert_nonnull(strstr(text, t[i].message));
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

/* --- a guest that has counters running ----------------------------------- */

#define MAX_CPUS        2
#define AREA(cpu)       (((cpu) + 1) * 0x100000ull)

/* Offsets in a CPU's area */
enum {
    BOOTS = 0x100,      /* how often it has started */
    COMMAND = 0x104,    /* what it is to do then */
    LVTPC = 0x108,      /* what LVTPC is set to, then and by each interrupt */
    SEQ = 0x10c,        /* how often LOOPS has been counted down */
    NMIS = 0x110,       /* interrupts */
    HOLD = 0x114,       /* the next interrupt does not end while this is set, */
    HELD = 0x118,       /* and counts here */
    READS = 0x200,      /* MSRs that are read when it starts; 0 ends */
    FOUND = 0x300,      /* what they are */
    WRITES = 0x400,     /* MSRs that are written then, with what; 0 ends */
    REARM = 0x500,      /* the same, by each interrupt; two of them */
    RING = 0x10000,     /* a Record of each interrupt */
    RING_RECORDS = 4096,
};

enum { WAIT, RUN, START_OTHERS = 3 };       /* COMMAND */

typedef struct Record {
    uint64_t count;         /* IA32_FIXED_CTR0: instructions */
    uint32_t eip, ecx;      /* where the interrupt came */
    uint32_t seq;           /* SEQ, then */
    uint32_t status[2];     /* IA32_PERF_GLOBAL_STATUS */
    uint32_t unused;
} Record;

#define MSR_PMC0                0xc1
#define MSR_MISC_FEATURES_ENABLES 0x140
#define MSR_K7_HWCR     0xc0010015
#define MSR_EVTSEL0             0x186
#define MSR_DEBUGCTL            0x1d9
#define MSR_FIXED_CTR0          0x309
#define MSR_FIXED_CTR_CTRL      0x38d
#define MSR_GLOBAL_STATUS       0x38e
#define MSR_GLOBAL_CTRL         0x38f
#define MSR_GLOBAL_STATUS_RESET 0x390

#define LVT_NMI         0x400
#define EVTSEL          0x5200c0u       /* instructions, OS, INT, EN */
#define GLOBAL_CTRL     0x100000001ull  /* PMC0 and fixed counter 0 */
#define PERIOD          9973            /* instructions for each interrupt */
#define WIDTH_MASK      ((1ull << 48) - 1)

/*
 * The last 64 KiB below 1 MiB, and below 4 GiB.  All runs at CPL 0.  Each CPU
 * reads and writes the MSRs that the test wants, and then for ever counts
 * LOOPS down.  So all is known of the instruction with a given number.
 */
#define BIOS_SIZE       0x10000
#define CODE_ADDR       0xf0000
#define LOOPS           1000
#define ROUND           (1 + 2 * LOOPS + 2)
#define HANDLER         45      /* instructions of the interrupt's handler, */
#define HANDLER_COUNT   6       /* in front of the RDMSR of the count */
#define HANDLER_REARM   13      /* from the WRMSR of PMC0 on */
#define IP_ROUND        (CODE_ADDR + 0xad)
#define IP_DEC          (CODE_ADDR + 0xb2)
#define IP_JNE          (CODE_ADDR + 0xb3)
#define IP_INC          (CODE_ADDR + 0xb5)
#define IP_JMP          (CODE_ADDR + 0xbb)
#define IP_NMI          (CODE_ADDR + 0xbd)

static const uint8_t guest_code[] = {
    /* cli                            */ 0xfa,
    /* lgdtl %cs:0x190                */ 0x2e, 0x66, 0x0f, 0x01, 0x16, 0x90,
                                         0x01,
    /* mov $0x1,%eax                  */ 0x66, 0xb8, 0x01, 0x00, 0x00, 0x00,
    /* mov %eax,%cr0                  */ 0x0f, 0x22, 0xc0,
    /* ljmpl $0x8,$0xf0019            */ 0x66, 0xea, 0x19, 0x00, 0x0f, 0x00,
                                         0x08, 0x00,
    /* 32-bit mode */
    /* mov $0x10,%eax                 */ 0xb8, 0x10, 0x00, 0x00, 0x00,
    /* mov %eax,%ds                   */ 0x8e, 0xd8,
    /* mov %eax,%ss                   */ 0x8e, 0xd0,
    /* mov $0x1,%eax                  */ 0xb8, 0x01, 0x00, 0x00, 0x00,
    /* cpuid                          */ 0x0f, 0xa2,
    /* shr $0x18,%ebx                 */ 0xc1, 0xeb, 0x18,
    /* inc %ebx                       */ 0x43,
    /* mov %ebx,%esi                  */ 0x89, 0xde,
    /* shl $0x14,%esi                 */ 0xc1, 0xe6, 0x14,
    /* lea 0x9000(%esi),%esp          */ 0x8d, 0xa6, 0x00, 0x90, 0x00, 0x00,
    /* lidtl 0xf0196                  */ 0x0f, 0x01, 0x1d, 0x96, 0x01, 0x0f,
                                         0x00,
    /* xor %edi,%edi                  */ 0x31, 0xff,
    /* 41: mov 0x200(%esi,%edi,4),%ecx */ 0x8b, 0x8c, 0xbe, 0x00, 0x02, 0x00,
                                          0x00,
    /* jecxz 5d                       */ 0xe3, 0x13,
    /* rdmsr                          */ 0x0f, 0x32,
    /* mov %eax,0x300(%esi,%edi,8)    */ 0x89, 0x84, 0xfe, 0x00, 0x03, 0x00,
                                         0x00,
    /* mov %edx,0x304(%esi,%edi,8)    */ 0x89, 0x94, 0xfe, 0x04, 0x03, 0x00,
                                         0x00,
    /* inc %edi                       */ 0x47,
    /* jmp 41                         */ 0xeb, 0xe4,
    /* 5d: incl 0x100(%esi)           */ 0xff, 0x86, 0x00, 0x01, 0x00, 0x00,
    /* 63: pause                      */ 0xf3, 0x90,
    /* cmpl $0x0,0x104(%esi)          */ 0x83, 0xbe, 0x04, 0x01, 0x00, 0x00,
                                         0x00,
    /* je 63                          */ 0x74, 0xf5,
    /* movl $0x1ff,0xfee000f0         */ 0xc7, 0x05, 0xf0, 0x00, 0xe0, 0xfe,
                                         0xff, 0x01, 0x00, 0x00,
    /* mov 0x108(%esi),%eax           */ 0x8b, 0x86, 0x08, 0x01, 0x00, 0x00,
    /* mov %eax,0xfee00340            */ 0xa3, 0x40, 0x03, 0xe0, 0xfe,
    /* testb $0x2,0x104(%esi)         */ 0xf6, 0x86, 0x04, 0x01, 0x00, 0x00,
                                         0x02,
    /* je 96                          */ 0x74, 0x0a,
    /* movl $0xc46f0,0xfee00300       */ 0xc7, 0x05, 0x00, 0x03, 0xe0, 0xfe,
                                         0xf0, 0x46, 0x0c, 0x00,
    /* 96: lea 0x400(%esi),%edi       */ 0x8d, 0xbe, 0x00, 0x04, 0x00, 0x00,
    /* 9c: mov (%edi),%ecx            */ 0x8b, 0x0f,
    /* jecxz ad                       */ 0xe3, 0x0d,
    /* mov 0x4(%edi),%eax             */ 0x8b, 0x47, 0x04,
    /* mov 0x8(%edi),%edx             */ 0x8b, 0x57, 0x08,
    /* wrmsr                          */ 0x0f, 0x30,
    /* add $0xc,%edi                  */ 0x83, 0xc7, 0x0c,
    /* jmp 9c                         */ 0xeb, 0xef,
    /* what is counted */
    /* ad: mov $0x3e8,%ecx            */ 0xb9, 0xe8, 0x03, 0x00, 0x00,
    /* b2: dec %ecx                   */ 0x49,
    /* jne b2                         */ 0x75, 0xfd,
    /* incl 0x10c(%esi)               */ 0xff, 0x86, 0x0c, 0x01, 0x00, 0x00,
    /* jmp ad                         */ 0xeb, 0xf0,
    /* the interrupt */
    /* push %eax                      */ 0x50,
    /* push %ecx                      */ 0x51,
    /* push %edx                      */ 0x52,
    /* push %edi                      */ 0x57,
    /* push %ebx                      */ 0x53,
    /* mov $0x309,%ecx                */ 0xb9, 0x09, 0x03, 0x00, 0x00,
    /* rdmsr                          */ 0x0f, 0x32,
    /* mov 0x110(%esi),%edi           */ 0x8b, 0xbe, 0x10, 0x01, 0x00, 0x00,
    /* and $0xfff,%edi                */ 0x81, 0xe7, 0xff, 0x0f, 0x00, 0x00,
    /* shl $0x5,%edi                  */ 0xc1, 0xe7, 0x05,
    /* lea 0x10000(%esi,%edi,1),%edi  */ 0x8d, 0xbc, 0x3e, 0x00, 0x00, 0x01,
                                         0x00,
    /* mov %eax,(%edi)                */ 0x89, 0x07,
    /* mov %edx,0x4(%edi)             */ 0x89, 0x57, 0x04,
    /* mov 0x14(%esp),%eax            */ 0x8b, 0x44, 0x24, 0x14,
    /* mov %eax,0x8(%edi)             */ 0x89, 0x47, 0x08,
    /* mov 0xc(%esp),%eax             */ 0x8b, 0x44, 0x24, 0x0c,
    /* mov %eax,0xc(%edi)             */ 0x89, 0x47, 0x0c,
    /* mov 0x10c(%esi),%eax           */ 0x8b, 0x86, 0x0c, 0x01, 0x00, 0x00,
    /* mov %eax,0x10(%edi)            */ 0x89, 0x47, 0x10,
    /* mov $0x38e,%ecx                */ 0xb9, 0x8e, 0x03, 0x00, 0x00,
    /* rdmsr                          */ 0x0f, 0x32,
    /* mov %eax,0x14(%edi)            */ 0x89, 0x47, 0x14,
    /* mov %edx,0x18(%edi)            */ 0x89, 0x57, 0x18,
    /* lea 0x500(%esi),%edi           */ 0x8d, 0xbe, 0x00, 0x05, 0x00, 0x00,
    /* mov (%edi),%ecx                */ 0x8b, 0x0f,
    /* mov 0x4(%edi),%eax             */ 0x8b, 0x47, 0x04,
    /* mov 0x8(%edi),%edx             */ 0x8b, 0x57, 0x08,
    /* wrmsr                          */ 0x0f, 0x30,
    /* add $0xc,%edi                  */ 0x83, 0xc7, 0x0c,
    /* mov (%edi),%ecx                */ 0x8b, 0x0f,
    /* mov 0x4(%edi),%eax             */ 0x8b, 0x47, 0x04,
    /* mov 0x8(%edi),%edx             */ 0x8b, 0x57, 0x08,
    /* wrmsr                          */ 0x0f, 0x30,
    /* add $0xc,%edi                  */ 0x83, 0xc7, 0x0c,
    /* mov 0x108(%esi),%eax           */ 0x8b, 0x86, 0x08, 0x01, 0x00, 0x00,
    /* mov %eax,0xfee00340            */ 0xa3, 0x40, 0x03, 0xe0, 0xfe,
    /* incl 0x110(%esi)               */ 0xff, 0x86, 0x10, 0x01, 0x00, 0x00,
    /* cmpl $0x0,0x114(%esi)          */ 0x83, 0xbe, 0x14, 0x01, 0x00, 0x00,
                                         0x00,
    /* jne 148                        */ 0x75, 0x06,
    /* 142: pop %ebx                  */ 0x5b,
    /* pop %edi                       */ 0x5f,
    /* pop %edx                       */ 0x5a,
    /* pop %ecx                       */ 0x59,
    /* pop %eax                       */ 0x58,
    /* iret                           */ 0xcf,
    /* 148: incl 0x118(%esi)          */ 0xff, 0x86, 0x18, 0x01, 0x00, 0x00,
    /* pause                          */ 0xf3, 0x90,
    /* cmpl $0x0,0x114(%esi)          */ 0x83, 0xbe, 0x14, 0x01, 0x00, 0x00,
                                         0x00,
    /* jne 148                        */ 0x75, 0xef,
    /* jmp 142                        */ 0xeb, 0xe7,
    /* nop                            */ 0x90, 0x90, 0x90, 0x90, 0x90,
    /* 160: null                      */ 0, 0, 0, 0, 0, 0, 0, 0,
    /* 08: code                       */ 0xff, 0xff, 0, 0, 0, 0x9b, 0xcf, 0,
    /* 10: data                       */ 0xff, 0xff, 0, 0, 0, 0x93, 0xcf, 0,
    /* 178: null                      */ 0, 0, 0, 0, 0, 0, 0, 0,
    /*                                */ 0, 0, 0, 0, 0, 0, 0, 0,
    /* 2: NMI                         */ 0xbd, 0, 0x08, 0, 0, 0x8e, 0x0f, 0,
    /* 190: GDT limit, base           */ 0x17, 0x00, 0x60, 0x01, 0x0f, 0x00,
    /* 196: IDT limit, base           */ 0x17, 0x00, 0x78, 0x01, 0x0f, 0x00,
};

/* jmp 0 (relative to CS), at the reset vector */
static const uint8_t reset_vector[] = { 0xe9, 0x0d, 0x00 };

/* What a CPU's counters were when the first instruction of all was next. */
typedef struct Session {
    bool known;
    uint64_t count;
    uint32_t nmis;              /* of them, so many have been looked at */
} Session;

typedef struct Guest {
    char *dir, *bios, *stream, *disk, *log;
    QTestState *qts;
    unsigned cpus;
    Session session[MAX_CPUS];
} Guest;

static const uint32_t reads[] = {
    MSR_EVTSEL0, MSR_PMC0, MSR_FIXED_CTR0, MSR_FIXED_CTR_CTRL,
    MSR_GLOBAL_STATUS, MSR_DEBUGCTL, MSR_GLOBAL_CTRL,
};
/* RESET leaves nothing, but enables the general-purpose counters globally. */
static const uint64_t found_at_reset[] = { 0, 0, 0, 0, 0, 0, 0xf };

static void guest_init(Guest *g)
{
    g_autofree uint8_t *image = g_malloc0(BIOS_SIZE);

    *g = (Guest) { .dir = g_dir_make_tmp(NULL, NULL) };
    g->bios = g_strdup_printf("%s/bios", g->dir);
    g->stream = g_strdup_printf("%s/stream", g->dir);
    g->disk = g_strdup_printf("%s/disk", g->dir);
    g->log = g_strdup_printf("%s/log", g->dir);
    memcpy(image, guest_code, sizeof(guest_code));
    memcpy(image + BIOS_SIZE - 16, reset_vector, sizeof(reset_vector));
    g_assert_true(g_file_set_contents(g->bios, (char *)image, BIOS_SIZE, NULL));
}

static void guest_quit(Guest *g)
{
    if (g->qts) {
        qtest_quit(g->qts);
        g->qts = NULL;
    }
}

static void guest_cleanup(Guest *g)
{
    char *const files[] = { g->bios, g->stream, g->disk, g->log };

    guest_quit(g);
    for (int i = 0; i < G_N_ELEMENTS(files); i++) {
        unlink(files[i]);
        g_free(files[i]);
    }
    rmdir(g->dir);
    g_free(g->dir);
}

static void guest_start(Guest *g, const char *cpu, const char *args)
{
    g->qts = qtest_initf("-machine pc -accel tcg -m 16 -nodefaults -bios %s "
                         "%s -cpu %s", g->bios, args, cpu);
}

static void write_msr(Guest *g, uint64_t addr, uint32_t msr, uint64_t val)
{
    qtest_writel(g->qts, addr, msr);
    qtest_writeq(g->qts, addr + 4, val);
}

/* Each interrupt clears the status, and is due again after @period. */
static void guest_rearm(Guest *g, unsigned cpu, uint32_t period)
{
    uint64_t area = AREA(cpu);

    write_msr(g, area + REARM, MSR_GLOBAL_STATUS_RESET, 1);
    write_msr(g, area + REARM + 12, MSR_PMC0, -(uint64_t)period);
}

/* What a CPU does that has been reset, or not yet. */
static void guest_prepare(Guest *g, unsigned cpu, uint32_t command)
{
    const struct {
        uint32_t msr;
        uint64_t val;
    } writes[] = {
        { MSR_EVTSEL0, EVTSEL }, { MSR_PMC0, -(uint64_t)PERIOD },
        { MSR_FIXED_CTR_CTRL, 1 }, { MSR_GLOBAL_CTRL, GLOBAL_CTRL },
    };
    uint64_t area = AREA(cpu);

    g->session[cpu] = (Session) { };
    qtest_memset(g->qts, area, 0, RING + RING_RECORDS * sizeof(Record));
    for (int i = 0; i < G_N_ELEMENTS(reads); i++) {
        qtest_writel(g->qts, area + READS + 4 * i, reads[i]);
    }
    for (int i = 0; i < G_N_ELEMENTS(writes); i++) {
        write_msr(g, area + WRITES + 12 * i, writes[i].msr, writes[i].val);
    }
    guest_rearm(g, cpu, PERIOD);
    qtest_writel(g->qts, area + LVTPC, LVT_NMI);
    qtest_writel(g->qts, area + COMMAND, command);
}

static void guest_stop(Guest *g)
{
    qtest_qmp_assert_success(g->qts, "{ 'execute': 'stop' }");
}

static void guest_cont(Guest *g)
{
    qtest_qmp_assert_success(g->qts, "{ 'execute': 'cont' }");
}

static void guest_prepare_all(Guest *g, unsigned cpus)
{
    g->cpus = cpus;
    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        guest_prepare(g, cpu, cpu ? RUN : START_OTHERS);
    }
}

static void guest_run(Guest *g, const char *cpu, unsigned cpus,
                      const char *args)
{
    g_autofree char *smp = g_strdup_printf("-S -smp %u %s", cpus, args);

    guest_start(g, cpu, smp);
    guest_prepare_all(g, cpus);
    guest_cont(g);
}

/* Wait until the word at @addr has reached @val. */
static void guest_wait_at(Guest *g, uint64_t addr, uint32_t val)
{
    int64_t end = g_get_monotonic_time() + 60 * G_TIME_SPAN_SECOND;

    while (qtest_readl(g->qts, addr) < val) {
        g_assert_cmpint(g_get_monotonic_time(), <, end);
    }
}

/* The same for a field of a CPU's area. */
static void guest_wait(Guest *g, unsigned cpu, unsigned field, uint32_t val)
{
    guest_wait_at(g, AREA(cpu) + field, val);
}

/* How many instructions of its loop a CPU has run when @eip is next. */
static uint64_t position(uint32_t seq, uint32_t eip, uint32_t ecx)
{
    uint64_t start = (uint64_t)seq * ROUND;

    switch (eip) {
    case IP_ROUND:
        return start;
    case IP_DEC:
        return start + 1 + 2 * (LOOPS - ecx);
    case IP_JNE:
        return start + 2 * (LOOPS - ecx);
    case IP_INC:
        return start + 1 + 2 * LOOPS;
    case IP_JMP:
        return start - 1;       /* of the next round */
    default:
        g_assert_not_reached();
    }
}

static Record read_record(Guest *g, unsigned cpu, uint32_t nmi)
{
    Record r;

    qtest_memread(g->qts, AREA(cpu) + RING + nmi % RING_RECORDS * sizeof(r),
                  &r, sizeof(r));
    r.count = le64_to_cpu(r.count);
    r.eip = le32_to_cpu(r.eip);
    r.ecx = le32_to_cpu(r.ecx);
    r.seq = le32_to_cpu(r.seq);
    r.status[0] = le32_to_cpu(r.status[0]);
    r.status[1] = le32_to_cpu(r.status[1]);
    return r;
}

/*
 * Every interrupt of a guest that has been stopped came where it had to, and
 * the counter that does not interrupt tells the same.
 */
static void check_records(Guest *g, unsigned cpu)
{
    Session *s = &g->session[cpu];
    uint32_t nmis = qtest_readl(g->qts, AREA(cpu) + NMIS);

    g_assert_cmpuint(nmis, >, s->nmis);
    g_assert_cmpint(qtest_readl(g->qts, AREA(cpu) + BOOTS), ==, 1);
    /* The oldest record may be half overwritten by the next one. */
    s->nmis = nmis - MIN(nmis - s->nmis, RING_RECORDS - 1);
    while (s->nmis < nmis) {
        uint32_t n = s->nmis++;
        Record r = read_record(g, cpu, n), next;
        uint64_t at = position(r.seq, r.eip, r.ecx);

        if (!s->known) {
            s->known = true;
            s->count = r.count - at - n * HANDLER;
        }
        g_assert_cmpuint(r.count, ==, s->count + at + n * HANDLER);
        g_assert_cmphex(r.status[0], ==, 1);
        g_assert_cmphex(r.status[1], ==, 0);
        if (s->nmis < nmis) {
            next = read_record(g, cpu, s->nmis);
            g_assert_cmpuint(position(next.seq, next.eip, next.ecx) - at, ==,
                             PERIOD - HANDLER_REARM);
        }
    }
}

/* What a register is on a CPU, as "info registers" says. */
static uint32_t get_register(Guest *g, unsigned cpu, const char *name)
{
    g_autofree char *text = qtest_hmp(g->qts, "info registers -a");
    g_autofree char *header = g_strdup_printf("CPU#%u", cpu);
    const char *pos = strstr(text, header);

    g_assert_nonnull(pos);
    pos = strstr(pos, name);
    g_assert_nonnull(pos);
    return g_ascii_strtoull(pos + strlen(name), NULL, 16);
}

static uint64_t value(QDict *cpu, int counter)
{
    QList *counters = qdict_get_qlist(cpu, "counters");

    return qdict_get_int(get_dict(counters, counter), "value");
}

/*
 * The monitor's values are exact where the guest has been stopped.  Returns
 * false if that is in the middle of the handler.
 */
static bool check_values(Guest *g, unsigned cpu)
{
    Session *s = &g->session[cpu];
    uint32_t eip = get_register(g, cpu, "EIP=");
    QList *list;
    QDict *rsp;

    if (eip == IP_NMI) {
        /* Nothing of the handler has run yet. */
        eip = qtest_readl(g->qts, get_register(g, cpu, "ESP="));
    }
    if (eip < IP_ROUND || eip > IP_JMP) {
        return false;
    }
    rsp = query(g->qts, &list);
    g_assert_cmpuint(value(get_dict(list, cpu), 4), ==,
                     s->count - HANDLER_COUNT + s->nmis * HANDLER +
                     position(qtest_readl(g->qts, AREA(cpu) + SEQ), eip,
                              get_register(g, cpu, "ECX=")));
    qobject_unref(rsp);
    return true;
}

/* Go on until each CPU has been interrupted @nmis times more; stop and look. */
static void guest_consume(Guest *g, uint32_t nmis)
{
    uint32_t until[MAX_CPUS];

    for (unsigned cpu = 0; cpu < g->cpus; cpu++) {
        until[cpu] = qtest_readl(g->qts, AREA(cpu) + NMIS) + nmis;
    }
    for (unsigned cpu = 0; cpu < g->cpus; cpu++) {
        guest_wait(g, cpu, NMIS, until[cpu]);
    }
    guest_stop(g);
    for (unsigned cpu = 0; cpu < g->cpus; cpu++) {
        check_records(g, cpu);
    }
}

/* --- migration and snapshots -------------------------------------------- */

/* Wait until a migration has ended; whether it has succeeded. */
static bool migrated(QTestState *qts)
{
    for (;;) {
        QDict *rsp = qtest_qmp(qts, "{ 'execute': 'query-migrate' }");
        const char *status = qdict_get_try_str(qdict_get_qdict(rsp, "return"),
                                               "status") ?: "";
        bool ok = g_str_equal(status, "completed");
        bool failed = g_str_equal(status, "failed");

        qobject_unref(rsp);
        if (ok || failed) {
            return ok;
        }
        g_usleep(1000);
    }
}

static void guest_save(Guest *g)
{
    g_autofree char *uri = g_strdup_printf("file:%s", g->stream);

    qtest_qmp_assert_success(g->qts, "{ 'execute': 'migrate',"
                             "'arguments': { 'uri': %s } }", uri);
    g_assert_true(migrated(g->qts));
    guest_quit(g);
}

static bool guest_load(Guest *g, const char *cpu, const char *args)
{
    g_autofree char *uri = g_strdup_printf("file:%s", g->stream);
    g_autofree char *defer = g_strdup_printf("-incoming defer -smp %u %s",
                                             g->cpus, args);

    guest_start(g, cpu, defer);
    qtest_qmp_assert_success(g->qts, "{ 'execute': 'migrate-incoming',"
                             "'arguments': { 'uri': %s,"
                             "'exit-on-error': false } }", uri);
    return migrated(g->qts);
}

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

static void guest_hmp(Guest *g, const char *command)
{
    g_autofree char *text = qtest_hmp(g->qts, "%s", command);

    g_assert_cmpstr(text, ==, "");
}

#define NULL_DRIVE \
    "-drive if=none,node-name=null,driver=null-co,read-zeroes=on >/dev/null"

/* With an empty image, into which snapshots go */
static void guest_start_with_disk(Guest *g, unsigned cpus)
{
    g_autofree char *args = g_strdup_printf("-S -smp %u " NULL_DRIVE, cpus);

    guest_init(g);
    guest_start(g, SKYLAKE ",pmu=on", args);
    qtest_qmp_assert_success(g->qts, "{ 'execute': 'blockdev-snapshot-sync',"
                             "'arguments': { 'node-name': 'null',"
                             "'snapshot-file': %s,"
                             "'snapshot-node-name': 'disk' } }", g->disk);
    guest_prepare_all(g, cpus);
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

static void put(char *section, unsigned offset, unsigned bytes, uint64_t val)
{
    for (unsigned b = 0; b < bytes; b++) {
        section[offset + b] = val >> 8 * (bytes - 1 - b);
    }
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

static void assert_load_fails(Guest *g, const char *cpu, const char *message)
{
    g_autofree char *args = g_strdup_printf("%s 2>%s", cpu, g->log);
    g_autofree char *text = NULL;

    g_assert_false(guest_load(g, args, ""));
    guest_quit(g);
    g_assert_true(g_file_get_contents(g->log, &text, NULL, NULL));
    g_assert_nonnull(strstr(text, message));
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
        QTestState *qts = qtest_initf("-machine pc -accel tcg -cpu %s",
                                      t[i].cpu);
        QDict *rsp = qtest_qmp(qts, "{ 'execute': 'qom-get', 'arguments': {"
                               "'path': '/machine/unattached/device[0]',"
                               "'property': 'aperfmperf' } }");

        g_test_message("%s", t[i].cpu);
        g_assert_cmpint(qdict_get_bool(rsp, "return"), ==, t[i].has);
        qobject_unref(rsp);
        qtest_quit(qts);
    }
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

static void assert_has(const char *cpu, const char *feature, bool has)
{
    QTestState *qts = qtest_initf("-machine pc -accel tcg -cpu %s", cpu);
    QDict *rsp = qtest_qmp(qts, "{ 'execute': 'qom-get', 'arguments': {"
                           "'path': '/machine/unattached/device[0]',"
                           "'property': %s } }", feature);

    g_test_message("%s", cpu);
    g_assert_cmpint(qdict_get_bool(rsp, "return"), ==, has);
    qobject_unref(rsp);
    qtest_quit(qts);
}

/* IBS with a sample ahead, and what no processor could have sent */
static void test_ibs(void)
{
    enum { REG = 4, OP_CTL = REG + 3 * 8, OP_DATA2 = REG + 6 * 8,
           COUNTS = REG + 14 * 8, EXTENDED = COUNTS + 3 * 4,
           SIZE = EXTENDED + 5 * 4 };
    static const struct {
        unsigned offset, bytes;
        uint64_t val;
    } t[] = {
        { OP_CTL, 8, 1ull << 63 }, { OP_DATA2, 8, 0x100 },
        { COUNTS, 4, 1 << 20 }, { COUNTS + 4, 4, 1 << 27 },
        { COUNTS + 8, 4, 0 }, { EXTENDED, 4, 0x20000 },
    };
    const char *cpu = "max,family=23,model=1,pmu=on", *name = "cpu/pmu/ibs";
    /* As far away as can be, by ops */
    const uint64_t op_ctl = 0xc0011033, ctl = 0x7faffff;
    g_autofree char *before = NULL, *after = NULL, *hmp = NULL;
    char *section, *loaded, old[SIZE];
    size_t size[2];
    Guest g;

    assert_has("EPYC,pmu=on", "ibs", true);
    assert_has("EPYC,pmu=on", "ibs-zen4", false);
    assert_has("EPYC-Genoa,pmu=on", "ibs-zen4", true);
    assert_has("EPYC", "ibs", false);
    assert_has("EPYC,pmu=on,ibs=off", "ibs-op-sam", false);
    assert_has("EPYC,pmu=on,ibs=off,ibs-op-sam=on", "ibs-op-sam", false);
    assert_has("EPYC,pmu=on,extapic=off", "ibs", false);
    assert_has("EPYC,pmu=on,extapic=off,ibs=on", "ibs-op-sam", false);
    assert_has("EPYC,pmu=on,apic=off", "ibs", false);
    assert_has("EPYC,pmu=on,ibs-op-sam=off", "ibs-op-cnt", false);
    assert_has("EPYC,pmu=on,ibs-op-sam=off", "ibs-fetch-ctl-extd", true);
    assert_has("EPYC,pmu=on,ibs-fetch-sam=off", "ibs-fetch-ctl-extd", false);
    assert_has("max,pmu=on", "ibs", false);
    guest_init(&g);
    guest_start(&g, cpu, "-S -smp 1");
    guest_prepare_all(&g, 1);
    for (int i = 0; i < G_N_ELEMENTS(reads); i++) {
        qtest_writel(g.qts, AREA(0) + READS + 4 * i, op_ctl);
    }
    for (int i = 0; i < 4; i++) {
        write_msr(&g, AREA(0) + WRITES + 12 * i, op_ctl, ctl);
    }
    guest_cont(&g);
    guest_wait(&g, 0, SEQ, 1);
    guest_save(&g);
    g_assert_true(g_file_get_contents(g.stream, &before, &size[0], NULL));
    section = memmem(before, size[0], name, strlen(name));
    g_assert_nonnull(section);
    section += strlen(name);
    g_assert_cmphex(ldq_be_p(section + OP_CTL), ==, ctl);
    g_assert_cmphex(ldl_be_p(section + COUNTS + 4), >, 0);
    g_assert_cmphex(ldl_be_p(section + EXTENDED), ==, 0x10000);
    assert_load_fails(&g, "max,family=23,model=1,pmu=on,extapic=off",
                      "inconsistent registers of IBS");
    memcpy(old, section, SIZE);
    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        put(section, t[i].offset, t[i].bytes, t[i].val);
        g_assert_true(g_file_set_contents(g.stream, before, size[0], NULL));
        assert_load_fails(&g, cpu, "inconsistent registers of IBS");
        memcpy(section, old, SIZE);
    }
    g_assert_true(g_file_set_contents(g.stream, before, size[0], NULL));
    g_assert_true(guest_load(&g, cpu, "-S"));
    hmp = qtest_hmp(g.qts, "info pmu");
    g_assert_nonnull(strstr(hmp, "IBS op: CTL="));
    guest_save(&g);
    g_assert_true(g_file_get_contents(g.stream, &after, &size[1], NULL));
    loaded = memmem(after, size[1], name, strlen(name));
    g_assert_nonnull(loaded);
    g_assert_cmpmem(loaded + strlen(name), SIZE, section, SIZE);
    g_clear_pointer(&after, g_free);
    /* RESET leaves nothing to be sent. */
    g_assert_true(guest_load(&g, cpu, "-S"));
    qtest_qmp_assert_success(g.qts, "{ 'execute': 'system_reset' }");
    qtest_qmp_eventwait(g.qts, "RESET");
    guest_save(&g);
    g_assert_true(g_file_get_contents(g.stream, &after, &size[1], NULL));
    g_assert_null(memmem(after, size[1], name, strlen(name)));
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

#define PLUG \
    "{ 'execute': 'device_add', 'arguments': { 'driver': 'max-x86_64-cpu'," \
    "'id': 'cpu1', 'socket-id': 1, 'core-id': 0, 'thread-id': 0"

/* A CPU that differs from the others is refused. */
static void assert_other(QDict *rsp)
{
    const char *text = qdict_get_str(qdict_get_qdict(rsp, "error"), "desc");

    g_assert_nonnull(strstr(text, "must be the same for all CPUs"));
    qobject_unref(rsp);
}

/* A CPU that comes has the state that RESET leaves; CPU 0 does not notice. */
static void test_hotplug(void)
{
    QDict *rsp, *cpu;
    QList *list;
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
    rsp = query(g.qts, &list);
    cpu = get_dict(list, 1);
    g_assert_cmphex(qdict_get_int(cpu, "global-ctrl"), ==, 0xf);
    g_assert_cmphex(qdict_get_int(cpu, "fixed-ctr-ctrl"), ==, 0);
    g_assert_cmpint(value(cpu, 0), ==, 0);
    g_assert_cmpint(value(cpu, 4), ==, 0);
    qobject_unref(rsp);
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

    guest_init(&g);
    guest_start(&g, "max,family=23,model=1,pmu=on",
                "-S -smp 1,sockets=2,maxcpus=2");
    assert_other(qtest_qmp(g.qts, PLUG ", 'ibs': false } }"));
    assert_other(qtest_qmp(g.qts, PLUG ", 'ibs-op-cnt': false } }"));
    qtest_qmp_assert_success(g.qts, PLUG " } }");
    guest_cleanup(&g);
}

/* --- monitor and trace events ------------------------------------------- */

/* What the monitor shows of a CPU that has been stopped */
static void check_monitor(Guest *g, unsigned index)
{
    g_autofree char *info = qtest_hmp(g->qts, "info pmu");
    g_autofree char *general = NULL, *fixed = NULL;
    QDict *rsp, *cpu, *counter;
    QList *list, *counters;

    rsp = query(g->qts, &list);
    cpu = get_dict(list, index);
    g_assert_cmpint(qdict_get_int(cpu, "cpu-index"), ==, index);
    g_assert_cmphex(qdict_get_int(cpu, "global-ctrl"), ==, GLOBAL_CTRL);
    g_assert_cmphex(qdict_get_int(cpu, "global-status") & ~1ull, ==, 0);
    g_assert_cmphex(qdict_get_int(cpu, "fixed-ctr-ctrl"), ==, 1);
    g_assert_cmphex(qdict_get_int(cpu, "debugctl"), ==, 0);
    g_assert_nonnull(strstr(info, "GLOBAL_CTRL=0000000100000001"));
    counters = qdict_get_qlist(cpu, "counters");
    counter = get_dict(counters, 0);
    g_assert_cmphex(qdict_get_int(counter, "select"), ==, EVTSEL);
    g_assert_cmpstr(qdict_get_str(counter, "event"), ==,
                    "INST_RETIRED.ANY_P");
    g_assert_true(qdict_get_bool(counter, "os"));
    g_assert_false(qdict_get_bool(counter, "usr"));
    g_assert_true(qdict_get_bool(counter, "interrupt"));
    g_assert_true(qdict_get_bool(counter, "enabled"));
    g_assert_false(qdict_get_bool(get_dict(counters, 1), "enabled"));
    general = g_strdup_printf("  general 0: %012" PRIx64 " select "
                              "00000000005200c0 enabled os interrupt: "
                              "INST_RETIRED.ANY_P\r\n", value(cpu, 0));
    g_assert_nonnull(strstr(info, general));
    fixed = g_strdup_printf("  fixed 0: %012" PRIx64 " enabled os: "
                            "INST_RETIRED.ANY\r\n", value(cpu, 4));
    g_assert_nonnull(strstr(info, fixed));
    qobject_unref(rsp);
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

/* The events by name, which QMP has as well */
static void test_events(void)
{
    static const struct {
        const char *cpu, *lines[4];
    } tests[] = {
        { SKYLAKE ",pmu=on",
          { "c4/20    BR_INST_RETIRED.NEAR_TAKEN\r\n",
            "d1/40    MEM_LOAD_RETIRED.FB_HIT (never)\r\n",
            "c6/01=   FRONTEND_RETIRED.L1I_MISS with 3f7h 12\r\n",
            "0151     L1-dcache-load-misses\r\n" } },
        { "EPYC,pmu=on",
          { "c2       ex_ret_brn\r\n", "64/08    l2_cache_req_stat.ls_rd",
            "1d0       ex_ret_fused_instr (never)\r\n",
            "00c3     branch-misses, branch-load-misses\r\n" } },
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
        for (int j = 0; j < 4 && tests[i].lines[j]; j++) {
            g_test_message("%s", tests[i].lines[j]);
            g_assert_nonnull(strstr(text, tests[i].lines[j]));
        }
        qtest_quit(qts);
    }
}

/* Counters of @event and of all branches, beside those of instructions */
static void check_branches(uint64_t event)
{
    const struct {
        uint32_t msr;
        uint64_t val;
    } writes[] = {
        /* After RESET each counts at once. */
        { MSR_EVTSEL0 + 2, 0x4200c4 }, { MSR_EVTSEL0 + 1, event },
        { MSR_GLOBAL_CTRL, GLOBAL_CTRL | 6 },
    };
    Guest g;

    guest_init(&g);
    guest_start(&g, SKYLAKE ",pmu=on", "-S");
    guest_prepare_all(&g, 1);
    for (int i = 0; i < G_N_ELEMENTS(writes); i++) {
        write_msr(&g, AREA(0) + WRITES + 12 * (3 + i), writes[i].msr,
                  writes[i].val);
    }
    guest_cont(&g);
    for (uint32_t nmis = 2; nmis < 20; nmis++) {
        QList *list;
        QDict *rsp, *cpu;

        guest_wait(&g, 0, NMIS, nmis);
        guest_stop(&g);
        rsp = query(g.qts, &list);
        cpu = get_dict(list, 0);
        g_assert_cmpuint(value(cpu, 1), <=, value(cpu, 2));
        g_assert_cmpuint(value(cpu, 2), >, 0);
        g_assert_cmpuint(value(cpu, 2), <, value(cpu, 4));
        qobject_unref(rsp);
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

/* --- branch records ------------------------------------------------------ */

#define MSR_LBR_SELECT          0x1c8
#define MSR_DS_AREA             0x600
#define MSR_LBR_CTL             0x14ce

#define DEBUGCTL_LBR            1
#define DEBUGCTL_BTS            0xc0        /* and TR */
#define DS_AREA                 0x3000      /* in a CPU's area */
#define BTS_BUFFER              0x4000
#define BTS_RECORD              24
#define BTS_RECORDS             100
#define CODE_SIZE               0x160

/* What the guest has been started with, and what there has to be in a stream */
typedef struct BranchTest {
    const char *name, *cpu;
    uint32_t msr;               /* is set to @val, so that it records */
    uint64_t val;
    int depth;
    bool bts, arch;
} BranchTest;

#define MODEL(n) "max,vendor=GenuineIntel,family=6,pmu=on,model=" #n

static const BranchTest branch_tests[] = {
    { "skylake", MODEL(94), MSR_DEBUGCTL, DEBUGCTL_LBR | DEBUGCTL_BTS, 32,
      true },
    { "lbr", MODEL(94), MSR_DEBUGCTL, DEBUGCTL_LBR, 32 },
    { "bts", MODEL(94) ",lbr=off", MSR_DEBUGCTL, DEBUGCTL_BTS, 0, true },
    { "haswell", MODEL(60), MSR_DEBUGCTL, DEBUGCTL_LBR | DEBUGCTL_BTS, 16,
      true },
    { "nehalem", MODEL(26), MSR_DEBUGCTL, DEBUGCTL_LBR, 16 },
    { "core2", MODEL(15), MSR_DEBUGCTL, DEBUGCTL_LBR, 4 },
    { "arch", MODEL(143), MSR_LBR_CTL, 0x7f0007, 32, false, true },
};

static void branch_prepare(Guest *g, const BranchTest *t)
{
    uint64_t area = AREA(0), at = area + WRITES + 12 * 4;

    guest_prepare_all(g, 1);
    qtest_writeq(g->qts, area + DS_AREA, area + BTS_BUFFER);
    qtest_writeq(g->qts, area + DS_AREA + 8, area + BTS_BUFFER);
    qtest_writeq(g->qts, area + DS_AREA + 16,
                 area + BTS_BUFFER + BTS_RECORDS * BTS_RECORD);
    if (t->bts) {
        write_msr(g, at, MSR_DS_AREA, area + DS_AREA);
        at += 12;
    }
    write_msr(g, at, t->msr, t->val);
    qtest_writel(g->qts, at + 12, 0);
}

/* A branch of the guest's; bits above the address are flags. */
static void check_branch(uint64_t from, uint64_t to)
{
    /* The interrupt comes before any instruction. */
    switch ((uint32_t)to == IP_NMI ? 0 : (uint32_t)from) {
    case IP_JNE:
        g_assert_cmphex((uint32_t)to, ==, IP_DEC);
        break;
    case IP_JMP:
        g_assert_cmphex((uint32_t)to, ==, IP_ROUND);
        break;
    default:
        /* Or IRET, or what came first */
        g_assert_cmphex((uint32_t)from - CODE_ADDR, <, CODE_SIZE);
        g_assert_cmphex((uint32_t)to - CODE_ADDR, <, CODE_SIZE);
    }
}

/* What is executed between two branches: from one's target to the next one */
static void check_straight(uint64_t to, uint64_t from)
{
    g_assert_cmphex((uint32_t)from - (uint32_t)to, <, CODE_SIZE);
}

/* In memory: without gaps, in a ring */
static void check_bts(Guest *g)
{
    uint64_t area = AREA(0), buffer = area + BTS_BUFFER;
    uint64_t index = qtest_readq(g->qts, area + DS_AREA + 8), last_to = 0;
    unsigned n = (index - buffer) / BTS_RECORD;

    g_assert_cmphex((index - buffer) % BTS_RECORD, ==, 0);
    g_assert_cmpuint(n, <=, BTS_RECORDS);
    for (unsigned i = 0; i < BTS_RECORDS; i++) {
        uint64_t at = buffer + (n + i) % BTS_RECORDS * BTS_RECORD;
        uint64_t from = qtest_readq(g->qts, at);
        uint64_t to = qtest_readq(g->qts, at + 8);

        check_branch(from, to);
        g_assert_cmphex(from >> 32, ==, 0);
        g_assert_cmphex(to >> 32, ==, 0);
        /* Whether it was predicted */
        g_assert_cmphex(qtest_readq(g->qts, at + 16) & ~0x10ull, ==, 0);
        if (i) {
            check_straight(last_to, from);
        }
        last_to = to;
    }
    check_straight(last_to, get_register(g, 0, "EIP="));
}

/* Returns what query-pmu tells of branch records; the caller unrefs it. */
static QDict *query_branches(Guest *g)
{
    QList *list;
    QDict *rsp = query(g->qts, &list), *branches;

    branches = qdict_get_qdict(get_dict(list, 0), "branches");
    qobject_ref(branches);
    qobject_unref(rsp);
    return branches;
}

static uint64_t get_u64(QDict *dict, const char *key)
{
    return qnum_get_uint(qobject_to(QNum, qdict_get(dict, key)));
}

/* A guest that has been stopped; all records are full. */
static void check_branches_shown(Guest *g, const BranchTest *t)
{
    QDict *branches = query_branches(g);
    g_autofree char *info = qtest_hmp(g->qts, "info pmu");
    g_autofree char *line = NULL;
    uint64_t last_from = get_register(g, 0, "EIP=");
    uint64_t ds_area = t->bts ? AREA(0) + DS_AREA : 0;
    const QListEntry *entry;
    int n = 0;

    g_assert_cmpint(qdict_get_int(branches, "depth"), ==, t->depth);
    g_assert_cmpint(qdict_get_bool(branches, "recording"), ==, t->depth != 0);
    QLIST_FOREACH_ENTRY(qdict_get_qlist(branches, "records"), entry) {
        QDict *r = qobject_to(QDict, qlist_entry_obj(entry));
        uint64_t from = get_u64(r, "from");
        uint64_t to = get_u64(r, "to");
        g_autofree char *shown =
            g_strdup_printf("  branch %d: %016" PRIx64 " -> %016" PRIx64, n++,
                            from, to);

        g_assert_nonnull(strstr(info, shown));
        check_branch(from, to);
        check_straight(to, last_from);
        last_from = from;
    }
    g_assert_cmpint(n, ==, t->depth);
    g_assert_cmpint(qdict_get_bool(branches, "bts"), ==, t->bts);
    g_assert_cmphex(get_u64(branches, "ds-area"), ==, ds_area);
    line = g_strdup_printf("  BTS %s, DS_AREA=%016" PRIx64 "\r\n",
                           t->bts ? "on" : "off", ds_area);
    g_assert_nonnull(strstr(info, line));
    if (t->bts) {
        check_bts(g);
    }
    qobject_unref(branches);
}

/* No record, and nothing that could make one */
static void check_branches_none(Guest *g)
{
    QDict *branches = query_branches(g);

    g_assert_false(qdict_get_bool(branches, "recording"));
    g_assert_true(qlist_empty(qdict_get_qlist(branches, "records")));
    g_assert_false(qdict_get_bool(branches, "bts"));
    g_assert_cmphex(get_u64(branches, "ds-area"), ==, 0);
    qobject_unref(branches);
}

static bool stream_has(Guest *g, const char *name)
{
    g_autofree char *stream = NULL;
    size_t size;

    g_assert_true(g_file_get_contents(g->stream, &stream, &size, NULL));
    return memmem(stream, size, name, strlen(name));
}

/* Records are the same on the other side, and go on to be. */
static void test_branch_migrate(gconstpointer opaque)
{
    const BranchTest *t = opaque;
    Guest g;

    guest_init(&g);
    guest_start(&g, t->cpu, "-S");
    g.cpus = 1;
    guest_save(&g);
    g_assert_false(stream_has(&g, "cpu/branch"));
    g_assert_true(guest_load(&g, t->cpu, "-S"));
    check_branches_none(&g);

    branch_prepare(&g, t);
    guest_cont(&g);
    for (int i = 0; i < 5; i++) {
        g_autoptr(GString) before = NULL, after = NULL;
        QDict *branches;

        guest_consume(&g, 20);
        check_branches_shown(&g, t);
        branches = query_branches(&g);
        before = qobject_to_json(QOBJECT(branches));
        qobject_unref(branches);
        guest_save(&g);
        g_assert_true(stream_has(&g, "cpu/branch"));
        g_assert_cmpint(stream_has(&g, "cpu/branch/stack"), ==, !t->arch);
        g_assert_cmpint(stream_has(&g, "cpu/arch_lbr"), ==, t->arch);
        g_assert_true(guest_load(&g, t->cpu, "-S"));
        branches = query_branches(&g);
        after = qobject_to_json(QOBJECT(branches));
        qobject_unref(branches);
        g_assert_cmpstr(before->str, ==, after->str);
        check_branches_shown(&g, t);
        guest_cont(&g);
    }
    guest_stop(&g);
    qtest_qmp_assert_success(g.qts, "{ 'execute': 'system_reset' }");
    qtest_qmp_eventwait(g.qts, "RESET");
    check_branches_none(&g);
    guest_save(&g);
    g_assert_false(stream_has(&g, "cpu/branch"));
    guest_cleanup(&g);
}

/* A snapshot from before has no records, and one from behind brings them. */
static void test_branch_snapshot(void)
{
    const BranchTest *t = &branch_tests[0];
    Guest g;

    guest_start_with_disk(&g, 1);
    branch_prepare(&g, t);
    guest_hmp(&g, "savevm before");
    guest_cont(&g);
    guest_consume(&g, 20);
    guest_hmp(&g, "savevm behind");
    check_branches_shown(&g, t);
    guest_hmp(&g, "loadvm before");
    check_branches_none(&g);
    guest_hmp(&g, "loadvm behind");
    check_branches_shown(&g, t);
    guest_cont(&g);
    guest_consume(&g, 20);
    check_branches_shown(&g, t);
    guest_cleanup(&g);
}

/* Offsets in the subsections, and what no such CPU could have sent there */
enum {
    B_DEBUGCTL = 0,
    B_SELECT = 8,
    B_DBG_EXTN_CFG = 16,
    B_LER_FROM = 24,
    B_LER_INFO = 40,
    B_SMM_DEBUGCTL = 48,
    B_SMM_LBR_CTL = 56,
    B_SMM_FROZEN = 64,
    B_AGE = 65,
    B_SIZE = 73,
    B_STACK_SIZE = 8 + 32 * 24,
    B_DS_SIZE = 8,
};

/* Where the fields of a subsection are */
static char *find_part(char *stream, size_t size, const char *name)
{
    char *part = memmem(stream, size, name, strlen(name));

    g_assert_nonnull(part);
    return part + strlen(name) + 4;     /* behind its version */
}

static void test_branch_refused(void)
{
    enum { BRANCH, STACK, DS, NR_PARTS };
    static const struct {
        const char *name;
        size_t size;
        const char *message;
    } parts[NR_PARTS] = {
        { "cpu/branch", B_SIZE, "CPU 0: inconsistent branch records" },
        { "cpu/branch/stack", B_STACK_SIZE,
          "CPU 0: inconsistent branch records" },
        { "cpu/pmu/ds", B_DS_SIZE, "CPU 0: inconsistent debug store" },
    };
    static const struct {
        unsigned offset, bytes;
        uint64_t val;
        int part;
        bool good;
    } t[] = {
        { B_DEBUGCTL, 8, 0x7c3, BRANCH, true },
        { B_DEBUGCTL, 8, 1 << 2 },              /* of P6 */
        { B_DEBUGCTL, 8, 1 << 14 },             /* of counters */
        { B_DEBUGCTL, 8, 1ull << 63 },
        { B_SELECT, 8, 0x3ff, BRANCH, true },
        { B_SELECT, 8, 1 << 10 },
        { B_DBG_EXTN_CFG, 8, 1 << 6 },          /* of AMD */
        { B_LER_FROM, 8, UINT64_MAX, BRANCH, true },
        { B_LER_INFO, 8, 1 },                   /* of architectural records */
        { B_SMM_DEBUGCTL, 8, 1 },               /* not in SMM */
        { B_SMM_LBR_CTL, 8, 1 },
        { B_AGE, 8, 1ull << 62 },
        { B_AGE, 8, (1ull << 62) - 1, BRANCH, true },
        { 0, 8, 32, STACK },                    /* TOS */
        { 0, 8, 31, STACK, true },
        { 8, 8, UINT64_MAX, STACK, true },      /* FROM */
        { B_STACK_SIZE - 8, 8, UINT64_MAX, STACK, true },   /* INFO */
        { 0, 8, 1ull << 62, DS },
        { 0, 8, 0x7ffffffffff8, DS, true },
    };
    const char *cpu = branch_tests[0].cpu;
    g_autofree char *stream = NULL;
    char *part[NR_PARTS], old[B_STACK_SIZE];
    size_t size;
    Guest g;

    guest_init(&g);
    guest_start(&g, cpu, "-S");
    branch_prepare(&g, &branch_tests[0]);
    guest_cont(&g);
    guest_consume(&g, 2);
    guest_save(&g);
    g_assert_true(g_file_get_contents(g.stream, &stream, &size, NULL));
    for (int i = 0; i < NR_PARTS; i++) {
        part[i] = find_part(stream, size, parts[i].name);
    }
    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        char *changed = part[t[i].part];
        size_t n = parts[t[i].part].size;

        memcpy(old, changed, n);
        put(changed, t[i].offset, t[i].bytes, t[i].val);
        g_assert_true(g_file_set_contents(g.stream, stream, size, NULL));
        if (t[i].good) {
            g_autofree char *after = NULL;
            size_t size_after;

            /* As it came, it goes. */
            g_assert_true(guest_load(&g, cpu, "-S"));
            guest_save(&g);
            g_assert_true(g_file_get_contents(g.stream, &after, &size_after,
                                              NULL));
            for (int j = 0; j < NR_PARTS; j++) {
                g_assert_cmpmem(find_part(after, size_after, parts[j].name),
                                parts[j].size, part[j], parts[j].size);
            }
        } else {
            assert_load_fails(&g, cpu, parts[t[i].part].message);
        }
        memcpy(changed, old, n);
    }
    g_assert_true(g_file_set_contents(g.stream, stream, size, NULL));
    assert_load_fails(&g, MODEL(94) ",lbr=off", "inconsistent");
    assert_load_fails(&g, MODEL(94) ",bts=off", "inconsistent");
    assert_load_fails(&g, MODEL(94) ",ds=off", "inconsistent");
    g_assert_true(guest_load(&g, cpu, "-S"));
    guest_cleanup(&g);
}

/* Streams that nobody has sent */
static void test_branch_bytes(void)
{
    const BranchTest *t = &branch_tests[0];
    Guest g;

    guest_start_with_disk(&g, 1);
    branch_prepare(&g, t);
    guest_cont(&g);
    guest_consume(&g, 20);
    guest_hmp(&g, "savevm branch");
    try_section_bytes(g.qts, g.disk, "branch", "cpu/branch", B_SIZE,
                      "info pmu");
    try_section_bytes(g.qts, g.disk, "branch", "cpu/branch/stack",
                      B_STACK_SIZE, "info pmu");
    guest_hmp(&g, "loadvm branch");
    check_branches_shown(&g, t);
    guest_cleanup(&g);
}

/*
 * What the BIOS's guest is, if it has one: it has DbgCtl.LBR of its own, by LBR
 * virtualization (APM 15.23), and counts until it shall stop.
 */
#define LBRV_OFFSET     0x22        /* in guest_code, in 32-bit mode */
#define LBRV_COUNT      0x200000
#define LBRV_STOP       0x200004
#define LBRV_FOUND      0x200008    /* behind #VMEXIT: 1DBH, 1DCH, 1D9H */
#define LBRV_EXITS      0x200014
#define LBRV_VMCB       0x201000
#define LBRV_IP_HOST    (CODE_ADDR + 0x48)
#define LBRV_IP_VMRUN   (CODE_ADDR + 0x4a)
#define LBRV_IP_GUEST   (CODE_ADDR + 0x7b)
#define LBRV_IP_JE      (CODE_ADDR + 0x88)

static const uint8_t lbrv_code[] = {
    /* mov $0xc0000080,%ecx           */ 0xb9, 0x80, 0x00, 0x00, 0xc0,
    /* rdmsr                          */ 0x0f, 0x32,
    /* or $0x10,%ah: SVME             */ 0x80, 0xcc, 0x10,
    /* wrmsr                          */ 0x0f, 0x30,
    /* mov $0xc0010117,%ecx           */ 0xb9, 0x17, 0x01, 0x01, 0xc0,
    /* mov $0x202000,%eax             */ 0xb8, 0x00, 0x20, 0x20, 0x00,
    /* xor %edx,%edx                  */ 0x31, 0xd2,
    /* wrmsr                          */ 0x0f, 0x30,
    /* mov $0x1d9,%ecx                */ 0xb9, 0xd9, 0x01, 0x00, 0x00,
    /* mov $0x1,%eax                  */ 0xb8, 0x01, 0x00, 0x00, 0x00,
    /* wrmsr                          */ 0x0f, 0x30,
    /* jmp 4a                         */ 0xeb, 0x00,
    /* 4a: mov $0x201000,%eax         */ 0xb8, 0x00, 0x10, 0x20, 0x00,
    /* vmrun                          */ 0x0f, 0x01, 0xd8,
    /* mov $0x1db,%ecx                */ 0xb9, 0xdb, 0x01, 0x00, 0x00,
    /* rdmsr                          */ 0x0f, 0x32,
    /* mov %eax,0x200008              */ 0xa3, 0x08, 0x00, 0x20, 0x00,
    /* inc %ecx                       */ 0x41,
    /* rdmsr                          */ 0x0f, 0x32,
    /* mov %eax,0x20000c              */ 0xa3, 0x0c, 0x00, 0x20, 0x00,
    /* mov $0x1d9,%ecx                */ 0xb9, 0xd9, 0x01, 0x00, 0x00,
    /* rdmsr                          */ 0x0f, 0x32,
    /* mov %eax,0x200010              */ 0xa3, 0x10, 0x00, 0x20, 0x00,
    /* incl 0x200014                  */ 0xff, 0x05, 0x14, 0x00, 0x20, 0x00,
    /* 78: hlt                        */ 0xf4,
    /* jmp 78                         */ 0xeb, 0xfd,
    /* the guest */
    /* 7b: incl 0x200000              */ 0xff, 0x05, 0x00, 0x00, 0x20, 0x00,
    /* cmpl $0x0,0x200004             */ 0x83, 0x3d, 0x04, 0x00, 0x20, 0x00,
                                         0x00,
    /* je 7b                          */ 0x74, 0xf1,
    /* vmmcall                        */ 0x0f, 0x01, 0xd9,
};

/* The VMCB (APM, appendix B) of a guest with the segments of its host */
static void lbrv_prepare(Guest *g)
{
    static const struct {
        uint16_t offset;
        uint64_t val;
    } fields[] = {
        { 0x010, 3 },                           /* exits: VMRUN, VMMCALL */
        { 0x058, 1 },                           /* ASID */
        { 0x0b8, 1 },                           /* LBR virtualization */
        { 0x400, 0xffffffff0c930010 },          /* ES */
        { 0x410, 0xffffffff0c9b0008 },          /* CS */
        { 0x420, 0xffffffff0c930010 },          /* SS */
        { 0x430, 0xffffffff0c930010 },          /* DS */
        { 0x4d0, 0x1000 },                      /* EFER: SVME */
        { 0x558, 0x11 },                        /* CR0: PE, ET */
        { 0x560, 0x400 }, { 0x568, 0xffff0ff0 },    /* DR7, DR6 */
        { 0x570, 2 },                           /* EFLAGS */
        { 0x578, LBRV_IP_GUEST },
        { 0x670, DEBUGCTL_LBR },
    };

    qtest_memset(g->qts, LBRV_COUNT, 0, 0x2000);
    for (int i = 0; i < G_N_ELEMENTS(fields); i++) {
        qtest_writeq(g->qts, LBRV_VMCB + fields[i].offset, fields[i].val);
    }
}

/* The only record there is */
static void check_lbrv_record(Guest *g, uint64_t from, uint64_t to)
{
    QDict *branches = query_branches(g), *r;
    QList *records = qdict_get_qlist(branches, "records");

    g_assert_true(qdict_get_bool(branches, "recording"));
    g_assert_cmpint(qlist_size(records), ==, 1);
    r = get_dict(records, 0);
    g_assert_cmphex(get_u64(r, "from"), ==, from);
    g_assert_cmphex(get_u64(r, "to"), ==, to);
    qobject_unref(branches);
}

/*
 * The guest's and the host's record are on the other side, too, when it is the
 * guest that runs.
 */
static void test_branch_lbrv(void)
{
    const char *cpu = "max,pmu=on";
    g_autofree uint8_t *image = g_malloc0(BIOS_SIZE);
    Guest g;

    guest_init(&g);
    memcpy(image, guest_code, sizeof(guest_code));
    memcpy(image + LBRV_OFFSET, lbrv_code, sizeof(lbrv_code));
    memcpy(image + BIOS_SIZE - 16, reset_vector, sizeof(reset_vector));
    g_assert_true(g_file_set_contents(g.bios, (char *)image, BIOS_SIZE, NULL));
    guest_start(&g, cpu, "-S");
    g.cpus = 1;
    lbrv_prepare(&g);
    guest_cont(&g);
    for (int i = 0; i < 3; i++) {
        guest_wait_at(&g, LBRV_COUNT,
                      qtest_readl(g.qts, LBRV_COUNT) + 1000);
        guest_stop(&g);
        check_lbrv_record(&g, LBRV_IP_JE, LBRV_IP_GUEST);
        guest_save(&g);
        g_assert_true(guest_load(&g, cpu, "-S"));
        check_lbrv_record(&g, LBRV_IP_JE, LBRV_IP_GUEST);
        guest_cont(&g);
    }
    qtest_writel(g.qts, LBRV_STOP, 1);
    guest_wait_at(&g, LBRV_EXITS, 1);
    g_assert_cmphex(qtest_readl(g.qts, LBRV_FOUND), ==, LBRV_IP_HOST);
    g_assert_cmphex(qtest_readl(g.qts, LBRV_FOUND + 4), ==, LBRV_IP_VMRUN);
    g_assert_cmphex(qtest_readl(g.qts, LBRV_FOUND + 8), ==, DEBUGCTL_LBR);
    g_assert_cmphex(qtest_readq(g.qts, LBRV_VMCB + 0x70), ==, 0x81);
    g_assert_cmphex(qtest_readq(g.qts, LBRV_VMCB + 0x678), ==, LBRV_IP_JE);
    g_assert_cmphex(qtest_readq(g.qts, LBRV_VMCB + 0x680), ==, LBRV_IP_GUEST);
    guest_cleanup(&g);
}

static void test_trace(void)
{
    static const char *const lines[] = {
        "pmu_wrmsr cpu 0: msr 0x186, val 0x52012e\n",
        "pmu_unknown_event cpu 0: event 0x2e, unit mask 0x1\n",
        "pmu_wrmsr cpu 0: msr 0x186, val 0x5200c0\n",
        "pmu_wrmsr cpu 0: msr 0x38f, val 0x100000001\n",
        "pmu_pmi cpu 0: overflow before ip 0xf00",
        "pmu_wrmsr cpu 0: msr 0x390, val 0x1\n",
    };
    g_autofree char *args = NULL, *text = NULL;
    const char *pos;
    Guest g;

    guest_init(&g);
    args = g_strdup_printf("-S -trace 'pmu_*' -D %s", g.log);
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
    qtest_add_func("/pmu/caches", test_caches);
    qtest_add_func("/pmu/amd-lbr", test_amd_lbr);
    qtest_add_func("/pmu/caches/not-shown", test_caches_not_shown);

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
    qtest_add_func("/pmu/aperfmperf", test_aperfmperf);
    qtest_add_func("/pmu/migrate/clocks", test_clocks);
    qtest_add_func("/pmu/migrate/pebs", test_pebs);
    qtest_add_func("/pmu/reset", test_reset);
    qtest_add_func("/pmu/hotplug", test_hotplug);
    qtest_add_func("/pmu/monitor", test_monitor);
    qtest_add_func("/pmu/events", test_events);
    qtest_add_func("/pmu/monitor/branches", test_branches);
    for (int i = 0; i < G_N_ELEMENTS(branch_tests); i++) {
        const BranchTest *t = &branch_tests[i];
        g_autofree char *path = g_strdup_printf("/pmu/branch/migrate/%s",
                                                t->name);

        qtest_add_data_func(path, t, test_branch_migrate);
    }
    qtest_add_func("/pmu/branch/snapshot", test_branch_snapshot);
    qtest_add_func("/pmu/ibs", test_ibs);
    qtest_add_func("/pmu/branch/refused", test_branch_refused);
    qtest_add_func("/pmu/branch/bytes", test_branch_bytes);
    qtest_add_func("/pmu/branch/lbrv", test_branch_lbrv);
    qtest_add_func("/pmu/trace", test_trace);
    return g_test_run();
}
