/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A picture of a profile, one panel for each event: what every program, object,
 * function and source line has of the records, and a bar for each hot function.
 */
#include <inttypes.h>
#include <string.h>
#include "report.h"
#include "svg-script.h"

#define WIDTH       1200.0
#define MARGIN      12.0
#define INSIDE      (WIDTH - 2 * MARGIN)
#define LEVELS      4           /* keys of a row */
#define LEVEL       26.0        /* height */
#define BAR         22.0
#define BARS        12          /* at most */
#define NAME        420.0       /* width of a bar's name */
#define LETTER      7.0         /* about, of 12 px text */
#define TITLE       64.0        /* height, with the panel's space above */
#define LEAST       0.1         /* what is narrower is not drawn */

/* The same object has the same colour everywhere. */
static void put_fill(FILE *f, const char *object, int lightness)
{
    unsigned hash = 7;

    for (; *object; object++) {
        hash = hash * 31 + (unsigned char)*object;
    }
    fprintf(f, "fill=\"hsl(%u,60%%,%d%%)\"", hash * 47 % 360, lightness);
}

static void put_label(FILE *f, double x, double y, double width,
                      const char *text)
{
    int room = width / LETTER;

    if (room >= 3) {
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">", x + 4, y + 17);
        put_text_cut(f, text, TEXT_XML, room);
        fprintf(f, "</text>");
    }
}

static void put_title(FILE *f, const Profile *p, int event, uint64_t count)
{
    fprintf(f, ": %" PRIu64 " records, %.2f%%</title>", count,
            100.0 * count / p->records[event]);
}

static double put_levels(FILE *f, const Profile *p, int event, double y)
{
    static const char *const keys[LEVELS] = {
        "comm", "comm,dso", "comm,dso,symbol", "comm,dso,symbol,srcline",
    };
    Rows rows[LEVELS];
    char buffer[ROW_TEXT];

    fprintf(f, "<g class=\"panel\"><text class=\"m\" x=\"%.0f\" y=\"%.1f\" "
            "text-anchor=\"middle\" fill=\"#c00\"></text>\n", WIDTH / 2,
            y - 12);
    for (int level = 0; level < LEVELS; level++, y += LEVEL) {
        Rows *these = &rows[level];
        uint64_t before = 0;

        rows_keys(these, keys[level]);
        if (level) {
            rows_fill_inner(these, &rows[level - 1], event, NULL);
        } else {
            rows_fill(these, p, event, NULL, 0, SIZE_MAX);
        }
        for (size_t i = 0; i < these->count; i++) {
            const Row *r = &these->rows[i];
            double x = MARGIN + INSIDE * before / p->records[event];
            double width = INSIDE * r->count / p->records[event];
            const char *text = row_name(these, r, level, buffer);

            before += r->count;
            if (width < LEAST || !strcmp(text, "?")) {
                continue;
            }
            fprintf(f, "<g class=\"f\" data-n=\"");
            put_text(f, text, TEXT_XML);
            fprintf(f, "\"><title>");
            for (int k = 0; k <= level; k++) {
                put_text(f, row_text(these, r, k, buffer), TEXT_XML);
                fputs(k < level ? "; " : "", f);
            }
            put_title(f, p, event, r->count);
            fprintf(f, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" "
                    "height=\"%.0f\" rx=\"2\" ", x, y, width, LEVEL - 2);
            put_fill(f, level ? row_text(these, r, 1, buffer) : "",
                     level == 3 ? 88 : level == 2 ? 74 : 82);
            fprintf(f, "/>");
            put_label(f, x, y, width - 4, row_name(these, r, level, buffer));
            fprintf(f, "</g>\n");
        }
    }
    fprintf(f, "</g>\n");
    for (int level = 0; level < LEVELS; level++) {
        rows_free(&rows[level]);
    }
    return y;
}

static double put_bars(FILE *f, const Profile *p, int event, double y)
{
    Rows rows;

    rows_keys(&rows, "dso,symbol");
    rows_fill(&rows, p, event, NULL, 0, BARS);
    for (size_t i = 0; i < rows.count; i++, y += BAR) {
        const Row *r = &rows.rows[i];
        double room = INSIDE - NAME - 60;
        double width = room * r->count / rows.rows[0].count;
        const char *object = row_text(&rows, r, 0, NULL);
        char text[300];

        fprintf(f, "<g><title>");
        put_text(f, object, TEXT_XML);
        fputs("; ", f);
        put_text(f, row_text(&rows, r, 1, NULL), TEXT_XML);
        put_title(f, p, event, r->count);
        fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" "
                "height=\"%.0f\" rx=\"2\" ", MARGIN + NAME, y, width, BAR - 4);
        put_fill(f, object, 74);
        fprintf(f, "/>");
        snprintf(text, sizeof(text), "%s  (%s)", row_name(&rows, r, 1, NULL),
                 object);
        put_label(f, MARGIN, y - 2, NAME - 8, text);
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">%.2f%%</text></g>\n",
                MARGIN + NAME + width + 4, y + 14,
                100.0 * r->count / p->records[event]);
    }
    rows_free(&rows);
    return y;
}

static size_t nr_bars(const Profile *p, int event)
{
    Rows rows;
    size_t n;

    rows_keys(&rows, "dso,symbol");
    rows_fill(&rows, p, event, NULL, 0, BARS);
    n = rows.count;
    rows_free(&rows);
    return n;
}

void svg_write(FILE *f, const Profile *p)
{
    double height = TITLE, y = TITLE;

    for (int event = 1; event < 256; event++) {
        if (p->records[event]) {
            height += TITLE + LEVELS * LEVEL + 8 + nr_bars(p, event) * BAR;
        }
    }
    fprintf(f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
            "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-size=\"12\" "
            "font-family=\"DejaVu Sans Mono,Consolas,Menlo,monospace\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fdfdfb\"/>\n"
            "<text x=\"%.0f\" y=\"28\" font-size=\"18\" font-weight=\"bold\">",
            WIDTH, height, WIDTH, height, MARGIN);
    put_text_cut(f, p->header.command, TEXT_XML,
                 INSIDE / (LETTER * 18 / 12));
    fprintf(f, "</text>\n<text x=\"%.0f\" y=\"50\" fill=\"%s\">", MARGIN,
            p->missed ? "#c00" : "#555");
    if (p->missed) {
        fprintf(f, "%" PRIu64 " records were missed: the ring was full. ",
                p->missed);
    }
    fprintf(f, "Programs, objects, functions and source lines, as wide as "
            "their share; point at one for its name, click to widen it."
            "</text>\n<text class=\"search\" visibility=\"hidden\" x=\"%.0f\" "
            "y=\"28\" text-anchor=\"end\" fill=\"#04c\">Search</text>\n",
            WIDTH - MARGIN);
    for (int event = 1; event < 256; event++) {
        if (!p->records[event]) {
            continue;
        }
        fprintf(f, "<text x=\"%.0f\" y=\"%.1f\" font-size=\"15\" "
                "font-weight=\"bold\">%s: %s</text>\n"
                "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\" "
                "fill=\"#555\">%" PRIu64 " records", MARGIN, y + 40,
                event_name(event), event_title(event), WIDTH - MARGIN, y + 40,
                p->records[event]);
        if (event <= LWP_NR_EVENTS) {
            fprintf(f, ", one for every %.10g", event_period(p, event));
        }
        fprintf(f, "</text>\n");
        y = put_levels(f, p, event, y + TITLE - 12);
        y = put_bars(f, p, event, y + 8);
    }
    fprintf(f, "<script><![CDATA[\n%s]]></script>\n</svg>\n", svg_script);
}
