/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Branch records under TCG: properties and what "info pmu" shows; migration and
 * snapshots of a guest that records branches.
 */

#include "qemu/osdep.h"
#include "pmu-guest.h"
#include "x86-section-bytes.h"

/* --- CPU models --------------------------------------------------------- */

typedef struct ModelTest {
    const char *name;
    const char *cpu;
    const char *branches;   /* kind of the records; NULL: none, */
    int depth;              /* how many, */
    bool bts;               /* and whether they can be in memory */
    CounterModel counters;  /* where pmu-test does not look at this CPU */
} ModelTest;

static const ModelTest model_tests[] = {
    { "max-pmu", "max,pmu=on,-perfctr-core,-perfmon-v2", "K7", 1 },
    { "Skylake", "Skylake-Client,pmu=on", "Skylake", 32, true },
    { "Skylake-no-lbr", "Skylake-Client,pmu=on,lbr=off", "Skylake", 0, true,
      { "Skylake", 4, 4, 3 } },
    { "Skylake-no-bts", "Skylake-Client,pmu=on,bts=off", "Skylake", 32, false },
    { "Skylake-no-ds", "Skylake-Client,pmu=on,ds=off", "Skylake", 32, false },
    { "Skylake-no-records", "Skylake-Client,pmu=on,lbr=off,bts=off", NULL, 0,
      false, { "Skylake", 4, 4, 3 } },
    { "Skylake-format", "Skylake-Client,pmu=on,lbr-fmt=5", "Skylake", 32, true,
      { "Skylake", 4, 4, 3 } },
    { "Haswell", "Haswell,pmu=on", "Haswell", 16, true },
    { "v1", "Skylake-Client,pmu=on,pmu-version=1,pmu-counters=2", "Skylake",
      32, true },
    { "enforce", "qemu32,vendor=GenuineIntel,family=6,model=94,pmu=on,enforce,"
      "full-width-write=on", "Skylake", 32, true },
    { "pentium3", "pentium3,pmu=on", "P6", 1, false },
    { "n270", "n270,pmu=on", "Bonnell", 8, true },
    { "SapphireRapids", "SapphireRapids,pmu=on", "architectural", 32, true },
    { "SapphireRapids-no-lbr", "SapphireRapids,pmu=on,arch-lbr=off",
      "architectural", 0, true, { "Golden Cove", 5, 8, 3 } },
    { "EPYC", "EPYC,pmu=on,+perfctr-core", "K7", 1 },
    { "Dhyana", "Dhyana,pmu=on", "K7", 1 },
    { "Dhyana-core", "Dhyana,pmu=on,+perfctr-core", "K7", 1 },
};

/* Nothing has been recorded yet. */
static void check_branch_model(const ModelTest *t, const char *info)
{
    g_autofree char *text = NULL;

    if (!t->branches) {
        g_assert_null(strstr(info, "branch records"));
        return;
    }
    text = g_strdup_printf("  branch records: %s, %d\r\n%s", t->branches,
                           t->depth, t->bts ?
                           "  BTS off, DS_AREA=0000000000000000\r\n" : "");
    g_assert_true(g_str_has_suffix(info, text));
}

static void test_model(gconstpointer opaque)
{
    const ModelTest *t = opaque;
    QTestState *qts = qtest_initf("-machine pc -accel tcg -S -smp 2 -cpu %s"
                                  " 2>/dev/null", t->cpu);
    g_autofree char *info = info_pmu(qts, 1);

    check_branch_model(t, info);
    if (t->counters.flavour) {
        check_counter_model(&t->counters, info);
    }
    qtest_quit(qts);
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
        assert_has(t[i].cpu, "lbr-v2", t[i].v2);
        assert_has(t[i].cpu, "lbrv", t[i].lbrv);
    }
}

static void test_properties(void)
{
    static const PropertyTest t[] = {
        { "EPYC-Genoa,pmu=on,+perfctr-core,perfmon-v2=off,lbr-v2=on",
          "'lbr-v2' needs 'perfmon-v2'" },
        { "Skylake-Client,pmu=on,ds=off,ds-cpl=on", "'ds-cpl' needs 'ds'" },
        { "Skylake-Client,pmu=on,lbr-fmt=4",
          "'lbr-fmt' must be 0x5 for this CPU, not 0x4" },
        { "Skylake-Client,pmu=on,lbr=off,lbr-fmt=5",
          "'lbr-fmt' must be 0x0 for this CPU, not 0x5" },
        { "Skylake-Client,pmu=on,lbr-fmt=0x40", "'lbr-fmt'" },
    };

    check_properties(t, G_N_ELEMENTS(t));
}

/* --- a guest that records branches --------------------------------------- */

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
    { "silvermont", MODEL(55), MSR_DEBUGCTL, DEBUGCTL_LBR, 8 },
    { "goldmont", MODEL(92), MSR_DEBUGCTL, DEBUGCTL_LBR, 32 },
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

/* What "info pmu" shows of branch records, which come last; to be freed */
static char *info_branches(Guest *g)
{
    g_autofree char *info = info_pmu(g->qts, 0);
    const char *branches = strstr(info, "  branch records: ");

    g_assert_nonnull(branches);
    return g_strdup(branches);
}

/* A guest that has been stopped; all records are full. */
static void check_branches_shown(Guest *g, const BranchTest *t)
{
    g_autofree char *info = info_branches(g);
    g_auto(GStrv) lines = g_strsplit(info, "\r\n", -1);
    g_autofree char *depth = g_strdup_printf(", %d%s", t->depth,
                                             t->depth ? ", recording" : "");
    g_autofree char *bts =
        g_strdup_printf("  BTS %s, DS_AREA=%016llx", t->bts ? "on" : "off",
                        t->bts ? AREA(0) + DS_AREA : 0);
    uint64_t last_from = get_register(g, 0, "EIP=");

    g_assert_true(g_str_has_suffix(lines[0], depth));
    for (int i = 0; i < t->depth; i++) {
        g_autofree char *name = g_strdup_printf("  branch %d: ", i);
        uint64_t from = shown(lines[i + 1], name);
        uint64_t to = shown(lines[i + 1], " -> ");

        check_branch(from, to);
        check_straight(to, last_from);
        last_from = from;
    }
    g_assert_cmpstr(lines[t->depth + 1], ==, bts);
    if (t->bts) {
        check_bts(g);
    }
}

/* No record, and nothing that could make one */
static void check_branches_none(Guest *g)
{
    g_autofree char *info = info_branches(g);

    g_assert_null(strstr(info, "recording"));
    g_assert_null(strstr(info, "  branch 0: "));
    g_assert_nonnull(strstr(info, "  BTS off, DS_AREA=0000000000000000\r\n"));
}

static bool stream_has(Guest *g, const char *name)
{
    g_autofree char *stream = NULL;
    size_t size;

    g_assert_true(g_file_get_contents(g->stream, &stream, &size, NULL));
    return memmem(stream, size, name, strlen(name));
}

/* Records are the same on the other side, and go on to be. */
static void test_migrate(gconstpointer opaque)
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
        g_autofree char *before = NULL, *after = NULL;

        guest_consume(&g, 20);
        check_branches_shown(&g, t);
        before = info_branches(&g);
        guest_save(&g);
        g_assert_true(stream_has(&g, "cpu/branch"));
        g_assert_cmpint(stream_has(&g, "cpu/branch/stack"), ==, !t->arch);
        g_assert_cmpint(stream_has(&g, "cpu/arch_lbr"), ==, t->arch);
        g_assert_true(guest_load(&g, t->cpu, "-S"));
        after = info_branches(&g);
        g_assert_cmpstr(before, ==, after);
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
static void test_snapshot(void)
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

static void test_refused(void)
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
static void test_bytes(void)
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
    g_autofree char *info = info_branches(g);

    g_assert_nonnull(strstr(info, ", recording\r\n"));
    g_assert_null(strstr(info, "  branch 1: "));
    g_assert_cmphex(shown(info, "  branch 0: "), ==, from);
    g_assert_cmphex(shown(info, " -> "), ==, to);
}

/*
 * The guest's and the host's record are on the other side, too, when it is the
 * guest that runs.
 */
static void test_lbrv(void)
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

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);

    for (int i = 0; i < G_N_ELEMENTS(model_tests); i++) {
        const ModelTest *t = &model_tests[i];
        g_autofree char *path = g_strdup_printf("/branch/model/%s", t->name);

        qtest_add_data_func(path, t, test_model);
    }
    qtest_add_func("/branch/amd-lbr", test_amd_lbr);
    qtest_add_func("/branch/properties", test_properties);

    /* The guest of the others runs in 64-bit mode. */
    if (!g_str_equal(qtest_get_arch(), "x86_64")) {
        return g_test_run();
    }
    for (int i = 0; i < G_N_ELEMENTS(branch_tests); i++) {
        const BranchTest *t = &branch_tests[i];
        g_autofree char *path = g_strdup_printf("/branch/migrate/%s", t->name);

        qtest_add_data_func(path, t, test_migrate);
    }
    qtest_add_func("/branch/snapshot", test_snapshot);
    qtest_add_func("/branch/refused", test_refused);
    qtest_add_func("/branch/bytes", test_bytes);
    qtest_add_func("/branch/lbrv", test_lbrv);
    return g_test_run();
}
