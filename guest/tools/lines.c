/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Source lines of the code in ELF files, and functions inside of others.
 *
 * libdwfl is not asked which compilation unit an address is in, as it only
 * looks into .debug_aranges, which compilers other than GCC leave out.
 */
#include <dwarf.h>
#include <stdlib.h>
#include "object.h"

static int compare_cus(const void *a, const void *b)
{
    const CuRange *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

/* .debug_aranges need not be there, so this asks each compilation unit. */
static void read_cus(Object *o)
{
    Dwarf_Off at = 0, next;
    Dwarf_Addr bias;
    size_t header;

    o->lines_read = true;
    o->dwarf = o->module ? dwfl_module_getdwarf(o->module, &bias) : NULL;
    for (; o->dwarf && !dwarf_nextcu(o->dwarf, at, &next, &header, NULL, NULL,
                                     NULL); at = next) {
        Dwarf_Addr base, start, end;
        ptrdiff_t i = 0;
        Dwarf_Die die;

        if (!dwarf_offdie(o->dwarf, at + header, &die)) {
            continue;
        }
        while ((i = dwarf_ranges(&die, i, &base, &start, &end)) > 0) {
            o->cus = grow(o->cus, o->nr_cus, sizeof(*o->cus));
            o->cus[o->nr_cus++] = (CuRange) {
                start, end, dwarf_dieoffset(&die), false
            };
        }
    }
    if (o->nr_cus) {
        qsort(o->cus, o->nr_cus, sizeof(*o->cus), compare_cus);
    }
}

/* How many pieces of compilation units start at the address or before. */
static size_t cus_until(Object *o, uint64_t address)
{
    size_t low = 0, high;

    if (!o->lines_read) {
        read_cus(o);
    }
    high = o->nr_cus;
    while (low < high) {
        size_t mid = (low + high) / 2;

        if (o->cus[mid].start <= address) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

/* The piece that an address is in. */
static CuRange *find_cu(Object *o, uint64_t address)
{
    size_t n = cus_until(o, address);

    return n && address < o->cus[n - 1].end ? &o->cus[n - 1] : NULL;
}

bool object_has_lines(Object *o)
{
    if (!o->lines_read) {
        read_cus(o);
    }
    return o->nr_cus;
}

const char *object_line(Object *o, uint64_t address, int *line)
{
    const CuRange *cu = find_cu(o, address);
    Dwarf_Line *l;
    Dwarf_Die die;

    if (!cu || !dwarf_offdie(o->dwarf, cu->die, &die)) {
        return NULL;
    }
    l = dwarf_getsrc_die(&die, address);
    return l && !dwarf_lineno(l, line) && *line ? dwarf_linesrc(l, NULL, NULL)
                                                : NULL;
}

static const char *inlined_name(Dwarf_Die *die)
{
    static const unsigned names[] = { DW_AT_linkage_name, DW_AT_name };

    for (int i = 0; i < 2; i++) {
        Dwarf_Attribute attr;
        const char *name = dwarf_formstring(
            dwarf_attr_integrate(die, names[i], &attr));

        if (name) {
            return readable_name(keep_text(name));
        }
    }
    return "?";
}

static uint64_t number_in(Dwarf_Die *die, unsigned name)
{
    Dwarf_Attribute attr;
    Dwarf_Word value;

    return dwarf_formudata(dwarf_attr(die, name, &attr), &value) ? 0 : value;
}

/* All of a compilation unit, to be asked for many addresses. */
static void walk(Object *o, Dwarf_Files *files, Dwarf_Die *parent,
                 size_t outer, int depth)
{
    Dwarf_Die die;

    if (depth > 200 || dwarf_child(parent, &die)) {
        return;
    }
    do {
        size_t inside = outer;
        Dwarf_Addr base, start, end;
        ptrdiff_t i = 0;

        switch (dwarf_tag(&die)) {
        case DW_TAG_inlined_subroutine:
            o->inlined = grow(o->inlined, o->nr_inlined, sizeof(*o->inlined));
            inside = ++o->nr_inlined;
            o->inlined[inside - 1] = (Inlined) {
                .call = {
                    inlined_name(&die), dwarf_filesrc(
                        files, number_in(&die, DW_AT_call_file), NULL, NULL),
                    number_in(&die, DW_AT_call_line), inside,
                }, .depth = depth, .outer = outer,
            };
            while ((i = dwarf_ranges(&die, i, &base, &start, &end)) > 0) {
                o->ranges = grow(o->ranges, o->nr_ranges, sizeof(*o->ranges));
                o->ranges[o->nr_ranges++] = (InlinedRange) {
                    start, end, 0, inside - 1
                };
            }
            /* fallthrough */
        case DW_TAG_subprogram:
        case DW_TAG_lexical_block:
        case DW_TAG_namespace:
        case DW_TAG_module:
            walk(o, files, &die, inside, depth + 1);
        }
    } while (!dwarf_siblingof(&die, &die));
}

static int compare_ranges(const void *a, const void *b)
{
    const InlinedRange *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

static void walk_once(Object *o, CuRange *cu)
{
    const uint64_t key = cu->die;
    Dwarf_Files *files = NULL;
    uint64_t max_end = 0;
    Dwarf_Die die;

    if (cu->walked) {
        return;
    }
    cu->walked = true;
    o->walked.item_size = o->walked.key_size = sizeof(key);
    if (table_find(&o->walked, &key) || !dwarf_offdie(o->dwarf, key, &die)) {
        return;
    }
    table_get(&o->walked, &key);
    dwarf_getsrcfiles(&die, &files, NULL);
    walk(o, files, &die, 0, 0);
    if (o->nr_ranges) {
        qsort(o->ranges, o->nr_ranges, sizeof(*o->ranges), compare_ranges);
    }
    for (size_t i = 0; i < o->nr_ranges; i++) {
        max_end = o->ranges[i].end > max_end ? o->ranges[i].end : max_end;
        o->ranges[i].max_end = max_end;
    }
}

/* How many ranges start at the address or before. */
static size_t ranges_until(const Object *o, uint64_t address)
{
    size_t low = 0, high = o->nr_ranges;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (o->ranges[mid].start <= address) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

bool function_has_inlined(Function *f)
{
    Object *o = (Object *)f->object;
    size_t n;

    if (!f->size) {
        return object_has_lines(o);     /* it may be anywhere */
    }
    if (!f->walked) {
        f->walked = true;
        n = cus_until(o, f->start + f->size - 1);
        while (n-- && o->cus[n].end > f->start) {
            walk_once(o, &o->cus[n]);
        }
        n = ranges_until(o, f->start + f->size - 1);
        f->has_inlined = n && o->ranges[n - 1].max_end > f->start;
    }
    return f->has_inlined;
}

int object_inlined(Object *o, uint64_t address, Call *calls, int max)
{
    const Inlined *innermost = NULL;
    CuRange *cu = find_cu(o, address);
    size_t low;
    int n = 0;

    if (!cu) {
        return 0;
    }
    walk_once(o, cu);
    low = ranges_until(o, address);
    while (low-- && o->ranges[low].max_end > address) {
        const Inlined *in = &o->inlined[o->ranges[low].what];

        if (address < o->ranges[low].end &&
            (!innermost || in->depth > innermost->depth)) {
            innermost = in;
        }
    }
    while (innermost && n < max) {
        calls[n++] = innermost->call;
        innermost = innermost->outer ? &o->inlined[innermost->outer - 1]
                                     : NULL;
    }
    return n;
}
