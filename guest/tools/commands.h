/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The commands of lwp.  argv[0] is the command's name; each returns what the
 * program is to return.
 */
#ifndef LWP_COMMANDS_H
#define LWP_COMMANDS_H

int cmd_info(int argc, char **argv);
int cmd_record(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_annotate(int argc, char **argv);
int cmd_script(int argc, char **argv);

#endif
