// The best of the pipelines that a program may be lowered with, by simulation
// of each. What a candidate makes is told from what others make by its text.
#include <heddle/simulate.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "ir/module.h"

enum { MOST_CANDIDATES = 64 };

typedef struct candidate {
    hd_lower_options lower;
    hd_prediction prediction;
    unsigned also;
    char *text; // owned
} candidate;

struct hd_choice {
    candidate candidate[MOST_CANDIDATES];
    size_t n;
};

// Counts that are tried: of 1, 2 and 4 those up to `most`, or the one that was
// asked for.
static int list_counts(bool asked, int given, int most, int out[3])
{
    int n = 1;

    out[0] = asked ? given : 1;
    while (!asked && n < 3 && 1 << n <= most) {
        out[n] = 1 << n;
        n++;
    }
    return n;
}

// A bulk collective has no use for streams or chunks, but may travel beside
// what has nothing to do with it.
static size_t list_bulk(const hd_lower_options *base, hd_lower_options *out)
{
    out[0] = *base;
    out[0].transfer = HD_TRANSFER_BULK;
    out[0].streams = out[0].chunks = 1;
    out[0].comm_stream = out[0].defer_sends = false;
    out[1] = out[0];
    out[1].comm_stream = true;
    return 2;
}

// What sends by itself is also tried with a stream for transfers, and sends
// that are deferred, which over NCCL none is.
static size_t list_own_streams(const hd_lower_options *base,
                               hd_lower_options *list, size_t n)
{
    for (size_t i = 0, plain = n; i < plain; i++)
        if (list[i].transfer >= HD_TRANSFER_DIRECT && !base->comm_stream) {
            list[n] = list[i];
            list[n].comm_stream = true;
            list[n].defer_sends = base->transport != HD_TRANSPORT_NCCL;
            n++;
        }
    return n;
}

static size_t list_candidates(const hd_choose_options *options,
                              const hd_lower_options *base,
                              hd_lower_options out[MOST_CANDIDATES])
{
    int streams[3], chunks[3];
    int nstreams = list_counts(base->asked & HD_OPTION_STREAMS, base->streams,
                               options->most_streams, streams);
    int nchunks = list_counts(base->asked & HD_OPTION_CHUNKS, base->chunks,
                              options->most_chunks, chunks);
    size_t n = list_bulk(base, out);

    for (int t = HD_TRANSFER_PIPELINED; t <= HD_TRANSFER_RING; t++)
        for (int i = 0; i < nstreams * nchunks; i++, n++) {
            out[n] = *base;
            out[n].transfer = (hd_transfer)t;
            out[n].streams = streams[i % nstreams];
            out[n].chunks = chunks[i / nstreams];
        }
    return list_own_streams(base, out, n);
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

// Fills `c` but for its options.
static hd_status predict(const hd_module *module, const hd_machine *machine,
                         hd_diag *diag, candidate *c)
{
    hd_module *lowered = NULL;
    hd_simulation *simulation = NULL;
    hd_status status = hd_module_clone(module, diag, &lowered);

    if (status == HD_OK)
        status = hd_lower(lowered, &c->lower, NULL, NULL, diag);
    if (status == HD_OK)
        status = hd_print(lowered, &c->text);
    if (status == HD_OK)
        status = hd_simulate(lowered, machine, diag, &simulation);
    c->prediction = HD_EMPTY(hd_prediction);
    if (status == HD_OK)
        hd_simulation_predict(simulation, &c->prediction);
    hd_simulation_destroy(simulation);
    hd_module_destroy(lowered);
    return status;
}

// A stream for transfers that a bulk collective gains nothing from.
static bool gains_nothing(const hd_choice *choice, const candidate *c)
{
    const candidate *first = &choice->candidate[0];

    return choice->n == 1 && c->lower.transfer == HD_TRANSFER_BULK &&
           c->lower.comm_stream && first->lower.transfer == HD_TRANSFER_BULK &&
           c->prediction.time >= first->prediction.time;
}

// `c` is new, or another way to what is there.
static void add_candidate(hd_choice *choice, candidate *c)
{
    size_t i = 0;

    while (i < choice->n && strcmp(choice->candidate[i].text, c->text) != 0)
        i++;
    if (i == choice->n && !gains_nothing(choice, c)) {
        choice->candidate[choice->n++] = *c;
        return;
    }
    if (i < choice->n &&
        choice->candidate[i].lower.transfer != c->lower.transfer)
        choice->candidate[i].also |= 1u << c->lower.transfer;
    hd_free(c->text);
}

// What is said of the options that were given.
static hd_status tell_why(const hd_module *module, const hd_machine *machine,
                          const hd_lower_options *lower, hd_diag *diag)
{
    candidate c = {.lower = *lower};
    hd_status status = predict(module, machine, diag, &c);

    hd_free(c.text);
    return status != HD_OK ? status : HD_ERROR_INVALID;
}

static hd_status try_all(const hd_module *module,
                         const hd_choose_options *options,
                         const hd_lower_options *base, hd_diag *diag,
                         hd_choice *choice)
{
    hd_lower_options list[MOST_CANDIDATES];
    size_t n = list_candidates(options, base, list);

    for (size_t i = 0; i < n; i++) {
        candidate c = {.lower = list[i]};
        hd_status status;

        if (options->hook != NULL)
            options->hook(options->context, i, n, &list[i]);
        status = predict(module, options->machine, NULL, &c);
        if (status == HD_OK)
            add_candidate(choice, &c);
        else
            hd_free(c.text);
        if (status == HD_ERROR_NO_MEMORY)
            return hd_fail(diag, status, "out of memory");
    }
    return choice->n > 0 ? HD_OK
                         : tell_why(module, options->machine, base, diag);
}

static hd_status check_options(const hd_module *module,
                               const hd_choose_options *options, hd_diag *diag)
{
    if (module->stage == HD_STAGE_HOST)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "'%s' is lowered already: there are no pipelines to "
                       "choose from",
                       module->name);
    if (options->most_streams < 1 || options->most_chunks < 1)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "%d streams and %d chunks at most; 1 is the least",
                       options->most_streams, options->most_chunks);
    return HD_OK;
}

hd_status hd_choose(const hd_module *module, const hd_choose_options *given,
                    hd_diag *diag, hd_choice **out)
{
    hd_lower_options lower = hd_lower_defaults();
    hd_choose_options options = hd_choose_defaults();
    hd_choice *choice;
    hd_status status;

    HD_REQUIRE(diag, module);
    HD_REQUIRE(diag, out);
    HD_TRY(hd_sized_read("hd_choose", given, sizeof options, diag, &options));
    HD_TRY(
        hd_sized_read("hd_choose", options.lower, sizeof lower, diag, &lower));
    HD_TRY(check_options(module, &options, diag));
    choice = calloc(1, sizeof *choice);
    if (choice == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a choice");
    status = try_all(module, &options, &lower, diag, choice);
    if (status != HD_OK) {
        hd_choice_destroy(choice);
        return status;
    }
    qsort(choice->candidate, choice->n, sizeof *choice->candidate,
          compare_candidates);
    *out = choice;
    return HD_OK;
}

void hd_choice_destroy(hd_choice *choice)
{
    if (choice == NULL)
        return;
    for (size_t i = 0; i < choice->n; i++)
        hd_free(choice->candidate[i].text);
    free(choice);
}

size_t hd_choice_count(const hd_choice *choice)
{
    assert(choice != NULL);
    return choice->n;
}

bool hd_choice_candidate(const hd_choice *choice, size_t i,
                         hd_lower_options *lower, hd_prediction *prediction,
                         unsigned *also)
{
    const candidate *c;

    assert(choice != NULL);
    if (i >= choice->n)
        return false;
    c = &choice->candidate[i];
    if (lower != NULL)
        hd_sized_write(&c->lower, sizeof c->lower, lower);
    if (prediction != NULL)
        hd_sized_write(&c->prediction, sizeof c->prediction, prediction);
    if (also != NULL)
        *also = c->also;
    return true;
}
