// The page's frame, its looks and what it does are view.html; this fills it.
//
// Elements know each other by keys: "s7" is line 7 of the program as it was
// written, "h20" line 20 of the host program. What an element stands for is its
// data-own; data-k has all keys that it is shown with.
#include "page.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plain.h"

extern const unsigned char view_html[]; // view.html, made when this is built

enum {
    MOST_RANKS = 8,  // that have a column, as they have lanes in the picture
    MOST_TRIPS = 64, // of a loop
    MOST_STEPS = 12, // of a rank in one trip
};

// ------------------------------------------------------------------- text

// Text from outside: nothing of it is markup, and nothing hides.
static void put(FILE *to, const char *text, size_t length)
{
    while (length > 0) {
        size_t n = plain_character(text, length);
        char c = *text;

        if (n == 0 && c != '\t')
            fprintf(to, "\\x%02x", (unsigned char)c);
        else if (strchr("&<>\"'", c) && c)
            fprintf(to, "&#%d;", c);
        else
            fwrite(text, 1, n ? n : 1, to);
        text += n ? n : 1;
        length -= n ? n : 1;
    }
}

static void put_text(FILE *to, const char *text)
{
    put(to, text, strlen(text));
}

// Up to `mark` of the template, which is behind it then.
static void put_frame(FILE *to, const char **at, const char *mark)
{
    const char *end = strstr(*at, mark);

    fwrite(*at, 1, (size_t)(end - *at), to);
    *at = end + strlen(mark);
}

static const char *const severities[] = {"error", "warning", "note"};

// --------------------------------------------------------------- findings

static void put_place(FILE *to, const place *place, char key)
{
    if (place->line > 0)
        fprintf(to, "<a href='#%c%d' data-own='%c%d'>%s %d:%d</a> ", key,
                place->line, key, place->line, key == 's' ? "line" : "host",
                place->line, place->column);
}

static void put_finding(const page *p, const finding *f, FILE *to)
{
    fprintf(to, "<p class='%s'>", severities[f->severity]);
    put_place(to, &f->source, 's');
    if (!p->complete)
        put_place(to, &f->host, 'h');
    fprintf(to, "<b>%s</b> ", severities[f->severity]);
    if (*f->code)
        fprintf(to, "<code>%s</code> ", f->code);
    put_text(to, f->text);
    fprintf(to, "</p>\n");
}

static void put_findings(const page *p, FILE *to)
{
    const findings *f = p->findings;

    fprintf(to, "<section id='findings'><h2>Findings</h2>\n");
    for (size_t i = 0; i < f->n; i++)
        put_finding(p, &f->all[i], to);
    if (*f->rest) {
        fprintf(to, "<p class='error'>");
        put_text(to, f->rest);
        fprintf(to, "</p>\n");
    }
    if (f->n == 0)
        fprintf(to, "<p>None. It neither deadlocks nor races on any rank, and "
                    "reads nothing that was not written.</p>\n");
    fprintf(to, "</section>\n");
}

// ------------------------------------------------------------------ texts

// One of the two texts, line by line.
typedef struct text {
    const page *p;
    const char *at, *end;
    char key;
    int *first, *next; // owned: chains of the host lines of a source line
} text;

static const place *place_in(const text *t, const finding *f)
{
    return t->key == 's' ? &f->source : &f->host;
}

// What is marked at byte `i` of a line, most severe first; -1 if nothing is.
static int found_at(const text *t, int line, int i)
{
    const findings *f = t->p->findings;
    int best = -1;

    for (size_t k = 0; k < f->n; k++) {
        const place *at = place_in(t, &f->all[k]);

        if (at->line == line && i + 1 >= at->column &&
            i + 1 < at->column + at->width &&
            (best < 0 || f->all[k].severity < f->all[best].severity))
            best = (int)k;
    }
    return best;
}

static bool is_found(const text *t, int line)
{
    const findings *f = t->p->findings;

    for (size_t k = 0; k < f->n; k++)
        if (place_in(t, &f->all[k])->line == line)
            return true;
    return false;
}

static void put_run(const finding *f, const char *at, int length, FILE *to)
{
    if (f) {
        fprintf(to, "<mark class='%s' title='", severities[f->severity]);
        put_text(to, f->text);
        fprintf(to, "'>");
    }
    put(to, at, (size_t)length);
    if (f)
        fprintf(to, "</mark>");
}

// One byte beyond the last stands for the end of the line.
static void put_found(const text *t, int line, int length, FILE *to)
{
    for (int from = 0, until; from <= length; from = until) {
        int here = found_at(t, line, from);

        for (until = from + 1; until <= length; until++)
            if (found_at(t, line, until) != here)
                break;
        put_run(here < 0 ? NULL : &t->p->findings->all[here], t->at + from,
                (until < length ? until : length) - from, to);
    }
}

static void put_keys(const text *t, int line, FILE *to)
{
    fprintf(to, "%c%d", t->key, line);
    if (!t->first)
        return;
    if (t->key == 'h' && t->p->links->source[line] > 0)
        fprintf(to, " s%d", t->p->links->source[line]);
    for (int h = t->key == 's' ? t->first[line] : 0; h > 0; h = t->next[h])
        fprintf(to, " h%d", h);
}

static void put_line_of(const text *t, int line, size_t length, FILE *to)
{
    bool found = is_found(t, line);

    fprintf(to, "<div class='line%s' id='%c%d' data-own='%c%d' data-k='",
            found ? " found" : "", t->key, line, t->key, line);
    put_keys(t, line, to);
    fprintf(to, "'><a class='n' href='#%c%d'>%d</a><code>", t->key, line, line);
    if (found)
        put_found(t, line, (int)length, to);
    else
        put(to, t->at, length);
    fprintf(to, "</code></div>\n");
}

static void put_lines(text *t, FILE *to)
{
    for (int line = 1; t->at < t->end || is_found(t, line); line++) {
        const char *stop = t->at < t->end
                               ? memchr(t->at, '\n', (size_t)(t->end - t->at))
                               : NULL;
        size_t length = (size_t)((stop ? stop : t->end) - t->at);

        put_line_of(
            t, line,
            length > 0 && t->at[length - 1] == '\r' ? length - 1 : length, to);
        t->at = stop ? stop + 1 : t->end;
    }
}

static int count_lines(const content *source)
{
    int n = 1;

    for (size_t i = 0; i < source->length; i++)
        n += source->bytes[i] == '\n';
    return n;
}

static void chain_lines(text *t)
{
    const links *l = t->p->links;
    int n = count_lines(t->p->source);

    t->first = need((size_t)n + 1, sizeof *t->first);
    t->next = need((size_t)l->nlines + 1, sizeof *t->next);
    for (int h = l->nlines; h > 0; h--) {
        int *first = &t->first[l->source[h]];

        t->next[h] = *first;
        *first = h;
    }
}

static void put_pane(const page *p, const char *at, size_t length, char key,
                     const char *title, FILE *to)
{
    text t = {.p = p, .at = at, .end = at + length, .key = key};

    if (p->links)
        chain_lines(&t);
    fprintf(to, "<div><h2>%s</h2><div class='pane' data-roam>\n", title);
    put_lines(&t, to);
    fprintf(to, "</div></div>\n");
    free(t.first);
    free(t.next);
}

static void put_texts(const page *p, FILE *to)
{
    fprintf(to, "<section id='texts'>\n");
    put_pane(p, (const char *)p->source->bytes, p->source->length, 's',
             p->complete ? "Host program"
             : p->name   ? "Tensor program"
                         : "Program",
             to);
    if (p->host && !p->complete)
        put_pane(p, p->host, strlen(p->host), 'h', "Host program", to);
    fprintf(to, "</section>\n");
}

// --------------------------------------------------------------- pipeline

// A step in the table: what happens in one trip of one loop is a row, and what
// does not, behind which loop it comes.
typedef struct item {
    int loop; // the line of the one that it is in or behind; 0 if ahead of all
    int64_t trip; // BEHIND if it is in none
    int64_t at;   // its interval
    int rank;
} item;

#define BEHIND INT64_MAX

static int compare_items(const void *x, const void *y)
{
    const item *a = x, *b = y;

    if (a->loop != b->loop)
        return a->loop - b->loop;
    if (a->trip != b->trip)
        return a->trip < b->trip ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank - b->rank;
    return (a->at > b->at) - (a->at < b->at);
}

// The last line that began an outermost loop, by line.
static int *find_heads(const links *l)
{
    int *head = need((size_t)l->nlines + 2, sizeof *head);

    for (int line = 1; line <= l->nlines; line++)
        head[line] = l->loop[line] > 0 ? l->loop[line] : head[line - 1];
    return head;
}

// Of the ranks that are shown, in the order of the table; the caller frees
// them.
static item *find_items(const page *p, int64_t *n)
{
    const links *l = p->links;
    item *items = need((size_t)l->n + 1, sizeof *items);
    int *head = find_heads(l);

    *n = 0;
    for (int64_t i = 0; i < l->n; i++) {
        const hd_interval *v = &p->line->interval[i];
        int line = l->host[i];

        if (v->rank < MOST_RANKS && v->work != HD_WORK_SYNC)
            items[(*n)++] =
                (item){head[line], l->loop[line] > 0 ? l->trip[i] : BEHIND, i,
                       v->rank};
    }
    free(head);
    qsort(items, (size_t)*n, sizeof *items, compare_items);
    return items;
}

static void put_step(const page *p, int64_t i, FILE *to)
{
    const hd_interval *v = &p->line->interval[i];
    char name[128];

    hd_simulation_name(p->line->names, i, name, sizeof name);
    fprintf(to,
            "<div class='step %s%s' data-own='h%d' data-k='s%d h%d' "
            "title='%.2f us from %.2f'>",
            v->work == HD_WORK_COMPUTE ? "compute" : "transfer",
            v->critical ? " critical" : "", p->links->host[i], v->line,
            p->links->host[i], (v->end - v->start) * 1e6, v->start * 1e6);
    put_text(to, name);
    if (v->peer >= 0)
        fprintf(to, " %s %d", strcmp(v->op, "send") == 0 ? "to" : "from",
                v->peer);
    fprintf(to, "</div>");
}

// The steps of one rank in a row.
static void put_cell(const page *p, const item *items, int64_t n, FILE *to)
{
    fprintf(to, "<td>");
    for (int64_t i = 0; i < n && i < MOST_STEPS; i++)
        put_step(p, items[i].at, to);
    if (n > MOST_STEPS)
        fprintf(to, "<div>and %" PRId64 " more</div>", n - MOST_STEPS);
    fprintf(to, "</td>");
}

static int shown_ranks(const page *p)
{
    return p->ranks < MOST_RANKS ? p->ranks : MOST_RANKS;
}

static void put_row(const page *p, const item *items, int64_t n, FILE *to)
{
    int64_t i = 0;

    fprintf(to, "<tr><th scope='row'>");
    if (items->trip != BEHIND)
        fprintf(to, "%" PRId64, items->trip);
    fprintf(to, "</th>");
    for (int rank = 0; rank < shown_ranks(p); rank++) {
        int64_t from = i;

        while (i < n && items[i].rank == rank)
            i++;
        put_cell(p, items + from, i - from, to);
    }
    fprintf(to, "</tr>\n");
}

// What a row, or several, is under.
static void put_span(const page *p, const item *row, FILE *to)
{
    const char *line = p->host;

    fprintf(to, "<tr><th scope='rowgroup' colspan='%d'", shown_ranks(p) + 1);
    if (row->trip == BEHIND) {
        fprintf(to, ">%s</th></tr>\n",
                row->loop > 0 ? "behind the loop" : "outside of loops");
        return;
    }
    for (int i = 1; i < row->loop; i++)
        line += strcspn(line, "\n") + 1;
    line += strspn(line, " ");
    fprintf(to, " data-own='h%d' data-k='h%d'>", row->loop, row->loop);
    put(to, line, strcspn(line, "{\n"));
    fprintf(to, "</th></tr>\n");
}

static void put_rows(const page *p, const item *items, int64_t n, FILE *to)
{
    const item *before = NULL;

    for (int64_t i = 0, next; i < n; i = next) {
        const item *row = &items[i];

        for (next = i + 1; next < n && items[next].loop == row->loop &&
                           items[next].trip == row->trip;
             next++)
            ;
        if (!before || before->loop != row->loop || row->trip == BEHIND)
            put_span(p, row, to);
        before = row;
        if (row->trip < MOST_TRIPS || row->trip == BEHIND)
            put_row(p, row, next - i, to);
        else if (row->trip == MOST_TRIPS)
            fprintf(to,
                    "<tr><th></th><td colspan='%d'>and so on: the first %d "
                    "trips are shown</td></tr>\n",
                    shown_ranks(p), MOST_TRIPS);
    }
}

static void put_pipeline(const page *p, FILE *to)
{
    int64_t n;
    item *items = find_items(p, &n);

    fprintf(to, "<section id='pipeline'><h2>Pipeline</h2>\n<p>What each rank "
                "sends, receives and computes in each trip of a loop");
    if (p->ranks > MOST_RANKS)
        fprintf(to, "; the first %d of %d ranks", MOST_RANKS, p->ranks);
    fprintf(to, ".</p>\n<div class='wide' data-roam><table>\n<tr><th>trip"
                "</th>");
    for (int rank = 0; rank < shown_ranks(p); rank++)
        fprintf(to, "<th scope='col'>rank %d</th>", rank);
    fprintf(to, "</tr>\n");
    put_rows(p, items, n, to);
    fprintf(to, "</table></div></section>\n");
    free(items);
}

// --------------------------------------------------------------- timeline

static void put_timeline(const page *p, FILE *to)
{
    const hd_prediction *d = p->prediction;

    fprintf(to, "<section id='timeline'><h2>Timeline</h2>\n<p>Predicted on ");
    put_text(to, p->machine);
    fprintf(to,
            ": <b>%.1f us</b>. On the critical path compute %.1f us, transfers "
            "%.1f us, waiting for the host %.1f us; %.0f %% of the time of "
            "transfers is computed in.</p>\n<div class='wide' data-roam>\n",
            d->time * 1e6, d->compute * 1e6, d->transfer * 1e6, d->wait * 1e6,
            d->overlap * 100);
    timeline_print_svg(p->line, to);
    fprintf(to, "</div></section>\n");
}

static void put_head(const page *p, FILE *to)
{
    fprintf(to, "<header><h1>");
    put_text(to, p->name ? p->name : p->file);
    fprintf(to, "</h1>\n<p>");
    put_text(to, p->file);
    if (p->name)
        fprintf(to, ": %d rank%s", p->ranks, p->ranks == 1 ? "" : "s");
    put_text(to, p->way);
    fprintf(to, "</p></header>\n");
}

outcome page_print(void *context, FILE *to)
{
    const page *p = context;
    const char *frame = (const char *)view_html;

    put_frame(to, &frame, "@TITLE@");
    put_text(to, p->name ? p->name : p->file);
    put_frame(to, &frame, "@BODY@");
    put_head(p, to);
    put_findings(p, to);
    put_texts(p, to);
    if (p->line) {
        put_pipeline(p, to);
        put_timeline(p, to);
    } else {
        fprintf(to, "<p>What is wrong has no pipeline and no timeline.</p>\n");
    }
    fputs(frame, to);
    return FINE;
}
