// The best of the pipelines that a program may be lowered with, by simulation
// of each. What a candidate makes is told from what others make by its text.
#include <heddle/simulate.h>

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "ir/module.h"
#include "ir/options.h"
#include "lower/lower.h"

// Bulk and four other pipelines; bulk and two of them with a stream for
// transfers, these two with and without sends that are deferred; of at most
// three numbers of streams and, but for bulk, four of chunks; and these two
// with launches, which have one stream.
enum { COUNTS = 4, MOST_CANDIDATES = 3 + 4 * 12 + 3 + 4 * 12 + 2 * 4 };

// No more is predicted once so many steps of all ranks have been, and some for
// each statement: some tenths of a second, and 5 ms for each. Those with fewer
// chunks and streams come first.
enum { MOST_STEPS = 300000, STEPS_OF_A_STATEMENT = 10000 };

typedef struct candidate {
    hd_lower_options lower;
    hd_prediction prediction;
    unsigned also;
    char *text;    // owned
    size_t index;  // in the order in which they are tried
    unsigned vain; // what was given and changes nothing of it
    bool launches; // it has some
} candidate;

struct hd_choice {
    candidate candidate[MOST_CANDIDATES];
    size_t n;
    int64_t steps; // that were predicted
    bool named;    // the transfer was given
};

// Counts that are tried: the powers of two up to `most`, or the one that is
// fixed.
static int list_counts(bool fixed, int given, int most, int out[COUNTS])
{
    int n = 1;

    out[0] = fixed ? given : 1;
    while (!fixed && n < COUNTS && 1 << n <= most) {
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

typedef enum way { WAY_PLAIN, WAY_OWN, WAY_AHEAD, WAY_LAUNCH, WAYS } way;

// What is given, but for which transfer, and what of it is fixed.
typedef struct base {
    hd_lower_options given;
    unsigned fixed;
    bool engines; // copies take no processor
} base;

// By steps of its own, and not by collectives.
static bool sends(hd_transfer transfer)
{
    return transfer == HD_TRANSFER_DIRECT || transfer == HD_TRANSFER_RING;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

// All but the plain way have a stream for transfers, and on their own sends are
// deferred, which over NCCL none is.
static void list_transfer(const base *base, hd_transfer transfer, way way,
                          int streams, int chunks, list *out)
{
    hd_lower_options lower = base->given;

    lower.transfer = transfer;
    lower.streams = streams;
    lower.chunks = chunks;
    if ((base->fixed & HD_OPTION_COMM_STREAM) == 0)
        lower.comm_stream = way != WAY_PLAIN;
    if ((base->fixed & HD_OPTION_DEFER_SENDS) == 0)
        lower.defer_sends = way == WAY_OWN && sends(transfer) &&
                            lower.transport != HD_TRANSPORT_NCCL;
    if ((base->fixed & HD_OPTION_LAUNCH) == 0)
        lower.launch = way == WAY_LAUNCH;
    put_new(out, &lower);
}

// Whether what is sent takes no processor: copies within a host.
static bool has_engines(const hd_module *module, const hd_machine *machine,
                        const hd_lower_options *base)
{
    return machine->processors == 0 &&
           module->nranks <= machine->ranks_per_node && base->axes == NULL &&
           (base->transport == HD_TRANSPORT_COPY ||
            base->transport == HD_TRANSPORT_AUTO);
}

// Whether launches may be kernels: where copies within a host are what goes.
static bool has_launches(const hd_module *module,
                         const hd_choose_options *options,
                         const hd_machine *machine,
                         const hd_lower_options *base)
{
    return !options->parts && machine->multiprocessors > 0 &&
           module->nsizes == 0 && module->nranks > 1 &&
           has_engines(module, machine, base);
}

// What sends by itself may gain by a stream for transfers, and so may a bulk
// collective beside what has nothing to do with it, which has no use for
// chunks. Where engines copy it costs nothing: of those measured on two and
// four GPUs (docs/simulate.md) the fastest without one was at most 1 % ahead of
// the fastest with one. A launch has one stream, and is in vain where more are
// given.
static bool is_tried(const base *base, hd_transfer transfer, way way,
                     int streams, int chunks)
{
    const hd_lower_options *given = &base->given;
    bool bulk = transfer == HD_TRANSFER_BULK;

    if (given->transfer != HD_TRANSFER_AUTO && transfer != given->transfer)
        return false;
    if (way == WAY_LAUNCH && streams > 1)
        return false;
    if (given->transfer != HD_TRANSFER_AUTO)
        return true;
    if (transfer == HD_TRANSFER_FUSED ||
        (bulk && chunks > 1 && (base->fixed & HD_OPTION_CHUNKS) == 0))
        return false;
    if (way == WAY_PLAIN)
        return !sends(transfer) || !base->engines;
    return sends(transfer) || (bulk && way == WAY_OWN);
}

static void list_ways(const base *base, int ways, int streams, int chunks,
                      list *out)
{
    for (int w = 0; w < ways; w++)
        for (int t = HD_TRANSFER_BULK; t <= HD_TRANSFER_FUSED; t++)
            if (is_tried(base, (hd_transfer)t, (way)w, streams, chunks))
                list_transfer(base, (hd_transfer)t, (way)w, streams, chunks,
                              out);
}

// Of many ranks a shard in chunks is so many steps that none hides anything.
enum { MOST_PIECES = 64 };

static void list_candidates(const hd_module *module,
                            const hd_choose_options *options,
                            const hd_lower_options *given, list *out)
{
    hd_lower_options usual = hd_lower_defaults();
    base base = {.given = *given};
    hd_machine machine = HD_EMPTY(hd_machine);
    int streams[COUNTS], chunks[COUNTS], nstreams, nchunks, ways;

    hd_machine_default(&machine);
    if (options->machine != NULL &&
        !hd_sized_take(options->machine, sizeof machine, &machine))
        machine.multiprocessors = 0; // a simulation tells what is wrong
    ways = has_launches(module, options, &machine, given) ? WAYS : WAY_LAUNCH;
    base.engines = has_engines(module, &machine, given);
    base.fixed = hd_options_asked(given) | hd_options_differ(given, &usual);
    // More than four streams hide nothing.
    nstreams = list_counts(base.fixed & HD_OPTION_STREAMS, given->streams,
                           least(options->most_streams, 4), streams);
    nchunks = list_counts(base.fixed & HD_OPTION_CHUNKS, given->chunks,
                          options->most_chunks, chunks);
    out->n = 0;
    for (int i = 0; i < nchunks; i++)
        for (int j = 0; j < nstreams; j++)
            if (i == 0 || chunks[i] * module->nranks <= MOST_PIECES)
                list_ways(&base, ways, streams[j], chunks[i], out);
    for (size_t i = 0; i < out->n; i++)
        out->lower[i].asked =
            hd_options_asked(given) & ~(unsigned)HD_OPTION_TRANSFER;
}

// Three digits: a prediction is worth no more.
static double round_time(double seconds)
{
    double one = 1e-12;

    if (!(seconds < 1e12))
        return seconds;
    while (seconds >= 1000 * one)
        one *= 10;
    return (double)(int64_t)(seconds / one + 0.5) * one;
}

static int compare_candidates(const void *x, const void *y)
{
    const candidate *a = x, *b = y;
    double times[] = {round_time(a->prediction.time),
                      round_time(b->prediction.time)};

    if (times[0] != times[1])
        return times[0] < times[1] ? -1 : 1;
    // Equal by the model: what leaves no gaps between transfers, and has fewer
    // steps, whose price it does not know to the last.
    if (a->lower.comm_stream != b->lower.comm_stream)
        return a->lower.comm_stream ? -1 : 1;
    if (a->lower.chunks != b->lower.chunks)
        return a->lower.chunks - b->lower.chunks;
    if (a->lower.streams != b->lower.streams)
        return a->lower.streams - b->lower.streams;
    if (a->lower.transfer != b->lower.transfer)
        return (int)a->lower.transfer - (int)b->lower.transfer;
    if (a->lower.defer_sends != b->lower.defer_sends)
        return a->lower.defer_sends - b->lower.defer_sends;
    return a->index < b->index ? -1 : 1;
}

static bool has(const hd_block *block, bool (*is)(const hd_stmt *s))
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next)
        if (is(s) || has(&s->body, is) || has(&s->otherwise, is))
            return true;
    return false;
}

static bool is_launch(const hd_stmt *s)
{
    return s->kind == HD_STMT_LAUNCH;
}

static bool is_sum(const hd_stmt *s)
{
    return s->kind == HD_STMT_OP && hd_op_fold(s->op) == HD_FOLD_SUM;
}

// A clone that is lowered, and its text.
static hd_status lower_clone(const hd_module *module,
                             const hd_lower_options *options, hd_diag *diag,
                             hd_module **out, char **text)
{
    hd_lower_options lower = *options;
    hd_module *clone = NULL;
    hd_status status = hd_module_clone(module, diag, &clone);

    lower.until = HD_STAGE_HOST;
    if (status == HD_OK)
        status = hd_lower_by(clone, &lower, NULL, NULL, diag);
    if (status == HD_OK)
        status = hd_print(clone, text);
    *out = clone;
    return status;
}

// Whether a ring may add up, along an axis of more than two ranks.
static bool has_sums(const hd_module *module)
{
    bool many = false;

    for (int i = 0; i < module->naxes; i++)
        many = many || module->axis[i].size > 2;
    return many && has(&module->body, is_sum);
}

// A ring of more than two ranks rounds sums at each, which no other pipeline
// does: unless somebody asked for the wire or the ring they travel as f32,
// where there are any.
static hd_status widen_sums(const hd_module *module, bool named, hd_diag *diag,
                            candidate *c, hd_module **lowered)
{
    hd_lower_options wide = c->lower;
    hd_module *other = NULL;
    char *text = NULL;
    hd_status status;

    if (named || wide.transfer != HD_TRANSFER_RING ||
        (wide.asked & HD_OPTION_WIRE) != 0 || !has_sums(module))
        return HD_OK;
    wide.wire = HD_WIRE_F32;
    status = lower_clone(module, &wide, diag, &other, &text);
    if (status == HD_OK && strcmp(text, c->text) != 0) {
        hd_module *narrow = *lowered;
        char *was = c->text;

        *lowered = other;
        other = narrow;
        c->text = text;
        text = was;
        c->lower = wide;
    }
    hd_module_destroy(other);
    hd_free(text);
    return status;
}

// Which of the options that were given change nothing: without each the text is
// the same.
static hd_status find_vain(const hd_module *module, candidate *c)
{
    hd_lower_options usual = hd_lower_defaults();
    unsigned given;
    hd_status status = HD_OK;

    usual.transfer = c->lower.transfer;
    given = c->lower.asked & hd_options_differ(&c->lower, &usual);
    for (unsigned bit = 1; bit <= given && status == HD_OK; bit <<= 1) {
        hd_lower_options without = c->lower;
        hd_module *other = NULL;
        char *text = NULL;

        if ((given & bit) == 0)
            continue;
        hd_options_take(&without, &usual, bit);
        status = lower_clone(module, &without, NULL, &other, &text);
        if (status == HD_OK && strcmp(text, c->text) == 0)
            c->vain |= bit;
        else if (status != HD_ERROR_NO_MEMORY)
            status = HD_OK; // it needs the option
        hd_module_destroy(other);
        hd_free(text);
    }
    return status;
}

static hd_status simulate(const hd_module *lowered, const hd_machine *machine,
                          hd_diag *diag, candidate *c, int64_t *steps)
{
    hd_simulation *simulation = NULL;
    hd_simulate_options how = hd_simulate_defaults();
    hd_status status;

    how.machine = machine;
    how.transport = c->lower.transport;
    how.axes = c->lower.axes;
    status = hd_simulate_over(lowered, &how, diag, &simulation);
    c->prediction = HD_EMPTY(hd_prediction);
    if (status == HD_OK)
        hd_simulation_predict(simulation, &c->prediction);
    // What fails may have been too long to look at.
    *steps +=
        status == HD_OK ? hd_simulation_intervals(simulation) : MOST_STEPS / 4;
    c->launches = has(&lowered->body, is_launch);
    hd_simulation_destroy(simulation);
    return status;
}

// A launch that there is none of, or a stream for transfers that a bulk
// collective gains nothing from.
static bool gains_nothing(const hd_choice *choice, const candidate *c)
{
    if (c->lower.launch && (c->lower.asked & HD_OPTION_LAUNCH) == 0 &&
        (c->prediction.parts || !c->launches))
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

// The candidate that makes the same program, or NULL.
static candidate *find_same(hd_choice *choice, const char *text)
{
    for (size_t i = 0; i < choice->n; i++)
        if (strcmp(choice->candidate[i].text, text) == 0)
            return &choice->candidate[i];
    return NULL;
}

// Fills `c`, and its options where sums travel wider. Of a program that is
// there no more is asked than who makes it.
static hd_status predict(const hd_module *module, const hd_machine *machine,
                         hd_diag *diag, hd_choice *choice, candidate *c)
{
    hd_module *lowered = NULL;
    hd_status status = lower_clone(module, &c->lower, diag, &lowered, &c->text);
    candidate *same;

    if (status == HD_OK)
        status = widen_sums(module, choice->named, diag, c, &lowered);
    same = status == HD_OK ? find_same(choice, c->text) : NULL;
    if (same != NULL && same->lower.transfer != c->lower.transfer)
        same->also |= 1u << c->lower.transfer;
    else if (same == NULL && status == HD_OK)
        status = simulate(lowered, machine, diag, c, &choice->steps);
    if (same == NULL && status == HD_OK)
        status = find_vain(module, c);
    hd_module_destroy(lowered);
    if (same != NULL || status != HD_OK || gains_nothing(choice, c))
        hd_free(c->text);
    else
        choice->candidate[choice->n++] = *c;
    return status;
}

// Those on which more of what was given does nothing than on others are none.
static void drop_vain(hd_choice *choice)
{
    int fewest = INT_MAX;
    size_t n = 0;

    for (size_t i = 0; i < choice->n; i++)
        fewest = least(fewest, __builtin_popcount(choice->candidate[i].vain));
    for (size_t i = 0; i < choice->n; i++)
        if (__builtin_popcount(choice->candidate[i].vain) == fewest)
            choice->candidate[n++] = choice->candidate[i];
        else
            hd_free(choice->candidate[i].text);
    choice->n = n;
}

// What is said of the options that were given.
static hd_status tell_why(const hd_module *module, const hd_machine *machine,
                          const hd_lower_options *lower, hd_diag *diag)
{
    candidate c = {.lower = *lower};
    hd_choice none = {.n = 0};
    hd_status status;

    if (c.lower.transfer == HD_TRANSFER_AUTO)
        c.lower.transfer = HD_TRANSFER_RING;
    status = predict(module, machine, diag, &none, &c);
    if (none.n > 0)
        hd_free(none.candidate[0].text);
    return status;
}

static hd_status try_all(const hd_module *module,
                         const hd_choose_options *options,
                         const hd_lower_options *given, hd_diag *diag,
                         hd_choice *choice)
{
    hd_status status = HD_OK;
    int64_t most = MOST_STEPS;
    list list;

    for (const hd_stmt *s = module->body.first; s != NULL; s = s->next)
        most += STEPS_OF_A_STATEMENT;
    list_candidates(module, options, given, &list);
    choice->named = given->transfer != HD_TRANSFER_AUTO;
    for (size_t i = 0; i < list.n && choice->steps <= most; i++) {
        candidate c = {.lower = list.lower[i], .index = i};

        if (options->hook != NULL)
            options->hook(options->context, i, list.n, &list.lower[i]);
        status = predict(module, options->machine, NULL, choice, &c);
        if (status == HD_ERROR_NO_MEMORY)
            return hd_fail(diag, status, "out of memory");
    }
    drop_vain(choice);
    if (choice->n > 0)
        return HD_OK;
    status = tell_why(module, options->machine, given, diag);
    return status != HD_OK ? status : HD_ERROR_INVALID;
}

// Where tensors lie is the same for all candidates: NULL if it is said already.
static hd_status place_once(const hd_module *module, hd_diag *diag,
                            hd_module **out)
{
    hd_lower_options lower = hd_lower_defaults();
    hd_status status;

    if (module->stage != HD_STAGE_TENSOR || module->placed)
        return HD_OK;
    HD_TRY(hd_module_clone(module, diag, out));
    lower.transfer = HD_TRANSFER_RING;
    lower.until = HD_STAGE_PLACE;
    status = hd_lower_by(*out, &lower, NULL, NULL, NULL);
    if (status == HD_OK)
        return HD_OK;
    hd_module_destroy(*out); // why not is told of a candidate
    *out = NULL;
    return status == HD_ERROR_NO_MEMORY ? hd_fail(diag, status, "out of memory")
                                        : HD_OK;
}

// Whether some finding is that a program has more than there may be.
static bool is_beyond(const hd_diag *diag)
{
    hd_message message = HD_EMPTY(hd_message);
    bool beyond = false;

    for (size_t i = 0; hd_diag_message(diag, i, &message); i++)
        beyond |= strcmp(message.code, "HD0105") == 0;
    return beyond;
}

// Whether no proof says of it whether it is right: its steps cut its buffers
// too finely.
static hd_status is_unproven(const candidate *c, bool *out)
{
    hd_check_options how = hd_check_defaults();
    hd_diag *diag = hd_diag_create();
    hd_module *module = NULL;
    hd_status status = diag != NULL ? HD_OK : HD_ERROR_NO_MEMORY;

    how.transport = c->lower.transport;
    how.axes = c->lower.axes;
    if (status == HD_OK)
        status = hd_parse("", c->text, strlen(c->text), NULL, 0, diag, &module);
    if (status == HD_OK)
        status = hd_check(module, &how, diag);
    *out = status == HD_ERROR_INVALID && is_beyond(diag);
    hd_module_destroy(module);
    hd_diag_destroy(diag);
    return status == HD_ERROR_NO_MEMORY ? status : HD_OK;
}

// The best is one that may be proven, if one may.
static hd_status drop_unproven(hd_choice *choice)
{
    bool unproven = true;

    while (choice->n > 1) {
        HD_TRY(is_unproven(&choice->candidate[0], &unproven));
        if (!unproven)
            break;
        hd_free(choice->candidate[0].text);
        memmove(choice->candidate, choice->candidate + 1,
                sizeof *choice->candidate * --choice->n);
    }
    return HD_OK;
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
    hd_module *placed = NULL;
    hd_choice *choice;
    hd_status status;

    HD_REQUIRE(diag, module);
    HD_REQUIRE(diag, out);
    HD_TRY(hd_sized_read("hd_choose", given, sizeof options, diag, &options));
    HD_TRY(
        hd_sized_read("hd_choose", options.lower, sizeof lower, diag, &lower));
    HD_TRY(check_options(module, &options, diag));
    HD_TRY(hd_lower_judge(&lower, diag));
    choice = calloc(1, sizeof *choice);
    if (choice == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a choice");
    status = place_once(module, diag, &placed);
    if (status == HD_OK)
        status = try_all(placed != NULL ? placed : module, &options, &lower,
                         diag, choice);
    hd_module_destroy(placed);
    qsort(choice->candidate, choice->n, sizeof *choice->candidate,
          compare_candidates);
    if (status == HD_OK && drop_unproven(choice) != HD_OK)
        status = hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    if (status != HD_OK) {
        hd_choice_destroy(choice);
        return status;
    }
    *out = choice;
    return HD_OK;
}

static bool has_choice(const hd_module *module,
                       const hd_choose_options *options,
                       const hd_lower_options *lower)
{
    return module->stage < HD_STAGE_TRANSFER &&
           lower->until > HD_STAGE_RESHARD && lower->until != HD_STAGE_PLACE &&
           module->nranks > 1 &&
           (module->nranks <= HD_CHOOSE_RANKS || options->machine != NULL ||
            (lower->asked & HD_OPTION_TRANSFER) != 0);
}

static hd_status choose_lower(const hd_module *module,
                              const hd_choose_options *options, hd_diag *diag,
                              hd_lower_options *lower)
{
    hd_choice *choice;
    hd_status status = HD_ERROR_INVALID;

    HD_TRY(hd_lower_judge(lower, diag));
    if (has_choice(module, options, lower))
        status = hd_choose(module, options, NULL, &choice);
    if (status == HD_ERROR_NO_MEMORY)
        return hd_fail(diag, status, "out of memory");
    if (status == HD_ERROR_ARGUMENT) // such as a machine that is none
        return hd_choose(module, options, diag, &choice);
    if (status == HD_OK) {
        hd_choice_candidate(choice, 0, lower, NULL, NULL);
        hd_choice_destroy(choice);
        return HD_OK;
    }
    lower->asked = hd_options_asked(lower);
    lower->transfer = HD_TRANSFER_RING;
    return HD_OK;
}

hd_status hd_choose_lower(const hd_module *module,
                          const hd_choose_options *given, hd_diag *diag,
                          hd_lower_options *lower)
{
    hd_choose_options options = hd_choose_defaults();
    hd_lower_options with = hd_lower_defaults();

    HD_REQUIRE(diag, module);
    HD_REQUIRE(diag, lower);
    HD_TRY(hd_sized_read("hd_choose_lower", given, sizeof options, diag,
                         &options));
    HD_TRY(hd_sized_read("hd_choose_lower", lower, sizeof with, diag, &with));
    options.lower = &with;
    if (with.transfer == HD_TRANSFER_AUTO)
        HD_TRY(choose_lower(module, &options, diag, &with));
    hd_sized_write(&with, sizeof with, lower);
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
