// A clock counts, for each stream, the works that are over: a stream's clock
// those that are over when its next command starts, an event's those that are
// over when it is reached. A wait whose event knows nothing new is needless; so
// is one that is followed on its stream, with nothing between, by a wait that
// knows more. Events that a stream records with nothing between are one, and so
// is what it records where it knows just what the event does that it waited
// for. Then what no work comes after goes, from the end backwards.
#include "runtime/order.h"

#include <stdlib.h>
#include <string.h>

typedef struct clocks {
    int nstreams;
    int32_t *stream; // owned: a clock a stream
    int32_t *event;  // owned: a clock an event
    int *pending;    // owned, by stream: its last wait since other commands, or
                     // its last command where streams are joined
    int *before;     // owned, by command: the pending wait before it, or -1
    int *here;       // owned, by stream: the event recorded where it is, or -1
    int *same;       // owned, by event: the first recorded at the same place
} clocks;

static int32_t *stream_clock(const clocks *clocks, int stream)
{
    return &clocks->stream[(size_t)stream * (size_t)clocks->nstreams];
}

static int32_t *event_clock(const clocks *clocks, int event)
{
    return &clocks->event[(size_t)event * (size_t)clocks->nstreams];
}

static bool covers(const clocks *clocks, const int32_t *more,
                   const int32_t *less)
{
    for (int i = 0; i < clocks->nstreams; i++) {
        if (more[i] < less[i])
            return false;
    }
    return true;
}

static void learn(const clocks *clocks, int32_t *known, const int32_t *told)
{
    for (int k = 0; k < clocks->nstreams; k++)
        known[k] = told[k] > known[k] ? told[k] : known[k];
}

static void pass_wait(const clocks *clocks, hd_order *order, int i)
{
    hd_order *wait = &order[i];
    int32_t *known = stream_clock(clocks, wait->stream);
    const int32_t *told;

    wait->event = clocks->same[wait->event];
    told = event_clock(clocks, wait->event);
    wait->needless = covers(clocks, known, told);
    if (wait->needless)
        return;
    for (int p = clocks->pending[wait->stream]; p >= 0; p = clocks->before[p])
        order[p].needless |=
            covers(clocks, told, event_clock(clocks, order[p].event));
    clocks->before[i] = clocks->pending[wait->stream];
    clocks->pending[wait->stream] = i;
    learn(clocks, known, told);
    clocks->here[wait->stream] = covers(clocks, told, known) ? wait->event : -1;
}

static void pass_record(const clocks *clocks, const hd_order *record)
{
    int *here = &clocks->here[record->stream];

    if (*here < 0)
        *here = record->event;
    clocks->same[record->event] = *here;
    memcpy(event_clock(clocks, record->event),
           stream_clock(clocks, record->stream),
           (size_t)clocks->nstreams * sizeof(int32_t));
}

static void drop_waits(const clocks *clocks, hd_order *order, int n)
{
    stream_clock(clocks, 0)[0] = 1; // what it did before
    for (int i = 0; i < n; i++) {
        int stream = order[i].stream;
        int32_t *known = stream_clock(clocks, stream);

        if (order[i].needless)
            continue;
        if (order[i].kind == HD_ORDER_WAIT) {
            pass_wait(clocks, order, i);
            continue;
        }
        clocks->pending[stream] = -1;
        if (order[i].kind == HD_ORDER_RECORD) {
            pass_record(clocks, &order[i]);
            continue;
        }
        clocks->here[stream] = -1;
        known[stream]++;
    }
}

// Works, and the end of stream 0, are what all else is for.
static void drop_unused(hd_order *order, int n, bool *used_stream,
                        bool *used_event)
{
    used_stream[0] = true;
    for (int i = n - 1; i >= 0; i--) {
        hd_order *at = &order[i];

        if (at->kind == HD_ORDER_RECORD)
            at->needless = !used_event[at->event];
        else if (at->kind == HD_ORDER_WAIT)
            at->needless |= !used_stream[at->stream];
        if (at->needless)
            continue;
        if (at->kind == HD_ORDER_WAIT)
            used_event[at->event] = true;
        else
            used_stream[at->stream] = true;
    }
}

static void free_clocks(clocks *clocks)
{
    free(clocks->stream);
    free(clocks->event);
    free(clocks->pending);
    free(clocks->before);
    free(clocks->here);
    free(clocks->same);
}

static bool new_clocks(int n, int nstreams, int nevents, clocks *out)
{
    size_t streams = (size_t)nstreams, events = (size_t)nevents;
    clocks clocks = {.nstreams = nstreams,
                     .stream = calloc(streams * streams, sizeof(int32_t)),
                     .event = calloc(streams * events + 1, sizeof(int32_t)),
                     .pending = malloc(streams * sizeof(int)),
                     .before = malloc(((size_t)n + 1) * sizeof(int)),
                     .here = malloc(streams * sizeof(int)),
                     .same = malloc((events + 1) * sizeof(int))};

    if (clocks.stream == NULL || clocks.event == NULL ||
        clocks.pending == NULL || clocks.before == NULL ||
        clocks.here == NULL || clocks.same == NULL) {
        free_clocks(&clocks);
        return false;
    }
    for (int i = 0; i < nstreams; i++)
        clocks.pending[i] = clocks.here[i] = -1;
    *out = clocks;
    return true;
}

hd_status hd_order_reduce(hd_order *order, int n, int nstreams, int nevents)
{
    bool *used = calloc((size_t)nstreams + (size_t)nevents, sizeof(bool));
    clocks clocks;

    if (used == NULL || !new_clocks(n, nstreams, nevents, &clocks)) {
        free(used);
        return HD_ERROR_NO_MEMORY;
    }
    drop_waits(&clocks, order, n);
    drop_unused(order, n, used, used + nstreams);
    free_clocks(&clocks);
    free(used);
    return HD_OK;
}

// Whether stream `s` knows all that stream 0 does, or, at a command of stream
// 0, stream 0 all that each of the others does; those are apart that do not.
static void find_apart(const clocks *clocks, int s, bool *apart)
{
    for (int k = s > 0 ? s : 1; k < (s > 0 ? s + 1 : clocks->nstreams); k++) {
        // What has done nothing yet knows nothing, and there may be many.
        if (clocks->pending[k] >= 0 && !apart[k])
            apart[k] = !covers(clocks, stream_clock(clocks, s),
                               stream_clock(clocks, s > 0 ? 0 : k));
    }
}

// A stream that takes turns with stream 0; 0 if none does.
static int find_turns(const clocks *clocks, const hd_order *order, int n,
                      bool *apart)
{
    stream_clock(clocks, 0)[0] = 1; // what it did before
    for (int i = 0; i < n; i++) {
        int s = order[i].stream;
        int32_t *known = stream_clock(clocks, s);

        if (order[i].needless)
            continue;
        clocks->pending[s] = i;
        if (order[i].kind == HD_ORDER_WAIT) {
            learn(clocks, known, event_clock(clocks, order[i].event));
            continue;
        }
        find_apart(clocks, s, apart);
        if (order[i].kind == HD_ORDER_RECORD)
            pass_record(clocks, &order[i]);
        else
            known[s]++;
    }
    find_apart(clocks, 0, apart);
    for (int s = 1; s < clocks->nstreams; s++) {
        if (!apart[s] && stream_clock(clocks, s)[s] > 0)
            return s;
    }
    return 0;
}

hd_status hd_order_join(hd_order *order, int n, int nstreams, int nevents,
                        int *out)
{
    int joined = 0;

    for (int s = -1; s != 0; joined += s > 0) {
        bool *apart = calloc((size_t)nstreams, sizeof *apart);
        clocks clocks;

        if (apart == NULL || !new_clocks(n, nstreams, nevents, &clocks)) {
            free(apart);
            return HD_ERROR_NO_MEMORY;
        }
        s = find_turns(&clocks, order, n, apart);
        for (int i = 0; i < n && s > 0; i++)
            order[i].stream = order[i].stream == s ? 0 : order[i].stream;
        free_clocks(&clocks);
        free(apart);
    }
    *out = joined;
    return HD_OK;
}
