// A module keeps, of each of its statements, the line that it was made from,
// and the host program as a text, read again, has lines of its own. Both unroll
// to the same steps, so the i-th interval of the one is that of the other.
//
// The text that is read again has marks: each outermost loop begins its trips
// with a step that no other text has, so that trips need not be guessed.
//
//     for j in 0..4 {
//         %trip[0] = record      <- a mark
//         on stream j mod 2 {
#include "link.h"

#include <stdlib.h>
#include <string.h>

static size_t indentation(const char *line)
{
    return strspn(line, " ");
}

static int count_lines(const char *text)
{
    int n = 0;

    for (; *text; text = next_line(text))
        n++;
    return n;
}

// ------------------------------------------------------------------ marks

typedef struct marked {
    char *text; // owned
    int *line;  // owned, by line of it: that of the host program; of a mark 0
} marked;

// A name that the program does not have, nor as the beginning of another one.
static char *fresh_name(const char *text)
{
    char *name = need_format("%%trip");

    while (strstr(text, name)) {
        char *longer = need_format("%s_", name);

        free(name);
        name = longer;
    }
    return name;
}

static bool opens_loop(const char *line)
{
    return strncmp(line + indentation(line), "for ", 4) == 0;
}

// Fills `loop`, by line of the host program.
static marked mark_trips(const char *host, int nlines, int *loop)
{
    marked m = {.line = need(2 * (size_t)nlines + 4, sizeof *m.line)};
    char *name = fresh_name(host);
    size_t length = 0, depth = 0;
    FILE *to = open_memstream(&m.text, &length);
    int line = 1, written = 1, around = 0;

    if (!to)
        out_of_memory();
    for (const char *at = host; *at; at = next_line(at), line++) {
        bool opens = around == 0 && opens_loop(at);

        if (*at == '{') {
            fprintf(to, "temp %s : event[1]\n", name);
            written++;
        }
        if (around > 0 && indentation(at) <= depth)
            around = 0;
        fprintf(to, "%.*s\n", (int)strcspn(at, "\n"), at);
        m.line[written++] = line;
        loop[line] = around;
        if (opens) {
            around = line;
            depth = indentation(at);
            fprintf(to, "%s[0] = record\n", name);
            written++;
        }
    }
    free(name);
    if (fclose(to) != 0)
        out_of_memory();
    return m;
}

// --------------------------------------------------------------- intervals

static hd_interval interval_of(const hd_simulation *simulation, int64_t i)
{
    hd_interval v = HD_EMPTY(hd_interval);

    hd_simulation_interval(simulation, i, &v);
    return v;
}

// `again` has the intervals of `first`, and marks.
static void pair_intervals(links *l, const marked *m,
                           const hd_simulation *first,
                           const hd_simulation *again)
{
    int64_t all = hd_simulation_intervals(again), i = 0, trip = 0;
    int around = 0, rank = -1;

    for (int64_t j = 0; j < all; j++) {
        hd_interval v = interval_of(again, j);
        int line = m->line[v.line];

        if (v.rank != rank)
            around = 0;
        rank = v.rank;
        if (line == 0) {
            int opened = m->line[v.line - 1];

            trip = opened == around ? trip + 1 : 0;
            around = opened;
            continue;
        }
        l->host[i] = line;
        l->trip[i] = trip;
        l->source[line] = interval_of(first, i).line;
        i++;
    }
}

static hd_status simulate_again(const marked *m, hd_diag *diag,
                                hd_module **module, hd_simulation **out)
{
    hd_machine machine = HD_EMPTY(hd_machine);
    hd_status status =
        hd_parse("host", m->text, strlen(m->text), NULL, 0, diag, module);

    hd_machine_default(&machine); // when they happen is of no interest
    if (status == HD_OK)
        status = hd_simulate(*module, &machine, NULL, out);
    // The text is none of the reader's: it is at most too long.
    return status == HD_ERROR_INVALID ? HD_ERROR_UNSUPPORTED : status;
}

static hd_status link_intervals(links *l, const marked *m,
                                const hd_simulation *first, hd_diag *diag)
{
    hd_module *module = NULL;
    hd_simulation *again = NULL;
    hd_status status = simulate_again(m, diag, &module, &again);

    l->n = hd_simulation_intervals(first);
    l->host = need((size_t)l->n, sizeof *l->host);
    l->trip = need((size_t)l->n, sizeof *l->trip);
    if (status == HD_OK)
        pair_intervals(l, m, first, again);
    hd_simulation_destroy(again);
    hd_module_destroy(module);
    return status;
}

// ------------------------------------------------------------ declarations

// The name that a line declares, if it begins with a declaration; its length,
// 0 if it does not.
static size_t declared_name(const char *line, const char *end,
                            const char **name)
{
    static const char *const roles[] = {"inout ", "in ", "out ", "temp "};

    while (line < end && (*line == ' ' || *line == '\t'))
        line++;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        size_t length = strlen(roles[i]), n = 0;

        if ((size_t)(end - line) <= length ||
            strncmp(line, roles[i], length) != 0)
            continue;
        for (line += length; line < end && *line == ' '; line++)
            ;
        while (line + n < end && !strchr(" \t\r:", line[n]))
            n++;
        *name = line;
        return n > 0 && *line == '%' ? n : 0;
    }
    return 0;
}

// The line of the source that declares the same name.
static int find_declaration(const content *source, const char *name,
                            size_t length)
{
    const char *at = (const char *)source->bytes, *end = at + source->length;

    for (int line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *there;

        stop = stop ? stop : end;
        if (declared_name(at, stop, &there) == length &&
            memcmp(there, name, length) == 0)
            return line;
        at = stop + 1;
    }
    return 0;
}

static void link_declarations(links *l, const content *source, const char *host)
{
    const char *name;

    for (int line = 1; *host && *host != '{'; host = next_line(host), line++) {
        size_t length = declared_name(host, host + strcspn(host, "\n"), &name);

        if (length > 0)
            l->source[line] = find_declaration(source, name, length);
    }
}

hd_status links_make(const content *source, const char *host,
                     const hd_simulation *simulation, hd_diag *diag, links *out)
{
    links l = {.nlines = count_lines(host)};
    hd_status status = HD_OK;
    marked m;

    l.source = need((size_t)l.nlines + 1, sizeof *l.source);
    l.loop = need((size_t)l.nlines + 1, sizeof *l.loop);
    m = mark_trips(host, l.nlines, l.loop);
    link_declarations(&l, source, host);
    if (simulation)
        status = link_intervals(&l, &m, simulation, diag);
    free(m.text);
    free(m.line);
    *out = l;
    return status;
}

void links_free(links *l)
{
    free(l->source);
    free(l->loop);
    free(l->host);
    free(l->trip);
    memset(l, 0, sizeof *l);
}
