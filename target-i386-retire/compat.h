/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where QEMU has what the glue uses: what differs between the releases that
 * there are patches for, and nothing else.
 */

#ifndef I386_RETIRE_COMPAT_H
#define I386_RETIRE_COMPAT_H

#if QEMU_VERSION_MAJOR == 10 && QEMU_VERSION_MINOR == 0

#include "exec/exec-all.h"
#include "system/cpu-timers.h"
#ifdef CONFIG_TCG
#include "exec/cpu_ldst.h"
#endif
#ifndef CONFIG_USER_ONLY
#include "qapi/qapi-commands-misc-target.h"
#endif
#define INSN_START_WORDS TARGET_INSN_START_WORDS

#else

#include "exec/icount.h"
#include "exec/target_page.h"
#include "exec/tlb-flags.h"
#ifdef CONFIG_TCG
#include "accel/tcg/cpu-ldst.h"
#include "accel/tcg/helper-retaddr.h"
#include "accel/tcg/probe.h"
/* Where cpu_loop_exit() and cpu_restore_state() are */
#if QEMU_VERSION_MAJOR == 10
#include "exec/cpu-common.h"
#elif __has_include("accel/tcg/cpu-loop.h")
#include "accel/tcg/cpu-loop.h"
#endif
#endif
#ifndef CONFIG_USER_ONLY
#include "qapi/qapi-commands-misc-i386.h"
#endif

#endif

#if QEMU_VERSION_MAJOR == 10
#include "hw/qdev-properties.h"
#ifndef CONFIG_USER_ONLY
#include "hw/boards.h"
#endif
#else
#include "hw/core/qdev-properties.h"
#ifndef CONFIG_USER_ONLY
#include "hw/core/boards.h"
#endif
#endif

#endif
