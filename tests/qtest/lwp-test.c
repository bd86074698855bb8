/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD Lightweight Profiling: CPU features as QMP shows them; migration,
 * snapshots, reset and CPU hot-plug of a guest that profiles itself.
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "libqtest.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"
#include "qobject/qnum.h"
#include "x86-section-bytes.h"

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
    INT = 1 << 11,
    FAMILY_15H = VAL | 1 << 1 | BRE | INT,
    ALL = (1 << 12) - 1,
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
    { "max+lwp-no-predictor", "max,+lwp,branch-predictor=off",
      ALL & ~PREDICTION, 0x8000001c },
    { "max+lwp-xsave",      "max,+lwp,-xsave", NONE, 0 },
    { "qemu64+lwp",         "qemu64,+lwp", NONE, 0 },
    { "qemu64+xsave+lwp",   "qemu64,+xsave,+lwp", ALL, 0x8000001c },
    { "G4",                 "Opteron_G4", NONE, 0x8000001a },
    { "G4+lwp",             "Opteron_G4,+lwp", FAMILY_15H, 0x8000001c },
    { "G5+lwp",             "Opteron_G5,+lwp", FAMILY_15H, 0x8000001c },
    { "max+lwp-no-int",     "max,+lwp,-lwp-int", ALL & ~INT, 0x8000001c },
    { "max+lwp-apic",       "max,+lwp,-apic", ALL & ~INT, 0x8000001c },
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

/* What QEMU has to say about a CPU. */
static char *warnings(const char *accel, const char *cpu)
{
    g_autofree char *log = g_strdup_printf("%s/lwp-test-%d.log",
                                           g_get_tmp_dir(), getpid());
    char *text;

    qtest_quit(qtest_initf("-machine pc -accel %s -S -cpu %s 2>%s",
                           accel, cpu, log));
    g_assert_true(g_file_get_contents(log, &text, NULL, NULL));
    unlink(log);
    return text;
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

/* A property out of its range ends QEMU with a sentence that names both. */
static void test_properties(void)
{
    static const struct {
        const char *cpu, *message;      /* NULL: it is accepted */
    } t[] = {
        { "max,+lwp,refclk-ratio=1,insn-clocks=1000", NULL },
        { "max,+lwp,refclk-ratio=10000,insn-clocks=1", NULL },
        /* Each model's property has another name. */
        { "max,+lwp,lwp-l1d-size=32K,lwp-l1d-assoc=8,lwp-l2-size=64M,"
          "lwp-l2-assoc=8,lwp-l3-size=0,lwp-l3-assoc=1,lwp-l2-latency=2,"
          "lwp-l3-latency=3,lwp-remote-latency=4,lwp-dram-latency=5,"
          "lwp-other-latency=6,lwp-insn-clocks=7,lwp-refclk-ratio=8,"
          "lwp-branch-predictor=off", NULL },
        { "max,+lwp,lwp-refclk-ratio=0",
          "'refclk-ratio' must be between 1 and 10000, not 0" },
        { "max,+lwp,lwp-insn-clocks=x", "'lwp-insn-clocks'" },
        { "max,+lwp,refclk-ratio=0",
          "'refclk-ratio' must be between 1 and 10000, not 0" },
        { "max,refclk-ratio=10001",
          "'refclk-ratio' must be between 1 and 10000, not 10001" },
        { "max,+lwp,insn-clocks=0",
          "'insn-clocks' must be between 1 and 1000, not 0" },
        { "Opteron_G5,+lwp,insn-clocks=1001",
          "'insn-clocks' must be between 1 and 1000, not 1001" },
        { "max,+lwp,l1d-size=32K,l1d-assoc=8,l2-size=64M,"
          "l3-size=0,lwp-latency-max=31,lwp-latency-rnd=0,"
          "branch-predictor=gshare", NULL },
        { "max,+lwp,l1d-size=512",
          "'l1d-size' must be between 1024 and 1048576, not 512" },
        { "max,+lwp,l2-assoc=0",
          "'l2-assoc' must be between 1 and 128, not 0" },
        { "max,+lwp,l3-size=3M", NULL },            /* 768 sets */
        { "max,+lwp,l3-size=3M,l3-assoc=7", "'l3-size' and 'l3-assoc'" },
        { "max,+lwp,dram-latency=1000001",
          "'dram-latency' must be between 1 and 1000000, not 1000001" },
        { "max,+lwp,lwp-latency-max=9",
          "'lwp-latency-max' must be between 10 and 31, not 9" },
        { "max,+lwp,lwp-latency-rnd=5",
          "'lwp-latency-rnd' must be between 0 and 4, not 5" },
        { "max,+lwp,branch-predictor=tage",
          "'branch-predictor' must be 'local' or 'off', not 'tage'" },
        { "max,+lwp,-lwp-cache-levels,-lwp-cache-latency",
          "'lwp-dme' needs 'lwp-cache-levels' or 'lwp-cache-latency'" },
        { "max,+lwp,branch-predictor=off,+lwp-branch-prediction",
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
            text = warnings("tcg", t[i].cpu);
            g_assert_cmpstr(text, ==, "");
            continue;
        }
        g_assert_true(g_spawn_sync(NULL, (char **)argv, NULL, 0, NULL, NULL,
                                   NULL, &text, &status, NULL));
        g_assert_cmpint(status, !=, 0);
        g_assert_nonnull(strstr(text, t[i].message));
    }
}

/* What is set by one name of a property is what the other one has. */
static void test_aliases(void)
{
    QTestState *qts = qtest_init("-machine pc -accel tcg -S -cpu max,+lwp,"
                                 "lwp-insn-clocks=7,lwp-l3-size=0,"
                                 "dram-latency=321,lwp-branch-predictor=off");
    static const struct {
        const char *name;
        int val;
    } t[] = {
        { "insn-clocks", 7 }, { "lwp-insn-clocks", 7 },
        { "l3-size", 0 }, { "lwp-l3-size", 0 },
        { "dram-latency", 321 }, { "lwp-dram-latency", 321 },
        { "refclk-ratio", 1000 }, { "lwp-refclk-ratio", 1000 },
        { "l1d-size", 0x4000 }, { "lwp-l1d-assoc", 4 },
        { "l2-size", 0x200000 }, { "l2-assoc", 16 }, { "l3-assoc", 64 },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        QDict *rsp = qom_get(qts, t[i].name);

        g_assert_cmpint(qdict_get_int(rsp, "return"), ==, t[i].val);
        qobject_unref(rsp);
    }
    g_assert_false(qom_get_bool(qts, "lwp-branch-prediction"));
    qtest_quit(qts);
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

/* --- a guest that profiles itself ---------------------------------------- */

#define MAX_CPUS        2
#define AREA(cpu)       (((cpu) + 1) * 0x200000ull) /* physical */
#define AREA_ADDR       0x200000                    /* linear */

/* Offsets in a CPU's area, which begins with its LWPCB */
enum {
    CB_HEAD = 16,
    CB_MISSED = 24,
    CB_TAIL = 64,
    CB_EVENTS = 128,
    BOOTS = 0x100,      /* from here on, what the guest reports */
    FAULTS = 0x104,
    FOUND = 0x108,      /* LWP_CFG, LWP_CBADDR and XCR0 when it starts */
    FAULT_ADDR = 0x120, /* of the first page fault */
    FAULT_IP = 0x128,
    COMMAND = 0x140,    /* from here on, what the test sets */
    PRESENT = 0x144,    /* what a page fault ORs to the PTE */
    CFG = 0x148,
    TSS = 0x200,
    TABLES = 0x1000,
    STACK_TOP = 0x9000,
    RING = 0x80000,
    RING_SIZE = 0x80000,
};

enum { WAIT, RUN, TRIPLE_FAULT, START_OTHERS };     /* COMMAND */

/* EventIds */
#define E_VAL           1
#define E_IRE           2
#define E_DME           4
#define E_CNH           5
#define E_INS           255
#define NR_EVENTS       6
#define PROFILED_15H    (1u << E_VAL | 1u << E_IRE)
#define PROFILED        (PROFILED_15H | 1u << E_CNH)

/*
 * The last 64 KiB below 1 MiB, and below 4 GiB.  Each CPU sees its area at
 * AREA_ADDR.  It makes LWP available, loads the LWPCB that the test has
 * prepared and then, at CPL 3, for ever inserts a record that has a sequence
 * number and the counter of IRE, executes LWPVAL, and LOOPS times DEC and JNZ.
 * INT 15 waits until there is room in the ring; as neither it nor the kernel
 * counts, all is known of the instruction with a given number.
 */
#define BIOS_SIZE       0x10000
#define CODE_ADDR       0xf0000
#define LOOPS           100000
#define PERIOD          (6 + 2 * LOOPS + 1)
#define HANDLER         (1 + 2 * 1000 + 1)          /* its instructions */
#define IP_LOAD         (CODE_ADDR + 0x178)
#define IP_LWPINS       (CODE_ADDR + 0x17e)
#define IP_LWPVAL       (CODE_ADDR + 0x187)
#define IP_LOOP         (CODE_ADDR + 0x197)
#define IP_JMP          (CODE_ADDR + 0x19d)

static const uint8_t guest_code[] = {
    /* cli                          */ 0xfa,
    /* lgdtl %cs:0x1f8              */ 0x2e, 0x66, 0x0f, 0x01, 0x16, 0xf8,
                                       0x01,
    /* mov $0x1,%eax                */ 0x66, 0xb8, 0x01, 0x00, 0x00, 0x00,
    /* mov %eax,%cr0                */ 0x0f, 0x22, 0xc0,
    /* ljmpl $0x8,$0xf0019          */ 0x66, 0xea, 0x19, 0x00, 0x0f, 0x00,
                                       0x08, 0x00,
    /* 32-bit mode */
    /* mov $0x1,%eax                */ 0xb8, 0x01, 0x00, 0x00, 0x00,
    /* cpuid                        */ 0x0f, 0xa2,
    /* shr $0x18,%ebx               */ 0xc1, 0xeb, 0x18,
    /* inc %ebx                     */ 0x43,
    /* shl $0x15,%ebx               */ 0xc1, 0xe3, 0x15,
    /* mov $0x40020,%eax            */ 0xb8, 0x20, 0x00, 0x04, 0x00,
    /* mov %eax,%cr4                */ 0x0f, 0x22, 0xe0,
    /* lea 0x1000(%ebx),%eax        */ 0x8d, 0x83, 0x00, 0x10, 0x00, 0x00,
    /* mov %eax,%cr3                */ 0x0f, 0x22, 0xd8,
    /* mov $0xc0000080,%ecx         */ 0xb9, 0x80, 0x00, 0x00, 0xc0,
    /* xor %edx,%edx                */ 0x31, 0xd2,
    /* mov $0x100,%eax              */ 0xb8, 0x00, 0x01, 0x00, 0x00,
    /* wrmsr                        */ 0x0f, 0x30,
    /* mov $0x80000001,%eax         */ 0xb8, 0x01, 0x00, 0x00, 0x80,
    /* mov %eax,%cr0                */ 0x0f, 0x22, 0xc0,
    /* ljmp $0x18,$0xf0055          */ 0xea, 0x55, 0x00, 0x0f, 0x00, 0x18,
                                       0x00,
    /* 64-bit mode */
    /* mov $0x200000,%esi           */ 0xbe, 0x00, 0x00, 0x20, 0x00,
    /* lea 0x9000(%rsi),%esp        */ 0x8d, 0xa6, 0x00, 0x90, 0x00, 0x00,
    /* lidt 0xf01fe                 */ 0x0f, 0x01, 0x1c, 0x25, 0xfe, 0x01,
                                       0x0f, 0x00,
    /* mov $0x28,%eax               */ 0xb8, 0x28, 0x00, 0x00, 0x00,
    /* ltr %ax                      */ 0x0f, 0x00, 0xd8,
    /* mov $0xc0000105,%ecx         */ 0xb9, 0x05, 0x01, 0x00, 0xc0,
    /* rdmsr                        */ 0x0f, 0x32,
    /* mov %eax,0x108(%rsi)         */ 0x89, 0x86, 0x08, 0x01, 0x00, 0x00,
    /* mov %edx,0x10c(%rsi)         */ 0x89, 0x96, 0x0c, 0x01, 0x00, 0x00,
    /* inc %ecx                     */ 0xff, 0xc1,
    /* rdmsr                        */ 0x0f, 0x32,
    /* mov %eax,0x110(%rsi)         */ 0x89, 0x86, 0x10, 0x01, 0x00, 0x00,
    /* mov %edx,0x114(%rsi)         */ 0x89, 0x96, 0x14, 0x01, 0x00, 0x00,
    /* xor %ecx,%ecx                */ 0x31, 0xc9,
    /* xgetbv                       */ 0x0f, 0x01, 0xd0,
    /* mov %eax,0x118(%rsi)         */ 0x89, 0x86, 0x18, 0x01, 0x00, 0x00,
    /* mov %edx,0x11c(%rsi)         */ 0x89, 0x96, 0x1c, 0x01, 0x00, 0x00,
    /* incl 0x100(%rsi)             */ 0xff, 0x86, 0x00, 0x01, 0x00, 0x00,
    /* aa: pause                    */ 0xf3, 0x90,
    /* cmp %ecx,0x140(%rsi)         */ 0x39, 0x8e, 0x40, 0x01, 0x00, 0x00,
    /* je aa                        */ 0x74, 0xf6,
    /* mov $0x1,%eax                */ 0xb8, 0x01, 0x00, 0x00, 0x00,
    /* mov $0x40000000,%edx         */ 0xba, 0x00, 0x00, 0x00, 0x40,
    /* xsetbv                       */ 0x0f, 0x01, 0xd1,
    /* mov $0xc0000105,%ecx         */ 0xb9, 0x05, 0x01, 0x00, 0xc0,
    /* mov 0x148(%rsi),%eax         */ 0x8b, 0x86, 0x48, 0x01, 0x00, 0x00,
    /* mov 0x14c(%rsi),%edx         */ 0x8b, 0x96, 0x4c, 0x01, 0x00, 0x00,
    /* wrmsr                        */ 0x0f, 0x30,
    /* llwpcb %rsi                  */ 0x8f, 0xe9, 0xf8, 0x12, 0xc6,
    /* xor %ebx,%ebx                */ 0x31, 0xdb,
    /* push $0x13                   */ 0x6a, 0x13,
    /* push $0x0                    */ 0x6a, 0x00,
    /* push $0x2                    */ 0x6a, 0x02,
    /* push $0x23                   */ 0x6a, 0x23,
    /* push $0xf0173                */ 0x68, 0x73, 0x01, 0x0f, 0x00,
    /* system call: wait, and do what the test wants */
    /* e8: pause                    */ 0xf3, 0x90,
    /* mov 0x140(%rsi),%eax         */ 0x8b, 0x86, 0x40, 0x01, 0x00, 0x00,
    /* dec %eax                     */ 0xff, 0xc8,
    /* js e8                        */ 0x78, 0xf4,
    /* jne 105                      */ 0x75, 0x0f,
    /* mov 0x10(%rsi),%eax          */ 0x8b, 0x46, 0x10,
    /* sub 0x40(%rsi),%eax          */ 0x2b, 0x46, 0x40,
    /* test $0x40000,%eax           */ 0xa9, 0x00, 0x00, 0x04, 0x00,
    /* jne e8                       */ 0x75, 0xe5,
    /* iretq                        */ 0x48, 0xcf,
    /* 105: dec %eax                */ 0xff, 0xc8,
    /* je 11f                       */ 0x74, 0x16,
    /* movl $0xc46f0,0x1ff300(%rsi) */ 0xc7, 0x86, 0x00, 0xf3, 0x1f, 0x00,
                                       0xf0, 0x46, 0x0c, 0x00,
    /* movl $0x1,0x140(%rsi)        */ 0xc7, 0x86, 0x40, 0x01, 0x00, 0x00,
                                       0x01, 0x00, 0x00, 0x00,
    /* jmp e8                       */ 0xeb, 0xc9,
    /* 11f: mov %eax,0x140(%rsi)    */ 0x89, 0x86, 0x40, 0x01, 0x00, 0x00,
    /* lidt 0x180(%rsi)             */ 0x0f, 0x01, 0x9e, 0x80, 0x01, 0x00,
                                       0x00,
    /* int3                         */ 0xcc,
    /* page fault */
    /* 12d: pop %rax                */ 0x58,
    /* incl 0x104(%rsi)             */ 0xff, 0x86, 0x04, 0x01, 0x00, 0x00,
    /* cmpl $0x1,0x104(%rsi)        */ 0x83, 0xbe, 0x04, 0x01, 0x00, 0x00,
                                       0x01,
    /* jne 15a                      */ 0x75, 0x1d,
    /* mov %cr2,%rax                */ 0x0f, 0x20, 0xd0,
    /* mov %rax,0x120(%rsi)         */ 0x48, 0x89, 0x86, 0x20, 0x01, 0x00,
                                       0x00,
    /* mov (%rsp),%rax              */ 0x48, 0x8b, 0x04, 0x24,
    /* mov %rax,0x128(%rsi)         */ 0x48, 0x89, 0x86, 0x28, 0x01, 0x00,
                                       0x00,
    /* movq $0xf0168,(%rsp)         */ 0x48, 0xc7, 0x04, 0x24, 0x68, 0x01,
                                       0x0f, 0x00,
    /* 15a: mov 0x144(%rsi),%eax    */ 0x8b, 0x86, 0x44, 0x01, 0x00, 0x00,
    /* or %eax,0x4400(%rsi)         */ 0x09, 0x86, 0x00, 0x44, 0x00, 0x00,
    /* iretq                        */ 0x48, 0xcf,
    /* CPL 3: the signal handler */
    /* 168: mov $0x3e8,%ecx         */ 0xb9, 0xe8, 0x03, 0x00, 0x00,
    /* 16d: dec %ecx                */ 0xff, 0xc9,
    /* jne 16d                      */ 0x75, 0xfc,
    /* jmp 17e                      */ 0xeb, 0x0b,
    /* CPL 3: what is profiled */
    /* 173: slwpcb %rax             */ 0x8f, 0xe9, 0xf8, 0x12, 0xc8,
    /* mov 0x8c(%rsi),%edx          */ 0x8b, 0x96, 0x8c, 0x00, 0x00, 0x00,
    /* 17e: lwpins $0x1234,%ebx,%rdx */ 0x8f, 0xea, 0xe8, 0x12, 0xc3, 0x34,
                                       0x12, 0x00, 0x00,
    /* lwpval $0x5678,%ebx,%rdx     */ 0x8f, 0xea, 0xe8, 0x12, 0xcb, 0x78,
                                       0x56, 0x00, 0x00,
    /* inc %ebx                     */ 0xff, 0xc3,
    /* mov $0x186a0,%ecx            */ 0xb9, 0xa0, 0x86, 0x01, 0x00,
    /* 197: dec %ecx                */ 0xff, 0xc9,
    /* jne 197                      */ 0x75, 0xfc,
    /* int $0xf                     */ 0xcd, 0x0f,
    /* jmp 173                      */ 0xeb, 0xd4,
    /* nop                          */ 0x90,
    /* 1a0: null                    */ 0, 0, 0, 0, 0, 0, 0, 0,
    /* 08: code                     */ 0xff, 0xff, 0, 0, 0, 0x9b, 0xcf, 0,
    /* 10: data, DPL 3              */ 0xff, 0xff, 0, 0, 0, 0xf3, 0xcf, 0,
    /* 18: 64-bit code              */ 0xff, 0xff, 0, 0, 0, 0x9b, 0xaf, 0,
    /* 20: 64-bit code, DPL 3       */ 0xff, 0xff, 0, 0, 0, 0xfb, 0xaf, 0,
    /* 28: TSS at 200200h           */ 0x67, 0, 0, 0x02, 0x20, 0x89, 0, 0,
    /*                              */ 0, 0, 0, 0, 0, 0, 0, 0,
    /* 1d8: page fault              */ 0x2d, 0x01, 0x18, 0, 0, 0x8e, 0x0f, 0,
    /*                              */ 0, 0, 0, 0, 0, 0, 0, 0,
    /* 15: system call              */ 0xe8, 0, 0x18, 0, 0, 0xee, 0x0f, 0,
    /*                              */ 0, 0, 0, 0, 0, 0, 0, 0,
    /* 1f8: GDT limit, base         */ 0x37, 0x00, 0xa0, 0x01, 0x0f, 0x00,
    /* 1fe: IDT limit, base         */ 0xff, 0x00, 0xf8, 0x00, 0x0f, 0x00,
                                       0x00, 0x00, 0x00, 0x00,
};

/* jmp 0 (relative to CS), at the reset vector */
static const uint8_t reset_vector[] = { 0xe9, 0x0d, 0x00 };

/* A CPU's session, and what has been seen of it. */
typedef struct Session {
    unsigned cpu;
    uint32_t flags;
    bool fault;                 /* began with a page of the ring missing */
    uint32_t tail, seq;
    uint32_t misses;
    uint64_t last;              /* number of the last record's instruction */
    uint64_t due[NR_EVENTS];    /* numbers of those of the next records */
} Session;

typedef struct Guest {
    char *dir, *bios, *stream, *disk, *log;
    QTestState *qts;
    uint32_t flags;
    unsigned cpus;
    Session session[MAX_CPUS];
} Guest;

static const uint32_t interval[NR_EVENTS] = {
    [E_VAL] = 4, [E_IRE] = 20010, [E_CNH] = 70018,
};

static void guest_init(Guest *g)
{
    g_autofree uint8_t *image = g_malloc0(BIOS_SIZE);

    *g = (Guest) {
        .dir = g_dir_make_tmp(NULL, NULL), .flags = PROFILED,
    };
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

/* Prepare a session of a CPU that has been reset, and its command. */
static void guest_prepare(Guest *g, unsigned cpu, bool fault)
{
    uint64_t area = AREA(cpu), tables = area + TABLES, ptes[512];
    Session *s = &g->session[cpu];

    *s = (Session) { .cpu = cpu, .flags = g->flags, .fault = fault };
    qtest_memset(g->qts, area, 0, BOOTS);
    qtest_memset(g->qts, area + FAULT_ADDR, 0, STACK_TOP - FAULT_ADDR);
    qtest_writel(g->qts, area + FAULTS, 0);

    qtest_writel(g->qts, area, g->flags);
    qtest_writel(g->qts, area + 4, RING_SIZE);
    qtest_writel(g->qts, area + 8, AREA_ADDR + RING);
    for (int e = 1; e < NR_EVENTS; e++) {
        /* What finds the page missing shall be records of two events. */
        s->due[e] = fault && e != E_VAL ? 1 : interval[e];
        qtest_writel(g->qts, area + CB_EVENTS + 8 * e - 8, interval[e]);
        qtest_writel(g->qts, area + CB_EVENTS + 8 * e - 4, s->due[e]);
    }

    qtest_writeq(g->qts, area + TSS + 4, AREA_ADDR + STACK_TOP);
    for (int i = 0; i < 512; i++) {
        ptes[i] = cpu_to_le64(area + i * 0x1000 + 7);
    }
    ptes[511] = cpu_to_le64(0xfee00003);    /* the local APIC */
    if (fault) {
        ptes[RING / 0x1000] &= ~cpu_to_le64(1);
    }
    qtest_writeq(g->qts, tables, tables + 0x1007);
    qtest_writeq(g->qts, tables + 0x1000, tables + 0x2007);
    qtest_writeq(g->qts, tables + 0x2000, 0x87);
    qtest_writeq(g->qts, tables + 0x2008, tables + 0x3007);
    qtest_memwrite(g->qts, tables + 0x3000, ptes, sizeof(ptes));

    qtest_writeq(g->qts, area + CFG, g->flags | (0x5aull + cpu) << 32);
    qtest_writel(g->qts, area + COMMAND, cpu ? RUN : START_OTHERS);
}

/* The same for all CPUs. */
static void guest_prepare_all(Guest *g, unsigned cpus, bool fault)
{
    g->cpus = cpus;
    /* CPU 0, which may be waiting for it, starts the others. */
    while (cpus--) {
        guest_prepare(g, cpus, fault);
    }
}

static void guest_cont(Guest *g)
{
    qtest_qmp_assert_success(g->qts, "{ 'execute': 'cont' }");
}

static void guest_run(Guest *g, const char *cpu, unsigned cpus, bool fault)
{
    g_autofree char *args = g_strdup_printf("-S -smp %u", cpus);

    guest_start(g, cpu, args);
    guest_prepare_all(g, cpus, fault);
    guest_cont(g);
}

/* The address of instruction @n. */
static uint64_t ip_at(const Session *s, uint64_t n)
{
    static const uint8_t first[] = { 0x73, 0x78, 0x7e, 0x87, 0x90, 0x92 };
    uint32_t pos;

    if (s->fault && n >= 2) {
        n -= HANDLER;
    }
    pos = n % PERIOD;
    if (pos < G_N_ELEMENTS(first)) {
        return CODE_ADDR + 0x100 + first[pos];
    }
    return pos == PERIOD - 1 ? IP_JMP : IP_LOOP + 2 * (pos & 1);
}

/* The number of the instruction at position @pos of period @n. */
static uint64_t number_of(const Session *s, uint64_t n, unsigned pos)
{
    return n * PERIOD + pos + (s->fault && (n || pos >= 2) ? HANDLER : 0);
}

/* A record is the next one of its event, and made after the last one. */
static void check_record(Session *s, const uint64_t *record)
{
    uint64_t q[4], n, ip, id, flags = 0, data1 = 0, data2 = 0;

    for (int i = 0; i < 4; i++) {
        q[i] = le64_to_cpu(record[i]);
    }
    id = q[0] & 0xff;
    /* What SLWPCB has shown of a counter that starts anew after 0. */
    if (id == E_INS || id == E_VAL) {
        n = id == E_INS ? s->seq : s->due[id];
        data1 = n;
        data2 = (s->due[E_IRE] - number_of(s, n, 0)) % (interval[E_IRE] + 1);
    }
    switch (id) {
    case E_INS:
        ip = IP_LWPINS;
        n = number_of(s, s->seq++, 2);
        flags = 0x1234;
        break;
    case E_VAL:
        ip = IP_LWPVAL;
        n = number_of(s, s->due[id], 3);
        s->due[id] += interval[id] + 1;
        flags = 0x5678;
        break;
    case E_DME:
        ip = IP_LOAD;
        n = number_of(s, s->seq, 1);
        flags = 0x7000;     /* DRAM, and an address */
        data1 = q[0] >> 32; /* latency */
        data2 = AREA_ADDR + CB_EVENTS + 12;
        s->misses++;
        break;
    default:
        g_assert_true(id == E_IRE || id == E_CNH);
        n = s->due[id];
        ip = ip_at(s, n);
        s->due[id] += interval[id] + 1;
        break;
    }
    g_assert_true(id == E_INS || s->flags >> id & 1);
    g_assert_cmphex(q[0], ==, id | (0x5aull + s->cpu) << 8 | flags << 16 |
                    data1 << 32);
    g_assert_cmphex(q[1], ==, ip);
    g_assert_cmphex(q[2], ==, data2);
    g_assert_cmphex(q[3], ==, 0);
    g_assert_cmpuint(n, >=, s->last);
    s->last = n;
}

static int64_t deadline(void)
{
    return g_get_monotonic_time() + 60 * G_TIME_SPAN_SECOND;
}

/* Empty the ring of a CPU. */
static void guest_poll(Guest *g, unsigned cpu)
{
    static uint64_t records[RING_SIZE / 8];
    Session *s = &g->session[cpu];
    uint64_t area = AREA(cpu);
    uint32_t head = qtest_readl(g->qts, area + CB_HEAD);
    uint32_t size = (head < s->tail ? RING_SIZE : head) - s->tail;

    qtest_memread(g->qts, area + RING + s->tail, records, size);
    for (uint32_t i = 0; i < size; i += 32) {
        check_record(s, &records[i / 8]);
    }
    s->tail = (s->tail + size) % RING_SIZE;
    qtest_writel(g->qts, area + CB_TAIL, s->tail);
    g_assert_cmpuint(qtest_readq(g->qts, area + CB_MISSED), ==, 0);
}

/* The same for all, until each has gone through @periods periods more. */
static void guest_consume(Guest *g, uint32_t periods)
{
    int64_t end = deadline();
    uint32_t seq[MAX_CPUS];
    bool more;

    for (unsigned cpu = 0; cpu < g->cpus; cpu++) {
        seq[cpu] = g->session[cpu].seq + periods;
    }
    do {
        g_assert_cmpint(g_get_monotonic_time(), <, end);
        more = false;
        for (unsigned cpu = 0; cpu < g->cpus; cpu++) {
            guest_poll(g, cpu);
            more |= g->session[cpu].seq < seq[cpu];
        }
    } while (more);
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

/* Forget, and then look, what CPUs have found when they started. */
static void guest_forget(Guest *g)
{
    for (unsigned cpu = 0; cpu < MAX_CPUS; cpu++) {
        qtest_memset(g->qts, AREA(cpu) + FOUND, 0xff, 24);
        qtest_writel(g->qts, AREA(cpu) + BOOTS, 0);
    }
}

static void guest_assert_reset(Guest *g, unsigned cpu)
{
    uint64_t area = AREA(cpu);

    g_assert_cmpint(qtest_readl(g->qts, area + BOOTS), ==, 1);
    g_assert_cmphex(qtest_readq(g->qts, area + FOUND), ==, 0);
    g_assert_cmphex(qtest_readq(g->qts, area + FOUND + 8), ==, 0);
    g_assert_cmphex(qtest_readq(g->qts, area + FOUND + 16), ==, 1);
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

static void guest_hmp(Guest *g, const char *command)
{
    g_autofree char *text = qtest_hmp(g->qts, "%s", command);

    g_assert_cmpstr(text, ==, "");
}

/* An empty image, into which snapshots go. */
static void guest_create_disk(Guest *g)
{
    qtest_qmp_assert_success(g->qts, "{ 'execute': 'blockdev-snapshot-sync',"
                             "'arguments': { 'node-name': 'null',"
                             "'snapshot-file': %s,"
                             "'snapshot-node-name': 'disk' } }", g->disk);
}

#define NULL_DRIVE \
    " -drive if=none,node-name=null,driver=null-co,read-zeroes=on >/dev/null"

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

#define PLUG \
    "{ 'execute': 'device_add', 'arguments': { 'driver': 'max-x86_64-cpu'," \
    "'id': 'cpu1', 'socket-id': 1, 'core-id': 0, 'thread-id': 0"
#define HOTPLUG_IO      0xaf00      /* docs/specs/acpi_cpu_hotplug.rst */

/* A CPU that differs from the others is refused. */
static void assert_other(QDict *rsp)
{
    const char *text = qdict_get_str(qdict_get_qdict(rsp, "error"), "desc");

    g_assert_nonnull(strstr(text, "must be the same for all CPUs"));
    qobject_unref(rsp);
}

/*
 * CPUs come and go while CPU 0 is profiled, more than "maxcpus" in all.  The
 * one that comes has the state that RESET leaves, and caches of its own for
 * DME.
 */
static void test_hotplug(void)
{
    Guest g;

    guest_init(&g);
    g.flags = PROFILED_15H | 1u << E_DME;
    /* "+lwp" would be stronger than what device_add says. */
    guest_start(&g, "max,lwp=on", "-S -smp 1,sockets=2,maxcpus=2" NULL_DRIVE);
    guest_create_disk(&g);
    guest_prepare_all(&g, 1, false);
    guest_cont(&g);
    /* Only the modern interface can remove a CPU. */
    qtest_outl(g.qts, HOTPLUG_IO, 0);

    guest_consume(&g, 100);
    assert_other(qtest_qmp(g.qts, PLUG ", 'insn-clocks': 2 } }"));
    assert_other(qtest_qmp(g.qts, PLUG ", 'lwp-int': false } }"));
    assert_other(qtest_qmp(g.qts, PLUG ", 'lwp': false } }"));

    for (int i = 0; i < 3; i++) {
        guest_forget(&g);
        guest_prepare(&g, 1, false);
        qtest_qmp_assert_success(g.qts, PLUG " } }");
        qtest_writel(g.qts, AREA(0) + COMMAND, START_OTHERS);
        g.cpus = 2;
        guest_consume(&g, 100);
        guest_assert_reset(&g, 1);
        g_assert_cmpint(g.session[1].misses, ==, 1);

        /* Eject it, as the guest's ACPI code would do. */
        qtest_qmp_assert_success(g.qts, "{ 'execute': 'device_del',"
                                 "'arguments': { 'id': 'cpu1' } }");
        qtest_outl(g.qts, HOTPLUG_IO, 1);
        qtest_outb(g.qts, HOTPLUG_IO + 4, 8);
        qtest_qmp_eventwait(g.qts, "DEVICE_DELETED");

        /* A snapshot empties the caches: CPU 0 looks for others' lines. */
        g.cpus = 1;
        guest_hmp(&g, "savevm lwp");
        guest_consume(&g, 500);
        g_assert_cmpint(g.session[0].misses, ==, i + 2);
    }
    guest_cleanup(&g);
}

/* --- monitor and trace events ------------------------------------------- */

/* The answer of query-lwp; the caller unrefs it. */
static QDict *query(Guest *g, QList **list)
{
    QDict *rsp = qtest_qmp(g->qts, "{ 'execute': 'query-lwp' }");

    *list = qdict_get_qlist(rsp, "return");
    g_assert_nonnull(*list);
    return rsp;
}

/* Without LWP, or while it is disabled. */
static void assert_no_profile(Guest *g, const char *line)
{
    g_autofree char *info = qtest_hmp(g->qts, "info lwp");
    g_autofree char *registers = qtest_hmp(g->qts, "info registers");

    g_assert_nonnull(strstr(info, line));
    g_assert_null(strstr(info, "ring"));
    g_assert_null(strstr(registers, "LWP"));
}

/* What the monitor shows of a CPU that has been stopped while profiled. */
static void check_monitor(Guest *g)
{
    static const char *const names[NR_EVENTS] = {
        [E_VAL] = "val", [E_IRE] = "ire", [E_CNH] = "cnh",
    };
    g_autofree char *info = qtest_hmp(g->qts, "info lwp");
    g_autofree char *registers = qtest_hmp(g->qts, "info registers");
    g_autofree char *line = NULL;
    const Session *s = &g->session[0];
    int64_t left[NR_EVENTS] = { };
    const QListEntry *entry;
    QDict *cpu, *profile, *rsp;
    QList *list;

    rsp = query(g, &list);
    g_assert_cmpuint(qlist_size(list), ==, 1);
    cpu = qobject_to(QDict, qlist_peek(list));
    g_assert_cmpint(qdict_get_int(cpu, "cpu-index"), ==, 0);
    g_assert_cmphex(qdict_get_int(cpu, "cfg"), ==, 0x415a80000000 | PROFILED);
    g_assert_cmphex(qdict_get_int(cpu, "cbaddr"), ==, AREA_ADDR);
    profile = qdict_get_qdict(cpu, "profile");
    g_assert_cmphex(qdict_get_int(profile, "base"), ==, AREA_ADDR + RING);
    g_assert_cmphex(qdict_get_int(profile, "size"), ==, RING_SIZE);
    g_assert_cmphex(qdict_get_int(profile, "head"), ==, s->tail);
    g_assert_cmphex(qdict_get_int(profile, "filters"), ==, 0);
    g_assert_cmpint(qdict_get_int(profile, "pending"), ==, 0);
    QLIST_FOREACH_ENTRY(qdict_get_qlist(profile, "counters"), entry) {
        QDict *counter = qobject_to(QDict, qlist_entry_obj(entry));
        const char *name = qdict_get_str(counter, "event");
        int event = 1;

        while (g_strcmp0(name, names[event])) {
            g_assert_cmpint(++event, <, NR_EVENTS);
        }
        left[event] = qdict_get_int(counter, "value");
        g_assert_cmpint(left[event], <=, interval[event]);
        g_free(line);
        line = g_strdup_printf("  %s %" PRId64 "\r\n", name, left[event]);
        g_assert_nonnull(strstr(info, line));
    }
    qobject_unref(rsp);

    /* Each instruction is one clock. */
    g_assert_cmpint(left[E_IRE] - left[E_CNH], ==,
                    (int64_t)(s->due[E_IRE] - s->due[E_CNH]));
    /* LWPVAL comes right behind LWPINS. */
    g_assert_cmpint(s->due[E_VAL] - left[E_VAL] - s->seq, <=, 1);
    g_assert_nonnull(strstr(info, "CPU #0: LWP_CFG=0000415a80000026 "
                            "LWP_CBADDR=0000000000200000\r\n"));
    g_assert_nonnull(strstr(registers, "LWP_CBADDR=0000000000200000"));
    g_free(line);
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
    QDict *rsp;
    QList *list;
    Guest g;

    guest_init(&g);
    guest_start(&g, "max", "-S");
    rsp = query(&g, &list);
    g_assert_true(qlist_empty(list));
    qobject_unref(rsp);
    assert_no_profile(&g, "No CPU has LWP");
    guest_quit(&g);

    g.flags |= 1u << 31;
    guest_start(&g, "max,+lwp", "-S");
    assert_no_profile(&g, "CPU #0: LWP_CFG=0000000000000000 "
                      "LWP_CBADDR=0000000000000000");
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
        "lwp_miss cpu 0 event 255 ip 0xf017e\n",
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
    qtest_add_func("/lwp/features/aliases", test_aliases);

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
