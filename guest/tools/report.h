/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counts of records that have something in common: all outputs are made of it.
 */
#ifndef LWP_REPORT_H
#define LWP_REPORT_H

#include "profile.h"

#define MAX_KEYS    8

/* Something that a record has, as a number that is the same for equal ones. */
typedef struct Key {
    const char *name, *title;
    enum { KEY_TEXT, KEY_PATH, KEY_FUNCTION, KEY_NUMBER, KEY_HEX } type;
    uint64_t (*id)(const Profile *p, const Entry *e);
    uint32_t events;        /* that have it: event_bit()s; all: also others */
    bool place;             /* it is not the same for all of Profile.parts */
} Key;

typedef struct Row {
    uint64_t id[MAX_KEYS];  /* see row_id() */
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
    uint32_t entry;         /* one of its */
    uint32_t group;         /* index + 1 of the row that it is part of; or 0 */
} Row;

typedef struct Rows {
    const Profile *profile;
    const Table *entries;   /* of the profile, or its parts */
    const Key *keys[MAX_KEYS];
    uint64_t (*id[MAX_KEYS])(const Profile *p, const Entry *e);
    int nr_keys;
    double limit;           /* per cent that a row has at least */
    size_t top;             /* rows at most */
    uint64_t total;         /* records of all rows */
    size_t all;             /* rows, with those that nobody wants to see */
    Row *rows;              /* in their order */
    size_t count;
    bool cut;               /* there are as many as are wanted */
} Rows;

/* A list as that of --sort.  False, with a message, if one is not known. */
bool rows_keys(Rows *rows, const char *list);

/* Whether the event's records have all these keys. */
bool rows_are_for(const Rows *rows, int event);

/*
 * Count an event's records by these keys.  Rows are sorted: those with most
 * records first.  Only those that have LIMIT per cent of all, and only TOP, are
 * kept.
 */
void rows_fill(Rows *rows, const Profile *p, int event,
               bool (*filter)(const Profile *p, const Entry *e), double limit,
               size_t top);

/*
 * The same for the rows that those of OUTER, which has the first of these keys,
 * consist of; in the order of these.
 */
void rows_fill_inner(Rows *rows, const Rows *outer, int event,
                     bool (*filter)(const Profile *p, const Entry *e));
void rows_free(Rows *rows);

/* Of the row's records in this key: a number, or a pointer. */
uint64_t row_id(const Rows *rows, const Row *row, int key);

/* A key of a row for people; buffer has room for numbers. */
const char *row_text(const Rows *rows, const Row *row, int key, char *buffer);
#define ROW_TEXT    32

/* The same, with a short name if names are not to be whole. */
const char *row_name(const Rows *rows, const Row *row, int key, char *buffer);

/* A picture of all events. */
void svg_write(FILE *f, const Profile *p);

/*
 * Print the records, with ALL also what else the file has.  False, with a
 * message, if that cannot be written.
 */
bool script_put(Profile *p, const ProfileOptions *options, bool all,
                TextStyle style);

/*
 * Write a page with a timeline and a flame graph of the wanted records to PATH,
 * or print it.  False, with a message, if that cannot be done.
 */
bool html_put(Profile *p, const ProfileOptions *options, const char *path);

#endif
