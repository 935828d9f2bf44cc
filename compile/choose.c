// The best of the pipelines that a program may be lowered with, by simulation
// of each. What a candidate makes is told from what others make by its text.
#include <heddle/simulate.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "ir/module.h"
#include "ir/options.h"

// Bulk and four other pipelines, and bulk and two of them with a stream for
// transfers, of at most three numbers of streams and, but for bulk, of chunks,
// and these two with launches, which have one stream: with the options that are
// given, and without.
enum { MOST_CANDIDATES = 2 * (3 + 4 * 9 + 3 + 2 * 9 + 2 * 3) };

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

// Counts that are tried: of 1, 2 and 4 those up to `most`, or the one that is
// fixed.
static int list_counts(bool fixed, int given, int most, int out[3])
{
    int n = 1;

    out[0] = fixed ? given : 1;
    while (!fixed && n < 3 && 1 << n <= most) {
        out[n] = 1 << n;
        n++;
    }
    return n;
}

typedef struct list {
    hd_lower_options lower[MOST_CANDIDATES];
    size_t n;
} list;

static void put_new(list *list, const hd_lower_options *lower)
{
    for (size_t i = 0; i < list->n; i++)
        if (hd_options_differ(&list->lower[i], lower) == 0)
            return;
    assert(list->n < MOST_CANDIDATES);
    list->lower[list->n++] = *lower;
}

typedef enum way { WAY_PLAIN, WAY_OWN, WAY_LAUNCH, WAYS } way;

// `transfer` with all counts; bulk has no use for chunks, nor a launch for
// streams. All but the plain way have a stream for transfers, and on their own
// sends are deferred, which over NCCL none is.
static void list_transfer(const hd_choose_options *options,
                          const hd_lower_options *base, unsigned fixed,
                          hd_transfer transfer, way way, list *out)
{
    bool bulk = transfer == HD_TRANSFER_BULK, own = way != WAY_PLAIN;
    int streams[3], chunks[3];
    int nstreams =
        list_counts(fixed & HD_OPTION_STREAMS, base->streams,
                    way == WAY_LAUNCH ? 1 : options->most_streams, streams);
    int nchunks = list_counts(fixed & HD_OPTION_CHUNKS, base->chunks,
                              bulk ? 1 : options->most_chunks, chunks);
    hd_lower_options lower = *base;

    lower.transfer = transfer;
    if ((fixed & HD_OPTION_COMM_STREAM) == 0)
        lower.comm_stream = own;
    if ((fixed & HD_OPTION_DEFER_SENDS) == 0)
        lower.defer_sends =
            way == WAY_OWN && !bulk && base->transport != HD_TRANSPORT_NCCL;
    if ((fixed & HD_OPTION_LAUNCH) == 0)
        lower.launch = way == WAY_LAUNCH;
    for (int i = 0; i < nstreams * nchunks; i++) {
        lower.streams = streams[i % nstreams];
        lower.chunks = chunks[i / nstreams];
        put_new(out, &lower);
    }
}

// Whether launches may be kernels: where copies within a host are what goes.
static bool has_launches(const hd_module *module,
                         const hd_choose_options *options,
                         const hd_lower_options *base)
{
    hd_machine machine = HD_EMPTY(hd_machine);

    hd_machine_default(&machine);
    return !options->parts &&
           (options->machine == NULL ||
            hd_sized_take(options->machine, sizeof machine, &machine)) &&
           machine.multiprocessors > 0 && module->nsizes == 0 &&
           module->nranks > 1 && module->nranks <= machine.ranks_per_node &&
           base->axes == NULL &&
           (base->transport == HD_TRANSPORT_COPY ||
            base->transport == HD_TRANSPORT_AUTO);
}

// What sends by itself may gain by a stream for transfers, and so may a bulk
// collective beside what has nothing to do with it. A launch has one stream,
// and is in vain where more are given.
static bool is_tried(const hd_lower_options *base, unsigned fixed,
                     hd_transfer transfer, way way)
{
    bool sends = transfer >= HD_TRANSFER_DIRECT;

    if (way == WAY_OWN)
        return sends || transfer == HD_TRANSFER_BULK;
    if (way == WAY_LAUNCH)
        return sends &&
               ((fixed & HD_OPTION_LAUNCH) != 0 ||
                (fixed & HD_OPTION_STREAMS) == 0 || base->streams == 1);
    return true;
}

// All pipelines with the options of `base` that are `fixed`, of the first
// `ways`; the others are tried.
static void list_all(const hd_choose_options *options,
                     const hd_lower_options *base, unsigned fixed, int ways,
                     list *out)
{
    for (int w = 0; w < ways; w++)
        for (int t = HD_TRANSFER_BULK; t <= HD_TRANSFER_RING; t++)
            if (is_tried(base, fixed, (hd_transfer)t, (way)w))
                list_transfer(options, base, fixed, (hd_transfer)t, (way)w,
                              out);
}

// What is given is tried beside what would be tried without it, and first, so
// that of two ways to one program that one stands which was given. What decides
// what is computed, or by what it goes, is as it is given.
static void list_candidates(const hd_module *module,
                            const hd_choose_options *options,
                            const hd_lower_options *given, list *out)
{
    int ways = has_launches(module, options, given) ? WAYS : WAY_LAUNCH;
    hd_lower_options usual = hd_lower_defaults();
    unsigned asked = hd_options_asked(given), fixed;

    usual.wire = given->wire;
    usual.transport = given->transport;
    usual.axes = given->axes;
    usual.until = given->until;
    fixed = (asked | hd_options_differ(given, &usual)) &
            ~(unsigned)(HD_OPTION_TRANSFER | HD_OPTION_WIRE);
    out->n = 0;
    if (fixed != 0)
        list_all(options, given, fixed, ways, out);
    list_all(options, &usual, 0, ways, out);
    for (size_t i = 0; i < out->n; i++)
        out->lower[i].asked = asked & ~(unsigned)HD_OPTION_TRANSFER &
                              ~hd_options_differ(&out->lower[i], given);
}

static int compare_candidates(const void *x, const void *y)
{
    const candidate *a = x, *b = y;

    if (a->prediction.time != b->prediction.time)
        return a->prediction.time < b->prediction.time ? -1 : 1;
    // Equal by the model: what was given, and then what leaves no gaps between
    // transfers, which it does not know.
    if (a->lower.asked != b->lower.asked)
        return __builtin_popcount(b->lower.asked) -
               __builtin_popcount(a->lower.asked);
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
    hd_lower_options lower = c->lower;
    hd_simulate_options how = hd_simulate_defaults();
    hd_status status = hd_module_clone(module, diag, &lowered);

    lower.until = HD_STAGE_HOST;
    how.machine = machine;
    how.transport = lower.transport;
    how.axes = lower.axes;
    if (status == HD_OK)
        status = hd_lower(lowered, &lower, NULL, NULL, diag);
    if (status == HD_OK)
        status = hd_print(lowered, &c->text);
    if (status == HD_OK)
        status = hd_simulate_over(lowered, &how, diag, &simulation);
    c->prediction = HD_EMPTY(hd_prediction);
    if (status == HD_OK)
        hd_simulation_predict(simulation, &c->prediction);
    hd_simulation_destroy(simulation);
    hd_module_destroy(lowered);
    return status;
}

// A launch that there is none of, or a stream for transfers that a bulk
// collective gains nothing from.
static bool gains_nothing(const hd_choice *choice, const candidate *c)
{
    if (c->lower.launch && (c->lower.asked & HD_OPTION_LAUNCH) == 0 &&
        (c->prediction.parts || strstr(c->text, "launch {") == NULL))
        return true;
    if (c->lower.transfer != HD_TRANSFER_BULK || !c->lower.comm_stream)
        return false;
    for (size_t i = 0; i < choice->n; i++) {
        const candidate *other = &choice->candidate[i];

        if (other->lower.transfer == HD_TRANSFER_BULK &&
            !other->lower.comm_stream &&
            c->prediction.time >= other->prediction.time)
            return true;
    }
    return false;
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
    return status;
}

static hd_status try_all(const hd_module *module,
                         const hd_choose_options *options,
                         const hd_lower_options *given, hd_diag *diag,
                         hd_choice *choice)
{
    hd_status status = HD_OK;
    list list;

    list_candidates(module, options, given, &list);
    for (size_t i = 0; i < list.n; i++) {
        candidate c = {.lower = list.lower[i]};

        if (options->hook != NULL)
            options->hook(options->context, i, list.n, &list.lower[i]);
        status = predict(module, options->machine, NULL, &c);
        if (status == HD_OK)
            add_candidate(choice, &c);
        else
            hd_free(c.text);
        if (status == HD_ERROR_NO_MEMORY)
            return hd_fail(diag, status, "out of memory");
        // Of values that are none, where they are those that were given.
        if (status == HD_ERROR_ARGUMENT) {
            status = tell_why(module, options->machine, given, NULL);
            if (status == HD_ERROR_ARGUMENT)
                return tell_why(module, options->machine, given, diag);
        }
    }
    if (choice->n > 0)
        return HD_OK;
    status = tell_why(module, options->machine, given, diag);
    return status != HD_OK ? status : HD_ERROR_INVALID;
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
