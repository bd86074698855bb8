/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A page with a timeline of threads and a flame graph: profile.html, with the
 * library that draws them, and with what "lwp script" prints.  It is all in the
 * page, which needs no network.
 */
#include <errno.h>
#include <string.h>
#include "report.h"

#define D3  "/usr/share/javascript/d3/d3.min.js"

static const char page[] = {
#include "profile-html.h"
    , 0
};

/* Print TEXT up to a line that is MARK; returns what is behind it. */
static const char *put_until(const char *text, const char *mark)
{
    const char *end = strstr(text, mark);

    fwrite(text, 1, end - text, stdout);
    return end + strlen(mark);
}

bool html_put(Profile *p, const ProfileOptions *options, const char *path)
{
    FILE *d3 = fopen(D3, "re");
    const char *rest;
    char buffer[4096];
    size_t n;

    if (!d3) {
        fprintf(stderr, "lwp: cannot read " D3 ": %s; Debian's package "
                "libjs-d3 has it\n", strerror(errno));
        return false;
    }
    /* What prints records prints them to there. */
    if (path && !freopen(path, "we", stdout)) {
        fprintf(stderr, "lwp: cannot write %s: %s\n", path, strerror(errno));
        fclose(d3);
        return false;
    }
    rest = put_until(page, "@D3@\n");
    while ((n = fread(buffer, 1, sizeof(buffer), d3))) {
        fwrite(buffer, 1, n, stdout);
    }
    fclose(d3);
    rest = put_until(rest, "@TEXT@\n");
    printf("# command: ");
    put_text(stdout, p->header.command, TEXT_XML);
    printf("\n");
    if (!script_put(p, options, true, TEXT_XML)) {
        return false;
    }
    fputs(rest, stdout);
    return true;
}
