// The tensor program is evaluated on whole tensors, statement by statement; the
// host program step by step, on memory of each rank.
#include "check/evaluate.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "check/field.h"
#include "ir/causal.h"
#include "ir/print.h"
#include "steps/execute.h"

// Numbers that are kept, of all ranks.
#define MOST_VALUES ((int64_t)1 << 28)

// Terms that are added up and elements that are written, a minute's worth.
static const double most_work = 0x1p30;

// What nothing has written is no value of the other program.
enum { DENSE_KEY = 3, LOCAL_KEY };

// ---------------------------------------------------------------- arguments

static const hd_buffer *find_argument(const hd_module *module, const char *name)
{
    const hd_buffer *b = hd_module_buffer(module, name, strlen(name));

    return b != NULL && b->role != HD_ROLE_TEMP ? b : NULL;
}

// Of the tensor program if `in_tensor`.
static hd_status report_missing(const hd_module *host, const hd_module *tensor,
                                const hd_buffer *b, bool in_tensor,
                                hd_diag *diag)
{
    const hd_source *outer =
        hd_diag_source(diag, in_tensor ? &tensor->source : &host->source);
    hd_status status =
        hd_error(diag, HD_E0902, b->loc,
                 in_tensor ? "argument %%%s of the tensor program is none of "
                             "host program %s"
                           : "argument %%%s is none of tensor program %s",
                 b->name, in_tensor ? host->name : tensor->name);

    hd_diag_source(diag, outer);
    return status;
}

static bool has_same_type(const hd_buffer *x, const hd_buffer *y)
{
    bool same =
        x->type.dtype == y->type.dtype && x->type.ndims == y->type.ndims;

    for (int d = 0; d < x->type.ndims && same; d++)
        same = hd_dim_as_long(x->type.dim[d], y->type.dim[d]);
    return same;
}

static hd_status report_different(const hd_module *host,
                                  const hd_module *tensor, const hd_buffer *x,
                                  const hd_buffer *y, hd_diag *diag)
{
    const hd_source *outer = hd_diag_source(diag, &host->source);
    hd_text here = {0}, there = {0};
    hd_status status;

    hd_type_print(host, &y->type, &here);
    hd_type_print(tensor, &x->type, &there);
    if (has_same_type(x, y))
        status = hd_error(diag, HD_E0902, y->loc,
                          "%%%s has another role than in the tensor program",
                          y->name);
    else
        status = hd_error(diag, HD_E0902, y->loc,
                          "%%%s is %s here and %s in the tensor program",
                          y->name, here.bytes != NULL ? here.bytes : "",
                          there.bytes != NULL ? there.bytes : "");
    hd_diag_source(diag, &tensor->source);
    hd_note(diag, x->loc, "%%%s of tensor program %s", x->name, tensor->name);
    hd_diag_source(diag, outer);
    hd_text_free(&here);
    hd_text_free(&there);
    return status;
}

hd_status hd_arguments_match(const hd_module *host, const hd_module *tensor,
                             hd_diag *diag, const hd_buffer **out)
{
    hd_status status = HD_OK;

    for (const hd_buffer *x = tensor->buffers; x != NULL; x = x->next) {
        const hd_buffer *y = find_argument(host, x->name);

        if (x->role == HD_ROLE_TEMP || x->type.dtype == HD_DTYPE_EVENT)
            continue;
        if (y == NULL)
            status = report_missing(host, tensor, x, true, diag);
        else if (x->role != y->role || !has_same_type(x, y))
            status = report_different(host, tensor, x, y, diag);
        else if (out != NULL)
            out[x->id] = y;
    }
    for (const hd_buffer *y = host->buffers; y != NULL; y = y->next)
        if (y->role != HD_ROLE_TEMP && y->type.dtype != HD_DTYPE_EVENT &&
            find_argument(tensor, y->name) == NULL)
            status = report_missing(host, tensor, y, false, diag);
    return status;
}

// ------------------------------------------------------------------- places

static hd_tile dense_tile(const hd_evaluation *e, const hd_view *view)
{
    const hd_sieve *sieve = &e->grain.dense[view->buffer->id];
    hd_tile tile = {.at = e->dense_at[view->buffer->id]};

    for (int d = 0; d < sieve->ndims; d++) {
        const hd_range *range = hd_view_range(view, d);
        int64_t first = hd_view_first(e->tensor, view, d);

        tile.at += hd_sieve_index(sieve, d, first) * sieve->stride[d];
        if (hd_view_picks(view, d))
            continue;
        tile.extent[tile.ndims] = range != NULL
                                      ? hd_sieve_index(sieve, d, range->extent)
                                      : sieve->extent[d];
        tile.stride[tile.ndims] = sieve->stride[d];
        tile.unit[tile.ndims++] = sieve->unit[d];
    }
    return tile;
}

static hd_tile tile_of(const hd_evaluation *e, int rank, const hd_part *part)
{
    const hd_part_frame *frame = &e->graph->frame[part->buffer];
    const hd_sieve *sieve = &e->grain.local[part->buffer];
    hd_tile tile = {.at = rank * e->share + e->local_at[frame->root]};

    for (int d = 0; d < frame->ndims; d++) {
        if ((part->kept >> d & 1) == 0) {
            tile.at += hd_part_index(frame, part, d) * sieve->stride[d];
            continue;
        }
        tile.extent[tile.ndims] = sieve->extent[d];
        if (hd_part_extent(frame, part, d) < frame->extent[d]) {
            tile.at += hd_sieve_index(sieve, d, hd_part_index(frame, part, d)) *
                       sieve->stride[d];
            tile.extent[tile.ndims] =
                hd_sieve_index(sieve, d, hd_part_extent(frame, part, d));
        }
        tile.stride[tile.ndims] = sieve->stride[d];
        tile.unit[tile.ndims++] = sieve->unit[d];
    }
    return tile;
}

hd_work_item hd_evaluation_step(const hd_evaluation *e, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(e->graph, rank, step);
    hd_work_item item = {
        .op = node->op, .module = e->graph->module, .causal = node->link};

    for (int64_t i = node->part; i < node[1].part; i++) {
        const hd_part *part = &e->graph->part[i];

        item.tile[part->view] = tile_of(e, rank, part);
        item.ntiles = part->view + 1;
    }
    return item;
}

// What stands for a tensor's elements stands for those of its other shape, in
// the same order.
static hd_tile flat_tile(const hd_evaluation *e, const hd_view *view)
{
    int id = view->buffer->id;

    return (hd_tile){.at = e->dense_at[id],
                     .ndims = 1,
                     .extent = {e->grain.dense[id].elements},
                     .stride = {1},
                     .unit = {1}};
}

hd_work_item hd_evaluation_op(const hd_evaluation *e, const hd_op *op)
{
    hd_work_item item = {.op = op, .module = e->tensor, .ntiles = op->nviews};

    for (int i = 0; i < item.ntiles; i++)
        item.tile[i] = op->code == HD_OP_RESHAPE ? flat_tile(e, &op->view[i])
                                                 : dense_tile(e, &op->view[i]);
    return item;
}

hd_tile hd_evaluation_piece(const hd_evaluation *e, int rank, int64_t step,
                            bool result, int64_t i)
{
    const hd_node *node = hd_graph_node(e->graph, rank, step);
    int view = result ? 0 : node->op->noutputs;
    int64_t at = node->part;
    hd_tile tile;

    while (at < node[1].part && e->graph->part[at].view != view)
        at++;
    if (at == node[1].part || (result && node->op->noutputs == 0))
        return (hd_tile){.ndims = -1};
    tile = tile_of(e, rank, &e->graph->part[at]);
    if (hd_op_is_led(node->op, view))
        tile = hd_tile_slice(&tile, 0, i);
    return tile;
}

int64_t hd_evaluation_whole(const hd_evaluation *e, const hd_buffer *tensor,
                            int rank, int64_t i)
{
    const hd_buffer *mine = e->argument[tensor->id];
    const hd_sieve *local = &e->grain.local[mine->id];
    const hd_sieve *whole = &e->grain.dense[tensor->id];
    int64_t at = e->dense_at[tensor->id];

    for (int d = local->ndims - 1; d >= 0; d--) {
        hd_dim dim = mine->type.dim[d];
        int64_t index = i % local->extent[d];

        if (hd_dim_is_sharded(dim))
            index += hd_mesh_coord(e->graph->module, rank, dim.mark) *
                     local->extent[d];
        if (index >= whole->extent[d])
            return -1;
        at += index * whole->stride[d];
        i /= local->extent[d];
    }
    return at;
}

// --------------------------------------------------------------- evaluating

// Index by index, where ranks say what rows see.
static void attend(hd_evaluation *e, const hd_work_item *item)
{
    hd_work_item part = *item;
    hd_placed placed;

    for (int64_t rank = 0; rank < e->tensor->nranks; rank++) {
        if (!hd_causal_place(e->tensor, item->op, rank, &placed))
            continue;
        part.causal = placed.causal[0];
        part.blocks = placed.causal;
        for (int i = 0; i < item->ntiles; i++) {
            part.tile[i] = item->tile[i];
            for (int d = 0; d < part.tile[i].ndims; d++)
                if (placed.index[i][d] >= 0) {
                    part.tile[i].at +=
                        placed.index[i][d] * part.tile[i].stride[d];
                    part.tile[i].extent[d] = 1;
                }
        }
        hd_compute(&e->dense, &part);
    }
}

static hd_status evaluate_tensor(hd_evaluation *e)
{
    for (const hd_stmt *s = e->tensor->body.first; s != NULL; s = s->next) {
        hd_work_item item = hd_evaluation_op(e, s->op);

        if (hd_op_family(s->op) == HD_FAMILY_ATTEND)
            attend(e, &item);
        else
            hd_compute(&e->dense, &item);
        HD_TRY(e->dense.status);
    }
    return HD_OK;
}

static void write_as(hd_evaluation *e, hd_member who)
{
    e->local.node = e->graph->first[who.rank] + who.step;
}

static void reduce_to(hd_evaluation *e, hd_member who, const hd_tile *to,
                      const hd_tile *from, int64_t n)
{
    const hd_op *op = hd_graph_node(e->graph, who.rank, who.step)->op;
    hd_fold fold = hd_op_fold(op);
    int64_t elements = hd_tile_elements(to);

    write_as(e, who);
    for (int64_t i = 0; i < elements; i++)
        hd_values_put(&e->local, hd_tile_place(to, i),
                      hd_tiles_reduce(&e->local, fold,
                                      op->view[0].buffer->type.dtype, from, n,
                                      i));
}

// Where every rank has the same sum, it is made once and copied: it may be in
// place on all of them.
static void reduce(hd_evaluation *e, const hd_member *member, int64_t n,
                   bool scatter, hd_tile *from)
{
    hd_tile first = {.ndims = -1};

    for (int64_t i = 0; i < n; i++) {
        hd_tile to =
            hd_evaluation_piece(e, member[i].rank, member[i].step, true, i);

        if (to.ndims < 0) // another rank than the root of a reduce
            continue;
        if (!scatter && first.ndims >= 0) {
            write_as(e, member[i]);
            hd_tile_copy(&e->local, &to, &first);
            continue;
        }
        first = to;
        for (int64_t j = 0; j < n; j++)
            from[j] = hd_evaluation_piece(e, member[j].rank, member[j].step,
                                          false, i);
        reduce_to(e, member[i], &to, from, n);
    }
}

// The counts of what a step moves for rank `i` of a line, and which dimension
// of that they count.
static hd_tile counts_of(const hd_evaluation *e, hd_member who, int64_t i,
                         int *dim)
{
    const hd_op *op = hd_graph_node(e->graph, who.rank, who.step)->op;
    hd_work_item item = hd_evaluation_step(e, who.rank, who.step);
    const hd_view *view = &op->view[hd_op_counted(op)];
    hd_tile counts = item.tile[hd_op_key_view(op, HD_KEY_COUNTS)];
    bool led = hd_op_is_led(op, op->noutputs);

    *dim = hd_view_kept_ahead(view, view->buffer->counted) - led;
    return led ? hd_tile_slice(&counts, 0, i) : counts;
}

// What `from` has for rank `i` of a line goes to place `j` of `to`.
static void carry(hd_evaluation *e, hd_member to, int64_t j, hd_member from,
                  int64_t i)
{
    hd_tile there = hd_evaluation_piece(e, to.rank, to.step, true, j);
    hd_tile here = hd_evaluation_piece(e, from.rank, from.step, false, i);
    hd_tile counts;
    int dim;

    if (hd_op_counted(hd_graph_node(e->graph, from.rank, from.step)->op) < 0) {
        hd_tile_copy(&e->local, &there, &here);
        return;
    }
    counts = counts_of(e, from, i, &dim);
    hd_tile_copy_counted(&e->local, &there, &here, &counts, dim);
}

static void exchange(hd_evaluation *e, const hd_member *member, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        write_as(e, member[i]);
        for (int64_t j = 0; j < n; j++)
            carry(e, member[i], j, member[j], i);
    }
}

static void broadcast(hd_evaluation *e, const hd_member *member, int64_t n,
                      int root)
{
    hd_tile from = {.ndims = -1};

    for (int64_t i = 0; i < n; i++)
        if (member[i].rank == root)
            from = hd_evaluation_piece(e, root, member[i].step, false, 0);
    for (int64_t i = 0; i < n; i++) {
        hd_tile to =
            hd_evaluation_piece(e, member[i].rank, member[i].step, true, 0);

        write_as(e, member[i]);
        if (to.ndims >= 0)
            hd_tile_copy(&e->local, &to, &from);
    }
}

static hd_status meet(hd_evaluation *e, const hd_node *node)
{
    const hd_graph *g = e->graph;
    const hd_member *member = &g->member[g->rendezvous[node->link]];
    int64_t n = g->rendezvous[node->link + 1] - g->rendezvous[node->link];
    hd_tile *from;

    switch (hd_op_move(node->op)) {
    case HD_MOVE_REDUCE_SCATTER:
    case HD_MOVE_ALL_REDUCE:
    case HD_MOVE_REDUCE:
        HD_TRY(hd_clear_array(n, sizeof *from, e->diag, (void **)&from));
        reduce(e, member, n, hd_op_is_led(node->op, 1), from);
        free(from);
        return HD_OK;
    case HD_MOVE_BROADCAST:
        broadcast(e, member, n, node->peer);
        return HD_OK;
    case HD_MOVE_ALL_GATHER:
    case HD_MOVE_ALL_TO_ALL:
    case HD_MOVE_SEND:
    case HD_MOVE_RECV:
    case HD_MOVE_ALL_GATHER_MATMUL:
    case HD_MOVE_MATMUL_REDUCE_SCATTER:
    case HD_MOVE_MATMUL_ALL_REDUCE:
    case HD_MOVE_NONE:
        break;
    }
    exchange(e, member, n);
    return HD_OK;
}

static hd_status evaluate_step(void *context, int rank, int64_t step)
{
    hd_evaluation *e = context;
    const hd_node *node = hd_graph_node(e->graph, rank, step);
    hd_work_item item;

    e->local.event++;
    e->local.node = e->graph->first[rank] + step;
    if (node->kind == HD_NODE_RECV) {
        carry(e, (hd_member){rank, (int32_t)step}, 0,
              (hd_member){node->peer, node->link}, 0);
    } else if (node->kind == HD_NODE_COLLECTIVE) {
        HD_TRY(meet(e, node));
    } else {
        item = hd_evaluation_step(e, rank, step);
        hd_compute(&e->local, &item);
    }
    return e->local.status;
}

// -------------------------------------------------------------------- whole

// A sum of sizes; beyond the limit any number does.
static int64_t more(int64_t n, int64_t elements)
{
    return n > MOST_VALUES ? n : n + elements;
}

static void place_tensors(hd_evaluation *e, int64_t *n)
{
    for (const hd_buffer *b = e->tensor->buffers; b != NULL; b = b->next) {
        e->dense_at[b->id] = *n;
        *n = more(*n, e->grain.dense[b->id].elements);
    }
}

static void place_buffers(hd_evaluation *e)
{
    for (const hd_buffer *b = e->graph->module->buffers; b != NULL;
         b = b->next) {
        const hd_buffer *root = b->of != NULL ? b->of : b;

        e->local_at[b->id] = b->of != NULL ? e->local_at[root->id] : e->share;
        if (b->of == NULL && b->type.dtype != HD_DTYPE_EVENT)
            e->share = more(e->share, e->grain.local[b->id].elements);
    }
}

static hd_status check_room(const hd_evaluation *e, int64_t dense)
{
    if (dense > MOST_VALUES)
        return hd_error(e->diag, HD_E0105, (hd_loc){0},
                        "tensor program %s is of more than %lld pieces; values "
                        "are not compared beyond",
                        e->tensor->name, (long long)MOST_VALUES);
    if (e->share <= MOST_VALUES / e->graph->nranks)
        return HD_OK;
    return hd_error(e->diag, HD_E0105, (hd_loc){0},
                    "%lld pieces a rank on %d ranks; values are compared for "
                    "at most %lld pieces of all ranks",
                    (long long)e->share, e->graph->nranks,
                    (long long)MOST_VALUES);
}

// What the rank adds up in the step. The sum of an all_reduce is made once.
static double step_work(const hd_evaluation *e, int rank, int64_t step)
{
    const hd_node *node = hd_graph_node(e->graph, rank, step);
    hd_work_item item = hd_evaluation_step(e, rank, step);
    double n = item.ntiles > 0 ? hd_compute_work(&item) : 0;

    switch (hd_op_move(node->op)) {
    case HD_MOVE_REDUCE_SCATTER:
        return n * (double)e->graph->module->axis[node->op->axis].size;
    case HD_MOVE_REDUCE:
        return node->peer != rank
                   ? 0
                   : n * (double)e->graph->module->axis[node->op->axis].size;
    case HD_MOVE_ALL_REDUCE:
        return 2 * n;
    case HD_MOVE_SEND: // its recv counts
        return 0;
    case HD_MOVE_ALL_GATHER_MATMUL:
    case HD_MOVE_MATMUL_REDUCE_SCATTER:
    case HD_MOVE_MATMUL_ALL_REDUCE:
    case HD_MOVE_NONE:
    case HD_MOVE_RECV:
    case HD_MOVE_ALL_GATHER:
    case HD_MOVE_BROADCAST:
    case HD_MOVE_ALL_TO_ALL:
        break;
    }
    return n;
}

static hd_status refuse_work(const hd_evaluation *e, const hd_module *module,
                             hd_loc loc)
{
    const hd_source *outer = hd_diag_source(e->diag, &module->source);
    hd_status status = hd_error(
        e->diag, HD_E0105, loc,
        "up to here %s has more than %.0f results and products of pieces; "
        "values are not compared beyond: indices and names of other shapes cut "
        "its buffers too finely, or there are too many steps",
        module->name, most_work);

    hd_diag_source(e->diag, outer);
    return status;
}

// Refuses what would take hours before it is begun.
static hd_status check_work(const hd_evaluation *e)
{
    const hd_graph *g = e->graph;
    double work = 0;

    for (const hd_stmt *s = e->tensor->body.first; s != NULL; s = s->next) {
        hd_work_item item = hd_evaluation_op(e, s->op);

        work += hd_compute_work(&item);
        if (work > most_work)
            return refuse_work(e, e->tensor, s->op->loc);
    }
    work = 0;
    for (int rank = 0; rank < g->nranks; rank++)
        for (int64_t step = 0; step < hd_graph_steps(g, rank); step++) {
            work += step_work(e, rank, step);
            if (work > most_work)
                return refuse_work(e, g->module,
                                   hd_graph_node(g, rank, step)->op->loc);
        }
    return HD_OK;
}

// What counts holds whole numbers.
static void fill_counts(hd_evaluation *e)
{
    uint64_t number = 0, turn = e->draw->turn;

    for (const hd_buffer *b = e->tensor->buffers; b != NULL; b = b->next) {
        uint64_t *value = &e->dense.value[e->dense_at[b->id]];
        int64_t room = hd_draw_room(e->graph->module, e->tensor, b);

        for (int64_t i = 0; room > 0 && i < e->grain.dense[b->id].elements; i++)
            value[i] = (uint64_t)hd_draw_next(e->draw, number++, room, &turn);
    }
}

// Every rank's shard of an input holds what the whole one does.
static void fill_inputs(hd_evaluation *e)
{
    for (const hd_buffer *b = e->tensor->buffers; b != NULL; b = b->next) {
        const hd_buffer *mine = e->argument[b->id];
        int64_t n;

        if (mine == NULL || b->role == HD_ROLE_OUT)
            continue;
        n = e->grain.local[mine->id].elements;
        for (int rank = 0; rank < e->graph->nranks; rank++)
            for (int64_t i = 0; i < n; i++) {
                int64_t whole = hd_evaluation_whole(e, b, rank, i);

                if (whole >= 0)
                    e->local
                        .value[rank * e->share + e->local_at[mine->id] + i] =
                        e->dense.value[whole];
            }
    }
}

static hd_status allocate(hd_evaluation *e)
{
    int64_t n = 0;

    HD_TRY(hd_clear_array(e->tensor->nbuffers, sizeof *e->dense_at, e->diag,
                          (void **)&e->dense_at));
    HD_TRY(hd_clear_array(e->graph->module->nbuffers, sizeof *e->local_at,
                          e->diag, (void **)&e->local_at));
    place_tensors(e, &n);
    place_buffers(e);
    HD_TRY(check_room(e, n));
    HD_TRY(check_work(e));
    HD_TRY(hd_values_create(e->draw, n, DENSE_KEY, e->diag, &e->dense));
    return hd_values_create(e->draw, e->share * e->graph->nranks, LOCAL_KEY,
                            e->diag, &e->local);
}

static hd_status evaluate_host(hd_evaluation *e)
{
    hd_schedule done;

    HD_TRY(hd_execute(e->graph, evaluate_step, e, e->diag, &done));
    assert(hd_schedule_is_over(&done)); // it does not deadlock
    hd_schedule_close(&done);
    return HD_OK;
}

static hd_status evaluate(hd_evaluation *e, bool keep)
{
    HD_TRY(hd_clear_array(e->tensor->nbuffers, sizeof *e->argument, e->diag,
                          (void **)&e->argument));
    HD_TRY(
        hd_arguments_match(e->graph->module, e->tensor, e->diag, e->argument));
    HD_TRY(
        hd_grain_create(e->graph, e->tensor, e->argument, e->diag, &e->grain));
    HD_TRY(allocate(e));
    if (e->draw->counts)
        fill_counts(e);
    fill_inputs(e);
    HD_TRY(evaluate_tensor(e));
    e->local.keep = keep;
    return evaluate_host(e);
}

hd_status hd_evaluate(const hd_graph *graph, const hd_module *tensor,
                      const hd_draw *draw, bool keep, hd_diag *diag,
                      hd_evaluation *out)
{
    hd_status status;

    *out = (hd_evaluation){
        .graph = graph, .tensor = tensor, .draw = draw, .diag = diag};
    status = evaluate(out, keep);
    if (status != HD_OK)
        hd_evaluation_free(out);
    return status;
}

void hd_evaluation_free(hd_evaluation *e)
{
    free(e->argument);
    free(e->dense_at);
    free(e->local_at);
    hd_grain_free(&e->grain);
    hd_values_free(&e->dense);
    hd_values_free(&e->local);
    *e = (hd_evaluation){0};
}
