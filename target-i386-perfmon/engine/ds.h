/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The debug store (SDM 17.4.9): bytes of its area and of the buffers that this
 * describes, which are in guest memory.
 */
#ifndef DS_H
#define DS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define DS_PAGE         4096u

/*
 * Where the host has bytes of one page that a supervisor can write, whatever
 * runs; or NULL, if that raises a #PF or is not memory.  A #PF is not raised.
 * What is there is going to be read and written until the next instruction.
 */
typedef void *DsHost(void *opaque, uint64_t addr, uint32_t len);

/* Little-endian memory */
static inline uint64_t ds_le64(uint64_t val)
{
    const uint16_t one = 1;

    return *(const uint8_t *)&one ? val : __builtin_bswap64(val);
}

static inline uint64_t ds_ld64(const void *p)
{
    uint64_t val;

    memcpy(&val, p, sizeof(val));
    return ds_le64(val);
}

static inline void ds_st64(void *p, uint64_t val)
{
    val = ds_le64(val);
    memcpy(p, &val, sizeof(val));
}

/*
 * The same behind all that has been stored before: as on x86, another processor
 * that sees @val sees that as well, whatever the host is.
 */
static inline void ds_st64_release(void *p, uint64_t val)
{
    if ((uintptr_t)p % sizeof(val) == 0) {
        __atomic_store_n((uint64_t *)p, ds_le64(val), __ATOMIC_RELEASE);
    } else {
        __atomic_thread_fence(__ATOMIC_RELEASE);
        ds_st64(p, val);
    }
}

/* @n of them */
static inline void ds_put_all(void *p, const uint64_t *val, uint32_t n)
{
    if (ds_le64(1) == 1) {
        memcpy(p, val, 8 * n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        ds_st64((uint8_t *)p + 8 * i, val[i]);
    }
}

/* Bytes that the host has, in up to three pages, the last of which is full. */
typedef struct DsBytes {
    uint8_t *part[3];
    uint32_t first;         /* so many in the first page */
} DsBytes;

/* False, if it does not have all of them; @len is 2 * DS_PAGE at most. */
static inline bool ds_reach(DsBytes *b, DsHost *host, void *opaque,
                            uint64_t addr, uint32_t len)
{
    uint32_t n = DS_PAGE - (uint32_t)(addr & (DS_PAGE - 1));
    int i = 0;

    b->first = n;
    b->part[0] = host(opaque, addr, len < n ? len : n);
    while (b->part[i] && len > n) {
        addr += n;
        len -= n;
        n = DS_PAGE;
        b->part[++i] = host(opaque, addr, len < n ? len : n);
    }
    return b->part[i];
}

/* The byte at an offset */
static inline uint8_t *ds_at(const DsBytes *b, uint32_t offset)
{
    uint32_t next = offset - b->first;

    return offset < b->first ? b->part[0] + offset :
           b->part[1 + next / DS_PAGE] + next % DS_PAGE;
}

/*
 * Little-endian fields of @size bytes; the @n-th of them.  One of 8 bytes in
 * one page is one access, which need not be atomic.
 */
static inline uint8_t *ds_in_page(const DsBytes *b, uint32_t size, uint32_t n)
{
    uint32_t offset = n * size;

    if (size == 8 && offset + size <= b->first) {
        return b->part[0] + offset;
    }
    return size == 8 && (offset - b->first) % DS_PAGE <= DS_PAGE - size ?
           ds_at(b, offset) : NULL;
}

static inline uint64_t ds_get(const DsBytes *b, uint32_t size, uint32_t n)
{
    const uint8_t *p = ds_in_page(b, size, n);
    uint64_t val = 0;

    if (p) {
        return ds_ld64(p);
    }
    for (uint32_t i = 0; i < size; i++) {
        val |= (uint64_t)*ds_at(b, n * size + i) << 8 * i;
    }
    return val;
}

static inline void ds_put(const DsBytes *b, uint32_t size, uint32_t n,
                          uint64_t val)
{
    uint8_t *p = ds_in_page(b, size, n);

    if (p) {
        ds_st64(p, val);
        return;
    }
    for (uint32_t i = 0; i < size; i++) {
        *ds_at(b, n * size + i) = (uint8_t)(val >> 8 * i);
    }
}

/* The index of a buffer, behind the record that it tells of */
static inline void ds_put_index(const DsBytes *b, uint32_t size, uint32_t n,
                                uint64_t val)
{
    uint8_t *p = ds_in_page(b, size, n);

    if (p) {
        ds_st64_release(p, val);
    } else {
        __atomic_thread_fence(__ATOMIC_RELEASE);
        ds_put(b, size, n, val);
    }
}

/* The first @len bytes, which are in more than one page */
static inline void ds_copy(const DsBytes *b, const uint8_t *from, uint32_t len)
{
    uint32_t n = b->first;

    for (int i = 0; len; i++) {
        memcpy(b->part[i], from, n);
        from += n;
        len -= n;
        n = len < DS_PAGE ? len : DS_PAGE;
    }
}

#endif
