// From a wrong element back, step by step, to what it was made of: a step that
// moves it, to where it was taken from; a step that computes, to the operand
// that differs from that of the tensor's operation; a sum, to the term that is
// too many. Each is a link of a chain, a reading with the value that should
// have been there. To blame is the link nearest to the output that had the
// right value at hand elsewhere; else the last one.
#include "check/blame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/dtype.h"
#include "check/field.h"

enum {
    MOST_LINKS = 512,
    MOST_TERMS = 1 << 16,
    MOST_EXCHANGED = 64,  // terms that are tried for each other
    MOST_LOOKS = 1 << 24, // places where values are looked for elsewhere
    CALLER = -1,          // in place of a step: the caller reads the output
};

// A step takes the element at `at`, when `event` happens.
typedef struct link {
    int rank;
    int64_t step;
    int view;
    int64_t at;
    int64_t event;
    uint64_t want;
} link;

// What a sum adds; `link.at` is -1 for a product.
typedef struct term {
    uint64_t value;
    int64_t weight;
    link link;
    int64_t order; // among the terms of its sum, as they are found
    bool extra;    // the other sum has less of it
} term;

typedef struct terms {
    term *term; // owned
    int64_t n, room;
} terms;

typedef struct trail {
    hd_blame *blame;
    const hd_evaluation *e;
    hd_diag *diag;
    const hd_buffer *tensor; // the output that is wrong
    int rank;
    int64_t i;
    link link[MOST_LINKS];
    int nlinks;
    terms have, want; // of the sum at hand
    hd_status status;
} trail;

// ------------------------------------------------------------------ history

static int compare_changes(const void *x, const void *y)
{
    const hd_change *a = x, *b = y;

    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return (a->event > b->event) - (a->event < b->event);
}

// How many changes come before that place and time.
static int64_t changes_before(const hd_evaluation *e, int64_t at, int64_t event)
{
    int64_t low = 0, high = e->local.nchanges;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const hd_change *c = &e->local.change[middle];

        if (c->at < at || (c->at == at && c->event < event))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// The last write of the place before the event, NULL if there was none.
static const hd_change *last_change(const hd_evaluation *e, int64_t at,
                                    int64_t event)
{
    int64_t n = changes_before(e, at, event);

    return n > 0 && e->local.change[n - 1].at == at ? &e->local.change[n - 1]
                                                    : NULL;
}

static uint64_t value_at(const hd_evaluation *e, int64_t at, int64_t event)
{
    int64_t n = changes_before(e, at, event);
    const hd_change *c = e->local.change;

    if (n > 0 && c[n - 1].at == at)
        return c[n - 1].value;
    if (n < e->local.nchanges && c[n].at == at)
        return c[n].before;
    return e->local.value[at];
}

int64_t hd_blame_written(const hd_blame *blame, int64_t at)
{
    const hd_change *change = last_change(blame->e, at, INT64_MAX);

    return change != NULL ? change->event : 0;
}

static int rank_of(const hd_evaluation *e, int64_t at)
{
    return (int)(at / e->share);
}

static int64_t step_of(const hd_evaluation *e, const hd_change *change)
{
    return change->node - e->graph->first[rank_of(e, change->at)];
}

// -------------------------------------------------------------------- names

static int compare_named(const void *x, const void *y)
{
    const hd_known *a = x, *b = y;

    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

// When a tensor gets its value: inputs first, then by statement.
static void name_tensor(hd_blame *blame, const hd_buffer *b, int64_t order)
{
    const hd_evaluation *e = blame->e;

    for (int64_t i = 0; i < e->grain.dense[b->id].elements; i++) {
        int64_t at = e->dense_at[b->id] + i;

        blame->named[blame->nnamed++] =
            (hd_known){e->dense.value[at], order, at};
    }
}

// The statement that makes a tensor, NULL for an input.
static const hd_op *maker_of(const trail *t, const hd_buffer *b)
{
    return t->blame->maker[b->id].op;
}

static void find_makers(hd_blame *blame)
{
    int64_t n = 0;

    for (const hd_stmt *s = blame->e->tensor->body.first; s != NULL;
         s = s->next) {
        n++;
        for (int i = 0; i < s->op->nviews; i++)
            if (hd_op_access(s->op, i) & HD_ACCESS_WRITE)
                blame->maker[s->op->view[i].buffer->id] = (hd_maker){s->op, n};
    }
}

static void name_tensors(hd_blame *blame)
{
    for (const hd_buffer *b = blame->e->tensor->buffers; b != NULL; b = b->next)
        name_tensor(blame, b, blame->maker[b->id].order);
    qsort(blame->named, (size_t)blame->nnamed, sizeof *blame->named,
          compare_named);
}

// Where the tensor program has the value first; -1 if it never does.
static int64_t find_named(const hd_blame *blame, uint64_t value)
{
    int64_t low = 0, high = blame->nnamed;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (blame->named[middle].value < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low < blame->nnamed && blame->named[low].value == value
               ? blame->named[low].at
               : -1;
}

static const hd_buffer *tensor_at(const hd_evaluation *e, int64_t at)
{
    const hd_buffer *found = e->tensor->buffers;

    for (const hd_buffer *b = found; b != NULL; b = b->next)
        if (e->dense_at[b->id] <= at)
            found = b;
    return found;
}

static const hd_buffer *root_at(const hd_evaluation *e, int64_t at)
{
    const hd_buffer *found = NULL;

    for (const hd_buffer *b = e->graph->module->buffers; b != NULL; b = b->next)
        if (b->of == NULL && b->type.dtype != HD_EVENT &&
            e->local_at[b->id] <= at % e->share)
            found = b;
    return found;
}

// Whether an index says more than all that the dimension has.
static bool is_distinguished(const hd_sieve *s, int d)
{
    return s->unit[d] < s->whole[d];
}

// "[2, :, 64..128]" of element i; what a rank holds one of has its coordinate.
static void print_index(const hd_evaluation *e, const hd_sieve *s,
                        const hd_buffer *mine, int rank, int64_t i,
                        hd_text *text)
{
    int last = 0;

    for (int d = 0; d < s->ndims; d++) {
        bool own = mine != NULL && hd_dim_is_sharded(mine->type.dim[d]);

        if (own || is_distinguished(s, d))
            last = d + 1;
    }
    for (int d = 0; d < last; d++) {
        int64_t index = i / s->stride[d] % s->extent[d], unit = s->unit[d];

        hd_text_puts(text, d == 0 ? "[" : ", ");
        if (mine != NULL && hd_dim_is_sharded(mine->type.dim[d]))
            hd_text_printf(text, "%lld",
                           (long long)hd_mesh_coord(e->graph->module, rank,
                                                    mine->type.dim[d].mark));
        else if (!is_distinguished(s, d) && s->whole[d] > 1)
            hd_text_puts(text, ":");
        else if (unit == 1)
            hd_text_printf(text, "%lld", (long long)index);
        else
            hd_text_printf(text, "%lld..%lld", (long long)(index / 2 * unit),
                           (long long)((index / 2 + 1) * unit));
    }
    hd_text_puts(text, last > 0 ? "]" : "");
}

// The only dimension with an index, if it is sharded; else -1.
static int only_shard(const hd_evaluation *e, const hd_buffer *b)
{
    const hd_sieve *s = &e->grain.dense[b->id];
    int shard = -1;

    for (int d = 0; d < s->ndims; d++) {
        if (!is_distinguished(s, d))
            continue;
        if (shard >= 0 || !hd_dim_is_sharded(b->type.dim[d]))
            return -1;
        shard = d;
    }
    return e->tensor->naxes == 1 ? shard : -1;
}

// "%a of rank 2", "%ag[2]", "%h[1, 0..64]": an element of the tensor program.
static void print_tensor(const hd_evaluation *e, int64_t at, hd_text *text)
{
    const hd_buffer *b = tensor_at(e, at);
    const hd_sieve *s = &e->grain.dense[b->id];
    int64_t i = at - e->dense_at[b->id];
    int shard = only_shard(e, b);

    hd_text_printf(text, "%%%s", b->name);
    if (shard >= 0)
        hd_text_printf(text, " of rank %lld",
                       (long long)(i / s->stride[shard] % s->extent[shard]));
    else
        print_index(e, s, NULL, 0, i, text);
}

static void print_value(const hd_blame *blame, uint64_t value, hd_text *text)
{
    int64_t at = find_named(blame, value);

    if (at >= 0)
        print_tensor(blame->e, at, text);
    else
        hd_text_puts(text, "no value of the tensor program");
}

// A place of a rank, by the name that its bytes were declared with.
static void print_place(const hd_evaluation *e, int64_t at, hd_text *text)
{
    const hd_buffer *b = root_at(e, at);

    hd_text_printf(text, "%%%s", b->name);
    print_index(e, &e->grain.local[b->id], b, rank_of(e, at),
                at % e->share - e->local_at[b->id], text);
}

static const hd_part *part_of(const hd_evaluation *e, const link *l)
{
    const hd_node *node = hd_graph_node(e->graph, l->rank, l->step);

    for (int64_t i = node->part; i < node[1].part; i++)
        if (e->graph->part[i].view == l->view)
            return &e->graph->part[i];
    return &e->graph->part[node->part];
}

static void print_view(const hd_evaluation *e, const link *l, hd_text *text)
{
    const hd_part *part = part_of(e, l);

    hd_part_print(&e->graph->frame[part->buffer], part, text);
}

// ------------------------------------------------------------------- choices

// By its name the place is where the value belongs: a tensor of that name and
// shape has it there.
static bool is_namesake(const hd_evaluation *e, int64_t at, uint64_t want)
{
    const hd_buffer *root = root_at(e, at);
    const hd_buffer *b =
        hd_module_buffer(e->tensor, root->name, strlen(root->name));
    const hd_sieve *whole, *local = &e->grain.local[root->id];
    int64_t i = at % e->share - e->local_at[root->id], place;

    if (b == NULL || b->type.ndims != root->type.ndims)
        return false;
    whole = &e->grain.dense[b->id];
    place = e->dense_at[b->id];
    for (int d = 0; d < local->ndims; d++) {
        hd_dim dim = root->type.dim[d];
        int64_t index =
            hd_dim_is_sharded(dim)
                ? hd_mesh_coord(e->graph->module, rank_of(e, at), dim.mark)
                : i / local->stride[d] % local->extent[d];

        if (dim.extent != b->type.dim[d].extent || index >= whole->extent[d])
            return false;
        place += index * whole->stride[d];
    }
    return e->dense.value[place] == want;
}

// Where else the reader's rank has the wanted value at that time, in the bytes
// of the same buffer if `near`; -1 if nowhere, or if too many places have been
// looked at already.
static int64_t find_elsewhere(const trail *t, const link *l, bool near)
{
    const hd_evaluation *e = t->e;
    const hd_buffer *root = root_at(e, l->at);
    int64_t first = l->rank * e->share, n = e->share;

    if (near) {
        first += e->local_at[root->id];
        n = e->grain.local[root->id].elements;
    }
    if (n > t->blame->looks)
        return -1;
    t->blame->looks -= n;
    for (int64_t at = first; at < first + n; at++)
        if (value_at(e, at, l->event) == l->want)
            return at;
    return -1;
}

// A rank on the transfer's axis that has the wanted value in the same place; -1
// if there is none.
static int find_peer(const hd_evaluation *e, const link *l)
{
    const hd_module *module = e->graph->module;
    const hd_op *op = hd_graph_node(e->graph, l->rank, l->step)->op;

    if (!hd_op_is(op, HD_UNIT_TRANSFER))
        return -1;
    for (int64_t i = 0; i < module->axis[op->axis].size; i++) {
        int peer = (int)hd_mesh_peer(module, l->rank, op->axis, i);
        int64_t at = l->at + (peer - l->rank) * e->share;

        if (value_at(e, at, l->event) == l->want)
            return peer;
    }
    return -1;
}

// ------------------------------------------------------------------- telling

static bool is_reported(hd_blame *blame, const hd_op *op)
{
    int most = (int)(sizeof blame->reported / sizeof *blame->reported);

    for (int i = 0; i < blame->nreported; i++)
        if (blame->reported[i] == op)
            return true;
    if (blame->nreported < most)
        blame->reported[blame->nreported++] = op;
    return false;
}

static const char *text_of(const hd_text *text)
{
    return text->bytes != NULL ? text->bytes : "";
}

// "%c[3] on rank 1": the output that shows it.
static void print_output(const trail *t, hd_text *text)
{
    const hd_evaluation *e = t->e;
    const hd_buffer *mine = e->argument[t->tensor->id];

    hd_text_printf(text, "%%%s", mine->name);
    print_index(e, &e->grain.local[mine->id], mine, t->rank, t->i, text);
    hd_text_printf(text, " on rank %d", t->rank);
}

// Where the tensor program makes the value.
static void note_tensor(const trail *t, uint64_t want)
{
    int64_t at = find_named(t->blame, want);
    const hd_buffer *b;
    const hd_op *op;
    const hd_source *outer;
    hd_text name = {0};

    if (at < 0)
        return;
    b = tensor_at(t->e, at);
    op = maker_of(t, b);
    print_tensor(t->e, at, &name);
    outer = hd_diag_source(t->diag, &t->e->tensor->source);
    hd_note(t->diag, op != NULL ? op->loc : b->loc,
            op != NULL ? "%s is made here" : "%s is declared here",
            text_of(&name));
    hd_diag_source(t->diag, outer);
    hd_text_free(&name);
}

static const hd_op *op_of(const trail *t, const link *l)
{
    return hd_graph_node(t->e->graph, l->rank, l->step)->op;
}

static hd_loc view_loc(const trail *t, const link *l)
{
    return op_of(t, l)->view[l->view].loc;
}

// The step writes, or takes, what makes the output wrong. `words` say what.
static hd_status report(trail *t, const link *l, hd_loc loc, const char *words)
{
    const hd_op *op = op_of(t, l);
    hd_text output = {0};
    hd_status status;

    print_output(t, &output);
    status = hd_error(t->diag, HD_E0901, loc,
                      "%s is wrong: rank %d's %s (step %lld) %s",
                      text_of(&output), l->rank, hd_op_info_get(op->code)->text,
                      (long long)l->step, words);
    hd_text_free(&output);
    note_tensor(t, l->want);
    return status;
}

// "takes %ag[2], which holds %a of rank 2; expected %a of rank 3"
static hd_status report_choice(trail *t, const link *l, int64_t elsewhere)
{
    hd_text words = {0}, hint = {0};
    int peer = elsewhere < 0 ? find_peer(t->e, l) : -1;
    hd_status status;

    if (is_reported(t->blame, op_of(t, l)))
        return HD_INVALID;
    hd_text_puts(&words, "takes ");
    print_view(t->e, l, &words);
    hd_text_puts(&words, ", which holds ");
    print_value(t->blame, value_at(t->e, l->at, l->event), &words);
    hd_text_puts(&words, "; expected ");
    print_value(t->blame, l->want, &words);
    status = report(t, l, view_loc(t, l), text_of(&words));
    if (elsewhere >= 0)
        print_place(t->e, elsewhere, &hint);
    else if (peer >= 0)
        hd_text_printf(&hint, "rank %d", peer);
    if (hint.bytes != NULL)
        hd_note(t->diag, view_loc(t, l), "%s holds it at that time",
                hint.bytes);
    hd_text_free(&words);
    hd_text_free(&hint);
    return status;
}

// The step has the right operands, or none that could be right.
static hd_status report_op(trail *t, const link *l, const char *words)
{
    hd_text text = {0};
    hd_status status;

    if (is_reported(t->blame, op_of(t, l)))
        return HD_INVALID;
    hd_text_printf(&text, "%s; expected ", words);
    print_value(t->blame, l->want, &text);
    status = report(t, l, op_of(t, l)->loc, text_of(&text));
    hd_text_free(&text);
    return status;
}

static hd_status report_term(trail *t, const term *extra)
{
    hd_text text = {0};
    hd_status status;
    link l = extra->link;

    if (is_reported(t->blame, op_of(t, &l)))
        return HD_INVALID;
    hd_text_puts(&text, "adds ");
    print_value(t->blame, extra->value, &text);
    hd_text_puts(&text, " once more than the tensor program");
    l.want = t->link[t->nlinks - 1].want;
    status = report(t, &l, l.at >= 0 ? view_loc(t, &l) : op_of(t, &l)->loc,
                    text_of(&text));
    hd_text_free(&text);
    return status;
}

// The wanted value stands in the same output where another one belongs: who put
// it there. NULL if nobody did.
static const hd_change *find_misplaced(const trail *t)
{
    const hd_evaluation *e = t->e;
    const hd_buffer *mine = e->argument[t->tensor->id];
    int64_t first = t->rank * e->share + e->local_at[mine->id];
    uint64_t want = t->link[0].want;

    for (int64_t i = 0; i < e->grain.local[mine->id].elements; i++) {
        int64_t whole = hd_evaluation_whole(e, t->tensor, t->rank, i);

        if (e->local.value[first + i] == want && e->dense.value[whole] != want)
            return last_change(e, first + i, INT64_MAX);
    }
    return NULL;
}

static hd_status report_misplaced(trail *t, const hd_change *c)
{
    link l = {.rank = rank_of(t->e, c->at),
              .step = step_of(t->e, c),
              .want = t->link[0].want};
    hd_text words = {0};
    hd_status status;

    if (is_reported(t->blame, op_of(t, &l)))
        return HD_INVALID;
    hd_text_puts(&words, "writes that to ");
    print_place(t->e, c->at, &words);
    status = report(t, &l, view_loc(t, &l), text_of(&words));
    hd_text_free(&words);
    return status;
}

// The chain ends here: of its links the nearest one that had a better choice in
// the same buffer; who put the value elsewhere; the nearest that had a better
// choice at all, or would have had from another peer; else number `last`.
static hd_status report_chain(trail *t, int last)
{
    const hd_change *misplaced = find_misplaced(t);

    for (int near = 1; near >= 0; near--) {
        for (int i = 0; i < t->nlinks; i++) {
            const link *l = &t->link[i];
            int64_t elsewhere;

            if (l->step == CALLER || is_namesake(t->e, l->at, l->want))
                continue;
            elsewhere = find_elsewhere(t, l, near != 0);
            if (elsewhere >= 0)
                return report_choice(t, l, elsewhere);
        }
        if (misplaced != NULL)
            return report_misplaced(t, misplaced);
    }
    for (int i = 0; i < t->nlinks; i++)
        if (t->link[i].step != CALLER && find_peer(t->e, &t->link[i]) >= 0)
            return report_choice(t, &t->link[i], -1);
    return report_choice(t, &t->link[last], -1);
}

// --------------------------------------------------------------------- sums

static void add_term(trail *t, terms *to, term add)
{
    hd_status status = to->n < MOST_TERMS
                           ? hd_grow((void **)&to->term, &to->room, to->n + 1,
                                     sizeof *to->term, t->diag)
                           : HD_UNSUPPORTED; // reported without its terms

    if (status == HD_OK) {
        add.order = to->n;
        to->term[to->n++] = add;
    } else if (t->status == HD_OK)
        t->status = status;
}

static bool reduces(const hd_op *op)
{
    return hd_op_move(op) != HD_MOVE_NONE && hd_op_fold(op) == HD_FOLD_SUM;
}

static bool is_sum(const hd_op *op)
{
    return hd_op_fold(op) == HD_FOLD_SUM || op->code == HD_OP_ADD ||
           hd_op_key(op, HD_KEY_ACCUMULATE) != NULL;
}

static int64_t weight_of(const hd_work_item *item, int64_t k)
{
    const hd_key *key = hd_op_key(item->op, HD_KEY_DIM);
    int64_t dim;

    if (key == NULL)
        return 1;
    dim = hd_expr_value(item->module, key->expr);
    return hd_sieve_weight(item->tile[1].unit[dim], k);
}

// Which element of a tile lies there; -1 if none does. What the inner
// dimensions reach together is less than one stride of the outer one.
static int64_t element_at(const hd_tile *tile, int64_t at)
{
    int64_t rest = at - tile->at, i = 0;

    if (tile->ndims < 0 || rest < 0)
        return -1;
    for (int d = 0; d < tile->ndims; d++) {
        int64_t index = tile->extent[d] > 1 ? rest / tile->stride[d] : 0;

        if (index >= tile->extent[d])
            return -1;
        rest -= index * tile->stride[d];
        i = i * tile->extent[d] + index;
    }
    return rest == 0 ? i : -1;
}

static void add_tensor_terms(trail *t, int64_t at, int64_t weight, int depth);

static void add_operands(trail *t, const hd_op *op, int64_t i, int64_t weight,
                         int depth)
{
    hd_work_item item = hd_evaluation_op(t->e, op);

    for (int view = 1; view < 1 + op->ninputs; view++) {
        int64_t n = hd_compute_terms(&item, view);

        for (int64_t k = 0; k < n; k++)
            add_tensor_terms(t, hd_compute_place(&item, i, view, k),
                             weight * weight_of(&item, k), depth);
    }
}

static void add_tensor_terms(trail *t, int64_t at, int64_t weight, int depth)
{
    const hd_buffer *b = tensor_at(t->e, at);
    int64_t i = at - t->e->dense_at[b->id];
    const hd_op *op = maker_of(t, b);

    if (t->status != HD_OK) // there are too many already
        return;
    if (op != NULL && is_sum(op) && hd_op_family(op) != HD_FAMILY_PRODUCT &&
        depth < HD_MAX_EXPR_DEPTH)
        add_operands(t, op, i, weight, depth + 1);
    else if (op != NULL && hd_op_is_move(op) && depth < HD_MAX_EXPR_DEPTH) {
        hd_work_item item = hd_evaluation_op(t->e, op);

        add_tensor_terms(t, hd_compute_place(&item, i, 1, 0), weight,
                         depth + 1);
    } else
        add_term(t, &t->want,
                 (term){.value = t->e->dense.value[at], .weight = weight});
}

// Where a step that moves has taken element `at` of its result from.
static bool find_source(const trail *t, const hd_change *c, link *out)
{
    const hd_evaluation *e = t->e;
    const hd_graph *g = e->graph;
    int rank = rank_of(e, c->at);
    int64_t step = step_of(e, c), i;
    const hd_node *node = hd_graph_node(g, rank, step);
    const hd_member *member;
    hd_tile to, from;
    hd_work_item item;

    out->event = c->event;
    out->view = node->op->noutputs;
    if (node->kind == HD_NODE_RECV) {
        to = hd_evaluation_piece(e, rank, step, true, 0);
        from = hd_evaluation_piece(e, node->peer, node->link, false, 0);
        out->rank = node->peer;
        out->step = node->link;
        out->view = 0;
        out->at = hd_tile_place(&from, element_at(&to, c->at));
        return true;
    }
    if (node->kind != HD_NODE_COLLECTIVE) {
        item = hd_evaluation_step(e, rank, step);
        out->rank = rank;
        out->step = step;
        i = element_at(&item.tile[0], c->at);
        out->at = hd_op_is_move(node->op) && i >= 0
                      ? hd_compute_place(&item, i, 1, 0)
                      : -1;
        return out->at >= 0;
    }
    if (hd_op_fold(node->op) != HD_FOLD_NONE)
        return false;
    member = &g->member[g->rendezvous[node->link]];
    for (int64_t j = 0;
         j < g->rendezvous[node->link + 1] - g->rendezvous[node->link]; j++) {
        int64_t me = hd_mesh_coord(g->module, rank, node->op->axis);

        to = hd_evaluation_piece(e, rank, step, true, j);
        i = element_at(&to, c->at);
        if (i < 0 || (hd_op_move(node->op) == HD_MOVE_BROADCAST &&
                      member[j].rank != node->peer))
            continue;
        from =
            hd_evaluation_piece(e, member[j].rank, member[j].step, false, me);
        out->rank = member[j].rank;
        out->step = member[j].step;
        out->view = hd_graph_node(g, out->rank, out->step)->op->noutputs;
        out->at = hd_tile_place(&from, i);
        return true;
    }
    return false;
}

static void add_host_terms(trail *t, link l, int64_t weight, int depth);

static void add_reduced(trail *t, const hd_change *c, int64_t weight, int depth)
{
    const hd_evaluation *e = t->e;
    const hd_graph *g = e->graph;
    int rank = rank_of(e, c->at);
    int64_t step = step_of(e, c);
    const hd_node *node = hd_graph_node(g, rank, step);
    const hd_member *member = &g->member[g->rendezvous[node->link]];
    int64_t n = g->rendezvous[node->link + 1] - g->rendezvous[node->link];
    hd_tile to = hd_evaluation_piece(e, rank, step, true, 0);
    int64_t i = element_at(&to, c->at);

    for (int64_t j = 0; j < n; j++) {
        hd_tile from =
            hd_evaluation_piece(e, member[j].rank, member[j].step, false,
                                hd_mesh_coord(g->module, rank, node->op->axis));
        link l = {.rank = member[j].rank,
                  .step = member[j].step,
                  .view = 1,
                  .at = hd_tile_place(&from, i),
                  .event = c->event};

        add_host_terms(t, l, weight, depth);
    }
}

// An accumulating product adds itself to what was there.
static void add_accumulated(trail *t, const hd_change *c, int rank,
                            int64_t step, int64_t weight, int depth)
{
    link old = {.rank = rank, .step = step, .at = c->at, .event = c->event};
    uint64_t before = value_at(t->e, c->at, c->event);
    term product = {.value = hd_field_subtract(c->value, before),
                    .weight = weight,
                    .link = old};

    product.link.at = -1;
    add_term(t, &t->have, product);
    add_host_terms(t, old, weight, depth);
}

static void add_step_terms(trail *t, const hd_change *c, int64_t weight,
                           int depth)
{
    int rank = rank_of(t->e, c->at);
    int64_t step = step_of(t->e, c), i;
    hd_work_item item = hd_evaluation_step(t->e, rank, step);

    if (reduces(item.op)) {
        add_reduced(t, c, weight, depth);
        return;
    }
    if (hd_op_family(item.op) == HD_FAMILY_PRODUCT) {
        add_accumulated(t, c, rank, step, weight, depth);
        return;
    }
    i = element_at(&item.tile[0], c->at);
    for (int view = 1; view < 1 + item.op->ninputs; view++) {
        int64_t n = hd_compute_terms(&item, view);

        for (int64_t k = 0; k < n; k++) {
            link l = {.rank = rank,
                      .step = step,
                      .view = view,
                      .at = hd_compute_place(&item, i, view, k),
                      .event = c->event};

            add_host_terms(t, l, weight * weight_of(&item, k), depth);
        }
    }
}

// The terms of what the link reads; itself if it is no sum.
static void add_host_terms(trail *t, link l, int64_t weight, int depth)
{
    term own = {
        .value = value_at(t->e, l.at, l.event), .weight = weight, .link = l};
    const hd_change *c;

    if (t->status != HD_OK) // there are too many already
        return;
    while ((c = last_change(t->e, l.at, l.event)) != NULL) {
        if (is_sum(t->e->graph->node[c->node].op) && depth < MOST_LINKS) {
            add_step_terms(t, c, weight, depth + 1);
            return;
        }
        if (!find_source(t, c, &l))
            break;
    }
    add_term(t, &t->have, own);
}

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

// By value, and the latest of equal ones first.
static int compare_values(const void *x, const void *y)
{
    const term *a = x, *b = y;

    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    if (a->link.event != b->link.event)
        return compare_numbers(b->link.event, a->link.event);
    return compare_numbers(a->order, b->order);
}

// The latest first, which had most to choose from; the highest rank where they
// are taken at once. Which of several is reported does not depend on their
// values.
static int compare_places(const void *x, const void *y)
{
    const term *a = x, *b = y;

    if (a->link.event != b->link.event)
        return compare_numbers(b->link.event, a->link.event);
    if (a->link.rank != b->link.rank)
        return compare_numbers(b->link.rank, a->link.rank);
    return compare_numbers(a->order, b->order);
}

static void sort_terms(terms *terms, int (*compare)(const void *, const void *))
{
    if (terms->n > 0)
        qsort(terms->term, (size_t)terms->n, sizeof *terms->term, compare);
}

// Adds up the weights of equal terms; the latest of them stands for all.
static void gather(terms *terms)
{
    int64_t n = 0;

    sort_terms(terms, compare_values);
    for (int64_t i = 0; i < terms->n; i++) {
        if (n > 0 && terms->term[n - 1].value == terms->term[i].value)
            terms->term[n - 1].weight += terms->term[i].weight;
        else
            terms->term[n++] = terms->term[i];
    }
    terms->n = n;
}

// Both are sorted by value.
static void mark_extra(terms *x, const terms *y)
{
    int64_t k = 0;

    for (int64_t i = 0; i < x->n; i++) {
        term *own = &x->term[i];

        while (k < y->n && y->term[k].value < own->value)
            k++;
        own->extra = own->weight > (k < y->n && y->term[k].value == own->value
                                        ? y->term[k].weight
                                        : 0);
    }
}

static void compare_sums(trail *t)
{
    gather(&t->have);
    gather(&t->want);
    mark_extra(&t->have, &t->want);
    mark_extra(&t->want, &t->have);
    sort_terms(&t->have, compare_places);
    sort_terms(&t->want, compare_places);
}

static const term *find_extra(const terms *terms)
{
    for (int64_t i = 0; i < terms->n; i++)
        if (terms->term[i].extra)
            return &terms->term[i];
    return NULL;
}

// A term too many, and one that is missing and was at hand in the same buffer.
static bool find_exchanged(const trail *t, link *out)
{
    for (int64_t i = 0; i < t->have.n && i < MOST_EXCHANGED; i++) {
        *out = t->have.term[i].link;
        if (out->at < 0 || !t->have.term[i].extra)
            continue;
        for (int64_t k = 0; k < t->want.n && k < MOST_EXCHANGED; k++) {
            out->want = t->want.term[k].value;
            if (t->want.term[k].extra && find_elsewhere(t, out, true) >= 0)
                return true;
        }
    }
    return false;
}

// --------------------------------------------------------------------- steps

// The view of the tensor's op that a view of the host's stands for; -1 if it
// has none.
static int same_view(const hd_op *host, int view, const hd_op *tensor)
{
    if (view < host->noutputs + host->ninputs)
        return view < tensor->noutputs + tensor->ninputs ? view : -1;
    for (int k = 0; k < host->nkeys; k++)
        if (host->key[k].view == view)
            return hd_op_key_view(tensor, host->key[k].code);
    return -1;
}

// The first operand of the step that differs from the tensor's.
static bool find_operand(const trail *t, const link *made, int64_t i,
                         const hd_op *op, int64_t there, link *out)
{
    hd_work_item item = hd_evaluation_step(t->e, made->rank, made->step);
    hd_work_item dense = hd_evaluation_op(t->e, op);

    for (int view = item.op->noutputs; view < item.ntiles; view++) {
        int other = same_view(item.op, view, op);
        int64_t n = hd_compute_terms(&item, view);

        if (!(hd_op_access(item.op, view) & HD_ACCESS_READ) || other < 0 ||
            hd_compute_terms(&dense, other) != n)
            continue;
        for (int64_t k = 0; k < n; k++) {
            *out = (link){
                made->rank,
                made->step,
                view,
                hd_compute_place(&item, i, view, k),
                made->event,
                t->e->dense.value[hd_compute_place(&dense, there, other, k)]};
            if (value_at(t->e, out->at, out->event) != out->want)
                return true;
        }
    }
    return false;
}

// The step that wrote it takes what the tensor program makes that value of.
static bool has_operands(const trail *t, const hd_change *c, uint64_t want)
{
    link made = {.rank = rank_of(t->e, c->at),
                 .step = step_of(t->e, c),
                 .event = c->event},
         next;
    hd_work_item item = hd_evaluation_step(t->e, made.rank, made.step);
    int64_t i = element_at(&item.tile[0], c->at);
    int64_t there = find_named(t->blame, want);
    const hd_buffer *b = there >= 0 ? tensor_at(t->e, there) : NULL;
    const hd_op *op = b != NULL ? maker_of(t, b) : NULL;

    return i >= 0 && op != NULL && op->code == item.op->code &&
           !find_operand(t, &made, i, op, there - t->e->dense_at[b->id], &next);
}

static int64_t expr_of(const hd_module *module, const hd_key *key)
{
    return hd_key_info_get(key->code)->value == HD_VALUE_EXPR
               ? hd_expr_value(module, key->expr)
               : 0;
}

// Both have the key or lack it, and say the same with it.
static bool same_key(const trail *t, const hd_op *host, const hd_op *tensor,
                     hd_key_code code)
{
    const hd_key *a = hd_op_key(host, code), *b = hd_op_key(tensor, code);

    if (a == NULL || b == NULL)
        return a == b;
    return a->act == b->act && !(a->number < b->number) &&
           !(a->number > b->number) &&
           expr_of(t->e->graph->module, a) == expr_of(t->e->tensor, b);
}

// The operands are read along other dimensions. The host's may have fewer than
// the tensor's; then dimensions that are given by number have other ones.
static bool turns(const trail *t, const link *made, const hd_op *tensor)
{
    static const hd_key_code codes[] = {HD_KEY_TA, HD_KEY_TB, HD_KEY_DIM,
                                        HD_KEY_DIM0, HD_KEY_DIM1};
    const hd_op *host = op_of(t, made);
    hd_work_item item = hd_evaluation_step(t->e, made->rank, made->step);
    bool same = item.tile[host->noutputs].ndims ==
                tensor->view[tensor->noutputs].buffer->type.ndims;

    for (size_t i = 0; i < (same ? sizeof codes / sizeof *codes : 2); i++)
        if (!same_key(t, host, tensor, codes[i]))
            return true;
    return false;
}

static const char *making(const hd_op *op)
{
    switch (hd_op_fold(op)) {
    case HD_FOLD_MAX:
        return "takes the maximum";
    case HD_FOLD_MIN:
        return "takes the minimum";
    case HD_FOLD_NONE:
    case HD_FOLD_SUM:
        break;
    }
    return "makes it";
}

// What differs in the step, if not its operands.
static void print_difference(const trail *t, const hd_op *host,
                             const hd_op *tensor, hd_text *text)
{
    if (hd_op_family(host) == HD_FAMILY_COPY) { // else it is a move
        hd_text_printf(text,
                       "rounds %s to %s, which the tensor program does not",
                       hd_dtype_text(host->view[1].buffer->type.dtype),
                       hd_dtype_text(host->view[0].buffer->type.dtype));
        return;
    }
    if (tensor == NULL || tensor->code != host->code) {
        hd_text_printf(text, "%s where the tensor program has %s", making(host),
                       tensor == NULL ? "an input"
                                      : hd_op_info_get(tensor->code)->text);
        return;
    }
    for (hd_key_code code = 0; code < HD_NKEYS; code++) {
        const char *verb = hd_op_key(host, code) == NULL     ? "lacks"
                           : hd_op_key(tensor, code) == NULL ? "should not have"
                                                             : "has another";

        if (code == HD_KEY_ACCUMULATE || code == HD_KEY_AUX ||
            same_key(t, host, tensor, code))
            continue;
        hd_text_printf(text, "%s '%s'", verb, hd_key_info_get(code)->text);
        return;
    }
    hd_text_puts(text, "makes something else");
}

static hd_status report_maker(trail *t, const link *made, const hd_op *op)
{
    hd_text words = {0};
    hd_status status;

    print_difference(t, op_of(t, made), op, &words);
    status = report_op(t, made, text_of(&words));
    hd_text_free(&words);
    return status;
}

static hd_status go_on(trail *t, link next);

// The step at `made` computes what should be `made->want`.
static hd_status judge_maker(trail *t, const link *made, int64_t at)
{
    hd_work_item item = hd_evaluation_step(t->e, made->rank, made->step);
    int64_t there = find_named(t->blame, made->want);
    const hd_buffer *b = there >= 0 ? tensor_at(t->e, there) : NULL;
    const hd_op *op = b != NULL ? maker_of(t, b) : NULL;
    link next;
    int64_t i = element_at(&item.tile[0], at);

    if (i >= 0 && op != NULL && op->code == item.op->code &&
        !turns(t, made, op) && same_key(t, item.op, op, HD_KEY_BY) &&
        find_operand(t, made, i, op, there - t->e->dense_at[b->id], &next))
        return go_on(t, next);
    return report_maker(t, made, op);
}

// An operand of the sum itself, which the right one stands beside.
static bool find_other_operand(const trail *t, const link *made, int64_t there,
                               int64_t at, link *out)
{
    hd_work_item item = hd_evaluation_step(t->e, made->rank, made->step);
    const hd_buffer *b = tensor_at(t->e, there);
    int64_t i = element_at(&item.tile[0], at);
    const hd_op *op = maker_of(t, b);

    return op != NULL && op->code == item.op->code && i >= 0 &&
           find_operand(t, made, i, op, there - t->e->dense_at[b->id], out) &&
           find_elsewhere(t, out, true) >= 0;
}

// Who made the term's value, past all that only moved it.
static const hd_change *origin_of(const trail *t, const term *term)
{
    link l = term->link;
    const hd_change *c;

    do
        c = last_change(t->e, l.at, l.event);
    while (c != NULL && find_source(t, c, &l));
    return c;
}

// A term of a value that the tensor program lacks, for one that is missing:
// what made it took the same operands, or put it where that one belongs.
static bool find_misshapen(const trail *t, link *out)
{
    for (int64_t i = 0; i < t->have.n && i < MOST_EXCHANGED; i++) {
        const term *extra = &t->have.term[i];
        bool known =
            extra->link.at < 0 || find_named(t->blame, extra->value) >= 0;
        const hd_change *c = known ? NULL : origin_of(t, extra);

        for (int64_t k = 0; k < t->want.n && k < MOST_EXCHANGED && c; k++) {
            *out = extra->link;
            out->want = t->want.term[k].value;
            if (t->want.term[k].extra && (has_operands(t, c, out->want) ||
                                          is_namesake(t->e, c->at, out->want)))
                return true;
        }
    }
    return false;
}

// What no sum can make, whatever its operands.
static bool is_no_sum(const hd_op *op)
{
    const hd_op_info *info = hd_op_info_get(op->code);

    return info->map != HD_MAP_NONE
               ? !info->linear
               : hd_op_fold(op) != HD_FOLD_NONE && !is_sum(op);
}

static hd_status judge_sum(trail *t, const link *made, const hd_change *c)
{
    int64_t there = find_named(t->blame, made->want);
    const term *extra, *missing;
    const hd_op *op;
    hd_text words = {0};
    hd_status status;
    link next;

    if (there < 0)
        return report_op(t, made, "makes something else");
    op = maker_of(t, tensor_at(t->e, there));
    if (op != NULL && (is_no_sum(op) || (op->code == op_of(t, made)->code &&
                                         turns(t, made, op))))
        return report_maker(t, made, op);
    if (find_other_operand(t, made, there, c->at, &next))
        return go_on(t, next);
    t->have.n = t->want.n = 0;
    add_step_terms(t, c, 1, 0);
    add_tensor_terms(t, there, 1, 0);
    if (t->status == HD_UNSUPPORTED)
        return report_op(t, made, "makes something else");
    HD_TRY(t->status);
    compare_sums(t);
    extra = find_extra(&t->have);
    missing = find_extra(&t->want);
    if (extra != NULL && missing != NULL) {
        if (!find_misshapen(t, &next) && !find_exchanged(t, &next)) {
            next = extra->link;
            next.want = missing->value;
        }
        return next.at >= 0 ? go_on(t, next) : judge_maker(t, &next, c->at);
    }
    if (extra != NULL)
        return report_term(t, extra);
    if (missing == NULL)
        return report_op(t, made, "makes something else");
    hd_text_puts(&words, "lacks ");
    print_value(t->blame, missing->value, &words);
    status = report_op(t, made, text_of(&words));
    hd_text_free(&words);
    return status;
}

// Looks at who wrote what the link reads. Where that is a value of the tensor
// program, though another one, its maker is right and it was taken wrongly.
static hd_status go_on(trail *t, link next)
{
    int first = t->nlinks;

    while (t->nlinks < MOST_LINKS) {
        const hd_change *c = last_change(t->e, next.at, next.event);
        uint64_t want = next.want;
        link made = {.event = c != NULL ? c->event : 0, .want = want};
        const hd_op *op;

        t->link[t->nlinks++] = next;
        if (c == NULL)
            return report_chain(t, t->nlinks - 1);
        op = t->e->graph->node[c->node].op;
        if (find_source(t, c, &next)) {
            next.want = want;
            continue;
        }
        if (t->link[first].step != CALLER &&
            find_named(t->blame, c->value) >= 0 &&
            !is_namesake(t->e, c->at, want))
            return report_chain(t, first);
        made.rank = rank_of(t->e, c->at);
        made.step = step_of(t->e, c);
        return is_sum(op) ? judge_sum(t, &made, c)
                          : judge_maker(t, &made, c->at);
    }
    return report_chain(t, first);
}

// -------------------------------------------------------------------- whole

hd_status hd_blame_create(hd_evaluation *e, hd_blame *out)
{
    hd_blame blame = {.e = e, .looks = MOST_LOOKS};

    *out = blame;
    HD_TRY(hd_clear_array(e->dense.n, sizeof *blame.named, e->diag,
                          (void **)&blame.named));
    out->named = blame.named;
    HD_TRY(hd_clear_array(e->tensor->nbuffers, sizeof *blame.maker, e->diag,
                          (void **)&blame.maker));
    if (e->local.nchanges > 0)
        qsort(e->local.change, (size_t)e->local.nchanges,
              sizeof *e->local.change, compare_changes);
    find_makers(&blame);
    name_tensors(&blame);
    *out = blame;
    return HD_OK;
}

void hd_blame_free(hd_blame *blame)
{
    free(blame->named);
    free(blame->maker);
    *blame = (hd_blame){0};
}

hd_status hd_blame_report(hd_blame *blame, const hd_buffer *tensor, int rank,
                          int64_t i, hd_diag *diag)
{
    const hd_evaluation *e = blame->e;
    const hd_source *outer = hd_diag_source(diag, &e->graph->module->source);
    link output = {.rank = rank, .step = CALLER, .event = INT64_MAX};
    trail *t = calloc(1, sizeof *t);
    hd_status status;

    if (t == NULL) {
        hd_diag_source(diag, outer);
        return hd_fail(diag, HD_NO_MEMORY, "out of memory");
    }
    t->blame = blame;
    t->e = e;
    t->diag = diag;
    t->tensor = tensor;
    t->rank = rank;
    t->i = i;
    output.at = rank * e->share + e->local_at[e->argument[tensor->id]->id] + i;
    output.want = e->dense.value[hd_evaluation_whole(e, tensor, rank, i)];
    status = go_on(t, output);
    free(t->have.term);
    free(t->want.term);
    free(t);
    hd_diag_source(diag, outer);
    return status == HD_INVALID ? HD_OK : status;
}
