/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Hash tables of fixed-size items, and text that is kept once.
 */
#ifndef LWP_TABLE_H
#define LWP_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* Of a key of so many bytes, a multiple of 4. */
static inline uint32_t table_hash(const void *key, size_t size)
{
    const uint64_t odd = 0x9e3779b97f4a7c15;
    uint64_t h = 0;

    for (size_t i = 0; i < size; i += sizeof(h)) {
        uint64_t word = 0;

        memcpy(&word, (const char *)key + i,
               size - i < sizeof(word) ? sizeof(word) / 2 : sizeof(word));
        h = (h ^ word) * odd;
        h ^= h >> 32;
    }
    return h * odd >> 32;
}

/* The item with this key and hash; if it is new, all but the key is zero. */
void *table_get_hashed(Table *t, const void *key, uint32_t hash);
/* It will be asked for soon. */
void table_prefetch(const Table *t, uint32_t hash);

/* The same, but NULL if there is none. */
void *table_find_hashed(const Table *t, const void *key, uint32_t hash);

static inline void *table_get(Table *t, const void *key)
{
    return table_get_hashed(t, key, table_hash(key, t->key_size));
}

static inline void *table_find(const Table *t, const void *key)
{
    return table_find_hashed(t, key, table_hash(key, t->key_size));
}

/* Give back what only table_get() and table_find() need. */
void table_close(Table *t);
void table_free(Table *t);

/*
 * The N slots sorted by hash, in memory that takes the place of theirs; those
 * with the same one stay in their order.
 */
TableSlot *sort_by_hash(TableSlot *slots, size_t n);

static inline void *table_at(const Table *t, size_t i)
{
    return t->items + i * t->item_size;
}

/* These end the program when there is no memory. */
void *grow(void *array, size_t count, size_t size);
void *zeroed(size_t count, size_t size);
const char *keep_text(const char *text);

#endif
