/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The callbacks of a plugin that has these three, as those of version 7 (QEMU
 * 11.1) are: before, they had an ID in front, and no data.
 */

#ifndef ORACLE_PLUGIN_H
#define ORACLE_PLUGIN_H

#include <qemu-plugin.h>

static void vcpu_init(unsigned vcpu, void *unused);
static void translate(struct qemu_plugin_tb *tb, void *unused);
static void finish(void *unused);

#if QEMU_PLUGIN_VERSION >= 7
static void register_callbacks(qemu_plugin_id_t id)
{
    qemu_plugin_register_vcpu_init_cb(id, vcpu_init, NULL);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate, NULL);
    qemu_plugin_register_atexit_cb(id, finish, NULL);
}
#else
static void vcpu_init_of(qemu_plugin_id_t id, unsigned vcpu)
{
    vcpu_init(vcpu, NULL);
}

static void translate_of(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    translate(tb, NULL);
}

static void finish_of(qemu_plugin_id_t id, void *unused)
{
    finish(unused);
}

static void register_callbacks(qemu_plugin_id_t id)
{
    qemu_plugin_register_vcpu_init_cb(id, vcpu_init_of);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate_of);
    qemu_plugin_register_atexit_cb(id, finish_of, NULL);
}
#endif

#endif
