/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What tests of LWP share: the features of CPUs, as QMP shows them, and a guest
 * that profiles itself.  A test starts it with guest_init() and guest_start(),
 * prepares the sessions of its CPUs with guest_prepare_all(), and lets it go
 * with guest_cont(); guest_consume() empties the rings and compares each
 * record, of which all is known.
 */

#ifndef LWP_GUEST_H
#define LWP_GUEST_H

#include "qemu/bswap.h"
#include "libqtest.h"
#include "qobject/qdict.h"

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
    /* Those of which only models of caches and branches know anything */
    OF_MODELS = DME | ADDRESS | PREDICTION | LEVELS | LATENCY,
};

typedef struct FeatureTest {
    const char *name;
    const char *cpu;
    uint32_t features;      /* bits of lwp_features[]; LWP goes with them */
    uint32_t xlevel;        /* at least */
} FeatureTest;

/* CPUs of which a QEMU without models knows, too */
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
    { "max+lwp-xsave",      "max,+lwp,-xsave", NONE, 0 },
    { "qemu64+lwp",         "qemu64,+lwp", NONE, 0 },
    { "qemu64+xsave+lwp",   "qemu64,+xsave,+lwp", ALL, 0x8000001c },
    { "G4",                 "Opteron_G4", NONE, 0x8000001a },
    { "G4+lwp",             "Opteron_G4,+lwp", FAMILY_15H, 0x8000001c },
    { "G5+lwp",             "Opteron_G5,+lwp", FAMILY_15H, 0x8000001c },
    { "max+lwp-no-int",     "max,+lwp,-lwp-int", ALL & ~INT, 0x8000001c },
    { "max+lwp-apic",       "max,+lwp,-apic", ALL & ~INT, 0x8000001c },
    { "max+lwp+xlevel",     "max,+lwp,xlevel=0x80000008", NONE, 0 },
    { "max+lwp+level",      "max,+lwp,level=7", NONE, 0 },
};

static inline QDict *qom_get(QTestState *qts, const char *property)
{
    return qtest_qmp(qts, "{ 'execute': 'qom-get', 'arguments': {"
                     "'path': '/machine/unattached/device[0]',"
                     "'property': %s } }", property);
}

static inline bool qom_get_bool(QTestState *qts, const char *property)
{
    QDict *rsp = qom_get(qts, property);
    bool val = qdict_get_bool(rsp, "return");

    qobject_unref(rsp);
    return val;
}

/* The CPU of a test: LWP, and of its features those of @mask */
static inline void check_features(const FeatureTest *t, uint32_t mask)
{
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
        if (mask >> i & 1) {
            g_assert_cmpint(qom_get_bool(qts, lwp_features[i]), ==,
                            t->features >> i & 1);
        }
    }
    qtest_quit(qts);
}

/* What QEMU has to say about a CPU. */
static inline char *warnings(const char *accel, const char *cpu)
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

typedef struct PropertyTest {
    const char *cpu, *message;      /* NULL: it is accepted */
} PropertyTest;

/* A property out of its range ends QEMU with a sentence that names both. */
static inline void check_properties(const PropertyTest *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
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

/* What numbers are, by one name of a property or another */
typedef struct ValueTest {
    const char *name;
    int val;
} ValueTest;

static inline void check_values(QTestState *qts, const ValueTest *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        QDict *rsp = qom_get(qts, t[i].name);

        g_assert_cmpint(qdict_get_int(rsp, "return"), ==, t[i].val);
        qobject_unref(rsp);
    }
}

static inline QDict *expand(QTestState *qts, const char *type, bool lwp)
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

/* What QMP shows of "max", of the features of @mask */
static inline void check_expansion(uint32_t mask)
{
    QTestState *qts = qtest_init("-machine none -accel tcg");

    for (int lwp = 0; lwp < 2; lwp++) {
        QDict *props = expand(qts, "full", lwp);

        g_assert_cmpint(qdict_get_bool(props, "lwp"), ==, lwp);
        for (int i = 0; i < G_N_ELEMENTS(lwp_features); i++) {
            if (mask >> i & 1) {
                g_assert_cmpint(qdict_get_bool(props, lwp_features[i]), ==,
                                lwp && (ALL >> i & 1));
            }
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

static inline void guest_init(Guest *g)
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

static inline void guest_quit(Guest *g)
{
    if (g->qts) {
        qtest_quit(g->qts);
        g->qts = NULL;
    }
}

static inline void guest_cleanup(Guest *g)
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

static inline void guest_start(Guest *g, const char *cpu, const char *args)
{
    g->qts = qtest_initf("-machine pc -accel tcg -m 16 -nodefaults -bios %s "
                         "%s -cpu %s", g->bios, args, cpu);
}

/* Prepare a session of a CPU that has been reset, and its command. */
static inline void guest_prepare(Guest *g, unsigned cpu, bool fault)
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
static inline void guest_prepare_all(Guest *g, unsigned cpus, bool fault)
{
    g->cpus = cpus;
    /* CPU 0, which may be waiting for it, starts the others. */
    while (cpus--) {
        guest_prepare(g, cpus, fault);
    }
}

static inline void guest_cont(Guest *g)
{
    qtest_qmp_assert_success(g->qts, "{ 'execute': 'cont' }");
}

/* The address of instruction @n. */
static inline uint64_t ip_at(const Session *s, uint64_t n)
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
static inline uint64_t number_of(const Session *s, uint64_t n, unsigned pos)
{
    return n * PERIOD + pos + (s->fault && (n || pos >= 2) ? HANDLER : 0);
}

/* A record is the next one of its event, and made after the last one. */
static inline void check_record(Session *s, const uint64_t *record)
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

static inline int64_t deadline(void)
{
    return g_get_monotonic_time() + 60 * G_TIME_SPAN_SECOND;
}

/* Empty the ring of a CPU. */
static inline void guest_poll(Guest *g, unsigned cpu)
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
static inline void guest_consume(Guest *g, uint32_t periods)
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

/* Forget, and then look, what CPUs have found when they started. */
static inline void guest_forget(Guest *g)
{
    for (unsigned cpu = 0; cpu < MAX_CPUS; cpu++) {
        qtest_memset(g->qts, AREA(cpu) + FOUND, 0xff, 24);
        qtest_writel(g->qts, AREA(cpu) + BOOTS, 0);
    }
}

static inline void guest_assert_reset(Guest *g, unsigned cpu)
{
    uint64_t area = AREA(cpu);

    g_assert_cmpint(qtest_readl(g->qts, area + BOOTS), ==, 1);
    g_assert_cmphex(qtest_readq(g->qts, area + FOUND), ==, 0);
    g_assert_cmphex(qtest_readq(g->qts, area + FOUND + 8), ==, 0);
    g_assert_cmphex(qtest_readq(g->qts, area + FOUND + 16), ==, 1);
}

/* --- snapshots and hot-plug --------------------------------------------- */

static inline void guest_hmp(Guest *g, const char *command)
{
    g_autofree char *text = qtest_hmp(g->qts, "%s", command);

    g_assert_cmpstr(text, ==, "");
}

/* An empty image, into which snapshots go. */
static inline void guest_create_disk(Guest *g)
{
    qtest_qmp_assert_success(g->qts, "{ 'execute': 'blockdev-snapshot-sync',"
                             "'arguments': { 'node-name': 'null',"
                             "'snapshot-file': %s,"
                             "'snapshot-node-name': 'disk' } }", g->disk);
}

#define NULL_DRIVE \
    " -drive if=none,node-name=null,driver=null-co,read-zeroes=on >/dev/null"

#define PLUG \
    "{ 'execute': 'device_add', 'arguments': { 'driver': 'max-x86_64-cpu'," \
    "'id': 'cpu1', 'socket-id': 1, 'core-id': 0, 'thread-id': 0"
#define HOTPLUG_IO      0xaf00      /* docs/specs/acpi_cpu_hotplug.rst */

/* Start a guest of one CPU, and room for another one. */
static inline void guest_run_to_plug(Guest *g)
{
    /* "+lwp" would be stronger than what device_add says. */
    guest_start(g, "max,lwp=on", "-S -smp 1,sockets=2,maxcpus=2" NULL_DRIVE);
    guest_create_disk(g);
    guest_prepare_all(g, 1, false);
    guest_cont(g);
    /* Only the modern interface can remove a CPU. */
    qtest_outl(g->qts, HOTPLUG_IO, 0);
    guest_consume(g, 100);
}

/* CPU 1 comes with the state that RESET leaves; both are profiled. */
static inline void guest_plug(Guest *g)
{
    guest_forget(g);
    guest_prepare(g, 1, false);
    qtest_qmp_assert_success(g->qts, PLUG " } }");
    qtest_writel(g->qts, AREA(0) + COMMAND, START_OTHERS);
    g->cpus = 2;
    guest_consume(g, 100);
    guest_assert_reset(g, 1);
}

/* Eject it, as the guest's ACPI code would do; go on from a snapshot. */
static inline void guest_unplug(Guest *g)
{
    qtest_qmp_assert_success(g->qts, "{ 'execute': 'device_del',"
                             "'arguments': { 'id': 'cpu1' } }");
    qtest_outl(g->qts, HOTPLUG_IO, 1);
    qtest_outb(g->qts, HOTPLUG_IO + 4, 8);
    qtest_qmp_eventwait(g->qts, "DEVICE_DELETED");
    g->cpus = 1;
    guest_hmp(g, "savevm lwp");
    guest_consume(g, 500);
}

#endif
