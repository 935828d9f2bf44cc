// See choose.h.
#include <heddle/simulate.h>

#include "choose.h"

#include <stdlib.h>
#include <string.h>

#include "machine.h"

const char *choose_name(hd_transfer transfer)
{
    static const char *const names[] = {PROGRAM_TRANSFERS};

    return names[transfer];
}

// The program that the options make is `lowered`, to be freed. False if they do
// not fit the program; `diag` may be NULL.
static bool predict(const char *path, const content *text,
                    const program_options *options, const hd_machine *machine,
                    hd_diag *diag, candidate *c, char **lowered)
{
    hd_module *module = NULL;
    hd_simulation *simulation = NULL;
    bool fits =
        hd_parse(path, (const char *)text->bytes, text->length,
                 options->defines, options->ndefines, diag, &module) == HD_OK &&
        hd_lower(module, &c->lower, NULL, NULL, diag) == HD_OK &&
        hd_print(module, lowered) == HD_OK &&
        hd_simulate(module, machine, diag, &simulation) == HD_OK;

    if (fits)
        hd_simulation_predict(simulation, &c->prediction);
    hd_simulation_destroy(simulation);
    hd_module_destroy(module);
    return fits;
}

// Counts that are tried: 1, 2 and 4, or the one that was asked for.
static int list_counts(bool asked, int given, int out[3])
{
    for (int i = 0; i < 3; i++)
        out[i] = asked ? given : 1 << i;
    return asked ? 1 : 3;
}

// Streams and chunks that are tried: a bulk collective has no use for either,
// but may travel beside what has nothing to do with it. What sends by itself is
// also tried with a stream for transfers, and sends that are deferred, which
// over NCCL none is.
static int list_options(const hd_lower_options *base,
                        hd_lower_options out[MOST_CANDIDATES])
{
    int streams[3], chunks[3], n = 0;
    int nstreams =
        list_counts(base->asked & HD_OPTION_STREAMS, base->streams, streams);
    int nchunks =
        list_counts(base->asked & HD_OPTION_CHUNKS, base->chunks, chunks);

    out[n] = *base;
    out[n].transfer = HD_TRANSFER_BULK;
    out[n].streams = out[n].chunks = 1;
    out[n].comm_stream = out[n].defer_sends = false;
    n++;
    out[n] = out[0];
    out[n++].comm_stream = true;
    for (int t = HD_TRANSFER_PIPELINED; t <= HD_TRANSFER_RING; t++)
        for (int i = 0; i < nstreams * nchunks; i++, n++) {
            out[n] = *base;
            out[n].transfer = (hd_transfer)t;
            out[n].streams = streams[i % nstreams];
            out[n].chunks = chunks[i / nstreams];
        }
    for (int i = 0, plain = n; i < plain; i++)
        if (out[i].transfer >= HD_TRANSFER_DIRECT && !base->comm_stream) {
            out[n] = out[i];
            out[n].comm_stream = true;
            out[n].defer_sends = base->transport != HD_TRANSPORT_NCCL;
            n++;
        }
    return n;
}

static int compare_candidates(const void *x, const void *y)
{
    const candidate *a = x, *b = y;

    if (a->prediction.time != b->prediction.time)
        return a->prediction.time < b->prediction.time ? -1 : 1;
    // Equal by the model, which knows no gaps between transfers.
    if (a->lower.comm_stream != b->lower.comm_stream)
        return a->lower.comm_stream ? -1 : 1;
    if (a->lower.streams != b->lower.streams)
        return a->lower.streams - b->lower.streams;
    return a->lower.chunks != b->lower.chunks
               ? a->lower.chunks - b->lower.chunks
               : (int)a->lower.transfer - (int)b->lower.transfer;
}

// What is said of the pipeline that would have been taken without a choice.
static outcome tell_why(const char *path, const content *text,
                        const program_options *options,
                        const hd_machine *machine)
{
    candidate c = {.lower = options->lower};
    hd_diag *diag = need_diag();
    char *lowered = NULL;

    predict(path, text, options, machine, diag, &c, &lowered);
    hd_free(lowered);
    tell(diag, HD_OK, path);
    hd_diag_destroy(diag);
    return complain(WRONG, "%s: no pipeline fits this program",
                    program_name(path));
}

// The number of the same text; `n` if there is none.
static int find_same(const char *lowered, char **others, int n)
{
    int i = 0;

    while (i < n && strcmp(lowered, others[i]) != 0)
        i++;
    return i;
}

// A stream for transfers that a bulk collective gains nothing from.
static bool gains_nothing(const candidate *c, int i)
{
    return i == 1 && c[i].lower.transfer == HD_TRANSFER_BULK &&
           c[i].prediction.time >= c[0].prediction.time;
}

// The last of `out` is new, or another way to what is there.
static void add_candidate(candidate *out, char *made, char **lowered, int *n)
{
    hd_transfer transfer = out[*n].lower.transfer;
    int same = find_same(made, lowered, *n);

    if (same == *n && !gains_nothing(out, *n)) {
        lowered[(*n)++] = made;
        return;
    }
    if (same < *n && out[same].lower.transfer != transfer)
        out[same].also |= 1u << transfer;
    hd_free(made);
}

outcome choose_all(const char *path, const content *text,
                   const program_options *options, const hd_machine *machine,
                   candidate out[MOST_CANDIDATES], int *n)
{
    hd_lower_options list[MOST_CANDIDATES];
    char *lowered[MOST_CANDIDATES];
    int all = list_options(&options->lower, list);
    double start = seconds();
    bool shown = false;

    *n = 0;
    for (int i = 0; i < all; i++) {
        char *made = NULL;

        // Of many ranks each takes seconds.
        shown = seconds() - start > 1;
        if (shown)
            progress("%s: predicting %d of %d: %s", program_name(path), i + 1,
                     all, choose_name(list[i].transfer));
        out[*n] = (candidate){.lower = list[i]};
        if (predict(path, text, options, machine, NULL, &out[*n], &made))
            add_candidate(out, made, lowered, n);
        else
            hd_free(made);
    }
    for (int i = 0; i < *n; i++)
        hd_free(lowered[i]);
    if (shown)
        progress_end();
    if (*n == 0)
        return tell_why(path, text, options, machine);
    qsort(out, (size_t)*n, sizeof *out, compare_candidates);
    return FINE;
}

static bool is_complete(const char *path, const content *text,
                        const program_options *options)
{
    hd_module *module = NULL;
    bool complete =
        hd_parse(path, (const char *)text->bytes, text->length,
                 options->defines, options->ndefines, NULL, &module) != HD_OK ||
        hd_module_stage(module) == HD_STAGE_HOST;

    hd_module_destroy(module);
    return complete;
}

// What was asked for in vain is a warning of lowering's.
static void ask_bulk(const hd_lower_options *given, hd_lower_options *best)
{
    if (best->transfer != HD_TRANSFER_BULK)
        return;
    *best = *given;
    best->transfer = HD_TRANSFER_BULK;
    if (!(given->asked & HD_OPTION_STREAMS))
        best->streams = 1;
    if (!(given->asked & HD_OPTION_CHUNKS))
        best->chunks = 1;
}

outcome choose_best(const char *path, const content *text,
                    program_options *options)
{
    candidate candidates[MOST_CANDIDATES] = {0};
    hd_machine machine;
    int n;

    // What does not parse is told when it is parsed in earnest.
    if (!options->automatic || is_complete(path, text, options))
        return FINE;
    TRY(machine_open(options->machine, &machine));
    TRY(choose_all(path, text, options, &machine, candidates, &n));
    ask_bulk(&options->lower, &candidates[0].lower);
    options->lower = candidates[0].lower;
    options->lower.asked &= ~(unsigned)HD_OPTION_TRANSFER; // it was chosen
    if (options->quiet)
        return FINE;
    put_line(stderr,
             "%s: auto: %s, %d stream%s, %d chunk%s%s: %.1f us predicted on %s",
             program_name(path), choose_name(options->lower.transfer),
             options->lower.streams, options->lower.streams == 1 ? "" : "s",
             options->lower.chunks, options->lower.chunks == 1 ? "" : "s",
             options->lower.comm_stream ? ", transfers on their own" : "",
             candidates[0].prediction.time * 1e6, machine.name);
    return FINE;
}
