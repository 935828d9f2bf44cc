// See measure.h.
#include <heddle/launch.h>
#include <heddle/verify.h>

#include "measure.h"

#include "program.h"
#include "quantile.h"
#include "random.h"
#include "ranks.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// A shape's programs have a few tensors; a file's all have the same.
enum { MOST_BUFFERS = MOST_ARGUMENTS, TIMES = 4 };

#define DO(call)                     \
    do {                             \
        hd_status do_status_ = call; \
        if (do_status_ != HD_OK)     \
            return do_status_;       \
    } while (0)

// Memory of the device that contenders share: one for each name and size.
typedef struct buffer {
    const char *name; // borrowed
    size_t bytes;
    void *memory; // owned, of the first session
    int set;      // of inputs that it holds; -1 if none
} buffer;

// A contender in this rank.
typedef struct entry {
    hd_session *session;            // owned; NULL if it does not run
    buffer *buffer[MOST_ARGUMENTS]; // borrowed: by argument
    void *argument[MOST_ARGUMENTS]; // what hd_session_run takes
    size_t n;
    // Owned, one block: a sample each, TIMES of them.
    double *time, *alone, *issue, *issue_alone;
} entry;

typedef struct rank {
    const measure *measure;
    hd_group *group; // borrowed
    double start;    // s
    int rank;
    contest *contest;
    entry entry[MOST_CONTENDERS];
    int first, end;   // the contenders that are open
    hd_session *host; // borrowed: of whose memory the buffers are
    buffer buffer[MOST_BUFFERS];
    int nbuffers;
    unsigned char *staging; // owned: room for the largest argument
    size_t room;
    pool pool;
    sample sample;
} rank;

static hd_diag *diag_of(const rank *rank)
{
    return rank->measure->diag;
}

static hd_status gather(const rank *rank, const void *mine, size_t bytes,
                        void *all)
{
    ranks_be_patient(rank->group, rank->measure->session.timeout, rank->start);
    return hd_group_allgather(rank->group, mine, bytes, all, diag_of(rank));
}

static hd_status meet(const rank *rank)
{
    return gather(rank, NULL, 0, NULL);
}

static bool is_measured(const rank *rank, int i)
{
    return rank->entry[i].session != NULL;
}

static void show_progress(const rank *rank, const char *doing, int i)
{
    if (rank->rank == 0)
        progress("%s: %s %s", rank->contest->id, doing,
                 rank->contest->contender[i].name);
}

static bool argument_of(const rank *rank, int i, size_t j, hd_argument *out)
{
    return hd_module_argument(rank->contest->contender[i].module, j, out);
}

// ------------------------------------------------------------------ sessions

// Contenders of a transport that cannot be had, as NCCL's without NCCL and
// those of sm between hosts, or that deadlock over the transport that the
// session has settled on, are left out, and the table says why.
static hd_status open_session(rank *rank, int i)
{
    const contender *c = &rank->contest->contender[i];
    hd_session_options options = rank->measure->session;
    score *score = &rank->contest->score[i];
    hd_message message = HD_EMPTY(hd_message);
    hd_status status;

    options.transport = c->transport;
    options.graph = c->graph;
    status = hd_session_create(rank->group, c->module, &options, diag_of(rank),
                               &rank->entry[i].session);
    if (status == HD_OK && c->transport == HD_TRANSPORT_AUTO)
        status =
            program_judge(rank->entry[i].session, c->module, diag_of(rank));
    if (status == HD_OK && *hd_diag_text(diag_of(rank)) != '\0') {
        // Warned of; the first rank tells it for all.
        if (hd_group_rank(rank->group) == 0)
            fprintf(stderr, "%s: %s", c->name, hd_diag_text(diag_of(rank)));
        hd_diag_clear(diag_of(rank));
    }
    if (status != HD_ERROR_INVALID &&
        (status != HD_ERROR_UNSUPPORTED || c->transport == HD_TRANSPORT_AUTO))
        return status;
    hd_session_destroy(rank->entry[i].session);
    rank->entry[i].session = NULL;
    if (hd_diag_message(diag_of(rank), 0, &message))
        snprintf(score->why, sizeof score->why, "%s", message.text);
    hd_diag_clear(diag_of(rank));
    return meet(rank);
}

static hd_status find_buffer(rank *rank, const hd_argument *about, buffer **out)
{
    buffer *b = rank->buffer;
    buffer *end = b + rank->nbuffers;

    while (b < end && (b->bytes != about->local_bytes ||
                       strcmp(b->name, about->name) != 0))
        b++;
    *out = b;
    if (b < end)
        return HD_OK;
    if (rank->nbuffers == MOST_BUFFERS)
        return HD_ERROR_NO_MEMORY;
    *b = (buffer){.name = about->name, .bytes = about->local_bytes, .set = -1};
    rank->nbuffers++;
    if (b->bytes > rank->room)
        rank->room = b->bytes;
    return hd_session_alloc(rank->host, b->bytes, diag_of(rank), &b->memory);
}

static hd_status open_arguments(rank *rank, int i)
{
    entry *entry = &rank->entry[i];
    size_t samples = (size_t)(rank->measure->rounds * rank->measure->iters);

    entry->n = info_of(rank->contest->contender[i].module).narguments;
    for (size_t j = 0; j < entry->n; j++) {
        hd_argument about = HD_EMPTY(hd_argument);

        if (j == MOST_ARGUMENTS || !argument_of(rank, i, j, &about))
            return HD_ERROR_NO_MEMORY;
        DO(find_buffer(rank, &about, &entry->buffer[j]));
        entry->argument[j] = entry->buffer[j]->memory;
    }
    entry->time = need(TIMES * samples, sizeof *entry->time);
    entry->alone = entry->time + samples;
    entry->issue = entry->alone + samples;
    entry->issue_alone = entry->issue + samples;
    return HD_OK;
}

static hd_status open_entries(rank *rank)
{
    for (int i = rank->first; i < rank->end; i++) {
        show_progress(rank, "opening", i);
        DO(open_session(rank, i));
        if (!is_measured(rank, i))
            continue;
        if (!rank->host)
            rank->host = rank->entry[i].session;
        DO(open_arguments(rank, i));
    }
    rank->staging = memory_pages(rank->room, false);
    return rank->staging ? HD_OK : HD_ERROR_NO_MEMORY;
}

// The session whose memory the others use goes last.
static void close_entries(rank *rank)
{
    memory_free(rank->staging, rank->room);
    for (int i = rank->end - 1; i >= rank->first; i--) {
        entry *entry = &rank->entry[i];

        if (entry->session == rank->host)
            for (int b = 0; b < rank->nbuffers; b++)
                hd_session_free(rank->host, rank->buffer[b].memory);
        hd_session_destroy(entry->session);
        free(entry->time);
        memset(entry, 0, sizeof *entry);
    }
    rank->staging = NULL;
    rank->room = 0;
    rank->host = NULL;
    rank->nbuffers = 0;
}

// -------------------------------------------------------------------- inputs

// Rows of the whole matrix follow each other through the ranks where it is
// sharded; K and V that each rank has whole are no shards in a row.
static int64_t row_of(const rank *rank, bool sharded, int64_t rows, int64_t i)
{
    if (sharded)
        return rank->rank * rows + i;
    if (shape_attends(&rank->contest->shape))
        return attended_row(&rank->contest->shape.attention,
                            rank->measure->ranks, i);
    return i;
}

static void draw_rows(const rank *rank, const hd_argument *about, int set)
{
    size_t width = (size_t)about->extent[about->ndims - 1];
    size_t bytes = width * hd_dtype_size(about->dtype);
    int64_t rows = (int64_t)(about->local_elements / width);

    for (int64_t i = 0; i < rows; i++)
        memcpy(rank->staging + (size_t)i * bytes,
               pool_row(&rank->pool, set, about->name,
                        row_of(rank, is_sharded(about), rows, i)),
               bytes);
}

// What holds the set already is left alone, unless a run has written it.
static hd_status load(const rank *rank, int i, size_t j,
                      const hd_argument *about, int set)
{
    const contest *contest = rank->contest;
    const entry *entry = &rank->entry[i];
    buffer *buffer = entry->buffer[j];

    if (about->role == HD_ROLE_OUT ||
        (about->role == HD_ROLE_IN && buffer->set == set))
        return HD_OK;
    buffer->set = set;
    if (contest->program)
        hd_shard(contest->contender[i].module, j, rank->rank,
                 contest->whole[set][j].data, rank->staging);
    else
        draw_rows(rank, about, set);
    return hd_session_copy(entry->session, buffer->memory, rank->staging,
                           buffer->bytes, diag_of(rank));
}

static hd_status load_all(const rank *rank, int i, int set)
{
    for (size_t j = 0; j < rank->entry[i].n; j++) {
        hd_argument about = HD_EMPTY(hd_argument);

        if (!argument_of(rank, i, j, &about))
            return HD_ERROR_ARGUMENT;
        DO(load(rank, i, j, &about, set));
    }
    return HD_OK;
}

static hd_status start(const rank *rank, int i)
{
    const entry *entry = &rank->entry[i];

    return hd_session_run(entry->session, entry->argument, entry->n, NULL,
                          diag_of(rank));
}

static hd_status finish(const rank *rank, int i)
{
    return hd_session_finish(rank->entry[i].session, diag_of(rank));
}

static hd_status warm_up(const rank *rank, int i)
{
    DO(load_all(rank, i, 0));
    DO(meet(rank));
    for (int64_t run = 0; run < rank->measure->warmup; run++)
        DO(start(rank, i));
    return finish(rank, i);
}

// -------------------------------------------------------------- verification

// A range of an output that is looked at.
typedef struct range {
    size_t first, elements;
    int row; // of the sample; -1 if it is all of the output
} range;

// The sampled rows that this rank holds, or the whole.
static int find_ranges(const rank *rank, int i, const hd_argument *about,
                       range out[SAMPLE_ROWS])
{
    const sample *sample = &rank->sample;
    int64_t rows, first;
    int n = 0;

    if (rank->contest->contender[i].judge == JUDGE_REFERENCE) {
        out[0] = (range){0, about->local_elements, -1};
        return 1;
    }
    rows = (int64_t)about->local_elements / sample->n;
    first = rows < sample->m ? rank->rank * rows : 0;
    for (int r = 0; r < sample->nrows; r++) {
        int64_t row = sample->row[r] - first;

        if (row >= 0 && row < rows)
            out[n++] = (range){(size_t)(row * sample->n), (size_t)sample->n, r};
    }
    return n;
}

static hd_status compare_argument(const rank *rank, const contender *c,
                                  size_t j, verdict *verdict)
{
    const contest *contest = rank->contest;
    const void *whole[MOST_ARGUMENTS];
    hd_reference *own = NULL;
    standard standard = {.module = c->module,
                         .reference = contest->reference,
                         .whole = whole,
                         .own = &own};
    hd_status status;

    for (size_t i = 0; i < contest->narguments; i++)
        whole[i] = contest->whole[INPUT_SETS - 1][i].data;
    status = verdict_add(verdict, &standard, j, rank->rank, 1, rank->staging,
                         diag_of(rank));
    hd_reference_destroy(own);
    return status;
}

static hd_status compare_range(const rank *rank, int i, size_t j,
                               const range *range, verdict *verdict)
{
    const contender *c = &rank->contest->contender[i];
    sample_of of = c->judge == JUDGE_OWN ? SAMPLE_OWN
                   : c->hops             ? SAMPLE_HOPS
                                         : SAMPLE_SUM;
    finding place = {.rank = rank->rank, .run = 1, .index = range->first};

    if (range->row >= 0) {
        sample_compare(&rank->sample, range->row, of, rank->staging, &place,
                       verdict);
        return HD_OK;
    }
    return compare_argument(rank, c, j, verdict);
}

// Fills what will be looked at with NaNs, so that what a run does not write
// shows; or looks at it.
static hd_status judge_output(const rank *rank, int i, size_t j,
                              const hd_argument *about, bool poison,
                              verdict *verdict)
{
    const entry *entry = &rank->entry[i];
    size_t size = hd_dtype_size(about->dtype);
    range ranges[SAMPLE_ROWS];
    int n = find_ranges(rank, i, about, ranges);

    for (int s = 0; s < n; s++) {
        size_t bytes = ranges[s].elements * size;
        char *at = (char *)entry->argument[j] + ranges[s].first * size;

        if (poison)
            memset(rank->staging, 0xff, bytes);
        DO(hd_session_copy(entry->session, poison ? (void *)at : rank->staging,
                           poison ? rank->staging : (void *)at, bytes,
                           diag_of(rank)));
        if (!poison)
            DO(compare_range(rank, i, j, &ranges[s], verdict));
    }
    return HD_OK;
}

// Outputs, and with `poison` only those that a run writes without reading them.
static hd_status judge_outputs(const rank *rank, int i, bool poison,
                               verdict *verdict)
{
    if (rank->contest->contender[i].judge == JUDGE_NONE)
        return HD_OK;
    for (size_t j = 0; j < rank->entry[i].n; j++) {
        hd_argument about = HD_EMPTY(hd_argument);

        if (!argument_of(rank, i, j, &about))
            return HD_ERROR_ARGUMENT;
        if (about.role == HD_ROLE_OUT ||
            (about.role == HD_ROLE_INOUT && !poison))
            DO(judge_output(rank, i, j, &about, poison, verdict));
    }
    return HD_OK;
}

// Adds all ranks' findings about one contender; every rank has them.
static hd_status gather_verdict(const rank *rank, int i, const verdict *mine)
{
    size_t ranks = (size_t)rank->measure->ranks;
    verdict *all = need(ranks, sizeof *all);
    hd_status status = gather(rank, mine, sizeof *mine, all);

    for (size_t r = 0; r < ranks && status == HD_OK; r++)
        if (all[r].checked > 0)
            verdict_merge(&rank->contest->score[i].verdict, &all[r]);
    free(all);
    return status;
}

// What is read and written becomes another thing in each run.
static bool changes_inputs(const rank *rank, int i)
{
    hd_argument about = HD_EMPTY(hd_argument);
    bool changes = false;

    for (size_t j = 0; j < rank->entry[i].n; j++)
        changes |=
            argument_of(rank, i, j, &about) && about.role == HD_ROLE_INOUT;
    return changes;
}

// A run on inputs that no run has had, into outputs full of NaNs; which they
// are again when the runs begin that are timed.
static hd_status verify(const rank *rank, int i)
{
    verdict verdict = {0};

    DO(load_all(rank, i, 1));
    DO(judge_outputs(rank, i, true, &verdict));
    DO(meet(rank));
    DO(start(rank, i));
    DO(finish(rank, i));
    DO(judge_outputs(rank, i, false, &verdict));
    DO(gather_verdict(rank, i, &verdict));
    return judge_outputs(rank, i, true, &verdict);
}

// What the last of its runs that were timed has left.
static hd_status verify_last(const rank *rank, int i)
{
    verdict verdict = {0};

    if (changes_inputs(rank, i))
        return HD_OK;
    DO(judge_outputs(rank, i, false, &verdict));
    return gather_verdict(rank, i, &verdict);
}

// The parts of the sampled rows that the ranks computed, put together.
static hd_status expect_rows(rank *rank)
{
    const contest *contest = rank->contest;
    const shape *shape = &contest->shape;
    sample *sample = &rank->sample;
    size_t part;
    double *parts;
    hd_status status;

    *sample = (struct sample){
        .from = &rank->pool,
        .set = 1,
        .m = shape->m,
        .n = shape->n,
        .k = shape->k,
        .attention = shape_attends(shape) ? &shape->attention : NULL,
        .ranks = rank->measure->ranks,
        .split = shape->kind == SHAPE_RS || shape->kind == SHAPE_AR};
    if (!sample_open(sample))
        return HD_ERROR_NO_MEMORY;
    part = sample_part(sample);
    parts = need(part * (size_t)sample->ranks, sizeof *parts);
    sample_compute(sample, rank->rank);
    status = gather(rank, sample->part, part * sizeof *parts, parts);
    if (status == HD_OK)
        sample_combine(sample, rank->rank, parts);
    free(parts);
    return status;
}

// -------------------------------------------------------------------- times

static hd_status take_sample(const rank *rank, int i, size_t s)
{
    const measure *measure = rank->measure;
    const entry *entry = &rank->entry[i];
    hd_stats stats = HD_EMPTY(hd_stats);
    double begin;

    DO(meet(rank));
    begin = seconds();
    DO(start(rank, i));
    entry->issue[s] = entry->issue_alone[s] = seconds() - begin;
    DO(finish(rank, i));
    entry->alone[s] = entry->time[s] = seconds() - begin;
    if (measure->cuda) {
        hd_session_stats(entry->session, &stats);
        entry->alone[s] = stats.seconds;
    }
    if (measure->queue == 1) {
        entry->time[s] = entry->alone[s];
        return HD_OK;
    }
    DO(meet(rank));
    begin = seconds();
    for (int64_t run = 0; run < measure->queue; run++)
        DO(start(rank, i));
    entry->issue[s] = (seconds() - begin) / (double)measure->queue;
    DO(finish(rank, i));
    entry->time[s] = (seconds() - begin) / (double)measure->queue;
    return HD_OK;
}

// The samples of a contender in a round; in the last one nobody has written to
// the outputs since.
static hd_status take_turn(const rank *rank, int i, int64_t round)
{
    int64_t iters = rank->measure->iters;
    char doing[64];

    if (!is_measured(rank, i))
        return HD_OK;
    snprintf(doing, sizeof doing, "round %" PRId64 " of %" PRId64 ": measuring",
             round + 1, rank->measure->rounds);
    show_progress(rank, doing, i);
    for (int64_t k = 0; k < iters; k++)
        DO(take_sample(rank, i, (size_t)(round * iters + k)));
    return round == rank->measure->rounds - 1 ? verify_last(rank, i) : HD_OK;
}

// Each round has an order of its own, the same on all ranks, so that none is
// always behind the same one: who leaves the device hot slows who comes next.
static hd_status take_times(const rank *rank)
{
    const measure *measure = rank->measure;
    int n = rank->end - rank->first;
    int *order = malloc((size_t)n * sizeof *order);
    hd_status status = order != NULL ? HD_OK : HD_ERROR_NO_MEMORY;

    for (int64_t round = 0; round < measure->rounds && status == HD_OK;
         round++) {
        random_order((uint64_t)round, n, order);
        for (int turn = 0; turn < n && status == HD_OK; turn++)
            status = take_turn(rank, rank->first + order[turn], round);
    }
    free(order);
    return status;
}

static hd_status gather_times(const rank *rank, int i)
{
    const measure *measure = rank->measure;
    const entry *entry = &rank->entry[i];
    size_t n = (size_t)(measure->rounds * measure->iters);
    size_t ranks = (size_t)measure->ranks;
    size_t own = TIMES * n;
    double *all = need(ranks * own, sizeof *all);
    score *score = &rank->contest->score[i];
    hd_stats stats = HD_EMPTY(hd_stats);
    hd_status status = gather(rank, entry->time, own * sizeof *all, all);

    for (size_t k = own; k < ranks * own && status == HD_OK; k++)
        all[k % own] = fmax(all[k % own], all[k]);
    for (int kind = 0; kind < TIMES; kind++)
        sort_doubles(all + (size_t)kind * n, n);
    hd_session_stats(entry->session, &stats);
    if (status == HD_OK && (rank->rank == 0 || measure->place)) {
        score->ran = true;
        score->median = quantile(all, n, 0.5);
        score->p5 = quantile(all, n, 0.05);
        score->p95 = quantile(all, n, 0.95);
        score->alone = quantile(all + n, n, 0.5);
        score->issue = quantile(all + 2 * n, n, 0.5);
        score->issue_alone = quantile(all + 3 * n, n, 0.5);
        snprintf(score->library, sizeof score->library, "%s",
                 stats.matmul ? stats.matmul : "");
    }
    free(all);
    return status;
}

// ------------------------------------------------------------------ contests

static hd_status for_each(rank *rank, const char *doing,
                          hd_status (*fn)(const struct rank *rank, int i))
{
    for (int i = rank->first; i < rank->end; i++)
        if (is_measured(rank, i)) {
            show_progress(rank, doing, i);
            DO(fn(rank, i));
        }
    return HD_OK;
}

static hd_status measure_entries(rank *rank)
{
    DO(open_entries(rank));
    DO(for_each(rank, "warming up", warm_up));
    DO(for_each(rank, "verifying", verify));
    DO(take_times(rank));
    return for_each(rank, "gathering", gather_times);
}

bool measure_apart(const measure *measure, const contest *contest)
{
    double bytes = 0;

    for (int i = 0; i < contest->n; i++)
        bytes += contest->contender[i].bytes;
    return bytes > measure->memory;
}

static hd_status measure_batches(rank *rank)
{
    const contest *contest = rank->contest;
    int together = measure_apart(rank->measure, contest) ? 1 : contest->n;
    hd_status status = HD_OK;

    for (int i = 0; i < contest->n && status == HD_OK; i += together) {
        rank->first = i;
        rank->end = i + together;
        status = measure_entries(rank);
        close_entries(rank);
    }
    return status;
}

static hd_status measure_contest(rank *rank)
{
    const shape *shape = &rank->contest->shape;
    hd_status status = HD_OK;

    if (!rank->contest->program) {
        int64_t width = shape->k > shape->n ? shape->k : shape->n;

        if (!pool_open(&rank->pool, shape->dtype, rank->measure->seed,
                       (size_t)width))
            return HD_ERROR_NO_MEMORY;
        status = expect_rows(rank);
    }
    if (status == HD_OK)
        status = measure_batches(rank);
    sample_close(&rank->sample);
    pool_close(&rank->pool);
    memset(&rank->sample, 0, sizeof rank->sample);
    return status;
}

static hd_status run_rank(void *context, hd_group *group)
{
    const measure *measure = context;
    rank *rank = need(1, sizeof *rank);
    hd_status status = HD_OK;

    rank->measure = measure;
    rank->group = group;
    rank->rank = hd_group_rank(group);
    rank->start = seconds();
    for (int i = 0; i < measure->n && status == HD_OK; i++) {
        rank->contest = &measure->contest[i];
        status = measure_contest(rank);
        if (rank->rank == 0)
            progress_end();
        if (status == HD_OK && rank->rank == 0)
            measure->done(measure->context, rank->contest);
    }
    free(rank);
    return status;
}

outcome measure_all(measure *measure)
{
    hd_status status;

    fflush(stdout); // ranks must not have it to print again
    if (measure->place)
        status = hd_join(measure->place, measure->session.timeout, run_rank,
                         measure, measure->diag);
    else
        status = hd_launch(measure->ranks, measure->session.timeout, 0,
                           run_rank, measure, measure->diag);
    return tell(measure->diag, status, "the benchmark failed");
}
