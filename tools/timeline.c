// See timeline.h.
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

// Opens, lets `write` fill the stream, and keeps the file only if all of it
// arrived.
static outcome write_file(const timeline *t, const char *path,
                          void (*write)(const timeline *, FILE *))
{
    sink sink;
    FILE *stream;
    outcome result;

    TRY(sink_open(path, &sink));
    stream = sink_stream(&sink);
    if (!stream) {
        sink_discard(&sink);
        return WRONG;
    }
    write(t, stream);
    result = sink_end(&sink, stream);
    if (result == FINE)
        result = sink_commit(&sink);
    sink_discard(&sink);
    return result;
}

static double micro(double seconds)
{
    return seconds * 1e6;
}

static bool is_drawn(const hd_interval *i)
{
    return i->work != HD_SYNC;
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

// Threads are named where a stream has steps.
static void trace_names(const timeline *t, FILE *to)
{
    bool *named = need(66, sizeof *named);
    int rank = -1;

    for (int64_t i = 0; i < t->n; i++) {
        const hd_interval *v = &t->interval[i];
        char stream[32];

        if (v->rank != rank) {
            memset(named, 0, 66 * sizeof *named);
            rank = v->rank;
            fprintf(to,
                    "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\","
                    "\"args\":{\"name\":\"rank %d\"}},\n",
                    rank, rank);
        }
        if (named[v->stream + 1])
            continue;
        named[v->stream + 1] = true;
        name_stream(v->stream, stream);
        fprintf(to,
                "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\","
                "\"args\":{\"name\":\"%s\"}},\n",
                rank, v->stream + 1, stream);
    }
    free(named);
}

static void trace_interval(const timeline *t, int64_t i, FILE *to)
{
    const hd_interval *v = &t->interval[i];
    char name[128];

    hd_simulation_name(t->names, i, name, sizeof name);
    fprintf(to,
            "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
            "\"cat\":\"%s\",\"name\":\"",
            v->rank, v->stream + 1, micro(v->start), micro(v->end - v->start),
            v->work == HD_COMPUTE ? "compute" : "transfer");
    put_text(to, name);
    fprintf(to,
            "\",\"args\":{\"step\":%" PRId64
            ",\"line\":%d,\"critical\":%s}},\n",
            v->step, v->line, v->critical ? "true" : "false");
}

// From a send to the recv that it meets.
static void trace_arrow(const timeline *t, const int64_t *first, int64_t i,
                        FILE *to)
{
    const hd_interval *v = &t->interval[i];
    const hd_interval *r = &t->interval[first[v->peer] + v->meets];

    fprintf(to,
            "{\"ph\":\"s\",\"id\":%" PRId64
            ",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"cat\":\"flow\","
            "\"name\":\"transfer\"},\n",
            i, v->rank, v->stream + 1, micro(v->start));
    fprintf(to,
            "{\"ph\":\"f\",\"bp\":\"e\",\"id\":%" PRId64
            ",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"cat\":\"flow\","
            "\"name\":\"transfer\"},\n",
            i, r->rank, r->stream + 1, micro(r->end));
}

static void write_trace(const timeline *t, FILE *to)
{
    int64_t *first = need((size_t)t->ranks + 1, sizeof *first);

    for (int64_t i = t->n; i > 0; i--)
        first[t->interval[i - 1].rank] = i - 1;
    fprintf(to, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    trace_names(t, to);
    for (int64_t i = 0; i < t->n; i++) {
        if (!is_drawn(&t->interval[i]))
            continue;
        trace_interval(t, i, to);
        if (strcmp(t->interval[i].op, "send") == 0)
            trace_arrow(t, first, i, to);
    }
    fprintf(to, "{\"ph\":\"M\",\"pid\":0,\"name\":\"trace_name\",\"args\":"
                "{\"name\":\"");
    put_text(to, t->title);
    fprintf(to, "\"}}\n]}\n");
    free(first);
}

// -------------------------------------------------------------------- svg

enum {
    MOST_RANKS = 8, // that are drawn
    LEFT = 110,
    WIDTH = 880, // of the time axis
    LANE = 18,
    GAP = 10,
    TOP = 56,
};

typedef struct picture {
    const timeline *t;
    FILE *to;
    int ranks;
    int lane[MOST_RANKS][66]; // by rank and stream + 1: its number, or -1
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
        for (int stream = 0; stream < 66; stream++)
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
    static const char *const styles[] = {
        "fill='#4c78a8'", "fill='#f58518'", "fill='#eeeeee'",
        "fill='none' stroke='#c0143c' stroke-width='2'"};

    fprintf(p->to, "<text x='8' y='18' font-size='13'>");
    put_text(p->to, p->t->title);
    fprintf(p->to, "</text>\n");
    for (int i = 0; i < 4; i++)
        fprintf(p->to,
                "<rect x='%d' y='28' width='14' height='10' %s/>"
                "<text x='%d' y='37'>%s</text>\n",
                LEFT + 120 * i, styles[i], LEFT + 120 * i + 20, words[i]);
}

// About eight ticks of 1, 2 or 5 times a power of ten microseconds.
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

    for (int i = 0; i <= n; i++) {
        double at = tick * i;

        fprintf(p->to,
                "<line x1='%.1f' y1='%d' x2='%.1f' y2='%.1f' stroke='#ccc'/>"
                "<text x='%.1f' y='%.1f' text-anchor='middle'>%g us</text>\n",
                left_of(p, at), TOP - 6, left_of(p, at), bottom, left_of(p, at),
                bottom + 14, micro(at));
    }
}

static void draw_lanes(const picture *p)
{
    for (int rank = 0; rank < p->ranks; rank++)
        for (int stream = -1; stream < 65; stream++) {
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

static void draw_interval(const picture *p, int64_t i, bool critical)
{
    const hd_interval *v = &p->t->interval[i];
    double width = left_of(p, v->end) - left_of(p, v->start);
    char name[128];

    hd_simulation_name(p->t->names, i, name, sizeof name);
    fprintf(p->to,
            "<rect x='%.2f' y='%.1f' width='%.2f' height='%d' %s><title>",
            left_of(p, v->start), top_of(p, v->rank, v->stream) + 1,
            width > 0.5 ? width : 0.5, LANE - 2,
            critical ? "fill='none' stroke='#c0143c' stroke-width='2'"
            : v->work == HD_COMPUTE ? "fill='#4c78a8' stroke='#fff' "
                                      "stroke-width='0.5'"
                                    : "fill='#f58518' stroke='#fff' "
                                      "stroke-width='0.5'");
    put_text(p->to, name);
    fprintf(p->to, ": %.2f us from %.2f, line %d</title></rect>\n",
            micro(v->end - v->start), micro(v->start), v->line);
}

static void draw_intervals(const picture *p, bool critical)
{
    for (int64_t i = 0; i < p->t->n; i++) {
        const hd_interval *v = &p->t->interval[i];

        if (v->rank < p->ranks && is_drawn(v) && (!critical || v->critical))
            draw_interval(p, i, critical);
    }
}

static void write_svg(const timeline *t, FILE *to)
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
    draw_intervals(&p, false);
    draw_intervals(&p, true);
    if (t->ranks > p.ranks)
        fprintf(to, "<text x='8' y='%.0f'>the first %d of %d ranks</text>\n",
                bottom + 32, p.ranks, t->ranks);
    fprintf(to, "</svg>\n");
}

outcome timeline_draw(const timeline *timeline, const char *trace,
                      const char *svg)
{
    outcome result = FINE;

    if (trace)
        result = write_file(timeline, trace, write_trace);
    if (svg)
        result = first_wrong(result, write_file(timeline, svg, write_svg));
    return result;
}
