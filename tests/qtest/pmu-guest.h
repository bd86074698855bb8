/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What tests of performance counters, branch records and IBS share: what "info
 * pmu" shows of a CPU, properties, and a guest.  On each of its CPUs a counter
 * interrupts every PERIOD instructions of a loop, in which the place of each
 * instruction is known; each interrupt stores a Record.  A test starts it with
 * guest_init() and guest_start(), writes what it shall do with
 * guest_prepare_all() and write_msr(), and lets it go with guest_cont();
 * guest_consume() goes on until there are so many interrupts more and compares
 * their records.  guest_save() and guest_load() migrate it.
 */

#ifndef PMU_GUEST_H
#define PMU_GUEST_H

#include "qemu/bswap.h"
#include "libqtest.h"
#include "qobject/qdict.h"

#define SKYLAKE "max,vendor=GenuineIntel,family=6,model=94,stepping=3"

/* --- CPU models --------------------------------------------------------- */

/* What "info pmu" shows of a CPU; the caller frees it. */
static inline char *info_pmu(QTestState *qts, unsigned cpu)
{
    g_autofree char *text = qtest_hmp(qts, "info pmu");
    g_autofree char *header = g_strdup_printf("CPU #%u: ", cpu);
    const char *start = strstr(text, header), *end;

    g_assert_nonnull(start);
    end = strstr(start + 1, "CPU #");
    return end ? g_strndup(start, end - start) : g_strdup(start);
}

/* The hexadecimal number behind @name there, which has to be there */
static inline uint64_t shown(const char *info, const char *name)
{
    const char *pos = strstr(info, name);

    g_assert_nonnull(pos);
    return g_ascii_strtoull(pos + strlen(name), NULL, 16);
}

/* The counters of a CPU that has not run yet */
typedef struct CounterModel {
    const char *flavour;
    int version, general, fixed;
} CounterModel;

/* @info is what info_pmu() says of CPU 1. */
static inline void check_counter_model(const CounterModel *m, const char *info)
{
    g_auto(GStrv) lines = g_strsplit(info, "\r\n", -1);
    g_autofree char *version = m->version ?
                               g_strdup_printf(", version %d", m->version) :
                               g_strdup("");
    g_autofree char *header = g_strdup_printf("CPU #1: %s%s", m->flavour,
                                              version);
    int n[2] = { };

    g_assert_cmpstr(lines[0], ==, header);
    g_assert_cmpint(strstr(info, "GLOBAL_CTRL=") != NULL, ==, m->version >= 2);
    g_assert_cmpint(strstr(info, "DEBUGCTL=") != NULL, ==, m->version >= 2);
    for (char **line = lines; *line; line++) {
        bool fixed = g_str_has_prefix(*line, "  fixed ");
        g_autofree char *zero = NULL;

        if (!fixed && !g_str_has_prefix(*line, "  general ")) {
            continue;
        }
        zero = g_strdup_printf("  %s %d: 000000000000",
                               fixed ? "fixed" : "general", n[fixed]++);
        g_assert_true(g_str_has_prefix(*line, zero));
        g_assert_cmpint(strstr(*line, " select ") != NULL, ==, !fixed);
        /* Of an event, its name comes last. */
        g_assert_cmpint(strchr(*line + strlen(zero), ':') != NULL, ==, fixed);
    }
    g_assert_cmpint(n[0], ==, m->general);
    g_assert_cmpint(n[1], ==, m->fixed);
}

/* Whether a CPU has a feature: what its property says */
static inline void assert_has(const char *cpu, const char *feature, bool has)
{
    QTestState *qts = qtest_initf("-machine pc -accel tcg -cpu %s", cpu);
    QDict *rsp = qtest_qmp(qts, "{ 'execute': 'qom-get', 'arguments': {"
                           "'path': '/machine/unattached/device[0]',"
                           "'property': %s } }", feature);

    g_test_message("%s: %s", cpu, feature);
    g_assert_cmpint(qdict_get_bool(rsp, "return"), ==, has);
    qobject_unref(rsp);
    qtest_quit(qts);
}

typedef struct PropertyTest {
    const char *cpu, *message, *smp;
} PropertyTest;

/* A property out of its range ends QEMU with a sentence that names both. */
static inline void check_properties(const PropertyTest *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
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

static inline void guest_init(Guest *g)
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

static inline void write_msr(Guest *g, uint64_t addr, uint32_t msr,
                             uint64_t val)
{
    qtest_writel(g->qts, addr, msr);
    qtest_writeq(g->qts, addr + 4, val);
}

typedef struct MsrWrite {
    uint32_t msr;
    uint64_t val;
} MsrWrite;

/* What a CPU writes when it starts, from entry @first of its list on */
static inline void write_msrs(Guest *g, unsigned cpu, unsigned first,
                              const MsrWrite *writes, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        write_msr(g, AREA(cpu) + WRITES + 12 * (first + i), writes[i].msr,
                  writes[i].val);
    }
}

/* Each interrupt clears the status, and is due again after @period. */
static inline void guest_rearm(Guest *g, unsigned cpu, uint32_t period)
{
    uint64_t area = AREA(cpu);

    write_msr(g, area + REARM, MSR_GLOBAL_STATUS_RESET, 1);
    write_msr(g, area + REARM + 12, MSR_PMC0, -(uint64_t)period);
}

/* What a CPU does that has been reset, or not yet. */
static inline void guest_prepare(Guest *g, unsigned cpu, uint32_t command)
{
    const MsrWrite writes[] = {
        { MSR_EVTSEL0, EVTSEL }, { MSR_PMC0, -(uint64_t)PERIOD },
        { MSR_FIXED_CTR_CTRL, 1 }, { MSR_GLOBAL_CTRL, GLOBAL_CTRL },
    };
    uint64_t area = AREA(cpu);

    g->session[cpu] = (Session) { };
    qtest_memset(g->qts, area, 0, RING + RING_RECORDS * sizeof(Record));
    for (int i = 0; i < G_N_ELEMENTS(reads); i++) {
        qtest_writel(g->qts, area + READS + 4 * i, reads[i]);
    }
    write_msrs(g, cpu, 0, writes, G_N_ELEMENTS(writes));
    guest_rearm(g, cpu, PERIOD);
    qtest_writel(g->qts, area + LVTPC, LVT_NMI);
    qtest_writel(g->qts, area + COMMAND, command);
}

static inline void guest_stop(Guest *g)
{
    qtest_qmp_assert_success(g->qts, "{ 'execute': 'stop' }");
}

static inline void guest_cont(Guest *g)
{
    qtest_qmp_assert_success(g->qts, "{ 'execute': 'cont' }");
}

static inline void guest_prepare_all(Guest *g, unsigned cpus)
{
    g->cpus = cpus;
    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        guest_prepare(g, cpu, cpu ? RUN : START_OTHERS);
    }
}

static inline void guest_run(Guest *g, const char *cpu, unsigned cpus,
                             const char *args)
{
    g_autofree char *smp = g_strdup_printf("-S -smp %u %s", cpus, args);

    guest_start(g, cpu, smp);
    guest_prepare_all(g, cpus);
    guest_cont(g);
}

/* Wait until the word at @addr has reached @val. */
static inline void guest_wait_at(Guest *g, uint64_t addr, uint32_t val)
{
    int64_t end = g_get_monotonic_time() + 60 * G_TIME_SPAN_SECOND;

    while (qtest_readl(g->qts, addr) < val) {
        g_assert_cmpint(g_get_monotonic_time(), <, end);
    }
}

/* The same for a field of a CPU's area. */
static inline void guest_wait(Guest *g, unsigned cpu, unsigned field,
                              uint32_t val)
{
    guest_wait_at(g, AREA(cpu) + field, val);
}

/* How many instructions of its loop a CPU has run when @eip is next. */
static inline uint64_t position(uint32_t seq, uint32_t eip, uint32_t ecx)
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

static inline Record read_record(Guest *g, unsigned cpu, uint32_t nmi)
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
static inline void check_records(Guest *g, unsigned cpu)
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
static inline uint32_t get_register(Guest *g, unsigned cpu, const char *name)
{
    g_autofree char *text = qtest_hmp(g->qts, "info registers -a");
    g_autofree char *header = g_strdup_printf("CPU#%u", cpu);
    const char *pos = strstr(text, header);

    g_assert_nonnull(pos);
    pos = strstr(pos, name);
    g_assert_nonnull(pos);
    return g_ascii_strtoull(pos + strlen(name), NULL, 16);
}

/*
 * The monitor's values are exact where the guest has been stopped.  Returns
 * false if that is in the middle of the handler.
 */
static inline bool check_values(Guest *g, unsigned cpu)
{
    Session *s = &g->session[cpu];
    uint32_t eip = get_register(g, cpu, "EIP=");
    g_autofree char *info = info_pmu(g->qts, cpu);

    if (eip == IP_NMI) {
        /* Nothing of the handler has run yet. */
        eip = qtest_readl(g->qts, get_register(g, cpu, "ESP="));
    }
    if (eip < IP_ROUND || eip > IP_JMP) {
        return false;
    }
    g_assert_cmpuint(shown(info, "  fixed 0: "), ==,
                     s->count - HANDLER_COUNT + s->nmis * HANDLER +
                     position(qtest_readl(g->qts, AREA(cpu) + SEQ), eip,
                              get_register(g, cpu, "ECX=")));
    return true;
}

/* Go on until each CPU has been interrupted @nmis times more; stop and look. */
static inline void guest_consume(Guest *g, uint32_t nmis)
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
static inline bool migrated(QTestState *qts)
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

static inline void guest_save(Guest *g)
{
    g_autofree char *uri = g_strdup_printf("file:%s", g->stream);

    qtest_qmp_assert_success(g->qts, "{ 'execute': 'migrate',"
                             "'arguments': { 'uri': %s } }", uri);
    g_assert_true(migrated(g->qts));
    guest_quit(g);
}

static inline bool guest_load(Guest *g, const char *cpu, const char *args)
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

static inline void guest_hmp(Guest *g, const char *command)
{
    g_autofree char *text = qtest_hmp(g->qts, "%s", command);

    g_assert_cmpstr(text, ==, "");
}

#define NULL_DRIVE \
    "-drive if=none,node-name=null,driver=null-co,read-zeroes=on >/dev/null"

/* With an empty image, into which snapshots go */
static inline void guest_start_with_disk(Guest *g, unsigned cpus)
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

/* Set a field of a subsection, in which numbers are big-endian. */
static inline void put(char *section, unsigned offset, unsigned bytes,
                       uint64_t val)
{
    for (unsigned b = 0; b < bytes; b++) {
        section[offset + b] = val >> 8 * (bytes - 1 - b);
    }
}

/* The stream of a guest is refused by @cpu, with @message. */
static inline void assert_load_fails(Guest *g, const char *cpu,
                                     const char *message)
{
    g_autofree char *args = g_strdup_printf("%s 2>%s", cpu, g->log);
    g_autofree char *text = NULL;

    g_assert_false(guest_load(g, args, ""));
    guest_quit(g);
    g_assert_true(g_file_get_contents(g->log, &text, NULL, NULL));
    g_assert_nonnull(strstr(text, message));
}

/* --- hot-plug ----------------------------------------------------------- */

#define PLUG \
    "{ 'execute': 'device_add', 'arguments': { 'driver': 'max-x86_64-cpu'," \
    "'id': 'cpu1', 'socket-id': 1, 'core-id': 0, 'thread-id': 0"

/* A CPU that differs from the others is refused. */
static inline void assert_other(QDict *rsp)
{
    const char *text = qdict_get_str(qdict_get_qdict(rsp, "error"), "desc");

    g_assert_nonnull(strstr(text, "must be the same for all CPUs"));
    qobject_unref(rsp);
}

#endif
