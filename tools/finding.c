// See finding.h.
#include "finding.h"

#include <stdlib.h>
#include <string.h>

// How far a place goes the carets of hd_diag_text alone say. `at` is on the
// line of a message, and goes on to the next one.
static int take_width(const char **at)
{
    static const char gutter[] = "        | ";
    const char *excerpt = next_line(*at), *carets = next_line(excerpt);

    *at = excerpt;
    if (strncmp(carets, gutter, sizeof gutter - 1) != 0)
        return 1;
    *at = next_line(carets);
    carets += sizeof gutter - 1;
    carets += strspn(carets, " ");
    return (int)strspn(carets, "^~");
}

findings findings_of(hd_diag *diag)
{
    findings f = {.n = hd_diag_count(diag)};
    const char *at = hd_diag_text(diag);

    f.all = need(f.n, sizeof *f.all);
    for (size_t i = 0; i < f.n; i++) {
        finding *to = &f.all[i];
        hd_message m = HD_EMPTY(hd_message);

        hd_diag_message(diag, i, &m);
        to->severity = m.severity;
        snprintf(to->code, sizeof to->code, "%s", m.code);
        to->text = need_format("%s", m.text);
        to->source = (place){m.line, m.column, take_width(&at)};
    }
    f.rest = need_format("%s", at);
    return f;
}

void findings_locate(findings *f, size_t first, hd_diag *host)
{
    findings there = findings_of(host);

    for (size_t i = 0; first + there.n == f->n && i < there.n; i++) {
        finding *to = &f->all[first + i];

        if (strcmp(to->code, there.all[i].code) == 0)
            to->host = there.all[i].source;
    }
    findings_free(&there);
}

void findings_free(findings *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->all[i].text);
    free(f->all);
    free(f->rest);
    memset(f, 0, sizeof *f);
}
