// Temporaries that a program leaves open: a declaration is left out, or says a
// dtype alone, or a placement, or that it is open, where the program is one
// without the rest of it.
// What it computes stays: an extent or a dtype that statements say otherwise
// is another program's, and most such are none. The fuzz targets need one that
// has the same answer, which the public headers do not tell of: they open what
// they parsed themselves (tests/fuzz/open.c).
#include "open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "heddle/heddle.h"

enum { MOST_TRIED = 32 };

// A declaration: "temp %t3 : bf16[4@tp, 6, m0 in 2@stream]", and a new line.
typedef struct line {
    const char *begin, *dtype, *dims, *end;
} line;

static const char *past_line(const char *at)
{
    const char *end = strchr(at, '\n');

    return end != NULL ? end + 1 : at + strlen(at);
}

static bool holds(const char *from, const char *end, const char *what)
{
    const char *at = strstr(from, what);

    return at != NULL && at < end;
}

// False if it is none, or says more than where its dimensions lie.
static bool read_line(const char *at, line *out)
{
    const char *end = past_line(at);
    const char *colon = strchr(at, ':');

    if (strncmp(at, "temp ", 5) != 0 || colon == NULL || colon >= end ||
        end[-1] != '\n' || end[-2] != ']' || holds(at, end, " in ") ||
        holds(at, end, " by "))
        return false;
    *out = (line){at, colon + 2, strchr(colon, '['), end};
    return true;
}

// Whether other declarations have their counts there, and so where it lies.
static bool has_counts(const char *text, const line *l)
{
    char by[32];
    int length = snprintf(by, sizeof by, " by %.*s",
                          (int)strcspn(l->begin + 5, " :"), l->begin + 5);

    for (const char *at = strstr(text, by); at != NULL; at = strstr(at + 1, by))
        if (at[length] < '0' || at[length] > '9')
            return true;
    return false;
}

// "[: @tp, :]"
static void put_place(const line *l, FILE *to)
{
    for (const char *c = l->dims; c < l->end - 1; c++) {
        bool first = c[0] == '[' || (c[0] == ' ' && c[-1] == ',');

        fputc(*c, to);
        if (!first || c[1] == ']')
            continue;
        fputc(':', to);
        while (strchr("@,]", c[1]) == NULL)
            c++;
        if (c[1] == '@')
            fputc(' ', to);
    }
}

typedef enum left { NOTHING, DTYPE, PLACE, BOTH, OPEN } left;

// The program without the rest of the line. The caller frees it.
static char *leave(const char *text, const line *l, left what)
{
    char *made = NULL;
    size_t length;
    FILE *to = open_memstream(&made, &length);

    if (to == NULL)
        return NULL;
    fwrite(text, 1, (size_t)(l->begin - text), to);
    if (what == OPEN) {
        fprintf(to, "%.*s open\n%s", (int)(l->end - l->begin) - 1, l->begin,
                l->end);
        fclose(to);
        return made;
    }
    if (what != NOTHING)
        fwrite(l->begin, 1, (size_t)(l->dtype - l->begin), to);
    if (what == DTYPE || what == BOTH)
        fwrite(l->dtype, 1, (size_t)(l->dims - l->dtype), to);
    if (what == PLACE || what == BOTH)
        put_place(l, to);
    fprintf(to, "%s%s", what != NOTHING ? "\n" : "", l->end);
    fclose(to);
    return made;
}

static bool is_program(const char *text)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = NULL;
    bool parses =
        hd_parse("open", text, strlen(text), NULL, 0, diag, &module) == HD_OK;

    hd_module_destroy(module);
    hd_diag_destroy(diag);
    return parses;
}

// Half of them stay. Whole numbers are exact in the dtypes that are declared.
static bool draw_left(choices *choices, bool dtypes, left *out)
{
    static const left open[] = {NOTHING, NOTHING, PLACE, DTYPE, BOTH},
                      typed[] = {DTYPE, DTYPE, BOTH, DTYPE, BOTH};
    int kind = choices_pick(choices, 10);

    if (kind < 5)
        return false;
    *out = dtypes ? typed[kind - 5] : open[kind - 5];
    return true;
}

char *open_declarations(char *text, bool dtypes, choices *choices)
{
    size_t at = 0;
    int tried = 0;

    while (text[at] != '\0' && text[at] != '{' && tried < MOST_TRIED) {
        char *made = NULL;
        left what;
        line l;

        if (read_line(text + at, &l) && !has_counts(text, &l) &&
            draw_left(choices, dtypes, &what)) {
            made = leave(text, &l, what);
            tried++;
            if (made != NULL && !is_program(made) &&
                !holds(l.dims, l.end, "@")) { // as one written in parts
                free(made);
                what = OPEN;
                made = leave(text, &l, what);
            }
        }
        if (made != NULL && is_program(made)) {
            free(text);
            text = made;
            if (what == NOTHING)
                continue;
        } else {
            free(made);
        }
        at = (size_t)(past_line(text + at) - text);
    }
    return text;
}
