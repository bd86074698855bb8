/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The name that libFuzzer wants. */

#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
