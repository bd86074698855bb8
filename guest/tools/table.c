/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Hash tables of fixed-size items, and text that is kept once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "table.h"

#define HUGE    (2ull << 20)    /* bytes of a large page */

static void *check_memory(void *p)
{
    if (!p) {
        fprintf(stderr, "lwp: out of memory\n");
        exit(1);
    }
    return p;
}

/* Room for one more item in an array that doubles. */
void *grow(void *array, size_t count, size_t size)
{
    if (count & (count - 1) || count == 1) {
        return array;       /* there is room up to the next power of two */
    }
    return check_memory(reallocarray(array, count ? count * 2 : 2, size));
}

/* What is large is read all over: fewer pages, fewer misses of the TLB. */
void *zeroed(size_t count, size_t size)
{
    char *p = check_memory(calloc(count, size));
    uintptr_t start = ((uintptr_t)p + HUGE - 1) & -HUGE;
    uintptr_t end = ((uintptr_t)p + count * size) & -HUGE;

    if (start < end) {
        madvise((void *)start, end - start, MADV_HUGEPAGE);
    }
    return p;
}

static void reindex(Table *t)
{
    size_t old_size = t->mask ? t->mask + 1 : 0;
    size_t size = old_size ? old_size * 2 : 64;
    TableSlot *old = t->index;

    t->index = zeroed(size, sizeof(TableSlot));
    t->mask = size - 1;
    for (size_t i = 0; i < old_size; i++) {
        size_t slot = old[i].hash & t->mask;

        if (old[i].item) {
            while (t->index[slot].item) {
                slot = (slot + 1) & t->mask;
            }
            t->index[slot] = old[i];
        }
    }
    free(old);
}

/* Where it is, or would be. */
static TableSlot *find_slot(const Table *t, const void *key, uint32_t h)
{
    size_t slot = h & t->mask;

    while (t->index[slot].item &&
           (t->index[slot].hash != h ||
            memcmp(table_at(t, t->index[slot].item - 1), key, t->key_size))) {
        slot = (slot + 1) & t->mask;
    }
    return &t->index[slot];
}

void *table_find_hashed(const Table *t, const void *key, uint32_t h)
{
    const TableSlot *slot;

    if (!t->count) {
        return NULL;
    }
    slot = find_slot(t, key, h);
    return slot->item ? table_at(t, slot->item - 1) : NULL;
}

void table_prefetch(const Table *t, uint32_t h)
{
    if (t->index) {
        __builtin_prefetch(&t->index[h & t->mask]);
    }
}

void *table_get_hashed(Table *t, const void *key, uint32_t h)
{
    TableSlot *slot;
    char *item;

    if (t->count * 4 >= t->mask * 3) {
        reindex(t);
    }
    slot = find_slot(t, key, h);
    if (slot->item) {
        return table_at(t, slot->item - 1);
    }
    t->items = grow(t->items, t->count, t->item_size);
    item = table_at(t, t->count++);
    memcpy(item, key, t->key_size);
    memset(item + t->key_size, 0, t->item_size - t->key_size);
    *slot = (TableSlot) { h, t->count };
    return item;
}

TableSlot *sort_by_hash(TableSlot *slots, size_t n)
{
    enum { BITS = 11, SIZE = 1 << BITS };
    TableSlot *from = slots, *to = zeroed(n, sizeof(*to)), *old;

    for (int shift = 0; shift < 32; shift += BITS) {
        size_t at[SIZE + 1] = { 0 };

        for (size_t i = 0; i < n; i++) {
            at[(from[i].hash >> shift & (SIZE - 1)) + 1]++;
        }
        for (int i = 0; i < SIZE; i++) {
            at[i + 1] += at[i];
        }
        for (size_t i = 0; i < n; i++) {
            to[at[from[i].hash >> shift & (SIZE - 1)]++] = from[i];
        }
        old = from;
        from = to;
        to = old;
    }
    free(to);
    return from;
}

void table_close(Table *t)
{
    free(t->index);
    t->index = NULL;
    t->mask = 0;
}

void table_free(Table *t)
{
    free(t->items);
    free(t->index);
    *t = (Table) { .item_size = t->item_size, .key_size = t->key_size };
}

typedef struct Text {
    uint64_t hash, nth;     /* of the texts that have this hash */
    const char *text;
} Text;

const char *keep_text(const char *text)
{
    static Table texts = TABLE(Text, text);
    uint64_t key[2] = { 5381, 0 };
    Text *item;

    for (const char *c = text; *c; c++) {
        key[0] = key[0] * 33 ^ (unsigned char)*c;
    }
    for (;; key[1]++) {
        item = table_get(&texts, key);
        if (!item->text) {
            item->text = check_memory(strdup(text));
        }
        if (!strcmp(item->text, text)) {
            return item->text;
        }
    }
}
