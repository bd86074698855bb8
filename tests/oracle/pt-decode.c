/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What Debian's decoder, libipt, makes of a trace of Intel Processor Trace.
 *
 * usage: pt-decode TRACE CODE [OFFSET]
 *
 * TRACE is what the processor has written; what is in front of OFFSET, where a
 * PSB is, the decoder does not see.  CODE has lines "ADDRESS BYTES", in
 * hexadecimal, as retire-trace.c writes them.  Prints a line for each
 * instruction, "ADDRESS MODE" with the mode in bits, and "event TYPE" for each
 * event.  The exit status is 1, with a line on standard error, if the decoder
 * refuses anything.
 */

#include <glib.h>
#include <intel-pt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static GHashTable *bytes;       /* by address; a byte and 256 */

static void fail(const char *what, int status, uint64_t offset, uint64_t ip)
{
    fprintf(stderr, "%s: %s at byte %" PRIu64 ", IP %" PRIx64 "\n", what,
            pt_errstr(pt_errcode(status)), offset, ip);
    exit(1);
}

static void read_code(const char *name)
{
    FILE *f = fopen(name, "r");
    char line[256];

    while (f && fgets(line, sizeof(line), f)) {
        char *p;
        uint64_t addr = g_ascii_strtoull(line, &p, 16);
        unsigned byte;

        for (p++; sscanf(p, "%2x", &byte) == 1; p += 2) {
            g_hash_table_insert(bytes, GSIZE_TO_POINTER(addr++),
                                GUINT_TO_POINTER(byte | 256));
        }
    }
    if (!f || fclose(f)) {
        perror(name);
        exit(1);
    }
}

static int read_memory(uint8_t *buffer, size_t size,
                       const struct pt_asid *asid, uint64_t ip, void *unused)
{
    for (size_t i = 0; i < size; i++) {
        guint byte = GPOINTER_TO_UINT(g_hash_table_lookup(
            bytes, GSIZE_TO_POINTER(ip + i)));

        if (!byte) {
            return i ? (int)i : -pte_nomap;
        }
        buffer[i] = (uint8_t)byte;
    }
    return (int)size;
}

static int show_events(struct pt_insn_decoder *decoder, int status)
{
    struct pt_event event;

    while (status >= 0 && (status & pts_event_pending)) {
        status = pt_insn_event(decoder, &event, sizeof(event));
        if (status >= 0) {
            printf("event %d\n", event.type);
        }
    }
    return status;
}

static int mode_bits(enum pt_exec_mode mode)
{
    return mode == ptem_64bit ? 64 : mode == ptem_32bit ? 32 : 16;
}

int main(int argc, char **argv)
{
    struct pt_insn_decoder *decoder;
    struct pt_config config;
    struct pt_insn insn = { 0 };
    uint64_t offset = 0;
    gsize length;
    gchar *trace;
    int status;

    bytes = g_hash_table_new(NULL, NULL);
    if (argc < 3 || !g_file_get_contents(argv[1], &trace, &length, NULL)) {
        fprintf(stderr, "usage: pt-decode TRACE CODE [OFFSET]\n");
        return 1;
    }
    read_code(argv[2]);
    pt_config_init(&config);
    config.begin = (uint8_t *)trace + (argc > 3 ? atoi(argv[3]) : 0);
    config.end = (uint8_t *)trace + length;
    decoder = pt_insn_alloc_decoder(&config);
    pt_image_set_callback(pt_insn_get_image(decoder), read_memory, NULL);
    status = pt_insn_sync_forward(decoder);
    while (status >= 0) {
        status = show_events(decoder, status);
        if (status < 0 || (status & pts_eos)) {
            break;
        }
        insn = (struct pt_insn) { 0 };
        status = pt_insn_next(decoder, &insn, sizeof(insn));
        /* What comes in front of an error has been executed. */
        if (insn.iclass != ptic_error) {
            printf("%" PRIx64 " %d\n", insn.ip, mode_bits(insn.mode));
        }
    }
    pt_insn_get_offset(decoder, &offset);
    if (status < 0 && status != -pte_eos) {
        fail("libipt", status, offset, insn.ip);
    }
    return 0;
}
