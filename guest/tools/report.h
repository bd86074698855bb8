/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counts of records that have something in common: all outputs are made of it.
 */
#ifndef LWP_REPORT_H
#define LWP_REPORT_H

#include "profile.h"

#define MAX_KEYS    8
#define MAX_NESTED  4

/* Something that a record has, as a number that is the same for equal ones. */
typedef struct Key {
    const char *name, *title;
    enum { KEY_TEXT, KEY_PATH, KEY_FUNCTION, KEY_NUMBER, KEY_HEX } type;
    uint64_t (*id)(const Profile *p, const Entry *e);
    uint32_t events;        /* that have it: event_bit()s; all: also others */
} Key;

typedef struct Row {
    uint64_t id[MAX_KEYS];
    uint64_t count;
    union {
        struct {                            /* branches */
            uint64_t taken, known, predicted;       /* known: if predicted */
        };
        struct {                            /* misses */
            uint64_t latency;               /* sum */
            uint32_t latency_min, latency_max;
        };
    };
    uint64_t total[MAX_NESTED]; /* of all rows that have ids 0..i in common */
} Row;

typedef struct Rows {
    const Key *keys[MAX_KEYS];
    int nr_keys, nested;
    uint64_t total;         /* records of all rows */
    Table table;
} Rows;

/* A list as that of --sort.  False, with a message, if one is not known. */
bool rows_keys(Rows *rows, const char *list);

/* Whether the event's records have all these keys. */
bool rows_are_for(const Rows *rows, int event);

/*
 * Count an event's records by these keys.  Rows are sorted: those with most
 * records first, but those that have the first NESTED keys in common together.
 */
void rows_fill(Rows *rows, const Profile *p, int event, int nested,
               bool (*filter)(const Profile *p, const Entry *e));

/* A key of a row for people; buffer has room for numbers. */
const char *row_text(const Rows *rows, const Row *row, int key, char *buffer);
#define ROW_TEXT    32

static inline const Row *row_at(const Rows *rows, size_t i)
{
    return table_at(&rows->table, i);
}

/* A picture of all events. */
void svg_write(FILE *f, const Profile *p);

#endif
