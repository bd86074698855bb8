/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lwp: profile programs with AMD Lightweight Profiling.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "../linux/lwp_ioctl.h"
#include "commands.h"
#include "events.h"
#include "session.h"
#include "terminal.h"

typedef struct Command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} Command;

static const Command commands[] = {
    { "stat", cmd_stat, "run a program and count its events" },
    { "record", cmd_record, "run a program and write its profile to lwp.data" },
    { "report", cmd_report, "show what a profile says" },
    { "annotate", cmd_annotate, "show a function's instructions with counts" },
    { "script", cmd_script, "show a profile's records, or convert them" },
    { "info", cmd_info, "show what the CPU and the system offer" },
};

enum { NR_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void usage(FILE *f)
{
    fprintf(f, "usage: lwp [--help] [--version] COMMAND [ARGUMENT...]\n\n"
            "Profile programs with AMD Lightweight Profiling.\n\n");
    for (int i = 0; i < NR_COMMANDS; i++) {
        fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].help);
    }
    fprintf(f, "\nlwp COMMAND --help tells more about a command.\n");
}

/* Table 3-1: one bit that EAX and EDX have, or bits of EBX or ECX. */
static void show_feature(const LwpInfo *info, int bit, const char *name)
{
    const char *state = !(info->edx & 1u << bit) ? "not supported" :
                        !(info->eax & 1u << bit) ? "supported, not available" :
                        "available";

    printf("  %-34s %s\n", name, state);
}

static void show_flag(uint32_t word, int bit, const char *name)
{
    printf("  %-34s %s\n", name, word & 1u << bit ? "yes" : "no");
}

static void show_number(const char *name, unsigned value, const char *unit)
{
    printf("  %-34s %u%s\n", name, value, unit);
}

static void show_cpuid(const LwpInfo *info)
{
    printf("CPUID Fn8000_001C: EAX %08x EBX %08x ECX %08x EDX %08x\n",
           info->eax, info->ebx, info->ecx, info->edx);
    show_number("LWP version", info->version, "");
    show_feature(info, LWP_VAL, "programmed values (VAL)");
    show_feature(info, LWP_IRE, "instructions retired (IRE)");
    show_feature(info, LWP_BRE, "branches retired (BRE)");
    show_feature(info, LWP_DME, "data cache misses (DME)");
    show_feature(info, LWP_CNH, "CPU clocks not halted (CNH)");
    show_feature(info, LWP_RNH, "reference clocks not halted (RNH)");
    show_feature(info, 31, "threshold interrupt (INT)");
    show_number("control block", info->cb_size, " bytes");
    show_number("offset of events in it", info->event_offset, " bytes");
    show_number("greatest EventId", info->max_event, "");
    show_number("record", info->record_size, " bytes");
    show_number("least ring", info->min_records, " records");
    show_number("cache latency counter", info->ecx & 0x1f, " bits");
    show_number("latency is a multiple of", 1u << (info->ecx >> 6 & 7),
                " cycles");
    show_flag(info->ecx, 5, "data address of a miss");
    show_flag(info->ecx, 28, "filter by branch prediction");
    show_flag(info->ecx, 29, "filter by instruction address");
    show_flag(info->ecx, 30, "filter by cache level");
    show_flag(info->ecx, 31, "filter by cache latency");
}

static void show_driver(void)
{
    struct lwp_ioc_status s;
    int fd = open(LWP_DEVICE, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        printf("driver: %s: %s\n", LWP_DEVICE, strerror(errno));
        return;
    }
    if (ioctl(fd, LWP_IOC_STATUS, &s) != 0) {
        printf("driver: %s does not tell its state: %s\n", LWP_DEVICE,
               strerror(errno));
    } else {
        printf("driver: %s, makes %08" PRIx64 " available\n"
               "  %-34s %" PRIu64 "\n  %-34s %" PRIu64 "\n"
               "  %-34s %" PRIu64 "\n  %-34s %" PRIu64 "\n"
               "  %-34s %" PRIu64 "\n  %-34s %" PRIu64 "\n",
               LWP_DEVICE, (uint64_t)s.features,
               "threshold interrupts", (uint64_t)s.interrupts,
               "states saved", (uint64_t)s.saves,
               "states restored", (uint64_t)s.restores,
               "times that LWP was found off", (uint64_t)s.heals,
               "tasks disabled for want of memory", (uint64_t)s.exhausted,
               "times that interrupts were held back", (uint64_t)s.throttles);
    }
    close(fd);
}

/* For scripts; what CPUID says is in its four words, EAX to EDX. */
static void show_json(const LwpInfo *info)
{
    struct lwp_ioc_status s;
    const char *comma = "";
    int fd = open(LWP_DEVICE, O_RDONLY | O_CLOEXEC);

    printf("{\"available\": %s, \"enabled\": %s, \"version\": %u, "
           "\"cpuid\": [%u, %u, %u, %u], \"events\": [",
           info->available ? "true" : "false",
           info->available && session_flush() ? "true" : "false",
           info->version, info->eax, info->ebx, info->ecx, info->edx);
    for (int i = 1; i <= LWP_NR_EVENTS; i++) {
        if (info->eax & info->edx & LWP_FLAG(i)) {
            printf("%s\"%s\"", comma, event_name(i));
            comma = ", ";
        }
    }
    if (fd < 0 || ioctl(fd, LWP_IOC_STATUS, &s) != 0) {
        printf("], \"driver\": null}\n");
    } else {
        printf("], \"driver\": {\"features\": %" PRIu64 ", \"interrupts\": %"
               PRIu64 ", \"saves\": %" PRIu64 ", \"restores\": %" PRIu64
               ", \"heals\": %" PRIu64 ", \"exhausted\": %" PRIu64
               ", \"throttles\": %" PRIu64 "}}\n",
               (uint64_t)s.features, (uint64_t)s.interrupts,
               (uint64_t)s.saves, (uint64_t)s.restores, (uint64_t)s.heals,
               (uint64_t)s.exhausted, (uint64_t)s.throttles);
    }
    if (fd >= 0) {
        close(fd);
    }
}

int cmd_info(int argc, char **argv)
{
    static const struct option options[] = {
        { "json", no_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { }
    };
    LwpInfo info = lwp_detect();
    bool json = false;
    int c;

    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'j') {
            json = true;
            continue;
        }
        if (c == 'h') {
            printf("usage: lwp info [OPTION]\n\n"
                   "Show what CPUID Fn8000_001C says about LWP, whether this "
                   "thread uses it,\nand what the driver has done.  Returns "
                   "0 if programs can use LWP.\n\n"
                   "      --json          for programs to read\n"
                   "  -h, --help          this text\n");
            return 0;
        }
        return 2;
    }
    if (optind < argc) {
        fprintf(stderr, "lwp info: there are no arguments\n");
        return 2;
    }
    if (json) {
        show_json(&info);
        return info.available ? 0 : 1;
    }
    if (info.supported) {
        show_cpuid(&info);
    }
    if (info.available) {
        printf("this thread: LWP is %s\n",
               session_flush() ? "enabled" : "disabled");
    } else {
        printf("%s\n", lwp_strerror(info.supported ? ENOSYS : ENODEV));
    }
    show_driver();
    return info.available ? 0 : 1;
}

/* What was written has to be there: a pipe may be closed, a disk full. */
static int finish(int status)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "lwp: cannot write the output: %s\n", strerror(errno));
        status = status ? status : 1;
    }
    terminal_finish();
    return status;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    char *help[] = { argv[0], NULL, (char *)"--help", NULL };

    if (!name) {
        usage(stderr);
        return 2;
    }
    if (!strcmp(name, "--version")) {
        printf("lwp %s\n", LWP_VERSION);
        return finish(0);
    }
    /* "lwp help report" is "lwp report --help". */
    if (!strcmp(name, "help") && argc > 2) {
        help[1] = argv[2];
        argv = help;
        argc = 3;
        name = argv[1];
    } else if (!strcmp(name, "--help") || !strcmp(name, "-h") ||
               !strcmp(name, "help")) {
        usage(stdout);
        return finish(0);
    }
    for (int i = 0; i < NR_COMMANDS; i++) {
        if (!strcmp(name, commands[i].name)) {
            return finish(commands[i].run(argc - 1, argv + 1));
        }
    }
    fprintf(stderr, "lwp: there is no command \"%s\"; see lwp --help\n", name);
    return 2;
}
