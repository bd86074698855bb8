/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LWP without long mode: legal in protected mode, #UD in real and virtual
 * 8086 mode (chapter 5).
 */

#include "lwp-legacy.h"

int main(void)
{
    static const char *const names[MODES] = {
        "protected mode", "virtual 8086 mode", "real mode"
    };
    /* How code that runs to its end leaves: INT is #GP in V86 mode. */
    static const unsigned done[MODES] = { EXIT, GP, EXIT };
    static const struct {
        const char *name;
        uint8_t len;
        bool lwp;
        uint8_t bytes[12];
    } table[] = {
        { "LWPINS", 9, true, { 0x8f, 0xea, 0x68, 0x12, 0xc1, 3 } },
        { "LWPVAL", 9, true, { 0x8f, 0xea, 0x68, 0x12, 0xc9, 4 } },
        { "SLWPCB", 5, true, { 0x8f, 0xe9, 0x78, 0x12, 0xc9 } },
        { "LLWPCB 0", 5, true, { 0x8f, 0xe9, 0x78, 0x12, 0xc0 } },
        { "POP (8F C1)", 2, false, { 0x8f, 0xc1 } },
    };

    kernel_init();
    lwp_make_available();
    legacy_init();
    legacy_regs[2] = 0x12345678;        /* EDX */
    for (int m = 0; m < MODES; m++) {
        for (int i = 0; i < ARRAY_SIZE(table); i++) {
            uint8_t *code = (uint8_t *)CODE_ADDR;
            bool ud = table[i].lwp && m != PROTECTED;
            unsigned vector;

            /* There is no paging, so addresses are physical. */
            prepare(LWP_FLAG_VAL);
            cb->base = (uintptr_t)ring;
            cb->event[0].counter = 0;
            llwpcb(cb);
            memcpy(code, table[i].bytes, table[i].len);
            code[table[i].len] = 0xcd;          /* INT EXIT */
            code[table[i].len + 1] = EXIT;
            vector = run_legacy(m);
            report(vector == (ud ? UD : done[m]) &&
                   legacy_ip == CODE_ADDR + (ud ? 0 : table[i].len) +
                   (vector == EXIT ? 2 : 0),
                   "%s: %s is %s", names[m], table[i].name,
                   ud ? "#UD" : "legal");
            if (m == PROTECTED && i == 0) {
                report(record_is(ring, LWP_INS, 3, 0, CODE_ADDR, 0x12345678),
                       "its record");
            } else if (m == PROTECTED && i == 1) {
                report(record_is(ring, LWP_VAL, 4, 0, CODE_ADDR, 0x12345678),
                       "its record");
            } else if (m == PROTECTED && i == 3) {
                report(rdmsr(MSR_LWP_CBADDR) == 0, "LWP is disabled");
            } else {
                report(rdmsr(MSR_LWP_CBADDR) == (uintptr_t)cb &&
                       ring[0].event == 0, "LWP stays enabled");
            }
        }
    }
    return report_summary();
}
