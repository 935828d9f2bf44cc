// Gives each broadcast of a loop the pipeline that the options choose. The loop
// that `stream` made computes on shard j in iteration j; here its iterations
// become the trips of a pipeline, in the order in which shards arrive. A
// pipeline is a row of `schedules`, which says what a trip moves and computes
// on; emit_trip writes any of them.
//
// Chunks split the first dimension inside a shard: buffers get a second shape
// with one more dimension (`of`), and a shard has a trip a chunk. A rank's
// local shard is computed on where it lies, unless the gathered buffer is
// needed whole.
#include <string.h>

#include "ir/space.h"
#include "ir/transport.h"
#include "lower/build.h"
#include "lower/pass.h"

typedef struct gather {
    hd_op *op;       // the broadcast: %ag[.., j] = broadcast %a[.., x] root j
    int dim;         // which index is j
    bool in_place;   // the local shard is not copied
    hd_buffer *sent; // events of deferred sends
} gather;

typedef struct alias {
    struct alias *next;
    hd_buffer *buffer, *split;
    int dim;
} alias;

typedef struct schedule schedule;

typedef struct pipe {
    hd_module *module;
    const hd_lower_options *options;
    hd_arena *scratch;
    hd_diag *diag;
    hd_stmt *loop; // one after the other, as all below
    hd_stmt *ops;  // the statements of an iteration
    gather *gather;
    int ngathers;
    int64_t ranks, chunks;
    int axis;
    const schedule *schedule;
    const hd_transport *transport; // by axis
    alias *aliases;
    const int *uses; // by buffer id, in the whole program
} pipe;

// What a trip works on: the shard's index, and the chunk's (HD_EXPR_NONE if
// shards are whole). An index of HD_EXPR_ALL is every shard.
typedef struct piece {
    hd_expr shard, chunk;
    bool own;
} piece;

typedef struct trip {
    pipe *p;
    hd_expr j;     // its number
    hd_expr step;  // the number of its shard: j, where shards are whole
    piece at;      // what it computes on
    hd_expr own;   // when that is the local shard; HD_EXPR_NONE if that makes
                   // no difference
    hd_build mine; // what it does then, where it moves nothing
} trip;

typedef hd_expr trip_fn(const trip *t);
typedef void move_fn(const trip *t, hd_build *b, const gather *g);

// A pipeline that moves a piece and then computes on one: what its trips do,
// for each chunk the same.
struct schedule {
    trip_fn *shard; // computed on; NULL: all of them, a chunk a trip
    trip_fn *own;   // when that is the local one; NULL: no trip has it alone
    move_fn *move;  // NULL: all that is moved is, before the loop
    // Of what is sent and received: the peers, and the shard that arrives. It
    // is computed on at once and the local shard is sent, in all trips but the
    // local shard's own; or, of one that relays, computed on in the next trip,
    // and what is computed on is sent, in all trips but the last shard's.
    trip_fn *to, *from, *arrives;
    bool relays;
};

static hd_expr number(const pipe *p, int64_t value)
{
    return hd_expr_const(p->module, value);
}

static hd_expr binary(const pipe *p, hd_expr_kind kind, hd_expr a, hd_expr b)
{
    return hd_expr_binary(p->module, kind, a, b);
}

// ------------------------------------------------------------------ chunks

static hd_buffer *split_buffer(pipe *p, hd_buffer *buffer, int dim)
{
    hd_type type;
    alias *a;

    for (a = p->aliases; a != NULL; a = a->next)
        if (a->buffer == buffer && a->dim == dim)
            return a->split;
    type = hd_type_with(&buffer->type, dim, (hd_dim){p->chunks, HD_LOCAL});
    type.dim[dim + 1].extent /= p->chunks;
    a = hd_new(p->scratch, alias);
    *a = (alias){.next = p->aliases, .buffer = buffer, .dim = dim};
    a->split = hd_module_add_buffer(
        p->module, hd_arena_printf(p->scratch, "%s_c", buffer->name), HD_TEMP,
        &type);
    a->split->of = hd_buffer_root(buffer);
    p->aliases = a;
    return a->split;
}

// By the statements of an iteration before `end`; NULL is all of them.
static int count_uses(const pipe *p, const hd_stmt *end,
                      const hd_buffer *buffer)
{
    int n = 0;

    for (const hd_stmt *s = p->ops; s != end; s = s->next)
        for (int i = 0; i < s->op->nviews; i++)
            n += hd_buffer_root(s->op->view[i].buffer) == buffer;
    return n;
}

static hd_status check_split(pipe *p, const hd_view *view, int dim, hd_loc loc)
{
    const hd_type *type = &view->buffer->type;
    const hd_buffer *root = hd_buffer_root(view->buffer);

    // Chunks go by a name of their own, and what the caller has brought by the
    // argument's, which thereby ends (HD0807).
    if (root->role == HD_INOUT &&
        count_uses(p, NULL, root) != p->uses[root->id])
        return hd_error(p->diag, HD_E0502, loc,
                        "%lld chunks: %%%s is an inout argument that is also "
                        "used outside of this loop",
                        (long long)p->chunks, root->name);
    if (dim >= type->ndims || hd_dim_is_sharded(type->dim[dim]))
        return hd_error(p->diag, HD_E0502, loc,
                        "%lld chunks: %%%s has no dimension after its stream "
                        "dimension to split",
                        (long long)p->chunks, view->buffer->name);
    if (type->ndims == HD_MAX_DIMS)
        return hd_error(p->diag, HD_E0502, loc,
                        "%lld chunks: %%%s has %d dimensions already",
                        (long long)p->chunks, view->buffer->name, HD_MAX_DIMS);
    if (type->dim[dim].extent % p->chunks != 0)
        return hd_error(p->diag, HD_E0501, loc,
                        "%lld chunks do not divide dimension %d of %%%s, "
                        "which is %lld",
                        (long long)p->chunks, dim, view->buffer->name,
                        (long long)type->dim[dim].extent);
    return HD_OK;
}

// The view of one chunk: `dim` is the dimension that is split, all before it
// are indexed or kept as they were.
static hd_view chunk_view(pipe *p, hd_view view, int dim, hd_expr chunk)
{
    hd_view result = view;

    result.buffer = split_buffer(p, view.buffer, dim);
    while (result.nindex < dim)
        result.index[result.nindex++] = HD_EXPR_ALL;
    for (int i = result.nindex; i > dim; i--)
        result.index[i] = result.index[i - 1];
    result.index[dim] = chunk;
    result.nindex++;
    return result;
}

// Which index of the view is the loop variable; -1 if none.
static int loop_index(const pipe *p, const hd_view *view)
{
    for (int i = 0; i < view->nindex; i++)
        if (view->index[i] >= 0 &&
            hd_expr_uses_var(p->module, view->index[i], p->loop->var))
            return i;
    return -1;
}

// Whether the loop itself writes the buffer, so that chunk by chunk.
static bool is_made_here(const pipe *p, hd_buffer *buffer)
{
    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        for (int i = 0; i < s->op->nviews; i++)
            if (hd_op_access(s->op, i) != HD_ACCESS_READ &&
                hd_buffer_root(s->op->view[i].buffer) == hd_buffer_root(buffer))
                return true;
    return false;
}

// How many dimensions the view keeps before its buffer's `dim`.
static int kept_ahead(const hd_view *view, int dim)
{
    int n = 0;

    for (int i = 0; i < dim; i++)
        n += i >= view->nindex || view->index[i] == HD_EXPR_ALL;
    return n;
}

enum { UNSPLIT = -1, NO_CHUNKS = -2 };

// The dimension of view `i` that chunks split: the result's is the one after
// its own index of the loop, and where the view has none along that it is
// UNSPLIT. NO_CHUNKS if that is not how chunks of the view come.
static int split_dim(const pipe *p, const hd_op *op, int i)
{
    const hd_view *view = &op->view[i];
    int at = loop_index(p, view), out = loop_index(p, &op->view[0]);
    int dim = 0, own;
    hd_space space;

    if (i == 0)
        return out + 1;
    hd_space_of_op(p->module, op, &space);
    own = space.dim[i][kept_ahead(&op->view[0], out + 1)];
    if (own == HD_REPEATED)
        return at >= 0 && is_made_here(p, view->buffer) ? NO_CHUNKS : UNSPLIT;
    while (kept_ahead(view, dim + 1) <= own)
        dim++;
    return at < 0 || dim == at + 1 ? dim : NO_CHUNKS;
}

static hd_status check_view(pipe *p, const hd_op *op, int i)
{
    int dim = op->code == HD_OP_BROADCAST ? loop_index(p, &op->view[0]) + 1
                                          : split_dim(p, op, i);

    if (dim == NO_CHUNKS)
        return hd_error(p->diag, HD_E0502, op->loc,
                        "%s cannot be done in %lld chunks: it needs its shard "
                        "whole",
                        hd_op_info_get(op->code)->text, (long long)p->chunks);
    return dim >= 0 ? check_split(p, &op->view[i], dim, op->loc) : HD_OK;
}

static hd_status check_chunks(pipe *p)
{
    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        for (int i = 0; i < s->op->nviews; i++)
            if (s->op->code != HD_OP_BROADCAST || i == 0)
                HD_TRY(check_view(p, s->op, i));
    return HD_OK;
}

// ------------------------------------------------------------------- views

static const gather *gather_of(const pipe *p, const hd_buffer *buffer)
{
    for (int i = 0; i < p->ngathers; i++)
        if (p->gather[i].op->view[0].buffer == buffer)
            return &p->gather[i];
    return NULL;
}

// In which dimension of view `i` shards lie, -1 if in none. Of an operand that
// repeats, all of them have its one index.
static int shard_dim(const pipe *p, const hd_op *op, int i)
{
    const hd_view *view = &op->view[i];
    int dim = loop_index(p, view);

    if (dim >= 0)
        return dim;
    dim = hd_space_beside(op, i, loop_index(p, &op->view[0]));
    return dim >= 0 && dim < view->nindex &&
                   view->buffer->type.dim[dim].extent == 1
               ? dim
               : -1;
}

static hd_view replace_index(pipe *p, hd_view view, int dim, hd_expr shard)
{
    if (shard == HD_EXPR_ALL && dim >= 0)
        view.index[dim] = HD_EXPR_ALL;
    for (int i = 0; i < view.nindex && shard != HD_EXPR_ALL; i++)
        if (view.index[i] != HD_EXPR_ALL)
            view.index[i] =
                hd_expr_replace(p->module, view.index[i], p->loop->var, shard);
    return view;
}

// A gathered view of the local shard, where it lies.
static hd_view own_view(pipe *p, const gather *g, hd_view view)
{
    view.buffer = g->op->view[1].buffer;
    return hd_view_at(view, g->dim, hd_expr_coord(p->module, g->op->axis));
}

static hd_view piece_view(pipe *p, const hd_op *op, int i, const piece *at)
{
    const hd_view *view = &op->view[i];
    const gather *g = gather_of(p, view->buffer);
    int split = at->chunk >= 0 ? split_dim(p, op, i) : UNSPLIT;
    hd_view result =
        at->own && g != NULL && g->in_place ? own_view(p, g, *view) : *view;

    result = replace_index(p, result, shard_dim(p, op, i), at->shard);
    return at->chunk >= 0 && split >= 0
               ? chunk_view(p, result, split, at->chunk)
               : result;
}

// What gather g sends or receives of a piece.
static hd_view source_view(pipe *p, const gather *g, const piece *at)
{
    const hd_view *in = &g->op->view[1];

    return at->chunk >= 0 ? chunk_view(p, *in, g->dim + 1, at->chunk) : *in;
}

static hd_view target_view(pipe *p, const gather *g, const piece *at)
{
    hd_view out = replace_index(p, g->op->view[0], g->dim, at->shard);

    return at->chunk >= 0 ? chunk_view(p, out, g->dim + 1, at->chunk) : out;
}

// --------------------------------------------------------------- computing

static bool reads_in_place(const pipe *p, const hd_op *op)
{
    for (int i = op->noutputs; i < op->nviews; i++) {
        const gather *g = gather_of(p, op->view[i].buffer);

        if (g != NULL && g->in_place)
            return true;
    }
    return false;
}

// Where an operand's dimension of the loop is kept, the one that is reduced is
// counted with it.
static void fix_dim_key(pipe *p, const hd_op *from, hd_op *to, const piece *at)
{
    for (int i = 0; i < to->nkeys && at->shard == HD_EXPR_ALL; i++) {
        hd_expr *dim = &to->key[i].expr;
        int s =
            to->key[i].code == HD_KEY_DIM ? loop_index(p, &from->view[1]) : -1;

        if (s >= 0 && hd_expr_value(p->module, *dim) >= s)
            *dim = binary(p, HD_EXPR_ADD, *dim, number(p, 1));
    }
}

static void clone_op(pipe *p, hd_build *b, const hd_op *op, const piece *at)
{
    hd_op *copy = hd_build_copy(b, op);

    for (int i = 0; i < op->nviews; i++)
        copy->view[i] = piece_view(p, op, i, at);
    fix_dim_key(p, op, copy, at);
}

// The computation of a trip, which branches where the local shard lies
// elsewhere.
static void emit_compute(hd_build *b, const trip *t)
{
    hd_build mine = *b, theirs = *b;
    bool branched = false;
    piece at = t->at;

    for (hd_stmt *s = t->p->ops; s != NULL; s = s->next) {
        bool branches = t->own >= 0 && reads_in_place(t->p, s->op);

        if (branches && !branched)
            mine = hd_build_if(b, t->own, &theirs);
        branched = branches;
        if (s->op->code == HD_OP_BROADCAST)
            continue;
        at.own = true;
        if (branches)
            clone_op(t->p, &mine, s->op, &at);
        at.own = false;
        clone_op(t->p, branches ? &theirs : b, s->op, &at);
    }
}

// ------------------------------------------------------------------ moves

// The first trip that sends and receives, and the one after the last.
static int64_t first_exchange(const pipe *p)
{
    return p->schedule->relays ? 0 : p->chunks;
}

static int64_t end_of_exchanges(const pipe *p)
{
    return first_exchange(p) + (p->ranks - 1) * p->chunks;
}

static void emit_transfer(const trip *t, hd_build *b, const gather *g,
                          hd_opcode code, hd_view what)
{
    const pipe *p = t->p;
    bool sends = code == HD_OP_SEND;
    hd_op *op = hd_build_op(b, code, p->axis, !sends, sends, &what);

    if (sends)
        hd_build_key(op, HD_KEY_TO, p->schedule->to(t));
    else
        hd_build_key(op, HD_KEY_FROM, p->schedule->from(t));
    if (p->options->protocol == HD_GET)
        hd_build_key(op, HD_KEY_GET, HD_EXPR_NONE);
    if (sends && g->sent != NULL)
        hd_build_key_view(op, HD_KEY_DONE,
                          hd_view_at(hd_view_whole(g->sent, op->loc), 0, t->j));
}

// Buffers of chunks are declared in the order in which their views are made.
static void copy_own(pipe *p, hd_build *b, const gather *g, const piece *at)
{
    hd_view in = source_view(p, g, at), out = target_view(p, g, at);

    hd_build_unary(b, HD_OP_COPY, -1, out, in);
}

// A send and a recv.
static void exchange(const trip *t, hd_build *b, const gather *g)
{
    pipe *p = t->p;
    bool relays = p->schedule->relays;
    piece in = {.shard = p->schedule->arrives(t), .chunk = t->at.chunk};
    hd_build own = t->mine, others = *b;

    if (!relays && !g->in_place)
        copy_own(p, &own, g, &t->at);
    if (relays && g->in_place) {
        own = hd_build_if(b, t->own, &others);
        emit_transfer(t, &own, g, HD_OP_SEND, source_view(p, g, &t->at));
    }
    emit_transfer(t, &others, g, HD_OP_SEND,
                  relays ? target_view(p, g, &t->at)
                         : source_view(p, g, &t->at));
    emit_transfer(t, b, g, HD_OP_RECV, target_view(p, g, &in));
}

// From the rank whose shard it is, to all.
static void broadcast(const trip *t, hd_build *b, const gather *g)
{
    pipe *p = t->p;
    hd_view in = source_view(p, g, &t->at), out = target_view(p, g, &t->at);
    hd_build mine, theirs;

    if (!g->in_place) {
        hd_build_key(hd_build_unary(b, HD_OP_BROADCAST, p->axis, out, in),
                     HD_KEY_ROOT, t->at.shard);
        return;
    }
    mine = hd_build_if(b, t->own, &theirs);
    hd_build_key(hd_build_op(&mine, HD_OP_BROADCAST, p->axis, 0, 1, &in),
                 HD_KEY_ROOT, t->at.shard);
    hd_build_key(hd_build_op(&theirs, HD_OP_BROADCAST, p->axis, 1, 0, &out),
                 HD_KEY_ROOT, t->at.shard);
}

// From every rank to all.
static void collect(const trip *t, hd_build *b, const gather *g)
{
    hd_view in = source_view(t->p, g, &t->at);
    hd_view out = target_view(t->p, g, &t->at);

    hd_build_unary(b, HD_OP_ALL_GATHER, t->p->axis, out, in);
}

// --------------------------------------------------------------- pipelines

static hd_expr rank_of(const pipe *p)
{
    return hd_expr_coord(p->module, p->axis);
}

// a + b or a - b, counted around the ranks
static hd_expr around(const trip *t, hd_expr_kind kind, hd_expr a, hd_expr b)
{
    return hd_expr_mod(t->p->module, binary(t->p, kind, a, b),
                       number(t->p, t->p->ranks));
}

static hd_expr in_order(const trip *t)
{
    return t->step;
}

static hd_expr upwards(const trip *t)
{
    return around(t, HD_EXPR_ADD, rank_of(t->p), t->step);
}

static hd_expr downwards(const trip *t)
{
    return around(t, HD_EXPR_SUB, rank_of(t->p), t->step);
}

// The rank for which this trip is that of the local shard here.
static hd_expr mirrored(const trip *t)
{
    hd_expr n = number(t->p, t->p->ranks);

    return around(t, HD_EXPR_SUB, binary(t->p, HD_EXPR_ADD, n, rank_of(t->p)),
                  t->step);
}

static hd_expr its_shard(const trip *t)
{
    return t->at.shard;
}

static hd_expr shard_below(const trip *t)
{
    return around(t, HD_EXPR_SUB, t->at.shard, number(t->p, 1));
}

static hd_expr right(const trip *t)
{
    return around(t, HD_EXPR_ADD, rank_of(t->p), number(t->p, 1));
}

static hd_expr left(const trip *t)
{
    return around(t, HD_EXPR_SUB, rank_of(t->p), number(t->p, 1));
}

static hd_expr is_first(const trip *t)
{
    return t->p->chunks == 1
               ? binary(t->p, HD_EXPR_EQ, t->j, number(t->p, 0))
               : binary(t->p, HD_EXPR_LT, t->j, number(t->p, t->p->chunks));
}

static hd_expr is_of_rank(const trip *t)
{
    return binary(t->p, HD_EXPR_EQ, t->at.shard, rank_of(t->p));
}

static const schedule schedules[] = {
    // One all_gather before the loop.
    [HD_TRANSFER_BULK] = {.shard = in_order},
    // Trip j gathers chunk j of every shard, and computes on all of them.
    [HD_TRANSFER_PIPELINED] = {.move = collect},
    // Rank j sends to all.
    [HD_TRANSFER_BROADCAST] = {.shard = in_order,
                               .own = is_of_rank,
                               .move = broadcast},
    // From rank + j, to rank - j.
    [HD_TRANSFER_DIRECT] = {.shard = upwards,
                            .own = is_first,
                            .move = exchange,
                            .to = mirrored,
                            .from = its_shard,
                            .arrives = its_shard},
    // What came from the left neighbour goes on to the right.
    [HD_TRANSFER_RING] = {.shard = downwards,
                          .own = is_first,
                          .move = exchange,
                          .to = right,
                          .from = left,
                          .arrives = shard_below,
                          .relays = true},
};

static int64_t count_trips(const pipe *p)
{
    return (p->schedule->shard != NULL ? p->ranks : 1) * p->chunks;
}

// Names the chunk and the shard of trip j.
static trip start_trip(pipe *p, hd_build *b, hd_expr j)
{
    const schedule *s = p->schedule;
    trip t = {.p = p,
              .j = j,
              .step = j,
              .at = {.shard = HD_EXPR_ALL, .chunk = HD_EXPR_NONE},
              .own = HD_EXPR_NONE};
    hd_expr n = number(p, p->chunks);

    if (p->chunks > 1 && s->shard == NULL) {
        t.at.chunk = j;
    } else if (p->chunks > 1) {
        t.at.chunk = hd_build_let(b, "k", binary(p, HD_EXPR_MOD, j, n));
        t.step = binary(p, HD_EXPR_DIV, j, n);
    }
    if (s->shard != NULL)
        t.at.shard = s->shard(&t);
    if (s->shard != NULL && t.at.shard != j)
        t.at.shard = hd_build_let(b, "i", t.at.shard);
    if (s->own != NULL)
        t.own = s->own(&t);
    return t;
}

// Where a trip's transfers stand: sends and recvs together, in those trips that
// have any.
static hd_build open_moves(hd_build *b, trip *t)
{
    const schedule *s = t->p->schedule;
    hd_expr more =
        binary(t->p, HD_EXPR_LT, t->j, number(t->p, end_of_exchanges(t->p)));
    hd_build theirs;

    if (s->to == NULL)
        return *b;
    t->mine = hd_build_if(b, s->relays ? more : t->own, &theirs);
    return hd_build_group(s->relays ? &t->mine : &theirs);
}

// The flow of a gather: a trip moves, then it computes.
static void emit_trip(pipe *p, hd_build *b, hd_expr j)
{
    trip t = start_trip(p, b, j);
    hd_build moves;

    if (p->schedule->move != NULL) {
        moves = open_moves(b, &t);
        for (int i = 0; i < p->ngathers; i++) {
            moves.loc = p->gather[i].op->loc;
            p->schedule->move(&t, &moves, &p->gather[i]);
        }
    }
    emit_compute(b, &t);
}

// What is moved or copied before the loop, on the caller's stream.
static void emit_before(pipe *p, hd_build *b)
{
    piece own = {.shard = rank_of(p), .chunk = HD_EXPR_NONE};

    for (int i = 0; i < p->ngathers; i++) {
        const gather *g = &p->gather[i];
        hd_view out = g->op->view[0];

        b->loc = g->op->loc;
        out.nindex = g->dim;
        if (p->schedule->move == NULL)
            hd_build_unary(b, HD_OP_ALL_GATHER, p->axis, out, g->op->view[1]);
        else if (p->schedule->relays && !g->in_place)
            copy_own(p, b, g, &own);
    }
}

// Waits for deferred sends, after the loop.
static void emit_after(pipe *p, hd_build *b)
{
    for (int i = 0; i < p->ngathers && p->ranks > 1; i++) {
        hd_expr t;
        hd_build body;
        hd_view event;

        if (p->gather[i].sent == NULL)
            continue;
        body = hd_build_for(b, "t", number(p, end_of_exchanges(p)), &t);
        b->block->last->a = number(p, first_exchange(p));
        event = hd_view_at(hd_view_whole(p->gather[i].sent, b->loc), 0, t);
        hd_build_op(&body, HD_OP_WAIT, -1, 0, 1, &event);
    }
}

// NCCL ends a send with its recv, and does nothing else along the axis until
// then: there the two stay in one group, and none is deferred.
static void add_sent_events(pipe *p)
{
    hd_type type = {.dtype = HD_EVENT, .ndims = 1};

    if (!p->options->defer_sends || p->schedule->to == NULL ||
        p->transport[p->axis] == HD_TRANSPORT_NCCL)
        return;
    type.dim[0] = (hd_dim){count_trips(p), HD_LOCAL};
    for (int i = 0; i < p->ngathers; i++)
        p->gather[i].sent =
            hd_module_add_buffer(p->module, "sent", HD_TEMP, &type);
}

static void rebuild_loop(pipe *p, hd_build *b)
{
    hd_block *on = &p->loop->body.first->body;
    hd_build body = {p->module, on, p->gather[0].op->loc};

    emit_before(p, b);
    *on = (hd_block){0};
    p->loop->b = number(p, count_trips(p));
    hd_block_append(b->block, p->loop);
    emit_trip(p, &body, hd_expr_of_var(p->module, p->loop->var));
    emit_after(p, b);
}

// ------------------------------------------------------------ finding loops

static void count_views(void *context, hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        ((int *)context)[hd_buffer_root(op->view[i].buffer)->id]++;
}

// Nothing but this loop needs the local shard among the gathered ones.
static bool stays_in_place(const pipe *p, hd_buffer *buffer)
{
    const hd_buffer *root = hd_buffer_root(buffer);

    return root->role == HD_TEMP && root == buffer &&
           count_uses(p, NULL, root) == p->uses[root->id];
}

// What was asked for and this pipeline, or this gather, has no use for.
static void report_effect(const pipe *p, const gather *g, hd_effect *effect)
{
    const schedule *s = p->schedule;
    unsigned of_sends = HD_OPTION_PROTOCOL | HD_OPTION_DEFER_SENDS;
    hd_loc loc = g->op->loc;

    if (s->move == NULL)
        hd_effect_none(effect, HD_OPTION_CHUNKS, p->diag, loc,
                       "this pipeline moves shards whole, in one collective");
    if (p->ranks == 1 && p->module->nranks > 1)
        hd_effect_none(effect, HD_OPTION_TRANSFER | of_sends, p->diag, loc,
                       hd_arena_printf(p->scratch, "%s has one rank",
                                       p->module->axis[p->axis].name));
    else if (s->to == NULL)
        hd_effect_none(effect, of_sends, p->diag, loc,
                       "this pipeline moves by collectives, and sends nothing");
    else if (p->transport[p->axis] == HD_TRANSPORT_NCCL)
        hd_effect_none(effect, of_sends, p->diag, loc,
                       "over nccl put and get are the same, and a send ends "
                       "with its recv, in one group with it");
    if (s->own == NULL)
        hd_effect_none(effect, HD_OPTION_COPY_OWN, p->diag, loc,
                       "this pipeline gathers the local shard with the others");
    else if (!stays_in_place(p, g->op->view[0].buffer))
        hd_effect_none(effect, HD_OPTION_COPY_OWN, p->diag, loc,
                       "the local shard is copied without it: the gathered "
                       "buffer is an argument, or used outside the loop");
    effect->used |= HD_OPTIONS_OF_TRANSFERS;
}

static void add_gather(pipe *p, hd_op *op)
{
    p->axis = op->axis;
    p->ranks = p->module->axis[op->axis].size;
    p->gather[p->ngathers++] =
        (gather){.op = op,
                 .dim = loop_index(p, &op->view[0]),
                 .in_place = !p->options->copy_own &&
                             stays_in_place(p, op->view[0].buffer)};
}

// for ON { .. }, of operations alone
static bool is_loop(const hd_stmt *stmt)
{
    const hd_stmt *on = stmt->body.first;

    if (stmt->kind != HD_STMT_FOR || on == NULL || on != stmt->body.last ||
        on->kind != HD_STMT_ON)
        return false;
    for (const hd_stmt *s = on->body.first; s != NULL; s = s->next)
        if (s->kind != HD_STMT_OP)
            return false;
    return true;
}

// Iteration j of as many as there are ranks gathers shard j from rank j, into
// what it has not touched before.
static bool is_gather(const pipe *p, const hd_stmt *stmt)
{
    const hd_op *op = stmt->op;

    return op->code == HD_OP_BROADCAST && op->noutputs == 1 &&
           op->ninputs == 1 && loop_index(p, &op->view[0]) >= 0 &&
           hd_op_key(op, HD_KEY_ROOT)->expr ==
               hd_expr_of_var(p->module, p->loop->var) &&
           p->loop->a == number(p, 0) &&
           p->loop->b == number(p, p->module->axis[op->axis].size) &&
           (p->ngathers == 0 || op->axis == p->axis) &&
           count_uses(p, stmt, hd_buffer_root(op->view[0].buffer)) == 0;
}

// Whether the loop is at index j in iteration j wherever it is at what this view
// writes, so that no iteration sees what another has left.
static bool is_written_apart(const pipe *p, const hd_view *written)
{
    int j = loop_index(p, written);

    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        for (int i = 0; i < s->op->nviews; i++) {
            const hd_view *view = &s->op->view[i];

            if (hd_buffer_root(view->buffer) ==
                    hd_buffer_root(written->buffer) &&
                (view->buffer != written->buffer || loop_index(p, view) != j))
                return false;
        }
    return j >= 0;
}

static bool writes_apart(const pipe *p, const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        if (hd_op_access(op, i) != HD_ACCESS_READ &&
            !is_written_apart(p, &op->view[i]))
            return false;
    return true;
}

// Whether iteration j is at index j wherever it is at one that changes.
static bool is_in_step(const pipe *p, const hd_op *op)
{
    hd_var j = p->loop->var;

    for (int i = 0; i < op->nviews; i++)
        for (int k = 0; k < op->view[i].nindex; k++) {
            hd_expr index = op->view[i].index[k];

            if (index >= 0 && hd_expr_uses_var(p->module, index, j) &&
                index != hd_expr_of_var(p->module, j))
                return false;
        }
    return true;
}

// None if the loop is not as the stream pass writes it: trips, which come in
// another order and move first, would not have its meaning.
static void find_gathers(pipe *p)
{
    bool fits = true;
    int n = 0;

    p->ops = p->loop->body.first->body.first;
    for (hd_stmt *s = p->ops; s != NULL; s = s->next)
        n++;
    p->gather = hd_new_array(p->scratch, gather, n + 1);
    for (hd_stmt *s = p->ops; s != NULL; s = s->next) {
        fits &= is_in_step(p, s->op) && writes_apart(p, s->op);
        if (is_gather(p, s))
            add_gather(p, s->op);
        else
            fits &= hd_op_is(s->op, HD_UNIT_COMPUTE);
    }
    if (!fits)
        p->ngathers = 0;
}

static void note_transfer(void *context, hd_op *op)
{
    *(bool *)context |= hd_op_is(op, HD_UNIT_TRANSFER);
}

// Transfers that stay as they are, in a loop or branch of another form.
static void report_form(const pipe *p, hd_effect *effect)
{
    bool transfers = false;

    hd_stmt_each(p->loop, note_transfer, &transfers);
    if (transfers && p->loop->kind != HD_STMT_OP)
        hd_effect_none(effect, HD_OPTIONS_OF_TRANSFERS, p->diag, p->loop->loc,
                       "it is not a loop on streams over all ranks whose "
                       "iteration j gathers from rank j, computes on that, and "
                       "writes at index j alone");
}

static hd_status plan_stmt(pipe *p, hd_build *b, hd_effect *effect)
{
    p->ngathers = 0;
    if (is_loop(p->loop))
        find_gathers(p);
    if (p->ngathers == 0) {
        report_form(p, effect);
        hd_block_append(b->block, p->loop);
        return HD_OK;
    }
    p->chunks = p->schedule->move == NULL ? 1 : p->options->chunks;
    if (p->chunks > 1)
        HD_TRY(check_chunks(p));
    for (int i = 0; i < p->ngathers; i++)
        report_effect(p, &p->gather[i], effect);
    add_sent_events(p);
    rebuild_loop(p, b);
    return HD_OK;
}

hd_status hd_pass_transfer(hd_module *module, const hd_lower_options *options,
                           hd_arena *scratch, hd_diag *diag, hd_effect *effect)
{
    int *uses = hd_new_array(scratch, int, module->nbuffers + 1);
    hd_transport transport[HD_MAX_AXES];
    hd_block done = {0};
    hd_stmt *next;
    pipe p = {.module = module,
              .options = options,
              .scratch = scratch,
              .diag = diag,
              .schedule = &schedules[options->transfer],
              .transport = transport,
              .uses = uses};

    HD_TRY(hd_transports_read(module, options->transport, options->axes, diag,
                              transport));
    hd_block_each(&module->body, count_views, uses);
    for (hd_stmt *stmt = module->body.first; stmt != NULL; stmt = next) {
        hd_build b = {module, &done, stmt->loc};

        next = stmt->next;
        p.loop = stmt;
        HD_TRY(plan_stmt(&p, &b, effect));
    }
    module->body = done;
    return HD_OK;
}
