/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linux' generic events: the PMU engine counts what Linux asks for, or
 * models.rst says that it does not.
 */

#include <string.h>
#include <glib.h>
#include "pmu.h"
#include "linux-events.c.inc"

#define PERFEVTSEL0     0x186
#define OFFCORE_RSP_0   0x1a6
#define FIXED_CTR_CTRL  0x38d
#define K7_EVTSEL0      0xc0010000
#define RUN             (1u << 16 | 1u << 17 | 1u << 22)    /* USR, OS, EN */
#define REF_CYCLES      0x300

#define TITLE           "\nLinux' events that count 0\n"
#define BORDER          "==="

/* As models.rst has it, behind the event's name */
static char *code_of(unsigned event)
{
    uint64_t code = linux_events[event].code;
    g_autofree char *of = linux_events[event].offcore ?
        g_strdup_printf(":%" G_GINT64_MODIFIER "X",
                        linux_events[event].offcore) : g_strdup("");

    return g_strdup_printf("%s %X/%X%s", linux_events[event].name,
                           (unsigned)(code & 0xff) |
                           (unsigned)(code >> 32 & 15) << 8,
                           (unsigned)(code >> 8 & 0xff), of);
}

/*
 * What the table of models.rst names: "EVENT CODE".  Its codes may go on in the
 * next line, which has no name then.
 */
static GPtrArray *read_table(void)
{
    GPtrArray *named = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *text = NULL, *name = NULL;
    g_auto(GStrv) lines = NULL;
    g_autoptr(GError) error = NULL;
    const char *table;
    unsigned borders = 0;

    g_file_get_contents(PMU_RST, &text, NULL, &error);
    g_assert_no_error(error);
    table = strstr(text, TITLE);
    g_assert_nonnull(table);
    lines = g_strsplit(table + strlen(TITLE), "\n", 0);
    for (unsigned i = 0; lines[i] && borders < 3; i++) {
        g_auto(GStrv) words = NULL;

        if (g_str_has_prefix(lines[i], BORDER)) {
            borders++;
            continue;
        }
        if (borders < 2) {
            continue;               /* text, and the table's head */
        }
        words = g_strsplit_set(lines[i], " ,", 0);
        for (unsigned w = 0; words[w]; w++) {
            if (w == 0 && *words[w]) {
                g_free(name);
                name = g_strdup(words[w]);
            } else if (*words[w]) {
                g_assert_nonnull(name);
                g_ptr_array_add(named, g_strdup_printf("%s %s", name,
                                                       words[w]));
            }
        }
    }
    g_assert_cmpint(borders, ==, 3);
    return named;
}

static bool is_named(const GPtrArray *named, const char *code)
{
    return g_ptr_array_find_with_equal_func((GPtrArray *)named, code,
                                            g_str_equal, NULL);
}

static bool is_modelled(const PmuFlavour *flavour, PmuVendor vendor,
                        unsigned event)
{
    uint64_t code = linux_events[event].code;
    uint64_t offcore = linux_events[event].offcore;
    unsigned counter = 0;
    PmuSetting setting;
    PmuConfig config;
    PmuState s = { 0 };
    bool ok = true;
    /* There is one node, so none is remote. */
    bool may_be_none = !strcmp(linux_events[event].name, "node-load-misses");

    pmu_config_init(&config, flavour);
    /* So that there are cycles in which nothing happens. */
    config.insn_clocks = 2;
    pmu_reset(&s, &config);
    if (offcore) {
        ok &= pmu_wrmsr(&s, &config, OFFCORE_RSP_0, offcore) == PMU_MSR_OK;
    }
    if (code == REF_CYCLES && vendor == PMU_VENDOR_INTEL) {
        counter = PMU_FIXED(2);
        ok &= pmu_wrmsr(&s, &config, FIXED_CTR_CTRL, 0x333) == PMU_MSR_OK;
    } else {
        ok &= pmu_wrmsr(&s, &config, vendor == PMU_VENDOR_INTEL ?
                        PERFEVTSEL0 : K7_EVTSEL0, code | RUN) == PMU_MSR_OK;
    }
    return ok && pmu_setting(&s, &config, counter, &setting) &&
           *setting.event && (s.counter[counter].add || may_be_none);
}

static void complain(const char *code, unsigned processor, unsigned model,
                     const PmuFlavour *flavour, const char *what)
{
    g_test_message("%s family %X, model %02X (%s): %s %s",
                   linux_processors[processor].vendor == PMU_VENDOR_AMD ?
                   "AMD" : "Intel", linux_processors[processor].family, model,
                   flavour ? pmu_flavour_name(flavour) : "no PMU", code, what);
    g_test_fail();
}

static void test_events(void)
{
    g_autoptr(GPtrArray) named = read_table();

    for (unsigned e = 0; e < G_N_ELEMENTS(linux_events); e++) {
        g_autofree char *code = code_of(e);
        bool expected = !is_named(named, code);

        for (unsigned p = 0; p < G_N_ELEMENTS(linux_processors); p++) {
            PmuVendor vendor = linux_processors[p].vendor;
            const PmuFlavour *flavour, *complained = NULL;

            if (!(linux_events[e].groups & linux_processors[p].group)) {
                continue;
            }
            for (unsigned model = linux_processors[p].first_model;
                 model <= linux_processors[p].last_model; model++) {
                flavour = pmu_flavour(vendor, linux_processors[p].family,
                                      model);
                if ((flavour && is_modelled(flavour, vendor, e) == expected) ||
                    (flavour && flavour == complained)) {
                    continue;
                }
                complained = flavour;
                complain(code, p, model, flavour, expected ? "counts 0" :
                         "counts, but models.rst says that it does not");
            }
        }
    }
}

/* What may count 0: prefetches, and stores to other nodes */
static void test_named(void)
{
    static const char *const kinds[] = {
        "node-store-misses", "*-prefetches", "*-prefetch-misses",
    };
    g_autoptr(GPtrArray) named = read_table();
    g_autoptr(GPtrArray) codes = g_ptr_array_new_with_free_func(g_free);

    for (unsigned e = 0; e < G_N_ELEMENTS(linux_events); e++) {
        g_ptr_array_add(codes, code_of(e));
    }
    g_assert_cmpint(named->len, >, 0);
    for (unsigned n = 0; n < named->len; n++) {
        const char *code = g_ptr_array_index(named, n);
        g_autofree char *name = g_strndup(code, strcspn(code, " "));
        bool may = false;

        for (unsigned k = 0; k < G_N_ELEMENTS(kinds); k++) {
            may |= g_pattern_match_simple(kinds[k], name);
        }
        if (!may) {
            g_test_message("models.rst: %s must not count 0", code);
            g_test_fail();
        }
        if (!is_named(codes, code)) {
            g_test_message("models.rst: Linux has no %s", code);
            g_test_fail();
        }
    }
}

/* The engine's names are those of the codes. */
static bool is_listed(const PmuFlavour *flavour, unsigned event)
{
    const char *names;
    PmuConfig config;
    unsigned next = 0;
    uint64_t select;

    pmu_config_init(&config, flavour);
    while ((names = pmu_next_linux_event(&config, &next, &select))) {
        g_auto(GStrv) words = g_strsplit(names, ", ", 0);

        if (select == linux_events[event].code &&
            g_strv_contains((const char *const *)words,
                            linux_events[event].name)) {
            return true;
        }
    }
    return false;
}

static void test_names(void)
{
    unsigned listed = 0;

    for (unsigned p = 0; p < G_N_ELEMENTS(linux_processors); p++) {
        for (unsigned e = 0; e < G_N_ELEMENTS(linux_events); e++) {
            const char *name = linux_events[e].name;
            const PmuFlavour *flavour =
                pmu_flavour(linux_processors[p].vendor,
                            linux_processors[p].family,
                            linux_processors[p].first_model);

            if (!flavour ||
                !(linux_events[e].groups & linux_processors[p].group) ||
                linux_events[e].offcore || linux_events[e].code == REF_CYCLES ||
                strstr(name, "prefetch")) {
                continue;
            }
            if (!is_listed(flavour, e)) {
                g_autofree char *code = code_of(e);

                complain(code, p, linux_processors[p].first_model, flavour,
                         "is not in linux_events[]");
            }
            listed++;
        }
    }
    g_assert_cmpint(listed, >, 500);
}

/* Whether Linux has event @e on a processor of @flavour. */
static bool is_linuxes(const PmuFlavour *flavour, unsigned e)
{
    for (unsigned p = 0; p < G_N_ELEMENTS(linux_processors); p++) {
        if ((linux_events[e].groups & linux_processors[p].group) &&
            pmu_flavour(linux_processors[p].vendor, linux_processors[p].family,
                        linux_processors[p].first_model) == flavour) {
            return true;
        }
    }
    return false;
}

/* And no other code has them. */
static void test_no_other_names(void)
{
    for (unsigned p = 0; p < G_N_ELEMENTS(linux_processors); p++) {
        const PmuFlavour *flavour =
            pmu_flavour(linux_processors[p].vendor, linux_processors[p].family,
                        linux_processors[p].first_model);
        unsigned next = 0;
        PmuConfig config;
        uint64_t select;

        if (!flavour) {
            continue;
        }
        pmu_config_init(&config, flavour);
        while (pmu_next_linux_event(&config, &next, &select)) {
            bool found = false;

            for (unsigned e = 0; e < G_N_ELEMENTS(linux_events); e++) {
                found |= linux_events[e].code == select &&
                         is_linuxes(flavour, e);
            }
            g_assert_true(found);
        }
    }
}

int main(int argc, char *argv[])
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/pmu/linux/events", test_events);
    g_test_add_func("/pmu/linux/named", test_named);
    g_test_add_func("/pmu/linux/names", test_names);
    g_test_add_func("/pmu/linux/no-other-names", test_no_other_names);
    return g_test_run();
}
