/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * AMD's Instruction-Based Sampling under TCG: features, properties, CPU
 * hot-plug, a sample of an op, and migration of a guest that has one ahead.
 */

#include "qemu/osdep.h"
#include "pmu-guest.h"

/* Which CPUs have it, and what of it */
static void test_features(void)
{
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
}

static void test_properties(void)
{
    static const PropertyTest t[] = {
        { "EPYC,pmu=on,ibs=off,ibs-op-sam=on,enforce",
          "TCG doesn't support requested features" },
    };

    check_properties(t, G_N_ELEMENTS(t));
}

/*
 * Behind the WRMSR that starts it, the guest executes ADD, JMP, MOV, JECXZ and
 * MOV, and then DEC and JNE by turns.  The op behind 256 is the 126th JNE.
 */
static void test_sample(void)
{
    const uint64_t valid = 1 << 18, ctl = 1 << 19 | 1 << 17 | 256 / 16;
    g_autofree char *info = NULL;
    Guest g;

    guest_init(&g);
    guest_start(&g, "max,family=23,model=1,pmu=on,ibs-random=off", "-S -smp 1");
    guest_prepare_all(&g, 1);
    for (int i = 0; i < G_N_ELEMENTS(reads); i++) {
        qtest_writel(g.qts, AREA(0) + READS + 4 * i, 0xc0011033);
    }
    for (int i = 0; i < 4; i++) {
        write_msr(&g, AREA(0) + WRITES + 12 * i, 0xc0011033, i < 3 ? 0 : ctl);
    }
    guest_cont(&g);
    guest_wait(&g, 0, SEQ, 1);
    guest_stop(&g);
    info = info_pmu(g.qts, 0);
    g_assert_cmphex(shown(info, "IBS op: CTL=") & (valid | ctl), ==,
                    valid | ctl);
    g_assert_cmphex(shown(info, " RIP="), ==, IP_JNE);
    guest_cleanup(&g);
}

/* IBS with a sample ahead, and what no processor could have sent */
static void test_migrate(void)
{
    enum { REG = 4, OP_CTL = REG + 3 * 8, OP_DATA2 = REG + 6 * 8,
           COUNTS = REG + 14 * 8, SIZE = COUNTS + 3 * 4 };
    static const struct {
        unsigned offset, bytes;
        uint64_t val;
    } t[] = {
        { OP_CTL, 8, 1ull << 63 }, { OP_DATA2, 8, 0x100 },
        { COUNTS, 4, 1 << 20 }, { COUNTS + 4, 4, 1 << 27 },
        { COUNTS + 8, 4, 0 },
    };
    const char *cpu = "max,family=23,model=1,pmu=on", *name = "cpu/ibs";
    /* As far away as can be, by ops */
    const uint64_t op_ctl = 0xc0011033, ctl = 0x7faffff;
    g_autofree char *before = NULL, *after = NULL, *hmp = NULL;
    char *section, *loaded, old[SIZE];
    size_t size[2];
    Guest g;

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

/* Whether the interrupt with vector 64 waits, which the guest does not take */
static bool has_interrupt(Guest *g)
{
    g_autofree char *text = qtest_hmp(g->qts, "info lapic 0");
    const char *irr = strstr(text, "IRR");
    int vector;

    g_assert_nonnull(irr);
    return sscanf(irr, "IRR %d", &vector) == 1 && vector == 64;
}

/*
 * A sample interrupts through the entry of the extended LVT that the guest has
 * written, also where it goes on.
 */
static void test_interrupt(void)
{
    const char *cpu = "max,family=23,model=1,pmu=on";
    const char *name = "apic/extended_lvt";
    const MsrWrite writes[] = {
        { 0x1b, 0xfee00d00 },               /* x2APIC: for MSRs alone */
        { 0x850, 64 },                      /* 500H: a fixed interrupt */
        { 0xc0011033, 0x7faffff }, { },     /* IBS_OP_CTL */
    };
    g_autofree char *stream = NULL;
    char *section;
    int64_t end;
    size_t size;
    Guest g;

    guest_init(&g);
    guest_start(&g, cpu, "-S -smp 1");
    guest_prepare_all(&g, 1);
    qtest_writel(g.qts, AREA(0) + READS, 0);
    write_msrs(&g, 0, 0, writes, G_N_ELEMENTS(writes));
    guest_cont(&g);
    guest_wait(&g, 0, SEQ, 1);
    guest_save(&g);
    g_assert_true(g_file_get_contents(g.stream, &stream, &size, NULL));
    section = memmem(stream, size, name, strlen(name));
    g_assert_nonnull(section);
    section += strlen(name) + 4;
    g_assert_cmphex(ldl_be_p(section), ==, 64);
    g_assert_cmphex(ldl_be_p(section + 4), ==, 0x10000);
    g_assert_true(guest_load(&g, cpu, "-S"));
    g_assert_false(has_interrupt(&g));
    guest_cont(&g);
    end = g_get_monotonic_time() + 60 * G_TIME_SPAN_SECOND;
    while (!has_interrupt(&g)) {
        g_assert_cmpint(g_get_monotonic_time(), <, end);
    }
    /* What no processor could have sent */
    stl_be_p(section, 0x20040);
    g_assert_true(g_file_set_contents(g.stream, stream, size, NULL));
    assert_load_fails(&g, cpu, "an extended LVT that this CPU does not have");
    guest_cleanup(&g);
}

/* A CPU that has other registers of IBS is refused. */
static void test_hotplug(void)
{
    Guest g;

    guest_init(&g);
    guest_start(&g, "max,family=23,model=1,pmu=on",
                "-S -smp 1,sockets=2,maxcpus=2");
    assert_other(qtest_qmp(g.qts, PLUG ", 'ibs': false } }"));
    assert_other(qtest_qmp(g.qts, PLUG ", 'ibs-op-cnt': false } }"));
    qtest_qmp_assert_success(g.qts, PLUG " } }");
    guest_cleanup(&g);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);

    qtest_add_func("/ibs/features", test_features);
    qtest_add_func("/ibs/properties", test_properties);

    /* The guest of the others runs in 64-bit mode. */
    if (!g_str_equal(qtest_get_arch(), "x86_64")) {
        return g_test_run();
    }
    qtest_add_func("/ibs/sample", test_sample);
    qtest_add_func("/ibs/migrate", test_migrate);
    qtest_add_func("/ibs/interrupt", test_interrupt);
    qtest_add_func("/ibs/hotplug", test_hotplug);
    return g_test_run();
}
