/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Hash tables of fixed-size items, and text that is kept once.
 */
#ifndef LWP_TABLE_H
#define LWP_TABLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct TableSlot {
    uint32_t hash;
    uint32_t item;          /* index + 1; 0: free */
} TableSlot;

/* Items stay in the order in which they were added; growing moves them. */
typedef struct Table {
    size_t item_size;
    size_t key_size;        /* the first bytes of an item; a multiple of 4 */
    size_t count;
    char *items;
    TableSlot *index;
    size_t mask;
} Table;

/* For items of this type, of which MEMBER is the first after the key. */
#define TABLE(type, member) \
    { .item_size = sizeof(type), .key_size = offsetof(type, member) }

/* The item with this key; if it is new, all but the key is zero. */
void *table_get(Table *t, const void *key);
/* It will be asked for soon. */
void table_prefetch(const Table *t, const void *key);

/* The same, but NULL if there is none. */
void *table_find(const Table *t, const void *key);
/* Give back what only table_get() and table_find() need. */
void table_close(Table *t);
void table_free(Table *t);

/* Of a key of so many bytes, a multiple of 4. */
uint32_t table_hash(const void *key, size_t size);

/* Sort by hash; those with the same one stay in their order. */
void sort_by_hash(TableSlot *slots, size_t n);

static inline void *table_at(const Table *t, size_t i)
{
    return t->items + i * t->item_size;
}

/* These end the program when there is no memory. */
void *grow(void *array, size_t count, size_t size);
void *zeroed(size_t count, size_t size);
const char *keep_text(const char *text);

#endif
