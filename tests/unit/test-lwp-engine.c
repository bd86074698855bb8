/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Unit tests of the LWP engine.  Guest memory is an array of pages that can be
 * made inaccessible, and any single access can be made to fault.
 */

#include <setjmp.h>
#include <string.h>
#include <glib.h>
#include "lwp-engine.h"
#include "account.h"

#define PAGE        4096u
#define PAGES       8
#define MEM_BASE    0x100000u
#define CB          (MEM_BASE)
#define CB2         (MEM_BASE + PAGE)
#define RING        (MEM_BASE + 2 * PAGE)
#define RING2       (MEM_BASE + 4 * PAGE)
#define MIN_RING    1024u
#define ALL_EVENTS  LWP_FLAG_EVENTS
#define MAX_COUNT   0x1ffffff
#define VECTOR      0xa5

#define FLAG_VAL    LWP_FLAG(LWP_EVENT_VAL)
#define FLAG_IRE    LWP_FLAG(LWP_EVENT_IRE)
#define FLAG_BRE    LWP_FLAG(LWP_EVENT_BRE)
#define FLAG_DME    LWP_FLAG(LWP_EVENT_DME)
#define FLAG_CNH    LWP_FLAG(LWP_EVENT_CNH)
#define FLAG_RNH    LWP_FLAG(LWP_EVENT_RNH)
#define ALL_CAPS    LWP_CAPS

typedef struct TestMem {
    LwpMem parent;
    uint8_t bytes[PAGES * PAGE];
    bool absent[PAGES];
    int fault_at;           /* number of the access that faults, or -1 */
    int accesses;
    uint64_t fault_addr;
    jmp_buf fault;
    bool moves;             /* a consumer moves the tail while we store */
    uint32_t moves_to;
    int reports;            /* and the last one: */
    uint64_t slot;
    bool missed;
    uint8_t vector;
} TestMem;

static TestMem mem;
static LwpState lwp;
static RetireWants wants;       /* as TBs have been told */
static int step;                /* the next one is so long, its end observed */
static bool forced;             /* and runs whether it may or not */
static LwpConfig config;

static const LwpSegment mode64 = { .va_bits = 48 };

static uint8_t *touch(uint64_t addr, uint32_t len)
{
    uint64_t first = (addr - MEM_BASE) / PAGE;
    uint64_t last = (addr + len - 1 - MEM_BASE) / PAGE;

    g_assert_cmpuint(len, <=, 2 * PAGE);
    if (mem.accesses++ == mem.fault_at) {
        mem.fault_addr = addr;
        longjmp(mem.fault, 1);
    }
    for (uint64_t p = first; p <= last; p++) {
        if (p >= PAGES || mem.absent[p]) {
            mem.fault_addr = MAX(addr, MEM_BASE + p * PAGE);
            longjmp(mem.fault, 1);
        }
    }
    return &mem.bytes[addr - MEM_BASE];
}

static void test_probe(LwpMem *m, uint64_t addr, uint32_t len)
{
    touch(addr, len);
}

/* Whether records go to memory directly, or through the operations. */
static bool direct;

/* The next access stores a record. */
static LwpMem *test_host(void)
{
    if (direct && mem.fault_at < 0) {
        mem.parent.host.cb = &mem.bytes[lwp.cbaddr - MEM_BASE];
        mem.parent.host.slot = &mem.bytes[lwp.base + lwp.head - MEM_BASE];
    }
    return &mem.parent;
}

static bool test_writable(LwpMem *m, uint64_t addr, uint32_t len)
{
    return !mem.absent[(addr - MEM_BASE) / PAGE] &&
           !mem.absent[(addr + len - 1 - MEM_BASE) / PAGE];
}

static uint32_t test_ld32(LwpMem *m, uint64_t addr)
{
    uint32_t val;

    memcpy(&val, touch(addr, 4), 4);
    return GUINT32_FROM_LE(val);
}

static uint64_t test_ld64(LwpMem *m, uint64_t addr)
{
    uint64_t val;

    memcpy(&val, touch(addr, 8), 8);
    return GUINT64_FROM_LE(val);
}

static void test_st32(LwpMem *m, uint64_t addr, uint32_t val)
{
    val = GUINT32_TO_LE(val);
    memcpy(touch(addr, 4), &val, 4);
}

static void test_st64(LwpMem *m, uint64_t addr, uint64_t val)
{
    val = GUINT64_TO_LE(val);
    memcpy(touch(addr, 8), &val, 8);
}

static void test_st_record(LwpMem *m, uint64_t addr, const LwpRecord *record)
{
    for (int i = 0; i < LWP_RECORD_SIZE / 8; i++) {
        test_st64(m, addr + 8 * i, record->q[i]);
    }
    if (mem.moves) {
        test_st32(m, CB + 64, mem.moves_to);
    }
}

/* By then all is in memory, and in the state (§8.3). */
static void test_report(LwpMem *m, uint64_t addr, const LwpRecord *record,
                        bool missed, uint8_t vector)
{
    uint32_t offset = addr - lwp.base;
    uint32_t next = offset + LWP_RECORD_SIZE;
    uint32_t head;

    memcpy(&head, &mem.bytes[lwp.cbaddr + 16 - MEM_BASE], 4);
    head = GUINT32_FROM_LE(head);
    g_assert_cmpuint(head, ==, missed ? offset : next == lwp.size ? 0 : next);
    g_assert_cmpuint(lwp.head, ==, head);
    for (int i = 0; i < LWP_RECORD_SIZE / 8; i++) {
        uint64_t q = GUINT64_TO_LE(record->q[i]);

        g_assert_cmpmem(&mem.bytes[addr + 8 * i - MEM_BASE], 8, &q, 8);
    }
    mem.reports++;
    mem.slot = addr;
    mem.missed = missed;
    mem.vector = vector;
}

static const LwpMemOps test_ops = {
    .probe = test_probe,
    .writable = test_writable,
    .ld32 = test_ld32,
    .ld64 = test_ld64,
    .st32 = test_st32,
    .st64 = test_st64,
    .st_record = test_st_record,
    .report = test_report,
};

/* Runs a statement; whether it faulted. */
#define FAULTS(...)                                     \
    (setjmp(mem.fault) ? true : ({ __VA_ARGS__; false; }))

static uint32_t get32(uint64_t addr)
{
    return test_ld32(NULL, addr);
}

static uint64_t get64(uint64_t addr)
{
    return test_ld64(NULL, addr);
}

static void put32(uint64_t addr, uint32_t val)
{
    test_st32(NULL, addr, val);
}

static void put64(uint64_t addr, uint64_t val)
{
    test_st64(NULL, addr, val);
}

/* Byte offsets of Table 6-1, on purpose not the engine's. */
static uint64_t interval(uint64_t cb, int event)
{
    return cb + 128 + 8 * (event - 1);
}

static uint64_t counter(uint64_t cb, int event)
{
    return interval(cb, event) + 4;
}

#define FLAGS(cb)   ((cb) + 0)
#define SIZE(cb)    ((cb) + 4)
#define BASE(cb)    ((cb) + 8)
#define HEAD(cb)    ((cb) + 16)
#define MISSED(cb)  ((cb) + 24)
#define THRESHOLD(cb) ((cb) + 32)
#define FILTERS(cb) ((cb) + 36)
#define BASE_IP(cb) ((cb) + 40)
#define LIMIT_IP(cb) ((cb) + 48)
#define TAIL(cb)    ((cb) + 64)

static void reset(uint32_t features)
{
    memset(&lwp, 0, sizeof(lwp));
    account_reset(false, 0);
    wants = step = 0;
    forced = false;
    memset(&mem, 0, sizeof(mem));
    mem.parent.ops = &test_ops;
    mem.parent.config = &config;
    mem.parent.reports = true;
    mem.fault_at = -1;
    config = (LwpConfig) {
        .features = features,
        .caps = LWP_CAP_IP_FILTER,
        .model.insn_clocks = 1,
        .model.refclk_ratio = RETIRE_REFCLK_UNIT,
        .latency_bits = 12,
        .latency_round = 4,
        .model.latency = {
            [RETIRE_SOURCE_L2] = 20, [RETIRE_SOURCE_L3] = 60,
            [RETIRE_SOURCE_REMOTE] = 120, [RETIRE_SOURCE_DRAM] = 200,
            [RETIRE_SOURCE_OTHER] = 400,
        },
        .model.latency_worst = 800,
    };
    g_assert_true(lwp_write_cfg(&lwp, &config, features));
}

static void init_cb(uint64_t cb, uint32_t flags, uint64_t ring, uint32_t size)
{
    memset(&mem.bytes[cb - MEM_BASE], 0, 256);
    put32(FLAGS(cb), flags);
    put32(SIZE(cb), size);
    put64(BASE(cb), ring);
}

static bool load(uint64_t ea)
{
    return lwp_llwpcb(&lwp, &mem.parent, &mode64, ea);
}

/* An LWP session on CB and RING. */
static void start(uint32_t features, uint32_t flags)
{
    reset(features);
    init_cb(CB, flags, RING, MIN_RING);
    g_assert_true(load(CB));
}

static bool state_valid(const LwpState *s, uint32_t features, bool avail)
{
    LwpConfig c = config;
    LwpState copy = *s;

    c.features = features;
    return lwp_load_state(&copy, &c, avail);
}

/* The core's part, as retire-core.c has it: account.h, and what LWP says. */

/* retire_cpu_settle() */
static void report_account(void)
{
    uint64_t branches[RETIRE_NR_CLASSES];
    RetireTotals n;

    if (!wants) {
        account.armed = account_left();
        return;
    }
    n = retire_take(&account, account_left());
    if (wants & RETIRE_WANT_CLASSES) {
        n.branches = retire_take_branches(&account, branches) ? branches : NULL;
    }
    lwp_count(&lwp, &config, &n);
}

static void report_misses(void)
{
    RetireTotals n = { .misses = account.misses_armed - account.misses };

    account.misses_armed = account.misses;
    lwp_count(&lwp, &config, &n);
}

static RetireDistance distance(void)
{
    RetireDistance d = RETIRE_DISTANCE_MAX;

    lwp_distance(&lwp, &d);
    return d;
}

static RetireDistance arm_account(void)
{
    RetireDistance d = distance();

    account_arm(&config.model, &d);
    return d;
}

static void sync_account(void)
{
    report_account();
    wants = lwp_wants(&lwp);
    account.ip_first = wants & RETIRE_WANT_RANGE ? lwp.ip_first : 0;
    account.ip_span = wants & RETIRE_WANT_RANGE ? lwp.ip_span : UINT64_MAX;
    if (wants) {
        arm_account();
    }
}

static bool boundary(uint64_t ip)
{
    return lwp_boundary(&lwp, lwp_stores_first(&lwp) ? test_host() :
                              &mem.parent, ip);
}

/* retire_cpu_begin() */
static void begin_insn(uint64_t ip)
{
    uint16_t before = budget;

    account_allow_one();
    boundary(ip);
    account_set_budget(before);
}

/* retire_tb_expired(): a TB of @n instructions at @ip has not as many. */
static void expire_tb(uint64_t ip, int n)
{
    RetireDistance d;

    report_account();
    d = arm_account();
    if (d.pending) {
        begin_insn(ip);
        sync_account();
        d = arm_account();
        if (!d.pending) {
            return;
        }
    }
    n = account_step(&d, n);
    step = n ? n : step;
}

/*
 * Whether a TB of @n instructions at @ip, all of which count, begins.  If it
 * has to ask first, and may not, step says what may.
 */
static bool begin_tb(uint64_t ip, int n)
{
    AccountTB tb = { .n = n };

    if (!account_begin(&tb)) {
        expire_tb(ip, n);
        return !step && account_begin(&tb);
    }
    return true;
}

/* The step that has been asked for; its last instruction is next. */
static void begin_step(void)
{
    g_assert_true(account_begin(&(AccountTB) { .n = step, .last = true }));
    step = 0;
}

/* An instruction of 5 bytes, and how it was predicted if it is a branch. */
static void retire_predicted(uint64_t ip, RetireBranch branch, bool taken,
                             uint64_t target, bool predicted,
                             bool mispredicted)
{
    lwp_retire(&lwp, &config, &(RetireStory) {
        .ip = ip, .next = ip + 5, .target = target, .branch = branch,
        .taken = taken, .predicted = predicted, .mispredicted = mispredicted,
    });
}

static void retire(uint64_t ip, RetireBranch branch, bool taken,
                   uint64_t target)
{
    retire_predicted(ip, branch, taken, target, true, false);
}

static RetireMiss miss_of(RetireSource source)
{
    return (RetireMiss) { 0x403000, 0x7fff12345678, source,
                       config.model.latency[source] };
}

/* A load that finds its data in @source. */
static void miss(RetireSource source)
{
    RetireMiss m = miss_of(source);

    report_misses();
    lwp_miss(&lwp, &config, &m);
    arm_account();
}

static bool miss_due(RetireSource source, uint32_t clocks)
{
    RetireMiss m = miss_of(source);

    m.clocks = clocks;
    return lwp_miss_due(&lwp, &config, account_charged(), &m);
}

static bool worst_miss_due(void)
{
    return lwp_miss_due(&lwp, &config, account_charged(), NULL);
}

static void set_pending(LwpRecord record)
{
    lwp.pending[0] = record;
    lwp.npending = 1;
}

static uint64_t slwpcb(void)
{
    return lwp_slwpcb(&lwp, &mem.parent, &mode64);
}

static bool ins(uint32_t data1)
{
    return lwp_insert(&lwp, test_host(), LWP_EVENT_INS, 0x4321, data1,
                      0x401000, 0xdeadbeefcafef00d);
}

/* LWPVAL as its helper runs it; whether it stored a record. */
static bool val(uint32_t data1)
{
    if (!lwp_val_due(&lwp, &mem.parent, 0x402000)) {
        return false;
    }
    lwp_insert(&lwp, test_host(), LWP_EVENT_VAL, 7, data1, 0x402000, data1);
    return true;
}

static void assert_record(uint64_t slot, uint8_t id, uint8_t core,
                          uint16_t flags, uint32_t data1, uint64_t ip,
                          uint64_t data2)
{
    const uint8_t *p = &mem.bytes[slot - MEM_BASE];

    g_assert_cmphex(p[0], ==, id);
    g_assert_cmphex(p[1], ==, core);
    g_assert_cmphex(p[2] | p[3] << 8, ==, flags);
    g_assert_cmphex(get32(slot + 4), ==, data1);
    g_assert_cmphex(get64(slot + 8), ==, ip);
    g_assert_cmphex(get64(slot + 16), ==, data2);
    g_assert_cmphex(get64(slot + 24), ==, 0);
}

/* Table 3-1, and what Family 15h showed. */
static void test_cpuid(void)
{
    static const struct {
        uint32_t features;
        uint64_t cfg;
        bool avail;
        uint32_t regs[4];
    } t[] = {
        { 0, 0, true, { 1, 0x80002010, 0x00010200, 1 } },
        { 0x0000000e, 0, false, { 0, 0x80032013, 0x00010200, 0xf } },
        { 0x8000000e, 0x8000000e, false,
          { 0, 0x80032013, 0x00010200, 0x8000000f } },
        { 0x8000000e, 0xff0280000002, true,
          { 0x80000003, 0x80032013, 0x00010200, 0x8000000f } },
        { 0x02, 2, true, { 3, 0x80012011, 0x00010200, 3 } },
        { 0x7e, 0, true, { 1, 0x80062016, 0x00010200, 0x7f } },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        uint32_t regs[4];

        config = (LwpConfig) { .features = t[i].features };
        lwp_cpuid(&config, t[i].cfg, t[i].avail, regs);
        g_assert_cmpmem(regs, sizeof(regs), t[i].regs, sizeof(regs));
        config.caps = LWP_CAP_IP_FILTER;
        lwp_cpuid(&config, t[i].cfg, t[i].avail, regs);
        g_assert_cmphex(regs[2], ==, t[i].regs[2] | 1u << 29);
    }

    /* What describes cache misses is 0 if there are none. */
    for (int dme = 0; dme < 2; dme++) {
        for (uint32_t round = 0; round <= 4; round++) {
            uint32_t regs[4];

            config = (LwpConfig) { .features = 0xe | dme << 4,
                                   .caps = dme ? ALL_CAPS : 3u << 28,
                                   .latency_bits = 10 + 5 * round,
                                   .latency_round = round };
            lwp_cpuid(&config, 0, true, regs);
            g_assert_cmphex(regs[2] & 0x1f, ==, dme ? 10 + 5 * round : 0);
            g_assert_cmphex(regs[2] >> 5 & 1, ==, dme);
            g_assert_cmphex(regs[2] >> 6 & 7, ==, dme ? round : 0);
            g_assert_cmphex(regs[2] >> 9 & 0x7f, ==, 1);
            g_assert_cmphex(regs[2] >> 16 & 0xff, ==, 1);
            g_assert_cmphex(regs[2] >> 24, ==, dme ? 0xf0 : 0x30);
        }
    }
}

static void test_cfg(void)
{
    static const struct {
        uint64_t write;
        bool ok;
        uint64_t read;
    } t[] = {
        { 0x8000000e, true, 0x8000000e },
        { 0x8000000f, true, 0x8000000e },           /* EDX verbatim */
        { 1, true, 0 },
        { 0x10, false, 0 },                         /* DME is not there */
        { 0x40000000, false, 0 },
        { 0x80000000, true, 0x80000000 },
        { 0xffffffff00000002, true, 0xffff00000002 },
        { 0x0000a53c00000000, true, 0xa53c00000000 },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        reset(0x8000000e);
        g_assert_true(lwp_write_cfg(&lwp, &config, 0));
        g_assert_true(lwp_write_cfg(&lwp, &config, t[i].write) == t[i].ok);
        g_assert_cmphex(lwp.cfg, ==, t[i].read);
    }
}

/* §4.2: withdrawn at once, granted by LLWPCB only. */
static void test_cfg_live(void)
{
    start(FLAG_VAL, FLAG_VAL);
    g_assert_true(lwp_write_cfg(&lwp, &config, 0));
    g_assert_false(val(1));
    g_assert_true(lwp_enabled(&lwp));
    g_assert_true(lwp_write_cfg(&lwp, &config, FLAG_VAL));
    g_assert_false(val(1));
    put32(HEAD(CB), 0xffff);
    g_assert_true(load(CB));
    g_assert_true(val(1));
    g_assert_cmpuint(get32(HEAD(CB)), ==, LWP_RECORD_SIZE);
}

static void test_cbaddr(void)
{
    start(FLAG_VAL, FLAG_VAL);
    g_assert_cmphex(lwp.cbaddr, ==, CB);
    g_assert_false(lwp_write_cbaddr(&lwp, CB));
    g_assert_false(lwp_write_cbaddr(&lwp, 1));
    g_assert_true(lwp_enabled(&lwp));
    put32(counter(CB, 1), 99);
    g_assert_true(lwp_write_cbaddr(&lwp, 0));
    g_assert_false(lwp_enabled(&lwp));
    g_assert_cmpuint(get32(counter(CB, 1)), ==, 99);    /* nothing flushed */
    g_assert_cmphex(lwp.cfg, ==, FLAG_VAL);
    g_assert_cmphex(slwpcb(), ==, 0);
}

/* §5.1 step 4 in 64-bit mode and behind data segments. */
static void test_llwpcb_limits(void)
{
    static const LwpSegment la57 = { .va_bits = 57 };
    static const LwpSegment flat = { .first = 0, .last = UINT32_MAX };
    static const LwpSegment none = { .first = 1, .last = 0 };
    static const LwpSegment exact = { .last = RING + MIN_RING - 1 };
    static const LwpSegment tight = { .last = RING + MIN_RING - 2 };
    static const LwpSegment down = { .first = CB, .last = UINT32_MAX };
    static const LwpSegment down1 = { .first = CB + 1, .last = UINT32_MAX };
    static const LwpSegment based = { .base = 0x1000, .last = UINT32_MAX };
    static const LwpSegment wraps = { .base = -0x1000, .last = UINT32_MAX };
    const struct {
        const LwpSegment *ds;
        uint64_t ea, ring;
        uint32_t size;
        bool ok;
    } t[] = {
        { &mode64, CB, RING, MIN_RING, true },
        { &mode64, CB, RING, MIN_RING - 1, false },
        { &mode64, CB, RING, MIN_RING + 31, true },
        { &mode64, CB, RING, 0, false },
        { &mode64, CB, RING, 0xf0000000 + MIN_RING, true },     /* Random */
        { &mode64, CB, 0x7ffffffffc00, MIN_RING, true },
        { &mode64, CB, 0x7ffffffffc01, MIN_RING, false },
        { &mode64, CB, 0xffffffffffffffe0, MIN_RING, false },
        { &mode64, CB, 0xffff800000000000, MIN_RING, true },
        { &mode64, CB, 0x0000800000000000, MIN_RING, false },
        { &mode64, 0x800000000000, RING, MIN_RING, false },
        { &mode64, 0xfffffffffffffff8, RING, MIN_RING, false },
        { &la57, CB, 0x0000800000000000, MIN_RING, true },
        { &la57, CB, 0x0100000000000000, MIN_RING, false },
        { &flat, CB, RING, MIN_RING, true },
        { &flat, CB, 1ull << 32 | RING, MIN_RING, false },
        { &flat, CB, 0xfffffc00, MIN_RING, true },
        { &flat, CB, 0xfffffc01, MIN_RING, false },
        { &none, CB, RING, MIN_RING, false },
        { &exact, CB, RING, MIN_RING, true },
        { &tight, CB, RING, MIN_RING, false },
        { &down, CB, RING, MIN_RING, true },
        { &down1, CB, RING, MIN_RING, false },
        { &based, CB - 0x1000, RING - 0x1000, MIN_RING, true },
        { &wraps, CB + 0x1000, RING + 0x1000, MIN_RING, true },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        LwpSegment ds = *t[i].ds;
        bool ok;

        reset(FLAG_VAL);
        init_cb(CB, FLAG_VAL, t[i].ring, t[i].size);
        ok = lwp_llwpcb(&lwp, &mem.parent, &ds, t[i].ea);
        g_assert_true(ok == t[i].ok);
        g_assert_true(lwp_enabled(&lwp) == ok);
        if (ok) {
            g_assert_cmphex(lwp.cbaddr, ==, CB);
            g_assert_cmphex(lwp_slwpcb(&lwp, &mem.parent, &ds), ==, t[i].ea);
        }
    }

    /* A data segment that puts the LWPCB at linear address 0: disabled. */
    for (uint32_t base = 0x1000; base; base <<= 4) {
        LwpSegment ds = { .base = base, .last = UINT32_MAX };

        start(FLAG_VAL, FLAG_VAL);
        g_assert_true(lwp_llwpcb(&lwp, &mem.parent, &ds, (uint32_t)-base));
        g_assert_false(lwp_enabled(&lwp));
        g_assert_false(val(1));
        g_assert_true(state_valid(&lwp, FLAG_VAL, true));
    }

    /* The limit reaches to the last byte of the LWPCB, LwpCbSize of it. */
    for (int over = 0; over < 2; over++) {
        LwpSegment ds = { .last = CB2 + 128 + 3 * 8 - 1 - over };

        reset(0xe);
        init_cb(CB2, 0, CB, MIN_RING);
        g_assert_true(lwp_llwpcb(&lwp, &mem.parent, &ds, CB2) == !over);
    }
}

/* §5.1 step 4: #GP leaves the old session flushed, the new LWPCB untouched. */
static void test_llwpcb_gp(void)
{
    start(FLAG_VAL, FLAG_VAL);
    lwp.counter[0] = 42;
    init_cb(CB2, 0xffffffff, RING2, MIN_RING - 32);
    g_assert_false(load(CB2));
    g_assert_false(lwp_enabled(&lwp));
    g_assert_cmpuint(get32(counter(CB, 1)), ==, 42);
    g_assert_cmphex(get32(FLAGS(CB2)), ==, 0xffffffff);
}

/* §5.1 steps 6 and 7. */
static void test_llwpcb_init(void)
{
    static const struct {
        uint32_t interval, counter;
        uint32_t interval_after;
        int32_t counter_loaded;
    } t[] = {
        { 0, 0, 0, 0 },
        { 9, 4, 9, 4 },
        { 9, 1000, 9, 1000 },
        { MAX_COUNT, MAX_COUNT, MAX_COUNT, MAX_COUNT },
        { 0x2000000, 0x3ffffff, 0, 0 },             /* negative */
        { 0x3fffffe, 5, 0, 5 },
        { 0xfc000003, 0xfc000007, 3, 7 },           /* reserved bits */
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        reset(FLAG_VAL | FLAG_BRE);
        init_cb(CB, 0xffffffff, RING, MIN_RING);
        for (int n = LWP_EVENT_VAL; n <= LWP_EVENT_BRE; n++) {
            put32(interval(CB, n), t[i].interval);
            put32(counter(CB, n), t[i].counter);
        }
        g_assert_true(load(CB));
        g_assert_cmphex(get32(FLAGS(CB)), ==, FLAG_VAL | FLAG_BRE);
        g_assert_cmphex(get32(interval(CB, 1)), ==, t[i].interval_after);
        g_assert_cmphex(get32(interval(CB, 2)), ==, t[i].interval);
        g_assert_cmphex(get32(interval(CB, 3)), ==, t[i].interval_after);
        g_assert_cmphex(get32(counter(CB, 1)), ==, t[i].counter);
        g_assert_cmpint(lwp.counter[0], ==, t[i].counter_loaded);
        g_assert_cmpint(lwp.counter[2], ==, t[i].counter_loaded);
    }
}

/* INT is rewritten in Flags like any other feature, but is not an event. */
static void test_llwpcb_int(void)
{
    start(FLAG_VAL | LWP_FLAG_INT, FLAG_VAL | LWP_FLAG_INT);
    g_assert_cmphex(get32(FLAGS(CB)), ==, FLAG_VAL | LWP_FLAG_INT);
    g_assert_cmphex(lwp.flags, ==, FLAG_VAL);
}

/* Table 6-1: too large is what is not less than BufferSize. */
static void test_head_repair(void)
{
    static const struct {
        uint32_t size, head, repaired;
    } t[] = {
        { 1024, 0, 0 }, { 1024, 992, 992 }, { 1024, 993, 992 },
        { 1024, 1008, 992 }, { 1024, 1023, 992 },
        { 1024, 1024, 0 }, { 1024, 40, 32 }, { 1024, 0xffffffff, 0 },
        { 1056, 1024, 1024 }, { 1055, 1024, 0 }, { 1055, 993, 992 },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        reset(0);
        init_cb(CB, 0, RING, t[i].size);
        put32(HEAD(CB), t[i].head);
        g_assert_true(load(CB));
        g_assert_cmpuint(lwp.head, ==, t[i].repaired);
        slwpcb();
        g_assert_cmpuint(get32(HEAD(CB)), ==, t[i].repaired);
    }
}

/* §5.2: the active counters and the head, always. */
static void test_flush(void)
{
    start(ALL_EVENTS, FLAG_VAL | FLAG_BRE | FLAG_RNH);
    lwp.counter[LWP_EVENT_VAL - 1] = -3;
    lwp.counter[LWP_EVENT_BRE - 1] = MAX_COUNT;
    lwp.counter[LWP_EVENT_RNH - 1] = 0;
    for (int n = 1; n <= LWP_NR_EVENTS; n++) {
        put32(counter(CB, n), 0x5555);
    }
    put32(HEAD(CB), 0x77);
    g_assert_cmphex(slwpcb(), ==, CB);
    g_assert_cmphex(get32(counter(CB, LWP_EVENT_VAL)), ==, 0x3fffffd);
    g_assert_cmphex(get32(counter(CB, LWP_EVENT_IRE)), ==, 0x5555);
    g_assert_cmphex(get32(counter(CB, LWP_EVENT_BRE)), ==, MAX_COUNT);
    g_assert_cmphex(get32(counter(CB, LWP_EVENT_CNH)), ==, 0x5555);
    g_assert_cmphex(get32(counter(CB, LWP_EVENT_RNH)), ==, 0);
    g_assert_cmphex(get32(HEAD(CB)), ==, 0);
    g_assert_true(lwp_enabled(&lwp));
}

static void test_records(void)
{
    start(FLAG_VAL, FLAG_VAL);
    g_assert_true(lwp_write_cfg(&lwp, &config, FLAG_VAL | 0x5aull << 32));
    g_assert_false(ins(0x12345678));
    g_assert_true(val(0x9abcdef0));
    assert_record(RING, 255, 0x5a, 0x4321, 0x12345678, 0x401000,
                  0xdeadbeefcafef00d);
    assert_record(RING + 32, 1, 0x5a, 7, 0x9abcdef0, 0x402000, 0x9abcdef0);
    g_assert_cmpuint(get32(HEAD(CB)), ==, 64);
}

/* §1.1 step 3, Table 6-1 MissedEvents. */
static void check_ring_full(void)
{
    const int slots = MIN_RING / LWP_RECORD_SIZE;

    start(0, 0);
    put64(MISSED(CB), UINT32_MAX);
    for (int i = 0; i < slots - 1; i++) {
        g_assert_false(ins(i));
    }
    for (int i = 0; i < 3; i++) {
        g_assert_true(ins(1000 + i));
        g_assert_cmpuint(get64(MISSED(CB)), ==, UINT32_MAX + 1ull + i);
        g_assert_cmpuint(get32(HEAD(CB)), ==, MIN_RING - 32);
        g_assert_cmpuint(get32(RING + MIN_RING - 32 + 4), ==, 1000 + i);
    }
    g_assert_cmpuint(get32(RING + 4), ==, 0);

    /* The tail is read again; the head wraps. */
    put32(TAIL(CB), 64);
    g_assert_false(ins(2000));
    g_assert_cmpuint(get32(HEAD(CB)), ==, 0);
    g_assert_false(ins(2001));
    g_assert_true(ins(2002));
    g_assert_cmpuint(get32(RING + 4), ==, 2001);
    g_assert_cmpuint(get32(RING + 32 + 4), ==, 2002);
    g_assert_cmpuint(get32(RING + 64 + 4), ==, 2);

    /* Tails against the rules never match, and never do harm. */
    put32(TAIL(CB), 0xffffffff);
    for (int i = 0; i < 5 * slots; i++) {
        g_assert_false(ins(i));
    }
}

static void test_ring_full(void)
{
    check_ring_full();
    direct = true;
    check_ring_full();
    direct = false;
}

enum { ORDERED_RECORDS = 20000 };

/* Another processor takes records from the ring while they are stored. */
static void *take_records(void *opaque)
{
    uint32_t *head = (uint32_t *)&mem.bytes[HEAD(CB) - MEM_BASE];
    uint32_t *tail = (uint32_t *)&mem.bytes[TAIL(CB) - MEM_BASE];
    uint32_t at = 0;

    for (uint32_t n = 0; n < ORDERED_RECORDS; n++) {
        while (GUINT32_FROM_LE(__atomic_load_n(head, __ATOMIC_ACQUIRE)) == at) {
            g_thread_yield();
        }
        g_assert_cmpuint(get32(RING + at + 4), ==, n);
        at = (at + LWP_RECORD_SIZE) % MIN_RING;
        __atomic_store_n(tail, GUINT32_TO_LE(at), __ATOMIC_RELEASE);
    }
    return NULL;
}

/* Who sees the head sees the record (§1.1 step 3): by Data1, and with TSan. */
static void test_order(void)
{
    const uint32_t *tail = (uint32_t *)&mem.bytes[TAIL(CB) - MEM_BASE];
    GThread *taker;

    start(0, 0);
    direct = true;
    taker = g_thread_new("taker", take_records, NULL);
    for (uint32_t n = 0, next = 0; n < ORDERED_RECORDS; n++) {
        next = (next + LWP_RECORD_SIZE) % MIN_RING;
        while (GUINT32_FROM_LE(__atomic_load_n(tail, __ATOMIC_ACQUIRE)) ==
               next) {
            g_thread_yield();
        }
        g_assert_false(ins(n));
    }
    g_thread_join(taker);
    direct = false;
}

/* Exactly every (interval + 1)th LWPVAL, the first after counter + 1. */
static void test_val_period(void)
{
    static const int periods[][2] = { { 0, 0 }, { 9, 9 }, { 4, 17 }, { 7, 0 } };

    for (int i = 0; i < G_N_ELEMENTS(periods); i++) {
        int next;

        reset(FLAG_VAL);
        init_cb(CB, FLAG_VAL, RING, MIN_RING);
        put32(interval(CB, 1), periods[i][0]);
        put32(counter(CB, 1), periods[i][1]);
        g_assert_true(load(CB));
        next = periods[i][1];
        for (int n = 0; n < 100; n++) {
            g_assert_true(val(n) == (n == next));
            if (n == next) {
                next += periods[i][0] + 1;
            }
        }
    }
}

static void test_val_disabled(void)
{
    start(FLAG_VAL, FLAG_VAL);
    g_assert_cmphex(lwp_wants(&lwp), ==, 0);
    start(FLAG_VAL, 0);
    g_assert_false(val(1));
    lwp_disable(&lwp);
    g_assert_false(val(1));
    g_assert_cmpuint(get32(HEAD(CB)), ==, 0);
}

/* A full ring resets the counter all the same (§1.1 step 5). */
static void test_val_missed(void)
{
    start(FLAG_VAL, FLAG_VAL);
    put32(interval(CB, 1), 2);
    put32(TAIL(CB), 32);
    for (int i = 0; i < 30; i++) {
        g_assert_true(val(i) == (i % 3 == 0));
    }
    g_assert_cmpuint(get64(MISSED(CB)), ==, 10);
}

/* Overrun shortens the next period (§1.1 step 5); counters saturate. */
static void test_overrun(void)
{
    static const struct {
        int32_t counter;
        uint32_t interval;
        int32_t reset;
    } t[] = {
        { 0, 10, 10 }, { -1, 10, 9 }, { -4, 10, 6 }, { -20, 10, -10 },
        { -0x2000000, 0, -0x2000000 }, { -0x2000000, 1, -0x1ffffff },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        start(FLAG_VAL, FLAG_VAL);
        put32(interval(CB, 1), t[i].interval);
        lwp.counter[0] = t[i].counter;
        g_assert_true(val(1));
        g_assert_cmpint(lwp.counter[0], ==, t[i].reset);
    }
}

/* Table 6-1 Random: the bottom bits vary, the others do not. */
static void test_random(void)
{
    for (uint32_t bits = 0; bits < 16; bits++) {
        uint32_t mask = (1u << bits) - 1, seen0 = 0, seen1 = 0;
        uint64_t seed = 0;

        for (int run = 0; run < 2; run++) {
            reset(FLAG_VAL);
            init_cb(CB, FLAG_VAL, RING, bits << 28 | MIN_RING);
            put32(interval(CB, 1), 0x155aaaa);
            g_assert_true(load(CB));
            g_assert_cmphex(lwp.size, ==, MIN_RING);
            for (int i = 0; i < 200; i++) {
                lwp.counter[0] = 0;
                g_assert_true(val(i));
                g_assert_cmphex(lwp.counter[0] & ~mask, ==, 0x155aaaa & ~mask);
                seen1 |= lwp.counter[0];
                seen0 |= ~lwp.counter[0];
            }
            if (run) {
                g_assert_cmphex(lwp.prng, ==, seed);
            }
            seed = lwp.prng;
        }
        g_assert_cmphex(seen0 & seen1 & MAX_COUNT, ==, mask);
    }
}

/* Table 7-1, byte by byte. */
static void test_xsave_layout(void)
{
    uint8_t image[LWP_XSAVE_SIZE];
    static const struct {
        int offset, bytes;
        uint64_t val;
    } t[] = {
        { 0, 8, CB }, { 8, 4, FLAG_VAL | FLAG_DME }, { 12, 4, 64 },
        { 16, 8, RING }, { 24, 4, MIN_RING }, { 28, 4, 0xdeadbeef },
        { 32, 8, 0x1122334455667702 }, { 40, 8, 0x401234 }, { 48, 8, 5 },
        { 56, 8, 0 }, { 64, 4, 0x3ffffff }, { 68, 4, 0 }, { 72, 4, 0 },
        { 76, 4, 1234 }, { 80, 8, 0 }, { 88, 8, 0 }, { 96, 8, 0 },
        { 104, 8, 0 }, { 112, 8, 0 }, { 120, 8, 0 },
    };

    reset(ALL_EVENTS);
    init_cb(CB, FLAG_VAL | FLAG_DME, RING, MIN_RING);
    put32(HEAD(CB), 64);
    put32(FILTERS(CB), 0xdeadbeef);
    g_assert_true(load(CB));
    lwp.counter[0] = -1;
    lwp.counter[1] = 77;        /* of an event that is not enabled */
    lwp.counter[3] = 1234;
    set_pending((LwpRecord) { { 0x1122334455667702, 0x401234, 5, 0 } });

    memset(image, 0xff, sizeof(image));
    lwp_xsave(&lwp, image);
    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        for (int b = 0; b < t[i].bytes; b++) {
            g_assert_cmphex(image[t[i].offset + b], ==,
                            (uint8_t)(t[i].val >> (8 * b)));
        }
    }
}

static void test_xsave_roundtrip(void)
{
    uint8_t image[LWP_XSAVE_SIZE];
    LwpState saved;

    start(ALL_EVENTS, ALL_EVENTS);
    for (int n = 0; n < LWP_NR_EVENTS; n++) {
        lwp.counter[n] = n % 2 ? -1 - n * 1000 : MAX_COUNT - n;
    }
    lwp.filters = 0x07654321;
    set_pending((LwpRecord) { { 0x03, 1, 2, 3 } });
    g_assert_true(lwp_load_state(&lwp, &config, true));
    saved = lwp;
    lwp_xsave(&lwp, image);
    lwp_disable(&lwp);
    g_assert_false(lwp_busy(&lwp));
    lwp_xrstor(&lwp, &config, image, NULL);
    g_assert_cmpmem(&lwp, sizeof(lwp), &saved, sizeof(saved));

    /* XSTATE_BV[62] = 0 */
    lwp_xrstor(&lwp, &config, NULL, NULL);
    g_assert_false(lwp_enabled(&lwp) || lwp.flags || lwp_busy(&lwp));
    g_assert_cmphex(lwp.cfg, ==, ALL_EVENTS);
}

static void image_put(uint8_t *image, int offset, uint64_t val)
{
    for (int b = 0; b < (offset == 0 || offset == 16 ? 8 : 4); b++) {
        image[offset + b] = val >> (8 * b);
    }
}

/* §7.4 steps 1 and 2, and the checks at CPL 3. */
static void test_xrstor_rules(void)
{
    static const LwpSegment below = { .last = CB - 1 };
    static const LwpSegment none = { .first = 1, .last = 0 };
    static const LwpSegment flat = { .last = UINT32_MAX };
    static const LwpSegment based = { .base = CB, .last = UINT32_MAX };
    static const LwpSegment beyond = { .base = RING,
                                       .last = UINT32_MAX - 4 * PAGE };
    static const LwpSegment exact = { .last = RING + MIN_RING - 1 };
    static const LwpSegment tight = { .last = RING + MIN_RING - 2 };
    static const struct {
        uint64_t cb, base;
        uint32_t size, head;
        const LwpSegment *ds;
        bool on;
        uint32_t size_after, head_after;
    } t[] = {
        { CB, RING, 1024, 0, NULL, true, 1024, 0 },
        { 0, RING, 1024, 0, NULL, false },
        { CB, RING, 1023, 0, NULL, false },
        { CB, RING, 1055, 0, NULL, true, 1024, 0 },
        { CB, RING, 1055, 1024, NULL, true, 1024, 0 },
        { CB, RING, 2048, 2016, NULL, true, 2048, 2016 },
        { CB, RING, 2048, 2017, NULL, true, 2048, 0 },
        { CB, RING, 2048, 2032, NULL, true, 2048, 0 },
        { CB, RING, 2048, 2047, NULL, true, 2048, 0 },
        { CB, RING, 2048, 0x7f, NULL, true, 2048, 0x60 },
        { CB, RING, 0xf0000400, 0, NULL, true, 1024, 0 },
        { 0x7ff800000000000, ~0ull, 1024, 0, NULL, true, 1024, 0 },
        { CB, RING, 1024, 0, &mode64, true, 1024, 0 },
        { 0x800000000000, RING, 1024, 0, &mode64, false },
        { 0x7ffffffffff0, RING, 1024, 0, &mode64, false },
        { CB, 0x800000000000, 1024, 0, &mode64, false },
        { CB, ~0ull, 1024, 0, &mode64, false },
        { CB, 0x7ffffffffc01, 1024, 0, &mode64, false },
        { CB, RING, 1024, 0, &flat, true, 1024, 0 },
        { CB, RING, 1024, 0, &below, false },
        { CB, RING, 1024, 0, &none, false },
        { CB, RING, 1024, 0, &based, true, 1024, 0 },
        { CB, RING, 1024, 0, &beyond, false },      /* CB - base wraps */
        { CB, RING, 1024, 0, &exact, true, 1024, 0 },
        { CB, RING, 1024, 0, &tight, false },
        { 1ull << 32 | CB, RING, 1024, 0, &flat, false },
        { CB, 1ull << 63 | RING, 1024, 0, &flat, false },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        uint8_t image[LWP_XSAVE_SIZE] = { };

        start(FLAG_VAL, FLAG_VAL);
        image_put(image, 0, t[i].cb);
        image_put(image, 8, 0xffffffff);
        image_put(image, 12, t[i].head);
        image_put(image, 16, t[i].base);
        image_put(image, 24, t[i].size);
        image_put(image, 64, 0x2000000);
        image_put(image, 68, 5);
        lwp_xrstor(&lwp, &config, image, t[i].ds);
        g_assert_true(lwp_enabled(&lwp) == t[i].on);
        g_assert_cmphex(lwp.cbaddr, ==, t[i].on ? t[i].cb : 0);
        g_assert_cmpuint(lwp.size, ==, t[i].size_after);
        g_assert_cmpuint(lwp.head, ==, t[i].head_after);
        g_assert_cmphex(lwp.flags, ==, t[i].on ? FLAG_VAL : 0);
        g_assert_cmpint(lwp.counter[0], ==, t[i].on ? -0x2000000 : 0);
        g_assert_cmpint(lwp.counter[1], ==, 0);
        g_assert_true(state_valid(&lwp, FLAG_VAL, true));
    }
}

/* §7.4 step 3: stored once, and what is stored is reset. */
static void test_pending(void)
{
    start(FLAG_VAL | FLAG_IRE, FLAG_VAL | FLAG_IRE);
    put32(interval(CB, LWP_EVENT_IRE), 100);
    set_pending((LwpRecord) { { 0x02, 0x1234 } });
    lwp.counter[LWP_EVENT_IRE - 1] = -5;
    g_assert_true(boundary(0x1000));
    g_assert_false(lwp_busy(&lwp));
    g_assert_cmpint(lwp.counter[LWP_EVENT_IRE - 1], ==, 96);
    assert_record(RING, 2, 0, 0, 0, 0x1234, 0);
    g_assert_true(boundary(0x1000));
    g_assert_cmpuint(get32(HEAD(CB)), ==, 32);

    /* Software's own: whatever EventId it has, no counter is harmed. */
    for (int id = 1; id < 256; id++) {
        lwp.counter[0] = 3;
        lwp.counter[1] = 4;
        set_pending((LwpRecord) { { id } });
        put32(TAIL(CB), lwp.head);
        slwpcb();
        g_assert_false(lwp_busy(&lwp));
        g_assert_cmpint(lwp.counter[0], ==, 3);
        g_assert_cmpint(lwp.counter[1], ==, 4);
        g_assert_cmpint(lwp.counter[2], ==, 0);
    }
    g_assert_cmpuint(get64(MISSED(CB)), ==, 0);
}

/* Not tried again elsewhere, only where the fault was seen. */
static void test_pending_deferred(void)
{
    start(0, 0);
    set_pending((LwpRecord) { { 9 } });
    mem.absent[(RING - MEM_BASE) / PAGE] = true;
    g_assert_true(FAULTS(boundary(0x1000)));
    g_assert_cmphex(mem.fault_addr, ==, RING);
    g_assert_false(boundary(0x2000));
    g_assert_true(FAULTS(boundary(0x1000)));
    mem.absent[(RING - MEM_BASE) / PAGE] = false;
    g_assert_false(boundary(0x2000));
    g_assert_true(boundary(0x1000));
    g_assert_cmpuint(get32(HEAD(CB)), ==, 32);

    /* A new pending record starts afresh; SLWPCB does not wait. */
    set_pending((LwpRecord) { { 9 } });
    g_assert_true(boundary(0x3000));
    set_pending((LwpRecord) { { 9 } });
    mem.absent[(CB - MEM_BASE) / PAGE] = true;
    g_assert_true(FAULTS(boundary(0x1000)));
    g_assert_cmphex(mem.fault_addr, ==, CB);
    g_assert_true(FAULTS(slwpcb()));
    mem.absent[(CB - MEM_BASE) / PAGE] = false;
    g_assert_cmphex(slwpcb(), ==, CB);
    g_assert_false(lwp_busy(&lwp));
    g_assert_cmpuint(get32(HEAD(CB)), ==, 96);
}

/* A program that does not come back is not waited for without end. */
static void test_pending_away(void)
{
    start(0, 0);
    set_pending((LwpRecord) { { 9 } });
    mem.absent[(RING - MEM_BASE) / PAGE] = true;
    g_assert_true(FAULTS(boundary(0x1000)));
    /* That it is looked at must not fault there. */
    for (int i = 0; i < 2 * LWP_AWAY_MAX; i++) {
        g_assert_false(boundary(0x2000 + i));
    }
    mem.absent[(RING - MEM_BASE) / PAGE] = false;
    mem.absent[(CB - MEM_BASE) / PAGE] = true;
    for (int i = 0; i < LWP_AWAY_MAX; i++) {
        g_assert_false(boundary(0x2000 + i));
    }
    mem.absent[(CB - MEM_BASE) / PAGE] = false;
    for (int i = 1; i < LWP_AWAY_MAX; i++) {
        g_assert_false(boundary(0x2000 + i));
    }
    g_assert_true(boundary(0x2000));
    g_assert_cmpuint(get32(HEAD(CB)), ==, 32);
    g_assert_false(lwp_busy(&lwp));
}

/* What storing the next record would raise, and nothing else */
static void test_probe_store(void)
{
    start(0, 0);
    lwp_probe_store(&lwp, &mem.parent);
    mem.absent[(RING - MEM_BASE) / PAGE] = true;
    g_assert_true(FAULTS(lwp_probe_store(&lwp, &mem.parent)));
    g_assert_cmphex(mem.fault_addr, ==, RING);
    mem.absent[(CB - MEM_BASE) / PAGE] = true;
    g_assert_true(FAULTS(lwp_probe_store(&lwp, &mem.parent)));
    g_assert_cmphex(mem.fault_addr, ==, CB);
    memset(mem.absent, 0, sizeof(mem.absent));
    g_assert_cmpuint(get32(HEAD(CB)), ==, 0);
}

static void set_vector(uint8_t vector)
{
    g_assert_true(lwp_write_cfg(&lwp, &config, (uint32_t)lwp.cfg |
                                               (uint64_t)vector << 40));
}

/* There have been @n reports; the last one @missed or raised @vector. */
static void assert_reports(int n, bool missed, uint8_t vector)
{
    g_assert_cmpint(mem.reports, ==, n);
    if (n) {
        g_assert_true(mem.missed == missed);
        g_assert_cmphex(mem.vector, ==, missed ? 0 : vector);
    }
    mem.reports = 0;
}

static void start_int(uint32_t size, uint32_t head, uint32_t tail,
                      uint32_t threshold)
{
    reset(LWP_FLAG_INT);
    set_vector(VECTOR);
    init_cb(CB, LWP_FLAG_INT, RING - head, size);
    put32(HEAD(CB), head);
    put32(TAIL(CB), tail);
    put32(THRESHOLD(CB), threshold);
    g_assert_true(load(CB));
}

/* One record, with a tail that is as it should be, by Table 6-1 */
static void check_threshold(uint32_t loaded, uint32_t head, uint32_t tail,
                            uint32_t threshold)
{
    int64_t size = loaded / LWP_RECORD_SIZE * LWP_RECORD_SIZE;
    int64_t next = (head + LWP_RECORD_SIZE) % size;
    int64_t used = ((next - (int64_t)tail) % size + size) % size;
    bool full = next == tail;

    start_int(loaded, head, tail, threshold);
    g_assert_true(ins(1) == full);
    g_assert_cmphex(mem.slot, ==, RING);
    assert_reports(1, full,
                   used >= threshold / LWP_RECORD_SIZE * LWP_RECORD_SIZE ?
                   VECTOR : 0);
    g_assert_cmpuint(get64(MISSED(CB)), ==, full);
}

static uint32_t random_offset(uint32_t size)
{
    uint32_t n = size / LWP_RECORD_SIZE;
    uint32_t near = g_test_rand_int_range(0, 4);

    switch (g_test_rand_int_range(0, 3)) {
    case 0:
        return near * LWP_RECORD_SIZE;
    case 1:
        return (n - 1 - near) * LWP_RECORD_SIZE;
    default:
        return g_test_rand_int_range(0, n) * LWP_RECORD_SIZE;
    }
}

static void test_threshold(void)
{
    static const uint32_t thresholds[] = {
        0, 1, 31, 32, 33, 64, 512, 960, 991, 992, 1023, 1024, 1055, 1056,
        1088, 0x7fffffff, 0x80000000, 0xffffffdf, 0xffffffe0, 0xffffffff,
    };
    static const uint32_t sizes[] = { 1055, 1087 };     /* 1024 and 1056 */

    for (int i = 0; i < G_N_ELEMENTS(sizes); i++) {
        for (uint32_t head = 0; head + 32 <= sizes[i]; head += 32) {
            for (uint32_t tail = 0; tail + 32 <= sizes[i]; tail += 32) {
                for (int t = 0; t < G_N_ELEMENTS(thresholds); t++) {
                    check_threshold(sizes[i], head, tail, thresholds[t]);
                }
            }
        }
    }

    for (int i = 0; i < 20000; i++) {
        /* The test's memory is where the record is; that is below 1 MiB. */
        uint32_t bits = g_test_rand_int_range(11, 29);
        uint32_t size = g_test_rand_int_range(MIN_RING, 1 << bits);
        uint32_t head = random_offset(MIN(size, MEM_BASE));
        uint32_t tail = g_test_rand_int_range(0, 3) ? random_offset(size) :
                        (head + 32) / 32 % (size / 32) * 32;
        int64_t used = ((int64_t)head + 32 - tail + size / 32 * 32) %
                       (size / 32 * 32);
        int64_t threshold = g_test_rand_bit() ?
                            (uint32_t)g_test_rand_int() :
                            used + g_test_rand_int_range(-65, 66);

        check_threshold(size, head, tail, MAX(threshold, 0));
    }
}

/* Tails against the rules of Table 6-1: nothing else is touched. */
static void test_threshold_bad_tail(void)
{
    static const uint32_t tails[] = {
        1, 16, 31, 33, 1023, 1024, 1025, 1056, 2048, 0x7fffffff, 0x80000000,
        0xffffffe0, 0xffffffff,
    };
    static uint8_t before[sizeof(mem.bytes)];

    for (int i = 0; i < G_N_ELEMENTS(tails); i++) {
        for (uint32_t head = 0; head < MIN_RING; head += 32) {
            uint32_t next = (head + 32) % MIN_RING;

            start_int(MIN_RING, head, tails[i], 512);
            memcpy(before, mem.bytes, sizeof(before));
            g_assert_false(ins(1));
            g_assert_cmpint(mem.reports, ==, 1);
            g_assert_true(mem.vector == VECTOR || mem.vector == 0);
            g_assert_cmpuint(get32(HEAD(CB)), ==, next);
            memset(&mem.bytes[RING - MEM_BASE], 0, 32);
            put32(HEAD(CB), head);
            g_assert_cmpmem(mem.bytes, sizeof(before), before, sizeof(before));
        }
    }
}

/* §8.3: the tail is read when the record has been stored. */
static void test_threshold_moving_tail(void)
{
    static const struct {
        uint32_t head, tail, threshold, moves_to;
        bool missed, raised;
    } t[] = {
        { 64, 0, 96, 0, false, true },
        { 64, 0, 96, 32, false, false },        /* not above it any more */
        { 64, 0, 64, 32, false, true },         /* still is */
        { 64, 0, 32, 64, false, true },
        { 64, 0, 64, 64, false, false },
        { 64, 0, 32, 96, false, false },        /* nothing is left */
        { 64, 0, 0, 96, false, true },
        { 992, 512, 512, 512, false, true },    /* the head wraps */
        { 992, 512, 512, 544, false, false },
        { 992, 512, 32, 992, false, true },
        { 64, 96, 0, 128, true, false },        /* full before */
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        start_int(MIN_RING, t[i].head, t[i].tail, t[i].threshold);
        mem.moves = true;
        mem.moves_to = t[i].moves_to;
        g_assert_true(ins(1) == t[i].missed);
        assert_reports(1, t[i].missed, t[i].raised ? VECTOR : 0);
    }
}

/* LWP_CFG, its vector and LWPCB.Flags, Threshold all decide at each record. */
static void test_interrupt_enable(void)
{
    uint8_t image[LWP_XSAVE_SIZE];

    for (unsigned vector = 0; vector < 256; vector++) {
        start_int(MIN_RING, 0, 0, 0);
        set_vector(vector);
        ins(1);
        assert_reports(1, false, vector);
    }

    start_int(MIN_RING, 0, 0, 0);
    put32(FLAGS(CB), ~LWP_FLAG_INT);
    ins(1);
    assert_reports(1, false, 0);
    put32(FLAGS(CB), LWP_FLAG_INT);
    ins(1);
    assert_reports(1, false, VECTOR);
    put32(THRESHOLD(CB), 128);
    ins(1);
    assert_reports(1, false, 0);
    ins(1);
    assert_reports(1, false, VECTOR);
    put32(TAIL(CB), 32);
    ins(1);
    assert_reports(1, false, VECTOR);
    put32(TAIL(CB), 96);
    ins(1);
    assert_reports(1, false, 0);
    put32(THRESHOLD(CB), 0);

    /* §4.2: withdrawn at once, and LLWPCB says so. */
    g_assert_true(lwp_write_cfg(&lwp, &config, (uint64_t)VECTOR << 40));
    ins(1);
    assert_reports(1, false, 0);
    g_assert_true(load(CB));
    g_assert_cmphex(get32(FLAGS(CB)), ==, 0);
    g_assert_true(lwp_write_cfg(&lwp, &config,
                                (uint64_t)VECTOR << 40 | LWP_FLAG_INT));
    ins(1);
    assert_reports(1, false, 0);

    /* §7.4: not by XRSTOR, and not by what the image says. */
    start_int(MIN_RING, 0, 0, 64);
    ins(1);
    ins(1);
    assert_reports(2, false, VECTOR);
    lwp_xsave(&lwp, image);
    g_assert_cmphex(image[8] | image[11], ==, 0);
    lwp_xrstor(&lwp, &config, image, NULL);
    g_assert_true(boundary(0x1000));
    g_assert_cmpint(mem.reports, ==, 0);
    ins(1);
    assert_reports(1, false, VECTOR);
    put32(FLAGS(CB), 0);
    image[11] = 0x80;
    lwp_xrstor(&lwp, &config, image, NULL);
    ins(1);
    assert_reports(1, false, 0);
}

/* One report for each record, of whatever event. */
static void test_reports(void)
{
    start(ALL_EVENTS | LWP_FLAG_INT, ALL_EVENTS | LWP_FLAG_INT);
    set_vector(VECTOR);
    put32(interval(CB, LWP_EVENT_VAL), 2);
    for (int n = LWP_EVENT_IRE; n <= LWP_NR_EVENTS; n++) {
        lwp.counter[n - 1] = 1000;
    }
    for (int i = 0; i < 9; i++) {
        bool stored = val(1);

        g_assert_true(stored == (i % 3 == 0));
        assert_reports(stored, false, VECTOR);
    }
    for (int n = LWP_EVENT_IRE; n <= LWP_NR_EVENTS; n++) {
        uint32_t head = lwp.head;

        put32(interval(CB, n), 1000);
        lwp.counter[n - 1] = 0;
        miss(RETIRE_SOURCE_L2);
        retire(0x1000, RETIRE_BRANCH_JMP, true, 0x1000);
        g_assert_cmpint(mem.reports, ==, 0);
        g_assert_true(boundary(0x1000));
        g_assert_cmphex(mem.bytes[RING + head - MEM_BASE], ==, n);
        g_assert_cmphex(mem.slot, ==, RING + head);
        assert_reports(1, false, VECTOR);
    }
    put32(TAIL(CB), lwp.head + 32);
    ins(1);
    assert_reports(1, true, 0);
    slwpcb();
    g_assert_true(load(0));
    assert_reports(0, false, 0);
}

/* A record or LWPCB across two pages is stored whole or not at all. */
static void test_page_crossing(void)
{
    reset(FLAG_VAL);
    init_cb(CB, 0, RING + PAGE - 48, MIN_RING);
    g_assert_true(load(CB));
    mem.absent[(RING - MEM_BASE) / PAGE + 1] = true;
    g_assert_false(ins(1));
    g_assert_true(FAULTS(ins(2)));
    g_assert_cmphex(mem.fault_addr, ==, RING + PAGE);
    g_assert_cmphex(get64(RING + PAGE - 16), ==, 0);
    g_assert_cmpuint(get32(HEAD(CB)), ==, 32);
    mem.absent[(RING - MEM_BASE) / PAGE + 1] = false;
    g_assert_false(ins(2));
    assert_record(RING + PAGE - 16, 255, 0, 0x4321, 2, 0x401000,
                  0xdeadbeefcafef00d);

    reset(FLAG_VAL);
    init_cb(CB2 - 100, FLAG_VAL, RING, MIN_RING);
    mem.absent[(CB2 - MEM_BASE) / PAGE] = true;
    g_assert_true(FAULTS(load(CB2 - 100)));
    g_assert_cmphex(mem.fault_addr, ==, CB2);
    g_assert_cmphex(get32(FLAGS(CB2 - 100)), ==, FLAG_VAL);
    g_assert_false(lwp_enabled(&lwp));
}

/*
 * Whatever access of an instruction faults, restarting it gives what it would
 * have given without the fault.
 */
enum { OP_INS, OP_INS_FULL, OP_VAL, OP_VAL_RANDOM, OP_SLWPCB, OP_LLWPCB,
       OP_LLWPCB_PENDING, OP_PENDING, OP_PENDING_FULL, OP_COUNT };

static void op_setup(int op)
{
    start(ALL_EVENTS | LWP_FLAG_INT, ALL_EVENTS | LWP_FLAG_INT);
    set_vector(VECTOR);
    init_cb(CB2, ALL_EVENTS, RING2, MIN_RING);
    for (int n = 1; n <= LWP_NR_EVENTS; n++) {
        put32(interval(CB, n), 100 + n);
        put32(interval(CB2, n), 0x3000000 + n);
        put32(counter(CB2, n), 200 + n);
        lwp.counter[n - 1] = 300 + n;
    }
    switch (op) {
    case OP_INS_FULL:
        put32(TAIL(CB), 32);
        break;
    case OP_VAL_RANDOM:
        put32(SIZE(CB), 0x50000000 | MIN_RING);
        /* fall through */
    case OP_VAL:
        lwp.counter[0] = 0;
        break;
    case OP_LLWPCB_PENDING:
    case OP_PENDING_FULL:
        put32(TAIL(CB), 32);
        /* fall through */
    case OP_PENDING:
        set_pending((LwpRecord) { { 3, 4, 5, 6 } });
        lwp.counter[2] = -9;
        break;
    }
}

static void op_run(int op)
{
    switch (op) {
    case OP_INS:
    case OP_INS_FULL:
        ins(1);
        break;
    case OP_VAL:
    case OP_VAL_RANDOM:
        val(1);
        break;
    case OP_SLWPCB:
        slwpcb();
        break;
    case OP_LLWPCB:
    case OP_LLWPCB_PENDING:
        g_assert_true(load(CB2));
        break;
    case OP_PENDING:
    case OP_PENDING_FULL:
        boundary(0x1000);
        lwp.deferred_ip = 0;
        break;
    }
}

static void op_run_with_fault(int op, int access)
{
    op_setup(op);
    mem.accesses = 0;
    mem.fault_at = access;
    g_assert_true(FAULTS(op_run(op)));
    mem.fault_at = -1;
    op_run(op);
}

static void test_restart(void)
{
    static const struct {
        int reports;
        bool missed;
    } want_op[OP_COUNT] = {
        [OP_INS] = { 1, false }, [OP_INS_FULL] = { 1, true },
        [OP_VAL] = { 1, false }, [OP_VAL_RANDOM] = { 1, false },
        [OP_LLWPCB_PENDING] = { 1, true },
        [OP_PENDING] = { 1, false }, [OP_PENDING_FULL] = { 1, true },
    };
    static LwpState want;
    static uint8_t want_bytes[sizeof(mem.bytes)];

    for (int op = 0; op < OP_COUNT; op++) {
        int accesses;

        op_setup(op);
        mem.accesses = 0;
        op_run(op);
        accesses = mem.accesses;
        g_assert_cmpint(accesses, >, 2);
        assert_reports(want_op[op].reports, want_op[op].missed, VECTOR);
        want = lwp;
        memcpy(want_bytes, mem.bytes, sizeof(mem.bytes));

        for (int k = 0; k < accesses; k++) {
            op_run_with_fault(op, k);
            assert_reports(want_op[op].reports, want_op[op].missed, VECTOR);
            g_assert_cmpmem(&lwp, sizeof(lwp), &want, sizeof(want));
            g_assert_cmpmem(mem.bytes, sizeof(mem.bytes),
                            want_bytes, sizeof(want_bytes));
        }
    }
}

/* Table 6-2, IPF and IPI: which addresses count, and what TBs are told. */
static void test_ip_filter(void)
{
    const RetireWants range = RETIRE_WANT_COUNT | RETIRE_WANT_RANGE;
    static const uint64_t ips[] = { 0, 9, 10, 15, 20, 21, UINT64_MAX };
    const struct {
        uint32_t filters;
        uint64_t base, limit;
        uint8_t eligible;       /* bit n is ips[n] */
        RetireWants wants;
    } t[] = {
        { 0, 10, 20, 0x7f, RETIRE_WANT_COUNT },
        { 1u << 30, 10, 20, 0x7f, RETIRE_WANT_COUNT },     /* IPI alone */
        { 1u << 31, 10, 20, 0x1c, range },
        { 3u << 30, 10, 20, 0x63, range },
        { 1u << 31, 20, 10, 0, 0 },
        { 3u << 30, 20, 10, 0x7f, RETIRE_WANT_COUNT },
        { 1u << 31, 10, 10, 0x04, range },
        { 3u << 30, 10, 10, 0x7b, range },
        { 1u << 31, 0, UINT64_MAX, 0x7f, range },
        { 3u << 30, 0, UINT64_MAX, 0, 0 },
        { 3u << 30, 1, UINT64_MAX, 0x01, range },
        { 3u << 30, 0, UINT64_MAX - 1, 0x40, range },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        for (int xrstor = 0; xrstor < 2; xrstor++) {
            reset(FLAG_IRE);
            init_cb(CB, FLAG_IRE, RING, MIN_RING);
            put32(FILTERS(CB), t[i].filters);
            put64(BASE_IP(CB), t[i].base);
            put64(LIMIT_IP(CB), t[i].limit);
            put32(counter(CB, LWP_EVENT_IRE), 1000);
            g_assert_true(load(CB));
            if (xrstor) {
                uint8_t image[LWP_XSAVE_SIZE];

                lwp_xsave(&lwp, image);
                lwp_xrstor(&lwp, &config, image, NULL);
                if (t[i].filters >> 31) {
                    /* The image does not have the addresses (§8.2.5). */
                    g_assert_cmphex(lwp_wants(&lwp), ==, RETIRE_WANT_COUNT);
                    g_assert_true(distance().pending);
                    g_assert_true(boundary(0x1000));
                    g_assert_false(distance().pending);
                }
            }
            g_assert_cmphex(lwp_wants(&lwp), ==, t[i].wants);
            for (int k = 0; k < G_N_ELEMENTS(ips); k++) {
                int before = lwp.counter[LWP_EVENT_IRE - 1];

                retire(ips[k], RETIRE_BRANCH_NONE, false, 0);
                g_assert_cmpint(before - lwp.counter[LWP_EVENT_IRE - 1], ==,
                                (t[i].eligible >> k) & 1);
            }
        }
    }

    /* Not supported: ignored. */
    config.caps = 0;
    g_assert_true(load(0));
    g_assert_true(load(CB));
    g_assert_cmpint(lwp.ip_filter, ==, LWP_IP_ALL);
}

static void test_ip_filter_val(void)
{
    reset(FLAG_VAL);
    init_cb(CB, FLAG_VAL, RING, MIN_RING);
    put32(FILTERS(CB), 1u << 31);
    put64(BASE_IP(CB), 0x402001);
    put64(LIMIT_IP(CB), 0x402001);
    g_assert_true(load(CB));
    g_assert_false(val(1));
    put64(BASE_IP(CB), 0x402000);
    g_assert_true(load(CB));
    g_assert_true(val(1));
}

/*
 * A boundary that could not read BaseIP; then the program goes on elsewhere,
 * and LWPVAL reads it there.  Nothing waits for the boundary any more.
 */
static void test_ip_filter_val_elsewhere(void)
{
    uint8_t image[LWP_XSAVE_SIZE];

    reset(FLAG_VAL | FLAG_IRE);
    init_cb(CB, FLAG_VAL | FLAG_IRE, RING, MIN_RING);
    put32(FILTERS(CB), 1u << 31);
    put64(LIMIT_IP(CB), ~0ull);
    put32(interval(CB, LWP_EVENT_IRE), 3);
    put32(counter(CB, LWP_EVENT_IRE), 3);
    put32(counter(CB, LWP_EVENT_VAL), 5);
    g_assert_true(load(CB));
    lwp_xsave(&lwp, image);
    mem.absent[(CB - MEM_BASE) / PAGE] = true;
    lwp_xrstor(&lwp, &config, image, NULL);
    g_assert_true(FAULTS(boundary(0x1000)));
    g_assert_true(FAULTS(val(1)));
    g_assert_false(boundary(0x402000));
    mem.absent[(CB - MEM_BASE) / PAGE] = false;
    g_assert_false(boundary(0x402000));
    g_assert_false(val(1));
    g_assert_cmpint(lwp.counter[LWP_EVENT_VAL - 1], ==, 4);
    for (int i = 0; i < 4; i++) {
        retire(0x500000 + 5 * i, RETIRE_BRANCH_NONE, false, 0);
    }
    g_assert_true(boundary(0x500014));
    g_assert_cmpuint(get32(HEAD(CB)), ==, 32);
    assert_record(RING, LWP_EVENT_IRE, 0, 0, 0, 0x50000f, 0);
}

/* The bit of Filters that suppresses a class (Table 6-2). */
static const uint32_t class_filter[RETIRE_NR_BRANCHES] = {
    [RETIRE_BRANCH_JMP_ABS] = 1u << 27,    /* NAB */
    [RETIRE_BRANCH_CALL_ABS] = 1u << 27,
    [RETIRE_BRANCH_COND] = 1u << 28,       /* NCB */
    [RETIRE_BRANCH_JMP] = 1u << 29,        /* NRB */
    [RETIRE_BRANCH_CALL] = 1u << 29,
    [RETIRE_BRANCH_RET] = 1u << 29,
};

/* NAB, NCB and NRB; a waiting event does not take a branch that is filtered. */
static void test_branch_classes(void)
{
    for (unsigned suppressed = 0; suppressed < 8; suppressed++) {
        start(FLAG_BRE, 0);
        put32(FILTERS(CB), suppressed << 27);
        put32(FLAGS(CB), FLAG_BRE);
        put32(counter(CB, LWP_EVENT_BRE), 0);
        g_assert_true(load(CB));
        g_assert_cmphex(lwp_wants(&lwp), ==,
                        RETIRE_WANT_COUNT | RETIRE_WANT_CLASSES);
        for (int c = RETIRE_BRANCH_NONE; c < RETIRE_NR_BRANCHES; c++) {
            bool counts = c && !(suppressed << 27 & class_filter[c]);
            uint32_t head = lwp.head;

            retire(0x1000 + c, c, c & 1, 0x2000 + c);
            boundary(0x2000 + c);
            g_assert_cmpuint(lwp.head - head, ==, counts ? 32 : 0);
            if (counts) {
                assert_record(RING + head, 3, 0, c & 1 ? 0x8000 : 0, 0,
                              0x1000 + c, 0x2000 + c);
            }
        }
    }
}

/* PRV and PRD of Figure 2-4, where LwpBranchPrediction says so. */
static void test_prediction(void)
{
    static const struct {
        bool taken, predicted, mispredicted;
        uint16_t flags;     /* 0x2000 PRV, 0x4000 PRD, 0x8000 TKN */
    } t[] = {
        { false, true, false, 0x6000 },
        { false, true, true, 0x2000 },
        { true, true, false, 0xe000 },
        { true, true, true, 0xa000 },
        { true, false, true, 0x8000 },      /* nothing was expected */
    };

    for (int supported = 0; supported < 2; supported++) {
        reset(FLAG_BRE);
        config.caps = supported ? ALL_CAPS : ALL_CAPS & ~LWP_CAP_PREDICTION;
        init_cb(CB, FLAG_BRE, RING, MIN_RING);
        g_assert_true(load(CB));
        g_assert_cmpint(lwp.predicts, ==, supported);
        for (int i = 0; i < G_N_ELEMENTS(t); i++) {
            uint64_t ip = 0x1000 + i, target = 0x2000 + i;

            retire_predicted(ip, RETIRE_BRANCH_COND, t[i].taken, target,
                             t[i].predicted, t[i].mispredicted);
            g_assert_true(boundary(target));
            assert_record(RING + 32 * i, 3, 0,
                          t[i].flags & (supported ? 0xe000 : 0x8000), 0,
                          ip, target);
        }
    }

    /* The predictor learns while the event is enabled, whatever filters say. */
    for (int enabled = 0; enabled < 2; enabled++) {
        reset(FLAG_BRE | FLAG_IRE);
        config.caps = ALL_CAPS;
        init_cb(CB, enabled ? FLAG_BRE : FLAG_IRE, RING, MIN_RING);
        put32(FILTERS(CB), 23u << 27);      /* all classes; IP in [1, 2] */
        put64(BASE_IP(CB), 1);
        put64(LIMIT_IP(CB), 2);
        g_assert_true(load(CB));
        g_assert_cmpint(lwp.predicts, ==, enabled);
        g_assert_cmphex(lwp_wants(&lwp), ==,
                        RETIRE_WANT_COUNT | RETIRE_WANT_RANGE |
                        (enabled ? RETIRE_WANT_PREDICT | RETIRE_WANT_BRANCHES :
                         0));
    }
}

/* NMB and NPB: which of a few branches count, and what TBs are told. */
static void test_prediction_filters(void)
{
    const RetireWants each = RETIRE_WANT_PREDICT | RETIRE_WANT_BRANCHES;
    const struct {
        uint32_t events, caps, filters;
        RetireWants wants;
        bool right, wrong, unknown;     /* count */
    } t[] = {
        { FLAG_BRE, ALL_CAPS, 0, RETIRE_WANT_PREDICT | RETIRE_WANT_CLASSES,
          true, true, true },
        { FLAG_BRE, ALL_CAPS, 1u << 25, each, true, false, true },
        { FLAG_BRE, ALL_CAPS, 1u << 26, each, false, true, true },
        { FLAG_BRE, ALL_CAPS, 3u << 25, each, false, false, false },
        { FLAG_BRE, ALL_CAPS, 7u << 27,
          RETIRE_WANT_PREDICT | RETIRE_WANT_CLASSES,
          false, false, false },                    /* but it learns */
        { FLAG_BRE, 0, 7u << 27, RETIRE_WANT_CLASSES, false, false, false },
        { FLAG_BRE, 0, 3u << 25, RETIRE_WANT_CLASSES, true, true, true },
        { FLAG_IRE, ALL_CAPS, 3u << 25, 0, false, false, false },
        { FLAG_BRE, ALL_CAPS, 5u << 25, each, true, false, false }, /* NAB */
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        const int32_t *left = &lwp.counter[LWP_EVENT_BRE - 1];

        reset(FLAG_BRE | FLAG_IRE);
        config.caps = t[i].caps;
        init_cb(CB, t[i].events, RING, MIN_RING);
        put32(FILTERS(CB), t[i].filters);
        put32(counter(CB, LWP_EVENT_IRE), 1000);
        put32(counter(CB, LWP_EVENT_BRE), 3);
        g_assert_true(load(CB));
        g_assert_cmphex(lwp_wants(&lwp), ==, RETIRE_WANT_COUNT | t[i].wants);
        /* If each is observed, none has to be looked for. */
        g_assert_cmpuint(distance().branches, ==,
                         t[i].wants & RETIRE_WANT_CLASSES ? 3 : UINT32_MAX);
        if (t[i].events != FLAG_BRE) {
            continue;
        }
        retire(0x1000, RETIRE_BRANCH_COND, false, 0x1005);
        g_assert_cmpint(*left, ==, 3 - t[i].right);
        retire_predicted(0x1000, RETIRE_BRANCH_COND, true, 0x2000, true, true);
        g_assert_cmpint(*left, ==, 3 - t[i].right - t[i].wrong);
        retire_predicted(0x1000, RETIRE_BRANCH_JMP_ABS, true, 0x2000, false,
                         true);
        g_assert_cmpint(*left, ==,
                        3 - t[i].right - t[i].wrong - t[i].unknown);

        /* A waiting event does not take what does not count. */
        lwp.counter[LWP_EVENT_BRE - 1] = -1;
        retire(0x3000, RETIRE_BRANCH_JMP, true, 0x2000);
        g_assert_cmpuint(lwp.npending, ==, t[i].right);
    }
}

/* §2.4.1 and MinLatency: rounded, then it saturates, then it is compared. */
static void test_miss_latency(void)
{
    static const struct {
        uint32_t bits, round, latency, min;
        bool counts;
        uint32_t recorded;
    } t[] = {
        { 12, 4, 20, 0, true, 16 }, { 12, 4, 15, 0, true, 0 },
        { 12, 3, 20, 0, true, 16 }, { 12, 2, 20, 0, true, 20 },
        { 12, 0, 21, 0, true, 21 }, { 12, 1, 21, 0, true, 20 },
        { 10, 4, 1007, 0, true, 992 }, { 10, 4, 1008, 0, true, 1008 },
        { 10, 4, 5000, 0, true, 1008 }, { 10, 0, 5000, 0, true, 1023 },
        { 10, 1, 5000, 0, true, 1022 }, { 31, 4, 999999, 0, true, 999984 },
        { 12, 4, 15, 1, false }, { 12, 4, 16, 1, true, 16 },
        { 12, 0, 15, 1, false }, { 12, 0, 16, 1, true, 16 },
        { 12, 4, 207, 13, false }, { 12, 4, 208, 13, true, 208 },
        { 12, 4, 4079, 255, false }, { 12, 4, 4080, 255, true, 4080 },
        { 12, 2, 5000, 255, true, 4092 },
        /* MinLatency * 16 exceeds the maximum, which is used instead. */
        { 10, 4, 1007, 255, false }, { 10, 4, 1008, 255, true, 1008 },
        { 10, 0, 1022, 64, false }, { 10, 0, 1023, 64, true, 1023 },
        { 10, 4, 5000, 63, true, 1008 },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        for (int supported = 0; supported < 2; supported++) {
            bool counts = t[i].counts || !supported;
            uint32_t max = (1u << t[i].bits) - (1u << t[i].round);

            reset(FLAG_DME);
            config.caps = supported ? ALL_CAPS :
                          ALL_CAPS & ~LWP_CAP_CACHE_LATENCY;
            config.latency_bits = t[i].bits;
            config.latency_round = t[i].round;
            config.model.latency[RETIRE_SOURCE_REMOTE] = t[i].latency;
            init_cb(CB, FLAG_DME, RING, MIN_RING);
            put32(FILTERS(CB), t[i].min | 15u << 9);    /* no CLF */
            g_assert_true(load(CB));
            g_assert_true(miss_due(RETIRE_SOURCE_REMOTE, 0) == counts);
            miss(RETIRE_SOURCE_REMOTE);
            g_assert_cmpuint(lwp.npending, ==, counts);
            if (counts) {
                uint32_t rounded = t[i].latency >> t[i].round << t[i].round;

                g_assert_true(boundary(0x403000));
                assert_record(RING, 4, 0, 0x5000,
                              t[i].counts ? t[i].recorded : MIN(rounded, max),
                              0x403000, 0x7fff12345678);
            }
        }
    }
}

/* CLF and the bits behind it, together with MinLatency. */
static void test_miss_levels(void)
{
    static const RetireSource sources[] = {
        RETIRE_SOURCE_L2, RETIRE_SOURCE_L3, RETIRE_SOURCE_REMOTE,
        RETIRE_SOURCE_DRAM,
        RETIRE_SOURCE_OTHER,
    };
    static const uint32_t bit[] = { 0, 1u << 9, 1u << 10, 1u << 11, 1u << 12 };

    for (uint32_t f = 0; f < 1u << 6; f++) {
        uint32_t filters = (f & 31) << 8 | (f & 32 ? 7 : 0);    /* 112 clocks */

        for (int i = 0; i < G_N_ELEMENTS(sources); i++) {
            for (int supported = 0; supported < 2; supported++) {
                bool level = !(filters & 1u << 8) || (filters & bit[i]);
                bool slow = !(f & 32) || i >= 2;
                bool counts = (level || !supported) && slow;

                reset(FLAG_DME);
                config.caps = supported ? ALL_CAPS :
                              ALL_CAPS & ~LWP_CAP_CACHE_LEVELS;
                init_cb(CB, FLAG_DME, RING, MIN_RING);
                put32(FILTERS(CB), filters);
                put32(counter(CB, LWP_EVENT_DME), 1);
                g_assert_true(load(CB));
                g_assert_cmpint(lwp.all_misses, ==, !(filters & 0x1ff));
                g_assert_false(miss_due(sources[i], 0));
                miss(sources[i]);
                g_assert_cmpint(lwp.counter[LWP_EVENT_DME - 1], ==, !counts);
                g_assert_true(miss_due(sources[i], 0) == counts);
                g_assert_true(worst_miss_due() == counts);
            }
        }
    }
}

/* Every (interval + 1)th miss has a record like Figure 2-5. */
static void test_miss_records(void)
{
    const RetireSource s[] = {
        RETIRE_SOURCE_L2, RETIRE_SOURCE_L3, RETIRE_SOURCE_REMOTE,
        RETIRE_SOURCE_DRAM, RETIRE_SOURCE_OTHER
    };
    const uint32_t latency[] = { 16, 48, 112, 192, 400 };
    int head = 0;

    for (int dav = 0; dav < 2; dav++) {
        reset(FLAG_DME);
        config.caps = dav ? LWP_CAP_DATA_ADDRESS : 0;
        g_assert_true(lwp_write_cfg(&lwp, &config, FLAG_DME | 0x5aull << 32));
        init_cb(CB, FLAG_DME, RING, MIN_RING);
        put32(interval(CB, LWP_EVENT_DME), 2);
        put32(counter(CB, LWP_EVENT_DME), 1);
        g_assert_true(load(CB));
        for (int i = 0; i < 20; i++) {
            head = lwp.head;
            miss(s[i % 5]);
            retire(0x403000, RETIRE_BRANCH_NONE, false, 0x403005);
            g_assert_true(boundary(0x403005));
            g_assert_cmpuint(lwp.head - head, ==, i % 3 == 1 ? 32 : 0);
            if (i % 3 == 1) {
                assert_record(RING + head, 4, 0x5a, dav << 12 | s[i % 5] << 13,
                              latency[i % 5], 0x403000,
                              dav ? 0x7fff12345678 : 0);
            }
        }
    }

    /* The first of several; the others shorten the next period. */
    start(FLAG_DME, FLAG_DME);
    put32(interval(CB, LWP_EVENT_DME), 100);
    miss(RETIRE_SOURCE_DRAM);
    miss(RETIRE_SOURCE_L2);
    miss(RETIRE_SOURCE_L3);
    g_assert_cmpuint(lwp.npending, ==, 1);
    g_assert_true(boundary(0x403000));
    g_assert_cmpint(lwp.counter[LWP_EVENT_DME - 1], ==, 98);
    assert_record(RING, 4, 0, 0x6000, 192, 0x403000, 0);

    /* One that waits for a page takes no other miss (§1.1 step 2). */
    lwp.counter[LWP_EVENT_DME - 1] = 0;
    set_pending((LwpRecord) { { 9 } });
    mem.absent[(RING - MEM_BASE) / PAGE] = true;
    g_assert_true(FAULTS(boundary(0x1000)));
    miss(RETIRE_SOURCE_DRAM);
    g_assert_cmpuint(lwp.npending, ==, 1);
    g_assert_cmpint(lwp.counter[LWP_EVENT_DME - 1], ==, -1);
    mem.absent[(RING - MEM_BASE) / PAGE] = false;
    g_assert_true(boundary(0x1000));
    /* Nor does an instruction that retires. */
    retire(0x1000, RETIRE_BRANCH_NONE, false, 0x1005);
    g_assert_cmpuint(lwp.npending, ==, 0);
    miss(RETIRE_SOURCE_L3);
    g_assert_cmpuint(lwp.npending, ==, 1);

    /* Not enabled, or not eligible. */
    start(FLAG_DME | FLAG_IRE, FLAG_IRE);
    g_assert_false(lwp_wants_loads(&lwp));
    reset(FLAG_DME | FLAG_CNH);
    init_cb(CB, FLAG_DME | FLAG_CNH, RING, MIN_RING);
    put32(FILTERS(CB), 1u << 31);
    put64(BASE_IP(CB), 0x403001);
    put64(LIMIT_IP(CB), 0x404000);
    g_assert_true(load(CB));
    g_assert_true(lwp_wants_loads(&lwp));
    g_assert_false(lwp.all_misses);
    g_assert_false(miss_due(RETIRE_SOURCE_DRAM, 1000));
    miss(RETIRE_SOURCE_DRAM);
    g_assert_cmpuint(lwp.npending, ==, 0);
    g_assert_cmpint(lwp.counter[LWP_EVENT_DME - 1], ==, 0);
    g_assert_cmpint(lwp.counter[LWP_EVENT_CNH - 1], ==, 0);
}

/* The latency of every load passes, whether its miss counts or not. */
static void test_miss_clocks(void)
{
    const uint32_t events = FLAG_DME | FLAG_CNH | FLAG_RNH;
    const int32_t *left = lwp.counter;

    reset(events);
    config.caps = ALL_CAPS;
    config.model.refclk_ratio = 1333;
    init_cb(CB, events, RING, MIN_RING);
    put32(FILTERS(CB), 1u << 8);        /* CLF and no level */
    for (int n = LWP_EVENT_DME; n <= LWP_EVENT_RNH; n++) {
        put32(counter(CB, n), MAX_COUNT);
    }
    g_assert_true(load(CB));
    g_assert_false(lwp.all_misses);
    for (int i = 1; i <= 100; i++) {
        miss(RETIRE_SOURCE_DRAM);
        retire(0x403000, RETIRE_BRANCH_NONE, false, 0x403005);
        g_assert_cmpint(left[LWP_EVENT_DME - 1], ==, MAX_COUNT);
        g_assert_cmpint(left[LWP_EVENT_CNH - 1], ==, MAX_COUNT - 201 * i);
        g_assert_cmpint(left[LWP_EVENT_RNH - 1], ==,
                        MAX_COUNT - 201 * i * 1333 / 1000);
    }
}

/*
 * What makes an event fall due: a miss that counts when the counter is 0, and
 * clocks that take a counter below 0 with the instructions charged before.
 */
static void test_miss_due(void)
{
    static const struct {
        uint32_t event, ratio;
        int32_t left;
        uint32_t fraction, charged, due;      /* the least clocks that do */
    } t[] = {
        { LWP_EVENT_CNH, 1000, 0, 0, 0, 1 },
        { LWP_EVENT_CNH, 1000, 900, 0, 0, 901 },
        { LWP_EVENT_CNH, 1000, 900, 0, 10, 871 },   /* 3 clocks each */
        { LWP_EVENT_RNH, 1000, 900, 0, 10, 871 },
        { LWP_EVENT_RNH, 1000, 900, 999, 10, 871 },
        { LWP_EVENT_RNH, 500, 900, 0, 10, 1772 },   /* 901 * 2 - 30 */
        { LWP_EVENT_RNH, 500, 900, 500, 10, 1771 },
        { LWP_EVENT_RNH, 2000, 900, 0, 10, 421 },   /* 450.5 - 30 */
        { LWP_EVENT_RNH, 3, 1, 0, 0, 667 },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        uint32_t event = t[i].event;

        reset(ALL_EVENTS);
        config.model.insn_clocks = 3;
        config.model.refclk_ratio = t[i].ratio;
        init_cb(CB, FLAG_DME | LWP_FLAG(event), RING, MIN_RING);
        put32(counter(CB, LWP_EVENT_DME), 5);
        put32(counter(CB, event), t[i].left);
        g_assert_true(load(CB));
        lwp.ref_fraction = t[i].fraction;
        sync_account();
        account_set_budget(t[i].charged);
        g_assert_true(account_begin(&(AccountTB) { .n = t[i].charged }));
        g_assert_false(miss_due(RETIRE_SOURCE_L2, t[i].due - 1));
        g_assert_true(miss_due(RETIRE_SOURCE_L2, t[i].due));
        config.model.latency_worst = t[i].due - 1;
        g_assert_false(worst_miss_due());
        config.model.latency_worst = t[i].due;
        g_assert_true(worst_miss_due());

        /* Clocks are off the counter at once, instructions when they are. */
        if (t[i].due > 1) {
            config.model.latency[RETIRE_SOURCE_L2] = t[i].due - 1;
            miss(RETIRE_SOURCE_L2);
            report_account();
            g_assert_cmpint(lwp.counter[event - 1], ==,
                            t[i].left -
                            (int)(((t[i].due - 1 + 3 * t[i].charged) *
                             (event == LWP_EVENT_RNH ? t[i].ratio : 1000) +
                             (event == LWP_EVENT_RNH ? t[i].fraction : 0)) /
                             1000));
            g_assert_cmpuint(lwp.npending, ==, 0);
            retire(0x1000, RETIRE_BRANCH_NONE, false, 0x1005);
        }
    }

    /* Without clocks, what is charged and latency do not matter. */
    start(FLAG_DME | FLAG_IRE, FLAG_DME | FLAG_IRE);
    lwp.counter[LWP_EVENT_DME - 1] = 1;
    g_assert_false(miss_due(RETIRE_SOURCE_DRAM, 1000000));
    g_assert_false(worst_miss_due());
    lwp.counter[LWP_EVENT_DME - 1] = 0;
    g_assert_true(miss_due(RETIRE_SOURCE_DRAM, 0));
    g_assert_true(worst_miss_due());
}

/* A miss that brings an event near shortens the budget. */
static void test_miss_budget(void)
{
    reset(FLAG_DME | FLAG_CNH);
    init_cb(CB, FLAG_DME | FLAG_CNH, RING, MIN_RING);
    put32(counter(CB, LWP_EVENT_DME), 1000);
    put32(counter(CB, LWP_EVENT_CNH), 8000);
    put32(interval(CB, LWP_EVENT_CNH), 8000);
    g_assert_true(load(CB));
    sync_account();
    g_assert_true(begin_tb(0x1000, 10));
    config.model.latency[RETIRE_SOURCE_DRAM] = 7000;
    g_assert_false(miss_due(RETIRE_SOURCE_DRAM, 7000));
    miss(RETIRE_SOURCE_DRAM);
    for (int ran = 10; ran < 1000; ran += 10) {
        g_assert_true(begin_tb(0x1000, 10));
    }
    /* 1000 have retired since, and the next one is it. */
    g_assert_false(begin_tb(0x1000, 10));
    g_assert_cmpint(step, ==, 1);
    g_assert_cmpuint(lwp.npending, ==, 0);
    retire(0x1000, RETIRE_BRANCH_NONE, false, 0x1001);
    g_assert_cmpuint(lwp.npending, ==, 1);
    g_assert_cmphex(lwp.pending[0].q[0], ==, LWP_EVENT_CNH);
    g_assert_cmphex(lwp.pending[0].q[1], ==, 0x1000);
}

/* How many misses that L2 answers may be just counted, and what they are. */
static void test_miss_distance(void)
{
    static const struct {
        uint32_t flags, filters;
        int32_t left;
        uint32_t misses;
        bool clocks;
    } t[] = {
        { FLAG_IRE, 0, 5, INT32_MAX, false },
        { FLAG_CNH, 0, 5, INT32_MAX, false },
        { FLAG_DME, 0, 5, 5, false },
        { FLAG_DME, 0, 0, 0, false },
        { FLAG_DME, 0, -5, 0, false },
        { FLAG_DME | FLAG_IRE, 0, 5, 5, false },
        { FLAG_DME | FLAG_CNH, 0, 5, 5, true },
        { FLAG_DME | FLAG_RNH, 0, 5, 5, true },
        { FLAG_DME, 1, 5, 0, false },               /* MinLatency */
        { FLAG_DME, 1u << 8, 5, 0, false },         /* CLF */
        { FLAG_DME, 1u << 9, 5, 5, false },         /* NBC means nothing */
        { FLAG_DME | FLAG_CNH, 1u << 31, 5, 0, true },
    };

    for (int i = 0; i < G_N_ELEMENTS(t); i++) {
        RetireDistance d, near = { 1, 2, 3, true, true };

        reset(ALL_EVENTS);
        config.caps = ALL_CAPS;
        init_cb(CB, t[i].flags, RING, MIN_RING);
        put32(FILTERS(CB), t[i].filters);
        g_assert_true(load(CB));
        for (int n = 1; n <= LWP_NR_EVENTS; n++) {
            lwp.counter[n - 1] = 1000;
        }
        lwp.counter[LWP_EVENT_DME - 1] = t[i].left;
        d = distance();
        g_assert_cmpuint(d.misses, ==, t[i].misses);
        g_assert_cmpint(d.clocks, ==, t[i].clocks);
        g_assert_false(d.pending);
        /* Another observer's may be less. */
        lwp_distance(&lwp, &near);
        g_assert_cmpuint(near.insns, ==, 1);
        g_assert_cmpuint(near.branches, ==, 2);
        g_assert_cmpuint(near.misses, ==, MIN(t[i].misses, 3));
        g_assert_true(near.clocks);
        g_assert_true(near.pending);

        /* Their latency is that of L2; nobody else's misses are LWP's. */
        lwp_count(&lwp, &config, &(RetireTotals) { .misses = 3 });
        if (t[i].flags & FLAG_DME) {
            g_assert_cmpint(lwp.counter[LWP_EVENT_DME - 1], ==, t[i].left - 3);
        } else {
            g_assert_cmpint(lwp.counter[LWP_EVENT_DME - 1], ==, t[i].left);
        }
        g_assert_cmpint(lwp.counter[LWP_EVENT_CNH - 1], ==,
                        1000 - (t[i].clocks && (t[i].flags & FLAG_CNH) ?
                                60 : 0));
        g_assert_cmpint(lwp.counter[LWP_EVENT_RNH - 1], ==,
                        1000 - (t[i].flags & FLAG_RNH ? 60 : 0));
        g_assert_cmpuint(lwp.npending, ==, 0);
    }
}

/* Branches that have been counted by class, whoever has wanted that. */
static void test_count_branches(void)
{
    static const RetireClass last[] = {
        RETIRE_COND_TAKEN, RETIRE_COND_NOT_TAKEN, RETIRE_JMP, RETIRE_JMP_IND,
        RETIRE_CALL, RETIRE_CALL_IND, RETIRE_RET,
    };
    static const uint8_t filter[] = { 28, 28, 29, 27, 29, 27, 29 };

    for (unsigned suppressed = 0; suppressed < 8; suppressed++) {
        for (int i = 0; i < G_N_ELEMENTS(last); i++) {
            uint64_t branches[RETIRE_NR_CLASSES] = { };
            bool counts = !(suppressed << 27 >> filter[i] & 1);

            start(FLAG_BRE | FLAG_IRE, 0);
            put32(FILTERS(CB), suppressed << 27);
            put32(FLAGS(CB), FLAG_BRE | FLAG_IRE);
            put32(counter(CB, LWP_EVENT_BRE), 100);
            put32(counter(CB, LWP_EVENT_IRE), 100);
            g_assert_true(load(CB));
            branches[last[i]] = 7;
            /* What is not near, and what has been predicted wrongly */
            branches[RETIRE_FAR] = 1;
            branches[RETIRE_COND_TAKEN + RETIRE_MISPREDICTED] = 3;
            branches[RETIRE_RET + RETIRE_MISPREDICTED] = 3;
            lwp_count(&lwp, &config, &(RetireTotals) {
                .insns = 30, .branches = branches
            });
            g_assert_cmpint(lwp.counter[LWP_EVENT_BRE - 1], ==,
                            counts ? 93 : 100);
            g_assert_cmpint(lwp.counter[LWP_EVENT_IRE - 1], ==, 70);
            g_assert_cmpuint(distance().branches, ==, counts ? 93 : 100);
            g_assert_cmpuint(distance().insns, ==, 70);
        }
    }
}

/*
 * TBs, run as translated code is run, against a plain model of §1.1 that
 * looks at each instruction: the same records, the same counters.  TBs are left
 * early, for one instruction to be executed alone, or for the kernel.
 */
typedef struct Insn {
    uint64_t ip, target;
    uint8_t len;
    bool taken, predicted, mispredicted;
    RetireBranch branch;
    RetireMiss miss[2];
    int nmisses, seen;          /* seen by the engine */
} Insn;

typedef struct Model {
    int64_t counter[LWP_NR_EVENTS], interval[LWP_NR_EVENTS];
    uint64_t fraction;
    uint32_t flags, filters;
    uint64_t base, limit;
    GArray *records;            /* of LwpRecord */
} Model;

/* Whether a miss counts, and what is recorded of its latency. */
static bool model_miss_counts(const Model *m, RetireSource source,
                              uint64_t *latency)
{
    static const int bit[] = { [1] = 9, [2] = 10, [3] = 11, [7] = 12 };
    uint64_t max = (1u << config.latency_bits) - (1u << config.latency_round);

    *latency = config.model.latency[source];
    *latency = MIN(*latency - *latency % (1u << config.latency_round), max);
    if ((config.caps & LWP_CAP_CACHE_LATENCY) &&
        *latency < MIN((m->filters & 0xff) * 16, max)) {
        return false;
    }
    return !(config.caps & LWP_CAP_CACHE_LEVELS) || !(m->filters >> 8 & 1) ||
           (bit[source] && (m->filters >> bit[source] & 1));
}

/* Returns how long the misses take. */
static uint64_t model_misses(Model *m, const Insn *insn)
{
    int64_t *c = &m->counter[LWP_EVENT_DME - 1];
    bool gathered = false;
    uint64_t clocks = 0;

    for (int i = 0; i < insn->nmisses; i++) {
        const RetireMiss *miss = &insn->miss[i];
        bool dav = config.caps & LWP_CAP_DATA_ADDRESS;
        uint64_t latency;

        clocks += miss->clocks;
        if (model_miss_counts(m, miss->source, &latency) && --*c < 0 &&
            !gathered) {
            LwpRecord r = { { LWP_EVENT_DME | (uint64_t)miss->source << 29 |
                              (uint64_t)dav << 28 | latency << 32,
                              insn->ip, dav ? miss->addr : 0 } };

            g_array_append_val(m->records, r);
            gathered = true;
        }
    }
    *c += gathered ? m->interval[LWP_EVENT_DME - 1] + 1 : 0;
    return clocks;
}

static void model_retire(Model *m, const Insn *insn)
{
    uint64_t clocks = config.model.insn_clocks;
    bool inside = insn->ip >= m->base && insn->ip <= m->limit;
    bool predicts = config.caps & LWP_CAP_PREDICTION;
    bool known = predicts && insn->predicted;

    if ((m->filters >> 31) && inside == !!(m->filters & 1u << 30)) {
        return;
    }
    if (m->flags & FLAG_DME) {
        clocks += model_misses(m, insn);
    }
    for (int n = LWP_EVENT_IRE; n <= LWP_NR_EVENTS; n++) {
        int64_t *c = &m->counter[n - 1];
        LwpRecord r = { { n, insn->ip } };

        if (!(m->flags & LWP_FLAG(n)) || n == LWP_EVENT_DME) {
            continue;
        }
        if (n == LWP_EVENT_BRE) {
            if (!insn->branch || (m->filters & class_filter[insn->branch]) ||
                (known && (m->filters >> (insn->mispredicted ? 25 : 26) & 1)) ||
                (predicts && (m->filters >> 25 & 3) == 3)) {
                continue;
            }
            r.q[0] |= (uint64_t)insn->taken << 31 |
                      (uint64_t)(known && !insn->mispredicted) << 30 |
                      (uint64_t)known << 29;
            r.q[2] = insn->target;
        }
        if (n == LWP_EVENT_RNH) {
            m->fraction += clocks * config.model.refclk_ratio;
            *c -= m->fraction / RETIRE_REFCLK_UNIT;
            m->fraction %= RETIRE_REFCLK_UNIT;
        } else {
            *c -= n == LWP_EVENT_CNH ? clocks : 1;
        }
        *c = MAX(*c, -MAX_COUNT - 1);
        if (*c < 0) {
            *c += m->interval[n - 1] + 1;
            g_array_append_val(m->records, r);
        }
    }
}

/* Takes the records out of the ring. */
static void drain(GArray *records)
{
    uint32_t tail = get32(TAIL(CB)), head = get32(HEAD(CB));

    for (; tail != head; tail = (tail + 32) % lwp.size) {
        LwpRecord r;

        for (int i = 0; i < 4; i++) {
            r.q[i] = get64(RING + tail + 8 * i);
        }
        g_array_append_val(records, r);
    }
    put32(TAIL(CB), tail);
}

/* A #PF at a boundary comes back to the same place, sometimes by XRSTOR. */
static void cross_boundary(uint64_t ip)
{
    if (g_test_rand_int_range(0, 40) == 0) {
        mem.accesses = 0;
        mem.fault_at = g_test_rand_int_range(0, 12);
        if (!FAULTS(boundary(ip))) {
            mem.fault_at = -1;
            return;
        }
        mem.fault_at = -1;
        if (lwp.npending == 1 && g_test_rand_bit()) {
            uint8_t image[LWP_XSAVE_SIZE];
            uint32_t fraction = lwp.ref_fraction;

            lwp_xsave(&lwp, image);
            lwp_disable(&lwp);
            lwp_xrstor(&lwp, &config, image, NULL);
            lwp.ref_fraction = fraction;
        }
    }
    g_assert_true(boundary(ip));
}

/* Misses that were just counted */
static int misses_counted;

/* The misses of an instruction; false if it is to be run on its own. */
static bool run_misses(Insn *insn, bool late)
{
    for (; (wants & RETIRE_WANT_SOURCES) && insn->seen < insn->nmisses;
         insn->seen++) {
        const RetireMiss *miss = &insn->miss[insn->seen];
        bool due;

        if (account_miss(&config.model, miss->source, miss->clocks)) {
            misses_counted++;
            continue;
        }
        report_misses();
        due = lwp_miss_due(&lwp, &config, account_charged(), miss);
        /* The cheap question has to be answered "yes" first. */
        g_assert_true(worst_miss_due() ||
                      !lwp_eligible(&lwp, miss->ip) || !due);
        if (!late && due) {
            return false;
        }
        lwp_miss(&lwp, &config, miss);
        arm_account();
    }
    return true;
}

/* helper_retire_observe() */
static void observe(Insn *insn)
{
    account.clock++;
    report_account();
    account_allow_one();
    lwp_retire(&lwp, &config, &(RetireStory) {
        .ip = insn->ip, .next = insn->ip + insn->len, .target = insn->target,
        .branch = insn->branch, .taken = insn->taken,
        .predicted = insn->predicted, .mispredicted = insn->mispredicted,
    });
    if (lwp.npending && !lwp.deferred) {
        cross_boundary(insn->target);
    }
    sync_account();
}

/* icount's budget is spent: the CPU leaves cpu_exec(), and enters it again. */
static void refill(void)
{
    report_account();
    account_restart(g_test_rand_int_range(1, g_test_rand_bit() ? 200 : 200000));
    sync_account();
}

/* Whether all of a TB is in the range, nothing, or a part of it. */
static bool is_divided(const Insn *insn, AccountTB *tb)
{
    tb->outside = !retire_eligible(&account, insn->ip);
    for (int i = 1; i < tb->n; i++) {
        if (tb->outside == retire_eligible(&account, insn[i].ip)) {
            return true;
        }
    }
    return false;
}

/*
 * The TB at @insn, of @n instructions if step does not say how many, begins.
 * Or it is not this one that runs next: then @tb has none.
 */
static void begin(const Insn *insn, int n, AccountTB *tb)
{
    bool divided;

    tb->uncharged = forced;
    tb->n = forced ? 1 : step ? MIN(step, n) : n;
    tb->last = forced || step || (insn[n - 1].branch &&
                                  (wants & RETIRE_WANT_BRANCHES));
    /* Its prologue has nothing to take back of what is only observed. */
    divided = (tb->n > 1 || !tb->last) && is_divided(insn, tb);
    tb->outside &= tb->n > 1 || !tb->last;
    forced = false;
    step = 0;
    if (!account_begin(tb)) {
        if (icount && !account_left()) {
            refill();
        }
        /* As much as icount has, unless the core asks for less. */
        step = account_refill(tb->n);
        expire_tb(insn->ip, tb->n);
        tb->n = 0;
        if (g_test_rand_int_range(0, 10) == 0) {
            /* An interrupt comes first. */
            sync_account();
        }
    } else if (divided) {
        /* helper_retire_divided() */
        account_leave(tb, 0, insn->ip);
        forced = true;
        tb->n = 0;
    } else if (tb->uncharged) {
        /* helper_retire_begin() */
        begin_insn(insn->ip);
    }
}

/* Runs a TB, or a part of it; returns how many instructions have retired. */
static int run_tb(Insn *insn, int n)
{
    AccountTB tb;
    int faults_at, i = 0;

    if (!wants) {
        /* icount counts them all the same. */
        tb = (AccountTB) { .n = n };
        if (icount && !account_begin(&tb)) {
            refill();
            account_refill(n);
            n = account_begin(&tb) ? n : 0;
        }
        return n;
    }
    begin(insn, n, &tb);
    if (!tb.n) {
        return 0;
    }
    faults_at = g_test_rand_int_range(0, 10) ? tb.n :
                g_test_rand_int_range(0, tb.n);
    for (; i < tb.n; i++) {
        if (i == faults_at) {
            account_leave(&tb, i, insn[i].ip);
            sync_account();
            return i;
        }
        if (!run_misses(&insn[i], tb.last && i == tb.n - 1)) {
            /* retire_restart() */
            account_leave(&tb, i, insn[i].ip);
            forced = true;
            return i;
        }
    }
    if (tb.last) {
        observe(&insn[i - 1]);
    } else if (insn[i - 1].branch && (wants & RETIRE_WANT_CLASSES)) {
        account_branch(insn[i - 1].branch, insn[i - 1].taken,
                       insn[i - 1].mispredicted);
    }
    return i;
}

static int mostly_l2;       /* of 10 misses */

static void add_misses(Insn *insn)
{
    static const RetireSource sources[] = {
        RETIRE_SOURCE_L2, RETIRE_SOURCE_L3, RETIRE_SOURCE_REMOTE,
        RETIRE_SOURCE_DRAM,
        RETIRE_SOURCE_OTHER,
    };

    while (insn->nmisses < 2 && g_test_rand_int_range(0, 5) == 0) {
        bool l2 = g_test_rand_int_range(0, 10) < mostly_l2;
        RetireSource s = sources[l2 ? 0 : g_test_rand_int_range(0, 5)];
        RetireSource other = sources[g_test_rand_int_range(0, 5)];

        /* Some are in two lines. */
        insn->miss[insn->nmisses++] = (RetireMiss) {
            .ip = insn->ip, .addr = g_test_rand_int(), .source = s,
            .clocks = config.model.latency[s] +
                      (!l2 && g_test_rand_bit() ?
                       config.model.latency[other] : 0),
        };
    }
}

/* Runs some instructions from @ip on; returns where the program goes on. */
static uint64_t run_somewhere(Model *m, GArray *got, uint64_t ip, int depth)
{
    Insn insn[RETIRE_TB_MAX];
    int n = g_test_rand_int_range(1, g_test_rand_int_range(0, 9) ? 21 :
                                     G_N_ELEMENTS(insn) + 1);

    for (int i = 0; i < n; i++) {
        insn[i] = (Insn) { .ip = ip, .len = g_test_rand_int_range(1, 16) };
        ip += insn[i].len;
        insn[i].target = ip;
        add_misses(&insn[i]);
    }
    if (g_test_rand_bit()) {
        Insn *last = &insn[n - 1];

        last->branch = g_test_rand_int_range(1, RETIRE_NR_BRANCHES);
        last->taken = g_test_rand_bit();
        last->predicted = g_test_rand_int_range(0, 4);
        last->mispredicted = !last->predicted || g_test_rand_bit();
        if (last->taken) {
            ip = 0x10000 + g_test_rand_int_range(0, 600);
            last->target = ip;
        }
    }
    for (int done = 0; done < n;) {
        RetireWants before = wants;
        uint64_t clock = account_clock();
        int ran = run_tb(insn + done, n - done);
        uint64_t ticks = account_clock() - clock;

        /* Out of the range, only what is observed counts. */
        g_assert_cmpuint(ticks, <=, ran);
        g_assert_true(ticks == ran || !before || (before & RETIRE_WANT_RANGE));
        for (int i = 0; i < ran; i++) {
            model_retire(m, &insn[done++]);
        }
        /* The model wants all misses of an instruction at once. */
        if (ran && done < n && !insn[done].seen && depth < 2 && !forced &&
            g_test_rand_bit()) {
            /* A signal handler */
            sync_account();
            run_somewhere(m, got, 0x10000 + g_test_rand_int_range(0, 600),
                          depth + 1);
        }
        drain(got);
    }
    return ip;
}

static void compare_with_model(uint32_t events, uint32_t filters,
                               int max_interval)
{
    Model m = { .flags = events, .filters = filters,
                .records = g_array_new(false, false, sizeof(LwpRecord)) };
    GArray *got = g_array_new(false, false, sizeof(LwpRecord));
    uint64_t ip = 0x10000;

    reset(ALL_EVENTS);
    account_reset(g_test_rand_bit(), 1000);
    config.model.insn_clocks = g_test_rand_int_range(1, 4);
    config.model.refclk_ratio = g_test_rand_int_range(1, 2500);
    config.caps = LWP_CAP_IP_FILTER | (g_test_rand_int() & ALL_CAPS);
    config.latency_bits = g_test_rand_int_range(10, 14);
    config.latency_round = g_test_rand_int_range(0, 5);
    config.model.latency_worst = 0;
    for (int i = 0; i < RETIRE_NR_SOURCES; i++) {
        config.model.latency[i] = g_test_rand_int_range(1, 4 << (i + 1));
        config.model.latency_worst = MAX(config.model.latency_worst,
                                   2 * config.model.latency[i]);
    }
    init_cb(CB, events, RING, 4 * PAGE);
    put32(FILTERS(CB), filters);
    m.base = ip + g_test_rand_int_range(0, 300);
    m.limit = m.base + g_test_rand_int_range(0, 300);
    put64(BASE_IP(CB), m.base);
    put64(LIMIT_IP(CB), m.limit);
    for (int n = 1; n <= LWP_NR_EVENTS; n++) {
        m.interval[n - 1] = g_test_rand_int_range(0, max_interval);
        m.counter[n - 1] = g_test_rand_int_range(0, max_interval);
        put32(interval(CB, n), m.interval[n - 1]);
        put32(counter(CB, n), m.counter[n - 1]);
    }
    g_assert_true(load(CB));

    sync_account();
    for (int b = 0; b < 150; b++) {
        ip = run_somewhere(&m, got, ip, 0);
    }
    report_account();
    g_assert_true(boundary(ip));
    g_assert_cmphex(slwpcb(), ==, CB);
    drain(got);
    for (int i = 0; i < MIN(got->len, m.records->len); i++) {
        g_assert_cmpmem(&g_array_index(got, LwpRecord, i), sizeof(LwpRecord),
                        &g_array_index(m.records, LwpRecord, i),
                        sizeof(LwpRecord));
    }
    g_assert_cmpuint(got->len, ==, m.records->len);
    for (int n = LWP_EVENT_IRE; n <= LWP_NR_EVENTS; n++) {
        if (events & LWP_FLAG(n)) {
            g_assert_cmphex(get32(counter(CB, n)), ==,
                            m.counter[n - 1] & 0x3ffffff);
        }
    }
    g_array_free(m.records, true);
    g_array_free(got, true);
}

static void test_model(void)
{
    static const uint32_t events[] = {
        FLAG_IRE, FLAG_BRE, FLAG_IRE | FLAG_BRE, FLAG_CNH, FLAG_RNH,
        FLAG_IRE | FLAG_BRE | FLAG_CNH | FLAG_RNH,
        FLAG_DME, FLAG_DME | FLAG_IRE, FLAG_DME | FLAG_CNH,
        FLAG_DME | FLAG_RNH, FLAG_DME | FLAG_BRE,
        FLAG_IRE | FLAG_BRE | FLAG_DME | FLAG_CNH | FLAG_RNH,
    };
    static const int max_interval[] = { 1, 8, 60, 300, 4000, 60000 };

    for (int round = 0; round < 8; round++) {
        direct = round & 4;
        for (int e = 0; e < G_N_ELEMENTS(events); e++) {
            for (int i = 0; i < G_N_ELEMENTS(max_interval); i++) {
                uint32_t ipf = round % 4 == 1 ? 1u << 31 :
                               round % 4 == 2 ? 3u << 30 : 0;

                uint32_t prediction = g_test_rand_int_range(0, 4) << 25;
                uint32_t levels = g_test_rand_int_range(0, 32) << 8;
                uint32_t latency = g_test_rand_bit() ? 0 :
                                   g_test_rand_int_range(0, 64);

                compare_with_model(events[e],
                                   g_test_rand_int_range(0, 8) << 27 | ipf |
                                   prediction | levels | latency,
                                   max_interval[i]);
            }
        }
    }
    direct = false;
}

/*
 * Every event, and misses of which most are just counted: what they take off
 * the budget keeps what they bring near from coming too late.
 */
static void test_miss_model(void)
{
    static const int max_interval[] = { 60, 300, 1000, 4000, 16000, 60000 };

    mostly_l2 = 9;
    misses_counted = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < G_N_ELEMENTS(max_interval); i++) {
            compare_with_model(FLAG_IRE | FLAG_DME | FLAG_CNH | FLAG_RNH |
                               (round & 1 ? FLAG_BRE : 0),
                               (round & 2 ? 1u << 28 : 0), max_interval[i]);
        }
    }
    mostly_l2 = 0;
    g_test_message("%d misses were just counted", misses_counted);
    g_assert_cmpint(misses_counted, >, 10000);
}

/* Whoever takes the budget away has the next TB ask; nothing is lost. */
static void test_no_budget(void)
{
    for (int with_icount = 0; with_icount < 2; with_icount++) {
        start(FLAG_IRE, FLAG_IRE);
        account_reset(with_icount, 10000);
        lwp.counter[LWP_EVENT_IRE - 1] = 1000;
        g_assert_true(lwp_load_state(&lwp, &config, true));
        sync_account();
        for (int i = 1; i <= 10; i++) {
            AccountTB tb = { .n = 5 };

            g_assert_true(account_begin(&tb));
            g_assert_cmpuint(account_charged(), ==, 5);
            account_set_budget(0);
            g_assert_cmpuint(account_charged(), ==, 5);
            g_assert_false(account_begin(&tb));
            expire_tb(0x1000, 5);
            g_assert_cmpint(step, ==, 0);
            g_assert_cmpint(lwp.counter[LWP_EVENT_IRE - 1], ==, 1000 - 5 * i);
            g_assert_cmpint(budget, ==, 1000 - 5 * i);
            g_assert_cmpuint(account_clock(), ==, 5 * i);
        }
    }
}

/* XRSTOR may bring a counter far below 0: what follows is all recorded. */
static void test_overrun_tbs(void)
{
    static const uint64_t want[] = { 0x1000, 0x1001, 0x1002, 0x1003, 0x1068 };
    uint8_t image[LWP_XSAVE_SIZE];
    Insn insn[200] = { };

    start(FLAG_IRE, FLAG_IRE);
    put32(interval(CB, LWP_EVENT_IRE), 100);
    lwp.counter[LWP_EVENT_IRE - 1] = -300;
    lwp_xsave(&lwp, image);
    lwp_xrstor(&lwp, &config, image, NULL);
    sync_account();
    for (int i = 0; i < G_N_ELEMENTS(insn); i++) {
        insn[i] = (Insn) { .ip = 0x1000 + i, .target = 0x1001 + i, .len = 1 };
    }
    for (int i = 0; i < G_N_ELEMENTS(insn);) {
        i += run_tb(&insn[i], MIN(10, G_N_ELEMENTS(insn) - i));
    }
    report_account();
    slwpcb();
    g_assert_cmpuint(lwp.head, ==, sizeof(want) / 8 * LWP_RECORD_SIZE);
    for (int i = 0; i < G_N_ELEMENTS(want); i++) {
        assert_record(RING + 32 * i, 2, 0, 0, 0, want[i], 0);
    }
}

/* A stream may bring as many records as there is room for, of any kind. */
static void test_pending_full(void)
{
    start(ALL_EVENTS, FLAG_IRE);
    for (int i = 0; i < LWP_NR_EVENTS; i++) {
        lwp.pending[i] = (LwpRecord) { { 255, i } };
    }
    lwp.npending = LWP_NR_EVENTS;
    g_assert_true(lwp_load_state(&lwp, &config, true));
    retire(0x1000, RETIRE_BRANCH_NONE, false, 0);
    g_assert_cmpuint(lwp.npending, ==, LWP_NR_EVENTS);
    g_assert_true(boundary(0x1001));
    retire(0x1001, RETIRE_BRANCH_NONE, false, 0);
    g_assert_true(boundary(0x1002));
    assert_record(RING + 32 * LWP_NR_EVENTS, 2, 0, 0, 0, 0x1001, 0);
}

/* A store is made right behind the instruction (§8.6), and may fault there. */
static void test_precise(void)
{
    reset(FLAG_IRE);
    init_cb(CB, FLAG_IRE, RING, 4 * PAGE);
    put32(HEAD(CB), PAGE - 64);
    put32(interval(CB, LWP_EVENT_IRE), 100);
    put32(counter(CB, LWP_EVENT_IRE), 3);
    g_assert_true(load(CB));
    mem.absent[(RING - MEM_BASE) / PAGE] = true;
    sync_account();

    /* The record's page is missing, and a handler of that is left alone. */
    g_assert_false(begin_tb(0x1000, 10));
    g_assert_cmpint(step, ==, 4);
    begin_step();
    g_assert_cmpuint(account_charged(), ==, 3);
    report_account();
    retire(0x1003, RETIRE_BRANCH_NONE, false, 0);
    g_assert_true(FAULTS(boundary(0x1004)));
    g_assert_cmphex(mem.fault_addr, ==, RING + PAGE - 64);
    sync_account();
    g_assert_true(distance().pending);
    g_assert_false(begin_tb(0x2000, 10));
    g_assert_cmpint(step, ==, 1);
    begin_step();
    retire(0x2000, RETIRE_BRANCH_NONE, false, 0);
    g_assert_false(boundary(0x2001));
    sync_account();
    mem.absent[(RING - MEM_BASE) / PAGE] = false;

    /* It is stored in front of what then runs as it does without LWP. */
    g_assert_true(begin_tb(0x1004, 10));
    assert_record(RING + PAGE - 64, 2, 0, 0, 0, 0x1003, 0);
    g_assert_cmpint(lwp.counter[LWP_EVENT_IRE - 1], ==, 99);
    for (int i = 0; i < 8; i++) {
        g_assert_true(begin_tb(0x1000, 10));
    }
    g_assert_true(begin_tb(0x1000, 9));
    g_assert_cmpuint(get32(HEAD(CB)), ==, PAGE - 32);

    /* The last one has the next event. */
    g_assert_false(begin_tb(0x1000, 10));
    g_assert_cmpint(step, ==, 1);
    begin_step();
    report_account();
    retire(0x1000, RETIRE_BRANCH_NONE, false, 0);
    g_assert_true(boundary(0x1001));
    assert_record(RING + PAGE - 32, 2, 0, 0, 0, 0x1000, 0);
}

/* A branch is the last one of its TB, and an instruction, too. */
static void test_branch_distance(void)
{
    start(FLAG_BRE, FLAG_BRE);
    lwp.counter[LWP_EVENT_BRE - 1] = 2;
    sync_account();
    g_assert_cmpuint(distance().branches, ==, 2);
    g_assert_cmpuint(distance().insns, ==, RETIRE_BUDGET_MAX);
    g_assert_cmpint(budget, ==, 2);
    /* More instructions than branches are left */
    g_assert_true(begin_tb(0x1000, 10));
    for (int i = 0; i < 2; i++) {
        g_assert_true(begin_tb(0x1000, 10));
        account_branch(RETIRE_BRANCH_COND, i, false);
        g_assert_cmpint(budget, ==, 0);
    }
    /* They are counted, so that none is left. */
    g_assert_false(begin_tb(0x1000, 10));
    g_assert_cmpint(step, ==, 10);
    g_assert_cmpint(lwp.counter[LWP_EVENT_BRE - 1], ==, 0);
    begin_step();
    retire(0x1009, RETIRE_BRANCH_JMP, true, 0x2000);
    g_assert_cmpuint(lwp.npending, ==, 1);
    g_assert_cmphex(lwp.pending[0].q[1], ==, 0x1009);
}

/*
 * A TB without a branch may be longer than there are branches left.  If it is
 * left early, others have no budget, each of which may end in one.
 */
static void test_left_before_branch(void)
{
    const AccountTB tb = { .n = 10 };

    start(FLAG_BRE, FLAG_BRE);
    lwp.counter[LWP_EVENT_BRE - 1] = 1;
    sync_account();
    g_assert_true(begin_tb(0x1000, 10));
    account_leave(&tb, 2, 0x1002);
    g_assert_cmpuint(account_charged(), ==, 2);
    g_assert_true(begin_tb(0x1002, 3));
    account_branch(RETIRE_BRANCH_JMP, true, false);
    g_assert_false(begin_tb(0x1005, 3));
    g_assert_cmpint(step, ==, 3);
    g_assert_cmpuint(account_clock(), ==, 5);
}

/* A TB that is left early gives back what has not retired. */
static void test_left_early(void)
{
    const AccountTB tb = { .n = 10 };

    for (int with_icount = 0; with_icount < 2; with_icount++) {
        start(FLAG_IRE, FLAG_IRE);
        account_reset(with_icount, 10000);
        lwp.counter[LWP_EVENT_IRE - 1] = 100;
        sync_account();
        g_assert_true(begin_tb(0x1000, 10));
        account_leave(&tb, 2, 0x1002);
        report_account();
        g_assert_cmpint(lwp.counter[LWP_EVENT_IRE - 1], ==, 98);
        /* Also when a miss has taken its part of the budget */
        sync_account();
        account.misses = account.misses_armed = 10;
        account.miss_charge = 20;
        g_assert_true(account_begin(&tb));
        for (int i = 0; i < 2; i++) {
            g_assert_true(account_miss(&config.model, RETIRE_SOURCE_L2, 20));
            g_assert_cmpuint(account_charged(), ==, 10);
        }
        g_assert_cmpint(budget, ==, 98 - 10 - 40);
        account_leave(&tb, 2, 0x1002);
        g_assert_cmpuint(account_charged(), ==, 2);
        report_account();
        g_assert_cmpint(lwp.counter[LWP_EVENT_IRE - 1], ==, 96);
        g_assert_cmpuint(account_clock(), ==, 4);
    }
}

/* Counters stop at the end of their range while a record cannot be stored. */
static void test_saturation(void)
{
    start(ALL_EVENTS, FLAG_IRE | FLAG_BRE | FLAG_CNH | FLAG_RNH);
    config.model.insn_clocks = RETIRE_INSN_CLOCKS_MAX;
    config.model.refclk_ratio = RETIRE_REFCLK_RATIO_MAX;
    mem.absent[(RING - MEM_BASE) / PAGE] = true;
    for (int i = 0; i < 40000; i++) {
        retire(0x1000, RETIRE_BRANCH_NONE, false, 0x1001);
        g_assert_true(FAULTS(boundary(0x1001)));
    }
    g_assert_cmpuint(lwp.npending, ==, 3);
    g_assert_cmpint(lwp.counter[LWP_EVENT_IRE - 1], ==, -40000);
    g_assert_cmpint(lwp.counter[LWP_EVENT_CNH - 1], ==, -MAX_COUNT - 1);
    g_assert_cmpint(lwp.counter[LWP_EVENT_RNH - 1], ==, -MAX_COUNT - 1);
    g_assert_true(state_valid(&lwp, ALL_EVENTS, true));

    /* What falls due meanwhile takes a later instruction (§1.1 step 2). */
    retire(0x2000, RETIRE_BRANCH_JMP, true, 0x2001);
    g_assert_cmpuint(lwp.npending, ==, 3);
    g_assert_cmpint(lwp.counter[LWP_EVENT_BRE - 1], ==, -1);
    g_assert_false(boundary(0x2001));
    mem.absent[(RING - MEM_BASE) / PAGE] = false;
    g_assert_true(boundary(0x1001));
    retire(0x3000, RETIRE_BRANCH_COND, false, 0x3002);
    g_assert_true(boundary(0x3002));
    assert_record(RING, 2, 0, 0, 0, 0x1000, 0);
    assert_record(RING + 32, 5, 0, 0, 0, 0x1000, 0);
    assert_record(RING + 64, 6, 0, 0, 0, 0x1000, 0);
    assert_record(RING + 128, 3, 0, 0, 0, 0x3000, 0x3002);
}

/* What migration may bring. */
static void test_state_valid(void)
{
    LwpState good;

    start(FLAG_VAL, FLAG_VAL);
    good = lwp;
    g_assert_true(state_valid(&good, FLAG_VAL, true));
    g_assert_false(state_valid(&good, FLAG_VAL, false));
    g_assert_false(state_valid(&good, 0, true));

#define BAD(field, value) do {                                      \
        lwp = good;                                                 \
        lwp.field = value;                                          \
        g_assert_false(state_valid(&lwp, FLAG_VAL, true));      \
    } while (0)
    BAD(cfg, 1ull << 48 | FLAG_VAL);
    BAD(cfg, FLAG_IRE);
    BAD(flags, FLAG_IRE);
    BAD(flags, FLAG_VAL | LWP_FLAG_INT);
    BAD(size, MIN_RING - 32);
    BAD(size, MIN_RING + 1);
    BAD(size, 1u << 28);
    BAD(head, MIN_RING);
    BAD(head, 16);
    BAD(counter[0], MAX_COUNT + 1);
    BAD(counter[5], -MAX_COUNT - 2);
    BAD(npending, 1);
    BAD(npending, LWP_NR_EVENTS + 1);
    BAD(ref_fraction, RETIRE_REFCLK_UNIT);
    BAD(ip_filter, LWP_IP_UNKNOWN + 1);
    BAD(cbaddr, 0);

    lwp = good;
    lwp_disable(&lwp);
    g_assert_true(state_valid(&lwp, FLAG_VAL, false));
    /* What has no meaning then must not get into the next session. */
    lwp.counter[5] = MAX_COUNT + 1;
    lwp.ref_fraction = RETIRE_REFCLK_UNIT;
    lwp.deferred = true;
    g_assert_true(lwp_load_state(&lwp, &config, false));
    g_assert_cmpint(lwp.counter[5], ==, 0);
    g_assert_cmpuint(lwp.ref_fraction, ==, 0);
    g_assert_false(lwp.deferred);
    lwp.npending = 1;
    lwp.pending[0].q[0] = 1;
    g_assert_false(state_valid(&lwp, FLAG_VAL, true));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/lwp/cpuid", test_cpuid);
    g_test_add_func("/lwp/msr/cfg", test_cfg);
    g_test_add_func("/lwp/msr/cfg-live", test_cfg_live);
    g_test_add_func("/lwp/msr/cbaddr", test_cbaddr);
    g_test_add_func("/lwp/llwpcb/limits", test_llwpcb_limits);
    g_test_add_func("/lwp/llwpcb/gp", test_llwpcb_gp);
    g_test_add_func("/lwp/llwpcb/init", test_llwpcb_init);
    g_test_add_func("/lwp/llwpcb/int", test_llwpcb_int);
    g_test_add_func("/lwp/llwpcb/head-repair", test_head_repair);
    g_test_add_func("/lwp/slwpcb/flush", test_flush);
    g_test_add_func("/lwp/ring/records", test_records);
    g_test_add_func("/lwp/ring/full", test_ring_full);
    g_test_add_func("/lwp/ring/order", test_order);
    g_test_add_func("/lwp/ring/page-crossing", test_page_crossing);
    g_test_add_func("/lwp/interrupt/threshold", test_threshold);
    g_test_add_func("/lwp/interrupt/bad-tail", test_threshold_bad_tail);
    g_test_add_func("/lwp/interrupt/moving-tail", test_threshold_moving_tail);
    g_test_add_func("/lwp/interrupt/enable", test_interrupt_enable);
    g_test_add_func("/lwp/interrupt/reports", test_reports);
    g_test_add_func("/lwp/val/period", test_val_period);
    g_test_add_func("/lwp/val/disabled", test_val_disabled);
    g_test_add_func("/lwp/val/missed", test_val_missed);
    g_test_add_func("/lwp/val/overrun", test_overrun);
    g_test_add_func("/lwp/val/random", test_random);
    g_test_add_func("/lwp/xsave/layout", test_xsave_layout);
    g_test_add_func("/lwp/xsave/roundtrip", test_xsave_roundtrip);
    g_test_add_func("/lwp/xrstor/rules", test_xrstor_rules);
    g_test_add_func("/lwp/pending/stored-once", test_pending);
    g_test_add_func("/lwp/pending/deferred", test_pending_deferred);
    g_test_add_func("/lwp/pending/away", test_pending_away);
    g_test_add_func("/lwp/ring/probe", test_probe_store);
    g_test_add_func("/lwp/restart", test_restart);
    g_test_add_func("/lwp/pending/full", test_pending_full);
    g_test_add_func("/lwp/retire/ip-filter", test_ip_filter);
    g_test_add_func("/lwp/retire/ip-filter-val", test_ip_filter_val);
    g_test_add_func("/lwp/retire/ip-filter-val-elsewhere",
                    test_ip_filter_val_elsewhere);
    g_test_add_func("/lwp/retire/branch-classes", test_branch_classes);
    g_test_add_func("/lwp/retire/prediction", test_prediction);
    g_test_add_func("/lwp/retire/prediction-filters", test_prediction_filters);
    g_test_add_func("/lwp/miss/latency", test_miss_latency);
    g_test_add_func("/lwp/miss/levels", test_miss_levels);
    g_test_add_func("/lwp/miss/records", test_miss_records);
    g_test_add_func("/lwp/miss/clocks", test_miss_clocks);
    g_test_add_func("/lwp/miss/due", test_miss_due);
    g_test_add_func("/lwp/miss/budget", test_miss_budget);
    g_test_add_func("/lwp/miss/distance", test_miss_distance);
    g_test_add_func("/lwp/miss/model", test_miss_model);
    g_test_add_func("/lwp/retire/count-branches", test_count_branches);
    g_test_add_func("/lwp/retire/branch-distance", test_branch_distance);
    g_test_add_func("/lwp/retire/left-early", test_left_early);
    g_test_add_func("/lwp/retire/left-before-branch", test_left_before_branch);
    g_test_add_func("/lwp/retire/model", test_model);
    g_test_add_func("/lwp/retire/no-budget", test_no_budget);
    g_test_add_func("/lwp/retire/overrun", test_overrun_tbs);
    g_test_add_func("/lwp/retire/precise", test_precise);
    g_test_add_func("/lwp/retire/saturation", test_saturation);
    g_test_add_func("/lwp/state-valid", test_state_valid);
    return g_test_run();
}
