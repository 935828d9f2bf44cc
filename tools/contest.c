// See contest.h. The programs of a shape are written here as text: what is
// measured is what anybody could have written in a file.
#include <heddle/simulate.h>
#include <heddle/verify.h>

#include "contest.h"

#include "random.h"
#include "template.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ------------------------------------------------------------------ programs

// The words that stand in these texts for a shape: see `fill`.
static const char gather_text[] = "tensor program ag_matmul\n"
                                  "mesh tp=$R\n"
                                  "in %a : $T[$R @tp, $B, $K]\n"
                                  "in %w : $T[$N, $K]\n"
                                  "out %c : $T[$R$P, $B, $N]\n"
                                  "temp %ag : $T[$R$P, $B, $K]\n"
                                  "{\n"
                                  "    %ag = set %a\n"
                                  "    %c = matmul %ag, %w tb\n"
                                  "}\n";

static const char gather_matmul_text[] = "tensor program matmul\n"
                                         "mesh tp=$R\n"
                                         "in %a : $T[$M, $K]\n"
                                         "in %w : $T[$N, $K]\n"
                                         "out %c : $T[$M, $N]\n"
                                         "{\n"
                                         "    %c = matmul %a, %w tb\n"
                                         "}\n";

static const char gather_bulk_text[] = "host program all_gather\n"
                                       "mesh tp=$R\n"
                                       "in %a : $T[$R @tp, $B, $K]\n"
                                       "temp %ag : $T[$R, $B, $K] shared\n"
                                       "{\n"
                                       "    %ag = all_gather %a[tp]\n"
                                       "}\n";

static const char gather_ring_text[] =
    "host program all_gather_ring\n"
    "mesh tp=$R\n"
    "in %a : $T[$R @tp, $B, $K]\n"
    "temp %ag : $T[$R, $B, $K] shared\n"
    "{\n"
    "    for j in 0..$R - 1 {\n"
    "        group {\n"
    "            if j == 0 {\n"
    "                send %a[tp] to (tp + 1) mod $R\n"
    "            } else {\n"
    "                send %ag[(tp - j) mod $R] to (tp + 1) mod $R\n"
    "            }\n"
    "            %ag[(tp - j - 1) mod $R] = recv from (tp - 1) mod $R\n"
    "        }\n"
    "    }\n"
    "}\n";

#define SUMMED(name, result)               \
    "tensor program " name "\n"            \
    "mesh tp=$R\n"                         \
    "in %a : $T[$R @tp, $R, $B, $K]\n"     \
    "in %w : $T[$R @tp, 1, $N, $K]\n"      \
    "temp %p : $T[$R @tp, $R$P, $B, $N]\n" \
    "out %c : $T[" result ", $B, $N]\n"    \
    "{\n"                                  \
    "    %p = matmul %a, %w tb\n"          \
    "    %c = sum %p dim 0\n"              \
    "}\n"

static const char scatter_text[] = SUMMED("matmul_rs", "$R @tp");
static const char reduce_text[] = SUMMED("matmul_ar", "$R");

static const char reduce_matmul_text[] = "tensor program matmul\n"
                                         "mesh tp=$R\n"
                                         "in %a : $T[$R @tp, $M, $K]\n"
                                         "in %w : $T[$R @tp, $N, $K]\n"
                                         "out %p : $T[$R @tp, $M, $N]\n"
                                         "{\n"
                                         "    %p = matmul %a, %w tb\n"
                                         "}\n";

// What a reduction must move at least, without the additions.
static const char scatter_link_text[] = "host program all_to_all\n"
                                        "mesh tp=$R\n"
                                        "in %p : $T[$R @tp, $R, $B, $N]\n"
                                        "temp %q : $T[$R, $B, $N] shared\n"
                                        "{\n"
                                        "    %q = all_to_all %p[tp]\n"
                                        "}\n";

static const char reduce_link_text[] = "host program all_to_all_all_gather\n"
                                       "mesh tp=$R\n"
                                       "in %p : $T[$R @tp, $R, $B, $N]\n"
                                       "temp %q : $T[$R, $B, $N] shared\n"
                                       "temp %g : $T[$R, $B, $N] shared\n"
                                       "{\n"
                                       "    %q = all_to_all %p[tp]\n"
                                       "    %g = all_gather %q[tp]\n"
                                       "}\n";

static const char attend_text[] =
    "tensor program attention\n"
    "mesh tp=$R\n"
    "in %q : $T[$R @tp, $H, $S, $D]\n"
    "in %k : $T[$R @tp, $G, $S, $D]\n"
    "in %v : $T[$R @tp, $G, $S, $D]\n"
    "out %o : $T[$R @tp, $H, $S, $D]\n"
    "temp %lse : f32[$R @tp, $H, $S]\n"
    "temp %kg : $T[$R$P, $G, $S, $D]\n"
    "temp %vg : $T[$R$P, $G, $S, $D]\n"
    "{\n"
    "    %kg = set %k\n"
    "    %vg = set %v\n"
    "    %o, %lse = attention %q, %kg, %vg blocks$Z\n"
    "}\n";

// All keys are there, each head's in a row.
#define ATTEND_ALONE(body)              \
    "tensor program attention\n"        \
    "mesh tp=$R\n"                      \
    "in %q : $T[$R @tp, $H, $S, $D]\n"  \
    "in %k : $T[$G, $L, $D]\n"          \
    "in %v : $T[$G, $L, $D]\n"          \
    "out %o : $T[$R @tp, $H, $S, $D]\n" \
    "temp %lse : f32[$R @tp, $H, $S]\n" \
    "{\n" body "}\n"

static const char attend_alone_text[] =
    ATTEND_ALONE("    %o, %lse = attention %q, %k, %v\n");

// Of a rank's two chunks in zigzag, which see what is not behind them.
static const char zigzag_alone_text[] = ATTEND_ALONE(
    "    %o[:, :, 0..$C], %lse[:, :, 0..$C] = attention %q[:, :, 0..$C], %k, "
    "%v causal tp * $C\n"
    "    %o[:, :, $C..$S], %lse[:, :, $C..$S] = attention %q[:, :, $C..$S], "
    "%k, %v causal (2 * $R - 1 - tp) * $C\n");

static const char attend_link_text[] = "host program all_gather\n"
                                       "mesh tp=$R\n"
                                       "in %k : $T[$R @tp, $G, $S, $D]\n"
                                       "in %v : $T[$R @tp, $G, $S, $D]\n"
                                       "temp %kg : $T[$R, $G, $S, $D] shared\n"
                                       "temp %vg : $T[$R, $G, $S, $D] shared\n"
                                       "{\n"
                                       "    group {\n"
                                       "        %kg = all_gather %k[tp]\n"
                                       "        %vg = all_gather %v[tp]\n"
                                       "    }\n"
                                       "}\n";

static const char attend_ring_text[] =
    "host program all_gather_ring\n"
    "mesh tp=$R\n"
    "in %k : $T[$R @tp, $G, $S, $D]\n"
    "in %v : $T[$R @tp, $G, $S, $D]\n"
    "temp %kg : $T[$R, $G, $S, $D] shared\n"
    "temp %vg : $T[$R, $G, $S, $D] shared\n"
    "{\n"
    "    for j in 0..$R - 1 {\n"
    "        group {\n"
    "            if j == 0 {\n"
    "                send %k[tp] to (tp + 1) mod $R\n"
    "                send %v[tp] to (tp + 1) mod $R\n"
    "            } else {\n"
    "                send %kg[(tp - j) mod $R] to (tp + 1) mod $R\n"
    "                send %vg[(tp - j) mod $R] to (tp + 1) mod $R\n"
    "            }\n"
    "            %kg[(tp - j - 1) mod $R] = recv from (tp - 1) mod $R\n"
    "            %vg[(tp - j - 1) mod $R] = recv from (tp - 1) mod $R\n"
    "        }\n"
    "    }\n"
    "}\n";

static const char probe_text[] = "host program probe\n"
                                 "mesh tp=$R\n"
                                 "in %a : $T[$R @tp, $M, $K]\n"
                                 "temp %b : $T[$M, $K] shared\n"
                                 "{\n"
                                 "    group {\n"
                                 "        send %a[tp] to (tp + 1) mod $R\n"
                                 "        %b = recv from (tp - 1) mod $R\n"
                                 "    }\n"
                                 "}\n";

static int64_t number_of(const shape *shape, int ranks, char letter)
{
    switch (letter) {
    case 'R':
        return ranks;
    case 'M':
        return shape->m;
    case 'B':
        return shape->m / ranks;
    case 'N':
        return shape->n;
    case 'K':
        return shape->k;
    case 'H':
        return shape->attention.batch * shape->attention.heads;
    case 'G':
        return shape->attention.batch * shape->attention.kv_heads;
    case 'L':
        return shape->attention.rows;
    case 'S':
        return shape->attention.rows / ranks;
    case 'C':
        return shape->attention.rows / ranks / 2;
    default:
        return shape->attention.depth;
    }
}

// A text that is filled.
typedef struct filled {
    const shape *shape;
    int ranks;
    bool pipes;
} filled;

// $R ranks, $T dtype, $M $N $K the shape, $B the rows of one rank; $H $G $L $D
// an attention's heads in all batches, those of keys, rows and depth, $S the
// rows of one rank, $C half of these, $Z what blocks in zigzag say more; $P the
// mark of a dimension along which it is pipelined, if it is.
static void write_word(const void *context, char letter,
                       char out[TEMPLATE_WORD])
{
    const filled *f = context;

    if (letter == 'T')
        snprintf(out, TEMPLATE_WORD, "%s", hd_dtype_text(f->shape->dtype));
    else if (letter == 'Z')
        snprintf(out, TEMPLATE_WORD, "%s",
                 f->shape->attention.zigzag ? " zigzag tp" : "");
    else if (letter == 'P')
        snprintf(out, TEMPLATE_WORD, "%s", f->pipes ? " @stream" : "");
    else
        snprintf(out, TEMPLATE_WORD, "%" PRId64,
                 number_of(f->shape, f->ranks, letter));
}

static char *fill(const char *text, const shape *shape, int ranks, bool pipes)
{
    filled filled = {shape, ranks, pipes};

    return template_fill(text, write_word, &filled);
}

// ---------------------------------------------------------------- contenders

typedef struct maker {
    const contest_options *options;
    contest *contest;
    const char *path; // of the text, for messages
    const char *text;
    size_t length;
} maker;

static bool is_file(const maker *maker)
{
    return maker->contest->shape.m == 0; // no suite's
}

static outcome parse(const maker *maker, hd_module **out)
{
    const program_options *program = maker->options->program;

    return tell(maker->options->diag,
                hd_parse(maker->path, maker->text, maker->length,
                         program->defines,
                         is_file(maker) ? program->ndefines : 0,
                         maker->options->diag, out),
                maker->path);
}

// What is said of a shape's text, if it is fine, has no reader: nobody wrote
// it.
static outcome tell_of(const maker *maker, hd_status status)
{
    if (status == HD_OK && !is_file(maker))
        hd_diag_clear(maker->options->diag);
    return tell(maker->options->diag, status, maker->path);
}

static outcome make_module(const maker *maker, const hd_lower_options *lower,
                           hd_module **module, char **text)
{
    hd_diag *diag = maker->options->diag;
    hd_status status;

    TRY(parse(maker, module));
    status = hd_lower(*module, lower, NULL, NULL, diag);
    if (status == HD_OK)
        status = hd_print(*module, text);
    return tell_of(maker, status);
}

// Two pipelines may come to the same program, as all do where nothing is
// gathered: it is measured once.
static bool is_known(const contest *contest, const contender *new)
{
    for (int i = 0; i < contest->n; i++) {
        const contender *c = &contest->contender[i];

        if (c->part == new->part && c->transport == new->transport &&
            c->graph == new->graph &&strcmp(c->text, new->text) == 0)
            return true;
    }
    return false;
}

static void drop(contender *contender)
{
    hd_module_destroy(contender->module);
    hd_free(contender->text);
    *contender = (struct contender){0};
}

// A graph's launches are not what is predicted.
static void predict(const maker *maker, contender *c)
{
    hd_simulate_options how = hd_simulate_defaults();
    hd_prediction prediction = HD_EMPTY(hd_prediction);
    hd_simulation *simulation;

    how.machine = maker->options->machine;
    how.transport = c->transport;
    if (hd_simulate_over(c->module, &how, NULL, &simulation) != HD_OK)
        return;
    hd_simulation_predict(simulation, &prediction);
    hd_simulation_destroy(simulation);
    c->bytes = prediction.memory;
    c->predicted = c->graph ? 0 : prediction.time;
}

// Takes a copy of `like` with the program of `maker`, lowered and proven.
static outcome add(maker *maker, const contender *like,
                   const hd_lower_options *lower)
{
    contest *contest = maker->contest;
    contender *new = &contest->contender[contest->n];
    hd_diag *diag = maker->options->diag;
    bool known;
    hd_status status;
    outcome result;

    if (contest->n == MOST_CONTENDERS)
        return complain(USAGE, "more than %d contenders", MOST_CONTENDERS);
    *new = *like;
    result = make_module(maker, lower, &new->module, &new->text);
    known = result == FINE && is_known(contest, new);
    if (result == FINE && !known) {
        status = hd_check(new->module, NULL, diag);
        result = tell_of(maker, status);
    }
    if (result != FINE || known) {
        drop(new);
        return result;
    }
    predict(maker, new);
    contest->n++;
    return FINE;
}

// One collective a transfer, whatever else was asked for.
static hd_lower_options bulk_of(const maker *maker)
{
    hd_lower_options bulk = maker->options->program->lower;

    bulk.transfer = HD_TRANSFER_BULK;
    bulk.streams = bulk.chunks = 1;
    bulk.asked = 0;
    return bulk;
}

// Returns the text of the shape, which the maker has from now on: the caller
// frees it.
static char *take_text(maker *maker, const char *path, const char *text,
                       int ranks, bool pipes)
{
    char *filled = fill(text, &maker->contest->shape, ranks, pipes);

    maker->path = path;
    maker->text = filled;
    maker->length = strlen(filled);
    return filled;
}

static outcome add_text(maker *maker, const char *text, int ranks,
                        const contender *like)
{
    hd_lower_options bulk = bulk_of(maker);
    char *filled = take_text(maker, like->name, text, ranks, false);
    outcome result = add(maker, like, &bulk);

    free(filled);
    return result;
}

// A pipeline that changes nothing is called what it is: bulk.
static outcome name_pipeline(const maker *maker, hd_transfer transfer,
                             contender *c)
{
    hd_lower_options bulk = maker->options->program->lower, lower;
    contender a = {0}, b = {0};
    outcome result;

    bulk.asked = 0;
    lower = bulk;
    bulk.transfer = HD_TRANSFER_BULK;
    lower.transfer = transfer;
    result = make_module(maker, &bulk, &a.module, &a.text);
    if (result == FINE)
        result = make_module(maker, &lower, &b.module, &b.text);
    if (result == FINE && strcmp(a.text, b.text) == 0)
        transfer = HD_TRANSFER_BULK;
    snprintf(c->name, sizeof c->name, "%s%s", program_transfers[transfer],
             c->graph ? " graph" : "");
    drop(&a);
    drop(&b);
    return result;
}

// Whether partial sums go from rank to rank, and are rounded at each.
static bool has_hops(const maker *maker, hd_transfer transfer)
{
    shape_kind kind = maker->contest->shape.kind;

    return transfer == HD_TRANSFER_RING &&
           (kind == SHAPE_RS || kind == SHAPE_AR);
}

// The whole program by each pipeline that is asked for.
static outcome add_pipelines(maker *maker, judge judge)
{
    const contest_options *options = maker->options;
    contender c = {.part = PART_WHOLE,
                   .judge = judge,
                   .transport = options->program->lower.transport};
    hd_lower_options lower = options->program->lower;

    lower.asked = 0; // some pipelines have a use for what others have not
    for (int t = HD_TRANSFER_BULK; t <= HD_TRANSFER_FUSED; t++)
        for (int graph = 0; graph <= options->graph; graph++) {
            // No provider takes part in a graph.
            if (!options->kind[t] || (graph && t == HD_TRANSFER_FUSED))
                continue;
            lower.transfer = (hd_transfer)t;
            c.graph = graph;
            c.hops = has_hops(maker, lower.transfer);
            TRY(name_pipeline(maker, lower.transfer, &c));
            TRY(add(maker, &c, &lower));
        }
    return FINE;
}

// The program as a candidate of hd_choose, under `name`, or by its options.
static outcome add_candidate(maker *maker, judge judge, const char *name,
                             const hd_lower_options *candidate)
{
    hd_lower_options lower = *candidate;

    lower.asked = 0;
    for (int graph = 0; graph <= maker->options->graph; graph++) {
        contender c = {.part = PART_WHOLE,
                       .judge = judge,
                       .transport = lower.transport,
                       .graph = graph,
                       .hops = has_hops(maker, lower.transfer)};
        size_t n;

        choose_flags(candidate, c.options);
        if (name)
            snprintf(c.name, sizeof c.name, "%s", name);
        else
            choose_name(candidate, c.name);
        n = strlen(c.name);
        snprintf(c.name + n, sizeof c.name - n, "%s", graph ? " graph" : "");
        TRY(add(maker, &c, &lower));
    }
    return FINE;
}

// Those that are predicted to be the fastest behind the one that is chosen.
static outcome add_others(maker *maker, judge judge,
                          const program_options *options,
                          const hd_module *module)
{
    hd_choice *choice;
    candidate other;
    outcome result;

    TRY(choose_all(maker->path, module, options, maker->options->machine,
                   &choice));
    result = FINE;
    for (int64_t i = 1; i < maker->options->candidates && result == FINE &&
                        candidate_get(choice, (size_t)i, &other);
         i++)
        result = add_candidate(maker, judge, NULL, &other.lower);
    hd_choice_destroy(choice);
    return result;
}

// The one that is predicted to be fastest, with what streams and chunks it
// likes best: standard error says which.
static outcome add_automatic(maker *maker, judge judge)
{
    program_options options = *maker->options->program, best;
    content text = {.bytes = (const unsigned char *)maker->text,
                    .length = maker->length};
    hd_module *module;
    outcome result;

    if (!maker->options->kind[KIND_AUTO])
        return FINE;
    if (!is_file(maker))
        options.ndefines = 0; // the text has the ranks
    best = options;
    TRY(choose_best(maker->path, &text, &best));
    TRY(add_candidate(maker, judge, "auto", &best.lower));
    if (maker->options->candidates < 2 ||
        !choose_has(maker->path, &text, &options, &module))
        return FINE;
    result = add_others(maker, judge, &options, module);
    hd_module_destroy(module);
    return result;
}

// A transport other than copies, which only cuda has.
typedef struct other {
    const char *name;
    hd_transport transport;
    bool wanted;
} other;

enum { OTHERS = 2 };

static void list_others(const maker *maker, other out[OTHERS])
{
    out[0] =
        (other){"nccl", HD_TRANSPORT_NCCL, maker->options->kind[KIND_NCCL]};
    out[1] = (other){"sm", HD_TRANSPORT_SM, maker->options->kind[KIND_SM]};
}

// The whole program in one collective, by each other transport.
static outcome add_bulks(maker *maker, judge judge)
{
    hd_lower_options bulk = bulk_of(maker);
    other others[OTHERS];

    list_others(maker, others);
    for (int i = 0; i < OTHERS; i++) {
        for (int graph = 0; graph <= maker->options->graph; graph++) {
            contender c = {.part = PART_WHOLE,
                           .judge = judge,
                           .transport = others[i].transport,
                           .graph = graph,
                           .hops = others[i].transport == HD_TRANSPORT_NCCL};

            snprintf(c.name, sizeof c.name, "bulk over %s%s", others[i].name,
                     graph ? " graph" : "");
            if (others[i].wanted)
                TRY(add(maker, &c, &bulk));
        }
    }
    return FINE;
}

// Transfers alone, by each transport.
static outcome add_links(maker *maker, int ranks, const char *bulk,
                         const char *ring)
{
    contender c = {.name = "link bulk", .part = PART_LINK};
    other others[OTHERS];

    if (ranks == 1)
        return FINE;
    TRY(add_text(maker, bulk, ranks, &c));
    if (ring) {
        snprintf(c.name, sizeof c.name, "link ring");
        TRY(add_text(maker, ring, ranks, &c));
    }
    list_others(maker, others);
    for (int i = 0; i < OTHERS; i++) {
        if (!others[i].wanted)
            continue;
        snprintf(c.name, sizeof c.name, "link over %s", others[i].name);
        c.transport = others[i].transport;
        TRY(add_text(maker, bulk, ranks, &c));
    }
    return FINE;
}

static void open_scores(contest *contest)
{
    contest->score =
        memory_pages((size_t)contest->n * sizeof *contest->score, true);
    if (!contest->score)
        out_of_memory();
}

// ----------------------------------------------------------------- a shape

static double bytes_in(const shape *shape, int ranks)
{
    double others = (double)(ranks - 1) / ranks;
    double size = (double)hd_dtype_size(shape->dtype);
    double m = (double)shape->m;

    switch (shape->kind) {
    case SHAPE_AG:
        return others * m * (double)shape->k * size;
    case SHAPE_RS:
        return others * m * (double)shape->n * size;
    case SHAPE_AR:
        return 2 * others * m * (double)shape->n * size;
    case SHAPE_CP:
    case SHAPE_CZ:
        break;
    }
    return 2 * others * m * (double)shape->n * size *
           (double)shape->attention.kv_heads / (double)shape->attention.heads;
}

// The programs that a shape is measured by.
typedef struct programs {
    const char *name;        // of the compute alone
    judge judge;             // of that
    const char *alone;       // the compute
    const char *bulk, *ring; // the transfers; `ring` may be NULL
    const char *whole;       // both
} programs;

static const programs programs_of[] = {
    [SHAPE_AG] = {"matmul", JUDGE_ROWS, gather_matmul_text, gather_bulk_text,
                  gather_ring_text, gather_text},
    [SHAPE_RS] = {"matmul", JUDGE_OWN, reduce_matmul_text, scatter_link_text,
                  NULL, scatter_text},
    [SHAPE_AR] = {"matmul", JUDGE_OWN, reduce_matmul_text, reduce_link_text,
                  NULL, reduce_text},
    [SHAPE_CP] = {"attention", JUDGE_ROWS, attend_alone_text, attend_link_text,
                  attend_ring_text, attend_text},
    [SHAPE_CZ] = {"attention", JUDGE_ROWS, zigzag_alone_text, attend_link_text,
                  attend_ring_text, attend_text},
};

static outcome add_shape(maker *maker, const shape *shape, int ranks)
{
    const programs *programs = &programs_of[shape->kind];
    contender alone = {.part = PART_ALONE, .judge = programs->judge};
    char *text;
    outcome result;

    snprintf(alone.name, sizeof alone.name, "%s", programs->name);
    TRY(add_text(maker, programs->alone, ranks, &alone));
    TRY(add_links(maker, ranks, programs->bulk, programs->ring));
    // As a rival without pipelines has it: one collective and one matmul.
    text = take_text(maker, shape->id, programs->whole, ranks, false);
    result = add_bulks(maker, JUDGE_ROWS);
    free(text);
    TRY(result);
    text = take_text(maker, shape->id, programs->whole, ranks, true);
    result = add_pipelines(maker, JUDGE_ROWS);
    if (result == FINE)
        result = add_automatic(maker, JUDGE_ROWS);
    free(text);
    return result;
}

static outcome check_rows(const shape *shape, int ranks)
{
    bool attends = shape_attends(shape);
    int64_t rows = attends ? shape->attention.rows : shape->m;
    int each = shape->attention.zigzag ? 2 : 1; // chunks of a rank

    if (rows % (ranks * each) == 0)
        return FINE;
    return complain(WRONG, "%s: %s is %" PRId64 ", no multiple of %s%d ranks",
                    shape->id, attends ? "S" : "M", rows,
                    each == 2 ? "2 x " : "", ranks);
}

outcome contest_shape(const shape *shape, const contest_options *options,
                      int ranks, contest *out)
{
    maker maker = {.options = options, .contest = out};

    *out = (contest){.shape = *shape, .bytes_in = bytes_in(shape, ranks)};
    snprintf(out->id, sizeof out->id, "%s", shape->id);
    TRY(check_rows(shape, ranks));
    TRY(add_shape(&maker, shape, ranks));
    open_scores(out);
    return FINE;
}

// Contenders are measured at one size.
static outcome check_sizes(const hd_module *program)
{
    hd_size_info about = HD_EMPTY(hd_size_info);

    if (!hd_module_size(program, 0, &about))
        return FINE;
    return complain(USAGE,
                    "bench: runs of %s are given %s: say one with -D %s=N",
                    info_of(program).name, about.name, about.name);
}

outcome contest_probe(int64_t bytes, const contest_options *options, int ranks,
                      contest *out)
{
    enum { WIDTH = 1 << 12 };
    contender c = {.name = "one neighbour", .part = PART_LINK};
    maker maker = {.options = options, .contest = out};

    *out = (contest){.id = "link",
                     .shape = {.id = "link",
                               .dtype = HD_DTYPE_BF16,
                               .m = bytes / 2 / WIDTH,
                               .n = 1,
                               .k = WIDTH},
                     .bytes_in = (double)bytes};
    TRY(add_text(&maker, probe_text, ranks, &c));
    open_scores(out);
    return FINE;
}

// ------------------------------------------------------------------- a file

// Before inputs are drawn for them.
static outcome check_ranks(const hd_module *program)
{
    int ranks = info_of(program).ranks;

    if (ranks <= HD_MAX_RANKS)
        return FINE;
    return complain(FAILED, "%s has %d ranks; at most %d are run",
                    info_of(program).name, ranks, HD_MAX_RANKS);
}

static void list_arguments(contest *contest)
{
    contest->narguments = info_of(contest->program).narguments;
    for (int set = 0; set < INPUT_SETS; set++)
        contest->whole[set] = need(contest->narguments, sizeof(whole));
}

// An event would have to be recorded before each run, which is a host's work
// and none of the program's.
static outcome check_arguments(const contest *contest)
{
    hd_argument about = HD_EMPTY(hd_argument);

    if (contest->narguments > MOST_ARGUMENTS)
        return complain(WRONG, "%s has %zu arguments, and bench takes %d",
                        contest->id, contest->narguments, MOST_ARGUMENTS);
    for (size_t i = 0; i < contest->narguments; i++)
        if (hd_module_argument(contest->program, i, &about) &&
            about.dtype == HD_DTYPE_EVENT)
            return complain(WRONG,
                            "%s: %%%s is an event: bench takes programs whose "
                            "arguments are arrays",
                            contest->id, about.name);
    return FINE;
}

// What writes no values has none to compare.
static judge judge_of(const contest *contest)
{
    hd_argument about = HD_EMPTY(hd_argument);

    for (size_t i = 0; hd_module_argument(contest->program, i, &about); i++)
        if (about.role != HD_ROLE_IN && about.elements > 0)
            return JUDGE_REFERENCE;
    return JUDGE_NONE;
}

// Some seconds that the dense answer takes: what all ranks do in one collective
// a transfer, one after the other.
static double reference_seconds(maker *maker)
{
    hd_simulate_options how = hd_simulate_defaults();
    hd_machine slow = HD_EMPTY(hd_machine);
    hd_prediction prediction = HD_EMPTY(hd_prediction);
    hd_simulation *simulation;
    hd_lower_options bulk = bulk_of(maker);
    contender c = {0};

    hd_machine_shipped("cpu", &slow);
    memset(slow.matmul, 0, sizeof slow.matmul);
    slow.matmul[HD_DTYPE_F32] = slow.memory = 1e9;
    slow.attention = 0;
    slow.processors = 1;
    how.machine = &slow;
    if (parse(maker, &c.module) == FINE &&
        hd_lower(c.module, &bulk, NULL, NULL, NULL) == HD_OK &&
        hd_check(c.module, NULL, NULL) == HD_OK &&
        hd_simulate_over(c.module, &how, NULL, &simulation) == HD_OK) {
        hd_simulation_predict(simulation, &prediction);
        hd_simulation_destroy(simulation);
    }
    drop(&c);
    return prediction.time;
}

// Nothing is compared with what takes longer than all that is measured.
static judge judge_in_time(maker *maker)
{
    enum { MOST_SECONDS = 60 };
    judge judge = judge_of(maker->contest);
    double takes = judge == JUDGE_NONE ? 0 : reference_seconds(maker);

    if (takes <= MOST_SECONDS)
        return judge;
    fprintf(stderr,
            "heddle: bench: what %s makes is not compared: its dense answer "
            "takes some %.0f s; heddle run --verify does that\n",
            maker->contest->id, takes);
    return JUDGE_NONE;
}

// A program that is complete already has no pipelines.
static outcome add_written(maker *maker, judge judge)
{
    hd_lower_options lower = maker->options->program->lower;

    for (int graph = 0; graph <= maker->options->graph; graph++) {
        contender c = {.part = PART_WHOLE,
                       .judge = judge,
                       .transport = maker->options->program->lower.transport,
                       .graph = graph};

        snprintf(c.name, sizeof c.name, "as written%s", graph ? " graph" : "");
        TRY(add(maker, &c, &lower));
        lower.asked = 0; // what is of no use was told
    }
    return FINE;
}

static outcome read_contenders(maker *maker, const content *text)
{
    contest *contest = maker->contest;
    judge judge;

    maker->text = (const char *)text->bytes;
    maker->length = text->length;
    TRY(parse(maker, &contest->program));
    TRY(check_sizes(contest->program));
    TRY(check_ranks(contest->program));
    snprintf(contest->id, sizeof contest->id, "%s",
             info_of(contest->program).name);
    list_arguments(contest);
    TRY(check_arguments(contest));
    judge = judge_in_time(maker);
    if (info_of(contest->program).stage == HD_STAGE_HOST)
        return add_written(maker, judge);
    TRY(add_bulks(maker, judge));
    TRY(add_pipelines(maker, judge));
    return add_automatic(maker, judge);
}

outcome contest_file(const char *path, const content *text,
                     const contest_options *options, contest *out)
{
    maker maker = {.options = options, .contest = out, .path = path};

    *out = (contest){0};
    TRY(read_contenders(&maker, text));
    open_scores(out);
    return FINE;
}

static outcome draw(contest *contest, size_t i, int set, uint64_t seed)
{
    hd_argument about = HD_EMPTY(hd_argument);
    whole *out = &contest->whole[set][i];
    size_t bytes;

    if (!hd_module_argument(contest->program, i, &about) ||
        about.role == HD_ROLE_OUT)
        return FINE;
    bytes = about.elements * hd_dtype_size(about.dtype);
    out->memory = memory_pages(bytes, false);
    if (!out->memory)
        return complain(FAILED, "no memory for the %zu bytes of %%%s", bytes,
                        about.name);
    out->data = out->memory;
    out->bytes = bytes;
    // Arguments are far apart, so that seeds may follow each other.
    random_input(&about, seed + (uint64_t)set + ((uint64_t)i << 40),
                 out->memory);
    return FINE;
}

outcome contest_expect(contest *contest, const char *path, uint64_t seed,
                       hd_diag *diag)
{
    const void **data = need(contest->narguments, sizeof *data);
    outcome result = FINE;

    for (int set = 0; set < INPUT_SETS; set++)
        for (size_t i = 0; i < contest->narguments && result == FINE; i++) {
            result = draw(contest, i, set, seed);
            data[i] = contest->whole[set][i].data;
        }
    if (result == FINE && contest->contender[0].judge == JUDGE_REFERENCE)
        result = tell(diag,
                      hd_reference_create(contest->program, data, diag,
                                          &contest->reference),
                      path);
    free(data);
    return result;
}

double contest_floor(const contest *contest, double rate)
{
    double alone = 0, link = rate > 0 ? contest->bytes_in / rate : 0;

    for (int i = 0; i < contest->n; i++)
        if (contest->contender[i].part == PART_ALONE && contest->score[i].ran)
            alone = contest->score[i].median;
    if (alone == 0)
        return 0;
    return alone > link ? alone : link;
}

void contest_close(contest *contest)
{
    for (int i = 0; i < contest->n; i++)
        drop(&contest->contender[i]);
    if (contest->score)
        memory_free(contest->score,
                    (size_t)contest->n * sizeof *contest->score);
    hd_reference_destroy(contest->reference);
    hd_module_destroy(contest->program);
    for (int set = 0; set < INPUT_SETS; set++) {
        for (size_t i = 0; contest->whole[set] && i < contest->narguments; i++)
            memory_free(contest->whole[set][i].memory,
                        contest->whole[set][i].bytes);
        free(contest->whole[set]);
    }
}
