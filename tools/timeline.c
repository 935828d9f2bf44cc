// See timeline.h.
#include <heddle/simulate.h>

#include "timeline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"

timeline timeline_of(const hd_simulation *simulation, const char *title,
                     int ranks)
{
    timeline t = {.names = simulation, .title = title, .ranks = ranks};

    t.n = hd_simulation_intervals(simulation);
    t.interval = need((size_t)t.n + 1, sizeof *t.interval);
    for (int64_t i = 0; i < t.n; i++) {
        t.interval[i] = HD_EMPTY(hd_interval);
        hd_simulation_interval(simulation, i, &t.interval[i]);
        t.end = t.interval[i].end > t.end ? t.interval[i].end : t.end;
    }
    return t;
}

void timeline_free(timeline *timeline)
{
    free(timeline->interval);
    memset(timeline, 0, sizeof *timeline);
}

// Streams of a rank, the caller's with them.
enum { MOST_LANES = 66 };

static double micro(double seconds)
{
    return seconds * 1e6;
}

static bool is_drawn(const hd_interval *i)
{
    return i->work != HD_WORK_SYNC;
}

static void name_stream(int stream, char out[32])
{
    if (stream < 0)
        snprintf(out, 32, "caller's stream");
    else
        snprintf(out, 32, "stream %d", stream);
}

// ------------------------------------------------------------------ trace

// Text between quotes in JSON, and between tags in XML.
static void put_text(FILE *to, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c < 0x20 || c == '"' || c == '\\' || c == '<' || c == '>' ||
            c == '&')
            fputc('?', to);
        else
            fputc(c, to);
    }
}

// A viewer takes the slices of a thread for calls within calls, and drops one
// that ends after the one around it. The members of a group, and a send that
// its stream does not wait for, do go on beside other steps: each is put on the
// first row of its stream that is free, and every row is a thread.
typedef struct slice {
    int64_t start, end; // ns, so that neighbours stay neighbours when printed
    int64_t at;         // its interval
    int stream, row;
} slice;

typedef struct rows {
    const timeline *t;
    slice *slice;   // owned, by interval
    int64_t *first; // owned, by rank: its first interval; ranks + 1
    bool *named;    // owned, by thread of one rank
    int nrows;      // of the stream that has most
} rows;

static int64_t nano(double seconds)
{
    return (int64_t)(seconds * 1e9 + 0.5);
}

static int compare_starts(const void *x, const void *y)
{
    const slice *a = x, *b = y;

    if (a->stream != b->stream)
        return a->stream - b->stream;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

// The slices of one rank; `until` says when each row is free, and is cleared
// for each stream.
static void find_rows(rows *r, slice *slices, int64_t n, int64_t *until)
{
    int used = 0;

    qsort(slices, (size_t)n, sizeof *slices, compare_starts);
    for (int64_t i = 0; i < n; i++) {
        slice *s = &slices[i];
        int row = 0;

        if (i == 0 || s->stream != s[-1].stream)
            used = 0;
        while (row < used && until[row] > s->start)
            row++;
        used = row == used ? used + 1 : used;
        until[row] = s->end;
        r->nrows = used > r->nrows ? used : r->nrows;
        r->slice[s->at].row = row;
    }
}

static rows rows_of(const timeline *t)
{
    rows r = {.t = t, .nrows = 1};
    slice *mine = need((size_t)t->n + 1, sizeof *mine);
    int64_t *until = need((size_t)t->n + 1, sizeof *until);

    r.slice = need((size_t)t->n + 1, sizeof *r.slice);
    r.first = need((size_t)t->ranks + 1, sizeof *r.first);
    r.first[t->ranks] = t->n;
    for (int64_t i = t->n; i > 0; i--)
        r.first[t->interval[i - 1].rank] = i - 1;
    for (int rank = 0; rank < t->ranks; rank++) {
        int64_t n = 0;

        for (int64_t i = r.first[rank]; i < t->n && t->interval[i].rank == rank;
             i++) {
            const hd_interval *v = &t->interval[i];

            r.slice[i] = (slice){nano(v->start), nano(v->end), i, v->stream, 0};
            if (is_drawn(v))
                mine[n++] = r.slice[i];
        }
        find_rows(&r, mine, n, until);
    }
    free(mine);
    free(until);
    r.named = need((size_t)r.nrows * MOST_LANES, sizeof *r.named);
    return r;
}

static int thread_of(const slice *s)
{
    return s->stream + 1 + MOST_LANES * s->row;
}

static void put_time(FILE *to, const char *key, int64_t ns)
{
    fprintf(to, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void trace_thread(const slice *s, int rank, FILE *to)
{
    char stream[32];

    name_stream(s->stream, stream);
    fprintf(to,
            "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\","
            "\"args\":{\"name\":\"%s",
            rank, thread_of(s), stream);
    if (s->row > 0)
        fprintf(to, " (%d)", s->row + 1);
    fprintf(to,
            "\"}},\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
            "\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}},\n",
            rank, thread_of(s), (s->stream + 1) * HD_MAX_RANKS + s->row);
}

// Threads are named where a stream has steps.
static void trace_names(const rows *r, FILE *to)
{
    size_t nthreads = (size_t)r->nrows * MOST_LANES;

    for (int rank = 0; rank < r->t->ranks; rank++) {
        memset(r->named, 0, nthreads * sizeof *r->named);
        fprintf(to,
                "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\","
                "\"args\":{\"name\":\"rank %d\"}},\n",
                rank, rank);
        for (int64_t i = r->first[rank];
             i < r->t->n && r->t->interval[i].rank == rank; i++) {
            if (!r->named[thread_of(&r->slice[i])])
                trace_thread(&r->slice[i], rank, to);
            r->named[thread_of(&r->slice[i])] = true;
        }
    }
}

static void trace_slice(const rows *r, int64_t i, FILE *to)
{
    const hd_interval *v = &r->t->interval[i];
    const slice *s = &r->slice[i];
    char name[128];

    hd_simulation_name(r->t->names, i, name, sizeof name);
    fprintf(to, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d", v->rank, thread_of(s));
    put_time(to, "ts", s->start);
    put_time(to, "dur", s->end - s->start);
    fprintf(to, ",\"cat\":\"%s\",\"name\":\"",
            v->work == HD_WORK_COMPUTE ? "compute" : "transfer");
    put_text(to, name);
    fprintf(to, "\",\"args\":{\"step\":%" PRId64 ",\"line\":%d", v->step,
            v->line);
    if (v->launch >= 0)
        fprintf(to, ",\"launch\":%" PRId64, v->launch);
    fprintf(to, ",\"critical\":%s}},\n", v->critical ? "true" : "false");
}

// One end of an arrow, which the slice there at that time is bound to.
static void trace_arrow_end(const char *kind, int64_t id, int rank,
                            const slice *s, int64_t ns, FILE *to)
{
    fprintf(to, "{\"ph\":%s,\"id\":%" PRId64 ",\"pid\":%d,\"tid\":%d", kind, id,
            rank, thread_of(s));
    put_time(to, "ts", ns);
    fprintf(to, ",\"cat\":\"flow\",\"name\":\"transfer\"},\n");
}

// From the start of a send to the last moment of the recv that it meets: at its
// end the slice after it would be meant.
static void trace_arrow(const rows *r, int64_t i, FILE *to)
{
    const hd_interval *v = &r->t->interval[i];
    const slice *send = &r->slice[i];
    const slice *recv = &r->slice[r->first[v->peer] + v->meets];
    int64_t end = recv->end > recv->start ? recv->end - 1 : recv->end;

    trace_arrow_end("\"s\"", i, v->rank, send, send->start, to);
    trace_arrow_end("\"f\",\"bp\":\"e\"", i, v->peer, recv,
                    end > send->start ? end : send->start, to);
}

static outcome print_trace(void *context, FILE *to)
{
    const rows *r = context;
    const timeline *t = r->t;

    fprintf(to, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    trace_names(r, to);
    for (int64_t i = 0; i < t->n; i++) {
        if (!is_drawn(&t->interval[i]))
            continue;
        trace_slice(r, i, to);
        if (strcmp(t->interval[i].op, "send") == 0)
            trace_arrow(r, i, to);
    }
    fprintf(to, "{\"ph\":\"M\",\"pid\":0,\"name\":\"process_labels\","
                "\"args\":{\"labels\":\"");
    put_text(to, t->title);
    fprintf(to, "\"}}\n]}\n");
    return FINE;
}

static outcome draw_trace(const timeline *t, const char *path)
{
    rows r = rows_of(t);
    outcome result = file_print(path, print_trace, &r);

    free(r.slice);
    free(r.first);
    free(r.named);
    return result;
}

// -------------------------------------------------------------------- svg

enum {
    MOST_RANKS = 8, // that are drawn
    LEFT = 110,
    WIDTH = 880, // of the time axis
    LANE = 18,
    GAP = 10,
    TOP = 56,
    UNDERLINE = 3, // of what is critical
};

typedef struct picture {
    const timeline *t;
    FILE *to;
    int ranks;
    // By rank and stream + 1: its number, or -1.
    int lane[MOST_RANKS][MOST_LANES];
    int nlanes;
} picture;

static void find_lanes(picture *p)
{
    memset(p->lane, 0xff, sizeof p->lane);
    for (int64_t i = 0; i < p->t->n; i++) {
        const hd_interval *v = &p->t->interval[i];

        if (v->rank < p->ranks && is_drawn(v))
            p->lane[v->rank][v->stream + 1] = 0;
    }
    for (int rank = 0; rank < p->ranks; rank++)
        for (int stream = 0; stream < MOST_LANES; stream++)
            if (p->lane[rank][stream] == 0)
                p->lane[rank][stream] = p->nlanes++;
}

static double top_of(const picture *p, int rank, int stream)
{
    return TOP + p->lane[rank][stream + 1] * LANE + rank * GAP;
}

static double left_of(const picture *p, double seconds)
{
    return LEFT + WIDTH * seconds / (p->t->end > 0 ? p->t->end : 1);
}

static void draw_legend(const picture *p)
{
    static const char *const words[] = {"compute", "transfer", "idle",
                                        "critical path"};
    static const char *const styles[] = {"fill='#4c78a8'", "fill='#f58518'",
                                         "fill='#eeeeee'", "fill='#c0143c'"};

    fprintf(p->to, "<text x='8' y='18' font-size='13'>");
    put_text(p->to, p->t->title);
    fprintf(p->to, "</text>\n");
    for (int i = 0; i < 4; i++)
        fprintf(p->to,
                "<rect x='%d' y='%d' width='14' height='%d' %s/>"
                "<text x='%d' y='37'>%s</text>\n",
                LEFT + 120 * i, i < 3 ? 28 : 38 - UNDERLINE,
                i < 3 ? 10 : UNDERLINE, styles[i], LEFT + 120 * i + 20,
                words[i]);
}

// The unit in which the axis has no long numbers.
static const char *axis_unit(double end, double *scale)
{
    if (end < 0.01) {
        *scale = 1e6;
        return "us";
    }
    *scale = end < 10 ? 1e3 : 1;
    return end < 10 ? "ms" : "s";
}

// About eight ticks of 1, 2 or 5 times a power of ten nanoseconds.
static double tick_of(double end)
{
    double tick = 1e-9;

    while (tick * 8 < end) {
        if (tick * 2 * 8 >= end)
            return tick * 2;
        if (tick * 5 * 8 >= end)
            return tick * 5;
        tick *= 10;
    }
    return tick;
}

static void draw_axis(const picture *p, double bottom)
{
    double tick = tick_of(p->t->end);
    int n = (int)(p->t->end / tick + 1e-4);
    double scale;
    const char *unit = axis_unit(p->t->end, &scale);

    for (int i = 0; i <= n; i++) {
        double at = tick * i;

        fprintf(p->to,
                "<line x1='%.1f' y1='%d' x2='%.1f' y2='%.1f' stroke='#ccc'/>"
                "<text x='%.1f' y='%.1f' text-anchor='middle'>%g %s</text>\n",
                left_of(p, at), TOP - 6, left_of(p, at), bottom, left_of(p, at),
                bottom + 14, at * scale, unit);
    }
}

static void draw_lanes(const picture *p)
{
    for (int rank = 0; rank < p->ranks; rank++)
        for (int stream = -1; stream < MOST_LANES - 1; stream++) {
            char name[32];

            if (p->lane[rank][stream + 1] < 0)
                continue;
            name_stream(stream, name);
            fprintf(p->to,
                    "<rect x='%d' y='%.1f' width='%d' height='%d' "
                    "fill='#eeeeee'/><text x='%d' y='%.1f' "
                    "text-anchor='end'>%d: %s</text>\n",
                    LEFT, top_of(p, rank, stream) + 1, WIDTH, LANE - 2,
                    LEFT - 4, top_of(p, rank, stream) + 13, rank, name);
        }
}

// Pixels of a letter of font-size 10, about; a bar says its name if it is
// wider.
#define LETTER 5.6

static double width_of(const picture *p, double start, double end)
{
    double width = left_of(p, end) - left_of(p, start);

    return width > 0.5 ? width : 0.5;
}

static void draw_interval(const picture *p, int64_t i)
{
    const hd_interval *v = &p->t->interval[i];
    double width = width_of(p, v->start, v->end);
    char name[128];

    hd_simulation_name(p->t->names, i, name, sizeof name);
    fprintf(p->to,
            "<rect x='%.2f' y='%.1f' width='%.2f' height='%d' fill='%s'%s",
            left_of(p, v->start), top_of(p, v->rank, v->stream) + 1, width,
            LANE - 2, v->work == HD_WORK_COMPUTE ? "#4c78a8" : "#f58518",
            width > 3 ? " stroke='#fff' stroke-width='0.5'" : "");
    if (p->t->host)
        fprintf(p->to, " class='bar' data-own='h%d' data-k='s%d h%d'",
                p->t->host[i], v->line, p->t->host[i]);
    fprintf(p->to, "><title>");
    put_text(p->to, name);
    fprintf(p->to, ": %.2f us from %.2f, line %d</title></rect>\n",
            micro(v->end - v->start), micro(v->start), v->line);
    if (width < LETTER * (double)(strlen(name) + 1))
        return;
    fprintf(p->to,
            "<text x='%.2f' y='%.1f' text-anchor='middle' fill='#fff' "
            "pointer-events='none'>",
            left_of(p, v->start) + width / 2,
            top_of(p, v->rank, v->stream) + 13);
    put_text(p->to, name);
    fprintf(p->to, "</text>\n");
}

// Of what lies within half a pixel of a lane the first is drawn: the eye tells
// no more apart, and a long program's picture stays small.
static void draw_intervals(const picture *p)
{
    double drawn[MOST_RANKS][MOST_LANES];

    for (int rank = 0; rank < MOST_RANKS; rank++)
        for (int lane = 0; lane < MOST_LANES; lane++)
            drawn[rank][lane] = -1;
    for (int64_t i = 0; i < p->t->n; i++) {
        const hd_interval *v = &p->t->interval[i];
        double *until, right = left_of(p, v->end);

        if (v->rank >= p->ranks || !is_drawn(v))
            continue;
        until = &drawn[v->rank][v->stream + 1];
        if (right - left_of(p, v->start) < 0.5 && right - *until < 0.5)
            continue;
        *until = right > *until ? right : *until;
        draw_interval(p, i);
    }
}

typedef struct underline_part {
    double from, to; // px; nothing where they are equal
} underline_part;

static void underline(const picture *p, int rank, int lane, underline_part s)
{
    if (s.to > s.from)
        fprintf(p->to,
                "<rect x='%.2f' y='%.1f' width='%.2f' height='%d' "
                "fill='#c0143c'/>\n",
                s.from, top_of(p, rank, lane - 1) + LANE - 1 - UNDERLINE,
                s.to - s.from, UNDERLINE);
}

// A line along the foot of the lanes; what follows closely is one line.
static void draw_critical(const picture *p)
{
    underline_part line[MOST_RANKS][MOST_LANES] = {0};

    for (int64_t i = 0; i < p->t->n; i++) {
        const hd_interval *v = &p->t->interval[i];
        double from = left_of(p, v->start);
        underline_part *s;

        if (v->rank >= p->ranks || !is_drawn(v) || !v->critical)
            continue;
        s = &line[v->rank][v->stream + 1];
        if (s->to == 0 || from - s->to > 1) {
            underline(p, v->rank, v->stream + 1, *s);
            s->from = from;
        }
        s->to = from + width_of(p, v->start, v->end);
    }
    for (int rank = 0; rank < p->ranks; rank++)
        for (int lane = 0; lane < MOST_LANES; lane++)
            underline(p, rank, lane, line[rank][lane]);
}

void timeline_print_svg(const timeline *t, FILE *to)
{
    picture p = {.t = t,
                 .to = to,
                 .ranks = t->ranks < MOST_RANKS ? t->ranks : MOST_RANKS};
    double bottom;

    find_lanes(&p);
    bottom = TOP + p.nlanes * LANE + p.ranks * GAP;
    fprintf(to,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %.0f' "
            "font-family='sans-serif' font-size='10'>\n"
            "<rect width='100%%' height='100%%' fill='#ffffff'/>\n",
            LEFT + WIDTH + 30, bottom + 40);
    draw_legend(&p);
    draw_lanes(&p);
    draw_axis(&p, bottom);
    draw_intervals(&p);
    draw_critical(&p);
    if (t->ranks > p.ranks)
        fprintf(to, "<text x='8' y='%.0f'>the first %d of %d ranks</text>\n",
                bottom + 32, p.ranks, t->ranks);
    fprintf(to, "</svg>\n");
}

static outcome print_svg(void *context, FILE *to)
{
    timeline_print_svg(context, to);
    return FINE;
}

outcome timeline_draw(timeline *timeline, const char *trace, const char *svg)
{
    outcome result = FINE;

    if (trace)
        result = draw_trace(timeline, trace);
    if (svg)
        result = first_wrong(result, file_print(svg, print_svg, timeline));
    return result;
}
