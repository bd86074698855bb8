/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Headers that most files of an account need */

#ifndef I386_RETIRE_COMPAT_H
#define I386_RETIRE_COMPAT_H

#if QEMU_VERSION_MAJOR == 10 && QEMU_VERSION_MINOR == 0

#include "exec/exec-all.h"
#include "hw/qdev-properties.h"
#include "system/cpu-timers.h"
#ifdef CONFIG_TCG
#include "exec/cpu_ldst.h"
#endif
#ifndef CONFIG_USER_ONLY
#include "hw/boards.h"
#include "qapi/qapi-commands-misc-target.h"
#endif
#define INSN_START_WORDS TARGET_INSN_START_WORDS

#define cpu_tlb_fast(cs, mmu_idx) (&(cs)->neg.tlb.f[mmu_idx])

#else

#include "exec/icount.h"
#include "hw/core/qdev-properties.h"
#include "exec/target_page.h"
#include "exec/tlb-flags.h"
#ifdef CONFIG_TCG
#include "accel/tcg/cpu-ops.h"
#include "accel/tcg/cpu-ldst.h"
#include "accel/tcg/cpu-loop.h"
#include "accel/tcg/helper-retaddr.h"
#include "accel/tcg/probe.h"
#include "exec/cpu-common.h"
#endif
#ifdef CONFIG_USER_ONLY
#include "user/guest-host.h"
#else
#include "hw/core/boards.h"
#include "qapi/qapi-commands-misc-i386.h"
#include "system/memory.h"
#endif

#endif

#endif
